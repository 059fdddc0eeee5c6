"""Lanes behind the last channel of a blocked map are 0 whatever is computed: infinity * 0 would be NaN there, and spread from there."""

from __future__ import annotations

import numpy as np
import pytest
from blocked_kernels import check_blocked, form_of, kernel_of
from blocked_windows import MACHINES, convolution, tensor, with_epilogue
from test_blocked_first_pool import pooled
from test_blocked_winograd import body_of

import lightnet
from lightnet.backends.cpu.blocked.base import processor_model_of
from lightnet.backends.cpu.blocked.conv import DIRECT
from lightnet.backends.cpu.blocked.deconv import DECONV
from lightnet.backends.cpu.blocked.first import FIRST
from lightnet.backends.cpu.blocked.first_pool import FIRST_POOL
from lightnet.backends.cpu.blocked.maps import MAPS, RESAMPLE
from lightnet.backends.cpu.blocked.nhwc import NHWC
from lightnet.backends.cpu.blocked.winograd import WINOGRAD2, WINOGRAD4
from lightnet.backends.cpu.runtime import host_features
from lightnet.ir.types import spec_of

DECONVOLUTION = with_epilogue(
    {"x": tensor(1, 5, 4, 5), "w": tensor(5, 20, 3, 3), "b": tensor(20)},
    "ln.deconv2d %x, %w, %b {size = [3, 3], stride = [2, 2]}", (1, 20, 9, 11), "relu",
)  # fmt: skip
CASES = {
    "direct": (DIRECT, convolution((2, 5, 6, 7), 20, (3, 3), pad=(1, 1, 1, 1))),
    "vectors": (DIRECT, convolution((1, 16, 1, 9), 33, (1, 1), epilogue="none")),
    "first": (FIRST, convolution((1, 3, 6, 7), 20, (3, 3), pad=(1, 1, 1, 1), epilogue="none")),
    "first-pool": (FIRST_POOL, pooled((1, 3, 13, 15), 20, (3, 2, 1), (3, 2, 1))),
    "deconv": (DECONV, DECONVOLUTION),
}


def operands_of(body: tuple[dict[str, str], str], bad: float) -> list[np.ndarray]:
    """Data for a body; the middle element of its first operand is `bad`."""
    random = np.random.default_rng(1)
    arrays = [random.standard_normal(spec_of(v.type).dims).astype(np.float32) for v in kernel_of(*body).operands]
    arrays[0].reshape(-1)[arrays[0].size // 2] = bad
    return arrays


@pytest.mark.parametrize("machine", MACHINES, ids=["avx512", "avx2", "neon"])
@pytest.mark.parametrize("name", CASES)
def test_infinity_and_nan_stay_in_the_channels(name, machine):
    generator, body = CASES[name]
    for bad in (np.inf, np.nan):
        check_blocked(generator, *body, arrays=operands_of(body, bad), out=(1, 0), machine=machine, tolerance=4e-6)


@pytest.mark.parametrize("generator", [WINOGRAD2, WINOGRAD4], ids=["2", "4"])
def test_winograd_spreads_nan_over_a_tile_of_channels_only(generator):
    """What is expected is NaN wherever a result is; so only halos and lanes are looked at."""
    body = body_of((1, 5, 6, 7), 20)
    arrays = operands_of(body, np.nan)
    want = np.full((1, 20, 6, 7), np.nan, np.float32)
    arrays[0][...] = np.nan
    check_blocked(generator, *body, arrays=arrays, expected=[want], out=(1, 1))


def test_infinite_weights_of_a_resampled_map():
    t = tensor(1, 5, 9, 4)
    operands = {"x": tensor(1, 5, 3, 4), "i": "tensor<9x2xi32>", "w": tensor(9, 2)}
    random = np.random.default_rng(2)
    weights = random.standard_normal((9, 2)).astype(np.float32)
    weights[4, 0] = np.inf
    arrays = [
        random.standard_normal((1, 5, 3, 4)).astype(np.float32),
        random.integers(0, 3, (9, 2)).astype(np.int32),
        weights,
    ]
    body = f"%y = ln.interpolate %x, %i, %w {{axis = 2}} : {t} ln.yield %y"
    check_blocked(RESAMPLE, operands, body, arrays=arrays)


def test_an_infinity_that_is_clipped_is_gone():
    """Two convolutions with a clip between: the second would sum over NaN in lanes that no channel has."""
    size = "{size = [3, 3], padding = [1, 1, 1, 1]}"
    between, t = tensor(1, 17, 8, 8), tensor(1, 16, 8, 8)
    text = f"""func.func @main() -> {t} {{
      %x = ln.input {{ran = [-1, 1]}} : {t} as "create"("x")
      %w = ln.param {{ran = [-1, 1]}} : {tensor(17, 16, 3, 3)} as "create"("w")
      %b = ln.param {{ran = [-1, 1]}} : {tensor(17)} as "create"("b")
      %v = ln.param {{ran = [-1, 1]}} : {tensor(16, 17, 3, 3)} as "create"("v")
      %c = ln.param {{ran = [-1, 1]}} : {tensor(16)} as "create"("c")
      %1 = ln.conv2d %x, %w, %b {size} : {between}
      %2 = ln.clip %1 {{lo = 0, hi = 6}} : {between}
      %y = ln.conv2d %2, %v, %c {size} : {t} as "conv"("y")
      func.return %y : {t} }}"""
    x = np.random.default_rng(3).standard_normal((1, 16, 8, 8)).astype(np.float32)
    x[0, 3, 4, 4] = np.inf
    model = lightnet.loads(text, ".mlir")
    want = lightnet.compile(model, target="none")({"x": x})["y"]
    executable = lightnet.compile(model, exact=True)  # without Winograd's algorithm, which spreads infinities
    assert f"c{processor_model_of(host_features()).lanes}" in str(executable.planned)
    assert np.isfinite(want).all()
    np.testing.assert_allclose(executable({"x": x})["y"], want, atol=1e-4)


def test_a_value_by_picture_is_none_by_channel():
    """[N, 1, 1, 1] where there are as many pictures as channels."""
    t = tensor(5, 5, 3, 3)
    kernel = kernel_of({"x": t, "v": tensor(5, 1, 1, 1)}, f"%y = ln.add %x, %v : {t} ln.yield %y")
    assert form_of(MAPS, kernel) is None


def test_channels_last_of_no_channels():
    body = (
        f"%s = ln.slice %x {{axis = 1, start = 3, len = 0}} : {tensor(1, 0, 3, 3)} "
        f"%y = ln.transpose %s {{axes = [0, 2, 3, 1]}} : {tensor(1, 3, 3, 0)} ln.yield %y"
    )
    kernel = kernel_of({"x": tensor(1, 20, 3, 3)}, body)
    assert form_of(NHWC, kernel) is None
