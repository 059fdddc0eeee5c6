"""Products of bf16 matrices that the network computes, by `tile.dot`: what attention multiplies.

The kernel is that of floats (`gemm.py`): a pair of steps along K lies in four bytes, as a float does, and counts as
one. In the first factor pairs lie as they are; of the second one, a block copies its panel, two rows at a time, whose
elements become pairs. Imports the plain product, and products by packed matrices.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerType, MemRefType, i32
from xdsl.ir import Attribute, SSAValue

from lightnet.backends.builder import Index
from lightnet.backends.cpu import gemm
from lightnet.backends.cpu.blocked.base import KernelGenerator, ProcessorModel
from lightnet.backends.cpu.blocked.dense_model import best_dense_tile, product_time
from lightnet.backends.cpu.blocked.dot import dot
from lightnet.backends.expressions import has_tile_epilogue
from lightnet.backends.generator import Plan
from lightnet.dialects.ln.integer import MatmulShort
from lightnet.dialects.ln.matmul import gemm_shape
from lightnet.ir.kernel import KernelOp
from lightnet.ir.op import LnOp
from lightnet.ir.refusal import Refusal, begins_otherwise
from lightnet.ir.target import Form

#: Pairs that are made in a nanosecond.
PAIRED = 8.0


class Pairs(KernelGenerator):
    """One product of bf16 matrices, and elementwise ops on its result."""

    alg = "pairs"

    def effort(self, kernel: KernelOp) -> float:
        return 0.5

    def form(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], machine: ProcessorModel) -> Form | Refusal:
        if not ops or not isinstance(ops[0], MatmulShort):
            return begins_otherwise(ops, "a matmul_short")
        (a, b), (left, right) = ops[0].operands, ops[0].operand_specs
        k, n = right.dims[-2:]
        if left.dtype.name != "bf16" or a is b or ops[0].result_specs[0].len == 0 or k == 0 or k % 2 or n < 2:
            return Refusal("its factors are {} and {}, not of bf16, two of them, with pairs along an axis", left, right)
        if any(v in op.operands for v in (a, b) for op in ops[1:]):
            return Refusal("its epilogue reads its factors, too, as they are")
        found = has_tile_epilogue(ops, yielded, gemm.readable(ops[0]))
        return Form({}, plain_results=True) if found else Refusal("{}", found)

    def plan(self, kernel: KernelOp, form: Form, machine: ProcessorModel) -> Plan:
        batch, m, k, n = gemm_shape(kernel.ops[0])
        tile = best_dense_tile(m, n, machine, 2)
        panels, columns = -(-n // (tile[1] * machine.lanes)), tile[1] * machine.lanes
        time = batch * (product_time(m, k // 2, n, tile, machine) + panels * columns * k / 2 / PAIRED)
        schedule = machine.lanes, gemm.Shape(*tile), 2 * k * columns
        return Plan.of(self, kernel, form, time, schedule, scratch_bytes=schedule[2], blocks=batch * panels)


class PairsKernel(gemm.PanelProduct):
    """Builds the function of a kernel, whose factors are pairs to it."""

    def describe(self, kernel: KernelOp) -> None:
        super().describe(kernel)
        self.k //= 2

    @property
    def packed(self) -> Attribute:
        return i32

    def memref(self, value: SSAValue) -> MemRefType:
        found, (a, b) = super().memref(value), self.anchor.operands
        if value is b:
            return MemRefType(IntegerType(16), found.get_shape())
        if value is not a:
            return found
        *outer, last = found.get_shape()
        return MemRefType(i32, [*outer, last // 2])

    def pack(self, panel: SSAValue, column: Index, count: int, width: int) -> None:
        b, source = self.b, self.anchor.operands[1]
        valid, bits = None if count == width else [count], b.broadcast(b.const(16, i32), (width,))

        def row(number: Index) -> SSAValue:
            at = [*self.of_batch(source), number, column]
            found = b.tile_load(self.inputs[source], at, [len(at) - 1], (width,), valid=valid)
            return b.cast("extui", found, i32)

        with b.loop(0, self.k, name="k") as k:
            first = b.mul(k.iv, 2)
            low, high = row(first), b.op(arith.ShLIOp, row(b.add(first, 1)), bits)
            b.tile_store(b.op(arith.OrIOp, low, high), panel, [k.iv, 0], [1])

    def multiplied(self, a: SSAValue, b: SSAValue, sums: SSAValue) -> SSAValue:
        return dot(self.b, self.anchor, a, b, sums)


PAIRS = Pairs(PairsKernel)
