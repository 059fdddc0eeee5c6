"""Correct rounding between the floating-point formats, and fused multiply-add, on arrays. Imports NumPy.

A value is computed in float64 and *rounded to odd* (to the neighbour with an odd last bit, unless exact): rounding that
again, to nearest, into any format at least two bits shorter gives what one rounding of the exact value would. Source:
Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd", IEEE Trans.
Computers 57(4), 2008. bfloat16 has no NumPy type: here it is the upper half of a float32, in uint16.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

f16, f32, f64 = np.float16, np.float32, np.float64
u16, u32, u64 = np.uint16, np.uint32, np.uint64
#: What instructions that compute give for NaN: PTX's canonical NaNs.
NAN_BF16 = u16(0x7FFF)

Array = Any  # an array over threads, or a NumPy scalar that all of them share


def odd_sum(a: Array, b: Array) -> Array:
    """a + b of float64, rounded to odd (the error of the sum is exact: Knuth's TwoSum)."""
    s = a + b
    t = s - a
    error = (a - (s - t)) + (b - t)
    return _towards(s, error)


def _towards(s: Array, error: Array) -> Array:
    """`s`, which is nearest to s + error, rounded to odd."""
    s = np.asarray(s, f64)
    bits = s.view(np.int64)
    away = (error > 0) == (s > 0)  # the exact value is larger in magnitude than s
    odd = np.where(bits & 1, bits, np.where(away, bits + 1, bits - 1))
    inexact = (error != 0) & np.isfinite(s) & np.isfinite(error)
    return np.where(inexact, odd, bits).view(f64)


def odd32(x: Array) -> Array:
    """float64 to float32, rounded to odd; what is too large becomes the largest finite value."""
    x = np.asarray(x, f64)
    near = x.astype(f32)
    bits = near.view(u32)
    toward_zero = bits - (np.abs(near.astype(f64)) > np.abs(x))
    return np.where((near == x) | np.isnan(x), bits, toward_zero | 1).astype(u32).view(f32)


def bf16_to_f32(bits: Array) -> Array:
    """bfloat16 (uint16) to float32, exactly."""
    return (np.asarray(bits).astype(u32) << u32(16)).view(f32)


def f32_to_bf16(x: Array) -> Array:
    """float32 to bfloat16 (uint16), to nearest even; NaN becomes the canonical one."""
    x = np.asarray(x, f32)
    bits = x.view(u32)
    rounded = ((bits + u32(0x7FFF) + ((bits >> u32(16)) & u32(1))) >> u32(16)).astype(u16)
    return np.where(np.isnan(x), NAN_BF16, rounded)


def f64_to_bf16(x: Array) -> Array:
    """float64 to bfloat16 (uint16), to nearest even, rounded once."""
    return f32_to_bf16(odd32(x))


def fma32(a: Array, b: Array, c: Array) -> Array:
    """a * b + c of float32, rounded once: the product of two is exact in float64. Rounding the sum to float64 first
    does harm only where that gives the middle between two float32, or a subnormal one.
    """
    product = np.multiply(a, b, dtype=f64)
    s = np.asarray(product + c)
    middle = (s.view(np.int64) & 0x1FFFFFFF) == 0x10000000
    hard = middle | ((np.abs(s) < 2.0**-125) & (s != 0))
    return odd_sum(product, np.asarray(c, f64)).astype(f32) if hard.any() else s.astype(f32)


def fma16(a: Array, b: Array, c: Array) -> Array:
    """a * b + c of float16, rounded once."""
    return odd_sum(np.multiply(a, b, dtype=f64), np.asarray(c, f64)).astype(f16)


def fma_bf16(a: Array, b: Array, c: Array) -> Array:
    """a * b + c of bfloat16 (uint16), rounded once."""
    wide = [bf16_to_f32(x).astype(f64) for x in (a, b, c)]
    return f64_to_bf16(odd_sum(wide[0] * wide[1], wide[2]))


def fma64(a: Array, b: Array, c: Array) -> Array:
    """a * b + c of float64, rounded once (Boldo and Melquiond's algorithm); where its products could leave the range,
    with fractions.
    """
    a, b, c = np.broadcast_arrays(*(np.asarray(x, f64) for x in (a, b, c)))
    high, low = _product(a, b)
    t_high = c + low
    v = t_high - c
    t_low = (c - (t_high - v)) + (low - v)
    s_high = high + t_high
    v = s_high - high
    s_low = (high - (s_high - v)) + (t_high - v)
    result = s_high + odd_sum(t_low, s_low)
    factors = np.isfinite(a) & np.isfinite(b)
    simple = ~factors | ~np.isfinite(c) | (a == 0) | (b == 0)
    # a product that is too large is no infinity: it adds nothing to one
    result = np.where(simple, np.where(factors & ~np.isfinite(c), c, a * b + c), result)
    size = np.abs(high)
    far = (size > 2.0**960) | (size < 2.0**-900) | (np.abs(c) > 2.0**960) | _large(a) | _large(b)
    hard = far & ~simple
    for i in map(tuple, np.argwhere(hard)):
        result[i] = _exact(float(a[i]), float(b[i]), float(c[i]))
    return result


def _large(x: Array) -> Array:
    return np.abs(x) > 2.0**970  # splitting it would overflow


def _exact(a: float, b: float, c: float) -> float:
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    try:
        return float(exact)
    except OverflowError:
        return float("inf") if exact > 0 else float("-inf")


def _product(a: Array, b: Array) -> tuple[Array, Array]:
    """a * b as a sum of two float64 (Dekker and Veltkamp)."""
    high = a * b
    a1, a2 = _split(a)
    b1, b2 = _split(b)
    return high, ((a1 * b1 - high) + a1 * b2 + a2 * b1) + a2 * b2


def _split(x: Array) -> tuple[Array, Array]:
    scaled = x * 134217729.0  # 2^27 + 1
    high = scaled - (scaled - x)
    return high, x - high


def flush(x: Array) -> Array:
    """float32 with subnormal numbers replaced by zeros of their sign (``.ftz``)."""
    x = np.asarray(x, f32)
    return np.where(np.abs(x) < np.finfo(f32).tiny, np.copysign(f32(0), x), x)


def saturate(x: Array) -> Array:
    """float32 clamped to [0, 1], NaN to +0 (``.sat``)."""
    return np.where(np.isnan(x), f32(0), np.clip(x, f32(0), f32(1))) + f32(0)


def tf32_nearest_away(x: Array) -> Array:
    """float32 to the bits of tf32 (10 bits of fraction; the low 13 are 0), ties away from zero."""
    bits = np.asarray(x, f32).view(u32)
    return np.where(np.isfinite(x), (bits + u32(0x1000)) & u32(0xFFFFE000), bits)


def tf32_nearest_even(x: Array) -> Array:
    """float32 to the bits of tf32, ties to even."""
    bits = np.asarray(x, f32).view(u32)
    rounded = (bits + u32(0xFFF) + ((bits >> u32(13)) & u32(1))) & u32(0xFFFFE000)
    return np.where(np.isfinite(x), rounded, bits)


def tf32_truncated(bits: Array) -> Array:
    """The value that the tensor cores read of a 32-bit operand of type tf32, as float32."""
    return (np.asarray(bits, u32) & u32(0xFFFFE000)).view(f32)
