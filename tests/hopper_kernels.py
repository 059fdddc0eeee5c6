"""Kernels for sm_90a by hand, for the tests: products of matrices and convolutions by warpgroups, from a ring of stages that one thread fills by
tensor maps. Results are f32. And what to give them: small integers, so that sums are exact, and what they make of these by NumPy in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, MemRefType, ModuleOp, bf16, f16, f32, i64
from xdsl.ir import Attribute, SSAValue

from lightnet.backends.builder import Index
from lightnet.backends.cuda.simt import Simt
from lightnet.dialects.cuda_hopper import Im2colAttr, TiledAttr, accumulator

#: Elements of k of a stage, rows of one product, threads of a warpgroup.
DEPTH, ROWS, WARPGROUP = 64, 64, 128
NUMPY = {f16: np.float16, bf16: ml_dtypes.bfloat16}


@dataclass(frozen=True)
class Tile:
    """What a block computes of C: `products` times 64 rows a warpgroup, `cols` columns (a multiple of 8; with `by_k` of 64), from so many
    stages."""

    cols: int
    products: int = 1
    warpgroups: int = 1
    stages: int = 3
    by_k: bool = False

    @property
    def rows(self) -> int:
        return ROWS * self.products * self.warpgroups

    @property
    def threads(self) -> int:
        return WARPGROUP * self.warpgroups


def tiled(*box: int) -> TiledAttr:
    return TiledAttr(DenseArrayBase.from_list(i64, box))


def im2col(pixels: int, lower: Sequence[int], upper: Sequence[int], strides: Sequence[int]) -> Im2colAttr:
    arrays = (DenseArrayBase.from_list(i64, list(v)) for v in (lower, upper, strides))
    return Im2colAttr(IntegerAttr(pixels, i64), IntegerAttr(DEPTH, i64), *arrays)


#: Begins the copies of one step to a slot: (slot, step).
Fill = Callable[[Index, Index], None]


class Ring:
    """The ring of a block, and the loop over it. `fill_a` and `fill_b` make the copies of A and B for a step: ``(row of the stage, step)``."""

    def __init__(self, b: Simt, tile: Tile, element: Attribute):
        self.b, self.tile = b, tile
        self.a = b.shared([tile.stages * tile.rows, DEPTH], element)
        self.right = b.shared([tile.stages * tile.cols, DEPTH], element)
        self.barriers = b.shared([2 * tile.stages], i64)
        self.bytes = 2 * DEPTH * (tile.rows + tile.cols)
        self.leader = b.cmpi("eq", b.thread_id(), b.index(0))

    def run(self, steps: int, fill: Fill) -> Sequence[SSAValue]:
        """The sums of all steps, one for each product of the thread's warpgroup."""
        b, tile = self.b, self.tile
        with b.when(self.leader):
            for slot in range(tile.stages):
                b.mbarrier_init(self.barriers, slot, 1)
                b.mbarrier_init(self.barriers, tile.stages + slot, 4 * tile.warpgroups)
            b.mbarrier_fence()
        b.barrier()
        with b.when(self.leader):
            for slot in range(min(tile.stages, steps)):
                self.begin(slot, slot, fill)
        zero = b.const(0.0, accumulator(tile.cols))
        with b.loop(0, steps, 1, [zero] * tile.products) as loop:
            phase, slot = b.divmod(loop.iv, tile.stages)
            b.mbarrier_wait(self.barriers, slot, b.divmod(phase, 2)[1])
            sums = b.warpgroup_wait(self.multiply(slot, loop.args), tile.products)
            with b.when(b.cmpi("sgt", loop.iv, b.index(0))):
                self.refill(b.add(loop.iv, -1), steps, fill)
            loop.yields(*sums)
        return b.warpgroup_wait(loop.results)

    def begin(self, slot: Index, step: Index, fill: Fill) -> None:
        self.b.mbarrier_expect(self.barriers, slot, self.bytes)
        fill(slot, step)

    def multiply(self, slot: SSAValue, sums: Sequence[SSAValue]) -> list[SSAValue]:
        b, tile = self.b, self.tile
        own = b.mul(b.divmod(b.warp_id(), 4)[0], ROWS * tile.products)
        row, first = b.add(b.mul(slot, tile.rows), own), b.mul(slot, tile.cols)
        return [
            b.warpgroup_mma(self.a, b.add(row, ROWS * p), self.right, first, c, tile.by_k) for p, c in enumerate(sums)
        ]

    def refill(self, step: SSAValue, steps: int, fill: Fill) -> None:
        """Behind the products of a step: its slot is free, and filled again when all warps have said so."""
        b, stages = self.b, self.tile.stages
        phase, slot = b.divmod(step, stages)
        empty, ahead = b.add(slot, stages), b.add(step, stages)
        with b.when(b.cmpi("eq", b.lane_id(), b.index(0))):
            b.mbarrier_arrive(self.barriers, empty)
        with b.when(b.both(self.leader, b.below(ahead, steps))):
            b.mbarrier_wait(self.barriers, empty, b.divmod(phase, 2)[1])
            self.begin(slot, ahead, fill)

    def store(self, sums: Sequence[SSAValue], write: Callable[[Index, Index, SSAValue], None]) -> None:
        """Each element of a thread's sums: (row of the tile, column, value)."""
        b, tile = self.b, self.tile
        warp, lane = b.warp_id(), b.lane_id()
        group, own = b.divmod(warp, 4)
        g, q = b.divmod(lane, 4)
        first = b.add(b.add(b.mul(group, ROWS * tile.products), b.mul(own, 16)), g)
        for p, total in enumerate(sums):
            for h in range(2):
                row = b.add(first, ROWS * p + 8 * h)
                for j in range(tile.cols // 8):
                    for i in range(2):
                        write(row, b.add(b.mul(q, 2), 8 * j + i), b.extract(total, [j, h, i]))


def _right(b: Simt, ring: Ring, map: TiledAttr, at: Callable[[int], Sequence[Index]], slot: Index) -> None:
    """The copies of B to a slot: one, or by k one for 64 columns; `at` says where column c of the tile is."""
    tile = ring.tile
    for col in range(0, tile.cols, DEPTH if tile.by_k else tile.cols):
        line = b.add(b.mul(slot, tile.cols), col)
        b.tma_load(ring.right, [line, 0], b.args[1], at(col), map, ring.barriers, slot)


def product(m: int, n: int, k: int, element: Attribute, tile: Tile, batch: int = 1) -> tuple[ModuleOp, list[int]]:
    """``C[batch, m, n] = A[batch, m, k] B[batch, n, k]ᵀ`` (`by_k`: ``B[batch, k, n]``), and the grid. k (by_k: and n) are multiples of 8."""
    b_dims = (batch, k, n) if tile.by_k else (batch, n, k)
    types = [MemRefType(element, (batch, m, k)), MemRefType(element, b_dims), MemRefType(f32, (batch, m, n))]
    b = Simt.thread("product", types, (tile.threads, 1, 1))
    ring = Ring(b, tile, element)
    number = b.block_id("z")
    row, col = b.mul(b.block_id("y"), tile.rows), b.mul(b.block_id("x"), tile.cols)

    def fill(slot: Index, step: Index) -> None:
        depth = b.mul(step, DEPTH)
        box, line = tiled(1, tile.rows, DEPTH), b.mul(slot, tile.rows)
        b.tma_load(ring.a, [line, 0], b.args[0], [number, row, depth], box, ring.barriers, slot)
        if tile.by_k:
            _right(b, ring, tiled(1, DEPTH, DEPTH), lambda c: [number, depth, b.add(col, c)], slot)
        else:
            _right(b, ring, tiled(1, tile.cols, DEPTH), lambda c: [number, b.add(col, c), depth], slot)

    def write(i: Index, j: Index, value: SSAValue) -> None:
        at, to = b.add(row, i), b.add(col, j)
        with b.when(b.both(b.below(at, m), b.below(to, n))):
            b.store(value, b.args[2], [number, at, to])

    ring.store(ring.run(-(-k // DEPTH), fill), write)
    return ModuleOp([b.finish()]), [-(-n // tile.cols), -(-m // tile.rows), batch]


@dataclass(frozen=True)
class Conv:
    """A convolution of maps [N, H, W, C] by weights [O, taps, C]; pairs are of rows and columns."""

    maps: tuple[int, int, int, int]
    filters: int
    window: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)

    @property
    def upper(self) -> tuple[int, int]:
        """The last beginning of a window, from the last row and column on."""
        y, x = (p - d * (k - 1) for p, d, k in zip(self.padding, self.dilation, self.window))
        return y, x

    @property
    def out(self) -> tuple[int, int]:
        """Rows and columns of the result."""
        extents = zip(self.maps[1:3], self.padding, self.upper, self.strides)
        y, x = ((n - 1 + u + p) // s + 1 for n, p, u, s in extents)
        return y, x


def convolution(conv: Conv, element: Attribute, tile: Tile) -> tuple[ModuleOp, list[int]]:
    """The result [N, OH, OW, O], and the grid. C is a multiple of 8; a stage is one tap and 64 channels."""
    batch, *_, channels = conv.maps
    (height, width), taps = conv.out, conv.window[0] * conv.window[1]
    types = [
        MemRefType(element, conv.maps),
        MemRefType(element, (conv.filters, taps, channels)),
        MemRefType(f32, (batch * height * width, conv.filters)),
    ]
    b = Simt.thread("conv", types, (tile.threads, 1, 1))
    ring = Ring(b, tile, element)
    row, col = b.mul(b.block_id("y"), tile.rows), b.mul(b.block_id("x"), tile.cols)
    pictures, rest = b.divmod(row, height * width)
    oy, ox = b.divmod(rest, width)
    y, x = (b.add(b.mul(o, s), -p) for o, s, p in zip((oy, ox), conv.strides, conv.padding))
    windows = im2col(tile.rows, [-p for p in conv.padding], conv.upper, conv.strides)
    chunks = -(-channels // DEPTH)

    def fill(slot: Index, step: Index) -> None:
        tap, chunk = b.divmod(step, chunks)
        ky, kx = b.divmod(tap, conv.window[1])
        offsets = [b.mul(ky, conv.dilation[0]), b.mul(kx, conv.dilation[1])]
        line, channel = b.mul(slot, tile.rows), b.mul(chunk, DEPTH)
        b.tma_load(ring.a, [line, 0], b.args[0], [pictures, y, x, channel], windows, ring.barriers, slot, offsets)
        _right(b, ring, tiled(tile.cols, 1, DEPTH), lambda c: [b.add(col, c), tap, channel], slot)

    def write(i: Index, j: Index, value: SSAValue) -> None:
        at, to = b.add(row, i), b.add(col, j)
        with b.when(b.both(b.below(at, types[2].get_shape()[0]), b.below(to, conv.filters))):
            b.store(value, b.args[2], [at, to])

    ring.store(ring.run(taps * chunks, fill), write)
    return ModuleOp([b.finish()]), [-(-conv.filters // tile.cols), -(-batch * height * width // tile.rows), 1]


def copied(type: MemRefType, at: Sequence[int], map: TiledAttr | Im2colAttr, offsets: Sequence[int] = ()) -> ModuleOp:
    """What one copy brings, 64 rows of 64 elements, as f32: a product with the second memref, the unit matrix [64, 64]."""
    element, tile = type.element_type, Tile(64, stages=1)
    b = Simt.thread("copied", [type, MemRefType(element, (64, 64)), MemRefType(f32, (64, 64))], (tile.threads, 1, 1))
    ring = Ring(b, tile, element)

    def fill(slot: Index, step: Index) -> None:
        b.tma_load(ring.a, [0, 0], b.args[0], at, map, ring.barriers, slot, offsets)
        _right(b, ring, tiled(64, 64), lambda c: [0, 0], slot)

    ring.store(ring.run(1, fill), lambda i, j, value: b.store(value, b.args[2], [i, j]))
    return ModuleOp([b.finish()])


# ---- what they are given, and what they give ---------------------------------------------------------------------------

#: Products (batch, m, n, k) with more rows and columns of tiles than the result has, depths that fill no stage, and fewer steps than stages.
PRODUCTS = [
    ((1, 100, 72, 200), f16, Tile(64)),
    ((2, 300, 136, 456), bf16, Tile(128, products=2, warpgroups=2)),
    ((2, 200, 200, 264), f16, Tile(128, warpgroups=2, by_k=True)),
    ((1, 64, 256, 64), f16, Tile(256, stages=4)),
    ((1, 129, 50, 1024), f16, Tile(24, products=2, stages=2)),
]
CONVS = [
    (Conv((2, 9, 8, 64), 40, (3, 3), padding=(1, 1)), f16, Tile(64)),
    (Conv((3, 13, 11, 80), 24, (3, 2), (2, 1), (2, 1), (1, 2)), f16, Tile(24, warpgroups=2)),
    (Conv((1, 16, 16, 8), 136, (7, 7), (2, 2), (3, 3)), bf16, Tile(128, products=2, stages=4)),
]


def integers(type: Attribute, *shape: int) -> np.ndarray:
    """Integers of -8 to 8."""
    return np.random.default_rng(shape).integers(-8, 9, shape).astype(NUMPY[type])


def product_data(sizes: Sequence[int], type: Attribute, tile: Tile) -> tuple[list[np.ndarray], np.ndarray]:
    """A and B of a product, and C."""
    batch, m, n, k = sizes
    a, b = integers(type, batch, m, k), integers(type, batch, *((k, n) if tile.by_k else (n, k)))
    right = b.astype(np.float64) if tile.by_k else b.astype(np.float64).transpose(0, 2, 1)
    return [a, b], a.astype(np.float64) @ right


def conv_data(conv: Conv, type: Attribute) -> tuple[list[np.ndarray], np.ndarray]:
    """The maps and weights of a convolution, and the result [N, OH, OW, O]."""
    taps = conv.window[0] * conv.window[1]
    x, w = integers(type, *conv.maps), integers(type, conv.filters, taps, conv.maps[3])
    (oh, ow), (py, px), (sy, sx) = conv.out, conv.padding, conv.strides
    padded = np.pad(x.astype(np.float64), ((0, 0), (py, py), (px, px), (0, 0)))
    result = np.zeros((conv.maps[0], oh, ow, conv.filters))
    for tap in range(taps):
        y0, x0 = (t * d for t, d in zip(divmod(tap, conv.window[1]), conv.dilation))
        windows = padded[:, y0 : y0 + sy * (oh - 1) + 1 : sy, x0 : x0 + sx * (ow - 1) + 1 : sx]
        result += windows @ w[:, tap].astype(np.float64).T
    return [x, w], result
