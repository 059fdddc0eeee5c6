"""Export to NNVM graph JSON: what is written is what document 003 prints, and what is read back."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from kernels import sample_ops
from nnvm_graphs import Entry, Graph
from nnvm_nets import TOLERANCE, Net, error
from op_cases import beside

import lightnet
from lightnet.cli.lightnet import main
from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.dialect import optypes

#: As document 003 prints them for its network of 53 nodes: a VGG with eight convolutions and three dense layers.
ARG_NODES = [0, 1, 2, 6, 7, 11, 12, 15, 16, 20, 21, 24, 25, 29, 30, 33, 34, 39, 40, 44, 45, 49, 50]
HEADS = [[52, 0, 0]]


def vgg(width: int) -> tuple[Graph, Entry]:
    """VGG-11 in NNVM's names; `width` is the number of channels of the first layer (64 in the paper)."""
    g = Graph()
    x = g.var("data")
    for stage, (count, factor) in enumerate([(1, 1), (1, 2), (2, 4), (2, 8), (2, 8)], 1):
        for i in range(1, count + 1):
            name = f"conv{stage}_{i}"
            x = g.op("conv2d", name, x, g.var(f"{name}_weight"), g.var(f"{name}_bias"), channels=factor * width,
                     padding="(1, 1)", layout="NCHW", kernel_size="[3, 3]", groups=1, strides="(1, 1)", use_bias=True,
                     dilation="(1, 1)")  # fmt: skip
            x = g.op("relu", f"relu{stage}_{i}", x)
        x = g.op("max_pool2d", f"pool{stage}", x, pool_size="(2, 2)", strides="(2, 2)")
    x = g.op("flatten", "flatten0", x)
    for i, units in enumerate((16 * width, 16 * width, 10), 6):
        x = g.op("dense", f"fc{i}", x, g.var(f"fc{i}_weight"), g.var(f"fc{i}_bias"), units=units)
        if i < 8:
            x = g.op("dropout", f"drop{i}", g.op("relu", f"relu{i}", x), rate=0.5)
    return g, g.op("softmax", "softmax", x)


def weights_of(model: lightnet.Model) -> dict[str, np.ndarray]:
    """Random weights, by fan-in, for every param of a network."""
    rng = np.random.default_rng(7)
    found = {}
    for op in model.main.walk():
        if op.name == "ln.param":
            dims = op.result_specs[0].dims
            fan_in = int(np.prod(dims[1:])) if len(dims) > 1 else 100
            found[op.tensor_names[0]] = (rng.standard_normal(dims) * np.sqrt(2 / fan_in)).astype(np.float32)
    return found


def test_vgg_of_document_003() -> None:
    ort = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    g, head = vgg(8)
    assert len(g.nodes) == 53
    model = lightnet.loads(g.text(head), ".json", "vgg.json", shapes={"data": (1, 3, 32, 32)})
    text = lightnet.to_nnvm(model)
    data = json.loads(text)
    assert data["arg_nodes"] == ARG_NODES and data["heads"] == HEADS
    assert [(n["op"], n["name"]) for n in data["nodes"]] == [
        ("copy" if n["op"] == "dropout" else n["op"], n["name"]) for n in g.nodes
    ]
    again = lightnet.loads(text, ".json", "vgg.json")  # the shapes are in the file
    assert str(again.module) == str(model.module)
    weights = weights_of(again)
    again = lightnet.loads(text, ".json", "vgg.json", weights)
    x = np.random.default_rng(1).standard_normal((1, 3, 32, 32)).astype(np.float32)
    (found,) = lightnet.compile(again)({"data": x}).values()
    session = ort.InferenceSession(lightnet.to_onnx(again).SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"data": x})
    assert expected.std() > 1e-3
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("tag", ["cifar_resnet20_v1", "mobilenet0.25"])
def test_a_network_of_mxnet_in_names_of_nnvm(tag: str) -> None:
    """Read, written in NNVM's names, read again with the same weights: MXNet's outputs still."""
    net = Net(tag)
    model = lightnet.load(net.path, net.weights(), net.meta["inputs"])
    text = lightnet.to_nnvm(model)
    ops = {n["op"] for n in json.loads(text)["nodes"]}
    assert ops <= {
        "null",
        "conv2d",
        "batch_norm",
        "relu",
        "elemwise_add",
        "global_avg_pool2d",
        "flatten",
        "dense",
        "reshape",
    }
    again = lightnet.loads(text, ".json", tag, net.weights())
    found = lightnet.compile(again)(net.feeds())
    assert error(dict(zip(net.references(), found.values())), net.references()) < TOLERANCE


def test_every_exported_op_is_read_back() -> None:
    """A chain of the other ops: the two modules compute the same."""
    g = Graph()
    x, y = g.var("x"), g.var("y")
    a = g.op("leaky_relu", "a", g.op("elemwise_add", "s", x, y), alpha=0.1)
    b = g.op("max_pool2d", "mp", a, pool_size="(3, 3)", strides="(2, 2)", padding="(0, 1, 1, 0)")
    c = g.op("avg_pool2d", "ap", a, pool_size="(2, 2)", strides="(2, 2)", padding="(0, 0, 0, 0)", ceil_mode=False)
    d = g.op("conv2d", "conv", b, g.var("w"), channels=4, kernel_size="(3, 3)", padding="(1, 0, 1, 2)", use_bias=False)
    e = g.op(
        "conv2d_transpose", "up", c, g.var("v"), channels=4, kernel_size="(2, 2)", strides="(2, 2)", use_bias=False
    )
    f = g.op("lrn", "lrn", e, size=3)
    h = g.op("upsampling", "upsampling", f, scale=2)
    i = g.op("concatenate", "cat", f, e, axis=1)
    j = g.op("strided_slice", "cut", i, begin="[0, 1, 0, 0]", end="[1, 7, 8, 4]", stride="[1, 2, 1, 2]")
    k = g.op("transpose", "turned", g.op("clip", "clip", j, a_min=-1, a_max=1), axes="(0, 2, 3, 1)")
    o = g.op("__rsub_scalar__", "rsub", g.op("__mul_scalar__", "twice", k, scalar=2), scalar=1.5)
    q = g.op("broadcast_max", "bmax", o, g.op("mean", "m", o, axis="(3,)", keepdims=True))
    r = g.op("prelu", "prelu", g.op("sigmoid", "sigm", h), g.var("slope"))
    t = g.op("reshape", "rows", g.op("sum", "sum", q, axis="(1, 2)"), shape="(1, -1)")
    z = g.op("log_softmax", "logits", g.op("dense", "fc", t, g.var("fw"), units=5, use_bias=False))
    text = g.text(
        d, r, z, g.op("tile", "tiled", t, reps="(2, 1)"), g.op("pad", "padded", t, pad_width="((1, 0), (0, 2))")
    )
    rng = np.random.default_rng(3)
    feeds = {n: rng.standard_normal((1, 4, 8, 8)).astype(np.float32) for n in "xy"}
    weights = {"w": (4, 4, 3, 3), "v": (4, 4, 2, 2), "slope": (4,), "fw": (5, 3)}
    weights = {k: rng.standard_normal(v).astype(np.float32) for k, v in weights.items()}
    model = lightnet.loads(text, ".json", "all.json", weights, dict.fromkeys("xy", (1, 4, 8, 8)))
    again = lightnet.loads(lightnet.to_nnvm(model), ".json", "again.json", weights)
    first, second = (lightnet.compile(m, target="none")(feeds) for m in (model, again))
    assert list(first) == list(second) == [f"{n}_output" for n in ("conv", "prelu", "logits", "tiled", "padded")]
    for name, array in first.items():
        np.testing.assert_array_equal(second[name], array)


@pytest.mark.parametrize("tag", ["squeezenet1.1", "mobilenetv3_small", "densenet121"])
def test_structure_is_read_back(tag: str) -> None:
    """The same ops with the same parameters in the same order, whatever they are called."""
    net = Net(tag)
    model = lightnet.load(net.path, net.weights(), net.meta["inputs"])
    again = lightnet.loads(lightnet.to_nnvm(model), ".json", tag)
    first, second = ([(op.name, op.param_values(), op.result_specs) for op in m.main.walk() if op.name.startswith("ln.")
                      and op.name != "ln.param"] for m in (model, again))  # fmt: skip
    assert first == second


def test_a_network_without_outputs_is_refused() -> None:
    model = lightnet.load(Path(__file__).parents[2] / "examples" / "example.net")  # which prints
    with pytest.raises(LightNetError, match="no outputs"):
        lightnet.to_nnvm(model)


def test_what_nnvm_lacks_is_listed_at_once() -> None:
    g = Graph()
    x = g.var("x")
    y = g.op("mish", "m", g.op("arcsinh", "b", g.op("arcsinh", "a", x)))
    model = lightnet.loads(g.text(y), ".json", shapes={"x": (2, 3)})
    with pytest.raises(LightNetError, match="3 ops cannot be exported to NNVM") as caught:
        lightnet.to_nnvm(model)
    notes = [text for _, text in caught.value.notes]
    assert any("asinh ('b', 'a')" in n or "asinh ('a', 'b')" in n for n in notes)
    assert any("mish" in n for n in notes)


@pytest.mark.parametrize("name", ["pad", "strided_slice", "tile", "transpose", "expand", "reshape"])
def test_an_op_of_rank_0_is_exported_or_refused(name: str) -> None:
    """Of samples whose lists of numbers for axes are empty."""
    cls = optypes()[name]
    cases = [op for op, _ in sample_ops(cls) if not op.result_specs[0].ndim]
    assert cases
    for op in cases:
        case = SimpleNamespace(cls=cls, specs=op.operand_specs, params=op.param_values(), arrays=op.operand_specs)
        model, _ = beside([case], "")
        try:
            assert json.loads(lightnet.to_nnvm(model))["heads"]
        except LightNetError as e:
            assert e.label == "nnvm.unsupported"


def test_constants_in_the_network() -> None:
    """One number throughout is an op of NNVM; several are refused, since a graph has no place for them."""
    g = Graph()
    x = g.var("x")
    model = lightnet.loads(g.text(g.op("broadcast_max", "y", x, g.op("_full", "c", shape="(2,)", value=3))), ".json",
                           shapes={"x": (1, 2)})  # fmt: skip
    again = lightnet.loads(lightnet.to_nnvm(model), ".json")
    assert lightnet.compile(again, target="none")({"x": np.float32([[1, 5]])})["y_output"].tolist() == [[3, 5]]
    model = lightnet.loads(
        g.text(g.op("broadcast_max", "z", x, g.op("_arange", "r", start=2))), ".json", shapes={"x": (1, 2)}
    )
    with pytest.raises(LightNetError, match="1 ops cannot") as caught:
        lightnet.to_nnvm(model)
    assert "constant of several numbers" in caught.value.notes[0][1]


#: Types of the inputs %a, %b, …; ops whose last result is %y; its type; the nodes that are no variables (op, attributes), or why there is none.
ONE_OP: list[tuple[str, str, str, Any]] = [
    # element by element
    ("2x3xf32", "%y = ln.neg %a", "2x3xf32", [("negative", {})]),
    ("2x3xf32", "%y = ln.forward %a", "2x3xf32", [("copy", {})]),
    ("2x3xf32, 2x3xf32", "%y = ln.add %a, %b", "2x3xf32", [("elemwise_add", {})]),
    ("2x3xf32, 3xf32", "%y = ln.add %a, %b", "2x3xf32", [("broadcast_add", {})]),
    ("2x3xf32, 2x3xf32", "%y = ln.maximum %a, %b", "2x3xf32", [("broadcast_max", {})]),
    ("2x3xf32, 2x3xf32", "%y = ln.mod %a, %b", "2x3xf32", [("elemwise_mod", {})]),
    ("2x3xf32, 2x3xf32", '%y = ln.elew %a, %b {elew_op = "TL_POW"}', "2x3xf32", [("elemwise_pow", {})]),
    ("2x3xf32, 2x3xf32", '%y = ln.elew %a, %b {elew_op = "TL_MIN"}', "2x3xf32", [("broadcast_min", {})]),
    *(("2x3xf32", f"%c = ln.param {{data = [2]}} : tensor<{dims}xf32>\n%y = ln.{op} {operands}", "2x3xf32", [(f"__{name}_scalar__", {"scalar": "2.0"})])
      for dims in ("1", "1x1") for op, operands, name in (("add", "%a, %c", "add"), ("add", "%c, %a", "add"), ("sub", "%a, %c", "sub"), ("sub", "%c, %a", "rsub"),
                                            ("div", "%c, %a", "rdiv"), ("mul", "%c, %a", "mul"), ("pow", "%a, %c", "pow"), ("pow", "%c, %a", "rpow"))),
    ("2x3xf32", "%c = ln.param {data = [2]} : tensor<1xf32>\n%y = ln.maximum %a, %c", "2x3xf32", [("full", {"shape": "(1,)", "fill_value": "2.0"}), ("broadcast_max", {})]),
    ("3xf32", "%c = ln.param {data = [2]} : tensor<1x1xf32>\n%y = ln.add %a, %c", "1x3xf32", [("full", {"shape": "(1, 1)"}), ("broadcast_add", {})]),
    ("3xf32", "%c = ln.param {data = [2, 2]} : tensor<2x1xf32>\n%y = ln.add %a, %c", "2x3xf32", [("full", {"shape": "(2, 1)"}), ("broadcast_add", {})]),
    ("3xf32", "%c = ln.param {data = [2, 3]} : tensor<2x1xf32>\n%y = ln.add %a, %c", "2x3xf32", "a constant of several numbers"),
    ("2x3xf32", "%y = ln.lrelu %a {negslope = 0.1}", "2x3xf32", [("leaky_relu", {"alpha": "0.1"})]),
    ("2x3xf32", "%y = ln.clip %a {lo = -1, hi = 2.5}", "2x3xf32", [("clip", {"a_min": "-1", "a_max": "2.5"})]),
    ("2x3x4xf32, 3xf32", "%s = ln.reshape %b : tensor<3x1xf32>\n%y = ln.prelu %a, %s", "2x3x4xf32", [("prelu", {"axis": "1"})]),
    ("2x3x4xf32, 3x1xf32", "%y = ln.prelu %a, %b", "2x3x4xf32", "one slope for each channel"),
    ("2x3x4xf32, 12xf32", "%s = ln.reshape %b : tensor<3x4xf32>\n%y = ln.prelu %a, %s", "2x3x4xf32", "one slope for each channel"),
    ("2x3x4xf32, 1xf32", "%s = ln.reshape %b : tensor<1x1xf32>\n%y = ln.prelu %a, %s", "2x3x4xf32", "one slope for each channel"),
    ("2x3xi1, 2x3xf32, 2x3xf32", "%y = ln.where %a, %b, %c", "2x3xf32", [("where", {})]),
    ("3xi1, 2x3xf32, 2x3xf32", "%y = ln.where %a, %b, %c", "2x3xf32", "NNVM's where does not broadcast"),
    ("2x3xf32", "%y = ln.cast %a", "2x3xi8", [("cast", {"dtype": "int8"})]),
    ("2x3xf32", "%y = ln.cast %a", "2x3xi1", [("cast", {"dtype": "bool"})]),
    ("2x3xf32", "%y = ln.cast %a", "2x3xbf16", "NNVM has no type bf16"),
    ("2x3xf32", "%z = ln.zeros : tensor<2x3xf32>\n%y = ln.add %a, %z", "2x3xf32", [("zeros", {"shape": "(2, 3)", "dtype": "float32"}), ("elemwise_add", {})]),
    # reductions
    ("2x3x4x5xf32", "%y = ln.reduce_mean %a {axes = [2, 3]}", "2x3x1x1xf32", [("global_avg_pool2d", {"layout": "NCHW"})]),
    ("2x3x4x5xf32", "%y = ln.reduce_max %a {axes = [2, 3]}", "2x3x1x1xf32", [("global_max_pool2d", {"layout": "NCHW"})]),
    ("2x3x4x5xf32", "%y = ln.reduce_min %a {axes = [2, 3]}", "2x3x1x1xf32", [("min", {"axis": "(2, 3)", "keepdims": "True"})]),
    ("2x3x4x5xf32", "%y = ln.reduce_mean %a {axes = [1, 3]}", "2x1x4x1xf32", [("mean", {"axis": "(1, 3)", "keepdims": "True"})]),
    ("2x3x4xf32", "%y = ln.reduce_mean %a {axes = [1, 2]}", "2x1x1xf32", [("mean", {"axis": "(1, 2)", "keepdims": "True"})]),
    ("2x3x4xf32", "%y = ln.maxreduce %a {axis = 1}", "2x1x4xf32", [("max", {"axis": "(1,)", "keepdims": "True"})]),
    # moves
    ("2x3x4xf32", "%y = ln.reshape %a", "2x12xf32", [("flatten", {})]),
    ("2x12xf32", "%y = ln.reshape %a", "2x12xf32", [("reshape", {"shape": "(2, 12)"})]),
    ("2x3x4xf32", "%y = ln.reshape %a", "6x4xf32", [("reshape", {"shape": "(6, 4)"})]),
    ("1xf32", "%y = ln.reshape %a", "f32", "NNVM has no shape []"),
    ("0x3xf32", "%y = ln.reshape %a", "3x0xf32", "NNVM has no shape [3, 0]"),
    ("2x3x4xf32", "%y = ln.transpose %a {axes = [2, 0, 1]}", "4x2x3xf32", [("transpose", {"axes": "(2, 0, 1)"})]),
    ("2x3xf32, 4x3xf32", "%y = ln.concat %a, %b {axis = 0}", "6x3xf32", [("concatenate", {"axis": "0"})]),
    ("2x5xf32", "%y = ln.slice %a {axis = 1, start = 1, len = 3}", "2x3xf32", [("strided_slice", {"begin": "[0, 1]", "end": "[2, 4]"})]),
    ("7x5xf32", "%y = ln.strided_slice %a {starts = [1, 0], lens = [3, 2], steps = [2, 4]}", "3x2xf32",
     [("strided_slice", {"begin": "[1, 0]", "end": "[6, 5]", "stride": "[2, 4]"})]),
    ("7x5xf32", "%y = ln.strided_slice %a {starts = [6, 0], lens = [3, 2], steps = [-1, 1]}", "3x2xf32", "backwards, or of nothing"),
    ("7x5xf32", "%y = ln.strided_slice %a {starts = [0, 0], lens = [3, 0], steps = [1, 1]}", "3x0xf32", "backwards, or of nothing"),
    ("1x3xf32", "%y = ln.expand %a", "4x3xf32", [("broadcast_to", {"shape": "(4, 3)"})]),
    ("3xf32", "%y = ln.expand %a", "4x3xf32", "broadcast_to keeps the rank"),
    ("1x3xf32", "%y = ln.expand %a", "0x3xf32", "broadcast_to keeps the rank"),
    ("2x3xf32", "%y = ln.tile %a {repeats = [2, 3]}", "4x9xf32", [("tile", {"reps": "(2, 3)"})]),
    ("2x3xf32", "%y = ln.pad %a {before = [1, 0], after = [0, 2], value = 1.5}", "3x5xf32", [("pad", {"pad_width": "((1, 0), (0, 2))", "pad_value": "1.5"})]),
    ("2x3xf32", '%y = ln.pad %a {before = [1, 0], after = [0, 2], mode = "edge"}', "3x5xf32", "pads with a constant, and cuts nothing off"),
    ("2x3xf32", "%y = ln.pad %a {before = [-1, 0], after = [0, 2]}", "1x5xf32", "pads with a constant, and cuts nothing off"),
    ("2x3xf32", "%y = ln.pad %a {before = [1, 0], after = [0, -2]}", "3x1xf32", "pads with a constant, and cuts nothing off"),
    ("5x3xf32, 2xi32", "%y = ln.take %a, %b {axis = 0}", "2x3xf32", [("take", {"axis": "0"})]),
    ("1x2x3x4xf32", "%y = ln.upsample %a {scales = [1, 1, 3, 3]}", "1x2x9x12xf32", [("upsampling", {"scale": "3", "layout": "NCHW", "method": "NEAREST_NEIGHBOR"})]),
    ("1x2x3x4xf32", '%y = ln.resize %a {mode = "TL_NEAREST"}', "1x2x6x8xf32", [("upsampling", {"scale": "2"})]),
    ("1x2x3x4xf32", '%y = ln.resize %a {mode = "TL_NEAREST"}', "1x2x6x12xf32", "by one whole factor"),
    ("1x2x3x4xf32", '%y = ln.resize %a {mode = "TL_NEAREST"}', "1x2x2x3xf32", "by one whole factor"),
    ("1x2x3x4xf32", '%y = ln.resize %a {mode = "TL_NEAREST"}', "2x2x6x8xf32", "by one whole factor"),
    ("1x2x3x4xf32", '%y = ln.resize %a {mode = "TL_LINEAR"}', "1x2x6x8xf32", "by one whole factor"),
    # layers
    ("1x4x8x8xf32, 6x2x3x3xf32, 6xf32", "%y = ln.conv2d %a, %b, %c {size = [3, 3], stride = [2, 1], padding = [1, 2, 1, 2], dilation = [1, 2], group = 2}",
     "1x6x4x8xf32", [("conv2d", {"channels": "6", "kernel_size": "[3, 3]", "strides": "(2, 1)", "padding": "(1, 2)", "dilation": "(1, 2)", "groups": "2",
                                 "layout": "NCHW", "use_bias": "True"})]),
    ("1x4x8x8xf32, 6x4x3x3xf32", "%z = ln.zeros : tensor<6xf32>\n%y = ln.conv2d %a, %b, %z {size = [3, 3], padding = [0, 1, 2, 3]}", "1x6x8x10xf32",
     [("pad", {"pad_width": "((0, 0), (0, 0), (0, 2), (1, 3))", "pad_value": "0.0"}), ("conv2d", {"padding": "(0, 0)", "use_bias": "False"})]),
    ("1x4x8x8xf32, 6x4x1x1xf32, 6xf32", '%y = ln.conv2d %a, %b, %c {size = [1, 1], stride = [1, 3], autopad = "SAME_UPPER"}', "1x6x8x3xf32", "padding [0, 0, 0, -1] is negative"),
    ("1x4x5x5xf32, 4x3x3x2xf32, 6xf32", "%y = ln.deconv2d %a, %b, %c {size = [3, 2], stride = [2, 3], padding = [1, 0, 1, 0], output_padding = [1, 0], group = 2}",
     "1x6x10x14xf32", [("conv2d_transpose", {"channels": "6", "kernel_size": "[3, 2]", "strides": "(2, 3)", "padding": "(1, 0)", "output_padding": "(1, 0)",
                                             "groups": "2", "use_bias": "True"})]),
    ("1x4x5x5xf32, 4x6x3x3xf32, 6xf32", "%y = ln.deconv2d %a, %b, %c {size = [3, 3], stride = [2, 2], padding = [1, 0, 0, 0]}", "1x6x10x11xf32", "the same padding on both sides"),
    ("1x4x5x5xf32, 4x6x1x1xf32, 6xf32", '%y = ln.deconv2d %a, %b, %c {size = [1, 1], stride = [3, 3], output_dims = [1, 6, 15, 15], autopad = "SAME_UPPER"}', "1x6x15x15xf32", "the same padding on both sides"),
    ("1x2x6x7xf32", "%y = ln.maxpool2d %a {size = [2, 3], stride = [2, 1], padding = [0, 1, 0, 1]}", "1x2x3x7xf32",
     [("max_pool2d", {"pool_size": "(2, 3)", "strides": "(2, 1)", "padding": "(0, 1)", "ceil_mode": "False"})]),
    ("1x2x6x7xf32", "%y = ln.avgpool2d %a {size = [2, 3], stride = [2, 1], padding = [0, 1, 1, 0]}", "1x2x3x6xf32",
     [("avg_pool2d", {"padding": "(0, 1, 1, 0)", "count_include_pad": "False"})]),
    ("1x2x6x7xf32", '%y = ln.maxpool2d %a {size = [1, 1], stride = [4, 3], autopad = "SAME_LOWER"}', "1x2x2x3xf32", "padding [-1, 0, 0, 0] is negative"),
    ("1x2x6x7xf32", "%y = ln.avgpool %a {size = [2, 3], stride = [2, 2], padding = [0, 1, 0, 1], dilation = [1, 1], ceil = true, count_include_pad = true}", "1x2x3x4xf32",
     [("avg_pool2d", {"pool_size": "(2, 3)", "strides": "(2, 2)", "padding": "(0, 1)", "ceil_mode": "True", "count_include_pad": "True"})]),
    ("1x2x6x7xf32", "%y = ln.avgpool %a {size = [2, 2], stride = [1, 1], padding = [0, 0, 0, 0], dilation = [1, 2]}", "1x2x5x5xf32", "two axes, without dilation"),
    ("1x2x6xf32", "%y = ln.avgpool %a {size = [2], stride = [1], padding = [0, 0], dilation = [1]}", "1x2x5xf32", "two axes, without dilation"),
    ("1x4x5x5xf32", "%y = ln.lrn %a {size = 3, alpha = 0.5, beta = 0.25, bias = 2}", "1x4x5x5xf32", [("lrn", {"size": "3", "axis": "1", "alpha": "0.5", "beta": "0.25", "bias": "2"})]),
    ("1x4x5x5xf32", "%y = ln.lrn %a {size = 4, alpha = 0.5, beta = 0.25, bias = 2}", "1x4x5x5xf32", "an odd window"),
    ("2x3xf32", "%y = ln.softmax %a {axis = 0}", "2x3xf32", [("softmax", {"axis": "0"})]),
    ("2x3xf32", "%y = ln.log_softmax %a {axis = 1}", "2x3xf32", [("log_softmax", {"axis": "1"})]),
    # products
    ("2x3xf32, 3x4xf32", "%y = ln.matmul %a, %b", "2x4xf32", [("matmul", {"transpose_a": "False", "transpose_b": "False"})]),
    ("2x3xf32, 4x3xf32", "%t = ln.transpose %b {axes = [1, 0]} : tensor<3x4xf32>\n%y = ln.matmul %a, %t", "2x4xf32", [("dense", {"units": "4", "use_bias": "False"})]),
    ("2x3xf32, 4x3xf32, 4xf32", "%t = ln.transpose %b {axes = [1, 0]} : tensor<3x4xf32>\n%m = ln.matmul %a, %t : tensor<2x4xf32>\n%y = ln.add %m, %c", "2x4xf32",
     [("dense", {"units": "4", "use_bias": "True"})]),
    ("2x3xf32, 4x3xf32, 1xf32", "%t = ln.transpose %b {axes = [1, 0]} : tensor<3x4xf32>\n%m = ln.matmul %a, %t : tensor<2x4xf32>\n%y = ln.add %m, %c", "2x4xf32",
     [("dense", {"use_bias": "False"}), ("broadcast_add", {})]),
    ("2x3xf32, 4x3xf32, 1x4xf32", "%t = ln.transpose %b {axes = [1, 0]} : tensor<3x4xf32>\n%m = ln.matmul %a, %t : tensor<2x4xf32>\n%y = ln.add %m, %c", "2x4xf32",
     [("dense", {"use_bias": "False"}), ("broadcast_add", {})]),
    ("5x2x3xf32, 5x3x4xf32", "%y = ln.matmul %a, %b", "5x2x4xf32", "matrices, not batches of them"),
    ("2x3xf32, 5x3x4xf32", "%y = ln.matmul %a, %b", "5x2x4xf32", "matrices, not batches of them"),
]  # fmt: skip


@pytest.mark.parametrize("row", ONE_OP, ids=lambda row: row[1][-60:])
def test_one_op(row) -> None:
    """What each op becomes, with all that its attributes say, or why NNVM has none; what is written gives the same results."""
    types, body, result, wanted = row
    names = "abc"[: len(types.split(", "))]
    inputs = "\n".join(
        f'%{n} = ln.input {{ran = [-2, 2]}} : tensor<{t}> as "{n}"("{n}")' for n, t in zip(names, types.split(", "))
    )
    text = f'func.func @main() -> tensor<{result}> {{\n{inputs}\n{body} : tensor<{result}> as "y"("y")\nfunc.return %y : tensor<{result}>\n}}'
    model = lightnet.loads(text, ".mlir")
    if isinstance(wanted, str):
        with pytest.raises(LightNetError, match="1 ops cannot be exported to NNVM") as caught:
            lightnet.to_nnvm(model)
        assert wanted in caught.value.notes[0][1]
        return
    written = lightnet.to_nnvm(model)
    nodes = [n for n in json.loads(written)["nodes"] if n["op"] != "null"]
    assert [n["op"] for n in nodes] == [op for op, _ in wanted]
    for node, (_, attributes) in zip(nodes, wanted):
        assert {k: node.get("attrs", {}).get(k) for k in attributes} == attributes
    again = lightnet.loads(written, ".json")
    feeds = {name: np.random.default_rng(0).integers(0, 2, op.result_specs[0].dims).astype(op.result_specs[0].dtype.np)
             for op in model.main.walk() if op.name == "ln.input" for name in op.tensor_names}  # fmt: skip
    first, second = (lightnet.compile(m, target="none")(feeds) for m in (model, again))
    np.testing.assert_array_equal(*first.values(), *second.values())


def test_command_line(tmp_path: Path) -> None:
    g, head = vgg(2)
    source, out = tmp_path / "vgg-symbol.json", tmp_path / "out.json"
    source.write_text(g.text(head))
    assert main(["-c", "--shape", "data=1x3x32x32", "--nnvm", str(out), str(source)]) == 0
    assert json.loads(out.read_text())["arg_nodes"] == ARG_NODES
