"""Offsets for all values of symbols: who lies below whom is decided, and each buffer stands on what is below it.

Of two buffers that are live together one lies below the other, in every call the same one. The offset of a buffer is
the maximum of the ends below it, so no two overlap whatever their sizes are. An *order* of the buffers says who lies
below whom, the earlier one; a plan for one call's sizes gives an order, and of the orders from several calls that one
is kept that is worst off least, against the lower bounds of many calls. Sums that are never the largest are left out
of a maximum, and some that seldom are, are joined with others. Imports dims, numpy and the numbers of `planning`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import combinations, islice, product
from math import lcm
from random import Random

import numpy as np

from lightnet.dataclasses import replace
from lightnet.diagnostics import FallbackWarning
from lightnet.runtime.arrays import align_up
from lightnet.runtime.dim_bounds import is_shown
from lightnet.runtime.dims import Dim, Size, at, dim_max, dim_of_terms, is_never_below, samples, typical

from .buffers import Buffer, Conflicts, lower_bound
from .planner import MemoryPlan, pack

#: Sums in an offset, and in the size of the arena, at most.
MOST_SUMS, MOST_TOPS = 12, 24
#: Calls whose plans give orders, and calls whose peaks are looked at, at most.
MOST_ORDERS, MOST_CALLS = 9, 40
#: An order whose peaks are above the lower bounds by no more than this is good enough; and others that are tried, each
#: a step from the best, times the number of buffers.
GOOD, TRIALS = 1.05, 4000


def stack_buffers(buffers: Sequence[Buffer], sizes: Mapping[str, Size], plan: MemoryPlan) -> MemoryPlan:
    """The plan for all values of the symbols in `sizes` (bytes, by id); `buffers` have the sizes of the typical call,
    and `plan` is theirs. Offsets and peak are `Dim`s where calls decide them; the bound is the typical call's."""
    buffers = [b for b in buffers if sizes[b.id] != 0]
    order, below = _best_order(buffers, sizes, plan)
    by = lcm(*(b.alignment for b in buffers))
    starts: dict[int, list[Size]] = {}
    offsets: dict[str, Size] = dict.fromkeys(plan.offsets, 0)
    shortened = 0
    for i in order:
        rooms = {j: -(-sizes[buffers[j].id] // by) * by for j in below[i]}
        starts[i], was_joined = _fewest([p + rooms[j] for j in below[i] for p in starts[j]] or [0], MOST_SUMS)
        shortened += was_joined
        offsets[buffers[i].id] = reduce(dim_max, starts[i])
    towers: dict[tuple[Size, ...], list[Size]] = {}  # the sizes that stand on the same sums
    for i in order:
        towers.setdefault(tuple(starts[i]), []).append(sizes[buffers[i].id])
    tops = []
    for start, above in towers.items():
        high, was_joined = _fewest(above, MOST_TOPS)
        shortened += was_joined
        tops.append(reduce(dim_max, start) + reduce(dim_max, high))
    tops = _not_below(tops or [0], is_shown)
    if shortened:
        message = f"{shortened} offsets are the maximum of more than {MOST_SUMS} sums: bounds of these are used, " \
                  "which may take more memory"  # fmt: skip
        warnings.warn(FallbackWarning(message), stacklevel=2)
    return replace(plan, offsets=offsets, peak=reduce(dim_max, tops))  # type: ignore[arg-type]


def _fewest(sums: Sequence[Size], most_sums: int) -> tuple[list[Size], bool]:
    """The sums that may be the largest; and True if some of them were joined, as they are too many, and that is more in
    a call of those that are looked at."""
    kept = _not_below(sums, is_shown)
    if len(kept) > most_sums:
        kept = _not_below(kept, is_never_below)
    most = [*map(max, zip(*map(samples, kept)))]
    while len(kept) > most_sums:
        a, b = min(combinations(kept, 2), key=lambda pair: typical(upper_join(*pair)) - max(map(typical, pair)))
        kept = _not_below([*(k for k in kept if k not in (a, b)), upper_join(a, b)], is_shown)
    return kept, [*map(max, zip(*map(samples, kept)))] != most


def _not_below(sums: Sequence[Size], is_below: Callable[[Size, Size], bool]) -> list[Size]:
    """The sums of which none is shown to be the other's equal or below."""
    kept: list[Size] = []
    for new in sorted(dict.fromkeys(sums), key=typical, reverse=True):
        if not any(is_below(k, new) for k in kept):
            kept.append(new)
    return kept


def upper_join(a: Size, b: Size) -> Size:
    """A polynomial that is never below either: of each product of atoms, which none is below 0, the larger multiple."""
    one, other = (n.terms if isinstance(n, Dim) else {(): n} for n in (a, b))
    terms = {term: max(one.get(term, 0), other.get(term, 0)) for term in (*one, *other)}
    return dim_of_terms(terms) if all(atom.range[0] >= 0 for term in terms for atom in term) else dim_max(a, b)


# -- orders ----------------------------------------------------------------------------------------------------------


def telling_calls(sizes: Iterable[Size]) -> Iterator[dict[str, int]]:
    """Values of the symbols, the most telling ones first: the typical ones, all ends of their ranges, and between, for
    ever."""
    symbols = sorted({s for n in sizes if isinstance(n, Dim) for s in n.symbols}, key=lambda s: s.name)
    yield {s.name: s.typical for s in symbols}
    for ends in product((1, 0), repeat=min(len(symbols), 4)):
        yield {s.name: s.high if e else s.low for s, e in zip(symbols, (*ends, *ends * len(symbols)))}
    random = Random(0)
    while True:  # spread by orders of magnitude
        shares = [random.random() for _ in symbols]
        values = (round(max(s.low, 1) * (s.high / max(s.low, 1)) ** x / s.multiple) for s, x in zip(symbols, shares))
        yield {s.name: min(max(v * s.multiple, s.low), s.high) for s, v in zip(symbols, values)}


class _Orders:
    """Orders of buffers, and what they are worth in many calls: `sizes` has a row for each buffer."""

    def __init__(self, buffers: Sequence[Buffer], sizes: Mapping[str, Size]):
        self.buffers = buffers
        conflicts = Conflicts(buffers)
        self.near = [frozenset(conflicts.of(i)) for i in range(len(buffers))]
        self.jumps = [isinstance(n := sizes[b.id], Dim) and bool(n.extremes) for b in buffers]
        self.calls = list({tuple(c.items()): c for c in islice(telling_calls(sizes.values()), MOST_CALLS)}.values())
        numbers = {n: [max(at(n, c), 1) for c in self.calls] for n in {sizes[b.id] for b in buffers}}
        self.sizes = np.array([numbers[sizes[b.id]] for b in buffers], dtype=np.int64)
        self.bounds = np.array([lower_bound(self.sized(k)) for k in range(len(self.calls))])

    def sized(self, call: int) -> list[Buffer]:
        """The buffers as large as they are in a call."""
        return [replace(b, size=int(n)) for b, n in zip(self.buffers, self.sizes[:, call])]

    def below(self, order: Sequence[int]) -> list[list[int]]:
        """The buffers that each one stands on: those that none of the others stands on, directly or not."""
        place = {i: k for k, i in enumerate(order)}
        under = [0] * len(order)  # as bits
        found: list[list[int]] = [[] for _ in order]
        for i in order:
            for j in sorted((j for j in self.near[i] if place[j] < place[i]), key=lambda j: -place[j]):
                if not under[i] >> j & 1:
                    found[i].append(j)
                    under[i] |= under[j] | 1 << j
        return found

    def worst(self, order: Sequence[int]) -> tuple[float, list[int]]:
        """The worst of the peaks by their lower bounds; and in that call the buffers that stand one on the other from
        the peak down."""
        below = self.below(order)
        ends = np.zeros_like(self.sizes)
        for i in order:
            start = ends[below[i]].max(axis=0) if below[i] else 0
            ends[i] = align_up(start, self.buffers[i].alignment) + self.sizes[i]
        ratios = ends.max(axis=0) / self.bounds
        call = int(ratios.argmax())
        tower = [int(ends[:, call].argmax())]
        while below[tower[-1]]:
            tower.append(max(below[tower[-1]], key=lambda j: ends[j, call]))
        return float(ratios[call]), tower

    def of_calls(self, plan: MemoryPlan) -> Iterator[list[int]]:
        """The orders of the plans of single calls, of the typical one first; nothing stands on sizes that jump."""
        for call in range(min(MOST_ORDERS, len(self.calls))):
            offsets = pack(self.sized(call), effort="fast").offsets if call else plan.offsets
            yield sorted(range(len(self.buffers)), key=lambda i: (self.jumps[i], offsets[self.buffers[i].id], i))

    def best(self, start: Sequence[int], last: Sequence[bool]) -> tuple[list[int], list[int]]:
        """The best order that is found from one on, and its worst tower: a buffer of the worst tower is put
        elsewhere, below another of it or anywhere."""
        random, found = Random(0), list(start)
        worth, tower = self.worst(found)
        for _ in range(TRIALS // len(found)):
            if worth <= GOOD:
                break
            order = list(found)
            order.remove(i := random.choice(tower))
            other = random.choice(tower)
            below = other != i and random.random() < 0.5
            order.insert(order.index(other) if below else random.randrange(len(found)), i)
            order.sort(key=last.__getitem__)
            new, under = self.worst(order)
            if new <= worth:
                found, tower, worth = order, under, new
        return found, tower


def _best_order(
    buffers: Sequence[Buffer], sizes: Mapping[str, Size], plan: MemoryPlan
) -> tuple[list[int], list[list[int]]]:
    """The best order that was found, and which buffers each one stands on. Little stands on sizes that jump: then sums
    are of few kinds of terms."""
    if not buffers:
        return [], []
    orders = _Orders(buffers, sizes)
    _, start = min((orders.worst(order)[0], order) for order in orders.of_calls(plan))
    order, tower = orders.best(start, orders.jumps)
    if any(orders.jumps[i] for i in tower):  # these may be below others, if that is better
        order, _ = orders.best(order, [jumps and i not in tower for i, jumps in enumerate(orders.jumps)])
    return order, orders.below(order)
