"""Measuring networks with open dims: one open executable of ours, executables of ours for single shapes, and the peers on the open
model, each in a process of its own, in turns. Imports `benching` and `networks`.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from benching import rotation
from benching.engines import write_arrays
from benching.reference import error
from benching.rotation import OURS, Rotation, Worker, WorkerError, worker

from .networks import OpenNetwork

#: Our executable of one shape, in a rotation beside the open one.
STATIC = "lightnet, static"
ORACLE = "onnxruntime"


@dataclass
class ShapeRow:
    """One shape: the error of ours against ONNX Runtime relative to the largest value, seconds of a call by engine (medians over
    rounds), of the first call of this shape, and bytes of our arenas, open and static."""

    numbers: dict[str, int]
    error: float = float("nan")
    seconds: dict[str, float] = field(default_factory=dict)
    first: dict[str, float] = field(default_factory=dict)
    arena: tuple[int, int] | None = None
    problems: dict[str, str] = field(default_factory=dict)

    @property
    def first_call(self) -> float | None:
        """The first call of this shape over what it may take: 1.2 times a later one, and 1 ms."""
        there = OURS in self.first and OURS in self.seconds
        return self.first[OURS] / (1.2 * self.seconds[OURS] + 1e-3) if there else None

    def ratio(self, other: str) -> float | None:
        """Our open executable's time over another's; None where one is not there."""
        return self.seconds[OURS] / self.seconds[other] if {OURS, other} <= self.seconds.keys() else None

    @property
    def to_peers(self) -> float | None:
        """Our time over that of the better peer."""
        peers = [t for name, t in self.seconds.items() if name not in (OURS, STATIC)]
        return self.seconds[OURS] / min(peers) if peers and OURS in self.seconds else None


@dataclass
class NetworkRows:
    """One network: its shapes; seconds to read and compile, and bytes of the saved file, of the open executable and of each static
    one; `problems` says why something is missing."""

    name: str
    shapes: list[ShapeRow] = field(default_factory=list)
    compiling: float = float("nan")
    compiling_static: list[float] = field(default_factory=list)
    saved: int | None = None
    saved_static: list[int] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)


@dataclass
class StreamRows:
    """Calls of random shapes: the seconds of each by engine, and by how many bytes the peak of the process grew after the first tenth."""

    name: str
    seconds: dict[str, list[float]] = field(default_factory=dict)
    growth: dict[str, int] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)


@dataclass
class DecodeRows:
    """Tokens with a growing cache: the seconds of each by engine, and whether all engines chose the same ones."""

    name: str
    seconds: dict[str, list[float]] = field(default_factory=dict)
    tokens: dict[str, list[int]] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)

    @property
    def agree(self) -> bool:
        """True if every engine chose the same tokens."""
        return len({tuple(t) for t in self.tokens.values()}) <= 1


class Engines:
    """The workers of one network on one thread, each with the open model, fed with one shape; those that fail are left out. `options` are for
    our compiler."""

    def __init__(
        self, stack: ExitStack, network: OpenNetwork, path: Path, engines: Sequence[str], folder: Path, **options: Any
    ):
        self.network, self.path, self.folder, self.stack = network, path, folder, stack
        self.workers: dict[str, Worker] = {}
        self.problems: dict[str, str] = {}
        start = {n: b.at(b.low + 3 * b.multiple) for n, b in network.dims.items()}
        for engine in engines:
            try:
                self.workers[engine] = stack.enter_context(
                    worker(self.job(engine, start, {"dims": network.ranges, "options": options}))
                )
            except WorkerError as e:
                self.problems[engine] = str(e)

    def job(self, engine: str, numbers: Mapping[str, int], more: Mapping[str, Any]) -> dict[str, Any]:
        """The job of a worker (`benching/engines.py`)."""
        feeds = self.folder / "feeds.npz"
        write_arrays(str(feeds), self.network.feeds(numbers))
        return {
            "onnx": str(self.path),
            "network": str(self.path),
            "feeds": str(feeds),
            "engine": engine,
            "threads": 1,
            **more,
        }

    def static(self, stack: ExitStack, numbers: Mapping[str, int]) -> Worker:
        """Our executable of one shape, in a process that ends with `stack`. Raises `WorkerError`."""
        shapes = {"shapes": self.network.shapes(numbers)}
        return stack.enter_context(worker(self.job(OURS, numbers, shapes)))

    def lose(self, engine: str, error: WorkerError) -> None:
        """Go on without an engine that failed."""
        self.problems[engine] = str(error)
        self.workers.pop(engine, None)


def saved_bytes(made: Worker, folder: Path, problems: dict[str, str], who: str) -> int | None:
    """The size of what an executable is saved to; None, with a note, where it cannot be."""
    try:
        made.ask(do="save", path=str(folder / "saved.lnx"))
        return (folder / "saved.lnx").stat().st_size
    except WorkerError as e:
        problems[f"{who}, to save"] = str(e)
        return None


def measure(network: OpenNetwork, path: Path, shapes: Sequence[dict[str, int]], statics: int, engines: Sequence[str], rounds: int,
            seconds: float, seed: int = 0) -> NetworkRows:  # fmt: skip
    """The rows of a network on these shapes; the first `statics` of them beside our executable of that shape, whose compiling takes
    long."""
    rows = NetworkRows(network.name)
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        open_ones = Engines(stack, network, path, engines, folder)
        rows.problems = open_ones.problems
        if OURS in open_ones.workers:
            rows.compiling = open_ones.workers[OURS].start["load"]
            rows.saved = saved_bytes(open_ones.workers[OURS], folder, rows.problems, "open")
        for k, numbers in enumerate(shapes):
            rows.shapes.append(_shape(open_ones, rows, numbers, k < statics, rounds, seconds, seed + k))
    return rows


def _shape(open_ones: Engines, rows: NetworkRows, numbers: dict[str, int], with_static: bool, rounds: int, seconds: float,
           seed: int) -> ShapeRow:  # fmt: skip
    """One shape: its first calls, what comes out, and the rotation."""
    row, feed = (
        ShapeRow(numbers),
        {"do": "feed", "network": asdict(open_ones.network), "numbers": numbers, "seed": seed},
    )
    outputs: dict[str, dict[str, np.ndarray]] = {}
    arena = 0
    for engine, process in list(open_ones.workers.items()):
        try:
            reply = process.ask(**feed)
            row.first[engine] = reply["first"]
            arena = reply["arena"] if engine == OURS else arena
            if engine in (OURS, ORACLE):
                file = open_ones.folder / f"{engine}.npz"
                process.ask(do="outputs", path=str(file))
                outputs[engine] = dict(np.load(file))
        except WorkerError as e:
            open_ones.lose(engine, e)
    if outputs.keys() == {OURS, ORACLE}:
        row.error = error(outputs[OURS], outputs[ORACLE], [])
    with ExitStack() as stack:
        workers = dict(open_ones.workers)
        if with_static and OURS in workers:
            try:
                workers[STATIC] = open_ones.static(stack, numbers)
                rows.compiling_static.append(workers[STATIC].start["load"])
                row.arena = arena, workers[STATIC].ask(**feed)["arena"]
                if (size := saved_bytes(workers[STATIC], open_ones.folder, row.problems, "static")) is not None:
                    rows.saved_static.append(size)
            except WorkerError as e:
                workers.pop(STATIC, None)
                row.problems[STATIC] = str(e)
        found = Rotation(1)
        rotation.take_turns(found, workers, rounds, seconds, least=1)
        for engine, why in found.problems.items():
            row.problems[engine] = why
            open_ones.workers.pop(engine, None)
    row.seconds = {engine: median(times) for engine, times in found.seconds.items()}
    return row


def stream(
    network: OpenNetwork, path: Path, count: int, engines: Sequence[str], most: float, seed: int = 0
) -> StreamRows:
    """Calls of `count` random shapes, in turns of a fortieth of them."""
    rng, rows = random.Random(f"stream {network.name} {seed}"), StreamRows(network.name)
    requests: list[dict[str, int]] = []
    while len(requests) < count:
        numbers = network.random(rng)
        if network.weight(numbers) <= most:
            requests.append(numbers)
    step, settled = max(count // 40, 1), {}
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        open_ones = Engines(stack, network, path, engines, Path(name))
        for turn, at in enumerate(range(0, count, step)):
            for engine in rotation.order(list(open_ones.workers), turn):
                try:
                    reply = open_ones.workers[engine].ask(
                        do="stream", network=asdict(network), numbers=requests[at : at + step], seed=seed + at
                    )
                except WorkerError as e:
                    open_ones.lose(engine, e)
                    continue
                rows.seconds.setdefault(engine, []).extend(reply["times"])
                if at <= count // 10:
                    settled[engine] = reply["memory"]
                rows.growth[engine] = reply["memory"] - settled[engine]
        rows.problems = open_ones.problems
    return rows


def decode(network: OpenNetwork, path: Path, tokens: int, engines: Sequence[str]) -> DecodeRows:
    """Tokens after one in the cache, in turns of a twentieth of them; our caches grow where they are."""
    rows, step = DecodeRows(network.name), max(tokens // 20, 1)
    first = {n: b.low for n, b in network.dims.items()}
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        open_ones = Engines(stack, network, path, engines, Path(name), caches=dict(network.cache))
        for engine in list(open_ones.workers):
            open_ones.workers[engine].ask(do="feed", network=asdict(network), numbers=first, seed=0)
        for turn, at in enumerate(range(0, tokens, step)):
            for engine in rotation.order(list(open_ones.workers), turn):
                try:
                    reply = open_ones.workers[engine].ask(
                        do="decode", network=asdict(network), tokens=min(step, tokens - at)
                    )
                except WorkerError as e:
                    open_ones.lose(engine, e)
                    continue
                rows.seconds.setdefault(engine, []).extend(reply["times"])
                rows.tokens.setdefault(engine, []).extend(reply["tokens"])
        rows.problems = open_ones.problems
    return rows
