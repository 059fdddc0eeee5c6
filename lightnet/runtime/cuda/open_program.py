"""A program on a device whose sizes each call decides: an instance, with graphs of its own, for each of the last values
of its symbols, all on the same memory and kernels. Nothing is compiled for a call. Imports the runtime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lightnet.runtime.calls import Invocation
from lightnet.runtime.cuda.driver import Driver
from lightnet.runtime.cuda.program import CudaCode, CudaInstance, DeviceSpaces
from lightnet.runtime.instance import Contents, Outputs
from lightnet.runtime.machine import Opened
from lightnet.runtime.open_instance import OpenCallee
from lightnet.runtime.program import Program


class OpenCudaInstance(OpenCallee[CudaInstance]):
    """The instances of a code for a device; they share memory, and their calls run one after the other."""

    def __init__(
        self,
        program: Program,
        code: CudaCode,
        static: np.ndarray,
        defaults: Mapping[str, np.ndarray],
        driver: Driver,
        opened: Opened | None = None,
    ):
        super().__init__(program, static, defaults)
        self.code, self.driver, self.opened = code, driver, opened
        self.spaces = DeviceSpaces(code, driver)

    def made(self, program: Program) -> CudaInstance:
        return CudaInstance(
            program, self._code_at(program), self.static, self.defaults, self.driver, self.opened, self.spaces
        )

    def check(self, program: Program) -> None:
        super().check(program)
        self._code_at(program).check(program)

    def _code_at(self, program: Program) -> CudaCode:
        return self.code.at(self.program.symbols, program.values)

    def quick(self, feeds: Any) -> dict[str, np.ndarray] | None:
        """The result of `call` in the common case, or None: there is no way around checks."""
        return None

    def call(self, call: Invocation, static: np.ndarray | None = None, residents: Contents | None = None) -> Outputs:
        """Run once, on the shapes of what is fed."""
        return self.of_feeds(call.feeds).call(call, static, residents)

    def release(self) -> None:
        """Give back the memory. Nothing else may be called afterwards."""
        self.spaces.release()
