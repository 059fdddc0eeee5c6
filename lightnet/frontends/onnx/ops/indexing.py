"""ONNX ops that read or write at computed places, search, sort and scan. Imports the table of handlers and the
composites."""

from __future__ import annotations

from math import prod

import numpy as np

from lightnet.frontends.composites import cut, expand, one_hot, squeeze
from lightnet.frontends.graph import Graph, Value
from lightnet.frontends.onnx.node import Node, onnx_op
from lightnet.frontends.onnx.pairs import ARG_EXTREMES, SCANS

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
    steps = np.arange(update.dims[axis], dtype=np.int64).reshape([-1 if k == axis else 1 for k in range(past.ndim)])
    place = g.constant(steps)
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
