"""The kernels that become attention: a pattern of the pass `combine`. Imports the generator."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from lightnet.backends.cuda.attention.generator import ATTENTION
from lightnet.backends.cuda.attention.problem import REARRANGING
from lightnet.backends.cuda.device import device_of
from lightnet.dialects.ln.matmul import Matmul
from lightnet.dialects.ln.norm import Softmax
from lightnet.ir.access import is_elementwise
from lightnet.ir.body import Body, build_body
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import is_plain
from lightnet.ir.locations import fused, set_loc
from lightnet.ir.op import OP_NAME
from lightnet.ir.rewriting import keep_names
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
        before = [k for value in _factors(core) for k in _chain(value, _maker)]
        after = _chain(core[-1].results[0], _reader)
        for kernels in ([*before, *core, *after], [*before, *core]):
            if (kernel := _merged(list(dict.fromkeys(kernels)))) is not None:
                last = kernels[-1]
                rewriter.replace(last, [kernel])
                for part in reversed(list(dict.fromkeys(kernels))):
                    if part is not last:
                        rewriter.erase(part)
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


def _factors(core: Sequence[KernelOp]) -> list[SSAValue]:
    """Q, K and V."""
    return [*core[0].operands, *core[-1].operands]


def _chain(value: SSAValue, next_of: Callable[[SSAValue], KernelOp | None]) -> list[KernelOp]:
    """The kernels that only rearrange what a value is made of, or what is made of it, in program order."""
    found: list[KernelOp] = []
    while (kernel := next_of(value)) is not None and all(isinstance(op, REARRANGING) for op in kernel.ops):
        if next_of is _maker:
            found.insert(0, kernel)
            value = kernel.operands[0]
        else:
            found.append(kernel)
            value = kernel.results[0]
    return found


def _merged(kernels: Sequence[KernelOp]) -> KernelOp | None:
    """The kernels as one, not inserted yet; None where the generator does not take it."""
    body = Body.of(kernels[0])
    for kernel in kernels[1:]:
        made: dict[SSAValue, SSAValue] = {r: v for k in kernels for r, v in zip(k.results, k.terminator.operands)}
        own = Body.of(kernel)
        joined = {arg: made.get(value, value) for arg, value in own.outside.items()}
        body = Body((*body.ops, *own.ops), own.yielded, {**body.outside, **joined})
    ops, yielded = body.copied()
    if not ATTENTION.forms(ops, yielded, device_of("")):
        for op in reversed(ops):
            op.erase()
        return None
    kernel = build_body(Body(tuple(ops), tuple(yielded)), type(kernels[-1]))
    last = kernels[-1]
    set_loc(kernel, fused(kernels))
    keep_names(last, kernel.results)
    if OP_NAME in last.attributes:
        kernel.attributes[OP_NAME] = last.attributes[OP_NAME]
    return kernel
