"""ONNX exporters of ops that read or write where another tensor says, and of sorting. See `graph.py`.

LightNet clamps an index that is outside; ONNX leaves it undefined, so it is clamped here (where the index is known and
inside, nothing is).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lightnet.ir.op import LnOp
from lightnet.runtime.dtypes import BY_NAME, DType
from lightnet_export.onnx.graph import KERNEL_TYPES, ExportGraph, exporter, unsupported

if TYPE_CHECKING:
    from lightnet.dialects.ln.boxes import Nms
    from lightnet.dialects.ln.indexing import GatherNd, ReverseSequence, Take, TakeAlong
    from lightnet.dialects.ln.scan import Topk
    from lightnet.dialects.ln.scatter import ScatterElements, ScatterNd
    from lightnet.dialects.ln.sort import Pick1d, Sort1d, Sort1dByKey

_I64, _I32 = BY_NAME["i64"], BY_NAME["i32"]


def _inside(g: ExportGraph, index: str, dtype: DType, n: int) -> str:
    """An index of an axis of length `n`; negative ones count from the end."""
    return g.within(index, dtype, -n, max(n - 1, 0))


@exporter("take", "take_along")
def take(g: ExportGraph, op: Take | TakeAlong, src: str, index: str) -> str:
    kind, n = "Gather" if op.optype == "take" else "GatherElements", op.operand_specs[0].dims[op.axis]
    return g.node(kind, src, _inside(g, index, op.operand_specs[1].dtype, n), axis=op.axis)


def _inside_nd(g: ExportGraph, index: str, dtype: DType, dims: tuple[int, ...]) -> str:
    """Indices, as i64, of one axis of `dims` each along their last axis."""
    high = np.asarray(dims)
    return g.cast(g.within(index, dtype, -high, np.maximum(high - 1, 0)), dtype, _I64)


@exporter("gather_nd")
def gather_nd(g: ExportGraph, op: GatherNd, src: str, index: str) -> str:
    """Without an axis to pick from, each place has all of its batch entry."""
    (spec, at), b = op.operand_specs, op.batch_dims
    depth = at.dims[-1]
    if not depth:
        whole = g.reshape(src, [*spec.dims[:b], *(1,) * (at.ndim - 1 - b), *spec.dims[b:]])
        return g.compute("Expand", spec.dtype, [whole], g.ints(op.result_specs[0].dims))
    return g.node("GatherND", src, _inside_nd(g, index, at.dtype, spec.dims[b : b + depth]), batch_dims=b)


@exporter("tree_step")
def tree_step(g: ExportGraph, op: LnOp, x: str, node: str, feature: str, threshold: str, child: str) -> str:
    """Export one step down a tree. What ONNX has of trees (`TreeEnsemble`) runs them to the leaves: a step is made of
    its gathers and its comparison.
    """
    specs = op.operand_specs
    at = _inside(g, node, specs[1].dtype, specs[2].len)
    column = _inside(g, g.node("Gather", feature, at, axis=0), specs[2].dtype, specs[0].dims[1])
    picked = g.node("GatherElements", x, column, axis=1)
    stays = g.node("LessOrEqual", picked, g.node("Gather", threshold, at, axis=0))
    return g.node("Add", g.node("Gather", child, at, axis=0), g.cast(g.node("Not", stays), BY_NAME["i1"], _I32))


@exporter("reverse_sequence")
def reverse_sequence(g: ExportGraph, op: ReverseSequence, src: str, lens: str) -> str:
    """ONNX takes its two axes in front only, and no bf16."""
    (spec, lengths), axes = op.operand_specs, (op.time_axis, op.batch_axis)
    counts = g.cast(g.within(lens, lengths.dtype, 0, spec.dims[op.time_axis]), lengths.dtype, _I64)
    if sorted(axes) == [0, 1]:
        return g.compute("ReverseSequence", spec.dtype, [src], counts, time_axis=op.time_axis, batch_axis=op.batch_axis)
    order = [*axes, *(k for k in range(spec.ndim) if k not in axes)]
    front = g.node("Transpose", src, perm=order)
    turned = g.compute("ReverseSequence", spec.dtype, [front], counts, time_axis=0, batch_axis=1)
    return g.node("Transpose", turned, perm=[order.index(k) for k in range(spec.ndim)])


#: The types that ONNX Runtime scatters in, with a reduction.
_REDUCIBLE = "i32 i64 f32 f64"


def _scattered(
    g: ExportGraph, op: ScatterElements | ScatterNd, kind: str, src: str, index: str, updates: str, **attributes: int
) -> str:
    """With a reduction, f16 and bf16 are summed in f32 and rounded once, not after each update."""
    if op.reduction == "none":
        return g.node(kind, src, index, updates, **attributes)
    bits = op.reduction in ("add", "mul")
    _, (src, updates), back = g.widened(op.operand_specs[0].dtype, _REDUCIBLE, src, updates, low_bits=bits)
    return back(g.node(kind, src, index, updates, reduction=op.reduction, **attributes))


@exporter("scatter_elements")
def scatter_elements(g: ExportGraph, op: ScatterElements, src: str, index: str, updates: str) -> str:
    spec, at, _ = op.operand_specs
    if not at.len:
        return g.node("Identity", src)
    index = _inside(g, index, at.dtype, spec.dims[op.axis])
    return _scattered(g, op, "ScatterElements", src, index, updates, axis=op.axis)


@exporter("scatter_nd")
def scatter_nd(g: ExportGraph, op: ScatterNd, src: str, index: str, updates: str) -> str:
    """Without an axis in the index, each update is of the whole tensor: the only row of a larger one."""
    spec, at, _ = op.operand_specs
    depth = at.dims[-1]
    if not op.operand_specs[2].len:
        return g.node("Identity", src)
    if depth:
        return _scattered(g, op, "ScatterND", src, _inside_nd(g, index, at.dtype, spec.dims[:depth]), updates)
    first = g.full([*at.dims[:-1], 1], 0, _I64)
    return g.reshape(_scattered(g, op, "ScatterND", g.reshape(src, [1, *spec.dims]), first, updates), spec.dims)


# -- sorting


def _top_k(g: ExportGraph, op: LnOp, src: str, k: int, axis: int, largest: bool) -> list[str]:
    """Values and their i64 indices. TopK keeps the order of equal keys (the lower index first): sorted, it is stable,
    as LightNet's. Where NaN goes is the runtime's own affair."""
    _, (x,), back = g.widened(op.operand_specs[0].dtype, KERNEL_TYPES["TopK"], src)
    values, indices = g.node_n("TopK", 2, x, g.ints([k]), axis=axis, largest=int(largest), sorted=1)
    return [back(values), indices]


@exporter("topk")
def topk(g: ExportGraph, op: Topk, src: str) -> list[str]:
    """Always sorted: LightNet's is."""
    return _top_k(g, op, src, op.k, op.axis, op.largest)


def _sorted(g: ExportGraph, op: Sort1d | Sort1dByKey, key: str) -> list[str]:
    return _top_k(g, op, key, op.operand_specs[0].len, 0, op.dir == "TL_SORT_DIR_DESCENDING")


@exporter("sort1d")
def sort1d(g: ExportGraph, op: Sort1d, key: str) -> str:
    return _sorted(g, op, key)[0]


@exporter("sort1d_by_key")
def sort1d_by_key(g: ExportGraph, op: Sort1dByKey, key: str, val: str) -> list[str]:
    keys, indices = _sorted(g, op, key)
    return [keys, g.node("Gather", val, indices, axis=0)]


@exporter("pick1d")
def pick1d(g: ExportGraph, op: Pick1d, src: str, index: str) -> str:
    length = op.operand_specs[0].len
    groups = length // op.stride
    x = src if groups * op.stride == length else g.slice(src, 0, 0, groups * op.stride)
    rows = x if op.stride == 1 else g.reshape(x, [groups, op.stride])
    picked = index if op.operand_specs[1].len == op.len else g.slice(index, 0, 0, op.len)
    found = g.node("Gather", rows, g.within(picked, _I32, 0, groups - 1), axis=0)
    return found if op.stride == 1 else g.reshape(found, [op.len * op.stride])


# -- suppression of boxes


@exporter("nms")
def nms(g: ExportGraph, op: Nms, boxes: str, group: str, valid: str) -> str:
    """NonMaxSuppression, with one class for each box: that of the boxes of its group, if it is the first of it. Scores
    are above 0 for the valid boxes of the class and fall with their position. It computes in f32."""
    spec = op.operand_specs[0]
    batch, count, _ = spec.dims
    if not op.threshold >= 0:
        raise unsupported(op, "NonMaxSuppression takes no threshold below 0")
    if op.inclusive:
        raise unsupported(op, "NonMaxSuppression keeps boxes that overlap by the threshold itself")
    corners = g.cast(boxes, spec.dtype, "f32")
    if op.pixels:
        corners = g.node("Add", corners, g.const([0, 0, 1, 1], "f32"))
    low = g.slice(corners, 2, 0, 2)
    corners = g.node("Concat", low, g.node("Max", low, g.slice(corners, 2, 2, 4)), axis=2)
    same = g.node("Equal", g.reshape(group, [batch, count, 1]), g.reshape(group, [batch, 1, count]))
    before = g.const(np.tri(count, k=-1, dtype=bool), "i1")
    again = g.node("ReduceMax", g.cast(g.node("And", same, before), BY_NAME["i1"], _I32), g.ints([2]), keepdims=1)
    of_class = g.node("And", same, g.node("Equal", again, g.const(0, _I32)))
    scored = g.node("And", of_class, g.reshape(valid, [batch, 1, count]))
    scores = g.node("Where", scored, g.const(np.arange(count, 0, -1), "f32"), g.const(0, "f32"))
    picked = g.node("NonMaxSuppression", corners, scores, g.const([count], _I64),
                    g.const([min(op.threshold, 1)], "f32"), g.const([0.5], "f32"))  # fmt: skip
    at = g.node("Gather", picked, g.ints([0, 2]), axis=1)
    marks = g.node("Expand", g.const(1, _I32), g.node("Slice", g.node("Shape", picked), g.ints([0]), g.ints([1])))
    return g.cast(g.node("ScatterND", g.full([batch, count], 0, _I32), at, marks), _I32, "i1")
