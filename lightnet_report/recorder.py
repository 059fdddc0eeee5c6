"""The history of a pipeline, kept for a report: the module as text and as a graph at each stage, the rewrites, the
figures, the plan.

Imports `ir`, the memory plan's report, and the other files of this folder.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, chain

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError
from lightnet.ir.memory import memory_of
from lightnet.ir.printer import LnPrinter, printing, wrapped_line
from lightnet.ir.rewrites import Rewrite
from lightnet_report.dfg import DataFlowGraph
from lightnet_report.graph import graph_of
from lightnet_report.plan_report import PlanReport, plan_report
from lightnet_report.stats import Stats

#: So many rewrites are kept, and so many characters of a stage.
MAX_REWRITES, MAX_TEXT = 20_000, 16 << 20


@dataclass(frozen=True)
class Snapshot:
    """The module after one pass: its text, its graph, and the lines of the text that each node of the graph is."""

    name: str
    text: str
    graph: DataFlowGraph
    lines: list[tuple[int, int]]  # of each node: first line and the one behind the last


class Recorder(Stats):
    """Watches pipelines (several, one after the other, are one run) and keeps what they do; `error` where one
    failed."""

    wants_text = True

    def __init__(self) -> None:
        super().__init__()
        self.snapshots: list[Snapshot] = []
        self.applied: list[Rewrite] = []
        self.left_out = 0
        self.error: str | None = None
        self.plans: dict[str, PlanReport] = {}

    def before_pipeline(self, passes: Sequence[ModulePass], module: ModuleOp) -> None:
        super().before_pipeline(passes, module)
        if not self.snapshots:
            self.snapshots.append(snapshot("(input)", module))
            self.read_plan(module)

    def after_pass(self, pass_: ModulePass, module: ModuleOp) -> None:
        super().after_pass(pass_, module)
        self.snapshots.append(snapshot(str(pass_.spec()), module))
        self.read_plan(module)

    def rewrote(self, rewrite: Rewrite) -> None:
        super().rewrote(rewrite)
        if len(self.applied) < MAX_REWRITES:
            self.applied.append(rewrite)
        else:
            self.left_out += 1

    def pass_failed(self, pass_: ModulePass, module: ModuleOp, error: Exception) -> None:
        super().pass_failed(pass_, module, error)
        text = error.render() if isinstance(error, LightNetError) else f"{type(error).__name__}: {error}"
        self.error = f"pass '{pass_.name}' failed: {text}"

    def read_plan(self, module: ModuleOp) -> None:
        """Keep the plan of a module of level 3: the last one counts; a later level has no lifetimes any more."""
        if not memory_of(module):
            return
        try:
            plans = {space: plan_report(module, space) for space in memory_of(module)}
        except LightNetError:
            return  # level 4, or a module that is only partly planned
        self.plans = {space: plan for space, plan in plans.items() if plan.buffers}


def snapshot(name: str, module: ModuleOp) -> Snapshot:
    """The module at this moment."""
    graph = graph_of(module).picture()
    stream = io.StringIO()
    printer = _MarkingPrinter(stream, {node.op for node in graph.nodes if node.op is not None})
    with printing():
        printer.print_op(module)
    printed = stream.getvalue().rstrip("\n").split("\n")
    starts = [0, *accumulate(len(line) + 1 for line in printed)]
    pieces = [wrapped_line(line) for line in printed]
    firsts = [0, *accumulate(map(len, pieces))]  # a line of the printer is one or more of the text
    lines = []
    for node in graph.nodes:
        begin, end = printer.marks.get(node.op, (0, 0)) if node.op is not None else (0, 0)
        first, behind = bisect_right(starts, begin) - 1, bisect_right(starts, max(end - 1, begin)) if end else 0
        lines.append((firsts[first], firsts[behind]))
        node.op = None  # a later pass may erase it
    text = "\n".join(chain.from_iterable(pieces)) + "\n"
    if len(text) > MAX_TEXT:
        text = text[:MAX_TEXT] + "\n… the rest is left out\n"
    return Snapshot(name, text, graph, lines)


class _MarkingPrinter(LnPrinter):
    """Notes where in the text some ops stand."""

    def __init__(self, stream: io.StringIO, wanted: set[Operation]):
        super().__init__(stream)
        self.text, self.wanted = stream, wanted
        self.marks: dict[Operation, tuple[int, int]] = {}

    def print_op(self, op: Operation) -> None:
        if op not in self.wanted:
            super().print_op(op)
            return
        start = self.text.tell()
        super().print_op(op)
        self.marks[op] = (start, self.text.tell())
