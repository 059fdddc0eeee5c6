"""Patterns that are wrong on purpose: what the tests of --check and --bisect look for."""

from xdsl.pattern_rewriter import RewritePattern

from lightnet.dialects.ln.elementwise import Relu
from lightnet.dialects.ln.move import Transpose
from lightnet.dialects.ln.rules import producer
from lightnet.dialects.ln.unary import Abs
from lightnet.ir.registry import pattern


@pattern("simplify")
class AbsOfRelu(RewritePattern):
    # abs(relu(x)) = relu(x): right
    def match_and_rewrite(self, op, rewriter):
        if isinstance(op, Abs) and (relu := producer(op.operands[0], Relu)):
            rewriter.replace(op, Relu.make([relu.src]))


@pattern("simplify")
class ReluOfAbs(RewritePattern):
    # relu(abs(x)) = relu(x): wrong where x is negative
    def match_and_rewrite(self, op, rewriter):
        if isinstance(op, Relu) and (inner := producer(op.src, Abs)):
            rewriter.replace(op, Relu.make([inner.operands[0]]))


@pattern("expand")
class SwappedAxes(RewritePattern):
    # transpose(x, axes) = transpose(x, inverse of axes): wrong for a cycle of three
    def match_and_rewrite(self, op, rewriter):
        if isinstance(op, Transpose) and op.op_name != "done":
            axes = tuple(op.axes.index(i) for i in range(len(op.axes)))
            rewriter.replace(op, Transpose.make([op.src], {"axes": axes}, name="done"))
