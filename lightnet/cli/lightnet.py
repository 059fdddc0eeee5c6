"""`lightnet [options] SOURCE`: compile a network and run it, with upstream's options.

Without -c or -r, the network is compiled and run; a file is written only where -o asks for it. Later capabilities are
subcommands, taken when the first word is one and no file has that name.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence

from lightnet import __version__
from lightnet.cli import common
from lightnet.diagnostics import LightNetError

#: Subcommands: name -> "module:function" taking argv. None yet; `lightnet inspect net` will be the first.
SUBCOMMANDS: dict[str, str] = {}


def main(argv: list[str] | None = None) -> int:
    """The entry point."""
    return common.run(_main, argv)


def _main(argv: list[str]) -> int:
    if argv and argv[0] in SUBCOMMANDS and not os.path.exists(argv[0]):
        from importlib import import_module

        module, _, function = SUBCOMMANDS[argv[0]].partition(":")
        return getattr(import_module(module), function)(argv[1:])
    args = _parser().parse_args(argv)
    if args.source is None:
        raise LightNetError("no input file")
    return _run(args)


def _parser() -> argparse.ArgumentParser:
    parser = common.Parser(prog="lightnet", description="Compile a network and run it.", add_help=False)
    option = parser.add_argument
    option("source", nargs="?", help="a network: IL (.net), JSON IR (.json) or MLIR (.mlir); - is standard input")
    option("-h", "--help", "-help", action="help", help="show this help and exit")
    option("-v", "--version", "-version", action="version", version=f"lightnet {__version__}")
    option("-o", "--outfile", "-outfile", metavar="FILE", help="write the compiled network as JSON IR; - is standard output")
    option("-t", "--target", "-target", default="cpu", help="the target: cpu (default), or none for the interpreter")
    option("-f", "--datafile", "-datafile", metavar="FILE", help="weights: .wts, .npz or .safetensors")
    option("-c", "--compile", "-compile", action="store_true", help="compile only")
    option("-r", "--run", "-run", action="store_true", help="run only: SOURCE is a compiled network")
    option("-d", "--debug", "-debug", action="store_true", help="show the passes' times, and Python's traceback of an error")
    option("-W", metavar="KIND", action="append", default=[], dest="warnings", help="warn, no-warn, inter, no-inter")
    option("-w", action="append_const", const="no-warn", dest="warnings", help="no warnings")
    option("--plan", choices=("default", "upstream"), default="default", help="memory planning; upstream: as the C implementation")
    option("--layout", choices=("plain",), default="plain", help="layouts of intermediate tensors")
    option("--eval", choices=("arith", "perl"), default="arith", help="what ${eval} may hold; perl runs code from the network")
    option("-I", metavar="DIR", action="append", default=[], dest="include", help="a folder for #include")
    option("--seed", type=int, default=0, help="of the contents declared random")
    option("--report", metavar="FILE", help="write the memory plan: .txt, .json, .svg or .html")
    option("--load", metavar="FILE.py", action="append", default=[], help="Python code with passes, patterns and targets")
    return parser


def _run(args: argparse.Namespace) -> int:
    from lightnet.ir.plugins import loaded

    with loaded(args.load):
        return _compile_and_run(args)


def _compile_and_run(args: argparse.Namespace) -> int:
    from lightnet import compiler, model
    from lightnet.frontends import exporter, json_ir
    from lightnet.ir.instrumentation import Timing
    from lightnet.ir.registry import TARGETS

    TARGETS.get(args.target)
    timing = [Timing()] if args.debug else []
    network = model.load(args.source, weights=args.datafile, seed=args.seed, include_dirs=args.include, eval_mode=args.eval)
    only_run = args.run and not args.compile
    executable = compiler.compile(network, args.target, plan=args.plan, layout=args.layout, compiled=only_run,
                                  instrumentation=timing)  # fmt: skip
    if args.outfile and args.outfile != "!" and not only_run:
        common.write_atomic(args.outfile, json_ir.write(exporter.from_module(executable.planned)))
    if args.report:
        common.write_atomic(args.report, _report(executable, args.report))
    for watcher in timing:
        print(watcher.report(), file=sys.stderr)
    if args.compile and not args.run:
        return 0
    executable.prepare()
    _warn(args, executable.warnings)
    start = time.perf_counter()
    executable()
    _info(f"run time: {time.perf_counter() - start:.6f}s")
    return 0


def _report(executable, path: str) -> str:
    report = executable.plan
    kinds: dict[str, Callable[[], str]] = {".json": report.json, ".svg": report.svg, ".html": report.html}
    return kinds.get(os.path.splitext(path)[1], report.text)()


def _warn(args: argparse.Namespace, messages: Sequence[str]) -> None:
    if "no-warn" in args.warnings:
        return
    for message in messages:
        print(f"{_coloured('warning: ', '35', sys.stderr)}{message}", file=sys.stderr)


def _info(message: str) -> None:
    print(f"{_coloured('info: ', '1', sys.stdout)}{message}")


def _coloured(text: str, code: str, stream) -> str:
    return f"\033[{code}m{text}\033[0m" if stream.isatty() and "NO_COLOR" not in os.environ else text


if __name__ == "__main__":
    sys.exit(main())
