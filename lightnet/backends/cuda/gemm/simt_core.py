"""Stages multiplied on the ordinary cores, exactly in f32: a tile of C in each thread's registers.

A thread has some rows of the tile and groups of four columns. It reads four k at a time, as one vector of 16 bytes a
row, so that each load feeds many multiply-adds. Lanes of a warp are 4 x 8 of rows and columns where the tile allows it.
Imports the core's interface and the builder.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import f32
from xdsl.ir import Attribute, SSAValue

from lightnet.backends.builder import Index
from lightnet.backends.cuda.gemm.core import Fragment, ProductTile
from lightnet.backends.cuda.gemm.ring import RingCore
from lightnet.backends.cuda.simt import Simt
from lightnet.diagnostics import LightNetError
from lightnet.dialects.cuda_checks import MAX_BLOCK_THREADS, WARP

#: Elements of a vector of 16 bytes: k of a step, columns of a group.
VECTOR = 4
#: Rows and columns that lanes of a warp have between them, where there are so many threads.
LANES = (4, 8)
#: Rows and columns of a thread, at most: 64 sums, and room for factors and addresses without spills.
MOST = 8
#: k of a stage that are one piece of code.
UNROLLED = 16
#: Threads of a block from which on they need not be more: a smaller tile a thread would only read more.
ENOUGH = 128


def across_of(rows: int, cols: int) -> tuple[int, int]:
    """Threads along rows and columns of a tile: tiles of 8 x 8 a thread, smaller ones where the block would have few
    threads."""
    r, c = min(rows, MOST), min(cols, MOST)
    while rows * cols < ENOUGH * r * c and max(r, c) > VECTOR:
        r, c = (r, c // 2) if c > VECTOR else (r // 2, c)
    return rows // r, cols // c


class SimtCore(RingCore):
    """Threads multiply, each a tile of its own. A lies by rows, B by columns or by k.

    Raises `LightNetError` (``cuda.simt``) for a tile that threads cannot share: each has as many rows as any other, a
    multiple of four columns, and they are whole warps.
    """

    def __init__(self, tile: ProductTile, element: Attribute, by_k: bool = False):
        super().__init__(tile, element, by_k)
        down, along = tile.across
        groups, rest = divmod(tile.cols, VECTOR * max(along, 1))
        if (
            element != f32
            or min(down, along) < 1
            or rest
            or tile.rows % down
            or tile.depth % (UNROLLED if tile.depth > UNROLLED else VECTOR)
            or self.threads % WARP
            or self.threads > MAX_BLOCK_THREADS
        ):
            raise LightNetError(
                f"a tile of {tile.rows} x {tile.cols}, {tile.depth} deep, of {element} for {down} x {along} threads: "
                "each has rows and a "
                f"multiple of {VECTOR} columns of f32, {VECTOR} deep, and {WARP} are a warp",
                label="cuda.simt",
            )
        self._rows, self._groups = tile.rows // down, groups

    @property
    def threads(self) -> int:
        return self.tile.across[0] * self.tile.across[1]

    @property
    def b_pitch(self) -> int:
        return self.tile.cols if self.by_k else super().b_pitch

    def column(self, b: Simt, first: Index, offset: int, count: int) -> SSAValue:
        """Neighbouring threads have neighbouring lines, and each has neighbouring columns: line t of a quarter of a
        group's lines is the first column of thread t."""
        along = self.tile.across[1]
        if offset % along + count <= along:  # lines of one quarter
            quarter, thread = b.index(offset // along), b.add(first, offset % along)
        else:
            quarter, thread = b.divmod(b.add(first, offset), along)
        group, number = b.divmod(quarter, VECTOR)
        return b.add(b.add(b.mul(group, VECTOR * along), b.mul(thread, VECTOR)), number)

    def begin(self, b: Simt) -> list[SSAValue]:
        zero = b.broadcast(b.const(0.0, f32), (self._rows, VECTOR))
        return [zero] * self._groups

    def step(self, b: Simt, a: SSAValue, right: SSAValue, slot: Index, sums: Sequence[SSAValue]) -> list[SSAValue]:
        """A deep stage is a loop: registers for what is loaded ahead do not last for all of it."""
        if self.tile.depth <= UNROLLED:
            return self._products(b, a, right, slot, 0, self.tile.depth, sums)
        with b.loop(0, self.tile.depth, UNROLLED, list(sums), name="k") as k:
            k.yields(*self._products(b, a, right, slot, k.iv, UNROLLED, k.args))
        return list(k.results)

    def _products(self, b: Simt, a: SSAValue, right: SSAValue, slot: Index, start: Index, depth: int,
                  sums: Sequence[SSAValue]) -> list[SSAValue]:  # fmt: skip
        (row, col), (down, along), sums = self._place(b), self.tile.across, list(sums)
        first = b.add(b.mul(slot, self.tile.rows), row)
        for n in range(0, depth, VECTOR):
            k = b.add(start, n)
            left = b.tile_load(a, [first, k], [0, 1], (self._rows, VECTOR), steps=[down, 1])
            for g in range(self._groups):
                if self.by_k:
                    at = [b.add(b.mul(slot, self.tile.depth), k), b.add(b.mul(col, VECTOR), g * VECTOR * along)]
                    top = b.tile_load(right, at, [0, 1], (VECTOR, VECTOR))
                else:
                    at = [b.add(b.add(b.mul(slot, self.tile.cols), g * VECTOR * along), col), k]
                    top = b.tile_load(right, at, [1, 0], (VECTOR, VECTOR), steps=[1, along])
                sums[g] = b.fma(left, top, sums[g])
        return sums

    def finished(self, b: Simt, sums: Sequence[SSAValue]) -> list[Fragment]:
        (row, col), (down, along) = self._place(b), self.tile.across
        first = b.mul(col, VECTOR)
        return [Fragment(value, row, b.add(first, g * VECTOR * along), down) for g, value in enumerate(sums)]

    def _place(self, b: Simt) -> tuple[SSAValue, SSAValue]:
        """The thread's first row, and its number along the columns."""
        (down, along), (high, wide) = self.tile.across, LANES
        if down % high or along % wide:
            return b.divmod(b.thread_id(), along)
        warp_row, warp_col = b.divmod(b.warp_id(), along // wide)
        row, col = b.divmod(b.lane_id(), wide)
        return b.add(b.mul(warp_row, high), row), b.add(b.mul(warp_col, wide), col)
