"""A module on its way through a pipeline: its stages, and the code that its target's runtime makes of the last one.
Imports xDSL and `ir`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from copy import copy
from functools import cached_property
from threading import RLock
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from lightnet.diagnostics import LightNetError
from lightnet.ir.collector import collector_paused
from lightnet.ir.context import make_context
from lightnet.ir.instances import instance_of
from lightnet.ir.passes import run_pipeline
from lightnet.ir.rewrites import disabling, is_disabled
from lightnet.ir.runtime import INTERPRETED, Runtime, Settings
from lightnet.ir.target import get_target
from lightnet.runtime.machine import PROCESS, Machine
from lightnet.runtime.threads import Threads

#: Set in the environment, it has the loops (level 4) of every compilation verified, which `ln-opt` always does.
VERIFY = "LIGHTNET_VERIFY"


class Compilation:
    """A module on its way through a pipeline, and the stages it went through: `planning` leads to the planned network
    (level 3), `lowering` to launches (level 4).

    `target` is whose code it becomes, `settings` what the target's options came to, `threads` how many threads a call
    may use. Passes that are switched off are those of `disable`, which `stage` needs, too.
    """

    def __init__(
        self,
        module: ModuleOp,
        planning: Sequence[ModulePass],
        lowering: Sequence[ModulePass] = (),
        ctx: Any = None,
        instrumentation: Sequence[Any] = (),
        target: str = "cpu",
        settings: Settings | None = None,
        threads: Threads = Threads(1),
        disable: Sequence[str] = (),
    ):
        self.source = module
        self.ctx = ctx or make_context()
        self.lock = RLock()
        self.target = get_target(target)
        self.settings = settings or self.target.settings()
        self.threads = threads
        self.disable = tuple(disable)
        planning, lowering = ([p for p in passes if not is_disabled(p.name)] for passes in (planning, lowering))
        self.passes = [*planning, *lowering]
        self.planned = module.clone()
        #: The values of symbols, of a compilation that is one of a call.
        self.values: Mapping[str, int] = {}
        self.loops: ModuleOp | None = None
        run_pipeline(self.ctx, self.planned, planning, instrumentation)
        if lowering:
            self.loops = self.planned.clone()
            # Verifying xDSL's ops takes as long as making them, and the emitter refuses what it does not know.
            checked = bool(instrumentation) or bool(os.environ.get(VERIFY))
            run_pipeline(self.ctx, self.loops, lowering, instrumentation, verify=checked)

    def of_call(self, values: Mapping[str, int]) -> Compilation:
        """The compilation as it is for calls in which symbols have these values, with the same code."""
        if self.loops is not None:
            _ = self.native  # which the copy shares
        found = copy(self)
        if self.loops is not None:
            found.loops = instance_of(self.loops, values)
        found.source, found.planned = instance_of(self.source, values), instance_of(self.planned, values)
        found.values = values
        return found

    @property
    def runtime(self) -> Runtime:
        """The runtime that makes the code and runs it; without launches the interpreter does."""
        return INTERPRETED if self.loops is None else self.settings.runtime

    @property
    def machine(self) -> Machine:
        """The machine that it runs on: its target's, or this process, where that runs another target's code, or
        interprets what was to be lowered.
        """
        as_target = self.target.lowering is None if self.loops is None else self.is_own
        return self.target.opened_by if as_target else PROCESS

    @property
    def is_own(self) -> bool:
        """True if the code is for its target's own machine, and not turned into another's."""
        return self.settings.runtime is self.target.own_runtime

    @cached_property
    def options(self) -> Mapping[str, Any]:
        """The options of the target, as they hold."""
        return self.target.own_runtime.holds(self.loops, self.settings.options)

    @cached_property
    def _native(self) -> Any:
        assert self.loops is not None
        with collector_paused():
            return self.runtime.make(self.loops, self.settings)

    @property
    def native(self) -> Any:
        """The code of its loops, made once (`Runtime.make`). Raises `LightNetError` where there are none."""
        if self.loops is None:
            raise self.no_code()
        with self.lock:
            return self._native

    def no_code(self, use: str = "") -> LightNetError:
        """The error of who asks for code, to `use` it in some way, where there is none."""
        name, has_none = self.target.name, self.target.lowering is None
        why = f"target {name} has none here" if has_none else f"the pipeline ends before the launches of target {name}"
        return LightNetError(
            f"there is no machine code{use and ' to '}{use}: {why}, and the interpreter runs the network"
        )

    def stage(self, name: str) -> ModuleOp:
        """The module after the pass called `name` (``source`` is before all)."""
        names = [p.name for p in self.passes]
        if name == "source":
            return self.source
        if name not in names:
            raise LightNetError(
                f"no pass '{name}' in this pipeline; there are: source, {', '.join(dict.fromkeys(names))}"
            )
        module = self.source.clone()
        last = len(names) - 1 - names[::-1].index(name)
        with disabling(self.disable):
            run_pipeline(self.ctx, module, self.passes[: last + 1])
        return module
