"""Sliding windows in numbers, one axis at a time: what reads beyond the map, how far, and which taps are inside.

A convolution and a pool have one `Axis` for rows and one for columns: a `Window`. A transposed convolution of stride s
is, along each axis, an ordinary one of stride 1: pixel y of its result is pixel Y = y + pad of the uncropped one. It is
one of *phase* p = Y mod s at *position* j = floor(Y / s), and

    result[y] = bias + sum over m < ceil(K / s) of x[j - m] * weight[p + s*m]    (weights beyond K are zero)

so each position is a window of ceil(K / s) inputs, the same one for all phases. Where s is 1, taps may be apart
(`dilation`): Y - d*m for j - m. Imports numpy and dims; no IR is made here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lightnet.dataclasses import dataclass, replace
from lightnet.runtime.dims import Dim, greatest


@dataclass(frozen=True)
class Axis:
    """Windows along one axis: `positions` of them over `size` elements, the first from element -`before` on, each
    `stride` behind the one before. A window has `taps`, `dilation` apart. `before` and `behind` are the padding, which
    crops where it is negative; windows may reach less far than `behind`, or (of pools whose number is rounded up)
    further."""

    size: int
    taps: int
    stride: int = 1
    dilation: int = 1
    before: int = 0
    behind: int = 0
    positions: int = 1

    @classmethod
    def of(cls, op: Any, axis: int) -> Axis:
        """The windows over rows (0) or columns (1) of a convolution or pool, which need not have a dilation."""
        pad, dilation = op.derived_values().get("pad", op.padding), getattr(op, "dilation", (1, 1))
        size, positions = op.operand_specs[0].dims[2 + axis], op.result_specs[0].dims[2 + axis]
        return cls(size, op.size[axis], op.stride[axis], dilation[axis], pad[axis], pad[2 + axis], positions)

    @classmethod
    def whole(cls, size: int) -> Axis:
        """One window over all elements."""
        return cls(size, size)

    @property
    def is_open(self) -> bool:
        """True if a call decides how many elements there are."""
        return isinstance(self.size, Dim) or isinstance(self.positions, Dim)

    @property
    def extent(self) -> int:
        """Elements from the first tap of a window to its last."""
        return (self.taps - 1) * self.dilation + 1

    def span(self, positions: int) -> int:
        """Elements from the first of a window to the last of the one that is `positions` - 1 behind it."""
        return (positions - 1) * self.stride + self.extent

    @property
    def reach(self) -> int:
        """Elements from the first of the first window to the last of the last one."""
        return self.span(self.positions)

    @property
    def overhang(self) -> int:
        """Elements that windows reach behind the last one; negative where some in front of it are not reached."""
        return self.reach - self.before - self.size

    @property
    def clipped(self) -> bool:
        """True if windows reach beyond the elements, in any call."""
        return self.before > 0 or greatest(self.overhang) > 0

    @property
    def halo(self) -> int:
        """Elements around those there are that windows touch, on the side where they reach further."""
        return max(self.before, greatest(self.overhang), 0)

    def strides(self) -> list[tuple[int, int]]:
        """The number of whole strides that each tap lies behind the first one, and of elements more, [taps]."""
        return [divmod(tap * self.dilation, self.stride) for tap in range(self.taps)]

    def inside(self) -> np.ndarray:
        """The number of elements of each window, [positions]."""
        begin = np.arange(self.positions) * self.stride - self.before
        first = np.maximum(-(begin // self.dilation), 0)  # ceil(-begin / dilation)
        return np.minimum(self.taps, -((begin - self.size) // self.dilation)) - first

    def counted(self) -> np.ndarray:
        """The number of elements of each window with the padding, 1 at least, [positions]."""
        begin = np.arange(self.positions) * self.stride - self.before
        return np.maximum(np.minimum(self.taps, -((begin - self.size - self.behind) // self.dilation)), 1)


def transposed_axis(op: Any, axis: int) -> tuple[Axis, int]:
    """The windows of a transposed convolution over its input rows (0) or columns (1), one for each position, and the
    pixels of the first position that are cut off. Where it has a stride, its taps are side by side."""
    taps, stride, dilation = op.size[axis], op.stride[axis], op.dilation[axis]
    pad, size, pixels = (
        op.derived_values()["pad"][axis],
        op.operand_specs[0].dims[2 + axis],
        op.result_specs[0].dims[2 + axis],
    )
    first, last = pad // stride, (pixels - 1 + pad) // stride  # floors: padding may be negative
    found = Axis(size, -(-taps // stride), dilation=dilation, positions=last - first + 1)
    before = found.extent - 1 - first
    return replace(found, before=before, behind=found.reach - before - size), pad - stride * first


def transposed_phases(op: Any, axis: int) -> list[tuple[int, list[tuple[int, int]]]]:
    """For each remainder of a transposed convolution's output rows (0) or columns (1) mod its stride, as far as there
    are any: how many have it, and its taps as (tap, element that the first of them takes it from)."""
    stride, dilation, pixels = op.stride[axis], op.dilation[axis], op.result_specs[0].dims[2 + axis]
    pad = op.derived_values()["pad"][axis]
    found = []
    for first in range(min(stride, pixels)):
        sources = [divmod(first + pad - tap * dilation, stride) for tap in range(op.size[axis])]
        taps = [(tap, element) for tap, (element, rest) in enumerate(sources) if not rest]
        found.append(((pixels - first + stride - 1) // stride, taps))
    return found


@dataclass(frozen=True)
class Window:
    """Windows over rows and columns, whose numbers there are as (rows, columns), too."""

    rows: Axis
    cols: Axis

    @classmethod
    def of(cls, op: Any) -> Window:
        """The windows of a convolution or pool."""
        return Window(Axis.of(op, 0), Axis.of(op, 1))

    @classmethod
    def transposed(cls, op: Any) -> Window:
        """Those of a transposed convolution over its input, one for each position."""
        return Window(transposed_axis(op, 0)[0], transposed_axis(op, 1)[0])

    @property
    def size(self) -> tuple[int, int]:
        return self.rows.size, self.cols.size

    @property
    def taps(self) -> tuple[int, int]:
        return self.rows.taps, self.cols.taps

    @property
    def stride(self) -> tuple[int, int]:
        return self.rows.stride, self.cols.stride

    @property
    def dilation(self) -> tuple[int, int]:
        return self.rows.dilation, self.cols.dilation

    @property
    def before(self) -> tuple[int, int]:
        return self.rows.before, self.cols.before

    @property
    def positions(self) -> tuple[int, int]:
        return self.rows.positions, self.cols.positions

    @property
    def halo(self) -> tuple[int, int]:
        """Rows and columns around the map that windows touch, on the side where they reach further."""
        return self.rows.halo, self.cols.halo

    @property
    def is_open(self) -> bool:
        """True if a call decides a size of the map."""
        return self.rows.is_open or self.cols.is_open

    @property
    def is_pointwise(self) -> bool:
        """True if each window is the element at its own position alone."""
        return self.taps == self.stride == (1, 1) and self.before == (0, 0) and self.size == self.positions
