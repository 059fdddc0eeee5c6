"""The number of threads that a call may use: what a caller says, else the environment, else as many as there are
processors. What this process may use of these is asked again while it runs. Imports the diagnostics only.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import NamedTuple

from lightnet.diagnostics import LightNetError

#: Most threads of a network, the caller's included: what the pool has room for. A network that nobody gave a number for
#: is compiled for these.
MAX_THREADS = 256
#: The environment variable with a number of threads, for who gives none: where networks are compiled, and where they
#: run that were compiled without a number.
THREADS_VARIABLE = "LIGHTNET_THREADS"
#: What a caller of the compiler says for a network of any number of threads, whatever the environment says.
ANY = "any"
#: Where nothing is said, kernels are shaped for no more threads than this, however many may share them: work that is
#: cut into finer pieces takes longer where there is one thread to do it (3 % for 8 threads, none that is seen for 2:
#: docs/threads.md).
SHAPED = 2
#: Seconds for which what the system said of processors holds: of a thread's affinity, which takes a microsecond to ask
#: for, and of quotas, which stand in files.
AFFINITY_HOLDS, QUOTA_HOLDS = 0.1, 1.0


class _Seen(threading.local):
    """The last look of a thread: until when it holds, and how many processors it may use."""

    until, count = 0.0, 1


_seen = _Seen()
_quota_seen: tuple[float, int] = (0.0, MAX_THREADS)


def processors() -> int:
    """The number of processors that the calling thread may use, at most `MAX_THREADS`: those of its affinity, and no
    more than the quota of its control group (`quota`) pays for. What changes is seen a tenth of a second later, of a
    quota a second.
    """
    if (now := time.monotonic()) >= _seen.until:
        there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        _seen.count = max(min(there, _quota(now), MAX_THREADS), 1)
        _seen.until = now + AFFINITY_HOLDS
    return _seen.count


def _quota(now: float) -> int:
    global _quota_seen
    if now >= _quota_seen[0]:
        _quota_seen = now + QUOTA_HOLDS, quota()
    return _quota_seen[1]


def quota(groups: str = "/proc/self/cgroup", mounted: str = "/sys/fs/cgroup") -> int:
    """The number of processors that this process's control group (version 2) may use at a time, by its ``cpu.max`` and
    those of the groups around it: whole ones, as threads that wait for each other lose more by one that is held up than
    by doing without it. At least 1; `MAX_THREADS` where nothing is limited, or nothing can be read.
    """
    try:
        lines = Path(groups).read_text().splitlines()
    except (OSError, ValueError):
        return MAX_THREADS
    own = next((line[3:] for line in lines if line.startswith("0::/")), None)
    if own is None:
        return MAX_THREADS
    parts, most = [part for part in own.split("/") if part not in ("", "..")], MAX_THREADS
    for depth in range(len(parts) + 1):
        try:
            allowed, period = Path(mounted, *parts[:depth], "cpu.max").read_text().split()
            most = most if allowed == "max" else min(most, int(allowed) // int(period))
        except (OSError, ValueError, ZeroDivisionError):
            continue  # no group of its own, or without the controller
    return max(most, 1)


class Threads(NamedTuple):
    """The number of threads that calls of a network may use: a number that somebody gave, or (`number` None) as many as
    there are. The two differ even where that number is `MAX_THREADS`: what a call uses that says nothing then follows
    the environment, and the processors that there are.
    """

    number: int | None = None

    @classmethod
    def asked(cls, value: object = None) -> Threads:
        """The threads that a caller of the compiler asks for: a number, `ANY`, or nothing, for which the environment
        may have a number. Raises `LightNetError` for what is no integer from 1 to `MAX_THREADS`.
        """
        if isinstance(value, str) and value == ANY:
            return cls()
        return cls(_said_by_environment() if value is None else thread_count(value))

    @property
    def is_said(self) -> bool:
        """True if there is a number."""
        return self.number is not None

    @property
    def bound(self) -> int:
        """The most threads of a call: what `Program.threads` has."""
        return MAX_THREADS if self.number is None else self.number

    @property
    def wanted(self) -> int:
        """The number of threads that calls are meant to use that say nothing, on a machine with enough processors:
        where nobody gave a number, what the environment says now.
        """
        return self.number or _said_by_environment() or MAX_THREADS

    @property
    def used(self) -> int:
        """The number that an executable tells of its threads: how many a call uses, here and now, that says nothing."""
        return min(self.wanted, processors())

    def of_call(self, value: object, most: int | None = None) -> int:
        """The threads of one call (`value` None: `most`, else as many as may be, and no more than there are
        processors). Raises `LightNetError` for more than the bound."""
        if value is None:
            most = self.bound if most is None else most
            return min(most, processors()) if most > 1 else 1
        count = thread_count(value)
        if count > self.bound:
            raise LightNetError(f"the network is compiled for {self}, and cannot run on {count}: "
                                f"compile it with threads={count}, or without a number")  # fmt: skip
        return count

    def __str__(self) -> str:
        """For people."""
        return "any number of threads" if self.number is None else f"{self.number} thread{'s' * (self.number != 1)}"


def thread_count(value: object) -> int:
    """A number of threads. Raises `LightNetError` for what is no integer from 1 to `MAX_THREADS`."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise LightNetError(f"threads is a number of threads, not {str(value)[:40]!r}")
    return _in_range(value.__index__(), "threads ")


def _said_by_environment() -> int | None:
    text = os.environ.get(THREADS_VARIABLE, "").strip()
    if not text:
        return None
    if not text.isascii() or not text.isdigit():
        raise LightNetError(f"the environment variable {THREADS_VARIABLE} is a number of threads, not {text[:40]!r}")
    return _in_range(int(text[:9]), f"{THREADS_VARIABLE} ")


def _in_range(count: int, what: str) -> int:
    if not 1 <= count <= MAX_THREADS:
        raise LightNetError(f"{what}should be from 1 to {MAX_THREADS}, and is {count}")
    return count
