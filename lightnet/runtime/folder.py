"""The user's folder for caches: where it is, and whether what stands in it can be trusted. Imports the standard
library.

What it holds is run, or computed with, so a folder that others may write to is not used, nor a file in it that is not
this user's.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path

#: A file that is read is marked as used no more often than so (seconds); one that was being written is forgotten then.
HOUR = 3600.0
#: The variable that names the folder; ``off`` is none.
FOLDER_VARIABLE = "LIGHTNET_CACHE"


def where() -> tuple[Path | None, str]:
    """The folder that the environment asks for, which need not exist; or None, and why."""
    named = os.environ.get(FOLDER_VARIABLE)
    if named is not None and named.strip().lower() in ("off", "0", "none", ""):
        return None, f"{FOLDER_VARIABLE} switches it off"
    if named is not None:
        return Path(named).absolute(), ""
    base = os.environ.get("XDG_CACHE_HOME")
    if base is None or not os.path.isabs(base):  # as the XDG base directory specification says
        try:
            home = Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
        except RuntimeError:
            return None, "there is no home folder"
        return home / "lightnet", ""
    return Path(base) / "lightnet", ""


def usable(path: Path, make: bool = False) -> Path | None:
    """`path` if it is a folder of this user's, to which no one else may write (made where it is not there, with
    `make`); else None."""
    try:
        if make:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.stat()
    except (OSError, ValueError):
        return None
    return path if stat.S_ISDIR(found.st_mode) and is_ours(found) else None


def is_ours(found: os.stat_result) -> bool:
    """Return whether something is this user's, and no one else may write to it."""
    return (not hasattr(os, "geteuid") or found.st_uid == os.geteuid()) and not found.st_mode & 0o022


def open_ours(path: Path) -> int | None:
    """A descriptor for reading a regular file that `is_ours`; None where there is no such file."""
    try:
        fd = os.open(
            path,
            os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0),
        )
    except (OSError, ValueError):
        return None
    found = os.fstat(fd)
    if stat.S_ISREG(found.st_mode) and is_ours(found):
        return fd
    os.close(fd)
    return None


def listed(folder: Path, suffix: str) -> Iterator[tuple[Path, os.stat_result]]:
    """The files of a folder whose names end with `suffix`, and those that a process was writing (``.….tmp``)."""
    try:
        with os.scandir(folder) as found:
            for item in found:
                if item.name.endswith(suffix) or (item.name.startswith(".") and item.name.endswith(".tmp")):
                    yield Path(item.path), item.stat(follow_symlinks=False)
    except OSError:
        return


def limit_of(variable: str, default: int) -> int:
    """The most bytes that a folder may hold: so many MiB as a variable of the environment says, or else `default`."""
    text = os.environ.get(variable, "")
    return (int(text) if text.isdecimal() and len(text) < 12 else default) << 20


def clear(folder: Path | None, suffix: str) -> int:
    """Remove every file whose name ends with `suffix`; how many there were."""
    return sum(remove(path) for path, _ in listed(folder, suffix)) if folder is not None else 0


def evict(folder: Path, suffix: str, most: int, least: float, newest: str = "") -> int:
    """Remove the files that were not used for longest, but for the one called `newest`, until they take `least` bytes
    or fewer, where they take more than `most`; and what was forgotten while it was written. The bytes that are left
    below `most`."""
    now, rows = time.time(), []
    for path, found in listed(folder, suffix):
        if path.suffix == suffix:
            rows.append((path.name == newest, found.st_mtime, found.st_size, path))
        elif now - found.st_mtime > HOUR:
            remove(path)  # of a process that was killed while it wrote
    total = sum(size for _, _, size, _ in rows)
    bound = least if total > most else most
    for is_newest, _, size, path in sorted(rows):
        if total <= bound or is_newest:
            break
        total -= size * remove(path)
    return max(most - total, 0)


def remove(path: Path) -> bool:
    """Remove a file; whether that was done."""
    try:
        path.unlink()
    except OSError:
        return False
    return True
