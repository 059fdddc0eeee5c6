"""Intervals of a ratio of times, from pairs that were measured in turn.

A sample is the logarithm of a ratio, of two times that were taken next to each other, in an order that a coin chose.
Whatever disturbs the machine (drift, bursts, another process) takes part of the time of whoever ran just then, which
the coin makes one side as often as the other: about the true value, samples are symmetric *by construction*, however
they are distributed, and however they depend on each other. That is all that Wilcoxon's signed-rank test asks for. Its
estimate is the median of the pairwise means of the samples (Hodges and Lehmann, 1963), and its interval the order
statistics of these means; a quarter of the samples may be anything without moving the estimate far. Imports NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from lightnet.dataclasses import dataclass

#: Samples up to which the signed rank's distribution is counted, and not taken for a normal one.
_COUNTED = 120
#: Samples beyond which neighbours are averaged first: the pairwise means of so many are a million.
MOST = 1400
#: Looks at the samples while they come: the part of the time there is, and the part of the error allowed for that this
#: look may make (1 in all, Bonferroni), so that stopping early takes nothing from the confidence.
LOOKS = ((0.08, 0.1), (0.16, 0.1), (0.3, 0.2), (0.55, 0.2), (1.0, 0.4))
CONFIDENCE = 0.95
#: Differences below this are none, unless somebody says otherwise: two places in memory of the same program differ by
#: up to 0.5 %.
MARGIN = 0.01
SLOWER, FASTER, NO_DIFFERENCE, UNDECIDED = "slower", "faster", "no difference", "undecided"


@dataclass(frozen=True)
class Interval:
    """A ratio of times, and the interval that holds it with `confidence`; infinite where samples are too few."""

    ratio: float
    low: float
    high: float
    confidence: float
    samples: int

    def __str__(self) -> str:
        if math.isinf(self.high):
            return f"{self.ratio:.3f} [too few samples]"
        return f"{self.ratio:.3f} [{self.low:.3f}, {self.high:.3f}]"

    def above(self, limit: float) -> bool:
        """Return whether the ratio is above a limit for certain."""
        return self.low > limit

    def within(self, margin: float) -> bool:
        """Return whether the ratio is nearer to 1 than a margin for certain, by which either side may be slower."""
        return self.low > 1 / (1 + margin) and self.high < 1 + margin

    def verdict(self, margin: float = MARGIN) -> str:
        """The sentence about the second side: `NO_DIFFERENCE` where any is smaller than the margin, `SLOWER` or
        `FASTER` where 1 is outside of the interval, else `UNDECIDED`."""
        if self.within(margin):
            return NO_DIFFERENCE
        if self.low > 1:
            return SLOWER
        return FASTER if self.high < 1 else UNDECIDED

    def is_decided(self, margin: float, limit: float | None = None) -> bool:
        """Return whether more samples would hardly change the verdict: the interval lies inside of the margin, or
        outside of it (with a `limit`: on one side of that)."""
        if limit is not None:
            return self.low > limit or self.high < limit
        return self.within(margin) or self.low > 1 + margin or self.high < 1 / (1 + margin)


def interval(samples: Sequence[float], confidence: float = CONFIDENCE, share: float = 1.0) -> Interval:
    """The ratio that logarithms of ratios are about, and an interval that holds it with `confidence`: in all looks
    together, of which this one has a `share` of the error."""
    error = (1 - confidence) * share
    values = _thinned(np.asarray(samples, np.float64))
    n = len(values)
    if n == 0:
        return Interval(1.0, 0.0, math.inf, confidence, 0)
    means = np.sort(((values[:, None] + values) / 2)[np.triu_indices(n)])
    middle = float(np.median(means))
    # P(signed rank <= k - 1) <= error / 2: the k-th smallest of the means and the k-th largest bound the interval.
    k = _rank(n, error / 2)
    ends = (float(means[k - 1]), float(means[-k])) if k else (-math.inf, math.inf)
    return Interval(math.exp(middle), math.exp(ends[0]), math.exp(ends[1]), confidence, len(samples))


def _thinned(values: np.ndarray) -> np.ndarray:
    """At most `MOST` samples: means of neighbours, which are symmetric about the same value."""
    group = -(-len(values) // MOST)
    if group <= 1:
        return values
    whole = len(values) // group * group
    return values[:whole].reshape(-1, group).mean(axis=1)


@lru_cache(maxsize=256)
def _rank(n: int, error: float) -> int:
    """The largest k with P(T < k) <= error, where T is the signed rank of n samples; 0 where there is none."""
    if n <= _COUNTED:
        shares = np.ones(1)
        for rank in range(1, n + 1):  # each rank is positive, or is not, with even chances
            wider = np.zeros(len(shares) + rank)
            wider[: len(shares)] += shares / 2
            wider[rank:] += shares / 2
            shares = wider
        return int(np.searchsorted(np.cumsum(shares), error, side="right"))
    mean, deviation = n * (n + 1) / 4, math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
    return max(int(mean + NormalDist().inv_cdf(error) * deviation - 0.5), 0)
