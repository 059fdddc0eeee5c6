"""The rewrite driver: applies patterns until none matches, and keeps what xDSL's driver loses.

xDSL's `PatternRewriteWalker` gives new ops no location, has no bound, removes dead ops unasked, and wraps every
exception with the whole module. `rewrite_greedily` gives each op that a pattern inserts the fused location of the ops
that it replaces, hands on the source names (`ln.name`, `ln.tensors`), and stops with an error that names the pattern
when the rewriting does not settle. Imports xDSL and the lower modules of `ir`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from xdsl.dialects.builtin import LocationAttr, ModuleOp
from xdsl.ir import Block, ErasedSSAValue, Operation, Region, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.rewriter import InsertPoint
from xdsl.transforms.dead_code_elimination import is_trivially_dead
from xdsl.utils.worklist import Worklist

from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.ir import budget
from lightnet.ir.locations import fuse_locations, fused, has_loc, set_loc, source_loc
from lightnet.ir.names import OP_NAME, name_of, set_tensor_names, tensor_names
from lightnet.ir.rewrites import (
    Match,
    Rewrite,
    Rewrites,
    RewriteStep,
    begin,
    current,
    enabled,
    is_disabled,
    matching_on,
    op_and_name,
    pattern_name,
    recording,
)
from lightnet.runtime.dims import Undecided

__all__ = [
    "Rewrite", "Rewrites", "begin", "inherit", "keep_names", "pattern_name", "recording", "rewrite_greedily",
]  # fmt: skip

#: A run may rewrite so often for each op that it starts with, and so often beside: far more than any
#: settling pass.
REWRITES_PER_OP, REWRITES_BESIDE = 64, 1024
#: A run may make the module so many ops larger for each op that it starts with, and so many beside.
GROWTH_PER_OP, GROWTH_BESIDE = 64, 32768


def rewrite_greedily(
    scope: ModuleOp | Region, patterns: Sequence[RewritePattern], *, dce: bool = False, max_rewrites: int | None = None
) -> bool:
    """Apply `patterns`, in order of preference, to all ops inside `scope` until none of them matches.

    Returns whether anything changed. Unused ops without effects stay unless `dce` is set. Raises `LightNetError` naming
    the busiest pattern when `max_rewrites` (by default proportional to the ops) do not suffice.
    """
    region = scope.body if isinstance(scope, ModuleOp) else scope
    return _Driver(region, patterns, dce, max_rewrites).run()


def rounds(what: str, limit: int) -> Iterator[None]:
    """For a pass that repeats until nothing changes: the rounds it may take, `limit` and a last one that is watched.
    Raises `LightNetError` after that: it names the pattern that matched most in it, and where it matched last."""
    yield from (None for _ in range(limit))
    last = _Watched()
    with recording(Rewrites([last])):
        yield
    if not last.rewrites:
        raise LightNetError(f"{what} does not settle in {limit} rounds", label="rewrite.settles")
    busiest, times = Counter(r.pattern for r in last.rewrites).most_common(1)[0]
    rewrite = next(r for r in reversed(last.rewrites) if r.pattern == busiest)
    raise LightNetError(
        f"{what} does not settle in {limit} rounds: pattern '{busiest}' still matches ({times} times in a round, last "
        f"on {rewrite.root})",
        rewrite.where,
        label="rewrite.settles",
    )


def check_growth(count: int, limit: int = GROWTH_BESIDE) -> None:
    """Raise `LightNetError` when rewriting has inserted `count` ops, more than `limit`. Called as they are inserted,
    inside of the pattern, which may be a loop that inserts for ever."""
    if count > limit:
        text = f"rewriting does not settle: the module has grown by {count} ops"
        raise LightNetError(text, label="rewrite.settles")


def in_pattern(error: LightNetError, match: Match) -> LightNetError:
    """The error itself; one of `check_growth`, or of a type, says which pattern it was."""
    if error.label in ("rewrite.settles", "rewrite.type"):
        error.notes.append((None, str(match)))
    return error


class _Watched:
    """Listens to the rewrites of a round."""

    wants_text = False

    def __init__(self) -> None:
        self.rewrites: list[Rewrite] = []

    def rewrote(self, rewrite: Rewrite) -> None:
        self.rewrites.append(rewrite)


def inherit(new_op: Operation, *old_ops: Operation) -> None:
    """Let `new_op` stand for `old_ops`: it gets their fused location, if it has none, and the last one's names."""
    if not has_loc(new_op):
        set_loc(new_op, fused(old_ops))
    if old_ops and len(new_op.results) == len(old_ops[-1].results):
        keep_names(old_ops[-1], new_op.results)


def keep_names(old: Operation, new_results: Sequence[SSAValue | None]) -> None:
    """Hand the source names of `old` and its results on to the values that replace them.

    A value that has a name keeps it. An op with regions gets names for its results only: the ops in its body carry
    the names of ops.
    """
    for i, (name, value) in enumerate(zip(tensor_names(old), new_results)):
        owner = value.owner if value is not None and not isinstance(value, ErasedSSAValue) else None
        if not isinstance(owner, Operation):
            continue
        names = list(tensor_names(owner))
        at = owner.results.index(value)
        if name and not names[at]:
            names[at] = name
            set_tensor_names(owner, names)
        if i == 0 and not owner.regions and name_of(owner) is None and name_of(old) is not None:
            owner.attributes[OP_NAME] = old.attributes[OP_NAME]


class _Driver:
    """One run: a worklist of ops, seeded in program order until a whole sweep changes nothing."""

    def __init__(self, region: Region, patterns: Sequence[RewritePattern], dce: bool, limit: int | None):
        self.region, self.patterns = region, enabled(patterns)
        self.dce = dce and not is_disabled("dead-code")
        self.by_name: dict[str, list[RewritePattern]] = {}
        ops = sum(1 for block in region.blocks for op in block.ops for _ in op.walk())
        self.limit = limit if limit is not None else REWRITES_BESIDE + REWRITES_PER_OP * ops
        self.count: Counter[str] = Counter()
        self.growth, self.growth_limit = 0, GROWTH_BESIDE + GROWTH_PER_OP * ops
        self.worklist = Worklist()
        self.inserted: list[Operation] = []
        self.replaced_locs: list[LocationAttr] = []
        self.replacements: list[SSAValue] = []
        self.modified = False
        self.rewrites = current()
        self.step: RewriteStep | None = None

    def run(self) -> bool:
        changed = False
        while self.sweep():
            changed = True
        return changed

    def sweep(self) -> bool:
        for block in reversed(list(self.region.blocks)):  # a stack: the first op comes out first
            self.push_all(block)
        changed = False
        while self.worklist:
            op = self.worklist.pop()
            changed |= self.visit(op)
        return changed

    def push_all(self, block: Block) -> None:
        for op in block.walk(reverse=True, region_first=True):
            self.worklist.push(op)

    def patterns_for(self, op: Operation) -> list[RewritePattern]:
        """The patterns that may match an op of this name: those that do not say of which names they are, too."""
        found = self.by_name.get(op.name)
        if found is None:
            found = self.by_name[op.name] = [p for p in self.patterns if op.name in getattr(p, "roots", (op.name,))]
        return found

    def visit(self, op: Operation) -> bool:
        if op.parent is None:  # a pattern made it and left it out: it uses values still
            return False
        dead = self.dce and is_trivially_dead(op)
        if not dead and not self.patterns_for(op):
            return False
        budget.check(op)
        self.step = self.rewrites.begin("dead-code" if dead else "match", [op])
        if self.step is None:
            return False
        rewriter = self.rewriter(op)
        if dead:
            rewriter.erase(op)
            self.step.done()
            return True
        where = op.location
        self.inserted, self.replaced_locs, self.replacements, self.modified = [], [where], [], False
        pattern = self.first_match(op, rewriter)
        if pattern is None:
            return False
        self.locate()
        self.counted(pattern_name(pattern), op, source_loc(where))
        self.step.named(pattern).done(self.new_ops(op))
        return True

    def first_match(self, op: Operation, rewriter: PatternRewriter) -> RewritePattern | None:
        """The pattern that rewrites `op`, once it has."""
        where = op.location
        with matching_on(op) as match:
            for pattern in self.patterns_for(op):
                match.pattern = pattern
                try:
                    pattern.match_and_rewrite(op, rewriter)
                except LightNetError as e:
                    if isinstance(e, Undecided) and not (rewriter.has_done_action or self.modified):
                        continue  # a rule for some calls is none
                    raise in_pattern(e, match).at(source_loc(where)) from e.__cause__
                if rewriter.has_done_action or self.modified:  # a handler alone may have been told
                    return pattern
                for listener in self.rewrites.curious:
                    listener.left(pattern, op, rewriter)
        return None

    def new_ops(self, op: Operation) -> list[Operation | SSAValue]:
        """The ops and values that are there after a rewrite of `op`: the ops inserted, `op` itself if it was changed in
        place, or the values that replace its results.
        """
        new: list[Operation | SSAValue] = [new for new in self.inserted if new.parent is not None]
        if op.parent is not None and self.modified:
            new.append(op)
        return new or [v for v in self.replacements if not isinstance(v, ErasedSSAValue)]

    def rewriter(self, op: Operation) -> PatternRewriter:
        rewriter = PatternRewriter(op)
        rewriter.operation_insertion_handler.append(self.on_insert)
        rewriter.operation_removal_handler.append(self.on_remove)
        rewriter.operation_modification_handler.append(self.on_modify)
        rewriter.operation_replacement_handler.append(self.on_replace)
        rewriter.insertion_point = InsertPoint.before(op)
        return rewriter

    def locate(self) -> None:
        """Give the ops that a pattern inserted the location of the ops that it matched and removed."""
        attached = (op for op in self.inserted if op.parent is not None)
        fresh = [op for new in attached for op in new.walk() if not has_loc(op)]
        if not fresh:
            return
        location = fuse_locations(self.replaced_locs)
        for op in fresh:
            op.location = location

    def counted(self, name: str, op: Operation, where: SourceLoc | None) -> None:
        self.count[name] += 1
        if self.count.total() <= self.limit:
            return
        busiest, times = self.count.most_common(1)[0]
        raise LightNetError(
            f"rewriting does not settle: after {self.limit} rewrites, pattern '{busiest}' still matches ({times} "
            "times); "
            f"the last rewrite was that of '{name}' on {op_and_name(op)}",
            where,
            label="rewrite.settles",
        )

    # -- events

    def on_insert(self, op: Operation) -> None:
        self.inserted.append(op)
        for inner in op.walk(reverse=True, region_first=True):
            self.growth += 1
            self.worklist.push(inner)
        check_growth(self.growth, self.growth_limit)

    def on_modify(self, op: Operation) -> None:
        self.modified = True
        self.worklist.push(op)

    def on_remove(self, op: Operation) -> None:
        if self.step is not None:
            self.step.removing(op)
        self.replaced_locs.append(op.location)
        for inner in op.walk():
            self.growth -= 1
            for operand in inner.operands:
                # The op that made it may be dead now, or match a pattern for values with one use.
                if not isinstance(operand, ErasedSSAValue) and isinstance(operand.owner, Operation):
                    self.worklist.push(operand.owner)
        for inner in op.walk():
            self.worklist.remove(inner)

    def on_replace(self, op: Operation, new_results: Sequence[SSAValue | None]) -> None:
        for old, new in zip(op.results, new_results):
            if new is not None and new.type != old.type:
                text = f"{op_and_name(op)} is replaced by a value of another type: {old.type} by {new.type}"
                raise LightNetError(text, label="rewrite.type")
        keep_names(op, new_results)
        self.replacements += [v for v in new_results if v is not None]
        for result in op.results:
            for use in result.uses:
                self.worklist.push(use.operation)
