"""`ln-dce`: drop what nobody uses."""

from __future__ import annotations

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, ModuleOp
from xdsl.ir import Block

from lightnet.dialects.ln.structure import OnceOp
from lightnet.ir import rewrites
from lightnet.ir.kernel import KernelOp, YieldOp
from lightnet.ir.op import PLACES, LnOp, places_of, set_tensor_names, tensor_names
from lightnet.ir.passes import LnPass
from lightnet.passes.graph import graphs, is_pure


class DcePass(LnPass):
    """Remove ops without effects whose results nobody uses: unused inputs and params, too.

    ```mlir
    %w = ln.param : tensor<3xf32>       ->
    %y = ln.relu %x : tensor<3xf32>     ->
    func.return %x : tensor<3xf32>          func.return %x : tensor<3xf32>
    ```

    In kernels and `ln.once` results, ops and operands go the same way. One walk from the end suffices: operands are
    defined before their uses.
    """

    name = "ln-dce"
    level = "graph"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for block in graphs(op):
            remove_dead(block)


def remove_dead(block: Block) -> bool:
    """Remove the dead ops of a block, and in its regions; whether there were any."""
    changed = False
    op = block.last_op
    while op is not None:
        before = op.prev_op
        if isinstance(op, LnOp | KernelOp | OnceOp) and is_pure(op):
            if not any(r.first_use for r in op.results):
                if (step := rewrites.begin("dead-code", [op])) is None:
                    return changed
                op.detach()
                op.erase()
                step.done()
                changed = True
            elif isinstance(op, KernelOp | OnceOp):
                changed |= _prune(op)
        op = before
    return changed


def _prune(op: KernelOp | OnceOp) -> bool:
    """Drop unused results of a region op, what made them inside, and operands that are not read any more."""
    used = [r.first_use is not None for r in op.results]
    changed = False
    if not all(used) and (step := rewrites.begin("unused-results", [op])) is not None:
        op = _with_results(op, [i for i, u in enumerate(used) if u])
        step.done([op])
        changed = True
    changed |= remove_dead(op.body)
    unread = [arg for arg in op.body.args if arg.first_use is None] if isinstance(op, KernelOp) else []
    if unread and (step := rewrites.begin("unused-operands", [op])) is not None:
        op.operands = [v for v, arg in zip(op.operands, op.body.args) if arg.first_use is not None]
        for arg in reversed(unread):
            op.body.erase_arg(arg)
        step.done([op])
        changed = True
    return changed


def _with_results(op: KernelOp | OnceOp, kept: list[int]) -> KernelOp | OnceOp:
    """`op` with some of its results only; takes its place."""
    names, places = tensor_names(op), places_of(op)
    yielded = [op.terminator.operands[i] for i in kept]
    old_yield = op.terminator
    old_yield.detach()
    old_yield.erase()
    body = op.detach_region(op.regions[0])
    body.block.add_op(YieldOp.of(yielded))
    new = type(op).create(
        operands=op.operands,
        result_types=[op.results[i].type for i in kept],
        regions=[body],
        attributes=dict(op.attributes),
        location=op.location,
    )
    set_tensor_names(new, [names[i] for i in kept])
    if places:
        new.attributes[PLACES] = ArrayAttr([places[i] for i in kept])
    assert op.parent is not None
    op.parent.insert_op_before(new, op)
    for i, result in zip(kept, new.results):
        op.results[i].replace_all_uses_with(result)
    op.detach()
    op.erase()
    return new
