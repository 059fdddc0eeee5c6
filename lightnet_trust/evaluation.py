"""Ops evaluated once: a memory of what each op gave on which arrays, across executions of a module and its successors.

Checking executes nearly the same program again and again; what a pass did not touch costs a look-up. Imports NumPy and
`ir`.
"""

from __future__ import annotations

import os
import weakref
from collections import Counter, OrderedDict
from collections.abc import Sequence

import numpy as np

from lightnet.dataclasses import dataclass
from lightnet.ir.op import LnOp
from lightnet.runtime.arrays import same_bytes

#: Bytes of arrays that are remembered, at most; a quarter of the machine's memory where that is less.
MAX_BUDGET = 4 << 30
#: Elements of an array that its key holds; arrays of equal keys are compared whole.
SAMPLED = 64


class RememberingEvaluator:
    """`LnOp.evaluate` with a memory. Arrays that go through it are *interned*: equal in type, shape and bytes means the
    same object, which is read-only, so that a look-up compares identities.

    When the arrays held exceed `budget` bytes, results go that nobody asked for in this round and the one before
    (`next_round`: a round executes a module once on all data); where there are none, new ones are not kept. To drop the
    oldest would keep nothing at all of a program that is larger than the budget and executed from the front each time.
    """

    def __init__(self, budget: int | None = None):
        self.budget = default_budget() if budget is None else budget
        self.hits = self.misses = self._round = 0
        self._results: OrderedDict[object, _Entry] = OrderedDict()  # the one used last is last
        self._interned: dict[object, list[weakref.ref[np.ndarray]]] = {}
        self._held: Counter[int] = Counter()
        self._bytes = 0

    def evaluate(self, op: LnOp, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The results of `op`, interned; `operands` are interned arrays. Raises what the op's reference raises."""
        key = (op_key(op), tuple(map(id, operands)))
        found = self._results.get(key)
        if found is not None:
            self.hits += 1
            found.round = self._round
            self._results.move_to_end(key)
            return found.results
        self.misses += 1
        return self.remember(op, operands, self.compute(op, operands))

    def compute(self, op: LnOp, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The results of `op`, which nothing remembers."""
        return op.evaluate(operands)

    def remember(self, op: LnOp, operands: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Take `results` for what `op` gives on interned operands; they are returned, interned."""
        interned = [self.intern(array) for array in results]
        entry = _Entry(tuple(operands), interned, self._round)
        self._results[op_key(op), tuple(map(id, operands))] = entry
        self._hold(entry)
        while self._bytes > self.budget and self._results:
            stale = next(iter(self._results.values())).round < self._round - 1
            self._release(self._results.popitem(last=not stale)[1])
            if not stale:
                break
        return interned

    def next_round(self) -> None:
        """Begin the next round: what was asked for before the last one may go."""
        self._round += 1

    def intern(self, array: np.ndarray) -> np.ndarray:
        """The one array with these contents: `array` (made read-only; a copy where it is a view) or an earlier one."""
        array = np.asarray(array)  # references give NumPy's scalars for rank 0
        key = _content_key(array)
        known = self._interned.setdefault(key, [])
        for ref in known:
            if (other := ref()) is not None and same_bytes(other, array):
                return other
        if array.base is not None or not array.flags.c_contiguous:
            array = np.array(array, order="C")
        array.flags.writeable = False
        known[:] = [ref for ref in known if ref() is not None]
        known.append(weakref.ref(array))
        return array

    def _hold(self, entry: _Entry) -> None:
        for array in (*entry.operands, *entry.results):
            self._bytes += array.nbytes if not self._held[id(array)] else 0
            self._held[id(array)] += 1

    def _release(self, entry: _Entry) -> None:
        for array in (*entry.operands, *entry.results):
            self._held[id(array)] -= 1
            if not self._held[id(array)]:
                del self._held[id(array)]
                self._bytes -= array.nbytes


@dataclass
class _Entry:
    """The results of an op on `operands`, which are held so that their ids stay theirs."""

    operands: tuple[np.ndarray, ...]
    results: list[np.ndarray]
    round: int


def default_budget() -> int:
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):  # not on every system
        memory = MAX_BUDGET
    return min(MAX_BUDGET, memory // 4)


def op_key(op: LnOp) -> object:
    """The meaning of an op as a hashable key: its class, parameters and result types. Parameters count as written: 1,
    1.0 and true are equal in Python."""
    return type(op), tuple((k, repr(v)) for k, v in op.properties.items()), tuple(op.result_specs)


def _content_key(array: np.ndarray) -> object:
    flat = array.reshape(-1)  # a copy where the array is no contiguous one
    step = max(1, flat.size // SAMPLED)
    return array.dtype, array.shape, flat[::step][:SAMPLED].tobytes(), flat[-1:].tobytes()
