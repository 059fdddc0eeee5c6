"""The tensor maps that a kernel takes, as data for the driver that encodes them. Imports the dialect and the runtime's
`cuda.tensor_map`."""

from __future__ import annotations

from typing import cast

from xdsl.dialects.builtin import MemRefType
from xdsl.dialects.func import FuncOp

from lightnet.dialects.cuda_hopper import tensor_map, tensor_maps
from lightnet.runtime.cuda.tensor_map import TensorMap


def maps_of(function: FuncOp) -> tuple[TensorMap | None, ...]:
    """The map that a kernel takes in the place of each argument, None of one that it takes as a pointer; nothing at all
    of a kernel without maps."""
    attributes = tensor_maps(function)
    if not attributes:
        return ()
    types = function.function_type.inputs.data
    return tuple(
        tensor_map(cast(MemRefType, t), attributes[i]) if i in attributes else None for i, t in enumerate(types)
    )
