"""Convolutions on maps whose rows do not fill whole vectors: register tiles that run over several rows at once.

A row of 7 pixels fills less than half of a vector of 16. The staged rows of a map lie behind each other, `pitch`
elements apart, so a vector that begins in one row goes on in the next: out[f] = sum of w[r, q] * in[f + r * pitch + q]
for the flat position f = y * pitch + x. Padding at the end of one row serves as that before the next. What falls
between two rows is computed and dropped: tiles go to a small buffer first, from where an epilogue takes them row by
row. Imports the geometry of windows and the general kernel.
"""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import SSAValue

from lightnet.backends.builder import Index
from lightnet.backends.cpu.registers import MOST_BODY, REGISTERS, cover, even
from lightnet.backends.cpu.window import StagedWindow
from lightnet.backends.cpu.window_kernel import TiledKernel, pieces_of
from lightnet.backends.expressions import TileView
from lightnet.backends.launches import Launch
from lightnet.dataclasses import dataclass
from lightnet.runtime.arrays import align_up

#: Bytes of the staged rows of one block.
MAP_BYTES = 768 << 10


@dataclass(frozen=True)
class _Layout:
    """Numbers of a narrow kernel: output rows of a block (`band`), elements from row to row, vectors of flat positions,
    rows that a plane has room for."""

    band: int
    pitch: int
    vectors: int
    rows: int
    lanes: int
    outputs: int
    itemsize: int
    planes: int

    @property
    def staged_bytes(self) -> int:
        return align_up(self.planes * self.rows * self.pitch * self.itemsize)

    @property
    def workspace_bytes(self) -> int:
        return self.staged_bytes + align_up(self.outputs * self.vectors * self.lanes * self.itemsize)


def narrow_layout_of(window: StagedWindow, width: int) -> _Layout | None:
    """The layout for a window where this kernel takes fewer vectors by a fifteenth, None elsewhere; `width` is the
    target's lanes of f32."""
    w, lanes = window, width * 4 // window.itemsize
    if w.kind != "sum" or w.transposed or len(w.phases) != 1 or not w.staged or w.rows < 2:
        return None
    if w.outputs == 1 or not w.phases[0].taps:  # depthwise: too little to compute for a detour through the buffer
        return None
    pitch = w.cols + w.reach[1] - w.margin
    planes = w.channels * len(w.plane_rows) * len(w.plane_cols)
    fit = MAP_BYTES // (planes * pitch * w.itemsize) - w.reach[0] - 2  # whole vectors reach into further rows
    if fit < 2:
        return None
    bands = -(-w.rows // fit)
    band = -(-w.rows // bands)
    vectors = -(-((band - 1) * pitch + w.cols) // lanes)
    if 15 * vectors * bands > 14 * w.rows * -(-w.cols // lanes):
        return None
    rows = w.reach[0] + max(-(-(vectors * lanes + w.reach[1]) // pitch), band + 1)
    outputs = min(w.outputs, 8 if REGISTERS[width] > 16 else 4)
    return _Layout(band, pitch, vectors, rows, lanes, outputs, w.itemsize, planes)


class NarrowKernel(TiledKernel):
    """Builds the kernel function; a block is a band of rows of one group of one picture, for a piece of its outputs."""

    def build(self) -> Launch:
        w, b = self.window, self.b
        layout = narrow_layout_of(w, self.width)
        assert layout is not None
        self.layout, planes = layout, (w.channels, len(w.plane_rows), len(w.plane_cols))
        self.columns = layout.pitch
        self.staged = b.view(
            self.scratch, 0, MemRefType(self.element, [*planes, layout.rows, layout.pitch]), name="staged"
        )
        self.flat = b.view(
            self.scratch, 0, MemRefType(self.element, [*planes, layout.rows * layout.pitch]), name="flat"
        )
        buffer = MemRefType(self.element, [layout.outputs, layout.vectors * layout.lanes])
        self.buffer = b.view(self.scratch, layout.staged_bytes, buffer, name="buffer")
        bands = -(-w.rows // layout.band)
        grid = w.batch * w.groups * bands
        self.pieces, self.tiles = pieces_of(w, layout.outputs, grid)
        with b.loop(b.lo, b.hi, name="block") as block:
            part, self.piece = b.divmod(block.iv, self.pieces)
            picture, number = b.divmod(part, bands)
            self.n, self.group = b.divmod(picture, w.groups)
            self.y0 = b.mul(number, layout.band)
            rows: Index = layout.band
            if w.rows % layout.band:
                rows = b.op(arith.MinSIOp, b.index(rows), b.op(arith.SubiOp, b.index(w.rows), b.index(self.y0)))
            with self.first_piece(block.iv):
                self.stage(layout.band)
                self.close()
            first = b.mul(self.group, w.outputs)
            self.over_outputs(layout.outputs, lambda o, outputs: self.outputs(b.add(first, o), outputs, rows))
        return self.done(grid * self.pieces)

    def close(self) -> None:
        """The padding behind the last staged row, which stands where a next row would begin."""
        w, b = self.window, self.b
        if not w.margin:
            return
        with b.loop(0, w.channels, name="c") as c:
            for i in range(len(w.plane_rows)):
                for j in range(len(w.plane_cols)):
                    self.fill(c.iv, i, j, self.layout.band + w.reach[0], 0, w.margin, 0.0)

    def outputs(self, output: Index, outputs: int, rows: Index) -> None:
        """All positions of some outputs, then the epilogue on the `rows` rows that exist."""
        b, layout = self.b, self.layout
        for first, count, vectors in even(layout.vectors, max(1, REGISTERS[self.width] // outputs)):
            width = vectors * layout.lanes
            with b.loop(first * layout.lanes, (first + count) * layout.lanes, width, name="at") as at:
                b.tile_store(self.sums(output, outputs, at.iv, width), self.buffer, [0, at.iv], [0, 1])
        with b.loop(0, rows, name="y") as y:
            row = b.add(self.y0, y.iv)
            for x in range(0, self.window.cols, layout.lanes):
                left = min(layout.lanes, self.window.cols - x)
                shape = (outputs, 1, layout.lanes)
                valid = None if left == layout.lanes else [outputs, 1, left]
                place = b.add(b.mul(y.iv, layout.pitch), x)
                value = b.tile_load(self.buffer, [0, place], [0, 1, 1], shape, steps=[1, 0, 1], valid=valid)
                self.finish(TileView([self.n, output, row, x], [1, 2, 3], shape, [1, 1, 1], valid), value)

    def sums(self, output: Index, outputs: int, at: Index, width: int) -> SSAValue:
        """Bias and products of the flat positions from `at` on."""
        w, b, (phase,) = self.window, self.b, self.window.phases
        acc = b.tile_load(self.inputs[self.anchor.operands[2]], [output], [0, 0], (outputs, width), steps=[1, 0])
        per_tap = outputs * (width // self.lanes)
        at_once = max(1, min(8, MOST_BODY // per_tap, w.channels)) if len(phase.taps) == 1 else 1
        for first, count, channels in cover(w.channels, at_once):
            with b.loop(first, first + count, channels, carry=[acc], name="c") as c:
                value = c.args[0]
                for tap in phase.taps:
                    plane = [w.plane_rows.index(tap.py), w.plane_cols.index(tap.px)]
                    place = b.add(at, tap.row * self.layout.pitch + tap.col)
                    pixels = b.tile_load(self.flat, [c.iv, *plane, place], [0, 3], (channels, width))
                    value = b.fma(self.weights(tap, output, c.iv, outputs, channels), pixels, value)
                c.yields(value)
            acc = c.results[0]
        return acc
