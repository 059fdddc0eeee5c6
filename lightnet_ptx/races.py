"""The last accesses to each piece of memory, and whether two accesses are ordered by a barrier. Imports NumPy.

Memory is divided into granules, as small as the smallest access of a kernel. Each has the stamp of its last write and
of its last read. A stamp is `flags | epoch | who`, where the epoch counts the barriers that a thread has passed; it
grows from launch to launch, so that old stamps need no clearing. Two accesses to a granule, at least one of them a
write, race if different threads make them and no barrier lies between; across blocks nothing orders them, within a
launch. Atomic accesses do not race with each other, nor do writes of the value that is there already. Barriers of a
part of a block raise the epochs of those that take part alone, which may hide a race between threads that use different
barriers. This is the epoch form of happens-before of Flanagan and Freund, "FastTrack", PLDI 2009.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Array = Any
i64 = np.int64

#: A stamp: 10 bits of thread; 24 bits of block or, in shared memory, of the warp's clock (which `bar.warp.sync`
#: raises); 26 bits of epoch; flags.
THREAD, MIDDLE, EPOCH_SHIFT, EPOCH_BITS = (1 << 10) - 1, ((1 << 24) - 1) << 10, 34, 26
EPOCH = ((1 << EPOCH_BITS) - 1) << EPOCH_SHIFT
WARP = THREAD & ~31
#: Flags of reads: other threads have read too; some of them in another warp (in shared memory), or block (in global
#: memory). Flag of writes: the write was atomic.
NEAR, FAR = 1 << 60, 1 << 61
#: Flag of reads: all of them were strong.
STRONG = 1 << 62
ATOMIC = 1 << 60
#: Where epochs start again, between launches: a launch may pass as many barriers as it may execute instructions.
MAX_EPOCH = 1 << (EPOCH_BITS - 1)


class Conflict(NamedTuple):
    """A race: the access at `position` with an earlier `kind` (``read`` or ``write``) by the owner of `stamp`."""

    position: int
    kind: str
    stamp: int


class Races:
    """The stamps of one store. `shared` says whether it belongs to one block at a time; stamps before `since` do not
    count.
    """

    def __init__(self, nbytes: int, granule: int, shared: bool) -> None:
        self.granule, self.shared = granule, shared
        self.writes = np.zeros(-(-nbytes // granule), i64)
        self.reads = np.zeros(-(-nbytes // granule), i64)
        self.since = i64(1)
        self._who = i64(THREAD if shared else THREAD | MIDDLE)
        self._far = i64(WARP if shared else MIDDLE)
        self._written = i64(-1)
        #: What else may order earlier accesses (stamps) before later ones, to granules: `ordering`, `clocks`.
        self.ordered_elsewhere: Callable[[Array, Array, Array], Array] | None = None

    def begin(self, epoch: int) -> None:
        """Forget what was before this epoch: before a launch, or what a barrier of all threads orders."""
        self.since = i64(epoch << EPOCH_SHIFT)

    def _spread(self, offsets: Array, nbytes: int, stamps: Array) -> tuple[Array, Array]:
        granules = offsets // self.granule
        count = nbytes // self.granule
        if count <= 1:
            return granules, stamps
        return (granules[:, None] + np.arange(count)).ravel(), np.repeat(stamps, count)

    def _ordered(self, old: Array, stamps: Array) -> Array:
        """Return whether a barrier lies between earlier accesses (all that the flags stand for) and these."""
        before = (old & EPOCH) < (stamps & EPOCH)
        apart = ((old ^ stamps) & self._far) | (old & FAR)
        if self.shared:
            return before | ((apart == 0) & ((old & MIDDLE) < (stamps & MIDDLE)))
        return before & (apart == 0)

    def _concurrent(self, old: Array, stamps: Array, granules: Array, many: bool) -> Array:
        """Return whether accesses of this launch by other threads are not ordered before these. `many`: flags say that
        others made them.
        """
        hit = old >= self.since  # flags only add to a stamp, and are looked at again below
        if not hit.any():
            return hit
        others = ((old ^ stamps) & self._who) != 0
        if many:
            others |= (old & (NEAR | FAR)) != 0
        hit = ((old & EPOCH) >= self.since) & others
        if hit.any():
            hit &= ~self._ordered(old, stamps)
        if self.ordered_elsewhere is not None and hit.any():
            hit[hit] = ~self.ordered_elsewhere(old[hit], stamps[hit], granules[hit])
        return hit

    def read(self, offsets: Array, nbytes: int, stamps: Array, strong: bool) -> Conflict | None:
        """Note reads of `nbytes` bytes each. A strong (atomic, volatile) one does not race with strong writes."""
        granules, stamps = self._spread(offsets, nbytes, stamps)
        if self._written >= self.since:
            old = self.writes[granules]
            hit = self._concurrent(old, stamps, granules, False)
            if strong:
                hit &= (old & ATOMIC) == 0
            if hit.any():
                at = int(np.argmax(hit))
                return Conflict(at * len(offsets) // len(granules), "write", int(old[at]))
        self._note_reads(granules, stamps | STRONG if strong else stamps)
        return None

    def written(self, offsets: Array, nbytes: int, stamps: Array) -> Conflict | None:
        """The first access whose bytes anybody wrote since the launch began, as a conflict."""
        granules, _ = self._spread(offsets, nbytes, stamps)
        if self._written < self.since:
            return None
        old = self.writes[granules]
        hit = old >= self.since
        if not hit.any():
            return None
        at = int(np.argmax(hit))
        return Conflict(at * len(offsets) // len(granules), "write", int(old[at]))

    def _note_reads(self, granules: Array, stamps: Array) -> None:
        old = self.reads[granules]
        live = old >= self.since
        if live.any():
            live = ((old & EPOCH) >= self.since) & ~self._ordered(old, stamps)
        if live.any():
            changed = (old ^ stamps) & self._who
            flags = np.where(changed & self._far, i64(FAR), np.where(changed, i64(NEAR), i64(0))) | (old & (NEAR | FAR))
            self.reads[granules] = np.where(live, (stamps & (old | ~i64(STRONG))) | flags, stamps)
        else:
            self.reads[granules] = stamps
        # several lanes of this access may have read one granule: all but the last find another stamp there
        changed = (self.reads[granules] ^ stamps) & self._who
        if not changed.any():
            return
        far = (changed & self._far) != 0
        for flag, where in ((NEAR, changed != 0), (FAR, far)):
            if where.any():
                hit = granules[where]
                self.reads[hit] |= flag

    def write(
        self, offsets: Array, nbytes: int, stamps: Array, strong: bool, same: Callable[[int], Array]
    ) -> Conflict | None:
        """Note writes. `same(granule)` says of each granule that is written whether it holds the new value already."""
        granules, stamps = self._spread(offsets, nbytes, stamps)
        each = len(granules) // len(offsets)
        if self._written >= self.since:
            old = self.writes[granules]
            hit = self._concurrent(old, stamps, granules, False)
            if strong:
                hit &= (old & ATOMIC) == 0
            if hit.any():
                hit &= ~same(self.granule)
                if hit.any():
                    at = int(np.argmax(hit))
                    return Conflict(at // each, "write", int(old[at]))
        old = self.reads[granules]
        hit = self._concurrent(old, stamps, granules, True)
        if strong:
            hit &= (old & STRONG) == 0
        if hit.any():
            at = int(np.argmax(hit))
            return Conflict(at // each, "read", int(old[at]))
        self.writes[granules] = stamps | ATOMIC if strong else stamps
        self._written = stamps.max()
        return None
