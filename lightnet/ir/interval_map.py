"""The facts about bytes: disjoint intervals of memory spaces, each with a value. The one home of such tables; imports
dims alone."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from lightnet.runtime.dims import is_never_below

T = TypeVar("T")


class IntervalMap(Generic[T]):
    """Values of the bytes of one space. Kept as intervals [begin, end) in order, neighbours of equal values as one: a
    lookup takes logarithmic time, and linear in the intervals that it meets."""

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._parts: list[tuple[int, int, T]] = []

    def __iter__(self) -> Iterator[tuple[int, int, T]]:
        return iter(self._parts)

    def values(self, begin: int, end: int) -> list[T]:
        """The values of the bytes [begin, end), in order; none of bytes that nobody set."""
        first, last = self._meeting(begin, end)
        return [value for _, _, value in self._parts[first:last]]

    def parts(self, begin: int, end: int) -> Iterator[tuple[int, int, T | None]]:
        """The bytes [begin, end) in order, as intervals of one value; None of bytes that nobody set."""
        first, last = self._meeting(begin, end)
        for low, high, value in self._parts[first:last]:
            if begin < low:
                yield begin, low, None
            yield max(begin, low), min(high, end), value
            begin = high
        if begin < end:
            yield begin, end, None

    def set(self, begin: int, end: int, value: T) -> None:
        """Give the bytes [begin, end) a value, whatever they had."""
        self.update(begin, end, lambda _: value)

    def update(self, begin: int, end: int, change: Callable[[T | None], T]) -> None:
        """Give each of the bytes [begin, end) the value that `change` makes of the one it has (None: it has none)."""
        if begin >= end:
            return
        first, last = self._meeting(begin, end)
        new: list[tuple[int, int, T]] = []
        at = begin
        for low, high, value in self._parts[first:last]:
            if low < begin:
                new.append((low, begin, value))
            elif at < low:
                new.append((at, low, change(None)))
            at = min(high, end)
            new.append((max(low, begin), at, change(value)))
            if high > end:
                new.append((end, high, value))
        if at < end:
            new.append((at, end, change(None)))
        if first and self._parts[first - 1][1] == new[0][0]:
            first -= 1
            new.insert(0, self._parts[first])
        if last < len(self._parts) and self._begins[last] == new[-1][1]:
            new.append(self._parts[last])
            last += 1
        self._parts[first:last] = new = _merged(new)
        self._begins[first:last] = [low for low, _, _ in new]

    def _meeting(self, begin: int, end: int) -> tuple[int, int]:
        """The range of parts that share a byte with [begin, end)."""
        if begin >= end:
            return 0, 0
        first = bisect_right(self._begins, begin)
        if first and self._parts[first - 1][1] > begin:
            first -= 1
        last = first
        while last < len(self._parts) and self._begins[last] < end:
            last += 1
        return first, last


def _merged(parts: list[tuple[int, int, T]]) -> list[tuple[int, int, T]]:
    """Neighbours that have the same value, as one."""
    merged = parts[:1]
    for low, high, value in parts[1:]:
        begin, end, before = merged[-1]
        if end == low and before == value:
            merged[-1] = begin, high, value
        else:
            merged.append((low, high, value))
    return merged


class OpenIntervalMap(IntervalMap[T]):
    """The same where calls decide bounds: what is not proved to keep its value for all values of symbols is forgotten,
    and what is not known to be in an interval is not found there. Takes linear time."""

    def parts(self, begin: int, end: int) -> Iterator[tuple[int, int, T | None]]:
        found: list[tuple[int, int, T]] = []
        at = begin
        for _ in self._parts:
            if at == end:
                break
            begun = [p for p in self._parts if p[0] == at != p[1]] or [p for p in self._parts if _covers(p, at)]
            if not begun:
                break
            part = begun[0]
            to = end if is_never_below(part[1], end) else part[1]
            if not is_never_below(end, to):
                break
            found.append((at, to, part[2]))
            at = to
        yield from _merged(found)
        if at != end:
            yield at, end, None

    def drop(self, is_dropped: Callable[[T], bool]) -> None:
        """Forget the intervals of some values."""
        self._parts = [part for part in self._parts if not is_dropped(part[2])]

    def set(self, begin: int, end: int, value: T) -> None:
        kept: list[tuple[int, int, T]] = []
        for low, high, before in self._parts:
            if is_never_below(begin, high) or is_never_below(low, end):
                kept.append((low, high, before))
                continue
            if low != begin and is_never_below(begin, low) and is_never_below(high, begin):
                kept.append((low, begin, before))
            if high != end and is_never_below(high, end) and is_never_below(end, low):
                kept.append((end, high, before))
        self._parts = [*kept, (begin, end, value)]


def _covers(part: tuple[int, int, T], at: int) -> bool:
    """Return whether a byte that is not the end of a part is proved to be in it, or the part to be empty."""
    return part[1] != at and is_never_below(at, part[0]) and is_never_below(part[1], at)


class SpaceMap(defaultdict[str, IntervalMap[T]]):
    """An `IntervalMap` for each memory space, by the space's name."""

    def __init__(self) -> None:
        super().__init__(IntervalMap)
