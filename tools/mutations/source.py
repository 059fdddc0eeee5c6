"""Faults in the project's own lines, and whether its tests find them: ``tools/mutants.py --source``.

In a folder of its own (``--work``): `tree`, a copy of the project; `marked`, a copy that notes which tests run which lines
(`watching.py`), used once; `map.npz`, what it noted; `results.json`, a verdict for each fault, from which an interrupted run
goes on. A fault is judged by the tests that run its line, quickest first and one of each test function before a second, up
to `--cpu` seconds (`judging.py`); survivors are judged again where a run has more.
"""

from __future__ import annotations

import compileall
import json
import os
import py_compile
import shutil
import subprocess
import sys
from argparse import Namespace
from collections import Counter, defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from mutations.faults import Fault, sample
from mutations.watching import MODULE, Marks

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("lightnet", "tests", "tools", "docs", "examples", "editors", "pyproject.toml", "README.md", "Makefile", "LICENSE",
          "NOTICE", "MANIFEST.in")  # fmt: skip
#: Tests for one fault at most, for each CPU second that they may take; and those that judge survivors cold.
MOST, COLD = 10, 10
#: Test functions for a line that none of the recorded cases runs, and CPU seconds that all cases of one may take.
NEAR, ALL_CASES = 4, 60.0
#: Cases of a test function that the map is made from.
CASES = 6

FOUND, SURVIVES, UNCOVERED, UNCLEAR, EQUIVALENT = "found", "survives", "uncovered", "unclear", "equivalent"


def main(args: Namespace) -> int:
    """Judge what is not judged yet, print the table; the status is 1 if a fault survives."""
    run = Run((args.work or ROOT / "build" / "mutants").resolve(), args.budget)
    run.cpu = args.cpu
    chosen = [f for f in sample(run.texts(), args.count, args.seed) if args.files in f.file and f.within != "samples"]
    for name, why in args.equivalent:
        run.note(name, why)
    if args.list:
        for fault in chosen:
            print(f"{fault.file}:{fault.line}: {fault.kind}: {show(fault.old)} -> {show(fault.new)}")
        return 0
    if args.again is not None:
        run.again(chosen, args.again)
    else:
        run.judge(chosen)
    return run.report(chosen)


def show(text: str) -> str:
    """A part of a line for a list."""
    words = " ".join(text.split())
    return words if len(words) <= 60 else f"{words[:57]}..."


class Run:
    """The folder with copies, map and results."""

    def __init__(self, work: Path, budget: float, root: Path = ROOT):
        self.work, self.budget, self.root, self.cpu = work, budget, root, 20.0
        self.tree, self.results_path = work / "tree", work / "results.json"
        work.mkdir(parents=True, exist_ok=True)
        if not self.tree.exists():
            self._copy(self.tree)
        self.results: dict[str, dict[str, Any]] = {}
        if self.results_path.exists():
            self.results = json.loads(self.results_path.read_text("utf-8"))
        self._mend(work / "job.json")
        self._take(work / "verdicts.jsonl")

    def texts(self) -> dict[str, str]:
        """The package's files in the copy."""
        paths = sorted((self.tree / "lightnet").rglob("*.py"))
        return {str(p.relative_to(self.tree)): p.read_text("utf-8") for p in paths}

    def _mend(self, job: Path) -> None:
        """Take the fault out of the copy that a job left there when it was killed."""
        if not job.exists():
            return
        for row in json.loads(job.read_text("utf-8"))["rows"]:
            path = self.tree / row["file"]
            if path.read_text("utf-8") == row["changed"]:
                path.write_text(row["text"], "utf-8")

    # -- results -----------------------------------------------------------------------------------------------------

    def _take(self, path: Path) -> None:
        """Add the verdicts of a job, also of one that was interrupted."""
        if not path.exists():
            return
        for line in path.read_text("utf-8").splitlines():
            row = json.loads(line)
            self.results.setdefault(row["name"], {}).update(row)
        path.unlink()
        self.save()

    def save(self) -> None:
        self.results_path.write_text(json.dumps(self.results, indent=1), "utf-8")

    def note(self, name: str, why: str) -> None:
        """Say of a fault that it changes nothing that a test could see."""
        self.results.setdefault(name, {"name": name}).update(verdict=EQUIVALENT, why=why)
        self.save()

    def verdict(self, fault: Fault) -> str | None:
        return self.results.get(fault.name, {}).get("verdict")

    def _copy(self, to: Path) -> None:
        for name in COPIED:
            source = self.root / name
            if source.is_dir():
                shutil.copytree(source, to / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
            elif source.exists():
                to.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, to / name)
        _compile(to)

    def is_pending(self, fault: Fault) -> bool:
        """Whether it is not judged yet, or survived less time than it may have now."""
        found = self.results.get(fault.name, {})
        return "verdict" not in found or (found["verdict"] == SURVIVES and found.get("cpu", 0) < self.cpu)

    # -- judging -----------------------------------------------------------------------------------------------------

    def judge(self, chosen: list[Fault]) -> None:
        """By the recorded tests: warm, and cold what is not decided by that."""
        tests = Tests(self.map())
        pending = [f for f in chosen if self.is_pending(f)]
        picked: dict[str, list[str]] = {}
        for fault in pending:
            found = self.results.setdefault(fault.name, {"name": fault.name})
            passed = set(tests.of(fault, found["cpu"])) if "cpu" in found else set()
            picked[fault.name] = [t for t in tests.of(fault, self.cpu) if t not in passed]
            if not picked[fault.name] and not passed:
                found["verdict"] = UNCOVERED
        self.start([f for f in pending if f.function and picked[f.name]], picked, tests.seconds, warm=True)
        rest = [f for f in chosen if self.verdict(f) == UNCLEAR or (not f.function and f in pending and picked[f.name])]
        rest += [f for f in chosen if self.verdict(f) == SURVIVES and self.results[f.name].get("warm")]
        few = {f.name: picked.get(f.name) if not f.function else tests.of(f, self.cpu)[:COLD] for f in rest}
        rest += (unseen := [f for f in chosen if self.verdict(f) == UNCOVERED and not self.results[f.name].get("ran")])
        few |= {f.name: tests.near(f) for f in unseen}
        seconds = dict.fromkeys((t for names in few.values() for t in names or ()), ALL_CASES) | tests.seconds
        self.start([f for f in rest if few[f.name]], few, seconds, warm=False)

    def again(self, chosen: list[Fault], words: list[str]) -> None:
        """Judge what was not found by tests as they are now."""
        shutil.copytree(
            self.root / "tests", self.tree / "tests", dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
        )
        rest = [f for f in chosen if self.verdict(f) in (SURVIVES, UNCOVERED, UNCLEAR)]
        self.start(rest, {f.name: words for f in rest}, dict.fromkeys(words, 60.0), warm=False)

    def start(self, faults: list[Fault], tests: dict[str, list[str]], seconds: dict[str, float], warm: bool) -> None:
        """Run a job to its end, or to that of the budget."""
        if not faults:
            return
        texts = self.texts()
        rows = [asdict(f) | {"name": f.name, "text": texts[f.file], "changed": f.apply(texts[f.file]), "tests": tests[f.name]}
                for f in faults]  # fmt: skip
        verdicts = self.work / "verdicts.jsonl"
        job = {
            "root": str(self.tree),
            "rows": rows,
            "seconds": seconds,
            "out": str(verdicts),
            "budget": self.budget,
            "warm": warm,
            "cpu": self.cpu,
        }
        (self.work / "job.json").write_text(json.dumps(job), "utf-8")
        with (self.work / f"log.{'warm' if warm else 'cold'}.txt").open("w") as log:
            command = [sys.executable, "-m", "mutations.judging", str(self.work / "job.json")]
            subprocess.run(command, cwd=self.tree, env=_environment(self.tree), stdout=log, stderr=log, check=False)
        self._take(verdicts)

    # -- which tests -------------------------------------------------------------------------------------------------

    def map(self) -> Path:
        """Which tests run which lines: made once, by running them."""
        path = self.work / "map.npz"
        if path.exists():
            return path
        marked, marks = self.work / "marked", Marks()
        if not marked.exists():
            self._copy(marked)
        for file, text in self.texts().items():
            (marked / file).write_text(marks.mark(file, text), "utf-8")
        (marked / "lightnet" / "_watched.py").write_text(MODULE.format(size=marks.size), "utf-8")
        (self.work / "lines.json").write_text(json.dumps({"lines": marks.lines, "files": marks.files}), "utf-8")
        _compile(marked)
        watching = self.work / "watching"
        shutil.rmtree(watching, ignore_errors=True)
        watching.mkdir()
        environment = _environment(marked) | {"WATCHING": str(watching), "WATCHING_CASES": str(CASES)}
        command = [sys.executable, "-m", "pytest", "-p", "mutations.watching", "-m", "not slow", "-q", "tests"]
        with (self.work / "map.txt").open("w") as log:
            subprocess.run(command, cwd=marked, env=environment, stdout=log, stderr=log, check=False)
        parts = [np.load(p) for p in sorted(watching.glob("map.*.npz"))]
        if not parts:
            sys.exit(f"no tests were run; see {self.work / 'map.txt'}")
        np.savez_compressed(
            path, **{k: np.concatenate([p[k] for p in parts]) for k in ("names", "passed", "seconds", "marks")}
        )
        shutil.rmtree(marked)
        return path

    # -- report ------------------------------------------------------------------------------------------------------

    def report(self, chosen: list[Fault]) -> int:
        """Print what was not found, and how many were."""
        self.save()
        for fault in chosen:
            verdict = self.verdict(fault)
            if verdict in (SURVIVES, UNCOVERED, UNCLEAR):
                print(
                    f"{fault.file}:{fault.line}: {verdict}: {fault.kind}: {show(fault.old)} -> {show(fault.new)}  [{fault.name}]"
                )
        counts = Counter(self.verdict(f) or "not judged" for f in chosen)
        judged = sum(counts[v] for v in (FOUND, SURVIVES, UNCOVERED, UNCLEAR))
        print(f"{len(chosen)} faults: {', '.join(f'{n} {v}' for v, n in counts.most_common())}")
        if judged:
            print(f"{100 * counts[FOUND] / judged:.1f} % of the {judged} that are judged and not equivalent were found")
        return 0 if counts[FOUND] + counts[EQUIVALENT] == len(chosen) else 1


class Tests:
    """The tests of a map, and which of them run a line."""

    def __init__(self, path: Path):
        data = np.load(path)
        lines = json.loads((path.parent / "lines.json").read_text("utf-8"))
        kept = data["passed"]
        self.names = data["names"][kept].tolist()
        self.costs = data["seconds"][kept]
        self.marks = data["marks"][kept]
        self.lines: dict[str, dict[str, int]] = lines["lines"]
        self.files: dict[str, list[int]] = lines["files"]
        self.seconds = dict(zip(self.names, self.costs.tolist()))

    def of(self, fault: Fault, cpu: float) -> list[str]:
        """The tests of a fault, in `cpu` seconds: those that run its line, or, if that runs at import alone, those that run most of
        its file."""
        mark = self.lines[fault.file].get(str(fault.line))
        if fault.function and mark is not None:
            hits = np.flatnonzero(self.marks[:, mark >> 3] & (0x80 >> (mark & 7)))
            return self._choose(hits[np.argsort(self.costs[hits], kind="stable")], cpu)
        first, last = self.files[fault.file]
        share = np.unpackbits(self.marks[:, first >> 3 : (last + 7) >> 3], axis=1).sum(1) / np.maximum(1, self.costs)
        hits = np.flatnonzero(share)
        return self._choose(hits[np.argsort(-share[hits], kind="stable")], cpu)

    def near(self, fault: Fault) -> list[str]:
        """Test functions, with all of their cases, that run most of a fault's file: for a line that no recorded case runs."""
        first, last = self.files[fault.file]
        share = np.unpackbits(self.marks[:, first >> 3 : (last + 7) >> 3], axis=1).sum(1)
        functions = (self.names[i].partition("[")[0] for i in np.argsort(-share, kind="stable").tolist() if share[i])
        return list(dict.fromkeys(functions))[:NEAR]

    def _choose(self, hits: np.ndarray, cpu: float) -> list[str]:
        """The first of each function, then the second, within the limits; the quickest at once."""
        rounds: dict[str, int] = defaultdict(int)
        order = []
        for rank, i in enumerate(hits.tolist()):
            function = self.names[i].partition("[")[0]
            order.append((rounds[function], rank, i))
            rounds[function] += 1
        chosen, total = [], 0.0
        for _, _, i in sorted(order):
            if chosen and (total + self.costs[i] > cpu or len(chosen) >= max(20, MOST * cpu)):
                continue
            chosen.append(self.names[i])
            total += float(self.costs[i])
        return chosen


def _compile(tree: Path) -> None:
    """Byte code that is used as long as its file is as it was, whatever the clock says."""
    compileall.compile_dir(
        tree / "lightnet", quiet=1, force=True, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH
    )


def _environment(tree: Path) -> dict[str, str]:
    path = os.pathsep.join([str(tree), str(ROOT / "tools")])
    return os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "OPENBLAS_NUM_THREADS": "1"}
