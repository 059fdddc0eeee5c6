"""The expression language of op definitions, op constraints and operator descriptions: text → AST → text.

Expressions come from untrusted files too, so nothing here reaches Python's `eval`: a lexer and a recursive-descent
parser with bounded size and depth make an AST. `constants.py` computes the ones that are constant, `notation.py` binds
the others. Imports dims, `parsing` and `diagnostics` only. Grammar: docs/design.md, "Index notation".
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, ClassVar, NoReturn

from lightnet.dataclasses import dataclass, field
from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.parsing import Token, TokenParser, lexed
from lightnet.runtime.dim_text import parse_size
from lightnet.runtime.dims import Dim, Size

MAX_TEXT = 1 << 16
MAX_TOKENS = 1 << 14
MAX_DEPTH = 60
MAX_STRING = 1 << 12


# --- AST ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Num:
    value: bool | int | float | Dim
    pos: int = field(default=0, compare=False)

    def __eq__(self, other: object) -> bool:
        """7, 7.0 and true are three constants."""
        return isinstance(other, Num) and repr(self.value) == repr(other.value)

    def __hash__(self) -> int:
        return hash(repr(self.value))


@dataclass(frozen=True, slots=True)
class Str:
    value: str
    pos: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Name:
    name: str
    pos: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Unary:
    op: str
    arg: Expr
    pos: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Binary:
    op: str
    left: Expr
    right: Expr
    pos: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Select:
    cond: Expr
    then: Expr
    other: Expr
    pos: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Call:
    fn: str
    args: tuple[Expr, ...]
    pos: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Attr:
    """``tensor.dims``, ``tensor.ndim``, ``tensor.len``, ``tensor.dtype``, ``tensor.flat``."""

    base: Name
    attr: str
    pos: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Pack:
    """``pattern...`` or ``name:count...``, in a subscript list: several subscripts at once."""

    pattern: Expr
    count: Expr | None
    pos: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class ArraySlice:
    """``start:stop``, in a subscript of a constant array."""

    start: Expr
    stop: Expr
    pos: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Index:
    """``base[subs | filler]``: a tensor read, an element of an array, or a position of a pack."""

    base: Expr
    subs: tuple[Expr | Pack | ArraySlice, ...]
    filler: Expr | None = None
    pos: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Array:
    """``[a, b]``, in C's spelling ``{a, b}``: a constant array."""

    items: tuple[Expr, ...]
    pos: int = field(default=0, compare=False)


Expr = Num | Str | Name | Unary | Binary | Select | Call | Attr | Index | Array


# --- Lexer ----------------------------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"(?P<space>[ \t\r]+|\#[^\n]*)|(?P<newline>\n)"
    r"|(?P<num>(?:\d+(?:\.(?!\.\.)\d*)?|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_]\w*)"
    r'|(?P<str>"[^"\n]*")|(?P<dim>\?"[^"\n]*")|(?P<op>\.\.\.|->|\|\||&&|[=!<>+*]=|[-+*/%<>!?:()\[\]{},|.;=])',
    re.ASCII,
)


def location(text: str, pos: int, file: str) -> tuple[SourceLoc, str]:
    """Line and column of offset `pos` in `text`, and that line."""
    start = text.rfind("\n", 0, pos) + 1
    end = text.find("\n", pos)
    return SourceLoc(file, text.count("\n", 0, pos) + 1, pos - start + 1), text[start : end if end >= 0 else None]


def fail_at(text: str, pos: int, message: str, file: str) -> NoReturn:
    """Raise a located error about offset `pos` of `text`."""
    loc, line = location(text, pos, file)
    raise LightNetError(message, loc, source_line=line)


def tokenize(text: str, file: str) -> list[Token]:
    """The tokens of `text`. A newline counts only between statements: not inside brackets, not beside an operator."""
    if len(text) > MAX_TEXT:
        raise LightNetError(f"expression text of {len(text)} characters (at most {MAX_TEXT})", SourceLoc(file))
    tokens: list[Token] = []
    depth = 0
    for token in lexed(text, _TOKEN, lambda pos: fail_at(text, pos, f"unexpected character {text[pos]!r}", file)):
        if token.kind == "newline" and depth:
            continue
        if len(tokens) >= MAX_TOKENS:
            fail_at(text, token.pos, f"more than {MAX_TOKENS} tokens", file)
        depth = max(0, depth + (token.text in ("[", "(", "{")) - (token.text in ("]", ")", "}")))
        tokens.append(token)
    tokens.append(Token("end", "end of text", len(text)))
    return [t for i, t in enumerate(tokens) if t.kind != "newline" or _ends_statement(tokens, i)]


def _ends_statement(tokens: list[Token], i: int) -> bool:
    """Return whether the newline `tokens[i]` separates statements: a name other than `for` follows, no operator
    precedes.
    """
    before = tokens[i - 1] if i else None
    after = next(t for t in tokens[i:] if t.kind != "newline")
    if before is None or before.kind == "newline" or before.text == ";":
        return False
    operand = before.kind != "op" or before.text in ("]", ")", "}")
    return operand and after.kind == "name" and after.text != "for"


# --- Parser ---------------------------------------------------------------------------------------------------------

_LEVELS = (("||",), ("&&",), ("==", "!="), ("<", "<=", ">", ">="), ("+", "-"), ("*", "/", "%"))
_WORDS: dict[str, bool | float] = {"inf": math.inf, "true": True, "false": False}
ATTRIBUTES = ("dims", "ndim", "len", "dtype", "flat")


class NotationParser(TokenParser["Expr"]):
    """Recursive descent over tokens; `statements.py` adds statements on top of it."""

    LEVELS, MAX_DEPTH, MAX_ROW, WHAT = _LEVELS, MAX_DEPTH, MAX_DEPTH, "expression"
    #: What may stand behind the point (in C's spelling the arrow) of a tensor; None: any name.
    attributes: ClassVar[tuple[str, ...] | None] = ATTRIBUTES

    def __init__(self, text: str, file: str):
        super().__init__(text, tokenize(text, file))
        self.file = file

    def error(self, message: str, pos: int | None = None) -> NoReturn:
        fail_at(self.text, self.token.pos if pos is None else pos, message, self.file)

    def expr(self) -> Expr:
        """One expression, conditional operator and all."""
        return self.nested(self._choice)

    def _choice(self) -> Expr:
        cond = self.climb()
        if mark := self.accept("?"):
            then = self.expr()
            self.expect(":")
            cond = Select(cond, then, self.expr(), mark.pos)
        return cond

    def joined(self, left: Expr, right: Callable[[], Expr]) -> Expr:
        op = self.next()
        return self._operation(op.text, left, right(), op.pos)

    def _operation(self, op: str, left: Expr, right: Expr, pos: int) -> Expr:
        """The expression that an operator makes of its operands; a subclass may know better."""
        return Binary(op, left, right, pos)

    def too_long(self) -> NoReturn:
        self.error(f"more than {MAX_DEPTH} operators in a row; use parentheses or local tensors")

    def operand(self) -> Expr:
        op = self.accept("-", "!")
        if op is None:
            return self._postfix()
        arg = self.nested(self.operand)
        if op.text == "-" and isinstance(arg, Num) and not isinstance(arg.value, bool):
            return Num(-arg.value, op.pos)
        return Unary(op.text, arg, op.pos)

    def _postfix(self) -> Expr:
        value = self._primary()
        while mark := self.accept("[", ".", "->"):
            if isinstance(value, Index) and isinstance(value.base, Index):
                self.error("too many subscripts", mark.pos)
            if mark.text == "[":
                subs, filler = self.subscripts()
                value = Index(value, subs, filler, mark.pos)
                continue
            if not isinstance(value, Name):
                self.error("only a tensor has attributes", mark.pos)
            attr = self.name("an attribute")
            if self.attributes is not None and attr.text not in self.attributes:
                self.error(f"unknown attribute '{attr.text}'; there are: {', '.join(self.attributes)}", attr.pos)
            value = Attr(value, attr.text, mark.pos)
        return value

    def _primary(self) -> Expr:
        token = self.next()
        if token.kind == "num":
            return Num(self._number(token), token.pos)
        if token.kind == "dim":
            return Num(self._dim(token), token.pos)
        if token.kind == "str":
            if len(token.text) > MAX_STRING:
                self.error(f"string longer than {MAX_STRING}", token.pos)
            return Str(token.text[1:-1], token.pos)
        if token.text == "(":
            value = self.expr()
            self.expect(")")
            return value
        if token.text in ("[", "{"):
            return Array(self._items("]" if token.text == "[" else "}"), token.pos)
        if token.kind != "name" or token.text == "for":
            self.error(f"expected an expression, got '{token.text}'", token.pos)
        if token.text in _WORDS:
            return Num(_WORDS[token.text], token.pos)
        if self.accept("("):
            args = [self.expr()]
            while self.accept(","):
                args.append(self.expr())
            self.expect(")")
            return Call(token.text, tuple(args), token.pos)
        return Name(token.text, token.pos)

    def _items(self, end: str) -> tuple[Expr, ...]:
        """The elements of an array up to its `end`; it may have none, and a comma behind the last."""
        items: list[Expr] = []
        while not self.accept(end):
            items.append(self.expr())
            if not self.accept(","):
                self.expect(end)
                break
        return tuple(items)

    def _dim(self, token: Token) -> Size:
        """A dim that a call decides, as its `format` is."""
        try:
            return parse_size(token.text[2:-1])
        except LightNetError as e:
            self.error(e.message, token.pos)

    def _number(self, token: Token) -> int | float:
        if len(token.text) > 40:
            self.error("number of more than 40 characters", token.pos)
        if token.text.isdigit():
            return int(token.text)
        value = float(token.text)
        return value if math.isfinite(value) else self.error("number out of range", token.pos)

    def subscripts(self) -> tuple[tuple[Expr | Pack | ArraySlice, ...], Expr | None]:
        """Subscripts after ``[`` up to ``]``, and the filler. A tensor of rank 0 has none: ``x[]``."""
        if self.accept("]"):
            return (), None
        subs: list[Expr | Pack | ArraySlice] = [self._subscript()]
        while self.accept(","):
            subs.append(self._subscript())
        filler = self.expr() if self.accept("|") else None
        self.expect("]")
        return tuple(subs), filler

    def _subscript(self) -> Expr | Pack | ArraySlice:
        pos = self.token.pos
        value = self.expr()
        extra = self.expr() if self.accept(":") else None
        if self.accept("..."):
            if extra is not None and not isinstance(value, Name):
                self.error("a pack with a count is a name", pos)
            return Pack(value, extra, pos)
        return value if extra is None else ArraySlice(value, extra, pos)

    def finish(self) -> None:
        if self.token.kind != "end":
            self.error(f"expected an operator, got '{self.token.text}'")


@lru_cache(4096)
def parse_expr(text: str, file: str = "<expression>") -> Expr:
    """Parse one expression; a mistake is a `LightNetError` with line and column."""
    parser = NotationParser(text, file)
    value = parser.expr()
    parser.finish()
    return value


# --- Walking --------------------------------------------------------------------------------------------------------


def walk(e: Any) -> Iterator[Any]:
    """Every part of an AST, parents first."""
    yield e
    for part in _parts(e):
        if part is not None:
            yield from walk(part)


def _parts(e: Any) -> tuple[Any, ...]:
    """The parts of an expression, in order; None for one that is left out."""
    match e:
        case Unary(arg=part) | Attr(base=part):
            return (part,)
        case Binary(left=one, right=other) | ArraySlice(start=one, stop=other) | Pack(pattern=one, count=other):
            return one, other
        case Select(cond=cond, then=then, other=other):
            return cond, then, other
        case Call(args=parts) | Array(items=parts):
            return parts
        case Index(base=base, subs=subs, filler=filler):
            return base, *subs, filler
    return ()


def is_flat(e: Index) -> bool:
    """Return whether `e` reads the row-major vector of a tensor: ``x.flat[i]``."""
    return isinstance(e.base, Attr) and e.base.attr == "flat"


def read_name(e: Index) -> str:
    """The tensor (or constant array) that `e` reads an element of; "" for an element of ``x.dims`` and the like."""
    base = e.base.base if isinstance(e.base, Attr) and is_flat(e) else e.base
    return base.name if isinstance(base, Name) else ""


# --- Printer --------------------------------------------------------------------------------------------------------

_RANK = {op: rank for rank, ops in enumerate(_LEVELS, 1) for op in ops}
_TIGHT = len(_LEVELS) + 1


def format_expr(expr: Expr | Pack | ArraySlice, outer: int = 0) -> str:
    """The text of an expression; parses back to an equal AST."""
    text, rank = _format(expr)
    return f"({text})" if rank < outer else text


def _format(e: Expr | Pack | ArraySlice) -> tuple[str, int]:
    match e:
        case Num(value=bool(value)):
            return ("true" if value else "false"), 9
        case Num(value=value):
            if isinstance(value, Dim):
                return format(value), 9
            return format_number(value), 9 if value >= 0 and not str(value).startswith("-") else _TIGHT
        case Str(value=value):
            return f'"{value}"', 9
        case Name(name=name):
            return name, 9
        case Unary(op=op, arg=arg):
            return op + format_expr(arg, _TIGHT), _TIGHT
        case Binary(op=op, left=left, right=right):
            rank = _RANK[op]
            return f"{format_expr(left, rank)} {op} {format_expr(right, rank + 1)}", rank
        case Select(cond=cond, then=then, other=other):
            return f"{format_expr(cond, 1)} ? {format_expr(then)} : {format_expr(other)}", 0
        case Call(fn=fn, args=args):
            return f"{fn}({', '.join(map(format_expr, args))})", 9
        case Array(items=items):
            return f"[{', '.join(map(format_expr, items))}]", 9
        case Attr(base=base, attr=attr):
            return f"{base.name}.{attr}", 9
        case Index(base=base, subs=subs, filler=filler):
            tail = f" | {format_expr(filler)}" if filler is not None else ""
            return f"{format_expr(base, 9)}[{', '.join(map(format_expr, subs))}{tail}]", 9
        case Pack(pattern=pattern, count=count):
            return f"{format_expr(pattern)}{'' if count is None else ':' + format_expr(count)}...", 0
        case ArraySlice(start=start, stop=stop):
            return f"{format_expr(start)}:{format_expr(stop)}", 0


def format_number(value: float) -> str:
    """A number as the language spells it, ``inf`` too; floats round-trip exactly."""
    return repr(value)
