"""`lightnet compile NET -o NET.lnx`: compile a network to files that run elsewhere (docs/deploy.md).

``--emit`` says which: `lnx` (default), which `lightnet run` and `lightnet.load_executable` take; or what a C program
needs: `obj`, `so`, `header`, `asm`, `llvm`, `mlir`; and `ptx` of ``--target=cuda``. Imports the compiler only when a
network is read.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightnet.cli import common, targets
from lightnet.cli.network import (
    Network,
    add_loading,
    add_pipeline,
    add_planning,
    add_precision,
    compile_options,
    names_of,
)
from lightnet.cli.progress import stages
from lightnet.cli.warning import Warnings, add_warnings
from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.ir.registry import runtime_of
from lightnet.ir.runtime import COMPILE
from lightnet.runtime.threads import ANY, Threads
from lightnet.tables import size

if TYPE_CHECKING:
    from lightnet.executable import Executable


def main(argv: list[str]) -> int:
    """The subcommand; returns the exit status."""
    args = _parser(argv).parse_args(argv)
    from lightnet.plugins import loaded

    with loaded(args.load):
        return _compile(args, _files(args, _kinds(args)))


def _parser(argv: Sequence[str] | None = None) -> common.ToolParser:
    from lightnet.deploy import KINDS

    parser = common.ToolParser(
        "lightnet compile", description="Compile a network to files that run elsewhere.", allow_abbrev=False
    )
    option = parser.add_argument
    option("network", metavar="NET", help="a network: .onnx, -symbol.json, .net, .json or .mlir; - is stdin")
    option(
        "-o",
        "--output",
        metavar="FILE",
        help="the file to write (default: NET.lnx); of several kinds: what their names begin with",
    )
    option(
        "--emit",
        metavar="KIND,...",
        default="lnx",
        help=f"what to write, of what the target has: {', '.join(KINDS)} (default: lnx)",
    )
    option("--name", metavar="NAME", help="what the C symbols begin with (default: from the name of the output)")
    targets.add_target(
        parser,
        COMPILE,
        argv,
        "cpu (default), cuda, of which there are lnx, ptx, llvm and mlir, or a target of your own",
    )
    option(
        "--variants",
        metavar="NAME,...",
        help="code for several processors in one .lnx; the best that runs is taken when it is loaded",
    )
    option(
        "--threads",
        metavar="N|any",
        type=_threads,
        help="how many threads a call may use: a number, or any (default: LIGHTNET_THREADS, else of a .lnx any, of "
        "files for C 1)",
    )
    option(
        "--weight-memory",
        metavar="BYTES",
        type=int,
        help="bytes that transformed weights may take beyond the plain ones (default: 0.3 times those of all weights)",
    )
    option(
        "--sign",
        metavar="KEY.pem",
        help="sign the .lnx with a private Ed25519 key, for --trust (needs the package cryptography)",
    )
    option(
        "--specialize",
        metavar="NAME=N,...",
        action="append",
        default=[],
        help="values of a dim that calls decide, for which kernels get faster code beside that for all: length=128,384",
    )
    option(
        "--caches",
        metavar="INPUT=OUTPUT,...",
        default="",
        help="inputs that outputs are with more behind them, or all: they grow where they are, call by call",
    )
    option("--exact", action="store_true", help="only algorithms that sum what an op's definition does (no Winograd)")
    option("--keep", metavar="TENSOR,...", default="", help="further tensors to return, by name")
    add_planning(parser)
    add_precision(parser)
    add_pipeline(parser)
    add_loading(parser)
    add_warnings(parser)
    return parser


def _kinds(args: argparse.Namespace) -> list[str]:
    from lightnet.deploy import check_kinds, kinds_of

    runtime = runtime_of(args.target)
    kinds = list(names_of(args.emit))
    if not kinds:
        raise LightNetError(f"--emit names nothing; there are: {', '.join(kinds_of(runtime))}")
    check_kinds(kinds, args.target, runtime)
    if args.sign is not None and "lnx" not in kinds:
        raise LightNetError("--sign is for --emit=lnx: only executables of ours are signed")
    if args.variants is not None and kinds != ["lnx"]:
        raise LightNetError("--variants is for --emit=lnx: one file with code for several processors")
    if args.variants is not None:
        runtime.variants(args.variants)
        if given := targets.given(args):
            raise LightNetError(
                f"--variants and --{next(iter(given))} both say what code is made for: give one of them"
            )
    return kinds


def _files(args: argparse.Namespace, kinds: list[str]) -> dict[str, str]:
    """The path of each kind."""
    from lightnet.deploy import kinds_of

    suffixes = kinds_of(runtime_of(args.target))
    if args.output == "":
        raise LightNetError("-o is empty: it takes a name")
    if args.output is None and args.network == "-":
        raise LightNetError("a network from stdin needs -o FILE")
    output = args.output or Path(args.network).stem
    if len(kinds) == 1:
        return {kinds[0]: args.output or f"{output}{suffixes[kinds[0]]}"}
    if output == "-":
        raise LightNetError("-o -, standard output, is for one kind of file")
    prefix = str(Path(output).with_suffix("")) if Path(output).suffix in suffixes.values() else output
    return {kind: f"{prefix}{suffixes[kind]}" for kind in kinds}


def _compile(args: argparse.Namespace, files: dict[str, str]) -> int:
    warnings = Warnings(args.warnings)
    with warnings.of_descriptions():
        return _compiled(args, files, warnings)


def _compiled(args: argparse.Namespace, files: dict[str, str], warnings: Warnings) -> int:
    from lightnet import deploy
    from lightnet.backends.llvm.cheader import c_identifier
    from lightnet.runtime.artifact import is_saved

    if args.network != "-" and is_saved(args.network):
        raise LightNetError("compile needs the network, and this is a compiled executable", SourceLoc(args.network))
    variants = runtime_of(args.target).variants(args.variants) if args.variants is not None else []
    if args.sign is not None:
        from lightnet.runtime.signing import Signer

        Signer(args.sign)  # a key that cannot be used is known before minutes of work
    begin = time.perf_counter()
    with stages(f"compile {args.network}") as stage:
        stage("reading")
        network = Network(args, args.network)
        network.named()  # one file for all shapes, where some are open; an error that says how to close them elsewhere
        warnings.show(network.warnings)
        made = _made(args, network, variants, stage)
        warnings.show(made[0].warnings if args.datafile or made[0].missing else ())
        stem = next((Path(path).stem for path in files.values() if path != "-"), "network")
        stage("writing")
        written = deploy.emit(made[0], files, c_identifier(args.name or stem), made[1:], args.sign)
    if "-" not in written:
        print(_summary(made, written, time.perf_counter() - begin))
    return 0


def _threads(text: str) -> int | str:
    """The number of threads that a text gives, or its word. Raises ValueError where it is neither."""
    return ANY if text == ANY else int(text)


def _summary(made: list[Executable], written: list[str], seconds: float) -> str:
    """One line: what was written, how large it is, what it is for, and how long that took."""
    programs = [executable.program for executable in made]
    sizes = ", ".join(f"{path} ({size(Path(path).stat().st_size)})" for path in written)
    cpus = ", ".join(program.cpu for program in programs)
    return f"{sizes}: for {cpus}, {programs[0].bound}, {seconds:.1f} s"


def _made(
    args: argparse.Namespace, network: Network, variants: list[dict[str, Any]], stage: Callable[[str], None]
) -> list[Executable]:
    """The executables, the best first, with their machine code."""
    threads = args.threads
    if threads is None and not Threads.asked().is_said and args.emit != "lnx":
        threads = 1  # what C is linked with has a pool of threads only where that is asked for
    options = {
        "plan": args.plan,
        "outputs": names_of(args.keep),
        "threads": threads,
        "exact": args.exact,
        "weight_memory": args.weight_memory,
        "specialize": ";".join(args.specialize),
        "caches": args.caches,
    }
    if args.layout is not None:
        options["layout"] = args.layout
    options |= compile_options(args)
    made = []
    for variant in variants or [{}]:
        of = f" for {' '.join(map(str, variant.values()))}" if variant else ""
        stage(f"passes{of}")
        made.append(network.compile(args.target, **{**options, **variant}))
        stage(f"machine code{of}")
        if made[-1].is_native:
            _ = made[-1].program
    return made
