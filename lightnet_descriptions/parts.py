"""The tensors and parameters of an operator description: what an op class declares (`ir/schema.py`), and their
constraints.

Imports `ir`, `fields`, `snippets` and the dtypes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from lightnet.dataclasses import dataclass, field, replace
from lightnet.diagnostics import LightNetError
from lightnet.ir.constraints import Message
from lightnet.ir.expr import Array, Attr, Binary, Expr, Name, Num, Str, format_expr
from lightnet.ir.params import ParamValue, ptype_of
from lightnet.ir.schema import Operand, Param, Result, dims_in_type, dtype_in_type
from lightnet.ir.types import MAX_RANK
from lightnet.runtime.dtypes import BY_NAME, BY_TL, DTYPES
from lightnet_descriptions import ccode, fields, snippets
from lightnet_descriptions.ccode import Constraint
from lightnet_descriptions.enumerators import CONVERSIONS, MTYPES, PTYPES
from lightnet_descriptions.reader import DescribedValue
from lightnet_descriptions.snippets import DescribedTensor, Names

_TENSOR = {
    "arg_name": "s", "mtype": "s", "dtype": "s", "ndim": "ns", "len": "ns", "sametype": "s", "sameshape": "s",
    "static": "b",
    "check": "s", "checks": "a", "custom": "s",
}  # fmt: skip
#: Members of upstream, then ours: `role` ... `by_name` and `overwrites` are what our ops declare besides.
INPUT = {**_TENSOR, "dims": "sa", "owner": "s", "role": "s", "kind": "s", "dtypes": "a", "min_ndim": "n",
         "variable_length": "b", "by_name": "b"}  # fmt: skip
OUTPUT = {**_TENSOR, "dims": "sa", "owner": "s", "cleanup": "s", "overwrites": "b", "variable_length": "b"}
BOUNDS = ("eq", "gt", "ge", "lt", "le", "ne")
PARAM = {
    "arg_name": "s", "ptype": "s", "realtype": "s", "from_func": "s", "len": "ns", **dict.fromkeys(BOUNDS, "ns"),
    "check": "s", "checks": "a", "custom": "s", "default": "", "choices": "a", "from_result": "s",
}  # fmt: skip
ROLES = ("data", "param")
KINDS = ("data", "weight", "bias", "scale", "mean", "variance", "anchor", "index")
#: The memory that the tensors of an architecture's ops may lie in, its own last; an architecture that is not listed may
#: use any.
MEMORIES = {
    "none": ("LN_MEM_NONE",), "cpu": ("LN_MEM_NONE", "LN_MEM_CPU"), "cuda": MTYPES[:3], "cudnn": MTYPES[:3],
    "tensorrt": MTYPES[:3], "dpu": ("LN_MEM_NONE", "LN_MEM_CPU", "LN_MEM_DPU"),
}  # fmt: skip


@dataclass
class Constraints:
    """The labelled constraints of an op, as they are collected."""

    checks: dict[str, str] = field(default_factory=dict)
    messages: dict[str, Message] = field(default_factory=dict)
    after: list[tuple[str, str, Message | None]] = field(default_factory=list)
    #: Members that hold code, with what they belong to, in the order of the file: (label, member, what it is the code
    #: of).
    code: list[tuple[str, DescribedValue, str]] = field(default_factory=list)
    _taken: dict[str, int] = field(default_factory=dict, init=False)

    def add(self, label: str, text: str, message: Message | None = None, *, after: bool = False) -> None:
        """Add a constraint; a label that is taken gets a number."""
        name, count = label, self._taken.get(label, 0)
        while name in self._taken:
            count += 1
            name = f"{label}-{count}"
        self._taken[label], self._taken[name] = max(count, 1), 1
        if after:
            self.after.append((name, text, message))
            return
        self.checks[name] = text
        if message is not None:
            self.messages[name] = message

    def snippet(self, label: str, c: Constraint, names: Names, item: DescribedValue, *, after: bool) -> None:
        """Add a constraint of a snippet."""
        self.add(label, *_resolved(c, names, item), after=after)

    def of(self, members: Mapping[str, DescribedValue], prefix: str, names: Names, *, after: bool = False) -> None:
        """Add what `check`, `checks` and `custom` (of an op also `post_run`, of a result `cleanup`) hold."""
        dot = f"{prefix}." if prefix else ""
        if "check" in members:
            self.snippet(f"{dot}check", ccode.constraint(members["check"]), names, members["check"], after=after)
        for item in fields.elements(members["checks"], "'checks'") if "checks" in members else ():
            label, text = f"{dot}check", item
            if isinstance(item.value, dict):
                inner = fields.members(item, "an entry of 'checks'", {"check": "s", "label": "s"}, ["check"])
                text = inner["check"]
                label = str(inner["label"].value) if "label" in inner else label
            self.snippet(label, ccode.constraint(text), names, text, after=after)
        for key in ("custom", "cleanup", "post_run"):
            if key not in members or not str(members[key].value).strip():
                continue
            label = f"{dot}{key.replace('_', '-')}"
            if (found := ccode.statements(members[key])) is None:
                self.code.append((label, members[key], prefix))
                continue
            try:
                texts = [_resolved(c, names, members[key]) for c in found]
            except LightNetError:
                if not ccode.is_code(str(members[key].value)):
                    raise
                self.code.append((label, members[key], prefix))  # checks of what code before it declared
                continue
            for text, message in texts:
                self.add(label, text, message, after=after or key != "custom")


def _resolved(c: Constraint, names: Names, item: DescribedValue) -> tuple[str, Message | None]:
    """A constraint of a snippet as the text and the message that an op class has."""
    args = tuple(format_expr(snippets.resolve_names(a, names, item)) for a in c.args)
    message = None if c.message is None else Message(c.message, args)
    return format_expr(snippets.resolve_names(c.cond, names, item)), message


def tensor_info(
    item: DescribedValue, known: Mapping[str, str], what: str, arch: str
) -> tuple[str, DescribedTensor, dict[str, DescribedValue]]:
    """The name of a tensor, what other snippets may ask of it, and its members."""
    members = fields.members(item, what, known, ["arg_name", "mtype"])
    name = fields.identifier(members["arg_name"], f"the 'arg_name' of {what}")
    mtype = members["mtype"]
    if fields.one_of(mtype, "memory type", MTYPES) not in (fitting := MEMORIES.get(arch, MTYPES)):
        raise mtype.error(
            f"an op of the arch '{arch}' has no tensors in '{mtype.value}'; there are: {', '.join(fitting)}"
        )
    static = bool(members["static"].value) if "static" in members else None
    return name, DescribedTensor(str(mtype.value), static), members


# -- inputs ----------------------------------------------------------------------------------------------------------


def described_operand(
    name: str, members: Mapping[str, DescribedValue], names: Names, out: Constraints, *, variadic: bool
) -> Operand:
    """The operand that an entry of `tensors_in` declares; its constraints go into `out`."""
    options: dict[str, object] = {"variadic": variadic, "by_name": bool(_value(members, "by_name"))}
    if "owner" in members:
        raise members["owner"].key_error("an input has no owner: give the output one (`owner`, `calc_offset`)")
    if "role" in members or "static" in members:
        static = bool(_value(members, "static"))
        options["role"] = fields.one_of(members["role"], "role", ROLES) if "role" in members else ROLES[static]
    options["kind"] = "weight" if options.get("role") == "param" else "data"
    if "kind" in members:
        options["kind"] = fields.one_of(members["kind"], "kind of test data", KINDS)
    if "min_ndim" in members:
        options["min_rank"] = _rank(members["min_ndim"])
    first = f"{name}1" if variadic else name
    if "ndim" in members:
        options["rank"] = _operand_rank(name, first, members["ndim"], names, out)
    if "len" in members:
        out.add(f"{name}.length", _equation(first, "len", members["len"], names))
    for key, option in (("sametype", "same_type"), ("sameshape", "same_shape")):
        if key in members:
            options[option] = _other(members[key], names)
    _operand_dtype(name, first, members, names, out, options)
    out.of(members, name, names)
    return Operand(**options, name=name)  # type: ignore[arg-type]


def _operand_rank(name: str, first: str, item: DescribedValue, names: Names, out: Constraints) -> int | None:
    """A rank that is a number; one that depends on others becomes a constraint."""
    value = snippets.resolve_names(ccode.parse_item(item), names, item)
    if isinstance(value, Num):
        return _rank(item, value.value)
    out.add(f"{name}.rank", _equation(first, "ndim", item, names))
    return None


def _operand_dtype(
    name: str,
    first: str,
    members: Mapping[str, DescribedValue],
    names: Names,
    out: Constraints,
    options: dict[str, object],
) -> None:
    if "dtypes" in members:
        options["dtypes"] = tuple(dtype_name(i) for i in fields.elements(members["dtypes"], "'dtypes'"))
    if "dtype" not in members:
        return
    item = members["dtype"]
    if isinstance(snippets.resolve_names(ccode.parse_item(item), names, item), Str):
        options["dtypes"] = (dtype_name(item),)
    else:
        out.add(f"{name}.dtype", _equation(first, "dtype", item, names))


def _equation(tensor: str, attribute: str, item: DescribedValue, names: Names) -> str:
    """``tensor.attribute == (what the member says)``."""
    right = snippets.resolve_names(ccode.parse_item(item), names, item)
    return format_expr(Binary("==", Attr(Name(tensor), attribute), right))


def _other(item: DescribedValue, names: Names) -> str:
    """The name of another input, as `sametype` and `sameshape` hold it."""
    base = str(item.value)
    variadic = names.variadic and base.rstrip("0123456789") in names.inputs
    return base if variadic else fields.one_of(item, "input tensor", list(names.inputs))


def dtype_name(item: DescribedValue) -> str:
    """Our name of the dtype that a string names."""
    text = str(item.value)
    if isinstance(item.value, str) and text in BY_NAME:
        return text
    return BY_TL[fields.one_of(item, "dtype", [d.tl for d in DTYPES])].name


def _rank(item: DescribedValue, value: object = None) -> int:
    rank = item.value if value is None else value
    if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank <= MAX_RANK:
        raise item.error(f"a number of dimensions is an integer from 0 to {MAX_RANK}")
    return rank


def _value(members: Mapping[str, DescribedValue], key: str) -> object:
    return members[key].value if key in members else None


# -- outputs ---------------------------------------------------------------------------------------------------------


def described_result(
    members: Mapping[str, DescribedValue], names: Names, *, writes_owner: bool, static: bool
) -> Result:
    """The result that an entry of `tensors_out` declares."""
    owner = None
    if "owner" in members:
        item = members["owner"]
        base = str(item.value).removesuffix("_name")
        if base not in names.inputs:
            fields.one_of(item, "input tensor", list(names.inputs))
        owner = base
    overwrites = bool(members["overwrites"].value) if "overwrites" in members else writes_owner
    if overwrites and owner is None:
        raise members["overwrites"].key_error("a result that overwrites needs an 'owner'")
    return Result(
        owner=owner,
        overwrites=overwrites,
        static=bool(members["static"].value) if "static" in members else static,
        variadic=bool(_value(members, "variable_length")),
    )


def result_type(
    name: str, entry: DescribedValue, members: Mapping[str, DescribedValue], names: Names, *, coded: bool = False
) -> tuple[str | None, str | None]:
    """The dims and the dtype of a result as constant expressions: from `dims` (or `sameshape`, or `len` alone, of a
    vector), and `dtype` (or `sametype`). None for what its code says (`coded`)."""
    dims: str | None = None
    if "dims" in members:
        dims = format_expr(_dims_of(members["dims"], names))
    elif "sameshape" in members:
        dims = f"{_other(members['sameshape'], names)}.dims"
    elif "len" in members:
        dims = f"[{snippets.snippet_text_of(members['len'], names)}]"
    elif not coded:
        raise entry.error(f"the output '{name}' needs its 'dims' (or 'sameshape', or the 'len' of a vector)")
    dtype: str | None = None
    if "dtype" in members:
        dtype = snippets.snippet_text_of(members["dtype"], names)
        if members["dtype"].value in BY_NAME:
            dtype = f'"{members["dtype"].value}"'
    elif "sametype" in members:
        dtype = f"{_other(members['sametype'], names)}.dtype"
    elif not coded:
        raise entry.error(f"the output '{name}' needs its 'dtype' (or 'sametype')")
    return dims, dtype


def _dims_of(item: DescribedValue, names: Names) -> Expr:
    """The dims that a string or an array says."""
    if isinstance(item.value, str):
        return snippets.resolve_names(ccode.parse_item(item), names, item)
    parts = [snippets.resolve_names(ccode.parse_item(i), names, i) for i in fields.elements(item, "'dims'")]
    return Array(tuple(parts))


def result_checks(name: str, members: Mapping[str, DescribedValue], names: Names, out: Constraints) -> None:
    """The constraints on a result: its `ndim` and `len` where its dims say these too, and its checks."""
    if "ndim" in members and {"dims", "sameshape", "len"} & set(members):
        out.add(f"{name}.rank", _equation(name, "ndim", members["ndim"], names), after=True)
    if "len" in members and "dims" in members:
        out.add(f"{name}.length", _equation(name, "len", members["len"], names), after=True)
    out.of(members, name, names, after=True)


# -- parameters ------------------------------------------------------------------------------------------------------


def param(name: str, members: Mapping[str, DescribedValue], names: Names, out: Constraints) -> Param:
    """The parameter that an entry of `params` declares. `names` has the tensors and the earlier parameters."""
    p = param_type(name, members)
    bounds = []
    for key in members:
        if key in BOUNDS:
            if not p.kind.startswith("number"):
                raise members[key].key_error(f"'{key}' is for numbers; param '{name}' is a {p.ptype}")
            bounds.append((key, _number_or_text(members[key], names)))
    length = None
    if "len" in members:
        if not p.is_array:
            raise members["len"].key_error(f"'len' is for arrays; param '{name}' is a {p.ptype}")
        length = _number_or_text(members["len"], names)
    out.of(members, name, with_param(names, p))
    return Param(p.kind, p.realtype, length, tuple(bounds), p.choices, p.default, p.in_type, name)  # type: ignore[arg-type]


def param_type(name: str, members: Mapping[str, DescribedValue]) -> Param:
    """The type, choices and default of a parameter, without its bounds."""
    ptype = fields.one_of(members["ptype"], "ptype", PTYPES)
    kind = ptype.removeprefix("LN_PARAM_").removeprefix("ARRAY_").lower()
    kind += "s" if "ARRAY" in ptype else ""
    realtype = "double"
    if kind.startswith("number"):
        if "realtype" not in members:
            raise members["ptype"].error(f"param '{name}' needs a 'realtype': int, float or double")
        realtype = fields.one_of(members["realtype"], "realtype", ("int", "float", "double"))
    elif "realtype" in members and not {"from_func", "choices"} & set(members):
        raise members["realtype"].key_error(
            f"the 'realtype' of a {ptype} needs a 'from_func', which says what the string is one of"
        )
    choices: tuple[str, ...] = ()
    if "from_func" in members:
        if not kind.startswith("string"):
            raise members["from_func"].key_error(f"'from_func' is for strings; param '{name}' is a {ptype}")
        choices = CONVERSIONS[fields.one_of(members["from_func"], "conversion", list(CONVERSIONS))]
    if "choices" in members:
        entries = fields.elements(members["choices"], "'choices'")
        if not kind.startswith("string") or not entries or not all(isinstance(i.value, str) for i in entries):
            raise members["choices"].error("'choices' are strings that a string may be")
        choices = tuple(str(i.value) for i in entries)
    default: ParamValue | object = None if kind == "null" else ...
    if "default" in members:
        default = _default(name, ptype, members["default"])
    in_type = _FROM_RESULT[_from_result(members["from_result"], kind)] if "from_result" in members else None
    return Param(kind, realtype, None, (), choices, default, in_type, name)


#: Parameters that repeat what the type of the first result says.
_FROM_RESULT = {"dims": dims_in_type, "dtype": dtype_in_type}


def _from_result(item: DescribedValue, kind: str) -> str:
    what = fields.one_of(item, "part of a result's type", list(_FROM_RESULT))
    if kind != {"dims": "numbers", "dtype": "string"}[what]:
        raise item.error(f"the {what} of a result are no {kind}")
    return what


#: Numbers that text has no spelling for.
_UNFINITE = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def described_numbers(value: Any) -> Any:
    """The value of a number, or an array of numbers, in which infinities and NaN are strings."""
    if isinstance(value, list):
        return [described_numbers(v) for v in value]
    return _UNFINITE.get(value, value) if isinstance(value, str) else value


def _default(name: str, ptype: str, item: DescribedValue) -> ParamValue:
    value = described_numbers(item.plain()) if "NUMBER" in ptype else item.plain()
    if isinstance(value, list):
        if not all(isinstance(v, str | int | float) for v in value) or len({ptype_of(v) for v in value}) > 1:
            raise item.error(f"the default of param '{name}' is no array of numbers, strings or bools")
        value = tuple(value)
    if isinstance(value, dict) or (ptype_of(value) != ptype and not (value == () and "ARRAY" in ptype)):
        raise item.error(f"the default of param '{name}' is no {ptype}, but {item.kind}")
    return value


def _number_or_text(item: DescribedValue, names: Names) -> float | str:
    value = snippets.resolve_names(ccode.parse_item(item), names, item)
    return value.value if isinstance(value, Num) else format_expr(value)


def with_param(names: Names, p: Param) -> Names:
    """`names` and one parameter more, for its own checks and for what stands behind it."""
    dtypes = names.dtypes | ({p.name} if p.choices == CONVERSIONS["tl_dtype_from_str"] else set())
    return replace(names, params={**names.params, p.name: p}, dtypes=frozenset(dtypes))
