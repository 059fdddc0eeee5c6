"""The mutant, and the process in which it lives: modules of the project imported from changed text.

Imports the standard library only, so that a process can load this before anything of the project.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

PACKAGE = Path(__file__).resolve().parents[2] / "lightnet"


@dataclass(frozen=True)
class Edit:
    """`old` stands once in `file` (below lightnet/); `new` goes in its place."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Mutant:
    """A wrong variant: `what` is wrong about it, the `edits` that make it, the `passes` to run on `network`, where it makes
    a difference, and the pass and pattern (None: the pass has no rewrites) that a check has to name.

    `network` is the body of `@main`: lines of `.mlir` text, ending in `func.return`.
    """

    name: str
    what: str
    edits: tuple[Edit, ...]
    passes: str
    pass_name: str
    pattern: str | None
    network: str

    @property
    def text(self) -> str:
        """The network as a module."""
        last = re.search(r"func\.return[^\n]*?(?::\s*([^\n]*))?$", self.network.rstrip())
        types = (last[1] or "") if last else ""
        return f"func.func @main() -> ({types}) {{\n{self.network.strip()}\n}}\n"


class StaleError(ValueError):
    """The text that a mutant changes is not there any more."""


def mutated(edits: Sequence[Edit]) -> dict[Path, str]:
    """The changed text of each file that edits touch. Raises `StaleError` where `old` does not stand once in its file: the
    mutant is stale."""
    texts: dict[Path, str] = {}
    for edit in edits:
        path = PACKAGE / edit.file
        text = texts.get(path) or path.read_text("utf-8")
        if text.count(edit.old) != 1:
            raise StaleError(f"{edit.file} has {text.count(edit.old)} times: {edit.old.strip()!r}")
        texts[path] = text.replace(edit.old, edit.new)
    return texts


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: Path, text: str):
        super().__init__(name, str(path))
        self.text = text

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.text, self.path, "exec")


class _Finder(MetaPathFinder):
    def __init__(self, texts: Mapping[Path, str]):
        self.texts = texts

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        file = PACKAGE.parent.joinpath(*fullname.split(".")).with_suffix(".py")
        if file not in self.texts:
            return None
        return importlib.util.spec_from_file_location(fullname, file, loader=_Loader(fullname, file, self.texts[file]))


def install(edits: Sequence[Edit]) -> None:
    """From now on this process imports the edited modules, and reads the edited data, as the edits have them. No file is
    written."""
    texts = mutated(edits)
    modules = {".".join(p.relative_to(PACKAGE.parent).with_suffix("").parts) for p in texts}
    assert modules.isdisjoint(sys.modules), f"loaded already: {modules.intersection(sys.modules)}"
    sys.meta_path.insert(0, _Finder(texts))
    read_text = Path.read_text

    def edited(self: Path, *args: Any, **options: Any) -> str:
        return texts[self] if self in texts else read_text(self, *args, **options)

    Path.read_text = edited  # type: ignore[method-assign]
