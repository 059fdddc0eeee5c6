"""Matching a graph of ops, which rules in JSON and patterns in PDL have in common: steps from one op to the next, with
backtracking.

Imports xDSL only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import Any, NamedTuple

from xdsl.ir import Operation

#: What the names of a pattern stand for in one match: ops, and in PDL values, parameters and types, too.
Bindings = dict[Any, Any]


class MatchStep(NamedTuple):
    """A way to one op more: the ops that it may be, once those before it are known, and whether one fits. What the op
    binds, `accepts` adds.
    """

    candidates: Callable[[Bindings], Iterable[Operation]]
    accepts: Callable[[Operation, Bindings], bool]


def solutions(
    steps: Sequence[MatchStep], bound: Bindings, most: int, too_many: Callable[[], Exception]
) -> Iterator[Bindings]:
    """The ways to give each step an op, as what is bound in the end. Raises `too_many()` behind `most` candidates: the
    ways to give a few ops one each are many, and the paths of a graph are more than its ops."""
    tries = count()

    def extended(k: int, bound: Bindings) -> Iterator[Bindings]:
        if k == len(steps):
            yield bound
            return
        for op in steps[k].candidates(bound):
            if next(tries) > most:
                raise too_many()
            trial = dict(bound)
            if steps[k].accepts(op, trial):
                yield from extended(k + 1, trial)

    return extended(0, bound)


def span_of(root: Operation, matched: set[Operation]) -> list[Operation]:
    """The ops from the first of `matched` to the last, in program order, found from `root`, one of them: the time is
    that of their distance, not of the block."""
    before, after = [root], [root]
    left = matched - {root}
    while left and (before[-1].prev_op is not None or after[-1].next_op is not None):
        for ops, op in ((before, before[-1].prev_op), (after, after[-1].next_op)):
            if op is not None:
                ops.append(op)
                left.discard(op)
    span = [*before[:0:-1], *after]
    inside = [i for i, op in enumerate(span) if op in matched]
    return span[inside[0] : inside[-1] + 1]
