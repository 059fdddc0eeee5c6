"""Opening what a user named, safely: regular files are mapped read-only, results appear whole or not at all.

Imports the standard library only.
"""

from __future__ import annotations

import mmap
import os
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from errno import ELOOP
from functools import partial
from pathlib import Path
from typing import BinaryIO
from weakref import WeakSet

from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.source import refuse_pointer


def map_file(path: str | os.PathLike[str]) -> memoryview:
    """The bytes of a regular file, mapped read-only (nothing is read before it is used).

    Raises LightNetError for what cannot be opened and for anything but a regular file (a pipe or a device has no size
    to check against). The map lives as long as something refers to the view. Whoever truncates the file in that time
    crashes the reader, as with every memory map: replace weight files by renaming, never in place.
    """
    fd = open_file(path)
    try:
        return map_descriptor(fd, os.fsdecode(path))
    finally:
        os.close(fd)


def open_file(path: str | os.PathLike[str]) -> int:
    """A descriptor for reading what a user named, for the caller to close. Raises LightNetError where that cannot be
    opened."""
    name = os.fsdecode(path)
    try:
        # A pipe without a writer must not block the open.
        return os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except (OSError, ValueError) as error:
        raise LightNetError(f"cannot open: {reason_of(error)}", SourceLoc(name)) from None


def check_regular(fd: int, name: str) -> None:
    """Raise LightNetError for a descriptor of anything but a regular file: a folder, a pipe or a device has no size to
    check against."""
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode):
        raise LightNetError(f"not a regular file{' but a folder' * stat.S_ISDIR(mode)}", SourceLoc(name))


def map_descriptor(fd: int, name: str) -> memoryview:
    """`map_file` for an open file; `name` stands in errors."""
    check_regular(fd, name)
    try:
        if (size := os.fstat(fd).st_size) == 0:
            return memoryview(b"")
        mapped = mmap.mmap(fd, size, access=mmap.ACCESS_READ)
        _MAPPED.add(mapped)
        data = memoryview(mapped)
    except (OSError, ValueError) as error:
        raise LightNetError(f"cannot map: {reason_of(error)}", SourceLoc(name)) from None
    refuse_pointer(bytes(data[:24]), name)
    return data


#: The maps that there are.
_MAPPED: WeakSet[mmap.mmap] = WeakSet()


def release_pages() -> None:
    """Give the memory of mapped files back: what was read of them no longer counts as this process's, and is read again
    where it is needed. Does nothing where the system has no such call."""
    if hasattr(mmap, "MADV_DONTNEED"):
        for mapped in list(_MAPPED):
            with suppress(OSError, ValueError):  # closed
                mapped.madvise(mmap.MADV_DONTNEED)


def write_atomic(path: str | os.PathLike[str], content: str | bytes | Callable[[BinaryIO], None]) -> None:
    """Write a whole file or nothing: a text, bytes, or what `content` writes to the open file.

    A neighbour is filled first and then takes the file's name. An existing file keeps its permissions; a symbolic link
    is followed; a device or a pipe (``/dev/null``) is written directly, and ``-`` is standard output. Raises
    LightNetError when the system refuses.
    """
    if isinstance(content, str):
        content = content.encode("utf-8")
    if isinstance(content, bytes):
        content = partial(_write_bytes, content)
    if os.fsdecode(path) == "-":
        sys.stdout.flush()
        content(sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    try:
        _write(Path(os.fsdecode(path)), content)
    except (OSError, ValueError) as error:
        raise LightNetError(f"cannot write '{os.fsdecode(path)}': {reason_of(error)}") from None


def resolved(path: Path) -> Path:
    """A path with links followed. Raises OSError where they run in a circle, which Python 3.13 leaves as it is and
    earlier ones call a RuntimeError."""
    try:
        found = path.resolve()
    except RuntimeError:
        found = path
    if any(part.is_symlink() for part in (found, *found.parents)):
        raise OSError(ELOOP, os.strerror(ELOOP))
    return found


def _write_bytes(content: bytes, out: BinaryIO) -> None:
    out.write(content)


def _write(target: Path, write: Callable[[BinaryIO], None]) -> None:
    if target.exists() and not target.is_file():
        with open(target, "wb") as out:
            write(out)
        return
    import secrets  # which takes longer to import than a saved executable to load

    target = resolved(target)  # replace what a link points to, not the link
    scratch = target.with_name(f".{target.name[:100]}.{secrets.token_hex(6)}.tmp")
    try:
        with open(scratch, "xb") as out:
            write(out)
        if target.exists():
            os.chmod(scratch, stat.S_IMODE(target.stat().st_mode))
        os.replace(scratch, target)
    finally:
        scratch.unlink(missing_ok=True)


def reason_of(error: Exception) -> str:
    """The reason that the system gives."""
    return getattr(error, "strerror", None) or str(error)
