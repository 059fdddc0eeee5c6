"""Exporters of ops that decide how large their results are: ONNX's own ops, whose results are padded to the bound."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightnet.ir.op import LnOp
from lightnet.runtime.dtypes import BY_NAME
from lightnet_export.onnx.graph import KERNEL_TYPES, ExportGraph, exporter

if TYPE_CHECKING:
    from lightnet.dialects.ln.counted import NonMaxSuppression, Unique
    from lightnet.dialects.ln.scan import TopkOf

_I64 = BY_NAME["i64"]


def length(g: ExportGraph, x: str, axis: int) -> str:
    """The length of an axis, [1]."""
    return g.node("Shape", x, start=axis, end=axis + 1)


def padded(g: ExportGraph, x: str, ndim: int, axis: int, n: int) -> str:
    """`x` with zeros behind it, up to `n` elements along an axis."""
    more = g.node("Sub", g.ints([n]), length(g, x, axis))
    before, after = g.ints([0] * (ndim + axis)), g.ints([0] * (ndim - axis - 1))
    return g.node("Pad", x, g.node("Concat", before, more, after, axis=0))


def first(g: ExportGraph, x: str, axis: int, limit: str, n: int) -> str:
    """The first `limit` (a tensor of rank 0) of the `n` elements along an axis."""
    end = g.reshape(g.within(limit, _I64, 0, n), [1])
    return g.node("Slice", x, g.ints([0]), end, g.ints([axis]))


@exporter("nonzero")
def nonzero(g: ExportGraph, op: LnOp, src: str) -> list[str]:
    spec, rank = op.operand_specs[0], op.operand_specs[0].ndim
    row = g.reshape(g.cast(src, spec.dtype, "i1"), spec.dims or [1])
    found = g.node("NonZero", row)
    indices = padded(g, found, 2, 1, spec.len)
    if not rank:
        indices = g.slice(indices, 0, 0, 0)
    return [indices, g.reshape(length(g, found, 1), [])]


@exporter("unique")
def unique(g: ExportGraph, op: Unique, src: str, limit: str) -> list[str]:
    rows, width = op.operand_specs[0].dims
    _, (x,), _ = g.widened(op.operand_specs[0].dtype, KERNEL_TYPES["Unique"], src)
    part = first(g, x, 0, limit, rows)
    if width == 1:  # runtimes agree on vectors without elements
        part = g.reshape(part, [-1])
    _, *found = g.node_n("Unique", 4, part, axis=0 if width != 1 else None, sorted=int(op.sorted))
    return [*(padded(g, f, 1, 0, rows) for f in found), g.reshape(length(g, found[0], 0), [])]


@exporter("topk_of")
def topk_of(g: ExportGraph, op: TopkOf, src: str, limit: str) -> list[str]:
    spec = op.operand_specs[0]
    _, (x,), back = g.widened(spec.dtype, KERNEL_TYPES["TopK"], src)
    part = first(g, x, op.axis, limit, spec.dims[op.axis])
    k = g.reshape(g.within(limit, _I64, 0, op.k), [1])
    found = g.node_n("TopK", 2, part, k, axis=op.axis, largest=int(op.largest), sorted=int(op.sorted))
    values, indices = (padded(g, f, spec.ndim, op.axis, op.k) for f in found)
    return [back(values), indices]


@exporter("non_max_suppression")
def non_max_suppression(g: ExportGraph, op: NonMaxSuppression, *operands: str) -> list[str]:
    boxes, scores, most, overlap, least, limit = operands
    count, rows = op.operand_specs[0].dims[1], op.result_specs[0].dims[0]
    boxes, scores = (first(g, x, axis, limit, count) for x, axis in ((boxes, 1), (scores, 2)))
    limits = [g.reshape(g.within(most, _I64, 0, op.capacity), [1]), *(g.reshape(x, [1]) for x in (overlap, least))]
    found = g.node("NonMaxSuppression", boxes, scores, *limits[: 2 + op.filtered], center_point_box=int(op.centred))
    return [padded(g, found, 2, 0, rows), g.reshape(length(g, found, 0), [])]
