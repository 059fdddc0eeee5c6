"""Register-tiled kernels for windows on plain NCHW: convolutions, transposed convolutions and pools, with an epilogue.

A tile is [outputs, rows, pixels]; the pixels fill vectors. For each channel and tap, one vector load of pixels feeds all
outputs, each multiplied by a weight that is broadcast from its natural row-major place (no packing). The block grid is
batch x groups x bands of rows; a block stages its band of the input first where taps could not read it as it is
(`window.py`), in the workspace. With one output pixel the sum over channels becomes the vector dimension instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerType, MemRefType
from xdsl.dialects.func import FuncOp
from xdsl.dialects.vector import FMAOp
from xdsl.ir import SSAValue

from lightnet.backends.builder import Builder, Index
from lightnet.backends.cpu.expressions import Evaluator, Tile, runs_on_tiles
from lightnet.backends.cpu.window import Phase, Tap, Window, window_of
from lightnet.dialects.ln.conv import Conv2d, Deconv2d
from lightnet.dialects.ln.pool import Avgpool2d, Maxpool2d
from lightnet.ir.kernel import KernelOp
from lightnet.ir.op import LnOp
from lightnet.ir.types import spec_of, storage_type

ANCHORS = (Conv2d, Deconv2d, Maxpool2d, Avgpool2d)
#: Accumulators a tile may hold, by lanes of f32 (AVX-512 and NEON have 32 registers, AVX2 has 16), less those for
#: pixels, weights and temporaries.
REGISTERS = {16: 24, 8: 12, 4: 24}
#: Longest unrolled body, in multiply-adds: beyond, code generation and the instruction cache suffer.
BODY = 256
#: With more phases (a transposed convolution of stride 4 or more), each of which is code of its own, tiles are small.
MANY_PHASES = 9


def accepts(ops: Sequence[LnOp], yielded: Sequence[SSAValue] = ()) -> bool:
    """Whether the body is one window op on floats followed by elementwise ops on its result, which make all that is
    `yielded`."""
    if not ops:
        return False
    anchor, *rest = ops
    if not isinstance(anchor, ANCHORS) or not anchor.result_specs[0].dtype.is_float:
        return False
    if isinstance(anchor, Avgpool2d) and any(anchor.derived_values()["pad"]):
        return False  # the divisor differs from window to window
    shape = anchor.result_specs[0]
    inside = set(anchor.results)
    for op in rest:
        if op.result_specs != [shape] or not runs_on_tiles(op) or not inside & set(op.operands):
            return False
        inside |= set(op.results)
    return inside >= set(yielded)


@dataclass(frozen=True)
class Shape:
    """A tile: outputs x rows x vectors of pixels."""

    outputs: int
    rows: int
    vectors: int


def lanes_of(window: Window, width: int) -> int:
    """Elements of one vector register, for a target with `width` lanes of f32."""
    return width * 4 // window.itemsize


def tile_shape(window: Window, width: int) -> Shape:
    """The tile: wide maps take several vectors of one row, narrow ones several rows of one vector; few outputs take
    more pixels."""
    if len(window.phases) > MANY_PHASES:
        return Shape(min(window.outputs, 8 if REGISTERS[width] > 16 else 4), 1, 1)
    per_row = -(-window.cols // lanes_of(window, width))
    registers = REGISTERS[width]
    outputs = min(window.outputs, 8 if registers > 16 else 4)
    budget = max(1, min(registers // outputs, 8))
    vectors = min(per_row, budget)
    while per_row % vectors and vectors > 1 and per_row % vectors * 2 <= vectors:
        vectors -= 1  # avoid a last tile that is mostly empty
    rows = max(1, min(budget // vectors, window.rows)) if vectors == per_row else 1
    return Shape(outputs, rows, vectors)


def workspace_bytes(kernel: KernelOp, width: int) -> int:
    """Bytes of staged input that one block needs."""
    window = window_of(kernel.ops[0])
    if _is_dense(window):
        return 0
    lanes = lanes_of(window, width)
    return window.staged_bytes(window.band(lanes, tile_shape(window, width).rows), lanes)


def _is_dense(window: Window) -> bool:
    """One output pixel that sees the whole input: a matrix-vector product."""
    (phase, *more) = window.phases
    return (
        window.kind == "sum"
        and not more
        and not window.transposed
        and (phase.rows, phase.cols) == (1, 1)
        and not window.staged
        and len(phase.taps) == window.in_hw[0] * window.in_hw[1]
    )


def build(kernel: KernelOp, name: str, width: int, aliases: dict[int, int]) -> tuple[FuncOp, int]:
    """The kernel function and its grid. `aliases` maps a result to the operand whose memory it takes."""
    window = window_of(kernel.ops[0])
    make = _Dense if _is_dense(window) else _Tiled
    return make(kernel, window, name, width, aliases).build()


class _Kernel:
    """What both shapes of kernel share: arguments, views of tensors, the epilogue."""

    def __init__(self, kernel: KernelOp, window: Window, name: str, width: int, aliases: dict[int, int]):
        self.kernel, self.window = kernel, window
        self.width, self.lanes = width, lanes_of(window, width)
        self.element = storage_type(kernel.ops[0].result_specs[0].dtype)
        self.ops = kernel.ops
        self.anchor: LnOp = self.ops[0]
        types = [self.memref(v) for v in kernel.body.args]
        types += [self.memref(v) for i, v in enumerate(kernel.terminator.operands) if i not in aliases]
        self.workspace = workspace_bytes(kernel, width)
        if self.workspace:
            types.append(MemRefType(IntegerType(8), [self.workspace]))
        self.b = Builder.kernel(name, types, opt="none")
        args = list(self.b.args)
        self.inputs = dict(zip(kernel.body.args, args))
        fresh = iter(args[len(kernel.body.args) :])
        self.results = [
            args[aliases[i]] if i in aliases else next(fresh) for i in range(len(kernel.terminator.operands))
        ]

    def memref(self, value: SSAValue) -> MemRefType:
        """The memref of a tensor: pictures take the window's [rows, columns] (1x1 windows see one row)."""
        spec = spec_of(value.type)
        dims = spec.dims
        anchor = self.anchor
        if value is anchor.operands[0]:
            dims = (*dims[:2], *self.window.in_hw)
        elif dims == anchor.result_specs[0].dims and len(dims) == 4:
            dims = (*dims[:2], *self.window.out_hw)
        return MemRefType(storage_type(spec.dtype), dims)

    def finish(self, tile: Tile, value: SSAValue) -> None:
        """Run the epilogue on a finished tile and store what the kernel yields."""
        evaluator = Evaluator(self.b, tile, lambda v: self.inputs[v])
        evaluator.registers[self.anchor.results[0]] = value
        for op in self.ops[1:]:
            evaluator.run(op)
        for value, memref in zip(self.kernel.terminator.operands, self.results):
            self.b.tile_store(
                evaluator.registers[value], memref, tile.indices, tile.dims, steps=tile.steps, valid=tile.valid
            )


class _Tiled(_Kernel):
    """The general window kernel."""

    def build(self) -> tuple[FuncOp, int]:
        w, b = self.window, self.b
        self.shape = tile_shape(w, self.width)
        band = w.band(self.lanes, self.shape.rows)
        bands = -(-w.rows // band)
        grid = w.batch * w.groups * bands
        if w.staged:
            staged = MemRefType(self.element, w.staged_shape(band, self.lanes))
            self.staged = b.view(b.args[-1], 0, staged)
        with b.loop(b.lo, b.hi) as block:
            picture, self.band_index = b.divmod(block.iv, bands)
            self.n, self.group = b.divmod(picture, w.groups)
            self.y0 = b.mul(self.band_index, band)
            if w.staged:
                self.stage(band)
            for phase in w.phases:
                self.phase(phase, band, bands)
        return b.finish(), grid

    # -- staging

    def stage(self, band: int) -> None:
        """Copy the band's input rows, sorted into planes; zeros (for a maximum: minus infinity) outside."""
        w, b = self.window, self.b
        filler = float("-inf") if w.kind == "max" else 0.0
        rows = band + w.reach[0]
        with b.loop(0, w.channels) as c:
            channel = b.add(b.mul(self.group, w.channels), c.iv)
            for i, py in enumerate(w.plane_rows):
                with b.loop(0, rows) as row:
                    source = b.add(b.mul(b.add(self.y0, row.iv), w.planes[0]), py - w.origin[0])
                    above = b.cmpi("sge", source, b.index(0))
                    inside = b.op(arith.AndIOp, above, b.cmpi("slt", source, b.index(w.in_hw[0])))
                    with b.when(inside):
                        self.stage_row(c.iv, channel, i, row.iv, source, filler)
                    with b.when(b.op(arith.XOrIOp, inside, b.const(1, IntegerType(1)))):
                        for j in range(len(w.plane_cols)):
                            self.fill(c.iv, i, j, row.iv, 0, w.cols + w.reach[1], filler)

    def stage_row(self, c: Index, channel: Index, i: int, row: Index, source: Index, filler: float) -> None:
        w = self.window
        for j, px in enumerate(w.plane_cols):
            step = w.planes[1]
            first = -((px - w.origin[1]) // step)  # ceil((origin - px) / step): the first staged column inside
            first = max(first, 0)
            last = (w.in_hw[1] - 1 + w.origin[1] - px) // step
            end = min(last + 1, w.cols + w.reach[1])
            self.fill(c, i, j, row, 0, min(first, w.cols + w.reach[1]), filler)
            self.copy(c, channel, i, j, row, source, first, end, first * step + px - w.origin[1], step)
            self.fill(c, i, j, row, max(end, 0), w.cols + w.reach[1], filler)

    def fill(self, c: Index, i: int, j: int, row: Index, start: int, end: int, filler: float) -> None:
        """Columns [start, end) of a staged row."""
        for at, count in _pieces(start, end, self.lanes):
            shape = (self.lanes,)
            value = self.b.broadcast(self.b.const(filler, self.element), shape)
            self.b.tile_store(
                value, self.staged, [c, i, j, row, at], [4], valid=None if count == self.lanes else [count]
            )

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
            with b.loop(0, whole) as k:
                move(b.add(b.mul(k.iv, lanes), start), b.add(b.mul(k.iv, lanes * step), column), lanes)
        if end - start > whole * lanes:
            move(start + whole * lanes, column + whole * lanes * step, end - start - whole * lanes)

    # -- computing

    def phase(self, phase: Phase, band: int, bands: int) -> None:
        w, b, s = self.window, self.b, self.shape
        rows: Index = min(phase.rows, band)
        if bands > 1:
            left = b.op(arith.SubiOp, b.index(phase.rows), b.index(self.y0))
            left = b.op(arith.MaxSIOp, left, b.index(0))
            rows = b.op(arith.MinSIOp, left, b.index(band))
        for first, count, tile_outputs in _cover(w.outputs, s.outputs):
            with b.loop(first, first + count, tile_outputs) as o:
                self.tile_rows(phase, rows, o.iv, tile_outputs)

    def tile_rows(self, phase: Phase, rows: Index, o: Index, outputs: int) -> None:
        b, s = self.b, self.shape
        fixed = b.number(rows)
        if s.rows == 1:
            with b.loop(0, rows) as y:
                self.tile_columns(phase, o, outputs, y.iv, 1)
            return
        if fixed is not None:
            whole: Index = fixed // s.rows * s.rows
        else:
            whole = b.mul(b.divmod(rows, s.rows)[0], s.rows)
        with b.loop(0, whole, s.rows) as y:
            self.tile_columns(phase, o, outputs, y.iv, s.rows)
        if fixed is None or fixed % s.rows:
            with b.loop(whole, rows) as y:
                self.tile_columns(phase, o, outputs, y.iv, 1)

    def tile_columns(self, phase: Phase, o: Index, outputs: int, y: Index, rows: int) -> None:
        b, pixels = self.b, self.shape.vectors * self.lanes
        whole = phase.cols // pixels
        if whole:
            with b.loop(0, whole * pixels, pixels) as x:
                self.tile(phase, o, y, x.iv, (outputs, rows, pixels), None)
        if left := phase.cols - whole * pixels:
            width = -(-left // self.lanes) * self.lanes
            valid = None if width == left else [outputs, rows, left]
            self.tile(phase, o, y, whole * pixels, (outputs, rows, width), valid)

    def tile(
        self, phase: Phase, o: Index, y: Index, x: Index, shape: tuple[int, int, int], valid: Sequence[int] | None
    ) -> None:
        w, b = self.window, self.b
        output = b.add(b.mul(self.group, w.outputs), o)
        row = b.add(b.mul(b.add(self.y0, y), w.step[0]), phase.oy)
        column = b.add(b.mul(x, w.step[1]), phase.ox)
        tile = Tile([self.n, output, row, column], [1, 2, 3], shape, [1, *w.step], valid)
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
        b = self.b
        acc: SSAValue | None = None
        for tap in phase.taps:
            value = self.pixels(tap, 0, y, x, 1, shape, valid)
            if acc is None:
                acc = value
            else:
                acc = b.op(arith.MaximumfOp if self.window.kind == "max" else arith.AddfOp, acc, value)
        assert acc is not None
        if self.window.kind == "mean":
            acc = b.op(arith.MulfOp, acc, b.const(1.0 / len(phase.taps), acc.type))
        return acc

    def reduce_channels(
        self, phase: Phase, output: Index, y: Index, x: Index, acc: SSAValue, valid: Sequence[int] | None
    ) -> SSAValue:
        """acc + the sum over channels and taps of weight * pixels."""
        shape = acc.type.get_shape()
        per_tap = shape[0] * shape[1] * (shape[2] // self.lanes)
        if not phase.taps:
            return acc
        most = 2 if len(self.window.phases) > MANY_PHASES else 8
        at_once = max(1, min(most, BODY // per_tap, self.window.channels)) if len(phase.taps) == 1 else 1
        for first, count, channels in _cover(self.window.channels, at_once):
            with self.b.loop(first, first + count, channels, carry=[acc]) as c:
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


class _Dense(_Kernel):
    """One output pixel: rows of the weight matrix times the input vector, vectorised along the sum."""

    OUTPUTS = 16

    def build(self) -> tuple[FuncOp, int]:
        w, b = self.window, self.b
        with b.loop(b.lo, b.hi) as block:
            n, group = b.divmod(block.iv, w.groups)
            for first, count, outputs in _cover(w.outputs, self.OUTPUTS):
                with b.loop(first, first + count, outputs) as o:
                    self.rows(n, group, o.iv, outputs)
        return b.finish(), w.batch * w.groups

    def memref(self, value: SSAValue) -> MemRefType:
        """Input [N, groups, K], weights [O, K]: the sum is one contiguous dimension. With one pixel they stay [N, C, 1, 1]
        and [O, K, 1, 1], as the epilogue may read them, too."""
        w = self.window
        length = w.channels * w.in_hw[0] * w.in_hw[1]
        element = storage_type(spec_of(value.type).dtype)
        if value is self.anchor.operands[0] and length > w.channels:
            return MemRefType(element, [w.batch, w.groups, length])
        if value is self.anchor.operands[1] and length > w.channels:
            return MemRefType(element, [w.groups * w.outputs, length])
        return super().memref(value)

    def rows(self, n: Index, group: Index, o: Index, outputs: int) -> None:
        """`outputs` results at once."""
        w, b, lanes = self.window, self.b, self.lanes
        length = w.channels * w.in_hw[0] * w.in_hw[1]
        source, matrix, bias = (self.inputs[v] for v in self.anchor.operands)
        output = b.add(b.mul(group, w.outputs), o)
        shape = (outputs, lanes)

        def step(k: Index, acc: SSAValue, valid: int) -> SSAValue:
            inside = None if valid == lanes else [outputs, valid]
            if length > w.channels:
                weights = b.tile_load(matrix, [output, k], [0, 1], shape, valid=inside)
                pixels = b.tile_load(source, [n, group, k], [2, 2], shape, steps=[0, 1], valid=inside)
            else:
                weights = b.tile_load(matrix, [output, k, 0, 0], [0, 1], shape, valid=inside)
                channel = b.add(b.mul(group, w.channels), k)
                pixels = b.tile_load(source, [n, channel, 0, 0], [1, 1], shape, steps=[0, 1], valid=inside)
            return b.op(FMAOp, weights, pixels, acc, type=acc.type)

        acc = b.broadcast(b.const(0.0, self.element), shape)
        whole = length // lanes * lanes
        if whole:
            with b.loop(0, whole, lanes, carry=[acc]) as k:
                k.yields(step(k.iv, k.args[0], lanes))
            acc = k.results[0]
        if whole < length:
            acc = step(whole, acc, length - whole)
        total = b.reduce("add", acc, [1])
        tile = Tile([n, output, 0, 0], [1], (outputs,), [1], None)
        start = b.tile_load(bias, [output], [0], (outputs,))
        self.finish(tile, b.op(arith.AddfOp, total, start))


def _cover(total: int, size: int) -> list[tuple[int, int, int]]:
    """`total` in steps of `size` and one smaller rest: (first, count, step)."""
    whole = total // size * size
    parts = [(0, whole, size)] if whole else []
    return parts + ([(whole, total - whole, total - whole)] if total > whole else [])


def _pieces(start: int, end: int, size: int) -> list[tuple[int, int]]:
    """[start, end) in pieces of at most `size`: (start, count)."""
    return [(at, min(size, end - at)) for at in range(start, end, size)]
