"""Random ops of ONNX: the generator against published vectors, draws against the distributions they are of, and what a seed decides."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import lightnet
from lightnet.cli.lightnet import main
from lightnet.diagnostics import LightNetError
from lightnet.frontends.random import philox

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper  # noqa: E402

COUNT = 40_000


def model(
    *nodes: onnx.NodeProto, inputs: dict | None = None, outputs: tuple[str, ...] = ("y",), opset: int = 22
) -> bytes:
    infos = [helper.make_tensor_value_info(k, t, dims) for k, (t, dims) in (inputs or {}).items()]
    graph = helper.make_graph(list(nodes), "g", infos, [helper.make_empty_tensor_value_info(o) for o in outputs])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10).SerializeToString()


def drawn(op: str, seed: int | str = 1, feeds: dict | None = None, **attributes) -> np.ndarray:
    inputs = {k: (helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in (feeds or {}).items()}
    source = model(helper.make_node(op, list(inputs), ["y"], **attributes), inputs=inputs)
    return lightnet.compile(source, seed=seed)(feeds or {})["y"]


@pytest.mark.parametrize(
    ("counter", "key", "want"),
    [
        ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0), "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)  # fmt: skip
def test_the_generator_gives_the_published_vectors(counter: tuple, key: tuple, want: str) -> None:
    """Of the authors' Random123, kat_vectors: philox4x32, 10 rounds."""
    words = philox([np.uint64(c) for c in counter], [np.uint64(k) for k in key])
    assert " ".join(f"{int(w):08x}" for w in words) == want


def close_to(sample: np.ndarray, mean: float, deviation: float) -> None:
    """Mean and deviation within five standard errors."""
    count = sample.size
    assert abs(sample.mean() - mean) < 5 * deviation / np.sqrt(count)
    assert abs(sample.std() - deviation) < 5 * deviation / np.sqrt(count)


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow), "float16"])
def test_uniform_and_normal_numbers(dtype: str) -> None:
    code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    y = drawn("RandomUniform", shape=[COUNT], low=-1.0, high=3.0, dtype=code)
    assert y.dtype == dtype and y.min() >= -1 and y.max() <= 3
    y = y.astype(np.float64)
    close_to(y, 1, 4 / np.sqrt(12))
    counts = np.histogram(y, 20, (-1, 3))[0]
    assert ((counts - COUNT / 20) ** 2 / (COUNT / 20)).sum() < 50  # chi squared of 19 degrees: 1 in 10,000
    assert abs(np.corrcoef(y[:-1], y[1:])[0, 1]) < 5 / np.sqrt(COUNT)
    z = drawn("RandomNormal", shape=[COUNT // 2, 2], mean=2.0, scale=0.5, dtype=code).astype(np.float64)
    close_to(z, 2, 0.5)
    z = (z - 2) / 0.5
    assert abs((z**3).mean()) < 0.07 and abs((z**4).mean() - 3) < 0.2  # skew and kurtosis of a normal one
    assert abs(np.corrcoef(z[:, 0], z[:, 1])[0, 1]) < 0.04


def test_bernoulli_and_multinomial() -> None:
    p = np.repeat(np.array([0, 0.25, 0.9, 1], np.float32), COUNT // 4)
    hits = drawn("Bernoulli", feeds={"p": p}, dtype=TensorProto.INT32).reshape(4, -1).mean(1)
    assert hits[0] == 0 and hits[3] == 1 and abs(hits[1] - 0.25) < 0.025 and abs(hits[2] - 0.9) < 0.02
    weights = np.array([[1, 2, 0, 5], [0, 0, 1, 0]], np.float32)
    with np.errstate(divide="ignore"):
        y = drawn("Multinomial", feeds={"x": np.log(weights)}, sample_size=COUNT // 4, dtype=TensorProto.INT64)
    assert y.dtype == np.int64 and (y[1] == 2).all()
    np.testing.assert_allclose(np.bincount(y[0], minlength=4) / y.shape[1], [0.125, 0.25, 0, 0.625], atol=0.03)


def test_dropout_that_trains() -> None:
    ratio = helper.make_node("Constant", [], ["r"], value_float=0.25)
    training = helper.make_node("Constant", [], ["t"], value=helper.make_tensor("t", TensorProto.BOOL, [], [True]))
    drop = helper.make_node("Dropout", ["x", "r", "t"], ["y", "mask"])
    source = model(ratio, training, drop, inputs={"x": (1, [COUNT])}, outputs=("y", "mask"))
    x = np.linspace(1, 2, COUNT, dtype=np.float32)
    got = lightnet.compile(source, seed=3)({"x": x})
    np.testing.assert_allclose(got["y"], np.where(got["mask"], x / np.float32(0.75), 0), 1e-6)
    assert abs(got["mask"].mean() - 0.75) < 0.015


def test_a_seed_decides_the_numbers_and_each_node_draws_its_own() -> None:
    nodes = [helper.make_node("RandomNormal", [], [name], shape=[64]) for name in "ab"]
    nodes += [helper.make_node("RandomNormal", [], [name], shape=[64], seed=7.0) for name in "cd"]
    source = model(*nodes, outputs=tuple("abcd"))
    run = lightnet.compile(source, seed=5)
    first, again, other = run({}), lightnet.compile(source, seed=5)({}), lightnet.compile(source, seed=6)({})
    for name in "abcd":
        np.testing.assert_array_equal(first[name], run({})[name])  # in every call
        np.testing.assert_array_equal(first[name], again[name])  # in every compilation
        assert not np.array_equal(first[name], other[name])
    assert not np.array_equal(first["a"], first["b"])
    np.testing.assert_array_equal(first["c"], first["d"])  # who has one seed draws the same


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_seed_that_is_an_input(dtype: str) -> None:
    """Each call gives its own; the numbers are those of a seed that is compiled in."""
    code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [helper.make_node("RandomNormal", [], ["n"], shape=[300], dtype=code),
             helper.make_node("RandomUniform", [], ["u"], shape=[300], dtype=code)]  # fmt: skip
    source = model(*nodes, outputs=("n", "u"))
    run = lightnet.compile(source, seed="input")
    for seed in (0, -1, 123456789012345):
        got, want = run({"seed": np.int64(seed)}), lightnet.compile(source, seed=seed)({})
        np.testing.assert_array_equal(got["u"], want["u"])
        np.testing.assert_allclose(got["n"], want["n"], rtol=0, atol=1e-5 if dtype == "float32" else 1e-13)


def test_a_seed_that_is_an_input_where_shapes_are_open() -> None:
    node = helper.make_node("RandomUniformLike", ["x"], ["y"])
    source = model(node, inputs={"x": (1, ["n", 3])})
    run = lightnet.compile(source, seed="input")
    for rows in (2, 5):
        x = np.zeros((rows, 3), np.float32)
        a, b = (run({"x": x, "seed": np.int64(s)})["y"] for s in (1, 2))
        assert a.shape == (rows, 3) and not np.array_equal(a, b)
    np.testing.assert_array_equal(lightnet.compile(source, seed=1)({"x": x})["y"], a)


def test_without_a_seed_it_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    source = model(helper.make_node("RandomNormal", [], ["y"], shape=[4]))
    with pytest.raises(LightNetError) as caught:
        lightnet.compile(source)
    assert "give them a seed, as in --seed 1" in str(caught.value.notes)
    with pytest.raises(LightNetError, match="a seed is an integer of 64 bits, or 'input'"):
        lightnet.compile(source, seed="time")
    with pytest.raises(LightNetError, match="the network has been read"):
        lightnet.compile(lightnet.loads(source, ".onnx", seed=1), seed=1)
    path = tmp_path / "noise.onnx"
    path.write_bytes(source)
    outputs = []
    for seed in (["--seed", "4"], ["--seed=4"], ["--seed", "input", "-i", "seed=4"]):
        out = tmp_path / "y.npz"
        assert main(["run", str(path), *seed, "-o", str(out)]) == 0
        outputs.append(np.load(out)["y"])
    np.testing.assert_array_equal(outputs[0], outputs[1])
    np.testing.assert_allclose(outputs[0], outputs[2], atol=1e-5)
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["run", str(path), "--seed", "soon"])
    assert "'soon' is not an integer or 'input'" in capsys.readouterr().err
