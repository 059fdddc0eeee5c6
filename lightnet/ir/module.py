"""Finding one's way in a module: its entry function."""

from __future__ import annotations

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp

from lightnet.diagnostics import LightNetError


def main_of(module: ModuleOp) -> func.FuncOp:
    """The function ``@main``. Raises `LightNetError` when there is none."""
    for op in module.ops:
        if isinstance(op, func.FuncOp) and op.sym_name.data == "main":
            return op
    raise LightNetError("the module has no function @main")
