"""The front ends by file suffix, as the registry lists them: text in, module out.

Each takes ``(text, name, ctx, *, include_dirs, eval_mode)`` and returns a module; `name` stands in locations, and the
text is kept in the context's source map, so that later errors can show the line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.dialects.builtin import ModuleOp


def netlist_module(text: str, name: str, kind: str, include_dirs: Sequence[str], eval_mode: str, ctx: Any) -> ModuleOp:
    """The module of an IL or JSON text; its lines are kept for diagnostics."""
    from lightnet.frontends import il, json_ir
    from lightnet.frontends.importer import to_module
    from lightnet.ir.context import sources_of

    sources_of(ctx).add(name, text)
    if kind == ".net":
        return to_module(il.read(text, name, include_dirs=include_dirs, eval_mode=eval_mode))
    return to_module(json_ir.read(text, name))


def il_module(text: str, name: str, ctx: Any, *, include_dirs: Sequence[str] = (), eval_mode: str = "arith") -> ModuleOp:
    """Front end ``.net``."""
    return netlist_module(text, name, ".net", include_dirs, eval_mode, ctx)


def json_module(text: str, name: str, ctx: Any, **_: Any) -> ModuleOp:
    """Front end ``.json``."""
    return netlist_module(text, name, ".json", (), "arith", ctx)


def mlir_module(text: str, name: str, ctx: Any, **_: Any) -> ModuleOp:
    """Front end ``.mlir``."""
    from lightnet.frontends import mlir

    return mlir.read(text, name, ctx)
