"""Machine code in this process: what is given back of the library that links it."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from types import SimpleNamespace

import llvmlite.binding as llvm
import pytest

from lightnet.runtime import native

MAPS = Path("/proc/self/maps")


@pytest.fixture
def given_back(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The ranges of memory that the system is told of, instead of the telling."""
    ranges: list[tuple[int, int]] = []

    def madvise(begin: ctypes.c_void_p, size: ctypes.c_size_t, advice: int) -> None:
        assert advice == 4, "MADV_DONTNEED"
        ranges.append((begin.value or 0, size.value))

    library = SimpleNamespace(madvise=madvise)
    monkeypatch.setattr(native.ctypes, "CDLL", lambda name: library)
    return ranges


@pytest.mark.skipif(not MAPS.exists(), reason="the system does not say where libraries are")
def test_what_is_given_back_comes_back_from_the_file(given_back: list[tuple[int, int]]) -> None:
    """Whole pages, each once, which hold what stands in the file: most of LLVM, and nothing that the process wrote."""
    path = Path(llvm.ffi.lib._name)
    parts = native._constant_parts(str(path))
    native.release_library()
    file = path.read_bytes()
    assert [size for _, size in sorted(given_back)] == [last - first for first, last in sorted(parts)]
    for (begin, size), (first, _) in zip(sorted(given_back), sorted(parts)):
        assert begin % native.PAGE == size % native.PAGE == 0
        for at in (0, size // 2, size - 4096):
            assert ctypes.string_at(begin + at, 4096) == file[first + at : first + at + 4096], hex(first + at)
    assert sum(size for _, size in given_back) > len(file) / 2
    assert all(end <= begin for (_, end), (begin, _) in zip(sorted(parts), sorted(parts)[1:]))


@pytest.mark.skipif(not MAPS.exists(), reason="the system does not say where libraries are")
@pytest.mark.parametrize("name", ["/no/such/library", str(MAPS), os.__file__])
def test_what_is_no_library_has_nothing_to_give_back(
    given_back: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(native.llvm.ffi, "lib", SimpleNamespace(_name=name))
    native.release_library()
    assert given_back == []
