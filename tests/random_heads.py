"""Random heads of convolutional networks as ONNX models: what stands between a picture and the first blocks of a network.

A head is a convolution of a picture of few channels (NCHW, or NHWC behind a Transpose, as Keras exports it), an activation, a pool
or none, and a second convolution, with every attribute drawn: what layouts, bands of rows and fused kernels decide by stands here in all
combinations. `Options` are those of a compilation that such a head has to stand.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

#: Activations by name: the nodes from x to y, and their constants.
SIMPLE = (
    "Relu",
    "Sigmoid",
    "Tanh",
    "Softplus",
    "Softsign",
    "HardSwish",
    "Mish",
    "Elu",
    "Selu",
    "LeakyRelu",
    "HardSigmoid",
    "Abs",
    "Neg",
)
COMPOSED = ("Clip", "PRelu", "Silu", "Gelu", "none")
ACTIVATIONS = (*SIMPLE, *COMPOSED)
#: Processors, and whether the code runs where AVX-512 does.
PROCESSORS = ("host", "x86-64", "x86-64-v3", "x86-64-v4", "generic-aarch64")
#: Largest error, of the largest value: f32 sums of some hundred terms, Winograd's too; the others by their significands, three ops deep.
TOLERANCES = {"f32": 1e-4, "f16": 1e-2, "bf16": 8e-2}


@dataclass(frozen=True)
class Options:
    """What a head is compiled with; `cpu` may be one whose code this machine cannot run."""

    exact: bool
    threads: int
    layout: str
    cpu: str
    precision: str

    @classmethod
    def draw(cls, rng: np.random.Generator) -> Options:
        """Mostly the defaults: what is usual has to be seen most."""
        often = rng.random() < 0.4
        return cls(
            exact=bool(rng.random() < 0.3),
            threads=int(rng.choice([1, 2, 4], p=[0.6, 0.25, 0.15])),
            layout="blocked" if often else str(rng.choice(["blocked", "plain"], p=[0.8, 0.2])),
            cpu="host" if often else str(rng.choice(PROCESSORS)),
            precision="f32" if often else str(rng.choice(list(TOLERANCES), p=[0.8, 0.1, 0.1])),
        )

    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of `lightnet.compile`."""
        return dict(vars(self))


@dataclass
class _Graph:
    """A graph under construction: its nodes, and the map [N, C, H, W] that the next one reads."""

    rng: np.random.Generator
    value: str
    dims: list[int]
    nodes: list[NodeProto] = field(default_factory=list)
    weights: list[TensorProto] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)

    def node(self, optype: str, inputs: list[str], **attributes: Any) -> str:
        name = f"{optype.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(optype, inputs, [name], **attributes))
        return name

    def weight(self, *dims: int, scale: float = 1.0, low: float | None = None) -> str:
        array = scale * self.rng.standard_normal(dims) if low is None else self.rng.uniform(low, low + scale, dims)
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array.astype(np.float32), name))
        return name

    def pick(self, *choices: Any, p: list[float] | None = None) -> Any:
        return choices[int(self.rng.choice(len(choices), p=p))]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    # -- ops

    def conv(self, outputs: int, group: int = 1) -> None:
        rng, channels = self.rng, self.dims[1]
        for _ in range(20):
            size = [int(rng.integers(1, 8))] * 2 if self.chance(0.8) else [int(k) for k in rng.integers(1, 8, 2)]
            stride = (
                [self.pick(1, 2, 3, p=[0.6, 0.3, 0.1])] * 2
                if self.chance(0.85)
                else [int(s) for s in rng.integers(1, 4, 2)]
            )
            dilation = [1, 1] if self.chance(0.75) else [int(d) for d in rng.integers(1, 13, 2)]
            window, out = _window(self, size, stride, dilation)
            if out is not None:
                break
        else:
            return
        weight = self.weight(outputs, channels // group, *size, scale=1 / np.sqrt(size[0] * size[1] * channels / group))
        bias = [self.weight(outputs)] if self.chance(0.7) else []
        self.value = self.node(
            "Conv",
            [self.value, weight, *bias],
            kernel_shape=size,
            strides=stride,
            dilations=dilation,
            group=group,
            **window,
        )
        self.dims[1:] = [outputs, *out]
        if self.chance(0.2):
            vectors = [
                self.weight(outputs, scale=0.5, low=0.5),
                self.weight(outputs),
                self.weight(outputs),
                self.weight(outputs, low=0.5),
            ]
            self.value = self.node("BatchNormalization", [self.value, *vectors])

    def activation(self) -> None:
        kind, x = self.pick(*ACTIVATIONS), self.value
        if kind == "Clip":
            self.value = self.node(
                "Clip", [x, self.scalar(0 if self.chance(0.5) else -0.5), self.scalar(6 if self.chance(0.5) else 0.5)]
            )
        elif kind == "PRelu":
            self.value = self.node("PRelu", [x, self.weight(self.dims[1], 1, 1)])
        elif kind == "Silu":
            self.value = self.node("Mul", [x, self.node("Sigmoid", [x])])
        elif kind == "Gelu":
            half = self.node("Mul", [x, self.scalar(np.sqrt(0.5))])
            both = self.node("Add", [self.node("Erf", [half]), self.scalar(1)])
            self.value = self.node("Mul", [self.node("Mul", [x, both]), self.scalar(0.5)])
        elif kind != "none":
            self.value = self.node(kind, [x])

    def scalar(self, value: float) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.float32(value), name))
        return name

    def pool(self) -> None:
        rng, kind = (
            self.rng,
            self.pick("MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool", p=[0.65, 0.27, 0.04, 0.04]),
        )
        if kind.startswith("Global"):
            self.value, self.dims[2:] = self.node(kind, [self.value]), [1, 1]
            return
        for _ in range(20):
            size = [int(rng.integers(1, 5))] * 2 if self.chance(0.8) else [int(k) for k in rng.integers(1, 5, 2)]
            stride = list(size) if self.chance(0.5) else [int(s) for s in rng.integers(1, 4, 2)]
            dilation = [int(d) for d in rng.integers(1, 4, 2)] if kind == "MaxPool" and self.chance(0.15) else [1, 1]
            if dilation != [1, 1] and min(d * (k - 1) for d, k in zip(dilation, size)) >= min(self.dims[2:]) // 2:
                continue  # a window that sees padding alone has no largest element: -inf, or the lowest float
            ceil = int(dilation == [1, 1] and self.chance(0.3))
            window, out = _window(self, size, stride, dilation, ceil=bool(ceil), pads_below=size)
            if out is not None:
                break
        else:
            return
        own: dict[str, Any] = (
            {"dilations": dilation} if kind == "MaxPool" else {"count_include_pad": int(self.chance(0.3))}
        )
        if "auto_pad" not in window:
            own["ceil_mode"] = ceil
        self.value = self.node(kind, [self.value], kernel_shape=size, strides=stride, **window, **own)
        self.dims[2:] = out

    def keep(self) -> None:
        """Make the map an output, too: then nobody may take it alone."""
        if self.value not in self.outputs and self.nodes:
            self.outputs.append(self.value)


def _window(graph: _Graph, size: list[int], stride: list[int], dilation: list[int], ceil: bool = False,
            pads_below: list[int] | None = None) -> tuple[dict[str, Any], list[int] | None]:  # fmt: skip
    """Attributes of the padding of a window, and the height and width that it leaves; None where that is nothing."""
    span, dims = [(k - 1) * d + 1 for k, d in zip(size, dilation)], graph.dims[2:]
    kind = graph.pick("none", "half", "any", "SAME_UPPER", "SAME_LOWER", "VALID", p=[0.3, 0.25, 0.25, 0.1, 0.05, 0.05])
    if (
        kind.startswith("SAME") and dilation == [1, 1] and all(s <= k for s, k in zip(stride, size))
    ):  # ONNX Runtime refuses others
        return {"auto_pad": kind}, [-(-n // s) for n, s in zip(dims, stride)]
    if kind == "half":
        pads = [s // 2 for s in span] * 2
    elif kind == "any":
        pads = [int(graph.rng.integers(0, s + 1)) for s in span * 2]
    else:
        pads = [0, 0, 0, 0]
    if pads_below is not None:
        pads = [min(p, k - 1) for p, k in zip(pads, pads_below * 2)]
    room = [n + pads[i] + pads[i + 2] - s for i, (n, s) in enumerate(zip(dims, span))]
    if min(room) < 0:
        return {}, None
    out = [(-(-r // s) if ceil else r // s) + 1 for r, s in zip(room, stride)]
    if ceil:  # a window that begins in the padding behind is none
        out = [o - ((o - 1) * s >= n + pads[i]) for i, (o, s, n) in enumerate(zip(out, stride, dims))]
    attributes: dict[str, Any] = {"auto_pad": "VALID"} if kind == "VALID" and not ceil else {"pads": pads}
    return attributes, out


def random_head(seed: int) -> tuple[ModelProto, dict[str, np.ndarray], Options]:
    """A head, what to feed it, and what to compile it with."""
    rng = np.random.default_rng(seed)
    last = bool(rng.random() < 0.4)
    channels = int(rng.choice([1, 2, 3, 4, 5, 8, 16], p=[0.2, 0.1, 0.2, 0.2, 0.15, 0.1, 0.05]))
    most = 150 if rng.random() < 0.3 else 48
    batch, height, width = int(rng.choice([1, 2], p=[0.8, 0.2])), *(int(n) for n in rng.integers(3, most, 2))
    dims = [batch, height, width, channels] if last else [batch, channels, height, width]
    graph = _Graph(rng, "x", [batch, channels, height, width])
    if last:
        graph.value = graph.node("Transpose", ["x"], perm=[0, 3, 1, 2])
    _fill(graph)
    if last and graph.chance(0.5):
        graph.value = graph.node("Transpose", [graph.value], perm=[0, 2, 3, 1])
    graph.keep()
    feeds = {"x": rng.standard_normal(dims).astype(np.float32)}
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in graph.outputs]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)]
    made = helper.make_graph(graph.nodes, f"head{seed}", inputs, outputs, graph.weights)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    return model, feeds, Options.draw(rng)


@dataclass(frozen=True)
class OpenHead:
    """A head whose batch, height or width calls decide: the model, bounds by symbol as `lightnet.load` takes them, what calls
    feed, and what to compile it with."""

    model: ModelProto
    dims: dict[str, tuple[int, int, int]]
    calls: list[dict[str, np.ndarray]]
    options: Options


def open_head(seed: int) -> OpenHead:
    """A head and up to three convolutions of more channels behind it, on open maps. A dim is often a multiple of a power of two,
    as those of networks that halve their maps are, and most dims of a call lie near its bounds, or below two tiles."""
    rng = np.random.default_rng([seed, 1])
    channels, last = int(rng.choice([1, 3, 4, 16, 24, 40])), bool(rng.random() < 0.2)
    units = [1, *(int(rng.choice([1, 2, 4, 8, 16, 32], p=[0.3, 0.1, 0.1, 0.2, 0.2, 0.1])) for _ in range(2))]
    lows = [1, *(u * int(rng.integers(1, 4)) + (8 if u == 1 else 0) for u in units[1:])]
    highs = [4, *(low + u * int(rng.integers(2, 1 + 160 // u)) for low, u in zip(lows[1:], units[1:]))]
    opened = [bool(rng.random() < 0.3), *((True, True) if rng.random() < 0.7 else rng.permutation([True, False]))]
    graph = _Graph(rng, "x", [lows[0], channels, *lows[1:]])
    if last:
        graph.value = graph.node("Transpose", ["x"], perm=[0, 3, 1, 2])
    _fill(graph)
    for _ in range(int(rng.integers(0, 4))):
        graph.conv(int(graph.pick(16, 32, 64, 96, 128)))
        graph.activation()
    graph.keep()
    dims = {n: (low, high, u) for n, low, high, u, is_open in zip("nhw", lows, highs, units, opened) if is_open}

    def order(n: Any, h: Any, w: Any) -> list[Any]:
        return [n, h, w, channels] if last else [n, channels, h, w]

    def size(name: str, low: int) -> int:
        if name not in dims:
            return low
        _, high, unit = dims[name]
        steps = (high - low) // unit
        return low + unit * int(
            rng.choice([0, 1, min(2, steps), rng.integers(0, min(steps, 40 // unit + 1) + 1), steps])
        )

    sizes = [[size(n, low) for n, low in zip("nhw", lows)] for _ in range(6)]
    calls = [{"x": rng.standard_normal(order(*call)).astype(np.float32)} for call in sizes]
    shape = order(*(n if n in dims else low for n, low in zip("nhw", lows)))
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in graph.outputs]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    made = helper.make_graph(graph.nodes, f"open{seed}", inputs, outputs, graph.weights)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    return OpenHead(model, dims, calls, Options.draw(rng))


def _fill(graph: _Graph) -> None:
    outputs = int(graph.pick(8, 16, 24, 32, 64, 5, 17, 48))
    graph.conv(outputs)
    graph.activation()
    if graph.chance(0.1):
        graph.keep()
    if graph.chance(0.75):
        graph.pool()
    if graph.chance(0.5):
        kind = graph.pick("full", "depthwise", "groups", "separable", p=[0.5, 0.2, 0.1, 0.2])
        channels = graph.dims[1]
        if kind == "depthwise":
            graph.conv(channels, channels)
        elif kind == "groups" and channels % 2 == 0:
            graph.conv(channels, 2)
        elif kind == "separable":
            graph.conv(channels, channels)
            graph.activation()
            graph.conv(int(graph.pick(8, 16, 24, 40)))
        else:
            graph.conv(int(graph.pick(8, 16, 20, 32)))
        graph.activation()
