"""The question whether an ONNX graph has text or maps in it: if so, `split.py` parts it. Imports the model alone."""

from __future__ import annotations

from lightnet.frontends.onnx.model import ML, STRINGS, OnnxGraph, OnnxNode, OnnxTensor

#: Attributes whose being there says that a node reads or gives text.
_TEXT_ATTRIBUTES = {"value_string", "value_strings", "keys_strings", "values_strings", "cats_strings",
                    "classes_strings", "pool_strings"}  # fmt: skip
#: Classifiers, whose labels may be text.
_CLASSIFIERS = {(ML, name) for name in ("LinearClassifier", "SVMClassifier", "TreeEnsembleClassifier")}
_LABELS = ("classlabels_strings", "classlabels_int64s", "classlabels_ints")


def needs_host(graph: OnnxGraph) -> bool:
    """Return whether a graph has text or maps at its ends or within it (of subgraphs and functions it does not say:
    they have none)."""
    dtypes = [i.dtype for i in (*graph.inputs, *graph.outputs)] + [i.dtype for i in graph.initializers.values()]
    return (
        STRINGS in dtypes
        or any(i.dtype.startswith("map(") for i in graph.inputs)
        or any(names_text(n) or names_columns(n) for n in graph.nodes)
    )


def names_text(node: OnnxNode) -> bool:
    """Return whether a node's attributes say that it reads or gives text."""
    attributes = node.attributes
    if names_classes(node) or _TEXT_ATTRIBUTES & attributes.keys():
        return True
    if node.op_type == "Cast" and attributes.get("to") == 8:
        return True
    return any(isinstance(v, OnnxTensor) and v.dtype == STRINGS for v in attributes.values())


def names_columns(node: OnnxNode) -> bool:
    """Return whether a node makes maps of scores."""
    return (node.domain, node.op_type) == (ML, "ZipMap")


def names_classes(node: OnnxNode) -> bool:
    given = [name for name in _LABELS if node.attributes.get(name)]
    return (node.domain, node.op_type) in _CLASSIFIERS and given == ["classlabels_strings"] and bool(node.outputs[0])
