"""Arrays as they lie in memory by the layouts of their types. Imports `ir.layout`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from xdsl.ir import Attribute

from lightnet.ir.layout import layout_of
from lightnet.ir.types import spec_of


def fill_memory(type: Attribute, array: np.ndarray, memory: np.ndarray) -> Iterator[int]:
    """`to_memory`, with `memory`, in steps (`Layout.pack_parts`)."""
    layout = layout_of(type)
    yield from layout.pack_parts(array, memory.view(array.dtype).reshape(layout.physical_dims(array.shape)))


def to_memory(type: Attribute, array: np.ndarray, memory: np.ndarray | None = None) -> np.ndarray:
    """The bytes that a value of this type stands for in memory: a flat uint8 array; that of `memory`, zeros as yet, if
    it is given."""
    layout = layout_of(type)
    if memory is not None:
        layout.pack(array, memory.view(array.dtype).reshape(layout.physical_dims(array.shape)))
        return memory
    return np.ascontiguousarray(layout.pack(array)).reshape(-1).view(np.uint8)


def from_memory(type: Attribute, raw: np.ndarray) -> np.ndarray:
    """The value of this type in `raw`, a uint8 array of its `byte_size`: a view where the layout is plain."""
    layout, spec = layout_of(type), spec_of(type)
    if spec.dtype.kind == "bool":
        memory = raw != 0
    else:
        memory = raw.view(spec.dtype.np)
    return layout.unpack(memory.reshape(layout.physical_dims(spec.dims)), spec.dims)
