"""`simplify`: the rewrites of all ops, constant folding, common subexpressions and dead code, until nothing changes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.pattern_rewriter import RewritePattern

from lightnet.dialects.ln.dialect import every_op
from lightnet.ir.op import LnOp
from lightnet.ir.passes import LnPass, rewrite_greedily
from lightnet.ir.registry import patterns
from lightnet.ir.rewriting import rounds
from lightnet.passes.cse import merge_equal
from lightnet.passes.dce import remove_dead
from lightnet.passes.fold import FoldConstants
from lightnet.passes.graph import graphs


@dataclass(frozen=True)
class SimplifyPass(LnPass):
    """Rewrite the graph to one that is equal bit for bit, and never dearer.

    ```mlir
    %a = ln.forward %x : tensor<2x3xf32>
    %b = ln.reshape %a : tensor<6xf32>          ->
    %y = ln.reshape %b : tensor<3x2xf32>            %y = ln.reshape %x : tensor<3x2xf32>
    ```

    The rules stand with their ops (`rewrites`, in `dialects/ln`); `fold`, `ln-cse` and `ln-dce` run between them. A
    round takes time linear in the module, and `max-rounds` of them suffice for any rules that settle.
    """

    name = "simplify"
    level = "graph"
    max_rounds: int = 16

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        rules = [cls() for cls in dict.fromkeys((*own_patterns(), *patterns("simplify", "*")))]
        for _ in rounds(self.name, self.max_rounds):
            changed = rewrite_greedily(op, rules)
            for block in graphs(op):
                changed |= merge_equal(block)
                changed |= remove_dead(block)
            if not changed:
                return


def own_patterns() -> list[type[RewritePattern]]:
    """The patterns of the pass that no file registers."""
    return [*rewrites_of(every_op()), FoldConstants]


@lru_cache(1)
def rewrites_of(ops: tuple[type[Operation], ...]) -> tuple[type[RewritePattern], ...]:
    """The rewrites of these op classes, each once."""
    return tuple(dict.fromkeys(pattern for cls in ops if issubclass(cls, LnOp) for pattern in cls.rewrites))
