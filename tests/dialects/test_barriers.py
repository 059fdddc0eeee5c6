"""Where barriers stand in a launch list: on random lists, simulated in random interleavings, no thread sees anything but what
it sees when the lines run one after the other; and no fewer barriers would do."""

from __future__ import annotations

import random
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from lightnet.dialects.dependences import ANY_THREAD, Touch, barriers

THREADS, BYTES = 3, 12
Line = tuple[bool, list[Touch]]  # whether it is split, what it touches


@st.composite
def lines(draw, most: int = 8) -> list[Line]:
    """Lines as lowering makes them: no two touches of a line overlap unless neither writes; scratch has a piece for each thread."""
    found = []
    for _ in range(draw(st.integers(1, most))):
        split, touches, taken = draw(st.booleans()), [], set[int]()
        for _ in range(draw(st.integers(0, 3))):
            begin = draw(st.integers(0, BYTES - 1))
            end = draw(st.integers(begin, min(BYTES, begin + 5)))
            writes, space = draw(st.booleans()), draw(st.sampled_from(["arena", "arena", "static"]))
            cells = {(space, b) for b in range(begin, end)}
            if cells & taken:
                continue
            taken |= cells
            touches.append(Touch(space, begin, end, writes, ANY_THREAD if split else 0))
        if split and draw(st.integers(0, 3)) == 0:
            at = draw(st.integers(0, BYTES - THREADS))
            if not {("arena", b) for b in range(at, at + THREADS)} & taken:
                touches += [Touch("arena", at + t, at + t + 1, True, t) for t in range(THREADS)]
        found.append((split, touches))
    return found


Event = tuple[str, int, tuple]  # what, line, cell


def programs(network: list[Line], waits: list[bool], rng: random.Random) -> list[list[Event]]:
    """What each thread does: reads and writes of single bytes, and barriers. The bytes that a split line writes are shared out; a
    thread may read any byte that the line only reads, and those that it writes."""
    threads: list[list[Event]] = [[] for _ in range(THREADS)]
    for i, ((split, touches), wait) in enumerate(zip(network, waits)):
        if wait:
            for program in threads:
                program.append(("barrier", i, ()))
        parts: list[list[Event]] = [[] for _ in range(THREADS)]
        for touch in touches:
            for b in range(touch.begin, touch.end):
                cell = (touch.space, b)
                owners = [touch.thread] if touch.thread != ANY_THREAD else range(THREADS)
                if touch.writes:
                    t = rng.choice(list(owners))
                    parts[t] += [("read", i, cell), ("write", i, cell)]
                else:
                    for t in owners:
                        parts[t].append(("read", i, cell))
        for t, part in enumerate(parts):
            assert split or t == 0 or not part
            threads[t] += sorted(part)  # all reads of a part, then its writes
    return threads


def simulate(threads: list[list[Event]], choose) -> list:
    """Run in some interleaving; what every read of every thread saw, and the memory at the end. What is written tells by whom, and from
    what it was made."""
    memory: dict[tuple, int] = {}
    seen: list[list[tuple]] = [[] for _ in threads]
    at = [0] * len(threads)
    while True:
        running = [t for t, p in enumerate(threads) if at[t] < len(p)]
        ready = [t for t in running if threads[t][at[t]][0] != "barrier"]
        if not ready:
            if not running:
                return [seen, memory]
            for t in running:  # all stand at the same barrier
                at[t] += 1
            continue
        t = choose(ready, at)
        what, line, cell = threads[t][at[t]]
        at[t] += 1
        if what == "read":
            seen[t].append((line, cell, memory.get(cell, 0)))
        else:
            memory[cell] = hash((line, t, cell, tuple(seen[t])))


def in_order(threads: list[list[Event]]):
    """Lines one after the other."""
    return simulate(threads, lambda ready, at: min(ready, key=lambda t: (threads[t][at[t]][1], t)))


@settings(max_examples=300, deadline=None)
@given(lines(), st.integers(0, 1 << 30))
def test_no_interleaving_shows(network: list[Line], seed: int):
    rng = random.Random(seed)
    waits = barriers([touches for _, touches in network])
    threads = programs(network, waits, rng)
    want = in_order(threads)
    for _ in range(6):
        assert simulate(threads, lambda ready, at: rng.choice(ready)) == want
    for first in range(THREADS):  # one thread as far ahead as it gets
        assert simulate(threads, lambda ready, at, first=first: first if first in ready else ready[0]) == want


def conflict(a: list[Touch], b: list[Touch]) -> bool:
    """Byte by byte: whether two threads may touch the same byte, one of them writing it."""
    for x in a:
        for y in b:
            meets = x.space == y.space and set(range(x.begin, x.end)) & set(range(y.begin, y.end))
            if meets and (x.writes or y.writes) and (x.thread != y.thread or x.thread == ANY_THREAD):
                return True
    return False


@settings(max_examples=200, deadline=None)
@given(lines(most=7))
def test_as_few_as_there_can_be(network: list[Line]):
    touches = [t for _, t in network]
    pairs = [(i, j) for i, j in combinations(range(len(network)), 2) if conflict(touches[i], touches[j])]

    def holds(places: set[int]) -> bool:
        return all(any(i < p <= j for p in places) for i, j in pairs)

    found = {i for i, wait in enumerate(barriers(touches)) if wait}
    assert holds(found)
    fewer = combinations(range(1, len(network)), len(found) - 1) if found else ()
    assert not any(holds(set(places)) for places in fewer)


def test_examples():
    a, b = Touch("arena", 0, 64, True), Touch("arena", 64, 128, True)
    reads = Touch("arena", 0, 64, False)
    assert barriers([[a], [b], [reads]]) == [False, False, True]  # independent branches, then what joins them
    assert barriers([[reads], [reads], [a]]) == [False, False, True]  # written only when all have read
    assert barriers([[Touch("arena", 0, 64, True, 0)]] * 3) == [False] * 3  # thread 0 alone
    assert barriers([[Touch("arena", 0, 64, True, 0)], [reads]]) == [False, True]
    scratch = [Touch("arena", 64 * t, 64 * t + 64, True, t) for t in range(4)]
    assert barriers([scratch, scratch]) == [False, False]  # each has its own piece
    assert barriers([scratch, [*scratch[1:], Touch("arena", 0, 64, True, 3)]]) == [False, True]
    assert barriers([[Touch("static", 0, 0, True)], [Touch("static", 0, 0, True)]]) == [False, False]
