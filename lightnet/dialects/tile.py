"""The `tile` dialect: what level 4 needs beside `scf`, `arith`, `math`, `memref`, `vector` of xDSL.

Multi-dimensional vectors are register tiles. `tile.load`/`tile.store` move strided n-d slices between memory and
tiles, `tile.fma` is the micro-kernel (an outer-product accumulation), `tile.transpose` renames registers, and
`tile.reduce` folds dimensions. `tile.launch` and `tile.host`, the lines of `@main`, stand in `launch.py`. Imports xDSL.

```mlir
%a = tile.load %x[%c, %y, %i] dims [0, 2] : memref<64x30x30xf32>, vector<8x14xf32>
%r = tile.fma %w, %a, %acc : vector<4x8xf32>, vector<8x14xf32>, vector<4x14xf32>
tile.store %r, %o[%k, %y, %i] dims [0, 2] valid [4, 13] : vector<4x14xf32>, memref<32x30x30xf32>
```
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import ClassVar, NamedTuple

from xdsl.dialects import arith
from xdsl.dialects.builtin import (
    DenseArrayBase,
    IndexType,
    IntegerAttr,
    IntegerType,
    MemRefType,
    NoneAttr,
    StringAttr,
    UnitAttr,
    VectorType,
    i1,
    i64,
)
from xdsl.ir import Attribute, Dialect, Operation, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    VarConstraint,
    base,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect, Pure
from xdsl.utils.exceptions import VerifyException

from lightnet.dialects.launch import HostOp, LaunchOp

#: The kinds of `tile.reduce`. `max`/`min` propagate NaN on floats and are signed on integers.
REDUCE_KINDS = ("add", "mul", "max", "min", "umax", "umin")

#: Bytes that one `tile.prefetch` may name.
MAX_PREFETCH = 1 << 16


class Slice(NamedTuple):
    """A strided slice: vector dimension d walks memref dimension `dims[d]` by `steps[d]`; only `valid[d]` of it is touched."""

    shape: tuple[int, ...]
    dims: tuple[int, ...]
    steps: tuple[int, ...]
    valid: tuple[int, ...]


def _ints(values: Sequence[int]) -> DenseArrayBase:
    return DenseArrayBase.from_list(i64, list(values))


def _print_ints(printer: Printer, keyword: str, values: DenseArrayBase | None) -> None:
    if values is not None:
        printer.print_string(f" {keyword} [{', '.join(map(str, values.get_values()))}]")


def _parse_ints(parser: Parser, keyword: str) -> DenseArrayBase | None:
    if parser.parse_optional_keyword(keyword) is None:
        return None
    return _ints(parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer))


def _slice_properties(
    dims: Sequence[int], steps: Sequence[int] | None, valid: Sequence[int] | None
) -> dict[str, Attribute | None]:
    given = {"dims": dims, "steps": steps, "valid": valid}
    return {key: None if values is None else _ints(values) for key, values in given.items()}


class _Access(IRDLOperation):
    """What `tile.load` and `tile.store` share: the slice and its syntax."""

    memref = operand_def(MemRefType)
    indices = var_operand_def(IndexType)
    lanes = opt_operand_def(IndexType)
    dims = prop_def(DenseArrayBase)
    steps = opt_prop_def(DenseArrayBase)
    valid = opt_prop_def(DenseArrayBase)

    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    def slice(self) -> Slice:
        """The slice as plain numbers, defaults filled in."""
        shape = self._vector_type().get_shape()
        steps, valid = self.properties.get("steps"), self.properties.get("valid")
        return Slice(
            shape,
            self.properties["dims"].get_values(),
            steps.get_values() if steps is not None else (1,) * len(shape),
            valid.get_values() if valid is not None else shape,
        )

    def _vector_type(self) -> VectorType:
        raise NotImplementedError

    def _print_slice(self, printer: Printer) -> None:
        printer.print_ssa_value(self.memref)
        printer.print_string("[")
        printer.print_list(self.indices, printer.print_ssa_value)
        printer.print_string("]")
        _print_ints(printer, "dims", self.dims)
        _print_ints(printer, "steps", self.steps)
        _print_ints(printer, "valid", self.valid)
        if self.lanes is not None:
            printer.print_string(" lanes ")
            printer.print_ssa_value(self.lanes)
        printer.print_op_attributes(self.attributes)

    @staticmethod
    def _parse_slice(parser: Parser):
        memref = parser.parse_unresolved_operand()
        indices = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_unresolved_operand)
        properties = {key: _parse_ints(parser, key) for key in ("dims", "steps", "valid")}
        if properties["dims"] is None:
            parser.raise_error("expected `dims [...]`")
        lanes = [parser.parse_operand(IndexType())] if parser.parse_optional_keyword("lanes") else []
        return memref, parser.resolve_operands(indices, [IndexType()] * len(indices), parser.pos), properties, lanes

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
        if prod(valid) and any(r > n for r, n in zip(reach, memref.get_shape())):
            raise VerifyException(f"a slice of extent {reach} does not fit {memref}")
        if writes and (len(set(dims)) != len(dims) or any(s == 0 and v > 1 for s, v in zip(steps, valid))):
            raise VerifyException("a store must write each element once: distinct dims, steps other than 0")


def is_plain(memref: Attribute) -> bool:
    """Whether a type is a memref as level 4 has them: a static shape, row-major, identity layout."""
    plain = isinstance(memref, MemRefType) and isinstance(memref.layout, NoneAttr)
    return plain and min(memref.get_shape(), default=0) >= 0


def _verify_memref(memref: Attribute) -> None:
    if not is_plain(memref):
        raise VerifyException(f"expected a memref with a static shape and the identity layout, got {memref}")


@irdl_op_definition
class LoadOp(_Access):
    """Read a strided slice: ``r[v0, v1..] = m[i.. + v_d * steps[d] along dims[d]]``.

    A step of 0 repeats an element; two vector dimensions may walk the same memref dimension (sliding windows). Elements
    at or beyond `valid` (static extents), or beyond `lanes` (run-time extent of the last dimension), are not accessed
    and are 0.
    """

    name = "tile.load"

    result = result_def(VectorType)

    traits = traits_def(MemoryReadEffect())

    def __init__(
        self,
        memref: SSAValue | Operation,
        indices: Sequence[SSAValue | Operation],
        dims: Sequence[int],
        result_type: VectorType,
        *,
        steps: Sequence[int] | None = None,
        valid: Sequence[int] | None = None,
        lanes: SSAValue | None = None,
    ):
        super().__init__(
            operands=[memref, indices, lanes],
            result_types=[result_type],
            properties=_slice_properties(dims, steps, valid),
        )

    def _vector_type(self) -> VectorType:
        return self.result.type

    def verify_(self) -> None:
        self._verify_slice(writes=False)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        self._print_slice(printer)
        printer.print_string(" : ")
        printer.print_list([self.memref.type, self.result.type], printer.print_attribute)

    @classmethod
    def parse(cls, parser: Parser) -> LoadOp:
        memref, indices, properties, lanes = cls._parse_slice(parser)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        memref_type = parser.parse_type()
        parser.parse_punctuation(",")
        result_type = parser.parse_type()
        return cls.build(
            operands=[parser.resolve_operand(memref, memref_type), indices, lanes],
            result_types=[result_type],
            properties=properties,
            attributes=attributes,
        )


@irdl_op_definition
class StoreOp(_Access):
    """Write a tile to a strided slice; the converse of `tile.load`. Elements beyond `valid` or `lanes` are not written."""

    name = "tile.store"

    value = operand_def(VectorType)
    traits = traits_def(MemoryWriteEffect())

    def __init__(
        self,
        value: SSAValue | Operation,
        memref: SSAValue | Operation,
        indices: Sequence[SSAValue | Operation],
        dims: Sequence[int],
        *,
        steps: Sequence[int] | None = None,
        valid: Sequence[int] | None = None,
        lanes: SSAValue | None = None,
    ):
        super().__init__(
            operands=[value, memref, indices, lanes],
            properties=_slice_properties(dims, steps, valid),
        )

    def _vector_type(self) -> VectorType:
        return self.value.type

    def verify_(self) -> None:
        self._verify_slice(writes=True)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.value)
        printer.print_string(", ")
        self._print_slice(printer)
        printer.print_string(" : ")
        printer.print_list([self.value.type, self.memref.type], printer.print_attribute)

    @classmethod
    def parse(cls, parser: Parser) -> StoreOp:
        value = parser.parse_unresolved_operand()
        parser.parse_punctuation(",")
        memref, indices, properties, lanes = cls._parse_slice(parser)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        value_type = parser.parse_type()
        parser.parse_punctuation(",")
        memref_type = parser.parse_type()
        return cls.build(
            operands=[
                parser.resolve_operand(value, value_type),
                parser.resolve_operand(memref, memref_type),
                indices,
                lanes,
            ],
            properties=properties,
            attributes=attributes,
        )


@irdl_op_definition
class PrefetchOp(IRDLOperation):
    """Ask for the cache lines of `bytes` bytes of memory from an element on, which will be read soon, or written:
    ``tile.prefetch %w[%k, %c] bytes 1024 write : memref<..>``. A hint without an effect: the position may lie outside of the memref."""

    name = "tile.prefetch"

    memref = operand_def(MemRefType)
    indices = var_operand_def(IndexType)
    bytes = prop_def(IntegerAttr)
    write = opt_prop_def(UnitAttr)

    # So that nobody removes it, or moves it behind the loads that it is for.
    traits = traits_def(MemoryReadEffect())

    def __init__(
        self, memref: SSAValue | Operation, indices: Sequence[SSAValue | Operation], bytes: int, write: bool = False
    ):
        properties = {"bytes": IntegerAttr(bytes, i64), "write": UnitAttr() if write else None}
        super().__init__(operands=[memref, indices], properties=properties)

    def verify_(self) -> None:
        _verify_memref(self.memref.type)
        if len(self.indices) != self.memref.type.get_num_dims():
            raise VerifyException(f"expected {self.memref.type.get_num_dims()} indices, got {len(self.indices)}")
        if not 0 < self.bytes.value.data <= MAX_PREFETCH:
            raise VerifyException(f"bytes must be 1 to {MAX_PREFETCH}")

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.memref)
        printer.print_string("[")
        printer.print_list(self.indices, printer.print_ssa_value)
        printer.print_string(f"] bytes {self.bytes.value.data}{' write' if self.write is not None else ''}")
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.memref.type)

    @classmethod
    def parse(cls, parser: Parser) -> PrefetchOp:
        memref = parser.parse_unresolved_operand()
        indices = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_unresolved_operand)
        indices = parser.resolve_operands(indices, [IndexType()] * len(indices), parser.pos)
        parser.parse_keyword("bytes")
        size = parser.parse_integer()
        write = parser.parse_optional_keyword("write") is not None
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        op = cls(parser.resolve_operand(memref, parser.parse_type()), indices, size, write)
        op.attributes |= attributes
        return op


@irdl_op_definition
class FmaOp(IRDLOperation):
    """``acc[p.., n..] + sum over k of a[p.., k] * b[k, n..]``, each product fused; floats only.

    `a` is taken element by element (broadcast), `b` and `acc` as vectors along their last dimension.
    """

    name = "tile.fma"

    T: ClassVar = VarConstraint("T", base(VectorType))

    a = operand_def(VectorType)
    b = operand_def(VectorType)
    acc = operand_def(T)
    result = result_def(T)

    traits = traits_def(Pure())
    assembly_format = "$a `,` $b `,` $acc attr-dict `:` type($a) `,` type($b) `,` type($acc)"

    def __init__(self, a: SSAValue | Operation, b: SSAValue | Operation, acc: SSAValue | Operation):
        super().__init__(operands=[a, b, acc], result_types=[SSAValue.get(acc).type])

    def verify_(self) -> None:
        a, b, acc = (v.type.get_shape() for v in (self.a, self.b, self.acc))
        if len({v.type.element_type for v in (self.a, self.b, self.acc)}) != 1:
            raise VerifyException("the operands have one element type")
        if isinstance(self.acc.type.element_type, IntegerType | IndexType):
            raise VerifyException("expected a float element type")
        if len(b) < 2 or a[-1] != b[0] or acc != (*a[:-1], *b[1:]):
            raise VerifyException(f"expected [P.., K] . [K, N..] -> [P.., N..], got {a} . {b} -> {acc}")


@irdl_op_definition
class SelectOp(IRDLOperation):
    """Element by element ``mask ? a : b`` (`arith.select` takes a scalar condition only)."""

    name = "tile.select"
    T: ClassVar = VarConstraint("T", base(VectorType))

    mask = operand_def(VectorType)
    a = operand_def(T)
    b = operand_def(T)
    result = result_def(T)

    traits = traits_def(Pure())
    assembly_format = "$mask `,` $a `,` $b attr-dict `:` type($mask) `,` type($result)"

    def __init__(self, mask: SSAValue | Operation, a: SSAValue | Operation, b: SSAValue | Operation):
        super().__init__(operands=[mask, a, b], result_types=[SSAValue.get(a).type])

    def verify_(self) -> None:
        if self.mask.type != VectorType(i1, self.a.type.get_shape()):
            raise VerifyException(f"expected a mask of i1 with the shape of {self.a.type}, got {self.mask.type}")


#: The casts of `tile.cast`, with the meaning of arith's ops of these names.
CAST_KINDS = ("extf", "truncf", "extsi", "extui", "trunci", "sitofp", "uitofp", "fptosi", "fptoui", "bitcast")
#: The predicates of `tile.cmp` on integers and floats, with the meaning of `arith.cmpi` and `arith.cmpf`.
INT_PREDICATES = tuple(arith.CMPI_COMPARISON_OPERATIONS)
FLOAT_PREDICATES = tuple(arith.CMPF_COMPARISON_OPERATIONS)


@irdl_op_definition
class CastOp(IRDLOperation):
    """Element by element conversion: ``tile.cast sitofp %v : vector<4x16xi32> to vector<4x16xf32>``.

    arith's casts take scalars only in xDSL; the kinds are theirs.
    """

    name = "tile.cast"

    kind = prop_def(StringAttr)
    value = operand_def(VectorType)
    result = result_def(VectorType)

    traits = traits_def(Pure())

    def __init__(self, kind: str, value: SSAValue | Operation, element: Attribute):
        shape = SSAValue.get(value).type.get_shape()
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

    def print(self, printer: Printer) -> None:
        _print_kind(printer, self.kind.data, self.operands, self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.value.type)
        printer.print_string(" to ")
        printer.print_attribute(self.result.type)

    @classmethod
    def parse(cls, parser: Parser) -> CastOp:
        kind = parser.parse_identifier(" of the cast")
        value = parser.parse_unresolved_operand()
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        operand = parser.resolve_operand(value, parser.parse_type())
        parser.parse_keyword("to")
        return cls.build(
            operands=[operand],
            result_types=[parser.parse_type()],
            properties={"kind": StringAttr(kind)},
            attributes=attributes,
        )


@irdl_op_definition
class CmpOp(IRDLOperation):
    """Element by element comparison: ``tile.cmp olt %a, %b : vector<16xf32>`` gives a vector of i1."""

    name = "tile.cmp"

    predicate = prop_def(StringAttr)
    a = operand_def(VectorType)
    b = operand_def(VectorType)
    result = result_def(VectorType)

    traits = traits_def(Pure())

    def __init__(self, predicate: str, a: SSAValue | Operation, b: SSAValue | Operation):
        shape = SSAValue.get(a).type.get_shape()
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
        if self.a.type != self.b.type or self.result.type != VectorType(i1, self.a.type.get_shape()):
            raise VerifyException("expected operands of one type and a result of i1 with their shape")

    def print(self, printer: Printer) -> None:
        _print_kind(printer, self.predicate.data, self.operands, self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.a.type)

    @classmethod
    def parse(cls, parser: Parser) -> CmpOp:
        predicate = parser.parse_identifier(" of the comparison")
        a = parser.parse_unresolved_operand()
        parser.parse_punctuation(",")
        b = parser.parse_unresolved_operand()
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        type = parser.parse_type()
        if not isinstance(type, VectorType):
            parser.raise_error(f"expected a vector type, got {type}")
        op = cls(predicate, parser.resolve_operand(a, type), parser.resolve_operand(b, type))
        op.attributes |= attributes
        return op


def _print_kind(printer: Printer, kind: str, operands: Sequence[SSAValue], attributes: dict[str, Attribute]) -> None:
    printer.print_string(f" {kind} ")
    printer.print_list(operands, printer.print_ssa_value)
    printer.print_op_attributes(attributes)


@irdl_op_definition
class TransposeOp(IRDLOperation):
    """n tiles ``[m, r..]`` to m tiles ``[n, r..]``: ``out_j[i] = in_i[j]``. With a nonempty ``r`` it moves nothing."""

    name = "tile.transpose"

    operands_ = var_operand_def(VectorType)
    results_ = var_result_def(VectorType)

    traits = traits_def(Pure())
    assembly_format = "$operands_ attr-dict `:` type($operands_) `->` type($results_)"

    def __init__(self, values: Sequence[SSAValue | Operation]):
        values = [SSAValue.get(v) for v in values]
        shape = values[0].type.get_shape()
        out = VectorType(values[0].type.element_type, (len(values), *shape[1:]))
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
class ReduceOp(IRDLOperation):
    """Fold dimensions of a tile: ``tile.reduce add %v dims [1] : vector<4x16xf32> to vector<4xf32>``.

    The order of a float sum is not defined. When every dimension is folded the result is a scalar.
    """

    name = "tile.reduce"

    value = operand_def(VectorType)
    kind = prop_def(StringAttr)
    dims = prop_def(DenseArrayBase)
    result = result_def()

    traits = traits_def(Pure())

    def __init__(self, kind: str, value: SSAValue | Operation, dims: Sequence[int]):
        type = SSAValue.get(value).type
        kept = [n for d, n in enumerate(type.get_shape()) if d not in dims]
        result = VectorType(type.element_type, kept) if kept else type.element_type
        super().__init__(
            operands=[value], result_types=[result], properties={"kind": StringAttr(kind), "dims": _ints(dims)}
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

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.kind.data} ")
        printer.print_ssa_value(self.value)
        _print_ints(printer, "dims", self.dims)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.value.type)
        printer.print_string(" to ")
        printer.print_attribute(self.result.type)

    @classmethod
    def parse(cls, parser: Parser) -> ReduceOp:
        kind = parser.parse_identifier(" of the reduction")
        value = parser.parse_unresolved_operand()
        if (dims := _parse_ints(parser, "dims")) is None:
            parser.raise_error("expected `dims [...]`")
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        operand = parser.resolve_operand(value, parser.parse_type())
        parser.parse_keyword("to")
        return cls.build(
            operands=[operand],
            result_types=[parser.parse_type()],
            properties={"kind": StringAttr(kind), "dims": dims},
            attributes=attributes,
        )


Tile = Dialect(
    "tile", [LoadOp, StoreOp, PrefetchOp, FmaOp, SelectOp, CastOp, CmpOp, TransposeOp, ReduceOp, LaunchOp, HostOp], []
)
