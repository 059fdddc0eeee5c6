"""Quantised ops of ONNX Runtime (domain com.microsoft), which its quantiser puts into models.

A quantised op without a sum of products is computed on the numbers that its integers stand for, and quantised again.
Source: the operator documentation of ONNX Runtime, ContribOperators.md. Imports the table of handlers.
"""

from __future__ import annotations

from lightnet.frontends.composites import concat, with_channels_first
from lightnet.frontends.graph import Value
from lightnet.frontends.onnx.model import MICROSOFT
from lightnet.frontends.onnx.node import Node, onnx_op
from lightnet.frontends.onnx.ops.quantized import (
    dequantized,
    dynamic_quantize_linear,
    multiplied,
    per_column,
    qlinear_conv,
    quantized,
    rows,
    scaled,
    standard,
)
from lightnet.frontends.onnx.ops.recurrent import lstm
from lightnet_ort.fusions import embed_layer_normalization


@onnx_op("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(n: Node, a: Value, b: Value, a_scale: Value, b_scale: Value, a_zero: Value | None = None,
                            b_zero: Value | None = None, bias: Value | None = None) -> Value:  # fmt: skip
    number = scaled(n, multiplied(n, a, a_zero, b, b_zero), rows(n, a_scale, a), per_column(n, b_scale))
    return number if bias is None else n.g.op("add", number, bias)


@onnx_op("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(n: Node, a: Value, b: Value, b_scale: Value, b_zero: Value | None = None,
                            bias: Value | None = None) -> Value:  # fmt: skip
    q, scale, zero = dynamic_quantize_linear(n, a)
    return matmul_integer_to_float(n, q, b, scale, b_scale, zero, b_zero, bias)


@onnx_op("QLinearAdd", "QLinearMul", domain=MICROSOFT)
def qlinear_binary(n: Node, a: Value, a_scale: Value, a_zero: Value | None, b: Value, b_scale: Value,
                   b_zero: Value | None, y_scale: Value, y_zero: Value | None = None) -> Value:  # fmt: skip
    left, right = dequantized(n, a, a_scale, a_zero), dequantized(n, b, b_scale, b_zero)
    number = n.g.op("add" if n.op_type == "QLinearAdd" else "mul", left, right)
    return quantized(n, number, y_scale, y_zero, a.dtype)


@onnx_op("QLinearConcat", domain=MICROSOFT)
def qlinear_concat(n: Node, y_scale: Value, y_zero: Value, *parts: Value) -> Value:
    """Tensors with scales and zero points of their own; those that have the result's are taken as they are."""
    if not parts or len(parts) % 3:
        n.fail("after the result's scale and zero point its inputs come in threes: tensor, scale, zero point")
    taken = []
    for q, scale, zero in zip(parts[::3], parts[1::3], parts[2::3]):
        same = _equal(scale, y_scale) and _equal(zero, y_zero)
        taken.append(q if same else quantized(n, dequantized(n, q, scale, zero), y_scale, y_zero, q.dtype))
    return concat(n.g, taken, n.axis(n.int("axis"), taken[0].ndim))


def _equal(a: Value, b: Value) -> bool:
    return a.is_known and b.is_known and a.len == b.len == 1 and a.known.item() == b.known.item()


#: Ops on one tensor, by the standard's op that is applied to the numbers.
ON_NUMBERS = {"QLinearSigmoid": "Sigmoid", "QLinearLeakyRelu": "LeakyRelu", "QLinearAveragePool": "AveragePool",
              "QLinearGlobalAveragePool": "GlobalAveragePool", "QLinearSoftmax": "Softmax"}  # fmt: skip


@onnx_op(*ON_NUMBERS, domain=MICROSOFT)
def qlinear_unary(n: Node, x: Value, x_scale: Value, x_zero: Value | None, y_scale: Value,
                  y_zero: Value | None = None) -> Value:  # fmt: skip
    # A softmax says itself of which version it is.
    opset = n.int("opset", None) if n.op_type == "QLinearSoftmax" else None

    def apply(x: Value) -> Value:
        number = standard(n, ON_NUMBERS[n.op_type], dequantized(n, x, x_scale, x_zero), opset=opset)
        return quantized(n, number, y_scale, y_zero, x.dtype)

    return with_channels_first(n.g, x, bool(n.int("channels_last", 0)), apply)


@onnx_op("QLinearWhere", domain=MICROSOFT)
def qlinear_where(n: Node, condition: Value, x: Value, x_scale: Value, x_zero: Value, y: Value, y_scale: Value,
                  y_zero: Value, z_scale: Value, z_zero: Value) -> Value:  # fmt: skip
    left, right = dequantized(n, x, x_scale, x_zero), dequantized(n, y, y_scale, y_zero)
    return quantized(n, n.g.op("where", condition, left, right), z_scale, z_zero, x.dtype)


@onnx_op("QLinearConv", domain=MICROSOFT)
def microsoft_qlinear_conv(n: Node, x: Value, x_scale: Value, x_zero: Value, w: Value, w_scale: Value, w_zero: Value,
                           y_scale: Value, y_zero: Value, bias: Value | None = None) -> Value:  # fmt: skip
    """The standard's, of pictures whose channels may be last."""
    rest = w, w_scale, w_zero, y_scale, y_zero, bias
    last = bool(n.int("channels_last", 0))
    return with_channels_first(n.g, x, last, lambda x: qlinear_conv(n, x, x_scale, x_zero, *rest))


@onnx_op("QGemm", domain=MICROSOFT)
def qgemm(n: Node, a: Value, a_scale: Value, a_zero: Value, b: Value, b_scale: Value, b_zero: Value,
          c: Value | None = None, y_scale: Value | None = None, y_zero: Value | None = None) -> Value:  # fmt: skip
    """alpha * A * B, plus C in units of alpha * a_scale * b_scale; floats where there is no y_scale."""
    left = n.g.transpose(a, (1, 0)) if n.int("transA", 0) else a
    right = n.g.transpose(b, (1, 0)) if n.int("transB", 0) else b
    sums = n.g.cast(multiplied(n, left, a_zero, right, b_zero), "f32")
    if c is not None:
        sums = n.g.op("add", sums, n.g.cast(c, "f32"))
    number = scaled(n, sums, a_scale, per_column(n, b_scale), n.g.scalar(n.float("alpha", 1.0), "f32"))
    return number if y_scale is None else quantized(n, number, y_scale, y_zero, a.dtype)


@onnx_op("QEmbedLayerNormalization", domain=MICROSOFT)
def qembed_layer_normalization(
    n: Node, ids: Value, segments: Value | None, words: Value, positions: Value, segment_table: Value | None,
    gamma: Value, beta: Value, mask: Value | None, words_scale: Value, positions_scale: Value,
    segments_scale: Value | None, gamma_scale: Value, beta_scale: Value, words_zero: Value, positions_zero: Value,
    segments_zero: Value | None, gamma_zero: Value, beta_zero: Value,
) -> list[Value | None]:  # fmt: skip
    """On tables that are quantised."""
    number = None
    if segment_table is not None and segments_scale is not None:
        number = dequantized(n, segment_table, segments_scale, segments_zero)
    return embed_layer_normalization(
        n, ids, segments, dequantized(n, words, words_scale, words_zero),
        dequantized(n, positions, positions_scale, positions_zero), number,
        dequantized(n, gamma, gamma_scale, gamma_zero), dequantized(n, beta, beta_scale, beta_zero), mask,
    )  # fmt: skip


@onnx_op("DynamicQuantizeLSTM", domain=MICROSOFT)
def dynamic_quantize_lstm(n: Node, x: Value, w: Value, r: Value, b: Value | None, lens: Value | None, h: Value | None,
                          c: Value | None, p: Value | None, w_scale: Value, w_zero: Value, r_scale: Value,
                          r_zero: Value) -> list[Value]:  # fmt: skip
    """The standard's, on weights [directions, I, 4 H] and [directions, H, 4 H] that are quantised by direction or by
    column of one. Inputs and states, which ONNX Runtime rounds to 8 bits at each step, are as they are."""
    g = n.g

    def weights(q: Value, scale: Value, zero: Value) -> Value:
        if q.ndim != 3 or scale.len not in (q.dims[0], q.dims[0] * q.dims[2]) or zero.len != scale.len:
            n.fail(f"scales {scale.spec} and zero points {zero.spec} do not fit weights {q.spec}")
        dims = (q.dims[0], 1, scale.len // q.dims[0])
        number = g.op("sub", g.cast(q, "f32"), g.cast(g.reshape(zero, dims), "f32"))
        return g.transpose(g.op("mul", number, g.reshape(scale, dims)), (0, 2, 1))

    return lstm(n, x, weights(w, w_scale, w_zero), weights(r, r_scale, r_zero), b, lens, h, c, p)
