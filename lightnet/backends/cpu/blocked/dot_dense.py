"""Products of matrices of short numbers A x B with B packed at compile time, by `tile.dot`.

The kernel is that of floats (`dense.py`): the steps along K that one product takes lie in four bytes, as a float does,
and count as one. Imports it and the convolutions of integers.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import MemRefType, i32
from xdsl.ir import SSAValue

from lightnet.backends.cpu import gemm
from lightnet.backends.cpu.blocked.base import ProcessorModel
from lightnet.backends.cpu.blocked.conv_model import together_of
from lightnet.backends.cpu.blocked.dense import Dense, PackedProductKernel
from lightnet.backends.cpu.blocked.dot import dot, dot_kind
from lightnet.backends.expressions import has_tile_epilogue
from lightnet.dialects.ln.integer import MatmulInteger
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import Layout, Packed
from lightnet.ir.op import LnOp
from lightnet.ir.refusal import Refusal, begins_otherwise
from lightnet.ir.target import Form


class DotDense(Dense):
    """One product of integers, or of bf16, with a static matrix B [K, N], and elementwise ops on its result."""

    alg = "dots"

    def form(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], machine: ProcessorModel) -> Form | Refusal:
        if not ops or not isinstance(ops[0], MatmulInteger) or dot_kind(ops[0]) is None:
            return begins_otherwise(ops, "a product of types that have one of several")
        a, b = ops[0].operands
        right, shape = ops[0].operand_specs[1], ops[0].result_specs[0]
        if right.ndim != 2 or a is b or shape.len == 0 or right.dims[0] == 0 or right.dims[0] % together_of(ops[0]):
            return Refusal("its second operand is {}, no matrix of its own whose rows fill products", right)
        if any(v in op.operands for v in (a, b) for op in ops[1:]):
            return Refusal("its epilogue reads its factors, too, as they are")
        found = has_tile_epilogue(ops, yielded, gemm.readable(ops[0]))
        return Form({}, frozenset([b]), plain_results=True) if found else Refusal("{}", found)

    def effort(self, kernel: KernelOp) -> float:
        return 1 / together_of(kernel.ops[0])

    def packed(self, columns: int, together: int) -> Layout:
        return Packed("q", columns, together)


class DotDenseKernel(PackedProductKernel):
    """Builds the function of a kernel, whose factors are elements of i32 to it: what one product takes."""

    def describe(self, kernel: KernelOp) -> None:
        super().describe(kernel)
        if self.element == i32:
            self.add, self.nothing = arith.AddiOp, 0

    def memref(self, value: SSAValue) -> MemRefType:
        found = super().memref(value)
        a, b = self.anchor.operands
        if value not in (a, b):
            return found
        *outer, last = found.get_shape()
        return MemRefType(i32, outer if value is b else [*outer, last // together_of(self.anchor)])

    def multiplied(self, a: SSAValue, b: SSAValue, sums: SSAValue) -> SSAValue:
        return dot(self.b, self.anchor, a, b, sums)


DOTS = DotDense(DotDenseKernel)
