"""How many threads a call may use: what a caller says, else the environment, else as many as there are processors. What this process may
use of these is asked again while it runs. Imports the diagnostics only."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from lightnet.diagnostics import LightNetError

#: Most threads of a network, the caller's included: what the pool has room for. A network that nobody gave a number for is compiled for these.
MAX_THREADS = 256
#: The environment variable with a number of threads, for who gives none: where networks are compiled, and where they run that were
#: compiled without a number.
VARIABLE = "LIGHTNET_THREADS"
#: What a caller of the compiler says for a network of any number of threads, whatever the environment says.
ANY = "any"
#: Where nothing is said, kernels are shaped for no more threads than this, however many may share them: work that is cut into finer
#: pieces takes longer where there is one thread to do it (3 % for 8 threads, none that is seen for 2: docs/threads.md).
SHAPED = 2
#: Seconds for which what the system said of processors holds: of a thread's affinity, which takes a microsecond to ask for, and of
#: quotas, which stand in files.
AFFINITY_HOLDS, QUOTA_HOLDS = 0.1, 1.0


class _Seen(threading.local):
    """What a thread saw last: until when that holds, and how many processors it may use."""

    until, count = 0.0, 1


_seen = _Seen()
_quota_seen: tuple[float, int] = (0.0, MAX_THREADS)


def processors() -> int:
    """How many processors the calling thread may use, at most `MAX_THREADS`: those of its affinity, and no more than the quota of its
    control group (`quota`) pays for. What changes is seen a tenth of a second later, of a quota a second."""
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
    """How many processors this process's control group (version 2) may use at a time, by its ``cpu.max`` and those of the groups around
    it: whole ones, as threads that wait for each other lose more by one that is held up than by doing without it. At least 1;
    `MAX_THREADS` where nothing is limited, or nothing can be read."""
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


def thread_count(value: object = None) -> int:
    """The number of threads that a caller asks for (None: that of the environment, else that of `processors`). Raises `LightNetError` for
    what is no integer from 1 to `MAX_THREADS`."""
    if value is None:
        return _said_by_environment() or processors()
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise LightNetError(f"threads is a number of threads, not {str(value)[:40]!r}")
    return _in_range(value.__index__(), "threads ")


def _said_by_environment() -> int | None:
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return None
    if not text.isascii() or not text.isdigit():
        raise LightNetError(f"the environment variable {VARIABLE} is a number of threads, not {text[:40]!r}")
    return _in_range(int(text[:9]), f"{VARIABLE} ")


def is_said(value: object) -> bool:
    """Whether a caller of the compiler, or the environment, says a number."""
    if isinstance(value, str) and value == ANY:
        return False
    return value is not None or bool(os.environ.get(VARIABLE, "").strip())


def _in_range(count: int, what: str) -> int:
    if not 1 <= count <= MAX_THREADS:
        raise LightNetError(f"{what}should be from 1 to {MAX_THREADS}, and is {count}")
    return count


def bound_of(value: object) -> int:
    """The most threads of a network for which a caller of the compiler says `value`: that, else what the environment says, else
    (or where that is `ANY`) `MAX_THREADS`. Raises `LightNetError` as `thread_count`."""
    return thread_count(value) if is_said(value) else MAX_THREADS


def unless_told(bound: int) -> int:
    """How many threads calls of a network are meant to use that say nothing, on a machine with enough processors: the bound that it was
    compiled for, or, where nobody gave one, what the environment says now. Raises `LightNetError` as `thread_count`."""
    return bound if bound < MAX_THREADS else _said_by_environment() or MAX_THREADS


def threads_of(bound: int) -> int:
    """What an executable tells of its threads: the bound that it was compiled for, or, where nobody gave one, how many a call uses here
    that says nothing."""
    return bound if bound < MAX_THREADS else min(unless_told(bound), processors())


def threads_of_call(value: object, bound: int, most: int | None = None) -> int:
    """The threads of one call of a network that is compiled for `bound` of them at most (`value` None: `most`, else as many, and no more
    than there are processors). Raises `LightNetError` for more than the bound."""
    if value is None:
        most = bound if most is None else most
        return min(most, processors()) if most > 1 else 1
    count = thread_count(value)
    if count > bound:
        raise LightNetError(f"the network is compiled for {bound} thread{'s' * (bound > 1)}, and cannot run on {count}: "
                            f"compile it with threads={count}, or without a number")  # fmt: skip
    return count


def number_of(bound: int) -> int | None:
    """The number that a network was compiled for, None for any."""
    return bound if bound < MAX_THREADS else None


def shown(bound: int) -> str:
    """The bound of a network, for people."""
    return "any number of threads" if bound == MAX_THREADS else f"{bound} thread{'s' * (bound != 1)}"
