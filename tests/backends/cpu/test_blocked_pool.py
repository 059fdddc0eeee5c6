"""Pools and reductions over rows and columns on blocked maps against float64 references, and against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from blocked_kernels import check_blocked, form_of, kernel_of
from blocked_windows import EPILOGUES, MACHINES, out_dim, tensor, with_epilogue
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from lightnet.backends.cpu.blocked.pool import POOL
from lightnet.dialects.ln.window import ceil_output_dim


def pool(kind, src, size, stride=(1, 1), pad=(0, 0, 0, 0), epilogue="none"):
    """A maxpool2d or avgpool2d; `pad` is [top, left, bottom, right]."""
    out = [out_dim(src[2 + i], size[i], stride[i], 1, pad[i] + pad[i + 2]) for i in (0, 1)]
    line = f"ln.{kind}pool2d %x {{size = {list(size)}, stride = {list(stride)}, padding = {list(pad)}}}"
    return with_epilogue({"x": tensor(*src)}, line, (*src[:2], *out), epilogue)


def general_pool(kind, src, size, stride, dilation, pad, ceil, counted):
    """A maxpool or avgpool over two axes."""
    count = ceil_output_dim if ceil else lambda n, k, s, a, b, d: out_dim(n, k, s, d, a + b)
    out = [count(src[2 + i], size[i], stride[i], pad[i], pad[i + 2], dilation[i]) for i in (0, 1)]
    params = f"size = {list(size)}, stride = {list(stride)}, dilation = {list(dilation)}, padding = {list(pad)}"
    params += f", ceil = {str(ceil).lower()}" + (
        f", count_include_pad = {str(counted).lower()}" if kind == "avg" else ""
    )
    return with_epilogue({"x": tensor(*src)}, f"ln.{kind}pool %x {{{params}}}", (*src[:2], *out), "none")


SHAPES = [
    ((1, 1, 1, 1), (1, 1), (1, 1), (0, 0, 0, 0)),
    ((1, 3, 16, 16), (3, 3), (2, 2), (1, 1, 1, 1)),
    ((2, 17, 13, 29), (2, 2), (2, 2), (0, 0, 0, 0)),
    ((1, 24, 13, 13), (13, 13), (1, 1), (6, 6, 6, 6)),
    ((1, 33, 7, 40), (3, 2), (1, 3), (0, 1, 2, 0)),
    ((1, 16, 40, 9), (5, 1), (1, 1), (2, 0, 2, 0)),  # one column wide: no second pass
    ((1, 16, 9, 40), (1, 21), (1, 1), (0, 20, 0, 20)),
    ((1, 16, 120, 31), (3, 3), (1, 1), (1, 1, 1, 1)),  # bands of rows
    ((1, 16, 5, 5), (3, 3), (4, 4), (0, 0, 0, 0)),
]


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("machine", MACHINES, ids=["avx512", "avx2", "neon"])
@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_windows(shape, kind, machine):
    check_blocked(POOL, *pool(kind, *shape), machine=machine)


@pytest.mark.sampled(every=3, share=0.2)
@pytest.mark.parametrize("epilogue", EPILOGUES)
@pytest.mark.parametrize("kind, pad", [("max", 1), ("avg", 0)])
def test_epilogues(epilogue, kind, pad):
    for size in ((3, 3), (5 + 2 * pad, 9 + 2 * pad)):
        if pad and size[0] > 3:
            continue
        body = pool(kind, (2, 33, 5, 9), size, pad=[pad] * 4, epilogue=epilogue)
        check_blocked(POOL, *body, out=(1, 2), tolerance=4e-6)


@pytest.mark.parametrize("op", ["reduce_max", "reduce_min", "reduce_sum", "reduce_mean"])
@pytest.mark.parametrize("src", [(1, 1, 1, 1), (2, 33, 7, 7), (1, 16, 3, 43), (1, 24, 29, 1)], ids=str)
def test_reductions_over_rows_and_columns(op, src):
    for machine in MACHINES:
        body = with_epilogue({"x": tensor(*src)}, f"ln.{op} %x {{axes = [3, 2]}}", (*src[:2], 1, 1), "sigmoid")
        check_blocked(POOL, *body, extra=(1, 0), out=(0, 1), machine=machine)


def test_a_result_in_the_memory_of_the_residual():
    for shape in ((1, 24, 7, 29), (1, 24, 20, 15)):
        for machine in MACHINES:
            body = pool("max", shape, (3, 3), pad=(1, 1, 1, 1), epilogue="residual")
            check_blocked(POOL, *body, machine=machine, aliases={0: 1})


@pytest.mark.parametrize("where", [(0, 0), (3, 4), (6, 8), (6, 0)], ids=str)
def test_nan_and_infinity_reach_all_windows_around_them(where):
    x = np.random.default_rng(2).standard_normal((1, 17, 7, 9)).astype(np.float32)
    x[0, 3, *where], x[0, 5, *where], x[0, 16] = np.nan, -np.inf, -np.inf
    x[0, 16, *where] = -3
    for machine in MACHINES:
        for body in (
            pool("max", x.shape, (3, 3), pad=(1, 1, 1, 1)),
            pool("max", x.shape, (7, 1), (1, 2), (3, 0, 3, 0)),
        ):
            check_blocked(POOL, *body, arrays=[x], machine=machine)
        line = {"x": tensor(*x.shape)}, "ln.reduce_max %x {axes = [2, 3]}", (1, 17, 1, 1), "none"
        check_blocked(POOL, *with_epilogue(*line), arrays=[x], machine=machine)


@pytest.mark.parametrize(
    "kind, size, stride, pad", [("max", 3, 2, 1), ("avg", 3, 2, 1), ("max", 13, 1, 6), ("avg", 2, 2, 0)]
)
def test_pytorch_agrees(kind, size, stride, pad):
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(5).standard_normal((2, 24, 13, 29)).astype(np.float32)
    if kind == "max":
        expected = torch.nn.functional.max_pool2d(torch.from_numpy(x), size, stride, pad)
    else:
        expected = torch.nn.functional.avg_pool2d(
            torch.from_numpy(x).double(), size, stride, pad, count_include_pad=False
        )
    check_blocked(
        POOL, *pool(kind, x.shape, (size, size), (stride, stride), [pad] * 4), arrays=[x], expected=[expected.numpy()]
    )


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.tuples(st.integers(1, 2), st.integers(1, 40), st.integers(1, 20), st.integers(1, 40)), st.sampled_from(["max", "avg"]),
    st.tuples(st.integers(1, 7), st.integers(1, 7)), st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.tuples(st.integers(1, 3), st.integers(1, 3)), st.tuples(*[st.integers(0, 6)] * 4), st.booleans(), st.booleans(),
    st.sampled_from(MACHINES), st.tuples(st.integers(0, 2), st.integers(0, 2)),
)  # fmt: skip
def test_any_window(src, kind, size, stride, dilation, pad, ceil, counted, machine, halo):
    assume(all(src[2 + i] + pad[i] + pad[i + 2] > (size[i] - 1) * dilation[i] for i in (0, 1)))
    body = general_pool(kind, src, size, stride, dilation, pad, ceil, counted)
    kernel = kernel_of(*body)
    assume(form_of(POOL, kernel, machine) is not None)
    check_blocked(POOL, *body, extra=halo, out=halo[::-1], machine=machine, tolerance=4e-6)


def test_other_bodies_are_left_to_others():
    t = tensor(1, 8, 4, 5)
    bodies = [
        ({"x": t}, f"%y = ln.reduce_mean %x {{axes = [1]}} : {tensor(1, 1, 4, 5)} ln.yield %y"),
        ({"x": t}, f"%y = ln.relu %x : {t} ln.yield %y"),
        (
            {"x": t.replace("f32", "f64")},
            f"%y = ln.maxpool2d %x {{size = [1, 1]}} : {t.replace('f32', 'f64')} ln.yield %y",
        ),
        # a window that lies in the padding alone
        general_pool("max", (1, 8, 4, 5), (1, 1), (2, 2), (1, 1), (2, 2, 2, 2), False, False),
        general_pool("max", (1, 8, 1, 1), (2, 1), (1, 1), (2, 1), (1, 0, 1, 0), False, False),
    ]
    for body in bodies:
        kernel = kernel_of(*body)
        assert form_of(POOL, kernel) is None
