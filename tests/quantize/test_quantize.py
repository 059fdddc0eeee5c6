"""Quantised networks: what becomes an integer and what does not, that every runtime reads the file and agrees, and what
each option does. The oracles are ONNX Runtime, ONNX's reference evaluator and float64 NumPy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import lightnet
from lightnet.diagnostics import LightNetError
from lightnet_quantize import Quantized, QuantizeOptions, quantize
from lightnet_quantize.calibration import batches
from lightnet_quantize.prepare import Graph, fold
from lightnet_quantize.quantizer import METADATA
from lightnet_quantize.source import SourceModel, read_source

node = helper.make_node


def net(
    nodes: Sequence[onnx.NodeProto],
    weights: dict[str, Any],
    inputs: dict[str, Sequence[Any]],
    outputs: Sequence[str] = ("y",),
    opset: int = 19,
    **options: Any,
) -> onnx.ModelProto:
    """A model whose weights are arrays, or dims of random ones (a bias: of 1 dim)."""
    rng = np.random.default_rng(3)
    arrays = {
        name: np.asarray(rng.normal(size=a) * (0.3 if len(a) > 1 else 0.5), np.float32) if isinstance(a, tuple) else a
        for name, a in weights.items()
    }
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        list(nodes),
        "g",
        [info(n, TensorProto.FLOAT, dims) for n, dims in inputs.items()],
        [info(n, TensorProto.FLOAT, None) for n in outputs],
        [numpy_helper.from_array(a, n) for n, a in arrays.items()],
    )
    imports = [helper.make_opsetid("", opset)]
    version = helper.find_min_ir_version_for(imports)
    return onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=imports, ir_version=version, **options)
    )


def data(model: onnx.ModelProto, samples: int = 6, seed: int = 4) -> dict[str, np.ndarray]:
    """Random samples for the inputs, along one more axis."""
    rng = np.random.default_rng(seed)
    dims = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in model.graph.input}
    return {name: rng.normal(size=(samples, *d)).astype(np.float32) for name, d in dims.items()}


def quantized(model: onnx.ModelProto, **options: Any) -> Quantized:
    return quantize(model, data(model), QuantizeOptions(**{"report_samples": 0, **options}))


def ops(model: onnx.ModelProto) -> list[str]:
    """The op types but those of the QDQ form."""
    return [n.op_type for n in model.graph.node if not n.op_type.endswith("eLinear")]


def rounded(model: onnx.ModelProto) -> list[str]:
    """What goes through a QuantizeLinear."""
    return [n.input[0] for n in model.graph.node if n.op_type == "QuantizeLinear"]


def constant(model: onnx.ModelProto, name: str) -> np.ndarray:
    return next(numpy_helper.to_array(t) for t in model.graph.initializer if t.name == name)


def maker(model: onnx.ModelProto, name: str) -> onnx.NodeProto:
    return next(n for n in model.graph.node if name in n.output)


def weight_of(
    model: onnx.ModelProto, op: str, k: int = 0, of: int = 1
) -> tuple[np.ndarray, np.ndarray, np.ndarray, Any]:
    """Integers, scale, zero point and axis of input `of` of the k-th node of an op."""
    found = maker(model, [n for n in model.graph.node if n.op_type == op][k].input[of])
    axis = next((a.i for a in found.attribute if a.name == "axis"), None)
    return (*(constant(model, n) for n in found.input), axis)


# -- networks


def residual() -> onnx.ModelProto:
    """Convolutions with a ReLU, a pool, a residual sum, a mean, and a dense layer."""
    return net(
        [node("Conv", ["x", "w1", "b1"], ["c1"], "one", pads=[1, 1, 1, 1]), node("Relu", ["c1"], ["r1"]),
         node("MaxPool", ["r1"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
         node("Conv", ["p", "w2", "b2"], ["c2"], "two", pads=[1, 1, 1, 1]),
         node("Add", ["c2", "p"], ["a"], "sum"), node("Relu", ["a"], ["r2"]),
         node("GlobalAveragePool", ["r2"], ["m"]), node("Flatten", ["m"], ["f"]),
         node("Gemm", ["f", "w3", "b3"], ["y"], "dense", transB=1)],
        {"w1": (8, 3, 3, 3), "b1": (8,), "w2": (8, 8, 3, 3), "b2": (8,), "w3": (5, 8), "b3": (5,)},
        {"x": [1, 3, 8, 8]},
    )  # fmt: skip


def unet() -> onnx.ModelProto:
    """Down, up by a transposed convolution and by nearest neighbours, joined with what was there before."""
    return net(
        [node("Conv", ["x", "w1", "b1"], ["c1"], "down", strides=[2, 2], pads=[1, 1, 1, 1]), node("Relu", ["c1"], ["r1"]),
         node("ConvTranspose", ["r1", "w2", "b2"], ["t"], "up", strides=[2, 2]),
         node("Resize", ["r1", "", "scales"], ["n"], "nearest", mode="nearest"),
         node("Concat", ["t", "n", "x"], ["j"], "join", axis=1),
         node("Conv", ["j", "w3", "b3"], ["c3"], "end"), node("LeakyRelu", ["c3"], ["y"], alpha=0.1)],
        {"w1": (8, 4, 3, 3), "b1": (8,), "w2": (8, 6, 2, 2), "b2": (6,), "w3": (4, 18, 1, 1), "b3": (4,),
         "scales": np.array([1, 1, 2, 2], np.float32)},
        {"x": [1, 4, 8, 8]},
    )  # fmt: skip


def attention() -> onnx.ModelProto:
    """One head over six tokens: dense layers, scores, softmax, a residual and a norm, dense layers with GELU."""
    return net(
        [*(n for k in "qkv" for n in (node("MatMul", ["x", f"w{k}"], [f"{k}m"], k), node("Add", [f"{k}m", f"b{k}"], [f"{k}"]))),
         node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]), node("MatMul", ["q", "kt"], ["s"], "scores"),
         node("Mul", ["s", "share"], ["d"]), node("Softmax", ["d"], ["p"], axis=-1),
         node("MatMul", ["p", "v"], ["o"], "mix"), node("Add", ["o", "x"], ["h"]),
         node("LayerNormalization", ["h", "g", "z"], ["l"]),
         node("MatMul", ["l", "wu"], ["u"], "up"), node("Add", ["u", "bu"], ["ub"]),
         node("Mul", ["ub", "half"], ["e"]), node("Tanh", ["e"], ["t"]), node("MatMul", ["t", "wd"], ["y0"], "down"),
         node("Add", ["y0", "h"], ["y"])],
        {"wq": (8, 8), "wk": (8, 8), "wv": (8, 8), "bq": (8,), "bk": (8,), "bv": (8,), "share": np.float32(0.35),
         "g": np.ones(8, np.float32), "z": (8,), "wu": (8, 16), "bu": (16,), "wd": (16, 8), "half": np.float32(0.5)},
        {"x": [1, 6, 8]},
    )  # fmt: skip


def depthwise() -> onnx.ModelProto:
    """A depthwise and a grouped convolution with clipped activations, padding in front, and a mean of windows."""
    return net(
        [node("Pad", ["x", "pads"], ["xp"]), node("Conv", ["xp", "w1", "b1"], ["c1"], group=6),
         node("Clip", ["c1", "zero", "six"], ["r1"]), node("Conv", ["r1", "w2"], ["c2"], group=2),
         node("Clip", ["c2", "zero"], ["r2"]), node("AveragePool", ["r2"], ["m"], kernel_shape=[2, 2], strides=[2, 2]),
         node("Conv", ["m", "w3", "b3"], ["y"])],
        {"pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]), "w1": (6, 1, 3, 3), "b1": (6,), "w2": (4, 3, 1, 1), "w3": (2, 4, 1, 1),
         "b3": (2,), "zero": np.float32(0), "six": np.float32(6)},
        {"x": [1, 6, 8, 8]},
    )  # fmt: skip


def grouped() -> onnx.ModelProto:
    """A transposed convolution in two groups, of three channels each, which ONNX's reference evaluator cannot run."""
    return net(
        [node("ConvTranspose", ["x", "w", "b"], ["y"], group=2)], {"w": (4, 3, 2, 2), "b": (6,)}, {"x": [1, 4, 5, 5]}
    )


def dense() -> onnx.ModelProto:
    """Dense layers for any batch, one with its weights turned over by a node of its own."""
    return net(
        [node("Transpose", ["w1"], ["w1t"]), node("Gemm", ["x", "w1t", "b1"], ["g1"], "first"),
         node("Relu", ["g1"], ["r1"]), node("Gemm", ["r1", "w2", "b2"], ["y"], "last")],
        {"w1": (16, 10), "b1": (16,), "w2": (16, 4), "b2": (4,)},
        {"x": [1, 10]},
    )  # fmt: skip


NETS: dict[str, Callable[[], onnx.ModelProto]] = {
    f.__name__: f for f in (residual, unet, attention, depthwise, dense)
}  # fmt: skip
#: What the runtimes may differ by where a sum lies between two integers.
STEP = 1.001


def tensors_of(model: onnx.ModelProto, feeds: dict[str, np.ndarray], run: str) -> dict[str, np.ndarray]:
    """All that is read back from integers, and the outputs, by one of three runtimes."""
    names = [n.output[0] for n in model.graph.node if n.op_type == "DequantizeLinear" and maker_is_node(model, n)]
    names = list(dict.fromkeys([*names, *(o.name for o in model.graph.output)]))
    whole = onnx.ModelProto.FromString(model.SerializeToString())
    del whole.graph.output[:]
    whole.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names)
    if run == "lightnet":
        return lightnet.compile(whole)(feeds)
    if run == "reference":
        return dict(zip(names, ReferenceEvaluator(whole).run(None, feeds)))
    del whole.graph.output[:]
    info = helper.make_tensor_value_info
    whole.graph.output.extend(info(n, TensorProto.FLOAT, None) for n in names)
    session = onnxruntime.InferenceSession(whole.SerializeToString())
    return dict(zip(names, session.run(names, feeds)))


def maker_is_node(model: onnx.ModelProto, reader: onnx.NodeProto) -> bool:
    return any(reader.input[0] in n.output for n in model.graph.node)


def check_agreement(model: onnx.ModelProto, feeds: dict[str, np.ndarray], with_: str) -> None:
    """Within one step of each tensor's scale; outputs in float32 within a 255th of their range."""
    expected, found = tensors_of(model, feeds, with_), tensors_of(model, feeds, "lightnet")
    assert expected.keys() == found.keys()
    for name, want in expected.items():
        made = maker(model, name)
        if made.op_type == "DequantizeLinear":
            step = float(constant(model, made.input[1]))
        else:
            step = (float(want.max()) - float(want.min())) / 255
        assert np.abs(found[name] - want).max() <= STEP * step, name


@pytest.mark.parametrize("method", ["minmax", "mse"])
@pytest.mark.parametrize("name", NETS)
def test_lightnet_agrees_with_the_reference(name: str, method: str) -> None:
    """ONNX's reference evaluator, on a call that calibration has not seen; the float32 network is not far away."""
    model = NETS[name]()
    found = quantized(model, method=method).model
    onnx.checker.check_model(found, full_check=True)
    feeds = {n: a[0] for n, a in data(model, 1, seed=9).items()}
    check_agreement(found, feeds, "reference")
    float32 = ReferenceEvaluator(model).run(None, feeds)[0]
    here = ReferenceEvaluator(found).run(None, feeds)[0]
    noise = float(np.sum((here - float32) ** 2) / np.sum(float32**2))
    assert 0 < noise < 10 ** (-18 / 10)  # 18 dB: random weights, six samples


@pytest.mark.parametrize(
    "options",
    [{"reduce_range": True}, {"activation_type": "s8", "reduce_range": True},
     {"activation_type": "s8", "symmetric": "both", "reduce_range": True},
     {"weight_type": "u8", "symmetric": "none"}, {"per_channel": False, "reduce_range": True}],
    ids=lambda o: "-".join(map(str, o.values())),
)  # fmt: skip
@pytest.mark.parametrize("name", NETS)
def test_lightnet_agrees_with_onnx_runtime(name: str, options: dict[str, Any]) -> None:
    """In the types whose products it sums exactly on every processor."""
    model = NETS[name]()
    check_agreement(quantized(model, **options).model, {n: a[0] for n, a in data(model, 1, seed=9).items()}, "ort")


def test_onnx_runtime_computes_all_of_it_in_integers() -> None:
    """Of a convolutional network no op is left to float32: what its optimizer makes of the file says so."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    model = quantized(residual(), reduce_range=True).model
    path = Path(os.environ["LIGHTNET_CACHE"]) / "optimized.onnx"
    options.optimized_model_filepath = str(path)
    onnxruntime.InferenceSession(model.SerializeToString(), options)
    left = {n.op_type for n in onnx.load(path).graph.node}
    path.unlink()
    assert {"QLinearConv", "QLinearAdd", "QGemm"} <= left
    assert not left & {"Conv", "FusedConv", "Add", "Gemm", "Relu", "DequantizeLinear"}


# -- placement


def test_placement_of_a_residual_network() -> None:
    """Each tensor between two integer ops is rounded once, ReLUs are gone, the pool shares the scale of what it reads,
    the last layer gives float32."""
    found = quantized(residual()).model
    assert rounded(found) == ["x", "r1", "p", "c2", "r2", "m", "f"]
    assert "Relu" not in ops(found)
    scales = {n.input[0]: n.input[1] for n in found.graph.node if n.op_type == "QuantizeLinear"}
    assert scales["r1"] == scales["p"] and scales["m"] == scales["f"] and len(set(scales.values())) == 5
    assert maker(found, "y").op_type == "Gemm"


def test_concatenation_has_one_scale() -> None:
    """That of the widest, for all of its operands; the resize shares it, too, and what a float32 op makes is rounded
    where it is read as integers alone."""
    found = quantized(unet()).model
    scales = {n.input[0]: n.input[1] for n in found.graph.node if n.op_type == "QuantizeLinear"}
    assert len({scales[n] for n in ("r1", "t", "n", "j", "x")}) == 1
    seen = data(unet())["x"]
    floats = [ReferenceEvaluator(_with_outputs(unet(), ["r1", "t", "x"])).run(None, {"x": x}) for x in seen]
    width = max(a.max() for f in floats for a in f) - min(min(a.min() for f in floats for a in f), 0)
    assert float(constant(found, scales["j"])) == pytest.approx(width / 255, rel=1e-5)


def _with_outputs(model: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names)
    return model


def test_transformers_keep_float32_between() -> None:
    """Products read integers; sums, norm and softmax read float32, as do the residuals; biases are added in float32."""
    found = quantized(attention()).model
    assert set(rounded(found)) == {"x", "q", "k", "kt", "p", "v", "l", "t"}
    read_by = {n.op_type: list(n.input) for n in found.graph.node}
    assert read_by["LayerNormalization"][0] == "h" and read_by["Softmax"] == ["d"]
    residuals = [list(n.input) for n in found.graph.node if n.op_type == "Add"]
    assert ["o", "x"] in residuals and ["y0", "h"] in residuals


@pytest.mark.parametrize(
    ("bound", "options", "folded"),
    [("Relu", {}, True), ("Relu", {"symmetric": "both"}, False), ("Relu", {"activation_type": "s8"}, True),
     ("Relu", {"activation_type": "s8", "symmetric": "both"}, False), ("low", {}, True), ("high", {}, True),
     ("inside", {}, False), ("high", {"method": "percentile", "percentile": 80}, True)],
    ids=str,
)  # fmt: skip
def test_activations_are_folded_where_rounding_cuts_off(bound: str, options: dict[str, Any], folded: bool) -> None:
    """Both ends of the activation's range are what the least and largest integers stand for. Folded or not, the integers
    are those of float32 with the activation."""
    clip = {"Relu": [], "low": ["zero"], "high": ["zero", "one"], "inside": ["minus", "one"]}[bound]
    model = net(
        [node("Conv", ["x", "w"], ["c"]), node("Clip" if clip else "Relu", ["c", *clip], ["r"]),
         node("Conv", ["r", "v"], ["y"])],
        {"w": (3, 2, 3, 3), "v": (2, 3, 1, 1), "zero": np.float32(0), "one": np.float32(0.5), "minus": np.float32(-0.4)},
        {"x": [1, 2, 6, 6]},
    )  # fmt: skip
    found = quantized(model, **options).model
    if bound == "inside":  # a range of calibration with both ends: rounding cuts off there, too
        folded = True
    assert ("Relu" in ops(found) or "Clip" in ops(found)) is not folded
    feeds = {"x": data(model, 1, seed=5)["x"][0]}
    kept = onnx.ModelProto.FromString(found.SerializeToString())
    if folded:  # with the activation put back
        rounding = next(n for n in kept.graph.node if n.op_type == "QuantizeLinear" and n.input[0] == "r")
        producer = maker(kept, "r")
        producer.output[0] = "c"
        at = list(kept.graph.node).index(rounding)
        kept.graph.node.insert(at, node("Clip" if clip else "Relu", ["c", *clip], ["r"]))
        held = {t.name for t in kept.graph.initializer}
        kept.graph.initializer.extend(t for t in model.graph.initializer if t.name in clip and t.name not in held)
    want, got = (ReferenceEvaluator(m).run(None, feeds)[0] for m in (kept, found))
    assert np.array_equal(want, got)


def test_a_clip_that_rounding_does_not_make_stays() -> None:
    """A network whose values lie inside of the bounds in calibration: integers beyond it could mean more."""
    model = net(
        [node("Conv", ["x", "w"], ["c"]), node("Clip", ["c", "low", "high"], ["r"]), node("Add", ["r", "far"], ["s"]),
         node("Concat", ["s", "r"], ["j"], axis=1), node("Conv", ["j", "v"], ["y"])],
        {"w": (3, 2, 3, 3), "v": (2, 6, 1, 1), "low": np.float32(0), "high": np.float32(0.5), "far": np.float32(4)},
        {"x": [1, 2, 6, 6]},
    )  # fmt: skip
    assert "Clip" in ops(quantized(model).model)


MOVED = {
    "Reshape": (node("Reshape", ["a", "to"], ["b"]), {"to": np.array([1, 4, 2, 18])}, 4),
    "Transpose": (node("Transpose", ["a"], ["b"], perm=[0, 1, 3, 2]), {}, 4),
    "Slice": (node("Slice", ["a", "i0", "i2", "i3"], ["b"]), {"i0": np.array([0]), "i2": np.array([2]), "i3": np.array([3])}, 4),
    "Pad": (node("Pad", ["a", "pads"], ["b"]), {"pads": np.array([0, 0, 1, 0, 0, 0, 0, 2])}, 4),
    "Pad reflect": (node("Pad", ["a", "pads"], ["b"], mode="reflect"), {"pads": np.array([0, 0, 1, 0, 0, 0, 0, 2])}, 4),
    "MaxPool": (node("MaxPool", ["a"], ["b"], kernel_shape=[2, 2]), {}, 4),
    "Resize": (node("Resize", ["a", "", "by"], ["b"]), {"by": np.array([1, 1, 2, 1.5], np.float32)}, 4),
    "Gather": (node("Gather", ["a", "at"], ["b"], axis=1), {"at": np.array([3, 1])}, 2),
    "DepthToSpace": (node("DepthToSpace", ["a"], ["b"], blocksize=2), {}, 1),
    "Concat": (node("Concat", ["a", "a"], ["b"], axis=1), {}, 8),
    "Tile": (node("Tile", ["a", "by"], ["b"]), {"by": np.array([1, 1, 1, 2])}, 4),
    "Split": (node("Split", ["a"], ["b", "b2"], axis=1, num_outputs=2), {}, 2),
}  # fmt: skip


@pytest.mark.parametrize("name", MOVED)
def test_movers_keep_the_integers(name: str) -> None:
    """What is moved has the scale of what it comes from, and no number is rounded twice: the integers that come out are
    those that go in, moved."""
    mover, constants, channels = MOVED[name]
    model = net(
        [node("Conv", ["x", "w"], ["a"]), mover, node("Conv", ["b", "v"], ["y"])],
        {"w": (4, 2, 1, 1), "v": (2, channels, 1, 1), **constants}, {"x": [1, 2, 6, 6]},
    )  # fmt: skip
    found = quantized(model).model
    pairs = {n.input[0]: list(n.input[1:]) for n in found.graph.node if n.op_type == "QuantizeLinear"}
    assert pairs["a"] == pairs["b"] and all(n in pairs for n in mover.output)
    names = {n.input[0]: n.output[0] for n in found.graph.node if n.op_type == "QuantizeLinear"}
    probe = onnx.ModelProto.FromString(found.SerializeToString())
    before, after = ReferenceEvaluator(_with_outputs(probe, [names["a"], names["b"]])).run(
        None, {"x": data(model, 1, seed=6)["x"][0]}
    )
    assert set(np.unique(after)) <= {*np.unique(before), constant(found, pairs["a"][1]).item()}


@pytest.mark.parametrize(
    "mover",
    [node("Resize", ["a", "", "by"], ["b"], mode="linear"), node("Pad", ["a", "pads", "one"], ["b"]), node("Erf", ["a"], ["b"])],
    ids=lambda n: n.op_type,
)  # fmt: skip
def test_what_computes_is_no_mover(mover: onnx.NodeProto) -> None:
    """It reads float32 that was read back, and its result has a scale of its own."""
    model = net(
        [node("Conv", ["x", "w"], ["a"]), mover, node("Conv", ["b", "v"], ["y"])],
        {"w": (4, 2, 1, 1), "v": (2, 4, 1, 1), "by": np.array([1, 1, 2, 2], np.float32), "one": np.float32(1),
         "pads": np.array([0, 0, 1, 0, 0, 0, 0, 2])},
        {"x": [1, 2, 6, 6]},
    )  # fmt: skip
    found = quantized(model).model
    pairs = {n.input[0]: n.input[1] for n in found.graph.node if n.op_type == "QuantizeLinear"}
    assert pairs["a"] != pairs["b"]


def test_what_others_see_stays() -> None:
    """Outputs keep their names, whoever makes them; a branch reads what it captured; a constant that a float32 op reads
    beside is there twice."""
    inner = helper.make_graph(
        [node("Add", ["c", "r"], ["t"])],
        "then",
        [],
        [helper.make_tensor_value_info("t", TensorProto.FLOAT, [None] * 4)],
    )
    other = helper.make_graph(
        [node("Identity", ["r"], ["e"])],
        "else",
        [],
        [helper.make_tensor_value_info("e", TensorProto.FLOAT, [None] * 4)],
    )
    model = net(
        [node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]), node("Relu", ["c"], ["r"]),
         node("If", ["yes"], ["i"], then_branch=inner, else_branch=other), node("Conv", ["r", "v"], ["d"]),
         node("Mul", ["d", "v"], ["m"])],
        {"w": (3, 2, 3, 3), "v": (3, 3, 1, 1), "yes": np.array(True)}, {"x": [1, 2, 6, 6]}, ["r", "i", "d"],
    )  # fmt: skip
    found = quantized(model).model
    onnx.checker.check_model(found)
    assert [o.name for o in found.graph.output] == ["r", "i", "d"]
    feeds = {"x": data(model, 1)["x"][0]}
    want = ReferenceEvaluator(model).run(None, feeds)
    for run in (lambda m: ReferenceEvaluator(m).run(None, feeds), lambda m: list(lightnet.compile(m)(feeds).values())):
        for a, b in zip(want, run(found)):
            assert np.abs(a - b).max() <= 0.05 * np.abs(a).max()


# -- weights


def test_axes_and_biases_are_those_of_the_ops() -> None:
    """Axis 0 of Conv, 1 of ConvTranspose and Gemm, 0 of Gemm with transB, the last of MatMul; a bias is int32 of the
    input's scale times the weights'."""
    for build, op, axis, count in (
        (residual, "Conv", 0, 8), (unet, "ConvTranspose", 1, 6), (grouped, "ConvTranspose", 1, 3), (residual, "Gemm", 0, 5), (dense, "Gemm", 1, 16),
        (attention, "MatMul", 1, 8),
    ):  # fmt: skip
        found = quantized(build()).model
        stored, scale, zero, along = weight_of(found, op)
        assert (along, scale.shape, zero.dtype, stored.dtype) == (axis, (count,), np.int8, np.int8), op
        assert not zero.any() and np.abs(stored).max() == 127
        if op == "MatMul":
            continue
        bias, step, zeros, _ = weight_of(found, op, of=2)
        of_input = constant(found, maker(found, next(n for n in found.graph.node if n.op_type == op).input[0]).input[1])
        assert bias.dtype == np.int32 and not zeros.any()
        assert np.array_equal(step, np.tile(of_input * scale, len(bias) // len(scale)))


def test_batch_norms_are_folded(tmp_path: Path) -> None:
    """Behind convolutions, transposed ones in groups too, to what ONNX Runtime computes of the two."""
    weights = {"w": (6, 2, 3, 3), "b": (6,), "v": (6, 2, 2, 2)}
    for k, n in (("p", 6), ("q", 4)):
        weights |= {f"{k}s": (n,), f"{k}b": (n,), f"{k}m": (n,), f"{k}v": np.linspace(0.5, 2, n).astype(np.float32)}
    model = net(
        [node("Conv", ["x", "w", "b"], ["c"], group=2),
         node("BatchNormalization", ["c", "ps", "pb", "pm", "pv"], ["n"], epsilon=0.01),
         node("ConvTranspose", ["n", "v"], ["t"], group=2), node("BatchNormalization", ["t", "qs", "qb", "qm", "qv"], ["y"])],
        weights, {"x": [1, 4, 6, 6]},
    )  # fmt: skip
    graph = Graph(SourceModel(model, "net"))
    fold(graph)
    folded = graph.model()
    assert ops(folded) == ["Conv", "ConvTranspose"]
    feeds = {"x": data(model, 1)["x"][0]}
    want, got = (onnxruntime.InferenceSession(m.SerializeToString()).run(None, feeds)[0] for m in (model, folded))
    assert np.allclose(want, got, rtol=1e-5, atol=1e-5)


def test_a_norm_that_something_else_reads_in_front_of_stays() -> None:
    model = net(
        [node("Conv", ["x", "w"], ["c"]), node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"]),
         node("Add", ["c", "n"], ["y"])],
        {"w": (3, 2, 1, 1), "s": (3,), "b": (3,), "m": (3,), "v": np.ones(3, np.float32)}, {"x": [1, 2, 4, 4]},
    )  # fmt: skip
    assert "BatchNormalization" in ops(quantized(model).model)


# -- options


def test_types_and_symmetry() -> None:
    """Zero points have the types, and lie in the middle where they are to."""
    for kind, middle in (("u8", 128), ("s8", 0)):
        dtype = {"u8": np.uint8, "s8": np.int8}[kind]
        for symmetric in ("weights", "activations", "both", "none"):
            found = quantized(residual(), activation_type=kind, weight_type=kind, symmetric=symmetric).model
            activations = [constant(found, n.input[2]) for n in found.graph.node if n.op_type == "QuantizeLinear"]
            weights = weight_of(found, "Conv")[2]
            assert {z.dtype for z in activations} == {weights.dtype} == {np.dtype(dtype)}
            assert all(z == middle for z in activations) is (symmetric in ("activations", "both"))
            assert (weights == middle).all() == (symmetric in ("weights", "both"))


def test_per_tensor_and_reduced_range() -> None:
    """One scale, without an axis, and weights of 7 bits."""
    found = quantized(residual(), per_channel=False, reduce_range=True).model
    stored, scale, _, axis = weight_of(found, "Conv")
    assert scale.shape == () and axis is None and np.abs(stored).max() == 63


def test_methods_of_activations() -> None:
    """Percentile and least square error have smaller steps than the extremes; each is what its formula gives."""
    steps = {}
    for method in ("minmax", "percentile", "mse"):
        found = quantized(residual(), method=method, percentile=98.0).model
        steps[method] = float(constant(found, maker(found, "x.dequantized").input[1]))
    values = data(residual())["x"].astype(np.float64)
    assert steps["minmax"] == pytest.approx((values.max() - values.min()) / 255, rel=1e-6)
    high, low = (s * np.quantile(s * values, 0.99, method="inverted_cdf") for s in (1, -1))
    assert steps["percentile"] == pytest.approx((high - low) / 255, rel=0.01)
    assert steps["mse"] <= steps["minmax"]


def test_weights_by_square_error() -> None:
    """A weight with an outlier is cut off there, and its square error is less."""
    model = dense()
    for tensor in model.graph.initializer:
        if tensor.name == "w2":
            array = np.random.default_rng(1).normal(size=(16, 4)).astype(np.float32)
            array[0, 0] = 4.5
            tensor.CopyFrom(numpy_helper.from_array(array, "w2"))
    errors = []
    for method in ("minmax", "mse"):
        stored, scale, _, _ = weight_of(quantized(model, weight_method=method, reduce_range=True).model, "Gemm", 1)
        errors.append(float(np.sum((stored * scale.astype(np.float64) - array) ** 2)))
    assert errors[1] <= errors[0]


@pytest.mark.parametrize(
    ("name", "left"),
    [("one", ["r1", "p", "c2", "r2", "m", "f"]), ("Conv", ["m", "f"]), ("two", ["x", "r1", "m", "f"]),
     ("r2", ["x", "r1", "p", "c2", "m", "f"]), ("w2", ["x", "r1", "m", "f"]), ("Flatten", ["x", "r1", "p", "c2", "f"]),
     ("MaxPool", ["x", "r1", "p", "c2", "r2", "m", "f"])],
)  # fmt: skip
def test_exclusions(name: str, left: list[str]) -> None:
    """By node, by op type, by tensor, by weight: what is excluded is in float32, as is what nothing else needs rounded."""
    assert rounded(quantized(residual(), exclude=(name,)).model) == left


def test_ops_are_chosen() -> None:
    """Sums are not rounded where they are not asked for, and a sigmoid is where it is."""
    assert "c2" in rounded(quantized(residual()).model)
    few = quantized(residual(), ops=("Conv", "Gemm")).model
    adds = [n for n in few.graph.node if n.op_type == "Add"]
    assert all(maker(few, n).op_type == "DequantizeLinear" for n in adds[0].input) and "r2" not in rounded(few)
    assert "Gemm" in ops(few)
    silu = net(
        [node("Conv", ["x", "w"], ["c"]), node("Sigmoid", ["c"], ["s"]), node("Mul", ["c", "s"], ["m"]),
         node("Conv", ["m", "v"], ["y"])],
        {"w": (4, 2, 1, 1), "v": (3, 4, 1, 1)}, {"x": [1, 2, 5, 5]},
    )  # fmt: skip
    assert rounded(quantized(silu).model) == ["x", "c", "m", "y.float"]
    assert rounded(quantized(silu, ops=("Conv", "Mul", "Sigmoid")).model) == ["x", "c", "s", "m", "y.float"]


def test_samples_are_counted() -> None:
    """So many calls decide the range."""
    model = residual()
    found = quantize(model, data(model, 6), QuantizeOptions(samples=2, report_samples=0)).model
    values = data(model, 6)["x"][:2]
    step = float(constant(found, maker(found, "x.dequantized").input[1]))
    assert step == pytest.approx((values.max() - values.min()) / 255, rel=1e-6)


# -- files


@pytest.mark.parametrize("opset", [11, 12, 13, 17, 21])
def test_opsets(opset: int) -> None:
    """The opset is kept, but raised to 13 for scales along an axis; ONNX Runtime reads the file either way."""
    model = net(
        [node("Conv", ["x", "w", "b"], ["c"]), node("Relu", ["c"], ["r"]), node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2]),
         node("Conv", ["p", "v"], ["y"])],
        {"w": (3, 2, 3, 3), "b": (3,), "v": (2, 3, 1, 1)}, {"x": [1, 2, 6, 6]}, opset=opset,
    )  # fmt: skip
    for per_channel, wanted in ((True, max(opset, 13)), (False, opset)):
        found = quantized(model, per_channel=per_channel, reduce_range=True).model
        assert [o.version for o in found.opset_import] == [wanted]
        onnx.checker.check_model(found, full_check=True)
        check_agreement(found, {"x": data(model, 1, seed=2)["x"][0]}, "ort")


def test_weights_that_are_inputs_with_defaults() -> None:
    """As IR version 3 lists them: data need not feed them, and those that are stored as integers are inputs no more."""
    model = dense()
    for tensor in model.graph.initializer:
        model.graph.input.append(helper.make_tensor_value_info(tensor.name, TensorProto.FLOAT, tensor.dims))
    found = quantize(model, {"x": data(dense())["x"]}, QuantizeOptions(report_samples=0)).model
    onnx.checker.check_model(found)
    assert [i.name for i in found.graph.input] == ["x"]
    plain = quantized(dense()).model
    assert found.graph.node == plain.graph.node


def test_an_opset_that_cannot_be_raised_is_an_error() -> None:
    model = net([node("Conv", ["x", "w"], ["c"]), node("Upsample", ["c", "s"], ["y"])],
                {"w": (3, 2, 1, 1), "s": np.array([1, 1, 2, 2], np.float32)}, {"x": [1, 2, 4, 4]}, opset=9)  # fmt: skip
    model.graph.node[1].op_type = "ATen"
    model.graph.node[1].domain = ""
    with pytest.raises(LightNetError):
        quantized(model)


def test_metadata_says_how() -> None:
    """Beside what was there, which is kept, and replaced where it says how an earlier file was quantised."""
    model = dense()
    model.metadata_props.add(key="names", value="a,b")
    model.metadata_props.add(key=METADATA, value="old")
    found = quantized(model, method="percentile", exclude=("last",)).model
    said = {p.key: p.value for p in found.metadata_props}
    assert said["names"] == "a,b" and list(said) == ["names", METADATA]
    how = json.loads(said[METADATA])
    assert how["version"] == lightnet.__version__ and how["method"] == "percentile" and how["exclude"] == ["last"]
    assert found.producer_name == "lightnet"


def test_weights_beside_the_model(tmp_path: Path) -> None:
    """`external` writes them to a file, aligned, which ONNX Runtime and LightNet read to the same result; a model whose
    weights lie beside it is quantised as one file is."""
    model = net([node("Gemm", ["x", "w", "b"], ["y"])], {"w": (64, 48), "b": (48,)}, {"x": [1, 64]})
    whole = quantized(model, reduce_range=True)
    assert whole.save(str(tmp_path / "one.onnx")) == [str(tmp_path / "one.onnx")]
    paths = whole.save(str(tmp_path / "two.onnx"), external=True)
    assert paths == [str(tmp_path / "two.onnx"), str(tmp_path / "two.onnx.data")]
    assert os.path.getsize(paths[0]) < os.path.getsize(tmp_path / "one.onnx") - 3000
    feeds = {"x": data(model, 1)["x"][0]}
    runs = [onnxruntime.InferenceSession(str(tmp_path / f"{n}.onnx")).run(None, feeds)[0] for n in ("one", "two")]
    assert np.array_equal(*runs)
    assert np.array_equal(*(lightnet.compile(tmp_path / f"{n}.onnx")(feeds)["y"] for n in ("one", "two")))
    onnx.save(model, tmp_path / "in.onnx", save_as_external_data=True, size_threshold=0, location="in.bin")
    again = quantize(tmp_path / "in.onnx", data(model), QuantizeOptions(reduce_range=True, report_samples=0)).model
    assert again.SerializeToString(deterministic=True) == whole.model.SerializeToString(deterministic=True)


def test_networks_of_other_forms() -> None:
    """LightNet IL, with weights given."""
    path = Path(__file__).parents[2] / "examples/nets/lenet.net"
    model = lightnet.load(path)
    (name,) = (i.name for i in lightnet.to_onnx(model).graph.input)
    rng = np.random.default_rng(5)
    exported = lightnet.to_onnx(model)
    weights = {
        t.name: (rng.normal(size=tuple(t.dims)) * 0.1).astype(np.float32)
        for t in exported.graph.initializer
        if len(t.dims)
    }
    pictures = rng.normal(size=(3, 1, 1, 28, 28)).astype(np.float32)
    found = quantize(path, {name: pictures}, QuantizeOptions(report_samples=0), weights=weights).model
    assert "QuantizeLinear" in {n.op_type for n in found.graph.node}
    expected = lightnet.compile(lightnet.load(path, weights=weights))({name: pictures[0]})
    (want,), (got,) = expected.values(), lightnet.compile(found)({name: pictures[0]}).values()
    assert np.abs(want - got).max() < 0.05 * np.abs(want).max()


CODE = """
import hashlib, sys
sys.path[:0] = sys.argv[1:]
import test_quantize as t
for name in ("unet", "attention"):
    for method in ("minmax", "mse"):
        found = t.quantized(t.NETS[name](), method=method, report_samples=2 if method == "mse" else 0)
        digest = hashlib.sha256(found.model.SerializeToString(deterministic=True)).hexdigest()
        print(name, digest, found.report and found.report.json())
"""


@pytest.mark.slow
def test_the_same_bytes_in_every_process() -> None:
    """Whatever Python's hashes are."""
    texts = []
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", CODE, str(Path(__file__).parent), str(Path(__file__).parents[1])]
        texts.append(subprocess.run(command, capture_output=True, text=True, env=env, check=True).stdout)
    assert texts[0] == texts[1] and texts[0].count("unet ") == 2


# -- data


def test_forms_of_data() -> None:
    """Samples along one more axis, along the first, and call by call give the same file, in any order and any batch."""
    model = residual()
    samples = data(model, 6)["x"]  # [6, 1, 3, 8, 8]
    opened = residual()
    opened.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    wide = residual()
    wide.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 3
    options = QuantizeOptions(report_samples=0, method="mse")

    def scales(model: onnx.ModelProto, given: Any) -> list[np.ndarray]:
        found = quantize(model, given, options).model
        return [constant(found, n.input[1]) for n in found.graph.node if n.op_type == "QuantizeLinear"]

    expected = scales(model, {"x": samples})
    for other, given in (
        (model, {"x": samples[:, 0]}),
        (model, ({"x": x} for x in samples[::-1])),
        (opened, {"x": samples[:, 0]}),
        (opened, {"x": samples[:, 0].astype(np.float64)}),
        (wide, {"x": samples[:, 0]}),
    ):
        assert np.allclose(scales(other, given), expected, rtol=1e-5)


def test_inputs_that_are_the_same_in_every_call() -> None:
    """An array of just the input's shape beside one of many samples; integers are fed as they are."""
    model = net(
        [node("Add", ["x", "shift"], ["a"]), node("Gather", ["a", "at"], ["g"], axis=1), node("Gemm", ["g", "w"], ["y"])],
        {"w": (4, 3)}, {"x": [1, 5], "shift": [1, 5]},
    )  # fmt: skip
    model.graph.input.append(helper.make_tensor_value_info("at", TensorProto.INT64, [4]))
    x = np.random.default_rng(1).normal(size=(7, 1, 5)).astype(np.float32)
    shift, at = np.full((1, 5), 10, np.float32), np.array([0, 1, 2, 4])
    given = {"x": x, "shift": shift, "at": at.astype(np.int32)}
    calls = list(batches(given, read_source(model)))
    assert len(calls) == 7 and all(np.array_equal(c["shift"], shift) and c["at"].dtype == np.int64 for c in calls)
    found = quantize(model, given, QuantizeOptions(report_samples=0)).model
    step = float(constant(found, next(n for n in found.graph.node if n.op_type == "QuantizeLinear").input[1]))
    assert step == pytest.approx((10 + x[..., at].max()) / 255, rel=0.03)


# -- the report


def test_the_report_is_what_numpy_computes() -> None:
    """Each layer alone, from the integers in the file; behind all others, and the output, by ONNX's reference evaluator."""
    model = dense()
    found = quantize(model, data(model, 5), QuantizeOptions())
    report, samples = found.report, list(data(model, 5)["x"])
    assert report is not None and report.calls == 5 and [la.name for la in report.layers] == ["first", "last"]
    arrays = {t.name: numpy_helper.to_array(t).astype(np.float64) for t in model.graph.initializer}

    def through(x: np.ndarray, name: str) -> np.ndarray:
        """Rounded and read back."""
        scale, zero = (float(constant(found.model, n)) for n in maker(found.model, name).input[1:])
        return (np.clip(np.rint(x / scale) + zero, 0, 255) - zero) * scale

    def stored(k: int, of: int) -> np.ndarray:
        integers, scale, _, _ = weight_of(found.model, "Gemm", k, of)
        return integers.astype(np.float64) * scale

    first = [np.maximum(x @ arrays["w1"].T + arrays["b1"], 0) for x in samples]
    alone = [
        through(np.maximum(through(x, "x.dequantized") @ stored(0, 1) + stored(0, 2), 0), "r1.dequantized")
        for x in samples
    ]
    last = [f @ arrays["w2"] + arrays["b2"] for f in first]
    behind = [through(f, "r1.dequantized") @ stored(1, 1) + stored(1, 2) for f in first]
    for row, want, got in ((report.layers[0], first, alone), (report.layers[1], last, behind)):
        assert row.alone == pytest.approx(ratio(want, got), abs=0.3)  # where a value lies between two integers
    runs = [ReferenceEvaluator(found.model).run(None, {"x": x})[0] for x in samples]
    assert report.outputs["y"] == pytest.approx(ratio(last, runs), abs=0.3)
    assert report.layers[1].behind_all == report.outputs["y"] < report.layers[1].alone
    same = np.mean([a.argmax() == b.argmax() for a, b in zip(last, runs)])
    assert report.agreement["y"] == pytest.approx(same)


def ratio(want: list[np.ndarray], got: list[np.ndarray]) -> float:
    signal, noise = (sum(float(np.sum(a**2)) for a in arrays) for arrays in (want, [a - b for a, b in zip(want, got)]))
    return 10 * np.log10(signal / noise)


@pytest.mark.parametrize("name", NETS)
def test_reports_of_networks(name: str) -> None:
    """Every layer that computes in integers has a row, whose ratios are plausible for 8 bits; as JSON, too."""
    model = NETS[name]()
    report = quantize(model, data(model), QuantizeOptions(report_samples=3)).report
    assert report is not None and report.calls == 3
    products = [n.op_type for n in model.graph.node if n.op_type in ("Conv", "ConvTranspose", "MatMul", "Gemm")]
    assert [la.op for la in report.layers if la.op not in ("Add", "AveragePool", "GlobalAveragePool")] == products
    assert all(20 < la.alone < 70 and 15 < la.behind_all < 70 for la in report.layers)
    assert report.bytes < report.float_bytes
    parsed = json.loads(report.json())
    assert [la["name"] for la in parsed["layers"]] == [la.name for la in report.layers]
    assert parsed["outputs"]["y"]["db"] == report.outputs["y"]
    assert all(la.name in report.text() for la in report.layers)
