"""A Python file, or a folder that is a package, as a plugin: run it, and register what it defines.

The file is read as all of the user's text is, so that its errors have places. Imports the registering.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.plugins import registering
from lightnet.source import read_text

MAX_SOURCE = 16 << 20


@contextmanager
def file(path: str) -> Iterator[ModuleType]:
    """Run the file `path` (of a folder: its ``__init__.py``), as the module ``plugin.NAME``, and register what it
    defines. At the end its modules are forgotten. Raises `LightNetError` for whatever it raises."""
    module = ModuleType(_fresh_name(path))
    source = path
    if Path(path).is_dir():
        source = str(Path(path) / "__init__.py")
        if not os.path.exists(source):
            raise LightNetError(
                f"cannot load '{path}': a folder to load is a Python package, and this has no __init__.py"
            )
        module.__path__ = [path]  # its own modules: `from .emit import …`
        module.__package__ = module.__name__
    module.__file__ = source
    sys.modules[module.__name__] = module  # dataclasses look their annotations up there
    try:
        _execute(module, source)
        registering.register_module(module)
        yield module
    finally:
        for name in own_modules(module):
            del sys.modules[name]


def own_modules(module: ModuleType) -> list[str]:
    """The names of a module and of those inside of it that are loaded."""
    return [n for n in sys.modules if n == module.__name__ or n.startswith(f"{module.__name__}.")]


def _fresh_name(path: str) -> str:
    name = base = f"plugin.{Path(os.path.abspath(path)).stem}"
    count = 1
    while name in sys.modules:
        count += 1
        name = f"{base}.{count}"
    return name


def _execute(module: ModuleType, path: str) -> None:
    source = read_text(path, MAX_SOURCE)
    try:
        exec(compile(source, path, "exec"), module.__dict__)
    except LightNetError as e:
        raise e.at(_place(e, path)) from e.__cause__
    except SyntaxError as e:
        here = e.filename == path
        loc = SourceLoc(e.filename or path, e.lineno or 0, e.offset or 0)
        text = f"not valid Python: {e.msg}"
        raise LightNetError(text, loc, source_line=_line(source, loc.line) if here else e.text) from e
    except (Exception, SystemExit) as e:
        loc = _place(e, path)
        text = f"the file cannot be loaded: {type(e).__name__}: {str(e)[:600]}"
        raise LightNetError(text, loc, source_line=_line(source, loc.line)) from e


def _place(error: BaseException, path: str) -> SourceLoc:
    """The line of the file that the error came from."""
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == path]
    return SourceLoc(path, lines[-1] or 0) if lines else SourceLoc(path)


def _line(source: str, line: int) -> str | None:
    lines = source.split("\n")
    return lines[line - 1] if 0 < line <= len(lines) else None
