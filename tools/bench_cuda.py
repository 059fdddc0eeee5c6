"""The speed of networks on an NVIDIA device beside PyTorch: ``python tools/bench_cuda.py [--models NAME…] [--layers]
[--write]``.

Both run in one process, on the same contents: ours as one CUDA graph, PyTorch with the channels last, with cuDNN's choice of algorithms
by measuring and in a CUDA graph, and once more through torch.compile. Precisions are told apart: f32 (exact products), tf32, f16. Results are
compared with those of the CPU's kernels first. Then engines run in turn, a slice of time each, in rounds whose order changes; figures are
medians over the rounds, timed by the device's events, inputs and outputs staying on the device. --write puts the tables into
docs/performance-cuda.md, with the device's name and the date.

Without a device it says so and exits 1. ``--emulate --small`` goes the same way on tiny sizes in the PTX interpreter (and, where there is
PyTorch, on its CPU kernels): the figures mean nothing then, and are not written. Exit status 1 also where we do not run, or a result of ours is off.
"""

from __future__ import annotations

import argparse
import fcntl
import gc
import json
import platform
import shlex
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import date
from importlib.util import find_spec
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from benching import cuda_engines, cuda_work
from benching.cuda_engines import COMPILED, ENGINES, OURS, TORCH, WARPS, Engine
from benching.results import geometric_mean, quantile
from benching.rotation import order

import lightnet
from lightnet.diagnostics import LightNetError
from lightnet.runtime.cuda.driver import CudaUnavailable, devices
from lightnet.runtime.files import write_atomic

PAGE = Path(__file__).parent.parent / "docs" / "performance-cuda.md"
MODELS = ("squeezenet1.1", "mobilenetv2", "resnet18", "resnet50", "yolov3", *cuda_work.TRANSFORMERS)
COLUMNS = (
    "",
    "batch",
    "LightNet, ms",
    "by warps, ms",
    "PyTorch, ms",
    "torch.compile, ms",
    "ratio",
    "spread",
    "TFLOP/s",
    "by warps, TFLOP/s",
    "PyTorch, TFLOP/s",
    "largest error",
)


@dataclass
class Row:
    """The measurements of one work: seconds of a call in each round, the largest errors (relative to the largest value
    of an output), and why an engine is not there.
    """

    name: str
    group: str
    precision: str
    batch: int
    flops: int
    seconds: dict[str, list[float]] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)

    def median(self, engine: str) -> float | None:
        """Seconds of a call."""
        return statistics.median(self.seconds[engine]) if self.seconds.get(engine) else None

    @property
    def ratios(self) -> list[float]:
        """Our time over that of PyTorch (in a graph), round by round."""
        return [a / b for a, b in zip(self.seconds.get(OURS, []), self.seconds.get(TORCH, []))]

    @property
    def ratio(self) -> float | None:
        """By the medians: below 1 we are faster."""
        ours, theirs = self.median(OURS), self.median(TORCH)
        return ours / theirs if ours and theirs else None

    @property
    def is_wrong(self) -> bool:
        """True if we did not run, or a result of ours is off."""
        off = [not e <= cuda_work.TOLERANCE[self.precision] for n, e in self.errors.items() if n in (OURS, WARPS)]
        return OURS not in self.errors or not {OURS, WARPS}.isdisjoint(self.problems) or any(off)


def options() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    option = parser.add_argument
    option("--models", nargs="*", metavar="NAME", default=list(MODELS), help=f"networks ({', '.join(MODELS)})")
    option("--layers", action="store_true", help="matrix products and convolutions as well")
    option("--precisions", default="f32,tf32,f16", help="of these (%(default)s)")
    option("--batches", default="1,32", help="pictures at once (%(default)s)")
    option("--engines", default=",".join(ENGINES), help="of these; what is not installed is left out (%(default)s)")
    option("--rounds", type=int, default=9, help="rounds of a rotation (%(default)s)")
    option("--slice", type=float, default=0.1, help="seconds of one engine in one round (%(default)s)")
    option("--emulate", action="store_true", help="in the PTX interpreter, with --small")
    option("--small", action="store_true", help="tiny sizes")
    option("--write", action="store_true", help="write docs/performance-cuda.md")
    option("--json", metavar="FILE", help="write every figure")
    option(
        "--from",
        metavar="FILE",
        dest="earlier",
        nargs="+",
        default=[],
        help="measure nothing: take what --json wrote into files",
    )
    option("--kernels", action="store_true", help="print the time of each kernel as well")
    option("--references", metavar="FOLDER", type=Path, help="keep there what should come out, and take it from there")
    option(
        "--prepare", action="store_true", help="without a device: compute --references, and fill the cache of kernels"
    )
    option("--lock", metavar="FILE", help="what processes that measure on one device share: they measure in turn")
    return parser


def checked(args: argparse.Namespace) -> tuple[list[str], list[int], list[str]]:
    """Precisions, batches and engines. Raises `LightNetError` for what cannot be."""
    precisions, engines = args.precisions.split(","), args.engines.split(",")
    for what, given, known in (("precision", precisions, cuda_work.TOLERANCE), ("engine", engines, ENGINES),
                               ("network", args.models, (*cuda_work.networks.NETWORKS, *cuda_work.TRANSFORMERS))):  # fmt: skip
        if unknown := [g for g in given if g not in known]:
            raise LightNetError(f"no {what} '{unknown[0]:.40}'; there are: {', '.join(known)}")
    batches = args.batches.split(",")
    if not all(b.isdecimal() and 0 < int(b) <= 4096 for b in batches):
        raise LightNetError(f"--batches takes numbers such as 1,32, and gets '{args.batches:.40}'")
    if args.rounds < 1 or not 0 < args.slice < 60:
        raise LightNetError("--rounds should be positive, --slice between 0 and 60 s")
    if (not args.prepare and args.emulate != args.small) or (args.emulate and args.write):
        raise LightNetError("--emulate goes with --small, and not with --write: its figures mean nothing")
    return precisions, [int(b) for b in batches], engines


def error(got: Sequence[np.ndarray], want: Sequence[np.ndarray]) -> float:
    """The largest difference of an output, relative to its largest value."""
    if [g.shape for g in got] != [w.shape for w in want]:
        return float("inf")
    parts = [
        float(np.abs(g - w).max(initial=0.0)) / max(float(np.abs(w).max(initial=0.0)), 1e-30) for g, w in zip(got, want)
    ]
    return max((np.inf if np.isnan(p) else p for p in parts), default=0.0)


@contextmanager
def alone(lock: str | None) -> Iterator[None]:
    """Hold a file that processes which measure on one device share, if there is one: they prepare at once, and measure in turn."""
    if lock is None:
        yield
        return
    with open(lock, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def measured(work: cuda_work.Work, names: Sequence[str], args: argparse.Namespace) -> Row:
    """Check, then time one work on all engines."""
    row = Row(work.name, work.group, work.precision, work.batch, work.flops)
    want = [a.astype(np.float32) for a in work.reference(args.references).values()]
    made: dict[str, Engine] = {}

    def make(names: Iterable[str]) -> None:
        for name in names:
            try:
                made[name] = cuda_engines.make(name, work, args.emulate)
                row.errors[name] = error(made[name].outputs(), want)
            except Exception as problem:  # of a peer, whatever it raises; ours is reported as a failure
                row.problems[name] = " ".join(f"{type(problem).__name__}: {problem}".split())[:200]

    concerned = [n for n in names if cuda_engines.concerns(n, work)]
    make(n for n in concerned if n in (OURS, WARPS))  # compiling takes the device no time
    with alone(args.lock):
        make(n for n in concerned if n not in (OURS, WARPS))  # choosing algorithms does
        engines = {
            n: (e, max(1, round(args.slice / max(e.seconds(1), 1e-7)))) for n, e in made.items() if n in row.errors
        }
        row.seconds = {name: [] for name in concerned if name in engines}
        for number in range(args.rounds):
            for name in order(list(engines), number):
                engine, count = engines[name]
                row.seconds[name].append(engine.seconds(count) / count)
        if args.kernels:
            print_kernels({n: e for n, (e, _) in engines.items()})
    return row


def print_kernels(engines: Mapping[str, Engine]) -> None:
    """The kernels of one call of each engine, in microseconds."""
    for name, engine in engines.items():
        found = engine.kernels()
        print(f"{name}: {len(found)} kernels, {1e6 * sum(seconds for _, seconds in found):.1f} us")
        for kernel, seconds in found:
            print(f"  {1e6 * seconds:9.2f}  {kernel[:120]}")


def prepare(works: Iterable[Callable[[], cuda_work.Work]], folder: Path | None) -> int:
    """Make what takes a processor long and needs no device: the results, and the code of every kernel for sm_90a, and sm_90 where that is another
    (in the cache of kernels)."""
    for make in works:
        work = make()
        work.reference(folder)
        for arch in ("sm_90a", "sm_90") if cuda_engines.concerns(WARPS, work) else ("sm_90a",):
            made = lightnet.compile(work.model, "cuda", precision=work.compiled, arch=arch, emulate=True)
            print(
                f"{work.precision}  {work.name}, batch {work.batch}, {arch}: {len(made.native.assembly)} bytes of PTX",
                flush=True,
            )
    return 0


def cells(row: Row) -> list[str]:
    """A row under COLUMNS."""

    def text(value: float | None, form: str, factor: float = 1.0) -> str:
        return "–" if value is None else format(value * factor, form)

    def rate(engine: str) -> str:
        seconds = row.median(engine)
        return text(row.flops / seconds if seconds else None, ".3g", 1e-12)

    spread = f"{quantile(row.ratios, 0.1):.2f}–{quantile(row.ratios, 0.9):.2f}" if row.ratios else "–"
    return [row.name, str(row.batch), *(text(row.median(e), ".4g", 1e3) for e in ENGINES), text(row.ratio, ".2f"), spread, rate(OURS), rate(WARPS), rate(TORCH),
            text(row.errors.get(OURS), ".1e")]  # fmt: skip


def page(rows: Sequence[Row], about: dict[str, str]) -> str:
    """docs/performance-cuda.md."""
    parts = [
        "# How fast networks run on an NVIDIA device", f"{about['device']}. {about['versions']}. {about['date']}, by `{about['command']}`.",
        "Ours is one CUDA graph; PyTorch has the channels last, cuDNN's algorithms chosen by measuring, batch norms folded, and a CUDA graph as "
        "well. *by warps*: without what only sm_90a has, for factors of 16 bits. Times are medians of rounds in turn, by events, inputs and outputs on the device. *ratio* is our time over PyTorch's (in a graph), "
        "*spread* its 10th and 90th percentile over the rounds; errors are relative to the largest value of an output, against the CPU's "
        "kernels in f32.",
    ]  # fmt: skip
    for precision in dict.fromkeys(r.precision for r in rows):
        for group in dict.fromkeys(r.group for r in rows):
            found = [r for r in rows if (r.precision, r.group) == (precision, group)]
            if not found:
                continue
            lines = ["| " + " | ".join(line) + " |" for line in (COLUMNS, ["---"] * len(COLUMNS), *map(cells, found))]
            ratios = [r.ratio for r in found if r.ratio]
            mean = f"\n\nGeometric mean of {len(ratios)} ratios: {geometric_mean(ratios):.2f}." if ratios else ""
            parts.append(f"## {precision}, {group}\n\n" + "\n".join(lines) + mean)
    problems = [
        f"* {r.name}, {r.precision}, batch {r.batch}: {e}: {why}" for r in rows for e, why in r.problems.items()
    ]
    parts += ["## What did not run\n\n" + "\n".join(problems)] if problems else []
    return "\n\n".join(parts) + "\n"


def described(emulate: bool) -> dict[str, str]:
    """Device, versions, date and command. Raises CudaUnavailable where there is no device."""
    command = shlex.join(["python", "tools/bench_cuda.py", *sys.argv[1:]])
    versions = [f"Python {platform.python_version()}"]
    if find_spec("torch") is not None:
        import torch

        versions.append(
            f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}"
        )
    if emulate:
        device = "PTX interpreter"
    else:
        first = devices()[0]
        device = f"{first.name} ({first.arch}), driver for CUDA {first.version[0]}.{first.version[1]}"
    return {"device": device, "versions": "; ".join(versions), "date": str(date.today()), "command": command}


def run(args: argparse.Namespace) -> int:
    """Measure, print and write what the arguments say."""
    if args.earlier:
        return finish(args, *earlier(args.earlier))
    precisions, batches, asked = checked(args)
    todo = cuda_work.small() if args.small else cuda_work.works(args.models, args.layers, precisions, batches)
    if args.prepare:
        return prepare(todo, args.references)
    about = described(args.emulate)
    engines = cuda_engines.installed(asked, args.emulate)
    for name in set(asked) - set(engines):
        why = "PyTorch is not installed"
        if name == WARPS or (name == COMPILED and TORCH in engines):
            why = "the device is another" if name == WARPS else "not on a CPU"
        print(f"{name} is left out: {why}", file=sys.stderr)
    print(about["device"])
    rows = []
    for make in todo:
        work = make()
        rows.append(measured(work, engines, args))
        print(f"{work.precision}  ", "  ".join(cells(rows[-1])), *rows[-1].problems.values(), flush=True)
        gc.collect()  # the engines' memory on the device
    return finish(args, about, rows)


def earlier(paths: Sequence[str]) -> tuple[dict[str, str], list[Row]]:
    """The rows that --json wrote into files: whom it is about, and all rows. Raises LightNetError for files of several
    devices.
    """
    found = [json.loads(Path(path).read_text("utf-8")) for path in paths]
    if len({f["device"] for f in found}) != 1:
        raise LightNetError("the files are of several devices")
    about = {key: found[0][key] for key in ("device", "versions", "date")}
    about["command"] = "`, `".join(dict.fromkeys(f["command"] for f in found))
    return about, [Row(**row) for f in found for row in f["rows"]]


def finish(args: argparse.Namespace, about: dict[str, str], rows: list[Row]) -> int:
    """Write what the arguments ask for; 1 where a result of ours is off."""
    if args.json:
        write_atomic(args.json, json.dumps({**about, "rows": [asdict(r) for r in rows]}, indent=1).encode())
    if args.write:
        write_atomic(str(PAGE), page(rows, about).encode())
    wrong = [row for row in rows if row.is_wrong]
    for row in wrong:
        print(
            f"{row.name}, {row.precision}, batch {row.batch}: {row.problems.get(OURS) or row.problems.get(WARPS) or 'a result is off'}",
            file=sys.stderr,
        )
    return int(bool(wrong))


def main() -> int:
    """The tool; a mistake of the user's, or no device, is one line."""
    try:
        return run(options().parse_args())
    except CudaUnavailable as missing:
        print(f"nothing is measured: {missing.reason}", file=sys.stderr)
    except LightNetError as mistake:
        print(mistake, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
