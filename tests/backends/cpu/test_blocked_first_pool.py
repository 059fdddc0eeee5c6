"""The first convolution and its pool as one kernel against float64 references; which pairs of kernels become one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from blocked_kernels import check_blocked, form_of, kernel_of, lay_out
from blocked_windows import EPILOGUES, MACHINES, out_dim, tensor, with_epilogue
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import lightnet
from lightnet.backends.cpu.blocked.base import ProcessorModel
from lightnet.backends.cpu.blocked.first_pool import FIRST_POOL
from lightnet.diagnostics import LightNetError
from lightnet.ir.body import choice
from lightnet.ir.kernel import KernelOp
from lightnet.ir.types import ParamAttr
from lightnet.passes import pipelines


def pooled(src, outputs, conv, pool, epilogue="none", kind="max", between="ln.lrelu %c {negslope = 0.1}"):
    """Operands and body; `conv` and `pool` are (size, stride, padding) of both axes, `between` an op on %c."""
    n, c, *plane = src
    maps = [out_dim(p, conv[0], conv[1], 1, 2 * conv[2]) for p in plane]
    out = [out_dim(m, pool[0], pool[1], 1, 2 * pool[2]) for m in maps]
    t = tensor(n, outputs, *maps)
    params = [f"{{size = {[k] * 2}, stride = {[s] * 2}, padding = {[p] * 4}}}" for k, s, p in (conv, pool)]
    operands = {"x": tensor(*src), "w": tensor(outputs, c, conv[0], conv[0]), "b": tensor(outputs)}
    operands, tail = with_epilogue(operands, f"ln.{kind}pool2d %p {params[1]}", (n, outputs, *out), epilogue)
    return operands, f"%c = ln.conv2d %x, %w, %b {params[0]} : {t} %p = {between} : {t} {tail}"


SHAPES = [
    ((1, 3, 40, 40), 32, (3, 2, 1), (3, 2, 1)),
    ((2, 3, 61, 47), 64, (7, 2, 3), (3, 2, 1)),  # pictures, and bands that leave a rest
    ((1, 1, 30, 30), 20, (5, 1, 0), (2, 2, 0)),
    ((1, 3, 33, 70), 33, (3, 1, 1), (5, 1, 2)),  # windows that overlap far
    ((1, 4, 50, 9), 16, (3, 1, 1), (1, 3, 0)),  # and rows between windows
    ((1, 3, 3, 3), 3, (3, 1, 1), (2, 1, 1)),
]


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("machine", MACHINES, ids=["avx512", "avx2", "neon"])
@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_windows(shape, kind, machine):
    check_blocked(FIRST_POOL, *pooled(*shape, kind=kind), machine=machine)


@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_epilogues(epilogue):
    body = pooled((2, 3, 21, 25), 33, (3, 2, 1), (3, 2, 1), epilogue, between="ln.sigmoid %c")
    check_blocked(FIRST_POOL, *body, out=(1, 2), tolerance=4e-6)


def test_a_result_in_the_memory_of_the_residual():
    for machine in MACHINES:
        body = pooled((1, 3, 21, 57), 24, (3, 1, 1), (3, 2, 1), "residual")
        check_blocked(FIRST_POOL, *body, machine=machine, aliases={0: 3})


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.tuples(st.integers(1, 2), st.integers(1, 4), st.integers(1, 40), st.integers(1, 40)), st.integers(1, 40),
    st.tuples(st.integers(1, 5), st.integers(1, 3), st.integers(0, 3)),
    st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(0, 2)), st.integers(1, 6), st.sampled_from(["max", "avg"]),
    st.sampled_from(MACHINES), st.tuples(st.integers(0, 2), st.integers(0, 2)),
)  # fmt: skip
def test_any_windows_in_any_bands(src, outputs, conv, pool, band, kind, machine, halo):
    assume(pool[2] < pool[0])
    maps = [out_dim(n, conv[0], conv[1], 1, 2 * conv[2]) for n in src[2:]]
    assume(min(maps) > 0 and all(m + 2 * pool[2] >= pool[0] for m in maps))
    body = pooled(src, outputs, conv, pool, kind=kind)
    kernel = kernel_of(*body)
    assume(form_of(FIRST_POOL, kernel, machine) is not None)
    height = kernel.results[0].type.get_shape()[2]
    choices = {"band": ParamAttr((min(band, height),))}
    check_blocked(FIRST_POOL, *body, out=halo, machine=machine, choices=choices, tolerance=4e-6)


def test_choices_are_refused():
    for choices in ({"band": (0,)}, {"band": (9,)}, {"tile": (2, 4, 1)}, {"tile": (1, 4)}, {"band": 3}):
        kernel = kernel_of(*pooled((1, 3, 32, 32), 32, (3, 2, 1), (2, 2, 0)))
        kernel.attributes.update({k: ParamAttr(v) for k, v in choices.items()})
        with pytest.raises(LightNetError, match=r"a first convolution with a pool takes|expected an array"):
            lay_out(kernel, FIRST_POOL, ProcessorModel())


def test_other_bodies_are_left_to_others():
    t = tensor(1, 16, 8, 8)
    bodies = [
        pooled((1, 5, 9, 9), 16, (3, 1, 1), (2, 2, 0)),
        pooled((1, 3, 8, 8), 16, (3, 1, 1), (8, 1, 0)),  # one window over all of the map
        (
            {"x": t},
            f"%p = ln.relu %x : {t} %y = ln.maxpool2d %p {{size = [3, 3], padding = [1, 1, 1, 1]}} : {t} ln.yield %y",
        ),
    ]
    used_twice = pooled((1, 3, 8, 8), 16, (3, 1, 1), (3, 1, 1))
    bodies.append((used_twice[0], used_twice[1].replace("ln.yield %s", f"%y = ln.add %s, %p : {t} ln.yield %y")))
    for body in bodies:
        kernel = kernel_of(*body)
        assert form_of(FIRST_POOL, kernel) is None


NETWORK = """
#include "layers.inc"
picture(3, {side});
conv_relu(input, c1, 3, 64, 3, 2, 0);
maxpool(c1, p1, 3, 2, 0);
conv_relu(p1, c2, 64, 32, 1, 1, 0);
{more}
"""
ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    "side, more, joined",
    [(160, "", True), (32, "", False), (160, "maxpool(c1, p2, 2, 2, 0);", False)],
    ids=["large", "small", "used-twice"],
)
def test_large_maps_that_the_pool_alone_reads_are_not_stored(tmp_path, side, more, joined):
    path = tmp_path / "net.net"
    path.write_text(NETWORK.format(side=side, more=more))
    model = lightnet.load(str(path), include_dirs=[str(ROOT / "examples" / "nets")])
    one = lightnet.compile(model, layout="blocked")
    apart = lightnet.compile(model, layout="blocked", pipeline=pipelines.default("cpu").replace("bands,", ""))
    kernels = [op for op in one.planned.walk() if isinstance(op, KernelOp)]
    assert any(choice(k, "alg") == "first-pool" for k in kernels) == joined
    for got, same in zip(one().values(), apart().values(), strict=True):
        assert np.array_equal(got, same), "the sums are the same, in the same order"
