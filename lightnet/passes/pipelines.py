"""The pipelines as values: which passes of which level run, in which order, for which target and plan, and how a
pipeline's name is read.

import (-> decompose) -> bind -> simplify -> recognize -> trim-windows -> fold-batchnorm
       -> simplify (-> precision) (-> cascade) -> hoist                                             level 1, the graph
       -> expand -> subgraph -> hoist -> combine -> layout -> grow-caches
       -> bands -> choose -> pack -> schedule                                                       level 2, kernels
       -> plan                                                                                      level 3, places
       -> lower-<target>                                                                            level 4, loops

(`passes/levels.py` has the passes of each level.) Imports `ir.target` and the levels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from xdsl.passes import ModulePass

from lightnet.dataclasses import dataclass, replace
from lightnet.diagnostics import LightNetError, did_you_mean
from lightnet.ir.op import LnOp
from lightnet.ir.passes import parse_pipeline
from lightnet.ir.registry import FAMILIES, PASSES, RUNTIMES, TARGETS
from lightnet.ir.target import Target, get_target
from lightnet.passes.levels import GRAPH_LEVEL, KERNEL_LEVEL, LEVEL_OF, LEVELS, LOOP_LEVEL, PLAN_LEVEL, Level
from lightnet.runtime.dtypes import SHORT

#: What a network may compute in on every target: as it is written, or in a short type, by the pass `precision`, behind
#: what folds weights, and before `hoist`, so that they are rounded once. `Target.precisions` are further ones, of which
#: kernels are told.
PRECISIONS = ("f32", *SHORT)


@dataclass(frozen=True)
class _Stage:
    """The passes that lead to the end of a level, as `parse_pipeline` reads each."""

    level: Level
    passes: tuple[str, ...]


@dataclass(frozen=True)
class Pipeline:
    """Passes in order, by level. `name` is what errors call it."""

    name: str
    stages: tuple[_Stage, ...]

    @property
    def passes(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(name for stage in self.stages for name in stage.passes)

    def __str__(self) -> str:
        """As `parse_pipeline` reads it."""
        return ",".join(self.passes)

    def parsed(self, options: Mapping[str, Any]) -> tuple[list[ModulePass], list[ModulePass]]:
        """The passes that lead to a plan, and those behind it (`parse_pipeline` of each, with `options`)."""
        found: tuple[list[str], list[str]] = ([], [])
        for stage in self.stages:
            found[stage.level is LOOP_LEVEL].extend(stage.passes)
        planning, lowering = (parse_pipeline(",".join(names), options) if names else [] for names in found)
        return planning, lowering

    def around(self, first: tuple[str, ...], last: tuple[str, ...]) -> Pipeline:
        """With passes in front of all, and behind all."""
        head, *rest = self.stages
        *most, end = (replace(head, passes=(*first, *head.passes)), *rest)
        return replace(self, stages=(*most, replace(end, passes=(*end.passes, *last))))

    def until(self, level: str) -> Pipeline:
        """The passes up to the end of a level: ``graph``, ``kernels``, ``plan`` or ``loops``."""
        if level not in LEVEL_OF:
            raise LightNetError(f"unknown level '{level}'; there are: {', '.join(LEVEL_OF)}", label="pipelines.level")
        last = LEVEL_OF[level].number
        return replace(self, stages=tuple(stage for stage in self.stages if stage.level.number <= last))

    def without(self, name: str) -> Pipeline:
        """All passes but those of a name."""
        self._find(name)
        stages = (
            replace(stage, passes=tuple(p for p in stage.passes if pass_name_of(p) != name)) for stage in self.stages
        )
        return replace(self, stages=tuple(stages))

    def before(self, name: str, new: str) -> Pipeline:
        """With a pass (and its options) in front of the first one of a name."""
        at, k = self._find(name)[0]
        return self._with(at, k, new)

    def after(self, name: str, new: str) -> Pipeline:
        """With a pass (and its options) behind the last one of a name."""
        at, k = self._find(name)[-1]
        return self._with(at, k + 1, new)

    def _with(self, at: int, k: int, new: str) -> Pipeline:
        stages = list(self.stages)
        passes = stages[at].passes
        stages[at] = replace(stages[at], passes=(*passes[:k], new, *passes[k:]))
        return replace(self, stages=tuple(stages))

    def _find(self, name: str) -> list[tuple[int, int]]:
        """The places of the passes of a name: the stage, and the place in it."""
        found = [(i, k) for i, s in enumerate(self.stages) for k, p in enumerate(s.passes) if pass_name_of(p) == name]
        if not found:
            there = ", ".join(dict.fromkeys(map(pass_name_of, self.passes)))
            raise LightNetError(
                f"pipeline '@{self.name}' has no pass '{name}'; there are: {there}", label="pipelines.pass"
            )
        return found


def pass_name_of(entry: str) -> str:
    """The name of a pass that may have options behind it."""
    return entry.partition("{")[0].strip()


def pipeline_of(
    target: str = "cpu", plan: str = "default", planned: bool = False, layout: str | None = None, precision: str = "f32"
) -> Pipeline:
    """The pipeline of a target for a kind of plan (``upstream`` or another one), with what the target itself changes in
    it (`Target.pipeline`).

    `planned` says that the module has places already and is only to be lowered. Options (`target`, `plan`, `layout`)
    are for `parse_pipeline` to fill in; a `layout` other than ``plain`` is a `LightNetError` where no pass would read
    it, and so is a `precision` other than ``f32`` where a plan stands already, or is upstream's. A target without
    kernels runs the graph as it was imported, bound."""
    architecture = get_target(target)
    fixed = {"a network that is planned keeps its layouts": planned,
             "upstream's plans are of plain tensors": plan == "upstream",
             f"target '{target}' has no layouts": architecture.kernel is None}  # fmt: skip
    if layout not in (None, "plain") and (why := next((why for why, holds in fixed.items() if holds), None)):
        raise LightNetError(f"{why}: leave out layout '{layout}'", label="pipelines.layout")
    shorten = _shorten(target, plan, planned, precision)
    found = Pipeline(target, tuple(_stages(architecture, plan, planned, shorten)))
    found = architecture.pipeline(found) if architecture.pipeline is not None else found
    cascades = architecture.cascades and layout == "plain" and "hoist" in found.passes
    return found.before("hoist", "cascade") if cascades else found


def _stages(target: Target, plan: str, planned: bool, shorten: tuple[str, ...]) -> Iterator[_Stage]:
    lowering, last = (
        ((target.lowering,), LOOP_LEVEL) if target.lowering is not None else ((), PLAN_LEVEL)
    )  # without code, a plan is the end
    decompose = ("decompose",) if decomposes() else ()
    if target.kernel is None:
        yield _Stage(GRAPH_LEVEL, (*decompose, "bind", *shorten))
    elif planned:
        yield _Stage(GRAPH_LEVEL, (*decompose, "bind"))
        yield _Stage(last, ("choose", *lowering))
    elif plan == "upstream":
        # What reproduces LightNet's plans: nothing is fused, packed or laid out anew, but for what the architecture
        # did. `choose` comes after `plan` (and for a network that comes in planned): workspace is then added behind
        # what was planned.
        yield _Stage(GRAPH_LEVEL, (*decompose, "bind"))
        yield _Stage(KERNEL_LEVEL, ("preprocess", "expand", "preprocess", *target.upstream))
        yield _Stage(PLAN_LEVEL, PLAN_LEVEL.passes)
        yield _Stage(last, ("choose", *lowering))
    else:
        yield _Stage(GRAPH_LEVEL, (*decompose, *GRAPH_LEVEL.passes[:-1], *shorten, *GRAPH_LEVEL.passes[-1:]))
        yield _Stage(KERNEL_LEVEL, KERNEL_LEVEL.passes)
        yield _Stage(PLAN_LEVEL, PLAN_LEVEL.passes)
        yield _Stage(last, lowering)


def default(
    target: str = "cpu",
    plan: str = "default",
    until: str = "loops",
    planned: bool = False,
    layout: str | None = None,
    precision: str = "f32",
) -> str:
    """`pipeline_of` a target up to and including the level `until`, as `parse_pipeline` reads it."""
    return str(pipeline_of(target, plan, planned, layout, precision).until(until))


# -- names of pipelines ------------------------------------------------------------------------------------------------

#: What may stand behind a pipeline's name: a level, a pass to leave out, one to add.
_EDIT = re.compile(
    r":(?P<level>[\w-]*)"
    r"|\+(?P<where>after|before):(?P<at>[\w-]+):(?P<new>[\w-]+(?:\{(?:[^{}\"]|\"[^\"]*\")*\})?)"
    r"|-"
)


def expanded(text: str, defaults: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """A list of passes with the pipelines that it names spelt out, and `defaults` with the target of these. Raises
    `LightNetError`: a name that no target has, a change of a pass that is not in the pipeline, pipelines of different
    targets."""
    found, options = [], dict(defaults)
    for entry in entries(text):
        if not entry.startswith("@"):
            found.append(entry)
            continue
        options["target"], pipeline = _named(entry, options)
        found += pipeline.passes
    return ",".join(found), options


def _named(entry: str, options: Mapping[str, Any]) -> tuple[str, Pipeline]:
    """The target of a pipeline's name, and the pipeline, with the changes that the name asks for."""
    target, edits = _split(entry)
    if options.get("target", target) != target:
        raise LightNetError(f"pipeline '{entry:.60}' is of target {target}, and the target is {options['target']}",
                            label="pipelines.target")  # fmt: skip
    given = {key: options[key] for key in ("plan", "planned", "layout", "precision") if options.get(key) is not None}
    return target, _edited(pipeline_of(target, **given), entry, edits)


def staged(text: str, defaults: Mapping[str, Any]) -> Pipeline:
    """A list of passes by level, as `pipeline_of` has them: those of a pipeline that it names stand at their levels,
    any other one at that of the pass in front of it. What lowers begins the last level, with the choices right in front
    of it (of networks that are planned already, to whose plan workspace is added). Raises `LightNetError` as `expanded`
    does, and for a precision that the passes do not speak of."""
    target, precision = get_target(defaults["target"]), defaults.get("precision") or "f32"
    if "@" not in text and precision != "f32" and precision not in target.precisions:
        raise LightNetError(
            f"a pipeline says itself what it rounds: put precision{{to={precision:.40}}} into it, and leave out the "
            "option"
        )
    found: list[tuple[Level, str]] = []
    for entry in entries(text):
        if entry.startswith("@"):
            found += [(stage.level, name) for stage in _named(entry, defaults)[1].stages for name in stage.passes]
            continue
        level = found[-1][0] if found else GRAPH_LEVEL
        if level is not LOOP_LEVEL and _lowers(pass_name_of(entry), target):
            level, at = LOOP_LEVEL, len(found)
            while at and pass_name_of(found[at - 1][1]) == "choose":
                at -= 1
            found[at:] = [(LOOP_LEVEL, name) for _, name in found[at:]]
        found.append((level, entry))
    groups = groupby(found, lambda pair: pair[0].number)
    stages = tuple(_Stage(LEVELS[number - 1], tuple(name for _, name in pairs)) for number, pairs in groups)
    return Pipeline(target.name, stages)


def _lowers(name: str, target: Target) -> bool:
    """Return whether a pass makes launches."""
    return name == target.lowering or (name in PASSES and getattr(PASSES.get(name), "makes", None) == LOOP_LEVEL.name)


def target_of(texts: Iterable[str]) -> str | None:
    """The target of the first pipeline that lists of passes name; None where they name none."""
    named = (_split(entry)[0] for text in texts for entry in entries(text) if entry.startswith("@"))
    return next(named, None)


def entries(text: str) -> list[str]:
    """The passes of a list, each with its options."""
    found, depth, quoted = [""], 0, False
    for c in text:
        quoted ^= c == '"'
        depth += 0 if quoted else (c in "{[(") - (c in "}])")
        if c == "," and not quoted and depth <= 0:
            found.append("")
        else:
            found[-1] += c
    return [entry.strip() for entry in found]


def _split(entry: str) -> tuple[str, str]:
    """The target that a name such as ``@cpu-bands`` begins with, the longest there is, and the changes behind it."""
    word = re.match(r"@([\w-]*)", entry)
    assert word is not None
    names = [name for name in TARGETS if word[1] == name or word[1].startswith(f"{name}-")]
    if not names:
        named = ", ".join(f"@{name}" for name in TARGETS)
        hint = did_you_mean([f"@{name}" for name in TARGETS if name[:2] == word[1][:2]])
        raise LightNetError(f"unknown pipeline '{word[0]}'{hint}; there are: {named}", label="pipelines.name")
    name = max(names, key=len)
    return name, entry[1 + len(name) :]


def _edited(pipeline: Pipeline, entry: str, edits: str) -> Pipeline:
    """The pipeline with the changes that stand behind its name, in order."""
    while edits:
        change = _EDIT.match(edits)
        if change is None:
            raise LightNetError(
                f"'{edits:.40}' of '{entry:.80}' changes no pipeline: write @NAME:LEVEL, -PASS, +after:PASS:NEW or "
                "+before:PASS:NEW",
                label="pipelines.edit",
            )
        edits = edits[change.end() :]
        if change["where"]:
            pipeline = getattr(pipeline, change["where"])(change["at"], change["new"])
        elif change["level"] is not None:
            level = max(
                (name for name in LEVEL_OF if change["level"].startswith(name)), key=len, default=change["level"]
            )
            pipeline, edits = pipeline.until(level), change["level"][len(level) :] + edits
        else:
            names = [
                name for name in map(pass_name_of, pipeline.passes) if re.match(rf"{re.escape(name)}(?![\w])", edits)
            ]
            word = re.match(r"[\w-]*", edits)
            name = max(names, key=len, default=word[0] if word is not None else edits)
            pipeline, edits = pipeline.without(name), edits[len(name) :]
    return pipeline


def decomposes() -> bool:
    """Return whether there are ops that are graphs of others: those of descriptions, and of plugins."""
    added = (op for family in FAMILIES if FAMILIES.is_added(family) for op in FAMILIES.get(family))
    return any(issubclass(op, LnOp) and op.decomposition is not LnOp.decomposition for op in added)


def _shorten(target: str, plan: str, planned: bool, precision: str) -> tuple[str, ...]:
    """The pass that a precision asks for beside those that there are."""
    own = get_target(target).precisions
    if precision not in (*PRECISIONS, *own):
        whose = [name for name in RUNTIMES if precision in get_target(name).precisions]
        hint = f" ('{precision}' is of target {' and '.join(whose)})" if whose else ""
        there = ", ".join((*PRECISIONS, *own))
        raise LightNetError(f"target '{target}' has no precision '{precision:.40}'; there are: {there}{hint}",
                            label="pipelines.precision")  # fmt: skip
    why = None
    if precision != "f32" and (planned or plan == "upstream"):
        why = (
            "a network that is planned keeps its types"
            if planned
            else "upstream's plans are of the types that are written"
        )
    if why is not None:
        raise LightNetError(f"{why}: leave out precision '{precision}'", label="pipelines.precision")
    return (f"precision{{to={precision}}}",) if precision in (*SHORT, "auto") else ()
