"""The declarations of an `ln` op class: operands, results, parameters and test cases, and the schema they add up to.

The functions (`operand`, `result`, `number` …) are what op classes call; `Schema` is what everything derived from an op
reads. Imports the types and the runtime's number model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import EllipsisType, SimpleNamespace
from typing import Any

from lightnet.dataclasses import dataclass, field
from lightnet.ir.constants import Env, evaluate
from lightnet.ir.params import ParamValue
from lightnet.ir.types import TensorSpec
from lightnet.runtime.dims import Dim, Size, Undecided
from lightnet.runtime.dtypes import BY_NAME, BY_TL, DType
from lightnet.runtime.numbers import as_int, as_realtype


@dataclass(frozen=True)
class Operand:
    """An operand. `role` is ``data`` or ``param`` (weights and the like); `kind` says how test data is drawn
    (`runtime.initial.sample`). `same_type`/`same_shape` name an earlier operand, or the first of a variadic one, which
    stands last. A netlist's argument names order the tensors of a variadic operand only if it is `by_name`, else they
    are taken as they come."""

    role: str = "data"
    kind: str = "data"
    rank: int | None = None
    min_rank: int = 0
    dtypes: tuple[str, ...] = ()
    same_type: str | None = None
    same_shape: str | None = None
    variadic: bool = False
    by_name: bool = False
    name: str = ""


@dataclass(frozen=True)
class Result:
    """A result. `dims` are its dims, a constant expression of operands and parameters (`ir/expr.py`); `dtype` is its
    type, by its own name or that of the operand or parameter that has it; where nothing is said they are those of the
    first operand. `owner` names the operand whose memory upstream's op shares with it (an alias in upstream's plans);
    `overwrites` says that upstream's op writes that operand in place, so that later readers of it see the result;
    `static` marks results that upstream never frees."""

    dims: str | None = None
    dtype: str | None = None
    owner: str | None = None
    overwrites: bool = False
    static: bool = False
    variadic: bool = False
    name: str = ""

    def spec(self, env: Env, first: TensorSpec | None, dims: tuple[Size, ...] | None = None) -> TensorSpec:
        """Its type, of an op with these operands, the `first` of them, and parameters; `dims` where the op finds them
        itself."""
        if dims is None:
            found = _known(first).dims if self.dims is None else evaluate(self.dims, env)
            assert isinstance(found, tuple), f"the dims of '{self.name}' are an array"
            dims = found
        return TensorSpec(dims, _known(first).dtype if self.dtype is None else _dtype_named(self.dtype, env))


def _known(first: TensorSpec | None) -> TensorSpec:
    assert first is not None, "a result of an op without operands says its dims and type"
    return first


def _dtype_named(name: str, env: Env) -> DType:
    """The type of this name, or of the operand or the parameter of this name."""
    if name in BY_NAME:
        return BY_NAME[name]
    return BY_TL[env.params[name]] if name in env.params else env.tensors[name].dtype


@dataclass(frozen=True)
class Param:
    """A parameter of one of document 004's types. Bounds are numbers or constant expressions (`ir/expr.py`); a
    parameter with a `default` may be left out in `.mlir` text; `in_type` ones are given by the result's type and never
    written (`dims`, `dtype`)."""

    kind: str  # number, string, bool, or an array of one: numbers, strings, bools; null
    realtype: str = "double"
    length: int | str | None = None
    bounds: tuple[tuple[str, float | str], ...] = ()
    choices: tuple[str, ...] = ()
    default: ParamValue | EllipsisType = ...
    in_type: Callable[[TensorSpec], ParamValue] | None = None
    name: str = ""

    @property
    def ptype(self) -> str:
        """Document 004's name of the type."""
        base = {"number": "NUMBER", "string": "STRING", "bool": "BOOL", "null": "NULL"}[self.kind.rstrip("s")]
        return f"LN_PARAM_{'ARRAY_' if self.kind.endswith('s') else ''}{base}"

    @property
    def is_array(self) -> bool:
        return self.kind.endswith("s")

    def read(self, value: Any) -> Any:
        """The value an op computes with: numbers in their realtype (saturating), the rest as it is."""
        if self.kind == "number":
            return self._number(value)
        if self.kind == "numbers":
            if self.realtype == "int" and len(value) <= _SHORT:
                return _ints(tuple(value))
            return tuple(map(self._number, value))
        return value

    def _number(self, value: Any) -> Any:
        if not isinstance(value, Dim):
            return as_realtype(value, self.realtype)
        if self.realtype != "int":
            raise Undecided(value)
        return value


#: Elements of an array that is read once, however often it is asked for: strides, paddings and the like.
_SHORT = 8


@lru_cache(1 << 12)
def _ints(values: tuple[float, ...]) -> tuple[int, ...]:
    return tuple(
        v if isinstance(v, Dim) else as_int(v) for v in values
    )  # equal numbers of different types (1, 1.0, -0.0 and 0) are the same int


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


def numbers(
    realtype: str, length: int | str | None = None, *, default: Any = ..., in_type: Any = None, **bounds: float | str
) -> Any:
    """Declare an array of numbers; every element keeps the bounds."""
    return Param("numbers", realtype, length, tuple(bounds.items()), default=default, in_type=in_type)


def string(*choices: str, default: Any = ..., in_type: Any = None) -> Any:
    """Declare a string parameter, one of `choices` if there are any."""
    return Param("string", choices=choices, default=default, in_type=in_type)


def boolean(*, default: Any = ...) -> Any:
    """Declare a bool parameter."""
    return Param("bool", default=default)


def dims_in_type(spec: TensorSpec) -> ParamValue:
    return spec.dims


def dtype_in_type(spec: TensorSpec) -> ParamValue:
    return spec.dtype.tl


#: Parameters that only repeat the result's type.
def dims_of_result(**bounds: float | str) -> Any:
    """The `dims` parameter of an op whose result has just those dims."""
    return numbers("int", None, in_type=dims_in_type, **bounds)


def dtype_of_result(stored: bool = False) -> Any:
    """The `dtype` parameter (a TensorLight name) of an op whose result has that type; with `stored` it may be one that
    is only stored in."""
    return string(*(tl for tl, d in BY_TL.items() if stored or not d.is_stored), in_type=dtype_in_type)


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
    """The declarations of a class, in order."""

    operands: tuple[Operand, ...]
    results: tuple[Result, ...]
    params: tuple[Param, ...]
    variadic_operand: Operand | None = field(init=False)
    variadic_result: Result | None = field(init=False)
    by_name: dict[str, Param] = field(init=False)
    _names: dict[tuple[bool, int], list[str]] = field(init=False, default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        self.variadic_operand = next((o for o in self.operands if o.variadic), None)
        self.variadic_result = next((r for r in self.results if r.variadic), None)
        self.by_name = {p.name: p for p in self.params}

    def operand_names(self, count: int) -> list[str]:
        """The argument name of each operand; variadic ones count from 1 (``src1``, ``src2``)."""
        return self._names_of(self.operands, count)

    def result_names(self, count: int) -> list[str]:
        return self._names_of(self.results, count)

    def _names_of(self, fields: Sequence[Operand | Result], count: int) -> list[str]:
        key = fields is self.operands, count
        if key not in self._names:
            self._names[key] = _arg_names(fields, count)
        return list(self._names[key])

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
        more = [] if self.variadic_operand is None else [self.variadic_operand]
        return fields + more * (count - len(fields))

    def resolve(self, c: Case) -> Case:
        """A case with its operand types built and parameters split off."""
        first = c.tensors[""]
        assert isinstance(first, TensorSpec)
        default = first.dtype

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
