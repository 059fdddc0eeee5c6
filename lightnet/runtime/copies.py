"""Large tensors of a file, in memory that nobody else can change: what a process maps of a file goes when that is
truncated (SIGBUS), and changes when it is written to, so a running network never maps the file that it was loaded from.

A large section is copied once into the user's folder for caches, under the SHA-256 of its contents, and mapped from
there: processes that run the same weights share them, and only the first has to copy. The copy is checked while it is
made, is never written again, and may be removed while it is mapped. Where there is no such folder, or no room in it, a
process has a copy in its own memory. Imports NumPy and the standard library; hashlib when something is copied.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import time
import weakref
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np

from lightnet.runtime.arrays import aligned
from lightnet.runtime.folder import HOUR, clear, evict, limit_of, listed, open_ours, usable, where

#: Sections below this many bytes are read into memory.
LEAST = 1 << 20
#: The variable with the bound of the folder, in MiB; what was not used for longest goes first.
SIZE_VARIABLE = "LIGHTNET_WEIGHTS_SIZE"
DEFAULT_MIB = 1 << 14
_SUFFIX = ".lnw"
#: Bytes that are read, checked and written at a time.
_PIECE = 1 << 22
#: The free share of a disk below which nothing is copied to it.
_FREE = 0.05


class Damaged(Exception):
    """The bytes do not have the digest that they should have: they are damaged, or being written."""


def read_at(fd: int, offset: int, size: int) -> np.ndarray:
    """So many bytes of a file, from `offset` on, in this process's memory, at an aligned address. Raises OSError, and
    `Damaged` where the file ends before."""
    found = _memory(size)
    at = 0
    while at < size:
        count = os.preadv(fd, [found[at:].data], offset + at)
        if not count:
            raise Damaged
        at += count
    return found


def _memory(size: int) -> np.ndarray:
    if size < LEAST or not hasattr(mmap, "MADV_HUGEPAGE"):
        return aligned(size)
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):
        pages.madvise(mmap.MADV_HUGEPAGE)  # a third of the time that filling small pages takes
    return np.frombuffer(pages, np.uint8)


def private(fd: int, offset: int, size: int, digest: str) -> np.ndarray:
    """The section of a file that has this SHA-256 (hexadecimal), read-only, as memory that stays as it is: shared with
    other processes if there is a folder for it. Raises OSError where it cannot be read, `Damaged` where it is something
    else."""
    folder = weights_folder()
    if folder is not None:
        found = _shared(folder / f"{digest}{_SUFFIX}", size)
        if found is None and _has_room(folder, size) and _copy(folder, digest, _pieces(fd, offset, size)):
            found = _shared(folder / f"{digest}{_SUFFIX}", size)
        if found is not None:
            return found
    found = read_at(fd, offset, size)
    check_digest(found, digest)
    found.flags.writeable = False
    return found


def check_digest(data: np.ndarray, digest: str) -> None:
    """Raise `Damaged` unless the bytes have this SHA-256."""
    from hashlib import sha256

    if sha256(data.data).hexdigest() != digest:
        raise Damaged


def weights_folder(make: bool = True) -> Path | None:
    """The folder of the copies, made if it is not there, with `make`; None where there is none that can be trusted."""
    path, _ = where()
    if path is None or usable(path, make) is None:
        return None
    return usable(path / "weights", make)


def copied_bytes() -> int:
    """The bytes of all copies."""
    folder = weights_folder(make=False)
    return sum(found.st_size for _, found in listed(folder, _SUFFIX)) if folder is not None else 0


def clear_copies() -> int:
    """Remove every copy; how many there were. Who has mapped one keeps it."""
    return clear(weights_folder(make=False), _SUFFIX)


def copies_limit() -> int:
    """The most bytes that the copies may take, but for the newest."""
    return limit_of(SIZE_VARIABLE, DEFAULT_MIB)


def _pieces(fd: int, offset: int, size: int) -> Iterator[memoryview]:
    piece = memoryview(bytearray(min(_PIECE, size)))
    at = 0
    while at < size:
        count = os.preadv(fd, [piece[: size - at]], offset + at)
        if not count:
            raise Damaged
        at += count
        yield piece[:count]


def _copy(folder: Path, digest: str, pieces: Iterator[memoryview]) -> bool:
    """Write the entry for `digest`, whole and right or not at all; False where the system refuses. Raises `Damaged`."""
    import secrets
    from hashlib import sha256

    hashed = sha256()
    scratch = folder / f".{secrets.token_hex(8)}.tmp"
    try:
        to = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o400)
    except OSError:
        return False
    try:
        for piece in pieces:
            hashed.update(piece)
            if not _written(to, piece):
                return False
        if hashed.hexdigest() != digest:
            raise Damaged
        os.replace(scratch, folder / f"{digest}{_SUFFIX}")
        most = copies_limit()
        evict(folder, _SUFFIX, most, most, f"{digest}{_SUFFIX}")
        return True
    finally:
        os.close(to)
        with contextlib.suppress(OSError):
            os.unlink(scratch)


def _written(to: int, piece: memoryview) -> bool:
    try:
        while piece:
            piece = piece[os.write(to, piece) :]
    except OSError:  # a full disk, most likely
        return False
    return True


def _has_room(folder: Path, size: int) -> bool:
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    return size <= copies_limit() and found.f_bavail * found.f_frsize - size > _FREE * found.f_blocks * found.f_frsize


def _shared(path: Path, size: int) -> np.ndarray | None:
    """The copy at `path`, mapped; None where it is not there or not usable."""
    fd = open_ours(path)
    if fd is None:
        return None
    try:
        found = os.fstat(fd)
        if found.st_size != size:
            return None
        if time.time() - found.st_mtime > HOUR:
            os.utime(fd)
        return _mapped(fd, size)
    except OSError:
        return None
    finally:
        os.close(fd)


def _mapped(fd: int, size: int) -> np.ndarray:
    """A file mapped read-only, without the descriptor that Python's `mmap` would keep."""
    address = _libc().mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    raw = (ctypes.c_uint8 * size).from_address(address)
    weakref.finalize(raw, _unmap(), address, size).atexit = False  # the process's end unmaps what threads still read
    found = np.frombuffer(memoryview(raw), np.uint8)
    found.flags.writeable = False
    return found


def _unmap() -> Callable[[int, int], int]:
    return _libc().munmap


@cache
def _libc() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
    library.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    return library
