"""Single layers as ONNX models, which all engines read: chains of equal convolutions, each with a ReLU, and matrix products.

In a chain, what an engine does at the edges (changing the layout of the picture) is shared by its layers. Weights belong to the
layer's name, uniform with the variance 2 / fan-in, so that a chain neither dies out nor explodes. Imports NumPy and onnx.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lightnet.runtime.initial import uniform


@dataclass(frozen=True)
class Conv:
    """`count` convolutions `size` x `size` on maps of `pixels` x `pixels`, with `groups` groups; where `inner` and `outer` channels
    differ, every other one leads back. With `stride` the first makes maps of that size from larger ones."""

    inner: int
    outer: int
    pixels: int
    size: int
    count: int = 8
    groups: int = 1
    stride: int = 1

    def model(self, name: str) -> Any:
        """The ONNX model."""
        from onnx import helper

        rows = self.pixels * self.stride
        nodes, weights, at = [], [], "input"
        for k in range(self.count):
            read, made = (self.inner, self.outer) if k % 2 == 0 else (self.outer, self.inner)
            dims = (made, read // self.groups, self.size, self.size)
            weights += [_tensor(f"w{k}", name, dims, 6 / np.prod(dims[1:])), _tensor(f"b{k}", name, (made,), 0.01)]
            pad = self.size // 2
            nodes += [
                helper.make_node("Conv", [at, f"w{k}", f"b{k}"], [f"conv{k}"], kernel_shape=[self.size] * 2, group=self.groups,
                                 pads=[pad] * 4, strides=[self.stride if k == 0 else 1] * 2),
                helper.make_node("Relu", [f"conv{k}"], [f"relu{k}"]),
            ]  # fmt: skip
            at = f"relu{k}"
        return _model(name, nodes, weights, (1, self.inner, rows, rows), at, (1, made, self.pixels, self.pixels))


@dataclass(frozen=True)
class Gemm:
    """[m, k] times constant [k, n]."""

    m: int
    k: int
    n: int

    def model(self, name: str) -> Any:
        """The ONNX model."""
        from onnx import helper

        weights = [_tensor("b", name, (self.k, self.n), 3 / self.k)]
        node = helper.make_node("MatMul", ["input", "b"], ["output"])
        return _model(name, [node], weights, (self.m, self.k), "output", (self.m, self.n))


def _tensor(name: str, layer: str, dims: tuple[int, ...], square: float) -> Any:
    from onnx import numpy_helper

    high = float(np.sqrt(square))
    array = uniform(f"{layer}/{name}", 0, int(np.prod(dims)), -high, high).astype(np.float32)
    return numpy_helper.from_array(array.reshape(dims), name)


def _model(name: str, nodes: Any, weights: Any, read: tuple[int, ...], output: str, made: tuple[int, ...]) -> Any:
    from onnx import TensorProto, helper

    inputs, outputs = (
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, d)] for n, d in (("input", read), (output, made))
    )
    graph = helper.make_graph(nodes, name, inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def _same(size: int, channels: int, pixels: int) -> Conv:
    return Conv(channels, channels, pixels, size)


#: Chains of eight and single products; then single layers whose sizes differ on both sides.
LAYERS: dict[str, Conv | Gemm] = {
    **{f"3x3 {c} at {n}": _same(3, c, n) for c, n in ((64, 56), (128, 28), (256, 14), (512, 7))},
    **{f"1x1 {c} at {n}": _same(1, c, n) for c, n in ((64, 56), (256, 28), (256, 14), (512, 7))},
    **{f"depthwise {c} at {n}": Conv(c, c, n, 3, groups=c) for c, n in ((32, 112), (144, 56), (384, 14), (960, 7))},
    "3x3/2 256 to 512 at 14": Conv(256, 512, 14, 3, count=1, stride=2),
    "1x1 64 to 256 at 56": Conv(64, 256, 56, 1, count=4),
    "1x1 1024 to 256 at 14": Conv(1024, 256, 14, 1, count=4),
    "1x1 512 to 2048 at 7": Conv(512, 2048, 7, 1, count=4),
    "first 3x3/2 3 to 32 at 112": Conv(3, 32, 112, 3, count=1, stride=2),
    "first 7x7/2 3 to 64 at 112": Conv(3, 64, 112, 7, count=1, stride=2),
    **{f"gemm {m}x{k}x{n}": Gemm(m, k, n) for m, k, n in (
        (512, 512, 512), (1024, 1024, 1024), (128, 256, 1024), (196, 192, 768), (3136, 576, 64), (784, 1152, 128),
        (196, 2304, 256), (49, 4608, 512), (1, 1280, 1000))},
}  # fmt: skip


def write(name: str, folder: Path) -> Path:
    """The layer as a file below `folder`, written once."""
    version = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]
    path = folder / f"layers-{version}" / f"{name.replace(' ', '-').replace('/', '-')}.onnx"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".tmp")
        temporary.write_bytes(LAYERS[name].model(name).SerializeToString())
        temporary.rename(path)
    return path
