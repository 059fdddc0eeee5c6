"""ONNX Runtime's own float ops (domain com.microsoft) against ONNX Runtime itself, over cases made of every combination of optional
inputs, attributes and forms of masks that its CPU kernels take; what it has no CPU kernel for, against NumPy in float64."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from math import sqrt

import numpy as np
import pytest
from compare_onnxruntime import WIDE_SUMS
from onnx_microsoft import (
    Case,
    attentions,
    f32,
    four_bits,
    gathers,
    gelus,
    grouped,
    ints,
    matrices,
    multi_head_attentions,
    nbits,
    norms,
    pictures,
    products,
    rotaries,
)
from onnx_microsoft import cases as microsoft_cases

import lightnet
from lightnet.diagnostics import LightNetError

onnx = pytest.importorskip("onnx")
from onnx import helper, numpy_helper  # noqa: E402

MICROSOFT = "com.microsoft"


def model(op: str, cases: list[Case], domain: str = MICROSOFT, opset: int = 17) -> tuple[bytes, dict]:
    """One model with a node for each case, and what it is fed."""
    nodes, infos, constants, feeds, outputs = [], [], [], {}, []
    for at, (inputs, attributes, count, fixed) in enumerate(cases):
        names = []
        for key, array in inputs.items():
            name = "" if array is None else f"{key}_{at}"
            names.append(name)
            if array is None:
                continue
            if key in fixed:
                constants.append(numpy_helper.from_array(np.asarray(array), name))
            else:
                feeds[name] = array
                infos.append(
                    helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
                )
        while names and not names[-1]:
            names.pop()
        mine = [f"y{at}_{k}" for k in range(count)]
        outputs += mine
        nodes.append(helper.make_node(op, names, mine, domain=domain, name=f"case{at}", **attributes))
    graph = helper.make_graph(nodes, "g", infos, [helper.make_empty_tensor_value_info(o) for o in outputs], constants)
    opsets = [helper.make_opsetid("", opset), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString(), feeds


def compare(op: str, cases: list[Case], domain: str = MICROSOFT, tolerance: float = 2e-6,
            target: str = "cpu") -> None:  # fmt: skip
    """Every output of every case, with the case that differs named."""
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry(*WIDE_SUMS)
    source, feeds = model(op, cases, domain)
    session = runtime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    want = dict(zip(names, session.run(names, feeds)))
    got = lightnet.compile(source, target)(feeds)
    for name in names:
        inputs, attributes, *_ = cases[int(name[1:].split("_")[0])]
        told = {k: v.shape for k, v in inputs.items() if v is not None}
        same(got[name], want[name], tolerance, f"{op} {told} {attributes}: output {name}")


def same(got: np.ndarray, want: np.ndarray, tolerance: float, what: str) -> None:
    assert got.dtype == want.dtype and got.shape == want.shape, (
        f"{what}: {got.dtype}{got.shape}, not {want.dtype}{want.shape}"
    )
    a, b = got.astype(np.float64), want.astype(np.float64)
    bound = tolerance * max(1.0, np.abs(b).max(initial=0))
    assert np.abs(a - b).max(initial=0) <= bound, f"{what}: off by {np.abs(a - b).max()}"


@pytest.mark.parametrize(
    ("op", "cases"), [*gelus(), *products(), *norms()], ids=lambda x: x if isinstance(x, str) else ""
)
def test_fused_ops(op: str, cases: list[Case]) -> None:
    compare(op, cases)


@pytest.mark.parametrize("target", ["cpu", "none"])
@pytest.mark.parametrize(("op", "cases"), [*matrices(), *pictures()], ids=lambda x: x if isinstance(x, str) else "")
def test_matrices_and_pictures(op: str, cases: list[Case], target: str) -> None:
    compare(op, cases, tolerance=1e-5, target=target)


def test_matrices_without_an_inverse() -> None:
    """They have no finite one, and do not disturb those beside them."""
    x = np.stack([np.ones((3, 3)), np.diag([1, 2, 4.0])]).astype(np.float32)
    for target in ("cpu", "none"):
        source, feeds = model("Inverse", [({"x": x}, {}, 1, ())])
        found = lightnet.compile(source, target)(feeds)["y0_0"]
        assert not np.isfinite(found[0]).all()
        np.testing.assert_array_equal(found[1], np.diag([1, 0.5, 0.25]))


def quantised(array: np.ndarray, dtype: type, axes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers of 8 bits, scales and zero points for what is left of the axes."""
    info = np.iinfo(dtype)
    low, high = np.minimum(array.min(axes), 0), np.maximum(array.max(axes), 0)
    scale = ((high - low) / (info.max - info.min)).astype(np.float32)
    zero = np.clip(np.round(info.min - low / scale), info.min, info.max).astype(dtype)
    wide = [np.expand_dims(v, axes) for v in (scale, zero)]
    return np.clip(np.round(array / wide[0]) + wide[1], info.min, info.max).astype(dtype), scale, zero


@pytest.mark.parametrize("has_segments", [True, False])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_qembed_layer_normalization(dtype: type, has_segments: bool) -> None:
    tables = {"words": f32(9, 8), "places": f32(6, 8), "segments": f32(2, 8), "gamma": f32(8), "beta": f32(8)}
    parts = {k: quantised(v, dtype, tuple(range(v.ndim))) for k, v in tables.items()}
    if not has_segments:
        parts["segments"] = (None, None, None)
    inputs = {
        "ids": ints(9, 2, 5),
        "of": ints(2, 2, 5) if has_segments else None,
        **{k: v[0] for k, v in parts.items()},
    }
    inputs |= (
        {"mask": ints(2, 2, 5)}
        | {f"{k}_scale": v[1] for k, v in parts.items()}
        | {f"{k}_zero": v[2] for k, v in parts.items()}
    )
    compare(
        "QEmbedLayerNormalization",
        [(inputs, {"epsilon": 1e-6}, 2, tuple(k for k in inputs if k not in ("ids", "of", "mask")))],
        tolerance=1e-5,
    )


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", ["uint8", "int8", "int8 by column"])
def test_dynamic_quantize_lstm(kind: str, direction: str) -> None:
    """The standard's LSTM on the numbers that the weights stand for, by ONNX Runtime; and ONNX Runtime's own of this op, which rounds inputs and states to 8 bits,
    within what that comes to. Weights of 7 bits, whose products ONNX Runtime sums without saturating on every processor."""
    runtime = pytest.importorskip("onnxruntime")
    dtype, zero, ways = (np.uint8, 64, 1) if kind == "uint8" else (np.int8, 0, 1)
    ways += direction == "bidirectional"
    axes = (1,) if "column" in kind else (1, 2)

    def weights(*dims: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Quantised, scales, zero points, and the numbers they stand for, in the standard's order."""
        array = f32(*dims) / 2
        scale = np.abs(array).max(axes, keepdims=True) / 63
        q = (np.round(array / scale) + zero).astype(dtype)
        scales = np.squeeze(scale, axes).astype(np.float32)
        return q, scales, np.full(scales.shape, zero, dtype), ((q.astype(np.float32) - zero) * scale).transpose(0, 2, 1)

    w, r = weights(ways, 5, 24), weights(ways, 6, 24)
    fed = {
        "x": f32(7, 3, 5),
        "b": f32(ways, 48),
        "lens": np.array([7, 4, 2], np.int32),
        "h": f32(ways, 3, 6) / 4,
        "c": f32(ways, 3, 6) / 4,
    }
    rest, attributes = [fed[k] for k in ("b", "lens", "h", "c")], {"hidden_size": 6, "direction": direction}
    given = dict(
        zip(
            ["x", "w", "r", "b", "lens", "h", "c", "p", "ws", "wz", "rs", "rz"],
            [fed["x"], w[0], r[0], *rest, None, *w[1:3], *r[1:3]],
        )
    )
    source, feeds = model("DynamicQuantizeLSTM", [(given, attributes, 3, ("w", "r", "ws", "wz", "rs", "rz"))])
    plain = dict(zip(["x", "w", "r", "b", "lens", "h", "c"], [fed["x"], w[3], r[3], *rest]))
    others = model("LSTM", [(plain, attributes, 3, ("w", "r"))], "")
    got = lightnet.compile(source)(feeds)
    for (text, data), tolerance in ((others, 2e-5), ((source, feeds), 0.03)):
        session = runtime.InferenceSession(text, providers=["CPUExecutionProvider"])
        for name, want in zip(("y0_0", "y0_1", "y0_2"), session.run(None, data)):
            same(got[name], want, tolerance, f"{name} {direction}")


def test_the_sum_that_a_norm_gives_too() -> None:
    """Its fourth output, past two that inference does not have."""
    runtime = pytest.importorskip("onnxruntime")
    for op, more in (
        ("SkipLayerNormalization", ["g", "b", "bias"]),
        ("SkipSimplifiedLayerNormalization", ["g", "bias"]),
    ):
        feeds = {"x": f32(2, 3, 8), "skip": f32(2, 3, 8), **{k: f32(8) for k in more}}
        node = helper.make_node(op, list(feeds), ["y", "", "", "sum"], domain=MICROSOFT)
        infos = [helper.make_tensor_value_info(k, 1, v.shape) for k, v in feeds.items()]
        graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info(o) for o in ("y", "sum")])
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
        source = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
        want = runtime.InferenceSession(source, providers=["CPUExecutionProvider"]).run(None, feeds)
        got = lightnet.compile(source)(feeds)
        for name, array in zip(("y", "sum"), want):
            same(got[name], array, 1e-5, f"{op} {name}")


def test_simplified_layer_normalization_stands_in_the_standards_domain() -> None:
    compare(
        "SimplifiedLayerNormalization",
        [({"x": f32(2, 3, 8), "g": f32(8)}, {"axis": -1, "epsilon": 1e-6}, 1, ())],
        domain="",
    )


@pytest.mark.parametrize("target", ["none", pytest.param("cpu", marks=pytest.mark.slow)])
def test_ops_for_devices_only(target: str) -> None:
    """ONNX Runtime has kernels of these for GPUs alone: so NumPy."""
    erf = np.vectorize(__import__("math").erf)
    x, b = f32(2, 3, 8), f32(8)
    source, feeds = model("BiasSplitGelu", [({"x": x, "b": b}, {}, 1, ())])
    left, right = np.split((x + b).astype(np.float64), 2, axis=2)
    same(
        lightnet.compile(source, target)(feeds)["y0_0"],
        (left * right * 0.5 * (1 + erf(right / sqrt(2)))).astype(np.float32),
        2e-6,
        "split",
    )
    source, feeds = model("BiasAdd", [({"x": x, "b": b, "s": f32(2, 3, 8)}, {}, 1, ())])
    same(lightnet.compile(source, target)(feeds)["y0_0"], x + b + feeds["s_0"], 2e-6, "BiasAdd")
    cases = []
    for last, activation, skip in product((0, 1), (0, 1), ("no", "whole", "one", "flat")):
        picture = f32(2, 3, 4, 8) if last else f32(2, 8, 3, 4)
        inputs = {"x": picture, "g": f32(8), "b": f32(8)}
        if skip != "no":
            one = f32(2, 1, 1, 8) if last else f32(2, 8, 1, 1)
            inputs |= {
                "s": {"whole": f32(*picture.shape), "one": one, "flat": f32(2, 8)}[skip],
                "c": f32(8) if skip != "one" else None,
            }
        cases.append((inputs, {"groups": 4, "channels_last": last, "activation": activation}, 1 + (skip != "no"), ()))
    for op in ("GroupNorm", "SkipGroupNorm"):
        mine = [c for c in cases if ("s" in c[0]) == (op == "SkipGroupNorm")]
        source, feeds = model(op, mine)
        got = lightnet.compile(source, target)(feeds)
        for at, (inputs, attributes, count, _) in enumerate(mine):
            y, total = group_norm(inputs, attributes)
            same(got[f"y{at}_0"], y.astype(np.float32), 1e-5, f"{op} {attributes}")
            if count == 2:
                same(got[f"y{at}_1"], total.astype(np.float32), 1e-5, f"{op} {attributes}")


def group_norm(inputs: dict, attributes: dict) -> tuple[np.ndarray, np.ndarray]:
    x = inputs["x"].astype(np.float64)
    last = attributes["channels_last"]
    shape = (8,) if last else (8, 1, 1)
    if "s" in inputs:
        s = inputs["s"]
        x = x + (s.reshape((2, 1, 1, 8) if last else (2, 8, 1, 1)) if s.ndim == 2 else s)
        x = x if inputs["c"] is None else x + inputs["c"].reshape(shape)
    first = np.moveaxis(x, -1, 1) if last else x
    parts = first.reshape(2, attributes["groups"], -1)
    y = (parts - parts.mean(2, keepdims=True)) / np.sqrt(parts.var(2, keepdims=True) + 1e-5)
    y = y.reshape(first.shape)
    y = (np.moveaxis(y, 1, -1) if last else y) * inputs["g"].reshape(shape) + inputs["b"].reshape(shape)
    return (y / (1 + np.exp(-y)) if attributes["activation"] else y), x


# -- attention ---------------------------------------------------------------------------------------------------------


#: What the ops mean is quick to say; machine code of every case is slow, as each has kernels of its own: quick tests take each so-many-th.
SOME = [
    pytest.param(1, "cpu", marks=pytest.mark.slow, id="all"), pytest.param(7, "cpu", id="some"), pytest.param(1, "none", id="meaning"),
]  # fmt: skip


@pytest.mark.parametrize("each, target", SOME)
@pytest.mark.parametrize("op", ["Attention", "MultiHeadAttention"])
def test_attention(op: str, each: int, target: str) -> None:
    cases = list(attentions() if op == "Attention" else multi_head_attentions())
    compare(op, cases[::each], tolerance=1e-5, target=target)


@pytest.mark.parametrize("target", ["none", pytest.param("cpu", marks=pytest.mark.slow)])
def test_packed_queries_keys_and_values_are_those_apart(target: str) -> None:
    """ONNX Runtime's CPU kernels lack these two forms: they give what the plain one gives."""
    q, k, v = (f32(2, 4, 3, 5) for _ in range(3))
    flat = [x.reshape(2, 4, 15) for x in (q, k, v)]
    attributes = {"num_heads": 3}
    run = {}
    for name, inputs in (
        ("apart", dict(zip("qkv", flat))),
        ("all", {"q": np.stack([q, k, v], 3)}),
        ("pair", {"q": flat[0], "k": np.stack([k, v], 3)}),
    ):
        source, feeds = model("MultiHeadAttention", [(inputs, attributes, 1, ())])
        run[name] = lightnet.compile(source, target)(feeds)["y0_0"]
    np.testing.assert_array_equal(run["apart"], run["all"])
    np.testing.assert_array_equal(run["apart"], run["pair"])


def grouped_more() -> Iterator[Case]:
    """Positions that are given, of which a prompt reads the first; a sum in the softmax's denominator that is one more."""
    for at, (inputs, attributes, count, fixed) in enumerate(grouped()):
        rows = inputs["q"].shape[1]
        if at % 9 == 1:
            yield inputs | {"at": 3 + np.arange(2 * rows, dtype=np.int64).reshape(2, rows)}, attributes, count, fixed
        if at % 9 == 0:
            yield inputs, attributes | {"smooth_softmax": 1}, count, fixed


@pytest.mark.parametrize("each, target", SOME)
def test_group_query_attention(each: int, target: str) -> None:
    """Of a shorter batch entry, the rows and the keys behind its end are nobody's: they are left out."""
    runtime = pytest.importorskip("onnxruntime")
    cases = [*grouped(), *grouped_more()][::each]
    source, feeds = model("GroupQueryAttention", cases)
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    want = runtime.InferenceSession(source, options, providers=["CPUExecutionProvider"]).run(None, feeds)
    names = [f"y{at}_{k}" for at in range(len(cases)) for k in range(3)]
    got = lightnet.compile(source, target)(feeds)
    for name, array in zip(names, want):
        at, k = (int(x) for x in name[1:].split("_"))
        inputs, attributes = cases[at][:2]
        for b, end in enumerate(inputs["ends"]):
            rows = inputs["q"].shape[1]
            counted = slice(None, end + 1 if rows > 1 or k else rows)
            mine, other = (a[b, counted] if k == 0 else a[b, :, counted] for a in (got[name], array))
            same(mine, other, 1e-5, f"case {at} {attributes} rows {rows}, entry {b}, output {k}")


@pytest.mark.parametrize("each, target", SOME)
def test_rotary_embedding(each: int, target: str) -> None:
    compare("RotaryEmbedding", list(rotaries())[::each], target=target)


# -- weights of some bits ------------------------------------------------------------------------------------------------


def test_matmul_nbits() -> None:
    compare("MatMulNBits", list(nbits()), tolerance=1e-5)


def test_matmul_bnb4() -> None:
    compare("MatMulBnb4", list(four_bits()), tolerance=1e-5)


def test_matmul_nbits_of_what_is_computed() -> None:
    """Weights that are no constants are unpacked at run time: the same numbers."""
    inputs, attributes, count, _ = next(iter(nbits()))
    run = []
    for fixed in (("b", "s"), ()):
        source, feeds = model("MatMulNBits", [(inputs, attributes, count, fixed)])
        run.append(lightnet.compile(source)(feeds)["y0_0"])
    same(*run, 1e-6, "computed weights")


def test_gather_block_quantized() -> None:
    compare("GatherBlockQuantized", list(gathers()))


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("has_zeros", [False, True])
def test_signed_numbers_are_gathered_as_they_are(bits: int, has_zeros: bool) -> None:
    """Only bytes without a sign are packed: signed ones are one number an element, of however many bits."""
    half = 1 << (bits - 1)
    data, zeros = ((ints(2 * half, *dims) - half).astype(np.int8) for dims in ((5, 32), (5, 2)))
    scale, index = f32(5, 2), np.array([[4, 0], [1, 4]])
    inputs = {"d": data, "i": index, "s": scale, "z": zeros if has_zeros else None}
    attributes = {"gather_axis": 0, "quantize_axis": 1, "block_size": 16, "bits": bits}
    source, feeds = model("GatherBlockQuantized", [(inputs, attributes, 1, ("d", "s", "z"))])
    want = (data - (zeros.repeat(16, 1).astype(int) if has_zeros else 0)) * scale.repeat(16, 1)
    same(lightnet.compile(source)(feeds)["y0_0"], want[index].astype(np.float32), 1e-6, f"{bits} bits")


# -- what is refused -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "message"),
    [
        ("MatMulNBits", {"a": f32(2, 64), "b": ints(256, 6, 2, 12, dtype=np.uint8), "s": f32(12)},
         {"K": 64, "N": 6, "bits": 3, "block_size": 32}, "weights of 3 bits"),
        ("MatMulNBits", {"a": f32(2, 64), "b": ints(256, 5, 2, 16, dtype=np.uint8), "s": f32(12)},
         {"K": 64, "N": 6, "bits": 4, "block_size": 32}, "are not a 64 x 6 matrix of 4 bits in blocks of 32"),
        ("Attention", {"x": f32(1, 3, 4), "w": f32(4, 12), "b": f32(12)}, {"num_heads": 2, "do_rotary": 1}, "with do_rotary"),
        ("Attention", {"x": f32(1, 3, 4), "w": f32(4, 12), "b": f32(12), "m": ints(2, 5)}, {"num_heads": 2}, "a mask"),
        ("SkipLayerNormalization", {"x": f32(1, 3, 4), "s": f32(2, 3, 4), "g": f32(4)}, {}, "should broadcast to its input"),
        ("EmbedLayerNormalization", {"i": ints(5, 1, 9), "k": None, "w": f32(5, 4), "p": f32(8, 4), "t": None, "g": f32(4), "b": f32(4)},
         {}, "9 positions, and its table 8"),
        ("RotaryEmbedding", {"x": f32(1, 2, 3, 4), "at": ints(2, 1, dtype=np.int64), "c": f32(9, 3), "s": f32(9, 3)}, {}, "do not fit"),
        ("MatMulBnb4", {"a": f32(2, 32), "b": ints(256, 81, dtype=np.uint8), "s": f32(10)},
         {"K": 32, "N": 5, "block_size": 16, "quant_type": 1}, "are not a 32 x 5 matrix of 4 bits in blocks of 16"),
        ("Inverse", {"x": f32(2, 3)}, {}, "needs square matrices"),
        ("Inverse", {"x": f32(17, 17)}, {}, "a 17 x 17 matrix (at most 16 rows)"),
        ("CDist", {"a": f32(2, 3), "b": f32(2, 4)}, {"metric": "euclidean"}, "rows of one length"),
        ("CDist", {"a": f32(2, 3), "b": f32(2, 3)}, {"metric": "cosine"}, "the metric cosine"),
        ("DynamicQuantizeLSTM", {"x": f32(2, 1, 3), "w": ints(9, 1, 3, 8, dtype=np.uint8), "r": ints(9, 1, 2, 8, dtype=np.uint8), "b": None, "l": None, "h": None,
         "c": None, "p": None, "ws": f32(3), "wz": ints(9, 3, dtype=np.uint8), "rs": f32(1), "rz": ints(9, 1, dtype=np.uint8)}, {"hidden_size": 2}, "do not fit weights"),
        ("Fancy", {"x": f32(1)}, {}, "no such op in domain 'com.microsoft'"),
    ],
)  # fmt: skip
def test_what_is_refused(op: str, inputs: dict, attributes: dict, message: str) -> None:
    source, _ = model(op, [(inputs, attributes, 1, ())])
    with pytest.raises(LightNetError) as caught:
        lightnet.compile(source)
    assert message in str(caught.value) + "".join(str(n) for n in caught.value.notes)


def test_the_pages_list_every_op_and_its_cases() -> None:
    """docs/import-networks.md each op of ONNX Runtime and of ONNX-ML that is imported, docs/conformance.md how many cases of it are compared."""
    from pathlib import Path

    from onnx_ml import cases as ml_cases

    from lightnet.frontends.onnx.node import handlers

    docs = Path(__file__).parents[3] / "docs"
    text, page = ((docs / name).read_text("utf-8") for name in ("import-networks.md", "conformance.md"))
    for domain in (MICROSOFT, "ai.onnx.ml"):
        missing = [op for d, op in handlers() if d == domain and f"`{op}`" not in text]
        assert not missing, f"{domain}: {missing}"
    for domain, all_cases in ((MICROSOFT, microsoft_cases()), ("ai.onnx.ml", ml_cases())):
        wrong = [op for op, of in all_cases.items() if not re.search(rf"\| {domain}\.{op} \| ✓ {len(of)} \|", page)]
        assert not wrong, wrong


@pytest.mark.parametrize(
    ("op", "inputs", "attributes"),
    [
        ("Trilu", {"x": f32(2, 4, 5)}, {"upper": 0}), ("Trilu", {"x": f32(4, 5), "k": np.array(1)}, {"upper": 1}),
        ("GatherND", {"x": f32(3, 4, 5), "i": ints(3, 2, 2, dtype=np.int64)}, {}),
        ("Range", {"a": np.array(2.0, np.float32), "b": np.array(9.0, np.float32), "c": np.array(1.5, np.float32)}, {}),
        ("TransposeMatMul", {"a": f32(2, 5, 3), "b": f32(2, 5, 4)}, {"transA": 1, "alpha": 0.5}),
    ],
)  # fmt: skip
def test_ops_that_the_standard_has_too(op: str, inputs: dict, attributes: dict) -> None:
    compare(
        op, [(inputs, attributes, 1, tuple(inputs) if op == "Range" else tuple(inputs)[1:] if op == "Trilu" else ())]
    )


def test_bias_softmax() -> None:
    """ONNX Runtime has it on GPUs: so NumPy. The bias lacks inner axes (of length 1), or outer ones."""
    x = f32(2, 3, 4, 5)
    for bias, inner in ((f32(2, 1, 1, 5), 1), (f32(4, 5), 0)):
        source, feeds = model("BiasSoftmax", [({"x": x, "b": bias}, {"axis": 3, "is_inner_broadcast": inner}, 1, ())])
        number = np.exp((x + bias).astype(np.float64))
        same(
            lightnet.compile(source)(feeds)["y0_0"],
            (number / number.sum(3, keepdims=True)).astype(np.float32),
            2e-6,
            "BiasSoftmax",
        )


def test_convolutions_of_channels_last() -> None:
    """ONNX Runtime's CPU has none: they are `FusedConv`, which it has, of tensors that are turned."""
    x, w, b, z = f32(1, 6, 7, 4), f32(8, 2, 3, 3), f32(8), f32(1, 6, 7, 8)
    for added in (None, z):
        attributes = {"activation": "Relu", "group": 2, "pads": [1, 1, 1, 1]}
        found = []
        for op, axes in (("NhwcFusedConv", (0, 1, 2, 3)), ("FusedConv", (0, 3, 1, 2))):
            inputs = {"x": x.transpose(axes), "w": w, "b": b, "z": None if added is None else added.transpose(axes)}
            source, feeds = model(
                op, [({k: v if v is None else v.copy() for k, v in inputs.items()}, attributes, 1, ("w", "b"))]
            )
            found.append(lightnet.compile(source)(feeds)["y0_0"].transpose(np.argsort(axes)))
        same(*found, 2e-6, "NhwcFusedConv")
