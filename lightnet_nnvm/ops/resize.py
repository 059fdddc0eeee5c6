"""Resampling of pictures, of MXNet and NNVM. See `lightnet_nnvm/node.py`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lightnet.frontends import resampling
from lightnet.frontends.graph import Value
from lightnet.frontends.windows import SpatialWindow, transposed_convolution
from lightnet_nnvm.node import Lazy, Node, nnvm_op
from lightnet_nnvm.ops.slicing import joined


def linear(n: Node, x: Value, size: Sequence[int], mode: str) -> Value:
    """A picture [N, C, H, W] interpolated to `size`; `mode` maps coordinates (`resampling`)."""
    for axis, length in zip((2, 3), size):
        if length < 1:
            n.fail(f"a picture of {list(size)} is not possible")
        if n.bounded(length) != x.dims[axis]:
            scale = length / x.dims[axis]
            at = resampling.coordinates(mode, x.dims[axis], length, scale)
            x = resampling.interpolate(n.g, x, axis, *resampling.bounded_taps(n.g, at, x.dims[axis], scale, "linear"))
    return x


def _nearest(n: Node, x: Value, size: Sequence[int]) -> Value:
    """The nearest elements: floor of the coordinate."""
    tables = {}
    for axis, length in zip((2, 3), size):
        if length < 1:
            n.fail(f"a picture of {list(size)} is not possible")
        n.bounded(x.dims[axis] + length)
        at = resampling.coordinates("asymmetric", x.dims[axis], length, length / x.dims[axis])
        tables[axis] = resampling.nearest_elements(at, x.dims[axis], "floor")
    return resampling.nearest(n.g, x, tables)


@nnvm_op("UpSampling", lazy=(1,))
def upsampling_mxnet(n: Node, *xs: Value | Lazy) -> Value:
    """`nearest` repeats each element `scale` times, and brings further inputs to the size of the first result;
    `bilinear` is a transposed convolution under its second input."""
    scale, x = n.int("scale"), xs[0]
    if not isinstance(x, Value) or scale < 1:
        n.fail("needs a picture of known shape and a scale of 1 or more")
    n.need_rank(x, 4)
    if n.choice("sample_type", "nearest", "bilinear") == "bilinear":
        if len(xs) != 2:
            n.fail("bilinear sampling needs a weight")
        kernel, channels, pad = 2 * scale - scale % 2, x.dims[1], -(-(scale - 1) // 2)
        weight = n.fixed(xs[1], (channels, 1, kernel, kernel), x)
        window = SpatialWindow((kernel, kernel), (scale, scale), (1, 1), (pad,) * 4)
        return transposed_convolution(n.g, x, weight, None, window, (0, 0), channels)
    size = [d * scale for d in x.dims[2:]]
    if any(isinstance(y, Lazy) for y in xs):
        n.fail("the shapes of its inputs follow from nothing: give them with --shape")
    parts = [_nearest(n, y, size) for y in xs if isinstance(y, Value)]
    if n.choice("multi_input_mode", "concat", "sum") == "concat":
        return joined(n, parts, 1)
    total = parts[0]
    for part in parts[1:]:
        total = n.g.op("add", total, part)
    return total


@nnvm_op("upsampling", "resize")
def resize(n: Node, x: Value) -> Value:
    """By a whole factor, or to a size."""
    n.need_rank(x, 4)
    layout = n.choice("layout", "NCHW", "NHWC")
    picture = x if layout == "NCHW" else n.g.transpose(x, (0, 3, 1, 2))
    method = n.choice("method", "NEAREST_NEIGHBOR", "BILINEAR")
    if n.op == "upsampling":
        scale = n.int("scale")
        size = tuple(d * scale for d in picture.dims[2:])
    elif len(size := n.ints("size")) != 2:
        n.fail(f"its size should be two numbers, but is {list(size)}")
    if method == "NEAREST_NEIGHBOR":
        picture = _nearest(n, picture, size)
    else:
        aligned = n.bool("align_corners", n.op == "resize")
        picture = linear(n, picture, size, "align_corners" if aligned else "half_pixel")
    return picture if layout == "NCHW" else n.g.transpose(picture, (0, 2, 3, 1))


@nnvm_op("_contrib_BilinearResize2D")
def bilinear_resize(n: Node, x: Value, like: Value | None = None) -> Value:
    n.need_rank(x, 4)
    mode = n.choice("mode", "size", "like")
    if mode == "like":
        if like is None:
            n.fail("mode=like needs a second input")
        size = like.dims[2:]
    else:
        scales = (n.float("scale_height", None), n.float("scale_width", None))
        size = tuple(int(d * s) if s is not None else n.int(name, 1) for d, s, name in
                     zip(x.dims[2:], scales, ("height", "width")))  # fmt: skip
    return linear(n, x, size, "align_corners" if n.bool("align_corners", True) else "half_pixel")


@nnvm_op("_contrib_AdaptiveAvgPooling2D")
def adaptive_average(n: Node, x: Value) -> Value:
    """Output i is the mean of the elements from floor(i * n / m) to before ceil((i + 1) * n / m), along each axis."""
    n.need_rank(x, 4)
    size = n.ints("output_size", ()) or (1, 1)
    size = size * 2 if len(size) == 1 else size
    if len(size) != 2 or min(size) < 1:
        n.fail(f"an output of size {list(size)} is not possible")
    if size == (1, 1):
        return n.g.op("reduce_mean", x, axes=(2, 3))
    for axis, length in zip((2, 3), size):
        d = x.dims[axis]
        n.bounded(length * (d // length + 2))
        starts, stops = (np.arange(length) * d) // length, -((-np.arange(1, length + 1) * d) // length)
        index = starts[:, None] + np.arange((stops - starts).max())
        weight = (index < stops[:, None]) / (stops - starts)[:, None]
        if length != d:
            x = resampling.interpolate(n.g, x, axis, np.minimum(index, d - 1), weight)
    return x
