"""`pack`: offsets for buffers, by the cheapest means that is good enough, and what the result is worth.

First the greedy portfolio, for each part of the time line on its own; if no heuristic meets the lower bound, every
order of a few buffers, or the ejection search. Imports the rest of `planning`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError
from lightnet.runtime.arrays import align_up

from .buffers import Buffer, Conflicts, components, lower_bound, validate
from .check import check_offsets
from .greedy import UNPLACED, place_buffers, portfolio
from .search import EjectionSearch

#: Steps of the ejection search for each named effort; it runs only where the portfolio misses the lower bound.
EFFORTS = {"fast": 0, "default": 6_000, "high": 60_000}

#: At most so many steps for each buffer: a small problem is soon exhausted.
STEPS_A_BUFFER = 600

#: So few buffers are placed in every order. One of these is optimal: that of the offsets in an optimal plan, since a
#: plan whose buffers are moved down in order of offset gets no higher.
EVERY_ORDER = 6


@dataclass(frozen=True)
class MemoryPlan:
    """`offsets` (bytes) by buffer id; `peak`, the first byte above all; `bound`, no plan is lower; what found it."""

    offsets: dict[str, int]
    peak: int
    bound: int
    heuristic: str

    @property
    def ratio(self) -> float:
        """Peak over lower bound, 1.0 for a plan that is proven optimal."""
        return self.peak / self.bound if self.bound else 1.0


def pack(
    buffers: Sequence[Buffer],
    *,
    capacity: int | None = None,
    effort: str | int = "default",
    seed: int = 0,
    fixed: Mapping[str, int] | None = None,
) -> MemoryPlan:
    """Give each buffer an offset with a low peak. Equal arguments give equal plans.

    `effort` is 'fast' (greedy only), 'default', 'high', or a number of search steps. `fixed` gives some buffers their
    offsets in advance. With a `capacity` (bytes), a named effort is raised to 'high' before giving up.

    Raises `LightNetError` for malformed buffers, fixed offsets that collide, and when no plan within `capacity` is
    found.
    """
    fixed = dict(fixed or {})
    validate(buffers)
    steps = _steps(effort)
    check_offsets([b for b in buffers if b.id in fixed], fixed, capacity)
    bound = lower_bound(buffers, fixed)
    if capacity is not None and bound > capacity:
        raise LightNetError(
            f"the buffers need at least {bound} bytes at one time, the capacity is {capacity}", label="plan.capacity"
        )
    plan = _solve(buffers, fixed, bound, steps, seed)
    if capacity is not None and plan.peak > capacity:
        if isinstance(effort, str) and steps < EFFORTS["high"]:
            plan = _solve(buffers, fixed, bound, EFFORTS["high"], seed)
        if plan.peak > capacity:
            raise LightNetError(
                f"no plan within the capacity of {capacity} bytes was found: the best needs {plan.peak}, "
                f"the lower bound is {bound}",
                label="plan.capacity",
            )
    return plan


def _steps(effort: str | int) -> int:
    if isinstance(effort, int) and effort >= 0:
        return effort
    if effort not in EFFORTS:
        raise LightNetError(
            f"unknown effort {effort!r}: expected one of {', '.join(EFFORTS)} or a number of steps", label="plan.effort"
        )
    return EFFORTS[effort]


def _solve(buffers: Sequence[Buffer], fixed: dict[str, int], bound: int, steps: int, seed: int) -> MemoryPlan:
    """Set aside what is trivial (empty buffers, never live or always live ones), pack the rest, put all together."""
    rest = [b for b in buffers if b.size and b.segments()]
    offsets = {b.id: 0 for b in buffers} | fixed
    stack = [] if fixed else _permanent(rest)
    if stack:
        permanent = {b.id for b in stack}
        rest = [b for b in rest if b.id not in permanent]
    goal = lower_bound(rest, fixed) if stack else bound
    found, heuristic = _search(rest, fixed, goal, steps, seed)
    peak = max((found[b.id] + b.size for b in rest), default=0)
    for b, x in zip(stack, _stacked(stack, peak)):
        offsets[b.id] = x
    shift = 0
    if stack and rest and offsets[stack[0].id] == 0:
        shift = align_up(offsets[stack[-1].id] + stack[-1].size, stack[-1].alignment)
    offsets |= {name: x + shift for name, x in found.items()}
    total = max((offsets[b.id] + b.size for b in buffers), default=0)
    return MemoryPlan({b.id: offsets[b.id] for b in buffers}, total, bound, heuristic or "stack")


def _permanent(buffers: Sequence[Buffer]) -> list[Buffer]:
    """The buffers that live as long as anything does, the one with the largest padding last.

    They take whole rows in every plan, so stacking them loses nothing, if all alignments are equal. Otherwise none.
    """
    if len({b.alignment for b in buffers}) != 1:
        return []
    first, last = min(b.lower for b in buffers), max(b.upper for b in buffers)
    found = [b for b in buffers if (b.lower, b.upper) == (first, last) and not b.gaps]
    return sorted(found, key=lambda b: (-b.size % b.alignment, b.lower))


def _stacked(stack: Sequence[Buffer], rest_peak: int) -> list[int]:
    """Offsets of the permanent buffers: below the rest, or above it if that puts a larger padding outside the arena."""
    if not stack:
        return []
    alignment = stack[0].alignment
    above = -stack[-1].size % alignment > -rest_peak % alignment
    x = align_up(rest_peak, alignment) if above else 0
    offsets = []
    for b in stack:
        offsets.append(x)
        x = align_up(x + b.size, alignment)
    return offsets


def _search(
    buffers: Sequence[Buffer], fixed: Mapping[str, int], goal: int, steps: int, seed: int
) -> tuple[dict[str, int], str]:
    """(offsets by id, the heuristic that decided the peak); stops at a peak of `goal`."""
    if not buffers:
        return {}, ""
    conflicts = Conflicts(buffers)
    offsets = [fixed.get(b.id, UNPLACED) for b in buffers]
    pinned = frozenset(i for i, b in enumerate(buffers) if b.id in fixed)
    peaks = [(max((offsets[i] + buffers[i].size for i in pinned), default=0), "fixed")]
    for part in components(buffers):
        free = [i for i in part if i not in pinned]
        if free:
            peaks.append(portfolio(buffers, free, conflicts, offsets, goal))
    peak, heuristic = max(peaks)
    if peak > goal and steps and len(buffers) - len(pinned) <= EVERY_ORDER:
        free = [i for i in range(len(buffers)) if i not in pinned]
        for order in permutations(free):
            trial = [fixed.get(b.id, UNPLACED) for b in buffers]
            if (found := place_buffers(buffers, conflicts, order, False, trial, cutoff=peak)) is not None:
                peak, offsets, heuristic = max(found, peaks[0][0]), trial, "every order"
    elif peak > goal and steps:
        search = EjectionSearch(buffers, conflicts, offsets, pinned, goal, seed)
        search.run(min(steps, STEPS_A_BUFFER * len(buffers)))
        if search.peak < peak:
            offsets, heuristic = search.offsets.tolist(), f"{heuristic}, then ejection search"
    return {b.id: x for b, x in zip(buffers, offsets)}, heuristic
