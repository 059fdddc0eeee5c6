"""Placement of quantisation: which tensors become integers, which nodes read and write such, and which tensors share a
scale. Imports options, prepare and diagnostics.

Products need their inputs as integers; so does what hands such on: a *mover* (reshape, maximum pool, concatenation)
gives integers of the scale that it gets, without loss. Where a mover's result is needed as integers, its inputs are,
and so on, back to where the numbers come from; there they are rounded once. Sums and means (`POINTWISE`) compute in
integers where their result is needed as such, and all that they read could be. What a convolution makes is rounded in
any case, as runtimes have integer convolutions of no other kind; what a dense layer makes is not where only ops in
float32 read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import alike, did_you_mean
from lightnet_quantize.options import POINTWISE, PRODUCTS, QuantizeOptions
from lightnet_quantize.prepare import Graph, attributes

if TYPE_CHECKING:
    import onnx

#: Ops whose results are elements of their first input, and how many others they read that are data, too.
MOVERS = (
    "MaxPool",
    "GlobalMaxPool",
    "Reshape",
    "Flatten",
    "Transpose",
    "Squeeze",
    "Unsqueeze",
    "Slice",
    "Split",
    "Gather",
    "GatherElements",
    "GatherND",
    "Pad",
    "Concat",
    "Resize",
    "Upsample",
    "DepthToSpace",
    "SpaceToDepth",
    "Expand",
    "Tile",
    "Identity",
)
#: Ops that networks in integers have.
QUANTIZED = (
    "QuantizeLinear",
    "DequantizeLinear",
    "DynamicQuantizeLinear",
    "QLinearConv",
    "QLinearMatMul",
    "ConvInteger",
    "MatMulInteger",
    "MatMulNBits",
)
#: Activations that only cut a range off.
CLIPS = ("Relu", "Clip")


class Scales:
    """Sets of tensors that share a scale (union-find; Tarjan, "Efficiency of a Good But Not Linear Set Union
    Algorithm", 1975)."""

    def __init__(self) -> None:
        self._above: dict[str, str] = {}

    def find(self, name: str) -> str:
        """The tensor that stands for the set of `name`."""
        above = self._above.setdefault(name, name)
        while above != self._above[above]:
            self._above[name] = self._above[above]
            name, above = above, self._above[above]
        return above

    def join(self, one: str, other: str) -> None:
        """Let two tensors share a scale."""
        self._above[self.find(other)] = self.find(one)


@dataclass
class Layer:
    """A node that computes in integers: `inputs` are the activations that it reads as such, `weight` and `bias` its
    constants, `axis` that of the weight's output channels. `clip` is the activation behind it that its result is
    rounded after, `output` the tensor that is rounded, or that comes out in float32."""

    node: onnx.NodeProto
    inputs: list[str]
    output: str
    weight: str = ""
    axis: int | None = None
    bias: str = ""
    clip: onnx.NodeProto | None = None

    @property
    def name(self) -> str:
        """The name of the node, or where it has none that of its result."""
        return str(self.node.name or self.node.output[0])


@dataclass(frozen=True)
class Placement:
    """Choice of integers: `layers` in the order of the graph, `movers` by id of the node, `tensors` (activations) in
    that order, and the sets of them that share `scales`."""

    layers: list[Layer]
    movers: set[int]
    tensors: list[str]
    scales: Scales
    #: Tensors that an integer op makes: no float32 of them need be kept for others to read.
    made: set[str]

    def entries(self, graph: Graph) -> dict[str, list[str]]:
        """For each set of tensors that share a scale, by its first in order, those that no mover makes: what the others
        hold are elements of these."""
        found: dict[str, list[str]] = {}
        for name in self.tensors:
            if id(graph.maker.get(name)) not in self.movers:
                found.setdefault(self.scales.find(name), []).append(name)
        return found


def place(graph: Graph, options: QuantizeOptions, floats: set[str]) -> Placement:
    """The placement for a graph, of whose tensors `floats` are of float32. Raises LightNetError where there is nothing
    to quantise."""
    return _Placing(graph, options, floats).placement()


def check_float(graph: Graph) -> None:
    """Raise LightNetError for a network that has quantised ops: its ranges were chosen by others."""
    for node in graph.nodes:
        if node.op_type in QUANTIZED:
            raise graph.source.error(f"it is quantised already ({node.op_type}): quantise the float32 network")


def check_excluded(graph: Graph, options: QuantizeOptions) -> None:
    """Raise LightNetError for a name in `options.exclude` that is no node, tensor or op type of the graph."""
    known = [*(n.name for n in graph.nodes if n.name), *(t for n in graph.nodes for t in n.output if t), *graph.inputs]
    types = [*dict.fromkeys(n.op_type for n in graph.nodes)]
    for name in options.exclude:
        if name not in known and name not in types and name not in graph.constants:
            near = alike(name, [*types, *known])
            raise graph.source.error(
                f"nothing to exclude is called '{name}': no node, tensor or op type{did_you_mean(near)}"
            )


class _Placing:
    def __init__(self, graph: Graph, options: QuantizeOptions, floats: set[str]):
        self.graph, self.options, self.floats = graph, options, floats
        self.excluded = set(options.exclude)
        self.layers: dict[int, Layer] = {}
        self.wanted: set[str] = set()
        self.movers: set[int] = set()
        self.scales = Scales()

    def placement(self) -> Placement:
        graph = self.graph
        for node in graph.nodes:
            if (layer := self.product(node)) is not None:
                self.layers[id(node)] = layer
        if not self.layers:
            raise self.nothing()
        for layer in self.layers.values():
            self.wanted.update(layer.inputs)
            if layer.node.op_type.startswith("Conv") and layer.output not in self.excluded:
                self.wanted.add(layer.output)
        reachable = self.reachable()
        for node in reversed(graph.nodes):
            if (moved := self.moved(node)) and any(o in self.wanted for o in node.output):
                if not self.excluded & {*moved, *node.output}:
                    self.move(node, moved)
            elif (layer := self.pointwise(node, reachable)) is not None and layer.output in self.wanted:
                self.layers[id(node)] = layer
                self.wanted.update(layer.inputs)
        return self.ordered()

    def ordered(self) -> Placement:
        names = [*self.graph.inputs, *(n for node in self.graph.nodes for n in node.output)]
        layers = [self.layers[id(node)] for node in self.graph.nodes if id(node) in self.layers]
        made = {layer.output for layer in layers}
        made |= {n for node in self.graph.nodes if id(node) in self.movers for n in node.output}
        return Placement(layers, self.movers, [n for n in names if n in self.wanted], self.scales, made)

    def nothing(self) -> Exception:
        there = ", ".join(dict.fromkeys(n.op_type for n in self.graph.nodes if n.op_type in PRODUCTS))
        why = (
            f"each {there} is excluded, or not of float32 with weights of float32"
            if there
            else f"it has no {', '.join(PRODUCTS)}"
        )
        return self.graph.source.error(f"there is nothing to quantise: {why}")

    # -- what a node may be

    def takes(self, node: onnx.NodeProto, kinds: Sequence[str]) -> bool:
        """Return whether a node is one of these of ONNX's own ops, and is not excluded: by its op, its name, or where
        it has none by that of its result."""
        names = {node.op_type, node.name} if node.name else {node.op_type, *node.output}
        return node.op_type in kinds and node.domain in ("", "ai.onnx") and not self.excluded & names

    def is_activation(self, name: str) -> bool:
        return bool(name) and name not in self.graph.constants and name in self.floats

    def usable(self, names: list[str]) -> bool:
        return all(self.is_activation(n) and n not in self.excluded for n in names)

    def product(self, node: onnx.NodeProto) -> Layer | None:
        """A node that multiplies, if it can do so in integers."""
        if not self.takes(node, [op for op in PRODUCTS if op in self.options.ops]):
            return None
        constant = [n for n in node.input[:2] if n in self.graph.constants]
        inputs = [n for n in node.input[:2] if n not in self.graph.constants]
        if not inputs or not self.usable(inputs) or self.excluded & {*constant}:
            return None
        if any(not self.graph.is_weight(n) or self.graph.array(n).ndim < 1 for n in constant):
            return None
        if node.op_type.startswith("Conv") and list(node.input[1:2]) != constant:
            return None
        layer = Layer(node, [*dict.fromkeys(inputs)], node.output[0])
        if constant:
            layer.weight, layer.axis = constant[0], self.axis(node, constant[0])
            layer.bias = self.bias(node)
        return self.clipped(layer)

    def axis(self, node: onnx.NodeProto, weight: str) -> int | None:
        """The axis of a weight's output channels, as runtimes take scales: that of ONNX's ops; None where there is one
        scale."""
        rank = self.graph.array(weight).ndim
        if not self.options.per_channel or weight != node.input[1] or rank < 2:
            return None
        if node.op_type == "Gemm":
            return 0 if attributes(node).get("transB", 0) else 1
        return {"Conv": 0, "ConvTranspose": 1, "MatMul": rank - 1}[node.op_type]

    def bias(self, node: onnx.NodeProto) -> str:
        """The bias that can be stored as sums of products are: one number for each output channel, added as it is."""
        if node.op_type == "MatMul" or len(node.input) < 3 or not self.graph.is_weight(node.input[2]):
            return ""
        name, given = str(node.input[2]), attributes(node)
        if node.op_type == "Gemm":
            weight = self.graph.array(node.input[1]) if node.input[1] in self.graph.constants else None
            if weight is None or given.get("alpha", 1.0) != 1 or given.get("beta", 1.0) != 1:
                return ""
            if self.graph.array(name).shape != (weight.shape[0 if given.get("transB", 0) else 1],):
                return ""
        return "" if name in self.excluded else name

    def clipped(self, layer: Layer) -> Layer:
        """The layer with the activation behind it that its result is rounded after, if that alone reads it."""
        name = layer.output
        readers = self.graph.readers.get(name, [])
        if self.graph.uses[name] == 1 and not self.graph.is_visible(name) and name not in self.excluded:
            if self.takes(readers[0], CLIPS) and readers[0].input[0] == name:
                layer.clip, layer.output = readers[0], readers[0].output[0]
        return layer

    def moved(self, node: onnx.NodeProto) -> list[str]:
        """The inputs that a mover moves; none where it is none, or does more than to move."""
        if not self.takes(node, MOVERS) or not node.input:
            return []
        given = attributes(node)
        if node.op_type == "MaxPool" and any(node.output[1:]):
            return []
        if node.op_type in ("Resize", "Upsample"):
            if given.get("mode", "nearest") != "nearest":
                return []
            if given.get("coordinate_transformation_mode") == "tf_crop_and_resize":
                return []
        if node.op_type == "Pad" and not self.pads_with_zero(node, given):
            return []
        inputs = list(node.input) if node.op_type == "Concat" else [node.input[0]]
        return [*dict.fromkeys(inputs)] if all(map(self.is_activation, inputs)) else []

    def pads_with_zero(self, node: onnx.NodeProto, given: dict[str, object]) -> bool:
        if given.get("mode", "constant") != "constant":
            return True
        if len(node.input) > 2 and node.input[2]:
            return node.input[2] in self.graph.constants and not np.any(self.graph.array(node.input[2]))
        return given.get("value", 0.0) == 0

    def pointwise(self, node: onnx.NodeProto, reachable: set[str]) -> Layer | None:
        """A node that may compute in integers, if all that it reads could be integers."""
        if not self.takes(node, [op for op in POINTWISE if op in self.options.ops]):
            return None
        count = {"ReduceMean": 1, "PRelu": 1}.get(node.op_type, len(node.input))
        inputs = [*dict.fromkeys(node.input[:count])]
        if not self.usable(inputs) or not reachable.issuperset(inputs):
            return None
        return self.clipped(Layer(node, inputs, node.output[0]))

    def reachable(self) -> set[str]:
        """The tensors that are integers if somebody wants them so: what products read and make, and what follows from
        such alone."""
        found = set(self.wanted)
        for node in self.graph.nodes:
            if (layer := self.layers.get(id(node))) is not None:
                found.update((layer.node.output[0], layer.output))
            elif (moved := self.moved(node)) and found.issuperset(moved):
                found.update(node.output)
            elif (layer := self.pointwise(node, found)) is not None:
                found.update((layer.node.output[0], layer.output))
        return found - self.excluded

    def move(self, node: onnx.NodeProto, moved: list[str]) -> None:
        self.movers.add(id(node))
        for name in filter(None, (*moved, *node.output)):
            self.wanted.add(name)
            self.scales.join(moved[0], name)
