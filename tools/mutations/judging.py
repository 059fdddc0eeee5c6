"""The process that judges faults: a pytest session that has collected all tests, and forks a child for each fault.

A child exchanges the code of the functions that the fault changes (*warm*), or, where that cannot be, imports everything
anew (*cold*), runs the fault's tests up to the first that fails, and says which. CPU time of each test, wall time and memory
are bounded. A test that fails, dies or hangs without the fault, too, is not believed. Where few faults are left and many tests, a child has all
of them at once (*together*): what passes then finds none of them, and what fails is asked of each. ``python -m mutations.judging JOB`` is
started by `mutations.source`, one for each copy of the project.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import pytest

#: What a cold child need not import itself: nothing of the project.
BEFORE = (
    "numpy", "llvmlite.binding", "hypothesis", "xdsl.parser", "xdsl.printer", "xdsl.pattern_rewriter", "xdsl.passes",
    "xdsl.utils.arg_spec", "xdsl.transforms.dead_code_elimination", "xdsl.irdl.dominance",
    *(f"xdsl.dialects.{n}" for n in ("builtin", "func", "arith", "scf", "cf", "math", "memref", "vector", "tensor")),
)  # fmt: skip
#: Bytes of address space of a child.
MEMORY = 16 << 30
#: CPU seconds of a child beyond those of its test, and how many times as long that may take; wall seconds for a CPU second,
#: those in which a child that waits has to use some, and those after which one looks.
GRACE, SLOWER, BUSY, IDLE, TURN = 8.0, 4.0, 20.0, 60.0, 5.0


class Answer(NamedTuple):
    """The answer of a child: the verdict, the test that it is from (None: before any), and how that one failed."""

    verdict: str
    by: str | None
    how: str | None


#: CPU seconds of tests that one child runs with the faults of all rows.
BATCH = 30.0
#: Exchanges a row's code and runs tests: the first that fails (None: none at all).
Judge = Callable[[dict[str, Any], list[str]], str | None]
#: What fails where tests cannot be collected.
COLLECTION = "collection"


class Reporter:
    """A plugin that says which test begins, and keeps the first that failed."""

    failed: str | None = None
    configured = False

    def __init__(self, job: Job):
        self.job = job

    def pytest_configure(self) -> None:
        self.configured = True

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.job.begin(nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and self.failed is None:  # a module that cannot be imported; its tests are "not found" then
            self.failed = COLLECTION

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self.failed is None:
            self.failed = report.nodeid


class Session(Reporter):
    """The plugin: when all tests are collected, it judges the faults of a job instead of running the tests."""

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.items = {item.nodeid: item for item in session.items}
        self.session = session
        functions: dict[str, list[FunctionType]] = {}
        gc.collect()
        gc.unfreeze()  # what tests froze is not listed
        for found in gc.get_objects():
            if isinstance(found, FunctionType) and found.__code__.co_filename.startswith(str(self.job.root)):
                functions.setdefault(found.__code__.co_filename, []).append(found)
        self.functions = functions
        gc.freeze()
        self.job.run(self.judge)
        return True

    def judge(self, row: dict[str, Any], tests: list[str]) -> str | None:
        """In a child: the first test that fails with the fault of a row (None: none at all)."""
        for part in row.get("parts", [row] if row else []):
            self.exchange(part, whole="parts" not in row)
        scratch = self.job.scratch()
        self.session.config._tmp_path_factory._given_basetemp = scratch / "tests"  # type: ignore[attr-defined]
        items = [self.items[t] for t in tests if t in self.items and t not in self.job.distrusted]
        for item, following in zip(items, [*items[1:], None]):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.failed is not None:
                break
        return self.failed

    def exchange(self, row: dict[str, Any], whole: bool = True) -> None:
        """Give the functions that are there the code of the changed text. A function whose code reads other variables of
        those around it cannot have it: ValueError, unless this is not to be the `whole` of it."""
        path = str(self.job.root / row["file"])
        codes: dict[CodeType, CodeType] = {}
        old, new = (compile(row[k], path, "exec", dont_inherit=True) for k in ("text", "changed"))
        pair(old, new, codes)
        for function in self.functions.get(path, ()):
            if (new := codes.get(function.__code__)) is not None and (
                whole or new.co_freevars == function.__code__.co_freevars
            ):
                function.__code__ = new


def pair(old: CodeType, new: CodeType, codes: dict[CodeType, CodeType]) -> None:
    """Pair each changed code in `old` with the one that it is in `new`."""
    if old == new:
        return
    codes[old] = new
    inner = [[c for c in code.co_consts if isinstance(c, CodeType)] for code in (old, new)]
    if [c.co_qualname for c in inner[0]] != [c.co_qualname for c in inner[1]]:
        return  # what it defines is not made again, but by the new code
    for a, b in zip(*inner):
        pair(a, b, codes)


def united(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The files of rows with all of their faults; of two that overlap, the latter."""
    files: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        files.setdefault(row["file"], []).append(row)
    parts = []
    for file, of in files.items():
        data, before = of[0]["text"].encode(), sys.maxsize
        for row in sorted(of, key=lambda row: -row["start"]):
            if row["end"] <= before:
                data, before = data[: row["start"]] + row["new"].encode() + data[row["end"] :], row["start"]
        parts.append({"file": file, "text": of[0]["text"], "changed": data.decode()})
    return parts


class Cold:
    """Judges in children that import everything, from the changed file."""

    def __init__(self, job: Job):
        self.job = job

    def judge(self, row: dict[str, Any], tests: list[str]) -> str | None:
        plugin = Reporter(self.job)
        words = ["-n", "0", "-q", "-x", "-p", "no:cacheprovider", f"--basetemp={self.job.scratch() / 'tests'}"]
        words += [f"--deselect={t}" for t in sorted(self.job.distrusted)]
        status = pytest.main([*words, *tests], plugins=[plugin])
        if status == 0:
            return None
        if not plugin.configured:  # conftest.py cannot be imported
            return COLLECTION
        if plugin.failed is None and status in (pytest.ExitCode.NO_TESTS_COLLECTED, pytest.ExitCode.USAGE_ERROR):
            raise LookupError("the tests are not there")  # cases may be named by what is changed
        return plugin.failed or COLLECTION


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
        self.together: list[str] = data.get("together", [])
        self.cpu: float = data["cpu"]
        self.trusted: dict[str, bool] = {}
        self.distrusted: set[str] = set()
        self.pipe = -1

    def scratch(self) -> Path:
        """A folder of the child."""
        return Path(os.environ["MUTANT_SCRATCH"])

    def run(self, judge: Judge) -> None:
        """Judge each row in a child, or all together."""
        if self.together:
            self.run_together(judge)
            return
        for row in self.rows:
            if time.monotonic() > self.until:
                break
            path = self.root / row["file"]
            start = time.monotonic()
            with self.changed([row]):
                answer = self.verdict(judge, row, path)
            self.write(row, answer, row["tests"], time.monotonic() - start)

    def write(self, row: dict[str, Any], answer: Answer, tests: list[str], wall: float) -> None:
        """Append what became of a row that `tests` have judged."""
        verdict, by, how = answer
        found = {"name": row["name"], "verdict": verdict, "by": by, "how": how, "ran": len(tests), "warm": self.warm, "cpu": self.cpu,
                 "wall": round(wall, 1)}  # fmt: skip
        if verdict == "survives":
            found["tests"] = tests
        with self.out.open("a", encoding="utf-8") as f:
            f.write(json.dumps(found) + "\n")

    @contextmanager
    def changed(self, rows: list[dict[str, Any]]) -> Iterator[None]:
        """Files as rows change them."""
        try:
            for row in rows:
                (self.root / row["file"]).write_text(row["changed"], "utf-8")
            yield
        finally:
            for row in rows:
                (self.root / row["file"]).write_text(row["text"], "utf-8")

    # -- together ----------------------------------------------------------------------------------------------------

    def run_together(self, judge: Judge) -> None:
        """Run the tests of `together` with the faults of all rows; each row that one of them finds is written."""
        left, tests = list(self.rows), list(self.together)
        reach = {row["name"]: set(row["tests"]) for row in left}
        while left and tests and time.monotonic() < self.until:
            batch, tests = self.batch(tests)
            batch = [t for t in batch if any(t in reach[row["name"]] for row in left)]
            if not batch:
                continue
            parts = united(left)
            with self.changed(parts):
                verdict, by, _ = self.child(judge, {"parts": parts}, batch)
            if verdict == "survives":
                continue
            if by not in batch:  # it ended before any test, or between two: these are asked one by one
                by = batch[0]
            tests = batch[batch.index(by) + 1 :] + tests
            for row in [row for row in left if by in reach[row["name"]]]:
                start = time.monotonic()
                with self.changed([row]):
                    answer = self.verdict(judge, row | {"tests": [by]}, self.root / row["file"])
                if answer.verdict == "found":
                    self.write(row, answer, [by], time.monotonic() - start)
                    left.remove(row)

    def batch(self, tests: list[str]) -> tuple[list[str], list[str]]:
        """The first tests, of some seconds, and the others."""
        total, end = 0.0, 0
        while end < len(tests) and total < BATCH:
            total += self.seconds.get(tests[end], 1.0)
            end += 1
        return tests[:end], tests[end:]

    def verdict(self, judge: Judge, row: dict[str, Any], path: Path) -> Answer:
        """Verdict, the test that it is from, and how that one failed."""
        while tests := [t for t in row["tests"] if t not in self.distrusted]:
            answer = verdict, by, _ = self.child(judge, row, tests)
            if verdict != "found":
                return answer
            path.write_text(row["text"], "utf-8")
            trusted = self.trust(judge, by, tests)
            path.write_text(row["changed"], "utf-8")
            if trusted:
                return answer
            if by is None or by == COLLECTION or by in self.distrusted:
                return Answer("unclear", by, "without the fault, too")
            self.distrusted.add(by)
        return Answer("survives", None, None)

    def trust(self, judge: Judge, test: str | None, tests: list[str]) -> bool:
        """Return whether a test passes as the project is; or, if that is collection or a death before any, one test of
        each file.
        """
        if test is None or test == COLLECTION:
            few = {t.partition("::")[0]: t for t in reversed(tests)}.values()
            return self.child(judge, {}, list(few)).verdict == "survives"
        if test not in self.trusted:
            self.trusted[test] = self.child(judge, {}, [test]).verdict == "survives"
        return self.trusted[test]

    # -- children ----------------------------------------------------------------------------------------------------

    def child(self, judge: Judge, row: dict[str, Any], tests: list[str]) -> Answer:
        """Verdict and test of one run in a process of its own."""
        scratch = self.root.parent / f"scratch.{self.root.name}"
        scratch.mkdir(exist_ok=True)
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(reading)
                self.pipe = writing
                self._inside(judge, row, tests, scratch)
            finally:  # whatever came out of it, and in whichever process of its making: there is one judge
                os._exit(0)
        os.close(writing)
        try:
            return self._follow(pid, reading)
        finally:
            os.close(reading)
            _end(pid)
            shutil.rmtree(scratch, ignore_errors=True)

    def _inside(self, judge: Judge, row: dict, tests: list[str], scratch: Path) -> None:
        self.child_id = os.getpid()
        try:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            self.begin(None)
            os.environ |= {"MUTANT_SCRATCH": str(scratch), "LIGHTNET_CACHE": str(scratch / "cache")}
            by = judge(row, tests)
            answer = Answer("survives", None, None) if by is None else Answer("found", by, "fails")
        except BaseException as e:  # code that is changed may do anything
            answer = Answer("unclear", None, f"{type(e).__name__}: {e}"[:300])
        self._say(answer)

    def begin(self, test: str | None) -> None:
        """In a child: say that a test begins, which has its own CPU seconds."""
        if os.getpid() == self.child_id:
            limit = time.process_time() + self.limit(test)
            resource.setrlimit(resource.RLIMIT_CPU, (int(limit) + 1, resource.RLIM_INFINITY))
            self._say(test)

    def _say(self, words: Any) -> None:
        if os.getpid() == self.child_id:
            os.write(self.pipe, json.dumps(words).encode() + b"\n")

    def limit(self, test: str | None) -> float:
        """CPU seconds of a test."""
        return GRACE + SLOWER * self.seconds.get(test or "", 1.0)

    def _follow(self, pid: int, reading: int) -> Answer:
        """The last answer of a child; or what became of it, and in which test."""
        at, text, used = None, b"", 0.0
        since = busy = time.monotonic()
        while True:
            if not select.select([reading], [], [], TURN)[0]:
                now, before = time.monotonic(), used
                used = _session_seconds(pid)
                busy = now if used != before else busy
                if now - busy > IDLE or now - since > BUSY * self.limit(at):
                    return Answer("found", at, "hangs")
                continue
            part = os.read(reading, 1 << 16)
            if not part:
                return Answer("found", at, "dies")
            since = busy = time.monotonic()
            *lines, text = (text + part).split(b"\n")
            for line in map(json.loads, lines):
                if isinstance(line, list):
                    return Answer(*line)
                at = line


def _session_seconds(leader: int) -> float:
    """CPU time of the processes of a session, up to now."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if int(fields[3]) == leader:
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


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
