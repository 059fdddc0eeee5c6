"""Types that models store in (integers of 2 and 4 bits, floats of 4 and 8): decoded as ml_dtypes decodes them, cast as ONNX's reference casts, and as the
weights of quantised layers against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

import lightnet
from lightnet.diagnostics import LightNetError
from lightnet.frontends.onnx.storage import STORAGE

onnx = pytest.importorskip("onnx")
ml_dtypes = pytest.importorskip("ml_dtypes")
from onnx import TensorProto, helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

RNG = np.random.default_rng(4)
NUMPY = {"FLOAT8E4M3FN": "float8_e4m3fn", "FLOAT8E4M3FNUZ": "float8_e4m3fnuz", "FLOAT8E5M2": "float8_e5m2", "FLOAT8E5M2FNUZ": "float8_e5m2fnuz",
         "FLOAT8E8M0": "float8_e8m0fnu", "FLOAT4E2M1": "float4_e2m1fn", "INT4": "int4", "UINT4": "uint4", "INT2": "int2", "UINT2": "uint2"}  # fmt: skip
FLOATS = [n for n in STORAGE if n.startswith("FLOAT") and n != "FLOAT8E8M0"]
INTEGERS = [n for n in STORAGE if "INT" in n]


def model(nodes: list, inputs: dict, tensors: list = (), outputs: tuple = ("y",)) -> bytes:
    infos = [
        helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in inputs.items()
    ]
    graph = helper.make_graph(
        nodes, "g", infos, [helper.make_empty_tensor_value_info(o) for o in outputs], list(tensors)
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=11).SerializeToString()


@pytest.mark.parametrize("name", STORAGE)
def test_every_pattern_of_bits(name: str) -> None:
    codes = np.arange(1 << STORAGE[name].bits, dtype=np.uint8)
    want = codes.view(getattr(ml_dtypes, NUMPY[name])).astype(np.float32)
    np.testing.assert_array_equal(STORAGE[name].values().astype(np.float32), want)


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize(
    "name", [n if n in ("INT4", "FLOAT8E5M2") else pytest.param(n, marks=pytest.mark.slow) for n in STORAGE]
)
def test_initializers(name: str, raw: bool) -> None:
    """Packed in bytes or in int32, of a number of elements that leaves bits over; moved, then cast."""
    bits, count = STORAGE[name].bits, 15
    codes = RNG.integers(0, 1 << bits, count).astype(np.uint8)
    each = 8 // bits
    padded = np.concatenate([codes, np.zeros(-count % each, np.uint8)]).reshape(-1, each)
    packed = np.bitwise_or.reduce(padded << np.arange(0, 8, bits, dtype=np.uint8), axis=1).astype(np.uint8)
    tensor = TensorProto(name="w", dims=[3, 5], data_type=getattr(TensorProto, name))
    if raw:
        tensor.raw_data = packed.tobytes()
    else:
        tensor.int32_data.extend(packed.tolist())
    nodes = [helper.make_node("Transpose", ["w"], ["t"]), helper.make_node("Cast", ["t"], ["c"], to=TensorProto.FLOAT),
             helper.make_node("Add", ["c", "x"], ["y"])]  # fmt: skip
    x = np.zeros((5, 3), np.float32)
    got = lightnet.compile(model(nodes, {"x": x}, [tensor]))({"x": x})["y"]
    np.testing.assert_array_equal(got, codes.view(getattr(ml_dtypes, NUMPY[name])).astype(np.float32).reshape(3, 5).T)


@pytest.mark.parametrize(
    "name", [n if n == "FLOAT8E4M3FN" else pytest.param(n, marks=pytest.mark.slow) for n in FLOATS]
)
def test_casts_to_floats(name: str) -> None:
    """Halves between neighbours, denormals, what is too large, infinities, NaN, zeros of both signs."""
    values = np.unique(STORAGE[name].values()[np.isfinite(STORAGE[name].values())]).astype(np.float64)
    near = np.concatenate(
        [
            values,
            (values[1:] + values[:-1]) / 2,
            values * (1 + 2.0**-20),
            [0.0, -0.0, 1e9, -1e9, np.inf, -np.inf, np.nan, 1e-30],
        ]
    )
    x = np.concatenate([near, RNG.standard_normal(300) * values.max() / 3]).astype(np.float32)
    for saturate in (1, 0) if name.startswith("FLOAT8") else (1,):
        more = {"saturate": saturate} if name.startswith("FLOAT8") else {}
        nodes = [
            helper.make_node("Cast", ["x"], ["s"], to=getattr(TensorProto, name), **more),
            helper.make_node("Cast", ["s"], ["y"], to=TensorProto.FLOAT),
        ]
        got = lightnet.compile(model(nodes, {"x": x}))({"x": x})["y"]
        want = x.astype(getattr(ml_dtypes, NUMPY[name])).astype(np.float32)
        if saturate:  # as ONNX's table has it; the conversion of ml_dtypes does not saturate
            low, high = STORAGE[name].limits
            over = ~np.isnan(x) & ((np.abs(want) > high) | np.isnan(want) | np.isinf(want))
            want = np.where(over, np.where(x > 0, high, low), want).astype(np.float32)
            keep = ~np.isnan(x) | (name != "FLOAT4E2M1")
            got, want = got[keep], want[keep]
        np.testing.assert_array_equal(got, want, err_msg=f"saturate {saturate}")
        assert (np.signbit(got) == np.signbit(want))[~np.isnan(want)].all()


@pytest.mark.parametrize("name", INTEGERS)
def test_casts_to_integers(name: str) -> None:
    """An integer that does not fit loses its upper bits."""
    x = np.arange(-20, 40, dtype=np.int32)
    nodes = [
        helper.make_node("Cast", ["x"], ["s"], to=getattr(TensorProto, name)),
        helper.make_node("Cast", ["s"], ["y"], to=TensorProto.INT32),
    ]
    got = lightnet.compile(model(nodes, {"x": x}))({"x": x})["y"]
    np.testing.assert_array_equal(got, x.astype(getattr(ml_dtypes, NUMPY[name])).astype(np.int32))


@pytest.mark.parametrize(
    "name", [n if n == "UINT4" else pytest.param(n, marks=pytest.mark.slow) for n in (*INTEGERS, *FLOATS)]
)
def test_quantize_and_dequantize(name: str) -> None:
    """One scale, one for each row, one for each block; against ONNX's reference evaluator."""
    if name == "FLOAT4E2M1":
        x = RNG.choice(STORAGE[name].values(), (4, 8)).astype(
            np.float32
        )  # values of the type: the reference rounds others its own way
    else:
        x = (RNG.standard_normal((4, 8)) * STORAGE[name].limits[1]).astype(np.float32)
    code = getattr(TensorProto, name)
    forms = [([], {}), ([4], {"axis": 0}), ([4, 2], {"axis": 1, "block_size": 4})]
    nodes, tensors = [], []
    for k, (dims, more) in enumerate(forms):
        count = int(np.prod(dims))
        scale = np.ones(count) if name == "FLOAT4E2M1" else RNG.uniform(0.5, 2, count)
        zero = RNG.integers(0, int(STORAGE[name].limits[1]) + 1, count) if name in INTEGERS else np.zeros(count)
        tensors += [
            helper.make_tensor(f"s{k}", TensorProto.FLOAT, dims, scale.astype(np.float32)),
            helper.make_tensor(f"z{k}", code, dims, zero),
        ]
        nodes += [helper.make_node("QuantizeLinear", ["x", f"s{k}", f"z{k}"], [f"q{k}"], **more),
                  helper.make_node("DequantizeLinear", [f"q{k}", f"s{k}", f"z{k}"], [f"y{k}"], **more)]  # fmt: skip
    outputs = tuple(f"y{k}" for k in range(len(forms)))
    source = model(nodes, {"x": x}, tensors, outputs)
    got, want = lightnet.compile(source)({"x": x}), ReferenceEvaluator(source).run(None, {"x": x})
    for output, array in zip(outputs, want):
        np.testing.assert_allclose(got[output], array, rtol=1e-6, err_msg=output)


def test_a_layer_with_weights_of_four_bits() -> None:
    """Blocks along the input, as quantisers of language models write them."""
    runtime = pytest.importorskip("onnxruntime")
    x = RNG.standard_normal((3, 64)).astype(np.float32)
    for name in ("INT4", "UINT4"):
        low, high = STORAGE[name].limits
        tensors = [helper.make_tensor("w", getattr(TensorProto, name), [64, 8], RNG.integers(int(low), int(high) + 1, 512)),
                   helper.make_tensor("s", TensorProto.FLOAT, [2, 8], RNG.random(16).astype(np.float32)),
                   helper.make_tensor("z", getattr(TensorProto, name), [2, 8], RNG.integers(0, 4, 16))]  # fmt: skip
        nodes = [
            helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"], axis=0, block_size=32),
            helper.make_node("MatMul", ["x", "d"], ["y"]),
        ]
        proto = onnx.load_from_string(model(nodes, {"x": x}, tensors))
        proto.opset_import[0].version, proto.ir_version = 21, 10
        source = proto.SerializeToString()
        options = runtime.SessionOptions()
        options.graph_optimization_level = (
            runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
        )  # which would round x to 8 bits
        (want,) = runtime.InferenceSession(source, options, providers=["CPUExecutionProvider"]).run(None, {"x": x})
        np.testing.assert_allclose(lightnet.compile(source)({"x": x})["y"], want, rtol=1e-4, atol=1e-3)


def test_what_computes_in_a_storage_type_is_refused() -> None:
    tensor = helper.make_tensor("w", TensorProto.INT4, [4], [1, 2, 3, -4])
    x = np.zeros(4, np.float32)
    for nodes, message in (
        ([helper.make_node("Neg", ["w"], ["n"]), helper.make_node("Cast", ["n"], ["y"], to=1)], "an input is stored as INT4: cast or dequantise it first"),
        ([helper.make_node("Identity", ["w"], ["y"])], "type INT4 is not supported: cast it"),
        ([helper.make_node("Cast", ["x"], ["e"], to=TensorProto.FLOAT8E8M0), helper.make_node("Cast", ["e"], ["y"], to=1)], "a cast to FLOAT8E8M0"),
    ):  # fmt: skip
        with pytest.raises(LightNetError) as caught:
            lightnet.compile(model(nodes, {"x": x}, [tensor]))
        assert message in str(caught.value.notes)
