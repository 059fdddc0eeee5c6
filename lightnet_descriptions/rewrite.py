"""`rewrite`: patterns of one's own on the graph, which may round. Imports `ir` and the passes' graph."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from lightnet.ir.passes import LnPass, rewrite_greedily
from lightnet.ir.registry import patterns


@dataclass(frozen=True)
class RewritePass(LnPass):
    """Apply patterns that files and packages register for it, until none matches.

    ```mlir
    %g = ln.sigmoid %x : tensor<4xf32>                       // by a pattern: x * sigmoid(x) = silu(x)
    %y = ln.elew %x, %g {elew_op = "TL_MUL"} : tensor<4xf32>     ->     %y = ln.silu %x : tensor<4xf32>
    ```

    A rule of `simplify` gives the same bits; one of `rewrite` is held to rounding (docs/trust.md): for Python
    (``@pattern("rewrite")``) and PDL (``ln.pass = "rewrite"``). It stands in no pipeline, and has no pattern of ours:
    ``@cpu+after:bind:rewrite``. With `dce`, ops that nothing reads any more go.
    """

    name = "rewrite"
    target: str = "cpu"
    dce: bool = True

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        rewrite_greedily(op, [cls() for cls in patterns(self.name, self.target)], dce=self.dce)
