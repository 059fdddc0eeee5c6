"""`resize` and `upsample` with TL_LINEAR, on every target. Oracles: ONNX's reference evaluator, and ONNX Runtime where it has the case;
both compute Resize with mode `linear` and the coordinates `half_pixel`."""

import numpy as np
import pytest

import lightnet
from lightnet.diagnostics import LightNetError
from lightnet.frontends.resampling import taps
from lightnet.runtime.dtypes import BY_NAME

onnx = pytest.importorskip("onnx", reason="ONNX is the oracle")

#: Shapes of a source and of what it becomes: enlarged, shrunk, both; axes of 1; one to five axes.
SHAPES = [
    ((1, 3, 4, 5), (1, 3, 8, 10)), ((1, 2, 9, 7), (1, 2, 4, 3)), ((2, 3, 5, 6), (2, 3, 3, 13)), ((1, 1, 1, 1), (1, 1, 3, 4)),
    ((1, 2, 3, 4), (1, 2, 3, 9)), ((1, 1, 6, 6), (1, 1, 1, 1)), ((7,), (20,)), ((6, 5), (11, 2)), ((2, 3, 4), (4, 2, 9)),
    ((1, 1, 2, 3, 4), (1, 1, 5, 2, 7)), ((1, 17, 5, 4), (1, 17, 11, 9)),
]  # fmt: skip
TARGETS = {"none": {}, "cpu": {}, "cpu, plain": {"layout": "plain"}, "cuda as loops": {"on_cpu": True}}


def reference(x: np.ndarray, dims) -> np.ndarray:
    """What ONNX says."""
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(resize_model(x, dims)).run(None, {"x": x})[0]


def resize_model(x: np.ndarray, dims):
    from onnx import TensorProto, helper, numpy_helper

    node = helper.make_node(
        "Resize", ["x", "", "", "sizes"], ["y"], mode="linear", coordinate_transformation_mode="half_pixel"
    )
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    assert kind != TensorProto.UNDEFINED
    sizes = numpy_helper.from_array(np.array(dims, np.int64), "sizes")
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", kind, x.shape)], [helper.make_tensor_value_info("y", kind, dims)], [sizes]
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def network(x: np.ndarray, dims, op: str = "resize", scales=()) -> str:
    tl = next(d.tl for d in BY_NAME.values() if d.np == x.dtype)
    how = f"dims={list(dims)}" if op == "resize" else f"scales={list(scales)}"
    return (f"create(| dst=x | dtype={tl}, dims={list(x.shape)}, data=[0], ran=[0, 0], from_file=false);\n"
            f"{op}(src=x | dst=y | mode=TL_LINEAR, {how});\n")  # fmt: skip


def run(text: str, x: np.ndarray, target: str) -> np.ndarray:
    options = TARGETS[target]
    compiled = lightnet.compile(lightnet.loads(text, ".net"), target.split(",")[0].split()[0], **options)
    return compiled({"x": x})["y"]


def check_shapes(target: str, shapes) -> None:
    rng = np.random.default_rng(3)
    for old, new in shapes:
        x = rng.standard_normal(old).astype(np.float32)
        # A weight is rounded to f32 once; ONNX's is not.
        got = run(network(x, new), x, target)
        np.testing.assert_allclose(got, reference(x, new), rtol=1e-5, atol=1e-6, err_msg=f"{old} {new}")


@pytest.mark.parametrize("target", TARGETS)
def test_linear_is_that_of_onnx(target):
    check_shapes(target, SHAPES[2::4])


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_linear_of_all_shapes_is_that_of_onnx(target):
    check_shapes(target, SHAPES)


@pytest.mark.parametrize("dtype", ["float64", "uint8", "int8", "int32", "int64"])
@pytest.mark.parametrize("target", ["none", "cpu"])
def test_linear_of_other_types(dtype, target):
    """Integers are what truncation makes of the exact value, as ONNX has it; one that is nearly whole may be either of two."""
    rng = np.random.default_rng(5)
    old, new = (1, 2, 5, 4), (1, 2, 7, 9)
    low, high = (0, 255) if dtype == "uint8" else (-100, 100)
    x = rng.integers(low, high, old).astype(dtype) if dtype != "float64" else rng.standard_normal(old)
    got = run(network(x, new), x, target)
    exact = reference(x.astype(np.float64), new)
    assert got.dtype == x.dtype
    if dtype == "float64":
        np.testing.assert_allclose(got, exact, rtol=1e-12, atol=1e-12)
        return
    near = np.abs(exact - np.round(exact)) < 1e-9
    assert np.array_equal(got[~near], np.trunc(exact[~near]).astype(dtype)) and np.all(
        np.abs(got[near] - exact[near]) <= 1
    )
    flat = np.full(old, 77, dtype)
    assert np.array_equal(run(network(flat, new), flat, target), np.full(new, 77, dtype))  # what is even stays as it is


def test_linear_by_onnxruntime_and_its_export(tmp_path):
    ort = pytest.importorskip("onnxruntime", reason="ONNX Runtime is the second oracle")
    from lightnet_export.onnx.model import export

    rng = np.random.default_rng(7)
    for old, new in SHAPES[::2]:
        x = rng.standard_normal(old).astype(np.float32)
        model = lightnet.loads(network(x, new), ".net")
        export(model, str(tmp_path / "m.onnx"))
        session = ort.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
        got = session.run(None, {"x": x} if session.get_inputs() else {})[0]
        np.testing.assert_allclose(
            got, lightnet.compile(model, "none")({"x": x})["y"], rtol=1e-4, atol=1e-5, err_msg=f"{old} {new}"
        )
        back = lightnet.compile(lightnet.load(str(tmp_path / "m.onnx")), "none")
        np.testing.assert_allclose(next(iter(back({"x": x}).values())), got, rtol=1e-4, atol=1e-5)


def test_upsample_is_linear_by_the_dims_that_its_scales_give():
    x = np.random.default_rng(9).standard_normal((1, 2, 5, 7)).astype(np.float32)
    for target in ("none", "cpu"):
        got = run(network(x, (), "upsample", (1, 1, 1.5, 2)), x, target)
        np.testing.assert_allclose(got, reference(x, (1, 2, 7, 14)), rtol=1e-5, atol=1e-6)


def test_an_axis_that_keeps_its_length_is_left_alone():
    """And one of length 1 is repeated, so that infinities there do no harm; a resize to the same dims is the source, bit for bit."""
    x = np.array([[1.5, np.inf, -np.inf, np.nan]], np.float32)
    for target in ("none", "cpu"):
        assert np.array_equal(run(network(x, (3, 4)), x, target)[1], x[0], equal_nan=True)
        assert np.array_equal(run(network(x, (1, 4)), x, target), x, equal_nan=True)


def test_bools_have_no_linear_resize():
    with pytest.raises(LightNetError, match=r"resize.mode"):
        lightnet.loads(network(np.zeros((2, 2), np.bool_), (4, 4)), ".net")


def test_one_element_under_pytorch_half_pixel():
    """It stands at coordinate 0, as ONNX's text says and ONNX Runtime has it; ONNX's reference evaluator takes -0.5, which shows with cubic interpolation."""
    runtime = pytest.importorskip("onnxruntime")
    helper = onnx.helper
    x = np.random.default_rng(0).normal(size=(1, 1, 3, 4)).astype(np.float32)
    for kind, outside, scale in (("cubic", 0, 1 / 3), ("cubic", 1, 1 / 3), ("cubic", 0, 0.5), ("linear", 0, 1 / 3)):
        node = helper.make_node(
            "Resize",
            ["x", "", "s"],
            ["y"],
            mode=kind,
            coordinate_transformation_mode="pytorch_half_pixel",
            exclude_outside=outside,
        )
        scales = onnx.numpy_helper.from_array(np.array([1, 1, scale, 2], np.float32), "s")
        graph = helper.make_graph(
            [node],
            "g",
            [helper.make_tensor_value_info("x", 1, x.shape)],
            [helper.make_empty_tensor_value_info("y")],
            [scales],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
        (want,) = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(
            None, {"x": x}
        )
        np.testing.assert_allclose(lightnet.compile(model)({"x": x})["y"], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("target", ["none", "cpu"])
@pytest.mark.parametrize("coordinates", ["asymmetric", "half_pixel"])
@pytest.mark.parametrize("scale", [3, 7, 2.3])
def test_beyond_the_last_element_is_the_last_element(scale: float, coordinates: str, target: str) -> None:
    """To the bit, as an arg-reduction behind it sees, and where it is infinite."""
    helper = onnx.helper
    x = np.random.default_rng(1).normal(size=(1, 40, 5)).astype(np.float32)
    x[0, 0, [0, 4]] = np.inf, -np.inf
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], mode="linear", coordinate_transformation_mode=coordinates)
    scales = onnx.numpy_helper.from_array(np.array([1, 1, scale], np.float32), "s")
    inputs = [helper.make_tensor_value_info("x", 1, x.shape)]
    graph = helper.make_graph([node], "g", inputs, [helper.make_empty_tensor_value_info("y")], [scales])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    y = lightnet.compile(model, target)({"x": x})["y"]
    at = np.arange(y.shape[2]) / scale if coordinates == "asymmetric" else (np.arange(y.shape[2]) + 0.5) / scale - 0.5
    for beyond, last in ((at > 4.001, 4), (at < -0.001, 0)):
        assert (y[:, :, beyond] == x[:, :, [last]]).all() and (beyond.any() or last == 0)


def test_a_table_has_no_taps_that_count_nowhere() -> None:
    """Every second element of seven is one tap each, the last one too, whose second neighbour would be itself."""
    index, weight = taps(np.array([0.0, 2.0, 4.0, 6.0]), 7, 0.5, "linear")
    assert index.tolist() == [[0], [2], [4], [6]] and weight.tolist() == [[1.0]] * 4
    index, weight = taps(np.array([5.5, 6.0, 6.5]), 7, 2.0, "linear")
    assert index.tolist() == [[5, 6], [6, 6], [6, 6]] and weight.tolist() == [[0.5, 0.5]] * 3
