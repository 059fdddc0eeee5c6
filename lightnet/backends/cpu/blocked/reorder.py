"""Changes of layout: a plain [N, C, H, W] to a blocked map with its halo, and back.

A tile is as many pixels as a vector has lanes, of one block of channels: its rows are transposed in registers
(`tile.transpose`), so that memory is read and written by whole vectors on both sides. A row's last tile is moved back
to end at its edge. From one halo to another is a copy, which the elementwise kernels do. Imports the base of blocked
kernels and the tile dialect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import MemRefType
from xdsl.ir import SSAValue

from lightnet.backends.builder import Index, flat_index
from lightnet.backends.cpu.blocked.base import BlockedGenerator, ProcessorModel, blocks_of, read_rate
from lightnet.backends.cpu.blocked.kernel import RowsKernel
from lightnet.backends.expressions import ON_TILES
from lightnet.backends.generator import Plan
from lightnet.backends.launches import Launch
from lightnet.dialects import tile_arith
from lightnet.dialects.ln.move import Forward
from lightnet.ir.instances import is_open
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import Blocked, byte_size, layout_of
from lightnet.ir.op import LnOp
from lightnet.ir.refusal import Refusal
from lightnet.ir.target import Form
from lightnet.ir.types import spec_of
from lightnet.runtime.dims import greatest, typical

#: Pixels that one block of the grid covers, about.
BAND = 1024


class Reorder(BlockedGenerator):
    """One `forward` between the plain layout and blocks of channels; here the types decide."""

    alg, opens = "reorder", True

    def form(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], machine: ProcessorModel) -> Form | Refusal:
        if len(ops) != 1 or not isinstance(ops[0], Forward) or list(yielded) != list(ops[0].results):
            return Refusal("it is no change of layout")
        source, target = ops[0].operands[0], ops[0].results[0]
        spec = spec_of(source.type)
        if spec.dtype.name not in ON_TILES or spec.len == 0 or spec.ndim != 4:
            return Refusal("it moves {}, no map of a type of tiles", spec)
        blocked = [isinstance(layout_of(v.type), Blocked) for v in (source, target)]
        if sorted(blocked) != [False, True]:
            return Refusal("not one of its two layouts is in blocks")
        layout = layout_of((source if blocked[0] else target).type)
        if not isinstance(layout, Blocked) or layout.block != machine.lanes:
            return Refusal("its blocks are of {}, not of {} channels", layout, machine.lanes)
        return Form({source: layout.halo}, plain_results=True) if blocked[0] else Form({})

    def plan(self, kernel: KernelOp, form: Form, machine: ProcessorModel) -> Plan:
        sizes = sum(byte_size(v.type) for v in (*kernel.operands, *kernel.results))
        return Plan.of(self, kernel, form, sizes / min(read_rate(machine, sizes), machine.l3_bytes))

    def build(self, kernel: KernelOp, plan: Plan, name: str, aliases: Mapping[int, int]) -> list[Launch]:
        assert not aliases, "memory of two layouts cannot be shared"
        return [_ReorderKernel(kernel, name).build()]


class _ReorderKernel(RowsKernel):
    """Builds one kernel function. The grid is pictures x blocks of channels x bands of rows."""

    def __init__(self, kernel: KernelOp, name: str):
        self.packs = layout_of(kernel.operands[0].type).is_plain
        super().__init__(kernel, name, {})
        self.source, self.target = kernel.body.args[0], self.yielded[0]
        self.read, self.write = self.inputs[self.source], self.results[0]
        self.is_open = is_open([self.source])
        self.along = [0] if self.is_open else [3]  # the dimension of the plain map's memref that rows are

    def memref(self, value: SSAValue) -> MemRefType:
        """A plain map of one pixel is a matrix [N, C], an open one a row; rows without a halo may be joined."""
        if not layout_of(value.type).is_plain or is_open([value]):
            return super().memref(value)
        dims = (self.pictures, self.channels, self.rows, self.cols)
        return MemRefType(self.element, dims[:2] if self.rows == self.cols == 1 else dims)

    def build(self) -> Launch:
        blocks = blocks_of(self.channels, self.lanes)
        left = self.channels - (blocks - 1) * self.lanes

        def block(n: Index, block: Index, first: Index, last: Index) -> None:
            self.by_lanes(block, blocks, left, lambda block, used: self.band(n, block, first, last, used))
            if self.packs:
                self.zero_halos(n, block, 1, first, last)

        band = max(1, min(greatest(self.rows), BAND // typical(self.cols)))
        return self.by_bands((self.pictures, blocks), "n block", self.rows, band, block)

    def band(self, n: Index, block: Index, first: Index, last: Index, used: int) -> None:
        """Rows [first, last) of one block, of whose lanes `used` are channels."""
        if self.rows == self.cols == 1:
            self.pixel(n, block, used)
            return
        change = self.pack if self.packs else self.unpack
        pixels = min(self.lanes, greatest(self.cols))
        with self.b.loop(first, last, name="y") as y:
            self.across(self.cols, pixels, lambda x, pixels: change(n, block, y.iv, x, pixels, used))

    def pixel(self, n: Index, block: Index, used: int) -> None:
        """A map of one pixel is a copy of its channels."""
        b, shape = self.b, (1, 1, 1, self.lanes)
        matrix, valid = [n, b.mul(block, self.lanes)], None if used == self.lanes else [1, 1, 1, used]
        if self.packs:
            value = b.tile_load(self.read, matrix, [0, 0, 0, 1], shape, steps=[0, 0, 0, 1], valid=valid)
            b.tile_store(value, self.write, self.at(self.target, n, block, 0, 0), [2, 3, 1, 4])
            return
        where = self.at(self.source, n, block, 0, 0)
        value = b.tile_load(self.read, where, [4], (self.lanes,))
        b.tile_store(value, self.write, matrix, [1], valid=None if used == self.lanes else [used])

    def pack(self, n: Index, block: Index, y: Index, x: Index, pixels: int, used: int) -> None:
        """Rows of channels -> pixels."""
        b, shape = self.b, (self.lanes,)
        valid = None if pixels == self.lanes else [pixels]
        first = b.mul(block, self.lanes)
        rows = [
            b.tile_load(self.read, self.plain(n, b.add(first, c), y, x), self.along, shape, valid=valid)
            for c in range(used)
        ]
        rows += [b.broadcast(self.zero_of(self.element), shape)] * (self.lanes - used)
        for i, pixel in enumerate(self.transposed(rows)[:pixels]):
            at = self.at(self.target, n, block, y, b.add(x, i))
            b.tile_store(pixel, self.write, at, self.walks(self.target, [4]))

    def unpack(self, n: Index, block: Index, y: Index, x: Index, pixels: int, used: int) -> None:
        """Pixels -> rows of channels."""
        b, shape = self.b, (self.lanes,)
        valid = None if pixels == self.lanes else [pixels]
        places = [self.at(self.source, n, block, y, b.add(x, i)) for i in range(pixels)]
        rows = [b.tile_load(self.read, at, self.walks(self.source, [4]), shape) for at in places]
        rows += [b.broadcast(self.zero_of(self.element), shape)] * (self.lanes - pixels)
        first = b.mul(block, self.lanes)
        for c, row in enumerate(self.transposed(rows)[:used]):
            b.tile_store(row, self.write, self.plain(n, b.add(first, c), y, x), self.along, valid=valid)

    def plain(self, n: Index, channel: Index, y: Index, x: Index) -> list[Index]:
        """The indices of an element of the plain map."""
        if not self.is_open:
            return [n, channel, y, x]
        return [flat_index(self.b, (self.pictures, self.channels, self.rows, self.cols), [n, channel, y, x])]

    def transposed(self, rows: Sequence[SSAValue]) -> Sequence[SSAValue]:
        return self.b.append(tile_arith.TransposeOp(list(rows))).results


REORDER = Reorder()
