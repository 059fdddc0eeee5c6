"""The virtual memory pool of LightNet's "data structures" document (`ln_mem_pool`): best fit over a list of holes.

`--plan=upstream` replays allocations and releases on it and so gets upstream's offsets, byte for byte; our own planner
does not use it. Imports the standard library.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from lightnet.diagnostics import LightNetError
from lightnet.runtime.arrays import align_up


class Pool:
    """Addresses 1 to `size` (0 means "unplanned"), of which blocks are taken and given back; nothing is stored there.

    `alloc` takes the hole whose usable part, from its first multiple of `align` on, is the smallest that is large
    enough; of several the one at the lowest address. The bytes skipped for alignment and the rest behind the block
    stay holes. `dealloc` merges the block with holes next to it. Each takes O(log n) comparisons for n holes.
    """

    def __init__(self, size: int, align: int = 1) -> None:
        if size < 1 or align < 1:
            raise LightNetError(
                f"a memory pool needs a positive size and alignment, got {size} and {align}", label="pool.size"
            )
        self.size = size
        self.align = align
        self.high_water = 0  # the largest address + size ever in use: upstream's `mem_sizes`
        self._used: dict[int, int] = {}  # address -> size
        self._hole_end: dict[int, int] = {}  # first byte of a hole -> its last byte
        self._hole_start: dict[int, int] = {}  # and back
        self._by_room: list[tuple[int, int]] = []  # (usable bytes, first byte) of each hole, sorted
        self._add_hole(1, size)

    def alloc(self, size: int) -> int:
        """Take `size` bytes; return their address. Raises `LightNetError` when no hole is large enough."""
        if size < 1:
            raise LightNetError(f"cannot allocate {size} bytes from a memory pool", label="pool.alloc")
        k = bisect_left(self._by_room, (size, 0))
        if k == len(self._by_room):
            raise LightNetError(
                f"memory pool is out of space: {size} bytes wanted, {sum(self._used.values())} of {self.size} in use, "
                f"the largest hole has {max(0, self._by_room[-1][0]) if self._by_room else 0}",
                label="pool.space",
            )
        start = self._by_room[k][1]
        end = self._hole_end[start]
        self._remove_hole(start)
        address = align_up(start, self.align)
        if address > start:
            self._add_hole(start, address - 1)
        if address + size <= end:
            self._add_hole(address + size, end)
        self._used[address] = size
        self.high_water = max(self.high_water, address + size)
        return address

    def dealloc(self, address: int) -> None:
        """Give back the block that `alloc` placed at `address`. Raises `LightNetError` when there is none."""
        if address not in self._used:
            raise LightNetError(f"no block of the memory pool starts at {address}", label="pool.dealloc")
        start, end = address, address + self._used.pop(address) - 1
        if end + 1 in self._hole_end:
            following = end + 1
            end = self._hole_end[following]
            self._remove_hole(following)
        if start - 1 in self._hole_start:
            start = self._hole_start[start - 1]
            self._remove_hole(start)
        self._add_hole(start, end)

    def exist(self, address: int) -> bool:
        """Return whether a block in use starts at `address`."""
        return address in self._used

    def dump(self) -> str:
        """The layout, a line for each block in order of address: first and last byte, size, ``used`` or ``hole``."""
        blocks = [(a, a + n - 1, "used") for a, n in self._used.items()]
        blocks += [(a, b, "hole") for a, b in self._hole_end.items()]
        lines = [f"memory pool: size {self.size}, align {self.align}"]
        lines += [f"  [{a}, {b}] {b - a + 1} {kind}" for a, b, kind in sorted(blocks)]
        return "\n".join(lines)

    def _add_hole(self, start: int, end: int) -> None:
        self._hole_end[start] = end
        self._hole_start[end] = start
        insort(self._by_room, (end - align_up(start, self.align) + 1, start))

    def _remove_hole(self, start: int) -> None:
        end = self._hole_end.pop(start)
        del self._hole_start[end]
        del self._by_room[bisect_left(self._by_room, (end - align_up(start, self.align) + 1, start))]
