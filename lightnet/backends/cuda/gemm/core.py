"""The way that a block computes its tile of a product: the part that differs between cores for f32, tensor cores by
warps and by warpgroups.

The tile [rows, cols] of C = A·Bᵀ is the sum over stages: pieces of k for which the block has `rows` rows of A and
`cols` columns of B in shared memory. As many stages as the tile says follow each other in a ring. What becomes of the
sums is the same for all cores (`epilogue.py`). Imports the builder and the problem.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

from xdsl.ir import Attribute, SSAValue

from lightnet.backends.builder import Index
from lightnet.backends.cuda.gemm.problem import GemmProblem
from lightnet.backends.cuda.kernel import KernelFunction
from lightnet.backends.cuda.simt import Simt
from lightnet.dataclasses import dataclass


@dataclass(frozen=True)
class ProductTile:
    """The tile of C that a block computes, elements of k in a stage, stages in the ring, and how the work is shared:
    `across` threads (cores for f32), warps or warpgroups (tensor cores) along rows and along columns."""

    rows: int
    cols: int
    depth: int
    stages: int
    across: tuple[int, int]


class Fragment(NamedTuple):
    """Sums that a thread has: `value` is a vector [r, c] of f32; its element [i, j] is that of row
    ``row + i * row_step`` and column ``col + j`` of the block's tile."""

    value: SSAValue
    row: Index
    col: Index
    row_step: int


@dataclass(frozen=True)
class Corner:
    """The place of a tile: the number of its product, and its first row and column there. `rows` and `cols` are those
    of the tile, or 1 where rows and columns beyond the result do not come here."""

    product: Index
    row: Index
    col: Index
    rows: int
    cols: int


@dataclass(frozen=True)
class TileBlock:
    """The block whose tile a core computes: `steps` stages from stage `first` on, of which those behind the last one of
    the product are empty. What divides the addresses of all memrefs is `align`."""

    f: KernelFunction
    p: GemmProblem
    corner: Corner
    first: Index
    steps: int
    align: int

    @property
    def b(self) -> Simt:
        return self.f.b

    def matrix(self, operand: int) -> Index:
        """The matrix of operand 0 or 1 that the product takes."""
        b, p = self.b, self.p
        number, rest, stride = b.index(0), self.corner.product, 1
        outer = p.result_dims[:-2] if p.batch > 1 else ()
        for size, own in reversed(list(zip(outer, p.batches(operand)))):
            rest, index = b.divmod(rest, size)
            number = b.add(number, b.mul(index, stride if own > 1 else 0))
            stride *= own
        return number


class Core(ABC):
    """Computes a tile. `element` is the type of A and B in memory; sums are f32. `by_k` says that B lies by k: [depth,
    cols]."""

    def __init__(self, tile: ProductTile, element: Attribute, by_k: bool = False):
        self.tile, self.element, self.by_k = tile, element, by_k

    @property
    @abstractmethod
    def threads(self) -> int:
        """Threads of a block, a multiple of 32."""

    @property
    @abstractmethod
    def shared_bytes(self) -> int:
        """Bytes of shared memory of a block."""

    def stages(self, p: GemmProblem) -> int:
        """Stages that the depth of a product is cut into."""
        return -(-p.depth // self.tile.depth)

    @abstractmethod
    def copies(self, p: GemmProblem) -> float:
        """Copies that the threads of a block make of a stage."""

    def shape(self, p: GemmProblem, value: SSAValue) -> tuple[int, ...]:
        """The shape in which the kernel sees the memory of a tensor (`GemmProblem.shape`)."""
        return p.shape(value)

    @abstractmethod
    def fragments(self, block: TileBlock) -> list[Fragment]:
        """The sums over the stages of a block: what of the tile a thread has."""
