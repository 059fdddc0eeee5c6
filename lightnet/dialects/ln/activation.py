"""Activation functions of floats, element by element, and `clip`. (`relu`, `lrelu` and `sigmoid` stand in
elementwise.py.)

Formulas are ONNX's operator reference's, arranged so that none overflows on the way: f16 and bf16 are computed in f32
and rounded once. Parameters are floats of 32 bits, as there.
"""

from __future__ import annotations

import numpy as np

from lightnet.dialects.ln.numeric import NUMBERS, cases, elementwise_in, erf
from lightnet.dialects.ln.rows import TypedRow, UnaryRow
from lightnet.dialects.ln.rules import producer, rule
from lightnet.ir.op import case, ln_op, number, operand, string
from lightnet.runtime import dtypes
from lightnet.runtime.dtypes import convert


# clip(clip(x, lo, hi), lo, hi) = clip(x, lo, hi)
@rule("clip")
def clip_twice(op):
    inner = producer(op.src, Clip)
    return op.src if inner is not None and (inner.lo, inner.hi) == (op.lo, op.hi) else None


class _Activation(UnaryRow):
    domain = (-5, 5)
    work = 4


def _gelu(x: np.ndarray, approximate: str) -> np.ndarray:
    if approximate == "none":
        return 0.5 * x * (1 + erf(x / np.sqrt(2)))
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


# fmt: off
Elu = _Activation.row(
    "elu", "src < 0 ? alpha * (exp(src) - 1) : src", lambda x, alpha: np.where(x < 0, alpha * np.expm1(x), x),
    "src where it is at least 0, else alpha * (exp(src) - 1).",
    alpha=number("float", default=1.0), more=(case(src=(7,), alpha=2),))
Selu = _Activation.row(
    "selu", "gamma * (src < 0 ? alpha * (exp(src) - 1) : src)",
    lambda x, alpha, gamma: gamma * np.where(x < 0, alpha * np.expm1(x), x),
    "gamma * src where src is above 0, else gamma * alpha * (exp(src) - 1).",
    alpha=number("float", default=1.67326319217681884765625), gamma=number("float", default=1.05070102214813232421875),
    more=(case(src=(7,), alpha=2, gamma=3),))
Celu = _Activation.row(
    "celu", "max(src, 0) + min(alpha * (exp(src / alpha) - 1), 0)",
    lambda x, alpha: np.maximum(x, 0) + np.minimum(alpha * np.expm1(x / alpha), 0),
    "src where it is at least 0, else alpha * (exp(src / alpha) - 1).",
    alpha=number("float", default=1.0, ne=0), more=(case(src=(7,), alpha=2),))
Gelu = _Activation.row(
    "gelu",
    """0.5 * src * (1 + (approximate == "none" ? erf(src * 0.7071067811865476)
    : tanh(0.7978845608028654 * (src + 0.044715 * src * src * src))))""", _gelu,
    "src * Φ(src), where Φ is the normal distribution (Hendrycks and Gimpel, \"Gaussian error linear units\", 2016); "
    "``tanh`` takes their approximation of it.",
    approximate=string("none", "tanh", default="none"), work=8,
    more=(case(src=(7,), approximate="tanh"), case("f64", src=(3, 5), approximate="tanh")))
HardSigmoid = _Activation.row(
    "hard_sigmoid", "clamp(alpha * src + beta, 0, 1)", lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1),
    "alpha * src + beta, between 0 and 1.",
    alpha=number("float", default=0.2), beta=number("float", default=0.5), more=(case(src=(7,), alpha=0.5, beta=0.6),))
HardSwish = _Activation.row(
    "hard_swish", "src * clamp(src * 0.16666666666666666 + 0.5, 0, 1)", lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "src times (src / 6 + 0.5), the latter between 0 and 1.")
Mish = _Activation.row(
    "mish",
    """src * (exp(min(src, 20)) * (exp(min(src, 20)) + 2)
    / (exp(min(src, 20)) * (exp(min(src, 20)) + 2) + 2))""", lambda x: x * np.tanh(np.logaddexp(0, x)),
    "src * tanh(softplus(src)), which is src * n / (n + 2) with n = e·(e + 2) and e = exp(src); beyond 20 the quotient "
    "is 1 in every type.", work=8)
Silu = _Activation.row(
    "silu", "src / (1 + exp(-beta * src))", lambda x, beta: x / (1 + np.exp(-beta * x)),
    "src * sigmoid(beta * src), also called swish.",
    beta=number("float", default=1.0), more=(case(src=(7,), beta=1.702),))
Softplus = _Activation.row(
    "softplus", "max(src, 0) + log(1 + exp(-abs(src)))", lambda x: np.logaddexp(0, x), "log(1 + exp(src)).")
Softsign = _Activation.row(
    "softsign", "src / (1 + abs(src))", lambda x: x / (1 + np.abs(x)), "src / (1 + |src|).")
ThresholdedRelu = _Activation.row(
    "thresholded_relu", "src > alpha ? src : 0", lambda x, alpha: np.where(x > alpha, x, 0),
    "src where it is above alpha, else 0.", alpha=number("float", default=1.0), more=(case(src=(7,), alpha=-2),))
# fmt: on


@ln_op
class Shrink(_Activation):
    """src + bias where src is below -lambd, src - bias where it is above lambd, else 0. Parameters are cast to the
    tensor's type first; integers wrap around.

    ```mlir
    %y = ln.shrink %x {bias = 0.5} : tensor<2x3xf32>
    ```
    """

    optype = "shrink"
    src = operand(dtypes=NUMBERS)
    lambd = number("float", default=0.5)
    bias = number("float", default=0.0)
    definition = """
        dst[i...] = src[i...] < -lambd ? src[i...] + bias : src[i...] > lambd ? src[i...] - bias : 0
    """

    def reference(self, src):
        dtype = dtypes.BY_NP[src.dtype]
        low, high, bias = (convert(np.asarray(v), dtype) for v in (-self.lambd, self.lambd, self.bias))
        parts = (src, *(np.broadcast_to(v, src.shape) for v in (low, high, bias)))
        return elementwise_in(lambda x, lo, hi, b: np.where(x < lo, x + b, np.where(x > hi, x - b, 0)), *parts)

    @classmethod
    def samples(cls):
        return [case(src=(2, 1, 3, 1, 17)), case(src=()), *cases(("src",), ("f64", "f16", "bf16")),
                case(src=(7,), lambd=1.5, bias=1.5), case("i32", src=(17,), lambd=2, bias=1),
                case("ui8", src=(17,), lambd=1, bias=1)]  # fmt: skip


def _clipped(x: np.ndarray, lo: np.ndarray, hi: np.ndarray) -> np.ndarray:
    """By comparisons, as ONNX Runtime and PyTorch do it: -0 is not below a bound of 0, and stays."""
    raised = np.where(x < lo, lo, x)
    return np.where(raised > hi, hi, raised)


# fmt: off
Clip = TypedRow.row(
    "clip", "clamp(src, lo, hi)", _clipped,
    "src between lo and hi, which are cast to the tensor's type first (saturating); hi where lo is above it. NaN stays "
    "NaN.", src=operand(dtypes=NUMBERS), lo=number("double"), hi=number("double"), domain=(-5, 5), work=2,
    rewrites=(clip_twice,), kinds=(), given={"lo": 0, "hi": 6},
    more=(*cases(("src",), ("f64", "f16", "bf16", "i8", "i64", "ui8"), lo=-1.5, hi=2), case(src=(7,), lo=2, hi=-2),
          case("i32", src=(7,), lo=-1e30, hi=1)))
# fmt: on
