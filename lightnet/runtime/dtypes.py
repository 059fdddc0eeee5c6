"""The element types: one table of TensorLight's names, NumPy's dtypes, MLIR's spelling and the sizes.

Imports NumPy and the standard library only (the runtime uses it).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


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

    def __str__(self) -> str:
        return self.name


def _dtype(name: str, tl: str, np_name: str, kind: str, fmt: str, tl_size: int = 0) -> DType:
    np_dtype = np.dtype(np_name)
    return DType(name, tl, np_dtype, kind, tl_size or np_dtype.itemsize, fmt)


#: In the order of TensorLight's enumeration.
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
)
BY_NAME = {d.name: d for d in DTYPES}
BY_TL = {d.tl: d for d in DTYPES}
BY_NP = {d.np: d for d in DTYPES}


def convert(array: np.ndarray, dtype: DType) -> np.ndarray:
    """Convert element by element as TensorLight does: saturating, truncating toward zero, NaN to an integer 0.

    To bool, every nonzero value (NaN too) is true. Integer to float rounds to nearest. Float to float rounds to
    nearest, where a finite value beyond the range becomes the largest finite one; infinities and NaN stay. Takes any
    real or bool array; returns an array of the same shape, `array` itself if it has the dtype already.
    """
    src = np.asarray(array)
    if src.dtype == dtype.np:
        return src
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


def _to_float(src: np.ndarray, dtype: DType) -> np.ndarray:
    if src.dtype.kind != "f" or src.dtype.itemsize <= dtype.size:
        return src.astype(dtype.np)
    limit = src.dtype.type(np.finfo(dtype.np).max)
    return np.where(np.isinf(src), src, np.clip(src, -limit, limit)).astype(dtype.np)


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
