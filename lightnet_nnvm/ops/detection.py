"""Boxes of detectors: MXNet's decoder, and non-maximum suppression as MXNet, and as NNVM defines it. See
`lightnet_nnvm/node.py`.

NNVM's semantics are those of TVM's `topi.vision` (0.3 to 0.6). Where its generic schedule reads memory that nobody
wrote, there is -1.
"""

from __future__ import annotations

from math import prod

import numpy as np

from lightnet.frontends import composites
from lightnet.frontends.graph import Value
from lightnet_nnvm import boxes
from lightnet_nnvm.boxes import Columns, column
from lightnet_nnvm.node import Node, nnvm_op


@nnvm_op("_contrib_box_decode", "box_decode")
def box_decode(n: Node, deltas: Value, anchors: Value) -> Value:
    """Corners: centre = anchor's centre + delta * std * size, size = exp(delta * std) * size (at most `clip` in the
    exponent).

    `format` is that of the anchors.
    """
    g = n.g
    n.at_least(deltas, 1)
    n.at_least(anchors, 1)
    if n.choice("format", "center", "corner") == "corner":
        anchors = boxes.other_form(n, anchors, "corner")
    stds = np.asarray([n.float(f"std{i}", 1.0) for i in range(4)])
    scaled = g.op("mul", deltas, g.constant(stds, deltas.dtype))
    centre, size = column(n, anchors, 0, 2), column(n, anchors, 2, 2)
    return boxes.moved_boxes(n, centre, size, scaled, n.float("clip", -1.0))


@nnvm_op(
    "_contrib_box_nms", "_contrib_box_non_maximum_suppression", "box_nms", "_npx_box_nms", outputs=("output", "idx")
)
def box_nms(n: Node, x: Value) -> Value:
    """The rows of [..., N, W] that stay, in falling order of score; rows of -1 follow.

    Rows with a score of at most `valid_thresh`, or of the background's class, do not count; of the others the best
    `topk` do. Of `topk` = 0, MXNet gives the rows as they are.
    """
    g, (count, width) = n.g, n.at_least(x, 2).dims[-2:]
    at = Columns.of(n, width, -1)
    form, wanted = n.choice("in_format", "corner", "center"), n.choice("out_format", "corner", "center")
    topk = n.int("topk", -1)
    kept = min(topk, count) if topk >= 0 else count
    if not kept:
        return x
    rows = g.reshape(x, (prod(x.dims[:-2]), count, width))
    rows = boxes.in_order(n, rows, boxes.by_score(n, boxes.flat_column(n, rows, at.score), _counts(n, rows, at), kept))
    valid = _counts(n, rows, at)
    given = column(n, rows, at.start, 4)
    corners = given if form == "corner" else boxes.other_form(n, given, "center")
    group = None
    if at.identity is not None and not n.bool("force_suppress", False):  # a class is a whole number
        group = g.cast(g.cast(boxes.flat_column(n, rows, at.identity), "i32"), rows.dtype)
    gone = boxes.suppressed_flags(n, corners, valid, group, n.float("overlap_thresh", 0.5))
    if form != wanted:  # but where a coordinate is below 0, which MXNet takes for a row that is none
        changed = g.op("where", boxes.at_least(n, column(n, given, 0), 0), boxes.other_form(n, given, form), given)
        parts = [(0, at.start), (at.start, 4), (at.start + 4, width - at.start - 4)]
        pieces = [changed if first == at.start else column(n, rows, first, size) for first, size in parts if size]
        rows = composites.concat(g, pieces, 2)
    result = boxes.to_front(n, rows, boxes.but_not(n, valid, gone))
    if kept < count:
        result = g.op("pad", result, before=(0, 0, 0), after=(0, count - kept, 0), mode="constant", value=-1)
    return g.reshape(result, x.dims)


def _counts(n: Node, rows: Value, at: Columns) -> Value:
    """The rows that count for `box_nms`: flags [B, N]."""
    valid = boxes.above(n, boxes.flat_column(n, rows, at.score), n.float("valid_thresh", 0.0))
    if at.identity is None:
        return valid
    background = n.scalar(n.int("background_id", -1), rows)
    return boxes.but_not(n, valid, n.g.op("equal", boxes.flat_column(n, rows, at.identity), background))


@nnvm_op("get_valid_counts", outputs=("valid_count", "output"))
def get_valid_counts(n: Node, rows: Value) -> tuple[Value, Value]:
    """The number of rows of [B, N, W] that have a score above `score_threshold` and a class of 0 or more, as [B] of
    i32; and these rows, in their order, before rows of -1.
    """
    boxes.need_dims(n, "data", rows, None, None, None)
    index = n.int("id_index", 0)
    for name, value in (("score_index", n.int("score_index", 1)), ("id_index", index)):
        if value >= rows.dims[2] or value < min(0, index):
            n.fail(f"its {name} {value} is no number of a row of {rows.dims[2]}")
    score = boxes.flat_column(n, rows, n.int("score_index", 1))
    has_class = boxes.at_least(n, boxes.flat_column(n, rows, index), 0) if index >= 0 else None
    flags = boxes.both(n, boxes.above(n, score, n.float("score_threshold", 0.0)), has_class)
    return n.g.reshape(boxes.how_many(n, flags), rows.dims[:1]), boxes.to_front(n, rows, flags)


@nnvm_op("non_max_suppression")
def non_max_suppression(n: Node, rows: Value, counts: Value) -> Value:
    """The first `counts` [B] rows of [B, N, W] in falling order of score, with -1 for the score and the class of those
    that overlap a better one; or, with `return_indices`, where each stood ([B, N] of i32), -1 for those. Rows of -1
    follow.

    The best `top_k` are looked at (of -1, all); the others are -1, as are those behind the first `max_output_size` that
    stay. Rows of a score of at most 0 or a class below 0 neither go nor make others go. An `iou_threshold` of at most 0
    leaves everything as it is.
    """
    g = n.g
    boxes.need_dims(n, "data", rows, None, None, None)
    boxes.need_dims(n, "valid_count", counts, rows.dims[0])
    at, count = Columns.of(n, rows.dims[2], 0), rows.dims[1]
    counts = g.cast(g.reshape(counts, (rows.dims[0], 1)), "i32")
    threshold = n.float("iou_threshold", 0.5)
    live = boxes.first_rows(n, counts, count)
    order = composites.expand(g, g.cast(boxes.positions(n, count), "i64"), rows.dims[:2])
    if threshold > 0:
        order = boxes.by_score(n, boxes.flat_column(n, rows, at.score), live)
        rows = boxes.in_order(n, rows, order)
        live = boxes.first_rows(n, boxes.at_most(n, counts, n.int("top_k", -1)), count)
        score, group = boxes.flat_column(n, rows, at.score), None
        has_class = None
        if at.identity is not None:
            identity = boxes.flat_column(n, rows, at.identity)
            has_class = boxes.at_least(n, identity, 0)
            group = None if n.bool("force_suppress", False) else identity
        flags = boxes.both(n, live, boxes.above(n, score, 0), has_class)
        gone = boxes.suppressed_flags(n, column(n, rows, at.start, 4), flags, group, threshold, inclusive=True)
        rows = boxes.cleared(n, rows, gone, [at.score] + ([] if at.identity is None else [at.identity]))
        stays = boxes.but_not(n, live, gone)
    else:
        stays = live
    rows = boxes.only(n, live, rows)
    if (most := n.int("max_output_size", -1)) > 0:
        rows, stays = _first_of(n, rows, stays, most)
    if n.bool("return_indices", True):
        return g.op("where", stays, g.cast(order, "i32"), g.scalar(-1, "i32"))
    if n.bool("invalid_to_bottom", False):
        rows = boxes.to_front(n, rows, boxes.at_least(n, boxes.flat_column(n, rows, 0), 0))
    return rows


def _first_of(n: Node, rows: Value, stays: Value, most: int) -> tuple[Value, Value]:
    """Rows and flags with -1, and without, what stands behind the first `most` rows whose first number is 0 or more."""
    there = boxes.at_least(n, boxes.flat_column(n, rows, 0), 0)
    before = n.g.op("cumsum", n.g.cast(there, "i32"), axis=1, exclusive=True)
    over = boxes.both(n, there, boxes.at_least(n, before, most))
    return boxes.only(n, n.g.op("logical_not", over), rows), boxes.but_not(n, stays, over)


@nnvm_op("nms")
def nms(n: Node, rows: Value, counts: Value) -> Value:
    """NNVM's suppression before 0.6: rows of (class, score, corners), of which the first `counts` [B] count, in falling
    order of score, with -1 for the class of those that overlap an earlier one; rows of -1 follow.

    Behind the best `nms_topk` stand the rows that stood there, which are looked at, too. An `nms_threshold` that is not
    between 0 and 1 leaves everything as it is.
    """
    g = n.g
    boxes.need_dims(n, "data", rows, None, None, 6)
    boxes.need_dims(n, "valid_count", counts, rows.dims[0])
    count, threshold = rows.dims[1], n.float("nms_threshold", 0.5)
    counts = g.cast(g.reshape(counts, (rows.dims[0], 1)), "i32")
    live = boxes.first_rows(n, counts, count)
    if 0 < threshold < 1:
        rows = boxes.best_first(n, rows, live, boxes.at_most(n, counts, n.int("nms_topk", -1)))
        identity = boxes.flat_column(n, rows, 0)
        flags = boxes.both(n, live, boxes.at_least(n, identity, 0))
        group = None if n.bool("force_suppress", False) else identity
        gone = boxes.suppressed_flags(n, column(n, rows, 2, 4), flags, group, threshold, inclusive=True)
        rows = boxes.cleared(n, rows, gone, [0])
    return boxes.only(n, live, rows)
