"""The windows of a convolution on a map, and of a transposed one: that is an ordinary convolution, of stride 1, whose
columns are pixels of the result, (phase row, phase column, channel), see `ir/windows`. Imports the ops and layouts.
"""

from __future__ import annotations

from math import prod

from lightnet.dataclasses import dataclass
from lightnet.dialects.ln.conv import Conv2d, Deconv2d
from lightnet.ir.layout import MAX_PHASES
from lightnet.ir.windows import Window, transposed_axis


@dataclass(frozen=True)
class Interleave:
    """The map from positions to pixels: phase (p, q) of position (v, u) is pixel (v * stride[0] + p - skip[0], u *
    stride[1] + q - skip[1]) of the result, if that is inside of it."""

    stride: tuple[int, int]
    skip: tuple[int, int]

    @property
    def phases(self) -> int:
        """Pixels of a position."""
        return prod(self.stride)


def product_window_of(op: Conv2d | Deconv2d) -> Window:
    """The windows of a convolution, or of the one that a transposed convolution (`is_product`) is."""
    return Window.of(op) if isinstance(op, Conv2d) else Window.transposed(op)


def interleave_of(op: Conv2d | Deconv2d) -> Interleave | None:
    """The map from positions to pixels; None where each is one."""
    if isinstance(op, Conv2d) or op.stride == (1, 1):
        return None
    return Interleave(op.stride, (transposed_axis(op, 0)[1], transposed_axis(op, 1)[1]))


def is_product(op: Deconv2d) -> bool:
    """Return whether a transposed convolution is one product: in one group, and along each axis without stride, or with
    taps side by side, at least one in every phase (and no more phases than the layout of its weights has).
    """
    axes = zip(op.size, op.stride, op.dilation)
    return op.group == 1 and all(s == 1 or (d == 1 and s <= min(k, MAX_PHASES)) for k, s, d in axes)
