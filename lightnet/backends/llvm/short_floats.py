"""f16 and bf16 in LLVM IR: conversions without library calls, and arithmetic on them in float. Part of the emitter.

LLVM turns ``fpext`` and ``fptrunc`` of these types into calls of a compiler's run-time library (``__truncsfbf2``, …)
wherever the processor has no instruction, and neither a JIT nor an object file of ours links that. So bfloat, the upper
half of a float, is shifted, and half is converted by the processor where it can (F16C, AVX-512, AArch64) and else by
integer arithmetic. All of it vectorises.
"""

from __future__ import annotations

import re

from lightnet.backends.elementary.code import BodyText, TypedText
from lightnet.backends.llvm.function import FunctionEmitter

#: The element types that values are stored in, and not computed in.
SHORT_TYPES = ("half", "bfloat")
#: The name here of the bfloats that the processor's instruction multiplies, which stay such.
MULTIPLIED = "brain"


def element_text(type: str) -> str:
    """The element type of a scalar's or a vector's type."""
    return type[1:-1].partition(" x ")[2] if type.startswith("<") else type


def is_short(type: str) -> bool:
    return element_text(type) in SHORT_TYPES


def widen(e: FunctionEmitter, x: str, elem: str, lanes: int) -> str:
    """A half or bfloat as a float; exact."""
    c = BodyText(e, lanes)
    short = TypedText(c, elem, x)
    if elem == "half" and e.has_half:
        return c.cast("fpext", short, "float").text
    bits = c.cast("zext", c.cast("bitcast", short, "i16"), "i32")
    if elem == "bfloat":
        return c.cast("bitcast", bits << 16, "float").text
    magnitude = (bits & 0x7FFF) << 13
    # The exponent's bias is 112 less: a product puts that right for subnormal numbers too.
    scaled = c.cast("bitcast", magnitude, "float") * 2.0**112
    special = magnitude.compare("", "uge", 0x7C00 << 13)  # infinity, NaN
    finite = c.bits(scaled)
    value = c.select(special, magnitude | 0x7F800000, finite)
    return c.cast("bitcast", value | ((bits & 0x8000) << 16), "float").text


def short_float(e: FunctionEmitter, x: str, elem: str, lanes: int) -> str:
    """A float as a half or bfloat: to nearest, ties to even, overflow to infinity; a NaN stays one."""
    c = BodyText(e, lanes)
    value = TypedText(c, "float", x)
    if (elem == "half" and e.has_half) or (elem == "bfloat" and e.has_bfloat):
        return c.cast("fptrunc", value, elem).text
    if elem == "bfloat" and e.dots.bfloats and e.tiled and lanes in (8, 16):
        floats, made = f"<{lanes} x float>", f"<{lanes} x {MULTIPLIED}>"
        found = e.ins(e.call_text(f"llvm.x86.avx512bf16.cvtneps2bf16.{32 * lanes}", made, [(floats, x)]))
        return e.ins(f"bitcast {made} {found} to <{lanes} x {elem}>")
    bits = c.bits(value)
    short = _to_bfloat(c, value, bits) if elem == "bfloat" else _to_half(c, bits)
    return c.cast("bitcast", c.cast("trunc", short, "i16"), elem).text


def _to_bfloat(c: BodyText, x: TypedText, bits: TypedText) -> TypedText:
    odd = (bits >> 16) & 1
    rounded = ((bits + 0x7FFF) + odd) >> 16
    quiet = (bits >> 16) | 0x40  # rounding up could carry a NaN to infinity
    return c.select(x.compare("uno", "", 0.0), quiet, rounded)


def _to_half(c: BodyText, bits: TypedText) -> TypedText:
    magnitude = bits & 0x7FFFFFFF
    odd = (magnitude >> 13) & 1
    result = ((magnitude + (0xFFF - (112 << 23))) + odd) >> 13
    # Below 2^-14, the sum with 1/2 has the subnormal number in its last bits, rounded by the addition.
    subnormal = c.bits(c.cast("bitcast", magnitude, "float") + 0.5) - 0x3F000000
    result = c.select(magnitude.compare("", "ult", 0x38800000), subnormal, result)
    result = c.select(magnitude.compare("", "uge", 0x477FF000), 0x7C00, result)  # 65520 rounds to infinity
    nan = ((magnitude >> 13) & 0x3FF) | 0x7E00
    result = c.select(magnitude.compare("", "ugt", 0x7F800000), nan, result)
    return result | ((bits >> 16) & 0x8000)


def to_odd(e: FunctionEmitter, x: str, lanes: int) -> str:
    """A double as a float rounded to odd: rounding that again rounds the double right (Boldo and Melquiond, 2008)."""
    c = BodyText(e, lanes)
    value = TypedText(c, "double", x)
    near = c.cast("fptrunc", value, "float")
    back = c.cast("fpext", near, "double")
    far, size = abs(back), abs(value)
    above = c.cast("zext", far > size, "i32")
    bits = c.bits(near)
    odd = (bits - above) | 1
    return c.cast("bitcast", c.select(back.equals(value), bits, odd), "float").text


def bfloats_as_bits(text: str) -> str:
    """A text in which a bfloat is the i16 of its bits. Nothing computes on one here; and of values
    and vectors that only pass through, in a phi or a select, LLVM makes calls of a run-time library that nobody links
    or, for AVX512-BF16, ends the process."""
    if "bfloat" in text:
        text = _BFLOAT_NAMES.sub(r"\1i16", text).replace("bfloat", "i16").replace("0xR", "u0x")
    return text.replace(f"x {MULTIPLIED}>", "x bfloat>")


#: bf16 at the end of an intrinsic's name or before its next type: `@llvm.masked.load.v8bf16.p0`.
_BFLOAT_NAMES = re.compile(r"(@llvm\.[\w.]*?\.(?:v\d+)?)bf16\b")
