"""ONNX exporters of convolutions and pools. See `graph.py`.

Automatic padding is exported as the explicit padding that it decides; padding below zero as a Slice. In attributes of
ONNX, and here, padding is all begins, then all ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lightnet.ir.op import LnOp
from lightnet_export.onnx.graph import KERNEL_TYPES, WIDE_FLOATS, ExportGraph, exporter, unsupported

if TYPE_CHECKING:
    from lightnet.dialects.ln.conv import Conv2d, Deconv2d
    from lightnet.dialects.ln.conv_nd import Conv, Deconv
    from lightnet.dialects.ln.pool import Avgpool2d, Maxpool2d
    from lightnet.dialects.ln.pool_nd import Avgpool, Maxpool, MaxpoolIndex

    Convolution = Conv2d | Conv | Deconv2d | Deconv
    Pool = Maxpool | MaxpoolIndex | Avgpool


def _cropped(g: ExportGraph, op: Convolution | Maxpool2d | Avgpool2d, src: str) -> tuple[str, list[int]]:
    """`src` with what negative padding cuts off cut off, and the padding that is left."""
    pad = op.derived_values()["pad"] if op.optype.endswith("2d") else op.padding
    dims = op.operand_specs[0].dims[2:]
    before, behind = pad[: len(dims)], pad[len(dims) :]
    if min(pad) < 0:
        stops = [n - max(0, -b) for n, b in zip(dims, behind)]
        axes = g.ints(range(2, 2 + len(dims)))
        src = g.node("Slice", src, g.ints(max(0, -b) for b in before), g.ints(stops), axes)
    return src, [max(0, p) for p in pad]


def _need_float(op: LnOp, what: str) -> None:
    if not op.operand_specs[0].dtype.is_float:
        raise unsupported(op, f"ONNX's {what} is for floating-point types, and {op.operand_specs[0]} is not of one")


def _attributes(op: Convolution) -> dict[str, Any]:
    return dict(group=op.group, kernel_shape=list(op.operand_specs[1].dims[2:]), strides=list(op.stride),
                dilations=list(op.dilation))  # fmt: skip


@exporter("conv2d", "conv")
def conv(g: ExportGraph, op: Conv2d | Conv, src: str, weight: str, bias: str) -> str:
    _need_float(op, "Conv")
    src, pads = _cropped(g, op, src)
    return g.compute("Conv", op.operand_specs[0].dtype, [src, weight, bias], pads=pads, **_attributes(op))


@exporter("deconv2d", "deconv")
def deconv(g: ExportGraph, op: Deconv | Deconv2d, src: str, weight: str, bias: str) -> str:
    """ConvTranspose; what its attributes cannot say (padding below zero, output padding of a stride or more) is said by
    a Pad behind it, and the bias added last."""
    _need_float(op, "ConvTranspose")
    axes = len(op.stride)
    pads = list(op.derived_values()["pad"] if op.optype == "deconv2d" else op.padding)
    extra, attributes = list(op.output_padding), _attributes(op)
    _, (src, weight, bias), back = g.widened(op.operand_specs[0].dtype, WIDE_FLOATS, src, weight, bias)
    if min(pads) >= 0 and all(e < max(s, d) for e, s, d in zip(extra, op.stride, op.dilation)):
        attributes |= dict(pads=pads, output_padding=extra if any(extra) else None)
        return back(g.node("ConvTranspose", src, weight, bias, **attributes))
    pads[axes:] = [p - e for p, e in zip(pads[axes:], extra)]
    full = g.node("ConvTranspose", src, weight, pads=[max(0, p) for p in pads], **attributes)
    margins = [max(0, -p) for p in pads]
    padded = g.node("Pad", full, g.ints([0, 0, *margins[:axes], 0, 0, *margins[axes:]]))
    return back(g.node("Add", padded, g.reshape(bias, [1, -1, *(1,) * axes])))


# -- pools


def _past_end(op: Pool) -> list[int]:
    """The distance that the last windows reach past the end of each axis."""
    dims, out = op.operand_specs[0].dims[2:], op.result_specs[0].dims[2:]
    reach = [(o - 1) * s + (k - 1) * d + 1 for o, s, k, d in zip(out, op.stride, op.size, op.dilation)]
    return [r - b - n for r, b, n in zip(reach, op.padding, dims)]


def _pool(op: Pool, pads: Sequence[int]) -> dict[str, Any]:
    spread = list(op.dilation) if any(d != 1 for d in op.dilation) else None
    return dict(kernel_shape=list(op.size), strides=list(op.stride), pads=list(pads), dilations=spread)


def _padding(op: Pool) -> list[int]:
    """`ceil` as padding: what it adds counts for nothing."""
    axes = len(op.size)
    return [*op.padding[:axes], *(max(p, e) for p, e in zip(op.padding[axes:], _past_end(op)))]


def _need_holder(op: LnOp) -> None:
    dtype = op.operand_specs[0].dtype
    if dtype.name in ("i64", "ui64"):
        raise unsupported(op, f"ONNX's MaxPool takes no {dtype}, and no type that it takes holds one")


@exporter("maxpool2d", "avgpool2d")
def pool2d(g: ExportGraph, op: Maxpool2d | Avgpool2d, src: str) -> str:
    kind, counts = ("AveragePool", 0) if op.optype == "avgpool2d" else ("MaxPool", None)
    if kind == "MaxPool":
        _need_holder(op)
    src, pads = _cropped(g, op, src)
    attributes = dict(kernel_shape=list(op.size), strides=list(op.stride), pads=pads, count_include_pad=counts)
    return g.compute(kind, op.operand_specs[0].dtype, [src], **attributes)


@exporter("maxpool")
def maxpool(g: ExportGraph, op: Maxpool, src: str) -> str:
    _need_holder(op)
    return g.compute("MaxPool", op.operand_specs[0].dtype, [src], **_pool(op, _padding(op)))


@exporter("maxpool_index")
def maxpool_index(g: ExportGraph, op: MaxpoolIndex, src: str) -> str:
    """Export a pool's indices. Which NaN a window has its index from is the runtime's own affair."""
    _need_holder(op)
    _, (x,), _ = g.widened(op.operand_specs[0].dtype, KERNEL_TYPES["MaxPool"], src)
    return g.node_n("MaxPool", 2, x, **_pool(op, _padding(op)))[1]


@exporter("avgpool")
def avgpool(g: ExportGraph, op: Avgpool, src: str) -> str:
    """Padding that counts is a Pad in front; dilations are of opset 19."""
    dtype, axes, pads = op.operand_specs[0].dtype, len(op.size), _padding(op)
    if any(d != 1 for d in op.dilation):
        g.needs(19)
    if op.count_include_pad and any(op.padding):
        counted = [0, 0, *op.padding[:axes], 0, 0, *op.padding[axes:]]
        src = g.compute("Pad", dtype, [src], g.ints(counted))
        pads = [p - q for p, q in zip(pads, op.padding)]
    return g.compute("AveragePool", dtype, [src], count_include_pad=0, **_pool(op, pads))
