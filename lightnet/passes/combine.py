"""`combine`: fusion of kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from lightnet.ir import budget, rewrites
from lightnet.ir.body import Body, build_body, replace_kernels, widens
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import is_plain
from lightnet.ir.passes import LnPass, rewrite_greedily
from lightnet.ir.refusal import Refusal
from lightnet.ir.rewriting import rounds
from lightnet.ir.target import Target, get_target
from lightnet.passes.graph import graphs


@dataclass(frozen=True)
class CombinePass(LnPass):
    """Merge a kernel with the one that alone uses its results, where the target runs both at once (`Target.accepts`).

    ```mlir
    %c = cpu.kernel(%x_ = %x, ...) {              %y = cpu.kernel(%x_ = %x, ...) {
      %0 = ln.conv2d %x_, %w_, %b_ ...              %0 = ln.conv2d %x_, %w_, %b_ ...
      ln.yield %0 }                           ->    %1 = ln.relu %0 ...
    %y = cpu.kernel(%c_ = %c) {                     ln.yield %1 }
      %0 = ln.relu %c_ ...
      ln.yield %0 }
    ```

    A value that anything else reads, or that is an output, stays a result of a kernel: nothing is computed twice. The
    merged kernel stands where the consumer stood; a producer that widens what it reads may come behind the first op of
    the consumer, as part of its epilogue. Kernels on maps that are not plain are left alone. Kernels grow to
    `max-ops` ops, so that the time is linear in the module. Patterns that files registered for ``combine``, and the
    target's combiners, come first, and again until nothing changes, for `max-rounds` rounds; rewriting that does not
    settle is an error that names the pattern."""

    name = "combine"
    level = "kernels"
    target: str = "cpu"
    max_ops: int = 32
    max_rounds: int = 8

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        target = get_target(self.target)
        if target.kernel is None:
            return
        patterns = target.patterns("combine")
        for _ in rounds(self.name, self.max_rounds):
            changed = bool(patterns) and rewrite_greedily(op, patterns)
            for block in graphs(op):
                changed |= Merger(block, target, self.max_ops).run()
            if not (changed and patterns):
                return


class _Group:
    """Kernels that are to become one, the last of which yields its results."""

    def __init__(self, number: int, kernel: KernelOp):
        self.number, self.last, self.kernels, self.body = number, kernel, [kernel], Body.of(kernel)


class Merger:
    """Decides on bodies first and builds each kernel once. In program order, each group takes in producers until no
    generator takes more: one walk reaches the fixed point, as the groups before it are final."""

    def __init__(self, block: Block, target: Target, max_ops: int):
        self.block, self.target, self.max_ops = block, target, max_ops
        self.groups: dict[Operation | Block, _Group] = {}
        self.rebuilt: dict[SSAValue, SSAValue] = {}

    def run(self) -> bool:
        for group in self.kernels():
            while self.grow(group):
                pass
        merged = [g for op, g in self.groups.items() if g.last is op and len(g.kernels) > 1]
        return sum(map(self.build, merged)) > 0

    def kernels(self) -> Iterator[_Group]:
        """The kernels as groups of one, but for those that are laid out: layouts were decided for what they are."""
        kernel_op = self.target.kernel_op
        for number, op in enumerate(budget.within(self.block.ops)):
            if isinstance(op, kernel_op) and is_plain(op):
                self.groups[op] = group = _Group(number, op)
                yield group

    # consumer(producer(x)) = (consumer after producer)(x)
    def grow(self, group: _Group) -> bool:
        """Take one producer in, if there is one."""
        for producer in self.producers(group):
            if isinstance(union := self.union(producer, group), Body):
                group.body = union
                group.kernels = [*producer.kernels, *group.kernels]
                self.groups.update(dict.fromkeys(producer.kernels, group))
                return True
        return False

    def producers(self, group: _Group) -> list[_Group]:
        """The groups that a group reads. The last comes first: the others wait in memory anyway."""
        return sorted({g for v in group.body.inputs if (g := self.groups.get(v.owner))}, key=lambda g: -g.number)

    def union(self, producer: _Group, group: _Group) -> Body | Refusal:
        """The body of both as one."""
        if (ops := len(producer.body.ops) + len(group.body.ops)) > self.max_ops:
            return Refusal("they have {} ops, and max-ops is {}", ops, self.max_ops)
        for result in producer.last.results:
            if result.first_use is None or any(self.groups.get(use.operation) is not group for use in result.uses):
                return Refusal("its result is read elsewhere, too, or is an output: nothing is computed twice")
        results, first = producer.last.results, group.body.ops[0]
        union = Body.union(producer.body, results, group.body)
        if kind := self.target.accepts(union):
            return union
        if widens(producer.body.ops[0]) and not any(group.body.value(v) in results for v in first.operands):
            behind = Body.union(producer.body, results, group.body, 1)  # what the epilogue reads may be widened in it
            if self.target.accepts(behind):
                return behind
        return kind if isinstance(kind, Refusal) else Refusal("")

    def build(self, group: _Group) -> bool:
        step = rewrites.begin("merge-kernels", group.kernels[::-1])
        if step is None:
            return False
        last, body = group.last, group.body
        outside = {arg: self.rebuilt.get(value, value) for arg, value in body.outside.items()}
        kernel = build_body(Body(body.ops, body.yielded, outside), self.target.kernel_op)
        self.rebuilt.update(zip(last.results, kernel.results))
        replace_kernels(group.kernels, kernel)
        step.done([kernel])
        return True
