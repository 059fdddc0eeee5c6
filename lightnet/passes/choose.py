"""`choose`: which algorithm a kernel uses, and with which parameters."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from lightnet.ir.kernel import KernelOp
from lightnet.ir.passes import LnPass
from lightnet.ir.target import get_target
from lightnet.passes.graph import graphs


@dataclass(frozen=True)
class ChoosePass(LnPass):
    """Write the target's choices on each kernel.

    ```mlir
    cpu.kernel(%x_ = %x, ...) { ... ln.conv2d ... }  ->  cpu.kernel(%x_ = %x, ...) choices {alg = "direct"} { ... }
    ```

    A choice may change rounding and nothing else. Those that a kernel has already stay: people pin them by hand, or
    read them from a file. It stands before `plan`, because workspace depends on it.
    """

    name = "choose"
    target: str = "cpu"
    features: str = (
        ""  # of the machine to compile for; what they mean is the target's business (cpu: avx512, avx2, neon)
    )

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        target = get_target(self.target)
        for block in graphs(op):
            for kernel in block.ops:
                if isinstance(kernel, KernelOp):
                    for key, value in target.choose(kernel, self.features).items():
                        kernel.attributes.setdefault(key, value)
