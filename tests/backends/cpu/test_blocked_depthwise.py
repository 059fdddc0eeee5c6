"""Depthwise convolution on blocked maps against float64 references, and against PyTorch."""

from __future__ import annotations

from collections import Counter
from math import prod

import numpy as np
import pytest
from blocked_kernels import check_blocked, form_of, kernel_of, lay_out
from blocked_windows import EPILOGUES, MACHINES, convolution
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from xdsl.dialects import vector
from xdsl.ir import Block

from lightnet.backends.cpu.blocked.base import ProcessorModel
from lightnet.backends.cpu.blocked.depthwise import BODY, DEPTHWISE, TAPS, WIDTH
from lightnet.diagnostics import LightNetError
from lightnet.ir.types import ParamAttr, vector_type_of


def depthwise(src, size=(3, 3), stride=(1, 1), dilation=(1, 1), pad=(1, 1, 1, 1), epilogue="relu"):
    return convolution(src, src[1], size, stride, dilation, pad, src[1], epilogue)


SHAPES = [
    ((1, 1, 1, 1), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    ((2, 3, 7, 7), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),  # two rows a tile, and one left over
    ((1, 17, 8, 7), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    ((1, 24, 13, 29), (3, 3), (2, 2), (1, 1), (1, 0, 0, 1)),  # a width that no tile divides
    ((1, 33, 11, 31), (5, 5), (2, 1), (1, 1), (2, 2, 2, 2)),  # rows of taps in a loop
    ((1, 16, 30, 15), (3, 3), (3, 3), (2, 3), (2, 3, 0, 1)),
    ((1, 20, 20, 30), (1, 17), (1, 1), (1, 1), (0, 8, 0, 8)),
    ((2, 5, 9, 40), (19, 19), (1, 1), (1, 1), (9, 9, 9, 9)),  # taps in two loops
    ((1, 32, 9, 9), (1, 1), (2, 2), (1, 1), (0, 0, 0, 0)),
    ((1, 16, 120, 20), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),  # bands of rows
]


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("machine", MACHINES, ids=["avx512", "avx2", "neon"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_windows(shape, machine):
    check_blocked(DEPTHWISE, *depthwise(*shape), machine=machine)


@pytest.mark.sampled(every=7)
@pytest.mark.parametrize("epilogue", EPILOGUES)
@pytest.mark.parametrize("src", [(2, 33, 5, 9), (1, 1, 1, 1), (1, 16, 7, 7)], ids=str)
def test_epilogues(epilogue, src):
    check_blocked(DEPTHWISE, *depthwise(src, epilogue=epilogue), extra=(0, 1), out=(1, 2), tolerance=4e-6)


@pytest.mark.parametrize("src", [(1, 24, 7, 7), (1, 16, 5, 29)], ids=str)
def test_a_result_in_the_memory_of_the_residual(src):
    """Tiles must not overlap then: what was overwritten would be added again."""
    for machine in MACHINES:
        check_blocked(DEPTHWISE, *depthwise(src, epilogue="residual"), machine=machine, aliases={0: 3})


@pytest.mark.parametrize("stride, pad, size", [(1, 1, 3), (2, 2, 5), (2, 0, 3)])
def test_pytorch_agrees(stride, pad, size):
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(5)
    shapes = [(2, 24, 13, 17), (24, 1, size, size), (24,)]
    x, w, b = arrays = [random.standard_normal(s).astype(np.float32) for s in shapes]
    x, w, b = (torch.from_numpy(a).double() for a in (x, w, b))
    expected = torch.nn.functional.conv2d(x, w, b, stride, pad, groups=24).relu().numpy()
    body = depthwise(shapes[0], (size, size), (stride, stride), pad=[pad] * 4)
    check_blocked(DEPTHWISE, *body, arrays=arrays, expected=[expected])


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.tuples(st.integers(1, 2), st.integers(1, 40), st.integers(1, 20), st.integers(1, 40)),
    st.tuples(st.integers(1, 6), st.integers(1, 6)), st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.integers(1, 3), st.integers(1, 3)), st.tuples(*[st.integers(0, 4)] * 4),
    st.sampled_from(sorted(EPILOGUES)), st.sampled_from(MACHINES), st.tuples(st.integers(0, 2), st.integers(0, 2)),
)  # fmt: skip
def test_any_window(src, size, stride, dilation, pad, epilogue, machine, halo):
    assume(all(src[2 + i] + pad[i] + pad[i + 2] > (size[i] - 1) * dilation[i] for i in (0, 1)))
    body = depthwise(src, size, stride, dilation, pad, epilogue)
    check_blocked(DEPTHWISE, *body, extra=halo, out=halo[::-1], machine=machine, tolerance=4e-6)


@pytest.mark.parametrize("tile", [(1, 1), (1, 14), (2, 7), (1, 25)], ids=str)
@pytest.mark.parametrize(
    "size", [(1, 9), (1, 11), (1, 17), (1, 18), (1, 32), (1, 33), (3, 3), (3, 17), (5, 5), (17, 1)], ids=str
)
def test_bodies_are_unrolled_as_far_as_they_may(size, tile):
    """All taps, those of a row, or one by one: the multiply-adds of each tile between two loops are counted in the code."""
    kernel = kernel_of(*depthwise((1, 16, 14, 50), size, pad=(size[0] // 2, size[1] // 2) * 2))
    kernel.attributes["tile"] = ParamAttr(tile)
    plan = lay_out(kernel, DEPTHWISE, ProcessorModel())
    counted: dict[tuple[Block | None, tuple[int, ...]], int] = Counter()
    for launch in plan.build(kernel, "kernel", {}):
        for op in launch.function.walk():
            if isinstance(op, vector.FMAOp):
                counted[op.parent, vector_type_of(op.res).get_shape()[:2]] += 1
    assert any(shape == tile for _, shape in counted)
    for (_, (rows, columns)), taps in counted.items():
        pixels = rows * columns
        assert taps in (1, size[1], prod(size)) and taps <= WIDTH and taps <= max(TAPS, size[1])
        assert taps == 1 or taps * pixels <= BODY
        assert taps >= size[1] or size[1] > WIDTH or size[1] * pixels > BODY


def test_choices_are_kept_or_refused():
    for tile in ((1, 5), (3, 4), (1, 17), (13, 1)):
        body = depthwise((1, 16, 13, 17))
        kernel = check_blocked(DEPTHWISE, *body, choices={"tile": ParamAttr(tile)})
        assert kernel.attributes["tile"] == ParamAttr(tile)
    for tile in ((1, 18), (0, 1), (1, 2, 3), (13, 17), "1x4", (1.5, 2), 7, ("a", "b")):
        kernel = kernel_of(*depthwise((1, 16, 13, 17)))
        kernel.attributes["tile"] = ParamAttr(tile)
        with pytest.raises(LightNetError, match=r"a depthwise kernel takes|expected an array"):
            lay_out(kernel, DEPTHWISE, ProcessorModel())


@pytest.mark.parametrize(
    "body",
    [
        convolution((1, 16, 5, 5), 32, (3, 3), group=16),
        convolution((1, 16, 5, 5), 16, (3, 3), group=8),
        depthwise((1, 16, 90, 90), (3, 3), dilation=(70, 70), pad=(70, 70, 70, 70)),
        ({"x": "tensor<1x8x4x5xf32>"}, "%y = ln.relu %x : tensor<1x8x4x5xf32> ln.yield %y"),
    ],
    ids=["multiplier", "groups", "halo", "relu"],
)
def test_other_bodies_are_left_to_others(body):
    kernel = kernel_of(*body)
    assert form_of(DEPTHWISE, kernel) is None
