"""Winograd convolutions whose weights are transformed at run time: they take no more memory than the plain ones, and
less of its bandwidth.

One launch transforms the input of all groups of tiles. In a second one a block of the grid is a panel of outputs: for a
part of the input channels after the other it transforms the panel's weights, which then stay in the second-level cache,
and adds their products up for all groups; then it transforms these back. That costs some 50 cycles a vector of windows,
which is little where a window has many tiles, and little beside reading four times as much where it has few. Imports
the kernel with transformed weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from xdsl.dialects import arith
from xdsl.dialects.builtin import f32
from xdsl.ir import SSAValue

from lightnet.backends.builder import Index, vector_type
from lightnet.backends.cpu.blocked.winograd_kernel import Products
from lightnet.backends.cpu.blocked.winograd_runs import (
    Planes,
    padded_bytes,
    part_blocks,
    part_shape,
    planes,
    product_bytes,
    used_slots,
)
from lightnet.backends.cpu.blocked.winograd_transforms import extent, group_place, group_view, transform_weights
from lightnet.backends.launches import Launch
from lightnet.ir.types import vector_type_of

#: Channels ahead of those that are transformed whose weights are asked for: the many stores hide from the processor
#: that these are read in order.
AHEAD = 8


class Panels(Products):
    """Builds the second launch."""

    def by_panels(self) -> Launch:
        """A block is a panel."""
        b, schedule = self.b, self.schedule
        at, (products, rows, *inner) = padded_bytes(schedule.tile_shape) + product_bytes(schedule), part_shape(schedule)
        if schedule.is_run:
            self.factors = planes(b, self.scratch, at, rows, (products, *inner), "factors")
            return self.by_groups()
        self.factors = Planes(self.part(at, part_shape(schedule)))
        with b.loop(b.lo, b.hi, name="panel") as panel:
            self.clear(0, schedule.product_shape[1])
            with self.parts(panel.iv) as (first, last), b.loop(0, schedule.all_groups, name="group") as group:
                self.add_products(group.iv, group.iv, first, last)
            with b.loop(0, schedule.all_groups, name="group") as group:
                n, gy, gx = group_place(b, schedule, group.iv)
                self.panel(n, gy, gx, panel.iv, group.iv)
                self.zero(n, gy, gx, *extent(b, schedule.out_blocks, schedule.vectors, panel.iv))
        return self.done(schedule.panels)

    def by_groups(self) -> Launch:
        """A block is a panel of one group: a call decides how many groups there are, so that there is no memory for the
        products of all."""
        b, schedule = self.b, self.schedule
        with b.loop(b.lo, b.hi, name="block") as block:
            group, panel = b.divmod(block.iv, schedule.panels)
            self.transformed = group_view(b, schedule, self.workspace, group)
            n, gy, gx = group_place(b, schedule, group)
            for start, many, rows in self.steps(gy):  # of a short run few
                self.clear(start, b.mul(many, rows))
            with self.parts(panel) as (first, last):
                self.add_products(0, group, first, last)
            self.panel(n, gy, gx, panel, 0)
            self.zero(n, gy, gx, *extent(b, schedule.out_blocks, schedule.vectors, panel))
        return self.done(schedule.panels * schedule.all_groups)

    @contextmanager
    def parts(self, panel: Index) -> Iterator[tuple[Index, Index]]:
        """The parts of the input channels, [from, to) in blocks, with the weights of a panel for them transformed."""
        b, schedule = self.b, self.schedule
        part = part_blocks(schedule)
        with b.loop(0, schedule.in_blocks, part, name="first") as first:
            last = b.op(arith.MinSIOp, b.index(b.add(first.iv, part)), b.index(schedule.in_blocks))
            self.transform(panel, b.mul(first.iv, schedule.lanes), b.mul(last, schedule.lanes))
            yield first.iv, last

    def clear(self, start: int, tiles: Index) -> None:
        """Zeros for all products of so many tiles from `start` on."""
        b, (products, _, vectors, lanes) = self.b, self.schedule.product_shape
        zeros = b.const(0.0, vector_type((vectors, lanes), f32))
        with b.loop(0, products, name="k") as k, b.loop(start, b.add(tiles, start), name="tile") as tile:
            at = [*self.made.at(b, k.iv, tile.iv), 0, 0]
            b.tile_store(zeros, self.made.memref, at, [len(at) - 2, len(at) - 1])

    def transform(self, panel: Index, first: Index, last: Index) -> None:
        """The weights of a panel for the input channels from `first` to `last`, into `factors`; zeros for those that do
        not exist, which the products may read."""
        b, schedule = self.b, self.schedule
        end = b.op(arith.MinSIOp, b.index(last), b.index(schedule.channels))
        weights, taps = self.inputs[self.anchor.operands[1]], schedule.y.taps * schedule.x.taps
        with b.loop(first, end, name="channel") as channel, b.loop(0, schedule.vectors, name="v") as v:
            soon = [panel, b.add(channel.iv, AHEAD), 0, 0, 0, b.mul(v.iv, taps * schedule.lanes)]
            b.prefetch(weights, soon, 4 * taps * schedule.lanes)
            at = b.op(arith.SubiOp, channel.iv, b.index(first))
            windows = [
                [self.weight([panel, channel.iv, r, c, v.iv]) for r in range(schedule.y.taps)]
                for c in range(schedule.x.taps)
            ]
            columns = [transform_weights(b, schedule.m, window) for window in windows]
            for r in range(schedule.y.points):
                for c, value in enumerate(transform_weights(b, schedule.m, [column[r] for column in columns])):
                    number = r * schedule.x.points + c
                    row = self.factors.at(b, number, at)
                    b.tile_store(value, self.factors.memref, [*row, v.iv, 0], [len(row) + 1])
        if schedule.depth > schedule.channels:
            zeros = b.const(0.0, vector_type((schedule.vectors, schedule.lanes), f32))
            begin = b.op(arith.MaxSIOp, b.index(first), b.index(schedule.channels))
            stop = b.op(arith.MinSIOp, b.index(last), b.index(schedule.depth))
            with b.loop(begin, stop, name="channel") as channel, b.loop(0, schedule.products, name="k") as k:
                at = b.op(arith.SubiOp, channel.iv, b.index(first))
                row = self.factors.at(b, k.iv, at)
                b.tile_store(zeros, self.factors.memref, [*row, 0, 0], [len(row), len(row) + 1])

    def weight(self, at: Sequence[Index]) -> SSAValue:
        """A vector of weights, [panel, channel, row, column, vector]."""
        return self.b.tile_load(self.inputs[self.anchor.operands[1]], [*at, 0], [5], (self.schedule.lanes,))

    def add_products(self, number: Index, group: Index, first: Index, last: Index) -> None:
        """Add the products of a group, `number` in memory, for the blocks of channels from `first` to `last` to what
        `made` has."""
        b, schedule = self.b, self.schedule
        _, gy, _ = group_place(b, schedule, group)
        with b.loop(0, schedule.products, name="k") as k:
            for start, many, rows in self.steps(gy):
                with b.loop(0, many) as i:
                    row = b.add(b.mul(i.iv, rows), start)
                    at = [*self.made.at(b, k.iv, b.add(b.mul(number, used_slots(schedule)), row)), 0, 0]
                    dims = [len(at) - 3, len(at) - 2, len(at) - 1]
                    total = b.tile_load(self.made.memref, at, dims, (rows, schedule.vectors, schedule.lanes))
                    total = self.sum_of([number, k.iv, row], first, last, total)
                    b.tile_store(total, self.made.memref, at, dims)

    def sum_of(self, source: Sequence[Index], first: Index, last: Index, start: SSAValue) -> SSAValue:
        """`start` and the sum over blocks of channels for tiles from `source`, [group, product, tile], on."""
        b, schedule, (_, k, _) = self.b, self.schedule, source
        rows = vector_type_of(start).get_shape()[0]
        with b.loop(first, last, carry=[start], name="block") as block:
            end: Index = schedule.lanes
            if schedule.depth % schedule.lanes:
                _, end = extent(b, schedule.depth, schedule.lanes, block.iv)
            near = b.mul(b.op(arith.SubiOp, block.iv, b.index(first)), schedule.lanes)
            at = self.row_of(source, block.iv) if schedule.is_run else None
            with b.loop(0, end, schedule.unroll, carry=block.args, name="c") as c:
                pixels = self.pixels(at or self.row_of(source, block.iv), c.iv, (rows, schedule.unroll))
                shape = (schedule.unroll, schedule.vectors, schedule.lanes)
                weights = [*self.factors.at(b, k, b.add(near, c.iv)), 0, 0]
                dims = [len(weights) - 3, len(weights) - 2, len(weights) - 1]
                factors = b.tile_load(self.factors.memref, weights, dims, shape)
                c.yields(b.fma(pixels, factors, c.args[0]))
            block.yields(*c.results)
        return block.results[0]
