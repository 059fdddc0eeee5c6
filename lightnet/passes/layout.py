"""`layout`: how tensors lie in memory."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, SSAValue

from lightnet.diagnostics import LightNetError
from lightnet.ir.layout import Layout, layout_of, with_layout
from lightnet.ir.passes import LnPass
from lightnet.ir.target import get_target
from lightnet.passes.graph import graphs


@dataclass(frozen=True)
class LayoutPass(LnPass):
    """Give every tensor type its layout.

    ```mlir
    %y = ln.relu %x : tensor<1x3x4x4xf32, #ln.layout<"c16">>    ->    %y = ln.relu %x : tensor<1x3x4x4xf32>
    ```

    `layout` is one of the target's. ``plain``, the only one so far, is row-major: encodings are removed.
    """

    name = "layout"
    target: str = "cpu"
    layout: str = "plain"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        target = get_target(self.target)
        if self.layout not in target.layouts:
            known = ", ".join(target.layouts)
            raise LightNetError(f"target '{target.name}' has no layout '{self.layout}'; there are: {known}")
        layout = Layout.parse(self.layout)
        for block in graphs(op):
            _set_layout(block, layout)
            function = block.parent_op()
            if isinstance(function, FuncOp):
                function.update_function_type()


def _set_layout(block: Block, layout: Layout) -> None:
    values: list[SSAValue] = list(block.args)
    for op in block.ops:
        values += op.results
        for region in op.regions:
            for inner in region.blocks:
                _set_layout(inner, layout)
    for value in values:
        if isinstance(value.type, TensorType) and layout_of(value.type) != layout:
            value._type = with_layout(value.type, layout)
