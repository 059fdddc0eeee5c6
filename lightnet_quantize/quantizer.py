"""Quantisation, from a float32 network and data to a QDQ model: what `quantize` does, top to bottom. Imports the
package; onnx inside of functions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from lightnet.dataclasses import dataclass
from lightnet.model import Weights
from lightnet_quantize.calibration import Data, Feeds, Runner, batches, collect
from lightnet_quantize.histograms import Histogram
from lightnet_quantize.options import QuantizeOptions
from lightnet_quantize.placement import Placement, check_excluded, check_float, place
from lightnet_quantize.prepare import Graph, fold
from lightnet_quantize.ranges import QuantParams, activation_params
from lightnet_quantize.report import Report, measure
from lightnet_quantize.rewriting import Rewriter
from lightnet_quantize.source import PER_AXIS_OPSET, PER_TENSOR_OPSET, SourceModel, read_source, write_model

if TYPE_CHECKING:
    import onnx

#: The entry of a model's metadata that says how it was quantised.
METADATA = "lightnet.quantize"


@dataclass(frozen=True)
class Quantized:
    """A quantised network: the `model` in QDQ form, and the accuracy `report` (None where none was asked for)."""

    model: onnx.ModelProto
    report: Report | None

    def save(self, path: str, external: bool = False) -> list[str]:
        """Write the model; returns the paths written. `external` puts weights into ``PATH.data``, as is done in any
        case where one file would be too large. Raises LightNetError where the system refuses; nothing is half-written.
        """
        model = self.model
        if external:
            from lightnet_quantize.prepare import copied

            model = copied(model)
        return write_model(model, path, external)


def quantize(
    model: Any,
    data: Data,
    options: QuantizeOptions | None = None,
    *,
    weights: Weights = None,
    shapes: Mapping[str, Sequence[Any]] | None = None,
    stage: Callable[[str], None] = lambda text: None,
) -> Quantized:
    """Quantise a network to 8 bits: the QDQ form, with ranges that calibration `data` decide.

    `model` is a path in any form that LightNet reads, the bytes of an ONNX model, an `onnx.ModelProto` or a
    `lightnet.Model`; `weights` and `shapes` are for reading a path, as those of `lightnet.load`. `data` is an ``.npz``
    file, a mapping, or what feeds each call (`calibration.batches`): an array for each input, of float32 or the input's
    own type. `stage` is told what is done. The opset is kept where it is 13 or newer (10, with a scale for each
    tensor), and raised to that by the converter of the package `onnx` otherwise. The same arguments give the same
    bytes.

    Raises LightNetError: a model or data that cannot be read or do not fit each other, NaN or infinities in data,
    weights or what the float32 network makes of the data, names in `exclude` that there are not, a network that is
    quantised already, nothing to quantise.
    """
    options = options or QuantizeOptions()
    stage("reading")
    source = read_source(model, weights, shapes, PER_AXIS_OPSET if options.per_channel else PER_TENSOR_OPSET)
    graph = Graph(source)
    check_float(graph)
    check_excluded(graph, options)
    fold(graph)
    kept: list[Feeds] = []
    calls = _keeping(batches(data, source, options.samples), kept, options.report_samples)
    placement, histograms = _calibrated(graph, calls, options, stage)
    stage("ranges")
    params = _params(histograms, graph, placement, options)
    stage("writing the QDQ form")
    rewriter = Rewriter(graph.clone(), placement, params, options)
    rewriter.run()
    result = SourceModel(_described(rewriter.graph.model(), options), source.path)
    report = None
    if options.report_samples:
        stage("measuring what each layer costs")
        report = measure(graph, placement, params, options, result, rewriter.read, kept)
    return Quantized(result.proto, report)


def _keeping(calls: Iterable[Feeds], kept: list[Feeds], most: int) -> Iterator[Feeds]:
    """The calls, of which the first `most` are kept."""
    for feeds in calls:
        if len(kept) < most:
            kept.append(feeds)
        yield feeds


def _calibrated(
    graph: Graph, calls: Iterable[Feeds], options: QuantizeOptions, stage: Callable[[str], None]
) -> tuple[Placement, dict[str, Histogram]]:
    """The placement, and the histogram of each tensor that is rounded first (`Placement.entries`).

    Which tensors are of float32 the network says when it runs: what turns out to be of another type in the first call
    is placed anew without it."""
    calls = iter(calls)
    first = next(calls)
    floats = {n for node in graph.nodes for n in node.output if n} | {*graph.inputs}
    while True:
        placement = place(graph, options, floats)
        names = [n for entries in placement.entries(graph).values() for n in entries]
        stage(f"compiling the float32 network, {len(names)} tensors to watch")
        runner = Runner(SourceModel(graph.model(), graph.source.path), names)
        others = {n for n, array in runner(first).items() if array.dtype != np.float32}
        if not others:
            break
        floats -= others
    return placement, collect(runner, chain([first], calls), lambda k: stage(f"calibrating, call {k + 1}"))


def _params(
    histograms: Mapping[str, Histogram], graph: Graph, placement: Placement, options: QuantizeOptions
) -> dict[str, QuantParams]:
    """The parameters of each set of tensors that share a scale, from the values of those that are rounded first."""
    found = {}
    for root, entries in placement.entries(graph).items():
        whole = Histogram()
        for name in entries:
            whole.merge(histograms[name])
        found[root] = activation_params(whole, options)
    return found


def _described(proto: onnx.ModelProto, options: QuantizeOptions) -> onnx.ModelProto:
    """The model with who quantised it, and how, in its metadata."""
    from lightnet import __version__

    others = [entry for entry in proto.metadata_props if entry.key != METADATA]
    said = json.dumps({"version": __version__, **options.said()}, ensure_ascii=False)
    proto.ClearField("metadata_props")
    proto.metadata_props.extend(others)
    proto.metadata_props.add(key=METADATA, value=said)
    proto.producer_name, proto.producer_version = "lightnet", __version__
    return proto
