"""The folder of copies of weights: what is evicted and when, what a full or failing disk does; and parts of a file that come in pieces."""

from __future__ import annotations

import errno
import os
import time
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from lightnet.runtime import copies
from lightnet.runtime.folder import evict

MIB = 1 << 20
DATA = bytes(range(256)) * 40
DIGEST = sha256(DATA[5:5000]).hexdigest()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LIGHTNET_CACHE", str(tmp_path / "cache"))
    found = copies.weights_folder()
    assert found == tmp_path / "cache" / "weights"
    return found


@pytest.fixture
def source(tmp_path: Path):
    (tmp_path / "w").write_bytes(DATA)
    fd = os.open(tmp_path / "w", os.O_RDONLY)
    yield fd
    os.close(fd)


@pytest.fixture
def in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads and writes of at most 1,000 bytes at a time, as a system may do them."""
    read, write = os.preadv, os.write
    monkeypatch.setattr(os, "preadv", lambda fd, parts, at: read(fd, [memoryview(parts[0])[:1000]], at))
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:700]))


@pytest.mark.usefixtures("in_pieces")
def test_sections_in_pieces(folder: Path, source: int) -> None:
    assert copies.read_at(source, 5, 4995).tobytes() == DATA[5:5000]
    assert copies.read_at(source, 10, 0).tobytes() == b""
    assert [bytes(p) for p in copies._pieces(source, 5, 2100)] == [DATA[5:1005], DATA[1005:2005], DATA[2005:2105]]
    found = copies.private(source, 5, 4995, DIGEST)
    assert found.tobytes() == DATA[5:5000] and not found.flags.writeable
    assert [p.name for p in folder.iterdir()] == [f"{DIGEST}.lnw"] and copies.copied_bytes() == 4995
    for read in (
        lambda: copies.read_at(source, 5000, len(DATA)),
        lambda: list(copies._pieces(source, 5000, len(DATA))),
    ):
        with pytest.raises(copies.Damaged):
            read()


def test_what_is_large_lies_in_pages_of_its_own() -> None:
    for size in (copies.LEAST - 1, copies.LEAST, copies.LEAST + 1):
        memory = copies._memory(size)
        assert memory.nbytes == size and memory.dtype == np.uint8 and memory.flags.writeable
        assert memory.ctypes.data % 64 == 0 and (size < copies.LEAST or memory.ctypes.data % 4096 == 0)


def test_another_content_is_damaged(folder: Path, source: int) -> None:
    with pytest.raises(copies.Damaged):
        copies.private(source, 6, 4995, DIGEST)
    assert list(folder.iterdir()) == []


def test_a_copy_of_another_size_is_not_used(folder: Path, source: int) -> None:
    path = folder / f"{DIGEST}.lnw"
    path.write_bytes(DATA[5:4999])
    path.chmod(0o600)
    assert copies._shared(path, 4995) is None and copies._shared(path, 4994) is not None
    assert copies._shared(folder / "none.lnw", 1) is None


def test_a_copy_is_marked_as_used_once_an_hour(folder: Path) -> None:
    path = folder / "a.lnw"
    path.write_bytes(b"1234")
    path.chmod(0o600)
    now = time.time()
    for age, fresh in ((3000, False), (4000, True)):
        os.utime(path, (now - age, now - age))
        assert copies._shared(path, 4) is not None
        assert (time.time() - path.stat().st_mtime < 3600 - 700) == fresh


def test_what_cannot_be_mapped(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    with open(tmp_path / "empty", "rb") as file, pytest.raises(OSError) as caught:
        copies._mapped(file.fileno(), 0)
    assert caught.value.errno == errno.EINVAL


@pytest.mark.parametrize(("text", "mib"), [
    ("", 1 << 14), ("0", 0), ("5", 5), ("12345678901", 12345678901), ("123456789012", 1 << 14), ("-1", 1 << 14), ("5M", 1 << 14),
])  # fmt: skip
def test_the_limit_of_the_folder(text: str, mib: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIGHTNET_WEIGHTS_SIZE", text)
    assert copies.copies_limit() == mib << 20


def test_room_on_the_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A twentieth of the disk stays free; a copy is no larger than the folder may be."""
    monkeypatch.setenv("LIGHTNET_WEIGHTS_SIZE", "1")
    disk = SimpleNamespace(f_bavail=600, f_frsize=4096, f_blocks=2000)
    monkeypatch.setattr(os, "statvfs", lambda path: disk)
    assert copies._has_room(folder, MIB) and not copies._has_room(folder, MIB + 1)
    disk.f_bavail = 100 + MIB // 4096
    assert not copies._has_room(folder, MIB) and copies._has_room(folder, MIB - 1)
    monkeypatch.setattr(os, "statvfs", _fails)
    assert not copies._has_room(folder, 1)


def _fails(*_: object) -> None:
    raise OSError(errno.ENOSPC, "no space left on device")


def test_a_disk_that_is_full(folder: Path, source: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process then has the section in its own memory, and leaves nothing behind."""
    monkeypatch.setattr(os, "write", _fails)
    assert not copies._copy(folder, DIGEST, copies._pieces(source, 5, 4995))
    found = copies.private(source, 5, 4995, DIGEST)
    assert found.tobytes() == DATA[5:5000] and not found.flags.writeable and list(folder.iterdir()) == []
    monkeypatch.undo()
    assert not copies._copy(folder / "missing", DIGEST, iter([]))


def test_eviction(folder: Path) -> None:
    """What was not used for longest goes first, the newest never; scratch files go when they are an hour old."""
    now = time.time()

    def put(name: str, size: int, age: float) -> None:
        (folder / name).write_bytes(b"0" * size)
        os.utime(folder / name, (now - age, now - age))

    def left() -> set[str]:
        return {p.name for p in folder.iterdir()}

    put("old.lnw", MIB // 2, 500)
    put("new.lnw", MIB // 2, 900)
    put("mid.lnw", MIB // 4, 300)
    put("late.lnw", MIB // 4, 100)
    put(".a.tmp", 10, 3500)
    put(".b.tmp", 10, 3700)
    evict(folder, ".lnw", MIB, MIB, "new.lnw")
    assert left() == {"new.lnw", "mid.lnw", "late.lnw", ".a.tmp"}  # just as much as may be
    put("late.lnw", MIB // 4 + 1, 400)
    evict(folder, ".lnw", MIB, MIB, "new.lnw")
    assert left() == {"new.lnw", "mid.lnw", ".a.tmp"}
    put("new.lnw", MIB + 1, 5000)
    evict(folder, ".lnw", MIB, MIB, "new.lnw")
    assert left() == {"new.lnw", ".a.tmp"}
    assert copies.copied_bytes() == MIB + 11 and copies.clear_copies() == 2 and left() == set()


def test_without_a_folder_there_are_no_copies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where the cache is off, none is there yet, or a file stands in its place: nothing is counted, cleared or made."""
    (tmp_path / "file").write_bytes(b"abc")
    for cache in ("", str(tmp_path / "none"), str(tmp_path / "file")):
        monkeypatch.setenv("LIGHTNET_CACHE", cache)
        assert copies.weights_folder(make=False) is None, cache
        assert (copies.copied_bytes(), copies.clear_copies()) == (0, 0), cache
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
