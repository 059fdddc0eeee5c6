"""The element types: one table of TensorLight's names, NumPy's dtypes, MLIR's spelling and the sizes.

f16 and bf16 are types to store in: what reads them computes in f32. NumPy has no bfloat16, the package ml_dtypes has;
without it the table has no row for it. NumPy takes ml_dtypes' type for a void one (its `kind` is ``V``), so ask
`is_float` here. Imports NumPy, the standard library and (where it is there) ml_dtypes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

try:
    from ml_dtypes import bfloat16
except ImportError:
    bfloat16 = None


@dataclass(frozen=True)
class DType:
    """An element type. `name` is MLIR's spelling (``f32``, ``ui8``); `tl` is TensorLight's (``TL_FLOAT``).

    `size` is in bytes. `tl_size` is the size in upstream's plans, where TL_BOOL is a C enum of 4 bytes. `kind` is one
    of ``float``, ``int``, ``uint``, ``bool``.
    """

    name: str
    tl: str
    np: np.dtype
    kind: str
    tl_size: int
    print_format: str

    @property
    def size(self) -> int:
        return self.np.itemsize

    @property
    def bits(self) -> int:
        return 1 if self.kind == "bool" else 8 * self.size

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_short(self) -> bool:
        """Whether this is a float that values are stored in, and not computed in."""
        return self.kind == "float" and self.size < 4

    @cached_property
    def limits(self) -> tuple[float, float]:
        """The lowest and the highest finite value: floats of a float type, else ints."""
        if self.is_float:
            high = float((2 - 2.0 ** -_FRACTION[self.name]) * 2.0 ** _EXPONENT[self.name])
            return -high, high
        return (0, 1) if self.kind == "bool" else _int_bounds(self.np)

    def __str__(self) -> str:
        return self.name


#: Bits of the fraction, and the largest exponent (IEEE 754; bfloat16 is the upper half of a float).
_FRACTION = {"f64": 52, "f32": 23, "f16": 10, "bf16": 7}
_EXPONENT = {"f64": 1023, "f32": 127, "f16": 15, "bf16": 127}


def _dtype(name: str, tl: str, np_name: str | type, kind: str, fmt: str, tl_size: int = 0) -> DType:
    np_dtype = np.dtype(np_name)
    return DType(name, tl, np_dtype, kind, tl_size or np_dtype.itemsize, fmt)


#: In the order of TensorLight's enumeration; then those that it lacks.
DTYPES = (
    _dtype("f64", "TL_DOUBLE", "float64", "float", "%.3f"),
    _dtype("f32", "TL_FLOAT", "float32", "float", "%.3f"),
    _dtype("i64", "TL_INT64", "int64", "int", "%d"),
    _dtype("i32", "TL_INT32", "int32", "int", "%d"),
    _dtype("i16", "TL_INT16", "int16", "int", "%d"),
    _dtype("i8", "TL_INT8", "int8", "int", "%d"),
    _dtype("ui64", "TL_UINT64", "uint64", "uint", "%d"),
    _dtype("ui32", "TL_UINT32", "uint32", "uint", "%d"),
    _dtype("ui16", "TL_UINT16", "uint16", "uint", "%d"),
    _dtype("ui8", "TL_UINT8", "uint8", "uint", "%d"),
    _dtype("i1", "TL_BOOL", "bool", "bool", "%d", tl_size=4),
    _dtype("f16", "TL_FLOAT16", "float16", "float", "%.3f"),
    *((_dtype("bf16", "TL_BFLOAT16", bfloat16, "float", "%.3f"),) if bfloat16 is not None else ()),
)
BY_NAME = {d.name: d for d in DTYPES}
BY_TL = {d.tl: d for d in DTYPES}
BY_NP = {d.np: d for d in DTYPES}


def is_float(dtype: np.dtype) -> bool:
    """Whether an array of this type holds floats, ml_dtypes' bfloat16 included."""
    return dtype.kind == "f" or dtype == BFLOAT16


#: bfloat16's NumPy type; without ml_dtypes, what such an array looks like to NumPy.
BFLOAT16 = np.dtype(bfloat16 or "V2")


def convert(array: np.ndarray, dtype: DType) -> np.ndarray:
    """Convert element by element as TensorLight does: saturating, truncating toward zero, NaN to an integer 0.

    To bool, every nonzero value (NaN too) is true. A number goes to a float by rounding to nearest, where a finite value
    beyond the range becomes the largest finite one; infinities and NaN stay. Takes any real or bool array; returns an
    array of the same shape, `array` itself if it has the dtype already.
    """
    src = np.asarray(array)
    if src.dtype == dtype.np:
        return src
    src = widened(src)  # the bounds of other types fit into a float
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


def widened(array: np.ndarray) -> np.ndarray:
    """An array of f16 or bf16 in float32, which is what is computed in; any other as it is."""
    return array.astype(np.float32) if array.dtype in (np.float16, BFLOAT16) else array


def round_to(array: np.ndarray, dtype: DType) -> np.ndarray:
    """A float array in another float type: to nearest, ties to even, overflow to infinity (IEEE 754)."""
    src = np.asarray(array)
    with np.errstate(all="ignore"):
        if dtype.np == BFLOAT16 and src.dtype == np.float64:
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
    lowest, highest = (dtype.np.type(bound) for bound in _int_bounds(dtype.np))
    # float(int64 max) rounds up to 2**63: so compare first, and cast only what is strictly inside.
    low, high = src <= float(lowest), src >= float(highest)
    inside = np.where(low | high | np.isnan(src), src.dtype.type(0), src).astype(dtype.np)
    return np.where(low, lowest, np.where(high, highest, inside))


def _int_to_int(src: np.ndarray, dtype: DType) -> np.ndarray:
    (src_low, src_high), (low, high) = _int_bounds(src.dtype), _int_bounds(dtype.np)
    kind = src.dtype.type
    return np.clip(src, kind(max(src_low, low)), kind(min(src_high, high))).astype(dtype.np)


def _int_bounds(dtype: np.dtype) -> tuple[int, int]:
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)
