"""Rounding to whole numbers where the processor has no instruction for it (x86-64 without SSE4.1). Imports `code`.

LLVM calls libm there, an element a time. Results are exact, zeros keep their signs, NaN and infinities stay.
"""

from __future__ import annotations

from lightnet.backends.elementary.code import BodyText, TypedText


def roundeven(c: BodyText, x: TypedText) -> TypedText:
    return c.copysign(c.whole_part(abs(x)), x)


def floor(c: BodyText, x: TypedText) -> TypedText:
    near = roundeven(c, x)
    return c.copysign(near - c.select(near > x, c.const(1.0, x.type), 0.0), x)


def ceil(c: BodyText, x: TypedText) -> TypedText:
    return -floor(c, -x)


def trunc(c: BodyText, x: TypedText) -> TypedText:
    return c.copysign(floor(c, abs(x)), x)


def round(c: BodyText, x: TypedText) -> TypedText:
    """Halves go away from 0."""
    below = floor(c, abs(x))
    return c.copysign(below + c.select(abs(x) - below >= 0.5, c.const(1.0, x.type), 0.0), x)
