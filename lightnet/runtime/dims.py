"""Dims that a call decides: integers that are polynomials over *symbols* with bounds.

A dim of a type is an `int` or a `Dim`. `symbol("length", 1, 512)` is one number at run time, the same wherever the name
stands; ``2*length + 1`` is a `Dim`, too. Rules that compute with dims (``n // 2``, ``prod(dims)``) work on both alike.
A comparison gives what holds for *every* value within the bounds, and raises `Undecided` where that is neither true
nor false, as does whatever needs the number itself (a loop of Python's, a table); so nothing is decided by a guess.
`==` is sameness of the polynomial: two dims that differ may be equal in some call.

Forms are canonical: a quotient that is whole for all values is a polynomial (a ``height`` that is a multiple of 32 has
the half ``height floordiv 2``), any other is an *atom* beside the symbols, as minima and maxima are. Bounds follow from
the corners of the symbols' ranges, and are exact for what is linear in each symbol; of a quotient q = floor(e / c) both
what it is at most and that c·q lies within c - 1 below e are known (`_Bounds`). Imports the diagnostics.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from math import gcd, isinf, prod
from typing import TYPE_CHECKING, Any, NoReturn

from lightnet.diagnostics import LightNetError


class Undecided(LightNetError):
    """A number is needed, or a comparison asked for, where calls differ: of `dim`. `is_same` says that it was asked
    whether this is 0."""

    def __init__(self, dim: Dim, message: str | None = None, is_same: bool = False):
        self.dim, self.is_same = dim, is_same
        super().__init__(message or f"it needs the number {dim!s}, which each call decides", label="dims.open")


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
        self.check(value := values[self.name])
        return value // self.multiple

    def check(self, value: int) -> None:
        """Raise ValueError where it cannot have the value."""
        if not self.low <= value <= self.high or value % self.multiple:
            raise ValueError(f"{self.name} is {value}, not {self.domain}")

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

    @cached_property
    def samples(self) -> tuple[int, int, int]:
        """What it is where all symbols have their smallest values, their largest, and their typical ones: what one of
        these refutes need not be proved."""
        smallest, largest = ({s.name: n for s in self.symbols for n in (s.range[k] * s.multiple,)} for k in (0, 1))
        return at(self, smallest), at(self, largest), typical(self)

    @cached_property
    def extremes(self) -> int:
        """How many minima and maxima are in it, those inside of others too."""
        found = [a for a in self.atoms if isinstance(a, Extreme)]
        return len(found) + sum(x.extremes for a in found for x in a.args if isinstance(x, Dim))

    @property
    def divisor(self) -> int:
        """A number that divides it for all values."""
        return gcd(*self.terms.values())

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
        from lightnet.runtime.dim_text import text

        return text(self)

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        """The text of a dim among other text that is parsed: ``?"2*length(1..512) + 1"``."""
        return f'?"{self!s}"'


#: A dim of a type. To a type checker it is anything: code for numbers takes a `Dim`, unless it asks for more.
if TYPE_CHECKING:
    Size = Any
else:
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
    raise Undecided(difference, f"it needs to know whether {a!s} < {b!s}, which each call decides")


def is_same(a: Any, b: Any) -> bool:
    """Return whether ``a == b`` for all values, or for none; `Undecided` where calls may differ."""
    difference = a - b if isinstance(a, Dim | int) and isinstance(b, Dim | int) else None
    if not isinstance(difference, Dim):
        return difference == 0
    if difference.low > 0 or difference.high < 0:
        return False
    raise Undecided(difference, f"it needs to know whether {a!s} is {b!s}, which each call decides", is_same=True)


def is_never_below(a: Size, b: Size) -> bool:
    """Return whether ``a >= b`` is proved for all values."""
    return _is_never_below(a, b) if isinstance(a, Dim) or isinstance(b, Dim) else a >= b


@lru_cache(1 << 16)
def _is_never_below(a: Size, b: Size) -> bool:
    if any(x < y for x, y in zip(_samples(a), _samples(b))):
        return False
    if _is_never_negative(a - b):
        return True
    steps = divisor(a), divisor(b)  # a multiple of n is not below b where it is not below b rounded up to one
    return any(n > 1 and _is_never_negative(a // n + -b // n) for n in steps)


def _is_never_negative(size: Size) -> bool:
    """``least(size) >= 0``, with no look at what some call refutes."""
    if not isinstance(size, Dim):
        return size >= 0
    if min(size.samples) < 0:
        return False
    if (parts := _BOUNDS.of_extremes(size)) is None:
        return _BOUNDS.of_corners(size) >= 0 or size.low >= 0 or any(least(size // n) >= 0 for n in _steps(size))
    return (all if parts[1] else any)(map(_is_never_negative, parts[0]))


def _steps(dim: Dim) -> Iterator[int]:
    """Divisors of the terms above 0, and of those below: the rounded quotient by one is below 0 where the dim is."""
    for sign in (1, -1):
        if (n := gcd(*(c for term, c in dim.terms.items() if term and c * sign > 0))) > 1:
            yield n


def are_apart(a: Size, size_a: Size, b: Size, size_b: Size) -> bool:
    """Return whether ``a ... a + size_a`` and ``b ... b + size_b`` are proved to share nothing, for all values."""
    return is_never_below(b, a + size_a) or is_never_below(a, b + size_b)


def divisor(size: Size) -> int:
    """A number that divides a size for all values."""
    return size.divisor if isinstance(size, Dim) else abs(size)


def joined(a: Size, b: Size) -> Size:
    """A polynomial that is never below either: of each product of atoms, which none is below 0, the larger multiple."""
    one, other = _terms(a), _terms(b)
    assert one is not None and other is not None
    terms = {term: max(one.get(term, 0), other.get(term, 0)) for term in (*one, *other)}
    return _dim(terms) if all(atom.range[0] >= 0 for term in terms for atom in term) else larger(a, b)


def _samples(size: Size) -> tuple[int, ...]:
    return size.samples if isinstance(size, Dim) else (size, size, size)


def smaller(a: Size, b: Size) -> Size:
    """The minimum of two sizes."""
    return _extreme("min", a, b)


def larger(a: Size, b: Size) -> Size:
    """The maximum of two sizes."""
    return _extreme("max", a, b)


def _extreme(fn: str, a: Size, b: Size) -> Size:
    """The one of two that it always is; else what they have in common is taken out: ``max(6x, 4x + 8)`` is
    ``4x + 2*max(x, 4)``."""
    one, other = _terms(a), _terms(b)
    assert one is not None and other is not None
    common = _dim({t: min(c, d, key=abs) for t, c in one.items() if (d := other.get(t, 0)) * c > 0})
    x, y = a - common, b - common
    by = gcd(divisor(x), divisor(y)) or 1
    x, y = x // by, y // by
    if is_never_below(x, y):  # asked of what is written, so that what is read is the same
        return a if fn == "max" else b
    if is_never_below(y, x):
        return b if fn == "max" else a
    args = sorted((x, y), key=lambda s: (isinstance(s, Dim), s.key if isinstance(s, Dim) else s))
    return Dim({(Extreme(fn, (args[0], args[1])),): 1}) * by + common


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
        by = _dim(factor)
        sign = 1 if self.least(by) >= 0 else -1 if self.least(-by) >= 0 else 0
        return (by, _dim(rest), sign) if sign else None


_BOUNDS = _Bounds()


@lru_cache(1 << 16)
def _least(dim: Dim) -> int:
    if (parts := _BOUNDS.of_extremes(dim)) is not None:
        return (min if parts[1] else max)(map(_BOUNDS.least, parts[0]))
    return max([_BOUNDS.of_corners(dim), *_BOUNDS.of_quotients(dim)])


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
                longer = tuple(sorted((*mono, atom), key=_key))
                grown[longer] = grown.get(longer, 0) + k * sign
            parts = grown
        for mono, k in parts.items():
            total[mono] = total.get(mono, 0) + k
    below = sum(k * prod(a.range[1] - a.range[0] for a in mono) for mono, k in total.items() if mono and k < 0)
    return total.get((), 0) + below, not below
