"""Local search over offsets: an ejection search that lowers the peak of a greedy plan step by step.

Below a target height every buffer that would reach above it is taken out, and put back one at a time at the offset
where it ejects the least; what it ejects is put back later. A buffer that keeps causing ejections becomes heavier, so
that the search ejects others: the guided ejection search of Nagata and Bräysy (2009) for vehicle routing, here with
offsets for routes. When everything is in, the target is lowered; when a round of steps does not get there, it is
raised.

The budget is counted in steps, never in seconds, and all arithmetic is in integers: equal input gives equal plans on
every machine. A step looks at the conflicts of one buffer (tens of microseconds at a hundred of them). Imports numpy,
`buffers` and `greedy`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

import numpy as np

from .buffers import Buffer, Conflicts
from .greedy import UNPLACED, place_buffers

#: The weight that a failed insertion adds, and what a recently placed buffer weighs more (units: see `_base_weights`).
WEIGHT_STEP = 100
TABU_WEIGHT = 3000

#: A buffer stays tabu for TABU_STEPS to 2 * TABU_STEPS - 1 steps.
TABU_STEPS = 2

#: Weight of a buffer at a fixed offset: more than all others together.
IMMOVABLE = 1 << 40

#: A step costs 1 + neighbours / this of the budget, so that dense problems do not take longer than sparse ones.
STEP_NEIGHBOURS = 256

#: The first target lies this part of the excess over the bound below the peak; failures shrink it to the second.
FIRST_CUT, LAST_CUT = 0.10, 0.05


class EjectionSearch:
    """The state of one search. `offsets` (int64, bytes) are those of the best complete plan, `peak` its height."""

    def __init__(
        self,
        buffers: Sequence[Buffer],
        conflicts: Conflicts,
        offsets: Sequence[int],
        pinned: frozenset[int],
        bound: int,
        seed: int,
    ) -> None:
        self.offsets = np.array(offsets, dtype=np.int64)
        self.bound = bound
        self._buffers = buffers
        self._conflicts = conflicts
        self._pinned = pinned
        self._size = np.array([b.size for b in buffers], dtype=np.int64)
        self._alignment = [b.alignment for b in buffers]
        self._granule = _granule(buffers, [offsets[i] for i in pinned])
        self._weight = _base_weights(buffers)
        self._weight[list(pinned)] = IMMOVABLE
        self._tabu_until = np.zeros(len(buffers), dtype=np.int64)
        self._random = Random(seed)
        self._step = 0
        self._stuck = False
        self.peak = int((self.offsets + self._size).max())

    def run(self, budget: int) -> None:
        """Lower the peak until it meets the bound, no lower target can be met, or `budget` steps are used."""
        cut, round_size, end = FIRST_CUT, max(1, budget // 8), self._step + budget
        current = self.offsets.copy()
        while self._step < end and self.peak > self.bound and not self._stuck:
            target = self._target(cut)
            placed = current + self._size <= target
            if self._attempt(current, placed, target, min(end, self._step + round_size)):
                current = self._settled(current)
                self.offsets = current.copy()
                self.peak = int((current + self._size).max())
            else:
                cut = max(LAST_CUT, 0.7 * cut)
                # What is out has no offset in this attempt: above every target it is out of the next one, too.
                current[~placed] = self.peak

    def _settled(self, current: np.ndarray) -> np.ndarray:
        """The plan with every buffer moved down as far as it goes. In order of offset, none can end up higher."""
        order = [i for i in current.argsort(kind="stable").tolist() if i not in self._pinned]
        offsets = [int(x) if i in self._pinned else UNPLACED for i, x in enumerate(current)]
        place_buffers(self._buffers, self._conflicts, order, False, offsets)
        return np.array(offsets, dtype=np.int64)

    def _target(self, cut: float) -> int:
        """A height below the peak, above or at the bound, that a plan can have (a sum of sizes and alignments)."""
        below = max(self._granule, int((self.peak - self.bound) * cut))
        return max(self.bound, (self.peak - below) // self._granule * self._granule)

    def _attempt(self, current: np.ndarray, placed: np.ndarray, target: int, end: int) -> bool:
        """Put all buffers that are not `placed` below `target`, by step `end`. Changes both arrays."""
        out = np.nonzero(~placed)[0].tolist()
        random = self._random
        while out:
            if self._step >= end:
                return False
            if random.random() < 0.5:
                k = max(range(len(out)), key=lambda k: self._weight[out[k]])
            else:
                k = random.randrange(len(out))
            i = out[k]
            near = self._conflicts.array(i)
            near = near[placed[near]]
            offset = self._cheapest_offset(i, near, current, target)
            self._step += 1 + len(near) // STEP_NEIGHBOURS
            if offset is None:
                self._stuck = True  # pinned buffers leave no room: no plan is as low as this
                return False
            there = current[near]
            ejected = near[(there < offset + self._size[i]) & (there + self._size[near] > offset)]
            out[k] = out[-1]
            out.pop()
            if len(ejected):
                placed[ejected] = False
                out += ejected.tolist()
                self._weight[i] += WEIGHT_STEP
                self._tabu_until[i] = self._step + TABU_STEPS + random.randrange(TABU_STEPS)
            current[i], placed[i] = offset, True
        return True

    def _cheapest_offset(self, i: int, near: np.ndarray, current: np.ndarray, target: int) -> int | None:
        """An aligned offset in [0, target - size] where the buffers of `near` in the way weigh least; None if pinned.

        The weight in the way changes only where buffer `i` touches another: those offsets are the candidates. A range
        is in the way of [x, x + size) when it starts before x + size and does not end by x; two prefix sums, over the
        ranges by start and by end, give the weight of both kinds for all candidates at once.
        """
        size, alignment = int(self._size[i]), self._alignment[i]
        lows = current[near]
        highs = lows + self._size[near]
        candidates = np.concatenate((np.array([0, target - size]), highs, lows - size))
        if alignment > 1:
            half = len(near) + 2
            candidates[2:half] += -candidates[2:half] % alignment
            candidates[half:] -= candidates[half:] % alignment
            candidates[1] -= candidates[1] % alignment
        candidates = candidates[(candidates >= 0) & (candidates <= target - size)]
        if not len(candidates):
            return None
        weights = self._weight[near] + (self._tabu_until[near] > self._step) * TABU_WEIGHT
        by_low, by_high = lows.argsort(kind="stable"), highs.argsort(kind="stable")
        started = np.concatenate(([0], weights[by_low].cumsum()))
        ended = np.concatenate(([0], weights[by_high].cumsum()))
        in_way = (
            started[lows[by_low].searchsorted(candidates + size, "left")]
            - ended[highs[by_high].searchsorted(candidates, "right")]
        )
        least = in_way.min()
        if least >= IMMOVABLE:
            return None
        choices = (in_way == least).nonzero()[0]
        return int(candidates[choices[self._random.randrange(len(choices))]])


def _granule(buffers: Sequence[Buffer], pinned: Sequence[int]) -> int:
    """A number of which all offsets and ends of a plan without needless gaps are multiples.

    Rounding a multiple of g up to an alignment a gives a multiple of g if one of g and a divides the other.
    """
    granule = math.gcd(*(b.size for b in buffers), *pinned)
    alignments = {b.alignment for b in buffers}
    while odd := [a for a in alignments if granule % a and a % granule]:
        granule = math.gcd(granule, *odd)
    return granule


def _base_weights(buffers: Sequence[Buffer]) -> np.ndarray:
    """The difficulty of putting a buffer back: 50 to 1050, by the square root of its share of the largest area."""
    areas = [b.size * (b.upper - b.lower) for b in buffers]
    scale = max(areas) or 1
    return np.array([50 + math.isqrt(1_000_000 * a // scale) for a in areas], dtype=np.int64)
