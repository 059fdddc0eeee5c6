"""A program whose memory spaces stand in a machine's memory, wherever that is: what a call writes there, and reads from
there.

How the launch list runs is a subclass's business: `cuda/program.py` has graphs of a device's driver, `listed.py` goes
through it line by line. Imports NumPy, the standard library and the rest of the runtime.
"""

from __future__ import annotations

import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Self, TextIO

import numpy as np

from lightnet.runtime.calls import Invocation
from lightnet.runtime.instance import Contents, Outputs, host_call
from lightnet.runtime.machine import Area, Machine, Opened
from lightnet.runtime.program import Program, Tensor, sized

#: A place: memory space and byte offset.
Place = tuple[str, int]


class SpacesInstance(ABC):
    """A program on a machine, that of `opened`, which is closed with it.

    `static` holds the bytes of the static space, `defaults` the contents of inputs and residents after loading. Calls
    from several threads are safe: they run one after the other, since there is one arena. Who runs its launches one by
    one does so in an instance of its own (`apart`).
    """

    def __init__(
        self, program: Program, static: np.ndarray, defaults: Mapping[str, np.ndarray], opened: Opened | None = None
    ):
        self.opened = opened  # the machine is closed with the last reference to it
        self.program, self.static, self.defaults = program, static, dict(defaults)
        self.inputs = {t.name: t for t in program.inputs}
        self._filled = {t.name: t for t in (*program.inputs, *program.residents)}
        self._lost = dict(program.overwritten)
        self._lock = threading.Lock()
        self._stale: set[str] | None = None  # tensors to write before the next run; None: all of them
        self._uploaded: np.ndarray | None = None  # the bytes that the static space of the machine holds

    # -- what a machine does

    @abstractmethod
    def at(self, place: Place) -> Any:
        """The address of a place, as the machine's `copy` takes it (`Area.where`): up to the end of its space."""

    @abstractmethod
    def run_all(self, stream: TextIO | None) -> None:
        """Run the launch list from where `start` leaves the memory, with its run-time calls, whose text goes to
        `stream`, or (None) without."""

    @abstractmethod
    def apart(self) -> Self:
        """The same program on the same machine, with memory of its own."""

    def release(self) -> None:  # noqa: B027 (nothing, where memory goes by itself)
        """Give back the memory. Nothing else may be called afterwards."""

    def wait(self) -> None:  # noqa: B027 (nothing, where launches end before they return)
        """Wait for what has been launched. Raises for what went wrong in it."""

    @property
    def machine(self) -> tuple[Machine, Any]:
        """The machine, and its state. LightNetError once it is closed."""
        assert self.opened is not None
        return self.opened.machine, self.opened.state

    # -- calling

    def quick(self, feeds: Any) -> dict[str, np.ndarray] | None:
        """The way around checks and look-ups that `Instance` has: there is none here, and `call` does everything."""
        return None

    def call(self, call: Invocation, static: np.ndarray | None = None, residents: Contents | None = None) -> Outputs:
        """Run once on what `call` feeds, and return the outputs, new arrays but for those that it has buffers for, in
        the program's order.

        `static` and `residents` replace the loaded contents of the static space and of residents, for this call. The
        number of threads is checked, and means nothing to the machine.
        """
        self.program.bound.of_call(call.threads)
        if self.opened is not None:
            _ = self.opened.state  # an error once it is closed
        arrays, out = self.program.fed(call.feeds), call.buffers or {}
        with self._lock:
            self._start({**(residents or {}), **arrays}, self.static if static is None else static)
            self.run_all(call.stream or sys.stdout)
            found = {t.name: self._read(t, out.get(t.name)) for t in self.program.outputs if t.name not in self._lost}
            self.wait()  # a program without outputs has errors, too
            return sized(found, self.program.counts)

    def start(self, feeds: Mapping[str, np.ndarray], static: np.ndarray) -> None:
        """Write all that a call starts from: inputs and residents, of which `feeds` replaces some, and the static
        space."""
        with self._lock:
            self._stale = None
            self._start(feeds, static)
            self._stale = None

    def launch_all(self) -> None:
        """Run the whole program but its run-time calls, from where `start` leaves the memory; does not wait."""
        self.run_all(None)

    def bytes_at(self, place: Place, size: int) -> np.ndarray:
        """A copy of `size` bytes of the machine's memory, as they are after all earlier launches."""
        found = np.empty(size, np.uint8)
        if size:
            self._copy_out(place, found)
        return found

    def _start(self, feeds: Mapping[str, np.ndarray], static: np.ndarray) -> None:
        """Write what a run starts from, as far as it is not there already."""
        if self._uploaded is not static:
            self._uploaded = None  # should the copy fail, it is made again next time
            if static.nbytes:
                self._write(("static", 0), static[: max(self.program.memory.get("static", 0), 1)])
            self._uploaded = static
        names = set(self._filled) if self._stale is None else {*self._stale, *feeds, *self.program.restore}
        self._stale = None
        for name in names & self._filled.keys():
            tensor = self._filled[name]
            array = np.ascontiguousarray(feeds[name] if name in feeds else self.defaults[name], tensor.np_dtype)
            if array.nbytes:
                self._write((tensor.space, tensor.offset), array)
        self._stale = set(feeds)

    def _read(self, tensor: Tensor, out: np.ndarray | None = None) -> np.ndarray:
        found = np.empty(tensor.dims, tensor.np_dtype) if out is None else out
        if found.nbytes:
            self._copy_out((tensor.space, tensor.offset), found)
        return found

    def _write(self, place: Place, array: np.ndarray) -> None:
        """Copy a contiguous array to the machine."""
        machine, state = self.machine
        machine.copy(state, self._area(place, array.nbytes), Area.of(array))

    def _copy_out(self, place: Place, found: np.ndarray) -> None:
        """Fill a contiguous array from the machine."""
        machine, state = self.machine
        machine.copy(state, Area.of(found), self._area(place, found.nbytes))

    def _area(self, place: Place, nbytes: int) -> Area:
        where = self.at(place)
        return Area(place[0], where[:nbytes] if isinstance(where, np.ndarray) else where, nbytes)

    def _host(self, number: int, place: Place, stream: TextIO) -> None:
        """A run-time call of the program, by its number, on the tensor at a place."""
        call = self.program.hosts[number]
        array = self._read(Tensor("", call.dims, call.dtype, *place))
        host_call(call, array.ctypes.data, stream)
