"""The memory that tensors take. Imports `ir` and the launch dialect."""

from __future__ import annotations

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute

from lightnet.dialects.launch import memref_bytes
from lightnet.ir.layout import byte_size


def nbytes(type: Attribute) -> int:
    """Bytes of a tensor or memref type; 0 of any other."""
    if isinstance(type, TensorType):
        try:
            return byte_size(type)
        except TypeError:
            return 0
    return memref_bytes(type)
