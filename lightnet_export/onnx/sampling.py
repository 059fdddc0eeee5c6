"""ONNX exporters of ops that sample pictures between their elements, and of the heads of detectors. See `graph.py`."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from lightnet.runtime.dtypes import BY_NAME, DType
from lightnet_export.onnx.graph import WIDE_FLOATS, ExportGraph, exporter, unsupported

if TYPE_CHECKING:
    from lightnet.dialects.ln.detection import DetectYolov3, Submean, TransformBboxSQD
    from lightnet.dialects.ln.regions import RoiAlign, RoiPool
    from lightnet.dialects.ln.resize import Interpolate
    from lightnet.dialects.ln.spatial import GridSample

_F64, _I64, _I32 = BY_NAME["f64"], BY_NAME["i64"], BY_NAME["i32"]
_MAX = np.iinfo(np.int64).max


@exporter("interpolate")
def interpolate(g: ExportGraph, op: Interpolate, src: str, index: str, weight: str) -> str:
    """All taps side by side, weighted and summed."""
    spec, table = op.operand_specs[:2]
    _, (x,), back = g.widened(spec.dtype, WIDE_FLOATS, src)
    taken = g.node("Gather", x, g.within(index, _I32, 0, spec.dims[op.axis] - 1), axis=op.axis)
    weights = g.reshape(weight, [*table.dims, *(1,) * (spec.ndim - 1 - op.axis)])
    return back(g.node("ReduceSum", g.node("Mul", taken, weights), g.ints([op.axis + 1]), keepdims=0))


@exporter("grid_sample")
def grid_sample(g: ExportGraph, op: GridSample, src: str, grid: str) -> str:
    """GridSample, of opset 20 (18 has other names of the modes, and no volumes); a signal is a picture of one row."""
    g.needs(20)
    spec, out = op.operand_specs[0], op.result_specs[0].dims[2:]
    wide, (x, points), back = g.widened(spec.dtype, WIDE_FLOATS, src, grid)
    sizes, align = list(spec.dims[2:]), op.align_corners
    if op.mode == "cubic" and len(sizes) > 2:
        raise unsupported(op, "ONNX's GridSample has no cubic mode for volumes")
    if not op.normalized:
        align = op.align_corners and op.padding_mode == "reflection"  # which alone asks where the ends are
        points = _normalized(g, wide, points, sizes[::-1], align)
    if len(sizes) == 1:
        zero = g.full(op.operand_specs[1].dims, 0, wide)
        points, sizes = g.node("Concat", points, zero, axis=op.operand_specs[1].ndim - 1), [1, *sizes]
        x = g.reshape(x, [*spec.dims[:2], *sizes])
    rows = [prod(out), *(1,) * (len(sizes) - 1)] if len(out) != len(sizes) else list(out)
    points = g.reshape(points, [spec.dims[0], *rows, len(sizes)])
    found = g.node("GridSample", x, points, mode=op.mode, padding_mode=op.padding_mode, align_corners=int(align))
    return back(g.reshape(found, op.result_specs[0].dims) if rows != list(out) else found)


def _normalized(g: ExportGraph, dtype: DType, points: str, sizes: list[int], align: bool) -> str:
    """Positions, element i at i, as coordinates from -1 to 1; `sizes` are of the last axis first."""
    n = np.asarray(sizes, np.float64)
    if align:  # 2 p / (n - 1) - 1; of an axis of one element, whatever is outside is reflected to it
        scale, shift = np.where(n > 1, 2 / np.maximum(n - 1, 1), 0), np.full(len(sizes), -1.0)
    else:  # (2 p + 1) / n - 1
        scale, shift = 2 / n, 1 / n - 1
    return g.node("Add", g.node("Mul", points, g.const(scale, dtype)), g.const(shift, dtype))


@exporter("roi_align")
def roi_align(g: ExportGraph, op: RoiAlign, src: str, rois: str, batch: str) -> str:
    inside = g.within(batch, _I64, 0, max(op.operand_specs[0].dims[0] - 1, 0))
    half = "half_pixel" if op.half_pixel else "output_half_pixel"
    found = g.node("RoiAlign", src, rois, inside, coordinate_transformation_mode=half, mode=op.mode,
                   output_height=op.height, output_width=op.width, sampling_ratio=op.sampling_ratio,
                   spatial_scale=float(op.scale))  # fmt: skip
    regions, dtype = op.operand_specs[1].dims[0], op.operand_specs[0].dtype
    is_none = g.reshape(g.node("Less", batch, g.const(0, _I64)), [regions, 1, 1, 1])  # a region of no picture is 0
    return g.node("Where", is_none, g.const(0, dtype), found)


@exporter("roi_pool")
def roi_pool(g: ExportGraph, op: RoiPool, src: str, rois: str, batch: str) -> str:
    """MaxRoiPool, whose regions begin with the number of the picture. ONNX has no regions of no picture: those that are
    of none are pooled from the first, and then 0."""
    spec, last = op.operand_specs[0], op.operand_specs[0].dims[0] - 1
    inside = g.within(batch, _I64, 0, max(last, 0))
    numbers = g.reshape(g.cast(inside, _I64, spec.dtype), [op.operand_specs[1].dims[0], 1])
    found = g.node("MaxRoiPool", src, g.node("Concat", numbers, rois, axis=1), pooled_shape=[op.height, op.width],
                   spatial_scale=float(op.scale))  # fmt: skip
    is_there = g.reshape(g.node("Equal", inside, batch), [op.operand_specs[1].dims[0], 1, 1, 1])
    return g.node("Where", is_there, found, g.const(0, spec.dtype))


@exporter("submean")
def submean(g: ExportGraph, op: Submean, src: str) -> str:
    channels_first = g.node("Transpose", g.cast(src, op.operand_specs[0].dtype, _F64), perm=[2, 0, 1])
    centred = g.node("Sub", channels_first, g.const(np.reshape(op.mean, (3, 1, 1)), _F64))
    return g.convert(centred, _F64, op.result_specs[0].dtype)


@exporter("transform_bboxSQD")
def transform_bbox(g: ExportGraph, op: TransformBboxSQD, delta: str, anchor: str) -> str:
    """Both coordinates at once, in the last axis: (x, y) of the centre, (w, h) of the size."""
    dtype = op.operand_specs[0].dtype

    def pair(x: float, y: float) -> str:
        return g.const([x, y], dtype)

    d_xy, d_wh = g.slice(delta, 4, 0, 2), g.slice(delta, 4, 2, _MAX)
    a_xy, a_wh = g.slice(anchor, 4, 0, 2), g.slice(anchor, 4, 2, _MAX)
    scale = pair(op.img_width / op.width, op.img_height / op.height)
    centre = g.node("Mul", g.node("Add", a_xy, g.node("Mul", d_xy, a_wh)), scale)
    centre = g.node("Add", centre, pair(op.x_shift, op.y_shift))
    steep = g.node("Mul", d_wh, g.const(2.718281828, dtype))
    growth = g.node("Where", g.node("Less", d_wh, g.const(1, dtype)), g.node("Exp", d_wh), steep)
    half = g.node("Mul", g.node("Mul", g.node("Mul", a_wh, scale), growth), g.const(0.5, dtype))
    limit = pair(op.img_width - 1, op.img_height - 1)
    corners = [g.clamp(g.node(side, centre, half), g.const(0, dtype), limit) for side in ("Sub", "Add")]
    return g.node("Concat", *corners, axis=4)


@exporter("detect_yolov3")
def detect_yolov3(g: ExportGraph, op: DetectYolov3, feature: str, anchors: str) -> list[str]:
    spec, count = op.operand_specs[0], op.operand_specs[1].dims[0]
    n, c, h, w = spec.dims
    dtype = spec.dtype
    t = g.reshape(feature, [n, count, c // count, h, w])
    cells = np.stack(np.broadcast_arrays(np.arange(w), np.arange(h)[:, None]))
    step = g.const(np.reshape([op.img_width / w, op.img_height / h], (2, 1, 1)), dtype)
    centers = g.node("Mul", g.node("Add", g.node("Sigmoid", g.slice(t, 2, 0, 2)), g.const(cells, dtype)), step)
    growth = g.clamp(g.node("Exp", g.slice(t, 2, 2, 4)), g.const(1e-9, dtype), g.const(50, dtype))
    sizes = g.node("Mul", growth, g.reshape(anchors, [1, count, 2, 1, 1]))
    half = g.node("Mul", sizes, g.const(0.5, dtype))
    boxes = g.node("Concat", g.node("Sub", centers, half), g.node("Add", centers, half), axis=2)
    confs = g.node("Sigmoid", g.slice(t, 2, 4, 5))
    return [centers, sizes, boxes, confs, g.node("Sigmoid", g.slice(t, 2, 5, _MAX))]
