"""ONNX's ops that draw random numbers: they follow from a seed that is given when a model is read
(`frontends/random.py`). Imports the composites and the table of handlers."""

from __future__ import annotations

from lightnet.frontends.composites import cut, unsqueeze
from lightnet.frontends.graph import Value
from lightnet.frontends.onnx.node import Node, onnx_op
from lightnet.runtime.dtypes import BY_NAME, DType


@onnx_op("RandomNormal", "RandomUniform")
def random(n: Node) -> Value:
    return _drawn(n, n.ints("shape"), n.element_type("dtype") or BY_NAME["f32"])


@onnx_op("RandomNormalLike", "RandomUniformLike")
def random_like(n: Node, x: Value) -> Value:
    return _drawn(n, x.dims, n.element_type("dtype") or x.dtype)


def _drawn(n: Node, dims: tuple[int, ...], dtype: DType) -> Value:
    """Of a mean and deviation, or between two bounds, the upper of which is left out (but for rounding to a short
    float)."""
    if not dtype.is_float:
        n.fail(f"it draws floats, but its dtype is {dtype}")
    g, wide, own = n.g, "f64" if dtype.name == "f64" else "f32", n.float("seed", None)
    if n.op_type.startswith("RandomNormal"):
        number, scale, least = (
            n.draws().normal(dims, wide, own),
            n.float("scale", 1.0),
            n.float("mean", 0.0),
        )
    else:
        low, high = n.float("low", 0.0), n.float("high", 1.0)
        number, scale, least = n.draws().uniform(dims, wide, own), high - low, low
    number = number if scale == 1 else g.op("mul", number, g.scalar(scale, wide))
    number = number if least == 0 else g.op("add", number, g.scalar(least, wide))
    return g.cast(number, dtype)


@onnx_op("Bernoulli")
def bernoulli(n: Node, probability: Value) -> Value:
    """1 with each element's probability, else 0."""
    if not probability.dtype.is_float:
        n.fail(f"its probabilities are {probability.spec}, which are no floats")
    wide = "f64" if probability.dtype.name == "f64" else "f32"
    number = n.draws().uniform(probability.dims, wide, n.float("seed", None))
    hit = n.g.op("less", number, n.g.cast(probability, wide))
    return n.g.cast(hit, n.element_type("dtype") or probability.dtype)


@onnx_op("Multinomial")
def multinomial(n: Node, x: Value) -> Value:
    """`sample_size` classes for each row of logarithms of probabilities, which need not sum to 1."""
    if x.ndim != 2 or not x.dims[1]:
        n.fail(f"its logarithms of probabilities should be [batch, classes], but are {x.spec}")
    g, (batch, classes) = n.g, x.dims
    x = g.cast(x, "f64" if x.dtype.name == "f64" else "f32")
    count = g.bounded(n.int("sample_size", 1), "a sample")
    weight = g.op("exp", g.op("sub", x, g.op("reduce_max", x, axes=(1,))))
    below = g.op("cumsum", weight, axis=1)
    number = n.draws().uniform((batch, count), x.dtype.name, n.float("seed", None))
    goal = g.op("mul", number, cut(g, below, 1, classes - 1, 1))
    passed = g.cast(g.op("less_equal", unsqueeze(g, below, [1]), unsqueeze(g, goal, [2])), "i32")
    index = g.reshape(g.op("reduce_sum", passed, axes=(2,)), (batch, count))
    index = g.op("minimum", index, g.scalar(classes - 1, "i32"))  # where rounding leaves nothing above
    return g.cast(index, n.element_type("dtype") or BY_NAME["i32"])
