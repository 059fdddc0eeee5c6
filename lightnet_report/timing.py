"""`--timing`: a tree of what a tool does, with the wall time, the ops and the peak of memory of each stage."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from lightnet.dataclasses import dataclass
from lightnet.ir.module import count_ops
from lightnet.ir.passes import Instrumentation


def peak_mib() -> float:
    """The largest resident size of this program so far, in MiB: Linux's own mark, since `ru_maxrss` is also that of the
    process that started this one."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) / (1 << 10)
    except (OSError, ValueError):
        pass  # another system
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20) if sys.platform == "darwin" else peak / (1 << 10)


@dataclass
class Stage:
    """One line of the tree: wall time in seconds, op counts around the stage, the process's peak at its end."""

    name: str
    depth: int
    seconds: float = 0.0
    ops_before: int | None = None
    ops_after: int | None = None
    peak: float = 0.0

    def made(self, module: ModuleOp) -> None:
        """Note the size of a module that the stage made."""
        self.ops_after = count_ops(module)


class Timing(Instrumentation):
    """A tree of stages. Counting the ops is not timed."""

    def __init__(self) -> None:
        self.stages: list[Stage] = []
        self._open: list[tuple[Stage, float]] = []

    def begin(self, name: str, module: ModuleOp | None = None) -> Stage:
        stage = Stage(name, len(self._open), ops_before=count_ops(module) if module is not None else None)
        self.stages.append(stage)
        self._open.append((stage, time.perf_counter()))
        return stage

    def end(self, module: ModuleOp | None = None) -> None:
        stage, start = self._open.pop()
        stage.seconds += time.perf_counter() - start
        stage.peak = peak_mib()
        if module is not None:
            stage.ops_after = count_ops(module)

    @contextmanager
    def stage(self, name: str) -> Iterator[Stage]:
        """Time a block."""
        stage = self.begin(name)
        try:
            yield stage
        finally:
            self.end()

    def before_pass(self, pass_: ModulePass, module: ModuleOp) -> None:
        self.begin(str(pass_.spec()), module)

    def after_pass(self, pass_: ModulePass, module: ModuleOp) -> None:
        self.end(module)

    def before_verify(self) -> None:
        self.begin("verify")

    def after_verify(self) -> None:
        self.end()

    def report(self) -> str:
        """The tree as text, one line a stage, in the order in which they began."""
        total = sum(s.seconds for s in self.stages if s.depth == 0)
        lines = [
            f"timing: {total * 1e3:.1f} ms wall, peak {peak_mib():.0f} MiB",
            "   wall ms       %         ops  peak MiB  stage",
        ]
        for s in self.stages:
            ops = "" if s.ops_after is None else str(s.ops_after)
            if s.ops_before is not None:
                ops = f"{s.ops_before} -> {ops}"
            share = 100 * s.seconds / total if total else 0.0
            name = "  " * s.depth + s.name
            lines.append(f"{s.seconds * 1e3:10.1f}{share:7.1f}%{ops:>13}{s.peak:10.0f}  {name}")
        return "\n".join(lines) + "\n"
