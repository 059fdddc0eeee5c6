"""Kernel regions and networks of target cuda in the PTX interpreter; kernel regions on a device as well (`cuda_drivers.py`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from cuda_drivers import driver
from machine_code import verified
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import ReturnOp

from lightnet.backends.cuda.nvptx import emit_program
from lightnet.backends.cuda.selection import SELECTION
from lightnet.backends.cuda.simt import SimtLaunch
from lightnet.backends.cuda.tensor_maps import maps_of
from lightnet.dialects.cuda_launch import dynamic_shared
from lightnet.dialects.ln.source import Source
from lightnet.dialects.ln.structure import OnceOp
from lightnet.ir.types import TensorSpec, spec_of
from lightnet.passes.lower_cuda import _Lowering
from lightnet.runtime.cuda.driver import DeviceLaunch, Driver, arguments


class Regions:
    """Kernel regions as one PTX module, loaded on a device."""

    def __init__(self, regions: Sequence, arch: str = "sm_80"):
        self.regions = list(regions)
        self.launches: list[list[SimtLaunch]] = [SELECTION.generate(k, f"k{i}", {}) for i, k in enumerate(self.regions)]
        functions = dict.fromkeys(f for made in self.launches for launch in made for f in launch.functions)
        module = verified(ModuleOp([*functions]))
        self.program = emit_program(module, arch) if functions else None
        self.gpu = driver(arch)
        self.module = self.gpu.load(self.program.text) if self.program is not None else None

    def run(self, number: int, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """What a region computes, on memory of its own."""
        gpu, region = self.gpu, self.regions[number]
        memory = {("operand", i): _uploaded(gpu, a) for i, a in enumerate(arrays)}
        specs = [spec_of(r.type) for r in region.results]
        memory |= {("result", i): gpu.alloc(max(1, s.nbytes)) for i, s in enumerate(specs)}
        self.launch(number, memory)
        return [_downloaded(gpu, memory["result", i], s) for i, s in enumerate(specs)]

    def launch(self, number: int, memory: dict[tuple[str, int], int]) -> None:
        """Run a region on operands and results at these addresses."""
        workspace = self.gpu.alloc(max(1, SELECTION.workspace_bytes(self.regions[number])))
        for launch in self.launches[number]:
            addresses = [
                workspace + a.number if a.kind == "workspace" else memory[a.kind, a.number] for a in launch.args
            ]
            args = arguments(self.gpu, addresses, maps_of(launch.function))
            kernel = self.module.function(self.program.entries[launch.function.sym_name.data])
            self.gpu.launch(DeviceLaunch(kernel, launch.grid, launch.block, dynamic_shared(launch.function), args))


def _uploaded(gpu: Driver, array: np.ndarray) -> int:
    address = gpu.alloc(max(1, array.nbytes))
    if array.nbytes:
        gpu.upload(address, np.ascontiguousarray(array))
    return address


def _downloaded(gpu: Driver, address: int, spec: TensorSpec) -> np.ndarray:
    out = np.empty(spec.dims, spec.dtype.np)
    if out.nbytes:
        gpu.download(address, out)
    return out


class Recorded(_Lowering):
    """The lowering, saying how many lines each op became."""

    def run(self) -> None:
        self.counts: list[int] = []
        super().run()

    def lower(self, op) -> None:
        before = len(self.lines)
        super().lower(op)
        if not isinstance(op, Source | OnceOp | ReturnOp):
            self.counts.append(len(self.lines) - before)
