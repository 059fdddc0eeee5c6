"""ONNX exporters of sources, moves, elementwise ops, reductions and sorts. See `onnx_graph.py` for how one is written.

ONNX Runtime has kernels for few integer types; `widened` lists, for each operator, those it has.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lightnet.frontends.onnx_graph import Graph, exporter
from lightnet.ir.op import LnOp
from lightnet.runtime.dtypes import BY_NAME, DType, convert

#: Types for sums and products of integers: wider ones are cut back to the low bits.
_WRAPPING = "i32 i64"
_F64, _I64, _I32 = BY_NAME["f64"], BY_NAME["i64"], BY_NAME["i32"]


# -- sources


@exporter("zeros")
def zeros(g: Graph, op: LnOp) -> str:
    spec = op.result_specs[0]
    return g.node("Expand", g.const(0, spec.dtype), g.ints(spec.dims))


@exporter("arange", "rearange")
def arange(g: Graph, op: LnOp, *_: str) -> str:
    """start + i * step in double, then converted; `rearange` takes only its type from its operand."""
    spec = op.result_specs[0]
    steps = g.node("Range", g.const(0.0, _F64), g.const(float(spec.len), _F64), g.const(1.0, _F64))
    values = g.node("Add", g.const(op.start, _F64), g.node("Mul", steps, g.const(op.step, _F64)))
    return g.convert(values, _F64, spec.dtype)


# -- moves


@exporter("forward")
def forward(g: Graph, op: LnOp, src: str) -> str:
    return g.node("Identity", src)


@exporter("concat")
def concat(g: Graph, op: LnOp, src1: str, src2: str) -> str:
    return g.node("Concat", src1, src2, axis=op.axis)


@exporter("slice")
def slice_(g: Graph, op: LnOp, src: str) -> str:
    return g.slice(src, op.axis, op.start, op.start + op.len)


@exporter("transpose")
def transpose(g: Graph, op: LnOp, src: str) -> str:
    return g.node("Transpose", src, perm=list(op.axes))


@exporter("reshape")
def reshape(g: Graph, op: LnOp, src: str) -> str:
    return g.reshape(src, op.dims)


@exporter("gather")
def gather(g: Graph, op: LnOp, *src: str) -> str:
    """LightNet's gather stacks (ONNX's Gather is another operator)."""
    first = g.ints([0])
    return g.node("Concat", *(g.node("Unsqueeze", x, first) for x in src), axis=0)


@exporter("scatter")
def scatter(g: Graph, op: LnOp, src: str) -> list[str]:
    count = len(op.results)
    first = g.ints([0])
    parts = g.node_n("Split", count, src, g.ints([1] * count), axis=0)
    return [g.node("Squeeze", part, first) for part in parts]


# -- elementwise


@exporter("relu")
def relu(g: Graph, op: LnOp, src: str) -> str:
    dtype = op.operand_specs[0].dtype
    if dtype.kind in ("uint", "bool"):
        return g.node("Identity", src)
    if dtype.is_float:
        return g.node("Relu", src)
    wide, (x,), back = g.widened(dtype, "i32 i64", src)
    return back(g.node("Max", x, g.const(0, wide)))


@exporter("lrelu")
def lrelu(g: Graph, op: LnOp, src: str) -> str:
    """LeakyRelu for f32 (its slope is a float); else x >= 0 ? x : x * slope, the slope in the tensor's type."""
    dtype = op.operand_specs[0].dtype
    if dtype.name == "f32":
        return g.node("LeakyRelu", src, alpha=float(op.negslope))
    if dtype.kind in ("uint", "bool"):
        return g.node("Identity", src)
    slope = convert(np.asarray(op.negslope, np.float64), dtype).item()
    wide, (x,), back = g.widened(dtype, _WRAPPING, src)
    positive = g.node("GreaterOrEqual", x, g.const(0, wide))
    return back(g.node("Where", positive, x, g.node("Mul", x, g.const(slope, wide))))


@exporter("sigmoid")
def sigmoid(g: Graph, op: LnOp, src: str) -> str:
    return g.node("Sigmoid", src)


_ELEW = {"TL_MUL": "Mul", "TL_DIV": "Div", "TL_SUM": "Add", "TL_SUB": "Sub", "TL_MAX": "Max", "TL_MIN": "Min",
         "TL_POW": "Pow"}  # fmt: skip


@exporter("elew")
def elew(g: Graph, op: LnOp, src1: str, src2: str) -> str:
    dtype, kind = op.operand_specs[0].dtype, _ELEW[op.elew_op]
    if dtype.is_float:
        return g.node(kind, src1, src2)
    if kind == "Pow":
        return _integer_power(g, dtype, src1, src2)
    if kind in ("Max", "Min"):
        _, operands, back = g.widened(dtype, "i32 i64 ui64", src1, src2)
        return back(g.node(kind, *operands))
    if kind == "Div":
        return _integer_division(g, dtype, src1, src2)
    if dtype.name == "ui64":  # the low 64 bits of sums, differences and products do not depend on the sign
        x, y = (g.cast(v, dtype, _I64) for v in (src1, src2))
        return g.cast(g.node(kind, x, y), _I64, dtype)
    _, operands, back = g.widened(dtype, _WRAPPING, src1, src2)
    return back(g.node(kind, *operands))


def _integer_division(g: Graph, dtype: DType, x: str, y: str) -> str:
    """Truncating; x / 0 = 0, min / -1 wraps to min. A runtime may trap on either, so neither is asked for.

    Magnitudes are divided: ONNX does not say whether a quotient below zero is truncated or floored.
    """
    wide = BY_NAME["ui64"] if dtype.size == 8 else _I64  # holds |min| of dtype
    if dtype.kind != "int":
        a, b = (g.cast(v, dtype, wide) for v in (x, y))
        return g.cast(_safe_quotient(g, wide, a, b), wide, dtype)
    x, y = (g.cast(v, dtype, _I64) for v in (x, y))
    zero = g.const(0, _I64)
    negative = g.node("Xor", g.node("Less", x, zero), g.node("Less", y, zero))
    a, b = (g.cast(g.node("Abs", v), _I64, wide) for v in (x, y))  # Abs(-2**63) is -2**63, which reads as 2**63
    quotient = g.cast(_safe_quotient(g, wide, a, b), wide, _I64)
    return g.cast(g.node("Where", negative, g.node("Neg", quotient), quotient), _I64, dtype)


def _safe_quotient(g: Graph, dtype: DType, a: str, b: str) -> str:
    """a / b, and 0 where b is 0; both at least 0."""
    zero = g.const(0, dtype)
    by_zero = g.node("Equal", b, zero)
    return g.node("Where", by_zero, zero, g.node("Div", a, g.node("Where", by_zero, g.const(1, dtype), b)))


def _integer_power(g: Graph, dtype: DType, x: str, y: str) -> str:
    """pow in double, then saturated: as the op's definition has it."""
    power = g.node("Pow", g.cast(x, dtype, _F64), g.cast(y, dtype, _F64))
    return g.convert(power, _F64, dtype)


# -- reductions

_REDUCIBLE = "f32 f64 i32 i64 i8 ui8"


@exporter("maxreduce")
def maxreduce(g: Graph, op: LnOp, src: str) -> str:
    _, (x,), back = g.widened(op.operand_specs[0].dtype, _REDUCIBLE, src)
    return back(g.node("ReduceMax", x, g.ints([op.axis]), keepdims=1))


@exporter("maxreduce_arg")
def maxreduce_arg(g: Graph, op: LnOp, src: str) -> list[str]:
    """The first maximum wins in ONNX too (select_last_index = 0). With a NaN in `src` the index is the runtime's own."""
    _, (x,), back = g.widened(op.operand_specs[0].dtype, _REDUCIBLE, src)
    arg = g.node("ArgMax", x, axis=op.axis, keepdims=1, select_last_index=0)
    return [back(g.node("ReduceMax", x, g.ints([op.axis]), keepdims=1)), g.cast(arg, _I64, _I32)]


@exporter("dot_product")
def dot_product(g: Graph, op: LnOp, src1: str, src2: str) -> str:
    dtype = op.operand_specs[0].dtype
    x, y, wide = src1, src2, dtype
    if not dtype.is_float:  # the low bits of a sum of products do not depend on the type it is summed in
        wide = _I64
        x, y = (g.cast(v, dtype, wide) for v in (src1, src2))
    total = g.node("ReduceSum", g.node("Mul", x, y), keepdims=0)
    return g.cast(g.reshape(total, [1]), wide, dtype)


# -- sorting

_SORTABLE = "f32 f64 i32 i64"


def _top_k(g: Graph, op: LnOp, key: str) -> tuple[str, str]:
    """Sorted keys and their i64 indices. TopK keeps the order of equal keys (the lower index first): it is a stable sort,
    as LightNet's. Where NaN goes is the runtime's own affair."""
    spec = op.operand_specs[0]
    largest = int(op.dir == "TL_SORT_DIR_DESCENDING")
    _, (x,), back = g.widened(spec.dtype, _SORTABLE, key)
    values, indices = g.node_n("TopK", 2, x, g.ints([spec.len]), axis=0, largest=largest, sorted=1)
    return back(values), indices


@exporter("sort1d")
def sort1d(g: Graph, op: LnOp, key: str) -> str:
    return _top_k(g, op, key)[0]


@exporter("sort1d_by_key")
def sort1d_by_key(g: Graph, op: LnOp, key: str, val: str) -> list[str]:
    keys, indices = _top_k(g, op, key)
    return [keys, g.node("Gather", val, indices, axis=0)]


@exporter("pick1d")
def pick1d(g: Graph, op: LnOp, src: str, index: str) -> str:
    length = op.operand_specs[0].len
    groups = length // op.stride
    x = src if groups * op.stride == length else g.slice(src, 0, 0, groups * op.stride)
    rows = x if op.stride == 1 else g.reshape(x, [groups, op.stride])
    picked = index if op.operand_specs[1].len == op.len else g.slice(index, 0, 0, op.len)
    picked = g.clamp(picked, g.const(0, _I32), g.const(groups - 1, _I32))
    found = g.node("Gather", rows, picked, axis=0)
    return found if op.stride == 1 else g.reshape(found, [op.len * op.stride])


# -- resampling

_RESIZABLE = ("f32", "i32", "i8", "ui8")


@exporter("resize", "upsample")
def resample(g: Graph, op: LnOp, src: str) -> str:
    """Nearest neighbour. By whole factors it is Resize with floor(d / factor); else a Gather along each axis, since none
    of Resize's roundings is exact for all sizes."""
    old, new = op.operand_specs[0].dims, op.result_specs[0].dims
    whole = all(n % o == 0 for o, n in zip(old, new))
    if old == new:
        return g.node("Identity", src)
    if whole and op.operand_specs[0].dtype.name in _RESIZABLE:
        return g.node(
            "Resize",
            src,
            "",
            "",
            g.ints(new),
            mode="nearest",
            nearest_mode="floor",
            coordinate_transformation_mode="asymmetric",
        )
    for axis, (o, n) in enumerate(zip(old, new)):
        if o != n:
            src = g.node("Gather", src, g.ints(_nearest(o, n)), axis=axis)
    return src


def _nearest(old: int, new: int) -> Sequence[int]:
    """round((d + 0.5) * old / new - 0.5), half away from zero: floor((2*d + 1) * old / (2 * new)) once it is not negative."""
    return [(2 * d + 1) * old // (2 * new) for d in range(new)]


@exporter("submean")
def submean(g: Graph, op: LnOp, src: str) -> str:
    channels_first = g.node("Transpose", g.cast(src, op.operand_specs[0].dtype, _F64), perm=[2, 0, 1])
    centred = g.node("Sub", channels_first, g.const(np.reshape(op.mean, (3, 1, 1)), _F64))
    return g.convert(centred, _F64, op.result_specs[0].dtype)
