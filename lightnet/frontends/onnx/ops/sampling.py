"""Ops of ONNX that read a picture where another tensor says. Imports the table of handlers."""

from __future__ import annotations

from math import prod

import numpy as np

from lightnet.frontends import composites
from lightnet.frontends.graph import Value
from lightnet.frontends.onnx.node import Node, onnx_op
from lightnet.frontends.onnx.ops.nn import weighted_window
from lightnet.frontends.windows import SpatialWindow


def _common(n: Node, *values: Value) -> str:
    """The name of the widest of the types of several float tensors."""
    if not all(v.dtype.is_float for v in values):
        n.unsupported("sampling of integers")
    names = {v.dtype.name for v in values}
    return "f64" if "f64" in names else names.pop() if len(names) == 1 else "f32"


@onnx_op("GridSample")
def grid_sample(n: Node, x: Value, grid: Value) -> Value:
    """A picture at the points of a grid."""
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(n.string("mode", "linear"), n.string("mode", "linear"))
    wide = _common(n, x, grid)
    y = n.g.op("grid_sample", n.g.cast(x, wide), n.g.cast(grid, wide), mode=mode,
               padding_mode=n.string("padding_mode", "zeros"),
               align_corners=bool(n.int("align_corners", 0)))  # fmt: skip
    return n.g.cast(y, x.dtype)


@onnx_op("RoiAlign")
def roi_align(n: Node, x: Value, rois: Value, batch: Value) -> Value:
    """Regions of a picture as maps of one size."""
    mapping = n.string("coordinate_transformation_mode", "half_pixel" if n.opset >= 16 else "output_half_pixel")
    if mapping not in ("half_pixel", "output_half_pixel"):
        n.fail(f"coordinate_transformation_mode is '{mapping}'; there are half_pixel and output_half_pixel")
    wide = "f64" if x.dtype.name == "f64" else "f32"
    y = n.g.op("roi_align", n.g.cast(x, wide), n.g.cast(rois, wide), n.g.cast(batch, "i64"),
               mode=n.string("mode", "avg"),
               height=n.int("output_height", 1), width=n.int("output_width", 1), scale=n.float("spatial_scale", 1.0),
               sampling_ratio=n.int("sampling_ratio", 0), half_pixel=mapping == "half_pixel")  # fmt: skip
    return n.g.cast(y, x.dtype)


@onnx_op("MaxRoiPool")
def max_roi_pool(n: Node, x: Value, rois: Value) -> Value:
    """Regions (number of the picture, left, top, right, bottom), each part's maximum."""
    size = n.ints("pooled_shape")
    if x.ndim != 4 or rois.ndim != 2 or rois.dims[1] != 5 or len(size) != 2:
        n.fail(
            f"takes a picture of rank 4, regions of five numbers and a pooled_shape of two, not {x.spec}, {rois.spec} "
            f"and {size}"
        )
    wide = "f64" if x.dtype.name == "f64" else "f32"
    given = n.g.cast(rois, wide)
    batch = n.g.reshape(n.g.cast(composites.cut(n.g, given, 1, 0, 1), "i64"), rois.dims[:1])
    y = n.g.op("roi_pool", n.g.cast(x, wide), composites.cut(n.g, given, 1, 1, 4), batch, height=size[0], width=size[1],
               scale=n.float("spatial_scale", 1.0))  # fmt: skip
    return n.g.cast(y, x.dtype)


@onnx_op("DeformConv")
def deform_conv(n: Node, x: Value, w: Value, offset: Value, b: Value | None = None, mask: Value | None = None) -> Value:
    """A convolution whose taps stand where `offset` moves them: the samples, one for each tap, times the weights."""
    g = n.g
    if x.ndim != 4 or w.ndim != 4 or offset.ndim != 4:
        n.unsupported("other pictures than those with two axes")
    batch, channels, *_ = x.dims
    outputs, per_group, *_ = w.dims
    rows, columns = offset.dims[2:]
    window = weighted_window(n, x, w)
    group, offsets, taps = n.int("group", 1), n.int("offset_group", 1), prod(window.size)
    fits = channels == per_group * group and outputs % group == 0 and offsets > 0 and channels % offsets == 0
    if not fits or offset.dims[:2] != (batch, offsets * taps * 2):
        n.fail(
            f"its inputs {x.spec}, {w.spec} and {offset.spec} do not fit for group {group} and offset_group {offsets}"
        )
    moved = g.transpose(g.reshape(offset, (batch * offsets, taps, 2, rows, columns)), (0, 1, 3, 4, 2))
    moved = g.op("take", moved, g.constant([1, 0], "i64"), axis=4)  # (y, x) as (x, y)
    points = g.op("add", moved, g.constant(_taps(n, window, rows, columns), x.dtype))
    picture = g.reshape(x, (batch * offsets, channels // offsets, *x.dims[2:]))
    values = g.op("grid_sample", picture, points, normalized=False)
    if mask is not None:
        values = g.op("mul", values, g.reshape(mask, (batch * offsets, 1, taps, rows, columns)))
    values = g.reshape(values, (batch, group, per_group * taps, rows * columns))
    result = g.op("matmul", g.reshape(w, (1, group, outputs // group, per_group * taps)), values)
    result = g.reshape(result, (batch, outputs, rows, columns))
    return result if b is None else g.op("add", result, g.reshape(b, (outputs, 1, 1)))


def _taps(n: Node, window: SpatialWindow, rows: int, columns: int) -> np.ndarray:
    """The places where the taps of each output element stand if nothing moves them: [1, taps, rows, columns, (x,
    y)].
    """
    n.g.bounded(2 * prod(window.size) * rows * columns, "a table of points")
    along = [np.arange(count) * s - p for count, s, p in zip((rows, columns), window.stride, window.begins)]
    tap = [np.arange(k) * d for k, d in zip(window.size, window.dilation)]
    y = tap[0][:, None, None, None] + along[0][:, None]
    x = tap[1][:, None, None] + along[1]
    y, x = np.broadcast_arrays(y, x)  # [kh, kw, rows, columns]
    return np.stack([x, y], axis=-1).reshape(1, -1, rows, columns, 2)
