"""Tensor maps as NVIDIA's driver encodes them. Imports the standard library.

The driver counts dimensions from the innermost one, strides in bytes, without that of the innermost one, which is an
element.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_int, c_ubyte, c_uint, c_uint64
from typing import Any

from lightnet.diagnostics import LightNetError
from lightnet.runtime.cuda import api
from lightnet.runtime.cuda.api import CudaError
from lightnet.runtime.cuda.context import DeviceContext
from lightnet.runtime.cuda.tensor_map import BYTES, MAP_ALIGNMENT, TensorMap

#: Rows as they are in the tensor, swizzled in shared memory; zeros outside of it; what L2 fetches is as long as a row.
_HOW = (api.MAP_INTERLEAVE_NONE, api.MAP_SWIZZLE_128B, api.MAP_PROMOTION_128B, api.MAP_FILL_ZERO)


def encoded(context: DeviceContext, address: int, map: TensorMap) -> bytes:
    """`map` of the tensor at an address, within `DeviceContext.current`. LightNetError for what the driver refuses (and
    for a driver that is too old)."""
    buffer = (c_ubyte * (BYTES + MAP_ALIGNMENT))()
    start = -ctypes.addressof(buffer) % MAP_ALIGNMENT
    name, *arguments = _arguments(map)
    dims, strides = _array(c_uint64, map.dims), _array(c_uint64, map.strides[:-1])
    target = ctypes.addressof(buffer) + start
    try:
        context(name, target, api.MAP_TYPES[map.dtype], len(map.dims), address, dims, strides, *arguments, *_HOW)
    except CudaError as error:
        if error.code in api.STICKY:
            raise
        raise LightNetError(f"the CUDA driver refuses a tensor map ({map}, at {address:#x}): {error.reason}") from None
    return bytes(buffer[start : start + BYTES])


def _arguments(map: TensorMap) -> tuple[Any, ...]:
    """The function that encodes a map, and what it takes of it behind the tensor."""
    if map.im2col is None:
        return "cuTensorMapEncodeTiled", _array(c_uint, map.box), _array(c_uint, [1] * len(map.dims))
    windows = map.im2col
    corners = [_array(c_int, corner) for corner in (windows.lower, windows.upper)]
    strides = _array(c_uint, (1, *windows.strides, 1))  # of [N, H, W, C]
    return "cuTensorMapEncodeIm2col", *corners, windows.channels, windows.pixels, strides


def _array(kind: Any, values: Sequence[int]) -> Any:
    """Values, outermost first, as the driver takes them."""
    return (kind * len(values))(*reversed(values))
