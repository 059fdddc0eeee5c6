"""NumPy's types of level 4's. Imports xDSL and NumPy."""

from __future__ import annotations

import numpy as np
from xdsl.dialects.builtin import (
    BFloat16Type,
    Float16Type,
    Float32Type,
    Float64Type,
    IndexType,
    IntegerType,
    MemRefType,
)
from xdsl.ir import Attribute

from lightnet.diagnostics import LightNetError
from lightnet.runtime.dtypes import BFLOAT16

_FLOATS = {
    BFloat16Type: BFLOAT16, Float16Type: np.dtype("f2"), Float32Type: np.dtype("f4"), Float64Type: np.dtype("f8"),
}  # fmt: skip


def numpy_type(type: Attribute) -> np.dtype:
    """NumPy's type of an element type at level 4."""
    if isinstance(type, IntegerType):
        return np.dtype(np.bool_) if type.width.data == 1 else np.dtype(f"i{type.width.data // 8}")
    if isinstance(type, IndexType):
        return np.dtype(np.int64)
    if type.__class__ not in _FLOATS:
        raise LightNetError(f"the interpreter of level 4 has no type {type}")
    return _FLOATS[type.__class__]


def memory_dtype(type: MemRefType) -> np.dtype:
    """NumPy's type of a memref's elements; an i1 is a byte."""
    dtype = numpy_type(type.element_type)
    return np.dtype(np.uint8) if dtype == np.bool_ else dtype
