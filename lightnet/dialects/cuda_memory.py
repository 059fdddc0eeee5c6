"""The ops of the `cuda` dialect that copy from global to shared memory without waiting.

Copies are made in groups: each thread collects copies, closes the group with `cuda.async_commit`, and waits with
`cuda.async_wait` until all but its last groups are there. Other threads see the bytes after a barrier behind that.
Imports xDSL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import FixedBitwidthType, IndexType, IntegerAttr, MemRefType, i64
from xdsl.ir import SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    irdl_op_definition,
    opt_operand_def,
    prop_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect
from xdsl.utils.exceptions import VerifyException

from lightnet.dialects.cuda_checks import require_aligned, require_kernel, require_memref
from lightnet.dialects.operands import DefinedOp, operand_of

#: Bytes that one thread may copy at a time.
SIZES = (4, 8, 16)
#: Groups of copies that may be waited for.
MAX_GROUPS = 63


@irdl_op_definition
class AsyncCopyOp(DefinedOp):
    """Begin to copy `bytes` bytes (4, 8 or 16) of global memory to shared memory:

    ``cuda.async_copy %s[%i, %j], %x[%a, %b] bytes 16 size %n : memref<64x32xf32, 3 : i32>, memref<128x64xf32>``

    With ``size`` only the first %n bytes, 0 to `bytes`, are read, and zeros stand for the others; with none read, the
    source may lie outside. Both addresses are multiples of `bytes`. The bytes are there after `cuda.async_wait`.
    """

    name = "cuda.async_copy"

    destination = operand_of(MemRefType)
    destination_indices = var_operand_def(IndexType())
    source = operand_of(MemRefType)
    source_indices = var_operand_def(IndexType())
    size = opt_operand_def(IndexType())
    bytes = prop_def(IntegerAttr.constr(i64))

    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    SYNTAX: ClassVar = (
        "$destination `[` $destination_indices `]` `,` $source `[` $source_indices `]` `bytes` $bytes (`size` $size^)?"
        " attr-dict `:` type($destination) `,` type($source)"
    )
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())

    def verify_(self) -> None:
        require_kernel(self)
        if self.bytes.value.data not in SIZES:
            raise VerifyException(f"a thread copies 4, 8 or 16 bytes, not {self.bytes.value.data}")
        ends = (
            ("the destination", self.destination, self.destination_indices, True),
            ("the source", self.source, self.source_indices, False),
        )
        for what, value, indices, shared in ends:
            self._verify_end(what, value, require_memref(value.type, what, shared), indices)
        if self.destination.type.element_type != self.source.type.element_type:
            raise VerifyException(f"element types differ: {self.destination.type} and {self.source.type}")

    def _verify_end(self, what: str, value: SSAValue, type: MemRefType, indices: Sequence[SSAValue]) -> None:
        if len(indices) != type.get_num_dims():
            raise VerifyException(f"{what}: expected {type.get_num_dims()} indices, got {len(indices)}")
        if not isinstance(type.element_type, FixedBitwidthType) or self.bytes.value.data % type.element_type.size:
            raise VerifyException(f"{what}: {self.bytes.value.data} bytes are no whole number of {type.element_type}")
        require_aligned(value, indices, self.bytes.value.data, what)


@irdl_op_definition
class AsyncCommitOp(DefinedOp):
    """Close the group of copies that this thread began since the last one: ``cuda.async_commit``."""

    name = "cuda.async_commit"

    SYNTAX: ClassVar = "attr-dict"
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())

    def verify_(self) -> None:
        require_kernel(self)


@irdl_op_definition
class AsyncWaitOp(DefinedOp):
    """Wait until at most the last `groups` groups of copies of this thread are still on their way:
    ``cuda.async_wait 1``."""

    name = "cuda.async_wait"

    groups = prop_def(IntegerAttr.constr(i64))

    SYNTAX: ClassVar = "$groups attr-dict"
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())

    def verify_(self) -> None:
        require_kernel(self)
        if not 0 <= self.groups.value.data <= MAX_GROUPS:
            raise VerifyException(f"the groups still on their way are 0 to {MAX_GROUPS}, not {self.groups.value.data}")
