"""Histograms of what a tensor holds over many calls, in memory that does not grow with them. Imports NumPy.

Bin k of width 2^e counts the values in [k 2^e, (k + 1) 2^e). The width is the least power of two with which `BINS` bins
reach from the least to the largest value so far, and 0; where a value lies beyond, neighbours 2k and 2k + 1 become bin
k of twice the width. As floor(floor(x / w) / 2) = floor(x / 2w), the counts are those of all values at once: neither
the order of calls nor how samples are put into calls changes anything, and adding two histograms is exact, too.
"""

from __future__ import annotations

import numpy as np

#: Bins of a histogram: a range is covered by more than half of them, so that a step of 8 bits is 8 to 32 bins wide.
BINS = 8192
#: The least exponent of a width: bins of this size hold single values of subnormal float32.
LEAST_EXPONENT = -149


class Histogram:
    """A histogram of float32 values. `least` and `most` are the extremes as they are, `zeros` counts values of 0, which
    are in no bin (half of what a ReLU makes is 0, without the error that the middle of a bin would have)."""

    def __init__(self) -> None:
        self.least, self.most = np.inf, -np.inf
        self.zeros = 0
        self.exponent = LEAST_EXPONENT
        self.first = 0  # the number of the bin that counts[0] is
        self.counts = np.zeros(0, np.int64)

    @property
    def total(self) -> int:
        """The number of values."""
        return self.zeros + int(self.counts.sum())

    def add(self, values: np.ndarray) -> None:
        """Count values, finite ones of any shape."""
        flat = values.reshape(-1).astype(np.float64)
        if not flat.size:
            return
        self.least, self.most = min(self.least, float(flat.min())), max(self.most, float(flat.max()))
        flat = flat[flat != 0]
        self.zeros += values.size - flat.size
        if flat.size:
            self._widen(float(flat.min()), float(flat.max()))
            bins = np.floor(np.ldexp(flat, -self.exponent)).astype(np.int64) - self.first
            self.counts += np.bincount(bins, minlength=self.counts.size)

    def merge(self, other: Histogram) -> None:
        """Count what another histogram has counted, too."""
        self.least, self.most = min(self.least, other.least), max(self.most, other.most)
        self.zeros += other.zeros
        if not other.counts.size:
            return
        width = max(self.exponent, other.exponent)
        low, high = (np.ldexp(float(other.first + k), other.exponent) for k in (0, other.counts.size - 1))
        self._widen(float(low), float(high), width)
        held = (np.arange(other.counts.size) + other.first) >> (self.exponent - other.exponent)
        np.add.at(self.counts, held - self.first, other.counts)

    def _widen(self, low: float, high: float, least_exponent: int = LEAST_EXPONENT) -> None:
        """Let the bins reach from `low` to `high`, too, and be at least 2^least_exponent wide."""
        low, high = min(low, 0.0), max(high, 0.0)  # bins are numbered from 0
        exponent = max(self.exponent, least_exponent)
        if self.counts.size:
            low = min(low, float(np.ldexp(float(self.first), self.exponent)))
            high = max(high, float(np.ldexp(float(self.first + self.counts.size - 1), self.exponent)))
        while np.floor(np.ldexp(high, -exponent)) - np.floor(np.ldexp(low, -exponent)) >= BINS:
            exponent += 1
        first, last = (int(np.floor(np.ldexp(x, -exponent))) for x in (low, high))
        counts = np.zeros(last - first + 1, np.int64)
        held = (np.arange(self.counts.size) + self.first) >> (exponent - self.exponent)
        np.add.at(counts, held - first, self.counts)
        self.exponent, self.first, self.counts = exponent, first, counts

    @property
    def width(self) -> float:
        """The width of a bin."""
        return float(np.ldexp(1.0, self.exponent))

    def points(self) -> tuple[np.ndarray, np.ndarray]:
        """Values that stand for all (float64 ``[n]``, ascending: the middles of bins that are not empty, and 0) and how
        often each is there (int64 ``[n]``). Middles do not leave the extremes."""
        held = np.flatnonzero(self.counts)
        middles = np.clip((held + self.first + 0.5) * self.width, self.least, self.most)
        values, counts = middles, self.counts[held]
        if self.zeros:
            at = int(np.searchsorted(values, 0.0))
            values, counts = np.insert(values, at, 0.0), np.insert(counts, at, self.zeros)
        return values, counts

    def central(self, share: float) -> tuple[float, float]:
        """Bounds outside of which at most (1 - `share`) / 2 of the values lie on each side, as close to the middle as
        whole bins allow: the quantiles of the values, up to the width of a bin, within the extremes."""
        values, counts = self.points()
        reach = 0.5 + share / 2
        low = -_reaching(-values[::-1], counts[::-1], reach, self.width)
        high = _reaching(values, counts, reach, self.width)
        return max(low, self.least), min(high, self.most)

    def magnitude(self, share: float) -> float:
        """The bound that at least `share` of the values do not exceed in magnitude, up to the width of a bin."""
        values, counts = self.points()
        order = np.argsort(np.abs(values), kind="stable")
        found = _reaching(np.abs(values)[order], counts[order], share, self.width)
        return min(found, max(self.most, -self.least))


def _reaching(values: np.ndarray, counts: np.ndarray, share: float, width: float) -> float:
    """The upper end of the first of the ascending `values`, middles of bins, up to which `share` of all are counted."""
    summed = np.cumsum(counts)
    wanted = max(int(np.ceil(share * float(summed[-1]) - 1e-9)), 1)
    found = float(values[min(int(np.searchsorted(summed, wanted)), values.size - 1)])
    return found + width / 2 if found else 0.0
