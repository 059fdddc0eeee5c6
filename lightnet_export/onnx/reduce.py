"""ONNX exporters of reductions, sums of products, and running sums. See `graph.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lightnet.frontends.onnx.pairs import ARG_EXTREMES, REDUCTIONS
from lightnet.ir.op import LnOp
from lightnet.runtime.dtypes import BY_NAME, DType
from lightnet_export.onnx.arith import integer_division
from lightnet_export.onnx.graph import ExportGraph, export_pairs, exporter, operator

if TYPE_CHECKING:
    from lightnet.dialects.ln.einsum import Einsum
    from lightnet.dialects.ln.reduce import Maxreduce, MaxreduceArg, ReduceMean
    from lightnet.dialects.ln.scan import Cumprod, Cumsum

_I64, _I32 = BY_NAME["i64"], BY_NAME["i32"]


def _identity(kind: str, dtype: DType) -> np.generic:
    """The result of a reduction over nothing, where runtimes differ."""
    if kind in ("ReduceSum", "ReduceProd"):
        return dtype.np.type(kind == "ReduceProd")
    if dtype.is_float:
        return dtype.np.type(-np.inf if kind == "ReduceMax" else np.inf)
    return dtype.np.type(dtype.limits[kind == "ReduceMin"])


def _reduce(g: ExportGraph, kind: str, op: LnOp, src: str, axes: tuple[int, ...]) -> str:
    """A reduction along axes, which stay with length 1."""
    spec = op.operand_specs[0]
    if not axes:
        return g.node("Identity", src)
    if not spec.len:
        return g.full(op.result_specs[0].dims, _identity(kind, spec.dtype), spec.dtype)
    if kind == "ReduceProd" and not spec.dtype.is_float:
        return _integer_product(g, op, src, axes)
    return g.compute(kind, spec.dtype, [src], g.ints(axes), keepdims=1)


def _integer_product(g: ExportGraph, op: LnOp, src: str, axes: tuple[int, ...]) -> str:
    """Products that wrap, which ReduceProd does not promise: the halves of an axis are multiplied until it has length
    1."""
    spec = op.operand_specs[0]
    _, (x,), back = g.widened(spec.dtype, "i64", src, low_bits=True)
    for axis in axes:
        n = spec.dims[axis]
        while n > 1:
            half = n // 2
            product = g.node("Mul", g.slice(x, axis, 0, half), g.slice(x, axis, half, 2 * half))
            x = g.node("Concat", product, g.slice(x, axis, n - 1, n), axis=axis) if n % 2 else product
            n -= half
    return back(x)


@exporter("reduce_mean")
def reduce_mean(g: ExportGraph, op: ReduceMean, src: str) -> str:
    """Of integers, the quotient of a sum that wraps."""
    spec = op.operand_specs[0]
    if not op.axes:
        return g.node("Identity", src)
    if not spec.len:
        return g.full(op.result_specs[0].dims, np.nan if spec.dtype.is_float else 0, spec.dtype)
    if spec.dtype.is_float:
        return g.compute("ReduceMean", spec.dtype, [src], g.ints(op.axes), keepdims=1)
    total = _reduce(g, "ReduceSum", op, src, tuple(op.axes))
    wide = spec.dtype if spec.dtype.name == "ui64" else _I64  # which holds the number of terms
    quotient = integer_division(g, wide, g.cast(total, spec.dtype, wide), g.const(op.terms, wide))
    return g.cast(quotient, wide, spec.dtype)


@exporter(*ARG_EXTREMES.values())
def arg_extreme(g: ExportGraph, op: LnOp, src: str) -> str:
    """With a NaN in `src` the index is the runtime's own."""
    return g.test(
        operator(ARG_EXTREMES, op),
        op.operand_specs[0].dtype,
        src,
        axis=op.param("axis"),
        keepdims=1,
        select_last_index=int(op.param("last")),
    )


@exporter("maxreduce")
def maxreduce(g: ExportGraph, op: Maxreduce, src: str) -> str:
    return _reduce(g, "ReduceMax", op, src, (op.axis,))


@exporter("maxreduce_arg")
def maxreduce_arg(g: ExportGraph, op: MaxreduceArg, src: str) -> list[str]:
    """The first maximum wins in ONNX too (select_last_index = 0). With a NaN in `src` the index is the runtime's
    own."""
    arg = g.test("ArgMax", op.operand_specs[0].dtype, src, axis=op.axis, keepdims=1, select_last_index=0)
    return [_reduce(g, "ReduceMax", op, src, (op.axis,)), g.cast(arg, _I64, _I32)]


@exporter("dot_product")
def dot_product(g: ExportGraph, op: LnOp, src1: str, src2: str) -> str:
    """In 64 bits for integers: the low bits of a sum of products do not depend on the type it is summed in."""
    dtype = op.operand_specs[0].dtype
    if not op.operand_specs[0].len:
        return g.full((1,), 0, dtype)
    _, (x, y), back = g.widened(dtype, "i64 f32 f64", src1, src2, low_bits=True)
    total = g.node("ReduceSum", g.node("Mul", x, y), keepdims=0)
    return back(g.reshape(total, [1]))


@exporter("matmul")
def matmul(g: ExportGraph, op: LnOp, a: str, b: str) -> str:
    spec = op.result_specs[0]
    if not op.operand_specs[0].dims[-1]:
        return g.full(spec.dims, 0, spec.dtype)
    return g.compute("MatMul", spec.dtype, [a, b])


_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


@exporter("einsum")
def einsum(g: ExportGraph, op: Einsum, *src: str) -> str:
    """With the output written out and a letter for every axis; an axis of length 1 that goes with a longer one is
    dropped."""
    e, spec = op.parsed(), op.result_specs[0]
    if any(not s.len for s in op.operand_specs):
        return g.full(spec.dims, 0, spec.dtype)
    letters = dict(zip(e.extents, _LETTERS))
    terms, operands = [], []
    for x, labels, s in zip(src, e.operands, op.operand_specs):
        kept = [k for k, label in enumerate(labels) if s.dims[k] == e.extents[label]]
        terms.append("".join(letters[labels[k]] for k in kept))
        operands.append(x if len(kept) == s.ndim else g.reshape(x, [s.dims[k] for k in kept]))
    equation = f"{','.join(terms)}->{''.join(letters[x] for x in e.output)}"
    return g.compute("Einsum", spec.dtype, operands, equation=equation)


@exporter("cumsum")
def cumsum(g: ExportGraph, op: Cumsum, src: str) -> str:
    flags = {"exclusive": int(op.exclusive), "reverse": int(op.reverse)}
    return g.compute("CumSum", op.operand_specs[0].dtype, [src], g.const(op.axis, _I64), **flags)


@exporter("cumprod")
def cumprod(g: ExportGraph, op: Cumprod, src: str) -> str:
    """CumProd is of opset 26. In steps of 1, 2, 4, … each element is multiplied by the one that far before it: a scan
    (Hillis and Steele, "Data parallel algorithms", 1986)."""
    spec, axis = op.operand_specs[0], op.axis
    wide, (x,), back = g.widened(spec.dtype, "i32 i64 f32 f64", src, low_bits=True)
    n = spec.dims[axis]

    def moved(x: str, step: int) -> str:
        """Each element where the one `step` behind it stands, and ones at the free places."""
        ones = g.full((*spec.dims[:axis], step, *spec.dims[axis + 1 :]), 1, wide)
        kept = g.slice(x, axis, step, n) if op.reverse else g.slice(x, axis, 0, n - step)
        return g.node("Concat", *((kept, ones) if op.reverse else (ones, kept)), axis=axis)

    x, step = moved(x, 1) if op.exclusive else x, 1
    while step < n:
        x, step = g.node("Mul", x, moved(x, step)), 2 * step
    return back(x)


export_pairs(REDUCTIONS, lambda kind: lambda g, op, src: _reduce(g, kind, op, src, tuple(op.axes)))
