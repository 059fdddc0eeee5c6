"""Pools in numbers: windows along rows and columns, what they fold, and the scratch that their kernels need.

Imports the pools and reductions of `ln`, and no IR is made here.
"""

from __future__ import annotations

import numpy as np

from lightnet.dataclasses import dataclass
from lightnet.dialects.ln.pool import Avgpool2d, Maxpool2d
from lightnet.dialects.ln.pool_nd import Avgpool, Maxpool
from lightnet.dialects.ln.reduce import ReduceMax, ReduceMean, ReduceMin, ReduceSum
from lightnet.ir.op import LnOp
from lightnet.ir.windows import Axis, Window
from lightnet.runtime.dims import greatest


@dataclass(frozen=True)
class PoolWindow(Window):
    """A pool in numbers: its windows, how elements are folded (``max``, ``min``, ``add``), and what sums are divided by
    (nothing, the elements ``inside``, or those and the padding, ``counted``)."""

    fold: str
    mean: str | None

    @property
    def is_global(self) -> bool:
        """True if there is one window, inside of the map."""
        axes = (self.rows, self.cols)
        return all(a.positions == 1 and not a.clipped and a.dilation == 1 and a.before == 0 for a in axes)

    @property
    def is_small(self) -> bool:
        """True if windows are folded at once, element by element from memory: up to four elements, none in the padding
        beside (15 to 30 % faster for a maximum of 2x2; windows of 3x3, and sums, are faster in two passes)."""
        return self.rows.taps * self.cols.taps <= 4 and self.fold != "add" and not self.cols.clipped

    @property
    def has_second_pass(self) -> bool:
        """True if columns are folded in a pass of their own, from a row in scratch."""
        cols = self.cols
        return not self.is_small and (cols.taps > 1 or cols.stride > 1 or cols.clipped or cols.before != 0)

    def count(self, axis: Axis) -> int | None:
        """The divisor of each window's sum along one of the axes; None where windows differ, in any call."""
        if axis.is_open:
            beyond = axis.overhang - (axis.behind if self.mean == "counted" else 0)
            cut = greatest(beyond) > 0 or (self.mean == "inside" and axis.before > 0)
            return None if cut else axis.taps
        counts = axis.inside() if self.mean == "inside" else axis.counted()
        return int(counts[0]) if np.ptp(counts) == 0 else None


def pool_window_of(op: LnOp) -> PoolWindow | None:
    """The window of an op, None for one that is no pool of rows and columns, or has a window in the padding alone."""
    if isinstance(op, ReduceMax | ReduceMin | ReduceSum | ReduceMean):
        dims = op.operand_specs[0].dims
        if len(dims) != 4 or set(op.axes) != {2, 3}:
            return None
        rows, cols = map(Axis.whole, dims[2:])
        fold = "max" if isinstance(op, ReduceMax) else "min" if isinstance(op, ReduceMin) else "add"
        return PoolWindow(rows, cols, fold, "counted" if isinstance(op, ReduceMean) else None)
    is_pool = isinstance(op, Maxpool2d | Avgpool2d) or (isinstance(op, Maxpool | Avgpool) and len(op.size) == 2)
    if not is_pool:
        return None
    mean = None if isinstance(op, Maxpool2d | Maxpool) else "inside"
    if getattr(op, "count_include_pad", False):
        mean = "counted"
    axes = Axis.of(op, 0), Axis.of(op, 1)
    if any(not a.positions or not _reads_always(a) for a in axes):
        return None
    return PoolWindow(*axes, "max" if mean is None else "add", mean)


def _reads_always(axis: Axis) -> bool:
    """Return whether every window has an element of the map, in every call."""
    if axis.is_open:
        return axis.dilation == 1 and max(axis.before, greatest(axis.overhang)) < axis.taps
    return axis.inside().min() >= 1


def row_columns(cols: Axis) -> int:
    """Columns of the row in scratch, at most: the map's, and the padding that windows reach."""
    return max(greatest(cols.size), greatest(cols.reach - cols.before)) + cols.before


def row_steps(window: PoolWindow) -> int:
    """Vectors that are folded for a row of results."""
    return window.rows.taps * window.cols.size + (window.cols.taps + 1) * window.cols.positions


def has_table(window: PoolWindow) -> bool:
    """Return whether what sums are divided by depends on the column."""
    return window.mean is not None and window.count(window.cols) is None


def row_bytes(window: PoolWindow, lanes: int) -> int:
    """Bytes, at most: the folded row, then the reciprocal counts of columns."""
    row = row_columns(window.cols) * lanes if not window.is_global and window.has_second_pass else 0
    return 4 * (row + (greatest(window.cols.positions) if has_table(window) else 0))
