"""Ops of ONNX Runtime (domain com.microsoft) on weights of some bits in blocks, as files of language models have them.

A weight is (q - zero point) * scale, where each block of an axis has a scale and a zero point. They are unpacked by
ops, which are computed when the network is loaded where the weights are constants. Source: the operator documentation
of ONNX Runtime, ContribOperators.md. Imports the composites and the table of handlers.
"""

from __future__ import annotations

import numpy as np

from lightnet.frontends.composites import cut, stack
from lightnet.frontends.graph import Value
from lightnet.frontends.onnx.model import MICROSOFT
from lightnet.frontends.onnx.node import Node, onnx_op
from lightnet.frontends.onnx.ops.indexing import take
from lightnet.frontends.onnx.ops.quantized import standard

BITS = (2, 4, 8)


@onnx_op("MatMulNBits", domain=MICROSOFT)
def matmul_nbits(n: Node, a: Value, b: Value, scales: Value, zeros: Value | None = None, groups: Value | None = None,
                 bias: Value | None = None) -> Value:  # fmt: skip
    """A times a matrix [K, N] of weights in blocks along K, plus a bias. `accuracy_level`, by which ONNX Runtime may
    round A to 8 bits, is not heeded: A is as it is."""
    g, depth, width = n.g, n.int("K"), n.int("N")
    bits, block = _packing(n)
    if n.int("weight_prepacked", 0):
        n.unsupported("weights that are packed for a device")
    count = -(-depth // block)
    blob = block * bits // 8
    if b.len != width * count * blob or scales.len != width * count:
        n.fail(
            f"weights {b.spec} and scales {scales.spec} are not a {depth} x {width} matrix of {bits} bits in blocks of "
            f"{block}"
        )
    number = g.cast(unpacked(n, g.reshape(b, (width, count, blob)), bits), "f32")
    scale = g.cast(g.reshape(scales, (width, count)), "f32")
    zero = _zero_points(n, zeros, bits, width, count)
    if groups is not None:  # each k says which block's scale it has
        number = g.reshape(number, (width, count * block))
        places = cut(g, groups, 0, 0, depth)
        number = cut(g, number, 1, 0, depth)
        scale = take(g, scale, places, 1)
        zero = zero if zero.len == 1 else take(g, zero, places, 1)
        weight = g.op("mul", g.op("sub", number, zero), scale)
    else:
        zero = zero if zero.len == 1 else g.reshape(zero, (width, count, 1))
        weight = g.op("mul", g.op("sub", number, zero), g.reshape(scale, (width, count, 1)))
        weight = cut(g, g.reshape(weight, (width, count * block)), 1, 0, depth)
    y = standard(n, "MatMul", a, g.cast(g.transpose(weight, (1, 0)), a.dtype))
    return y if bias is None else g.op("add", y, bias)


def _packing(n: Node) -> tuple[int, int]:
    bits, block = n.int("bits", 4), n.int("block_size")
    if bits not in BITS:
        n.unsupported(f"weights of {bits} bits (there are {', '.join(map(str, BITS))})")
    if block < 1 or block * bits % 8:
        n.fail(f"blocks of {block} weights of {bits} bits are no whole bytes")
    return bits, block


def unpacked(n: Node, x: Value, bits: int) -> Value:
    """Bytes as the integers that lie in them along the last axis, the lowest bits first."""
    g, each = n.g, 8 // bits
    if each == 1:
        return x
    mask = g.scalar((1 << bits) - 1, "ui8")
    parts = [g.op("bit_and", g.op("shift_right", x, g.scalar(k * bits, "ui8")) if k else x, mask) for k in range(each)]
    return g.reshape(stack(g, parts, x.ndim), (*x.dims[:-1], x.dims[-1] * each))


def _zero_points(n: Node, zeros: Value | None, bits: int, width: int, count: int) -> Value:
    """As [width, count] of f32 or, where there are none, the middle of the range: packed as the weights are, or
    floats."""
    g = n.g
    if zeros is None:
        return g.scalar(1 << (bits - 1), "f32")
    if zeros.dtype.is_float:
        return g.cast(g.reshape(zeros, (width, count)), "f32")
    row = -(-count * bits // 8)
    if zeros.len != width * row:
        n.fail(f"its zero points {zeros.spec} are not {width} x {count} of {bits} bits")
    return g.cast(cut(g, unpacked(n, g.reshape(zeros, (width, row)), bits), 1, 0, count), "f32")


#: What four bits stand for, as a part of the largest of their block: a float of four bits (`quant_type` 0), and
#: quantiles of a normal distribution (1; T. Dettmers and others, "QLoRA: efficient finetuning of quantized LLMs").
_FP4 = (0, 1 / 192, 2 / 3, 1, 1 / 3, 1 / 2, 1 / 6, 1 / 4)
FOUR_BITS = (
    (*_FP4, *(-v for v in _FP4)),
    (-1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
     -0.09105003625154495, 0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
     0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1),
)  # fmt: skip


@onnx_op("MatMulBnb4", domain=MICROSOFT)
def matmul_bnb4(n: Node, a: Value, b: Value, largest: Value) -> Value:
    """A times the transpose of a matrix [N, K] of numbers of four bits (`FOUR_BITS`), the high bits of a byte first,
    each times the largest of its block of the rows, one behind the other."""
    g, depth, width, block = n.g, n.int("K"), n.int("N"), n.int("block_size")
    kind = n.int("quant_type")
    if not n.int("transB", 1) or kind not in (0, 1) or block < 1:
        n.unsupported(f"transB = {n.int('transB', 1)}, quant_type = {kind}, block_size = {block}")
    count = depth * width
    if b.len != -(-count // 2) or largest.len != -(-count // block):
        n.fail(
            f"weights {b.spec} and absmax {largest.spec} are not a {depth} x {width} matrix of 4 bits in blocks of "
            f"{block}"
        )
    pairs = g.reshape(unpacked(n, g.reshape(b, (b.len, 1)), 4), (b.len, 2))
    code = g.reshape(stack(g, [cut(g, pairs, 1, k, 1) for k in (1, 0)], 1), (2 * b.len,))
    number = take(g, g.constant(np.array(FOUR_BITS[kind], np.float32)), g.cast(cut(g, code, 0, 0, count), "i64"), 0)
    blocks = g.table((count,), "i64", lambda: np.arange(count) // block)
    weight = g.op("mul", number, g.cast(take(g, g.reshape(largest, (largest.len,)), blocks, 0), "f32"))
    return standard(n, "MatMul", a, g.cast(g.transpose(g.reshape(weight, (width, depth)), (1, 0)), a.dtype))


@onnx_op("GatherBlockQuantized", domain=MICROSOFT)
def gather_block_quantized(n: Node, data: Value, index: Value, scales: Value, zeros: Value | None = None) -> Value:
    """Slices of quantised data along an axis, as floats. Of bytes the last axis is packed."""
    g = n.g
    bits, block = n.int("bits", 4), n.int("block_size", 128)
    packed = data.dtype.name == "ui8" and bits < 8
    if bits not in BITS:
        n.unsupported(f"data of {bits} bits")
    if packed:
        data = unpacked(n, data, bits)
    axis, along = n.axis(n.int("gather_axis", 0), data.ndim), n.axis(n.int("quantize_axis", 1), data.ndim)
    length = data.dims[along]
    count = -(-length // block)
    if scales.dims != (*data.dims[:along], count, *data.dims[along + 1 :]):
        n.fail(f"scales {scales.spec} do not fit data {data.spec} in blocks of {block} along axis {along}")
    if zeros is not None and packed:
        zeros = cut(g, unpacked(n, zeros, bits), zeros.ndim - 1, 0, scales.dims[-1])
    blocks = g.table((length,), "i64", lambda: np.arange(length) // block)
    if zeros is None:
        middle = 1 << (bits - 1) if data.dtype.name == "ui8" else 0
        zero = g.scalar(middle, "f32")
    else:
        zero = g.cast(take(g, take(g, zeros, blocks, along), index, axis), "f32")
    scale = take(g, take(g, scales, blocks, along), index, axis)
    number = g.op("sub", g.cast(take(g, data, index, axis), "f32"), zero)
    return g.cast(g.op("mul", number, g.cast(scale, "f32")), scales.dtype)
