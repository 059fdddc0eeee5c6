"""The files that `#include` may read, and reading them: only below the network's folder and the include folders, by
real path. So `"../macros.net"` needs `-I ..`, and an absolute path a `-I` that it is below.

A refusal says nothing about the file, not even whether it exists. Imports the standard library, `source` and
diagnostics only.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from lightnet.diagnostics import LightNetError
from lightnet.source import STDIN_NAME, decode, read_regular


class Folders:
    """The folders of one translation. `path` is the network's file; standard input counts as a file in the current
    folder."""

    def __init__(self, path: str, include_dirs: Iterable[str], limit: int):
        own = os.curdir if path in ("-", STDIN_NAME) else os.path.dirname(path) or os.curdir
        self._own = os.path.realpath(own)
        self._dirs = list(include_dirs)
        self._trusted = [os.path.realpath(d) for d in self._dirs]
        self._left = limit

    def read(self, name: str, angled: bool, includer: str) -> tuple[str, str]:
        """Find and read the file that `includer` names: `"name"` beside the includer first, then (and `<name>`
        only) the folders.

        Returns its path and its text. LightNetError without a location for a name that is found nowhere, or outside of
        the folders, for a file with several hard links (unless it is below an include folder), and for one that is too
        large.
        """
        path, real = self._find(name, angled, includer)
        return path, self._open(name, real)

    def has(self, name: str, angled: bool, includer: str) -> bool:
        """Return whether `read` would find the file. One that may not be read counts as one that is not there."""
        try:
            _, real = self._find(name, angled, includer)
            return os.stat(real).st_nlink == 1 or self._is_trusted(real)
        except (LightNetError, OSError, ValueError):
            return False

    def _find(self, name: str, angled: bool, includer: str) -> tuple[str, str]:
        """The path of a file as it is named, and its real path."""
        beside = [] if angled else [os.path.dirname(includer) if includer not in ("-", STDIN_NAME) else ""]
        outside = False
        for folder in [*beside, *self._dirs] if not os.path.isabs(name) else [""]:
            path = os.path.join(folder, name)
            real = os.path.realpath(path)
            if not (_below(real, self._own) and not os.path.isabs(name)) and not self._is_trusted(real):
                outside = True
            elif os.path.isfile(real):
                return path, real
            elif os.path.exists(real):
                raise LightNetError(f"#include of '{name[:200]}' is refused: it is not a regular file")
        if outside:
            raise LightNetError(
                f"#include of '{name[:200]}' is refused: it is outside the folders that may be read (name its folder "
                "with -I)"
            )
        where = " or ".join(["beside the file"] * bool(beside) + ["in the folders of -I"] * bool(self._dirs))
        raise LightNetError(
            f"#include of '{name[:200]}': no such file"
            + (f" {where}" if where else "; <FILE> is looked for in the folders of -I, and there are none")
        )

    def _is_trusted(self, real: str) -> bool:
        """Return whether a real path is below an include folder."""
        return any(_below(real, top) for top in self._trusted)

    def _open(self, name: str, real: str) -> str:
        try:
            fd = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as e:
            raise LightNetError(f"#include of '{name[:200]}': {e.strerror}") from None
        try:
            # A hard link could make any file of the same owner look as if it stood here.
            if os.fstat(fd).st_nlink > 1 and not self._is_trusted(real):
                raise LightNetError(
                    f"#include of '{name[:200]}' is refused: it has several hard links (name its folder with -I)"
                )
            data = read_regular(fd, name, self._left)
        finally:
            os.close(fd)
        self._left -= len(data)
        return decode(data, name)


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)
