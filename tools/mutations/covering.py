"""Which of the project's tests judge a fault: those that run its line, by what `watching.py` noted. Imports NumPy and the
standard library.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import numpy as np

from mutations.faults import Fault

#: Tests for one fault at most, for each CPU second that they may take.
MOST = 10
#: Test functions for a line that none of the recorded cases runs.
NEAR = 4


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
        return self._running_file(fault, cpu)

    def imported(self, fault: Fault, cpu: float, most: int, near: int) -> list[str]:
        """Those that judge it cold: `most` of its tests, and `near` that run most of its file (what is cached is recorded for
        the first test alone)."""
        return list(dict.fromkeys([*self.of(fault, cpu)[:most], *self._running_file(fault, cpu)[:near]]))

    def _running_file(self, fault: Fault, cpu: float) -> list[str]:
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
