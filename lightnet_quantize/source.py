"""Models to quantise, read and written. Imports the package; onnx inside of functions.

A file goes through LightNet's own reader first, which checks it; the protobuf message is made of the same bytes, so
that what only some other tool reads (metadata, documentation) is kept.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.frontends.onnx.protos import model_of_opset, need_onnx
from lightnet.frontends.onnx.reader import read_model
from lightnet.model import Weights
from lightnet.runtime.files import map_file, write_atomic

if TYPE_CHECKING:
    import onnx

#: A protobuf message is smaller than this; what is larger has its weights beside it.
MAX_MESSAGE = (1 << 31) - (1 << 20)
#: Bytes of an initializer from which on it goes into the file beside the model, and the alignment there.
LEAST_EXTERNAL, ALIGNMENT = 1024, 4096
#: Opsets from which on QuantizeLinear and DequantizeLinear are there, and have scales along an axis.
PER_TENSOR_OPSET, PER_AXIS_OPSET = 10, 13


@dataclass(frozen=True)
class SourceModel:
    """An ONNX model in memory, all weights included, and its `path` for errors."""

    proto: onnx.ModelProto
    path: str

    def error(self, message: str) -> LightNetError:
        """An error about the model."""
        return LightNetError(message, SourceLoc(self.path))

    @property
    def opset(self) -> int:
        """The version of ONNX's own ops."""
        return max((o.version for o in self.proto.opset_import if o.domain in ("", "ai.onnx")), default=1)


def read_source(
    model: Any,
    weights: Weights = None,
    shapes: Mapping[str, Sequence[Any]] | None = None,
    opset: int = PER_TENSOR_OPSET,
) -> SourceModel:
    """The network to quantise, as ONNX of at least `opset`: the path of a file in any form that LightNet reads, the
    bytes of an ONNX model, an `onnx.ModelProto` or a `lightnet.Model`.

    Raises LightNetError for what cannot be read, an opset that the converter of the package `onnx` cannot raise, and
    where that package is not there.
    """
    need_onnx("quantisation")
    if (found := _onnx_bytes(model)) is None:
        return _exported(model, weights, shapes)
    import onnx

    data, path = found
    if weights is not None or shapes:
        what, why = ("shapes", "has those of the data") if weights is None else ("weights", "brings its own")
        raise LightNetError(f"{what} are for networks of other forms: an ONNX model {why}", SourceLoc(path))
    checked = read_model(
        path if isinstance(model, str | os.PathLike) else data, path
    )  # of a file, with the files beside it
    if checked.opsets.get("", opset) < opset:
        proto = onnx.ModelProto.FromString(model_of_opset(checked, opset))
        proto.ir_version = max(checked.ir_version, onnx.helper.find_min_ir_version_for(proto.opset_import))
        proto.metadata_props.extend(onnx.ModelProto.FromString(bytes(data)).metadata_props)
        return SourceModel(proto, path)
    proto = onnx.ModelProto.FromString(bytes(data))
    for tensor in proto.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            loaded = onnx.numpy_helper.from_array(checked.graph.initializers[tensor.name].load(), tensor.name)
            tensor.CopyFrom(loaded)
    if any(t.data_location == onnx.TensorProto.EXTERNAL for t in _inner_tensors(proto.graph)):
        raise LightNetError("a tensor inside of a node has its data in another file", SourceLoc(path))
    return SourceModel(proto, path)


def _onnx_bytes(model: Any) -> tuple[memoryview, str] | None:
    """The bytes of an ONNX model, and its name in errors; None for a network of another form."""
    if hasattr(model, "SerializeToString"):
        return memoryview(model.SerializeToString()), "<model>"
    if isinstance(model, bytes | memoryview):
        return memoryview(model).cast("B"), "<bytes>"
    if isinstance(model, str | os.PathLike) and Path(model).suffix.lower() == ".onnx":
        return map_file(model), os.fspath(model)
    return None


def _exported(model: Any, weights: Weights, shapes: Mapping[str, Sequence[Any]] | None) -> SourceModel:
    """A network of another form, as ONNX, of the opset that our exporter writes (18 or newer)."""
    from lightnet.model import Model, load
    from lightnet_export.onnx.model import to_onnx

    if not isinstance(model, Model):
        model, weights = load(model, weights=weights, shapes=shapes), None
    return SourceModel(to_onnx(model, weights=weights), str(model.source))


def _inner_tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """The tensors of nodes' attributes, and of graphs inside of nodes."""
    for node in graph.node:
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
            for inner in (attribute.g, *attribute.graphs):
                yield from inner.initializer
                yield from _inner_tensors(inner)


def write_model(proto: onnx.ModelProto, path: str, external: bool) -> list[str]:
    """Write a model, with its weights in ``NAME.data`` beside it where `external` says so, or where one file would be
    too large; ``-`` is standard output. Returns the paths that were written, each whole. The same model gives the same
    bytes."""
    external = external or proto.ByteSize() > MAX_MESSAGE
    if not external:
        write_atomic(path, proto.SerializeToString(deterministic=True))
        return [path]
    if path == "-":
        raise LightNetError("a model with its weights in a file beside it needs a name: -o FILE.onnx")
    beside = f"{path}.data"
    pieces = _move_out(proto, os.path.basename(beside))

    def fill(out: Any) -> None:
        for offset, data in pieces:
            out.write(bytes(offset - out.tell()))
            out.write(data)

    write_atomic(beside, fill)
    try:
        write_atomic(path, proto.SerializeToString(deterministic=True))
    except LightNetError:
        Path(beside).unlink(missing_ok=True)
        raise
    return [path, beside]


def _move_out(proto: onnx.ModelProto, location: str) -> list[tuple[int, bytes]]:
    """Let the large initializers refer to a file, by offset and length; returns what it holds."""
    import onnx

    pieces: list[tuple[int, bytes]] = []
    offset = 0
    for tensor in proto.graph.initializer:
        data = tensor.raw_data or onnx.numpy_helper.to_array(tensor).tobytes()
        if len(data) < LEAST_EXTERNAL or tensor.data_type == onnx.TensorProto.STRING:
            continue
        pieces.append((offset, data))
        for field in ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data"):
            tensor.ClearField(field)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", location), ("offset", offset), ("length", len(data))):
            tensor.external_data.add(key=key, value=str(value))
        offset += -(-len(data) // ALIGNMENT) * ALIGNMENT
    return pieces


def initializer(array: np.ndarray, name: str) -> onnx.TensorProto:
    """An array as an initializer."""
    import onnx

    return onnx.numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
