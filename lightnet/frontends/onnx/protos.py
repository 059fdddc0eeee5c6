"""Nodes as protobuf messages, for what the package `onnx` makes of a node: the bodies of functions that depend on it.

A message is made from the values that the reader has checked, never from the model's own bytes. Imports `onnx` (optional) where
it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lightnet.diagnostics import LightNetError
from lightnet.frontends.onnx.model import ELEM_TYPES, AttributeRef, OnnxGraph, OnnxNode, OnnxTensor, ValueInfo

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

    data = tensor.load().tobytes()
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


def need_onnx() -> Any:
    """The package `onnx`, or a LightNetError that says how to get it."""
    try:
        import onnx
    except ImportError:
        raise LightNetError("this needs the package onnx: pip install lightnet-compiler[onnx]") from None
    return onnx
