"""Support vector machines of ai.onnx.ml.

A classifier of k classes has a decision for each pair of them, a vote of each for one of the two, and (where it was
fitted for that) a probability of each class that agrees best with those of the pairs. Source: ONNX-ML's operators and
ONNX Runtime's kernels; Wu, Lin and Weng, "Probability estimates for multi-class classification by pairwise coupling",
2004, whose second method that is. Imports the composites and the table of handlers.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from lightnet.frontends.composites import concat, cut
from lightnet.frontends.graph import Value
from lightnet.frontends.onnx.node import Node, onnx_op
from lightnet_ml.scores import ML, class_count, class_labels_of, products, rows_of, transformed

#: The nearest that a probability of a pair comes to 0 and 1.
LEAST = 1e-7
#: Classes whose probabilities are coupled: a few ops each, on a matrix of them for each row.
MAX_CLASSES = 128


def _kernel(n: Node, x: Value, vectors: np.ndarray) -> Value:
    """k(x, v) of rows and support vectors, [N, vectors], in the type of both."""
    g, kind = n.g, n.string("kernel_type", "LINEAR")
    gamma, offset, degree = (*n.floats("kernel_params", ()), 0.0, 0.0, 0.0)[:3]
    product = g.op("matmul", x, g.constant(np.ascontiguousarray(vectors.T)))
    if kind == "LINEAR":
        return product
    if kind == "RBF":  # |x - v|^2 = |x|^2 + |v|^2 - 2 x v
        squares = g.op("reduce_sum", g.op("mul", x, x), axes=(1,))
        own = (vectors.astype(np.float64) ** 2).sum(1).astype(vectors.dtype)
        distance = g.op("sub", g.op("add", squares, g.constant(own)), g.op("mul", product, g.scalar(2, x.dtype)))
        distance = g.op("maximum", distance, g.scalar(0, x.dtype))
        return g.op("exp", g.op("mul", distance, g.scalar(-gamma, x.dtype)))
    number = g.op("add", g.op("mul", product, g.scalar(gamma, x.dtype)), g.scalar(offset, x.dtype))
    if kind == "SIGMOID":
        return g.op("tanh", number)
    if kind == "POLY":
        return g.op("pow", number, g.scalar(degree, x.dtype))
    return n.fail(f"its kernel_type is {kind}")


@onnx_op("SVMRegressor", domain=ML)
def svm_regressor(n: Node, x: Value) -> Value:
    """Kernels of the support vectors, weighted, plus rho; of one class, its sign."""
    g, x, count = n.g, rows_of(n, x), n.int("n_supports", 0)
    weights, rho = np.array(n.floats("coefficients"), np.float32), n.floats("rho", (0.0,))
    if count:
        vectors = np.array(n.floats("support_vectors"), np.float32)
        if len(vectors) != count * x.dims[1] or len(weights) != count:
            n.fail(f"its {count} support vectors should have {x.dims[1]} features and a coefficient each")
        found = g.op("matmul", _kernel(n, x, vectors.reshape(count, -1)), g.constant(weights.reshape(-1, 1)))
    else:
        found = _kernel(n, x, weights.reshape(1, -1))
    y = g.op("add", found, g.scalar(rho[0], "f32"))
    if n.int("one_class", 0):
        one = g.scalar(1, "f32")
        y = g.op("where", g.op("less", g.scalar(0, "f32"), y), one, g.op("neg", one))
    return transformed(n, y, n.string("post_transform", "NONE"))


@onnx_op("SVMClassifier", domain=ML)
def svm_classifier(n: Node, x: Value) -> tuple[Value, Value]:
    """Labels [N], and scores: probabilities of the classes [N, classes], or decisions of the pairs of classes [N,
    pairs] (of two classes, one for each), or linear scores [N, classes]."""
    x, count, name = rows_of(n, x), max(class_count(n), 1), n.string("post_transform", "NONE")
    per_class = n.ints("vectors_per_class", ())
    if not sum(per_class):
        return _linear(n, x, count, name)
    if len(per_class) != count or min(per_class) < 0:
        n.fail(f"its vectors_per_class {list(per_class[:8])} should be one number for each of {count} classes")
    decisions = _decisions(n, x, per_class)
    index = _most_votes(n, decisions, count)
    if n.floats("prob_a", ()):
        return class_labels_of(n, index), transformed(n, _probabilities(n, decisions, count), name)
    if decisions.dims[1] == 1:
        decisions = concat(n.g, [n.g.op("neg", decisions), decisions], 1)
    return class_labels_of(n, index), transformed(n, decisions, name)


def _linear(n: Node, x: Value, count: int, name: str) -> tuple[Value, Value]:
    """Without support vectors: a product for each class."""
    y = n.g.op("add", products(n, x, count), n.g.scalar((*n.floats("rho", ()), 0.0)[0], "f32"))
    return class_labels_of(n, n.g.reshape(n.g.op("argmax", y, axis=1), y.dims[:1])), transformed(n, y, name)


def _decisions(n: Node, x: Value, per_class: tuple[int, ...]) -> Value:
    """[N, pairs]: kernels of the vectors of both classes of a pair, weighted, plus its rho. In f64, since the weights
    of such a sum may be 100,000 times its size."""
    g, count, total = n.g, len(per_class), sum(per_class)
    vectors = np.array(n.floats("support_vectors"), np.float32)
    weights = np.array(n.floats("coefficients"), np.float32)
    rho = np.array(n.floats("rho"), np.float32)
    pairs = list(combinations(range(count), 2))
    if len(vectors) != total * x.dims[1] or len(weights) != total * (count - 1) or len(rho) != len(pairs):
        n.fail(
            f"its {total} support vectors of {count} classes need {x.dims[1]} features and {count - 1} coefficients "
            f"each, and {len(pairs)} rho"
        )
    weights, ends = weights.reshape(count - 1, total), np.cumsum(per_class)
    g.bounded(total * len(pairs), "the weights of support vectors")
    table = np.zeros((total, len(pairs)))
    for k, (i, j) in enumerate(pairs):
        for own, other in ((i, j - 1), (j, i)):
            mine = slice(ends[own] - per_class[own], ends[own])
            table[mine, k] = weights[other, mine]
    kernels = _kernel(n, g.cast(x, "f64"), vectors.reshape(total, -1).astype(np.float64))
    return g.cast(g.op("add", g.op("matmul", kernels, g.constant(table)), g.constant(rho.astype(np.float64))), "f32")


def _most_votes(n: Node, decisions: Value, count: int) -> Value:
    """The class that most pairs are for, the first of several: [N], i64."""
    g, pairs = n.g, list(combinations(range(count), 2))
    first, second = (np.zeros((len(pairs), count), np.float32) for _ in range(2))
    for k, (i, j) in enumerate(pairs):
        first[k, i] = second[k, j] = 1
    # A pair is for its second class, or else moves the vote to its first.
    moved = g.op("matmul", g.cast(g.op("less", g.scalar(0, "f32"), decisions), "f32"), g.constant(first - second))
    votes = g.op("add", moved, g.constant(second.sum(0)))
    return g.reshape(g.op("argmax", votes, axis=1), decisions.dims[:1])


def _probabilities(n: Node, decisions: Value, count: int) -> Value:
    """[N, classes]: the p of sum 1 that has the least sum of (r_ji p_i - r_ij p_j)^2 over the pairs, r_ij being the
    pair's probability of i.

    With Q the matrix of that form, (Q + 1 1^T) p is a multiple of 1, and the matrix is positive definite: Gauss and
    Jordan's elimination needs no other pivots than those of the diagonal."""
    g, pairs, batch = n.g, list(combinations(range(count), 2)), decisions.dims[0]
    a, b = (np.array(n.floats(f"prob_{k}"), np.float32) for k in "ab")
    if len(a) != len(pairs) or len(b) != len(pairs):
        n.fail(f"its {len(a)} prob_a and {len(b)} prob_b should be one for each of {len(pairs)} pairs")
    if count > MAX_CLASSES:
        n.unsupported(f"coupled probabilities of {count} classes: more than {MAX_CLASSES}")
    for_first = g.op("sigmoid", g.op("neg", g.op("add", g.op("mul", decisions, g.constant(a)), g.constant(b))))
    for_first = g.op("minimum", g.op("maximum", for_first, g.scalar(LEAST, "f32")), g.scalar(1 - LEAST, "f32"))
    if count == 2:
        return concat(g, [for_first, g.op("sub", g.scalar(1, "f32"), for_first)], 1)
    r = g.cast(_by_pairs(n, for_first, count), "f64")
    own = g.op("mul", g.op("reduce_sum", g.op("mul", r, r), axes=(1,)), g.constant(np.eye(count)[None]))
    q = g.op("sub", own, g.op("mul", r, g.transpose(r, (0, 2, 1))))
    system = concat(g, [g.op("add", q, g.scalar(1, "f64")), g.constant(np.ones((batch, count, 1)))], 2)
    for t in range(count):
        row = cut(g, system, 1, t, 1)
        row = g.op("div", row, cut(g, row, 2, t, 1))
        factor = g.op("sub", cut(g, system, 2, t, 1), g.constant(np.eye(count)[None, :, t : t + 1]))
        system = g.op("sub", system, g.op("mul", factor, row))
    p = g.reshape(cut(g, system, 2, count, 1), (batch, count))
    return g.cast(g.op("div", p, g.op("reduce_sum", p, axes=(1,))), "f32")


def _by_pairs(n: Node, for_first: Value, count: int) -> Value:
    """r [N, classes, classes] of the probabilities of the first class of each pair [N, pairs], 0 on the diagonal."""
    g, pairs = n.g, list(combinations(range(count), 2))
    at, back = (np.zeros((len(pairs), count * count), np.float32) for _ in range(2))
    for k, (i, j) in enumerate(pairs):
        at[k, i * count + j] = back[k, j * count + i] = 1
    flat = g.op("add", g.op("matmul", for_first, g.constant(at - back)), g.constant(back.sum(0)))
    return g.reshape(flat, (for_first.dims[0], count, count))
