"""Runs a decoded kernel over all threads of a batch of blocks at once, and does their memory accesses. Imports NumPy.

Every access goes through `Batch.load`, `Batch.store` or `Batch.note_write`, where bounds, alignment, what bytes hold,
and races are looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from lightnet_ptx import findings
from lightnet_ptx.clocks import Clocks
from lightnet_ptx.memory import PENDING, SET, WINDOW_SIZE, WINDOWS, GlobalMemory, Store, of_state
from lightnet_ptx.phases import Mbarriers
from lightnet_ptx.products import Products
from lightnet_ptx.races import EPOCH_SHIFT, Races
from lightnet_ptx.threads import Geometry, Threads

if TYPE_CHECKING:
    from lightnet_ptx.kernel import Kernel

Array = Any
i64, u64 = np.int64, np.uint64
#: How many instructions a batch may execute before it counts as one that does not end.
STEP_LIMIT = 20_000_000
#: Where accesses go: a store, offsets into it, and the positions among the active lanes (None: all of them).
Place = tuple[Store, Array, Array | None]


class Batch(Threads):
    """Threads with their shared and local memory. `memory` is the device's, `params` the kernel's parameters; `check`
    says whether races are looked for.
    """

    def __init__(
        self, kernel: Kernel, launch: Geometry, first: int, count: int, memory: GlobalMemory, params: Store, check: bool
    ) -> None:
        super().__init__(kernel, launch, first, count)
        self.memory, self.params, self.check = memory, params, check
        self.copies: Any = None  # asynchronous copies (`asynchronous.Copies`)
        self.shared_bytes = -(-max(kernel.shared_bytes + launch.shared, 1) // 128) * 128
        self.shared = Store(self.shared_bytes * self.count, "shared memory", "shared")
        outside = kernel.shared_outside(self.shared_bytes, launch.shared)
        assert self.shared.state is not None
        self.shared.state[: self.shared.nbytes].reshape(self.count, -1)[:] = outside
        self.local_bytes = -(-kernel.local_bytes // 16) * 16
        self.local = Store(self.local_bytes * self.lanes, "local memory", "local")
        self.epoch = np.full(self.lanes, launch.epoch, i64)
        self.clock = np.zeros(self.lanes, i64)  # of `bar.warp.sync`
        self._global_who = ((self.first + self.slot) << 10 | self.tid).astype(i64)
        self.restamp()
        if self.check:
            self.shared.races = Races(len(self.shared.data), kernel.granules["shared"], True)
        #: What mbarriers and `wgmma` need; None in a kernel without them, the clocks also where races are not looked
        #: for.
        self.mbarriers = Mbarriers(self) if kernel.mbarriers else None
        self.products = Products(self) if kernel.sums else None
        self.clocks: Clocks | None = None
        if self.check and (kernel.mbarriers or kernel.sums):
            self.clocks = Clocks(self)
            assert self.shared.races is not None
            self.shared.races.ordered_elsewhere = self.clocks.ordered

    def restamp(self) -> None:
        """Make the stamps of this moment (`races`), after a barrier."""
        self.stamps = (self.epoch << EPOCH_SHIFT) | self._global_who
        self.shared_stamps = (self.epoch << EPOCH_SHIFT) | (self.clock << 10) | self.tid
        if self.shared.races is not None:
            self.shared.races.begin(int(self.epoch.min()))

    def run(self, trace: Callable[[Batch], None] | None = None, limit: int = STEP_LIMIT) -> None:
        """Execute until all threads have ended; `trace` is called before each instruction."""
        code = self.kernel.code
        with np.errstate(all="ignore"):
            while True:
                if self.pc >= self.stop and not self.select():
                    if self.mbarriers is not None:
                        self.mbarriers.end()
                    return
                self.here = here = self.pc
                self.pc = here + 1
                self.steps += 1
                if trace is not None:
                    trace(self)
                if self.steps > limit:
                    findings.fail(
                        self, "step-limit", f"the kernel has not ended after {limit} instructions", self.first_lane()
                    )
                code[here](self)

    # -- where accesses go
    def require_aligned(self, addresses: Array, nbytes: int) -> None:
        """Find accesses of the active lanes to addresses that are no multiples of their size."""
        if (addresses & u64(nbytes - 1)).any():
            at = int(np.argmax((addresses & u64(nbytes - 1)) != 0))
            findings.fail(
                self,
                "misaligned",
                f"an access of {nbytes} bytes at {int(addresses[at]):#x}, which is no multiple of {nbytes}",
                self.lane_of(at),
            )

    def places(self, space: str, addresses: Array, nbytes: int) -> list[Place]:
        """The places where accesses of the active lanes go, as (store, offsets, positions or None for all), inside and
        aligned.
        """
        self.require_aligned(addresses, nbytes)
        if space == "generic":
            return self._generic(addresses, nbytes)
        if space in ("global", "const"):
            return self._global(space, addresses, nbytes)
        size = {"shared": self.shared_bytes, "local": self.local_bytes, "kparam": self.params.nbytes}[space]
        if int(addresses.max()) + nbytes > size:
            at = int(np.argmax(addresses > u64(max(size - nbytes, 0)))) if size >= nbytes else 0
            findings.outside(self, space, int(addresses[at]), nbytes, at, size)
        offsets = addresses.view(i64)
        if space == "kparam":
            return [(self.params, offsets, None)]
        lanes = self.indices
        if space == "shared":
            base = self.slot * self.shared_bytes
            return [(self.shared, offsets + (base if lanes is None else base[lanes]), None)]
        return [(self.local, offsets + (np.arange(self.lanes) if lanes is None else lanes) * self.local_bytes, None)]

    def _global(self, space: str, addresses: Array, nbytes: int) -> list[Place]:
        found = self.memory.locate(addresses, nbytes)
        if isinstance(found, int):
            findings.outside(self, space, int(addresses[found]), nbytes, found)
        for store, _, positions in found:
            if space == "const" != store.space:
                findings.outside(self, space, int(addresses[0 if positions is None else positions[0]]), nbytes, 0)
        return found

    def _generic(self, addresses: Array, nbytes: int) -> list[Place]:
        """Generic addresses by their windows."""
        result: list[Place] = []
        lanes = np.arange(self.lanes) if self.indices is None else self.indices
        rest = np.ones(len(addresses), bool)
        parts: list[tuple[str, int, Array]] = []
        for space, base in WINDOWS.items():
            inside = (addresses >= u64(base)) & (addresses < u64(base + WINDOW_SIZE))
            rest &= ~inside
            parts.append((space, base, np.nonzero(inside)[0]))
        parts.append(("global", 0, np.nonzero(rest)[0]))
        for space, base, where in parts:
            if len(where):
                found = self.for_lanes(lanes[where], partial(self.places, space, addresses[where] - u64(base), nbytes))
                result += [(store, offsets, where if at is None else where[at]) for store, offsets, at in found]
        return result

    def stamps_of(self, store: Store, positions: Array | None) -> Array:
        """The stamps of the active lanes for accesses to a store."""
        stamps = self.shared_stamps if store is self.shared else self.stamps
        lanes = self.indices
        stamps = stamps if lanes is None else stamps[lanes]
        return stamps if positions is None else stamps[positions]

    def lanes_at(self, positions: Array | None) -> Array:
        """The lanes at positions among the active ones (None: all)."""
        lanes = np.arange(self.lanes) if self.indices is None else self.indices
        return lanes if positions is None else lanes[positions]

    def stuck(self) -> None:
        """Threads wait for each other, or for an mbarrier."""
        if self.mbarriers is not None:
            self.mbarriers.deadlock()
        super().stuck()

    def races_of(self, store: Store) -> Races | None:
        """The record that notes the accesses to a store, if anything does."""
        if not self.check or store.space in ("local", "kparam", "const"):
            return None
        if store is self.shared:
            return store.races
        granule = self.kernel.granules["global"]
        if store.races is None or store.races.granule != granule:
            store.races = Races(len(store.data), granule, False)
        if store.races.since >> EPOCH_SHIFT != self.launch.epoch:
            store.races.begin(self.launch.epoch)
            store.races.ordered_elsewhere = self.launch.ordering.ordered
        return store.races

    def check_states(self, store: Store, offsets: Array, nbytes: int, positions: Array | None, write: bool) -> None:
        """Find reads of bytes that hold nothing, and accesses to bytes that an asynchronous copy will write."""
        found = store.states(nbytes)[offsets // nbytes]
        if write:
            if store is not self.shared:
                return
            bad = found & of_state(PENDING, nbytes) != 0
        else:
            bad = found != of_state(SET, nbytes)
        if not bad.any():
            return
        bad = bad if bad.ndim == 1 else bad.any(axis=1)
        at = int(np.argmax(bad))
        state = store.state[int(offsets[at]) : int(offsets[at]) + nbytes]  # type: ignore[index]
        findings.bad_state(
            self, store, int(offsets[at]), nbytes, at if positions is None else int(positions[at]), state, write
        )

    def load(
        self, space: str, addresses: Array, dtype: np.dtype, count: int, strong: bool = False, constant: bool = False
    ) -> Array:
        """The values that the active lanes read: [lanes], or [lanes, count] where `count` > 1. `constant`: what no
        thread may write in this launch.
        """
        nbytes = dtype.itemsize * count
        result = None
        for store, offsets, positions in self.places(space, addresses, nbytes):
            if store.state is not None:
                self.check_states(store, offsets, nbytes, positions, False)
            races = self.races_of(store)
            if races is not None:
                stamps = self.stamps_of(store, positions)
                if constant and (conflict := races.written(offsets, nbytes, stamps)):
                    findings.race(self, store, offsets, nbytes, positions, conflict, "read-only (.nc) read")
                conflict = races.read(offsets, nbytes, stamps, strong)
                if conflict:
                    findings.race(self, store, offsets, nbytes, positions, conflict, "read")
                if self.clocks is not None and store is self.shared:
                    self.clocks.access(self.lanes_at(positions), offsets, nbytes, False, strong)
            values = store.rows(dtype, count)[offsets // nbytes]
            if positions is None:
                return values
            if result is None:
                result = np.zeros((len(addresses), *values.shape[1:]), dtype)
            result[positions] = values
        return result

    def store(
        self, space: str, addresses: Array, values: Array, count: int, strong: bool = False, state: Array = 1
    ) -> None:
        """Write [lanes] or [lanes, count] values of the active lanes; `state` is what becomes of the bytes."""
        nbytes = values.dtype.itemsize * count
        for store, offsets, positions in self.places(space, addresses, nbytes):
            if store.space in ("const", "kparam"):
                findings.fail(self, "read-only", f"a write to {store.name}, which is constant", self.first_lane())
            mine = values if positions is None else values[positions]
            if store.state is not None:
                self.check_states(store, offsets, nbytes, positions, True)
                states = store.states(nbytes)
                states[offsets // nbytes] = of_state(SET, nbytes) * state
            self.note_write(store, offsets, nbytes, positions, strong, mine)
            rows = store.rows(mine.dtype, count)
            rows[offsets // nbytes] = mine
            if store is self.local or (races := self.races_of(store)) is None:
                continue
            lost = rows[offsets // nbytes] != mine
            if lost.any():
                findings.collision(
                    self, store, offsets, nbytes, positions, lost if lost.ndim == 1 else lost.any(axis=1)
                )
            del races

    def order(self, space: str, addresses: Array, reads: bool, writes: bool, order: str) -> None:
        """Note strong accesses to global memory, which may order others (`ordering`)."""
        if self.check and space in ("global", "generic"):
            self.launch.ordering.strong(self, addresses, reads, writes, order)

    def note_write(
        self, store: Store, offsets: Array, nbytes: int, positions: Array | None, strong: bool, values: Array | None
    ) -> None:
        """Look for races of writes. `values`, what is written, as rows; None where it is not known yet."""
        races = self.races_of(store)
        if races is None:
            return

        def same(granule: int) -> Array:
            if values is None:
                return np.zeros(len(offsets) * max(1, nbytes // granule), bool)
            old = store.rows(np.dtype(np.uint8), nbytes)[offsets // nbytes]
            equal = old.ravel() == np.ascontiguousarray(values).view(np.uint8).ravel()
            return equal.reshape(-1, min(granule, nbytes)).all(axis=1)

        conflict = races.write(offsets, nbytes, self.stamps_of(store, positions), strong, same)
        if conflict:
            findings.race(self, store, offsets, nbytes, positions, conflict, "write")
        if self.clocks is not None and store is self.shared:
            self.clocks.access(self.lanes_at(positions), offsets, nbytes, True, strong)
