"""ONNX's Fourier transforms, mel filters, n-grams, sequences and batched scans, against NumPy and ONNX's reference
evaluator, and what is refused beside them: random numbers, conditions that come from data, sequences at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import lightnet
from lightnet.diagnostics import LightNetError

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

RNG = np.random.default_rng(5)


def value(name: str, kind: int = TensorProto.FLOAT, dims: Sequence[int] | None = None) -> Any:
    """A declared input or output of a body."""
    return helper.make_tensor_value_info(name, kind, dims)


#: What a Loop gives its body first, and what it takes from it.
TRIP, GOING, ON = (
    value("i", TensorProto.INT64, []),
    value("go", TensorProto.BOOL, []),
    value("on", TensorProto.BOOL, []),
)
SEEN, MORE = (helper.make_tensor_sequence_value_info(n, TensorProto.FLOAT, None) for n in ("seen", "more"))


def built(
    nodes: Sequence[Any],
    feeds: Mapping[str, np.ndarray],
    outputs: Sequence[str],
    constants: Mapping[str, Any],
    opset: int,
) -> Any:
    """A model of float inputs with the shapes and types of `feeds`."""
    graph = helper.make_graph(
        list(nodes), "test",
        [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in feeds.items()],
        [helper.make_tensor_value_info(k, TensorProto.FLOAT, None) for k in outputs],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def run(
    nodes: Sequence[Any],
    feeds: Mapping[str, np.ndarray],
    outputs: Sequence[str] = ("y",),
    opset: int = 21,
    **constants: Any,
) -> Any:
    """The outputs by LightNet; one of them by itself."""
    model = built(nodes, feeds, outputs, constants, opset)
    got = lightnet.compile(model.SerializeToString())(dict(feeds))
    return got[outputs[0]] if len(outputs) == 1 else [got[o] for o in outputs]


def refusal(*args: Any, **kwargs: Any) -> str:
    """The text of the error."""
    with pytest.raises(LightNetError) as caught:
        run(*args, **kwargs)
    return "\n".join([caught.value.message, *(note for _, note in caught.value.notes)])


def complex_of(x: np.ndarray) -> np.ndarray:
    return x[..., 0].astype(np.float64) + (1j * x[..., 1] if x.shape[-1] == 2 else 0)


def pairs_of(x: np.ndarray) -> np.ndarray:
    return np.stack([x.real, x.imag], -1)


# -- Fourier transforms

#: (name, shape, opset, axis, length, inverse, onesided, NumPy's function)
DFTS = [
    ("old real", (2, 9, 1), 17, 1, None, 0, 0, np.fft.fft),
    ("old default axis", (2, 9, 3, 1), 19, None, None, 0, 0, np.fft.fft),
    ("complex", (3, 8, 2), 20, None, None, 0, 0, np.fft.fft),
    ("inverse", (3, 8, 5, 2), 20, 1, None, 1, 0, np.fft.ifft),
    ("real inverse", (3, 8, 1), 20, 1, None, 1, 0, np.fft.ifft),
    ("one side, odd", (2, 7, 1), 20, -2, None, 0, 1, np.fft.rfft),
    ("one side, even, first axis", (6, 7, 1), 20, 0, None, 0, 1, np.fft.rfft),
    ("padded", (2, 5, 2), 20, 1, 11, 0, 0, np.fft.fft),
    ("cut", (2, 12, 1), 17, 1, 5, 0, 1, np.fft.rfft),
    ("to a real signal", (2, 6, 2), 20, 1, None, 1, 1, np.fft.irfft),
    ("to a real signal of odd length", (2, 6, 2), 20, 1, 11, 1, 1, np.fft.irfft),
    ("to a longer one", (2, 6, 2), 20, 1, 16, 1, 1, np.fft.irfft),
    ("to a shorter one", (2, 6, 2), 20, 1, 4, 1, 1, np.fft.irfft),
]


@pytest.mark.parametrize(
    ("shape", "opset", "axis", "length", "inverse", "onesided", "function"),
    [c[1:] for c in DFTS],
    ids=[c[0] for c in DFTS],
)
def test_dft(shape, opset, axis, length, inverse, onesided, function):
    """numpy.fft is the oracle."""
    x = RNG.standard_normal(shape).astype(np.float32)
    constants: dict[str, Any] = {} if length is None else {"length": np.int64(length)}
    attributes, inputs = {"inverse": inverse, "onesided": onesided}, ["x", "length" if length else ""]
    default = 1 if opset < 20 else -2
    if axis is not None and opset < 20:
        attributes["axis"] = axis
    elif axis is not None:
        constants["axis"] = np.int64(axis)
        inputs.append("axis")
    got = run([helper.make_node("DFT", inputs, ["y"], **attributes)], {"x": x}, opset=opset, **constants)
    along = (default if axis is None else axis) % len(shape)
    if length is None and function is np.fft.irfft:
        length = 2 * (shape[along] - 1)
    want = function(complex_of(x) if shape[-1] == 2 else x[..., 0].astype(np.float64), n=length, axis=along)
    want = want[..., None] if function is np.fft.irfft else pairs_of(want)
    assert got.dtype == np.float32
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, atol=2e-6)  # sums of at most 16 products in f32


@pytest.mark.parametrize(("shape", "inverse", "onesided"), [((2, 6000, 1), 0, 1), ((1, 5000, 2), 1, 0)])
def test_long_dft(shape, inverse, onesided):
    """In two steps, from a signal that is padded to 6144 = 64 * 96 samples."""
    x = RNG.standard_normal(shape).astype(np.float32)
    got = run(
        [helper.make_node("DFT", ["x", "n"], ["y"], inverse=inverse, onesided=onesided)], {"x": x}, n=np.int64(6144)
    )
    z = complex_of(x)
    want = pairs_of(np.fft.ifft(z, 6144) if inverse else np.fft.rfft(z, 6144))
    np.testing.assert_allclose(got, want, atol=2e-6 * np.abs(want).max())  # relative to the largest, of 6144 terms


def test_dft_of_short_floats_and_doubles():
    """f16 is computed in f32 and rounded once (half an ulp of numbers below 16 is 2^-8); f64 is exact to 1e-13."""
    x = RNG.standard_normal((2, 8, 1))
    node = [helper.make_node("DFT", ["x"], ["y"])]
    short = x.astype(np.float16)
    np.testing.assert_allclose(
        run(node, {"x": short}), pairs_of(np.fft.fft(short[..., 0].astype(np.float64), axis=1)), atol=2**-8
    )
    np.testing.assert_allclose(run(node, {"x": x}), pairs_of(np.fft.fft(x[..., 0], axis=1)), atol=1e-13)


@pytest.mark.parametrize(
    ("window", "length", "channels", "onesided"),
    [("given", 6, 1, 1), ("known", None, 1, 1), (None, 7, 1, 0), ("known", 6, 2, 0)],
)
def test_stft(window, length, channels, onesided):
    """Frames of NumPy's; the window is a constant, an input, or absent."""
    x = RNG.standard_normal((2, 20, channels)).astype(np.float32)
    shape = np.hanning(6).astype(np.float32)
    feeds = {"x": x} | ({"window": shape} if window == "given" else {})
    constants: dict[str, Any] = {"step": np.int64(3)} | ({"window": shape} if window == "known" else {})
    if length is not None:
        constants["length"] = np.int64(length)
    inputs = ["x", "step", "window" if window else "", "length" if length else ""]
    got = run([helper.make_node("STFT", inputs, ["y"], onesided=onesided)], feeds, **constants)
    size = length or 6
    frames = np.lib.stride_tricks.sliding_window_view(complex_of(x), size, 1)[:, ::3] * (shape if window else 1)
    want = pairs_of(np.fft.rfft(frames.real) if onesided else np.fft.fft(frames))
    np.testing.assert_allclose(got, want, atol=2e-6)


def test_fourier_refuses():
    x = RNG.standard_normal((2, 8, 2)).astype(np.float32)
    assert "should be real" in refusal([helper.make_node("DFT", ["x"], ["y"], onesided=1)], {"x": x})
    assert "another axis than the last" in refusal(
        [helper.make_node("DFT", ["x", "", "a"], ["y"])], {"x": x}, a=np.int64(2)
    )
    assert "not possible" in refusal([helper.make_node("DFT", ["x", "n"], ["y"])], {"x": x}, n=np.int64(0))
    prime = {"x": np.zeros((1, 65537, 1), np.float32)}
    assert "no two factors" in refusal([helper.make_node("DFT", ["x"], ["y"])], prime)
    frames = [helper.make_node("STFT", ["x", "step", "", "n"], ["y"])]
    signal = {"x": np.zeros((1, 1 << 20, 1), np.float32)}
    assert "frames of 4096 samples" in refusal(frames, signal, step=np.int64(1), n=np.int64(4096))
    assert "do not fit" in refusal(frames, signal, step=np.int64(0), n=np.int64(16))


# -- windows, mel filters: functions of constants


@pytest.mark.parametrize("periodic", [None, 0])
@pytest.mark.parametrize(
    ("op", "terms"),
    [("HannWindow", (0.5, 0.5)), ("HammingWindow", (25 / 46, 21 / 46)), ("BlackmanWindow", (0.42, 0.5, -0.08))],
)
def test_window(op, terms, periodic):
    """In the function's body, an attribute that the node leaves out has its declared default (here periodic)."""
    attributes = {} if periodic is None else {"periodic": periodic}
    nodes = [helper.make_node(op, ["size"], ["w"], **attributes), helper.make_node("Mul", ["x", "w"], ["y"])]
    got = run(nodes, {"x": np.ones(10, np.float32)}, size=np.int64(10))
    angle = 2 * np.pi * np.arange(10) / (10 if periodic is None else 9)
    want = terms[0] - sum(t * np.cos((k + 1) * angle) for k, t in enumerate(terms[1:]))
    np.testing.assert_allclose(got, want, atol=1e-6)


@pytest.mark.parametrize(
    ("bands", "size", "rate", "lower", "upper"), [(8, 16, 8192, 0.0, 4096.0), (40, 512, 16000, 20.0, 8000.0)]
)
def test_mel_weights(bands, size, rate, lower, upper):
    constants = {
        "a": np.int32(bands),
        "b": np.int64(size),
        "c": np.int64(rate),
        "d": np.float32(lower),
        "e": np.float32(upper),
    }
    nodes = [helper.make_node("MelWeightMatrix", list("abcde"), ["m"]), helper.make_node("MatMul", ["x", "m"], ["y"])]
    feeds = {"x": np.eye(size // 2 + 1, dtype=np.float32)}
    (want,) = ReferenceEvaluator(built(nodes, feeds, ["y"], constants, 21)).run(None, feeds)
    np.testing.assert_allclose(run(nodes, feeds, **constants), want, atol=1e-6)
    assert "beyond half" in refusal(nodes, feeds, **(constants | {"e": np.float32(4 * rate)}))


# -- n-grams

POOL = {"ngram_counts": [0, 4], "ngram_indexes": [0, 1, 2, 3, 4, 5, 6], "pool_int64s": [2, 3, 5, 4, 5, 6, 7, 8, 6, 7]}


@pytest.mark.parametrize(
    ("mode", "least", "most", "skips"), [("TF", 1, 1, 3), ("TF", 2, 2, 5), ("IDF", 1, 2, 0), ("TFIDF", 1, 2, 1)]
)
def test_n_grams(mode, least, most, skips):
    x = RNG.integers(2, 9, (3, 9)).astype(np.int32)
    lengths = {"min_gram_length": least, "max_gram_length": most, "max_skip_count": skips}
    weights = [0.5, 1, 2, 3, 4, 5, 6]
    node = [helper.make_node("TfIdfVectorizer", ["x"], ["y"], mode=mode, weights=weights, **lengths, **POOL)]
    (want,) = ReferenceEvaluator(built(node, {"x": x}, ["y"], {}, 9)).run(None, {"x": x})
    np.testing.assert_array_equal(run(node, {"x": x}, opset=9), want)
    assert run(node, {"x": x[0]}, opset=9).shape == (7,)


# -- sequences


def test_sequences_in_a_loop():
    """A loop collects the parts of a tensor in reverse: no sequence reaches the network."""
    body = helper.make_graph(
        [
            helper.make_node("SequenceAt", ["parts", "i"], ["part"]),
            helper.make_node("SequenceInsert", ["seen", "part", "zero"], ["more"]),
            helper.make_node("Identity", ["go"], ["on"]),
        ],
        "body",
        [TRIP, GOING, SEEN],
        [ON, MORE],
    )
    nodes = [
        helper.make_node("SplitToSequence", ["x", "two"], ["parts"], axis=1),
        helper.make_node("SequenceLength", ["parts"], ["count"]),
        helper.make_node("SequenceEmpty", [], ["none"]),
        helper.make_node("Loop", ["count", "", "none"], ["seen"], body=body),
        helper.make_node("ConcatFromSequence", ["seen"], ["y"], axis=-1),
    ]
    x = RNG.standard_normal((2, 5)).astype(np.float32)
    got = run(nodes, {"x": x}, two=np.int64(2), zero=np.int64(0))
    np.testing.assert_array_equal(got, x[:, [4, 2, 3, 0, 1]])


def test_sequence_edits():
    """Insert, erase, at, map, single elements, optionals."""
    double = helper.make_graph(
        [helper.make_node("Add", ["a", "b"], ["c"])],
        "double",
        [value(n) for n in "ab"],
        [value("c")],
    )
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["rows"], keepdims=0),
        helper.make_node("SequenceErase", ["rows", "one"], ["fewer"]),
        helper.make_node("SequenceErase", ["fewer"], ["least"]),
        helper.make_node("SequenceInsert", ["least", "z", "one"], ["more"]),
        helper.make_node("SequenceMap", ["more", "z"], ["mapped"], body=double),
        helper.make_node("Optional", ["mapped"], ["maybe"]),
        helper.make_node("OptionalGetElement", ["maybe"], ["held"]),
        helper.make_node("SequenceAt", ["held", "last"], ["part"]),
        helper.make_node("ConcatFromSequence", ["held"], ["stack"], axis=1, new_axis=1),
    ]
    feeds = {"x": RNG.standard_normal((4, 3)).astype(np.float32), "z": np.ones(3, np.float32)}
    constants = {"one": np.int64(1), "last": np.int64(-1)}
    part, stack = run(nodes, feeds, ["part", "stack"], **constants)
    rows = [feeds["x"][0] + 1, np.full(3, 2, np.float32), feeds["x"][2] + 1]
    np.testing.assert_array_equal(part, rows[2])
    np.testing.assert_array_equal(stack, np.stack(rows, 1))


def test_sequences_refuse():
    x = {"x": np.ones((2, 3), np.float32)}
    make = helper.make_node("SequenceConstruct", ["x", "x"], ["s"])
    assert "output 's': it is a sequence" in refusal([make], x, ["s"]).replace("('s')", "'s'")
    assert "an input is a sequence" in refusal([make, helper.make_node("Relu", ["s"], ["y"])], x)
    assert "out of range" in refusal([make, helper.make_node("SequenceAt", ["s", "k"], ["y"])], x, k=np.int64(2))
    assert "should be a sequence" in refusal([helper.make_node("SequenceLength", ["x"], ["y"])], x)
    body = helper.make_graph(
        [helper.make_node("SequenceConstruct", ["e"], ["es"]), helper.make_node("Identity", ["h"], ["g"])], "body",
        [helper.make_tensor_value_info(n, 1, (3,)) for n in "he"],
        [helper.make_tensor_value_info("g", 1, (3,)), helper.make_tensor_sequence_value_info("es", 1, (3,))],
    )  # fmt: skip
    scan = helper.make_node("Scan", ["h", "x"], ["y", "all"], body=body, num_scan_inputs=1)
    assert "a Scan of sequences" in refusal([scan], {"h": np.ones(3, np.float32), **x}, ["y"])
    assert "without an element" in refusal(
        [helper.make_node("Optional", [], ["o"]), helper.make_node("OptionalGetElement", ["o"], ["y"])], x
    )


# -- control flow, random numbers


def test_scan_of_opset_8():
    """Running sums of each batch entry by itself, the second input from the back."""
    names = ["sum", "a", "b"]
    body = helper.make_graph(
        [
            helper.make_node("Add", ["sum", "a"], ["half"]),
            helper.make_node("Add", ["half", "b"], ["next"]),
            helper.make_node("Identity", ["next"], ["out"]),
        ],
        "body",
        [value(n) for n in names],
        [value(n) for n in ("next", "out")],
    )
    node = helper.make_node("Scan", ["", *names], ["last", "all"], body=body, num_scan_inputs=2, directions=[0, 1])
    feeds = {"sum": RNG.standard_normal((3, 2)).astype(np.float32)} | {
        n: RNG.standard_normal((3, 4, 2)).astype(np.float32) for n in "ab"
    }
    last, every = run([node], feeds, ["last", "all"], opset=8)
    want = feeds["sum"][:, None] + np.cumsum(feeds["a"] + feeds["b"][:, ::-1], 1)
    np.testing.assert_allclose(every, want, atol=1e-5)
    np.testing.assert_allclose(last, want[:, -1], atol=1e-5)


def test_loop_that_data_ends():
    """How often a loop runs is part of the network."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["v", "v"], ["w"]),
            helper.make_node("ReduceMax", ["w"], ["top"], keepdims=0),
            helper.make_node("Less", ["top", "limit"], ["on"]),
        ],
        "body",
        [TRIP, GOING, value("v")],
        [ON, value("w")],
    )
    node = helper.make_node("Loop", ["trips", "", "x"], ["y"], body=body)
    big = {"x": np.ones(8192, np.float32)}  # of a small input, the network could be specialised on the value
    assert "the condition of Loop is computed from data" in refusal(
        [node], big, trips=np.int64(3), limit=np.float32(100)
    )


@pytest.mark.parametrize("node", [
    helper.make_node("Bernoulli", ["x"], ["y"]), helper.make_node("RandomNormalLike", ["x"], ["y"]),
    helper.make_node("RandomUniform", [], ["y"], shape=[2]), helper.make_node("Multinomial", ["x"], ["y"]),
], ids=lambda n: n.op_type)  # fmt: skip
def test_random_numbers(node):
    assert "random numbers" in refusal([node], {"x": np.ones((2, 3), np.float32)})
