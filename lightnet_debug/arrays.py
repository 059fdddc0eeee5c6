"""Two arrays compared: how far they are apart, and whether that is more than is allowed. Imports NumPy, so that the
runtime alone can compare, too.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lightnet.dataclasses import dataclass
from lightnet.runtime.dtypes import is_float


@dataclass(frozen=True)
class ArrayDifference:
    """The distance of an array from what is expected. `absolute` and `relative` are the largest differences of an
    element, and relative to the expected one; `largest` is the largest expected value; NaN and infinite elements count
    in `wrong` only, unless both have them alike. `wrong` of `elements` are beyond the tolerance; `mismatch` says what
    differs in type or shape.
    """

    absolute: float = 0.0
    relative: float = 0.0
    largest: float = 0.0
    wrong: int = 0
    elements: int = 0
    mismatch: str = ""
    #: Elements that are finite in one of the two only, or infinite with another sign.
    strange: int = 0
    exact: bool = False

    @property
    def agrees(self) -> bool:
        """True if every element is within the tolerance."""
        return not self.wrong and not self.mismatch

    @property
    def scaled(self) -> float:
        """The error as a share of the largest expected value; infinite where they are not numbers alike."""
        if self.mismatch or self.strange:
            return math.inf
        return self.absolute / self.largest if self.largest else self.absolute

    @property
    def verdict(self) -> str:
        """``agrees``, or in how many elements it does not."""
        if self.mismatch:
            return f"DIFFERS: {self.mismatch}"
        return f"DIFFERS in {self.wrong} of {self.elements} elements" if self.wrong else "agrees"


def is_one_number(array: Any) -> bool:
    """Return whether several elements are all one number: that others equal them proves little."""
    flat = np.asarray(array).reshape(-1)
    return flat.size > 1 and bool((flat == flat[0]).all())


def difference(
    got: Any, want: Any, rtol: float = 1e-4, atol: float | None = None, share: float = 1e-4
) -> ArrayDifference:
    """Compare two arrays, or two lists of maps, whose keys have to be equal. Elements agree within
    ``atol + rtol * |want|`` (`atol` is a `share` of the largest expected value unless given); NaN agrees with NaN, an
    infinity with itself. Integers and bools have to be equal."""
    if isinstance(got, list):  # maps
        rows = [row for row in want if isinstance(row, dict)] if isinstance(want, list) else []
        if list(map(list, got)) != list(map(list, rows)):
            return ArrayDifference(elements=len(got), mismatch="its maps have other keys")
        got, want = (np.array([value for row in side for value in row.values()]) for side in (got, rows))
    want = np.asarray(want)
    if got.shape != want.shape or got.dtype != want.dtype:
        text = f"is {got.dtype}{list(got.shape)}, not {want.dtype}{list(want.shape)}"
        return ArrayDifference(elements=want.size, mismatch=text)
    if want.dtype.hasobject:
        return ArrayDifference(wrong=int((got != want).sum()), elements=want.size, exact=True)
    a, b = got.astype(np.float64).reshape(-1), want.astype(np.float64).reshape(-1)
    if not is_float(want.dtype):
        off = np.abs(a - b).max(initial=0)
        largest = np.abs(b).max(initial=0)
        return ArrayDifference(float(off), 0.0, float(largest), int((got != want).sum()), want.size, exact=True)
    finite = np.isfinite(a) & np.isfinite(b)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    off, size = np.zeros(a.size), np.zeros(a.size)
    off[finite], size[finite] = np.abs(a[finite] - b[finite]), np.abs(b[finite])
    largest = size.max(initial=0)
    limit = (share * largest if atol is None else atol) + rtol * size
    wrong = int((~same & ~(finite & (off <= limit))).sum())
    relative = (off / np.where(size > 0, size, 1))[size > 0].max(initial=0)
    strange = int((~same & ~finite).sum())
    return ArrayDifference(
        float(off.max(initial=0)), float(relative), float(largest), wrong, want.size, strange=strange
    )
