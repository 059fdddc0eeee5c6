"""`recognize`: what exporters spell out in ops of arithmetic, as the op that says it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.pattern_rewriter import RewritePattern

from lightnet.diagnostics import LightNetError, near_or_all
from lightnet.ir import budget
from lightnet.ir.passes import LnPass, rewrite_greedily
from lightnet.ir.registry import RECOGNIZERS, patterns
from lightnet.passes.graph import graphs

#: The families of rules, and ops of which each rule of them matches one: for a network without any no rule is read.
FAMILIES = {
    "norms": frozenset({"ln.sqrt", "ln.pow"}),
    "activations": frozenset({"ln.erf", "ln.tanh", "ln.sigmoid", "ln.hard_sigmoid", "ln.clip"}),
}


@dataclass(frozen=True)
class RecognizePass(LnPass):
    """Put one op in the place of the arithmetic by which exporters spell it.

    ```mlir
    %m = ln.reduce_mean %x {axes = [1]} : tensor<2x1xf32>  ->  %y = ln.layernorm %x {axis = 1, epsilon = 1.0e-05} : ...
    %d = ln.sub %x, %m : tensor<2x8xf32>
    %q = ln.mul %d, %d : tensor<2x8xf32>
    %v = ln.reduce_mean %q {axes = [1]} : tensor<2x1xf32>
    %e = ln.add %v, %epsilon : tensor<2x1xf32>
    %s = ln.sqrt %e : tensor<2x1xf32>
    %y = ln.div %d, %s : tensor<2x8xf32>
    ```

    The numbers in it are constants (`ln.constant`), which `simplify` has put behind the other operand. `rules` names
    families: ``norms`` (`layernorm`, `rmsnorm`), which take fewer kernels as one op, and ``activations`` (`gelu`,
    `silu`, `hard_swish`, `mish`), which are fused as they stand, and left alone unless they are named. Rules of
    files for this pass (``pass: "recognize"``, or in PDL ``ln.pass``) come behind ours, which are descriptions of a
    package beside this one: without it there are none. Only rounding changes.
    """

    name = "recognize"
    level = "graph"
    rules: tuple[str, ...] = ("norms",)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if unknown := [name for name in self.rules if name not in FAMILIES]:
            raise LightNetError(f"recognize: there are no rules '{unknown[0]}'{near_or_all(unknown[0], FAMILIES)}")
        there = {inner.name for block in graphs(op) for inner in budget.within(block.ops)}
        wanted = [name for name in self.rules if FAMILIES[name] & there]
        if classes := [*recognizers(wanted), *patterns(self.name, "*")]:
            rewrite_greedily(op, [cls() for cls in classes], dce=True)


def recognizers(families: Iterable[str] = FAMILIES) -> list[type[RewritePattern]]:
    """The patterns of the pass that no file registers, in the order in which they are tried."""
    return [pattern for name in families if name in RECOGNIZERS for pattern in RECOGNIZERS.get(name).read()]
