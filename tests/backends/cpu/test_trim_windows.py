"""Taps that read padding alone: none that reads the picture is trimmed or passed over, and results stay what they are."""

from __future__ import annotations

import random

import numpy as np
import pytest

import lightnet
from lightnet.backends.cpu.blocked import conv_model as model
from lightnet.backends.cpu.blocked.conv_model import Geometry
from lightnet.backends.interpreter import graph
from lightnet.dialects.ln.conv import Conv2d
from lightnet.ir.windows import Axis
from lightnet.passes.trim_windows import _trimmed


def test_the_taps_that_stay_read_what_they_read() -> None:
    rng, trimmed = random.Random(0), 0
    for _ in range(4000):
        size, stride, dilation = rng.randint(1, 5), rng.randint(1, 4), rng.randint(1, 9)
        before, behind, length = rng.randint(0, 12), rng.randint(0, 12), rng.randint(1, 12)
        room = length + before + behind - (size - 1) * dilation - 1
        if room < 0:
            continue
        count = room // stride + 1
        axis = Axis(length, size, stride, dilation, before, behind, count)
        _, found = _trimmed(axis)
        assert positions(axis) == positions(found) and found.before >= 0
        again = length + found.before + max(found.overhang, 0) - found.extent
        assert again // stride + 1 == count, "the result keeps its size"
        trimmed += found != axis
    assert trimmed > 500


def positions(axis: Axis) -> set[tuple[int, int]]:
    """Each place of the window, with an element that it reads there."""
    starts = ((y, y * axis.stride - axis.before) for y in range(axis.positions))
    reads = ((y, start + tap * axis.dilation) for y, start in starts for tap in range(axis.taps))
    return {(y, at) for y, at in reads if 0 <= at < axis.size}


@pytest.mark.parametrize("autopad", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("size, stride, dilation, dims", [
    ((1, 1), (3, 3), 1, (6, 6)), ((2, 3), (4, 1), 1, (12, 9)), ((1, 3), (5, 1), 12, (11, 9)), ((2, 2), (4, 3), 1, (8, 9)),
])  # fmt: skip
def test_windows_that_crop_are_left_alone(size, stride, dilation, dims, autopad) -> None:
    """A stride larger than the window leaves elements out, in front too: the padding is negative there."""
    out = [-(-n // s) for n, s in zip(dims, stride)]
    text = f"""func.func @main() -> tensor<1x4x{out[0]}x{out[1]}xf32> {{
      %x = ln.input : tensor<1x4x{dims[0]}x{dims[1]}xf32> as ("x")
      %w = ln.param : tensor<4x4x{size[0]}x{size[1]}xf32> as ("w")
      %b = ln.param : tensor<4xf32> as ("b")
      %y = ln.conv2d %x, %w, %b {{size = {list(size)}, stride = {list(stride)}, dilation = [{dilation}, {dilation}],
                                  autopad = "{autopad}"}} : tensor<1x4x{out[0]}x{out[1]}xf32> as ("y")
      func.return %y : tensor<1x4x{out[0]}x{out[1]}xf32> }}"""
    network, rng = lightnet.loads(text, ".mlir"), np.random.default_rng(0)
    specs = {"x": (1, 4, *dims), "w": (4, 4, *size), "b": (4,)}
    feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in specs.items()}
    got, want = lightnet.compile(network)(feeds)["y"], graph.run(network.module, feeds)["y"]
    assert np.abs(got - want).max() <= 1e-5 * np.abs(want).max()


@pytest.mark.parametrize("size, stride, dilation, pad, dims", [
    (3, 1, 12, 12, (16, 16)), (3, 1, 9, 9, (11, 13)), (3, 2, 9, 9, (17, 20)), (5, 1, 6, 12, (16, 15)), (3, 1, 24, 24, (16, 16)),
    (2, 3, 7, 5, (9, 30)), (3, 1, 10, 10, (30, 12)),
])  # fmt: skip
def test_dilated_convolutions_are_right(size: int, stride: int, dilation: int, pad: int, dims: tuple[int, int]) -> None:
    """On maps about as large as the dilation, where tiles see different taps."""
    out = [(n + 2 * pad - (size - 1) * dilation - 1) // stride + 1 for n in dims]
    text = f"""func.func @main() -> tensor<1x32x{out[0]}x{out[1]}xf32> {{
      %x = ln.input : tensor<1x48x{dims[0]}x{dims[1]}xf32> as ("x")
      %w = ln.param : tensor<32x48x{size}x{size}xf32> as ("w")
      %b = ln.param : tensor<32xf32> as ("b")
      %y = ln.conv2d %x, %w, %b {{size = [{size}, {size}], stride = [{stride}, {stride}], dilation = [{dilation}, {dilation}],
                                  padding = [{pad}, {pad}, {pad}, {pad}]}} : tensor<1x32x{out[0]}x{out[1]}xf32> as ("y")
      func.return %y : tensor<1x32x{out[0]}x{out[1]}xf32> }}"""
    network = lightnet.loads(text, ".mlir")
    rng = np.random.default_rng(0)
    specs = {"x": (1, 48, *dims), "w": (32, 48, size, size), "b": (32,)}
    feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in specs.items()}
    got, want = lightnet.compile(network)(feeds)["y"], graph.run(network.module, feeds)["y"]
    assert np.abs(got - want).max() <= 1e-5 * np.abs(want).max()


def test_tiles_pass_over_columns_where_many_see_padding() -> None:
    wide = Axis(16, 3, 1, 12, 12, 12, 16)
    atrous = Geometry(wide, wide, 1, 1, 960, 256)
    assert model.skips_columns(atrous, 4) and not model.skips_columns(atrous, 16)
    assert [model.live_columns(atrous, x, 4) for x in (0, 4, 8, 12)] == [(1, 3), (1, 2), (1, 2), (0, 2)]
    usual = Geometry(Axis(56, 3, 1, 1, 1, 1, 56), Axis(56, 3, 1, 1, 1, 1, 56), 1, 1, 64, 64)
    assert not any(model.skips_columns(usual, columns) for columns in range(1, 57))


def test_tiles_look_which_columns_they_read_where_few_do() -> None:
    """Against the columns of the picture that each pixel of each tile reads; the last tile ends with the row."""
    rng, looked = random.Random(1), 0
    for _ in range(400):
        taps, dilation, before, width = rng.randint(1, 5), rng.randint(1, 12), rng.randint(0, 14), rng.randint(1, 30)
        positions = max(width + before + rng.randint(0, 14) - (taps - 1) * dilation, 1)
        cols = Axis(width, taps, 1, dilation, before, 0, positions)
        geometry, columns = Geometry(Axis(1, 1, positions=1), cols, 1, 1, 16, 16), rng.randint(1, positions)
        reads, tiles = 0, 0
        for x in range(0, positions, columns):
            pixels = range(min(x + columns, positions) - columns, min(x + columns, positions))
            seen = {k for k in range(taps) for p in pixels if 0 <= p - before + k * dilation < width}
            first, end = model.live_columns(geometry, pixels[0], columns)
            assert set(range(first, end)) == seen
            reads, tiles = reads + len(seen), tiles + 1
        few = reads <= model.MOST_LIVE * taps * tiles
        assert model.skips_columns(geometry, columns) == few
        looked += few
    assert 50 < looked < 350


def test_the_network_computes_one_pixel_of_a_window_that_sees_no_more() -> None:
    """Of DeepLab's pyramid at 16 x 16, the convolution of dilation 24 is one of 1 x 1."""
    text = """func.func @main() -> tensor<1x8x16x16xf32> {
      %x = ln.input : tensor<1x8x16x16xf32> as ("x")
      %w = ln.param : tensor<8x8x3x3xf32> as ("w")
      %b = ln.param : tensor<8xf32> as ("b")
      %y = ln.conv2d %x, %w, %b {size = [3, 3], dilation = [24, 24], padding = [24, 24, 24, 24]} : tensor<1x8x16x16xf32> as ("y")
      func.return %y : tensor<1x8x16x16xf32> }"""
    executable = lightnet.compile(lightnet.loads(text, ".mlir"))
    (conv,) = [op for op in executable.planned.walk() if isinstance(op, Conv2d)]
    assert tuple(conv.size) == (1, 1)
