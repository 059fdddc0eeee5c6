"""The text of snippets, upstream's C-like expressions, as syntax trees of `ir/expr.py`; code, which has statements, is
told from them.

`parse_item`, `constraint` and `constraints` read the string of a member as expressions, `code` as C
(`lightnet_descriptions/c`). Positions lead back into the file, and an error in what C has and we have not says what to
write instead. `snippets.py` gives the expressions their meaning, `code.py` and `steps.py` the code. Imports `ir`, `c`
and `reader`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, ClassVar, TypeVar

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError
from lightnet.ir.constants import FUNCTIONS
from lightnet.ir.expr import Attr, Binary, Call, Expr, Index, NotationParser, Num, Select, Str
from lightnet_descriptions import c
from lightnet_descriptions.c import library
from lightnet_descriptions.helpers import HELPERS
from lightnet_descriptions.reader import DescribedValue

T = TypeVar("T")

_CHECK_CALLS = ("ln_opck_satisfy", "ln_opck_satisfy_msg")
#: What C has and expressions have not, and what to write instead; "" where the member says that. The first match in a
#: text counts.
_C_CODE: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.ASCII), instead)
    for pattern, instead in (
        (
            r"\b\w{1,200}_(?:dims|ndim|dtype)\s*(?:\[[^\]]{0,200}\]\s*)?=(?!=)",
            "an output says its shape in `dims` and its type in `dtype`",
        ),
        (r"\b(?:if|else|for)\s*[({]|\b(?:while|do|switch|goto|return|static|const|void|struct)\b|#include", ""),
        (r"\b(?:int|float|double|char|size_t)\s+\*?\w", ""),
        (
            r"\b(?:ln|tl)_(?:alloc|free|clone|mem\w*|auto_?free)\s*\(",
            "nothing is allocated here: `dims` is an expression for an array",
        ),
        (r"\b(?:ln|tl)_(?!opck_satisfy\b|opck_satisfy_msg\b)\w+\s*\(|->\s*data\b|\bpriv\s*->|\+\+", ""),
        (r"(?<!\w)0[xX]|(?<!\w)\d+\.?\d*[uUlLfF]+\b", "numbers are decimal, and have no suffix"),
    )
)
#: The same in constraints and constant expressions alone; in `run` these are something else.
_EXPRESSION_CODE: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.ASCII), instead)
    for pattern, instead in (
        (r"\\\\", "a string has no escapes: use ' inside of it"),
        (r"'", "strings are in double quotes"),
        (
            r"(?<!&)&(?!&)|(?<!\|)\|(?!\|)|\^|~|<<|>>",
            "bits are for bitand, bitor, bitxor, shl and shr, and there are no pointers",
        ),
        (r"(?:^|[(,&|])\s*\*", "there are no pointers"),
        (r"\w\s*(?:\[[^\]]{0,200}\]\s*)?[-+*/]?=(?!=)", "nothing is assigned; `extra_privs` gives a value a name"),
    )
)
_COMMENT = re.compile(r'"[^"\n]*"|//[^\n]*|/\*.*?\*/', re.DOTALL)


class _SnippetParser(NotationParser):
    """The grammar of expressions; what an arrow may lead to is for `resolve` to say, as it depends on the name."""

    attributes: ClassVar[tuple[str, ...] | None] = None

    def operand(self) -> Expr:
        """Casts, and C's arrays: ``(int)x``, ``(int[]){a, b}``."""
        if self.token.text != "(" or self.ahead(1).text not in _CASTS:
            return super().operand()
        mark, type = self.next(), self.next()
        if self.accept("["):
            self.expect("]")
            self.expect(")")
            if self.token.text != "{":
                self.error(f"expected '{{' behind ({type.text}[]), got '{self.token.text}'")
            return self._postfix()
        self.expect(")")
        value = self.nested(self.operand)
        return Call("int", (value,), mark.pos) if _CASTS[type.text] is int else Binary("*", Num(1.0), value, mark.pos)

    def constraint(self) -> Constraint:
        cond, message = self.expr(), None
        args: list[Expr] = []
        if isinstance(cond, Call) and cond.fn in _CHECK_CALLS:
            cond, *rest = cond.args
            if rest and not isinstance(rest[0], Str):
                self.error('expected "message" behind the condition', expression_position(rest[0]))
            message, args = (rest[0].value, rest[1:]) if rest and isinstance(rest[0], Str) else (None, [])
        elif self.accept(","):
            if self.token.kind != "str":
                self.error(f"expected \"message\" behind the condition, got '{self.token.text}'")
            message = self.next().text[1:-1]
            while self.accept(","):
                args.append(self.expr())
        return Constraint(cond, message, tuple(args))

    def constraints(self) -> tuple[Constraint, ...]:
        found: list[Constraint] = []
        while self.token.kind != "end":
            if self.token.kind == "newline" or self.token.text == ";":
                self.next()
                continue
            found.append(self.constraint())
            if self.token.kind not in ("newline", "end") and self.token.text != ";":
                self.error(f"expected ';', got '{self.token.text}'")
        return tuple(found)


#: The types that an expression may be cast to: C's integers cut, its reals make what follows real.
_CASTS: dict[str, type] = {"int": int, "size_t": int, "long": int, "float": float, "double": float}


@dataclass(frozen=True)
class Constraint:
    """``cond`` or ``cond, "message", args``: what must hold, and what an error says instead of it."""

    cond: Expr
    message: str | None
    args: tuple[Expr, ...]


@lru_cache(4096)
def _expression(text: str) -> Expr:
    parser = _SnippetParser(_blanked(text), "<snippet>")
    parser.accept("return")  # of upstream's `calc_offset`
    value = parser.expr()
    parser.accept(";")
    parser.finish()
    return value


@lru_cache(4096)
def _constraint(text: str) -> Constraint:
    parser = _SnippetParser(_blanked(text), "<snippet>")
    value = parser.constraint()
    parser.accept(";")
    parser.finish()
    return value


@lru_cache(1024)
def _constraints(text: str) -> tuple[Constraint, ...]:
    return _SnippetParser(_blanked(text), "<snippet>").constraints()


def _blanked(text: str) -> str:
    """`text` with blanks for its comments."""
    return _COMMENT.sub(lambda m: m[0] if m[0][0] == '"' else re.sub(r"[^\n]", " ", m[0]), text)


def parse_item(item: DescribedValue) -> Expr:
    """The expression that a string holds; a number stands for itself. Raises `LightNetError` at its place."""
    if isinstance(item.value, int | float) and not isinstance(item.value, bool):
        return Num(item.value)
    return in_item(item, _expression, "write an expression")


def constraint(item: DescribedValue) -> Constraint:
    """The constraint that a string holds: ``cond`` or ``cond, "message", args``."""
    return in_item(item, _constraint, 'write `condition` or `condition, "message"`')


def constraints(item: DescribedValue) -> tuple[Constraint, ...]:
    """The constraints of a string, one behind each ``;`` or on a line of its own."""
    return in_item(item, _constraints, 'this field takes constraints, `condition, "message";`')


def statements(item: DescribedValue) -> tuple[Constraint, ...] | None:
    """The constraints of a string; None if it is code, which has statements or calls what is no expression."""
    try:
        found = constraints(item)
    except LightNetError:
        if is_code(str(item.value)) or _STATEMENT.search(_blanked(str(item.value))):
            return None
        raise
    called = {found.cond.fn for found in found if isinstance(found.cond, Call)}
    return None if any(is_call(name) for name in called) else found


#: What only statements have.
_STATEMENT = re.compile(
    r"[;{}]|\b(?:if|for|while|do|switch|goto|return|int|float|double|char|void|struct|static)\b", re.ASCII
)


def is_call(name: str) -> bool:
    """Return whether a function is one of code, and none of expressions."""
    if name in HELPERS or name in _CHECK_CALLS or name == "tl_size_of":
        return False
    return name.startswith(("ln_", "tl_", "LN_", "cudnn")) or (name in library.FUNCTIONS and name not in FUNCTIONS)


def is_code(text: str) -> bool:
    """Return whether a text that is no expression should be read as C: it is C, or has what only C has."""
    try:
        return bool(c.parse_code(text).statements)
    except LightNetError:
        found = _c_code(text, definition=True)
        return found is not None and ";" in text


def run_is_code(item: DescribedValue) -> bool:
    """Return whether a `run` is C: no index notation, no kernel, and no name of a built-in op."""
    from lightnet.ir.statements import parse as parse_definition

    text = str(item.value)
    if not text.strip() or text.lstrip().startswith("func.func") or re.fullmatch(r"\s*\w+\(\s*\w+\s*\)\s*", text):
        return False
    try:
        parse_definition(plain_privates(_blanked(text)), "<run>")
    except LightNetError:
        return is_code(text)
    return False


def names_offsets(text: str) -> bool:
    """Return whether the text of a `calc_offset` names offsets in memory, as code does."""
    return re.search(r"->\s*offset\b|;.*\S", text.strip().rstrip(";"), re.DOTALL) is not None


def plain_privates(text: str) -> str:
    """``priv->name`` as ``name``, in the same place."""
    return re.sub(r"\bpriv\s*->\s*(?=[A-Za-z_])", lambda m: " " * len(m[0]), text)


def in_item(item: DescribedValue, parse_text: Callable[[str], T], instead: str, *, definition: bool = False) -> T:
    """The result of `parse_text` on a string. Its errors get their place in the file; one in C code says what to write
    `instead`, of a `definition` or else of constant expressions."""
    if not isinstance(item.value, str):
        raise item.error(f"expected a string, got {item.kind}")
    try:
        return parse_text(item.value)
    except LightNetError as error:
        if error.loc is not None and (code := _c_code(item.value, definition)) is not None:
            at, text, better = code
            message = f"this is C code, and no expression: {better or instead} ('{text}'; {error.message})"
            raise item.error_at(at, message, "description.c-code") from None
        raise moved_error(error, item) from None
    except RecursionError:
        raise item.error("the text is nested too deeply") from None


def _c_code(text: str, definition: bool) -> tuple[int, str, str] | None:
    """The first C code in a text that is none of ours: its place, itself, and what to write instead."""
    plain = re.sub(r'"[^"\n]*"', lambda m: "\\\\".rjust(len(m[0])) if "\\" in m[0] else " " * len(m[0]), _blanked(text))
    table = _C_CODE if definition else _C_CODE + _EXPRESSION_CODE
    found = [(m.start(), k, m[0]) for k, (pattern, _) in enumerate(table) if (m := pattern.search(plain))]
    if not found:
        return None
    at, k, code = min(found)
    return at, text[at : at + len(code)].strip()[:40], table[k][1]


#: Names of upstream's snippets that mean nothing here -> what to write instead.
_NAMES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.ASCII), instead)
    for pattern, instead in (
        (
            r"(?:ln|tl)_(?:alloc|free|clone|mem\w*|auto_?free)",
            "nothing is allocated here, leave it out; `dims` is an expression for an array",
        ),
        (r"ln_opck_\w+", "the members mtype, dtype, ndim, len, static and the bounds of params check that"),
        (r"ln_(?:msg|err)_\w+|ln_sprint\w*", 'a constraint has a message, `condition, "message %d", value`'),
        (r"ln_autopadding_\w+", "`extra_privs` may name the constants of a built-in op, `derived(conv2d)`"),
        (r"\w+_name", "names of tensors are not known while an op is checked; every error names the op itself"),
        (
            r"\w+_list_entry|te",
            "an op knows its own tensors; `calc_offset` is an expression, or an object of one for each output",
        ),
        (r"priv|op_arg", "constants of the op are named in `extra_privs`; of op_arg there are optype and arch"),
        (r"int|float|double|size_t|char|NULL", "there are no C types and no pointers in expressions"),
        (r"(?:ln|tl|cu\w*)_\w+", "C functions are not called"),
    )
)


def instead_of(name: str) -> str | None:
    """The text to write instead of a name of upstream's snippets that has no meaning here."""
    return next((instead for pattern, instead in _NAMES if pattern.fullmatch(name)), None)


def moved_error(error: LightNetError, item: DescribedValue) -> LightNetError:
    """An error that counts lines and columns in the text of `item` alone, at its place in the file."""
    if error.loc is None or not error.loc.line:
        return item.error(error.message, error.label)
    lines = str(item.value).split("\n")
    offset = sum(len(line) + 1 for line in lines[: error.loc.line - 1]) + max(error.loc.col - 1, 0)
    return item.error_at(offset, error.message, error.label)


def expression_position(e: Any) -> int:
    """The position where an expression begins, as far as its tree says."""
    match e:
        case Binary(left=part) | Select(cond=part) | Index(base=part) | Attr(base=part):
            return expression_position(part)
    return e.pos
