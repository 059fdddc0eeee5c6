"""Maps of which each element follows from one place of others, and resampled ones: residual sums with an activation,
batch norm that is left, scales by channel, chains of these; nearest neighbours (`resize`, `upsample`) and weighted sums
along rows or columns (`interpolate`), with such ops around them.

Every element is written once, and read about as often, so these kernels run as fast as memory does: a tile is some
pixels of a row, all the ops of the body run on it in registers, and a result may take the memory of an operand. Maps
without a halo are one long row a picture and block of channels. A pixel of a blocked map is a register, so that taking
another pixel is another address; where scales are whole numbers, one that is read once is written as a tile of equal
ones. Imports the base of blocked kernels and the notation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects import arith
from xdsl.ir import SSAValue

from lightnet.backends.builder import INDEX, Index
from lightnet.backends.cpu.blocked.base import NO_HALO, BlockedGenerator, ProcessorModel, blocks_of, lanes_of, read_rate
from lightnet.backends.cpu.blocked.forms import elementwise_form, keeps_zero, weight_layouts
from lightnet.backends.cpu.blocked.kernel import BlockedKernel, MapTile, RowsKernel
from lightnet.backends.expressions import ON_TILES, bind_op
from lightnet.backends.generator import Plan
from lightnet.backends.launches import Launch
from lightnet.dialects.ln.resize import Interpolate, Resize, Upsample
from lightnet.ir import bound
from lightnet.ir.instances import is_open
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import byte_size
from lightnet.ir.op import LnOp
from lightnet.ir.refusal import Refusal
from lightnet.ir.target import Form
from lightnet.ir.types import spec_of
from lightnet.runtime.dims import Dim, Size, greatest, typical

#: Instructions on a vector that a function of the notation takes, where it is not one.
WEIGHTS = {"exp": 20, "log": 24, "tanh": 28, "erf": 40, "sin": 30, "cos": 30, "pow": 60, "div": 4, "sqrt": 4}
#: Instructions of an unrolled body, at most, and pixels of a tile.
BODY, PIXELS = 240, 8
#: Bytes of a map that one block of the grid covers, about.
BAND = 32 << 10
#: Pixels of the largest tile of equal ones, and of a tile of sums along a column.
EQUAL, SUMMED = 16, 8
#: Taps of the longest sum.
MAX_TAPS = 64
#: Pixels of a resampled map that one block of the grid covers, about.
UNITS = 1024


def operations(ops: Sequence[LnOp]) -> int:
    """Instructions on one vector that the ops take, roughly."""

    def of(node: bound.Node) -> int:
        if not isinstance(node, bound.Apply):
            return 0
        return WEIGHTS.get(node.fn, 1) + sum(of(a) for a in node.args)

    return sum(max(1, of(s.value)) for op in ops for s in bind_op(op).statements)


class Maps(BlockedGenerator):
    """The generator of elementwise bodies on maps [N, C, H, W]; every operand is read at the element that is
    written."""

    alg, opens = "map", True

    def form(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], machine: ProcessorModel) -> Form | Refusal:
        if not ops or len(ops[0].results) != 1:
            return Refusal("its first op has several results")
        form = elementwise_form(ops[0].result_specs[0], ops, yielded, {}, sums=ON_TILES)
        if isinstance(form, Refusal):
            return Refusal("it is no body of elementwise ops on maps: {}", form.why)
        return form if form.maps else Refusal("it is no body on maps")

    def plan(self, kernel: KernelOp, form: Form, machine: ProcessorModel) -> Plan:
        sizes = [byte_size(v.type) for v in (*kernel.operands, *kernel.results)]
        vectors = spec_of(kernel.results[0].type).len / machine.lanes
        compute = 2 * machine.lanes * vectors * operations(kernel.ops) / machine.flops
        time = max(sum(sizes) / read_rate(machine, sum(sizes)), compute)
        weights = weight_layouts(kernel, form, machine.lanes)
        return Plan.of(self, kernel, form, time, weights=weights)

    def build(self, kernel: KernelOp, plan: Plan, name: str, aliases: Mapping[int, int]) -> list[Launch]:
        return [_MapKernel(kernel, name, aliases).build()]


class _MapKernel(RowsKernel):
    """Builds one kernel function. The grid is pictures x blocks of channels x bands of rows."""

    def build(self) -> Launch:
        most = max(1, min(PIXELS, BODY // operations(self.ops)))
        few = most if isinstance(self.cols, Dim) else min(most, self.cols)
        self.pixels = next((p for p in range(most, most // 2, -1) if self.cols % p == 0), few)
        pictures, blocks = spec_of(self.yielded[0].type).dims[0], blocks_of(self.channels, self.lanes)
        band = max(1, min(greatest(self.rows), BAND // (4 * typical(self.cols) * self.lanes)))
        partial = self.channels % self.lanes
        used = partial if partial and not keeps_zero(self.ops) else self.lanes

        def block(n: Index, block: Index, first: Index, last: Index) -> None:
            self.by_lanes(block, blocks, used, lambda block, used: self.band(n, block, first, last, used))
            self.zero_halos(n, block, 1, first, last)

        return self.by_bands((pictures, blocks), "n block", self.rows, band, block)

    def band(self, n: Index, block: Index, first: Index, last: Index, used: int) -> None:
        """Rows [first, last) of one block of channels."""
        b, rest = self.b, self.cols % self.pixels
        with b.loop(first, last, name="y") as y:

            def tile(x: Index, pixels: int) -> None:
                self.tile(MapTile(n, block, y.iv, x, (1, pixels, 1, self.lanes), used))

            if isinstance(rest, Dim):
                self.across_open(self.cols, self.pixels, tile)
                return
            with b.loop(0, self.cols - rest, self.pixels, name="x") as x:
                tile(x.iv, self.pixels)
            if rest:
                tile(self.cols - rest, rest)

    def tile(self, tile: MapTile) -> None:
        self.evaluate(tile, {}, self.ops)


# -- resampled maps ----------------------------------------------------------------------------------------------------


class Resample(BlockedGenerator):
    """One resampling op that leaves pictures and channels alone, and elementwise ops of its result's shape around
    it."""

    alg, opens = "resample", True

    def form(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], machine: ProcessorModel) -> Form | Refusal:
        anchors = [op for op in ops if isinstance(op, Resize | Upsample | Interpolate)]
        if len(anchors) != 1:
            return Refusal("it is no body that resamples, once")
        (anchor,), rest = anchors, [op for op in ops if op is not anchors[0]]
        source, result = anchor.operand_specs[0], anchor.result_specs[0]
        if source.ndim != 4 or source.len == 0 or source.dims[:2] != result.dims[:2] or source.dtype.name != "f32":
            return Refusal("it resamples {} to {}, other than the pixels of maps of f32", source, result)
        tables = anchor.operands[1:]
        if not isinstance(anchor, Interpolate) and anchor.mode != "TL_NEAREST":
            return Refusal("its mode is {}, not TL_NEAREST", anchor.mode)
        if isinstance(anchor, Interpolate) and not 1 <= spec_of(tables[0].type).dims[1] <= MAX_TAPS:
            return Refusal("a pixel is made of more than {} rows, or columns", MAX_TAPS)
        made = {r for op in rest for r in op.results}
        if any(v in made or any(v in op.operands for op in rest) for v in anchor.operands):
            return Refusal("what is resampled is made in it, or read at the result's pixels, too")
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


def _times(new: Size, old: Size) -> int:
    """The whole number of times that a length is as long as `old`, in every call; 0 where there is none."""
    ratio = new.over(old) if isinstance(new, Dim) else new // old if isinstance(old, int) else None
    return ratio if isinstance(ratio, int) and old * ratio == new else 0


class _ResampleKernel(BlockedKernel):
    """Builds one kernel function. The grid is pictures x blocks of channels x bands of rows (of the source, where a row
    of it becomes a whole number of rows)."""

    def build(self) -> Launch:
        self.anchor = _anchor(self.kernel)
        self.source = self.anchor.operands[0]
        pictures, channels, self.height, self.width = self.anchor.result_specs[0].dims
        self.old_height, self.old_width = self.anchor.operand_specs[0].dims[2:]
        scales = _times(self.height, self.old_height), _times(self.width, self.old_width)
        self.scales = scales if 0 < scales[0] * scales[1] <= EQUAL else (1, 1)
        blocks, step = blocks_of(channels, self.lanes), 1 if isinstance(self.anchor, Interpolate) else self.scales[0]
        units = self.height // step
        makes_nan = isinstance(self.anchor, Interpolate)  # of the zeros in unused lanes, where a weight is infinite
        band = max(1, min(greatest(units), UNITS // (typical(self.width) * step)))
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
        walked = self.walks(self.source, [2, 3, 1, 4])
        return self.b.tile_load(self.inputs[self.source], where, walked, (1, count, 1, self.lanes))

    def replicated(self, n: Index, block: Index, first: Index, last: Index, used: int) -> None:
        """Each pixel as a tile of equal ones."""
        b, (rows, cols) = self.b, self.scales
        each = 1 if is_open([self.source]) else rows  # a tile of an open map has one row
        shape = (each, cols, 1, self.lanes)
        with b.loop(first, last, name="y") as y, b.loop(0, self.old_width, name="x") as x:
            value = b.broadcast(self.pixels(n, block, y.iv, x.iv), shape)
            for row in range(0, rows, each):
                at = b.add(b.mul(y.iv, rows), row)
                self.finish(MapTile(n, block, at, b.mul(x.iv, cols), shape, used), value)

    def nearest(self, n: Index, block: Index, first: Index, last: Index, used: int) -> None:
        """Element d from element floor((2 d + 1) old / (2 new)), as the op's definition has it."""
        b = self.b

        def of(d: SSAValue, old: Size, new: Size) -> Index:
            return b.divmod(b.mul(b.add(b.mul(d, 2), 1), old), 2 * new)[0] if old != new else d

        with b.loop(first, last, name="y") as y:
            row = of(y.iv, self.old_height, self.height)
            with b.loop(0, self.width, name="x") as x:
                value = self.pixels(n, block, row, of(x.iv, self.old_width, self.width))
                self.finish(MapTile(n, block, y.iv, x.iv, (1, 1, 1, self.lanes), used), value)

    def along_columns(self, n: Index, block: Index, first: Index, last: Index, used: int) -> None:
        """Sums of rows: one row of the tables is one row of the result."""
        b, width = self.b, self.width
        most = SUMMED if isinstance(width, Dim) else min(SUMMED, width)
        tile = next((p for p in range(SUMMED, SUMMED // 2, -1) if width % p == 0), most)
        rest = width % tile
        with b.loop(first, last, name="y") as y:
            taps = self.taps(y.iv, self.old_height)

            def one(x: Index, count: int, y: Index = y.iv, taps: Sequence = taps) -> None:
                shape = (1, count, 1, self.lanes)
                total = self.weighted([self.pixels(n, block, row, x, count) for row, _ in taps], taps, shape)
                self.finish(MapTile(n, block, y, x, shape, used), total)

            if isinstance(rest, Dim):
                self.across_open(width, tile, one)
            else:
                with b.loop(0, width - rest, tile, name="x") as x:
                    one(x.iv, tile)
                if rest:
                    one(width - rest, rest)

    def along_rows(self, n: Index, block: Index, first: Index, last: Index, used: int) -> None:
        """Sums along a row: one row of the tables is one column of the result."""
        b, shape = self.b, (1, 1, 1, self.lanes)
        with b.loop(0, self.width, name="x") as x:
            taps = self.taps(x.iv, self.old_width)
            with b.loop(first, last, name="y") as y:
                total = self.weighted([self.pixels(n, block, y.iv, at) for at, _ in taps], taps, shape)
                self.finish(MapTile(n, block, y.iv, x.iv, shape, used), total)

    def taps(self, o: Index, size: Size) -> list[tuple[SSAValue, SSAValue]]:
        """(index, clamped to [0, size), and weight) of each term of the sum that is element `o`."""
        b, tables = self.b, self.anchor.operands[1:]
        index, weight = (self.inputs[v] for v in tables)
        found, count = [], self.anchor.operand_specs[1].dims[1]
        for t in range(count):
            place = [b.add(b.mul(o, count), t)] if is_open(tables) else [o, t]  # tables of an open length lie flat
            at = b.op(arith.IndexCastOp, b.load(index, place), type=INDEX)
            at = b.op(arith.MaxSIOp, b.op(arith.MinSIOp, at, b.index(size - 1)), b.index(0))
            found.append((at, b.load(weight, place)))
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


MAPS, RESAMPLE = Maps(), Resample()
