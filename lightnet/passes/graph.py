"""What the graph passes share: the block that they work on, and which of its values depend on params alone.

Imports xDSL, `ir` and the `ln` dialect.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.traits import is_side_effect_free

from lightnet.dialects.ln.source import Arange, ParamOp, Source, Zeros
from lightnet.dialects.ln.structure import OnceOp
from lightnet.ir.kernel import KernelOp
from lightnet.ir.op import LnOp, tensor_names


def graphs(module: ModuleOp) -> Iterator[Block]:
    """The body of each function that is a graph of `ln` ops: level 1 to 3 (functions of level 4 are left alone)."""
    for op in module.ops:
        if isinstance(op, FuncOp) and len(op.body.blocks) == 1:
            block = op.body.block
            if any(isinstance(inner, LnOp | KernelOp | OnceOp) for inner in block.ops):
                yield block


def is_constant(op: Operation) -> bool:
    """Ops whose result the program itself spells out: also described ones with a `static_run` and no operands."""
    if isinstance(op, Zeros | Arange):
        return True
    if not isinstance(op, LnOp) or isinstance(op, Source) or op.operands or not op.results:
        return False
    return all(r.static for r in op.schema.results)


def static_values(block: Block) -> set[SSAValue]:
    """The values of a block that depend on params and constants alone, results of `ln.once` included."""
    static: set[SSAValue] = set()
    for op in block.ops:
        if is_static(op, static):
            static.update(op.results)
    return static


def is_static(op: Operation, static: set[SSAValue]) -> bool:
    """Whether the results of `op` depend on params alone, if `static` are the values before it that do."""
    if isinstance(op, ParamOp | OnceOp) or is_constant(op):
        return True
    if not isinstance(op, LnOp | KernelOp) or not op.operands or not is_side_effect_free(op):
        return False
    return all(v in static for v in op.operands)


def tensor_names_in(module: ModuleOp) -> set[str]:
    """Every tensor name of a module."""
    return {name for op in module.walk() for name in tensor_names(op) if name}
