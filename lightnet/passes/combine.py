"""`combine`: fusion of kernels."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from lightnet.ir.body import Body, merge
from lightnet.ir.kernel import KernelOp
from lightnet.ir.passes import LnPass, rewrite_greedily
from lightnet.ir.target import Target, get_target


@dataclass(frozen=True)
class CombinePass(LnPass):
    """Merge a kernel with the one that alone uses its results, where a generator of the target takes both at once.

    ```mlir
    %c = cpu.kernel(%x_ = %x, ...) {              %y = cpu.kernel(%x_ = %x, ...) {
      %0 = ln.conv2d %x_, %w_, %b_ ...              %0 = ln.conv2d %x_, %w_, %b_ ...
      ln.yield %0 }                           ->    %1 = ln.relu %0 ...
    %y = cpu.kernel(%c_ = %c) {                     ln.yield %1 }
      %0 = ln.relu %c_ ...
      ln.yield %0 }
    ```

    A value that anything else reads, or that is an output, stays a result of a kernel: nothing is computed twice. The
    merged kernel stands where the consumer stood. Kernels grow to `max-ops` ops, so that the time is linear in the
    module. Patterns that files registered for ``combine``, and the target's combiners, come first; rewriting that does
    not settle is an error that names the pattern.
    """

    name = "combine"
    target: str = "cpu"
    max_ops: int = 32

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        target = get_target(self.target)
        if target.kernel is not None:
            rewrite_greedily(op, [*target.patterns("combine"), MergeKernels(target, self.max_ops)])


class MergeKernels(RewritePattern):
    """One step: a kernel takes in the kernel that makes one of its operands."""

    def __init__(self, target: Target, max_ops: int):
        self.target, self.kernel_op, self.max_ops = target, target.kernel_op, max_ops

    # consumer(producer(x)) = (consumer after producer)(x)
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not isinstance(op, self.kernel_op):
            return
        # The operand that was computed last comes first: the others are waiting in memory anyway.
        for value in reversed(op.operands):
            producer = value.owner
            if isinstance(producer, self.kernel_op) and self.mergeable(producer, op):
                self.merge(producer, op, rewriter)
                return

    def mergeable(self, producer: KernelOp, consumer: KernelOp) -> bool:
        if not all(_only_used_by(r, consumer) for r in producer.results):
            return False
        union = Body.union(producer, consumer)
        return len(union.ops) <= self.max_ops and self.target.accepts(union) is not None

    @staticmethod
    def merge(producer: KernelOp, consumer: KernelOp, rewriter: PatternRewriter) -> None:
        kernel = merge(producer, consumer)
        rewriter.replace_op(consumer, kernel)
        rewriter.erase_op(producer)


def _only_used_by(value: SSAValue, user: Operation) -> bool:
    return value.first_use is not None and all(use.operation is user for use in value.uses)
