"""Attention of ONNX Runtime (domain com.microsoft): with the projections inside, over given keys and values, over
grouped heads.

All compute softmax(scale * Q K^T + bias) V head by head, on [batch, heads, length, size]. A place that a mask hides
gets `mask_filter_value` added; one that a causal mask hides gets the lowest float, so that it stays hidden in a row
that is padding throughout. Source: the operator documentation of ONNX Runtime, ContribOperators.md, and what its CPU
kernels do. Imports the composites and the table of handlers.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from lightnet.frontends.composites import concat, cut, cut_up, element_at, expand, full, positions_along, stack
from lightnet.frontends.graph import Value
from lightnet.frontends.onnx.model import MICROSOFT
from lightnet.frontends.onnx.node import Node, onnx_op
from lightnet.frontends.onnx.ops.attention import MAX_MASK, capped, grouped_product, joined_heads, split_heads
from lightnet.frontends.onnx.ops.indexing import take
from lightnet.frontends.onnx.ops.quantized import multiplied, per_column, scaled, standard

# -- projections inside ------------------------------------------------------------------------------------------------


@onnx_op("Attention", domain=MICROSOFT)
def attention(n: Node, x: Value, weights: Value, bias: Value | None = None, mask: Value | None = None,
              past: Value | None = None,
              added: Value | None = None, past_length: Value | None = None) -> list[Value]:  # fmt: skip
    """Self-attention of x * weights + bias, which are Q, K and V side by side; and the present keys and values."""
    if x.ndim != 3 or weights.ndim != 2:
        n.fail(
            f"its input should be [batch, length, size] and its weights a matrix, but they are {x.spec} and "
            f"{weights.spec}"
        )
    _without(n, "do_rotary", "past_present_share_buffer")
    if past_length is not None:
        n.unsupported("a past of which a part counts")
    number = standard(n, "MatMul", x, weights)
    if bias is not None:
        number = n.g.op("add", number, bias)
    sizes = n.ints("qkv_hidden_sizes", (weights.dims[1] // 3,) * 3)
    return _of_projections(n, number, sizes, mask, past, added)


@onnx_op("QAttention", domain=MICROSOFT)
def quantized_attention(n: Node, x: Value, weights: Value, bias: Value, x_scale: Value, w_scale: Value,
                        mask: Value | None = None, x_zero: Value | None = None, w_zero: Value | None = None,
                        past: Value | None = None) -> list[Value]:  # fmt: skip
    """`attention`, of which the projections are a product of 8-bit integers."""
    _without(n, "do_rotary", "past_present_share_buffer")
    number = scaled(n, multiplied(n, x, x_zero, weights, w_zero), n.g.reshape(x_scale, ()), per_column(n, w_scale))
    return _of_projections(n, n.g.op("add", number, bias), (weights.dims[1] // 3,) * 3, mask, past, None)


def _without(n: Node, *flags: str) -> None:
    for flag in flags:
        if n.int(flag, 0):
            n.unsupported(f"{n.op_type} with {flag}")


def _of_projections(n: Node, number: Value, sizes: tuple[int, ...], mask: Value | None, past: Value | None,
                    added: Value | None) -> list[Value]:  # fmt: skip
    g, heads = n.g, n.int("num_heads")
    if len(sizes) != 3 or sum(sizes) != number.dims[2] or any(s < 1 for s in sizes):
        n.fail(f"{number.dims[2]} columns of weights are not Q, K and V of {list(sizes)}")
    q, k, v = (_split(n, x, heads) for x in cut_up(g, number, 2, sizes))
    length = 0
    if past is not None:
        if past.ndim != 5 or past.dims[0] != 2:
            n.fail(f"its past should be [2, batch, heads, length, size], but is {past.spec}")
        length = past.dims[3]
        k, v = (concat(g, [element_at(g, past, 0, at), new], 2) for at, new in enumerate((k, v)))
    y, _ = _attended(n, q, k, v, [_seen(n, q, k, mask, length), added])
    return [y, stack(g, [k, v], 0)] if n.wants(1) else [y]


def _split(n: Node, x: Value, heads: int) -> Value:
    if heads < 1 or x.ndim != 3 or x.dims[2] % heads:
        n.fail(f"{x.spec} should be [batch, length, elements of {heads} heads]")
    return split_heads(n.g, x, heads)


def _attended(
    n: Node, q: Value, k: Value, v: Value, biases: list[Value | None], sink: Value | None = None
) -> tuple[Value, Value]:
    """The attention as [batch, length, heads * size], and its scores before the softmax. `sink` is a further score of
    each head, under which nothing lies."""
    g, (batch, heads, rows, size) = n.g, q.dims
    groups = k.dims[1]
    if not groups or heads % groups or v.dims[1] != groups or k.dims[3] != size or k.dims[2] != v.dims[2]:
        n.fail(f"heads of Q {q.spec}, K {k.spec} and V {v.spec} do not fit")
    scale = n.float("scale", 0.0) or 1 / sqrt(size)
    scores = grouped_product(g, q, g.transpose(k, (0, 1, 3, 2)))
    scores = capped(g, g.op("mul", scores, g.scalar(scale, scores.dtype)), n.float("softcap", 0.0))
    for bias in biases:
        scores = scores if bias is None else g.op("add", scores, g.cast(bias, scores.dtype))
    if sink is None:
        weights = g.op("softmax", scores, axis=3)
    else:
        one = g.cast(expand(g, g.reshape(sink, (1, sink.len, 1, 1)), (batch, heads, rows, 1)), scores.dtype)
        wide = g.op("softmax", concat(g, [scores, one], 3), axis=3)
        weights = cut(g, wide, 3, 0, scores.dims[3])
    return joined_heads(g, grouped_product(g, weights, v)), scores


# -- what may be seen --------------------------------------------------------------------------------------------------


def _seen(n: Node, q: Value, k: Value, mask: Value | None, past: int) -> Value | None:
    """The bias that is added for padding and, with `unidirectional`, for later keys."""
    g, rows, total = n.g, q.dims[2], k.dims[2]
    hidden = None if mask is None else _padding(n, q.dims[0], rows, total, mask)
    if not n.int("unidirectional", 0):
        return hidden
    low = q.dtype.limits[0]
    later = g.table((rows, total), q.dtype, lambda: np.triu(np.full((rows, total), low), past + 1))
    return later if hidden is None else g.op("minimum", g.cast(hidden, q.dtype), later)


def _padding(n: Node, batch: int, rows: int, total: int, mask: Value) -> Value:
    """0 where a key may be seen, else `mask_filter_value`, as it broadcasts with [batch, heads, rows, total]. The mask
    is one of: [batch, total] or [batch, rows, total], not positive for padding; [batch], the first key that is padding;
    [2 * batch], these and the first that is not."""
    g = n.g
    at = positions_along(g, total, 3, 4, mask.dtype)
    if mask.dims == (batch, total):
        seen = g.op("less", g.scalar(0, mask.dtype), g.reshape(mask, (batch, 1, 1, total)))
    elif mask.dims == (batch, rows, total):
        seen = g.op("less", g.scalar(0, mask.dtype), g.reshape(mask, (batch, 1, rows, total)))
    elif mask.dims == (batch,):
        seen = g.op("less", at, g.reshape(mask, (batch, 1, 1, 1)))
    elif mask.dims == (2 * batch,):
        end, start = (g.reshape(cut(g, mask, 0, k * batch, batch), (batch, 1, 1, 1)) for k in (0, 1))
        seen = g.op("bit_and", g.op("less", at, end), g.op("less_equal", start, at))
    else:
        n.unsupported(f"a mask {mask.spec} of {batch} x {rows} x {total} scores")
    return g.op("where", seen, g.scalar(0, "f32"), g.scalar(n.float("mask_filter_value", -10000.0), "f32"))


# -- given queries, keys and values ------------------------------------------------------------------------------------


@onnx_op("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(n: Node, q: Value, k: Value | None = None, v: Value | None = None, bias: Value | None = None,
                         mask: Value | None = None, added: Value | None = None, past_k: Value | None = None,
                         past_v: Value | None = None, past_length: Value | None = None,
                         beams: Value | None = None) -> list[Value | None]:  # fmt: skip
    """Of projections without their bias; the outputs behind Y are the present keys and values, and the softmax's
    scores.

    Q is [B, S, H * D], and K and V are [B, L, H * D], or [B, H, L, D] (which have their bias); or Q is all three, [B,
    S, H, 3, D], or K both of its, [B, L, H, 2, D].
    """
    g, heads = n.g, n.int("num_heads")
    if past_length is not None or beams is not None:
        n.unsupported("a past of which a part counts, or of beams")
    if q.ndim == 5:
        q, k, v = (_part(n, q, at) for at in range(3))
    elif k is not None and k.ndim == 5:
        k, v = (_part(n, k, at) for at in range(2))
    if k is None or v is None:
        n.fail("it needs keys and values: inputs 1 and 2, or in its queries")
    if bias is not None:
        widths = [x.dims[1] * x.dims[3] if x.ndim == 4 else x.dims[2] for x in (q, k, v)]
        if bias.dims != (sum(widths),):
            n.fail(f"its bias should have {sum(widths)} elements, but is {bias.spec}")
        starts = (0, widths[0], widths[0] + widths[1])
        q, k, v = (x if x.ndim == 4 else g.op("add", x, cut(g, bias, 0, at, width))
                   for x, at, width in zip((q, k, v), starts, widths))  # fmt: skip
    q, k, v = (x if x.ndim == 4 else _split(n, x, heads) for x in (q, k, v))
    length = 0
    if past_k is not None and past_v is not None:
        length = past_k.dims[2]
        k, v = concat(g, [past_k, k], 2), concat(g, [past_v, v], 2)
    y, scores = _attended(n, q, k, v, [_seen(n, q, k, mask, length), added])
    return [y, k, v, scores]


def _part(n: Node, packed: Value, index: int) -> Value:
    """One of those that stand beside each other in [B, S, H, 2 or 3, D], as [B, S, H * D]."""
    x = element_at(n.g, packed, 3, index)
    return n.g.reshape(x, (*x.dims[:2], x.dims[2] * x.dims[3]))


# -- grouped heads and a cache -----------------------------------------------------------------------------------------


@onnx_op("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(n: Node, q: Value, k: Value | None, v: Value | None, past_k: Value | None,
                          past_v: Value | None, lengths: Value, total: Value, cosines: Value | None = None,
                          sines: Value | None = None, position_ids: Value | None = None, added: Value | None = None,
                          sink: Value | None = None, *rest: Value | None) -> list[Value | None]:  # fmt: skip
    """Causal attention whose K and V have fewer heads, behind those of a cache: `lengths` are the keys of each batch
    entry less one, the new ones with them; `total` is the most that there are. The outputs behind Y are the cache with
    the new keys and values.
    """
    g, heads, groups = n.g, n.int("num_heads"), n.int("kv_num_heads")
    if any(x is not None for x in rest):
        n.unsupported("GroupQueryAttention with a quantised cache, norms of Q and K, or lengths of queries")
    _without(n, "sliding_window_cache", "qk_output")
    if k is None or v is None:
        size = q.dims[2] // (heads + 2 * groups)
        q, k, v = cut_up(g, q, 2, (heads * size, groups * size, groups * size))
    q, k, v = _split(n, q, heads), _split(n, k, groups), _split(n, v, groups)
    batch, rows = q.dims[0], q.dims[2]
    most = n.need_ints(total, "the number of keys (total_sequence_length)")[0]
    lengths = g.reshape(g.cast(lengths, "i64"), (lengths.len, 1, 1, 1))
    # All new keys come first where there are no others; then a batch entry's may end before the last row.
    first = rows == most or past_k is None
    start = full(g, (1,) * 4, 0, "i64") if first else g.op("sub", lengths, g.scalar(rows - 1, "i64"))
    if n.int("do_rotary", 0):
        if cosines is None or sines is None:
            n.fail("with do_rotary it needs tables of cosines and sines")
        if position_ids is None:
            begin = expand(g, g.reshape(start, (start.len, 1)), (batch, 1))
            position_ids = g.op("add", begin, positions_along(g, rows, 1, 2))
        elif first:  # then the first one says where all begin
            begin = cut(g, g.reshape(position_ids, (position_ids.len,)), 0, 0, 1)
            position_ids = g.op("add", g.reshape(begin, (1, 1)), positions_along(g, rows, 1, 2))
            position_ids = expand(g, position_ids, (batch, rows))
        q, k = (rotated(n, x, position_ids, cosines, sines, bool(n.int("rotary_interleaved", 0))) for x in (q, k))
    k, v = (_kept(n, new, past, start, most) for new, past in ((k, past_k), (v, past_v)))
    seen = _earlier(n, start, rows, k.dims[2])
    if sink is None and n.int("smooth_softmax", 0):
        sink = g.table((heads,), q.dtype, lambda: np.zeros(heads))
    if added is not None and added.dims[3] < k.dims[2]:
        added = g.op("pad", added, before=(0,) * 4, after=(0, 0, 0, k.dims[2] - added.dims[3]), value=0.0)
    y, _ = _attended(n, q, k, v, [added, seen], sink)
    return [y, k, v, None]


def _kept(n: Node, new: Value, past: Value | None, start: Value, most: int) -> Value:
    """A cache [B, G, most, D] with the new keys from `start` on; zeros behind them."""
    g, (batch, groups, rows, size) = n.g, new.dims
    length = max(most, 0 if past is None else past.dims[2])
    if past is None and length == rows:
        return new
    g.bounded(batch * groups * length * size, "a cache of keys")
    places = g.op("add", start, positions_along(g, rows, 2, 4))
    if past is None:
        past = expand(g, g.scalar(0, new.dtype), (batch, groups, length, size))
    elif past.dims[2] < length:
        past = g.op("pad", past, before=(0,) * 4, after=(0, 0, length - past.dims[2], 0), value=0.0)
    return g.op("scatter_elements", past, expand(g, places, new.dims), new, axis=2)


def _earlier(n: Node, start: Value, rows: int, total: int) -> Value | None:
    """The bias that is added for keys behind a row's own, which is at `start` plus its number, and before its
    window.
    """
    g, window = n.g, n.int("local_window_size", -1)
    if not n.int("causal", 1):
        return None
    if rows * total > MAX_MASK:
        n.unsupported(f"a mask of {rows} x {total} elements")
    column, row = positions_along(g, total, 3, 4), g.op("add", start, positions_along(g, rows, 2, 4))
    seen = g.op("less_equal", column, row)
    if window > 0:
        seen = g.op("bit_and", seen, g.op("less", g.op("sub", row, g.scalar(window, "i64")), column))
    return g.op("where", seen, g.scalar(0, "f32"), g.scalar(-np.inf, "f32"))


# -- rotary positions --------------------------------------------------------------------------------------------------


@onnx_op("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(n: Node, x: Value, position_ids: Value, cosines: Value, sines: Value) -> Value:
    """Pairs of a head's elements turned by angles that grow with the position; one position is that of the first."""
    g = n.g
    _without(n, "is_packed_batching")
    size, flat = n.int("rotary_embedding_dim", 0), x.ndim == 3
    if flat:
        x = _split(n, x, n.int("num_heads", 0) if size else x.dims[2] // (2 * cosines.dims[1]))
    batch, _, rows, _ = x.dims
    if position_ids.len == 1:
        position_ids = g.op("add", g.reshape(g.cast(position_ids, "i64"), (1, 1)), positions_along(g, rows, 1, 2))
    position_ids = expand(g, position_ids, (batch, rows))
    y = rotated(n, x, position_ids, cosines, sines, bool(n.int("interleaved", 0)))
    return joined_heads(g, y) if flat else y


def rotated(n: Node, x: Value, position_ids: Value, cosines: Value, sines: Value, interleaved: bool) -> Value:
    """[B, H, S, D] with the pairs (a, b) of each head as (a cos - b sin, b cos + a sin): of neighbours where they are
    interleaved, else of the halves. Only the first 2 * cosines.dims[1] elements are turned."""
    g, (batch, heads, rows, size) = n.g, x.dims
    half = cosines.dims[1]
    if cosines.ndim != 2 or cosines.dims != sines.dims or not 2 * half <= size:
        n.fail(f"tables of cosines {cosines.spec} and sines {sines.spec} do not fit heads of {size}")
    cos, sin = (g.reshape(take(g, t, position_ids, 0), (batch, 1, rows, half)) for t in (cosines, sines))
    turning = cut(g, x, 3, 0, 2 * half)
    axis = 4 if interleaved else 3
    pairs = g.reshape(turning, (batch, heads, rows, *((half, 2) if interleaved else (2, half))))
    a, b = (element_at(g, pairs, axis, k) for k in (0, 1))
    turned = [
        g.op("sub", g.op("mul", a, cos), g.op("mul", b, sin)),
        g.op("add", g.op("mul", b, cos), g.op("mul", a, sin)),
    ]
    y = g.reshape(stack(g, turned, axis), turning.dims)
    return y if 2 * half == size else concat(g, [y, cut(g, x, 3, 2 * half, size - 2 * half)], 3)
