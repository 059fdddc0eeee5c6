"""Kernels on open rows: which bodies have rows, how strips cover them, and every generator in strips against ONNX Runtime."""

from __future__ import annotations

from functools import cache

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import lightnet
from lightnet import LightNetError
from lightnet.backends.cpu.blocked.base import processor_model_of
from lightnet.backends.cpu.runtime import host_features
from lightnet.backends.cpu.selection import SELECTION
from lightnet.backends.cpu.strips import open_ways
from lightnet.backends.open_rows import STRIPS, Strip, cover_rows, open_rows_of
from lightnet.ir.body import choice
from lightnet.ir.kernel import KernelOp, choice_integers
from lightnet.ir.op import LnOp
from lightnet.runtime.dims import at, is_never_below, symbol

HIGH = 70


@pytest.mark.parametrize("sizes", [(1,), (4, 1), (64, 16, 4, 1), (16, 4, 1)], ids=str)
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("low", [1, 20])
def test_strips_cover_each_row(sizes, in_place, low):
    """In place each once, lest something be computed twice."""
    n = symbol("n", low, 150)
    strips = [Strip(size, None) for size in sizes]
    covered = cover_rows(n, strips, in_place)
    for count in range(low, 151):
        times = np.zeros(count, int)
        for (number, first), strip in zip(covered, strips):
            number, first = (at(size, {"n": count}) for size in (number, first))
            for k in range(number):
                start = first + k * strip.rows
                if not in_place and strip.rows > 1:
                    start = min(start, count - strip.rows)
                assert 0 <= start <= count - strip.rows
                times[start : start + strip.rows] += 1
        assert times.min() == 1 and (times.max() == 1 or not in_place)
        least = next((size for size in reversed(sizes) if size > 1), 1)
        assert times.sum() < count + least or count < least  # of the rows that are computed again


@pytest.mark.parametrize("count", [
    symbol("n", 1, 512), 4 * symbol("b", 1, 8) * symbol("l", 1, 64), symbol("l", 4, 256, 4) * symbol("b", 1, 16), symbol("n", 1, 9) * 64 + 5,
], ids=str)  # fmt: skip
def test_no_number_of_strips_is_below_0(count):
    """As is proved for all calls, so that it may be a grid."""
    for sizes in ((64, 16, 4, 1), (16, 4, 1), (64, 4, 1)):
        for in_place in (False, True):
            for (number, first), strip in zip(cover_rows(count, [Strip(s, None) for s in sizes], in_place), sizes):
                assert is_never_below(number, 0) and is_never_below(number * strip, 0) and is_never_below(first, 0)


def body(text: str) -> list[LnOp]:
    source = "builtin.module {\n  func.func @main() {\n" + text + "\n    func.return\n  }\n}"
    model = lightnet.loads(source, ".mlir")
    return [op for op in model.module.walk() if isinstance(op, LnOp) and op.operands]


def value(name: str, dims: str, open_dims: str, optype: str = "input") -> str:
    return f'%{name} = ln.{optype} : tensor<{dims}xf32, #ln.dims<"{open_dims}">>\n'


B, L = "b(1..4)", "l(1..9)"
ROWS = {
    "softmax of a row": (f'%y = ln.softmax %x {{axis = 2}} : tensor<?x?x8xf32, #ln.dims<"{B}, {L}">>', True),
    "softmax across rows": (f'%y = ln.softmax %x {{axis = 1}} : tensor<?x?x8xf32, #ln.dims<"{B}, {L}">>', False),
    "elementwise": (f'%y = ln.relu %x : tensor<?x?x8xf32, #ln.dims<"{B}, {L}">>', True),
    "rows become one axis": ('%y = ln.reshape %x : tensor<?x8xf32, #ln.dims<"b(1..4)*l(1..9)">>', True),
    "rows change places": (f'%y = ln.transpose %x {{axes = [1, 0, 2]}} : tensor<?x?x8xf32, #ln.dims<"{L}, {B}">>', False),
    "rows are no longer first": (f'%y = ln.transpose %x {{axes = [0, 2, 1]}} : tensor<?x8x?xf32, #ln.dims<"{B}, {L}">>', False),
    "a mean of rows": (f'%y = ln.reduce_mean %x {{axes = [1]}} : tensor<?x1x8xf32, #ln.dims<"{B}">>', False),
    "a part of a row": (f'%y = ln.slice %x {{axis = 2, start = 1, len = 3}} : tensor<?x?x3xf32, #ln.dims<"{B}, {L}">>', True),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_which_bodies_have_rows(name):
    text, has_rows = ROWS[name]
    ops = body(value("x", "?x?x8", f"{B}, {L}") + text)
    rows = open_rows_of(ops)
    assert (rows is not None) == has_rows
    if rows is not None:
        assert str(rows.count) == "b(1..4)*l(1..9)" and rows.dims(ops[0].operand_specs[0].dims, 5) == (1, 5, 8)


def test_rows_of_two_kinds_are_none():
    """A row of positions is read by every batch."""
    text = value("x", "?x?x8", f"{B}, {L}") + value("p", "1x?x8", L)
    ops = body(text + f'%y = ln.add %x, %p : tensor<?x?x8xf32, #ln.dims<"{B}, {L}">>')
    assert open_rows_of(ops) is None


# -- generators ---------------------------------------------------------------------------------------------------------


class Net:
    """Nodes of an ONNX graph with random weights."""

    def __init__(self) -> None:
        self.nodes, self.weights, self.random = [], [], np.random.default_rng(1)

    def weight(self, *dims: int) -> str:
        scale = np.sqrt(np.prod(dims[1:])) if len(dims) > 1 else 1
        self.weights.append(
            numpy_helper.from_array(
                (self.random.standard_normal(dims) / scale).astype(np.float32), f"w{len(self.weights)}"
            )
        )
        return self.weights[-1].name

    def op(self, kind: str, *inputs: str, **attributes) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [f"t{len(self.nodes)}"], **attributes))
        return self.nodes[-1].output[0]

    def conv(self, x: str, outputs: int, inputs: int, size: int = 3, group: int = 1, **attributes) -> str:
        pads = [size // 2] * 4
        weights = self.weight(outputs, inputs // group, size, size), self.weight(outputs)
        return self.op("Conv", x, *weights, pads=pads, kernel_shape=[size, size], group=group, **attributes)

    def model(self, y: str, dims, out) -> bytes:
        x, z = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", *d]) for n, d in (("x", dims), (y, out)))
        graph = helper.make_graph(self.nodes, "g", [x], [z], self.weights)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(made)
        return made.SerializeToString()


def residual(g: Net):
    a = g.op("Relu", g.conv("x", 32, 32))
    return g.op("Relu", g.op("Add", g.conv(a, 32, 32), a)), (32, 14, 15), (32, 14, 15)


def pointwise(g: Net):
    return g.op("Sigmoid", g.conv("x", 40, 24, 1)), (24, 7, 5), (40, 7, 5)


def strided(g: Net):
    return g.conv("x", 48, 32, 5, strides=[2, 2]), (32, 11, 12), (48, 6, 6)


def picture(g: Net):
    a = g.op("Relu", g.conv("x", 32, 3, 3, strides=[2, 2]))
    return g.op("MaxPool", a, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]), (3, 96, 96), (32, 24, 24)


def inverted(g: Net):
    a = g.op("Clip", g.conv("x", 96, 16, 1), g.weight(), g.weight())
    b = g.op("Relu", g.conv(a, 96, 96, 3, group=96))
    return g.op("Add", g.conv(b, 16, 96, 1), "x"), (16, 28, 28), (16, 28, 28)


def pooled(g: Net):
    a = g.op("AveragePool", g.conv("x", 32, 32, 1), kernel_shape=[2, 2], strides=[2, 2])
    b = g.op("Flatten", g.op("GlobalAveragePool", a))
    return g.op("Gemm", b, g.weight(32, 10), g.weight(10)), (32, 8, 9), (10,)


def enlarged(g: Net):
    a = g.op("ConvTranspose", "x", g.weight(16, 32, 2, 2), kernel_shape=[2, 2], strides=[2, 2])
    return g.op("Relu", a), (16, 6, 7), (32, 12, 14)


def joined(g: Net):
    a, b = g.conv("x", 16, 16, 3), g.conv("x", 32, 16, 1)
    return g.conv(g.op("Concat", a, b, axis=1), 16, 48, 3), (16, 9, 9), (16, 9, 9)


def perceptron(g: Net):
    a = g.op("Relu", g.op("Gemm", "x", g.weight(300, 260), g.weight(260)))
    return g.op("Add", g.op("Gemm", a, g.weight(260, 300), g.weight(300)), "x"), (300,), (300,)


def tokens(g: Net):
    a = g.op("Erf", g.op("MatMul", "x", g.weight(64, 256)))
    b = g.op("Add", g.op("MatMul", a, g.weight(256, 64)), "x")
    return g.op("LayerNormalization", b, g.weight(64), g.weight(64)), (17, 64), (17, 64)


NETS = {
    residual: "winograd4", pointwise: "direct", strided: "direct", picture: "first-pool", inverted: "bands",
    pooled: "pool", enlarged: "deconv", joined: "direct", perceptron: "packed", tokens: "packed",
}  # fmt: skip


@cache
def network(make, threads: int = 1):
    g = Net()
    y, dims, out = make(g)
    data = g.model(y, dims, out)
    model = lightnet.loads(data, ".onnx", dims={"n": (1, HIGH)})
    return lightnet.compile(model, threads=threads), onnxruntime.InferenceSession(data), dims


def kernels_of(network) -> list[KernelOp]:
    return [op for op in network.planned.walk() if isinstance(op, KernelOp)]


@pytest.mark.parametrize("make", NETS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("threads", [1, 3])
def test_a_generator_in_strips(make, threads):
    executable, peer, dims = network(make, threads)
    assert NETS[make] in {choice(k, "alg") for k in kernels_of(executable)}
    for n in (1, 2, 5, 17, HIGH, 66, 3):
        x = np.random.default_rng(n).standard_normal((n, *dims)).astype(np.float32)
        (found,), (wanted,) = executable({"x": x}).values(), peer.run(None, {"x": x})
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


def test_weights_are_shared_by_strips_of_several_rows():
    """Products read all their weights for a strip; convolutions gain nothing."""
    sizes = {choice(k, "alg"): choice_integers(k.attributes[STRIPS]) for k in kernels_of(network(perceptron)[0])}
    assert sizes["packed"] == (64, 16, 4, 1)
    found = [choice_integers(k.attributes[STRIPS]) for k in kernels_of(network(strided)[0]) if STRIPS in k.attributes]
    assert found and set(found) == {(1,)}


PINNED = """
builtin.module {
  func.func @main() -> tensor<?x40xf32, #ln.dims<"n(1..30)">> {
    %x = ln.input : tensor<?x50xf32, #ln.dims<"n(1..30)">> as ("x")
    %w = ln.param {from_file = true} : tensor<50x40xf32> as ("w")
    %y = cpu.kernel(%x_ = %x, %w_ = %w) choices {strips = [ROWS]} {
      %y_ = ln.matmul %x_, %w_ : tensor<?x40xf32, #ln.dims<"n(1..30)">> as ("y")
      ln.yield %y_
    }
    func.return %y : tensor<?x40xf32, #ln.dims<"n(1..30)">>
  }
}
"""


#: What takes open bodies as they are, by its class: the others take them row by row alone.
WHOLE = {"Views": ["Views"], "OpenTiles": ["OpenTiles"], "Loops": ["Strips", "Loops"]}


def test_each_generator_takes_open_rows_in_some_way():
    """The loops in two: blocks of maps need strips, any other body runs as it is."""
    for generator in SELECTION.generators():
        ways, name = open_ways(generator), type(generator).__name__
        assert [type(way).__name__ for way in ways] == WHOLE.get(name, ["Strips", *["OpenMaps"] * generator.opens])
        for way in ways:
            assert way is generator or way.inner is generator
            assert (way.alg, way.exact, way.last, way.on_maps) == (
                generator.alg, generator.exact, generator.last, generator.on_maps,
            )  # fmt: skip


@pytest.mark.parametrize("make", [perceptron, inverted, picture], ids=lambda f: f.__name__)
def test_arguments_in_strips_are_called_as_in_the_network(make):
    for kernel in kernels_of(network(make)[0]):
        for launch in SELECTION.generate(kernel, "k", {}):
            lo, hi, n, *found = (a.name_hint for a in launch.function.body.block.args)
            assert (lo, hi, n) == ("lo", "hi", "n")
            for name, argument in zip(found, launch.args, strict=True):
                wanted = kernel.body.args[argument.number].name_hint if argument.kind == "operand" else argument.kind
                assert name == (None if argument.kind == "result" else wanted)


def test_strips_can_be_pinned():
    weights = {"w": np.random.default_rng(1).standard_normal((50, 40)).astype(np.float32)}
    executable = lightnet.compile(lightnet.loads(PINNED.replace("ROWS", "3, 7"), ".mlir", weights=weights))
    (kernel,) = kernels_of(executable)
    assert [strip.rows for strip in SELECTION.plan_of(kernel).schedule] == [7, 3, 1]
    for n in range(1, 31):
        x = np.random.default_rng(n).standard_normal((n, 50)).astype(np.float32)
        np.testing.assert_allclose(executable({"x": x}).popitem()[1], x @ weights["w"], rtol=1e-4, atol=1e-4)


def test_other_choices_are_pinned_in_each_strip():
    text = PINNED.replace("strips = [ROWS]", "strips = [7, 3], tile = [2, 2]")
    (kernel,) = kernels_of(
        lightnet.compile(lightnet.loads(text, ".mlir", weights={"w": np.ones((50, 40), np.float32)}))
    )
    lanes = processor_model_of(host_features()).lanes
    plans = [strip.plan for strip in SELECTION.plan_of(kernel).schedule]
    assert [(p.schedule.rows, p.schedule.columns) for p in plans] == [(2, 2 * lanes)] * 3  # rows, and vectors


@pytest.mark.parametrize("rows", ["0", "4, -1", "31"])
def test_strips_that_cannot_be(rows):
    with pytest.raises(LightNetError, match="a strip has 1 to 30 rows"):
        lightnet.compile(lightnet.loads(PINNED.replace("ROWS", rows), ".mlir"))


def test_an_open_network_takes_the_memory_of_its_shape():
    executable, _, _ = network(residual)
    sizes = [executable.instance.of((n,)).program.memory["arena"] for n in (1, 2, 40)]
    assert sizes[1] <= 2 * sizes[0] and sizes[2] <= 40 * sizes[0]
