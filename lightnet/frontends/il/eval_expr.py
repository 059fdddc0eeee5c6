"""The arithmetic of IL's `${eval EXPR}`: Perl's results for numbers and strings, and nothing else of Perl.

    expr    := and (("or" | "xor") and)*        and := negated ("and" negated)*       negated := "not" negated | choice
    choice  := binary ("?" choice ":" choice)?  binary := unary (operator unary)*     by the precedences of `_LEVELS`
    unary   := ("-" | "+" | "!" | "~") unary | power
    power   := primary ("**" unary)?
    primary := number | string | "(" expr ")" | name "(" expr ")" | name "(" choice ("," choice)* ")"
             | name shift    (one-argument names only) | "not" "(" expr ")"

A number may have `_` between its digits. `&& || and or ?:` evaluate only what they need and give the operand itself;
`min` and `max` give a number. What numbers are, and what operators make of them, is in `eval_numbers.py`.

Imports the standard library, `eval_numbers`, `parsing` and diagnostics only. Time and memory are bounded by the length
of the text (`MAX_LENGTH`).
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from typing import NoReturn

from lightnet.diagnostics import LightNetError
from lightnet.frontends.il.eval_numbers import (
    EXTREME_OF,
    NO,
    NUMBER_FUNCTIONS,
    YES,
    Value,
    compared,
    complement,
    divided,
    fit,
    modulo,
    perl_arithmetic,
    perl_bits,
    perl_number,
    perl_power,
    perl_truth,
    shifted,
    to_text,
)
from lightnet.parsing import EvaluatingParser
from lightnet.source import end_of

MAX_LENGTH = 1 << 16
MAX_DEPTH = 40

_SPACE = re.compile(r"\s*")
_NUMBER = re.compile(
    r"0[xX][0-9a-fA-F_]+|0[bB][01_]+|0[oO][0-7_]+|(?:\d[\d_]*(?:\.(?!\.)[\d_]*)?|\.\d[\d_]*)(?:[eE][+-]?[\d_]+)?"
)
_STRING = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_]\w*")
_NEGATION = re.compile(r"\s*not\s*\(")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}

_BASES = {"0x": 16, "0b": 2, "0o": 8}
_EQUALITY = ("==", "!=", "<=>", "eq", "ne", "cmp")
_ORDER = ("<=", ">=", "<", ">", "lt", "gt", "le", "ge")
_LEVELS = (("||",), ("&&",), ("|", "^"), ("&",), _EQUALITY, _ORDER, ("<<", ">>"), ("+", "-", "."), ("*", "/", "%"))
_OPERATOR = re.compile(r"<=>|<<|>>|&&|\|\||[=!<>]=|(?:eq|ne|cmp|lt|gt|le|ge)\b|\*(?!\*)|[-+./%<>&|^]")
_ARITHMETIC = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def evaluate_perl(text: str) -> str:
    """The value of an expression as Perl prints it; LightNetError (without a location) for anything that is no
    arithmetic."""
    if len(text) > MAX_LENGTH:
        raise LightNetError(f"the expression of ${{eval}} is longer than {MAX_LENGTH} characters")
    return to_text(_Evaluator(text).run())


class _Evaluator(EvaluatingParser[Value]):
    """Parses and evaluates at once; while it is idle, every value is 0."""

    LEVELS, SINGLE, MAX_DEPTH = _LEVELS, (*_EQUALITY, *_ORDER), MAX_DEPTH

    def __init__(self, text: str):
        self.text = text
        self.at = 0

    def run(self) -> Value:
        value = self.expr()
        if self.peek():
            raise self.unexpected()
        return value

    # -- reading ------------------------------------------------------------------------------------------------------
    def peek(self) -> str:
        """The rest of the text from the next token on, at most three characters: enough to know an operator."""
        self.at = end_of(_SPACE, self.text, self.at)
        return self.text[self.at : self.at + 3]

    def take(self, *tokens: str) -> str:
        """Take the first of the tokens that stands here (longer ones first in the list); "" if none does."""
        ahead = self.peek()
        for token in tokens:
            if ahead.startswith(token) and not (
                token.isalpha() and end_of(_NAME, self.text, self.at) != self.at + len(token)
            ):
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
        return self.nested(self.either)

    def either(self) -> Value:
        value = self.both()
        while op := self.take("or", "xor"):
            skip = op == "or" and perl_truth(value)
            other = self.unless(skip, self.both)
            if op == "xor":
                value = YES if perl_truth(value) != perl_truth(other) else NO
            elif not skip:
                value = other
        return value

    def both(self) -> Value:
        value = self.negated()
        while self.take("and"):
            skip = not perl_truth(value)
            other = self.unless(skip, self.negated)
            value = value if skip else other
        return value

    def negated(self) -> Value:
        count = 0
        while not _NEGATION.match(self.text, self.at) and self.take("not"):
            count += 1
        value = self.choice()
        return value if not count else YES if perl_truth(value) == (count % 2 == 0) else NO

    def choice(self) -> Value:
        condition = self.climb()
        if self.take("?"):
            chosen = self.unless(not perl_truth(condition), self.arm)
            self.expect(":")
            other = self.unless(perl_truth(condition), self.arm)
            condition = chosen if perl_truth(condition) else other
        return condition

    def arm(self) -> Value:
        return self.nested(self.choice)

    def too_deep(self) -> NoReturn:
        raise LightNetError("the expression of ${eval} is nested too deeply")

    def operator(self) -> str:
        self.peek()
        found = _OPERATOR.match(self.text, self.at)
        return found[0] if found else ""

    def joined(self, left: Value, right: Callable[[], Value]) -> Value:
        op = self.take(self.operator())
        if op in ("&&", "||"):
            skip = perl_truth(left) == (op == "||")
            other = self.unless(skip, right)
            return left if skip else other
        other = right()
        return 0 if self.idle else self.computed(op, left, other)

    @staticmethod
    def computed(op: str, left: Value, right: Value) -> Value:
        if op in ("|", "^", "&"):
            return perl_bits(op, left, right)
        if op in _EQUALITY or op in _ORDER:
            return compared(op, left, right)
        if op in ("<<", ">>"):
            return shifted(left, right if op == "<<" else -perl_number(right))
        if op == ".":
            return to_text(left) + to_text(right)
        if op in _ARITHMETIC:
            return perl_arithmetic(_ARITHMETIC[op], left, right)
        return (divided if op == "/" else modulo)(perl_number(left), perl_number(right))

    def operand(self) -> Value:
        """A chain of signs and nots, read without recursion, then a power: `-2**2` is -4."""
        signs = []
        while not self.peek().startswith("!~") and (op := self.take("-", "+", "!", "~")):
            signs.append(op)
        value = self.power()
        for op in reversed(signs):
            if self.idle or op == "+":
                continue
            if op == "!":
                value = NO if perl_truth(value) else YES
            elif op == "~":
                value = complement(value)
            else:
                x = perl_number(value)
                value = fit(-x) if isinstance(x, int) else -x
        return value

    def power(self) -> Value:
        base = self.primary()
        if not self.take("**"):
            return base
        exponent = self.nested(self.operand)
        return 0 if self.idle else perl_power(perl_number(base), perl_number(exponent))

    def primary(self) -> Value:
        self.peek()
        if self.take("("):
            value = self.expr()
            self.expect(")")
            return value
        if _NEGATION.match(self.text, self.at):  # binds like a function where a parenthesis follows: not(0) + 1
            self.take("not")
            return NO if perl_truth(self.primary()) else YES
        if match := _NUMBER.match(self.text, self.at):
            return self.number(match)
        if match := _STRING.match(self.text, self.at):
            return self.string(match)
        if (match := _NAME.match(self.text, self.at)) and (match[0] in NUMBER_FUNCTIONS or match[0] in EXTREME_OF):
            self.at = match.end()
            return self.call(match[0])
        raise self.unexpected()

    def number(self, match: re.Match) -> Value:
        """A literal. A leading 0 makes it octal, as in Perl and C: 010 is 8."""
        literal = match[0].replace("_", "")
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
            raise self.unexpected("; the number is too long")
        self.at = match.end()
        return fit(int(literal, base))

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

    def bare(self) -> Value:
        """The argument of a function without parentheses: what binds no weaker than shifts."""
        return self.climb(self.BINDING["<<"])

    def call(self, name: str) -> Value:
        """A function with its arguments in parentheses, or a one-argument function with a bare sum: `int 7/2`
        is int(7/2)."""
        if not self.take("("):
            if name not in NUMBER_FUNCTIONS:
                raise self.unexpected("; expected '('")
            args = [self.nested(self.bare)]
        else:
            args = [self.expr() if name in NUMBER_FUNCTIONS else self.arm()]
            while self.take(","):
                args.append(self.arm())
            self.expect(")")
        if name in NUMBER_FUNCTIONS and len(args) != 1:
            raise LightNetError(f"{name}() takes one argument in ${{eval}}, not {len(args)}")
        if self.idle:
            return 0
        numbers = [perl_number(a) for a in args]
        if name in NUMBER_FUNCTIONS:
            return NUMBER_FUNCTIONS[name](numbers[0])
        return math.nan if any(map(math.isnan, numbers)) else EXTREME_OF[name](numbers)
