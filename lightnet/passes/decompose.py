"""`decompose`: ops that are defined as a graph of other ops become that graph."""

from __future__ import annotations

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from lightnet.ir.op import LnOp
from lightnet.ir.passes import LnPass, rewrite_greedily


class DecomposePass(LnPass):
    """Replace each op that has a decomposition by it.

    ```mlir
    %y = ln.leaky_sum %x {slope = 0.5} : tensor<3xf32> as ("y")
    ```
    ->
    ```mlir
    %0 = ln.lrelu %x {negslope = 0.5} : tensor<3xf32>
    %y = ln.elew %0, %x {elew_op = "TL_SUM"} : tensor<3xf32> as ("y")
    ```

    These are ops of descriptions whose C calls ops (here
    ``tl_tensor_lrelu(src, dst, slope); tl_tensor_elew(dst, src, dst, TL_SUM);``), or that stand for one of ours;
    pipelines begin with the pass where there are any. LightNet's own ops are defined in index notation, by a builder or
    by a call of the host. Ops of one target stay: `expand` makes them kernels of what they are.

    An op class of this kind has a method ``decomposition(self) -> Sequence[Operation]``: new ops on the operands of
    `self`, in order, the last of which has as many results as the op (or a pair of them and the values that take the
    places of its results). They may decompose further; the rewriting is bounded, so that two ops that decompose into
    each other are an error.
    """

    name = "decompose"
    level = "graph"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        rewrite_greedily(op, [Decompose()])


class Decompose(RewritePattern):
    """One step of the pass."""

    # op(x) = the graph that op.decomposition() builds on x
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if isinstance(op, LnOp) and op.arch == "none" and (found := op.decomposed()) is not None:
            rewriter.replace(op, *found)
