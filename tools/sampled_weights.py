"""Weights and inputs for a network that has none: drawn so that activations neither vanish, explode nor go constant.

For tests and benchmarks of whole networks, whose published files come without weights. `lightnet_trust.data` draws what shows a wrong
rewrite; what this draws keeps rounding errors small (`LIFT`), so that two implementations can be held against each other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.ir import Operation, SSAValue

from lightnet.dialects.ln.conv import Conv2d, Deconv2d
from lightnet.dialects.ln.norm import Batchnorm
from lightnet.dialects.ln.source import Source
from lightnet.ir.op import LnOp
from lightnet.model import Model
from lightnet.passes.bind import is_data
from lightnet.runtime.dtypes import convert
from lightnet.runtime.initial import sample, uniform

_SPATIAL = (0, 2, 3)
#: What is added to biases, in standard deviations of the data. Around 0 every ReLU rectifies half of its elements, and a
#: normalised network of that kind doubles rounding errors every few layers (Yang et al., "A Mean Field Theory of Batch
#: Normalization", 2019); at 1 it rectifies a sixth, and 70 layers lose one digit.
LIFT = 1.0


def sampled_weights(model: Model, seed: int = 0) -> dict[str, np.ndarray]:
    """Contents for every input and param of a level-1 network, by name; they depend on names, `seed` and network only.

    Use them with ``lightnet.load(path, weights=sampled_weights(model), override=True)``.

    Inputs keep the contents that the network gives them; one that comes from a file, or is constant, is uniform in its
    `ran` ([-1, 1] without). Params are drawn by the operand that they are (`runtime.initial.sample`). Then, in the order
    of the program and by the references of the ops, those of convolutions and batch norms are fitted to their data: a
    convolution's result has mean 1 in each channel and variance 1 over all, but for a small random bias, and a batch
    norm's statistics are near the true ones. After Krähenbühl et al., "Data-dependent Initializations of Convolutional
    Neural Networks" (2016), section 3. Takes about as long as the interpreter: seconds for full-size networks.
    """
    sampler = _Sampler(seed)
    ops = list(model.main.body.block.ops)
    for op in ops:
        sampler.visit(op)
    for op in ops:
        if isinstance(op, Source) and _name(op) not in sampler.contents:  # a param that no op reads as one
            sampler.contents[_name(op)] = op.contents(None, seed)
    return sampler.contents


def _name(source: Source) -> str:
    return source.tensor_names[0] or source.op_name or "?"


class _Sampler:
    """The contents drawn so far, and the values of the tensors that are still read."""

    def __init__(self, seed: int):
        self.seed = seed
        self.contents: dict[str, np.ndarray] = {}
        self.values: dict[SSAValue, np.ndarray] = {}
        self.uses: dict[SSAValue, int] = {}

    def visit(self, op: Operation) -> None:
        if isinstance(op, Source):
            if is_data(op.results[0]):
                self.values[op.results[0]] = self.contents[_name(op)] = self.input(op)
        elif isinstance(op, LnOp) and not op.is_host:
            fresh = self.draw_params(op)
            operands = [self.values[v] for v in op.operands]
            if fresh and isinstance(op, Conv2d | Deconv2d) and op.operand_specs[0].dtype.is_float:
                results = self.fit_convolution(op, *operands)
            elif fresh and isinstance(op, Batchnorm):
                results = self.fit_batchnorm(op, *operands)
            else:
                results = op.evaluate(operands)
            self.values.update(zip(op.results, results))
        for value in op.operands:
            self.uses[value] = self.uses.get(value, 0) + 1
            if self.uses[value] == len(list(value.uses)):
                self.values.pop(value, None)

    def input(self, op: Source) -> np.ndarray:
        spec, own = op.result_specs[0], op.contents(None, self.seed)
        if not op.from_file and np.any(own != own.flat[0]):
            return own
        low, high = op.ran if tuple(op.ran) != (0, 0) else (-1, 1) if spec.dtype.is_float else (0, 100)
        return convert(uniform(_name(op), self.seed, spec.len, low, high), spec.dtype).reshape(spec.dims)

    def draw_params(self, op: LnOp) -> bool:
        """Draw the operands that have no value yet; whether `op` is the first reader of all of its params."""
        fresh = True
        for value, field, spec in zip(op.operands, op.schema.operand_fields(len(op.operands)), op.operand_specs):
            source = value.owner
            if value in self.values:
                fresh &= field.role != "param"
            elif isinstance(source, Source):
                fan_in = int(np.prod(spec.dims[1:])) if field.kind == "weight" else None
                array = sample(_name(source), field.kind, spec.dims, spec.dtype, seed=self.seed, fan_in=fan_in)
                self.values[value] = self.contents[_name(source)] = array
        return fresh

    def fit_convolution(self, op: LnOp, src: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> list[np.ndarray]:
        """Weights / deviation, bias + LIFT - mean / deviation; returns the result, which is as linear in them."""
        (raw,) = op.evaluate([src, weight, np.zeros_like(bias)])
        mean, variance = _statistics(raw)
        deviation = np.sqrt(variance.mean())
        bias = (bias + LIFT - mean / deviation).astype(bias.dtype)
        self.fit(op, [(weight / deviation).astype(weight.dtype), bias])
        return [(raw / deviation + bias[:, None, None]).astype(raw.dtype)]

    def fit_batchnorm(self, op: LnOp, src: np.ndarray, *drawn: np.ndarray) -> list[np.ndarray]:
        """The drawn statistics are relative to the true ones: mean + deviation * drawn, variance * drawn; offset + LIFT."""
        scale, offset, drawn_mean, drawn_variance = drawn
        mean, variance = _statistics(src)
        fitted = [scale, offset + LIFT, mean + np.sqrt(variance) * drawn_mean, variance * drawn_variance]
        fitted = [a.astype(src.dtype) for a in fitted]
        self.fit(op, fitted)
        return op.evaluate([src, *fitted])

    def fit(self, op: LnOp, params: Sequence[np.ndarray]) -> None:
        """Give the params of `op`, which are its operands but the first, other contents."""
        for value, array in zip(op.operands[1:], params, strict=True):
            assert isinstance(value.owner, Source)
            self.values[value] = self.contents[_name(value.owner)] = array


def _statistics(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of each channel of [N, C, H, W]. A channel that does not vary (of one element, say) counts
    as one of mean 0 and of the mean square of all, so that nothing is divided by zero and channels stay different."""
    x = x.astype(np.float64)
    mean, variance = x.mean(axis=_SPATIAL), x.var(axis=_SPATIAL)
    overall = float(np.mean(np.square(x)))
    flat = variance <= 1e-6 * overall
    return np.where(flat, 0, mean), np.where(flat, overall or 1.0, variance)
