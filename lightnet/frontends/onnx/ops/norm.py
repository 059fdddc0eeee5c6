"""Normalisations and softmax of ONNX. Imports the composites and the table of handlers."""

from __future__ import annotations

from math import prod

from lightnet.frontends.composites import expand, moments, over_deviation
from lightnet.frontends.graph import Value
from lightnet.frontends.onnx.node import Node, onnx_op
from lightnet.frontends.onnx.pairs import SOFTMAXES


def _per_channel(n: Node, x: Value, vector: Value) -> Value:
    """[C] as it broadcasts against [N, C, ...]."""
    if vector.ndim != 1 or x.ndim < 2 or vector.len not in (1, x.dims[1]):
        n.fail(f"its parameters should have an element for each channel of {x.spec}, but one is {vector.spec}")
    return n.g.reshape(vector, (vector.len, *(1,) * (x.ndim - 2)))


def _affine(n: Node, x: Value, scale: Value | None, bias: Value | None) -> Value:
    """x * scale + bias, either of which may be absent."""
    x = x if scale is None else n.g.op("mul", x, n.g.cast(scale, x.dtype))
    return x if bias is None else n.g.op("add", x, n.g.cast(bias, x.dtype))


def _in(n: Node, x: Value, stash: int) -> Value:
    """`x` in the type that a `stash_type` asks for: f16 and bf16 are computed in f32 anyway."""
    return n.g.cast(x, "f64") if stash == 11 else x


# -- over a batch


@onnx_op("BatchNormalization")
def batch_normalization(n: Node, x: Value, scale: Value, bias: Value, mean: Value, var: Value) -> list[Value | None]:
    """With the given statistics or, in training mode, with those of the batch (which move the running ones)."""
    if n.opset < 9 and not n.int("spatial", 1):
        n.unsupported("statistics for each pixel (spatial = 0)")
    epsilon = n.float("epsilon", 1e-5)
    if n.opset >= 14 and n.int("training_mode", 0):
        return _training(n, x, scale, bias, mean, var, epsilon)
    g, params = n.g, (scale, bias, mean, var)
    channels = x.dims[1] if x.ndim > 1 else 1
    if any(v.dims != (channels,) for v in params):
        n.fail(f"its parameters should have an element for each channel of {x.spec}: {channels}")
    wide = all(v.dtype == x.dtype for v in params)
    y = x if wide else g.cast(x, "f32")
    rest = x.dims[2:]
    picture = (x.dims[0], channels, prod(rest[:-1]), rest[-1] if rest else 1)
    y = g.op("batchnorm", g.reshape(y, picture), *(g.cast(v, y.dtype) for v in params), epsilon=epsilon)
    return [g.cast(g.reshape(y, x.dims), x.dtype), *(None,) * 4]


def _training(
    n: Node, x: Value, scale: Value, bias: Value, mean: Value, var: Value, epsilon: float
) -> list[Value | None]:
    g, momentum = n.g, n.float("momentum", 0.9)
    if x.ndim < 2:
        n.fail(f"its input should be [N, C, ...], but is {x.spec}")
    axes = (0, *range(2, x.ndim))
    average, variance, centred = moments(g, x, axes)
    y = over_deviation(g, centred, variance, epsilon)
    y = _affine(n, y, _per_channel(n, x, scale), _per_channel(n, x, bias))

    def moved(old: Value, new: Value) -> Value:
        new = g.cast(g.reshape(new, old.dims), old.dtype)
        kept = g.op("mul", old, g.scalar(momentum, old.dtype))
        return g.op("add", kept, g.op("mul", new, g.scalar(1 - momentum, old.dtype)))

    return [y, moved(mean, average), moved(var, variance), None, None]


# -- over a tensor's own axes


@onnx_op("InstanceNormalization")
def instance_normalization(n: Node, x: Value, scale: Value, bias: Value) -> Value:
    """Of each channel of each element of the batch."""
    if x.ndim < 3:
        n.fail(f"its input should be [N, C, ...] with a spatial axis or more, but is {x.spec}")
    y = n.g.op("layernorm", x, axis=2, epsilon=n.float("epsilon", 1e-5))
    return _affine(n, y, _per_channel(n, x, scale), _per_channel(n, x, bias))


@onnx_op("GroupNormalization")
def group_normalization(n: Node, x: Value, scale: Value, bias: Value) -> Value:
    """Of each group of channels; before opset 21 a group has one scale and one bias."""
    g, groups = n.g, n.int("num_groups")
    if x.ndim < 3 or groups < 1 or x.dims[1] % groups:
        n.fail(f"its input {x.spec} should be [N, C, ...], where C is a multiple of num_groups {groups}")
    per_group = x.dims[1] // groups
    y = _in(n, g.reshape(x, (x.dims[0], groups, per_group * prod(x.dims[2:]))), n.int("stash_type", 1))
    y = g.reshape(g.cast(g.op("layernorm", y, axis=2, epsilon=n.float("epsilon", 1e-5)), x.dtype), x.dims)
    if n.opset < 21:
        scale, bias = (g.reshape(expand(g, g.reshape(v, (groups, 1)), (groups, per_group)), (x.dims[1],))
                       for v in (scale, bias))  # fmt: skip
    return _affine(n, y, _per_channel(n, x, scale), _per_channel(n, x, bias))


@onnx_op("LayerNormalization")
def layer_normalization(n: Node, x: Value, scale: Value, bias: Value | None = None) -> list[Value | None]:
    """Of the axes from `axis` on; and, where wanted, mean and 1 / deviation."""
    g, axis, epsilon = n.g, n.axis(n.int("axis", -1), x.ndim), n.float("epsilon", 1e-5)
    stash = n.int("stash_type", 1)
    y = g.cast(g.op("layernorm", _in(n, x, stash), axis=axis, epsilon=epsilon), x.dtype)
    y = _affine(n, y, scale, bias)
    if not (n.wants(1) or n.wants(2)):
        return [y, None, None]
    wide = g.cast(x, "f64" if stash == 11 or x.dtype.name == "f64" else "f32")
    mean, variance, _ = moments(g, wide, range(axis, x.ndim))
    inverse = g.op("reciprocal", g.op("sqrt", g.op("add", variance, g.scalar(epsilon, variance.dtype))))
    return [y, *(g.cast(v, "f64" if stash == 11 else "f32") for v in (mean, inverse))]


@onnx_op("RMSNormalization")
def rms_normalization(n: Node, x: Value, scale: Value) -> Value:
    """By the root of the mean square of the axes from `axis` on."""
    axis = n.axis(n.int("axis", -1), x.ndim)
    y = n.g.op("rmsnorm", _in(n, x, n.int("stash_type", 1)), axis=axis, epsilon=n.float("epsilon", 1e-5))
    return _affine(n, n.g.cast(y, x.dtype), scale, None)


@onnx_op("MeanVarianceNormalization")
def mean_variance_normalization(n: Node, x: Value) -> Value:
    """(x - mean) / (deviation + 1e-9) over `axes`."""
    g, axes = n.g, n.axes(n.ints("axes", (0, 2, 3)), x.ndim)
    _, variance, centred = moments(g, x, axes)
    return g.op("div", centred, g.op("add", g.op("sqrt", variance), g.scalar(1e-9, x.dtype)))


@onnx_op("LpNormalization")
def lp_normalization(n: Node, x: Value) -> Value:
    """x / norm along `axis`, and 0 where the norm is 0."""
    g, axis, p = n.g, n.axis(n.int("axis", -1), x.ndim), n.int("p", 2)
    if p not in (1, 2):
        n.fail(f"p is {p}, and should be 1 or 2")
    total = g.op("reduce_sum", g.op("abs", x) if p == 1 else g.op("mul", x, x), axes=(axis,))
    norm = total if p == 1 else g.op("sqrt", total)
    zero = g.scalar(0, x.dtype)
    return g.op("where", g.op("equal", norm, zero), zero, g.op("div", x, norm))


@onnx_op("LRN")
def lrn(n: Node, x: Value) -> Value:
    """By the squares of neighbouring channels."""
    return n.g.op("lrn", x, size=n.int("size"), alpha=n.float("alpha", 1e-4), beta=n.float("beta", 0.75),
                  bias=n.float("bias", 1.0))  # fmt: skip


# -- softmax


@onnx_op(*SOFTMAXES)
def softmax(n: Node, x: Value) -> Value:
    """Along an axis; before opset 13, over all axes from `axis` on as if they were one."""
    g, optype = n.g, SOFTMAXES[n.op_type]
    if n.opset >= 13:
        return g.op(optype, x, axis=n.axis(n.int("axis", -1), x.ndim)) if x.ndim else _of_one(n, x, optype)
    axis = n.axis(n.int("axis", 1), x.ndim) if n.int("axis", 1) != x.ndim else x.ndim
    if axis == x.ndim - 1:  # it is alone
        return g.op(optype, x, axis=axis)
    flat = g.reshape(x, (prod(x.dims[:axis]), prod(x.dims[axis:])))
    return g.reshape(g.op(optype, flat, axis=1), x.dims)


def _of_one(n: Node, x: Value, optype: str) -> Value:
    """Of a single number."""
    return n.g.reshape(n.g.op(optype, n.g.reshape(x, (1,)), axis=0), ())
