"""A pass and an expander pattern of one's own, in a file of one's own:

ln-opt --load examples/my_pass.py --pass=my-pass,expand net.mlir
"""

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from lightnet.dialects.ln.conv import Conv2d
from lightnet.dialects.ln.elementwise import Relu
from lightnet.dialects.ln.move import Concat, Slice
from lightnet.ir.passes import LnPass, rewrite_greedily
from lightnet.ir.registry import pattern, patterns


@pattern("my-pass")
class ReluOfRelu(RewritePattern):
    # relu(relu(x)) = relu(x)
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if isinstance(op, Relu) and isinstance(inner := op.src.owner, Relu):
            rewriter.replace(op, Relu.make([inner.src]))


@dataclass(frozen=True)
class MyPass(LnPass):
    """Removes a relu of a relu."""

    name = "my-pass"
    target: str = "cpu"
    dce: bool = True

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        rewrite_greedily(op, [cls() for cls in patterns("my-pass", self.target)], dce=self.dce)


@pattern("expand", target="cpu")
class SplitGroups(RewritePattern):
    # conv(x, w, b in 2 groups) = concat(conv(x[:c], w[:o], b[:o]), conv(x[c:], w[o:], b[o:]))
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not isinstance(op, Conv2d) or op.group != 2:
            return
        halves: list[Operation] = []
        for i in (0, 1):
            lengths = [(value, axis, value.type.get_shape()[axis] // 2) for value, axis in zip(op.operands, (1, 0, 0))]
            parts = [Slice.make([v], {"axis": a, "start": i * n, "len": n}) for v, a, n in lengths]
            halves += [*parts, Conv2d.make([p.dst for p in parts], {**op.param_values(), "group": 1})]
        rewriter.replace(op, [*halves, Concat.make([halves[3].results[0], halves[7].results[0]], {"axis": 1})])
