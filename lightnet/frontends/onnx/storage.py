"""Element types that models store in and nothing computes in: integers of 2 and 4 bits, floats of 4 and 8.

A tensor of such a type is held in a type that holds every value of it exactly (i8, ui8, f32), and marked: `Value.storage` names the type, which
says what a cast to it rounds and saturates to. So what is behind a cast or a QuantizeLinear needs to know nothing of it. Imports NumPy and the graph
builder.

Source: onnx.proto (how elements are packed); ONNX's Cast (how floats of 8 bits round); the OCP formats of 8-bit floats, 2023.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from lightnet.frontends.graph import Graph, Value


@dataclass(frozen=True)
class Storage:
    """A type of `bits` bits: integers (`mantissa` is None), or floats with so many bits of mantissa and an exponent that is biased by `bias`. `kind` says what a
    float has beside numbers: ``ieee`` infinities and NaN, ``fn`` one NaN of each sign, ``fnuz`` one NaN and no negative zero, ``none`` neither,
    ``e8m0`` powers of two and one NaN."""

    name: str
    bits: int
    signed: bool = True
    mantissa: int | None = None
    bias: int = 0
    kind: str = ""

    @property
    def carrier(self) -> str:
        """Our type that holds every value."""
        return "f32" if self.is_float else "i8" if self.signed else "ui8"

    @property
    def is_float(self) -> bool:
        return self.mantissa is not None

    @property
    def limits(self) -> tuple[float, float]:
        """The lowest and the highest finite value."""
        if not self.is_float:
            return (-(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1) if self.signed else (0, (1 << self.bits) - 1)
        values = self.values()
        return float(values[np.isfinite(values)].min()), float(values[np.isfinite(values)].max())

    def values(self) -> np.ndarray:
        """The value of each pattern of bits, in `carrier`'s type."""
        return _values(self)

    def decoded(self, data: np.ndarray, count: int) -> np.ndarray:
        """The first `count` elements of packed bytes, the lowest bits first."""
        if self.bits < 8:
            shifts = np.arange(0, 8, self.bits, dtype=np.uint8)
            data = ((data[:, None] >> shifts) & ((1 << self.bits) - 1)).reshape(-1)[:count]
        return self.values()[data]

    def size(self, count: int) -> int:
        """The bytes that `count` elements take."""
        return -(-count * self.bits // 8)


@cache
def _values(s: Storage) -> np.ndarray:
    code = np.arange(1 << s.bits)
    if s.mantissa is None:
        signed = np.where(code >> (s.bits - 1), code - (1 << s.bits), code) if s.signed else code
        return signed.astype(s.carrier.replace("ui8", "u1").replace("i8", "i1"))
    if s.kind == "e8m0":
        return np.where(code == 255, np.nan, 2.0 ** (code - s.bias)).astype(np.float32)
    sign = np.where(code >> (s.bits - 1), -1.0, 1.0)
    low = code & ((1 << (s.bits - 1)) - 1)
    exponent, fraction = low >> s.mantissa, (low & ((1 << s.mantissa) - 1)) / (1 << s.mantissa)
    number = sign * np.where(exponent == 0, fraction * 2.0 ** (1 - s.bias), (1 + fraction) * 2.0 ** (exponent - s.bias))
    top = exponent == (1 << (s.bits - 1 - s.mantissa)) - 1
    if s.kind == "ieee":
        number = np.where(top, np.where(fraction == 0, sign * np.inf, np.nan), number)
    elif s.kind == "fn":
        number = np.where(top & (fraction == 1 - 0.5**s.mantissa), np.nan, number)
    elif s.kind == "fnuz":
        number = np.where(code == 1 << (s.bits - 1), np.nan, number)
    return number.astype(np.float32)


STORAGE = {s.name: s for s in (
    Storage("INT4", 4), Storage("UINT4", 4, signed=False), Storage("INT2", 2), Storage("UINT2", 2, signed=False),
    Storage("FLOAT8E4M3FN", 8, mantissa=3, bias=7, kind="fn"), Storage("FLOAT8E4M3FNUZ", 8, mantissa=3, bias=8, kind="fnuz"),
    Storage("FLOAT8E5M2", 8, mantissa=2, bias=15, kind="ieee"), Storage("FLOAT8E5M2FNUZ", 8, mantissa=2, bias=16, kind="fnuz"),
    Storage("FLOAT8E8M0", 8, mantissa=0, bias=127, kind="e8m0"), Storage("FLOAT4E2M1", 4, mantissa=1, bias=1, kind="none"),
)}  # fmt: skip

#: Ops that move elements: what they give is of the type of their first input.
MOVES = frozenset(
    {
        "Reshape",
        "Transpose",
        "Identity",
        "Squeeze",
        "Unsqueeze",
        "Flatten",
        "Slice",
        "Gather",
        "Expand",
        "Concat",
        "Split",
        "Tile",
    }
)
#: Those and the ops that know of storage types.
AWARE = MOVES | {"Cast", "CastLike", "DequantizeLinear", "QuantizeLinear", "Shape", "Size"}


def marked(x: Value, storage: str | None) -> Value:
    """`x`, which holds values of a storage type (or, with None, numbers); a value of its own, for another use of `x` may not."""
    if x.storage == storage:
        return x
    value = x.twin()
    value.storage = storage
    return value


def moved(found: Any, storage: str) -> Any:
    """What an op of `MOVES` gives, marked."""
    return [marked(v, storage) for v in found] if isinstance(found, tuple | list) else marked(found, storage)


def stored(g: Graph, x: Value, storage: str, saturate: bool = True, wrap: bool = False) -> Value:
    """Numbers, rounded to a storage type. An integer that is too large wraps with `wrap`, else saturates; so does a float with `saturate`, else it
    becomes an infinity or NaN."""
    s = STORAGE[storage]
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


def _rounded(g: Graph, x: Value, s: Storage, saturate: bool) -> Value:
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
    return g.op("add", y, g.scalar(0, "f32")) if s.kind == "fnuz" else y  # -0 + 0 = 0
