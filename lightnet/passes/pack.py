"""`pack`: weights lie as the kernels that read them want."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Block, Operation, SSAValue

from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.move import Forward
from lightnet.ir import budget, rewrites
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import Layout, layout_of
from lightnet.ir.locations import loc_of
from lightnet.ir.names import OP_NAME, FreshNames, set_tensor_names, tensor_name
from lightnet.ir.passes import LnPass
from lightnet.ir.target import Target, get_target
from lightnet.passes.graph import graphs, static_values, tensor_names_in
from lightnet.passes.hoist import hoist_block
from lightnet.passes.layout import follow, set_layout
from lightnet.passes.tied import tie_gathers


@dataclass(frozen=True)
class PackPass(LnPass):
    """Give weights the layouts that the choices of their kernels ask for, once, when a network is loaded.

    ```mlir
    %w = ln.once {                             %w = ln.once {
      %w0 = ln.param : tensor<64x32x3x3xf32>     %w0 = ln.param : tensor<64x32x3x3xf32>
      ln.yield %w0 }                      ->     %0 = ln.forward %w0 : tensor<64x32x3x3xf32, #ln.layout<"o32i16">>
                                                 ln.yield %0 }
    %y = cpu.kernel(…, %w_ = %w) …             %y = cpu.kernel(…, %w_ = %w) …
    ```

    It stands behind `choose`, since how weights lie depends on algorithm and tile. Kernels that want one tensor in one
    layout share it; what nobody reads any more takes no memory. Gathers from a matrix that a product packs read the
    packed one (`passes/tied.py`).
    """

    name = "pack"
    level = "kernels"
    target: str = "cpu"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        target = get_target(self.target)
        for block in graphs(op):
            _pack(block, target, FreshNames(tensor_names_in(op)))


def _pack(block: Block, target: Target, names: FreshNames) -> None:
    static = static_values(block)
    packed: dict[tuple[SSAValue, Layout], SSAValue] = {}
    for kernel in budget.within(list(block.ops)):
        if not isinstance(kernel, KernelOp):
            continue
        layouts = sorted(target.packing(kernel).items(), key=lambda item: item[0])
        wanted = [(i, layout) for i, layout in layouts if layout_of(kernel.operands[i].type) != layout]
        if not wanted:
            continue
        if lacking := [(i, layout) for i, layout in wanted if kernel.operands[i] not in static]:
            number, layout = lacking[0]
            raise LightNetError(
                f"{kernel.name}: operand {number} should be packed as '{layout}', but is computed at run time: choose "
                "another 'alg'",
                loc_of(kernel),
                label="pack.static",
            )
        step = rewrites.begin("pack", [kernel], required=True)
        assert step is not None
        made = []
        for number, layout in wanted:
            key = kernel.operands[number], layout
            if key not in packed:
                made.append(_packed(*key, names))
                block.insert_op_before(made[-1], kernel)
                packed[key] = made[-1].results[0]
            kernel.operands[number] = packed[key]
        follow(kernel)
        step.done([*made, kernel])
    if packed:
        tie_gathers(packed)
        hoist_block(block)


def _packed(value: SSAValue, layout: Layout, names: FreshNames) -> Forward:
    """`value` in another layout, under its name and the layout's."""
    forward = Forward.make([value])
    if isinstance(value.owner, Operation):
        forward.location = value.owner.location
    set_layout(forward.results[0], layout)
    if (name := tensor_name(value)) is not None:
        own = names.fresh(f"{name}.{layout}")
        set_tensor_names(forward, [own])
        forward.attributes[OP_NAME] = StringAttr(own)
    return forward
