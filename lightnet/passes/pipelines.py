"""The pipelines: which passes run, in which order, for which target and plan. Imports `ir.target`.

import (-> decompose) -> bind -> simplify -> trim-windows -> fold-batchnorm -> simplify (-> precision) -> hoist     level 1, the graph
       -> expand -> subgraph -> hoist -> combine -> layout -> bands -> choose -> pack -> schedule   level 2, kernels
       -> plan                                                         level 3, places
       -> lower-<target>                                               level 4, loops
"""

from __future__ import annotations

from lightnet.diagnostics import LightNetError
from lightnet.ir.op import LnOp
from lightnet.ir.registry import FAMILIES
from lightnet.ir.target import get_target
from lightnet.runtime.dtypes import SHORT

#: Level 1: the same for every target.
GRAPH = ("bind", "simplify", "trim-windows", "fold-batchnorm", "simplify", "hoist")
#: Level 2. `hoist` stands before it, so that `ln.once` holds plain ops, which NumPy evaluates at load; `subgraph` before
#: `combine`, so that it sees one op a kernel, and `hoist` again behind it, for what it does to params; `bands` behind
#: `layout`, because it joins kernels on blocked maps; `choose` before `pack`, because how weights lie depends on it, and before
#: `plan`, because workspace does.
KERNELS = ("expand", "subgraph", "hoist", "combine", "layout", "bands", "choose", "pack", "schedule")
PLAN = ("plan",)  # which ends with the check of `check-plan`
#: What reproduces LightNet's plans: nothing is fused, packed or laid out anew, but for what the architecture did (`Target.upstream`, before `plan`). `choose` comes after `plan` (and
#: for a network that comes in planned): workspace is then added behind what was planned.
UPSTREAM = ("bind", "preprocess", "expand", "preprocess", "plan")
PLANNED = ("bind", "choose")

#: How far to go: everything up to and including a level.
LEVELS = ("graph", "kernels", "plan", "loops")


#: What a network may compute in: as it is written; with the factors of products rounded to tf32, where a target has such; or in a short type,
#: by the pass `precision`, behind what folds weights, and before `hoist`, so that they are rounded once.
PRECISIONS = ("f32", "tf32", *SHORT)


def default(
    target: str = "cpu",
    plan: str = "default",
    until: str = "loops",
    planned: bool = False,
    layout: str | None = None,
    precision: str = "f32",
) -> str:
    """The pipeline, as `parse_pipeline` reads it, for a target and a kind of plan (``upstream`` or another one).

    `until` is the last level to reach: ``graph``, ``kernels``, ``plan`` or ``loops``; `planned` says that the module
    has places already and is only to be lowered. Options (`target`, `plan`, `layout`) are for `parse_pipeline` to fill
    in; a `layout` other than ``plain`` is a `LightNetError` where no pass would read it, and so is a `precision` other than ``f32`` where
    a plan stands already, or is upstream's. A target without kernels runs the graph
    as it was imported, bound.
    """
    if until not in LEVELS:
        raise LightNetError(f"unknown level '{until}'; there are: {', '.join(LEVELS)}")
    architecture = get_target(target)
    fixed = {"a network that is planned keeps its layouts": planned, "upstream's plans are of plain tensors": plan == "upstream",
             f"target '{target}' has no layouts": architecture.kernel is None}  # fmt: skip
    if layout not in (None, "plain") and (why := next((why for why, holds in fixed.items() if holds), None)):
        raise LightNetError(f"{why}: leave out layout '{layout}'", label="pipelines.layout")
    shorten = _shorten(target, plan, planned, precision)
    if architecture.kernel is None:
        return ",".join((*(("decompose",) if decomposes() else ()), "bind", *shorten))
    last = LEVELS.index(until)
    lowering = (architecture.lowering,) if architecture.lowering is not None else ()
    if planned:
        stages: list[tuple[str, ...]] = [PLANNED[:1], (), (), (*PLANNED[1:], *lowering)]
    elif plan == "upstream":
        stages = [UPSTREAM[:1], (*UPSTREAM[1:-1], *architecture.upstream), UPSTREAM[-1:], (*PLANNED[1:], *lowering)]
    else:
        stages = [(*GRAPH[:-1], *shorten, *GRAPH[-1:]), KERNELS, PLAN, lowering]
    if decomposes():
        stages.insert(0, ("decompose",))
        last += 1
    return ",".join(name for stage in stages[: last + 1] for name in stage)


def decomposes() -> bool:
    """Whether there are ops that are graphs of others: those of descriptions, and of plugins."""
    added = (op for family in FAMILIES if FAMILIES.is_added(family) for op in FAMILIES.get(family))
    return any(issubclass(op, LnOp) and op.decomposition is not LnOp.decomposition for op in added)


def _shorten(target: str, plan: str, planned: bool, precision: str) -> tuple[str, ...]:
    """The pass that a precision asks for beside those that there are."""
    if precision not in PRECISIONS:
        raise LightNetError(
            f"unknown precision '{precision:.40}'; there are: {', '.join(PRECISIONS)}", label="pipelines.precision"
        )
    why = None
    if precision == "tf32" and target != "cuda":
        why = f"target '{target}' has no tf32, which is of tensor cores"
    elif precision != "f32" and (planned or plan == "upstream"):
        why = (
            "a network that is planned keeps its types"
            if planned
            else "upstream's plans are of the types that are written"
        )
    if why is not None:
        raise LightNetError(f"{why}: leave out precision '{precision}'", label="pipelines.precision")
    return (f"precision{{to={precision}}}",) if precision in SHORT else ()
