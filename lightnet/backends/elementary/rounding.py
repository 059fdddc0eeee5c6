"""Rounding to whole numbers where the processor has no instruction for it (x86-64 without SSE4.1). Imports `code`.

LLVM calls libm there, an element a time. Results are exact, zeros keep their signs, NaN and infinities stay.
"""

from __future__ import annotations

from lightnet.backends.elementary.code import Code, Value


def roundeven(c: Code, x: Value) -> Value:
    return c.copysign(c.whole_part(abs(x)), x)


def floor(c: Code, x: Value) -> Value:
    near = roundeven(c, x)
    return c.copysign(near - c.select(near > x, c.const(1.0, x.type), 0.0), x)


def ceil(c: Code, x: Value) -> Value:
    return -floor(c, -x)


def trunc(c: Code, x: Value) -> Value:
    return c.copysign(floor(c, abs(x)), x)


def round(c: Code, x: Value) -> Value:
    """Halves go away from 0."""
    below = floor(c, abs(x))
    return c.copysign(below + c.select(abs(x) - below >= 0.5, c.const(1.0, x.type), 0.0), x)
