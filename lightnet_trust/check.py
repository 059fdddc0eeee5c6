"""The check that passes keep what a module computes: executed before and after, compared tensor by tensor.

    difference = compare_modules(before, after)
    verdict = run_checked(ctx, module, passes)

`Checker` watches a pipeline (``ln-opt --check``). `blame.py` says which rewrite it was. Imports the passes' driver,
`ir`, and the files of this folder below it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError
from lightnet.ir.passes import Instrumentation, run_pipeline
from lightnet.ir.rewrites import Rewrite
from lightnet.ir.verify import verify_module
from lightnet_trust.baseline import (
    EXACT,
    Baseline,
    CheckOptions,
    NotExecutableError,
    compare_modules,
    is_level4,
    lowered_to,
)
from lightnet_trust.compare import ROUNDINGS
from lightnet_trust.record import Difference

__all__ = [
    "EXACT",
    "Baseline",
    "CheckError",
    "CheckOptions",
    "Checker",
    "Difference",
    "NotExecutableError",
    "PipelineVerdict",
    "compare_modules",
    "run_checked",
]  # fmt: skip


@dataclass
class PipelineVerdict:
    """The verdict on a pipeline: the first difference, the pass (with its options) and the rewrite that made it
    (None: the pass itself, or not known), and notes on what was not checked. `error` is all that as an error."""

    notes: list[str]
    compared: int
    difference: Difference | None = None
    pass_name: str | None = None
    rewrite: Rewrite | None = None
    error: LightNetError | None = None

    @property
    def ok(self) -> bool:
        return self.error is None

    @property
    def pattern(self) -> str | None:
        return self.rewrite.pattern if self.rewrite is not None else None


class CheckError(LightNetError):
    """A pass that changed what the module computes; `difference`, `pass_name` and `rewrite` as in `PipelineVerdict`."""

    difference: Difference
    pass_name: str
    rewrite: Rewrite | None = None


class Checker(Instrumentation):
    """Executes the module before and after each pass (with `each_rewrite`, after each rewrite), and raises `CheckError`
    at the first pass that changes a result. `notes` collects what was not checked, and why; `progress` is told what is
    being executed."""

    wants_text = True

    def __init__(
        self,
        ctx: Context,
        options: CheckOptions,
        *,
        each_rewrite: bool = False,
        progress: Callable[[str], None] = lambda text: None,
    ):
        self.ctx, self.options, self.each_rewrite, self.progress = ctx, options, each_rewrite, progress
        self.wants_rewrites = each_rewrite
        self.baseline: Baseline | None = None
        self.notes: list[str] = []
        self.passes = self.compared = 0
        self.data = "none"
        self._current: tuple[ModulePass, ModuleOp] | None = None
        self._before: ModuleOp | None = None
        self._lowered = False

    def before_pass(self, pass_: ModulePass, module: ModuleOp) -> None:
        if self.baseline is None and not self.notes:
            self.progress("the network as it is")
            self._begin(module)
        self.progress(f"pass '{pass_.name}', {self.passes} checked")
        self._current = (pass_, module)
        self._before = module.clone()

    def _begin(self, module: ModuleOp) -> None:
        try:
            self.baseline = Baseline(module, self.options)
            self.data = self.baseline.data
        except NotExecutableError as e:
            self.notes.append(f"nothing is checked, as the module cannot be executed: {e.message}")

    def rewrote(self, rewrite: Rewrite) -> None:
        if self._current is None or self.baseline is None:
            return
        pass_, module = self._current
        while (difference := self.judge(module, pass_)) is not None:
            if not self.is_lawful(difference, pass_, rewrite):
                raise self.with_cause(check_error(difference, pass_, rewrite), pass_, self._before, module)

    def after_pass(self, pass_: ModulePass, module: ModuleOp) -> None:
        if self.baseline is None or self._before is None:
            if self._lowered:
                self.notes.append(f"{pass_.name}: not checked, as the module is lowered already")
            return
        before, self._before, self._current = self._before, None, None
        if is_level4(module):
            from lightnet_trust.level4 import check_level4

            self._after_lowering(check_level4(self.ctx, pass_, before, module, self.baseline), pass_)
            return
        if (what := lowered_to(module)) is not None:
            self.baseline = None
            self.notes.append(f"nothing from '{pass_.name}' on is checked: {what} is not executed")
            return
        while (difference := self.judge(module, pass_, advance=True)) is not None:
            from lightnet_trust.blame import blame

            error = blame(self.ctx, pass_, before, lambda m: self.judge(m, pass_), difference)
            if not self.is_lawful(error.difference, pass_, error.rewrite):
                raise self.with_cause(error, pass_, before, module)
        self.baseline.in_floats.clear()
        self.passes += 1
        self.compared += self.baseline.compared

    def with_cause(self, error: CheckError, pass_: ModulePass, before: ModuleOp | None, after: ModuleOp) -> CheckError:
        """`error`, which says so where only a param that a data set varied shows the difference."""
        found = error.difference
        if self.baseline is None or before is None or found.kind != "value":
            return error
        exact, rounded = self.options.exact_for(pass_), self.options.rounding_of(pass_)
        source = self.baseline.varied(before, after, found.data, exact=exact, rounded=rounded)
        if source is not None:
            note = f"the content of {source} was varied, as anybody may feed it: with the network's own, the "
            error.notes.append((None, f"{note}results agree (what nobody can feed is an ln.constant)"))
        return error

    def _after_lowering(self, found: tuple[Difference | None, list[str]], pass_: ModulePass) -> None:
        difference, notes = found
        if self.options.in_field:
            notes = ["compared in floats: loops are not executed in the field", *notes]
        self.notes += [f"{pass_.name}: {note}" for note in notes]
        if difference is not None:
            raise check_error(difference, pass_, None)
        self.passes += 1
        self.baseline, self._lowered = None, True

    def is_lawful(self, difference: Difference, pass_: ModulePass, rewrite: Rewrite | None) -> bool:
        """`rests_on_law`, of what is compared with now."""
        return self.baseline is not None and rests_on_law(self.baseline, difference, pass_, rewrite, self.notes)

    def judge(self, module: ModuleOp, pass_: ModulePass, *, advance: bool = False) -> Difference | None:
        """The difference in the module now, if anything: it does not verify, or it computes something else."""
        assert self.baseline is not None
        try:
            verify_module(module, self.ctx)
        except LightNetError as e:
            return Difference("fails", f"the module does not verify: {e.message}", loc=e.loc)
        exact, rounded = self.options.exact_for(pass_), self.options.rounding_of(pass_)
        return self.baseline.compare(module, exact=exact, advance=advance, rounded=rounded)

    def summary(self) -> str:
        """One line on what was compared, and the notes."""
        notes = [*self.notes, *(self.baseline.notes() if self.baseline is not None else ())]
        on = f"data: {self.data}; seed {self.options.seed}"
        keep = "passes keep" if self.passes != 1 else "pass keeps"
        head = f"check: {self.passes} {keep} the results; {self.compared} tensors compared ({on})"
        return "\n".join([head, *(f"check: note: {note}" for note in notes)]) + "\n"


def rests_on_law(
    baseline: Baseline, difference: Difference, pass_: ModulePass, rewrite: Rewrite | None, notes: list[str]
) -> bool:
    """Return whether a difference in the field alone rests on a law of functions, or on rounding, that the pattern, or
    the pass, names (`law`): `baseline` compares the tensor in floats from here on, and a note says so."""
    law = (rewrite.law if rewrite is not None else None) or getattr(pass_, "law", None)
    tensor = difference.tensor
    if law is None or difference.kind != "exact" or tensor is None or tensor in baseline.in_floats:
        return False
    who = f"pass '{pass_.name}'" if rewrite is None else f"pattern '{rewrite.pattern}' of pass '{pass_.name}'"
    if (note := f"{who} is checked in floats: it rests on {law}") not in notes:
        notes.append(note)
    baseline.in_floats.add(tensor)
    return True


def check_error(difference: Difference, pass_: ModulePass, rewrite: Rewrite | None, detail: str = "") -> CheckError:
    """The error about a pass that changed a result: at the op that the rewrite matched, else at the tensor's."""
    loc = rewrite.where if rewrite is not None and rewrite.where is not None else difference.loc
    who = f"pass '{pass_.name}'"
    if rewrite is not None:
        who = f"pattern '{rewrite.pattern}' of pass '{pass_.name}'"
    error = CheckError(f"{who} changed the result: {difference.what}", loc, label=f"check.{difference.kind}")
    if rewrite is not None:
        error.notes.append((rewrite.where, f"rewrite {rewrite.number}, on {rewrite.root}"))
        error.notes += [(None, f"before: {line}") for line in rewrite.before]
        error.notes += [(None, f"after:  {line}") for line in rewrite.after]
    elif detail:
        error.notes.append((None, detail))
    if difference.op is not None:
        what = f"'{difference.tensor}' is now computed by" if difference.tensor is not None else "at"
        error.notes.append((difference.loc, f"{what} {difference.op}"))
    if difference.data:
        error.notes.append((None, difference.data))
    if pass_.name in EXACT and (units := units_apart(difference)):
        text = (
            f"about {units} unit{'s' if units > 1 else ''} in the last place of f32: pass '{pass_.name}' promises the"
        )
        text += " same bits (docs/trust.md); a rule that rounds belongs into a pass that may, such as 'rewrite'"
        error.notes.append((None, text))
    error.difference, error.pass_name, error.rewrite = difference, pass_.name, rewrite
    return error


def units_apart(difference: Difference) -> int:
    """The units in the last place of f32 by which the values of a difference are apart, where rounding explains them; 0
    elsewhere."""
    if difference.mismatch is None:
        return 0
    try:
        before, after = (np.float32(text) for text in (difference.mismatch.before, difference.mismatch.after))
    except ValueError:  # no numbers
        return 0
    size = max(abs(before), abs(after))
    if not np.isfinite(size) or difference.kind != "value":
        return 0
    units = max(1, round(float(abs(before - after)) / float(np.spacing(size))))
    return units if units <= ROUNDINGS else 0


def run_checked(
    ctx: Context,
    module: ModuleOp,
    passes: Sequence[ModulePass],
    options: CheckOptions = CheckOptions(),
    *,
    each_rewrite: bool = False,
) -> PipelineVerdict:
    """Run `passes` on `module`, in place, and check each; the verdict tells of the first that is wrong. A pass that
    fails (rather than changing a result) raises its `LightNetError`, as in `run_pipeline`."""
    checker = Checker(ctx, options, each_rewrite=each_rewrite)
    try:
        run_pipeline(ctx, module, passes, [checker])
    except CheckError as e:
        return PipelineVerdict(checker.notes, checker.compared, e.difference, e.pass_name, e.rewrite, e)
    notes = [*checker.notes, *(checker.baseline.notes() if checker.baseline is not None else ())]
    return PipelineVerdict(notes, checker.compared)
