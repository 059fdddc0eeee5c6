"""Types that models store in (integers of 2 and 4 bits, floats of 4 and 8): decoded as ml_dtypes decodes them, cast as ONNX's reference casts, and as the
weights of quantised layers against ONNX Runtime."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

import lightnet
from lightnet.backends.interpreter import graph
from lightnet.cli.lightnet import main
from lightnet.deploy import emit
from lightnet.diagnostics import LightNetError
from lightnet.frontends import json_ir
from lightnet.frontends.onnx.model import ELEM_TYPES, ONNX_TYPES
from lightnet.model import loads
from lightnet.runtime.dtypes import BY_NAME
from lightnet.runtime.stored import FORMATS
from lightnet_export.netlist import from_module
from lightnet_export.onnx.model import to_onnx

onnx = pytest.importorskip("onnx")
ml_dtypes = pytest.importorskip("ml_dtypes")
from onnx import TensorProto, helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

RNG = np.random.default_rng(4)
#: Formats by ONNX's names.
STORAGE = {ONNX_TYPES[ELEM_TYPES[name]]: form for name, form in FORMATS.items()}
NUMPY = {k: f.dtype.np.name for k, f in STORAGE.items()}
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


def test_constants_of_nodes() -> None:
    """The values of Constant and ConstantOfShape keep their type: a cast rounds to it."""
    x = np.array([1.1, 300, -7], np.float32)
    value = helper.make_tensor("v", TensorProto.INT4, [3], [1, -2, 3])
    one = helper.make_tensor("o", TensorProto.FLOAT8E4M3FN, [1], [1.5])
    tensors = [helper.make_tensor("d", TensorProto.INT64, [1], [3])]
    nodes = [helper.make_node("Constant", [], ["c"], value=value), helper.make_node("Cast", ["c"], ["a"], to=TensorProto.FLOAT),
             helper.make_node("ConstantOfShape", ["d"], ["s"], value=one), helper.make_node("CastLike", ["x", "s"], ["e"]),
             helper.make_node("Cast", ["e"], ["b"], to=TensorProto.FLOAT), helper.make_node("Add", ["a", "b"], ["y"])]  # fmt: skip
    got = lightnet.compile(model(nodes, {"x": x}, tensors), "none")({"x": x})["y"]
    np.testing.assert_array_equal(got, np.array([1, -2, 3]) + x.astype(ml_dtypes.float8_e4m3fn).astype(np.float32))


def test_what_computes_in_a_storage_type_is_refused() -> None:
    tensor = helper.make_tensor("w", TensorProto.INT4, [4], [1, 2, 3, -4])
    x = np.zeros(4, np.float32)
    nodes = [helper.make_node("Neg", ["w"], ["n"]), helper.make_node("Cast", ["n"], ["y"], to=1)]
    with pytest.raises(LightNetError) as caught:
        lightnet.compile(model(nodes, {"x": x}, [tensor]))
    assert "an input is stored as i4: cast or dequantise it first" in str(caught.value.notes)


# -- as inputs and outputs -------------------------------------------------------------------------------------------

DTYPES = [f.dtype for f in FORMATS.values()]
#: The type whose cases are not slow.
QUICK = ("f8E4M3FN",)


def each_dtype(*quick: str):
    return pytest.mark.parametrize(
        "dtype", [d if d.name in (quick or QUICK) else pytest.param(d, marks=pytest.mark.slow) for d in DTYPES], ids=str
    )


def every_element(dtype) -> np.ndarray:
    """All elements of a type, [16, n]."""
    return np.arange(1 << dtype.bits, dtype=np.uint8).view(dtype.np).reshape(-1, 4)


def boundary(dtype, shape) -> bytes:
    """x as it is, transposed and as numbers; numbers f in the type."""
    code = ELEM_TYPES[dtype.name]
    nodes = [helper.make_node("Identity", ["x"], ["same"]), helper.make_node("Transpose", ["x"], ["turned"]),
             helper.make_node("Cast", ["x"], ["numbers"], to=TensorProto.FLOAT), helper.make_node("Cast", ["f"], ["made"], to=code)]  # fmt: skip
    infos = [helper.make_tensor_value_info("x", code, shape), helper.make_tensor_value_info("f", 1, shape)]
    outputs = [helper.make_tensor_value_info("same", code, shape), helper.make_tensor_value_info("turned", code, shape[::-1]),
               helper.make_tensor_value_info("numbers", 1, shape), helper.make_tensor_value_info("made", code, shape)]  # fmt: skip
    graph = helper.make_graph(nodes, "g", infos, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=13).SerializeToString()


def boundary_feeds(dtype) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Feeds of `boundary`, and what ml_dtypes makes of them."""
    x = every_element(dtype)
    f = RNG.permutation(x.astype(np.float32).reshape(-1)).reshape(x.shape)
    f = np.where(np.isinf(f), np.float32(1), f)  # a cast saturates
    return {"x": x, "f": f}, {"same": x, "turned": x.T, "numbers": x.astype(np.float32), "made": f.astype(dtype.np)}


def agree(got: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> None:
    """The same values (and zeros of the same sign) in the same types; any NaN is as good as another."""
    assert list(got) == list(want)
    for name, array in want.items():
        assert got[name].dtype == array.dtype and got[name].shape == array.shape, name
        a, b = got[name].astype(np.float32), array.astype(np.float32)
        np.testing.assert_array_equal(a, b, err_msg=name)
        assert (np.signbit(a) == np.signbit(b))[~np.isnan(b)].all(), name


@each_dtype("f8E5M2", "f4E2M1FN", "i4")
def test_inputs_and_outputs(dtype) -> None:
    feeds, want = boundary_feeds(dtype)
    run = lightnet.compile(boundary(dtype, feeds["x"].shape))
    agree(run(feeds), want)
    agree(run({**feeds, "x": feeds["x"].view(np.uint8)}), want)  # bytes are the elements
    assert run.input_types()["x"][1] == dtype.np if hasattr(run, "input_types") else True
    low = np.full(feeds["x"].shape, FORMATS[dtype.name].limits[0])
    agree(run({**feeds, "x": low if FORMATS[dtype.name].is_float else low.astype(int)}),
          {**want, **{k: low.astype(np.float32).astype(dtype.np) for k in ("same",)}, "turned": low.T.astype(np.float32).astype(dtype.np),
           "numbers": low.astype(np.float32)})  # fmt: skip


@each_dtype()
@pytest.mark.parametrize("target", ["none", "cuda"])
def test_inputs_and_outputs_on_targets(dtype, target: str) -> None:
    feeds, want = boundary_feeds(dtype)
    options = {"emulate": True} if target == "cuda" else {}
    agree(lightnet.compile(boundary(dtype, feeds["x"].shape), target, **options)(feeds), want)


@each_dtype()
@pytest.mark.parametrize("form", ["json", "mlir", "planned mlir", "planned json", "onnx", "lnx"])
def test_every_form_keeps_the_types(dtype, form: str, tmp_path: Path) -> None:
    if form == "onnx" and dtype.name == "f4E2M1FN":
        pytest.skip("ONNX has no element of 4 bits in a byte of its own")
    feeds, want = boundary_feeds(dtype)
    source = load_from(boundary(dtype, feeds["x"].shape), tmp_path)
    if form == "lnx":
        lightnet.compile(source).save(tmp_path / "net.lnx")
        agree(lightnet.load_executable(tmp_path / "net.lnx")(feeds), want)
        return
    if form == "onnx":
        text, suffix = to_onnx(source).SerializeToString(), ".onnx"
    else:
        module = lightnet.compile(source).planned if "planned" in form else source.module
        text = json_ir.write(from_module(module)) if "json" in form else str(module)
        suffix = ".json" if "json" in form else ".mlir"
    back = loads(text, suffix, weights=None if form == "onnx" else source.weights)
    agree(graph.run(back.module, feeds, back.weights), want)


def load_from(source: bytes, folder: Path):
    (folder / "net.onnx").write_bytes(source)
    return lightnet.load(folder / "net.onnx")


@pytest.mark.parametrize(("array", "message"), [
    (np.full((64, 4), 1e9, np.float32), "values beyond its range"),
    (np.zeros((64, 4), ml_dtypes.float8_e5m2), "takes f8E4M3FN (float8_e4m3fn, or bytes as uint8), but gets float8_e5m2"),
    (np.zeros((64, 4), bool), "but gets bool"),
    (np.zeros((4, 64), ml_dtypes.float8_e4m3fn), "has shape [64, 4], but gets [4, 64]"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(array, message: str) -> None:
    run = lightnet.compile(boundary(BY_NAME["f8E4M3FN"], (64, 4)), "none")
    with pytest.raises(LightNetError) as caught:
        run({"x": array, "f": np.zeros((64, 4), np.float32)})
    assert message in str(caught.value)


@pytest.mark.parametrize("name", STORAGE)
def test_numbers_to_elements(name: str) -> None:
    """Without ml_dtypes, the nearest element; against its conversions where those saturate too."""
    form = STORAGE[name]
    if not form.is_float:
        x = np.arange(*form.limits).astype(np.float64)
        np.testing.assert_array_equal(form.encoded(x).astype(np.int32), x)
        np.testing.assert_array_equal(form.encoded(np.array([-1e3, 1e3, np.nan])).astype(int), [*form.limits, 0])
        return
    values = form.values()[np.isfinite(form.values())].astype(np.float64)
    near = np.sort(np.concatenate([values, (np.unique(values)[1:] + np.unique(values)[:-1]) / 2, values * 1.01]))
    near = near[(np.abs(near) <= form.limits[1]) & (near >= (form.limits[0] if form.kind == "e8m0" else -np.inf))]
    if form.kind == "e8m0":  # ml_dtypes rounds denormals up, and ties of powers of two away from 1, and we to even
        near = near[(near >= 2.0**-126) & ~np.isin(near, (np.unique(values)[1:] + np.unique(values)[:-1]) / 2)]
    want = near.astype(np.float32).astype(form.dtype.np)
    np.testing.assert_array_equal(form.encoded(near).view(np.uint8), want.view(np.uint8))
    got = form.encoded(np.array([1e39, np.nan])).astype(np.float32)
    assert got[0] == form.limits[1] and (np.isnan(got[1]) or form.kind == "none")


def test_without_ml_dtypes_arrays_are_bytes() -> None:
    """A process in which the package cannot be imported gives and takes bytes."""
    code = """
import sys; sys.modules["ml_dtypes"] = None
import numpy as np, lightnet
run = lightnet.load_executable(sys.argv[1])
x = np.arange(256, dtype=np.uint8).reshape(64, 4)
found = run({"x": x, "f": np.ones((64, 4), np.float32)})
assert found["turned"].dtype == np.uint8, found["turned"].dtype
sys.stdout.buffer.write(found["made"].tobytes()[:2])
"""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "net.lnx"
        lightnet.compile(boundary(BY_NAME["f8E4M3FN"], (64, 4))).save(path)
        done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout == np.ones(2, ml_dtypes.float8_e4m3fn).tobytes()


@pytest.mark.parametrize("saturate", [1, 0])
@pytest.mark.parametrize("mode", ["up", "nearest", "down"])
def test_casts_to_powers_of_two(mode: str, saturate: int) -> None:
    """Against ONNX's conversion, where the standard says what comes of a number: neither zeros nor infinities, nor what is below 2^-126."""
    x = np.abs(np.concatenate([2.0 ** np.arange(-126, 128), RNG.standard_normal(100), [3, 6, 0.75, 3e38]])).astype(
        np.float32
    )
    nodes = [helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT8E8M0, round_mode=mode, saturate=saturate)]
    got = lightnet.compile(model(nodes, {"x": x}), "none")({"x": x})["y"]
    want = onnx.numpy_helper.to_float8e8m0(x, bool(saturate), mode)
    np.testing.assert_array_equal(got.view(np.uint8), want.view(np.uint8))


def test_params_and_created_tensors(tmp_path: Path) -> None:
    """Of networks that state the type themselves: contents in the text, random, and from a file of bytes."""
    text = """
create(| dst=a | dtype=TL_FLOAT8E4M3FN, dims=[4], data=[1, -2.2, 1000, 0.1], ran=[0, 0], from_file=false);
create(| dst=b | dtype=TL_INT4, dims=[4], data=[0], ran=[-8, 8], from_file=false);
create(| dst=c | dtype=TL_FLOAT8E5M2, dims=[2, 2], data=[0], ran=[0, 0], from_file=true);
reshape(src=c | dst=d | dims=[4]);
bitcast(src=b | dst=e | dtype=TL_INT8);
"""
    c = np.array([[1, -2], [np.inf, 0.25]], ml_dtypes.float8_e5m2)
    np.savez(tmp_path / "w.npz", c=c)
    (tmp_path / "a.net").write_text(text)
    for weights in ({"c": c}, tmp_path / "w.npz"):
        found = lightnet.compile(lightnet.load(tmp_path / "a.net", weights), outputs=["a", "b", "d", "e"])()
        np.testing.assert_array_equal(found["a"].astype(np.float32), [1, -2.25, 448, 0.1015625])
        assert found["b"].dtype == ml_dtypes.int4
        np.testing.assert_array_equal(found["d"].astype(np.float32), c.reshape(-1).astype(np.float32))
    (tmp_path / "b.net").write_text("create(| dst=a | dtype=TL_INT4, dims=[4]);\nrelu(src=a | dst=b |);\n")
    with pytest.raises(LightNetError, match="should be of a type to compute in, but gets tensor<4xi4>"):
        lightnet.load(tmp_path / "b.net")


def test_the_header_for_c(tmp_path: Path) -> None:
    """An element is a byte."""
    run = lightnet.compile(boundary(BY_NAME["f8E4M3FN"], (2, 2)))
    emit(run, {"header": tmp_path / "net.h"}, "net")
    text = (tmp_path / "net.h").read_text()
    assert "const uint8_t *x" in text and "uint8_t *turned" in text and "float *numbers" in text


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Outputs are written as numbers, and what was written is read again."""
    (tmp_path / "net.onnx").write_bytes(boundary(BY_NAME["f8E4M3FN"], (2, 2)))
    out = tmp_path / "out.npz"
    assert main(["run", str(tmp_path / "net.onnx"), "-i", "x=1.5,-2,0.1,448", "-i", "f=1,2,3,4", "-o", str(out)]) == 0
    capsys.readouterr()
    written = np.load(out)
    assert written["same"].dtype == np.float32
    np.testing.assert_array_equal(written["same"], [[1.5, -2], [0.1015625, 448]])
    np.save(tmp_path / "x.npy", np.array([[1.5, -2], [0.1, 448]], ml_dtypes.float8_e4m3fn))
    for file in (f"{out}:same", str(tmp_path / "x.npy")):
        again = tmp_path / "again.npz"
        assert main(["run", str(tmp_path / "net.onnx"), "-i", f"x=@{file}", "-i", "f=1,2,3,4", "-o", str(again)]) == 0
        np.testing.assert_array_equal(np.load(again)["numbers"], written["same"])


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_packed_elements(name: str) -> None:
    """Every code, and every number of them from none to nine, lowest bits first; what is too short for a byte is padded with zeros."""
    form = FORMATS[name]
    codes = np.arange(1 << form.bits, dtype=np.uint8)
    values = form.values().astype(np.float64)
    kept = codes[np.isfinite(values) & ~((values == 0) & np.signbit(values) & (form.kind == "fnuz"))]
    for count in (*range(10), len(kept)):
        taken = np.resize(kept[::-1], count)
        word = sum(int(c) << (form.bits * k) for k, c in enumerate(taken))
        packed = form.packed(form.values()[taken])
        assert packed == word.to_bytes(-(-count * form.bits // 8), "little") and len(packed) == form.packed_size(count)
        again = form.unpacked(np.frombuffer(packed, np.uint8), count)
        np.testing.assert_array_equal(again, form.values()[taken])


@pytest.mark.parametrize("name", [n for n, form in sorted(FORMATS.items()) if form.mantissa is not None])
def test_values_of_codes(name: str) -> None:
    """As ml_dtypes has them, NaN and infinities among them."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    form = FORMATS[name]
    codes = np.arange(1 << form.bits, dtype=np.uint8)
    want = codes.view(getattr(ml_dtypes, f"float{form.bits}_{name[2:].lower()}")).astype(np.float64)
    found = form.values().astype(np.float64)
    np.testing.assert_array_equal(found, want)
    kept = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(found)[kept], np.signbit(want)[kept])
