"""A pattern that matches one op for ever is stopped, and named. Imports the standard library and `ir.rewrites`."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from lightnet.diagnostics import LightNetError
from lightnet.ir import rewrites

#: Seconds between two looks.
PERIOD = 0.25


@contextmanager
def pattern_timeout(seconds: float) -> Iterator[None]:
    """Within the block, interrupt a match of a pattern that takes longer than `seconds` (0: never), as Ctrl-C would:
    the driver makes a `LightNetError` of it that names pattern and op, and this a note on the time.

    The timer is the process's (SIGALRM), so it works in the main thread only, and where there are signals; elsewhere
    the block just runs. Code in C that does not return to Python is not interrupted.
    """
    if seconds <= 0 or threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return
    seen: tuple[object | None, float] = (None, 0.0)
    stopped = False

    def look(number: int, frame: object) -> None:
        nonlocal seen, stopped
        match, now = rewrites.matching(), time.monotonic()
        if match is None or match is not seen[0]:
            seen = (match, now)
        elif now - seen[1] >= seconds:
            seen, stopped = (None, now), True
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, look)
    period = min(PERIOD, seconds / 2)
    signal.setitimer(signal.ITIMER_REAL, period, period)
    try:
        yield
    except LightNetError as e:
        if stopped:
            e.notes.append((None, f"this match has been going on for {seconds:g} s (--pattern-timeout)"))
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
