"""Random networks on sequences whose batch and length calls decide, as ONNX models: dense layers, norms, attention, convolutions along
time, recurrences, cuts and joins, in any order, with lengths that are multiples, near bounds, and below a tile."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from random_heads import PROCESSORS, Options


@dataclass(frozen=True)
class OpenSequence:
    """A network, bounds by symbol as `lightnet.load` takes them, what calls feed, and what to compile it with."""

    model: ModelProto
    dims: dict[str, tuple[int, int, int]]
    calls: list[dict[str, np.ndarray]]
    options: Options


@dataclass
class _Graph:
    """A graph under construction: its nodes, and the value [batch, length, width] that the next one reads."""

    rng: np.random.Generator
    value: str
    width: int
    masked: bool
    nodes: list[NodeProto] = field(default_factory=list)
    weights: list[TensorProto] = field(default_factory=list)
    #: Whether the length is that of the input, so that the mask fits.
    whole: bool = True

    def node(self, optype: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        names = [f"{optype.lower()}{len(self.nodes)}" + "_" * k for k in range(outputs)]
        self.nodes.append(helper.make_node(optype, list(inputs), names, **attributes))
        return names[0]

    def constant(self, array: Any, dtype: type = np.float32) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array, dtype), name))
        return name

    def drawn(self, *dims: int, scale: float = 1.0) -> str:
        return self.constant(scale * self.rng.standard_normal(dims))

    def pick(self, *choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    # -- steps

    def dense(self, x: str, width: int, outputs: int) -> str:
        y = self.node("MatMul", x, self.drawn(width, outputs, scale=width**-0.5))
        return self.node("Add", y, self.drawn(outputs)) if self.chance(0.7) else y

    def linear(self) -> None:
        outputs = self.pick(self.width, self.width, 8, 17, 32, 48, 96)
        y = self.activated(self.dense(self.value, self.width, outputs))
        residual = outputs == self.width and self.chance(0.5)
        self.value, self.width = self.node("Add", y, self.value) if residual else y, outputs

    def activated(self, x: str) -> str:
        kind = self.pick("Relu", "Tanh", "Gelu", "Sigmoid", "Silu", "none")
        if kind == "Gelu":
            both = self.node("Add", self.node("Erf", self.node("Mul", x, self.constant(0.5**0.5))), self.constant(1))
            return self.node("Mul", self.node("Mul", x, both), self.constant(0.5))
        if kind == "Silu":
            return self.node("Mul", x, self.node("Sigmoid", x))
        return x if kind == "none" else self.node(kind, x)

    def norm(self) -> None:
        scale, bias = self.drawn(self.width), self.drawn(self.width)
        self.value = self.node("LayerNormalization", self.value, scale, bias, axis=-1, epsilon=1e-5)

    def attention(self) -> None:
        heads, each = self.pick(1, 2, 4), self.pick(4, 8, 16)
        split = self.constant([0, 0, heads, each], np.int64)
        q, k, v = (self.node("Reshape", self.dense(self.value, self.width, heads * each), split) for _ in range(3))
        q, v = (self.node("Transpose", x, perm=[0, 2, 1, 3]) for x in (q, v))
        scores = self.node("MatMul", q, self.node("Transpose", k, perm=[0, 2, 3, 1]))
        scores = self.node("Mul", scores, self.constant(each**-0.5))
        if self.masked and self.whole and self.chance(0.7):
            scores = self.node("Add", scores, "mask")
        found = self.node("MatMul", self.node("Softmax", scores, axis=-1), v)
        found = self.node("Transpose", found, perm=[0, 2, 1, 3])
        found = self.node("Reshape", found, self.constant([0, 0, heads * each], np.int64))
        self.value = self.node("Add", self.dense(found, heads * each, self.width), self.value)

    def convolution(self) -> None:
        taps, outputs = self.pick(1, 2, 3, 5), self.pick(8, 16, 20, 32)
        stride, group = self.pick(1, 1, 2), self.pick(1, 1, self.width)
        outputs = self.width if group > 1 else outputs
        x = self.node("Transpose", self.value, perm=[0, 2, 1])
        weight = self.drawn(outputs, self.width // group, taps, scale=(taps * self.width / group) ** -0.5)
        pads = [taps // 2, taps // 2] if self.chance(0.7) else [taps - 1, 0]
        y = self.node("Conv", x, weight, self.drawn(outputs), strides=[stride], pads=pads, group=group)
        self.whole &= stride == 1 and sum(pads) == taps - 1
        self.value, self.width = self.node("Transpose", self.activated(y), perm=[0, 2, 1]), outputs

    def recurrence(self) -> None:
        kind, hidden = self.pick("LSTM", "GRU"), self.pick(4, 8, 13)
        gates = 4 if kind == "LSTM" else 3
        x = self.node("Transpose", self.value, perm=[1, 0, 2])
        weights = [self.drawn(1, gates * hidden, n, scale=n**-0.5) for n in (self.width, hidden)]
        bias = self.drawn(1, 2 * gates * hidden)
        y = self.node(kind, x, *weights, bias, hidden_size=hidden, direction=self.pick("forward", "reverse"))
        y = self.node("Squeeze", y, self.constant([1], np.int64))
        self.value, self.width = self.node("Transpose", y, perm=[1, 0, 2]), hidden

    def cut(self) -> None:
        start, end, step = self.pick((1, 2**31, 1), (0, -1, 1), (0, 2**31, 2), (-2, 2**31, 1))
        bounds = [self.constant([n], np.int64) for n in (start, end, 1, step)]
        part = self.node("Slice", self.value, *bounds)
        self.value = part if self.chance(0.4) else self.node("Concat", part, self.value, axis=1)
        self.whole = False

    def pooled(self) -> None:
        mean = self.node(self.pick("ReduceMean", "ReduceMax"), self.value, self.constant([1], np.int64), keepdims=1)
        self.value = self.node(self.pick("Mul", "Sub", "Add"), self.value, mean)

    def over_time(self) -> None:
        x = self.node("Softmax", self.value, axis=1)
        self.value = self.node("Add", x, self.value)

    def joined(self) -> None:
        other = self.activated(self.dense(self.value, self.width, 8))
        self.value, self.width = self.node("Concat", self.value, other, axis=-1), self.width + 8


_STEPS = {"linear": 5, "norm": 2, "attention": 4, "convolution": 2, "recurrence": 0.7, "cut": 1, "pooled": 1,
          "over_time": 0.6, "joined": 1}  # fmt: skip


def open_sequence(seed: int) -> OpenSequence:
    """A network of three to eight steps on embeddings or on values, with or without a mask of keys."""
    rng = np.random.default_rng([seed, 2])
    unit = int(rng.choice([1, 2, 4, 8, 16], p=[0.5, 0.1, 0.15, 0.15, 0.1]))
    low = unit * int(rng.integers(1, 3)) + 2 * (unit == 1)
    dims = {"l": (low, low + unit * int(rng.integers(2, 2 + 300 // unit)), unit)}
    if rng.random() < 0.7:
        dims["n"] = (1, 6, 1)
    width, masked, embedded = int(rng.choice([8, 16, 24, 33, 64])), bool(rng.random() < 0.5), bool(rng.random() < 0.3)
    graph = _Graph(rng, "x", width, masked)
    if embedded:
        graph.value = graph.node("Gather", graph.drawn(50, width), "x")
    names = list(_STEPS)
    odds = np.array(list(_STEPS.values())) / sum(_STEPS.values())
    for _ in range(int(rng.integers(3, 9))):
        getattr(graph, names[int(rng.choice(len(names), p=odds))])()
    if graph.chance(0.3):
        graph.value = graph.node("ReduceMean", graph.value, graph.constant([1], np.int64), keepdims=0)

    def size(name: str) -> int:
        if name not in dims:
            return 2
        first, high, step = dims[name]
        many = (high - first) // step
        return first + step * int(rng.choice([0, 1, min(2, many), rng.integers(0, min(many, 40) + 1), many]))

    calls = []
    for _ in range(6):
        n, length = size("n"), size("l")
        x = rng.integers(0, 50, (n, length)) if embedded else rng.standard_normal((n, length, width)).astype(np.float32)
        mask = np.where(rng.random((n, 1, 1, length)) < 0.2, np.float32(-1e4), np.float32(0))
        calls.append({"x": x} | ({"mask": mask} if masked else {}))
    batch = "n" if "n" in dims else 2
    kind = TensorProto.INT64 if embedded else TensorProto.FLOAT
    inputs = [helper.make_tensor_value_info("x", kind, [batch, "l", *([] if embedded else [width])])]
    if masked:
        inputs.append(helper.make_tensor_value_info("mask", TensorProto.FLOAT, [batch, 1, 1, "l"]))
    outputs = [helper.make_tensor_value_info(graph.value, TensorProto.FLOAT, None)]
    made = helper.make_graph(graph.nodes, f"sequence{seed}", inputs, outputs, graph.weights)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    options = Options(
        exact=bool(rng.random() < 0.2),
        threads=int(rng.choice([1, 2])),
        layout=graph.pick("blocked", "blocked", "plain"),
        cpu="host" if graph.chance(0.6) else graph.pick(*PROCESSORS),
        precision="f32",
    )
    return OpenSequence(model, dims, calls, options)
