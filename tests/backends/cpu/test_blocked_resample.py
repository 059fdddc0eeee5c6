"""Resampled blocked maps against the ops' references (and, for factors that are whole, PyTorch)."""

from __future__ import annotations

import numpy as np
import pytest
from blocked_kernels import check_blocked, form_of, kernel_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lightnet.backends.cpu.blocked.base import ProcessorModel
from lightnet.backends.cpu.blocked.maps import RESAMPLE

MACHINES = [ProcessorModel(), ProcessorModel(lanes=8, registers=16), ProcessorModel(lanes=4)]


def tensor(*dims: int, element: str = "f32") -> str:
    return f"tensor<{'x'.join(map(str, dims))}x{element}>"


def resize(dims, height, width, epilogue=""):
    t = tensor(*dims[:2], height, width)
    body = f'%y = ln.resize %x {{mode = "TL_NEAREST"}} : {t} '
    return {"x": tensor(*dims)}, body + (f"%z = ln.{epilogue} %y : {t} ln.yield %z" if epilogue else "ln.yield %y")


def interpolate(dims, axis, length, taps):
    out = list(dims)
    out[axis] = length
    operands = {"x": tensor(*dims), "i": tensor(length, taps, element="i32"), "w": tensor(length, taps)}
    return operands, f"%y = ln.interpolate %x, %i, %w {{axis = {axis}}} : {tensor(*out)} ln.yield %y"


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: f"{m.lanes} lanes")
@pytest.mark.parametrize(
    "dims, height, width",
    [((1, 24, 3, 5), 6, 10), ((2, 3, 4, 4), 12, 4), ((1, 17, 1, 1), 7, 3), ((1, 16, 9, 7), 5, 20)],
)
def test_nearest_neighbours(dims, height, width, machine):
    for extra, out in (((0, 0), (0, 0)), ((1, 1), (2, 1))):
        check_blocked(RESAMPLE, *resize(dims, height, width), extra=extra, out=out, machine=machine, tolerance=0)
    check_blocked(RESAMPLE, *resize(dims, height, width, "sigmoid"), out=(1, 1), machine=machine)


@pytest.mark.parametrize("dims", [(1, 24, 3, 5), (2, 3, 4, 1)], ids=str)
def test_sums_with_other_maps(dims):
    """The lateral connection of a feature pyramid: x * gate + x + the coarser map, which is resampled behind the first ops."""
    n, c, h, w = dims
    t = tensor(n, c, 2 * h, 2 * w)
    body = (
        f'%0 = ln.mul %x, %g : {t} %1 = ln.add %x, %0 : {t} %2 = ln.resize %z {{mode = "TL_NEAREST"}} : {t} '
        f"%3 = ln.add %1, %2 : {t} %4 = ln.sigmoid %3 : {t} ln.yield %3, %4"
    )
    operands = {"x": t, "g": tensor(n, c, 1, 1), "z": tensor(*dims)}
    for machine in MACHINES:
        check_blocked(RESAMPLE, operands, body, extra=(1, 0), out=(1, 1), machine=machine)
        check_blocked(RESAMPLE, operands, body, aliases={0: 0}, machine=machine)


def test_upsampling_by_scales():
    body = f'%y = ln.upsample %x {{mode = "TL_NEAREST", scales = [1, 1, 2, 2]}} : {tensor(1, 20, 6, 6)} ln.yield %y'
    check_blocked(RESAMPLE, {"x": tensor(1, 20, 3, 3)}, body, tolerance=0)


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: f"{m.lanes} lanes")
@pytest.mark.parametrize("axis", [2, 3])
def test_weighted_sums(axis, machine):
    random = np.random.default_rng(5)
    for dims, length, taps in (((1, 17, 4, 5), 9, 2), ((2, 3, 7, 13), 1, 4), ((1, 16, 1, 1), 3, 1)):
        index = random.integers(-2, dims[axis] + 2, (length, taps)).astype(np.int32)  # what is outside is clamped
        arrays = [random.standard_normal(dims), index, random.standard_normal((length, taps))]
        arrays = [a.astype(np.int32 if a is index else np.float32) for a in arrays]
        check_blocked(RESAMPLE, *interpolate(dims, axis, length, taps), arrays=arrays, out=(1, 0), machine=machine)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.tuples(st.integers(1, 2), st.integers(1, 36), st.integers(1, 9), st.integers(1, 9)), st.integers(1, 30),
    st.integers(1, 30), st.sampled_from(MACHINES),
)  # fmt: skip
def test_any_size(dims, height, width, machine):
    check_blocked(RESAMPLE, *resize(dims, height, width), machine=machine, tolerance=0)


def test_bilinear_upsampling_is_pytorchs():
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).standard_normal((1, 5, 4, 6)).astype(np.float32)
    want = torch.nn.functional.interpolate(
        torch.tensor(x), scale_factor=2, mode="bilinear", align_corners=False
    ).numpy()
    for axis, length in ((2, 8), (3, 12)):
        at = np.clip((np.arange(length) + 0.5) / 2 - 0.5, 0, None)
        low = np.floor(at).astype(np.int32)
        weight = np.stack([1 - (at - low), at - low], 1).astype(np.float32)
        arrays = [x, np.stack([low, low + 1], 1).astype(np.int32), weight]
        kernel = check_blocked(RESAMPLE, *interpolate(x.shape, axis, length, 2), arrays=arrays)
        x = kernel.ops[0].reference(*arrays)
    np.testing.assert_allclose(x, want, atol=1e-5)


def test_other_bodies_are_left_to_others():
    body = f'%y = ln.resize %x {{mode = "TL_NEAREST"}} : {tensor(1, 6, 4, 4)} ln.yield %y'
    kernel = kernel_of({"x": tensor(1, 3, 4, 4)}, body)
    assert form_of(RESAMPLE, kernel) is None  # channels
    kernel = kernel_of(*interpolate((1, 3, 4, 4), 1, 5, 2))
    assert form_of(RESAMPLE, kernel) is None


@pytest.mark.parametrize("taps, taken", [(1, True), (2, True), (64, True), (65, False), (200, False)])
@pytest.mark.parametrize("axis", [2, 3])
def test_long_sums_are_left_to_loops(axis, taps, taken):
    """Each tap is code of its own."""
    kernel = kernel_of(*interpolate((1, 3, 4, 5), axis, 9, taps))
    assert (form_of(RESAMPLE, kernel) is not None) == taken
