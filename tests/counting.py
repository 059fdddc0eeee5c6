"""Counts of function calls, where a test would else measure time, which depends on the machine and on what else it does.

What native code does, no call counts: there `ends` guards against what would not end, and bounds nothing that is quick.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

#: Processor seconds after which `ends` takes something for endless: many times what anything under it needs.
ENDLESS = 60.0


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
        assert made.count <= at_most, "it went on after too many calls"


@contextmanager
def ends(within: float = ENDLESS) -> Iterator[None]:
    """Fail at what has used so many processor seconds, at its next step of Python; of the main thread."""

    def late(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"not done within {within:g} processor seconds")

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, within)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
