"""Convolutions and pools of any number of axes as the `ln` ops that run them best, for every graph front end.

`padding` is [begins then ends] throughout. One axis is a picture of one row; three axes and more, dilated pools and counted
padding have ops of their own. Imports the graph builder and the arithmetic of windows.
"""

from __future__ import annotations

from collections.abc import Sequence

from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.window import ceil_output_dim
from lightnet.frontends.graph import Graph, Value


def same_padding(
    dims: Sequence[int], size: Sequence[int], stride: Sequence[int], dilation: Sequence[int], upper: bool
) -> tuple[int, ...]:
    """The padding with which each axis has ceil(dim / stride) positions; the odd element goes to the end if `upper`."""
    begins, ends = [], []
    for n, k, s, d in zip(dims, size, stride, dilation):
        total = max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
        small, large = total // 2, total - total // 2
        begins.append(small if upper else large)
        ends.append(large if upper else small)
    return (*begins, *ends)


def zeros(g: Graph, like: Value, count: int) -> Value:
    """`count` zeros of the type of `like`: the bias that an op without one has."""
    return g.op("expand", g.scalar(0, like.dtype), dims=g.spec((count,), like.dtype).dims)


def convolution(
    g: Graph,
    src: Value,
    weight: Value,
    bias: Value | None,
    *,
    stride: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    group: int = 1,
) -> Value:
    """`src` [N, C, *S] under `weight` [O, C/group, *K], plus `bias` [O]."""
    bias = zeros(g, src, weight.dims[0]) if bias is None else bias
    axes = src.ndim - 2
    if axes == 3 and weight.ndim == 5 and _pays(src, weight):
        return _by_planes(g, src, weight, bias, stride, dilation, padding, group)
    if axes > 2:
        return g.op("conv", src, weight, bias, group=group, stride=tuple(stride), dilation=tuple(dilation),
                    padding=tuple(padding))  # fmt: skip
    if axes == 2 and src.dims[3] == weight.dims[3] == 1 < src.dims[2] and padding[1] == padding[3] == 0:
        # One column is one row: a row runs along the vectors, some 30 times as fast.
        row, taps = (g.reshape(v, (*v.dims[:2], 1, v.dims[2])) for v in (src, weight))
        result = convolution(g, row, taps, bias, stride=stride[::-1], dilation=dilation[::-1], group=group,
                             padding=(0, padding[0], 0, padding[2]))  # fmt: skip
        return g.reshape(result, (*result.dims[:2], result.dims[3], 1))
    picture, kernel = _picture(g, src), _picture(g, weight)
    result = g.op("conv2d", picture, kernel, bias, size=kernel.dims[2:], group=group, stride=_pair(stride, 1),
                  dilation=_pair(dilation, 1), padding=_sides(padding))  # fmt: skip
    return _line(g, result, axes)


#: Elements of the copy that `_by_planes` makes, at most.
MAX_COPY = 1 << 26


def _pays(src: Value, weight: Value) -> bool:
    """Whether a convolution over three axes has so many products that a copy of its source for each tap along the first
    axis is cheap."""
    return src.len * weight.dims[2] <= MAX_COPY and weight.dims[0] * weight.dims[3] * weight.dims[4] >= 8


def _by_planes(
    g: Graph,
    src: Value,
    weight: Value,
    bias: Value,
    stride: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    group: int,
) -> Value:
    """A convolution over three axes as one over two: the taps along the first axis become channels, its positions a batch.

    out[n, o, z] = sum over c, t of weight[o, c, t] (*) src[n, c, z * stride + t * dilation - before], where (*) is over two
    axes; so the planes of all t, stacked behind each c, are the channels of picture (n, z).
    """
    batch, channels, depth, *plane = src.dims
    outputs, per_group, taps, *size = weight.dims
    before, behind = padding[0], padding[3]
    if before or behind:
        src = g.op("pad", src, before=(0, 0, before, 0, 0), after=(0, 0, behind, 0, 0))
    count = (depth + before + behind - (taps - 1) * dilation[0] - 1) // stride[0] + 1
    if count < 1:
        raise LightNetError(f"a window of {taps} planes does not fit into {src.spec}", label="conv.window")
    parts = [
        g.reshape(
            g.op("strided_slice", src, starts=(0, 0, t * dilation[0], 0, 0), steps=(1, 1, stride[0], 1, 1),
                 lens=(batch, channels, count, *plane)),
            (batch, channels, 1, count, *plane),
        )
        for t in range(taps)
    ]  # fmt: skip
    stacked = parts[0] if taps == 1 else g.op("concat", *parts, axis=2)
    pictures = g.reshape(g.transpose(stacked, (0, 3, 1, 2, 4, 5)), (batch * count, channels * taps, *plane))
    kernel = g.reshape(weight, (outputs, per_group * taps, *size))
    result = g.op("conv2d", pictures, kernel, bias, size=tuple(size), group=group, stride=tuple(stride[1:]),
                  dilation=tuple(dilation[1:]), padding=(*padding[1:3], *padding[4:]))  # fmt: skip
    result = g.reshape(result, (batch, count, outputs, *result.dims[2:]))
    return g.transpose(result, (0, 2, 1, 3, 4))


def transposed_convolution(
    g: Graph,
    src: Value,
    weight: Value,
    bias: Value | None,
    *,
    stride: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
    group: int = 1,
) -> Value:
    """`src` [N, C, *S] under the transpose of `weight` [C, O/group, *K], plus `bias` [O]."""
    bias = zeros(g, src, weight.dims[1] * group) if bias is None else bias
    axes = src.ndim - 2
    if axes > 2:
        return g.op("deconv", src, weight, bias, group=group, stride=tuple(stride), dilation=tuple(dilation),
                    padding=tuple(padding), output_padding=tuple(output_padding))  # fmt: skip
    picture, kernel = _picture(g, src), _picture(g, weight)
    result = g.op("deconv2d", picture, kernel, bias, size=kernel.dims[2:], group=group, stride=_pair(stride, 1),
                  dilation=_pair(dilation, 1), padding=_sides(padding), output_padding=_pair(output_padding, 0))  # fmt: skip
    return _line(g, result, axes)


def overhang(
    dims: Sequence[int], size: Sequence[int], stride: Sequence[int], dilation: Sequence[int], padding: Sequence[int]
) -> tuple[int, ...]:
    """The padding under which windows fit just as they do under `padding` when their number is rounded up."""
    axes = len(dims)
    ends = []
    for i in range(axes):
        count = ceil_output_dim(dims[i], size[i], stride[i], padding[i], padding[axes + i], dilation[i])
        reach = (count - 1) * stride[i] + (size[i] - 1) * dilation[i] + 1
        ends.append(max(reach - dims[i] - padding[i], 0))
    return (*padding[:axes], *ends)


#: Sides from which on a maximum is taken along one axis after the other.
SEPARATE_FROM = 4


def max_pool(
    g: Graph,
    src: Value,
    *,
    size: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    ceil: bool = False,
) -> Value:
    """The maximum of each window of `src` [N, C, *S]."""
    axes = src.ndim - 2
    if ceil:  # padding never wins, so that it may as well be there
        padding = overhang(src.dims[2:], size, stride, dilation, padding)
    if axes > 2 or any(d > 1 for d in dilation) or not _inside(padding, size):
        return g.op("maxpool", src, size=tuple(size), stride=tuple(stride), dilation=tuple(dilation),
                    padding=tuple(padding))  # fmt: skip
    if axes == 2 and min(size) >= SEPARATE_FROM:  # the maximum of the rows' maxima: h + w taps instead of h * w
        src = g.op("maxpool2d", src, size=(size[0], 1), stride=(stride[0], 1), padding=(padding[0], 0, padding[2], 0))
        return g.op("maxpool2d", src, size=(1, size[1]), stride=(1, stride[1]), padding=(0, padding[1], 0, padding[3]))
    return _line(g, g.op("maxpool2d", _picture(g, src), size=_pair(size, 1), stride=_pair(stride, 1),
                         padding=_sides(padding)), axes)  # fmt: skip


def average_pool(
    g: Graph,
    src: Value,
    *,
    size: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    ceil: bool = False,
    count_include_pad: bool = False,
) -> Value:
    """The mean of each window of `src` [N, C, *S]; with `count_include_pad`, padding counts as zeros."""
    axes = src.ndim - 2
    counts = count_include_pad and any(padding)
    wide = overhang(src.dims[2:], size, stride, dilation, padding) if ceil else tuple(padding)
    simple = axes <= 2 and not counts and all(d == 1 for d in dilation) and src.dtype.name in ("f32", "f64")
    if not (simple and _inside(wide, size)):
        return g.op("avgpool", src, size=tuple(size), stride=tuple(stride), dilation=tuple(dilation),
                    padding=tuple(padding), ceil=ceil, count_include_pad=count_include_pad)  # fmt: skip
    return _line(g, g.op("avgpool2d", _picture(g, src), size=_pair(size, 1), stride=_pair(stride, 1),
                         padding=_sides(wide)), axes)  # fmt: skip


def _inside(padding: Sequence[int], size: Sequence[int]) -> bool:
    """Whether no window lies in the padding alone, which the 2-D pools refuse."""
    return all(p < k for p, k in zip(padding, (*size, *size)))


def _picture(g: Graph, value: Value) -> Value:
    """[N, C, W] as [N, C, 1, W]."""
    return g.reshape(value, (*value.dims[:2], 1, value.dims[2])) if value.ndim == 3 else value


def _line(g: Graph, value: Value, axes: int) -> Value:
    """[N, C, 1, W] as [N, C, W], where there is one axis."""
    return g.reshape(value, (*value.dims[:2], value.dims[3])) if axes == 1 else value


def _pair(values: Sequence[int], first: int) -> tuple[int, int]:
    return (first, values[0]) if len(values) == 1 else (values[0], values[1])


def _sides(padding: Sequence[int]) -> tuple[int, ...]:
    return (0, padding[0], 0, padding[1]) if len(padding) == 2 else tuple(padding)
