"""Element types that models store in and nothing computes in: integers of 2 and 4 bits, floats of 4 and 8
(`runtime/stored.py`).

Inside of a network a tensor of such a type is held in a type that holds every value of it exactly (i8, ui8, f32), and
marked: `Value.storage` names the type, which says what a cast to it rounds and saturates to. So what is behind a cast
or a QuantizeLinear needs to know nothing of it. Where a tensor enters or leaves the network it is of the type itself, a
byte for each element: `entered` and `left` are the conversions, out of ops that every target has. Imports NumPy, the
formats and the graph builder.

Source: ONNX's Cast (how floats of 8 bits round; what rounding to powers of two does).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lightnet.frontends.graph import Graph, Value
from lightnet.runtime.stored import FORMATS, StoredFormat

#: Ops that move elements: what they give is of the type of their first input.
MOVES = frozenset(("Reshape", "Transpose", "Identity", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Gather", "Expand",
                   "Concat", "Split", "Tile"))  # fmt: skip
#: Those and the ops that know of storage types.
AWARE = MOVES | {"Cast", "CastLike", "DequantizeLinear", "QuantizeLinear", "BitCast", "Shape", "Size"}


def marked(x: Value, storage: str | None) -> Value:
    """`x`, which holds values of a storage type (or, with None, numbers); a value of its own, for another use of `x`
    may not."""
    if x.storage == storage:
        return x
    value = x.twin()
    value.storage = storage
    return value


def moved(found: Any, storage: str) -> Any:
    """The result of an op of `MOVES`, marked."""
    return [marked(v, storage) for v in found] if isinstance(found, tuple | list) else marked(found, storage)


#: How numbers are rounded to powers of two (f8E8M0FNU): what is added to the bits of a float before those of its
#: fraction are dropped.
ROUND_MODES = {"up": 0x7FFFFF, "nearest": 0x400000, "down": 0}


def stored(
    g: Graph, x: Value, storage: str, saturate: bool = True, wrap: bool = False, round_mode: str = "up"
) -> Value:
    """Numbers, rounded to a storage type. An integer that is too large wraps with `wrap`, else saturates; so does a
    float with `saturate`, else it becomes an infinity or NaN. `round_mode` is one of `ROUND_MODES`."""
    s = FORMATS[storage]
    if s.kind == "e8m0":
        return marked(_power_of_two(g, g.cast(x, "f32"), saturate, ROUND_MODES[round_mode]), storage)
    if s.is_float:
        return marked(_rounded(g, g.cast(x, "f32"), s, saturate), storage)
    low, high = s.limits
    if wrap:
        whole = x if not x.dtype.is_float else g.cast(x, "i32")
        whole = g.op("bit_and", g.cast(whole, "i32"), g.scalar((1 << s.bits) - 1, "i32"))
        if s.signed:
            half = g.scalar(1 << (s.bits - 1), "i32")
            whole = g.op("sub", g.op("bit_xor", whole, half), half)
    else:
        whole = g.op("minimum", g.op("maximum", x, g.scalar(low, x.dtype)), g.scalar(high, x.dtype))
    return marked(g.cast(whole, s.carrier), storage)


def _rounded(g: Graph, x: Value, s: StoredFormat, saturate: bool) -> Value:
    """To the nearest float of `s`, ties to even: a multiple of the distance between those near x, a power of two."""
    assert s.mantissa is not None
    low, high = s.limits
    bits = g.op("bitcast", g.op("abs", x), dtype="TL_INT32")
    exponent = g.op(
        "maximum",
        g.op("shift_right", g.op("bitcast", bits, dtype="TL_UINT32"), g.scalar(23, "ui32")),
        g.scalar(128 - s.bias, "ui32"),
    )
    exponent = g.op("minimum", exponent, g.scalar(254, "ui32"))
    step = g.op(
        "bitcast",
        g.op("shift_left", g.op("sub", exponent, g.scalar(s.mantissa, "ui32")), g.scalar(23, "ui32")),
        dtype="TL_FLOAT",
    )
    y = g.op("mul", g.op("round_even", g.op("div", x, step)), step)
    top, bottom = g.scalar(high, "f32"), g.scalar(low, "f32")
    over, under = g.op("less", top, y), g.op("less", y, bottom)
    if saturate or s.kind == "none":
        y = g.op("where", over, top, g.op("where", under, bottom, y))
    elif s.kind == "ieee":
        y = g.op("where", over, g.scalar(np.inf, "f32"), g.op("where", under, g.scalar(-np.inf, "f32"), y))
    else:
        y = g.op("where", g.op("bit_or", over, under), g.scalar(np.nan, "f32"), y)
    if s.kind == "none":  # there is no NaN: as an integer, it is 0
        y = g.op("where", g.op("equal", x, x), y, g.scalar(0, "f32"))
    return g.op("add", y, g.scalar(0, "f32")) if s.kind == "fnuz" else y  # -0 + 0 = 0


def _power_of_two(g: Graph, x: Value, saturate: bool, rounding: int) -> Value:
    """To a power of two between 2^-127 and 2^127; what is beyond is NaN unless it saturates, and a sign does not
    count."""

    def word(value: int) -> Value:
        return g.scalar(value, "ui32")

    size = g.op("bit_and", g.op("bitcast", g.op("bitcast", x, dtype="TL_INT32"), dtype="TL_UINT32"), word(0x7FFFFFFF))
    code = g.op("shift_right", g.op("add", size, word(rounding)), word(23))
    code = g.op("where", g.op("less_equal", size, word(0x400000)), word(0), code)  # 2^-127, which is denormal
    if saturate:
        code = g.op("minimum", code, word(254))
    else:
        code = g.op("where", g.op("less", size, word(0x400000)), word(255), code)
    code = g.op("where", g.op("equal", x, x), code, word(255))
    bits = g.op("shift_left", code, word(23))
    bits = g.op("where", g.op("equal", code, word(0)), word(0x400000), bits)
    bits = g.op("where", g.op("less", code, word(255)), bits, word(0x7FC00000))
    return g.op("bitcast", bits, dtype="TL_FLOAT")


# -- where a tensor enters or leaves the network


def entered(g: Graph, x: Value) -> Value:
    """The values of a tensor whose type is a storage type, marked; any other tensor as it is."""
    if not x.dtype.is_stored:
        return x
    s = FORMATS[x.dtype.name]
    code = g.op("bitcast", x, dtype="TL_UINT8")
    if s.is_float:
        table = g.table((256,), "f32", lambda: s.decoded(np.arange(256, dtype=np.uint8)))
        value = g.op("take", table, g.cast(code, "i32"), axis=0)
    elif s.signed:  # copies of the sign bit take the place of the bits that do not count
        shift = g.scalar(8 - s.bits, "i8")
        value = g.op("shift_right", g.op("shift_left", g.op("bitcast", code, dtype="TL_INT8"), shift), shift)
    else:
        value = g.op("bit_and", code, g.scalar((1 << s.bits) - 1, "ui8"))
    return marked(value, x.dtype.name)


def left(g: Graph, x: Value) -> Value:
    """A marked tensor in its storage type; any other as it is."""
    if x.storage is None:
        return x
    s = FORMATS[x.storage]
    if s.is_float:
        code = _float_code(g, x, s)
    else:
        code = g.op("bitcast", x, dtype="TL_UINT8") if s.signed else x
        code = g.op("bit_and", code, g.scalar((1 << s.bits) - 1, "ui8")) if s.signed else code
    return g.op("bitcast", code, dtype=s.dtype.tl)


def _float_code(g: Graph, x: Value, s: StoredFormat) -> Value:
    """The bytes of floats that are values of `s` (f32 -> ui8). Exponents are those of f32 under another bias; below the
    least normal number, the code is the number in units of the least one."""
    assert s.mantissa is not None
    bits = g.op("bitcast", g.op("bitcast", x, dtype="TL_INT32"), dtype="TL_UINT32")
    size = g.op("bit_and", bits, g.scalar(0x7FFFFFFF, "ui32"))
    number = g.op("bitcast", size, dtype="TL_FLOAT")
    normal = g.op("shift_right", size, g.scalar(23 - s.mantissa, "ui32"))
    normal = g.op("sub", normal, g.scalar((127 - s.bias) << s.mantissa, "ui32"))
    small = g.cast(g.op("mul", number, g.scalar(2.0 ** min(s.bias - 1 + s.mantissa, 127), "f32")), "ui32")
    code = g.op("where", g.op("less", number, g.scalar(2.0 ** (1 - s.bias), "f32")), small, normal)
    if s.kind == "ieee":
        code = g.op("where", g.op("equal", number, g.scalar(np.inf, "f32")), g.scalar(0x7C, "ui32"), code)
    nan = g.op("where", g.op("equal", number, number), code, g.scalar(s.nan, "ui32"))
    if s.kind != "e8m0":
        sign = g.op("shift_left", g.op("shift_right", bits, g.scalar(31, "ui32")), g.scalar(s.bits - 1, "ui32"))
        nan = g.op("bit_or", nan, sign)
    return g.cast(nan, "ui8", mode="wrap")
