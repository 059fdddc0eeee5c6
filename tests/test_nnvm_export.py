"""Export to NNVM graph JSON: what is written is what document 003 prints, and what is read back."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from nnvm_graphs import Entry, Graph
from nnvm_nets import TOLERANCE, Net, error

import lightnet
from lightnet.cli.lightnet import main
from lightnet.diagnostics import LightNetError

pytestmark = pytest.mark.meaning

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
    model = lightnet.load(Path(__file__).parent.parent / "examples" / "example.net")  # which prints
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


def test_command_line(tmp_path: Path) -> None:
    g, head = vgg(2)
    source, out = tmp_path / "vgg-symbol.json", tmp_path / "out.json"
    source.write_text(g.text(head))
    assert main(["-c", "--shape", "data=1x3x32x32", "--nnvm", str(out), str(source)]) == 0
    assert json.loads(out.read_text())["arg_nodes"] == ARG_NODES
