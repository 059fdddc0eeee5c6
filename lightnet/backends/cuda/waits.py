"""Which launches of a program wait for which: those that touch the same bytes, one of them to write.

What has nothing to do with each other may run at once, as the branches of a network that follow one tensor. Linear in the launches, but for
how finely they share bytes. Imports no IR.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol


class Bytes(Protocol):
    """Bytes [begin, end) of a memory space that a launch reads or writes."""

    @property
    def space(self) -> str: ...
    @property
    def begin(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def reads(self) -> bool: ...
    @property
    def writes(self) -> bool: ...


@dataclass
class _Piece:
    """What happened to bytes from one place to the next: the launch that wrote them last, and those that have read them since."""

    writer: int | None = None
    readers: set[int] = field(default_factory=set)


class _Space:
    """The bytes of one memory space, in pieces that begin at `begins`."""

    def __init__(self) -> None:
        self._begins: list[int] = [0]
        self._pieces: list[_Piece] = [_Piece()]

    def touched(self, begin: int, end: int) -> list[_Piece]:
        """The pieces that bytes [begin, end) are; larger ones are cut."""
        low, high = self._cut(begin), self._cut(end)
        return self._pieces[low:high]

    def _cut(self, at: int) -> int:
        """The number of the piece that begins at a byte."""
        number = bisect_right(self._begins, at) - 1
        if self._begins[number] == at:
            return number
        whole = self._pieces[number]
        self._begins.insert(number + 1, at)
        self._pieces.insert(number + 1, _Piece(whole.writer, set(whole.readers)))
        return number + 1


def waits(launches: Iterable[Sequence[Bytes]]) -> list[tuple[int, ...]]:
    """For each launch, by what it touches, the earlier ones that it waits for; of two, one of which waits for the other anyway, the
    later one alone."""
    spaces: dict[str, _Space] = {}
    found: list[tuple[int, ...]] = []
    before: list[int] = []  # for each launch, a bit for each that ends before it begins
    for number, accesses in enumerate(launches):
        needed: set[int] = set()
        ranges = [(spaces.setdefault(a.space, _Space()), a) for a in accesses if a.begin < a.end]
        for space, a in ranges:
            space.touched(a.begin, a.end)
        pieces = [
            (piece, a.writes) for space, a in ranges for piece in space.touched(a.begin, a.end)
        ]  # none is cut any more
        for piece, writes in pieces:
            needed |= piece.readers if writes else set()
            needed |= {piece.writer} if piece.writer is not None else set()
        for piece, writes in pieces:
            if writes:
                piece.writer, piece.readers = number, set()
        for piece, writes in pieces:
            if not writes and piece.writer != number:
                piece.readers.add(number)
        direct, reached = [], 0
        for other in sorted(needed - {number}, reverse=True):
            if not reached >> other & 1:
                direct.append(other)
                reached |= before[other] | 1 << other
        before.append(reached)
        found.append(tuple(sorted(direct)))
    return found
