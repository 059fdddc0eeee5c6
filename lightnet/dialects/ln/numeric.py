"""The common part of elementwise ops: their types, NumPy helpers of references, test shapes, and broadcasting;
`rows.py` makes ops of them.

References compute floats in float64 and round once, so that f16 and bf16, which store what is computed in f32, need no
code of their own. Imports NumPy, the op base and the dtypes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from lightnet.ir.op import Case, ConstraintError, case
from lightnet.ir.types import TensorSpec
from lightnet.runtime import dtypes
from lightnet.runtime.dims import greatest
from lightnet.runtime.dtypes import BY_NAME, is_float, round_to
from lightnet.runtime.dtypes import SHORT as SHORT

#: The largest number of f32.
F32_MAX = float(np.finfo(np.float32).max)
FLOATS = ("f32", "f64", "f16", "bf16")
INTS = ("i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64")
SIGNED = (*FLOATS, "i8", "i16", "i32", "i64")
NUMBERS = (*FLOATS, *INTS)


def in_float64(function: Callable[..., np.ndarray], *arrays: np.ndarray) -> np.ndarray:
    """`function` of float arrays, computed in float64 and rounded to their dtype."""
    with np.errstate(all="ignore"):
        return round_to(function(*(a.astype(np.float64) for a in arrays)), dtypes.BY_NP[arrays[0].dtype])


def elementwise_in(function: Callable[..., np.ndarray], *arrays: np.ndarray) -> np.ndarray:
    """`function` in float64 for floats, in i32 for bools (true where the result is not 0), else as NumPy has it."""
    dtype = arrays[0].dtype
    if dtype == np.bool_:
        return np.asarray(function(*(a.astype(np.int32) for a in arrays))) != 0
    if is_float(dtype):
        return in_float64(function, *arrays)
    with np.errstate(all="ignore"):
        return np.asarray(function(*arrays)).astype(dtype)


def widened(array: np.ndarray) -> np.ndarray:
    """Floats as float64, anything else as it is: what references sum in."""
    return array if array.dtype.kind in "iub" else array.astype(np.float64)


def integer_power(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Powers of doubles, truncated toward zero and saturated (0 to a negative power is infinite)."""
    info = np.iinfo(a.dtype)
    a, b = np.broadcast_arrays(a, b)
    out = np.empty(a.shape, object)
    for i, (x, y) in enumerate(zip(a.ravel().tolist(), b.ravel().tolist())):
        x, y = int(float(x)), int(float(y))
        if y < 0:
            value = info.max if x == 0 else 0 if abs(x) > 1 else x ** (-y % 2)
        else:  # exact, then rounded once; beyond 2^64 it is saturated anyway
            value = x ** min(y, 64 + (y & 1)) if abs(x) > 1 else x**y if x >= 0 else x ** (y % 2)
            value = int(float(min(max(value, -(1 << 65)), 1 << 65)))
        out.ravel()[i] = min(max(value, info.min), info.max)
    return out.astype(a.dtype)


def integer_divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Quotients that truncate toward zero and wrap around; x / 0 is 0."""
    safe = np.where(b == 0, b.dtype.type(1), b)
    quotient = np.abs(a.astype(object)) // np.abs(safe.astype(object))
    signed = np.where((a < 0) != (safe < 0), -quotient, quotient)
    mask = (1 << 8 * a.dtype.itemsize) - 1
    signed = np.where(b == 0, 0, signed)
    wrapped = np.array([int(q) & mask for q in signed.ravel()], np.uint64)
    return wrapped.astype(f"u{a.dtype.itemsize}").view(a.dtype).reshape(signed.shape)


def integer_quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a / b if is_float(a.dtype) else integer_divide(a, b)


def power(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.power(a, b) if is_float(a.dtype) else integer_power(a, b)


#: The error function of doubles; NumPy has none.
erf = np.vectorize(math.erf, otypes=[np.float64])


def uniform_data(array: np.ndarray, low: float, high: float) -> np.ndarray:
    """Test data in [-1, 1] moved to [low, high]; integers stay as they are."""
    if not is_float(array.dtype):
        return array
    return in_float64(lambda x: low + (x + 1) / 2 * (high - low), array)


def cases(operands: Mapping[str, tuple[int, ...]] | Sequence[str], types: Sequence[str], **params: Any) -> list[Case]:
    """One test case for each of the `types` that there are; operands have the given dims, or odd ones."""
    dims = operands if isinstance(operands, Mapping) else dict.fromkeys(operands, (3, 5))
    return [case(t, **dims, **params) for t in types if t in BY_NAME]


# -- broadcasting ----------------------------------------------------------------------------------------------------


def broadcast_dims(optype: str, specs: Sequence[TensorSpec]) -> tuple[int, ...]:
    """The dims that tensors have together under NumPy's rule: aligned at the last axis, where a length of 1 is
    repeated."""
    rank = max(spec.ndim for spec in specs)
    dims = []
    for k in range(-rank, 0):
        lengths = {spec.dims[k] for spec in specs if spec.ndim >= -k} - {1}
        if len(lengths) > 1:
            raise ConstraintError(
                f"{optype}: {' and '.join(map(str, specs))} do not broadcast: along axis {k} their lengths are "
                f"{', '.join(map(str, sorted(lengths, key=greatest)))}; each should be one of them or 1",
                label=f"{optype}.broadcast",
            )
        dims.append(lengths.pop() if lengths else 1)
    return tuple(dims)


def broadcast_read(name: str, dims: tuple[int, ...], out: tuple[int, ...]) -> str:
    """A read in index notation of the element of `name` that goes with the element ``[i...]`` of a tensor of dims
    `out`."""
    if dims == out:
        return f"{name}[i...]"
    first = len(out) - len(dims)
    return f"{name}[{', '.join(f'i[{first + k}]' if n != 1 else '0' for k, n in enumerate(dims))}]"


# -- floats at the edge (docs/edge-values.md) --------------------------------------------------------------------------


def larger(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The maximum of IEEE 754-2019: NaN propagates, and -0 is less than 0 (NumPy gives either)."""
    found = np.maximum(a, b)
    return np.where((a == 0) & (b == 0), a + b, found) if is_float(found.dtype) else found


def smaller(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The minimum of IEEE 754-2019."""
    return -larger(-a, -b) if is_float(np.result_type(a, b)) else np.minimum(a, b)


def largest(x: np.ndarray, axis: int | tuple[int, ...], initial: Any, keepdims: bool = False) -> np.ndarray:
    """The maximum along axes, as `larger` has it."""
    found = np.max(x, axis=axis, keepdims=keepdims, initial=initial)
    if not is_float(x.dtype):
        return found
    positive = np.any((x == 0) & ~np.signbit(x), axis=axis, keepdims=keepdims)
    return np.where(found == 0, np.where(positive, 0.0, -0.0).astype(x.dtype), found)


def as_summed(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Sums and squares `x`, float64, as kernels have them of elements of a dtype, which compute those of f32, f16 and
    bf16 in f32: infinite where they are beyond its range."""
    if dtype == np.float64 or not is_float(dtype):
        return x
    beyond = np.abs(x) > F32_MAX
    return np.where(beyond, np.copysign(np.inf, x), x) if beyond.any() else x


def total(x: np.ndarray, axis: int | tuple[int, ...], keepdims: bool = False) -> np.ndarray:
    """The sum along axes in the type of `x`: of one term that term, else from 0 on, so that a sum of -0 alone is 0."""
    axes = tuple(np.atleast_1d(np.array(axis, int)).tolist())
    if math.prod(x.shape[k] for k in axes) == 1:
        return (
            x if keepdims else x.reshape([n for k, n in enumerate(x.shape) if k not in axes and k - x.ndim not in axes])
        )
    found = np.sum(x, axis=axes, keepdims=keepdims, dtype=x.dtype)
    return found + 0 if is_float(x.dtype) else found
