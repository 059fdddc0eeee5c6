"""erf and tanh. Imports `code` and `exponential`.

Of float, they are what networks apply to every element: odd rational functions, shorter than what is right to half a
unit, whose quotient may be inexact where the result is rounded to 16 bits next.
"""

from __future__ import annotations

from collections.abc import Sequence

from lightnet.backends.elementary.code import BodyText, TypedText
from lightnet.backends.elementary.exponential import exp, expm1

#: x·P(x²) / Q(x²), fitted to least relative error up to the point where f32 is 1: 2e-8; computed in f32, 3e-7.
_ERF_END = 3.9375
_ERF_P = (1.128379145, 0.1910488792, 0.05281916045, 0.003789339988, 0.0002847380707, 2.036065141e-06)
_ERF_Q = (1.0, 0.5026453689, 0.1143614691, 0.0150170908, 0.001167038322, 3.793940737e-05)
_TANH_END = 9.02
_TANH_P = (0.9999999794, 0.13379755, 0.003494077072, 2.058412631e-05, 1.331986665e-08)
_TANH_Q = (1.0, 0.4671307036, 0.02587123869, 0.0003283159972, 7.762365572e-07)


def erf_float(c: BodyText, x: TypedText) -> TypedText:
    return _odd_rational(c, x, _ERF_END, _ERF_P, _ERF_Q)


def tanh_float(c: BodyText, x: TypedText) -> TypedText:
    return _odd_rational(c, x, _TANH_END, _TANH_P, _TANH_Q)


def _odd_rational(c: BodyText, x: TypedText, end: float, p: Sequence[float], q: Sequence[float]) -> TypedText:
    """``x P(x²) / Q(x²)`` of x within ``±end``, and never beyond ±1."""
    x = c.clamp(x, -end, end)
    square = x * x
    numerator = x * c.polynomial(square, p)
    return c.clamp(c.divided(numerator, c.polynomial(square, q)), -1.0, 1.0)


# ---- of double -------------------------------------------------------------------------------------------------------


def tanh(c: BodyText, x: TypedText) -> TypedText:
    a = abs(x)
    e = expm1(c, a * 2.0)
    return c.copysign(c.select(a > 22.0, 1.0, e / (e + 2.0)), x)


_TWO_OVER_ROOT_PI = 1.1283791670955126
#: erf x = x (2/sqrt(pi) + z P(z)), z = x², up to 1: fitted to 1e-17.
_ERF = (
    -0.37612638903183754, 0.11283791670955126, -0.026866170645131252, 0.005223977625442186, -0.0008548327023450544,
    0.0001205533298176089, -1.4925650356656707e-05, 1.6462114292902008e-06, -1.636584253801154e-07,
    1.4807147150533316e-08, -1.2289855746585177e-09, 9.41507214265476e-11, -6.652074187842492e-12,
    4.1558617352790287e-13, -1.7988652209572032e-14,
)  # fmt: skip
#: erfc x = exp(-x²) P(t), t = (x - 2.5) / (x + 2.5), from 1 to 6: fitted to 4e-17.
_ERFC = (
    0.2108063640611436, -0.3717367339489734, 0.2517131932174494, -0.1250330523788247, 0.039922539075574935,
    -0.003993701166223159, -0.002642365963784453, 0.0008759154630794508, 0.00022838036598153182,
    -0.00012887741536369735, -3.4182063549802165e-05, 1.8617072081910595e-05, 7.5513017799442535e-06,
    -2.3140931150942177e-06, -1.79706306540687e-06, 1.2966926825389417e-07, 3.3657006736237105e-07,
)  # fmt: skip


def erf(c: BodyText, x: TypedText) -> TypedText:
    a = abs(x)
    z = a * a
    near = a * c.fma(z, c.polynomial(z, _ERF), _TWO_OVER_ROOT_PI)
    far = 1.0 - exp(c, -z) * c.polynomial((a - 2.5) / (a + 2.5), _ERFC)
    value = c.select(a < 1.0, near, c.select(a > 6.0, 1.0, far))
    return c.copysign(value, x)
