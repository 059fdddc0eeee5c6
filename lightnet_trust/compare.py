"""The comparison of two tensors: whether they are equal, how far rounding may take them apart, and what to say where
they are not.

Imports NumPy and `runtime.dtypes`.
"""

from __future__ import annotations

import numpy as np

from lightnet.dataclasses import dataclass
from lightnet.runtime.arrays import bits, same_bytes
from lightnet.runtime.dtypes import BFLOAT16, BY_NP, is_float, is_stored

#: Rounding steps of a type (unit: the distance from 1 to the next number) by which a result may differ, relative to its
#: own size and that of the largest element of its tensor, as sums cancel. For f32 and f64: a sum of 2^16 terms in
#: another order differs by about sqrt(2^16) roundings. Of f16 and bf16, which are computed in f32, a rewrite rounds a
#: few times more or less.
ROUNDINGS, SHORT_ROUNDINGS = 256, 8


@dataclass(frozen=True)
class Mismatch:
    """The place where two tensors of one type differ most: the index, both values as text, how many elements differ,
    and by how much at most (absolute; 0 where the values are no numbers).
    """

    index: tuple[int, ...]
    before: str
    after: str
    count: int
    total: int
    largest: float

    def __str__(self) -> str:
        at = f"[{', '.join(map(str, self.index))}]" if self.index else ""
        many = f"; {self.count} of {self.total} elements differ" if self.total > 1 else ""
        return f"{at} is {self.before} before and {self.after} after{many}"


def tolerance(dtype: np.dtype) -> float:
    """The relative error that rounding explains: 0 for integers and bools, which are exact."""
    if is_stored(dtype):
        from lightnet.runtime.stored import FORMATS

        form = FORMATS[BY_NP[dtype].name]
        return SHORT_ROUNDINGS * 2.0**-form.mantissa if form.mantissa is not None else 0.0
    if not is_float(dtype):
        return 0.0
    if dtype == BFLOAT16:
        return SHORT_ROUNDINGS * 2.0**-7
    return float(np.finfo(dtype).eps) * (SHORT_ROUNDINGS if dtype.itemsize < 4 else ROUNDINGS)


def mismatch(before: np.ndarray, after: np.ndarray, exact: bool, least: float = 0.0) -> Mismatch | None:
    """The place where `after` differs from `before`, two arrays of one shape and dtype, or None. `exact`: bit for bit,
    but for the bits of NaNs. Else a float may differ by its type's `tolerance`, by `least` at least, times its own
    magnitude plus the tensor's largest finite one; a NaN or an infinity stands where there was the same.
    """
    if same_bytes(before, after):
        return None
    wrong = differing(before, after, exact, least)
    return worst(before, after, wrong) if wrong.any() else None


def differing(before: np.ndarray, after: np.ndarray, exact: bool, least: float = 0.0) -> np.ndarray:
    """For each element, whether `mismatch` counts it."""
    if not is_float(before.dtype) and not is_stored(before.dtype):
        return before != after
    old, new = before.astype(np.float64), after.astype(np.float64)
    nan = np.isnan(old) & np.isnan(new)
    if exact:
        return (bits(before) != bits(after)).reshape(before.shape) & ~nan
    with np.errstate(all="ignore"):
        size = np.where(np.isfinite(old), np.abs(old), 0.0)
        near = np.abs(old - new) <= max(tolerance(before.dtype), least) * (size + size.max(initial=0.0))
    return ~(near | (old == new) | nan)


def worst(before: np.ndarray, after: np.ndarray, wrong: np.ndarray) -> Mismatch:
    """The `wrong` element that is furthest off; one that is no number any more, or was none, is infinitely far."""
    old, new = before.astype(np.float64), after.astype(np.float64)
    with np.errstate(all="ignore"):
        distance = np.abs(old - new)
    error = np.where(old == new, 0.0, np.where(np.isnan(distance), np.inf, distance))
    at = int(np.argmax(np.where(wrong, error, -1.0).reshape(-1)))
    index = tuple(int(i) for i in np.unravel_index(at, before.shape)) if before.ndim else ()
    largest = float(error.reshape(-1)[at])
    return Mismatch(
        index, _text(before[index]), _text(after[index]), int(np.count_nonzero(wrong)), before.size, largest
    )


def _text(value: np.generic) -> str:
    """A number such that it reads back to the same bits."""
    if isinstance(value, np.bool_):
        return str(bool(value)).lower()
    return str(float(value)) if value.dtype == BFLOAT16 else str(value)


def says_nothing(array: np.ndarray) -> str | None:
    """The reason why the agreement of two such tensors proves nothing: ``NaN``, ``infinite`` or ``constant``; None
    where it does.
    """
    if not array.size:
        return None
    if is_float(array.dtype):
        wide = array.astype(np.float64)
        if not np.isfinite(wide).any():
            return "NaN" if np.isnan(wide).any() else "infinite"
    flat = array.reshape(-1)
    return "constant" if flat.size > 1 and bool((flat == flat[0]).all()) else None
