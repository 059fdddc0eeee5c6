"""The rewrite of a whole pipeline that is to blame: run with fewer and fewer of them (`rewrite_limit`), as LLVM's
opt-bisect-limit does.

What is right is said by execution, or by a command of the user's, for faults that only machine code or another program
shows. Imports the passes' driver, `ir`, and the files of this folder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from lightnet.dataclasses import dataclass, replace
from lightnet.diagnostics import LightNetError
from lightnet.ir.passes import Instrumentation, run_pipeline
from lightnet.ir.printer import module_text
from lightnet.ir.registry import TARGETS
from lightnet.ir.rewrites import Rewrite
from lightnet.ir.target import get_target
from lightnet_trust.baseline import first_wrong
from lightnet_trust.blame import blame
from lightnet_trust.check import (
    EXACT,
    Baseline,
    CheckError,
    CheckOptions,
    Difference,
    NotExecutableError,
    check_error,
    rests_on_law,
    run_checked,
)
from lightnet_trust.judges import CommandJudge

#: What is wrong with what a pipeline made, if anything.
Judge = Callable[[ModuleOp], Difference | None]


@dataclass(frozen=True)
class Found:
    """The end of a bisection: the error to report (None: nothing is wrong), how many rewrites there are, how often the
    pipeline ran, and notes on what was compared in another way than asked."""

    error: LightNetError | None
    rewrites: int
    runs: int
    notes: tuple[str, ...] = ()


def bisect(
    ctx: Context,
    module: ModuleOp,
    passes: Sequence[ModulePass],
    options: CheckOptions = CheckOptions(),
    command: CommandJudge | None = None,
) -> Found:
    """Find the first rewrite of the pipeline without which its result is right, in about log2(rewrites) runs on copies
    of `module`. `command` judges the resulting module's text (status 0: right); without one the result is executed and
    compared with `module`. A pipeline that fails is wrong. Where the fault is no rewrite (it is there with a limit of
    0), the error names the pass, as far as that can be known. A target's lowering has no rewrites, and is checked (as
    `run_checked` does) where all before it is right. In the field (`options.in_field`), what a rewrite changes by a law
    is compared in floats, and the search goes on. Raises `LightNetError` where `module` itself cannot be judged.
    """
    if command is not None:
        return _Bisection(ctx, module, passes, _by_command(command)).run(by_execution=False)
    graph = _before_lowering(passes)
    baseline = _baseline(module, options)
    search = _Bisection(ctx, module, graph, _by_execution(baseline, graph, options))
    notes = _rounding_notes(graph, options)
    found = search.run(by_execution=True)
    while found.error is not None and _is_lawful(baseline, found.error, graph, notes):
        found = search.run(by_execution=True)
    found = replace(found, notes=tuple(notes))
    if found.error is not None or len(graph) == len(passes):
        return found
    verdict = run_checked(ctx, module.clone(), passes, options)
    return replace(found, error=verdict.error, runs=found.runs + 1, notes=tuple(dict.fromkeys(notes + verdict.notes)))


def _rounding_notes(passes: Sequence[ModulePass], options: CheckOptions) -> list[str]:
    """The note that a pass rounds on purpose, so that the end of the pipeline is not compared in the field."""
    rounding = [p.name for p in passes if options.rounding_of(p) is not None]
    if not (options.in_field and rounding):
        return []
    return [f"the end is compared in floats: pass '{rounding[0]}' rounds on purpose (--check=exact takes the others)"]


def _is_lawful(baseline: Baseline, error: LightNetError, passes: Sequence[ModulePass], notes: list[str]) -> bool:
    if not isinstance(error, CheckError):
        return False
    pass_ = next(p for p in passes if p.name == error.pass_name)
    return rests_on_law(baseline, error.difference, pass_, error.rewrite, notes)


def _before_lowering(passes: Sequence[ModulePass]) -> Sequence[ModulePass]:
    """The passes before the first that lowers a network to what is not executed as one."""
    lowerings = {get_target(name).lowering for name in TARGETS}
    end = next((i for i, p in enumerate(passes) if p.name in lowerings), len(passes))
    return passes[:end]


def _by_command(command: CommandJudge) -> Judge:
    def judge(module: ModuleOp) -> Difference | None:
        verdict = command.verdict(module_text(module))
        return None if verdict.found else Difference("command", verdict.detail)

    return judge


def _baseline(module: ModuleOp, options: CheckOptions) -> Baseline:
    try:
        return Baseline(module, options)
    except NotExecutableError as e:
        e.notes.append((None, "the module should be executable to be compared with; or a --bisect-command judges"))
        raise


def _by_execution(baseline: Baseline, passes: Sequence[ModulePass], options: CheckOptions) -> Judge:
    exact = all(p.name in EXACT for p in passes) if options.exact is None else options.exact
    rounded = next((type for p in passes if (type := options.rounding_of(p)) is not None), None)
    return lambda result: baseline.compare(result, exact=exact, rounded=rounded)


class _Texts(Instrumentation):
    """Collects the rewrites of a run."""

    wants_rewrites = True

    def __init__(self, wants_text: bool = False):
        self.wants_text = wants_text
        self.rewrites: list[Rewrite] = []
        self.pass_: ModulePass | None = None
        self.passes: list[ModulePass] = []

    def before_pass(self, pass_: ModulePass, module: ModuleOp) -> None:
        self.pass_ = pass_

    def rewrote(self, rewrite: Rewrite) -> None:
        assert self.pass_ is not None
        self.rewrites.append(rewrite)
        self.passes.append(self.pass_)


class _Bisection:
    def __init__(self, ctx: Context, module: ModuleOp, passes: Sequence[ModulePass], judge: Judge):
        self.ctx, self.module, self.passes, self.judge = ctx, module, passes, judge
        self.runs = 0

    def run(self, by_execution: bool) -> Found:
        every = _Texts()
        wrong = self.wrong_after(None, every)
        count = len(every.rewrites)
        if wrong is None:
            return Found(None, count, self.runs)
        if (without := self.wrong_after(0)) is not None:
            return Found(self.no_rewrite(without, by_execution), count, self.runs)
        bad = first_wrong(count, lambda limit: self.wrong_after(limit) is not None)
        last = _Texts(wants_text=True)
        found = self.wrong_after(bad, last) or wrong
        return Found(self.guilty(found, last, bad, count), count, self.runs)

    def wrong_after(self, limit: int | None, watcher: _Texts | None = None) -> Difference | None:
        """The difference after `limit` rewrites."""
        module = self.module.clone()
        self.runs += 1
        try:
            run_pipeline(self.ctx, module, self.passes, [watcher] if watcher else [], rewrite_limit=limit)
        except LightNetError as e:
            return Difference("fails", e.message, loc=e.loc)
        return self.judge(module)

    def guilty(self, found: Difference, last: _Texts, number: int, count: int) -> LightNetError:
        if len(last.rewrites) < number:  # the pipeline fails before
            return LightNetError(f"with {number} of {count} rewrites the pipeline fails: {found.what}", found.loc)
        error = check_error(found, last.passes[number - 1], last.rewrites[number - 1])
        error.notes.append(
            (None, f"rewrite {number} of {count}: --rewrite-limit={number} does it, {number - 1} does not")
        )
        return error

    def no_rewrite(self, without: Difference, by_execution: bool) -> LightNetError:
        """The error about a pass that is wrong without any rewrite that could be left out."""
        reason = "the result is wrong without any rewrite, too (--rewrite-limit=0)"
        if not by_execution:
            return LightNetError(f"{reason}: {without.what}", without.loc, label="bisect.no-rewrite")
        for end in range(1, len(self.passes) + 1):
            module, before = self.module.clone(), self.module.clone()
            self.runs += 1
            passes = self.passes[:end]
            try:
                if end > 1:
                    run_pipeline(self.ctx, before, passes[:-1], rewrite_limit=0)
                run_pipeline(self.ctx, module, passes, rewrite_limit=0)
                found = self.judge(module)
            except LightNetError as e:
                e.notes.append((None, reason))
                return e
            if found is not None:
                error = blame(self.ctx, passes[-1], before, self.judge, found)
                error.notes.append((None, reason))
                return error
        return LightNetError(f"{reason}: {without.what}", without.loc, label="bisect.no-rewrite")
