"""A network of ours as a PyTorch module, so that both compute the same: level-1 ops as calls of `torch.nn.functional`, batch norms folded into the
convolutions before them, as people deploy them. Imports torch where a module is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from xdsl.dialects import func
from xdsl.ir import SSAValue

from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.source import ParamOp, Source
from lightnet.dialects.ln.window import effective_padding
from lightnet.ir.locations import loc_of
from lightnet.ir.op import LnOp
from lightnet.ir.types import spec_of
from lightnet.model import Model
from lightnet.passes.bind import is_data

#: A step: how a value follows from others, and which.
Step = tuple[Callable[..., Any], tuple[SSAValue, ...]]


def supports(op: LnOp) -> bool:
    """Return whether an op has a form here."""
    return op.optype in _FORMS or op.optype in ("conv2d", "batchnorm")


def module_of(model: Model, given: Mapping[str, np.ndarray], device: str, dtype: str) -> Any:
    """The `torch.nn.Module` of a network on a device, in a type of torch (``float16``), maps with the channels last. Its parameters are what
    `given` holds; it takes the network's inputs in order and gives a tuple of its outputs. Raises LightNetError for an op that has no form."""
    import torch

    builder = _Builder(given)
    for op in model.main.body.block.ops:
        builder.add(op)
    inputs, outputs, steps = builder.inputs, builder.outputs, list(builder.steps.items())
    names = {value: f"w{i}" for i, value in enumerate(builder.parameters)}

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for value, name in names.items():
                array = torch.from_numpy(np.array(builder.parameters[value], np.float32))
                self.register_buffer(name, array)

        def forward(self, *tensors: Any) -> tuple[Any, ...]:
            known = dict(zip(inputs, tensors)) | {value: getattr(self, name) for value, name in names.items()}
            for value, (function, operands) in steps:
                known[value] = function(*(known[v] for v in operands))
            return tuple(known[v] for v in outputs)

    return Network().eval().to(device=device, dtype=getattr(torch, dtype)).to(memory_format=torch.channels_last)


class _Builder:
    def __init__(self, given: Mapping[str, np.ndarray]):
        self._given = given
        self.inputs: list[SSAValue] = []
        self.outputs: list[SSAValue] = []
        self.parameters: dict[SSAValue, np.ndarray] = {}
        self.steps: dict[SSAValue, Step] = {}

    def add(self, op: Any) -> None:
        if isinstance(op, func.ReturnOp):
            self.outputs = list(op.operands)
            return
        if isinstance(op, Source):
            value, name = op.results[0], op.tensor_names[0] or op.op_name or ""
            if is_input(op):
                self.inputs.append(value)
            else:
                self.parameters[value] = np.asarray(self._given[name])
            return
        if not isinstance(op, LnOp) or not supports(op):
            raise LightNetError(f"'{op.name}' has no form in PyTorch here", loc_of(op), label="torch.op")
        if op.optype == "conv2d":
            self.steps[op.results[0]] = _convolution(op), tuple(op.operands)
        elif op.optype == "batchnorm":
            self._normalisation(op)
        else:
            self.steps[op.results[0]] = _FORMS[op.optype](op), tuple(op.operands)

    def _normalisation(self, op: LnOp) -> None:
        """``scale (x - mean) / sqrt(var + epsilon) + offset``, folded into the weights of a convolution that nobody else reads."""
        import torch.nn.functional as F

        src, *statistics = op.operands
        scale, offset, mean, variance = (self.parameters[v].astype(np.float64) for v in statistics)
        factor = scale / np.sqrt(variance + op.epsilon)
        step = self.steps.get(src)
        alone = len(list(src.uses)) == 1 and isinstance(src.owner, LnOp) and src.owner.optype == "conv2d"
        if step is None or not alone or any(len(list(v.uses)) != 1 for v in step[1][1:]):
            epsilon = op.epsilon
            self.steps[op.results[0]] = (
                (lambda x, s, o, m, v: F.batch_norm(x, m, v, s, o, eps=epsilon)),
                tuple(op.operands),
            )
            return
        _, weight, bias = step[1]
        self.parameters[weight] = self.parameters[weight] * factor[:, None, None, None]
        self.parameters[bias] = (self.parameters[bias] - mean) * factor + offset
        del self.steps[src]
        self.steps[op.results[0]] = step
        for value in statistics:
            if len(list(value.uses)) == 1:
                del self.parameters[value]


def is_input(op: Source) -> bool:
    """Return whether a source is data, as the pass `bind` has it."""
    return not isinstance(op, ParamOp) and is_data(op.results[0])


def _padded(op: LnOp, value: float | None = 0.0) -> tuple[Callable[[Any], Any], tuple[int, int]]:
    """The function to apply to a map before a window, and the padding that the window's own function then has. Where
    padding is of no value (None), it has to be the same on both sides.
    """
    import torch.nn.functional as F

    dilation = op.dilation if op.optype == "conv2d" else (1, 1)
    top, left, bottom, right = effective_padding(op, spec_of(op.operands[0].type).dims[2:], dilation)
    if (top, left) == (bottom, right) and min(top, left) >= 0:
        return (lambda x: x), (top, left)
    if value is None:
        raise LightNetError(f"{op.optype} pads more on one side", loc_of(op), label="torch.op")
    return (lambda x: F.pad(x, (left, right, top, bottom), value=value)), (0, 0)


def _convolution(op: LnOp) -> Callable[..., Any]:
    import torch.nn.functional as F

    before, padding = _padded(op)
    stride, dilation, group = tuple(op.stride), tuple(op.dilation), op.group
    return lambda x, w, b: F.conv2d(before(x), w, b, stride, padding, dilation, group)


def _maxpool(op: LnOp) -> Callable[..., Any]:
    import torch.nn.functional as F

    before, padding = _padded(op, float("-inf"))
    size, stride = tuple(op.size), tuple(op.stride)
    if max(p * 2 > s for p, s in zip(padding, size)):
        raise LightNetError("maxpool2d pads by more than half of its window", loc_of(op), label="torch.op")
    return lambda x: F.max_pool2d(before(x), size, stride, padding)


def _avgpool(op: LnOp) -> Callable[..., Any]:
    import torch.nn.functional as F

    _, padding = _padded(op, None)
    size, stride = tuple(op.size), tuple(op.stride)
    return lambda x: F.avg_pool2d(x, size, stride, padding, count_include_pad=False)


def _elementwise(op: LnOp) -> Callable[..., Any]:
    import torch

    names = {
        "TL_SUM": "add",
        "TL_MUL": "mul",
        "TL_SUB": "sub",
        "TL_DIV": "div",
        "TL_MAX": "maximum",
        "TL_MIN": "minimum",
        "TL_POW": "pow",
    }
    return getattr(torch, names[op.elew_op])


def _upsample(op: LnOp) -> Callable[..., Any]:
    import torch.nn.functional as F

    scales = tuple(float(s) for s in op.scales)
    if op.mode != "TL_NEAREST" or scales[:2] != (1.0, 1.0) or not all(s.is_integer() for s in scales):
        raise LightNetError("upsample: nearest, by whole numbers, along rows and columns", loc_of(op), label="torch.op")
    return lambda x: F.interpolate(x, scale_factor=scales[2:], mode="nearest")


def _call(name: str, *params: str) -> Callable[[LnOp], Callable[..., Any]]:
    """A function of torch or torch.nn.functional, called with params of the op behind its operands."""

    def form(op: LnOp) -> Callable[..., Any]:
        import torch

        function = getattr(torch, name, None) or getattr(torch.nn.functional, name)
        given = tuple(getattr(op, p) for p in params)
        return lambda *tensors: function(*tensors, *given)

    return form


def _concat(op: LnOp) -> Callable[..., Any]:
    import torch

    axis = op.axis
    return lambda *tensors: torch.cat(tensors, axis)


def _reshape(op: LnOp) -> Callable[..., Any]:
    dims = spec_of(op.results[0].type).dims
    return lambda x: x.reshape(dims)


_FORMS: dict[str, Callable[[LnOp], Callable[..., Any]]] = {
    "relu": _call("relu"), "sigmoid": _call("sigmoid"), "lrelu": _call("leaky_relu", "negslope"), "clip": _call("clamp", "lo", "hi"),
    "add": _call("add"), "mul": _call("mul"), "matmul": _call("matmul"), "softmax": _call("softmax", "axis"),
    "transpose": _call("permute", "axes"), "elew": _elementwise, "concat": _concat, "reshape": _reshape,
    "maxpool2d": _maxpool, "avgpool2d": _avgpool, "upsample": _upsample,
}  # fmt: skip
