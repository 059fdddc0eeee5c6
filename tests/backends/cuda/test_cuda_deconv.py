"""Transposed convolutions on the products of target cuda, and convolutions whose weights are computed, or that are of one axis: in the PTX interpreter
against the references, ONNX Runtime and the CPU."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from cuda_cases import Graph
from cuda_plans import timed
from cuda_products import EPILOGUES, Case, check, made
from onnx import helper
from sampling import draw
from xdsl.ir import SSAValue

import lightnet
from lightnet.backends.cuda.gemm.problem import match
from lightnet.backends.cuda.gemm.windows import interleave_of, product_window_of
from lightnet.backends.cuda.loops import LOOPS
from lightnet.ir.kernel import KernelOp
from lightnet.ir.module import main_of

#: What a transposed convolution may be: phases with as many taps as others and with fewer, positions that are cut off or not, channels to fill up.
DECONVS: dict[str, Callable[[Case], SSAValue]] = {
    "2x2/2": lambda c: c.deconv((1, 8, 3, 5), 8, (2, 2), stride=(2, 2)),
    "2x2/2, batch 2, channels that fill nothing": lambda c: c.deconv((2, 5, 3, 4), 3, (2, 2), stride=(2, 2)),
    "3x3/2": lambda c: c.deconv((1, 12, 4, 5), 20, (3, 3), stride=(2, 2), padding=(1, 1, 1, 1)),
    "3x3/2, with output padding": lambda c: c.deconv((2, 4, 3, 4), 6, (3, 3), stride=(2, 2), padding=(1, 1, 1, 1), output_padding=(1, 1)),
    "4x4/2": lambda c: c.deconv((1, 6, 4, 3), 4, (4, 4), stride=(2, 2), padding=(1, 1, 1, 1)),
    "5x4/3x2, asymmetric padding": lambda c: c.deconv((1, 4, 3, 4), 5, (5, 4), stride=(3, 2), padding=(0, 2, 3, 1)),
    "8x8/4, nothing but the middle": lambda c: c.deconv((1, 4, 2, 2), 4, (8, 8), stride=(4, 4), padding=(3, 5, 4, 2)),
    "3x1/2x1": lambda c: c.deconv((1, 8, 4, 3), 4, (3, 1), stride=(2, 1)),
    "1x1": lambda c: c.deconv((1, 7, 3, 4), 9, (1, 1)),
    "3x3": lambda c: c.deconv((2, 5, 4, 4), 7, (3, 3), padding=(1, 0, 2, 1)),
    "3x3, dilated": lambda c: c.deconv((1, 4, 4, 5), 4, (3, 2), dilation=(2, 3), padding=(1, 2, 0, 1)),
    "3x2/1x2, rows dilated": lambda c: c.deconv((1, 4, 4, 5), 8, (3, 2), dilation=(2, 1), stride=(1, 2)),
    "SAME, wider than the full result": lambda c: c.deconv((1, 4, 5, 4), 8, (2, 2), stride=(2, 2), output_dims=(1, 8, 10, 8), autopad="SAME_UPPER"),
    "SAME, upper": lambda c: c.deconv((1, 8, 3, 4), 5, (3, 3), stride=(2, 2), output_dims=(1, 5, 6, 8), autopad="SAME_UPPER"),
    "SAME, lower": lambda c: c.deconv((1, 4, 3, 4), 3, (4, 4), stride=(2, 2), output_dims=(1, 3, 6, 8), autopad="SAME_LOWER"),
    "padding that leaves rows of one phase": lambda c: c.deconv((1, 4, 1, 3), 4, (3, 3), stride=(2, 2), padding=(1, 1, 1, 1)),
    "output padding beyond the taps": lambda c: c.deconv((1, 4, 3, 3), 4, (2, 2), stride=(2, 2), output_padding=(3, 2)),
}  # fmt: skip


#: (generator, type of the factors); each has a third of the cases always.
WAYS = [("simt", "f32"), ("mma", "f32"), ("mma", "bf16")]


@pytest.mark.parametrize("alg, dtype", WAYS)
def test_transposed_convolutions(alg, dtype):
    builds = draw(DECONVS.values(), f"deconv {alg} {dtype}", every=3, start=WAYS.index((alg, dtype)))
    check([made(dtype, build) for build in builds], alg)


def _finished(c: Case, finish: Callable[..., SSAValue], src: tuple[int, ...], out: int, **params) -> None:
    y = c.deconv(src, out, (3, 3), stride=(2, 2), padding=(1, 1, 1, 1), **params)
    finish(c, y, y.type.get_shape())


@pytest.mark.parametrize("alg, dtype, splits", [("simt", "f32", 1), ("simt", "f32", 3), ("mma", "f16", 1)])
def test_epilogues(alg, dtype, splits):
    """Residuals have the layout of the result, values by channel are those of its channels and not of the product's columns."""
    sizes = [((2, 32, 3, 2), 8), ((1, 36, 2, 3), 5)]
    cases = draw(product(EPILOGUES.values(), sizes), f"deconv {alg} {splits}", every=3, start=len(alg) + splits)
    check([made(dtype, _finished, finish, *size) for finish, size in cases], alg, splits=splits)


@pytest.mark.sampled(every=2, share=0.2)
@pytest.mark.parametrize("alg, dtype, tile", [
    ("simt", "f32", (8, 64, 16)), ("simt", "f32", (128, 16, 16)), ("simt", "f32", (64, 64, 16)),
    ("mma", "f16", (64, 64, 32)), ("mma", "f16", (32, 32, 32)), ("mma", "f32", (32, 32, 32)),
])  # fmt: skip
def test_tiles(alg, dtype, tile):
    """Several tiles of rows and of columns, with tails; a tile's columns are of several phases, and a phase's in several tiles."""
    cases = [
        made(dtype, deconv_of, src, out, size) for src, out, size in [((1, 20, 5, 17), 24, 3), ((2, 12, 4, 9), 70, 2)]
    ]
    check(cases, alg, tile=tile)


def deconv_of(c: Case, src: tuple[int, ...], out: int, size: int) -> None:
    c.deconv(src, out, (size, size), stride=(2, 2), padding=(size - 2,) * 4)


def test_what_is_refused():
    """Groups, strides with taps that are apart, phases without a tap, and a great many: the plain loops have these."""
    refused = [
        lambda c: c.deconv((1, 8, 3, 4), 8, (3, 3), stride=(2, 2), group=2),
        lambda c: c.deconv((1, 4, 3, 4), 4, (3, 3), stride=(2, 2), dilation=(2, 1)),
        lambda c: c.deconv((1, 4, 3, 4), 4, (2, 2), stride=(3, 2)),
        lambda c: c.deconv((1, 1, 1, 1), 1, (100, 1), stride=(100, 1)),
    ]
    for build in refused:
        assert made("f32", build).forms("simt") == []


@pytest.mark.parametrize("build", DECONVS.values())
def test_positions_and_phases_are_those_pixels(build):
    """Every pixel of the result is one phase of one position, and no position has none; windows reach no further than they have to."""
    case = made("f32", build)
    op = case.ops[0]
    window, interleave = product_window_of(op), interleave_of(op)
    stride, skip = ((1, 1), (0, 0)) if interleave is None else (interleave.stride, interleave.skip)
    for axis, count in enumerate(op.result_specs[0].dims[2:]):
        starts = np.arange(window.positions[axis]) * stride[axis] - skip[axis]
        pixels = (starts[:, None] + np.arange(stride[axis])).reshape(-1)
        there = (pixels >= 0) & (pixels < count)
        assert pixels[there].tolist() == list(range(count))
        assert there.reshape(len(starts), -1).any(1).all()
        assert window.taps[axis] == -(-op.size[axis] // stride[axis])
    (problem,) = match(case.ops, [op.results[0]])
    assert problem.rows == op.result_specs[0].dims[0] * np.prod(window.positions)


# ---- networks --------------------------------------------------------------------------------------------------------


@pytest.fixture
def products_first(monkeypatch):
    """No convolution is left to the loops where a product can do it, whatever the model says of networks so small."""

    timed(monkeypatch, LOOPS, lambda kernel: 1e9 if any("conv" in op.optype for op in kernel.ops) else 1.0)


def compared(model: lightnet.Model, want: dict[str, np.ndarray] | None = None, **options) -> dict[str, set[str]]:
    """Run a network in the interpreter, compare it with what is wanted (None: with the CPU); the generators, by the ops of their kernels."""
    executable = lightnet.compile(model, "cuda", emulate=True, **options)
    for (name, got), expected in zip(executable().items(), (want or lightnet.compile(model)()).values(), strict=True):
        assert expected.std() > 0, name
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max(), err_msg=name)
    kernels = [op for op in main_of(executable.planned).body.block.ops if isinstance(op, KernelOp)]
    found: dict[str, set[str]] = {}
    for kernel in kernels:
        found.setdefault("+".join(op.optype for op in kernel.ops), set()).add(kernel.attributes["alg"].data)
    return found


def network(build: Callable[[Graph], object]) -> lightnet.Model:
    graph = Graph()
    build(graph)
    return lightnet.loads(str(graph.module()), ".mlir")


def _upsampled(g: Graph, x: SSAValue, channels: int) -> SSAValue:
    weight = g.input(x.type.get_shape()[1], channels, 3, 3)
    return g.op(
        "deconv2d", x, weight, g.input(channels), size=(3, 3), stride=(2, 2), padding=(1,) * 4, output_padding=(1, 1)
    )


def test_a_decoder(products_first):
    """What is upsampled is put beside a map from before, without a copy, and convolved."""

    def build(g: Graph) -> None:
        x = g.op("relu", g.conv(g.input(1, 3, 6, 8), 8, 3))
        deep = g.op("relu", g.conv(x, 12, 3, stride=2))
        g.conv(g.op("concat", g.op("relu", _upsampled(g, deep, 16)), g.conv(x, 4, 1), axis=1), 5, 3)

    algs = compared(network(build))
    assert [alg for ops, alg in algs.items() if ops.endswith("concat") and "deconv2d" in ops] == [{"join"}]
    assert not any("loops" in found and "conv" in ops for ops, found in algs.items())


def test_weights_that_are_computed(products_first):
    """They are a map to the kernel that makes them; as of a dense layer they lie as they are."""

    def build(g: Graph) -> None:
        x, w = g.input(2, 8, 5, 6), g.op("sigmoid", g.op("add", g.input(12, 8, 3, 3), g.input(12, 8, 1, 1)))
        g.op("conv2d", x, w, g.input(12), size=(3, 3), padding=(1,) * 4)
        g.op(
            "conv2d",
            g.input(2, 7, 4, 4),
            g.op("exp", g.op("mul", g.input(6, 7, 1, 1), g.input(6, 7, 1, 1))),
            g.input(6),
            size=(1, 1),
        )

    assert {ops: alg for ops, alg in compared(network(build)).items() if "conv2d" in ops} == {"conv2d": {"simt"}}


def test_one_axis_and_three(products_first):
    """Convolutions over one axis to three, and transposed ones, are those over pictures."""

    def build(g: Graph) -> None:
        line = dict(stride=(2,), dilation=(1,), padding=(1, 2))
        g.op("conv", g.input(2, 6, 19), g.input(9, 6, 4), g.input(9), **line)
        g.op("deconv", g.input(2, 6, 9), g.input(6, 5, 3), g.input(5), **line, output_padding=(1,))
        flat = dict(stride=(1, 2), dilation=(2, 1), padding=(2, 1, 0, 1))
        g.op("conv", g.input(1, 8, 7, 6), g.input(8, 4, 3, 3), g.input(8), group=2, **flat)
        deep = dict(stride=(2, 1, 2), dilation=(1, 1, 1), padding=(0, 1, 0, 0, 1, 1), output_padding=(0, 0, 1))
        g.op("deconv", g.input(2, 8, 3, 3, 2), g.input(8, 5, 2, 3, 3), g.input(5), **deep)
        deep = dict(stride=(2, 1, 2), dilation=(1, 2, 1), padding=(1, 1, 0, 2, 0, 1))
        g.op("conv", g.input(2, 8, 4, 5, 5), g.input(8, 4, 3, 2, 3), g.input(8), group=2, **deep)
        g.op(
            "conv",
            g.input(1, 4, 3, 4, 5),
            g.input(9, 4, 1, 1, 1),
            g.input(9),
            stride=(1,) * 3,
            dilation=(1,) * 3,
            padding=(0,) * 6,
        )

    algs = compared(network(build))
    assert not any(ops in ("conv", "deconv") for ops in algs)
    assert algs["conv2d"] == algs["deconv2d"] == {"simt"}


def test_what_does_not_pay_or_fit_stays():
    """Windows that overlap along the first of three axes, few channels, and integers are left to the loops."""

    def build(g: Graph) -> None:
        ones = dict(dilation=(1, 1, 1), padding=(0,) * 6, output_padding=(0, 0, 0))
        g.op("deconv", g.input(1, 8, 2, 2, 2), g.input(8, 2, 3, 2, 2), g.input(2), stride=(2, 2, 2), **ones)
        g.op("deconv", g.input(1, 3, 2, 2, 2), g.input(3, 2, 2, 2, 2), g.input(2), stride=(2, 2, 2), **ones)
        g.dtype = "i32"
        g.op("conv", g.input(1, 2, 9), g.input(3, 2, 4), g.input(3), stride=(1,), dilation=(1,), padding=(0, 0))
        g.dtype = "f32"
        g.op(
            "conv",
            g.input(1, 2, 3, 3, 9),
            g.input(3, 2, 4, 1, 2),
            g.input(3),
            stride=(1,) * 3,
            dilation=(1,) * 3,
            padding=(2,) * 6,
        )

    kernels = lightnet.compile(network(build), "cuda").planned
    found = [op.ops[0].optype for op in main_of(kernels).body.block.ops if isinstance(op, KernelOp)]
    assert sorted(found) == ["conv", "conv", "deconv", "deconv"]


@pytest.mark.parametrize("attributes, src, weight", [
    (dict(strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1]), (1, 6, 4, 5), (6, 8, 3, 3)),
    (dict(strides=[2, 2], pads=[1, 1, 1, 1]), (2, 4, 3, 4), (4, 5, 4, 4)),
    (dict(strides=[3, 2], pads=[2, 0, 1, 1]), (1, 5, 4, 3), (5, 3, 5, 2)),
    (dict(strides=[2, 2], auto_pad="SAME_UPPER"), (1, 4, 3, 5), (4, 4, 3, 3)),
    (dict(dilations=[2, 1], pads=[1, 0, 0, 1]), (1, 4, 4, 5), (4, 6, 2, 3)),
    (dict(strides=[3], pads=[1, 0], output_padding=[1]), (2, 5, 7), (5, 3, 4)),
    (dict(strides=[2, 2, 1], pads=[0, 1, 0, 0, 0, 1]), (1, 8, 2, 3, 4), (8, 3, 2, 2, 3)),
])  # fmt: skip
def test_the_results_of_onnx_runtime(attributes, src, weight, products_first):
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(dims).astype(np.float32) for dims in (src, weight))
    b = rng.standard_normal(weight[1]).astype(np.float32)
    float_type = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"], **attributes)],
        "net",
        [helper.make_tensor_value_info("x", float_type, src)],
        [helper.make_tensor_value_info("y", float_type, None)],
        [onnx.numpy_helper.from_array(w, "w"), onnx.numpy_helper.from_array(b, "b")],
    )
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()
    (want,) = ort.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    executable = lightnet.compile(lightnet.loads(data, ".onnx"), "cuda", emulate=True)
    np.testing.assert_allclose(executable({"x": x})["y"], want, rtol=1e-4, atol=1e-5 * np.abs(want).max())
    kernels = [op for op in main_of(executable.planned).body.block.ops if isinstance(op, KernelOp)]
    assert any(k.ops[0].optype == "deconv2d" and k.attributes["alg"].data == "simt" for k in kernels)
