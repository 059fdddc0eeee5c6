"""The loads of stages into shared memory: asynchronous copies of 16 bytes where memory allows it, zeros for what lies
outside.

An operand's part of a stage are *lines* of elements that lie next to each other, in *chunks* that one thread copies at
a time. Which chunk is whose does not change from stage to stage, so that all index arithmetic but that on k is done
once. What is outside, rows behind the last one, the halo of a picture, the end of k, is copied as zeros: no thread
branches. Imports the builder and the problem.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from math import gcd
from typing import NamedTuple

from xdsl.dialects.builtin import FixedBitwidthType, MemRefType
from xdsl.ir import SSAValue

from lightnet.backends.builder import Index
from lightnet.backends.cuda.gemm.problem import GemmProblem
from lightnet.backends.cuda.simt import Simt
from lightnet.dataclasses import dataclass, field

#: Bytes that `cp.async` copies, the largest first.
COPY_BYTES = (16, 8, 4)
#: A row of a picture that is outside however a window is placed.
OUTSIDE = -(1 << 28)


def chunk_of(size: int, align: int, *extents: int) -> int:
    """Elements of `size` bytes in a chunk, where lines begin at multiples of all `extents` behind an address that
    `align` divides: 1 where they are too short to be copied without waiting."""
    common = gcd(gcd(*extents) * size, align)
    return next((n // size for n in COPY_BYTES if common % n == 0 and n >= size), 1)


class OperandSource(ABC):
    """An operand in global memory, as lines and positions of a block's tile. `chunk` divides where lines begin, and
    their lengths."""

    memory: SSAValue
    chunk: int

    @abstractmethod
    def line(self, b: Simt, line: Index) -> tuple[SSAValue, ...]:
        """Compute what is known of a line of the tile before the loop over stages."""

    @abstractmethod
    def at(
        self, b: Simt, line: Index, known: tuple[SSAValue, ...], position: Index, k: SSAValue
    ) -> tuple[list[Index], SSAValue]:
        """The indices of a chunk, in the stage that begins at `k`, and whether it is inside."""


@dataclass(frozen=True)
class MatrixLines(OperandSource):
    """Lines that are rows of a matrix [batch, limit, depth], from row `first` on; a position is an offset of k, which
    ends at `depth`. `start` is the position in memory where k begins."""

    memory: SSAValue
    chunk: int
    batch: Index
    first: Index
    limit: int
    depth: int
    start: Index = 0
    whole: bool = False  # whether no line lies behind the last one

    def line(self, b: Simt, line: Index) -> tuple[SSAValue, ...]:
        row = b.add(self.first, line)
        return (row,) if self.whole else (row, b.below(row, self.limit))

    def at(
        self, b: Simt, line: Index, known: tuple[SSAValue, ...], position: Index, k: SSAValue
    ) -> tuple[list[Index], SSAValue]:
        at = b.add(k, position)
        inside = b.below(at, self.depth)
        return [self.batch, known[0], b.add(self.start, at)], inside if self.whole else b.both(inside, known[1])


@dataclass(frozen=True)
class ByK(OperandSource):
    """Lines that are rows k of a matrix [batch, depth, cols]; a position is a column from `first` on."""

    memory: SSAValue
    chunk: int
    batch: Index
    first: Index
    depth: int
    cols: int
    whole: bool  # whether no column lies behind the last one

    def line(self, b: Simt, line: Index) -> tuple[SSAValue, ...]:
        return ()

    def at(
        self, b: Simt, line: Index, known: tuple[SSAValue, ...], position: Index, k: SSAValue
    ) -> tuple[list[Index], SSAValue]:
        at, col = b.add(k, line), b.add(self.first, position)
        inside = b.below(at, self.depth)
        return [self.batch, at, col], inside if self.whole else b.both(inside, b.below(col, self.cols))


@dataclass
class Windows(OperandSource):
    """Lines that are the windows of a convolution on a map [1, pixels, channels], from number `first` on. k is
    (window row, window column, channel), the channels being those from `start` on."""

    memory: SSAValue
    chunk: int
    problem: GemmProblem
    first: Index
    start: Index
    _taps: dict[tuple[SSAValue, Index], tuple[SSAValue, SSAValue, SSAValue, SSAValue]] = field(
        default_factory=dict, init=False
    )

    def line(self, b: Simt, line: Index) -> tuple[SSAValue, ...]:
        """The first row and column of the window in the picture, and the number of rows above the picture."""
        p = self.problem
        height = p.anchor.operand_specs[0].dims[2]
        window = p.window
        (oh, ow), (sh, sw), (top, left) = window.positions, window.stride, window.before
        pixel = b.add(self.first, line)
        n, rest = b.divmod(pixel, oh * ow)
        y, x = b.divmod(rest, ow)
        row = b.select(b.below(pixel, p.rows), b.add(b.mul(y, sh), -top), b.index(OUTSIDE))
        return row, b.add(b.mul(x, sw), -left), b.mul(n, height)

    def at(
        self, b: Simt, line: Index, known: tuple[SSAValue, ...], position: Index, k: SSAValue
    ) -> tuple[list[Index], SSAValue]:
        height, width = self.problem.anchor.operand_specs[0].dims[2:]
        dy, dx, channel, there = self._tap(b, position, k)
        y, x = b.add(known[0], dy), b.add(known[1], dx)
        inside = b.both(b.cmpi("ult", y, b.index(height)), b.cmpi("ult", x, b.index(width)))
        pixel = b.add(b.mul(b.add(known[2], y), width), x)
        return [0, pixel, b.add(self.start, channel)], b.both(inside, there)

    def _tap(self, b: Simt, position: Index, k: SSAValue) -> tuple[SSAValue, SSAValue, SSAValue, SSAValue]:
        """The tap of its window where an element is, its channel, and whether k is one that there is: once for all
        lines of a stage.
        """
        key = k, position
        if key not in self._taps:
            p, at = self.problem, b.add(k, position)
            (_, kw), (dh, dw) = p.window.taps, p.window.dilation
            tap, channel = b.divmod(at, p.channels)
            y, x = b.divmod(tap, kw)
            self._taps[key] = b.mul(y, dh), b.mul(x, dw), channel, b.below(at, p.depth)
        return self._taps[key]


class _Piece(NamedTuple):
    """A thread's part of the copies of a stage: which chunk, what is known of its line, and whether it has one at all
    (None: it has)."""

    line: Index
    position: Index
    known: tuple[SSAValue, ...]
    mine: SSAValue | None


#: Which line of the source a line in shared memory is: that number ``first + offset``, where `first` is below a count.
Order = Callable[[Index, int, int], Index]


class Stager:
    """Copies an operand's part of a stage: `lines` lines of `length` elements to rows of `to`, [stages * lines,
    pitch]."""

    def __init__(self, b: Simt, source: OperandSource, to: SSAValue, lines: int, length: int, threads: int,
                 order: Order | None = None):  # fmt: skip
        self.b, self.source, self.to, self.lines = b, source, to, lines
        self.chunk = gcd(source.chunk, length)
        self.pieces: list[_Piece] = []
        per_line, thread = length // self.chunk, b.thread_id()
        count, down = lines * per_line, threads // per_line
        even = threads % per_line == 0  # then a thread's chunks stand below each other
        own, part = b.divmod(thread, per_line)
        for n in range(-(-count // threads)):
            offset = n * down if even else 0
            if not even:
                own, part = b.divmod(b.add(thread, n * threads), per_line)
            line = b.add(own, offset)
            mine = None if (n + 1) * threads <= count else b.below(line, lines)
            known = source.line(b, order(own, offset, down if even else lines) if order else line)
            self.pieces.append(_Piece(line, b.mul(part, self.chunk), known, mine))

    def copy(self, slot: Index, k: SSAValue) -> None:
        """Begin to copy the stage that begins at `k`."""
        b = self.b
        for piece in self.pieces:
            indices, inside = self.source.at(b, piece.line, piece.known, piece.position, k)
            to = [b.add(b.mul(slot, self.lines), piece.line), piece.position]
            with b.where(piece.mine):
                self._chunk(to, indices, inside)

    def _chunk(self, to: list[Index], indices: list[Index], inside: SSAValue) -> None:
        b, type = self.b, self.source.memory.type
        assert isinstance(type, MemRefType)
        element = type.element_type
        assert isinstance(element, FixedBitwidthType)
        if (bytes := self.chunk * element.size) in COPY_BYTES:
            size = b.select(inside, b.index(bytes), b.index(0))
            b.async_copy(self.to, to, self.source.memory, indices, bytes, size)
            return
        zero = b.const(0.0, element)
        (value,) = b.choose(inside, lambda: [b.load(self.source.memory, indices)], lambda: [zero])
        b.store(value, self.to, to)
