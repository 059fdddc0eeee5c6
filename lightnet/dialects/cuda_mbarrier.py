"""Mbarriers, which threads and copies arrive at and threads wait for: ops of the `cuda` dialect that only sm_90a has
(`cuda_hopper.py`).

An mbarrier counts arrivals, and bytes that copies still have to bring. When none of either is missing, its phase ends:
whoever waits for that phase goes on, and the counts start again. Phases are told apart by their parity, 0 for the
first. An mbarrier is an element of an allocation of i64 in shared memory. Names are those of MLIR's `nvgpu` dialect
where it has the op. Imports xDSL.
"""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects.builtin import IndexType, IntegerAttr, MemRefType, i64
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, traits_def
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect
from xdsl.utils.exceptions import VerifyException

from lightnet.dialects.cuda_checks import require_kernel
from lightnet.dialects.cuda_stages import MOST_EXPECTED, STAGES_ARCH, OnlyOn, require_between, require_mbarrier
from lightnet.dialects.operands import DefinedOp


@irdl_op_definition
class MbarrierInitOp(DefinedOp):
    """Make an mbarrier whose phases end with `count` arrivals:
    ``cuda.mbarrier_init %m[%i] count 8 : memref<4xi64, 3 : i32>``.

    One thread does it, once; others (and copies) may use the mbarrier behind that thread's `cuda.mbarrier_fence` and a
    `cuda.barrier`.
    """

    name = "cuda.mbarrier_init"

    barriers = operand_def(MemRefType)
    index = operand_def(IndexType())
    arrivals = prop_def(IntegerAttr.constr(i64), prop_name="count")

    SYNTAX: ClassVar = "$barriers `[` $index `]` `count` $count attr-dict `:` type($barriers)"
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect(), OnlyOn(STAGES_ARCH))

    def verify_(self) -> None:
        require_mbarrier(self, self.barriers, self.index)
        if not 1 <= self.arrivals.value.data <= MOST_EXPECTED:
            raise VerifyException(f"a phase waits for 1 to {MOST_EXPECTED} arrivals, not {self.arrivals.value.data}")


@irdl_op_definition
class MbarrierFenceOp(DefinedOp):
    """Let copies see the mbarriers that this thread made: ``cuda.mbarrier_fence``."""

    name = "cuda.mbarrier_fence"

    SYNTAX: ClassVar = "attr-dict"
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect(), OnlyOn(STAGES_ARCH))

    def verify_(self) -> None:
        require_kernel(self)


@irdl_op_definition
class MbarrierExpectOp(DefinedOp):
    """Arrive at an mbarrier, and add to the bytes that its phase waits for:
    ``cuda.mbarrier_expect %m[%i], %bytes : memref<4xi64, 3 : i32>``."""

    name = "cuda.mbarrier_expect"

    barriers = operand_def(MemRefType)
    index = operand_def(IndexType())
    bytes = operand_def(IndexType())

    SYNTAX: ClassVar = "$barriers `[` $index `]` `,` $bytes attr-dict `:` type($barriers)"
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect(), OnlyOn(STAGES_ARCH))

    def verify_(self) -> None:
        require_mbarrier(self, self.barriers, self.index)
        require_between(self.bytes, 0, MOST_EXPECTED, "the number of bytes that a phase waits for")


@irdl_op_definition
class MbarrierArriveOp(DefinedOp):
    """Arrive at an mbarrier: what the thread did before has been done for those who wait for the phase:
    ``cuda.mbarrier_arrive %m[%i] : memref<4xi64, 3 : i32>``."""

    name = "cuda.mbarrier_arrive"

    barriers = operand_def(MemRefType)
    index = operand_def(IndexType())

    SYNTAX: ClassVar = "$barriers `[` $index `]` attr-dict `:` type($barriers)"
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect(), OnlyOn(STAGES_ARCH))

    def verify_(self) -> None:
        require_mbarrier(self, self.barriers, self.index)


@irdl_op_definition
class MbarrierWaitOp(DefinedOp):
    """Wait until the phase of parity %p (0 or 1) has ended: ``cuda.mbarrier_wait %m[%i], %p : memref<4xi64, 3 : i32>``.

    The parity before the first phase counts as 1: to wait for it is not to wait.
    """

    name = "cuda.mbarrier_wait"

    barriers = operand_def(MemRefType)
    index = operand_def(IndexType())
    parity = operand_def(IndexType())

    SYNTAX: ClassVar = "$barriers `[` $index `]` `,` $parity attr-dict `:` type($barriers)"
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect(), OnlyOn(STAGES_ARCH))

    def verify_(self) -> None:
        require_mbarrier(self, self.barriers, self.index)
        require_between(self.parity, 0, 1, "the parity of a phase")
