"""Tables of bytes, against a dictionary with a value for each byte."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from lightnet.ir.interval_map import IntervalMap, SpaceMap

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


def test_neighbours_of_equal_values_are_one() -> None:
    table = IntervalMap[str]()
    for at in range(0, 640, 64):
        table.set(at, at + 64, "read")
    assert list(table) == [(0, 640, "read")]


def test_spaces_are_apart() -> None:
    table = SpaceMap[int]()
    table["arena"].set(0, 8, 1)
    assert table["arena"].values(7, 9) == [1] and table["static"].values(0, 8) == [] == table["arena"].values(8, 9)
