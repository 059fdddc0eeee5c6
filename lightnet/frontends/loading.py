"""The front ends by file suffix, as the registry lists them: text in, module out.

Each takes ``(text, name, ctx, *, include_dirs, eval_mode, defines, on_warning)`` and returns a module; `name` stands in
locations, and the text is kept in the context's source map, so that later errors can show the line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from lightnet.diagnostics import SourceLoc
from lightnet.frontends import il, json_ir, mlir
from lightnet.frontends.importer import to_module
from lightnet.ir.context import sources_of


def il_module(text: str, name: str, ctx: Any, *, include_dirs: Sequence[str] = (), eval_mode: str = "arith",
              defines: Sequence[str] = (), on_warning: Callable[[SourceLoc, str], None] | None = None) -> ModuleOp:  # fmt: skip
    """Front end ``.net``; `on_warning` gets what ``#warning`` says."""
    sources_of(ctx).add(name, text)
    net = il.read(text, name, include_dirs=include_dirs, eval_mode=eval_mode, defines=defines, on_warning=on_warning)
    return to_module(net)


def json_module(text: str, name: str, ctx: Any, **_: Any) -> ModuleOp:
    """Front end ``.json``."""
    sources_of(ctx).add(name, text)
    return to_module(json_ir.read(text, name))


def mlir_module(text: str, name: str, ctx: Any, **_: Any) -> ModuleOp:
    """Front end ``.mlir``."""
    return mlir.read(text, name, ctx)
