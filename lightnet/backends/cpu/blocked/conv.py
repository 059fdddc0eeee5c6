"""Direct convolution on blocked maps: any window, stride, dilation and padding, 1x1 included, in groups of whole
blocks.

The classic kernel of NCHWc (Georganas et al., "Anatomy of High-Performance Deep Learning Convolutions on SIMD
Architectures", 2018): a tile of pixels by output channels stays in registers while input channels and taps pass. Where
a tile is one row, rows of the window outside the picture are passed over by the bounds of a loop, so that the input
needs no rows of halo. Imports the base of blocked kernels and the model in numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, reduce
from math import gcd

from xdsl.dialects import arith
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import SSAValue

from lightnet.backends.builder import Index
from lightnet.backends.cpu.blocked import conv_model as model
from lightnet.backends.cpu.blocked.base import Ends, KernelGenerator, ProcessorModel, lanes_of
from lightnet.backends.cpu.blocked.conv_choices import ConvSchedule, conv_schedule_of, geometry_of, open_schedule_of
from lightnet.backends.cpu.blocked.conv_model import OUTPUTS, ConvTile, Geometry
from lightnet.backends.cpu.blocked.forms import convolution_form, weight_layouts
from lightnet.backends.cpu.blocked.kernel import BlockedKernel, Host, MapTile, summed_channels
from lightnet.backends.cpu.blocked.narrow_maps import open_rows
from lightnet.backends.generator import Plan
from lightnet.backends.launches import Launch
from lightnet.dialects.ln.conv import Conv2d
from lightnet.ir.instances import is_open
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import Blocked, Layout, Packed, layout_of
from lightnet.ir.op import LnOp
from lightnet.ir.refusal import Refusal
from lightnet.ir.target import Form, Halo
from lightnet.ir.types import ParamAttr, vector_type_of
from lightnet.runtime.dims import Size, common_divisor, greatest, least

#: Sums that a tile of an open map has at least, so that multiply-adds need not wait for each other.
FEW_SUMS = 8
#: Tiles of the shortest row of an open map from which on its last one lies on the one before, whatever is left.
LONG = 4


class Direct(KernelGenerator):
    """The generator of `conv2d` on maps of f32, of one group or of groups of whole blocks, with an elementwise
    epilogue."""

    alg, opens = "direct", True

    def form(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], machine: ProcessorModel) -> Form | Refusal:
        def halo_of(conv: Conv2d) -> Halo | Refusal:
            geometry = Geometry.of(conv)
            if geometry.groups > 1 and (geometry.channels % machine.lanes or geometry.outputs % machine.lanes):
                return Refusal("its groups are no whole blocks of {} channels", machine.lanes)
            if geometry.is_open:
                return geometry.rows.halo if model.may_be_narrow(geometry) else 0, geometry.cols.halo
            return model.halo_of(geometry, machine)

        return convolution_form(ops, yielded, Conv2d, halo_of)

    def plan(self, kernel: KernelOp, form: Form, machine: ProcessorModel) -> Plan:
        return self._plan(kernel, form, machine, conv_schedule_of(kernel, machine))

    def part(self, kernel: KernelOp, form: Form, machine: ProcessorModel) -> Plan:
        """The plan of a part of another kernel."""
        return self._plan(kernel, form, machine, conv_schedule_of(kernel, machine, alone=False))

    def opened(self, kernel: KernelOp, ends: Ends, form: Form, machine: ProcessorModel) -> Plan:
        return self._plan(kernel, form, machine, open_schedule_of(kernel, ends, machine))

    def _plan(self, kernel: KernelOp, form: Form, machine: ProcessorModel, made: ConvSchedule) -> Plan:
        geometry, shape, walk = made.geometry, made.shape, made.walk
        compute = model.tiles_time(geometry, machine, shape)
        moved = model.cache_time(geometry, machine, shape, walk.order)
        choices = {
            "tile": ParamAttr((shape.rows, shape.columns, shape.vectors, shape.unroll)),
            "order": ParamAttr(walk.order),
            "band": ParamAttr((walk.rows, walk.columns)),
        }
        packed = {kernel.ops[0].operands[1]: self.weights_of(shape, machine.lanes, geometry.together)}
        weights = weight_layouts(kernel, form, machine.lanes, packed)
        time = 100 + max(compute + model.TRAFFIC * moved, moved)
        return Plan.of(self, kernel, form, time, made, choices=choices, weights=weights)

    def weights_of(self, shape: ConvTile, lanes: int, together: int) -> Layout:
        """The layout of the weights for a tile; products take so many channels `together`."""
        return Packed("o", shape.vectors * lanes, lanes)


# -- the kernel --------------------------------------------------------------------------------------------------------


class DirectKernel(BlockedKernel):
    """Builds one kernel function, or (`part`) part of another, whose maps are not seen as one row."""

    mixes_channels = True
    #: The loops over pixels of narrow maps (`narrow_maps.py`), outermost first: weights are read as they lie.
    order = "r block q c"
    #: Whether tiles of one row are worth their code where maps may be narrow.
    has_rows = True

    def __init__(
        self, kernel: KernelOp, schedule: ConvSchedule, name: str, aliases: Mapping[int, int], host: Host | None = None
    ):
        self.schedule, self.geometry, self.shape, self.walk = schedule, schedule.geometry, schedule.shape, schedule.walk
        self.skips, self.weights_ahead = schedule.skips, schedule.weights_ahead
        if is_open(kernel.operands):
            self.geometry = geometry_of(kernel)
        super().__init__(kernel, name, lanes_of(kernel), aliases, host=host)
        self.depth = self.geometry.depth(self.lanes)
        self.src, self.weight, *rest = self.anchor.operands
        self.bias = rest[0] if rest else None
        #: Whether an open map may be narrow, and what is above and below it is there.
        narrow = model.may_be_narrow(self.geometry, self.shape.columns)
        self.narrow = narrow and self.halo(self.src)[0] >= self.geometry.rows.halo

    def memref(self, value: SSAValue) -> MemRefType:
        """The memref of a value; maps are one row where the geometry is `flat`."""
        found = super().memref(value)
        if not self.geometry.flat or is_open([value]) or not isinstance(layout_of(value.type), Blocked):
            return found
        n, blocks, height, width, lanes = found.get_shape()
        return MemRefType(found.element_type, [n, blocks, 1, height * width, lanes])

    def build(self) -> Launch:
        """One function over pictures x vectors of outputs x bands."""
        b, g, walk = self.b, self.geometry, self.walk
        (height, width), v = g.positions, self.shape.vectors
        groups = g.output_blocks(self.lanes) // v
        open_rows = g.is_open and not g.flat  # whose bands are whole
        bands = (-(-height // walk.rows), 1 if open_rows else -(-width // walk.columns))
        outside = walk.order == OUTPUTS
        extents = (groups, g.batch, *bands) if outside else (g.batch, *bands, groups)
        with b.loop(b.lo, b.hi, name="block") as block:
            names = "group n row column" if outside else "n row column group"
            found = self.coordinates(block.iv, extents, names)
            group, n, row, column = found if outside else (found[3], *found[:3])
            y0, y1 = self.range(row, walk.rows, height)
            x0, x1 = (0, width) if open_rows else self.range(column, walk.columns, width)
            self.part(n, group, y0, y1, x0, x1)
            with self.only(column, 0):
                self.zero_halos(self.n, self.first, v, y0, y1)
        return self.done(groups * g.batch * bands[0] * bands[1])

    def part(self, n: Index, group: Index, y0: Index, y1: Index, x0: Index, x1: Index) -> None:
        """The rows [y0, y1) and columns [x0, x1) of one picture and group of output vectors. Rows begin at a multiple
        of the tile's, columns too, and end at one or where the picture does."""
        b = self.b
        b.location = self.anchor.location
        self.n, self.group, self.first = n, group, b.mul(group, self.shape.vectors)
        self.source_block = self.first_source()
        if self.narrow:
            open_rows(self, y0, y1, x1)
            return
        for rows, lo, hi in self.row_tiles(y0, y1):
            with b.loop(lo, hi, rows, name="y") as y:
                self.row(y.iv, rows, x0, x1)

    def range(self, band: Index, size: int, whole: Size) -> tuple[Index, Index]:
        """First and last row (or column) of a band."""
        b = self.b
        if size >= greatest(whole):
            return 0, whole
        first = b.mul(band, size)
        last = b.add(first, size)
        return first, last if whole % size == 0 else b.op(arith.MinSIOp, last, b.index(whole))

    def row_tiles(self, first: Index, last: Index) -> list[tuple[int, Index, Index]]:
        """Rows [first, last) as (rows of a tile, from, to): behind the whole tiles what is left of the picture."""
        rows, height = self.shape.rows, self.last_row()
        rest = height % rows
        if rest == 0:
            return [(rows, first, last)]
        whole = self.b.op(arith.MinSIOp, self.b.index(last), self.b.index(height - rest))
        return [(rows, first, whole), (rest, self.b.op(arith.MaxSIOp, self.b.index(first), whole), last)]

    def last_row(self) -> int:
        """The end of the rows that fill no whole tile."""
        return self.geometry.rows.positions

    def row(self, y: Index, rows: int, first: Index, last: Index) -> None:
        """The tiles of columns [first, last): the last one of the picture moves back over the one before, or is
        narrower."""
        b, columns, width = self.b, self.shape.columns, self.geometry.cols.positions
        rest = width % columns
        if self.geometry.is_open:
            moves = rest != 0 and self.overlaps and least(width) >= LONG * columns
        else:
            moves = rest != 0 and self.overlaps and len(model.column_tiles(self.geometry, columns)) == 1
        if self.geometry.is_open and rest != 0 and not moves:
            unit = gcd(common_divisor(width), self.walk.columns if self.geometry.flat else 0)
            self.across_open(last, columns, lambda x, columns: self.tile(y, x, rows, columns), first, unit)
            return
        if moves or rest == 0:
            with b.loop(first, last, columns, name="x") as x:
                at = b.op(arith.MinSIOp, x.iv, b.index(width - columns)) if moves else x.iv
                self.tile(y, at, rows, columns)
            return
        whole = width - rest
        inside = b.number(last)
        stop = b.op(arith.MinSIOp, b.index(last), b.index(whole)) if inside is None else min(inside, whole)
        with b.loop(first, stop, columns, name="x") as x:
            self.tile(y, x.iv, rows, columns)
        with self.only(last, width):
            self.tile(y, whole, rows, rest)

    def tile(self, y: Index, x: Index, rows: int, columns: int) -> None:
        """One tile: the bias, the sum over channels and taps, the epilogue."""
        tile = MapTile(self.n, self.first, y, x, (rows, columns, self.shape.vectors, self.lanes), self.used)
        sums = [self.first_sums(tile)]
        if self.geometry.is_open:  # a short tile would wait for its few sums: it has more, of some channels each
            zero = self.b.const(0.0, sums[0].type)
            sums += [zero] * (max(1, min(self.shape.unroll, FEW_SUMS // (columns * self.shape.vectors))) - 1)
        self.finish_blocks(tile, reduce(partial(self.b.op, arith.AddfOp), self.sum(y, x, sums)))

    def first_sums(self, tile: MapTile) -> SSAValue:
        """The sums of a tile before anything is added: the bias."""
        assert self.bias is not None
        return self.repeated(self.bias, tile)

    def multiplied(self, pixels: SSAValue, weights: SSAValue, sums: SSAValue) -> SSAValue:
        """`sums` and the products of pixels [rows, columns, channels] and weights [channels, vectors, lanes]."""
        return self.b.fma(pixels, weights, sums)

    def sum(self, y: Index, x: Index, sums: Sequence[SSAValue]) -> Sequence[SSAValue]:
        """`sums` and those over blocks of input channels, taps and the channels of a block, each of a part."""
        b, g = self.b, self.geometry
        rows, columns = vector_type_of(sums[0]).get_shape()[:2]
        blocks = model.blocks_of(g.channels, self.depth)
        top, left = (self.times(at, step, -pad) for at, step, pad in zip((y, x), g.stride, g.before))
        top, left = b.called(top, "top"), b.called(left, "left")
        bounds = self.taps(top) if rows == 1 else (0, g.rows.taps)
        share = self.share_of_weights(y, x)
        with b.loop(*bounds, carry=sums, name="r") as r:
            line = b.called(b.add(top, b.mul(r.iv, g.rows.dilation)), "line")
            short = self.narrow and columns < self.shape.columns
            if (
                self.skips or short
            ) and rows == 1:  # its own few columns outside: inside, their count would be mispredicted in each block
                with b.loop(*self.inside(left, 1, columns), carry=r.args, name="q") as q:
                    with b.loop(0, blocks, carry=q.args, name="block") as block:
                        block.yields(*self.tap(block.args, r.iv, q.iv, block.iv, line, left))
                    q.yields(*block.results)
                r.yields(*q.results)
            else:
                with b.loop(0, blocks, carry=r.args, name="block") as block:
                    self.fetch(r.iv, block.iv, line, left, rows, columns, share)
                    with b.loop(0, g.cols.taps, carry=block.args, name="q") as q:
                        q.yields(*self.tap(q.args, r.iv, q.iv, block.iv, line, left))
                    block.yields(*q.results)
                r.yields(*block.results)
        return r.results

    def tap(
        self, sums: Sequence[SSAValue], r: Index, q: Index, block: Index, line: Index, left: Index
    ) -> Sequence[SSAValue]:
        """`sums` and those over the channels of a block under tap (r, q); `line` is the row of the input, `left` the
        column of the first window."""
        b, g, u = self.b, self.geometry, self.shape.unroll
        rows, columns = vector_type_of(sums[0]).get_shape()[:2]
        source, column = b.add(self.source_block, block), b.add(left, b.mul(q, g.cols.dilation))
        b.called(column, "column")
        each = u // len(sums)
        with b.loop(
            0, summed_channels(b, g.input_steps(self.lanes, u), block, self.depth), u, carry=sums, name="c"
        ) as c:
            made = []
            for part, total in enumerate(c.args):
                channel = b.add(c.iv, part * each)
                at = self.at(self.src, self.n, source, line, column, channel)
                pixels = b.tile_load(self.inputs[self.src], at, self.walks(self.src, [2, 3, 4]), (rows, columns, each),
                                     steps=[*g.stride, 1])  # fmt: skip
                made.append(self.multiplied(pixels, self.weights(r, block, q, channel, each, total), total))
            c.yields(*made)
        return c.results

    def weights(self, r: Index, block: Index, q: Index, channel: Index, count: int, sums: SSAValue) -> SSAValue:
        """The weights under tap (r, q) of `count` channels of a block, from `channel` on, for these sums."""
        return self.weights_at(self.weight, [self.group, r, block, q, channel, 0], count, sums)

    def fetch(self, r: Index, block: Index, line: Index, left: Index, rows: int, columns: int, share: Index) -> None:
        """Fetch what is needed soon, beside a block and row of taps: pixels of the next tile, a share of the next
        group's weights."""
        b = self.b
        if self.schedule.pixels_ahead:
            self.fetch_pixels(b.add(self.source_block, block), r, line, left, rows, columns)
        if self.weights_ahead:
            b.prefetch(self.inputs[self.weight], [b.add(self.group, 1), r, block, 0, 0, share], self.weights_ahead)

    def share_of_weights(self, y: Index, x: Index) -> Index:
        """The start of the part of the next group's weights that a tile fetches: elements into each piece. Rows at the
        edges, which pass over taps, do what their neighbours do."""
        b, g, shape = self.b, self.geometry, self.shape
        if not self.weights_ahead:
            return 0
        top, bottom = model.edge_rows(g, shape)
        rows = -(-g.rows.positions // shape.rows) - top - bottom
        row = b.divmod(y, shape.rows)[0]
        if top or bottom:
            row = b.op(arith.MaxSIOp, b.index(b.add(row, -top)), b.index(0))
            row = b.op(arith.MinSIOp, row, b.index(rows - 1))
        row = b.add(b.mul(self.n, rows), row)
        column = b.divmod(b.add(x, shape.columns - 1), shape.columns)[0]  # the last tile may have moved back
        tile = b.add(b.mul(row, -(-g.cols.positions // shape.columns)), column)
        return b.mul(tile, self.weights_ahead // 4)

    def fetch_pixels(self, source: Index, r: Index, line: Index, left: Index, rows: int, columns: int) -> None:
        """Fetch what the next tile of the row reads of one block and row of taps, beyond what this tile and the row
        above read."""
        b, g = self.b, self.geometry
        first = g.cols.span(columns)
        fresh = -(-rows * g.rows.stride // g.rows.dilation)  # rows of taps that the row above does not have
        with self.from_on(r, g.rows.taps - fresh):
            for k in range(rows):
                at = self.at(self.src, self.n, source, b.add(line, k * g.rows.stride), b.add(left, first))
                b.prefetch(self.inputs[self.src], at, 4 * self.lanes * columns * g.cols.stride)

    @contextmanager
    def from_on(self, index: Index, first: int) -> Iterator[None]:
        """Run what is built inside where an index is at least `first`."""
        if first <= 0:
            yield
            return
        with self.b.when(self.b.cmpi("sge", self.b.index(index), self.b.index(first))):
            yield

    def times(self, position: Index, step: int, offset: int) -> SSAValue:
        """position * step + offset."""
        return self.b.add(self.b.mul(position, step), offset)

    def taps(self, top: Index) -> tuple[Index, Index]:
        """The rows of the window, [from, to), that lie in the picture where the window begins at input row `top`."""
        return self.inside(top, 0, 1) if self.geometry.rows.halo else (0, self.geometry.rows.taps)

    def inside(self, begin: Index, axis: int, count: int) -> tuple[Index, Index]:
        """The taps along an axis, [from, to), that lie in the picture for any of `count` windows, of which the first
        begins at `begin`."""
        b, g = self.b, self.geometry
        size, step, length, reach = g.taps[axis], g.dilation[axis], g.size[axis], (count - 1) * g.stride[axis]
        # ceil(-begin / step) of the last window; rounding to 0 where it is negative
        above = b.op(arith.SubiOp, b.index(step - 1 - reach), b.index(begin))
        below = b.op(arith.SubiOp, b.index(length + step - 1), b.index(begin))
        first, last = (v if step == 1 else b.op(arith.DivSIOp, v, b.index(step)) for v in (above, below))
        return b.op(arith.MaxSIOp, first, b.index(0)), b.op(arith.MinSIOp, last, b.index(size))

    def first_source(self) -> Index:
        """The first input block of the group of channels that the outputs belong to."""
        g = self.geometry
        if g.groups == 1:
            return 0
        per_group = model.blocks_of(g.outputs, self.lanes) // self.shape.vectors
        return self.b.mul(self.b.divmod(self.group, per_group)[0], model.blocks_of(g.channels, self.depth))


DIRECT = Direct(DirectKernel)
