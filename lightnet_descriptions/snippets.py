"""The meaning of the snippets of descriptions: upstream's C-like expressions as expressions of `ir/expr.py`. They are
never run as code.

`resolve_names` takes a syntax tree (`ccode.py`), in which C's spellings (``src->dims[axis]``, ``src_entry->mtype``,
``ln_streq(a, b)``, ``TL_FLOAT``) become those of the constant expressions that our own ops declare (``src.dims[axis]``,
``"f32"`` ...), so that a described op's constraints are checked by the same code. Imports `ir`, the dtypes, `ccode` and
`reader`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lightnet.dataclasses import dataclass, field, replace
from lightnet.diagnostics import LightNetError, near_or_all
from lightnet.ir import constants
from lightnet.ir.expr import (
    Array,
    ArraySlice,
    Attr,
    Binary,
    Call,
    Expr,
    Index,
    Name,
    Num,
    Pack,
    Select,
    Str,
    Unary,
    format_expr,
)
from lightnet.ir.schema import Param
from lightnet_descriptions import ccode
from lightnet_descriptions.enumerators import ENUMERATORS
from lightnet_descriptions.helpers import HELPERS, OF_TENSORS
from lightnet_descriptions.reader import DescribedValue

#: Parts of an expression, after the constants and helpers in it are written out.
MAX_SIZE = 4096
MAX_DEPTH = 150

#: C's functions that ours have other names for.
_SAME = {
    "fabs": "abs", "fabsf": "abs", "labs": "abs", "ceilf": "ceil", "floorf": "floor", "roundf": "round",
    "sqrtf": "sqrt",
    "expf": "exp", "logf": "log", "powf": "pow", "fmin": "min", "fmax": "max", "tl_size_of": "sizeof",
}  # fmt: skip


# --- Meaning --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DescribedTensor:
    """The statements of a description about a tensor. `static` is None where it says nothing."""

    mtype: str
    static: bool | None


@dataclass(frozen=True)
class Names:
    """The names that the snippets of an op may use. `constants` are the extra members of its private structure;
    `dtypes` are the params that name a dtype."""

    optype: str = ""
    arch: str = "none"
    inputs: Mapping[str, DescribedTensor] = field(default_factory=dict)
    outputs: Mapping[str, DescribedTensor] = field(default_factory=dict)
    params: Mapping[str, Param] = field(default_factory=dict)
    constants: Mapping[str, Expr | None] = field(default_factory=dict)
    dtypes: frozenset[str] = frozenset()
    variadic: bool = False
    #: The members of the private structure, those too that only code gives a value, with the types that they have.
    privates: Mapping[str, str] = field(default_factory=dict)

    def tensor(self, name: str) -> DescribedTensor | None:
        if name in self.inputs:
            return self.inputs[name]
        base = name.rstrip("0123456789")  # src1, src2, ... of a variadic one
        if self.variadic and base and base != name and base in self.inputs:
            return self.inputs[base]
        return self.outputs.get(name)

    def visible(self) -> Iterator[str]:
        yield from (*self.inputs, *self.outputs, *self.params, *self.constants)


def resolve_names(e: Expr, names: Names, item: DescribedValue) -> Expr:
    """`e` as a constant expression of an op whose names are `names`. Raises `LightNetError`, at its place in `item`,
    for what has no meaning there."""
    resolver = _Resolver(names, item)
    found = resolver.expr(e)
    if not resolver.grown:  # no larger than its text
        return found
    size, depth = _extent(found, {})
    if size > MAX_SIZE:
        raise item.error(f"the expression has more than {MAX_SIZE} parts, its constants and helpers written out")
    if depth > MAX_DEPTH:
        raise item.error(f"the expression is nested more than {MAX_DEPTH} deep, its constants and helpers written out")
    return found


def _extent(e: Any, known: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """The number of parts that `e` has, and its depth, when it is written out: parts that it shares count each time."""
    if id(e) not in known:
        parts = [getattr(e, slot) for slot in e.__slots__]
        inner = [x for part in parts for x in (part if isinstance(part, tuple) else (part,)) if hasattr(x, "__slots__")]
        extents = [_extent(x, known) for x in inner]
        known[id(e)] = 1 + sum(size for size, _ in extents), 1 + max((depth for _, depth in extents), default=0)
    return known[id(e)]


def snippet_text_of(item: DescribedValue, names: Names) -> str:
    """The snippet of `item` in the spelling of our own constant expressions."""
    return format_expr(resolve_names(ccode.parse_item(item), names, item))


class _Resolver:
    def __init__(self, names: Names, item: DescribedValue):
        self.names, self.item = names, item
        self.grown = False

    def error(self, message: str, e: Any) -> LightNetError:
        return self.item.error_at(ccode.expression_position(e), message)

    def unknown(self, what: str, name: str, known: Sequence[str], e: Any) -> LightNetError:
        if instead := ccode.instead_of(name):
            message = f"'{name}' has no meaning here: {instead}"
            return self.item.error_at(ccode.expression_position(e), message, "description.c-code")
        return self.error(f"unknown {what} '{name}'{near_or_all(name, sorted(known))}", e)

    def expr(self, e: Any) -> Any:
        match e:
            case Num() | Str():
                return e
            case Name():
                return self.name(e)
            case Attr():
                return self.attribute(e)
            case Unary(arg=arg):
                return replace(e, arg=self.expr(arg))
            case (
                Binary(op="==" | "!=", left=left, right=Str() as text)
                | Binary(op="==" | "!=", left=Str() as text, right=left)
            ):
                value, text = self.compared(left, text)
                first = e.right is not left
                return replace(e, left=value if first else text, right=text if first else value)
            case Binary(left=left, right=right):
                return replace(e, left=self.expr(left), right=self.expr(right))
            case Select(cond=cond, then=then, other=other):
                return replace(e, cond=self.expr(cond), then=self.expr(then), other=self.expr(other))
            case Array(items=items):
                return replace(e, items=tuple(map(self.expr, items)))
            case ArraySlice(start=start, stop=stop):
                return replace(e, start=self.expr(start), stop=self.expr(stop))
            case Index(filler=None, subs=subs) if subs:
                return replace(e, base=self.expr(e.base), subs=tuple(map(self.expr, subs)))
            case Call():
                return self.call(e)
        if isinstance(e, Pack):
            raise self.error(f"'{format_expr(e)}' is for index notation; src->dims[axes] picks by an array", e)
        raise self.error(f"'{format_expr(e)}' is no constant expression", e)

    def compared(self, e: Expr, text: Str) -> tuple[Expr, Str]:
        """A value beside a string that it is compared with: the name of a dtype as it is given, or as we call it."""
        if isinstance(e, Name) and e.name in self.names.dtypes:
            return e, text
        value = self.expr(e)
        is_dtype = (isinstance(value, Attr) and value.attr == "dtype") or (
            isinstance(value, Call) and value.fn == "dtype"
        )
        return value, Str(ENUMERATORS.get(text.value, text.value), text.pos) if is_dtype else text

    def name(self, e: Name) -> Expr:
        name, names = e.name, self.names
        if name in names.params:
            return Call("dtype", (e,), e.pos) if name in names.dtypes else e
        if name in names.constants:
            if (value := names.constants[name]) is None:
                raise self.error(f"'{name}' is computed by code: it is for `run` alone", e)
            self.grown = True
            return value
        if names.tensor(name) is not None:
            raise self.error(f"'{name}' is a tensor, whose elements are no constants; write {name}->dims, ->ndim, "
                             "->len or "
                             "->dtype", e)  # fmt: skip
        base, _, part = name.rpartition("_")
        if part in ("ndim", "dims", "dtype") and base in names.outputs:
            return Attr(Name(base, e.pos), part, e.pos)
        if name in ENUMERATORS:
            return Str(ENUMERATORS[name], e.pos)
        counts = {"tensors_in_n": names.inputs, "tensors_out_n": names.outputs, "params_n": names.params}
        if name in counts and not (names.variadic and name != "params_n"):
            return Num(len(counts[name]), e.pos)
        if name.startswith(("TL_", "LN_")):
            raise self.unknown("enumerator", name, list(ENUMERATORS), e)
        raise self.unknown("name", name, list(names.visible()), e)

    def attribute(self, e: Attr) -> Expr:
        base, attr = e.base.name, e.attr
        if base == "priv" and attr in self.names.constants:
            return self.name(Name(attr, e.pos))
        if base == "op_arg" and attr in ("optype", "arch"):
            return Str(getattr(self.names, attr), e.pos)
        if self.names.tensor(base) is not None:
            return self.of_tensor(base, attr, e)
        owner = base.removesuffix("_entry")
        if owner != base and owner in self.names.params:
            return self.of_param(self.names.params[owner], owner, attr, e)
        if owner != base and (tensor := self.names.tensor(owner)) is not None:
            return self.of_entry(tensor, owner, attr, e)
        raise self.unknown("tensor", base, [*self.names.inputs, *self.names.outputs], e)

    def of_tensor(self, base: str, attr: str, e: Attr) -> Expr:
        if attr in ("dims", "ndim", "len", "dtype"):
            return e
        if attr == "data":
            raise self.error(
                f"'{base}->data': constraints see types, shapes and params, never the elements of a tensor", e
            )
        raise self.unknown(f"field of tensor '{base}'", attr, ["dims", "ndim", "len", "dtype"], e)

    def of_entry(self, tensor: DescribedTensor, base: str, attr: str, e: Attr) -> Expr:
        if attr == "mtype":
            return Str(tensor.mtype, e.pos)
        if attr == "isstatic" and tensor.static is not None:
            return Num(tensor.static, e.pos)
        if attr == "isstatic":
            raise self.error(f"the description does not say whether '{base}' is static: give it `static`", e)
        if attr in ("name", "owner", "creater", "offset", "tensor"):
            raise self.error(f"'{base}_entry->{attr}' is not known while an op is checked", e)
        return self.of_tensor(base, attr, replace(e, base=Name(base, e.base.pos)))

    def of_param(self, param: Param, base: str, attr: str, e: Attr) -> Expr:
        value = Name(base, e.pos)
        if attr == "type":
            return Str(param.ptype, e.pos)
        if attr in ("array_len", "len") and param.is_array:
            return Call("len", (value,), e.pos)
        kind = param.realtype if param.kind.startswith("number") else param.kind.rstrip("s")
        if attr == ("value_array_" if param.is_array else "value_") + kind:
            return value
        if attr == "value_int" and base in self.names.dtypes:
            return Call("dtype", (value,), e.pos)
        if attr.startswith("value_"):
            raise self.error(f"param '{base}' is a {param.ptype} that is read as {kind}: write {base}", e)
        raise self.unknown(f"field of param '{base}'", attr, ["type", "array_len"], e)

    def call(self, e: Call) -> Expr:
        fn = _SAME.get(e.fn, e.fn)
        known = (*constants.FUNCTIONS, *constants.ARRAY_FUNCTIONS, *constants.DTYPE_FUNCTIONS)
        if fn not in known and fn not in HELPERS:
            raise self.unknown("function", e.fn, [*known, *HELPERS], e)
        args = tuple(map(self.sized if fn in OF_TENSORS else self.expr, e.args))
        if fn not in HELPERS:
            return Call(fn, args, e.pos)
        count, build = HELPERS[fn]
        if len(args) != count:
            raise self.error(f"{fn} takes {count} arguments, got {len(args)}", e)
        self.grown = True
        return build(*args)

    def sized(self, e: Any) -> Expr:
        """The dims of a tensor that is named."""
        if not isinstance(e, Name) or self.names.tensor(e.name) is None:
            raise self.error("expected the name of a tensor", e)
        return Attr(e, "dims", e.pos)
