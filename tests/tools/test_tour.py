"""docs/tour.md is true: its stops are few, in the order in which a compilation comes by, and show what it is there."""

from __future__ import annotations

import re
import subprocess
import sys

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
    """Stops are in the order of the first calls, and what the page shows is what the network is there. In a process of its own:
    what others have compiled before is not called again."""
    done = subprocess.run([sys.executable, tour.__file__], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == len(tour.stops(tour.PAGE.read_text("utf-8")))


def test_why_a_page_is_wrong() -> None:
    text = tour.PAGE.read_text("utf-8")
    calls = tour.stops(text)
    assert tour.fault(text, calls, text) == ""
    assert "in the order [1, 0, 2," in tour.fault(text, [calls[1], calls[0], *calls[2:]], text)
    assert "in the order [-1, 0, 1," in tour.fault(text, calls[1:], text)
    assert "docs.py" in tour.fault(text, calls, f"{text} ")


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
