"""Perl's numbers and what its operators make of them: the arithmetic of IL's `${eval EXPR}`.

An integer is exact while it fits 64 bits (signed or unsigned) and a double otherwise; a double that is an integer below
2^53 takes part in `+ - * % **` as an integer; `/` gives a double. A comparison gives 1 or "". `%` has the sign of its
right operand. Bit operators take their operands as unsigned 64-bit integers, or, where both are strings, by characters.
Sources: the Perl manual (perlop, perlnumber) and what perl 5.36 prints.

Imports the standard library and diagnostics only.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable

from lightnet.diagnostics import LightNetError

Value = int | float | str


class _No(str):
    """The result of a comparison that does not hold: an empty string that counts as a number, too."""

    __slots__ = ()


class _Yes(int):
    """The result of one that holds: 1, which counts as an integer and as a double."""


NO, YES = _No(""), _Yes(1)

_WORD = (1 << 64) - 1
_NUMERIC = re.compile(r"\s*[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?\s*")
_COMPARE: dict[str, Callable] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge,
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "gt": operator.gt, "le": operator.le, "ge": operator.ge,
}  # fmt: skip


def to_text(value: Value) -> str:
    """A value as Perl prints it: integers in full, doubles with 15 significant digits."""
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return str(value)
    if not math.isfinite(value):
        raise LightNetError("the value of ${eval} is not a finite number")
    return f"{value:.15g}" if value else "0"


def fit(value: int) -> int | float:
    """An integer result: exact while it fits a signed or unsigned 64-bit integer."""
    return value if -(1 << 63) <= value < 1 << 64 else float(value)


def _settle(x: int | float) -> int | float:
    """A double that is an integer below 2^53 counts as that integer."""
    return int(x) if isinstance(x, float) and abs(x) < 1 << 53 and x.is_integer() else x


def _whole(x: Value) -> bool:
    """Return whether `x` is a double that is an integer of at most 62 bits: two of these are added as integers."""
    return (isinstance(x, float) and abs(x) < 1 << 62 and x.is_integer()) or isinstance(x, _No | _Yes)


def perl_arithmetic(op: Callable, left: Value, right: Value) -> int | float:
    """`left + right`, `left - right` or `left * right`, by its function of `operator`."""
    a, b = perl_number(left), perl_number(right)
    if op is not operator.mul and _whole(left) and _whole(right):
        a, b = int(a), int(b)
    a, b = _settle(a), _settle(b)
    if isinstance(a, int) and isinstance(b, int):
        exact = op(a, b)
        if isinstance(fit(exact), int):
            return exact
        if abs(exact) <= _WORD and op is not operator.mul:  # Perl rounds such a sum once
            return float(exact)
    return op(float(a), float(b))


def compared(op: str, a: Value, b: Value) -> Value:
    """The result of a comparison of numbers or, by the operators that are words, of strings gives: YES or NO; of `<=>`
    and `cmp` the sign.
    """
    if op.isalpha():
        x, y = to_text(a), to_text(b)
    else:
        x, y = _settle(perl_number(a)), _settle(perl_number(b))
        if isinstance(x, float) or isinstance(y, float):
            x, y = float(x), float(y)
    if op in ("<=>", "cmp"):
        return (x > y) - (x < y) if x == x and y == y else NO
    return YES if _COMPARE[op](x, y) else NO


def divided(a: int | float, b: int | float) -> int | float:
    if b == 0:
        raise LightNetError("division by zero in ${eval}")
    a, b = _settle(a), _settle(b)
    if isinstance(a, int) and isinstance(b, int) and abs(a) > 1 << 53 and a % b == 0:
        return fit(a // b)
    return float(a) / float(b)


def modulo(a: int | float, b: int | float) -> int | float:
    """Both operands are truncated to integers; the result has the sign of the right one."""
    if not (math.isfinite(a) and math.isfinite(b)) or int(b) == 0:
        raise LightNetError("modulo by zero or of an infinite number in ${eval}")
    if max(abs(a), abs(b)) < 1 << 64:
        return fit(int(a) % int(b))
    size = float(math.floor(abs(b) + 0.5))
    rest = math.fmod(abs(a), size)
    if (a < 0) != (b < 0) and rest:
        rest = size - rest
    return -rest if b < 0 else rest


def perl_power(a: int | float, b: int | float) -> int | float:
    """Exact when the result surely fits 64 bits and the base is no power of two (Perl's own rule), else a double."""
    a, b = _settle(a), _settle(b)
    if isinstance(a, int) and isinstance(b, int) and b >= 0:
        bits = abs(a).bit_length()
        if abs(a) & (abs(a) - 1) and bits * b <= 64:
            return fit(a**b)
        if a < 0 and (b < 1 << 53 or not -a & (-a - 1)):
            size = perl_power(-a, b)
            return -size if b % 2 else size
    try:
        result = float(a) ** float(b)
    except ZeroDivisionError:
        return math.inf
    except OverflowError:
        if a < 0 and not float(b).is_integer():
            return math.nan
        return -math.inf if a < 0 and float(b) % 2 == 1 else math.inf
    return math.nan if isinstance(result, complex) else result


def _truncate(x: int | float) -> int | float:
    return fit(math.trunc(x)) if math.isfinite(x) and x != -float(1 << 63) else x


def _sqrt(x: int | float) -> float:
    if x < 0:
        raise LightNetError("square root of a negative number in ${eval}")
    return math.sqrt(x)


def _log(x: int | float) -> float:
    if x <= 0:
        raise LightNetError("logarithm of a number that is not positive in ${eval}")
    return math.log(x)


def _exp(x: int | float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


NUMBER_FUNCTIONS: dict[str, Callable] = {
    "int": _truncate,
    "abs": lambda x: abs(_settle(x)),
    "sqrt": _sqrt,
    "exp": _exp,
    "log": _log,
    "floor": lambda x: float(math.floor(x)) if math.isfinite(x) else x,
    "ceil": lambda x: float(math.ceil(x)) if math.isfinite(x) else x,
}
EXTREME_OF: dict[str, Callable] = {"min": min, "max": max}


def perl_number(value: Value) -> int | float:
    """A value as a number. Perl takes any string (0 if it does not begin like a number); here that is an error."""
    if not isinstance(value, str):
        return value
    if value == "":
        return 0
    if not _NUMERIC.fullmatch(value):
        raise LightNetError(f"the string {value[:40]!r} in ${{eval}} is not a number")
    if value.strip().lstrip("+-").isdigit() and len(value) < 40:
        return fit(int(value))
    x = float(value)
    return int(x) if abs(x) < 1 << 63 and x.is_integer() else x


def perl_truth(value: Value) -> bool:
    return value not in ("", "0") if isinstance(value, str) else value != 0


# -- bits
def _unsigned(value: Value) -> int:
    """A finite value as a word of 64 bits: truncated, negative ones in two's complement, what is out of range at its
    limit."""
    x = perl_number(value)
    if isinstance(x, float):
        if not math.isfinite(x):
            raise LightNetError("a bit operator in ${eval} takes no infinite number")
        x = math.trunc(min(max(x, -float(1 << 63)), float(1 << 64)))
    return min(x, _WORD) & _WORD


def _both_strings(a: Value, b: Value) -> bool:
    return isinstance(a, str) and isinstance(b, str) and not isinstance(a, _No) and not isinstance(b, _No)


def _by_characters(op: str, a: str, b: str) -> str:
    """`&` of the characters that both have, `|` and `^` of all."""
    codes = [*map(ord, a)], [*map(ord, b)]
    if max(map(len, codes)) and max(map(max, filter(None, codes))) > 255:
        raise LightNetError(f"'{op}' of strings in ${{eval}} takes characters of one byte")
    length = (min if op == "&" else max)(map(len, codes))
    left, right = (c + [0] * (length - len(c)) for c in codes)
    return "".join(chr(_BITS[op](x, y)) for x, y in zip(left, right))


_BITS: dict[str, Callable[[int, int], int]] = {"&": operator.and_, "|": operator.or_, "^": operator.xor}


def perl_bits(op: str, a: Value, b: Value) -> Value:
    """`a & b`, `a | b` or `a ^ b`."""
    if _both_strings(a, b):
        return _by_characters(op, str(a), str(b))
    return _BITS[op](_unsigned(a), _unsigned(b))


def complement(value: Value) -> Value:
    """`~value`."""
    if isinstance(value, str) and not isinstance(value, _No):
        if any(ord(c) > 255 for c in value):
            raise LightNetError("'~' of a string in ${eval} takes characters of one byte")
        return "".join(chr(255 - ord(c)) for c in value)
    return _WORD ^ _unsigned(value)


def shifted(value: Value, by: Value) -> int:
    """`value << by`; a negative count shifts right, one beyond 63 gives 0."""
    count = perl_number(by)
    if isinstance(count, float):
        if math.isnan(count):
            raise LightNetError("a bit operator in ${eval} takes no infinite number")
        count = math.trunc(min(max(count, -64.0), 64.0))
    word = _unsigned(value)
    if abs(count) > 63:
        return 0
    return word << count & _WORD if count >= 0 else word >> -count
