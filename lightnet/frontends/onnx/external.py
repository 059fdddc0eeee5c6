"""External data: the files beside a model that hold its tensors, opened so that a model cannot reach anything else.

A location is relative and without ``..``; every folder on the way and the file itself are opened without following
symbolic links, from the real folder of the model on; the file is regular and has no second name (a hard link would show
a file from elsewhere), and a tensor lies within it. Files are opened again when contents are loaded, with all checks: a
model of a thousand files holds none of them open. Imports the standard library, diagnostics and the mapping of files.

Source: "External data" in ONNX's docs/Security.md and docs/ExternalData.md; the CVEs 2022-25882, 2024-27318, 2026-27489
and 2026-34447 are what each check is against.
"""

from __future__ import annotations

import os
import stat
import weakref
from mmap import mmap

from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.runtime.files import map_descriptor

MAX_LOCATION = 4096


class ExternalFiles:
    """The files below the folder of the model `path`; none for a model that is no file (`is_file` False)."""

    def __init__(self, path: str, is_file: bool):
        self.path = path
        self.folder = os.path.dirname(os.path.realpath(path)) if is_file else None
        self._maps: weakref.WeakValueDictionary[str, mmap] = weakref.WeakValueDictionary()

    def size(self, location: str) -> int:
        """The size of a file, in bytes. Raises LightNetError where it may not be read."""
        return len(self.view(location))

    def view(self, location: str) -> memoryview:
        """The bytes of a file, mapped as long as somebody refers to them. Raises LightNetError."""
        known = self._maps.get(location)
        if known is not None:
            return memoryview(known)
        fd = self._open(location)
        try:
            mapped = map_descriptor(fd, os.path.join(self.folder or "", location))
        finally:
            os.close(fd)
        if isinstance(mapped.obj, mmap):
            self._maps[location] = mapped.obj
        return mapped

    def _open(self, location: str) -> int:
        parts = self._parts(location)
        fd = os.open(self.folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for i, part in enumerate(parts):
                last = i == len(parts) - 1
                # O_NONBLOCK: a FIFO must not wait for a writer before it is refused.
                kind = os.O_NONBLOCK if last else os.O_DIRECTORY
                try:
                    inner = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | kind, dir_fd=fd)
                except (OSError, ValueError) as error:
                    raise self._refusal(location, fd, part, error) from None
                os.close(fd)
                fd = inner
            info = os.fstat(fd)
            if not stat.S_ISREG(info.st_mode):
                raise self.fail(location, "is not a regular file")
            if info.st_nlink != 1:
                raise self.fail(location, "has a second name (a hard link), and may belong elsewhere: use a copy")
            return fd
        except BaseException:
            os.close(fd)
            raise

    def _parts(self, location: str) -> list[str]:
        if self.folder is None:
            raise self.fail(location, "cannot be read: the model itself is no file")
        if not location or len(location) > MAX_LOCATION or not location.isprintable():
            raise self.fail(location, "is not a file name")
        if location.startswith("/"):
            raise self.fail(location, "is not below the model's folder: it is an absolute path")
        parts = [part for part in location.split("/") if part not in ("", ".")]
        if ".." in parts or not parts:
            raise self.fail(location, "is not below the model's folder")
        return parts

    def _refusal(self, location: str, folder: int, part: str, error: OSError | ValueError) -> LightNetError:
        try:
            is_link = stat.S_ISLNK(os.stat(part, dir_fd=folder, follow_symlinks=False).st_mode)
        except (OSError, ValueError):
            is_link = False
        if is_link:
            return self.fail(location, f"leads through the symbolic link '{part}', which is not followed: use a copy")
        return self.fail(location, f"cannot be opened: {getattr(error, 'strerror', None) or 'not a file name'}")

    def fail(self, location: str, message: str) -> LightNetError:
        return LightNetError(f"external data '{location[:200]}' {message}", SourceLoc(self.path), label="onnx.external")
