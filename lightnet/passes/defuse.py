"""`defuse`: the inverse of `combine`."""

from __future__ import annotations

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from lightnet.ir.kernel import KernelOp
from lightnet.ir.locations import set_loc
from lightnet.ir.memory import unplan
from lightnet.ir.passes import LnPass
from lightnet.passes.graph import graphs


class DefusePass(LnPass):
    """Split each kernel of several ops into kernels of one.

    ```mlir
    %y = cpu.kernel(%x_ = %x) {               %a = cpu.kernel(%x_ = %x) {
      %0 = ln.relu %x_ : tensor<3xf32>          %0 = ln.relu %x_ : tensor<3xf32>
      %1 = ln.sigmoid %0 : tensor<3xf32>  ->    ln.yield %0 }
      ln.yield %1 }                           %y = cpu.kernel(%a_ = %a) {
                                                %0 = ln.sigmoid %a_ : tensor<3xf32>
                                                ln.yield %0 }
    ```

    The ops keep their names, locations and order. Choices go, as they were made for the whole; so do the places of a
    planned module, if anything was split: the values in between have none.
    """

    name = "defuse"
    level = "kernels"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for block in graphs(op):
            fused = [k for k in block.ops if isinstance(k, KernelOp) and len(k.ops) > 1]
            for kernel in fused:
                split(kernel)
            if fused:
                unplan(op)


def split(kernel: KernelOp) -> list[KernelOp]:
    """Put a kernel for each op of a kernel in its place; in order. What it stands between has to be row-major."""
    block = kernel.parent
    assert block is not None
    values = kernel.outside
    singles: list[KernelOp] = []
    for op in kernel.ops:
        copy = op.clone(values)
        single = type(kernel).wrap([copy])
        set_loc(single, op.location)
        set_loc(single.ops[0], op.location)
        block.insert_op_before(single, kernel)
        values.update(zip(op.results, single.results))
        copy.erase()
        singles.append(single)
    for result, value in zip(kernel.results, kernel.terminator.operands):
        result.replace_all_uses_with(values[value])
    kernel.detach()
    kernel.erase()
    return singles
