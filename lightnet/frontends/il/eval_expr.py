"""The arithmetic of IL's `${eval EXPR}`: Perl's results for numbers and strings, and nothing else of Perl.

    expr    := or ("?" expr ":" expr)?          or := and ("||" and)*         and := some ("&&" some)*
    some    := all (("|" | "^") all)*           all := equal ("&" equal)*
    equal   := less (("==" | "!=" | "<=>" | "eq" | "ne" | "cmp") less)?
    less    := shift (("<" | ">" | "<=" | ">=" | "lt" | "gt" | "le" | "ge") shift)?
    shift   := sum (("<<" | ">>") sum)*         sum := product (("+" | "-" | ".") product)*
    product := unary (("*" | "/" | "%") unary)*
    unary   := ("-" | "+" | "!" | "~") unary | power
    power   := primary ("**" unary)?
    primary := number | string | "(" expr ")" | name "(" expr ("," expr)* ")" | name shift    (one-argument names only)

A number may have `_` between its digits. `&& || ?:` evaluate only what they need and give the operand itself; `min` and `max`
give a number. What numbers are, and what operators make of them, is in `eval_numbers.py`.

Imports the standard library, `eval_numbers` and diagnostics only. Time and memory are bounded by the length of the text
(`MAX_LENGTH`).
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable

from lightnet.diagnostics import LightNetError
from lightnet.frontends.il.eval_numbers import (
    CHOICES,
    NO,
    UNARY,
    YES,
    Value,
    arithmetic,
    bits,
    compared,
    complement,
    divided,
    fit,
    modulo,
    number,
    power,
    shifted,
    to_text,
    truth,
)

MAX_LENGTH = 1 << 16
MAX_DEPTH = 40

_SPACE = re.compile(r"\s*")
_NUMBER = re.compile(
    r"0[xX][0-9a-fA-F_]+|0[bB][01_]+|0[oO][0-7_]+|(?:\d[\d_]*(?:\.(?!\.)[\d_]*)?|\.\d[\d_]*)(?:[eE][+-]?[\d_]+)?"
)
_STRING = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_]\w*")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}

_BASES = {"0x": 16, "0b": 2, "0o": 8}
_EQUALITY = ("==", "!=", "<=>", "eq", "ne", "cmp")
_ORDER = ("<=", ">=", "<", ">", "lt", "gt", "le", "ge")


def evaluate(text: str) -> str:
    """The value of an expression as Perl prints it; LightNetError (without a location) for anything that is no
    arithmetic."""
    if len(text) > MAX_LENGTH:
        raise LightNetError(f"the expression of ${{eval}} is longer than {MAX_LENGTH} characters")
    return to_text(_Evaluator(text).run())


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
            chosen = self.unless(not truth(condition), self.expr)
            self.expect(":")
            other = self.unless(truth(condition), self.expr)
            condition = chosen if truth(condition) else other
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
            other = self.unless(truth(value), self.both)
            value = value if truth(value) else other
        return value

    def both(self) -> Value:
        value = self.some()
        while self.take("&&"):
            other = self.unless(not truth(value), self.some)
            value = other if truth(value) else value
        return value

    def some(self) -> Value:
        return self.bitwise(("|", "^"), self.all)

    def all(self) -> Value:
        return self.bitwise(("&",), self.equal)

    def bitwise(self, operators: tuple[str, ...], operand: Callable[[], Value]) -> Value:
        """Bit operators of one precedence; `&&` and `||` are others."""
        value = operand()
        while self.peek()[:2] not in ("&&", "||") and (op := self.take(*operators)):
            other = operand()
            value = 0 if self.idle else bits(op, value, other)
        return value

    def equal(self) -> Value:
        return self.comparison(_EQUALITY, self.less)

    def less(self) -> Value:
        return self.comparison(_ORDER, self.shift)

    def comparison(self, operators: tuple[str, ...], operand: Callable[[], Value]) -> Value:
        left = operand()
        if self.peek().startswith("<=>") and "<=>" not in operators:
            return left
        op = self.take(*operators)
        if not op:
            return left
        right = operand()
        return 0 if self.idle else compared(op, left, right)

    def shift(self) -> Value:
        value = self.sum()
        while op := self.take("<<", ">>"):
            count = self.sum()
            if not self.idle:
                value = shifted(value, count if op == "<<" else -number(count))
        return value

    def sum(self) -> Value:
        value = self.product()
        while op := self.take("+", "-", "."):
            other = self.product()
            if self.idle:
                continue
            if op == ".":
                value = to_text(value) + to_text(other)
            else:
                value = arithmetic(operator.add if op == "+" else operator.sub, value, other)
        return value

    def product(self) -> Value:
        value = self.unary()
        while not self.peek().startswith("**") and (op := self.take("*", "/", "%")):
            other = self.unary()
            if self.idle:
                continue
            if op == "*":
                value = arithmetic(operator.mul, value, other)
            else:
                value = (divided if op == "/" else modulo)(number(value), number(other))
        return value

    def unary(self) -> Value:
        """A chain of signs and nots, read without recursion, then a power: `-2**2` is -4."""
        signs = []
        while not self.peek().startswith("!~") and (op := self.take("-", "+", "!", "~")):
            signs.append(op)
        value = self.power()
        for op in reversed(signs):
            if self.idle or op == "+":
                continue
            if op == "!":
                value = NO if truth(value) else YES
            elif op == "~":
                value = complement(value)
            else:
                x = number(value)
                value = fit(-x) if isinstance(x, int) else -x
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
        return 0 if self.idle else power(number(base), number(exponent))

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
        if (match := _NAME.match(self.text, self.at)) and (match[0] in UNARY or match[0] in CHOICES):
            self.at = match.end()
            return self.call(match[0])
        raise self.unexpected()

    def number(self, match: re.Match) -> Value:
        """A literal. A leading 0 makes it octal, as in Perl and C: 010 is 8."""
        start, literal = self.at, match[0].replace("_", "")
        whole = literal.isdigit()
        base = _BASES.get(literal[:2].lower(), 8 if literal[0] == "0" else 10)
        bad = whole and base == 8 and not set(literal) <= set("01234567")
        unfinished = len(literal) == 2 if base in (16, 2) else literal[-1] in "eE+-oO"
        if bad or unfinished or _NAME.match(self.text, match.end()):
            raise self.unexpected()
        if not whole and literal[:2].lower() not in _BASES:
            self.at = match.end()
            return float(literal)
        if len(literal) >= 80:
            return self.too_long(start)
        self.at = match.end()
        return fit(int(literal, base))

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
            if name not in UNARY:
                raise self.unexpected("; expected '('")
            self.depth += 1
            if self.depth > MAX_DEPTH:
                raise LightNetError("the expression of ${eval} is nested too deeply")
            args = [self.shift()]
            self.depth -= 1
        else:
            args = [self.expr()]
            while self.take(","):
                args.append(self.expr())
            self.expect(")")
        if name in UNARY and len(args) != 1:
            raise LightNetError(f"{name}() takes one argument in ${{eval}}, not {len(args)}")
        if self.idle:
            return 0
        numbers = [number(a) for a in args]
        if name in UNARY:
            return UNARY[name](numbers[0])
        return math.nan if any(map(math.isnan, numbers)) else CHOICES[name](numbers)
