"""What files that are not quite to the letter say: old opsets, domains that are listed twice, signals without their last axis."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import lightnet
from lightnet.diagnostics import LightNetError

onnx = pytest.importorskip("onnx")
from onnx import helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

RNG = np.random.default_rng(5)


def model(nodes: list, inputs: dict, opsets: list[tuple[str, int]], weights: dict | None = None) -> bytes:
    infos = [helper.make_tensor_value_info(k, 1, v.shape) for k, v in inputs.items()]
    tensors = [numpy_helper.from_array(v, k) for k, v in (weights or {}).items()]
    infos += [
        helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for k, v in (weights or {}).items()
    ]
    graph = helper.make_graph(nodes, "g", infos, [helper.make_tensor_value_info("y", 1, None)], tensors)
    imports = [helper.make_opsetid(*o) for o in opsets]
    return helper.make_model(graph, opset_imports=imports, ir_version=3).SerializeToString()


def floats(*dims: int) -> np.ndarray:
    return RNG.standard_normal(dims).astype(np.float32)


@pytest.mark.parametrize("opset", [1, *(pytest.param(k, marks=pytest.mark.slow) for k in (2, 3, 4)), 5])
def test_old_opsets_are_converted(opset: int) -> None:
    """A classifier's ops as the first exporters wrote them: attributes that became inputs, `consumed_inputs`, axes of a broadcast."""
    old = {} if opset > 5 else {"consumed_inputs": [0, 0]}
    x, w, b = floats(2, 3, 6, 6), floats(4, 3, 3, 3), floats(4)
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], kernel_shape=[3, 3])]
    nodes += [helper.make_node("Add", ["c", "b"], ["s"], broadcast=1, axis=1, **old)]
    nodes += [helper.make_node("Relu", ["s"], ["r"], **({"consumed_inputs": [0]} if old else {}))]
    weights = {"w": w, "b": b}
    if opset < 5:
        nodes += [helper.make_node("Reshape", ["r"], ["y"], shape=[2, -1], **({"consumed_inputs": [0]} if old else {}))]
    else:
        nodes += [helper.make_node("Reshape", ["r", "n"], ["y"])]
        weights["n"] = np.array([2, -1], np.int64)
    got = lightnet.compile(model(nodes, {"x": x}, [("", opset)], weights))({"x": x})["y"]
    new = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Flatten", ["r"], ["y"]),
    ]
    reference = ReferenceEvaluator(onnx.load_from_string(model(new, {"x": x}, [("", 17)], {"w": w, "b": b})))
    np.testing.assert_allclose(got, reference.run(None, {"x": x})[0], atol=1e-5)


def test_without_the_package_an_old_opset_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    source = model([helper.make_node("Relu", ["x"], ["y"])], {"x": floats(3)}, [("", 4)])
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(LightNetError, match="opset 4 is older than 6: the package onnx converts it"):
        lightnet.loads(source, ".onnx")


def test_a_domain_listed_twice_with_one_version() -> None:
    """As converters of scikit-learn's models write it; two versions are a contradiction."""
    nodes, x = [helper.make_node("Relu", ["x"], ["y"])], floats(3)
    for twice in ([("", 17), ("", 17)], [("", 17), ("ai.onnx", 17)]):
        np.testing.assert_array_equal(lightnet.compile(model(nodes, {"x": x}, twice))({"x": x})["y"], np.maximum(x, 0))
    with pytest.raises(LightNetError, match=r"'ai\.onnx' is imported twice, as opset 17 and 18"):
        lightnet.loads(model(nodes, {"x": x}, [("", 17), ("ai.onnx", 18)]), ".onnx")


def test_stft_of_a_signal_without_its_last_axis() -> None:
    """As PyTorch's older exporter writes it, and ONNX Runtime takes it."""
    runtime = pytest.importorskip("onnxruntime")
    x, window = floats(1, 400), np.hanning(64).astype(np.float32)
    nodes = [helper.make_node("STFT", ["x", "step", "window", "size"], ["y"], onesided=1)]
    weights = {"step": np.array(16), "window": window, "size": np.array(64)}
    source = model(nodes, {"x": x}, [("", 17)], weights)
    want = runtime.InferenceSession(source, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    np.testing.assert_allclose(lightnet.compile(source)({"x": x})["y"], want, atol=1e-4)
