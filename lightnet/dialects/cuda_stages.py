"""The questions that the verifiers of `cuda_hopper` and `cuda_mbarrier` ask of one op: where mbarriers and the rows of
stages stand, and what a copy may take of a tensor.

What has to hold of a whole kernel is in `cuda_flight.py`. Imports xDSL and `cuda_checks`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeGuard

from xdsl.dialects import arith
from xdsl.dialects.builtin import (
    BFloat16Type,
    DenseArrayBase,
    Float16Type,
    IntegerAttr,
    IntegerType,
    VectorType,
    f32,
    i64,
)
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue
from xdsl.traits import OpTrait
from xdsl.utils.exceptions import VerifyException

from lightnet.diagnostics import LightNetError
from lightnet.dialects.cuda_checks import (
    WARP_UNIFORM,
    divergence,
    divisor,
    require_aligned,
    require_kernel,
    require_memref,
    require_uniform,
)
from lightnet.runtime.cuda.tensor_map import MAP_PIECE, SWIZZLED_ROW, TensorMap, check_tensor_map

#: The architecture that has the ops: later ones have not.
STAGES_ARCH = "sm_90a"
#: Bytes within which rows are swizzled, and so what divides the address of a stage.
SWIZZLED = 1024
#: Rows in them.
GROUP = SWIZZLED // SWIZZLED_ROW
#: Elements of 16 bits in a row of a stage: the k of a stage and, by_k, the columns of B that lie beside each other.
PANEL = SWIZZLED_ROW // 2
#: Threads of a warpgroup, rows of C that it multiplies at a time, and most columns.
WARPGROUP, WARPGROUP_ROWS, MOST_COLS = 128, 64, 256
#: Arrivals, and bytes, that a phase of an mbarrier may wait for (PTX ISA, "mbarrier").
MOST_EXPECTED = (1 << 20) - 1
#: Products that may be waited for: SASS counts no further.
MOST_PENDING = 7


@dataclass(frozen=True)
class OnlyOn(OpTrait):
    """The op is of one architecture: kernels for any other, later ones too, cannot have it."""

    arch: str


def require_between(value: SSAValue, least: int, most: int, what: str) -> None:
    """Raises VerifyException for a constant index that is out of bounds; of others nothing is known."""
    number = constant_index(value)
    if number is not None and not least <= number <= most:
        raise VerifyException(f"{what} is {least} to {most}, not {number}")


def constant_index(value: SSAValue) -> int | None:
    """The number that an index is, if it is a constant."""
    op = value.owner
    if isinstance(op, arith.ConstantOp) and isinstance(op.value, IntegerAttr):
        return op.value.value.data
    return None


def _allocated(memref: SSAValue, what: str) -> None:
    if not isinstance(memref.owner, Operation) or memref.owner.name != "cuda.shared":
        raise VerifyException(f"{what}: expected the result of a cuda.shared itself")


# ---- mbarriers -----------------------------------------------------------------------------------------------------


def require_mbarrier(op: Operation, barriers: SSAValue, index: SSAValue) -> None:
    """Raises VerifyException unless an op of a kernel names an mbarrier: an element of an allocation of i64 in shared
    memory, of rank 1."""
    require_kernel(op)
    type = require_memref(barriers.type, "the mbarriers", shared=True)
    if type.element_type != i64 or type.get_num_dims() != 1:
        raise VerifyException(f"mbarriers are a memref<…xi64> of one dimension in shared memory, not {type}")
    _allocated(barriers, "the mbarriers")
    require_between(index, 0, type.get_shape()[0] - 1, "an mbarrier's index")


# ---- stages --------------------------------------------------------------------------------------------------------


def require_rows(memref: SSAValue, row: SSAValue, rows: int, multiple: int, what: str) -> Attribute:
    """The element type of a stage. Raises VerifyException unless `memref` is an allocation [n, 64] of f16 or bf16 in
    shared memory, which has `rows` rows from `row` on, and `row` is proven to be a multiple of `multiple`."""
    type = require_memref(memref.type, what, shared=True)
    if (
        type.get_num_dims() != 2
        or type.get_shape()[1] != PANEL
        or not isinstance(type.element_type, Float16Type | BFloat16Type)
    ):
        raise VerifyException(
            f"{what}: expected rows of {SWIZZLED_ROW} bytes of f16 or bf16, memref<…x{PANEL}x…, 3 : i32>, got {type}"
        )
    _allocated(memref, what)
    most = type.get_shape()[0] - rows
    if most < 0:
        raise VerifyException(f"{what}: {rows} rows are taken, and {type} has {type.get_shape()[0]}")
    require_between(row, 0, most, f"{what}: the first of {rows} rows")
    if divisor(row) % multiple:
        raise VerifyException(
            f"{what}: the first row has to be a multiple of {multiple}, and what is known of it makes it one of "
            f"{divisor(row)}"
        )
    return type.element_type


# ---- copies by tensor maps -------------------------------------------------------------------------------------------


def require_source(source: SSAValue, map: TensorMap, row_elements: int) -> None:
    """Raises VerifyException unless a driver makes a map for `source`, an argument of a kernel, and the map's rows are
    those of a stage."""
    require_memref(source.type, "the source", shared=False)
    if not isinstance(source, BlockArgument) or not isinstance(source.block.parent_op(), FuncOp):
        raise VerifyException("the source: expected an argument of the kernel, for which a tensor map is made")
    if len(map.dims) < 2:
        raise VerifyException(f"the source: a tensor of 2 to 5 dimensions is copied, not one of {len(map.dims)}")
    require_aligned(source, [], MAP_PIECE, "the source")
    try:
        check_tensor_map(0, map)
    except LightNetError as error:
        raise VerifyException(error.message) from None
    if row_elements != PANEL:
        raise VerifyException(
            f"rows of a stage have {PANEL} elements, and the map takes {row_elements} along the last dimension"
        )


def copied_rows(map: TensorMap) -> int:
    """The rows of a stage that one copy writes."""
    return map.im2col.pixels if map.im2col else prod(map.box[:-1])


def _has_integers(array: DenseArrayBase) -> TypeGuard[DenseArrayBase[IntegerType]]:
    return isinstance(array.elt_type, IntegerType)


def integers_of(array: DenseArrayBase, count: int | None, what: str) -> tuple[int, ...]:
    """The integers of an attribute. Raises VerifyException where it has others, or not `count`."""
    values = array.get_values() if _has_integers(array) else None
    if values is None or count not in (None, len(values)):
        raise VerifyException(f"{what}: expected {'' if count is None else f'{count} '}integers, got {array}")
    return tuple(map(int, values))


# ---- products ------------------------------------------------------------------------------------------------------


def require_warpgroups(op: Operation) -> None:
    """Raises VerifyException unless all warpgroups of the kernel have all their threads, and come to `op` together."""
    block = require_kernel(op)
    if prod(block) % WARPGROUP:
        raise VerifyException(
            f"all threads of a warpgroup take part: a block of {prod(block)} threads is no multiple of {WARPGROUP}"
        )
    require_uniform(op, "block")


def require_same_row(row: SSAValue, what: str) -> None:
    """Raises VerifyException if threads of one warp may name different rows."""
    level, witness = divergence(row)
    if level > WARP_UNIFORM:
        raise VerifyException(f"{what}: the first row is the same in a warpgroup, and this one depends on {witness}")


def require_sums(types: Sequence[Attribute]) -> None:
    """Raises VerifyException unless each type is that of a thread's sums of C."""
    for type in types:
        shape = type.get_shape() if isinstance(type, VectorType) and type.element_type == f32 else ()
        if len(shape) != 3 or shape[1:] != (2, 2) or not 1 <= shape[0] <= MOST_COLS // 8:
            raise VerifyException(
                f"sums of C are a vector<n x 2 x 2 x f32>, n a part of 8 columns and at most {MOST_COLS // 8}, not "
                f"{type}"
            )
