"""The kernels that become attention: a pattern of the pass `combine`. Imports the generator."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from lightnet.backends.cuda.attention.generator import ATTENTION
from lightnet.backends.cuda.attention.problem import REARRANGING
from lightnet.backends.cuda.device import device_of
from lightnet.dialects.ln.matmul import Matmul
from lightnet.dialects.ln.norm import Softmax
from lightnet.ir.access import is_elementwise
from lightnet.ir.body import Body, build_body, name_after
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import is_plain
from lightnet.ir.types import spec_of


class MergeAttention(RewritePattern):
    """The products, the softmax between them, and what rearranges their factors and their result, as one kernel.

    ```
    %s = matmul %q, %k    %e = div %s, %c    %p = softmax %e    %o = matmul %p, %v    ->    one kernel
    ```
    """

    # o = softmax(ops(q kᵀ)) v, op by op
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not isinstance(op, KernelOp) or not any(isinstance(o, Softmax) for o in op.ops) or not is_plain(op):
            return
        if (core := _core(op)) is None:
            return
        factors = [*core[0].operands, *core[-1].operands]
        before = [kernel for value in factors for kernel in _moves_to(value)]
        for kernels in ([*before, *core, *_moves_from(core[-1].results[0])], [*before, *core]):
            if (merged := _merged(kernels)) is not None:
                rewriter.replace(kernels[-1], [merged])
                for kernel in kernels[-2::-1]:
                    rewriter.erase(kernel)
                return


def _maker(value: SSAValue) -> KernelOp | None:
    """The kernel that makes a value for one reader alone."""
    op = value.owner
    return op if isinstance(op, KernelOp) and len(op.results) == 1 and value.has_one_use() and is_plain(op) else None


def _reader(value: SSAValue) -> KernelOp | None:
    """The only kernel that reads a value."""
    users = [use.operation for use in value.uses]
    return users[0] if len(users) == 1 and isinstance(users[0], KernelOp) and is_plain(users[0]) else None


def _core(softmax: KernelOp) -> list[KernelOp] | None:
    """The kernels from the product of scores to that with V."""
    found = _scores(softmax)
    kernel = softmax
    while found and not isinstance(found[-1].ops[0], Matmul):
        if (reader := _reader(kernel.results[0])) is None or len(reader.ops) != 1:
            return None
        if not (isinstance(reader.ops[0], Matmul) or is_elementwise(reader.ops[0])):
            return None
        found.append(kernel := reader)
    return found


def _scores(kernel: KernelOp) -> list[KernelOp] | None:
    """The kernels from a product to one that reads what becomes of it element by element."""
    dims = spec_of(kernel.results[0].type).dims
    for value in kernel.operands:
        made = _maker(value) if spec_of(value.type).dims == dims else None
        if made is not None and isinstance(made.ops[0], Matmul):
            return [made, kernel]
        if made is not None and all(map(is_elementwise, made.ops)) and (before := _scores(made)) is not None:
            return [*before, kernel]
    return None


def _moves_to(value: SSAValue) -> list[KernelOp]:
    """The kernels that only rearrange what a value is made of, in program order."""
    found: list[KernelOp] = []
    while (kernel := _maker(value)) is not None and _only_moves(kernel):
        found.insert(0, kernel)
        value = kernel.operands[0]
    return found


def _moves_from(value: SSAValue) -> list[KernelOp]:
    """The kernels that only rearrange what is made of a value."""
    found: list[KernelOp] = []
    while (kernel := _reader(value)) is not None and _only_moves(kernel):
        found.append(kernel)
        value = kernel.results[0]
    return found


def _only_moves(kernel: KernelOp) -> bool:
    return all(isinstance(op, REARRANGING) for op in kernel.ops)


def _merged(kernels: Sequence[KernelOp]) -> KernelOp | None:
    """The kernels, in program order, as one that is not inserted yet; None where the generator does not take it."""
    bodies = [Body.of(kernel) for kernel in kernels]
    made: dict[SSAValue, SSAValue] = {r: v for k, body in zip(kernels, bodies) for r, v in zip(k.results, body.yielded)}
    outside = {arg: made.get(value, value) for body in bodies for arg, value in body.outside.items()}
    whole = Body(tuple(op for body in bodies for op in body.ops), bodies[-1].yielded, outside)
    ops, yielded = whole.copied()
    if not ATTENTION.forms(ops, yielded, device_of("")):
        for op in reversed(ops):
            op.erase()
        return None
    kernel = build_body(Body(tuple(ops), tuple(yielded)), type(kernels[-1]))
    name_after(kernels, kernel)
    return kernel
