"""How an `ln` op is declared: one class that says everything about the op, from which the rest is derived.

    @ln_op
    class Slice(LnOp):
        \"\"\"A range of one axis. ...\"\"\"
        optype = "slice"
        src = operand()
        dst = result()
        axis = number("int", ge=0, lt="src.ndim")
        start = number("int", ge=0, lt="src.dims[axis]")
        len = number("int", gt=0)
        checks = {"range": "start + len <= src.dims[axis]"}
        definition = "dst[a:axis..., i, b...] = src[a:axis..., i + start, b...]"

`@ln_op` turns the fields into properties of the op (operands and results as SSA values, parameters as Python values of
their realtype) and collects them in `cls.schema`; parser, printer, verifier, builders, JSON form, documentation and
tests all read the schema. xDSL's own op definitions are not used: they cannot express shape relations or a numeric
parameter, and verifying through them costs several times as much.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar, Self

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import traits_def
from xdsl.parser import Parser
from xdsl.pattern_rewriter import RewritePattern
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from lightnet.diagnostics import LightNetError
from lightnet.frontends.netlist import ParamValue
from lightnet.ir import expr
from lightnet.ir.place import PlaceAttr, parse_place
from lightnet.ir.types import (
    MAX_RANK,
    MAX_TENSOR_BYTES,
    ParamAttr,
    TensorSpec,
    format_param_value,
    parse_param_value,
    spec_of,
    tensor_type,
)
from lightnet.runtime.dtypes import BY_NAME, BY_TL
from lightnet.runtime.numbers import as_realtype

NAME = "ln.name"  #: discardable attribute: the op's name in the source network
TENSORS = "ln.tensors"  #: discardable attribute: the names of its results


class ConstraintError(LightNetError, VerifyException):
    """A violated constraint of an op; a `VerifyException` too, so that xDSL's own tools report it."""


# -- fields ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Operand:
    """An operand. `role` is ``data`` or ``param`` (weights and the like); `kind` says how test data is drawn
    (`runtime.initial.sample`). `same_type`/`same_shape` name an earlier operand. A variadic operand stands last."""

    role: str = "data"
    kind: str = "data"
    rank: int | None = None
    min_rank: int = 0
    dtypes: tuple[str, ...] = ()
    same_type: str | None = None
    same_shape: str | None = None
    variadic: bool = False
    name: str = ""


@dataclass(frozen=True)
class Result:
    """A result. `owner` names the operand whose memory upstream's op shares with it (an alias in upstream's plans);
    `overwrites` says that upstream's op writes that operand in place, so that later readers of it see the result;
    `static` marks results that upstream never frees."""

    owner: str | None = None
    overwrites: bool = False
    static: bool = False
    variadic: bool = False
    name: str = ""


@dataclass(frozen=True)
class Param:
    """A parameter of one of document 004's types. Bounds are numbers or constant expressions (`ir/expr.py`);
    a parameter with a `default` may be left out in `.mlir` text; `in_type` ones are given by the result's type and
    never written (`dims`, `dtype`)."""

    kind: str  # number, string, bool, or an array of one: numbers, strings, bools
    realtype: str = "double"
    length: int | str | None = None
    bounds: tuple[tuple[str, float | str], ...] = ()
    choices: tuple[str, ...] = ()
    default: ParamValue | object = ...
    in_type: Callable[[TensorSpec], ParamValue] | None = None
    name: str = ""

    @property
    def ptype(self) -> str:
        """Document 004's name of the type."""
        base = {"number": "NUMBER", "string": "STRING", "bool": "BOOL"}[self.kind.rstrip("s")]
        return f"LN_PARAM_{'ARRAY_' if self.kind.endswith('s') else ''}{base}"

    def read(self, value: ParamValue) -> Any:
        """The value an op computes with: numbers in their realtype (saturating), the rest as it is."""
        if self.kind == "number":
            return as_realtype(value, self.realtype)  # pyright: ignore[reportArgumentType]
        if self.kind == "numbers":
            return tuple(as_realtype(v, self.realtype) for v in value)  # pyright: ignore
        return value


def operand(role: str = "data", **options: Any) -> Any:
    """Declare an operand; see `Operand`."""
    if role == "param" and "kind" not in options:
        options["kind"] = "weight"
    return Operand(role, **options)


def result(**options: Any) -> Any:
    """Declare a result; see `Result`."""
    return Result(**options)


def number(realtype: str, *, default: Any = ..., in_type: Any = None, **bounds: float | str) -> Any:
    """Declare a number parameter, read as `realtype` (int, float, double), within bounds (ge, gt, le, lt, eq, ne)."""
    return Param("number", realtype, bounds=tuple(bounds.items()), default=default, in_type=in_type)


def numbers(realtype: str, length: int | str | None = None, *, default: Any = ..., in_type: Any = None,
            **bounds: float | str) -> Any:  # fmt: skip
    """Declare an array of numbers; every element keeps the bounds."""
    return Param("numbers", realtype, length, tuple(bounds.items()), default=default, in_type=in_type)


def string(*choices: str, default: Any = ..., in_type: Any = None) -> Any:
    """Declare a string parameter, one of `choices` if there are any."""
    return Param("string", choices=choices, default=default, in_type=in_type)


def boolean(*, default: Any = ...) -> Any:
    """Declare a bool parameter."""
    return Param("bool", default=default)


#: Parameters that only repeat the result's type.
def dims_of_result(**bounds: float | str) -> Any:
    """The `dims` parameter of an op whose result has just those dims."""
    return numbers("int", in_type=lambda spec: spec.dims, **bounds)


def dtype_of_result() -> Any:
    """The `dtype` parameter (a TensorLight name) of an op whose result has that type."""
    return string(*BY_TL, in_type=lambda spec: spec.dtype.tl)


@dataclass(frozen=True)
class Case:
    """A test case of an op: the types of its operands (a tuple of specs for a variadic one) and its parameters."""

    tensors: dict[str, TensorSpec | tuple[TensorSpec, ...]]
    params: dict[str, ParamValue]


def case(type_: str = "f32", /, **fields: Any) -> Case:
    """Build a `Case`: a tuple or list under an operand's name gives dims (or ``(dims, "i32")``); the class sorts out
    which names are parameters (`Schema.case`)."""
    return Case({"": TensorSpec((), BY_NAME[type_])}, fields)


@dataclass
class Schema:
    """What a class declared, in order."""

    operands: tuple[Operand, ...]
    results: tuple[Result, ...]
    params: tuple[Param, ...]
    variadic_operand: Operand | None = field(init=False)
    variadic_result: Result | None = field(init=False)
    by_name: dict[str, Param] = field(init=False)

    def __post_init__(self) -> None:
        self.variadic_operand = next((o for o in self.operands if o.variadic), None)
        self.variadic_result = next((r for r in self.results if r.variadic), None)
        self.by_name = {p.name: p for p in self.params}

    def operand_names(self, count: int) -> list[str]:
        """The argument name of each operand; variadic ones count from 1 (``src1``, ``src2``)."""
        return _arg_names(self.operands, count)

    def result_names(self, count: int) -> list[str]:
        return _arg_names(self.results, count)

    def named_operands(self, specs: Sequence[TensorSpec]) -> SimpleNamespace:
        """Operand specs by field name, a tuple under a variadic one: the `t` of `infer`."""
        fixed = [o.name for o in self.operands if not o.variadic]
        named: dict[str, Any] = dict(zip(fixed, specs))
        if self.variadic_operand is not None:
            named[self.variadic_operand.name] = tuple(specs[len(fixed) :])
        return SimpleNamespace(**named)

    def read_params(self, values: Mapping[str, ParamValue]) -> SimpleNamespace:
        """Parameter values in their realtypes: the `p` of `infer`."""
        return SimpleNamespace(**{k: self.by_name[k].read(v) for k, v in values.items()})

    def operand_fields(self, count: int) -> list[Operand]:
        """The field of each of `count` operands."""
        fields = [o for o in self.operands if not o.variadic]
        return fields + [self.variadic_operand] * (count - len(fields))  # pyright: ignore[reportReturnType]

    def resolve(self, c: Case) -> Case:
        """A case with its operand types built and parameters split off."""
        default = c.tensors[""].dtype  # pyright: ignore[reportAttributeAccessIssue]

        def spec(value: Any) -> Any:
            if isinstance(value, list):
                return tuple(spec(v) for v in value)
            if len(value) == 2 and isinstance(value[1], str):
                return TensorSpec(tuple(value[0]), BY_NAME[value[1]])
            return TensorSpec(tuple(value), default)

        names = {o.name for o in self.operands}
        return Case(
            {k: spec(v) for k, v in c.params.items() if k in names},
            {k: tuple(v) if isinstance(v, list) else v for k, v in c.params.items() if k not in names},
        )


def _arg_names(fields: Sequence[Operand | Result], count: int) -> list[str]:
    names = [f.name for f in fields if not f.variadic]
    variadic = next((f.name for f in fields if f.variadic), "")
    return names + [f"{variadic}{i + 1}" for i in range(count - len(names))]


# -- the op class ----------------------------------------------------------------------------------------------------


class LnOp(Operation):
    """Base of all `ln` ops; see the module's docstring for what a subclass declares."""

    optype: ClassVar[str] = ""
    schema: ClassVar[Schema]
    traits = traits_def(Pure())
    #: Labelled constraints: label -> constant expression that must hold.
    checks: ClassVar[Mapping[str, str]] = {}
    #: The op in index notation, or None (a decomposition, a builder or a run-time call says what it is instead).
    definition: ClassVar[str | None] = None
    #: Rewrite patterns of this op alone, for `simplify`.
    rewrites: ClassVar[tuple[type[RewritePattern], ...]] = ()
    #: True where equal ops are not interchangeable (they are told apart by their names).
    unique: ClassVar[bool] = False
    #: True for ops that only move elements: every result element is some operand element.
    is_move: ClassVar[bool] = False
    #: True for ops whose work happens in the host at run time (print): they never stand in kernels.
    is_host: ClassVar[bool] = False

    @classmethod
    def infer(cls, t: Any, p: Any) -> Sequence[TensorSpec]:
        """The types of the results, from operand specs `t.<name>` and parameters `p.<name>`. Called only after every
        constraint but `in_type` parameters holds. The default: one result, of the first operand's type."""
        return [t.__dict__[cls.schema.operands[0].name]]

    def reference(self, *operands: np.ndarray) -> Any:
        """The op in NumPy: arrays of the operands' types to an array (or a tuple), computed in float64 where the op
        rounds. It shares nothing with `definition`: each is tested against the other."""
        raise NotImplementedError(f"{self.name} has no reference")

    @classmethod
    def derived(cls, t: Any, p: Any) -> Mapping[str, Any]:
        """Further constants that `definition` may name, computed from operand specs and parameters (padding that
        `autopad` decides)."""
        return {}

    #: True where `build_loops` is the op's definition (sorts): it cannot be fused.
    has_builder: ClassVar[bool] = False

    def build_loops(self, b: Any, operands: Sequence[SSAValue], results: Sequence[SSAValue], workspace: Any) -> None:
        """The op at the loop level: fill a kernel of one block (`ir/builder.py`) on rank-1 memrefs; `workspace` is an i8
        memref of `workspace_bytes`, or None."""
        raise NotImplementedError(f"{self.name} has no loop-level builder")

    def workspace_bytes(self) -> int:
        """Bytes of workspace that `build_loops` needs."""
        return 0

    def views(self) -> Iterator[tuple[int, int, int]]:
        """For a move: (operand index, result index, byte offset), one for each pair that is the same memory when the
        smaller of the two lies at that offset inside the larger."""
        return iter(())

    def flops(self) -> int:
        """Floating-point operations of one execution; default: one for each result element."""
        return sum(r.len for r in self.result_specs)

    def bytes_moved(self) -> int:
        """Bytes read and written once."""
        return sum(s.nbytes for s in (*self.operand_specs, *self.result_specs))

    @classmethod
    def samples(cls) -> list[Case]:
        """Test cases; shapes include the ugly ones."""
        return []

    @classmethod
    def sample_data(cls, name: str, kind: str, spec: TensorSpec, tensors: Mapping[str, TensorSpec],
                    params: Mapping[str, ParamValue], seed: int) -> np.ndarray:  # fmt: skip
        """Test data for the operand `name`, from all operand types and the parameters; override where values are
        constrained (indices in range, positive bases)."""
        from lightnet.runtime.initial import sample

        fan_in = int(np.prod(spec.dims[1:])) if kind == "weight" and spec.ndim > 1 else None
        return sample(name, kind, spec.dims, spec.dtype, seed=seed, fan_in=fan_in)

    # -- building

    @classmethod
    def make(cls, operands: Sequence[SSAValue], params: Mapping[str, ParamValue] | None = None, *,
             name: str | None = None, tensors: Sequence[str] | None = None, location: Any = None) -> Self:  # fmt: skip
        """Check every constraint, infer the result types and build the op. Raises `ConstraintError`."""
        params = dict(params or {})
        specs = [_operand_spec(cls, i, o, name) for i, o in enumerate(operands)]
        results = check_op(cls, specs, params, name)
        return cls.build_unchecked(operands, params, results, name=name, tensors=tensors, location=location)

    @classmethod
    def build_unchecked(cls, operands: Sequence[SSAValue], params: Mapping[str, ParamValue],
                        results: Sequence[TensorSpec], *, name: str | None = None,
                        tensors: Sequence[str] | None = None, location: Any = None) -> Self:  # fmt: skip
        schema = cls.schema
        properties = {k: ParamAttr(v) for k, v in params.items() if schema.by_name[k].in_type is None}
        attributes: dict[str, Attribute] = {}
        if name is not None:
            attributes[NAME] = StringAttr(name)
        if tensors:
            attributes[TENSORS] = ArrayAttr([StringAttr(n) for n in tensors])
        op = cls.create(operands=operands, result_types=[tensor_type(r) for r in results],
                        properties=properties, attributes=attributes, location=location)  # fmt: skip
        for value, tensor in zip(op.results, tensors or ()):
            value.name_hint = name_hint(tensor)
        return op

    # -- reading

    @property
    def op_name(self) -> str | None:
        return name_of(self)

    @property
    def tensor_names(self) -> tuple[str | None, ...]:
        return tensor_names(self)

    @property
    def operand_specs(self) -> list[TensorSpec]:
        return [spec_of(o.type) for o in self.operands]

    @property
    def result_specs(self) -> list[TensorSpec]:
        return [spec_of(r.type) for r in self.results]

    def param_values(self) -> dict[str, ParamValue]:
        """Every parameter as written (defaults filled in, `in_type` ones from the result), in declared order."""
        values: dict[str, ParamValue] = {}
        for p in self.schema.params:
            if p.in_type is not None:
                values[p.name] = p.in_type(self.result_specs[0])
            else:
                attr = self.properties.get(p.name)
                values[p.name] = attr.data if isinstance(attr, ParamAttr) else p.default  # pyright: ignore
        return values

    def env(self) -> expr.Env:
        """Operands, results and parameters as the constant environment of the op's definition."""
        env = constant_env(type(self), self.operand_specs, self.param_values(), self.result_specs)
        env.params.update(self.derived_values())
        return env

    def derived_values(self) -> Mapping[str, Any]:
        """`derived` of this op."""
        specs = self.operand_specs
        return self.derived(self.schema.named_operands(specs), self.schema.read_params(self.param_values()))

    def arg_names(self) -> tuple[list[str], list[str]]:
        """The argument names of operands and results."""
        return self.schema.operand_names(len(self.operands)), self.schema.result_names(len(self.results))

    # -- verifying

    def verify_(self) -> None:
        params = {k: v.data for k, v in self.properties.items() if isinstance(v, ParamAttr)}
        for p in self.schema.params:
            if p.in_type is not None and self.results:
                params[p.name] = p.in_type(self.result_specs[0])
        specs = [_operand_spec(type(self), i, o, self.op_name) for i, o in enumerate(self.operands)]
        expected = check_op(type(self), specs, params, self.op_name)
        got = self.result_specs
        if list(expected) != got:
            raise ConstraintError(
                f"{self._who()}: its results should be {', '.join(map(str, expected))}, but are "
                f"{', '.join(map(str, got))}", label=f"{self.optype}.result-type")  # fmt: skip

    def _who(self) -> str:
        return f"{self.optype}: `{self.op_name}`" if self.op_name else self.optype

    # -- text

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        operands = parse_operands(parser)
        properties: dict[str, Attribute] = {}
        attributes: dict[str, Attribute] = {}
        if parser.parse_optional_punctuation("{"):
            _parse_params(parser, cls.schema, properties, attributes)
        results: list[Attribute] = []
        if parser.parse_optional_punctuation(":"):
            results = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
        for p in cls.schema.params:
            if p.in_type is None and p.name not in properties and p.default is not ...:
                properties[p.name] = ParamAttr(p.default)  # pyright: ignore[reportArgumentType]
        parse_suffix(parser, attributes)
        return cls.create(operands=operands, result_types=results, properties=properties, attributes=attributes)

    def print(self, printer: Printer) -> None:
        if self.operands:
            printer.print_string(" ")
            printer.print_list(self.operands, printer.print_operand)
        entries = [
            f"{p.name} = {format_param_value(attr.data)}"
            for p in self.schema.params
            if isinstance(attr := self.properties.get(p.name), ParamAttr) and not same_value(attr.data, p.default)
        ]
        others = {k: v for k, v in self.attributes.items() if k not in SUFFIX}
        if entries or others:
            printer.print_string(" {" + ", ".join(entries))
            for i, (key, value) in enumerate(others.items()):
                printer.print_string(f"{', ' if i or entries else ''}{key}")
                if not _is_unit(value):
                    printer.print_string(" = ")
                    printer.print_attribute(value)
            printer.print_string("}")
        if self.results:
            printer.print_string(" : ")
            printer.print_list(self.results, lambda r: printer.print_attribute(r.type))
        print_suffix(printer, self)


def same_value(a: object, b: object) -> bool:
    """Equal and of the same kind (1 and 1.0 differ in text, 1 and true in meaning)."""
    return type(a) is type(b) and a == b and (not isinstance(a, tuple) or all(map(same_value, a, b)))  # pyright: ignore


def _is_unit(attr: Attribute) -> bool:
    return attr.name == "unit"


def _parse_params(parser: Parser, schema: Schema, properties: dict, attributes: dict) -> None:
    if parser.parse_optional_punctuation("}"):
        return
    while True:
        pos = parser.pos
        key = parser.parse_identifier(" as the name of a parameter")
        if key in properties or key in attributes:
            parser.raise_error(f"parameter '{key}' is given twice", pos)
        field_ = schema.by_name.get(key)
        if field_ is not None and field_.in_type is None:
            parser.parse_punctuation("=")
            properties[key] = ParamAttr(parse_param_value(parser))
        elif "." in key:
            attributes[key] = parser.parse_attribute() if parser.parse_optional_punctuation("=") else _unit()
        else:
            names = ", ".join(p.name for p in schema.params if p.in_type is None) or "none"
            parser.raise_error(f"unknown parameter '{key}'; there are: {names}", pos)
        if not parser.parse_optional_punctuation(","):
            parser.parse_punctuation("}")
            return


def _unit() -> Attribute:
    from xdsl.dialects.builtin import UnitAttr

    return UnitAttr()


# -- names and places, printed after every op ------------------------------------------------------------------------


def name_of(op: Operation) -> str | None:
    """The name an op has in the source network."""
    attr = op.attributes.get(NAME)
    return attr.data if isinstance(attr, StringAttr) else None


def tensor_names(op: Operation) -> tuple[str | None, ...]:
    """The source names of an op's results (None where unknown)."""
    attr = op.attributes.get(TENSORS)
    if not isinstance(attr, ArrayAttr):
        return (None,) * len(op.results)
    names = tuple(a.data or None for a in attr if isinstance(a, StringAttr))
    return names + (None,) * (len(op.results) - len(names))


def set_tensor_names(op: Operation, names: Sequence[str | None]) -> None:
    """Name an op's results (an empty string stands for an unknown name); hints follow."""
    if not any(names):
        op.attributes.pop(TENSORS, None)
        return
    op.attributes[TENSORS] = ArrayAttr([StringAttr(n or "") for n in names])
    for value, tensor in zip(op.results, names):
        if tensor:
            value.name_hint = name_hint(tensor)


def name_hint(tensor: str) -> str | None:
    """The SSA name of a tensor. xDSL takes a trailing ``_1`` for a suffix of its own, at each reading: spell it ``.1``."""
    hint = re.sub(r"_(\d+)$", r".\1", tensor)
    return hint if SSAValue.is_valid_name(hint) else None


PLACES = "ln.places"  #: after `plan`: an array of `#ln.place`, one a result
WORKSPACE = "ln.workspace"  #: after `plan`: the places of a kernel's workspace
SUFFIX = (NAME, TENSORS, PLACES, WORKSPACE)


def places_of(op: Operation) -> tuple[PlaceAttr, ...]:
    """The places of an op's results, empty before `plan`."""
    attr = op.attributes.get(PLACES)
    return attr.data if isinstance(attr, ArrayAttr) else ()  # pyright: ignore[reportReturnType]


def parse_operands(parser: Parser) -> list[SSAValue]:
    """A possibly empty comma-separated list of values that are already defined (types are not repeated)."""
    operands: list[SSAValue] = []
    unresolved = parser.parse_optional_unresolved_operand()
    while unresolved is not None:
        operands.append(resolve(parser, unresolved))
        unresolved = parser.parse_unresolved_operand() if parser.parse_optional_punctuation(",") else None
    return operands


def resolve(parser: Parser, unresolved: Any) -> SSAValue:
    """The value behind a parsed ``%name``; an undefined one is an error at its use."""
    values = parser.ssa_values.get(unresolved.operand_name)
    if values is None or unresolved.index >= len(values):
        parser.raise_error(f"value %{unresolved.operand_name} is used before it is defined", unresolved.span)
    return values[unresolved.index]


def parse_suffix(parser: Parser, attributes: dict[str, Attribute]) -> None:
    """``at arena+64, arena+128 work arena+4096 as "conv2d0"("conv1")``, each part optional."""
    for key, word in ((PLACES, "at"), (WORKSPACE, "work")):
        if parser.parse_optional_keyword(word):
            places = parser.parse_comma_separated_list(parser.Delimiter.NONE, lambda: parse_place(parser))
            attributes[key] = ArrayAttr(places)
    if not parser.parse_optional_keyword("as"):
        return
    if (name := parser.parse_optional_str_literal()) is not None:
        attributes[NAME] = StringAttr(name)
    if parser.parse_optional_punctuation("("):
        names = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_str_literal)
        parser.parse_punctuation(")")
        attributes[TENSORS] = ArrayAttr([StringAttr(n) for n in names])


def print_suffix(printer: Printer, op: Operation) -> None:
    for key, word in ((PLACES, "at"), (WORKSPACE, "work")):
        if isinstance(places := op.attributes.get(key), ArrayAttr):
            printer.print_string(f" {word} {', '.join(map(str, places))}")
    name, tensors = op.attributes.get(NAME), op.attributes.get(TENSORS)
    if name is None and tensors is None:
        return
    printer.print_string(" as ")
    if isinstance(name, StringAttr):
        printer.print_string(format_param_value(name.data))
    if isinstance(tensors, ArrayAttr):
        printer.print_string(f"({', '.join(format_param_value(t.data) for t in tensors)})")


# -- constraints -----------------------------------------------------------------------------------------------------


def _operand_spec(cls: type[LnOp], index: int, value: SSAValue, name: str | None) -> TensorSpec:
    try:
        return spec_of(value.type)
    except TypeError as e:
        who = f"{cls.optype}: `{name}`" if name else cls.optype
        raise ConstraintError(f"{who}: operand {index}: {e}", label=f"{cls.optype}.operand-type") from None


def constant_env(cls: type[LnOp], operands: Sequence[TensorSpec], params: Mapping[str, ParamValue],
                 results: Sequence[TensorSpec] = ()) -> expr.Env:  # fmt: skip
    """The constants that checks, bounds and definitions of an op may name."""
    schema = cls.schema
    tensors = dict(zip(schema.operand_names(len(operands)), operands))
    tensors.update(zip(schema.result_names(len(results)), results))
    return expr.Env(tensors, {k: schema.by_name[k].read(v) for k, v in params.items()})


def check_op(cls: type[LnOp], operands: Sequence[TensorSpec], params: dict[str, ParamValue],
             name: str | None = None) -> list[TensorSpec]:  # fmt: skip
    """Check everything that an op declares and return its result types; fills defaults into `params`.

    Order as upstream's: inputs (count, rank, type, shape), parameters (count, type, length, bounds), the op's checks.
    """
    return _Checker(cls, name).run(operands, params)


class _Checker:
    def __init__(self, cls: type[LnOp], name: str | None):
        self.cls, self.schema = cls, cls.schema
        self.name = f"`{name}`" if name else "it"
        self.who = f"{cls.optype}: `{name}`" if name else cls.optype

    def fail(self, label: str, text: str) -> ConstraintError:
        return ConstraintError(text, label=f"{self.cls.optype}.{label}")

    def run(self, operands: Sequence[TensorSpec], params: dict[str, ParamValue]) -> list[TensorSpec]:
        self.check_operands(operands)
        self.check_param_types(params)
        env = constant_env(self.cls, operands, params)
        for p in self.schema.params:
            self.check_bounds(p, params[p.name], env)
        for label, text in self.cls.checks.items():
            self.check_expr(label, text, env)
        t, p = self.schema.named_operands(operands), self.schema.read_params(params)
        results = list(self.cls.infer(t, p))
        for spec in results:
            self.check_size(spec)
        return results

    def check_operands(self, operands: Sequence[TensorSpec]) -> None:
        fixed = sum(not o.variadic for o in self.schema.operands)
        variadic = self.schema.variadic_operand is not None
        if len(operands) != fixed and not (variadic and len(operands) > fixed):
            need = f"at least {fixed + 1}" if variadic else str(fixed)
            raise self.fail("operand-count", f"{self.who} needs {need} input tensors, but gets {len(operands)}")
        tensors = dict(zip(self.schema.operand_names(len(operands)), operands))
        first_variadic = f"{self.schema.variadic_operand.name}1" if variadic else ""  # pyright: ignore
        for field_, (arg, spec) in zip(self.schema.operand_fields(len(operands)), tensors.items()):
            what = f"{self.who}'s tensor `{arg}`"
            if field_.rank is not None and spec.ndim != field_.rank:
                raise self.fail(f"{field_.name}.rank", f"{what} should be a {field_.rank}-dimensional tensor, "
                                f"but gets {spec}")  # fmt: skip
            if spec.ndim < field_.min_rank:
                raise self.fail(f"{field_.name}.rank", f"{what} should have at least {field_.min_rank} dimensions, "
                                f"but gets {spec}")  # fmt: skip
            if field_.dtypes and spec.dtype.name not in field_.dtypes:
                raise self.fail(f"{field_.name}.dtype", f"{what}'s dtype should be {' or '.join(field_.dtypes)}, "
                                f"but gets a {spec.dtype}")  # fmt: skip
            same_type = first_variadic if field_.variadic else field_.same_type
            if same_type and spec.dtype != tensors[same_type].dtype:
                raise self.fail(f"{field_.name}.same-type", f"{self.who}'s tensor `{arg}` ({spec}) and tensor "
                                f"`{same_type}` ({tensors[same_type]}) should have the same data type")  # fmt: skip
            same_shape = first_variadic if field_.variadic else field_.same_shape
            if same_shape and spec.dims != tensors[same_shape].dims:
                raise self.fail(f"{field_.name}.same-shape", f"{self.who}'s tensor `{arg}` ({spec}) and tensor "
                                f"`{same_shape}` ({tensors[same_shape]}) should have the same shape")  # fmt: skip

    def check_param_types(self, params: dict[str, ParamValue]) -> None:
        for p in self.schema.params:
            if p.name not in params:
                if p.default is ...:
                    raise self.fail(f"{p.name}.missing", f"{self.who} needs a `{p.name}` param")
                params[p.name] = p.default  # pyright: ignore[reportArgumentType]
            if (got := ptype_of(params[p.name])) != p.ptype:
                raise self.fail(f"{p.name}.type", f"{self.who}'s `{p.name}` param's value should be of type "
                                f"{p.ptype}, but gets a {got}")  # fmt: skip
        for key in params:
            if key not in self.schema.by_name:
                raise self.fail("unknown-param", f"{self.who} has no `{key}` param; there are: "
                                f"{', '.join(self.schema.by_name) or 'none'}")  # fmt: skip

    def check_bounds(self, p: Param, value: ParamValue, env: expr.Env) -> None:
        what = f"{self.who}'s `{p.name}` param"
        if p.length is not None:
            need = self.constant(p.length, env)
            if len(value) != need:  # pyright: ignore[reportArgumentType]
                raise self.fail(f"{p.name}.length", f"{what} needs {need} elements, but gets {len(value)} elements")  # pyright: ignore
        if p.choices and value not in p.choices:
            raise self.fail(f"{p.name}.value", f"{what}'s value should be one of {', '.join(p.choices)}, but gets "
                            f"\"{value}\"")  # fmt: skip
        read = p.read(value)
        elements = read if isinstance(read, tuple) else (read,)
        for op, bound in p.bounds:
            limit = self.constant(bound, env)
            for i, element in enumerate(elements):
                if not _COMPARE[op](element, limit):
                    where = f"{what}[{i}]'s value" if isinstance(read, tuple) else f"{what}'s value"
                    raise self.fail(f"{p.name}.{op}", f"{where} should be {_SIGN[op]} {limit}, but gets a {element}")

    def check_expr(self, label: str, text: str, env: expr.Env) -> None:
        failed = expr.failure(text, env)
        if failed is not None:
            raise self.fail(label, f"{self.who} should satisfy \"{text}\": {failed}")

    def check_size(self, spec: TensorSpec) -> None:
        if not 1 <= spec.ndim <= MAX_RANK:
            raise self.fail("result-rank", f"{self.who}'s result {spec} should have 1 to {MAX_RANK} dimensions")
        if any(d <= 0 for d in spec.dims):
            raise self.fail("result-dims", f"{self.who}'s result {spec} should have positive dimensions only")
        if spec.nbytes > MAX_TENSOR_BYTES:
            raise self.fail("result-size", f"{self.who}'s result {spec} takes {spec.nbytes} bytes, more than the "
                            f"limit of {MAX_TENSOR_BYTES}")  # fmt: skip

    def constant(self, value: float | str, env: expr.Env) -> Any:
        return expr.evaluate(value, env) if isinstance(value, str) else value


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "ge": lambda a, b: a >= b, "gt": lambda a, b: a > b, "le": lambda a, b: a <= b, "lt": lambda a, b: a < b,
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b,
}  # fmt: skip
_SIGN = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<", "eq": "==", "ne": "!="}


def ptype_of(value: ParamValue) -> str:
    """Document 004's type of a parameter's value."""
    if value is None:
        return "LN_PARAM_NULL"
    scalar = value[0] if isinstance(value, tuple) and value else value
    if isinstance(value, tuple) and not value:
        return "LN_PARAM_ARRAY_NUMBER"
    base = "BOOL" if isinstance(scalar, bool) else "STRING" if isinstance(scalar, str) else "NUMBER"
    return f"LN_PARAM_{'ARRAY_' if isinstance(value, tuple) else ''}{base}"


# -- the decorator ---------------------------------------------------------------------------------------------------


def ln_op(cls: type[LnOp]) -> type[LnOp]:
    """Make an op of a class that declares fields; see the module's docstring."""
    fields: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        fields.update({k: v for k, v in vars(base).items() if isinstance(v, Operand | Result | Param)})
        fields.update(getattr(base, "_own_fields", {}))
    cls._own_fields = fields  # pyright: ignore[reportAttributeAccessIssue]
    named = {k: type(v)(**{**v.__dict__, "name": k}) for k, v in fields.items()}
    cls.schema = Schema(
        tuple(v for v in named.values() if isinstance(v, Operand)),
        tuple(v for v in named.values() if isinstance(v, Result)),
        tuple(v for v in named.values() if isinstance(v, Param)),
    )
    cls.name = f"ln.{cls.optype}"
    for i, o in enumerate(cls.schema.operands):
        setattr(cls, o.name, property(_operand_getter(i, o.variadic)))
    for i, r in enumerate(cls.schema.results):
        setattr(cls, r.name, property(_result_getter(i, r.variadic)))
    for p in cls.schema.params:
        setattr(cls, p.name, property(_param_getter(p)))
    return cls


def _operand_getter(index: int, variadic: bool) -> Callable[[LnOp], Any]:
    return (lambda op: op.operands[index:]) if variadic else (lambda op: op.operands[index])


def _result_getter(index: int, variadic: bool) -> Callable[[LnOp], Any]:
    return (lambda op: op.results[index:]) if variadic else (lambda op: op.results[index])


def _param_getter(p: Param) -> Callable[[LnOp], Any]:
    if p.in_type is not None:
        return lambda op: p.read(p.in_type(op.result_specs[0]))  # pyright: ignore[reportOptionalCall]
    return lambda op: p.read(op.properties[p.name].data)  # pyright: ignore[reportAttributeAccessIssue]
