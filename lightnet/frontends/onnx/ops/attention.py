"""Scaled dot-product attention of ONNX. Imports the composites and the table of handlers."""

from __future__ import annotations

from math import sqrt

import numpy as np

from lightnet.frontends.composites import number_of, positions_along
from lightnet.frontends.graph import Graph, Value
from lightnet.frontends.onnx.node import Node, onnx_op
from lightnet.frontends.sizes import same
from lightnet.runtime.dims import Size, greatest, is_known, is_never_below

#: Elements of the largest mask that is made here.
MAX_MASK = 1 << 26

_PRECISIONS = {1: "f32", 10: "f16", 11: "f64", 16: "bf16"}


@onnx_op("Attention")
def attention(n: Node, q: Value, k: Value, v: Value, mask: Value | None = None, past_k: Value | None = None,
              past_v: Value | None = None, valid: Value | None = None) -> list[Value]:  # fmt: skip
    """softmax(scale * Q K^T + bias) V, head by head; the outputs behind Y are the present keys and values, and the
    scores."""
    g, flat = n.g, q.ndim == 3
    if (past_k is None) != (past_v is None) or (past_k is not None and valid is not None):
        n.fail("past_key and past_value belong together, and do not go with nonpad_kv_seqlen")
    q = _heads(n, q, "q_num_heads")
    k, v = (_heads(n, x, "kv_num_heads") for x in (k, v))
    past = 0
    if past_k is not None and past_v is not None:
        past = past_k.dims[2]
        k, v = g.op("concat", past_k, k, axis=2), g.op("concat", past_v, v, axis=2)
    heads, size = q.dims[1], q.dims[3]
    if not k.dims[1] or heads % k.dims[1] or v.dims[1] != k.dims[1]:
        n.fail(f"its {heads} heads of Q should be a multiple of the {k.dims[1]} of K, and V has {v.dims[1]}")
    bias, masked = _bias(n, q, k.dims[2], mask, past, valid)
    scores = [_products(n, q, k, n.float("scale", 1 / sqrt(max(size, 1))))]
    cap = n.float("softcap", 0.0)
    scores.append(capped(g, scores[-1], cap))
    scores.append(scores[-1] if bias is None else g.op("add", scores[-1], bias))
    scores.append(_softmax(n, scores[-1], masked, q.dtype.name))
    y = grouped_product(g, scores[-1], v)
    if flat:
        y = joined_heads(g, y)
    mode = n.int("qk_matmul_output_mode", 0)
    if not 0 <= mode <= 3:
        n.fail(f"qk_matmul_output_mode is {mode}; there are 0 to 3")
    return [y, k, v, scores[mode]]


def _heads(n: Node, x: Value, attribute: str) -> Value:
    """[B, heads, S, D], or such heads side by side."""
    if x.ndim == 4:
        return x
    heads = n.int(attribute, 0)
    if x.ndim != 3 or heads < 1 or x.dims[2] % heads:
        n.fail(f"{x.spec} should have rank 4, or rank 3 and elements for {attribute} {heads}")
    return split_heads(n.g, x, heads)


def split_heads(g: Graph, x: Value, heads: int) -> Value:
    """[B, S, heads * D] as [B, heads, S, D]."""
    return g.transpose(g.reshape(x, (*x.dims[:2], heads, x.dims[2] // heads)), (0, 2, 1, 3))


def joined_heads(g: Graph, x: Value) -> Value:
    """The inverse of `split_heads`."""
    batch, heads, rows, size = x.dims
    return g.reshape(g.transpose(x, (0, 2, 1, 3)), (batch, rows, heads * size))


def _products(n: Node, q: Value, k: Value, scale: float) -> Value:
    """scale * Q K^T. Short floats are scaled before the product by its root, as ONNX says, lest they overflow."""
    g = n.g
    short = q.dtype.is_short
    if short:
        root = g.scalar(sqrt(scale), q.dtype)
        q, k = g.op("mul", q, root), g.op("mul", k, root)
    return grouped_product(g, q, g.transpose(k, (0, 1, 3, 2)), None if short else scale)


def grouped_product(g: Graph, a: Value, b: Value, scale: float | None = None) -> Value:
    """[B, H, S, D] x [B, G, D, T], by `scale`: where one matrix of `b` serves several heads, these are rows of one
    product."""
    batch, heads, rows, depth = a.dims
    groups = b.dims[1]
    result = g.op("matmul", g.reshape(a, (batch, groups, heads // groups * rows, depth)), b)
    result = result if scale is None else g.op("mul", result, g.scalar(scale, a.dtype))
    return g.reshape(result, (batch, heads, rows, b.dims[3]))


def capped(g: Graph, x: Value, cap: float) -> Value:
    """cap * tanh(x / cap); `x` where there is no cap (0)."""
    limit = g.scalar(cap, x.dtype)
    return g.op("mul", g.op("tanh", g.op("div", x, limit)), limit) if cap else x


def _softmax(n: Node, scores: Value, masked: Value | None, dtype: str) -> Value:
    """Softmax, in the precision asked for; zeros for a row all of which is masked."""
    g, precision = n.g, n.int("softmax_precision", 0)
    if precision:
        if precision not in _PRECISIONS:
            n.fail(f"softmax_precision is {precision}; there are {', '.join(map(str, _PRECISIONS))}")
        scores = g.cast(scores, _PRECISIONS[precision])
    if scores.dtype.is_short:  # each step is rounded, as the standard's definition does
        e = g.op("exp", g.op("sub", scores, g.op("reduce_max", scores, axes=(3,))))
        result = g.op("div", e, g.op("reduce_sum", e, axes=(3,)))
    else:
        result = g.op("softmax", scores, axis=3)
    if masked is not None:
        result = g.op("where", masked, g.scalar(0, result.dtype), result)
    return g.cast(result, dtype)


# -- what may be seen


def _bias(
    n: Node, q: Value, columns: int, mask: Value | None, past: int, valid: Value | None
) -> tuple[Value | None, Value | None]:
    """The bias that is added to the scores (0 or -inf, and a float mask), and the rows that are -inf throughout; None
    for neither.
    """
    g, rows = n.g, q.dims[2]
    if mask is not None:
        mask = _padded(n, mask, columns)
    allowed, fixed = _allowed(n, rows, columns, past, valid)
    sees_first = mask is None and valid is None and n.int("left_window_size", -1) < 0  # each row does
    if mask is not None and mask.dtype.name == "i1":
        allowed, mask = [*allowed, mask], None
    parts = [] if mask is None else [g.cast(mask, q.dtype)]
    zeros = np.float32(0)  # makes -inf an f32 too
    if not fixed.all():
        parts.append(g.weight("mask", fixed.shape, q.dtype, lambda: np.where(fixed, zeros, -np.inf).astype(q.dtype.np)))
    zero, none = g.scalar(0, q.dtype), g.scalar(-np.inf, q.dtype)
    parts += [g.op("where", a, zero, none) for a in allowed]
    if not parts:
        return None, None
    bias = parts[0]
    for part in parts[1:]:
        bias = g.op("add", bias, part)
    if len(parts) == 1 and not fixed.all():  # known: which rows see nothing is decided here
        empty = ~fixed.any(axis=1, keepdims=True)
        return bias, g.constant(np.asarray(empty)) if empty.any() else None
    return bias, None if sees_first else g.op("equal", g.op("reduce_max", bias, axes=(bias.ndim - 1,)), none)


def _padded(n: Node, mask: Value, columns: int) -> Value:
    """A mask for fewer columns hides the others."""
    if not mask.ndim or mask.dims[-1] == 1:
        return mask
    short = columns - mask.dims[-1]
    if not is_known([short]) and not is_never_below(short, 0):  # which a call decides: they are the same, then
        same(columns, mask.dims[-1])
        return mask
    if is_known([short]) and short <= 0:
        return mask
    before, after = (0,) * mask.ndim, (*(0,) * (mask.ndim - 1), short)
    return n.g.op("pad", mask, before=before, after=after, value=0 if mask.dtype.name == "i1" else float("-inf"))


def _allowed(n: Node, rows: int, columns: int, past: int, valid: Value | None) -> tuple[list[Value], np.ndarray]:
    """The columns that each row may see: conditions that depend on `valid`, and a [rows, columns] array of what does
    not.

    Row i is at position p = i + offset, and sees column j if j <= p (causal) and p - left <= j <= p + right (windows);
    the offset is how many keys come before the first row. Of `valid` keys, the others are padding.
    """
    g = n.g
    found: list[Value] = []
    left, right = n.int("left_window_size", -1), n.int("right_window_size", -1)
    if left < -1 or right < -1:
        n.fail(f"its window sizes {left} and {right} should be -1 or more")
    if n.int("is_causal", 0):
        right = 0
    if valid is None and not is_known([rows, columns, past]):
        return _open_windows(g, rows, columns, past, left, right), np.ones((1, 1), bool)
    if greatest(rows * columns) > MAX_MASK:
        n.unsupported(f"a mask of {rows} x {columns} elements")
    number, column = np.arange(rows)[:, None], np.arange(columns)
    fixed = np.ones((rows, columns), bool)
    if valid is None:
        position = number + past
        if right >= 0:
            fixed &= column <= position + right
        if left >= 0:
            fixed &= column >= position - left
        return found, fixed
    valid = g.reshape(g.cast(valid, "i64"), (valid.len, 1, 1, 1))
    at = positions_along(g, columns, 3, 4)
    found.append(g.op("less", at, valid))
    position = g.op("add", g.constant(number[None, None] - rows, "i64"), valid)
    if right >= 0:
        found.append(g.op("less_equal", at, g.op("add", position, g.scalar(right, "i64"))))
    if left >= 0:
        found.append(g.op("less_equal", g.op("sub", position, g.scalar(left, "i64")), at))
    return found, fixed


def _open_windows(g: Graph, rows: Size, columns: Size, past: Size, left: int, right: int) -> list[Value]:
    """The conditions of windows (-1: none) where calls decide how many rows or columns there are."""
    if left < 0 and (right < 0 or is_never_below(past + right + 1, columns)):  # one row sees all that there is
        return []
    at, row = positions_along(g, columns, 3, 4), positions_along(g, rows, 2, 4)
    position = g.op("add", row, number_of(g, past, (1,) * 4, "i64"))
    found = []
    if right >= 0:
        found.append(g.op("less_equal", at, g.op("add", position, g.scalar(right, "i64"))))
    if left >= 0:
        found.append(g.op("less_equal", g.op("sub", position, g.scalar(left, "i64")), at))
    return found
