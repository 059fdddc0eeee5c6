"""The heads of single-shot detectors (Liu et al., "SSD", 2016), as MXNet and NNVM have them, and of YOLO version 2
(Redmon and Farhadi, "YOLO9000", 2016), as NNVM and darknet do. See `lightnet_nnvm/node.py`."""

from __future__ import annotations

import math

import numpy as np

from lightnet.frontends import composites
from lightnet.frontends.graph import Value
from lightnet_nnvm import boxes
from lightnet_nnvm.node import Node, nnvm_op

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
    corners = boxes.moved_boxes(n, centre, size, scaled)
    if not n.bool("clip", True):
        return corners
    return g.op("maximum", g.op("minimum", corners, n.scalar(1, corners)), n.scalar(0, corners))


# -- YOLO


@nnvm_op("yolo_reorg", "yolo2_reorg")
def yolo_reorg(n: Node, x: Value) -> Value:
    """[N, C, H, W] as [N, C * stride^2, H / stride, W / stride], in darknet's order: it takes the memory of a picture
    for [C / stride^2, H * stride, W * stride], and gathers the elements at the same place of all blocks of that.

    NNVM reads outside of a picture but the first; here each is like the first.
    """
    n.need_rank(x, 4)
    batch, channels, height, width = x.dims
    stride = n.int("stride", 1)
    if stride < 1 or channels % stride**2 or height % stride or width % stride:
        n.fail(
            f"its stride {stride} should be above 0, divide height and width, and its square the channels of {x.spec}"
        )
    wide = n.g.reshape(x, (batch, channels // stride**2, height * stride, width * stride))
    gathered = composites.space_to_depth(n.g, wide, stride)
    return n.g.reshape(gathered, (batch, channels * stride**2, height // stride, width // stride))


@nnvm_op("yolo_region", "yolo2_region")
def yolo_region(n: Node, x: Value) -> Value:
    """[N, n * (coords + 1 + classes), H, W]: of each of the `n` groups of channels the sigmoid of the first two, and of
    number `coords` unless there is a `background`; with `softmax`, the softmax of what follows. All others stay."""
    n.need_rank(x, 4)
    g, (batch, channels, height, width) = n.g, x.dims
    groups, classes, coords = (n.int(name) for name in ("n", "classes", "coords"))
    background, softmax = n.bool("background", False), n.bool("softmax", False)
    size = classes + coords + 1
    if groups < 1 or classes < 1 or coords < 2 or channels != groups * size:
        n.fail(
            f"n = {groups} groups of {coords} coords, a confidence and {classes} classes are not the channels of "
            f"{x.spec}"
        )
    split = g.reshape(x, (batch, groups, size, height, width))
    first = coords if background else coords + 1
    parts = [
        g.op("sigmoid", composites.cut(g, split, 2, 0, 2)), composites.cut(g, split, 2, 2, coords - 2),
        *([] if background else [g.op("sigmoid", composites.cut(g, split, 2, coords, 1))]),
    ]  # fmt: skip
    rest = composites.cut(g, split, 2, first, size - first)
    parts.append(g.op("softmax", rest, axis=2) if softmax else rest)
    return g.reshape(composites.concat(g, parts, 2), x.dims)
