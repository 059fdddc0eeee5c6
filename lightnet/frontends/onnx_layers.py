"""ONNX exporters of layers: convolutions, pools, normalisation, detection heads. See `onnx_graph.py`.

Automatic padding is exported as the explicit padding that it decides; padding below zero as a Slice.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lightnet.frontends.onnx_graph import Graph, exporter, unsupported
from lightnet.ir.op import LnOp

_MAX = np.iinfo(np.int64).max


def _cropped(g: Graph, src: str, pad: Sequence[int], hw: Sequence[int]) -> tuple[str, list[int]]:
    """`src` with what negative padding cuts off cut off, and the padding that is left."""
    top, left, bottom, right = pad
    if min(pad) < 0:
        starts = [max(0, -top), max(0, -left)]
        stops = [hw[0] - max(0, -bottom), hw[1] - max(0, -right)]
        src = g.node("Slice", src, g.ints(starts), g.ints(stops), g.ints([2, 3]))
    return src, [max(0, p) for p in (top, left, bottom, right)]


def _need_float(op: LnOp, what: str) -> None:
    if not op.operand_specs[0].dtype.is_float:
        raise unsupported(op, f"ONNX's {what} is for floating-point types, and {op.operand_specs[0]} is not of one")


@exporter("conv2d")
def conv2d(g: Graph, op: LnOp, src: str, weight: str, bias: str) -> str:
    _need_float(op, "Conv")
    x, pads = _cropped(g, src, op.derived_values()["pad"], op.operand_specs[0].dims[2:])
    return g.node(
        "Conv",
        x,
        weight,
        bias,
        group=op.group,
        kernel_shape=list(op.size),
        strides=list(op.stride),
        dilations=list(op.dilation),
        pads=pads,
    )


@exporter("deconv2d")
def deconv2d(g: Graph, op: LnOp, src: str, weight: str, bias: str) -> str:
    """ConvTranspose; what its attributes cannot say (padding below zero, output padding of a stride or more) is said by
    a Pad behind it, and the bias added last."""
    _need_float(op, "ConvTranspose")
    pads, extra = list(op.derived_values()["pad"]), list(op.output_padding)
    attributes = dict(group=op.group, kernel_shape=list(op.size), strides=list(op.stride), dilations=list(op.dilation))
    if min(pads) >= 0 and all(e < max(s, d) for e, s, d in zip(extra, op.stride, op.dilation)):
        return g.node(
            "ConvTranspose", src, weight, bias, pads=pads, output_padding=extra if any(extra) else None, **attributes
        )
    pads[2:] = [p - e for p, e in zip(pads[2:], extra)]
    full = g.node("ConvTranspose", src, weight, pads=[max(0, p) for p in pads], **attributes)
    margins = [max(0, -p) for p in pads]
    padded = g.node("Pad", full, g.ints([0, 0, margins[0], margins[1], 0, 0, margins[2], margins[3]]))
    return g.node("Add", padded, g.reshape(bias, [1, -1, 1, 1]))


@exporter("maxpool2d")
def maxpool2d(g: Graph, op: LnOp, src: str) -> str:
    dtype = op.operand_specs[0].dtype
    if dtype.name in ("i64", "ui64"):
        raise unsupported(op, f"ONNX's MaxPool takes no {dtype}, and no type that it takes holds one")
    x, pads = _cropped(g, src, op.derived_values()["pad"], op.operand_specs[0].dims[2:])
    _, (x,), back = g.widened(dtype, "f32 f64 i8 ui8", x)
    return back(g.node("MaxPool", x, kernel_shape=list(op.size), strides=list(op.stride), pads=pads))


@exporter("avgpool2d")
def avgpool2d(g: Graph, op: LnOp, src: str) -> str:
    x, pads = _cropped(g, src, op.derived_values()["pad"], op.operand_specs[0].dims[2:])
    return g.node("AveragePool", x, kernel_shape=list(op.size), strides=list(op.stride), pads=pads, count_include_pad=0)


@exporter("batchnorm")
def batchnorm(g: Graph, op: LnOp, src: str, scale: str, offset: str, mean: str, var: str) -> str:
    return g.node("BatchNormalization", src, scale, offset, mean, var, epsilon=float(op.epsilon))


@exporter("softmax")
def softmax(g: Graph, op: LnOp, src: str) -> str:
    return g.node("Softmax", src, axis=op.axis)


@exporter("transform_bboxSQD")
def transform_bbox(g: Graph, op: LnOp, delta: str, anchor: str) -> str:
    """Both coordinates at once, in the last axis: (x, y) of the centre, (w, h) of the size."""
    dtype = op.operand_specs[0].dtype

    def pair(x: float, y: float) -> str:
        return g.const([x, y], dtype)

    d_xy, d_wh = g.slice(delta, 4, 0, 2), g.slice(delta, 4, 2, _MAX)
    a_xy, a_wh = g.slice(anchor, 4, 0, 2), g.slice(anchor, 4, 2, _MAX)
    scale = pair(op.img_width / op.width, op.img_height / op.height)
    centre = g.node("Mul", g.node("Add", a_xy, g.node("Mul", d_xy, a_wh)), scale)
    centre = g.node("Add", centre, pair(op.x_shift, op.y_shift))
    steep = g.node("Mul", d_wh, g.const(2.718281828, dtype))
    growth = g.node("Where", g.node("Less", d_wh, g.const(1, dtype)), g.node("Exp", d_wh), steep)
    half = g.node("Mul", g.node("Mul", g.node("Mul", a_wh, scale), growth), g.const(0.5, dtype))
    limit = pair(op.img_width - 1, op.img_height - 1)
    corners = [g.clamp(g.node(side, centre, half), g.const(0, dtype), limit) for side in ("Sub", "Add")]
    return g.node("Concat", *corners, axis=4)


@exporter("detect_yolov3")
def detect_yolov3(g: Graph, op: LnOp, feature: str, anchors: str) -> list[str]:
    spec, count = op.operand_specs[0], op.operand_specs[1].dims[0]
    n, c, h, w = spec.dims
    dtype = spec.dtype
    t = g.reshape(feature, [n, count, c // count, h, w])
    cells = np.stack(np.broadcast_arrays(np.arange(w), np.arange(h)[:, None]))
    step = g.const(np.reshape([op.img_width / w, op.img_height / h], (2, 1, 1)), dtype)
    centers = g.node("Mul", g.node("Add", g.node("Sigmoid", g.slice(t, 2, 0, 2)), g.const(cells, dtype)), step)
    growth = g.clamp(g.node("Exp", g.slice(t, 2, 2, 4)), g.const(1e-9, dtype), g.const(50, dtype))
    sizes = g.node("Mul", growth, g.reshape(anchors, [1, count, 2, 1, 1]))
    half = g.node("Mul", sizes, g.const(0.5, dtype))
    boxes = g.node("Concat", g.node("Sub", centers, half), g.node("Add", centers, half), axis=2)
    confs = g.node("Sigmoid", g.slice(t, 2, 4, 5))
    return [centers, sizes, boxes, confs, g.node("Sigmoid", g.slice(t, 2, 5, _MAX))]
