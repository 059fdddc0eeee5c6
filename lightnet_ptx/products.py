"""Products by warpgroups (`wgmma`) that are under way, and their sums, which no other instruction may access until they
were waited for. Imports NumPy.

"PTX ISA", 9.7.15: the fragments of m64nNk16, and what `wgmma.fence`, `wgmma.commit_group` and `wgmma.wait_group` are
for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from lightnet.dataclasses import dataclass, field
from lightnet_ptx import findings
from lightnet_ptx.clocks import GROUP
from lightnet_ptx.rounding import f32

if TYPE_CHECKING:
    from lightnet_ptx.machine import Batch

Array = Any
#: Rows of the sums of a warpgroup.
ROWS = 64


@dataclass
class _Open:
    """A product that some warpgroups have not waited for. `groups`: the number of its group in each warpgroup;
    `factors`: warpgroups, and the granules that they read."""

    rows: Array
    key: tuple[int, ...]
    waiting: Array
    groups: Array
    factors: list[tuple[Array, Array]] = field(default_factory=list)


class Products:
    """The products of a batch that are under way, and their sums. Warpgroups are counted in the batch."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        if batch.threads % GROUP:
            batch.here = next(i for i, site in enumerate(batch.kernel.sites) if site.opcode.startswith("wgmma"))
            no_warpgroups(batch)
        self.row = {slot: i for i, slot in enumerate(sorted(batch.kernel.sums))}
        self.count = batch.lanes // GROUP
        #: [registers of sums, warpgroups]: how many products under way have it; whether it was accessed since the last
        #: fence.
        self.flights = np.zeros((len(self.row), self.count), np.int32)
        self.touched = np.ones((len(self.row), self.count), bool)
        self.committed = np.zeros(self.count, np.int64)
        self.open: list[_Open] = []
        #: For each tuple of registers: the sums [warpgroups, 64, N], and which warpgroups have theirs here and not in
        #: registers.
        self.sums: dict[tuple[int, ...], tuple[Array, Array]] = {}

    def groups(self) -> Array:
        """The numbers of the warpgroups that are active."""
        return np.nonzero(self.batch.mask_array()[::GROUP])[0]

    def touch(self, rows: Array, names: list[str]) -> None:
        """Another instruction accesses registers of sums."""
        here = self.batch.mask_array().reshape(-1, GROUP)
        active = here.any(axis=1)
        bad = (self.flights[rows] > 0) & active
        if bad.any():
            i, group = (int(k[0]) for k in np.nonzero(bad))
            lane = group * GROUP + int(np.argmax(here[group]))
            message = f"register {names[i]} belongs to a wgmma that was not waited for"
            findings.fail(self.batch, "wgmma", message, lane)
        self.touched[rows] |= active

    def begin(self, key: tuple[int, ...], groups: Array, scale: Array, product: Array) -> _Open:
        """Add products [groups, 64, N] to the sums in registers `key`, or (where `scale` is false) put them there."""
        rows = np.array([self.row[slot] for slot in key])
        lane = int(groups[0]) * GROUP
        if self.touched[np.ix_(rows, groups)].any():
            message = "registers of its sums were accessed, and no wgmma.fence followed"
            findings.fail(self.batch, "wgmma", message, lane)
        for other in self.open:
            if other.key != key and other.waiting[groups].any() and set(other.key) & set(key):
                message = "registers of its sums belong to a wgmma of another shape that was not waited for"
                findings.fail(self.batch, "wgmma", message, lane)
        sums, here = self._sums(key)
        missing = groups[~here[groups] & scale]
        if len(missing):
            sums[missing] = self._load(key, missing)
        sums[groups] = np.where(scale[:, None, None], sums[groups] + product, product)
        here[groups] = True
        waiting = np.zeros(self.count, bool)
        waiting[groups] = True
        self.flights[np.ix_(rows, groups)] += 1
        found = _Open(rows, key, waiting, self.committed.copy())
        self.open.append(found)
        return found

    def _sums(self, key: tuple[int, ...]) -> tuple[Array, Array]:
        if key not in self.sums:
            self.sums[key] = np.zeros((self.count, ROWS, 2 * len(key)), f32), np.zeros(self.count, bool)
        return self.sums[key]

    def _load(self, key: tuple[int, ...], groups: Array) -> Array:
        """The sums of warpgroups, out of their registers."""
        batch, unset = self.batch, [slot for slot in key if self.batch.regs[slot] is None]
        if unset:
            name = batch.kernel.names[unset[0]]
            message = f"register {name} is read, and was never written"
            findings.fail(batch, "uninitialised", message, int(groups[0]) * GROUP)
        lanes = (groups[:, None] * GROUP + np.arange(GROUP)).ravel()
        words = np.stack([np.broadcast_to(batch.regs[slot], batch.lanes)[lanes] for slot in key])
        # register 4 j + 2 h + i of lane 4 g + q of warp w: row 16 w + 8 h + g, column 8 j + 2 q + i
        parts = words.view(f32).reshape(len(key) // 4, 2, 2, len(groups), 4, 8, 4)
        return parts.transpose(3, 4, 1, 5, 0, 6, 2).reshape(len(groups), ROWS, 2 * len(key))

    def _store(self, key: tuple[int, ...], groups: Array) -> None:
        """Put the sums of warpgroups into their registers."""
        batch, (sums, here) = self.batch, self.sums[key]
        parts = sums[groups].reshape(len(groups), 4, 2, 8, len(key) // 4, 4, 2)
        words = np.ascontiguousarray(parts.transpose(4, 2, 6, 0, 1, 3, 5)).view(np.uint32).reshape(len(key), -1)
        lanes = (groups[:, None] * GROUP + np.arange(GROUP)).ravel()
        for slot, values in zip(key, words):
            old = batch.regs[slot]
            full = np.zeros(batch.lanes, np.uint32) if old is None else np.array(np.broadcast_to(old, batch.lanes))
            full[lanes] = values
            batch.regs[slot] = full
        here[groups] = False

    def fence(self) -> None:
        """Order accesses to registers before the products that follow."""
        self.touched[:, self.groups()] = False

    def commit(self) -> None:
        """End a group of products."""
        self.committed[self.groups()] += 1

    def wait(self, left: int) -> None:
        """Wait for all but the last `left` groups."""
        active = np.zeros(self.count, bool)
        active[self.groups()] = True
        clocks = self.batch.clocks
        kept, ended = [], []
        for product in self.open:
            done = product.waiting & active & (product.groups < self.committed - left)
            if done.any():
                product.waiting = product.waiting & ~done
                self.flights[np.ix_(product.rows, np.nonzero(done)[0])] -= 1
                ended.append((product, done))
            if product.waiting.any():
                kept.append(product)
        self.open = kept
        for product, done in ended:
            for groups, granules in product.factors:
                if clocks is not None and done[groups].any():
                    clocks.end_reads(groups[done[groups]], granules)
            idle = done & (self.flights[product.rows[0]] == 0) & self._sums(product.key)[1]
            if idle.any():
                self._store(product.key, np.nonzero(idle)[0])
        if clocks is None or not ended:
            return
        for product in kept:
            for groups, granules in product.factors:
                if product.waiting[groups].any():
                    clocks.keep_reads(groups[product.waiting[groups]], granules)


def no_warpgroups(batch: Batch) -> NoReturn:
    """A finding: the block is not made of warpgroups."""
    message = f"the block has {batch.threads} threads: warpgroups are {GROUP} of them"
    findings.fail(batch, "missing-lane", message, batch.first_lane())
