"""The kinds of values that expressions of optimizer descriptions have, found when a description is loaded.

    number  bool  string          and arrays of one of them: numbers  bools  strings
    tensor                        an operand or result by itself; as a value it is its name, a string
    struct                        a tensor's `.tensor`, which functions of upstream's take

So a comparison of a string with a number, or a parameter that gets a value of another type, is an error at its place in
the file and not one of the first network that the rule meets. Imports `ir.expr`, `ir.constants` and the standard
library.
"""

from __future__ import annotations

from collections.abc import Sequence

from lightnet.ir.constants import ARRAY_FUNCTIONS, COMPARISONS, FUNCTIONS
from lightnet.ir.expr import ArraySlice, Binary, Call, Expr, Index, Name, Num, Select, Str, Unary

#: What the kinds of array hold, and the other way round.
ELEMENT = {"numbers": "number", "bools": "bool", "strings": "string"}
ARRAY = {v: k for k, v in ELEMENT.items()}
SHOWN = {
    "number": "a number", "bool": "a bool", "string": "a string", "tensor": "a tensor",
    "numbers": "an array of numbers",
    "bools": "an array of bools", "strings": "an array of strings", "struct": "a tensor", "any": "what C code gives",
}  # fmt: skip
#: Functions of conditions whose value is a bool.
_TESTS = ("isnan", "isinf", "permutation")


class KindError(Exception):
    """An operand of the wrong kind, and the offset of the expression that has it."""

    def __init__(self, message: str, pos: int):
        super().__init__(message)
        self.message, self.pos = message, pos


def expression_kind(e: Expr, atoms: Sequence[str]) -> str:
    """The kind of an expression whose names ``$0``, ``$1`` … have these kinds. Raises `KindError`."""
    match e:
        case Num(value=bool()):
            return "bool"
        case Num():
            return "number"
        case Str():
            return "string"
        case Name(name=name):
            return value_kind(atoms[int(name[1:])])
        case Unary(op="!", arg=arg):
            return _truth(arg, atoms)
        case Unary(arg=arg):
            return _numeric(arg, atoms, "-")
        case Binary(op="&&" | "||", left=left, right=right):
            _truth(left, atoms)
            return _truth(right, atoms)
        case Binary(op=op, left=left, right=right) if op in COMPARISONS:
            return _comparison(e, expression_kind(left, atoms), expression_kind(right, atoms))
        case Binary(op=op, left=left, right=right):
            _numeric(left, atoms, op)
            return _numeric(right, atoms, op)
        case Select(cond=cond, then=then, other=other):
            _truth(cond, atoms)
            return _same(e, expression_kind(then, atoms), expression_kind(other, atoms))
        case Call():
            return _call(e, atoms)
        case Index():
            return _element(e, atoms)
    raise KindError("this is no constant expression", e.pos)


def value_kind(kind: str) -> str:
    return "string" if kind == "tensor" else kind


def _truth(e: Expr, atoms: Sequence[str]) -> str:
    if (kind := expression_kind(e, atoms)) not in ("bool", "number"):
        raise KindError(f"expected a condition, got {SHOWN[kind]}", e.pos)
    return "bool"


def _numeric(e: Expr, atoms: Sequence[str], op: str) -> str:
    if (kind := expression_kind(e, atoms)) not in ("bool", "number"):
        raise KindError(f"'{op}' takes numbers, got {SHOWN[kind]}", e.pos)
    return "number"


def _family(kind: str) -> str:
    """Bools compare with numbers, an array with one element's value."""
    kind = ELEMENT.get(kind, kind)
    return "number" if kind == "bool" else kind


def _comparison(e: Binary, left: str, right: str) -> str:
    if _family(left) != _family(right) or "struct" in (left, right):
        raise KindError(f"{SHOWN[left]} is compared with {SHOWN[right]}", e.pos)
    if e.op not in ("==", "!=") and _family(left) == "string":
        raise KindError(f"strings have no order: '{e.op}' compares numbers", e.pos)
    return "bool"


def _same(e: Expr, left: str, right: str) -> str:
    if left != right and {left, right} != {"bool", "number"}:
        raise KindError(f"one branch is {SHOWN[left]}, the other {SHOWN[right]}", e.pos)
    return left if left == right else "number"


def _call(e: Call, atoms: Sequence[str]) -> str:
    kinds = [expression_kind(arg, atoms) for arg in e.args]
    if e.fn in ARRAY_FUNCTIONS:
        if len(kinds) != 1 or kinds[0] not in ELEMENT:
            raise KindError(f"{e.fn} takes one array", e.pos)
        return "numbers" if e.fn == "inverse" else "bool" if e.fn in _TESTS else "number"
    if e.fn not in FUNCTIONS:
        known = ", ".join(sorted([*FUNCTIONS, *ARRAY_FUNCTIONS, "ln_streq"]))
        raise KindError(f"unknown function '{e.fn}'; there are: {known}", e.pos)
    count = FUNCTIONS[e.fn][0]
    if count is not None and len(kinds) != count:
        raise KindError(f"{e.fn} takes {count} argument{'s' * (count != 1)}, got {len(kinds)}", e.pos)
    for arg, kind in zip(e.args, kinds):
        whole = count is None and len(kinds) == 1 and kind == "numbers"
        if kind not in ("number", "bool") and not whole:
            raise KindError(f"{e.fn} takes numbers, got {SHOWN[kind]}", arg.pos)
    return "bool" if e.fn in _TESTS else "number"


def _element(e: Index, atoms: Sequence[str]) -> str:
    kind = expression_kind(e.base, atoms)
    if kind not in ELEMENT or e.filler is not None or len(e.subs) != 1:
        raise KindError(f"one subscript picks an element of an array; this is {SHOWN[kind]}", e.pos)
    (sub,) = e.subs
    if isinstance(sub, ArraySlice):
        _numeric(sub.start, atoms, "[:]")
        _numeric(sub.stop, atoms, "[:]")
        return kind
    if not isinstance(sub, Num | Str | Name | Unary | Binary | Select | Call | Index):
        raise KindError("a pack has no place here", e.pos)
    _numeric(sub, atoms, "[]")
    return ELEMENT[kind]
