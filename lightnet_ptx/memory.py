"""The memories that a kernel reads and writes, byte by byte: what each byte holds, and whether anything was written
there. Imports NumPy and `lightnet.diagnostics`.

A `Store` is one range of bytes; every allocation of global memory is a store of its own at an address that is used
once, so that no access can stray from one into another or hit one that was given back. Addresses of other state spaces
are offsets; as generic addresses they stand in windows (`WINDOWS`), and `cvta` adds or takes off where these begin.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

import numpy as np

from lightnet.diagnostics import LightNetError

if TYPE_CHECKING:
    from lightnet_ptx.races import Races

Array = Any

#: What is known about a byte: nothing was written; it holds a value; an asynchronous copy into it is under way; it
#: belongs to nothing; it belongs to an mbarrier. What must not be written has the bit of `PENDING`.
UNSET, SET, PENDING, OUTSIDE, OPAQUE = 0, 1, 2, 3, 6
#: Where the first allocation stands, and what lies unused between two of them.
GLOBAL_BASE, RED_ZONE, ALIGNMENT = 0x7F00_0000_0000, 4096, 256
#: Where the other state spaces stand among generic addresses.
WINDOWS = {"shared": 0x0001_0000_0000, "local": 0x0002_0000_0000, "kparam": 0x0003_0000_0000}
WINDOW_SIZE = 0x0001_0000_0000


class Store:
    """A range of bytes. `state` has one of the four states of each byte, or is None where all of them hold values."""

    def __init__(self, nbytes: int, name: str, space: str, base: int = 0, is_set: bool = False) -> None:
        padded = -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT
        self.nbytes, self.name, self.space, self.base = nbytes, name, space, base
        self.data = np.zeros(padded, np.uint8)
        self.state: np.ndarray | None = None if is_set else np.zeros(padded, np.uint8)
        self.races: Races | None = None

    def rows(self, dtype: np.dtype, count: int) -> np.ndarray:
        """The bytes as rows of `count` elements, an element a row where that is 1."""
        view = self.data.view(dtype)
        return view if count == 1 else view.reshape(-1, count)

    def states(self, nbytes: int) -> np.ndarray:
        """The states of `nbytes` bytes (a power of two) a row, as integers of the widest type that fits."""
        assert self.state is not None
        if nbytes <= 8:
            return self.state.view(f"u{nbytes}")
        return self.state.view(np.uint64).reshape(-1, nbytes // 8)

    def mark(self, offset: int, nbytes: int) -> None:
        """Note that the host wrote a range."""
        if self.state is None:
            return
        if nbytes == self.nbytes:
            self.state = None
        else:
            self.state[offset : offset + nbytes] = SET


def of_state(state: int, nbytes: int) -> Any:
    """The result of `Store.states` where all of the bytes are in one state."""
    size = min(nbytes, 8)
    return np.dtype(f"u{size}").type(int.from_bytes(bytes([state]) * size, "little"))


class GlobalMemory:
    """Global and constant memory: stores by address, at most `limit` bytes at a time."""

    def __init__(self, limit: int) -> None:
        self.limit, self.used = limit, 0
        self._next = GLOBAL_BASE
        self._bases: list[int] = []
        self._stores: list[Store] = []
        self._freed: dict[int, int] = {}

    def alloc(self, nbytes: int, name: str, space: str = "global") -> Store:
        """New memory, at a multiple of 256. LightNetError where the limit is passed."""
        if nbytes < 0 or self.used + nbytes > self.limit:
            raise LightNetError(
                f"out of memory: {nbytes} bytes more than the {self.used} in use pass {self.limit}", label="cuda.memory"
            )
        store = Store(nbytes, name, space, self._next)
        self._bases.append(store.base)
        self._stores.append(store)
        self._next += -(-(nbytes + RED_ZONE) // ALIGNMENT) * ALIGNMENT
        self.used += nbytes
        return store

    def free(self, address: int) -> None:
        """Give a store back; its address stays unused. LightNetError where none begins there."""
        at = bisect_right(self._bases, address) - 1
        if at < 0 or self._bases[at] != address:
            state = "was given back already" if address in self._freed else "is no allocation"
            raise LightNetError(f"address {address:#x} {state}", label="cuda.free")
        store = self._stores.pop(at)
        del self._bases[at]
        self._freed[address] = store.nbytes
        self.used -= store.nbytes

    def stores(self) -> list[Store]:
        """All that are in use."""
        return list(self._stores)

    def at(self, address: int) -> Store | None:
        """The store that begins at or before an address."""
        at = bisect_right(self._bases, address) - 1
        return self._stores[at] if at >= 0 else None

    def find(self, address: int, nbytes: int) -> tuple[Store, int]:
        """The store and offset of a range that the host copies. LightNetError where it is not in one allocation."""
        store = self.at(address)
        if store is None or nbytes < 0 or address + nbytes > store.base + store.nbytes:
            raise LightNetError(
                f"{nbytes} bytes at {address:#x} are not in one allocation ({self.near(address)})", label="cuda.bounds"
            )
        return store, address - store.base

    def locate(self, addresses: Array, nbytes: int) -> list[tuple[Store, Array, Array | None]] | int:
        """The stores of accesses of `nbytes` bytes each, as (store, offsets, positions or None for all); the position
        of an access that is outside all stores, if there is one. `addresses` is an array of uint64, not empty.
        """
        low, high = int(addresses.min()), int(addresses.max())
        store = self.at(low)
        if store is not None and high + nbytes <= store.base + store.nbytes:
            return [(store, (addresses - np.uint64(store.base)).view(np.int64), None)]
        found: list[tuple[Store, Array, Array | None]] = []
        index = np.searchsorted(np.array(self._bases, np.uint64), addresses, "right") - 1
        for at in np.unique(index):
            where = np.nonzero(index == at)[0]
            if at < 0:
                return int(where[0])
            store = self._stores[at]
            offsets = (addresses[where] - np.uint64(store.base)).view(np.int64)
            outside = np.nonzero(offsets + nbytes > store.nbytes)[0]
            if len(outside):
                return int(where[outside[0]])
            found.append((store, offsets, where))
        return found

    def near(self, address: int) -> str:
        """The description of what stands near an address that is in no allocation, in words."""
        store = self.at(address)
        for base, nbytes in self._freed.items():
            if base <= address < base + max(nbytes, 1):
                return f"inside {nbytes} bytes at {base:#x} that were given back"
        for space, window in WINDOWS.items():
            if window <= address < window + WINDOW_SIZE:
                return f"a generic address of {space.replace('kparam', 'param')} memory, offset {address - window}"
        if address < 1 << 32:
            return "perhaps an offset into shared or local memory" if address else "a null pointer"
        if store is None:
            return "before all allocations"
        past = address - store.base - store.nbytes
        return f"{past} bytes past the end of {store.name}, {store.nbytes} bytes at {store.base:#x}"
