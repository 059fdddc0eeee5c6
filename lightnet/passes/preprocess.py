"""`preprocess`: upstream's order of ops, in which static tensors come first."""

from __future__ import annotations

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation

from lightnet.ir import budget
from lightnet.ir.module import main_of
from lightnet.ir.passes import LnPass
from lightnet.passes.plan_upstream import is_kept_by_upstream


class PreprocessPass(LnPass):
    """Move ops that make static tensors of static tensors to the front, as upstream does before and behind its
    expander.

    ```mlir
    %x = ln.create …                        %w = ln.create …
    %y = ln.relu %x            ->           %x = ln.create …
    %w = ln.create …                        %y = ln.relu %x
    ```

    Each such op goes right behind the op that makes the last of its operands, or to the front if it has none; the first
    op of the list stays. So one pass reverses the `create`s, and two restore them. `print` is no static op here: it
    shows a tensor where it stands in the program. For plans of ours the order does not matter, and no pipeline has the
    pass.
    """

    name = "preprocess"
    level = "graph"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        _preprocess(main_of(op).body.block)


def _preprocess(block: Block) -> None:
    """The pass, on one block that `func.return` ends."""
    for op in budget.within(list(block.ops)[1:-1]):
        if (
            not op.results
            or not all(map(is_kept_by_upstream, op.results))
            or not all(map(is_kept_by_upstream, op.operands))
        ):
            continue
        makers = {v.owner for v in op.operands if isinstance(v.owner, Operation)}
        last = next((o for o in reversed(list(block.ops)) if o in makers), None) if makers else None
        op.detach()
        if last is None:
            assert block.first_op is not None
            block.insert_op_before(op, block.first_op)
        else:
            block.insert_op_after(op, last)
