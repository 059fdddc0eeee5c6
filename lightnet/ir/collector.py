"""Python's cycle collector and compiling: IR is cyclic and alive, so that every full collection walks all of it in
vain."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

#: Objects that pauses may hand to the oldest generation unseen, in the life of a process: what the first compilations
#: make, which stays (modules, classes, tables) or is a few megabytes of IR. A process that compiles on and on has its
#: cycles found early again.
_UNSEEN = 1 << 19
_handed = 0


@contextmanager
def collector_paused() -> Iterator[None]:
    """No cycle collection inside (reference counts still free what is not cyclic). On 20,000 ops it would take a
    quarter of the time of compiling, and grow faster than the network."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            _hand_over()
            gc.enable()


def _hand_over() -> None:
    """Make the new objects old ones without a walk over them, which the next allocation would begin, for a twentieth of
    the time of a cold start. Who has frozen objects keeps them so: then there is a walk, and nothing is handed over any
    more, as the interpreter counts what is frozen one by one."""
    global _handed
    made = gc.get_count()[0]
    if _handed + made > _UNSEEN:
        return
    if gc.get_freeze_count():
        _handed = _UNSEEN + 1
        return
    _handed += made
    gc.freeze()
    gc.unfreeze()
