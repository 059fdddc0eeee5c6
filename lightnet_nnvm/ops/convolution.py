"""Convolutions, their transposes, dense layers and pools: MXNet's and NNVM's. See `lightnet_nnvm/node.py`.

Data of another layout than channels first is transposed there and back, and so are weights; both settle down to the
channels-first ops. One spatial dimension is a picture of height 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod

import numpy as np

from lightnet.dataclasses import dataclass, replace
from lightnet.frontends.graph import Value
from lightnet.frontends.windows import SpatialWindow, average_pool, convolution, max_pool, transposed_convolution
from lightnet_nnvm.node import Lazy, Node, nnvm_op

Param = Value | Lazy


class _Layout:
    """The places of the axes: `name` is a layout like NHWC, of data with batch N, channels C and spatial axes D, H,
    W.
    """

    def __init__(self, n: Node, name: str | None, ndim: int, attribute: str = "layout"):
        plain = "NC" + "DHW"[5 - ndim :] if 3 <= ndim <= 5 else ""
        self.name, self.plain = name or plain, plain
        if not plain:
            n.fail(f"takes a tensor of rank 3, 4 or 5, but gets one of rank {ndim}")
        if sorted(self.name) != sorted(plain):
            n.unsupported(f"its attribute '{attribute}' is {self.name[:20]!r} on tensors of rank {ndim}")

    def to_plain(self, n: Node, x: Value) -> Value:
        return n.g.transpose(x, [self.name.index(c) for c in self.plain])

    def from_plain(self, n: Node, x: Value) -> Value:
        return n.g.transpose(x, [self.plain.index(c) for c in self.name])


def begins_and_ends(n: Node, name: str, count: int) -> tuple[int, ...]:
    """Padding of `count` spatial axes as begins then ends: NNVM writes one number for all, one an axis, or both for
    each."""
    found = n.ints(name, ())
    if len(found) == 2 * count and count > 1:
        return found
    pad = n.per_axis(name, count, 0)
    return (*pad, *pad)


def weight_of(n: Node, w: Param, dims: Sequence[int], layout: str, plain: str, like: Value) -> Value:
    """A weight whose dims are `dims` in the layout `plain`, and which is stored in `layout`."""
    if sorted(layout) != sorted(plain):
        n.unsupported(f"the weights' layout is {layout[:20]!r}")
    stored = n.fixed(w, [dims[plain.index(c)] for c in layout], like)
    return n.g.transpose(stored, [layout.index(c) for c in plain])


def bias_of(n: Node, bias: Param | None, count: int, like: Value) -> Value | None:
    return None if bias is None else n.fixed(bias, (count,), like)


# -- convolutions -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Words:
    """The words of a dialect for the attributes of a convolution, and whether it pads both sides alike."""

    kernel: str
    outputs: str
    group: str
    stride: str
    dilation: str
    padding: str
    extra: str
    symmetric: bool


_MXNET = _Words("kernel", "num_filter", "num_group", "stride", "dilate", "pad", "adj", True)
_NNVM = _Words("kernel_size", "channels", "groups", "strides", "dilation", "padding", "output_padding", False)


class _Convolution:
    """A convolution or the transpose of one, with its data `x` channels first."""

    def __init__(self, n: Node, x: Value, words: _Words):
        self.n, self.kernel = n, n.ints(words.kernel)
        self.layout = _Layout(n, n.string("layout", None), x.ndim)
        self.plain = "OI" + self.layout.plain[2:]
        self.x = self.layout.to_plain(n, x)
        axes = _spatial(n, self.x, self.kernel)
        self.outputs, self.group = n.int(words.outputs), n.int(words.group, 1)
        _check_groups(n, self.x, self.outputs, self.group)
        padding = n.per_axis(words.padding, axes, 0) * 2 if words.symmetric else begins_and_ends(n, words.padding, axes)
        stride, dilation = n.per_axis(words.stride, axes, 1), n.per_axis(words.dilation, axes, 1)
        self.window, self.extra = (
            SpatialWindow(self.kernel, stride, dilation, padding),
            n.per_axis(words.extra, axes, 0),
        )

    def direct(self, weight: Param, stored: str, bias: Param | None) -> Value:
        """The convolution; the weights [out, in/group, ...] are stored in the layout `stored`."""
        n, x = self.n, self.x
        w = weight_of(n, weight, (self.outputs, x.dims[1] // self.group, *self.kernel), stored, self.plain, x)
        y = convolution(n.g, x, w, bias_of(n, bias, self.outputs, x), self.window, self.group)
        return self.layout.from_plain(n, y)

    def transposed(self, weight: Param, stored: str, bias: Param | None) -> Value:
        """The transpose; its weights are [in, out/group, ...], which NNVM calls OIHW, as those of conv2d."""
        n, x = self.n, self.x
        w = weight_of(n, weight, (x.dims[1], self.outputs // self.group, *self.kernel), stored, self.plain, x)
        bias = bias_of(n, bias, self.outputs, x)
        y = transposed_convolution(n.g, x, w, bias, self.window, self.extra, self.group)
        return self.layout.from_plain(n, y)


@nnvm_op("Convolution", "Convolution_v1", params=(1, 2))
def convolution_mxnet(n: Node, x: Value, weight: Param, bias: Param | None = None) -> Value:
    """With channels last, MXNet stores weights in the layout of the data, outputs in the place of the batch."""
    c = _Convolution(n, x, _MXNET)
    stored = c.layout.name.replace("N", "O").replace("C", "I")
    return c.direct(weight, stored, None if n.bool("no_bias", False) else bias)


@nnvm_op("conv1d", "conv2d", "conv3d", params=(1, 2))
def conv2d(n: Node, x: Value, weight: Param, bias: Param | None = None) -> Value:
    c = _Convolution(n, x, _NNVM)
    return c.direct(weight, _kernel_layout(n, c.plain), bias if n.bool("use_bias", True) else None)


@nnvm_op("Deconvolution", params=(1, 2))
def deconvolution(n: Node, x: Value, weight: Param, bias: Param | None = None) -> Value:
    """`target_shape` decides padding and `adj`: the surplus is cut off evenly, the odd one at the end, by `adj`."""
    c = _Convolution(n, x, _MXNET)
    if c.layout.name != c.layout.plain:
        n.unsupported(f"its layout is {c.layout.name}")
    target = n.ints("target_shape", ())
    if any(target):
        if len(target) != len(c.kernel):
            n.fail(f"its attribute 'target_shape' should have {len(c.kernel)} numbers, but has {len(target)}")
        w = c.window
        full = [(s - 1) * t + (k - 1) * d + 1 for s, t, k, d in zip(c.x.dims[2:], w.stride, w.size, w.dilation)]
        surplus = [f - t for f, t in zip(full, target)]
        if min(surplus) < 0:
            n.fail(f"its 'target_shape' {list(target)} is larger than the result {full}")
        c.window = replace(w, padding=tuple(-(-s // 2) for s in surplus) * 2)
        c.extra = tuple(s % 2 for s in surplus)
    return c.transposed(weight, c.plain, None if n.bool("no_bias", True) else bias)


@nnvm_op("conv2d_transpose", "conv1d_transpose", "conv3d_transpose", params=(1, 2))
def conv2d_transpose(n: Node, x: Value, weight: Param, bias: Param | None = None) -> Value:
    c = _Convolution(n, x, _NNVM)
    return c.transposed(weight, _kernel_layout(n, c.plain), bias if n.bool("use_bias", True) else None)


def _kernel_layout(n: Node, plain: str) -> str:
    """The weights' layout; NNVM's default is the plain one, also where the text says so of two spatial dimensions."""
    found = n.string("kernel_layout", plain)
    return plain if found == "OIHW" else found


def _spatial(n: Node, x: Value, kernel: Sequence[int], stride: Sequence[int] = ()) -> int:
    """The number of spatial axes; checks the sizes of the kernel, and of the steps."""
    count = x.ndim - 2
    if min(stride, default=1) < 1:
        n.fail(f"a stride of {list(stride)} is not possible")
    if len(kernel) != count or min(kernel, default=1) < 1:
        n.fail(f"its kernel {list(kernel)} should have {count} sizes, one for each spatial axis of {list(x.dims)}")
    return count


def _check_groups(n: Node, x: Value, out: int, group: int) -> None:
    if out < 1 or group < 1 or x.dims[1] % group or n.bounded(out) % group:
        n.fail(f"{x.dims[1]} channels in and {out} out cannot be split into {group} groups")


# -- dense layers -----------------------------------------------------------------------------------------------------


@nnvm_op("FullyConnected", params=(1, 2))
def fully_connected(n: Node, x: Value, weight: Param, bias: Param | None = None) -> Value:
    flatten, out = n.bool("flatten", True), n.int("num_hidden")
    return _dense(n, x, weight, None if n.bool("no_bias", False) else bias, out, flatten)


@nnvm_op("dense", params=(1, 2))
def dense(n: Node, x: Value, weight: Param, bias: Param | None = None) -> Value:
    return _dense(n, x, weight, bias if n.bool("use_bias", True) else None, n.int("units"), False)


def _dense(n: Node, x: Value, weight: Param, bias: Param | None, out: int, flatten: bool) -> Value:
    """x . weight^T + bias over the last axis, or over all but the first."""
    if x.ndim < 1 or out < 1:
        n.fail(f"cannot make {out} outputs of {list(x.dims)}")
    lead = x.dims[:1] if flatten else x.dims[:-1]
    depth = prod(x.dims[len(lead) :])
    w, b = n.fixed(weight, (out, depth), x), bias_of(n, bias, out, x)
    rows = n.g.reshape(x, (prod(lead), depth))
    y = n.g.op("matmul", rows, n.g.transpose(w, (1, 0)))
    if b is not None:
        y = n.g.op("add", y, b)
    return n.g.reshape(y, (*lead, out))


# -- pools ------------------------------------------------------------------------------------------------------------


@nnvm_op("Pooling", "Pooling_v1")
def pooling(n: Node, x: Value) -> Value:
    layout = _Layout(n, n.string("layout", None), x.ndim)
    x = layout.to_plain(n, x)
    kind = n.choice("pool_type", "max", "avg", "sum", "lp")
    if n.bool("global_pool", False):
        return layout.from_plain(n, global_pool(n, x, kind, n.int("p_value", 2)))
    count = x.ndim - 2
    size, stride, pad = n.ints("kernel"), n.per_axis("stride", count, 1), n.per_axis("pad", count, 0)
    _spatial(n, x, size, stride)
    convention = n.choice("pooling_convention", "valid", "full", "same")
    ends = pad
    if convention == "full":
        ends = _ceil_ends(x, size, stride, (*pad, *pad))
    elif convention == "same":
        ends = tuple(max(0, (ceil(d / s) - 1) * s + k - d - p) for d, k, s, p in zip(x.dims[2:], size, stride, pad))
    y = pool(n, x, kind, size, stride, (*pad, *pad), ends, n.bool("count_include_pad", True), n.int("p_value", 2))
    return layout.from_plain(n, y)


@nnvm_op("max_pool2d", "avg_pool2d", "max_pool1d", "avg_pool1d", "max_pool3d", "avg_pool3d")
def pool2d(n: Node, x: Value) -> Value:
    layout = _Layout(n, n.string("layout", None), x.ndim)
    x = layout.to_plain(n, x)
    count = x.ndim - 2
    size, stride = n.ints("pool_size"), n.per_axis("strides", count, 1)
    _spatial(n, x, size, stride)
    pad = begins_and_ends(n, "padding", count)
    ends = _ceil_ends(x, size, stride, pad) if n.bool("ceil_mode", False) else pad[count:]
    y = pool(n, x, n.op[:3], size, stride, pad, ends, n.bool("count_include_pad", False))
    return layout.from_plain(n, y)


@nnvm_op("global_max_pool2d", "global_avg_pool2d")
def global_pool2d(n: Node, x: Value) -> Value:
    layout = _Layout(n, n.string("layout", None), x.ndim)
    x = layout.to_plain(n, x)
    return layout.from_plain(n, global_pool(n, x, n.op[7:10]))


def global_pool(n: Node, x: Value, kind: str, p: int = 2) -> Value:
    """One number for each channel."""
    axes = tuple(range(2, x.ndim))
    if kind in ("max", "avg"):
        return n.g.op("reduce_max" if kind == "max" else "reduce_mean", x, axes=axes)
    return pool(n, x, kind, x.dims[2:], p=p)


def _ceil_ends(x: Value, size: Sequence[int], stride: Sequence[int], pad: Sequence[int]) -> tuple[int, ...]:
    """The padding at the ends with which the windows reach the last element: MXNet's convention `full`."""
    count = len(size)
    begins, ends = pad[:count], pad[count:]
    full = [ceil((d + b + e - k) / s) * s + k - d - b for d, b, e, k, s in zip(x.dims[2:], begins, ends, size, stride)]
    return tuple(max(e, f) for e, f in zip(ends, full))


def pool(n: Node, x: Value, kind: str, size: Sequence[int], stride: Sequence[int] | None = None,
         pad: Sequence[int] | None = None,
         reach: Sequence[int] | None = None, include_pad: bool = True, p: int = 2) -> Value:  # fmt: skip
    """A pool over windows that reach `reach` beyond the ends; what is beyond the padding `pad` (begins then ends) never
    counts, what is in it counts in a mean where `include_pad`."""
    g, size = n.g, tuple(size)
    count = len(size)
    stride, pad = tuple(stride or (1,) * count), tuple(pad or (0,) * 2 * count)
    begins, ends = pad[:count], tuple(reach if reach is not None else pad[count:])
    window = SpatialWindow(size, stride, (1,) * count, (*begins, *ends))
    inside = replace(window, padding=(0,) * 2 * count)  # of a padded tensor
    if kind == "max":
        return max_pool(g, x, window)
    if kind in ("sum", "lp"):
        if kind == "lp" and p != 2:
            n.unsupported(f"an lp pool of order {p}")
        squares = g.op("mul", x, x) if kind == "lp" else x
        mean = average_pool(g, _padded(n, squares, begins, ends), inside)
        total = g.op("mul", mean, n.scalar(prod(size), mean))
        return g.op("sqrt", total) if kind == "lp" else total
    if not include_pad or ends == pad[count:]:
        return average_pool(g, x, window, count_include_pad=include_pad)
    # Windows that reach beyond the padding: the mean over what counts is the sum over the number of what counts.
    means = average_pool(g, _padded(n, x, begins, ends), inside)
    n.bounded(prod(means.dims[2:]))
    scale = np.ones(means.dims[2:])
    for axis, (d, b, e, k, s) in enumerate(zip(x.dims[2:], begins, pad[count:], size, stride)):
        share = _counted(d + b + e, k, s, means.dims[2 + axis])
        scale = scale / np.reshape(share, [-1 if i == axis else 1 for i in range(count)])
    return means if (scale == 1).all() else g.op("mul", means, g.constant(scale[None, None], x.dtype))


def _counted(length: int, size: int, stride: int, out: int) -> np.ndarray:
    """For each window, the share of it that lies within `length`."""
    starts = np.arange(out) * stride
    return np.maximum(np.minimum(starts + size, length) - starts, 1) / size


def _padded(n: Node, x: Value, begins: Sequence[int], ends: Sequence[int]) -> Value:
    if not any((*begins, *ends)):
        return x
    return n.g.op("pad", x, before=(0, 0, *begins), after=(0, 0, *ends), mode="constant", value=0)
