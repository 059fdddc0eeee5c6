"""Boxes of detectors: MXNet's decoders and non-maximum suppression. See `frontends/nnvm/node.py`."""

from __future__ import annotations

import math
from math import prod

import numpy as np

from lightnet.frontends import composites
from lightnet.frontends.graph import Value
from lightnet.frontends.nnvm.node import Node, nnvm_op


def _column(n: Node, x: Value, index: int, count: int = 1) -> Value:
    """Columns of the last axis; the axis stays."""
    return composites.cut(n.g, x, x.ndim - 1, index, count)


def _other_form(n: Node, boxes: Value, form: str) -> Value:
    """Boxes of the other form: centre and size (``center``) as corners, or corners as centre and size."""
    g, half = n.g, n.scalar(0.5, boxes)
    first, second = _column(n, boxes, 0, 2), _column(n, boxes, 2, 2)
    if form == "center":
        reach = g.op("mul", second, half)
        return g.op("concat", g.op("sub", first, reach), g.op("add", first, reach), axis=boxes.ndim - 1)
    size = g.op("sub", second, first)
    return g.op("concat", g.op("add", first, g.op("mul", size, half)), size, axis=boxes.ndim - 1)


@nnvm_op("_contrib_box_decode", "box_decode")
def box_decode(n: Node, deltas: Value, anchors: Value) -> Value:
    """Corners: centre = anchor's centre + delta * std * size, size = exp(delta * std) * size (at most `clip` in the exponent).

    `format` is that of the anchors.
    """
    g = n.g
    n.at_least(deltas, 1)
    n.at_least(anchors, 1)
    if n.choice("format", "corner", "center") == "corner":
        anchors = _other_form(n, anchors, "corner")
    stds = np.asarray([n.float(f"std{i}", 1.0) for i in range(4)])
    scaled = g.op("mul", deltas, g.constant(stds, deltas.dtype))
    centre, size = _column(n, anchors, 0, 2), _column(n, anchors, 2, 2)
    moved = g.op("add", g.op("mul", _column(n, scaled, 0, 2), size), centre)
    growth, limit = _column(n, scaled, 2, 2), n.float("clip", -1.0)
    if limit > 0:
        growth = g.op("minimum", growth, n.scalar(limit, growth))
    reach = g.op("mul", g.op("mul", g.op("exp", growth), size), n.scalar(0.5, size))
    return g.op("concat", g.op("sub", moved, reach), g.op("add", moved, reach), axis=moved.ndim - 1)


@nnvm_op("_contrib_box_nms", "_contrib_box_non_maximum_suppression", "box_nms", outputs=("output", "idx"))
def box_nms(n: Node, x: Value) -> Value:
    """The rows of [..., N, W] that stay, in falling order of score; rows of -1 follow.

    Rows with a score of at most `valid_thresh`, or of the background's class, do not count; of the others the best `topk` do.
    """
    g, (count, width) = n.g, n.at_least(x, 2).dims[-2:]
    rows = g.reshape(x, (prod(x.dims[:-2]), count, width))
    topk = n.int("topk", -1)
    kept = min(topk, count) if topk >= 0 else count
    scores = g.op("where", _valid(n, rows), _column(n, rows, n.int("score_index", 1)), n.scalar(-math.inf, rows))
    _, order = g.op("topk", scores, axis=1, k=kept, largest=True, sorted=True)
    rows = _rows_in_order(n, rows, order)
    valid = _valid(n, rows)
    boxes = _column(n, rows, n.int("coord_start", 2), 4)
    form, wanted = n.choice("in_format", "corner", "center"), n.choice("out_format", "corner", "center")
    corners = boxes if form == "corner" else _other_form(n, boxes, "center")
    if form != wanted:
        n.unsupported(f"boxes that come as {form} and go as {wanted}")
    class_index = n.int("id_index", -1)
    grouped = class_index >= 0 and not n.bool("force_suppress", False)
    group = _column(n, rows, class_index) if grouped else composites.full(g, valid.dims, 0, rows.dtype)
    keep = g.op("nms", corners, g.reshape(group, valid.dims[:2]), g.reshape(valid, valid.dims[:2]),
                threshold=n.float("overlap_thresh", 0.5))  # fmt: skip
    # A stable order of the flags brings the rows that stay to the front.
    stays, front = g.op("topk", keep, axis=1, k=kept, largest=True, sorted=True)
    rows = _rows_in_order(n, rows, g.reshape(front, (*front.dims, 1)))
    result = g.op("where", g.reshape(stays, (*stays.dims, 1)), rows, n.scalar(-1, rows))
    if kept < count:
        result = g.op("pad", result, before=(0, 0, 0), after=(0, count - kept, 0), mode="constant", value=-1)
    return g.reshape(result, x.dims)


def _valid(n: Node, rows: Value) -> Value:
    """Which rows [B, N, 1] count."""
    g = n.g
    valid = g.op("less", n.scalar(n.float("valid_thresh", 0.0), rows), _column(n, rows, n.int("score_index", 1)))
    background, class_index = n.int("background_id", -1), n.int("id_index", -1)
    if background < 0 or class_index < 0:
        return valid
    is_background = g.op("equal", _column(n, rows, class_index), n.scalar(background, rows))
    return g.op("bit_and", valid, g.op("logical_not", is_background))


def _rows_in_order(n: Node, rows: Value, order: Value) -> Value:
    """rows[b, order[b, k, 0], :] for `order` [B, K, 1]."""
    index = composites.expand(n.g, order, (*order.dims[:2], rows.dims[2]))
    return n.g.op("take_along", rows, index, axis=1)


@nnvm_op("_contrib_MultiBoxPrior", "MultiBoxPrior")
def multibox_prior(n: Node, x: Value) -> Value:
    """Anchors of each cell of a feature map, which depend on its size alone: every size with the first ratio, then the first
    size with every other ratio; corners in units of the picture."""
    n.need_rank(x, 4)
    height, width = x.dims[2:]
    sizes, ratios = n.floats("sizes", (1.0,)), n.floats("ratios", (1.0,))
    steps, offsets = n.floats("steps", (-1.0, -1.0)), n.floats("offsets", (0.5, 0.5))
    if len(steps) != 2 or len(offsets) != 2 or not sizes or not ratios or min(ratios) <= 0:
        n.fail("'steps' and 'offsets' should have two numbers, 'sizes' and 'ratios' at least one")
    if not height * width:
        n.fail(f"its feature map {x.spec} is empty")
    n.bounded(height * width * (len(sizes) + len(ratios)))
    step = [s if s > 0 else 1 / d for s, d in zip(steps, (height, width))]
    rows, columns = ((np.arange(d) + o) * s for d, o, s in zip((height, width), offsets, step))
    first = math.sqrt(ratios[0])
    shapes = [(s * height / width * first / 2, s / first / 2) for s in sizes]
    shapes += [(sizes[0] * height / width * math.sqrt(r) / 2, sizes[0] / math.sqrt(r) / 2) for r in ratios[1:]]
    half = np.asarray(shapes)
    centre = np.stack(
        np.broadcast_arrays(columns[None, :, None], rows[:, None, None], np.zeros(len(half)))[:2], axis=-1
    )
    anchors = np.concatenate([centre - half, centre + half], axis=-1)
    if n.bool("clip", False):
        anchors = np.clip(anchors, 0, 1)
    return n.g.constant(anchors.reshape(1, -1, 4), x.dtype)
