"""Arithmetic of sliding windows, shared by convolutions and pools: output sizes and automatic padding.

`padding` is [top, left, bottom, right] throughout.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lightnet.ir.constants import Env
from lightnet.ir.op import ConstraintError, LnOp
from lightnet.ir.types import TensorSpec

AUTOPAD = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")


def output_dim(size: int, kernel: int, stride: int, padding: int, dilation: int = 1) -> int:
    """Positions of a window: floor((i + p - ((k-1)*d + 1)) / s) + 1, where p is the padding of both sides."""
    return (size + padding - ((kernel - 1) * dilation + 1)) // stride + 1


def ceil_output_dim(size: int, kernel: int, stride: int, before: int, behind: int, dilation: int = 1) -> int:
    """As `output_dim`, rounded up: a last window may reach past the end, but begins inside or in front (ONNX's
    ceil_mode)."""
    extent = (kernel - 1) * dilation + 1
    count = -(-(size + before + behind - extent) // stride) + 1
    return count - 1 if (count - 1) * stride >= size + before else count


def result_of(cls: type[LnOp], src: TensorSpec, dims: Sequence[int], *, reads: bool = False) -> TensorSpec:
    """The result [N, C, *S] of an op with windows over `src`, which may be empty: where there are no pixels, or where
    the window is larger than what it is over by just so much that no position is left. Raises `ConstraintError` where
    it is larger still, or (`reads`) where there is a position and no pixel: a sum over padding is 0, but no pool has a
    value."""
    if min(dims[2:]) < 0 or (reads and 0 in src.dims[2:] and 0 not in dims):
        text = f"the window should have a position in {src}, but the result would have the dims {list(dims)}"
        raise ConstraintError(f"{cls.optype}: {text}", label=f"{cls.optype}.window")
    return cls.schema.results[0].spec(Env({}, {}), src, tuple(dims))


def _split(total: int, upper: bool) -> tuple[int, int]:
    small = total // 2 if total >= 0 else -(-total // 2)  # upstream halves toward zero
    return (small, total - small) if upper else (total - small, small)


def _by_axis(pairs: Sequence[tuple[int, int]]) -> tuple[int, int, int, int]:
    (top, bottom), (left, right) = pairs
    return top, left, bottom, right


def effective_padding(p: Any, hw: Sequence[int], dilation: Sequence[int]) -> tuple[int, int, int, int]:
    """The padding that `autopad` decides for a window over `hw` = (H, W).

    SAME_*: the result has ceil(i / s) positions; SAME_UPPER puts the odd element at the end, SAME_LOWER in front. The
    total may be negative (a stride larger than the window), which crops.
    """
    if p.autopad == "NOTSET":
        return p.padding
    if p.autopad == "VALID":
        return (0, 0, 0, 0)
    pairs = []
    for i in (0, 1):
        out = -(-hw[i] // p.stride[i])
        total = (out - 1) * p.stride[i] + (p.size[i] - 1) * dilation[i] + 1 - hw[i]
        pairs.append(_split(total, p.autopad == "SAME_UPPER"))
    return _by_axis(pairs)


def transposed_padding(p: Any, hw: Sequence[int]) -> tuple[int, int, int, int]:
    """The padding of a transposed convolution: what is cut off to reach `output_dims` when `autopad` is SAME_*."""
    if p.autopad == "NOTSET":
        return p.padding
    if p.autopad == "VALID":
        return (0, 0, 0, 0)
    pairs = []
    for i in (0, 1):
        full = p.stride[i] * (hw[i] - 1) + p.output_padding[i] + (p.size[i] - 1) * p.dilation[i] + 1
        pairs.append(_split(full - p.output_dims[2 + i], p.autopad == "SAME_UPPER"))
    return _by_axis(pairs)


def pad_hw(x: np.ndarray, pad: Sequence[int], value: float = 0.0) -> np.ndarray:
    """Pad (or, where negative, crop) the last two axes of an [N, C, H, W] array."""
    top, left, bottom, right = pad
    x = x[:, :, max(0, -top) : x.shape[2] - max(0, -bottom), max(0, -left) : x.shape[3] - max(0, -right)]
    widths = ((0, 0), (0, 0), (max(0, top), max(0, bottom)), (max(0, left), max(0, right)))
    return np.pad(x, widths, constant_values=value)
