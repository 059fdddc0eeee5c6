"""PTX in a file. Imports NumPy and the runtime of cuda."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lightnet.runtime.cuda.machine import MACHINE
from lightnet.runtime.cuda.open_program import OpenCudaInstance
from lightnet.runtime.cuda.program import CudaCode, CudaInstance
from lightnet.runtime.formats import CodeFormat
from lightnet.runtime.machine import Opened
from lightnet.runtime.program import Program


class PtxFormat(CodeFormat):
    """Code for a device, a `CudaCode`; with the option `emulate`, for the PTX interpreter."""

    name, takes_symbols = "nvptx64", True
    options = ("emulate",)

    def packed(self, program: Program, code: CudaCode) -> tuple[dict[str, Any], bytes]:
        return {"kind": "ptx", **code.header()}, code.ptx.encode()

    def unpacked(self, program: Program, facts: Mapping[str, Any], body: memoryview) -> CudaCode:
        return CudaCode.from_header(facts, bytes(body).decode(), program)

    def opened(self, program: Program, code: CudaCode, options: Mapping[str, Any]) -> Opened:
        return Opened(MACHINE, {"emulate": False, **options, "arch": code.arch})

    def instance(self, program: Program, code: CudaCode, static: np.ndarray, defaults: Mapping[str, np.ndarray],
                 opened: Opened | None) -> CudaInstance | OpenCudaInstance:  # fmt: skip
        assert opened is not None
        kind = OpenCudaInstance if program.symbols else CudaInstance
        return kind(program, code, static, defaults, opened.state, opened)


PTX = PtxFormat()
