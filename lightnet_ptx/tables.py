"""The description of an instruction that only computes: an exact opcode, a function of arrays, and types. Imports
NumPy.

A function takes the operands (arrays over threads, or scalars that all threads share) as NumPy arrays of their types,
and gives the result in its type. bf16 is read as uint16; packed types (f16x2) through `packed`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Array = Any

#: NumPy's type for what a PTX type reads. Untyped bits are unsigned.
DTYPES: dict[str, Any] = {
    **{f"{k}{bits}": np.dtype(f"{'i' if k == 's' else 'u'}{bits // 8}") for k in "bus" for bits in (8, 16, 32, 64)},
    **{f"f{bits}": np.dtype(f"f{bits // 8}") for bits in (16, 32, 64)},
    "bf16": np.dtype("u2"),
    "f16x2": np.dtype("u4"),
    "bf16x2": np.dtype("u4"),
    "tf32": np.dtype("u4"),
    "pred": np.dtype("?"),
}


class Row(NamedTuple):
    """An instruction without effects: `fn` of operands of the types `sources` gives a value of type `dest`."""

    fn: Callable[..., Array]
    dest: str
    sources: tuple[str, ...]


Table = dict[str, Row]


def packed(fn: Callable[..., Array], dtype: Any) -> Callable[..., Array]:
    """`fn` of 16-bit elements, applied to both halves of 32-bit operands."""

    def both(*operands: Array) -> Array:
        halves = [np.ascontiguousarray(np.atleast_1d(x)).view(dtype).reshape(-1, 2) for x in operands]
        result = np.ascontiguousarray(fn(*halves)).view(np.uint32).reshape(-1)
        return result if any(np.ndim(x) for x in operands) else result[0]

    return both


def join_halves(high: Array, low: Array) -> Array:
    """Two arrays of 16-bit elements as 32-bit words."""
    high, low = np.asarray(high).view(np.uint16), np.asarray(low).view(np.uint16)
    return (high.astype(np.uint32) << np.uint32(16)) | low.astype(np.uint32)
