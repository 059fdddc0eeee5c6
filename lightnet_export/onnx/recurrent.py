"""ONNX exporters of recurrent layers. See `graph.py`.

LightNet's take the products of the inputs with their weights; ONNX's compute them, so the weights of the inputs are an
identity matrix. Both order the gates alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lightnet.frontends.onnx.pairs import RECURRENT
from lightnet.ir.op import LnOp
from lightnet_export.onnx.graph import ExportGraph, exporter

if TYPE_CHECKING:
    from lightnet.dialects.ln.recurrent import Gru, Lstm, Recurrent, Rnn

#: The activations of LightNet: their names in ONNX, and whether they have an alpha and a beta.
_ACTIVATIONS = {own: (name, alpha is not None, beta is not None) for name, (own, alpha, beta) in RECURRENT.items()}


def _layer(g: ExportGraph, op: Recurrent, kind: str, names: Sequence[str], alpha: Sequence[float],
           beta: Sequence[float], inputs: Sequence[str], *states: str, **attributes: Any) -> list[str]:  # fmt: skip
    """The node. `inputs` are gates, weight and lens, then `bias` ("" for none); `states` the initial ones, and more."""
    gates, weight, lens, bias = inputs
    spec, hidden = op.operand_specs[0], op.sizes[2]
    rows = [_ACTIVATIONS[name] for name in names]
    identity = g.const(np.eye(spec.dims[2])[None], spec.dtype)
    first = g.ints([0])
    recurrent = g.node("Unsqueeze", g.node("Transpose", weight, perm=[1, 0]), first)
    outputs = g.node_n(
        kind, 3 if kind == "LSTM" else 2, gates, identity, recurrent, bias, lens, *states,
        hidden_size=hidden, direction="reverse" if op.reverse else "forward", clip=float(op.clip) if op.clip else None,
        activations=[row[0] for row in rows],
        activation_alpha=[float(a) for a, row in zip(alpha, rows) if row[1]] or None,
        activation_beta=[float(b) for b, row in zip(beta, rows) if row[2]] or None, **attributes,
    )  # fmt: skip
    starts = [g.node("Squeeze", x, first) for x in states[: len(outputs) - 1]]
    ends = [g.node("Squeeze", x, first) for x in outputs[1:]]
    return [g.node("Squeeze", outputs[0], g.ints([1])), *_without_steps(g, op, lens, starts, ends)]


def _without_steps(g: ExportGraph, op: LnOp, lens: str, starts: Sequence[str], ends: Sequence[str]) -> Sequence[str]:
    """The last states: of a sequence without a step the initial ones, of which ONNX says nothing."""
    known = g.initializers.get(lens)
    if known is not None and (known > 0).all():
        return ends
    some = g.node("Less", g.const(0, "i32"), g.reshape(lens, [-1, 1]))
    return [g.where(op.operand_specs[0].dtype, some, end, start) for end, start in zip(ends, starts)]


def _with_direction(g: ExportGraph, *tensors: str) -> list[str]:
    """With the axis of the directions, of which there is one, in front."""
    return [g.node("Unsqueeze", x, g.ints([0])) for x in tensors]


@exporter("lstm")
def lstm(g: ExportGraph, op: Lstm, gates: str, weight: str, h0: str, lens: str, c0: str, peephole: str) -> list[str]:
    states = _with_direction(g, h0, c0, peephole)
    return _layer(g, op, "LSTM", (op.f, op.g, op.k), op.alpha, op.beta, (gates, weight, lens, ""), *states,
                  input_forget=int(op.input_forget))  # fmt: skip


@exporter("gru")
def gru(g: ExportGraph, op: Gru, gates: str, weight: str, h0: str, lens: str, bias: str) -> list[str]:
    """The bias is the last of ONNX's six vectors, and counts with linear_before_reset alone."""
    whole = ""
    if op.linear_before_reset:
        zeros = g.const(np.zeros(5 * op.sizes[2]), op.operand_specs[0].dtype)
        (whole,) = _with_direction(g, g.node("Concat", zeros, bias, axis=0))
    return _layer(g, op, "GRU", (op.f, op.g), op.alpha, op.beta, (gates, weight, lens, whole), *_with_direction(g, h0),
                  linear_before_reset=int(op.linear_before_reset))  # fmt: skip


@exporter("rnn")
def rnn(g: ExportGraph, op: Rnn, gates: str, weight: str, h0: str, lens: str) -> list[str]:
    return _layer(g, op, "RNN", (op.f,), (op.alpha,), (op.beta,), (gates, weight, lens, ""), *_with_direction(g, h0))
