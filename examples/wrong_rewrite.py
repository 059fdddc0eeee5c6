"""A rewrite with a fault, for trying out how one is found (docs/debug-a-network.md): it takes a sigmoid for a tanh."""

from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from lightnet.dialects.ln.unary import Tanh
from lightnet.ir.registry import pattern


@pattern("expand", "cpu")
class SigmoidIsTanh(RewritePattern):
    """sigmoid(x) = tanh(x), which is wrong: it is tanh(x / 2) / 2 + 1 / 2."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if op.name == "ln.sigmoid":
            rewriter.replace(op, [Tanh.make(list(op.operands))])
