"""Words and characters of texts: ONNX Runtime's Tokenizer (com.microsoft), which skl2onnx puts before each TF-IDF.

Source: ONNX Runtime's documentation of its contributed operators; where it is silent, ONNX Runtime. Patterns are RE2's,
of which the leftmost and then the longest match counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from lightnet.runtime.host.regex import Regex
from lightnet.runtime.host.steps import TEXT, HostStep, host_op, texts

#: What stands before and behind the tokens of a text, where `mark` asks for it.
START, END = "\x02", "\x03"


def _splitter(step: HostStep) -> Callable[[Sequence[str]], list[Sequence[str]]]:
    """The way in which a step parts texts: into characters, at separators, or else into what a pattern matches."""
    separators, pattern = step.list("separators", str, ()), step.text("tokenexp", "")
    least = step.integer("mincharnum")
    if not separators and not pattern:
        step.fail("it needs either separators or a tokenexp")
    by_character = list(separators) == [""] if separators else pattern == "."
    if least < 1 or (by_character and least > 1):
        step.fail(f"its mincharnum is {least}")
    if by_character:
        return lambda flat: [list(t) for t in flat]
    compiled = [Regex.of(p) for p in separators or (pattern,)]

    def matched(flat: Sequence[str]) -> list[Sequence[str]]:
        return [[t[i:k] for i, k in spans if k - i >= least] for t, spans in zip(flat, compiled[0].spans(*flat))]

    def parted(flat: Sequence[str]) -> list[Sequence[str]]:
        rows: list[Sequence[str]] = [[t] for t in flat]
        for separator in compiled:
            spans = iter(separator.spans(*(word for row in rows for word in row)))
            rows = [
                [part for word in row for part in _between(word, next(spans)) if len(part) >= least] for row in rows
            ]
        return rows

    return parted if separators else matched


def _between(word: str, spans: Sequence[tuple[int, int]]) -> list[str]:
    """The parts of a word between matches; an empty match takes the character behind it away."""
    parts, start = [], 0
    for i, k in spans:
        parts.append(word[start:i])
        start = max(k, i + 1)
    return [*parts, word[start:]]


@host_op("com.microsoft.Tokenizer", TEXT, opened=True, shapes=lambda step, x: ((*x, None),), prepare=_splitter)
def tokenizer(step: HostStep, x: np.ndarray) -> np.ndarray:
    """The tokens of each element of [C] or [N, C], along a new last axis, with the pad value behind them: [..., most
    tokens]. The marks are left out where no text has tokens."""
    if x.ndim not in (1, 2):
        step.fail(f"its input should be [C] or [N, C], but is {list(x.shape)}")
    split, pad, marked = _splitter(step), step.text("pad_value"), bool(step.integer("mark"))
    rows = split(x.reshape(-1).tolist()) if x.size else []
    if marked and any(rows):
        rows = [[START, *row, END] for row in rows]
    wide = max(map(len, rows), default=0)
    dims = step.room((*x.shape, wide))
    return texts([token for row in rows for token in (*row, *[pad] * (wide - len(row)))], dims)
