"""n-grams of ONNX, in rows of integers. Imports the table of handlers and the composites."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from lightnet.frontends.composites import concat, cut, full, unsqueeze
from lightnet.frontends.graph import Value
from lightnet.frontends.onnx.node import Node, onnx_op

#: Elements of the table that says where the count of an n-gram goes.
MAX_TABLE = 1 << 24
#: Comparisons with a whole column of n-grams, each an op of the network.
MAX_PASSES = 4096


@onnx_op("TfIdfVectorizer")
def tf_idf_vectorizer(n: Node, x: Value) -> Value:
    """The counts of the n-grams of a pool in rows of integers [C] or [N, C]: [outputs] or [N, outputs], as f32.

    Between neighbours there may be 0 to `max_skip_count` others. As ONNX says, and ONNX Runtime does, a weight belongs
    to an n-gram; ONNX's reference evaluator takes it for that of an output.
    """
    g, pool, places = n.g, n.ints("pool_int64s", ()), n.ints("ngram_indexes")
    if n.has("pool_strings") or x.dtype.name not in ("i32", "i64"):
        n.unsupported("n-grams of anything but i32 and i64")
    if x.ndim not in (1, 2) or not places or min(places) < 0:
        n.fail(f"its input should be [C] or [N, C], but is {x.spec}; its ngram_indexes are {list(places[:8])}")
    outputs, rows = max(places) + 1, x if x.ndim == 2 else unsqueeze(g, x, [0])
    if outputs * len(places) > MAX_TABLE:
        n.unsupported(f"{len(places)} n-grams and {outputs} outputs")
    counts: list[Value] = []
    columns: list[tuple[int, float]] = []  # of each n-gram that counts: its output, and its weight there
    weights = _weights(n, len(places))
    for size, (first, grams) in enumerate(_pools(n, pool, len(places)), 1):
        if not n.int("min_gram_length") <= size <= n.int("max_gram_length") or not len(grams):
            continue
        own = {tuple(gram): i for i, gram in enumerate(grams.tolist(), first)}
        counts.append(_counts(n, rows, np.array(list(own)), n.int("max_skip_count") if size > 1 else 0))
        columns += [(places[i], weights[i]) for i in own.values()]
    table = np.zeros((len(columns), outputs), np.float32)
    for row, (place, weight) in zip(table, columns):
        row[place] = weight
    if counts:
        found = concat(g, counts, 1)
        if n.string("mode") == "IDF":
            found = g.cast(g.op("less", g.scalar(0, "f32"), found), "f32")
        result = g.op("matmul", found, g.constant(table))
    else:
        result = full(g, (rows.dims[0], outputs), 0, "f32")
    return g.reshape(result, (*x.dims[:-1], outputs))


def _pools(n: Node, pool: tuple[int, ...], count: int) -> list[tuple[int, np.ndarray]]:
    """For each length of n-grams: the number of the first one, and an array [n-grams, length]."""
    starts = (*n.ints("ngram_counts"), len(pool))
    found, first = [], 0
    for size, (begin, end) in enumerate(pairwise(starts), 1):
        if not 0 <= begin <= end or (end - begin) % size:
            n.fail(f"ngram_counts {list(starts[:-1])} do not divide its pool of {len(pool)} elements into n-grams")
        found.append((first, np.array(pool[begin:end], np.int64).reshape(-1, size)))
        first += (end - begin) // size
    if first != count:
        n.fail(f"it has {count} ngram_indexes, and its pool {first} n-grams")
    return found


def _counts(n: Node, rows: Value, grams: np.ndarray, skips: int) -> Value:
    """The counts of each of `grams` [G, size] in each row: f32 [N, G]."""
    g, (count, size) = n.g, grams.shape
    total = full(g, (rows.dims[0], count), 0, "f32")
    distances = min(skips + 1, max((rows.dims[1] - 1) // max(size - 1, 1), 1))
    if distances * size > MAX_PASSES:
        n.unsupported(f"n-grams of {size} with up to {skips} skips: more than {MAX_PASSES} passes over its input")
    for distance in range(1, distances + 1):
        windows = rows.dims[1] - (size - 1) * distance
        if windows < 1:
            break
        hits = g.constant(np.ones(count, bool))
        for k in range(size):
            tokens = unsqueeze(g, cut(g, rows, 1, k * distance, windows), [2])
            hits = g.op("bit_and", hits, g.op("equal", tokens, g.constant(grams[:, k], rows.dtype)))
        found = g.op("reduce_sum", g.cast(hits, "f32"), axes=(1,))
        total = g.op("add", total, g.reshape(found, total.dims))
    return total


def _weights(n: Node, count: int) -> Sequence[float]:
    """The weight of each of `count` n-grams: 1 of counts ("TF"); of what occurs ("IDF") and of counts ("TFIDF") that
    which is given."""
    if (mode := n.string("mode")) not in ("TF", "IDF", "TFIDF"):
        n.fail(f"its mode is '{mode}'; there are TF, IDF and TFIDF")
    weights = n.floats("weights", ())
    if mode == "TF" or not weights:
        return (1.0,) * count
    if len(weights) < count:
        n.fail(f"it has {len(weights)} weights for {count} n-grams")
    return weights
