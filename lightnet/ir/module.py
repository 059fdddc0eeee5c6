"""Finding one's way in a module: its entry function, and what to call ops and values in reports and errors."""

from __future__ import annotations

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from lightnet.diagnostics import LightNetError
from lightnet.ir.kernel import KernelOp
from lightnet.ir.names import name_of, tensor_name


def main_of(module: ModuleOp) -> func.FuncOp:
    """The function ``@main``. Raises `LightNetError` when there is none, or it has not one block."""
    for op in module.ops:
        if isinstance(op, func.FuncOp) and op.sym_name.data == "main" and len(op.body.blocks) == 1:
            return op
    raise LightNetError("the module has no function @main of one block")


def output_names(last: Operation) -> dict[str, SSAValue]:
    """The operands of `func.return` by tensor name; a value without a name is ``output<i>``."""
    return {tensor_name(value) or f"output{i}": value for i, value in enumerate(last.operands)}


def value_name(value: SSAValue) -> str:
    """The tensor name of a result, or its SSA name, for reports and errors."""
    return tensor_name(value) or (f"%{value.name_hint}" if value.name_hint else "?")


def op_label(op: Operation) -> str:
    """A short name of an op: its name in the source, or what a kernel computes."""
    if (name := name_of(op)) is not None:
        return name
    if isinstance(op, KernelOp):
        return "+".join(name_of(o) or o.name for o in op.ops[:6]) or op.name
    return op.name


def count_ops(module: Operation) -> int:
    """The number of ops in a module, itself among them."""
    return sum(1 for _ in module.walk())
