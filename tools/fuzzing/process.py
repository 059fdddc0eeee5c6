"""Processes that run cases under limits, one after the other, and a pool of them that survives what a case does.

A case is a target's name and a number; all else follows. `worker` reads cases, a line of JSON each, and answers with an `Outcome`. What a case may not
do: raise anything but `LightNetError`, take more CPU time or memory than it is given, or end the process.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import resource
import selectors
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

#: CPU seconds and bytes of memory that one case may take.
SECONDS, BYTES = 10, 1 << 30
#: Seconds without an answer after which a process is ended: it hangs where no signal reaches it, or waits.
SILENCE = 120


class Fault(AssertionError):
    """A fault that a target has found itself: a wrong value, a form that does not read back. The first line of its
    message is what faults are told apart by.
    """


class Hang(BaseException):
    """A case has taken its CPU time."""


class Target(Protocol):
    """A target that can be fuzzed. `make` gives the file of a case, `run` says in a word what became of it."""

    name: str
    suffix: str

    def make(self, seed: int) -> bytes: ...
    def run(self, data: bytes, path: Path, seen: dict[str, list[str]]) -> str: ...


@dataclass
class Outcome:
    """The outcome of a case: a word, or a `fault` with its kind and place (`signature`); what it covered, by kind of
    thing; what it took.
    """

    word: str
    seconds: float = 0.0
    bytes: int = 0
    fault: str = ""
    signature: str = ""
    covered: dict[str, list[str]] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Short and the same for equal signatures: part of a file's name."""
        return hashlib.sha1(self.signature.encode()).hexdigest()[:10]


def judged(target: Target, data: bytes, path: Path) -> Outcome:
    """The outcome of a file, in this process."""
    covered: dict[str, list[str]] = {}
    path.write_bytes(data)
    _reset_peak()
    before, start = _status("VmRSS"), time.process_time()
    resource.setrlimit(resource.RLIMIT_DATA, (_status("VmData") + 2 * BYTES, resource.RLIM_INFINITY))
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        outcome = Outcome(target.run(data, path, covered))
    except Hang:
        outcome = Outcome(
            "hang", fault=traceback.format_exc(), signature=f"hang {_place(traceback.extract_tb(sys.exc_info()[2]))}"
        )
    except BaseException as e:
        what = "memory" if isinstance(e, MemoryError) else "wrong" if isinstance(e, Fault) else "crash"
        where = (
            _without_details(str(e).split("\n", 1)[0])
            if isinstance(e, Fault)
            else _place(traceback.extract_tb(e.__traceback__))
        )
        outcome = Outcome(what, fault=traceback.format_exc(), signature=f"{type(e).__name__} {where}")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    outcome.seconds, outcome.covered = time.process_time() - start, covered
    outcome.bytes = max(0, _status("VmHWM") - before)
    if not outcome.fault and outcome.bytes > BYTES:
        outcome.word, outcome.signature = "memory", f"memory {outcome.word}"
        outcome.fault = f"it took {outcome.bytes >> 20} MiB"
    return outcome


def _place(stack: traceback.StackSummary) -> str:
    """The innermost line of the package in a traceback."""
    ours = [f for f in stack if "/lightnet/" in f.filename] or list(stack)
    return f"{ours[-1].filename.rpartition('/lightnet/')[2]}:{ours[-1].name}" if ours else "?"


def _without_details(text: str) -> str:
    return re.sub(r"'[^']*'|\"[^\"]*\"|-?\d[\d.e+-]*", "_", text)[:300]


def _status(name: str) -> int:
    """A line of /proc/self/status, in bytes."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(f"{name}:"))


def _reset_peak() -> None:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pass


def worker(find: Callable[[str], Target], scratch: Path) -> None:
    """Answer cases until stdin ends."""

    def stop(signum: int, frame: Any) -> None:
        raise Hang

    signal.signal(signal.SIGPROF, stop)
    out, sys.stdout = sys.stdout, sys.stderr  # what a network prints is no answer
    for line in sys.stdin:
        name, seed = json.loads(line)
        target = find(name)
        try:
            data = target.make(seed)
        except Exception:  # the generator's own fault: said like one of a case
            outcome = Outcome("not made", fault=traceback.format_exc(), signature=f"{name} cannot make a case")
        else:
            outcome = judged(target, data, scratch / f"case{target.suffix}")
        print(json.dumps(asdict(outcome)), file=out, flush=True)


def wants_processor(pid: int) -> bool:
    """Return whether a thread of a process could go on if it got a processor. False where the system does not say."""
    states = []
    for path in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(OSError):  # a thread that has ended
            states.append(path.read_text().rpartition(")")[2].split()[0])
    return "R" in states


def cpu_seconds(pid: int) -> float:
    """The CPU time that a process has used; 0 where the system does not say."""
    with suppress(OSError):
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


class Worker:
    """A process that runs `worker`, and the case that it is at."""

    def __init__(self, command: list[str], scratch: Path):
        self.command, self.scratch = command, scratch
        scratch.mkdir(parents=True, exist_ok=True)
        self.case: tuple[str, int] | None = None
        self.since = self.used = 0.0
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [*self.command, str(self.scratch)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def give(self, case: tuple[str, int]) -> None:
        self.case, self.since, self.used = case, time.monotonic(), cpu_seconds(self.process.pid)
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(case) + "\n")
        self.process.stdin.flush()

    def is_starved(self) -> bool:
        """Return whether it has had next to no time for its case, and wants a processor: a busy machine may give none for minutes."""
        return wants_processor(self.process.pid) and cpu_seconds(self.process.pid) - self.used < 2 * SECONDS

    def answer(self) -> Outcome:
        """The outcome that it has written; that of a process that has ended is a fault."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if line:
            return Outcome(**json.loads(line))
        status = self.process.wait()
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
        return Outcome("ended", fault=f"the process ended with {how}", signature=f"ended with {how}")

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


def outcomes(
    cases: Iterable[tuple[str, int]], command: list[str], scratch: Path, jobs: int
) -> Iterator[tuple[tuple[str, int], Outcome]]:
    """The outcome of each case, as they come; a process that has ended or is silent is replaced."""
    waiting = iter(cases)
    workers = [Worker(command, scratch / str(i)) for i in range(jobs)]
    selector = selectors.DefaultSelector()

    def feed(one: Worker) -> bool:
        case = next(waiting, None)
        if case is None:
            return False
        one.give(case)
        selector.register(one.process.stdout, selectors.EVENT_READ, one)  # type: ignore[arg-type]
        return True

    try:
        busy = sum(feed(one) for one in workers)
        while busy:
            ready = [key.data for key, _ in selector.select(timeout=5)]
            late = [w for w in workers if w.case and w not in ready and time.monotonic() - w.since > SILENCE]
            silent = [w for w in late if not w.is_starved()]
            for one in ready + silent:
                selector.unregister(one.process.stdout)
                found = (
                    one.answer()
                    if one in ready
                    else Outcome("hang", fault=f"no answer in {SILENCE} s", signature="hang, silent")
                )
                case, one.case = one.case, None
                if found.word == "ended" or one in silent:
                    one.end()
                    one.start()
                assert case is not None
                yield case, found
                busy -= not feed(one)
    finally:
        selector.close()
        for one in workers:
            one.end()
