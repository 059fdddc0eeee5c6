"""The activations of recurrent layers' gates: in NumPy, and at the loop level, for the loops of a CPU and the threads
of a device. Imports xDSL and NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from xdsl.dialects import arith, math
from xdsl.dialects.builtin import IndexType, f32, i64
from xdsl.ir import SSAValue

GATE_ACTIVATIONS = ("sigmoid", "tanh", "relu", "affine", "leaky_relu", "thresholded_relu", "scaled_tanh",
                    "hard_sigmoid", "elu", "softsign", "softplus")  # fmt: skip


def activate(name: str, x: np.ndarray, alpha: float, beta: float) -> np.ndarray:
    """An activation in NumPy; the formulas are those of ONNX's LSTM."""
    with np.errstate(over="ignore"):
        match name:
            case "sigmoid":
                return 1 / (1 + np.exp(-x))
            case "tanh":
                return np.tanh(x)
            case "relu":
                return np.maximum(x, 0)
            case "affine":
                return alpha * x + beta
            case "leaky_relu":
                return np.where(x < 0, alpha * x, x)
            case "thresholded_relu":
                return np.where(x >= alpha, x, 0)
            case "scaled_tanh":
                return alpha * np.tanh(beta * x)
            case "hard_sigmoid":
                return np.clip(alpha * x + beta, 0, 1)
            case "elu":
                return np.where(x < 0, alpha * np.expm1(x), x)
            case "softsign":
                return x / (1 + np.abs(x))
    return np.logaddexp(x, 0)


class Scalars:
    """Arithmetic at the loop level, on scalars of one float type and on indices; LLVM vectorises the loops around
    it."""

    def __init__(self, b: Any, element: Any):
        self.b, self.element = b, element

    def number(self, value: float) -> SSAValue:
        return self.b.const(float(value), self.element)

    def op(self, cls: Any, *args: SSAValue) -> SSAValue:
        return self.b.op(cls, *args)

    def choose(self, predicate: str, x: SSAValue, y: SSAValue | float, then: SSAValue, other: SSAValue) -> SSAValue:
        limit = y if isinstance(y, SSAValue) else self.number(y)
        return self.b.select(self.b.cmpf(predicate, x, limit), then, other)

    def to_index(self, x: SSAValue) -> SSAValue:
        return self.b.op(arith.IndexCastOp, self.b.op(arith.FPToSIOp, x, type=i64), type=IndexType())

    def to_float(self, x: SSAValue) -> SSAValue:
        return self.b.op(arith.SIToFPOp, self.b.op(arith.IndexCastOp, x, type=i64), type=self.element)

    def within(self, x: SSAValue, low: int, high: int) -> SSAValue:
        """An index, at least `low` and at most `high`."""
        return self.b.op(arith.MinSIOp, self.b.op(arith.MaxSIOp, x, self.b.index(low)), self.b.index(high))


class Maths(Scalars):
    """Activations at the loop level."""

    def add(self, x: SSAValue, y: SSAValue) -> SSAValue:
        return self.op(arith.AddfOp, x, y)

    def mul(self, x: SSAValue, y: SSAValue) -> SSAValue:
        return self.op(arith.MulfOp, x, y)

    def clamp(self, x: SSAValue, low: float, high: float) -> SSAValue:
        return self.op(arith.MinimumfOp, self.op(arith.MaximumfOp, x, self.number(low)), self.number(high))

    def tanh(self, x: SSAValue) -> SSAValue:
        """1 - 2 / (exp(2x) + 1), and near 0, where that cancels, the Taylor sum to x^9 (the rest is below 1e-8 of
        it)."""
        if self.element != f32:
            return self.op(math.TanhOp, x)
        one = self.number(1)
        far = self.op(arith.DivfOp, self.number(2), self.add(self.op(math.ExpOp, self.add(x, x)), one))
        far = self.op(arith.SubfOp, one, far)
        square, near = self.mul(x, x), self.number(62 / 2835)
        for c in (-17 / 315, 2 / 15, -1 / 3, 1.0):
            near = self.add(self.mul(near, square), self.number(c))
        return self.choose("olt", self.op(math.AbsFOp, x), 0.25, self.mul(near, x), far)

    def activate(self, name: str, x: SSAValue, alpha: float, beta: float) -> SSAValue:
        """As the function `activate`."""
        one, zero = self.number(1), self.number(0)
        match name:
            case "sigmoid":
                e = self.op(math.ExpOp, self.op(arith.NegfOp, x))
                return self.op(arith.DivfOp, one, self.add(one, e))
            case "tanh":
                return self.tanh(x)
            case "relu":
                return self.op(arith.MaximumfOp, x, zero)
            case "affine":
                return self.add(self.mul(self.number(alpha), x), self.number(beta))
            case "leaky_relu":
                return self.choose("olt", x, 0, self.mul(self.number(alpha), x), x)
            case "thresholded_relu":
                return self.choose("oge", x, alpha, x, zero)
            case "scaled_tanh":
                return self.mul(self.number(alpha), self.tanh(self.mul(self.number(beta), x)))
            case "hard_sigmoid":
                return self.clamp(self.add(self.mul(self.number(alpha), x), self.number(beta)), 0, 1)
            case "elu":
                e = self.op(arith.SubfOp, self.op(math.ExpOp, x), one)
                return self.choose("olt", x, 0, self.mul(self.number(alpha), e), x)
            case "softsign":
                return self.op(arith.DivfOp, x, self.add(one, self.op(math.AbsFOp, x)))
        e = self.op(math.ExpOp, self.op(arith.NegfOp, self.op(math.AbsFOp, x)))
        return self.add(self.op(arith.MaximumfOp, x, zero), self.op(math.LogOp, self.add(one, e)))
