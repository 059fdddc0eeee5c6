"""Matrix products A x B with B packed at compile time: register tiles on panels of B whose columns fill a few vectors.

B, [K, N], lies as [ceil(N/64), K, 64] (`Packed`, ``n64``): a tile of rows by one panel reads it front to back, so no
panel is copied while the network runs (`gemm.py` does that, where B is computed). Where K is so large that a panel
would leave the second-level cache between two tiles, the sums over parts of K are kept in scratch memory (Goto and van
de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008, section 4). Of few rows, whose tiles read B but
once, lines are fetched ahead. `dense_model.py` has the numbers. Imports it, the plain product and the epilogue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from xdsl.dialects import arith
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Operation, SSAValue

from lightnet.backends.builder import Index
from lightnet.backends.cpu import gemm
from lightnet.backends.cpu.blocked.base import KernelGenerator, ProcessorModel, choice_error, choice_ints
from lightnet.backends.cpu.blocked.conv_model import together_of
from lightnet.backends.cpu.blocked.dense_model import DenseSchedule, best_dense_tile, dense_schedule_of, product_time
from lightnet.backends.cpu.blocked.maps import operations
from lightnet.backends.cpu.registers import cover, even
from lightnet.backends.expressions import TileView
from lightnet.backends.generator import Plan
from lightnet.backends.launches import Launch
from lightnet.dialects.ln.integer import MatmulInteger
from lightnet.dialects.ln.matmul import Matmul, gemm_shape
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import Layout, Packed
from lightnet.ir.op import LnOp
from lightnet.ir.refusal import Refusal
from lightnet.ir.target import Form
from lightnet.ir.types import ParamAttr, memref_type_of, spec_of

#: Sums of a tile that a choice may ask for, at most.
MOST_SUMS = 64


class Dense(KernelGenerator):
    """One product of f32 with a static matrix B [K, N], and elementwise ops on its result."""

    alg = "packed"

    def form(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], machine: ProcessorModel) -> Form | Refusal:
        if not (taken := gemm.accepts(ops, yielded)):
            return Refusal("{}", taken)
        anchor = ops[0]
        b = anchor.operands[1]
        spec = spec_of(b.type)
        if spec.ndim != 2 or spec.dtype.name != "f32" or b is anchor.operands[0]:
            return Refusal("its second operand is {}, no matrix of f32 of its own", spec)
        if any(b in op.operands for op in ops[1:]):
            return Refusal("its epilogue reads its weights, too, which would be packed")
        return Form({}, frozenset([b]), plain_results=True)

    def packed(self, columns: int, together: int) -> Layout:
        """The layout of B for panels of so many columns."""
        return Packed("n", columns)

    def plan(self, kernel: KernelOp, form: Form, machine: ProcessorModel) -> Plan:
        _, m, k, n = gemm_shape(_product(kernel))
        together = together_of(kernel.ops[0])
        k, tile = k // together, _tile_of(kernel, machine, together)
        made = dense_schedule_of(m, k, n, tile, machine.lanes, operations(kernel.ops[1:]))
        number = kernel.number_of(kernel.ops[0].operands[1])
        return Plan.of(
            self, kernel, form, product_time(m, k, n, tile, machine), made,
            choices={"tile": ParamAttr(tile)}, weights={number: self.packed(made.columns, together)},
            scratch_bytes=made.scratch,
        )  # fmt: skip


def _tile_of(kernel: KernelOp, machine: ProcessorModel, together: int) -> tuple[int, int]:
    """Rows and vectors of a tile: the kernel's choice if it has one, which must be two numbers (`LightNetError`), or
    the best."""
    given = choice_ints(kernel, "tile", 2)
    if given is None:
        _, m, _, n = gemm_shape(_product(kernel))
        return best_dense_tile(m, n, machine, together)
    if min(given) < 1 or given[0] * given[1] > MOST_SUMS:
        message = f"tile = {list(given)}: a product takes [rows, vectors] of at most {MOST_SUMS} sums"
        raise choice_error(kernel, "dense.tile", message)
    return given[0], given[1]


def _product(kernel: KernelOp) -> Matmul | MatmulInteger:
    anchor = kernel.ops[0]
    assert isinstance(anchor, Matmul | MatmulInteger)
    return anchor


class PackedProductKernel(gemm.ProductKernel):
    """Builds one kernel function. The grid is bands of rows x panels."""

    add: type[Operation] = arith.AddfOp
    nothing: float = 0.0

    def __init__(self, kernel: KernelOp, schedule: DenseSchedule, name: str, aliases: Mapping[int, int]):
        self.schedule, self.lanes, columns = schedule, schedule.lanes, schedule.columns
        super().__init__(kernel, name, aliases, schedule.scratch)
        if schedule.scratch:
            type = MemRefType(self.element, [schedule.scratch // (4 * columns), columns])
            self.sums = self.b.view(self.scratch, 0, type, name="sums")

    def build(self) -> Launch:
        b, schedule = self.b, self.schedule
        with b.loop(b.lo, b.hi, name="block") as block:
            band, panel = b.divmod(block.iv, schedule.panels)  # the rows of A stay near while the panels pass
            if schedule.cuts == 1:
                self.rows(panel, band, 0)
            else:
                with b.loop(0, schedule.cuts, name="cut") as cut:
                    self.rows(panel, band, cut.iv)
        return self.done(schedule.panels * schedule.bands)

    def rows(self, panel: Index, band: Index, cut: Index) -> None:
        """All tiles of a band of rows, on one part of a panel. `even` parts of rows have tiles of one size each."""
        b, bands, waiting = self.b, self.schedule.bands, 0
        for first, count, size in even(self.m, self.schedule.rows):
            tiles = count // size
            if tiles == 1 and bands == 1:
                self.tile(panel, first, waiting, size, cut)
            else:
                start, end = (b.divmod(b.mul(b.add(band, k), tiles), bands)[0] for k in (0, 1))
                with b.loop(start, end, name="t") as t:
                    rest = b.op(arith.SubiOp, t.iv, start) if b.number(start) != 0 else t.iv
                    self.tile(panel, b.add(b.mul(t.iv, size), first), b.add(b.mul(rest, size), waiting), size, cut)
            waiting += -(-tiles // bands) * size

    def tile(self, panel: Index, row: Index, waiting: Index, rows: int, cut: Index) -> None:
        """One tile: its sum over one part of K, which waits at row `waiting` of the scratch memory until the last part
        is there."""
        b, schedule = self.b, self.schedule
        zero, shape = self.zeros(rows), (rows, schedule.columns)
        if schedule.cuts == 1:
            self.finished(panel, row, rows, self.summed(panel, row, rows, 0, zero), 0)
            return
        where = [waiting, 0]
        begins = b.cmpi("eq", b.index(cut), b.index(0))
        (start,) = b.choose(begins, lambda: [zero], lambda: [b.tile_load(self.sums, where, [0, 1], shape)])
        total = self.summed(panel, row, rows, b.mul(cut, schedule.depth), start)
        with b.when(b.cmpi("ne", b.index(cut), b.index(schedule.cuts - 1))):
            b.tile_store(total, self.sums, where, [0, 1])
        with b.when(b.cmpi("eq", b.index(cut), b.index(schedule.cuts - 1))):
            self.finished(panel, row, rows, total, waiting)

    def zeros(self, rows: int) -> SSAValue:
        """The first sums of a tile."""
        return self.b.broadcast(self.b.const(self.nothing, self.element), (rows, self.schedule.columns))

    def finished(self, panel: Index, row: Index, rows: int, value: SSAValue, waiting: Index) -> None:
        """The epilogue of a tile, by rows from row `waiting` of the scratch memory where it is long; the last panel may
        have fewer columns."""
        b, schedule = self.b, self.schedule
        if not schedule.by_rows:
            self.columns(panel, row, rows, value)
            return
        b.tile_store(value, self.sums, [waiting, 0], [0, 1])
        with b.loop(0, rows, name="r") as r:
            one = b.tile_load(self.sums, [b.add(r.iv, waiting), 0], [0, 1], (1, schedule.columns))
            self.columns(panel, b.add(r.iv, row), 1, one)

    def columns(self, panel: Index, row: Index, rows: int, value: SSAValue) -> None:
        """The epilogue of rows of a tile."""
        b, schedule = self.b, self.schedule
        ndim = self.anchor.result_specs[0].ndim
        left = self.n - (schedule.panels - 1) * schedule.columns

        def finish(column: Index, count: int) -> None:
            valid = None if count == schedule.columns else [rows, count]
            where = [*(0 for _ in range(ndim - 2)), row, column]
            self.finish(TileView(where, [ndim - 2, ndim - 1], (rows, schedule.columns), [1, 1], valid), value)

        if left == schedule.columns or schedule.panels == 1:
            finish(b.mul(panel, schedule.columns) if schedule.panels > 1 else 0, left)
            return
        with b.when(b.cmpi("ne", b.index(panel), b.index(schedule.panels - 1))):
            finish(b.mul(panel, schedule.columns), schedule.columns)
        with b.when(b.cmpi("eq", b.index(panel), b.index(schedule.panels - 1))):
            finish((schedule.panels - 1) * schedule.columns, left)

    def summed(self, panel: Index, row: Index, rows: int, start: Index, acc: SSAValue) -> SSAValue:
        """`acc` + A[row.., start..] x the panel's rows from `start` on, as far as one part of K goes."""
        b, schedule, matrix = self.b, self.schedule, self.inputs[self.anchor.operands[1]]
        steps, parts = schedule.trip(rows)
        for first, count, step in cover(schedule.depth, steps):
            cuts = [step * i // min(parts, step) for i in range(min(parts, step) + 1)]
            with b.loop(first, first + count, step, carry=[acc, *(self.zeros(rows) for _ in cuts[2:])], name="k") as k:
                at = b.add(k.iv, start)
                if schedule.ahead:
                    b.prefetch(matrix, [panel, b.add(at, schedule.ahead), 0], 4 * step * schedule.columns)
                pieces = zip(pairwise(cuts), k.args)
                k.yields(*(self.products(panel, row, rows, b.add(at, i), j - i, sums) for (i, j), sums in pieces))
            acc, *others = k.results
            for sums in others:
                acc = b.op(self.add, acc, sums)
        return acc

    def products(self, panel: Index, row: Index, rows: int, k: Index, depth: int, acc: SSAValue) -> SSAValue:
        """acc + A[row.., k..] x B[k.., panel]."""
        b, (first, second) = self.b, self.anchor.operands
        left, right = self.inputs[first], self.inputs[second]
        ndim = memref_type_of(left).get_num_dims()
        where = [*(0 for _ in range(ndim - 2)), row, k]
        a = b.tile_load(left, where, [ndim - 2, ndim - 1], (rows, depth))
        return self.multiplied(a, b.tile_load(right, [panel, k, 0], [1, 2], (depth, self.schedule.columns)), acc)


DENSE = Dense(PackedProductKernel)
