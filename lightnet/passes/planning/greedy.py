"""Greedy packings: buffers are placed one after the other, in an order that a heuristic gives, where they fit.

A portfolio of orders times two rules of fit; networks are chains, on which one of them nearly always meets the lower
bound at once. Orders by size are Pisarchyk & Lee, "Efficient Memory Management for Deep Neural Net Inference"
(arXiv 2001.03288); by conflicts, as in TVM's unified static memory planner; by contention, as in TelaMalloc (Maas et
al., ASPLOS 2023). Order of time with best fit is what a run-time allocator would do. Imports numpy and `buffers`.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, islice

import numpy as np

from lightnet.runtime.arrays import align_up

from .buffers import Buffer, Conflicts, load_profile

#: About how many pairs of buffers the whole portfolio looks at; decides how many heuristics run on a dense problem.
PORTFOLIO_WORK = 12_000_000

#: With more neighbours than this on average, placing is cheaper in numpy than in a Python loop.
VECTOR_FROM = 192

UNPLACED = -1


def place_buffers(
    buffers: Sequence[Buffer],
    conflicts: Conflicts,
    order: Iterable[int],
    best_fit: bool,
    offsets: list[int],
    cutoff: float = math.inf,
) -> int | None:
    """Place the buffers of `order` into `offsets` (bytes, `UNPLACED` where nothing is placed yet); return their peak.

    First fit takes the lowest free aligned offset; best fit the smallest hole that is bounded above, else the end.
    Returns None, with `offsets` half done, as soon as the peak would reach `cutoff`.
    """
    wide = 2 * conflicts.pairs > VECTOR_FROM * len(buffers)
    state = np.array(offsets if wide else [], dtype=np.int64)
    sizes = np.array([b.size for b in buffers] if wide else [], dtype=np.int64)
    peak = 0
    for i in order:
        b = buffers[i]
        if wide:
            near = conflicts.array(i)
            near = near[state[near] >= 0]
            x = _fit_vector(state[near], sizes[near], b.size, b.alignment, best_fit)
            state[i] = x
        else:
            taken = sorted((offsets[j], buffers[j].size) for j in conflicts.of(i) if offsets[j] >= 0)
            x = _fit(taken, b.size, b.alignment, best_fit)
        offsets[i] = x
        peak = max(peak, x + b.size)
        if peak >= cutoff:
            return None
    return peak


def _fit(taken: list[tuple[int, int]], size: int, alignment: int, best_fit: bool) -> int:
    """The offset for `size` bytes among the (offset, size) ranges of `taken`, sorted by offset."""
    x = 0
    best, best_room = -1, math.inf
    for offset, extent in taken:
        room = offset - x
        if room >= size and room < best_room:
            if not best_fit:
                return x
            best, best_room = x, room
        if offset + extent > x:
            x = align_up(offset + extent, alignment)
    return best if best >= 0 else x


def _fit_vector(offsets: np.ndarray, extents: np.ndarray, size: int, alignment: int, best_fit: bool) -> int:
    """The same as `_fit`, for many ranges, in any order."""
    order = offsets.argsort(kind="stable")
    tops = np.maximum.accumulate((offsets + extents)[order])
    starts = np.concatenate((np.zeros(1, dtype=np.int64), -(-tops // alignment) * alignment))
    room = offsets[order] - starts[:-1]
    fits = (room >= size).nonzero()[0]
    if not len(fits):
        return int(starts[-1])
    return int(starts[fits[room[fits].argmin()] if best_fit else fits[0]])


def orders(buffers: Sequence[Buffer], part: Sequence[int]) -> Iterator[tuple[str, list[int]]]:
    """(name, order) of each heuristic, most promising first; ties fall to the longer, the larger, then the earlier."""

    def by(key: Callable[[int], float]) -> list[int]:
        return sorted(part, key=lambda i: (-key(i), *tie[i]))

    tie = {i: (buffers[i].lower - buffers[i].upper, -buffers[i].size, buffers[i].lower, i) for i in part}
    yield "time", sorted(part, key=lambda i: (buffers[i].lower, -buffers[i].size, -buffers[i].upper, i))
    yield "size", by(lambda i: buffers[i].size)
    yield "reverse time", sorted(part, key=lambda i: (-buffers[i].upper, -buffers[i].size, buffers[i].lower, i))
    yield "area", by(lambda i: buffers[i].size * (buffers[i].upper - buffers[i].lower))
    yield "lifetime", by(lambda i: buffers[i].upper - buffers[i].lower)
    weight = conflict_weights([buffers[i] for i in part])
    total = dict(zip(part, weight))
    yield "conflicts", by(lambda i: total[i])
    yield "conflicts x size", by(lambda i: total[i] * buffers[i].size)
    peaks = dict(zip(part, contention([buffers[i] for i in part])))
    yield "contention", by(lambda i: peaks[i])


def conflict_weights(buffers: Sequence[Buffer]) -> list[int]:
    """For each buffer, the bytes of all buffers whose lifetimes (gaps included) overlap its own. O(n log n)."""
    started, ended = sorted(b.lower for b in buffers), sorted(b.upper for b in buffers)
    started_bytes = [0, *accumulate(b.size for b in sorted(buffers, key=lambda b: b.lower))]
    ended_bytes = [0, *accumulate(b.size for b in sorted(buffers, key=lambda b: b.upper))]
    return [started_bytes[bisect_left(started, b.upper)] - ended_bytes[bisect_right(ended, b.lower)] for b in buffers]


def contention(buffers: Sequence[Buffer]) -> list[int]:
    """For each buffer, the most bytes live at a time of its lifetime."""
    profile = load_profile(buffers)
    times = np.array([t for t, _ in profile], dtype=np.int64)
    loads = np.array([load for _, load in profile], dtype=np.int64)
    first = np.searchsorted(times, [b.lower for b in buffers], "left")
    last = np.searchsorted(times, [b.upper for b in buffers], "left")
    return [int(loads[a:b].max(initial=0)) for a, b in zip(first, last)]


def portfolio(
    buffers: Sequence[Buffer], part: Sequence[int], conflicts: Conflicts, offsets: list[int], goal: int
) -> tuple[int, str]:
    """Pack the buffers of `part` into `offsets` by the best heuristic; return the peak and the heuristic's name.

    Stops as soon as a peak is at most `goal`. Buffers outside `part` that are placed already stay where they are.
    """
    rounds = max(2, PORTFOLIO_WORK // (conflicts.pairs + len(buffers)))
    best_peak, best_name, best_offsets = math.inf, "", []
    trials = ((name, order, best_fit) for name, order in orders(buffers, part) for best_fit in (True, False))
    for name, order, best_fit in islice(trials, rounds):
        for i in part:
            offsets[i] = UNPLACED
        peak = place_buffers(buffers, conflicts, order, best_fit, offsets, best_peak)
        if peak is not None:
            best_peak, best_name = peak, f"{name}, {'best' if best_fit else 'first'} fit"
            best_offsets = [offsets[i] for i in part]
        if best_peak <= goal:
            break
    for i, x in zip(part, best_offsets):
        offsets[i] = x
    return int(best_peak), best_name
