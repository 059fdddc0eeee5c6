"""Convolutions over three axes as ones over two: planes become pictures of a batch, taps along the first axis channels.

Asked for by `windows.py`, which hands in its convolution over two axes. Imports the graph builder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING

from lightnet.dataclasses import replace
from lightnet.diagnostics import LightNetError
from lightnet.frontends.graph import Graph, Value
from lightnet.runtime.dims import greatest

if TYPE_CHECKING:
    from lightnet.frontends.windows import SpatialWindow

#: Elements of a copy that `by_planes` makes, at most.
MAX_COPY = 1 << 26


def pays(src: Value, weight: Value) -> bool:
    """Return whether a convolution over three axes has so many products that a copy of its source for each tap along
    the first axis is cheap, and that can be made in parts where it is large."""
    bounded = isinstance(src.dims[2], int) or greatest(src.len * weight.dims[2]) <= MAX_COPY
    return bounded and weight.dims[0] * weight.dims[3] * weight.dims[4] >= 8


def by_planes(g: Graph, src: Value, weight: Value, bias: Value, window: SpatialWindow, group: int,
              convolution: Callable[..., Value]) -> Value:  # fmt: skip
    """A `convolution` over three axes as one over two: the taps along the first axis become channels, its positions a
    batch; half of them first, and then the others, where the copy would be large.

    out[n, o, z] = sum over c, t of weight[o, c, t] (*) src[n, c, z * stride + t * dilation - before], where (*) is over
    two axes; so the planes of all t, stacked behind each c, are the channels of picture (n, z)."""
    (stride, *_), (dilation, *_), padding = window.stride, window.dilation, window.padding
    outputs, per_group, taps, *size = weight.dims
    before, behind = padding[0], padding[3]
    count = (src.dims[2] + before + behind - (taps - 1) * dilation - 1) // stride + 1
    if count < 1:
        raise LightNetError(f"a window of {taps} planes does not fit into {src.spec}", label="conv.window")
    if before or behind:
        src = g.op("pad", src, before=(0, 0, before, 0, 0), after=(0, 0, behind, 0, 0))
    copied = prod((*src.dims[:2], taps, count, *src.dims[3:]))
    if isinstance(count, int) and count > 1 and greatest(copied) > MAX_COPY:
        inside, halves = replace(window, padding=(0, *padding[1:3], 0, *padding[4:])), []
        for first, planes in ((0, count // 2), (count // 2, count - count // 2)):
            reach = (planes - 1) * stride + (taps - 1) * dilation + 1
            half = g.op("slice", src, axis=2, start=first * stride, len=reach)
            halves.append(by_planes(g, half, weight, bias, inside, group, convolution))
        return g.op("concat", *halves, axis=2)
    pictures = _stacked(g, src, [t * dilation for t in range(taps)], stride, count)
    kernel = g.reshape(weight, (outputs, per_group * taps, *size))
    result = convolution(g, pictures, kernel, bias, window.over(1, 2), group)
    result = g.reshape(result, (src.dims[0], count, outputs, *result.dims[2:]))
    return g.transpose(result, (0, 2, 1, 3, 4))


def _stacked(g: Graph, src: Value, starts: Sequence[int], step: int, count: int) -> Value:
    """`count` planes of `src` [N, C, D, H, W] from each start on as pictures [N*count, C*starts, H, W]."""
    batch, channels, _, *plane = src.dims
    src = g.transpose(src, (0, 2, 1, 3, 4))
    lens = (batch, count, channels, *plane)
    parts = [g.op("strided_slice", src, starts=(0, s, 0, 0, 0), steps=(1, step, 1, 1, 1), lens=lens) for s in starts]
    parts = [g.reshape(part, (batch, count, channels, 1, *plane)) for part in parts]
    stacked = parts[0] if len(parts) == 1 else g.op("concat", *parts, axis=3)
    return g.reshape(stacked, (batch * count, channels * len(parts), *plane))


def by_phases(g: Graph, src: Value, weight: Value, bias: Value, window: SpatialWindow, extra: Sequence[int],
              group: int, transposed_convolution: Callable[..., Value]) -> Value:  # fmt: skip
    """A `transposed_convolution` over three axes as some over two, one for each phase p of the stride along the first:

    out[n, o, i * stride + p] = sum over c, t of weight[c, o, t] (*) src[n, c, i + (p + before - t) / stride] for the t
    that leave no remainder, where (*) is over two axes."""
    stride, before, taps, depth = window.stride[0], window.begins[0], weight.dims[2], src.dims[2]
    length = stride * (depth - 1) + taps + extra[0] - before - window.ends[0]
    count, front, phases = -(-length // stride), (taps - 1) // stride, []
    behind = max(count + (stride - 1 + before) // stride - depth, 0)
    src = g.op("pad", src, before=(0, 0, front, 0, 0), after=(0, 0, behind, 0, 0))
    for p in range(stride):
        own = range((p + before) % stride, taps, stride)
        pictures = _stacked(g, src, [front + (p + before - t) // stride for t in own], 1, count)
        kernel = g.op("strided_slice", weight, starts=(0, 0, own[0], 0, 0), steps=(1, 1, stride, 1, 1),
                      lens=(*weight.dims[:2], len(own), *weight.dims[3:]))  # fmt: skip
        kernel = g.reshape(
            g.transpose(kernel, (0, 2, 1, 3, 4)), (weight.dims[0] * len(own), weight.dims[1], *weight.dims[3:])
        )
        made = transposed_convolution(g, pictures, kernel, bias, window.over(1, 2), extra[1:], group)
        phases.append(g.reshape(made, (src.dims[0], count, 1, *made.dims[1:])))
    result = g.op("concat", *phases, axis=2) if stride > 1 else phases[0]
    result = g.reshape(result, (src.dims[0], count * stride, *result.dims[3:]))
    return g.transpose(g.op("slice", result, axis=1, start=0, len=length), (0, 2, 1, 3, 4))
