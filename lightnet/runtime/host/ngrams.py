"""The counts of n-grams of words: ONNX's TfIdfVectorizer, on text.

On integers it is a part of the network (`frontends/onnx/ops/text.py`).
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from lightnet.runtime.host.steps import Dims, HostStep, host_op

#: Looking words up: at most so many times.
MAX_WORK = 1 << 28


def _shapes(step: HostStep, x: Dims) -> tuple[Dims, ...]:
    return ((*x[:-1], _outputs(step)),)


def _outputs(step: HostStep) -> int:
    """The number of outputs of a row."""
    places = step.list("ngram_indexes", int)
    if not places or min(places) < 0:
        step.fail(f"its ngram_indexes are {list(places[:8])}")
    return step.room((max(places) + 1,))[0]


@lru_cache(16)
def _vectorizer(step: HostStep) -> _Vectorizer:
    return _Vectorizer(step)


@host_op("TfIdfVectorizer", "f32", shapes=_shapes, prepare=_vectorizer)
def tf_idf_vectorizer(step: HostStep, x: np.ndarray) -> np.ndarray:
    """Of rows of words [C] or [N, C], the counts, or weights, of the n-grams of its pool: [outputs] or [N, outputs].

    Between neighbours there may be 0 to `max_skip_count` others; single words are counted once. A weight belongs to an
    n-gram.
    """
    if x.ndim > 2:
        step.fail(f"its input should be [C] or [N, C], but is {list(x.shape)}")
    vectorizer = _vectorizer(step)  # made once of each step
    rows = x.reshape(1, -1) if x.ndim < 2 else x
    words = rows.shape[1]
    if rows.size * min(vectorizer.longest, words) * min(vectorizer.skips, words) > MAX_WORK:
        step.fail(
            f"{rows.size} words with n-grams of {vectorizer.longest} and {vectorizer.skips - 1} skips", "host.size"
        )
    found = np.zeros(step.room((len(rows), vectorizer.outputs)), np.float32)
    for row, result in zip(rows.tolist(), found):
        vectorizer.add(row, result)
    return found if x.ndim == 2 else found.reshape(-1)


class _Vectorizer:
    """The pool as a tree of words: each node has the number of its n-gram, under ``None``, and further words."""

    def __init__(self, step: HostStep):
        self.mode = step.text("mode")
        if self.mode not in ("TF", "IDF", "TFIDF"):
            step.fail(f"its mode is '{self.mode:.40}'; there are TF, IDF and TFIDF")
        pool, places = step.list("pool_strings", str), step.list("ngram_indexes", int)
        self.outputs = _outputs(step)
        self.skips = step.integer("max_skip_count") + 1
        self.shortest, self.longest = step.integer("min_gram_length"), step.integer("max_gram_length")
        if self.skips < 1 or not 1 <= self.shortest <= self.longest:
            step.fail(f"n-grams of {self.shortest} to {self.longest} words with {self.skips - 1} skips")
        weights = step.list("weights", (float, int), ())
        if weights and len(weights) < len(places):
            step.fail(f"it has {len(weights)} weights for {len(places)} n-grams")
        self.places = places
        self.weights = weights if self.mode != "TF" and weights else (1.0,) * len(places)
        self.tree: dict[Any, Any] = {}
        self._grow(step, pool, places)

    def _grow(self, step: HostStep, pool: Any, places: Any) -> None:
        starts, first = (*step.list("ngram_counts", int), len(pool)), 0
        for length, (begin, end) in enumerate(pairwise(starts), 1):
            if not 0 <= begin <= end <= len(pool) or (end - begin) % length:
                step.fail(f"ngram_counts {list(starts[:-1])} do not divide its pool of {len(pool)} words into n-grams")
            count = (end - begin) // length
            if first + count > len(places):
                step.fail(f"it has {len(places)} ngram_indexes for more n-grams")
            if self.shortest <= length <= self.longest:
                for k in range(count):
                    node = self.tree
                    for word in pool[begin + k * length : begin + (k + 1) * length]:
                        node = node.setdefault(word, {})
                    node[None] = first + k
            first += count

    def add(self, row: list[str], result: np.ndarray) -> None:
        """Add what the n-grams of a row come to to `result` [outputs]."""
        counts = self.counted(row)
        for gram, count in counts.items():
            result[self.places[gram]] += self.weights[gram] * (1 if self.mode == "IDF" else count)

    def counted(self, row: list[str]) -> Counter[int]:
        """The count of each n-gram in a row."""
        found: Counter[int] = Counter()
        for distance in range(1, min(self.skips, len(row)) + 1):
            for start in range(len(row)):
                node = self.tree
                for length, word in enumerate(row[start : start + self.longest * distance : distance], 1):
                    if (below := node.get(word)) is None:
                        break
                    node = below
                    if (gram := node.get(None)) is not None and (length > 1 or distance == 1):
                        found[gram] += 1
            if self.longest == 1:
                break
        return found
