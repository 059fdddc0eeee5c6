"""The memory that transformed weights may take: Winograd's are up to four times as large as those that they stand for.

Each kernel chooses for itself what is quickest (`selection.py`). Where all of these together would take more memory
than the network may, the choice is made for all at once: what each kernel could do, with its time and the bytes of its
weights, is a knapsack (of one choice each). Transforming less, transforming at run time (`winograd_panels.py`), and the
direct algorithm are such ways. Kernels that share their weights share them packed, if there is a layout for all.
Imports the selection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import gcd
from typing import NamedTuple

import numpy as np
from xdsl.ir import SSAValue

from lightnet.backends.cpu.selection import SELECTION
from lightnet.backends.generator import Plan
from lightnet.backends.selection import Chosen
from lightnet.dialects.ln.structure import OnceOp
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import Layout
from lightnet.ir.types import spec_of

#: Bytes that transformed weights may take beyond the plain ones unless a caller says otherwise, as a share of all
#: weights.
TIMES = 0.3
#: Into so many parts the budget is cut at most, to which sizes are rounded up; into fewer where all sizes are multiples
#: of more.
PARTS = 4096


class _Way(NamedTuple):
    """An option of kernels: nanoseconds of all, and bytes of their packed weights."""

    time: float
    size: int
    plans: Mapping[KernelOp, Plan]


def changes(kernels: Sequence[KernelOp], budget: int | None) -> dict[KernelOp, Plan]:
    """The plans by which some of `kernels`, all of a network whose algorithm may change, should run instead of their
    own, so that transformed weights take no more than `budget` bytes (None: the default) beyond the smallest that there
    are, in the least time.
    """
    made = {k: chosen for k in kernels if (chosen := SELECTION.made(k)) is not None}
    grown = [k for k in made if not made[k].plan.generator.exact]
    if not grown:
        return {}
    if budget is None:
        budget = int(TIMES * _weights(kernels))
    items = [ways for group in _groups(grown, made) for ways in _items(group, made)]
    least = [min(way.size for way in ways) for ways in items]
    found = _packed([[(w.time, w.size - low) for w in ways] for ways, low in zip(items, least)], budget)
    return {k: p for ways, i in zip(items, found) if i for k, p in ways[i].plans.items()}


def _weights(kernels: Sequence[KernelOp]) -> int:
    """Bytes of the plain weights of a network."""
    static = {v for k in kernels for v in k.operands if isinstance(v.owner, OnceOp)}
    return sum(spec_of(v.type).nbytes for v in static)


def _groups(grown: Sequence[KernelOp], made: Mapping[KernelOp, Chosen]) -> Iterator[list[KernelOp]]:
    """The kernels that have transformed weights, each with those that read the same."""
    readers: dict[SSAValue, list[KernelOp]] = {}
    weights = {kernel: _weight(kernel, chosen.plan) for kernel, chosen in made.items()}
    for kernel, weight in weights.items():
        if weight is not None:
            readers.setdefault(weight, []).append(kernel)
    known = (w for k in grown if (w := weights[k]) is not None)
    yield from {id(group): group for w in known for group in [readers[w]]}.values()


def _weight(kernel: KernelOp, plan: Plan) -> SSAValue | None:
    """The largest operand that a kernel reads packed."""
    packed = (kernel.operands[i] for i in plan.weights)
    return max(packed, key=lambda v: spec_of(v.type).nbytes, default=None)


def _items(group: Sequence[KernelOp], made: Mapping[KernelOp, Chosen]) -> Iterator[list[_Way]]:
    """The options of a group, its present choices first: all in one layout, or, where there is none for all, each for
    itself."""
    each = [_ways(kernel, made[kernel]) for kernel in group]
    shared = set.intersection(*(set(ways) for ways in each))
    if not shared:
        yield from (list(ways.values()) for ways in each)
        return
    own = [next(iter(ways)) for ways in each]
    ways = []
    for layouts in sorted(shared, key=lambda s: (any(s != o for o in own), str(s))):
        parts = [ways[layouts] for ways in each]
        ways.append(
            _Way(sum(p.time for p in parts), parts[0].size, {k: plan for p in parts for k, plan in p.plans.items()})
        )
    unchanged = _Way(
        sum(ways[o].time for ways, o in zip(each, own)),
        sum({o: ways[o].size for ways, o in zip(each, own)}.values()),
        {},
    )
    yield [unchanged, *ways]


def _ways(kernel: KernelOp, made: Chosen) -> dict[tuple[Layout, ...], _Way]:
    """The quickest that a kernel could do with each of the layouts that its weights may have; its present plan
    first."""
    found: dict[tuple[Layout, ...], _Way] = {}
    for plan in (made.plan, *(p for offer in made.offers for p in (offer, offer.lean) if p is not None)):
        layouts = tuple(plan.weights[i] for i in sorted(plan.weights))
        if layouts not in found or plan.time < found[layouts].time:
            size = sum(layout.size(spec_of(kernel.operands[i].type)) for i, layout in plan.weights.items())
            found[layouts] = _Way(plan.time, size, {kernel: plan})
    return found


def _packed(items: Sequence[Sequence[tuple[float, int]]], budget: int) -> list[int]:
    """One of each item's (time, size) such that sizes sum up to at most `budget`, in the least time: the first where
    that is possible for all, as each item's first is its quickest."""
    if sum(ways[0][1] for ways in items) <= budget:
        return [0] * len(items)
    unit = max(1, gcd(*(size for ways in items for _, size in ways)), -(-budget // PARTS))
    best, chosen = np.zeros(budget // unit + 1), []
    for ways in items:
        times = np.full((len(ways), len(best)), np.inf)
        for i, (time, size) in enumerate(ways):
            parts = -(-size // unit)
            if parts < len(best):
                times[i, parts:] = best[: len(best) - parts] + time
        chosen.append(times.argmin(axis=0))
        best = times.min(axis=0)
    found, at = [], len(best) - 1
    for ways, choice in zip(reversed(items), reversed(chosen)):
        found.append(int(choice[at]))
        at -= -(-ways[found[-1]][1] // unit)
    return found[::-1]
