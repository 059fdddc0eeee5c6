"""Running cases in processes of their own, so that a crash, a hang or a greedy allocation costs one case.

Workers are forked: they have the cases already, and only names and results go through the pipes. Imports the standard
library and the runners.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, wait

from suites.cases import Case
from suites.runners import CRASH, TIMEOUT, Result, judge

#: Memory of one worker in bytes: far above what any case needs, far below what hurts the machine.
MEMORY = 12 << 30

Task = tuple[str, int]


class Worker:
    """A process that judges one case after another."""

    def __init__(self, cases: Sequence[Case]):
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(self.pipe, theirs, cases), daemon=True)
        self.process.start()
        theirs.close()
        self.task: Task | None = None
        self.deadline = 0.0

    def give(self, task: Task, limit: float) -> None:
        self.task, self.deadline = task, time.monotonic() + limit
        self.pipe.send(task)

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()

    def death(self) -> str:
        """The way that the process died, in words."""
        self.process.join()
        code = self.process.exitcode or 0
        return signal.Signals(-code).name if code < 0 else f"exit status {code}"


def _serve(parents: Connection, pipe: Connection, cases: Sequence[Case]) -> None:
    parents.close()  # or we would never see that the parent is gone
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the parent, which kills us
    _limit_memory()
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)  # what native libraries print is not ours to show
    os.dup2(quiet, 2)
    while True:
        try:
            runner, index = pipe.recv()
        except EOFError:
            return
        pipe.send(judge(runner, cases[index]))


def _limit_memory() -> None:
    try:
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY if hard < 0 else min(MEMORY, hard), hard))
    except (ImportError, ValueError, OSError):
        pass  # a system without such limits


def run(cases: Sequence[Case], runners: Iterable[str], jobs: int, limit: float) -> Iterator[tuple[str, Case, Result]]:
    """Every case by every runner: (runner, case, result) as they finish. `limit` is in seconds, for one case."""
    tasks: list[Task] = [(runner, i) for runner in runners for i in range(len(cases))][::-1]
    workers: list[Worker] = []
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        workers = [Worker(cases) for _ in range(min(jobs, len(tasks)))]
        for worker in workers:
            worker.give(tasks.pop(), limit)
        while busy := [w for w in workers if w.task is not None]:
            wait([w.pipe for w in busy], max(0.0, min(w.deadline for w in busy) - time.monotonic()))
            for worker in busy:
                result = _finished(worker)
                if result is None:
                    continue
                runner, index = worker.task
                worker.task = None
                if result.status in (CRASH, TIMEOUT):
                    worker.end()
                    workers[workers.index(worker)] = worker = Worker(cases)
                if tasks:
                    worker.give(tasks.pop(), limit)
                yield runner, cases[index], result
    finally:
        for worker in workers:
            worker.end()


def _finished(worker: Worker) -> Result | None:
    """The result of the worker's case, or that it crashed or took too long; None while it runs."""
    if worker.pipe.poll():
        try:
            return worker.pipe.recv()
        except (EOFError, OSError):
            return Result(CRASH, worker.death())
    if time.monotonic() < worker.deadline:
        return None
    return Result(TIMEOUT, "took too long")
