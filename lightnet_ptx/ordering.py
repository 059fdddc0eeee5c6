"""The order of accesses of different blocks in a launch: a fence and an atomic write by one, an atomic read and a fence
by the other. Imports NumPy.

So the last block that counts itself done may read what the others wrote before (split-K). A *release* is a strong write
(atomic, volatile, relaxed) after a fence of the same thread: it stands for what the thread did before the fence, and
what threads of its block did before their last barrier. Whoever reads that address strongly, and then executes a fence,
*acquires* it, for itself and, behind the next barrier, for its block. ``.release`` and ``.acquire`` have the fence in
them. What the releasing thread does between its fence and its next barrier counts as done before. Source: "PTX ISA",
8.8 (release and acquire patterns), without its transitivity between more than two blocks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lightnet_ptx.races import EPOCH, EPOCH_SHIFT, FAR, MIDDLE, THREAD

if TYPE_CHECKING:
    from lightnet_ptx.machine import Batch

Array = Any


class Moment(NamedTuple):
    """A point in a block's run: everything in earlier epochs lies before it, and in its own epoch what `thread` did
    before.
    """

    epoch: int
    thread: int

    def before(self, epoch: Array, thread: Array) -> Array:
        """Return whether accesses in these epochs by these threads lie before it."""
        return (epoch < self.epoch) | ((epoch == self.epoch) & (thread == self.thread))

    def after(self, epoch: Array, thread: Array) -> Array:
        """Return whether accesses lie behind it."""
        return (epoch > self.epoch) | ((epoch == self.epoch) & (thread == self.thread))


class Ordering:
    """Releases and acquires of one launch."""

    def __init__(self) -> None:
        self._released: dict[int, dict[int, Moment]] = {}  # address -> block -> what it released
        self._acquired: dict[tuple[int, int], tuple[Moment, Moment]] = {}  # (block, other) -> the other's release, when
        self._seen: dict[
            int, dict[int, Moment]
        ] = {}  # global thread -> block -> a release that it read, before its fence
        self._fenced: dict[int, int] = {}  # global thread -> epoch of its last fence

    def _threads(self, batch: Batch) -> list[tuple[int, int, int, int]]:
        """(global thread, block, thread, epoch) of the active lanes."""
        lanes = np.arange(batch.lanes) if batch.indices is None else batch.indices
        blocks, threads = batch.first + batch.slot[lanes], batch.tid[lanes]
        return list(
            zip(
                (blocks * batch.threads + threads).tolist(),
                blocks.tolist(),
                threads.tolist(),
                batch.epoch[lanes].tolist(),
            )
        )

    def fence(self, batch: Batch) -> None:
        """The active lanes execute a fence."""
        if batch.launch.blocks == 1:
            return
        for who, block, thread, epoch in self._threads(batch):
            self._fenced[who] = epoch
            for other, moment in self._seen.pop(who, {}).items():
                self._acquired[block, other] = (moment, Moment(epoch, thread))

    def strong(self, batch: Batch, addresses: Array, reads: bool, writes: bool, order: str) -> None:
        """The active lanes access addresses of global memory strongly; `order` is ``acquire``, ``release``, ``acq_rel``
        or another.
        """
        releases, acquires = order in ("release", "acq_rel"), order in ("acquire", "acq_rel")
        if batch.launch.blocks == 1 or not (self._released or self._fenced or releases):
            return
        for (who, block, thread, epoch), address in zip(self._threads(batch), addresses.tolist()):
            if reads:
                for other, moment in self._released.get(address, {}).items():
                    if other == block:
                        continue
                    if acquires:
                        self._acquired[block, other] = (moment, Moment(epoch, thread))
                    else:
                        self._seen.setdefault(who, {})[other] = moment
            if writes and (releases or who in self._fenced):
                moment = Moment(epoch if releases else self._fenced[who], thread)
                self._released.setdefault(address, {})[block] = moment

    def ordered(self, old: Array, stamps: Array, granules: Array) -> Array:
        """Return whether accesses with the stamps `old` by other blocks lie before those with `stamps`; of which
        granules does not matter.
        """
        result = np.zeros(len(old), bool)
        if not self._acquired:
            return result
        other, mine = (old & MIDDLE) >> 10, (stamps & MIDDLE) >> 10
        for pair in np.unique(mine << 24 | other):
            found = self._acquired.get((int(pair) >> 24, int(pair) & 0xFFFFFF))
            if found is None:
                continue
            here = (mine << 24 | other) == pair
            before = found[0].before((old & EPOCH) >> EPOCH_SHIFT, old & THREAD)
            after = found[1].after((stamps & EPOCH) >> EPOCH_SHIFT, stamps & THREAD)
            result |= here & before & after & ((old & FAR) == 0)
        return result
