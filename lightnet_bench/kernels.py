"""Two networks kernel by kernel: which kernels of one do what which kernels of the other do, by the tensors that they
compute, and how long each takes, by the target's model and by the clock.

A kernel computes the tensors that its body names, also those that stay inside. Kernels of both sides that compute a
common tensor belong together, with all that belongs to these: two kernels of one side are matched with the one of the
other side that they were merged into. Kernels are timed one by one, in rounds that alternate between the sides. Imports
`lightnet_debug`.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lightnet.dataclasses import dataclass, field
from lightnet.ir.kernel import KernelOp
from lightnet.ir.memory import WORKSPACE_SIZE
from lightnet.ir.names import tensor_names
from lightnet.ir.target import get_target
from lightnet_bench.intervals import Interval, interval
from lightnet_debug.profile import kernel_name
from lightnet_debug.steps import KernelStep, Stepper, specialized, stepper

if TYPE_CHECKING:
    from lightnet_bench.sides import Side

#: Rounds of each side, at least and at most.
LEAST_ROUNDS, MOST_ROUNDS = 6, 60


@dataclass
class Kernel:
    """One kernel of a side: the tensors that it makes, by `name`; all that it computes; its op types; its choices, as
    text; what it takes in nanoseconds by the model (None: there is none); a key of its code, equal where code and
    number of blocks are, and the seconds of each round."""

    name: str
    tensors: frozenset[str]
    ops: str
    choices: str
    predicted: float | None
    code: Any
    step: KernelStep
    seconds: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Matched:
    """Kernels of two sides that compute the same tensors; one side may have none. `seconds` and `predicted` are sums of
    each side (None where a kernel of it has none), `ratio` the second side's time over the first's, `same` says that
    both run the same code."""

    name: str
    kernels: tuple[tuple[Kernel, ...], tuple[Kernel, ...]]
    seconds: tuple[float, float]
    predicted: tuple[float | None, float | None]
    ratio: Interval | None
    same: bool

    @property
    def gain(self) -> float:
        """Seconds that the second side takes more than the first."""
        return self.seconds[1] - self.seconds[0]

    def json(self) -> dict[str, Any]:
        """The figures as JSON values; times in nanoseconds."""
        sides = [
            {"kernels": [{"name": k.name, "ops": k.ops, "choices": k.choices} for k in kernels],
             "ns": 1e9 * seconds, "predicted_ns": predicted}
            for kernels, seconds, predicted in zip(self.kernels, self.seconds, self.predicted)
        ]  # fmt: skip
        return {
            "name": self.name,
            "a": sides[0],
            "b": sides[1],
            "same_code": self.same,
            "ratio": ratio_json(self.ratio),
        }


def ratio_json(found: Interval | None) -> dict[str, Any] | None:
    """An interval as JSON values, which know no infinity."""
    if found is None:
        return None
    return {"ratio": found.ratio, "low": found.low, "high": found.high if math.isfinite(found.high) else None,
            "confidence": found.confidence, "samples": found.samples}  # fmt: skip


def kernels_of(side: Side) -> tuple[Stepper, list[Kernel]]:
    """The kernels of a side that have launches, in program order, and how to call them. Raises LightNetError where they
    cannot be called one by one."""
    executable, feeds = specialized(side.apart, side.fed)
    if not executable.is_native:
        raise executable.no_code("time its kernels")
    walk = stepper(executable, feeds)
    target = get_target(executable.options.get("target", "cpu"))
    symbols = getattr(getattr(executable.native, "emitted", None), "symbols", {})
    return walk, [_kernel(step, target, symbols) for step in walk.steps if step.lines]


def _kernel(step: KernelStep, target: Any, symbols: Any) -> Kernel:
    op = step.op
    inside = list(op.ops) if isinstance(op, KernelOp) else []
    names = {n for o in (op, *inside) for n in tensor_names(o) if n}
    ops = "+".join(o.optype for o in inside) or op.name.partition(".")[2]
    found = target.predicted(op) if isinstance(op, KernelOp) else None
    predicted = float(found) if isinstance(found, int | float) else None
    named = sorted(op.choices.items()) if isinstance(op, KernelOp) else []
    choices = ", ".join(f"{k}={plain_text(v)}" for k, v in named if k != WORKSPACE_SIZE)
    callees = [line.callee.string_value() if hasattr(line, "callee") else line.name for line in step.lines]
    # A symbol is the hash of a kernel's text, so that equal ones are the same code.
    code = tuple((symbols.get(n), str(getattr(line, "grid", ""))) for n, line in zip(callees, step.lines))
    return Kernel(kernel_name(op), frozenset(names), ops, choices, predicted, code if symbols else None, step)


def plain_text(value: Any) -> str:
    """A choice as people write it."""
    return str(value).replace('"', "").replace(" : i64", "")


def timed(sides: tuple[Side, Side], limit: float, seed: int = 0) -> list[Matched]:
    """The kernels of both sides, matched, and timed for about `limit` seconds."""
    (walk_a, first), (walk_b, second) = map(kernels_of, sides)
    most = min((w.rounds for w in (walk_a, walk_b) if w.rounds is not None), default=MOST_ROUNDS)
    take_rounds([(walk_a, first), (walk_b, second)], limit, LEAST_ROUNDS, most, seed)
    return matched(first, second)


def take_rounds(
    sides: Sequence[tuple[Stepper, Sequence[Kernel]]], limit: float, least: int, most: int = MOST_ROUNDS, seed: int = 0
) -> None:
    """Time all kernels of some sides, which take turns, in the order of the network: for `limit` seconds, but `least`
    rounds at least and `most` at most. One more, the first, fills caches and does not count."""
    coin, end, rounds = random.Random(seed), time.monotonic() + limit, 0
    while rounds < most and (rounds <= least or time.monotonic() < end):
        for walk, kernels in coin.sample(sides, len(sides)):
            walk.restart()
            for kernel in kernels:
                kernel.seconds.append(walk.seconds(kernel.step))
        rounds += 1
    for kernel in (k for _, kernels in sides for k in kernels):
        del kernel.seconds[: len(kernel.seconds) - max(rounds - 1, 1)]


def matched(first: Sequence[Kernel], second: Sequence[Kernel]) -> list[Matched]:
    """The kernels of two sides by common tensors, in the order of the first side, then what the second alone has."""
    group: dict[str, str] = {}  # a tensor -> another of its group: a forest

    def root(name: str) -> str:
        while group.setdefault(name, name) != name:
            name = group[name]
        return name

    common = frozenset().union(*(k.tensors for k in first)) & frozenset().union(*(k.tensors for k in second))
    for kernel in (*first, *second):
        names = sorted(kernel.tensors & common)
        for name in names[1:]:
            group[root(name)] = root(names[0])
    found: dict[Any, tuple[list[Kernel], list[Kernel]]] = {}
    for k, kernels in enumerate((first, second)):
        for kernel in kernels:
            names = sorted(kernel.tensors & common)
            key = root(names[0]) if names else (k, id(kernel))
            found.setdefault(key, ([], []))[k].append(kernel)
    return [_matched(tuple(a), tuple(b)) for a, b in found.values()]


def _matched(first: tuple[Kernel, ...], second: tuple[Kernel, ...]) -> Matched:
    times = [[sum(round_) for round_ in zip(*(k.seconds for k in kernels))] for kernels in (first, second)]
    seconds = tuple(statistics.median(t) if t else 0.0 for t in times)
    predicted = tuple(
        None if any(k.predicted is None for k in kernels) else sum(k.predicted or 0.0 for k in kernels)
        for kernels in (first, second)
    )
    ratios = [math.log(b / a) for a, b in zip(*times) if a > 0 and b > 0]
    last = (second or first)[-1]
    codes = [[k.code for k in kernels] for kernels in (first, second)]
    same = codes[0] == codes[1] and None not in codes[0]
    return Matched(last.name, (first, second), seconds, predicted,  # type: ignore[arg-type]  # two of each
                   interval(ratios) if ratios else None, same)  # fmt: skip
