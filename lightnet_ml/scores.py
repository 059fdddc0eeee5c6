"""The common part of classifiers and regressors of ai.onnx.ml: their scores, made probabilities, and their labels; and
the linear models.

Labels that are texts become their numbers in the list of labels, for a network has tensors of numbers only. Source: the
operator documentation of ONNX-ML, and what ONNX Runtime's kernels do of two classes with one score. Imports the
composites and the table of handlers.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from lightnet.frontends.composites import concat, cut
from lightnet.frontends.graph import Value
from lightnet.frontends.onnx.model import ML
from lightnet.frontends.onnx.node import Node, onnx_op

#: What is taken for zero by SOFTMAX_ZERO.
_ZERO = 1e-7
#: Of Winitzki's approximation of the inverse of erf, which ONNX Runtime uses.
_WINITZKI = 0.147


def needs_floats(n: Node, x: Value) -> Value:
    """Integers and short floats as f32."""
    return x if x.dtype.name in ("f32", "f64") else n.g.cast(x, "f32")


def rows_of(n: Node, x: Value) -> Value:
    """[N, features] as f32; a vector is one row."""
    if x.ndim not in (1, 2):
        n.fail(f"its input should be [rows, features], but is {x.spec}")
    return n.g.cast(n.g.reshape(x, (1, x.len)) if x.ndim == 1 else x, "f32")


def transformed(n: Node, y: Value, name: str) -> Value:
    """Scores [N, classes] under a `post_transform`."""
    g = n.g
    if name == "NONE":
        return y
    if name == "LOGISTIC":
        return g.op("sigmoid", y)
    if name == "SOFTMAX":
        return g.op("softmax", y, axis=1)
    if name == "SOFTMAX_ZERO":  # what is 0 stays 0
        e = g.op("exp", g.op("sub", y, g.op("reduce_max", y, axes=(1,))))
        e = g.op("where", g.op("less", g.scalar(_ZERO, y.dtype), g.op("abs", y)), e, g.scalar(0, y.dtype))
        total = g.op("reduce_sum", e, axes=(1,))
        return g.op("div", e, g.op("where", g.op("equal", total, g.scalar(0, y.dtype)), g.scalar(1, y.dtype), total))
    if name == "PROBIT":
        return _probit(n, y)
    return n.fail(f"its post_transform is {name}")


def _probit(n: Node, p: Value) -> Value:
    """sqrt(2) * erfinv(2 p - 1), as ONNX Runtime approximates it: Winitzki, "A handy approximation for the error
    function and its inverse", 2008."""
    g, t = n.g, p.dtype
    x = g.op("sub", g.op("mul", p, g.scalar(2, t)), g.scalar(1, t))
    log = g.op("log", g.op("mul", g.op("sub", g.scalar(1, t), x), g.op("add", g.scalar(1, t), x)))
    v = g.op("add", g.op("mul", log, g.scalar(0.5, t)), g.scalar(2 / (3.14159 * _WINITZKI), t))
    root = g.op("sqrt", g.op("sub", g.op("mul", v, v), g.op("mul", log, g.scalar(1 / _WINITZKI, t))))
    return g.op("mul", g.op("mul", g.op("sign", x), g.op("sqrt", g.op("sub", root, v))), g.scalar(sqrt(2), t))


def labelled(n: Node, y: Value, positive: bool) -> tuple[Value, Value]:
    """Labels [N], and scores [N, classes], of scores before their transform. One score of two classes is that of the
    second; with `positive`, it is a probability, and the class is the second's from one half on."""
    g, name = n.g, n.string("post_transform", "NONE")
    count = class_count(n)
    if y.dims[1] == 1 and count == 2:
        if positive:
            second = g.op("less", g.scalar(0.5, "f32"), y)
            both = concat(g, [g.op("sub", g.scalar(1, "f32"), y), y], 1)
        else:
            second = g.op("less", g.scalar(0, "f32"), y)
            both = concat(g, [g.op("neg", y), y], 1)
            both = g.op("sigmoid", both) if name == "LOGISTIC" else both
        index = g.cast(g.reshape(second, y.dims[:1]), "i64")
    elif positive:  # the second of two
        second = cut(g, y, 1, 1, 1)
        index = g.cast(g.reshape(g.op("less", g.scalar(0.5, "f32"), second), y.dims[:1]), "i64")
        both = transformed(n, y, name)
    else:
        if count and count != y.dims[1]:
            n.fail(f"it has {count} labels and {y.dims[1]} scores")
        index = g.reshape(g.op("argmax", y, axis=1), y.dims[:1])
        both = transformed(n, y, name)
    return class_labels_of(n, index), both


def class_count(n: Node) -> int:
    """The number of classes that have a label."""
    return len(labels_of(n)) or len(n.strings("classlabels_strings", ()))


def class_labels_of(n: Node, index: Value) -> Value:
    """The labels of classes by their numbers [N], i64; a text is its number."""
    labels = labels_of(n)
    if labels and labels != tuple(range(len(labels))):
        return n.g.op("take", n.g.constant(np.array(labels, np.int64)), index, axis=0)
    return index


def labels_of(n: Node) -> tuple[int, ...]:
    """The labels that are integers."""
    return n.ints("classlabels_int64s", ()) or n.ints("classlabels_ints", ())


# -- linear models -----------------------------------------------------------------------------------------------------


def products(n: Node, x: Value, count: int) -> Value:
    """Rows times `count` rows of coefficients: [N, count]."""
    weights = np.array(n.floats("coefficients"), np.float32)
    if len(weights) != count * x.dims[1]:
        n.fail(f"its {len(weights)} coefficients should be {count} x {x.dims[1]}")
    return n.g.op("matmul", x, n.g.constant(np.ascontiguousarray(weights.reshape(count, -1).T)))


def _linear(n: Node, x: Value, count: int) -> Value:
    y, bias = products(n, rows_of(n, x), count), np.array(n.floats("intercepts", ()), np.float32)
    if not len(bias):
        return y
    if len(bias) != count:
        n.fail(f"its {len(bias)} intercepts should be {count}")
    return n.g.op("add", y, n.g.constant(bias))


@onnx_op("LinearRegressor", domain=ML)
def linear_regressor(n: Node, x: Value) -> Value:
    return transformed(n, _linear(n, x, n.int("targets", 1)), n.string("post_transform", "NONE"))


@onnx_op("LinearClassifier", domain=ML)
def linear_classifier(n: Node, x: Value) -> tuple[Value, Value]:
    features = rows_of(n, x).dims[1]
    count = len(n.floats("coefficients")) // max(features, 1)
    return labelled(n, _linear(n, x, count), positive=False)
