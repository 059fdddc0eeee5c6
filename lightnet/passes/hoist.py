"""`hoist`: what depends on params alone is computed once, when a network is loaded."""

from __future__ import annotations

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, Region, SSAValue, Use

from lightnet.dialects.ln.source import Zeros
from lightnet.dialects.ln.structure import OnceOp
from lightnet.ir import budget, rewrites
from lightnet.ir.kernel import KernelOp, YieldOp
from lightnet.ir.locations import fused, set_loc
from lightnet.ir.op import set_tensor_names, tensor_name
from lightnet.ir.passes import LnPass
from lightnet.passes.graph import depends_on_params_alone, graphs, static_values


class HoistPass(LnPass):
    """Move every param, and all that depends on params and constants alone, into one `ln.once` at the front.

    ```mlir
    %w = ln.param : tensor<4x3xf32>               %w1 = ln.once {
    %w1 = ln.transpose %w {axes = [1, 0]} : ...     %w = ln.param : tensor<4x3xf32>
    %y = ln.elew %x, %w1 {...} : ...          ->    %0 = ln.transpose %w {axes = [1, 0]} : tensor<3x4xf32>
                                                    ln.yield %0
                                                  } : tensor<3x4xf32>
                                                  %y = ln.elew %x, %w1 {...} : tensor<3x4xf32>
    ```

    The region yields what the rest of the program reads, params that it reads directly included: these are the static
    tensors, and no other value of the region takes memory in a running network. The region is evaluated at load and
    when a param is fed. `zeros` that no static op reads stay outside: clearing memory costs what reading it does, and
    memory that may be overwritten is worth more than static memory. The pass works before and after `expand` (kernels
    go into the region as the ops that they are), and takes an existing region in.
    """

    name = "hoist"
    level = "graph"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for block in graphs(op):
            hoist_block(block)


def hoist_block(block: Block) -> None:
    static = static_values(block)
    moved = [op for op in budget.within(block.ops) if depends_on_params_alone(op, static)]
    if all(isinstance(op, OnceOp | Zeros) for op in moved) and sum(isinstance(op, OnceOp) for op in moved) <= 1:
        return
    if (step := rewrites.begin("hoist", moved)) is None:
        return
    body = Block()
    for op in moved:
        if isinstance(op, Zeros):
            _take_zeros(op, static, body)
        elif isinstance(op, OnceOp | KernelOp):
            _take_body(op, body)
        else:
            op.detach()
            body.add_op(op)
    step.done([_enclose(block, body)])


def _take_zeros(op: Zeros, static: set[SSAValue], body: Block) -> None:
    """Zeros go into the region as far as static ops read them."""

    def inside(use: Use) -> bool:
        return use.operation.parent is body or any(r in static for r in use.operation.results)

    if not any(map(inside, op.dst.uses)):
        return
    copy = op.clone()
    copy.location = op.location
    body.add_op(copy)
    op.dst.replace_uses_with_if(copy.dst, inside)
    if op.dst.first_use is None:
        op.detach()
        op.erase()


def _take_body(op: OnceOp | KernelOp, body: Block) -> None:
    """The ops of a region go into the new one; the values yielded take the place of the results."""
    for arg, value in zip(op.body.args, op.operands):
        arg.replace_all_uses_with(value)
    yielded = list(op.terminator.operands)
    for inner in list(op.body.ops):
        if not isinstance(inner, YieldOp):
            inner.detach()
            body.add_op(inner)
    for result, value in zip(op.results, yielded):
        result.replace_all_uses_with(value)
    op.detach()
    op.erase()


def _enclose(block: Block, body: Block) -> OnceOp:
    """Make an `ln.once` of `body`, at the front of `block`, that yields what `block` reads."""

    def outside(use: Use) -> bool:
        return use.operation.parent is not body

    ops: list[Operation] = list(body.ops)
    yielded = [r for op in ops for r in op.results if any(map(outside, r.uses))]
    body.add_op(YieldOp.of(yielded))
    region = Region(body)
    once = OnceOp.of(region)
    set_tensor_names(once, [tensor_name(v) for v in yielded])
    set_loc(once, fused(ops))
    for value, result in zip(yielded, once.results):
        value.replace_uses_with_if(result, outside)
    first = block.first_op
    assert first is not None
    block.insert_op_before(once, first)
    return once
