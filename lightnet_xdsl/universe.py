"""LightNet in `xdsl-opt`, by the entry point `xdsl.universe`: our dialects, our passes under their own names, pipelines
by theirs, and emitters.

    xdsl-opt net.mlir -p 'ln-pipeline{passes="@cpu:plan"}'
    xdsl-opt net.mlir -p 'expand{target=cpu},combine{target=cpu}'
    xdsl-opt planned.mlir -t 'lightnet{target=cpu form=asm}'

Plugins are in it as they are in ln-opt's lists. Imports xDSL and the registry, whose rows are imported when they are
asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import IO

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.universe import Universe
from xdsl.utils.target import Target

from lightnet.diagnostics import LightNetError
from lightnet.ir.context import OURS
from lightnet.ir.passes import parse_pipeline, run_pipeline
from lightnet.ir.registry import DIALECTS, PASSES
from lightnet.ir.target import get_target


@dataclass(frozen=True)
class NamedPipelinePass(ModulePass):
    """Run `passes`, in ln-opt's notation: a pipeline's name with what is to be changed in it (``@cpu:plan``,
    ``@cpu-bands``), or passes. `target` is the one for those of them that do not say theirs."""

    name = "ln-pipeline"

    passes: str
    target: str = "cpu"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        run_pipeline(ctx, op, parse_pipeline(self.passes, {"target": self.target}))


@dataclass(frozen=True)
class LightNetTarget(Target):
    """The text that ``ln-opt --emit=FORM -t TARGET`` prints of a lowered module: ``llvm`` or ``asm`` of cpu, ``ptx`` or
    ``llvm`` of cuda, or what a target of yours has. Forms that are no text are refused."""

    name = "lightnet"

    target: str = "cpu"
    form: str = "llvm"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        text = get_target(self.target).emit(self.form, module)
        if not isinstance(text, str):
            raise LightNetError(
                f"'{self.form}' of target '{self.target}' is no text: ln-opt --emit writes it to a file"
            )
        output.write(text)


UNIVERSE = Universe(
    all_dialects={name: partial(DIALECTS.get, name) for name in OURS},
    all_passes={NamedPipelinePass.name: lambda: NamedPipelinePass}
    | {name: partial(PASSES.get, name) for name in PASSES},
    all_targets={LightNetTarget.name: lambda: LightNetTarget},
)
