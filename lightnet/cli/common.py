"""What every command-line tool shares: exit codes, usage errors, reading and writing files. Imports no xDSL and no
numpy, to start fast.

A tool is a function `main(argv) -> int` and an entry point that passes it through `run`.
"""

from __future__ import annotations

import argparse
import os
import stat
import sys
import tempfile
from collections.abc import Callable
from typing import NoReturn

from lightnet.diagnostics import LightNetError
from lightnet.frontends.source import read_text

__all__ = ["Parser", "read_text", "run", "write_atomic"]


def run(main: Callable[[list[str]], int], argv: list[str] | None = None) -> int:
    """Call `main` with the arguments (those of the process if None); the exit status.

    A LightNetError is printed on stderr and gives 1, as does running out of memory; a reader that went away gives 1 in
    silence; an interrupt gives 130. Anything else is a bug of ours and keeps its traceback.
    """
    try:
        status = main(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
        return status
    except LightNetError as e:
        sys.stdout.flush()
        print(e.render().encode("utf-8", "replace").decode("utf-8"), file=sys.stderr)
        return 1
    except MemoryError:
        print("error: out of memory", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # Python flushes stdout again at exit; give it somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130


class Parser(argparse.ArgumentParser):
    """An argument parser whose usage errors are ordinary errors: ``error: ...`` and exit status 1. Options may
    stand anywhere."""

    def error(self, message: str) -> NoReturn:
        self.exit(1, f"error: {message}\n{self.format_usage()}")


def write_atomic(path: str, data: str | bytes) -> None:
    """Write a whole file or nothing ("-" is stdout): a neighbour is written first and then takes the file's name.

    An existing file keeps its permissions; a symbolic link is followed; a device or FIFO is written directly.
    Raises LightNetError when the file cannot be written.
    """
    raw = data.encode("utf-8") if isinstance(data, str) else data
    if path == "-":
        sys.stdout.flush()
        sys.stdout.buffer.write(raw)
        sys.stdout.buffer.flush()
        return
    try:
        _replace(os.path.realpath(path), raw)
    except (OSError, ValueError) as e:
        reason = getattr(e, "strerror", None) or "not a valid file name"
        raise LightNetError(f"cannot write '{path}': {reason}") from None


def _replace(path: str, raw: bytes) -> None:
    mode = os.stat(path).st_mode if os.path.exists(path) else None
    if mode is not None and not stat.S_ISREG(mode):
        with open(path, "wb") as f:
            f.write(raw)
        return
    fd, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=f".{os.path.basename(path)}.")
    try:
        with os.fdopen(fd, "wb") as f:
            f.write(raw)
        os.chmod(temporary, stat.S_IMODE(mode) if mode is not None else 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
