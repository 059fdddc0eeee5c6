"""NNVM and MXNet graphs: real networks against MXNet's own outputs, and every quirk of the files' writers."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from counting import calls
from nnvm_graphs import Graph, run
from nnvm_nets import DATA, DETECTORS, TOLERANCE, Net, error, nets, old_nets

import lightnet
from lightnet.diagnostics import LightNetError
from lightnet.frontends.loading import OpenError
from lightnet.model import Model
from lightnet.runtime.weights import open_weights, save_wts
from lightnet_nnvm import importer, reader
from lightnet_nnvm.attributes import AttributeText, parse_attribute

QUICK = ("lenet_module", "lstm_embed", "mobilenet0.25", "cifar_resnet20_v1", "public/deepwater_lenet")

# -- real networks ----------------------------------------------------------------------------------------------------


@pytest.mark.sampled(every=3, share=0.3)
@pytest.mark.parametrize("net", [
    pytest.param(net, id=net.tag, marks=() if net.tag in QUICK else pytest.mark.slow)
    for net in nets()
])  # fmt: skip
def test_network_agrees_with_mxnet(net: Net) -> None:
    model = lightnet.load(net.path, net.weights(), net.meta["inputs"])
    found = lightnet.compile(model)(net.feeds())
    expected = net.references()
    assert list(found) == list(expected)  # MXNet's names, in the order of the heads
    assert error(net.aligned(found), expected) < TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("tag", ["public/squeezenet_v1.2", "public/deepwater_inception_bn", *DETECTORS, "lstm_embed"])
def test_every_layer_agrees_with_mxnet(tag: str) -> None:
    """Where the last layer saturates (random weights make a softmax 0 and 1), the layers before it say more."""
    net = Net(tag)
    weights = net.weights()
    text = net.path.read_text()
    module, store = importer.read(text, tag, shapes=net.meta["inputs"], weights=open_weights(weights), internals=True)
    found = lightnet.compile(Model(module, tag, store))(net.feeds())
    for layer in net.meta["layers"]:
        array, scale = found[layer["output"]], max(layer["absmax"], 1e-6)
        assert list(array.shape) == layer["shape"], layer["output"]
        assert abs(np.abs(array).max() - layer["absmax"]) <= TOLERANCE * scale, layer["output"]
        if layer["output"] != "ssd0_box_nms0_output":
            np.testing.assert_allclose(array.reshape(-1)[:4], layer["first"], rtol=0, atol=TOLERANCE * scale,
                                       err_msg=layer["output"])  # fmt: skip


@pytest.mark.parametrize("net", old_nets(), ids=lambda net: net.tag)
def test_one_network_as_every_version_wrote_it(net: Net) -> None:
    feeds, expected = net.feeds(), net.references()
    model = lightnet.load(net.path, net.weights(), {k: v.shape for k, v in feeds.items()})
    found = lightnet.compile(model)(feeds)
    assert list(found) == list(expected)
    assert error(found, expected) < TOLERANCE


def test_a_network_that_fits_no_input_says_where() -> None:
    """deepwater_unet joins feature maps of different sizes, whatever its input."""
    with pytest.raises(LightNetError, match=r"Concat 'pool3_concat'.*8x8.*5x5") as caught:
        lightnet.load(DATA / "public" / "deepwater_unet-symbol.json", shapes={"data": (1, 1, 64, 64)})
    assert caught.value.loc is not None and caught.value.loc.line == 716


# -- shapes, weights, inputs ------------------------------------------------------------------------------------------


def dense_graph(**attrs: str) -> Graph:
    g = Graph()
    data = g.var("data")
    g.op("FullyConnected", "fc", data, g.var("fc_weight"), g.var("fc_bias"), num_hidden=2, **attrs)
    return g


X = np.array([[1.0, 2.0, 3.0]], np.float32)
W = {"fc_weight": np.array([[1, 0, 1], [0, 2, 0]], np.float32), "fc_bias": np.array([0.5, -1], np.float32)}


@pytest.mark.parametrize("prefix", ["", "arg:"])
def test_weights_by_name_with_or_without_a_prefix(prefix: str, tmp_path: Path) -> None:
    weights = {prefix + k: v for k, v in W.items()}
    text = dense_graph().text([3, 0, 0])
    assert run(text, {"data": X}, weights)[0].tolist() == [[4.5, 3.0]]
    np.savez(tmp_path / "w.npz", **weights)
    assert run(text, {"data": X}, tmp_path / "w.npz")[0].tolist() == [[4.5, 3.0]]
    save_wts(tmp_path / "w.wts", weights)  # which keeps no shapes
    assert run(text, {"data": X}, tmp_path / "w.wts")[0].tolist() == [[4.5, 3.0]]


def test_parameter_shapes_follow_without_weights() -> None:
    model = lightnet.loads(dense_graph().text([3, 0, 0]), ".json", shapes={"data": (4, 7)})
    assert "tensor<2x7xf32>" in str(model.module)


def test_weights_that_do_not_fit_are_refused_at_the_op() -> None:
    with pytest.raises(LightNetError, match=r"FullyConnected 'fc'.*'fc_weight' should have shape \[2, 5\].*\[2, 3\]"):
        run(dense_graph().text([3, 0, 0]), {"data": np.ones((1, 5), np.float32)}, W)


def test_open_shapes_are_listed_all_at_once() -> None:
    g = Graph()
    a, b, c = g.var("a"), g.var("b"), g.var("c")
    head = g.op("broadcast_add", "sum", g.op("broadcast_add", "s", a, b), c)
    with pytest.raises(OpenError, match="'a', ") as caught:
        lightnet.loads(g.text(head), ".json")
    assert caught.value.inputs >= {"a", "c"}


def test_a_call_decides_open_shapes() -> None:
    """As with ONNX: the first call of each shape compiles."""
    net = Net("lenet_module")
    with pytest.raises(OpenError):
        lightnet.load(net.path, net.weights())
    executable = lightnet.compile(net.path, weights=net.weights())
    assert error(executable(net.feeds()), net.references()) < TOLERANCE
    (one,) = executable({"data": net.feeds()["data"][:1]}).values()
    np.testing.assert_allclose(one, net.references()["softmax_output"][:1], rtol=0, atol=1e-5)


def test_weights_of_another_float_type_are_converted() -> None:
    half = {k: v.astype(np.float16) for k, v in W.items()}
    (y,) = run(dense_graph().text([3, 0, 0]), {"data": X}, open_weights(half))
    assert y.dtype == np.float32 and y.tolist() == [[4.5, 3.0]]


def test_shapes_and_types_that_the_file_holds() -> None:
    g = Graph()
    x = g.var("x", __shape__="(2, 3)", __dtype__="4")
    y = g.op("elemwise_mul", "y", x, x)
    feeds = {"x": np.arange(6, dtype=np.int32).reshape(2, 3)}
    model = lightnet.loads(g.text(y), ".json")
    (found,) = lightnet.compile(model, target="none")(feeds).values()
    assert found.dtype == np.int32 and found.tolist() == [[0, 1, 4], [9, 16, 25]]


def test_shapes_inferred_by_nnvm() -> None:
    """The pass InferShape of NNVM writes the shape of every entry into the graph."""
    g = Graph()
    y = g.op("relu", "y", g.var("x"))
    text = g.text(y, node_row_ptr=[0, 1, 2], attrs={"shape": ["list_shape", [[2, 2], [2, 2]]]})
    assert lightnet.loads(text, ".json").main.function_type.outputs.data[0].get_shape() == (2, 2)


def test_variables_of_one_name_are_one() -> None:
    g = Graph()
    y = g.op("elemwise_add", "y", g.var("x"), g.var("x"))
    assert run(g.text(y), {"x": X})[0].tolist() == [[2, 4, 6]]


def test_an_unknown_shape_name_is_an_error() -> None:
    with pytest.raises(LightNetError, match="no variable is called 'dat'"):
        lightnet.loads(dense_graph().text([3, 0, 0]), ".json", shapes={"dat": (1, 3)})


# -- names ------------------------------------------------------------------------------------------------------------


def test_outputs_are_named_as_mxnet_names_them() -> None:
    g = Graph()
    x = g.var("x")
    parts = g.op("SliceChannel", "parts", x, num_outputs=3, axis=1)[0]
    empty = g.op("relu", "", x)
    text = g.text([parts, 2, 0], [parts, 0, 0], g.op("exp", "e", x), empty, x)
    model = lightnet.loads(text, ".json", shapes={"x": (1, 3)})
    found = lightnet.compile(model, target="none")({"x": X})
    assert list(found) == ["parts_output2", "parts_output0", "e_output", "output", "x"]
    assert [v.tolist() for v in found.values()][:2] == [[[3.0]], [[1.0]]]


def test_nodes_may_have_one_name_or_none() -> None:
    g = Graph()
    x = g.var("x")
    for name in ("", "", "same", "same"):
        x = g.op("_plus_scalar", name, x, scalar=1)
    assert run(g.text(x), {"x": X})[0].tolist() == [[5, 6, 7]]


# -- writers ----------------------------------------------------------------------------------------------------------


def batch_norm(key: str, *, aux: bool, **attrs: str) -> str:
    g = Graph(key, 2 if key == "param" else 3)
    inputs = [g.var("x"), g.var("bn_gamma"), g.var("bn_beta")]
    inputs += [g.var("bn_moving_mean"), g.var("bn_moving_var")] if aux else []
    head = g.add("BatchNorm", "bn", inputs, attrs, **({"backward_source_id": -1} if key == "param" else {}))
    return g.text(head)


BN = {"bn_gamma": [2, 3], "bn_beta": [1, 1], "bn_moving_mean": [1, 2], "bn_moving_var": [3, 8]}
BN = {k: np.asarray(v, np.float32) for k, v in BN.items()}


@pytest.mark.parametrize("key, aux", [("param", False), ("attr", True), ("attrs", True)])
def test_every_key_of_attributes(key: str, aux: bool) -> None:
    """0.8 (without auxiliary states), 0.9 to 0.11, and 1.0."""
    x = np.array([[3, 5]], np.float32)
    (y,) = run(batch_norm(key, aux=aux, fix_gamma="False", eps="1"), {"x": x}, BN)
    np.testing.assert_allclose(y, [[2 * (3 - 1) / 2 + 1, 3 * (5 - 2) / 3 + 1]], rtol=1e-6)


def test_gamma_is_fixed_unless_a_graph_says_otherwise() -> None:
    x = np.array([[3, 5]], np.float32)
    (y,) = run(batch_norm("attrs", aux=True), {"x": x}, BN)
    np.testing.assert_allclose(y, [[2 / np.sqrt(3.001) + 1, 3 / np.sqrt(8.001) + 1]], rtol=1e-6)


def test_hidden_attributes_say_nothing() -> None:
    g = Graph()
    x = g.var("x", kernel="(3, 3)", __init__="<mxnet.initializer.Xavier object at 0x7f>")
    y = g.op("_mul_scalar", "y", x, scalar=2, __ctx_group__="stage1", lr_mult="0.1", weight_wd_mult="0")
    assert lightnet.loads(g.text(y), ".json", shapes={"x": (1,)}) is not None


def test_labels_are_dropped() -> None:
    g = Graph()
    y = g.op("SoftmaxOutput", "softmax", g.var("x"), g.var("softmax_label"))
    np.testing.assert_allclose(run(g.text(y), {"x": X})[0].sum(), 1, rtol=1e-6)


def test_nodes_in_any_order_and_control_dependencies() -> None:
    nodes = [
        {"op": "relu", "name": "y", "inputs": [[2, 0, 0]], "control_deps": [1]},
        {"op": "exp", "name": "z", "inputs": [[3, 0, 0]]},
        {"op": "_minus_scalar", "name": "m", "inputs": [[3, 0, 0]], "attrs": {"scalar": "2"}},
        {"op": "null", "name": "x", "inputs": []},
    ]
    text = json.dumps({"nodes": nodes, "arg_nodes": [3], "heads": [[0, 0, 0]]})
    assert run(text, {"x": X})[0].tolist() == [[0, 0, 1]]


# -- refusals ---------------------------------------------------------------------------------------------------------


def graph_data() -> dict:
    g = Graph()
    x = g.var("x")
    return g.data(g.op("relu", "z", g.op("relu", "y", x)))


def changed(path: list, value: object) -> str:
    data = graph_data()
    inner = data
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return json.dumps(data)


@pytest.mark.parametrize("text, message", [
    (changed(["nodes", 1, "inputs"], [[2, 0, 0]]), "cycle"),
    (changed(["nodes", 1, "inputs"], [[1, 0, 0]]), "cycle"),
    (changed(["nodes", 1, "control_deps"], [2]), "cycle"),
    (changed(["nodes", 1, "inputs"], [[9, 0, 0]]), "input 9 does not exist"),
    (changed(["nodes", 1, "inputs"], [[0, 3, 0]]), "has one output"),
    (changed(["nodes", 2, "inputs"], [[1, 3, 0]]), "reads output 3 of relu 'y'"),
    (changed(["nodes", 1, "inputs"], [[0, -1, 0]]), "an entry should be"),
    (changed(["nodes", 1, "inputs"], [0]), "an entry should be"),
    (changed(["nodes", 1, "inputs"], None), "'inputs' should be an array"),
    (changed(["nodes", 1, "op"], 3), "needs a string 'op'"),
    (changed(["nodes", 1, "name"], "a\nb"), "cannot be printed"),
    (changed(["nodes", 1, "attrs"], {"a": [1]}), "should be a string"),
    (changed(["nodes", 1, "attrs"], [1]), "'attrs' should be an object"),
    (changed(["nodes", 0, "inputs"], [[1, 0, 0]]), "a variable has no inputs"),
    (changed(["nodes", 1], 7), "node 1 should be an object"),
    (changed(["nodes"], {}), "'nodes' has to be an array"),
    (changed(["heads"], []), "no heads"),
    (changed(["heads"], [[7, 0, 0]]), "head 0, .7, 0., is no output"),
    (changed(["heads"], [[2, 5, 0]]), "output 5"),
    (changed(["arg_nodes"], [1]), "no variable"),
    (changed(["arg_nodes"], [[0]]), "should hold node numbers"),
    (changed(["node_row_ptr"], [0, 1]), "'node_row_ptr' has to ascend"),
    (changed(["attrs"], {"mxnet_version": "x"}), "'mxnet_version' should be"),
    (changed(["nodes", 1, "op"], "Frobnicate"), "1 of 3 nodes cannot be imported"),
    (changed(["nodes", 1, "inputs"], [[0, 0, 0], [0, 0, 0]]), "inputs"),
    ('{"arg_nodes": [], "heads": [[0, 0, 0]]}', "needs the key 'nodes'"),
    ('{"arg_nodes": [], "nodes": [', "not valid JSON"),
])  # fmt: skip
def test_malformed_graphs(text: str, message: str) -> None:
    with pytest.raises(LightNetError, match=message) as caught:
        run(text, {"x": X})
    assert caught.value.loc is not None and caught.value.loc.file == "graph.json"


def test_unsupported_ops_are_listed_at_once() -> None:
    g = Graph()
    x = g.var("x")
    y = g.op("Custom", "c1", g.op("Custom", "c0", g.op("Correlation", "co", x)))
    with pytest.raises(LightNetError, match="3 of 4 nodes") as caught:
        run(g.text(y), {"x": X})
    notes = [text for _, text in caught.value.notes]
    assert any("Custom ('c0', 'c1')" in n for n in notes) and any("Correlation" in n for n in notes)


def test_tvm_graph_executor_json_is_refused_with_what_it_is() -> None:
    nodes = [
        {"op": "null", "name": "x", "inputs": []},
        {"op": "tvm_op", "name": "fused_relu", "inputs": [[0, 0, 0]], "attrs": {
            "func_name": "fused_relu", "num_inputs": "1", "num_outputs": "1", "flatten_data": "0"}},
    ]  # fmt: skip
    attrs = {
        "shape": ["list_shape", [[1], [1]]],
        "dltype": ["list_str", ["float32"] * 2],
        "storage_id": ["list_int", [0, 1]],
    }
    text = json.dumps(
        {"nodes": nodes, "arg_nodes": [0], "heads": [[1, 0, 0]], "attrs": attrs, "node_row_ptr": [0, 1, 2]}
    )
    with pytest.raises(LightNetError, match="TVM's graph executor"):
        lightnet.loads(text, ".json")


@pytest.mark.parametrize("attrs, message", [
    ({"kernel": "(3, 3"}, r"'kernel'.*lacks a '\)'"),
    ({"kernel": "__import__('os').abort()"}, "a tuple of integers"),
    ({"kernel": "(3, x)"}, "a tuple of integers"),
    ({"kernel": "(3,)"}, "should have 2 sizes"),
    ({"kernel": "(99999999999, 3)"}, "conv2d|bytes"),
    ({"kernel": "(3, 3)", "num_filter": "-4"}, "channels"),
    ({"kernel": "(3, 3)", "num_group": "2"}, "groups"),
    ({"kernel": "(3, 3)", "stride": "(0, 1)"}, "stride"),
    ({"kernel": "(3, 3)", "layout": "NCHW4c"}, "its attribute 'layout' is 'NCHW4c' on tensors of rank 4"),
    ({"kernel": "(3, 3)", "layout": "NCHH"}, "its attribute 'layout' is 'NCHH' on tensors of rank 4"),
    ({"kernel": "(3, 3)", "layout": "NCDHW"}, "its attribute 'layout' is 'NCDHW' on tensors of rank 4"),
    ({}, "needs the attribute 'kernel'"),
])  # fmt: skip
def test_attributes_that_make_no_convolution(attrs: dict[str, str], message: str) -> None:
    g = Graph()
    y = g.op("Convolution", "conv", g.var("x"), g.var("w"), g.var("b"), **{"num_filter": "4", **attrs})
    with pytest.raises(LightNetError, match=message):
        run(g.text(y), {"x": np.ones((1, 3, 8, 8), np.float32)})


def test_truncated_graphs_are_refused() -> None:
    """No prefix of a graph makes anything but a located refusal."""
    text = (DATA / "public" / "deepwater_lenet-symbol.json").read_text()
    for length in range(0, len(text) - 1, 97):
        with pytest.raises(LightNetError):
            reader.read(text[:length], "cut.json")


ODD = [None, True, -1, 0, 7, 1 << 40, 1e300, "", "x", "(1,", "(0, 0)", "(99999999999, 3)", "\x00", [], {}, [[0, 0, 0]], [[1, -1, 0]], {"a": {}},
       [9] * 9, {"kernel": "(3, 3)"}]  # fmt: skip


def mutants(text: str, count: int, seed: int) -> Iterator[str]:
    """The graph with one value of it, somewhere, replaced, removed or doubled."""
    rng = random.Random(seed)
    for _ in range(count):
        data = json.loads(text)
        inner, key = data, rng.choice(list(data))
        while isinstance(inner[key], dict | list) and inner[key] and rng.random() < 0.9:
            inner = inner[key]
            key = rng.choice(list(inner)) if isinstance(inner, dict) else rng.randrange(len(inner))
        action = rng.random()
        if action < 0.7:
            inner[key] = rng.choice(ODD)
        elif action < 0.85:
            del inner[key]
        elif isinstance(inner, list):
            inner.append(inner[key])
        yield json.dumps(data)


@pytest.mark.parametrize("file, shape", [
    ("lenet_module", (1, 1, 28, 28)), ("public/deepwater_lenet", (1, 1, 28, 28)), ("old/mininet-mx0.11.0", (2, 3, 17, 17)),
    ("lstm_embed", (7, 3)),
])  # fmt: skip
def test_damaged_graphs_are_refused_or_read(file: str, shape: tuple[int, ...]) -> None:
    """No traceback, and never more than a moment."""
    text = (DATA / f"{file}-symbol.json").read_text()
    refused = 0
    for mutant in mutants(text, 60, len(file)):
        with calls(at_most=200_000):
            try:
                lightnet.loads(mutant, ".json", "mutant.json", shapes={"data": shape})
            except LightNetError as e:
                refused += 1
                assert e.loc is not None, e
    assert refused > 20


# -- the grammar of attributes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text, value", [
    ("(3, 3)", (3, 3)), ("(3,3)", (3, 3)), ("[3, 3]", (3, 3)), ("(3L, 3L)", (3, 3)), ("(3,)", (3,)), ("()", ()), ("3", 3),
    ("-1", -1), ("True", True), ("true", True), ("False", False), ("None", None), ("1e-05", 1e-05), ("1e-4", 1e-4), ("2.", 2.0),
    (".5", 0.5), ("inf", float("inf")), ("relu", "relu"), ("((1, 2), (3, None))", ((1, 2), (3, None))),
    ('("a, b", \'c\')', ("a, b", "c")), ("<mxnet.initializer.Xavier object at 0x7f>",) * 2, ("", ""),
    ("1_000", "1_000"), ("9" * 40, 1e40),
])  # fmt: skip
def test_attribute_texts(text: str, value: object) -> None:
    found = parse_attribute(text)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize("text, message", [
    ("(1, 2", "lacks a ')'"), ("(1, 2]", "has ']' where a value should stand"), ("(1,,2)", "has ',' where a value should stand"),
    ("(,)", "has ',' where a value should stand"), ("(1) 2", "has more behind its closing bracket"),
    ('("a" "b")', "lacks a comma between two values"), ("((1) (2))", "lacks a comma between two values"),
    ("(" * 50 + ")" * 50, "is nested deeper than 8"), ("(((((((((1)))))))))", "is nested deeper than 8"),
    ("x" * ((1 << 16) + 1), "is longer than 65536 characters"),
])  # fmt: skip
def test_texts_that_the_grammar_does_not_have(text: str, message: str) -> None:
    with pytest.raises(AttributeText, match=re.escape(message)):
        parse_attribute(text)
