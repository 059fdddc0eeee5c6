"""Tensor maps as data: what a copy by the copy engine (TMA) takes of a tensor. A driver encodes one for an address (`Driver.tensor_map`).

Imports the standard library.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Bytes of an encoded map, which is a parameter of a kernel, and what divides its address.
BYTES, ALIGNMENT = 128, 64
#: Bytes of a row in shared memory, which is swizzled.
ROW = 128


@dataclass(frozen=True)
class TensorMap:
    """A row-major tensor of `dtype` (``f16``, ``bf16``) with the sizes `dims`, outermost first, and what one copy takes of it: a `box` (an extent
    for each dimension), or windows (`im2col`). Rows of 128 bytes lie swizzled in shared memory; what is outside of the tensor is zero."""

    dtype: str
    dims: tuple[int, ...]
    box: tuple[int, ...] = ()
    im2col: Im2col | None = None


@dataclass(frozen=True)
class Im2col:
    """`pixels` windows of a tensor [N, H, W, C], `channels` channels each: they begin at the rows `lower[0]`, `lower[0]` + `strides[0]`, … up to
    H - 1 + `upper[0]`, and at columns as well."""

    pixels: int
    channels: int
    lower: tuple[int, int]
    upper: tuple[int, int]
    strides: tuple[int, int]
