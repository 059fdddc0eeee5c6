"""Operators and optimizers that are described by data, in files that `--load` takes; nothing of such a file is
executed.

`load_description_file` tells the kinds apart. Imports nothing of the compiler until a file is loaded.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError, SourceLoc

if TYPE_CHECKING:
    from lightnet.ir.rewrites import FilePattern
    from lightnet.plugins.data import Loaded
    from lightnet_descriptions.reader import Document


@dataclass(frozen=True)
class Description:
    """An optimizer description that comes with a target (`Target.descriptions`): ``package:file``, and the pass that
    its rules are for."""

    file: str
    pass_name: str

    def read(self) -> tuple[type[FilePattern], ...]:
        """Its patterns."""
        from lightnet_descriptions.optimizer import packaged_optimizer

        return packaged_optimizer(self.file)


def load_description_file(path: str, *, replace: bool = False) -> Loaded:
    """The ops or patterns that the file `path` describes. With `replace` its ops may take the places of those that
    there are. Raises `LightNetError`, at the place of what is wrong."""
    from lightnet.source import read_text
    from lightnet_descriptions.reader import MAX_TEXT, read_description

    return load_descriptions(read_description(read_text(path, MAX_TEXT), path), replace=replace)


def load_descriptions(document: Document, *, replace: bool = False) -> Loaded:
    """The ops or patterns of a document. Raises `LightNetError` for one that is empty."""
    from lightnet.plugins.data import Loaded

    if not document.objects:
        raise LightNetError("the file is empty: a description has at least one object", SourceLoc(document.file, 1, 1))
    if description_kind(document) == "optimizer":
        from lightnet_descriptions import optimizer

        return Loaded(patterns=optimizer.load_optimizer(document))
    from lightnet_descriptions import operators

    return Loaded(
        {
            f"{PurePath(document.file).name} of {document.file}": tuple(
                operators.load_operators(document, replace=replace)
            )
        }
    )


def load_pattern_file(path: str, *, replace: bool = False) -> Loaded:
    """The patterns in PDL of the file `path`; there are no ops to `replace`. Raises `LightNetError`, at the place of
    what is wrong."""
    from lightnet.plugins.data import Loaded
    from lightnet_descriptions import pdl

    return Loaded(patterns=list(pdl.load_pdl_file(path)))


#: Members that an optimizer description has at its top, and a file of operators has not.
_OPTIMIZER = {"author", "arch", "name", "combiners", "subgraphs", "complete"}


def description_kind(document: Document) -> str:
    """``operators`` or ``optimizer``: the latter has members of its own beside `ops`, or `rules` in its ops."""
    for item in document.objects.values():
        top = item.value if isinstance(item.value, dict) else {}
        if "optype" in top:
            continue
        ops = top["ops"].value if "ops" in top else None
        first = ops[0].value if isinstance(ops, list) and ops else None
        if _OPTIMIZER & set(top) - ({"author", "arch"} if document.kind == "op" else set()) or (
            isinstance(first, dict) and "rules" in first
        ):
            return "optimizer"
    return "operators"
