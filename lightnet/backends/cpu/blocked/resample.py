"""Resampled maps: nearest neighbours (`resize`, `upsample`) and weighted sums along rows or columns (`interpolate`),
with an epilogue.

A pixel of a blocked map is a register, so that taking another pixel is another address. Where the scales are whole
numbers, a pixel that is read once is written as a tile of equal pixels. Imports the base of blocked kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects import arith
from xdsl.ir import SSAValue

from lightnet.backends.builder import INDEX, Index
from lightnet.backends.cpu.blocked.base import NO_HALO, BlockedGenerator, ProcessorModel, blocks_of, lanes_of, read_rate
from lightnet.backends.cpu.blocked.forms import elementwise_form, keeps_zero, weight_layouts
from lightnet.backends.cpu.blocked.kernel import BlockedKernel, MapTile
from lightnet.backends.generator import Plan
from lightnet.backends.launches import Launch
from lightnet.dialects.ln.resize import Interpolate, Resize, Upsample
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import byte_size
from lightnet.ir.op import LnOp
from lightnet.ir.target import Form
from lightnet.ir.types import memref_type_of, spec_of

#: Pixels of the largest tile of equal ones, and of a tile of sums along a column.
EQUAL, PIXELS = 16, 8
#: Taps of the longest sum.
MAX_TAPS = 64
#: Pixels that one block of the grid covers, about.
BAND = 1024


class Resample(BlockedGenerator):
    """One resampling op that leaves pictures and channels alone, and elementwise ops of its result's shape around
    it."""

    alg = "resample"

    def form(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], machine: ProcessorModel) -> Form | None:
        anchors = [op for op in ops if isinstance(op, Resize | Upsample | Interpolate)]
        if len(anchors) != 1:
            return None
        (anchor,), rest = anchors, [op for op in ops if op is not anchors[0]]
        source, result = anchor.operand_specs[0], anchor.result_specs[0]
        if source.ndim != 4 or source.len == 0 or source.dims[:2] != result.dims[:2] or source.dtype.name != "f32":
            return None
        tables = anchor.operands[1:]
        if not isinstance(anchor, Interpolate) and anchor.mode != "TL_NEAREST":
            return None
        if isinstance(anchor, Interpolate) and not 1 <= spec_of(tables[0].type).dims[1] <= MAX_TAPS:
            return None
        made = {r for op in rest for r in op.results}
        if any(v in made or any(v in op.operands for op in rest) for v in anchor.operands):
            return None  # what is resampled comes from outside, and is not read at the result's pixels, too
        return elementwise_form(result, rest, yielded, {anchor.operands[0]: NO_HALO}, given=anchor.results)

    def plan(self, kernel: KernelOp, form: Form, machine: ProcessorModel) -> Plan:
        sizes = sum(byte_size(v.type) for v in (*kernel.operands, *kernel.results))
        anchor = _anchor(kernel)
        taps = anchor.operand_specs[1].dims[1] if isinstance(anchor, Interpolate) else 0
        compute = 2 * taps * anchor.result_specs[0].len / (0.25 * machine.flops)
        time = max(sizes / min(read_rate(machine, sizes), machine.l3_bytes), compute)
        weights = weight_layouts(kernel, form, machine.lanes)
        return Plan.of(self, kernel, form, time, weights=weights)

    def build(self, kernel: KernelOp, plan: Plan, name: str, aliases: Mapping[int, int]) -> list[Launch]:
        return [_ResampleKernel(kernel, name, lanes_of(kernel), aliases).build()]


def _anchor(kernel: KernelOp) -> LnOp:
    return next(op for op in kernel.ops if isinstance(op, Resize | Upsample | Interpolate))


class _ResampleKernel(BlockedKernel):
    """Builds one kernel function. The grid is pictures x blocks of channels x bands of rows (of the source, where a row
    of it becomes a whole number of rows)."""

    def build(self) -> Launch:
        self.anchor = _anchor(self.kernel)
        self.source = self.anchor.operands[0]
        pictures, channels, self.height, self.width = self.anchor.result_specs[0].dims
        self.old_height, self.old_width = self.anchor.operand_specs[0].dims[2:]
        scales = (self.height // self.old_height, self.width // self.old_width)
        whole = (self.old_height * scales[0], self.old_width * scales[1]) == (self.height, self.width)
        self.scales = scales if whole and scales[0] * scales[1] <= EQUAL else (1, 1)
        blocks, step = blocks_of(channels, self.lanes), 1 if isinstance(self.anchor, Interpolate) else self.scales[0]
        units = self.height // step
        makes_nan = isinstance(self.anchor, Interpolate)  # of the zeros in unused lanes, where a weight is infinite
        band = max(1, min(units, BAND // (self.width * step)))
        partial = channels % self.lanes if makes_nan or not keeps_zero(self.rest) else 0

        def block(n: Index, block: Index, first: Index, last: Index) -> None:
            self.by_lanes(
                block, blocks, partial or self.lanes, lambda block, used: self.band(n, block, first, last, used)
            )
            self.zero_halos(n, block, 1, self.b.mul(first, step), self.b.mul(last, step))

        return self.by_bands((pictures, blocks), "n block", units, band, block)

    @property
    def rest(self) -> list[LnOp]:
        """The elementwise ops, before and behind the resampling one."""
        return [op for op in self.ops if op is not self.anchor]

    def finish(self, tile: MapTile, value: SSAValue) -> None:
        """Run the elementwise ops on a finished tile of the resampled map, and store what the kernel yields."""
        self.evaluate(tile, {self.anchor.results[0]: value}, self.rest)

    def band(self, n: Index, block: Index, first: Index, last: Index, used: int) -> None:
        """Units of rows [first, last) of one block of channels."""
        if isinstance(self.anchor, Interpolate):
            (self.along_rows if self.anchor.axis == 3 else self.along_columns)(n, block, first, last, used)
        elif self.scales != (1, 1):
            self.replicated(n, block, first, last, used)
        else:
            self.nearest(n, block, first, last, used)

    def pixels(self, n: Index, block: Index, y: Index, x: Index, count: int = 1) -> SSAValue:
        """Pixels of the source, [1, count, 1, lanes]."""
        where = self.at(self.source, n, block, y, x)
        return self.b.tile_load(self.inputs[self.source], where, [2, 3, 1, 4], (1, count, 1, self.lanes))

    def replicated(self, n: Index, block: Index, first: Index, last: Index, used: int) -> None:
        """Each pixel as a tile of equal ones."""
        b, (rows, cols) = self.b, self.scales
        shape = (rows, cols, 1, self.lanes)
        with b.loop(first, last, name="y") as y, b.loop(0, self.old_width, name="x") as x:
            value = b.broadcast(self.pixels(n, block, y.iv, x.iv), shape)
            self.finish(MapTile(n, block, b.mul(y.iv, rows), b.mul(x.iv, cols), shape, used), value)

    def nearest(self, n: Index, block: Index, first: Index, last: Index, used: int) -> None:
        """Element d from element floor((2 d + 1) old / (2 new)), as the op's definition has it."""
        b = self.b

        def of(d: SSAValue, old: int, new: int) -> Index:
            return b.divmod(b.mul(b.add(b.mul(d, 2), 1), old), 2 * new)[0] if old != new else d

        with b.loop(first, last, name="y") as y:
            row = of(y.iv, self.old_height, self.height)
            with b.loop(0, self.width, name="x") as x:
                value = self.pixels(n, block, row, of(x.iv, self.old_width, self.width))
                self.finish(MapTile(n, block, y.iv, x.iv, (1, 1, 1, self.lanes), used), value)

    def along_columns(self, n: Index, block: Index, first: Index, last: Index, used: int) -> None:
        """Sums of rows: one row of the tables is one row of the result."""
        b = self.b
        tile = next((p for p in range(PIXELS, PIXELS // 2, -1) if self.width % p == 0), min(PIXELS, self.width))
        rest = self.width % tile
        with b.loop(first, last, name="y") as y:
            taps = self.taps(y.iv, self.old_height)

            def one(x: Index, count: int, y: Index = y.iv, taps: Sequence = taps) -> None:
                shape = (1, count, 1, self.lanes)
                total = self.weighted([self.pixels(n, block, row, x, count) for row, _ in taps], taps, shape)
                self.finish(MapTile(n, block, y, x, shape, used), total)

            with b.loop(0, self.width - rest, tile, name="x") as x:
                one(x.iv, tile)
            if rest:
                one(self.width - rest, rest)

    def along_rows(self, n: Index, block: Index, first: Index, last: Index, used: int) -> None:
        """Sums along a row: one row of the tables is one column of the result."""
        b, shape = self.b, (1, 1, 1, self.lanes)
        with b.loop(0, self.width, name="x") as x:
            taps = self.taps(x.iv, self.old_width)
            with b.loop(first, last, name="y") as y:
                total = self.weighted([self.pixels(n, block, y.iv, at) for at, _ in taps], taps, shape)
                self.finish(MapTile(n, block, y.iv, x.iv, shape, used), total)

    def taps(self, o: Index, size: int) -> list[tuple[SSAValue, SSAValue]]:
        """(index, clamped to [0, size), and weight) of each term of the sum that is element `o`."""
        b = self.b
        index, weight = (self.inputs[v] for v in self.anchor.operands[1:])
        found = []
        for t in range(memref_type_of(index).get_shape()[1]):
            at = b.op(arith.IndexCastOp, b.load(index, [o, t]), type=INDEX)
            at = b.op(arith.MaxSIOp, b.op(arith.MinSIOp, at, b.index(size - 1)), b.index(0))
            found.append((at, b.load(weight, [o, t])))
        return found

    def weighted(
        self, values: Sequence[SSAValue], taps: Sequence[tuple[SSAValue, SSAValue]], shape: Sequence[int]
    ) -> SSAValue:
        """The sum of values by their weights."""
        b = self.b
        total = b.broadcast(b.const(0.0, self.element), shape)  # + 0, so that unused lanes are not -0
        for value, (_, weight) in zip(values, taps):
            total = b.op(arith.AddfOp, total, b.op(arith.MulfOp, value, b.broadcast(weight, shape)))
        return total


RESAMPLE = Resample()
