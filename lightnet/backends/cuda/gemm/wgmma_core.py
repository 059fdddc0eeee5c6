"""Stages that the copy engine brings (TMA), multiplied by warpgroups (`wgmma`): the tensor cores of sm_90a at their
full rate.

A warpgroup has 64 or 128 rows of the tile and all its columns. One thread of the block asks for stages; a pair of
mbarriers for each place of the ring says that a stage has come, and that all warps have read it. The products of a
stage are under way while those of the one before are waited for, whose place is filled again then. Of a convolution a
stage is one tap of the window and 64 channels, which the copy engine collects by itself (im2col). Imports the core's
interface, the builder and the ops of sm_90a.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from xdsl.dialects import vector
from xdsl.dialects.builtin import (
    BFloat16Type,
    DenseArrayBase,
    Float16Type,
    IntegerAttr,
    VectorType,
    f32,
    i64,
)
from xdsl.ir import Attribute, SSAValue

from lightnet.backends.builder import Index
from lightnet.backends.cuda.base import MAP
from lightnet.backends.cuda.gemm.core import Core, Fragment, ProductTile, TileBlock
from lightnet.backends.cuda.gemm.exchange import PAIR, QUAD, exchanged
from lightnet.backends.cuda.gemm.problem import GemmProblem, Kind
from lightnet.backends.cuda.simt import Simt
from lightnet.diagnostics import LightNetError
from lightnet.dialects.cuda_checks import WARP
from lightnet.dialects.cuda_hopper import Im2colAttr, TiledAttr, accumulator
from lightnet.dialects.cuda_stages import MOST_COLS, PANEL, WARPGROUP, WARPGROUP_ROWS
from lightnet.runtime.cuda.tensor_map import CORNERS, MAP_PIECE, MOST_OFFSET, MOST_STRIDE, SWIZZLED_ROW

#: Sums of a thread at most.
MOST_SUMS = 128


def reaches(p: GemmProblem) -> bool:
    """Return whether the copy engine can bring the factors of a product, and nothing else reads them."""
    pitches = (p.depth, p.cols) if p.by_k else (p.channels if p.is_map else p.depth,)
    if p.groups > 1 or any(n * p.dtype.size % MAP_PIECE for n in pitches):
        return False
    if any(v in (p.a, p.b) for op in p.epilogue for v in op.operands):
        return False
    if not p.is_map or p.is_pointwise:
        return True
    least, most = CORNERS
    begins = all(least <= n <= most for corner in _corners(p) for n in corner)
    reach = max(axis.extent for axis in (p.window.rows, p.window.cols)) - 1
    return begins and reach <= MOST_OFFSET and max(p.window.stride) <= MOST_STRIDE


def _corners(p: GemmProblem) -> tuple[tuple[int, int], tuple[int, int]]:
    """The corners where the first window begins, and the last one, counted from the last row and column of the
    picture.
    """
    axes = p.window.rows, p.window.cols
    lower = (-axes[0].before, -axes[1].before)
    last = [(axis.positions - 1) * axis.stride - axis.before for axis in axes]
    return lower, (last[0] - axes[0].size + 1, last[1] - axes[1].size + 1)


class _Ring(NamedTuple):
    """The shared memory of a block: rows of A and of B for each stage, and its mbarriers: those of stages that have
    come, then of places that are free."""

    a: SSAValue
    b: SSAValue
    barriers: SSAValue


class WgmmaCore(Core):
    """Warpgroups multiply stages of 64 elements of f16 or bf16. B lies by columns ([cols, depth]) or by k.

    Raises `LightNetError` (``cuda.wgmma``) for another type, and a tile that warpgroups cannot share.
    """

    def __init__(self, tile: ProductTile, element: Attribute, by_k: bool = False):
        super().__init__(tile, element, by_k)
        groups, along = tile.across
        if not isinstance(element, Float16Type | BFloat16Type):
            raise LightNetError(f"warpgroups multiply f16 and bf16, not {element}", label="cuda.wgmma")
        if (
            groups < 1
            or along != 1
            or tile.depth != PANEL
            or tile.rows % (WARPGROUP_ROWS * groups)
            or tile.cols % (PANEL if by_k else 8)
            or not 8 <= tile.cols <= MOST_COLS
            or tile.rows * tile.cols > MOST_SUMS * self.threads
        ):
            raise LightNetError(
                f"a tile of {tile.rows} x {tile.cols}, {tile.depth} deep, for {groups} x {along} warpgroups: each has "
                f"multiples of {WARPGROUP_ROWS} rows and of "
                f"{PANEL if by_k else 8} columns, up to {MOST_COLS}, {PANEL} deep, and a thread {MOST_SUMS} sums at "
                "most",
                label="cuda.wgmma",
            )
        self._rows = tile.rows // groups

    @property
    def threads(self) -> int:
        return WARPGROUP * self.tile.across[0]

    @property
    def _stage_bytes(self) -> int:
        """Bytes of a stage, which come whatever of them is inside of the tensors."""
        return (self.tile.rows + self.tile.cols) * SWIZZLED_ROW

    @property
    def shared_bytes(self) -> int:
        return self.tile.stages * (self._stage_bytes + 2 * 8)  # with two mbarriers each

    def stages(self, p: GemmProblem) -> int:
        """Taps of the window, for each its channels in pieces of a panel."""
        if not p.is_map:
            return super().stages(p)
        kh, kw = p.window.taps
        return kh * kw * -(-p.channels // PANEL)

    def copies(self, p: GemmProblem) -> float:
        return 0.0

    def shape(self, p: GemmProblem, value: SSAValue) -> tuple[int, ...]:
        """A map as [N, H, W, channels], weights as [outputs, taps, channels]."""
        if p.is_map and value is p.a and not p.is_pointwise:
            return MAP.physical_dims(p.anchor.operand_specs[0].dims)
        if p.is_map and value is p.b:
            kh, kw = p.window.taps
            return (p.cols, kh * kw, p.channels)
        return p.shape(value)

    # ---- the loop over stages ----------------------------------------------------------------------------------------

    def fragments(self, block: TileBlock) -> list[Fragment]:
        b, tile, p = block.b, self.tile, block.p
        ring = _Ring(
            b.shared([tile.stages * tile.rows, PANEL], self.element),
            b.shared([tile.stages * tile.cols, PANEL], self.element),
            b.shared([2 * tile.stages], i64),
        )
        leads = b.cmpi("eq", b.thread_id(), b.index(0))
        count = self._count(block)
        with b.when(leads):
            for n in range(tile.stages):
                b.mbarrier_init(ring.barriers, n, 1)
                b.mbarrier_init(ring.barriers, tile.stages + n, self.threads // WARP)
            b.mbarrier_fence()
        b.barrier()
        fill = self._filling(block, ring)
        with b.when(leads), b.loop(0, b.least(count, tile.stages), name="ahead") as ahead:
            fill(ahead.iv, ahead.iv)
            ahead.yields()
        warpgroup = b.divmod(b.warp_id(), WARPGROUP // WARP)[0]
        row = b.mul(warpgroup, self._rows)
        products = self._rows // WARPGROUP_ROWS
        zero = b.const(0.0, accumulator(tile.cols))
        with b.loop(0, count, 1, [zero] * products) as loop:
            turn, slot = b.divmod(loop.iv, tile.stages)
            b.mbarrier_wait(ring.barriers, slot, b.divmod(turn, 2)[1])
            sums = []
            for i, total in enumerate(loop.args):
                at = b.add(b.add(b.mul(slot, tile.rows), row), WARPGROUP_ROWS * i)
                sums.append(b.warpgroup_mma(ring.a, at, ring.b, b.mul(slot, tile.cols), total, p.by_k))
            waited = b.warpgroup_wait(sums, products)
            with b.when(b.cmpi("sgt", loop.iv, b.index(0))):
                self._refill(block, ring, leads, b.add(loop.iv, -1), count, fill)
            loop.yields(*waited)
        return self._finished(b, p, row, b.warpgroup_wait(loop.results, 0))

    def _count(self, block: TileBlock) -> Index:
        """The stages of a block that are there."""
        b, total = block.b, self.stages(block.p)
        if total % block.steps == 0:
            return block.steps
        left = b.add(b.mul(block.first, -1), total)
        return b.least(b.select(b.cmpi("sgt", left, b.index(0)), left, b.index(0)), block.steps)

    def _refill(
        self, block: TileBlock, ring: _Ring, leads: SSAValue, step: SSAValue, count: Index,
        fill: Callable[[Index, Index], None]
    ) -> None:  # fmt: skip
        """Behind the products of a step: give its place back, and, where all warps have, ask for the stage that comes
        there next."""
        b, stages = block.b, self.tile.stages
        turn, slot = b.divmod(step, stages)
        free, ahead = b.add(slot, stages), b.add(step, stages)
        with b.when(b.cmpi("eq", b.lane_id(), b.index(0))):
            b.mbarrier_arrive(ring.barriers, free)
        with b.when(b.both(leads, b.below(ahead, count))):
            b.mbarrier_wait(ring.barriers, free, b.divmod(turn, 2)[1])
            fill(slot, ahead)

    def _filling(self, block: TileBlock, ring: _Ring) -> Callable[[Index, Index], None]:
        """The function that asks for stage number `step` of the block, in place `slot`."""
        b, tile = block.b, self.tile
        load_a, load_b = self._loading_a(block, ring), self._loading_b(block, ring)

        def fill(slot: Index, step: Index) -> None:
            b.mbarrier_expect(ring.barriers, slot, self._stage_bytes)
            stage = b.add(block.first, step)
            load_a(b.mul(slot, tile.rows), slot, stage)
            load_b(b.mul(slot, tile.cols), slot, stage)

        return fill

    def _loading_a(self, block: TileBlock, ring: _Ring) -> Callable[[Index, Index, Index], None]:
        b, p, at, rows = block.b, block.p, block.corner, self.tile.rows
        memory = block.f.inputs[p.a]
        if p.is_map and not p.is_pointwise:
            return self._windows(block, ring)
        matrix, box = 0 if p.is_map else block.matrix(0), _tiled(1, rows, PANEL)

        def load(row: Index, slot: Index, stage: Index) -> None:
            where = [matrix, at.row, b.mul(stage, PANEL)]
            b.tma_load(ring.a, [row, 0], memory, where, box, ring.barriers, slot)

        return load

    def _windows(self, block: TileBlock, ring: _Ring) -> Callable[[Index, Index, Index], None]:
        """The windows of a tile's pixels, one tap of each."""
        b, p, memory = block.b, block.p, block.f.inputs[block.p.a]
        (oh, ow), (sh, sw), (dh, dw), (_, kw) = p.window.positions, p.window.stride, p.window.dilation, p.window.taps
        lower, upper = _corners(p)
        windows = Im2colAttr(
            IntegerAttr(self.tile.rows, i64), IntegerAttr(PANEL, i64), *map(_sizes, (lower, upper, p.window.stride))
        )
        n, rest = b.divmod(block.corner.row, oh * ow)
        y, x = b.divmod(rest, ow)
        first = [n, b.add(b.mul(y, sh), lower[0]), b.add(b.mul(x, sw), lower[1])]

        def load(row: Index, slot: Index, stage: Index) -> None:
            tap, piece = b.divmod(stage, -(-p.channels // PANEL))
            dy, dx = b.divmod(tap, kw)
            where, offsets = [*first, b.mul(piece, PANEL)], [b.mul(dy, dh), b.mul(dx, dw)]
            b.tma_load(ring.a, [row, 0], memory, where, windows, ring.barriers, slot, offsets)

        return load

    def _loading_b(self, block: TileBlock, ring: _Ring) -> Callable[[Index, Index, Index], None]:
        b, p, at, cols = block.b, block.p, block.corner, self.tile.cols
        memory = block.f.inputs[p.b]
        if p.kind is Kind.MATMUL:
            matrix, box = block.matrix(1), _tiled(1, PANEL, PANEL)

            def load_panels(row: Index, slot: Index, stage: Index) -> None:
                for panel in range(0, cols, PANEL):
                    where = [matrix, b.mul(stage, PANEL), b.add(at.col, panel)]
                    b.tma_load(ring.b, [b.add(row, panel), 0], memory, where, box, ring.barriers, slot)

            return load_panels
        columns = _tiled(cols, 1, PANEL) if p.is_map else _tiled(1, cols, PANEL)

        def load(row: Index, slot: Index, stage: Index) -> None:
            tap, piece = b.divmod(stage, -(-p.channels // PANEL)) if p.is_map else (0, stage)
            k = b.mul(piece, PANEL)
            where = [at.col, tap, k] if p.is_map else [0, at.col, k]
            b.tma_load(ring.b, [row, 0], memory, where, columns, ring.barriers, slot)

        return load

    # ---- the sums ----------------------------------------------------------------------------------------------------

    def _finished(self, b: Simt, p: GemmProblem, row: Index, sums: Sequence[SSAValue]) -> list[Fragment]:
        """The fragments that a thread has of its warpgroup's rows. Lanes of a quad have two columns of every eight;
        they exchange them, so that each has four or eight that are next to each other in memory, where results may be
        written so.
        """
        warp = b.divmod(b.warp_id(), WARPGROUP // WARP)[1]
        group, inner = b.divmod(b.lane_id(), QUAD)
        first = b.add(b.add(row, b.mul(warp, 16)), group)
        wide = next(
            n
            for n in (4, 2, 1)
            if n == 1 or (self.tile.cols % (8 * n) == p.pitch % (PAIR * n) == p.written % (PAIR * n) == 0)
        )
        found = []
        for i, total in enumerate(sums):
            for j in range(0, self.tile.cols // 8, wide):
                parts = [b.get(vector.ExtractOp(total, [j + n], VectorType(f32, [2, 2]))) for n in range(wide)]
                own, col, value = exchanged(b, inner, parts)
                at = b.add(b.mul(own, 8), b.add(col, 8 * j))
                found.append(Fragment(value, b.add(first, WARPGROUP_ROWS * i), at, 8))
        return found


def _tiled(*box: int) -> TiledAttr:
    return TiledAttr(_sizes(box))


def _sizes(values: Sequence[int]) -> DenseArrayBase:
    return DenseArrayBase.from_list(i64, list(values))
