"""Histograms of calibration: exact whatever the order and size of calls, and quantiles like NumPy's of all values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightnet_quantize.histograms import BINS, Histogram

#: Values of many kinds: both signs, one sign, half zeros, tiny, huge, constant, one outlier.
SAMPLES = {
    "normal": lambda rng: rng.normal(size=20_000),
    "relu": lambda rng: np.maximum(rng.normal(size=20_000), 0),
    "negative": lambda rng: -rng.exponential(size=9_999),
    "tiny": lambda rng: rng.normal(size=5_000) * 1e-38,
    "huge": lambda rng: rng.normal(size=5_000) * 1e37,
    "constant": lambda rng: np.full(1_000, 0.75),
    "zero": lambda rng: np.zeros(1_000),
    "outlier": lambda rng: np.append(rng.normal(size=5_000), 1e4),
    "one": lambda rng: np.array([-3.5]),
}


def histogram_of(*parts: np.ndarray) -> Histogram:
    made = Histogram()
    for part in parts:
        made.add(part)
    return made


def same(one: Histogram, other: Histogram) -> bool:
    points = [h.points() for h in (one, other)]
    ends = [(h.least, h.most, h.zeros, h.exponent) for h in (one, other)]
    return ends[0] == ends[1] and all(np.array_equal(a, b) for a, b in zip(*points))


@pytest.mark.parametrize("name", SAMPLES)
def test_counts_are_those_of_all_values_at_once(name: str) -> None:
    """Pieces, of any size and in any order, and sums of histograms give what one call gives."""
    rng = np.random.default_rng(7)
    values = SAMPLES[name](rng).astype(np.float32)
    whole = histogram_of(values)
    pieces = np.array_split(values, 7)
    assert same(whole, histogram_of(*pieces)) and same(whole, histogram_of(*pieces[::-1]))
    halves = [histogram_of(*pieces[:3]), histogram_of(*pieces[3:])]
    halves[1].merge(halves[0])
    assert same(whole, halves[1])
    assert whole.total == values.size and whole.counts.size <= BINS
    assert (whole.least, whole.most) == (values.min(), values.max())


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=60), st.randoms())
def test_any_values_in_any_order(values: list[float], order: object) -> None:
    """Subnormal numbers and the largest, beside each other: every value is counted in the bin that it lies in."""
    array = np.array(values, np.float32)
    whole = histogram_of(array)
    shuffled = list(values)
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    assert same(whole, histogram_of(*np.array(shuffled, np.float32).reshape(-1, 1)))
    nonzero = array[array != 0].astype(np.float64)
    bins = np.floor(nonzero / whole.width)
    expected = {float(b): int(n) for b, n in zip(*np.unique(bins, return_counts=True))}
    found = {float(whole.first + k): int(n) for k, n in enumerate(whole.counts) if n}
    assert found == expected


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("share", [0.9, 0.99, 0.9999, 1.0])
def test_quantiles_are_within_a_bin_of_numpys(name: str, share: float) -> None:
    values = SAMPLES[name](np.random.default_rng(8)).astype(np.float32).astype(np.float64)
    found = histogram_of(values.astype(np.float32))
    low, high = found.central(share)
    reach = 0.5 + share / 2
    wanted = -np.quantile(-values, reach, method="inverted_cdf"), np.quantile(values, reach, method="inverted_cdf")
    assert low == pytest.approx(wanted[0], abs=1.001 * found.width, rel=1e-6)
    assert high == pytest.approx(wanted[1], abs=1.001 * found.width, rel=1e-6)
    magnitude = np.quantile(np.abs(values), share, method="inverted_cdf")
    assert found.magnitude(share) == pytest.approx(magnitude, abs=1.001 * found.width, rel=1e-6)


def test_memory_does_not_grow() -> None:
    """A first call of tiny values, then ever larger ones: the bins become wider, not more."""
    made = Histogram()
    for exponent in range(-40, 38):
        made.add(np.array([10.0**exponent, -(10.0**exponent)], np.float32))
        assert made.counts.size <= BINS
    assert made.total == 2 * 78
