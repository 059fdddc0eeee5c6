"""Plugins: passes, dialects, ops, targets, front ends, patterns and generators of kernels from a user's files, for as
long as a run takes.

    with lightnet.plugins.load("my_pass.py", "ops.json", "rules.mlir"):
        lightnet.compile("net.onnx")(feeds)

What a file is follows from its name: ``.py`` (or a folder that is a Python package) is Python, ``.json`` and ``.op``
are descriptions of operators or optimizers (a folder of these is all of them), ``.mlir`` holds patterns in PDL. Python
runs with all rights of the user: it is code, and never comes with a network. The others are data. `installed.py` has
what installed packages bring. Imports the registry; what a file needs is imported when there is one.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.ir import registry

__all__ = ["SUFFIXES", "Plugin", "Replacing", "load", "loaded"]

#: What can be loaded, by suffix.
SUFFIXES = {
    ".py": "Python: passes, dialects, ops, targets, front ends, patterns, generators of kernels",
    ".json": "descriptions of operators or of an optimizer",
    ".op": "descriptions of operators, with inheritance",
    ".mlir": "patterns in PDL",
}


class Replacing(str):
    """The path of descriptions whose ops take the places of ops that there are (``--load FILE --replace``)."""

    __slots__ = ()


@dataclass(frozen=True)
class Plugin:
    """The additions of a file: op classes, pattern classes, and the module that it is if it is Python."""

    source: str
    ops: tuple[type, ...] = ()
    patterns: tuple[type, ...] = ()
    module: ModuleType | None = None


def load(*paths: str | Path, replace: bool = False) -> AbstractContextManager[list[Plugin]]:
    """Load files for the length of a ``with`` block, in this order; at its end everything is as it was before. A folder
    is a Python package, or all descriptions in it. With `replace`, ops of descriptions may take the places of those
    that there are.

    Raises `LightNetError`, with the place in the file, for a file that is broken or that defines what there is already.
    """
    return loaded([Replacing(p) for p in paths] if replace else paths)


@contextmanager
def loaded(paths: Sequence[str | Path]) -> Iterator[list[Plugin]]:
    """As `load`, of a list of files. What `hold` has loaded of the same files is taken over."""
    if not paths:
        yield []
        return
    held = _held.pop() if _held and _held[-1].of(paths) else None
    release()
    with ExitStack() if held is None else held.stack as stack:
        if held is not None:
            for seen in held.warnings:
                warnings.warn_explicit(seen.message, seen.category, seen.filename, seen.lineno)
            yield held.plugins
        else:
            yield _entered(paths, stack)


def _entered(paths: Sequence[str | Path], stack: ExitStack) -> list[Plugin]:
    registry.load_installed()  # which are for good
    stack.callback(registry.checkpoint())
    return [stack.enter_context(_loaded(file)) for path in paths for file in _files(path)]


class _Held(NamedTuple):
    """Files that are loaded before somebody uses them: what Python warned of meanwhile comes then."""

    paths: Sequence[str | Path]
    stack: ExitStack
    plugins: list[Plugin]
    warnings: Sequence[warnings.WarningMessage]

    def of(self, paths: Sequence[str | Path]) -> bool:
        return [(type(p), p) for p in self.paths] == [(type(p), p) for p in paths]


#: What is held, if anything is.
_held: list[_Held] = []


def hold(paths: Sequence[str | Path]) -> None:
    """Load files for who calls `loaded` with them next, so that they run once; until then, or until `release`, they
    are there. Raises as `load`."""
    release()
    with ExitStack() as stack, warnings.catch_warnings(record=True) as seen:
        plugins = _entered(paths, stack)
        _held.append(_Held(list(paths), stack.pop_all(), plugins, seen))


def release() -> None:
    """Take back what is held and was not used."""
    while _held:
        _held.pop().stack.close()


def _files(path: str | Path) -> list[str]:
    """The files that a path names: those of a folder that is no Python package."""
    if not os.path.isdir(path) or os.path.exists(os.path.join(path, "__init__.py")):
        return [path if isinstance(path, str) else str(path)]
    from lightnet.plugins import data

    kind = Replacing if isinstance(path, Replacing) else str
    return [kind(file) for file in data.files(str(path))]


@contextmanager
def _loaded(path: str) -> Iterator[Plugin]:
    from lightnet.plugins import data, python_files, registering

    suffix, replace = Path(path).suffix.lower(), isinstance(path, Replacing)
    if replace and suffix not in (".op", ".json"):
        raise LightNetError(f"cannot load '{path}': --replace is for descriptions of operators (.op, .json)")
    if Path(path).is_dir():
        suffix = ".py"
    elif suffix not in SUFFIXES:
        kinds = "; ".join(f"{suffix} ({what})" for suffix, what in SUFFIXES.items())
        raise LightNetError(f"cannot load '{path}': a file to load is a folder with Python, or {kinds}")
    before, changes = registering.Before(), registry.count_of_additions()
    with ExitStack() as stack:
        try:
            with registry.adding(path):
                opened = python_files.file(path) if suffix == ".py" else data.registered(path, replace=replace)
                module = stack.enter_context(opened)
                added = before.checked(module)
                before.check_places()
        except LightNetError as e:
            raise e.at(SourceLoc(path)) from e.__cause__
        if registry.count_of_additions() == changes:
            warnings.warn(
                f"{path} registers nothing: no pass, op, target, pattern or generator of its own", stacklevel=2
            )
        yield Plugin(path, added.ops, added.patterns, module)
