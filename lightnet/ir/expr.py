"""The expression language of op definitions, op constraints and operator descriptions: text → AST → text or value.

Expressions come from untrusted files too, so nothing here reaches Python's `eval`: a lexer and a recursive-descent
parser with bounded size and depth make an AST, and `constant` compiles an AST into closures over an `Env` of tensor
shapes and parameters. Imports the standard library and `diagnostics` only. Grammar: docs/design.md, "Index notation".
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn, Protocol

from lightnet.diagnostics import LightNetError, SourceLoc

MAX_TEXT = 1 << 16
MAX_TOKENS = 1 << 14
MAX_DEPTH = 60
MAX_STRING = 1 << 12
#: Integers of constant expressions stay below this many bits (`pow` would not).
MAX_BITS = 256

#: A value of a constant expression.
Value = bool | int | float | str | tuple[Any, ...] | None


class TensorLike(Protocol):
    """What an expression may ask of a tensor (`ir.types.TensorSpec` is one)."""

    @property
    def dims(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> Any: ...


class Env(NamedTuple):
    """What the names of a constant expression stand for. Numbers are ints or floats as their realtype says."""

    tensors: Mapping[str, Any]
    params: Mapping[str, Any]


# --- AST ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Num:
    value: bool | int | float
    pos: int = field(default=0, compare=False)

    def __eq__(self, other: object) -> bool:
        """7, 7.0 and true are three constants."""
        return isinstance(other, Num) and repr(self.value) == repr(other.value)

    def __hash__(self) -> int:
        return hash(repr(self.value))


@dataclass(frozen=True, slots=True)
class Str:
    value: str
    pos: int = field(default=0, compare=False)


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
    pos: int = field(default=0, compare=False)


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
    pos: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Slice:
    """``start:stop``, in a subscript of a constant array."""

    start: Expr
    stop: Expr
    pos: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Index:
    """``base[subs | filler]``: a tensor read, an element of an array, or a position of a pack."""

    base: Expr
    subs: tuple[Expr | Pack | Slice, ...]
    filler: Expr | None = None
    pos: int = field(default=0, compare=False)


Expr = Num | Str | Name | Unary | Binary | Select | Call | Attr | Index


# --- Lexer ----------------------------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"(?P<space>[ \t\r]+|\#[^\n]*)|(?P<newline>\n)"
    r"|(?P<num>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_]\w*)"
    r'|(?P<str>"[^"\n]*")|(?P<op>\.\.\.|\|\||&&|[=!<>+*]=|[-+*/%<>!?:()\[\],|.;=])',
    re.ASCII,
)


class Token(NamedTuple):
    kind: str
    text: str
    pos: int


def location(text: str, pos: int, file: str) -> tuple[SourceLoc, str]:
    """Line and column of offset `pos` in `text`, and that line."""
    start = text.rfind("\n", 0, pos) + 1
    end = text.find("\n", pos)
    return SourceLoc(file, text.count("\n", 0, pos) + 1, pos - start + 1), text[start : end if end >= 0 else None]


def fail(text: str, pos: int, message: str, file: str = "<expression>") -> NoReturn:
    """Raise a located error about offset `pos` of `text`."""
    loc, line = location(text, pos, file)
    raise LightNetError(message, loc, source_line=line)


def tokenize(text: str, file: str) -> list[Token]:
    """The tokens of `text`. A newline counts only between statements: not inside brackets, not beside an operator."""
    if len(text) > MAX_TEXT:
        raise LightNetError(f"expression text of {len(text)} characters (at most {MAX_TEXT})", SourceLoc(file))
    tokens: list[Token] = []
    pos = depth = 0
    while pos < len(text):
        match = _TOKEN.match(text, pos)
        if match is None:
            fail(text, pos, f"unexpected character {text[pos]!r}", file)
        kind = match.lastgroup or ""
        token = Token(kind, match.group(), pos)
        pos = match.end()
        if kind == "space" or (kind == "newline" and depth):
            continue
        if len(tokens) >= MAX_TOKENS:
            fail(text, token.pos, f"more than {MAX_TOKENS} tokens", file)
        depth = max(0, depth + (token.text in ("[", "(")) - (token.text in ("]", ")")))
        tokens.append(token)
    tokens.append(Token("end", "end of text", len(text)))
    return [t for i, t in enumerate(tokens) if t.kind != "newline" or _ends_statement(tokens, i)]


def _ends_statement(tokens: list[Token], i: int) -> bool:
    """Whether the newline `tokens[i]` separates statements: a name other than `for` follows, no operator precedes."""
    before = tokens[i - 1] if i else None
    after = next(t for t in tokens[i:] if t.kind != "newline")
    if before is None or before.kind == "newline" or before.text == ";":
        return False
    operand = before.kind != "op" or before.text in ("]", ")")
    return operand and after.kind == "name" and after.text != "for"


# --- Parser ---------------------------------------------------------------------------------------------------------

_LEVELS = (("||",), ("&&",), ("==", "!="), ("<", "<=", ">", ">="), ("+", "-"), ("*", "/", "%"))
_WORDS: dict[str, bool | float] = {"inf": math.inf, "true": True, "false": False}
ATTRIBUTES = ("dims", "ndim", "len", "dtype", "flat")


class Parser:
    """Recursive descent over tokens; `notation.py` adds statements on top of it."""

    def __init__(self, text: str, file: str):
        self.text, self.file = text, file
        self.tokens = tokenize(text, file)
        self.i = self.depth = 0

    @property
    def token(self) -> Token:
        return self.tokens[self.i]

    def error(self, message: str, pos: int | None = None) -> NoReturn:
        fail(self.text, self.token.pos if pos is None else pos, message, self.file)

    def next(self) -> Token:
        token = self.token
        self.i += token.kind != "end"
        return token

    def accept(self, *texts: str) -> Token | None:
        if self.token.kind != "str" and self.token.text in texts:
            return self.next()
        return None

    def expect(self, text: str) -> Token:
        return self.accept(text) or self.error(f"expected '{text}', got '{self.token.text}'")

    def name(self, what: str) -> Token:
        if self.token.kind != "name":
            self.error(f"expected {what}, got '{self.token.text}'")
        return self.next()

    def expr(self) -> Expr:
        """One expression, conditional operator and all."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.error(f"expression nested more than {MAX_DEPTH} deep")
        cond = self._binary(0)
        if mark := self.accept("?"):
            then = self.expr()
            self.expect(":")
            cond = Select(cond, then, self.expr(), mark.pos)
        self.depth -= 1
        return cond

    def _binary(self, level: int) -> Expr:
        if level == len(_LEVELS):
            return self._unary()
        left, count = self._binary(level + 1), 0
        while op := self.accept(*_LEVELS[level]):
            left = Binary(op.text, left, self._binary(level + 1), op.pos)
            count += 1
            if count > MAX_DEPTH:
                self.error(f"more than {MAX_DEPTH} operators in a row; use parentheses or local tensors", op.pos)
        return left

    def _unary(self) -> Expr:
        op = self.accept("-", "!")
        if op is None:
            return self._postfix()
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.error(f"expression nested more than {MAX_DEPTH} deep")
        arg = self._unary()
        self.depth -= 1
        if op.text == "-" and isinstance(arg, Num) and not isinstance(arg.value, bool):
            return Num(-arg.value, op.pos)
        return Unary(op.text, arg, op.pos)

    def _postfix(self) -> Expr:
        value = self._primary()
        while mark := self.accept("[", "."):
            if isinstance(value, Index) and isinstance(value.base, Index):
                self.error("too many subscripts", mark.pos)
            if mark.text == "[":
                subs, filler = self.subscripts()
                value = Index(value, subs, filler, mark.pos)
                continue
            if not isinstance(value, Name):
                self.error("only a tensor has attributes", mark.pos)
            attr = self.name("an attribute")
            if attr.text not in ATTRIBUTES:
                self.error(f"unknown attribute '{attr.text}'; there are: {', '.join(ATTRIBUTES)}", attr.pos)
            value = Attr(value, attr.text, mark.pos)
        return value

    def _primary(self) -> Expr:
        token = self.next()
        if token.kind == "num":
            return Num(self._number(token), token.pos)
        if token.kind == "str":
            if len(token.text) > MAX_STRING:
                self.error(f"string longer than {MAX_STRING}", token.pos)
            return Str(token.text[1:-1], token.pos)
        if token.text == "(":
            value = self.expr()
            self.expect(")")
            return value
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

    def _number(self, token: Token) -> int | float:
        if len(token.text) > 40:
            self.error("number of more than 40 characters", token.pos)
        if token.text.isdigit():
            return int(token.text)
        value = float(token.text)
        return value if math.isfinite(value) else self.error("number out of range", token.pos)

    def subscripts(self) -> tuple[tuple[Expr | Pack | Slice, ...], Expr | None]:
        """Subscripts after ``[`` up to ``]``, and the filler."""
        subs: list[Expr | Pack | Slice] = [self._subscript()]
        while self.accept(","):
            subs.append(self._subscript())
        filler = self.expr() if self.accept("|") else None
        self.expect("]")
        return tuple(subs), filler

    def _subscript(self) -> Expr | Pack | Slice:
        pos = self.token.pos
        value = self.expr()
        extra = self.expr() if self.accept(":") else None
        if self.accept("..."):
            if extra is not None and not isinstance(value, Name):
                self.error("a pack with a count is a name", pos)
            return Pack(value, extra, pos)
        return value if extra is None else Slice(value, extra, pos)

    def finish(self) -> None:
        if self.token.kind != "end":
            self.error(f"expected an operator, got '{self.token.text}'")


@lru_cache(4096)
def parse_expr(text: str, file: str = "<expression>") -> Expr:
    """Parse one expression; a mistake is a `LightNetError` with line and column."""
    parser = Parser(text, file)
    value = parser.expr()
    parser.finish()
    return value


# --- Printer --------------------------------------------------------------------------------------------------------

_RANK = {op: rank for rank, ops in enumerate(_LEVELS, 1) for op in ops}
_TIGHT = len(_LEVELS) + 1


def format_expr(expr: Expr | Pack | Slice, outer: int = 0) -> str:
    """The text of an expression; parses back to an equal AST."""
    text, rank = _format(expr)
    return f"({text})" if rank < outer else text


def _format(e: Expr | Pack | Slice) -> tuple[str, int]:
    match e:
        case Num(value=bool(value)):
            return ("true" if value else "false"), 9
        case Num(value=value):
            return format_number(value), 9 if value >= 0 and not str(value).startswith("-") else _TIGHT
        case Str(value=value):
            return f'"{value}"', 9
        case Name(name=name):
            return name, 9
        case Unary(op=op, arg=arg):
            inner = format_expr(arg, _TIGHT)
            return (f"{op}({inner})" if op == "-" and isinstance(arg, Num) else op + inner), _TIGHT
        case Binary(op=op, left=left, right=right):
            rank = _RANK[op]
            return f"{format_expr(left, rank)} {op} {format_expr(right, rank + 1)}", rank
        case Select(cond=cond, then=then, other=other):
            return f"{format_expr(cond, 1)} ? {format_expr(then)} : {format_expr(other)}", 0
        case Call(fn=fn, args=args):
            return f"{fn}({', '.join(map(format_expr, args))})", 9
        case Attr(base=base, attr=attr):
            return f"{base.name}.{attr}", 9
        case Index(base=base, subs=subs, filler=filler):
            tail = f" | {format_expr(filler)}" if filler is not None else ""
            return f"{format_expr(base, 9)}[{', '.join(map(format_expr, subs))}{tail}]", 9
        case Pack(pattern=pattern, count=count):
            return f"{format_expr(pattern)}{'' if count is None else ':' + format_expr(count)}...", 0
        case Slice(start=start, stop=stop):
            return f"{format_expr(start)}:{format_expr(stop)}", 0


def format_number(value: float) -> str:
    """A number as the language spells it; floats round-trip exactly."""
    return "inf" if value == math.inf else "-inf" if value == -math.inf else repr(value)


# --- Constant evaluation --------------------------------------------------------------------------------------------


def int_div(a: int, b: int) -> int:
    """Division that truncates toward zero, as in C; x/0 is 0."""
    if b == 0:
        return 0
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def divide(a: float, b: float) -> float:
    """``a / b`` outside subscripts: integers truncate, x/0 is 0 for integers and as IEEE 754 says for floats."""
    if isinstance(a, int) and isinstance(b, int):
        return int_div(a, b)
    if b == 0:
        return math.nan if a == 0 or a != a else math.copysign(math.inf, a) * math.copysign(1.0, b)
    return a / b


def remainder(a: float, b: float) -> float:
    """``a % b`` outside subscripts: the sign of `a`, as in C; x%0 is 0 for integers."""
    if isinstance(a, int) and isinstance(b, int):
        return a - b * int_div(a, b)
    return math.fmod(a, b) if b != 0 and not math.isinf(a) else math.nan


def round_half_away(x: float) -> float:
    """Round to the nearest integer, halves away from zero, as C's `round`."""
    if isinstance(x, int) or not math.isfinite(x):
        return x
    whole = math.floor(abs(x))
    return math.copysign(whole + (abs(x) - whole >= 0.5), x)


def _float_fn(fn: Callable[[float], float]) -> Callable[[float], float]:
    def wrapped(x: float) -> float:
        try:
            return fn(float(x))
        except OverflowError:
            return math.inf
        except ValueError:
            return -math.inf if fn is math.log and x == 0 else math.nan

    return wrapped


def _pow(a: float, b: float) -> float:
    if isinstance(a, int) and isinstance(b, int) and b >= 0:
        if a not in (-1, 0, 1) and b * abs(a).bit_length() > MAX_BITS:
            raise LightNetError(f"pow({a}, {b}) is too large")
        return a**b
    try:
        return math.pow(a, b)
    except (OverflowError, ValueError):
        return math.inf if a == 0 or b > 0 else math.nan


def _extreme(pick: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(*args: Any) -> Any:
        values = args[0] if len(args) == 1 and isinstance(args[0], tuple) else args
        if not values or any(isinstance(v, tuple) for v in values):
            raise LightNetError("min and max take numbers or one array that is not empty")
        nan = next((v for v in values if v != v), None)
        return pick(values) if nan is None else nan

    return wrapped


def _whole(rounding: Callable[[float], float]) -> Callable[[float], float]:
    return lambda x: x if isinstance(x, int) or not math.isfinite(x) else rounding(x)


def _integer(x: float) -> int:
    if x != x:
        return 0
    return int(max(-(2.0**63), min(x, 2.0**63 - 1024))) if isinstance(x, float) else int(x)


def _product(values: tuple[Any, ...]) -> Any:
    result: Any = 1
    for v in values:
        result = _number_check(result * v)
    return result


def _inverse(axes: tuple[Any, ...]) -> tuple[int, ...]:
    if not _permutation(axes):
        raise LightNetError(f"{list(axes)} is no permutation")
    result = [0] * len(axes)
    for i, axis in enumerate(axes):
        result[int(axis)] = i
    return tuple(result)


def _permutation(axes: tuple[Any, ...]) -> bool:
    return sorted(axes) == list(range(len(axes)))


#: Functions of constant expressions on numbers: name → (number of arguments or None, function).
FUNCTIONS: dict[str, tuple[int | None, Callable[..., Any]]] = {
    "min": (None, _extreme(min)),
    "max": (None, _extreme(max)),
    "abs": (1, abs),
    "exp": (1, _float_fn(math.exp)),
    "log": (1, _float_fn(math.log)),
    "sqrt": (1, _float_fn(math.sqrt)),
    "tanh": (1, _float_fn(math.tanh)),
    "floor": (1, _whole(math.floor)),
    "ceil": (1, _whole(math.ceil)),
    "round": (1, round_half_away),
    "pow": (2, _pow),
    "clamp": (3, lambda x, lo, hi: x if x != x else max(lo, min(x, hi))),
    "int": (1, _integer),
}
#: Functions on arrays.
ARRAY_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "len": len,
    "sum": lambda a: _number_check(sum(a)),
    "prod": _product,
    "permutation": _permutation,
    "inverse": _inverse,
}


def _number_check(value: Any) -> Any:
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise LightNetError("integer too large in a constant expression")
    return value


def _compare(op: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """Comparisons hold for every element: array with number, or arrays of one length."""

    def compare(a: Any, b: Any) -> bool:
        if isinstance(a, tuple) or isinstance(b, tuple):
            n = len(a) if isinstance(a, tuple) else len(b)
            left = a if isinstance(a, tuple) else (a,) * n
            right = b if isinstance(b, tuple) else (b,) * n
            return len(left) == len(right) and all(map(compare, left, right))
        if isinstance(a, str) != isinstance(b, str) and op not in (operator.eq, operator.ne):
            raise LightNetError("a string is compared with a number")
        return op(a, b)

    return compare


_equal = _compare(operator.eq)
ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": divide,
    "%": remainder,
}
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": _equal,
    "!=": lambda a, b: not _equal(a, b),
    "<": _compare(operator.lt),
    "<=": _compare(operator.le),
    ">": _compare(operator.gt),
    ">=": _compare(operator.ge),
}

Closure = Callable[[Env], Any]


def arithmetic(op: str, a: Any, b: Any) -> Any:
    """A binary operator on two numbers, with the checks that bound time and memory."""
    for v in (a, b):
        if not isinstance(v, (int, float)):
            raise LightNetError(f"operator '{op}' takes numbers, got {show_value(v)}")
    try:
        return _number_check(ARITHMETIC[op](int(a) if isinstance(a, bool) else a, int(b) if isinstance(b, bool) else b))
    except OverflowError:
        raise LightNetError(f"number out of range in {show_value(a)} {op} {show_value(b)}") from None


def apply_function(fn: str, args: Sequence[Any]) -> Any:
    """A function of constant expressions on values; an unknown one, or a wrong argument, is an error."""
    if fn in ARRAY_FUNCTIONS:
        if len(args) != 1 or not isinstance(args[0], tuple):
            raise LightNetError(f"{fn} takes one array")
        return ARRAY_FUNCTIONS[fn](args[0])
    count, function = FUNCTIONS[fn]
    if count is not None and len(args) != count:
        raise LightNetError(f"{fn} takes {count} argument{'s' * (count != 1)}, got {len(args)}")
    whole = count is None and len(args) == 1
    for v in args:
        if not isinstance(v, (int, float)) and not (whole and isinstance(v, tuple)):
            raise LightNetError(f"{fn} takes numbers, got {show_value(v)}")
    return function(*args)


def tensor_attr(spec: TensorLike, attr: str) -> Value:
    """The value of ``tensor.attr``."""
    if attr == "dims":
        return tuple(spec.dims)
    if attr == "ndim":
        return len(spec.dims)
    if attr == "len":
        return math.prod(spec.dims)
    if attr == "dtype":
        return spec.dtype.name
    raise LightNetError("'.flat' is for subscripts")


def element(values: Any, subs: Sequence[Any], what: str) -> Any:
    """``values[i]`` of a constant array, checked."""
    if not isinstance(values, tuple):
        raise LightNetError(f"'{what}' is no array: {show_value(values)}")
    if len(subs) != 1:
        raise LightNetError(f"'{what}' has one subscript, got {len(subs)}")
    i = subs[0]
    if isinstance(i, float) and i.is_integer():
        i = int(i)
    if isinstance(i, bool) or not isinstance(i, int) or not 0 <= i < len(values):
        raise LightNetError(f"subscript {show_value(i)} of '{what}' is not in 0..{len(values) - 1}")
    return values[i]


@lru_cache(4096)
def constant(expr: Expr) -> Closure:
    """Compile a constant expression: a closure from an `Env` to a value. Wrong types or names raise `LightNetError`."""
    match expr:
        case Num(value=value) | Str(value=value):
            return lambda env: value
        case Name(name=name):
            return lambda env: _lookup(env, name)
        case Attr(base=base, attr=attr):
            return lambda env: tensor_attr(_tensor(env, base.name), attr)
        case Unary(op="!", arg=arg):
            inner = constant(arg)
            return lambda env: not inner(env)
        case Unary(arg=arg):
            inner = constant(arg)
            return lambda env: arithmetic("*", -1, inner(env))
        case Binary(op="&&", left=left, right=right):
            a, b = constant(left), constant(right)
            return lambda env: bool(a(env)) and bool(b(env))
        case Binary(op="||", left=left, right=right):
            a, b = constant(left), constant(right)
            return lambda env: bool(a(env)) or bool(b(env))
        case Binary(op=op, left=left, right=right):
            a, b = constant(left), constant(right)
            if op in COMPARISONS:
                compare = COMPARISONS[op]
                return lambda env: compare(a(env), b(env))
            return lambda env: arithmetic(op, a(env), b(env))
        case Select(cond=cond, then=then, other=other):
            c, a, b = constant(cond), constant(then), constant(other)
            return lambda env: a(env) if c(env) else b(env)
        case Call():
            return _constant_call(expr)
        case Index():
            return _constant_index(expr)
    raise LightNetError("this is no constant expression")


def _constant_call(expr: Call) -> Closure:
    args = [constant(a) for a in expr.args]
    if expr.fn == "dtype":
        from lightnet.runtime.dtypes import BY_NAME, BY_TL

        def dtype(env: Env) -> str:
            name = args[0](env)
            found = BY_TL.get(name) or BY_NAME.get(name)
            if len(args) != 1 or found is None:
                raise LightNetError(f"unknown dtype {show_value(name)}")
            return found.name

        return dtype
    if expr.fn not in FUNCTIONS and expr.fn not in ARRAY_FUNCTIONS:
        known = sorted([*FUNCTIONS, *ARRAY_FUNCTIONS, "dtype"])
        raise LightNetError(f"unknown function '{expr.fn}'; there are: {', '.join(known)}")
    return lambda env: apply_function(expr.fn, [a(env) for a in args])


def _constant_index(expr: Index) -> Closure:
    base, what = constant(expr.base), format_expr(expr.base)
    if expr.filler is not None or any(isinstance(s, Pack) for s in expr.subs):
        raise LightNetError(f"'{format_expr(expr)}' is no constant expression")
    if len(expr.subs) == 1 and isinstance(part := expr.subs[0], Slice):
        start, stop = constant(part.start), constant(part.stop)
        return lambda env: _slice(base(env), start(env), stop(env), what)
    subs = [constant(s) for s in expr.subs if not isinstance(s, (Pack, Slice))]
    return lambda env: element(base(env), [s(env) for s in subs], what)


def _slice(values: Any, start: Any, stop: Any, what: str) -> tuple[Any, ...]:
    if not isinstance(values, tuple) or not isinstance(start, int) or not isinstance(stop, int):
        raise LightNetError(f"'{what}[start:stop]' wants an array and integers")
    if not 0 <= start <= stop <= len(values):
        raise LightNetError(f"slice {start}:{stop} of '{what}' is not in 0..{len(values)}")
    return values[start:stop]


def _lookup(env: Env, name: str) -> Value:
    if name in env.params:
        value = env.params[name]
        return tuple(value) if isinstance(value, list) else value
    if name in env.tensors:
        raise LightNetError(f"'{name}' is a tensor: its values are no constants")
    raise LightNetError(f"unknown name '{name}'; there are: {', '.join(sorted([*env.params, *env.tensors]))}")


def _tensor(env: Env, name: str) -> TensorLike:
    if name not in env.tensors:
        raise LightNetError(f"unknown tensor '{name}'; there are: {', '.join(sorted(env.tensors))}")
    return env.tensors[name]


def evaluate(text: str | Expr, env: Env, file: str = "<expression>") -> Value:
    """The value of a constant expression in `env`. Raises `LightNetError`."""
    expr = parse_expr(text, file) if isinstance(text, str) else text
    try:
        return constant(expr)(env)
    except RecursionError:
        raise LightNetError("expression too deep") from None


class Failure(NamedTuple):
    """Why a constraint does not hold: the part that fails; both sides' values when it is a comparison."""

    text: str
    got: Value
    expected: Value
    is_comparison: bool

    def __str__(self) -> str:
        if not self.is_comparison:
            return f"'{self.text}' does not hold"
        return f"'{self.text}' does not hold: {show_value(self.got)} against {show_value(self.expected)}"


def failure(text: str | Expr, env: Env) -> Failure | None:
    """None when the constraint holds in `env`; else its first conjunct that fails, `got` left and `expected` right."""
    expr = parse_expr(text) if isinstance(text, str) else text
    if constant(expr)(env):
        return None
    while isinstance(expr, Binary) and expr.op == "&&":
        expr = expr.left if not constant(expr.left)(env) else expr.right
    if isinstance(expr, Binary) and expr.op in COMPARISONS:
        return Failure(format_expr(expr), constant(expr.left)(env), constant(expr.right)(env), True)
    return Failure(format_expr(expr), False, True, False)


def show_value(value: Any) -> str:
    """A value for an error message."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return f"[{', '.join(map(show_value, value))}]"
    return f'"{value}"' if isinstance(value, str) else repr(value)
