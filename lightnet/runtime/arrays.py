"""The arrays that a caller hands over, as those that the compiled network takes. Imports NumPy and the rest of the
runtime.

One rule for feeds and for weights in memory: the shape must agree, and the dtype must be the tensor's or convert to it
without changing the kind of number. NumPy makes float64 and int64 of most things, so float64 goes to float32 by
rounding, and integers go to other integer types and to floats where every value fits. A tensor of a type that is only
stored in takes arrays of ml_dtypes' type, bytes (uint8, which are taken for the elements themselves), and numbers that
are converted as above.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lightnet.diagnostics import LightNetError
from lightnet.runtime.dims import is_known
from lightnet.runtime.dtypes import DType, is_float, is_stored, round_to, widened_array

#: Memory spaces begin, and planned values and workspaces stand, at multiples of this many bytes unless a plan says
#: otherwise.
ALIGNMENT = 64


def align_up(value: int, alignment: int = ALIGNMENT) -> int:
    """The least multiple of `alignment` that is not below `value`."""
    return -(-value // alignment) * alignment


def bits(array: np.ndarray) -> np.ndarray:
    """The elements of an array as unsigned integers of their size, row-major, without a copy where there need be
    none."""
    return np.ascontiguousarray(array).reshape(-1).view(f"u{array.dtype.itemsize}")


def same_bytes(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether two arrays of one shape and type hold the same bits."""
    return a is b or (a.shape == b.shape and a.dtype == b.dtype and np.array_equal(bits(a), bits(b)))


def aligned(nbytes: int, alignment: int = ALIGNMENT, zeroed: bool = False) -> np.ndarray:
    """Bytes at an aligned address, uninitialised unless they should be `zeroed` (by the system, when they are first
    used). Raises `LightNetError` when there is not enough memory."""
    try:
        raw = (np.zeros if zeroed else np.empty)(nbytes + alignment, np.uint8)
    except (MemoryError, ValueError):
        raise LightNetError(f"cannot allocate {nbytes} bytes for a compiled network") from None
    start = -raw.ctypes.data % alignment
    return raw[start : start + nbytes]


def checked_array(
    name: str, value: Any, dims: tuple[int, ...], dtype: DType, may_be_strided: bool = False
) -> np.ndarray:
    """`value` as a contiguous array of the given type (if it `may_be_strided`, as any); open dims are the call's to
    check. Raises `LightNetError` when the shape differs or the dtype does not convert (see the module)."""
    array = value if type(value) is np.ndarray else as_array(name, value, f" of {dtype.np}")
    if array.shape != dims and (is_known(dims) or array.ndim != len(dims)):
        raise LightNetError(f"'{name}' has shape {list(dims)}, but gets {list(array.shape)}", label="feed.shape")
    found = converted(name, array, dtype)
    return found if may_be_strided else np.ascontiguousarray(found).reshape(array.shape)


def as_array(name: str, value: Any, of: str = "") -> np.ndarray:
    """`value` as an array, without a copy where it has memory of its own: by the buffer protocol, `__array__`, or
    DLPack, which is also the way for types that the object's own conversion does not know (bfloat16). Raises
    `LightNetError` where it is none."""
    try:
        if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray | np.generic):
            return _foreign(value)
        return np.asarray(value)
    except LightNetError as e:
        raise LightNetError(f"'{name}' takes an array{of}, but {e.message}", label="feed.value") from None
    except (TypeError, ValueError, OverflowError, RuntimeError, BufferError) as e:
        raise LightNetError(f"'{name}' takes an array{of}, but gets none: {e!s:.400}", label="feed.value") from None


def _foreign(value: Any) -> np.ndarray:
    from lightnet.runtime.dlpack import from_dlpack

    if not hasattr(value, "__array__"):
        return from_dlpack(value)
    try:
        return np.asarray(value)
    except (TypeError, BufferError):
        return from_dlpack(value)


def converted(name: str, array: np.ndarray, dtype: DType) -> np.ndarray:
    """`array` in `dtype`; itself where it has it. Raises `LightNetError` (`feed.dtype`, `feed.range`)."""
    source, target = array.dtype, dtype.np
    if source == target:
        return array if source.isnative else array.astype(target)
    if dtype.is_stored:
        return _stored(name, array, dtype)
    integers = source.kind in "iu" and target.kind in "iu"
    if not integers and not ((source.kind in "iu" or is_float(source)) and dtype.is_float):
        raise LightNetError(f"'{name}' takes {target}, but gets {source}; convert it first", label="feed.dtype")
    if integers and array.size:
        low, high = int(array.min()), int(array.max())
        if low < np.iinfo(target).min or high > np.iinfo(target).max:
            raise LightNetError(f"'{name}' takes {target}, but gets values from {low} to {high}", label="feed.range")
    with np.errstate(over="ignore"):
        result = round_to(array, dtype) if is_float(source) else array.astype(target)
    if dtype.is_float and not np.array_equal(np.isinf(result), np.isinf(array)):
        raise LightNetError(f"'{name}' takes {target}, but gets values beyond its range", label="feed.range")
    return result


def _stored(name: str, array: np.ndarray, dtype: DType) -> np.ndarray:
    """`array` in a type that is only stored in; bytes are its elements."""
    from lightnet.runtime.stored import FORMATS

    form = FORMATS[dtype.name]
    if array.dtype == np.uint8:
        return array.view(dtype.np)
    numbers = widened_array(array)
    if is_stored(array.dtype) or not (numbers.dtype.kind in "iu" or (numbers.dtype.kind == "f" and form.is_float)):
        raise LightNetError(
            f"'{name}' takes {dtype} ({dtype.np}, or bytes as uint8), but gets {array.dtype}; convert it first",
            label="feed.dtype",
        )
    low, high = form.limits
    finite = numbers[np.isfinite(numbers)] if numbers.dtype.kind == "f" else numbers
    if finite.size and not low <= float(finite.min()) <= float(finite.max()) <= high:
        raise LightNetError(f"'{name}' takes {dtype}, but gets values beyond its range", label="feed.range")
    return form.encoded(numbers)


def by_name(feeds: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The feeds of a call, by name; LightNetError for anything but a mapping."""
    if feeds is None:
        return {}
    if not isinstance(feeds, Mapping):
        raise LightNetError(f"a network is fed by name, as in run({{'x': array}}), not with a {type(feeds).__name__}")
    return feeds
