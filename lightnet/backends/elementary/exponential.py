"""exp, log, pow and what follows from them. Imports `code`.

Where a comment names no other source, the method is the textbook one (Muller, Elementary Functions, 2016): reduce the
argument, take a polynomial, put the parts together; sums of which one part cancels are kept as pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from math import factorial

from lightnet.backends.elementary.code import (
    BIAS,
    BITS,
    DIGITS,
    INFINITY,
    NAN,
    BodyText,
    Definition,
    Pair,
    TypedText,
    constant_pair,
    pair_add,
    pair_divide,
    pair_multiply,
    quick_sum,
    rational_pair,
    two_product,
    two_sum,
)

_DIGITS_OF_LN2 = (693147180559945309417232121458176568075500, 10**42)
_DIGITS_OF_LOG10_2 = (301029995663981195213738894724493026768190, 10**42)
_DIGITS_OF_LOG10_E = (434294481903251827651128918916605082294397, 10**42)
_DIGITS_OF_LOG2_E = (1442695040888963407359924681001892137426646, 10**42)
LN2, LN2_LOW = rational_pair(_DIGITS_OF_LN2)
LOG2_E = rational_pair(_DIGITS_OF_LOG2_E)[0]
_LOG10_2, _LOG10_E = rational_pair(_DIGITS_OF_LOG10_2)[0], rational_pair(_DIGITS_OF_LOG10_E)[0]


# ---- exponentials ----------------------------------------------------------------------------------------------------


def _reduced(c: BodyText, x: TypedText) -> tuple[TypedText, TypedText]:
    """``x = n ln 2 + r`` with ``|r| <= ln 2 / 2``: (n, as an integer; r). The difference with the leading part of ln 2
    is exact."""
    n, whole = c.round(x * LOG2_E)
    return whole, c.fma(-n, LN2_LOW, c.residue(x, n, LN2))


def exp(c: BodyText, x: TypedText) -> TypedText:
    whole, r = _reduced(c, c.clamp(x, -746.0, 710.0))
    return c.scale(c.polynomial(r, [1 / factorial(k) for k in range(14)]), whole)


def exp_float(c: BodyText, x: TypedText) -> TypedText:
    """``x = n ln 2 + r`` with ``|r| <= ln 2 / 2`` and ``exp x = 2^n exp r``; exp r is its Taylor sum to r^7 (the rest
    is below 2^-27), 2^n is two factors, so that the ends of the range come out as infinity, subnormals and 0.

    Adding `_ROUND` rounds to an integer, which then stands in the low bits of the sum: n + 254, the sum of the two
    factors' biased exponents (Schraudolph 1999 and others). Of a NaN those bits are anything, but the factor exp r is
    NaN.
    """
    x = c.clamp(x, -104.0, 89.0)
    shifted = c.fma(x, LOG2_E, _ROUND)
    n = shifted - _ROUND
    high, low = _LN2_FLOAT if c.e.has_fma else _LN2_SHORT
    r = c.fma(n, -low, c.fma(n, -high, x))
    total = c.polynomial(r, [1 / factorial(k) for k in range(8)])
    bits = c.bits(shifted)
    half = bits >> 1
    for biased in (half, bits - half):
        total = total * c.cast("bitcast", biased << 23, "float")  # what stands above is shifted out
    return total


#: 1.5 * 2^23, where neighbours of float are 1 apart, and twice the bias of an exponent.
_ROUND = 1.5 * 2**23 + 254
_LN2_FLOAT = rational_pair(_DIGITS_OF_LN2, "float")
#: Of 15 digits, so that a product with n is exact without a fused instruction; and the rest.
_LN2_SHORT = round(LN2 * 2**15) / 2**15, LN2 - round(LN2 * 2**15) / 2**15


def exp2(c: BodyText, x: TypedText) -> TypedText:
    x = c.clamp(x, -1080.0, 1030.0)
    n, whole = c.round(x)
    return c.scale(c.polynomial((x - n) * LN2, [1 / factorial(k) for k in range(14)]), whole)


def _exp2_near(c: BodyText, x: TypedText) -> TypedText:
    """``2^x`` of a double within the range of exponents, to 2^-37: for what becomes a float."""
    n, whole = c.round(x)
    return c.polynomial((x - n) * LN2, [1 / factorial(k) for k in range(10)]) * c.power_of_two(whole, "double")


def exp2_float(c: BodyText, x: TypedText) -> TypedText:
    x = c.clamp(c.cast("fpext", x, "double"), -160.0, 130.0)
    return c.cast("fptrunc", _exp2_near(c, x), "float")


def expm1(c: BodyText, x: TypedText) -> TypedText:
    """``2^n (e^r - 1) + (2^n - 1)``, at half the size, which does not overflow before the result does."""
    whole, r = _reduced(c, c.clamp(x, -50.0, 710.0))
    q = c.fma(r * r, c.polynomial(r, [1 / factorial(k) for k in range(2, 16)]), r)
    half = c.power_of_two(whole - 1, "double")
    return c.copysign(c.select(abs(x) < 0.3, q, c.fma(half, q, half - 0.5) * 2.0), x)


def sinh(c: BodyText, x: TypedText) -> TypedText:
    a = abs(x)
    e = expm1(c, a)
    root = exp(c, a * 0.5)
    return c.copysign(c.select(a < 22.0, (e + e / (e + 1.0)) * 0.5, (root * 0.5) * root), x)


def cosh(c: BodyText, x: TypedText) -> TypedText:
    a = abs(x)
    e = exp(c, a)
    root = exp(c, a * 0.5)
    return c.select(a < 22.0, e * 0.5 + 0.5 / e, (root * 0.5) * root)


# ---- logarithms ------------------------------------------------------------------------------------------------------


def _split_float(c: BodyText, x: TypedText, tiny: bool = True) -> tuple[TypedText, TypedText]:
    """``x = 2^k m`` of a positive number, m from sqrt(1/2) to sqrt(2): (k, as a float; m). Only where it may be `tiny`
    are subnormal numbers taken apart right."""
    wide, digits, bias = BITS[x.type], DIGITS[x.type], BIAS[x.type]
    small = x < 2.0 ** (2 - 2 ** (wide - digits - 2))
    if tiny:
        x = c.select(small, x * 2.0**digits, x)
    root = c.bits(c.const(0.5**0.5, x.type))
    above = c.bits(x) - root + (bias << digits)  # the exponent's field is k + bias then
    m = c.cast("bitcast", (above & (2**digits - 1)) + root, x.type)
    k = c.counted(above >> digits, x.type) - bias
    return (k - c.select(small, c.const(digits, x.type), 0.0) if tiny else k), m


def _log_near(c: BodyText, f: TypedText, terms: int) -> TypedText:
    """``log(1 + f)``. With s = f / (2 + f), it is 2 artanh s = f - f²/2 + s (f²/2 + R), R = 2 s²/3 + 2 s⁴/5 + …, of
    which the rounding of s counts little (as in Sun's fdlibm). 6 terms are right to 2^-38, 10 to 2^-59."""
    s = f / (f + 2.0)
    z = s * s
    rest = z * c.polynomial(z, [2 / (2 * n + 1) for n in range(1, terms + 1)])
    half = f * f * 0.5
    return f - (half - s * (half + rest))


def _log_of(c: BodyText, k: TypedText, f: TypedText, terms: int) -> TypedText:
    """``k ln 2 + log(1 + f)``."""
    return c.fma(k, LN2, c.fma(k, LN2_LOW, _log_near(c, f, terms)))


def _log_ends(c: BodyText, x: TypedText, result: TypedText) -> TypedText:
    """The logarithm of 0 is minus infinity, of infinity infinity, of what is below 0 or NaN NaN."""
    result = c.select(x.equals(INFINITY), INFINITY, result)
    result = c.select(x.equals(0.0), -INFINITY, result)
    return c.select(x >= 0.0, result, NAN)


def log(c: BodyText, x: TypedText) -> TypedText:
    k, m = _split_float(c, x)
    return _log_ends(c, x, _log_of(c, k, m - 1.0, 10))


def _in_float(base: Callable[[BodyText, TypedText, TypedText], TypedText]) -> Definition:
    """A logarithm of float, in double: `base` makes it of k and log m to 2^-38, where ``x = 2^k m``."""

    def log(c: BodyText, x: TypedText) -> TypedText:
        x = c.cast("fpext", x, "double")
        k, m = _split_float(c, x, tiny=False)
        return c.cast("fptrunc", _log_ends(c, x, base(c, k, _log_near(c, m - 1.0, 6))), "float")

    return log


log_float = _in_float(lambda c, k, log_m: c.fma(k, LN2, log_m))
log2_float = _in_float(lambda c, k, log_m: c.fma(log_m, LOG2_E, k))
log10_float = _in_float(lambda c, k, log_m: c.fma(k, _LOG10_2, log_m * _LOG10_E))


def log1p(c: BodyText, x: TypedText) -> TypedText:
    """The logarithm of 1 + x, with what the sum loses added to m - 1 again."""
    total = two_sum(c.const(1.0, x.type), x)
    k, m = _split_float(c, total.hi)
    _, whole = c.round(c.clamp(k, -100.0, 100.0))  # beyond 2^100 nothing is lost that counts
    f = (m - 1.0) + total.lo * c.power_of_two(0 - whole, x.type)
    return c.copysign(_log_ends(c, x + 1.0, _log_of(c, k, f, 10)), x)


def _log_pair(c: BodyText, x: TypedText) -> tuple[TypedText, Pair]:
    """``x = 2^k m`` and log m as a pair, to 2^-70: ``2 s (1 + z/3 + z²/5 + …)``, the leading coefficients as pairs."""
    k, m = _split_float(c, x)
    zero = c.const(0.0, x.type)
    f = m - 1.0
    s = pair_divide(Pair(f, zero), two_sum(c.const(2.0, x.type), f))
    z = pair_multiply(s, s)
    tail = c.polynomial(z.hi, [1 / (2 * n + 1) for n in range(3, 15)])
    total = Pair(tail, zero)
    for n in (2, 1, 0):
        total = pair_add(_constant(c, (1, 2 * n + 1)), pair_multiply(z, total))
    total = pair_multiply(s, total)
    return k, Pair(total.hi * 2.0, total.lo * 2.0)


def _constant(c: BodyText, number: tuple[int, int]) -> Pair:
    return constant_pair(c, rational_pair(number))


def _log_base(c: BodyText, x: TypedText, two: tuple[int, int], e: tuple[int, int]) -> TypedText:
    """``k log 2 + log m`` to another base, of which the logarithms of 2 and e are given."""
    k, m = _log_pair(c, x)
    zero = c.const(0.0, x.type)
    total = pair_add(pair_multiply(Pair(k, zero), _constant(c, two)), pair_multiply(m, _constant(c, e)))
    return _log_ends(c, x, total.hi)


def log2(c: BodyText, x: TypedText) -> TypedText:
    return _log_base(c, x, (1, 1), _DIGITS_OF_LOG2_E)


def log10(c: BodyText, x: TypedText) -> TypedText:
    return _log_base(c, x, _DIGITS_OF_LOG10_2, _DIGITS_OF_LOG10_E)


def asinh(c: BodyText, x: TypedText) -> TypedText:
    a = abs(x)
    near = log1p(c, a + a * a / (c.call("sqrt", a * a + 1.0) + 1.0))
    return c.copysign(c.select(a < 2.0**28, near, log(c, a) + LN2), x)


def acosh(c: BodyText, x: TypedText) -> TypedText:
    t = x - 1.0
    near = log1p(c, t + c.call("sqrt", t * 2.0 + t * t))
    return c.select(x >= 1.0, c.select(x < 2.0**28, near, log(c, x) + LN2), NAN)


def atanh(c: BodyText, x: TypedText) -> TypedText:
    a = abs(x)
    return c.copysign(log1p(c, a * 2.0 / (1.0 - a)) * 0.5, x)


# ---- powers ----------------------------------------------------------------------------------------------------------


def pow(c: BodyText, x: TypedText, y: TypedText) -> TypedText:
    """``exp(y log |x|)`` in pairs, to 0.51 units in the last place: what is exact comes out exact, since powers of
    integers are made of it. The other cases are those of C (Annex F)."""
    k, log_m = _log_pair(c, abs(x))
    zero = c.const(0.0, x.type)
    total = pair_add(pair_multiply(Pair(k, zero), _constant(c, _DIGITS_OF_LN2)), log_m)
    product = two_product(total.hi, c.clamp(y, -(2.0**80), 2.0**80))  # a logarithm that is not 0 is above 2^-54
    exponent = product.hi
    inside = abs(exponent) < 760.0
    low = c.select(inside, c.fma(total.lo, y, product.lo), 0.0)
    result = _exp_pair(c, c.select(inside, exponent, 0.0), low)
    result = c.select(inside, result, c.select(exponent > 0.0, INFINITY, zero))
    return _power_ends(c, x, y, result)


def pow_float(c: BodyText, x: TypedText, y: TypedText) -> TypedText:
    """``2^(y log2 |x|)``, in double: the logarithm's error of 2^-38, 150 times at most, is 2^-31 of the result."""
    x, y = (c.cast("fpext", v, "double") for v in (x, y))
    k, m = _split_float(c, abs(x), tiny=False)
    exponent = c.clamp(y * c.fma(_log_near(c, m - 1.0, 6), LOG2_E, k), -160.0, 130.0)
    return c.cast("fptrunc", _power_ends(c, x, y, _exp2_near(c, exponent)), "float")


def _exp_pair(c: BodyText, hi: TypedText, lo: TypedText) -> TypedText:
    n, whole = c.round(hi * LOG2_E)
    r = two_sum(c.residue(hi, n, LN2), c.fma(-n, LN2_LOW, lo))
    square = two_product(r.hi, r.hi)
    cube = square.hi * r.hi * c.polynomial(r.hi, [1 / factorial(k) for k in range(3, 16)])
    first = two_sum(c.const(1.0, hi.type), r.hi)
    second = quick_sum(first.hi, square.hi * 0.5)
    low = first.lo + (second.lo + (square.lo * 0.5 + (r.lo + (r.lo * r.hi + cube))))
    return c.scale(second.hi + low, whole)


def _power_ends(c: BodyText, x: TypedText, y: TypedText, result: TypedText) -> TypedText:
    """``x^y``, where `result` is ``|x|^y`` of finite numbers other than 0."""
    a, one = abs(x), c.const(1.0, x.type)
    b = abs(y)
    half = b * 0.5
    whole = c.whole_part(b).equals(b) & (b < INFINITY)
    odd = whole & c.whole_part(half).differs(half)
    end = a.equals(0.0) | a.equals(INFINITY)
    result = c.select(end, c.select(a.equals(0.0) ^ (y < 0.0), 0.0, c.const(INFINITY, x.type)), result)
    infinite = c.select((a > 1.0) ^ (y < 0.0), c.const(INFINITY, x.type), 0.0)
    result = c.select(b.equals(INFINITY), c.select(a.equals(1.0), one, infinite), result)
    result = c.select(c.negative(x) & odd, -result, result)
    undefined = (x < 0.0) & ~whole & (a < INFINITY) & (b < INFINITY)
    result = c.select(undefined | c.is_nan(x) | c.is_nan(y), NAN, result)
    return c.select(x.equals(1.0) | y.equals(0.0), one, result)


def cbrt(c: BodyText, x: TypedText) -> TypedText:
    """A third of the logarithm, and one step of Newton's method, whose residue is exact, on numbers far from the ends
    of the range."""
    a = abs(x)
    small = a < 1.0
    a = a * c.select(small, c.const(2.0**300, x.type), 2.0**-300)
    y = exp(c, log(c, a) * (1 / 3))
    square = two_product(y, y)
    rest = square.lo * y - c.residue(a, square.hi, y)
    y = (y - rest / (square.hi * 3.0)) * c.select(small, c.const(2.0**-100, x.type), 2.0**100)
    keep = x.equals(0.0) | abs(x).equals(INFINITY) | c.is_nan(x)
    return c.select(keep, x, c.copysign(y, x))
