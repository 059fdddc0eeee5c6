"""Python's cycle collector and compiling: IR is cyclic and alive, so that every full collection walks all of it in vain."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """No cycle collection inside (reference counts still free what is not cyclic). On 20,000 ops it would take a quarter
    of the time of compiling, and grow faster than the network."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
