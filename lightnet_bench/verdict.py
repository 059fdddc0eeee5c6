"""One pass on many networks: are results right, is it faster, is it smaller; in a second or two each.

The network as it is is compiled once and kept, so that who saves the file of a pass again waits for one compilation, of
which only kernels with another text become machine code (the process remembers the others). Of two executables only the
kernels that differ are timed, A and B in turn, and what they take is set beside the whole call. Imports sides and
kernels.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import statistics
import time
from collections.abc import Mapping
from copy import copy
from typing import Any, NamedTuple

import numpy as np

from lightnet.cli.network import Network, run_options
from lightnet.cli.run import fed_inputs
from lightnet.dataclasses import dataclass, field
from lightnet.diagnostics import LightNetError
from lightnet.ir.registry import PASSES
from lightnet.tables import size, table
from lightnet_bench.comparison import Output, compared
from lightnet_bench.intervals import MARGIN, NO_DIFFERENCE, Interval, interval
from lightnet_bench.kernels import LEAST_ROUNDS, Kernel, Matched, kernels_of, matched, ratio_json
from lightnet_bench.sides import Side
from lightnet_debug.steps import Stepper

#: Seconds for which kernels of a network are timed, and an error of an output, as a share of its largest value, that a
#: pass may make.
SECONDS, TOLERANCE = 0.3, 1e-4
#: Rounding, as a share of each element of the inputs, and how often it is drawn on each data set: an output that this
#: moves further than the tolerance (what was sorted, picked or counted) shows no more of a pass that rounds.
ROUNDING, DRAWS = 1e-6, 3
#: The pass behind which one of a level stands in a target's pipeline, unless somebody says where.
_BEHIND = {"graph": "simplify", "kernels": "combine", "plan": "plan"}
#: Seeds of the data that outputs are compared on.
_SEEDS = (0, 1)
HEADER = ("network", "right", "faster", "B/A", "arena", "static", "code", "kernels", "s")


@dataclass(frozen=True)
class Verdict:
    """The verdict on a pass for one network: its outputs (`error` is the largest, as a share of the largest value, on
    all data), the ratio of the times of a whole call, memory and code of both sides, how many kernels there were and
    are, how many of these are new or changed, and the seconds that finding out took. `loose` has the errors of outputs
    that inputs make which differ by `ROUNDING` alone, where these are beyond the tolerance; `problem` is why there is
    none of all that."""

    network: str
    outputs: tuple[Output, ...] = ()
    ratio: Interval | None = None
    memory: tuple[dict[str, int], dict[str, int]] = ({}, {})
    code: tuple[int | None, int | None] = (None, None)
    kernels: tuple[int, int, int] = (0, 0, 0)
    took: float = 0.0
    problem: str = ""
    loose: Mapping[str, float] = field(default_factory=dict)

    @property
    def error(self) -> float:
        return max((o.error for o in self.outputs if o.name not in self._excused), default=0.0)

    @property
    def _excused(self) -> list[str]:
        """The outputs that differ, and little more than rounding of the inputs makes them (one more flip, say)."""
        worst: dict[str, float] = {}
        for o in self.outputs:
            worst[o.name] = max(o.error, worst.get(o.name, 0.0))
        return [name for name, error in worst.items() if TOLERANCE < error <= 2 * self.loose.get(name, 0.0)]

    @property
    def is_right(self) -> bool:
        """True if there is a network, and its outputs are within the tolerance."""
        return not self.problem and self.error <= TOLERANCE

    @property
    def faster(self) -> str:
        """The verdict on the time: of `intervals.SLOWER` and its like."""
        return NO_DIFFERENCE if self.ratio is None else self.ratio.verdict(MARGIN)

    def row(self) -> tuple[str, ...]:
        """A row of the table."""
        if self.problem:
            return (self.network, f"FAILS: {self.problem}", *[""] * 6, f"{self.took:.1f}")
        equal = all(o.equal for o in self.outputs)
        right = "to the bit" if equal else f"within {self.error:.1e}" if self.is_right else f"WRONG by {self.error:.1e}"
        right += f" ({', '.join(self._excused)}: as rounding alone)" if self._excused else ""
        right += " (constant: says little)" if self.is_right and all(o.constant for o in self.outputs) else ""
        first, second, changed = self.kernels
        count = f"{first}, of which {changed} changed" if first == second else f"{first} -> {second}, {changed} changed"
        memory = [_smaller(self.memory[0].get(space), self.memory[1].get(space)) for space in ("arena", "static")]
        if not changed and first == second:
            return self.network, right, "the same code", "", *memory, _smaller(*self.code), count, f"{self.took:.1f}"
        ratio = str(self.ratio) if self.ratio is not None else ""
        return self.network, right, self.faster, ratio, *memory, _smaller(*self.code), count, f"{self.took:.1f}"

    def json(self) -> dict[str, Any]:
        """All of it, as JSON values."""
        return {"network": self.network, "right": self.is_right, "problem": self.problem or None,
                "error": self.error if math.isfinite(self.error) else None, "verdict": self.faster,
                "ratio": ratio_json(self.ratio), "memory": self.memory, "code_bytes": self.code,
                "kernels": {"a": self.kernels[0], "b": self.kernels[1], "changed": self.kernels[2]},
                "seconds": self.took}  # fmt: skip


def page(verdicts: list[Verdict]) -> str:
    """The table of verdicts."""
    return table(HEADER, [v.row() for v in verdicts])


class _Plain(NamedTuple):
    """A network without the pass: as a side, with its outputs on data, and its kernels; `weights` are those that were
    drawn for it, where it has none."""

    network: Network
    side: Side
    data: list[tuple[dict[str, Any], dict[str, Any]]]
    walk: Stepper
    kernels: list[Kernel]
    weights: dict[str, Any]


class Judge:
    """Judges a pass, or a pipeline, on networks that it keeps as they are without it. Raises LightNetError where one of
    these cannot be compiled."""

    def __init__(self, args: argparse.Namespace):
        self.args = args
        self._plain: dict[str, _Plain] = {}

    def judge(self, path: str) -> Verdict:
        """The verdict for one network, under the plugins that are loaded. What goes wrong in the pass is a problem, in
        the verdict."""
        start = time.monotonic()
        name = os.path.basename(path)
        if path not in self._plain:
            self._plain[path] = self._without(path)
        known = self._plain[path]
        plain, kernels = known.side, known.kernels
        try:
            more: dict[str, Any] = {"weights": known.weights} if known.weights else {}
            pipeline = pipeline_with(self.args.pipeline, self.args.target)
            side = self._side("B", known.network, plain.feeds, pipeline=pipeline, **more)
            outputs = [o for feeds, expected in known.data for o in compared(expected, side.executable(feeds))]
            loose = _loose(plain, known.data) if any(TOLERANCE < o.error < math.inf for o in outputs) else {}
            own, others = kernels_of(side)
        except LightNetError as error:
            return Verdict(name, took=time.monotonic() - start, problem=error.render().partition("\n")[0])
        groups = matched(kernels, others)
        ratio = _whole(known.walk, own, groups, plain, kernels)
        changed = sum(len(g.kernels[1]) for g in groups if not g.same)
        return Verdict(name, tuple(outputs), ratio, (plain.memory, side.memory), (plain.code_bytes, side.code_bytes),
                       (len(kernels), len(others), changed), time.monotonic() - start, loose=loose)  # fmt: skip

    def _without(self, path: str) -> _Plain:
        network = Network(self.args, path)
        model = network.model()  # whose shapes have to be numbers
        plain, drawn = self._side("A", network, None), dict[str, Any]()
        if plain.executable.missing:  # of zeros, outputs are constant
            drawn = _drawn(model.module)
            plain = self._side(
                "A", network, None, weights={n: drawn[n] for n in plain.executable.missing if n in drawn}
            )
        data: list[tuple[dict[str, Any], dict[str, Any]]] = []
        for seed in _SEEDS:
            args = copy(self.args)
            args.seed = seed
            feeds = fed_inputs(args, network, plain.executable)
            if not data:  # what weights were fitted to
                feeds |= {n: drawn[n] for n in plain.executable.inputs if n in drawn}
            data.append((feeds, plain.executable(feeds)))
        plain.feeds.update(data[0][0])
        walk, kernels = kernels_of(plain)
        weights = {n: drawn[n] for n in plain.executable.params if n in drawn}
        return _Plain(network, plain, data, walk, kernels, weights)

    def _side(self, name: str, network: Network, feeds: Any, **more: Any) -> Side:
        options = {k: v for k, v in run_options(self.args).items() if k != "pipeline"}
        planning = {
            k: v for k, v in (("plan", self.args.plan), ("layout", self.args.layout)) if v not in (None, "default")
        }
        threads = self.args.threads
        executable = network.compile(self.args.target, threads=threads, **options, **planning, **more)
        return Side(name, network.path, executable, dict(feeds or {}), threads)


def _loose(plain: Side, data: list[tuple[dict[str, Any], dict[str, Any]]]) -> dict[str, float]:
    """By output, how far rounding of the inputs alone takes it, where that is beyond the tolerance."""
    draw, found = np.random.default_rng(0), dict[str, float]()
    for feeds, expected in data:
        for _ in range(DRAWS):
            near = {
                n: a + (a * ROUNDING * draw.standard_normal(a.shape)).astype(a.dtype) if a.dtype.kind == "f" else a
                for n, a in ((n, np.asarray(a)) for n, a in feeds.items())
            }
            for o in compared(expected, plain.executable(near)):
                if TOLERANCE < o.error < math.inf:
                    found[o.name] = max(o.error, found.get(o.name, 0.0))
    return found


def _drawn(module: Any) -> dict[str, Any]:
    """Contents for inputs and weights that let no activation vanish or go constant, by name; none where nobody is there
    to draw them, or to execute the network."""
    from lightnet.ir.resolving import resolve_beside

    try:
        draw = resolve_beside("lightnet_trust.data:draw", "option '--verdict' of a network without weights")
        evaluator = resolve_beside("lightnet_trust.evaluation:RememberingEvaluator", "option '--verdict'")
        return draw(module, "ordinary", 0, evaluator()).contents
    except LightNetError:
        return {}


def pipeline_with(text: str, target: str) -> str:
    """The pipeline that a name of a pass stands for: the target's, with the pass behind the last one of ours of its
    level that it can do something for; what names a pipeline stands as it is. Raises LightNetError for a pass that
    there is not."""
    if text.lstrip().startswith("@") or "," in text:
        return text
    level = getattr(PASSES.get(text.partition("{")[0].strip()), "level", None)
    return f"@{target}+after:{_BEHIND.get(level or 'graph', 'simplify')}:{text}"


def _whole(walk: Stepper, own: Stepper, groups: list[Matched], plain: Side, kernels: list[Kernel]) -> Interval | None:
    """The ratio of whole calls: of kernels that differ as they are timed here, and of all others as they are without
    the pass. None where none differs."""
    changed = [g for g in groups if not g.same]
    if not changed:
        return None
    if not any(kernel.seconds for kernel in kernels):
        for _ in range(LEAST_ROUNDS):
            walk.restart()
            for kernel in kernels:
                kernel.seconds.append(walk.seconds(kernel.step))
    rest = sum(statistics.median(k.seconds) for g in groups if g.same for k in g.kernels[0])
    coin, end, logs, rounds = random.Random(0), time.monotonic() + SECONDS, list[float](), 0
    while rounds <= 2 * LEAST_ROUNDS or time.monotonic() < end:
        sums = [rest, rest]
        sides = [(0, walk), (1, own)]
        for k, stepper in sides if coin.random() < 0.5 else sides[::-1]:
            stepper.restart()
            for group in changed:
                for kernel in group.kernels[k]:
                    sums[k] += stepper.seconds(kernel.step)
        if rounds:  # the first fills caches
            logs.append(math.log(max(sums[1], 1e-9) / max(sums[0], 1e-9)))
        rounds += 1
    return interval(logs)


def _smaller(first: int | None, second: int | None) -> str:
    if first is None or second is None:
        return "?"
    return f"{size(first)}" if first == second else f"{size(first)} -> {size(second)}"
