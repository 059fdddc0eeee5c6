"""Weights and inputs for a network that has none: drawn so that activations neither vanish nor explode.

For tests and benchmarks of whole networks, whose published files come without weights. The mean square of every tensor
is estimated from its op's, in the order of the program, and each layer's weights are scaled by it, after He et al.,
"Delving Deep into Rectifiers" (2015), section 2.2. Imports NumPy, the dialect and the runtime.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from xdsl.ir import SSAValue

from lightnet.dialects.ln.source import Create, Input, ParamOp
from lightnet.ir.op import LnOp
from lightnet.ir.schema import Operand
from lightnet.model import Model
from lightnet.passes.bind import is_data
from lightnet.runtime.dtypes import convert
from lightnet.runtime.initial import sample, uniform

Source = Create | Input | ParamOp


def sampled_weights(model: Model, seed: int = 0) -> dict[str, np.ndarray]:
    """Contents for every input and param of a level-1 network, by name; each belongs to its name and `seed`.

    Use them with ``lightnet.load(path, weights=sampled_weights(model), override=True)``.

    Inputs keep the contents that the network gives them; one that comes from a file, or is constant, is uniform in its
    `ran` ([-1, 1] without). Params are drawn by the operand that they are: weights such that their layer's result has a
    mean square of 1, a batch norm's statistics such that they are those of its operand, anchors in pixels.
    """
    found: dict[str, np.ndarray] = {}
    squares: dict[SSAValue, float] = {}
    for op in model.main.body.block.ops:
        if isinstance(op, Source):
            if is_data(op.results[0]):
                array = _input(op, seed)
                found[op.tensor_names[0] or ""] = array
                squares[op.results[0]] = float(np.mean(np.square(array, dtype=np.float64)))
        elif isinstance(op, LnOp):
            inner = [squares.get(v, 1.0) for v in op.operands]
            _draw_params(op, inner, found, seed)
            square = _result_square(op, inner)
            squares.update(dict.fromkeys(op.results, square))
    for op in model.main.body.block.ops:
        if isinstance(op, Source) and op.tensor_names[0] not in found:  # a param that no op reads as one
            found[op.tensor_names[0] or ""] = op.contents(None, seed)
    return found


def _input(op: Source, seed: int) -> np.ndarray:
    spec, name = op.result_specs[0], op.tensor_names[0] or ""
    own = op.contents(None, seed)
    if not op.from_file and np.any(own != own.flat[0]):
        return own
    low, high = op.ran if tuple(op.ran) != (0, 0) else (-1, 1) if spec.dtype.is_float else (0, 100)
    return convert(uniform(name, seed, spec.len, low, high), spec.dtype).reshape(spec.dims)


def _draw_params(op: LnOp, squares: list[float], found: dict[str, np.ndarray], seed: int) -> None:
    """Draw the params of `op` that no op before it drew; `squares` are its operands' mean squares."""
    fields = op.schema.operand_fields(len(op.operands))
    for value, field, spec in zip(op.operands, fields, op.operand_specs):
        source = value.owner
        name = source.tensor_names[0] if isinstance(source, Source) else None
        if field.role != "param" or name is None or name in found:
            continue
        fan_in = _fan_in(op) if field.kind == "weight" else None
        array = sample(name, field.kind, spec.dims, spec.dtype, seed=seed, fan_in=fan_in)
        found[name] = (array * _scale(field, squares[0])).astype(array.dtype) if spec.dtype.is_float else array


def _fan_in(op: LnOp) -> int | None:
    """Products that add up to one element of the result."""
    dims = op.operand_specs[1].dims
    if op.optype == "deconv2d":  # every stride-th element of a window meets an input
        return max(1, round(dims[0] / op.group * math.prod(dims[2:]) / math.prod(op.stride)))
    return math.prod(dims[1:])


def _scale(field: Operand, square: float) -> float:
    """The factor that fits a param to data of a given mean square."""
    square = max(square, 1e-12)
    return {"weight": square**-0.5, "mean": square**0.5, "variance": square}.get(field.kind, 1.0)


def _result_square(op: LnOp, squares: list[float]) -> float:
    """An estimate of a result's mean square from the operands', for activations around zero."""
    first = squares[0] if squares else 1.0
    estimates: Mapping[str, float] = {
        "conv2d": 1.0, "deconv2d": 1.0, "batchnorm": 1.2, "relu": first / 2, "sigmoid": 0.3, "softmax": 0.1,
        "avgpool2d": first / 2,
    }  # fmt: skip
    if op.optype == "lrelu":
        return first * (1 + op.negslope**2) / 2
    if op.optype == "maxpool2d":  # of k independent values, a little less than 2 log k; neighbours are not independent
        return first * (1 + math.log(math.prod(op.size)))
    if op.optype == "submean":
        return max(first - float(np.mean(np.square(op.mean))), 1.0)
    if op.optype == "elew" and op.elew_op in ("TL_SUM", "TL_SUB"):
        return first + squares[1]
    if op.optype == "elew" and op.elew_op == "TL_MUL":
        return first * squares[1]
    if op.optype == "concat":
        a, b = (s.len for s in op.operand_specs)
        return (first * a + squares[1] * b) / (a + b)
    return estimates.get(op.optype, first)
