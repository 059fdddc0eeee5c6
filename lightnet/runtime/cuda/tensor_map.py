"""Tensor maps as data: what a copy by the copy engine (TMA) takes of a tensor. A driver encodes one for an address
(`Driver.tensor_map`).

Limits are those of the "CUDA Driver API", Tensor Map Object Management (cuTensorMapEncodeTiled,
cuTensorMapEncodeIm2col), with interleaving off and the 128-byte swizzle. Imports the standard library and
`lightnet.diagnostics`.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError

#: Bytes of an encoded map, which is a parameter of a kernel, and what divides its address.
BYTES, MAP_ALIGNMENT = 128, 64
#: Bytes of a row in shared memory, which is swizzled.
SWIZZLED_ROW = 128
#: The types that there are maps of, and bytes of an element.
MAP_TYPES = {"f16": 2, "bf16": 2}
MOST_RANK, MOST_BOX, MOST_PIXELS, MOST_STRIDE = 5, 256, 1024, 8
#: Where windows of [N, H, W, C] begin and end, from the first and last pixel on: 8 bits. So are the offsets of a tap in
#: a window, without a sign.
CORNERS, MOST_OFFSET = (-128, 127), 255
#: Bits of a size, and of a stride in bytes; what divides a tensor's address, its strides and rows, in bytes.
SIZE_BITS, STRIDE_BITS, MAP_PIECE = 32, 40, 16


@dataclass(frozen=True)
class TensorMap:
    """A row-major tensor of `dtype` (``f16``, ``bf16``) with the sizes `dims`, outermost first, and what one copy takes
    of it: a `box` (an extent for each dimension), or windows (`im2col`). Rows of 128 bytes lie swizzled in shared
    memory; what is outside of the tensor is zero."""

    dtype: str
    dims: tuple[int, ...]
    box: tuple[int, ...] = ()
    im2col: Im2col | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the whole tensor."""
        return MAP_TYPES[self.dtype] * prod(self.dims)

    @property
    def strides(self) -> tuple[int, ...]:
        """The bytes from one index of each dimension to the next, outermost first."""
        return tuple(MAP_TYPES[self.dtype] * prod(self.dims[i + 1 :]) for i in range(len(self.dims)))

    @classmethod
    def from_header(cls, entry: Mapping[str, Any]) -> TensorMap:
        """The map of a header (`dataclasses.asdict`); ValueError, TypeError, KeyError or LightNetError when it is
        none."""
        windows = entry["im2col"]
        im2col = None
        if windows is not None:
            pixels, channels = _integers([windows["pixels"], windows["channels"]])
            (y, x), (to_y, to_x), (by_y, by_x) = (_integers(windows[key]) for key in ("lower", "upper", "strides"))
            im2col = Im2col(pixels, channels, (y, x), (to_y, to_x), (by_y, by_x))
        found = cls(str(entry["dtype"]), _integers(entry["dims"]), _integers(entry["box"]), im2col)
        check_tensor_map(0, found)
        return found


@dataclass(frozen=True)
class Im2col:
    """`pixels` windows of a tensor [N, H, W, C], `channels` channels each: they begin at the rows `lower[0]`,
    `lower[0]` + `strides[0]`, … up to H - 1 + `upper[0]`, and at columns as well."""

    pixels: int
    channels: int
    lower: tuple[int, int]
    upper: tuple[int, int]
    strides: tuple[int, int]


def _integers(values: Any) -> tuple[int, ...]:
    if not isinstance(values, list | tuple) or not all(type(n) is int for n in values):
        raise ValueError("integers are expected")
    return tuple(values)


def check_tensor_map(address: int, map: TensorMap) -> None:
    """Raise LightNetError for a map of a tensor at `address` that a driver refuses."""
    rank = len(map.dims)
    if map.dtype not in MAP_TYPES:
        raise _error(f"a tensor map of {map.dtype:.40}: there are those of {', '.join(MAP_TYPES)}")
    if not 0 <= address < 1 << 64 or address % MAP_PIECE:
        raise _error(f"a tensor map of a tensor at {address:#x}, which is no multiple of {MAP_PIECE}")
    if not (3 if map.im2col else 1) <= rank <= MOST_RANK:
        raise _error(f"a tensor map of {rank} dimensions")
    if any(not 1 <= n <= 1 << SIZE_BITS for n in map.dims):
        raise _error(f"a tensor map of the sizes {list(map.dims)}: each is 1 to 2^{SIZE_BITS}")
    for stride in map.strides[:-1]:
        if stride % MAP_PIECE or stride >= 1 << STRIDE_BITS:
            raise _error(
                f"a tensor map with a stride of {stride} bytes: a multiple of {MAP_PIECE} below 2^{STRIDE_BITS}"
            )
    if map.im2col:
        _check_windows(map, map.im2col)
        return
    if len(map.box) != rank or any(not 1 <= n <= MOST_BOX for n in map.box):
        raise _error(f"a tensor map with the box {list(map.box)}: expected {rank} extents of 1 to {MOST_BOX}")
    _check_row(map.box[-1] * MAP_TYPES[map.dtype])


def _check_windows(map: TensorMap, windows: Im2col) -> None:
    if len(map.dims) != 4:
        raise _error(f"windows of a tensor of {len(map.dims)} dimensions: expected 4, [N, H, W, C]")
    if map.box:
        raise _error("a tensor map has a box or windows, not both")
    if not 1 <= windows.pixels <= MOST_PIXELS or not 1 <= windows.channels <= MOST_BOX:
        raise _error(f"a tensor map of {windows.pixels} windows of {windows.channels} channels")
    least, most = CORNERS
    if any(not least <= at <= most for at in (*windows.lower, *windows.upper)):
        raise _error(f"windows from {list(windows.lower)} to {list(windows.upper)}: each is {least} to {most}")
    if any(n - 1 + last < first for n, first, last in zip(map.dims[1:3], windows.lower, windows.upper)):
        raise _error(f"windows from {list(windows.lower)} to {list(windows.upper)}: there is none in {list(map.dims)}")
    if any(not 1 <= n <= MOST_STRIDE for n in windows.strides):
        raise _error(f"windows with the strides {list(windows.strides)}: each is 1 to {MOST_STRIDE}")
    _check_row(windows.channels * MAP_TYPES[map.dtype])


def _check_row(nbytes: int) -> None:
    if nbytes % MAP_PIECE or nbytes > SWIZZLED_ROW:
        raise _error(
            f"a tensor map with rows of {nbytes} bytes: a multiple of {MAP_PIECE} up to {SWIZZLED_ROW}, which lie "
            "swizzled"
        )


def _error(message: str) -> LightNetError:
    return LightNetError(message, label="cuda.tensor-map")
