"""Quantised networks whose products become those of integers. The oracle is ONNX's reference evaluator."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pytest

import lightnet
from lightnet.diagnostics import LightNetError
from lightnet.ir.context import make_context
from lightnet.ir.passes import parse_pipeline, run_pipeline

onnx = pytest.importorskip("onnx")
reference = pytest.importorskip("onnx.reference")

TYPES = {"u8": np.uint8, "s8": np.int8}
INFO = onnx.helper.make_tensor_value_info


def model_of(nodes, feeds, contents, dims, dtype=onnx.TensorProto.FLOAT) -> bytes:
    """A model of nodes, with inputs (name -> array), initializers, and the output ``y``."""
    inputs = [INFO(n, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feeds.items()]
    weights = [onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in contents.items()]
    made = [onnx.helper.make_node(op, ins, outs, **attributes) for op, ins, outs, attributes in nodes]
    graph = onnx.helper.make_graph(made, "net", inputs, [INFO("y", dtype, dims)], weights)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 19)], ir_version=9)
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


def products(model: bytes, **options) -> Counter[str]:
    """How many ops of which name, and operand types of products of integers, are in the graph."""
    module = lightnet.load(onnx.load_from_string(model)).module
    run_pipeline(make_context(), module, parse_pipeline("@cpu:graph", options))
    found: Counter[str] = Counter()
    for op in module.walk():
        found[op.name] += 1
        if op.name.endswith("_integer"):
            found[" ".join(str(s.dtype) for s in op.operand_specs)] += 1
    return found


def both(model: bytes, feeds, **options) -> tuple[np.ndarray, np.ndarray]:
    """What we make of a model, and what the reference evaluator does."""
    (want,) = reference.ReferenceEvaluator(onnx.load_from_string(model)).run(None, feeds)
    got = lightnet.compile(model, **options)(**feeds)
    return np.asarray(got if isinstance(got, np.ndarray) else next(iter(got.values()))), want


def rounded(name: str, of: str, scale: float, zero, contents) -> list:
    """Nodes that round a tensor to the type of a zero point, and read it back as `name`."""
    contents |= {f"{name}_s": np.float32(scale), f"{name}_z": zero}
    return [("QuantizeLinear", [of, f"{name}_s", f"{name}_z"], [f"{name}_q"], {}),
            ("DequantizeLinear", [f"{name}_q", f"{name}_s", f"{name}_z"], [name], {})]  # fmt: skip


def two_convolutions(
    x_zero, w_type: str, per_channel: bool, seed: int = 0
) -> tuple[bytes, dict[str, np.ndarray], float]:
    """Two convolutions between roundings, with a Relu, a pool, and a concatenation of unequal scales behind; the model, feeds
    and the last scale."""
    rng = np.random.default_rng(seed)
    contents: dict[str, np.ndarray] = {}
    nodes = rounded("x1", "x", 0.02, x_zero, contents)
    low, high = (0, 255) if w_type == "u8" else (-128, 127)
    for k, (name, dims) in enumerate((("a", (24, 16, 3, 3)), ("b", (16, 24, 1, 1)))):
        zero = TYPES[w_type](131 if w_type == "u8" else 0)
        axis = {"axis": 0} if per_channel else {}
        count = (dims[0],) if per_channel else ()
        contents |= {f"w{name}": rng.integers(low, high + 1, dims).astype(TYPES[w_type]),
                     f"w{name}_s": (rng.random(count) * 0.01 + 0.001).astype(np.float32),
                     f"w{name}_z": np.full(count, zero), f"bias{name}": rng.standard_normal(dims[0]).astype(np.float32)}  # fmt: skip
        nodes.append(("DequantizeLinear", [f"w{name}", f"w{name}_s", f"w{name}_z"], [f"f{name}"], axis))
        source = "x1" if k == 0 else "p"
        pads = {"pads": [1, 1, 1, 1]} if k == 0 else {}
        nodes.append(("Conv", [source, f"f{name}", f"bias{name}"], [f"c{name}"], pads))
        if k == 0:
            nodes += [("Relu", ["ca"], ["ra"], {}), *rounded("qa", "ra", 0.05, np.uint8(0), contents),
                      ("MaxPool", ["qa"], ["p0"], {"kernel_shape": [2, 2], "strides": [2, 2]}),
                      *rounded("p", "p0", 0.05, np.uint8(0), contents)]  # fmt: skip
    nodes += [*rounded("qb", "cb", 0.1, TYPES["s8"](-3), contents), *rounded("qc", "p", 0.07, np.uint8(7), contents),
              ("Concat", ["qb", "qc"], ["d"], {"axis": 1}), *rounded("y", "d", 0.11, np.uint8(90), contents)]  # fmt: skip
    feeds = {"x": rng.standard_normal((1, 16, 9, 11)).astype(np.float32)}
    feeds["x"].flat[:4] = 1e4, -1e4, 0.01, -0.01  # beyond the type, and ties
    return model_of(nodes, feeds, contents, (1, 40, 4, 5)), feeds, 0.11


@pytest.mark.parametrize("zero, w_type, per_channel", [
    (np.uint8(0), "s8", True), (np.uint8(128), "s8", True), (np.uint8(255), "s8", False), (np.int8(0), "s8", True),
    (np.int8(-128), "u8", False), (np.uint8(37), "u8", True), (np.int8(127), "s8", False),
])  # fmt: skip
def test_convolutions_between_roundings(zero, w_type, per_channel):
    """Every combination of types and zero points: two of integers, which are right to one step, and nearly all of them exactly."""
    model, feeds, step = two_convolutions(zero, w_type, per_channel)
    found = products(model, features="avx2")
    assert (found["ln.conv2d_integer"], found["ln.conv2d"], found["i16 i16"]) == (2, 0, 2)
    assert found["ln.maxpool2d"] == 1 and found["ln.div"] == 0
    got, want = both(model, feeds)
    assert np.abs(got - want).max() <= step * 1.001
    assert (np.abs(got - want) > 1e-5).mean() < 0.01
    exact, want = both(model, feeds, exact=True)
    assert products(model, exact=True)["ln.conv2d_integer"] == 0
    assert np.abs(exact - want).max() <= step * 1.001


def test_bytes_where_a_processor_multiplies_them():
    """Of 0 to 255 by -128 to 127; the first convolution here reads numbers below 0, less the lowest of which they are bytes."""
    for zero, padded in ((np.uint8(0), 0), (np.uint8(128), 1), (np.int8(0), 1), (np.int8(-128), 0)):
        model, _, _ = two_convolutions(zero, "s8", True)
        found = products(model, features="avx512vnni")
        assert (found["ui8 i8"], found["ln.pad"]) == (2, padded)
        assert products(model, features="avx512")["i16 i16"] == 2
    model, _, _ = two_convolutions(np.uint8(128), "u8", True)
    assert products(model, features="avx512vnni")["i16 i16"] == 2


@pytest.mark.parametrize("features, integers", [("avx2", 0), ("avx512", 0), ("avx512vnni", 1), ("neon", 0)])
def test_winograd_of_floats_where_that_is_faster(features: str, integers: int):
    """A large 3x3 convolution between roundings stays one of floats, unless the processor multiplies bytes."""
    rng = np.random.default_rng(5)
    contents = {"w": rng.integers(-128, 128, (64, 64, 3, 3)).astype(np.int8), "s": np.float32(0.01), "z": np.int8(0),
                "b": rng.standard_normal(64).astype(np.float32)}  # fmt: skip
    nodes = [*rounded("x1", "x", 0.02, np.uint8(0), contents), ("DequantizeLinear", ["w", "s", "z"], ["f"], {}),
             ("Conv", ["x1", "f", "b"], ["c"], {"pads": [1] * 4}), *rounded("y", "c", 0.3, np.uint8(77), contents)]  # fmt: skip
    feeds = {"x": rng.standard_normal((1, 64, 56, 56)).astype(np.float32) * 3}
    model = model_of(nodes, feeds, contents, (1, 64, 56, 56))
    found = products(model, features=features)
    assert (found["ln.conv2d_integer"], found["ln.conv2d"]) == (integers, 1 - integers)
    got, want = both(model, feeds)
    assert np.abs(got - want).max() <= 0.3 * 1.001
    assert (np.abs(got - want) > 1e-5).mean() < 0.01
    of_integers = model_of([("ConvInteger", ["x", "w"], ["y"], {"pads": [1] * 4})], {"x": np.zeros((1, 64, 56, 56), np.uint8)},
                           contents, (1, 64, 56, 56), onnx.TensorProto.INT32)  # fmt: skip
    assert products(of_integers, features=features)["ln.conv2d_integer"] == 1


@pytest.mark.parametrize("read", ["INT32", "FLOAT"])
def test_sums_beyond_what_f32_holds_need_no_doubles(read: str):
    """A dynamic product of 1,024 columns: its sums are read as integers, and are the reference's bit for bit."""
    rng = np.random.default_rng(9)
    feeds = {"a": rng.integers(200, 256, (7, 1024)).astype(np.uint8)}
    b = rng.integers(100, 128, (1024, 40)).astype(np.int8)
    nodes = [
        ("MatMulInteger", ["a", "b", "za", "zb"], ["p"], {}),
        ("Cast", ["p"], ["y"], {"to": getattr(onnx.TensorProto, read)}),
    ]
    model = model_of(
        nodes, feeds, {"b": b, "za": np.uint8(11), "zb": np.int8(0)}, (7, 40), getattr(onnx.TensorProto, read)
    )
    module = lightnet.load(onnx.load_from_string(model)).module
    run_pipeline(make_context(), module, parse_pipeline("@cpu:graph", {"features": "avx2"}))
    (product,) = (op for op in module.walk() if op.name == "ln.matmul_integer")
    assert not any(
        u.operation.name == "ln.cast" and "f64" in str(u.operation.results[0].type) for u in product.results[0].uses
    )
    got, want = both(model, feeds)
    assert np.abs(want).max() > 1 << 24
    np.testing.assert_array_equal(got, want)


def test_what_stays_a_product_of_floats():
    """Few channels, maps that stay plain, and a convolution whose factors nothing says to be whole."""
    model, feeds, _ = two_convolutions(np.uint8(0), "s8", True)
    assert products(model, layout="plain")["ln.conv2d"] == 2
    contents = {"w": np.ones((8, 16, 1, 1), np.float32)}
    nodes = [*rounded("x1", "x", 0.02, np.uint8(3), contents), ("Conv", ["x1", "w"], ["y"], {})]
    assert products(model_of(nodes, feeds, contents, (1, 8, 9, 11)))["ln.conv2d_integer"] == 0
    contents = {"w": np.ones((8, 4, 1, 1), np.int8), "s": np.float32(0.1), "z": np.int8(0)}
    nodes = [*rounded("x1", "x", 0.02, np.uint8(3), contents), ("DequantizeLinear", ["w", "s", "z"], ["f"], {}),
             ("Conv", ["x1", "f"], ["y"], {"group": 4})]  # fmt: skip
    assert products(model_of(nodes, feeds, contents, (1, 8, 9, 11)))["ln.conv2d_integer"] == 0


@pytest.mark.parametrize("a, b", product(TYPES, TYPES))
@pytest.mark.parametrize(
    "options", [{}, {"exact": True}, {"features": "avx512vnni"}, {"features": "avx2", "exact": True}], ids=str
)
@pytest.mark.parametrize("fed", [False, True])
def test_explicit_integers(a: str, b: str, fed: bool, options):
    """MatMulInteger and ConvInteger are those of the reference bit for bit, at the ends of their types, also with a zero point that
    a call decides: a product of bytes has it behind its sums, where nothing is padded with it."""
    rng = np.random.default_rng(3)

    def array(kind: str, *dims: int) -> np.ndarray:
        info = np.iinfo(TYPES[kind])
        made = rng.integers(info.min, info.max + 1, dims)
        made.flat[: made.size // 3] = rng.choice([info.min, info.max], made.size // 3)
        return made.astype(TYPES[kind])

    zero = {"za": np.asarray(TYPES[a](11))}
    zeros, more = {"zb": TYPES[b](0)} | ({} if fed else zero), zero if fed else {}
    feeds = {"a": array(a, 3, 5, 40), **more}
    bytes_ = options.get("features") == "avx512vnni" and b == "s8" and (a == "u8" or not fed)
    model = model_of([("MatMulInteger", ["a", "b", "za", "zb"], ["y"], {})], feeds, {"b": array(b, 40, 33), **zeros}, (3, 5, 33),
                     onnx.TensorProto.INT32)  # fmt: skip
    found = products(model, **options)
    assert found["ln.matmul_integer"] == 1 and bytes_ <= found["ui8 i8"]
    got, want = both(model, feeds, **options)
    np.testing.assert_array_equal(got, want)
    feeds = {"a": array(a, 1, 16, 7, 6), **more}
    nodes = [("ConvInteger", ["a", "b", "za", "zb"], ["y"], {"pads": [1, 1, 1, 1]})]
    model = model_of(nodes, feeds, {"b": array(b, 20, 16, 3, 3), **zeros}, (1, 20, 7, 6), onnx.TensorProto.INT32)
    found = products(model, **options)
    assert found["ln.conv2d_integer"] == 1 and (bytes_ and not fed) <= found["ui8 i8"]
    got, want = both(model, feeds, **options)
    np.testing.assert_array_equal(got, want)


def test_a_matrix_with_a_scale_for_each_column():
    """MatMul and Gemm (its matrix turned over) between roundings."""
    rng = np.random.default_rng(5)
    contents = {"w": rng.integers(-127, 128, (64, 48)).astype(np.int8), "ws": (rng.random(48) * 0.01).astype(np.float32),
                "wz": np.zeros(48, np.int8), "v": rng.integers(-127, 128, (32, 48)).astype(np.int8),
                "vs": (rng.random(32) * 0.01).astype(np.float32), "vz": np.zeros(32, np.int8),
                "c": rng.standard_normal(32).astype(np.float32)}  # fmt: skip
    nodes = [*rounded("x1", "x", 0.03, np.uint8(120), contents),
             ("DequantizeLinear", ["w", "ws", "wz"], ["wf"], {"axis": 1}), ("MatMul", ["x1", "wf"], ["h"], {}),
             *rounded("h1", "h", 0.05, np.uint8(128), contents),
             ("DequantizeLinear", ["v", "vs", "vz"], ["vf"], {"axis": 0}), ("Gemm", ["h1", "vf", "c"], ["y"], {"transB": 1})]  # fmt: skip
    feeds = {"x": rng.standard_normal((9, 64)).astype(np.float32)}
    model = model_of(nodes, feeds, contents, (9, 32))
    found = products(model, features="avx2")
    assert (found["ln.matmul_integer"], found["ln.matmul"]) == (2, 0)
    got, want = both(model, feeds)
    assert (
        np.abs(got - want).max() <= 0.05 * 1.3 * 2
    )  # a step of the tensor in between, by a column of the second matrix


@pytest.mark.parametrize(
    "options", [{"precision": "f16"}, {"precision": "bf16"}, {"layout": "plain"}, {"threads": 2}], ids=str
)
def test_with_other_options(options):
    """What is rounded is not rounded before, in a shorter type."""
    model, feeds, step = two_convolutions(np.uint8(3), "s8", True)
    got, want = both(model, feeds, **options)
    assert np.abs(got - want).max() <= step * 1.001 + np.abs(want).max() * (0.01 if "precision" in options else 0)


def test_a_factor_that_comes_from_outside():
    """An argument of a body, and a matrix of rows whose number a call decides."""
    rng = np.random.default_rng(0)
    w = rng.integers(-128, 128, (8, 6)).astype(np.int8)
    step = onnx.helper.make_node("MatMulInteger", ["x", "w"], ["y"])
    u8, i32 = onnx.TensorProto.UINT8, onnx.TensorProto.INT32
    body = onnx.helper.make_graph([step], "body", [INFO("x", u8, [2, 8])], [INFO("y", i32, [2, 6])])
    scan = onnx.helper.make_node("Scan", ["a"], ["b"], num_scan_inputs=1, body=body)
    weights = [onnx.numpy_helper.from_array(w, "w")]

    def made(node, name: str, dims, out: str, made_dims):
        graph = onnx.helper.make_graph([node], "net", [INFO(name, u8, dims)], [INFO(out, i32, made_dims)], weights)
        return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 19)], ir_version=9)

    x = rng.integers(0, 256, (3, 2, 8)).astype(np.uint8)
    (got,) = lightnet.compile(made(scan, "a", [3, 2, 8], "b", [3, 2, 6]).SerializeToString())(a=x).values()
    np.testing.assert_array_equal(got, x.astype(int) @ w.astype(int))
    rows = lightnet.compile(lightnet.load(made(step, "x", ["n", 8], "y", ["n", 6]), dims={"n": (1, 300)}))
    for n in (1, 5, 70, 300):
        x = rng.integers(0, 256, (n, 8)).astype(np.uint8)
        (got,) = rows(x=x).values()
        np.testing.assert_array_equal(got, x.astype(int) @ w.astype(int))


def test_constants_cannot_be_fed():
    """A scale is the network's: a pass has read it."""
    model, feeds, _ = two_convolutions(np.uint8(0), "s8", True)
    made = lightnet.compile(model)
    with pytest.raises(LightNetError, match="x1_s"):
        made(**feeds, x1_s=np.float32(2))


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize(
    "x_scale, w_scale, fed",
    [(1e25, 1e25, 0), (1e-22, 1e-22, 1), (1e-9, 1e-34, 1), (1e20, 1e-30, 1), (1.0, 1e-37, 1), (1e-38, 1e3, 1)],
)
def test_scales_whose_product_is_no_float(x_scale: float, w_scale: float, fed: float, per_channel: bool):
    """A sum times two scales is what the sum of scaled products is, where one scale times the other is infinite or has few bits."""
    rng = np.random.default_rng(0)
    contents = {"w": rng.integers(-127, 128, (16, 16, 3, 3), np.int8), "w_z": np.zeros((16,) * per_channel, np.int8),
                "w_s": np.full((16,) * per_channel, w_scale, np.float32)}  # fmt: skip
    nodes = [*rounded("d", "x", x_scale, np.uint8(128), contents),
             ("DequantizeLinear", ["w", "w_s", "w_z"], ["f"], {"axis": 0} if per_channel else {}),
             ("Conv", ["d", "f"], ["y"], {"pads": [1] * 4})]  # fmt: skip
    feeds = {"x": (rng.uniform(-100, 100, (1, 16, 6, 6)) * x_scale * fed).astype(np.float32)}
    model = model_of(nodes, feeds, contents, (1, 16, 6, 6))
    assert products(model)["ln.conv2d_integer"] == 1
    got, want = both(model, feeds)
    assert np.isfinite(got).all()
    assert np.abs(got.astype(np.float64) - want).max() <= max(2e-5 * np.abs(want).max(), 1e-44)


@pytest.mark.parametrize("zero", [np.uint8(0), np.uint8(128), np.int8(0), np.int8(-20), np.int8(127)])
def test_nan_is_rounded_as_it_is_cast(zero):
    """NaN becomes the 0 of an integer type, at a pixel and wherever it is read, with and without products of integers."""
    rng = np.random.default_rng(0)
    contents = {"w": rng.integers(-127, 128, (16, 16, 1, 1), np.int8), "w_s": np.float32(0.01)}
    nodes = [*rounded("d", "x", 0.02, zero, contents), ("DequantizeLinear", ["w", "w_s"], ["v"], {}),
             ("Conv", ["d", "v"], ["y"], {})]  # fmt: skip
    x = rng.standard_normal((1, 16, 4, 4)).astype(np.float32)
    model = model_of(nodes, {"x": x}, contents, (1, 16, 4, 4))
    assert products(model)["ln.conv2d_integer"] == 1
    number = np.float32(0.02) * -np.float32(int(zero))  # what the 0 of the type stands for
    filled = x.copy()
    x[0, :, 1, 2:], filled[0, :, 1, 2:] = np.nan, number
    (want,) = reference.ReferenceEvaluator(onnx.load_from_string(model)).run(None, {"x": filled})
    for options in ({}, {"exact": True}, {"layout": "plain"}):
        np.testing.assert_allclose(lightnet.compile(model, **options)(x=x)["y"], want, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("exact", [False, True])
def test_a_bias_is_added_to_sums_of_integers(exact: bool) -> None:
    """Sums beyond 2^24, which f32 does not hold: without doubles between, and by a kernel of tiles."""
    rng = np.random.default_rng(7)
    feeds = {"x": rng.integers(200, 256, (1, 128, 6, 5)).astype(np.uint8)}
    contents = {
        "x_s": np.float32(0.02), "x_z": np.uint8(3), "w": rng.integers(90, 128, (24, 128, 3, 3)).astype(np.int8),
        "w_s": np.float32(0.004), "w_z": np.int8(0), "y_s": np.float32(30.0), "y_z": np.uint8(9),
        "bias": rng.integers(-(2**25), 2**25, 24).astype(np.int32),
    }  # fmt: skip
    names = ["x", "x_s", "x_z", "w", "w_s", "w_z", "y_s", "y_z", "bias"]
    nodes = [("QLinearConv", names, ["y"], {"pads": [1, 1, 1, 1]})]
    model = model_of(nodes, feeds, contents, (1, 24, 6, 5), onnx.TensorProto.UINT8)
    got, want = both(model, feeds, exact=exact, threads=1)
    assert np.ptp(want) > 20 and (got == want).all()
    module = lightnet.load(onnx.load_from_string(model)).run("@cpu:kernels").module
    assert "1x24x6x5xf64" not in str(module) and "conv2d_integer" in str(module) and 'alg = "dot"' in str(module)


def test_a_residual_is_read_as_bytes_where_it_is_added():
    """What a convolution of integers and an addition both read is stored once, in bytes, and widened behind the sums."""
    rng = np.random.default_rng(2)
    contents = {name: rng.integers(-128, 128, (32, 32, 1, 1)).astype(np.int8) for name in ("wa", "wb")}
    contents |= {"s": np.float32(0.002), "z": np.int8(0)}
    nodes = [*rounded("x1", "x", 0.02, np.uint8(0), contents)]
    for name, source in (("a", "x1"), ("b", "a1")):
        nodes += [("DequantizeLinear", [f"w{name}", "s", "z"], [f"f{name}"], {}),
                  ("Conv", [source, f"f{name}"], [f"c{name}"], {})]  # fmt: skip
        if name == "a":
            nodes += [("Relu", ["ca"], ["ra"], {}), *rounded("a1", "ra", 0.05, np.uint8(0), contents)]
    nodes += [("Add", ["cb", "a1"], ["d"], {}), *rounded("y", "d", 0.3, np.uint8(100), contents)]
    feeds = {"x": rng.standard_normal((1, 32, 12, 14)).astype(np.float32)}
    model = model_of(nodes, feeds, contents, (1, 32, 12, 14))
    for features in ("avx512vnni", "avx2"):
        module = lightnet.load(onnx.load_from_string(model)).module
        run_pipeline(make_context(), module, parse_pipeline("@cpu:kernels", {"features": features}))
        bodies = [[o.name for o in op.body.walk()] for op in module.walk() if op.name == "cpu.kernel"]
        assert any({"ln.conv2d_integer", "ln.add", "ln.round_even"} <= set(body) for body in bodies)
        assert not any(body.count("ln.cast") and len(body) <= 3 for body in bodies)
        got, want = both(model, feeds, features=features)
        assert np.abs(got - want).max() <= 0.3 * 1.001 and (np.abs(got - want) > 1e-5).mean() < 0.01
