"""A rewrite rule in Python: ln-opt --load examples/my_rule.py --pass=simplify examples/my_rule.mlir"""

from lightnet.dialects.ln.rules import producer, rule
from lightnet.dialects.ln.unary import Abs, Neg
from lightnet.ir.registry import pattern


# abs(-x) = abs(x)
@pattern("simplify")
@rule("abs")
def abs_of_neg(op):
    inner = producer(op.src, Neg)
    return None if inner is None else Abs.make([inner.src])
