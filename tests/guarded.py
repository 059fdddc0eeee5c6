"""Memory between pages that nothing may touch: a read or write beside it ends the process, and the crash names the test."""

from __future__ import annotations

import ctypes
import mmap
from itertools import count

import numpy as np

_turn = count()


def guarded(nbytes: int, alignment: int = 64) -> np.ndarray:
    """`nbytes` bytes (0xFF, NaN as floats) at a multiple of `alignment`, with a page on either side that cannot be accessed: by turns they
    begin where a page does, and end as near to the end of one as the alignment allows."""
    page = mmap.PAGESIZE
    size = max(-(-nbytes // page), 1) * page
    memory = np.frombuffer(mmap.mmap(-1, size + 2 * page), np.uint8)  # the array keeps the map
    memory[:] = 0xFF
    protect = ctypes.CDLL(None).mprotect
    for at in (0, page + size):
        assert protect(ctypes.c_void_p(memory.ctypes.data + at), ctypes.c_size_t(page), 0) == 0
    start = page + (0 if next(_turn) % 2 else (size - nbytes) // alignment * alignment)
    return memory[start : start + nbytes]
