"""sin, cos, tan and their inverses. Imports `code`.

Angles are reduced to ``|r| <= pi/4`` whatever their size. Doubles: up to 100000 by a sum of three parts of pi/2 (Cody
and Waite 1980), beyond with as many bits of 2/pi as count (Payne and Hanek 1983). Floats, without a branch: by a pair
of doubles for 2/pi modulo 4 that is chosen by the size of the angle.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from math import factorial, pi

from lightnet.backends.elementary.code import (
    DIGITS,
    INFINITY,
    NAN,
    BodyText,
    Pair,
    TypedText,
    constant_pair,
    pair_multiply,
    quick_sum,
    rational_pair,
    two_product,
    two_sum,
)

#: Bits of pi behind the point; 2/pi is needed to the last bit of the largest number's reduction: 1024 + 64 + 2 * 64.
_PRECISION = 1400
#: Zero bits in front of 2/pi, so that every window of bits begins inside; bits of all.
_PAD, _TABLE_BITS = 64, 64 * 21
#: Up to here three parts of pi/2 reduce an angle.
_MEDIUM = 100000.0


@cache
def _pi() -> int:
    """pi 2^_PRECISION, by Machin's formula: 16 arctan(1/5) - 4 arctan(1/239)."""

    def arctan(n: int) -> int:
        power, total, k = (1 << _PRECISION + 32) // n, 0, 0
        while power:
            total += (-power if k % 2 else power) // (2 * k + 1)
            power, k = power // (n * n), k + 1
        return total

    return (16 * arctan(5) - 4 * arctan(239)) >> 32


def _parts_of_half_pi() -> tuple[float, float, float]:
    first, _ = rational_pair((_pi(), 1 << _PRECISION + 1))
    n, d = first.as_integer_ratio()
    rest = (_pi() * d - (n << _PRECISION + 1), d << _PRECISION + 1)
    return first, *rational_pair(rest)


def _pair_of_pi(factor: int = 1) -> tuple[float, float]:
    """pi / factor as a pair of doubles."""
    return rational_pair((_pi(), factor << _PRECISION))


def _table() -> str:
    """The bits of 2/pi behind `_PAD` zeros, in words of 64 bits, the first ones first, as a constant of LLVM."""
    bits = (1 << _PRECISION + 1 + _TABLE_BITS - _PAD) // _pi()
    words = [bits >> (_TABLE_BITS - 64 * (k + 1)) & (1 << 64) - 1 for k in range(_TABLE_BITS // 64)]
    values = ", ".join(f"i64 {word}" for word in words)
    return f"{TABLE} = internal unnamed_addr addrspace(1) constant [{len(words)} x i64] [{values}], align 8"


TABLE = "@ln.two_over_pi"


# ---- reduction -------------------------------------------------------------------------------------------------------


def _reduce(c: BodyText, x: TypedText) -> tuple[TypedText, Pair]:
    """``x = n pi/2 + r``: (n, of which the last two bits count; r)."""
    whole, hi, lo = c.choose(abs(x) <= _MEDIUM, lambda: _reduce_medium(c, x), lambda: _reduce_large(c, x))
    return whole, Pair(hi, lo)


def _reduce_medium(c: BodyText, x: TypedText) -> Sequence[TypedText]:
    """The difference with n times the first part is exact; the others make it a pair."""
    parts = _parts_of_half_pi()
    n, whole = c.round(x * (1 / parts[0]))
    second = two_product(-n, c.const(parts[1], "double"))
    r = two_sum(c.residue(x, n, parts[0]), second.hi)
    r = quick_sum(r.hi, r.lo + c.fma(-n, parts[2], second.lo))
    return whole, r.hi, r.lo


def _reduce_large(c: BodyText, x: TypedText) -> Sequence[TypedText]:
    """With ``|x| = M 2^e``, M of 53 bits, the bits of 2/pi above those of weight 2^(2 - e) give multiples of 4
    quarters: of the 192 bits behind them, taken for a fraction W, ``M W mod 1`` is x in full turns."""
    bits = c.bits(x)
    exponent = (bits >> 52) & 0x7FF
    mantissa = (bits & (1 << 52) - 1) | (1 << 52)
    start = exponent + (_PAD - 1075 - 2)
    first, second, third = _window(c, start)
    middle = mantissa * second
    low = middle + _high_product(c, mantissa, third)
    carry = c.cast("zext", c.ins("i1", f"icmp ult {low.typed}, {middle.text}"), "i64")
    high = mantissa * first + _high_product(c, mantissa, second) + carry
    # Two bits of quarters; the rest is a fraction of a quarter, from -1/2 to 1/2 when taken with its sign.
    fraction = _shifted(c, high, low, c.const(2, "i64")), low << 2
    up = fraction[0] >> 63
    r = _fraction(c, *fraction)
    negative = bits < 0
    sign = c.select(negative, c.const(-1.0, "double"), 1.0)
    whole = (high >> 62) + up
    return c.select(negative, 0 - whole, whole), r.hi * sign, r.lo * sign


def _high_product(c: BodyText, a: TypedText, b: TypedText) -> TypedText:
    """The upper 64 bits of the product of two unsigned numbers."""
    return c.cast("trunc", (c.cast("zext", a, "i128") * c.cast("zext", b, "i128")) >> 64, "i64")


def _shifted(c: BodyText, high: TypedText, low: TypedText, count: TypedText) -> TypedText:
    """The upper 64 bits of 128, shifted left by up to 63."""
    return c.call("fshl", high, low, count)


def _window(c: BodyText, start: TypedText) -> list[TypedText]:
    """192 bits of the table, from bit `start` on."""
    c.e.declared.add(_table())
    first, shift = start >> 6, start & 63
    words = []
    for k in range(4):
        address = c.ins("ptr addrspace(1)", f"getelementptr i64, ptr addrspace(1) {TABLE}, i64 {(first + k).text}")
        words.append(c.ins("i64", f"load i64, ptr addrspace(1) {address.text}, align 8"))
    return [_shifted(c, a, b, shift) for a, b in pairwise(words)]


def _fraction(c: BodyText, high: TypedText, low: TypedText) -> Pair:
    """A fraction of pi/2 with its sign, of 128 bits. The one's complement is off by the last of them; no double is so
    near a multiple of pi/2 that all of the upper 64 are zeros."""
    ones = c.signed_shift(high, 63)
    high, low = high ^ ones, low ^ ones
    zeros = c.ins("i64", c.e.call_text("llvm.ctlz.i64", "i64", [("i64", high.text), ("i1", "false")])) & 63
    high, low = _shifted(c, high, low, zeros), low << zeros
    lead = c.cast("uitofp", high & -0x800, "double") * 2.0**-64
    rest = c.cast("uitofp", ((high & 0x7FF) << 53) | (low >> 11), "double") * 2.0**-117
    scale = c.power_of_two(0 - zeros, "double")
    r = pair_multiply(Pair(lead * scale, rest * scale), constant_pair(c, _pair_of_pi(2)))
    sign = c.select(ones.equals(0), c.const(1.0, "double"), -1.0)
    return Pair(r.hi * sign, r.lo * sign)


# ---- sin, cos, tan ---------------------------------------------------------------------------------------------------


def _sin_near(c: BodyText, r: Pair) -> TypedText:
    """sin up to pi/4, by its Taylor sum; the derivative there carries the low part."""
    z = r.hi * r.hi
    tail = c.polynomial(z, [(-1) ** k / factorial(2 * k + 1) for k in range(1, 9)])
    return r.hi + c.fma(r.hi * z, tail, r.lo * (1.0 - z * 0.5))


def _cos_near(c: BodyText, r: Pair) -> TypedText:
    z = r.hi * r.hi
    half = z * 0.5
    lead = 1.0 - half
    tail = c.polynomial(z, [(-1) ** k / factorial(2 * k) for k in range(2, 9)])
    return lead + (((1.0 - lead) - half) + c.fma(z * z, tail, -(r.hi * r.lo)))


def _finite(c: BodyText, x: TypedText, result: TypedText) -> TypedText:
    return c.select(abs(x) < INFINITY, result, NAN)


def _turned(c: BodyText, n: TypedText, sin: TypedText, cos: TypedText) -> TypedText:
    """sin of n quarters more than the angle of `sin` and `cos`."""
    odd = (n & 1).differs(0)
    value = c.select(odd, cos, sin)
    return c.select((n & 2).differs(0), -value, value)


def sin(c: BodyText, x: TypedText) -> TypedText:
    n, r = _reduce(c, x)
    value = _turned(c, n, _sin_near(c, r), _cos_near(c, r))
    return _finite(c, x, c.select(abs(x) < 2.0**-27, x, value))


def cos(c: BodyText, x: TypedText) -> TypedText:
    n, r = _reduce(c, x)
    return _finite(c, x, _turned(c, n + 1, _sin_near(c, r), _cos_near(c, r)))


def tan(c: BodyText, x: TypedText) -> TypedText:
    n, r = _reduce(c, x)
    s, k = _sin_near(c, r), _cos_near(c, r)
    odd = (n & 1).differs(0)
    value = c.select(odd, -k, s) / c.select(odd, s, k)
    return _finite(c, x, c.select(abs(x) < 2.0**-27, x, value))


# ---- of float --------------------------------------------------------------------------------------------------------

#: Floats from 2^45 on are multiples of 2^22, those from 2^67 on of 2^44, …: multiples of 4 in the multiplier of 2/pi
#: count for nothing there, and what is left, times a float of 22 more bits, is below 2^47.
_STEP = 22
_FIRST = 45


@cache
def _two_over_pi() -> list[tuple[float, tuple[float, float]]]:
    """Sizes from which on a pair of doubles goes for 2/pi: ``2^-s (2^s 2/pi mod 4)``."""
    found = []
    for s in range(0, 127 - DIGITS["float"], _STEP):
        quarters = ((1 << _PRECISION + 1 + s) << _PRECISION) // _pi() % (4 << _PRECISION)
        found.append((2.0 ** (_FIRST - _STEP + s), rational_pair((quarters, 1 << _PRECISION + s))))
    return found


def _quarters(c: BodyText, x: TypedText) -> tuple[TypedText, TypedText]:
    """``x = (n + t) pi/2`` of a double that was a float, ``|t| <= 1/2``: (n, of which the last two bits count; t, to
    2^-59). A float is no nearer to a multiple of pi/2 than 2^-30."""
    size, (_, (hi, lo)), *larger = abs(x), *_two_over_pi()
    high, low = c.const(hi, x.type), c.const(lo, x.type)
    for start, (hi, lo) in larger:
        beyond = size >= start
        high, low = c.select(beyond, hi, high), c.select(beyond, lo, low)
    product = two_product(x, high)
    n, whole = c.round(product.hi)
    return whole, (product.hi - n) + c.fma(x, low, product.lo)


#: sin and cos of t quarters of a turn, to 2^-36: their Taylor sums.
_SIN_QUARTERS = [(-1) ** k * (pi / 2) ** (2 * k + 1) / factorial(2 * k + 1) for k in range(6)]
_COS_QUARTERS = [(-1) ** k * (pi / 2) ** (2 * k) / factorial(2 * k) for k in range(7)]


def _float_parts(c: BodyText, x: TypedText) -> tuple[TypedText, TypedText, TypedText]:
    """Of a float: n of its reduction, and sin and cos of the rest, in double. sin keeps the sign of a zero."""
    x = c.cast("fpext", x, "double")
    n, t = _quarters(c, x)
    z = t * t
    return n, c.select(x.equals(0.0), x, t * c.polynomial(z, _SIN_QUARTERS)), c.polynomial(z, _COS_QUARTERS)


def sin_float(c: BodyText, x: TypedText) -> TypedText:
    return c.cast("fptrunc", _turned(c, *_float_parts(c, x)), "float")


def cos_float(c: BodyText, x: TypedText) -> TypedText:
    n, s, k = _float_parts(c, x)
    return c.cast("fptrunc", _turned(c, n + 1, s, k), "float")


def tan_float(c: BodyText, x: TypedText) -> TypedText:
    n, s, k = _float_parts(c, x)
    odd = (n & 1).differs(0)
    return c.cast("fptrunc", c.select(odd, -k, s) / c.select(odd, s, k), "float")


# ---- inverses --------------------------------------------------------------------------------------------------------

#: arctan t = t + t z P(z), z = t², up to tan(pi/8): fitted to 4e-18.
_ARCTAN = (
    -0.3333333333333333, 0.19999999999999993, -0.14285714285711518, 0.11111111110754729, -0.0909090906700999,
    0.07692306736000173, -0.06666642020055166, 0.058819252531928615, -0.052580415542977606, 0.047193950300273096,
    -0.04104436265754583, 0.030635704112957938, -0.01391822929101273,
)  # fmt: skip
_EIGHTH = 2**0.5 - 1


def _arctan(c: BodyText, a: TypedText, b: TypedText) -> TypedText:
    """arctan(a/b) of numbers from 0 to infinity, b may be 0. Within an eighth of a turn of 0, of pi/4 and of pi/2 it is
    the arctangent of a/b, (a - b)/(a + b) and -b/a, and one of these angles."""
    low, high = a <= b * _EIGHTH, a > b * (1 / _EIGHTH)
    t = c.select(low, a, c.select(high, -b, a - b)) / c.select(low, b, c.select(high, a, a + b))
    z = t * t
    angle = c.fma(t * z, c.polynomial(z, _ARCTAN), t)
    quarter, half = _pair_of_pi(4), _pair_of_pi(2)
    base, rest = (c.select(low, 0.0, c.select(high, half[i], c.const(quarter[i], "double"))) for i in (0, 1))
    return c.select(low, angle, base + (rest + angle))


def atan(c: BodyText, x: TypedText) -> TypedText:
    return c.copysign(_arctan(c, abs(x), c.const(1.0, x.type)), x)


def atan2(c: BodyText, y: TypedText, x: TypedText) -> TypedText:
    a, b = abs(y), abs(x)
    large = (a > 2.0**1000) | (b > 2.0**1000)  # the sum of both is finite
    scale = c.select(large, c.const(2.0**-10, x.type), 1.0)
    angle = _arctan(c, a * scale, b * scale)
    angle = c.select(a.equals(0.0) & b.equals(0.0), 0.0, angle)
    angle = c.select(a.equals(INFINITY) & b.equals(INFINITY), _pair_of_pi(4)[0], angle)
    pi, rest = _pair_of_pi()
    angle = c.select(c.negative(x), pi - (angle - rest), angle)
    return c.copysign(c.select(c.is_nan(x) | c.is_nan(y), NAN, angle), y)


def asin(c: BodyText, x: TypedText) -> TypedText:
    a = abs(x)
    return c.copysign(_arctan(c, a, c.call("sqrt", (1.0 - a) * (a + 1.0))), x)


def acos(c: BodyText, x: TypedText) -> TypedText:
    """Twice arctan(sqrt((1 - x) / (1 + x))), in which nothing cancels."""
    return _arctan(c, c.call("sqrt", 1.0 - x), c.call("sqrt", x + 1.0)) * 2.0
