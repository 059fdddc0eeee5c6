"""``--load file.py``: a user's Python file adds passes, patterns, targets and dialects to a tool's run.

Every `ModulePass` subclass that the file defines is registered under its `name`, every xDSL `Dialect` that it holds
under the dialect's; patterns come through `registry.pattern`, anything else through the tables of `registry`. The file
runs with all rights of the user: it is code, and never comes with a network. Imports xDSL's pass class.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from inspect import isabstract, isclass
from pathlib import Path
from types import ModuleType

from xdsl.ir import Dialect
from xdsl.passes import ModulePass

from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.ir import registry
from lightnet.ir.context import DIALECTS
from lightnet.ir.passes import XDSL_PASSES
from lightnet.source import read_text

MAX_SOURCE = 16 << 20
_TABLES = (*(t for t in vars(registry).values() if isinstance(t, registry.Table)), DIALECTS)


@contextmanager
def loaded(paths: Sequence[str]) -> Iterator[list[ModuleType]]:
    """Load the files, and take back at the end what they registered. Raises `LightNetError` for a broken file."""
    with ExitStack() as stack:
        yield [stack.enter_context(_loaded(path)) for path in paths]


@contextmanager
def _loaded(path: str) -> Iterator[ModuleType]:
    before = [set(table) for table in _TABLES]
    module = ModuleType(_module_name(path))
    module.__file__ = path
    sys.modules[module.__name__] = module  # dataclasses look their annotations up there
    try:
        _execute(module, path)
        try:
            _register(module)
        except LightNetError as e:
            raise e.at(SourceLoc(path)) from e.__cause__
        yield module
    finally:
        for table, names in zip(_TABLES, before):
            for name in set(table) - names:
                del table._rows[name]
        for key, patterns in registry._PATTERNS.items():
            registry._PATTERNS[key] = [p for p in patterns if p.__module__ != module.__name__]
        del sys.modules[module.__name__]


def _module_name(path: str) -> str:
    name = base = f"plugin.{Path(path).stem}"
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
        raise e.at(SourceLoc(path)) from e.__cause__
    except SyntaxError as e:
        loc = SourceLoc(path, e.lineno or 0, e.offset or 0)
        raise LightNetError(f"not valid Python: {e.msg}", loc, source_line=_line(source, loc.line)) from e
    except Exception as e:
        lines = [f.lineno for f in traceback.extract_tb(e.__traceback__) if f.filename == path]
        loc = SourceLoc(path, lines[-1] or 0) if lines else SourceLoc(path)
        text = f"the file cannot be loaded: {type(e).__name__}: {str(e)[:600]}"
        raise LightNetError(text, loc, source_line=_line(source, loc.line)) from e


def _line(source: str, line: int) -> str | None:
    lines = source.split("\n")
    return lines[line - 1] if 0 < line <= len(lines) else None


def _register(module: ModuleType) -> None:
    for attribute, value in list(vars(module).items()):
        if isinstance(value, Dialect):
            DIALECTS.add(value.name, f"{module.__name__}:{attribute}")
        elif isclass(value) and issubclass(value, ModulePass) and value.__module__ == module.__name__:
            _register_pass(value)


def _register_pass(cls: type[ModulePass]) -> None:
    name = getattr(cls, "name", None)
    if isabstract(cls):
        return
    where = f"{cls.__module__}:{cls.__name__}"
    if not isinstance(name, str):
        raise LightNetError(f"pass {where} has no name")
    if name in XDSL_PASSES:
        raise LightNetError(f"pass '{name}' is defined twice: by {XDSL_PASSES[name]} and by {where}")
    registry.PASSES.add(name, cls)
