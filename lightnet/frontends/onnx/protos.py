"""Nodes as protobuf messages, for what the package `onnx` makes of a node: the bodies of functions that depend on it.

A message is made from the values that the reader has checked, never from the model's own bytes. Imports `onnx`
(optional) where it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.frontends.onnx.model import (
    ELEM_TYPES,
    AttributeRef,
    OnnxGraph,
    OnnxModel,
    OnnxNode,
    OnnxTensor,
    ValueInfo,
)
from lightnet.runtime.stored import FORMATS

if TYPE_CHECKING:
    import onnx


def node_proto(node: OnnxNode) -> onnx.NodeProto:
    """See `OnnxNode.proto`. Raises LightNetError where the package is missing, and for an attribute that is a type."""
    onnx = need_onnx()
    proto = onnx.NodeProto(
        name=node.name, op_type=node.op_type, domain=node.domain, input=node.inputs, output=node.outputs
    )
    for name, value in node.attributes.items():
        if not isinstance(value, AttributeRef):
            proto.attribute.append(_attribute(name, value))
    return proto


def _attribute(name: str, value: Any) -> onnx.AttributeProto:
    import onnx

    if isinstance(value, OnnxTensor):
        value = _tensor(value)
    elif isinstance(value, OnnxGraph):
        value = _graph(value)
    elif value == ():
        return onnx.AttributeProto(name=name, type=onnx.AttributeProto.INTS)
    elif not isinstance(value[0] if isinstance(value, tuple) else value, (float, int, str, bytes)):
        raise LightNetError(f"the attribute '{name}' cannot be passed to a function body", label="onnx.node")
    return onnx.helper.make_attribute(name, value)


def _tensor(tensor: OnnxTensor) -> onnx.TensorProto:
    import onnx

    format = FORMATS.get(tensor.dtype)
    data = tensor.load().tobytes() if format is None else format.packed(tensor.load())
    return onnx.TensorProto(name=tensor.name, dims=tensor.dims, data_type=ELEM_TYPES[tensor.dtype], raw_data=data)


def _graph(graph: OnnxGraph) -> onnx.GraphProto:
    import onnx

    nodes = [node_proto(n) for n in graph.nodes]
    initializers = [_tensor(t) for t in graph.initializers.values()]
    return onnx.helper.make_graph(
        nodes, graph.name, [*map(_info, graph.inputs)], [*map(_info, graph.outputs)], initializers
    )


def _info(info: ValueInfo) -> onnx.ValueInfoProto:
    import onnx

    if info.dtype not in ELEM_TYPES:
        return onnx.ValueInfoProto(name=info.name)
    return onnx.helper.make_tensor_value_info(info.name, ELEM_TYPES[info.dtype], info.dims)


def model_of_opset(model: OnnxModel, opset: int) -> bytes:
    """A model of an older opset as one of `opset`, by the version converter of the package `onnx`. Raises LightNetError
    where that is missing, or cannot convert it."""
    loc = SourceLoc(model.path)
    old = f"opset {model.opsets['']} is older than {opset}"
    try:
        onnx = need_onnx()
    except LightNetError:
        raise LightNetError(f"{old}: the package onnx converts it (pip install onnx)", loc) from None
    graph = _graph(model.graph)
    imports = [onnx.helper.make_opsetid(domain, version) for domain, version in model.opsets.items()]
    proto = onnx.helper.make_model(graph, opset_imports=imports, ir_version=model.ir_version)
    try:
        if model.functions:
            raise ValueError("it has functions, which are newer")
        if any(info.type.WhichOneof("value") is None for info in graph.input):
            raise ValueError("an input has a type that is not supported")
        return onnx.version_converter.convert_version(proto, opset).SerializeToString()
    except Exception as error:  # of any class: it comes from C++, about a malformed node
        reason = [*str(error).strip().splitlines(), type(error).__name__][0]
        raise LightNetError(f"{old}, and cannot be converted: {reason:.200}", loc, label="onnx.model") from None


def need_onnx(what: str = "this") -> Any:
    """The package `onnx`, or a LightNetError that says how to get it, and what it is for."""
    try:
        import onnx
    except ImportError:
        raise LightNetError(f"{what} needs the package 'onnx': pip install 'lightnet-compiler[onnx]'") from None
    return onnx
