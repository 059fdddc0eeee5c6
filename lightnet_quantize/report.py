"""The accuracy report: what each layer's quantisation costs, against float32. Imports calibration and rewriting; onnx
inside of functions.

The figure is the ratio of signal to noise of a layer's result in decibels: 10 log10 of the sum of its squares in
float32 over that of the differences; 6 dB more are half the noise. *Alone*: only this layer is quantised, and reads
what float32 computes; *behind all others*: of the whole quantised network. All layers alone are measured in one
network, the float32 one with a quantised twin beside each layer.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import printable
from lightnet.tables import size, table
from lightnet_quantize.calibration import Feeds, Runner, signal_to_noise
from lightnet_quantize.options import QuantizeOptions
from lightnet_quantize.placement import Layer, Placement
from lightnet_quantize.prepare import Graph, copied
from lightnet_quantize.ranges import QuantParams
from lightnet_quantize.rewriting import Rewriter, stored_weights
from lightnet_quantize.source import SourceModel

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True)
class LayerCost:
    """A row: the layer's node and op, the tensor that is compared, its scale (None where it stays in float32), the
    scales of its weights, and the two ratios in dB."""

    name: str
    op: str
    tensor: str
    scale: float | None
    channels: int
    alone: float
    behind_all: float


@dataclass(frozen=True)
class Report:
    """Costs of quantisation: `layers` in the order of the graph; `outputs`, the ratio in dB of each of the network's
    outputs; `agreement`, the share of rows of an output whose largest element is at the same place, where it has rows
    of several (of classifiers: how often both say the same); `calls` that were measured; bytes of weights before and
    after.
    """

    layers: tuple[LayerCost, ...]
    outputs: Mapping[str, float]
    agreement: Mapping[str, float]
    calls: int
    float_bytes: int
    bytes: int

    def json(self) -> str:
        """All of it as JSON; a ratio without noise is null."""
        plain = {
            "layers": [
                {
                    "name": la.name, "op": la.op, "tensor": la.tensor, "scale": la.scale, "weight_scales": la.channels,
                    "alone_db": _finite(la.alone), "behind_all_db": _finite(la.behind_all),
                }
                for la in self.layers
            ],
            "outputs": {
                name: {"db": _finite(ratio), "agreement": self.agreement.get(name)} for name, ratio in
                self.outputs.items()
            },
            "calls": self.calls, "float_weight_bytes": self.float_bytes, "weight_bytes": self.bytes,
        }  # fmt: skip
        return json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False)

    def rows(self) -> list[tuple[str, ...]]:
        """The rows of a table with the columns `HEADER`."""
        return [
            (la.name, la.op, f"{la.scale:.3g}" if la.scale is not None else "f32", str(la.channels or ""),
             _decibels(la.alone), _decibels(la.behind_all)) for la in self.layers
        ]  # fmt: skip

    def total(self) -> list[str]:
        """The lines below the table."""
        lines = []
        for name, ratio in self.outputs.items():
            same = (
                f", largest element at the same place in {100 * self.agreement[name]:.4g} % of rows"
                if name in self.agreement
                else ""
            )
            lines.append(f"output '{printable(name)}': {_decibels(ratio)} dB{same}")
        lines.append(
            f"{len(self.layers)} layers, {self.calls} calls; weights {size(self.float_bytes)} -> {size(self.bytes)}"
        )
        return lines

    def text(self) -> str:
        """The table and the total, as plain text."""
        return "\n".join([table(HEADER, self.rows()), "", *self.total()])


HEADER = ("layer", "op", "scale", "weight scales", "alone, dB", "behind all, dB")


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _decibels(value: float) -> str:
    return "exact" if value == math.inf else f"{value:.1f}" if math.isfinite(value) else "-"


class _Sums:
    """Sums of squares of tensors and of differences, over calls."""

    def __init__(self) -> None:
        self.signal: dict[str, float] = {}
        self.noise: dict[str, float] = {}

    def add(self, name: str, expected: np.ndarray, found: np.ndarray) -> None:
        wide = expected.astype(np.float64)
        self.signal[name] = self.signal.get(name, 0.0) + float(np.sum(wide**2))
        self.noise[name] = self.noise.get(name, 0.0) + float(np.sum((wide - found.astype(np.float64)) ** 2))

    def ratio(self, name: str) -> float:
        return signal_to_noise(self.signal[name], self.noise[name])


def twins_of(
    graph: Graph, placement: Placement, params: Mapping[str, QuantParams], options: QuantizeOptions
) -> tuple[SourceModel, dict[str, str]]:
    """The float32 network with a twin beside each layer, which reads what the layer does, rounded, and its weights as
    they are stored; and the name of what each twin gives, by the layer's `output`."""
    from onnx import helper

    rewriter = Rewriter(graph.clone(), placement, params, options)
    beside = rewriter.graph
    names: dict[str, str] = {}
    for layer in placement.layers:
        twin = copied(layer.node)
        twin.name = beside.fresh(f"{layer.name}.twin")
        for name in layer.inputs:
            if name not in rewriter.read:
                rewriter.round(name, name)
        twin.input[:] = [rewriter.read.get(n, n) if n in layer.inputs else n for n in twin.input]
        if layer.weight:
            _fill(beside, layer, twin, float(rewriter.of(layer.inputs[0]).scale), options)
        result = beside.fresh(f"{layer.output}.twin")
        twin.output[:] = [result]
        rewriter.nodes.append(twin)
        if layer.clip is not None:
            clipped = beside.fresh(f"{layer.output}.clipped")
            clip = helper.make_node(layer.clip.op_type, [result, *layer.clip.input[1:]], [clipped])
            clip.attribute.extend(layer.clip.attribute)
            rewriter.nodes.append(clip)
            result = clipped
        if layer.output in rewriter.tensors:
            scale, zero = rewriter.scale_of(layer.output)
            stored, read = beside.fresh(f"{result}.quantized"), beside.fresh(f"{result}.dequantized")
            rewriter.add("QuantizeLinear", [result, scale, zero], stored)
            rewriter.add("DequantizeLinear", [stored, scale, zero], read)
            result = read
        names[layer.output] = result
    beside.nodes = [*beside.nodes, *rewriter.nodes]
    return SourceModel(beside.model(), graph.source.path), names


def _fill(graph: Graph, layer: Layer, twin: onnx.NodeProto, step: float, options: QuantizeOptions) -> None:
    """Give a twin its weights as stored, in float32."""
    kept = stored_weights(graph, layer, step, options)
    name = graph.fresh(f"{layer.weight}.twin")
    graph.add_constant(name, kept.weight_values)
    twin.input[list(layer.node.input).index(layer.weight)] = name
    if (bias := kept.bias_values) is not None:
        name = graph.fresh(f"{layer.bias}.twin")
        graph.add_constant(name, bias)
        twin.input[2] = name


def measure(
    graph: Graph,
    placement: Placement,
    params: Mapping[str, QuantParams],
    options: QuantizeOptions,
    quantized: SourceModel,
    read: Mapping[str, str],
    calls: Iterable[Feeds],
) -> Report:
    """The report of a quantised network on some calls; `graph` is the float32 one, and `read` names what stands in the
    quantised one for each tensor that is rounded."""
    twins, twin_names = twins_of(graph, placement, params, options)
    layers, outputs = placement.layers, graph.outputs
    wanted = list(dict.fromkeys([*(la.output for la in layers), *outputs]))
    standing = {n: n if n in outputs else read.get(n, n) for n in wanted}
    expecting = Runner(twins, [*wanted, *twin_names.values()])
    measured = Runner(quantized, list(standing.values()))
    alone, behind, count = _Sums(), _Sums(), 0
    same: dict[str, list[bool]] = {}
    for feeds in calls:
        expected, found = expecting(feeds), measured(feeds)
        for la in layers:
            alone.add(la.output, expected[la.output], expected[twin_names[la.output]])
        for name, stands in standing.items():
            behind.add(name, expected[name], found[stands])
            if name in outputs and expected[name].ndim == 2 and expected[name].shape[1] > 1:
                same.setdefault(name, []).extend(expected[name].argmax(1) == found[stands].argmax(1))
        count += 1
    rows = [
        LayerCost(la.name, la.node.op_type, la.output, _scale(placement, params, la.output), _weight_scales(graph, la),
                  alone.ratio(la.output), behind.ratio(la.output)) for la in layers
    ]  # fmt: skip
    agreement = {name: float(np.mean(values)) for name, values in same.items()}
    sizes = (_weight_bytes(graph.model()), _weight_bytes(quantized.proto))
    return Report(tuple(rows), {n: behind.ratio(n) for n in outputs}, agreement, count, *sizes)


def _scale(placement: Placement, params: Mapping[str, QuantParams], name: str) -> float | None:
    return float(params[placement.scales.find(name)].scale) if name in placement.tensors else None


def _weight_scales(graph: Graph, layer: Layer) -> int:
    """The number of scales that the weights of a layer have."""
    if not layer.weight:
        return 0
    return 1 if layer.axis is None else int(graph.array(layer.weight).shape[layer.axis])


def _weight_bytes(proto: onnx.ModelProto) -> int:
    """The bytes of a model's constants."""
    from onnx import helper

    return sum(
        math.prod(t.dims) * int(helper.tensor_dtype_to_np_dtype(t.data_type).itemsize) for t in proto.graph.initializer
    )
