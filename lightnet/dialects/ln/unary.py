"""Functions of one number, element by element: signs, roundings, exponentials, trigonometry, and tests of a value.

Domains and special values are IEEE 754's; f16 and bf16 are computed in f32 and rounded once.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from xdsl.pattern_rewriter import RewritePattern

from lightnet.dialects.ln.numeric import FLOATS, INTS, NUMBERS, SIGNED, erf, in_float64
from lightnet.dialects.ln.rows import Predicate, TypedRow, UnaryRow
from lightnet.dialects.ln.rules import producer, rule
from lightnet.ir.op import boolean, case, ln_op, number, operand


# f(f(x)) = f(x), for f that leaves alone what it gives
@rule("abs", "sign", "floor", "ceil", "round_even")
def idempotent(op):
    return None if producer(op.src, type(op)) is None else op.src


# abs(x) = x, where the type of x has no values below 0
@rule("abs")
def abs_of_unsigned(op):
    return op.src if op.operand_specs[0].dtype.kind == "uint" else None


# f(f(x)) = x, for f that is its own inverse
@rule("neg", "logical_not", "bit_not")
def involution(op):
    inner = producer(op.src, type(op))
    return None if inner is None else inner.src


class _Rounding(UnaryRow):
    domain = (-4, 4)
    rewrites: ClassVar[tuple[type[RewritePattern], ...]] = (idempotent,)


class _Halves(_Rounding):
    """A rounding whose test data have halves."""

    @classmethod
    def sample_data(cls, name, kind, spec, tensors, params, seed):
        data = super().sample_data(name, kind, spec, tensors, params, seed)
        return in_float64(lambda x: np.round(x * 4) / 4, data)


class _Bits(UnaryRow):
    """On the values as they are stored."""

    rewrites = (involution,)

    def reference(self, src):
        return self.numpy(src)


@ln_op
class RoundClip(_Halves, TypedRow):
    """src rounded to the nearest whole number, halves to the even one, within `low` and `high`; `low` for NaN. A
    quantised tensor is rounded so.

    ```mlir
    %y = ln.round_clip %x {low = 0, high = 255} : tensor<1x3x4x5xf32>
    ```
    """

    optype = "round_clip"
    src = operand(dtypes=FLOATS)
    low = number("float")
    high = number("float")
    definition = """
        dst[i...] = min(rint(src[i...]) > sat(low, src) ? rint(src[i...]) : sat(low, src), sat(high, src))
    """
    rewrites = ()
    work = 3
    function = staticmethod(
        lambda x, low, high: np.minimum(np.where(np.rint(x) > low, np.rint(x), low), high).astype(x.dtype)
    )
    given = {"low": -2, "high": 3}
    more = (case(src=(7,), low=0, high=255), case(src=(5,), low=-128, high=0))


# fmt: off
Neg = UnaryRow.row("neg", "-src", np.negative, "-src; of integers, wrapped around.",
                src=operand(dtypes=SIGNED), rewrites=(involution,))
Abs = UnaryRow.row("abs", "abs(src)", np.abs, "The absolute value of src; of the lowest integer, itself.",
                src=operand(dtypes=NUMBERS), rewrites=(idempotent, abs_of_unsigned))
Sign = UnaryRow.row("sign", "src > 0 ? 1 : src < 0 ? -1 : src", np.sign,
                 "1 where src is above 0, -1 where it is below, else src itself (0 or NaN).",
                 src=operand(dtypes=NUMBERS), rewrites=(idempotent,))

Floor = _Rounding.row("floor", "floor(src)", np.floor, "src rounded down to a whole number.")
Ceil = _Rounding.row("ceil", "ceil(src)", np.ceil, "src rounded up to a whole number.")
RoundEven = _Halves.row("round_even", "rint(src)", np.rint,
                        "src rounded to the nearest whole number, halves to the even one.")

Exp = UnaryRow.row("exp", "exp(src)", np.exp, "e to the power of src.")
Log = UnaryRow.row("log", "log(src)", np.log,
                "The natural logarithm of src; NaN where src is negative, -inf where it is 0.", domain=(0.1, 9))
Sqrt = UnaryRow.row("sqrt", "sqrt(src)", np.sqrt, "The square root of src; NaN where src is negative.", domain=(0, 9))
Reciprocal = UnaryRow.row("reciprocal", "1 / src", np.reciprocal, "1 / src.", domain=(0.3, 4))
Sin = UnaryRow.row("sin", "sin(src)", np.sin, "The sine of src, in radians.", domain=(-9, 9))
Cos = UnaryRow.row("cos", "cos(src)", np.cos, "The cosine of src, in radians.", domain=(-9, 9))
Tan = UnaryRow.row("tan", "tan(src)", np.tan, "The tangent of src, in radians.", domain=(-1.3, 1.3))
Asin = UnaryRow.row("asin", "asin(src)", np.arcsin, "The angle in [-π/2, π/2] whose sine is src; NaN beyond [-1, 1].",
                 domain=(-0.98, 0.98))
Acos = UnaryRow.row("acos", "acos(src)", np.arccos, "The angle in [0, π] whose cosine is src; NaN beyond [-1, 1].",
                 domain=(-0.98, 0.98))
Atan = UnaryRow.row("atan", "atan(src)", np.arctan, "The angle in [-π/2, π/2] whose tangent is src.", domain=(-9, 9))
Sinh = UnaryRow.row("sinh", "sinh(src)", np.sinh, "The hyperbolic sine of src.", domain=(-4, 4))
Cosh = UnaryRow.row("cosh", "cosh(src)", np.cosh, "The hyperbolic cosine of src.", domain=(-4, 4))
Tanh = UnaryRow.row("tanh", "tanh(src)", np.tanh, "The hyperbolic tangent of src.", domain=(-4, 4))
Asinh = UnaryRow.row("asinh", "asinh(src)", np.arcsinh, "The number whose hyperbolic sine is src.", domain=(-9, 9))
Acosh = UnaryRow.row("acosh", "acosh(src)", np.arccosh,
                  "The number, at least 0, whose hyperbolic cosine is src; NaN where src is below 1.", domain=(1, 9))
Atanh = UnaryRow.row("atanh", "atanh(src)", np.arctanh,
                  "The number whose hyperbolic tangent is src; NaN beyond [-1, 1].", domain=(-0.95, 0.95))
Erf = UnaryRow.row("erf", "erf(src)", erf, "The error function, 2/√π times the integral of exp(-t²) from 0 to src.",
                domain=(-3, 3))

Isnan = Predicate.row("isnan", "isnan(src)", np.isnan, "Whether src is NaN.")
Isinf = Predicate.row("isinf", "isinf(src) && (src > 0 ? positive : negative)",
                 lambda x, positive, negative: np.isinf(x) & np.where(np.signbit(x), negative, positive),
                 "Whether src is infinite, of the signs asked for.",
                 positive=boolean(default=True), negative=boolean(default=True),
                 more=(case(src=(7,), positive=False), case(src=(7,), negative=False)))
LogicalNot = _Bits.row("logical_not", "!src", np.invert, "Whether src is false.", src=operand(dtypes=("i1",)))
BitNot = _Bits.row("bit_not", "bitnot(src)", np.invert, "The bits of src turned over.", src=operand(dtypes=INTS))
