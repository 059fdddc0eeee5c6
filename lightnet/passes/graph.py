"""The common part of the graph passes: the block that they work on, and which of its values depend on params alone.

Imports xDSL, `ir` and the `ln` dialect.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.traits import MemoryEffect, NoMemoryEffect, is_side_effect_free

from lightnet.dialects.ln.source import Arange, ParamOp, Source, Zeros
from lightnet.dialects.ln.structure import OnceOp
from lightnet.ir.instances import is_open_op
from lightnet.ir.kernel import KernelOp
from lightnet.ir.op import TENSORS, LnOp, tensor_names


def graphs(module: ModuleOp) -> Iterator[Block]:
    """The body of each function that is a graph of `ln` ops: level 1 to 3 (functions of level 4 are left alone). A
    `@main` that returns its arguments as they are is one, too."""
    for op in module.ops:
        if isinstance(op, FuncOp) and len(op.body.blocks) == 1:
            block = op.body.block
            returned = isinstance(block.first_op, ReturnOp) and block.args and op.sym_name.data == "main"
            if returned or any(isinstance(inner, LnOp | KernelOp | OnceOp) for inner in block.ops):
                yield block


def is_constant(op: Operation) -> bool:
    """Ops whose result the program itself spells out: also described ones with a `static_run` and no operands."""
    kind = _kind(type(op))
    return kind.is_constant or (kind.computes_constants and not op.operands and bool(op.results))


def is_pure(op: Operation) -> bool:
    """Return whether an op has no effects for sure."""
    return _kind(type(op)).is_pure or is_side_effect_free(op)


class _Kind(NamedTuple):
    """The kind of an op, as passes ask it of every one, as far as its class knows."""

    is_constant: bool
    computes_constants: bool  # where it has no operands
    is_given: bool  # there before the network runs
    is_pure: bool  # by its traits; else an op of it may be, too


@lru_cache(maxsize=1 << 10)
def _kind(cls: type[Operation]) -> _Kind:
    static = issubclass(cls, LnOp) and not issubclass(cls, Source) and all(r.static for r in cls.schema.results)
    traits = [t for t in cls.traits if isinstance(t, MemoryEffect)]
    pure = bool(traits) and all(isinstance(t, NoMemoryEffect) for t in traits)
    return _Kind(issubclass(cls, Zeros | Arange), static, issubclass(cls, ParamOp | OnceOp), pure)


def static_values(block: Block) -> set[SSAValue]:
    """The values of a block that depend on params and constants alone, results of `ln.once` included."""
    static: set[SSAValue] = set()
    for op in block.ops:
        if depends_on_params_alone(op, static):
            static.update(op.results)
    return static


def depends_on_params_alone(op: Operation, static: set[SSAValue]) -> bool:
    """Return whether the results of `op` depend on params alone, if `static` are the values before it that do; not
    where a call decides sizes of it."""
    if _kind(type(op)).is_given:
        return True
    if not is_constant(op):
        if not op.operands or not isinstance(op, LnOp | KernelOp) or not is_pure(op):
            return False
        if not all(v in static for v in op.operands):
            return False
    return not is_open_op(op)


def tensor_names_in(module: ModuleOp) -> set[str]:
    """Every tensor name of a module."""
    named = (op for op in module.walk() if TENSORS in op.attributes)
    return {name for op in named for name in tensor_names(op) if name}
