"""Functions of one number, element by element: signs, roundings, exponentials, trigonometry, and tests of a value.

Domains and special values are IEEE 754's; f16 and bf16 are computed in f32 and rounded once.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from lightnet.dialects.ln.numeric import FLOATS, INTS, NUMBERS, SIGNED, arithmetic, cases, erf, in_float64, uniform_data
from lightnet.dialects.ln.rules import producer, rule
from lightnet.ir.op import LnOp, boolean, case, ln_op, operand, result
from lightnet.ir.types import TensorSpec
from lightnet.runtime.dtypes import BY_NAME


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


class _Unary(LnOp):
    src = operand(dtypes=FLOATS)
    dst = result()
    #: The op in NumPy, on float64 (and on integers where it takes them).
    function: ClassVar[np.ufunc]
    #: The test data's range.
    domain: ClassVar[tuple[float, float]] = (-1, 1)

    def reference(self, src):
        return in_float64(self.function, src)

    @classmethod
    def sample_data(cls, name, kind, spec, tensors, params, seed):
        return uniform_data(super().sample_data(name, kind, spec, tensors, params, seed), *cls.domain)

    @classmethod
    def samples(cls):
        dtypes = cls.schema.operands[0].dtypes
        shapes = ((2, 1, 3, 1, 17), ()) if "f32" in dtypes else ()
        return [*(case(src=s) for s in shapes), *cases(("src",), [t for t in dtypes if t != "f32"])]


class _Signed(_Unary):
    def reference(self, src):
        return arithmetic(self.function, src)


@ln_op
class Neg(_Signed):
    """-src; of integers, wrapped around.

    ```mlir
    %y = ln.neg %x : tensor<2x3xf32>
    ```
    """

    optype = "neg"
    src = operand(dtypes=SIGNED)
    definition = "dst[i...] = -src[i...]"
    function = np.negative
    rewrites = (involution,)


@ln_op
class Abs(_Signed):
    """The absolute value of src; of the lowest integer, itself.

    ```mlir
    %y = ln.abs %x : tensor<2x3xf32>
    ```
    """

    optype = "abs"
    src = operand(dtypes=NUMBERS)
    definition = "dst[i...] = abs(src[i...])"
    function = np.abs
    rewrites = (idempotent, abs_of_unsigned)


@ln_op
class Sign(_Signed):
    """1 where src is above 0, -1 where it is below, else src itself (0 or NaN).

    ```mlir
    %y = ln.sign %x : tensor<2x3xf32>
    ```
    """

    optype = "sign"
    src = operand(dtypes=NUMBERS)
    definition = "dst[i...] = src[i...] > 0 ? 1 : src[i...] < 0 ? -1 : src[i...]"
    function = np.sign
    rewrites = (idempotent,)


class _Rounding(_Unary):
    domain = (-4, 4)
    rewrites = (idempotent,)


@ln_op
class Floor(_Rounding):
    """src rounded down to a whole number.

    ```mlir
    %y = ln.floor %x : tensor<2x3xf32>
    ```
    """

    optype = "floor"
    definition = "dst[i...] = floor(src[i...])"
    function = np.floor


@ln_op
class Ceil(_Rounding):
    """src rounded up to a whole number.

    ```mlir
    %y = ln.ceil %x : tensor<2x3xf32>
    ```
    """

    optype = "ceil"
    definition = "dst[i...] = ceil(src[i...])"
    function = np.ceil


@ln_op
class RoundEven(_Rounding):
    """src rounded to the nearest whole number, halves to the even one.

    ```mlir
    %y = ln.round_even %x : tensor<2x3xf32>
    ```
    """

    optype = "round_even"
    definition = "dst[i...] = rint(src[i...])"
    function = np.rint

    @classmethod
    def sample_data(cls, name, kind, spec, tensors, params, seed):
        data = super().sample_data(name, kind, spec, tensors, params, seed)
        return in_float64(lambda x: np.round(x * 4) / 4, data)  # with halves


# -- functions of floats ---------------------------------------------------------------------------------------------


@ln_op
class Exp(_Unary):
    """e to the power of src.

    ```mlir
    %y = ln.exp %x : tensor<2x3xf32>
    ```
    """

    optype = "exp"
    definition = "dst[i...] = exp(src[i...])"
    function = np.exp


@ln_op
class Log(_Unary):
    """The natural logarithm of src; NaN where src is negative, -inf where it is 0.

    ```mlir
    %y = ln.log %x : tensor<2x3xf32>
    ```
    """

    optype = "log"
    definition = "dst[i...] = log(src[i...])"
    function = np.log
    domain = (0.1, 9)


@ln_op
class Sqrt(_Unary):
    """The square root of src; NaN where src is negative.

    ```mlir
    %y = ln.sqrt %x : tensor<2x3xf32>
    ```
    """

    optype = "sqrt"
    definition = "dst[i...] = sqrt(src[i...])"
    function = np.sqrt
    domain = (0, 9)


@ln_op
class Reciprocal(_Unary):
    """1 / src.

    ```mlir
    %y = ln.reciprocal %x : tensor<2x3xf32>
    ```
    """

    optype = "reciprocal"
    definition = "dst[i...] = 1 / src[i...]"
    function = np.reciprocal
    domain = (0.3, 4)


@ln_op
class Sin(_Unary):
    """The sine of src, in radians.

    ```mlir
    %y = ln.sin %x : tensor<2x3xf32>
    ```
    """

    optype = "sin"
    definition = "dst[i...] = sin(src[i...])"
    function = np.sin
    domain = (-9, 9)


@ln_op
class Cos(_Unary):
    """The cosine of src, in radians.

    ```mlir
    %y = ln.cos %x : tensor<2x3xf32>
    ```
    """

    optype = "cos"
    definition = "dst[i...] = cos(src[i...])"
    function = np.cos
    domain = (-9, 9)


@ln_op
class Tan(_Unary):
    """The tangent of src, in radians.

    ```mlir
    %y = ln.tan %x : tensor<2x3xf32>
    ```
    """

    optype = "tan"
    definition = "dst[i...] = tan(src[i...])"
    function = np.tan
    domain = (-1.3, 1.3)


@ln_op
class Asin(_Unary):
    """The angle in [-π/2, π/2] whose sine is src; NaN beyond [-1, 1].

    ```mlir
    %y = ln.asin %x : tensor<2x3xf32>
    ```
    """

    optype = "asin"
    definition = "dst[i...] = asin(src[i...])"
    function = np.arcsin
    domain = (-0.98, 0.98)


@ln_op
class Acos(_Unary):
    """The angle in [0, π] whose cosine is src; NaN beyond [-1, 1].

    ```mlir
    %y = ln.acos %x : tensor<2x3xf32>
    ```
    """

    optype = "acos"
    definition = "dst[i...] = acos(src[i...])"
    function = np.arccos
    domain = (-0.98, 0.98)


@ln_op
class Atan(_Unary):
    """The angle in [-π/2, π/2] whose tangent is src.

    ```mlir
    %y = ln.atan %x : tensor<2x3xf32>
    ```
    """

    optype = "atan"
    definition = "dst[i...] = atan(src[i...])"
    function = np.arctan
    domain = (-9, 9)


@ln_op
class Sinh(_Unary):
    """The hyperbolic sine of src.

    ```mlir
    %y = ln.sinh %x : tensor<2x3xf32>
    ```
    """

    optype = "sinh"
    definition = "dst[i...] = sinh(src[i...])"
    function = np.sinh
    domain = (-4, 4)


@ln_op
class Cosh(_Unary):
    """The hyperbolic cosine of src.

    ```mlir
    %y = ln.cosh %x : tensor<2x3xf32>
    ```
    """

    optype = "cosh"
    definition = "dst[i...] = cosh(src[i...])"
    function = np.cosh
    domain = (-4, 4)


@ln_op
class Tanh(_Unary):
    """The hyperbolic tangent of src.

    ```mlir
    %y = ln.tanh %x : tensor<2x3xf32>
    ```
    """

    optype = "tanh"
    definition = "dst[i...] = tanh(src[i...])"
    function = np.tanh
    domain = (-4, 4)


@ln_op
class Asinh(_Unary):
    """The number whose hyperbolic sine is src.

    ```mlir
    %y = ln.asinh %x : tensor<2x3xf32>
    ```
    """

    optype = "asinh"
    definition = "dst[i...] = asinh(src[i...])"
    function = np.arcsinh
    domain = (-9, 9)


@ln_op
class Acosh(_Unary):
    """The number, at least 0, whose hyperbolic cosine is src; NaN where src is below 1.

    ```mlir
    %y = ln.acosh %x : tensor<2x3xf32>
    ```
    """

    optype = "acosh"
    definition = "dst[i...] = acosh(src[i...])"
    function = np.arccosh
    domain = (1, 9)


@ln_op
class Atanh(_Unary):
    """The number whose hyperbolic tangent is src; NaN beyond [-1, 1].

    ```mlir
    %y = ln.atanh %x : tensor<2x3xf32>
    ```
    """

    optype = "atanh"
    definition = "dst[i...] = atanh(src[i...])"
    function = np.arctanh
    domain = (-0.95, 0.95)


@ln_op
class Erf(_Unary):
    """The error function, 2/√π times the integral of exp(-t²) from 0 to src.

    ```mlir
    %y = ln.erf %x : tensor<2x3xf32>
    ```
    """

    optype = "erf"
    definition = "dst[i...] = erf(src[i...])"
    function = erf
    domain = (-3, 3)


# -- tests of a value ------------------------------------------------------------------------------------------------


class _Test(_Unary):
    @classmethod
    def infer(cls, t, p):
        return [TensorSpec(t.src.dims, BY_NAME["i1"])]

    @classmethod
    def sample_data(cls, name, kind, spec, tensors, params, seed):
        data = super().sample_data(name, kind, spec, tensors, params, seed)
        special = np.array([np.nan, np.inf, -np.inf, 0, 1], data.dtype)
        return np.where(data > 0, data, special[np.arange(data.size).reshape(data.shape) % 5])


@ln_op
class Isnan(_Test):
    """Whether src is NaN.

    ```mlir
    // %x : tensor<2x3xf32>
    %y = ln.isnan %x : tensor<2x3xi1>
    ```
    """

    optype = "isnan"
    definition = "dst[i...] = isnan(src[i...])"

    def reference(self, src):
        return np.isnan(src)


@ln_op
class Isinf(_Test):
    """Whether src is infinite, of the signs asked for.

    ```mlir
    // %x : tensor<2x3xf32>
    %y = ln.isinf %x {negative = false} : tensor<2x3xi1>
    ```
    """

    optype = "isinf"
    positive = boolean(default=True)
    negative = boolean(default=True)
    definition = """
        dst[i...] = isinf(src[i...]) && (src[i...] > 0 ? positive : negative)
    """

    def reference(self, src):
        return np.isinf(src) & np.where(np.signbit(src), self.negative, self.positive)

    @classmethod
    def samples(cls):
        return [*super().samples(), case(src=(7,), positive=False), case(src=(7,), negative=False)]


@ln_op
class LogicalNot(_Unary):
    """Whether src is false.

    ```mlir
    %y = ln.logical_not %x : tensor<2x3xi1>
    ```
    """

    optype = "logical_not"
    src = operand(dtypes=("i1",))
    definition = "dst[i...] = !src[i...]"
    rewrites = (involution,)

    def reference(self, src):
        return ~src


@ln_op
class BitNot(_Unary):
    """The bits of src turned over.

    ```mlir
    %y = ln.bit_not %x : tensor<2x3xi32>
    ```
    """

    optype = "bit_not"
    src = operand(dtypes=INTS)
    definition = "dst[i...] = bitnot(src[i...])"
    rewrites = (involution,)

    def reference(self, src):
        return ~src


OPS = (
    Neg,
    Abs,
    Sign,
    Floor,
    Ceil,
    RoundEven,
    Exp,
    Log,
    Sqrt,
    Reciprocal,
    Sin,
    Cos,
    Tan,
    Asin,
    Acos,
    Atan,
    Sinh,
    Cosh,
    Tanh,
    Asinh,
    Acosh,
    Atanh,
    Erf,
    Isnan,
    Isinf,
    LogicalNot,
    BitNot,
)
