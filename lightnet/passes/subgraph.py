"""`subgraph`: a target's patterns over several kernels."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from lightnet.ir.passes import LnPass, rewrite_greedily
from lightnet.ir.target import get_target


@dataclass(frozen=True)
class SubgraphPass(LnPass):
    """Apply the patterns that a target has for groups of kernels.

    ```mlir
    %c = concat %a, %b along the channels               %a1 = reshape %a
    %r = reshape %c to two groups of channels           %b1 = reshape %b
    %t = transpose %r, groups and channels in groups -> %t = concat %a1, %b1, channel by channel
    ```

    (each a kernel; `backends/cpu/subgraphs.py` has the CPU's patterns). It runs before `combine`, while each kernel is
    one op. Files add patterns under ``subgraph``.
    """

    name = "subgraph"
    level = "kernels"
    target: str = "cpu"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        target = get_target(self.target)
        if patterns := target.patterns("subgraph"):
            rewrite_greedily(op, patterns)
