"""Ops on text: what ONNX calls StringConcat, StringSplit, StringNormalizer, RegexFullMatch, and comparing and casting
text.

Source: the operator documentation of ONNX; where it is silent, ONNX Runtime.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from lightnet.runtime.dtypes import BY_NAME, DType, convert
from lightnet.runtime.host.regex import Regex
from lightnet.runtime.host.steps import TEXT, TEXT_DTYPE, HostStep, each, host_op, texts


def _lengths(x: np.ndarray) -> np.ndarray:
    return each(len, x, np.int64)


@host_op("StringConcat", TEXT, writes=True)
def string_concat(step: HostStep, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x and behind it y, element by element, with broadcasting."""
    dims = step.room(np.broadcast_shapes(x.shape, y.shape))
    step.characters(int(np.add(_lengths(x), _lengths(y)).sum()))  # of their broadcast
    return np.add(x, y, out=np.empty(dims, TEXT_DTYPE))


@host_op("StringSplit", (TEXT, "i64"), opened=True, shapes=lambda step, x: ((*x, None), x))
def string_split(step: HostStep, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The parts of each element [..., most parts], empty ones behind them; and how many there are. Without a delimiter,
    blanks part them."""
    delimiter, most = step.text("delimiter", "") or None, step.integer("maxsplit", -1)
    for value in x.reshape(-1):
        step.room((value.count(delimiter) + 1 if delimiter else len(value) // 2 + 1,))
    parts = [value.split(delimiter, most) for value in x.reshape(-1)]
    counts = np.array([len(p) for p in parts], np.int64)
    wide = int(counts.max(initial=0))
    dims = step.room((*x.shape, wide))
    found = texts([word for p in parts for word in (*p, *[""] * (wide - len(p)))], dims)
    return found, counts.reshape(x.shape)


def _simple(value: str, upper: bool) -> str:
    """`value` in one case, character by character: those that become several stay."""
    changed = value.upper() if upper else value.lower()
    if len(changed) == len(value) and value.isascii():
        return changed
    return "".join(c if len(d := c.upper() if upper else c.lower()) != 1 else d for c in value)


def _action(step: HostStep) -> str:
    action = step.text("case_change_action", "NONE")
    if action not in ("NONE", "LOWER", "UPPER"):
        step.fail(f"its case_change_action is '{action:.40}'; there are NONE, LOWER and UPPER")
    return action


@host_op("StringNormalizer", TEXT, opened=True, shapes=lambda step, x: ((*x[:-1], None),), prepare=_action)
def string_normalizer(step: HostStep, x: np.ndarray) -> np.ndarray:
    """The elements of [C] or [1, C] that are no stop words, in one case; one empty element where none is left."""
    action, sensitive = _action(step), step.integer("is_case_sensitive", 0)
    if x.ndim not in (1, 2) or (x.ndim == 2 and x.shape[0] != 1):
        step.fail(f"its input should be [C] or [1, C], but is {list(x.shape)}")
    stop = set(step.list("stopwords", str, ()))
    if not sensitive:
        stop = {_simple(word, False) for word in stop}
    kept = [v for v in x.reshape(-1) if (v if sensitive else _simple(v, False)) not in stop] if stop else x.reshape(-1)
    if action != "NONE":
        kept = [_simple(v, action == "UPPER") for v in kept]
    words = texts(kept if len(kept) else [""])
    return words.reshape((1, -1)) if x.ndim == 2 else words


@host_op("RegexFullMatch", "i1", prepare=lambda step: Regex.of(step.text("pattern")))
def regex_full_match(step: HostStep, x: np.ndarray) -> np.ndarray:
    """Return whether all of each element matches the pattern, in RE2's syntax."""
    matched = Regex.of(step.text("pattern")).matches(*x.reshape(-1))
    return np.array(matched, np.bool_).reshape(x.shape)


@host_op("Equal", "i1")
def equal(step: HostStep, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    dims = step.room(np.broadcast_shapes(x.shape, y.shape))
    return np.equal(x, y, out=np.empty(dims, np.bool_))


def _cast_to(step: HostStep, inputs: Any) -> tuple[str, ...]:
    return (step.text("to"),)


#: What a float is as text: ONNX says that it reads back as the same number, and no more; this is how ONNX Runtime
#: writes it.
_SPECIAL = {"nan": "NaN", "inf": "INF", "-inf": "-INF"}
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_WORDS = {"nan": "nan", "+nan": "nan", "-nan": "nan", "inf": "inf", "+inf": "inf", "-inf": "-inf",
          "infinity": "inf", "+infinity": "inf", "-infinity": "-inf"}  # fmt: skip


def _written(value: Any) -> str:
    if isinstance(value, bool | np.bool_):
        return "1" if value else "0"
    if isinstance(value, np.floating):
        text = f"{float(value):.{9 if value.dtype.itemsize <= 4 else 17}g}"
        shorter = f"{float(value):.{8 if value.dtype.itemsize <= 4 else 16}g}"
        text = shorter if value.dtype.type(shorter) == value else text
        return _SPECIAL.get(text, text)
    return str(value)


@host_op("Cast", _cast_to)
def cast(step: HostStep, x: np.ndarray) -> np.ndarray:
    """Numbers as text, and text as numbers. Raises LightNetError for text that is none."""
    to = step.text("to")
    if to == TEXT:
        return x if x.dtype == TEXT_DTYPE else each(_written, x)
    if to not in BY_NAME or BY_NAME[to].is_stored:
        step.fail(f"there is no cast to '{to:.40}'")
    dtype = BY_NAME[to]
    if x.dtype != TEXT_DTYPE:
        return convert(x, dtype)
    if dtype.is_float:
        return each(lambda v: read_number(step, v), x, np.float64).astype(dtype.np)
    return each(lambda v: read_integer(step, v, dtype), x, dtype.np)


def read_integer(step: HostStep, value: str, dtype: DType) -> int:
    """The integer (or bool) that a text is. Raises LightNetError where it is none of the type."""
    low, high = (0, 1) if dtype.kind == "bool" else (int(np.iinfo(dtype.np).min), int(np.iinfo(dtype.np).max))
    if not re.fullmatch(r"[+-]?[0-9]{1,40}", value) or not low <= int(value) <= high:
        step.fail(f"'{value:.40}' is no {dtype}", "host.number")
    return int(value)


def read_number(step: HostStep, value: str) -> float:
    """The number that a text is. Raises LightNetError where it is none."""
    if (word := _WORDS.get(value.lower())) is not None:
        return float(word)
    if len(value) > 400 or not _NUMBER.fullmatch(value):
        step.fail(f"'{value:.40}' is no number", "host.number")
    return float(value)
