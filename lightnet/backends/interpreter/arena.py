"""Memory spaces of the interpreter at level 3: bytes that values are really written to and read from.

Bytes where nothing lives hold `POISON`, which makes floats NaN and integers -1: a stale read shows. Imports numpy,
places and types.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from xdsl.ir import Attribute

from lightnet.diagnostics import LightNetError
from lightnet.ir.arrays import from_memory, to_memory
from lightnet.ir.layout import byte_size
from lightnet.ir.place import PlaceAttr

POISON = 0xFF

#: A range of bytes: space, first byte, one past the last.
Range = tuple[str, int, int]


class Arenas:
    """One `np.uint8` array for each memory space, all poison at first."""

    def __init__(self, sizes: Mapping[str, int]):
        self.spaces: dict[str, np.ndarray] = {}
        for name, size in sizes.items():
            try:
                self.spaces[name] = np.full(size, POISON, np.uint8)
            except (MemoryError, ValueError):
                raise LightNetError(f"memory space '{name}' of {size} bytes does not fit into memory") from None

    def bytes_at(self, place: PlaceAttr, size: int) -> np.ndarray:
        """The bytes themselves (a view). Raises `LightNetError` for a place outside its space."""
        space = self.spaces.get(place.space.data)
        at = place.offset.data
        if space is None or at + size > len(space):
            raise LightNetError(f"{size} bytes at {place} are outside of the planned memory")
        return space[at : at + size]

    def load(self, place: PlaceAttr, type: Attribute) -> np.ndarray:
        """A copy of the value of tensor type `type` that stands at `place`, in whatever layout it has."""
        return from_memory(type, self.bytes_at(place, byte_size(type)).copy())

    def store(self, place: PlaceAttr, type: Attribute, array: np.ndarray) -> None:
        """Write a value of tensor type `type` to `place`, in its layout."""
        self.bytes_at(place, byte_size(type))[:] = to_memory(type, array)

    def poison(self, area: Range, keep: Iterable[Range] = ()) -> None:
        """Poison a range, except where it meets the ranges of `keep`."""
        space, at, end = area
        for _, lo, hi in sorted(k for k in keep if k[0] == space):
            if lo >= end:
                break
            if lo > at:
                self.spaces[space][at:lo] = POISON
            at = max(at, hi)
        if at < end:
            self.spaces[space][at:end] = POISON
