"""Region proposals (Ren et al., "Faster R-CNN", 2015, section 3.1), as MXNet has them. See `lightnet_nnvm/node.py`."""

from __future__ import annotations

import numpy as np

from lightnet.frontends import composites
from lightnet.frontends.graph import Value
from lightnet_nnvm import boxes
from lightnet_nnvm.node import Lazy, Node, nnvm_op


@nnvm_op(
    "_contrib_Proposal", "Proposal", "_contrib_MultiProposal", "MultiProposal", lazy=(1, 2), outputs=("output", "score")
)
def proposal(n: Node, scores: Value, deltas: Value | Lazy, info: Value | Lazy) -> tuple[Value, Value]:
    """The `rpn_post_nms_top_n` regions (number of the picture, left, top, right, bottom) of each picture that are best
    and overlap by at most `threshold`, and their scores; where there are fewer, they are repeated in turn.

    `scores` [B, 2 A, H, W] has those of the background first, `deltas` is [B, 4 A, H, W], `info` [B, 3] has the height,
    width and scale of the pictures. MXNet refuses a picture that is larger than the map when it runs; here all of the
    map counts then.
    """
    g = n.g
    n.need_rank(scores, 4)
    batch, channels, height, width = scores.dims
    kinds = _anchors(n)
    if channels != 2 * len(kinds) or not height * width:
        n.fail(
            f"its cls_prob {scores.spec} should have two channels for each of the {len(kinds)} anchors that its ratios "
            "and scales make, and be not empty"
        )
    if batch != 1 and "Multi" not in n.op:
        n.fail(f"takes one picture, but gets {batch}: _contrib_MultiProposal takes more")
    deltas = n.fixed(deltas, (batch, 2 * channels, height, width), scores)
    info = n.fixed(info, (batch, 3), scores)
    count, wanted = height * width * len(kinds), n.int("rpn_post_nms_top_n", 300)
    if wanted < 1:
        n.fail(f"its rpn_post_nms_top_n should be above 0, but is {wanted}")
    best = n.int("rpn_pre_nms_top_n", 6000)
    best = min(best, count) if best > 0 else count
    regions = _regions(n, kinds, deltas, info)
    score = g.reshape(g.transpose(composites.cut(g, scores, 1, len(kinds), len(kinds)), (0, 2, 3, 1)), (batch, count))
    regions, score = _filtered(n, regions, score, info, (height, width, len(kinds)))
    score, order = g.op("topk", score, axis=1, k=best, largest=True, sorted=True)
    regions = boxes.in_order(n, regions, order)
    everything = composites.full(g, (batch, best), 1, "i1")
    gone = boxes.suppressed_flags(n, regions, everything, None, n.float("threshold", 0.7), pixels=True)
    order, stays = boxes.fronted(n, g.op("logical_not", gone), min(wanted, best))
    turn = g.op("mod", boxes.positions(n, wanted), boxes.how_many(n, stays))  # the first one always stays
    chosen = g.op("take_along", order, g.cast(turn, "i64"), axis=1)
    numbers = composites.expand(g, g.constant(np.arange(batch).reshape(batch, 1, 1), scores.dtype), (batch, wanted, 1))
    found = composites.concat(g, [numbers, boxes.in_order(n, regions, chosen)], 2)
    values = g.op("take_along", score, chosen, axis=1)
    return g.reshape(found, (batch * wanted, 5)), g.reshape(values, (batch * wanted, 1))


def _anchors(n: Node) -> np.ndarray:
    """Corners [A, 4] of the anchors of the first cell: for each ratio, each scale. In f32, since MXNet rounds them down
    there."""
    scales, ratios = n.floats("scales", (4.0, 8.0, 16.0, 32.0)), n.floats("ratios", (0.5, 1.0, 2.0))
    stride = n.int("feature_stride", 16)
    if stride < 1 or not scales or not ratios or min(ratios) <= 0 or min(scales) <= 0:
        n.fail("'feature_stride', 'scales' and 'ratios' should be above 0")
    n.bounded(len(scales) * len(ratios))
    ratio, scale = (np.float32(v) for v in np.meshgrid(ratios, scales, indexing="ij"))
    area, half, one = np.float32(stride) * np.float32(stride), np.float32(0.5), np.float32(1)
    wide = np.floor(np.sqrt(np.floor(area / ratio)) + half) * scale
    tall = np.floor(wide / scale * ratio + half) * scale
    centre = half * np.float32(stride - 1)
    reach = [(half * (size - one)).ravel() for size in (wide, tall)]
    return np.stack([centre - reach[0], centre - reach[1], centre + reach[0], centre + reach[1]], axis=1)


def _regions(n: Node, kinds: np.ndarray, deltas: Value, info: Value) -> Value:
    """Anchors of all cells (row by row; of a cell, kind by kind) moved by deltas, inside of the picture: corners [B, H
    W A, 4]."""
    g, (batch, _, height, width) = n.g, deltas.dims
    count, stride = height * width * len(kinds), n.int("feature_stride", 16)
    n.bounded(4 * count)
    shifts = np.stack(np.meshgrid(np.arange(width), np.arange(height)), axis=-1).reshape(-1, 1, 2) * stride
    anchors = (kinds + np.tile(shifts, 2)).reshape(1, count, 4).astype(np.float32)
    split = g.reshape(deltas, (batch, len(kinds), 4, height, width))
    moves = g.reshape(g.transpose(split, (0, 3, 4, 1, 2)), (batch, count, 4))
    if n.bool("iou_loss", False):
        corners = g.op("add", moves, g.constant(anchors, moves.dtype))
    else:
        size = anchors[..., 2:] - anchors[..., :2] + 1
        sizes, centres = (g.constant(x, moves.dtype) for x in (size, anchors[..., :2] + (size - 1) / 2))
        middle = g.op("add", g.op("mul", boxes.column(n, moves, 0, 2), sizes), centres)
        stretched = g.op("mul", g.op("exp", boxes.column(n, moves, 2, 2)), sizes)
        reach = g.op("mul", g.op("sub", stretched, n.scalar(1, moves)), n.scalar(0.5, moves))
        corners = boxes.around(n, middle, reach)
    ends = composites.concat(g, [composites.cut(g, info, 1, k, 1) for k in (1, 0, 1, 0)], 1)
    limit = g.op("sub", g.reshape(ends, (batch, 1, 4)), n.scalar(1, info))
    return g.op("maximum", g.op("minimum", corners, limit), n.scalar(0, corners))


def _filtered(n: Node, regions: Value, score: Value, info: Value, cells: tuple[int, int, int]) -> tuple[Value, Value]:
    """Regions and scores, where the score of a region of a cell outside of the picture, and of one that is smaller than
    `rpn_min_size`, is -1; the latter has grown by that size."""
    g, batch = n.g, regions.dims[0]
    scale = g.reshape(composites.cut(g, info, 1, 2, 1), (batch, 1, 1))
    least = g.op("mul", scale, n.scalar(n.int("rpn_min_size", 16), scale))
    low, high = boxes.column(n, regions, 0, 2), boxes.column(n, regions, 2, 2)
    size = g.op("add", g.op("sub", high, low), n.scalar(1, regions))
    is_small = g.op("less", g.op("reduce_min", size, axes=(2,)), least)
    margin = g.op("mul", least, n.scalar(0.5, least))
    grown = composites.concat(g, [g.op("sub", low, margin), g.op("add", high, margin)], 2)
    regions = g.op("where", is_small, grown, regions)
    bad = g.reshape(is_small, score.dims)
    stride = n.scalar(n.int("feature_stride", 16), info)
    height, width, kinds = cells
    for k, place in enumerate(np.indices((height, width))):
        last = g.op("floor", g.op("div", composites.cut(g, info, 1, k, 1), stride))
        here = g.constant(np.repeat(place.reshape(1, -1), kinds, axis=1), score.dtype)
        bad = g.op("bit_or", bad, g.op("less_equal", last, here))
    return regions, g.op("where", bad, n.scalar(-1, score), score)
