"""Factors of `wgmma` in shared memory: what a matrix descriptor says, and where the elements are. Imports NumPy.

"PTX ISA", 9.7.15.5.1: "Shared Memory Matrix Layout" (canonical layouts, strides) and "Matrix Descriptor Format".
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from lightnet_ptx.tma import swizzled

Array = Any
#: k of one product of 16-bit factors.
DEPTH = 16
#: Bytes of a row of the pattern of each swizzle mode of a descriptor.
_WIDTHS = (0, 128, 64, 32)
#: Bits of a descriptor that have no meaning.
_UNUSED = ~(0x3FFF | 0x3FFF << 16 | 0x3FFF << 32 | 7 << 49 | 3 << 62) & (1 << 64) - 1


class Descriptor(NamedTuple):
    """A factor in shared memory: where it begins, the two lengths that its layout has, and the bytes of a row of the
    swizzle (0: none)."""

    start: int
    leading: int
    stride: int
    width: int


def descriptor(value: int) -> Descriptor | str:
    """The descriptor that the 64 bits of a matrix descriptor say; a sentence where they cannot be used."""
    start, leading, stride = ((value >> shift & 0x3FFF) << 4 for shift in (0, 16, 32))
    width = _WIDTHS[value >> 62]
    if value & _UNUSED:
        return "bits that have no meaning are set"
    if value >> 49 & 7:
        return "a base offset other than 0 is not understood"
    # a row of the pattern has `width` bytes, and the swizzle goes by 128-byte lines of the address: eight rows begin at
    # line 0
    if width and start >> 7 & (width // 16 - 1):
        return f"the pattern of its swizzle does not begin at a multiple of {8 * width} bytes"
    return Descriptor(start, leading, stride, width)


@lru_cache(512)
def layout(d: Descriptor, size: int, by_k: bool) -> Array:
    """The shared addresses of the elements of a factor of 16-bit elements, [size, 16]: element k of row (of A) or
    column (of B) i. `by_k`: rows or columns lie next to each other ("MN-major"), else k does. "Canonical layouts",
    whose T is 8 elements, 16 bytes."""
    i, k = np.arange(size)[:, None], np.arange(DEPTH)[None]
    row = d.width or 16
    if not by_k:
        along = 2 * k if d.width else k // 8 * d.leading + 2 * (k % 8)
        offsets = i % 8 * row + i // 8 * d.stride + along
    elif d.width:
        panel = row // 2
        offsets = 2 * (i % panel) + i // panel * d.leading + k % 8 * row + k // 8 * d.stride
    else:
        offsets = 2 * (i % 8) + i // 8 * d.stride + k % 8 * row + k // 8 * d.leading
    return swizzled(d.start + offsets, d.width or 16)


@lru_cache(512)
def pieces(d: Descriptor, size: int, by_k: bool) -> Array:
    """The pieces of 16 bytes that a factor lies in, in order."""
    return np.unique(layout(d, size, by_k) & ~15)
