"""docs/tour.md is true: its stops are few, in the order in which a compilation comes by, and show what it is there."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("onnx.parser", reason="the tour begins with ONNX's text form")

import tour

#: What one person reads in an afternoon.
MOST_FILES, MOST_LINES = 16, 4500


def test_the_tour_is_short() -> None:
    files = [stop.file for stop in tour.stops(tour.PAGE.read_text("utf-8"))]
    assert len(files) == len(set(files)) and 10 <= len(files) <= MOST_FILES
    assert sum(len((tour.ROOT / file).read_text("utf-8").splitlines()) for file in files) <= MOST_LINES
    assert len(files) == len(re.findall("^## ", tour.PAGE.read_text("utf-8"), re.MULTILINE))


def test_the_tour_goes_where_a_compilation_goes() -> None:
    """Stops are in the order of the first calls, and what the page shows is what the network is there."""
    text, calls = tour.PAGE.read_text("utf-8"), {}
    journey = tour.Journey(tour.source(text), calls)
    order = {stop: number for number, stop in enumerate(calls)}
    found = [order.get(stop, -1) for stop in tour.stops(text)]
    assert -1 not in found, f"not called: {[s for s, at in zip(tour.stops(text), found) if at < 0]}"
    assert found == sorted(found)
    assert tour.page(text, journey) == text, "run `python tools/docs.py`"


def test_every_level_is_shown() -> None:
    """What the page is for: the network before, between and behind all levels, none of it empty."""
    shown = tour._SHOWN.findall(tour.PAGE.read_text("utf-8"))
    assert {
        "read",
        "pipeline",
        "expand",
        "combine",
        "layout",
        "choose",
        "pack",
        "plan",
        "lower-cpu",
        "llvm",
        "asm",
    } == {stage for _, stage, *_ in shown}


@pytest.mark.parametrize(
    ("count", "start", "want"),
    [(0, None, "a\n  b\nc"), (1, "b", "b"), (2, "b", "  b\nc"), (9, "c", "c")],
)
def test_an_excerpt(count: int, start: str | None, want: str) -> None:
    assert tour.excerpt("  a\n    b\n  c\n", start, count) == want


def test_an_excerpt_of_nothing_is_refused() -> None:
    with pytest.raises(SystemExit, match="no line has 'x'"):
        tour.excerpt("a\n", "x", 1)
    assert tour.excerpt("y" * 1000, None, 0).endswith(" …")
