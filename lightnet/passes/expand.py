"""`expand`: from the graph to kernels of a target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.rewriter import InsertPoint

from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.dialects.ln.source import Source, Zeros
from lightnet.ir import budget, rewrites
from lightnet.ir.body import Body, build_body
from lightnet.ir.instances import refuse_open
from lightnet.ir.kernel import KernelOp
from lightnet.ir.locations import fused, has_loc, loc_of, set_loc, source_loc
from lightnet.ir.op import LnOp, tensor_names
from lightnet.ir.passes import LnPass
from lightnet.ir.rewriting import check_growth, in_pattern, keep_names
from lightnet.ir.target import Target, get_target
from lightnet.passes.graph import graphs
from lightnet.runtime.dims import Undecided

#: An error lists at most so many unsupported ops.
MAX_LISTED = 20


@dataclass(frozen=True)
class ExpandPass(LnPass):
    """Make each op a kernel of the target.

    ```mlir
    %y = ln.relu %x : tensor<3xf32>    ->    %y = cpu.kernel(%x_ = %x) {
                                               %0 = ln.relu %x_ : tensor<3xf32>
                                               ln.yield %0
                                             }
    ```

    Each op is visited once, in order, and never what an expansion made. The first pattern that matches (those that
    files registered for ``expand``, then the target's expanders) replaces it, by kernels or by `ln` ops, which are
    wrapped in their turn; where none does, a kernel is put around it. Inputs, params, `ln.once` and host ops stay; a
    description may say in which memory inputs and params stand (``create_cuda``). An op whose results have no elements
    is `zeros`. At the end, every op that the target cannot run is listed in one error. Patterns that have `features`
    know what the machine to compile for has, those that have `exact` whether results must be just those of definitions.
    """

    name = "expand"
    level = "graph"
    target: str = "cpu"
    features: str = ""
    exact: bool = False

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        target = get_target(self.target)
        if target.kernel is None:
            return
        if not target.takes_open:
            refuse_open(op, f"target {target.name}", "target.dims")
        expander = _Expander(target, op, {"features": self.features, "exact": self.exact})
        for block in graphs(op):
            expander.run(block)
        expander.report()


class _Expander:
    def __init__(self, target: Target, module: ModuleOp, told: dict[str, Any]):
        self.target = target
        self.patterns = rewrites.enabled(target.patterns("expand"))
        for pattern in self.patterns:
            for name in told.keys() & vars(type(pattern)).keys():
                setattr(pattern, name, told[name])
        self.placing = [p for p in self.patterns if getattr(p, "places", False)]
        self.unsupported: list[tuple[SourceLoc | None, str]] = []

    def run(self, block: Block) -> None:
        found: list[LnOp] = []  # patterns see all ops before them as they are, and may take them in
        for op in budget.within(list(block.ops)):
            if op.parent is block and _is_computed(op):
                found += self.nothing(op) if _is_nothing(op) else self.expansion(op)
            elif self.placing and isinstance(op, LnOp):
                self.place(op)
            elif isinstance(op, KernelOp):
                self.check_kernel(op)
        for new in found:
            if new.parent is block:
                self.wrap(new)

    def check_kernel(self, op: KernelOp) -> None:
        """A kernel that is there already (of a network in compiled form) is of the target, or an arch that it takes."""
        arch = op.name.partition(".")[0]
        if arch not in (self.target.name, *self.target.arches):
            what = f"a kernel of the target '{arch}' ({', '.join(o.optype for o in op.ops) or 'without ops'})"
            self.unsupported.append((loc_of(op), f"{what}, of which `defuse` makes ops again"))

    def place(self, op: LnOp) -> None:
        """Let the patterns say where what enters or leaves the network stands."""
        _match(self.placing, op, PatternRewriter(op), all_of_them=True)

    def nothing(self, op: LnOp) -> Sequence[LnOp]:
        """`op`, whose results have no elements, as tensors of no zeros: no generator need know what to make of it."""
        zeros = [Zeros.make([], {"dtype": s.dtype.tl, "dims": s.dims}, name=op.op_name) for s in op.result_specs]
        return self.in_place(op, zeros, [z.dst for z in zeros], "empty-results")

    def expansion(self, op: LnOp) -> list[LnOp]:
        """The ops to put kernels around: `op`, or the `ln` ops that a pattern put in its place."""
        step = rewrites.begin("match", [op]) if self.patterns else None
        if step is None:
            return [op]
        rewriter = PatternRewriter(op)
        rewriter.insertion_point = InsertPoint.before(op)
        inserted: list[Operation] = []

        def insert(new: Operation) -> None:
            inserted.append(new)
            check_growth(len(inserted))

        rewriter.operation_insertion_handler.append(insert)
        rewriter.operation_replacement_handler.append(keep_names)
        rewriter.operation_removal_handler.append(step.removing)
        location = fused([op])
        pattern = _match(self.patterns, op, rewriter)
        if pattern is None:
            return [op]
        for new in (inner for root in inserted for inner in root.walk()):
            if not has_loc(new):
                set_loc(new, location)
        left = [new for new in inserted if new.parent is not None]
        step.named(pattern).done(left)
        return [new for new in left if _is_computed(new)]

    def wrap(self, op: LnOp, arch: str | None = None) -> None:
        """Put a kernel around an op: of the target, or of another arch where the op is one of its own, or part of such
        (`arch`)."""
        arch = arch or (op.arch if op.arch in self.target.arches else self.target.name)
        target = self.target if arch == self.target.name else get_target(arch)
        why = op.refusal(arch)
        if why is None and (inner := op.decomposed()) is not None:
            for new in self.in_place(op, *inner):
                self.wrap(new, arch)
            return
        if why is not None or not target.supports(op):
            name = op.op_name or next((n for n in tensor_names(op) if n), None)
            who = f"`{name}`" if name else "an op without a name"
            reason = f" ({why})" if why is not None else ""
            self.unsupported.append((loc_of(op), f"{who} of optype {op.optype}{reason}"))
            return
        step = rewrites.begin("wrap-in-kernel", [op], required=True)
        block, next_op = op.parent, op.next_op
        assert block is not None and next_op is not None and step is not None  # a terminator is behind it
        uses = [(use.operation, use.index, i) for i, result in enumerate(op.results) for use in result.uses]
        kernel = build_body(Body((op,), tuple(op.results)), target.kernel_op)
        set_loc(kernel, op.location)
        for user, index, i in uses:
            user.operands[index] = kernel.results[i]
        block.insert_op_before(kernel, next_op)
        step.done([kernel])

    def in_place(
        self, op: LnOp, ops: Sequence[LnOp], values: list[SSAValue], pattern: str = "decompose-in-kernels"
    ) -> Sequence[LnOp]:
        """Put the ops that `op` is in its place."""
        step = rewrites.begin(pattern, [op], required=True)
        block = op.parent
        assert block is not None and step is not None
        for new in ops:
            set_loc(new, op.location)
        block.insert_ops_before(ops, op)
        keep_names(op, values)
        for result, value in zip(op.results, values):
            result.replace_all_uses_with(value)
        op.detach()
        op.erase()
        step.done(ops)
        return ops

    def report(self) -> None:
        if not self.unsupported:
            return
        first, count = self.unsupported[0], len(self.unsupported)
        notes: list[tuple[SourceLoc | None, str]] = [(loc, f"cannot run {who}") for loc, who in self.unsupported]
        if count > MAX_LISTED:
            notes = [*notes[:MAX_LISTED], (None, f"and {count - MAX_LISTED} more")]
        ops = f"{first[1]}" if count == 1 else f"{count} ops, the first {first[1]}"
        raise LightNetError(
            f"target '{self.target.name}' cannot run {ops}",
            first[0],
            label="expand.unsupported",
            notes=notes if count > 1 else [],
        )


def _match(
    patterns: Sequence[RewritePattern], op: Operation, rewriter: PatternRewriter, all_of_them: bool = False
) -> RewritePattern | None:
    """Ask patterns about `op`, in order: the first that replaces it, once it has, or all of them."""
    where = op.location
    with rewrites.matching_on(op) as match:
        for pattern in patterns:
            match.pattern = pattern
            try:
                pattern.match_and_rewrite(op, rewriter)
            except LightNetError as e:
                if isinstance(e, Undecided) and not rewriter.has_done_action:
                    continue  # a rule for some calls is none
                raise in_pattern(e, match).at(source_loc(where)) from e.__cause__
            if rewriter.has_done_action and not all_of_them:
                return pattern
            for listener in rewrites.current().curious if not rewriter.has_done_action else ():
                listener.left(pattern, op, rewriter)
    return None


def _is_nothing(op: LnOp) -> bool:
    """Return whether an op (of every arch) gives tensors without elements alone."""
    return op.arch == "none" and bool(op.results) and all(s.len == 0 for s in op.result_specs)


def _is_computed(op: Operation) -> TypeGuard[LnOp]:
    return isinstance(op, LnOp) and not op.is_host and not isinstance(op, Source)
