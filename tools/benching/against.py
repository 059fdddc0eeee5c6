"""Two trees of LightNet side by side: ``tools/bench.py --against COMMIT``.

A process for each tree compiles the network and then runs it in slices, in turns with the other; processor time on one thread, which
other load disturbs least. Run as a script, this file is that process; it imports the tree that ``PYTHONPATH`` names, and asks
nothing of it but what `lightnet.compile` has always given.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]


class Compared(NamedTuple):
    """A network in the other tree and in this one: seconds of a call and of compiling, bytes of the arena and of the process."""

    name: str
    seconds: tuple[float, float]
    compiling: tuple[float, float]
    arena: tuple[int, int]
    resident: tuple[int, int]

    @property
    def ratios(self) -> tuple[float, float, float]:
        """This tree's call, compiling and resident set over the other's."""
        pairs = (self.seconds, self.compiling, self.resident)
        return tuple(here / there for there, here in pairs)  # type: ignore[return-value]  # three, as `pairs` are

    def line(self) -> str:
        """A line of the table."""
        call, compiling, resident = self.ratios
        return (
            f"{self.name:16s} {1e3 * self.seconds[0]:9.3f} {1e3 * self.seconds[1]:9.3f} {call:7.3f} "
            f"{self.compiling[0]:8.2f} {self.compiling[1]:6.2f} {compiling:6.2f} "
            f"{self.arena[0]:11,} {self.arena[1]:11,} {self.resident[0] >> 20:5} {self.resident[1] >> 20:5} {resident:5.2f}"
        )


HEADER = (
    f"{'network':16s} {'ms there':>9s} {'here':>9s} {'ratio':>7s} {'compile':>8s} {'here':>6s} {'ratio':>6s} "
    f"{'arena there':>11s} {'here':>11s} {'MiB':>5s} {'here':>5s} {'ratio':>5s}"
)


def tree_of(which: str, folder: Path) -> Path:
    """A tree of the project: the folder that `which` names, or a commit, which is put into `folder`. Raises `ValueError`."""
    if Path(which, "lightnet", "__init__.py").exists():
        return Path(which).resolve()
    archive = subprocess.run(["git", "archive", "--", which], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        raise ValueError(
            f"'{which}' is neither a folder with lightnet/ nor a commit: {archive.stderr.decode().strip()}"
        )
    subprocess.run(["tar", "x", "-C", str(folder)], input=archive.stdout, check=True)
    return folder


def compare(name: str, path: Path, there: Path, rounds: int, seconds: float, trials: int) -> Compared:
    """One network in the tree `there` and in this one; `trials` processes each compile it, of which the last run it."""
    made: list[list[dict[str, Any]]] = [[], []]
    for _ in range(trials - 1):
        for i, tree in enumerate((there, ROOT)):
            with _process(tree, path) as ask:
                made[i].append(ask(None))
    with _process(there, path) as first, _process(ROOT, path) as second:
        asks = (first, second)
        for i, ask in enumerate(asks):
            made[i].append(ask(None))
        least = [math.inf, math.inf]
        for round_ in range(rounds):
            for i in (0, 1) if round_ % 2 else (1, 0):
                least[i] = min(least[i], asks[i](seconds)["least"])
    compiling = tuple(min(m["compiling"] for m in rows) for rows in made)
    arena, resident = (tuple(rows[-1][k] for rows in made) for k in ("arena", "resident"))
    return Compared(name, tuple(least), compiling, arena, resident)  # type: ignore[arg-type]  # two of each


def means(rows: list[Compared]) -> str:
    """The geometric means of the ratios, as a line."""
    call, compiling, resident = (math.exp(sum(math.log(r.ratios[i]) for r in rows) / len(rows)) for i in range(3))
    return f"geometric mean of {len(rows)}: call {call:.3f}, compiling {compiling:.3f}, process {resident:.3f}"


@contextmanager
def _process(tree: Path, path: Path) -> Iterator[Callable[[float | None], dict[str, Any]]]:
    """A process of a tree; what it answers: None asks what compiling took, a number for a slice of so many seconds."""
    environment = os.environ | {"PYTHONPATH": str(tree), "LIGHTNET_CACHE": "off"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # what was imported once is byte code, in both
    process = subprocess.Popen([sys.executable, __file__, str(path)], env=environment, text=True, cwd=tree,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
    assert process.stdin is not None and process.stdout is not None

    def ask(seconds: float | None) -> dict[str, Any]:
        assert process.stdin is not None and process.stdout is not None
        if seconds is not None:
            process.stdin.write(f"{seconds}\n")
            process.stdin.flush()
        if not (line := process.stdout.readline()):
            raise ValueError(f"{path.name}: the process of {tree} has ended with status {process.wait()}")
        return json.loads(line)

    try:
        yield ask
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


def _serve(path: str) -> None:
    """Compile, say what it took, and run a slice for each line of the input."""
    import numpy as np
    from worker import peak_memory

    import lightnet

    before = time.process_time()
    executable = lightnet.compile(path, threads=1)
    noise = np.random.default_rng(0)
    feeds = {
        name: noise.standard_normal(shape).astype(dtype) if np.dtype(dtype).kind == "f" else np.zeros(shape, dtype)
        for name, (shape, dtype) in executable.inputs.items()
    }
    executable(feeds)
    compiling = time.process_time() - before
    plan = getattr(executable, "plan", None)
    report = {
        "compiling": compiling,
        "arena": plan.plan.peak if plan is not None else 0,
        "resident": peak_memory(),
    }
    print(json.dumps(report), flush=True)
    for line in sys.stdin:
        end, least = time.monotonic() + float(line), math.inf
        while time.monotonic() < end or math.isinf(least):
            start = time.process_time()
            calls = 1
            executable(feeds)
            while time.process_time() - start < 2e-3:  # the clock's own price
                executable(feeds)
                calls += 1
            least = min(least, (time.process_time() - start) / calls)
        print(json.dumps({"least": least}), flush=True)


if __name__ == "__main__":
    _serve(sys.argv[1])
