"""Scales and zero points, against float64 NumPy that tries every range, and ONNX's reference evaluator."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from lightnet.diagnostics import LightNetError
from lightnet_quantize.histograms import Histogram
from lightnet_quantize.options import QuantizeOptions
from lightnet_quantize.ranges import (
    LEAST_SCALE,
    QuantParams,
    activation_params,
    params_of,
    quantized_bias,
    room_for_bias,
    weight_integers,
    weight_params,
)

RNG = np.random.default_rng(11)
VALUES = {
    "normal": RNG.normal(size=4000),
    "shifted": RNG.normal(size=4000) + 3,
    "relu": np.maximum(RNG.normal(size=4000), 0),
    "heavy": RNG.standard_t(2, size=4000),
    "uniform": RNG.uniform(-1, 3, size=4000),
    "negative": -RNG.exponential(size=4000),
}
VALUES = {name: values.astype(np.float32) for name, values in VALUES.items()}


def params(name: str, **options: object) -> QuantParams:
    histogram = Histogram()
    histogram.add(VALUES[name])
    return activation_params(histogram, QuantizeOptions(**options))  # type: ignore[arg-type]


def error(values: np.ndarray, found: QuantParams) -> float:
    """The mean square error of a tensor that is stored so, in float64."""
    scale, zero = float(found.scale), int(found.zero_point)
    wide = values.astype(np.float64)
    stored = np.clip(np.rint(wide / scale) + zero, found.integers.least, found.integers.most)
    return float(np.mean((scale * (stored - zero) - wide) ** 2))


@pytest.mark.parametrize("kind", ["u8", "s8"])
@pytest.mark.parametrize("symmetric", ["none", "both"])
@pytest.mark.parametrize("name", VALUES)
def test_minmax_is_the_extremes(name: str, symmetric: str, kind: str) -> None:
    """The extremes, and 0, are stored within half a step; nothing narrower would do."""
    found = params(name, activation_type=kind, symmetric=symmetric)
    low, high = min(VALUES[name].min(), 0), max(VALUES[name].max(), 0)
    width = 2 * max(-low, high) / 254 if symmetric == "both" else (high - low) / 255
    assert float(found.scale) == pytest.approx(width, rel=1e-6)
    middle = {"u8": 128, "s8": 0}[kind]
    assert symmetric == "none" or int(found.zero_point) == middle
    back = found.dequantized(found.quantized(VALUES[name]))
    assert np.abs(back - VALUES[name]).max() <= float(found.scale) * 0.501 + 1e-7
    assert found.dequantized(found.quantized(np.zeros(1, np.float32)))[0] == 0


@pytest.mark.parametrize("symmetric", ["none", "both"])
@pytest.mark.parametrize("name", VALUES)
def test_percentile_leaves_the_outliers_out(name: str, symmetric: str) -> None:
    """The range is NumPy's quantiles of all values, within a bin."""
    found = params(name, method="percentile", percentile=99.0, symmetric=symmetric)
    values = VALUES[name].astype(np.float64)
    histogram = Histogram()
    histogram.add(VALUES[name])
    if symmetric == "both":
        width = np.quantile(np.abs(values), 0.99, method="inverted_cdf") / 127
    else:
        high = np.quantile(values, 0.995, method="inverted_cdf")
        low = -np.quantile(-values, 0.995, method="inverted_cdf")  # as many are left out as above
        width = (max(high, 0) - min(low, 0)) / 255
    assert float(found.scale) == pytest.approx(width, abs=2.01 * histogram.width / 127)
    assert float(found.scale) <= float(params(name, symmetric=symmetric).scale) * (1 + 1e-6)


@pytest.mark.parametrize("symmetric", ["none", "both"])
@pytest.mark.parametrize("name", VALUES)
def test_mse_is_as_good_as_every_range(name: str, symmetric: str) -> None:
    """No range of a fine grid over both ends has an error that is 3 % less, and the extremes' is no less."""
    found = params(name, method="mse", symmetric=symmetric)
    values, kind = VALUES[name], found.integers
    low, high = min(float(values.min()), 0), max(float(values.max()), 0)
    shares = np.linspace(0.02, 1, 50)
    if symmetric == "both":
        grid = [(low * s, high * s) for s in shares]
    else:
        grid = [(low * a, high * b) for a in (shares if low else [1]) for b in (shares if high else [1])]
    best = min(error(values, params_of(np.array(a), np.array(b), kind, symmetric == "both")) for a, b in grid)
    mine = error(values, found)
    assert mine <= 1.03 * best
    assert mine <= error(values, params(name, symmetric=symmetric)) * 1.001


@pytest.mark.parametrize("method", ["minmax", "mse"])
@pytest.mark.parametrize("kind", ["s8", "u8"])
@pytest.mark.parametrize("symmetric", ["weights", "none"])
@pytest.mark.parametrize("reduce_range", [False, True])
@pytest.mark.parametrize("axis", [0, 1, None])
def test_weights_along_an_axis(axis: int | None, reduce_range: bool, symmetric: str, kind: str, method: str) -> None:
    """Each channel is what it would be alone, ONNX's reference evaluator reads the integers as we do, and no integer is
    outside of its bits."""
    weights = (RNG.normal(size=(3, 4, 2, 2)) * np.array([1, 5, 0.01]).reshape(3, 1, 1, 1)).astype(np.float32)
    options = QuantizeOptions(weight_method=method, weight_type=kind, symmetric=symmetric, reduce_range=reduce_range)
    found = weight_params(weights, axis, options)
    stored = found.quantized(weights)
    integers = weight_integers(options)
    assert stored.min() >= integers.least and stored.max() <= integers.most
    if symmetric == "weights":
        assert (found.zero_point == {"s8": 0, "u8": 64 if reduce_range else 128}[kind]).all()
    if reduce_range:
        assert integers.most - integers.least == 127
    for k in range(weights.shape[axis] if axis is not None else 0):
        alone = weight_params(np.take(weights, [k], axis), None, options)
        assert (alone.scale, alone.zero_point) == (found.scale[k], found.zero_point[k])
    model = _reader(stored, found.scale, found.zero_point, axis)
    (read,) = ReferenceEvaluator(model).run(None, {"q": stored})
    assert np.array_equal(read, found.dequantized(stored))
    if method == "minmax":
        step = found.scale if axis is None else np.max(found.scale)
        assert np.abs(read - weights).max() <= float(step) * (1.01 if symmetric == "none" else 0.501)


def _reader(stored: np.ndarray, scale: np.ndarray, zero: np.ndarray, axis: int | None) -> onnx.ModelProto:
    kind = helper.np_dtype_to_tensor_dtype(stored.dtype)
    node = helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], **({} if axis is None else {"axis": axis}))
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("q", kind, stored.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, stored.shape)],
        [onnx.numpy_helper.from_array(scale, "s"), onnx.numpy_helper.from_array(zero, "z")])  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def test_a_channel_of_zeros() -> None:
    """Its scale is the least of the others, so that its bias is fine; where all are zeros it is 1."""
    weights = np.array([[0, 0], [1, -2], [0.5, 0.25]], np.float32)
    found = weight_params(weights, 0, QuantizeOptions())
    assert found.scale[0] == found.scale[2] and found.scale[2] < found.scale[1]
    assert weight_params(np.zeros((2, 2), np.float32), 0, QuantizeOptions()).scale.tolist() == [1, 1]


def test_a_bias_fits() -> None:
    """Beside weights so small that a bias in their steps would leave int32, they get larger steps; elsewhere not."""
    weights = np.array([[1e-9, -1e-9], [1, -1]], np.float32)
    bias = np.array([3.0, -0.7], np.float32)
    plain = weight_params(weights, 0, QuantizeOptions())
    found = room_for_bias(plain, 0.01, bias)
    stored, scale = quantized_bias(bias, 0.01, found)
    assert found.scale[1] == plain.scale[1] and found.scale[0] > plain.scale[0]
    assert stored.dtype == np.int32 and np.allclose(
        stored * scale.astype(np.float64), bias, rtol=0, atol=scale.max() / 2
    )
    assert np.abs(stored.astype(np.int64)).max() < 2**31 - 1


def test_scales_are_normal_numbers() -> None:
    """Also of subnormal values, and also times an activation's scale."""
    found = params_of(np.array(0.0), np.array(1e-44), weight_integers(QuantizeOptions()), True)
    assert float(found.scale) == LEAST_SCALE
    tiny = weight_params(np.full((1, 2), 1e-30, np.float32), 0, QuantizeOptions())
    assert float(np.float32(1e-20) * room_for_bias(tiny, 1e-20, None).scale[0]) >= LEAST_SCALE


@pytest.mark.parametrize(
    "wrong",
    [{"method": "max"}, {"percentile": 50}, {"percentile": 100.5}, {"activation_type": "u4"}, {"symmetric": "some"},
     {"ops": ("Conv", "LSTM")}, {"samples": 0}, {"report_samples": -1}, {"weight_method": "percentile"}],
)  # fmt: skip
def test_wrong_choices(wrong: dict[str, object]) -> None:
    with pytest.raises(LightNetError):
        QuantizeOptions(**wrong)  # type: ignore[arg-type]
