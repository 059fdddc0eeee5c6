"""A model's graph as quantisation looks at it, and what is folded before: constants, and batch normalisation behind
convolutions. Imports NumPy and source; onnx inside of functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from lightnet_quantize.source import SourceModel, initializer

if TYPE_CHECKING:
    import onnx


class Graph:
    """The top graph of a model: `nodes` in order, `constants` (initializers) by name, and who makes and reads what.
    Graphs inside of nodes are read for the names that they capture, and are never quantised."""

    def __init__(self, source: SourceModel):
        self.source = source
        self.proto: onnx.ModelProto = source.proto
        self.nodes: list[onnx.NodeProto] = [copied(node) for node in self.proto.graph.node]
        self.constants: dict[str, onnx.TensorProto] = {t.name: t for t in self.proto.graph.initializer}
        self.outputs = [o.name for o in self.proto.graph.output]
        self.inputs = [i.name for i in self.proto.graph.input if i.name not in self.constants]
        self.captured = {n for node in self.nodes for graph in _graphs(node) for n in _names(graph)}
        self._arrays: dict[str, np.ndarray] = {}
        self.taken = {n for node in self.nodes for n in (*node.input, *node.output)} | {*self.constants, *self.inputs}
        self.taken |= {*self.captured, *self.outputs}
        self.index()

    def index(self) -> None:
        """Find anew who makes and who reads each tensor."""
        self.maker = {name: node for node in self.nodes for name in node.output if name}
        self.readers: dict[str, list[onnx.NodeProto]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(node.input):
                self.readers.setdefault(name, []).append(node)
        self.uses = Counter(name for node in self.nodes for name in node.input)

    def array(self, name: str) -> np.ndarray:
        """The contents of a constant."""
        if name not in self._arrays:
            from onnx import numpy_helper

            self._arrays[name] = numpy_helper.to_array(self.constants[name])
        return self._arrays[name]

    def is_weight(self, name: str) -> bool:
        """Return whether a tensor is a constant of float32."""
        from onnx import TensorProto

        return name in self.constants and self.constants[name].data_type == TensorProto.FLOAT

    def is_visible(self, name: str) -> bool:
        """Return whether others than the top graph's nodes see a tensor: callers, or graphs inside of nodes."""
        return name in self.captured or name in self.outputs

    def fresh(self, name: str) -> str:
        """A name that nothing has, as close to `name` as there is one."""
        found, k = name, 1
        while found in self.taken:
            found, k = f"{name}.{k}", k + 1
        self.taken.add(found)
        return found

    def add_constant(self, name: str, array: np.ndarray) -> None:
        """Define a constant, under a name that nothing else defines."""
        self.constants[name] = initializer(array, name)
        self._arrays[name] = array
        self.taken.add(name)

    def clone(self) -> Graph:
        """A graph with the same nodes and constants, to which others can be added."""
        made = copy(self)
        made.nodes, made.constants = [*self.nodes], {**self.constants}
        made.taken, made._arrays = {*self.taken}, {**self._arrays}
        return made

    def model(self) -> onnx.ModelProto:
        """A model with the nodes as they are now, and those of the constants that something reads."""
        read = {n for node in self.nodes for n in node.input} | self.captured | {*self.outputs}
        known = {n for node in self.nodes for n in node.output}
        whole = copied(self.proto)
        graph, old = whole.graph, self.proto.graph
        for field in ("node", "initializer", "input", "value_info"):
            graph.ClearField(field)
        graph.node.extend(self.nodes)
        graph.initializer.extend(t for t in self.constants.values() if t.name in read)
        gone = {t.name for t in old.initializer} - {t.name for t in graph.initializer}
        graph.input.extend(info for info in old.input if info.name not in gone)
        graph.value_info.extend(info for info in old.value_info if info.name in known)
        return whole


def copied(message: Any) -> Any:
    """A copy of a protobuf message."""
    made = type(message)()
    made.CopyFrom(message)
    return made


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """The attributes of a node, by name: numbers, strings, lists and tensors."""
    from onnx import helper

    found = {}
    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        found[attribute.name] = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return found


def _graphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    from onnx import AttributeProto

    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            yield from attribute.graphs


def _names(graph: onnx.GraphProto) -> Iterator[str]:
    """The names that a graph inside of a node mentions, its own as well: more than it captures, which does no harm."""
    yield from (o.name for o in graph.output)
    for node in graph.node:
        yield from node.input
        for inner in _graphs(node):
            yield from _names(inner)


def fold(graph: Graph) -> None:
    """Fold what stands between weights and the ops that read them, and batch normalisation behind convolutions."""
    fold_constants(graph)
    fold_batch_norms(graph)


def fold_constants(graph: Graph) -> None:
    """Make constants of `Constant` nodes, and of constants that are turned over (`Transpose`) or renamed (`Identity`):
    how some exporters write the weights of dense layers."""
    kept = []
    for node in graph.nodes:
        value = (
            None
            if any(map(graph.is_visible, node.output)) or node.domain not in ("", "ai.onnx")
            else _folded(graph, node)
        )
        if value is None:
            kept.append(node)
        else:
            graph.add_constant(node.output[0], value)
    graph.nodes = kept
    graph.index()


def _folded(graph: Graph, node: onnx.NodeProto) -> np.ndarray | None:
    """The value of a node that moves a constant, or is one."""
    from onnx import numpy_helper

    given = attributes(node)
    if node.op_type == "Constant":
        if "value" in given:
            return numpy_helper.to_array(given["value"])
        for name, dtype in (
            ("value_float", np.float32),
            ("value_floats", np.float32),
            ("value_int", np.int64),
            ("value_ints", np.int64),
        ):
            if name in given:
                return np.array(given[name], dtype)
        return None
    if node.op_type in ("Identity", "Transpose") and graph.is_weight(node.input[0]):
        array = graph.array(node.input[0])
        return array if node.op_type == "Identity" else array.transpose(given.get("perm"))
    return None


def fold_batch_norms(graph: Graph) -> None:
    """Fold each batch normalisation into the convolution in front of it, if nothing else reads what that makes:

    k = scale / sqrt(var + epsilon);  w' = k w;  b' = k (b - mean) + shift

    (Ioffe and Szegedy, "Batch Normalization", 2015, algorithm 2). Computed in float64, rounded once."""
    gone: set[int] = set()
    for norm in graph.nodes:
        conv = graph.maker.get(norm.input[0]) if norm.op_type == "BatchNormalization" else None
        if conv is None or not _foldable(graph, conv, norm):
            continue
        scale, shift, mean, var = (graph.array(n).astype(np.float64) for n in norm.input[1:5])
        factor = scale / np.sqrt(var + attributes(norm).get("epsilon", 1e-5))
        weight = graph.array(conv.input[1])
        bias = graph.array(conv.input[2]).astype(np.float64) if _has_bias(conv) else np.zeros(factor.shape)
        names = [graph.fresh(f"{conv.output[0]}.{part}") for part in ("weight", "bias")]
        graph.add_constant(names[0], (weight * _per_output(conv, weight, factor)).astype(np.float32))
        graph.add_constant(names[1], (factor * (bias - mean) + shift).astype(np.float32))
        conv.input[:] = [conv.input[0], *names]
        conv.output[0] = norm.output[0]
        gone.add(id(norm))
    graph.nodes = [node for node in graph.nodes if id(node) not in gone]
    graph.index()


def _has_bias(conv: onnx.NodeProto) -> bool:
    return len(conv.input) > 2 and bool(conv.input[2])


def _foldable(graph: Graph, conv: onnx.NodeProto, norm: onnx.NodeProto) -> bool:
    given = attributes(norm)
    return (
        conv.op_type in ("Conv", "ConvTranspose")
        and not given.get("training_mode", 0)
        and given.get("spatial", 1) == 1
        and not any(norm.output[1:])
        and graph.uses[conv.output[0]] == 1
        and not graph.is_visible(conv.output[0])
        and all(map(graph.is_weight, (*conv.input[1:2], *norm.input[1:5])))
        and (not _has_bias(conv) or graph.is_weight(conv.input[2]))
    )


def _per_output(conv: onnx.NodeProto, weight: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """A factor for each output channel, as what a weight is multiplied by: of ``[out, in / groups, ...]``, or, where
    the convolution is transposed, of ``[in, out / groups, ...]``."""
    ones = (1,) * (weight.ndim - 2)
    if conv.op_type == "Conv":
        return factor.reshape(-1, 1, *ones)
    groups = attributes(conv).get("group", 1)
    rows = factor.reshape(groups, 1, -1)
    return np.repeat(rows, weight.shape[0] // groups, 1).reshape(weight.shape[0], -1, *ones)
