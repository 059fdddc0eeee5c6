"""Float ops of ONNX Runtime (domain com.microsoft): what its optimiser fuses, and what it has under a name of its own.

Source: the operator documentation of ONNX Runtime, ContribOperators.md. Imports the composites and the table of
handlers.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from lightnet.frontends.composites import cut, swap_last, with_channels_first
from lightnet.frontends.graph import Value
from lightnet.frontends.onnx.model import MICROSOFT
from lightnet.frontends.onnx.node import Node, onnx_op
from lightnet.frontends.onnx.ops.indexing import take
from lightnet.frontends.onnx.ops.quantized import standard

# -- products and convolutions under an activation ---------------------------------------------------------------------


@onnx_op("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_matmul(n: Node, a: Value, b: Value) -> Value:
    """alpha * A * B. transA exchanges the last two axes of A; transBatchA moves its first axis to the place before the
    last (so that with both, the first axis is the last one)."""
    left, right = (_turned(n, v, which) for v, which in ((a, "A"), (b, "B")))
    product = standard(n, "MatMul", left, right)
    alpha = n.float("alpha", 1.0)
    return product if alpha == 1 else n.g.op("mul", product, n.g.scalar(alpha, product.dtype))


def _turned(n: Node, x: Value, which: str) -> Value:
    if n.int(f"transBatch{which}", 0) and x.ndim > 2:
        x = n.g.transpose(x, (*range(1, x.ndim - 1), 0, x.ndim - 1))
    return swap_last(n.g, x) if n.int(f"trans{which}", 0) else x


@onnx_op("FusedGemm", domain=MICROSOFT)
def fused_gemm(n: Node, a: Value, b: Value, c: Value | None = None) -> Value:
    """alpha * A * B + beta * C, under an activation."""
    given = [n.float(f"activation_{k}") for k in ("alpha", "beta", "gamma") if n.has(f"activation_{k}")]
    return _activated(n, standard(n, "Gemm", a, b, c), n.string("activation", ""), given)


@onnx_op("FusedConv", domain=MICROSOFT)
def fused_conv(n: Node, x: Value, w: Value, bias: Value | None = None, added: Value | None = None) -> Value:
    """A convolution, plus a tensor of the result's shape, under an activation."""
    y = standard(n, "Conv", x, w, bias)
    if added is not None:
        y = n.g.op("add", y, added)
    return _activated(n, y, n.string("activation", ""), n.floats("activation_params", ()))


@onnx_op("NhwcFusedConv", domain=MICROSOFT)
def nhwc_fused_conv(n: Node, x: Value, w: Value, bias: Value | None = None, added: Value | None = None) -> Value:
    """`FusedConv` of [N, ..., C], which the tensor that is added is, too; weights are [M, C / group, ...]."""
    g, ndim = n.g, x.ndim
    if ndim < 3:
        n.fail(f"its input should be [N, ..., C] with one spatial axis or more, but is {x.spec}")
    added = None if added is None else g.transpose(added, (0, ndim - 1, *range(1, ndim - 1)))
    return with_channels_first(g, x, True, lambda x: fused_conv(n, x, w, bias, added))


def _activated(n: Node, y: Value, name: str, params: Sequence[float]) -> Value:
    plain = {"Relu": "relu", "Tanh": "tanh", "Sigmoid": "sigmoid", "Softsign": "softsign"}
    if not name:
        return y
    if name in plain:
        return n.g.op(plain[name], y)
    if name == "LeakyRelu":
        return n.g.op("lrelu", y, negslope=params[0] if params else 0.01)
    if name == "Elu":
        return n.g.op("elu", y, **dict(zip(("alpha",), params)))
    if name == "HardSigmoid":
        return n.g.op("hard_sigmoid", y, **dict(zip(("alpha", "beta"), params)))
    if name == "Clip" and len(params) == 2:
        return n.g.op("clip", y, lo=params[0], hi=params[1])
    return n.unsupported(f"the activation {name} {list(params)}")


# -- activations -------------------------------------------------------------------------------------------------------


@onnx_op("BiasGelu", domain=MICROSOFT)
def bias_gelu(n: Node, x: Value, bias: Value) -> Value:
    return n.g.op("gelu", n.g.op("add", x, bias))


@onnx_op("FastGelu", domain=MICROSOFT)
def fast_gelu(n: Node, x: Value, bias: Value | None = None) -> Value:
    return n.g.op("gelu", x if bias is None else n.g.op("add", x, bias), approximate="tanh")


@onnx_op("QuickGelu", domain=MICROSOFT)
def quick_gelu(n: Node, x: Value) -> Value:
    """x * sigmoid(alpha * x)."""
    return n.g.op("silu", x, beta=n.float("alpha", 1.702))


@onnx_op("BiasSplitGelu", domain=MICROSOFT)
def bias_split_gelu(n: Node, x: Value, bias: Value) -> Value:
    """Of x + bias, the first half times the gelu of the second."""
    number = n.g.op("add", x, bias)
    half = x.dims[-1] // 2
    left, right = (cut(n.g, number, x.ndim - 1, k * half, half) for k in (0, 1))
    return n.g.op("mul", left, n.g.op("gelu", right))


@onnx_op("BiasAdd", domain=MICROSOFT)
def bias_add(n: Node, x: Value, bias: Value, skip: Value) -> Value:
    return n.g.op("add", n.g.op("add", x, bias), skip)


@onnx_op("BiasSoftmax", domain=MICROSOFT)
def bias_softmax(n: Node, x: Value, bias: Value) -> Value:
    """Softmax of x + bias over all axes from `axis` on. The bias lacks axes of x: those before `axis` (an inner
    broadcast has them as axes of length 1), and is repeated along them."""
    g, axis = n.g, n.axis(n.int("axis", 1), x.ndim)
    number = g.op("add", x, bias)
    flat = g.reshape(number, (prod(x.dims[:axis]), prod(x.dims[axis:])))
    return g.reshape(g.op("softmax", flat, axis=1), x.dims)


#: Ops that the standard has, too, in the opset whose form ONNX Runtime's has.
LIKE_THE_STANDARD = {"Gelu": 20, "Trilu": 14, "Range": 11, "GatherND": 12, "Pad": 11, "GridSample": 16}


@onnx_op(*LIKE_THE_STANDARD, domain=MICROSOFT)
def like_the_standard(n: Node, *inputs: Value | None) -> Value:
    return standard(n, n.op_type, *inputs, opset=LIKE_THE_STANDARD[n.op_type])


@onnx_op("ExpandDims", domain=MICROSOFT)
def expand_dims(n: Node, x: Value, axis: Value) -> Value:
    return standard(n, "Unsqueeze", x, n.g.reshape(axis, (1,)), opset=13)


@onnx_op("NhwcMaxPool", domain=MICROSOFT)
def nhwc_max_pool(n: Node, x: Value) -> Value:
    """Of [N, ..., C]."""
    return with_channels_first(n.g, x, True, lambda x: standard(n, "MaxPool", x, opset=12)[0])


# -- matrices ----------------------------------------------------------------------------------------------------------

#: The longest side of a matrix that is inverted at run time: it takes some ten ops for each row.
LARGEST_INVERSE = 16


@onnx_op("Inverse", domain=MICROSOFT)
def inverse(n: Node, x: Value) -> Value:
    """Of matrices [..., R, R]: of constants with NumPy, of others by elimination on [x, 1] until it is [1, x^-1], the
    largest of what is left of a column being the pivot (Golub and Van Loan, Matrix Computations, 3.4). Of one that has
    no inverse the elements are not finite."""
    g, dtype = n.g, x.dtype
    if x.ndim < 2 or x.dims[-1] != x.dims[-2]:
        n.fail(f"needs square matrices, got {x.spec}")
    size = x.dims[-1]
    if not 1 <= size <= LARGEST_INVERSE:
        n.unsupported(f"the inverse of a {size} x {size} matrix (at most {LARGEST_INVERSE} rows)")
    wide = g.cast(g.reshape(x, (prod(x.dims[:-2]), size, size)), "f64" if dtype.name == "f64" else "f32")
    one = g.table((1, size, size), wide.dtype.name, lambda: np.eye(size)[None].astype(wide.dtype.np))
    rows = g.op("concat", wide, g.op("expand", one, dims=wide.dims), axis=2)
    number = g.table((1, size, 1), "i64", lambda: np.arange(size).reshape(1, size, 1))
    zero = g.scalar(0, wide.dtype)
    for k in range(size):
        column = cut(g, cut(g, rows, 2, k, 1), 1, k, size - k)
        place = g.reshape(g.cast(g.op("argmax", g.op("abs", column), axis=1), "i64"), (wide.dims[0], 1, 1))
        pivot = g.op("add", place, g.scalar(k, "i64"))
        is_pivot, is_row = g.op("equal", number, pivot), g.op("equal", number, g.scalar(k, "i64"))
        chosen = g.op("reduce_sum", g.op("where", is_pivot, rows, zero), axes=(1,))
        rows = g.op("where", is_pivot, cut(g, rows, 1, k, 1), rows)  # which the pivot's row changes places with
        chosen = g.reshape(chosen, (wide.dims[0], 1, 2 * size))
        chosen = g.op("div", chosen, cut(g, chosen, 2, k, 1))
        reduced = g.op("sub", rows, g.op("mul", cut(g, rows, 2, k, 1), chosen))
        rows = g.op("where", is_row, chosen, reduced)
    return g.cast(g.reshape(cut(g, rows, 2, size, size), x.dims), dtype)


@onnx_op("CDist", domain=MICROSOFT)
def cdist(n: Node, a: Value, b: Value) -> Value:
    """The distances [M, K] of rows [M, N] and [K, N]."""
    g, metric = n.g, n.string("metric", "sqeuclidean")
    if metric not in ("sqeuclidean", "euclidean"):
        n.unsupported(f"the metric {metric} (there are sqeuclidean, euclidean)")
    if a.ndim != 2 or b.ndim != 2 or a.dims[1] != b.dims[1]:
        n.fail(f"its inputs should be matrices of rows of one length, but are {a.spec} and {b.spec}")
    apart = g.op("sub", g.reshape(a, (a.dims[0], 1, a.dims[1])), g.reshape(b, (1, *b.dims)))
    total = g.reshape(g.op("reduce_sum", g.op("mul", apart, apart), axes=(2,)), (a.dims[0], b.dims[0]))
    return g.op("sqrt", total) if metric == "euclidean" else total


# -- normalisation -----------------------------------------------------------------------------------------------------


@onnx_op("SimplifiedLayerNormalization")
@onnx_op("SimplifiedLayerNormalization", domain=MICROSOFT)
def simplified_layer_normalization(n: Node, x: Value, scale: Value) -> list[Value | None]:
    """By the root of the mean square of the axes from `axis` on. ONNX Runtime has it in the standard's domain."""
    axis = n.axis(n.int("axis", -1), x.ndim)
    return [_rms(n, x, scale, axis), None]


def _rms(n: Node, x: Value, scale: Value, axis: int) -> Value:
    y = n.g.op("rmsnorm", x, axis=axis, epsilon=n.float("epsilon", 1e-5))
    return n.g.op("mul", y, n.g.cast(scale, y.dtype))


@onnx_op("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_normalization(n: Node, x: Value, skip: Value, gamma: Value, beta: Value | None = None,
                             bias: Value | None = None) -> list[Value | None]:  # fmt: skip
    """The normalised rows of x + skip + bias, and that sum."""
    total = _sum(n, x, skip, bias)
    y = n.g.op("layernorm", total, axis=total.ndim - 1, epsilon=n.float("epsilon", 1e-12))
    return [_affine(n, y, gamma, beta), None, None, total]


@onnx_op("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_simplified_layer_normalization(n: Node, x: Value, skip: Value, gamma: Value,
                                        bias: Value | None = None) -> list[Value | None]:  # fmt: skip
    """The rows of x + skip + bias by the root of their mean square, and that sum."""
    total = _sum(n, x, skip, bias)
    return [_rms(n, total, gamma, total.ndim - 1), None, None, total]


def _sum(n: Node, x: Value, skip: Value, bias: Value | None) -> Value:
    total = n.g.op("add", x, skip)
    if total.dims != x.dims:
        n.fail(f"its skip {skip.spec} should broadcast to its input {x.spec}")
    return total if bias is None else n.g.op("add", total, bias)


def _affine(n: Node, y: Value, gamma: Value, beta: Value | None) -> Value:
    y = n.g.op("mul", y, gamma)
    return y if beta is None else n.g.op("add", y, beta)


@onnx_op("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_normalization(n: Node, ids: Value, segments: Value | None, words: Value, positions: Value,
                              segment_table: Value | None, gamma: Value, beta: Value, mask: Value | None = None,
                              position_ids: Value | None = None) -> list[Value | None]:  # fmt: skip
    """The normalised sum of a word's, its position's and its segment's rows; the number of ones in each row of the
    mask; and that sum."""
    g = n.g
    if ids.ndim != 2:
        n.fail(f"its word ids should be [batch, length], but are {ids.spec}")
    if (segments is None) != (segment_table is None):
        n.fail("segment ids and their table belong together")
    length = ids.dims[1]
    if position_ids is not None:
        place = take(g, positions, position_ids, 0)
    elif length <= positions.dims[0]:
        place = cut(g, positions, 0, 0, length)
    else:
        n.fail(f"it has {length} positions, and its table {positions.dims[0]}")
    total = g.op("add", take(g, words, ids, 0), place)
    if segments is not None and segment_table is not None:
        total = g.op("add", total, take(g, segment_table, segments, 0))
    y = g.op("layernorm", total, axis=2, epsilon=n.float("epsilon", 1e-12))
    return [_affine(n, y, gamma, beta), _counts(n, ids, mask), total]


def _counts(n: Node, ids: Value, mask: Value | None) -> Value:
    g = n.g
    if mask is None:
        return g.table(ids.dims[:1], "i32", lambda: np.zeros(ids.dims[0], np.int32))
    ones = g.cast(g.op("equal", mask, g.scalar(1, mask.dtype)), "i32")
    return g.reshape(g.op("reduce_sum", ones, axes=(1,)), ids.dims[:1])


@onnx_op("GroupNorm", domain=MICROSOFT)
def group_norm(n: Node, x: Value, gamma: Value, beta: Value) -> Value:
    """Of each group of channels, under no activation or silu; channels are last unless `channels_last` says
    otherwise."""
    g = n.g
    if x.ndim < 3:
        n.fail(f"its input should be a batch of pictures, but is {x.spec}")

    def apply(x: Value) -> Value:
        groups, channels = n.int("groups"), x.dims[1]
        if groups < 1 or channels % groups:
            n.fail(f"{channels} channels are not {groups} groups")
        y = g.reshape(x, (x.dims[0], groups, channels // groups * prod(x.dims[2:])))
        y = g.reshape(g.op("layernorm", y, axis=2, epsilon=n.float("epsilon", 1e-5)), x.dims)
        vectors = (g.reshape(g.cast(v, x.dtype), (channels, *[1] * (x.ndim - 2))) for v in (gamma, beta))
        y = _affine(n, y, *vectors)
        return g.op("silu", y) if n.int("activation") else y

    return with_channels_first(g, x, bool(n.int("channels_last", 1)), apply)


@onnx_op("SkipGroupNorm", domain=MICROSOFT)
def skip_group_norm(
    n: Node, x: Value, gamma: Value, beta: Value, skip: Value, bias: Value | None = None
) -> list[Value]:
    """`group_norm` of x + skip + bias, and that sum. A skip of one pixel, [N, C], is for all of them."""
    g, last = n.g, bool(n.int("channels_last", 1))
    if skip.ndim == 2:
        ones = [1] * (x.ndim - 2)
        dims = (skip.dims[0], *ones, skip.dims[1]) if last else (*skip.dims, *ones)
        skip = g.reshape(skip, dims)
    total = g.op("add", x, skip)
    if bias is not None:
        total = g.op("add", total, g.reshape(bias, (bias.len, *[1] * (0 if last else x.ndim - 2))))
    return [group_norm(n, total, gamma, beta), total]
