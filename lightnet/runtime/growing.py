"""Arrays that grow where they are: what a call returns is what it was fed, with more behind it, in one memory.

A decoder feeds the keys and values that it has got, and gets them back with those of one token more. Nothing is copied
where the array that is fed is all that its memory holds so far: then what is new is written behind it, where no array
that anybody has reaches. An array of any other memory, and one that has grown already, is copied once. So calls are
functions of what they are fed, as always: arrays that were returned before keep their elements. Imports NumPy and the
standard library.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Callable, Sequence
from math import prod
from threading import Lock
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from lightnet.diagnostics import LightNetError


class Growth(NamedTuple):
    """One input that grows in a call: the dims of the `memory` at whose front it lies, those that it grows to, and the
    `axis` along which it does."""

    memory: tuple[int, ...]
    dims: tuple[int, ...]
    axis: int
    dtype: np.dtype


class GrowingMemory(mmap.mmap):
    """The memory of an array that grows, of which `used` elements along the axis are some array's. The system gives
    pages when they are written first, so what is reserved costs nothing."""

    address: int
    growth: Growth  # of the call that it was made for
    strides: tuple[int, ...]
    used: int
    latest: Callable[[], np.ndarray | None]
    _lock: Any

    @classmethod
    def of(cls, growth: Growth) -> GrowingMemory:
        """New memory. Raises `LightNetError` when there is not enough."""
        nbytes = prod(growth.memory) * growth.dtype.itemsize
        flags = 0 if sys.platform == "win32" else mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        private = {"flags": flags | getattr(mmap, "MAP_NORESERVE", 0)} if flags else {}
        try:
            made = cls(-1, max(nbytes, 1), **private)
        except (OSError, OverflowError, ValueError):
            raise LightNetError(f"cannot allocate {nbytes} bytes for an array that grows") from None
        steps = [growth.dtype.itemsize * prod(growth.memory[k + 1 :]) for k in range(len(growth.memory))]
        made.address = np.frombuffer(made, np.uint8).ctypes.data
        made.growth, made.strides, made.used, made._lock = growth, tuple(steps), 0, Lock()
        made.latest = lambda: None
        return made

    def take(self, used: int, wanted: int) -> bool:
        """Take the elements from `used` to `wanted` along the axis, if an array ends there and nobody has them."""
        with self._lock:
            is_free = self.used == used <= wanted
            if is_free:
                self.used = wanted
        return is_free

    def begins(self, array: np.ndarray, growth: Growth) -> bool:
        """Return whether an array of this memory lies at its front, as one that grows so."""
        own = self.growth
        if (own.memory, own.axis, own.dtype) != (growth.memory, growth.axis, growth.dtype) or array.dtype != own.dtype:
            return False
        if self.latest() is array:  # most are; an address takes microseconds
            return True
        return array.strides == self.strides and array.__array_interface__["data"][0] == self.address

    def front(self, dims: Sequence[int], dtype: np.dtype) -> np.ndarray:
        """The array of these dims at the front."""
        return np.ndarray(dims, dtype, self, 0, self.strides)


def grow(array: np.ndarray, growth: Growth) -> tuple[np.ndarray, GrowingMemory]:
    """The array of `growth.dims` that begins with `array`, in its memory if that is possible, and this memory. The
    caller is to write what lies behind, while the array is there."""
    memory, old, new = _memory_of(array), array.shape[growth.axis], growth.dims[growth.axis]
    if memory is None or not memory.begins(array, growth) or not memory.take(old, new):
        memory = GrowingMemory.of(growth)
        memory.front(array.shape, growth.dtype)[...] = array
        memory.used = new
    made = memory.front(growth.dims, growth.dtype)
    memory.latest = ref(made)
    return made, memory


def _memory_of(array: Any) -> GrowingMemory | None:
    """The memory that an array, or the one that it is a part of, was made in."""
    while isinstance(array, np.ndarray):
        array = array.base
    return array if type(array) is GrowingMemory else None
