"""Tables of bytes, against a dictionary with a value for each byte."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from lightnet.ir.interval_map import IntervalMap, OpenIntervalMap, SpaceMap

BYTES = 24
Step = tuple[int, int, int | None]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, BYTES), st.integers(0, BYTES), st.one_of(st.none(), st.integers(0, 3))), max_size=12
    )
)
def test_values_are_those_of_each_byte(steps: list[Step]) -> None:
    table, plain = IntervalMap[int](), dict[int, int]()
    for begin, end, value in steps:
        if value is None:  # count what was there
            table.update(begin, end, lambda old: (old or 0) + 1)
            plain |= {b: plain.get(b, 0) + 1 for b in range(begin, end)}
        else:
            table.set(begin, end, value)
            plain |= dict.fromkeys(range(begin, end), value)
        parts = list(table)
        assert {b: v for low, high, v in parts for b in range(low, high)} == plain
        assert all(low < high for low, high, _ in parts)
        assert all(a[1] < b[0] or (a[1] == b[0] and a[2] != b[2]) for a, b in pairwise(parts)), "in order, joined"
    for begin, end, _ in steps:
        found = table.values(begin, end)
        assert set(found) == {plain[b] for b in range(begin, end) if b in plain}


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, BYTES), st.integers(0, BYTES), st.integers(0, 3)), max_size=12))
def test_numbers_are_a_case_of_open_bounds(steps: list[Step]) -> None:
    """Of numbers everything is decided: the open map has each byte once, with the value that it was given last."""
    table, plain = OpenIntervalMap[int](), dict[int, int | None]()
    for a, b, value in steps:
        begin, end = sorted((a, b))
        if begin < end:
            table.set(begin, end, value)
            plain |= dict.fromkeys(range(begin, end), value)
        parts = sorted(table)
        assert all(low < high for low, high, _ in parts)
        assert all(p[1] <= q[0] for p, q in pairwise(parts)), "no byte is in two parts"
        assert {b: v for low, high, v in parts for b in range(low, high)} == plain
        for low in range(0, BYTES, 5):
            found = {b: v for begin, end, v in table.parts(low, BYTES) for b in range(begin, end)}
            known = [b for b in range(low, BYTES) if b not in plain]
            until = known[0] if known else BYTES  # behind a gap it looks for nothing
            assert found == {b: plain[b] if b < until else None for b in range(low, BYTES)}


def test_neighbours_of_equal_values_are_one() -> None:
    table = IntervalMap[str]()
    for at in range(0, 640, 64):
        table.set(at, at + 64, "read")
    assert list(table) == [(0, 640, "read")]


def test_spaces_are_apart() -> None:
    table = SpaceMap[int]()
    table["arena"].set(0, 8, 1)
    assert table["arena"].values(7, 9) == [1] and table["static"].values(0, 8) == [] == table["arena"].values(8, 9)
