"""Files of arrays, each boundary of what is read: exact messages of what is refused, and what lies just within it is read."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

import numpy as np
import pytest

from lightnet.diagnostics import LightNetError
from lightnet.runtime import containers
from lightnet.runtime.containers import npy_entry, npz_entries, safetensors_entries

GOOD = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }"
BODY = np.array([1.5, -2], "<f4").tobytes()


def npy(header: str, body: bytes = BODY, version: int = 1, length: int | None = None) -> bytes:
    width = 2 if version == 1 else 4
    return b"\x93NUMPY" + bytes([version, 0]) + (len(header) if length is None else length).to_bytes(width, "little") + header.encode() + body  # fmt: skip


def said(read: Any, *args: Any) -> Any:
    """What a reader gives, or what it says."""
    try:
        return read(*args)
    except LightNetError as error:
        assert error.message.startswith("invalid weight file: ") and error.loc is not None
        return error.message.removeprefix("invalid weight file: ")


def read_npy(data: bytes) -> Any:
    """The array, what is wrong with its type, or what is said of the file."""
    found = said(npy_entry, "f.npy", "a", len(data), lambda start, stop: data[start:stop])
    return found if isinstance(found, str) else found.problem or found.load()


def of_shape(shape: str) -> str:
    return GOOD.replace("(2,)", shape)


def of_type(descr: str) -> str:
    return GOOD.replace("'<f4'", descr)


ONES = "(" + "1," * 63 + "2,)"
NPY = [
    (npy(GOOD, version=4), "'a': not an .npy array"),
    (npy(GOOD, version=0), "'a': not an .npy array"),
    (b"\x93NUMPX" + npy(GOOD)[6:], "'a': not an .npy array"),
    (npy(GOOD)[:9], "'a': not an .npy array"),
    (b"", "'a': not an .npy array"),
    (npy("", b"", length=0), "'a': malformed header"),
    (npy("", b"", version=2)[:10], "'a': a header of 0 bytes is longer than the file or the limit of 65536"),
    (npy(GOOD, b""), "'a': shape [2] of float32 needs 75 bytes, and there are 67"),
    (npy(GOOD, BODY[:7]), "'a': shape [2] of float32 needs 75 bytes, and there are 74"),
    (npy("{}", b"", length=3), "'a': a header of 3 bytes is longer than the file or the limit of 65536"),
    (npy(GOOD.ljust(65537), version=2), "'a': a header of 65537 bytes is longer than the file or the limit of 65536"),
    (npy(of_shape("True")), "'a': malformed header"),
    (npy(of_shape("'2'")), "'a': malformed header"),
    (npy(of_shape(ONES[:-1] + "1,)")), "'a': malformed header"),
    (npy(of_shape("(" + "1" * 20 + ",)")), "'a': malformed header"),
    (npy(of_type("True")), "'a': malformed header"),
    (npy(of_type("(2,)")), "'a': malformed header"),
    (npy(GOOD.replace("False", "'no'")), "'a': malformed header"),
    (npy(GOOD.replace("'shape'", "'descr'")), "'a': malformed header"),
    (npy(of_type("[('a', '<f4')]")), "a structured type"),
    (npy(of_type("'|O'")), "type '|O'"),
    (npy(of_type("'<M8[ns]'")), "type '<M8[ns]'"),
    (npy(of_type("'<i16'")), "type '<i16'"),
]  # fmt: skip


def test_npy() -> None:
    assert [read_npy(data) for data, _ in NPY] == [want for _, want in NPY]
    for version in (1, 2, 3):
        assert read_npy(npy(GOOD, version=version)).tolist() == [1.5, -2]
    assert read_npy(npy(GOOD.ljust(65536), version=2)).tolist() == [1.5, -2]
    assert read_npy(npy(of_shape(ONES))).shape == (*[1] * 63, 2)
    assert read_npy(npy(of_shape("()"))).tolist() == 1.5
    assert read_npy(npy(of_type("'<U0'"), b"")).tolist() == ["", ""]
    turned = npy("{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3)}", np.arange(6, dtype=">i2").tobytes())
    assert read_npy(turned).tolist() == [[0, 2, 4], [1, 3, 5]] and read_npy(turned).dtype.isnative
    assert not read_npy(turned).flags.writeable and read_npy(turned).flags.c_contiguous


def archive(members: list[tuple[str, bytes]], method: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as made:
        for name, data in members:
            with made.open(zipfile.ZipInfo(name), "w") if method == zipfile.ZIP_STORED else made.open(name, "w") as to:
                to.write(data)
    return file.getvalue()


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_npz() -> None:
    image = npy(GOOD, BODY)
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        data = archive([("notes.txt", b"no array"), ("a.npy", image), ("b/c.npy", image)], method)
        found = npz_entries(memoryview(data), "f")
        assert list(found) == ["a", "b/c"] and found["a"].load().tolist() == [1.5, -2]
    twice = archive([("a.npy", image), ("a.npy", image)])
    assert said(npz_entries, memoryview(twice), "f") == "array 'a' is in the file twice"
    assert said(npz_entries, memoryview(b"PK"), "f") == "not a zip archive: File is not a zip file"


@pytest.mark.parametrize(("method", "changes", "want"), [
    (zipfile.ZIP_STORED, {"header_offset": -1}, "its place in the archive is not in the file"),
    (zipfile.ZIP_STORED, {"header_offset": 1}, "its place in the archive is not in the file"),
    (zipfile.ZIP_STORED, {"header_offset": 1 << 40}, "its place in the archive is not in the file"),
    (zipfile.ZIP_STORED, {"compress_size": 1 << 20}, "its content goes beyond the end of the file"),
    (zipfile.ZIP_STORED, {"flag_bits": 1}, "is encrypted"),
    (zipfile.ZIP_STORED, {"flag_bits": 2}, None),
    (zipfile.ZIP_STORED, {"file_size": 74}, "its two sizes differ"),
    (zipfile.ZIP_STORED, {"compress_type": zipfile.ZIP_BZIP2}, "its compression is neither 'stored' nor 'deflate'"),
    (zipfile.ZIP_DEFLATED, {"file_size": lambda m: 1032 * m.compress_size + 65}, "{0.compress_size} bytes cannot hold the {0.file_size} that it declares"),
    (zipfile.ZIP_DEFLATED, {"file_size": lambda m: 1032 * m.compress_size + 64}, "is shorter than it declares"),
    (zipfile.ZIP_DEFLATED, {"file_size": lambda m: m.file_size + 1}, "is shorter than it declares"),
    (zipfile.ZIP_DEFLATED, {"CRC": lambda m: m.CRC ^ 1}, "damaged (its checksum differs)"),
    (zipfile.ZIP_DEFLATED, {"compress_type": zipfile.ZIP_STORED, "file_size": lambda m: m.compress_size}, None),
])  # fmt: skip
def test_members(method: int, changes: dict[str, Any], want: str | None) -> None:
    data = memoryview(archive([("a.npy", npy(GOOD))], method))
    with zipfile.ZipFile(io.BytesIO(data)) as opened:
        (member,) = opened.infolist()
    values = {name: v(member) if callable(v) else v for name, v in changes.items()}
    for name, value in values.items():
        setattr(member, name, value)

    def content() -> Any:
        return containers._member_reader(data, "f", member)(0, member.file_size)

    found = said(content)
    if want is None:
        assert len(found) == member.file_size
    else:
        assert found == f"'a.npy': {want.format(member)}"


def test_damaged_deflation_and_empty_parts() -> None:
    data = bytearray(archive([("a.npy", npy(GOOD))], zipfile.ZIP_DEFLATED))
    with zipfile.ZipFile(io.BytesIO(bytes(data))) as opened:
        (member,) = opened.infolist()
    read = containers._member_reader(memoryview(data), "f", member)
    assert bytes(read(0, 0)) == b"" and bytes(read(1, 6)) == b"NUMPY"
    data[30 + len("a.npy")] ^= 0xFF
    assert said(read, 0, 5).startswith("'a.npy': damaged (Error -3")


def test_the_directory_of_an_archive_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "MAX_DIRECTORY", 4)
    stream = containers._Stream(memoryview(b"0123456789"))
    assert stream.read(4) == b"0123" and stream.tell() == 4
    with pytest.raises(ValueError, match="larger than 4 bytes"):
        stream.read(5)
    with pytest.raises(ValueError, match="larger than 4 bytes"):
        stream.read()
    assert stream.seek(-2, 2) == 8 and stream.read() == b"89" and stream.seek(-3, 1) == 7 and stream.read(-1) == b"789"
    with pytest.raises(OSError, match="before the start"):
        stream.seek(-1)
    assert stream.seek(0) == 0


def tensors(header: Any, body: bytes = BODY, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + body


def one(**changes: Any) -> dict[str, Any]:
    return {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | changes}


WRONG = "'a' has a malformed dtype, shape or data_offsets"
SAFETENSORS = [
    (tensors(one()), [1.5, -2]),
    (tensors({"__metadata__": {"x": "y"}} | one()), [1.5, -2]),
    (b"\0" * 7, "a header of 0 bytes is longer than the file"),
    (b"\0" * 8, "malformed header: Expecting value: line 1 column 1 (char 0)"),
    (tensors(b"{}", b"", length=3), "a header of 3 bytes is longer than the file"),
    (tensors(b"[]", b""), "the header is not a JSON object"),
    (tensors(b'{"a": NaN}', b""), "malformed header: NaN is not JSON"),
    (tensors(b'{"a": 1, "a": 2}', b""), "malformed header: a key stands twice in one object"),
    (tensors({"a": []}), "'a' needs dtype, shape and data_offsets"),
    (tensors({"a": {"dtype": "F32"}}), "'a' needs dtype, shape and data_offsets"),
    (tensors(one(dtype=1)), WRONG),
    (tensors(one(shape=2)), WRONG),
    (tensors(one(shape=[-1])), WRONG),
    (tensors(one(shape=[True])), WRONG),
    (tensors(one(shape=[1 << 63])), WRONG),
    (tensors(one(shape=[1] * 65)), WRONG),
    (tensors(one(data_offsets=[0])), WRONG),
    (tensors(one(data_offsets=[0, 8, 8])), WRONG),
    (tensors(one(data_offsets=[0, 8.0])), WRONG),
    (tensors(one(data_offsets="08")), WRONG),
    (tensors(one(data_offsets=[8, 0])), "data_offsets [8, 0] of 'a' are not in the file's 8 bytes of data"),
    (tensors(one(data_offsets=[0, 9])), "data_offsets [0, 9] of 'a' are not in the file's 8 bytes of data"),
    (tensors(one(data_offsets=[1, 8])), "shape [2] of F32 does not fill the 7 bytes of 'a'"),
    (tensors(one(dtype="F4", data_offsets=[1, 8])), "the arrays overlap or leave a gap at byte 0 of the data"),
    (tensors(one(dtype="F4")), "type 'F4'"),
    (tensors(one(), BODY + b"0"), "the arrays take 8 bytes, and the file has 9 after its header"),
]  # fmt: skip


def test_safetensors(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(data: bytes) -> Any:
        found = said(safetensors_entries, memoryview(data), "f")
        return found if isinstance(found, str) else found["a"].problem or found["a"]

    for data, want in SAFETENSORS:
        found = read(data)
        assert (found if isinstance(found, str) else found.load().tolist()) == want, data
    assert read(tensors(one(shape=[1] * 63 + [2]))).load().shape == (*[1] * 63, 2)
    assert read(tensors(one(dtype="BOOL", shape=[8]))).load().dtype == bool
    data = tensors(one())
    monkeypatch.setattr(containers, "MAX_HEADER", len(data) - 16)
    assert read(data).dims == (2,)
    monkeypatch.setattr(containers, "MAX_HEADER", len(data) - 17)
    assert read(data) == f"a header of {len(data) - 16} bytes is longer than the limit of {len(data) - 17}"
