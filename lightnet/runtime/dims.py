"""Dims that a call decides: integers that are polynomials over *symbols* with bounds.

A dim of a type is an `int` or a `Dim`. `symbol("length", 1, 512)` is one number at run time, the same wherever the name
stands; ``2*length + 1`` is a `Dim`, too. Rules that compute with dims (``n // 2``, ``prod(dims)``) work on both alike.
A comparison gives what holds for *every* value within the bounds, and raises `Undecided` where that is neither true
nor false, as does whatever needs the number itself (a loop of Python's, a table); so nothing is decided by a guess.
`==` is sameness of the polynomial: two dims that differ may be equal in some call.

Forms are canonical: a quotient that is whole for all values is a polynomial (a ``height`` that is a multiple of 32 has
the half ``height floordiv 2``), any other is an *atom* beside the symbols, as minima and maxima are. Bounds
(`dim_bounds.py`) are exact for what is linear in each symbol. Imports diagnostics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from math import gcd, prod
from operator import mul
from random import Random
from typing import TYPE_CHECKING, Any, NoReturn

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError

#: Calls that a proof is held against before it is tried.
SAMPLES = 12


class Undecided(LightNetError):
    """A number of `dim` is needed, or a comparison (`is_same`: with 0), where calls differ."""

    def __init__(self, dim: Dim, message: str | None = None, is_same: bool = False):
        self.dim, self.is_same = dim, is_same
        super().__init__(message or f"it needs the number {dim!s}, which each call decides", label="dims.open")


@dataclass(frozen=True)
class Symbol:
    """A number that a call decides: a multiple of `multiple` from `low` to `high`, both multiples of it. In the terms
    of a `Dim` it stands for its *unit*, the value divided by `multiple`: so what divides is seen."""

    name: str
    low: int
    high: int
    multiple: int = 1

    @property
    def key(self) -> str:
        return self.name

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def dim(self) -> Dim:
        """The size that is its value."""
        return Dim({(self,): self.multiple})

    @cached_property
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

    @cached_property
    def samples(self) -> tuple[int, ...]:
        """The smallest unit, the largest, the typical one, and some between: by orders of magnitude, and the name."""
        random, (low, high) = Random(self.name), self.range
        first, below = max(low, 0) + 1, min(low, 0)  # what is below 0 counts from its smallest
        ends = (int(first * ((high - below + 2) / first) ** random.random()) - 1 for _ in range(SAMPLES - 3))
        return low, high, self.typical // self.multiple, *(min(n + below, high) for n in ends)

    @cached_property
    def typical(self) -> int:
        """The value for which is decided what only costs time: a quarter of the largest, which callers seldom reach."""
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

    def __hash__(self) -> int:
        return hash(self.key)

    @cached_property
    def range(self) -> tuple[int, int]:
        return self.dividend.low // self.divisor, self.dividend.high // self.divisor

    @cached_property
    def samples(self) -> tuple[int, ...]:
        return tuple(n // self.divisor for n in self.dividend.samples)

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

    def __hash__(self) -> int:
        return hash(self.key)

    @cached_property
    def range(self) -> tuple[int, int]:
        pick = min if self.fn == "min" else max
        return pick(map(least, self.args)), pick(map(greatest, self.args))

    @cached_property
    def samples(self) -> tuple[int, ...]:
        return tuple(map(min if self.fn == "min" else max, *map(samples, self.args)))

    def at(self, values: Mapping[str, int]) -> int:
        return (min if self.fn == "min" else max)(at(a, values) for a in self.args)


Atom = Symbol | Quotient | Extreme
Monomial = tuple[Atom, ...]
Terms = Mapping[Monomial, int]


class Dim:
    """A polynomial with integer coefficients: `terms` maps a product of atoms (sorted; () is 1) to its coefficient. It
    always has an atom: what is a number is an int (`dim_of_terms`)."""

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
        from lightnet.runtime.dim_bounds import BOUNDS

        return BOUNDS.least(self)

    @cached_property
    def high(self) -> int:
        """A number that it is never above, as `low`."""
        return -(-self).low

    @cached_property
    def samples(self) -> tuple[int, ...]:
        """Its numbers in the calls of the symbols' samples: what these refute need not be proved."""
        found = [self.terms.get((), 0)] * SAMPLES
        for term, c in ((term, c) for term, c in self.terms.items() if term):
            numbers: Iterable[int] = term[0].samples
            for a in term[1:]:
                numbers = map(mul, numbers, a.samples)
            found = [n + c * m for n, m in zip(found, numbers)]
        return tuple(found)

    @cached_property
    def extremes(self) -> frozenset[Extreme]:
        """The minima and maxima in it, those inside of others too."""
        found = frozenset(a for a in self.atoms if isinstance(a, Extreme))
        return found.union(*(x.extremes for a in found for x in a.args if isinstance(x, Dim)))

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
        return dim_of_terms(found)

    def __mul__(self, other: Any) -> Any:
        if type(other) is int:
            return Dim({term: c * other for term, c in self.terms.items()}) if other else 0
        if (terms := _terms(other)) is None:
            if not isinstance(other, float):
                return NotImplemented
            return (other if self > 0 else -other) if _is_infinite(other) else self._undecided()
        found: dict[Monomial, int] = {}
        for a, c in self.terms.items():
            for b, d in terms.items():
                term = tuple(sorted((*a, *b), key=atom_key))
                found[term] = found.get(term, 0) + c * d
        return dim_of_terms(found)

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
            from lightnet.runtime.dim_division import quotient

            return quotient(self, other)
        if other == 0 or any(c % other for c in self.terms.values()):
            return None
        return dim_of_terms({term: c // other for term, c in self.terms.items()})

    def __floordiv__(self, other: Any) -> Any:
        if _terms(other) is None:
            return NotImplemented
        whole = self.over(other)
        if whole is not None:
            return whole
        if isinstance(other, Dim):
            self._undecided()
        from lightnet.runtime.dim_division import floor_quotient

        return floor_quotient(self, int(other))

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
    """The number that a size is in a call. ValueError for a symbol's value out of bounds, KeyError for one missing."""
    if not isinstance(size, Dim):
        return size
    return sum(c * prod(a.at(values) for a in term) for term, c in size.terms.items())


def typical(size: Size) -> int:
    """The number that a size is where each symbol has its typical value."""
    return samples(size)[2]


def samples(size: Size) -> tuple[int, ...]:
    """The numbers that a size is where symbols are smallest, largest, and typical, and in calls between."""
    return size.samples if isinstance(size, Dim) else (size,) * SAMPLES


def with_sizes(size: Size, by: Mapping[str, Size]) -> Size:
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
    low, high = _difference(a, b)
    if high < 0 or low >= 0:
        return high < 0
    raise Undecided(a - b, f"it needs to know whether {a!s} < {b!s}, which each call decides")


def is_same(a: Any, b: Any) -> bool:
    """Return whether ``a == b`` for all values, or for none; `Undecided` where calls may differ."""
    if not isinstance(a, Dim) and not isinstance(b, Dim):
        return a == b
    low, high = _difference(a, b) if isinstance(a, Dim | int) and isinstance(b, Dim | int) else (1, 1)
    if low > 0 or high < 0 or low == high:
        return low == high == 0
    raise Undecided(a - b, f"it needs to know whether {a!s} is {b!s}, which each call decides", is_same=True)


def _difference(a: Size, b: Size) -> tuple[int, int]:
    """The bounds of ``a - b``."""
    if isinstance(a, Dim) and isinstance(b, Dim):
        return least(a - b), greatest(a - b)
    return least(a) - greatest(b), greatest(a) - least(b)


def is_never_below(a: Size, b: Size) -> bool:
    """Return whether ``a >= b`` is proved for all values."""
    if not isinstance(a, Dim) and not isinstance(b, Dim):
        return a >= b
    from lightnet.runtime.dim_bounds import is_proved

    return is_proved(a, b)


def common_divisor(size: Size) -> int:
    """A number that divides a size for all values."""
    return size.divisor if isinstance(size, Dim) else abs(size)


def dim_min(a: Size, b: Size) -> Size:
    """The minimum of two sizes."""
    from lightnet.runtime.dim_bounds import extreme

    return extreme("min", a, b)


def dim_max(a: Size, b: Size) -> Size:
    """The maximum of two sizes."""
    from lightnet.runtime.dim_bounds import extreme

    return extreme("max", a, b)


def atom_key(atom: Atom) -> str:
    """The key that orders the atoms of a product."""
    return atom.key


def _symbols(atom: Atom) -> Iterable[Symbol]:
    if isinstance(atom, Symbol):
        return (atom,)
    inner = (atom.dividend,) if isinstance(atom, Quotient) else atom.args
    return frozenset(s for size in inner if isinstance(size, Dim) for s in size.symbols)


def dim_of_terms(terms: dict[Monomial, int]) -> Size:
    """The polynomial, or the int that it is."""
    terms = {term: c for term, c in terms.items() if c}
    if not terms:
        return 0
    return terms[()] if terms.keys() == {()} else Dim(terms)


#: Whether it is an infinity, which bounds of indices may be.
_is_infinite = (float("inf"), float("-inf")).__contains__


def _terms(x: Any) -> Terms | None:
    if isinstance(x, Dim):
        return x.terms
    whole = hasattr(type(x), "__index__") or (isinstance(x, float) and x.is_integer())
    return {(): int(x)} if whole and not isinstance(x, bool) else None


def _substituted(atom: Atom, by: Mapping[str, Size]) -> Size:
    if isinstance(atom, Quotient):
        return with_sizes(atom.dividend, by) // atom.divisor
    if isinstance(atom, Extreme):
        a, b = (with_sizes(a, by) for a in atom.args)
        return dim_min(a, b) if atom.fn == "min" else dim_max(a, b)
    if atom.name not in by:
        return Dim({(atom,): 1})
    new = by[atom.name]
    unit = new.over(atom.multiple) if isinstance(new, Dim) else None if new % atom.multiple else new // atom.multiple
    if unit is None:
        raise ValueError(f"{atom.name} is {new}, not {atom.domain}")
    return unit
