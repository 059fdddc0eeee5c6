"""MXNet's ``.params`` files (lists of NDArrays): where each array's bytes are.

    list    := u64 0x112, u64 0, u64 n, n NDArrays, u64 k, k names (u64 length, bytes); k is n, or 0 without names
    NDArray := u32 magic, ...                                   everything little-endian
      V2, V3 (0xF993FAC9, 0xF993FACA): i32 storage, [storage shape], shape, context, type, [aux: type, shape], data,
                                       [aux data]
      V1 (0xF993FAC8):                 shape, context, type, data
      V0 (any other magic is ndim):    ndim times u32, context, type, data
    shape   := i32 ndim, ndim times i64      context := i32 device type, i32 device number      type := i32

An array without a shape (ndim 0 up to V2, an unknown dimension in V3) has no contents, and ends there. Storage 0 is
dense, 1 row-sparse (aux: the rows that are stored), 2 CSR (aux: row starts, columns); a sparse array is made dense when
it is asked for. Names lose the prefixes ``arg:`` and ``aux:``; an array of a nameless list is called by its number.

Every count is checked against what is left of the file before it is believed. Imports NumPy, the dtypes, and
diagnostics.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import NoReturn

import numpy as np

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError, SourceLoc, first_twice
from lightnet.runtime.containers import MAX_NAME, Entry
from lightnet.runtime.dtypes import BY_NAME

#: What a list begins with.
MAGIC = struct.pack("<QQ", 0x112, 0)
#: Arrays of one list: each costs some hundred times what it takes in the file.
MAX_ARRAYS = 1 << 17
MAX_NDIM = 32
#: Bytes of the dense form of a sparse array: a few bytes of a file may claim any shape.
MAX_DENSE = 1 << 32

_V1, _V2, _V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA
_AUX = {0: 0, 1: 1, 2: 2}  # auxiliary arrays by storage type
_DENSE, _ROW_SPARSE, _CSR = 0, 1, 2
#: Element types by MXNet's numbers (mshadow's enumeration); 12 is bfloat16, which not every installation has.
_BFLOAT16, _I32, _I64 = 12, 4, 6
_TYPES = {n: np.dtype(name) for n, name in enumerate(
    ("<f4", "<f8", "<f2", "|u1", "<i4", "|i1", "<i8", "|b1", "<i2", "<u2", "<u4", "<u8"))}  # fmt: skip


def _size(kind: int) -> int:
    return 2 if kind == _BFLOAT16 else _TYPES[kind].itemsize


def strip_prefix(name: str) -> str:
    """A parameter's name without ``arg:`` or ``aux:``."""
    return name[4:] if name.startswith(("arg:", "aux:")) else name


def is_params(data: memoryview) -> bool:
    """Return whether the bytes of a file are such a list."""
    return bytes(data[: len(MAGIC)]) == MAGIC


def params_entries(data: memoryview, path: str) -> tuple[dict[str, Entry], list[str]]:
    """The arrays of a file by name, in its order, and warnings. Raises LightNetError for anything that is malformed."""
    return _Reader(data, path).entries()


@dataclass(frozen=True)
class _Part:
    """Data in the file: where it begins, its dims and its type number."""

    start: int
    dims: tuple[int, ...]
    kind: int

    @property
    def stop(self) -> int:
        return self.start + math.prod(self.dims) * _size(self.kind)


class _Reader:
    """Reads fields of `data` one after the other; errors name the byte where the field begins."""

    def __init__(self, data: memoryview, path: str):
        self.data, self.path, self.pos = data, path, 0
        self.what = "the list"

    def fail(self, message: str, at: int | None = None) -> NoReturn:
        raise _malformed(self.path, f"{self.what}: {message} (at byte {self.pos if at is None else at})")

    def number(self, form: str, what: str) -> int:
        size = struct.calcsize(form)
        if self.pos + size > len(self.data):
            self.fail(f"the file ends before {what}")
        (value,) = struct.unpack_from("<" + form, self.data, self.pos)
        self.pos += size
        return value

    def entries(self) -> tuple[dict[str, Entry], list[str]]:
        if not is_params(self.data):
            self.fail("this is no list of NDArrays (a .params file begins with the number 0x112)")
        self.pos = len(MAGIC)
        count = self.number("Q", "the number of arrays")
        if count > MAX_ARRAYS or 4 * count > len(self.data) - self.pos:  # an array takes 4 bytes at least
            self.fail(f"{count} arrays are more than the file or the limit of {MAX_ARRAYS} holds")
        arrays = []
        for i in range(count):
            self.what = f"array {i}"
            arrays.append(self.array())
        self.what = "the list"
        names = self.names(count)
        found = dict(zip(names, arrays))
        if len(found) != count:
            self.fail(f"two arrays are named '{first_twice(names)[:80]}'")
        rest = len(self.data) - self.pos
        return found, [f"{self.path}: {rest} bytes after the last name are ignored"] if rest else []

    def names(self, count: int) -> list[str]:
        given = self.number("Q", "the number of names")
        if given == 0:
            return [str(i) for i in range(count)]
        if given != count:
            self.fail(f"there are {count} arrays and {given} names")
        return [strip_prefix(self.name()) for _ in range(count)]

    def name(self) -> str:
        length = self.number("Q", "the length of a name")
        if length > MAX_NAME or self.pos + length > len(self.data):
            self.fail(f"a name of {length} bytes is longer than the file or the limit of {MAX_NAME}")
        try:
            text = bytes(self.data[self.pos : self.pos + length]).decode()
        except UnicodeDecodeError:
            self.fail("a name is not UTF-8")
        self.pos += length
        return text

    # -- one array

    def array(self) -> Entry:
        magic = self.number("I", "the array")
        storage = _DENSE
        if magic in (_V2, _V3):
            storage = self.number("i", "the storage type")
            if storage not in _AUX:
                self.fail(f"storage type {storage} is unknown (0 dense, 1 row-sparse, 2 CSR)")
        stored = self.shape() if storage != _DENSE else None
        dims = self.shape() if magic in (_V1, _V2, _V3) else self.dims(magic, "I")
        known = dims is not None and min(dims, default=0) >= 0 if magic == _V3 else bool(dims)
        if not known:
            return Entry((), None, bytes, problem="none (the array has no contents)")
        assert dims is not None
        if min(dims, default=0) < 0:
            self.fail(f"a dimension of {list(dims)} is negative")
        self.number("i", "the device type")
        self.number("i", "the device number")
        kind = self.kind()
        if storage == _DENSE:
            part = self.part(dims, kind)
            return _entry(dims, kind, lambda: self.data[part.start : part.stop])
        return self.sparse(storage, stored, dims, kind)

    def shape(self) -> tuple[int, ...] | None:
        """Dims; None where even their number is unknown (-1, in V3)."""
        ndim = self.number("i", "a shape")
        return None if ndim == -1 else self.dims(ndim, "q")

    def dims(self, ndim: int, form: str) -> tuple[int, ...]:
        if not 0 <= ndim <= MAX_NDIM:
            self.fail(f"{ndim} dimensions are more than {MAX_NDIM}, or the bytes are no array")
        return tuple(self.number(form, "a dimension") for _ in range(ndim))

    def kind(self) -> int:
        kind = self.number("i", "the element type")
        if kind not in _TYPES and kind != _BFLOAT16:
            self.fail(f"element type {kind} is unknown")
        return kind

    def part(self, dims: tuple[int, ...], kind: int) -> _Part:
        """Data of that shape at the current place, which moves behind it."""
        part = _Part(self.pos, dims, kind)
        if part.stop > len(self.data):
            left = len(self.data) - self.pos
            self.fail(f"shape {list(dims)} needs {part.stop - part.start} bytes, and {left} are left in the file")
        self.pos = part.stop
        return part

    def sparse(self, storage: int, stored: tuple[int, ...] | None, dims: tuple[int, ...], kind: int) -> Entry:
        headers: list[tuple[tuple[int, ...], int]] = []
        for _ in range(_AUX[storage]):
            aux_kind = self.kind()
            headers.append((self.shape() or (), aux_kind))
        if not all(len(d) == 1 and d[0] >= 0 for d, _ in headers):
            self.fail("the indices of a sparse array have to be vectors")
        if any(k not in (_I32, _I64) for _, k in headers):
            self.fail("the indices of a sparse array have to be of type int64 or int32")
        if math.prod(dims) * _size(kind) > MAX_DENSE:
            self.fail(f"the sparse array {list(dims)} would take more than {MAX_DENSE} bytes")
        count = headers[-1][0][0]  # stored rows, or stored elements
        fits = stored == ((count, *dims[1:]) if storage == _ROW_SPARSE else (count,))
        if storage == _CSR:
            fits = fits and len(dims) == 2 and headers[0][0] == (dims[0] + 1,)
        # A row-sparse array of zeros alone may keep an empty index and a shape of zeros.
        if stored is None or not (fits or (count == 0 and math.prod(stored) == 0 and min(stored) >= 0)):
            self.fail(f"the parts of the sparse array {list(dims)} do not fit together")
        values = self.part(stored, kind)
        indices = [self.part(d, k) for d, k in headers]
        dense = _rows if storage == _ROW_SPARSE else _csr
        return _entry(dims, kind, lambda: dense(self.data, self.path, dims, values, indices))


def _entry(dims: tuple[int, ...], kind: int, read: Callable[[], bytes | memoryview]) -> Entry:
    """An entry of MXNet's type number `kind`; a type that is not there is an error only where it is used."""
    if kind != _BFLOAT16:
        return Entry(dims, _TYPES[kind], read)
    bfloat16 = BY_NAME.get("bf16")
    return Entry(dims, bfloat16.np if bfloat16 else None, read, problem="bfloat16, which needs the package ml_dtypes")


def _malformed(path: str, message: str) -> LightNetError:
    return LightNetError(f"invalid weight file: {message}", SourceLoc(path), label="mxnet")


# -- sparse arrays ----------------------------------------------------------------------------------------------------


def _array(data: memoryview, part: _Part) -> np.ndarray:
    """Stored data as unsigned words of its size, or as indices."""
    dtype = _TYPES[part.kind] if part.kind in (_I32, _I64) else f"<u{_size(part.kind)}"
    return np.frombuffer(data[part.start : part.stop], dtype).reshape(part.dims)


def _rows(data: memoryview, path: str, dims: tuple[int, ...], values: _Part, indices: list[_Part]) -> memoryview:
    """The bytes of the dense form of a row-sparse array: row index[i] is values[i], the others 0."""
    rows = _array(data, indices[0])
    stored = _array(data, values)
    _check_indices(path, rows, dims[0])
    dense = np.zeros(dims, stored.dtype)
    if rows.size:
        dense[rows] = stored
    return dense.reshape(-1).view(np.uint8).data


def _csr(data: memoryview, path: str, dims: tuple[int, ...], values: _Part, indices: list[_Part]) -> memoryview:
    """The bytes of the dense form of a CSR matrix: row r has values[i] in column columns[i], starts[r] <= i <
    starts[r + 1]."""
    starts, columns = (_array(data, part) for part in indices)
    stored = _array(data, values)
    dense = np.zeros(dims, stored.dtype)
    if not stored.size:
        return dense.reshape(-1).view(np.uint8).data
    counts = np.diff(starts)
    if starts[0] != 0 or starts[-1] != stored.size or (counts < 0).any():
        raise _malformed(path, "the row starts of a CSR matrix do not ascend from 0 to the number of its elements")
    _check_indices(path, columns, dims[1])
    dense[np.repeat(np.arange(dims[0]), counts), columns] = stored
    return dense.reshape(-1).view(np.uint8).data


def _check_indices(path: str, indices: np.ndarray, limit: int) -> None:
    if indices.size and not 0 <= int(indices.min()) <= int(indices.max()) < limit:
        raise _malformed(path, f"an index of a sparse array is not below {limit}")
