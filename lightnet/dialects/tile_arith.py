"""The ops of the `tile` dialect on registers: `tile.fma` and `tile.dot`, elementwise ones where those of `arith` take
scalars only in xDSL, `tile.transpose` and `tile.reduce`. Imports xDSL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects import arith
from xdsl.dialects.builtin import DenseArrayBase, IndexType, IntegerType, StringAttr, VectorType, f32, i1, i32, i64
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import (
    VarConstraint,
    base,
    irdl_op_definition,
    prop_def,
    result_def,
    traits_def,
    var_result_def,
)
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from lightnet.dialects.operands import FormattedOp, operand_of, operands_of
from lightnet.dialects.tile_syntax import Compared, Word, ints
from lightnet.ir.types import vector_type_of

#: The kinds of `tile.reduce`. `max`/`min` propagate NaN on floats and are signed on integers.
REDUCE_KINDS = ("add", "mul", "max", "min", "umax", "umin")
#: The kinds of `tile.dot`.
DOT_KINDS = ("words", "bytes", "bfloats")
#: The casts of `tile.cast`, with the meaning of arith's ops of these names.
CAST_KINDS = ("extf", "truncf", "extsi", "extui", "trunci", "sitofp", "uitofp", "fptosi", "fptoui", "bitcast")
#: The predicates of `tile.cmp` on integers and floats, with the meaning of `arith.cmpi` and `arith.cmpf`.
INT_PREDICATES = tuple(arith.CMPI_COMPARISON_OPERATIONS)
FLOAT_PREDICATES = tuple(arith.CMPF_COMPARISON_OPERATIONS)


def _check_contraction(a: SSAValue, b: SSAValue, acc: SSAValue) -> None:
    """Check that [P.., K] . [K, N..] -> [P.., N..]."""
    types = [vector_type_of(v) for v in (a, b, acc)]
    left, right, made = (type.get_shape() for type in types)
    if len(right) < 2 or left[-1] != right[0] or made != (*left[:-1], *right[1:]):
        raise VerifyException(f"expected [P.., K] . [K, N..] -> [P.., N..], got {left} . {right} -> {made}")


@irdl_op_definition
class FmaOp(FormattedOp):
    """``acc[p.., n..] + sum over k of a[p.., k] * b[k, n..]``, each product fused; floats only.

    `a` is taken element by element (broadcast), `b` and `acc` as vectors along their last dimension.
    """

    name = "tile.fma"

    T: ClassVar = VarConstraint("T", base(VectorType))

    a = operand_of(VectorType)
    b = operand_of(VectorType)
    acc = operand_of(T)
    result = result_def(T)

    traits = traits_def(Pure())
    SYNTAX: ClassVar = "$a `,` $b `,` $acc attr-dict `:` type($a) `,` type($b) `,` type($acc)"

    def result_hint(self) -> str:
        """The name of a result that has none: that of what is added to."""
        return self.acc.name_hint or "acc"

    def verify_(self) -> None:
        if len({vector_type_of(v).element_type for v in self.operands}) != 1:
            raise VerifyException("the operands have one element type")
        _check_contraction(self.a, self.b, self.acc)
        if isinstance(self.acc.type.element_type, IntegerType | IndexType):
            raise VerifyException("expected a float element type")


@irdl_op_definition
class DotOp(FormattedOp):
    """``acc[p.., n..] + sum over k of a[p.., k] . b[k, n..]``. An element of `a` and of `b`, of i32, is several small
    numbers, the first in the lowest bits, and ``.`` the sum of the products of those of one place: ``words`` are two of
    16 bits, signed; ``bytes`` four of 8 bits, those of `a` unsigned, of `b` signed; sums of both are of i32, and wrap
    around. ``bfloats`` are two of bf16, with sums of f32, to which the second product is added, fused, and then the
    first (VDPBF16PS, Intel SDM volume 2); subnormal numbers may count as 0.

    `a` is taken element by element (broadcast), `b` and `acc` as vectors along their last dimension.
    """

    name = "tile.dot"

    T: ClassVar = VarConstraint("T", base(VectorType))

    kind = prop_def(StringAttr)
    a = operand_of(VectorType)
    b = operand_of(VectorType)
    acc = operand_of(T)
    result = result_def(T)

    traits = traits_def(Pure())
    custom_directives = (Word,)
    SYNTAX: ClassVar = "custom<Word>($kind) $a `,` $b `,` $acc attr-dict `:` type($a) `,` type($b) `,` type($acc)"

    def result_hint(self) -> str:
        """The name of a result that has none: that of what is added to."""
        return self.acc.name_hint or "acc"

    def verify_(self) -> None:
        if self.kind.data not in DOT_KINDS:
            raise VerifyException(f"unknown kind {self.kind.data}; there are: {', '.join(DOT_KINDS)}")
        sums = f32 if self.kind.data == "bfloats" else i32
        for value, element in ((self.a, i32), (self.b, i32), (self.acc, sums)):
            if (found := vector_type_of(value).element_type) != element:
                raise VerifyException(f"expected elements of {element}, got {found}")
        _check_contraction(self.a, self.b, self.acc)


@irdl_op_definition
class SelectOp(FormattedOp):
    """Element by element ``mask ? a : b`` (`arith.select` takes a scalar condition only)."""

    name = "tile.select"
    T: ClassVar = VarConstraint("T", base(VectorType))

    mask = operand_of(VectorType)
    a = operand_of(T)
    b = operand_of(T)
    result = result_def(T)

    traits = traits_def(Pure())
    SYNTAX: ClassVar = "$mask `,` $a `,` $b attr-dict `:` type($mask) `,` type($result)"

    def verify_(self) -> None:
        if self.mask.type != VectorType(i1, self.a.type.get_shape()):
            raise VerifyException(f"expected a mask of i1 with the shape of {self.a.type}, got {self.mask.type}")


@irdl_op_definition
class CastOp(FormattedOp):
    """Element by element conversion: ``tile.cast sitofp %v : vector<4x16xi32> to vector<4x16xf32>``.

    arith's casts take scalars only in xDSL; the kinds are theirs.
    """

    name = "tile.cast"

    kind = prop_def(StringAttr)
    value = operand_of(VectorType)
    result = result_def(VectorType)

    traits = traits_def(Pure())
    custom_directives = (Word,)
    SYNTAX: ClassVar = "custom<Word>($kind) $value attr-dict `:` type($value) `to` type($result)"

    def __init__(self, kind: str, value: SSAValue | Operation, element: Attribute):
        shape = vector_type_of(value).get_shape()
        super().__init__(
            operands=[value], result_types=[VectorType(element, shape)], properties={"kind": StringAttr(kind)}
        )

    def verify_(self) -> None:
        if self.kind.data not in CAST_KINDS:
            raise VerifyException(f"unknown kind {self.kind.data}; there are: {', '.join(CAST_KINDS)}")
        source, target = self.value.type, self.result.type
        if source.get_shape() != target.get_shape():
            raise VerifyException(f"a cast keeps the shape, got {source} and {target}")
        kind = self.kind.data
        floats = [not isinstance(t.element_type, IntegerType | IndexType) for t in (source, target)]
        widths = [getattr(t.element_type, "bitwidth", 64) for t in (source, target)]
        expected = {"ext": widths[0] < widths[1], "tru": widths[0] > widths[1], "bit": widths[0] == widths[1]}
        sides = [kind in ("extf", "truncf") or kind.startswith("fp"), kind in ("extf", "truncf") or kind.endswith("fp")]
        if not expected.get(kind[:3], True) or (kind != "bitcast" and floats != sides):
            raise VerifyException(f"{kind} cannot take {source} to {target}")


@irdl_op_definition
class CmpOp(FormattedOp):
    """Element by element comparison: ``tile.cmp olt %a, %b : vector<16xf32>`` gives a vector of i1."""

    name = "tile.cmp"

    T: ClassVar = VarConstraint("T", base(VectorType))

    predicate = prop_def(StringAttr)
    a = operand_of(T)
    b = operand_of(T)
    result = result_def(VectorType)

    traits = traits_def(Pure())
    custom_directives = (Word, Compared)
    SYNTAX: ClassVar = "custom<Word>($predicate) $a `,` $b attr-dict `:` custom<Compared>(type($a), type($result))"

    def __init__(self, predicate: str, a: SSAValue | Operation, b: SSAValue | Operation):
        shape = vector_type_of(a).get_shape()
        super().__init__(
            operands=[a, b],
            result_types=[VectorType(i1, shape)],
            properties={"predicate": StringAttr(predicate)},
        )

    def verify_(self) -> None:
        integer = isinstance(self.a.type.element_type, IntegerType | IndexType)
        known = INT_PREDICATES if integer else FLOAT_PREDICATES
        if self.predicate.data not in known:
            raise VerifyException(f"unknown predicate {self.predicate.data}; there are: {', '.join(known)}")
        if self.result.type != VectorType(i1, self.a.type.get_shape()):
            raise VerifyException(f"expected a result of i1 with the shape of {self.a.type}")


@irdl_op_definition
class TransposeOp(FormattedOp):
    """n tiles ``[m, r..]`` to m tiles ``[n, r..]``: ``out_j[i] = in_i[j]``. With a nonempty ``r`` it moves nothing."""

    name = "tile.transpose"

    operands_ = operands_of(VectorType)
    results_ = var_result_def(VectorType)

    traits = traits_def(Pure())
    SYNTAX: ClassVar = "$operands_ attr-dict `:` type($operands_) `->` type($results_)"

    def __init__(self, values: Sequence[SSAValue | Operation]):
        type = vector_type_of(values[0])
        shape = type.get_shape()
        out = VectorType(type.element_type, (len(values), *shape[1:]))
        super().__init__(operands=[values], result_types=[[out] * shape[0]])

    def verify_(self) -> None:
        if not self.operands_ or len({v.type for v in self.operands_}) != 1:
            raise VerifyException("expected operands of one type")
        source = self.operands_[0].type
        m, *rest = source.get_shape()
        expected = VectorType(source.element_type, (len(self.operands_), *rest))
        if len(self.results_) != m or any(r.type != expected for r in self.results_):
            raise VerifyException(f"expected {m} results of type {expected}")


@irdl_op_definition
class ReduceOp(FormattedOp):
    """Fold dimensions of a tile: ``tile.reduce add %v dims [1] : vector<4x16xf32> to vector<4xf32>``.

    The order of a float sum is not defined. When every dimension is folded the result is a scalar.
    """

    name = "tile.reduce"

    value = operand_of(VectorType)
    kind = prop_def(StringAttr)
    dims = prop_def(DenseArrayBase.constr(i64))
    result = result_def()

    traits = traits_def(Pure())
    custom_directives = (Word,)
    SYNTAX: ClassVar = "custom<Word>($kind) $value `dims` $dims attr-dict `:` type($value) `to` type($result)"

    def __init__(self, kind: str, value: SSAValue | Operation, dims: Sequence[int]):
        type = vector_type_of(value)
        kept = [n for d, n in enumerate(type.get_shape()) if d not in dims]
        result = VectorType(type.element_type, kept) if kept else type.element_type
        super().__init__(
            operands=[value], result_types=[result], properties={"kind": StringAttr(kind), "dims": ints(dims)}
        )

    def verify_(self) -> None:
        dims, shape = self.dims.get_values(), self.value.type.get_shape()
        if self.kind.data not in REDUCE_KINDS:
            raise VerifyException(f"unknown kind {self.kind.data}; there are: {', '.join(REDUCE_KINDS)}")
        if self.kind.data in ("umax", "umin") and not isinstance(self.value.type.element_type, IntegerType):
            raise VerifyException(f"{self.kind.data} is for integers")
        if not dims or list(dims) != sorted(set(dims)) or not 0 <= dims[0] <= dims[-1] < len(shape):
            raise VerifyException(f"dims {list(dims)} must be sorted dimensions of {self.value.type}")
        kept = [n for d, n in enumerate(shape) if d not in dims]
        element = self.value.type.element_type
        if self.result.type != (VectorType(element, kept) if kept else element):
            raise VerifyException(f"folding dims {list(dims)} of {self.value.type} cannot give {self.result.type}")
