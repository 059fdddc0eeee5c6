"""Copies between arrays and a device, by way of pinned memory.

The device reads and writes pinned memory itself, at the full speed of the bus; what it does with other memory, and
until when it reads it, the driver leaves open. There are two pinned buffers, used in turn, so that one is filled or
emptied while the device works on the other. Imports the standard library and NumPy.
"""

from __future__ import annotations

from ctypes import addressof, c_ubyte, c_void_p

import numpy as np

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError
from lightnet.runtime.cuda.api import EVENT_DISABLE_TIMING
from lightnet.runtime.cuda.context import DeviceContext

#: Bytes of a pinned buffer. It grows to what is copied, by powers of two, as pinned memory cannot be swapped out.
LEAST, MOST = 1 << 16, 1 << 25


@dataclass(eq=False)
class _Buffer:
    memory: np.ndarray  # uint8 [size]
    address: int
    event: int  # recorded behind the last copy from or to it
    is_busy: bool = False  # whether that copy may be under way


class Staging:
    """The copies on a context's stream. All methods are to be called within `DeviceContext.current`."""

    def __init__(self, context: DeviceContext):
        self._context = context
        self._buffers: list[_Buffer] = []
        self._next = 0

    def upload(self, address: int, data: np.ndarray) -> None:
        """Copy an array to the device; it may be changed once this returns."""
        source = _flat(np.ascontiguousarray(data))
        size = self._reserve(source.size)
        for start in range(0, source.size, size):
            piece = source[start : start + size]
            buffer = self._take()
            buffer.memory[: piece.size] = piece
            self._context("cuMemcpyHtoDAsync_v2", address + start, buffer.address, piece.size, self._context.stream)
            self._mark(buffer)

    def download(self, address: int, out: np.ndarray) -> None:
        """Fill a C-contiguous array from the device; waits for all that the stream was given before."""
        target = _flat(out)
        size = self._reserve(target.size)
        under_way: tuple[_Buffer, np.ndarray] | None = None
        for start in range(0, target.size, size):
            piece = target[start : start + size]
            buffer = self._take()
            self._context("cuMemcpyDtoHAsync_v2", buffer.address, address + start, piece.size, self._context.stream)
            self._mark(buffer)
            if under_way is not None:
                self._empty(*under_way)
            under_way = buffer, piece
        if under_way is not None:
            self._empty(*under_way)

    def _empty(self, buffer: _Buffer, piece: np.ndarray) -> None:
        self._wait(buffer)
        piece[:] = buffer.memory[: piece.size]

    def _take(self) -> _Buffer:
        """The buffer that was taken longest ago, free to be used."""
        buffer = self._buffers[self._next]
        self._next = 1 - self._next
        self._wait(buffer)
        return buffer

    def _mark(self, buffer: _Buffer) -> None:
        self._context("cuEventRecord", buffer.event, self._context.stream)
        buffer.is_busy = True

    def _wait(self, buffer: _Buffer) -> None:
        if buffer.is_busy:
            self._context("cuEventSynchronize", buffer.event)
            buffer.is_busy = False

    def _reserve(self, nbytes: int) -> int:
        """Make the buffers large enough for so many bytes, or as large as they become; their size."""
        wanted = min(max(LEAST, 1 << (nbytes - 1).bit_length()), MOST)
        if self._buffers and self._buffers[0].memory.size >= wanted:
            return self._buffers[0].memory.size
        while self._buffers:
            old = self._buffers.pop()
            self._wait(old)
            self._context.give_back("cuMemFreeHost", old.address)
            self._context.give_back("cuEventDestroy_v2", old.event)
        self._next = 0
        self._buffers = [self._make(wanted), self._make(wanted)]
        return wanted

    def _make(self, nbytes: int) -> _Buffer:
        event, memory = c_void_p(), c_void_p()
        self._context("cuEventCreate", event, EVENT_DISABLE_TIMING)
        self._context.hold("cuEventDestroy_v2", event.value or 0)
        self._context("cuMemHostAlloc", memory, nbytes, 0)
        self._context.hold("cuMemFreeHost", memory.value or 0)
        view = (c_ubyte * nbytes).from_address(memory.value or 0)
        return _Buffer(np.frombuffer(memoryview(view), np.uint8), addressof(view), event.value or 0)


def _flat(array: np.ndarray) -> np.ndarray:
    """The bytes of a C-contiguous array: uint8 [nbytes], a view."""
    if array.dtype.hasobject:
        raise LightNetError(f"an array of {array.dtype} cannot be copied to or from a device")
    return array.reshape(-1).view(np.uint8)
