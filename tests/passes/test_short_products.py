"""Products of bf16 in whole networks: what rounded factors give in double, on any processor; which products are taken, and how
they are told."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import lightnet
from lightnet.diagnostics import LightNetError
from lightnet.ir.op import LnOp
from lightnet.runtime.dtypes import BY_NAME
from lightnet_report.remarks import remarks_of

BF16 = BY_NAME["bf16"].np
#: Half the distance from 1 to the next bf16.
UNIT = 2.0**-8
PROCESSOR = {"features": "avx512bf16"}


def model_of(nodes, inputs: dict, weights: dict, output: str, dtype: int = TensorProto.FLOAT) -> onnx.ModelProto:
    """A network of nodes (op, inputs, outputs, attributes), with inputs of f32 as floats of `dtype`."""
    made = [helper.make_node(op, ins, outs, **attributes) for op, ins, outs, attributes in nodes]
    of = lambda name, dims: helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)  # noqa: E731
    graph = helper.make_graph(made, "g", [of(n, a.shape) for n, a in inputs.items()], [of(output, None)],
                              [numpy_helper.from_array(a, n) for n, a in weights.items()])  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


def ops_of(executable) -> Counter[str]:
    return Counter(op.optype for op in executable._compilation.planned.walk() if isinstance(op, LnOp))


def rounded(array: np.ndarray) -> np.ndarray:
    return array.astype(BF16).astype(np.float64)


def in_double(model: onnx.ModelProto, feeds: dict) -> np.ndarray:
    """The result of ONNX's reference evaluator in f64."""
    wide = onnx.ModelProto.FromString(model.SerializeToString())
    for tensor in wide.graph.initializer:
        if (array := numpy_helper.to_array(tensor)).dtype == np.float32:
            tensor.CopyFrom(numpy_helper.from_array(array.astype(np.float64), tensor.name))
    for value in (*wide.graph.input, *wide.graph.output):
        value.type.tensor_type.elem_type = TensorProto.DOUBLE
    return ReferenceEvaluator(wide).run(None, {k: v.astype(np.float64) for k, v in feeds.items()})[0]


def run(model: onnx.ModelProto, feeds: dict, **options):
    executable = lightnet.compile(lightnet.loads(model.SerializeToString(), ".onnx"), **(PROCESSOR | options))
    return next(iter(executable(feeds).values())), ops_of(executable)


CONVOLUTIONS = [
    ((1, 64, 14, 14), 128, (1, 1), {}), ((2, 48, 13, 17), 40, (3, 3), {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
    ((1, 64, 9, 11), 64, (5, 3), {"pads": [2, 0, 1, 1], "dilations": [1, 2]}), ((1, 128, 7, 7), 250, (1, 1), {"strides": [2, 2]}),
    ((3, 34, 5, 29), 33, (1, 5), {"pads": [0, 2, 0, 2]}), ((1, 256, 1, 1), 96, (1, 1), {}),
    ((1, 64, 12, 12), 96, (3, 3), {"group": 2, "strides": [2, 2], "pads": [1, 1, 1, 1]}),
]  # fmt: skip
PRODUCTS = [((50, 64), 96), ((1, 512), 1000), ((3, 7, 130), 65), ((197, 192), 33), ((128, 2304), 64), ((2, 2), 3)]


@pytest.mark.parametrize("dims, outputs, window, attributes", CONVOLUTIONS, ids=str)
def test_convolutions_of_rounded_factors(dims, outputs, window, attributes):
    rng = np.random.default_rng(outputs)
    weights = (outputs, dims[1] // attributes.get("group", 1), *window)
    w = (rng.standard_normal(weights) / np.sqrt(np.prod(weights[1:]))).astype(np.float32)
    contents = {"w": w, "b": rng.standard_normal(outputs).astype(np.float32)}
    feeds = {"x": rng.standard_normal(dims).astype(np.float32)}
    model = model_of([("Conv", ["x", "w", "b"], ["y"], attributes)], feeds, contents, "y")
    got, ops = run(model, feeds, precision="bf16")
    assert (ops["conv2d_short"], ops["conv2d"]) == (1, 0)
    short = model_of(
        [("Conv", ["x", "w", "b"], ["y"], attributes)], feeds, contents | {"w": rounded(w).astype(np.float32)}, "y"
    )
    want = in_double(short, {"x": rounded(feeds["x"])})
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)
    plain, ops = run(model, feeds, precision="bf16", features="avx2")
    assert ops["conv2d_short"] == 0
    np.testing.assert_allclose(plain, in_double(model, feeds), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dims, columns", PRODUCTS, ids=str)
def test_matrices_of_rounded_factors(dims, columns):
    rng = np.random.default_rng(columns)
    w = (rng.standard_normal((dims[-1], columns)) / np.sqrt(dims[-1])).astype(np.float32)
    feeds = {"x": rng.standard_normal(dims).astype(np.float32)}
    model = model_of([("MatMul", ["x", "w"], ["y"], {})], feeds, {"w": w}, "y")
    got, ops = run(model, feeds, precision="auto")
    factors = (rounded(feeds["x"]), rounded(w)) if ops["matmul_short"] else (feeds["x"].astype(np.float64), w)
    assert ops["matmul_short"] or np.prod(dims) < 100
    np.testing.assert_allclose(got, np.matmul(*factors), rtol=2e-5, atol=2e-5)


def test_sizes_that_calls_decide(tmp_path):
    """Rows of a product may be open; a convolution whose pictures are stays f32, as its kernels are for known sizes."""
    rng = np.random.default_rng(3)
    w, v = (
        (rng.standard_normal((192, 96)) / 14).astype(np.float32),
        (rng.standard_normal((64, 64, 1, 1)) / 8).astype(np.float32),
    )
    feeds = {
        "x": rng.standard_normal((50, 192)).astype(np.float32),
        "p": rng.standard_normal((1, 64, 9, 20)).astype(np.float32),
    }
    nodes = [("MatMul", ["x", "w"], ["y"], {}), ("Conv", ["p", "v"], ["z"], {})]
    model = model_of(nodes, feeds, {"w": w, "v": v}, "y")
    model.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, None))
    for value, at, name in ((model.graph.input[0], 0, "n"), (model.graph.input[1], 2, "h")):
        value.type.tensor_type.shape.dim[at].dim_param = name
    onnx.save(model, tmp_path / "open.onnx")
    opened = lightnet.load(str(tmp_path / "open.onnx"), dims={"n": "1..300", "h": "1..30"})
    executable = lightnet.compile(opened, precision="bf16", **PROCESSOR)
    ops = ops_of(executable)
    assert (ops["matmul_short"], ops["conv2d_short"], ops["conv2d"]) == (1, 0, 1)
    for rows in (1, 7, 50):
        got = executable({"x": feeds["x"][:rows], "p": feeds["p"]})
        np.testing.assert_allclose(got["y"], rounded(feeds["x"][:rows]) @ rounded(w), rtol=2e-5, atol=2e-5)
        want = np.einsum("nchw,oc->nohw", feeds["p"].astype(np.float64), v[:, :, 0, 0])
        np.testing.assert_allclose(got["z"], want, rtol=1e-4, atol=1e-4)


def residual(dtype: str, channels: int = 64) -> tuple[onnx.ModelProto, dict]:
    """Convolutions with a residual, a concatenation, a pool and a product of matrices, and attention behind; in f32, or, between
    casts, in bf16."""
    rng = np.random.default_rng(7)
    draw = lambda *shape: (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)  # noqa: E731
    c = channels
    contents = {"wa": draw(c, c, 1, 1), "wb": draw(2 * c, c, 1, 1), "wc": draw(c, 2 * c, 1, 1), "wd": draw(c, 2 * c, 1, 1),
                "wq": draw(64, 64), "wk": draw(64, 64), "b": draw(c, 1)[:, 0], "b2": draw(2 * c, 1)[:, 0],
                "scale": np.float32(0.125), "split": np.array([1, c, 64], np.int64)}  # fmt: skip
    nodes = [("Conv", ["x", "wa", "b"], ["c1"], {}), ("Relu", ["c1"], ["r1"], {}), ("Conv", ["r1", "wb", "b2"], ["c2"], {}),
             ("Relu", ["c2"], ["r2"], {}), ("Conv", ["r2", "wc", "b"], ["c3"], {}), ("Add", ["c3", "r1"], ["s"], {}),
             ("Concat", ["s", "r1"], ["j"], {"axis": 1}), ("Conv", ["j", "wd", "b"], ["c4"], {}),
             ("MaxPool", ["c4"], ["p"], {"kernel_shape": [2, 2], "strides": [2, 2]}), ("Reshape", ["p", "split"], ["f"], {}),
             ("MatMul", ["f", "wq"], ["q"], {}), ("MatMul", ["f", "wk"], ["k"], {}), ("Transpose", ["k"], ["t"], {"perm": [0, 2, 1]}),
             ("MatMul", ["q", "t"], ["scores"], {}), ("Mul", ["scores", "scale"], ["m"], {}), ("Softmax", ["m"], ["a"], {}),
             ("MatMul", ["a", "f"], ["y"], {})]  # fmt: skip
    feeds = {"x": rng.standard_normal((1, c, 16, 16)).astype(np.float32)}
    if dtype == "bf16":
        contents = {k: v.astype(BF16) if v.dtype == np.float32 else v for k, v in contents.items()}
        nodes = [("Cast", ["x"], ["xs"], {"to": TensorProto.BFLOAT16}),
                 *((op, [{"x": "xs"}.get(n, n) for n in ins], [{"y": "ys"}.get(n, n) for n in outs], a) for op, ins, outs, a in nodes),
                 ("Cast", ["ys"], ["y"], {"to": TensorProto.FLOAT})]  # fmt: skip
    return model_of(nodes, feeds, contents, "y"), feeds


def test_a_network_is_rounded_where_it_is_multiplied():
    """All products are short, the residual and what is joined are read as they were rounded, and no pass over a map is there for
    a rounding alone."""
    model, feeds = residual("f32")
    want = in_double(model, feeds)
    got, ops = run(model, feeds, precision="bf16")
    assert (ops["conv2d_short"], ops["matmul_short"], ops["conv2d"], ops["matmul"]) == (4, 4, 0, 0)
    error = np.abs(got - want).max() / np.abs(want).max()
    assert UNIT / 64 < error < 6 * UNIT
    exact, ops = run(model, feeds, precision="bf16", exact=True)
    assert ops["conv2d_short"] == ops["matmul_short"] == 0
    np.testing.assert_allclose(exact, want, rtol=1e-4, atol=1e-4)


def test_a_network_of_bf16_keeps_its_sums():
    """From a file: as near to the same network in double as ONNX's reference is, which rounds after each op."""
    model, feeds = residual("bf16")
    got, ops = run(model, feeds)
    assert (ops["conv2d_short"], ops["matmul_short"]) == (4, 4)
    plain, _ = residual("f32")
    for tensor in plain.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype == np.float32:
            tensor.CopyFrom(numpy_helper.from_array(array.astype(BF16).astype(np.float32), tensor.name))
    want = in_double(plain, feeds)
    assert np.abs(got - want).max() < 12 * UNIT * np.abs(want).max()  # of twelve ops in a row


def test_what_is_said():
    model, _ = residual("f32")
    said = remarks_of(
        lightnet.loads(model.SerializeToString(), ".onnx"), wanted=["cost"], precision="bf16", **PROCESSOR
    )
    texts = [r.text for r in said if r.pass_name == "short-products"]
    assert len(texts) == 6 and all(" computes in bf16: in f32 " in text for text in texts)


def test_where_there_is_no_auto():
    with pytest.raises(
        LightNetError, match=r"target 'none' has no precision 'auto'; there are: f32, f16, bf16 .* of target cpu"
    ):
        lightnet.compile(lightnet.loads(residual("f32")[0].SerializeToString(), ".onnx"), "none", precision="auto")
