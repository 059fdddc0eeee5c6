"""Integer constant expressions of `#if` and `#elif` (C99 6.10.1, and the comma operator, which GCC takes there): 64-bit
signed and unsigned arithmetic.

Imports the lexer, `parsing` and diagnostics only.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NoReturn

from lightnet.frontends.il.lexer import CHAR, FROZEN, NAME, NUMBER, PUNCT, Token, TokenError
from lightnet.parsing import EvaluatingParser

#: A value with its type: unsigned if either operand is.
Value = tuple[int, bool]

_INTEGER = re.compile(r"(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)([uU]?[lL]{0,2}|[lL]{1,2}[uU])")
_ESCAPES = {"n": 10, "t": 9, "r": 13, "a": 7, "b": 8, "f": 12, "v": 11, "\\": 92, "'": 39, '"': 34, "?": 63}
_LEVELS = (
    ("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", ">", "<=", ">="), ("<<", ">>"), ("+", "-"),
    ("*", "/", "%"),
)  # fmt: skip


def condition_holds(tokens: list[Token]) -> bool:
    """Return whether the expanded tokens of a condition hold; names that are left count as 0. TokenError when
    malformed."""
    parser = _Parser(tokens)
    value = parser.comma()
    if parser.at < len(tokens):
        raise parser.error(f"unexpected '{tokens[parser.at][1]}' in the condition")
    return value[0] != 0


def _wrap(value: int, unsigned: bool) -> Value:
    value &= (1 << 64) - 1
    return (value if unsigned or value < 1 << 63 else value - (1 << 64)), unsigned


def _shift(a: int, b: int) -> int:
    """a << b, where a negative b shifts right; counts of 64 and more give 0 or -1."""
    return a << b if 0 <= b < 64 else 0 if b >= 64 else a >> min(-b, 64)


def _truncating(a: int, b: int) -> int:
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


_OPS: dict[str, Callable[[int, int], int]] = {
    "|": lambda a, b: a | b, "^": lambda a, b: a ^ b, "&": lambda a, b: a & b,
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<": lambda a, b: a < b, ">": lambda a, b: a > b,
    "<=": lambda a, b: a <= b, ">=": lambda a, b: a >= b, "<<": _shift, ">>": lambda a, b: _shift(a, -b),
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b,
    "/": _truncating, "%": lambda a, b: a - b * _truncating(a, b),
}  # fmt: skip


class _Parser(EvaluatingParser[Value]):
    """While it is idle, dividing by zero is no error."""

    LEVELS, MAX_DEPTH = _LEVELS, 25

    def __init__(self, tokens: list[Token]):
        self.tokens = tokens
        self.at = 0

    def error(self, message: str) -> TokenError:
        return TokenError(message, self.tokens[self.at] if self.at < len(self.tokens) else None)

    def operator(self) -> str:
        return self.tokens[self.at][1] if self.at < len(self.tokens) and self.tokens[self.at][0] == PUNCT else ""

    def comma(self) -> Value:
        """Expressions with commas between them: the last one's value."""
        value = self.ternary()
        while self.operator() == ",":
            self.at += 1
            value = self.ternary()
        return value

    def ternary(self) -> Value:
        return self.nested(self.choice)

    def choice(self) -> Value:
        value = self.climb()
        if self.operator() == "?":
            self.at += 1
            a = self.unless(not value[0], self.comma)
            if self.operator() != ":":
                raise self.error("expected ':' in the condition")
            self.at += 1
            b = self.unless(bool(value[0]), self.ternary)
            value = _wrap((a if value[0] else b)[0], a[1] or b[1])
        return value

    def too_deep(self) -> NoReturn:
        raise self.error("the condition is nested too deeply")

    def joined(self, left: Value, right: Callable[[], Value]) -> Value:
        op = self.operator()
        self.at += 1
        if op not in ("&&", "||"):
            return self.apply(op, left, right())
        known = bool(left[0]) == (op == "||")
        value = self.unless(known, right)
        return int(bool(left[0]) if known else bool(value[0])), False

    def apply(self, op: str, left: Value, right: Value) -> Value:
        (a, ua), (b, ub) = left, right
        if op in "/%" and b == 0:
            if self.idle:
                return 0, ua or ub
            self.at -= 1
            raise self.error("division by zero in the condition")
        if op in ("<<", ">>"):
            return _wrap(_OPS[op](a, b), ua)
        unsigned = ua or ub
        result = _OPS[op](_wrap(a, unsigned)[0], _wrap(b, unsigned)[0])
        return (int(result), False) if op in _LEVELS[5] + _LEVELS[6] else _wrap(result, unsigned)

    def operand(self) -> Value:
        ops = []
        while (op := self.operator()) in ("-", "+", "!", "~") and op:
            ops.append(op)
            self.at += 1
        value, unsigned = self.primary()
        for op in reversed(ops):
            if op == "!":
                value, unsigned = int(not value), False
            elif op != "+":
                value, unsigned = _wrap(-value if op == "-" else ~value, unsigned)
        return value, unsigned

    def primary(self) -> Value:
        if self.at >= len(self.tokens):
            raise self.error("the condition ends too early" if self.tokens else "the condition is empty")
        kind, text, *_ = self.tokens[self.at]
        if text == "(":
            self.at += 1
            value = self.comma()
            if self.operator() != ")":
                raise self.error("expected ')' in the condition")
        elif kind in (NAME, FROZEN):
            value = (0, False)
        elif kind == NUMBER:
            value = self.integer(text)
        elif kind == CHAR:
            value = self.character(text[text.index("'") + 1 : -1])
        else:
            raise self.error(f"unexpected '{text[:40]}' in the condition")
        self.at += 1
        return value

    def integer(self, text: str) -> Value:
        m = _INTEGER.fullmatch(text)
        octal = m and m[1].isdigit() and len(m[1]) > 1 and m[1][0] == "0"
        if not m or len(text) > 80 or (octal and not set(m[1]) <= set("01234567")):
            raise self.error(f"'{text[:40]}' is not an integer")
        value = int(m[1], 8) if octal else int(m[1], 0)
        if value >= 1 << 64:
            raise self.error(f"the integer '{text[:40]}' is too large")
        return value, "u" in m[2].lower() or value >= 1 << 63

    def character(self, body: str) -> Value:
        if len(body) == 1 and body.isascii():
            return ord(body), False
        if len(body) == 2 and body[0] == "\\" and body[1] in _ESCAPES:
            return _ESCAPES[body[1]], False
        if m := re.fullmatch(r"\\([0-7]{1,3})|\\x([0-9a-fA-F]{1,2})", body):
            code = int(m[1], 8) if m[1] else int(m[2], 16)
            return (code & 255) - (256 if code & 128 else 0), False
        raise self.error("unsupported character constant in the condition")
