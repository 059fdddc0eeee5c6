"""The functions of index notation as ops of level 4, on operands of one shape: scalars, vectors and tiles alike.

What an expression reads, and in which order and where it is computed, is for `loop_values` (scalars, and what each loop
knows), `loop_vectors` (consecutive elements) and `expressions` (register tiles). Imports `ir.bound`, `builder` and
xDSL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import VectorType, i1
from xdsl.ir import Attribute, SSAValue

from lightnet.backends.builder import Builder, vector_type
from lightnet.ir.bound import BOOL, F64, Apply, Const
from lightnet.ir.functions import FLOAT_FUNCTIONS
from lightnet.ir.types import storage_type
from lightnet.runtime.dims import Dim
from lightnet.runtime.dtypes import DType


def scalar_type(dtype: DType) -> Attribute:
    """The type of a value in a register: bools are i1."""
    return i1 if dtype is BOOL else storage_type(dtype)


def takes_vectors(node: Apply) -> bool:
    """Return whether `applied` computes a node on vectors: arithmetic and functions of floats, conversions between
    floats, and conditions."""
    match node.fn:
        case "select" | "and" | "or" | "not":
            return True
        case "lt" | "le" | "eq" | "ne":
            return node.args[0].dtype.is_float
        case "cast":
            return node.dtype.is_float and node.args[0].dtype.is_float
    return node.dtype.is_float and node.fn in FLOAT


def constant(b: Builder, node: Const, shape: tuple[int, ...] = ()) -> SSAValue:
    """A constant, repeated where there is a shape."""
    type = scalar_type(node.dtype)
    if isinstance(node.value, Dim):
        value = b.op(arith.IndexCastOp, b.index(node.value), type=type)
        return b.broadcast(value, shape) if shape else value
    return b.const(signed(node.value, node.dtype), vector_type(shape, type) if shape else type)


def signed(value: float, dtype: DType) -> float:
    """The number as MLIR writes it in a signless integer."""
    return value - (1 << dtype.bits) if dtype.kind == "uint" and value >= 1 << (dtype.bits - 1) else value


def loaded_value(b: Builder, value: SSAValue, dtype: DType) -> SSAValue:
    """A value read of memory as it stands in registers: a bool, a byte there, is an i1."""
    return b.cmpi("ne", value, b.const(0, value.type)) if dtype is BOOL else value


def memory_value(b: Builder, value: SSAValue) -> SSAValue:
    """A value as it stands in memory: a bool is a byte."""
    element = value.type.element_type if isinstance(value.type, VectorType) else value.type
    return b.cast("extui", value, storage_type(BOOL)) if element == i1 else value


def applied(b: Builder, node: Apply, args: Sequence[SSAValue]) -> SSAValue:
    """A function of values, all of them computed: both arms of a ``select`` too."""
    fn, dtype, old = node.fn, node.dtype, node.args[0].dtype
    match fn:
        case "select":
            return b.select(*args)
        case "lt" | "le" | "eq" | "ne":
            return _compared(b, fn, args, old)
        case "and" | "or":
            return b.op(arith.AndIOp if fn == "and" else arith.OrIOp, *args)
        case "not":
            return b.op(arith.XOrIOp, args[0], b.const(1, args[0].type))
        case "cast":
            return converted_value(b, args[0], old, dtype)
        case "wrap":
            return _keep_bits(b, args[0], old, dtype)
        case "bitcast":
            type = scalar_type(dtype)
            return args[0] if scalar_type(old) == type else b.cast("bitcast", args[0], type)
    return _arithmetic(b, fn, args, dtype)


def _compared(b: Builder, fn: str, args: Sequence[SSAValue], dtype: DType) -> SSAValue:
    if dtype.is_float:
        return b.cmpf({"lt": "olt", "le": "ole", "eq": "oeq", "ne": "une"}[fn], *args)
    sign = "u" if dtype.kind in ("uint", "bool") else "s"
    return b.cmpi(fn if fn in ("eq", "ne") else sign + fn, *args)


def _arithmetic(b: Builder, fn: str, args: Sequence[SSAValue], dtype: DType) -> SSAValue:
    if dtype.is_float:
        if fn == "rem":
            quotient = b.op(math.TruncOp, b.op(arith.DivfOp, *args))
            return b.op(arith.SubfOp, args[0], b.op(arith.MulfOp, args[1], quotient))
        return b.op(FLOAT[fn], *args)
    if fn == "neg":
        return b.op(arith.SubiOp, b.const(0, args[0].type), args[0])
    if fn == "pow":
        a, n = (converted_value(b, v, dtype, F64) for v in args)
        return converted_value(b, b.op(math.PowFOp, a, n), F64, dtype)
    if fn in ("shl", "shr"):
        x, by = args
        return _shift(b, fn, x, by, dtype)
    return b.op((_UNSIGNED if dtype.kind == "uint" else _SIGNED)[fn], *args)


def _shift(b: Builder, fn: str, x: SSAValue, n: SSAValue, dtype: DType) -> SSAValue:
    """A shift by the width or more (which MLIR leaves open) gives 0, or the sign."""
    if fn == "shr" and dtype.kind == "int":
        return b.op(arith.ShRSIOp, x, b.op(arith.MinUIOp, n, b.const(dtype.bits - 1, x.type)))
    shifted = b.op(arith.ShLIOp if fn == "shl" else arith.ShRUIOp, x, n)
    return b.select(b.cmpi("ult", n, b.const(dtype.bits, x.type)), shifted, b.const(0, x.type))


def combine(b: Builder, op: str, a: SSAValue, x: SSAValue, dtype: DType) -> SSAValue:
    """One step of a reduction. Sums and products of floats may be reassociated."""
    if dtype is BOOL:
        return b.op(arith.OrIOp if op in ("+=", "max=") else arith.AndIOp, a, x)
    fn = {"+=": "add", "*=": "mul", "max=": "max", "min=": "min"}[op]
    if dtype.is_float and fn in ("add", "mul"):
        return b.op(FLOAT[fn], a, x, fastmath=_REASSOC)
    return _arithmetic(b, fn, [a, x], dtype)


def converted_value(b: Builder, x: SSAValue, old: DType, new: DType) -> SSAValue:
    """Between floats by rounding, else saturating and truncating; to bool, whatever is not zero is true."""
    if old is new:
        return x
    type = scalar_type(new)
    if new is BOOL:
        zero = b.const(0, x.type)
        return b.cmpf("une", x, zero) if old.is_float else b.cmpi("ne", x, zero)
    if old.is_float:
        if new.is_float:
            return b.cast("extf" if new.size > old.size else "truncf", x, type)
        return b.cast("fptoui" if new.kind == "uint" else "fptosi", x, type)
    unsigned = old.kind in ("uint", "bool")
    if new.is_float:
        return b.cast("uitofp" if unsigned else "sitofp", x, type)
    return _resize(b, x, old, new, unsigned)


def _keep_bits(b: Builder, x: SSAValue, old: DType, new: DType) -> SSAValue:
    """Integer to integer as in C: the low bits, extended by the sign of the old type."""
    if old.size == new.size:
        return x
    kind = "trunci" if old.size > new.size else "extsi" if old.kind == "int" else "extui"
    return b.cast(kind, x, scalar_type(new))


def _resize(b: Builder, x: SSAValue, old: DType, new: DType, unsigned: bool) -> SSAValue:
    """Integer to integer: clamp to the range of both, then change the width."""
    if old is not BOOL:
        high = (1 << (new.bits - (new.kind == "int"))) - 1
        if high < (1 << (old.bits - (old.kind == "int"))) - 1:
            x = b.op(arith.MinUIOp if unsigned else arith.MinSIOp, x, b.const(high, x.type))
        if not unsigned and (new.kind == "uint" or new.bits < old.bits):
            low = 0 if new.kind == "uint" else -(1 << (new.bits - 1))
            x = b.op(arith.MaxSIOp, x, b.const(low, x.type))
        if old.size >= new.size:
            return x if old.size == new.size else b.cast("trunci", x, scalar_type(new))
    return b.cast("extui" if unsigned else "extsi", x, scalar_type(new))


_REASSOC = arith.FastMathFlagsAttr([arith.FastMathFlag.REASSOC])
#: The functions of `bound.Apply` on floats that are one op.
FLOAT: dict[str, Any] = {
    "add": arith.AddfOp, "sub": arith.SubfOp, "mul": arith.MulfOp, "div": arith.DivfOp, "neg": arith.NegfOp,
    "min": arith.MinimumfOp, "max": arith.MaximumfOp, "pow": math.PowFOp, "abs": math.AbsFOp,
    "floor": math.FloorOp, "ceil": math.CeilOp,
    "round": math.RoundOp, "rint": math.RoundEvenOp,
} | {op.name[5:]: op for op in math.Math.operations if op.name[5:] in FLOAT_FUNCTIONS}  # fmt: skip
_SIGNED: dict[str, Any] = {
    "add": arith.AddiOp, "sub": arith.SubiOp, "mul": arith.MuliOp, "div": arith.DivSIOp, "rem": arith.RemSIOp,
    "min": arith.MinSIOp, "max": arith.MaxSIOp, "abs": math.AbsIOp, "bitand": arith.AndIOp, "bitor": arith.OrIOp,
    "bitxor": arith.XOrIOp,
}  # fmt: skip
_UNSIGNED = _SIGNED | {"div": arith.DivUIOp, "rem": arith.RemUIOp, "min": arith.MinUIOp, "max": arith.MaxUIOp}
