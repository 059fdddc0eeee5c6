"""A pass of one's own, in a file of one's own:

ln-opt --load examples/my_pass.py --pass=my-pass net.mlir
"""

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from lightnet.dialects.ln.elementwise import Relu
from lightnet.ir.passes import LnPass, rewrite_greedily
from lightnet.ir.registry import pattern, patterns


@pattern("my-pass")
class ReluOfRelu(RewritePattern):
    # relu(relu(x)) = relu(x)
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not isinstance(op, Relu) or not isinstance(inner := op.src.owner, Relu):
            return
        rewriter.replace(op, Relu.make([inner.src]))


@dataclass(frozen=True)
class MyPass(LnPass):
    """Removes a relu of a relu."""

    name = "my-pass"
    target: str = "cpu"
    dce: bool = True

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        rewrite_greedily(op, [cls() for cls in patterns("my-pass", self.target)], dce=self.dce)
