"""Dims that a call decides: integers that are polynomials over *symbols* with bounds.

A dim of a type is an `int` or a `Dim`. `symbol("length", 1, 512)` is one number at run time, the same wherever the name
stands; ``2*length + 1`` is a `Dim`, too. Rules that compute with dims (``n // 2``, ``prod(dims)``) work on both alike.
A comparison gives what holds for *every* value within the bounds, and raises `Undecided` where that is neither true
nor false, as does whatever needs the number itself (a loop of Python's, a table); so nothing is decided by a guess.
`==` is sameness of the polynomial: two dims that differ may be equal in some call.

Forms are canonical: a quotient that is whole for all values is a polynomial (a ``height`` that is a multiple of 32 has
the half ``height floordiv 2``), any other is an *atom* beside the symbols, as minima and maxima are. Bounds follow from
the corners of the symbols' ranges, and are exact for what is linear in each symbol; of a quotient q = floor(e / c) both
what it is at most and that c·q lies within c - 1 below e are known (`_Bounds`). Imports nothing of ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from math import gcd, isinf, prod
from typing import Any, NoReturn


class Undecided(Exception):
    """A number is needed, or a comparison asked for, where calls differ: of `dim`. `is_same` says that it was asked
    whether this is 0."""

    def __init__(self, dim: Dim, message: str | None = None, is_same: bool = False):
        self.dim, self.is_same = dim, is_same
        super().__init__(message or f"it needs the number {dim}, which each call decides")


@dataclass(frozen=True)
class Symbol:
    """A number that a call decides: a multiple of `multiple` from `low` to `high`, both multiples of it.

    In the terms of a `Dim` it stands for its *unit*, the value divided by `multiple`: so what divides is seen.
    """

    name: str
    low: int
    high: int
    multiple: int = 1

    @cached_property
    def key(self) -> str:
        return self.name

    @property
    def range(self) -> tuple[int, int]:
        """The bounds of the unit."""
        return self.low // self.multiple, self.high // self.multiple

    def at(self, values: Mapping[str, int]) -> int:
        """The unit in a call; ValueError for a value out of bounds."""
        value = values[self.name]
        if not self.low <= value <= self.high or value % self.multiple:
            raise ValueError(f"{self.name} is {value}, not {self.domain}")
        return value // self.multiple

    @property
    def typical(self) -> int:
        """The value for which is decided what only costs time: a quarter of the largest one, as callers give a bound
        that they seldom reach."""
        return max(self.low, self.high // 4 // self.multiple * self.multiple)

    @property
    def domain(self) -> str:
        """The values that it can have, in words."""
        by = f"a multiple of {self.multiple} " if self.multiple > 1 else ""
        return f"{by}in {self.low}..{self.high}"


@dataclass(frozen=True)
class Quotient:
    """``dividend floordiv divisor``, where that is no polynomial."""

    dividend: Dim
    divisor: int

    @cached_property
    def key(self) -> str:
        return f"({self.dividend.key}) floordiv {self.divisor}"

    @cached_property
    def range(self) -> tuple[int, int]:
        return self.dividend.low // self.divisor, self.dividend.high // self.divisor

    def at(self, values: Mapping[str, int]) -> int:
        return at(self.dividend, values) // self.divisor


@dataclass(frozen=True)
class Extreme:
    """``min(a, b)`` or ``max(a, b)``, where neither is always the one."""

    fn: str
    args: tuple[int | Dim, int | Dim]

    @cached_property
    def key(self) -> str:
        return f"{self.fn}({', '.join(a.key if isinstance(a, Dim) else str(a) for a in self.args)})"

    @cached_property
    def range(self) -> tuple[int, int]:
        pick = min if self.fn == "min" else max
        return pick(map(least, self.args)), pick(map(greatest, self.args))

    def at(self, values: Mapping[str, int]) -> int:
        return (min if self.fn == "min" else max)(at(a, values) for a in self.args)


Atom = Symbol | Quotient | Extreme
Monomial = tuple[Atom, ...]
Terms = Mapping[Monomial, int]


class Dim:
    """A polynomial with integer coefficients: `terms` maps a product of atoms (sorted; () is 1) to its coefficient. It
    always has an atom: what is a number is an int (`_dim`)."""

    __slots__ = ("__dict__", "terms")

    def __init__(self, terms: Terms):
        self.terms = terms

    @cached_property
    def symbols(self) -> frozenset[Symbol]:
        """The symbols in it, those inside of quotients too."""
        return frozenset(s for a in self.atoms for s in _symbols(a))

    @property
    def atoms(self) -> Iterator[Atom]:
        """The atoms of its terms."""
        return iter(dict.fromkeys(a for term in self.terms for a in term))

    @cached_property
    def key(self) -> str:
        """A text that equal dims share; what people read is `dim_text.text`."""
        terms = ("*".join((str(c), *(a.key for a in term))) for term, c in self.terms.items())
        return " + ".join(sorted(terms))

    @cached_property
    def low(self) -> int:
        """A number that it is never below: the smallest that it can be, where it is linear in each symbol."""
        return _BOUNDS.least(self)

    @cached_property
    def high(self) -> int:
        """A number that it is never above, as `low`."""
        negative = -self
        return -(negative if isinstance(negative, int) else _BOUNDS.least(negative))

    # -- arithmetic

    def __add__(self, other: Any) -> Any:
        if (terms := _terms(other)) is None:
            return other if _is_infinite(other) else NotImplemented
        found = dict(self.terms)
        for term, c in terms.items():
            found[term] = found.get(term, 0) + c
        return _dim(found)

    def __mul__(self, other: Any) -> Any:
        if (terms := _terms(other)) is None:
            return (other if self > 0 else -other) if _is_infinite(other) else NotImplemented
        found: dict[Monomial, int] = {}
        for a, c in self.terms.items():
            for b, d in terms.items():
                term = tuple(sorted((*a, *b), key=_key))
                found[term] = found.get(term, 0) + c * d
        return _dim(found)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Any:
        return self * -1

    def __pos__(self) -> Dim:
        return self

    def __abs__(self) -> Any:
        return -self if self < 0 else self

    def __sub__(self, other: Any) -> Any:
        return NotImplemented if _terms(other) is None and not _is_infinite(other) else self + other * -1

    def __rsub__(self, other: Any) -> Any:
        return NotImplemented if _terms(other) is None and not _is_infinite(other) else self * -1 + other

    def __pow__(self, other: Any) -> Any:
        if not isinstance(other, int) or not 0 <= other <= 8:
            self._undecided()
        return prod([self] * other)

    def over(self, other: int | Dim) -> int | Dim | None:
        """The quotient by what divides it for all values; None where that is not known."""
        if isinstance(other, Dim):
            return _over(self, other)
        if other == 0 or any(c % other for c in self.terms.values()):
            return None
        return _dim({term: c // other for term, c in self.terms.items()})

    def __floordiv__(self, other: Any) -> Any:
        if _terms(other) is None:
            return NotImplemented
        whole = self.over(other)
        if whole is not None:
            return whole
        if isinstance(other, Dim):
            self._undecided()
        return _floordiv(self, int(other))

    def __rfloordiv__(self, other: Any) -> Any:
        if _terms(other) is None:
            return NotImplemented
        if 0 <= other < self.low:
            return 0
        self._undecided()

    def __mod__(self, other: Any) -> Any:
        return NotImplemented if _terms(other) is None else self - (self // other) * other

    def __rmod__(self, other: Any) -> Any:
        return NotImplemented if _terms(other) is None else other - (other // self) * self

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    # -- comparisons, of all values at once

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dim) and self.terms == other.terms

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(frozenset(self.terms.items()))

    def __lt__(self, other: Any) -> bool:
        return is_below(self, other)

    def __ge__(self, other: Any) -> bool:
        return not is_below(self, other)

    def __gt__(self, other: Any) -> bool:
        return is_below(other, self)

    def __le__(self, other: Any) -> bool:
        return not is_below(other, self)

    def __bool__(self) -> bool:
        if self.low > 0 or self.high < 0:
            return True
        self._undecided()

    def _undecided(self, *_: Any) -> NoReturn:
        raise Undecided(self)

    __index__ = __int__ = __float__ = __truediv__ = __rtruediv__ = __rdivmod__ = _undecided
    __round__ = __trunc__ = __floor__ = __ceil__ = __rpow__ = __lshift__ = __rshift__ = _undecided

    def __str__(self) -> str:
        from lightnet.ir.dim_text import text

        return text(self)

    __repr__ = __str__


#: A dim of a type.
Size = int | Dim


def symbol(name: str, low: int, high: int, multiple: int = 1) -> Size:
    """The dim that is one number in a call, a multiple of `multiple` in ``low..high``. A range of one value is that
    number. Raises ValueError for a range that is empty or begins below 0."""
    if multiple < 1:
        raise ValueError(f"the numbers of '{name}' are multiples of {multiple}")
    first, last = -(-low // multiple) * multiple, high // multiple * multiple
    if low < 0 or first > last:
        raise ValueError(f"'{name}' has no value: {low}..{high}" + (f" by {multiple}" if multiple > 1 else ""))
    return first if first == last else Dim({(Symbol(name, first, last, multiple),): multiple})


def least(size: Size) -> int:
    """A number that a size is never below."""
    return size.low if isinstance(size, Dim) else size


def greatest(size: Size) -> int:
    """A number that a size is never above."""
    return size.high if isinstance(size, Dim) else size


def at(size: Size, values: Mapping[str, int]) -> int:
    """The number that a size is in a call with these values of symbols. ValueError for one that is out of bounds,
    KeyError for one that is missing."""
    if not isinstance(size, Dim):
        return size
    return sum(c * prod(a.at(values) for a in term) for term, c in size.terms.items())


def typical(size: Size) -> int:
    """The number that a size is where each symbol has its typical value."""
    return at(size, {s.name: s.typical for s in size.symbols}) if isinstance(size, Dim) else size


def substituted(size: Size, by: Mapping[str, Size]) -> Size:
    """The size with other sizes for some of its symbols, by name; what replaces a symbol must be a multiple of its
    `multiple` (ValueError)."""
    if not isinstance(size, Dim):
        return size
    total: Size = 0
    for term, c in size.terms.items():
        total = total + c * prod((_substituted(a, by) for a in term), start=1)
    return total


def is_known(sizes: Any) -> bool:
    """Return whether all sizes are numbers."""
    return not any(isinstance(n, Dim) for n in sizes)


def is_below(a: Size, b: Size) -> bool:
    """Return whether ``a < b`` for all values; raises `Undecided` where it is so for some only, as far as is known."""
    difference = a - b
    if not isinstance(difference, Dim):
        return bool(difference < 0)
    if difference.high < 0:
        return True
    if difference.low >= 0:
        return False
    raise Undecided(difference, f"it needs to know whether {a} < {b}, which each call decides")


def is_same(a: Any, b: Any) -> bool:
    """Return whether ``a == b`` for all values, or for none; `Undecided` where calls may differ."""
    difference = a - b if isinstance(a, Dim | int) and isinstance(b, Dim | int) else None
    if not isinstance(difference, Dim):
        return difference == 0
    if difference.low > 0 or difference.high < 0:
        return False
    raise Undecided(difference, f"it needs to know whether {a} is {b}, which each call decides", is_same=True)


def is_never_below(a: Size, b: Size) -> bool:
    """Return whether ``a >= b`` is proved for all values."""
    return least(a - b) >= 0


def smaller(a: Size, b: Size) -> Size:
    """The minimum of two sizes."""
    return _extreme("min", a, b)


def larger(a: Size, b: Size) -> Size:
    """The maximum of two sizes."""
    return _extreme("max", a, b)


def _extreme(fn: str, a: Size, b: Size) -> Size:
    difference = a - b
    if least(difference) >= 0:
        return a if fn == "max" else b
    if greatest(difference) <= 0:
        return b if fn == "max" else a
    args = sorted((a, b), key=lambda s: (isinstance(s, Dim), s.key if isinstance(s, Dim) else s))
    return Dim({(Extreme(fn, (args[0], args[1])),): 1})


def _key(atom: Atom) -> str:
    return atom.key


def _symbols(atom: Atom) -> Iterator[Symbol]:
    if isinstance(atom, Symbol):
        yield atom
    elif isinstance(atom, Quotient):
        yield from atom.dividend.symbols
    else:
        for a in atom.args:
            if isinstance(a, Dim):
                yield from a.symbols


def _dim(terms: dict[Monomial, int]) -> Size:
    """The polynomial, or the int that it is."""
    terms = {term: c for term, c in terms.items() if c}
    if not terms:
        return 0
    return terms[()] if terms.keys() == {()} else Dim(terms)


def _is_infinite(x: Any) -> bool:
    """Return whether it is an infinity, which bounds of indices may be."""
    return isinstance(x, float) and isinf(x)


def _terms(x: Any) -> Terms | None:
    if isinstance(x, Dim):
        return x.terms
    whole = hasattr(type(x), "__index__") or (isinstance(x, float) and x.is_integer())
    return {(): int(x)} if whole and not isinstance(x, bool) else None


def _substituted(atom: Atom, by: Mapping[str, Size]) -> Size:
    if isinstance(atom, Quotient):
        return substituted(atom.dividend, by) // atom.divisor
    if isinstance(atom, Extreme):
        a, b = (substituted(a, by) for a in atom.args)
        return _extreme(atom.fn, a, b)
    if atom.name not in by:
        return Dim({(atom,): 1})
    new = by[atom.name]
    unit = new.over(atom.multiple) if isinstance(new, Dim) else None if new % atom.multiple else new // atom.multiple
    if unit is None:
        raise ValueError(f"{atom.name} is {new}, not {atom.domain}")
    return unit


def _over(a: Dim, b: Dim) -> Size | None:
    """Exact division of polynomials: by the leading terms, as long as something is left."""
    lead, by = _leading(b)
    rest: Size = a
    quotient: Size = 0
    for _ in range(len(a.terms) * len(b.terms) + 1):
        if not isinstance(rest, Dim):
            return quotient if rest == 0 else None
        term, c = _leading(rest)
        left = list(term)
        for atom in lead:
            if atom not in left:
                return None
            left.remove(atom)
        if c % by:
            return None
        part = _dim({tuple(left): c // by})
        quotient, rest = quotient + part, rest - part * b
    return None


def _leading(dim: Dim) -> tuple[Monomial, int]:
    """The leading term: of the highest degree, and the first in an order that products keep (graded lexicographic)."""
    atoms = sorted(dim.atoms, key=_key)
    return max(dim.terms.items(), key=lambda t: (len(t[0]), [t[0].count(a) for a in atoms]))


def _floordiv(dim: Dim, by: int) -> Size:
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
    left = _dim(rest)
    if not isinstance(left, Dim):
        return _dim(whole) + left // by
    if (low := left.low // by) == left.high // by:
        return _dim(whole) + low
    if _leading(left)[1] < 0:  # floor(-e / c) = -floor((e + c - 1) / c)
        return _dim(whole) - _floordiv(-left + (by - 1), by)
    g = gcd(by, *(c for term, c in left.terms.items() if term))
    if g > 1:  # floor((g·x + r) / (g·c)) = floor((x + floor(r / g)) / c)
        inner = _dim({term: c // g for term, c in left.terms.items()})
        return _dim(whole) + inner // (by // g)
    if len(left.terms) == 1:
        ((term, c),) = left.terms.items()
        if c == 1 and len(term) == 1 and isinstance(term[0], Quotient):  # floor(floor(x / a) / b) = floor(x / (a·b))
            return _dim(whole) + term[0].dividend // (term[0].divisor * by)
    return _dim(whole) + Dim({(Quotient(left, by),): 1})


class _Bounds:
    """Lower bounds of polynomials over atoms with ranges."""

    #: Symbols whose corners are tried, and atoms that are looked into, at most.
    MOST_SYMBOLS, MOST_ATOMS = 6, 6

    def least(self, size: Size, depth: int = 0) -> int:
        """A number that the size is never below: the best of what is tried."""
        if not isinstance(size, Dim):
            return size
        return _least(size, depth)

    def of_corners(self, dim: Dim) -> int:
        """By the ranges of all atoms: with each one counted from its lower end or from its upper end, terms that are
        not negative are left out."""
        atoms = list(dim.atoms)
        ends = product((False, True), repeat=len(atoms)) if len(atoms) <= self.MOST_SYMBOLS else [(False,) * len(atoms)]
        return max(_shifted(dim, dict(zip(atoms, end))) for end in ends)

    def of_relations(self, dim: Dim, depth: int) -> Iterator[int]:
        """By what atoms are: q = floor(e / c) lies in (e - c + 1)/c ... e/c, and a minimum or maximum is one of two."""
        for atom in dim.atoms:
            if isinstance(atom, Symbol):
                continue
            factor: dict[Monomial, int] = {}
            others: dict[Monomial, int] = {}
            for term, c in dim.terms.items():
                if term.count(atom) > 1:
                    break
                if atom in term:
                    factor[tuple(a for a in term if a != atom)] = c
                else:
                    others[term] = c
            else:
                yield from self._without(atom, _dim(factor), _dim(others), depth)

    def _without(self, atom: Atom, factor: Size, rest: Size, depth: int) -> Iterator[int]:
        """Bounds of ``factor · atom + rest``, the factor's sign known."""
        sign = 1 if self.least(factor, depth + 1) >= 0 else -1 if self.least(-factor, depth + 1) >= 0 else 0
        if not sign:
            return
        if isinstance(atom, Quotient):
            e, c = atom.dividend, atom.divisor
            end = e - (c - 1) if sign > 0 else e
            yield -(-self.least(factor * end + rest * c, depth + 1) // c)
        elif isinstance(atom, Extreme):
            a, b = (self.least(factor * x + rest, depth + 1) for x in atom.args)
            yield max(a, b) if (atom.fn == "max") == (sign > 0) else min(a, b)


_BOUNDS = _Bounds()


@lru_cache(1 << 14)
def _least(dim: Dim, depth: int) -> int:
    found = _BOUNDS.of_corners(dim)
    if depth < _BOUNDS.MOST_ATOMS:
        for other in _BOUNDS.of_relations(dim, depth):
            found = max(found, other)
    return found


def _shifted(dim: Dim, from_above: Mapping[Atom, bool]) -> int:
    """A lower bound: each atom is ``low + t`` or ``high - t`` with t in ``0..high - low``; in the polynomial of these,
    a negative term is least where all its t are largest, and any other is at least 0."""
    total: dict[Monomial, int] = {}
    for term, c in dim.terms.items():
        parts: dict[Monomial, int] = {(): c}
        for atom in term:
            low, high = atom.range
            start, sign = (high, -1) if from_above[atom] else (low, 1)
            grown: dict[Monomial, int] = {}
            for mono, k in parts.items():
                grown[mono] = grown.get(mono, 0) + k * start
                longer = tuple(sorted((*mono, atom), key=_key))
                grown[longer] = grown.get(longer, 0) + k * sign
            parts = grown
        for mono, k in parts.items():
            total[mono] = total.get(mono, 0) + k
    return sum(k * prod(a.range[1] - a.range[0] for a in mono) for mono, k in total.items() if not mono or k < 0)
