"""NNVM exporters of elementwise ops, reductions and moves. See `calls.py`."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from xdsl.ir import SSAValue

from lightnet.dialects.ln.move import Reshape
from lightnet.ir.types import spec_of
from lightnet_export.nnvm.calls import (
    DTYPE_NAMES,
    Exporting,
    NodeCall,
    dims_of,
    exporter,
    first_name,
    made_by,
    refuse,
    written,
)
from lightnet_export.nnvm.layers import dense_with_bias
from lightnet_nnvm.pairs import ARITHMETIC, COMPARISONS, EXPORTED, REDUCTIONS

# -- element by element -----------------------------------------------------------------------------------------------


def _by_optype(pairs: Mapping[str, str]) -> dict[str, str]:
    return {optype: name for name, optype in pairs.items()}


_BINARY = _by_optype(ARITHMETIC | COMPARISONS)
_REDUCE = _by_optype(REDUCTIONS)
_ELEW = {"TL_SUM": "add", "TL_SUB": "sub", "TL_MUL": "mul", "TL_DIV": "div", "TL_POW": "pow", "TL_MAX": "max",
         "TL_MIN": "min"}  # fmt: skip
#: NNVM's ops on a tensor and a number; and those for tensors of one shape: the others broadcast in any case.
_WITH_NUMBER = ("add", "sub", "mul", "div", "pow")
_SAME_SHAPE = (*_WITH_NUMBER, "mod")


@exporter(*EXPORTED)
def same(op: Any, exporting: Exporting) -> NodeCall:
    """One of NNVM's on the same operands: a row of a table."""
    name, attrs = EXPORTED[op.optype]
    return NodeCall(name, tuple(op.operands), {attr: written(op, param) for attr, param in attrs.items()})


@exporter(*_BINARY)
def binary(op: Any, exporting: Exporting) -> NodeCall:
    return (dense_with_bias(op) if op.optype == "add" else None) or _binary(op, _BINARY[op.optype], exporting)


@exporter("elew")
def elew(op: Any, exporting: Exporting) -> NodeCall:
    return _binary(op, _ELEW[op.elew_op], exporting)


def _binary(op: Any, name: str, exporting: Exporting) -> NodeCall:
    a, b = op.operands
    if name in _WITH_NUMBER:
        if (number := _number(exporting, b, op)) is not None:
            return NodeCall(f"__{name}_scalar__", (a,), {"scalar": number})
        if (number := _number(exporting, a, op)) is not None:
            reverse = "" if name in ("add", "mul") else "r"
            return NodeCall(f"__{reverse}{name}_scalar__", (b,), {"scalar": number})
    same = dims_of(a) == dims_of(b) and name in _SAME_SHAPE
    return NodeCall(f"{'elemwise' if same else 'broadcast'}_{name}", (a, b), {})


def _number(exporting: Exporting, value: SSAValue, op: Any) -> float | int | None:
    """The one number of a constant that does not change the shape of the result."""
    spec = spec_of(value.type)
    if spec.len != 1 or spec.ndim > op.result_specs[0].ndim:
        return None
    other = next((v for v in op.operands if v is not value), None)
    contents = exporting.contents(value)
    if contents is None or other is None or dims_of(other) != op.result_specs[0].dims:
        return None
    return contents.reshape(-1)[0].item()


@exporter("prelu")
def prelu(op: Any, exporting: Exporting) -> NodeCall:
    turned = made_by(op.slope, Reshape)
    channels = dims_of(op.src)[1:2]
    if (
        turned is None
        or dims_of(turned.src) != channels
        or dims_of(op.slope) != (*channels, *(1,) * (len(dims_of(op.src)) - 2))
    ):
        refuse("NNVM's prelu has one slope for each channel")
    return NodeCall("prelu", (op.src, turned.src), {"axis": 1}, first_name(op, turned))


@exporter("where")
def where(op: Any, exporting: Exporting) -> NodeCall:
    if len({dims_of(v) for v in op.operands}) != 1:
        refuse("NNVM's where does not broadcast")
    return NodeCall("where", tuple(op.operands), {})


@exporter("cast")
def cast(op: Any, exporting: Exporting) -> NodeCall:
    return NodeCall("cast", (op.src,), {"dtype": DTYPE_NAMES[op.result_specs[0].dtype.name]})


@exporter("zeros")
def zeros(op: Any, exporting: Exporting) -> NodeCall:
    spec = op.result_specs[0]
    return NodeCall("zeros", (), {"shape": spec.dims, "dtype": DTYPE_NAMES[spec.dtype.name]})


# -- reductions -------------------------------------------------------------------------------------------------------


@exporter(*_REDUCE)
def reduce(op: Any, exporting: Exporting) -> NodeCall:
    if len(dims_of(op.src)) == 4 and tuple(op.axes) == (2, 3) and op.optype in ("reduce_mean", "reduce_max"):
        return NodeCall(
            "global_avg_pool2d" if op.optype == "reduce_mean" else "global_max_pool2d", (op.src,), {"layout": "NCHW"}
        )
    return NodeCall(_REDUCE[op.optype], (op.src,), {"axis": tuple(op.axes), "keepdims": True})


@exporter("maxreduce")
def maxreduce(op: Any, exporting: Exporting) -> NodeCall:
    return NodeCall("max", (op.src,), {"axis": (op.axis,), "keepdims": True})


# -- moves ------------------------------------------------------------------------------------------------------------


@exporter("reshape")
def reshape(op: Any, exporting: Exporting) -> NodeCall:
    old, new = dims_of(op.src), op.result_specs[0].dims
    if 0 in new or not new:
        refuse(f"NNVM has no shape {list(new)}")
    if len(old) > 2 and new == (old[0], prod(old[1:])):
        return NodeCall("flatten", (op.src,), {})
    return NodeCall("reshape", (op.src,), {"shape": new})


@exporter("slice")
def slice_(op: Any, exporting: Exporting) -> NodeCall:
    begin = [0] * len(dims_of(op.src))
    end = list(dims_of(op.src))
    begin[op.axis], end[op.axis] = op.start, op.start + op.len
    return NodeCall("strided_slice", (op.src,), {"begin": begin, "end": end})


@exporter("strided_slice")
def strided_slice(op: Any, exporting: Exporting) -> NodeCall:
    if min(op.steps, default=1) < 0 or 0 in op.lens:
        refuse("backwards, or of nothing")
    ends = [a + (k - 1) * s + 1 for a, k, s in zip(op.starts, op.lens, op.steps)]
    return NodeCall("strided_slice", (op.src,), {"begin": list(op.starts), "end": ends, "stride": list(op.steps)})


@exporter("expand")
def expand(op: Any, exporting: Exporting) -> NodeCall:
    old, new = dims_of(op.src), op.result_specs[0].dims
    if len(old) != len(new) or 0 in new:
        refuse("NNVM's broadcast_to keeps the rank")
    return NodeCall("broadcast_to", (op.src,), {"shape": new})


@exporter("pad")
def pad(op: Any, exporting: Exporting) -> NodeCall:
    if op.mode != "constant" or min((*op.before, *op.after, 0)) < 0:
        refuse("NNVM pads with a constant, and cuts nothing off")
    return NodeCall("pad", (op.src,), {"pad_width": tuple(zip(op.before, op.after)), "pad_value": op.value})


@exporter("resize", "upsample")
def resize(op: Any, exporting: Exporting) -> NodeCall:
    old, new = dims_of(op.src), op.result_specs[0].dims
    scale = new[-1] // old[-1] if len(old) == 4 else 0
    if (
        scale < 1
        or new != (*old[:2], old[2] * scale, old[3] * scale)
        or getattr(op, "mode", "TL_NEAREST") != "TL_NEAREST"
    ):
        refuse("NNVM's upsampling enlarges pictures by one whole factor")
    return NodeCall("upsampling", (op.src,), {"scale": scale, "layout": "NCHW", "method": "NEAREST_NEIGHBOR"})
