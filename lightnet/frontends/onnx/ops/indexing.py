"""ONNX ops that read or write at computed places, search, sort and scan, and that pick elements, how many of which the
data decides. Imports the table of handlers and the composites."""

from __future__ import annotations

from math import prod

import numpy as np

from lightnet.frontends.composites import cut, expand, one_hot, positions_along, squeeze
from lightnet.frontends.graph import Graph, Value
from lightnet.frontends.onnx.node import Node, onnx_op
from lightnet.frontends.onnx.pairs import ARG_EXTREMES, SCANS
from lightnet.frontends.sizes import is_counted

#: Elements of the largest index that is looked at for being a range.
MAX_INSPECTED = 1 << 16


@onnx_op("Gather")
def gather(n: Node, x: Value, index: Value) -> Value:
    return take(n.g, x, index, n.axis(n.int("axis", 0), x.ndim))


def take(g: Graph, x: Value, index: Value, axis: int) -> Value:
    """`ln.take`, or a slice where the index is a known run."""
    if type(x) is Value and index.is_known and 0 < index.len <= MAX_INSPECTED and x.dims[axis]:
        places = index.known.reshape(-1).astype(np.int64)
        first = int(places[0]) + (x.dims[axis] if places[0] < 0 else 0)
        run = first + np.arange(places.size)
        if (
            np.array_equal(np.where(places < 0, places + x.dims[axis], places), run)
            and 0 <= first <= run[-1] < x.dims[axis]
        ):
            part = cut(g, x, axis, first, places.size)
            return g.reshape(part, (*x.dims[:axis], *index.dims, *x.dims[axis + 1 :]))
    return g.op("take", x, index, axis=axis)


@onnx_op("GatherElements")
def gather_elements(n: Node, x: Value, index: Value) -> Value:
    return n.g.op("take_along", x, index, axis=n.axis(n.int("axis", 0), x.ndim))


@onnx_op("GatherND")
def gather_nd(n: Node, x: Value, index: Value) -> Value:
    return n.g.op("gather_nd", x, index, batch_dims=n.int("batch_dims", 0))


@onnx_op("Scatter", "ScatterElements")
def scatter_elements(n: Node, x: Value, index: Value, updates: Value) -> Value:
    axis, reduction = n.axis(n.int("axis", 0), x.ndim), n.string("reduction", "none")
    return n.g.op("scatter_elements", x, index, updates, axis=axis, reduction=reduction)


@onnx_op("ScatterND")
def scatter_nd(n: Node, x: Value, index: Value, updates: Value) -> Value:
    return n.g.op("scatter_nd", x, index, updates, reduction=n.string("reduction", "none"))


@onnx_op("TensorScatter")
def tensor_scatter(n: Node, past: Value, update: Value, at: Value | None = None) -> Value:
    """`update` written into a cache along `axis`, from place `at[b]` on for batch entry b; ``circular`` goes around."""
    g, axis = n.g, n.axis(n.int("axis", -2), past.ndim)
    alike = update.ndim == past.ndim and all(
        k == axis or a == b for k, (a, b) in enumerate(zip(past.dims, update.dims))
    )
    if axis == 0 or not alike or update.dims[axis] > past.dims[axis]:
        n.fail(f"{update.spec} does not fit into {past.spec} along axis {axis}")
    g.bounded(update.dims[axis], "an axis of positions")
    place = positions_along(g, update.dims[axis], axis, past.ndim)
    if at is not None:
        start = g.reshape(g.cast(at, "i64"), (past.dims[0], *[1] * (past.ndim - 1)))
        place = g.op("add", start, place)
        if n.string("mode", "linear") == "circular":
            place = g.op("mod", place, g.scalar(past.dims[axis], "i64"))
    return g.op("scatter_elements", past, expand(g, place, update.dims), update, axis=axis)


@onnx_op("TopK")
def topk(n: Node, x: Value, k: Value | None = None) -> tuple[Value, Value]:
    count = n.int("k") if k is None else n.need_ints(k, "the k of TopK")[0]
    return n.g.op(
        "topk", x, axis=n.axis(n.int("axis", -1), x.ndim), k=count, largest=bool(n.int("largest", 1)),
        sorted=bool(n.int("sorted", 1)),
    )  # fmt: skip


@onnx_op(*SCANS)
def scan(n: Node, x: Value, axis: Value) -> Value:
    along = n.axis(n.need_ints(axis, f"the axis of {n.op_type}")[0], x.ndim)
    return n.g.op(
        SCANS[n.op_type], x, axis=along, exclusive=bool(n.int("exclusive", 0)), reverse=bool(n.int("reverse", 0))
    )


@onnx_op(*ARG_EXTREMES)
def arg_extreme(n: Node, x: Value) -> Value:
    axis = n.axis(n.int("axis", 0), x.ndim)
    found = n.g.op(ARG_EXTREMES[n.op_type], x, axis=axis, last=bool(n.int("select_last_index", 0)))
    return found if n.int("keepdims", 1) else squeeze(n.g, found, [axis])


@onnx_op("Hardmax")
def hardmax(n: Node, x: Value) -> Value:
    """1 at the first maximum along the axis, 0 elsewhere; before opset 13, of all axes from `axis` on together."""
    g, dims = n.g, x.dims
    axis = n.axis(n.int("axis", -1 if n.opset >= 13 else 1), x.ndim)
    if n.opset < 13:
        x, axis = g.reshape(x, (prod(dims[:axis]), prod(dims[axis:]))), 1
    first = squeeze(g, g.op("argmax", x, axis=axis), [axis])
    one, zero = g.scalar(1, x.dtype), g.scalar(0, x.dtype)
    return g.reshape(g.op("where", one_hot(g, first, x.dims[axis], axis), one, zero), dims)


# -- as many as the data says


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
    if not is_counted(length) and not is_counted(condition.dims[0]) and condition.dims[0] > length:
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
