"""Sizes that the data decides, while a model is read: dims over symbols that ops of the network compute.

A handler that computes dims of dims (``n // 2``, ``prod(dims)``) works on such a size as on an int. What needs the
number itself (a loop, a table, a comparison that the bounds do not decide) raises `Undecided`: so a handler that knows
nothing of sizes never takes a bound for the true size. `bound` is the dim in the type. Imports `ir.dims`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from itertools import count
from typing import Any

from lightnet.dataclasses import dataclass, field
from lightnet.runtime.dims import Dim, Size, Symbol, Undecided, greatest, is_same, least

_MADE = count()


@dataclass(frozen=True, eq=False)
class SizeSymbol(Symbol):
    """A number that the data decides, between `low` and `high`: `emit` gives the value (an i64 of rank 0) that is it at
    run time, `inputs` are the graph inputs that it follows from. Two are equal if they are the same object."""

    emit: Callable[[], Any] = field(kw_only=True)
    inputs: frozenset[str] = frozenset()

    __eq__, __hash__ = object.__eq__, object.__hash__

    @cached_property
    def key(self) -> str:
        return f"~{next(_MADE):09}"  # behind those of calls, in the order in which they were made


class UndecidedSize(Undecided):
    """A number is needed where there are `sizes` that the data decides."""

    def __init__(self, *sizes: Any, message: str | None = None):
        self.sizes = [s for s in sizes if isinstance(s, Dim)]
        needed = f"data-dependent shape: it needs the number {self.sizes[0]!s}, which the data decides"
        super().__init__(self.sizes[0], message or needed)


def inputs_of(*sizes: Any) -> frozenset[str]:
    """The graph inputs that sizes follow from."""
    found = (s for d in sizes if isinstance(d, Dim) for s in d.symbols)
    return frozenset().union(*(s.inputs for s in found if isinstance(s, SizeSymbol)))


def of_symbol(symbol: SizeSymbol) -> Dim:
    """The size that a symbol is."""
    return Dim({(symbol,): 1})


def is_counted(size: Any) -> bool:
    """Return whether the data decides a size."""
    return isinstance(size, Dim) and any(isinstance(s, SizeSymbol) for s in size.symbols)


def same(a: Size, b: Size) -> bool:
    """Return whether two dims are the same one. Raises `Undecided` where calls decide that; those that the data decides
    are if they have one form."""
    return a == b or (not (is_counted(a) or is_counted(b)) and is_same(a, b))


def is_one(size: Size) -> bool:
    """Return whether a dim is 1. Raises `Undecided` where calls decide that: either is right, and nothing is learnt."""
    if isinstance(size, Dim) and not is_counted(size) and least(size) <= 1 <= greatest(size):
        raise Undecided(size, f"it needs to know whether {size!s} is 1, which each call decides")
    return size == 1


def bound(size: Size) -> Size:
    """The dim of a type: the number, or the largest that it can be."""
    return max(greatest(size), 0) if is_counted(size) else size
