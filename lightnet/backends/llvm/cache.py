"""Machine code and PTX on disk, so that a network that was compiled once compiles in milliseconds: one file a kernel, named by its content.

A key is a hash of all that decides the code: the LLVM IR text, the machine, how it is optimised, and the versions of LLVM and of this
format. Entries are written whole or not at all, and carry a hash that is checked when they are read; one that is damaged counts as
absent. Nothing here is ever an error: where a folder cannot be used, everything is compiled. A folder that others may write to is not
used, since what it holds is run. Measured: reading the 56 kernels of YOLOv3 takes 2 ms, so they need no common file.
Imports the standard library and llvmlite.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import llvmlite
import llvmlite.binding as llvm

from lightnet.diagnostics import LightNetError
from lightnet.runtime.files import write_atomic

#: The variable that names the folder; ``off`` is none. And the one that bounds its size, in MiB.
VARIABLE, SIZE_VARIABLE = "LIGHTNET_CACHE", "LIGHTNET_CACHE_SIZE"
DEFAULT_MIB = 512
#: To be raised when what `jit.Compiler` does with a text changes: a part of every key.
_MAGIC = b"LNOBJ1\n\0"
_DIGEST = 32
_SUFFIX = ".lno"
#: Largest entry that is read: no kernel comes near it.
_LARGEST = 1 << 26
#: What eviction leaves of the bound, so that not every compilation has to evict.
_KEPT = 0.8
#: An entry that is read is marked as used, but not more often than so (seconds); a forgotten scratch file is as old.
_HOUR = 3600.0
#: Of what is left below the bound, the share that a process writes before it looks at the folder again: that takes time in
#: proportion to the entries, and other processes write, too.
_SHARE = 4
#: Bytes that this process may write until then, by folder and bound.
_unseen: dict[tuple[Path, int], int] = {}


@dataclass(frozen=True)
class Info:
    """What a cache holds: its folder (None: there is none, for `reason`), entries, and their bytes beside the bound."""

    folder: Path | None
    entries: int = 0
    nbytes: int = 0
    bound: int = 0
    reason: str = ""


def key(*parts: str) -> str:
    """The name of what is made of `parts`, in this version of everything."""
    versions = (llvmlite.__version__, ".".join(map(str, llvm.llvm_version_info)), _MAGIC.hex())
    hashed = hashlib.sha256()
    for part in (*versions, *parts):
        data = part.encode("utf-8", "surrogatepass")
        hashed.update(len(data).to_bytes(8, "little") + data)
    return hashed.hexdigest()


def read(keys: Iterable[str]) -> dict[str, bytes]:
    """The entries that are there, by key."""
    folder = _folder()
    if folder is None:
        return {}
    found = {k: _entry(folder / f"{k}{_SUFFIX}") for k in keys}
    return {k: data for k, data in found.items() if data is not None}


def write(entries: Mapping[str, bytes]) -> None:
    """Add entries, then drop the least recently used ones beyond the bound."""
    folder = _folder(make=True)
    if folder is None or not entries:
        return
    most = bound()
    try:
        for k, data in entries.items():
            path = folder / f"{k}{_SUFFIX}"
            write_atomic(path, _MAGIC + hashlib.sha256(data).digest() + data)
            os.chmod(path, 0o600)
        left = _unseen.get((folder, most), 0) - sum(len(_MAGIC) + _DIGEST + len(data) for data in entries.values())
        _unseen[folder, most] = left if left >= 0 else _evict(folder, most) // _SHARE
    except (LightNetError, OSError):
        return  # read-only, or full: what is there can still be read


def clear() -> int:
    """Remove every entry; how many there were."""
    folder = _folder()
    return sum(_remove(path) for path, _ in _entries(folder)) if folder is not None else 0


def info() -> Info:
    """What the cache holds."""
    path, reason = where()
    if path is None:
        return Info(None, reason=reason)
    folder = _folder()
    if folder is None and path.exists():
        return Info(
            None, reason=f"{path} is not used: it should be a folder of this user's, to which no one else may write"
        )
    sizes = [found.st_size for _, found in _entries(path)] if folder is not None else []
    return Info(path, len(sizes), sum(sizes), bound())


def bound() -> int:
    """The most bytes that the entries may take."""
    text = os.environ.get(SIZE_VARIABLE, "")
    return (int(text) if text.isdecimal() and len(text) < 12 else DEFAULT_MIB) << 20


def where() -> tuple[Path | None, str]:
    """The folder that the environment asks for, which need not exist; or None, and why."""
    named = os.environ.get(VARIABLE)
    if named is not None and named.strip().lower() in ("off", "0", "none", ""):
        return None, f"{VARIABLE} switches it off"
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


def _folder(make: bool = False) -> Path | None:
    path, _ = where()
    return _usable(path, make) if path is not None else None


def _usable(path: Path, make: bool) -> Path | None:
    try:
        if make:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.stat()
    except (OSError, ValueError):
        return None
    ours = not hasattr(os, "geteuid") or found.st_uid == os.geteuid()
    return path if stat.S_ISDIR(found.st_mode) and ours and not found.st_mode & 0o022 else None


def _entry(path: Path) -> bytes | None:
    """The contents of an entry; None where it is absent, not ours, or damaged."""
    try:
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except (OSError, ValueError):
        return None
    try:
        found = os.fstat(fd)
        ours = not hasattr(os, "geteuid") or found.st_uid == os.geteuid()
        if not stat.S_ISREG(found.st_mode) or not ours or found.st_mode & 0o022 or found.st_size > _LARGEST:
            return None
        data = os.read(fd, found.st_size)
        if time.time() - found.st_mtime > _HOUR:
            os.utime(path)
    except OSError:
        return None
    finally:
        os.close(fd)
    start = len(_MAGIC) + _DIGEST
    payload = data[start:]
    intact = data.startswith(_MAGIC) and hashlib.sha256(payload).digest() == data[len(_MAGIC) : start]
    return payload if intact else None


def _entries(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    try:
        with os.scandir(folder) as found:
            for item in found:
                if item.name.endswith(_SUFFIX) or (item.name.startswith(".") and item.name.endswith(".tmp")):
                    yield Path(item.path), item.stat(follow_symlinks=False)
    except OSError:
        return


def _evict(folder: Path, most: int) -> int:
    """Drop what is beyond the bound; the bytes that are left below it."""
    now = time.time()
    rows = []
    for path, found in _entries(folder):
        if path.suffix == _SUFFIX:
            rows.append((found.st_mtime, found.st_size, path))
        elif now - found.st_mtime > _HOUR:
            _remove(path)  # of a process that was killed while it wrote
    total = sum(size for _, size, _ in rows)
    if total > most:
        for _, size, path in sorted(rows):
            total -= size * _remove(path)
            if total <= _KEPT * most:
                break
    return max(most - total, 0)


def _remove(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:
        return False
    return True
