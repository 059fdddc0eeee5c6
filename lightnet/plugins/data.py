"""Plugins that are data, such as descriptions of operators, and patterns in PDL: what `registry.READERS` reads.

Imports the registry; a reader when there is a file for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lightnet.dataclasses import dataclass, field
from lightnet.diagnostics import LightNetError
from lightnet.ir import registry

if TYPE_CHECKING:
    from lightnet.ir.op import LnOp
    from lightnet.ir.rewrites import FilePattern

#: Files of one folder, in it and below.
MAX_FILES = 1000


@dataclass(frozen=True)
class Loaded:
    """The contents of a file: op classes by family (a name for `registry.FAMILIES`), and rewrite patterns, each with
    the `name`, the `pass_name` and the `target` that it is registered under.
    """

    families: dict[str, tuple[type[LnOp], ...]] = field(default_factory=dict)
    patterns: list[type[FilePattern]] = field(default_factory=list)


@contextmanager
def registered(path: str, *, replace: bool) -> Iterator[None]:
    """Register the ops and the patterns that a file has. With `replace`, its ops may take the places of others."""
    found = registry.READERS.get(Path(path).suffix.lower())(path, replace=replace)
    for name, ops in found.families.items():
        registry.FAMILIES.add(name, ops)
    for cls in found.patterns:
        registry.pattern(cls.pass_name, cls.target)(cls)
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
