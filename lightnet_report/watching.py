"""The watchers that the options of `ln-opt` ask for (`cli/watching.py`), and the report of `lightnet --report`.

Imports what an option needs when it is given.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightnet.cli.network import names_of
from lightnet.cli.watching import text_form
from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError, near_or_all
from lightnet.ir.passes import Instrumentation
from lightnet.ir.registry import TARGETS
from lightnet.ir.target import get_target
from lightnet.runtime.files import write_atomic
from lightnet_report.timing import Stage, Timing

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp
    from xdsl.passes import ModulePass

    from lightnet_report.recorder import Recorder
    from lightnet_report.remarks import Remarks

#: Rounds of a profile, whose median counts.
ROUNDS = 3

_STAGE = re.compile(r"(before|after):([\w-]+)(?:=(.*))?")


class Watching:
    """The watchers of one run of the tool, which may have several parts (``--split-input-file``)."""

    def __init__(self, args: argparse.Namespace, passes: Sequence[ModulePass]):
        for target in {name for p in passes if isinstance(name := getattr(p, "target", None), str)} & {*TARGETS}:
            get_target(target)  # its imports are no pass's time
        self.args = args
        self.part = 0  # the number of the part that is at work, from 1
        names = {p.name for p in passes}
        self.before, self.after = (names_of(v) for v in (args.print_ir_before, args.print_ir_after))
        for name in (*self.before, *self.after):
            if name != "*" and name not in names:
                raise LightNetError(
                    f"--print-ir-before/-after: the pipeline has no pass '{name}'{near_or_all(name, sorted(names))}"
                )
        self.timing = Timing() if args.timing else None
        self.dots, self.flows = ([_stage_request(option, text, names) for text in texts]
                                 for option, texts in (("--dot", args.dot), ("--dfg", args.dfg)))  # fmt: skip
        self.folder: Any = None
        self._check_files()

    def _check_files(self) -> None:
        """Refuse an empty name, and two things that go to one place: each file, and standard output, holds one text."""
        args = self.args
        files = {"-o": args.output, "--stats": args.stats, "--html-report": args.html_report,
                 "--print-ir-tree-dir": args.print_ir_tree_dir, "--remarks-json": args.remarks_json}  # fmt: skip
        places: dict[str, str] = {}
        graphs = (("--dot", self.dots), ("--dfg", self.flows))
        for option, file in (*files.items(), *((option, file) for option, stages in graphs for *_, file in stages)):
            if file == "":
                raise LightNetError(f"{option} is empty: it takes a name")
            if file is None or file == os.devnull or (option in ("--stats", "--dfg") and file == "-"):
                continue
            place = file if file == "-" else os.path.abspath(file)
            if place in places:
                where = "standard output: give one of them a file" if file == "-" else f"'{file}'"
                raise LightNetError(f"{places[place]} and {option} both write {where}")
            places[place] = option

    def watchers(self) -> list[Instrumentation]:
        """The watchers of the current part."""
        found: list[Instrumentation] = [self.timing] if self.timing is not None else []
        if self.before or self.after or self.args.print_ir_after_change:
            found.append(self.printing())
        if self.args.trace_rewrites:
            from lightnet_report.trace import TraceRewrites

            found.append(TraceRewrites(sys.stderr, names_of(self.args.trace_rewrites) or ("*",)))
        if self.args.remarks or self.args.remarks_json:
            found += self.remarks()
        if self.args.stats:
            found += self.stats(self.args.stats)
        if self.args.print_ir_tree_dir:
            found.append(self.tree(Path(self.args.print_ir_tree_dir)))
        found += [self.dot(*request) for request in self.dots]
        found += [self.flow(*request) for request in self.flows]
        if self.args.html_report:
            report = HtmlReport(self.numbered(self.args.html_report), Path(self.args.file).name)
            found += [*report.watchers, _at_end(report.write)]
        return found

    def remarks(self) -> list[Instrumentation]:
        from lightnet_report.remarks import Remarks, remarks_json, shown_remarks

        file, wanted = self.args.remarks_json, names_of(self.args.remarks)
        if file is None:
            return [shown_remarks(wanted)]
        found = shown_remarks(wanted) if wanted else Remarks()

        def write() -> None:
            text = remarks_json(found.remarks)
            sys.stdout.write(text) if file == "-" else write_atomic(self.numbered(file), text)

        return [found, _at_end(write)]

    def stage(self, name: str) -> AbstractContextManager[Stage | None]:
        """A block that is a stage of the tool's work, for `--timing`."""
        return self.timing.stage(name) if self.timing is not None else nullcontext()

    def finish(self) -> None:
        """Write what is about all parts."""
        if self.timing is not None:
            sys.stderr.write(self.timing.report())

    def printing(self) -> Instrumentation:
        from lightnet_report.printing import PrintIR

        form = text_form(self.args)
        return PrintIR(sys.stderr, self.before, self.after, self.args.print_ir_after_change, form)

    def stats(self, file: str) -> list[Instrumentation]:
        from lightnet_report.stats import Stats

        stats = Stats()
        if file == "-":
            heading = f"part {self.part}:\n" if self.args.split_input_file else ""
            return [stats, _at_end(lambda: sys.stderr.write(heading + stats.text()))]
        return [stats, _at_end(lambda: write_atomic(self.numbered(file), stats.json()))]

    def tree(self, path: Path) -> Instrumentation:
        from lightnet_report.tree_dir import Folder, IRTree

        self.folder = self.folder or Folder(path)
        prefix = f"part{self.part}/" if self.args.split_input_file else ""
        return IRTree(self.folder, prefix, text_form(self.args))

    def dot(self, when: str, pass_name: str, file: str) -> Instrumentation:
        from lightnet_report.dot import dot

        title = Path(self.args.file).stem
        target = self.numbered(file)
        return _AtStage(when, pass_name, lambda module: write_atomic(target, dot(module, title)))

    def flow(self, when: str, pass_name: str, file: str) -> Instrumentation:
        from lightnet_report.graph import graph_of

        target = self.numbered(file)

        def write(module: ModuleOp) -> None:
            text = graph_of(module).text()
            if file == "-":
                sys.stderr.write(text)
            else:
                write_atomic(target, text)

        return _AtStage(when, pass_name, write)

    def numbered(self, file: str) -> str:
        """The name of a file of the current part: ``net.part2.html`` where there are parts."""
        if not self.args.split_input_file or file == "-":
            return file
        path = Path(file)
        return str(path.with_name(f"{path.stem}.part{self.part}{path.suffix}"))


class HtmlReport:
    """The page about a compilation: give the pipelines its `watchers`, then `write`."""

    def __init__(self, file: str, title: str):
        from lightnet_report.recorder import Recorder
        from lightnet_report.remarks import Remarks

        self.file, self.title = file, title
        self.recorder: Recorder = Recorder()
        self.remarks: Remarks = Remarks(("missed", "cost"))

    @property
    def watchers(self) -> list[Instrumentation]:
        """The watchers of the pipelines that it is about."""
        return [self.recorder, self.remarks]

    def write(self, executable: Any = None) -> None:
        """Write the file, with the times of the kernels of `executable` if one is given."""
        from lightnet_report import html

        write_atomic(
            self.file,
            html.page(
                self.recorder, self.title, html.NOT_RUN if executable is None else _times(executable), self.remarks
            ),
        )


class ReportFile:
    """The report that ``lightnet --report FILE`` writes, in the form that the file's suffix names; `watchers` are for
    the compiler.
    """

    def __init__(self, file: str, title: str):
        self.file, self.suffix = file, Path(file).suffix.lower()
        self.html = HtmlReport(file, title) if self.suffix in (".html", ".htm") else None
        self.watchers: list[Instrumentation] = []
        if self.html is not None:
            self.watchers = [*self.html.watchers, _Ending(lambda: None, self.html.write)]

    def write(self, executable: Any) -> None:
        """Write the report on a compiled network, which need not have run."""
        if self.html is not None:
            self.html.write()
        elif self.suffix in (".dot", ".gv"):
            from lightnet_report.dot import dot

            write_atomic(self.file, dot(executable.planned, Path(self.file).stem))
        else:
            write_atomic(self.file, executable.plan.in_form(self.file))

    def write_times(self, executable: Any) -> None:
        """Write it again after a run, with the times of the kernels, where the form has room for them."""
        if self.html is not None:
            self.html.write(executable)


def _times(executable: Any) -> Any:
    """The profile of an executable, or why there is none."""
    from lightnet_debug.profile import profiled

    try:
        return profiled(executable, None, ROUNDS)
    except LightNetError as e:
        return f"There are no times of kernels: {e.message}"


def _stage_request(option: str, text: str, passes: set[str]) -> tuple[str, str, str]:
    """(when, the pass, the file) of a value of --dot or --dfg; no pass means the end."""
    match = _STAGE.fullmatch(text)
    if match is None:
        return "after", "", text
    when, pass_name, file = match.groups()
    if pass_name not in passes:
        raise LightNetError(f"{option}: the pipeline has no pass '{pass_name}'{near_or_all(pass_name, sorted(passes))}")
    if not file:
        raise LightNetError(f"{option}: say where the graph goes: {option} {when}:{pass_name}=FILE")
    return when, pass_name, file


@dataclass(frozen=True)
class _Ending(Instrumentation):
    """Calls `finish` at the end, or `fail` where a pass failed."""

    finish: Callable[[], object]
    fail: Callable[[], object]

    def after_pipeline(self, module: ModuleOp) -> None:
        self.finish()

    def pass_failed(self, pass_: ModulePass, module: ModuleOp, error: Exception) -> None:
        try:
            self.fail()
        except LightNetError as e:  # the error that is on its way matters more
            print(e.render(), file=sys.stderr)


def _at_end(write: Callable[[], object]) -> Instrumentation:
    """A watcher that calls `write` once at the end, also where a pass failed: that is when one looks."""
    return _Ending(write, write)


@dataclass(frozen=True)
class _AtStage(Instrumentation):
    """Calls `write` before or after a pass, or at the end where none is named."""

    when: str
    pass_name: str
    write: Callable[[ModuleOp], object]

    def before_pass(self, pass_: ModulePass, module: ModuleOp) -> None:
        if (self.when, self.pass_name) == ("before", pass_.name):
            self.write(module)

    def after_pass(self, pass_: ModulePass, module: ModuleOp) -> None:
        if (self.when, self.pass_name) == ("after", pass_.name):
            self.write(module)

    def after_pipeline(self, module: ModuleOp) -> None:
        if not self.pass_name:
            self.write(module)
