"""Sliding windows, shared by convolutions and pools: output sizes, automatic padding, and what they are in NumPy.

`padding` is [top, left, bottom, right] throughout.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from lightnet.dialects.ln.numeric import widened
from lightnet.ir.constants import Env
from lightnet.ir.op import ConstraintError, LnOp
from lightnet.ir.types import TensorSpec
from lightnet.runtime.dims import Dim, Undecided, greatest, least

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


def window_result(cls: type[LnOp], src: TensorSpec, channels: int, size: Sequence[int], stride: Sequence[int],
                  padding: Sequence[int], dilation: Sequence[int], **options: Any) -> TensorSpec:  # fmt: skip
    """`result_of` an op whose windows of `size` lie so along each axis; `padding` is [begins then ends]."""
    axes = len(stride)
    pads = (padding[k] + padding[axes + k] for k in range(axes))
    return result_of(cls, src, (src.dims[0], channels, *map(output_dim, src.dims[2:], size, stride, pads, dilation)),
                     **options)  # fmt: skip


def transposed_result(
    cls: type[LnOp], src: TensorSpec, weight: TensorSpec, p: Any, padding: Sequence[int]
) -> TensorSpec:
    """`result_of` a transposed convolution with the parameters `p`."""
    axes = len(p.stride)
    out = (
        p.stride[k] * (src.dims[2 + k] - 1) + p.output_padding[k] + (weight.dims[2 + k] - 1) * p.dilation[k] + 1
        - padding[k] - padding[axes + k]
        for k in range(axes)
    )  # fmt: skip
    return result_of(cls, src, (src.dims[0], weight.dims[1] * p.group, *out))


def result_of(cls: type[LnOp], src: TensorSpec, dims: Sequence[int], *, reads: bool = False) -> TensorSpec:
    """The result [N, C, *S] of an op with windows over `src`, which may be empty: where there are no pixels, or where
    the window is larger than what it is over by just so much that no position is left. Raises `ConstraintError` where
    it is larger still, or (`reads`) where there is a position and no pixel: a sum over padding is 0, but no pool has a
    value."""
    negative = next((d for d in dims[2:] if least(d) < 0), None)
    if negative is not None or (reads and 0 in src.dims[2:] and 0 not in dims):
        text = f"the window should have a position in {src}, but the result would have the dims {list(dims)}"
        if isinstance(negative, Dim) and greatest(negative) >= 0:
            raise Undecided(negative, text)
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


# -- references ------------------------------------------------------------------------------------------------------


def window_slices(starts: Sequence[int], counts: Sequence[int], strides: Sequence[int]) -> Any:
    """Of pictures and channels all, and along each axis behind them so many elements from its start on, a stride
    apart."""
    inside = (slice(a, a + (n - 1) * s + 1, s) for a, n, s in zip(starts, counts, strides))
    return slice(None), slice(None), *inside


def windows_of(x: np.ndarray, size: Sequence[int], stride: Sequence[int], dilation: Sequence[int],
               out: Sequence[int]) -> np.ndarray:  # fmt: skip
    """All windows of [N, C, *S], padded already, at `out` positions: [taps, N, C, *out]."""
    starts = ([t * d for t, d in zip(tap, dilation)] for tap in product(*map(range, size)))
    return np.stack([x[window_slices(at, out, stride)] for at in starts])


def correlation(op: Any, x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """A convolution in NumPy, of [N, C, *S], padded already, with weights [O, C/group, *K] and a bias [O]."""
    n, o, *out = op.result_specs[0].dims
    groups, per_in, taps = op.group, weight.shape[1], list(product(*map(range, weight.shape[2:])))
    parts = widened(x).reshape(n, groups, per_in, *x.shape[2:])
    kernel = widened(weight).reshape(groups, o // groups, per_in, len(taps))
    total = np.zeros((n, groups, o // groups, *out), parts.dtype)
    for k, tap in enumerate(taps):
        at = window_slices([t * d for t, d in zip(tap, op.dilation)], out, op.stride)
        total += np.einsum("ngc...,goc->ngo...", parts[:, *at], kernel[..., k], optimize=True)
    return (total.reshape(n, o, *out) + widened(bias).reshape(-1, *(1,) * len(out))).astype(x.dtype)


def transposed_correlation(
    op: Any, src: np.ndarray, weight: np.ndarray, bias: np.ndarray, before: Sequence[int]
) -> np.ndarray:
    """A transposed convolution in NumPy, of [N, I, *S] with weights [I, O/group, *K] and a bias [O]: each element adds
    its weights, scaled, to a window of the whole result, of which what is in front of `before` is cut off (of which
    there is more, zeros, where that is negative)."""
    n, o, *out = op.result_specs[0].dims
    dims, lead = src.shape[2:], [max(0, -b) for b in before]
    whole = [
        e + max(b + k, (d - 1) * s + (w - 1) * l + 1)
        for e, b, k, d, s, w, l in zip(lead, before, out, dims, op.stride, weight.shape[2:], op.dilation)
    ]
    result, taps = np.zeros((n, o, *whole), widened(src).dtype), list(product(*map(range, weight.shape[2:])))
    per_in, per_out = src.shape[1] // op.group, weight.shape[1]
    for g in range(op.group if src.size else 0):
        x, kernel = (widened(a) for a in (src[:, g * per_in : (g + 1) * per_in], weight[g * per_in : (g + 1) * per_in]))
        kernel = kernel.reshape(per_in, per_out, len(taps))
        for k, tap in enumerate(taps):
            window = window_slices([e + t * d for e, t, d in zip(lead, tap, op.dilation)], dims, op.stride)
            made = result[:, g * per_out : (g + 1) * per_out]
            made[window] += np.einsum("nc...,co->no...", x, kernel[:, :, k], optimize=True)
    result = result[window_slices([e + b for e, b in zip(lead, before)], out, [1] * len(out))]
    return (result + widened(bias).reshape(-1, *(1,) * len(out))).astype(src.dtype)
