"""`ln-cse`: compute equal things once."""

from __future__ import annotations

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation
from xdsl.pattern_rewriter import PatternRewriter

from lightnet.dialects.ln.move import Forward
from lightnet.dialects.ln.rules import is_yielded, replace_by_values
from lightnet.dialects.ln.structure import OnceOp
from lightnet.ir import rewrites
from lightnet.ir.body import attribute_key, structure
from lightnet.ir.kernel import KernelOp
from lightnet.ir.op import LnOp
from lightnet.ir.passes import LnPass
from lightnet.passes.graph import graphs, is_pure


class CsePass(LnPass):
    """Replace an op by an earlier one that computes the same from the same operands.

    ```mlir
    %a = ln.relu %x : tensor<3xf32>                                   %a = ln.relu %x : tensor<3xf32>
    %b = ln.relu %x : tensor<3xf32>                               ->
    %y = ln.elew %a, %b {elew_op = "TL_SUM"} : tensor<3xf32>          %y = ln.elew %a, %a {elew_op = "TL_SUM"} : ...
    ```

    Names and locations do not count; ops that are told apart by their names (inputs, params) never merge, nor do ops
    with effects. A merged output keeps its name as a `forward`. Regions are compared by structure, and searched.
    """

    name = "ln-cse"
    level = "graph"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for block in graphs(op):
            merge_equal(block)


def merge_equal(block: Block) -> bool:
    """Merge the equal ops of a block, and of each region in it; whether there were any."""
    changed = False
    seen: dict[object, Operation] = {}
    for op in list(block.ops):
        if isinstance(op, KernelOp | OnceOp):
            changed |= merge_equal(op.body)
        if not _may_merge(op):
            continue
        key = _key(op)
        earlier = seen.setdefault(key, op)
        if earlier is op:
            continue
        if (step := rewrites.begin("equal", [op, earlier])) is None:
            return changed
        replace_by_values(op, list(earlier.results), PatternRewriter(op))
        if op.parent is None:
            step.done(earlier.results)
            changed = True
    return changed


def _may_merge(op: Operation) -> bool:
    if isinstance(op, Forward) and all(map(is_yielded, op.dst.uses)):
        return False  # it is there for its name
    if isinstance(op, LnOp):
        return not op.unique and bool(op.results) and is_pure(op)
    return isinstance(op, KernelOp)


def _key(op: Operation) -> object:
    if op.regions:
        return structure([op], {})
    properties = tuple(op.properties.values())
    return op.name, tuple(op.operands), properties, tuple(op.result_types), attribute_key(op)
