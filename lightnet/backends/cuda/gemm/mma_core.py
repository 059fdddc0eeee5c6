"""Stages multiplied on the tensor cores: `ldmatrix` and `mma`, by warps that have a part of the tile each.

Factors are f16 or bf16 (m16n8k16), or f32 in memory that is rounded to tf32 on its way (m16n8k8); sums are f32. Which
lane has which element is that of PTX ISA, "Matrix Fragments for mma.m16n8k16" and "mma.m16n8k8". Imports the core's
interface, the builder and the ops for matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from xdsl.dialects import vector
from xdsl.dialects.builtin import FixedBitwidthType, Float32Type, VectorType, f32
from xdsl.ir import Attribute, SSAValue

from lightnet.backends.builder import Index
from lightnet.backends.cuda.gemm.core import Fragment, ProductTile
from lightnet.backends.cuda.gemm.ring import RingCore
from lightnet.backends.cuda.simt import Simt
from lightnet.diagnostics import LightNetError
from lightnet.dialects.cuda_checks import WARP
from lightnet.dialects.cuda_matrix import SHAPES, LdmatrixOp, MmaOp, RoundTf32Op

#: Rows and columns of C that one `mma` adds to.
MMA_ROWS, MMA_COLS = 16, 8
#: f32 that lie next to each other and are loaded at once, where B lies by k and `ldmatrix` cannot transpose it.
WIDEST = 4
_SUM = VectorType(f32, [2, 2])

#: Tiles of C that are worth having, by the bytes that their multiply-adds take from memory: large and square, down to
#: what fills a device where C is small, and for few rows or columns.
_TILES = (
    (256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64), (128, 32), (32, 128), (64, 32), (32, 64),
    (32, 32),
    (128, 16), (64, 16), (16, 128), (16, 64), (16, 32),
)  # fmt: skip
#: Bytes of k in a stage.
_STAGES = (128, 64)
#: Sums of a thread at most: with as many registers for factors and addresses a thread has 255 at most.
_MOST_SUMS = 128
#: Products of fragments that a warp has to do for the factors it loads, and sums that a thread should have, at least.
_LEAST_PRODUCTS, _LEAST_SUMS = 2, 32


def product_tiles(element: Attribute) -> list[tuple[int, int, int]]:
    """The tiles, [rows, columns, depth], that a model may choose from, for factors of f16, bf16 or f32, larger ones
    first; none for any other type."""
    if type(element) not in SHAPES:
        return []
    assert isinstance(element, FixedBitwidthType)
    return [(rows, cols, bytes // element.size) for rows, cols in _TILES for bytes in _STAGES]


def warps_across(rows: int, cols: int) -> tuple[int, int]:
    """Warps along rows and columns of a tile: eight where threads have sums enough, else four, or two where there is no
    more to do, each with whole fragments, so that each reads the fewest rows and columns."""
    if (rows, cols) not in _TILES:
        return 1, 1
    products = rows * cols // (MMA_ROWS * MMA_COLS)
    warps = 8 if rows * cols >= 8 * WARP * _LEAST_SUMS else 4 if products >= 4 * _LEAST_PRODUCTS else 2
    ways = [(m, warps // m) for m in (1, 2, 4, 8) if warps % m == 0]
    whole = [(m, n) for m, n in ways if rows % (MMA_ROWS * m) == cols % (MMA_COLS * n) == 0]
    return min(whole, key=lambda way: rows // way[0] + cols // way[1])


class _Warp(NamedTuple):
    """The place of a thread: its lane, and the first row and column of its warp's part of the tile."""

    lane: SSAValue
    row: SSAValue
    col: SSAValue


class MmaCore(RingCore):
    """Warps multiply on the tensor cores. A lies by rows, B by columns ([cols, depth]) or by k ([depth, cols]).

    Factors come from shared memory by `ldmatrix`, which transposes a B by k of 16-bit elements as it reads it. f32 it
    cannot transpose: there, each thread loads up to four neighbours of a row of B, and takes them for columns of as
    many products. Which column of C is which column of a product is free, as long as `finished` knows: products take
    turns, so that a thread has four neighbours of a row of C where it would have two. B by columns is put in that order
    when it is copied (`column`).

    Raises `LightNetError` (``cuda.mma``) for a type that tensor cores do not have, and a tile whose warps have no whole
    fragments, or too many.
    """

    def __init__(self, tile: ProductTile, element: Attribute, by_k: bool = False):
        super().__init__(tile, element, by_k)
        if type(element) not in SHAPES:
            raise LightNetError(f"tensor cores multiply f16, bf16 and f32, not {element}", label="cuda.mma")
        assert isinstance(element, FixedBitwidthType)
        self._tf32 = isinstance(element, Float32Type)
        self._k = SHAPES[type(element)][2]
        down, along = tile.across
        if (
            min(down, along) < 1
            or tile.rows % (MMA_ROWS * down)
            or tile.cols % (MMA_COLS * along)
            or tile.depth % self._k
        ):
            raise LightNetError(
                f"a tile of {tile.rows} x {tile.cols}, {tile.depth} deep, for {down} x {along} warps: each has whole "
                "fragments of "
                f"{MMA_ROWS} x {MMA_COLS}, {self._k} deep",
                label="cuda.mma",
            )
        if tile.rows * tile.cols > _MOST_SUMS * self.threads:
            raise LightNetError(
                f"a tile of {tile.rows} x {tile.cols} for {down} x {along} warps: a thread has {_MOST_SUMS} sums at "
                "most, which are registers "
                "and code",
                label="cuda.mma",
            )
        self._rows, self._cols = tile.rows // down, tile.cols // along
        most = 2 if not by_k else WIDEST if self._tf32 else 1
        #: Products whose columns take turns: column g of product m is column `wide` · g + m of theirs.
        self._wide = next(w for w in (4, 2, 1) if w <= most and self._cols % (MMA_COLS * w) == 0)

    @property
    def threads(self) -> int:
        return WARP * self.tile.across[0] * self.tile.across[1]

    @property
    def b_pitch(self) -> int:
        if not self.by_k or not self._tf32:
            return super().b_pitch
        # Lanes 4g + k load at row k, column wide · g. With a pitch of 8 banks more than a multiple of 16 the four rows
        # of the lanes that are served together (8 at 16 bytes, 16 at 8 bytes, 32 at 4 bytes) lie in the four quarters
        # of the banks.
        return -(-(self.tile.cols - 8) // 16) * 16 + 8

    def column(self, b: Simt, first: Index, offset: int, count: int) -> SSAValue:
        """Line 8m + g of as many as take turns is column g of product m: eight lines in a row are one matrix of
        `ldmatrix`."""
        group, rest = b.divmod(b.add(first, offset), MMA_COLS * self._wide)
        number, own = b.divmod(rest, MMA_COLS)
        return b.add(b.add(b.mul(group, MMA_COLS * self._wide), b.mul(own, self._wide)), number)

    def begin(self, b: Simt) -> list[SSAValue]:
        count = (self._rows // MMA_ROWS) * (self._cols // MMA_COLS)
        return [b.const(0.0, _SUM)] * count

    def step(self, b: Simt, a: SSAValue, right: SSAValue, slot: Index, sums: Sequence[SSAValue]) -> list[SSAValue]:
        """The fragments of the next k are loaded before the products of this one, which hide how long that takes."""
        warp, sums = self._warp(b), list(sums)
        rows, cols = self._rows // MMA_ROWS, self._cols // MMA_COLS

        def load(k: int) -> tuple[list[SSAValue], list[SSAValue]]:
            return self._load_a(b, a, warp, slot, k), self._load_b(b, right, warp, slot, k)

        ahead = load(0)
        for k in range(self._k, self.tile.depth + self._k, self._k):
            left, top = ahead
            if k < self.tile.depth:
                ahead = load(k)
            for i in range(rows):
                for j in range(cols):
                    sums[i * cols + j] = b.get(MmaOp(left[i], top[j], sums[i * cols + j]))
        return sums

    def finished(self, b: Simt, sums: Sequence[SSAValue]) -> list[Fragment]:
        warp = self._warp(b)
        group, inner = b.divmod(warp.lane, 4)
        cols, wide = self._cols // MMA_COLS, self._wide
        row, col = b.add(warp.row, group), b.add(warp.col, b.mul(inner, 2 * wide))
        return [
            Fragment(value, b.add(row, MMA_ROWS * i), b.add(col, MMA_COLS * j + first), 8)
            for i in range(self._rows // MMA_ROWS)
            for j in range(0, cols, wide)
            for first, value in _interleaved(b, sums[i * cols + j : i * cols + j + wide])
        ]

    def _warp(self, b: Simt) -> _Warp:
        down, along = b.divmod(b.warp_id(), self.tile.across[1])
        return _Warp(b.lane_id(), b.mul(down, self._rows), b.mul(along, self._cols))

    # ---- factors -------------------------------------------------------------------------------------------------

    def _load_a(self, b: Simt, a: SSAValue, warp: _Warp, slot: Index, k: int) -> list[SSAValue]:
        """The fragments of A from k on, one for 16 rows: the upper and lower eight rows of the first half of k, then of
        the second."""
        half, row = b.divmod(warp.lane, MMA_ROWS)
        first = b.add(b.add(b.mul(slot, self.tile.rows), warp.row), row)
        col = b.add(b.mul(half, self.chunk), k)
        loaded = [b.get(LdmatrixOp(a, [b.add(first, MMA_ROWS * i), col], 4)) for i in range(self._rows // MMA_ROWS)]
        return [self._rounded(b, v) for v in loaded]

    def _load_b(self, b: Simt, right: SSAValue, warp: _Warp, slot: Index, k: int) -> list[SSAValue]:
        """The fragments of B from k on, one for 8 columns."""
        if self.by_k and self._tf32:
            return self._load_rows(b, right, warp, slot, k)
        found = []
        count = self._cols // MMA_COLS
        for j in range(0, count, 2):
            tiles = 4 if j + 1 < count else 2
            at = self._place(b, warp, slot, k, j, tiles)
            loaded = b.get(LdmatrixOp(right, [*map(b.index, at)], tiles, trans=self.by_k))
            found += [registers(b, loaded, first, 2) for first in range(0, tiles, 2)]
        return [self._rounded(b, v) for v in found]

    def _place(self, b: Simt, warp: _Warp, slot: Index, k: int, j: int, tiles: int) -> tuple[SSAValue, SSAValue]:
        """The row that this lane names for `ldmatrix`: eight lanes for both halves of k of one fragment, then those of
        the next."""
        lane = warp.lane if tiles == 4 else b.divmod(warp.lane, 16)[1]  # the other lanes name rows that are there, too
        fragment, rest = b.divmod(lane, 16)
        col = b.add(b.add(warp.col, MMA_COLS * j), b.mul(fragment, MMA_COLS))
        if self.by_k:
            return b.add(b.add(b.mul(slot, self.tile.depth), k), rest), col
        half, row = b.divmod(rest, 8)
        return b.add(b.add(b.mul(slot, self.tile.cols), col), row), b.add(b.mul(half, self.chunk), k)

    def _load_rows(self, b: Simt, right: SSAValue, warp: _Warp, slot: Index, k: int) -> list[SSAValue]:
        """Fragments of B by k of f32: lane 4g + i loads neighbours from column wide · g on of the rows i and i + 4;
        they are column g of `wide` fragments."""
        group, inner = b.divmod(warp.lane, 4)
        row = b.add(b.add(b.mul(slot, self.tile.depth), k), inner)
        first = b.add(warp.col, b.mul(group, self._wide))
        found = []
        for j in range(0, self._cols // MMA_COLS, self._wide):
            col = b.add(first, MMA_COLS * j)
            halves = [b.tile_load(right, [b.add(row, 4 * h), col], [1], [self._wide]) for h in range(2)]
            for n in range(self._wide):
                found.append(_fragment(b, [self._round(b, b.extract(half, [n])) for half in halves]))
        return found

    def _rounded(self, b: Simt, fragment: SSAValue) -> SSAValue:
        """A fragment as `mma` takes it: of f32, rounded to tf32."""
        if not self._tf32:
            return fragment
        assert isinstance(fragment.type, VectorType)
        count = fragment.type.get_shape()[0]
        return _fragment(b, [self._round(b, b.extract(fragment, [i, 0])) for i in range(count)])

    def _round(self, b: Simt, value: SSAValue) -> SSAValue:
        return b.get(RoundTf32Op(value))


def _fragment(b: Simt, values: Sequence[SSAValue]) -> SSAValue:
    """Registers of one f32 each as a fragment."""
    made = b.const(0.0, VectorType(f32, [len(values), 1]))
    for i, value in enumerate(values):
        made = b.get(vector.InsertOp(value, made, [i, 0]))
    return made


def registers(b: Simt, fragment: SSAValue, first: int, count: int) -> SSAValue:
    """Some registers of a fragment."""
    type = fragment.type
    assert isinstance(type, VectorType)
    total, each = type.get_shape()
    if count == total:
        return fragment
    made = b.const(0.0, VectorType(type.element_type, [count, each]))
    row = VectorType(type.element_type, [each])
    for i in range(count):
        made = b.get(vector.InsertOp(b.get(vector.ExtractOp(fragment, [first + i], row)), made, [i]))
    return made


def _interleaved(b: Simt, sums: Sequence[SSAValue]) -> list[tuple[int, SSAValue]]:
    """The sums of products whose columns take turns, n · wide + m being column n of product m: vectors of up to four
    columns, and their first."""
    wide, found = len(sums), []
    if wide == 1:
        return [(0, sums[0])]
    for first in range(0, 2 * wide, 4):
        made = b.const(0.0, VectorType(f32, [2, 4]))
        for j in range(4):
            n, m = divmod(first + j, wide)
            for r in range(2):
                made = b.get(vector.InsertOp(b.extract(sums[m], [r, n]), made, [r, j]))
        found.append((first, made))
    return found
