"""How many threads a network may use: what a caller says, else the environment, else as many as there are processors. Imports the
diagnostics only."""

from __future__ import annotations

import os

from lightnet.diagnostics import LightNetError

#: Most threads of a network, the caller's included: what the pool has room for.
MAX_THREADS = 256
#: The environment variable with the number of threads that networks are compiled for where nothing else is said.
VARIABLE = "LIGHTNET_THREADS"
#: Where nothing is said, kernels are shaped for no more threads than this, however many may share them: work that is cut into finer
#: pieces takes longer where there is one thread to do it (3 % for 8 threads, none that is seen for 2: docs/threads.md).
SHAPED = 2


def processors() -> int:
    """How many processors this process may run on, at most `MAX_THREADS`."""
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(max(there, 1), MAX_THREADS)


def thread_count(value: object = None) -> int:
    """The number of threads that a caller asks for (None: that of the environment, else that of `processors`). Raises `LightNetError` for
    what is no integer from 1 to `MAX_THREADS`."""
    if value is None:
        text = os.environ.get(VARIABLE, "").strip()
        if not text:
            return processors()
        if not text.isascii() or not text.isdigit():
            raise LightNetError(f"the environment variable {VARIABLE} is a number of threads, not {text[:40]!r}")
        return _in_range(int(text[:9]), f"{VARIABLE} ")
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise LightNetError(f"threads is a number of threads, not {str(value)[:40]!r}")
    return _in_range(value.__index__(), "threads ")


def is_said(value: object) -> bool:
    """Whether the caller of `thread_count`, or the environment, says a number."""
    return value is not None or bool(os.environ.get(VARIABLE, "").strip())


def _in_range(count: int, what: str) -> int:
    if not 1 <= count <= MAX_THREADS:
        raise LightNetError(f"{what}should be from 1 to {MAX_THREADS}, and is {count}")
    return count


def threads_of_call(value: object, compiled: int) -> int:
    """The threads of one call of a network that is compiled for `compiled` of them (None: so many, and no more than there are
    processors). Raises `LightNetError` for more, which there is no memory for."""
    if value is None:
        return min(compiled, processors()) if compiled > 1 else 1
    count = thread_count(value)
    if count > compiled:
        raise LightNetError(f"the network is compiled for {compiled} thread{'s' * (compiled > 1)}, and cannot run on {count}: "
                            f"compile it with threads={count}")  # fmt: skip
    return count
