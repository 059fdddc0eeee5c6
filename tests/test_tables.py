"""Columns of text and figures with units, at their limits. Hand-worked."""

from __future__ import annotations

import pytest

from lightnet import tables


@pytest.mark.parametrize(("value", "text"), [
    (0, "0"), (7, "7"), (999.4, "999"), (999.5, "1 k"), (1000, "1 k"), (1234, "1.23 k"), (999_499, "999 k"), (999_500, "1 M"), (40e6, "40 M"),
    (5.284e9, "5.28 G"), (3e12, "3 T"), (-2500, "-2.5 k"), (0.5, "0.5"),
])  # fmt: skip
def test_counts(value: float, text: str) -> None:
    assert tables.count(value) == text
    assert tables.count(value, "B") == text + ("B" if text[-1] in "kMGT" else " B")


@pytest.mark.parametrize(("value", "text"), [
    (0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (1025, "1 KiB"), (1536, "1.5 KiB"), (999 * 1024, "999 KiB"), (999.5 * 1024, "1000 KiB"), (1000 * 1024 - 1, "1000 KiB"), (1000 * 1024, "1000 KiB"),
    (1023 * 1024, "1023 KiB"), (1 << 20, "1 MiB"), (42.5 * 2**20, "42.5 MiB"), (1 << 30, "1 GiB"), (2000 << 30, "2000 GiB"),
])  # fmt: skip
def test_sizes(value: float, text: str) -> None:
    assert tables.size(value) == text


def test_shapes_and_cuts() -> None:
    assert [tables.shape(d) for d in (None, (), (1, 3), (None, "n", 4))] == ["?", "scalar", "1x3", "?xnx4"]
    assert [tables.shortened("abcdef", n) for n in (7, 6, 5, 1)] == ["abcdef", "abcdef", "abcd…", "…"]
    assert (tables.some(0, "op"), tables.some(1, "op"), tables.some(2, "op")) == ("0 ops", "1 op", "2 ops")


def test_tables() -> None:
    rows = [("a", "1", "1.5 k", "x"), ("long", "22", "", "3"), ("b\n", "3%", "42 MiB", "")]
    want = "name   n    size  what\na      1   1.5 k  x\nlong  22          3\nb\\n   3%  42 MiB"
    assert tables.table(("name", "n", "size", "what"), rows) == want
