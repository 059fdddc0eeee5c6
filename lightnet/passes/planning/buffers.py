"""Buffers of the memory-planning problem: lifetimes, the lower bound on the arena, and who conflicts with whom.

The problem ("dynamic storage allocation" with known lifetimes): give each buffer an offset so that no two buffers
that are live at the same time share bytes, and the highest byte in use (the peak) is low. Everything here works on
numbers alone, so that the same planner serves the `plan` pass, other people's instances and tests. Imports the
standard library, numpy and the runtime; never xDSL.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError
from lightnet.runtime.arrays import align_up

#: Offsets, sizes and times stay below this, so that their sums fit into 64-bit integers.
LIMIT = 1 << 61

#: Up to so many conflicting pairs are stored; above it, conflicts are computed when asked for.
STORED_PAIRS = 2_000_000


@dataclass(frozen=True, slots=True)
class Buffer:
    """`size` bytes, live in the half-open interval [`lower`, `upper`) of op positions, outside its `gaps`.

    `alignment` (bytes, any integer from 1) must divide the offset. `gaps` are half-open intervals inside the lifetime
    during which the content is dead and others may use the bytes; the offset is the same before and after. Gaps may
    overlap each other, and cover the whole lifetime.
    """

    id: str
    lower: int
    upper: int
    size: int
    alignment: int = 1
    gaps: tuple[tuple[int, int], ...] = ()

    def segments(self) -> list[tuple[int, int]]:
        """The maximal half-open intervals in which the buffer is live, in order of time."""
        if not self.gaps:
            return [(self.lower, self.upper)]
        pieces, start = [], self.lower
        for first, last in sorted(self.gaps):
            if first > start:
                pieces.append((start, first))
            start = max(start, last)
        if start < self.upper:
            pieces.append((start, self.upper))
        return pieces

    def __str__(self) -> str:
        gaps = "".join(f" without [{a}, {b})" for a, b in self.gaps)
        return f"'{self.id}' (live [{self.lower}, {self.upper}){gaps}, {self.size} bytes)"


def validate(buffers: Sequence[Buffer]) -> None:
    """Raise `LightNetError` for a duplicate id, an empty lifetime, or a number out of range."""
    seen: set[str] = set()
    total = 0
    for b in buffers:
        if b.id in seen:
            raise LightNetError(f"two buffers are called '{b.id}'", label="plan.duplicate-id")
        seen.add(b.id)
        if b.lower >= b.upper:
            raise LightNetError(f"buffer {b} has an empty lifetime", label="plan.lifetime")
        if b.size < 0 or b.alignment < 1:
            raise LightNetError(
                f"buffer {b} needs a size of at least 0 and an alignment of at least 1, got {b.alignment}",
                label="plan.size",
            )
        for first, last in b.gaps:
            if not b.lower <= first < last <= b.upper:
                raise LightNetError(
                    f"the gap [{first}, {last}) of buffer {b} is empty or leaves its lifetime", label="plan.gap"
                )
        total += b.size + b.alignment
        if total > LIMIT or not -LIMIT < b.lower < b.upper < LIMIT:
            raise LightNetError(f"buffer {b} makes the plan exceed {LIMIT} bytes or positions", label="plan.limit")


def load_profile(buffers: Sequence[Buffer]) -> list[tuple[int, int]]:
    """(time, live bytes from that time on), in order of time; the last load is 0. Gaps are taken out."""
    change: dict[int, int] = {}
    for b in buffers:
        for lower, upper in b.segments():
            change[lower] = change.get(lower, 0) + b.size
            change[upper] = change.get(upper, 0) - b.size
    profile, load = [], 0
    for time in sorted(change):
        load += change[time]
        profile.append((time, load))
    return profile


def lower_bound(buffers: Sequence[Buffer], fixed: Mapping[str, int] | None = None) -> int:
    """Bytes that no plan can do without: the most that is live at once, alignment included where that is sound.

    Every offset is a multiple of g, the gcd of all alignments. So the buffers live at one time, each rounded up to g,
    are disjoint, and only the topmost one may go without its padding: load of the rounded sizes minus the largest
    padding. With `fixed` offsets also the highest fixed end.
    """
    g = math.gcd(*(b.alignment for b in buffers)) if buffers else 1
    events = []
    for i, b in enumerate(buffers):
        if b.size:
            events += [(t, end, i) for piece in b.segments() for end, t in ((1, piece[0]), (0, piece[1]))]
    events.sort()  # at one time, ends (0) come before starts (1)
    best = max((b.size for b in buffers), default=0)
    load = 0
    alive = [0] * len(buffers)
    paddings: list[tuple[int, int]] = []  # heap of (-padding, buffer); dead ones leave when they reach the top
    for _, start, i in events:
        rounded = align_up(buffers[i].size, g)
        if not start:
            load -= rounded
            alive[i] = 0
            continue
        load += rounded
        alive[i] = 1
        if g == 1:
            best = max(best, load)
            continue
        heapq.heappush(paddings, (buffers[i].size - rounded, i))
        while not alive[paddings[0][1]]:
            heapq.heappop(paddings)
        best = max(best, load + paddings[0][0])
    if fixed:
        best = max([best, *(fixed[b.id] + b.size for b in buffers if b.id in fixed)])
    return best


def components(buffers: Sequence[Buffer]) -> Iterator[list[int]]:
    """Indices of buffers, split at the times at which nothing is live: each part can be packed on its own."""
    order = sorted(range(len(buffers)), key=lambda i: (buffers[i].lower, i))
    part: list[int] = []
    end = -LIMIT
    for i in order:
        if part and buffers[i].lower >= end:
            yield part
            part = []
        part.append(i)
        end = max(end, buffers[i].upper)
    if part:
        yield part


class Conflicts:
    """The pairs of buffers that are live together: two buffers conflict when live segments of theirs overlap.

    Stored as lists, made by one sweep over time in O(n log n + pairs), while there are few pairs (a network is a chain:
    a handful for each buffer). Beyond `STORED_PAIRS` nothing is stored, and a question costs O(n) numpy operations.
    """

    def __init__(self, buffers: Sequence[Buffer]) -> None:
        segments = [(a, b, i) for i, buffer in enumerate(buffers) for a, b in buffer.segments()]
        segments.sort()
        self._lower, self._upper, self._owner = (np.array([s[k] for s in segments], dtype=np.int64) for k in range(3))
        self._segments = [b.segments() for b in buffers]
        self._arrays: dict[int, np.ndarray] = {}
        self.pairs = _count_pairs(segments)
        self.stored = self.pairs <= STORED_PAIRS
        self._lists = _sweep(segments, len(buffers), any(b.gaps for b in buffers)) if self.stored else []

    def of(self, i: int) -> list[int]:
        """Indices of the buffers that conflict with buffer `i`."""
        return self._lists[i] if self.stored else self.array(i).tolist()

    def array(self, i: int) -> np.ndarray:
        """The same as an int64 array."""
        if i in self._arrays:
            return self._arrays[i]
        if self.stored:
            found = self._arrays[i] = np.array(self._lists[i], dtype=np.int64)
            return found
        parts = [np.zeros(0, dtype=np.int64)]
        for lower, upper in self._segments[i]:
            stop = int(np.searchsorted(self._lower, upper, "left"))
            parts.append(self._owner[:stop][self._upper[:stop] > lower])
        found = np.unique(np.concatenate(parts)) if len(parts) > 2 else parts[-1]
        return found[found != i]


def _count_pairs(segments: list[tuple[int, int, int]]) -> int:
    """The number of overlapping pairs of segments: for each one, those that started before its end, less those over."""
    lowers = [s[0] for s in segments]
    uppers = sorted(s[1] for s in segments)
    both = sum(bisect_left(lowers, b) - bisect_right(uppers, a) for a, b, _ in segments)
    return (both - len(segments)) // 2


def _sweep(segments: list[tuple[int, int, int]], count: int, with_gaps: bool) -> list[list[int]]:
    lists: list[list[int]] = [[] for _ in range(count)]
    live: dict[int, None] = {}
    ends: list[tuple[int, int]] = []
    for lower, upper, i in segments:
        while ends and ends[0][0] <= lower:
            del live[heapq.heappop(ends)[1]]
        mine = lists[i]
        for j in live:
            mine.append(j)
            lists[j].append(i)
        live[i] = None
        heapq.heappush(ends, (upper, i))
    # Two buffers with gaps may meet several times.
    return [list(dict.fromkeys(found)) for found in lists] if with_gaps else lists
