"""Winograd convolutions on blocked maps: transform a group of tiles, multiply for each product, transform back with the epilogue.

The products are matrix products [tiles, channels] x [channels, outputs] on register tiles. Either a block of the grid does all of that
for a group of tiles, or one launch transforms the input of all, and in a second one a block is a group for a share of the outputs;
then each weight is read by one thread only. Or a block of that is a panel of outputs for all groups, which transforms its weights itself
(`winograd_panels.py`). What a phase will touch is asked for while products are made: the transforms would wait
for memory, the products need it little. Imports the base of blocked kernels, the plan and the transforms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import NamedTuple

from xdsl.dialects import arith
from xdsl.dialects.builtin import MemRefType, f32
from xdsl.ir import SSAValue

from lightnet.backends.builder import Index, vector_type
from lightnet.backends.cpu.blocked.kernel import BlockedKernel, Tile
from lightnet.backends.cpu.blocked.winograd_model import OUTPUTS, PANELS, TILES, Axis, Plan
from lightnet.backends.cpu.blocked.winograd_transforms import (
    Inputs,
    extent,
    input_launch,
    place,
    start_of,
    tiles_of,
    transform_output,
)
from lightnet.backends.launches import Launch
from lightnet.ir.kernel import KernelOp
from lightnet.ir.types import spec_of
from lightnet.runtime.arrays import align_up

#: Pixels of a row ahead of those that are written, at least, for which memory is asked.
AHEAD = 8
#: Pixels that are asked for at once, at most: each is an instruction.
BURST = 32


def bytes_of(shape: Sequence[int]) -> int:
    """Bytes of a memref of f32, filled up so that the next may follow."""
    return align_up(4 * prod(shape))


def plane_bytes(plan: Plan) -> int:
    """One product of a group."""
    return bytes_of(plan.input_shape[2:])


def scratch_bytes(plan: Plan) -> int:
    """Of one thread: a tile; and of a group the products, which follow the transformed input (unless that is shared) one plane behind,
    so that they take the place of what was read."""
    own = {TILES: plane_bytes(plan), OUTPUTS: 0, PANELS: bytes_of(plan.part_shape)}[plan.order]
    return bytes_of(plan.tile_shape) + bytes_of(plan.product_shape) + own


def workspace_bytes(plan: Plan) -> int:
    """The transformed input that threads share."""
    return bytes_of(plan.input_shape) if plan.order != TILES else 0


def build(kernel: KernelOp, plan: Plan, name: str, aliases: Mapping[int, int]) -> list[Launch]:
    """The functions of a kernel."""
    if plan.order == TILES:
        return [Products(kernel, plan, name, aliases).by_tiles()]
    first, second = input_launch(kernel, plan, name), f"{name}_1"
    if plan.order == OUTPUTS:
        return [first, Products(kernel, plan, second, aliases).by_outputs()]
    from lightnet.backends.cpu.blocked.winograd_panels import Panels

    return [first, Panels(kernel, plan, second, aliases).by_panels()]


# -- the products and the transform back -----------------------------------------------------------------------------------


class Band(NamedTuple):
    """Rows of a map, full of `blocks` blocks of channels: from the memref's position `at` on; read or written soon."""

    memref: SSAValue
    at: Sequence[Index]
    rows: int
    blocks: int
    written: bool


class Products(BlockedKernel):
    """Builds the function that multiplies, transforms back and runs the epilogue; where a block is a group, the input's transform
    as well."""

    mixes_channels = True

    def __init__(self, kernel: KernelOp, plan: Plan, name: str, aliases: Mapping[int, int]):
        self.plan = plan
        super().__init__(kernel, name, plan.lanes, aliases, scratch_bytes(plan), workspace_bytes(plan))
        #: What the epilogue touches pixel by pixel: (value, memref, whether it is written).
        self.touched = [(value, memref, True) for value, memref in zip(self.yielded, self.results)]
        dims = self.anchor.result_specs[0].dims
        self.touched += [
            (value, memref, False)
            for value, memref in self.inputs.items()
            if value is not self.anchor.operands[0] and spec_of(value.type).dims == dims and memref not in self.results
        ]
        self.stage = self.part(0, plan.tile_shape)
        offset = bytes_of(plan.tile_shape)
        self.made = self.part(offset, plan.product_shape)
        if plan.order != TILES:
            self.transformed = self.b.view(self.workspace, 0, MemRefType(f32, plan.input_shape))
        else:
            self.transformed = self.part(offset + plane_bytes(plan), plan.input_shape)

    def memref(self, value: SSAValue) -> MemRefType:
        """The memref of a value; of the weights, a panel's outputs are [vectors, lanes]."""
        found = super().memref(value)
        if value is not self.anchor.operands[1]:
            return found
        return MemRefType(found.element_type, [*found.get_shape()[:-1], self.plan.vectors, self.plan.lanes])

    def part(self, offset: int, shape: Sequence[int]) -> SSAValue:
        """Part of the scratch as a memref."""
        return self.b.view(self.scratch, offset, MemRefType(f32, shape))

    def by_tiles(self) -> Launch:
        """A block is a group of tiles, for all outputs."""
        b, plan = self.b, self.plan
        source = self.inputs[self.anchor.operands[0]]
        inputs = Inputs(b, plan, self.kernel, source, self.stage, self.transformed)
        with b.loop(b.lo, b.hi) as block:
            n, gy, gx = place(b, plan, block.iv)
            with b.loop(0, plan.in_blocks) as channels:
                inputs.group(n, gy, gx, 0, channels.iv)
            self.outputs(n, gy, gx, 0, 0, self.bands(n, gy))
        return self.done(plan.all_groups)

    def by_outputs(self) -> Launch:
        """A block is a group for some panels of outputs, which change last, so that a thread reads few of the weights."""
        b, plan = self.b, self.plan
        with b.loop(b.lo, b.hi) as block:
            part, group = b.divmod(block.iv, plan.all_groups)
            n, gy, gx = place(b, plan, group)
            self.outputs(n, gy, gx, group, part, ())
        return self.done(-(-plan.panels // plan.share) * plan.all_groups)

    def outputs(self, n: Index, gy: Index, gx: Index, group: Index, part: Index, bands: Sequence[Band]) -> None:
        """The panels of one share of the outputs of a group, and what falls to it of the halo."""
        b, plan = self.b, self.plan
        first, panels = extent(b, plan.panels, plan.share, part)
        self.multiply(gy, group, first, panels, bands)
        with b.loop(0, panels) as p:
            self.panel(n, gy, gx, b.add(first, p.iv), p.iv)
        self.zero(n, gy, gx, *extent(b, plan.out_blocks, plan.share * plan.vectors, part))

    def panel(self, n: Index, gy: Index, gx: Index, panel: Index, number: Index) -> None:
        """A panel of outputs of a group, whose products are those of `number` in `made`."""
        b, plan = self.b, self.plan
        block, count = extent(b, plan.out_blocks, plan.vectors, panel)
        with tiles_of(b, plan, gy, gx) as (ty, tx, slot), b.loop(0, count) as v:
            self.back(n, b.add(block, v.iv), ty, tx, b.add(b.mul(number, plan.slots), slot), v.iv)

    def zero(self, n: Index, gy: Index, gx: Index, block: Index, count: Index) -> None:
        """The halo beside as many rows as fall to this group, for `count` blocks of channels."""
        b, plan = self.b, self.plan
        groups = plan.groups[0] * plan.groups[1]
        share = -(-plan.y.out // groups)
        number = b.add(b.mul(gy, plan.groups[1]), gx)
        first, last = (
            b.op(arith.MinSIOp, b.index(b.mul(b.add(number, k), share)), b.index(plan.y.out)) for k in (0, 1)
        )
        self.zero_halos(n, block, count, first, last)

    def bands(self, n: Index, gy: Index) -> list[Band]:
        """What is read and written after the products of a group, where it is whole rows: the input of the next one, and what the
        epilogue touches."""
        b, plan, source = self.b, self.plan, self.anchor.operands[0]
        if plan.groups[1] > 1 or plan.y.dilation > 1:
            return []
        rows = plan.group[0] * plan.y.m
        after = [
            Band(memref, self.at(value, n, 0, b.mul(gy, rows), 0), rows, plan.out_blocks, written)
            for value, memref, written in self.touched
        ]
        if plan.groups[0] == 1:
            return after
        known = plan.y.points - plan.y.m  # rows of the next group that this one has read, too
        first = b.add(b.mul(b.add(gy, 1), rows), known - plan.y.pad)
        return [Band(self.inputs[source], self.at(source, n, 0, first, 0), rows, plan.in_blocks, False), *after]

    def fetch(self, band: Band, k: Index, panel: Index) -> None:
        """Ask for as much of a band as falls to one panel of product `k`: while products are made, memory has nothing else to do."""
        b, plan = self.b, self.plan
        n, _, row, column, _ = band.at
        pixels = band.rows * band.memref.type.get_shape()[3]
        each = -(-pixels * band.blocks // (plan.products * plan.panels))
        block, pixel = b.divmod(b.mul(b.add(b.mul(k, plan.panels), panel), each), pixels)
        size = 4 * plan.lanes * min(each, BURST)
        b.prefetch(band.memref, [n, block, row, b.add(column, pixel), 0], size, write=band.written)

    def multiply(self, gy: Index, group: Index, panel: Index, panels: Index, bands: Sequence[Band]) -> None:
        """The products of a group for `panels` panels from `panel` on, into `made`: plane by plane, since a plane of the input stays in
        the first-level cache while all weights of that product pass."""
        b, plan = self.b, self.plan
        with b.loop(0, plan.products) as k, b.loop(0, panels) as p:
            here = b.add(panel, p.iv), k.iv
            following = b.add(p.iv, 1)
            ends = b.cmpi("eq", following, b.index(panels))
            ahead = b.select(ends, b.index(panel), b.add(panel, following)), b.select(ends, b.add(k.iv, 1), k.iv)
            for band in bands:
                self.fetch(band, k.iv, p.iv)
            before = 0
            for first, many, rows in self.steps(gy):
                with b.loop(0, many) as i:
                    row = b.add(b.mul(i.iv, rows), first)
                    total = self.sum(here, ahead, b.add(i.iv, before), [group, k.iv, row], rows)
                    to = b.add(b.mul(p.iv, plan.slots), row)
                    b.tile_store(total, self.made, [k.iv, to, 0, 0], [1, 2, 3])
                before = b.add(before, many)

    def steps(self, gy: Index) -> list[tuple[int, Index, int]]:
        """The register tiles along a group in row `gy` of groups: the first slot, how many, and the slots of each. They are whole: what stands behind
        the last tile does no harm."""
        b, plan = self.b, self.plan
        if plan.y.tiles % plan.group[0] == 0:
            return [(first, count // rows, rows) for first, count, rows in plan.steps]
        used = b.mul(extent(b, plan.y.tiles, plan.group[0], gy)[1], plan.group[1])
        found: list[tuple[int, Index, int]] = []
        for first, count, rows in plan.steps:
            left = b.op(arith.SubiOp, b.index(used), b.index(first - rows + 1))
            found.append((first, b.op(arith.MinSIOp, b.divmod(left, rows)[0], b.index(count // rows)), rows))
        return found

    def sum(
        self, here: Sequence[Index], ahead: Sequence[Index], step: Index, source: Sequence[Index], rows: int
    ) -> SSAValue:
        """The sum over input channels for `rows` tiles from `source`, [group, product, tile], on, with the weights `here`, [panel,
        product]. Step `step` of the panel's asks for its part of those that come next, `ahead`."""
        b, plan = self.b, self.plan
        weights, (group, k, row) = self.inputs[self.anchor.operands[1]], source
        start = b.const(0.0, vector_type((rows, plan.vectors, plan.lanes), f32))
        each = plan.lanes * -(-plan.unroll * plan.vectors // sum(c // r for _, c, r in plan.steps))
        with b.loop(0, plan.in_blocks, carry=[start]) as block:
            end: Index = plan.lanes
            if plan.depth % plan.lanes:
                _, end = extent(b, plan.depth, plan.lanes, block.iv)
            with b.loop(0, end, plan.unroll, carry=block.args) as c:
                at = [group, k, b.add(b.mul(block.iv, plan.slots), row), c.iv]
                pixels = b.tile_load(self.transformed, at, [2, 3], (rows, plan.unroll))
                channel = b.add(b.mul(block.iv, plan.lanes), c.iv)
                shape = (plan.unroll, plan.vectors, plan.lanes)
                factors = b.tile_load(weights, [*here, channel, 0, 0], [2, 3, 4], shape)
                b.prefetch(weights, [*ahead, channel, 0, b.mul(step, each)], 4 * each)
                c.yields(b.fma(pixels, factors, c.args[0]))
            block.yields(*c.results)
        return block.results[0]

    def back(self, n: Index, block: Index, ty: Index, tx: Index, slot: Index, v: Index) -> None:
        """Transform one tile of one block of channels back: columns first, each along y, then the rows that exist along x."""
        b, plan = self.b, self.plan
        y, x = start_of(b, plan.y, ty), start_of(b, plan.x, tx)
        bias = b.tile_load(self.inputs[self.anchor.operands[2]], [block, 0], [1], (plan.lanes,))

        def made(k: Index) -> SSAValue:
            return b.tile_load(self.made, [k, slot, v, 0], [3], (plan.lanes,))

        def finish(y: Index, x: Index, rows: int, columns: int, values: Sequence[SSAValue]) -> None:
            for i in range(rows):
                self.hint(n, block, b.add(y, i * plan.y.dilation), b.add(x, max(AHEAD, 2 * columns)), columns)
            shape, steps = (rows, columns, 1, self.lanes), (plan.y.dilation, plan.x.dilation)
            self.finish(Tile(n, block, y, x, shape, self.used, steps), self.joined(values, shape))

        def biased(axis: Axis, points: Sequence[SSAValue]) -> list[SSAValue]:
            return [b.op(arith.AddfOp, value, bias) for value in transform_output(b, axis.m, points)]

        if plan.x.taps == 1:
            values = biased(plan.y, [made(k) for k in range(plan.products)])
            self.along(plan.y, y, values, lambda y, values: finish(y, x, len(values), 1, values))
            return
        if plan.y.taps == 3:
            with b.loop(0, plan.x.points) as q:
                points = [made(b.add(q.iv, k * plan.x.points)) for k in range(plan.y.points)]
                for i, value in enumerate(transform_output(b, plan.m, points)):
                    b.tile_store(value, self.stage, [i, q.iv, 0], [2])
        with b.loop(0, self.inside(plan.y, y)) as i:
            row = b.add(y, b.mul(i.iv, plan.y.dilation))
            points = [
                made(q) if plan.y.taps == 1 else b.tile_load(self.stage, [i.iv, q, 0], [2], (plan.lanes,))
                for q in range(plan.x.points)
            ]
            self.along(plan.x, x, biased(plan.x, points), lambda x, values: finish(row, x, 1, len(values), values))

    def hint(self, n: Index, block: Index, y: Index, x: Index, pixels: int) -> None:
        """Ask for pixels of a row of what the epilogue reads and writes."""
        for value, memref, written in self.touched:
            self.b.prefetch(memref, self.at(value, n, block, y, x), 4 * self.lanes * pixels, write=written)

    def inside(self, axis: Axis, start: Index) -> Index:
        """How many outputs of the tile that begins at `start` exist."""
        if axis.whole:
            return axis.m
        b = self.b
        left = b.op(arith.SubiOp, b.index(axis.out + axis.dilation - 1), b.index(start))
        return b.op(arith.MinSIOp, b.divmod(left, axis.dilation)[0], b.index(axis.m))

    def along(
        self, axis: Axis, start: Index, values: Sequence[SSAValue], finish: Callable[[Index, Sequence[SSAValue]], None]
    ) -> None:
        """Finish the outputs of a tile along an axis, from `start` on, those that exist."""
        b = self.b
        if axis.whole:
            finish(start, values)
            return
        if axis.dilation > 1:
            for k, value in enumerate(values):
                at = b.add(start, k * axis.dilation)
                with b.when(b.cmpi("slt", b.index(at), b.index(axis.out))):
                    finish(at, [value])
            return
        rest = axis.out % axis.m
        if rest < axis.out:
            with b.when(b.cmpi("slt", b.index(start), b.index(axis.out - rest))):
                finish(start, values)
        with self.only(start, axis.out - rest):
            finish(start, values[:rest])

    def joined(self, values: Sequence[SSAValue], shape: tuple[int, ...]) -> SSAValue:
        """Pixels of a row or of a column as a tile of `shape`."""
        b = self.b
        if shape[0] == 1:
            pixels = b.transpose([b.broadcast(v, (1, 1, self.lanes)) for v in values])[0]
            return b.broadcast(pixels, shape)
        return b.transpose([b.broadcast(v, (1, 1, 1, self.lanes)) for v in values])[0]
