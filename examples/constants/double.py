"""A rule that reads a constant: a product with 2 is a sum."""

from lightnet.dialects.ln.arith import Add
from lightnet.dialects.ln.rules import rule
from lightnet.dialects.ln.source import known
from lightnet.ir.registry import pattern


# x * 2 = x + x
@pattern("simplify")
@rule("mul")
def double(op):
    two = known(op.src2)
    is_two = two is not None and (two == 2).all() and op.operand_specs[0] == op.result_specs[0]
    return Add.make([op.src1, op.src1]) if is_two else None
