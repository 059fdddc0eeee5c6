"""Optimizers of ONNX's training operators (domain ai.onnx.preview.training): a step for any number of tensors.
Gradients are refused: a network that is compiled has no derivatives.

The step R is f32 or f64 and the number of steps before it, T, an i64; then come all tensors X, their gradients, and one
or two states of each. Source: the operator documentation of Adagrad, Momentum and Adam. Imports the table of handlers.
"""

from __future__ import annotations

from lightnet.frontends.graph import Value
from lightnet.frontends.onnx.model import TRAINING
from lightnet.frontends.onnx.node import Node, onnx_op


def _tensors(n: Node, values: tuple[Value, ...], each: int) -> list[tuple[Value, ...]]:
    """(X, gradient, states …) of each tensor."""
    count = len(values) // each
    if not count or len(values) % each or any(v is None for v in values):
        n.fail(f"behind the step and its number, its {len(values)} inputs should be {each} for each tensor")
    groups = [tuple(values[k::count]) for k in range(count)]
    for x, *others in groups:
        if any(v.spec != x.spec for v in others):
            n.fail(f"a tensor of {x.spec} has gradients and states of {', '.join(str(v.spec) for v in others)}")
    return groups


def _scaled(n: Node, x: Value, factor: float) -> Value:
    return n.g.op("mul", x, n.g.scalar(factor, x.dtype))


def _regularized(n: Node, x: Value, gradient: Value) -> Value:
    """The gradient of the loss plus norm_coefficient / 2 |x|^2."""
    factor = n.float("norm_coefficient", 0.0)
    return n.g.op("add", _scaled(n, x, factor), gradient) if factor else gradient


def _flat(groups: list[tuple[Value, ...]]) -> tuple[Value, ...]:
    """All tensors, then all of their first states, …"""
    return tuple(v for column in zip(*groups) for v in column)


@onnx_op("Adagrad", domain=TRAINING)
def adagrad(n: Node, r: Value, t: Value, *values: Value) -> tuple[Value, ...]:
    """h' = h + g^2, x' = x - r / (1 + t decay) g / (sqrt h' + epsilon)."""
    g = n.g
    decay = g.op("add", _scaled(n, g.cast(t, r.dtype), n.float("decay_factor", 0.0)), g.scalar(1, r.dtype))
    rate, found = g.op("div", r, decay), []
    for x, gradient, h in _tensors(n, values, 3):
        gradient = _regularized(n, x, gradient)
        h = g.op("add", h, g.op("mul", gradient, gradient))
        down = g.op("add", g.op("sqrt", h), g.scalar(n.float("epsilon", 1e-6), x.dtype))
        found.append((g.op("sub", x, g.op("mul", g.cast(rate, x.dtype), g.op("div", gradient, down))), h))
    return _flat(found)


@onnx_op("Momentum", domain=TRAINING)
def momentum(n: Node, r: Value, t: Value, *values: Value) -> tuple[Value, ...]:
    """v' = alpha v + beta g (beta is 1 in the first step); x' = x - r v', or by Nesterov x - r (g + alpha v')."""
    g, alpha, mode = n.g, n.float("alpha"), n.string("mode")
    if mode not in ("standard", "nesterov"):
        n.fail(f"its mode is '{mode:.40}'; there are standard and nesterov")
    found = []
    for x, gradient, v in _tensors(n, values, 3):
        gradient = _regularized(n, x, gradient)
        first = g.op("less", g.scalar(0, "i64"), t)
        beta = g.op("where", first, g.scalar(n.float("beta"), x.dtype), g.scalar(1, x.dtype))
        v = g.op("add", _scaled(n, v, alpha), g.op("mul", gradient, beta))
        step = g.op("add", gradient, _scaled(n, v, alpha)) if mode == "nesterov" else v
        found.append((g.op("sub", x, g.op("mul", g.cast(r, x.dtype), step)), v))
    return _flat(found)


@onnx_op("Adam", domain=TRAINING)
def adam(n: Node, r: Value, t: Value, *values: Value) -> tuple[Value, ...]:
    """v' = alpha v + (1 - alpha) g, h' = beta h + (1 - beta) g^2, x' = x - r' v' / (sqrt h' + epsilon), where r' = r
    sqrt(1 - beta^t) / (1 - alpha^t) behind the first step (Kingma and Ba, "Adam", 2015); then decay of x'."""
    g, alpha, beta = n.g, n.float("alpha", 0.9), n.float("beta", 0.999)
    time = g.cast(t, "f64")

    def missing(base: float) -> Value:  # 1 - base^t
        return g.op("sub", g.scalar(1, "f64"), g.op("pow", g.scalar(base, "f64"), time))

    later = g.op("less", g.scalar(0, "i64"), t)
    wide = g.cast(r, "f64")
    corrected = g.op("mul", wide, g.op("div", g.op("sqrt", missing(beta)), missing(alpha)))
    rate, found = g.op("where", later, corrected, wide), []
    for x, gradient, v, h in _tensors(n, values, 4):
        gradient = _regularized(n, x, gradient)
        v = g.op("add", _scaled(n, v, alpha), _scaled(n, gradient, 1 - alpha))
        h = g.op("add", _scaled(n, h, beta), _scaled(n, g.op("mul", gradient, gradient), 1 - beta))
        down = g.op("add", g.op("sqrt", h), g.scalar(n.float("epsilon", 1e-6), x.dtype))
        x = g.op("sub", x, g.op("mul", g.cast(rate, x.dtype), g.op("div", v, down)))
        decay = n.float("norm_coefficient_post", 0.0)
        found.append((_scaled(n, x, 1 - decay) if decay else x, v, h))
    return _flat(found)
