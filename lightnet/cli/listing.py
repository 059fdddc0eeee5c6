"""The lists of ``--list-passes``, ``--list-targets`` and ``--list-ops``: one line each, with what the docstring says.

Passes and targets are listed from the text of their files, so that a listing imports neither xDSL nor LLVM.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterable
from pathlib import Path

import lightnet
from lightnet.ir.registry import PASSES, TARGETS, Table

_ROOT = Path(lightnet.__file__).parent.parent


def list_passes() -> str:
    return _lines((name, _summary(PASSES, name)) for name in PASSES)


def list_targets() -> str:
    return _lines((name, _summary(TARGETS, name)) for name in TARGETS)


def list_ops() -> str:
    """The ops of our dialects, and of those that plugins added."""
    from lightnet.ir.context import DIALECTS, OURS, make_context

    ctx = make_context()
    names = [name for name in OURS if name in DIALECTS] + [name for name in DIALECTS if DIALECTS.is_added(name)]
    ops = (op for name in names for op in ctx.get_dialect(name).operations)
    return _lines((op.name, _first_sentence(inspect.getdoc(op))) for op in ops)


def _lines(entries: Iterable[tuple[str, str]]) -> str:
    rows = list(entries)
    width = max((len(name) for name, _ in rows), default=0)
    return "".join(f"{name:<{width}}  {text}".rstrip() + "\n" for name, text in rows)


def _summary(table: Table, name: str) -> str:
    module, _, attribute = table.where(name).partition(":")
    if module in sys.modules:
        value = getattr(sys.modules[module], attribute, None)
        return _first_sentence(value.__doc__ if inspect.isclass(value) else sys.modules[module].__doc__)
    file = _ROOT / (module.replace(".", "/") + ".py")
    try:
        tree = ast.parse(file.read_text("utf-8"))
    except (OSError, SyntaxError):
        return ""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == attribute:
            return _first_sentence(ast.get_docstring(node) or ast.get_docstring(tree))
    return _first_sentence(ast.get_docstring(tree))


def _first_sentence(doc: str | None) -> str:
    text = " ".join((doc or "").strip().split("\n\n", 1)[0].split())
    return re.split(r"(?<=\.) ", text, maxsplit=1)[0].rstrip(".")
