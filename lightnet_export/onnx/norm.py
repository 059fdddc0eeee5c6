"""ONNX exporters of normalisation. See `graph.py`; softmax and its logarithm are rows of `elementwise.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lightnet_export.onnx.graph import WIDE_FLOATS, ExportGraph, exporter

if TYPE_CHECKING:
    from lightnet.dialects.ln.norm import Batchnorm, L2norm, Layernorm, Lrn, Rmsnorm


@exporter("batchnorm")
def batchnorm(g: ExportGraph, op: Batchnorm, *operands: str) -> str:
    return g.compute("BatchNormalization", op.operand_specs[0].dtype, operands, epsilon=float(op.epsilon))


@exporter("layernorm")
def layernorm(g: ExportGraph, op: Layernorm, src: str) -> str:
    """LayerNormalization, which takes its statistics in float; of doubles, written out."""
    spec = op.operand_specs[0]
    if spec.dtype.name != "f64":
        _, (x,), back = g.widened(spec.dtype, WIDE_FLOATS, src)
        ones = g.const(np.ones(spec.dims[op.axis :]), "f32")
        return back(g.node("LayerNormalization", x, ones, axis=op.axis, epsilon=float(op.epsilon)))
    centred = g.node("Sub", src, g.node("ReduceMean", src, g.ints(op.trailing()), keepdims=1))
    return g.node("Div", centred, _root_mean_square(g, op, centred, "f64"))


@exporter("rmsnorm")
def rmsnorm(g: ExportGraph, op: Rmsnorm, src: str) -> str:
    """Written out: RMSNormalization is of opset 23."""
    wide, (x,), back = g.widened(op.operand_specs[0].dtype, WIDE_FLOATS, src)
    return back(g.node("Div", x, _root_mean_square(g, op, x, wide.name)))


def _root_mean_square(g: ExportGraph, op: Layernorm | Rmsnorm, x: str, dtype: str) -> str:
    """sqrt(mean of squares + epsilon)."""
    mean = g.node("ReduceMean", g.node("Mul", x, x), g.ints(op.trailing()), keepdims=1)
    return g.node("Sqrt", g.node("Add", mean, g.const(op.epsilon, dtype)))


@exporter("l2norm")
def l2norm(g: ExportGraph, op: L2norm, src: str) -> str:
    wide, (x,), back = g.widened(op.operand_specs[0].dtype, WIDE_FLOATS, src)
    squares = g.node("ReduceSumSquare", x, g.ints([op.axis]), keepdims=1)
    return back(g.node("Div", x, g.node("Sqrt", g.node("Add", squares, g.const(op.epsilon, wide)))))


@exporter("lrn")
def lrn(g: ExportGraph, op: Lrn, src: str) -> str:
    """LRN where a runtime has it: pictures, of f32, an odd number of channels. Else written out, with an AveragePool
    over the channels."""
    spec = op.operand_specs[0]
    wide, (x,), back = g.widened(spec.dtype, WIDE_FLOATS, src)
    alpha, beta, bias = (float(v) for v in (op.alpha, op.beta, op.bias))
    if wide.name == "f32" and spec.ndim == 4 and op.size % 2:
        return back(g.node("LRN", x, size=op.size, alpha=alpha, beta=beta, bias=bias))
    before = (op.size - 1) // 2
    columns = g.reshape(g.node("Mul", x, x), [spec.dims[0], 1, spec.dims[1], -1])
    mean = g.node("AveragePool", columns, kernel_shape=[op.size, 1], pads=[before, 0, op.size - 1 - before, 0],
                  count_include_pad=1)  # fmt: skip
    scaled = g.node("Mul", g.reshape(mean, spec.dims), g.const(alpha, wide))
    base = g.node("Add", scaled, g.const(bias, wide))
    return back(g.node("Div", x, g.node("Pow", base, g.const(beta, wide))))
