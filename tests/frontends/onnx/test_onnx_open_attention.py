"""ONNX's Attention where calls decide batch, rows and the keys before: compiled once, against ONNX Runtime."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper  # noqa: E402

import lightnet  # noqa: E402

HEADS, GROUPS, SIZE = 8, 2, 16
CALLS = [(1, 1, 0), (2, 7, 0), (1, 1, 5), (3, 20, 40), (2, 3, 9), (1, 19, 1)]


def model(past: bool, causal: bool, mask: str, flat: bool) -> onnx.ModelProto:
    """Q, K, V of 8 and 2 heads (side by side if `flat`), a mask of a kind if that is named, and a cache."""

    def heads(name: str, count: int):
        dims = ["batch", "rows", count * SIZE] if flat else ["batch", count, "rows", SIZE]
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)

    inputs = [heads("q", HEADS), heads("k", GROUPS), heads("v", GROUPS)]
    kind = TensorProto.BOOL if mask == "bool" else TensorProto.FLOAT
    inputs += [helper.make_tensor_value_info("m", kind, ["rows", "total"])] if mask else []
    cache = ["batch", GROUPS, "past", SIZE]
    inputs += [helper.make_tensor_value_info(n, TensorProto.FLOAT, cache) for n in ("pk", "pv")] if past else []
    outputs = ["y", "nk", "nv"] if past else ["y"]
    names = ["q", "k", "v", "m" if mask else "", *(["pk", "pv"] if past else [])]
    counts = {"q_num_heads": HEADS, "kv_num_heads": GROUPS} if flat else {}
    node = helper.make_node("Attention", names, outputs, is_causal=int(causal), **counts)
    results = [helper.make_empty_tensor_value_info(n) for n in outputs]
    graph = helper.make_graph([node], "g", inputs, results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)


@pytest.mark.parametrize(
    "past, causal, mask, flat", list(product([False, True], [False, True], ["", "bool", "float"], [False, True]))
)
def test_calls_of_any_size(past: bool, causal: bool, mask: str, flat: bool) -> None:
    """Also on no keys before, and so that a row sees all that there is, or but itself."""
    made = model(past, causal, mask, flat)
    ranges = {"rows": "1..20", "batch": "1..3"}
    ranges |= ({"past": "0..40"} if past else {}) | ({"total": "1..60"} if mask else {})
    run = lightnet.compile(lightnet.load(made, dims=ranges), threads=1, caches="all" if past else "")
    assert len(run.program.caches()) == 2 * past
    session = ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)

    def numbers(*dims: int) -> np.ndarray:
        return rng.standard_normal(dims).astype(np.float32)

    for batch, rows, before in CALLS:
        before *= past
        shapes = [(batch, rows, n * SIZE) if flat else (batch, n, rows, SIZE) for n in (HEADS, GROUPS, GROUPS)]
        feeds = {name: numbers(*shape) for name, shape in zip("qkv", shapes)}
        if mask:
            seen = rng.random((rows, rows + before)) < 0.7
            seen[:, 0] = True  # ONNX Runtime and the standard differ on rows that see nothing
            feeds["m"] = seen if mask == "bool" else np.where(seen, 0, -1e4).astype(np.float32)
        feeds |= {name: numbers(batch, GROUPS, before, SIZE) for name in (("pk", "pv") if past else ())}
        for got, want in zip(run(feeds).values(), session.run(None, feeds), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_a_mask_that_is_shorter_by_a_number() -> None:
    """A new key that the mask says nothing of is hidden, as where all sizes are numbers."""
    made = model(past=True, causal=False, mask="float", flat=False)
    for value in made.graph.input:
        if value.name in ("q", "k", "v"):
            value.type.tensor_type.shape.dim[2].dim_value = 1
        if value.name == "m":
            value.type.tensor_type.shape.dim[0].dim_value = 1
            value.type.tensor_type.shape.dim[1].dim_param = "past"
    run = lightnet.compile(lightnet.load(made, dims={"past": "2..40", "batch": "1..3"}), threads=1)
    rng = np.random.default_rng(1)
    for past in (2, 7, 40):
        shapes = {
            "q": (2, HEADS, 1),
            "k": (2, GROUPS, 1),
            "v": (2, GROUPS, 1),
            "pk": (2, GROUPS, past),
            "pv": (2, GROUPS, past),
        }
        feeds = {name: rng.standard_normal((*dims, SIZE)).astype(np.float32) for name, dims in shapes.items()}
        feeds["m"] = rng.standard_normal((1, past)).astype(np.float32)
        fixed = lightnet.compile(lightnet.load(made, shapes={n: a.shape for n, a in feeds.items()}))
        np.testing.assert_allclose(run(feeds)["y"], fixed(feeds)["y"], rtol=1e-4, atol=1e-5)
