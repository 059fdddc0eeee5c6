"""The windows of a convolution on a map, and of a transposed one: that is an ordinary convolution, of stride 1, whose
columns are pixels of the result.

With stride s, pixel y of the result of a transposed convolution is pixel Y = y + pad of the uncropped one. It is one of
*phase* p = Y mod s at *position* j = floor(Y / s), and

    result[y] = bias + sum over m < ceil(K / s) of x[j - m] * weight[p + s*m]    (weights beyond K are zero)

so each position is a window of ceil(K / s) inputs, the same one for all phases, and a column of the product is (phase
row, phase column, channel). Where s is 1, taps may be apart (`dilation`): Y - d*m for j - m. Imports the ops and
layouts.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from lightnet.dialects.ln.conv import Conv2d, Deconv2d
from lightnet.ir.layout import MAX_PHASES


@dataclass(frozen=True)
class Window:
    """The windows over a picture, (rows, columns) each: that number (y, x) of `positions` begins `stride` times that
    behind the first, which begins `padding` = [top, left, bottom, right] before the picture; negative padding is
    inside. Taps are `dilation` apart."""

    size: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    padding: tuple[int, int, int, int]
    positions: tuple[int, int]


@dataclass(frozen=True)
class Interleave:
    """How positions become pixels: phase (p, q) of position (v, u) is pixel (v * stride[0] + p - skip[0], u *
    stride[1] + q - skip[1]) of the result, if that is inside of it."""

    stride: tuple[int, int]
    skip: tuple[int, int]

    @property
    def phases(self) -> int:
        """Pixels of a position."""
        return prod(self.stride)


class _Axis(NamedTuple):
    """A transposed convolution along one axis: taps, their distance, padding on both sides, positions, and pixels
    before the first."""

    taps: int
    dilation: int
    before: int
    behind: int
    positions: int
    skip: int


def window_of(op: Conv2d | Deconv2d) -> Window:
    """The windows of a convolution, or of the one that a transposed convolution (`is_product`) is."""
    if isinstance(op, Conv2d):
        oh, ow = op.result_specs[0].dims[2:]
        return Window(op.size, op.stride, op.dilation, op.derived_values()["pad"], (oh, ow))
    y, x = _axis(op, 0), _axis(op, 1)
    padding = (y.before, x.before, y.behind, x.behind)
    return Window((y.taps, x.taps), (1, 1), (y.dilation, x.dilation), padding, (y.positions, x.positions))


def interleave_of(op: Conv2d | Deconv2d) -> Interleave | None:
    """How positions become pixels; None where each is one."""
    if isinstance(op, Conv2d) or op.stride == (1, 1):
        return None
    return Interleave(op.stride, (_axis(op, 0).skip, _axis(op, 1).skip))


def is_product(op: Deconv2d) -> bool:
    """Whether a transposed convolution is one product: in one group, and along each axis without stride, or with taps
    side by side, at least one in every phase (and no more phases than the layout of its weights has)."""
    axes = zip(op.size, op.stride, op.dilation)
    return op.group == 1 and all(s == 1 or (d == 1 and s <= min(k, MAX_PHASES)) for k, s, d in axes)


def _axis(op: Deconv2d, axis: int) -> _Axis:
    size, stride, dilation = op.size[axis], op.stride[axis], op.dilation[axis]
    pad, inputs = op.derived_values()["pad"][axis], op.operand_specs[0].dims[2 + axis]
    outputs = op.result_specs[0].dims[2 + axis]
    first, last = pad // stride, (outputs - 1 + pad) // stride  # floors: padding may be negative
    taps, positions = -(-size // stride), last - first + 1
    reach = (taps - 1) * dilation
    before = reach - first
    return _Axis(taps, dilation, before, positions - inputs + reach - before, positions, pad - stride * first)
