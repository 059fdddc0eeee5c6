"""The meaning of the bytes of the types in `dtypes.STORED`: integers of 2 and 4 bits, floats of 4 and 8, one element a
byte.

`FORMATS` has each by its name. An element decodes to a type that holds every value of it exactly
(`StoredFormat.carrier`: i8, ui8 or f32), and numbers encode to the nearest element. ml_dtypes, which has the same types
for NumPy, is not needed here. Imports NumPy and the types.

Source: the OCP formats of 8-bit floats (2023) and of microscaling (2023); onnx.proto for how files pack elements.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from lightnet.dataclasses import dataclass
from lightnet.runtime.dtypes import BY_NAME, DType


@dataclass(frozen=True)
class StoredFormat:
    """A type of `bits` bits: integers (`mantissa` is None), or floats with so many bits of mantissa and an exponent
    that is biased by `bias`. `kind` says what a float has beside numbers: ``ieee`` infinities and NaN, ``fn`` one NaN
    of each sign, ``fnuz`` one NaN and no negative zero, ``none`` neither, ``e8m0`` powers of two and one NaN."""

    name: str
    bits: int
    signed: bool = True
    mantissa: int | None = None
    bias: int = 0
    kind: str = ""

    @property
    def dtype(self) -> DType:
        """The type whose elements these are."""
        return BY_NAME[self.name]

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

    @property
    def nan(self) -> int:
        """The code of NaN (of the positive one); of a type without one, that of 0."""
        return {"ieee": 0x7E, "fn": 0x7F, "fnuz": 0x80, "e8m0": 0xFF}.get(self.kind, 0)

    def values(self) -> np.ndarray:
        """The value of each pattern of bits, in `carrier`'s type."""
        return _values(self)

    def decoded(self, array: np.ndarray) -> np.ndarray:
        """The values of elements (bytes, or ml_dtypes' type), in `carrier`'s type; bits of a byte beyond the type's do
        not count."""
        codes = np.ascontiguousarray(array).view(np.uint8).reshape(np.shape(array))
        return self.values()[codes & ((1 << self.bits) - 1)]

    def encoded(self, numbers: np.ndarray) -> np.ndarray:
        """The nearest elements, as an array of the type: ties go to the even code, what is too large to the largest
        finite value; a fraction of an integer is dropped. NaN becomes NaN where there is one, else 0."""
        with np.errstate(all="ignore"):
            wide = np.asarray(numbers).astype(np.float64)
            if self.is_float:
                codes = self._nearest(wide)
            else:
                whole = np.clip(np.where(np.isnan(wide), 0, np.trunc(wide)), *self.limits).astype(np.int64)
                codes = whole & ((1 << self.bits) - 1)
        return codes.astype(np.uint8).view(self.dtype.np)

    def _nearest(self, wide: np.ndarray) -> np.ndarray:
        signed = self.kind != "e8m0"
        grid = self.values()[: 1 << (self.bits - signed)].astype(np.float64)
        grid = grid[np.isfinite(grid)]  # rises with the code
        size = np.minimum(np.abs(wide) if signed else np.maximum(wide, grid[0]), grid[-1])
        above = np.searchsorted(grid, np.where(np.isnan(wide), 0.0, size))
        below = np.maximum(above - 1, 0)
        near, far = size - grid[below], grid[above] - size
        codes = np.where((far < near) | ((far == near) & (above % 2 == 0)), above, below)
        negative = np.signbit(wide) & signed & ((self.kind != "fnuz") | (codes != 0))
        codes = codes | (negative.astype(np.int64) << (self.bits - 1))
        nan = self.nan | np.where(np.signbit(wide) & (self.kind in ("ieee", "fn")), 1 << (self.bits - 1), 0)
        return np.where(np.isnan(wide), nan, codes)

    def unpacked(self, data: np.ndarray, count: int) -> np.ndarray:
        """The values of the first `count` elements of a file's packed bytes, the lowest bits first."""
        if self.bits < 8:
            shifts = np.arange(0, 8, self.bits, dtype=np.uint8)
            data = ((data[:, None] >> shifts) & ((1 << self.bits) - 1)).reshape(-1)[:count]
        return self.values()[data]

    def packed(self, numbers: np.ndarray) -> bytes:
        """The bytes of these elements in a file."""
        codes = self.encoded(numbers).reshape(-1).view(np.uint8) & ((1 << self.bits) - 1)
        each = 8 // self.bits
        rows = np.concatenate([codes, np.zeros(-len(codes) % each, np.uint8)]).reshape(-1, each)
        return (
            np.bitwise_or.reduce(rows << np.arange(0, 8, self.bits, dtype=np.uint8), axis=1).astype(np.uint8).tobytes()
        )

    def packed_size(self, count: int) -> int:
        """The bytes that `count` elements take in a file."""
        return -(-count * self.bits // 8)


@cache
def _values(s: StoredFormat) -> np.ndarray:
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
        number = np.where(top, np.where(fraction == 0, sign * np.inf, np.copysign(np.nan, sign)), number)
    elif s.kind == "fn":
        number = np.where(top & (fraction == 1 - 0.5**s.mantissa), np.copysign(np.nan, sign), number)
    elif s.kind == "fnuz":
        number = np.where(code == 1 << (s.bits - 1), np.nan, number)
    return number.astype(np.float32)


FORMATS = {s.name: s for s in (
    StoredFormat("i4", 4), StoredFormat("ui4", 4, signed=False), StoredFormat("i2", 2),
    StoredFormat("ui2", 2, signed=False),
    StoredFormat("f8E4M3FN", 8, mantissa=3, bias=7, kind="fn"),
    StoredFormat("f8E4M3FNUZ", 8, mantissa=3, bias=8, kind="fnuz"),
    StoredFormat("f8E5M2", 8, mantissa=2, bias=15, kind="ieee"),
    StoredFormat("f8E5M2FNUZ", 8, mantissa=2, bias=16, kind="fnuz"),
    StoredFormat("f8E8M0FNU", 8, mantissa=0, bias=127, kind="e8m0"),
    StoredFormat("f4E2M1FN", 4, mantissa=1, bias=1, kind="none"),
)}  # fmt: skip
