"""Fourier transforms and mel filters of ONNX. Imports the table of handlers and the composites.

A discrete Fourier transform is a product with a constant matrix, which is made here in float64; a long one is two
smaller ones. (The windows - Hann, Hamming, Blackman - are imported through their function bodies.)
"""

from __future__ import annotations

from math import isqrt, prod

import numpy as np

from lightnet.frontends.composites import computed_in, cut, strided
from lightnet.frontends.graph import Graph, Value
from lightnet.frontends.onnx.node import Node, onnx_op
from lightnet.frontends.onnx.ops.indexing import take

#: Elements of the largest table: it is a weight of the network. One serves 4096 real samples, or 2048 complex ones.
MAX_TABLE = 1 << 24
#: Samples in the frames of a signal, which may overlap.
MAX_FRAMES = 1 << 24


@onnx_op("DFT")
def dft(n: Node, x: Value, length: Value | None = None, axis: Value | None = None) -> Value:
    """The discrete Fourier transform of a signal [..., 1] (real) or [..., 2] (complex) along an axis."""
    if n.opset < 20:
        along = n.int("axis", 1)
    else:
        along = -2 if axis is None else _number(n, axis, "the axis of DFT")
    along = n.axis(along, x.ndim)
    if x.ndim < 2 or x.dims[-1] not in (1, 2) or along == x.ndim - 1:
        n.fail(
            f"a signal is [..., 1] or [..., 2], transformed along another axis than the last: {x.spec}, axis {along}"
        )
    inverse, onesided = bool(n.int("inverse", 0)), bool(n.int("onesided", 0))
    if onesided and x.dims[-1] != (2 if inverse else 1):
        n.fail(f"with onesided, its input should be {'complex' if inverse else 'real'}, but is {x.spec}")
    if length is not None:
        size = _number(n, length, "the length of DFT")
    else:
        size = 2 * (x.dims[along] - 1) if inverse and onesided else x.dims[along]
    return _transform(n, x, along, size, inverse, onesided)


@onnx_op("STFT")
def stft(n: Node, x: Value, step: Value, window: Value | None = None, length: Value | None = None) -> Value:
    """The transforms of frames of a signal [batch, samples, 1 or 2]: [batch, frames, bins, 2]. PyTorch's older exporter
    leaves out the last axis of a real one."""
    if x.ndim == 2:
        x = n.g.reshape(x, (*x.dims, 1))
    if x.ndim != 3 or x.dims[2] not in (1, 2) or (window is not None and window.ndim != 1):
        n.fail(f"its signal should be [batch, samples, 1 or 2] and its window a vector, but the signal is {x.spec}")
    onesided = bool(n.int("onesided", 1))
    if onesided and x.dims[2] == 2:
        n.fail("with onesided (which is the default), its signal should be real")
    hop = _number(n, step, "the step of STFT")
    if length is not None:
        size = _number(n, length, "the frame length of STFT")
    else:
        size = x.dims[1] if window is None else window.len
    if hop < 1 or not 1 <= size <= x.dims[1] or (window is not None and window.len != size):
        n.fail(f"frames of {size} samples every {hop} do not fit its signal {x.spec}"
               + ("" if window is None else f" and window {window.spec}"))  # fmt: skip
    count = (x.dims[1] - size) // hop + 1
    if count * size > MAX_FRAMES or x.dims[1] >= 1 << 31:
        n.unsupported(f"{count} frames of {size} samples: more than {MAX_FRAMES} samples in all")
    places = n.g.table((count, size), "i32", lambda: hop * np.arange(count)[:, None] + np.arange(size))
    frames = take(n.g, computed_in(n.g, x), places, 1)
    if window is not None:
        frames = n.g.op("mul", frames, n.g.reshape(n.g.cast(window, frames.dtype), (size, 1)))
    return n.g.cast(_transform(n, frames, 2, size, False, onesided), x.dtype)


@onnx_op("MelWeightMatrix")
def mel_weight_matrix(n: Node, bands: Value, length: Value, rate: Value, lower: Value, upper: Value) -> Value:
    """Triangles of height 1, [length / 2 + 1, bands], at equal distances on the mel scale, 2595 log10(1 + f / 700).

    As in ONNX's reference, their corners are rounded down to bins, and the range is divided in `bands` + 2 parts.
    """
    count, size, samples = (_number(n, v, "the size of MelWeightMatrix") for v in (bands, length, rate))
    ends = [float(n.need(v, "the range of MelWeightMatrix").reshape(-1)[0]) for v in (lower, upper)]
    bins = size // 2 + 1
    if count < 1 or size < 1 or samples < 1 or not 0 <= ends[0] <= ends[1] < np.inf or bins * count > MAX_TABLE >> 2:
        n.fail(f"{count} bands of {bins} bins, between {ends[0]} and {ends[1]} of {samples} Hz, are not possible")
    low, high = (2595 * np.log1p(f / 700) / np.log(10) for f in ends)
    mels = low + np.arange(count + 2) * (high - low) / (count + 2)
    corners = np.floor((size + 1) * 700 * np.expm1(mels / 2595 * np.log(10)) / samples)
    if corners[-1] > bins:
        n.fail(f"the upper edge {ends[1]} Hz is beyond half of the sample rate {samples} Hz")
    left, centre, right = corners[:-2], corners[1:-1], corners[2:]
    at = np.arange(bins)[:, None]
    rising = np.where(centre > left, (at - left) / np.maximum(centre - left, 1), 1.0)
    falling = (right - at) / np.maximum(right - centre, 1)
    table = np.where((at >= left) & (at <= centre), rising, np.where((at > centre) & (at < right), falling, 0.0))
    return n.g.cast(n.g.constant(table, "f64"), n.element_type("output_datatype") or "f32")


def _number(n: Node, value: Value, what: str) -> int:
    numbers = n.need_ints(value, what)
    if len(numbers) != 1:
        n.fail(f"{what} should be one integer, but is {value.spec}")
    return numbers[0]


def _transform(n: Node, x: Value, axis: int, size: int, inverse: bool, onesided: bool) -> Value:
    """The transform of `size` samples: a shorter signal is padded with zeros, of a longer one the rest is ignored."""
    g, real = n.g, inverse and onesided
    bins = size // 2 + 1
    if not 1 <= size <= MAX_TABLE:
        n.fail(f"a transform of {size} samples is not possible: there are 1 to {MAX_TABLE}")
    signal = computed_in(g, cut(g, x, axis, 0, min(x.dims[axis], bins if real else size)))
    order = (*(k for k in range(x.ndim - 1) if k != axis), axis, x.ndim - 1)
    moved = g.transpose(signal, order)
    rest = moved.dims[:-2]
    rows = g.reshape(moved, (prod(rest), *moved.dims[-2:]))
    wide, parts = (size, 1) if real else (bins if onesided else size, 2)
    if prod(rows.dims[1:]) * wide * parts <= MAX_TABLE:
        count, channels = rows.dims[1:]
        table = _real_inverse(size, count) if real else _table(size, count, wide, inverse)[:, :channels]
        result = _product(g, rows, table)
    elif real:
        n.unsupported(f"a transform to {size} real samples, whose matrix has more than {MAX_TABLE} elements")
    else:
        result = cut(g, _factored(n, rows, size, inverse), 1, 0, wide)
    result = g.reshape(result, (*rest, wide, parts))
    return g.cast(g.transpose(result, [order.index(k) for k in range(x.ndim)]), x.dtype)


def _product(g: Graph, x: Value, table: np.ndarray) -> Value:
    """[..., count, channels] by [count, channels, wide, parts]: [..., wide, parts]."""
    before, (count, channels, wide, parts) = x.dims[:-2], table.shape
    rows = g.reshape(x, (prod(before), count * channels))
    result = g.op("matmul", rows, g.constant(table.reshape(count * channels, wide * parts), x.dtype))
    return g.reshape(result, (*before, wide, parts))


def _factored(n: Node, x: Value, size: int, inverse: bool) -> Value:
    """The complex transform of [rows, at most `size`, 1 or 2], by the step of Cooley and Tukey (1965).

    With size = p q, j = q j1 + j2, k = k1 + p k2 and w(t) = exp(-2 pi i t), the factor w(j k / size) of element j in
    bin k is w(j1 k1 / p) w(j2 k1 / size) w(j2 k2 / q).
    """
    g, (rows, count, channels) = n.g, x.dims
    p = next(d for d in range(isqrt(size), 0, -1) if size % d == 0)
    q = size // p
    if p == 1 or 4 * q * q > MAX_TABLE:
        n.unsupported(f"a transform of {size} samples, which has no two factors below {isqrt(MAX_TABLE) // 2}")
    if count < size:
        x = g.op("pad", x, before=(0, 0, 0), after=(0, size - count, 0))
    x = g.transpose(g.reshape(x, (rows, p, q, channels)), (0, 2, 1, 3))
    x = _product(g, x, _table(p, p, p, inverse)[:, :channels])
    angles = _angles(size, q, p) * (1 if inverse else -1)
    cos, sin = np.cos(angles), np.sin(angles)
    swapped = strided(g, x, (0, 0, 0, 1), (1, 1, 1, -1), x.dims)
    x = g.op("add", g.op("mul", x, g.constant(np.stack([cos, cos], -1), x.dtype)),
             g.op("mul", swapped, g.constant(np.stack([-sin, sin], -1), x.dtype)))  # fmt: skip
    x = _product(g, g.transpose(x, (0, 2, 1, 3)), _table(q, q, q, inverse))
    return g.reshape(g.transpose(x, (0, 2, 1, 3)), (rows, size, 2))


def _angles(size: int, count: int, wide: int) -> np.ndarray:
    """2 pi j k / size for j < count, k < wide, reduced to less than one turn before anything is rounded."""
    return 2 * np.pi / size * (np.arange(count, dtype=np.int64)[:, None] * np.arange(wide, dtype=np.int64) % size)


def _table(size: int, count: int, wide: int, inverse: bool) -> np.ndarray:
    """[count, 2, wide, 2]: bin k of x is the sum over j of x[j] exp(-2 pi i j k / size); for the inverse the sign is +,
    and the sum is divided by size."""
    angles = _angles(size, count, wide) * (1 if inverse else -1)
    cos, sin = np.cos(angles), np.sin(angles)
    table = np.stack([np.stack([cos, sin], -1), np.stack([-sin, cos], -1)], 1)
    return table / size if inverse else table


def _real_inverse(size: int, count: int) -> np.ndarray:
    """[count, 2, size, 1]: of a real signal half of the bins are given, and the others are their conjugates.

    Bin 0 has no such partner, nor the middle one of an even size."""
    angles = _angles(size, count, size)
    bins = np.arange(count)
    weight = np.where((bins == 0) | (2 * bins == size), 1, 2)[:, None] / size
    return np.stack([weight * np.cos(angles), -weight * np.sin(angles)], 1)[..., None]
