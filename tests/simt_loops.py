"""Runs level-4 kernels of cuda as loops of the CPU, natively and in the interpreter of level 4; for the tests."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
from cuda_device import parse
from machine_code import is_verified, verified
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp

from lightnet.backends.cuda.arch import ARCH_ATTRIBUTE
from lightnet.backends.llvm.jit import compile_module
from lightnet.dialects.cuda_launch import CudaLaunchOp, cuda_kernels, dynamic_shared
from lightnet.dialects.launch import LaunchOp, launches
from lightnet.ir.context import make_context
from lightnet.ir.memory import memory_of, set_memory
from lightnet.ir.place import PlaceAttr
from lightnet_simt.simt_to_cpu import SimtToCpuPass
from lightnet_trust.interpreter.loops import LoopProgram


def converted(module: ModuleOp, name: str, grid: Sequence[int], sizes: Sequence[int], threads: int = 1,
              arch: str = "sm_80") -> ModuleOp:  # fmt: skip
    """A module whose `@main` launches a kernel once, on arrays one behind the other, as loops. What comes out is text that was parsed, where
    level 4 is verified."""
    module = module.clone()
    kernel = cuda_kernels(module)[name]
    block = tuple(kernel.attributes["cuda.block"].get_values())
    places, end = [], 0
    for size in sizes:
        places.append(PlaceAttr("arena", end))
        end += -(-size // 256) * 256
    main = FuncOp("main", ((), ()))
    grid = (*grid, 1, 1)[:3]
    main.body.block.add_ops([CudaLaunchOp(name, grid, block, places, shared=dynamic_shared(kernel)), ReturnOp()])
    module.body.block.add_op(main)
    module.attributes[ARCH_ATTRIBUTE] = StringAttr(arch)
    set_memory(module, {"static": 0, "arena": end})
    SimtToCpuPass(threads).apply(make_context(), verified(module))
    return parse(str(module)) if is_verified() else module


class Loops:
    """Stands where a `cuda_device.Device` does. `native`: machine code, else the interpreter, block by block in a shuffled order."""

    def __init__(self, source: str | ModuleOp, native: bool, arch: str = "sm_80"):
        self.module = parse(source) if isinstance(source, str) else source
        self.native, self.arch = native, arch

    def run(
        self, name: str, grid: Sequence[int], block: Sequence[int], inputs: Sequence[np.ndarray], output: np.ndarray
    ) -> np.ndarray:
        arrays = [*inputs, output]
        module = converted(self.module, name, grid, [a.nbytes for a in arrays], arch=self.arch)
        (line,) = launches(module)
        assert isinstance(line, LaunchOp)
        room = np.full(memory_of(module)["arena"] + 64, 0xA5, np.uint8)
        arena = room[-room.ctypes.data % 64 :][: memory_of(module)["arena"]]
        places = [p.offset.data for p in line.args]
        for at, array in zip(places, arrays):
            arena[at : at + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        if self.native:
            code = compile_module(module, verify=True)  # kept until the call is over
            call = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, *[ctypes.c_void_p] * len(places))
            address = code.kernel_address(line.callee.string_value())
            call(address)(0, line.grid.value.data, *(arena.ctypes.data + at for at in places))
        else:
            LoopProgram(module).run_main(arena)
        at = places[len(inputs)]
        return arena[at : at + output.nbytes].view(output.dtype).reshape(output.shape).copy()
