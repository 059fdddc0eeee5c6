"""The `ln-reduce` tool: shrinks a module while a test of yours still finds in it what it found in the whole.

    ln-reduce net.onnx --pass=bind,simplify --test-check expand,combine -o small.mlir
    ln-reduce net.onnx --pass=bind,simplify --test './judge.sh {}' --timeout 10 -o small.mlir
    ln-reduce net.onnx --isolate @cpu:plan -o fault.mlir

The test is a command that exits with status 0 where a candidate is interesting, or one of those that are built in. The
reduced module goes to stdout or to `-o FILE`, progress to stderr. xDSL is imported when there is something to read.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from lightnet.cli.checking import kinds_of_data
from lightnet.cli.common import ToolParser, run_tool, write_atomic
from lightnet.cli.network import add_load, add_shapes
from lightnet.cli.progress import terminal
from lightnet.diagnostics import LightNetError
from lightnet_trust.judges import TIMEOUT, CommandJudge, Judge, PipelineJudge
from lightnet_trust.verdicts import failed, isolate_verdict, reduce_verdict

if TYPE_CHECKING:
    from lightnet.model import Model
    from lightnet_trust.check import CheckOptions
    from lightnet_trust.isolate import Isolation
    from lightnet_trust.reduce import Notify, Reduction

#: Exit status of a run that an interrupt ended, as a shell has it.
INTERRUPTED = 130


def main(argv: list[str] | None = None) -> int:
    """The entry point; the status is 0 where nothing smaller is left to try or the tests are spent, 1 for every error,
    and 130 after an interrupt (with the best module so far)."""
    return run_tool(_main, argv)


def _parser() -> ToolParser:
    p = ToolParser("ln-reduce", description="Shrink a module of any level, or a network, while a test still holds.",
               allow_abbrev=False)  # fmt: skip
    option = p.add_argument
    option("file", help=".mlir, .net, .json or .onnx file; - is stdin")
    option("-o", dest="output", default="-", metavar="FILE", help="write the reduced module to FILE")
    test = p.add_argument_group("tests (exactly one)").add_mutually_exclusive_group(required=True)
    test.add_argument("--test", metavar="COMMAND",
                      help="exits with status 0 where a candidate is interesting; the candidate's"
                      " path takes the place of {}, or is the last argument")  # fmt: skip
    test.add_argument("--test-check", metavar="PIPELINE",
                      help="--check finds that the same pass, by the same pattern, changes a result")  # fmt: skip
    test.add_argument("--test-crash", metavar="PIPELINE",
                      help="the passes fail with the same message (but for numbers), crash or hang")  # fmt: skip
    test.add_argument("--isolate", metavar="PIPELINE",
                      help="what --check finds, or the failure, stays; passes are left out, too, and what is written"
                      " replays it: ln-opt --run-reproducer FILE")  # fmt: skip
    data = p.add_argument_group("how --test-check and --isolate compare, as ln-opt does")
    data.add_argument(
        "--check-data",
        metavar="KIND,...",
        help="ordinary, awkward, nonfinite (default: ordinary,awkward; a small module on more)",
    )
    data.add_argument("--check-seed", type=int, default=0, metavar="N", help="the seed of the data (default: 0)")
    data.add_argument("--check-exact", action="store_true", help="compare in a prime field, too, as --check=exact does")
    limits = p.add_argument_group("limits")
    limits.add_argument("--max-tests", type=int, default=2000, metavar="N", help="stop after N tests (default: 2000)")
    limits.add_argument("--timeout", type=float, default=TIMEOUT, metavar="SECONDS",
                        help=f"for one test; one that takes longer is ended (default: {TIMEOUT:g})")  # fmt: skip
    reading = p.add_argument_group("reading")
    reading.add_argument("-p", "--pass", "--passes", dest="passes", action="append", default=[], metavar="PIPELINE",
                         help="run these passes first, and reduce what comes out")  # fmt: skip
    add_load(reading)
    reading.add_argument(
        "-I", dest="include", action="append", default=[], metavar="DIR", help="a folder for #include of IL"
    )
    reading.add_argument("--eval", default="arith", metavar="MODE", help="how ${eval} of IL is evaluated: arith, perl")
    reading.add_argument(
        "-f", "--weights", metavar="FILE", help="weights of an NNVM graph: its shapes follow from them"
    )
    reading.add_argument("-t", "--target", help="option `target` of the passes that have it (default: cpu)")
    add_shapes(reading)
    option("-q", "--quiet", action="store_true", help="no progress, no summary")
    option("--json", action="store_true", help="the verdict, with the module, as JSON on stdout; the module goes to -o")
    return p


def _main(argv: list[str]) -> int:
    args = _parser().parse_args(argv)
    if args.max_tests < 1 or not args.timeout > 0:
        raise LightNetError("--max-tests and --timeout should be above 0")
    try:
        found, text, summary, told = _reduced(args)
    except LightNetError as e:
        if args.json:
            print(json.dumps(failed("isolate" if args.isolate is not None else "reduce", e)))
        raise
    if args.json:
        print(json.dumps(told))
    if not (args.json and args.output == "-"):
        write_atomic(args.output, text)
    if not args.quiet:
        print(summary, file=sys.stderr)
    return INTERRUPTED if found.interrupted else 0


def _reduced(args: argparse.Namespace) -> tuple[Reduction, str, str, dict[str, Any]]:
    """The reduction that the arguments ask for, with the text to write, what to say, and the verdict."""
    judge = _judge(args) if args.isolate is None else None
    with ExitStack() as stack:
        if args.load:
            from lightnet.plugins import loaded

            stack.enter_context(loaded(args.load))
        net = _network(args)
        from lightnet_trust.reduce import reduce_module

        with _progress(args.quiet) as notify:
            if judge is None:
                isolated = _isolated(args, net, notify)
                return isolated.reduction, isolated.reproducer(), isolated.summary(), isolate_verdict(isolated)
            found = reduce_module(net.module, judge, max_tests=args.max_tests, notify=notify)
            return found, found.text, _summary(found), reduce_verdict(found)


def _isolated(args: argparse.Namespace, net: Model, notify: Notify) -> Isolation:
    from lightnet.ir.passes import parse_pipeline
    from lightnet_trust.isolate import isolate

    passes = parse_pipeline(args.isolate, {"target": args.target})
    return isolate(
        net.ctx, net.module, passes, check=_options(args), timeout=args.timeout, max_tests=args.max_tests,
        load=args.load, notify=notify,
    )  # fmt: skip


def _options(args: argparse.Namespace) -> CheckOptions:
    from lightnet_trust.check import CheckOptions

    return CheckOptions(kinds_of_data(args.check_data), args.check_seed, in_field=args.check_exact)


def _judge(args: argparse.Namespace) -> Judge:
    if args.test is None:
        defaults = {"target": args.target}
        if args.test_crash is not None:
            return PipelineJudge("crash", args.test_crash, defaults, args.timeout)
        return PipelineJudge("check", args.test_check, defaults, args.timeout, _options(args))
    try:
        words = shlex.split(args.test)
    except ValueError as e:
        raise LightNetError(f"--test: {str(e).lower()} in '{args.test:.80}'") from None
    if not words:
        raise LightNetError("--test takes a command")
    return CommandJudge(words, args.timeout)


def _network(args: argparse.Namespace) -> Model:
    """The network whose module is to be reduced, verified."""
    from lightnet import model
    from lightnet.cli.feeding import fed_values, shapes_of
    from lightnet.ir.context import sources_of
    from lightnet.ir.passes import parse_pipeline, run_pipeline
    from lightnet.ir.verify import verify_module

    net = model.load(args.file, args.weights, shapes_of(args.shapes), values=fed_values(args.values),
                     include_dirs=args.include,
                     eval_mode=args.eval)  # fmt: skip
    try:
        verify_module(net.module, net.ctx)
        if args.passes:
            run_pipeline(net.ctx, net.module, parse_pipeline(",".join(args.passes), {"target": args.target}))
    except LightNetError as e:
        raise sources_of(net.ctx).annotate(e) from e.__cause__
    return net


def _summary(found: Reduction) -> str:
    stopped = f"; stopped {found.stopped}" if found.stopped else ""
    return f"ln-reduce: {found.ops_before} ops -> {found.ops_after} in {found.tests} tests{stopped}"


@contextmanager
def _progress(quiet: bool) -> Iterator[Notify]:
    """Shows on a terminal what is tried: a line that changes."""
    console = None if quiet else terminal()
    if console is None:
        yield lambda step, tests, ops: None
        return
    from rich.live import Live

    # Without auto-refresh there is no thread, which judges that are forked meanwhile would not take along.
    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield lambda step, tests, ops: live.update(f"ln-reduce: {ops} ops left, {tests} tests: {step}", refresh=True)


if __name__ == "__main__":
    sys.exit(main())
