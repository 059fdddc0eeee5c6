"""ONNX ops that pick elements, how many of which the data decides. Imports the table of handlers and the composites."""

from __future__ import annotations

from math import prod

import numpy as np

from lightnet.frontends.composites import (
    cut,
    squeeze,
)
from lightnet.frontends.graph import Value
from lightnet.frontends.onnx.node import Node, onnx_op
from lightnet.frontends.sizes import Size


@onnx_op("NonZero")
def nonzero(n: Node, x: Value) -> Value:
    """The places where it is not zero, [rank, N]."""
    if not x.is_known:
        from lightnet.frontends.counted_ops import nonzero

        return nonzero(n.g, x)
    found = np.stack(np.nonzero(np.atleast_1d(n.need(x, "the result of NonZero")))).astype(np.int64)
    return n.g.constant(found[: x.ndim])


@onnx_op("Compress")
def compress(n: Node, x: Value, condition: Value) -> Value:
    axis = n.int("axis", None)
    if axis is None:
        x, axis = n.g.reshape(x, (x.len,)), 0
    axis = n.axis(axis, x.ndim)
    if condition.ndim != 1:
        n.fail(f"its condition should be a vector, got {condition.spec}")
    if not condition.is_known:
        return _compressed(n, x, condition, axis)
    index = np.flatnonzero(n.need(condition, "the condition of Compress")[: x.dims[axis]])
    return n.g.op("take", x, n.g.constant(index.astype(np.int64)), axis=axis)


@onnx_op("Unique")
def unique(n: Node, x: Value) -> tuple[Value, ...]:
    """The values, where each stands first, which one each element is, and how many there are of each."""
    axis = n.int("axis", None)
    if not x.is_known:
        return _unique(n, x, axis)
    data = n.need(x, "the result of Unique")
    data = data.reshape(-1) if axis is None else data
    axis = 0 if axis is None else n.axis(axis, x.ndim)
    values, first, inverse, counts = np.unique(
        data, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not n.int("sorted", 1):
        order = np.argsort(first)
        values, first, counts = np.take(values, order, axis), first[order], counts[order]
        inverse = np.argsort(order)[inverse]
    return tuple(n.g.constant(np.asarray(a, t)) for a, t in
                 ((values, data.dtype), (first, np.int64), (inverse, np.int64), (counts, np.int64)))  # fmt: skip


def _compressed(n: Node, x: Value, condition: Value, axis: int) -> Value:
    """Elements that data picks. What the condition has more than the axis counts nothing."""
    from lightnet.frontends.counted_ops import nonzero

    g, length = n.g, x.dims[axis]
    if not isinstance(length, Size) and not isinstance(condition.dims[0], Size) and condition.dims[0] > length:
        condition = cut(g, condition, 0, 0, length)
    return g.op("take", x, squeeze(g, nonzero(g, condition), [0]), axis=axis)


def _unique(n: Node, x: Value, axis: int | None) -> tuple[Value, ...]:
    from lightnet.frontends.counted_ops import unique

    g = n.g
    x = g.reshape(x, (x.len,)) if axis is None else x
    axis = 0 if axis is None else n.axis(axis, x.ndim)
    front = g.transpose(x, (axis, *(k for k in range(x.ndim) if k != axis)))
    first, inverse, repeats = unique(
        g, g.reshape(front, (front.dims[0], prod(front.dims[1:]))), bool(n.int("sorted", 1))
    )
    return g.op("take", x, first, axis=axis), first, inverse, repeats


@onnx_op("NonMaxSuppression")
def non_max_suppression(n: Node, boxes: Value, scores: Value, most: Value | None = None, overlap: Value | None = None,
                        least: Value | None = None) -> Value:  # fmt: skip
    """(batch, class, box) of the boxes that stay; none where nothing says how many may."""
    from lightnet.frontends.counted_ops import suppressed

    g = n.g
    if boxes.ndim != 3 or scores.ndim != 3 or boxes.dims[2] != 4 or boxes.dims[0] != scores.dims[0]:
        n.fail(f"needs boxes [B, N, 4] and scores [B, C, N], got {boxes.spec} and {scores.spec}")
    if any(v is not None and v.len != 1 for v in (most, overlap, least)):
        n.fail("its limits should be single numbers")
    most = g.scalar(0, "i64") if most is None else most
    overlap = g.scalar(0, "f32") if overlap is None else overlap
    return suppressed(g, boxes, scores, most, overlap, least, bool(n.int("center_point_box", 0)))
