"""The general kernel of windows on register tiles, and what all kernels of windows share.

A tile is [outputs, rows, pixels]; the pixels fill vectors. For each channel and tap, one vector load of pixels feeds
all outputs, each multiplied by a weight that is broadcast from its natural row-major place (no packing). The block grid
is batch x groups x bands of rows x pieces of the outputs; the first block of a band that a thread runs stages the
band's input where taps could not read it as it is (`window.py`), in the thread's scratch. Imports the geometry of
windows, the builder and the epilogue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from itertools import chain

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerType, MemRefType
from xdsl.ir import SSAValue

from lightnet.backends.builder import Index
from lightnet.backends.cpu.registers import MOST_BODY, REGISTERS, cover, even
from lightnet.backends.cpu.tile_kernel import TileKernel
from lightnet.backends.cpu.window import BLOCKS, Phase, StagedWindow, Tap
from lightnet.backends.expressions import TileView
from lightnet.backends.launches import Launch
from lightnet.dataclasses import dataclass
from lightnet.ir.kernel import KernelOp
from lightnet.ir.types import spec_of, vector_type_of

#: With more phases (a transposed convolution of stride 4 or more), each of which is code of its own, tiles are small.
MANY_PHASES = 9
#: Padding of more vectors than these is filled by a loop.
MANY_VECTORS = 8


@dataclass(frozen=True)
class _Shape:
    """A tile: outputs x rows x vectors of pixels."""

    outputs: int
    rows: int
    vectors: int


def vector_lanes(window: StagedWindow, width: int) -> int:
    """Elements of one vector register, for a target with `width` lanes of f32."""
    return width * 4 // window.itemsize


def tile_shape(window: StagedWindow, width: int) -> _Shape:
    """The tile: wide maps take several vectors of one row, narrow ones several rows of one vector; few outputs take
    more pixels."""
    if len(window.phases) > MANY_PHASES:
        return _Shape(min(window.outputs, 8 if REGISTERS[width] > 16 else 4), 1, 1)
    per_row = -(-window.cols // vector_lanes(window, width))
    registers = REGISTERS[width]
    outputs = min(window.outputs, 8 if registers > 16 else 4)
    budget = max(1, min(registers // outputs, 8))
    vectors = min(per_row, budget)
    rows = max(1, min(budget // vectors, window.rows)) if vectors == per_row else 1
    return _Shape(outputs, rows, vectors)


def pieces_of(window: StagedWindow, tile_outputs: int, grid: int) -> tuple[int, int]:
    """(number, tiles in each) of the pieces that the outputs of one group are cut into, where `grid` is too coarse to
    share out."""
    tiles = window.outputs // tile_outputs  # a smaller rest goes with the last piece
    if window.kind != "sum" or grid >= BLOCKS or tiles < 2:
        return 1, max(tiles, 1)
    each = -(-tiles // -(-BLOCKS // grid))
    return -(-tiles // each), each


class WindowKernel(TileKernel):
    """The common part of all kernels of windows: views of tensors, and the outputs of a block. `scratch` is the size
    of theirs in bytes.
    """

    #: Pieces of the outputs, tiles in each, and the piece that a block is for.
    pieces, tiles = 1, 1
    piece: Index = 0

    def __init__(
        self, kernel: KernelOp, window: StagedWindow, name: str, width: int, aliases: Mapping[int, int], scratch: int
    ):
        self.window, self.width, self.lanes = window, width, vector_lanes(window, width)
        super().__init__(kernel, name, aliases, scratch)

    def over_outputs(self, size: int, tile: Callable[[Index, int], None]) -> None:
        """Make ``tile(first output, outputs)`` for the tiles of `size` outputs, and a smaller one, of a block's
        piece."""
        b = self.b
        for first, count, step in cover(self.window.outputs, size):
            low: Index = first
            high: Index = first + count
            if self.pieces > 1 and step < size:
                with b.when(b.cmpi("eq", b.index(self.piece), b.index(self.pieces - 1))):
                    with b.loop(low, high, step, name="o") as o:
                        tile(o.iv, step)
                continue
            if self.pieces > 1:
                low = b.mul(self.piece, self.tiles * size)
                high = b.op(arith.MinSIOp, b.add(low, self.tiles * size), b.index(count))
            with b.loop(low, high, step, name="o") as o:
                tile(o.iv, step)

    @contextmanager
    def first_piece(self, block: SSAValue) -> Iterator[None]:
        """Run inside what the first block of a band does that a thread runs: the ones behind it find it done."""
        if self.pieces == 1:
            yield
            return
        b = self.b
        starts = b.op(arith.OrIOp, b.cmpi("eq", b.index(self.piece), b.index(0)), b.cmpi("eq", block, b.lo))
        with b.when(starts):
            yield

    def memref(self, value: SSAValue) -> MemRefType:
        """The memref of a tensor: pictures take the window's [rows, columns] (1x1 windows see one row)."""
        type, dims, anchor = super().memref(value), spec_of(value.type).dims, self.anchor
        if value is anchor.operands[0]:
            return MemRefType(type.element_type, (*dims[:2], *self.window.in_hw))
        if dims == anchor.result_specs[0].dims and len(dims) == 4:
            return MemRefType(type.element_type, (*dims[:2], *self.window.out_hw))
        return type


class TiledKernel(WindowKernel):
    """The general window kernel."""

    def build(self) -> Launch:
        w, b = self.window, self.b
        self.shape = tile_shape(w, self.width)
        band = w.band(self.lanes, self.shape.rows)
        bands = -(-w.rows // band)
        grid = w.batch * w.groups * bands
        self.pieces, self.tiles = pieces_of(w, self.shape.outputs, grid)
        self.columns = w.cols + w.reach[1]
        if w.staged:
            staged = MemRefType(self.element, w.staged_shape(band, self.lanes))
            self.staged = b.view(self.scratch, 0, staged, name="staged")
        with b.loop(b.lo, b.hi, name="block") as block:
            number, self.piece = b.divmod(block.iv, self.pieces)
            picture, self.band_index = b.divmod(number, bands)
            self.n, self.group = b.divmod(picture, w.groups)
            self.y0 = b.mul(self.band_index, band)
            if w.staged:
                with self.first_piece(block.iv):
                    self.stage(band)
            for phase in w.phases:
                self.phase(phase, band, bands)
        return self.done(grid * self.pieces)

    # -- staging

    def stage(self, band: int) -> None:
        """Copy the band's input rows, sorted into planes; zeros (for a maximum: minus infinity) outside."""
        w, b = self.window, self.b
        filler = float("-inf") if w.kind == "max" else 0.0
        rows = band + w.reach[0]
        with b.loop(0, w.layers, name="c") as c:
            channel = b.add(b.mul(self.group, w.channels), c.iv)
            for i, py in enumerate(w.plane_rows):
                with b.loop(0, rows, name="row") as row:
                    source = b.add(b.mul(b.add(self.y0, row.iv), w.planes[0]), py - w.origin[0])
                    above = b.cmpi("sge", source, b.index(0))
                    inside = b.op(arith.AndIOp, above, b.cmpi("slt", source, b.index(w.in_hw[0])))
                    with b.when(inside):
                        if w.kind != "count":
                            self.stage_row(c.iv, channel, i, row.iv, source, filler)
                        else:
                            ones = b.cmpi("eq", c.iv, b.index(w.channels))
                            with b.when(ones):
                                self.stage_ones(c.iv, i, row.iv)
                            with b.when(b.op(arith.XOrIOp, ones, b.const(1, IntegerType(1)))):
                                self.stage_row(c.iv, channel, i, row.iv, source, filler)
                    with b.when(b.op(arith.XOrIOp, inside, b.const(1, IntegerType(1)))):
                        for j in range(len(w.plane_cols)):
                            self.fill(c.iv, i, j, row.iv, 0, self.columns, filler)

    def stage_row(self, c: Index, channel: Index, i: int, row: Index, source: Index, filler: float) -> None:
        w = self.window
        for j, px in enumerate(w.plane_cols):
            step = w.planes[1]
            first, end = w.columns_inside(px)
            self.fill(c, i, j, row, 0, first, filler)
            self.copy(c, channel, i, j, row, source, first, end, first * step + px - w.origin[1], step)
            self.fill(c, i, j, row, end, self.columns, filler)

    def stage_ones(self, c: Index, i: int, row: Index) -> None:
        """1 where `stage_row` puts pixels, 0 elsewhere."""
        for j, px in enumerate(self.window.plane_cols):
            first, end = self.window.columns_inside(px)
            self.fill(c, i, j, row, 0, first, 0.0)
            self.fill(c, i, j, row, first, end, 1.0)
            self.fill(c, i, j, row, end, self.columns, 0.0)

    def fill(self, c: Index, i: int, j: int, row: Index, start: int, end: int, filler: float) -> None:
        """Columns [start, end) of a staged row."""
        b, lanes = self.b, self.lanes

        def put(at: Index, valid: list[int] | None) -> None:
            value = b.broadcast(b.const(filler, self.element), (lanes,))
            b.tile_store(value, self.staged, [c, i, j, row, at], [4], valid=valid)

        if end - start > MANY_VECTORS * lanes:
            whole = (end - start) // lanes * lanes
            with b.loop(start, start + whole, lanes, name="vector") as vector:
                put(vector.iv, None)
            start += whole
        for at, count in _pieces(start, end, lanes):
            put(at, None if count == lanes else [count])

    def copy(
        self,
        c: Index,
        channel: Index,
        i: int,
        j: int,
        row: Index,
        source: Index,
        start: int,
        end: int,
        column: int,
        step: int,
    ) -> None:
        """Staged columns [start, end) from input columns `column`, `column` + step, …"""
        b, lanes = self.b, self.lanes
        src = self.inputs[self.anchor.operands[0]]
        whole = max(end - start, 0) // lanes

        def move(at: Index, from_: Index, count: int) -> None:
            valid = None if count == lanes else [count]
            value = b.tile_load(src, [self.n, channel, source, from_], [3], (lanes,), steps=[step], valid=valid)
            b.tile_store(value, self.staged, [c, i, j, row, at], [4], valid=valid)

        if whole:
            with b.loop(0, whole, name="k") as k:
                move(b.add(b.mul(k.iv, lanes), start), b.add(b.mul(k.iv, lanes * step), column), lanes)
        if end - start > whole * lanes:
            move(start + whole * lanes, column + whole * lanes * step, end - start - whole * lanes)

    # -- computing

    def phase(self, phase: Phase, band: int, bands: int) -> None:
        b = self.b
        rows: Index = min(phase.rows, band)
        if bands > 1:
            left = b.op(arith.SubiOp, b.index(phase.rows), b.index(self.y0))
            left = b.op(arith.MaxSIOp, left, b.index(0))
            rows = b.op(arith.MinSIOp, left, b.index(band))
        self.over_outputs(self.shape.outputs, lambda o, outputs: self.tile_rows(phase, rows, o, outputs))

    def tile_rows(self, phase: Phase, rows: Index, o: Index, outputs: int) -> None:
        b, s = self.b, self.shape
        fixed = b.number(rows)
        if s.rows == 1:
            with b.loop(0, rows, name="y") as y:
                self.tile_columns(phase, o, outputs, y.iv, 1)
            return
        if fixed is not None:
            whole: Index = fixed // s.rows * s.rows
        else:
            whole = b.mul(b.divmod(rows, s.rows)[0], s.rows)
        with b.loop(0, whole, s.rows, name="y") as y:
            self.tile_columns(phase, o, outputs, y.iv, s.rows)
        if fixed is None or fixed % s.rows:
            with b.loop(whole, rows, name="y") as y:
                self.tile_columns(phase, o, outputs, y.iv, 1)

    def tile_columns(self, phase: Phase, o: Index, outputs: int, y: Index, rows: int) -> None:
        b, lanes = self.b, self.lanes
        for first, count, vectors in even(-(-phase.cols // lanes), self.shape.vectors):
            width = vectors * lanes
            start, end = first * lanes, (first + count) * lanes
            inside = end if end <= phase.cols else end - width  # the last tile is not full
            if inside > start:
                with b.loop(start, inside, width, name="x") as x:
                    self.tile(phase, o, y, x.iv, (outputs, rows, width), None)
            if inside < end:
                self.tile(phase, o, y, inside, (outputs, rows, width), [outputs, rows, phase.cols - inside])

    def tile(
        self, phase: Phase, o: Index, y: Index, x: Index, shape: tuple[int, int, int], valid: Sequence[int] | None
    ) -> None:
        w, b = self.window, self.b
        output = b.add(b.mul(self.group, w.outputs), o)
        row = b.add(b.mul(b.add(self.y0, y), w.step[0]), phase.oy)
        column = b.add(b.mul(x, w.step[1]), phase.ox)
        tile = TileView([self.n, output, row, column], [1, 2, 3], shape, [1, *w.step], valid)
        if w.kind == "sum":
            bias = self.inputs[self.anchor.operands[2]]
            acc = b.tile_load(bias, [output], [0, 0, 0], shape, steps=[1, 0, 0])
            acc = self.reduce_channels(phase, output, y, x, acc, valid)
        else:
            acc = self.reduce_window(phase, y, x, shape, valid)
        self.finish(tile, acc)

    def reduce_window(
        self, phase: Phase, y: Index, x: Index, shape: tuple[int, int, int], valid: Sequence[int] | None
    ) -> SSAValue:
        """A pool: the maximum or the mean over the taps."""
        b, kind = self.b, self.window.kind
        acc = self.over_taps(phase, 0, y, x, shape, valid)
        if kind == "mean":
            return b.op(arith.MulfOp, acc, b.const(1.0 / len(phase.taps), acc.type))
        if kind == "count":
            return b.op(arith.DivfOp, acc, self.over_taps(phase, self.window.channels, y, x, shape, valid))
        return acc

    def over_taps(
        self, phase: Phase, layer: int, y: Index, x: Index, shape: tuple[int, int, int], valid: Sequence[int] | None
    ) -> SSAValue:
        """The maximum or the sum over the taps of one staged picture."""
        step = arith.MaximumfOp if self.window.kind == "max" else arith.AddfOp
        values: Iterator[SSAValue] = (self.pixels(tap, layer, y, x, 1, shape, valid) for tap in phase.taps)
        if self.window.kind != "max" and len(phase.taps) > 1:  # a sum begins at 0, which is what -0 and -0 are not
            first = next(values)
            values = chain([self.b.op(arith.AddfOp, first, self.b.const(0.0, first.type))], values)
        return reduce(lambda acc, value: self.b.op(step, acc, value), values)

    def reduce_channels(
        self, phase: Phase, output: Index, y: Index, x: Index, acc: SSAValue, valid: Sequence[int] | None
    ) -> SSAValue:
        """acc + the sum over channels and taps of weight * pixels."""
        shape = vector_type_of(acc).get_shape()
        per_tap = shape[0] * shape[1] * (shape[2] // self.lanes)
        if not phase.taps:
            return acc
        most = 2 if len(self.window.phases) > MANY_PHASES else 8
        at_once = max(1, min(most, MOST_BODY // per_tap, self.window.channels)) if len(phase.taps) == 1 else 1
        for first, count, channels in cover(self.window.channels, at_once):
            with self.b.loop(first, first + count, channels, carry=[acc], name="c") as c:
                value = c.args[0]
                for tap in phase.taps:
                    weights = self.weights(tap, output, c.iv, shape[0], channels)
                    pixels = self.pixels(tap, c.iv, y, x, channels, shape, valid)
                    value = self.b.fma(weights, pixels, value)
                c.yields(value)
            acc = c.results[0]
        return acc

    def weights(self, tap: Tap, output: Index, c: Index, outputs: int, channels: int) -> SSAValue:
        """[outputs, channels] weights of one tap, to be broadcast."""
        w, b = self.window, self.b
        memref = self.inputs[self.anchor.operands[1]]
        if not w.transposed:
            return b.tile_load(memref, [output, c, tap.r, tap.q], [0, 1], (outputs, channels))
        within = b.op(arith.SubiOp, b.index(output), b.mul(self.group, w.outputs)) if w.groups > 1 else output
        channel = b.add(b.mul(self.group, w.channels), c)
        return b.tile_load(memref, [channel, within, tap.r, tap.q], [1, 0], (outputs, channels))

    def pixels(
        self, tap: Tap, c: Index, y: Index, x: Index, channels: int, shape: Sequence[int], valid: Sequence[int] | None
    ) -> SSAValue:
        """[channels, rows, pixels] of the input under one tap."""
        w, b = self.window, self.b
        tile = (channels, shape[1], shape[2])
        if w.staged:
            plane = [w.plane_rows.index(tap.py), w.plane_cols.index(tap.px)]
            return b.tile_load(self.staged, [c, *plane, b.add(y, tap.row), b.add(x, tap.col)], [0, 3, 4], tile)
        source = self.inputs[self.anchor.operands[0]]
        channel = b.add(b.mul(self.group, w.channels), c)
        row, column = b.add(b.add(self.y0, y), tap.row - w.origin[0]), b.add(x, tap.col - w.origin[1])
        inside = None if valid is None else [channels, shape[1], valid[2]]
        return b.tile_load(source, [self.n, channel, row, column], [1, 2, 3], tile, valid=inside)


def _pieces(start: int, end: int, size: int) -> list[tuple[int, int]]:
    """[start, end) in pieces of at most `size`: (start, count)."""
    return [(at, min(size, end - at)) for at in range(start, end, size)]
