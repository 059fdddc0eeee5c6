"""How the threads of a block multiply a stage: the part of a product that differs between cores for f32 and tensor cores.

A block computes a tile [rows, cols] of C = A·Bᵀ. Of A it has `rows` rows of `depth` elements in shared memory, of B `cols` rows of `depth` (or, where
B lies by k, `depth` rows of `cols`); that is a stage, and as many stages as the tile says follow each other in a ring. What fills them, and what
becomes of the sums, is the same for all cores (`loading.py`, `epilogue.py`). Imports the builder.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from xdsl.ir import Attribute, SSAValue

from lightnet.backends.builder import Index
from lightnet.backends.cuda.simt import Simt


@dataclass(frozen=True)
class Tile:
    """The tile of C that a block computes, elements of k in a stage, stages in the ring, and how the work is shared: `across` warps (tensor
    cores) or threads (cores for f32) along rows and along columns."""

    rows: int
    cols: int
    depth: int
    stages: int
    across: tuple[int, int]


class Fragment(NamedTuple):
    """Sums that a thread has: `value` is a vector [r, c] of f32; its element [i, j] is that of row ``row + i * row_step`` and column
    ``col + j`` of the block's tile."""

    value: SSAValue
    row: Index
    col: Index
    row_step: int


class Core(ABC):
    """Multiplies stages. `element` is the type of A and B in memory; sums are f32. `by_k` says that B lies by k: [depth, cols]."""

    def __init__(self, tile: Tile, element: Attribute, by_k: bool = False):
        self.tile, self.element, self.by_k = tile, element, by_k

    @property
    @abstractmethod
    def threads(self) -> int:
        """Threads of a block, a multiple of 32."""

    @property
    @abstractmethod
    def a_pitch(self) -> int:
        """Elements from one row of A in shared memory to the next: at least `depth`, whole multiples of 16 bytes, and such that the accesses
        of a warp meet no bank twice."""

    @property
    @abstractmethod
    def b_pitch(self) -> int:
        """The same of B: rows of `depth` elements, or of `cols` where B lies by k."""

    def column(self, b: Simt, line: Index) -> SSAValue:
        """The column of the tile whose elements of k are line `line` of a stage of B, where B lies by columns. It is what loads lines that says
        which, so that a core may have them in an order that suits its banks."""
        return b.index(line)

    def column_behind(self, b: Simt, first: Index, offset: int, count: int) -> SSAValue:
        """The same of line ``first + offset``, where `first` is below `count`: what that leaves to be computed."""
        return self.column(b, b.add(first, offset))

    @abstractmethod
    def begin(self, b: Simt) -> list[SSAValue]:
        """The sums at the start (zeros), as values that a loop carries."""

    @abstractmethod
    def step(self, b: Simt, a: SSAValue, right: SSAValue, slot: Index, sums: Sequence[SSAValue]) -> list[SSAValue]:
        """Multiply one stage. `a` is shared memory [stages * rows, a_pitch], `right` [stages * cols, b_pitch] (by k: [stages * depth, b_pitch]);
        the stage is number `slot`."""

    @abstractmethod
    def fragments(self, b: Simt, sums: Sequence[SSAValue]) -> list[Fragment]:
        """What of the tile this thread has."""
