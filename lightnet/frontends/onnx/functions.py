"""ONNX functions: ops that the standard, or a model, defines by a graph of simpler ops.

The bodies of the standard's functions come from the package `onnx` (for ops whose body depends on types or attributes,
it is built for the node); those of a model's own functions come with the model. Imports the reader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lightnet.dataclasses import replace
from lightnet.diagnostics import LightNetError
from lightnet.frontends.graph import Value
from lightnet.frontends.onnx.model import ELEM_TYPES, MICROSOFT, ML, TRAINING, AttributeRef, OnnxFunction, OnnxNode
from lightnet.frontends.onnx.protos import need_onnx
from lightnet.frontends.onnx.reader import read_function
from lightnet.ir.resolving import is_installed, missing_text


def body_of(node: OnnxNode, inputs: Sequence[Value | None], opset: int) -> OnnxFunction | None:
    """The function body of a standard op for this node, or None where it has none."""
    need_onnx()
    schema = _schema(node, opset)
    if schema is None:
        return None
    if schema.has_context_dependent_function:
        types = [_type_proto(v).SerializeToString() for v in inputs]
        versions = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
        if versions:
            proto = node.proto.SerializeToString()
            try:
                data = schema.get_context_dependent_function_with_opset_version(max(versions), proto, types)
            except Exception as error:  # of any class: it comes from C++, about a malformed node
                raise LightNetError(f"has no function body: {error}", label="onnx.function") from None
            return _function(data, schema, opset) if data else None
    versions = [v for v in schema.function_opset_versions if v <= opset]
    if not versions:
        return None
    return _function(schema.get_function_with_opset_version(max(versions)), schema, opset)


def _function(data: bytes, schema: Any, opset: int) -> OnnxFunction:
    """A function, whose attributes have the defaults that its op declares: a serialized FunctionProto behind another
    adds to it."""
    import onnx

    defaults = [a.default_value for a in schema.attributes.values() if a.default_value.name]
    function = read_function(data + onnx.FunctionProto(attribute_proto=defaults).SerializeToString())
    return replace(function, opsets={"": opset, **function.opsets})


#: The largest number of an opset that the package takes: a file may say any of 64 bits.
_NEWEST = (1 << 31) - 1


def _schema(node: OnnxNode, opset: int) -> Any:
    import onnx

    try:
        return onnx.defs.get_schema(node.op_type, min(opset, _NEWEST), node.domain)
    except onnx.defs.SchemaError:
        return None


def _type_proto(value: Value | None) -> Any:
    import onnx

    if value is None:
        return onnx.TypeProto()
    dims = [d if isinstance(d, int) else str(d) for d in value.dims]
    return onnx.helper.make_tensor_type_proto(ELEM_TYPES[value.storage or value.dtype.name], dims)


_TEXT = "it computes text inside of a subgraph or a function, and only the graph itself has a host part for that"
#: Ops that are refused for what they are, and why, by domain and name; any other without a handler may only be missing.
REASONS = {
    **{("", op): _TEXT for op in ("StringNormalizer", "StringConcat", "StringSplit", "RegexFullMatch")},
    (
        "",
        "ImageDecoder",
    ): "it decodes a file of a picture, whose size follows from the bytes: do that before the network",
    (TRAINING, "Gradient"): "it asks for derivatives, which a compiled network does not have",
}
#: Packages that bring the handlers of a domain.
_BESIDE = {ML: "lightnet_ml", MICROSOFT: "lightnet_ort"}


def why_not(node: OnnxNode, opset: int) -> str | None:
    """The reason why an op without a handler cannot be imported; None where it has a function body."""
    if (reason := REASONS.get((node.domain, node.op_type))) is not None:
        return reason
    if (package := _BESIDE.get(node.domain)) is not None and not is_installed(package):
        return missing_text(f"the front end for {node.domain}", package)
    need_onnx()
    schema = _schema(node, opset)
    if schema is not None and (schema.has_function or schema.has_context_dependent_function):
        return None
    if schema is None:
        where = f"domain '{node.domain}'" if node.domain else "ONNX"
        return f"there is no such op in {where}, opset {opset}"
    if any("seq(" in t or "optional(" in t or "map(" in t for o in (*schema.inputs, *schema.outputs) for t in o.types):
        return "sequences, optionals and maps are not supported"
    return "the op is not supported yet: it needs a handler (docs/add-an-op.md)"


def bound_body(function: OnnxFunction, call: OnnxNode) -> list[OnnxNode]:
    """The nodes of a function with its attribute references replaced by what the call gives."""
    if not any(isinstance(v, AttributeRef) for n in function.nodes for v in n.attributes.values()):
        return list(function.nodes)
    given = {**function.defaults, **call.attributes}
    return [_bound_node(n, given) for n in function.nodes]


def _bound_node(node: OnnxNode, given: Mapping[str, Any]) -> OnnxNode:
    """A node with its references replaced; an attribute that the call does not give is absent in the body too."""
    pairs = ((k, given.get(v.name) if isinstance(v, AttributeRef) else v) for k, v in node.attributes.items())
    return replace(node, attributes={k: v for k, v in pairs if v is not None})
