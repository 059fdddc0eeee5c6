"""The first convolution of a network: a plain picture [N, C, H, W] of few channels in, a blocked map out, with an
epilogue.

Blocks of sixteen channels would be empty but for one to four, so the picture stays plain. A band of its rows is copied
into scratch with the padding around it, after which no tile has an edge; each pixel is broadcast against one to four
vectors of output channels, as in the direct kernel. Imports the base of blocked kernels and the window of `ln`
convolutions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerType, MemRefType
from xdsl.ir import SSAValue

from lightnet.backends.builder import Index
from lightnet.backends.cpu.blocked.base import Ends, KernelGenerator, ProcessorModel, blocks_of, lanes_of, read_rate
from lightnet.backends.cpu.blocked.conv_model import TRAFFIC
from lightnet.backends.cpu.blocked.first_model import (
    OPEN_PIECE,
    FirstConvTile,
    open_shape_of,
    picture_bytes,
    shape_of,
    staged_bytes,
    staged_dims,
)
from lightnet.backends.cpu.blocked.forms import epilogue_form, weight_layouts
from lightnet.backends.cpu.blocked.kernel import BlockedKernel, Host, MapTile
from lightnet.backends.generator import Plan
from lightnet.backends.launches import Launch
from lightnet.dialects.ln.conv import Conv2d
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import Packed
from lightnet.ir.op import LnOp
from lightnet.ir.refusal import Refusal, begins_otherwise
from lightnet.ir.target import Form
from lightnet.ir.types import ParamAttr
from lightnet.ir.windows import Axis

#: Channels of a picture, at most.
MOST_CHANNELS = 4
#: Most bytes of scratch at all: what needs more than that for a single row of tiles is no picture.
MAX_STAGED = 1 << 20


class First(KernelGenerator):
    """The generator of `conv2d` in one group, of f32, on a plain picture of at most `MOST_CHANNELS` channels."""

    alg, opens = "first", True

    def form(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], machine: ProcessorModel) -> Form | Refusal:
        if not ops or not isinstance(ops[0], Conv2d):
            return begins_otherwise(ops, "a conv2d")
        conv, rest = ops[0], ops[1:]
        _, weight, bias = conv.operands
        if conv.group != 1 or conv.operand_specs[0].dims[1] > MOST_CHANNELS or conv.operand_specs[0].len == 0:
            return Refusal("it is no convolution of one group on 1 to {} channels", MOST_CHANNELS)
        form = epilogue_form(conv, rest, yielded, {}, [weight], [bias])
        piece = OPEN_PIECE if Axis.of(conv, 0).is_open or Axis.of(conv, 1).is_open else 0
        small = staged_bytes(conv, 1, piece) <= MAX_STAGED
        return form if small else Refusal("a row of its windows takes more than {} bytes", MAX_STAGED)

    def plan(self, kernel: KernelOp, form: Form, machine: ProcessorModel) -> Plan:
        shape = shape_of(kernel, machine)
        return self._plan(kernel, form, machine, shape, (shape.band,), picture_bytes(kernel.ops[0], shape))

    def opened(self, kernel: KernelOp, ends: Ends, form: Form, machine: ProcessorModel) -> Plan:
        shape = open_shape_of(ends[1], machine)
        size = staged_bytes(kernel.ops[0], shape.band, shape.piece)
        return self._plan(kernel, form, machine, shape, (shape.band, shape.piece), size)

    def build(self, kernel: KernelOp, plan: Plan, name: str, aliases: Mapping[int, int]) -> list[Launch]:
        if not plan.schedule.piece:
            return super().build(kernel, plan, name, aliases)
        from lightnet.backends.cpu.blocked.first_open import OpenFirstKernel

        return [OpenFirstKernel(kernel, plan.schedule, name, aliases).build()]

    def _plan(self, kernel: KernelOp, form: Form, machine: ProcessorModel, shape: FirstConvTile, band: tuple[int, ...],
              scratch: int) -> Plan:  # fmt: skip
        conv = kernel.ops[0]
        n, channels, height, width = conv.result_specs[0].dims
        taps = conv.operand_specs[1].len // channels
        tiles = (
            n
            * -(-blocks_of(channels, machine.lanes) // shape.vectors)
            * -(-height // shape.rows)
            * -(-width // shape.columns)
        )
        vectors = tiles * shape.rows * shape.columns * shape.vectors
        compute = 2 * machine.lanes * vectors * (taps + 4) / (0.9 * machine.flops)
        written = 4 * machine.lanes * vectors
        moved = written / read_rate(machine, written)  # weighed as the direct kernel's, beside which it is chosen
        time = 200 + max(compute + TRAFFIC * moved, moved) + conv.operand_specs[0].len / machine.l2_bytes
        packed = {conv.operands[1]: Packed("o", shape.vectors * machine.lanes)}
        return Plan.of(
            self, kernel, form, time, shape,
            choices={"tile": ParamAttr((shape.rows, shape.columns, shape.vectors)), "band": ParamAttr(band)},
            weights=weight_layouts(kernel, form, machine.lanes, packed),
            scratch_bytes=scratch,
        )  # fmt: skip


class FirstKernel(BlockedKernel):
    """Builds one kernel function, or (`rows`) part of another, which gives `scratch`. The grid is pictures x bands of
    rows."""

    mixes_channels = True
    anchor: Conv2d

    def __init__(
        self,
        kernel: KernelOp,
        shape: FirstConvTile,
        name: str,
        aliases: Mapping[int, int],
        host: Host | None = None,
        scratch: SSAValue | None = None,
    ):
        self.shape, conv = shape, kernel.ops[0]
        size = picture_bytes(conv, shape)
        super().__init__(kernel, name, lanes_of(kernel), aliases, size, host=host)
        self.pad = conv.derived_values()["pad"]
        self.pictures, self.channels, self.height, self.width = conv.result_specs[0].dims
        self.staged_dims = staged_dims(conv, self.shape.band)
        self.direct = size == 0
        if not self.direct:
            memory = self.scratch if host is None else scratch
            assert memory is not None
            self.staged = self.b.view(memory, 0, MemRefType(self.element, self.staged_dims), name="staged")
        self.grey = self.staged_dims[0] == 1

    def build(self) -> Launch:
        def block(n: Index, first: Index, last: Index) -> None:
            self.rows(n, first, last)
            self.zero_halos(n, 0, blocks_of(self.channels, self.lanes), first, last)

        return self.by_bands((self.pictures,), "n", self.height, self.shape.band, block)

    def rows(self, n: Index, first: Index, last: Index) -> None:
        """The rows [first, last) of the result, at most a band, in which `first` is the first of a tile."""
        self.b.location = self.anchor.location
        if not self.direct:
            self.stage(n, first)
        with self.b.loop(0, blocks_of(self.channels, self.lanes), self.shape.vectors, name="block") as block:
            self.walk(n, block.iv, first, last)

    # -- staging

    def stage(self, n: Index, first: Index) -> None:
        """Copy the rows that output rows from `first` on read, zeros around them."""
        b, conv = self.b, self.anchor
        channels, rows, _ = self.staged_dims
        height = conv.operand_specs[0].dims[2]
        top = b.add(b.mul(first, conv.stride[0]), -self.pad[0])
        with b.loop(0, rows, name="row") as row:
            source = b.add(top, row.iv)
            inside = b.op(arith.AndIOp, b.cmpi("sge", source, b.index(0)), b.cmpi("slt", source, b.index(height)))
            with b.when(inside), b.loop(0, channels, name="c") as c:
                self.copy(n, c.iv, source, row.iv)
            outside = b.op(arith.XOrIOp, inside, b.const(1, IntegerType(1)))
            with b.when(outside), b.loop(0, channels, name="c") as c:
                self.fill(c.iv, row.iv, 0, self.staged_dims[2])

    def copy(self, n: Index, c: Index, source: Index, row: Index) -> None:
        """One row of the picture, between zeros."""
        b, left, end = self.b, self.pad[1], self.staged_dims[2]
        first = min(max(left, 0), end)
        last = max(min(left + self.anchor.operand_specs[0].dims[3], end), first)
        picture = self.inputs[self.anchor.operands[0]]

        def part(x: Index, valid: list[int] | None) -> None:
            value = b.tile_load(picture, [n, c, source, b.add(x, -left)], [3], (self.lanes,), valid=valid)
            b.tile_store(value, self.staged, [c, row, x], [2], valid=valid)

        self.fill(c, row, 0, first)
        self.by_vectors(first, last, part)
        self.fill(c, row, last, end)

    def fill(self, c: Index, row: Index, start: int, end: int) -> None:
        """Zeros in columns [start, end) of a staged row."""
        zero = self.b.broadcast(self.b.const(0.0, self.element), (self.lanes,))
        self.by_vectors(
            start, end, lambda x, valid: self.b.tile_store(zero, self.staged, [c, row, x], [2], valid=valid)
        )

    def by_vectors(self, start: int, end: int, part: Callable[[Index, list[int] | None], None]) -> None:
        """`part` on vectors of columns [start, end), of which the last may be valid in part."""
        whole = (end - start) // self.lanes * self.lanes
        if whole:
            with self.b.loop(start, start + whole, self.lanes, name="x") as x:
                part(x.iv, None)
        if whole < end - start:
            part(start + whole, [end - start - whole])

    # -- computing

    def walk(self, n: Index, block: Index, first: Index, last: Index) -> None:
        """The tiles of a group of output blocks, rows [first, last)."""
        self.down(first, last, self.height, self.shape.rows, lambda y, rows: self.row(n, block, first, y, rows))

    def row(self, n: Index, block: Index, first: Index, y: Index, rows: int) -> None:
        """The tiles of `rows` rows from `y` on."""

        def tile(x: Index, columns: int) -> None:
            shape = (rows, columns, self.shape.vectors, self.lanes)
            self.tile(MapTile(n, block, y, x, shape, self.used), first)

        self.across(self.width, self.shape.columns, tile)

    def tile(self, tile: MapTile, first: Index) -> None:
        """bias + the sum over the window. The innermost body takes all channels of one tap, or of a grey picture all
        rows of a column: pixels of different taps in one body would be the same loads, and be kept in registers that
        there are not."""
        b, conv = self.b, self.anchor
        group = b.divmod(tile.block, self.shape.vectors)[0] if self.shape.vectors > 1 else tile.block
        bias = b.tile_load(self.inputs[conv.operands[2]], [tile.block, 0], [0, 0, 0, 1], (1, 1, *tile.shape[2:]))
        column = b.mul(tile.x, conv.stride[1])
        if self.direct:
            row, column = b.add(b.mul(tile.y, conv.stride[0]), -self.pad[0]), b.add(column, -self.pad[1])
            taps = self.clip(Axis.of(conv, 0), row, conv.operand_specs[0].dims[2])
        else:
            row = b.mul(b.op(arith.SubiOp, b.index(tile.y), b.index(first)), conv.stride[0])
            taps = 0, 1 if self.grey else conv.size[0]
        with b.loop(*taps, carry=[b.broadcast(bias, tile.shape)], name="r") as r:
            with b.loop(0, conv.size[1], carry=r.args, name="q") as q:
                at = [b.add(row, b.mul(r.iv, conv.dilation[0])), b.add(column, b.mul(q.iv, conv.dilation[1]))]
                pixels = self.pixels(tile, at)
                q.yields(b.fma(pixels, self.weights(group, (r.iv, q.iv)), q.args[0]))
            r.yields(*q.results)
        self.finish(tile, r.results[0])

    def pixels(self, tile: MapTile, at: Sequence[Index]) -> SSAValue:
        """[rows, columns, channels] under one tap, of a grey picture [rows, columns, taps of a column]."""
        b, conv, (rows, columns, _, _) = self.b, self.anchor, tile.shape
        if self.direct:
            picture, shape = self.inputs[conv.operands[0]], (rows, columns, self.staged_dims[0])
            return b.tile_load(picture, [tile.n, 0, *at], [2, 3, 1], shape, steps=[*conv.stride, 1])
        depth, walked, step = (conv.size[0], 1, conv.dilation[0]) if self.grey else (self.staged_dims[0], 0, 1)
        return b.tile_load(self.staged, [0, *at], [1, 2, walked], (rows, columns, depth), steps=[*conv.stride, step])

    def weights(self, group: Index, tap: Sequence[Index]) -> SSAValue:
        """[channels, vectors, lanes] of one tap, of a grey picture [taps of a column, vectors, lanes]."""
        conv, vectors = self.anchor, self.shape.vectors
        depth, walked = (conv.size[0], 2) if self.grey else (self.staged_dims[0], 1)
        return self.b.tile_load(
            self.inputs[conv.operands[1]], [group, 0, *tap, 0], [walked, 4, 4], (depth, vectors, self.lanes),
            steps=[1, self.lanes, 1],
        )  # fmt: skip


FIRST = First(FirstKernel)
