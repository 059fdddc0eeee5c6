"""Tensor maps as the interpreter has them: 128 bytes, like those of a device, but of a form of its own. What a driver
would refuse is refused.

Imports the standard library, `lightnet.diagnostics` and `lightnet.runtime.cuda.tensor_map`.
"""

from __future__ import annotations

import struct
import zlib

from lightnet.diagnostics import LightNetError
from lightnet.runtime.cuda.tensor_map import BYTES, MAP_TYPES, MOST_RANK, Im2col, TensorMap, check_tensor_map

#: The numbers of the types in an encoded map.
_DTYPES = tuple(MAP_TYPES)
_MAGIC = b"LNtmap1\0"
#: Magic, address, five sizes; rank, type, mode; five extents; pixels, channels; the corners and strides of windows; and
#: a sum of the bytes.
_FORM = struct.Struct("<8sQ5Q3Bx5H2H4h2H38xI")
assert _FORM.size == BYTES


def encode(address: int, map: TensorMap) -> bytes:
    """`map` of a tensor that begins at `address`, as 128 bytes. LightNetError for a map that a driver refuses."""
    check_tensor_map(address, map)
    dims, box = (tuple(sizes) + (0,) * (MOST_RANK - len(sizes)) for sizes in (map.dims, map.box))
    windows = map.im2col
    fields = (
        (windows.pixels, windows.channels, *windows.lower, *windows.upper, *windows.strides) if windows else (0,) * 8
    )
    mode = 1 if windows else 0
    raw = _FORM.pack(_MAGIC, address, *dims, len(map.dims), _DTYPES.index(map.dtype), mode, *box, *fields, 0)
    return raw[:-4] + struct.pack("<I", zlib.crc32(raw[:-4]))


def decode(raw: bytes) -> tuple[int, TensorMap]:
    """The address and the map of 128 bytes. LightNetError where `encode` did not make them."""
    if len(raw) != BYTES or raw[:8] != _MAGIC or struct.unpack("<I", raw[-4:])[0] != zlib.crc32(raw[:-4]):
        raise _error("these bytes are no tensor map")
    _, address, *fields = _FORM.unpack(raw)
    dims, (rank, dtype, mode), box = fields[:5], fields[5:8], fields[8:13]
    pixels, channels, y0, x0, y1, x1, sy, sx, _ = fields[13:]
    if rank > MOST_RANK or dtype >= len(_DTYPES) or mode > 1:
        raise _error("these bytes are no tensor map")
    windows = Im2col(pixels, channels, (y0, x0), (y1, x1), (sy, sx)) if mode else None
    map = TensorMap(_DTYPES[dtype], tuple(dims[:rank]), () if mode else tuple(box[:rank]), windows)
    check_tensor_map(address, map)
    return address, map


def _error(message: str) -> LightNetError:
    return LightNetError(message, label="cuda.tensor-map")
