"""Pools on blocked maps: maximum and mean of windows, and reductions over rows and columns, with an epilogue.

A window is separable: max over (r, q) of x = max over q of (max over r of x), sums likewise. For each row of results a
first pass folds the rows under it, bounded to those that there are, into a row in scratch that has the identity where
the padding is; a second pass folds columns of that row. So k + k steps make an element instead of k * k, and no map
needs a halo. Windows one column wide need no second pass, those of up to four elements are folded at once, and a single
window over all of a map needs no scratch. Imports the base of blocked kernels and pools in numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from math import inf

from xdsl.dialects import arith
from xdsl.dialects.builtin import MemRefType, VectorType, i64
from xdsl.ir import SSAValue

from lightnet.backends.builder import Index
from lightnet.backends.cpu.blocked.base import (
    NO_HALO,
    BlockedGenerator,
    Ends,
    ProcessorModel,
    blocks_of,
    lanes_of,
    read_rate,
)
from lightnet.backends.cpu.blocked.forms import FLOAT_SUMS, epilogue_form, weight_layouts
from lightnet.backends.cpu.blocked.kernel import BlockedKernel, Host, MapTile
from lightnet.backends.cpu.blocked.pool_model import (
    PoolWindow,
    has_table,
    pool_window_of,
    row_bytes,
    row_columns,
    row_steps,
)
from lightnet.backends.elementwise import signed
from lightnet.backends.generator import Plan
from lightnet.backends.launches import Launch
from lightnet.dataclasses import replace
from lightnet.ir.instances import is_open
from lightnet.ir.kernel import KernelOp
from lightnet.ir.op import LnOp
from lightnet.ir.refusal import Refusal, begins_otherwise
from lightnet.ir.target import Form
from lightnet.ir.types import spec_of, vector_type_of
from lightnet.ir.windows import Axis
from lightnet.runtime.dims import Dim, Size, greatest

#: Vectors that one block of the grid folds, about.
BLOCK = 8_000
#: Accumulators of a tile, at most; steps of an unrolled body, and taps of one.
PIXELS, BODY, TAPS = 14, 120, 9
#: Bytes of scratch that a row may take.
MAX_SCRATCH = 4 << 20

#: Types of which extrema are taken.
MAPS = FLOAT_SUMS | {"i16", "i8", "ui8"}
_EXTREMA = {
    ("max", "int"): arith.MaxSIOp, ("min", "int"): arith.MinSIOp, ("max", "uint"): arith.MaxUIOp,
    ("min", "uint"): arith.MinUIOp,
}  # fmt: skip


class _Pool(BlockedGenerator):
    """The generator of `maxpool2d`, `avgpool2d`, `maxpool` and `avgpool` over two axes, and of `reduce_max`,
    `reduce_min`, `reduce_sum` and `reduce_mean` over rows and columns; of f32, extrema of integers, too."""

    alg, opens = "pool", True

    def form(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], machine: ProcessorModel) -> Form | Refusal:
        if not ops or ops[0].operand_specs[0].len == 0 or (window := pool_window_of(ops[0])) is None:
            return begins_otherwise(ops, "a pool or a reduction over windows")
        if not window.is_global and any(isinstance(axis.taps, Dim) for axis in (window.rows, window.cols)):
            return Refusal("calls decide its window, and its code has a load for each tap")
        if 4 * (row_columns(window.cols) * max(machine.lanes, 16) + greatest(window.cols.positions)) > MAX_SCRATCH:
            return Refusal("a row of its windows takes more than {} bytes", MAX_SCRATCH)
        sums = FLOAT_SUMS if window.fold == "add" else MAPS
        return epilogue_form(ops[0], ops[1:], yielded, {ops[0].operands[0]: NO_HALO}, sums=sums)

    def plan(self, kernel: KernelOp, form: Form, machine: ProcessorModel) -> Plan:
        window = pool_window_of(kernel.ops[0])
        assert window is not None
        n, channels, _, _ = kernel.ops[0].operand_specs[0].dims
        steps = n * blocks_of(channels, machine.lanes) * window.rows.positions * row_steps(window)
        traffic = 4 * sum(spec_of(v.type).len for v in (*kernel.operands, *kernel.results))
        # A step takes as long as one and a half multiply-adds: it has a load, of an extremum a mask, and rows wait in
        # scratch.
        time = 100 + 3 * machine.lanes * steps / machine.flops + 0.6 * traffic / read_rate(machine, traffic)
        weights = weight_layouts(kernel, form, machine.lanes)
        scratch = row_bytes(window, machine.lanes)
        return Plan.of(self, kernel, form, time, window, weights=weights, scratch_bytes=scratch)

    def opened(self, kernel: KernelOp, ends: Ends, form: Form, machine: ProcessorModel) -> Plan:
        window = pool_window_of(ends[1].ops[0])
        assert window is not None
        return replace(self.plan(kernel, form, machine), scratch_bytes=row_bytes(window, machine.lanes))

    def build(self, kernel: KernelOp, plan: Plan, name: str, aliases: Mapping[int, int]) -> list[Launch]:
        window = pool_window_of(kernel.ops[0])
        assert window is not None
        kind = GlobalKernel if window.is_global else WindowsKernel
        return [kind(kernel, plan.schedule, name, aliases).build()]


def even_part(width: Size) -> int:
    """Columns of a tile: of as few as cover a row, all alike."""
    if isinstance(width, Dim):
        return min(8, greatest(width))  # and shorter ones for what is left
    return -(-width // -(-width // PIXELS))


class _PoolKernel(BlockedKernel):
    """The common part of both kernels: the fold of two tiles."""

    def __init__(
        self, kernel: KernelOp, window: PoolWindow, name: str, aliases: Mapping[int, int], host: Host | None = None
    ):
        lanes, self.typical = lanes_of(kernel), window
        if is_open(kernel.operands):  # planned for the typical map
            found = pool_window_of(kernel.ops[0])
            assert found is not None
            window = found
        super().__init__(kernel, name, lanes, aliases, row_bytes(window, lanes), host=host)
        self.window = window
        self.source = kernel.ops[0].operands[0]
        self.dtype = kernel.ops[0].result_specs[0].dtype
        self.pictures, self.channels = kernel.ops[0].result_specs[0].dims[:2]
        self.blocks = blocks_of(self.channels, lanes)

    def fold(self, acc: SSAValue, value: SSAValue) -> SSAValue:
        """acc (+) value. Of an extremum, NaN wins on either side: where acc is one it stays, else the comparison is
        false for a NaN in `value`, which is then taken; one masked instruction and the comparison that makes its
        mask."""
        b, kind = self.b, self.window.fold
        if kind == "add":
            return b.op(arith.AddfOp, acc, value)
        if not self.dtype.is_float:
            return b.op(_EXTREMA[kind, self.dtype.kind], acc, value)
        better = b.select(b.cmpf("ogt" if kind == "max" else "olt", acc, value), acc, value)
        return b.select(b.cmpf("ord", acc, acc), better, acc)

    def neutral(self) -> SSAValue:
        """The element that changes nothing."""
        if self.window.fold == "add":
            return self.b.const(0.0, self.element)
        low, high = (-inf, inf) if self.dtype.is_float else self.dtype.limits
        return self.b.const(signed(low if self.window.fold == "max" else high, self.dtype), self.element)

    def as_float(self, number: SSAValue) -> SSAValue:
        """An index as an element."""
        b = self.b
        return b.op(arith.SIToFPOp, b.op(arith.IndexCastOp, number, type=i64), type=self.element)

    def pixels(self, n: Index, block: Index, y: Index, x: Index, columns: int, step: int = 1) -> SSAValue:
        """[1, columns, 1, lanes] of the map, every `step`-th column."""
        where, shape = self.at(self.source, n, block, y, x), (1, columns, 1, self.lanes)
        return self.b.tile_load(
            self.inputs[self.source], where, self.walks(self.source, [2, 3, 1, 4]), shape, steps=[1, step, 1, 1]
        )


class GlobalKernel(_PoolKernel):
    """One window over the map, or over its first rows and columns. The grid is pictures x blocks of channels."""

    def build(self) -> Launch:
        b, (rows, cols) = self.b, (self.window.rows.taps, self.window.cols.taps)
        columns = even_part(cols) if isinstance(cols, Dim) else min(cols, PIXELS)
        rest, shape = cols % columns, (1, 1, 1, self.lanes)
        with b.loop(b.lo, b.hi, name="number") as number:
            n, block = self.coordinates(number.iv, (self.pictures, self.blocks), "n block")
            tail = 1 if isinstance(rest, Dim) else rest  # columns of a tile behind the others
            start = [self.identity(c) for c in (columns, tail) if c]
            with b.loop(0, rows, carry=start, name="y") as y:
                with b.loop(0, cols - rest, columns, carry=y.args[:1], name="x") as x:
                    x.yields(self.fold(x.args[0], self.pixels(n, block, y.iv, x.iv, columns)))
                y.yields(*x.results, *self.behind(n, block, y.iv, cols - rest, cols, y.args[1:]))
            parts = [b.broadcast(b.reduce(self.window.fold, v, [1]), shape) for v in y.results]
            total = reduce(self.fold, parts)
            if self.window.mean:
                total = b.op(arith.MulfOp, total, self.reciprocal_of(rows * cols, vector_type_of(total)))
            self.finish(MapTile(n, block, 0, 0, shape, self.used), total)
            self.zero_halos(n, block, 1, 0, 1)
        return self.done(self.pictures * self.blocks)

    def behind(
        self, n: Index, block: Index, y: Index, first: Size, end: Size, acc: Sequence[SSAValue]
    ) -> Sequence[SSAValue]:
        """`acc` with the columns [first, end) of a row: one tile, or, where a call decides their number, one by one."""
        if not acc:
            return ()
        if isinstance(count := end - first, int):
            return [self.fold(acc[0], self.pixels(n, block, y, first, count))]
        with self.b.loop(first, end, carry=acc, name="x") as x:
            x.yields(self.fold(x.args[0], self.pixels(n, block, y, x.iv, 1)))
        return x.results

    def reciprocal_of(self, count: Size, type: VectorType) -> SSAValue:
        """1 / count, as a value of `type`."""
        b = self.b
        if isinstance(count, int):
            return b.const(1 / count, type)
        factor = b.op(arith.DivfOp, b.const(1.0, self.element), self.as_float(b.index(count)))
        return b.broadcast(factor, type.get_shape())

    def identity(self, columns: int) -> SSAValue:
        return self.b.broadcast(self.neutral(), (1, columns, 1, self.lanes))


class WindowsKernel(_PoolKernel):
    """Builds one kernel function, or (`walk`) part of another, which gives `scratch`: many windows. The grid is
    pictures x blocks of channels x bands of rows."""

    def __init__(
        self,
        kernel: KernelOp,
        window: PoolWindow,
        name: str,
        aliases: Mapping[int, int],
        host: Host | None = None,
        scratch: SSAValue | None = None,
    ):
        super().__init__(kernel, window, name, aliases, host)
        window = self.window
        if not window.has_second_pass and not has_table(window):
            return
        memory = self.scratch if host is None else scratch
        assert memory is not None
        if window.has_second_pass:
            shape = [1, row_columns(window.cols), 1, self.lanes]
            self.row = self.b.view(memory, 0, MemRefType(self.element, shape), name="row")
        if has_table(window):
            positions = greatest(window.cols.positions)
            offset = row_bytes(window, self.lanes) - 4 * positions
            self.table = self.b.view(memory, offset, MemRefType(self.element, [positions]), name="table")

    def build(self) -> Launch:
        height = self.typical.rows.positions
        bands = max(1, min(height, height * row_steps(self.typical) // BLOCK))

        def block(n: Index, block: Index, first: Index, last: Index) -> None:
            self.prepare()
            self.walk(n, block, first, last)
            self.zero_halos(n, block, 1, first, last)

        rows = self.window.rows.positions
        return self.by_bands((self.pictures, self.blocks), "n block", rows, -(-height // bands), block)

    def walk(self, n: Index, block: Index, first: Index, last: Index) -> None:
        """The rows [first, last) of the result, behind `prepare`."""
        self.b.location = self.anchor.location
        with self.b.loop(first, last, name="y") as y:
            self.result_row(n, block, y.iv)

    def prepare(self) -> None:
        """Fill what stays in scratch: the identity in the padding of the row in scratch, and the reciprocal counts of
        columns."""
        b, cols = self.b, self.window.cols
        if self.window.has_second_pass:
            identity = b.broadcast(self.neutral(), (self.lanes,))
            for start, end in ((0, cols.before), (cols.before + cols.size, row_columns(cols))):
                with b.loop(start, end, name="x") as x:
                    b.tile_store(identity, self.row, [0, x.iv, 0, 0], [3])
        if has_table(self.window):
            with b.loop(0, cols.positions, name="x") as x:
                b.store(self.reciprocal(cols, x.iv), self.table, [x.iv])

    # -- numbers

    def clipped(self, axis: Axis, position: Index, end: int) -> tuple[Index, Index, Index]:
        """The beginning of a window, and the taps [low, high) of it that lie in [0, end)."""
        begin = self.b.add(self.b.mul(position, axis.stride), -axis.before)
        return begin, *self.clip(axis, begin, end)

    def reciprocal(self, axis: Axis, position: Index) -> SSAValue:
        """1 / what sums of the windows at a position are divided by along an axis, a scalar."""
        b, counted = self.b, self.window.mean == "counted"
        _, low, high = self.clipped(axis, position, axis.size + axis.behind if counted else axis.size)
        count = b.index(high) if counted else b.op(arith.SubiOp, b.index(high), b.index(low))
        count = b.op(arith.MaxSIOp, count, b.index(1))
        return b.op(arith.DivfOp, b.const(1.0, self.element), self.as_float(count))

    def scaled(self, total: SSAValue, y: Index, x: Index) -> SSAValue:
        """Sums divided by their counts."""
        b, window, shape = self.b, self.window, vector_type_of(total).get_shape()
        if window.mean is None:
            return total
        factor = 1.0
        for axis, at in ((window.rows, y), (window.cols, x)):
            if (count := window.count(axis)) is not None:
                factor /= count
            elif axis is window.rows:
                total = b.op(arith.MulfOp, total, b.broadcast(self.row_factor, shape))
            else:
                table = b.tile_load(self.table, [at], [0, 0, 0, 0], shape, steps=[0, 1, 0, 0])
                total = b.op(arith.MulfOp, total, table)
        return total if factor == 1 else b.op(arith.MulfOp, total, b.const(factor, total.type))

    # -- passes

    def result_row(self, n: Index, block: Index, y: Index) -> None:
        b, window = self.b, self.window
        cols = window.cols
        if window.mean and window.count(window.rows) is None:
            self.row_factor = self.reciprocal(window.rows, y)
        taps = self.clipped(window.rows, y, window.rows.size)

        def whole(at: Index, columns: int) -> None:
            fold = self.fold_window if window.is_small else self.fold_rows
            self.finish_tile(n, block, y, at, fold(n, block, taps, at, columns))

        def rows(at: Index, columns: int) -> None:
            total = self.fold_rows(n, block, taps, at, columns)
            b.tile_store(total, self.row, [0, b.add(at, cols.before), 0, 0], [0, 1, 2, 3])

        def columns(at: Index, columns: int) -> None:
            self.finish_tile(n, block, y, at, self.fold_columns(at, columns))

        if window.has_second_pass:
            self.across(cols.size, even_part(cols.size), rows)
        self.across(cols.positions, even_part(cols.positions), columns if window.has_second_pass else whole)

    def fold_window(self, n: Index, block: Index, taps: tuple[Index, Index, Index], x: Index, columns: int) -> SSAValue:
        """All elements of windows, one element of each at a time."""
        b, cols = self.b, self.window.cols
        places = [b.add(b.mul(x, cols.stride), q * cols.dilation - cols.before) for q in range(cols.taps)]
        values = (self.pixels(n, block, y, place, columns, cols.stride) for y in self.rows(taps) for place in places)
        return reduce(self.fold, values)

    def fold_rows(self, n: Index, block: Index, taps: tuple[Index, Index, Index], x: Index, columns: int) -> SSAValue:
        """The rows under a window, of some columns; there is one at least."""
        b, (begin, low, high), axis = self.b, taps, self.window.rows
        if axis.taps <= min(TAPS, BODY // columns) and not (axis.clipped and self.window.fold == "add"):
            return reduce(self.fold, (self.pixels(n, block, y, x, columns) for y in self.rows(taps)))
        value = self.pixels(n, block, b.add(begin, b.mul(low, axis.dilation)), x, columns)
        with b.loop(b.add(low, 1), high, carry=[value], name="r") as r:
            value = self.pixels(n, block, b.add(begin, b.mul(r.iv, axis.dilation)), x, columns)
            r.yields(self.fold(r.args[0], value))
        return r.results[0]

    def rows(self, taps: tuple[Index, Index, Index]) -> list[Index]:
        """The rows of the map under all taps of a window; of those outside the nearest inside instead: what is folded
        twice changes no extremum (and sums have windows that lie inside)."""
        b, (begin, low, high), axis = self.b, taps, self.window.rows
        found: list[Index] = list(range(axis.taps))
        if axis.clipped:
            last = b.op(arith.SubiOp, b.index(high), b.index(1))
            found = [b.op(arith.MinSIOp, b.op(arith.MaxSIOp, b.index(r), b.index(low)), last) for r in found]
        return [b.add(begin, b.mul(r, axis.dilation)) for r in found]

    def fold_columns(self, x: Index, columns: int) -> SSAValue:
        """The columns under windows, of the row in scratch."""
        b, cols = self.b, self.window.cols

        def value(q: Index) -> SSAValue:
            at = b.add(b.mul(x, cols.stride), b.mul(q, cols.dilation))
            return b.tile_load(
                self.row, [0, at, 0, 0], [0, 1, 2, 3], (1, columns, 1, self.lanes), steps=[1, cols.stride, 1, 1]
            )

        if cols.taps <= min(TAPS, BODY // columns):
            return reduce(self.fold, map(value, range(cols.taps)))
        with b.loop(1, cols.taps, carry=[value(0)], name="q") as q:
            q.yields(self.fold(q.args[0], value(q.iv)))
        return q.results[0]

    def finish_tile(self, n: Index, block: Index, y: Index, x: Index, total: SSAValue) -> None:
        if self.window.fold == "add" and self.window.rows.taps * self.window.cols.taps > 1:
            total = self.b.op(
                arith.AddfOp, total, self.b.const(0.0, total.type)
            )  # sums begin at 0: of -0 alone they are 0
        rows, columns, vectors, lanes = vector_type_of(total).get_shape()
        tile = MapTile(n, block, y, x, (rows, columns, vectors, lanes), self.used)
        self.finish(tile, self.scaled(total, y, x))


POOL = _Pool()
