"""Pipelines for the CPU without some of their passes, for tests on random networks."""

from __future__ import annotations

import numpy as np

from lightnet.passes.levels import GRAPH_LEVEL, KERNEL_LEVEL, PLAN_LEVEL
from lightnet.passes.pipelines import pass_name_of, pipeline_of

#: Passes that those of a set need behind them: blocked maps have no kernels without choices, and choices may ask for packed weights.
NEEDED = {"choose": {"layout"}, "pack": {"layout", "choose"}}


def some_passes(rng: np.random.Generator, share: float) -> list[str]:
    """The default pipeline as far as level 3, without some passes: each that upstream's pipeline does not have stays with the
    probability `share`."""
    passes = [*GRAPH_LEVEL.passes, *KERNEL_LEVEL.passes, *PLAN_LEVEL.passes]
    always = {pass_name_of(entry) for entry in pipeline_of(plan="upstream").until("plan").passes}
    kept = {name for name in dict.fromkeys(passes) if name in always or rng.random() < share}
    return [name for name in passes if name in kept or NEEDED.get(name, set()) & kept]
