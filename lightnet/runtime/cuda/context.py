"""A device's primary context and our stream in it: made current for each operation, with all that was made in it, and
with what is known once it is lost.

The primary context is the one that other libraries of the process use too, so that it is neither reset nor left
current. Imports the standard library.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import c_int, c_void_p
from typing import Any

from lightnet.diagnostics import LightNetError
from lightnet.runtime.cuda.api import STICKY, STREAM_NON_BLOCKING, Api, CudaError

#: So many launches are named when the device reports an error that may be any one's.
RECENT = 8


class DeviceContext:
    """The primary context of the device `ordinal`, with a stream. Raises CudaError where there is none to be had.

    One operation runs at a time, whichever thread it comes from: a stream that is being captured takes no others.
    """

    def __init__(self, api: Api, ordinal: int):
        self._api = api
        self._lock = threading.RLock()
        #: (function that gives it back, handle) of all that was made here, in the order of making.
        self._held: dict[tuple[str, int], None] = {}
        self._discarded: deque[tuple[str, int]] = deque()
        self._launches: deque[str] = deque(maxlen=RECENT)
        self._launched = 0  # since the device was last known to have finished
        self._lost: LightNetError | None = None
        self._is_closed = False
        device, handle = c_int(), c_void_p()
        api("cuDeviceGet", device, ordinal)
        api("cuDevicePrimaryCtxRetain", handle, device.value)
        self.device, self._handle = device.value, handle.value
        #: Everything is done on this stream, in order.
        self.stream = 0
        stream = c_void_p()
        try:
            with self.current():
                # Work of others on the default stream, such as PyTorch's, and ours do not wait for each other.
                self("cuStreamCreate", stream, STREAM_NON_BLOCKING)
        except LightNetError:
            self.close()
            raise
        self.stream = self.hold("cuStreamDestroy_v2", stream.value or 0)

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make the context current on this thread for a block of calls. LightNetError if it is closed or lost, or in a
        forked child."""
        self._api.check_process()  # before the lock, which a thread of the parent may have held
        with self._lock:
            if self._is_closed:
                raise LightNetError("the CUDA device is closed")
            if self._lost is not None:
                raise LightNetError(self._lost.message, notes=list(self._lost.notes))
            self._api("cuCtxPushCurrent_v2", self._handle)
            try:
                yield
            finally:
                self._api.attempt("cuCtxPopCurrent_v2", c_void_p())

    def __call__(self, name: str, *args: Any) -> None:
        """`Api.__call__`, within `current`. An error that the context does not survive says which launches may have
        caused it."""
        try:
            self._api(name, *args)
        except CudaError as error:
            if error.code in STICKY:
                self._lose(error)
            raise

    def attempt(self, name: str, *args: Any) -> None:
        """A call within `current` whose error does not matter."""
        self._api.attempt(name, *args)

    def wait(self) -> None:
        """Wait, within `current`, for all that the stream was given."""
        self("cuStreamSynchronize", self.stream)
        self.finished()

    # -- what failed -------------------------------------------------------------------------------------------------

    def launched(self, what: str) -> None:
        """Take down that the device was given something to run."""
        self._launches.append(what)
        self._launched += 1

    def finished(self) -> None:
        """Take down that the device has run all of it; what was discarded meanwhile can go now, as nothing uses it."""
        self._launches.clear()
        self._launched = 0
        while self._discarded:
            self.give_back(*self._discarded.popleft())

    def _lose(self, error: CudaError) -> None:
        if self._launched == 1:
            error.notes.append((None, f"it was {self._launches[0]} that failed"))
        elif self._launched:
            rest = ", ..." if self._launched > len(self._launches) else ""
            error.notes.append(
                (
                    None,
                    f"one of {self._launched} launches failed, from the last: "
                    f"{', '.join(reversed(self._launches))}{rest}",
                )
            )
            error.notes.append((None, "LIGHTNET_CUDA_SYNC=1 waits for each launch, and says which it was"))
        gone = (
            None,
            "the memory and the kernels on the device are lost to this process: only a new one can use it again",
        )
        error.notes.append(gone)
        self._lost = LightNetError(
            f"the CUDA device was lost to an earlier error: {error.reason}", notes=list(error.notes)
        )

    # -- what was made -----------------------------------------------------------------------------------------------

    def hold(self, give_back: str, handle: int) -> int:
        """Take over something that the function `give_back` gives back; its handle."""
        self._held[give_back, handle] = None
        return handle

    def holds(self, give_back: str, handle: int) -> bool:
        """Return whether it was taken over, and not given back yet."""
        return (give_back, handle) in self._held

    def give_back(self, give_back: str, handle: int) -> None:
        """Give back what was taken over, within `current`; nothing if that has happened already."""
        if self.holds(give_back, handle):
            del self._held[give_back, handle]
            self._api.attempt(give_back, handle)

    def discard(self, give_back: str, handle: int) -> None:
        """Give back once the device is idle. Called from anywhere, by the garbage collector too: takes no lock and
        calls no driver."""
        self._discarded.append((give_back, handle))

    def close(self) -> None:
        """Give back everything, the last made first, and the context; nothing where that has happened, or in a forked
        child, whose memory is a copy of the parent's and whose handles are the parent's own."""
        if not self._api.is_ours:
            return
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            # Calls may fail where the context is lost, which does no harm; but what was not pushed must not be popped.
            if not self._api.attempt("cuCtxPushCurrent_v2", self._handle):
                if self.stream:
                    self._api.attempt("cuStreamSynchronize", self.stream)
                for give_back, handle in reversed(self._held):
                    self._api.attempt(give_back, handle)
                self._api.attempt("cuCtxPopCurrent_v2", c_void_p())
            self._held.clear()
            self._api.attempt("cuDevicePrimaryCtxRelease_v2", self.device)
