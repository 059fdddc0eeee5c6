"""Faults in the project's own lines, and whether its tests find them: ``tools/mutants.py --source``.

In a folder of its own (``--work``): `tree`, a copy of the project, and one more for each further process; `marked`, a copy
that notes which tests run which lines (`watching.py`) and compute something else where there is a fault (`probes.py`), used once; `map.npz`, what it noted (`covering.py`); `results.json`, a
verdict for each fault, from which an interrupted run goes on. A fault is judged by the tests that run its line, quickest
first and one of each test function before a second, up to `--cpu` seconds (`judging.py`), then for as long by the suites that
CI runs beside the tests (`ci_suites.py`); survivors are judged again where a run has more, and with `--rest` all of them at once by the tests
that those seconds did not reach.
"""

from __future__ import annotations

import compileall
import json
import os
import py_compile
import shutil
import subprocess
import sys
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from mutations import ci_suites
from mutations.carrying import carried_map, carry, holds
from mutations.covering import Tests, reading_source
from mutations.faults import Fault, faults, sample
from mutations.watching import WATCHED, Marks

ROOT = Path(__file__).resolve().parents[2]
#: What comes from this tree, the package and those that stand beside it.
PACKAGES = tuple(sorted(path.parent.name for path in ROOT.glob("lightnet*/__init__.py")))
COPIED = (*PACKAGES, "tests", "tools", "docs", "examples", "editors", "pyproject.toml", "README.md", "Makefile", "LICENSE",
          "NOTICE", "MANIFEST.in")  # fmt: skip
#: Tests that judge survivors cold: of those that ran warm, and of those that run most of the file.
COLD, COLD_NEAR = 30, 10
#: CPU seconds that all cases of a test function may take.
ALL_CASES = 60.0

FOUND, SURVIVES, UNCOVERED, UNCLEAR, EQUIVALENT = "found", "survives", "uncovered", "unclear", "equivalent"


def main(args: Namespace) -> int:
    """Judge what is not judged yet, print the table; the status is 1 if a fault survives."""
    run = Run((args.work or ROOT / "build" / "mutants").resolve(), args.budget, jobs=args.jobs)
    run.cpu, run.rest = args.cpu, args.rest
    chosen = run.carry(args.carry, args.count, args.seed) if args.carry else sample(run.texts(), args.count, args.seed)
    run.remember(chosen, args.seed)
    chosen = [f for f in chosen if args.files in f.file and f.within != "samples"]
    for name, why in args.equivalent:
        run.note(name, why)
    if args.unnoticed:
        run.unnoticed(args.files)
        return 0
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

    def __init__(self, work: Path, budget: float, root: Path = ROOT, jobs: int = 1):
        self.work, self.budget, self.root, self.cpu, self.rest = work, budget, root, 20.0, 0.0
        self.trees = [work / (f"tree{i}" if i else "tree") for i in range(max(1, jobs))]
        self.tree, self.results_path = self.trees[0], work / "results.json"
        work.mkdir(parents=True, exist_ok=True)
        if not self.tree.exists():
            self._copy(self.tree)
        self.carried: Path | None = None
        self.results: dict[str, dict[str, Any]] = {}
        if self.results_path.exists():
            self.results = json.loads(self.results_path.read_text("utf-8"))
        for job in sorted(work.glob("job.*.json")):
            self._mend(job)
        for verdicts in sorted(work.glob("verdicts.*.jsonl")):
            self._take(verdicts)

    def texts(self) -> dict[str, str]:
        """The packages' files in the copy."""
        return texts(self.tree, *PACKAGES)

    def _mend(self, job: Path) -> None:
        """Take the faults out of the copy that a job left there when it was killed."""
        data = json.loads(job.read_text("utf-8"))
        for row in data["rows"]:
            path = Path(data["root"]) / row["file"]
            if path.read_text("utf-8") != row["text"]:
                path.write_text(row["text"], "utf-8")

    # -- results -----------------------------------------------------------------------------------------------------

    def _take(self, path: Path) -> None:
        """Add the verdicts of a job, also of one that was interrupted."""
        for line in path.read_text("utf-8").splitlines():
            row = json.loads(line)
            found = self.results.setdefault(row["name"], {})
            found.update(row, tests=found.get("tests", []) + row.get("tests", []))
        path.unlink()
        self.save()

    def save(self) -> None:
        self.results_path.write_text(json.dumps(self.results, indent=1), "utf-8")

    def note(self, name: str, why: str) -> None:
        """Say of a fault that it changes nothing that a test could see."""
        self.results.setdefault(name, {"name": name}).update(verdict=EQUIVALENT, why=why)
        self.save()

    def carry(self, work: Path, count: int, seed: int) -> list[Fault]:
        """The sample of another folder's copy as it is in this one, and its verdicts that still hold, where none is known here; the
        map comes along. What that folder carried itself is its sample."""
        self.carried = work
        old, new = (texts(tree, *PACKAGES, "tests") for tree in (work / "tree", self.tree))
        results = json.loads((work / "results.json").read_text("utf-8"))
        if (path := work / f"sample.{seed}.json").exists():
            faults = [Fault(**row) for row in json.loads(path.read_text("utf-8"))]
        else:
            faults = sample({n: t for n, t in old.items() if n.startswith("lightnet")}, count, seed)
        moved = carry(faults, old, new)
        for fault, here in moved.items():
            result = results.get(fault.name, {})
            if here.name not in self.results and holds(result, fault, here, old, new):
                self.results[here.name] = result | {"name": here.name, "carried": True}
        self.save()
        print(
            f"{len(moved)} of {len(faults)} faults are carried, with {sum('carried' in r for r in self.results.values())} verdicts"
        )
        return list(moved.values())

    def remember(self, chosen: list[Fault], seed: int) -> None:
        """Keep the sample, for those who carry it on."""
        (self.work / f"sample.{seed}.json").write_text(json.dumps([asdict(f) for f in chosen], indent=1), "utf-8")

    def verdict(self, fault: Fault) -> str | None:
        return self.results.get(fault.name, {}).get("verdict")

    def _copy(self, to: Path) -> None:
        for name in COPIED:
            source = self.root / name
            if source.is_dir():
                _copy_folder(source, to / name)
            elif source.exists():
                to.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, to / name)
        ci_suites.place(self.root, self.work, to)
        _compile(to)

    def is_pending(self, fault: Fault) -> bool:
        """Return whether it is not judged yet, or survived less time than it may have now."""
        found = self.results.get(fault.name, {})
        return "verdict" not in found or (found["verdict"] == SURVIVES and found.get("cpu", 0) < self.cpu)

    # -- judging -----------------------------------------------------------------------------------------------------

    def judge(self, chosen: list[Fault]) -> None:
        """By the recorded tests: warm, and cold what is not decided by that."""
        tests = Tests(self.map(), self.texts())
        pending = [f for f in chosen if self.is_pending(f)]
        picked: dict[str, list[str]] = {}
        for fault in pending:
            found = self.results.setdefault(fault.name, {"name": fault.name})
            passed = set(found.get("tests", ()))
            picked[fault.name] = [t for t in tests.of(fault, self.cpu) if t not in passed]
            if not picked[fault.name] and not passed:
                found["verdict"] = SURVIVES if tests.runs(fault) else UNCOVERED
        self.start([f for f in pending if f.function and picked[f.name]], picked, tests.seconds, warm=True)
        rest = [f for f in chosen if self.verdict(f) == UNCLEAR and self.results[f.name].get("warm")]
        rest += [f for f in chosen if not f.function and f in pending and picked[f.name]]
        rest += [f for f in chosen if self.verdict(f) == SURVIVES and self.results[f.name].get("warm")]
        reading = [] if all(f.function for f in rest) else self._passing(reading_source(texts(self.tree, "tests")))
        few = {f.name: tests.imported(f, self.cpu, COLD, COLD_NEAR) + (not f.function) * reading for f in rest}
        rest += (unseen := [f for f in chosen if self.verdict(f) == UNCOVERED and not self.results[f.name].get("ran")])
        few |= {f.name: tests.near(f) for f in unseen}
        seconds = dict.fromkeys((t for names in few.values() for t in names or ()), ALL_CASES) | tests.seconds
        self.start([f for f in rest if few[f.name]], few, seconds, warm=False)
        if self.rest:
            self.judge_rest(chosen, tests)

    def _passing(self, functions: list[str]) -> list[str]:
        """Of test functions of the copy those that pass there with all of their cases."""
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rfE", *functions]
        run = subprocess.run(
            command, cwd=self.tree, env=_environment(self.tree), capture_output=True, text=True, check=False
        )
        failed = [line.split()[1] for line in run.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
        return [f for f in functions if not any(name.partition("[")[0] == f for name in failed)]

    def judge_rest(self, chosen: list[Fault], tests: Tests) -> None:
        """Ask survivors of the tests that their seconds did not reach: of all survivors at once."""
        for warm in (True, False):
            left = [f for f in chosen if self.verdict(f) == SURVIVES and f.function == warm]
            left = [f for f in left if self.results[f.name].get("rest", 0) < self.rest]
            picked = tests.rest({f: set(self.results[f.name].get("tests", ())) for f in left}, self.rest)
            reach: dict[str, list[str]] = {f.name: [] for f in left}
            for test, names in picked.items():
                for name in names:
                    reach[name].append(test)
            start = time.monotonic()
            if picked:
                self.start(left, reach, tests.seconds, warm, list(picked))
            if time.monotonic() - start < self.budget:  # else it was cut short
                for fault in left:
                    self.results[fault.name]["rest"] = self.rest
            self.save()

    def again(self, chosen: list[Fault], words: list[str]) -> None:
        """Judge what was not found by tests as they are now."""
        for tree in self.trees:
            if tree.exists():
                _copy_folder(self.root / "tests", tree / "tests")
        rest = [f for f in chosen if self.verdict(f) in (SURVIVES, UNCOVERED, UNCLEAR)]
        self.start(rest, {f.name: words for f in rest}, dict.fromkeys(words, 60.0), warm=False)

    def start(self, chosen: list[Fault], tests: dict[str, list[str]], seconds: dict[str, float], warm: bool,
              together: Sequence[str] = ()) -> None:  # fmt: skip
        """Run a job in each copy, to its end or to that of the budget; each has a part of the faults, or all of them and a part of the tests
        that judge them `together`."""
        if not chosen:
            return
        before = self.texts()
        rows = [asdict(f) | {"name": f.name, "text": before[f.file], "changed": f.apply(before[f.file]), "tests": tests[f.name]}
                for f in chosen]  # fmt: skip
        running = []
        for i, tree in enumerate(self.trees[: len(together) or len(rows)]):
            if not tree.exists():
                _copy_folder(self.tree, tree)
                _compile(tree)
            verdicts, path = self.work / f"verdicts.{i}.jsonl", self.work / f"job.{i}.json"
            job = {"root": str(tree), "rows": rows if together else rows[i :: len(self.trees)], "seconds": seconds, "out": str(verdicts),
                   "budget": self.budget, "warm": warm, "cpu": self.cpu, "together": together[i :: len(self.trees)]}  # fmt: skip
            path.write_text(json.dumps(job), "utf-8")
            with (self.work / f"log.{'warm' if warm else 'cold'}.{i}.txt").open("w") as log:
                command = [sys.executable, "-m", "mutations.judging", str(path)]
                judge = subprocess.Popen(command, cwd=tree, env=_environment(tree), stdout=log, stderr=log)
            running.append((judge, verdicts))
        for judge, verdicts in running:
            judge.wait()
            if verdicts.exists():
                self._take(verdicts)

    def unnoticed(self, files: str) -> None:
        """Print every fault that no test can notice: none runs its line, or those that do compute the same with it."""
        tests = Tests(self.map(), self.texts())
        for file, text in self.texts().items():
            for fault in faults(file, text) if files in file else ():
                if fault.within != "samples" and not tests.notices(fault):
                    why = "the same" if tests.runs(fault) else "not run"
                    print(
                        f"{file}:{fault.line}: {why}: {fault.within}: {fault.kind}: {show(fault.old)} -> {show(fault.new)}"
                    )

    # -- which tests -------------------------------------------------------------------------------------------------

    def map(self) -> Path:
        """The map of which tests run which lines: made once, by running them."""
        path = self.work / "map.npz"
        if path.exists():
            return path
        marked, marks = self.work / "marked", Marks()
        if not marked.exists():
            self._copy(marked)
        for file, text in self.texts().items():
            (marked / file).write_text(marks.mark(file, text), "utf-8")
        (marked / "lightnet" / "_watched.py").write_text(marks.module(), "utf-8")
        watched = {"lines": marks.lines, "files": marks.files, "probes": marks.probes, "tests": _digests(self.tree)}
        (self.work / "lines.json").write_text(json.dumps(watched), "utf-8")
        _compile(marked)
        parts = self._carried_map(marks)
        known = {n.partition("::")[0] for part in parts for n in part["names"].tolist()}
        files = [n for n in texts(self.tree, "tests") if Path(n).name.startswith("test_") and n not in known]
        parts += self._watch(marked, files) if files else []
        if not parts:
            sys.exit(f"no tests were run; see {self.work / 'map.txt'}")
        np.savez_compressed(
            path, **{k: np.concatenate([p[k] for p in parts]) for k in ("names", "passed", "seconds", "marks")}
        )
        for folder in (marked, self.work / "watching"):
            shutil.rmtree(folder, ignore_errors=True)
        return path

    def _carried_map(self, marks: Marks) -> list[dict[str, np.ndarray]]:
        """The part of another folder's map that speaks of tests that are as they were."""
        if self.carried is None or not (self.carried / "map.npz").exists():
            return []
        old, new = (texts(tree, *PACKAGES) for tree in (self.carried / "tree", self.tree))
        watched = json.loads((self.carried / "lines.json").read_text("utf-8"))
        now = {digest: name for name, digest in _digests(self.tree).items()}
        same = {name: now[digest] for name, digest in watched.get("tests", {}).items() if digest in now}
        return [
            carried_map(np.load(self.carried / "map.npz"), watched["lines"], watched["probes"], marks, old, new, same)
        ]

    def _watch(self, marked: Path, files: list[str]) -> list[Any]:
        """Run the tests of files in the marked copy, but for those that an earlier run has noted: the parts of the map."""
        watching = self.work / "watching"
        watching.mkdir(exist_ok=True)
        known = [name for path in watching.glob("map.*.npz") for name in np.load(path)["names"].tolist()]
        (watching / WATCHED).write_text(json.dumps(known), "utf-8")
        environment = _environment(marked) | {"WATCHING": str(watching)}
        command = [sys.executable, "-m", "pytest", "-p", "mutations.watching", "-m", "not slow", "-q", *files]
        with (self.work / "map.txt").open("w") as log:
            subprocess.run(command, cwd=marked, env=environment, stdout=log, stderr=log, check=False)
        return [np.load(p) for p in sorted(watching.glob("map.*.npz"))]

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


def texts(tree: Path, *folders: str) -> dict[str, str]:
    """The Python files of folders, by path in their tree."""
    paths = [p for folder in folders for p in sorted((tree / folder).rglob("*.py"))]
    return {str(p.relative_to(tree)): p.read_text("utf-8") for p in paths}


def _digests(tree: Path) -> dict[str, str]:
    """The digest of the text that each file of tests has; `--again` brings later ones into the copy."""
    return {name: sha256(text.encode()).hexdigest() for name, text in texts(tree, "tests").items()}


def _copy_folder(source: Path, to: Path) -> None:
    shutil.copytree(source, to, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))


def _compile(tree: Path) -> None:
    """Byte code that is used as long as its file is as it was, whatever the clock says."""
    mode = py_compile.PycInvalidationMode.CHECKED_HASH
    for package in PACKAGES:
        compileall.compile_dir(tree / package, quiet=1, force=True, invalidation_mode=mode)


def _environment(tree: Path) -> dict[str, str]:
    path = os.pathsep.join([str(tree), str(ROOT / "tools")])
    return os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "OPENBLAS_NUM_THREADS": "1"}
