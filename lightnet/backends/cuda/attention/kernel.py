"""The kernel of attention: a warp has 16 rows of Q, and goes over the keys by tiles that the block shares.

Scores stay in registers. Softmax is of what was seen so far: with a larger maximum, the sums before are scaled (Milakov
and Gimelshein, "Online normalizer calculation for softmax", 2018; Dao et al., "FlashAttention", 2022). A warp's sums of
two blocks of eight columns are the factor A of 16 keys as they stand, so probabilities are multiplied without leaving
their lanes. Imports the problem, the epilogue of products and the builder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import e, log2

from xdsl.dialects import arith, math, vector
from xdsl.dialects.builtin import VectorType, f32
from xdsl.ir import SSAValue

from lightnet.backends.builder import Index
from lightnet.backends.cuda.attention.problem import CHUNK, HEAD_PIECE, Attention, Placed
from lightnet.backends.cuda.gemm.core import Corner, Fragment
from lightnet.backends.cuda.gemm.epilogue import Epilogue
from lightnet.backends.cuda.gemm.exchange import PAIR, QUAD, exchanged
from lightnet.backends.cuda.gemm.mma_core import MMA_COLS, MMA_ROWS, registers
from lightnet.backends.cuda.kernel import KernelFunction
from lightnet.backends.cuda.simt import SimtLaunch
from lightnet.dataclasses import dataclass
from lightnet.dialects.cuda_checks import WARP
from lightnet.dialects.cuda_matrix import MATRIX_ROW, LdmatrixOp, MmaOp, fragment
from lightnet.ir.kernel import KernelOp
from lightnet.ir.types import storage_type

#: Tiles of keys that are in shared memory at a time: one is multiplied while the next is copied.
TILES = 2
_SUM = VectorType(f32, [2, 2])
_APPROXIMATE = arith.FastMathFlagsAttr([arith.FastMathFlag.APPROX_FUNC])
_MINUS_INFINITY = float("-inf")


@dataclass(frozen=True)
class AttentionSchedule:
    """Rows of Q that a block has, 16 a warp, and keys of a tile."""

    rows: int
    keys: int

    @property
    def warps(self) -> int:
        return self.rows // MMA_ROWS


def pitch(width: int) -> int:
    """Elements from one row in shared memory to the next: an odd number of pieces of 16 bytes, so that eight rows meet
    all banks once."""
    return (width // CHUNK | 1) * CHUNK


def block_bytes(p: Attention, s: AttentionSchedule) -> int:
    """Bytes of shared memory of a block."""
    return 2 * (s.rows * pitch(p.width) + TILES * s.keys * (pitch(p.width) + pitch(p.columns)))


class AttentionKernel:
    """One launch."""

    def __init__(self, kernel: KernelOp, p: Attention, s: AttentionSchedule, name: str, aliases: Mapping[int, int]):
        self.p, self.s = p, s
        self.element = storage_type(p.scores.dtype)
        self.f = KernelFunction(kernel, name, (WARP * s.warps, 1, 1), aliases, shape=p.shape)
        self.b = self.f.b

    def launch(self) -> SimtLaunch:
        b, p, s = self.b, self.p, self.s
        tiles = -(-p.rows // s.rows)
        head, tile = b.divmod(b.block_id(), tiles)
        self.head, self.first = head, b.mul(tile, s.rows)
        self.row = b.mul(b.warp_id(), MMA_ROWS)
        self.group, self.inner = b.divmod(b.lane_id(), QUAD)
        queries = b.shared([s.rows, pitch(p.width)], self.element, "queries")
        keys = b.shared([TILES * s.keys, pitch(p.width)], self.element, "keys")
        values = b.shared([TILES * s.keys, pitch(p.columns)], self.element, "values")
        begins = {placed: self._begin(placed) for placed in (p.q, p.k, p.v)}

        def ask(number: Index) -> None:
            slot, first = b.mul(b.divmod(number, TILES)[1], s.keys), b.mul(number, s.keys)
            self._copy(p.k, begins[p.k], keys, slot, first, s.keys, p.keys, p.width)
            self._copy(p.v, begins[p.v], values, slot, first, s.keys, p.keys, p.columns)
            b.commit()

        self._copy(p.q, begins[p.q], queries, 0, self.first, s.rows, p.rows, p.width)
        ask(0)
        b.wait(0)
        b.barrier()
        left = [self._loaded(queries, self.row, k) for k in range(0, p.width, HEAD_PIECE)]
        count = -(-p.keys // s.keys)
        top, total = [b.const(_MINUS_INFINITY, f32)] * 2, [b.const(0.0, f32)] * 2
        mixed = [b.const(0.0, _SUM)] * (p.columns // MMA_COLS)
        with b.loop(0, count, 1, [*top, *total, *mixed], name="tile") as loop:
            b.wait(0)
            b.barrier()
            ask(b.add(loop.iv, 1))
            slot = b.mul(b.divmod(loop.iv, TILES)[1], s.keys)
            scores = self._scores(left, keys, slot, b.mul(loop.iv, s.keys))
            top, total, shares, faded = self._softmax(scores, loop.args[:2], loop.args[2:4])
            loop.yields(*top, *total, *self._mixed(shares, faded, values, slot, loop.args[4:]))
        b.wait(0)
        self._store([self._over_quad(arith.AddfOp, t) for t in loop.results[2:4]], loop.results[4:])
        launch = self.f.launch((tiles * p.heads, 1, 1))
        for op in launch.function.walk():
            if isinstance(op, arith.DivfOp):  # what it makes becomes a probability or a result, which have 16 bits
                op.properties["fastmath"] = _APPROXIMATE
        return launch

    # ---- factors -----------------------------------------------------------------------------------------------------

    def _begin(self, placed: Placed) -> Index:
        """The element at which the block's head begins."""
        b, at, rest = self.b, self.b.index(0), self.head
        for axis, dim in zip(reversed(placed.batch), reversed(self.p.dims)):
            rest, index = b.divmod(rest, dim)
            for size, step in reversed(axis):
                index, own = b.divmod(index, size)
                at = b.add(at, b.mul(own, step))
        return at

    def _copy(self, placed: Placed, begin: Index, to: SSAValue, slot: Index, first: Index, rows: int, limit: int,
              width: int) -> None:  # fmt: skip
        """Copy rows from number `first` on, of which there are `limit`; zeros for those behind the last."""
        b, memory, pieces = self.b, self.f.inputs[placed.value], width // CHUNK
        threads = WARP * self.s.warps
        for turn in range(-(-rows * pieces // threads)):
            number = b.add(b.thread_id(), turn * threads)
            line, piece = b.divmod(number, pieces)
            row = b.add(first, line)
            inside = b.below(row, limit)
            at = b.add(b.add(begin, b.mul(b.least(row, limit - 1), placed.row)), b.mul(piece, CHUNK))
            size = b.select(inside, b.index(MATRIX_ROW), b.index(0))
            whole = rows * pieces % threads == 0 or turn < rows * pieces // threads
            with b.where(None if whole else b.below(number, rows * pieces)):
                b.async_copy(to, [b.add(slot, line), b.mul(piece, CHUNK)], memory, [at], MATRIX_ROW, size)

    def _loaded(self, queries: SSAValue, row: Index, k: int) -> SSAValue:
        """The fragment of 16 rows of Q from column k on."""
        b = self.b
        half, line = b.divmod(b.lane_id(), MMA_ROWS)
        return b.get(LdmatrixOp(queries, [b.add(row, line), b.add(b.mul(half, CHUNK), k)], 4))

    def _scores(self, left: Sequence[SSAValue], keys: SSAValue, slot: Index, first: Index) -> list[SSAValue]:
        """Q·Kᵀ of a tile of keys, and the ops on it, for blocks of eight keys: [2, 2] of f32 each; minus infinity for
        keys that are not there."""
        b, p, s = self.b, self.p, self.s
        fragment, rest = b.divmod(b.lane_id(), 2 * MMA_COLS)
        half, line = b.divmod(rest, MMA_COLS)
        sums = [b.const(0.0, _SUM)] * (s.keys // MMA_COLS)
        for j in range(0, len(sums), 2):
            row = b.add(b.add(slot, MMA_COLS * j), b.add(b.mul(fragment, MMA_COLS), line))
            for k, a in enumerate(left):
                both = b.get(LdmatrixOp(keys, [row, b.add(b.mul(half, CHUNK), HEAD_PIECE * k)], 4))
                for n in range(2):
                    sums[j + n] = b.get(MmaOp(a, registers(b, both, 2 * n, 2), sums[j + n]))
        epilogue = Epilogue(self.f, p.scores, Corner(self.head, self.first, first, s.rows, s.keys))
        row, col = b.add(self.row, self.group), b.mul(self.inner, PAIR)
        found = []
        for j, value in enumerate(sums):
            made = epilogue.computed(Fragment(value, row, b.add(col, MMA_COLS * j), MMA_COLS), p.softmax_input)
            found.append(self._known(b.widened(made), b.add(b.add(first, MMA_COLS * j), col)))
        return found

    def _known(self, scores: SSAValue, col: Index) -> SSAValue:
        """Scores of keys that are there."""
        b, p = self.b, self.p
        if p.keys % self.s.keys == 0:
            return scores
        made = scores
        for c in range(2):
            there = b.below(b.add(col, c), p.keys)
            for r in range(2):
                one = b.select(there, b.extract(scores, [r, c]), b.const(_MINUS_INFINITY, f32))
                made = b.get(vector.InsertOp(one, made, [r, c]))
        return made

    # ---- softmax -----------------------------------------------------------------------------------------------------

    def _softmax(
        self, scores: Sequence[SSAValue], top: Sequence[SSAValue], total: Sequence[SSAValue]
    ) -> tuple[list[SSAValue], list[SSAValue], list[SSAValue], list[SSAValue]]:
        """The maxima and sums of a lane's two rows with another tile, what its scores add to the sums, and what the
        sums before are multiplied by."""
        b, scale = self.b, self.b.const(log2(e), f32)
        tops, totals, faded = [], [], []
        parts = list(scores)
        for r in range(2):
            own = [b.extract(value, [r, c]) for value in scores for c in range(2)]
            most = self._over_quad(arith.MaxnumfOp, self._tree(arith.MaxnumfOp, own))
            most = b.op(arith.MaxnumfOp, most, top[r])
            # Where all scores of a row are minus infinity so far, 0 stands for the maximum: there is no infinity less
            # infinity.
            none = b.cmpf("oeq", most, b.const(_MINUS_INFINITY, f32))
            shift = b.op(arith.MulfOp, b.select(none, b.const(0.0, f32), most), scale)
            shares = [self._power(value, scale, shift) for value in own]
            fade = self._power(top[r], scale, shift)
            totals.append(b.op(arith.AddfOp, b.op(arith.MulfOp, total[r], fade), self._tree(arith.AddfOp, shares)))
            tops.append(most)
            faded.append(fade)
            for number, share in enumerate(shares):
                j, c = divmod(number, 2)
                parts[j] = b.get(vector.InsertOp(share, parts[j], [r, c]))
        return tops, totals, parts, faded

    def _power(self, value: SSAValue, scale: SSAValue, shift: SSAValue) -> SSAValue:
        """exp(value - maximum), as 2 ** (value * log2(e) - shift)."""
        b = self.b
        exponent = b.op(math.FmaOp, value, scale, b.op(arith.NegfOp, shift))
        return b.op(math.Exp2Op, exponent, fastmath=_APPROXIMATE)

    def _tree(self, op: type, values: Sequence[SSAValue]) -> SSAValue:
        """Values put together two by two."""
        while len(values) > 1:
            pairs = [self.b.op(op, x, y) for x, y in zip(values[::2], values[1::2])]
            values = [*pairs, *values[2 * len(pairs) :]]
        return values[0]

    def _over_quad(self, op: type, value: SSAValue) -> SSAValue:
        """The values of the four lanes that share a row, put together."""
        for distance in (1, 2):
            value = self.b.op(op, value, self.b.shuffle("xor", value, distance))
        return value

    # ---- the product with V ------------------------------------------------------------------------------------------

    def _mixed(
        self, shares: Sequence[SSAValue], faded: Sequence[SSAValue], values: SSAValue, slot: Index,
        mixed: Sequence[SSAValue]
    ) -> list[SSAValue]:  # fmt: skip
        """The sums of O with another tile of keys."""
        b = self.b
        sums = [self._by_row(value, faded) for value in mixed]
        lanes, line = b.divmod(b.lane_id(), MMA_ROWS)
        for t in range(self.s.keys // HEAD_PIECE):
            a = self._factor(shares[2 * t : 2 * t + 2])
            row = b.add(b.add(slot, HEAD_PIECE * t), line)
            for j in range(0, len(sums), 2):
                both = b.get(LdmatrixOp(values, [row, b.add(b.mul(lanes, MMA_COLS), MMA_COLS * j)], 4, trans=True))
                for n in range(2):
                    sums[j + n] = b.get(MmaOp(a, registers(b, both, 2 * n, 2), sums[j + n]))
        return sums

    def _factor(self, shares: Sequence[SSAValue]) -> SSAValue:
        """The probabilities of 16 keys as a fragment of A: both rows of the lower eight keys, then of the upper."""
        b = self.b
        made = b.const(0.0, fragment(4, self.element))
        for n, value in enumerate(shares):
            short = b.cast("truncf", value, self.element)
            for r in range(2):
                row = b.get(vector.ExtractOp(short, [r], VectorType(self.element, [2])))
                made = b.get(vector.InsertOp(row, made, [2 * n + r]))
        return made

    def _by_row(self, value: SSAValue, factors: Sequence[SSAValue]) -> SSAValue:
        """Sums [2, 2], each row times a factor."""
        b, made = self.b, value
        for r in range(2):
            for c in range(2):
                made = b.get(vector.InsertOp(b.op(arith.MulfOp, b.extract(value, [r, c]), factors[r]), made, [r, c]))
        return made

    def _store(self, total: Sequence[SSAValue], mixed: Sequence[SSAValue]) -> None:
        """Write O, each row divided by its sum."""
        b, p = self.b, self.p
        one = b.const(1.0, f32)
        shares = [b.op(arith.DivfOp, one, t) for t in total]
        begin, memory = self._begin(p.out), self.f.outputs[0]
        wide = next(n for n in (4, 2, 1) if p.columns % (MMA_COLS * n) == 0)
        for j in range(0, len(mixed), wide):
            own, col, value = exchanged(b, self.inner, [self._by_row(m, shares) for m in mixed[j : j + wide]])
            short = b.cast("truncf", value, self.element)
            count = PAIR * wide
            for r in range(2):
                row = b.add(b.add(self.first, self.row), b.add(self.group, MMA_COLS * r))
                at = b.add(b.add(begin, b.mul(row, p.out.row)), b.add(b.mul(own, MMA_COLS), b.add(col, MMA_COLS * j)))
                part = b.get(vector.ExtractOp(short, [r], VectorType(self.element, [count])))
                with b.where(None if p.rows % self.s.rows == 0 else b.below(row, p.rows)):
                    b.tile_store(part, memory, [at], [0])
