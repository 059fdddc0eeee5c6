"""Activations, normalisations and attention as exporters of ONNX spell them out: one graph for each spelling, by name.

Written by hand after what the exporters emit (PyTorch's TorchScript symbolics and torchlib, tf2onnx of `tf.nn` and of Keras's layers): one for each rule.
`exported.py` has what PyTorch's exporters wrote themselves. The constants are rounded as they round them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Spelling(NamedTuple):
    """How something is spelt: the rule that recognises it, the op that this makes, and the graph."""

    rule: str
    op: str
    model: onnx.ModelProto


class Writer:
    """Builds a graph of one input x; constants are initializers of rank 0, or `Constant` nodes where `as_nodes`."""

    def __init__(self, dims: tuple[int | str, ...], as_nodes: bool = False):
        self.dims, self.as_nodes = dims, as_nodes
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}

    def __call__(self, op: str, *inputs: str | float | np.ndarray, **attributes) -> str:
        names = [i if isinstance(i, str) else self.constant(i) for i in inputs]
        self.nodes.append(helper.make_node(op, names, [f"t{len(self.nodes)}"], **attributes))
        return self.nodes[-1].output[0]

    def constant(self, value: float | np.ndarray) -> str:
        array = np.asarray(value, np.int64 if isinstance(value, int) else np.float32)
        name = f"c{len(self.weights)}"
        if self.as_nodes:
            name = f"k{len(self.nodes)}"
            self.nodes.append(helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array)))
        else:
            self.weights[name] = array
        return name

    def model(self, y: str, opset: int = 17, inputs: tuple[str, ...] = ("x",)) -> onnx.ModelProto:
        self.nodes.append(helper.make_node("Identity", [y], ["y"]))
        graph = helper.make_graph(
            self.nodes,
            "g",
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, self.dims) for name in inputs],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(array, name) for name, array in self.weights.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


# -- activations -------------------------------------------------------------------------------------------------------


def _torch_gelu(w: Writer) -> str:
    """TorchScript: x * (1 + erf(x / 1.4142...)) * 0.5."""
    one = w("Add", w("Erf", w("Div", "x", 1.41421353816986)), 1.0)
    return w("Mul", w("Mul", "x", one), 0.5)


def _torchlib_gelu(w: Writer) -> str:
    """torchlib: the constants as nodes, in front."""
    one = w("Add", w("Erf", w("Div", "x", 1.4142135381698608)), 1.0)
    return w("Mul", 0.5, w("Mul", "x", one))


def _keras_gelu(w: Writer) -> str:
    """tf.nn.gelu: 0.5 * x * (1 + erf(x / sqrt(2))), the quotient as a product."""
    half = w("Mul", 0.5, "x")
    return w("Mul", half, w("Add", 1.0, w("Erf", w("Mul", "x", 0.70710677))))


def _transformers_gelu(w: Writer) -> str:
    """Of the library transformers, in Python: x * 0.5 * (1 + erf(x / sqrt(2)))."""
    half = w("Mul", "x", 0.5)
    return w("Mul", half, w("Add", w("Erf", w("Div", "x", 1.4142135381698608)), 1.0))


def _bert_gelu(w: Writer) -> str:
    """x * (0.5 * (1 + erf(x / sqrt(2)))): BERT's own, of TensorFlow 1."""
    cdf = w("Mul", w("Add", w("Erf", w("Div", "x", 1.4142135)), 1.0), 0.5)
    return w("Mul", "x", cdf)


def _torch_gelu_tanh(w: Writer) -> str:
    """TorchScript: x * x * x as products."""
    inner = w("Mul", 0.7978845608028654, w("Add", "x", w("Mul", 0.044715, w("Mul", "x", w("Mul", "x", "x")))))
    return w("Mul", w("Mul", 0.5, "x"), w("Add", 1.0, w("Tanh", inner)))


def _torchlib_gelu_tanh(w: Writer) -> str:
    """torchlib: x ** 3 as a power."""
    inner = w("Mul", 0.7978845834732056, w("Add", "x", w("Mul", 0.044714998453855515, w("Pow", "x", 3.0))))
    return w("Mul", 0.5, w("Mul", "x", w("Add", w("Tanh", inner), 1.0)))


def _bert_gelu_tanh(w: Writer) -> str:
    """x * (0.5 * (1 + tanh(...))): BERT's own, of TensorFlow 1."""
    inner = w("Mul", w("Add", "x", w("Mul", w("Pow", "x", 3.0), 0.044715)), 0.7978845608)
    return w("Mul", "x", w("Mul", w("Add", w("Tanh", inner), 1.0), 0.5))


def _fast_gelu(w: Writer) -> str:
    """Of the library transformers: 0.5 * x * (1 + tanh(x * sqrt(2 / pi) * (1 + 0.044715 * x * x)))."""
    square = w("Mul", w("Mul", "x", 0.044714998453855515), "x")
    inner = w("Mul", w("Mul", "x", 0.7978845834732056), w("Add", square, 1.0))
    return w("Mul", w("Mul", "x", 0.5), w("Add", w("Tanh", inner), 1.0))


def _torch_mish(w: Writer) -> str:
    return w("Mul", "x", w("Tanh", w("Softplus", "x")))


def _torch_silu(w: Writer) -> str:
    return w("Mul", "x", w("Sigmoid", "x"))


def _quick_gelu(w: Writer) -> str:
    """CLIP's: x * sigmoid(1.702 x)."""
    return w("Mul", "x", w("Sigmoid", w("Mul", 1.702, "x")))


def _torch_hardswish(w: Writer) -> str:
    """A model's own, in PyTorch: x * relu6(x + 3) / 6."""
    return w("Div", w("Mul", "x", w("Clip", w("Add", "x", 3.0), 0.0, 6.0)), 6.0)


def _keras_hardswish(w: Writer) -> str:
    """Keras's MobileNetV3: x * (relu6(x + 3) * (1 / 6))."""
    return w("Mul", "x", w("Mul", w("Clip", w("Add", "x", 3.0), 0.0, 6.0), 0.16666667))


def _sigmoid_hardswish(w: Writer) -> str:
    """TorchScript before opset 14: x * hard_sigmoid(x)."""
    return w("Mul", "x", w("HardSigmoid", "x", alpha=1 / 6, beta=0.5))


# -- normalisations ----------------------------------------------------------------------------------------------------


def _gain(w: Writer) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.uniform(0.5, 1.5, w.dims[-1]).astype(np.float32), rng.normal(size=w.dims[-1]).astype(np.float32)


def _centred(w: Writer) -> tuple[str, str, str]:
    """The mean, x - mean, and the variance plus epsilon."""
    mean = w("ReduceMean", "x", axes=[-1])
    d = w("Sub", "x", mean)
    return mean, d, w("Add", w("ReduceMean", w("Pow", d, 2.0), axes=[-1]), 1e-5)


def _torch_layernorm(w: Writer) -> str:
    """TorchScript before opset 17."""
    gain, bias = _gain(w)
    _, d, variance = _centred(w)
    return w("Add", w("Mul", w("Div", d, w("Sqrt", variance)), gain), bias)


def _power_layernorm(w: Writer) -> str:
    """A model's own, whose root is a power."""
    _, d, variance = _centred(w)
    return w("Div", d, w("Pow", variance, 0.5))


def _rsqrt_layernorm(w: Writer) -> str:
    """A model's own, of torch.rsqrt: TorchScript divides 1 by the root."""
    _, d, variance = _centred(w)
    return w("Mul", d, w("Div", 1.0, w("Sqrt", variance)))


def _inverse_power_layernorm(w: Writer) -> str:
    _, d, variance = _centred(w)
    return w("Mul", w("Pow", variance, -0.5), d)


def _keras_layernorm(w: Writer) -> str:
    """tf.nn.batch_normalization, by which Keras 2 writes it: x * (r * gamma) + (beta - mean * (r * gamma))."""
    gain, bias = _gain(w)
    mean, _, variance = _centred(w)
    scale = w("Mul", w("Reciprocal", w("Sqrt", variance)), gain)
    return w("Add", w("Mul", "x", scale), w("Sub", bias, w("Mul", mean, scale)))


def _keras3_layernorm(w: Writer) -> str:
    """Keras 3: x * (r * gamma) + (-mean * (r * gamma) + beta)."""
    gain, bias = _gain(w)
    mean, _, variance = _centred(w)
    scale = w("Mul", w("Reciprocal", w("Sqrt", variance)), gain)
    return w("Add", w("Mul", "x", scale), w("Add", w("Mul", w("Neg", mean), scale), bias))


def _squares(w: Writer) -> str:
    return w("Add", w("ReduceMean", w("Pow", "x", 2.0), axes=[-1]), 1e-6)


def _torch_rmsnorm(w: Writer) -> str:
    """Of Llama, by TorchScript: x * rsqrt(mean of squares + epsilon), times a gain."""
    return w("Mul", w("Mul", "x", w("Div", 1.0, w("Sqrt", _squares(w)))), _gain(w)[0])


def _torchlib_rmsnorm(w: Writer) -> str:
    """Of Llama, by torchlib: rsqrt is a reciprocal."""
    return w("Mul", _gain(w)[0], w("Mul", "x", w("Reciprocal", w("Sqrt", _squares(w)))))


def _quotient_rmsnorm(w: Writer) -> str:
    return w("Div", "x", w("Sqrt", _squares(w)))


def _power_rmsnorm(w: Writer) -> str:
    return w("Mul", "x", w("Pow", _squares(w), -0.5))


# fmt: off
_SPELT: dict[str, tuple[str, str, Callable[[Writer], str], bool]] = {
    "torch gelu": ("activations.gelu", "ln.gelu", _torch_gelu, False),
    "torchlib gelu": ("activations.gelu", "ln.gelu", _torchlib_gelu, True),
    "keras gelu": ("activations.gelu-half-first", "ln.gelu", _keras_gelu, False),
    "transformers gelu": ("activations.gelu-half-first", "ln.gelu", _transformers_gelu, True),
    "bert gelu": ("activations.gelu-half-inside", "ln.gelu", _bert_gelu, False),
    "torch gelu tanh": ("activations.gelu-tanh-half-first", "ln.gelu", _torch_gelu_tanh, False),
    "torchlib gelu tanh": ("activations.gelu-tanh", "ln.gelu", _torchlib_gelu_tanh, True),
    "bert gelu tanh": ("activations.gelu-tanh-half-inside", "ln.gelu", _bert_gelu_tanh, False),
    "fast gelu": ("activations.gelu-tanh-factored", "ln.gelu", _fast_gelu, True),
    "torch mish": ("activations.mish", "ln.mish", _torch_mish, False),
    "torch silu": ("activations.silu", "ln.silu", _torch_silu, False),
    "quick gelu": ("activations.silu-scaled", "ln.silu", _quick_gelu, False),
    "torch hardswish": ("activations.hard-swish", "ln.hard_swish", _torch_hardswish, True),
    "keras hardswish": ("activations.hard-swish-of-quotient", "ln.hard_swish", _keras_hardswish, False),
    "sigmoid hardswish": ("activations.hard-swish-of-sigmoid", "ln.hard_swish", _sigmoid_hardswish, False),
    "torch layernorm": ("norms.layernorm", "ln.layernorm", _torch_layernorm, True),
    "power layernorm": ("norms.layernorm-by-power-root", "ln.layernorm", _power_layernorm, False),
    "rsqrt layernorm": ("norms.layernorm-by-inverse", "ln.layernorm", _rsqrt_layernorm, False),
    "inverse power layernorm": ("norms.layernorm-by-power", "ln.layernorm", _inverse_power_layernorm, False),
    "keras layernorm": ("norms.layernorm-moved", "ln.layernorm", _keras_layernorm, False),
    "keras 3 layernorm": ("norms.layernorm-negated", "ln.layernorm", _keras3_layernorm, False),
    "torch rmsnorm": ("norms.rmsnorm-by-inverse", "ln.rmsnorm", _torch_rmsnorm, True),
    "torchlib rmsnorm": ("norms.rmsnorm-by-inverse", "ln.rmsnorm", _torchlib_rmsnorm, True),
    "quotient rmsnorm": ("norms.rmsnorm", "ln.rmsnorm", _quotient_rmsnorm, False),
    "power rmsnorm": ("norms.rmsnorm-by-power", "ln.rmsnorm", _power_rmsnorm, False),
}
# fmt: on
SPELLINGS = tuple(_SPELT)


def spelling(name: str, dims: tuple[int | str, ...] = (2, 5, 24)) -> Spelling:
    """The graph of that name, on an x of `dims`, of which a text is one that calls decide."""
    rule, op, write, as_nodes = _SPELT[name]
    writer = Writer(dims, as_nodes)
    return Spelling(rule, op, writer.model(write(writer)))


def spellings() -> Iterator[tuple[str, Spelling]]:
    """All of them."""
    return ((name, spelling(name)) for name in SPELLINGS)
