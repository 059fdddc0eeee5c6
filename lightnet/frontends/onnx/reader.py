"""Reads ONNX models: `read_model` checks everything about a file that does not need an op's definition.

The file is mapped and walked by a wire-format reader of our own (`wire.py`); structure is checked here and in
`structure.py`, by us: neither protobuf, nor `onnx.checker`, nor any shape inference sees the file. Contents of tensors
stay in it until they are loaded (`tensors.py`). The package `onnx` is not needed. Imports the modules named and the
standard library.

Source: onnx/onnx-ml.proto and docs/IR.md of ONNX 1.23.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from typing import Any

from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.frontends.onnx import structure
from lightnet.frontends.onnx import wire as w
from lightnet.frontends.onnx.external import ExternalFiles
from lightnet.frontends.onnx.model import (
    AttributeRef,
    OnnxFunction,
    OnnxGraph,
    OnnxModel,
    OnnxNode,
    OnnxTensor,
    TypeDescription,
    ValueInfo,
    type_name,
)
from lightnet.frontends.onnx.tensors import MAX_NAME, TensorReader
from lightnet.ir.collector import collector_paused
from lightnet.runtime.files import map_file
from lightnet.source import file_kind

#: Opsets of ONNX's own ops that are imported; of opset 6 are the PyTorch exports of the standard's test suite. Older
#: ones are converted to it by the package `onnx`, from what has been read and checked here.
OLDEST_OPSET, NEWEST_OPSET = 6, 28
#: Versions of the file format: 3 was the first with opsets.
OLDEST_IR, NEWEST_IR = 3, 14
MAX_NODES = 1 << 17
#: Graphs inside of graphs, and types inside of types (a sequence of optionals).
MAX_GRAPHS, MAX_TYPES = 16, 8
#: Elements of an attribute that is a list.
MAX_LIST = 1 << 20
#: A protobuf message is smaller than this.
MAX_FILE = 1 << 31

_TYPES_OF_TYPES = {"sequence_type": "sequence", "optional_type": "optional", "opaque_type": "opaque",
                   "sparse_tensor_type": "sparse_tensor"}  # fmt: skip


@collector_paused()
def read_model(source: bytes | memoryview | str | os.PathLike[str], name: str | None = None) -> OnnxModel:
    """The model of a file, or of bytes in memory (which can have no external data). `name` stands in errors.

    Raises LightNetError, located at `name`, for a file that cannot be read, for anything malformed, for an opset that
    LightNet does not know, and beyond the limits of this module and `structure.py`.
    """
    if isinstance(source, bytes | memoryview):
        path, data = name or "<bytes>", memoryview(source).cast("B")
        external = ExternalFiles(path, is_file=False)
    else:
        path, data = name or os.fspath(source), map_file(source)
        external = ExternalFiles(os.fspath(source), is_file=True)
    if len(data) >= MAX_FILE:
        raise LightNetError(f"the file is too large: an ONNX model is smaller than {MAX_FILE} bytes", SourceLoc(path))
    reader = _Reader(w.Wire(data, path), external)
    try:
        model = reader.model()
    except LightNetError as error:
        if (kind := file_kind(bytes(data[:24]))) is not None and "looks like" not in kind:
            error.message = f"not a valid ONNX model: {kind}"
        raise
    structure.check_structure(model)
    if model.opsets.get("", OLDEST_OPSET) < OLDEST_OPSET:
        from lightnet.frontends.onnx.protos import model_of_opset

        return read_model(model_of_opset(model, OLDEST_OPSET), path)
    return model


def read_function(data: bytes) -> OnnxFunction:
    """A serialized FunctionProto, such as the package `onnx` gives for a standard op. Raises LightNetError."""
    path = "<function>"
    reader = _Reader(w.Wire(memoryview(data), path), ExternalFiles(path, is_file=False))
    return reader.function((0, len(data)))


class _Reader:
    """Builds the model's dataclasses from the file's messages. `where` is the path to what is being read, for
    errors."""

    def __init__(self, wire: w.Wire, external: ExternalFiles):
        self.wire = wire
        self.where: list[str] = []
        self.tensors = TensorReader(wire, external, self.fail)
        self.names: dict[bytes, str] = {}
        self.depth = self.count = 0

    def fail(self, message: str) -> LightNetError:
        return LightNetError(": ".join([*self.where, message]), SourceLoc(self.wire.path), label="onnx.model")

    def name(self, fields: w.Fields, field: str) -> str:
        return self.text(fields[field]) if field in fields else ""

    def text(self, span: w.Span) -> str:
        """A name; each is checked once."""
        begin, end = span
        if end - begin > MAX_NAME:
            raise self.fail(f"a name of {end - begin} bytes is longer than the limit of {MAX_NAME}")
        key = bytes(self.wire.data[begin:end])
        text = self.names.get(key)
        if text is None:
            text = self.names[key] = self.wire.text(span, MAX_NAME)
        return text

    def texts(self, fields: w.Fields, field: str) -> tuple[str, ...]:
        return tuple(map(self.text, fields.get(field, ())))

    # -- model and functions

    def model(self) -> OnnxModel:
        fields = self.wire.decode(w.MODEL, (0, len(self.wire.data)))
        version = fields.get("ir_version", 0)
        if not OLDEST_IR <= version <= NEWEST_IR:
            raise self.fail(f"IR version {version} is not supported (known: {OLDEST_IR} to {NEWEST_IR})")
        opsets = self.opsets(fields)
        if "graph" not in fields:
            raise self.fail("the model has no graph")
        functions: dict[tuple[str, str], OnnxFunction] = {}
        for span in fields.get("functions", []):
            function = self.function(span)
            if (function.domain, function.name) in functions:
                raise self.fail(f"function '{function.name}' of domain '{function.domain}' is defined twice")
            functions[function.domain, function.name] = function
        graph = self.graph(fields["graph"])
        return OnnxModel(self.wire.path, version, self.name(fields, "producer_name"), graph, opsets, functions)

    def opsets(self, fields: w.Fields) -> dict[str, int]:
        opsets: dict[str, int] = {}
        for span in fields.get("opset_import", []):
            entry = self.wire.decode(w.OPSET, span)
            domain, version = _domain(self.name(entry, "domain")), entry.get("version", 0)
            if opsets.get(domain, version) != version:  # some writers list a domain twice, with one version
                raise self.fail(
                    f"domain '{domain or 'ai.onnx'}' is imported twice, as opset {opsets[domain]} and {version}"
                )
            if not domain and not 1 <= version <= NEWEST_OPSET:
                raise self.fail(f"opset {version} is not supported (known: {OLDEST_OPSET} to {NEWEST_OPSET}, and 1 to "
                                f"{OLDEST_OPSET - 1} with the package onnx, which converts them)")  # fmt: skip
            if version < 1:
                raise self.fail(f"opset {version} of domain '{domain}' is not valid")
            opsets[domain] = version
        return opsets

    def function(self, span: w.Span) -> OnnxFunction:
        fields = self.wire.decode(w.FUNCTION, span)
        name = self.name(fields, "name")
        self.where.append(f"function '{name}'")
        if not name:
            raise self.fail("it has no name")
        if fields.get("overload", (0, 0))[0] < fields.get("overload", (0, 0))[1]:
            raise self.fail("overloads are not supported")
        defaults = self.attributes(fields.get("attribute_proto", []))
        nodes = self.nodes(fields.get("node", []))
        function = OnnxFunction(
            _domain(self.name(fields, "domain")), name, self.texts(fields, "input"), self.texts(fields, "output"),
            self.texts(fields, "attribute"), defaults, nodes, self.opsets(fields))  # fmt: skip
        self.where.pop()
        return function

    # -- graphs

    def graph(self, span: w.Span) -> OnnxGraph:
        if self.depth >= MAX_GRAPHS:
            raise self.fail(f"graphs are nested deeper than {MAX_GRAPHS}")
        self.depth += 1
        fields = self.wire.decode(w.GRAPH, span)
        initializers: dict[str, OnnxTensor] = {}
        for field, read in (("initializer", self.tensors.tensor), ("sparse_initializer", self.tensors.sparse)):
            for i, part in enumerate(fields.get(field, [])):
                self.where.append(f"{field} {i}")
                tensor = read(part)
                if not tensor.name:
                    raise self.fail("it has no name")
                if tensor.name in initializers:
                    raise self.fail(f"'{tensor.name}' is defined twice")
                initializers[tensor.name] = tensor
                self.where.pop()
        graph = OnnxGraph(
            self.name(fields, "name"), self.value_infos(fields, "input"), self.value_infos(fields, "output"),
            initializers, self.nodes(fields.get("node", [])))  # fmt: skip
        self.depth -= 1
        return graph

    def value_infos(self, fields: w.Fields, field: str) -> tuple[ValueInfo, ...]:
        infos = []
        for i, span in enumerate(fields.get(field, [])):
            self.where.append(f"{field} {i}")
            info = self.wire.decode(w.VALUE_INFO, span)
            name = self.name(info, "name")
            if not name:
                raise self.fail("it has no name")
            self.where[-1] = f"{field} '{name}'"
            infos.append(
                ValueInfo(name, *self.type(info["type"])) if "type" in info else ValueInfo(name, "undefined", None)
            )
            self.where.pop()
        return tuple(infos)

    def type(self, span: w.Span, depth: int = 0) -> tuple[str, tuple[int | str | None, ...] | None]:
        """Element type and dims; a type that is no tensor's has no dims, and a name like ``sequence(f32)`` or
        ``map(i64,f32)``."""
        if depth > MAX_TYPES:
            raise self.fail(f"types are nested deeper than {MAX_TYPES}")
        fields = self.wire.decode(w.TYPE, span)
        if not fields:
            return "undefined", None
        if len(fields) > 1:
            raise self.fail("it has two types")
        ((kind, inner),) = fields.items()
        if kind in ("sequence_type", "optional_type"):
            element = self.wire.decode(w.ELEMENT, inner)
            of = self.type(element["elem_type"], depth + 1)[0] if "elem_type" in element else "undefined"
            return f"{_TYPES_OF_TYPES[kind]}({of})", None
        if kind == "map_type":
            entry = self.wire.decode(w.MAP_TYPE, inner)
            of = self.type(entry["value_type"], depth + 1)[0] if "value_type" in entry else "undefined"
            return f"map({type_name(entry.get('key_type', 0)) or 'undefined'},{of})", None
        if kind != "tensor_type":
            return _TYPES_OF_TYPES[kind], None
        tensor = self.wire.decode(w.TENSOR_TYPE, inner)
        code = tensor.get("elem_type", 0)
        dtype = type_name(code)
        if dtype is None and code:
            raise self.fail(f"it has the unknown element type {code}")
        return dtype or "undefined", self.dims(tensor["shape"]) if "shape" in tensor else None

    def dims(self, span: w.Span) -> tuple[int | str | None, ...]:
        """Declared dims. -1, which some exporters write for an open one, is open."""
        dims: list[int | str | None] = []
        for part in self.wire.decode(w.SHAPE, span).get("dim", []):
            fields = self.wire.decode(w.DIMENSION, part)
            if len(fields) > 1:
                raise self.fail("a dim is a number and a symbol")
            value = fields.get("dim_value")
            if value is None:
                symbol = self.name(fields, "dim_param")
                dims.append(symbol if symbol not in ("", "?") else None)  # Paddle's "?" is not the same dim everywhere
            elif value < -1:
                raise self.fail(f"it has a negative dim: {value}")
            else:
                dims.append(value if value >= 0 else None)
        return tuple(dims)

    # -- nodes

    def nodes(self, spans: Sequence[w.Span]) -> tuple[OnnxNode, ...]:
        return tuple(self.node(i, span) for i, span in enumerate(spans))

    def node(self, index: int, span: w.Span) -> OnnxNode:
        self.where.append(f"node {index}")
        self.count += 1
        if self.count > MAX_NODES:
            raise LightNetError(
                f"the model is too large: it has more than {MAX_NODES} nodes", SourceLoc(self.wire.path)
            )
        fields = self.wire.decode(w.NODE, span)
        name, op_type = self.name(fields, "name"), self.name(fields, "op_type")
        if not op_type:
            raise self.fail("it has no op type")
        self.where[-1] = f"node {index} '{name}' ({op_type})" if name else f"node {index} ({op_type})"
        node = OnnxNode(
            index, name, op_type, _domain(self.name(fields, "domain")), self.texts(fields, "input"),
            self.texts(fields, "output"), self.attributes(fields.get("attribute", [])))  # fmt: skip
        self.where.pop()
        return node

    def attributes(self, spans: Sequence[w.Span]) -> dict[str, Any]:
        attributes: dict[str, Any] = {}
        for span in spans:
            fields = self.wire.decode(w.ATTRIBUTE, span)
            name = self.name(fields, "name")
            self.where.append(f"attribute '{name}'")
            if not name:
                raise self.fail("it has no name")
            if name in attributes:
                raise self.fail("it is given twice")
            attributes[name] = self.attribute(fields)
            self.where.pop()
        return attributes

    def attribute(self, fields: w.Fields) -> Any:
        """The value of an attribute: that of the one field that its type names."""
        code = fields.get("type", 0)
        present = [f for f in fields if f in _ATTRIBUTES.values()]
        reference = self.name(fields, "ref_attr_name")
        if code not in _ATTRIBUTES and (code or not reference):  # ONNX's own functions leave out a reference's type
            raise self.fail(f"it has the unknown type {code}")
        if reference:
            if present:
                raise self.fail("it has a value and refers to another attribute")
            return AttributeRef(reference)
        field = _ATTRIBUTES[code]
        if present not in ([], [field]):
            raise self.fail(f"it holds a value of another type ({next(f for f in present if f != field)}, not {field})")
        value = fields.get(field)
        if value is None:
            if field not in _ATTRIBUTE_DEFAULTS:
                raise self.fail("it has no value")
            return _ATTRIBUTE_DEFAULTS[field]  # protobuf's default: a writer of proto3 leaves it out
        return self.attribute_value(field, value)

    def attribute_value(self, field: str, value: Any) -> Any:
        if field == "i":
            return value
        if field == "f":
            return self.wire.float(value)
        if field == "ints":
            return self.wire.ints(value, MAX_LIST)
        if field == "floats":
            if self.wire.count_fixed(value, 4) > MAX_LIST:
                raise self.fail(f"it is longer than {MAX_LIST} numbers")
            return tuple(
                float(x) for span in value for (x,) in struct.iter_unpack("<f", self.wire.data[span[0] : span[1]])
            )
        read = {"s": self.string, "t": self.tensors.tensor, "g": self.graph, "tp": self.description,
                "sparse_tensor": self.tensors.sparse}  # fmt: skip
        if field in read:
            return read[field](value)
        singular = {"strings": "s", "tensors": "t", "graphs": "g", "type_protos": "tp",
                    "sparse_tensors": "sparse_tensor"}  # fmt: skip
        return tuple(read[singular[field]](span) for span in value)

    def string(self, span: w.Span) -> str | bytes:
        data = bytes(self.wire.data[span[0] : span[1]])
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            return data

    def description(self, span: w.Span) -> TypeDescription:
        return TypeDescription(*self.type(span))


#: AttributeProto.AttributeType → the field that holds the value.
_ATTRIBUTES = {1: "f", 2: "i", 3: "s", 4: "t", 5: "g", 6: "floats", 7: "ints", 8: "strings", 9: "tensors", 10: "graphs",
               11: "sparse_tensor", 12: "sparse_tensors", 13: "tp", 14: "type_protos"}  # fmt: skip
_ATTRIBUTE_DEFAULTS: dict[str, Any] = {
    "f": 0.0, "i": 0, "s": "", **dict.fromkeys(("floats", "ints", "strings", "tensors", "graphs", "sparse_tensors",
                                                "type_protos"), ())}  # fmt: skip


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name
