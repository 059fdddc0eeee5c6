"""Matrix products with packed weights against float64 NumPy, alone and with an epilogue."""

from __future__ import annotations

from math import prod
from pathlib import Path

import numpy as np
import pytest
from blocked_kernels import check_blocked, form_of, kernel_of, lay_out, planned
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lightnet
from lightnet.backends.cpu.blocked.base import ProcessorModel
from lightnet.backends.cpu.blocked.dense import DENSE
from lightnet.backends.cpu.blocked.dense_model import (
    CHAINS,
    FEW,
    TILES,
    TRIP,
    best_dense_tile,
    dense_schedule_of,
    product_time,
    tile_time,
)
from lightnet.backends.cpu.registers import MOST_BODY
from lightnet.diagnostics import LightNetError
from lightnet.dialects.tile import LoadOp, PrefetchOp
from lightnet.ir.body import choice
from lightnet.ir.kernel import KernelOp
from lightnet.ir.types import ParamAttr

MACHINES = [ProcessorModel(), ProcessorModel(lanes=8, registers=16), ProcessorModel(lanes=4)]


def tensor(*dims: int) -> str:
    return f"tensor<{'x'.join(map(str, dims))}xf32>"


def product(a: tuple[int, ...], n: int, *extra: str) -> tuple[dict[str, str], str]:
    """A product, plus a bias, an activation and a residual as asked for."""
    t, last = tensor(*a[:-1], n), "y"
    operands, body = {"a": tensor(*a), "b": tensor(a[-1], n)}, f"%y = ln.matmul %a, %b : {t} "
    for kind in extra:
        if kind == "residual":
            operands[kind] = t
            body += f"%{last}r = ln.add %{kind}, %{last} : {t} "
            last += "r"
        elif kind == "bias":
            operands[kind] = tensor(n)
            body += f"%{last}b = ln.add %{last}, %bias : {t} "
            last += "b"
        else:
            body += f"%{last}a = ln.{kind} %{last} : {t} "
            last += "a"
    return operands, body + f"ln.yield %{last}"


SHAPES = [((1, 784), 512), ((1, 37), 130), ((3, 4), 5), ((8, 33), 70), ((7, 40), 64), ((13, 20), 1000), ((50, 41), 101),
          ((2, 3, 9), 19), ((4, 1, 30), 48), ((1, 1), 2), ((33, 64), 17), ((1, 1), 300), ((1, 251), 10), ((2, 77), 200),
          ((3, 5), 65), ((4, 131), 64), ((4, 1), 33), ((5, 31), 66)]  # fmt: skip


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("a, n", SHAPES, ids=str)
@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: f"{m.lanes} lanes")
def test_products(a, n, machine):
    check_blocked(DENSE, *product(a, n), machine=machine)
    check_blocked(DENSE, *product(a, n, "bias", "relu", "residual"), machine=machine)


@pytest.mark.parametrize("m, k, n", [(30, 3000, 70), (61, 2560, 64), (25, 5120, 20)])
def test_long_sums_wait_in_scratch(m, k, n):
    kernel = check_blocked(DENSE, *product((m, k), n, "bias", "relu"), tolerance=4e-6)
    assert planned(DENSE, kernel).scratch_bytes > 0 or n == 20


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: f"{m.lanes} lanes")
@pytest.mark.parametrize("m, k, n", [(1, 784, 512), (3, 100, 40), (4, 9, 1000), (5, 784, 512), (64, 64, 64)])
def test_few_rows_fetch_what_they_read_ahead(m, k, n, machine):
    """A trip asks for as many bytes as it reads, and reads few; products of more rows leave that to the processor."""
    kernel = kernel_of(*product((m, k), n))
    (launch,) = lay_out(kernel, DENSE, machine).build(kernel, "kernel", {})
    fetches = [op for op in launch.function.walk() if isinstance(op, PrefetchOp)]
    assert bool(fetches) == (m <= FEW)
    matrix = launch.function.body.block.args[3]
    for fetch in fetches:
        loads = [op for op in fetch.parent.ops if isinstance(op, LoadOp) and op.memref is matrix]
        read = 4 * sum(prod(op.result.type.get_shape()) for op in loads)
        assert fetch.memref is matrix and fetch.bytes.value.data == read <= TRIP


@given(st.integers(1, 64), st.integers(1, 64), st.integers(1, 3000), st.sampled_from(MACHINES))
def test_trips_have_sums_that_do_not_wait(m, vectors, k, machine):
    """A trip has a step of K at least, none beyond K, and in narrow tiles of few rows sums of their own for parts of its steps."""
    plan = dense_schedule_of(m, k, vectors * machine.lanes, (min(m, 6), vectors), machine.lanes, 1)
    steps, parts = plan.trip(plan.rows)
    assert 1 <= parts <= steps <= plan.depth
    assert parts * plan.rows * vectors >= min(CHAINS, steps) or not plan.few
    if plan.few:  # as much of B as is fetched ahead at once
        assert steps * plan.columns * 4 <= TRIP or steps == 1
    else:  # a body that the processor's buffers hold, and no more sums than the tile has
        assert parts == 1 and (steps * plan.rows * vectors <= MOST_BODY or steps == 1) and steps <= 8
        assert steps == min(8, plan.depth) or (steps + 1) * plan.rows * vectors > MOST_BODY


@pytest.mark.parametrize("registers", TILES)
def test_tiles_fit_into_registers(registers):
    """Its sums, a row of B and an element of A at once, or sums are spilled; and they take most of the registers."""
    for (rows, vectors), share in TILES[registers]:
        assert 0.7 * registers <= rows * vectors <= registers - vectors - 1 and 0 < share < 1


def test_a_model_of_time_for_few_rows():
    """Up to four rows cost little more than reading B, which depends on the cache that has it; many cost what their sums cost."""
    for k, n in ((2048, 1000), (784, 512)):
        one, *others = (
            product_time(m, k, n, best_dense_tile(m, n, ProcessorModel()), ProcessorModel()) for m in range(1, FEW + 1)
        )
        assert all(one <= other < 1.15 * one for other in others)
    near, far = (product_time(1, k, 512, (1, 4), ProcessorModel()) for k in (400, 800))
    assert far > 3 * near
    sums = 2 * 512**3 / ProcessorModel().flops
    assert (
        sums < product_time(512, 512, 512, best_dense_tile(512, 512, ProcessorModel()), ProcessorModel()) < 1.1 * sums
    )


@pytest.mark.parametrize("registers", TILES)
def test_a_model_of_time_by_rows(registers):
    """A tile of one row costs as much as one of two, since it reads the panel as well; beyond, tiles cost what their
    sums cost."""
    for rows, vectors in dict(TILES[registers]):
        one, *others = (tile_time(m, 1000, rows, vectors, 16, registers) for m in range(1, 2 * rows + 1))
        assert others == pytest.approx([one * m / 2 for m in range(2, 2 * rows + 1)])


def test_results_take_the_memory_of_a_residual():
    for m, k, n in ((9, 20, 70), (30, 3000, 70)):
        check_blocked(DENSE, *product((m, k), n, "relu", "residual"), aliases={0: 2}, tolerance=1e-5)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.integers(1, 40), st.integers(1, 60), st.integers(2, 200), st.sampled_from([(1, 1), (6, 4), (8, 3), (12, 2), (5, 1)]),
    st.sampled_from(MACHINES),
)  # fmt: skip
def test_any_shape_and_tile(m, k, n, tile, machine):
    tile = (min(tile[0], m), min(tile[1], -(-n // machine.lanes)))
    check_blocked(
        DENSE, *product((m, k), n, "bias"), choices={"tile": ParamAttr(tile)}, machine=machine, tolerance=4e-6
    )


@pytest.mark.parametrize(
    "operands, body",
    [
        ({"a": tensor(3, 4, 5), "b": tensor(3, 5, 6)}, f"%y = ln.matmul %a, %b : {tensor(3, 4, 6)} ln.yield %y"),
        ({"a": tensor(5, 5)}, f"%y = ln.matmul %a, %a : {tensor(5, 5)} ln.yield %y"),
        ({"a": tensor(4, 5), "b": tensor(5, 1)}, f"%y = ln.matmul %a, %b : {tensor(4, 1)} ln.yield %y"),
        ({"a": "tensor<4x5xf64>", "b": "tensor<5x6xf64>"}, "%y = ln.matmul %a, %b : tensor<4x6xf64> ln.yield %y"),
    ],
    ids=["batch", "one operand", "a column", "f64"],
)
def test_other_products_are_left_to_others(operands, body):
    kernel = kernel_of(operands, body)
    assert form_of(DENSE, kernel) is None


@pytest.mark.parametrize("plan, expected", [("default", {"packed"}), ("upstream", {None})])
def test_static_weights_are_packed_unless_the_plan_is_given(plan, expected):
    """Where `pack` does not run (upstream's plans), weights are read as they lie."""
    model = lightnet.load(str(Path(__file__).parents[3] / "examples/nets/mlp.net"))
    executable = lightnet.compile(model, plan=plan)
    kernels = [op for op in executable._compilation.planned.walk() if isinstance(op, KernelOp)]
    assert {choice(k, "alg") for k in kernels} == expected  # upstream: chosen behind the plan, for plain weights
    feeds = {"input": np.random.default_rng(1).standard_normal((1, 784)).astype(np.float32)}
    got, want = executable(feeds), lightnet.compile(model, target="none")(feeds)
    np.testing.assert_allclose(got["classes"], want["classes"], atol=1e-5)


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_no_bit(threads):
    model = lightnet.load(str(Path(__file__).parents[3] / "examples/nets/mlp.net"))
    feeds = {"input": np.random.default_rng(2).standard_normal((1, 784)).astype(np.float32)}
    want = lightnet.compile(model)(feeds)["classes"]
    executable = lightnet.compile(model, threads=threads)
    assert executable.program.widest > 1
    for _ in range(20):
        assert np.array_equal(executable(feeds)["classes"], want)


@pytest.mark.parametrize("tile", [(0, 4), (4, -1), (1,), (1, 2, 3), (65, 1), (1000, 1000)], ids=str)
def test_tiles_that_cannot_be_are_refused(tile):
    with pytest.raises(LightNetError, match="tile"):
        check_blocked(DENSE, *product((9, 20), 70), choices={"tile": ParamAttr(tile)})
