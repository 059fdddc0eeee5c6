"""The C of an operator description at compile time: the checks and shapes that `custom` and `calc_offset` compute when
an op is made.

Upstream makes one function of all of it (`pre_run`): the code of the inputs, of the params, of the op, then of each
output, which gives it its dims. So it is here: one `Machine` runs these texts one after another, on the types and the
params of one op. What a `run` does with tensors is in `steps.py`. Imports `c`, `ccode`, `snippets` and `ir`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any, TypeVar

from lightnet.dataclasses import dataclass, field
from lightnet.diagnostics import LightNetError
from lightnet.ir.constants import Env
from lightnet.ir.op import Schema
from lightnet.ir.schema import Param
from lightnet.ir.types import MAX_RANK, TensorSpec
from lightnet.runtime.dtypes import BY_NAME, BY_TL
from lightnet.runtime.numbers import as_double, as_float, as_int
from lightnet_descriptions import c, ccode
from lightnet_descriptions.c import arguments, library, tree
from lightnet_descriptions.c.arithmetic import c_arithmetic, equal
from lightnet_descriptions.c.values import shown
from lightnet_descriptions.enumerators import CONVERSIONS
from lightnet_descriptions.reader import DescribedValue
from lightnet_descriptions.snippets import Names

T = TypeVar("T")
TENSOR = ("dims", "ndim", "len", "dtype", "data")
ENTRY = ("name", "tensor", "isstatic", "mtype", "owner", "creater", "offset")
PARAM = ("arg_name", "type", "array_len",
         *(f"value_{a}{t}" for a in ("", "array_") for t in ("int", "float", "double", "string", "bool")))  # fmt: skip
OP_ARG = ("name", "optype", "arch", "tensors_in", "tensors_out", "params", "tensor_table", "priv")


@dataclass(frozen=True)
class Code:
    """C of one member: `label` names it in errors (``dst.custom``)."""

    label: str
    item: DescribedValue = field(compare=False, repr=False)
    block: tree.Block = field(compare=False, repr=False)

    def run(self, machine: c.CMachine) -> Any:
        """Run it. Raises `LightNetError` at its place in the file, `Unsatisfied` for a check that does not hold."""
        return self.guarded(lambda: machine.run(self.block, str(self.item.value)))

    def guarded(self, action: Callable[[], T]) -> T:
        """The result of `action`, which has to do with the code; its errors get their place in the file."""
        try:
            return action()
        except LightNetError as e:
            found = ccode.moved_error(e, self.item)
            e.loc, e.source_line = found.loc, found.source_line
            raise

    @property
    def calls(self) -> set[str]:
        """The functions that it calls."""
        return {e.fn for e in tree.walk(self.block) if isinstance(e, tree.Call)}


class Unsatisfied(c.CodeError):
    """A check of the code does not hold."""


def read_code(item: DescribedValue, label: str, scope: c.CodeScope) -> Code:
    """The code that a string holds, its names checked. Raises `LightNetError` at its place in the file."""
    text = str(item.value)
    try:
        block = c.parse_code(text)
        c.check_c_code(block, text, scope)
    except LightNetError as e:
        raise ccode.moved_error(e, item) from None
    return Code(label, item, block)


def scope(
    names: Names, functions: Mapping[str, c.CFunction], *, outputs: Mapping[str, bool], run: bool = False
) -> c.CodeScope:
    """The names that the code of an op may use. `outputs` are those that it sees; one that is True is made there, and
    is assigned its dims.
    """
    known: dict[str, Any] = dict.fromkeys(library.NAMES)
    for name in (*names.inputs, *(n for n, making in outputs.items() if not making)):
        known |= {name: TENSOR, f"{name}_entry": ENTRY, f"{name}_name": None, f"{name}_list_entry": None}
    assignable: list[str] = []
    for name, making in outputs.items():
        if making:
            assignable += [f"{name}_dims", f"{name}_ndim", f"{name}_dtype"]
    for name in names.params:
        known |= {name: None, f"{name}_entry": PARAM}
    known |= dict.fromkeys((*assignable, "tensors_in_n", "tensors_out_n", "params_n"))
    known |= {"op_arg": OP_ARG, "priv": tuple(names.privates), **({"te": ENTRY, "LN_ARCH": None} if run else {})}
    return c.CodeScope(known, functions, (*assignable, *names.params))


# -- values ----------------------------------------------------------------------------------------------------------


def _tensor(name: str, spec: TensorSpec, data: Callable[[], Any] | None = None) -> c.Struct:
    """A tensor as code sees it."""
    dims = c.array("int", spec.dims, f"{name}->dims", read_only=True)
    fields = {
        "dims": dims,
        "ndim": len(spec.dims),
        "len": prod(spec.dims),
        "dtype": library.NAMES[spec.dtype.tl],
        "name": name,
    }

    def missing(member: str) -> Any:
        if member == "data" and data is not None:
            return data()
        if member == "data":
            raise ValueError(f"what '{name}' holds is not known while an op is checked")
        raise KeyError(f"a tensor has no member '{member}'; there are: {', '.join(TENSOR)}")

    return c.Struct(f"the tensor '{name}'", fields, frozenset(), missing)


def entry(
    name: str, value: c.Struct, mtype: str, static: bool | None, owner: str | None = None, offset: Any = None
) -> c.Struct:
    """The entry of a tensor in the tensor table."""
    fields = {
        "tensor": value,
        "mtype": library.NAMES[mtype],
        "owner": owner,
        "name": name,
        **({} if offset is None else {"offset": offset}),
    }
    fields |= {} if static is None else {"isstatic": int(static)}

    def missing(member: str) -> Any:
        raise ValueError(f"'{name}_entry->{member}' is not known while an op is checked")

    return c.Struct(f"the entry of '{name}'", fields, frozenset(), missing)


def value_of(p: Param, value: Any) -> Any:
    """The value of a param as code reads it."""
    kinds = {"int": int, "float": c.Float, "double": float}
    if p.kind == "string" and p.choices in CONVERSIONS.values():
        return library.NAMES.get(value, -1)
    if p.kind == "number":
        return kinds[p.realtype](value)
    if p.kind == "numbers":
        return c.array(p.realtype, map(kinds[p.realtype], value), f"'{p.name}'")
    if p.is_array:
        return c.array(
            "char *" if p.kind == "strings" else "ln_bool",
            (v if isinstance(v, str) else int(v) for v in value),
            f"'{p.name}'",
        )
    return int(value) if isinstance(value, bool) else value


def param_entry(p: Param, value: Any, read: Any) -> c.Struct:
    """The entry of a param: all of upstream's forms of its value."""
    fields: dict[str, Any] = {"arg_name": p.name, "type": library.NAMES[p.ptype]}
    if p.is_array:
        fields["array_len"] = len(value)
        kind = p.realtype if p.kind == "numbers" else p.kind.rstrip("s")
        fields[f"value_array_{kind}"] = read
    elif p.kind == "number":
        fields |= {
            "value_int": as_int(value),
            "value_float": c.Float(as_float(value)),
            "value_double": as_double(value),
        }
    elif p.kind == "string":
        fields |= {"value_string": value, **({"value_int": read} if p.choices else {})}
    elif p.kind == "bool":
        fields["value_bool"] = int(value)
    return c.Struct(f"the entry of '{p.name}'", fields)


def code_names_of(cls: Any, schema: Schema, env: Env, *, data: Callable[[str], Any] | None = None) -> dict[str, Any]:
    """The values of the names of an op whose types and params are `env`."""
    described = cls.described.names
    found: dict[str, Any] = dict(library.NAMES)
    for name, spec in env.tensors.items():
        found |= _tensor_names(described, name, spec, data)
    for p in schema.params:
        if p.name in env.params:
            value = value_of(p, env.params[p.name])
            found |= {p.name: value, f"{p.name}_entry": param_entry(p, env.params[p.name], value)}
    found |= {
        "tensors_in_n": len(described.inputs),
        "tensors_out_n": len(described.outputs),
        "params_n": len(schema.params),
    }
    types = {name: type for name, text in described.privates.items() if (type := c.parse_type(text)) is not None}
    given = {k: v for k, v in env.params.items() if k in described.privates}
    priv = c.Struct("priv", given, frozenset(described.privates), types=types)
    op_arg = {"name": cls.optype, "optype": cls.optype, "arch": cls.arch, "priv": priv, "tensor_table": TABLE}
    return found | {"op_arg": c.Struct("op_arg", op_arg), "priv": priv}


def declare_params(machine: c.CMachine, schema: Schema) -> None:
    """Make variables of the params: upstream's code gives some another value (padding that autopad decides)."""
    for p in schema.params:
        value = machine.names.get(p.name)
        if isinstance(value, c.Pointer):
            machine.declare(p.name, str(value.memory.type).rstrip(" *"), 1 + str(value.memory.type).count("*"), value)
        elif p.kind == "number":
            machine.declare(p.name, p.realtype, 0, value)


#: What `op_arg->tensor_table` is: `ln_tensor_table_find` looks in it.
TABLE = c.Struct("the tensor table", {})


def _tensor_names(
    described: Names, name: str, spec: TensorSpec, data: Callable[[str], Any] | None = None
) -> dict[str, Any]:
    """The names that stand for one tensor."""
    info = described.tensor(name)
    value = _tensor(name, spec, None if data is None else lambda: data(name))
    mtype, static = ("LN_MEM_NONE", None) if info is None else (info.mtype, info.static)
    return {name: value, f"{name}_entry": entry(name, value, mtype, static), f"{name}_name": name}


# -- running ---------------------------------------------------------------------------------------------------------


class PreRun:
    """The code of one op, run text by text. `env` gets the results as they are made."""

    def __init__(self, cls: Any, env: Env, functions: Mapping[str, c.CFunction] | None = None):
        self.cls, self.env = cls, env
        self.names = code_names_of(cls, cls.schema, env)
        self.machine = c.CMachine(self.names, FUNCTIONS if functions is None else functions)
        declare_params(self.machine, cls.schema)

    def checks(self) -> None:
        """Run the code of the inputs, the params and the op."""
        for code in self.cls.described.code:
            code.run(self.machine)

    def result(self, name: str, code: Code, dims: Any, ndim: Any, dtype: Any) -> tuple[Any, Any]:
        """The dims and the dtype that the code of an output gives it; what the description says of it already is not
        None."""
        m = self.machine
        m.declare(f"{name}_ndim", "int", 0, *([] if ndim is None else [int(ndim)]))
        m.declare(f"{name}_dtype", "tl_dtype", 0, *([] if dtype is None else [library.NAMES[_tl(dtype)]]))
        m.declare(
            f"{name}_dims", "int", 1, *([] if dims is None else [c.array("int", map(int, dims), f"'{name}_dims'")])
        )
        code.run(m)
        return code.guarded(lambda: m.guarded(lambda: self.made(name), str(code.item.value)))

    def made(self, name: str) -> tuple[Any, Any]:
        found = {part: self.machine.variable(f"{name}_{part}") for part in ("ndim", "dims", "dtype")}
        ndim, dims, dtype = (v.load(0) if v is not None else None for v in found.values())
        if not isinstance(ndim, int) or not 0 <= ndim <= MAX_RANK:
            raise ValueError(f"'{name}_ndim' is {shown(ndim)}, no number of dimensions up to {MAX_RANK}")
        if not isinstance(dims, c.Pointer):
            raise TypeError(f"'{name}_dims' is {shown(dims)}, and no array of int")
        return tuple(arguments.integers(dims, ndim)), c.plain(dtype)

    def add(self, name: str, spec: TensorSpec) -> None:
        """A result that is made: later code sees it."""
        self.names |= _tensor_names(self.cls.described.names, name, spec)


def _tl(dtype: str) -> str:
    found = BY_NAME.get(dtype) or BY_TL.get(dtype)
    if found is None:
        raise ValueError(f"{dtype} is no dtype")
    return found.tl


# -- the checks that upstream has as macros --------------------------------------------------------------------------


def _require(machine: c.CMachine, holds: Any, message: str) -> None:
    if not machine.truth(holds):
        found = machine.error(message)
        error = Unsatisfied(message, found.loc, found.label, source_line=found.source_line)
        error.pos = found.pos
        raise error


@c.function(1)
def _satisfy(machine: c.CMachine, condition: Any) -> None:
    _require(machine, condition, machine.text[machine.pos :].partition(";")[0].strip())


@c.function(2, None)
def _satisfy_msg(machine: c.CMachine, condition: Any, form: Any, *args: Any) -> None:
    _require(
        machine,
        condition,
        "" if machine.truth(condition) else arguments.formatted(arguments.string_argument(form), args),
    )


def _param_check(kind: str, op: str, sign: str) -> c.CFunction:
    def call(machine: c.CMachine, entry: Any, bound: Any) -> None:
        value = _member(entry, f"value_{kind}")
        holds = (equal(value, bound) == (op == "eq")) if op in ("eq", "ne") else c_arithmetic(sign, value, bound)
        _require(
            machine,
            holds,
            f"`{entry.get('arg_name')}` param's value should be {sign} {shown(bound)}, but gets a {shown(value)}",
        )

    return c.CFunction(call, 2, 2)


def _member(value: Any, name: str) -> Any:
    if not isinstance(value, c.Struct):
        raise TypeError(f"expected an entry, got {shown(value)}")
    return value.get(name)


def _tensor_check(what: str, read: Callable[[c.Struct], Any]) -> c.CFunction:
    def call(machine: c.CMachine, entry: Any, wanted: Any) -> None:
        got = read(_member(entry, "tensor")) if what != "mtype" else _member(entry, "mtype")
        wanted = read(wanted.get("tensor")) if isinstance(wanted, c.Struct) else wanted
        same = c.plain(got) == c.plain(wanted)
        _require(
            machine, same, f"the {what} of tensor `{entry.get('name')}` should be {shown(wanted)}, but is {shown(got)}"
        )

    return c.CFunction(call, 2, 2)


def _static_check(wanted: bool) -> c.CFunction:
    def call(machine: c.CMachine, entry: Any) -> None:
        _require(
            machine,
            _member(entry, "isstatic") == wanted,
            f"tensor `{entry.get('name')}` should {'' if wanted else 'not '}be static",
        )

    return c.CFunction(call, 1, 1)


_SIGNS = {"eq": "==", "ne": "!=", "gt": ">", "ge": ">=", "lt": "<", "le": "<="}
#: What code may call that checks an op.
CHECKS: Mapping[str, c.CFunction] = {
    "ln_opck_satisfy": _satisfy, "ln_opck_satisfy_msg": _satisfy_msg,
    **{f"ln_opck_param_{k}_{op}": _param_check(k, op, sign) for k in ("int", "float", "double") for op,
       sign in _SIGNS.items()},
    "ln_opck_tensor_mtype_eq": _tensor_check("mtype", lambda t: None),
    "ln_opck_tensor_dtype_eq": _tensor_check("dtype", lambda t: t.get("dtype")),
    "ln_opck_tensor_ndim": _tensor_check("ndim", lambda t: t.get("ndim")),
    "ln_opck_tensor_len": _tensor_check("len", lambda t: t.get("len")),
    "ln_opck_tensor_issametype": _tensor_check("dtype", lambda t: t.get("dtype")),
    "ln_opck_tensor_issameshape": _tensor_check("shape", lambda t: t.get("dims")),
    "ln_opck_tensor_isstatic": _static_check(True), "ln_opck_tensor_isnotstatic": _static_check(False),
}  # fmt: skip
#: What the code of `custom`, `cleanup` and `post_run` may call.
FUNCTIONS: Mapping[str, c.CFunction] = {**library.FUNCTIONS, **CHECKS}
