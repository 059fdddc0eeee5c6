"""Where threads must wait for each other between the lines of a launch list: a small function on numbers. No IR.

A line that is split runs in parts on all threads at once, any other on thread 0; each thread takes the lines in order. Two lines
need a barrier between them where different threads may touch the same bytes and one of them writes these.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

#: Instead of a thread: nobody, and any (or several).
NOBODY, ANY = -1, -2


@dataclass(frozen=True)
class Touch:
    """Bytes [begin, end) of a space that a line reads or (also) writes; `thread` is the only one to do so, or `ANY`."""

    space: str
    begin: int
    end: int
    writes: bool
    thread: int = ANY


def barriers(lines: Sequence[Sequence[Touch]]) -> list[bool]:
    """For each line, whether a barrier stands before it.

    Each dependence is an interval of lines that has to hold a barrier; to put it as late as the first dependence allows takes the
    least number (piercing of intervals). n log n in the number of touches that are apart.
    """
    found, since = [], _Touched()
    for line in lines:
        needed = any(since.conflicts(t) for t in line)
        if needed:
            since = _Touched()
        found.append(needed)
        for touch in line:
            since.add(touch)
    return found


class _Touched:
    """Who read and wrote which bytes since the last barrier: in each space disjoint segments, in order."""

    def __init__(self) -> None:
        self._spaces: dict[str, _Segments] = {}

    def conflicts(self, t: Touch) -> bool:
        space = self._spaces.get(t.space)
        if space is None or t.begin >= t.end:
            return False
        first, last = space.meeting(t.begin, t.end)
        return any(
            _others(s.writer, t.thread) or (t.writes and _others(s.reader, t.thread)) for s in space.items[first:last]
        )

    def add(self, t: Touch) -> None:
        if t.begin < t.end:
            self._spaces.setdefault(t.space, _Segments()).add(t)


def _others(before: int, thread: int) -> bool:
    """Whether a thread other than `thread` may be among those of `before`."""
    return before != NOBODY and (before != thread or thread == ANY)


def _joined(before: int, thread: int) -> int:
    return thread if before in (NOBODY, thread) else ANY


@dataclass(frozen=True)
class _Segment:
    begin: int
    end: int
    reader: int
    writer: int

    def touched(self, t: Touch) -> _Segment:
        writer = _joined(self.writer, t.thread) if t.writes else self.writer
        return _Segment(self.begin, self.end, _joined(self.reader, t.thread), writer)

    def part(self, begin: int, end: int) -> _Segment:
        return _Segment(max(begin, self.begin), min(end, self.end), self.reader, self.writer)


class _Segments:
    """Segments of one space."""

    def __init__(self) -> None:
        self.begins: list[int] = []
        self.items: list[_Segment] = []

    def meeting(self, begin: int, end: int) -> tuple[int, int]:
        """The range of segments that share a byte with [begin, end)."""
        first = bisect_right(self.begins, begin)
        if first and self.items[first - 1].end > begin:
            first -= 1
        last = first
        while last < len(self.items) and self.begins[last] < end:
            last += 1
        return first, last

    def add(self, t: Touch) -> None:
        first, last = self.meeting(t.begin, t.end)
        old, new, at = self.items[first:last], [], t.begin
        for s in old:
            if s.begin < t.begin:
                new.append(s.part(s.begin, t.begin))
            if at < s.begin:
                new.append(_Segment(at, s.begin, NOBODY, NOBODY).touched(t))
            new.append(s.part(t.begin, t.end).touched(t))
            if s.end > t.end:
                new.append(s.part(t.end, s.end))
            at = min(s.end, t.end)
        if at < t.end:
            new.append(_Segment(at, t.end, NOBODY, NOBODY).touched(t))
        new = _merged(new)
        self.items[first:last] = new
        self.begins[first:last] = [s.begin for s in new]


def _merged(segments: list[_Segment]) -> list[_Segment]:
    """Neighbours that are alike, as one: a segment for each block of a buffer would be many."""
    merged: list[_Segment] = []
    for s in segments:
        if merged and merged[-1].end == s.begin and merged[-1].reader == s.reader and merged[-1].writer == s.writer:
            s = _Segment(merged.pop().begin, s.end, s.reader, s.writer)
        merged.append(s)
    return merged
