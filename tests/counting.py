"""Counts of function calls, where a test would else measure time, which depends on what else the machine does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


@dataclass
class Calls:
    """How many functions were called, those of C too."""

    count: int = 0


@contextmanager
def calls(at_most: int = sys.maxsize) -> Iterator[Calls]:
    """Count the calls that this thread makes inside; fails at the first one beyond `at_most`, so that what would never end does."""
    made = Calls()

    def counted(frame: FrameType, event: str, arg: object) -> None:
        if event in ("call", "c_call"):
            made.count += 1
            if made.count > at_most:
                raise AssertionError(f"more than {at_most} calls")

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        yield made
    finally:
        sys.setprofile(before)
    assert made.count <= at_most
