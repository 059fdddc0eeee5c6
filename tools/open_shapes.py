"""One executable for every shape, beside other runtimes: ``python tools/open_shapes.py --torch PYTHON [--only NAME…] [--quick]``.

For each network with open dims (`opening/networks.py`), on one thread: what our one open executable computes and how long it takes
over shapes that are drawn by a seed from the bounds of its dims (corners, ugly ones, then any), against our own executable of each
shape, and against ONNX Runtime and OpenVINO on the same open model; the first call of a shape against later ones; memory, time to
compile, and the size of the saved file. An executable of one shape takes seconds to compile: the first ``--statics`` shapes have one.
``--stream N`` sends N random shapes instead, ``--decode N`` makes N tokens with a growing cache. An interpreter with torch, torchvision,
transformers, onnx and onnxscript makes the networks, which stay in build/open. Exit status 1 where a network does not run, or an output
is off by more than `compare_onnxruntime.TOLERANCE`.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from benching import rotation
from compare_onnxruntime import TOLERANCE
from machine import machine
from opening import measure, tables
from opening.networks import NETWORKS, OpenNetwork, exported

ENGINES = (rotation.OURS, *rotation.PEERS)
#: How far `--quick` goes: shapes, of these static ones, rounds, seconds, and a shape's elements over the smallest one's.
QUICK = {"shapes": 3, "statics": 1, "rounds": 2, "slice": 0.1, "most": 8.0}


def options() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    option = parser.add_argument
    option(
        "--only", nargs="+", metavar="NAME", help=f"networks whose name has one of these in it: {', '.join(NETWORKS)}"
    )
    option("--torch", metavar="PYTHON", help="an interpreter with torch, which makes networks that are not there")
    option("--engines", default=",".join(ENGINES), help="of these; what is not installed is left out (%(default)s)")
    option("--shapes", type=int, default=12, help="shapes of each network (%(default)s)")
    option("--statics", type=int, help="of these, those that have an executable of their own (all)")
    option("--seed", type=int, default=0, help="that draws shapes and inputs (%(default)s)")
    option("--rounds", type=int, default=5, help="rounds of a rotation (%(default)s)")
    option(
        "--slice", type=float, default=0.3, help="seconds of one engine in one round, one call at least (%(default)s)"
    )
    option("--most", type=float, default=math.inf, help="a shape's elements over the smallest one's, at most")
    option("--quick", action="store_true", help=f"at most {', '.join(f'{n} {v:g}' for n, v in QUICK.items())}")
    option("--stream", type=int, metavar="N", help="N random shapes instead: percentiles, and how memory grows")
    option("--decode", type=int, metavar="N", help="N tokens of each decoder instead")
    option("--json", metavar="FILE", help="write every figure")
    return parser


def chosen(args: argparse.Namespace) -> list[OpenNetwork]:
    """The networks that the arguments ask for."""
    return [n for n in NETWORKS.values() if (not args.only or any(part in n.name for part in args.only))
            and (n.cache or not args.decode)]  # fmt: skip


def shapes_table(rows: measure.NetworkRows) -> str:
    """One network's shapes, with what did not run."""
    problems = {**rows.problems, **{f"{s.numbers}, {who}": why for s in rows.shapes for who, why in s.problems.items()}}
    notes = "".join(f"\n{who}: {why}" for who, why in problems.items())
    return f"\n{rows.name}\n{tables.table(tables.SHAPES, map(tables.shape_cells, rows.shapes))}{notes}"


def failures(rows: Sequence[Any]) -> list[str]:
    """The failures of ours, and what is wrong, a line each."""
    found = [f"{r.name}: {rotation.OURS}: {r.problems[rotation.OURS]}" for r in rows if rotation.OURS in r.problems]
    for r in rows:
        if isinstance(r, measure.NetworkRows) and (worst := tables.worst_error(r)) > TOLERANCE:
            found.append(f"{r.name}: off by {worst:.1e} of the largest value")
        if isinstance(r, measure.DecodeRows) and not r.agree:
            found.append(f"{r.name}: other tokens than the peers'")
    return found


def of_each(args: argparse.Namespace, do: Callable[[OpenNetwork, Path], Any]) -> list[Any]:
    """The results of `do` for every network that can be had; a line is printed for each other one."""
    found = []
    for network in chosen(args):
        try:
            found.append(do(network, exported(network, args.torch)))
        except RuntimeError as e:
            print(e, file=sys.stderr)
    return found


def run(args: argparse.Namespace, engines: Sequence[str]) -> list[Any]:
    """Measure, and print the tables that the arguments ask for."""
    if args.stream:
        rows = of_each(args, lambda n, path: measure.stream(n, path, args.stream, engines, args.most, args.seed))
        print(tables.table(tables.STREAMS, [cells for r in rows for cells in tables.stream_rows(r)]))
        return rows
    if args.decode:
        rows = of_each(args, lambda n, path: measure.decode(n, path, args.decode, engines))
        print(tables.table(tables.DECODES, [cells for r in rows for cells in tables.decode_rows(r)]))
        return rows
    statics = args.shapes if args.statics is None else args.statics

    def measured(network: OpenNetwork, path: Path) -> measure.NetworkRows:
        shapes = network.drawn(args.shapes, args.seed, args.most)
        found = measure.measure(network, path, shapes, statics, engines, args.rounds, args.slice, args.seed)
        print(shapes_table(found), flush=True)
        return found

    rows = of_each(args, measured)
    print(f"\n{tables.table(tables.NETWORKS, map(tables.network_cells, rows))}")
    if statics < args.shapes:
        print(f"To static: {statics} of {args.shapes} shapes have an executable of their own.")
    return rows


def main() -> int:
    """The tool."""
    args = options().parse_args()
    if args.quick:
        for name, most in QUICK.items():
            given = getattr(args, name)
            setattr(args, name, most if given is None else min(given, most))
    for name in ("stream", "decode", "shapes", "rounds"):
        if getattr(args, name) is not None and getattr(args, name) < 1:
            print(f"--{name} should be positive, and is {getattr(args, name)}", file=sys.stderr)
            return 1
    engines = rotation.installed(args.engines.split(","))
    print(machine(*engines, "numpy", "llvmlite"), flush=True)
    rows = run(args, engines)
    if args.json:
        Path(args.json).write_text(json.dumps([asdict(r) for r in rows], indent=1))
    for line in (found := failures(rows)):
        print(line, file=sys.stderr)
    return int(bool(found) or len(rows) < len(chosen(args)))


if __name__ == "__main__":
    sys.exit(main())
