"""The dependences between lines of ``@main``, by the bytes that they touch: who wrote what a line reads, for pictures;
which earlier ones a launch waits for, on a device; where threads wait for each other, on processors.

Two lines depend on each other where both touch a byte and one of them writes it (J. L. Hennessy, D. A. Patterson,
"Computer Architecture", 3.1: read after write, write after read, write after write). Small functions on numbers:
`accesses.py` says what a line touches. Imports `ir.interval_map`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from lightnet.dataclasses import dataclass
from lightnet.ir.interval_map import SpaceMap

if TYPE_CHECKING:
    from lightnet.dialects.accesses import Access


def writers_of(lines: Iterable[Sequence[Access]]) -> list[list[list[int]]]:
    """For each line and each of its accesses, the lines that wrote the bytes last, in order; none where the access
    reads nothing."""
    writers: SpaceMap[int] = SpaceMap()
    found = []
    for number, line in enumerate(lines):
        found.append([sorted(set(writers[a.space].values(a.begin, a.end))) if a.reads else [] for a in line])
        for a in line:
            if a.writes:
                writers[a.space].set(a.begin, a.end, number)
    return found


# -- launches of a device ----------------------------------------------------------------------------------------------


class _History(NamedTuple):
    """The history of bytes: a bit for the launch that wrote them last, and one for each that has read them since."""

    writer: int
    readers: int = 0


def launch_waits(launches: Iterable[Sequence[Access]]) -> list[tuple[int, ...]]:
    """For each launch, by what it touches, the earlier ones that it waits for; of two, one of which waits for the other
    anyway, the later one alone. What has nothing to do with each other may run at once, as the branches of a network
    that follow one tensor."""
    history: SpaceMap[_History] = SpaceMap()
    found: list[tuple[int, ...]] = []
    before: list[int] = []  # for each launch, a bit for each that ends before it begins
    for number, accesses in enumerate(launches):
        needed = 0
        for a in accesses:
            for piece in history[a.space].values(a.begin, a.end):
                needed |= piece.writer | (piece.readers if a.writes else 0)
        _note(history, accesses, 1 << number)
        direct, reached = [], 0
        while needed := needed & ~reached:
            other = needed.bit_length() - 1
            direct.append(other)
            reached |= before[other] | 1 << other
        before.append(reached)
        found.append(tuple(reversed(direct)))
    return found


def _note(history: SpaceMap[_History], accesses: Sequence[Access], launch: int) -> None:
    """Add to the history what a launch, one bit, touches: what it writes, then what it reads and has not written
    itself."""

    def read(piece: _History | None) -> _History:
        if piece is None:
            return _History(0, launch)
        return piece if piece.writer == launch else piece._replace(readers=piece.readers | launch)

    for a in accesses:
        if a.writes:
            history[a.space].set(a.begin, a.end, _History(launch))
    for a in accesses:
        if not a.writes:
            history[a.space].update(a.begin, a.end, read)


# -- threads of processors ---------------------------------------------------------------------------------------------

#: Instead of a thread: nobody, and any (or several).
NOBODY, ANY_THREAD = -1, -2


@dataclass(frozen=True)
class Touch:
    """Bytes [begin, end) of a space that a line reads or (also) writes; `thread` is the only one to do so, or
    `ANY_THREAD`."""

    space: str
    begin: int
    end: int
    writes: bool
    thread: int = ANY_THREAD


class _Threads(NamedTuple):
    """The threads that read and that wrote bytes since the last barrier."""

    reader: int = NOBODY
    writer: int = NOBODY


def barriers(lines: Sequence[Sequence[Touch]]) -> list[bool]:
    """For each line of a launch list, whether a barrier stands before it.

    A line that is split runs in parts on all threads at once, any other on thread 0; each thread takes the lines in
    order. Two lines need a barrier between them where different threads may touch the same bytes and one of them writes
    these. Each such dependence is an interval of lines that has to hold a barrier; to put it as late as the first
    dependence allows takes the least number (piercing of intervals).
    """
    found, since = [], SpaceMap[_Threads]()
    for line in lines:
        needed = any(_conflicts(t, threads) for t in line for threads in since[t.space].values(t.begin, t.end))
        if needed:
            since = SpaceMap()
        found.append(needed)
        for touch in line:
            since[touch.space].update(touch.begin, touch.end, lambda threads, touch=touch: _touched(touch, threads))  # type: ignore[misc]
    return found


def _conflicts(touch: Touch, threads: _Threads) -> bool:
    return _others(threads.writer, touch.thread) or (touch.writes and _others(threads.reader, touch.thread))


def _others(before: int, thread: int) -> bool:
    """Return whether a thread other than `thread` may be among those of `before`."""
    return before != NOBODY and (before != thread or thread == ANY_THREAD)


def _touched(touch: Touch, threads: _Threads | None) -> _Threads:
    reader, writer = threads or _Threads()
    return _Threads(_joined(reader, touch.thread), _joined(writer, touch.thread) if touch.writes else writer)


def _joined(before: int, thread: int) -> int:
    return thread if before in (NOBODY, thread) else ANY_THREAD
