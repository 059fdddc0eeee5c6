"""Blocked maps to plain tensors with the channels last, against the ops' references."""

from __future__ import annotations

import pytest
from blocked_kernels import check_blocked, form_of, kernel_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lightnet.backends.cpu.blocked.base import ProcessorModel
from lightnet.backends.cpu.blocked.nhwc import NHWC, layout_chain_of

MACHINES = [ProcessorModel(), ProcessorModel(lanes=8, registers=16), ProcessorModel(lanes=4)]


def tensor(*dims: int) -> str:
    return f"tensor<{'x'.join(map(str, dims))}xf32>"


def last(n, c, h, w):
    return {"x": tensor(n, c, h, w)}, f"%y = ln.transpose %x {{axes = [0, 2, 3, 1]}} : {tensor(n, h, w, c)} ln.yield %y"


def head(n, c, start, anchors, values, h, w, function=None, flat=False):
    """What a detection head does: some channels, split into anchors, last."""
    count = anchors * values
    body = f"%s = ln.slice %x {{axis = 1, start = {start}, len = {count}}} : {tensor(n, count, h, w)} "
    name = "s"
    if function:
        body += f"%f = ln.{function} %s : {tensor(n, count, h, w)} "
        name = "f"
    t = tensor(n, h, w, anchors, values)
    body += f"%r = ln.reshape %{name} : {tensor(n, anchors, values, h, w)} %t = ln.transpose %r {{axes = [0, 3, 4, 1, 2]}} : {t} "
    if flat:
        body += f"%g = ln.relu %t : {t} %y = ln.reshape %g : {tensor(n * h * w * count)} "
    return {"x": tensor(n, c, h, w)}, body + ("ln.yield %y" if flat else "ln.yield %t")


BODIES = [
    last(1, 24, 5, 7), last(2, 3, 3, 4), last(1, 33, 1, 1), last(1, 16, 13, 3), last(1, 255, 2, 2), head(1, 72, 27, 9, 1, 3, 5),
    head(2, 72, 36, 9, 4, 2, 2), head(1, 40, 5, 3, 3, 4, 1, "sigmoid"), head(1, 20, 0, 2, 9, 3, 3, "silu", True)
]  # fmt: skip


@pytest.mark.sampled(every=4, share=0.2)
@pytest.mark.parametrize("number", range(len(BODIES)))
@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: f"{m.lanes} lanes")
def test_channels_last(number, machine):
    for extra in ((0, 0), (1, 2)):
        check_blocked(NHWC, *BODIES[number], extra=extra, machine=machine)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.integers(1, 2),
    st.integers(1, 5),
    st.integers(1, 20),
    st.integers(0, 20),
    st.integers(1, 9),
    st.sampled_from(MACHINES),
)
def test_any_head(n, anchors, values, start, width, machine):
    check_blocked(
        NHWC, *head(n, start + anchors * values + 1, start, anchors, values, 2, width), machine=machine, tolerance=0
    )


def test_channels_in_another_order():
    body = (
        f"%r = ln.reshape %x : {tensor(1, 3, 10, 2, 5)} %t = ln.transpose %r {{axes = [0, 3, 4, 2, 1]}} : {tensor(1, 2, 5, 10, 3)} "
        "ln.yield %t"
    )
    kernel = check_blocked(NHWC, {"x": tensor(1, 30, 2, 5)}, body, tolerance=0)
    chain = layout_chain_of(kernel.ops, list(kernel.terminator.operands))
    assert chain is not None and chain.channels[:4] == (0, 10, 20, 1)


@pytest.mark.parametrize(
    "operands, body",
    [
        ({"x": tensor(1, 4, 3, 3)}, f"%y = ln.transpose %x {{axes = [0, 3, 2, 1]}} : {tensor(1, 3, 3, 4)} ln.yield %y"),
        ({"x": tensor(1, 4, 3, 3)}, f"%y = ln.reshape %x : {tensor(1, 36)} ln.yield %y"),
        ({"x": tensor(2, 4, 3, 3)}, f"%y = ln.transpose %x {{axes = [2, 3, 0, 1]}} : {tensor(3, 3, 2, 4)} ln.yield %y"),
        ({"x": tensor(1, 4, 3, 3)}, f"%y = ln.relu %x : {tensor(1, 4, 3, 3)} ln.yield %y"),
    ],
    ids=["columns first", "channels first", "pictures inside", "no move"],
)
def test_other_orders_are_left_to_others(operands, body):
    kernel = kernel_of(operands, body)
    assert form_of(NHWC, kernel) is None
