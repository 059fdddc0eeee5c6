"""The common part of all kernels on blocked maps: the memrefs, tiles and their epilogue, halos and unused lanes, the
grid.

A map [N, C, H, W] in the layout ``c16h1`` is the memref [N, ceil(C/16), H+2, W+2, 16]. A tile of it is [rows, columns,
vectors, 16]: pixels by blocks of channels, in the order in which `tile.fma` makes it from pixels [rows, columns, K] and
weights [K, vectors, 16]. Positions are logical: the halo of each map is added where it is read or written.

Where a call decides the height or the width, the memref is [pixels, 16], of all pictures and blocks, and a tile is part
of one row and one block of channels. Imports the builder, the evaluator and layouts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from math import gcd, prod

from xdsl.dialects import arith, vector
from xdsl.dialects.builtin import IntegerType, MemRefType
from xdsl.ir import Attribute, SSAValue

from lightnet.backends.builder import Builder, Index, flat_index, vector_type
from lightnet.backends.cpu.blocked.base import NO_HALO, blocks_of, lanes_of
from lightnet.backends.cpu.blocked.conv_model import shorter_tile
from lightnet.backends.cpu.blocked.evaluator import BlockedEvaluator
from lightnet.backends.cpu.blocked.forms import keeps_zero
from lightnet.backends.cpu.tile_kernel import TileKernel
from lightnet.backends.launches import Launch
from lightnet.dataclasses import dataclass, replace
from lightnet.ir.instances import is_open
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import Blocked, layout_of
from lightnet.ir.target import Halo
from lightnet.ir.types import memref_type_of, spec_of, vector_type_of
from lightnet.ir.windows import Axis
from lightnet.runtime.arrays import align_up
from lightnet.runtime.dims import Dim, Size, common_divisor, greatest, least


@dataclass(frozen=True)
class MapTile:
    """A tile of the result: picture `n`, from block `block` of channels and logical row `y` and column `x` on, of
    `shape` (rows, columns, vectors, lanes). `used` lanes of the last block of channels are channels (all of them where
    the others stay 0 by themselves)."""

    n: Index
    block: Index
    y: Index
    x: Index
    shape: tuple[int, int, int, int]
    used: int
    #: Rows and columns of the result from one pixel of the tile to the next.
    steps: tuple[int, int] = (1, 1)

    @property
    def strides(self) -> list[int] | None:
        """The steps of a slice of a map; None where its pixels are neighbours."""
        return None if self.steps == (1, 1) else [*self.steps, 1, 1]


@dataclass(frozen=True)
class BandWindow:
    """Some rows of one picture of a map, in memory that is used again: those from row `first` of the layout on, or
    (`ring`) each row at its number modulo `ring`, so that the last so many rows are there. Of all blocks of channels,
    or those from `block` on."""

    first: Index = 0
    ring: int = 0
    block: Index = 0

    def within(self, b: Builder, block: Index) -> Index:
        """The block of the memory for a block of the map."""
        return block if b.number(self.block) == 0 else b.op(arith.SubiOp, b.index(block), b.index(self.block))

    def row(self, b: Builder, row: Index) -> Index:
        """The row of the memory for a row of the layout."""
        row = row if b.number(self.first) == 0 else b.op(arith.SubiOp, b.index(row), b.index(self.first))
        return b.op(arith.RemSIOp, b.index(row), b.index(self.ring)) if self.ring else row


@dataclass(frozen=True)
class Host:
    """The function that a kernel's code becomes part of, instead of a function of its own: its builder, the memrefs of
    the kernel's operands and results, and the `windows` of maps that are not there as a whole."""

    b: Builder
    inputs: dict[SSAValue, SSAValue]
    results: list[SSAValue]
    windows: dict[SSAValue, BandWindow]


def map_place(b: Builder, value: SSAValue, indices: list[Index]) -> list[Index]:
    """The indices in the memref of a map of an element of a map's layout: [picture, block, row, column, lane]."""
    if not is_open([value]):
        return indices
    *pixels, _ = layout_of(value.type).physical_dims(spec_of(value.type).dims)
    return [flat_index(b, pixels, indices), indices[-1]]


class BlockedKernel(TileKernel):
    """A kernel function under construction, or (`host`) the part of one that is a kernel of its own."""

    #: Whether the anchor makes each lane of all channels: then an infinity or NaN of any of them reaches unused lanes,
    #: too, as infinity * 0 is NaN.
    mixes_channels = False

    def __init__(self, kernel: KernelOp, name: str, lanes: int, aliases: Mapping[int, int], scratch: Size = 0,
                 workspace: Size = 0, host: Host | None = None):  # fmt: skip
        self.lanes = lanes
        self.windows: Mapping[SSAValue, BandWindow] = {}
        #: Whether a tile may lie on another: what is computed again would read its own result where that overwrites an
        #: operand.
        self.overlaps = not aliases
        if host is None:
            super().__init__(kernel, name, aliases, align_up(scratch), align_up(workspace))
            return
        self.describe(kernel)
        self.b, self.inputs, self.results, self.windows = host.b, host.inputs, host.results, host.windows

    # -- geometry

    def halo(self, value: SSAValue) -> Halo:
        """The halo of a map."""
        layout = layout_of(value.type)
        return layout.halo if isinstance(layout, Blocked) else NO_HALO

    def at(self, value: SSAValue, n: Index, block: Index, y: Index, x: Index, lane: Index = 0) -> list[Index]:
        """The memref indices of a logical position of a map."""
        rows, cols = self.halo(value)
        return map_place(self.b, value, [*self.held(value, n, block, self.b.add(y, rows)), self.b.add(x, cols), lane])

    def walks(self, value: SSAValue, dims: Sequence[int]) -> list[int]:
        """The dimensions of a map's memref that a tile walks, from those of its layout."""
        return [int(d == 4) for d in dims] if is_open([value]) else list(dims)

    def held(self, value: SSAValue, n: Index, block: Index, row: Index) -> tuple[Index, Index, Index]:
        """The subscripts by which the memref of a map has a picture, a block and a row of its layout: there, unless it
        holds a window only.
        """
        window = self.windows.get(value)
        return (n, block, row) if window is None else (0, window.within(self.b, block), window.row(self.b, row))

    @property
    def masked(self) -> int:
        """Lanes of the last block that are channels, where the others would not stay 0 by themselves; else 0."""
        channels = self.anchor.result_specs[0].dims[1]
        return channels % self.lanes if self.mixes_channels or not keeps_zero(self.ops[1:]) else 0

    @cached_property
    def used(self) -> int:
        """The number of lanes of a `MapTile` that are channels: those in the last block, or all."""
        return self.masked or self.lanes

    # -- sums of several blocks of channels: of an open map, whose blocks lie apart by what a call decides, a tile is
    #    written block by block, and its sums are [1, columns, vectors, 1, lanes]

    def repeated(self, values: SSAValue, tile: MapTile) -> SSAValue:
        """A vector by channel as the sums of a tile, the same for each pixel."""
        rows, columns, vectors, lanes = tile.shape
        if vectors == 1 or not is_open([self.yielded[0]]):
            return self.b.tile_load(self.inputs[values], [tile.block, 0], [0, 0, 0, 1], tile.shape, steps=[0, 0, 1, 1])
        shape = (rows, columns, vectors, 1, lanes)
        return self.b.tile_load(self.inputs[values], [tile.block, 0], [0, 0, 0, 0, 1], shape, steps=[0, 0, 1, 0, 1])

    def weights_at(self, weight: SSAValue, at: Sequence[Index], channels: int, sums: SSAValue) -> SSAValue:
        """The weights of so many input channels for a tile's sums: [channels, vectors, lanes]."""
        *_, lanes = vector_type_of(sums).get_shape()
        inner = vector_type_of(sums).get_shape()[2:]
        dims, steps = [4, *(5 for _ in inner)], [1, lanes, *(1 for _ in inner[1:])]
        return self.b.tile_load(self.inputs[weight], at, dims, (channels, *inner), steps=steps)

    def finish_blocks(self, tile: MapTile, sums: SSAValue) -> None:
        """`finish` for the sums of `repeated`."""
        b, (_, columns, vectors, lanes) = self.b, tile.shape
        if vectors == 1 or not is_open([self.yielded[0]]):
            self.finish(tile, sums)
            return
        pixel = vector_type((vectors, 1, lanes), self.element)
        pixels = [b.append(vector.ExtractOp(sums, [0, x], pixel)).results[0] for x in range(columns)]
        for v, part in enumerate(b.transpose(pixels)):
            one = replace(tile, block=b.add(tile.block, v), shape=(1, columns, 1, lanes))
            self.finish(one, b.broadcast(part, one.shape))

    # -- writing

    def evaluator(self, tile: MapTile) -> BlockedEvaluator:
        return BlockedEvaluator(self, tile)

    def put(self, tile: MapTile, value: SSAValue, yielded: SSAValue, memref: SSAValue) -> None:
        """Store a tile of a result; lanes of the last vector that are no channels become 0."""
        b, where = self.b, self.at(yielded, tile.n, tile.block, tile.y, tile.x)

        def store(cleared: bool) -> None:
            kept = self.without_unused(tile, value) if cleared else value
            b.tile_store(kept, memref, where, self.walks(yielded, [2, 3, 1, 4]), steps=tile.strides)

        block, last = b.add(tile.block, tile.shape[2] - 1), blocks_of(spec_of(yielded.type).dims[1], self.lanes) - 1
        known = b.number(block)
        if known is not None or tile.used == self.lanes:
            store(known == last and tile.used < self.lanes)
            return
        for predicate, cleared in (("ne", False), ("eq", True)):
            with b.when(b.cmpi(predicate, b.index(block), b.index(last))):
                store(cleared)

    def without_unused(self, tile: MapTile, value: SSAValue) -> SSAValue:
        """A tile with 0 in the lanes of its last vector that are no channels."""
        b, (_, _, vectors, lanes) = self.b, tile.shape
        bits = [v < vectors - 1 or lane < tile.used for v in range(vectors) for lane in range(lanes)]
        mask = b.broadcast(b.mask((1, 1, vectors, lanes), bits), tile.shape)
        return b.select(mask, value, b.broadcast(self.zero_of(vector_type_of(value).element_type), tile.shape))

    def zero_of(self, element: Attribute) -> SSAValue:
        """The 0 of a type."""
        return self.b.const(0 if isinstance(element, IntegerType) else 0.0, element)

    def zero_halos(self, n: Index, block: Index, blocks: Index, first: Index, last: Index) -> None:
        """Write the halo of every result around its rows [first, last): the columns beside them, and the rows above and
        below where they are the first and the last of the picture. For `blocks` blocks of channels from `block` on."""
        for yielded, memref in zip(self.yielded, self.results):
            if self.halo(yielded) != NO_HALO:
                self.zero_halo(yielded, memref, n, block, blocks, first, last)

    def zero_halo(
        self, value: SSAValue, memref: SSAValue, n: Index, block: Index, blocks: Index, first: Index, last: Index
    ) -> None:
        """`zero_halos` of one result."""
        b, (rows, cols) = self.b, self.halo(value)
        _, _, height, width = spec_of(value.type).dims
        zero = self.zero_of(memref_type_of(memref).element_type)
        with b.loop(0, blocks, name="v") as v:
            at = b.add(block, v.iv)
            if cols:
                column = b.broadcast(zero, (cols, self.lanes))
                with b.loop(b.add(first, rows), b.add(last, rows), name="y") as y:
                    for side in (0, width + cols):
                        where = map_place(self.b, value, [n, at, y.iv, side, 0])
                        b.tile_store(column, memref, where, self.walks(value, [3, 4]))
            if rows:
                pixel = b.broadcast(zero, (self.lanes,))
                for edge, position, start in ((first, 0, 0), (last, height, height + rows)):
                    with (
                        self.only(edge, position),
                        b.loop(start, start + rows, name="y") as y,
                        b.loop(0, width + 2 * cols, name="x") as x,
                    ):
                        b.tile_store(
                            pixel, memref, map_place(self.b, value, [n, at, y.iv, x.iv, 0]), self.walks(value, [4])
                        )

    def row_end(self, first: Index, band: int, rows: int) -> Index:
        """The end of the band of rows that starts at `first`."""
        end = self.b.add(first, band)
        return end if rows % band == 0 else self.b.op(arith.MinSIOp, self.b.index(end), self.b.index(rows))

    def clip(self, axis: Axis, begin: Index, end: Size) -> tuple[Index, Index]:
        """The taps [low, high) of a window of `axis`, which begins at `begin`, that lie in [0, end)."""
        b, d = self.b, axis.dilation
        low: Index = 0
        high: Index = axis.taps
        if axis.before > 0:  # ceil(-begin / d), at least 0
            behind = b.op(arith.SubiOp, b.index(d - 1), b.index(begin))
            low = b.op(arith.MaxSIOp, b.divmod(behind, d)[0], b.index(0))
        if greatest(axis.reach - axis.before - end) > 0:
            left = b.op(arith.SubiOp, b.index(end + d - 1), b.index(begin))
            high = b.op(arith.MinSIOp, b.divmod(left, d)[0], b.index(axis.taps))
        return low, high

    def across(self, width: Size, columns: int, body: Callable[[Index, int], None]) -> None:
        """`body` on tiles of [0, width), given the first column and how many: the last tile lies on the one before, or
        is narrower."""
        b, rest = self.b, width % columns
        if isinstance(rest, Dim) or (rest and self.overlaps and least(width) < columns):
            self.across_open(width, columns, body)
            return
        if rest and self.overlaps:
            with b.loop(0, width, columns, name="x") as x:
                body(b.op(arith.MinSIOp, x.iv, b.index(width - columns)), columns)
            return
        with b.loop(0, width - rest, columns, name="x") as x:
            body(x.iv, columns)
        if rest:
            body(width - rest, rest)

    def across_open(
        self, width: Index, columns: int, body: Callable[[Index, int], None], start: Index = 0, unit: int = 0
    ) -> None:
        """`across` from `start` on for a width that a call decides, both multiples of `unit` (0: of what they are known
        to be): what is left behind the last tile that is needed by more than its half goes to tiles of about a third,
        and so on, as does all of a row that is narrower than a tile: each length is code of its own. Where other blocks
        compute what is before `start`, no tile lies there."""
        b, known, whole = self.b, self.b.number(width), self.b.number(start) == 0
        overlaps = self.overlaps and whole
        first, end = b.index(start), b.index(width)
        divisor = unit or (common_divisor(known) if known is not None and whole else 1)  # of what is left
        while True:
            spare = columns - 1 - columns // 2 if overlaps else 0
            many = b.divmod(b.add(b.op(arith.SubiOp, end, first), spare), columns)[0]
            if spare:
                many = b.select(b.cmpi("sge", end, b.index(columns)), many, b.index(0))
            stop = b.add(first, b.mul(many, columns))
            with b.loop(first, stop, columns, name="x") as x:
                body(b.op(arith.MinSIOp, x.iv, b.add(width, -columns)) if spare else x.iv, columns)
            divisor = gcd(divisor, columns)
            if divisor == columns:
                return
            first = b.op(arith.MinSIOp, stop, end) if spare else stop
            columns = shorter_tile(columns, divisor)

    def down(self, first: Index, last: Index, height: int, rows: int, body: Callable[[Index, int], None]) -> None:
        """`body` on tiles of the rows [first, last) of `height`, given the first row and how many: what the last rows
        of a picture leave is a tile that lies on the one before, or single rows. A range is whole tiles, or all
        rows."""
        b, rest = self.b, height % rows
        if rest == 0 or self.overlaps:
            with b.loop(first, last, rows, name="y") as y:
                body(b.op(arith.MinSIOp, y.iv, b.index(height - rows)) if rest else y.iv, rows)
            return
        with b.loop(first, height - rest, rows, name="y") as y:
            body(y.iv, rows)
        with b.loop(height - rest, last, name="y") as y:
            body(y.iv, 1)

    @contextmanager
    def only(self, value: Index, number: int) -> Iterator[None]:
        """Run what is built inside where an index equals a number."""
        known = self.b.number(value)
        if known is not None and known == number:
            yield
            return
        with self.b.when(self.b.cmpi("eq", self.b.index(value), self.b.index(number))):
            yield

    # -- the grid

    def coordinates(self, block: SSAValue, extents: Sequence[Size], names: str = "") -> list[Index]:
        """A block's number as indices, the last extent running fastest; `names` are theirs, with spaces between."""
        found: list[Index] = []
        for extent in reversed(extents[1:]):
            block, index = self.b.divmod(block, extent)
            found.insert(0, index)
        indices: list[Index] = [block, *found]
        if names:
            indices = [self.b.called(index, name) for index, name in zip(indices, names.split(), strict=True)]
        return indices

    def by_bands(self, extents: Sequence[int], names: str, height: int, band: int, body: Callable[..., None]) -> Launch:
        """The function over a grid of what `extents` count, called `names`, and of bands of rows of `height`: `body`
        makes a block of it, given the numbers and the rows [first, last)."""
        b, bands = self.b, -(-height // band)
        with b.loop(b.lo, b.hi, name="number") as number:
            *found, index = self.coordinates(number.iv, (*extents, bands), f"{names} band")
            first = b.mul(index, band)
            body(*found, first, self.row_end(first, band, height))
        return self.done(prod(extents) * bands)

    def by_lanes(self, block: Index, blocks: int, used: int, body: Callable[[Index, int], None]) -> None:
        """`body` on one of `blocks` blocks of channels, given how many of its lanes are channels: the last one, of
        which that are `used`, has code of its own if these are not all."""
        if used == self.lanes:
            body(block, used)
            return
        if blocks > 1:
            with self.b.when(self.b.cmpi("ne", self.b.index(block), self.b.index(blocks - 1))):
                body(block, self.lanes)
        with self.only(block if blocks > 1 else 0, blocks - 1):
            body(blocks - 1, used)


def summed_channels(b: Builder, total: int, block: Index, lanes: int) -> Index:
    """Channels of an input block that are summed over, where they are `total` in all: those that there are, in whole
    steps."""
    if total <= lanes or total % lanes == 0:
        return min(total, lanes)
    return b.op(arith.MinSIOp, b.op(arith.SubiOp, b.index(total), b.mul(block, lanes)), b.index(lanes))


class RowsKernel(BlockedKernel):
    """A kernel that walks pictures row by row, `rows` of `cols` pixels: short ones without a halo are joined, as far as
    nothing depends on where a row ends."""

    def __init__(self, kernel: KernelOp, name: str, aliases: Mapping[int, int]):
        self.pictures, self.channels, *self.picture = spec_of(kernel.results[0].type).dims
        height, width = self.picture
        self.joined = joined_rows([*kernel.body.args, *kernel.terminator.operands], (height, width))
        self.rows, self.cols = height // self.joined, width * self.joined
        super().__init__(kernel, name, lanes_of(kernel), aliases)

    def memref(self, value: SSAValue) -> MemRefType:
        """The memref of a value; maps of the picture's size have joined rows."""
        type = super().memref(value)
        if self.joined == 1 or [*spec_of(value.type).dims[2:]] != self.picture:
            return type
        n, blocks, _, _, lanes = type.get_shape()
        return MemRefType(type.element_type, [n, blocks, self.rows, self.cols, lanes])


#: Pixels of a row up to which rows are joined, where there is no halo between them.
SHORT_ROW = 64


def joined_rows(values: Iterable[SSAValue], picture: tuple[int, int]) -> int:
    """The number of rows of a picture (height, width) that may count as one long row: 1 where one of the maps of that
    size has a halo.
    """
    height, width = picture
    for value in values:
        layout = layout_of(value.type)
        if isinstance(layout, Blocked) and layout.halo != NO_HALO and spec_of(value.type).dims[2:] == picture:
            return 1
    if isinstance(height, Dim) or isinstance(width, Dim):
        return 1
    return next(k for k in range(1, height + 1) if height % k == 0 and (k * width >= SHORT_ROW or k == height))
