"""The numbers that many sizes are in a call, together: each distinct size, and each part of one, is computed once.

A call of a new shape needs dozens of sizes of a few symbols; to walk each polynomial by itself costs more than a small
network's kernels. Imports dims.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod

from lightnet.runtime.dims import Atom, Dim, Quotient, Size, Symbol

Step = Callable[[list[int]], int]


class SizeNumbers:
    """The numbers of sizes in a call: `place` gives each size a place in the list that `at` computes. Sizes of other
    symbols than `symbols` raise KeyError."""

    def __init__(self, symbols: Iterable[Symbol]):
        self._symbols = {s.name: k for k, s in enumerate(symbols)}
        self._steps: list[Step] = []
        self._places: dict[Size | Atom, int] = {}

    def place(self, size: Size) -> int:
        """The place of a size's number."""
        if (found := self._places.get(size)) is None:
            found = self._places[size] = self._added(_constant(size) if not isinstance(size, Dim) else self._sum(size))
        return found

    def at(self, values: Sequence[int]) -> list[int]:
        """The numbers where the symbols have these values, behind the values."""
        numbers = list(values)
        for step in self._steps:
            numbers.append(step(numbers))
        return numbers

    def _added(self, step: Step) -> int:
        self._steps.append(step)
        return len(self._symbols) + len(self._steps) - 1

    def _atom(self, atom: Atom) -> int:
        """The place of an atom: for a symbol, of its unit."""
        found = self._places.get(atom)
        if found is None:
            if isinstance(atom, Symbol):
                at = self._symbols[atom.name]
                found = at if atom.multiple == 1 else self._added(_quotient(at, atom.multiple))
            elif isinstance(atom, Quotient):
                found = self._added(_quotient(self.place(atom.dividend), atom.divisor))
            else:
                found = self._added(_extreme(atom.fn, *map(self.place, atom.args)))
            self._places[atom] = found
        return found

    def _sum(self, size: Dim) -> Step:
        terms = [(c, [self._atom(a) for a in term]) for term, c in size.terms.items()]
        rest = sum(c for c, places in terms if not places)
        linear = [(c, places[0]) for c, places in terms if len(places) == 1]
        if len(linear) == len([places for _, places in terms if places]) == 1:
            return _line(*linear[0], rest)
        return lambda numbers: sum(c * prod(numbers[k] for k in places) for c, places in terms)


def line_of(size: Size) -> tuple[Symbol, int, int] | None:
    """The symbol, factor and rest of a size that is ``factor * (symbol / multiple) + rest``; None for any other."""
    if not isinstance(size, Dim) or len(size.symbols) != 1:
        return None
    (symbol,) = size.symbols
    factor, rest = size.terms.get((symbol,), 0), size.terms.get((), 0)
    return (symbol, factor, rest) if factor and len(size.terms) == 1 + (() in size.terms) else None


def _constant(number: int) -> Step:
    return lambda numbers: number


def _line(factor: int, at: int, rest: int) -> Step:
    return lambda numbers: factor * numbers[at] + rest


def _quotient(at: int, divisor: int) -> Step:
    return lambda numbers: numbers[at] // divisor


def _extreme(fn: str, a: int, b: int) -> Step:
    pick = min if fn == "min" else max
    return lambda numbers: pick(numbers[a], numbers[b])
