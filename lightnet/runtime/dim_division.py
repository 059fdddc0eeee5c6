"""Division of dims: exact by a polynomial, and rounded down by a number.

Part of `dims.py`, which asks for it. Imports it.
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd

from lightnet.runtime.dims import Dim, Monomial, Quotient, Size, atom_key, dim_of_terms


def quotient(a: Dim, b: Dim) -> Size | None:
    """Exact division of polynomials: by the leading terms, as long as something is left."""
    lead, by = _leading(b)
    rest: Size = a
    found: Size = 0
    for _ in range(len(a.terms) * len(b.terms) + 1):
        if not isinstance(rest, Dim):
            return found if rest == 0 else None
        term, c = _leading(rest)
        left = list(term)
        for atom in lead:
            if atom not in left:
                return None
            left.remove(atom)
        if c % by:
            return None
        part = dim_of_terms({tuple(left): c // by})
        found, rest = found + part, rest - part * b
    return None


def _leading(dim: Dim) -> tuple[Monomial, int]:
    """The leading term: of the highest degree, and the first in an order that products keep (graded lexicographic)."""
    atoms = sorted(dim.atoms, key=atom_key)
    return max(dim.terms.items(), key=lambda t: (len(t[0]), [t[0].count(a) for a in atoms]))


@lru_cache(1 << 14)
def floor_quotient(dim: Dim, by: int) -> Size:
    """The floor of a quotient that is no polynomial as a whole: what divides is taken out, and the rest is an atom,
    one for all ways to write it."""
    if by == 0:
        raise ZeroDivisionError("a dim is divided by 0")
    if by < 0:
        dim, by = -dim, -by
    whole: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for term, c in dim.terms.items():
        if c % by == 0:
            whole[term] = c // by
        elif term:
            rest[term] = c
        else:
            whole[term], rest[term] = divmod(c, by)
    left = dim_of_terms(rest)
    if not isinstance(left, Dim):
        return dim_of_terms(whole) + left // by
    if (low := left.low // by) == left.high // by:
        return dim_of_terms(whole) + low
    if _leading(left)[1] < 0:  # floor(-e / c) = -floor((e + c - 1) / c)
        return dim_of_terms(whole) - floor_quotient(-left + (by - 1), by)
    g = gcd(by, *(c for term, c in left.terms.items() if term))
    if g > 1:  # floor((g·x + r) / (g·c)) = floor((x + floor(r / g)) / c)
        inner = dim_of_terms({term: c // g for term, c in left.terms.items()})
        return dim_of_terms(whole) + inner // (by // g)
    if len(left.terms) == 1:
        ((term, c),) = left.terms.items()
        if c == 1 and len(term) == 1 and isinstance(term[0], Quotient):  # floor(floor(x / a) / b) = floor(x / (a·b))
            return dim_of_terms(whole) + term[0].dividend // (term[0].divisor * by)
    return dim_of_terms(whole) + Dim({(Quotient(left, by),): 1})
