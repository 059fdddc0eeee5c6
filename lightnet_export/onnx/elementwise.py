"""ONNX exporters of functions of one number: signs, roundings, exponentials, trigonometry, activations. See
`graph.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lightnet.frontends.onnx.pairs import ACTIVATIONS, SOFTMAXES, UNARY
from lightnet.ir.op import LnOp
from lightnet.runtime.dtypes import DType, convert
from lightnet_export.onnx.graph import Exporter, ExportGraph, export_pairs, exporter, operator

if TYPE_CHECKING:
    from lightnet.dialects.ln.activation import Shrink
    from lightnet.dialects.ln.elementwise import Lrelu
    from lightnet.dialects.ln.norm import LogSoftmax, Softmax


@exporter(*SOFTMAXES.values())
def softmax(g: ExportGraph, op: LogSoftmax | Softmax, src: str) -> str:
    return g.compute(operator(SOFTMAXES, op), op.operand_specs[0].dtype, [src], axis=op.axis)


@exporter("isnan")
def isnan(g: ExportGraph, op: LnOp, src: str) -> str:
    return g.test("IsNaN", op.operand_specs[0].dtype, src)


@exporter("isinf")
def isinf(g: ExportGraph, op: LnOp, src: str) -> str:
    dtype = op.operand_specs[0].dtype
    return g.test(
        "IsInf", dtype, src, detect_positive=int(op.param("positive")), detect_negative=int(op.param("negative"))
    )


@exporter("relu")
def relu(g: ExportGraph, op: LnOp, src: str) -> str:
    dtype = op.operand_specs[0].dtype
    if dtype.kind in ("uint", "bool"):
        return g.node("Identity", src)
    if dtype.is_float:
        return g.compute("Relu", dtype, [src])
    return g.extreme("Max", dtype, src, g.const(0, dtype))


@exporter("lrelu")
def lrelu(g: ExportGraph, op: Lrelu, src: str) -> str:
    """LeakyRelu where it computes in f32 (its slope is a float); else x >= 0 ? x : x * slope, the slope in the tensor's
    type."""
    dtype = op.operand_specs[0].dtype
    if dtype.name == "f32" or dtype.is_short:
        return g.compute("LeakyRelu", dtype, [src], alpha=float(op.negslope))
    return scaled_below_zero(g, dtype, src, g.const(_parameter(op.negslope, dtype), dtype))


@exporter("prelu")
def prelu(g: ExportGraph, op: LnOp, src: str, slope: str) -> str:
    dtype = op.operand_specs[0].dtype
    if dtype.name == "f32" or dtype.is_short:
        return g.compute("PRelu", dtype, [src, slope])
    return scaled_below_zero(g, dtype, src, slope)


def scaled_below_zero(g: ExportGraph, dtype: DType, x: str, slope: str) -> str:
    """x >= 0 ? x : x * slope."""
    if dtype.kind in ("uint", "bool"):
        return g.node("Identity", x)
    wide, (x, slope), back = g.widened(dtype, "i32 i64 f32 f64", x, slope)
    return back(g.node("Where", g.node("GreaterOrEqual", x, g.const(0, wide)), x, g.node("Mul", x, slope)))


def _parameter(value: float, dtype: DType) -> np.ndarray:
    """A parameter in the type of a tensor."""
    return convert(np.asarray(float(value), np.float64), dtype)


@exporter("celu")
def celu(g: ExportGraph, op: LnOp, src: str) -> str:
    """Celu is for f32 alone; for doubles it is written out."""
    dtype = op.operand_specs[0].dtype
    if dtype.name != "f64":
        return g.compute("Celu", dtype, [src], alpha=float(op.param("alpha")))
    zero, alpha = g.const(0, dtype), g.const(op.param("alpha"), dtype)
    grown = g.node("Sub", g.node("Exp", g.node("Div", src, alpha)), g.const(1, dtype))
    return g.node("Add", g.node("Max", src, zero), g.node("Min", g.node("Mul", alpha, grown), zero))


@exporter("gelu")
def gelu(g: ExportGraph, op: LnOp, src: str) -> str:
    """Written out: the operator Gelu is of opset 20."""
    wide, (x,), back = g.widened(op.operand_specs[0].dtype, "f32 f64", src)
    if op.param("approximate") == "none":
        inner = g.node("Erf", g.node("Div", x, g.const(np.sqrt(2), wide)))
    else:
        cube = g.node("Mul", g.node("Mul", x, g.node("Mul", x, x)), g.const(0.044715, wide))
        inner = g.node("Tanh", g.node("Mul", g.node("Add", x, cube), g.const(np.sqrt(2 / np.pi), wide)))
    half = g.node("Mul", x, g.const(0.5, wide))
    return back(g.node("Mul", half, g.node("Add", inner, g.const(1, wide))))


@exporter("silu")
def silu(g: ExportGraph, op: LnOp, src: str) -> str:
    wide, (x,), back = g.widened(op.operand_specs[0].dtype, "f32 f64", src)
    scaled = x if op.param("beta") == 1 else g.node("Mul", x, g.const(op.param("beta"), wide))
    return back(g.node("Mul", x, g.node("Sigmoid", scaled)))


@exporter("shrink")
def shrink(g: ExportGraph, op: Shrink, src: str) -> str:
    """Shrink for floats; integers compare with, and add, parameters in their own type."""
    dtype = op.operand_specs[0].dtype
    if dtype.is_float:
        return g.compute("Shrink", dtype, [src], lambd=float(op.lambd), bias=float(op.bias))
    low, high, bias = (g.const(_parameter(v, dtype), dtype) for v in (-op.lambd, op.lambd, op.bias))
    above = g.where(dtype, g.test("Less", dtype, high, src), g.compute("Sub", dtype, [src, bias]), g.const(0, dtype))
    return g.where(dtype, g.test("Less", dtype, src, low), g.compute("Add", dtype, [src, bias]), above)


@exporter("clip")
def clip(g: ExportGraph, op: LnOp, src: str) -> str:
    """By Clip where runtimes fuse it into convolutions (f32); elsewhere by Max and Min, in which NaN stays NaN, as
    ONNX's Clip does not promise (ONNX Runtime keeps it), and the bounds may be in the wrong order."""
    dtype = op.operand_specs[0].dtype
    low, high = (g.const(_parameter(v, dtype), dtype) for v in (op.param("lo"), op.param("hi")))
    if dtype.name == "f32" and op.param("lo") <= op.param("hi"):
        return g.node("Clip", src, low, high)
    return g.extreme("Min", dtype, g.extreme("Max", dtype, src, low), high)


def _activation(kind: str) -> Exporter:
    def export(g: ExportGraph, op: LnOp, src: str) -> str:
        attributes = {name: getattr(op, param) for name, (param, _) in ACTIVATIONS[kind][1].items()}
        return g.compute(kind, op.operand_specs[0].dtype, [src], **attributes)

    return export


export_pairs(UNARY, lambda kind: lambda g, op, src: g.compute(kind, op.operand_specs[0].dtype, [src]))
export_pairs({kind: optype for kind, (optype, _) in ACTIVATIONS.items()}, _activation)
