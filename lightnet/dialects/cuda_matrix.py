"""The ops of the `cuda` dialect for tensor cores: `cuda.ldmatrix`, `cuda.mma` and `cuda.round_tf32`.

A warp holds a matrix in *fragments*: each lane has some elements of it, in registers of 32 bits, as the PTX ISA lays
them out ("Matrix Fragments for mma.m16n8k16" and "mma.m16n8k8"). A vector<4x2xf16> is four registers of two elements,
the types and names are those of MLIR's `nvgpu` dialect. Imports xDSL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import (
    BFloat16Type,
    Float16Type,
    Float32Type,
    IndexType,
    IntegerAttr,
    MemRefType,
    UnitAttr,
    VectorType,
    f32,
    i64,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import (
    AnyAttr,
    VarConstraint,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect, Pure
from xdsl.utils.exceptions import VerifyException

from lightnet.dialects.cuda_checks import require_aligned, require_full_warps, require_memref, require_uniform
from lightnet.dialects.operands import DefinedOp, FormattedOp, operand_of

#: Bytes of a row of the 8x8 matrices that `ldmatrix` reads.
MATRIX_ROW = 16
_SHORT = (Float16Type, BFloat16Type)


def fragment(registers: int, element: Attribute) -> VectorType:
    """The type of so many registers of 32 bits of an element type: ``vector<4x2xf16>``, ``vector<4x1xf32>``."""
    return VectorType(element, [registers, 2 if isinstance(element, _SHORT) else 1])


@irdl_op_definition
class LdmatrixOp(FormattedOp):
    """Read 1, 2 or 4 matrices of 8 rows of 16 bytes from shared memory, as fragments:

    ``%a = cuda.ldmatrix %s[%row, %col] tiles 4 : memref<64x40xf16, 3 : i32>, vector<4x2xf16>``

    The lanes 8m to 8m + 7 name the beginnings of the rows of matrix m (the addresses of other lanes are not used), each
    a multiple of 16 bytes. Lane t gets the elements 2(t mod 4) and 2(t mod 4) + 1 of row t / 4 of each, of f32 the
    element t mod 4; with ``trans`` (of 16-bit types) those of column t / 4.
    """

    name = "cuda.ldmatrix"

    memref = operand_of(MemRefType)
    indices = var_operand_def(IndexType())
    tiles = prop_def(IntegerAttr.constr(i64))
    trans = opt_prop_def(UnitAttr)
    result = result_def(VectorType)

    SYNTAX: ClassVar = (
        "$memref `[` $indices `]` `tiles` $tiles (`trans` $trans^)? attr-dict `:` type($memref) `,` type($result)"
    )
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())

    def __init__(
        self, memref: SSAValue | Operation, indices: Sequence[SSAValue | Operation], tiles: int, trans: bool = False
    ):
        type = SSAValue.get(memref).type
        assert isinstance(type, MemRefType)
        super().__init__(
            operands=[memref, indices],
            properties={"tiles": IntegerAttr(tiles, i64), "trans": UnitAttr() if trans else None},
            result_types=[fragment(tiles, type.element_type)],
        )

    def verify_(self) -> None:
        require_full_warps(self)
        require_uniform(self, "warp")
        type = require_memref(self.memref.type, "the matrix", shared=True)
        if len(self.indices) != type.get_num_dims():
            raise VerifyException(f"expected {type.get_num_dims()} indices, got {len(self.indices)}")
        tiles = self.tiles.value.data
        if tiles not in (1, 2, 4):
            raise VerifyException(f"1, 2 or 4 matrices are read at a time, not {tiles}")
        if not isinstance(type.element_type, (*_SHORT, Float32Type)):
            raise VerifyException(f"matrices are of f16, bf16 or f32 (as tf32), not {type.element_type}")
        if self.trans is not None and isinstance(type.element_type, Float32Type):
            raise VerifyException("only matrices of 16-bit elements can be transposed")
        if self.result.type != (expected := fragment(tiles, type.element_type)):
            raise VerifyException(f"{tiles} matrices of {type.element_type} are a {expected}, not {self.result.type}")
        require_aligned(self.memref, self.indices, MATRIX_ROW, "a row")


#: Element type of A and B -> registers of A, registers of B, and the depth of the product: m16n8k16, m16n8k8.
SHAPES: dict[type[Attribute], tuple[int, int, int]] = {
    Float16Type: (4, 2, 16),
    BFloat16Type: (4, 2, 16),
    Float32Type: (4, 2, 8),
}
_ACCUMULATOR = VectorType(f32, [2, 2])


@irdl_op_definition
class MmaOp(DefinedOp):
    """``D = A B + C`` by a warp, on fragments, where A is 16 x k (by rows), B is k x 8 (by columns), C and D are 16 x 8
    of f32:

    ``%d = cuda.mma %a, %b, %c : vector<4x2xf16>, vector<2x2xf16>, vector<2x2xf32>``

    k is 16 of f16 and bf16, and 8 of f32, of which the tensor cores take the leading 19 bits (tf32): `cuda.round_tf32`
    rounds to these.
    """

    name = "cuda.mma"

    _C: ClassVar = VarConstraint("C", AnyAttr())

    a = operand_of(VectorType)
    b = operand_of(VectorType)
    c = operand_of(_C)
    result = result_def(_C)

    SYNTAX: ClassVar = "$a `,` $b `,` $c attr-dict `:` type($a) `,` type($b) `,` type($c)"
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())  # all lanes take part: it stays where it is

    def verify_(self) -> None:
        require_full_warps(self)
        require_uniform(self, "warp")
        element = self.a.type.element_type
        if type(element) not in SHAPES:
            raise VerifyException(f"there are products of f16, bf16 and f32 (as tf32), not of {element}")
        registers_a, registers_b, _ = SHAPES[type(element)]
        expected = (fragment(registers_a, element), fragment(registers_b, element), _ACCUMULATOR)
        if tuple(self.operand_types) != expected:
            given, wanted = (", ".join(map(str, types)) for types in (self.operand_types, expected))
            raise VerifyException(f"the fragments of a product of {element} are {wanted}, not {given}")


@irdl_op_definition
class RoundTf32Op(DefinedOp):
    """f32 rounded to tf32 (10 bits behind the point; ties away from zero), which `cuda.mma` takes:
    ``%y = cuda.round_tf32 %x : f32``."""

    name = "cuda.round_tf32"

    value = operand_def(f32)
    result = result_def(f32)

    SYNTAX: ClassVar = "$value attr-dict `:` type($value)"
    traits = traits_def(Pure())
