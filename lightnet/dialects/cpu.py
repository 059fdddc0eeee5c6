"""The `cpu` dialect: its kernel region (level 2 of the stack)."""

from __future__ import annotations

from typing import ClassVar

from xdsl.ir import Dialect

from lightnet.ir.kernel import KernelOp


class CpuKernelOp(KernelOp):
    """A region of `ln` ops that one generator of the CPU target turns into one function.

    ```mlir
    %y = cpu.kernel(%x_ = %x) {
      %0 = ln.relu %x_ : tensor<2x3xf32>
      ln.yield %0
    } as ("y")
    ```
    """

    name = "cpu.kernel"
    in_vectors: ClassVar[bool] = True


Cpu = Dialect("cpu", [CpuKernelOp], [])
