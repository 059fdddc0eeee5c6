"""Register-tiled matrix products on row-major operands, with an epilogue.

A tile is [rows of A, columns of B]; columns fill vectors. For each k, one row of the tile's columns of B feeds all
rows, each multiplied by an element of A that is broadcast from its place. The block grid is batch x panels of columns.
Where many tiles share a panel, a block copies it first (Goto and van de Geijn, "Anatomy of High-Performance Matrix
Multiplication", 2008, section 4): its rows then follow each other instead of lying N elements apart, which the caches
and the TLB cannot hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Attribute, SSAValue

from lightnet.backends.builder import Index
from lightnet.backends.cpu.registers import MOST_BODY, REGISTERS, cover
from lightnet.backends.cpu.tile_kernel import TileKernel
from lightnet.backends.expressions import TileView, has_tile_epilogue
from lightnet.backends.launches import Launch
from lightnet.dataclasses import dataclass
from lightnet.dialects.ln.matmul import Matmul, gemm_shape
from lightnet.ir.kernel import KernelOp
from lightnet.ir.op import LnOp
from lightnet.ir.refusal import Refusal, begins_otherwise
from lightnet.ir.types import memref_type_of, spec_of

#: Rows of tiles from which on a block copies its panel of B.
PACK_FROM = 3
#: A matrix B of so many bytes stays in the cache as it is.
NEAR = 32 << 10
#: With few rows the product is as fast as B is read: a tile takes this many vectors of it, so that reads are long.
STREAM = 24


def accepts(ops: Sequence[LnOp], yielded: Sequence[SSAValue] = ()) -> bool | Refusal:
    """Return whether the body is one product of floats followed by elementwise ops on its result, which make all that
    is `yielded`. A column vector is left to the loops, which vectorise its sum.
    """
    if not ops or not isinstance(ops[0], Matmul):
        return begins_otherwise(ops, "a matmul")
    anchor = ops[0]
    shape = anchor.result_specs[0]
    if shape.dtype.name not in ("f32", "f64"):
        return Refusal("its tiles are of f32 or f64, not of {}", shape.dtype)
    if shape.dims[-1] < 2 or 0 in (shape.len, anchor.operand_specs[0].dims[-1]):
        return Refusal("the result has one column, or nothing is summed: loops vectorise the sum")
    return has_tile_epilogue(ops, yielded, readable(anchor))


def readable(op: LnOp) -> tuple[int, ...]:
    """The result's dimensions along which an epilogue may read smaller tensors: not those that count as rows."""
    ndim = op.result_specs[0].ndim
    return tuple(range(ndim)) if not folds(op) else (ndim - 1,)


def folds(op: LnOp) -> bool:
    """Return whether batch dimensions count as rows."""
    return gemm_shape(op)[1] != op.result_specs[0].dims[-2]


@dataclass(frozen=True)
class Shape:
    """A tile: rows x vectors of columns."""

    rows: int
    vectors: int


def _tile_shape(m: int, n: int, width: int, lanes: int) -> Shape:
    """As many accumulators as there are registers; few rows take more columns."""
    registers = REGISTERS[width]
    rows = min(m, 8 if registers > 16 else 4)
    per_row = -(-n // lanes)
    vectors = min(per_row, max(1, registers // rows), STREAM)
    while per_row % vectors and vectors > 1 and per_row % vectors * 2 <= vectors:
        vectors -= 1  # avoid a last tile that is mostly empty
    return Shape(rows, vectors)


def workspace_bytes(kernel: KernelOp, width: int) -> int:
    """Bytes of the copied panel of one block."""
    return PanelProduct.plan(kernel, width)[2]


def grid(kernel: KernelOp, width: int) -> int:
    """The blocks of the kernel."""
    anchor = kernel.ops[0]
    assert isinstance(anchor, Matmul)
    lanes, shape, _ = PanelProduct.plan(kernel, width)
    batch = 1 if folds(anchor) else prod(anchor.result_specs[0].dims[:-2])
    return batch * -(-anchor.result_specs[0].dims[-1] // (shape.vectors * lanes))


def build(kernel: KernelOp, name: str, width: int, aliases: Mapping[int, int]) -> Launch:
    """The kernel function. `aliases` maps a result to the operand whose memory it takes."""
    return PanelProduct(kernel, PanelProduct.plan(kernel, width), name, aliases).build()


class ProductKernel(TileKernel):
    """The common part of the kernels of matrix products, [m, k] x [k, n]."""

    anchor: LnOp

    def describe(self, kernel: KernelOp) -> None:
        super().describe(kernel)
        _, self.m, self.k, self.n = gemm_shape(self.anchor)

    def memref(self, value: SSAValue) -> MemRefType:
        """The memref of a tensor: packed as it is, else its own dimensions, batch folded into the rows where the
        product does so."""
        type, dims = super().memref(value), spec_of(value.type).dims
        if folds(self.anchor) and (value is self.anchor.operands[0] or dims == self.anchor.result_specs[0].dims):
            return MemRefType(type.element_type, (*(1 for _ in dims[:-2]), prod(dims[:-1]), dims[-1]))
        return type

    def multiplied(self, a: SSAValue, b: SSAValue, sums: SSAValue) -> SSAValue:
        """`sums` and the products of [rows, steps] and [steps, columns]."""
        return self.b.fma(a, b, sums)


class PanelProduct(ProductKernel):
    """Builds one kernel function, by the lanes, the tile and the bytes of the panel that `plan` gives."""

    def __init__(self, kernel: KernelOp, schedule: tuple[int, Shape, int], name: str, aliases: Mapping[int, int]):
        self.lanes, self.shape, scratch = schedule
        self.columns = self.shape.vectors * self.lanes
        super().__init__(kernel, name, aliases, scratch)
        self.panel: SSAValue | None = None
        if scratch:
            self.panel = self.b.view(self.scratch, 0, MemRefType(self.packed, [self.k, self.columns]), name="panel")

    @property
    def packed(self) -> Attribute:
        """The type of the elements of a panel."""
        return self.element

    @staticmethod
    def plan(kernel: KernelOp, width: int) -> tuple[int, Shape, int]:
        """Lanes of a vector, the tile, and the bytes of the panel (0 where B is read in place)."""
        anchor = kernel.ops[0]
        assert isinstance(anchor, Matmul)
        itemsize = anchor.result_specs[0].dtype.size
        _, m, k, n = gemm_shape(anchor)
        lanes = width * 4 // itemsize
        shape = _tile_shape(m, n, width, lanes)
        packs = -(-m // shape.rows) >= PACK_FROM and k * n * itemsize > NEAR and n != shape.vectors * lanes
        return lanes, shape, k * shape.vectors * lanes * itemsize if packs else 0

    def build(self) -> Launch:
        b, outer = self.b, self.anchor.result_specs[0].dims[:-2]
        panels = -(-self.n // self.columns)
        batch = 1 if folds(self.anchor) else prod(outer)
        with b.loop(b.lo, b.hi, name="block") as block:
            number, panel = b.divmod(block.iv, panels)
            self.batch = self.coordinates(number, outer) if batch > 1 else [0 for _ in outer]
            left = self.n - (panels - 1) * self.columns
            if left == self.columns:
                self.column_panel(b.mul(panel, self.columns), self.columns)
            elif panels == 1:
                self.column_panel(0, left)
            else:
                last = b.cmpi("eq", panel, b.index(panels - 1))
                with b.when(b.cmpi("ne", panel, b.index(panels - 1))):
                    self.column_panel(b.mul(panel, self.columns), self.columns)
                with b.when(last):
                    self.column_panel((panels - 1) * self.columns, left)
        return self.done(batch * panels)

    def coordinates(self, number: SSAValue, dims: Sequence[int]) -> list[Index]:
        """The batch indices of a block."""
        found: list[Index] = []
        for d in reversed(dims):
            number, index = self.b.divmod(number, d)
            found.insert(0, index)
        return found

    def of_batch(self, value: SSAValue) -> list[Index]:
        """The batch indices of an operand, some of whose dimensions are repeated."""
        dims = memref_type_of(self.inputs[value]).get_shape()[:-2]
        return [0 if d == 1 else i for d, i in zip(dims, self.batch[len(self.batch) - len(dims) :])]

    # -- one panel

    def column_panel(self, column: Index, count: int) -> None:
        """All rows of `count` columns from `column` on."""
        b = self.b
        width = -(-count // self.lanes) * self.lanes
        if self.panel is not None:
            self.pack(self.panel, column, count, width)
        for first, rows, step in cover(self.m, self.shape.rows):
            if rows == step:
                self.tile(first, step, column, count, width)
                continue
            with b.loop(first, first + rows, step, name="m") as m:
                self.tile(m.iv, step, column, count, width)

    def pack(self, panel: SSAValue, column: Index, count: int, width: int) -> None:
        """Copy a panel of B to its memory, with zeros behind its last column."""
        b, source = self.b, self.anchor.operands[1]
        valid = None if count == width else [count]
        with b.loop(0, self.k, name="k") as k:
            at = [*self.of_batch(source), k.iv, column]
            row = b.tile_load(self.inputs[source], at, [len(at) - 1], (width,), valid=valid)
            b.tile_store(row, panel, [k.iv, 0], [1])

    def tile(self, row: Index, rows: int, column: Index, count: int, width: int) -> None:
        """One tile, with its epilogue."""
        b = self.b
        shape = (rows, width)
        acc = b.broadcast(b.const(0.0, self.element), shape)
        unroll = max(1, min(8, MOST_BODY // (rows * (width // self.lanes)), self.k))
        for first, depth, step in cover(self.k, unroll):
            with b.loop(first, first + depth, step, carry=[acc], name="k") as k:
                k.yields(self.products(row, k.iv, rows, step, column, count, width, k.args[0]))
            acc = k.results[0]
        ndim = self.anchor.result_specs[0].ndim
        valid = None if count == width else [rows, count]
        where = TileView([*self.batch, row, column], [ndim - 2, ndim - 1], shape, [1, 1], valid)
        self.finish(where, acc)

    def products(self, row: Index, k: Index, rows: int, depth: int, column: Index, count: int, width: int,
                 acc: SSAValue) -> SSAValue:  # fmt: skip
        """acc + A[row.., k..] x B[k.., column..]."""
        b, (first, second) = self.b, self.anchor.operands
        at = [*self.of_batch(first), row, k]
        left = b.tile_load(self.inputs[first], at, [len(at) - 2, len(at) - 1], (rows, depth))
        if self.panel is not None:
            return self.multiplied(left, b.tile_load(self.panel, [k, 0], [0, 1], (depth, width)), acc)
        at = [*self.of_batch(second), k, column]
        valid = None if count == width else [depth, count]
        right = b.tile_load(self.inputs[second], at, [len(at) - 2, len(at) - 1], (depth, width), valid=valid)
        return self.multiplied(left, right, acc)
