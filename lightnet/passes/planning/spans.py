"""Ranges of bytes that live for a while, found by where they are: which of thousands meet a range takes no look at all
of them.

Numbers only, and dims: what is kept needs an `offset`, a `size` and an `upper` (the position from which on it is dead).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from heapq import heappop, heappush
from itertools import count
from typing import Generic, Protocol, TypeVar

from lightnet.runtime.dim_bounds import are_apart


class Span(Protocol):
    """Bytes [offset, offset + size) until position `upper`."""

    offset: int
    size: int
    upper: int


S = TypeVar("S", bound=Span)


class Spans(Generic[S]):
    """Spans that live, by power of two of their size and then by offset; and those that are dead, by when they died.

    `meeting` takes O(log n) for each power of two and each span found, where spans of like sizes lie apart; positions
    only grow from call to call.
    """

    __slots__ = ("_dead", "_ends", "_live")

    _number = count()  # tells spans that end together apart in the heap

    def __init__(self) -> None:
        self._live: dict[int, list[S]] = {}  # bit length of the size -> by offset
        self._ends: list[tuple[int, int, S]] = []  # those that live, a heap by `upper`
        self._dead: list[S] = []  # by `upper`

    def add(self, span: S) -> None:
        """Take in a span."""
        insort(self._live.setdefault(span.size.bit_length(), []), span, key=_offset)
        heappush(self._ends, (span.upper, next(Spans._number), span))

    def absorb(self, other: Spans[S], shift: int) -> None:
        """Take in the spans of `other`, each `shift` bytes further on."""
        for span in other._dead:
            span.offset += shift
            insort(self._dead, span, key=_upper)
        for _, _, span in other._ends:
            span.offset += shift
            self.add(span)

    def meeting(self, low: int, high: int, position: int, now: int) -> list[S]:
        """The spans with bytes in [low, high) that live at `position` or later, where `now` is the position reached."""
        while self._ends and self._ends[0][0] <= now:
            _, _, span = heappop(self._ends)
            self._remove(span)
            insort(self._dead, span, key=_upper)
        found = []
        for bits, spans in self._live.items():
            first = bisect_right(spans, low - (1 << bits), key=_offset)  # a span of so many bits is shorter than 2^bits
            found += spans[first : bisect_left(spans, high, key=_offset)]
        found += self._dead[bisect_right(self._dead, position, key=_upper) :]
        return [s for s in found if s.offset < high and low < s.offset + s.size]

    def _remove(self, span: S) -> None:
        spans = self._live[span.size.bit_length()]
        k = bisect_left(spans, span.offset, key=_offset)
        while spans[k] is not span:
            k += 1
        del spans[k]


class OpenSpans(Spans[S]):
    """Spans whose offsets and sizes calls decide: what is not proved to lie apart for all values meets. Takes O(n)."""

    __slots__ = ("_all",)

    def __init__(self) -> None:
        self._all: list[S] = []

    def add(self, span: S) -> None:
        self._all.append(span)

    def absorb(self, other: Spans[S], shift: int) -> None:
        assert isinstance(other, OpenSpans)
        for span in other._all:
            span.offset += shift
        self._all += other._all

    def meeting(self, low: int, high: int, position: int, now: int) -> list[S]:
        there = [s for s in self._all if s.upper > position]
        return [s for s in there if not are_apart(low, high - low, s.offset, s.size)]


def _offset(span: Span) -> int:
    return span.offset


def _upper(span: Span) -> int:
    return span.upper
