from xdsl.pattern_rewriter import RewritePattern

from lightnet.dialects.ln.elementwise import Relu
from lightnet.dialects.ln.unary import Exp
from lightnet.ir.registry import pattern


@pattern("simplify")
class ReluOfExp(RewritePattern):
    # relu(exp(x)) = exp(x)
    def match_and_rewrite(self, op, rewriter):
        if not isinstance(op, Relu):
            return
        inner = op.src.owner
        if not isinstance(inner, Exp) or op.operand_specs[0].ndim != 2:
            return
        rewriter.replace(op, [], [inner.dst])
