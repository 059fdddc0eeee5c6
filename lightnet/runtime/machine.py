"""A target's use of its machine when networks run: getting hold of it, giving it back, and copies between its
memories.

These are document 004's `init_func`, `cleanup_func` and `priv` of an architecture, and `ln_mem_type_copy_func` of its
memory types. Imports NumPy and the standard library: saved executables need no compiler.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from lightnet.diagnostics import LightNetError

#: The memory of the process, as one end of a copy: arrays that are fed, read or loaded.
HOST = "host"


class Area(NamedTuple):
    """Bytes in a memory space: an array of `uint8` where they are memory of this process (of the space `HOST` always),
    else what the target's machine takes for an address."""

    space: str
    where: Any
    nbytes: int

    @classmethod
    def of(cls, array: np.ndarray, space: str = HOST) -> Area:
        """The bytes of a contiguous array."""
        return cls(space, array.reshape(-1).view(np.uint8), array.nbytes)


class Machine:
    """The machine of a target; this one is the process itself, with nothing to open. A target of one's own derives it,
    and overrides what its machine needs (`Target.machine`).

    One object serves every executable of its target; what belongs to one executable is its `state`, which `open` gives
    and `close` and `copy` take.
    """

    #: Whether `open` waits until an executable first runs: a network may be compiled where there is no such machine.
    is_opened_late: ClassVar[bool] = False

    def open(self, options: Mapping[str, Any]) -> Any:
        """Get hold of the machine for one executable, when that is made; `options` are those that it is compiled with
        (`arch`, `emulate`, `threads`). Raises LightNetError where there is none."""
        return None

    def close(self, state: Any) -> None:
        """Give back what `open` got, when the executable is closed, or nobody refers to it any more. It is called
        once."""

    def copy(self, state: Any, to: Area, source: Area) -> None:
        """Copy as many bytes as both areas have, which do not overlap, between any two spaces of the target and the
        host."""
        to.where[:] = source.where


PROCESS = Machine()


class Opened:
    """A machine for one executable: opened when this is made, or when its state is first asked for; closed with
    `close`, or with the last reference."""

    def __init__(self, machine: Machine, options: Mapping[str, Any] | None = None):
        self.machine, self.options = machine, dict(options or {})
        self._lock = threading.Lock()
        self._close: Any = None  # once it is opened
        self.is_closed = False
        if not machine.is_opened_late:
            _ = self.state

    @property
    def state(self) -> Any:
        """The state that `Machine.open` gave. LightNetError once this is closed."""
        with self._lock:
            if self.is_closed:
                raise LightNetError("the executable is closed: compile or load the network again")
            if self._close is None:
                self._state = self.machine.open(self.options)
                self._close = weakref.finalize(self, self.machine.close, self._state)
            return self._state

    def close(self) -> None:
        """Give the machine back; closing again does nothing."""
        with self._lock:
            self.is_closed = True
            if self._close is not None:
                self._close()

    def copy(self, to: Area, source: Area) -> None:
        """`Machine.copy` with the state of this executable."""
        self.machine.copy(self.state, to, source)
