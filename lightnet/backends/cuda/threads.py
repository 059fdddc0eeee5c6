"""Launches of a module for cuda as threads: their PTX in the interpreter, on the memory of a check.

What loops of a processor cannot show, that threads of a block do not wait for each other or touch one element at once,
shows here. Imports the emitter of PTX; the driver opens the interpreter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from math import prod
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from lightnet.backends.cuda.nvptx import emit_program
from lightnet.backends.cuda.tensor_maps import maps_of
from lightnet.backends.loop_cost import LoopCost
from lightnet.dialects.cuda_checks import block_of
from lightnet.dialects.cuda_launch import CudaLaunchOp, cuda_launches
from lightnet.dialects.launch import kernel_symbols, kernels
from lightnet.ir.memory import call_symbols, set_call_symbols
from lightnet.runtime.cuda.driver import DeviceLaunch, arguments, open_driver
from lightnet.runtime.cuda.tensor_map import TensorMap
from lightnet.runtime.dims import at


class CudaThreads:
    """The launches of a module for cuda, of which each kernel becomes PTX when it is first run."""

    def __init__(self, module: ModuleOp, arch: str):
        self.arch, self.launches = arch, cuda_launches(module)
        self._functions = kernels(module)
        self._loaded: dict[str, tuple[Any, tuple[TensorMap | None, ...]]] = {}
        self._gpu = open_driver(emulate=True, arch=arch)
        self._steps_of = LoopCost(self._functions).of
        self._symbols = call_symbols(module)
        self._values: Mapping[str, int] = {}

    def of_call(self, values: Mapping[str, int]) -> CudaThreads:
        """The same launches, on the same interpreter, where symbols have these values."""
        found = copy(self)
        found._values = values
        return found

    def cost(self, line: CudaLaunchOp) -> int:
        """About how many ops all threads of a launch execute."""
        return self._steps_of(line.callee.string_value()) * prod(self._grid(line)) * prod(line.block.get_values())

    def _grid(self, line: CudaLaunchOp) -> tuple[int, ...]:
        return tuple(at(n, self._values) for n in line.grid_sizes)

    def run(self, lines: Sequence[CudaLaunchOp], spaces: Mapping[str, np.ndarray]) -> None:
        """Run launches, one after the other, on memory spaces (u8), which then hold what they wrote. LightNetError, at
        the line of the PTX: a race, a wait or a barrier that is missing, an access out of bounds."""
        base = {name: self._gpu.alloc(max(space.nbytes, 1)) for name, space in spaces.items()}
        try:
            for name, space in spaces.items():
                if space.nbytes:
                    self._gpu.upload(base[name], space)
            for line in lines:
                kernel, maps = self._kernel(line.callee.string_value())
                places = [base[p.space.data] + at(p.offset.data, self._values) for p in line.args]
                numbers = (
                    ("s64", self._values[name]) for name in kernel_symbols(self._functions[line.callee.string_value()])
                )
                args = (*numbers, *arguments(self._gpu, places, maps))
                (x, y, z), (tx, ty, tz) = self._grid(line), line.block.get_values()
                if x * y * z:
                    self._gpu.launch(DeviceLaunch(kernel, (x, y, z), (tx, ty, tz), line.shared_bytes, args))
            for name, space in spaces.items():
                if space.nbytes:
                    self._gpu.download(base[name], space)
        finally:
            for address in base.values():
                self._gpu.free(address)

    def _kernel(self, name: str) -> tuple[Any, tuple[TensorMap | None, ...]]:
        """A kernel, ready to be launched, and the tensor maps that it takes."""
        if name not in self._loaded:
            called = [f for f in self._functions.values() if block_of(f) is None]
            function = self._functions[name]
            alone = ModuleOp([f.clone() for f in (*called, function)])
            set_call_symbols(alone, self._symbols)
            program = emit_program(alone, self.arch)
            self._loaded[name] = self._gpu.load(program.text).function(program.entries[name]), maps_of(function)
        return self._loaded[name]
