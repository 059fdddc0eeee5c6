"""`lightnet compare A [B]`: two compilations side by side: how much longer a call of one takes than of the other, with
a confidence interval, and where; how much memory and code each has, and how far apart their outputs are.

A and B are networks of any form, planned modules (.mlir) or executables (.lnx). With one file, or none that differs,
`--a` and `--b` say how the sides are compiled: `--b "--pass=@cpu-bands"`, `--b "--layout=plain"`; options outside of
these are for both. Calls are timed in turn, until the interval decides or the time is over; below the margin there is
"no difference". `--verdict` judges one pass on many networks (docs/compare.md).
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import Any

from lightnet.cli import common
from lightnet.cli.network import add_loading, add_pipeline, add_planning, add_precision, add_trust
from lightnet.cli.progress import stages
from lightnet.cli.targets import GIVEN, add_target
from lightnet.cli.warning import add_warnings
from lightnet.diagnostics import LightNetError, printable
from lightnet.ir.runtime import RUN
from lightnet_bench.intervals import MARGIN

#: Options whose values are lists, which a side adds to.
_LISTS = ("load", "disable", "shapes", "dims", "values", "include", "define", "warnings", "inputs")


def main(argv: list[str]) -> int:
    """The subcommand; returns the exit status."""
    args = _parser(argv).parse_args(joined(argv))
    _check(args)
    try:
        return _judge(args) if args.verdict else _compare(args)
    except LightNetError as error:
        if args.json:
            from lightnet_trust.verdicts import failed

            print(json.dumps(failed("judge" if args.verdict else "compare", error), indent=1))
        raise


def joined(argv: Sequence[str]) -> list[str]:
    """The words of a command line, in which what follows `--a` or `--b` is its value, though it begins as an option."""
    found: list[str] = []
    for word in argv:
        if found and found[-1] in ("--a", "--b"):
            found[-1] += f"={word}"
        else:
            found.append(word)
    return found


def _parser(argv: Sequence[str] | None = None) -> common.ToolParser:
    from lightnet_bench.comparison import LIMIT

    parser = common.ToolParser("lightnet compare", description="Compare two compilations: time, memory, code, outputs.",
                               allow_abbrev=False)  # fmt: skip
    option = parser.add_argument
    option("networks", metavar="NET", nargs="+",
           help="A, and B unless it is the same: networks (.onnx, -symbol.json, .net, .json, .mlir), planned or not, "
                "or executables (.lnx)")  # fmt: skip
    option("--a", metavar="OPTIONS", default="", help="options of A alone, as in --a '--pass=@cpu-bands --threads 2'")
    option("--b", metavar="OPTIONS", default="", help="options of B alone")
    option("--limit", metavar="SECONDS", type=float, default=LIMIT, help=f"measure no longer ({LIMIT:g})")
    option("--margin", metavar="SHARE", type=float, default=MARGIN,
           help=f"a difference below this share is none ({MARGIN:g})")  # fmt: skip
    option("--fail-above", metavar="RATIO", type=float,
           help="status 1 if B takes more than this times A's time for certain: 1.02")  # fmt: skip
    option("--fail-error", metavar="SHARE", type=float,
           help="status 1 if an output is off by more than this share of its largest value: 1e-4")  # fmt: skip
    option("--json", action="store_true", help="everything as JSON")
    option(
        "--verdict",
        action="store_true",
        help="judge the pass or the pipeline of --pass on each NET, beside the target's own: right? faster? smaller?",
    )
    option("--watch", action="store_true", help="with --verdict: again whenever a file of --load is saved")
    add_side(parser, argv)
    return parser


def add_side(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> None:
    """The options by which a side is read, compiled and fed."""
    parser.add_argument("-i", "--input", metavar="NAME=VALUE", action="append", default=[], dest="inputs",
                        help="feed an input, as `lightnet run` does (default: random)")  # fmt: skip
    parser.add_argument("--threads", metavar="N", type=int, default=1,
                        help="threads of a call (default: 1, whose processor time others disturb least)")  # fmt: skip
    add_target(parser, RUN, argv, "cpu (default), cuda, or another of `ln-opt --list-targets`")
    add_trust(parser)
    add_precision(parser)
    add_pipeline(parser)
    add_planning(parser)
    add_loading(parser)
    add_warnings(parser)
    parser.set_defaults(compare=None)  # of `lightnet run`, which networks are read for


def _check(args: argparse.Namespace) -> None:
    """Raise LightNetError for values that mean nothing."""
    if args.verdict and not args.pipeline:
        raise LightNetError("--verdict judges the pass of --pass, and there is none")
    if args.verdict and (args.a or args.b):
        raise LightNetError("--verdict compares with the target's own pipeline: leave out --a and --b")
    if args.watch and not (args.verdict and args.load):
        raise LightNetError("--watch goes with --verdict, and with --load of the file to watch")
    if args.verdict:
        return
    if len(args.networks) > 2:
        raise LightNetError(f"compare takes one network or two, and gets {len(args.networks)}")
    if not 0 < args.limit <= 3600:
        raise LightNetError(f"--limit should be between 0 and 3600 s, and is {args.limit}")
    if not 0 < args.margin < 1:
        raise LightNetError(f"--margin should be a share between 0 and 1, as 0.01, and is {args.margin}")
    for name in ("fail_above", "fail_error"):
        if (value := getattr(args, name)) is not None and not value >= 0:
            raise LightNetError(f"--{name.replace('_', '-')} should not be negative, and is {value}")
    if len(args.networks) == 1 and args.a.split() == args.b.split() and not args.json:
        print("note: both sides are the same: what differs is noise", file=sys.stderr)


def side_arguments(args: argparse.Namespace, words: str, option: str) -> argparse.Namespace:
    """The arguments of a side: those of the command line, and `words` of its own. Raises LightNetError for words that
    are no options."""
    try:
        own = shlex.split(words)
    except ValueError as e:
        raise LightNetError(f"{option}: {str(e).lower()} in '{words:.80}'") from None
    parser = common.ToolParser(f"lightnet compare {option}", allow_abbrev=False, add_help=False)
    add_side(parser, own)
    found = copy(args)
    for name in (*_LISTS, GIVEN):  # `append` writes into what is there
        value = getattr(found, name, None)
        setattr(found, name, dict(value) if isinstance(value, dict) else list(value or ()))
    return parser.parse_args(own, found)


def _compare(args: argparse.Namespace) -> int:
    from lightnet_bench.comparison import compare
    from lightnet_bench.sides import made

    args.inputs = args.inputs if any(w in ("random", "zeros") for w in args.inputs) else [*args.inputs, "random"]
    with stages("comparing") as stage:
        stage("compiling A")
        first = made("A", side_arguments(args, args.a, "--a"), args.networks[0], args.a)
        stage("compiling B")
        second = made("B", side_arguments(args, args.b, "--b"), args.networks[-1], args.b, first.feeds)
        found = compare((first, second), args.limit, args.margin, args.fail_above, progress=stage)
    too_slow = args.fail_above is not None and found.ratio.above(args.fail_above)
    too_far = args.fail_error is not None and not found.error <= args.fail_error
    if args.json:
        print(json.dumps(found.values(not (too_slow or too_far)), indent=1))
    else:
        _show(found)
        if too_slow:
            print(f"FAILS: B takes more than {args.fail_above:g} times A's time")
        if too_far:
            print(f"FAILS: an output is off by more than {args.fail_error:g} of its largest value")
    return int(too_slow or too_far)


def _judge(args: argparse.Namespace) -> int:
    """The verdict on a pass for each network; 1 where one is wrong, or slower than `--fail-above`."""
    from lightnet_bench.verdict import Judge

    args.inputs = args.inputs if any(w in ("random", "zeros") for w in args.inputs) else [*args.inputs, "random"]
    judge, files = Judge(args), [str(file) for file in args.load]
    while True:
        seen, failed = times_of(files), _judge_once(args, judge)
        if not args.watch:
            return int(failed)
        try:
            while times_of(files) == seen:
                time.sleep(0.05)
        except KeyboardInterrupt:
            return int(failed)


def _judge_once(args: argparse.Namespace, judge: Any) -> bool:
    from lightnet.plugins import loaded
    from lightnet_bench.verdict import Verdict, page
    from lightnet_trust.verdicts import failed, verdict

    found: list[Verdict] = []
    with stages("judging") as stage:
        try:
            with loaded(args.load):
                for path in args.networks:
                    stage(path)
                    found.append(judge.judge(path))
        except LightNetError as error:
            if not args.watch:
                raise
            if args.json:
                print(json.dumps(failed("judge", error), indent=1), flush=True)
            print(error.render(), file=sys.stderr)  # a file that was saved half done: the next one may be right
            return True
    if not args.json:
        print(page(found), flush=True)
    slow = [v for v in found if args.fail_above is not None and v.ratio is not None and v.ratio.above(args.fail_above)]
    right = all(of_network.is_right for of_network in found)
    if args.json:
        word = "wrong" if not right else "slower" if slow else "right"
        told = verdict("judge", word, word == "right", networks=[of_network.json() for of_network in found])
        print(json.dumps(told, indent=1), flush=True)
    return bool(slow) or not right


def times_of(files: Sequence[str]) -> list[float]:
    """The times at which files, and those of folders among them, were changed last."""
    paths = [p for f in files for p in ([Path(f), *sorted(Path(f).rglob("*.*"))] if Path(f).is_dir() else [Path(f)])]
    return [p.stat().st_mtime_ns if p.exists() else 0 for p in paths if "__pycache__" not in p.parts]


def _show(found: Any) -> None:
    """Print a comparison: with the package rich on a terminal, else as plain text."""
    console = _terminal()
    if console is None:
        print(found.text())
        return
    from rich.table import Table
    from rich.text import Text

    from lightnet_bench.comparison import HEADER

    head = Table(box=None, show_header=False, pad_edge=False)
    for name, text in found.head():
        head.add_row(Text(printable(name), "bold"), Text(printable(text)))
    console.print(head)
    if rows := found.rows():
        shown = Table(title="kernels that differ, by how much their time changed", title_justify="left")
        for k, title in enumerate(HEADER):
            shown.add_column(title, justify="right" if 2 <= k <= 5 else "left", overflow="fold")
        for row in rows:
            shown.add_row(*(Text(printable(cell)) for cell in row))
        console.print(shown)
    for line in found.foot():
        console.print(Text(printable(line)))


def _terminal() -> Any:
    """A console of rich for stdout; None where that is no terminal, or rich is not installed."""
    try:
        from rich.console import Console
    except ImportError:
        return None
    console = Console()
    return console if console.is_terminal else None
