"""The ops that ONNX Runtime computes otherwise than ONNX says: models with such a node are run node by node, that one
by ONNX's reference evaluator.

Each is listed with its reason; a difference in anything else stays a finding. Imports ONNX and the two runtimes.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from compare_onnxruntime import WIDE_SUMS
from onnx import helper, numpy_helper

Arrays = dict[str, np.ndarray]


def align_corners_of_fractions(node: onnx.NodeProto, inputs: list[np.ndarray | None]) -> bool:
    """Resize by scales under ``align_corners`` to what is no whole number of elements: ONNX's test data (resize_downsample_scales_linear_align_corners and its
    cubic sister, which ONNX Runtime leaves out of its run of them) divide by that number less 1, ONNX Runtime by the number of elements less 1."""
    mode = next((a.s for a in node.attribute if a.name == "coordinate_transformation_mode"), b"")
    if node.op_type != "Resize" or mode != b"align_corners" or len(inputs) < 3 or inputs[0] is None:
        return False
    scales = inputs[2]
    if scales is None or scales.size != inputs[0].ndim:
        return False
    exact = np.asarray(scales, np.float64) * inputs[0].shape
    return bool((np.abs(exact - np.floor(exact)) > 1e-6).any())


def equal_numbers(node: onnx.NodeProto, inputs: list[np.ndarray | None]) -> bool:
    """MeanVarianceNormalization of numbers that are the same: ONNX Runtime takes the root of a variance that rounding makes negative, which is NaN, and ONNX's
    definition gives 0."""
    x = inputs[0] if inputs else None
    if node.op_type != "MeanVarianceNormalization" or x is None or not x.size:
        return False
    axes = next((tuple(a.ints) for a in node.attribute if a.name == "axes"), (0, 2, 3))
    return bool((np.ptp(x, axis=axes) <= 1e-3 * np.abs(x).max(axis=axes)).any())


#: The operands that are multiplied, by operator.
PRODUCTS = {"MatMulInteger": (0, 1), "ConvInteger": (0, 1), "QLinearMatMul": (0, 3), "QLinearConv": (0, 3)}


def saturating_sums(node: onnx.NodeProto, inputs: list[np.ndarray | None]) -> bool:
    """A product of uint8 and int8 in which two terms come to more than 16 bits hold: on an x86 processor without VNNI ONNX Runtime adds them so, and saturates
    (`compare_onnxruntime.WIDE_SUMS` helps where the weights are constant and it optimizes)."""
    if node.op_type not in PRODUCTS or len(inputs) <= max(PRODUCTS[node.op_type]):
        return False
    a, b = (inputs[i] for i in PRODUCTS[node.op_type])
    if a is None or b is None or not (a.size and b.size) or a.dtype != np.uint8 or b.dtype != np.int8:
        return False
    return 2 * int(a.max()) * int(np.abs(b.astype(np.int32)).max()) > np.iinfo(np.int16).max


QUIRKS = (align_corners_of_fractions, equal_numbers, saturating_sums)
#: Ops that one of `QUIRKS` may be of: other models are run whole.
OPS = ("Resize", "MeanVarianceNormalization", *PRODUCTS)


def by_node(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> Arrays | None:
    """The results of a model whose nodes with a quirk ONNX's reference evaluator runs, and the others ONNX Runtime.
    None where there is no such node, or one does not run alone (as with a subgraph).
    """
    if not any(node.op_type in OPS for node in model.graph.node):
        return None
    try:
        return _by_node(model, feeds)
    except Exception:  # ONNX Runtime's have no base in common
        return None


def _by_node(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> Arrays | None:
    known: dict[str, np.ndarray | None] = {
        "": None,
        **feeds,
        **{t.name: numpy_helper.to_array(t) for t in model.graph.initializer},
    }
    found = False
    for node in model.graph.node:
        inputs = [known[name] for name in node.input]
        has_quirk = any(quirk(node, inputs) for quirk in QUIRKS)
        found |= has_quirk
        given = {name: a for name, a in zip(node.input, inputs) if a is not None}
        known.update(_one(model, node, given, has_quirk))
    return {o.name: np.asarray(known[o.name]) for o in model.graph.output} if found else None


def _one(model: onnx.ModelProto, node: onnx.NodeProto, given: Arrays, by_reference: bool) -> Arrays:
    """The outputs of one node."""
    names = [name for name in node.output if name]
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in given.items()
    ]
    graph = helper.make_graph([node], "one", infos, [helper.make_empty_tensor_value_info(n) for n in names])
    one = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    if by_reference:
        from onnx.reference import ReferenceEvaluator

        return dict(zip(names, ReferenceEvaluator(one).run(None, given)))
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry(*WIDE_SUMS)
    session = onnxruntime.InferenceSession(one.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip(names, session.run(names, given)))
