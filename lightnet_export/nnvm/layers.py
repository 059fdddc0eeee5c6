"""NNVM exporters of layers: convolutions, pools, norms, dense layers. See `calls.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xdsl.ir import SSAValue

from lightnet.dialects.ln.matmul import Matmul
from lightnet.dialects.ln.move import Transpose
from lightnet.ir.types import TensorSpec, spec_of
from lightnet_export.nnvm.calls import (
    Exporting,
    NodeCall,
    dims_of,
    exporter,
    first_name,
    is_all,
    made_by,
    refuse,
    written,
)


def _padded(src: SSAValue, pad: Sequence[int]) -> tuple[SSAValue | NodeCall, tuple[int, int]]:
    """The source, under a `pad` where the padding is not the same on both sides, and the padding that is left."""
    top, left, bottom, right = pad
    if min(pad) < 0:
        refuse(f"padding {list(pad)} is negative")
    if (top, left) == (bottom, right):
        return src, (top, left)
    spec = spec_of(src.type)
    widths = ((0, 0), (0, 0), (top, bottom), (left, right))
    dims = tuple(d + a + b for d, (a, b) in zip(spec.dims, widths))
    return NodeCall("pad", (src,), {"pad_width": widths, "pad_value": 0.0}, spec=TensorSpec(dims, spec.dtype)), (0, 0)


def _convolution(op: Any, exporting: Exporting, channels: int, **more: Any) -> dict[str, Any]:
    return {
        "channels": channels, "kernel_size": list(op.size), "strides": tuple(op.stride), "dilation": tuple(op.dilation),
        "groups": op.group, "layout": "NCHW", "use_bias": not is_all(exporting, op.bias, 0), **more,
    }  # fmt: skip


def _with_bias(attrs: Mapping[str, Any], bias: SSAValue) -> tuple[SSAValue, ...]:
    return (bias,) if attrs["use_bias"] else ()


@exporter("conv2d")
def conv2d(op: Any, exporting: Exporting) -> NodeCall:
    src, pad = _padded(op.src, op.derived_values()["pad"])
    attrs = _convolution(op, exporting, dims_of(op.weight)[0], padding=pad)
    return NodeCall("conv2d", (src, op.weight, *_with_bias(attrs, op.bias)), attrs)


@exporter("deconv2d")
def deconv2d(op: Any, exporting: Exporting) -> NodeCall:
    top, left, bottom, right = op.derived_values()["pad"]
    if (top, left) != (bottom, right) or min(top, left) < 0:
        refuse("NNVM's conv2d_transpose has the same padding on both sides")
    channels = dims_of(op.weight)[1] * op.group
    attrs = _convolution(op, exporting, channels, padding=(top, left), output_padding=tuple(op.output_padding))
    return NodeCall("conv2d_transpose", (op.src, op.weight, *_with_bias(attrs, op.bias)), attrs)


@exporter("maxpool2d", "avgpool2d")
def pool2d(op: Any, exporting: Exporting) -> NodeCall:
    pad = tuple(op.derived_values()["pad"])
    if min(pad) < 0:
        refuse(f"padding {list(pad)} is negative")
    attrs = {"pool_size": tuple(op.size), "strides": tuple(op.stride),
             "padding": pad[:2] if pad[:2] == pad[2:] else pad, "layout": "NCHW", "ceil_mode": False}  # fmt: skip
    if op.optype == "avgpool2d":
        attrs["count_include_pad"] = False
    return NodeCall(f"{op.optype[:3]}_pool2d", (op.src,), attrs)


@exporter("avgpool")
def avgpool(op: Any, exporting: Exporting) -> NodeCall:
    if len(op.size) != 2 or any(d != 1 for d in op.dilation):
        refuse("NNVM pools two axes, without dilation")
    pad = tuple(op.padding)
    return NodeCall("avg_pool2d", (op.src,), {
        "pool_size": tuple(op.size), "strides": tuple(op.stride), "padding": pad[:2] if pad[:2] == pad[2:] else pad,
        "layout": "NCHW", "ceil_mode": op.ceil, "count_include_pad": op.count_include_pad})  # fmt: skip


@exporter("batchnorm")
def batchnorm(op: Any, exporting: Exporting) -> NodeCall:
    """The four vectors have to be there, whatever `center` and `scale` say of two of them."""
    attrs = {"axis": 1, "epsilon": written(op, "epsilon"), "center": not is_all(exporting, op.offset, 0),
             "scale": not is_all(exporting, op.scale, 1)}  # fmt: skip
    return NodeCall("batch_norm", (op.src, op.scale, op.offset, op.mean, op.var), attrs)


@exporter("lrn")
def lrn(op: Any, exporting: Exporting) -> NodeCall:
    if op.size % 2 == 0:
        refuse("NNVM's lrn has an odd window")
    return NodeCall(
        "lrn", (op.src,), {"size": op.size, "axis": 1, **{k: written(op, k) for k in ("alpha", "beta", "bias")}}
    )


# x . w^T + b is dense
def _dense_of(value: SSAValue) -> tuple[Any, SSAValue, SSAValue] | None:
    """The matmul that makes a value, its rows, and the weight [out, in] whose transpose it reads; None if it is
    none."""
    matmul = made_by(value, Matmul)
    turned = made_by(matmul.b, Transpose) if matmul is not None else None
    if matmul is None or turned is None or tuple(turned.axes) != (1, 0) or len(dims_of(matmul.a)) != 2:
        return None
    return matmul, matmul.a, turned.src


@exporter("matmul")
def matmul(op: Any, exporting: Exporting) -> NodeCall:
    if (found := _dense_of(op.results[0])) is not None:
        name = first_name(op, op.b.owner)
        return NodeCall("dense", found[1:], {"units": dims_of(found[2])[0], "use_bias": False}, name)
    if len(dims_of(op.a)) != 2 or len(dims_of(op.b)) != 2:
        refuse("NNVM multiplies matrices, not batches of them")
    return NodeCall("matmul", (op.a, op.b), {"transpose_a": False, "transpose_b": False})


def dense_with_bias(op: Any) -> NodeCall | None:
    """A dense layer with a bias, whose matrix product nobody else reads."""
    found = _dense_of(op.src1)
    if found is None or len(dims_of(op.src2)) != 1 or op.src1.has_more_than_one_use():
        return None
    product, rows, weight = found
    units = dims_of(weight)[0]
    if dims_of(op.src2) != (units,):
        return None
    return NodeCall(
        "dense", (rows, weight, op.src2), {"units": units, "use_bias": True}, first_name(op, product, product.b.owner)
    )
