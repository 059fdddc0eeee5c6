"""Register-tiled matrix products whose extents a call decides, with an epilogue.

A tile is some rows of A by some vectors of columns of B, as in `gemm.py`; memory has rank 1, and a row is a vector of
its own. The block grid is batch x panels of columns, which a block copies first where many tiles share one: its rows
lie N elements apart. Of the last panel as many vectors are computed as it has, their lanes beyond it neither read nor
written. The last tile lies on the one before; where a result takes the memory of an operand, it would read what is
written there already, and leaves out rows instead. Imports the tiles of static products.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from xdsl.dialects import arith
from xdsl.dialects.builtin import DYNAMIC_INDEX, MemRefType
from xdsl.dialects.vector import FMAOp
from xdsl.ir import SSAValue

from lightnet.backends.builder import Index, flat_index
from lightnet.backends.cpu.gemm import NEAR, PACK_FROM, ProductKernel, folds, readable
from lightnet.backends.cpu.registers import REGISTERS
from lightnet.backends.expressions import TileEvaluator, TileView, has_tile_epilogue
from lightnet.backends.kernel_loops import bind_op
from lightnet.backends.launches import Launch
from lightnet.backends.open_rows import open_rows_of
from lightnet.dataclasses import dataclass
from lightnet.dialects.ln.matmul import Matmul, gemm_shape
from lightnet.ir import bound
from lightnet.ir.kernel import KernelOp
from lightnet.ir.op import LnOp
from lightnet.ir.refusal import Refusal, begins_otherwise
from lightnet.ir.reserved import row_major_dims
from lightnet.ir.types import TensorSpec, flat_memref, spec_of
from lightnet.runtime.dims import Dim, Size, greatest, least, typical
from lightnet.runtime.threads import MAX_THREADS

__all__ = ["accepts", "build", "grid", "readable", "workspace_bytes"]

#: Vectors of a tile's rows, and elements of k that are unrolled.
VECTORS, UNROLL = 2, 4
#: Bytes of the largest panel that is copied.
MOST_PANEL = 1 << 20


def accepts(ops: Sequence[LnOp], yielded: Sequence[SSAValue] = ()) -> bool | Refusal:
    """Return whether the body is one product of floats that is open and not by rows (`open_rows.py`), followed by
    elementwise ops on its result, which make all that is `yielded`."""
    if not ops or not isinstance(ops[0], Matmul):
        return begins_otherwise(ops, "a matmul")
    anchor = ops[0]
    specs = (*anchor.operand_specs, *anchor.result_specs)
    if not any(s.open_dims for s in specs) or specs[2].dtype.name not in ("f32", "f64") or specs[2].dims[-1] == 1:
        return Refusal("no call decides a size of it, it has one column, or it is of {}, not of f32 or f64",
                       specs[2].dtype)  # fmt: skip
    if any(s.len == 0 for s in specs) or open_rows_of([anchor]) is not None:
        return Refusal("calls decide its rows alone, or there is nothing in it")
    if not (found := has_tile_epilogue(ops, yielded, readable(anchor))):
        return found
    return all(map(reads_rows, ops[1:])) or Refusal("its epilogue reads what is no row")


def reads_rows(op: LnOp) -> bool:
    """Return whether consecutive elements of a row of what an elementwise op writes need consecutive ones, or one."""
    (s,) = bind_op(op).statements
    return all(s.subs[-1] not in r.subs[:-1] for r in bound.reads(s.value) if isinstance(s.subs[-1], bound.Idx))


@dataclass(frozen=True)
class OpenTile:
    """A tile: rows x `vectors` of `lanes` columns, and the bytes of a copied panel (0 where B is read in place)."""

    rows: int
    vectors: int
    lanes: int
    panel_bytes: Size

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes


def tile_sizes(rows: int, columns: int, width: int, itemsize: int) -> tuple[int, int, int]:
    """Rows, vectors and lanes of the tile for a result of at most so many rows and columns."""
    lanes = width * 4 // itemsize
    rows = min(rows, 8 if REGISTERS[width] > 16 else 4)
    return rows, min(-(-columns // lanes), VECTORS if rows >= 4 else 2 * VECTORS), lanes


def _tile_of(kernel: KernelOp, width: int) -> OpenTile:
    """The tile for the typical product."""
    anchor = kernel.ops[0]
    assert isinstance(anchor, Matmul)
    itemsize = anchor.result_specs[0].dtype.size
    _, m, k, n = gemm_shape(anchor)
    rows, vectors, lanes = tile_sizes(greatest(m), greatest(n), width, itemsize)
    panel, shared = k * vectors * lanes * itemsize, -(-typical(m) // rows) >= PACK_FROM
    packs = shared and typical(k * n) * itemsize > NEAR and n != vectors * lanes and greatest(panel) <= MOST_PANEL
    return OpenTile(rows, vectors, lanes, panel if packs else 0)


def workspace_bytes(kernel: KernelOp, width: int) -> Size:
    """Bytes of the copied panel of one block."""
    return _tile_of(kernel, width).panel_bytes


def grid(kernel: KernelOp, width: int) -> int:
    """The most blocks that the kernel has, as far as threads are for."""
    return min(greatest(_grid(kernel, _tile_of(kernel, width))), MAX_THREADS)


def _grid(kernel: KernelOp, tile: OpenTile) -> Size:
    anchor = kernel.ops[0]
    assert isinstance(anchor, Matmul)
    batch, _, _, n = gemm_shape(anchor)
    return batch * -(-n // tile.columns)


def build(kernel: KernelOp, name: str, width: int, aliases: Mapping[int, int]) -> Launch:
    """The kernel function. `aliases` maps a result to the operand whose memory it takes."""
    return OpenProducts(kernel, name, _tile_of(kernel, width), aliases).build()


@dataclass(frozen=True)
class _Row(TileView):
    """A row of a tile, whose first element has these `indices`; of its columns, `lanes` are inside (None: all)."""

    lanes: SSAValue | None


class _RowEvaluator(TileEvaluator):
    """Evaluates definitions on rows, where memory is of rank 1."""

    tile: _Row

    def read(self, value: SSAValue, subs: Sequence[bound.Node]) -> SSAValue:
        if value in self.registers:
            return self.registers[value]
        last, row = len(self.dims) - 1, self.tile
        places = [self.position[s.name] if isinstance(s, bound.Idx) else None for s in subs]
        at = flat_index(self.b, row_major_dims(value.type), [0 if p is None else row.indices[p] for p in places])
        steps, lanes = (None, row.lanes) if last in places else ([0], None)
        return self.b.tile_load(self.memory(value), [at], [0], row.shape, steps=steps, lanes=lanes)


class OpenProducts(ProductKernel):
    """Builds one kernel function: rows of A times columns of B in tiles of `shape`."""

    def __init__(self, kernel: KernelOp, name: str, shape: OpenTile, aliases: Mapping[int, int]):
        self.shape = shape
        super().__init__(kernel, name, aliases, self.shape.panel_bytes)
        self.in_place = bool(aliases)
        self.panel: SSAValue | None = None
        if self.shape.panel_bytes != 0:
            type = MemRefType(self.element, [DYNAMIC_INDEX if isinstance(self.k, Dim) else self.k, self.shape.columns])
            self.panel = self.b.view(self.scratch, 0, type, "panel", self.k)

    def describe(self, kernel: KernelOp) -> None:
        super().describe(kernel)
        self.first = self.anchor.operands[0]
        self.pitch: Size = row_major_dims(self.first.type)[-1]  # from a row of A to the next

    def memref(self, value: SSAValue) -> MemRefType:
        return flat_memref(TensorSpec(row_major_dims(value.type), spec_of(value.type).dtype))

    def build(self) -> Launch:
        b, columns, outer = self.b, self.shape.columns, self.anchor.result_specs[0].dims[:-2]
        panels = -(-self.n // columns)
        with b.loop(b.lo, b.hi, name="block") as block:
            number, panel = b.divmod(block.iv, panels)
            folded = folds(self.anchor)
            self.batch: list[Index] = [0 for _ in outer] if folded else self.coordinates(number, outer)
            self.columns_of(b.mul(panel, columns))
        return self.done(_grid(self.kernel, self.shape))

    def columns_of(self, column: SSAValue) -> None:
        """All rows of the panel of columns from `column` on, which may be the last and not full."""
        b, columns = self.b, self.shape.columns
        left = b.op(arith.SubiOp, b.index(self.n), b.index(column))
        if greatest(self.n) >= columns:
            with b.when(b.cmpi("sge", left, b.index(columns))):
                self.column_panel(column, self.shape.vectors, None)
        for vectors in self.rests():
            most = min(vectors * self.shape.lanes, columns - 1)
            some = b.cmpi("sgt", left, b.index((vectors - 1) * self.shape.lanes))
            with b.when(b.op(arith.AndIOp, some, b.cmpi("sle", left, b.index(most)))):
                self.column_panel(column, vectors, left)

    def rests(self) -> Iterator[int]:
        """The vectors that a last panel may have which is not full."""
        rest = self.n % self.shape.columns if isinstance(self.n, int) else None
        for vectors in range(1, self.shape.vectors + 1):
            if rest is None or (vectors - 1) * self.shape.lanes < rest <= vectors * self.shape.lanes:
                yield vectors

    def coordinates(self, number: SSAValue, dims: Sequence[Size]) -> list[Index]:
        """The batch indices of a block."""
        found: list[Index] = []
        for d in dims[:0:-1]:
            number, index = self.b.divmod(number, d)
            found.insert(0, index)
        return [number, *found] if dims else []

    def matrix(self, value: SSAValue) -> SSAValue:
        """The number of the first element of the matrix of an operand, some of whose dims are repeated, times its
        rows."""
        dims = row_major_dims(value.type)
        own = self.batch[len(self.batch) - len(dims[:-2]) :]
        return flat_index(self.b, (*dims[:-2], dims[-2]), [*(0 if d == 1 else i for d, i in zip(dims, own)), 0])

    # -- one panel

    def column_panel(self, column: SSAValue, vectors: int, left: SSAValue | None) -> None:
        """All rows of `vectors` vectors of columns from `column` on, of which `left` columns are inside."""
        b, second, width = self.b, self.anchor.operands[1], vectors * self.shape.lanes
        rows, distance = self.matrix(second), row_major_dims(second.type)[-1]
        source = self.inputs[second]

        def of_b(k: Index) -> SSAValue:
            at = b.add(b.mul(b.add(rows, k), distance), column)
            return b.tile_load(source, [at], [0], (width,), lanes=left)

        if self.panel is None:
            return self.tiles(column, width, left, of_b)
        panel = self.panel
        with b.loop(0, self.k, name="k") as k:
            b.tile_store(of_b(k.iv), panel, [k.iv, 0], [1])
        self.tiles(column, width, left, lambda k: b.tile_load(panel, [k, 0], [1], (width,)))

    def tiles(self, column: SSAValue, width: int, left: SSAValue | None, of_b) -> None:
        b, size = self.b, self.shape.rows
        with b.loop(0, -(-self.m // size), name="tile") as tile:
            first: Index = b.mul(tile.iv, size)
            if not self.in_place:
                first = b.op(arith.MinSIOp, b.index(first), b.index(self.m - size))
                first = b.op(arith.MaxSIOp, first, b.index(0)) if least(self.m) < size else first
            rows = [b.add(first, r) for r in range(size)]
            if self.in_place or least(self.m) < size:  # the last row again, in the place of one behind it
                rows = [rows[0], *(b.op(arith.MinSIOp, row, b.index(self.m - 1)) for row in rows[1:])]
            for r, (row, value) in enumerate(zip(rows, self.products(rows, width, of_b))):
                with self.inside(b.add(first, r) if r else None):
                    at = self.place(row, column)
                    self.finish(_Row(at, [len(at) - 1], (width,), [1], None, left), value)

    def place(self, row: Index, column: Index) -> list[Index]:
        """The indices of an element of the result."""
        return [*self.batch, row, column]

    @contextmanager
    def inside(self, row: SSAValue | None) -> Iterator[None]:
        """The part of the code for a row that may not be there: it must not be written twice in place."""
        if row is None or not self.in_place:
            yield
        else:
            with self.b.when(self.b.cmpi("slt", row, self.b.index(self.m))):
                yield

    def products(self, rows: Sequence[SSAValue], width: int, of_b) -> Sequence[SSAValue]:
        """Rows of A times the columns of B."""
        b, memory = self.b, self.inputs[self.first]
        matrix = self.matrix(self.first)
        starts = [b.mul(b.add(matrix, row), self.pitch) for row in rows]
        sums = self.beginnings(rows, width)
        whole = self.k // UNROLL * UNROLL
        for low, high, step in ((0, whole, UNROLL), (whole, self.k, 1)):
            if low == high:
                continue
            with b.loop(low, high, step, carry=sums, name="k") as k:
                sums = list(k.args)
                for i in range(step):
                    at = b.add(k.iv, i)
                    row_of_b = of_b(at)
                    for r, start in enumerate(starts):
                        factor = b.tile_load(memory, [b.add(start, at)], [0], (width,), steps=[0])
                        sums[r] = b.op(FMAOp, factor, row_of_b, sums[r])
                k.yields(*sums)
            sums = list(k.results)
        return sums

    def beginnings(self, rows: Sequence[SSAValue], width: int) -> list[SSAValue]:
        """The vectors that the sums of rows begin with."""
        return [self.b.broadcast(self.b.const(0.0, self.element), (width,)) for _ in rows]

    # -- the epilogue

    def evaluator(self, tile: _Row) -> TileEvaluator:
        return _RowEvaluator(self.b, tile, self.inputs.__getitem__)

    def put(self, tile: _Row, value: SSAValue, yielded: SSAValue, memref: SSAValue) -> None:
        at = flat_index(self.b, row_major_dims(yielded.type), tile.indices)
        self.b.tile_store(value, memref, [at], [0], lanes=tile.lanes)
