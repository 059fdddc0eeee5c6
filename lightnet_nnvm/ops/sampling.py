"""Sampling of pictures at computed places: MXNet's samplers and region pooling. See `lightnet_nnvm/node.py`."""

from __future__ import annotations

import numpy as np

from lightnet.frontends import composites
from lightnet.frontends.graph import Value
from lightnet_nnvm.node import Node, nnvm_op


@nnvm_op("BilinearSampler")
def bilinear_sampler(n: Node, x: Value, grid: Value) -> Value:
    """A picture at the places `grid` [N, 2 (x, y), H, W]: -1 and 1 are the centres of the outermost elements, outside
    is 0."""
    n.need_rank(x, 4)
    n.need_rank(grid, 4)
    places = n.g.transpose(grid, (0, 2, 3, 1))
    return n.g.op("grid_sample", x, places, mode="linear", padding_mode="zeros", align_corners=True)


@nnvm_op("GridGenerator")
def grid_generator(n: Node, x: Value) -> Value:
    """Places [N, 2, H, W] from affine maps [N, 6], or from how far each element moves ([N, 2, H, W], in elements)."""
    if n.choice("transform_type", "affine", "warp") == "affine":
        return _affine_grid(n, x)
    n.need_rank(x, 4)
    height, width = x.dims[2:]
    base = _positions(n, np.arange(n.bounded(height)), np.arange(n.bounded(width)))
    scale = np.reshape([2 / max(width - 1, 1), 2 / max(height - 1, 1)], (1, 2, 1, 1))
    moved = n.g.op("add", x, n.g.constant(base[None], x.dtype))
    return n.g.op("sub", n.g.op("mul", moved, n.g.constant(scale, x.dtype)), n.scalar(1, x))


@nnvm_op("SpatialTransformer")
def spatial_transformer(n: Node, x: Value, maps: Value) -> Value:
    n.choice("transform_type", "affine")
    n.choice("sampler_type", "bilinear")
    return bilinear_sampler(n, x, _affine_grid(n, maps))


def _affine_grid(n: Node, maps: Value) -> Value:
    """[N, 2, H, W]: maps [N, 2, 3] times (x, y, 1) of each place of the result."""
    size = n.ints("target_shape")
    if maps.len != maps.dims[0] * 6 if maps.ndim else True:
        n.fail(f"takes affine maps of six numbers, but gets {list(maps.dims)}")
    if len(size) != 2 or min(size) < 1:
        n.fail(f"a target_shape of {list(size)} is not possible")
    n.bounded(size[0] * size[1])
    positions = _positions(n, *(np.linspace(-1, 1, k) for k in size)).reshape(2, -1)
    homogeneous = np.concatenate([positions, np.ones((1, positions.shape[1]))])
    batch = maps.dims[0]
    product = n.g.op("matmul", n.g.reshape(maps, (batch, 2, 3)), n.g.constant(homogeneous, maps.dtype))
    return n.g.reshape(product, (batch, 2, *size))


def _positions(n: Node, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """x and y of every place: [2, rows, columns]."""
    n.bounded(len(rows) * len(columns))
    return np.stack([np.broadcast_to(columns, (len(rows), len(columns))), np.repeat(rows[:, None], len(columns), 1)])


@nnvm_op("_contrib_ROIAlign", "ROIAlign", "_npx_roi_align")
def roi_align(n: Node, x: Value, rois: Value) -> Value:
    """Regions (number of the picture, left, top, right, bottom) pooled to `pooled_size`."""
    batch, corners = _regions(n, x, rois)
    if n.bool("position_sensitive", False):
        n.unsupported("position-sensitive regions")
    size = n.per_axis("pooled_size", 2, 1)
    return n.g.op("roi_align", x, corners, batch, height=size[0], width=size[1], scale=n.float("spatial_scale"),
                  sampling_ratio=max(n.int("sample_ratio", -1), 0), half_pixel=n.bool("aligned", False),
                  mode="avg")  # fmt: skip


@nnvm_op("ROIPooling", "_npx_roi_pooling")
def roi_pooling(n: Node, x: Value, rois: Value) -> Value:
    """The largest element of each part of regions (number of the picture, left, top, right, bottom); 0 of empty
    ones."""
    batch, corners = _regions(n, x, rois)
    size = n.ints("pooled_size")
    if len(size) != 2 or min(size) < 1:
        n.fail(f"its pooled_size should be two numbers above 0, but is {size}")
    return n.g.op("roi_pool", x, corners, batch, height=size[0], width=size[1], scale=n.float("spatial_scale"))


def _regions(n: Node, x: Value, rois: Value) -> tuple[Value, Value]:
    """The numbers of the pictures [R], and the corners [R, 4], of regions [R, 5] of a picture."""
    n.need_rank(x, 4)
    if rois.ndim != 2 or rois.dims[1] != 5:
        n.fail(f"takes regions of five numbers, but gets {list(rois.dims)}")
    batch = n.g.reshape(n.g.cast(composites.cut(n.g, rois, 1, 0, 1), "i64"), rois.dims[:1])
    return batch, composites.cut(n.g, rois, 1, 1, 4)
