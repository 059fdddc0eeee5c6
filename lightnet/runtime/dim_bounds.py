"""Bounds of dims: what a polynomial over symbols with ranges, quotients and extremes is never below.

Part of `dims.py`, which asks for them. Imports it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import product
from math import gcd, prod

from lightnet.runtime.dims import (
    Atom,
    Dim,
    Extreme,
    Monomial,
    Quotient,
    Size,
    atom_key,
    common_divisor,
    dim_of_terms,
    least,
)


class Bounds:
    """Lower bounds of polynomials over atoms with ranges. What must hold for both of two (a maximum that is taken away)
    is asked of both, exactly; for the rest it is the best of what is tried."""

    #: Symbols whose corners are tried, quotients that are looked into in every order, and extremes, at most.
    MOST_SYMBOLS, MOST_QUOTIENTS, MOST_EXTREMES = 6, 4, 12

    def least(self, size: Size) -> int:
        """A number that the size is never below: the best of what is tried."""
        return _least(size) if isinstance(size, Dim) else size

    def of_corners(self, dim: Dim) -> int:
        """By the ranges of all atoms: with each one counted from its lower end or from its upper end, terms that are
        not negative are left out."""
        atoms = list(dim.atoms)
        ends = product((False, True), repeat=len(atoms)) if len(atoms) <= self.MOST_SYMBOLS else [(False,) * len(atoms)]
        best: int | None = None
        for end in ends:
            found, is_least = _shifted(dim, dict(zip(atoms, end)))
            if is_least:
                return found
            best = found if best is None else max(best, found)
        assert best is not None
        return best

    def of_extremes(self, dim: Dim) -> tuple[list[Size], bool] | None:
        """The first minimum or maximum taken apart: ``rest - max(a, b)`` is never below a bound of both of two (True),
        and that is exact, ``rest + max(a, b)`` of either. None where there is none, or too many."""
        if not 0 < dim.extremes <= self.MOST_EXTREMES:
            return None
        either = None
        for atom in dim.atoms:
            if isinstance(atom, Extreme) and (found := self.split(dim, atom)) is not None:
                factor, rest, sign = found
                if (atom.fn == "max") != (sign > 0):
                    return [factor * x + rest for x in atom.args], True
                either = either or (factor, rest, atom)
        if either is None:
            return None
        factor, rest, atom = either
        return [factor * x + rest for x in atom.args], False

    def of_quotients(self, dim: Dim) -> Iterator[int]:
        """By what quotients are: q = floor(e / c) lies in (e - c + 1)/c ... e/c. Many are taken in one order."""
        atoms = [a for a in dim.atoms if isinstance(a, Quotient)]
        for atom in atoms if len(atoms) <= self.MOST_QUOTIENTS else atoms[:1]:
            if (found := self.split(dim, atom)) is not None:
                factor, rest, sign = found
                end = atom.dividend - (atom.divisor - 1) if sign > 0 else atom.dividend
                yield -(-self.least(factor * end + rest * atom.divisor) // atom.divisor)

    def split(self, dim: Dim, atom: Atom) -> tuple[Size, Size, int] | None:
        """``dim`` as factor and rest, ``factor · atom + rest``, and the factor's sign; None where it has none, or the
        atom a power."""
        factor: dict[Monomial, int] = {}
        rest: dict[Monomial, int] = {}
        for term, c in dim.terms.items():
            if (count := term.count(atom)) > 1:
                return None
            if count:
                factor[tuple(a for a in term if a != atom)] = c
            else:
                rest[term] = c
        by = dim_of_terms(factor)
        sign = 1 if self.least(by) >= 0 else -1 if self.least(-by) >= 0 else 0
        return (by, dim_of_terms(rest), sign) if sign else None


BOUNDS = Bounds()


@lru_cache(1 << 16)
def _least(dim: Dim) -> int:
    if (parts := BOUNDS.of_extremes(dim)) is not None:
        return (min if parts[1] else max)(map(BOUNDS.least, parts[0]))
    return max([BOUNDS.of_corners(dim), *BOUNDS.of_quotients(dim)])


def _shifted(dim: Dim, from_above: Mapping[Atom, bool]) -> tuple[int, bool]:
    """A lower bound, and True where it is reached, at that corner: each atom is ``low + t`` or ``high - t`` with t in
    ``0..high - low``; in the polynomial of these, a negative term is least where all its t are largest, and any other
    is at least 0."""
    total: dict[Monomial, int] = {}
    for term, c in dim.terms.items():
        parts: dict[Monomial, int] = {(): c}
        for atom in term:
            low, high = atom.range
            start, sign = (high, -1) if from_above[atom] else (low, 1)
            grown: dict[Monomial, int] = {}
            for mono, k in parts.items():
                grown[mono] = grown.get(mono, 0) + k * start
                longer = tuple(sorted((*mono, atom), key=atom_key))
                grown[longer] = grown.get(longer, 0) + k * sign
            parts = grown
        for mono, k in parts.items():
            total[mono] = total.get(mono, 0) + k
    below = sum(k * prod(a.range[1] - a.range[0] for a in mono) for mono, k in total.items() if mono and k < 0)
    return total.get((), 0) + below, not below


@lru_cache(1 << 16)
def is_proved(a: Size, b: Size) -> bool:
    """Return whether ``a >= b`` is proved for all values."""
    if any(x < y for x, y in zip(_samples(a), _samples(b))):
        return False
    if _is_never_negative(a - b):
        return True
    steps = (
        common_divisor(a),
        common_divisor(b),
    )  # a multiple of n is not below b where it is not below b rounded up to one
    return any(n > 1 and _is_never_negative(a // n + -b // n) for n in steps)


def _is_never_negative(size: Size) -> bool:
    """``least(size) >= 0``, with no look at what some call refutes."""
    if not isinstance(size, Dim):
        return size >= 0
    if min(size.samples) < 0:
        return False
    if (parts := BOUNDS.of_extremes(size)) is None:
        return BOUNDS.of_corners(size) >= 0 or size.low >= 0 or any(least(size // n) >= 0 for n in _steps(size))
    return (all if parts[1] else any)(map(_is_never_negative, parts[0]))


def _steps(dim: Dim) -> Iterator[int]:
    """Divisors of the terms above 0, and of those below: the rounded quotient by one is below 0 where the dim is."""
    for sign in (1, -1):
        if (n := gcd(*(c for term, c in dim.terms.items() if term and c * sign > 0))) > 1:
            yield n


def _samples(size: Size) -> tuple[int, ...]:
    return size.samples if isinstance(size, Dim) else (size, size, size)
