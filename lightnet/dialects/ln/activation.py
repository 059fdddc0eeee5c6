"""Activation functions of floats, element by element, and `clip`. (`relu`, `lrelu` and `sigmoid` stand in elementwise.py.)

Formulas are ONNX's operator reference's, arranged so that none overflows on the way: f16 and bf16 are computed in f32 and
rounded once. Parameters are floats of 32 bits, as there.
"""

from __future__ import annotations

import numpy as np

from lightnet.dialects.ln.numeric import FLOATS, NUMBERS, arithmetic, cases, erf, in_float64, uniform_data
from lightnet.dialects.ln.rules import producer, rule
from lightnet.ir.op import LnOp, case, ln_op, number, operand, result, string
from lightnet.runtime.dtypes import BY_NP, convert


# clip(clip(x, lo, hi), lo, hi) = clip(x, lo, hi)
@rule("clip")
def clip_twice(op):
    inner = producer(op.src, Clip)
    return op.src if inner is not None and (inner.lo, inner.hi) == (op.lo, op.hi) else None


class _Activation(LnOp):
    src = operand(dtypes=FLOATS)
    dst = result()

    def flops(self):
        return 4 * self.result_specs[0].len

    def reference(self, src):
        return in_float64(self.numpy, src)

    def numpy(self, x: np.ndarray) -> np.ndarray:
        """The op on float64."""
        raise NotImplementedError

    @classmethod
    def sample_data(cls, name, kind, spec, tensors, params, seed):
        return uniform_data(super().sample_data(name, kind, spec, tensors, params, seed), -5, 5)

    @classmethod
    def samples(cls):
        return [case(src=(2, 1, 3, 1, 17)), case(src=()), *cases(("src",), ("f64", "f16", "bf16"))]


@ln_op
class Elu(_Activation):
    """src where it is at least 0, else alpha * (exp(src) - 1).

    ```mlir
    %y = ln.elu %x {alpha = 0.5} : tensor<2x3xf32>
    ```
    """

    optype = "elu"
    alpha = number("float", default=1.0)
    definition = "dst[i...] = src[i...] < 0 ? alpha * (exp(src[i...]) - 1) : src[i...]"

    def numpy(self, x):
        return np.where(x < 0, self.alpha * np.expm1(x), x)

    @classmethod
    def samples(cls):
        return [*super().samples(), case(src=(7,), alpha=2)]


@ln_op
class Selu(_Activation):
    """gamma * src where src is above 0, else gamma * alpha * (exp(src) - 1).

    ```mlir
    %y = ln.selu %x : tensor<2x3xf32>
    ```
    """

    optype = "selu"
    alpha = number("float", default=1.67326319217681884765625)
    gamma = number("float", default=1.05070102214813232421875)
    definition = "dst[i...] = gamma * (src[i...] < 0 ? alpha * (exp(src[i...]) - 1) : src[i...])"

    def numpy(self, x):
        return self.gamma * np.where(x < 0, self.alpha * np.expm1(x), x)

    @classmethod
    def samples(cls):
        return [*super().samples(), case(src=(7,), alpha=2, gamma=3)]


@ln_op
class Celu(_Activation):
    """src where it is at least 0, else alpha * (exp(src / alpha) - 1).

    ```mlir
    %y = ln.celu %x {alpha = 2} : tensor<2x3xf32>
    ```
    """

    optype = "celu"
    alpha = number("float", default=1.0, ne=0)
    definition = "dst[i...] = max(src[i...], 0) + min(alpha * (exp(src[i...] / alpha) - 1), 0)"

    def numpy(self, x):
        return np.maximum(x, 0) + np.minimum(self.alpha * np.expm1(x / self.alpha), 0)

    @classmethod
    def samples(cls):
        return [*super().samples(), case(src=(7,), alpha=2)]


@ln_op
class Gelu(_Activation):
    """src * Φ(src), where Φ is the normal distribution (Hendrycks and Gimpel, "Gaussian error linear units", 2016);
    ``tanh`` takes their approximation of it.

    ```mlir
    %y = ln.gelu %x {approximate = "tanh"} : tensor<2x3xf32>
    ```
    """

    optype = "gelu"
    approximate = string("none", "tanh", default="none")
    definition = """
        dst[i...] = 0.5 * src[i...] * (1 + (approximate == "none" ? erf(src[i...] * 0.7071067811865476)
            : tanh(0.7978845608028654 * (src[i...] + 0.044715 * src[i...] * src[i...] * src[i...]))))
    """

    def flops(self):
        return 8 * self.result_specs[0].len

    def numpy(self, x):
        if self.approximate == "none":
            return 0.5 * x * (1 + erf(x / np.sqrt(2)))
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))

    @classmethod
    def samples(cls):
        return [*super().samples(), case(src=(7,), approximate="tanh"), case("f64", src=(3, 5), approximate="tanh")]


@ln_op
class HardSigmoid(_Activation):
    """alpha * src + beta, between 0 and 1.

    ```mlir
    %y = ln.hard_sigmoid %x {alpha = 0.166667} : tensor<2x3xf32>
    ```
    """

    optype = "hard_sigmoid"
    alpha = number("float", default=0.2)
    beta = number("float", default=0.5)
    definition = "dst[i...] = clamp(alpha * src[i...] + beta, 0, 1)"

    def numpy(self, x):
        return np.clip(self.alpha * x + self.beta, 0, 1)

    @classmethod
    def samples(cls):
        return [*super().samples(), case(src=(7,), alpha=0.5, beta=0.6)]


@ln_op
class HardSwish(_Activation):
    """src times (src / 6 + 0.5), the latter between 0 and 1.

    ```mlir
    %y = ln.hard_swish %x : tensor<2x3xf32>
    ```
    """

    optype = "hard_swish"
    definition = "dst[i...] = src[i...] * clamp(src[i...] * 0.16666666666666666 + 0.5, 0, 1)"

    def numpy(self, x):
        return x * np.clip(x / 6 + 0.5, 0, 1)


@ln_op
class Mish(_Activation):
    """src * tanh(softplus(src)), which is src * n / (n + 2) with n = e·(e + 2) and e = exp(src); beyond 20 the quotient is 1
    in every type.

    ```mlir
    %y = ln.mish %x : tensor<2x3xf32>
    ```
    """

    optype = "mish"
    definition = """
        dst[i...] = src[i...] * (exp(min(src[i...], 20)) * (exp(min(src[i...], 20)) + 2)
            / (exp(min(src[i...], 20)) * (exp(min(src[i...], 20)) + 2) + 2))
    """

    def flops(self):
        return 8 * self.result_specs[0].len

    def numpy(self, x):
        return x * np.tanh(np.logaddexp(0, x))


@ln_op
class Silu(_Activation):
    """src * sigmoid(beta * src), also called swish.

    ```mlir
    %y = ln.silu %x : tensor<2x3xf32>
    ```
    """

    optype = "silu"
    beta = number("float", default=1.0)
    definition = "dst[i...] = src[i...] / (1 + exp(-beta * src[i...]))"

    def numpy(self, x):
        return x / (1 + np.exp(-self.beta * x))

    @classmethod
    def samples(cls):
        return [*super().samples(), case(src=(7,), beta=1.702)]


@ln_op
class Softplus(_Activation):
    """log(1 + exp(src)).

    ```mlir
    %y = ln.softplus %x : tensor<2x3xf32>
    ```
    """

    optype = "softplus"
    definition = "dst[i...] = max(src[i...], 0) + log(1 + exp(-abs(src[i...])))"

    def numpy(self, x):
        return np.logaddexp(0, x)


@ln_op
class Softsign(_Activation):
    """src / (1 + |src|).

    ```mlir
    %y = ln.softsign %x : tensor<2x3xf32>
    ```
    """

    optype = "softsign"
    definition = "dst[i...] = src[i...] / (1 + abs(src[i...]))"

    def numpy(self, x):
        return x / (1 + np.abs(x))


@ln_op
class ThresholdedRelu(_Activation):
    """src where it is above alpha, else 0.

    ```mlir
    %y = ln.thresholded_relu %x {alpha = 0.5} : tensor<2x3xf32>
    ```
    """

    optype = "thresholded_relu"
    alpha = number("float", default=1.0)
    definition = "dst[i...] = src[i...] > alpha ? src[i...] : 0"

    def numpy(self, x):
        return np.where(x > self.alpha, x, 0)

    @classmethod
    def samples(cls):
        return [*super().samples(), case(src=(7,), alpha=-2)]


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
        dtype = BY_NP[src.dtype]
        low, high, bias = (convert(np.asarray(v), dtype) for v in (-self.lambd, self.lambd, self.bias))
        parts = (src, *(np.broadcast_to(v, src.shape) for v in (low, high, bias)))
        return arithmetic(lambda x, lo, hi, b: np.where(x < lo, x + b, np.where(x > hi, x - b, 0)), *parts)

    @classmethod
    def samples(cls):
        return [*super().samples(), case(src=(7,), lambd=1.5, bias=1.5), case("i32", src=(17,), lambd=2, bias=1),
                case("ui8", src=(17,), lambd=1, bias=1)]  # fmt: skip


def _clipped(x: np.ndarray, lo: np.ndarray, hi: np.ndarray) -> np.ndarray:
    raised = np.where(x < lo, lo, x)
    return np.where(raised > hi, hi, raised)


@ln_op
class Clip(_Activation):
    """src between lo and hi, which are cast to the tensor's type first (saturating); hi where lo is above it. NaN stays
    NaN.

    ```mlir
    %y = ln.clip %x {lo = 0, hi = 6} : tensor<2x3xf32>
    ```
    """

    optype = "clip"
    src = operand(dtypes=NUMBERS)
    lo = number("double")
    hi = number("double")
    definition = "dst[i...] = clamp(src[i...], lo, hi)"
    rewrites = (clip_twice,)

    def flops(self):
        return 2 * self.result_specs[0].len

    def reference(self, src):
        dtype = BY_NP[src.dtype]
        lo, hi = (convert(np.asarray(float(v)), dtype) for v in (self.lo, self.hi))
        # By comparisons, as ONNX Runtime and PyTorch do it: -0 is not below a bound of 0, and stays.
        return arithmetic(lambda x: _clipped(x, lo, hi).astype(x.dtype), src)

    @classmethod
    def samples(cls):
        shapes = [case(src=s, lo=0, hi=6) for s in ((2, 1, 3, 1, 17), (), (1,))]
        types = cases(("src",), ("f64", "f16", "bf16", "i8", "i64", "ui8"), lo=-1.5, hi=2)
        return [*shapes, *types, case(src=(7,), lo=2, hi=-2), case("i32", src=(7,), lo=-1e30, hi=1)]


OPS = (
    Elu, Selu, Celu, Gelu, HardSigmoid, HardSwish, Mish, Silu, Softplus, Softsign, ThresholdedRelu, Shrink, Clip,
)  # fmt: skip
