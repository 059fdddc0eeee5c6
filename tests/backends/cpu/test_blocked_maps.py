"""Elementwise kernels on blocked maps against the ops' float64 references."""

from __future__ import annotations

import numpy as np
import pytest
from blocked_kernels import check_blocked, form_of, kernel_of, lay_out
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lightnet.backends.cpu.blocked.base import ProcessorModel
from lightnet.backends.cpu.blocked.maps import MAPS

AVX2 = ProcessorModel(lanes=8, registers=16)
NEON = ProcessorModel(lanes=4)


def tensor(*dims: int) -> str:
    return f"tensor<{'x'.join(map(str, dims))}xf32>"


def unary(op: str, *dims: int) -> tuple[dict[str, str], str]:
    t = tensor(*dims)
    return {"x": t}, f"%y = {op.replace('ARG', '%x')} : {t} ln.yield %y"


def residual(*dims: int) -> tuple[dict[str, str], str]:
    """A sum, its activation, both results."""
    t = tensor(*dims)
    body = f'%s = ln.elew %a, %b {{elew_op = "TL_SUM"}} : {t} %y = ln.relu %s : {t} ln.yield %y'
    return {"a": t, "b": t}, body


SHAPES = [(1, 1, 1, 1), (1, 3, 1, 5), (2, 17, 7, 7), (1, 24, 13, 13), (3, 33, 5, 1), (1, 16, 9, 57), (1, 40, 3, 131)]


@pytest.mark.parametrize("dims", SHAPES, ids=str)
@pytest.mark.parametrize("halos", [((0, 0), (0, 0)), ((1, 1), (0, 0)), ((0, 0), (2, 1)), ((1, 1), (1, 1))], ids=str)
def test_residuals(dims, halos):
    check_blocked(MAPS, *residual(*dims), extra=halos[0], out=halos[1])


@pytest.mark.parametrize(
    "op", ["ln.sigmoid ARG", "ln.silu ARG", "ln.hard_swish ARG", "ln.exp ARG", "ln.lrelu ARG {negslope = 0.1}"]
)
@pytest.mark.parametrize("dims", [(1, 3, 4, 5), (2, 33, 3, 7), (1, 16, 2, 2)], ids=str)
def test_functions_that_do_not_keep_zero_leave_unused_lanes_zero(op, dims):
    for machine in (ProcessorModel(), AVX2, NEON):
        check_blocked(MAPS, *unary(op, *dims), out=(1, 1), machine=machine, tolerance=4e-6)


@pytest.mark.parametrize("dims", [(1, 1, 1, 1), (2, 1, 3, 3), (1, 24, 5, 5), (2, 32, 7, 7)], ids=str)
def test_batch_norm_and_scales_by_channel(dims):
    n, c, _, _ = dims
    t, v, g = tensor(*dims), tensor(c), tensor(n, c, 1, 1)
    body = (
        f"%0 = ln.batchnorm %x, %s, %o, %m, %v : {t} %1 = ln.relu %0 : {t} %2 = ln.mul %1, %g : {t} "
        f"%3 = ln.add %2, %k : {t} ln.yield %3, %1"
    )
    random = np.random.default_rng(3)
    shapes = [dims, (c,), (c,), (c,), (c,), (n, c, 1, 1), (1,)]
    arrays = [random.uniform(0.5, 1.5, s).astype(np.float32) for s in shapes]
    operands = {"x": t, "s": v, "o": v, "m": v, "v": v, "g": g, "k": "tensor<1xf32>"}
    for machine in (ProcessorModel(), AVX2):
        check_blocked(MAPS, operands, body, arrays=arrays, out=(0, 1), machine=machine)


def test_results_take_the_memory_of_operands():
    for dims in ((1, 24, 13, 13), (2, 16, 7, 7)):
        for halo in ((0, 0), (1, 2)):
            check_blocked(MAPS, *residual(*dims), extra=halo, out=halo, aliases={0: 1})
            t = tensor(*dims)
            body = f"%0 = ln.sub %a, %b : {t} %1 = ln.sigmoid %0 : {t} %2 = ln.add %1, %a : {t} ln.yield %0, %2"
            check_blocked(MAPS, {"a": t, "b": t}, body, extra=halo, out=halo, aliases={0: 1, 1: 0})


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.tuples(st.integers(1, 2), st.integers(1, 40), st.integers(1, 20), st.integers(1, 40)),
    st.tuples(st.integers(0, 3), st.integers(0, 3)), st.tuples(st.integers(0, 3), st.integers(0, 3)),
    st.sampled_from([ProcessorModel(), AVX2, NEON]), st.sampled_from(["ln.relu", "ln.sigmoid", "ln.abs"]),
)  # fmt: skip
def test_any_shape(dims, extra, out, machine, op):
    t = tensor(*dims)
    body = f"%0 = ln.add %a, %b : {t} %1 = {op} %0 : {t} %2 = ln.mul %1, %g : {t} ln.yield %2"
    operands = {"a": t, "b": t, "g": tensor(1, dims[1], 1, 1)}
    check_blocked(MAPS, operands, body, extra=extra, out=out, machine=machine, tolerance=4e-6)


@pytest.mark.parametrize(
    "operands, body",
    [
        ({"x": "tensor<1x3x4x5xf64>"}, "%y = ln.relu %x : tensor<1x3x4x5xf64> ln.yield %y"),
        ({"x": "tensor<3x4x5xf32>"}, "%y = ln.relu %x : tensor<3x4x5xf32> ln.yield %y"),
        ({"x": tensor(1, 3, 4, 5), "q": tensor(4, 5)}, f"%y = ln.add %x, %q : {tensor(1, 3, 4, 5)} ln.yield %y"),
        ({"x": tensor(1, 3, 4, 5)}, f"%y = ln.softmax %x {{axis = 3}} : {tensor(1, 3, 4, 5)} ln.yield %y"),
    ],
    ids=["f64", "3-d", "rows", "softmax"],
)
def test_other_bodies_are_left_to_others(operands, body):
    kernel = kernel_of(operands, body)
    assert form_of(MAPS, kernel) is None


@pytest.mark.parametrize("machine", [ProcessorModel(), AVX2, NEON], ids=lambda m: f"{m.lanes} lanes")
@pytest.mark.parametrize("rows, cols", [(1, 1), (9, 57), (40, 97), (300, 7), (64, 64), (3, 600), (50, 130)])
def test_a_block_of_the_grid_is_what_the_first_cache_holds(rows, cols, machine):
    """Of each operand as many whole rows as there are in 32 KiB, one at least: the bands are no more than that takes,
    and no fewer."""
    kernel = kernel_of(*unary("ln.relu ARG", 2, 3 * machine.lanes, rows, cols))
    plan = lay_out(kernel, MAPS, machine, extra=(1, 1))  # a halo keeps rows apart
    (launch,) = plan.build(kernel, "k", {})
    row = np.zeros((cols, machine.lanes), np.float32).nbytes
    band = max(k for k in range(1, rows + 1) if k == 1 or k * row <= 32 << 10)
    assert launch.grid == 2 * 3 * len(range(0, rows, band))
