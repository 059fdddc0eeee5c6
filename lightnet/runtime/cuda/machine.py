"""The machine of target `cuda`: a device's driver, or the PTX interpreter, for each executable. Imports `runtime`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lightnet.runtime.cuda.driver import Driver, open_driver
from lightnet.runtime.machine import HOST, Area, Machine


class CudaMachine(Machine):
    """The state of an executable is its `Driver`; an address in a space of the device is a number."""

    is_opened_late = True

    def open(self, options: Mapping[str, Any]) -> Driver:
        return open_driver(bool(options.get("emulate")), options.get("arch") or "sm_80")

    def close(self, state: Driver) -> None:
        state.close()

    def copy(self, state: Driver, to: Area, source: Area) -> None:
        """Upload, download, or, between two places of the device, both."""
        if to.space != HOST and source.space != HOST:
            through = Area.of(np.empty(source.nbytes, np.uint8))
            self.copy(state, through, source)
            source = through
        if to.space != HOST:
            state.upload(to.where, source.where)
        elif source.space != HOST:
            state.download(source.where, to.where)
        else:
            super().copy(state, to, source)


MACHINE = CudaMachine()
