"""Convolutions and pools of any number of axes as the `ln` ops that run them best, for every graph front end.

`padding` is [begins then ends] throughout. One axis is a picture of one row; three axes and more, dilated pools and
counted padding have ops of their own. Imports the graph builder, the composites and the arithmetic of windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from lightnet.dataclasses import dataclass, replace
from lightnet.dialects.ln.window import ceil_output_dim
from lightnet.frontends import volumes
from lightnet.frontends.composites import full
from lightnet.frontends.graph import Graph, Value
from lightnet.ir.windows import Axis


@dataclass(frozen=True)
class SpatialWindow:
    """A window over the spatial axes: how many taps it has along each, the step from window to window, the distance of
    its taps, and the padding of all begins, then of all ends."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[int, ...]

    @property
    def params(self) -> dict[str, tuple[int, ...]]:
        """Its numbers as parameters of a pool."""
        return {"size": self.size, "stride": self.stride, "dilation": self.dilation, "padding": self.padding}

    @property
    def begins(self) -> tuple[int, ...]:
        return self.padding[: len(self.size)]

    @property
    def ends(self) -> tuple[int, ...]:
        return self.padding[len(self.size) :]

    @property
    def is_flat(self) -> bool:
        """True if 2-D ops take it, two axes at a time: its taps side by side (of a pool), none in the padding alone."""
        return set(self.dilation) == {1} and all(p < k for p, k in zip(self.padding, self.size * 2))

    def over(self, *axes: int) -> SpatialWindow:
        """The window over these of its axes, where -1 is one of single elements."""
        numbers = (*zip(self.size, self.stride, self.dilation, self.begins, self.ends), (1, 1, 1, 0, 0))
        size, stride, dilation, begins, ends = zip(*(numbers[a] for a in axes))
        return SpatialWindow(size, stride, dilation, (*begins, *ends))

    def pair(self) -> dict[str, tuple[int, ...]]:
        """Stride and padding over two axes, the first of which is one row where it has one axis only."""
        if len(self.size) == 2:
            return {"stride": self.stride, "padding": self.padding}
        return {"stride": (1, *self.stride), "padding": (0, self.padding[0], 0, self.padding[1])}


def same_padding(dims: Sequence[int], window: SpatialWindow, upper: bool) -> tuple[int, ...]:
    """The padding with which each axis has ceil(dim / stride) positions; the odd element goes to the end if `upper`."""
    begins, ends = [], []
    for n, k, s, d in zip(dims, window.size, window.stride, window.dilation):
        total = max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
        small, large = total // 2, total - total // 2
        begins.append(small if upper else large)
        ends.append(large if upper else small)
    return (*begins, *ends)


def convolution(
    g: Graph, src: Value, weight: Value, bias: Value | None, window: SpatialWindow, group: int = 1
) -> Value:
    """`src` [N, C, *S] under `weight` [O, C/group, *K], plus `bias` [O]."""
    bias = full(g, weight.dims[:1], 0, src.dtype) if bias is None else bias
    axes = src.ndim - 2
    for k in range(1, axes if axes > 2 and weight.ndim == src.ndim else 1):
        if window.over(k - 1, k) == window.over(-1, -1):  # neither has a window: both are one axis
            joined = [(*v.dims[: k + 1], v.dims[k + 1] * v.dims[k + 2], *v.dims[k + 3 :]) for v in (src, weight)]
            rows, taps = map(g.reshape, (src, weight), joined)
            result = convolution(g, rows, taps, bias, window.over(*(a for a in range(axes) if a != k)), group)
            return g.reshape(result, (*result.dims[: k + 1], *src.dims[k + 1 : k + 3], *result.dims[k + 2 :]))
    if axes == 3 and weight.ndim == 5 and volumes.pays(src, weight):
        return volumes.by_planes(g, src, weight, bias, window, group, convolution)
    if axes > 2:
        return g.op("conv", src, weight, bias, group=group, stride=window.stride, dilation=window.dilation,
                    padding=window.padding)  # fmt: skip
    if axes == 2 and src.dims[3] == weight.dims[3] == 1 < src.dims[2] and window.padding[1] == window.padding[3] == 0:
        # One column is one row: a row runs along the vectors, some 30 times as fast.
        row, taps = (g.reshape(v, (*v.dims[:2], 1, v.dims[2])) for v in (src, weight))
        turned = SpatialWindow(window.size[::-1], window.stride[::-1], window.dilation[::-1],
                        (0, window.padding[0], 0, window.padding[2]))  # fmt: skip
        result = convolution(g, row, taps, bias, turned, group)
        return g.reshape(result, (*result.dims[:2], result.dims[3], 1))
    picture, kernel = _picture(g, src), _picture(g, weight)
    result = g.op("conv2d", picture, kernel, bias, size=kernel.dims[2:], group=group,
                  dilation=_pair(window.dilation, 1), **window.pair())  # fmt: skip
    return _line(g, result, axes)


def transposed_convolution(g: Graph, src: Value, weight: Value, bias: Value | None, window: SpatialWindow,
                           output_padding: Sequence[int], group: int) -> Value:  # fmt: skip
    """`src` [N, C, *S] under the transpose of `weight` [C, O/group, *K], plus `bias` [O]."""
    bias = full(g, (weight.dims[1] * group,), 0, src.dtype) if bias is None else bias
    axes = src.ndim - 2
    if axes == 3 and weight.ndim == 5 and isinstance(src.dims[2], int) and window.dilation[0] == 1:
        if weight.dims[2] >= window.stride[0] and src.dims[2] > sum(
            window.padding[::3]
        ):  # each phase has a tap, and planes
            return volumes.by_phases(g, src, weight, bias, window, output_padding, group, transposed_convolution)
    if axes > 2:
        return g.op("deconv", src, weight, bias, group=group, stride=window.stride, dilation=window.dilation,
                    padding=window.padding, output_padding=tuple(output_padding))  # fmt: skip
    picture, kernel = _picture(g, src), _picture(g, weight)
    result = g.op("deconv2d", picture, kernel, bias, size=kernel.dims[2:], group=group,
                  dilation=_pair(window.dilation, 1), output_padding=_pair(output_padding, 0),
                  **window.pair())  # fmt: skip
    return _line(g, result, axes)


def overhanging(dims: Sequence[int], window: SpatialWindow) -> SpatialWindow:
    """The window with the padding under which as many fit as under its own when their number is rounded up."""
    numbers = zip(dims, window.size, window.stride, window.dilation, window.begins, window.ends)
    axes = (Axis(n, k, s, d, begin, end, ceil_output_dim(n, k, s, begin, end, d)) for n, k, s, d, begin, end in numbers)
    return replace(window, padding=(*window.begins, *(max(axis.overhang, 0) for axis in axes)))


#: Sides from which on a maximum is taken along one axis after the other.
SEPARATE_FROM = 4


def max_pool(g: Graph, src: Value, window: SpatialWindow, ceil: bool = False) -> Value:
    """The maximum of each window of `src` [N, C, *S]."""
    if ceil:  # padding never wins, so that it may as well be there
        window = overhanging(src.dims[2:], window)
    if not window.is_flat:
        return g.op("maxpool", src, **window.params)
    if src.ndim > 4:
        return _separate(g, src, window, max_pool)
    (size, stride, padding), axes = (window.size, window.stride, window.padding), src.ndim - 2
    if axes == 2 and min(size) >= SEPARATE_FROM:  # the maximum of the rows' maxima: h + w taps instead of h * w
        src = g.op("maxpool2d", src, size=(size[0], 1), stride=(stride[0], 1), padding=(padding[0], 0, padding[2], 0))
        return g.op("maxpool2d", src, size=(1, size[1]), stride=(1, stride[1]), padding=(0, padding[1], 0, padding[3]))
    return _line(g, g.op("maxpool2d", _picture(g, src), size=_pair(size, 1), **window.pair()), axes)


def average_pool(
    g: Graph, src: Value, window: SpatialWindow, ceil: bool = False, count_include_pad: bool = False
) -> Value:
    """The mean of each window of `src` [N, C, *S]; with `count_include_pad`, padding counts as zeros."""
    wide = overhanging(src.dims[2:], window) if ceil else window
    counts = count_include_pad and any(window.padding)
    if counts or not wide.is_flat or src.dtype.name not in ("f32", "f64"):
        return g.op("avgpool", src, ceil=ceil, count_include_pad=count_include_pad, **window.params)
    if src.ndim > 4:
        return _separate(g, src, wide, average_pool)
    return _line(g, g.op("avgpool2d", _picture(g, src), size=_pair(window.size, 1), **wide.pair()), src.ndim - 2)


def _separate(g: Graph, src: Value, window: SpatialWindow, pool: Callable[..., Value]) -> Value:
    """A pool over three axes or more as one over the last two, then one over the others, for which those are an axis of
    single elements: the extremes and means of what lies inside are those of rows' extremes and means."""
    *lead, h, w = range(len(window.size))
    if window.over(h, w) != window.over(-1, -1):
        rows = g.reshape(src, (src.dims[0], prod(src.dims[1:-2]), *src.dims[-2:]))
        rows = pool(g, rows, window.over(h, w))
        src = g.reshape(rows, (*src.dims[:-2], *rows.dims[2:]))
    result = pool(g, g.reshape(src, (*src.dims[:-2], src.dims[-2] * src.dims[-1])), window.over(*lead, -1))
    return g.reshape(result, (*result.dims[:-1], *src.dims[-2:]))


def _picture(g: Graph, value: Value) -> Value:
    """[N, C, W] as [N, C, 1, W]."""
    return g.reshape(value, (*value.dims[:2], 1, value.dims[2])) if value.ndim == 3 else value


def _line(g: Graph, value: Value, axes: int) -> Value:
    """[N, C, 1, W] as [N, C, W], where there is one axis."""
    return g.reshape(value, (*value.dims[:2], value.dims[3])) if axes == 1 else value


def _pair(values: Sequence[int], first: int) -> tuple[int, int]:
    return (first, values[0]) if len(values) == 1 else (values[0], values[1])
