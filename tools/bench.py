"""The speed of networks beside other runtimes: ``python tools/bench.py [--models NAME|FILE…] [--layers [NAME…]]
[--write]``.

Every engine (LightNet, and those of ONNX Runtime and OpenVINO that are installed) loads the network in a process of its own. They
run in turn, a slice of time each, in rounds whose order changes; a loop of multiply-adds runs in the same rotation and says what
the machine can do right now. Figures are medians over the rounds; what counts is the ratio to the faster peer. docs/benchmark.md
says what each column is, and how to measure on a machine that others use.

Models are the standard networks and two small transformers by name, those that ONNX Runtime quantised (``resnet18-qdq``, ``--quantised`` for all), LightNet networks (.net, .json; weights are sampled) and ONNX models by path. --layers runs
chains of single layers instead (or as well); --profile prints the time by kernel of ours; --write puts the tables into
docs/performance.md, --json keeps every figure in a file, and --from adds what such files have, without measuring again.
--against COMMIT compares with another tree of the project instead, in processor time of one thread. Exit
status 1 where we do not run, or where an output is off by more than `compare_onnxruntime.TOLERANCE`.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from benching import against, networks, page, quantised, rotation
from benching.results import OURS, Row, from_json, to_json
from compare_onnxruntime import TOLERANCE
from machine import machine

from lightnet.cli.common import write_atomic
from lightnet.cli.feeding import fed_values, shapes_of
from lightnet.cli.network import add_shapes
from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet_debug.peers import rounding

PAGE = networks.ROOT / "docs" / "performance.md"
ENGINES = (OURS, *rotation.PEERS)
#: Models that are no goal, and only measured (tools/suites/transformers.py).
TRANSFORMERS = ("bert-mini", "vit-tiny")


def options() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    option = parser.add_argument
    option(
        "--models",
        nargs="+",
        metavar="MODEL",
        help=f"{', '.join(networks.NETWORKS)} (all of these), {', '.join(TRANSFORMERS)}, {', '.join(quantised.NAMES)}, or a file",
    )
    option("--quantised", action="store_true", help="all quantised networks, too")
    option("--layers", nargs="*", metavar="NAME", help="single layers: those whose name has one of these in it (all)")
    option("--all", action="store_true", help="the networks, the transformers and all layers")
    option("--engines", default=",".join(ENGINES), help="of these; what is not installed is left out (%(default)s)")
    option("--threads", default="1,2", help="numbers of threads (%(default)s)")
    option("--rounds", type=int, default=7, help="rounds of a rotation (%(default)s)")
    option("--slice", type=float, default=0.3, help="seconds of one engine in one round (%(default)s)")
    option("--trials", type=int, default=3, help="processes started cold and warm, each engine; 0: none (%(default)s)")
    option("--clock", choices=("wall", "cpu"), default="wall", help="cpu: processor time, of one thread only")
    option(
        "--precision", choices=("f32", "bf16"), default="f32", help="of ours and OpenVINO's; ONNX Runtime has f32 alone"
    )
    option("--profile", action="store_true", help="print our time by kernel instead")
    option("--write", action="store_true", help="write docs/performance.md")
    option("--json", metavar="FILE", help="write every figure")
    option("--from", metavar="FILE", dest="earlier", nargs="+", default=[], help="add what --json wrote into files")
    option("--against", metavar="COMMIT|DIR", help="compare with the project as it is there: calls, compiling, memory")
    add_shapes(parser)
    return parser


def numbers_of_threads(args: argparse.Namespace) -> list[int]:
    """The numbers of ``--threads``. Raises `LightNetError` for one that cannot be, and for other numbers out of their range."""
    try:
        counts = sorted({int(n) for n in args.threads.split(",")})
    except ValueError:
        raise LightNetError(f"--threads takes numbers such as 1,2, and gets '{args.threads:.40}'") from None
    there = len(rotation.cores(1 << 20))
    if counts[0] < 1 or counts[-1] > there:
        raise LightNetError(
            f"--threads should be between 1 and the {there} cores of this machine, and is {args.threads}"
        )
    if args.rounds < 1 or not 0 < args.slice < 60 or args.trials < 0:
        raise LightNetError("--rounds should be positive, --slice between 0 and 60 s, --trials not negative")
    return counts


def earlier(path: str) -> tuple[list[Row], dict[str, Any]]:
    """The rows of a file that ``--json`` wrote, and what it says of itself. Raises `LightNetError`."""
    try:
        return from_json(Path(path).read_text("utf-8"))
    except OSError as e:
        raise LightNetError(f"cannot read it: {e.strerror}", SourceLoc(path)) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise LightNetError("this is no file that tools/bench.py --json wrote", SourceLoc(path)) from None


def without_file(words: list[str]) -> list[str]:
    """The command line without ``--json FILE``, which changes no figure."""
    at = words.index("--json") if "--json" in words else len(words)
    return words[:at] + words[at + 2 :]


def described(engines: list[str], files: list[dict[str, Any]], measuring: bool) -> dict[str, Any]:
    """Machine, date and commands, for the page: of this run where it measures, else of the files that it takes together."""
    packages = ("lightnet", "llvmlite", "numpy", *(e for e in engines if e != OURS))
    here = {"machine": machine(*packages), "date": str(date.today()),
            "command": shlex.join(["python", "tools/bench.py", *without_file(sys.argv[1:])])}  # fmt: skip
    if not files or measuring:
        return here
    return {"machine": files[0]["machine"], "date": " and ".join(dict.fromkeys(f["date"] for f in files)),
            "command": "; ".join(f["command"] for f in files)}  # fmt: skip


def chosen(args: argparse.Namespace) -> Iterator[tuple[str, str, Callable[[], networks.Prepared]]]:
    """Group, name and preparation of everything that the arguments ask for. Raises `LightNetError` for an unknown name."""
    shapes, values = shapes_of(args.shapes), fed_values(args.values)
    default = (*networks.NETWORKS, *TRANSFORMERS) if args.all else networks.NETWORKS
    others = args.layers is not None or args.earlier or args.quantised
    named = [*(args.models or (() if others and not args.all else default)),
             *(quantised.NAMES if args.quantised or args.all else ())]  # fmt: skip
    for name in named:
        if name in quantised.NAMES:
            # Floats of another precision round to other steps: an error would say nothing of us.
            file = lambda name=name: quantised.write(name, networks.FOLDER)  # noqa: E731
            yield page.QUANTISED, name, lambda name=name, file=file: networks.prepare(file(), name, reference=False)
        elif name in networks.NETWORKS:
            yield page.NETWORKS, name, lambda name=name: networks.prepare(networks.NETWORKS[name], name)
        elif name in TRANSFORMERS:
            from suites import transformers

            feeds = transformers.MODELS[name][1]()
            path = transformers.write(name, networks.FOLDER)
            yield page.OTHERS, name, lambda name=name, path=path, feeds=feeds: networks.prepare(path, name, feeds=feeds)
        elif Path(name).exists():
            prepare = lambda name=name: networks.prepare(name, shapes=shapes, values=values)  # noqa: E731
            yield page.OTHERS, Path(name).stem, prepare
        else:
            raise LightNetError(
                f"no network '{name}'; there are: {', '.join((*networks.NETWORKS, *TRANSFORMERS, *quantised.NAMES))}, and files"
            )
    if args.layers is not None or args.all:
        from benching.layers import LAYERS, write

        for name in LAYERS:
            if not args.layers or any(part in name for part in args.layers):
                yield page.LAYERS, name, lambda name=name: networks.prepare(write(name, networks.FOLDER), name)


def measured(
    prepared: networks.Prepared, group: str, engines: list[str], threads: int, args: argparse.Namespace
) -> Row:
    """One network at one number of threads."""
    clock = args.clock if threads == 1 else "wall"
    job = {**prepared.job, "options": {"precision": args.precision}}
    with tempfile.TemporaryDirectory() as folder:
        found = rotation.rotate(job, [*engines, rotation.PEAK], threads, args.rounds, args.slice, clock, Path(folder))
        files = {e: Path(folder) / f"{e}.npz" for e in found.seconds if prepared.reference is not None}
        errors = {e: networks.error_of(prepared, file) for e, file in files.items()}
    return Row(prepared.name, group, threads, prepared.flops, found.seconds, found.peak, errors, prepared.oracle,
               found.starts, spun=found.spun, problems=found.problems, clock=clock)  # fmt: skip


def started(prepared: networks.Prepared, engines: list[str], row: Row, trials: int) -> None:
    """Put into `row` what starting each engine takes: cold, warm from what it saved before, and ours with its cache of kernels."""
    warm: dict[str, dict[str, dict[str, str]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        cache = str(Path(folder) / "cache")
        for engine in engines:
            path = str(Path(folder) / {OURS: "net.lnx", "onnxruntime": "net.ort"}.get(engine, engine))
            try:
                with rotation.worker(
                    {**prepared.job, "engine": engine, "threads": row.threads, "cache": cache}
                ) as process:
                    process.ask(do="save", path=path)
                warm[engine] = {"warm": {"saved": path}} | ({"cached": {"cache": cache}} if engine == OURS else {})
            except rotation.WorkerError as e:
                row.problems[f"{engine}, to save"] = str(e)
        row.starts = rotation.starts(prepared.job, warm, engines, row.threads, trials, row.problems)


def profile(prepared: networks.Prepared, threads: int) -> str:
    """Our time by kernel, from a process of its own."""
    with rotation.worker({**prepared.job, "engine": OURS, "threads": threads}) as process:
        return process.ask(do="profile")["text"]


def failures(rows: list[Row], precision: str = "f32") -> list[str]:
    """The failures of ours, a line each."""
    tolerance = TOLERANCE if precision == "f32" else rounding(precision)
    found = [f"{r.name}: {e}: {why}" for r in rows for e, why in r.problems.items() if e.startswith(OURS)]
    return found + [f"{r.name}: off by {r.errors[OURS]:.1e} of the largest value" for r in rows
                    if OURS in r.errors and not r.errors[OURS] <= tolerance]  # fmt: skip


def compare_trees(args: argparse.Namespace) -> int:
    """Print a table of this tree beside another one: the networks and the transformers, or those of ``--models``."""
    from suites import transformers

    named = (*networks.NETWORKS, *TRANSFORMERS)
    asked: list[str] = args.models or list(named)
    wanted = {n: transformers.write(n, networks.FOLDER) if n in TRANSFORMERS else networks.NETWORKS.get(n, Path(n))
              for n in asked}  # fmt: skip
    if missing := [n for n, path in wanted.items() if not path.exists()]:
        raise LightNetError(f"no network '{missing[0]}'; there are: {', '.join(named)}, and files")
    with tempfile.TemporaryDirectory() as folder:
        try:
            there = against.tree_of(args.against, Path(folder))
            print(against.HEADER)
            rows = []
            for name, path in wanted.items():
                rows.append(against.compare(name, path.resolve(), there, args.rounds, args.slice, max(1, args.trials)))
                print(rows[-1].line(), flush=True)
        except ValueError as e:
            raise LightNetError(str(e)) from None
    print(against.means(rows))
    return 0


def run(args: argparse.Namespace) -> int:
    """Measure, print and write what the arguments say."""
    if args.against:
        numbers_of_threads(args)
        return compare_trees(args)
    asked, counts = args.engines.split(","), numbers_of_threads(args)
    if unknown := [e for e in asked if e not in ENGINES]:
        raise LightNetError(f"no engine '{unknown[0]}'; there are: {', '.join(ENGINES)}")
    engines = rotation.installed(asked)
    for engine in set(asked) - set(engines):
        print(f"{engine} is not installed, and left out (pip install 'lightnet-compiler[peers]')", file=sys.stderr)
    files = [earlier(path) for path in args.earlier]
    todo = list(chosen(args))
    about = described(engines, [about for _, about in files], bool(todo))
    print(about["machine"])
    rows = [row for found, _ in files for row in found]
    for group, name, prepare in todo:
        try:
            prepared = prepare()
            if args.profile:
                print(f"\n{name}\n{profile(prepared, counts[0])}", flush=True)
                continue
            for threads in counts:
                row = measured(prepared, group, engines, threads, args)
                rows.append(row)
                print("  ".join(page.latency_cells(row)), f"({threads})", *row.problems.values(), flush=True)
            if args.trials and group != page.LAYERS:
                started(prepared, engines, rows[-1], args.trials)
        except (LightNetError, rotation.WorkerError) as e:
            text = " ".join(str(e).split())
            print(f"{name}: {text}", flush=True)
            rows.append(Row(name, group, counts[0], 0, {}, problems={OURS: text}))
    if args.profile:
        return 0
    page.show(rows, sys.stdout.isatty())
    if args.json:
        write_atomic(args.json, to_json(rows, about).encode())
    if args.write:
        write_atomic(str(PAGE), page.page(rows, about).encode())
    for line in (found := failures(rows, args.precision)):
        print(line, file=sys.stderr)
    return int(bool(found))


def main() -> int:
    """The tool; a mistake of the user's is one line."""
    try:
        return run(options().parse_args())
    except LightNetError as e:
        print(e, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
