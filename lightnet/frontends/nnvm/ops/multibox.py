"""The heads of single-shot detectors (Liu et al., "SSD", 2016), as MXNet and NNVM have them. See
`frontends/nnvm/node.py`."""

from __future__ import annotations

import math

import numpy as np

from lightnet.frontends import composites
from lightnet.frontends.graph import Value
from lightnet.frontends.nnvm import boxes
from lightnet.frontends.nnvm.node import Node, nnvm_op

#: The versions of MXNet since which widths follow the aspect of the map, and since which all sizes have the first
#: ratio.
_ASPECT, _FIRST_RATIO = 1200, 10500


@nnvm_op("_contrib_MultiBoxPrior", "MultiBoxPrior", "_npx_multibox_prior", "multibox_prior")
def multibox_prior(n: Node, x: Value) -> Value:
    """Anchors of each cell of a feature map, which depend on its size alone: every size with the first ratio, then the
    first size with every other ratio; corners in units of the picture. NNVM's, and MXNet's before 1.5, have ratio 1 for
    the first."""
    n.need_rank(x, 4)
    height, width = x.dims[2:]
    sizes, ratios = n.floats("sizes", (1.0,)), n.floats("ratios", (1.0,))
    steps, offsets = n.floats("steps", (-1.0, -1.0)), n.floats("offsets", (0.5, 0.5))
    if len(steps) != 2 or len(offsets) != 2 or not sizes or not ratios or min(ratios) <= 0:
        n.fail("'steps' and 'offsets' should have two numbers, 'sizes' and 'ratios' at least one, ratios above 0")
    if steps[0] * steps[1] < 0:
        n.fail(f"'steps' should be both given or both not, but is {steps}")
    if not height * width:
        n.fail(f"its feature map {x.spec} is empty")
    n.bounded(height * width * (len(sizes) + len(ratios)))
    version = n.version if n.op != "multibox_prior" else _ASPECT
    first = ratios[0] if not version or version >= _FIRST_RATIO else 1.0
    aspect = height / width if not version or version >= _ASPECT else 1.0
    step = [s if s > 0 else 1 / d for s, d in zip(steps, (height, width))]
    rows, columns = ((np.arange(d) + o) * s for d, o, s in zip((height, width), offsets, step))
    shapes = [(s, first) for s in sizes] + [(sizes[0], r) for r in ratios[1:]]
    half = np.asarray([(s * aspect * math.sqrt(r) / 2, s / math.sqrt(r) / 2) for s, r in shapes])
    centre = np.stack(
        np.broadcast_arrays(columns[None, :, None], rows[:, None, None], np.zeros(len(half)))[:2], axis=-1
    )
    anchors = np.concatenate([centre - half, centre + half], axis=-1)
    if n.bool("clip", False):
        anchors = np.clip(anchors, 0, 1)
    return n.g.constant(anchors.reshape(1, -1, 4), x.dtype)


@nnvm_op("multibox_transform_loc", outputs=("output", "valid_count"))
def multibox_transform_loc(n: Node, scores: Value, deltas: Value, anchors: Value) -> tuple[Value, Value]:
    """Rows (class, score, corners) [B, N, 6] of the anchors whose best class is one (class 0 is none) with a score of
    `threshold` or more, in their order, before rows of -1; and how many there are, [B] of i32."""
    rows, flags = _decoded(n, scores, deltas, anchors)
    return boxes.to_front(n, rows, flags), n.g.reshape(boxes.how_many(n, flags), rows.dims[:1])


@nnvm_op("_contrib_MultiBoxDetection", "MultiBoxDetection", "_npx_multibox_detection")
def multibox_detection(n: Node, scores: Value, deltas: Value, anchors: Value) -> Value:
    """The rows of `multibox_transform_loc` in falling order of score, with -1 for the class of those that overlap a
    better one of their class (of any, with `force_suppress`), or that stand behind the best `nms_topk`. An
    `nms_threshold` that is not between 0 and 1 leaves their order."""
    rows, flags = _decoded(n, scores, deltas, anchors)
    counts, rows = boxes.how_many(n, flags), boxes.to_front(n, rows, flags)
    threshold = n.float("nms_threshold", 0.5)
    if not 0 < threshold <= 1:
        return rows
    live = boxes.first_rows(n, counts, rows.dims[1])
    kept = boxes.at_most(n, counts, n.int("nms_topk", -1))
    rows, flags = boxes.best_first(n, rows, live, kept), boxes.first_rows(n, kept, rows.dims[1])
    group = None if n.bool("force_suppress", False) else boxes.flat_column(n, rows, 0)
    gone = boxes.suppressed_flags(n, boxes.column(n, rows, 2, 4), flags, group, threshold, inclusive=True)
    return boxes.cleared(n, rows, boxes.but_not(n, live, boxes.but_not(n, flags, gone)), [0])


def _decoded(n: Node, scores: Value, deltas: Value, anchors: Value) -> tuple[Value, Value]:
    """A row for each anchor of [B, C, N] scores, [B, 4 N] deltas and [1, N, 4] anchors, and which of them count: [B,
    N]."""
    g = n.g
    boxes.need_dims(n, "cls_prob", scores, None, None, None)
    batch, classes, count = scores.dims
    boxes.need_dims(n, "loc_pred", deltas, batch, 4 * count)
    boxes.need_dims(n, "anchor", anchors, 1, count, 4)
    if not count:
        n.fail("it has no anchors")
    if classes < 2:
        return composites.full(g, (batch, count, 6), -1, scores.dtype), composites.full(g, (batch, count), 0, "i1")
    found = composites.cut(g, scores, 1, 1, classes - 1)
    best, identity = g.op("reduce_max", found, axes=(1,)), g.op("argmax", found, axis=1)
    score = g.reshape(best, (batch, count))
    flags = boxes.both(n, boxes.above(n, score, -1), boxes.at_least(n, score, n.float("threshold", 0.01)))
    heads = [g.reshape(g.cast(x, scores.dtype), (batch, count, 1)) for x in (identity, best)]
    return composites.concat(g, [*heads, _moved(n, g.reshape(deltas, (batch, count, 4)), anchors)], 2), flags


def _moved(n: Node, deltas: Value, anchors: Value) -> Value:
    """Anchors [1, N, 4] (corners) moved and stretched by deltas [B, N, 4]: corners, inside of the picture with
    `clip`."""
    g, variances = n.g, n.floats("variances", (0.1, 0.1, 0.2, 0.2))
    if len(variances) != 4:
        n.fail(f"'variances' should have four numbers, but is {variances}")
    centred = boxes.other_form(n, anchors, "corner")
    centre, size = boxes.column(n, centred, 0, 2), boxes.column(n, centred, 2, 2)
    scaled = g.op("mul", deltas, g.constant(np.reshape(variances, (1, 1, 4)), deltas.dtype))
    middle = g.op("add", g.op("mul", boxes.column(n, scaled, 0, 2), size), centre)
    reach = g.op("mul", g.op("mul", g.op("exp", boxes.column(n, scaled, 2, 2)), size), n.scalar(0.5, size))
    corners = composites.concat(g, [g.op("sub", middle, reach), g.op("add", middle, reach)], 2)
    if not n.bool("clip", True):
        return corners
    return g.op("maximum", g.op("minimum", corners, n.scalar(1, corners)), n.scalar(0, corners))
