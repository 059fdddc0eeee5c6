"""The measurements, and what follows from them: medians, ratios with their spread, shares of the peak, geometric means.
Plain numbers, which JSON keeps as they are. Imports the standard library.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

OURS = "lightnet"


def quantile(values: Sequence[float], q: float) -> float:
    """The q-quantile by linear interpolation between the sorted values."""
    ordered = sorted(values)
    at = q * (len(ordered) - 1)
    low = math.floor(at)
    return ordered[low] + (ordered[math.ceil(at)] - ordered[low]) * (at - low)


@dataclass
class Row:
    """One network at one number of threads. `seconds` has the median call of each round by engine, `peak` the FMA rate of each
    round (operations a second), `starts` reports of processes (`rotation.starts`), `errors` the largest error by engine, relative
    to the largest value of an output, against `oracle`."""

    name: str
    group: str
    threads: int
    flops: int
    seconds: dict[str, list[float]]
    peak: list[float] = field(default_factory=list)
    errors: dict[str, float] = field(default_factory=dict)
    oracle: str = ""
    first: dict[str, dict[str, Any]] = field(default_factory=dict)
    starts: dict[str, dict[str, list[dict[str, Any]]]] = field(default_factory=dict)
    spun: dict[str, float] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    clock: str = "wall"

    def median(self, engine: str) -> float | None:
        """Seconds of a call; None for an engine that did not run."""
        times = self.seconds.get(engine)
        return statistics.median(times) if times else None

    @property
    def best_peer(self) -> str | None:
        """The faster of the others, by the medians."""
        medians = {e: m for e in self.seconds if e != OURS and (m := self.median(e)) is not None}
        return min(medians, key=lambda e: medians[e], default=None)

    @property
    def ratio(self) -> float | None:
        """Our time over that of the best peer: below 1 we are faster."""
        ours, peer = self.median(OURS), self.best_peer
        return ours / (self.median(peer) or math.nan) if ours is not None and peer is not None else None

    @property
    def spread(self) -> tuple[float, float] | None:
        """The 10th and 90th percentile of the ratios of single rounds."""
        if self.ratio is None or self.best_peer is None:
            return None
        ratios = [a / b for a, b in zip(self.seconds[OURS], self.seconds[self.best_peer])]
        return quantile(ratios, 0.1), quantile(ratios, 0.9)

    def share_of_peak(self, engine: str | None) -> float | None:
        """The part of the FMA peak of the same rotation that the network's multiply-adds come to (Winograd can go beyond 1)."""
        seconds = self.median(engine) if engine is not None else None
        if not seconds or not self.peak or not self.flops:
            return None
        return self.flops / seconds / statistics.median(self.peak)

    def start(self, engine: str, kind: str, what: str) -> float | None:
        """The median of a figure of the processes that were started ``cold`` or ``warm``."""
        found = [r[what] for r in self.starts.get(engine, {}).get(kind, []) if what in r]
        return statistics.median(found) if found else None


def geometric_mean(values: Iterable[float]) -> float:
    """exp of the mean of the logarithms; NaN of nothing."""
    logs = [math.log(v) for v in values]
    return math.exp(statistics.fmean(logs)) if logs else math.nan


def mean_ratio(rows: Iterable[Row]) -> tuple[float, int]:
    """The geometric mean of the ratios, and of how many."""
    ratios = [r.ratio for r in rows if r.ratio is not None]
    return geometric_mean(ratios), len(ratios)


def to_json(rows: Sequence[Row], about: dict[str, Any]) -> str:
    """Everything measured, and the figures that follow from it."""
    derived = [
        {"ratio": r.ratio, "spread": r.spread, "best_peer": r.best_peer, "share_of_peak": r.share_of_peak(OURS)}
        for r in rows
    ]
    plain = {"about": about, "rows": [{**asdict(r), "derived": d} for r, d in zip(rows, derived)]}
    return json.dumps(_finite(plain), indent=1, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    """JSON has no NaN: null."""
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def from_json(text: str) -> tuple[list[Row], dict[str, Any]]:
    """The rows that `to_json` wrote."""
    plain = json.loads(text)
    rows = [Row(**{k: v for k, v in r.items() if k != "derived"}) for r in plain["rows"]]
    for row in rows:
        row.errors = {k: math.nan if v is None else v for k, v in row.errors.items()}
    return rows, plain["about"]
