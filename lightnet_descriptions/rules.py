"""A rule of a file, whatever language says it: what it matches, what becomes of that, where it stands; and how it runs.

Descriptions (`optimizer.py`) and PDL (`pdl.py`) are read into `Rule`s, which `RulePattern` runs. What finds several ops
does so in steps from one to the next, with backtracking (`solutions`). Imports xDSL, `ir` and `rewriting`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, islice, takewhile
from typing import Any, ClassVar, NamedTuple, Protocol

from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import InternalWarning, LightNetError, SourceLoc
from lightnet.ir.locations import loc_of
from lightnet.ir.op import LnOp
from lightnet.ir.refusal import Refusal, refusal_reason
from lightnet.ir.rewrites import FilePattern
from lightnet_descriptions import rewriting
from lightnet_descriptions.fusion import ONE_KERNEL

#: A rule looks at most at so many ways to match from one op.
MAX_TRIES = 256

#: What the names of a rule stand for in one match: ops, and in PDL values, parameters and types, too.
Bindings = dict[Any, Any]


class Matcher(Protocol):
    """The match of a rule: from an op, its anchor, all ways to give the names of the rule a meaning. `places` is True
    if it is for what enters or leaves the network."""

    places: bool = False

    @property
    def roots(self) -> tuple[str, ...]:
        """The names that anchors have; none: any."""
        ...

    def anchors(self, op: Operation) -> Iterable[LnOp]:
        """The ops to match from where the driver looks at `op`: itself, or those of a kernel."""
        ...

    def matches(self, anchor: LnOp) -> Iterator[Bindings]: ...

    def why_not(self, anchor: LnOp) -> str:
        """The reason why nothing matches from an op: what the match that came furthest lacks."""
        return "nothing matches"


@dataclass(frozen=True)
class Case:
    """An action on a match, if one of `conditions` holds (none: always). It says whether it did anything, or why not:
    the ops of a match may turn out not to fit. `warning` is said if it did."""

    action: Callable[[Bindings, LnOp, PatternRewriter], bool | Refusal]
    conditions: Sequence[Callable[[Bindings], Any]] = ()
    warning: str | None = None


@dataclass(frozen=True)
class Rule:
    """A rule, and the pass and the target that it is for. Of its cases the first that holds is meant. `text` is that of
    the file."""

    name: str
    pass_name: str
    target: str
    place: SourceLoc
    text: str
    matcher: Matcher
    cases: tuple[Case, ...]
    #: What it rests on where it is right up to rounding only, or by a law of functions: it is checked in floats.
    law: str | None = None

    @property
    def equation(self) -> str:
        """The comment lines right above the rule, or right below its first, without their slashes: why it holds."""
        lines = [line.strip() for line in self.text.split("\n")]
        above, below = reversed(lines[: self.place.line - 1]), lines[self.place.line :]
        found = [[*takewhile(lambda line: line.startswith("//"), part)] for part in (above, below)]
        return "\n".join(line.lstrip("/").strip() for line in found[0][::-1] or found[1])

    def pattern(self) -> type[FilePattern]:
        """The pattern that passes apply."""
        namespace = {"rule": self, "name": self.name, "pass_name": self.pass_name, "target": self.target,
                     "declared_at": self.place, "law": self.law, "__module__": __name__}  # fmt: skip
        return type(self.name, (RulePattern,), namespace)


class RulePattern(FilePattern):
    """A rule of a file at work. A subclass stands for each."""

    rule: ClassVar[Rule]

    def __init__(self) -> None:
        rewriting.forget_names()  # patterns are made when a pass begins

    @property
    def places(self) -> bool:
        """True if the rule says where what enters or leaves the network stands: `expand` asks it for these ops."""
        return self.rule.matcher.places

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        for anchor in self.rule.matcher.anchors(op):
            for case, bound in self.fitting(anchor):
                if self.apply(case, bound, anchor, rewriter):
                    return

    def fitting(self, anchor: LnOp) -> Iterator[tuple[Case, Bindings]]:
        """The matches from an op that a case is for."""
        try:
            for bound in islice(self.rule.matcher.matches(anchor), MAX_TRIES):
                cases = (c for c in self.rule.cases if not c.conditions or any(holds(bound) for holds in c.conditions))
                if (case := next(cases, None)) is not None:
                    yield case, bound
        except LightNetError as e:
            e.notes.append((loc_of(anchor), f"in pattern '{self.name}', at this op"))
            raise

    def why_not(self, op: Operation, rewriter: PatternRewriter) -> str | None:
        """The reason why the rule has just left an op: the first condition that fails, or what stands in the way of its
        action; None where the rule is for no such op."""
        roots = self.rule.matcher.roots
        anchors = (anchor for anchor in self.rule.matcher.anchors(op) if not roots or anchor.name in roots)
        reasons = dict.fromkeys(why for anchor in anchors if (why := self._reason(anchor, rewriter)) is not None)
        return "; ".join(reasons) if reasons else None

    def _reason(self, anchor: LnOp, rewriter: PatternRewriter) -> str | None:
        why = ""
        for bound in islice(self.rule.matcher.matches(anchor), MAX_TRIES):
            failed = []
            for case in self.rule.cases:
                if case.conditions and not any(holds(bound) for holds in case.conditions):
                    failed.append(" || ".join(map(_text_of, case.conditions)))
                    continue
                done = case.action(bound, anchor, rewriter)  # without its warning, which was said
                return None if done is ONE_KERNEL else refusal_reason(done) or "it leaves the op as it is"
            why = why or f"no case of it holds: {'; '.join(f'`{text}` is false' for text in failed)}"
        return why or self.rule.matcher.why_not(anchor)

    def apply(self, case: Case, bound: Bindings, anchor: LnOp, rewriter: PatternRewriter) -> bool | Refusal:
        """Do what a case says; whether anything was done. Errors that are not at the op note it."""
        where, name = loc_of(anchor), anchor.op_name or anchor.optype
        try:
            done = case.action(bound, anchor, rewriter)
        except LightNetError as e:
            if e.loc != where:
                e.notes.append((where, f"in pattern '{self.name}', at `{name}`"))
            raise
        if done and case.warning is not None:
            warnings.warn(InternalWarning(case.warning, where), stacklevel=2)
        return done


def _text_of(condition: Callable[[Bindings], Any]) -> str:
    """A condition as the file says it."""
    item = getattr(getattr(condition, "__self__", None), "item", None)
    return "a condition" if item is None else str(item.value)


# -- several ops -----------------------------------------------------------------------------------------------------


class MatchStep(NamedTuple):
    """A way to one op more: the ops that it may be, once those before it are known, and whether one fits. What the op
    binds, `accepts` adds.
    """

    candidates: Callable[[Bindings], Iterable[Operation]]
    accepts: Callable[[Operation, Bindings], bool | Refusal]


def solutions(
    steps: Sequence[MatchStep], bound: Bindings, most: int, too_many: Callable[[], Exception]
) -> Iterator[Bindings]:
    """The ways to give each step an op, as what is bound in the end. Raises `too_many()` behind `most` candidates: the
    ways to give a few ops one each are many, and the paths of a graph are more than its ops."""
    tries = count()

    def extended(k: int, bound: Bindings) -> Iterator[Bindings]:
        if k == len(steps):
            yield bound
            return
        for op in steps[k].candidates(bound):
            if next(tries) >= most:
                raise too_many()
            trial = dict(bound)
            if steps[k].accepts(op, trial):
                yield from extended(k + 1, trial)

    return extended(0, bound)


def furthest(steps: Sequence[MatchStep], bound: Bindings, most: int, nothing: Callable[[int], str]) -> str | None:
    """The reason of the step that no match came beyond; None where all steps found an op. `nothing` is what to say of a
    step that has no op to look at."""
    reasons: dict[int, str] = {}

    def noting(k: int) -> MatchStep:
        def candidates(bound: Bindings) -> Iterable[Operation]:
            reasons.setdefault(k, "")
            return steps[k].candidates(bound)

        def accepts(op: Operation, bound: Bindings) -> bool | Refusal:
            taken = steps[k].accepts(op, bound)
            if not taken:
                reasons[k] = reasons.get(k) or refusal_reason(taken)
            return taken

        return MatchStep(candidates, accepts)

    for _ in solutions([*map(noting, range(len(steps)))], bound, most, RuntimeError):
        return None
    last = max(reasons, default=0)
    return reasons.get(last) or nothing(last)
