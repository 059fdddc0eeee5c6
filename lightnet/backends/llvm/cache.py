"""Machine code and PTX on disk, so that a network that was compiled once compiles in milliseconds: one file a kernel,
named by its content.

A key is a hash of all that decides the code: the LLVM IR text, the machine, how it is optimised, and the versions of
LLVM and of this format. Entries are written whole or not at all, and carry a hash that is checked when they are read;
one that is damaged counts as absent. Nothing here is ever an error: where a folder cannot be used, everything is
compiled. A folder that others may write to is not used, since what it holds is run. Measured: reading the 56 kernels of
YOLOv3 takes 2 ms, so they need no common file. Imports the standard library and llvmlite.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import llvmlite
import llvmlite.binding as llvm

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError
from lightnet.runtime.files import write_atomic
from lightnet.runtime.folder import FOLDER_VARIABLE as FOLDER_VARIABLE
from lightnet.runtime.folder import HOUR, clear, evict, limit_of, listed, open_ours, usable, where

#: The variable that bounds its size, in MiB.
SIZE_VARIABLE = "LIGHTNET_CACHE_SIZE"
DEFAULT_MIB = 512
#: To be raised when what `jit.Compiler` does with a text changes: a part of every key.
_MAGIC = b"LNOBJ1\n\0"
_DIGEST = 32
_SUFFIX = ".lno"
#: Largest entry that is read: no kernel comes near it.
_LARGEST = 1 << 26
#: What eviction leaves of the bound, so that not every compilation has to evict.
_KEPT = 0.8
#: Of what is left below the bound, the share that a process writes before it looks at the folder again: that takes time
#: in proportion to the entries, and other processes write, too.
_SHARE = 4
#: Bytes that this process may write until then, by folder and bound.
_unseen: dict[tuple[Path, int], int] = {}


@dataclass(frozen=True)
class Info:
    """The contents of a cache: its folder (None: there is none, for `reason`), entries, and their bytes beside the
    bound.
    """

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


def read_cache(keys: Iterable[str]) -> dict[str, bytes]:
    """The entries that are there, by key."""
    folder = _folder()
    if folder is None:
        return {}
    found = {k: _entry(folder / f"{k}{_SUFFIX}") for k in keys}
    return {k: data for k, data in found.items() if data is not None}


def write_cache(entries: Mapping[str, bytes]) -> None:
    """Add entries, then drop the least recently used ones beyond the bound."""
    folder = _folder(make=True)
    if folder is None or not entries:
        return
    most = cache_bound()
    try:
        for k, data in entries.items():
            path = folder / f"{k}{_SUFFIX}"
            write_atomic(path, _MAGIC + hashlib.sha256(data).digest() + data)
            os.chmod(path, 0o600)
        left = _unseen.get((folder, most), 0) - sum(len(_MAGIC) + _DIGEST + len(data) for data in entries.values())
        _unseen[folder, most] = left if left >= 0 else evict(folder, _SUFFIX, most, _KEPT * most) // _SHARE
    except (LightNetError, OSError):
        return  # read-only, or full: what is there can still be read


def clear_cache() -> int:
    """Remove every entry; how many there were."""
    return clear(_folder(), _SUFFIX)


def info() -> Info:
    """The contents of the cache."""
    path, reason = where()
    if path is None:
        return Info(None, reason=reason)
    folder = _folder()
    if folder is None and path.exists():
        return Info(
            None, reason=f"{path} is not used: it should be a folder of this user's, to which no one else may write"
        )
    sizes = [found.st_size for _, found in listed(path, _SUFFIX)] if folder is not None else []
    return Info(path, len(sizes), sum(sizes), cache_bound())


def cache_bound() -> int:
    """The most bytes that the entries may take."""
    return limit_of(SIZE_VARIABLE, DEFAULT_MIB)


def _folder(make: bool = False) -> Path | None:
    path, _ = where()
    return usable(path, make) if path is not None else None


def _entry(path: Path) -> bytes | None:
    """The contents of an entry; None where it is absent, not ours, or damaged."""
    if (fd := open_ours(path)) is None:
        return None
    try:
        found = os.fstat(fd)
        if found.st_size > _LARGEST:
            return None
        data = os.read(fd, found.st_size)
        if time.time() - found.st_mtime > HOUR:
            os.utime(path)
    except OSError:
        return None
    finally:
        os.close(fd)
    start = len(_MAGIC) + _DIGEST
    payload = data[start:]
    intact = data.startswith(_MAGIC) and hashlib.sha256(payload).digest() == data[len(_MAGIC) : start]
    return payload if intact else None
