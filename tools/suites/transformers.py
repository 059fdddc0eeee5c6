"""Two small transformers as ONNX models, of random weights that belong to their names: what `tools/bench.py` measures beside
convolutional networks.

* bert-mini: 4 layers of width 256 with 4 heads on 128 tokens (Turc et al., "Well-Read Students Learn Better", 2019; Devlin et al.,
  "BERT", 2019: normalisation behind each part, GELU by erf).
* vit-tiny: 12 layers of width 192 with 3 heads on the 196 patches of a picture (Dosovitskiy et al., "An Image is Worth 16x16 Words",
  2021; Touvron et al., "DeiT", 2021), normalisation before each part, the mean of the tokens classified.

Imports onnx, NumPy, and the generator of our random contents.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from lightnet.runtime.files import write_atomic
from lightnet.runtime.initial import uniform

OPSET = 18
EPSILON = 1e-5
TOKENS, VOCABULARY = 128, 30522
PICTURE, PATCH, CLASSES = 224, 16, 1000


class Graph:
    """A model under construction. Values are names; a weight has the name of its place in the model."""

    def __init__(self, name: str):
        self.name = name
        self.nodes: list[Any] = []
        self.weights: dict[str, Any] = {}

    def op(self, kind: str, *operands: str, **attributes: Any) -> str:
        """The result of a node."""
        result = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(operands), [result], **attributes))
        return result

    def constant(self, value: Any) -> str:
        """Numbers that the graph spells out: f32, or i64 where they are integers."""
        array = np.asarray(value)
        array = array.astype(np.float32 if array.dtype.kind == "f" else np.int64)
        return self._add(f"const{len(self.weights)}", array)

    def weight(self, name: str, dims: Sequence[int], deviation: float) -> str:
        """Uniform contents of that deviation around 0."""
        high = deviation * 3**0.5
        array = uniform(f"{self.name}/{name}", 0, int(np.prod(dims)), -high, high)
        return self._add(name, array.astype(np.float32).reshape(tuple(dims)))

    def _add(self, name: str, array: np.ndarray) -> str:
        self.weights[name] = numpy_helper.from_array(array, name)
        return name

    def linear(self, name: str, x: str, inner: int, outer: int) -> str:
        """x times a matrix [inner, outer], plus a bias."""
        product = self.op("MatMul", x, self.weight(f"{name}.weight", (inner, outer), inner**-0.5))
        return self.op("Add", product, self.weight(f"{name}.bias", (outer,), 0.02))

    def norm(self, name: str, x: str, width: int) -> str:
        """Layer normalisation over the last axis, with scales near 1."""
        high = 0.1
        scale = 1 + uniform(f"{self.name}/{name}.scale", 0, width, -high, high)
        scale_name = self._add(f"{name}.scale", scale.astype(np.float32))
        return self.op("LayerNormalization", x, scale_name, self.weight(f"{name}.bias", (width,), 0.02), axis=-1,
                       epsilon=EPSILON)  # fmt: skip

    def gelu(self, x: str) -> str:
        """x (1 + erf(x / sqrt 2)) / 2 (Hendrycks and Gimpel, 2016)."""
        inner = self.op("Erf", self.op("Div", x, self.constant(2**0.5)))
        return self.op("Mul", self.op("Mul", x, self.op("Add", inner, self.constant(1.0))), self.constant(0.5))

    def attention(self, name: str, x: str, batch: int, tokens: int, width: int, heads: int) -> str:
        """softmax(Q K^T / sqrt d) V in `heads` heads of size d, and a linear map (Vaswani et al., 2017)."""
        size = width // heads
        shape = self.constant([batch, tokens, heads, size])

        def split(part: str, perm: Sequence[int]) -> str:
            projected = self.linear(f"{name}.{part}", x, width, width)
            return self.op("Transpose", self.op("Reshape", projected, shape), perm=perm)

        queries, keys, values = split("q", (0, 2, 1, 3)), split("k", (0, 2, 3, 1)), split("v", (0, 2, 1, 3))
        scores = self.op("Div", self.op("MatMul", queries, keys), self.constant(size**0.5))
        mixed = self.op("MatMul", self.op("Softmax", scores, axis=-1), values)
        joined = self.op(
            "Reshape", self.op("Transpose", mixed, perm=(0, 2, 1, 3)), self.constant([batch, tokens, width])
        )
        return self.linear(f"{name}.out", joined, width, width)

    def perceptron(self, name: str, x: str, width: int) -> str:
        """Four times as wide, GELU, and back."""
        wide = self.gelu(self.linear(f"{name}.wide", x, width, 4 * width))
        return self.linear(f"{name}.narrow", wide, 4 * width, width)

    def model(self, source: tuple[str, int, Sequence[int]], result: str, dims: Sequence[int]) -> ModelProto:
        """The finished model with one input (name, type, dims) and one f32 output."""
        inputs = [helper.make_tensor_value_info(*source)]
        outputs = [helper.make_tensor_value_info(result, TensorProto.FLOAT, dims)]
        graph = helper.make_graph(self.nodes, self.name, inputs, outputs, list(self.weights.values()))
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)


def bert_mini(batch: int = 1) -> ModelProto:
    """ids [batch, 128] i64 -> [batch, 128, 256] f32."""
    g, width = Graph("bert-mini"), 256
    words = g.op("Gather", g.weight("words", (VOCABULARY, width), 1.0), "ids", axis=0)
    x = g.norm("embedding", g.op("Add", words, g.weight("positions", (1, TOKENS, width), 0.5)), width)
    for k in range(4):
        x = g.norm(f"{k}.norm1", g.op("Add", x, g.attention(f"{k}.attention", x, batch, TOKENS, width, 4)), width)
        x = g.norm(f"{k}.norm2", g.op("Add", x, g.perceptron(f"{k}.perceptron", x, width)), width)
    return g.model(("ids", TensorProto.INT64, [batch, TOKENS]), x, [batch, TOKENS, width])


def vit_tiny(batch: int = 1) -> ModelProto:
    """picture [batch, 3, 224, 224] f32 -> [batch, 1000] f32."""
    g, width = Graph("vit-tiny"), 192
    tokens, fan_in = (PICTURE // PATCH) ** 2, 3 * PATCH**2
    weight = g.weight("patches.weight", (width, 3, PATCH, PATCH), fan_in**-0.5)
    patches = g.op("Conv", "picture", weight, g.weight("patches.bias", (width,), 0.02), kernel_shape=[PATCH] * 2,
                   strides=[PATCH] * 2)  # fmt: skip
    rows = g.op("Transpose", g.op("Reshape", patches, g.constant([batch, width, tokens])), perm=(0, 2, 1))
    x = g.op("Add", rows, g.weight("positions", (1, tokens, width), 0.5))
    for k in range(12):
        x = g.op("Add", x, g.attention(f"{k}.attention", g.norm(f"{k}.norm1", x, width), batch, tokens, width, 3))
        x = g.op("Add", x, g.perceptron(f"{k}.perceptron", g.norm(f"{k}.norm2", x, width), width))
    mean = g.op("ReduceMean", g.norm("norm", x, width), g.constant([1]), keepdims=0)
    return g.model(("picture", TensorProto.FLOAT, [batch, 3, PICTURE, PICTURE]), g.linear("classes", mean, width, CLASSES),
                   [batch, CLASSES])  # fmt: skip


def _ids(batch: int) -> np.ndarray:
    """Numbers of words, [batch, TOKENS]."""
    return uniform("ids", 0, batch * TOKENS, 0, VOCABULARY - 1).astype(np.int64).reshape(batch, TOKENS)


#: The models by name, and inputs for them, for a batch.
MODELS: dict[str, tuple[Callable[..., ModelProto], Callable[..., dict[str, np.ndarray]]]] = {
    "bert-mini": (bert_mini, lambda batch=1: {"ids": _ids(batch)}),
    "vit-tiny": (vit_tiny, lambda batch=1: {}),
}


def write(name: str, folder: Path, batch: int = 1) -> Path:
    """The model for a batch as a file below `folder`, written once."""
    version = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]
    path = folder / f"transformers-{version}" / (f"{name}.onnx" if batch == 1 else f"{name}-{batch}.onnx")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(str(path), MODELS[name][0](batch).SerializeToString())
    return path
