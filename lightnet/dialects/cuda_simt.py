"""The ops of the `cuda` dialect that concern threads: where a thread stands, barriers, shuffles, and shared memory.

Imports xDSL and the numbers of the machine (`cuda_checks`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects import func
from xdsl.dialects.builtin import Float32Type, IndexType, MemRefType, i32
from xdsl.dialects.utils import EnumAttribute
from xdsl.ir import Attribute, SpacedOpaqueSyntaxAttribute
from xdsl.irdl import (
    AnyOf,
    BaseAttr,
    EqAttrConstraint,
    VarConstraint,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect, Pure
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.str_enum import StrEnum

from lightnet.dialects.cuda_checks import (
    ARCHS,
    SHARED,
    require_full_warps,
    require_kernel,
    require_memref,
    require_uniform,
)
from lightnet.dialects.launch import memref_bytes
from lightnet.dialects.operands import DefinedOp, FormattedOp


class GridAxis(StrEnum):
    """A dimension of a grid or a block."""

    X = "x"
    Y = "y"
    Z = "z"


@irdl_attr_definition
class DimAttr(EnumAttribute[GridAxis], SpacedOpaqueSyntaxAttribute):
    """``x``, ``y`` or ``z``."""

    name = "cuda.dim"


class _IdOp(FormattedOp):
    """A number of a thread or a block along a dimension, or how many there are."""

    dim = prop_def(DimAttr)
    result = result_def(IndexType)

    SYNTAX: ClassVar = "$dim attr-dict"
    traits = traits_def(Pure())

    def __init__(self, dim: GridAxis | str = GridAxis.X):
        super().__init__(properties={"dim": DimAttr(GridAxis(dim))}, result_types=[IndexType()])

    def result_hint(self) -> str:
        """The name of a result that has none: ``thread_id.x``."""
        return f"{self.name.removeprefix('cuda.')}.{self.dim.data.value}"


@irdl_op_definition
class ThreadIdOp(_IdOp):
    """The number of the thread in its block: ``%t = cuda.thread_id x``."""

    name = "cuda.thread_id"


@irdl_op_definition
class BlockIdOp(_IdOp):
    """The number of the block in its grid: ``%b = cuda.block_id x``."""

    name = "cuda.block_id"


@irdl_op_definition
class BlockDimOp(_IdOp):
    """The threads of a block: ``%n = cuda.block_dim x``."""

    name = "cuda.block_dim"


@irdl_op_definition
class GridDimOp(_IdOp):
    """The blocks of the grid: ``%n = cuda.grid_dim x``."""

    name = "cuda.grid_dim"


class _WarpOp(FormattedOp):
    result = result_def(IndexType)

    SYNTAX: ClassVar = "attr-dict"
    traits = traits_def(Pure())

    def __init__(self):
        super().__init__(result_types=[IndexType()])

    def result_hint(self) -> str:
        """The name of a result that has none."""
        return self.name.removeprefix("cuda.")


@irdl_op_definition
class LaneIdOp(_WarpOp):
    """The number of the thread in its warp, 0 to 31: ``%l = cuda.lane_id``."""

    name = "cuda.lane_id"


@irdl_op_definition
class WarpIdOp(_WarpOp):
    """The number of the warp in its block: ``%w = cuda.warp_id``. The 32 threads of a warp have consecutive numbers (x
    fastest)."""

    name = "cuda.warp_id"


@irdl_op_definition
class BarrierOp(DefinedOp):
    """Wait for all threads of the block: what they wrote before it, they read behind it. ``cuda.barrier``"""

    name = "cuda.barrier"

    SYNTAX: ClassVar = "attr-dict"
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())

    def verify_(self) -> None:
        require_kernel(self)
        require_uniform(self, "block")


class Shuffle(StrEnum):
    """The lane that a lane reads from: its number xor, plus (down) or minus (up) the operand, or the operand (idx)."""

    XOR = "xor"
    UP = "up"
    DOWN = "down"
    IDX = "idx"


@irdl_attr_definition
class ShuffleAttr(EnumAttribute[Shuffle], SpacedOpaqueSyntaxAttribute):
    """``xor``, ``up``, ``down`` or ``idx``."""

    name = "cuda.shuffle_mode"


@irdl_op_definition
class ShuffleOp(DefinedOp):
    """The value of another lane of the warp: ``%y = cuda.shuffle xor %x, %c16 : f32``.

    A lane that would read beyond the warp (`up`, `down`) gets its own value; of `idx` and `xor` the low 5 bits count.
    """

    name = "cuda.shuffle"

    _T: ClassVar = VarConstraint("T", AnyOf((BaseAttr(Float32Type), EqAttrConstraint(i32))))

    mode = prop_def(ShuffleAttr)
    value = operand_def(_T)
    lane = operand_def(IndexType())
    result = result_def(_T)

    SYNTAX: ClassVar = "$mode $value `,` $lane attr-dict `:` type($value)"
    # It waits for the other lanes: nobody may move it to where some of them are not.
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())

    def verify_(self) -> None:
        require_full_warps(self)
        require_uniform(self, "warp")


@irdl_op_definition
class SharedOp(FormattedOp):
    """Memory that the threads of a block share, for as long as the block runs:
    ``%s = cuda.shared : memref<64x17xf32, 3 : i32>``.

    Its bytes are aligned to 128 (rows of a stage, which `cuda.tma_load` writes, to 1024) and hold nothing yet. It
    stands in the outermost block of a kernel.
    """

    name = "cuda.shared"

    result = result_def(MemRefType)

    SYNTAX: ClassVar = "attr-dict `:` type($result)"
    traits = traits_def(MemoryWriteEffect())

    def __init__(self, shape: Sequence[int], element_type: Attribute):
        super().__init__(result_types=[MemRefType(element_type, shape, memory_space=SHARED)])

    def result_hint(self) -> str:
        """The name of a result that has none."""
        return "shared"

    def verify_(self) -> None:
        require_kernel(self)
        require_memref(self.result.type, "cuda.shared", shared=True)
        if not isinstance(self.parent_op(), func.FuncOp):
            raise VerifyException("shared memory is allocated in the outermost block of a kernel")
        size, most = memref_bytes(self.result.type), max(ARCHS.values())
        if not 0 < size <= most:
            raise VerifyException(f"{size} bytes of shared memory: a block has between 1 and {most}")
