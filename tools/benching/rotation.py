"""Engines side by side: one process each, and slices of time in turn, so that what disturbs the machine disturbs all alike.

Imports the standard library and the order of turns.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lightnet_bench.rotation import order

WORKER = Path(__file__).with_name("worker.py")
#: Seconds after which a worker that says nothing has failed.
TIMEOUT = 900.0
OURS, PEAK = "lightnet", "peak"
PEERS = ("onnxruntime", "openvino")


class WorkerError(Exception):
    """A worker failed; the text is fit to be shown."""


def installed(engines: Sequence[str]) -> list[str]:
    """Those of the engines that can be imported here."""
    return [e for e in engines if e in (OURS, PEAK) or find_spec(e) is not None]


def cores(threads: int) -> list[int]:
    """The cores for so many threads: the last ones of this process's (the first serves most interrupts)."""
    if not hasattr(os, "sched_getaffinity"):
        return list(range(min(threads, os.cpu_count() or 1)))
    return sorted(os.sched_getaffinity(0))[-threads:]


class Worker:
    """A process with an engine; `start` is what it took to load the network and call it once."""

    def __init__(self, job: Mapping[str, Any], timeout: float = TIMEOUT):
        self.timeout = timeout
        self.buffer = b""
        job = {**job, "cores": cores(job["threads"]), "spawned": time.monotonic()}
        environment = {**os.environ, "LIGHTNET_CACHE": job.get("cache", "off")}
        # Installed packages, as the peers are, come with bytecode; a checkout has it from the second start on, unless this forbids it.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self.process = subprocess.Popen([sys.executable, str(WORKER), json.dumps(job)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment)  # fmt: skip
        try:
            self.start = self._answer()
        except BaseException:
            self.close()
            raise

    def ask(self, **command: Any) -> dict[str, Any]:
        """The answer to a command. Raises `WorkerError` where it fails."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(command).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise WorkerError("the process has ended") from None
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        end = time.monotonic() + self.timeout
        while b"\n" not in self.buffer:
            ready, _, _ = select.select([self.process.stdout], [], [], max(end - time.monotonic(), 0))
            if not ready:
                raise WorkerError(f"no answer in {self.timeout:.0f} s")
            more = os.read(self.process.stdout.fileno(), 1 << 16)
            if not more:
                raise WorkerError(f"the process has ended with status {self.process.wait()}")
            self.buffer += more
        line, _, self.buffer = self.buffer.partition(b"\n")
        reply = json.loads(line)
        if "error" in reply:
            raise WorkerError(reply["error"])
        return reply

    def close(self) -> None:
        """End the process: it ends by itself when its pipe closes, or is killed."""
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


@contextmanager
def worker(job: Mapping[str, Any], **options: Any) -> Iterator[Worker]:
    """A worker for the length of a block."""
    made = Worker(job, **options)
    try:
        yield made
    finally:
        made.close()


@dataclass
class Rotation:
    """The slices of one network at one number of threads: `seconds` has the median call of each round by engine, `least` its fastest
    call of all, `peak` the rate of the FMA loop in operations a second, `starts` what each process took to come up, `spun` the processor time that an engine's
    threads used after a slice at most, `problems` says why an engine is not there."""

    threads: int
    seconds: dict[str, list[float]] = field(default_factory=dict)
    least: dict[str, float] = field(default_factory=dict)
    peak: list[float] = field(default_factory=list)
    starts: dict[str, dict[str, Any]] = field(default_factory=dict)
    spun: dict[str, float] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)


def rotate(job: Mapping[str, Any], engines: Sequence[str], threads: int, rounds: int, seconds: float, clock: str = "wall",
           folder: Path | None = None) -> Rotation:  # fmt: skip
    """Run the engines on one network in turn. An engine that fails is left out, with a note. `folder` gets the outputs of each
    engine as ``ENGINE.npz``."""
    found = Rotation(threads)
    with ExitStack() as stack:
        workers: dict[str, Worker] = {}
        for name in engines:
            try:
                workers[name] = stack.enter_context(worker({**job, "engine": name, "threads": threads}))
                found.starts[name] = workers[name].start
                if folder is not None and name != PEAK:
                    workers[name].ask(do="outputs", path=str(folder / f"{name}.npz"))
            except WorkerError as e:
                workers.pop(name, None)
                found.problems[name] = str(e)
        take_turns(found, workers, rounds, seconds, clock)
    return found


def take_turns(
    found: Rotation, workers: dict[str, Worker], rounds: int, seconds: float, clock: str = "wall", least: int = 3
) -> None:
    """Slices of time of workers that are there, of `least` calls at least, put into `found`; one that fails leaves `workers`."""
    for i in range(rounds):
        for name in order(list(workers), i):
            if name in workers:
                _slice(found, workers, name, seconds, clock, least)


def _slice(found: Rotation, workers: dict[str, Worker], name: str, seconds: float, clock: str, least: int) -> None:
    seconds = seconds if name != PEAK else min(seconds, 0.1)
    try:
        reply = workers[name].ask(do="run", seconds=seconds, clock=clock, least=least)
    except WorkerError as e:
        del workers[name]
        found.seconds.pop(name, None)
        found.problems[name] = str(e)
        return
    if name == PEAK:
        found.peak.append(reply["rate"])
        return
    found.seconds.setdefault(name, []).append(reply["median"])
    found.least[name] = min(found.least.get(name, reply["min"]), reply["min"])
    found.spun[name] = max(found.spun.get(name, 0.0), reply["spun"])


def starts(job: Mapping[str, Any], warm: Mapping[str, Mapping[str, Mapping[str, Any]]], engines: Sequence[str], threads: int,
           trials: int, problems: dict[str, str]) -> dict[str, dict[str, list[dict[str, Any]]]]:  # fmt: skip
    """The time that processes take to come up: ``result[engine][kind]`` has one report a trial, engines in turn. `warm`
    has, by engine, what jobs of other kinds than ``cold`` have besides (`saved`, `cache`). `problems` gets what failed,
    as ``ENGINE, KIND``.
    """
    found: dict[str, dict[str, list[dict[str, Any]]]] = {e: {} for e in engines}
    for i in range(trials):
        for name in order(list(engines), i):
            for kind, more in {"cold": {}, **warm.get(name, {})}.items():
                try:
                    with worker({**job, **more, "engine": name, "threads": threads}) as process:
                        found[name].setdefault(kind, []).append(process.start)
                except WorkerError as e:
                    problems[f"{name}, {kind}"] = str(e)
    return found
