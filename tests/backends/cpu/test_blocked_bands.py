"""Chains of convolutions in bands of rows against float64 references, PyTorch, and the same convolutions apart."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from blocked_kernels import check_blocked, form_of, kernel_of, lay_out
from blocked_windows import MACHINES, out_dim, tensor
from chains import ACTIVATIONS, ENDS, chain
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import f32
from xdsl.dialects.memref import ViewOp

import lightnet
from lightnet.backends.cpu.blocked import bands_model as model
from lightnet.backends.cpu.blocked.bands import BANDS
from lightnet.backends.cpu.blocked.bands_body import chain_of
from lightnet.backends.cpu.blocked.base import ProcessorModel
from lightnet.backends.cpu.blocked.conv_model import EXPOSED
from lightnet.diagnostics import LightNetError
from lightnet.ir.body import choice
from lightnet.ir.kernel import KernelOp
from lightnet.ir.types import ParamAttr
from lightnet.passes import pipelines

ROOT = Path(__file__).parents[3]
SHAPES = [
    ((1, 1, 1, 1), 1, 1),
    ((1, 3, 1, 9), 17, 5),
    ((2, 17, 13, 9), 33, 24),
    ((1, 24, 14, 28), 48, 24, (3, 3), (2, 2)),
    ((1, 16, 11, 31), 32, 16, (5, 5), (1, 1), (1, 1), (2, 2, 2, 2)),
    ((1, 16, 12, 13), 40, 0, (3, 3), (2, 1), (1, 1), (1, 0, 0, 1)),
    ((2, 33, 15, 7), 0, 20, (3, 3), (1, 2), (1, 1), (0, 1, 2, 1)),
    ((1, 5, 17, 8), 16, 33, (3, 2), (3, 3), (2, 3), (2, 3, 0, 1)),
    ((1, 20, 9, 6), 24, 16, (2, 2), (3, 3), (1, 1), (0, 0, 0, 0)),  # windows that skip rows
    ((1, 8, 5, 40), 16, 8, (3, 3), (1, 1), (1, 1), (4, 0, 4, 0)),  # bands that lie outside the picture
    ((1, 16, 23, 16), 16, 16, (7, 1), (1, 1), (1, 1), (3, 0, 3, 0)),
]


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("machine", MACHINES, ids=["avx512", "avx2", "neon"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes(shape, machine):
    check_blocked(BANDS, *chain(*shape), machine=machine, tolerance=4e-6)


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("band", [1, 2, 3, 5, 12, 13])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("keep", [True, False])
def test_any_band(band, stride, keep):
    """What the band before made is used again in the same range of blocks (or never), and made again in another."""
    body = chain((2, 17, 13, 9), 33, 17, stride=(stride, 1), inner="sigmoid")
    choices = {"band": ParamAttr(min(band, out_dim(13, 3, stride, 1, 2))), "keep": ParamAttr(keep)}
    for seed in range(2):
        check_blocked(BANDS, *body, choices=choices, tolerance=4e-6, seed=seed)


@pytest.mark.parametrize("stages", [(33, 24), (33, 0), (0, 24)], ids=["three", "expand", "project"])
@pytest.mark.parametrize("keep", [True, False])
def test_maps_in_between_lie_in_scratch_one_behind_the_other(stages, keep):
    """The memrefs of a kernel's scratch are as large as what they are planned in: none reaches into another, or beyond the end."""
    kernel = kernel_of(*chain((2, 24, 13, 9), *stages))
    kernel.attributes.update({"band": ParamAttr(3), "keep": ParamAttr(keep)})
    plan = lay_out(kernel, BANDS, ProcessorModel())
    (launch,) = plan.build(kernel, "kernel", {})
    places = []
    for op in launch.function.walk():
        if isinstance(op, ViewOp):
            offset, type = op.byte_shift.owner, op.results[0].type
            size = type.element_type.size if type.element_type == f32 else type.element_type.width.data // 8
            places.append((offset.value.value.data, math.prod(type.get_shape()) * size))
    places.sort()
    ends = [start for start, _ in places[1:]] + [plan.scratch_bytes]
    assert places and all(start + size <= end for (start, size), end in zip(places, ends))


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_weights_are_fetched_for_the_next_group(rows):
    """Several groups of vectors, each of whose tiles fetches a share of the next group's weights: it may reach beyond the last."""
    body = chain((1, 96, 8, 14), 160, 96)
    check_blocked(BANDS, *body, choices={"band": ParamAttr(8 // rows), "keep": ParamAttr(False)}, tolerance=4e-6)


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("stages", [(33, 24), (33, 0), (0, 24)], ids=["three", "expand", "project"])
def test_ends(stages, end):
    body = chain((2, 24, 6, 9), *stages, end=end if end != "input" or stages[1] else "relu6")
    for band, keep in ((2, True), (2, False), (6, False)):
        choices = {"band": ParamAttr(band), "keep": ParamAttr(keep)}
        check_blocked(BANDS, *body, choices=choices, extra=(0, 1), out=(1, 2), tolerance=4e-6)


@pytest.mark.parametrize("inner", ACTIVATIONS)
def test_activations_in_between(inner):
    """The expanded map is 0 outside the picture, whatever the activation makes of the bias."""
    check_blocked(BANDS, *chain((1, 17, 7, 7), 40, 24, inner=inner), tolerance=4e-6)


PICTURES = [
    ((1, 3, 17, 20), 32, 16, (3, 3), (2, 2), (1, 1, 1, 1), (1, 1)),
    ((2, 3, 16, 31), 24, 33, (3, 3), (2, 2), (0, 0, 1, 1), (2, 2)),
    ((2, 1, 9, 9), 17, 8, (5, 3), (1, 1), (2, 1, 2, 1), (1, 1)),
    ((1, 4, 30, 12), 16, 0, (3, 3), (1, 1), (0, 0, 0, 0), (1, 2)),
    ((1, 3, 1, 1), 16, 16, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
]


def opening(src, wide, outputs, size, step, pad, stride, inner="sigmoid"):
    """Operands and body of a chain whose first convolution reads a picture."""
    n, c, *plane = src
    side = [out_dim(plane[i], size[i], step[i], 1, pad[i] + pad[i + 2]) for i in (0, 1)]
    operands, body = chain((n, c, *side), wide, outputs, stride=stride, inner=inner)
    params = f"size = {list(size)}, stride = {list(step)}, padding = {list(pad)}"
    operands |= {"x": tensor(*src), "ew": tensor(wide, c, *size)}
    return operands, body.replace("%eb {size = [1, 1]}", f"%eb {{{params}}}")


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("machine", MACHINES, ids=["avx512", "avx2", "neon"])
@pytest.mark.parametrize("picture", PICTURES, ids=str)
def test_pictures(picture, machine):
    """A first convolution makes the rows of the ring."""
    body = opening(*picture)
    for band in (1, 4, None):
        choices = {} if band is None else {"band": ParamAttr(band if picture[0][2] > 1 else 1)}
        check_blocked(BANDS, *body, choices=choices, machine=machine, tolerance=4e-6)


def test_a_result_in_the_memory_of_the_residual():
    operands, body = chain((1, 24, 9, 29), 40, 24, end="residual")
    for machine in MACHINES:
        check_blocked(BANDS, operands, body, machine=machine, aliases={0: list(operands).index("m")}, tolerance=4e-6)


def test_pytorch_agrees():
    torch = pytest.importorskip("torch")
    conv = torch.nn.functional.conv2d
    random = np.random.default_rng(3)
    shapes = [(2, 24, 13, 17), (72, 24, 1, 1), (72,), (72, 1, 3, 3), (72,), (32, 72, 1, 1), (32,)]
    arrays = [random.standard_normal(s).astype(np.float32) for s in shapes]
    x, ew, eb, dw, db, pw, pb = (torch.from_numpy(a).double() for a in arrays)
    wide = conv(conv(x, ew, eb).clamp(0, 6), dw, db, 2, 1, groups=72).clamp(0, 6)
    body = chain(shapes[0], 72, 32, stride=(2, 2))
    check_blocked(BANDS, *body, arrays=arrays, expected=[conv(wide, pw, pb).numpy()])


@pytest.mark.parametrize("src, size, stride, pad", [
    ((1, 1, 2, 1), (1, 1), (2, 1), (0, 0, 0, 0)), ((1, 1, 4, 4), (1, 1), (2, 2), (0, 0, 0, 0)), ((1, 24, 6, 5), (1, 3), (3, 1), (0, 0, 0, 0)),
    ((2, 20, 6, 7), (3, 3), (2, 2), (0, 0, 0, 0)), ((1, 8, 7, 9), (2, 2), (3, 3), (1, 0, 0, 1)),
])  # fmt: skip
def test_rows_that_no_window_reaches(src, size, stride, pad):
    """The last rows of the expanded map, and those between windows: scratch memory has no place for them."""
    for machine, stages in zip(MACHINES, ((16, 16), (33, 17), (40, 0)), strict=True):
        check_blocked(BANDS, *chain(src, *stages, size, stride, (1, 1), pad), machine=machine, tolerance=6e-6)
    check_blocked(BANDS, *chain(src, 33, 17, size, stride, (1, 1), pad), choices={"band": ParamAttr(1)}, tolerance=6e-6)


def test_windows_of_padding_alone_are_no_chain():
    """No row of the expanded map is read, so that there is nothing to make in bands: other generators take its parts."""
    for pad, taken in (((1, 0, 0, 0), False), ((3, 0, 0, 0), False), ((0, 0, 1, 0), True)):
        kernel = kernel_of(*chain((1, 1, 1, 1), 33, 17, (1, 1), (4, 1), (1, 1), pad))
        assert (form_of(BANDS, kernel) is not None) == taken, pad


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.tuples(st.integers(1, 2), st.integers(1, 40), st.integers(1, 17), st.integers(1, 33)),
    st.sampled_from([(33, 17), (16, 0), (24, 40), (0, 17), (48, 16)]),
    st.tuples(st.integers(1, 5), st.integers(1, 5)), st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.integers(1, 2), st.integers(1, 2)), st.tuples(*[st.integers(0, 3)] * 4),
    st.sampled_from(sorted(ACTIVATIONS)), st.sampled_from(["none", "residual", "both"]), st.sampled_from(MACHINES),
    st.integers(0, 20), st.booleans(),
)  # fmt: skip
def test_any_chain(src, stages, size, stride, dilation, pad, inner, end, machine, band, keep):
    assume(all(src[2 + i] + pad[i] + pad[i + 2] > (size[i] - 1) * dilation[i] for i in (0, 1)))
    assume(size != (1, 1) or stride != (1, 1) or any(pad))
    height = out_dim(src[2], size[0], stride[0], dilation[0], pad[0] + pad[2])
    assume(not stages[0] or (height - 1) * stride[0] + (size[0] - 1) * dilation[0] >= pad[0])  # else no chain (below)
    choices = {"band": ParamAttr(min(band, height)), "keep": ParamAttr(keep)} if band else {}
    body = chain(src, *stages, size, stride, dilation, pad, inner, end)
    check_blocked(BANDS, *body, choices=choices, machine=machine, tolerance=6e-6)


def test_choices_are_kept_or_refused():
    body = chain((1, 16, 12, 14), 32, 16)
    kept = {"band": 3, "expand": (1, 7, 2, 4), "depthwise": (1, 5), "project": (1, 14, 1, 16)}
    kernel = check_blocked(BANDS, *body, choices={k: ParamAttr(v) for k, v in kept.items()}, tolerance=4e-6)
    assert {k: kernel.attributes[k] for k in kept} == {k: ParamAttr(v) for k, v in kept.items()}
    check_blocked(BANDS, *body, choices={"band": ParamAttr(12), "depthwise": ParamAttr((5, 3))}, tolerance=4e-6)
    for refused in (
        {"band": 0},
        {"band": 13},
        {"band": (1, 2)},
        {"keep": 2},
        {"band": 3, "depthwise": (2, 5)},
        {"band": 3, "project": (2, 7, 1, 8)},
        {"expand": (1, 15, 2, 4)},
        {"depthwise": (1, 15)},
        {"expand": (1, 2)},
    ):
        kernel = kernel_of(*body)
        kernel.attributes.update({k: ParamAttr(v) for k, v in refused.items()})
        with pytest.raises(LightNetError, match=r"takes|need one band|true or false"):
            lay_out(kernel, BANDS, ProcessorModel())


def shared(read: str):
    """A chain in which something more than its convolutions reads what they make."""
    operands, body = chain((1, 16, 8, 8), 16, 16)
    return operands, body.replace("ln.yield %p", read.replace("T", tensor(1, 16, 8, 8)))


def picture_twice():
    """A chain whose picture, which a first convolution reads as it is, would be read in blocks at the end."""
    picture = tensor(1, 3, 8, 8)
    operands = {"x": picture, "w": tensor(3, 3, 3, 3), "b": tensor(3), "v": tensor(3, 1, 3, 3), "c": tensor(3)}
    window = "{size = [3, 3], padding = [1, 1, 1, 1]"
    return operands, (
        f"%p = ln.conv2d %x, %w, %b {window}}} : {picture} %q = ln.conv2d %p, %v, %c {window}, group = 3}} : {picture} "
        f"%y = ln.add %q, %x : {picture} ln.yield %y"
    )


@pytest.mark.parametrize(
    "body",
    [
        picture_twice(),
        shared("%y = ln.add %p, %da : T ln.yield %y"),
        shared("ln.yield %p, %e"),
        chain((1, 16, 8, 8), size=(3, 3)),
        chain((1, 16, 8, 8), 16, 16, size=(1, 1), pad=(0, 0, 0, 0)),
        ({"x": "tensor<1x8x4x5xf32>"}, "%y = ln.relu %x : tensor<1x8x4x5xf32> ln.yield %y"),
    ],
    ids=["picture read twice", "read twice", "yielded", "one convolution", "pointwise", "relu"],
)
def test_other_bodies_are_left_to_others(body):
    kernel = kernel_of(*body)
    assert form_of(BANDS, kernel) is None


def planned(src, wide, outputs, stride=1, threads=1):
    """The model's gain of a chain with its plan, in nanoseconds."""
    machine = ProcessorModel(threads=threads)
    numbers = chain_of(kernel_of(*chain(src, wide, outputs, stride=(stride, stride))).ops)
    return model.gain(numbers, machine, model.best_schedule(numbers, machine))


def test_the_model_joins_what_leaves_the_cache():
    """MobileNetV2's blocks: those at 112, 56 and 28 pixels pay (measured 12 to 30, 7 and 8 %), those at 7, whose weights fill the cache,
    do not; and what fits in the cache anyway stays apart."""
    assert planned((1, 16, 112, 112), 96, 24, 2) > 10_000
    assert planned((1, 24, 56, 56), 144, 24) > 10_000
    assert planned((1, 32, 28, 28), 192, 32) > 0
    assert planned((1, 160, 7, 7), 960, 160) <= 0
    assert planned((1, 160, 7, 7), 960, 320) <= 0
    assert planned((1, 16, 14, 14), 64, 16) <= 0


@pytest.mark.parametrize("machine", MACHINES, ids=["avx512", "avx2", "neon"])
@pytest.mark.parametrize("wide, outputs", [(96, 0), (0, 48), (96, 48)], ids=["expand", "project", "both"])
def test_weights_pass_once_a_band_where_a_group_fits(wide, outputs, machine):
    """A group of vectors of outputs has two thirds of the first-level cache for its weights. Larger ones come from the second-level cache
    for every tile, in bands or not, and are no cost of bands."""
    numbers = chain_of(kernel_of(*chain((1, 64, 56, 56), wide, outputs)).ops)
    made = model.best_schedule(numbers, machine, 4, True)
    stages = [(g, t) for g, t in ((numbers.expand, made.expand), (numbers.project, made.project)) if g is not None]
    limits = [4 * machine.lanes * tile.vectors * geometry.channels * 3 // 2 for geometry, tile in stages]
    for l1 in sorted({limit + k for limit in limits for k in (-1, 0)}):
        passed = sum(4 * g.channels * g.outputs for (g, _), limit in zip(stages, limits) if l1 >= limit)
        none, some = (model.overhead(numbers, replace(machine, l1=n), made) for n in (0, l1))
        assert some - none == pytest.approx(14 * EXPOSED * passed / machine.l2_bytes, rel=1e-6), l1
    far, near = (model.overhead(numbers, replace(machine, l2=n), made) for n in (0, machine.l2))
    assert far > near, "weights that do not fit beside the maps come from the third-level cache, whatever a group has"


def banded(executable) -> list[KernelOp]:
    return [op for op in executable.planned.walk() if isinstance(op, KernelOp) and choice(op, "alg") == "bands"]


@pytest.mark.optimized
def test_mobilenetv2_is_the_same_in_bands():
    sys.path.insert(0, str(ROOT / "tools"))
    from compare_onnxruntime import sampled_model

    network = sampled_model(str(ROOT / "examples" / "nets" / "mobilenetv2.net"))
    bands = lightnet.compile(network, layout="blocked")
    apart = lightnet.compile(network, layout="blocked", pipeline=pipelines.default("cpu").replace("bands,", ""))
    assert len(banded(bands)) >= 8 and not banded(apart)
    assert bands.program.memory["arena"] < 0.7 * apart.program.memory["arena"]
    (got,), (same,) = bands().values(), apart().values()
    (plain,) = lightnet.compile(network, layout="plain")().values()
    assert np.array_equal(got, same), "the sums are the same, in the same order"
    assert np.abs(got - plain).max() <= 1e-5 * np.abs(plain).max()
