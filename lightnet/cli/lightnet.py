"""`lightnet [options] SOURCE`: compile a network and run it, with upstream's options; `lightnet run`: on inputs;
`lightnet inspect`: what it is.

Without -c or -r, the network is compiled and run; a file is written only where -o asks for it. Later capabilities are
subcommands (`lightnet run`, `lightnet compile`, `lightnet inspect`, `lightnet cache`), taken when the first word is one
and no file has that name.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections.abc import Sequence

from lightnet import __version__
from lightnet.cli import common
from lightnet.cli.getopt import canonical
from lightnet.cli.network import Network, add_loading, add_planning, compile_options
from lightnet.cli.targets import add_target
from lightnet.cli.warning import Warnings, add_warnings, coloured
from lightnet.diagnostics import LightNetError
from lightnet.ir.resolving import resolve_beside
from lightnet.ir.runtime import RUN

#: Subcommands: name -> "module:function" taking argv; it may stand in a package beside this one (`ir/registry.py`).
SUBCOMMANDS = {
    "run": "lightnet.cli.run:main",
    "compile": "lightnet.cli.compile:main",
    "compare": "lightnet_bench.command:main",
    "tune": "lightnet_bench.tune_command:main",
    "quantize": "lightnet_quantize.command:main",
    "serve": "lightnet_serving.command:main",
    "cache": "lightnet.cli.cache:main",
    "inspect": "lightnet.cli.inspect:main",
    "describe": "lightnet_descriptions.command:main",
    "devices": "lightnet.cli.devices:main",
}


def main(argv: list[str] | None = None) -> int:
    """The entry point."""
    return common.run_tool(_main, argv)


def _main(argv: list[str]) -> int:
    if argv and argv[0] in SUBCOMMANDS and not os.path.exists(argv[0]):
        return resolve_beside(SUBCOMMANDS[argv[0]], f"command '{argv[0]}'")(argv[1:])
    parser = _parser(argv)
    args = parser.parse_args(canonical(argv, *_names(parser)))
    if args.source is None:
        raise LightNetError("no input file")
    warnings = Warnings(args.warnings)
    try:
        return _run(args, warnings)
    except LightNetError:
        if args.debug:
            traceback.print_exc()
        raise


def _parser(argv: Sequence[str] | None = None) -> argparse.ArgumentParser:
    parser = common.ToolParser(
        prog="lightnet",
        description="Compile a network and run it (`lightnet run --help`: on inputs that you give; `lightnet inspect "
        "--help`: look at it).",
        add_help=False,
        epilog="A long option may be cut short, and stand behind one dash; options may stand behind SOURCE.",
    )
    option = parser.add_argument
    option(
        "source",
        nargs="?",
        metavar="SOURCE",
        help="a network: IL (.net), JSON IR (.json), MLIR (.mlir), ONNX (.onnx) or NNVM (-symbol.json); - is stdin",
    )
    option("-h", "--help", action="help", help="show this help and exit")
    option("-v", "--version", action="version", version=f"lightnet {__version__}")
    option("-o", "--outfile", metavar="FILE", help="write the compiled network as JSON IR; - is stdout, ! is nowhere")
    add_target(
        parser,
        RUN,
        argv,
        "the target: cpu (default), cuda, none for the interpreter, or another of `ln-opt --list-targets`",
    )
    option("-c", "--compile", action="store_true", help="compile only")
    option("-r", "--run", action="store_true", help="run only: SOURCE is a compiled network")
    option("-d", "--debug", action="store_true", help="show the passes' times, and Python's traceback of an error")
    add_warnings(parser)
    add_planning(parser)
    add_loading(parser, weights="--datafile")
    option("--onnx", metavar="FILE", help="write the network as an ONNX model (needs the package onnx); - is stdout")
    option("--nnvm", metavar="FILE", help="write the network as an NNVM graph in JSON, without weights; - is stdout")
    option(
        "--save-weights",
        metavar="FILE.npz",
        help="write the weights: those of an ONNX model, for -f beside its JSON form",
    )
    option(
        "--report",
        metavar="FILE",
        help="write the memory plan: .txt, .json or .svg; with graph, passes and kernel times: .html; the graph: .dot",
    )
    return parser


def _names(parser: argparse.ArgumentParser) -> tuple[dict[str, bool], dict[str, str]]:
    """The long options, whether they take a value, and what the short ones stand for."""
    long: dict[str, bool] = {}
    short: dict[str, str] = {}
    for action in parser._actions:
        for name in action.option_strings:
            if name.startswith("--"):
                long[name[2:]] = action.nargs != 0
                short.update({s[1]: name[2:] for s in action.option_strings if len(s) == 2})
    return long, short


def _run(args: argparse.Namespace, warnings: Warnings) -> int:
    from lightnet.plugins import loaded

    with loaded(args.load), warnings.of_descriptions():
        return _compile_and_run(args, warnings)


def _compile_and_run(args: argparse.Namespace, warnings: Warnings) -> int:
    from lightnet import compiler
    from lightnet.cli import watching
    from lightnet.frontends import json_ir
    from lightnet.frontends.netlist import netlist_of
    from lightnet.ir.registry import TARGETS

    TARGETS.get(args.target)
    timing = [watching.timing()] if args.debug else []
    network = Network(args, args.source).model()
    warnings.show(network.warnings)
    only_run = args.run and not args.compile
    report = watching.report_file(args.report, os.path.basename(args.source)) if args.report else None
    exports = [
        (resolve_beside(f"lightnet_export.{form}.model:export", f"option '--{form}'"), file)
        for form, file in (("onnx", args.onnx), ("nnvm", args.nnvm))
        if file
    ]
    watchers = [*timing, *(report.watchers if report is not None else ())]
    executable = compiler.compile(
        network,
        args.target,
        plan=args.plan,
        layout=args.layout,
        compiled=only_run,
        instrumentation=watchers,
        budget=args.compile_budget,
        **compile_options(args),
    )
    if args.datafile and args.compile and not args.run:
        warnings.show(executable.weight_warnings)
    if args.outfile and args.outfile != "!" and not only_run:
        common.write_atomic(args.outfile, json_ir.write(netlist_of(executable.planned)))
    for export, file in exports:
        export(network, file)
    if args.save_weights:
        from lightnet.runtime.weights import save_npz

        if network.weights is None:
            raise LightNetError("there are no weights to write: the network brings none, and -f gives none")
        save_npz(args.save_weights, network.weights)
    if report is not None:
        report.write(executable)
    if not args.compile or args.run:
        warnings.show(executable.warnings)
        executable.prepare()
        start = time.perf_counter()
        executable()
        _info(f"run time: {time.perf_counter() - start:.6f}s")
        if report is not None:
            report.write_times(executable)
    for watcher in timing:
        print(watcher.report(), file=sys.stderr)
    return 0


def _info(message: str) -> None:
    print(f"{coloured('info: ', '1', sys.stdout)}{message}")


if __name__ == "__main__":
    sys.exit(main())
