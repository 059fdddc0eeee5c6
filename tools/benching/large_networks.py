"""Networks of hundreds of megabytes of weights, in ONNX, by which memory is measured (`tools/bench_memory.py`).

Contents are random bits that are cheap to make; what a network computes does not matter. Each function writes one file (with `external`, its
weights beside it) under the shapes of a published architecture. Imports onnx and NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Builder:
    """An ONNX graph that is being made; `x` is the value that the next layer reads."""

    def __init__(self, x: str, dims: Sequence[int], dtype: int = TensorProto.FLOAT):
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.x = x
        self.inputs = [helper.make_tensor_value_info(x, dtype, dims)]
        self._random = np.random.default_rng(0)

    def weight(self, *dims: int, dtype: type = np.float32, of: np.ndarray | None = None) -> str:
        """A new initializer, of random contents near zero unless `of` is given."""
        if of is None:
            of = self.random(*dims).astype(dtype) if dtype != np.int8 else self._random.integers(-9, 9, dims, np.int8)
        self.weights.append(numpy_helper.from_array(of, f"w{len(self.weights)}"))
        return self.weights[-1].name

    def random(self, *dims: int) -> np.ndarray:
        """Noise whose variance is that of one over its first dim or window."""
        fan = int(np.prod(dims[1:])) if len(dims) == 4 else dims[0]
        return self._random.standard_normal(dims, np.float32) / np.float32(np.sqrt(fan))

    def op(self, kind: str, *inputs: str, **attributes: object) -> str:
        """The value of a new node, which becomes `x`."""
        self.nodes.append(helper.make_node(kind, list(inputs), [f"v{len(self.nodes)}"], **attributes))
        self.x = self.nodes[-1].output[0]
        return self.x

    def save(self, path: Path, external: bool = False) -> None:
        """Write the graph, which gives `x`."""
        y = helper.make_empty_tensor_value_info(self.x)
        y.type.tensor_type.elem_type = self.inputs[0].type.tensor_type.elem_type
        if y.type.tensor_type.elem_type == TensorProto.INT64:
            y.type.tensor_type.elem_type = TensorProto.FLOAT
        graph = helper.make_graph(self.nodes, "g", self.inputs, [y], self.weights)
        model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
        beside = {"save_as_external_data": True, "location": path.with_suffix(".data").name} if external else {}
        onnx.save(model, path, **beside)


def products(path: Path, layers: int = 100, dim: int = 1024, external: bool = False, dtype: type = np.float32) -> None:
    """A chain of square matrix products with ReLUs, on eight rows."""
    b = Builder("x", (8, dim), helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    for _ in range(layers):
        b.op("Relu", b.op("MatMul", b.x, b.weight(dim, dim, dtype=dtype)))
    b.save(path, external)


def quantized(path: Path, layers: int = 50, dim: int = 1024) -> None:
    """A chain of products whose weights are of 8 bits, dequantised, as quantisers of weights write it."""
    b = Builder("x", (8, dim))
    scale, zero = b.weight(of=np.float32(0.01)), b.weight(of=np.int8(0))
    for _ in range(layers):
        x = b.x
        b.op("Relu", b.op("MatMul", x, b.op("DequantizeLinear", b.weight(dim, dim, dtype=np.int8), scale, zero)))
    b.save(path)


def transformer(
    path: Path, layers: int = 12, dim: int = 768, vocabulary: int = 50257, tied: str = "", rows: int = 16
) -> None:
    """A decoder without its mask, of GPT-2's shapes. The embedding is the output projection, too, where it is `tied`: by a Transpose (``op``), or
    as a second initializer of the transposed contents (``copy``); else there is no projection."""
    b = Builder("ids", (1, rows), TensorProto.INT64)
    table = b.random(vocabulary, dim)
    embedding = b.weight(of=table)
    b.op("Gather", embedding, b.x)
    shape = b.weight(of=np.array([0, 0, 12, dim // 12]))
    flat = b.weight(of=np.array([0, 0, dim]))
    for _ in range(layers):
        start = b.x
        parts = []
        for axes in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]):
            b.op("Reshape", b.op("Add", b.op("MatMul", start, b.weight(dim, dim)), b.weight(dim)), shape)
            parts.append(b.op("Transpose", b.x, perm=axes))
        b.op("MatMul", b.op("Softmax", b.op("MatMul", *parts[:2]), axis=-1), parts[2])
        b.op("Reshape", b.op("Transpose", b.x, perm=[0, 2, 1, 3]), flat)
        middle = b.op("Add", b.op("MatMul", b.x, b.weight(dim, dim)), start)
        b.op("Relu", b.op("MatMul", b.x, b.weight(dim, 4 * dim)))
        b.op("Add", b.op("MatMul", b.x, b.weight(4 * dim, dim)), middle)
    if tied:
        x = b.x
        turned = (
            b.op("Transpose", embedding, perm=[1, 0]) if tied == "op" else b.weight(of=np.ascontiguousarray(table.T))
        )
        b.op("MatMul", x, turned)
    b.save(path)


def vgg16(path: Path) -> None:
    """VGG-16 at 224 x 224."""
    b = Builder("x", (1, 3, 224, 224))
    channels = 3
    for outputs, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            b.op("Conv", b.x, b.weight(outputs, channels, 3, 3), b.weight(outputs), pads=[1, 1, 1, 1])
            b.op("Relu", b.x)
            channels = outputs
        b.op("MaxPool", b.x, kernel_shape=[2, 2], strides=[2, 2])
    b.op("Flatten", b.x)
    for rows, columns in ((25088, 4096), (4096, 4096), (4096, 1000)):
        b.op("Relu", b.op("Gemm", b.x, b.weight(columns, rows), b.weight(columns), transB=1))
    b.save(path)


def resnet152(path: Path) -> None:
    """Bottlenecks of ResNet-152 on maps of 56 x 56 and less."""
    b = Builder("x", (1, 64, 56, 56))
    channels = 64
    for k, (width, count) in enumerate(((64, 3), (128, 8), (256, 36), (512, 3))):
        for i in range(count):
            stride = 2 if k and not i else 1
            start = b.x
            b.op("Relu", b.op("Conv", b.x, b.weight(width, channels, 1, 1), b.weight(width)))
            b.op("Conv", b.x, b.weight(width, width, 3, 3), b.weight(width), pads=[1] * 4, strides=[stride] * 2)
            inner = b.op("Conv", b.op("Relu", b.x), b.weight(4 * width, width, 1, 1), b.weight(4 * width))
            if not i:
                start = b.op("Conv", start, b.weight(4 * width, channels, 1, 1), strides=[stride] * 2)
            b.op("Relu", b.op("Add", inner, start))
            channels = 4 * width
    b.save(path)


def tied_convolutions(path: Path, pairs: int = 12, channels: int = 512) -> None:
    """Convolutions that share their weights two and two, on pictures of two sizes, half of them by initializers of equal bytes."""
    b = Builder("x", (1, channels, 28, 28))
    kept = [b.random(channels, channels, 3, 3) for _ in range(pairs)]
    names = [b.weight(of=w) for w in kept]
    for name in names:
        b.op("Relu", b.op("Conv", b.x, name, pads=[1] * 4))
    b.op("AveragePool", b.x, kernel_shape=[2, 2], strides=[2, 2])
    for i, (w, name) in enumerate(zip(kept, names)):
        b.op("Relu", b.op("Conv", b.x, name if i % 2 else b.weight(of=w), pads=[1] * 4))
    b.save(path)


def recurrent(path: Path, layers: int = 4, dim: int = 1024) -> None:
    """A stack of LSTMs over 32 steps."""
    b = Builder("x", (32, 1, dim))
    axis = b.weight(of=np.array([1]))
    for _ in range(layers):
        b.op("LSTM", b.x, b.weight(1, 4 * dim, dim), b.weight(1, 4 * dim, dim), hidden_size=dim)
        b.op("Squeeze", b.x, axis)
    b.save(path)


LARGE: dict[str, Callable[[Path], None]] = {
    "products": products,
    "products-external": partial(products, external=True),
    "products-f16": partial(products, dtype=np.float16),
    "products-int8": quantized,
    "transformer": transformer,
    "transformer-tied": partial(transformer, tied="op"),
    "transformer-tied-copy": partial(transformer, tied="copy"),
    "vgg16": vgg16,
    "resnet152": resnet152,
    "tied-convolutions": tied_convolutions,
    "lstm": recurrent,
}
