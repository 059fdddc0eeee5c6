"""ONNX models whose dims stay open: one network with symbols, what reading it teaches of them, and its numbers in a call."""

from __future__ import annotations

import threading
from itertools import product

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper  # noqa: E402

import lightnet  # noqa: E402
from lightnet.diagnostics import LightNetError  # noqa: E402
from lightnet.frontends.loading import OpenError  # noqa: E402
from lightnet.frontends.open_dims import equal, facts_of_least  # noqa: E402
from lightnet.ir.context import make_context  # noqa: E402
from lightnet.ir.instances import symbols_of  # noqa: E402
from lightnet.ir.parser import parse_mlir  # noqa: E402
from lightnet.ir.verify import verify_module  # noqa: E402
from lightnet.passes.instantiate import instantiate  # noqa: E402
from lightnet.runtime.dims import Dim, at, dim_max, dim_min, symbol, with_sizes  # noqa: E402
from lightnet.runtime.open_instance import call_values  # noqa: E402

F, I = TensorProto.FLOAT, TensorProto.INT64


def model(nodes, inputs, outputs=("z",), **constants):
    """A model of nodes (op type, inputs, outputs, attributes), its inputs as name: (type, dims)."""
    initializers = [onnx.numpy_helper.from_array(np.asarray(a), name) for name, a in constants.items()]
    made = [helper.make_node(op, i, o, **a) for op, i, o, a in nodes]
    given = [helper.make_tensor_value_info(n, t, d) for n, (t, d) in inputs.items()]
    graph = helper.make_graph(made, "g", given, [helper.make_empty_tensor_value_info(o) for o in outputs], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


#: Position ids of a Range, a causal mask of ConstantOfShape and Trilu, heads by Reshape with 0 and -1.
DECODER = model(
    [("Shape", ["x"], ["shape"], {}), ("Gather", ["shape", "one"], ["n"], {"axis": 0}), ("Range", ["zero", "n", "one"], ["ids"], {}),
     ("Gather", ["table", "ids"], ["positions"], {}), ("Add", ["x", "positions"], ["h"], {}), ("Reshape", ["h", "heads"], ["r"], {}),
     ("Transpose", ["r"], ["q"], {"perm": [0, 2, 1, 3]}), ("Transpose", ["r"], ["k"], {"perm": [0, 2, 3, 1]}), ("MatMul", ["q", "k"], ["s"], {}),
     ("Unsqueeze", ["n", "axis"], ["n1"], {}), ("Concat", ["n1", "n1"], ["square"], {"axis": 0}),
     ("ConstantOfShape", ["square"], ["low"], {"value": helper.make_tensor("v", F, [1], [-1e4])}), ("Trilu", ["low", "one"], ["mask"], {"upper": 1}),
     ("Add", ["s", "mask"], ["m"], {}), ("Softmax", ["m"], ["z"], {"axis": -1})],
    {"x": (F, ["batch", "length", 8])}, one=np.int64(1), zero=np.int64(0), axis=np.array([0]), heads=np.array([0, 0, 2, -1]),
    table=np.random.default_rng(0).random((64, 8), np.float32),
)  # fmt: skip


def test_a_decoder_is_one_module_for_all_lengths() -> None:
    """The text reads back; with numbers it gives what the static import gives, bit for bit, and ONNX Runtime's numbers."""
    net = lightnet.load(DECODER, dims={"batch": (1, 4), "length": "1..64"})
    assert {n: (s.low, s.high) for n, s in symbols_of(net.module).items()} == {"batch": (1, 4), "length": (1, 64)}
    ctx = make_context()
    verify_module(parse_mlir(ctx, str(net.module), "text"), ctx)
    session = ort.InferenceSession(DECODER.SerializeToString())
    inputs = {"x": (symbol("batch", 1, 4), symbol("length", 1, 64), 8)}
    for dims in ((1, 1, 8), (3, 7, 8), (4, 64, 8)):
        x = np.random.default_rng(1).random(dims, np.float32)
        module = net.module.clone()
        instantiate(module, call_values(inputs, {"x": dims}, symbols_of(module).values()))
        verify_module(module, net.ctx)
        assert not symbols_of(module)
        got = lightnet.compile(lightnet.Model(module, "open", net.weights, ctx=net.ctx, brings_weights=True), "none")(
            {"x": x}
        )["z"]
        static = lightnet.compile(lightnet.load(DECODER, shapes={"x": dims}), "none")({"x": x})["z"]
        np.testing.assert_array_equal(got, static)
        np.testing.assert_allclose(got, session.run(None, {"x": x})[0], atol=1e-6)
    for dims in ((5, 7, 8), (1, 65, 8), (1, 7, 9), (7, 8)):
        with pytest.raises(LightNetError):
            call_values(inputs, {"x": dims}, symbols_of(net.module).values())


def test_what_a_model_teaches_of_its_dims() -> None:
    """Dims that an op takes for one become one; a range shrinks to what an op needs; each is said."""
    add = model([("Add", ["x", "y"], ["z"], {})], {"x": (F, ["a", 3]), "y": (F, ["b", 3])})
    net = lightnet.load(add, dims={"a": (1, 8), "b": (2, 16, 2)})
    assert {(s.low, s.high, s.multiple) for s in symbols_of(net.module).values()} == {(2, 8, 2)}
    assert len(net.warnings) == 1 and "add gets tensor<?x3xf32" in net.warnings[0][1]
    common = symbols_of(lightnet.load(add, dims={"a": (4, 32, 4), "b": (6, 36, 6)}).module)
    assert {(s.low, s.high, s.multiple) for s in common.values()} == {(12, 24, 12)}
    joined = model([("Slice", ["x", "from", "to"], ["s"], {}), ("Add", ["s", "c"], ["z"], {})], {"x": (F, ["n"])},
                   c=np.ones(5, np.float32), to=np.array([5]), **{"from": np.array([0])})  # fmt: skip
    (found,) = symbols_of(lightnet.load(joined, dims={"n": (1, 9)}).module).values()
    assert (found.low, found.high) == (5, 9)
    cache = model([("Concat", ["past", "x"], ["all"], {"axis": 0}), ("Add", ["all", "mask"], ["z"], {})],
                  {"past": (F, ["p"]), "x": (F, ["n"]), "mask": (F, ["p + n"])})  # fmt: skip
    assert not lightnet.load(cache, dims={}).warnings
    unnamed = lightnet.load(model([("Neg", ["x"], ["z"], {})], {"x": (F, [None, 3])}), dims={})
    assert {n: (s.low, s.high) for n, s in symbols_of(unnamed.module).items()} == {"x.0": (1, 1024)}


def test_what_cannot_be_open() -> None:
    for dims, message in (
        ({"m": (1, 4)}, "no open dim is called 'm'"),
        ({"n": "1-4"}, "should be as 1..512"),
        ({"n": (4, 1)}, "has no value"),
    ):
        with pytest.raises(LightNetError, match=message):
            lightnet.load(model([("Neg", ["x"], ["z"], {})], {"x": (F, ["n"])}), dims=dims)
    with pytest.raises(OpenError, match="each call decides") as caught:
        lightnet.load(model([("DFT", ["x"], ["z"], {"axis": 1})], {"x": (F, [1, "n", 1])}), dims={"n": (2, 9)})
    assert caught.value.inputs == {"x"}


def test_facts() -> None:
    a, b, h = symbol("a", 1, 8), symbol("b", 3, 20), symbol("h", 4, 32, 4)
    assert equal(a - 5) == {"a": 5} and equal(a - 9) is None and equal(h - 6) is None and equal(a - a) == {}
    assert equal(a + 1 - b) == {"b": symbol("a", 2, 8) + 1, "a": symbol("a", 2, 8)}
    assert equal(2 * a - b) == {"a": symbol("a", 2, 8), "b": 2 * symbol("a", 2, 8)}
    assert equal(dim_min(a, 5) - 5) == {"a": symbol("a", 5, 8)} and equal(dim_max(a, 5) - 5) == {"a": symbol("a", 1, 5)}
    assert (
        facts_of_least(a - 3) == {"a": symbol("a", 3, 8)}
        and facts_of_least(3 - a) == {"a": symbol("a", 1, 3)}
        and facts_of_least(-a) is None
    )
    assert facts_of_least((a - 3) // 2 - 1) == {"a": symbol("a", 5, 8)} and facts_of_least(2 - (a + 1) // 3) == {
        "a": symbol("a", 1, 7)
    }
    assert facts_of_least(h - 5) == {"h": symbol("h", 8, 32, 4)} and facts_of_least(a) == {}


#: What has to be 0, over symbols of several ranges and multiples, as a function of them.
DIFFERENCES = [
    lambda a, b, h, g: h - g, lambda a, b, h, g: g - h, lambda a, b, h, g: a - h, lambda a, b, h, g: h - a, lambda a, b, h, g: b - g,
    lambda a, b, h, g: h - 6, lambda a, b, h, g: h - 12, lambda a, b, h, g: 2 * a - h, lambda a, b, h, g: 2 * h - g, lambda a, b, h, g: h - 2 * g,
    lambda a, b, h, g: a + 1 - b, lambda a, b, h, g: a - 7, lambda a, b, h, g: 3 * a - b, lambda a, b, h, g: h // 4 - g, lambda a, b, h, g: h // 4 - a,
    lambda a, b, h, g: a + 20 - b, lambda a, b, h, g: dim_max(a, 5) - 5, lambda a, b, h, g: dim_min(b, 9) - 9, lambda a, b, h, g: h + 2 - g,
]  # fmt: skip


def test_facts_are_the_calls_in_which_a_difference_is_nothing() -> None:
    """No call more, and none less: by brute force over all numbers of the symbols."""
    symbols = {"a": symbol("a", 1, 8), "b": symbol("b", 3, 20), "h": symbol("h", 4, 32, 4), "g": symbol("g", 6, 36, 6)}
    numbers = {"a": range(1, 9), "b": range(3, 21), "h": range(4, 33, 4), "g": range(6, 37, 6)}
    learnt = 0
    for k, difference in enumerate(DIFFERENCES):
        dim = difference(**symbols)
        names = sorted(s.name for s in dim.symbols)
        calls = product(*(numbers[n] for n in names))
        wanted = {call for call in calls if at(dim, dict(zip(names, call))) == 0}
        if (facts := equal(dim)) is None:
            continue
        learnt += 1
        sizes = [facts.get(n, symbols[n]) for n in names]
        assert with_sizes(dim, facts) == 0, k
        free = {s.name: s for size in sizes if isinstance(size, Dim) for s in size.symbols}
        rows = product(*(range(s.low, s.high + 1, s.multiple) for s in free.values()))
        assert {tuple(at(size, dict(zip(free, row))) for size in sizes) for row in rows} == wanted, k
    assert learnt == 15
    assert equal(symbols["h"] - symbols["g"]) == dict.fromkeys("hg", symbol("g", 12, 24, 12))


def test_threads_compile_a_shape_once() -> None:
    run = lightnet.compile(model([("Neg", ["x"], ["z"], {})], {"x": (F, ["n"])}), target="none")
    made, compiled = [], run._compile
    run._compile = lambda *args: made.append(args) or compiled(*args)
    start, found = threading.Barrier(4), []

    def call() -> None:
        start.wait()
        found.append(run({"x": np.ones(3, np.float32)})["z"])

    threads = [threading.Thread(target=call) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(made) == 1 and len(found) == 4 and all((z == -1).all() for z in found)
