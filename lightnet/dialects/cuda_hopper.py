"""The ops of the `cuda` dialect that only sm_90a has: copies by tensor maps (TMA), and products by warpgroups (wgmma);
`cuda_mbarrier.py` has what such copies tell that they are done.

A stage of a product is *rows of 128 bytes* in shared memory, which begin at multiples of 1024 bytes and lie swizzled
(PTX ISA, "128B swizzle"): only `cuda.tma_load` writes them, and only `cuda.warpgroup_mma` reads them, so that no index
ever sees the swizzle. Which parts of a tensor a copy takes is an attribute, `#cuda.tiled` or `#cuda.im2col`; the tensor
map that the device wants for it is made when the kernel is launched, for the memref's place. Names are those of MLIR's
`nvgpu` dialect where it has the op. Imports xDSL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import (
    DenseArrayBase,
    IndexType,
    IntegerAttr,
    MemRefType,
    UnitAttr,
    VectorType,
    f32,
    i64,
)
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, BlockArgument, ParametrizedAttribute, SSAValue
from xdsl.irdl import (
    AnyAttr,
    AttrSizedOperandSegments,
    RangeOf,
    RangeVarConstraint,
    VarConstraint,
    base,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    param_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import AttrParser
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect
from xdsl.utils.exceptions import VerifyException

from lightnet.dialects.cuda_checks import divisor
from lightnet.dialects.cuda_stages import (
    GROUP,
    MOST_PENDING,
    PANEL,
    STAGES_ARCH,
    WARPGROUP_ROWS,
    OnlyOn,
    copied_rows,
    integers_of,
    require_between,
    require_mbarrier,
    require_rows,
    require_same_row,
    require_source,
    require_sums,
    require_warpgroups,
)
from lightnet.dialects.operands import DefinedOp, operand_of
from lightnet.runtime.cuda.tensor_map import MOST_OFFSET, Im2col, TensorMap


def accumulator(cols: int) -> VectorType:
    """The type of a thread's sums of C [64, cols]: element [j, h, i] is that of row 16w + g + 8h and column 8j + 2q +
    i, where the thread is lane 4g + q of warp w of its warpgroup."""
    return VectorType(f32, [cols // 8, 2, 2])


def sum_columns(type: Attribute) -> int:
    """The columns N of C whose sums have a type."""
    assert isinstance(type, VectorType)
    return 8 * type.get_shape()[0]


# ---- copies by tensor maps -------------------------------------------------------------------------------------------


class CopiedAttr(ParametrizedAttribute):
    """The part of a tensor that copies take: an attribute whose parameters all have to be there."""

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        start = parser.pos
        found = parser.parse_paramattr_parameters()
        names = [name for name, _ in cls.get_irdl_definition().parameters]
        if len(found) != len(names):
            text = f"#{cls.name} takes {len(names)} parameters ({', '.join(names)}), got {len(found)}"
            parser.raise_error(text, start, parser.pos)
        return found


@irdl_attr_definition
class TiledAttr(CopiedAttr):
    """A box of a tensor, its extents in the order of the tensor's dimensions: ``#cuda.tiled<array<i64: 1, 128, 64>>``.
    Elements outside of the tensor are zeros."""

    name = "cuda.tiled"

    box: DenseArrayBase = param_def()


@irdl_attr_definition
class Im2colAttr(CopiedAttr):
    """`pixels` windows of a tensor [N, H, W, C], `channels` channels of one tap of each:
    ``#cuda.im2col<128 : i64, 64 : i64, array<i64: -1, -1>, array<i64: -1, -1>, array<i64: 1, 1>>``.

    Windows begin at rows `lower[0]` to H - 1 + `upper[0]`, every `strides[0]` rows, and at columns as well; a window is
    followed by the one beside it, then by the first of the next row of windows, then of the next picture. Elements
    outside of the tensor are zeros.
    """

    name = "cuda.im2col"

    pixels: IntegerAttr = param_def()
    channels: IntegerAttr = param_def()
    lower: DenseArrayBase = param_def()
    upper: DenseArrayBase = param_def()
    strides: DenseArrayBase = param_def()


@irdl_op_definition
class TmaLoadOp(DefinedOp):
    """Begin to copy a part of a tensor to rows of a stage, and tell an mbarrier of the bytes when they are there:

    ``cuda.tma_load %s[%row, %0], %x[%n, %k, %c] by #cuda.tiled<…>, %m[%i] : memref<512x64xf16, 3 : i32>,
    memref<1x4096x4096xf16>, memref<4xi64, 3 : i32>``
    ``cuda.tma_load %s[%row, %0], %x[%n, %y, %x, %c] offsets[%dy, %dx] by #cuda.im2col<…>, %m[%i] : …``

    The source indices are those of the box's first element or, by im2col, of the first window: its picture, the row and
    column of its beginning (which may be outside), and the first channel; `offsets` are those of the tap in the window.
    One thread does it for all. All copies from a memref in a kernel have the same map, and nothing else of the kernel
    reads it.
    """

    name = "cuda.tma_load"

    destination = operand_of(MemRefType)
    destination_indices = var_operand_def(IndexType())
    source = operand_of(MemRefType)
    source_indices = var_operand_def(IndexType())
    offsets = var_operand_def(IndexType())
    barriers = operand_of(MemRefType)
    index = operand_def(IndexType())
    map = prop_def(base(TiledAttr) | base(Im2colAttr))

    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    SYNTAX: ClassVar = (
        "$destination `[` $destination_indices `]` `,` $source `[` $source_indices `]` (`offsets` `[` $offsets^ `]`)? "
        "`by` $map `,`"
        " $barriers `[` $index `]` attr-dict `:` type($destination) `,` type($source) `,` type($barriers)"
    )
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect(), OnlyOn(STAGES_ARCH))

    def verify_(self) -> None:
        require_mbarrier(self, self.barriers, self.index)
        map = tensor_map(self.source.type, self.map)
        require_source(self.source, map, map.im2col.channels if map.im2col else map.box[-1])
        if len(self.source_indices) != len(map.dims):
            raise VerifyException(f"the source: expected {len(map.dims)} indices, got {len(self.source_indices)}")
        if len(self.offsets) != (taps := 2 if map.im2col else 0):
            raise VerifyException(
                f"offsets are those of a tap's row and column, by im2col alone: expected {taps}, got "
                f"{len(self.offsets)}"
            )
        for offset in self.offsets:
            require_between(offset, 0, MOST_OFFSET, "the offset of a tap")
        if len(self.destination_indices) != 2 or divisor(self.destination_indices[1]):
            raise VerifyException("the destination: expected two indices, a row and 0")
        element = require_rows(
            self.destination, self.destination_indices[0], copied_rows(map), GROUP, "the destination"
        )
        if element != self.source.type.element_type:
            raise VerifyException(f"element types differ: {self.destination.type} and {self.source.type}")


def tensor_map(type: MemRefType, taken: TiledAttr | Im2colAttr) -> TensorMap:
    """The part of a memref that copies take, as the data that a driver makes a tensor map of. Raises VerifyException
    where an attribute does not have the numbers that it should.
    """
    dtype, dims = str(type.element_type), tuple(type.get_shape())
    if isinstance(taken, TiledAttr):
        return TensorMap(dtype, dims, integers_of(taken.box, len(dims), "the extents of a box"))
    pairs = [integers_of(part, 2, "of rows and columns") for part in (taken.lower, taken.upper, taken.strides)]
    lower, upper, strides = ((y, x) for y, x in pairs)
    windows = Im2col(taken.pixels.value.data, taken.channels.value.data, lower, upper, strides)
    return TensorMap(dtype, dims, (), windows)


def tensor_maps(function: FuncOp) -> dict[int, TiledAttr | Im2colAttr]:
    """The arguments of a kernel that are tensor maps, by their numbers, and what a copy takes of each: those that a
    `cuda.tma_load` reads."""
    return {
        op.source.index: op.map
        for op in function.walk()
        if isinstance(op, TmaLoadOp) and isinstance(op.source, BlockArgument)
    }


def is_swizzled(memref: SSAValue) -> bool:
    """Return whether shared memory has rows of a stage: whether a copy writes it or a product reads it."""
    ops = [use.operation for use in memref.uses]
    return any(isinstance(op, WarpgroupMmaOp) or (isinstance(op, TmaLoadOp) and op.destination is memref) for op in ops)


# ---- products by warpgroups ------------------------------------------------------------------------------------------


@irdl_op_definition
class WarpgroupMmaOp(DefinedOp):
    """Begin ``D = A B + C`` by a warpgroup, on rows of a stage: A is [64, 64] of f16 or bf16, B [64, N], C and D are
    [64, N] of f32:

    ``%d = cuda.warpgroup_mma %a[%row], %b[%first], %c : memref<512x64xf16, 3 : i32>, memref<512x64xf16, 3 : i32>,
    vector<16x2x2xf32>``

    Row %row + i of %a has the k of row i of A. Row %first + j of %b has the k of column j of B; with ``by_k``, the rows
    %first + 64·p + k have the columns 64·p to 64·p + 63 of row k of B. Both rows are multiples of 8 (by_k: of 64) and
    the same in the warpgroup. A thread has of C what `accumulator` says. D is there behind a `cuda.warpgroup_wait`, as
    is the end of the reads: only that op, another product and the loop around them may take it, once. Products with
    nothing but pure ops between them are begun without a pause.
    """

    name = "cuda.warpgroup_mma"

    _C: ClassVar = VarConstraint("C", AnyAttr())

    a = operand_of(MemRefType)
    row = operand_def(IndexType())
    b = operand_of(MemRefType)
    first = operand_def(IndexType())
    c = operand_of(_C)
    by_k = opt_prop_def(UnitAttr)
    result = result_def(_C)

    SYNTAX: ClassVar = (
        "$a `[` $row `]` `,` $b `[` $first `]` `,` $c (`by_k` $by_k^)? attr-dict `:` type($a) `,` type($b) `,` type($c)"
    )
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect(), OnlyOn(STAGES_ARCH))

    def verify_(self) -> None:
        require_warpgroups(self)
        require_sums([self.c.type])
        cols = sum_columns(self.c.type)
        panels = -(-cols // PANEL) * PANEL
        a = require_rows(self.a, self.row, WARPGROUP_ROWS, GROUP, "A")
        b = require_rows(self.b, self.first, *((cols, GROUP) if self.by_k is None else (panels, PANEL)), "B")
        if a != b:
            raise VerifyException(f"the types of A and B differ: {a} and {b}")
        require_same_row(self.row, "A")
        require_same_row(self.first, "B")


@irdl_op_definition
class WarpgroupWaitOp(DefinedOp):
    """Wait until at most the last `pending` products of this warpgroup are still under way; the sums, of all that may
    be under way:

    ``%e, %f = cuda.warpgroup_wait %c, %d pending 0 : vector<16x2x2xf32>, vector<16x2x2xf32>``
    """

    name = "cuda.warpgroup_wait"

    _T: ClassVar = RangeVarConstraint("T", RangeOf(AnyAttr()))

    sums = var_operand_def(_T)
    pending = prop_def(IntegerAttr.constr(i64))
    res = var_result_def(_T)

    SYNTAX: ClassVar = "$sums `pending` $pending attr-dict `:` type($sums)"
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect(), OnlyOn(STAGES_ARCH))

    def verify_(self) -> None:
        require_warpgroups(self)
        if not self.sums:
            raise VerifyException("it takes the sums that may be under way, and there are none")
        require_sums(self.sums.types)
        if not 0 <= self.pending.value.data <= MOST_PENDING:
            raise VerifyException(
                f"the products still under way are 0 to {MOST_PENDING}, not {self.pending.value.data}"
            )
