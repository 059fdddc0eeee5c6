"""Concatenations, slices and shuffles of channels on blocked maps against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from blocked_kernels import check_blocked, form_of, kernel_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lightnet.backends.cpu.blocked.base import ProcessorModel
from lightnet.backends.cpu.blocked.channels import CHANNELS, channel_sources, runs_of

MACHINES = [ProcessorModel(), ProcessorModel(lanes=8, registers=16), ProcessorModel(lanes=4)]


def tensor(*dims: int) -> str:
    return f"tensor<{'x'.join(map(str, dims))}xf32>"


def concat(n, parts, h, w):
    operands = {f"x{i}": tensor(n, c, h, w) for i, c in enumerate(parts)}
    names = ", ".join(f"%{k}" for k in operands)
    return operands, f"%y = ln.concat {names} {{axis = 1}} : {tensor(n, sum(parts), h, w)} ln.yield %y"


def part(n, c, start, count, h, w):
    t = tensor(n, count, h, w)
    return {"x": tensor(n, c, h, w)}, f"%y = ln.slice %x {{axis = 1, start = {start}, len = {count}}} : {t} ln.yield %y"


def interleave(n, c, h, w):
    """The shuffle of two halves, as `subgraph` leaves it."""
    half, body = tensor(n, c, h, w), ""
    for k in "ab":
        body += f"%{k}1 = ln.reshape %{k} : {tensor(n, c, 1, h, w)} "
    body += f"%c = ln.concat %a1, %b1 {{axis = 2}} : {tensor(n, c, 2, h, w)} "
    return {"a": half, "b": half}, body + f"%y = ln.reshape %c : {tensor(n, 2 * c, h, w)} ln.yield %y"


def shuffle(n, c, groups, h, w):
    """The shuffle of one map."""
    return {"x": tensor(n, c, h, w)}, (
        f"%0 = ln.reshape %x : {tensor(n, groups, c // groups, h, w)} "
        f"%1 = ln.transpose %0 {{axes = [0, 2, 1, 3, 4]}} : {tensor(n, c // groups, groups, h, w)} "
        f"%y = ln.reshape %1 : {tensor(n, c, h, w)} ln.yield %y"
    )


BODIES = [
    concat(1, (24, 24), 7, 7), concat(2, (1, 3, 33), 3, 5), concat(1, (17, 16, 15), 1, 1), concat(2, (16, 32), 4, 4),
    part(1, 48, 24, 24, 5, 5), part(2, 33, 1, 17, 3, 3), part(1, 40, 0, 20, 2, 9), part(3, 64, 16, 32, 1, 1),
    interleave(1, 24, 7, 7), interleave(2, 58, 3, 3), interleave(1, 16, 1, 70), interleave(1, 3, 4, 4),
    shuffle(1, 24, 2, 5, 5), shuffle(2, 60, 3, 3, 3), shuffle(1, 32, 8, 2, 2),
]  # fmt: skip


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("number", range(len(BODIES)))
@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: f"{m.lanes} lanes")
def test_moves_of_channels(number, machine):
    for extra, out in (((0, 0), (0, 0)), ((1, 1), (0, 0)), ((0, 0), (1, 2))):
        check_blocked(CHANNELS, *BODIES[number], extra=extra, out=out, machine=machine, tolerance=0)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=4),
    st.integers(0, 30),
    st.integers(1, 9),
    st.sampled_from(MACHINES),
)
def test_any_slice_of_any_concatenation(parts, start, width, machine):
    total = sum(parts)
    start = min(start, total - 1)
    operands, body = concat(1, parts, 3, width)
    body = body.replace("ln.yield %y", "")
    body += f"%z = ln.slice %y {{axis = 1, start = {start}, len = {total - start}}} : {tensor(1, total - start, 3, width)} ln.yield %z"
    check_blocked(CHANNELS, operands, body, machine=machine, tolerance=0)


def test_a_shuffle_has_few_runs_of_code():
    """The halves of a channel shuffle alternate: even and odd blocks, however many there are."""
    kernel = kernel_of(*interleave(1, 480, 2, 2))
    found = channel_sources(kernel.ops, list(kernel.terminator.operands))
    assert found is not None
    assert [run.count for run in runs_of(found[1], 16)] == [30, 30]
    assert [(s, c) for s, c in found[1][:4]] == [(0, 0), (1, 0), (0, 1), (1, 1)]


@pytest.mark.parametrize(
    "operands, body",
    [
        ({"x": tensor(1, 4, 4, 4)}, f"%y = ln.transpose %x {{axes = [0, 2, 3, 1]}} : {tensor(1, 4, 4, 4)} ln.yield %y"),
        (
            {"x": tensor(2, 4, 4, 4)},
            f"%0 = ln.reshape %x : {tensor(8, 4, 4)} %1 = ln.reshape %0 : {tensor(1, 8, 4, 4)} ln.yield %1",
        ),
        (
            {"x": tensor(1, 4, 4, 4)},
            f"%y = ln.slice %x {{axis = 2, start = 0, len = 2}} : {tensor(1, 4, 2, 4)} ln.yield %y",
        ),
        ({"x": tensor(1, 4, 4, 4)}, f"%y = ln.reshape %x : {tensor(1, 4, 2, 8)} ln.yield %y"),
    ],
    ids=["pixels move", "pictures move", "rows", "other pixels"],
)
def test_other_moves_are_left_to_others(operands, body):
    kernel = kernel_of(operands, body)
    assert form_of(CHANNELS, kernel) is None


@pytest.mark.parametrize("picks", [[3, 3, 9, 15, 0, 8, 1, 7], [12], [1, 9, 3]], ids=len)
def test_shuffles_of_registers_agree_with_the_interpreter(picks):
    """`vector.shuffle` in the emitter, in the interpreter and in NumPy."""
    from level4_runner import run
    from xdsl.dialects.builtin import MemRefType, ModuleOp, f32

    from lightnet.backends.builder import Builder

    b = Builder.kernel("k", [MemRefType(f32, [16]), MemRefType(f32, [len(picks)])], opt="none")
    x, y = b.args
    first, second = (b.tile_load(x, [i], [0], [8]) for i in (0, 8))
    b.tile_store(b.shuffle(first, second, picks), y, [0], [0])
    data = np.arange(16, dtype=np.float32)
    _, got = run(ModuleOp([b.finish()]), [data, np.zeros(len(picks), np.float32)])
    assert (got == data[picks]).all()
