"""Models with text, of ONNX's ops and of ai.onnx.ml's, and what ONNX Runtime and ONNX's reference evaluator make of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ML = "ai.onnx.ml"
#: Dims of an input, and its type unless it is text.
Ends = Sequence[tuple[str, Sequence[int | str | None]] | tuple[str, Sequence[int | str | None], int]]
node = helper.make_node


def text(*words: Any, dims: Sequence[int] | None = None) -> np.ndarray:
    """A text tensor."""
    found = np.empty(len(words), object)
    found[:] = words
    return found if dims is None else found.reshape(dims)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Ends,
    outputs: Sequence[str],
    weights: Mapping[str, np.ndarray] | None = None,
    opset: int = 20,
    ml: int = 3,
) -> onnx.ModelProto:
    """A model of nodes."""
    ends = [helper.make_tensor_value_info(e[0], e[2] if len(e) > 2 else TensorProto.STRING, e[1]) for e in inputs]
    tensors = [numpy_helper.from_array(a, n) for n, a in (weights or {}).items()]
    graph = helper.make_graph(nodes, "g", ends, [helper.make_empty_tensor_value_info(o) for o in outputs], tensors)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid(ML, ml)], ir_version=9
    )


def by_runtime(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """What ONNX Runtime gives."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, dict(feeds))))


def by_reference(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """What ONNX's reference evaluator gives."""
    from onnx.reference import ReferenceEvaluator

    return dict(zip([o.name for o in model.graph.output], ReferenceEvaluator(model).run(None, dict(feeds))))


def of_op(op: str, feeds: Mapping[str, np.ndarray], outputs: int = 1, domain: str = "", opset: int = 20, ml: int = 3,
          constants: Mapping[str, np.ndarray] | None = None, **attributes: Any) -> onnx.ModelProto:  # fmt: skip
    """A model of one op on inputs like `feeds`, and on `constants` behind them."""
    names = [f"y{i}" for i in range(outputs)]
    types = {
        n: TensorProto.STRING if a.dtype == object else helper.np_dtype_to_tensor_dtype(a.dtype)
        for n, a in feeds.items()
    }
    one = node(op, [*feeds, *(constants or {})], names, domain=domain, **attributes)
    return model([one], [(n, a.shape, types[n]) for n, a in feeds.items()], names, constants, opset, ml)


def pipeline(rows: int | str = 4) -> onnx.ModelProto:
    """Categories and numbers in, the text of a class and scores out: what scikit-learn's pipelines become."""
    weights = {"W": np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32), "shape": np.array([-1, 3])}
    nodes = [
        node("OneHotEncoder", ["colour"], ["hot"], cats_strings=["red", "green", "blue"], zeros=1, domain=ML),
        node("Reshape", ["hot", "shape"], ["flat"]),
        node("Concat", ["flat", "x"], ["features"], axis=1),
        node("MatMul", ["features", "W"], ["s"]),
        node("LinearClassifier", ["s"], ["label", "p"], coefficients=[1.0, 0, 0, 0, 1, 0, 0, 0, 1], intercepts=[0.0, 0, 0],
             classlabels_strings=["ant", "bee", "çow"], post_transform="SOFTMAX", domain=ML),
    ]  # fmt: skip
    return model(nodes, [("colour", [rows, 1]), ("x", [rows, 2], TensorProto.FLOAT)], ["label", "p"], weights)


#: What the pipeline is fed: a category that it does not know is among them.
FEEDS = {
    "colour": text("red", "blue", "nope", "green", dims=(4, 1)),
    "x": np.arange(8, dtype=np.float32).reshape(4, 2) / 8,
}
