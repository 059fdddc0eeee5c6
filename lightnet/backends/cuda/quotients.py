"""Quotients of the GPU, and the elementary functions that have one. Part of the emitter.

A quotient that is rounded to 16 bits next is only within 2 units in the last place of float (``div.full``,
``div.approx``): the exact one is a branch, and some five times the instructions.
"""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.dialects import math as ops
from xdsl.dialects.builtin import bf16, f16, f32
from xdsl.ir import Operation
from xdsl.utils.type import get_element_type_or_self

from lightnet.backends.elementary import emission
from lightnet.backends.llvm.function import FunctionEmitter
from lightnet.backends.llvm.scalar_ops import ELEMENTWISE, Emit
from lightnet.dialects import tile_arith

_SHORT = (f16, bf16)


def _is_rounded(op: Operation) -> bool:
    """Return whether a result is of 16 bits, or of float and rounded to those by whoever reads it."""
    type = get_element_type_or_self(op.results[0].type)
    if type != f32:
        return type in _SHORT
    casts = (arith.TruncFOp, tile_arith.CastOp)
    users = [use.operation for use in op.results[0].uses]
    return bool(users) and all(
        isinstance(u, casts) and get_element_type_or_self(u.results[0].type) in _SHORT for u in users
    )


def _is_approximate(op: Operation) -> bool:
    """Return whether an op says that an approximation will do."""
    flags = op.properties.get("fastmath")
    return isinstance(flags, arith.FastMathFlagsAttr) and arith.FastMathFlag.APPROX_FUNC in flags.data


def _divide(e: FunctionEmitter, op: Operation, a: list[str], t: str, r: str, lanes: int) -> str:
    if r == "float" and (_is_approximate(op) or _is_rounded(op)):
        return e.ins(e.call_text("llvm.nvvm.div.full", "float", [("float", x) for x in a]))
    return ELEMENTWISE[arith.DivfOp](e, op, a, t, r, lanes)


def _power(e: FunctionEmitter, op: Operation, a: list[str], t: str, r: str, lanes: int) -> str:
    """2 ** x, within 2 units in the last place and without denormals where the op says that an approximation will
    do."""
    if r == "float" and _is_approximate(op):
        return e.ins(e.call_text("llvm.nvvm.ex2.approx.ftz.f32", "float", [("float", x) for x in a]))
    return emission.emit_call(e, op, a, t, r, lanes)


def _rational(e: FunctionEmitter, op: Operation, a: list[str], t: str, r: str, lanes: int) -> str:
    """A function of float whose divisor is neither very large nor very small."""
    return emission.emit_call(e, op, a, t, r, lanes, "fdiv afn" if _is_rounded(op) else "fdiv")


#: The emitters of ops that the device has instructions of its own for.
QUOTIENTS: dict[type[Operation], Emit] = {
    ops.TanhOp: _rational,
    ops.ErfOp: _rational,
    ops.Exp2Op: _power,
    arith.DivfOp: _divide,
}
