"""The tables of contents of ``.npy``, ``.npz`` and ``.safetensors`` files: where each array's bytes are.

Both formats are read by us, not by NumPy and the safetensors package: only the headers are read when a store is opened,
arrays are views of the mapped file (neither ``np.load`` for ``.npz`` nor the package's NumPy interface gives that),
sizes are checked against the file before anything is allocated, and nothing is evaluated or unpickled. Imports NumPy,
the standard library, diagnostics and the dtypes.
"""

from __future__ import annotations

import json
import math
import re
import struct
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.runtime import dtypes

if TYPE_CHECKING:
    from zipfile import ZipInfo

#: Limits on what is parsed into Python objects, each some twenty times its size in the file.
MAX_HEADER = 1 << 24  # of a .safetensors file
MAX_DIRECTORY = 1 << 22  # of a zip archive: some 50,000 arrays
MAX_NPY_HEADER = 1 << 16
MAX_NAME = 1024
MAX_NDIM = 64


#: `read(start, stop)` gives that part of an array's image.
ReadPart = Callable[[int, int], bytes | memoryview]


@dataclass(frozen=True)
class Entry:
    """One array of a file: its dims and NumPy dtype, and how to get its bytes (row-major unless `fortran`).

    `dtype` is None for a type that NumPy or this reader does not know; `problem` then says which.
    """

    dims: tuple[int, ...]
    dtype: np.dtype | None
    read: Callable[[], bytes | memoryview]
    fortran: bool = False
    problem: str = ""

    def load(self) -> np.ndarray:
        """A read-only array: C-contiguous, of native byte order; a view of the file (at any address) if possible."""
        assert self.dtype is not None
        array = (
            np.frombuffer(self.read(), self.dtype)
            if self.dtype.itemsize
            else np.zeros(math.prod(self.dims), self.dtype)
        )
        array = array.reshape(self.dims, order="F" if self.fortran else "C")
        array = np.require(array, self.dtype.newbyteorder("="), ["C"])
        array.flags.writeable = False
        return array


def malformed(path: str, message: str, label: str) -> LightNetError:
    return LightNetError(f"invalid weight file: {message}", SourceLoc(path), label=label)


# -- .npy and .npz ------------------------------------------------------------------------------------------

_NPY_ITEM = r"'(descr|fortran_order|shape)'\s*:\s*('[^']*'|True|False|\([0-9L,\s]*\))\s*"
_NPY_HEADER = re.compile(rf"\s*\{{\s*{_NPY_ITEM},\s*{_NPY_ITEM},\s*{_NPY_ITEM}(?:,\s*)?\}}\s*")
_NPY_TYPE = re.compile(r"[<>|=]?(?:b1|[fiu](?:1|2|4|8|16)|U[0-9]{1,9})")
#: How NumPy writes ml_dtypes' types: as bytes of no type, two of bfloat16, which no other type of numbers is written
#: as, or one of those that are only stored in (`dtypes.STORED`), whose name is lost.
_NPY_VOID = {"<V2": "V2", "|V2": "V2", **dict.fromkeys(("<V1", "|V1", "<f1", "|f1"), "u1")}


def npy_entry(path: str, what: str, size: int, read: ReadPart) -> Entry:
    """The entry of an ``.npy`` image of `size` bytes.

    Format: NumPy enhancement proposal 1 (magic, version, header length, a dict literal). Any other literal than the
    three keys that NumPy writes is refused; structured and object types make an entry without a dtype. Void of two
    bytes is read as bfloat16, of one byte as uint8.
    """

    def fail(message: str) -> LightNetError:
        return malformed(path, f"'{what}': {message}", "npy")

    start = bytes(read(0, min(12, size)))
    if len(start) < 10 or start[:6] != b"\x93NUMPY" or start[6] not in (1, 2, 3):
        raise fail("not an .npy array")
    width = 2 if start[6] == 1 else 4
    begin = 8 + width
    length = int.from_bytes(start[8:begin], "little")
    if length > MAX_NPY_HEADER or begin + length > size:
        raise fail(f"a header of {length} bytes is longer than the file or the limit of {MAX_NPY_HEADER}")
    text = bytes(read(begin, begin + length)).decode("latin-1")
    match = _NPY_HEADER.fullmatch(text)
    if match is None and "'descr': [" in text:
        return Entry((), None, bytes, problem="a structured type")
    values = dict(zip(match.groups()[0::2], match.groups()[1::2])) if match else {}
    if len(values) != 3 or values["fortran_order"] not in ("True", "False"):
        raise fail("malformed header")
    numbers = re.findall(r"[0-9]+", values["shape"]) if values["shape"].startswith("(") else [""]
    if len(numbers) > MAX_NDIM or any(not 1 <= len(n) <= 19 for n in numbers) or values["descr"][0] != "'":
        raise fail("malformed header")
    dims = tuple(int(n) for n in numbers)
    descr = values["descr"][1:-1]
    if not _NPY_TYPE.fullmatch(descr) and descr not in _NPY_VOID:
        return Entry(dims, None, bytes, problem=f"type '{descr[:40]}'")
    try:
        known = _NPY_VOID.get(descr, descr)
        dtype = dtypes.BFLOAT16 if known == "V2" else np.dtype(known)
    except TypeError:
        return Entry(dims, None, bytes, problem=f"type '{descr[:40]}'")
    stop = begin + length + math.prod(dims) * dtype.itemsize
    if stop > size:
        raise fail(f"shape {list(dims)} of {dtype} needs {stop} bytes, and there are {size}")
    return Entry(dims, dtype, lambda: read(begin + length, stop), values["fortran_order"] == "True")


def npz_entries(data: memoryview, path: str) -> dict[str, Entry]:
    """The arrays of a zip archive of ``.npy`` members (stored or deflated); other members are passed over."""
    from zipfile import BadZipFile, ZipFile  # what opens files is loaded where files are opened

    try:
        with ZipFile(_Stream(data)) as archive:
            members = archive.infolist()
    except (BadZipFile, ValueError, OSError, struct.error, NotImplementedError) as error:
        raise malformed(path, f"not a zip archive: {error}", "npz") from None
    entries: dict[str, Entry] = {}
    for member in members:
        if not member.filename.endswith(".npy"):
            continue
        name = member.filename[:-4]
        if name in entries:
            raise malformed(path, f"array '{name[:80]}' is in the file twice", "npz")
        entries[name] = npy_entry(path, name[:80], member.file_size, _member_reader(data, path, member))
    return entries


def _member_reader(data: memoryview, path: str, member: ZipInfo) -> ReadPart:
    """The content of a member: a stored one is mapped, a deflated one is decompressed each time."""

    from zipfile import ZIP_DEFLATED, ZIP_STORED

    def fail(message: str) -> LightNetError:
        return malformed(path, f"'{member.filename[:80]}': {message}", "npz")

    head = member.header_offset
    if head < 0 or head + 30 > len(data) or data[head : head + 4] != b"PK\x03\x04":
        raise fail("its place in the archive is not in the file")
    name_length, extra_length = struct.unpack("<HH", data[head + 26 : head + 30])
    begin = head + 30 + name_length + extra_length
    packed = data[begin : begin + member.compress_size]
    if len(packed) != member.compress_size:
        raise fail("its content goes beyond the end of the file")
    if member.flag_bits & 0x1:
        raise fail("is encrypted")
    if member.compress_type == ZIP_STORED:
        if member.compress_size != member.file_size:
            raise fail("its two sizes differ")
        return lambda start, stop: packed[start:stop]
    if member.compress_type != ZIP_DEFLATED:
        raise fail("its compression is neither 'stored' nor 'deflate'")
    # Deflate's ratio is at most 1032 (zlib's technical details).
    if member.file_size > 1032 * member.compress_size + 64:
        raise fail(f"{member.compress_size} bytes cannot hold the {member.file_size} that it declares")

    def inflate(start: int, stop: int) -> bytes | memoryview:
        try:
            content = zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, stop) if stop else b""
        except zlib.error as error:
            raise fail(f"damaged ({error})") from None
        if len(content) != stop:
            raise fail("is shorter than it declares")
        if stop == member.file_size and zlib.crc32(content) != member.CRC:
            raise fail("damaged (its checksum differs)")
        return memoryview(content)[start:]

    return inflate


class _Stream:
    """A mapped file as the stream that zipfile reads a directory of, without a copy of it.

    zipfile reads an archive's directory at once, whatever size the end record states: large reads are refused.
    """

    def __init__(self, data: memoryview):
        self.data, self.at = data, 0

    def tell(self) -> int:
        return self.at

    def seek(self, offset: int, whence: int = 0) -> int:
        at = (0, self.at, len(self.data))[whence] + offset
        if at < 0:
            raise OSError("a position before the start of the file")  # what zipfile expects of a file
        self.at = at
        return at

    def read(self, size: int = -1) -> bytes:
        stop = len(self.data) if size is None or size < 0 else min(self.at + size, len(self.data))
        if stop - self.at > MAX_DIRECTORY:
            raise ValueError(f"the archive's directory is larger than {MAX_DIRECTORY} bytes")
        part = self.data[self.at : stop]
        self.at += len(part)
        return bytes(part)


# -- .safetensors -------------------------------------------------------------------------------------------

#: Type names of the format that NumPy has, and those of ml_dtypes, which takes long to import, when they are read.
_SAFETENSORS_TYPES = {
    **{f"{kind.upper()}{8 * size}": f"<{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)},
    "BOOL": "?",
    "F16": "<f2",
    "F32": "<f4",
    "F64": "<f8",
}
_SAFETENSORS_STORED = {"F8_E4M3": "f8E4M3FN", "F8_E5M2": "f8E5M2", "F8_E8M0": "f8E8M0FNU"}


def safetensors_entries(data: memoryview, path: str) -> dict[str, Entry]:
    """The arrays of a file: 8 bytes of header length, a JSON header, then the arrays without gaps.

    Source: the format section of the safetensors project's README. ``__metadata__`` is passed over.
    """

    def fail(message: str) -> LightNetError:
        return malformed(path, message, "safetensors")

    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or 8 + length > len(data):
        raise fail(f"a header of {length} bytes is longer than the file")
    if length > MAX_HEADER:
        raise fail(f"a header of {length} bytes is longer than the limit of {MAX_HEADER}")
    header = _json_object(bytes(data[8 : 8 + length]), fail)
    body = data[8 + length :]
    entries: dict[str, Entry] = {}
    spans = []
    for name, item in header.items():
        if name != "__metadata__":
            entries[name], span = _safetensors_entry(name[:80], item, body, fail)
            spans.append(span)
    at = 0
    for begin, end in sorted(spans):
        if begin != at:
            raise fail(f"the arrays overlap or leave a gap at byte {at} of the data")
        at = end
    if at != len(body):
        raise fail(f"the arrays take {at} bytes, and the file has {len(body)} after its header")
    return entries


def _safetensors_entry(
    name: str, item: object, body: memoryview, fail: Callable[[str], LightNetError]
) -> tuple[Entry, tuple[int, int]]:
    if not isinstance(item, dict) or set(item) != {"dtype", "shape", "data_offsets"}:
        raise fail(f"'{name}' needs dtype, shape and data_offsets")
    kind, dims, offsets = item["dtype"], item["shape"], item["data_offsets"]
    if not (isinstance(kind, str) and _naturals(dims, MAX_NDIM) and _naturals(offsets, 2) and len(offsets) == 2):
        raise fail(f"'{name}' has a malformed dtype, shape or data_offsets")
    begin, end = offsets
    if not begin <= end <= len(body):
        raise fail(f"data_offsets {offsets} of '{name}' are not in the file's {len(body)} bytes of data")
    if (dtype := _safetensors_type(kind)) is None:
        return Entry(tuple(dims), None, bytes, problem=f"type '{kind[:40]}'"), (begin, end)
    if math.prod(dims) * dtype.itemsize != end - begin:
        raise fail(f"shape {dims} of {kind} does not fill the {end - begin} bytes of '{name}'")
    return Entry(tuple(dims), dtype, lambda: body[begin:end]), (begin, end)


def _safetensors_type(kind: str) -> np.dtype | None:
    if kind == "BF16":
        return dtypes.BFLOAT16
    if kind in _SAFETENSORS_STORED:
        return dtypes.BY_NAME[_SAFETENSORS_STORED[kind]].np
    return np.dtype(_SAFETENSORS_TYPES[kind]) if kind in _SAFETENSORS_TYPES else None


def _naturals(value: object, most: int) -> bool:
    return isinstance(value, list) and len(value) <= most and all(type(n) is int and 0 <= n < 1 << 63 for n in value)


def _json_object(text: bytes, fail: Callable[[str], LightNetError]) -> dict[str, object]:
    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        result = dict(pairs)
        if len(result) != len(pairs):
            raise ValueError("a key stands twice in one object")
        return result

    def refuse(constant: str) -> object:
        raise ValueError(f"{constant} is not JSON")

    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=unique, parse_constant=refuse)
    except (ValueError, RecursionError) as error:  # JSONDecodeError and UnicodeDecodeError are ValueErrors
        raise fail(f"malformed header: {str(error)[:120]}") from None
    if not isinstance(header, dict):
        raise fail("the header is not a JSON object")
    return header
