"""Plugins that are data: descriptions of operators and optimizers, and patterns in PDL. Imports `descriptions` on
demand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lightnet.diagnostics import LightNetError
from lightnet.ir import registry

if TYPE_CHECKING:
    from lightnet.ir.rewrites import FilePattern

#: Files of one folder, in it and below.
MAX_FILES = 1000


@contextmanager
def descriptions(path: str) -> Iterator[None]:
    """Register the ops and the patterns that a description file has. A `path` that is `Replacing` has ops that take the
    places of others."""
    from lightnet.descriptions import load_description_file
    from lightnet.plugins import Replacing

    found = load_description_file(path, replace=isinstance(path, Replacing))
    for name, ops in found.families.items():
        registry.FAMILIES.add(name, tuple(ops))
    _register(found.patterns)
    yield None


def files(folder: str) -> list[str]:
    """The descriptions in a folder and below, in the order of their names. Raises LightNetError where there are none,
    or too many."""
    found = sorted(str(p) for p in Path(folder).rglob("*") if p.suffix.lower() in (".op", ".json") and p.is_file())
    if not found:
        raise LightNetError(
            f"cannot load '{folder}': a folder to load is a Python package, with an __init__.py, or holds descriptions "
            "(.op, .json)"
        )
    if len(found) > MAX_FILES:
        raise LightNetError(f"cannot load '{folder}': it holds {len(found)} descriptions, more than {MAX_FILES}")
    return found


@contextmanager
def registered_pdl(path: str) -> Iterator[None]:
    """Register the patterns of a PDL file."""
    from lightnet.descriptions import pdl

    _register(pdl.load_pdl_file(path))
    yield None


def _register(classes: Sequence[type[FilePattern]]) -> None:
    for cls in classes:
        registry.pattern(cls.pass_name, cls.target)(cls)
