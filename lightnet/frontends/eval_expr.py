"""The arithmetic of IL's `${eval EXPR}`: Perl's results for numbers and strings, and nothing else of Perl.

    expr    := or ("?" expr ":" expr)?          or  := and ("||" and)*         and := equal ("&&" equal)*
    equal   := less (("==" | "!=" | "<=>" | "eq" | "ne") less)?
    less    := sum (("<" | ">" | "<=" | ">=" | "lt" | "gt" | "le" | "ge") sum)?
    sum     := product (("+" | "-" | ".") product)*
    product := unary (("*" | "/" | "%") unary)*
    unary   := ("-" | "+" | "!") unary | power
    power   := primary ("**" unary)?
    primary := number | string | "(" expr ")" | name "(" expr ("," expr)* ")" | name sum      (one-argument names only)

Perl's numbers: an integer is exact while it fits 64 bits (signed or unsigned) and a double otherwise; a double that is
an integer below 2^53 takes part in `+ - * % **` as an integer; `/` gives a double. A comparison gives 1 or "". `%` has
the sign of its right operand. `&& || ?:` evaluate only what they need and give the operand itself; `min` and `max` give
a number. Sources: the Perl manual (perlop, perlnumber) and what perl 5.36 prints.

Imports the standard library and diagnostics only. Time and memory are bounded by the length of the text (`MAX_LENGTH`).
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable

from lightnet.diagnostics import LightNetError

MAX_LENGTH = 1 << 16
MAX_DEPTH = 40

Value = int | float | str

_SPACE = re.compile(r"\s*")
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]+|0[bB][01]+|(?:\d+(?:\.(?!\.)\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
_STRING = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_]\w*")
_NUMERIC = re.compile(r"\s*[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?\s*")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}

_EQUALITY = ("==", "!=", "<=>", "eq", "ne")
_ORDER = ("<=", ">=", "<", ">", "lt", "gt", "le", "ge")
_COMPARE: dict[str, Callable] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge,
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "gt": operator.gt, "le": operator.le, "ge": operator.ge,
}  # fmt: skip


def evaluate(text: str) -> str:
    """The value of an expression as Perl prints it; LightNetError (without a location) for anything that is no
    arithmetic."""
    if len(text) > MAX_LENGTH:
        raise LightNetError(f"the expression of ${{eval}} is longer than {MAX_LENGTH} characters")
    return to_text(_Evaluator(text).run())


def to_text(value: Value) -> str:
    """A value as Perl prints it: integers in full, doubles with 15 significant digits."""
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return str(value)
    if not math.isfinite(value):
        raise LightNetError("the value of ${eval} is not a finite number")
    return f"{value:.15g}" if value else "0"


def _fit(value: int) -> int | float:
    """An integer result: exact while it fits a signed or unsigned 64-bit integer."""
    return value if -(1 << 63) <= value < 1 << 64 else float(value)


def _settle(x: int | float) -> int | float:
    """A double that is an integer below 2^53 counts as that integer."""
    return int(x) if isinstance(x, float) and abs(x) < 1 << 53 and x.is_integer() else x


def _arith(op: Callable, a: int | float, b: int | float) -> int | float:
    a, b = _settle(a), _settle(b)
    if isinstance(a, int) and isinstance(b, int) and isinstance(exact := _fit(op(a, b)), int):
        return exact
    return op(float(a), float(b))


def _divide(a: int | float, b: int | float) -> int | float:
    if b == 0:
        raise LightNetError("division by zero in ${eval}")
    a, b = _settle(a), _settle(b)
    if isinstance(a, int) and isinstance(b, int) and abs(a) > 1 << 53 and a % b == 0:
        return _fit(a // b)
    return float(a) / float(b)


def _modulo(a: int | float, b: int | float) -> int | float:
    """Both operands are truncated to integers; the result has the sign of the right one."""
    if not (math.isfinite(a) and math.isfinite(b)) or int(b) == 0:
        raise LightNetError("modulo by zero or of an infinite number in ${eval}")
    if max(abs(a), abs(b)) < 1 << 64:
        return _fit(int(a) % int(b))
    rest = math.fmod(abs(a), abs(b))
    if (a < 0) != (b < 0) and rest:
        rest = abs(b) - rest
    return -rest if b < 0 else rest


def _power(a: int | float, b: int | float) -> int | float:
    """Exact when the result surely fits 64 bits and the base is no power of two (Perl's own rule), else a double."""
    a, b = _settle(a), _settle(b)
    if isinstance(a, int) and isinstance(b, int) and b >= 0:
        bits = abs(a).bit_length()
        if abs(a) & (abs(a) - 1) and bits * b <= 64:
            return _fit(a**b)
        if a < 0:
            size = _power(-a, b)
            return -size if b % 2 else size
    try:
        result = float(a) ** float(b)
    except ZeroDivisionError:
        return math.inf
    except OverflowError:
        return -math.inf if a < 0 and float(b) % 2 == 1 else math.inf
    return math.nan if isinstance(result, complex) else result


def _truncate(x: int | float) -> int | float:
    return _fit(math.trunc(x)) if math.isfinite(x) else x


def _sqrt(x: int | float) -> float:
    if x < 0:
        raise LightNetError("square root of a negative number in ${eval}")
    return math.sqrt(x)


_UNARY: dict[str, Callable] = {
    "int": _truncate,
    "abs": lambda x: abs(_settle(x)),
    "sqrt": _sqrt,
    "floor": lambda x: float(math.floor(x)) if math.isfinite(x) else x,
    "ceil": lambda x: float(math.ceil(x)) if math.isfinite(x) else x,
}
_CHOICES: dict[str, Callable] = {"min": min, "max": max}


def _number(value: Value) -> int | float:
    """A value as a number. Perl takes any string (0 if it does not begin like a number); here that is an error."""
    if not isinstance(value, str):
        return value
    if value == "":
        return 0
    if not _NUMERIC.fullmatch(value):
        raise LightNetError(f"the string {value[:40]!r} in ${{eval}} is not a number")
    return _fit(int(value)) if value.strip().lstrip("+-").isdigit() and len(value) < 40 else float(value)


def _truth(value: Value) -> bool:
    return value not in ("", "0") if isinstance(value, str) else value != 0


class _Evaluator:
    """Parses and evaluates at once. While `idle` is positive (an arm not taken) it only parses, and every value is
    0."""

    def __init__(self, text: str):
        self.text = text
        self.at = 0
        self.depth = 0
        self.idle = 0

    def run(self) -> Value:
        value = self.expr()
        if self.peek():
            raise self.unexpected()
        return value

    # -- reading ------------------------------------------------------------------------------------------------------
    def peek(self) -> str:
        """The rest of the text from the next token on, at most three characters: enough to know an operator."""
        self.at = _SPACE.match(self.text, self.at).end()
        return self.text[self.at : self.at + 3]

    def take(self, *tokens: str) -> str:
        """Take the first of the tokens that stands here (longer ones first in the list); "" if none does."""
        ahead = self.peek()
        for token in tokens:
            if ahead.startswith(token) and not (token.isalpha() and _NAME.match(self.text, self.at)[0] != token):
                self.at += len(token)
                return token
        return ""

    def expect(self, token: str) -> None:
        if not self.take(token):
            raise self.unexpected(f"; expected '{token}'")

    def unexpected(self, more: str = "") -> LightNetError:
        rest = self.text[self.at :].strip()
        what = f"unexpected '{rest[:40]}'" if rest else "unexpected end"
        return LightNetError(
            f"{what} in '${{eval {self.text.strip()[:80]}}}'{more}",
            notes=[(None, "${eval} takes arithmetic; --eval=perl evaluates it as Perl (for trusted files only)")],
        )

    # -- the grammar --------------------------------------------------------------------------------------------------
    def expr(self) -> Value:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise LightNetError("the expression of ${eval} is nested too deeply")
        condition = self.either()
        if self.take("?"):
            chosen = self.unless(not _truth(condition), self.expr)
            self.expect(":")
            other = self.unless(_truth(condition), self.expr)
            condition = chosen if _truth(condition) else other
        self.depth -= 1
        return condition

    def unless(self, skip: bool, parse: Callable[[], Value]) -> Value:
        """Parse an operand, evaluating it unless `skip`."""
        self.idle += skip
        value = parse()
        self.idle -= skip
        return value

    def either(self) -> Value:
        value = self.both()
        while self.take("||"):
            other = self.unless(_truth(value), self.both)
            value = value if _truth(value) else other
        return value

    def both(self) -> Value:
        value = self.equal()
        while self.take("&&"):
            other = self.unless(not _truth(value), self.equal)
            value = other if _truth(value) else value
        return value

    def equal(self) -> Value:
        return self.comparison(_EQUALITY, self.less)

    def less(self) -> Value:
        return self.comparison(_ORDER, self.sum)

    def comparison(self, operators: tuple[str, ...], operand: Callable[[], Value]) -> Value:
        left = operand()
        if self.peek().startswith("<=>") and "<=>" not in operators:
            return left
        op = self.take(*operators)
        if not op:
            return left
        right = operand()
        if self.idle:
            return 0
        if op.isalpha():
            return 1 if _COMPARE[op](to_text(left), to_text(right)) else ""
        a, b = _number(left), _number(right)
        if op == "<=>":
            return (a > b) - (a < b)
        return 1 if _COMPARE[op](a, b) else ""

    def sum(self) -> Value:
        value = self.product()
        while op := self.take("+", "-", "."):
            other = self.product()
            if self.idle:
                continue
            if op == ".":
                value = to_text(value) + to_text(other)
            else:
                value = _arith(operator.add if op == "+" else operator.sub, _number(value), _number(other))
        return value

    def product(self) -> Value:
        value = self.unary()
        while not self.peek().startswith("**") and (op := self.take("*", "/", "%")):
            other = self.unary()
            if self.idle:
                continue
            a, b = _number(value), _number(other)
            value = _arith(operator.mul, a, b) if op == "*" else _divide(a, b) if op == "/" else _modulo(a, b)
        return value

    def unary(self) -> Value:
        """A chain of signs and nots, read without recursion, then a power: `-2**2` is -4."""
        signs = []
        while op := self.take("-", "+", "!"):
            signs.append(op)
        value = self.power()
        for op in reversed(signs):
            if self.idle or op == "+":
                continue
            if op == "!":
                value = "" if _truth(value) else 1
            else:
                number = _number(value)
                value = _fit(-number) if isinstance(number, int) else -number
        return value

    def power(self) -> Value:
        base = self.primary()
        if not self.take("**"):
            return base
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise LightNetError("the expression of ${eval} is nested too deeply")
        exponent = self.unary()
        self.depth -= 1
        return 0 if self.idle else _power(_number(base), _number(exponent))

    def primary(self) -> Value:
        self.peek()
        if self.take("("):
            value = self.expr()
            self.expect(")")
            return value
        if match := _NUMBER.match(self.text, self.at):
            return self.number(match)
        if match := _STRING.match(self.text, self.at):
            return self.string(match)
        if (match := _NAME.match(self.text, self.at)) and (match[0] in _UNARY or match[0] in _CHOICES):
            self.at = match.end()
            return self.call(match[0])
        raise self.unexpected()

    def number(self, match: re.Match) -> Value:
        """A literal. A leading 0 makes it octal, as in Perl and C: 010 is 8."""
        start, literal = self.at, match[0]
        whole = literal.isdigit()
        bad = whole and literal[0] == "0" and not set(literal) <= set("01234567")
        if bad or _NAME.match(self.text, match.end()):
            raise self.unexpected()
        self.at = match.end()
        if literal[:2].lower() in ("0x", "0b"):
            return _fit(int(literal, 0)) if len(literal) < 80 else self.too_long(start)
        if not whole:
            return float(literal)
        if len(literal) >= 80:
            return self.too_long(start)
        return _fit(int(literal, 8 if literal[0] == "0" else 10))

    def too_long(self, start: int) -> Value:
        self.at = start
        raise self.unexpected("; the number is too long")

    def string(self, match: re.Match) -> Value:
        """A literal: "..." with the escapes of \\n, \\t, \\r, \\0 and punctuation, '...' raw but for \\' and
        \\\\; no interpolation."""
        double, single = match.groups()
        if single is not None:
            self.at = match.end()
            return re.sub(r"\\([\\'])", r"\1", single)
        if re.search(r"(?<!\\)(?:\\\\)*[$@]|\\[A-Za-z1-9](?<!\\[ntr])", double):
            raise self.unexpected("; a string may hold no variable and only simple escapes")
        self.at = match.end()
        return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), double, flags=re.DOTALL)

    def call(self, name: str) -> Value:
        """A function with its arguments in parentheses, or a one-argument function with a bare sum: `int 7/2`
        is int(7/2)."""
        if not self.take("("):
            if name not in _UNARY:
                raise self.unexpected("; expected '('")
            self.depth += 1
            if self.depth > MAX_DEPTH:
                raise LightNetError("the expression of ${eval} is nested too deeply")
            args = [self.sum()]
            self.depth -= 1
        else:
            args = [self.expr()]
            while self.take(","):
                args.append(self.expr())
            self.expect(")")
        if name in _UNARY and len(args) != 1:
            raise LightNetError(f"{name}() takes one argument in ${{eval}}, not {len(args)}")
        if self.idle:
            return 0
        numbers = [_number(a) for a in args]
        if name in _UNARY:
            return _UNARY[name](numbers[0])
        return math.nan if any(map(math.isnan, numbers)) else _CHOICES[name](numbers)
