"""Tensor types as plain data, and the attribute that holds an op's parameter.

`TensorSpec` is what shape rules compute with (dims and a DType); `tensor_type` and `spec_of` go to xDSL's `TensorType`
and back, cached, because building a type costs more than building an op. `ParamAttr` holds one of document 004's seven
parameter kinds.
"""

from __future__ import annotations

import math
from functools import cache
from math import copysign, prod
from typing import Any, NamedTuple

import numpy as np
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    BFloat16Type,
    Float4E2M1FNType,
    Float8E4M3FNType,
    Float8E4M3FNUZType,
    Float8E5M2FNUZType,
    Float8E5M2Type,
    Float8E8M0FNUType,
    Float16Type,
    Float32Type,
    Float64Type,
    IntegerType,
    MemRefType,
    NoneAttr,
    Signedness,
    TensorType,
    VectorType,
)
from xdsl.ir import Attribute, Data, Operation, SSAValue
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from lightnet.diagnostics import LightNetError
from lightnet.ir.params import ParamScalar, ParamValue
from lightnet.runtime.dim_text import dims_text, parse_size, parse_sizes
from lightnet.runtime.dims import Dim, Size
from lightnet.runtime.dtypes import BY_NAME, DType

#: Largest tensor, in bytes, that any level accepts (checked on Python ints before anything is allocated).
MAX_TENSOR_BYTES = 1 << 40
MAX_RANK = 8


class TensorSpec(NamedTuple):
    """The logical shape and element type of a tensor."""

    dims: tuple[Size, ...]
    dtype: DType

    @property
    def ndim(self) -> int:
        return len(self.dims)

    @property
    def len(self) -> Size:
        return prod(self.dims)

    @property
    def nbytes(self) -> Size:
        return self.len * self.dtype.size

    @property
    def open_dims(self) -> tuple[Dim, ...]:
        """The dims that a call decides, in order."""
        return tuple(d for d in self.dims if isinstance(d, Dim))

    def __str__(self) -> str:
        dims = "".join("?x" if isinstance(d, Dim) else f"{d}x" for d in self.dims)
        named = f', "{dims_text(self.open_dims)}"' if self.open_dims else ""
        return f"tensor<{dims}{self.dtype}{named}>"


_ELEMENTS: dict[str, Attribute] = {
    "f64": Float64Type(),
    "f32": Float32Type(),
    "f16": Float16Type(),
    "bf16": BFloat16Type(),
    "i1": IntegerType(1),
    **{f"i{n}": IntegerType(n) for n in (2, 4, 8, 16, 32, 64)},
    **{f"ui{n}": IntegerType(n, Signedness.UNSIGNED) for n in (2, 4, 8, 16, 32, 64)},
    **{t.name: t() for t in (Float4E2M1FNType, Float8E4M3FNType, Float8E4M3FNUZType, Float8E5M2Type, Float8E5M2FNUZType,
                             Float8E8M0FNUType)},
}  # fmt: skip
_DTYPE_OF = {element: BY_NAME[name] for name, element in _ELEMENTS.items() if name in BY_NAME}
assert set(_ELEMENTS) - {"bf16"} <= set(BY_NAME) <= set(_ELEMENTS)


@cache
def element_type(dtype: DType) -> Attribute:
    """The MLIR element type of a tensor of `dtype`."""
    return _ELEMENTS[dtype.name]


@cache
def storage_type(dtype: DType) -> Attribute:
    """The element type of a memref at level 4: integers are signless, a bool and a type that is only stored in take one
    byte."""
    return IntegerType(dtype.size * 8) if not dtype.is_float else _ELEMENTS[dtype.name]


@cache
def tensor_type(spec: TensorSpec) -> TensorType:
    """The (interned) tensor type of a spec, in the plain layout."""
    if not (named := spec.open_dims):
        return TensorType(element_type(spec.dtype), spec.dims)
    shape = [DYNAMIC_INDEX if isinstance(d, Dim) else d for d in spec.dims]
    return TensorType(element_type(spec.dtype), shape, DimsAttr(OpenDims(named)))


def spec_of(type: Attribute) -> TensorSpec:
    """The spec of a tensor type; TypeError for any other type or an element type that is none of ours."""
    spec = type.__dict__.get("_lightnet_spec")
    if spec is None:
        spec = _spec(type)
        object.__setattr__(type, "_lightnet_spec", spec)  # a cache keyed by the type would hash all of it each time
    return spec


def _spec(type: Attribute) -> TensorSpec:
    if not isinstance(type, TensorType):
        raise TypeError(f"expected a ranked tensor type, got {type}")
    dtype = _DTYPE_OF.get(type.element_type)
    if dtype is None:
        raise TypeError(f"unsupported element type {type.element_type}")
    return TensorSpec(_dims(type), dtype)


class UnnamedDimsError(VerifyException, TypeError):
    """A tensor type with a ``?`` that has no name."""


def _dims(type: TensorType) -> tuple[Size, ...]:
    """The dims of a tensor type, the open ones as its encoding names them."""
    shape = type.get_shape()
    named = type.encoding.data.dims if isinstance(type.encoding, DimsAttr) else ()
    if len(named) != shape.count(DYNAMIC_INDEX):
        raise UnnamedDimsError(
            f"{type} has {shape.count(DYNAMIC_INDEX)} open dims, of which {len(named)} are named: name each with its "
            'range, as in tensor<?x8xf32, #ln.dims<"batch(1..64)">>, or write numbers'
        )
    names = iter(named)
    return tuple(next(names) if d == DYNAMIC_INDEX else d for d in shape)


class OpenDims(NamedTuple):
    """The dims of a tensor type that a call decides, in order, and the encoding that it has beside."""

    dims: tuple[Dim, ...]
    beside: Attribute = NoneAttr()


@irdl_attr_definition
class DimsAttr(Data[OpenDims]):
    """The encoding of a type with open dims, which names them: ``tensor<?x?x8xf32, #ln.dims<"batch(1..16),
    2*length(1..512) + 1">>``; with a layout, ``#ln.dims<"batch(1..16)", #ln.layout<"c16">>``."""

    name = "ln.dims"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> OpenDims:
        with parser.in_angle_brackets():
            pos = parser.pos
            try:
                sizes = parse_sizes(parser.parse_str_literal())
            except LightNetError as e:
                parser.raise_error(e.message, pos)
            dims = tuple(d for d in sizes if isinstance(d, Dim))
            if not dims or len(dims) < len(sizes):
                parser.raise_error("expected the dims that are open: each has a symbol", pos)
            beside = parser.parse_attribute() if parser.parse_optional_punctuation(",") is not None else NoneAttr()
        return OpenDims(dims, beside)

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string("<")
        printer.print_string_literal(dims_text(self.data.dims))
        if not isinstance(self.data.beside, NoneAttr):
            printer.print_string(", ")
            printer.print_attribute(self.data.beside)
        printer.print_string(">")


def flat_memref(spec: TensorSpec) -> MemRefType:
    """The memref of rank 1 that holds the elements of a tensor."""
    length = spec.len
    return MemRefType(storage_type(spec.dtype), (DYNAMIC_INDEX if isinstance(length, Dim) else length,))


def vector_type_of(value: SSAValue | Operation) -> VectorType:
    """The type of a value that is a vector."""
    type = SSAValue.get(value).type
    assert isinstance(type, VectorType)
    return type


def memref_type_of(value: SSAValue) -> MemRefType:
    """The type of a value that is a memref."""
    type = value.type
    assert isinstance(type, MemRefType)
    return type


@irdl_attr_definition
class ParamAttr(Data[ParamValue]):
    """A parameter's value: null, a string, a number, a bool, or an array of strings, numbers or bools.

    A number stays as it was written (int or float); ops read it through a realtype (`runtime.numbers`).
    """

    name = "ln.param"

    def __init__(self, value: ParamValue):
        super().__init__(_plain(value))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ParamAttr):
            return NotImplemented
        return self.data == other.data and _negative_zeros(self.data) == _negative_zeros(other.data)

    def __hash__(self) -> int:
        return hash(self.data)

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> ParamValue:
        with parser.in_angle_brackets():
            return parse_param_value(parser)

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(f"<{format_param_value(self.data)}>")


def _negative_zeros(value: ParamValue) -> object:
    """The key that tells values apart that Python takes for equal: 0.0 and -0.0 are two."""
    if isinstance(value, tuple):
        return [_negative_zeros(v) for v in value]
    return isinstance(value, float) and value == 0 and copysign(1, value) < 0


def _plain(value: Any) -> ParamValue:
    """A value of Python's own types: lists become tuples, NumPy scalars (which print otherwise) Python's."""
    return tuple(map(_plain_scalar, value)) if isinstance(value, tuple | list) else _plain_scalar(value)


def _plain_scalar(value: Any) -> ParamScalar:
    return value.item() if isinstance(value, np.generic) else value


def parse_param_value(parser: AttrParser) -> ParamValue:
    """Parse ``null``, ``"text"``, ``1.5``, ``-inf``, ``nan``, ``true`` or an array of these."""
    if parser.parse_optional_punctuation("[") is None:
        return _parse_scalar(parser)
    values = []
    if parser.parse_optional_punctuation("]") is None:
        values.append(_parse_scalar(parser))
        while parser.parse_optional_punctuation(","):
            values.append(_parse_scalar(parser))
        parser.parse_punctuation("]")
    kinds = {_kind(v) for v in values}
    if len(kinds) > 1 or "null" in kinds:
        parser.raise_error("the elements of an array must be all numbers, all strings or all bools")
    return tuple(values)


def _parse_scalar(parser: AttrParser) -> ParamScalar:
    if parser.parse_optional_keyword("null"):
        return None
    if (text := parser.parse_optional_str_literal()) is not None:
        return text
    if (size := parse_open_size(parser)) is not None:
        return size
    if (flag := parser.parse_optional_boolean()) is not None:
        return flag
    sign = 1
    if parser.parse_optional_punctuation("-") is not None:
        sign = -1
        if parser.parse_optional_punctuation("-") is not None:
            parser.raise_error("a number has one sign")
    for word, value in _WORDS.items():
        if parser.parse_optional_keyword(word):
            return sign * value
    return sign * parser.parse_number(
        allow_boolean=False, context_msg=", string, bool, null or array expected as a parameter's value"
    )


def parse_open_size(parser: AttrParser) -> Size | None:
    """Parse ``?"2*length(1..512)"``, a number that a call decides; None where no ``?`` stands."""
    if parser.parse_optional_punctuation("?") is None:
        return None
    pos = parser.pos
    try:
        return parse_size(parser.parse_str_literal())
    except LightNetError as e:
        parser.raise_error(e.message, pos)


_WORDS = {"inf": math.inf, "nan": math.nan}


def _kind(value: object) -> str:
    if value is None:
        return "null"
    return "bool" if isinstance(value, bool) else "string" if isinstance(value, str) else "number"


def format_param_value(value: ParamValue) -> str:
    """The text of a parameter's value in assembly; floats round-trip exactly."""
    if isinstance(value, tuple):
        return f"[{', '.join(format_param_value(v) for v in value)}]"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + "".join(_ESCAPES.get(c, c) for c in value) + '"'
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Dim):
        return format(value)
    if not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    mantissa, exponent, tail = repr(value).partition("e")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}{exponent}{tail}"  # MLIR wants the point


#: Control characters are escaped, as MLIR does: a terminal obeys them.
_ESCAPES = {chr(c): f"\\{c:02X}" for c in (*range(32), 127)} | {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}
