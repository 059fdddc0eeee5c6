"""Resampled tensors: tables (`sampling_tables.py`) as `ln` ops, for every graph front end. Imports the graph
builder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lightnet.frontends import sampling_tables
from lightnet.frontends.graph import MAX_MADE, Graph, Value


def pick(g: Graph, x: Value, axis: int, index: np.ndarray) -> Value:
    """The elements `index` of one axis."""
    if len(index) == x.dims[axis] and np.array_equal(index, np.arange(len(index))):
        return x
    return g.op("take", x, g.constant(index, "i64"), axis=axis)


def nearest(g: Graph, x: Value, tables: Mapping[int, np.ndarray]) -> Value:
    """`x` with the elements that `tables` names along its axes, by axis; in one pass where these are what `ln.resize`
    takes."""
    dims = tuple(len(tables[k]) if k in tables else d for k, d in enumerate(x.dims))
    if dims != x.dims and all(np.array_equal(_centres(len(t), x.dims[k]), t) for k, t in tables.items()):
        return g.op("resize", x, dims=dims, mode="TL_NEAREST")
    for axis, table in tables.items():
        x = pick(g, x, axis, table)
    return x


def _centres(length: int, size: int) -> np.ndarray:
    """The elements that `ln.resize` takes, by its definition."""
    return ((2 * np.arange(length) + 1) * size) // (2 * length)


def bounded_taps(
    g: Graph, at: np.ndarray, size: int, scale: float, kind: str, **options: Any
) -> tuple[np.ndarray, np.ndarray]:
    """`sampling_tables.taps`, of tables that are small enough."""
    count = sampling_tables.reach(scale, kind, options.get("antialias", False))
    g.bounded(len(at) * 2 * count if count < MAX_MADE else count, "a table of weights")
    return sampling_tables.taps(at, size, scale, kind, **options)


def interpolate(g: Graph, x: Value, axis: int, index: np.ndarray, weight: np.ndarray) -> Value:
    """out[o] = sum over t of weight[o, t] * x[index[o, t]] along one axis; integers are computed in f32 and
    truncated."""
    if not x.dtype.is_float:
        return g.cast(interpolate(g, g.cast(x, "f32"), axis, index, weight), x.dtype)
    wide = "f64" if x.dtype.name == "f64" else "f32"
    return g.op("interpolate", x, g.constant(index, "i32"), g.constant(weight, wide), axis=axis)
