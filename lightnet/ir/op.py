"""The declaration of an `ln` op: one class that says everything about the op, from which the rest is derived.

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

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, StringAttr, UnitAttr
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import traits_def
from xdsl.parser import Parser
from xdsl.pattern_rewriter import RewritePattern
from xdsl.printer import Printer
from xdsl.traits import Pure

from lightnet.dataclasses import replace
from lightnet.diagnostics import LightNetError
from lightnet.ir import constants
from lightnet.ir.constraints import ConstraintError, Message, check_op, constant_env, operand_spec
from lightnet.ir.layout import check_layouts
from lightnet.ir.locations import loc_of
from lightnet.ir.names import (
    OP_NAME,
    PLACES,
    SUFFIX,
    TENSORS,
    WORKSPACE,
    name_hint,
    name_of,
    parse_operands,
    parse_suffix,
    places_of,
    print_suffix,
    resolve_value,
    set_tensor_names,
    tensor_name,
    tensor_names,
)
from lightnet.ir.params import ParamValue, same_value
from lightnet.ir.schema import (
    Case,
    Operand,
    Param,
    Result,
    Schema,
    boolean,
    case,
    dims_of_result,
    dtype_of_result,
    number,
    numbers,
    operand,
    result,
    string,
)
from lightnet.ir.types import ParamAttr, TensorSpec, format_param_value, parse_param_value, spec_of, tensor_type
from lightnet.runtime.dtypes import is_float, round_to, widened_array
from lightnet.runtime.initial import sample

__all__ = [
    "OP_NAME", "PLACES", "SUFFIX", "TENSORS", "WORKSPACE", "Case", "ConstraintError", "LnOp", "Operand", "Param",
    "Result", "Schema", "boolean", "case", "check_op", "constant_env", "dims_of_result", "dtype_of_result", "ln_op",
    "name_hint", "name_of", "number", "numbers", "operand", "parse_operands", "parse_suffix", "places_of",
    "print_suffix", "resolve_value", "result", "set_tensor_names", "string", "tensor_name", "tensor_names",
]  # fmt: skip


_T = TypeVar("_T")
_Op = TypeVar("_Op", bound="LnOp")


class LnOp(Operation):
    """Base of all `ln` ops; see the module's docstring for what a subclass declares."""

    optype: ClassVar[str] = ""
    schema: ClassVar[Schema]
    _own_fields: ClassVar[Mapping[str, Operand | Result | Param]] = {}
    traits = traits_def(Pure())
    #: Labelled constraints: label -> constant expression that must hold.
    checks: ClassVar[Mapping[str, str]] = {}
    #: The lengths of the axes that elements are picked along, a constant expression: none may be 0, unless there is
    #: nothing to be picked.
    picks: ClassVar[str | None] = None
    #: What an error says instead of a constraint's text, by label.
    messages: ClassVar[Mapping[str, Message]] = {}
    #: The only target whose kernels the op may stand in; ``none`` says any.
    arch: ClassVar[str] = "none"
    if TYPE_CHECKING:

        @property
        def definition(self) -> str | None:
            """The op in index notation, or None (a decomposition, a builder or a run-time call says what it is
            instead): a text of the class, or a property."""

    else:
        definition = None
    #: Rewrite patterns of this op alone, for `simplify`.
    rewrites: ClassVar[tuple[type[RewritePattern], ...]] = ()
    #: True where equal ops are not interchangeable (they are told apart by their names).
    unique: ClassVar[bool] = False
    #: True for ops that only move elements: every result element is some operand element.
    is_move: ClassVar[bool] = False
    #: True for ops whose result is their first operand, at the same subscripts, and more elements along one axis.
    extends: ClassVar[bool] = False
    #: True for ops whose work happens in the host at run time (print): they never stand in kernels.
    is_host: ClassVar[bool] = False

    #: True for ops on the bits of their operands, whatever those mean.
    takes_bits: ClassVar[bool] = False

    @classmethod
    def infer(cls, t: Any, p: Any) -> Sequence[TensorSpec]:
        """The types of the results, from operand specs `t.<name>` and parameters `p.<name>`. Called only after every
        constraint but `in_type` parameters holds. The default: what the results declare."""
        schema, env = cls.schema, constants.Env(vars(t), vars(p))
        first = env.tensors[schema.operands[0].name] if schema.operands else None
        return [r.spec(env, first) for r in schema.results]

    def reference(self, *operands: np.ndarray) -> Any:
        """The op in NumPy: arrays of the operands' types to an array (or a tuple), computed in float64 where the op
        rounds. It shares nothing with `definition`: each is tested against the other. Through `evaluate`, operands of
        f16 and bf16 come as float32 (but for `takes_bits`), and may be returned so."""
        raise NotImplementedError(f"{self.name} has no reference")

    def evaluate(self, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The arrays that `reference` gives, which have exactly the declared types (else `LightNetError`)."""
        short = not self.takes_bits
        if self.results and all(
            s.len == 0 for s in self.result_specs
        ):  # no reference need know what happens to nothing
            return [np.empty(s.dims, s.dtype.np) for s in self.result_specs]
        with np.errstate(all="ignore"):
            found = self.reference(*(widened_array(a) for a in operands) if short else operands)
        results = list(found) if isinstance(found, tuple | list) else [found]
        if short:
            pairs = zip(results, self.result_specs, strict=True)
            results = [round_to(a, s.dtype) if s.dtype.is_short and is_float(a.dtype) else a for a, s in pairs]
        for array, spec in zip(results, self.result_specs, strict=True):
            if array.shape != spec.dims or array.dtype != spec.dtype.np:
                raise LightNetError(
                    f"the reference of {self.name} gives {array.dtype}{list(array.shape)} where its type is {spec}",
                    loc_of(self),
                )
        return results

    @classmethod
    def derived(cls, t: Any, p: Any) -> Mapping[str, Any]:
        """Further constants that `definition` may name, computed from operand specs and parameters (padding that
        `autopad` decides)."""
        return {}

    #: True where `build_loops` is the op's definition (sorts): it cannot be fused.
    has_builder: ClassVar[bool] = False

    def build_loops(self, b: Any, operands: Sequence[SSAValue], results: Sequence[SSAValue], workspace: Any) -> None:
        """The op at the loop level: fill a kernel (`backends/builder.py`) on rank-1 memrefs; `workspace` is an i8
        memref of `workspace_bytes`, or None. Of an op with `blocks`, those from ``b.lo`` to ``b.hi``."""
        raise NotImplementedError(f"{self.name} has no loop-level builder")

    def blocks(self) -> int:
        """In how many blocks that do not depend on each other `build_loops` does its work; 1: it does all at once."""
        return 1

    def workspace_bytes(self) -> int:
        """Bytes of workspace that `build_loops` needs."""
        return 0

    def check_roles(self) -> None:
        """Check what the op says of where its operands come from: `bind` asks, once it has decided it. Raises
        `ConstraintError`."""

    def decomposition(self) -> Any:
        """For an op that is a graph of other ops: these, detached, in order, the last of which has its results; or a
        pair of them and the values that take the places of the results. None for any other op."""
        return None

    def decomposed(self) -> tuple[list[LnOp], list[SSAValue]] | None:
        """The ops that it is, detached, and the values that take the places of its results; None for an op that is no
        graph."""
        found = self.decomposition()
        if found is None or isinstance(found, tuple):
            return found
        return list(found), list(found[-1].results)

    @classmethod
    def refusal(cls, target: str) -> str | None:
        """The reason why no kernel of `target` may hold the op, whatever the target runs; None if that is for the
        target to say.
        """
        return None if cls.arch in ("none", target) else f"it is an op of the target '{cls.arch}'"

    def views(self) -> Iterator[tuple[int, int, int]]:
        """For a move: (operand index, result index, byte offset), one for each pair that is the same memory when the
        smaller of the two lies at that offset inside the larger."""
        return iter(())

    #: Floating-point operations for each element of the results.
    work: ClassVar[int] = 1

    def flops(self) -> int:
        """Floating-point operations of one execution; default: `work` for each element of the results."""
        return self.work * sum(r.len for r in self.result_specs)

    @classmethod
    def samples(cls) -> list[Case]:
        """Test cases; shapes include the ugly ones."""
        return []

    @classmethod
    def sample_data(
        cls,
        name: str,
        kind: str,
        spec: TensorSpec,
        tensors: Mapping[str, TensorSpec],
        params: Mapping[str, ParamValue],
        seed: int,
    ) -> np.ndarray:
        """Test data for the operand `name`, from all operand types and the parameters; override where values are
        constrained (indices in range, positive bases)."""
        fan_in = int(np.prod(spec.dims[1:])) if kind == "weight" and spec.ndim > 1 else None
        return sample(name, kind, spec.dims, spec.dtype, seed=seed, fan_in=fan_in)

    # -- building

    @classmethod
    def make(
        cls,
        operands: Sequence[SSAValue],
        params: Mapping[str, ParamValue] | None = None,
        *,
        name: str | None = None,
        tensors: Sequence[str] | None = None,
        location: Any = None,
    ) -> Self:
        """Check every constraint, infer the result types and build the op. Raises `ConstraintError`."""
        params = {k: tuple(v) if isinstance(v, list) else v for k, v in (params or {}).items()}
        specs = [operand_spec(cls, i, o, name) for i, o in enumerate(operands)]
        results = check_op(cls, specs, params, name)
        return cls.build_unchecked(operands, params, results, name=name, tensors=tensors, location=location)

    @classmethod
    def build_unchecked(
        cls,
        operands: Sequence[SSAValue],
        params: Mapping[str, ParamValue],
        results: Sequence[TensorSpec],
        *,
        name: str | None = None,
        tensors: Sequence[str] | None = None,
        location: Any = None,
    ) -> Self:
        schema = cls.schema
        properties = {k: ParamAttr(v) for k, v in params.items() if schema.by_name[k].in_type is None}
        attributes: dict[str, Attribute] = {}
        if name is not None:
            attributes[OP_NAME] = StringAttr(name)
        if tensors:
            attributes[TENSORS] = ArrayAttr([StringAttr(n) for n in tensors])
        op = cls.create(
            operands=operands,
            result_types=[tensor_type(r) for r in results],
            properties=properties,
            attributes=attributes,
            location=location,
        )
        for value, tensor in zip(op.results, tensors or ()):
            value.name_hint = name_hint(tensor)
        return op

    def but(self, **params: ParamValue) -> Self:
        """The op again, on the same operands, with other parameters. Raises `ConstraintError` as `make` does."""
        return self.make(list(self.operands), {**self.written_params(), **params})

    # -- reading

    def __repr__(self) -> str:
        return f"<{str(self).strip()}>"

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
        """Every parameter as written (defaults filled in, `in_type` ones from the result), in declared order; of an op
        that does not verify, those that it has."""
        values: dict[str, ParamValue] = {}
        for p in self.schema.params:
            attr = self.properties.get(p.name)
            if p.in_type is not None:
                values[p.name] = p.in_type(self.result_specs[0])
            elif isinstance(attr, ParamAttr):
                values[p.name] = attr.data
            elif p.default is not ...:
                values[p.name] = p.default
        return values

    def param(self, name: str) -> Any:
        """The value of a parameter as the op computes with it: of an op that is a row, whose class no text declares."""
        return getattr(self, name)

    def written_params(self) -> dict[str, ParamValue]:
        """The parameters that stand in the op's text."""
        return {k: v.data for k, v in self.properties.items() if isinstance(v, ParamAttr)}

    def env(self) -> constants.Env:
        """Operands, results and parameters as the constant environment of the op's definition."""
        env = constant_env(type(self), self.operand_specs, self.param_values(), self.result_specs)
        return constants.Env(env.tensors, {**env.params, **self.derived_values()})

    def derived_values(self) -> Mapping[str, Any]:
        """`derived` of this op."""
        return self.remembered(_derived_values)

    def remembered(self, make: Callable[[Self], _T]) -> _T:
        """The result of `make`, a function of a module, for this op: something immutable that follows from its types
        and parameters alone. It is made again when one of these is another one.
        """
        types = [v.type for v in (*self.operands, *self.results)]
        then = self.__dict__.get("_remembered")
        if then is None or then[0] != types or then[1] != self.properties:
            then = self.__dict__["_remembered"] = types, dict(self.properties), {}
        found: dict[Callable[[Self], _T], _T] = then[2]
        if make not in found:
            found[make] = make(self)
        return found[make]

    def arg_names(self) -> tuple[list[str], list[str]]:
        """The argument names of operands and results."""
        return self.schema.operand_names(len(self.operands)), self.schema.result_names(len(self.results))

    # -- verifying

    def verify_(self) -> None:
        params = self.written_params()
        for p in self.schema.params:
            if p.in_type is not None and self.results:
                params[p.name] = p.in_type(self.result_specs[0])
        specs = [operand_spec(type(self), i, o, self.op_name) for i, o in enumerate(self.operands)]
        expected = check_op(type(self), specs, params, self.op_name)
        got = self.result_specs
        if list(expected) != got:
            raise ConstraintError(
                f"{self._who()}: its results should be {', '.join(map(str, expected))}, but are "
                f"{', '.join(map(str, got))}",
                label=f"{self.optype}.result-type",
            )
        check_layouts(self)

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
                properties[p.name] = ParamAttr(p.default)
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
                printer.print_string(", " if i or entries else "")
                printer.print_identifier_or_string_literal(key)
                if not _is_unit(value):
                    printer.print_string(" = ")
                    printer.print_attribute(value)
            printer.print_string("}")
        if self.results:
            printer.print_string(" : ")
            printer.print_list(self.results, lambda r: printer.print_attribute(r.type))
        print_suffix(printer, self)


def _derived_values(op: LnOp) -> Mapping[str, Any]:
    named = op.schema.named_operands(op.operand_specs)
    return MappingProxyType(dict(op.derived(named, op.schema.read_params(op.param_values()))))


def _is_unit(attr: Attribute) -> bool:
    return isinstance(attr, UnitAttr)


def _parse_params(parser: Parser, schema: Schema, properties: dict, attributes: dict) -> None:
    if parser.parse_optional_punctuation("}"):
        return
    while True:
        pos = parser.pos
        key = parser.parse_optional_str_literal() or parser.parse_identifier(" as the name of a parameter")
        if key in properties or key in attributes:
            parser.raise_error(f"parameter '{key}' is given twice", pos)
        field_ = schema.by_name.get(key)
        if field_ is not None and field_.in_type is None:
            parser.parse_punctuation("=")
            properties[key] = ParamAttr(parse_param_value(parser))
        elif "." in key:
            attributes[key] = parser.parse_attribute() if parser.parse_optional_punctuation("=") else UnitAttr()
        else:
            names = ", ".join(p.name for p in schema.params if p.in_type is None) or "none"
            parser.raise_error(f"unknown parameter '{key}'; there are: {names}", pos)
        if not parser.parse_optional_punctuation(","):
            parser.parse_punctuation("}", f" or ',' behind '{key}', whose value has no type, but a point: 1.0e-05")
            return


def ln_op(cls: type[_Op]) -> type[_Op]:
    """Make an op of a class that declares fields; see the module's docstring."""
    fields: dict[str, Operand | Result | Param] = {}
    for base in (b for b in reversed(cls.__mro__) if b not in LnOp.__mro__):  # which have none, and much else
        fields.update({k: v for k, v in vars(base).items() if isinstance(v, Operand | Result | Param)})
        fields.update(vars(base).get("_own_fields", {}))
    cls._own_fields = fields
    named = {k: replace(v, name=k) for k, v in fields.items()}
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
    if (in_type := p.in_type) is not None:
        return lambda op: p.read(in_type(op.result_specs[0]))

    def get(op: LnOp) -> Any:
        attr = op.properties[p.name]
        assert isinstance(attr, ParamAttr)
        return p.read(attr.data)

    return get
