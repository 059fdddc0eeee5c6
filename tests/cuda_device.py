"""Runs level-4 kernels of cuda in the PTX interpreter, or on a device, for the tests: text of MLIR in, arrays out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from cuda_drivers import driver
from xdsl.dialects.builtin import ModuleOp

from lightnet.backends.cuda.nvptx import Ptx, emit_program
from lightnet.backends.cuda.tensor_maps import maps_of
from lightnet.dialects.cuda_launch import cuda_kernels, dynamic_shared
from lightnet.ir.context import make_context
from lightnet.ir.parser import parse_mlir
from lightnet.ir.verify import verify_module
from lightnet.runtime.cuda.driver import DeviceLaunch, arguments
from lightnet.runtime.cuda.tensor_map import TensorMap


def parse(text: str) -> ModuleOp:
    module = parse_mlir(make_context(), text, "kernels.mlir")
    verify_module(module)
    return module


@cache
def emitted(text: str, arch: str = "sm_80") -> tuple[Ptx, dict[str, int], dict[str, tuple[TensorMap | None, ...]]]:
    """The PTX of a module, and the dynamic shared memory and the tensor maps of each kernel."""
    module = parse(text)
    table = cuda_kernels(module)
    shared, maps = ({name: of(f) for name, f in table.items()} for of in (dynamic_shared, maps_of))
    return emit_program(module, arch), shared, maps


class Device:
    """A driver with the kernels of a module."""

    def __init__(self, text: str, arch: str = "sm_80"):
        self.ptx, self._shared, self._maps = emitted(text, arch)
        self._driver = driver(arch)
        self._module = self._driver.load(self.ptx.text)

    def run(
        self, name: str, grid: Sequence[int], block: Sequence[int], inputs: Sequence[np.ndarray], output: np.ndarray
    ) -> np.ndarray:
        """Launch a kernel whose last memref is `output` (its contents are uploaded, too); what it holds afterwards."""
        driver, addresses = self._driver, []
        for array in (*inputs, output):
            addresses.append(driver.alloc(max(array.nbytes, 1)))
            driver.upload(addresses[-1], array)
        function = self._module.function(self.ptx.entries[name])
        args = arguments(driver, addresses, self._maps[name])
        driver.launch(DeviceLaunch(function, (*grid, 1, 1)[:3], (*block, 1, 1)[:3], self._shared[name], args))
        driver.synchronize()
        result = np.empty_like(output)
        driver.download(addresses[-1], result)
        for address in addresses:
            driver.free(address)
        return result


#: Elements of the arrays of `op_kernel`.
N = 64


def op_kernel(name: str, op: str, source: str, target: str, arity: int) -> str:
    """One thread an element: ``y[i] = op(a[i], b[i], …)``; `op` has the names of the operands in braces."""
    operands = ["%a", "%b", "%c"][:arity]
    arguments = ", ".join(f"{x}m: memref<{N}x{source}>" for x in operands)
    loads = "\n".join(f"  {x} = memref.load {x}m[%i] : memref<{N}x{source}>" for x in operands)
    return f"""
func.func @{name}({arguments}, %y: memref<{N}x{target}>) attributes {{cuda.block = array<i32: {N}, 1, 1>}} {{
  %i = cuda.thread_id x
{loads}
  %r = {op}
  memref.store %r, %y[%i] : memref<{N}x{target}>
  func.return
}}
"""
