"""Which cases run today: of a large product a fixed core and a share of the rest that a date draws, of what costs much as many as fit.

    @pytest.mark.sampled(every=4, by="name")   # each fourth case, the first of each `name`, and a twentieth of the others
    @pytest.mark.parametrize("name, index", PRODUCT)

What a test costs is bounded, too: where its cases took more than a third of a second together when they were last measured (durations.py), a date draws as
many of them as fit, and a seventh at least, be they marked or not. A run by date is for faults that a change makes somewhere else; who changes
something runs its file, whole.

Each comes round: a share of 0.15 in two weeks at the latest, one of 0.05 in 40 days. ``LIGHTNET_SAMPLE`` says the date, or any other word, which is printed at the end and repeats a run; ``today`` is today's, and with
``core`` nothing is drawn. Unset, as when one names a file, everything runs: a failure is repeated by its name alone;
of a case that a drawn run compiles without LLVM's optimizer, by its name and the word.

Only cases that a product makes are sampled (op x dtype x shape x target, seeds of random networks), never one that was written
because something broke. Each nth case is in the core, not the first n, and n has no divisor in common with the inner parameters of
the product, so that the core has every value of every parameter.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path
from typing import TypeVar

import pytest

VARIABLE = "LIGHTNET_SAMPLE"
CORE = "core"
#: Of the cases beyond the core, those that a date draws: each once in twenty days.
SHARE = 0.05
#: Seconds that the cases of one test may take together on a date, and the share of them that runs in any case.
BUDGET, LEAST = 0.35, 0.15
#: Seconds that tests above this budget may take together before a run asks for their record.
UNRECORDED = 60.0
#: Seconds of a case, in the mean, of tests that take longer (durations.py records them).
DURATIONS = Path(__file__).parent / "data" / "durations.json"

T = TypeVar("T")


def settle() -> None:
    """Fix the date for this process and those that it starts: workers must draw the same."""
    if os.environ.get(VARIABLE) == "today":
        os.environ[VARIABLE] = datetime.now(UTC).date().isoformat()


def word() -> str:
    """What draws; empty where everything runs."""
    return os.environ.get(VARIABLE, "")


def is_drawn(key: str, share: float) -> bool:
    """Whether a case beyond the core runs: on a `share` of the dates, and on one in each 2 / `share` that follow one another."""
    if share >= 1 or word() in ("", CORE):
        return share >= 1 or not word()
    try:
        day = date.fromisoformat(word()).toordinal()
    except ValueError:
        return _number(word(), key) < share
    # A day is the interval [day, day + 1) * share of a line that has one point between each two integers: each point is on one day.
    low, high = day * share, (day + 1) * share
    return any(low <= turn + _number(str(turn), key) < high for turn in {math.floor(low), math.floor(high)})


def _number(turn: str, key: str) -> float:
    """A number from 0 up to 1 that looks drawn."""
    digest = hashlib.sha256(f"{turn} {key}".encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48  # which has room in a double, beside a turn


@dataclass
class Sample:
    """A draw from one product: each `every`-th case from `start` on (none if it is 0), the first of each group, and a `share` of the others."""

    every: int
    share: float
    start: int = 0
    count: int = 0
    groups: set[Hashable] = field(default_factory=set)

    def takes(self, key: str, group: Hashable = None) -> bool:
        """Whether the next case runs; a `group` that is None is none."""
        return is_drawn(key, self.share_of_next(group))

    def share_of_next(self, group: Hashable = None) -> float:
        """The share of dates on which the next case runs: 1 in the core."""
        number, self.count = self.count, self.count + 1
        is_first = group is not None and group not in self.groups
        self.groups.add(group)
        is_core = self.every > 0 and number % self.every == self.start % self.every
        return 1 if is_first or is_core else self.share


def draw(
    cases: Iterable[T],
    label: str,
    every: int,
    share: float = SHARE,
    start: int = 0,
    by: Callable[[T], Hashable] | None = None,
) -> list[T]:
    """The cases of a product inside of a test that run today; `label` tells their numbers from those of other products."""
    sample = Sample(every, share, start)
    return [case for n, case in enumerate(cases) if sample.takes(f"{label} {n}", by(case) if by else None)]


def split(items: Sequence[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """The items that run, and those that do not: of marked tests beyond their core, and of tests that cost more than their budget."""
    samples: dict[str, Sample] = {}
    shares = [_share(item, samples) for item in items]
    cost: dict[str, float] = {}
    for item, share in zip(items, shares, strict=True):
        cost[function_of(item)] = cost.get(function_of(item), 0) + share * recorded().get(function_of(item), 0)
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item, share in zip(items, shares, strict=True):
        (kept if is_drawn(item.nodeid, share * affordable(cost[function_of(item)])) else left).append(item)
    return kept, left


def affordable(seconds: float) -> float:
    """The share of a test's cases that a date draws, which would take so long together. With ``core`` it is all."""
    return 1 if word() == CORE or seconds <= BUDGET else max(LEAST, BUDGET / seconds)


@cache
def recorded() -> dict[str, float]:
    """The mean seconds of a case, by the node id of its test without parameters."""
    return json.loads(DURATIONS.read_text("utf-8")) if DURATIONS.exists() else {}


def unrecorded(measured: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Seconds of the tests above their budget that are not recorded, of the node ids and seconds of their cases' phases."""
    cost: dict[str, float] = {}
    for nodeid, seconds in measured:
        function = nodeid.partition("[")[0]
        cost[function] = cost.get(function, 0) + seconds
    return {name: seconds for name, seconds in cost.items() if seconds > BUDGET and name not in recorded()}


def function_of(item: pytest.Item) -> str:
    """The node id without parameters."""
    return item.nodeid.partition("[")[0]


def _share(item: pytest.Item, samples: dict[str, Sample]) -> float:
    """The share of dates on which an item would run if it cost nothing."""
    mark = item.get_closest_marker("sampled")
    return 1 if mark is None else _share_of(item, samples, **mark.kwargs)


def _share_of(item: pytest.Item, samples: dict[str, Sample], every: int, share: float = SHARE, by: str = "") -> float:
    sample = samples.setdefault(function_of(item), Sample(every, share))
    params = item.callspec.params if hasattr(item, "callspec") else {}
    return sample.share_of_next(tuple(str(params[name]) for name in by.split(",")) if by else None)
