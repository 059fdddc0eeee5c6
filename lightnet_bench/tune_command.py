"""`lightnet tune NET -o NET.tuned`: measure forms of kernels that the model of time finds nearly as good as its best,
inside the running network, and keep those that are faster for certain.

The file has a line for each kernel: its key, and choices. It diffs and merges as text does, serves every network with
such kernels, and is read by `--tuned FILE` (`lightnet run`, `compile`, `compare`), `choose{from="FILE"}` and
`lightnet.compile(…, tuned=FILE)`; executables (.lnx) carry it. The table shows every form that was measured beside what
the model said (docs/compare.md).
"""

from __future__ import annotations

from lightnet.cli import common
from lightnet.cli.progress import stages
from lightnet.diagnostics import LightNetError
from lightnet.runtime.files import write_atomic
from lightnet_bench.command import add_side

#: Seconds that tuning takes, about.
BUDGET = 30.0


def main(argv: list[str]) -> int:
    """The subcommand; returns the exit status."""
    parser = common.ToolParser("lightnet tune", description="Measure forms of kernels, and keep the faster ones.",
                               allow_abbrev=False)  # fmt: skip
    option = parser.add_argument
    option("network", metavar="NET", help="a network: .onnx, -symbol.json, .net, .json or .mlir")
    option("-o", "--output", metavar="FILE", help="write the choices that are faster (default: print them)")
    option("--budget", metavar="SECONDS", type=_seconds, default=BUDGET, help=f"take about so long ({BUDGET:g}s)")
    add_side(parser, argv)
    args = parser.parse_args(argv)
    if not 0 < args.budget <= 86400:
        raise LightNetError(f"--budget should be between 0 and 86400 s, and is {args.budget:g}")
    from lightnet.plugins import loaded
    from lightnet_bench.tuning import tune

    args.inputs = args.inputs if any(w in ("random", "zeros") for w in args.inputs) else [*args.inputs, "random"]
    with loaded(args.load), stages("tuning") as stage:
        found = tune(args, args.network, args.budget, stage)
    print(found.text())
    if args.output:
        write_atomic(args.output, found.file())
    else:
        print(f"\n{found.file()}", end="")
    return 0


def _seconds(text: str) -> float:
    """A number of seconds: ``30``, ``30s``."""
    return float(text.removesuffix("s"))
