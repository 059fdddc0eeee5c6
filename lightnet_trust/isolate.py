"""A fault of a pipeline, isolated: the fewest passes, and the smallest module, that still show it, looked for together.

    found = isolate(ctx, module, passes)

The pipeline runs once under the check (`check.py`), which says which pass is wrong, or fails, and on what. From there
that pass alone goes on with what stands around the op at fault in the module before it, where the fault shows there,
too; else passes are left out by delta debugging, or done to the module instead. The rest is `reduce.py`. Each candidate
is judged in a process of its own, and findings are compared as `ln-reduce --test-check` and `--test-crash` do, so that
the search does not slip to another fault. Imports the passes' driver, `ir`, and the files of this folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass

from lightnet.dataclasses import dataclass, replace
from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.ir.context import LnContext, make_context
from lightnet.ir.locations import loc_of
from lightnet.ir.module import count_ops
from lightnet.ir.passes import Instrumentation, parse_pipeline, run_pipeline
from lightnet.ir.printer import module_text
from lightnet.ir.verify import verify_module
from lightnet_trust import edits
from lightnet_trust.check import Checker, CheckError, CheckOptions
from lightnet_trust.judges import TIMEOUT, CandidateVerdict, PipelineJudge, finding_of
from lightnet_trust.reduce import MAX_TESTS, Notify, Reduction, reduce_module
from lightnet_trust.reproducer import Recipe, reproducer_text

#: Ops so many reads away from the one at fault are kept at first.
HOPS = (0, 1, 2, 4, 8)
#: Of so few ops, tensors are made smaller first.
FEW = 32


@dataclass(frozen=True)
class Isolation:
    """The end of a search: the passes (as a pipeline) and the module's text that show the fault, the error that they
    end in, how many passes and ops there were, and the reduction of the module. `finding` is what every step had to
    show: the pass, the pattern, and what changed; or the message of a pass that fails."""

    pipeline: str
    text: str
    error: LightNetError
    finding: str
    kind: str
    passes_before: int
    passes_after: int
    ops_before: int
    reduction: Reduction
    tests: int
    load: tuple[str, ...]
    options: Mapping[str, object]

    @property
    def pattern(self) -> str | None:
        """The pattern at fault, where it is one."""
        return self.error.rewrite.pattern if isinstance(self.error, CheckError) and self.error.rewrite else None

    def reproducer(self) -> str:
        """The module with a first line that replays it: ``ln-opt --run-reproducer FILE``."""
        checked = {"check": "pass"} if self.kind == "check" else {"verify-each": True}
        recipe = Recipe(self.pipeline, self.load, {**checked, **self.options})
        return reproducer_text(parsed(self.text), recipe, self.error)

    def summary(self) -> str:
        """Some lines on what was found."""
        passes, ops = self.passes_after, self.reduction.ops_after
        stopped = f"; stopped {self.reduction.stopped}" if self.reduction.stopped else ""
        return (
            f"isolate: {_counted(self.passes_before, 'pass', 'passes')} -> {passes}, "
            f"{_counted(self.ops_before, 'op', 'ops')} -> {ops} in {self.tests} tests{stopped}\n"
            f"isolate: --pass={self.pipeline} on what is left:\n{self.error.render()}"
        )


def _counted(number: int, one: str, more: str) -> str:
    return f"{number} {one if number == 1 else more}"


class _Before(Instrumentation):
    """Keeps the module in front of the pass that runs, and the number of the pass."""

    def __init__(self) -> None:
        self.at = -1
        self.module: ModuleOp | None = None

    def before_pass(self, pass_: ModulePass, module: ModuleOp) -> None:
        self.at += 1
        self.module = module.clone()


def isolate(
    ctx: Context,
    module: ModuleOp,
    passes: Sequence[ModulePass],
    *,
    check: CheckOptions = CheckOptions(),
    timeout: float = TIMEOUT,
    max_tests: int = MAX_TESTS,
    load: Sequence[str] = (),
    notify: Notify = lambda step, tests, ops: None,
) -> Isolation:
    """The fewest of `passes`, and the smallest module, that show what `passes` show on `module`: a changed result (by a
    check with the options `check`), or a pass that fails. `load` names the plugins that a reproducer asks for. Raises
    `LightNetError` where the passes run, and keep the results."""
    data = check.data
    for kinds in (data[:1] if data else ("ordinary",), data):  # most faults show on one kind of data
        run, checker = _Before(), Checker(ctx, replace(check, data=kinds))
        try:
            run_pipeline(ctx, module.clone(), passes, [run, checker], verify_each=True)
        except LightNetError as e:
            error = e
            break
    else:
        notes = "".join(f" ({note})" for note in checker.notes)
        raise LightNetError(
            f"there is nothing to isolate: the passes run, and keep the results{notes}", label="isolate.nothing"
        )
    assert run.module is not None
    search = _Search(error, check, timeout, notify)
    names = [str(p.spec()) for p in passes][: run.at + 1]
    small, list_ = search.around(run.module, names[-1:]), names[-1:]
    if small is None:  # one pass on a part is not enough
        if not search.holds(module, names):
            raise LightNetError(f"the fault does not show again: {search.last.detail}", label="isolate.again")
        small, list_ = search.fewer(ctx, module, names)
        small = search.around(small, list_) or small
    list_ = search.plainer(small, list_)
    judge = search.judge(list_)
    found = reduce_module(
        small,
        judge,
        max_tests=max_tests,
        notify=lambda step, tests, ops: notify(step, search.tests + tests, ops),
        sizes_first=count_ops(small) <= FEW,
    )
    small, list_ = search.fewer(ctx, parsed(found.text), list_)
    text = module_text(small)
    how = "exact" if check.in_field and search.kind == "check" else ""
    values = ("check", how), ("check-data", ",".join(data or ())), ("check-seed", check.seed)
    options = {key: value for key, value in values if value}
    return Isolation(
        ",".join(list_), text, shown(text, list_, search.kind, check), search.finding,
        search.kind, len(passes), len(list_), count_ops(module), replace(found, text=text, ops_after=count_ops(small)),
        search.tests + found.tests, tuple(load), options,
    )  # fmt: skip


def parsed(text: str, ctx: LnContext | None = None) -> ModuleOp:
    """The module of a candidate's text."""
    from lightnet.frontends import mlir

    return mlir.read(text, "reduced.mlir", ctx)


def shown(text: str, names: Sequence[str], kind: str, options: CheckOptions) -> LightNetError:
    """The error that the passes end in on a module's text."""
    ctx = make_context()
    checker = [Checker(ctx, options)] if kind == "check" else []
    try:
        run_pipeline(ctx, parsed(text, ctx), parse_pipeline(",".join(names)), checker, verify_each=True)
    except LightNetError as e:
        return ctx.sources.annotate(e)
    raise LightNetError("the fault does not show again", label="isolate.again")


class _Search:
    """Judges lists of passes on modules, against what the first has shown."""

    def __init__(self, error: LightNetError, check: CheckOptions, timeout: float, notify: Notify):
        self.kind = "check" if isinstance(error, CheckError) else "crash"
        self.error, self.check, self.timeout, self.notify = error, check, timeout, notify
        self.finding = finding_of(error)
        self.last = CandidateVerdict(None)
        self.tests = 0

    def judge(self, names: Sequence[str]) -> PipelineJudge:
        """The judge of modules for a list of passes."""
        return PipelineJudge(self.kind, ",".join(names), {}, self.timeout, self.check)

    def holds(self, module: ModuleOp, names: Sequence[str], step: str = "passes") -> bool:
        """Return whether the passes show on the module what was shown first."""
        self.notify(step, self.tests, count_ops(module))
        self.tests += 1
        self.last = self.judge(names).verdict(module_text(module))
        return self.last.found == self.finding

    def fewer(self, ctx: Context, module: ModuleOp, names: list[str]) -> tuple[ModuleOp, list[str]]:
        """Fewer passes: those in front are done to the module, others left out, as long as the fault shows."""
        while len(names) > 1:
            ahead = module.clone()
            try:
                run_pipeline(ctx, ahead, parse_pipeline(names[0]), verify=False)
                cut = self.holds(ahead, names[1:])
            except LightNetError:
                cut = False
            if not cut:
                break
            module, names = ahead, names[1:]
        chunk = len(names) // 2
        while chunk:
            at = 0
            while at < len(names):
                left = names[:at] + names[at + chunk :]
                if left and self.holds(module, left):
                    names = left
                else:
                    at += chunk
            chunk //= 2
        return module, names

    def plainer(self, module: ModuleOp, names: list[str]) -> list[str]:
        """The passes without options that the fault does not need."""
        for i, name in enumerate(names):
            plain = name.partition("{")[0]
            if plain != name and self.holds(module, [*names[:i], plain, *names[i + 1 :]], "options"):
                names = [*names[:i], plain, *names[i + 1 :]]
        return names

    def around(self, module: ModuleOp, names: Sequence[str]) -> ModuleOp | None:
        """The part around the op at fault, or at last the whole module, where that shows the fault."""
        places = {loc for loc in (self.error.loc, *(loc for loc, _ in self.error.notes)) if loc is not None}
        for hops in HOPS:
            candidate = module.clone()
            kept = _near(candidate, places, hops)
            others = [op for op in edits.graph_ops(candidate) if op not in kept]
            if not kept or not others:
                break
            if _dropped(candidate, others) and self.holds(candidate, names, "ops far away"):
                return candidate
        return module if self.holds(module, names) else None


def _dropped(module: ModuleOp, ops: Sequence[Operation]) -> bool:
    """Drop ops of a module; whether what is left is one."""
    try:
        with edits.tidied(module):
            edits.drop_ops(module, ops)
        verify_module(module)
    except (LightNetError, NotImplementedError):
        return False
    return True


def _near(module: ModuleOp, places: Iterable[SourceLoc], hops: int) -> set[Operation]:
    """The ops of graphs at some places of the source, and those that they are linked with over so many reads."""
    there, found = edits.graph_ops(module), set(places)
    kept = {op for op in there if any(loc_of(inner) in found for inner in op.walk())}
    for _ in range(hops):
        linked = {v.owner for op in kept for v in op.operands if isinstance(v.owner, Operation)}
        linked |= {use.operation for op in kept for v in op.results for use in v.uses}
        kept |= linked & set(there)
    return kept
