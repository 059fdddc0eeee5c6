"""The ops of the `tile` dialect that touch memory: `tile.load`, `tile.store` and `tile.prefetch`, and what a memref is
at level 4. Imports xDSL."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import ClassVar, NamedTuple

from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    DenseArrayBase,
    IndexType,
    IntegerAttr,
    MemRefType,
    NoneAttr,
    UnitAttr,
    VectorType,
    i64,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    irdl_op_definition,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect
from xdsl.utils.exceptions import VerifyException

from lightnet.dialects.operands import FormattedOp, operand_of
from lightnet.ir.printer import part_of

#: Bytes that one `tile.prefetch` may name.
MAX_PREFETCH = 1 << 16


class _Slice(NamedTuple):
    """A strided slice: vector dimension d walks memref dimension `dims[d]` by `steps[d]`; only `valid[d]` of it is
    touched."""

    shape: tuple[int, ...]
    dims: tuple[int, ...]
    steps: tuple[int, ...]
    valid: tuple[int, ...]


class _Access(FormattedOp):
    """The common part of `tile.load` and `tile.store`: the slice."""

    memref = operand_of(MemRefType)
    indices = var_operand_def(IndexType())
    lanes = opt_operand_def(IndexType())
    dims = prop_def(DenseArrayBase.constr(i64))
    steps = opt_prop_def(DenseArrayBase.constr(i64))
    valid = opt_prop_def(DenseArrayBase.constr(i64))

    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    def slice(self) -> _Slice:
        """The slice as plain numbers, defaults filled in."""
        shape = self._vector_type().get_shape()
        steps, valid = self.steps, self.valid
        return _Slice(
            shape,
            self.dims.get_values(),
            steps.get_values() if steps is not None else (1,) * len(shape),
            valid.get_values() if valid is not None else shape,
        )

    def _vector_type(self) -> VectorType:
        raise NotImplementedError

    def _verify_slice(self, writes: bool) -> None:
        memref, vector = self.memref.type, self._vector_type()
        _verify_memref(memref)
        if memref.element_type != vector.element_type:
            raise VerifyException(f"element types differ: {memref} and {vector}")
        if len(self.indices) != memref.get_num_dims():
            raise VerifyException(f"expected {memref.get_num_dims()} indices, got {len(self.indices)}")
        shape, dims, steps, valid = self.slice()
        if not len(shape) == len(dims) == len(steps) == len(valid):
            raise VerifyException(f"dims, steps and valid need one number a dimension of {vector}")
        if any(not 0 <= d < memref.get_num_dims() for d in dims):
            raise VerifyException(f"dims {list(dims)} are out of range for {memref}")
        if any(not 0 <= v <= n for v, n in zip(valid, shape)):
            raise VerifyException(f"valid {list(valid)} exceeds the shape {list(shape)}")
        reach = [1] * memref.get_num_dims()
        extents = valid if self.lanes is None else (*valid[:-1], 1)
        for n, d, s in zip(extents, dims, steps):
            reach[d] += max(n - 1, 0) * abs(s)
        if prod(valid) and any(r > n != DYNAMIC_INDEX for r, n in zip(reach, memref.get_shape())):
            raise VerifyException(f"a slice of extent {reach} does not fit {memref}")
        walked = [(d, s) for d, s, v in zip(dims, steps, valid) if v > 1]
        if writes and (len({d for d, _ in walked}) < len(walked) or any(s == 0 for _, s in walked)):
            raise VerifyException("a store must write each element once: distinct dims, steps other than 0")


def is_plain_memref(memref: Attribute) -> bool:
    """Return whether a type is a memref as level 4 has them: row-major, identity layout, of a shape in which only the
    first extent may be open."""
    if not isinstance(memref, MemRefType) or not isinstance(memref.layout, NoneAttr):
        return False
    return min(memref.get_shape()[1:], default=0) >= 0


def _verify_memref(memref: Attribute) -> None:
    if not is_plain_memref(memref):
        expected = "expected a memref with the identity layout, of which only the first extent may be open"
        raise VerifyException(f"{expected}, got {memref}")


#: The syntax of a slice, up to the types.
_SLICE = "$memref `[` $indices `]` `dims` $dims (`steps` $steps^)? (`valid` $valid^)? (`lanes` $lanes^)? attr-dict `:` "


@irdl_op_definition
class LoadOp(_Access):
    """Read a strided slice: ``r[v0, v1..] = m[i.. + v_d * steps[d] along dims[d]]``.

    A step of 0 repeats an element; two vector dimensions may walk the same memref dimension (sliding windows). Elements
    at or beyond `valid` (static extents), or beyond `lanes` (run-time extent of the last dimension), are not accessed
    and are 0.
    """

    name = "tile.load"

    result = result_def(VectorType)

    SYNTAX: ClassVar = _SLICE + "type($memref) `,` type($result)"
    traits = traits_def(MemoryReadEffect())

    def result_hint(self) -> str:
        """The name of a result that has none (`ir/printer.py`)."""
        return part_of(self.memref, "tile")

    def _vector_type(self) -> VectorType:
        return self.result.type

    def verify_(self) -> None:
        self._verify_slice(writes=False)


@irdl_op_definition
class StoreOp(_Access):
    """Write a tile to a strided slice; the converse of `tile.load`. Elements beyond `valid` or `lanes` are not
    written."""

    name = "tile.store"

    value = operand_of(VectorType)

    SYNTAX: ClassVar = "$value `,` " + _SLICE + "type($value) `,` type($memref)"
    traits = traits_def(MemoryWriteEffect())

    def _vector_type(self) -> VectorType:
        return self.value.type

    def verify_(self) -> None:
        self._verify_slice(writes=True)


@irdl_op_definition
class PrefetchOp(FormattedOp):
    """Ask for the cache lines of `bytes` bytes of memory from an element on, which will be read soon, or written:
    ``tile.prefetch %w[%k, %c] bytes 1024 write : memref<..>``. A hint without an effect: the position may lie outside
    of the memref."""

    name = "tile.prefetch"

    memref = operand_of(MemRefType)
    indices = var_operand_def(IndexType())
    bytes = prop_def(IntegerAttr.constr(i64))
    write = opt_prop_def(UnitAttr)

    SYNTAX: ClassVar = "$memref `[` $indices `]` `bytes` $bytes (`write` $write^)? attr-dict `:` type($memref)"
    # So that nobody removes it, or moves it behind the loads that it is for.
    traits = traits_def(MemoryReadEffect())

    def __init__(self, memref: SSAValue | Operation, indices: Sequence[SSAValue | Operation], bytes: int, write: bool):
        properties = {"bytes": IntegerAttr(bytes, i64), "write": UnitAttr() if write else None}
        super().__init__(operands=[memref, indices], properties=properties)

    def verify_(self) -> None:
        _verify_memref(self.memref.type)
        if len(self.indices) != self.memref.type.get_num_dims():
            raise VerifyException(f"expected {self.memref.type.get_num_dims()} indices, got {len(self.indices)}")
        if not 0 < self.bytes.value.data <= MAX_PREFETCH:
            raise VerifyException(f"bytes must be 1 to {MAX_PREFETCH}")
