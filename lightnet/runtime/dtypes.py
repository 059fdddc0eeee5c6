"""The element types: one table ties TensorLight's name, NumPy's dtype, MLIR's spelling and the sizes together.

Imports NumPy and the standard library only (the runtime uses it).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class DType:
    """An element type. `name` is MLIR's spelling (``f32``, ``ui8``); `tl` is TensorLight's (``TL_FLOAT``).

    `size` is in bytes. `tl_size` is the size in upstream's plans, where TL_BOOL is a C enum of 4 bytes.
    `kind` is one of ``float``, ``int``, ``uint``, ``bool``.
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
    """Convert element by element as TensorLight does: saturating, truncating toward zero; NaN to an integer is 0.

    To bool, every nonzero value is true. Float to float rounds to nearest (overflow saturates to the largest value,
    infinities stay).
    """
    src = np.asarray(array)
    if src.dtype == dtype.np:
        return src
    if dtype.kind == "bool":
        return src != 0
    if dtype.is_float:
        if src.dtype.kind != "f":
            return src.astype(dtype.np)
        limit = np.finfo(dtype.np).max
        with np.errstate(over="ignore"):
            return np.where(np.isinf(src), src, np.clip(src, -limit, limit)).astype(dtype.np)
    info = np.iinfo(dtype.np)
    if src.dtype.kind == "f":
        wide = np.trunc(np.nan_to_num(src.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf))
        low, high = wide <= float(info.min), wide >= float(info.max)  # float(int64 max) rounds up: test, then cast
        safe = np.where(low | high, 0.0, wide).astype(dtype.np)
        return np.where(low, info.min, np.where(high, info.max, safe)).astype(dtype.np)
    if src.dtype.kind == "b":
        return src.astype(dtype.np)
    low, high = max(int(np.iinfo(src.dtype).min), info.min), min(int(np.iinfo(src.dtype).max), info.max)
    return np.clip(src, src.dtype.type(low), src.dtype.type(high)).astype(dtype.np)
