"""The process that judges faults: a pytest session that has collected all tests, and forks a child for each fault.

A child exchanges the code of the functions that the fault changes (*warm*), or, where that cannot be, imports everything
anew (*cold*), runs the fault's tests up to the first that fails, and says which. Limits on CPU time, wall time and memory are
those of the child. A test that fails without the fault, too, is not believed. ``python -m mutations.judging JOB`` is started
by `mutations.source`, one at a time.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

#: What a cold child need not import itself: nothing of the project.
BEFORE = (
    "numpy", "llvmlite.binding", "hypothesis", "xdsl.parser", "xdsl.printer", "xdsl.pattern_rewriter", "xdsl.passes",
    "xdsl.utils.arg_spec", "xdsl.transforms.dead_code_elimination", "xdsl.irdl.dominance",
    *(f"xdsl.dialects.{n}" for n in ("builtin", "func", "arith", "scf", "cf", "math", "memref", "vector", "tensor")),
)  # fmt: skip
#: Bytes of address space of a child.
MEMORY = 16 << 30
#: CPU seconds beyond those of the tests themselves, and how many times as long these may take.
GRACE, SLOWER = 30.0, 4.0


class Session:
    """The plugin: when all tests are collected, it judges the faults of a job instead of running the tests."""

    def __init__(self, job: Job):
        self.job = job
        self.failed: str | None = None

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.items = {item.nodeid: item for item in session.items}
        self.session = session
        functions: dict[str, list[FunctionType]] = {}
        gc.collect()
        for found in gc.get_objects():
            if isinstance(found, FunctionType) and found.__code__.co_filename.startswith(str(self.job.root)):
                functions.setdefault(found.__code__.co_filename, []).append(found)
        self.functions = functions
        gc.freeze()
        self.job.run(self.judge)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self.failed is None:
            self.failed = report.nodeid

    def judge(self, row: dict[str, Any], tests: list[str]) -> str | None:
        """In a child: the first test that fails with the fault of a row (None: none at all)."""
        if row:
            self.exchange(row)
        scratch = self.job.scratch()
        self.session.config._tmp_path_factory._given_basetemp = scratch / "tests"  # type: ignore[attr-defined]
        items = [self.items[t] for t in tests if t in self.items]
        for item, following in zip(items, [*items[1:], None]):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.failed is not None:
                break
        return self.failed

    def exchange(self, row: dict[str, Any]) -> None:
        """Give the functions that are there the code of the changed text."""
        path = str(self.job.root / row["file"])
        codes: dict[CodeType, CodeType] = {}
        old, new = (compile(row[k], path, "exec", dont_inherit=True) for k in ("text", "changed"))
        pair(old, new, codes)
        for function in self.functions.get(path, ()):
            if (new := codes.get(function.__code__)) is not None:
                function.__code__ = new


def pair(old: CodeType, new: CodeType, codes: dict[CodeType, CodeType]) -> None:
    """What each changed code in `old` is in `new`."""
    if old == new:
        return
    codes[old] = new
    inner = [[c for c in code.co_consts if isinstance(c, CodeType)] for code in (old, new)]
    if [c.co_qualname for c in inner[0]] != [c.co_qualname for c in inner[1]]:
        return  # what it defines is not made again, but by the new code
    for a, b in zip(*inner):
        pair(a, b, codes)


class Cold:
    """Judges in children that import everything, from the changed file."""

    def __init__(self, job: Job):
        self.job = job

    def judge(self, row: dict[str, Any], tests: list[str]) -> str | None:
        plugin = _First()
        words = ["-n", "0", "-q", "-x", "-p", "no:cacheprovider", f"--basetemp={self.job.scratch() / 'tests'}"]
        status = pytest.main([*words, *tests], plugins=[plugin])
        if status == 0:
            return None
        if plugin.failed is None and status in (pytest.ExitCode.NO_TESTS_COLLECTED, pytest.ExitCode.USAGE_ERROR):
            raise LookupError("the tests are not there")  # cases may be named by what is changed
        return plugin.failed or "collection"


class _First:
    failed: str | None = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self.failed is None:
            self.failed = report.nodeid


class Job:
    """A list of rows with their tests, from a file; the verdicts are appended to another as JSON lines."""

    def __init__(self, path: Path):
        data = json.loads(path.read_text("utf-8"))
        self.root = Path(data["root"])
        self.rows: list[dict[str, Any]] = data["rows"]
        self.seconds: dict[str, float] = data["seconds"]
        self.out = Path(data["out"])
        self.until = time.monotonic() + data["budget"]
        self.warm: bool = data["warm"]
        self.cpu: float = data["cpu"]
        self.trusted: dict[str, bool] = {}

    def scratch(self) -> Path:
        """A folder of the child."""
        return Path(os.environ["MUTANT_SCRATCH"])

    def run(self, judge: Callable[[dict[str, Any], list[str]], str | None]) -> None:
        """Judge each row in a child."""
        for row in self.rows:
            if time.monotonic() > self.until:
                break
            path = self.root / row["file"]
            start = time.monotonic()
            try:
                path.write_text(row["changed"], "utf-8")
                verdict, by = self.verdict(judge, row, path)
            finally:
                path.write_text(row["text"], "utf-8")
            found = {"name": row["name"], "verdict": verdict, "by": by, "ran": len(row["tests"]), "warm": self.warm, "cpu": self.cpu,
                     "wall": round(time.monotonic() - start, 1)}  # fmt: skip
            with self.out.open("a", encoding="utf-8") as f:
                f.write(json.dumps(found) + "\n")

    def verdict(self, judge: Callable, row: dict[str, Any], path: Path) -> tuple[str, str | None]:
        tests = list(row["tests"])
        while tests:
            verdict, by = self.child(judge, row, tests)
            if verdict != "found" or "::" not in by or self.trust(judge, by, path, row["text"], row["changed"]):
                return verdict, by
            if by not in tests:  # one of a file or function that was named
                return "unclear", by
            tests.remove(by)
        return "survives", None

    def trust(self, judge: Callable, test: str, path: Path, text: str, changed: str) -> bool:
        """Whether a test passes as the project is."""
        if test not in self.trusted:
            path.write_text(text, "utf-8")
            self.trusted[test] = self.child(judge, {}, [test])[0] == "survives"
            path.write_text(changed, "utf-8")
        return self.trusted[test]

    def child(self, judge: Callable, row: dict[str, Any], tests: list[str]) -> tuple[str, str | None]:
        """Verdict and test of one run in a process of its own."""
        limit = GRACE + SLOWER * sum(self.seconds.get(t, 1.0) for t in tests)
        scratch = self.root.parent / "scratch"
        scratch.mkdir(exist_ok=True)
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            self._inside(judge, row, tests, writing, limit, scratch)
        os.close(writing)
        try:
            if not select.select([reading], [], [], 4 * limit)[0]:
                return "found", "hangs"
            answer = os.read(reading, 1 << 16)
        finally:
            os.close(reading)
            _end(pid)
            shutil.rmtree(scratch, ignore_errors=True)
        if not answer:
            return "found", "dies"
        found = json.loads(answer)
        return found[0], found[1]

    def _inside(self, judge: Callable, row: dict, tests: list[str], writing: int, limit: float, scratch: Path) -> None:
        try:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_CPU, (int(limit), int(limit) + 1))
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            os.environ |= {"MUTANT_SCRATCH": str(scratch), "LIGHTNET_CACHE": str(scratch / "cache")}
            by = judge(row, tests)
            found = ["survives", None] if by is None else ["found", by]
        except BaseException as e:  # code that is changed may do anything
            found = ["unclear", f"{type(e).__name__}: {e}"[:300]]
        os.write(writing, json.dumps(found).encode())
        os._exit(0)


def _end(pid: int) -> None:
    """End a child, and what it started."""
    for end in (lambda: os.killpg(pid, signal.SIGKILL), lambda: os.kill(pid, signal.SIGKILL)):
        try:
            end()
        except ProcessLookupError:
            pass
    os.waitpid(pid, 0)


def main() -> None:
    job = Job(Path(sys.argv[1]))
    os.chdir(job.root)
    if not job.warm:
        for name in BEFORE:
            __import__(name)
        job.run(Cold(job).judge)
        return
    files = sorted({t.partition("::")[0] for row in job.rows for t in row["tests"]})
    pytest.main(["-n", "0", "-q", "-p", "no:cacheprovider", *files], plugins=[Session(job)])


if __name__ == "__main__":
    main()
