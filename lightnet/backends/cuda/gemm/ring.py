"""Stages that all threads of a block copy, piece by piece, without waiting (`cp.async`): the ring of the cores that
read shared memory themselves.

Stages are filled as many ahead as the ring has room for, with one barrier a stage: behind it all threads see the stage
that has come, and have read the one whose place the next copies take. Imports the loaders and the core's interface.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial

from xdsl.dialects.builtin import FixedBitwidthType
from xdsl.ir import SSAValue

from lightnet.backends.builder import Index
from lightnet.backends.cuda.gemm.core import Core, Fragment, TileBlock
from lightnet.backends.cuda.gemm.loading import COPY_BYTES, ByK, MatrixLines, OperandSource, Stager, Windows, chunk_of
from lightnet.backends.cuda.gemm.problem import GemmProblem, Kind
from lightnet.backends.cuda.simt import Simt
from lightnet.dialects.cuda_matrix import MATRIX_ROW


class RingCore(Core):
    """A core whose stages threads copy. Of A a stage is `rows` rows of `depth` elements, of B `cols` rows of `depth`
    (or, where B lies by k, `depth` rows of `cols`)."""

    @property
    def chunk(self) -> int:
        """Elements of 16 bytes."""
        assert isinstance(self.element, FixedBitwidthType)
        return MATRIX_ROW // self.element.size

    @property
    def a_pitch(self) -> int:
        """Elements from one row of A in shared memory to the next: at least `depth`, whole multiples of 16 bytes, and
        such that the accesses of a warp meet no bank twice."""
        return self._odd_pitch(self.tile.depth)

    @property
    def b_pitch(self) -> int:
        """The same of B: rows of `depth` elements, or of `cols` where B lies by k."""
        return self._odd_pitch(self.tile.cols if self.by_k else self.tile.depth)

    def _odd_pitch(self, extent: int) -> int:
        """An odd number of chunks: eight rows in a row, which `ldmatrix` or the lanes of a warp read at once, meet all
        banks once."""
        return (-(-extent // self.chunk) | 1) * self.chunk

    @abstractmethod
    def column(self, b: Simt, first: Index, offset: int, count: int) -> SSAValue:
        """The column of the tile whose elements of k are line ``first + offset`` of a stage of B, where B lies by
        columns; `first` is below `count`, which may leave less to be computed. It is what loads lines that asks, so
        that a core may have them in an order that suits its banks."""

    @abstractmethod
    def begin(self, b: Simt) -> list[SSAValue]:
        """The sums at the start (zeros), as values that a loop carries."""

    @abstractmethod
    def step(self, b: Simt, a: SSAValue, right: SSAValue, slot: Index, sums: Sequence[SSAValue]) -> list[SSAValue]:
        """Multiply one stage. `a` is shared memory [stages * rows, a_pitch], `right` [stages * cols, b_pitch] (by k:
        [stages * depth, b_pitch]); the stage is number `slot`."""

    @abstractmethod
    def finished(self, b: Simt, sums: Sequence[SSAValue]) -> list[Fragment]:
        """The fragments of the tile that this thread has in the sums."""

    # ---- what the model asks ---------------------------------------------------------------------------------------

    @property
    def _lines(self) -> int:
        """Lines of B in a stage."""
        return self.tile.depth if self.by_k else self.tile.cols

    @property
    def shared_bytes(self) -> int:
        assert isinstance(self.element, FixedBitwidthType)
        elements = self.tile.rows * self.a_pitch + self._lines * self.b_pitch
        return self.tile.stages * elements * self.element.size

    def copies(self, p: GemmProblem) -> float:
        tile, size = self.tile, p.dtype.size
        lines = p.cols if self.by_k else p.depth
        return sum(
            count * tile.depth * size // next((n for n in COPY_BYTES if extent * size % n == 0), size)
            for count, extent in ((tile.rows, p.depth), (tile.cols, lines))
        )

    # ---- the loop over stages ----------------------------------------------------------------------------------------

    def fragments(self, block: TileBlock) -> list[Fragment]:
        b, tile = block.b, self.tile
        left = b.shared([tile.stages * tile.rows, self.a_pitch], self.element, name="left")
        right = b.shared([tile.stages * self._lines, self.b_pitch], self.element, name="right")
        a = Stager(b, _a(block), left, tile.rows, tile.depth, self.threads)
        width = tile.cols if self.by_k else tile.depth
        order = None if self.by_k else partial(self.column, b)
        other = Stager(b, _b(block), right, self._lines, width, self.threads, order)

        def begin(slot: Index, step: Index) -> None:
            k = b.mul(b.add(block.first, step), tile.depth)
            a.copy(slot, k)
            other.copy(slot, k)
            b.commit()

        for step in range(tile.stages - 1):
            begin(step, step)
        with b.loop(0, block.steps, 1, self.begin(b)) as loop:
            b.wait(tile.stages - 2)
            b.barrier()
            ahead = b.add(loop.iv, tile.stages - 1)
            begin(b.divmod(ahead, tile.stages)[1], ahead)
            slot = b.divmod(loop.iv, tile.stages)[1]
            loop.yields(*self.step(b, left, right, slot, loop.args))
        b.wait(0)
        return self.finished(b, loop.results)


def _a(block: TileBlock) -> OperandSource:
    """A in memory."""
    b, p, at, memory = block.b, block.p, block.corner, block.f.inputs[block.p.a]
    size, pitch = p.dtype.size, memory.type.get_shape()[2]  # type: ignore[attr-defined]
    whole = p.rows % at.rows == 0
    if not p.is_map:
        chunk = chunk_of(size, block.align, pitch)
        return MatrixLines(memory, chunk, block.matrix(0), at.row, p.rows, p.depth, whole=whole)
    start = b.mul(at.product if p.groups > 1 else 0, p.channels)
    chunk = chunk_of(size, block.align, pitch, p.channels)
    if not p.is_pointwise:
        return Windows(memory, chunk, p, at.row, start)
    return MatrixLines(memory, chunk, 0, at.row, p.rows, p.depth, start, whole=whole)


def _b(block: TileBlock) -> OperandSource:
    """B in memory."""
    b, p, at, memory = block.b, block.p, block.corner, block.f.inputs[block.p.b]
    chunk = chunk_of(p.dtype.size, block.align, memory.type.get_shape()[2])  # type: ignore[attr-defined]
    whole = p.cols % at.cols == 0
    if p.kind is Kind.MATMUL:
        return ByK(memory, chunk, block.matrix(1), at.col, p.depth, p.cols, whole)
    first = b.add(at.col, b.mul(at.product, p.cols)) if p.groups > 1 else at.col
    return MatrixLines(memory, chunk, 0, first, p.cols * p.groups, p.depth, whole=whole)
