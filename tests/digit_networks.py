"""Networks that read handwritten digits, trained here: a small convolutional one and a small transformer, as ONNX.

The pictures (tests/data/digits.npz, see NOTICE) are 1797 of 8 by 8 pixels of 0 to 16, here in a fixed order of chance. The
first 1000 are for training, and for calibration, the others for tests. Training is by NumPy with fixed seeds, in seconds.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import gradients as gr
import numpy as np
import onnx
from gradients import Var
from onnx import TensorProto, helper, numpy_helper

TRAINED = 1000


@cache
def digits() -> tuple[np.ndarray, np.ndarray]:
    """The pictures, float32 ``[1797, 1, 8, 8]`` of 0 to 1, and their labels."""
    with np.load(Path(__file__).parent / "data" / "digits.npz") as data:
        order = np.random.default_rng(0).permutation(len(data["labels"]))
        return data["pixels"][order].reshape(-1, 1, 8, 8).astype(np.float32) / 16, data["labels"][order].astype(
            np.int64
        )


def calibration() -> np.ndarray:
    """The pictures for calibration: the first 256 of those that the networks were trained on."""
    return digits()[0][:256]


def accuracy(logits: np.ndarray) -> float:
    """The share in percent of the test pictures that logits ``[797, 10]`` name rightly."""
    return 100 * float(np.mean(logits.argmax(1) == digits()[1][TRAINED:]))


def _normal(rng: np.random.Generator, *dims: int) -> Var:
    """Weights with the variance 2 / fan-in (He et al., 2015)."""
    return Var(rng.normal(size=dims).astype(np.float32) * np.float32(np.sqrt(2 / dims[0])))


def _zeros(*dims: int) -> Var:
    return Var(np.zeros(dims, np.float32))


@cache
def cnn() -> onnx.ModelProto:
    """Two convolutions of 3 by 3, a residual one, batch normalisation (as what it is once trained) behind the first, a
    maximum pool, a mean over the map, and a dense layer, for any batch."""
    rng = np.random.default_rng(1)
    p = {"w1": _normal(rng, 9, 16), "b1": _zeros(16), "w2": _normal(rng, 144, 32), "b2": _zeros(32),
         "w3": _normal(rng, 288, 32), "b3": _zeros(32), "w4": _normal(rng, 32, 10), "b4": _zeros(10)}  # fmt: skip

    def conv(x: Var, k: int) -> Var:
        n, _, h, w = x.value.shape
        made = gr.windows(x, 3) @ p[f"w{k}"] + p[f"b{k}"]
        return made.transpose(0, 2, 1).reshape(n, made.value.shape[2], h, w)

    def loss(rows: np.ndarray) -> Var:
        x = gr.relu(conv(Var(digits()[0][rows]), 1))
        x = gr.relu(conv(gr.halved(x), 2))
        x = gr.relu(conv(x, 3) + x)
        x = x.reshape(*x.value.shape[:2], -1).mean(2)
        return gr.cross_entropy(x @ p["w4"] + p["b4"], digits()[1][rows])

    gr.train(p, loss, TRAINED, 12, 0.01, 2)
    weights = {k: v.value for k, v in p.items()}
    for k in (1, 2, 3):
        w = weights[f"w{k}"]
        weights[f"w{k}"] = np.ascontiguousarray(w.T.reshape(w.shape[1], -1, 3, 3))
    # The first layer as a convolution and a batch normalisation whose product it is.
    scale, var = rng.uniform(0.5, 2, 16), rng.uniform(0.5, 2, 16)
    factor = (scale / np.sqrt(var + 1e-5)).astype(np.float32)
    weights["w1"] = weights["w1"] / factor.reshape(-1, 1, 1, 1)
    weights |= {"scale": scale, "shift": weights.pop("b1"), "mean": np.zeros(16), "var": var}
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w1"], ["c1"], "first", pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["c1", "scale", "shift", "mean", "var"], ["n1"], "norm"),
        node("Relu", ["n1"], ["r1"], "relu1"),
        node("MaxPool", ["r1"], ["p1"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["p1", "w2", "b2"], ["c2"], "second", pads=[1, 1, 1, 1]),
        node("Relu", ["c2"], ["r2"], "relu2"),
        node("Conv", ["r2", "w3", "b3"], ["c3"], "third", pads=[1, 1, 1, 1]),
        node("Add", ["c3", "r2"], ["a3"], "residual"),
        node("Relu", ["a3"], ["r3"], "relu3"),
        node("GlobalAveragePool", ["r3"], ["m"], "mean"),
        node("Flatten", ["m"], ["f"], "flatten"),
        node("Gemm", ["f", "w4", "b4"], ["y"], "dense"),
    ]
    return _model(nodes, weights, [1, 8, 8])


@cache
def transformer() -> onnx.ModelProto:
    """Two blocks of attention (four heads) and of dense layers with GELU, norms in front of each, over the eight rows of
    a picture as tokens, for any batch."""
    rng = np.random.default_rng(5)
    wide, heads, inner = 32, 4, 64
    p = {"embed": _normal(rng, 8, wide), "place": Var(rng.normal(size=(8, wide)) * 0.1),
         "head": _normal(rng, wide, 10), "head_bias": _zeros(10)}  # fmt: skip
    for k in (0, 1):
        for name in ("q", "k", "v", "o"):
            p[f"{name}{k}"], p[f"{name}{k}_bias"] = _normal(rng, wide, wide), _zeros(wide)
        p[f"up{k}"], p[f"up{k}_bias"] = _normal(rng, wide, inner), _zeros(inner)
        p[f"down{k}"], p[f"down{k}_bias"] = _normal(rng, inner, wide), _zeros(wide)
        for name in ("a", "b"):
            p[f"{name}{k}_gain"], p[f"{name}{k}_shift"] = Var(np.ones(wide)), _zeros(wide)
    share = np.float32(1 / np.sqrt(wide // heads))

    def norm(x: Var, name: str) -> Var:
        return gr.normalized(x) * p[f"{name}_gain"] + p[f"{name}_shift"]

    def dense(x: Var, name: str) -> Var:
        return x @ p[name] + p[f"{name}_bias"]

    def loss(rows: np.ndarray) -> Var:
        n = len(rows)
        x = Var(digits()[0][rows].reshape(n, 8, 8)) @ p["embed"] + p["place"]
        for k in (0, 1):
            y = norm(x, f"a{k}")
            q, key, v = (dense(y, f"{c}{k}").reshape(n, 8, heads, -1).transpose(0, 2, 1, 3) for c in "qkv")
            scores = gr.softmax((q @ key.transpose(0, 1, 3, 2)) * Var(share))
            x = x + dense((scores @ v).transpose(0, 2, 1, 3).reshape(n, 8, wide), f"o{k}")
            x = x + dense(gr.gelu(dense(norm(x, f"b{k}"), f"up{k}")), f"down{k}")
        return gr.cross_entropy(x.mean(1) @ p["head"] + p["head_bias"], digits()[1][rows])

    gr.train(p, loss, TRAINED, 20, 0.004, 3)
    weights = {k: v.value for k, v in p.items()} | {"share": share}
    weights |= {"rows": np.array([0, 8, 8]), "split": np.array([0, 8, heads, -1]), "whole": np.array([0, 8, wide])}
    nodes: list[onnx.NodeProto] = []

    def add(op: str, inputs: str, output: str, **attributes: object) -> str:
        nodes.append(helper.make_node(op, inputs.split(), [output], output, **attributes))
        return output

    def affine(x: str, name: str) -> str:
        return add("Add", f"{add('MatMul', f'{x} {name}', f'{name}.product')} {name}_bias", f"{name}.out")

    add("Reshape", "x rows", "tokens")
    x = add("Add", f"{add('MatMul', 'tokens embed', 'embedded')} place", "x0")
    for k in (0, 1):
        y = add("LayerNormalization", f"{x} a{k}_gain a{k}_shift", f"a{k}", epsilon=1e-5)
        split = {c: add("Reshape", f"{affine(y, f'{c}{k}')} split", f"{c}{k}.heads") for c in "qkv"}
        q, v = (add("Transpose", split[c], f"{c}{k}.turned", perm=[0, 2, 1, 3]) for c in "qv")
        key = add("Transpose", split["k"], f"k{k}.turned", perm=[0, 2, 3, 1])
        scores = add("Mul", f"{add('MatMul', f'{q} {key}', f'scores{k}')} share", f"scaled{k}")
        mixed = add("MatMul", f"{add('Softmax', scores, f'softmax{k}', axis=-1)} {v}", f"mixed{k}")
        joined = add("Reshape", f"{add('Transpose', mixed, f'mixed{k}.turned', perm=[0, 2, 1, 3])} whole", f"joined{k}")
        x = add("Add", f"{x} {affine(joined, f'o{k}')}", f"x{k}.attended")
        y = add("LayerNormalization", f"{x} b{k}_gain b{k}_shift", f"b{k}", epsilon=1e-5)
        y = add("Gelu", affine(y, f"up{k}"), f"gelu{k}", approximate="tanh")
        x = add("Add", f"{x} {affine(y, f'down{k}')}", f"x{k + 1}")
    add("Gemm", f"{add('ReduceMean', f'{x} one', 'pooled', keepdims=0)} head head_bias", "y")
    return _model(nodes, weights | {"one": np.array([1])}, [1, 8, 8])


def _model(nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray], dims: list[int]) -> onnx.ModelProto:
    constants = [
        numpy_helper.from_array(a if a.dtype == np.int64 else np.asarray(a, np.float32), name)
        for name, a in ((name, np.asarray(a)) for name, a in weights.items())
    ]
    info = helper.make_tensor_value_info
    inputs, outputs = [info("x", TensorProto.FLOAT, ["batch", *dims])], [info("y", TensorProto.FLOAT, ["batch", 10])]
    graph = helper.make_graph(nodes, "digits", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    onnx.checker.check_model(model)
    return model
