"""The element types: one table of TensorLight's names, NumPy's dtypes, MLIR's spelling and the sizes.

f16 and bf16 are types to store in: what reads them computes in f32. NumPy has no bfloat16, the package ml_dtypes has;
without it the table has no row for it. NumPy takes ml_dtypes' type for a void one (its `kind` is ``V``), so ask
`is_float` here. Types of `STORED` (integers of 2 and 4 bits, floats of 4 and 8) are names for a byte, which nothing
computes in: arrays of them are ml_dtypes' where that is there, and bytes (ui8) where it is not. Imports NumPy and the
standard library; ml_dtypes, where it is there, when bfloat16 is first needed: it takes as long as loading a saved
executable.
"""

from __future__ import annotations

from functools import cache, cached_property
from importlib.util import find_spec
from typing import Any

import numpy as np

from lightnet.dataclasses import dataclass

#: NumPy's dtypes to ours, and bfloat16's NumPy type (without ml_dtypes, what such an array looks like): made when asked
#: for.
BY_NP: dict[np.dtype, DType]
BFLOAT16: np.dtype


@cache
def _bfloat16() -> np.dtype:
    try:
        from ml_dtypes import bfloat16
    except ImportError:
        return np.dtype("V2")
    return np.dtype(bfloat16)


@cache
def _stored_type(name: str) -> np.dtype:
    """The type that ml_dtypes has by this name, or a byte's."""
    try:
        import ml_dtypes
    except ImportError:
        return np.dtype(np.uint8)
    return np.dtype(getattr(ml_dtypes, name, np.uint8))


@dataclass(frozen=True)
class DType:
    """An element type. `name` is MLIR's spelling (``f32``, ``ui8``); `tl` is TensorLight's (``TL_FLOAT``).

    `size` is in bytes. `tl_size` is the size in upstream's plans, where TL_BOOL is a C enum of 4 bytes. `kind` is one
    of ``float``, ``int``, ``uint``, ``bool``, ``stored``.
    """

    name: str
    tl: str
    size: int
    kind: str
    tl_size: int
    print_format: str

    @cached_property
    def np(self) -> np.dtype:
        """NumPy's type."""
        if self.name == "bf16":
            return _bfloat16()
        if self.is_stored:
            return _stored_type(_STORED[self.name])
        return np.dtype("bool" if self.kind == "bool" else f"{self.kind}{8 * self.size}")

    @property
    def bits(self) -> int:
        if self.is_stored:
            return int(self.name.lstrip("uif")[0])
        return 1 if self.kind == "bool" else 8 * self.size

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_stored(self) -> bool:
        """True if this is a type of `STORED`: one element a byte, whose meaning `runtime/stored.py` has."""
        return self.kind == "stored"

    @property
    def is_short(self) -> bool:
        """True if this is a float that values are stored in, and not computed in."""
        return self.kind == "float" and self.size < 4

    @cached_property
    def limits(self) -> tuple[float, float]:
        """The lowest and the highest finite value: floats of a float type, else ints."""
        if self.is_float:
            high = float((2 - 2.0 ** -_FRACTION[self.name]) * 2.0 ** _EXPONENT[self.name])
            return -high, high
        if self.is_stored:
            from lightnet.runtime.stored import FORMATS

            return FORMATS[self.name].limits
        return (0, 1) if self.kind == "bool" else _int_bounds(self.np)

    def __str__(self) -> str:
        return self.name


#: Bits of the fraction, and the largest exponent (IEEE 754; bfloat16 is the upper half of a float).
_FRACTION = {"f64": 52, "f32": 23, "f16": 10, "bf16": 7}
_EXPONENT = {"f64": 1023, "f32": 127, "f16": 15, "bf16": 127}


def _dtype(name: str, tl: str, size: int, kind: str, fmt: str, tl_size: int = 0) -> DType:
    return DType(name, tl, size, kind, tl_size or size, fmt)


#: In the order of TensorLight's enumeration; then those that it lacks.
DTYPES = (
    _dtype("f64", "TL_DOUBLE", 8, "float", "%.3f"),
    _dtype("f32", "TL_FLOAT", 4, "float", "%.3f"),
    _dtype("i64", "TL_INT64", 8, "int", "%d"),
    _dtype("i32", "TL_INT32", 4, "int", "%d"),
    _dtype("i16", "TL_INT16", 2, "int", "%d"),
    _dtype("i8", "TL_INT8", 1, "int", "%d"),
    _dtype("ui64", "TL_UINT64", 8, "uint", "%d"),
    _dtype("ui32", "TL_UINT32", 4, "uint", "%d"),
    _dtype("ui16", "TL_UINT16", 2, "uint", "%d"),
    _dtype("ui8", "TL_UINT8", 1, "uint", "%d"),
    _dtype("i1", "TL_BOOL", 1, "bool", "%d", tl_size=4),
    _dtype("f16", "TL_FLOAT16", 2, "float", "%.3f"),
    *((_dtype("bf16", "TL_BFLOAT16", 2, "float", "%.3f"),) if find_spec("ml_dtypes") is not None else ()),
)
#: Types that elements are only stored in, by their names in MLIR: what ml_dtypes calls them.
_STORED = {
    "i2": "int2", "ui2": "uint2", "i4": "int4", "ui4": "uint4", "f4E2M1FN": "float4_e2m1fn",
    "f8E4M3FN": "float8_e4m3fn",
    "f8E4M3FNUZ": "float8_e4m3fnuz", "f8E5M2": "float8_e5m2", "f8E5M2FNUZ": "float8_e5m2fnuz",
    "f8E8M0FNU": "float8_e8m0fnu",
}  # fmt: skip
_LONG = {"i": "INT", "ui": "UINT", "f": "FLOAT"}
STORED = tuple(
    _dtype(name, f"TL_{_LONG[name.rstrip(name.lstrip('iuf'))]}{name.lstrip('iuf')}", 1, "stored", "%g")
    for name in _STORED
)
#: Every type by name, those of `STORED` too; who goes through the types to compute in goes through `DTYPES`.
BY_NAME = {d.name: d for d in (*DTYPES, *STORED)}
BY_TL = {d.tl: d for d in (*DTYPES, *STORED)}
#: The names of the short floats that there are.
SHORT = tuple(d.name for d in DTYPES if d.is_short)


def __getattr__(name: str) -> Any:
    if name == "BY_NP":
        value: Any = {d.np: d for d in (*STORED, *DTYPES)}  # a byte is ui8, whatever else it may be
    elif name == "BFLOAT16":
        value = _bfloat16()
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def is_float(dtype: np.dtype) -> bool:
    """Return whether an array of this type holds floats to compute in, ml_dtypes' bfloat16 included."""
    return (dtype.kind == "f" and dtype.itemsize > 1) or is_bfloat16(dtype)


def is_bfloat16(dtype: np.dtype) -> bool:
    """Return whether this is `BFLOAT16`; asks NumPy alone for any other type."""
    return dtype.kind == "V" and dtype == _bfloat16()


def is_stored(dtype: np.dtype) -> bool:
    """Return whether an array of this type holds ml_dtypes' elements of a type of `STORED`; asks NumPy alone for its
    own types.
    """
    return dtype.itemsize == 1 and dtype.kind in "Vf" and dtype in _by_np()  # NumPy calls float8_e5m2 a float of a byte


def _by_np() -> dict[np.dtype, DType]:
    return globals().get("BY_NP") or __getattr__("BY_NP")


def _convert_stored(src: np.ndarray, dtype: DType) -> np.ndarray:
    from lightnet.runtime.stored import FORMATS

    if is_stored(src.dtype):
        src = numbers_of(src)
    return FORMATS[dtype.name].encoded(src) if dtype.is_stored else convert(src, dtype)


def convert(array: np.ndarray, dtype: DType) -> np.ndarray:
    """Convert element by element as TensorLight does: saturating, truncating toward zero, NaN to an integer 0.

    To bool, every nonzero value (NaN too) is true. A number goes to a float by rounding to nearest, where a finite
    value beyond the range becomes the largest finite one; infinities and NaN stay. Takes any real or bool array;
    returns an array of the same shape, `array` itself if it has the dtype already.
    """
    src = np.asarray(array)
    if src.dtype == dtype.np:
        return src
    if dtype.is_stored or is_stored(src.dtype):
        return _convert_stored(src, dtype)
    src = widened_array(src)  # the bounds of other types fit into a float
    with np.errstate(all="ignore"):
        if dtype.kind == "bool":
            result = src != 0
        elif src.dtype.kind == "b":
            result = src.astype(dtype.np)
        elif dtype.is_float:
            result = _to_float(src, dtype)
        else:
            result = (_float_to_int if src.dtype.kind == "f" else _int_to_int)(src, dtype)
    return np.asarray(result)  # NumPy makes scalars of zero-dimensional arrays


def widened_array(array: np.ndarray) -> np.ndarray:
    """An array of f16 or bf16 in float32, which is what is computed in; any other as it is."""
    return array.astype(np.float32) if array.dtype == np.float16 or is_bfloat16(array.dtype) else array


def numbers_of(array: np.ndarray) -> np.ndarray:
    """`array` in a type that NumPy has by itself and that holds every value: float32 of bfloat16, float32, int8 or
    uint8 of a type that is only stored in; any other as it is."""
    if is_stored(array.dtype):
        from lightnet.runtime.stored import FORMATS

        return FORMATS[_by_np()[array.dtype].name].decoded(array)
    return widened_array(array)


def round_to(array: np.ndarray | np.floating, dtype: DType) -> np.ndarray:
    """A float array in another float type: to nearest, ties to even, overflow to infinity (IEEE 754)."""
    src = np.asarray(array)
    with np.errstate(all="ignore"):
        if dtype.name == "bf16" and src.dtype == np.float64:
            src = _to_odd(src)  # ml_dtypes rounds it to float first, which would round twice
        return np.asarray(src.astype(dtype.np))


def _to_odd(src: np.ndarray) -> np.ndarray:
    """float64 to float32, rounded to odd: rounding the result again rounds `src` right.

    Source: Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd",
    2008.
    """
    near = src.astype(np.float32)
    bits = near.view(np.uint32) - (np.abs(near.astype(np.float64)) > np.abs(src))
    return np.where(near == src, near, (bits | 1).astype(np.uint32).view(np.float32))


def _to_float(src: np.ndarray, dtype: DType) -> np.ndarray:
    if src.dtype.kind != "f":
        if not dtype.is_short:
            return src.astype(dtype.np)
        src = src.astype(np.float32)
    if src.dtype.itemsize > dtype.size:
        limit = src.dtype.type(dtype.limits[1])
        src = np.where(np.isinf(src), src, np.clip(src, -limit, limit))
    return round_to(src, dtype)


def _float_to_int(src: np.ndarray, dtype: DType) -> np.ndarray:
    lowest, highest = _int_bounds(dtype.np)
    # float(int64 max) rounds up to 2**63: so compare first, and cast only what is below. The lowest is exact.
    high = src >= float(highest)
    inside = np.where(high | np.isnan(src), src.dtype.type(0), np.maximum(src, src.dtype.type(lowest)))
    return np.where(high, dtype.np.type(highest), inside.astype(dtype.np))


def _int_to_int(src: np.ndarray, dtype: DType) -> np.ndarray:
    (src_low, src_high), (low, high) = _int_bounds(src.dtype), _int_bounds(dtype.np)
    kind = src.dtype.type
    return np.clip(src, kind(max(src_low, low)), kind(min(src_high, high))).astype(dtype.np)


def _int_bounds(dtype: np.dtype) -> tuple[int, int]:
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)
