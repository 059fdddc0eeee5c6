"""`lightnet run NET -i name=VALUE ... [-o OUT.npz]`: compile a network, run it once on inputs, look at the outputs.

NET is in any form that the front ends take, or an executable that `lightnet compile` wrote. An input is `@FILE.npy`,
`@FILE.npz:key`, numbers (`1.5,2,3`), `random` or `zeros`; `-i random` alone is for all inputs that no other `-i` names.
The outputs go to a table and, with `-o`, to a file. `--compare` checks them against ONNX Runtime, against our own
reference interpreter, or against arrays in a file; the exit status is then 1 where an output differs. To look inside:
`--layers` compares every tensor and says where the error begins, `--check-nan` where NaN does, `--dump-tensors` writes
the tensors, `--profile` times the kernels (docs/debug-a-network.md).
"""

from __future__ import annotations

import argparse
import io
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from lightnet.cli import common
from lightnet.cli.network import (
    Network,
    add_loading,
    add_pipeline,
    add_precision,
    add_trust,
    run_options,
    seed_number,
)
from lightnet.cli.targets import add_target
from lightnet.cli.warning import Warnings, add_warnings
from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.ir.resolving import resolve_beside
from lightnet.ir.runtime import RUN
from lightnet.tables import shortened, table

#: Outputs that are listed above a profile.
SHOWN_BESIDE_PROFILE = 8
#: Options that the package `lightnet_debug` carries out.
DEBUGGING = ("compare", "check_nan", "dump_tensors", "profile")


def main(argv: list[str]) -> int:
    """The subcommand; returns the exit status."""
    args = _parser(argv).parse_args(["--profile=-" if word == "--profile" else word for word in argv])
    from lightnet.plugins import loaded

    with loaded(args.load):
        return _Run(args).run()


def _parser(argv: Sequence[str] | None = None) -> common.ToolParser:
    parser = common.ToolParser(
        "lightnet run", description="Compile a network and run it on inputs.", allow_abbrev=False
    )
    option = parser.add_argument
    option(
        "network",
        metavar="NET",
        help="a network: .onnx, -symbol.json, .net, .json or .mlir; - is stdin; or an executable of `lightnet compile`",
    )
    option("-i", "--input", metavar="NAME=VALUE", action="append", default=[], dest="inputs",
           help="feed an input: @FILE.npy, @FILE.npz:key, numbers, random, zeros; text: words, a JSON list, "
                "@FILE.json; random alone: all the others")  # fmt: skip
    option("-o", "--output", metavar="FILE", help="write the outputs: .npz, .npy where there is one, or .json")
    option("--compare", metavar="WITH", help="onnxruntime, interpreter, or FILE.npz or .npy with what is expected")
    option(
        "--rtol",
        metavar="R",
        type=float,
        help="tolerance relative to each expected value (1e-4; with --precision tf32, f16 5e-3, bf16, auto 4e-2)",
    )
    option(
        "--atol",
        metavar="A",
        type=float,
        help="absolute tolerance (such a share of the output's largest expected value)",
    )
    option(
        "--layers",
        action="store_true",
        help="with --compare: every tensor in the order of the program, not only the outputs",
    )
    option("--check-nan", action="store_true", help="name the tensors at which NaN or infinity first comes up")
    option(
        "--dump-tensors",
        metavar="PATH",
        help="write the intermediate tensors: to FILE.npz, or to a folder as .npy files",
    )
    option(
        "--tensors",
        metavar="NAMES",
        help="which tensors to look at: a,b,c or all; those inside kernels are kept as outputs then",
    )
    option(
        "--profile",
        metavar="[=FILE.json]",
        help="time each kernel; with a file, as a trace that Chrome or Perfetto shows",
    )
    option("--rounds", metavar="N", type=int, default=5, help="rounds of --profile, whose median counts (5)")
    option("--repeat", metavar="N", type=int, default=0, help="then run N times more and print the latency")
    option("--threads", metavar="N", type=int,
           help="how many threads the call uses (LIGHTNET_THREADS, else as many as there are processors, and it was "
                "compiled for)")  # fmt: skip
    add_target(
        parser, RUN, argv, "cpu (default), cuda, none for the interpreter, or another of `ln-opt --list-targets`"
    )
    add_trust(parser)
    add_precision(parser)
    add_pipeline(parser)
    add_loading(parser)
    add_warnings(parser)
    return parser


class _Run:
    """One run of the subcommand."""

    def __init__(self, args: argparse.Namespace):
        self.args = args
        self.debugging: Any = None
        self.shown = Warnings(args.warnings)
        for name in ("rtol", "atol"):
            if (value := getattr(args, name)) is not None and not value >= 0:
                raise LightNetError(f"--{name} should not be negative, and is {value}")
        for name in ("output", "compare", "dump_tensors", "profile"):
            if getattr(args, name) == "":
                raise LightNetError(f"--{name.replace('_', '-')} is empty: it takes a name")
        asked = next((name for name in DEBUGGING if getattr(args, name)), None)
        if asked is not None:
            option = f"option '--{asked.replace('_', '-')}'"
            self.debugging = resolve_beside("lightnet_debug.command:Debugging", option)(args)
        if args.rounds < 1:
            raise LightNetError(f"--rounds should be positive, and is {args.rounds}")
        if args.layers and not args.compare:
            raise LightNetError("--layers goes with --compare, which says what to compare with")
        if args.tensors is not None and not (args.layers or args.check_nan or args.dump_tensors):
            raise LightNetError("--tensors goes with --dump-tensors, --layers or --check-nan")
        if args.tensors is not None and not args.tensors.strip(","):
            raise LightNetError("--tensors names no tensor")
        if args.repeat < 0:
            raise LightNetError(f"--repeat should not be negative, and is {args.repeat}")
        if args.output and not args.output.lower().endswith((".npz", ".npy", ".json")):
            raise LightNetError(f"cannot write '{args.output}': outputs are written as .npz, .npy or .json")

    def run(self) -> int:
        with self.shown.of_descriptions():
            return self._run()

    def _run(self) -> int:
        network = named_network(self.args, self.args.network)
        self.shown.show(network.warnings)
        threads = self.args.threads
        executable = network.compile(self.args.target, threads=threads, **run_options(self.args))
        feeds = fed_inputs(self.args, network, executable)
        self.shown.show(self.warnings(executable, feeds))
        outputs = executable(feeds, threads=threads)
        self.show_outputs(outputs)
        if self.args.output:
            from lightnet.cli.writing import write_arrays

            write_arrays(self.args.output, outputs)
        if self.args.repeat:
            print(latency(lambda: executable(feeds, stream=io.StringIO(), threads=threads), self.args.repeat))
        return 0 if self.debugging is None else self.debugging.run(network, executable, feeds, outputs)

    def show_outputs(self, outputs: Mapping[str, Any]) -> None:
        """The table of outputs; with `--profile`, whose table is what was asked for, the first of them."""
        shown = list(outputs.items())[: SHOWN_BESIDE_PROFILE if self.args.profile else None]
        print(table(("output", "dtype", "shape", "min", "mean", "max", "NaN"), map(summary, shown)))
        if more := len(outputs) - len(shown):
            print(f"and {more} more outputs")

    def warnings(self, executable: Any, feeds: Mapping[str, Any]) -> Sequence[str]:
        """The oddities of the weights; without a weight file it is only what nobody fed either."""
        missing = set(getattr(executable, "missing", ())) - set(feeds)
        return executable.warnings if missing or self.args.datafile else ()


def fed_inputs(args: argparse.Namespace, network: Network, executable: Any) -> dict[str, Any]:
    """The arrays of the `-i` options, for an executable of a network."""
    from lightnet.cli import feeding
    from lightnet.runtime.dtypes import BY_NP
    from lightnet.runtime.hosted import map_types
    from lightnet.runtime.program import unknown

    maps, types = map_types(executable), {**executable.params, **executable.inputs}
    texts = feeding.assignments((w for w in args.inputs if w not in feeding.MADE), "-i")
    for word in args.inputs:
        if word in feeding.MADE:
            texts.update({name: word for name in executable.inputs if name not in texts})
    feeds: dict[str, Any] = dict(network.values) if network.opened else {}  # what is open is given anew with each call
    if lost := [name for name in texts if name not in types]:
        if hasattr(executable, "checked"):
            executable.checked(lost[0], None)  # says why not: it is a constant, or computed
        raise unknown("input or param", lost[0], types)
    for name in sorted(texts, key=lambda name: texts[name] in feeding.MADE):  # whose dims may follow from others
        (dims, dtype), text = types[name], texts[name]
        dims = network.shapes.get(name, dims)
        if text in feeding.MADE:
            dims = feeding.called_dims(name, dims, types, feeds)
        if name in maps:
            feeds[name] = feeding.fed_map(name, text, maps[name])
        elif dtype.hasobject:
            feeds[name] = feeding.fed_text(name, text, dims)
        else:
            feeds[name] = feeding.fed(name, text, BY_NP[dtype], dims, seed_number(args.seed))
    return feeds


def named_network(args: argparse.Namespace, path: str) -> Network:
    """The network at a path, read as the arguments say, or the saved executable that is there."""
    from lightnet.runtime.artifact import is_saved

    if path == "-" or not is_saved(path):
        if args.trust:
            raise LightNetError("--trust is for executables, and this is a network", SourceLoc(path))
        return Network(args, path)
    from lightnet.cli.saved import SavedNetwork

    return cast(Network, SavedNetwork(args, path))


# -- figures


def summary(item: tuple[str, Any]) -> tuple[str, ...]:
    """A row of the table: name, dtype, shape, smallest, mean and largest value but for NaNs, and their number."""
    import numpy as np

    name, array = item
    if isinstance(array, list):  # maps: of their values
        values = np.array([value for row in array for value in row.values()], np.float32)
        return name, "maps", str(len(array)), *summary((name, values))[3:]
    shape = "x".join(map(str, array.shape)) or "scalar"
    if array.dtype.hasobject:  # text: the first and the last in order
        words = [shortened(repr(word)[1:-1], 20) for word in array.reshape(-1).tolist()]
        return name, "text", shape, min(words, default="-"), "-", max(words, default="-"), "0"
    if array.dtype.kind in "iu" and array.size:  # as they are: a double has no room for every 64-bit integer
        return name, str(array.dtype), shape, str(array.min()), f"{array.mean():.6g}", str(array.max()), "0"
    values = array.astype(np.float64).reshape(-1)
    nans = int(np.isnan(values).sum())
    values = values[~np.isnan(values)]
    if not values.size:
        return name, str(array.dtype), shape, "-", "-", "-", str(nans)
    with np.errstate(all="ignore"):
        figures = (values.min(), values.mean(), values.max())
    return name, str(array.dtype), shape, *(f"{x:.6g}" for x in figures), str(nans)


def latency(call: Callable[[], Any], count: int) -> str:
    """Call so many times, and say how long that took."""
    times = []
    for _ in range(count):
        start = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - start))
    times.sort()
    p90 = times[min(len(times) - 1, int(0.9 * len(times)))]
    return (
        f"\nlatency of {count} runs: median {statistics.median(times):.3f} ms, p90 {p90:.3f} ms, min {times[0]:.3f} ms"
    )
