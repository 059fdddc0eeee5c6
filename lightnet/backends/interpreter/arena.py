"""Memory spaces of the interpreter at level 3: bytes that values are really written to and read from.

Bytes where nothing lives hold `POISON`, which makes floats NaN and integers -1: a stale read shows. Imports numpy,
places and types.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from lightnet.diagnostics import LightNetError
from lightnet.ir.place import PlaceAttr
from lightnet.ir.types import TensorSpec

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

    def load(self, place: PlaceAttr, spec: TensorSpec) -> np.ndarray:
        """A copy of the value of type `spec` that stands at `place`."""
        raw = self.bytes_at(place, spec.nbytes).copy()
        if spec.dtype.kind == "bool":
            return (raw != 0).reshape(spec.dims)
        return raw.view(spec.dtype.np).reshape(spec.dims)

    def store(self, place: PlaceAttr, array: np.ndarray) -> None:
        """Write the bytes of `array` to `place`."""
        self.bytes_at(place, array.nbytes)[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)

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
