"""ONNX exporters of arithmetic, comparisons, selection and conversions. See `graph.py`.

Integers are LightNet's: they wrap, x / 0 and x % 0 are 0, and a shift by the width or more leaves nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightnet.frontends.onnx.pairs import BINARY, BITWISE, COMPARISONS, EXTREMES, LOGICAL
from lightnet.ir.op import LnOp
from lightnet.runtime.dtypes import BY_NAME, DType
from lightnet_export.onnx.graph import ExportGraph, export_pairs, exporter, operator, unsupported

if TYPE_CHECKING:
    from lightnet.dialects.ln.arith import Cast
    from lightnet.dialects.ln.elementwise import Elew

_F64, _I64, _UI64 = BY_NAME["f64"], BY_NAME["i64"], BY_NAME["ui64"]


def binary(g: ExportGraph, kind: str, dtype: DType, x: str, y: str) -> str:
    """One of Add, Sub, Mul, Div, Max, Min, Pow."""
    if kind in ("Max", "Min"):
        return g.extreme(kind, dtype, x, y)
    if dtype.is_float or kind not in ("Div", "Pow"):
        return g.compute(kind, dtype, [x, y])
    return (integer_division if kind == "Div" else _integer_power)(g, dtype, x, y)


_ARITHMETIC = BINARY | EXTREMES | {"Pow": "pow"}
export_pairs(_ARITHMETIC, lambda kind: lambda g, op, x, y: binary(g, kind, op.operand_specs[0].dtype, x, y))
export_pairs(COMPARISONS, lambda kind: lambda g, op, x, y: g.test(kind, op.operand_specs[0].dtype, x, y))


@exporter(*BITWISE.values())
def bits(g: ExportGraph, op: LnOp, x: str, y: str) -> str:
    kinds = LOGICAL if op.operand_specs[0].dtype.kind == "bool" else BITWISE
    return g.node(operator(kinds, op), x, y)


_ELEW = {"TL_MUL": "Mul", "TL_DIV": "Div", "TL_SUM": "Add", "TL_SUB": "Sub", "TL_MAX": "Max", "TL_MIN": "Min",
         "TL_POW": "Pow"}  # fmt: skip


@exporter("elew")
def elew(g: ExportGraph, op: Elew, src1: str, src2: str) -> str:
    return binary(g, _ELEW[op.elew_op], op.operand_specs[0].dtype, src1, src2)


def integer_division(g: ExportGraph, dtype: DType, x: str, y: str) -> str:
    """Truncating; x / 0 = 0, min / -1 wraps to min. A runtime may trap on either, so neither is asked for.

    Magnitudes are divided: ONNX does not say whether a quotient below zero is truncated or floored.
    """
    wide = _UI64 if dtype.size == 8 else _I64  # holds |min| of dtype
    if dtype.kind != "int":
        a, b = (g.cast(v, dtype, wide) for v in (x, y))
        return g.cast(_safe_quotient(g, wide, a, b), wide, dtype)
    x, y = (g.cast(v, dtype, _I64) for v in (x, y))
    zero = g.const(0, _I64)
    negative = g.node("Xor", g.node("Less", x, zero), g.node("Less", y, zero))
    a, b = (g.cast(g.node("Abs", v), _I64, wide) for v in (x, y))  # Abs(-2**63) is -2**63, which reads as 2**63
    quotient = g.cast(_safe_quotient(g, wide, a, b), wide, _I64)
    return g.cast(g.node("Where", negative, g.node("Neg", quotient), quotient), _I64, dtype)


def _safe_quotient(g: ExportGraph, dtype: DType, a: str, b: str) -> str:
    """a / b, and 0 where b is 0; both at least 0."""
    by_zero = g.node("Equal", b, g.const(0, dtype))
    return g.where(dtype, by_zero, g.const(0, dtype), g.node("Div", a, g.extreme("Max", dtype, b, g.const(1, dtype))))


def _integer_power(g: ExportGraph, dtype: DType, x: str, y: str) -> str:
    """pow in double, then saturated: as the op's definition has it."""
    power = g.node("Pow", g.cast(x, dtype, _F64), g.cast(y, dtype, _F64))
    return g.convert(power, _F64, dtype)


@exporter("fmod", "mod")
def remainder(g: ExportGraph, op: LnOp, x: str, y: str) -> str:
    """ONNX's Mod has the sign of the dividend for floats; for integers it has that of the divisor, `fmod = 1` apart,
    which runtimes compute in double. The other sign is one divisor away. No integer is divided by 0 or -1, which may
    trap."""
    dtype = op.operand_specs[0].dtype
    if dtype.kind == "uint":
        return g.compute("Mod", dtype, [x, g.extreme("Max", dtype, y, g.const(1, dtype))])
    wide, (x, y), back = g.widened(dtype, "i32 i64 f32 f64", x, y)
    zero = g.const(0, wide)
    if not wide.is_float:
        trivial = g.node("Or", g.node("Equal", y, zero), g.node("Equal", y, g.const(-1, wide)))
        y = g.node("Where", trivial, g.const(1, wide), y)
    rest = g.node("Mod", x, y, fmod=int(wide.is_float))
    if (op.optype == "fmod") == wide.is_float:
        return back(rest)
    differs = g.node("Xor", g.node("Less", rest, zero), g.node("Less", x if op.optype == "fmod" else y, zero))
    other = g.node("Sub" if op.optype == "fmod" else "Add", rest, y)
    return back(g.node("Where", g.node("And", differs, g.node("Not", g.node("Equal", rest, zero))), other, rest))


@exporter("shift_left", "shift_right")
def shift(g: ExportGraph, op: LnOp, x: str, y: str) -> str:
    """BitShift is for unsigned integers, and not for shifts by the width: all is done in 64 bits, and by 0 where
    nothing is to be left. To the right, the bits of a negative number are turned over before and after."""
    dtype = op.operand_specs[0].dtype
    right = op.optype == "shift_right"
    x, y = (g.cast(v, dtype, _I64) for v in (x, y))
    zero = g.const(0, _I64)
    inside = g.node("And", g.node("GreaterOrEqual", y, zero), g.node("Less", y, g.const(8 * dtype.size, _I64)))
    count = g.cast(g.node("Where", inside, y, zero), _I64, _UI64)
    below = g.node("Less", x, zero) if right and dtype.kind == "int" else None
    if below:
        x = g.node("Where", below, g.node("BitwiseNot", x), x)
    shifted = g.node("BitShift", g.cast(x, _I64, _UI64), count, direction="RIGHT" if right else "LEFT")
    shifted = g.node("Where", inside, g.cast(shifted, _UI64, _I64), zero)
    if below:
        shifted = g.node("Where", below, g.node("BitwiseNot", shifted), shifted)
    return g.cast(shifted, _I64, dtype)


@exporter("where")
def where(g: ExportGraph, op: LnOp, cond: str, src1: str, src2: str) -> str:
    return g.where(op.result_specs[0].dtype, cond, src1, src2)


@exporter("cast")
def cast(g: ExportGraph, op: Cast, src: str) -> str:
    """ONNX's Cast wraps integers and rounds floats to infinity; from floats to integers it is undefined beyond the
    range."""
    source, target = op.operand_specs[0].dtype, op.result_specs[0].dtype
    to_int = source.is_float and target.kind in ("int", "uint")
    return g.convert(src, source, target) if op.mode == "saturate" or to_int else _wrapped(g, src, source, target)


def _wrapped(g: ExportGraph, x: str, source: DType, target: DType) -> str:
    if target.is_short and not source.is_float:  # to f32 first, as LightNet does
        x, source = g.cast(x, source, "f32"), BY_NAME["f32"]
    return g.cast(x, source, target) if source != target else g.node("Identity", x)


@exporter("bitcast")
def bitcast(g: ExportGraph, op: LnOp, src: str) -> str:
    """Between integers of one size it is a Cast; BitCast is of opset 26. Bits of a byte beyond those of a type that is
    only stored in do not count: an integer of 4 bits may be a Cast, too."""
    source, target = op.operand_specs[0].dtype, op.result_specs[0].dtype
    if source == target:
        return g.node("Identity", src)
    if narrow := [d for d in (source, target) if d.is_stored and d.bits < 8]:
        if any(d.name.startswith("f") for d in narrow):
            raise unsupported(op, f"ONNX has no element of {narrow[0]} in a byte of its own")
        g.needs(25)
        wide = BY_NAME["i8"] if narrow[0].name.startswith("i") else BY_NAME["ui8"]
        return g.cast(g.cast(src, source, wide), wide, target)
    if source.is_stored or target.is_stored:
        g.needs(26)
        return g.node("BitCast", src, to=g.type_number(target))
    if not source.is_float and not target.is_float:
        return g.cast(src, source, target)
    g.needs(26)
    return g.node("BitCast", src, to=g.type_number(target))
