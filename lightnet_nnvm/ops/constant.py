"""Constants, and what an op makes of the type or the shape of a tensor alone, of MXNet and NNVM. See
`lightnet_nnvm/node.py`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lightnet.frontends import composites
from lightnet.frontends.graph import MAX_MADE, Value
from lightnet.runtime.dtypes import DType
from lightnet_nnvm.node import Lazy, Node, nnvm_op


def filled(n: Node, dims: Sequence[int], dtype: DType, value: float) -> Value | Lazy:
    """A constant of one value; of open shape where a dim is 0, which in MXNet's classic shapes is an unknown one."""

    def make(dims: tuple[int, ...], dtype: DType) -> Value:
        return composites.full(n.g, dims, value, dtype)

    if 0 in dims or not dims:
        return Lazy(n.node.name, tuple(dims) or None, dtype, make)
    return make(tuple(dims), dtype)


@nnvm_op("_zeros", "_ones", "zeros", "ones", "_zeros_without_dtype")
def zeros_or_ones(n: Node) -> Value | Lazy:
    return filled(n, n.ints("shape", ()), n.dtype("dtype", "f32"), int("ones" in n.op))


@nnvm_op("_full", "full")
def full(n: Node) -> Value | Lazy:
    value = n.float("value", None)
    return filled(n, n.ints("shape", ()), n.dtype("dtype", "f32"), n.float("fill_value") if value is None else value)


@nnvm_op("zeros_like", "ones_like", "full_like")
def like(n: Node, x: Value) -> Value:
    value = n.float("fill_value") if n.op == "full_like" else int(n.op == "ones_like")
    return composites.full(n.g, x.dims, value, x.dtype)


@nnvm_op("_arange", "arange")
def arange(n: Node) -> Value:
    """start, start + step, … below stop (0 to start where there is no stop), each `repeat` times."""
    start, stop, step, times = n.float("start", 0.0), n.float("stop", None), n.float("step", 1.0), n.int("repeat", 1)
    if stop is None:
        if n.bool("infer_range", False):
            n.unsupported("a range whose length is inferred")
        start, stop = 0.0, start
    return _range(n, start, stop, step, times, n.dtype("dtype", "f32"))


def _range(n: Node, start: float, stop: float, step: float, times: int, dtype: DType) -> Value:
    count = (stop - start) / step if step else float("inf")
    if not count <= MAX_MADE or times < 1:
        n.fail(f"no range from {start} to {stop} by {step}, {times} times each, is possible")
    length = max(0, int(np.ceil(count)))
    n.bounded(length * times)
    return n.g.constant(np.repeat(start + step * np.arange(length), times), dtype)


@nnvm_op("_linspace")
def linspace(n: Node) -> Value:
    count, endpoint = n.bounded(n.int("num")), n.bool("endpoint", True)
    return n.g.constant(
        np.linspace(n.float("start"), n.float("stop"), count, endpoint=endpoint), n.dtype("dtype", "f32")
    )


@nnvm_op("_eye")
def eye(n: Node) -> Value:
    rows, columns = n.bounded(n.int("N")), n.bounded(n.int("M", 0))
    n.bounded(rows * (columns or rows))
    shift = max(-rows, min(n.int("k", 0), columns or rows))
    return n.g.constant(np.eye(rows, columns or rows, shift), n.dtype("dtype", "f32"))


@nnvm_op("_contrib_arange_like")
def arange_like(n: Node, x: Value) -> Value:
    start, step, times = n.float("start", 0.0), n.float("step", 1.0), n.int("repeat", 1)
    axis = n.int("axis", None)
    count = n.bounded(x.len if axis is None else x.dims[n.axis(axis, x.ndim)])
    times = min(max(times, 1), max(count, 1))
    values = np.repeat(start + step * np.arange(-(-count // times)), times)[:count]
    return n.g.constant(values if axis is not None else values.reshape(x.dims), x.dtype)


@nnvm_op("shape_array", "size_array")
def shape_array(n: Node, x: Value) -> Value:
    return n.g.constant(np.asarray(x.dims if n.op == "shape_array" else [x.len]), "i64")


@nnvm_op("Cast", "cast", "amp_cast")
def cast(n: Node, x: Value) -> Value:
    if not n.has("dtype"):
        n.fail("needs the attribute 'dtype'")
    return n.g.cast(x, n.dtype("dtype", x.dtype))


@nnvm_op("amp_multicast")
def amp_multicast(n: Node, *xs: Value) -> tuple[Value, ...]:
    """All in the widest float type among them (the narrowest with `cast_narrow`)."""
    pick = min if n.bool("cast_narrow", False) else max
    wanted = pick((x.dtype for x in xs), key=lambda d: d.size)
    return tuple(n.g.cast(x, wanted) for x in xs)
