"""What an untrusted or mistaken model may do to the front ends: sizes that must not be allocated, work that must not be done
while a model is read, attributes that must be heeded, and messages that say what to do.

The oracle of results is ONNX Runtime; sizes are measured with tracemalloc (which NumPy reports to), and by the clock.
"""

from __future__ import annotations

import gzip
import re
import tracemalloc
import zipfile

import numpy as np
import pytest
from counting import calls
from nnvm_graphs import Graph, run

import lightnet
from lightnet.diagnostics import LightNetError
from lightnet.frontends.graph import MAX_FOLDED_BYTES, MAX_MADE, MAX_TRACED, _union
from lightnet.ir.op import LnOp
from lightnet.source import file_kind

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

F, I64 = TensorProto.FLOAT, TensorProto.INT64
HUGE = (1 << 31) - 1
RNG = np.random.default_rng(3)


def data(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def model(nodes, inputs: dict, outputs=("y",), constants: dict | None = None, opset: int = 21) -> bytes:
    """A model of nodes; `inputs` have (type, dims). The type of an output is left to whoever infers it."""
    domains = {n.domain for n in nodes} - {""}
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(k, t, d) for k, (t, d) in inputs.items()],
        [onnx.ValueInfoProto(name=y) for y in outputs],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in (constants or {}).items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def one(
    op: str, inputs: dict, constants: dict | None = None, order=None, outputs=("y",), opset=21, domain="", **attributes
):
    order = order or [*inputs, *(constants or {})]
    return model([helper.make_node(op, order, outputs, domain=domain, **attributes)], inputs, outputs, constants, opset)


def imported(source: bytes) -> str:
    """What reading a model says: "" if it is imported. Fails beyond 300 MB or 200,000 calls."""
    tracemalloc.start()
    with calls(at_most=200_000):
        try:
            lightnet.loads(source, ".onnx")
            said = ""
        except LightNetError as e:
            said = str(e)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 300 << 20
    return said


# -- sizes -----------------------------------------------------------------------------------------------------------

SIZES = {
    "an axis that a resize leaves alone": (
        one("Resize", {"x": (F, [2, HUGE])}, {"s": np.float32([2, 1])}, ["x", "", "s"]), ""),
    "an axis that a resize makes": (one("Resize", {"x": (F, [1, 4])}, {"s": np.int64([1, HUGE])}, ["x", "", "", "s"]), "resample"),
    "the taps of a wide filter": (
        one("Resize", {"x": (F, [HUGE])}, {"s": np.int64([1])}, ["x", "", "", "s"], mode="linear", antialias=1), "weights"),
    "a filter of no end": (
        one("Resize", {"x": (F, [4])}, {"s": np.float32([1e-30])}, ["x", "", "s"], mode="cubic", antialias=1), "weights"),
    "the states of a batch": (
        one("LSTM", {"x": (F, [1, HUGE >> 4, 1]), "w": (F, [1, 4, 1]), "r": (F, [1, 4, 1])}, hidden_size=1), ""),
    "the states of a layer": (one("GRU", {"x": (F, [1, 1, 1]), "w": (F, [1, 3 << 18, 1]), "r": (F, [1, 3 << 18, 1 << 18])}), ""),
    "a range": (one("Range", {}, {"a": np.int64(0), "b": np.int64(1 << 40), "c": np.int64(1)}), "limit"),
    "a range of tiny steps": (one("Range", {}, {"a": np.float32(0), "b": np.float32(1e30), "c": np.float32(1e-30)}), "limit"),
    "a large range": (one("Range", {}, {"a": np.int64(0), "b": np.int64(MAX_MADE), "c": np.int64(1)}), ""),
    "a fill": (one("ConstantOfShape", {}, {"s": np.int64([1 << 19, 1 << 19])}), ""),
    "classes": (one("OneHot", {"x": (I64, [2])}, {"d": np.int64(1 << 40), "v": np.float32([0, 1])}), "classes"),
    "a unit matrix": (one("EyeLike", {"x": (F, [1 << 16, 1 << 16])}), "elements"),
    "a mask": (one("Attention", {k: (F, [1, 1, 1 << 20, 4]) for k in "qkv"}, opset=23, is_causal=1), "mask"),
    "windows of a signal": (one("STFT", {"x": (F, [1, HUGE, 1]), "w": (F, [4])}, {"s": np.int64(1)}, ["x", "s", "w"]), "frames"),
    "the factors of a long transform": (
        one("DFT", {"x": (F, [1, 4, 1])}, {"n": np.int64((1 << 61) - 1)}, opset=17), "transform"),
    "a transform of nothing": (one("DFT", {"x": (F, [1, 0, 2])}, {"n": np.int64(1 << 60)}, inverse=1, onesided=1), "transform"),
    "a window function": (one("HannWindow", {}, {"n": np.int64(1 << 40)}), "range"),
    "blocks of an image": (
        one("Col2Im", {"x": (F, [1, 1 << 20, 1])}, {"i": np.int64([1 << 10, 1 << 10]), "b": np.int64([1 << 10, 1 << 10])}),
        "Col2Im"),
    "blocks of no channels": (
        one("Col2Im", {"x": (F, [1, 0, 1])}, {"i": np.int64([1 << 20, 1 << 20]), "b": np.int64([1 << 20, 1 << 20])}), "Col2Im"),
    "parts": (one("Split", {"x": (F, [HUGE])}, num_outputs=HUGE), "num_outputs"),
    "positions in a cache": (one("TensorScatter", {k: (F, [1, 1, HUGE, 1]) for k in "xu"}, opset=24), "positions"),
    "taps that move": (
        one("DeformConv", {"x": (F, [1, 1, 4, 4]), "w": (F, [1, 1, 1, 1]), "o": (F, [1, 2, 1 << 15, 1 << 15])}), "points"),
    "skips between tokens": (
        one("TfIdfVectorizer", {"x": (I64, [HUGE >> 4])}, mode="TF", min_gram_length=2, max_gram_length=2, max_skip_count=HUGE,
            ngram_counts=[0, 0], ngram_indexes=[0], pool_int64s=[1, 2]), "passes"),
    "a scan": (
        model([helper.make_node("Scan", ["x"], ["y"], num_scan_inputs=1, body=helper.make_graph(
            [helper.make_node("Relu", ["a"], ["b"])], "body", [helper.make_tensor_value_info("a", F, [])],
            [helper.make_tensor_value_info("b", F, [])]))], {"x": (F, [HUGE])}), "steps"),
}  # fmt: skip


@pytest.mark.parametrize("name", SIZES)
def test_sizes_of_a_model_are_not_allocated(name):
    source, expected = SIZES[name]
    said = imported(source)
    assert expected in said and bool(said) == bool(expected)


#: Numbers beyond 32 bits: saturating them, as parameters do, would be another network.
WIDE = {
    "Expand": one("Expand", {"x": (F, [1])}, {"s": np.int64([1 << 33])}),
    "Tile": one("Tile", {"x": (F, [2])}, {"r": np.int64([1 << 50])}),
    "Pad": one("Pad", {"x": (F, [2])}, {"p": np.int64([1 << 50, 0])}),
    "Conv": one("Conv", {"x": (F, [1, 1, 2]), "w": (F, [1, 1, 2])}, pads=[1 << 40, 0]),
    "TopK": one("TopK", {"x": (F, [2])}, {"k": np.int64([1 << 40])}, outputs=("y", "i")),
    "an input": one("Relu", {"x": (F, [1 << 32])}),
    "ConstantOfShape": one("ConstantOfShape", {}, {"s": np.int64([1 << 32])}),
}


@pytest.mark.parametrize("name", WIDE)
def test_integers_do_not_saturate(name):
    assert "not possible" in imported(WIDE[name]) or "32 bits" in imported(WIDE[name])


def test_work_is_not_done_while_reading():
    """Ops whose work is no multiple of their sizes are not folded: 2^48 products, windows of 2^19, 2^30 products."""
    ones = np.ones(1 << 16, np.float32)
    assert not imported(one("Einsum", {}, {"a": ones, "b": ones, "c": ones}, equation="a,b,c->"))
    assert not imported(one("MaxPool", {}, {"a": ones[None, None]}, kernel_shape=[1 << 19], pads=[1 << 18] * 2))
    assert not imported(one("Conv", {}, {"a": ones[None, None], "w": ones[None, None, : 1 << 15]}))


def test_folding_has_a_budget():
    """A chain of ops on known tensors, each of which is small enough to fold, stops folding; shapes still do."""
    count = MAX_FOLDED_BYTES // (8 << 16) + 100
    nodes = [helper.make_node("Add", ["a" if k == 0 else f"t{k - 1}", "a"], [f"t{k}"]) for k in range(count)]
    nodes += [helper.make_node("Shape", [f"t{count - 1}"], ["s"]), helper.make_node("Reshape", ["x", "s"], ["y"])]
    graph = lightnet.loads(model(nodes, {"x": (F, [2, 1 << 15])}, constants={"a": np.ones(1 << 16)}), ".onnx")
    assert graph.main.body.block.last_op.operands[0].type.get_shape() == (1 << 16,)


def test_values_share_the_inputs_they_come_from():
    """A sum of very many inputs does not keep a set of names for each of its terms."""
    base = frozenset(map(str, range(100)))
    assert _union([base, frozenset("1"), base]) is base
    assert _union([frozenset(map(str, range(MAX_TRACED))), frozenset("x")]) == frozenset()


@pytest.mark.parametrize(
    ("op", "shape", "attributes", "said"),
    [
        ("_contrib_arange_like", (2, 3), {"repeat": 1 << 40}, ""),
        ("SliceChannel", (HUGE - 1,), {"num_outputs": HUGE - 1, "axis": 0}, "equal parts"),
        ("_contrib_MultiBoxPrior", (1, 3, 1 << 15, 1 << 15), {}, "elements"),
        ("one_hot", (2,), {"depth": HUGE}, "elements"),
        ("UpSampling", (1, 1, 2, 2), {"scale": 1 << 40}, "elements"),
    ],
)
def test_nnvm_sizes(op, shape, attributes, said):
    g = Graph()
    text = g.text([g.op(op, "y", g.var("x"), **attributes)[0], 0, 0])
    try:
        lightnet.loads(text, ".json", shapes={"x": shape})
        assert not said
    except LightNetError as e:
        assert said and said in str(e)


def test_nnvm_attributes_are_heeded():
    """NNVM's take without an axis picks of all elements (MXNet's: rows); what changes a result and is not done is refused."""
    x, at = data(2, 3), np.int32([4, 1])
    g = Graph()
    node = g.op("take", "y", g.var("x"), g.var("i"))
    mxnet = g.text([node[0], 0, 0], attrs={"mxnet_version": ["int", 10500]})
    assert np.array_equal(run(mxnet, {"x": x, "i": at})[0], x[[1, 1]])
    assert np.array_equal(run(g.text([node[0], 0, 0]), {"x": x, "i": at})[0], x.reshape(-1)[at])
    g = Graph()
    text = g.text([g.op("_linalg_gemm2", "y", g.var("a"), g.var("b"), axis=0)[0], 0, 0])
    with pytest.raises(LightNetError, match="another axis"):
        lightnet.loads(text, ".json", shapes={"a": (2, 2, 2), "b": (2, 2, 2)})


# -- results ---------------------------------------------------------------------------------------------------------

QUANT = {"xs": np.float32(0.1), "xz": np.uint8(7), "ys": np.float32(1 / 256), "yz": np.uint8(0)}
#: op, inputs, constants, opset, attributes: what other tests leave out, mostly of old opsets and of rare attributes.
RESULTS = {
    "Resize-10 takes the next element where an axis shrinks": (
        "Resize", {"x": data(1, 1, 7, 7)}, {"s": np.float32([1, 1, 0.6, 1.5])}, 10, {}),
    "Resize-10, linear": ("Resize", {"x": data(1, 1, 7, 7)}, {"s": np.float32([1, 1, 0.6, 1.5])}, 10, {"mode": "linear"}),
    "Upsample-9": ("Upsample", {"x": data(1, 1, 4, 4)}, {"s": np.float32([1, 1, 2.5, 1.5])}, 9, {}),
    "the softmax of com.microsoft says its version": (
        "QLinearSoftmax", {"x": RNG.integers(0, 40, (2, 3, 4)).astype(np.uint8)}, QUANT, 15,
        {"axis": 1, "opset": 11, "domain": "com.microsoft"}),
    "the newer softmax of com.microsoft": (
        "QLinearSoftmax", {"x": RNG.integers(0, 40, (2, 3, 4)).astype(np.uint8)}, QUANT, 15,
        {"axis": 1, "opset": 13, "domain": "com.microsoft"}),
    "statistics of a normalisation are f32": (
        "LayerNormalization", {"x": data(2, 5).astype(np.float64), "s": data(5).astype(np.float64)}, {}, 17, {"outputs": 3}),
    "a clip whose bounds cross": ("Clip", {"x": data(5)}, {"a": np.float32(1), "b": np.float32(-1)}, 13, {}),
    "a clip of large integers": (
        "Clip", {"x": np.int64([1 << 60, 5, -(1 << 62)])}, {"a": np.int64(-(1 << 61) - 1), "b": np.int64((1 << 53) + 1)}, 13, {}),
    "a diagonal beyond the corner": ("Trilu", {"x": data(3, 4)}, {"k": np.int64(1 << 40)}, 14, {}),
    "a diagonal before the corner": ("Trilu", {"x": data(3, 4)}, {"k": np.int64(-(1 << 40))}, 14, {"upper": 0}),
    "a slice to the very ends": (
        "Slice", {"x": data(5)},
        {"s": np.int64([(1 << 63) - 1]), "e": np.int64([-(1 << 63)]), "a": np.int64([0]), "t": np.int64([-2])}, 13, {}),
    "positions of maxima, columns first": (
        "MaxPool", {"x": data(2, 3, 6, 7)}, {}, 12,
        {"outputs": 2, "kernel_shape": [2, 3], "dilations": [2, 2], "pads": [1] * 4, "storage_order": 1}),
    "a maximum of integers beside padding": (
        "MaxPool", {"x": np.arange(-8, 8, dtype=np.int8).reshape(1, 1, 4, 4)}, {}, 12, {"kernel_shape": [2, 2], "pads": [1] * 4}),
    "a mean with counted padding, rounded up": (
        "AveragePool", {"x": data(1, 1, 6, 6)}, {}, 19,
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 0, 0], "ceil_mode": 1, "count_include_pad": 1}),
    "a shape of the result with padding at the begin": (
        "ConvTranspose", {"x": data(1, 1, 5, 5)}, {"w": data(1, 1, 3, 3)}, 11, {"output_shape": [10, 9], "strides": [2, 2]}),
    "the NaN that beta = 0 leaves out": (
        "Gemm", {"a": data(2, 3), "b": data(3, 4)}, {"c": np.full(4, np.nan, np.float32)}, 11, {"beta": 0.0}),
    "indices that are floats": (
        "OneHot", {"i": np.float32([-1, 0, 5, 2])}, {"d": np.float32(3), "v": np.float32([2, 5])}, 11, {}),
    "a mean of integers": ("ReduceMean", {"x": np.int32([[1, 2], [-3, -4]])}, {"a": np.int64([1])}, 18, {}),
    "a square of what is not reduced": (
        "ReduceSumSquare", {"x": data(2, 3)}, {"a": np.zeros(0, np.int64)}, 18, {"noop_with_empty_axes": 1}),
}  # fmt: skip


@pytest.mark.parametrize("name", RESULTS)
def test_results(name):
    onnxruntime = pytest.importorskip("onnxruntime")
    op, inputs, constants, opset, attributes = RESULTS[name]
    attributes = dict(attributes)
    names = [f"y{k}" for k in range(attributes.pop("outputs", 1))]
    types = {k: (helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in inputs.items()}
    node = helper.make_node(op, [*inputs, *constants], names, domain=attributes.pop("domain", ""))
    node.attribute.extend(helper.make_attribute(k, v) for k, v in attributes.items())
    source = model([node], types, names, constants, opset)
    session = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    got = lightnet.compile(source)(inputs)
    # A quantised result may be one step off: both round products that no float holds exactly.
    tolerance = {"rtol": 0, "atol": 1} if op.startswith("QLinear") else {"rtol": 1e-5, "atol": 1e-5}
    for y, want in zip(names, session.run(None, inputs)):
        assert (got[y].shape, got[y].dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(got[y].astype(np.float64), want.astype(np.float64), **tolerance)


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose", "DeformConv"])
def test_kernel_shape_is_that_of_the_weights(op):
    inputs = {"x": (F, [1, 1, 5, 5]), "w": (F, [1, 1, 3, 3])}
    inputs |= {"o": (F, [1, 18, 3, 3])} if op == "DeformConv" else {}
    assert "kernel_shape [2, 2]" in imported(one(op, inputs, opset=19, kernel_shape=[2, 2]))


# -- messages --------------------------------------------------------------------------------------------------------

RELU = one("Relu", {"x": (F, [2])})
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
FILES = {
    "a.onnx": (b"", "empty"),
    "b.onnx": (POINTER, "git lfs pull"),
    "b.json": (POINTER, "git lfs pull"),
    "c.onnx": (gzip.compress(RELU), "gzip"),
    "d.onnx": (b"<!DOCTYPE html><html>", "web page"),
    "e.onnx": (b"these are words\n", "text"),
    "f.onnx": (b"\x80\x02}q\x00.", "pickle"),
    "g.onnx": (b"\x1c\0\0\0TFL3" + bytes(64), "TensorFlow Lite"),
    "h.json": (b'{"a": 1}', "arg_nodes"),
    "model": (RELU[:2] + b"\x12\x01\xff" + RELU[2:], ".onnx"),
}


@pytest.mark.parametrize("name", FILES)
def test_files_of_another_kind(tmp_path, name):
    content, expected = FILES[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(LightNetError) as e:
        lightnet.load(tmp_path / name)
    assert expected in str(e.value) and name in str(e.value)


def test_kind_of_archives(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("model.onnx", RELU)
    assert "zip archive" in (file_kind((tmp_path / "a.zip").read_bytes()[:24]) or "")
    assert file_kind(b"\xff\xfe\xfd") is None


def test_weights_that_are_a_pointer(tmp_path):
    (tmp_path / "w.npz").write_bytes(POINTER)
    with pytest.raises(LightNetError, match="git lfs pull"):
        lightnet.loads(RELU, ".onnx", weights=str(tmp_path / "w.npz"))


def test_a_violated_constraint_shows_the_operands():
    said = imported(one("Conv", {"x": (F, [1, 4, 8, 8]), "w": (F, [4, 3, 3, 3])}))
    assert "in-channels" in said and "tensor<1x4x8x8xf32>, tensor<4x3x3x3xf32>" in said


def test_mistakes_at_the_api():
    network = lightnet.compile(RELU)
    with pytest.raises(LightNetError, match=r"has 1 inputs \(x\), but gets 3 arrays"):
        network(*3 * [np.ones(2, np.float32)])
    with pytest.raises(LightNetError, match=r"-i x=@file\.npy"):
        network({})
    with pytest.raises(LightNetError, match=r"an onnx\.ModelProto or its bytes, not a dict"):
        lightnet.compile({"model": RELU})


def _relu_and_exp() -> onnx.ModelProto:
    nodes = [helper.make_node("Relu", ["x"], ["a"], name="first"), helper.make_node("Exp", ["a"], ["y"])]
    values = [helper.make_tensor_value_info("x", 1, ["n", 3]), helper.make_tensor_value_info("y", 1, None)]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_ops_are_named_after_their_nodes(tmp_path):
    """A node without a name after its operator."""
    onnx.save(_relu_and_exp(), tmp_path / "m.onnx")
    module = lightnet.load(tmp_path / "m.onnx", shapes={"x": (2, 3)}).module
    assert [op.op_name for op in module.walk() if isinstance(op, LnOp)] == ["x", "first", "exp"]


@pytest.mark.parametrize("shape", [(2, 4), (2, 3, 1), (-1, 3)])
def test_shapes_that_do_not_fit_an_input(tmp_path, shape):
    onnx.save(_relu_and_exp(), tmp_path / "m.onnx")
    with pytest.raises(
        LightNetError, match=re.escape(f"has shape [n, 3] in the model, which {list(shape)} does not fit")
    ):
        lightnet.load(tmp_path / "m.onnx", shapes={"x": shape})


@pytest.mark.parametrize("version", [10**6, 1 << 31, 1 << 40, (1 << 63) - 1])
def test_opset_of_any_number(version: int) -> None:
    """A file may call an opset of another domain by any number; of an op that it has not, it is said as of any other."""
    node = helper.make_node("NoSuchOp", ["x"], ["y"], domain="ai.onnx.ml")
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])])  # fmt: skip
    data = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", version)]
    ).SerializeToString()
    with pytest.raises(LightNetError, match="cannot be imported"):
        lightnet.loads(data, ".onnx")
