"""Winograd convolutions on blocked maps: transform a group of tiles, multiply for each product, transform back with the
epilogue.

The products are matrix products [tiles, channels] x [channels, outputs] on register tiles. Either a block of the grid
does all of that for a group of tiles, or one launch transforms the input of all, and in a second one a block is a group
for a share of the outputs; then each weight is read by one thread only. Or a block of that is a panel of outputs for
all groups, which transforms its weights itself (`winograd_panels.py`). What a phase will touch is asked for while
products are made: the transforms would wait for memory, the products need it little. Imports the base of blocked
kernels, the plan and the transforms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from xdsl.dialects import arith
from xdsl.dialects.builtin import MemRefType, f32
from xdsl.ir import SSAValue

from lightnet.backends.builder import Index, vector_type
from lightnet.backends.cpu.blocked.depthwise import conv_of
from lightnet.backends.cpu.blocked.kernel import BlockedKernel, MapTile, map_place
from lightnet.backends.cpu.blocked.winograd_model import OUTPUTS, TILES, TiledAxis, WinogradSchedule
from lightnet.backends.cpu.blocked.winograd_runs import (
    Planes,
    input_rows,
    padded_bytes,
    planes,
    product_rows,
    scratch_bytes,
    used_slots,
    workspace_bytes,
)
from lightnet.backends.cpu.blocked.winograd_transforms import (
    Inputs,
    extent,
    group_place,
    group_tiles,
    input_launch,
    start_of,
    transform_output,
)
from lightnet.backends.launches import Launch
from lightnet.dataclasses import replace
from lightnet.ir.kernel import KernelOp
from lightnet.ir.types import memref_type_of, spec_of
from lightnet.runtime.dims import Dim

#: Pixels of a row ahead of those that are written, at least, for which memory is asked.
AHEAD = 8
#: Pixels that are asked for at once, at most: each is an instruction.
BURST = 32


def sized_for(kernel: KernelOp, schedule: WinogradSchedule) -> WinogradSchedule:
    """A schedule with the sizes of a kernel, which may be open."""
    y, x = (TiledAxis.cut(conv_of(kernel), k, schedule.m) for k in (0, 1))
    return replace(schedule, y=y, x=x, batch=kernel.ops[0].operand_specs[0].dims[0])


def build(kernel: KernelOp, schedule: WinogradSchedule, name: str, aliases: Mapping[int, int]) -> list[Launch]:
    """The functions of a kernel."""
    if schedule.is_run:
        schedule = sized_for(kernel, schedule)
    if schedule.order == TILES:
        return [Products(kernel, schedule, name, aliases).by_tiles()]
    first, second = input_launch(kernel, schedule, name), f"{name}_1"
    if schedule.order == OUTPUTS:
        return [first, Products(kernel, schedule, second, aliases).by_outputs()]
    from lightnet.backends.cpu.blocked.winograd_panels import Panels

    return [first, Panels(kernel, schedule, second, aliases).by_panels()]


# -- the products and the transform back -------------------------------------------------------------------------------


class Band(NamedTuple):
    """Rows of a map, full of `blocks` blocks of channels: from the memref's position `at` on; read or written soon."""

    memref: SSAValue
    at: Sequence[Index]
    rows: int
    blocks: int
    written: bool


class Products(BlockedKernel):
    """Builds the function that multiplies, transforms back and runs the epilogue; where a block is a group, the input's
    transform as well."""

    mixes_channels = True

    def __init__(self, kernel: KernelOp, schedule: WinogradSchedule, name: str, aliases: Mapping[int, int]):
        self.schedule = schedule
        super().__init__(kernel, name, schedule.lanes, aliases, scratch_bytes(schedule), workspace_bytes(schedule))
        #: What the epilogue touches pixel by pixel: (value, memref, whether it is written).
        self.touched = [(value, memref, True) for value, memref in zip(self.yielded, self.results)]
        dims = self.anchor.result_specs[0].dims
        self.touched += [
            (value, memref, False)
            for value, memref in self.inputs.items()
            if value is not self.anchor.operands[0] and spec_of(value.type).dims == dims and memref not in self.results
        ]
        self.stage = self.part(0, schedule.tile_shape)
        offset = padded_bytes(schedule.tile_shape)
        products, _, *inner = schedule.product_shape
        if schedule.is_run:
            self.made = planes(self.b, self.scratch, offset, product_rows(schedule), (products, *inner), "made")
            if schedule.order == TILES:  # of panels, each block looks at its group's
                at, shape = offset + 4 * schedule.lanes * input_rows(schedule), (products, schedule.lanes)
                self.transformed = planes(self.b, self.scratch, at, input_rows(schedule), shape, "transformed")
            return
        self.made = Planes(self.part(offset, schedule.product_shape))
        if schedule.order == TILES:
            plane = padded_bytes(schedule.input_shape[2:])
            self.transformed = Planes(self.part(offset + plane, schedule.input_shape))
        else:
            type = MemRefType(f32, schedule.input_shape)
            self.transformed = Planes(self.b.view(self.workspace, 0, type, name="transformed"))

    def memref(self, value: SSAValue) -> MemRefType:
        """The memref of a value; of the weights, a panel's outputs are [vectors, lanes]."""
        found = super().memref(value)
        if value is not self.anchor.operands[1]:
            return found
        return MemRefType(found.element_type, [*found.get_shape()[:-1], self.schedule.vectors, self.schedule.lanes])

    def part(self, offset: int, shape: Sequence[int]) -> SSAValue:
        """Part of the scratch as a memref."""
        return self.b.view(self.scratch, offset, MemRefType(f32, shape))

    def by_tiles(self) -> Launch:
        """A block is a group of tiles, for all outputs."""
        b, schedule = self.b, self.schedule
        source = self.anchor.operands[0]
        inputs = Inputs(b, schedule, self.kernel, self.inputs[source], self.stage, self.transformed,
                        lambda indices: map_place(b, source, indices))  # fmt: skip
        with b.loop(b.lo, b.hi, name="block") as block:
            n, gy, gx = group_place(b, schedule, block.iv)
            with b.loop(0, schedule.in_blocks, name="channels") as channels:
                inputs.group(n, gy, gx, 0, channels.iv)
            self.outputs(n, gy, gx, 0, 0, self.bands(n, gy))
        return self.done(schedule.all_groups)

    def by_outputs(self) -> Launch:
        """A block is a group for some panels of outputs, which change last, so that a thread reads few of the
        weights."""
        b, schedule = self.b, self.schedule
        with b.loop(b.lo, b.hi, name="block") as block:
            part, group = b.divmod(block.iv, schedule.all_groups)
            n, gy, gx = group_place(b, schedule, group)
            self.outputs(n, gy, gx, group, part, ())
        return self.done(-(-schedule.panels // schedule.share) * schedule.all_groups)

    def outputs(self, n: Index, gy: Index, gx: Index, group: Index, part: Index, bands: Sequence[Band]) -> None:
        """The panels of one share of the outputs of a group, and what falls to it of the halo."""
        b, schedule = self.b, self.schedule
        first, panels = extent(b, schedule.panels, schedule.share, part)
        self.multiply(gy, group, first, panels, bands)
        with b.loop(0, panels, name="p") as p:
            self.panel(n, gy, gx, b.add(first, p.iv), p.iv)
        self.zero(n, gy, gx, *extent(b, schedule.out_blocks, schedule.share * schedule.vectors, part))

    def panel(self, n: Index, gy: Index, gx: Index, panel: Index, number: Index) -> None:
        """A panel of outputs of a group, whose products are those of `number` in `made`."""
        b, schedule = self.b, self.schedule
        block, count = extent(b, schedule.out_blocks, schedule.vectors, panel)
        with group_tiles(b, schedule, gy, gx) as (ty, tx, slot), b.loop(0, count, name="v") as v:
            self.back(n, b.add(block, v.iv), ty, tx, b.add(b.mul(number, used_slots(schedule)), slot), v.iv)

    def zero(self, n: Index, gy: Index, gx: Index, block: Index, count: Index) -> None:
        """The halo beside as many rows as fall to this group, for `count` blocks of channels."""
        b, schedule = self.b, self.schedule
        groups = schedule.groups[0] * schedule.groups[1]
        share = b.divmod(schedule.y.positions + groups - 1, groups)[0]
        number = b.add(b.mul(gy, schedule.groups[1]), gx)
        first, last = (
            b.op(arith.MinSIOp, b.index(b.mul(b.add(number, k), share)), b.index(schedule.y.positions)) for k in (0, 1)
        )
        self.zero_halos(n, block, count, first, last)

    def bands(self, n: Index, gy: Index) -> list[Band]:
        """The bands that are read and written after the products of a group, where it is whole rows: the input of the
        next one, and what the epilogue touches.
        """
        b, schedule, source = self.b, self.schedule, self.anchor.operands[0]
        if schedule.is_run or schedule.groups[1] > 1 or schedule.y.dilation > 1:
            return []
        rows = schedule.group[0] * schedule.y.m
        after = [
            Band(memref, self.at(value, n, 0, b.mul(gy, rows), 0), rows, schedule.out_blocks, written)
            for value, memref, written in self.touched
        ]
        if schedule.groups[0] == 1:
            return after
        known = schedule.y.points - schedule.y.m  # rows of the next group that this one has read, too
        first = b.add(b.mul(b.add(gy, 1), rows), known - schedule.y.before)
        return [Band(self.inputs[source], self.at(source, n, 0, first, 0), rows, schedule.in_blocks, False), *after]

    def fetch(self, band: Band, k: Index, panel: Index) -> None:
        """Ask for as much of a band as falls to one panel of product `k`: while products are made, memory has nothing
        else to do."""
        b, schedule = self.b, self.schedule
        n, _, row, column, _ = band.at
        pixels = band.rows * memref_type_of(band.memref).get_shape()[3]
        each = -(-pixels * band.blocks // (schedule.products * schedule.panels))
        block, pixel = b.divmod(b.mul(b.add(b.mul(k, schedule.panels), panel), each), pixels)
        size = 4 * schedule.lanes * min(each, BURST)
        b.prefetch(band.memref, [n, block, row, b.add(column, pixel), 0], size, write=band.written)

    def multiply(self, gy: Index, group: Index, panel: Index, panels: Index, bands: Sequence[Band]) -> None:
        """The products of a group for `panels` panels from `panel` on, into `made`: plane by plane, since a plane of
        the input stays in the first-level cache while all weights of that product pass."""
        b, schedule = self.b, self.schedule
        with b.loop(0, schedule.products, name="k") as k, b.loop(0, panels, name="p") as p:
            here = b.add(panel, p.iv), k.iv
            following = b.add(p.iv, 1)
            ends = b.cmpi("eq", following, b.index(panels))
            ahead = b.select(ends, b.index(panel), b.add(panel, following)), b.select(ends, b.add(k.iv, 1), k.iv)
            for band in bands:
                self.fetch(band, k.iv, p.iv)
            before: Index = 0
            for first, many, rows in self.steps(gy):
                with b.loop(0, many) as i:
                    row = b.add(b.mul(i.iv, rows), first)
                    total = self.sum(here, ahead, b.add(i.iv, before), [group, k.iv, row], rows)
                    self.keep(total, k.iv, b.add(b.mul(p.iv, used_slots(schedule)), row))
                before = b.add(before, many)

    def keep(self, products: SSAValue, k: Index, row: Index) -> None:
        """Write a register tile of products."""
        at = [*self.made.at(self.b, k, row), 0, 0]
        self.b.tile_store(products, self.made.memref, at, [len(at) - 3, len(at) - 2, len(at) - 1])

    def row_of(self, source: Sequence[Index], block: Index) -> list[Index]:
        """The indices of a tile, [group, product, tile], in a block of channels of the transformed input."""
        b, (group, k, row) = self.b, source
        return self.transformed.at(b, k, b.add(b.mul(block, used_slots(self.schedule)), row), [group])

    def pixels(self, at: Sequence[Index], channel: Index, shape: Sequence[int]) -> SSAValue:
        """Channels of tiles of the transformed input, from those at `at` on."""
        return self.b.tile_load(self.transformed.memref, [*at, channel], [len(at) - 1, len(at)], shape)

    def steps(self, gy: Index) -> list[tuple[int, Index, int]]:
        """The register tiles along a group in row `gy` of groups: the first slot, how many, and the slots of each. They
        are whole: what stands behind the last tile does no harm."""
        b, schedule = self.b, self.schedule
        if schedule.is_run:
            used = extent(b, schedule.y.tiles * schedule.x.tiles, schedule.slots, gy)[1]
        elif schedule.y.tiles % schedule.group[0] == 0:
            return [(first, count // rows, rows) for first, count, rows in schedule.steps]
        else:
            used = b.mul(extent(b, schedule.y.tiles, schedule.group[0], gy)[1], schedule.group[1])
        found: list[tuple[int, Index, int]] = []
        for first, count, rows in schedule.steps:
            left = b.op(arith.SubiOp, b.index(used), b.index(first - rows + 1))
            found.append((first, b.op(arith.MinSIOp, b.divmod(left, rows)[0], b.index(count // rows)), rows))
        return found

    def sum(
        self, here: Sequence[Index], ahead: Sequence[Index], step: Index, source: Sequence[Index], rows: int
    ) -> SSAValue:
        """The sum over input channels for `rows` tiles from `source`, [group, product, tile], on, with the weights
        `here`, [panel, product]. Step `step` of the panel's asks for its part of those that come next, `ahead`."""
        b, schedule = self.b, self.schedule
        weights = self.inputs[self.anchor.operands[1]]
        start = b.const(0.0, vector_type((rows, schedule.vectors, schedule.lanes), f32))
        each = schedule.lanes * -(-schedule.unroll * schedule.vectors // sum(c // r for _, c, r in schedule.steps))
        with b.loop(0, schedule.in_blocks, carry=[start], name="block") as block:
            end: Index = schedule.lanes
            if schedule.depth % schedule.lanes:
                _, end = extent(b, schedule.depth, schedule.lanes, block.iv)
            near = self.row_of(source, block.iv) if schedule.is_run else None
            with b.loop(0, end, schedule.unroll, carry=block.args, name="c") as c:
                pixels = self.pixels(near or self.row_of(source, block.iv), c.iv, (rows, schedule.unroll))
                channel = b.add(b.mul(block.iv, schedule.lanes), c.iv)
                shape = (schedule.unroll, schedule.vectors, schedule.lanes)
                factors = b.tile_load(weights, [*here, channel, 0, 0], [2, 3, 4], shape)
                b.prefetch(weights, [*ahead, channel, 0, b.mul(step, each)], 4 * each)
                c.yields(b.fma(pixels, factors, c.args[0]))
            block.yields(*c.results)
        return block.results[0]

    def back(self, n: Index, block: Index, ty: Index, tx: Index, slot: Index, v: Index) -> None:
        """Transform one tile of one block of channels back: columns first, each along y, then the rows that exist along
        x."""
        b, schedule = self.b, self.schedule
        y, x = start_of(b, schedule.y, ty), start_of(b, schedule.x, tx)
        bias = b.tile_load(self.inputs[self.anchor.operands[2]], [block, 0], [1], (schedule.lanes,))

        def made(k: Index) -> SSAValue:
            at = [*self.made.at(b, k, slot), v, 0]
            return b.tile_load(self.made.memref, at, [len(at) - 1], (schedule.lanes,))

        def finish(y: Index, x: Index, rows: int, columns: int, values: Sequence[SSAValue]) -> None:
            for i in range(rows):
                self.hint(n, block, b.add(y, i * schedule.y.dilation), b.add(x, max(AHEAD, 2 * columns)), columns)
            shape, steps = (rows, columns, 1, self.lanes), (schedule.y.dilation, schedule.x.dilation)
            self.finish(MapTile(n, block, y, x, shape, self.used, steps), self.joined(values, shape))

        def biased(axis: TiledAxis, points: Sequence[SSAValue]) -> list[SSAValue]:
            return [b.op(arith.AddfOp, value, bias) for value in transform_output(b, axis.m, points)]

        if schedule.x.taps == 1:
            values = biased(schedule.y, [made(k) for k in range(schedule.products)])

            def finish_rows(y: Index, values: Sequence[SSAValue]) -> None:
                if not schedule.is_run:
                    return finish(y, x, len(values), 1, values)
                for k, value in enumerate(values):  # a tile of an open map has one row
                    finish(b.add(y, k * schedule.y.dilation), x, 1, 1, [value])

            self.along(schedule.y, y, values, finish_rows)
            return
        if schedule.y.taps == 3:
            with b.loop(0, schedule.x.points, name="q") as q:
                points = [made(b.add(q.iv, k * schedule.x.points)) for k in range(schedule.y.points)]
                for number, value in enumerate(transform_output(b, schedule.m, points)):
                    b.tile_store(value, self.stage, [number, q.iv, 0], [2])
        with b.loop(0, self.inside(schedule.y, y)) as i:
            row = b.add(y, b.mul(i.iv, schedule.y.dilation))
            points = [
                made(q) if schedule.y.taps == 1 else b.tile_load(self.stage, [i.iv, q, 0], [2], (schedule.lanes,))
                for q in range(schedule.x.points)
            ]
            self.along(
                schedule.x, x, biased(schedule.x, points), lambda x, values: finish(row, x, 1, len(values), values)
            )

    def hint(self, n: Index, block: Index, y: Index, x: Index, pixels: int) -> None:
        """Ask for pixels of a row of what the epilogue reads and writes."""
        for value, memref, written in self.touched:
            self.b.prefetch(memref, self.at(value, n, block, y, x), 4 * self.lanes * pixels, write=written)

    def inside(self, axis: TiledAxis, start: Index) -> Index:
        """The number of outputs that exist in the tile that begins at `start`."""
        if axis.is_even:
            return axis.m
        b = self.b
        left = b.op(arith.SubiOp, b.index(axis.positions + axis.dilation - 1), b.index(start))
        return b.op(arith.MinSIOp, b.divmod(left, axis.dilation)[0], b.index(axis.m))

    def along(
        self,
        axis: TiledAxis,
        start: Index,
        values: Sequence[SSAValue],
        finish: Callable[[Index, Sequence[SSAValue]], None],
    ) -> None:
        """Finish the outputs of a tile along an axis, from `start` on, those that exist."""
        b = self.b
        if axis.is_even:
            finish(start, values)
            return
        if axis.dilation > 1:
            for k, value in enumerate(values):
                at = b.add(start, k * axis.dilation)
                with b.when(b.cmpi("slt", b.index(at), b.index(axis.positions))):
                    finish(at, [value])
            return
        rest = axis.positions % axis.m
        if isinstance(rest, Dim):
            last = b.index(axis.positions - axis.m)
            with b.when(b.cmpi("sle", b.index(start), last)):
                finish(start, values)
            with b.when(b.cmpi("sgt", b.index(start), last)):
                for k, value in enumerate(values[:-1]):
                    at = b.add(start, k)
                    with b.when(b.cmpi("slt", b.index(at), b.index(axis.positions))):
                        finish(at, [value])
            return
        if rest < axis.positions:
            with b.when(b.cmpi("slt", b.index(start), b.index(axis.positions - rest))):
                finish(start, values)
        with self.only(start, axis.positions - rest):
            finish(start, values[:rest])

    def joined(self, values: Sequence[SSAValue], shape: tuple[int, ...]) -> SSAValue:
        """Pixels of a row or of a column as a tile of `shape`."""
        b = self.b
        if shape[0] == 1:
            pixels = b.transpose([b.broadcast(v, (1, 1, self.lanes)) for v in values])[0]
            return b.broadcast(pixels, shape)
        return b.transpose([b.broadcast(v, (1, 1, 1, self.lanes)) for v in values])[0]
