"""Bounds of dims: what a polynomial over symbols with ranges, quotients and extremes is never below.

Part of `dims.py`, which asks for them. Imports it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from math import comb, gcd, lcm

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
    is_never_below,
    least,
    samples,
)


class Bounds:
    """Lower bounds of polynomials over atoms with ranges. What must hold for both of two (a maximum that is taken away)
    is asked of both, exactly; for the rest it is the best of what is tried."""

    #: Symbols whose corners are tried, quotients that are looked into in every order, and extremes, at most.
    MOST_SYMBOLS, MOST_QUOTIENTS, MOST_EXTREMES = 6, 4, 12
    #: Quotients that are tried in every order; sizes that one is the maximum of, at most.
    ORDERS, MOST_CASES = 2, 64

    def least(self, size: Size) -> int:
        """A number that the size is never below: the best of what is tried."""
        return _least(size, self.ORDERS) if isinstance(size, Dim) else size

    def of_corners(self, dim: Dim, both: bool = True) -> int:
        """By the ranges of all atoms: with each one counted from its lower end, or (`both`) from its upper end, terms
        that are not negative are left out. Ends do not matter for an atom that stands alone, and in one term only."""
        shared = list(dict.fromkeys(a for term in dim.terms if len(term) > 1 for a in term))
        bits = max(map(len, dim.terms)).bit_length()
        place = {atom: 1 << bits * k for k, atom in enumerate(shared)}
        start, terms = 0, dict[int, int]()
        for term, c in dim.terms.items():
            if len(term) == 1 and term[0] not in place:
                start += c * term[0].range[c < 0]
            else:
                terms[sum(place[a] for a in term)] = c
        terms[0] = terms.get(0, 0) + start
        best: int | None = None
        for found in _corners(terms, bits, [a.range for a in shared], both and len(shared) <= self.MOST_SYMBOLS):
            below = sum(c for mono, c in found.items() if mono and c < 0)
            value = found.get(0, 0) + below
            best = value if best is None else max(best, value)
            if not below:  # it is reached there
                break
        assert best is not None
        return best

    def of_extremes(self, dim: Dim) -> tuple[list[Size], bool] | None:
        """The first minimum or maximum taken apart: ``rest - max(a, b)`` is never below a bound of both of two (True),
        and that is exact, ``rest + max(a, b)`` of either. None where there is none, or too many."""
        if not 0 < len(dim.extremes) <= self.MOST_EXTREMES:
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

    def without_extremes(self, dim: Dim) -> Size:
        """``dim`` without those terms that have minima or maxima in them and are never negative."""
        return dim_of_terms({
            term: c for term, c in dim.terms.items()
            if c < 0 or not any(isinstance(a, Extreme) for a in term) or min(a.range[0] for a in term) < 0
        })  # fmt: skip

    def of_quotients(self, dim: Dim, orders: int) -> Iterator[int]:
        """By what quotients are: q = floor(e / c) lies in (e - c + 1)/c ... e/c. The first `orders` of them are each of
        all that there are, if these are not many; what is left is taken in one order."""
        atoms = [a for a in dim.atoms if isinstance(a, Quotient)]
        for atom in atoms if orders and len(atoms) <= self.MOST_QUOTIENTS else atoms[:1]:
            if (found := self.split(dim, atom)) is not None:
                factor, rest, sign = found
                end = atom.dividend - (atom.divisor - 1) if sign > 0 else atom.dividend
                least = factor * end + rest * atom.divisor
                if isinstance(least, Dim):
                    least = _least(least, max(orders - 1, 0))
                yield -(-least // atom.divisor)

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
#: Minima and maxima in two sizes of which proofs are tried to find the one that is the larger: offsets of plans are of
#: more, and sums of many kinds.
FEW = 2


@lru_cache(1 << 16)
def _least(dim: Dim, orders: int) -> int:
    if (parts := BOUNDS.of_extremes(dim)) is not None:
        found = (min if parts[1] else max)(_least(p, orders) if isinstance(p, Dim) else p for p in parts[0])
        # Factors that are 0 or 1 make polynomials of each other's arguments, which ranges say less of than of them.
        if found == min(dim.samples) or (found := max(found, BOUNDS.of_corners(dim))) == min(dim.samples):
            return found
        rest = BOUNDS.without_extremes(dim)
        return found if rest == dim else max(found, _least(rest, orders) if isinstance(rest, Dim) else rest)
    found = BOUNDS.of_corners(dim)
    return found if found == min(dim.samples) else max([found, *BOUNDS.of_quotients(dim, orders)])


def _corners(terms: dict[int, int], bits: int, ranges: list[tuple[int, int]], both: bool) -> Iterator[dict[int, int]]:
    """A polynomial counted from the corners of the ranges of its atoms, of all or of the lowest one: each atom is
    ``low + (high - low)·u`` or ``high - (high - low)·u``, with u in 0..1. A product is a number: the sum of
    ``exponent << bits·k`` of atom k."""
    if not ranges:
        yield terms
        return
    *rest, (low, high) = ranges
    at = bits * len(rest)
    for start, step in ((low, high - low), (high, low - high))[: 1 + both]:
        found: dict[int, int] = {}
        for mono, c in terms.items():
            power = mono >> at & (1 << bits) - 1
            for k in range(power + 1):
                key = mono - (power - k << at)
                found[key] = found.get(key, 0) + c * comb(power, k) * start ** (power - k) * step**k
        yield from _corners(found, bits, rest, both)


@lru_cache(1 << 16)
def is_proved(a: Size, b: Size) -> bool:
    """Return whether ``a >= b`` is proved for all values."""
    if any(x < y for x, y in zip(samples(a), samples(b))):
        return False
    above, below = map(alternatives, signed_parts(a - b))
    if len(above) + len(below) > 2:  # each case of `b` has one of `a` that is never below it, or that is not found out
        for y in below:
            left = sorted((x - y for x in above), key=_length)
            if (
                y not in above
                and not any(map(_is_never_negative, left))
                and not any(_is_rounded(*signed_parts(d)) for d in left)
            ):
                return isinstance(a - b, Dim) and BOUNDS.of_corners(a - b) >= 0
        return True
    return _is_never_negative(a - b) or _is_rounded(a, b) or _is_rounded(*signed_parts(a - b))


def _is_rounded(a: Size, b: Size) -> bool:
    """Return whether ``a >= b`` since a multiple of n is not below b where it is not below b rounded up to one, n what
    divides each term of `a`, or of `b`, or of the former what divides some term of `b`."""
    if any(x < y for x, y in zip(samples(a), samples(b))):
        return False
    whole = common_divisor(a)
    steps = {whole, common_divisor(b), *(gcd(whole, c) for c in _terms_of(b).values())}
    return any(n > 1 and _is_never_negative(a // n + -b // n) for n in sorted(steps))


def signed_parts(size: Size) -> tuple[Size, Size]:
    """Two sizes whose difference one is, of terms that are not below 0."""
    terms = _terms_of(size)
    above = {term: c for term, c in terms.items() if c > 0}
    return dim_of_terms(above), dim_of_terms({term: -c for term, c in terms.items() if c < 0})


def _length(size: Size) -> int:
    return len(size.terms) if isinstance(size, Dim) else 0


@lru_cache(1 << 12)
def alternatives(size: Size) -> tuple[Size, ...]:
    """The sizes that one is the maximum of: ``rest + c·max(a, b)`` is ``rest + c·a`` or ``rest + c·b``."""
    found, left = list[Size](), [size]
    while left:
        part = left.pop()
        atom = next((t[0] for t, c in part.terms.items() if c > 0 and len(t) == 1 and isinstance(t[0], Extreme)
                     and t[0].fn == "max"), None) if isinstance(part, Dim) else None  # fmt: skip
        if atom is None or len(found) + len(left) >= BOUNDS.MOST_CASES:
            found.append(part)
            continue
        by = part.terms[atom,]
        rest = dim_of_terms({t: c for t, c in part.terms.items() if t != (atom,)})
        left += [rest + by * x for x in reversed(atom.args)]
    return tuple(found)


def _is_never_negative(size: Size) -> bool:
    """``least(size) >= 0``, with no look at what some call refutes."""
    if not isinstance(size, Dim):
        return size >= 0
    if min(size.samples) < 0:
        return False
    if (whole := common_divisor(size)) > 1:
        return _is_never_negative(size // whole)
    if (parts := BOUNDS.of_extremes(size)) is not None:
        return (all if parts[1] else any)(map(_is_never_negative, parts[0])) or BOUNDS.of_corners(size) >= 0
    for kept in dict.fromkeys((frozenset[Atom](), _inner(size))):
        without, times = without_quotients(size, kept)
        if (BOUNDS.of_corners(without) if isinstance(without, Dim) else without) > -times:
            return True
    return BOUNDS.of_corners(size) >= 0 or size.low >= 0 or any(least(size // n) >= 0 for n in _steps(size))


def _inner(dim: Dim) -> frozenset[Atom]:
    """Quotients that others of the dim are quotients of: sums of both kinds say the more of each other."""
    outer = [a for a in dim.atoms if isinstance(a, Quotient)]
    return frozenset(a for q in outer for a in q.dividend.atoms if isinstance(a, Quotient))


def without_quotients(dim: Dim, kept: Collection[Atom] = ()) -> tuple[Size, int]:
    """A lower bound of a multiple of the dim, and the multiple: one quotient q = floor(e / c) in each term is taken for
    e/c where that makes the term smaller, else for (e - c + 1)/c; none that is `kept`, or whose factors may be below 0.
    """
    chosen = {term: next((a for a in term if isinstance(a, Quotient) and a not in kept), None) for term in dim.terms}
    times = lcm(*(q.divisor for q in chosen.values() if q is not None))
    total: dict[Monomial, int] = {}
    for term, c in dim.terms.items():
        q, left = chosen[term], list(term)
        if q is not None:
            left.remove(q)
        if q is None or any(a.range[0] < 0 for a in left):
            total[term] = total.get(term, 0) + c * times
            continue
        by = c * times // q.divisor
        for inner, d in q.dividend.terms.items():
            product = tuple(sorted((*left, *inner), key=atom_key))
            total[product] = total.get(product, 0) + by * d
        if c > 0:
            product = tuple(left)
            total[product] = total.get(product, 0) - by * (q.divisor - 1)
    return dim_of_terms(total), times


def _steps(dim: Dim) -> Iterator[int]:
    """Divisors of the terms above 0, and of those below: the rounded quotient by one is below 0 where the dim is."""
    for sign in (1, -1):
        if (n := gcd(*(c for term, c in dim.terms.items() if term and c * sign > 0))) > 1:
            yield n


def is_shown(a: Size, b: Size) -> bool:
    """Return whether ``a >= b`` shows where all atoms are counted from their lower ends, for each case of `b` with one
    of `a`. Then so does every sum of such facts: what is found in steps is found at once."""
    above, below = map(alternatives, signed_parts(a - b))
    return all(any(_shows(x - y) for x in above) for y in below)


def _shows(size: Size) -> bool:
    if not isinstance(size, Dim):
        return size >= 0
    return min(size.samples) >= 0 and BOUNDS.of_corners(size, both=False) >= 0


def are_apart(a: Size, size_a: Size, b: Size, size_b: Size) -> bool:
    """Return whether ``a ... a + size_a`` and ``b ... b + size_b`` are proved to share nothing, for all values."""
    return is_never_below(b, a + size_a) or is_never_below(a, b + size_b)


def _terms_of(size: Size) -> Mapping[Monomial, int]:
    return size.terms if isinstance(size, Dim) else {(): size}


@lru_cache(1 << 14)
def extreme(fn: str, a: Size, b: Size) -> Size:
    """The minimum or maximum of two sizes: the one that it always is; else what they have in common is taken out:
    ``max(6x, 4x + 8)`` is ``4x + 2*max(x, 4)``."""
    one, other = _terms_of(a), _terms_of(b)
    common = dim_of_terms({t: min(c, d, key=abs) for t, c in one.items() if (d := other.get(t, 0)) * c > 0})
    x, y = a - common, b - common
    by = gcd(common_divisor(x), common_divisor(y)) or 1
    x, y = x // by, y // by
    count = sum(len(n.extremes) for n in (x, y) if isinstance(n, Dim))
    is_above = is_shown if count > FEW else is_never_below  # asked of what is written: what is read is the same
    if is_above(x, y):
        return a if fn == "max" else b
    if is_above(y, x):
        return b if fn == "max" else a
    args = sorted((x, y), key=lambda s: (isinstance(s, Dim), s.key if isinstance(s, Dim) else s))
    return Dim({(Extreme(fn, (args[0], args[1])),): 1}) * by + common
