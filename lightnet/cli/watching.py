"""The options of `ln-opt` that watch passes at work: `--print-ir-after`, `--trace-rewrites`, `--stats`, `--dot`,
`--html-report`, `--timing` and their like; and `lightnet --report`.

What watches is of the package `lightnet_report`, which is asked for where an option of these is given.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lightnet.diagnostics import LightNetError
from lightnet.ir.resolving import resolve_beside

if TYPE_CHECKING:
    from xdsl.passes import ModulePass

    from lightnet.ir.passes import Instrumentation
    from lightnet.ir.printer import TextForm
    from lightnet_report.timing import Timing
    from lightnet_report.watching import ReportFile, Watching

#: Options whose value may be left out, with what they mean then: every pass or rewrite, standard error.
OPTIONAL_VALUE = {
    "--print-ir-before": "--print-ir-before=*",
    "--print-ir-after": "--print-ir-after=*",
    "--trace-rewrites": "--trace-rewrites=*",
    "--stats": "--stats=-",
    "--dfg": "--dfg=-",
    "--remarks": "--remarks=*",
}


def add_options(group: argparse._ArgumentGroup) -> None:
    """Add the options to a parser's group."""
    option = group.add_argument
    option(
        "--print-ir-before",
        action="append",
        default=[],
        metavar="PASS,...",
        help="print the module to stderr before these passes (before every one: no value)",
    )
    option("--print-ir-after", action="append", default=[], metavar="PASS,...", help="... after them")
    option("--print-ir-after-change", action="store_true", help="print what each pass changed, as a diff")
    option(
        "--trace-rewrites",
        action="append",
        default=[],
        metavar="[=NAME,...]",
        help="each rewrite on stderr, before and after; with a value, those of these patterns, passes or ops",
    )
    option(
        "--stats",
        metavar="[=FILE.json]",
        help="rewrites by pattern, op counts, bytes and time of each pass: a table on stderr, or a file",
    )
    option(
        "--print-ir-tree-dir", metavar="DIR", help="the module after each pass, and what changed, in files of a folder"
    )
    option("--dfg", action="append", default=[], metavar="[=[after:PASS=]FILE]",
           help="the data-flow graph of the result, or of the module before or after a pass, layer by layer, with "
                "cycles, and what is linked with nothing: on stderr, or a file")  # fmt: skip
    option("--dot", action="append", default=[], metavar="[after:PASS=]FILE",
           help="the graph for Graphviz, of the result, or of the module before or after a pass")  # fmt: skip
    option("--html-report", metavar="FILE", help="all of this as one page for a browser")
    add_remarks(group)
    option("--remarks-json", metavar="FILE", help="these remarks, all unless --remarks names some, as JSON")
    option("--timing", action="store_true", help="a tree of times, op counts and peak memory, on stderr")
    group.set_defaults(watching=[action.dest for action in group._group_actions])


def add_remarks(group: argparse._ActionsContainer) -> None:
    """Add the option ``--remarks``, which tools that compile networks have, too."""
    group.add_argument("--remarks", action="append", default=[], metavar="KIND,...",
                       help="on stderr, what passes did (applied), left and why (missed), and what each way would take "
                            "(cost); names of passes leave the others out")  # fmt: skip


def remarks(wanted: Sequence[str]) -> Instrumentation:
    """A watcher that shows the remarks that the option ``--remarks`` names."""
    return resolve_beside("lightnet_report.remarks:shown_remarks", "option '--remarks'")(wanted)


def watching(args: argparse.Namespace, passes: Sequence[ModulePass]) -> Watching | None:
    """The watchers that the options ask for; None where they ask for none."""
    for name in args.watching:
        if getattr(args, name) not in (None, [], False):
            made: type[Watching] = resolve_beside(
                "lightnet_report.watching:Watching", f"option '--{name.replace('_', '-')}'"
            )
            return made(args, passes)
    return None


def timing() -> Timing:
    """A watcher that times passes, for ``lightnet --debug``."""
    return resolve_beside("lightnet_report.timing:Timing", "option '--debug'")()


def report_file(file: str, title: str) -> ReportFile:
    """The report that ``lightnet --report FILE`` writes on a network."""
    return resolve_beside("lightnet_report.watching:ReportFile", "option '--report'")(file, title)


def text_form(args: argparse.Namespace) -> TextForm:
    """The form in which options say that IR is printed."""
    from lightnet.ir.printer import COLUMNS, TextForm

    columns = COLUMNS if args.columns is None else args.columns
    if columns < 0:
        raise LightNetError(f"--columns should not be negative, and is {columns}")
    return TextForm(args.print_op_generic, args.print_locations, columns)
