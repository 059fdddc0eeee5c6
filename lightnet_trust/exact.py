"""Executions in a prime field beside those on numbers: each array carries the residues that it has there.

A `Carrier` is the array of numbers that the check compares as ever; its residues say whether two that agree up to
rounding are equal as formulas. An op without index notation, a sort say, is a random function of all its operands.
Imports NumPy, `ir`, the interpreter of index notation and the evaluator.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
from xdsl.ir import SSAValue

from lightnet.backends.expressions import bind_op
from lightnet.ir.op import LnOp
from lightnet.runtime.arrays import same_bytes
from lightnet.runtime.dtypes import is_float
from lightnet_trust.compare import Mismatch, worst
from lightnet_trust.evaluation import RememberingEvaluator, op_key
from lightnet_trust.interpreter.field import PRIME, canonical, evaluate_residues, image


class Carrier(np.ndarray):
    """An array of floats with their residues, of the same shape; `plain` is the array itself."""

    residues: np.ndarray
    plain: np.ndarray

    def __array_finalize__(self, source: Any) -> None:
        """Leave what is computed from a carrier without residues: it is none."""


def carry(plain: np.ndarray, residues: np.ndarray) -> Carrier:
    """`plain` with its residues; of what is no number they are those of infinity or NaN."""
    found = plain.view(Carrier)
    finite = np.isfinite(plain)
    found.plain, found.residues = plain, residues
    if not finite.all():
        found.residues = np.where(finite, residues, canonical(image(np.where(finite, 0, plain))))
    return found


def residues_of(array: np.ndarray) -> np.ndarray | None:
    """The residues that an array carries."""
    return getattr(array, "residues", None)


def plain(array: np.ndarray) -> np.ndarray:
    """The array of numbers alone."""
    return getattr(array, "plain", array)


class FieldEvaluator(RememberingEvaluator):
    """Evaluates ops on numbers by `numbers`, which remembers them, and on residues. Arrays that come without residues
    get those of the rational numbers that they are."""

    def __init__(self, numbers: RememberingEvaluator, budget: int | None = None):
        super().__init__(budget)
        self.numbers = numbers
        self.opaque: set[str] = set()  #: The ops that were random functions of all their operands.
        self._carriers: dict[tuple[int, bytes], weakref.ref[np.ndarray]] = {}

    def compute(self, op: LnOp, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
        results = self.numbers.evaluate(op, [plain(a) for a in operands])
        if not any(is_float(a.dtype) for a in results):
            return results
        names, made = op.arg_names()
        if op.definition is None and (graph := op.decomposed()) is not None:
            found = dict(zip(made, self.of_graph(op, operands, *graph)))
        elif op.definition is None or 0 in (a.size for a in results):
            self.opaque.add(op.optype)
            found = dict(zip(made, _opaque(op, operands, results)))
        else:
            floats = {n: r for n, a in zip(names, operands) if (r := residues_of(a)) is not None}
            found = evaluate_residues(bind_op(op), dict(zip(names, map(plain, operands))), floats)
        return [carry(a, found[name]) if is_float(a.dtype) else a for name, a in zip(made, results)]

    def of_graph(
        self, op: LnOp, operands: Sequence[np.ndarray], parts: Sequence[LnOp], values: Sequence[SSAValue]
    ) -> list[np.ndarray]:
        """The residues of an op that is a graph of others, `parts`, on its operands."""
        known = dict(zip(op.operands, operands))
        for part in parts:
            known |= zip(part.results, self.evaluate(part, [known[v] for v in part.operands]))
        for part in reversed(parts):
            part.erase()
        arrays = [known[v] for v in values]
        return [canonical(image(a)) if (r := residues_of(a)) is None else r for a in arrays]

    def intern(self, array: np.ndarray) -> np.ndarray:
        own = self.numbers.intern(plain(array))
        if not is_float(own.dtype):
            return own
        residues = residues_of(array)
        if residues is None:
            residues = canonical(image(own))
        key = id(own), hashlib.blake2b(residues.tobytes(), digest_size=16).digest()
        known = self._carriers.get(key)
        if known is not None and (found := known()) is not None and plain(found) is own:
            return found
        made = carry(own, residues)
        made.flags.writeable = False
        self._carriers[key] = weakref.ref(made)
        return made

    def next_round(self) -> None:
        super().next_round()
        self.numbers.next_round()


def _opaque(op: LnOp, operands: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Residues at random, by all that the op gets."""
    digest = hashlib.blake2b(repr(op_key(op)).encode(), digest_size=16)
    for array in operands:
        found = residues_of(array)
        digest.update((plain(array) if found is None else found).tobytes())
    draw = np.random.Generator(np.random.PCG64(int.from_bytes(digest.digest())))
    return [canonical(draw.integers(0, PRIME, a.shape).astype(np.float64)) for a in results]


def inexact(before: np.ndarray, after: np.ndarray) -> Mismatch | None:
    """The place where two arrays that agree as numbers differ as residues."""
    old, new = residues_of(before), residues_of(after)
    if old is None or new is None or same_bytes(old, new):
        return None
    wrong = old != new
    return worst(plain(before), plain(after), wrong) if wrong.any() else None
