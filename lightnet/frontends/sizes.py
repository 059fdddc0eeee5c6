"""Sizes that the data decides, while a model is read: polynomials with integer coefficients over *symbols*, each with
bounds.

A handler that computes dims of dims (``n // 2``, ``prod(dims)``) works on a `Size` as on an int. What needs the number
itself (a loop, a table, a comparison that the bounds do not decide) raises `UndecidedSize`, which names the symbol: so
a handler that knows nothing of sizes never takes a bound for the true size. `Size.high` is the bound, which is the dim
in the type. Imports nothing of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

#: A dim: known, or decided by the data.
Dim = "int | Size"


class UndecidedSize(Exception):
    """A number is needed where there is a size that the data decides. `inputs` are the graph inputs that it follows
    from."""

    def __init__(self, *sizes: Size, message: str | None = None):
        self.inputs: frozenset[str] = frozenset().union(*(s.inputs for size in sizes for s in size.symbols))
        super().__init__(message or f"data-dependent shape: it needs the number {sizes[0]}, which the data decides")


class SizeSymbol:
    """A size that is one number at run time, between `low` and `high`; `emit` gives the value (an i64 of rank 0) that
    is it. `name` is for messages. Two symbols are equal if they are the same object."""

    __slots__ = ("emit", "high", "inputs", "key", "low", "name")
    _made = 0

    def __init__(
        self, name: str, high: int, emit: Callable[[], Any], inputs: frozenset[str] = frozenset(), low: int = 0
    ):
        self.name, self.low, self.high, self.emit, self.inputs = name, low, high, emit, inputs
        SizeSymbol._made += 1
        self.key = SizeSymbol._made  # the order in which polynomials name them

    def __repr__(self) -> str:
        return self.name


Monomial = tuple[SizeSymbol, ...]


class Size:
    """A polynomial: `terms` maps a product of symbols (sorted; () is 1) to its coefficient. It always has a symbol:
    `_size` gives an int for what has none."""

    __slots__ = ("terms",)

    def __init__(self, terms: dict[Monomial, int]):
        self.terms = terms

    @property
    def symbols(self) -> list[SizeSymbol]:
        """The symbols in it."""
        return list(dict.fromkeys(s for term in self.terms for s in term))

    @property
    def high(self) -> int:
        """The largest number that it can be, by the bounds of its symbols alone."""
        return self._bound(upper=True)

    @property
    def low(self) -> int:
        """The smallest number that it can be, by the bounds of its symbols alone."""
        return self._bound(upper=False)

    def _bound(self, upper: bool) -> int:
        total = 0
        for term, c in self.terms.items():
            low = high = 1
            for s in term:
                corners = [a * b for a in (low, high) for b in (s.low, s.high)]
                low, high = min(corners), max(corners)
            total += c * (high if (c > 0) == upper else low)
        return total

    # -- arithmetic

    def __add__(self, other: Any) -> Any:
        if (terms := _terms(other)) is None:
            return NotImplemented
        found = dict(self.terms)
        for term, c in terms.items():
            found[term] = found.get(term, 0) + c
        return _size(found)

    def __mul__(self, other: Any) -> Any:
        if (terms := _terms(other)) is None:
            return NotImplemented
        found: dict[Monomial, int] = {}
        for a, c in self.terms.items():
            for b, d in terms.items():
                term = tuple(sorted((*a, *b), key=lambda s: s.key))
                found[term] = found.get(term, 0) + c * d
        return _size(found)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Any:
        return self * -1

    def __sub__(self, other: Any) -> Any:
        return NotImplemented if _terms(other) is None else self + other * -1

    def __rsub__(self, other: Any) -> Any:
        return NotImplemented if _terms(other) is None else self * -1 + other

    def over(self, other: int | Size) -> int | Size | None:
        """The exact quotient by what divides every term; None where that is not known to be whole."""
        if isinstance(other, Size):
            if self == other:
                return 1
            if len(other.terms) != 1:
                return None
            ((divisor, by),) = other.terms.items()
        else:
            divisor, by = (), int(other)
        if by == 0:
            return None
        found: dict[Monomial, int] = {}
        for term, c in self.terms.items():
            rest = list(term)
            for s in divisor:
                if s not in rest:
                    return None
                rest.remove(s)
            if c % by:
                return None
            found[tuple(rest)] = c // by
        return _size(found)

    def __floordiv__(self, other: Any) -> Any:
        return self._whole(other, self.over(other) if isinstance(other, int | Size) else None)

    def __mod__(self, other: Any) -> Any:
        self._whole(other, self.over(other) if isinstance(other, int | Size) else None)
        return 0

    def _whole(self, other: Any, found: int | Size | None) -> Any:
        return self._undecided() if found is None else found

    # -- comparisons, as far as the bounds decide them

    def __eq__(self, other: object) -> bool:
        """Return whether both are the same polynomial. Two that are not may be equal at run time: to Python they are
        different."""
        return isinstance(other, Size) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(frozenset(self.terms.items()))

    def __lt__(self, other: Any) -> bool:
        return self._below(self - other)

    def __ge__(self, other: Any) -> bool:
        return not self._below(self - other)

    def __gt__(self, other: Any) -> bool:
        return self._below(other - self)

    def __le__(self, other: Any) -> bool:
        return not self._below(other - self)

    def _below(self, difference: Any) -> bool:
        """Return whether a difference is below 0."""
        if isinstance(difference, int):
            return difference < 0
        if difference.high < 0 or difference.low >= 0:
            return difference.high < 0
        self._undecided()

    def _undecided(self, *_: Any) -> NoReturn:
        raise UndecidedSize(self)

    __index__ = __int__ = __float__ = __bool__ = __pow__ = __truediv__ = __rtruediv__ = __rfloordiv__ = __rmod__ = (
        __divmod__
    ) = _undecided
    __rdivmod__ = __round__ = __trunc__ = __floor__ = __ceil__ = __rpow__ = __lshift__ = __rshift__ = _undecided

    def __str__(self) -> str:
        parts = [
            " * ".join([*([str(c)] if c != 1 or not term else []), *map(str, term)]) for term, c in self.terms.items()
        ]
        return " + ".join(parts)

    __repr__ = __str__


def _size(terms: dict[Monomial, int]) -> int | Size:
    """The polynomial, or the int that it is."""
    terms = {term: c for term, c in terms.items() if c}
    if not terms:
        return 0
    return terms[()] if terms.keys() == {()} else Size(terms)


def of_symbol(symbol: SizeSymbol) -> Size:
    """The size that a symbol is."""
    return Size({(symbol,): 1})


def _terms(x: Any) -> dict[Monomial, int] | None:
    if isinstance(x, Size):
        return x.terms
    return {(): int(x)} if hasattr(type(x), "__index__") and not isinstance(x, bool) else None


def bound(dim: int | Size) -> int:
    """The dim of a type: the number, or the largest that it can be."""
    return max(dim.high, 0) if isinstance(dim, Size) else dim


def least(dim: int | Size) -> int:
    """The smallest number that a dim can be."""
    return dim.low if isinstance(dim, Size) else dim


def known(dims: Sequence[int | Size]) -> bool:
    """Return whether no dim is decided by the data."""
    return not any(isinstance(d, Size) for d in dims)
