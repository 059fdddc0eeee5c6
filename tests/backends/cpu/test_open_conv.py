"""Convolutions over maps whose height or width a call decides, against the reference in float64: compiled once, run on maps that tiles like least, between
guards, alone, with an epilogue, in place, block by block, at level 4, and in a network."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from test_open_gemm import Run, agree, drawn, extra, kernel_of
from xdsl.ir import Block

import lightnet
from lightnet.backends.cpu import open_conv
from lightnet.backends.cpu.plain import LOOPS, OPEN_WINDOWS
from lightnet.backends.cpu.selection import SELECTION
from lightnet.dialects.cpu import CpuKernelOp
from lightnet.dialects.ln.arith import Add
from lightnet.dialects.ln.conv import Conv2d
from lightnet.dialects.ln.elementwise import Relu
from lightnet.ir.body import choice
from lightnet.ir.kernel import KernelOp
from lightnet.ir.types import TensorSpec, spec_of, tensor_type
from lightnet.runtime.dims import at, symbol
from lightnet.runtime.dtypes import BY_NAME

N, H, W = symbol("n", 1, 4), symbol("h", 1, 300), symbol("w", 1, 300)
#: Sizes of maps: one pixel, thinner than a window's padding, about a vector, about a panel, and beyond.
SIZES = ((1, 1), (2, 1), (1, 16), (3, 15), (5, 17), (4, 31), (2, 33), (7, 65), (33, 100))
#: Channels, outputs, window, and how it lies: asymmetric padding, strides, dilations, a width that is a number, more outputs than tiles have rows.
WINDOWS = (
    (3, 8, (3, 3), {"padding": (1, 1, 1, 1)}), (2, 1, (1, 1), {}), (5, 9, (3, 3), {"padding": (2, 0, 1, 3)}), (16, 17, (1, 1), {"stride": (2, 3)}),
    (8, 10, (3, 3), {"stride": (2, 2), "padding": (1, 1, 1, 1)}), (6, 3, (3, 2), {"stride": (2, 1), "dilation": (2, 3), "padding": (4, 3, 4, 3)}),
    (3, 8, (7, 7), {"stride": (2, 2), "padding": (3, 3, 3, 3)}), (4, 12, (1, 3), {"padding": (0, 5, 0, 5), "stride": (1, 5)}),
    (2, 2, (3, 3), {"padding": (4, 4, 4, 4)}),
)  # fmt: skip


def conv(src, outputs: int, size, dtype: str = "f32", **params) -> Conv2d:
    """A convolution on arguments of a block of its own."""
    types = [(src), (outputs, src[1], *size), (outputs,)]
    block = Block(arg_types=[tensor_type(TensorSpec(d, BY_NAME[dtype])) for d in types])
    return Conv2d.make(list(block.args), {"size": size, **params})


def fits(op: Conv2d, call) -> bool:
    return min(at(d, call) for d in op.result_specs[0].dims) > 0


def arrays_of(op: Conv2d, call, dtype: str = "f32"):
    random = np.random.default_rng(0)
    return [drawn(random, s.dims, call, dtype) for s in op.operand_specs]


def wanted(op: Conv2d, arrays):
    shut = conv(
        arrays[0].shape, arrays[2].shape[0], op.size, "f64", stride=op.stride, padding=op.padding, dilation=op.dilation
    )
    return shut.reference(*(a.astype(np.float64) for a in arrays))


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("features", ["avx512", "avx2"])
def test_windows(window, features):
    channels, outputs, size, params = window
    op = conv((N, channels, H, W), outputs, size, **params)
    run, ran = Run(CpuKernelOp.wrap([op]), features, generator=OPEN_WINDOWS), 0
    for k, (h, w) in enumerate(SIZES):
        call = {"n": 1 + k % 3, "h": h, "w": w}
        if not fits(op, call):
            continue
        arrays, ran = arrays_of(op, call), ran + 1
        agree(run(arrays, call)[0], wanted(op, arrays))
    assert ran


@pytest.mark.parametrize("dims", [(1, 4, H, 20), (2, 4, 9, W), (1, 4, H, 3)], ids=str)
def test_one_size_is_a_number(dims):
    op = conv(dims, 9, (3, 3), padding=(1, 1, 1, 1))
    run = Run(CpuKernelOp.wrap([op]), generator=OPEN_WINDOWS)
    for n in (1, 2, 15, 40):
        call = {s.name: n for d in dims if not isinstance(d, int) for s in d.symbols}
        arrays = arrays_of(op, call)
        agree(run(arrays, call)[0], wanted(op, arrays))


def test_doubles():
    op = conv((N, 3, H, W), 5, (3, 3), "f64", padding=(1, 1, 1, 1))
    run = Run(CpuKernelOp.wrap([op]), generator=OPEN_WINDOWS)
    for h, w in SIZES:
        call = {"n": 2, "h": h, "w": w}
        arrays = arrays_of(op, call, "f64")
        agree(run(arrays, call)[0], wanted(op, arrays), 1e-12)


def test_blocks_share_the_work():
    """Each block by itself, in any order: what threads do."""
    op = conv((N, 3, H, W), 10, (3, 3), padding=(1, 1, 1, 1))
    run, call = Run(CpuKernelOp.wrap([op]), generator=OPEN_WINDOWS), {"n": 2, "h": 5, "w": 65}
    arrays, grid = arrays_of(op, call), at(run.launch.grid, call)
    assert grid == 2 * 5 * 3
    (got,) = run(arrays, call, [(k, k + 1) for k in reversed(range(grid))])
    assert np.array_equal(got, run(arrays, call)[0])
    agree(got, wanted(op, arrays))


@pytest.mark.parametrize("window", WINDOWS[::2], ids=str)
def test_the_interpreter_agrees(window):
    """It checks each index, and rounds twice where the machine multiplies and adds in one step."""
    channels, outputs, size, params = window
    op = conv((N, channels, H, W), outputs, size, **(params | {"padding": params.get("padding", (9, 9, 9, 9))}))
    kernel = CpuKernelOp.wrap([op])
    native, slow = (Run(kernel, interpreted=way, generator=OPEN_WINDOWS) for way in (False, True))
    for h, w in ((1, 1), (3, 17), (2, 34)):
        call = {"n": 1, "h": h, "w": w}
        if fits(op, call):
            arrays = arrays_of(op, call)
            agree(slow(arrays, call)[0], native(arrays, call)[0])


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("outputs", [3, 8, 13])
def test_an_epilogue(outputs: int, in_place: bool):
    """Another map, a number a channel, and what a function makes of it; the map may be where the result goes."""
    op = conv((N, 3, H, W), outputs, (3, 3), padding=(1, 1, 1, 1))
    more, each = extra(op.result_specs[0].dims), extra((outputs, 1, 1))
    first = Add.make([op.results[0], more])
    second = Add.make([first.results[0], each])
    kernel = kernel_of([op, first, second, Relu.make([second.results[0]])], [*op.operands, more, each])
    run = Run(kernel, aliases={0: 3} if in_place else None, generator=OPEN_WINDOWS)
    random = np.random.default_rng(1)
    for h, w in SIZES:
        call = {"n": 2, "h": h, "w": w}
        arrays = arrays_of(op, call)
        x, y = (drawn(random, spec_of(v.type).dims, call) for v in (more, each))
        agree(run([*arrays, x, y], call)[0], np.maximum(wanted(op, arrays) + x + y, 0))


def test_what_it_takes():
    def taken(op):
        machine = SELECTION.machine_of("avx512")
        return SELECTION.choose(CpuKernelOp.wrap([op]), machine, exact=True).plan.generator

    same = {"padding": (1, 1, 1, 1)}
    assert taken(conv((1, 3, H, W), 8, (3, 3), **same)) is OPEN_WINDOWS
    assert not open_conv.accepts([]) and not open_conv.accepts([Relu.make([extra((1, 3, H, W))])])
    assert not open_conv.accepts([conv((1, 3, 8, 8), 8, (3, 3))])  # all numbers
    assert not open_conv.accepts([conv((N, 3, 8, 8), 8, (3, 3))])  # rows: a static kernel's, one after the other
    assert not open_conv.accepts(
        [conv((1, 3, H, W), 8, (3, 3), **same, autopad="SAME_UPPER", stride=(2, 2))]
    )  # padding that a call decides
    block = Block(arg_types=[tensor_type(TensorSpec(d, BY_NAME["f32"])) for d in ((1, 6, H, W), (6, 1, 3, 3), (6,))])
    groups = Conv2d.make(list(block.args), {"size": (3, 3), "group": 6, **same})
    assert taken(groups) is LOOPS
    assert taken(conv((1, 1000, H, W), 8, (3, 3), **same)) is LOOPS  # a panel would not stay in the cache
    assert taken(conv((1, 3, H, W), 8, (3, 3), "f16", **same)) is LOOPS


def test_in_a_network():
    """Two of them with what stands between, on one thread and on three, as one executable."""
    random, kind = np.random.default_rng(2), onnx.TensorProto.FLOAT
    weights = {
        "a": random.standard_normal((20, 3, 3, 3)) / 5, "b": random.standard_normal(20),
        "c": random.standard_normal((7, 20, 3, 3)) / 14, "d": random.standard_normal(7),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "a", "b"], ["p"], pads=[1] * 4, strides=[2, 2]), helper.make_node("Sigmoid", ["p"], ["s"]),
        helper.make_node("Mul", ["p", "s"], ["m"]), helper.make_node("Conv", ["m", "c", "d"], ["y"], pads=[1] * 4),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", kind, ["n", 3, "h", "w"])], [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(v.astype(np.float32), k) for k, v in weights.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    session = onnxruntime.InferenceSession(model)
    for threads in (1, 3):
        dims = {"n": (1, 4), "h": (1, 300), "w": (1, 300)}
        run = lightnet.compile(lightnet.loads(model, ".onnx", dims=dims), threads=threads, layout="plain")
        kernels = [k for k in run.planned.walk() if isinstance(k, KernelOp)]
        assert [choice(k, "alg") for k in kernels if isinstance(k.ops[0], Conv2d)] == ["direct"] * 2
        for shape in ((1, 3, 1, 1), (2, 3, 30, 67), (1, 3, 65, 9)):
            x = random.standard_normal(shape).astype(np.float32)
            agree(run(x)["y"], session.run(None, {"x": x})[0], 1e-4)
