"""Scales and zero points from ranges, and ranges from values. Imports NumPy, options and histograms.

A number x is stored as q = clip(round(x / scale) + zero_point, q_min, q_max) and read as scale (q - zero_point), where
round is to the even neighbour (ONNX, QuantizeLinear and DequantizeLinear). Ranges hold 0, which then has a q of its
own: padding and what a ReLU cuts off are exact (Jacob et al., "Quantization and Training of Neural Networks for
Efficient Integer-Arithmetic-Only Inference", 2018, section 3).
"""

from __future__ import annotations

import numpy as np

from lightnet.dataclasses import dataclass
from lightnet_quantize.histograms import Histogram
from lightnet_quantize.options import QuantizeOptions

#: The least scale: a normal float32, so that no runtime that flushes subnormal numbers divides by 0.
LEAST_SCALE = float(np.finfo(np.float32).tiny)
#: Shares of a range that the search for the least square error tries: 2^(-k/16), 4 % apart.
SHRINKS = 2.0 ** (-np.arange(80) / 16)
#: Those tried for weights, whose largest value is rarely far from the others.
WEIGHT_SHRINKS = SHRINKS[:33]


@dataclass(frozen=True)
class IntegerType:
    """The integers that a tensor is stored in: a NumPy type, and those of its values that are used."""

    dtype: type[np.uint8] | type[np.int8]
    least: int
    most: int

    @property
    def middle(self) -> int:
        """The zero point of what is symmetric."""
        return (self.least + self.most + 1) // 2

    @property
    def reach(self) -> int:
        """The largest distance from the middle of what is symmetric, on both sides."""
        return self.most - self.middle


def activation_integers(options: QuantizeOptions) -> IntegerType:
    """The type of activations: all of 8 bits."""
    return IntegerType(np.uint8, 0, 255) if options.activation_type == "u8" else IntegerType(np.int8, -128, 127)


def weight_integers(options: QuantizeOptions) -> IntegerType:
    """The type of weights: 8 bits, or 7 with `reduce_range`. x86's `vpmaddubsw` adds two products in 16 bits with
    saturation, and 2 * 255 * 64 is less than 2^15."""
    most = 127 if options.reduce_range else 255
    return (
        IntegerType(np.uint8, 0, most)
        if options.weight_type == "u8"
        else IntegerType(np.int8, -(most + 1) // 2, most // 2)
    )


@dataclass(frozen=True)
class QuantParams:
    """Parameters of storing a tensor: `scale` (float32) and `zero_point` (of the integers' type), scalars or
    ``[channels]``, then along `axis`."""

    scale: np.ndarray
    zero_point: np.ndarray
    integers: IntegerType
    axis: int | None = None

    def quantized(self, values: np.ndarray) -> np.ndarray:
        """The integers that stand for `values`, as ONNX's QuantizeLinear gives them of float32, but with bounds of
        `integers`."""
        scale, zero = (self._along(a, values.ndim) for a in (self.scale, self.zero_point))
        found = np.rint(values.astype(np.float32) / scale).astype(np.float64) + zero
        return np.clip(found, self.integers.least, self.integers.most).astype(self.integers.dtype)

    def dequantized(self, integers: np.ndarray) -> np.ndarray:
        """The float32 values that integers stand for."""
        scale, zero = (self._along(a, integers.ndim) for a in (self.scale, self.zero_point))
        return (integers.astype(np.int32) - zero.astype(np.int32)).astype(np.float32) * scale

    def _along(self, array: np.ndarray, rank: int) -> np.ndarray:
        if self.axis is None or array.ndim == 0:
            return array
        return array.reshape([-1 if k == self.axis else 1 for k in range(rank)])


def params_of(
    low: np.ndarray, high: np.ndarray, integers: IntegerType, symmetric: bool, axis: int | None = None
) -> QuantParams:
    """The parameters for ranges (float64, scalars or ``[channels]``), which are made to hold 0. A range of 0 alone gets
    scale 1."""
    low, high = np.minimum(low, 0.0), np.maximum(high, 0.0)
    reach, whole = integers.reach, integers.most - integers.least
    wide = np.maximum(-low, high) / reach if symmetric else (high - low) / whole
    scale = np.where(wide > 0, np.maximum(wide, LEAST_SCALE), 1.0).astype(np.float32)
    if symmetric:
        zero = np.full(scale.shape, integers.middle)
    else:
        zero = np.clip(np.rint(integers.least - low / scale.astype(np.float64)), integers.least, integers.most)
    return QuantParams(scale, zero.astype(integers.dtype), integers, axis)


def square_error(values: np.ndarray, counts: np.ndarray, low: np.ndarray, high: np.ndarray, integers: IntegerType,
                 symmetric: bool) -> np.ndarray:  # fmt: skip
    """The sum of squared differences (float64 ``[candidates]``) that each of so many ranges makes of `values` (float64
    ``[n]``), of which there are `counts`."""
    params = params_of(low, high, integers, symmetric)
    scale, zero = params.scale.astype(np.float64)[:, None], params.zero_point.astype(np.float64)[:, None]
    stored = np.clip(np.rint(values / scale) + zero, integers.least, integers.most)
    return np.asarray((scale * (stored - zero) - values) ** 2 @ counts.astype(np.float64))


def least_error_range(
    values: np.ndarray, counts: np.ndarray, integers: IntegerType, symmetric: bool
) -> tuple[float, float]:
    """The range with the least `square_error`, among the extremes times `SHRINKS`: of what is symmetric one factor for
    both ends, else each end by itself, in turn until neither gets better.

    The square error as what to search a range by: Choukroun et al., "Low-bit Quantization of Neural Networks for
    Efficient Inference" (2019), section 3 (MMSE); the balance of rounding and clipping that it finds: Banner et al.,
    "Post training 4-bit quantization of convolutional networks for rapid-deployment" (2019), section 3.
    """
    low, high = min(float(values[0]), 0.0), max(float(values[-1]), 0.0)
    if symmetric:
        errors = square_error(values, counts, low * SHRINKS, high * SHRINKS, integers, True)
        factor = SHRINKS[int(np.argmin(errors))]
        return low * factor, high * factor
    ends, best = [low, high], np.inf
    while True:
        for side in (0, 1):
            tried = [np.full(SHRINKS.shape, end) for end in ends]
            tried[side] = (low, high)[side] * SHRINKS
            errors = square_error(values, counts, tried[0], tried[1], integers, False)
            ends[side] = float(tried[side][int(np.argmin(errors))])
        if not errors.min() < best:
            return ends[0], ends[1]
        best = float(errors.min())


def activation_params(histogram: Histogram, options: QuantizeOptions) -> QuantParams:
    """The parameters of a tensor whose values a histogram counts, by `options.method`:

    * minmax: the extremes.
    * percentile: `options.percentile` in percent of the values, as many left out on each side; of what is symmetric, so
      much of the magnitudes (Wu et al., "Integer Quantization for Deep Learning Inference: Principles and Empirical
      Evaluation", 2020, section 3.3).
    * mse: `least_error_range`.
    """
    integers, symmetric = activation_integers(options), options.symmetric_activations
    low, high = histogram.least, histogram.most
    if not histogram.total:
        low = high = 0.0
    elif options.method == "percentile" and symmetric:
        high = histogram.magnitude(options.percentile / 100)
        low = -high
    elif options.method == "percentile":
        low, high = histogram.central(options.percentile / 100)
    elif options.method == "mse":
        low, high = least_error_range(*histogram.points(), integers, symmetric)
    return params_of(np.array(low), np.array(high), integers, symmetric)


def weight_params(weights: np.ndarray, axis: int | None, options: QuantizeOptions) -> QuantParams:
    """The parameters of weights (float32), with a scale for each index of `axis`, or one for all where that is None:
    their extremes, or those times one of `WEIGHT_SHRINKS`, by the sum of square errors of a channel.

    A channel of zeros gets the least scale of the others: its bias is stored in steps of that.
    """
    integers, symmetric = weight_integers(options), options.symmetric_weights
    rows = (
        np.moveaxis(weights, axis, 0).reshape(weights.shape[axis], -1) if axis is not None else weights.reshape(1, -1)
    )
    rows = rows.astype(np.float64)
    low, high = (np.zeros(len(rows)),) * 2 if not rows.size else (rows.min(1), rows.max(1))
    if options.weight_method == "mse" and rows.size:
        ones = np.ones(rows.shape[1])
        factors = np.array([_best_factor(row, ones, integers, symmetric) for row in rows])
        low, high = low * factors, high * factors
    params = params_of(low, high, integers, symmetric, axis)
    scale, empty = params.scale, (low == 0) & (high == 0)
    if empty.any() and not empty.all():
        scale = np.where(empty, scale[~empty].min(), scale)
    zero = params.zero_point
    return QuantParams(scale, zero, integers, axis) if axis is not None else QuantParams(scale[0], zero[0], integers)


def _best_factor(row: np.ndarray, ones: np.ndarray, integers: IntegerType, symmetric: bool) -> float:
    errors = square_error(row, ones, row.min() * WEIGHT_SHRINKS, row.max() * WEIGHT_SHRINKS, integers, symmetric)
    return float(WEIGHT_SHRINKS[int(np.argmin(errors))])


def room_for_bias(weight: QuantParams, step: float, bias: np.ndarray | None) -> QuantParams:
    """The parameters of weights with scales that are as large as a bias (float32 ``[n]``) in steps of `step` (the
    activation's scale) times them needs to fit int32, and as keep that product a normal number.

    Groups of a transposed convolution share the scales of their channels, one group after the other.
    """
    channels = weight.scale.reshape(-1).astype(np.float64)
    least = np.full(channels.shape, LEAST_SCALE / step)
    if bias is not None:
        needed = np.abs(bias.astype(np.float64)).reshape(-1, channels.size).max(0, initial=0.0)
        least = np.maximum(least, needed / (step * (2**31 - 1)) * (1 + 2.0**-20))
    scale = np.maximum(channels, least).astype(np.float32).reshape(weight.scale.shape)
    return QuantParams(scale, weight.zero_point, weight.integers, weight.axis)


def quantized_bias(bias: np.ndarray, step: float, weight: QuantParams) -> tuple[np.ndarray, np.ndarray]:
    """A bias as int32 ``[n]`` of zero point 0, and its scale, `step` times the weights': how sums of products of the
    integers are scaled. The scale is a scalar or ``[n]``."""
    scale = np.float32(step) * weight.scale
    if scale.ndim:
        scale = np.tile(scale, bias.size // scale.size)
    limits = np.iinfo(np.int32)
    stored = np.clip(np.rint(bias.astype(np.float64) / scale.astype(np.float64)), limits.min, limits.max)
    return stored.astype(np.int32), scale
