"""ONNX ops on quantised tensors; ONNX Runtime's, built of the same parts, stand in `lightnet_ort`.

A quantised tensor q stands for (q - zero point) * scale. Products of 8-bit integers are summed in floats that hold
every sum exactly: in f32 where no sum can reach 2^24 (which known weights tell), else in f64; so they run on the
generators of the float ops, and give the integers that ConvInteger and MatMulInteger ask for. Imports the table of
handlers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lightnet.dataclasses import replace
from lightnet.frontends.graph import Value
from lightnet.frontends.onnx.model import MICROSOFT
from lightnet.frontends.onnx.node import Node, handler_of, onnx_op
from lightnet.frontends.onnx.storage import marked, stored
from lightnet.runtime.dtypes import BY_NAME, DType
from lightnet.runtime.stored import FORMATS

#: Integers up to here are floats of 32 bits.
EXACT = 1 << 24
QUANTIZED = ("i8", "ui8", "i16", "ui16")


# -- numbers and integers --------------------------------------------------------------------------------------------


def standard(n: Node, op_type: str, *inputs: Value | None, opset: int | None = None) -> Any:
    """The result of the standard's op (of the model's opset, unless `opset` says another) on these inputs, with the
    attributes of this node.
    """
    opset = n.importer.opsets.get("", n.opset) if opset is None else opset
    node = Node(n.importer, replace(n.node, op_type=op_type, domain=""), opset)
    handler = handler_of("", op_type)
    assert handler is not None
    return handler(node, *inputs)


def along(n: Node, value: Value, x: Value, axis: int) -> Value:
    """A scale or zero point, one for all or one for each index of `axis`, as it broadcasts with `x`."""
    if value.len == 1:
        return n.g.reshape(value, ())
    if value.ndim != 1:
        n.fail(f"its scale and zero point should have rank 0 or 1, but one is {value.spec}")
    axis = n.axis(axis, x.ndim)
    if value.len != x.dims[axis]:
        n.fail(f"along axis {axis} of {x.spec} it has {value.len} scales or zero points")
    return n.g.reshape(value, (value.len, *[1] * (x.ndim - axis - 1)))


def is_zero(value: Value | None) -> bool:
    """Return whether a zero point is absent or known to be 0."""
    return value is None or (value.is_known and value.len <= 4096 and not value.known.any())


def centred(n: Node, q: Value, zero: Value | None, dtype: str = "f32") -> Value:
    """q - zero point in `dtype`; the zero point broadcasts with q."""
    number = n.g.cast(q, dtype)
    if zero is None or is_zero(zero):
        return number
    return n.g.op("sub", number, fixed(n.g.cast(weights(n, zero), dtype)))


def weights(n: Node, q: Value) -> Value:
    """A quantised tensor which, where it holds weights, is not folded: the pass `integers` finds products by it."""
    return as_weights(n, q) if q.ndim > 1 else q


def as_weights(n: Node, q: Value) -> Value:
    """A tensor whose contents, where they are known, are not folded into what is made of it."""
    return Value(q.spec, ssa=n.g.ssa(q), inputs=q.inputs, name=q.name) if q.is_known else q


def fixed(value: Value) -> Value:
    """`value`, of which passes may read what it holds."""
    value.is_fixed = True
    return value


def requantized(n: Node, number: Value, zero: Value | None, dtype: DType) -> Value:
    """Floats in units of the scale as integers: rounded to nearest even, moved by the zero point, saturated."""
    whole = n.g.cast(n.g.op("round_even", number), "f32")
    if zero is not None and not is_zero(zero):
        whole = n.g.op("add", whole, fixed(n.g.cast(zero, "f32")))
    return n.g.cast(whole, dtype, mode="saturate")


def dequantized(n: Node, q: Value, scale: Value, zero: Value | None, axis: int = 1) -> Value:
    """The f32 numbers that `q` stands for."""
    zero = None if zero is None else along(n, zero, q, axis)
    return n.g.op("mul", centred(n, q, zero), n.g.cast(along(n, scale, q, axis), "f32"))


def quantized(n: Node, number: Value, scale: Value, zero: Value | None, like: DType) -> Value:
    """f32 numbers in the type of the zero point, or that of `like` where there is none, with one scale for all."""
    scale = n.g.cast(along(n, scale, number, 0), "f32")
    zero = None if zero is None else along(n, zero, number, 0)
    return requantized(n, n.g.op("div", number, scale), zero, like if zero is None else zero.dtype)


def _supported(n: Node, dtype: DType) -> DType:
    if dtype.name not in QUANTIZED:
        n.unsupported(f"a tensor quantised to {dtype}")
    return dtype


# -- QuantizeLinear, DequantizeLinear --------------------------------------------------------------------------------


@onnx_op("QuantizeLinear")
@onnx_op("QuantizeLinear", domain=MICROSOFT)
def quantize_linear(n: Node, x: Value, scale: Value, zero: Value | None = None) -> Value:
    """The division is in the type of the scale, or in that of `precision`."""
    storage = zero.storage if zero is not None else n.storage_type("output_dtype")
    if storage is not None:
        return _stored(n, x, scale, zero, storage)
    dtype = zero.dtype if zero is not None else n.element_type("output_dtype") or BY_NAME["ui8"]
    _supported(n, dtype)
    precision = n.element_type("precision") or scale.dtype
    parts, scale, zero = spread(n, x, scale, zero)
    number = n.g.op("div", n.g.cast(parts, precision), fixed(n.g.cast(scale, precision)))
    return n.g.reshape(requantized(n, number, zero, dtype), x.dims)


def _stored(n: Node, x: Value, scale: Value, zero: Value | None, storage: str) -> Value:
    """To a storage type: integers are rounded before the zero point is added, floats (whose zero points are 0) behind
    it."""
    precision = n.element_type("precision") or scale.dtype
    parts, scale, zero = spread(n, x, scale, zero)
    number = n.g.cast(n.g.op("div", n.g.cast(parts, precision), n.g.cast(scale, precision)), "f32")
    if not FORMATS[storage].is_float:
        number = n.g.op("round_even", number)
    if zero is not None and not is_zero(zero):
        number = n.g.op("add", number, n.g.cast(zero, "f32"))
    return marked(n.g.reshape(stored(n.g, number, storage, bool(n.int("saturate", 1))), x.dims), storage)


@onnx_op("DequantizeLinear")
@onnx_op("DequantizeLinear", domain=MICROSOFT)
def dequantize_linear(n: Node, x: Value, scale: Value, zero: Value | None = None) -> Value:
    if x.dtype.name != "i32" and x.storage is None:
        _supported(n, x.dtype)
    dtype = n.element_type("output_dtype") or scale.dtype
    if x.storage is None:
        x = weights(n, x)
    parts, scale, zero = spread(n, x, scale, zero)
    number = n.g.op("mul", centred(n, parts, zero), fixed(n.g.cast(scale, "f32")))
    return n.g.cast(n.g.reshape(number, x.dims), dtype)


def spread(n: Node, x: Value, scale: Value, zero: Value | None) -> tuple[Value, Value, Value | None]:
    """`x`, its scale and its zero point as they broadcast: one for all, for each index of `axis`, or for each block of
    `block_size` along it. `x` may come under other dims, the axis split into blocks."""
    block = n.int("block_size", 0)
    if not block:
        axis = n.int("axis", 1)
        return x, along(n, scale, x, axis), None if zero is None else along(n, zero, x, axis)
    axis = n.axis(n.int("axis", 1), x.ndim)
    length = x.dims[axis]
    count = -(-length // block) if block > 0 else 0
    if scale.dims != (*x.dims[:axis], count, *x.dims[axis + 1 :]):
        n.fail(f"with blocks of {block} along axis {axis}, a scale of {scale.spec} does not fit {x.spec}")
    if length % block == 0:

        def split(value: Value, inner: int) -> Value:
            return n.g.reshape(value, (*x.dims[:axis], count, inner, *x.dims[axis + 1 :]))

        return split(x, block), split(scale, 1), None if zero is None else split(zero, 1)
    index = n.g.table((length,), "i64", lambda: np.arange(length) // block)
    scale = n.g.op("take", scale, index, axis=axis)
    return x, scale, None if zero is None else n.g.op("take", zero, index, axis=axis)


@onnx_op("DynamicQuantizeLinear")
def dynamic_quantize_linear(n: Node, x: Value) -> tuple[Value, Value, Value]:
    """To uint8, such that 0 and all of `x` are in the range."""
    g, axes = n.g, tuple(range(x.ndim))
    zero = g.scalar(0, "f32")
    low = g.op("minimum", g.reshape(g.op("reduce_min", x, axes=axes), ()), zero)
    high = g.op("maximum", g.reshape(g.op("reduce_max", x, axes=axes), ()), zero)
    scale = g.op("div", g.op("sub", high, low), g.scalar(255, "f32"))
    scale = g.op("where", g.op("equal", scale, zero), g.scalar(1, "f32"), scale)
    point = requantized(n, g.op("neg", g.op("div", low, scale)), None, BY_NAME["ui8"])
    return requantized(n, g.op("div", x, scale), point, BY_NAME["ui8"]), scale, point


# -- exact sums of products ------------------------------------------------------------------------------------------


def exact(left: Value, left_zero: Value | None, right: Value, right_zero: Value | None, depth: int, axes: Sequence[int],
          extra: float = 0) -> str:  # fmt: skip
    """The float type in which every sum of `depth` products is exact, beside numbers up to `extra`. Of a known `right`,
    the sums of magnitudes over `axes` bound it better."""
    most = span(left, left_zero)
    if right.is_known and is_zero(right_zero):
        wide = right.known.astype(np.int16 if right.dtype.size == 1 else np.int32)  # holds the lowest one's magnitude
        bound = most * int(np.abs(wide).sum(axis=tuple(axes), dtype=np.int64).max(initial=0))
    else:
        bound = depth * most * span(right, right_zero)
    return "f32" if bound + extra < EXACT else "f64"


def span(q: Value, zero: Value | None) -> int:
    """The largest magnitude of q - zero point."""
    low, high = (int(v) for v in q.dtype.limits)
    if is_zero(zero):
        return max(-low, high)
    if zero is not None and zero.is_known:
        points = zero.known.astype(np.int64)
        return max(int(points.max()) - low, high - int(points.min()))
    return high - low


def convolved(
    n: Node, x: Value, x_zero: Value | None, w: Value, w_zero: Value | None, bias: Value | None = None
) -> Value:
    """The exact sums of a convolution, as floats. Padding is by the zero point, so by 0 once `x` is centred."""
    if w.ndim < 3 or x.ndim != w.ndim:
        n.fail(f"a convolution of {x.spec} by {w.spec}: both should have one rank, of at least 3")
    for q in (x, w):
        _supported(n, q.dtype)
    extra = 0.0 if bias is None else float(np.abs(bias.known.astype(np.float64)).max()) if bias.is_known else EXACT
    depth = int(np.prod(w.dims[1:]))
    dtype = exact(x, x_zero, w, w_zero, depth, range(1, w.ndim), extra)
    point = None if x_zero is None else along(n, x_zero, x, 1)
    weight = centred(n, weights(n, w), None if w_zero is None else along(n, w_zero, w, 0), dtype)
    number = None if bias is None else n.g.cast(as_weights(n, bias), dtype)
    return standard(n, "Conv", centred(n, x, point, dtype), weight, number)


def multiplied(n: Node, a: Value, a_zero: Value | None, b: Value, b_zero: Value | None) -> Value:
    """The exact sums of a matrix product, as floats; zero points may be one for each row of `a`, each column of `b`."""
    for q in (a, b):
        _supported(n, q.dtype)
    depth = a.dims[-1] if a.ndim else 1
    dtype = exact(a, a_zero, b, b_zero, depth, (max(b.ndim - 2, 0),))
    left = centred(n, a, None if a_zero is None else rows(n, a_zero, a), dtype)
    right = centred(n, weights(n, b), None if b_zero is None else per_column(n, b_zero), dtype)
    return standard(n, "MatMul", left, right)


def rows(n: Node, value: Value, a: Value) -> Value:
    """A scale or zero point of the left factor: one for all, or for each of its rows."""
    if value.len == 1:
        return n.g.reshape(value, ())
    return n.g.reshape(value, (value.len, 1)) if value.ndim == 1 and a.ndim > 1 else value


def per_column(n: Node, value: Value) -> Value:
    """A scale or zero point of the right factor: one for all, or for each of its columns."""
    return n.g.reshape(value, ()) if value.len == 1 else value


def scaled(n: Node, sums: Value, *scales: Value, unit: Value | None = None) -> Value:
    """Exact sums times the product of their scales, in f32; divided by `unit`, the scale of what they become."""
    total = n.g.cast(scales[0], "f32")
    for scale in scales[1:]:
        total = n.g.op("mul", total, n.g.cast(scale, "f32"))
    if unit is not None:
        total = n.g.op("div", total, n.g.cast(unit, "f32"))
    return n.g.op("mul", n.g.cast(sums, "f32"), total)


@onnx_op("ConvInteger")
def conv_integer(n: Node, x: Value, w: Value, x_zero: Value | None = None, w_zero: Value | None = None) -> Value:
    return n.g.cast(convolved(n, x, x_zero, w, w_zero), "i32")


@onnx_op("MatMulInteger")
def matmul_integer(n: Node, a: Value, b: Value, a_zero: Value | None = None, b_zero: Value | None = None) -> Value:
    return n.g.cast(multiplied(n, a, a_zero, b, b_zero), "i32")


@onnx_op("QLinearConv")
def qlinear_conv(n: Node, x: Value, x_scale: Value, x_zero: Value, w: Value, w_scale: Value, w_zero: Value,
                 y_scale: Value, y_zero: Value, bias: Value | None = None) -> Value:  # fmt: skip
    """The bias is in units of x_scale * w_scale."""
    sums = convolved(n, x, x_zero, w, w_zero, bias)
    by_output = n.g.reshape(w_scale, (w_scale.len, *[1] * (sums.ndim - 2)) if w_scale.len > 1 else ())
    number = scaled(n, sums, n.g.reshape(x_scale, ()), by_output, unit=n.g.reshape(y_scale, ()))
    return requantized(n, number, n.g.reshape(y_zero, ()), _supported(n, y_zero.dtype))


@onnx_op("QLinearMatMul")
def qlinear_matmul(n: Node, a: Value, a_scale: Value, a_zero: Value, b: Value, b_scale: Value, b_zero: Value,
                   y_scale: Value, y_zero: Value) -> Value:  # fmt: skip
    sums = multiplied(n, a, a_zero, b, b_zero)
    number = scaled(n, sums, rows(n, a_scale, a), per_column(n, b_scale), unit=rows(n, y_scale, a))
    return requantized(n, number, rows(n, y_zero, a), _supported(n, y_zero.dtype))
