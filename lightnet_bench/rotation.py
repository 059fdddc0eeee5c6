"""Turns in which several things are timed, so that what disturbs the machine disturbs all alike.

`order` is for rounds of many engines (tools/bench.py); `paired` times two calls in pairs of slices, A B or B A as a
coin says, which makes whatever else the machine does symmetric (`intervals.py`). Blocks of four (A B B A), in which
drift cancels, were tried: of the same calls they made intervals a third wider, since what disturbs comes in bursts.
Imports intervals.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from lightnet.dataclasses import dataclass, field
from lightnet_bench.intervals import CONFIDENCE, LOOKS, Interval, interval

#: Seconds that a slice takes at least: below, the clock and the caches count for more.
SLICE = 4e-3
#: Pairs that there are at least, however long they take.
LEAST = 10
#: Pairs after which each side moves to another place in memory, where it has several.
STAY = 8


def order(names: Sequence[str], round_: int) -> list[str]:
    """The order of a round: everybody comes first in turn, and every other round goes backwards, so that no engine
    always runs behind the same other.
    """
    at = (round_ // 2) % len(names) if names else 0
    turned = [*names[at:], *names[:at]]
    return turned[::-1] if round_ % 2 else turned


@dataclass
class Paired:
    """Pairs of slices of two sides: `seconds` has the mean time of a call of each side by pair, `logs` the logarithms
    of the ratios, the second side over the first, `took` the seconds in all, `share` what the last look had of the
    error that is allowed for."""

    seconds: list[tuple[float, float]] = field(default_factory=list)
    logs: list[float] = field(default_factory=list)
    took: float = 0.0
    share: float = LOOKS[0][1]

    def add(self, first: float, second: float) -> None:
        """Add a pair: the time of a call of each side."""
        self.seconds.append((first, second))
        self.logs.append(math.log(second / first))

    @property
    def medians(self) -> tuple[float, float]:
        """The median time of a call of each side."""
        return statistics.median(a for a, _ in self.seconds), statistics.median(b for _, b in self.seconds)

    def interval(self, confidence: float = CONFIDENCE) -> Interval:
        """The ratio, as the last look found it."""
        return interval(self.logs, confidence, self.share)


def paired(
    sides: tuple[Sequence[Callable[[], Any]], Sequence[Callable[[], Any]]],
    limit: float,
    is_decided: Callable[[Interval], bool],
    clock: Callable[[], float],
    seed: int = 0,
    progress: Callable[[Interval, float], None] | None = None,
    now: Callable[[], float] = time.monotonic,
) -> Paired:
    """Time two sides, each of which is a call in one or several places in memory, until a look finds it decided or
    `limit` seconds are over. The first call of each place is not timed. `progress` is told at each look, and
    `now` says what time it is."""
    coin, found = random.Random(seed), Paired()
    for call in (*sides[0], *sides[1]):
        call()
    counts = [max(1, math.ceil(SLICE / max(_seconds(side[0], 1, clock), 1e-9))) for side in sides]
    begin, looks, here = now(), list(LOOKS), [side[0] for side in sides]
    while True:
        if len(found.logs) % STAY == 0:
            for k, side in enumerate(sides):
                if len(side) > 1:
                    here[k] = coin.choice(side)
                    here[k]()  # into the caches
        found.add(*_pair(here, counts, clock, coin.random() < 0.5))
        found.took = now() - begin
        part = found.took / limit
        if len(found.logs) < LEAST or part < looks[0][0]:
            continue
        while len(looks) > 1 and part >= looks[1][0]:
            del looks[0]
        found.share = looks.pop(0)[1]
        ratio = found.interval()
        if progress is not None:
            progress(ratio, found.took)
        if not looks or is_decided(ratio):
            return found


def _pair(
    calls: Sequence[Callable[[], Any]], counts: Sequence[int], clock: Callable[[], float], turned: bool
) -> tuple[float, float]:
    """Seconds of a call of each side, in two slices."""
    found = [0.0, 0.0]
    for k in (1, 0) if turned else (0, 1):
        found[k] = max(_seconds(calls[k], counts[k], clock) / counts[k], 1e-9)
    return found[0], found[1]


def _seconds(call: Callable[[], Any], count: int, clock: Callable[[], float]) -> float:
    start = clock()
    for _ in range(count):
        call()
    return clock() - start
