"""Reverse-mode gradients in NumPy: enough to train small networks in a test, in float32."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


class Var:
    """An array, and what its gradient adds to those of the arrays that it is made of."""

    def __init__(self, value: np.ndarray, *sources: tuple[Var, Callable[[np.ndarray], np.ndarray]]):
        self.value, self.sources = np.asarray(value, np.float32), sources
        self.grad = np.zeros((), np.float32)

    def __add__(self, other: Var) -> Var:
        return Var(self.value + other.value, (self, lambda g: summed(g, self)), (other, lambda g: summed(g, other)))

    def __mul__(self, other: Var) -> Var:
        return Var(
            self.value * other.value,
            (self, lambda g: summed(g * other.value, self)),
            (other, lambda g: summed(g * self.value, other)),
        )

    def __matmul__(self, other: Var) -> Var:
        a, b = self.value, other.value
        return Var(
            a @ b,
            (self, lambda g: summed(g @ b.swapaxes(-1, -2), self)),
            (other, lambda g: summed(a.swapaxes(-1, -2) @ g, other)),
        )

    def reshape(self, *dims: int) -> Var:
        return Var(self.value.reshape(dims), (self, lambda g: g.reshape(self.value.shape)))

    def transpose(self, *order: int) -> Var:
        return Var(self.value.transpose(order), (self, lambda g: g.transpose(np.argsort(order))))

    def mean(self, axis: int) -> Var:
        count = self.value.shape[axis]
        return Var(
            self.value.mean(axis), (self, lambda g: np.repeat(np.expand_dims(g, axis), count, axis) / np.float32(count))
        )

    def backward(self) -> None:
        """Set `grad` of everything that this scalar is made of."""
        order: list[Var] = []
        seen: set[int] = set()

        def visit(var: Var) -> None:
            if id(var) not in seen:
                seen.add(id(var))
                for source, _ in var.sources:
                    visit(source)
                order.append(var)

        visit(self)
        for var in order:
            var.grad = np.zeros_like(var.value)
        self.grad = np.ones_like(self.value)
        for var in reversed(order):
            for source, pull in var.sources:
                source.grad = source.grad + pull(var.grad)


def summed(gradient: np.ndarray, var: Var) -> np.ndarray:
    """A gradient summed over the axes along which `var` was broadcast."""
    extra = gradient.ndim - var.value.ndim
    gradient = gradient.sum(tuple(range(extra)))
    axes = tuple(k for k, n in enumerate(var.value.shape) if n == 1 and gradient.shape[k] != 1)
    return gradient.sum(axes, keepdims=True)


def relu(x: Var) -> Var:
    return Var(np.maximum(x.value, 0), (x, lambda g: g * (x.value > 0)))


def gelu(x: Var) -> Var:
    """x Φ(x), by the tanh that approximates it."""
    v = x.value
    t = np.tanh(0.7978845608 * (v + 0.044715 * v**3))
    slope = 0.5 * (1 + t) + 0.5 * v * (1 - t**2) * 0.7978845608 * (1 + 3 * 0.044715 * v**2)
    return Var(0.5 * v * (1 + t), (x, lambda g: g * slope))


def softmax(x: Var) -> Var:
    e = np.exp(x.value - x.value.max(-1, keepdims=True))
    y = e / e.sum(-1, keepdims=True)
    return Var(y, (x, lambda g: y * (g - (g * y).sum(-1, keepdims=True))))


def normalized(x: Var) -> Var:
    """Mean 0 and variance 1 along the last axis (epsilon 1e-5)."""
    centred = x.value - x.value.mean(-1, keepdims=True)
    inverse = 1 / np.sqrt((centred**2).mean(-1, keepdims=True) + np.float32(1e-5))
    y = centred * inverse
    return Var(y, (x, lambda g: inverse * (g - g.mean(-1, keepdims=True) - y * (g * y).mean(-1, keepdims=True))))


def windows(x: Var, size: int) -> Var:
    """The `size`² windows around each pixel of ``[n, c, h, w]``, with zeros outside: ``[n, h w, c size²]``."""
    n, c, h, w = x.value.shape
    edge = size // 2
    padded = np.pad(x.value, ((0, 0), (0, 0), (edge, edge), (edge, edge)))
    taps = [padded[:, :, i : i + h, j : j + w] for i in range(size) for j in range(size)]
    stacked = np.stack(taps, 2).reshape(n, c * size * size, h * w).transpose(0, 2, 1)

    def pull(g: np.ndarray) -> np.ndarray:
        parts = g.transpose(0, 2, 1).reshape(n, c, size * size, h, w)
        total = np.zeros_like(padded)
        for k in range(size * size):
            i, j = divmod(k, size)
            total[:, :, i : i + h, j : j + w] += parts[:, :, k]
        return total[:, :, edge : edge + h, edge : edge + w]

    return Var(stacked, (x, pull))


def halved(x: Var) -> Var:
    """The maximum of each square of two by two pixels."""
    n, c, h, w = x.value.shape
    squares = x.value.reshape(n, c, h // 2, 2, w // 2, 2)
    most = squares.max((3, 5), keepdims=True)
    first = (squares == most) / np.maximum((squares == most).sum((3, 5), keepdims=True), 1)
    return Var(
        most.reshape(n, c, h // 2, w // 2),
        (x, lambda g: (first * g.reshape(most.shape)).reshape(x.value.shape).astype(np.float32)),
    )


def cross_entropy(logits: Var, labels: np.ndarray) -> Var:
    """The mean of -log of the probability of each row's label."""
    shifted = logits.value - logits.value.max(-1, keepdims=True)
    probability = np.exp(shifted) / np.exp(shifted).sum(-1, keepdims=True)
    rows = np.arange(len(labels))
    wanted = np.eye(logits.value.shape[-1], dtype=np.float32)[labels]
    return Var(
        -np.log(probability[rows, labels] + 1e-12).mean(),
        (logits, lambda g: g * (probability - wanted) / np.float32(len(labels))),
    )


def train(
    params: dict[str, Var], loss: Callable[[np.ndarray], Var], count: int, epochs: int, rate: float, seed: int
) -> None:
    """Adam (Kingma and Ba, 2015) over batches of 50 of `count` samples, whose indices `loss` takes; the rate falls to 0."""
    rng = np.random.default_rng(seed)
    first = {k: np.zeros_like(v.value) for k, v in params.items()}
    second = {k: np.zeros_like(v.value) for k, v in params.items()}
    steps, step = epochs * (count // 50), 0
    for _ in range(epochs):
        order = rng.permutation(count)
        for begin in range(0, count - 49, 50):
            loss(order[begin : begin + 50]).backward()
            step += 1
            for k, v in params.items():
                first[k] = 0.9 * first[k] + 0.1 * v.grad
                second[k] = 0.999 * second[k] + 0.001 * v.grad**2
                ahead = first[k] / (1 - 0.9**step) / (np.sqrt(second[k] / (1 - 0.999**step)) + 1e-8)
                v.value = (v.value - rate * (1 - step / steps) * ahead).astype(np.float32)
