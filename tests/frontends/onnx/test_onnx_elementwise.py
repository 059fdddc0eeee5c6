"""ONNX's elementwise and quantised ops, through import and machine code, where ONNX's own suite (`tools/conformance.py`) has no
case (old opsets, unknown bounds, ONNX Runtime's ops): against ONNX's reference evaluator or ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from compare_onnxruntime import WIDE_SUMS
from onnx_microsoft import ROUNDED

import lightnet
from lightnet.diagnostics import LightNetError

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

MICROSOFT = "com.microsoft"
RNG = np.random.default_rng(7)


def model(op: str, inputs: dict[str, np.ndarray | None], outputs: int, opset: int, domain: str, constants: bool,
          attributes: dict) -> onnx.ModelProto:  # fmt: skip
    """One node in a model; its inputs are the graph's, but for those behind the first, where `constants` says so."""
    names = [name if value is not None else "" for name, value in inputs.items()]
    there = {k: v for k, v in inputs.items() if v is not None}
    fixed = list(there)[1:] if constants else []
    graph = helper.make_graph(
        [helper.make_node(op, names, [f"y{k}" for k in range(outputs)], domain=domain, **attributes)], "g",
        [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
         for k, v in there.items() if k not in fixed],
        [helper.make_empty_tensor_value_info(f"y{k}") for k in range(outputs)],
        [numpy_helper.from_array(there[k], k) for k in fixed],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", opset), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def run_node(
    op: str, inputs: dict, outputs: int = 1, opset: int = 21, domain: str = "", constants: bool = False, **attributes
):
    """The outputs of one node."""
    proto = model(op, inputs, outputs, opset, domain, constants, attributes)
    fed = {i.name: inputs[i.name] for i in proto.graph.input}
    got = lightnet.compile(proto.SerializeToString())(fed)
    return [got[f"y{k}"] for k in range(outputs)]


def floats(*dims: int) -> np.ndarray:
    return RNG.standard_normal(dims).astype(np.float32)


# -- what the suite leaves out ---------------------------------------------------------------------------------------


def test_before_opset_7_the_second_operand_stands_at_an_axis() -> None:
    a, b = floats(2, 3, 4, 5), floats(3, 4)
    (y,) = run_node("Add", {"a": a, "b": b}, opset=6, broadcast=1, axis=1)
    np.testing.assert_array_equal(y, a + b[:, :, None])
    with pytest.raises(LightNetError, match="is not repeated"):
        run_node("Add", {"a": a, "b": b}, opset=6, broadcast=1, axis=3)


def test_before_opset_7_a_slope_is_one_for_each_channel() -> None:
    x, slope = floats(2, 3, 4), floats(3)
    (y,) = run_node("PRelu", {"x": x, "slope": slope}, opset=6)
    np.testing.assert_array_equal(y, np.where(x < 0, x * slope[:, None], x))


def test_before_opset_11_the_bounds_of_clip_are_attributes() -> None:
    x = floats(5, 7)
    np.testing.assert_array_equal(run_node("Clip", {"x": x}, opset=6, min=-0.5, max=0.25)[0], np.clip(x, -0.5, 0.25))
    np.testing.assert_array_equal(run_node("Clip", {"x": x}, opset=10, max=0.25)[0], np.minimum(x, np.float32(0.25)))
    np.testing.assert_array_equal(run_node("Clip", {"x": x}, opset=6)[0], x)


@pytest.mark.parametrize("constants", [False, True])
def test_clip_keeps_nan_and_exact_bounds(constants: bool) -> None:
    x = np.array([np.nan, -np.inf, np.inf, 0.5], np.float32)
    low, high = np.float32(0).reshape(()), np.asarray(np.inf, np.float32)
    (y,) = run_node("Clip", {"x": x, "low": np.asarray(low), "high": high}, constants=constants)
    np.testing.assert_array_equal(y, np.array([np.nan, 0, np.inf, 0.5], np.float32))
    big = np.array([2**62 + 1, 2**62 - 1, -5], np.int64)  # doubles do not hold these
    bound = np.asarray(2**62, np.int64) - 1
    (y,) = run_node("Clip", {"x": big, "low": None, "high": np.asarray(bound)}, constants=constants)
    np.testing.assert_array_equal(y, np.minimum(big, bound))


@pytest.mark.parametrize("exponent", [1, 2, 3, 0.5, -1])
def test_small_powers(exponent: float) -> None:
    x = np.abs(floats(4, 5)) + np.float32(0.1)
    (y,) = run_node("Pow", {"x": x, "e": np.asarray(exponent, np.float32)}, constants=True)
    np.testing.assert_allclose(y, x.astype(np.float64) ** exponent, 1e-6)
    whole = np.array([[-3, 2], [0, 7]], np.int32)
    (y,) = run_node("Pow", {"x": whole, "e": np.asarray([2, 3], np.int64)}, constants=True)
    np.testing.assert_array_equal(y, whole ** np.array([2, 3], np.int32))


def test_dropout_of_old_opsets() -> None:
    x = floats(3, 4)
    np.testing.assert_array_equal(run_node("Dropout", {"x": x}, opset=7, ratio=0.5)[0], x)
    y, mask = run_node("Dropout", {"x": x}, outputs=2, opset=10)
    np.testing.assert_array_equal(y, x)
    assert mask.dtype == bool and mask.all()


def test_refusals() -> None:
    x = floats(2, 3)
    with pytest.raises(LightNetError, match="do not broadcast"):
        run_node("Add", {"a": x, "b": floats(2)})
    with pytest.raises(LightNetError, match="should have the same data type"):
        run_node("Add", {"a": x, "b": np.ones(3, np.int32)})
    with pytest.raises(LightNetError, match="not supported") as e:
        run_node("Cast", {"x": x}, to=TensorProto.COMPLEX64)
    assert any("COMPLEX64" in note for _, note in e.value.notes)
    with pytest.raises(LightNetError, match="scales or zero points"):
        run_node("DequantizeLinear", {"x": np.ones((2, 3), np.uint8), "scale": np.ones(2, np.float32)})


# -- quantised -------------------------------------------------------------------------------------------------------


def unsigned(*dims: int) -> np.ndarray:
    return RNG.integers(0, 256, dims).astype(np.uint8)


def signed(*dims: int) -> np.ndarray:
    return RNG.integers(-128, 128, dims).astype(np.int8)


def point(value: int, dtype: type = np.uint8) -> np.ndarray:
    return np.asarray(value, dtype)


def scale(value: float) -> np.ndarray:
    return np.asarray(value, np.float32)


@pytest.mark.parametrize("channels", [4, 200])
def test_sums_of_products_are_exact(channels: int) -> None:
    """Beyond 2^24, where f32 would not be."""
    x, w = unsigned(1, channels, 5, 5), unsigned(3, channels, 3, 3)
    x[:], w[0] = 255, 255
    (y,) = run_node("ConvInteger", {"x": x, "w": w, "xz": point(3), "wz": point(2)}, pads=[1, 1, 1, 1])
    padded = np.pad(x.astype(np.int64) - 3, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    want = np.einsum("ncyxij,ocij->noyx", windows, w.astype(np.int64) - 2)
    np.testing.assert_array_equal(y, want.astype(np.int32))
    a, b = unsigned(3, 9 * channels), signed(9 * channels, 4)
    (y,) = run_node("MatMulInteger", {"a": a, "b": b, "az": point(128), "bz": signed(4)}, constants=True)
    assert y.dtype == np.int32
    (y,) = run_node("MatMulInteger", {"a": a, "b": b}, constants=True)
    np.testing.assert_array_equal(y, a.astype(np.int32) @ b.astype(np.int32))


def test_a_block_that_does_not_divide_the_axis() -> None:
    x, s, z = signed(5, 3), np.abs(floats(3, 3)) + np.float32(0.1), signed(3, 3)
    (y,) = run_node("DequantizeLinear", {"x": x, "s": s, "z": z}, axis=0, block_size=2)
    index = np.arange(5) // 2
    np.testing.assert_allclose(y, (x.astype(np.float32) - z[index]) * s[index], 1e-6)


@pytest.mark.parametrize(("op", "inputs", "attributes"), ROUNDED, ids=[c[0] for c in ROUNDED])
def test_ops_of_onnx_runtime(op: str, inputs: dict, attributes: dict) -> None:
    """Integers may differ by 1 where a number lies between two of them."""
    runtime = pytest.importorskip("onnxruntime")
    constants = op != "QLinearConcat"
    proto = model(op, inputs, 1, 17, MICROSOFT, constants, attributes)
    fed = {i.name: inputs[i.name] for i in proto.graph.input}
    options = runtime.SessionOptions()
    options.add_session_config_entry(*WIDE_SUMS)
    session = runtime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    (want,) = session.run(None, fed)
    got = lightnet.compile(proto.SerializeToString())(fed)["y0"]
    assert got.dtype == want.dtype and got.shape == want.shape
    difference = np.abs(got.astype(np.float64) - want.astype(np.float64))
    if want.dtype == np.uint8:
        assert difference.max() <= 1 and (difference > 0).mean() < 0.1
    else:
        assert difference.max() <= 1e-5 * np.abs(want).max()


def test_qlinear_conv_against_onnx_runtime() -> None:
    runtime = pytest.importorskip("onnxruntime")
    inputs = {"x": unsigned(1, 8, 7, 7), "xs": scale(0.02), "xz": point(120), "w": signed(6, 8, 3, 3),
              "ws": np.abs(floats(6)) * np.float32(0.01) + np.float32(0.001), "wz": np.zeros(6, np.int8), "ys": scale(0.5),
              "yz": point(128), "b": RNG.integers(-9000, 9000, 6).astype(np.int32)}  # fmt: skip
    proto = model("QLinearConv", inputs, 1, 17, "", True, {"pads": [1, 1, 1, 1], "strides": [2, 2]})
    options = runtime.SessionOptions()
    options.add_session_config_entry(*WIDE_SUMS)
    session = runtime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    (want,) = session.run(None, {"x": inputs["x"]})
    got = lightnet.compile(proto.SerializeToString())({"x": inputs["x"]})["y0"]
    assert np.abs(got.astype(int) - want).max() <= 1 and (got != want).mean() < 0.02
