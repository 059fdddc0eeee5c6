"""Resampled tensors, for every graph front end: the sources of elements along an axis, and `ln` ops that take them.

A resize is separable: along each axis, out[o] = sum over t of weight[o, t] * in[index[o, t]]. The tables are made here
in float64, from the length of the axis and the way a format maps positions. Imports the graph builder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import Any

import numpy as np

from lightnet.frontends.composites import cut, number_of
from lightnet.frontends.graph import MAX_MADE, Graph, Value
from lightnet.runtime.dims import Dim, Size, Undecided, greatest, least

#: Ways to map an output position to an input coordinate.
COORDINATES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
               "tf_crop_and_resize", "tf_half_pixel_for_nn")  # fmt: skip
#: Ways to round a coordinate to an element: halves down, halves up, down, up.
ROUNDINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def coordinates(mode: str, size: int, length: int, scale: float, roi: Sequence[float] = (0.0, 1.0)) -> np.ndarray:
    """The input coordinate (element i is at i) of each of `length` outputs, for an axis of `size` elements that is
    scaled by `scale`; `roi` is what part of the axis ``tf_crop_and_resize`` takes. The maths are those of ONNX's
    Resize."""
    at = np.arange(length, dtype=np.float64)
    exact = scale * size  # the length before it was rounded
    if mode == "align_corners":
        return at * (size - 1) / (exact - 1) if exact != 1 else np.zeros(length)
    if mode == "asymmetric":
        return at / scale
    if mode == "tf_half_pixel_for_nn":
        return (at + 0.5) / scale
    if mode == "tf_crop_and_resize":
        low, high = roi
        if exact == 1:
            return np.full(length, 0.5 * (low + high) * (size - 1))
        return low * (size - 1) + at * (high - low) * (size - 1) / (exact - 1)
    if mode == "pytorch_half_pixel" and length <= 1:  # of which ONNX's reference evaluator makes -0.5, against its text
        return np.zeros(length)
    shift = size / 2 * (1 - length / exact) if mode == "half_pixel_symmetric" else 0.0
    return shift + (at + 0.5) / scale - 0.5


def nearest_elements(x: np.ndarray, size: int, rounding: str) -> np.ndarray:
    """The element nearest to each coordinate, int64."""
    return np.clip(ROUNDINGS[rounding](x), 0, max(size - 1, 0)).astype(np.int64)


def linear_kernel(x: np.ndarray) -> np.ndarray:
    """1 - abs(x), where that is positive."""
    return np.maximum(1 - np.abs(x), 0)


def cubic_kernel(x: np.ndarray, a: float) -> np.ndarray:
    """Keys, "Cubic convolution interpolation for digital image processing" (1981), equation 4, with a free `a`."""
    x = np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((x - 5) * x + 8) * a * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


def reach(scale: float, kind: str, antialias: bool) -> int:
    """The number of elements that a kernel reads on either side."""
    return ceil((1 if kind == "linear" else 2) / (min(scale, 1.0) if antialias else 1.0))


def taps(x: np.ndarray, size: int, scale: float, kind: str, *, antialias: bool = False, cubic_a: float = -0.75,
         exclude_outside: bool = False) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Indices (int32) and weights (float64), both [outputs, taps], of a ``linear`` or ``cubic`` interpolation at `x`.

    With `antialias`, the kernel of a shrunk axis is as much wider. An element outside counts as the one at the edge or,
    with `exclude_outside`, not at all.
    """
    squeeze = min(scale, 1.0) if antialias else 1.0
    far = reach(scale, kind, antialias)
    index = np.floor(x).astype(np.int64)[:, None] + np.arange(1 - far, far + 1)
    distance = (index - x[:, None]) * squeeze
    weight = linear_kernel(distance) if kind == "linear" else cubic_kernel(distance, cubic_a)
    if exclude_outside:
        weight = np.where((index >= 0) & (index < size), weight, 0.0)
    if antialias or exclude_outside:
        total = weight.sum(axis=1, keepdims=True)
        weight = weight / np.where(total == 0, 1.0, total)
    index, weight = _merged(np.clip(index, 0, max(size - 1, 0)).astype(np.int32), weight)
    # Of one element alone, equal shares give that element to the bit: rounded weights would part what is equal there.
    alone = (index == index[:, :1]).all(axis=1) & np.isclose(weight.sum(axis=1), 1)
    return index, np.where(alone[:, None], 1 / index.shape[1], weight)


def _merged(index: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Without taps that count nowhere."""
    used = (weight != 0).any(axis=0)
    return (index[:, used], weight[:, used]) if used.any() else (index[:, :1], weight[:, :1])


# -- as ops


def pick(g: Graph, x: Value, axis: int, index: np.ndarray) -> Value:
    """The elements `index` of one axis."""
    if len(index) == x.dims[axis] and np.array_equal(index, np.arange(len(index))):
        return x
    return g.op("take", x, g.constant(index, "i64"), axis=axis)


def nearest(g: Graph, x: Value, tables: Mapping[int, np.ndarray]) -> Value:
    """`x` with the elements that `tables` names along its axes, by axis; in one pass where these are what `ln.resize`
    takes."""
    dims = tuple(len(tables[k]) if k in tables else d for k, d in enumerate(x.dims))
    if dims != x.dims and all(np.array_equal(nearest_centres(len(t), x.dims[k]), t) for k, t in tables.items()):
        return g.op("resize", x, dims=dims, mode="TL_NEAREST")
    for axis, table in tables.items():
        x = pick(g, x, axis, table)
    return x


def nearest_centres(length: int, size: int) -> np.ndarray:
    """The elements that `ln.resize` takes, by its definition: round((d + 0.5) * size / length - 0.5), half away from
    zero, which is floor((2 * d + 1) * size / (2 * length)) once it is not negative."""
    return ((2 * np.arange(length) + 1) * size) // (2 * length)


def bounded_taps(
    g: Graph, at: np.ndarray, size: int, scale: float, kind: str, **options: Any
) -> tuple[np.ndarray, np.ndarray]:
    """`taps`, of tables that are small enough."""
    count = reach(scale, kind, options.get("antialias", False))
    g.bounded(len(at) * 2 * count if count < MAX_MADE else count, "a table of weights")
    return taps(at, size, scale, kind, **options)


def interpolate(g: Graph, x: Value, axis: int, index: np.ndarray, weight: np.ndarray) -> Value:
    """`summed` by known tables."""
    wide = "f64" if x.dtype.name == "f64" else "f32"
    return summed(g, x, axis, g.constant(index, "i32"), g.constant(weight, wide))


def summed(g: Graph, x: Value, axis: int, index: Value, weight: Value) -> Value:
    """out[o] = sum over t of weight[o, t] * x[index[o, t]] along one axis; integers are computed in f32 and
    truncated."""
    if not x.dtype.is_float:
        return g.cast(summed(g, g.cast(x, "f32"), axis, index, weight), x.dtype)
    return g.op("interpolate", x, index, weight, axis=axis)


# -- where a call decides lengths: the same maths, as ops


def open_coordinates(g: Graph, mode: str, size: Size, length: Size, scale: float, taps: int) -> Value:
    """`coordinates` as a tensor [length, taps] of f64, of equal columns, so that all that is computed of them is one
    kernel; for an axis whose exact length is `length`, by `scale` or (0) what takes it there. Raises `Undecided` for
    what no model asks of axes that a call decides."""
    most = greatest(length)
    rows = g.table((most, taps), "f64", lambda: np.arange(most).repeat(taps))
    at = cut(g, rows, 0, 0, length)

    def number(size: Size) -> Value:
        return number_of(g, size, (), "f64")

    if mode == "align_corners":
        last = number(length - 1)
        if least(length) <= 1:
            last = g.op("maximum", last, g.scalar(1, "f64"))
        return g.op("div", g.op("mul", at, number(size - 1)), last)
    factor = g.scalar(scale, "f64") if scale else g.op("div", number(length), number(size))
    if mode == "asymmetric":
        return g.op("div", at, factor)
    if mode not in ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel"):
        raise Undecided(next(d for d in (length, size) if isinstance(d, Dim)))
    half = g.scalar(0.5, "f64")
    at = g.op("sub", g.op("div", g.op("add", at, half), factor), half)
    if mode == "pytorch_half_pixel" and least(length) <= 1:  # 0 for one element
        at = g.op("mul", at, g.op("minimum", number(length - 1), g.scalar(1, "f64")))
    return at


def open_nearest(g: Graph, at: Value, size: Size, rounding: str) -> Value:
    """`nearest_elements` of coordinates that are computed in the call, as a table [length, 1] of i32."""
    half = g.scalar(0.5, "f64")
    moved = {"round_prefer_floor": ("sub", "ceil"), "round_prefer_ceil": ("add", "floor")}.get(rounding)
    found = g.op(rounding, at) if moved is None else g.op(moved[1], g.op(moved[0], at, half))
    return g.cast(_inside(g, found, size), "i32")


def picked(g: Graph, x: Value, axis: int, index: Value) -> Value:
    """The elements of one axis that a table [length, 1] names: of floats as sums of one, for which maps stay in
    blocks."""
    if not x.dtype.is_float:
        return g.op("take", x, g.reshape(index, index.dims[:1]), axis=axis)
    ones = number_of(g, 1, index.dims, "f64" if x.dtype.name == "f64" else "f32")
    return summed(g, x, axis, index, ones)


def open_taps(g: Graph, at: Value, size: Size, dtype: str) -> tuple[Value, Value]:
    """`taps` of a linear interpolation at coordinates in two columns, the weights in `dtype`."""
    at = _inside(g, at, size)
    index = g.op("add", g.op("floor", at), g.constant([[0.0, 1.0]]))  # the op clamps one behind the last, of weight 0
    weight = g.op("sub", g.scalar(1, "f64"), g.op("abs", g.op("sub", at, index)))
    return g.cast(index, "i32"), g.cast(weight, dtype)


def _inside(g: Graph, at: Value, size: Size) -> Value:
    """Coordinates, those outside at the first or last element."""
    return g.op("maximum", g.op("minimum", at, number_of(g, size - 1, (), "f64")), g.scalar(0, "f64"))
