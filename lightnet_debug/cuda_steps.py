"""A network compiled for cuda, one kernel at a time: on a device, or in the PTX interpreter.

Imports steps, the model of devices and the runtime of cuda.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from lightnet.backends.cuda.device import DEVICES
from lightnet_debug.roofline import Peaks
from lightnet_debug.steps import InstanceStepper, KernelStep

if TYPE_CHECKING:
    from lightnet.executable import Executable

#: Bytes that a device is kept busy with while what is to be timed is on its way to it: for some 30 microseconds.
AHEAD_BYTES = 64 << 20


class DeviceStepper(InstanceStepper):
    """Of target cuda. Times of a device are its own, by events.

    A device is ahead of the Python that launches: it would wait between an event and its kernel, and the wait would
    count. So before each timing it gets memory to fill, which also drives what the kernel reads out of its caches.
    """

    def __init__(self, executable: Executable, feeds: Mapping[str, Any]):
        super().__init__(executable, feeds)
        self.driver = self.instance.driver
        self._ahead: int | None = None
        if self.driver.is_emulated:
            self.clock, self.rounds = "of the PTX interpreter, which say nothing about a device", 1
        else:
            self.clock = f"of {self.driver.name}, by events, caches empty"

    def seconds(self, step: KernelStep) -> float:
        def run() -> None:
            for call in self.calls(step):
                call()

        return self._timed(run)

    def whole_seconds(self) -> float:
        return self._timed(self.instance.launch_all)

    def _timed(self, call: Callable[[], None]) -> float:
        """The time that a call takes on the device, less what two events in a row take."""
        if self.driver.is_emulated:
            return self.driver.time(call)
        if self._ahead is None:
            self._ahead = self.driver.alloc(AHEAD_BYTES)
            weakref.finalize(self, self.driver.free, self._ahead).atexit = False
        spent = []
        for timed in (lambda: None, call):
            self.driver.fill(self._ahead, 0, AHEAD_BYTES)
            spent.append(self.driver.time(timed))
        return max(spent[1] - spent[0], 0.0)

    def peaks(self) -> Peaks | None:
        """Those of the data sheet of a device of this architecture; nothing bounds the interpreter."""
        known = DEVICES.get(self.driver.arch)
        if known is None or self.driver.is_emulated:
            return None
        return Peaks(
            1e9 * known.flops,
            ((1 << 30, 1e9 * known.bytes),),
            1e9 * known.tensor["f16"],
            f"a data sheet for {known.arch}",
        )
