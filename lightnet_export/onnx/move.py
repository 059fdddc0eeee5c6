"""ONNX exporters of sources, of moves, and of resampling to the nearest neighbour, which is one. See `graph.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lightnet.frontends.resampling import nearest_centres
from lightnet.ir.op import LnOp
from lightnet.runtime.dtypes import BY_NAME, convert
from lightnet_export.onnx.graph import KERNEL_TYPES, ExportGraph, exporter

if TYPE_CHECKING:
    from lightnet.dialects.ln.move import Concat, Reshape, Slice, Transpose
    from lightnet.dialects.ln.rearrange import Expand, Pad, StridedSlice, Tile, Trilu
    from lightnet.dialects.ln.resize import Resize, Upsample
    from lightnet.dialects.ln.source import Arange, Rearange

_F64 = BY_NAME["f64"]
_MIN = np.iinfo(np.int64).min


# -- sources


@exporter("zeros")
def zeros(g: ExportGraph, op: LnOp) -> str:
    spec = op.result_specs[0]
    return g.full(spec.dims, 0, spec.dtype)


@exporter("arange", "rearange")
def arange(g: ExportGraph, op: Arange | Rearange, *_: str) -> str:
    """start + i * step in double, then converted; `rearange` takes only its type from its operand."""
    spec = op.result_specs[0]
    steps = g.node("Range", g.const(0.0, _F64), g.const(float(spec.len), _F64), g.const(1.0, _F64))
    values = g.node("Add", g.const(op.start, _F64), g.node("Mul", steps, g.const(op.step, _F64)))
    return g.convert(values, _F64, spec.dtype)


# -- moves


@exporter("forward", "copy")
def forward(g: ExportGraph, op: LnOp, src: str) -> str:
    return g.node("Identity", src)


@exporter("concat")
def concat(g: ExportGraph, op: Concat, *src: str) -> str:
    return g.node("Concat", *src, axis=op.axis)


@exporter("slice")
def slice_(g: ExportGraph, op: Slice, src: str) -> str:
    return g.slice(src, op.axis, op.start, op.start + op.len)


@exporter("strided_slice")
def strided_slice(g: ExportGraph, op: StridedSlice, src: str) -> str:
    """An axis that is read backward to its first element ends before every element: -1 would be the last one."""
    if not op.lens:
        return g.node("Identity", src)
    ends = [s + t * n for s, t, n in zip(op.starts, op.steps, op.lens)]
    ends = [_MIN + 1 if e < 0 else e for e in ends]
    return g.node("Slice", src, g.ints(op.starts), g.ints(ends), g.ints(range(len(ends))), g.ints(op.steps))


@exporter("transpose")
def transpose(g: ExportGraph, op: Transpose, src: str) -> str:
    return g.node("Transpose", src, perm=list(op.axes) or None)


@exporter("reshape")
def reshape(g: ExportGraph, op: Reshape, src: str) -> str:
    return g.reshape(src, op.dims)


@exporter("gather")
def gather(g: ExportGraph, op: LnOp, *src: str) -> str:
    """LightNet's gather stacks (ONNX's Gather is another operator)."""
    first = g.ints([0])
    return g.node("Concat", *(g.node("Unsqueeze", x, first) for x in src), axis=0)


@exporter("scatter")
def scatter(g: ExportGraph, op: LnOp, src: str) -> list[str]:
    count = len(op.results)
    first = g.ints([0])
    parts = g.node_n("Split", count, src, g.ints([1] * count), axis=0)
    return [g.node("Squeeze", part, first) for part in parts]


@exporter("expand")
def expand(g: ExportGraph, op: Expand, src: str) -> str:
    return g.compute("Expand", op.operand_specs[0].dtype, [src], g.ints(op.dims))


@exporter("tile")
def tile(g: ExportGraph, op: Tile, src: str) -> str:
    if not op.repeats:
        return g.node("Identity", src)
    return g.compute("Tile", op.operand_specs[0].dtype, [src], g.ints(op.repeats))


@exporter("trilu")
def trilu(g: ExportGraph, op: Trilu, src: str) -> str:
    return g.compute("Trilu", op.operand_specs[0].dtype, [src], g.const(op.k, "i64"), upper=int(op.upper))


@exporter("pad")
def pad(g: ExportGraph, op: Pad, src: str) -> str:
    """With a constant: a Slice for what is cut off, then Pad. Else a Gather along each axis: what ONNX's modes make of
    negative padding, and of padding longer than the tensor, is left to runtimes."""
    spec, sides = op.operand_specs[0], list(zip(op.before, op.after))
    if op.mode != "constant":
        for axis, (n, (before, after)) in enumerate(zip(spec.dims, sides)):
            if before or after:
                at = np.pad(np.arange(n), (max(before, 0), max(after, 0)), mode=op.mode)
                src = g.node("Gather", src, g.ints(at[max(-before, 0) : len(at) - max(-after, 0)]), axis=axis)
        return src
    # Elements first to last - 1 of an axis stay; what is cut beyond them is cut from the padding of the other side.
    first = [min(max(-b, 0), n) for n, (b, _) in zip(spec.dims, sides)]
    last = [max(min(n + a, n), f) for n, f, (_, a) in zip(spec.dims, first, sides)]
    out = op.result_specs[0].dims
    if any(f > 0 or e < n for f, e, n in zip(first, last, spec.dims)):
        src = g.node("Slice", src, g.ints(first), g.ints(last), g.ints(range(spec.ndim)))
    front = [min(max(b, 0), n) for n, (b, _) in zip(out, sides)]
    back = [n - f - (e - s) for n, f, s, e in zip(out, front, first, last)]
    if not any(front) and not any(back):
        return src
    filler = g.const(convert(np.asarray(float(op.value)), spec.dtype), spec.dtype)
    _, (src, filler), narrowed = g.widened(spec.dtype, KERNEL_TYPES["Pad"], src, filler)
    return narrowed(g.node("Pad", src, g.ints([*front, *back]), filler))


# -- resampling

_RESIZABLE = ("f32", "i32", "i8", "ui8")


@exporter("resize", "upsample")
def resample(g: ExportGraph, op: Resize | Upsample, src: str) -> str:
    """Nearest neighbour, or linear. By whole factors it is Resize with floor(d / factor); else a Gather along each
    axis, since none of Resize's roundings is exact for all sizes."""
    old, new = op.operand_specs[0].dims, op.result_specs[0].dims
    whole = all(n % o == 0 for o, n in zip(old, new))
    if old == new:
        return g.node("Identity", src)
    if op.mode == "TL_LINEAR":
        return _linear(g, op, src)
    if whole and op.operand_specs[0].dtype.name in _RESIZABLE:
        return g.node("Resize", src, "", "", g.ints(new), mode="nearest", nearest_mode="floor",
                      coordinate_transformation_mode="asymmetric")  # fmt: skip
    for axis, (o, n) in enumerate(zip(old, new)):
        if o != n:
            src = g.node("Gather", src, g.ints(nearest_centres(n, o).tolist()), axis=axis)
    return src


def _linear(g: ExportGraph, op: LnOp, src: str) -> str:
    """Resize of pictures in f32, which runtimes have; else two Gather along each axis and what lies between them."""
    dtype, old, new = op.operand_specs[0].dtype, op.operand_specs[0].dims, op.result_specs[0].dims
    if dtype.name == "f32" and len(old) == 4 and old[:2] == new[:2]:
        return g.node("Resize", src, "", "", g.ints(new), mode="linear", coordinate_transformation_mode="half_pixel")
    wide = BY_NAME["f32" if dtype.is_float and dtype.name != "f64" else "f64"]
    src = g.cast(src, dtype, wide)
    for axis, (o, n) in enumerate(zip(old, new)):
        if o == n:
            continue
        at = [min(max((2 * d + 1) * o - n, 0), (o - 1) * 2 * n) for d in range(n)]  # the coordinate, times 2 * n
        low = g.node("Gather", src, g.ints([x // (2 * n) for x in at]), axis=axis)
        high = g.node("Gather", src, g.ints([min(x // (2 * n) + 1, o - 1) for x in at]), axis=axis)
        weight = np.array([x % (2 * n) / (2 * n) for x in at], wide.np).reshape(-1, *(1,) * (len(old) - 1 - axis))
        src = g.node("Add", low, g.node("Mul", g.const(weight, wide), g.node("Sub", high, low)))
    return g.convert(src, wide, dtype)
