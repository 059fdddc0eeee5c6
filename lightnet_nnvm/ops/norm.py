"""Normalisations and softmaxes, of MXNet and NNVM. See `lightnet_nnvm/node.py`."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from lightnet.frontends import composites
from lightnet.frontends.graph import Value
from lightnet_nnvm.node import Lazy, Node, nnvm_op

Param = Value | Lazy

_STATES = ("moving_mean", "moving_var")


@nnvm_op("BatchNorm", "BatchNorm_v1", "_contrib_SyncBatchNorm", "CuDNNBatchNorm", params=(1, 2, 3, 4), aux=_STATES,
         outputs=("output", "mean", "var"))  # fmt: skip
def batch_norm_mxnet(n: Node, x: Value, gamma: Param, beta: Param, mean: Param, var: Param) -> tuple[Value, ...]:
    """`fix_gamma` (the default!) takes gamma as 1. The statistics are the moving ones: this is inference."""
    axis = n.axis(n.int("axis", 1), x.ndim)
    return _batch_norm(n, x, axis, n.float("eps", 1e-3), None if n.bool("fix_gamma", True) else gamma, beta, mean, var)


@nnvm_op("batch_norm", params=(1, 2, 3, 4))
def batch_norm(n: Node, x: Value, gamma: Param, beta: Param, mean: Param, var: Param) -> tuple[Value, ...]:
    axis = n.axis(n.int("axis", 1), x.ndim)
    gamma_or_one = gamma if n.bool("scale", True) else None
    beta_or_zero = beta if n.bool("center", True) else None
    return _batch_norm(n, x, axis, n.float("epsilon", 1e-5), gamma_or_one, beta_or_zero, mean, var)


def _batch_norm(n: Node, x: Value, axis: int, epsilon: float, gamma: Param | None, beta: Param | None, mean: Param,
                var: Param) -> tuple[Value, ...]:  # fmt: skip
    """Of a tensor of any rank, as one of [outer, channels, inner, 1]."""
    g, channels = n.g, (x.dims[axis],)
    scale = composites.full(g, channels, 1, x.dtype) if gamma is None else n.fixed(gamma, channels, x)
    offset = composites.full(g, channels, 0, x.dtype) if beta is None else n.fixed(beta, channels, x)
    means, variances = n.fixed(mean, channels, x), n.fixed(var, channels, x)
    plain = (
        x if x.ndim == 4 and axis == 1 else g.reshape(x, (prod(x.dims[:axis]), *channels, prod(x.dims[axis + 1 :]), 1))
    )
    y = g.op("batchnorm", plain, scale, offset, means, variances, epsilon=epsilon)
    return g.reshape(y, x.dims), means, variances


@nnvm_op("LayerNorm", "layer_norm", params=(1, 2), outputs=("output", "mean", "std"))
def layer_norm(n: Node, x: Value, gamma: Param, beta: Param) -> Value:
    axis = n.axis(n.int("axis", -1), x.ndim)
    if n.bool("output_mean_var", False):
        n.unsupported("output_mean_var")
    dims = tuple(d if i == axis else 1 for i, d in enumerate(x.dims))[axis:]
    y = _standardised(n, x, (axis,), n.float("eps", 1e-5))
    return _affine(n, y, gamma, beta, (x.dims[axis],), dims)


@nnvm_op("InstanceNorm", params=(1, 2))
def instance_norm(n: Node, x: Value, gamma: Param, beta: Param) -> Value:
    n.at_least(x, 3)
    y = _standardised(n, x, range(2, x.ndim), n.float("eps", 1e-3))
    return _affine(n, y, gamma, beta, (x.dims[1],), (x.dims[1], *(1,) * (x.ndim - 2)))


@nnvm_op("GroupNorm", params=(1, 2), outputs=("output", "mean", "std"))
def group_norm(n: Node, x: Value, gamma: Param, beta: Param) -> Value:
    groups = n.int("num_groups", 1)
    if x.ndim < 2 or groups < 1 or x.dims[1] % groups:
        n.fail(f"{list(x.dims)} cannot be split into {groups} groups of channels")
    grouped = n.g.reshape(x, (x.dims[0], groups, -(-x.len // max(x.dims[0] * groups, 1))))
    y = n.g.reshape(_standardised(n, grouped, (2,), n.float("eps", 1e-5)), x.dims)
    return _affine(n, y, gamma, beta, (x.dims[1],), (x.dims[1], *(1,) * (x.ndim - 2)))


def _standardised(n: Node, x: Value, axes: Sequence[int], epsilon: float) -> Value:
    """(x - mean) / sqrt(var + epsilon) over `axes`."""
    g, axes = n.g, tuple(axes)
    if axes == tuple(range(axes[0], x.ndim)):
        return g.op("layernorm", x, axis=axes[0], epsilon=epsilon)
    _, variance, centred = composites.moments(g, x, axes)
    return composites.over_deviation(g, centred, variance, epsilon)


def _affine(n: Node, x: Value, gamma: Param, beta: Param, length: tuple[int, ...], dims: tuple[int, ...]) -> Value:
    g = n.g
    scaled = g.op("mul", x, g.reshape(n.fixed(gamma, length, x), dims))
    return g.op("add", scaled, g.reshape(n.fixed(beta, length, x), dims))


@nnvm_op("L2Normalization")
def l2_normalization(n: Node, x: Value) -> Value:
    """x / sqrt(sum of squares + eps): over all but the batch, over the channels, or over the picture."""
    mode = n.choice("mode", "instance", "channel", "spatial")
    axis = 2 if mode == "spatial" else 1
    n.at_least(x, axis + 1)
    rows = x if mode == "channel" else n.g.reshape(x, (*x.dims[:axis], prod(x.dims[axis:])))
    return n.g.reshape(n.g.op("l2norm", rows, axis=axis, epsilon=n.float("eps", 1e-10)), x.dims)


@nnvm_op("l2_normalize")
def l2_normalize(n: Node, x: Value) -> Value:
    """x / sqrt(max(sum of squares, eps)), over `axis` (all where it is empty)."""
    axes = n.axes(n.ints("axis", ()), x.ndim) or tuple(range(x.ndim))
    squares = n.g.op("reduce_sum", n.g.op("mul", x, x), axes=axes)
    return n.g.op("div", x, n.g.op("sqrt", n.g.op("maximum", squares, n.scalar(n.float("eps"), x))))


@nnvm_op("LRN", outputs=("output", "tmp_norm"))
@nnvm_op("lrn")
def lrn(n: Node, x: Value) -> Value:
    if n.op == "LRN":
        size, bias = n.int("nsize"), n.float("knorm", 2.0)
    elif n.int("axis", 1) != 1:
        n.unsupported(f"normalisation across axis {n.int('axis')}")
    else:
        size, bias = n.int("size", 5), n.float("bias", 2.0)
    n.need_rank(x, 4)
    if size < 1 or size % 2 == 0:
        n.fail(f"its window should be odd, but is {size}")
    return n.g.op("lrn", x, size=size, alpha=n.float("alpha", 1e-4), beta=n.float("beta", 0.75), bias=bias)


# -- softmax ----------------------------------------------------------------------------------------------------------


@nnvm_op("softmax", "log_softmax", "softmin")
def softmax(n: Node, x: Value, *length: Value) -> Value:
    if length or n.bool("use_length", False):
        n.unsupported("lengths of a softmax")
    g = n.g
    src = x if n.op != "softmin" else g.op("neg", x)
    temperature = n.float("temperature", 1.0)
    if temperature != 1.0:
        src = g.op("div", src, n.scalar(temperature, x))
    y = g.op("log_softmax" if n.op == "log_softmax" else "softmax", src, axis=n.axis(n.int("axis", -1), x.ndim))
    return g.cast(y, n.dtype("dtype", y.dtype)) if n.has("dtype") else y


@nnvm_op("SoftmaxOutput", "Softmax", labels=(1,))
def softmax_output(n: Node, x: Value, label: None = None) -> Value:
    if n.bool("multi_output", False):
        return n.g.op("softmax", x, axis=1)
    if n.bool("preserve_shape", False):
        return n.g.op("softmax", x, axis=x.ndim - 1)
    return _softmax_of_rows(n, x)


@nnvm_op("SoftmaxActivation")
def softmax_activation(n: Node, x: Value) -> Value:
    if n.choice("mode", "instance", "channel") == "channel":
        return n.g.op("softmax", x, axis=1)
    return _softmax_of_rows(n, x)


def _softmax_of_rows(n: Node, x: Value) -> Value:
    """Over all but the batch."""
    n.at_least(x, 1)
    rows = n.g.reshape(x, (x.dims[0], prod(x.dims[1:])))
    return n.g.reshape(n.g.op("softmax", rows, axis=1), x.dims)


@nnvm_op("LinearRegressionOutput", "MAERegressionOutput", "SVMOutput", labels=(1,))
def linear_output(n: Node, x: Value, label: None = None) -> Value:
    return x


@nnvm_op("LogisticRegressionOutput", labels=(1,))
def logistic_output(n: Node, x: Value, label: None = None) -> Value:
    return n.g.op("sigmoid", x)
