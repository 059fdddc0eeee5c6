"""The `.mlir` front end: a module of any level from its text. Imports the parser and the verifier of `ir`."""

from __future__ import annotations

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from lightnet.ir.context import make_context
from lightnet.ir.parser import parse_mlir
from lightnet.ir.verify import verify_module


def read(text: str, path: str, ctx: Context | None = None, *, first_line: int = 1) -> ModuleOp:
    """The verified module that `text` holds; `path` names it in locations.

    Raises `LightNetError` at the place of the mistake.
    """
    ctx = ctx if ctx is not None else make_context()
    module = parse_mlir(ctx, text, path, first_line=first_line)
    verify_module(module, ctx)
    return module
