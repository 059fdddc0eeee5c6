"""The QDQ form: tensors that are placed as integers go through a QuantizeLinear and a DequantizeLinear, weights and
biases are stored as integers with a DequantizeLinear behind them. Imports placement, ranges and source; onnx inside of
functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from lightnet.dataclasses import dataclass
from lightnet_quantize.options import QuantizeOptions
from lightnet_quantize.placement import Layer, Placement
from lightnet_quantize.prepare import Graph, attributes, copied
from lightnet_quantize.ranges import QuantParams, quantized_bias, room_for_bias, weight_params

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True)
class StoredWeights:
    """The constants of a layer as integers: `weight` with `params`; `bias` (int32) with `bias_scale`, or None."""

    params: QuantParams
    weight: np.ndarray
    bias: np.ndarray | None
    bias_scale: np.ndarray | None

    @property
    def weight_values(self) -> np.ndarray:
        """The weights as float32, as DequantizeLinear gives them."""
        return self.params.dequantized(self.weight)

    @property
    def bias_values(self) -> np.ndarray | None:
        """The bias as float32, or None."""
        if self.bias is None or self.bias_scale is None:
            return None
        return self.bias.astype(np.float32) * self.bias_scale


def stored_weights(graph: Graph, layer: Layer, step: float, options: QuantizeOptions) -> StoredWeights:
    """The weights of a layer, whose input's scale is `step`, as integers. Raises LightNetError where they hold NaN or
    infinities."""
    weight = graph.array(layer.weight)
    bias = graph.array(layer.bias) if layer.bias else None
    for name, array in ((layer.weight, weight), (layer.bias, bias)):
        if array is not None and not np.isfinite(array).all():
            raise graph.source.error(f"the weights '{name}' of '{layer.name}' hold NaN or infinities")
    params = room_for_bias(weight_params(weight, layer.axis, options), step, bias)
    if bias is None:
        return StoredWeights(params, params.quantized(weight), None, None)
    return StoredWeights(params, params.quantized(weight), *quantized_bias(bias, step, params))


class Rewriter:
    """Writes a placement into a graph. `params` has those of each set of tensors that share a scale, by the tensor that
    stands for it (`Scales.find`)."""

    def __init__(self, graph: Graph, placement: Placement, params: Mapping[str, QuantParams], options: QuantizeOptions):
        self.graph, self.placement, self.params, self.options = graph, placement, params, options
        self.layers = {id(layer.node): layer for layer in placement.layers}
        self.tensors = set(placement.tensors)
        #: What reads a tensor as integers, by the tensor: the name behind its DequantizeLinear.
        self.read: dict[str, str] = {}
        self.weights: dict[tuple[str, int | None, bytes], str] = {}
        self.sets: dict[str, tuple[str, str]] = {}
        #: Activations whose cut the rounding makes, by id.
        self.folded = {id(la.clip) for la in placement.layers if la.clip is not None and self.is_cut_off(la)}
        self.nodes: list[onnx.NodeProto] = []

    def run(self) -> None:
        """Write it: the graph's nodes are then those of the QDQ form."""
        for name in self.graph.inputs:
            if name in self.tensors:
                self.round(name, name)
        for node in self.graph.nodes:
            if id(node) not in self.folded:
                self.node(node)
        self.graph.nodes = self.nodes
        self.graph.index()

    def of(self, name: str) -> QuantParams:
        """The parameters of a tensor."""
        return self.params[self.placement.scales.find(name)]

    def is_cut_off(self, layer: Layer) -> bool:
        """Return whether the activation behind a layer changes nothing once its result is rounded: both ends of its
        range are stored as the least and the largest integer, as which rounding stores all beyond."""
        clip = layer.clip
        if clip is None or layer.output not in self.tensors:
            return False
        bounds = [-np.inf, np.inf] if clip.op_type == "Clip" else [0.0, np.inf]
        if clip.op_type == "Clip":
            given = attributes(clip)
            for k, name in enumerate(("min", "max")):
                if name in given:
                    bounds[k] = given[name]
                elif len(clip.input) > k + 1 and clip.input[k + 1]:
                    if not self.graph.is_weight(clip.input[k + 1]):
                        return False
                    bounds[k] = float(self.graph.array(clip.input[k + 1]).reshape(()))
        params = self.of(layer.output)
        with np.errstate(over="ignore"):
            least, most = params.quantized(np.array(bounds, np.float32)).tolist()
        return bool(least == params.integers.least and most == params.integers.most)

    def node(self, node: onnx.NodeProto) -> None:
        """One node, with what it reads rounded in front of it and what it makes behind it."""
        layer = self.layers.get(id(node))
        integer = layer is not None or id(node) in self.placement.movers
        copy = copied(node)
        for k, name in enumerate(node.input):
            if name in self.tensors and (integer or name in self.placement.made):
                copy.input[k] = self.read[name]
        if layer is not None and layer.weight:
            self.constants(layer, copy)
        rounded = []
        for k, name in enumerate(node.output):
            made = layer.output if layer is not None and id(layer.clip) in self.folded else name
            if made not in self.tensors:
                continue
            if made in self.graph.outputs and made in self.placement.made:  # callers get what others read
                copy.output[k] = self.graph.fresh(f"{made}.float")
            elif made != name:
                copy.output[k] = made
            rounded.append((made, copy.output[k]))
        self.nodes.append(copy)
        for name, written in rounded:
            self.round(name, written)

    def round(self, name: str, written: str) -> None:
        """Let a tensor, which stands in the graph as `written`, be rounded: what reads it as integers reads the
        result."""
        scale, zero = self.scale_of(name)
        stored = self.graph.fresh(f"{name}.quantized")
        read = name if name != written else self.graph.fresh(f"{name}.dequantized")
        self.add("QuantizeLinear", [written, scale, zero], stored)
        self.add("DequantizeLinear", [stored, scale, zero], read)
        self.read[name] = read

    def scale_of(self, name: str) -> tuple[str, str]:
        """The constants that are a tensor's scale and zero point: one pair for all that share them."""
        root = self.placement.scales.find(name)
        if root not in self.sets:
            params = self.params[root]
            self.sets[root] = self.pair(name, params.scale, params.zero_point)
        return self.sets[root]

    def pair(self, name: str, scale: np.ndarray, zero: np.ndarray) -> tuple[str, str]:
        names = self.graph.fresh(f"{name}.scale"), self.graph.fresh(f"{name}.zero_point")
        self.graph.add_constant(names[0], scale)
        self.graph.add_constant(names[1], zero)
        return names

    def constants(self, layer: Layer, copy: onnx.NodeProto) -> None:
        """Let a layer read its weight and bias as integers."""
        kept = stored_weights(self.graph, layer, float(self.of(layer.inputs[0]).scale), self.options)
        key = (layer.weight, layer.axis, kept.params.scale.tobytes())
        if key not in self.weights:
            stored = self.graph.fresh(f"{layer.weight}.quantized")
            self.graph.add_constant(stored, kept.weight)
            self.weights[key] = self.dequantized(
                layer.weight, stored, kept.params.scale, kept.params.zero_point, layer.axis
            )
        copy.input[list(layer.node.input).index(layer.weight)] = self.weights[key]
        if kept.bias is not None and kept.bias_scale is not None:
            stored = self.graph.fresh(f"{layer.bias}.quantized")
            self.graph.add_constant(stored, kept.bias)
            zero = np.zeros(kept.bias_scale.shape, np.int32)
            copy.input[2] = self.dequantized(layer.bias, stored, kept.bias_scale, zero, 0)

    def dequantized(self, name: str, stored: str, scale: np.ndarray, zero: np.ndarray, axis: int | None) -> str:
        """Add a DequantizeLinear behind a constant; the name of its result."""
        read = self.graph.fresh(f"{name}.dequantized")
        along: dict[str, Any] = {} if axis is None or not scale.ndim else {"axis": axis}
        self.add("DequantizeLinear", [stored, *self.pair(name, scale, zero)], read, **along)
        return read

    def add(self, op: str, inputs: list[str], output: str, **given: Any) -> None:
        from onnx import helper

        self.nodes.append(helper.make_node(op, inputs, [output], name=self.graph.fresh(f"{output}/{op}"), **given))
