"""The texts of NNVM attributes as values: a small grammar, read by hand and never evaluated.

    value := "(" [value ("," value)*] [","] ")" | "[" … "]" | atom
    atom  := None | True | False | number ("L" behind an integer: Python 2) | "text" | 'text' | anything else

Every writer spells them its own way: ``(3, 3)``, ``[3, 3]``, ``(3L, 3L)``, ``3``; ``True``, ``true``, ``1``. An atom
that is none of the others is a text (``relu``, ``NCHW``, ``<mxnet.initializer.Xavier object at 0x7f>``). Imports the
standard library only.
"""

from __future__ import annotations

import math
import re

#: Longest text that is read, and deepest nesting of tuples in it.
MAX_TEXT = 1 << 16
MAX_NESTING = 8

Attribute = None | bool | int | float | str | tuple["Attribute", ...]

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}L?")
_REAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?|[+-]?(?:inf|nan)", re.ASCII)
_WORDS: dict[str, bool | None] = {"None": None, "True": True, "true": True, "False": False, "false": False}
#: One piece of a tuple: a bracket, a comma, a quoted text, or anything else up to the next of them.
_PIECE = re.compile(r"""\s*(?:([()\[\],])|"([^"]*)"|'([^']*)'|([^()\[\],]+))""")
_CLOSING = {"(": ")", "[": "]"}


class AttributeText(ValueError):
    """A text that the grammar does not have, and why."""


def parse_attribute(text: str) -> Attribute:
    """The value that `text` spells. Raises `AttributeText` for brackets that do not fit and for texts beyond the
    limits."""
    if len(text) > MAX_TEXT:
        raise AttributeText(f"is longer than {MAX_TEXT} characters")
    bare = text.strip()
    if bare[:1] not in _CLOSING:
        return _atom(bare)
    pieces = [m.groups() for m in _PIECE.finditer(bare)]
    value, end = _tuple(pieces, 0, 1)
    if end != len(pieces):
        raise AttributeText("has more behind its closing bracket")
    return value


def _tuple(pieces: list[tuple], at: int, depth: int) -> tuple[tuple[Attribute, ...], int]:
    """The tuple whose opening bracket is piece `at`, and the index of what follows it."""
    if depth > MAX_NESTING:
        raise AttributeText(f"is nested deeper than {MAX_NESTING}")
    closing = _CLOSING[pieces[at][0]]
    values: list[Attribute] = []
    at += 1
    while at < len(pieces) and pieces[at][0] != closing:
        value: Attribute
        mark, double, single, bare = pieces[at]
        if mark in _CLOSING:
            value, at = _tuple(pieces, at, depth + 1)
        elif mark is not None:
            raise AttributeText(f"has '{mark}' where a value should stand")
        else:
            quoted = double if double is not None else single
            value, at = quoted if quoted is not None else _atom(bare.strip()), at + 1
        values.append(value)
        if at < len(pieces) and pieces[at][0] == ",":
            at += 1
        elif at < len(pieces) and (pieces[at][0] is None or pieces[at][0] in _CLOSING):
            raise AttributeText("lacks a comma between two values")
    if at >= len(pieces):
        raise AttributeText(f"lacks a '{closing}'")
    return tuple(values), at + 1


def _atom(text: str) -> Attribute:
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text.rstrip("L"))
    if _REAL.fullmatch(text) and len(text) <= 400:
        return float(text)
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    return text


def attribute_int(value: Attribute) -> int | None:
    """An integer: also a whole float, and a bool as 0 or 1; None for anything else."""
    if isinstance(value, bool | int):
        return int(value)
    return int(value) if isinstance(value, float) and math.isfinite(value) and value == int(value) else None


def as_bool(value: Attribute) -> bool | None:
    """A bool: also a number, by being 0 or not; None for anything else."""
    return bool(value) if isinstance(value, bool | int | float) else None


def attribute_float(value: Attribute) -> float | None:
    """A float, also of an integer; None for anything else."""
    return float(value) if isinstance(value, int | float) else None


def as_ints(value: Attribute) -> tuple[int, ...] | None:
    """A tuple of integers, of a tuple or of one integer alone; None for anything else."""
    found = [attribute_int(v) for v in (value if isinstance(value, tuple) else (value,))]
    return None if any(v is None for v in found) else tuple(v for v in found if v is not None)
