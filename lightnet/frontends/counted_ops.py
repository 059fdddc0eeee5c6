"""Ops on counted tensors that are no definition in index notation, or whose definition names a length: sorts, scans,
scatters, means, regions.

And those that decide a size: `nonzero`, `unique`, `suppressed`. Imports the counted values.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from lightnet.frontends.counted import (
    Counted,
    before_count,
    counted,
    counted_rule,
    decided,
    derived,
    dim_number,
    filled_behind,
    fitted,
    size_of_value,
    width,
)
from lightnet.frontends.graph import Graph, Value
from lightnet.frontends.sizes import UndecidedSize, is_counted
from lightnet.runtime.dims import Size, dim_min


def _refuse(optype: str, *operands: Value) -> UndecidedSize:
    sizes = list(dict.fromkeys(d for x in operands for d in x.dims if is_counted(d)))
    return UndecidedSize(
        *sizes,
        message=f"data-dependent shape: {optype} takes no dim that the data decides here "
        f"({', '.join(map(str, sizes))})",
    )


@counted_rule("topk")
def topk(g: Graph, optype: str, operands: list[Value], params: dict[str, Any]) -> tuple[Value, Value]:
    """Of what counts."""
    (x,), axis, k = operands, params["axis"], params["k"]
    n = x.dims[axis]
    most = min(width(k), width(n))
    params = {**params, "k": most}
    found = g.plain("topk_of", x, dim_number(g, n), **params) if is_counted(n) else g.plain("topk", x, **params)
    dims = [(k if is_counted(k) else most) if j == axis else d for j, d in enumerate(x.dims)]
    return tuple(counted(g, r, dims) for r in found)  # type: ignore[return-value]


@counted_rule("cumsum", "cumprod")
def scan(g: Graph, optype: str, operands: list[Value], params: dict[str, Any]) -> Value:
    (x,) = operands
    if params.get("reverse") and is_counted(x.dims[params["axis"]]):
        x = filled_behind(g, x, int(optype == "cumprod"))
    return counted(g, g.plain(optype, x, **params), x.dims)


@counted_rule("reduce_mean")
def mean(g: Graph, optype: str, operands: list[Value], params: dict[str, Any]) -> Value:
    (x,), axes = operands, params["axes"]
    count: Size = prod(x.dims[k] for k in axes)
    if not is_counted(count):
        return derived(g, optype, operands, params)
    wide = g.cast(x, "f32") if x.dtype.is_short else x
    total = g.op("reduce_sum", wide, axes=axes)
    return g.cast(g.op("div", total, g.cast(dim_number(g, count), wide.dtype)), x.dtype)


@counted_rule("scatter_elements")
def scatter_elements(g: Graph, optype: str, operands: list[Value], params: dict[str, Any]) -> Value:
    """Scatter elements. What is behind the count is written to an element more along the axis, which is cut off."""
    x, index, updates = operands
    axis, dims = params["axis"], x.dims
    if index.dims != updates.dims or any(
        is_counted(n) and n != m for k, (n, m) in enumerate(zip(index.dims, dims)) if k != axis
    ):
        raise _refuse(optype, *operands)
    from lightnet.frontends.counted_moves import from_front

    index = g.cast(from_front(g, index, [dims[axis]]), "i64")
    last = x.spec.dims[axis]
    flags = before_count(g, index.dims)
    if flags is None:
        return counted(g, g.plain(optype, x, index, updates, **params), dims)
    index = _absolute(g, index, last)
    place = g.plain("where", flags, index, g.scalar(last, "i64"))
    found = g.plain(optype, fitted(g, x, axis, last + 1), place, updates, **params)
    return counted(g, fitted(g, found, axis, last), dims)


@counted_rule("scatter_nd")
def scatter_nd(g: Graph, optype: str, operands: list[Value], params: dict[str, Any]) -> Value:
    """As `scatter_elements`, over the axes that the index names as one."""
    x, index, updates = operands
    depth, dims, lens = index.spec.dims[-1], x.dims, x.spec.dims
    if updates.dims != (*index.dims[:-1], *dims[depth:]) or is_counted(index.dims[-1]):
        raise _refuse(optype, *operands)
    from lightnet.frontends.counted_moves import from_front

    index = g.cast(from_front(g, index, dims[:depth], along=True), "i64")
    flags = before_count(g, index.dims[:-1])
    if flags is None or not depth:
        return counted(g, g.plain(optype, x, index, updates, **params), dims)
    rows, strides = prod(lens[:depth]), [prod(lens[k + 1 : depth]) for k in range(depth)]
    index = _absolute(g, index, np.asarray(lens[:depth]))
    place = g.plain(
        "reduce_sum", g.plain("mul", index, g.constant(np.asarray(strides, np.int64))), axes=(index.ndim - 1,)
    )
    flags = g.plain("reshape", flags, dims=(*flags.spec.dims, 1))
    place = g.plain("where", flags, place, g.scalar(rows, "i64"))
    flat = fitted(g, g.plain("reshape", x, dims=(rows, *lens[depth:])), 0, rows + 1)
    found = fitted(g, g.plain(optype, flat, place, updates, **params), 0, rows)
    return counted(g, g.plain("reshape", found, dims=lens), dims)


def _absolute(g: Graph, index: Value, n: Any) -> Value:
    """Indices from the front; those below 0 count from the end of an axis of length `n`."""
    length = g.constant(np.asarray(n, np.int64))
    return g.plain("where", g.plain("less", index, g.scalar(0, "i64")), g.plain("add", index, length), index)


@counted_rule("roi_align", "roi_pool")
def regions(g: Graph, optype: str, operands: list[Value], params: dict[str, Any]) -> Value:
    """Each region is its own."""
    x, rois, batch = operands
    if isinstance(x, Counted) or rois.dims[0] != batch.dims[0]:
        raise _refuse(optype, *operands)
    flags = before_count(g, batch.dims)
    if flags is not None:  # a region of no picture takes no time
        batch = g.plain("where", flags, batch, g.scalar(-1, "i64"))
    found = g.plain(optype, x, rois, batch, **params)
    return counted(g, found, (rois.dims[0], *found.spec.dims[1:]))


# -- what decides ----------------------------------------------------------------------------------------------------


def nonzero(g: Graph, x: Value) -> Value:
    """The places where `x` is not zero: [rank, N], in row-major order. Equal questions have one answer."""
    if isinstance(x, Counted):
        x = filled_behind(g, x, 0)
    x = Value(x.spec, ssa=g.ssa(x), inputs=x.inputs)

    def make() -> Value:
        indices, count = g.plain("nonzero", x)
        return counted(g, indices, (x.ndim, size_of_value(g, "number of elements that are not zero", x.len, count)))

    return decided(g, ("nonzero", x.ssa), make)


def unique(g: Graph, rows: Value, is_sorted: bool) -> tuple[Value, Value, Value]:
    """Of the rows of a matrix [N, W]: the first row of each kind, which kind each row is, and how many of each there
    are."""
    n = rows.dims[0]
    first, inverse, repeats, count = g.plain("unique", rows, dim_number(g, n), sorted=is_sorted)
    kinds = size_of_value(g, "number of different elements", width(n), count)
    return counted(g, first, (kinds,)), counted(g, inverse, (n,)), counted(g, repeats, (kinds,))


def suppressed(
    g: Graph, boxes: Value, scores: Value, most: Value, overlap: Value, least: Value | None, centred: bool
) -> Value:
    """ONNX's NonMaxSuppression: [N, 3] of (batch, class, box)."""
    n = boxes.dims[1]
    if n != scores.dims[2] or any(is_counted(d) for d in (boxes.dims[0], boxes.dims[2], *scores.dims[:2])):
        raise _refuse("non_max_suppression", boxes, scores)
    batches, classes, count = scores.spec.dims
    limit: Size = count  # of what a call gives, all boxes are the bound
    if most.is_known:
        limit = int(most.known.reshape(()))
    elif (sizes := getattr(most, "numbers", None)) is not None:
        limit = sizes.reshape(-1)[0]
    capacity = max(0, min(width(limit) if is_counted(limit) else limit, count))
    g.bounded(3 * batches * classes * capacity, "the boxes that may stay")
    threshold = g.scalar(0, "f32") if least is None else least
    indices, found = g.plain(
        "non_max_suppression", boxes, scores, g.reshape(most, ()), g.reshape(overlap, ()), g.reshape(threshold, ()),
        dim_number(g, n), capacity=capacity, filtered=least is not None, centred=centred,
    )  # fmt: skip
    rows = indices.spec.dims[0]
    if not rows:
        return indices
    kept: Any = size_of_value(g, "number of boxes that stay", rows, found)
    return counted(g, indices, (dim_min(kept, rows), 3))
