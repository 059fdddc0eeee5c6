"""The order of accesses in shared memory, where mbarriers order accesses and copies of tensors and `wgmma` make
them. Imports NumPy.

Vector clocks (Mattern, "Virtual time and global states of distributed systems", 1988): each warp and each warpgroup
counts its releases, each mbarrier its phases, and a thread knows of each the last count that it is behind. What a
thread arrives with it gives away for its warp, and for the products of its warpgroup, which have ended for all of it
when they have for one ("PTX ISA", wgmma.commit_group: a group is one of the warpgroup). Whoever waits for the phase
takes it over. `bar.sync` and `bar.warp.sync` are arrivals and waits of all that take part.

For each granule of shared memory it is known when each warp read it last, and each warpgroup by `wgmma` (`READING`
while it may still), which phase of which mbarrier says that a copy has filled it, and who wrote it by an ordinary store
that copies and `wgmma` do not see yet ("PTX ISA", async proxy). Not seen: lanes of a warp that read, and another lane
of it that arrives with no `bar.warp.sync` between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lightnet_ptx import findings
from lightnet_ptx.races import FAR, MIDDLE, THREAD

if TYPE_CHECKING:
    from lightnet_ptx.machine import Batch

Array = Any
i32 = np.int32
#: Threads of a warp, and of a warpgroup.
WARP, GROUP = 32, 128
#: Mbarriers that a block may have in its run.
MOST_MBARRIERS = 64
#: The time of a read that has not ended.
READING = i32((1 << 31) - 1)


def owners(per_block: int) -> int:
    """The number of warps and warpgroups that count releases in a block of so many lanes; warps come first."""
    return per_block // WARP + per_block // GROUP


class Clocks:
    """The clocks of a batch, and its accesses to shared memory. Lanes are counted in the batch; warps, warpgroups and
    granules in their block. An *owner* is a warp or, behind those, a warpgroup."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.granule = batch.kernel.granules["shared"]
        self.warps = batch.per_block // WARP
        self.owners = owners(batch.per_block)
        self.granules = batch.shared_bytes // self.granule
        #: [lanes, owners + mbarriers]: the counts that a thread is behind.
        self.seen = np.zeros((batch.lanes, self.owners + MOST_MBARRIERS), i32)
        #: [blocks, owners]: the count of each one's next release.
        self.time = np.ones((batch.count, self.owners), i32)
        #: [blocks, owners, granules]: when one read last, 0 where it did not.
        self.reads = np.zeros((batch.count, self.owners, self.granules), i32)
        #: [blocks, granules]: the mbarrier of the last copy that landed, as a column of `seen`, and the phase that said
        #: so; 0 where none did.
        self.column = np.zeros((batch.count, self.granules), np.int16)
        self.phase = np.zeros((batch.count, self.granules), i32)
        #: [blocks, granules]: the thread, plus 1, of a store that no `fence.proxy.async` followed.
        self.unfenced = np.zeros((batch.count, self.granules), np.int16)

    # -- who is behind what
    def release(self, lane: int) -> Array:
        """The clocks that those who come behind this moment of a thread are behind, as a row of `seen`."""
        given = self.seen[lane].copy()
        block, mine = self._owners_of(lane)
        given[mine] = self.time[block, mine]
        self.time[block, mine] += 1
        return given

    def _owners_of(self, lane: int) -> tuple[int, list[int]]:
        """The block of a lane, and its warp and warpgroup."""
        block, thread = divmod(lane, self.batch.per_block)
        group = self.warps + thread // GROUP
        return block, [thread // WARP, group] if group < self.owners else [thread // WARP]

    def acquire(self, lanes: Array, given: Array) -> None:
        """Put threads behind what `release` gave."""
        self.seen[lanes] = np.maximum(self.seen[lanes], given)

    def barrier(self, lanes: Array, width: int) -> None:
        """Threads (a mask) of each group of `width` lanes have come to a barrier: each is behind all of them."""
        here = lanes.reshape(-1, width)
        rows = self.seen.reshape(-1, width, self.seen.shape[1])
        given = np.where(here[:, :, None], rows, i32(0)).max(axis=1)
        own = lanes.reshape(-1, self.warps, WARP).any(axis=2)
        if self.owners > self.warps and width > WARP:
            several = lanes.reshape(len(own), -1)[:, : (self.owners - self.warps) * GROUP]
            own = np.concatenate([own, several.reshape(len(own), -1, GROUP).any(axis=2)], axis=1)
        own = np.pad(own, ((0, 0), (0, self.owners - own.shape[1])))
        times = np.where(own, self.time, 0)
        if width == WARP:
            each = np.arange(len(given))
            mine = times[:, : self.warps].reshape(-1)
            given[each, each % self.warps] = np.maximum(given[each, each % self.warps], mine)
        else:
            given[:, : self.owners] = np.maximum(given[:, : self.owners], times)
        self.seen[lanes] = np.repeat(given, width, axis=0)[lanes]
        self.time += own
        self.stamp()

    def stamp(self) -> None:
        """Let the stamps of `races` have these times."""
        self.batch.clock = np.repeat(self.time[:, : self.warps].reshape(-1) - 1, WARP).astype(np.int64)
        self.batch.restamp()

    def ordered(self, old: Array, stamps: Array, granules: Array) -> Array:
        """Return whether the earlier accesses `old` of granules of the batch lie before those with `stamps`. For
        `races.Races`."""
        block = granules // self.granules
        lane = block * self.batch.per_block + (stamps & THREAD)
        before = self.seen[lane, (old & THREAD) // WARP] > (old & MIDDLE) >> 10
        far = (old & FAR) != 0
        if far.any():
            before[far] = ~self._unread(lane[far], granules[far]).any(axis=1)
        return before

    def _unread(self, lanes: Array, granules: Array) -> Array:
        """[n, owners]: whether one's last read of a granule of the batch does not lie before a thread's access."""
        known = self.seen[lanes, : self.owners].copy()
        each, thread = np.arange(len(lanes)), lanes % self.batch.per_block
        known[each, thread // WARP] = READING - 1
        if self.owners > self.warps:
            known[each, np.minimum(self.warps + thread // GROUP, self.owners - 1)] = READING - 1
        return self.reads[granules // self.granules, :, granules % self.granules] > known

    def spread(self, offsets: Array, nbytes: int) -> Array:
        """The granules of accesses of `nbytes` bytes."""
        return (offsets[:, None] // self.granule + np.arange(max(1, nbytes // self.granule))).ravel()

    # -- accesses
    def access(self, lanes: Array, offsets: Array, nbytes: int, writes: bool, strong: bool) -> None:
        """Loads or stores of `nbytes` bytes by lanes at offsets into the batch's shared memory: look at what copies and
        `wgmma` do there."""
        granules = self.spread(offsets, nbytes)
        lanes = np.repeat(lanes, len(granules) // len(lanes))
        block, at = np.divmod(granules, self.granules)
        verb = "writes" if writes else "reads"
        late = self.phase[block, at] > self.seen[lanes, self.column[block, at]]
        if late.any():
            i = int(np.argmax(late))
            self._not_waited(int(lanes[i]), int(granules[i]), verb)
        if not writes:
            if not strong:
                warp = lanes // WARP % self.warps
                self.reads[block, warp, at] = np.maximum(self.reads[block, warp, at], self.time[block, warp])
            return
        if not strong:
            self._look_for_reads(lanes, granules, "writes")
        self.phase[block, at] = 0
        self.unfenced[block, at] = self.batch.tid[lanes] + 1

    def _look_for_reads(self, lanes: Array, granules: Array, verb: str) -> None:
        bad = self._unread(lanes, granules)
        if not bad.any():
            return
        i, owner = (int(k[0]) for k in np.nonzero(bad))
        block, at = divmod(int(granules[i]), self.granules)
        reading = self.reads[block, owner, at] == READING
        by = f"warp {owner}" if owner < self.warps else f"warpgroup {owner - self.warps}"
        how = "a wgmma that was not waited for still reads" if reading else "nothing orders behind a read"
        where = findings.place(self.batch, self.batch.shared, int(granules[i]) * self.granule)
        message = f"race: {verb} {where}, which {how} by {by}"
        findings.fail(self.batch, "race", message, int(lanes[i]))

    def _not_waited(self, lane: int, granule: int, verb: str) -> None:
        where = findings.place(self.batch, self.batch.shared, granule * self.granule)
        message = (
            f"race: {verb} {where}, which a copy of a tensor filled, without having waited for the mbarrier of the copy"
        )
        findings.fail(self.batch, "race", message, lane)

    def begin_copy(self, lane: int, granules: Array) -> None:
        """A thread begins to copy into granules of the batch: nobody may access them any more."""
        lanes = np.full(len(granules), lane)
        block, at = np.divmod(granules, self.granules)
        late = self.phase[block, at] > self.seen[lanes, self.column[block, at]]
        if late.any():
            self._not_waited(lane, int(granules[int(np.argmax(late))]), "copies to")
        self._look_for_reads(lanes, granules, "copies to")
        self._look_for_writes(self.seen[lane], lane, granules, "copies to")

    def _look_for_writes(self, seen: Array, lane: int, granules: Array, verb: str) -> None:
        """Find ordinary stores that do not lie before a moment of which `seen` is known, by the thread in `lane`."""
        races = self.batch.shared.races
        assert races is not None
        old = races.writes[granules]
        hit = old != 0
        if not hit.any():
            return
        hit &= (seen[(old & THREAD) // WARP] <= (old & MIDDLE) >> 10) & ((old & THREAD) != self.batch.tid[lane])
        fence = self.unfenced.reshape(-1)[granules] != 0
        if not (hit | fence).any():
            return
        i = int(np.argmax(hit | fence))
        writer = findings.owner(self.batch, self.batch.first + int(self.batch.slot[lane]), int(old[i]) & THREAD)
        where = findings.place(self.batch, self.batch.shared, int(granules[i]) * self.granule)
        how = "with no barrier between" if hit[i] else "with no fence.proxy.async by it"
        findings.fail(
            self.batch, "race" if hit[i] else "proxy", f"race: {verb} {where}, which {writer} wrote, {how}", lane
        )

    def end_copy(self, granules: Array, column: int, phase: int) -> None:
        """A copy has landed, and the phase says so. What was before lies before it."""
        races = self.batch.shared.races
        assert races is not None
        block, at = np.divmod(granules, self.granules)
        self.column[block, at], self.phase[block, at] = column, phase
        self.reads[block, :, at] = 0
        self.unfenced[block, at] = 0
        races.writes[granules] = races.reads[granules] = 0

    def begin_reads(self, groups: Array, granules: Array) -> None:
        """Warpgroups (numbers in the batch) begin to read granules of their blocks by `wgmma`."""
        block = groups * GROUP // self.batch.per_block
        seen = self.seen.reshape(-1, GROUP, self.seen.shape[1])[groups].min(axis=1)
        column, phase = self.column[block][:, granules], self.phase[block][:, granules]
        late = phase > np.take_along_axis(seen, column.astype(np.int64), axis=1)
        if late.any():
            group, i = (int(k[0]) for k in np.nonzero(late))
            first = int(groups[group]) * GROUP
            known = self.seen[first : first + GROUP, int(column[group, i])]
            lane = first + int(np.argmax(known < phase[group, i]))
            self._not_waited(lane, int(block[group]) * self.granules + int(granules[i]), "reads")
        races = self.batch.shared.races
        assert races is not None
        every = block[:, None] * self.granules + granules
        if races.writes[every].any():
            for row, group, mine in zip(seen, groups, every):
                self._look_for_writes(row, int(group) * GROUP, mine, "reads")
        self._set_reads(groups, granules, READING)

    def end_reads(self, groups: Array, granules: Array) -> None:
        """They have waited for the reads to end."""
        self._set_reads(groups, granules, None)

    def keep_reads(self, groups: Array, granules: Array) -> None:
        """Other reads of theirs have not ended."""
        self._set_reads(groups, granules, READING)

    def _set_reads(self, groups: Array, granules: Array, when: Any) -> None:
        block, group = np.divmod(groups, self.owners - self.warps)
        owner = self.warps + group
        times = self.time[block, owner][:, None] if when is None else when
        self.reads[block[:, None], owner[:, None], granules] = times

    def fence(self, lanes: Array) -> None:
        """Threads (a mask) let copies and `wgmma` see what they stored."""
        if not self.unfenced.any():
            return
        done = np.zeros((self.batch.count, self.batch.per_block + 1), bool)
        done[:, 1:] = lanes.reshape(self.batch.count, -1)
        self.unfenced[np.take_along_axis(done, self.unfenced.astype(np.int64), axis=1)] = 0
