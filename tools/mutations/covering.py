"""The tests of the project that judge a fault: those that run its line, by what `watching.py` noted. Imports NumPy and
the standard library.
"""

from __future__ import annotations

import ast
import json
import keyword
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from mutations import ci_suites
from mutations.faults import Fault

#: CPU seconds of any test beyond those recorded, and of any when tests are weighed by what they run.
TURN, SETUP = 0.005, 0.1
#: The part of a fault's CPU seconds that one test may take before others have their turn.
PART = 0.1
#: Blocks behind a line whose tests come first, and how many of each (and of each part around a fault).
AHEAD, EACH = 4, 4
#: Test functions for a line that none of the recorded cases runs.
NEAR = 4
#: Tests that bear a name of what a fault changes, which come first where it runs at import alone.
NAMED = 16
#: What tests that read source say.
SOURCES = 'glob("*.py")'
KEYWORDS = {word.lower() for word in keyword.kwlist}


class Tests:
    """The tests of a map, which of them run a line, and which compute something else where it has a fault."""

    def __init__(self, path: Path, texts: Mapping[str, str] | None = None):
        """Of the map at `path`; `texts` are those of the program, for the names that stand by a fault."""
        self.texts = texts or {}
        data = np.load(path)
        lines = json.loads((path.parent / "lines.json").read_text("utf-8"))
        kept = data["passed"]
        self.names = data["names"][kept].tolist()
        self.costs = data["seconds"][kept]
        self.marks = data["marks"][kept]
        self.suites = np.array([n.startswith(f"{ci_suites.NAME}::") for n in self.names], bool)
        self.lower = [n.lower() for n in self.names]
        self.sizes = np.maximum(1, np.bitwise_count(self.marks).sum(1))  # of what a test runs
        self.lines: dict[str, dict[str, int]] = lines["lines"]
        self.files: dict[str, list[int]] = lines["files"]
        self.probes: dict[str, int] = lines["probes"]
        self.numbers = {name: i for i, name in enumerate(self.names)}
        self.seconds = dict(zip(self.names, self.costs.tolist()))

    def of(self, fault: Fault, cpu: float) -> list[str]:
        """The tests of a fault, in `cpu` seconds.

        Of those that run its line, and compute another value there with it (none, if none does), a few that go on into each of
        the next blocks, the rarest first (a condition is told by its branches), then in turns the quickest and those that are
        about its file most; then others of its file (what is cached is recorded for the first test alone); at the end, in as
        many seconds more, those of CI's other suites. If it runs at import alone, those that bear its names, then those that
        run most of its file.
        """
        mark = self.lines[fault.file].get(str(fault.line))
        if not fault.function or mark is None:
            return self._running_file(fault, cpu)
        within = self._within(fault)
        hits = self._hits(self.probes.get(fault.name, mark))
        if not len(hits) and self.runs(fault):
            return []
        about = within / self.sizes / (SETUP + self.costs)
        branches = _once(np.concatenate([hits[:0], *self._branches(hits, mark, fault)]))
        both = np.stack(
            [hits[np.argsort(self.costs[hits], kind="stable")], hits[np.argsort(-about[hits], kind="stable")]], 1
        )
        others = np.flatnonzero(within)
        order = [branches, both.ravel(), others[np.argsort(-about[others], kind="stable")]]
        return self._with_suites(_once(np.concatenate(order)), cpu, branches, hits)

    def _with_suites(self, order: np.ndarray, cpu: float, ahead: np.ndarray, hits: np.ndarray) -> list[str]:
        """Tests in `cpu` seconds, then for as long what CI runs beside them."""
        return [
            name
            for kind in (False, True)
            for name in self._choose(
                order[self.suites[order] == kind], cpu, int((self.suites[ahead] == kind).sum()), hits
            )
        ]

    def _hits(self, mark: int) -> np.ndarray:
        """The tests that set a mark."""
        return np.flatnonzero(self.marks[:, mark >> 3] & (0x80 >> (mark & 7)))

    def runs(self, fault: Fault) -> bool:
        """Return whether a test runs the line of a fault."""
        mark = self.lines[fault.file].get(str(fault.line))
        return mark is not None and len(self._hits(mark)) > 0

    def notices(self, fault: Fault) -> bool:
        """Return whether a test that runs the line computes another value there with the fault than without."""
        mark = self.probes.get(fault.name, self.lines[fault.file].get(str(fault.line)))
        return not fault.function or (mark is not None and len(self._hits(mark)) > 0)

    def _branches(self, hits: np.ndarray, mark: int, fault: Fault) -> list[np.ndarray]:
        """The quickest of `hits` that run each of the blocks behind a mark, but for blocks that all of them run."""
        marks = range(mark + 1, min(mark + 1 + AHEAD, self.files[fault.file][1]))
        into = [hits[(self.marks[hits, k >> 3] & (0x80 >> (k & 7))) != 0] for k in marks]
        rare = sorted((h for h in into if 0 < len(h) < len(hits)), key=len)
        return [h[np.argsort(self.costs[h], kind="stable")][:EACH] for h in rare]

    def imported(self, fault: Fault, cpu: float, most: int, near: int) -> list[str]:
        """Those that judge it cold: `most` of its tests, and `near` that run most of its file."""
        return list(dict.fromkeys([*self.of(fault, cpu)[:most], *self._running_file(fault, cpu)[:near]]))

    def rest(self, chosen: dict[Fault, set[str]], cpu: float) -> dict[str, list[str]]:
        """Tests in `cpu` seconds that tell most of some faults, best first, each with the names of the faults that it may notice: not those
        that have `chosen` it already. The first of each function come before a second, those of most faults a second before others."""
        reach: dict[int, list[str]] = defaultdict(list)
        for fault, known in chosen.items():
            mark = self.probes.get(fault.name, self.lines[fault.file].get(str(fault.line)))
            hits = self._hits(mark) if fault.function and mark is not None else np.flatnonzero(self._within(fault))
            for i in hits.tolist():
                if self.names[i] not in known:
                    reach[i].append(fault.name)
        worth = {i: len(faults) / (TURN + float(self.costs[i])) for i, faults in reach.items()}
        order = sorted(reach, key=lambda i: -worth[i])
        return {name: reach[self.numbers[name]] for name in self._choose(np.array(order, int), cpu)} if order else {}

    def _within(self, fault: Fault) -> np.ndarray:
        """The number of marks of a fault's file that each test runs."""
        first, last = self.files[fault.file]
        return np.unpackbits(self.marks[:, first >> 3 : (last + 7) >> 3], axis=1).sum(1)

    def _running_file(self, fault: Fault, cpu: float) -> list[str]:
        share = self._within(fault) / np.maximum(1, self.costs)
        hits = np.flatnonzero(share)
        named = self._named(fault)
        order = _once(np.concatenate([named, hits[np.argsort(-share[hits], kind="stable")]]))
        return self._with_suites(order, cpu, named, order)

    def _named(self, fault: Fault) -> np.ndarray:
        """The tests whose names say most of the words of what a fault changes (rare words count more), the quickest first; a few for
        each part of the program around it that has other such words, the smallest first."""
        found, before = [np.zeros(0, int)], np.zeros(len(self.names))
        for part in _around(self.texts.get(fault.file, ""), fault.start, fault.end):
            score = np.zeros(len(self.names))
            for word in set(re.findall(r"[a-z]\w\w+", part.lower())) - KEYWORDS:
                has = np.array([word in name for name in self.lower], bool)
                score += has / max(1, has.sum())
            if np.array_equal(score, before):
                continue
            best = np.lexsort((self.costs, -np.round(score, 6)))[:EACH]
            found, before = [*found, best[score[best] > 0]], score
            if sum(map(len, found)) >= NAMED:
                break
        return _once(np.concatenate(found))

    def near(self, fault: Fault) -> list[str]:
        """Test functions, with all of their cases, that run most of a fault's file: for a line that no recorded case runs."""
        share = self._within(fault)
        functions = (self.names[i].partition("[")[0] for i in np.argsort(-share, kind="stable").tolist() if share[i])
        return list(dict.fromkeys(functions))[:NEAR]

    def _choose(self, order: np.ndarray, cpu: float, ahead: int = 0, hits: np.ndarray | None = None) -> list[str]:
        """Tests of an order that `cpu` seconds allow: the first `ahead`, then the first of each function, then two more, then four,
        and `hits` before all others. A test that takes a large part of the time waits as many rounds as it takes such parts."""
        rounds: dict[str, int] = defaultdict(int)
        first = set(order.tolist() if hits is None else hits.tolist())
        ranked = []
        for rank, i in enumerate(order.tolist()):
            function = self.names[i].partition("[")[0]
            waits = int(self.costs[i] / (PART * cpu))
            ranked.append((i not in first, waits + (rank >= ahead) * (1 + rounds[function]).bit_length(), rank, i))
            rounds[function] += rank >= ahead
        chosen, total = [], 0.0
        for *_, i in sorted(ranked):
            cost = float(self.costs[i]) + TURN
            if chosen and total + cost > cpu:
                continue
            chosen.append(self.names[i])
            total += cost
        return chosen


def _once(order: np.ndarray) -> np.ndarray:
    """Each number where it stands first."""
    return order[np.sort(np.unique(order, return_index=True)[1])]


def _around(text: str, start: int, end: int) -> Iterator[str]:
    """The expressions and statements of a text that hold its bytes from `start` to `end`, the smallest first."""
    data = text.encode()
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    spans = {
        (starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.expr | ast.stmt)
    }
    for a, b in sorted((s for s in spans if s[0] <= start and end <= s[1]), key=lambda s: s[1] - s[0]):
        yield data[a:b].decode()


def reading_source(files: Mapping[str, str]) -> list[str]:
    """The test functions, of texts by name, that read the source of the project, themselves or by a fixture: faults that run at
    import are theirs, too, and no map of lines that run tells."""
    found = []
    for file, text in files.items():
        if SOURCES not in text:
            continue
        functions = [f for f in ast.parse(text).body if isinstance(f, ast.FunctionDef)]
        reading = {f.name for f in functions if SOURCES in (ast.get_source_segment(text, f) or "")}
        found += [
            f"{file}::{f.name}"
            for f in functions
            if f.name.startswith("test_") and not reading.isdisjoint({f.name, *(a.arg for a in f.args.args)})
        ]
    return found
