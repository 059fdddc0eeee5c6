"""`fuse`: kernels become one because a description says so, where the target's generic generator runs the union.

Imports xDSL, `ir` and the modules beside it.
"""

from __future__ import annotations

from xdsl.ir import Block, SSAValue
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import InsertPoint

from lightnet.diagnostics import LightNetError
from lightnet.ir.body import Body
from lightnet.ir.kernel import KernelOp
from lightnet.ir.locations import fused, loc_of, set_loc
from lightnet.ir.op import OP_NAME
from lightnet.ir.refusal import Refusal
from lightnet.ir.target import Target
from lightnet_descriptions.reader import DescribedValue
from lightnet_descriptions.rewriting import holders
from lightnet_descriptions.scope import Ops

#: A kernel that fusion makes has at most so many ops.
MAX_OPS = 64
#: Nothing is left to do then.
ONE_KERNEL = Refusal("the ops are in one kernel already")


def fuse_kernels(
    ops: Ops, target: Target, rewriter: PatternRewriter, rule: DescribedValue, *, named: bool
) -> bool | Refusal:
    """Merge the kernels that hold the matched ops, in the place of the last. Refused, and nothing done, where they are
    one already, or a result of one but the last is read elsewhere (nothing is computed twice). Ops that no generator of
    the target runs together are a `LightNetError` if the rule names their optypes, else they are no match."""
    kernels = holders(ops)
    if len(kernels) < 2 or not all(isinstance(k, KernelOp) for k in kernels):
        return ONE_KERNEL
    last = kernels[-1]
    inside = set(kernels)
    if any(use.operation not in inside for k in kernels[:-1] for r in k.results for use in r.uses):
        return Refusal("a result in between is read elsewhere, too")
    body = Body.of(last)
    for kernel in reversed(kernels[:-1]):
        body = Body.union(Body.of(kernel), kernel.results, body)
    if len(body.ops) > MAX_OPS:
        return Refusal("the kernel would have more than {} ops", MAX_OPS)
    if (reason := target.refuses(body)) is not None:
        if not named:
            return Refusal("{}", reason)
        raise LightNetError(f"target '{target.name}' cannot fuse these ops: {reason}", loc_of(last), "combine.fuse",
                            notes=[(rule.loc, "the description that fuses them")])  # fmt: skip
    merged = _merged(body, target.kernel_op)
    set_loc(merged, fused(kernels))
    if OP_NAME in last.attributes:
        merged.attributes[OP_NAME] = last.attributes[OP_NAME]
    rewriter.insert(merged, InsertPoint.before(last))
    rewriter.replace(last, [], merged.results)
    for kernel in reversed(kernels[:-1]):
        rewriter.erase(kernel)
    return True


def _merged(body: Body, cls: type[KernelOp]) -> KernelOp:
    """A kernel with clones of the body's ops: those that it takes the place of stay whole, for whoever shows the
    rewrite."""
    inputs = body.inputs
    block = Block(arg_types=[v.type for v in inputs])
    values: dict[SSAValue, SSAValue] = dict(zip(inputs, block.args))
    for value, arg in zip(inputs, block.args):
        arg.name_hint = value.name_hint
    for op in body.ops:
        clone = op.clone({v: values[body.value(v)] for v in op.operands})
        clone.location = op.location
        block.add_op(clone)
        values.update(zip(op.results, clone.results))
    return cls.around(block, inputs, [values[body.value(v)] for v in body.yielded])
