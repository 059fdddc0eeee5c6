"""Kernels of cuda for the tests, as level 4: a product of matrices on the cores for f32, and one on the tensor cores."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import arith, vector
from xdsl.dialects.builtin import DenseArrayBase, FunctionType, MemRefType, ModuleOp, VectorType, f32, i32
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, Region, SSAValue

from lightnet.backends.builder import Builder
from lightnet.dialects.cuda_matrix import LdmatrixOp, MmaOp
from lightnet.dialects.cuda_memory import AsyncCommitOp, AsyncCopyOp, AsyncWaitOp
from lightnet.dialects.cuda_simt import BarrierOp, BlockIdOp, LaneIdOp, SharedOp, ThreadIdOp, WarpIdOp


class Simt(Builder):
    """A builder of one thread's code."""

    @classmethod
    def thread(cls, name: str, memrefs: list[MemRefType], block: tuple[int, int, int]) -> Simt:
        function = FuncOp(name, FunctionType.from_lists(memrefs, []), Region(Block(arg_types=memrefs)))
        function.attributes["cuda.block"] = DenseArrayBase.from_list(i32, block)
        return cls(function)

    @property
    def args(self):
        return self.entry.args

    def get(self, op) -> SSAValue:
        return self.append(op).results[0]

    def least(self, a: SSAValue, b: SSAValue | int) -> SSAValue:
        return self.op(arith.MinSIOp, a, self.index(b))

    def both(self, a: SSAValue, b: SSAValue) -> SSAValue:
        return self.op(arith.AndIOp, a, b)


def tiled_product(m: int, n: int, k: int, tile: int = 16) -> ModuleOp:
    """``C[m, n] = A[m, k] B[k, n]`` of f32, tiles of A and B in shared memory, an element of C a thread. Sizes are multiples of the tile."""
    types = [MemRefType(f32, s) for s in ((m, k), (k, n), (m, n))]
    b = Simt.thread("product", types, (tile, tile, 1))
    a_tile, b_tile = (b.get(SharedOp([tile, tile], f32)) for _ in range(2))
    x, y = b.get(ThreadIdOp("x")), b.get(ThreadIdOp("y"))
    row = b.add(b.mul(b.get(BlockIdOp("y")), tile), y)
    col = b.add(b.mul(b.get(BlockIdOp("x")), tile), x)
    with b.loop(0, k, tile, [b.const(0.0, f32)]) as outer:
        b.store(b.load(b.args[0], [row, b.add(outer.iv, x)]), a_tile, [y, x])
        b.store(b.load(b.args[1], [b.add(outer.iv, y), col]), b_tile, [y, x])
        b.append(BarrierOp())
        with b.loop(0, tile, 1, outer.args) as inner:
            part = b.op(arith.MulfOp, b.load(a_tile, [y, inner.iv]), b.load(b_tile, [inner.iv, x]))
            inner.yields(b.op(arith.AddfOp, inner.args[0], part))
        b.append(BarrierOp())
        outer.yields(*inner.results)
    b.store(outer.results[0], b.args[2], [row, col])
    return ModuleOp([b.finish()])


#: Rows and columns of C that a block of two warps computes, bytes of k of a stage; and of a row in shared memory, so that the eight rows of a
#: matrix lie in different banks.
ROWS, COLS, STAGE, ROW_BYTES = 32, 16, 64, 80
STAGES = 3


@dataclass
class _Product:
    b: Simt
    type: Attribute
    sizes: tuple[int, int, int]

    @property
    def bytes(self) -> int:
        return self.type.size

    @property
    def depth(self) -> int:
        return STAGE // self.bytes

    def stage(
        self, shared: SSAValue, source: SSAValue, rows: int, first: SSAValue, limit: int, slot, k: SSAValue
    ) -> None:
        """Begin to copy `rows` rows of `depth` elements from k on into a slot; zeros beyond the matrix."""
        b, chunk = self.b, 16 // self.bytes
        for piece in range(rows * 4 // 64):
            number = b.add(b.get(ThreadIdOp("x")), 64 * piece)
            row, part = b.divmod(number, 4)
            at, col = b.add(first, row), b.add(k, b.mul(part, chunk))
            inside = b.both(b.cmpi("slt", at, b.index(limit)), b.cmpi("slt", col, b.index(self.sizes[2])))
            size = b.select(inside, b.index(16), b.index(0))
            place = [b.add(b.mul(slot, rows), row), b.mul(part, chunk)]
            b.append(AsyncCopyOp(shared, place, source, [at, col], size, bytes=16))

    def multiply(self, a_tile: SSAValue, b_tile: SSAValue, slot, sums: list[SSAValue]) -> list[SSAValue]:
        b, chunk = self.b, 16 // self.bytes
        lane, warp = b.get(LaneIdOp()), b.get(WarpIdOp())
        for step in range(2):  # 32 bytes of k each
            part, row = b.divmod(lane, 16)
            at = b.add(b.add(b.mul(slot, ROWS), b.mul(warp, 16)), row)
            left = b.get(LdmatrixOp(a_tile, [at, b.add(b.mul(part, chunk), 2 * step * chunk)], 4))
            part, row = b.divmod(b.op(arith.RemSIOp, lane, b.index(16)), 8)
            for j in range(2):
                at = b.add(b.add(b.mul(slot, COLS), 8 * j), row)
                right = b.get(LdmatrixOp(b_tile, [at, b.add(b.mul(part, chunk), 2 * step * chunk)], 2))
                sums[j] = b.get(MmaOp(left, right, sums[j]))
        return sums


def tensor_product(m: int, n: int, k: int, type: Attribute) -> ModuleOp:
    """``C[m, n] = A[m, k] B[n, k]ᵀ``, C of f32: a pipeline of `STAGES` asynchronous copies, `ldmatrix` and `mma`. Rows are multiples of 16
    bytes; m, n and k are anything else."""
    b = Simt.thread(
        "product", [MemRefType(type, (m, k)), MemRefType(type, (n, k)), MemRefType(f32, (m, n))], (64, 1, 1)
    )
    p = _Product(b, type, (m, n, k))
    width = ROW_BYTES // type.size
    a_tile, b_tile = b.get(SharedOp([STAGES * ROWS, width], type)), b.get(SharedOp([STAGES * COLS, width], type))
    first_row, first_col = b.mul(b.get(BlockIdOp("y")), ROWS), b.mul(b.get(BlockIdOp("x")), COLS)

    def begin(slot, at: SSAValue) -> None:
        p.stage(a_tile, b.args[0], ROWS, first_row, m, slot, at)
        p.stage(b_tile, b.args[1], COLS, first_col, n, slot, at)
        b.append(AsyncCommitOp())

    for slot in range(STAGES - 1):
        begin(slot, b.index(slot * p.depth))
    zero = b.const(0.0, VectorType(f32, [2, 2]))
    with b.loop(0, -(-k // p.depth), 1, [zero, zero]) as steps:
        b.append(AsyncWaitOp(groups=STAGES - 2))
        b.append(BarrierOp())
        ahead = b.add(steps.iv, STAGES - 1)
        begin(b.divmod(ahead, STAGES)[1], b.mul(ahead, p.depth))
        steps.yields(*p.multiply(a_tile, b_tile, b.divmod(steps.iv, STAGES)[1], list(steps.args)))
    b.append(AsyncWaitOp(groups=0))
    quad, pair = b.divmod(b.get(LaneIdOp()), 4)
    for j, total in enumerate(steps.results):
        for high in range(2):
            row = b.add(b.add(first_row, b.mul(b.get(WarpIdOp()), 16)), b.add(quad, 8 * high))
            for odd in range(2):
                col = b.add(b.add(first_col, 8 * j), b.add(b.mul(pair, 2), odd))
                inside = b.both(b.cmpi("slt", row, b.index(m)), b.cmpi("slt", col, b.index(n)))
                with b.when(inside):
                    b.store(b.get(vector.ExtractOp(total, [high, odd], f32)), b.args[2], [row, col])
    return ModuleOp([b.finish()])
