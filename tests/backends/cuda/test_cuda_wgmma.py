"""Products by warpgroups of sm_90a (`wgmma`): convolutions, dense layers and products in ugly shapes, each tile, split sums, epilogues, and what
the generator refuses; in the PTX interpreter against the references."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_products import CONVS, EPILOGUES, Case, check, finished_conv, finished_product, made
from sampling import draw

import lightnet
from lightnet.backends.cuda.device import DEVICES
from lightnet.backends.cuda.gemm.core import ProductTile
from lightnet.backends.cuda.gemm.wgmma import TILES, WGMMA
from lightnet.backends.cuda.gemm.wgmma_core import WgmmaCore
from lightnet.backends.cuda.selection import choose
from lightnet.diagnostics import LightNetError
from lightnet.ir.target import Request
from lightnet.ir.types import storage_type
from lightnet.passes import pipelines
from lightnet.runtime.dtypes import BY_NAME

ARCH = "sm_90a"
DTYPES = ("f16", "bf16")

CONVS_OF_PIECES = {
    "one piece of channels": lambda c: c.conv((1, 8, 5, 4), 8, (3, 3), padding=(1, 1, 1, 1)),
    "five channels in eight": lambda c: c.conv((1, 5, 6, 4), 6, (3, 3), padding=(1, 1, 1, 1)),
    "more than a stage of channels": lambda c: c.conv((1, 72, 5, 6), 20, (3, 3), padding=(1, 1, 1, 1)),
    "stride 2, batch 3, asymmetric padding": lambda c: c.conv((3, 16, 9, 7), 24, (3, 3), stride=(2, 2), padding=(2, 0, 1, 3)),
    "strides and dilations": lambda c: c.conv((2, 24, 13, 12), 33, (3, 3), stride=(2, 1), dilation=(2, 3), padding=(2, 3, 2, 3)),
    "padding larger than the picture": lambda c: c.conv((1, 8, 3, 2), 5, (3, 3), padding=(5, 4, 4, 5)),
    "cropped": lambda c: c.conv((1, 8, 9, 8), 4, (1, 1), stride=(4, 3), autopad="SAME_UPPER"),
    "1x1": lambda c: c.conv((2, 40, 6, 7), 70, (1, 1)),
    "1x1, stride 2": lambda c: c.conv((2, 24, 7, 7), 12, (1, 1), stride=(2, 2)),
    "a row of a window": lambda c: c.conv((1, 8, 3, 20), 20, (1, 5), padding=(0, 2, 0, 2)),
    "a dense layer": lambda c: c.conv((2, 8, 3, 4), 33, (3, 4)),
    "rows of several tiles, across pictures": lambda c: c.conv((3, 8, 9, 11), 72, (3, 3), padding=(1, 1, 1, 1)),
}  # fmt: skip
DECONVS = [
    lambda c: c.deconv((1, 8, 3, 5), 8, (2, 2), stride=(2, 2)),
    lambda c: c.deconv((2, 72, 3, 4), 6, (3, 3), stride=(2, 2), padding=(1, 1, 1, 1), output_padding=(1, 1)),
    lambda c: c.deconv((1, 16, 3, 4), 5, (5, 4), stride=(3, 2), padding=(0, 2, 3, 1)),
    lambda c: c.deconv((1, 8, 4, 5), 4, (3, 2), dilation=(2, 3), padding=(1, 2, 0, 1)),
]
PRODUCTS = [
    ((1, 8), (8, 8)), ((3, 16), (16, 40)), ((70, 72), (72, 136)), ((130, 200), (200, 64)), ((2, 3, 9, 16), (2, 3, 16, 24)),
    ((2, 5, 8), (8, 32)), ((7, 64), (3, 64, 24)), ((2, 1, 5, 8), (3, 8, 16)),
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_convolutions(dtype):
    builds = draw(CONVS_OF_PIECES.values(), f"wgmma conv {dtype}", every=3, start=DTYPES.index(dtype))
    check([made(dtype, build) for build in builds], "wgmma", arch=ARCH)


def test_transposed_convolutions():
    """Phases with as many taps as others and with fewer, more than a stage of channels, positions that are cut off, taps that are apart."""
    check([made("f16", build) for build in DECONVS], "wgmma", arch=ARCH)


@pytest.mark.parametrize("dtype", DTYPES)
def test_products(dtype):
    pairs = draw(PRODUCTS, f"wgmma {dtype}", every=3, start=DTYPES.index(dtype))
    check([made(dtype, Case.product, a, b) for a, b in pairs], "wgmma", arch=ARCH)


@pytest.mark.parametrize("splits", [1, 2])
def test_epilogues(splits):
    cases = []
    for finish in EPILOGUES.values():
        for src, out in [((2, 136, 5, 3), 7), ((1, 136, 4, 4), 16)]:
            cases.append((finished_conv, finish, src, out))
        cases.append((finished_product, finish, (2, 6, 136), (136, 24)))
    drawn = draw(cases, f"wgmma epilogues {splits}", every=4, start=splits)
    check([made("f16", *case) for case in drawn], "wgmma", arch=ARCH, splits=splits)


@pytest.mark.sampled(every=3, share=0.1)
@pytest.mark.parametrize("tile", TILES, ids=lambda t: f"{t[0]}x{t[1]}")
def test_every_tile(tile):
    """On two tiles of rows and of columns, with tails, and a ring that goes round."""
    rows, cols = tile[0] + 3, min(tile[1] + 8, 200)
    conv = made("f16", Case.conv, (1, 24, 2, rows // 2), cols, (1, 3))
    product = made("f16", Case.product, (rows, 264), (264, cols))
    cases = [conv, product] if tile[1] % 64 == 0 else [conv]
    check(cases, "wgmma", arch=ARCH, tile=(*tile, 64), stages=2)


@pytest.mark.sampled(every=3, share=0.3)
@pytest.mark.parametrize("stages, splits", [(2, 3), (3, 1), (4, 4), (5, 2)])
def test_rings_and_parts(stages, splits):
    """More stages than there are, parts of unequal length, and parts that are empty."""
    cases = [made("f16", Case.conv, (1, 24, 6, 5), 20, (3, 3)), made("f16", Case.product, (9, 264), (264, 16))]
    check(cases, "wgmma", arch=ARCH, stages=stages, splits=splits)


def test_parts_of_windows_of_few_channels():
    """A stage is one tap, however few channels that has: K, of 224, has 28 of them."""
    check([made("f16", Case.conv, (1, 8, 6, 9), 16, (4, 7))], "wgmma", arch=ARCH, splits=12)


def _forms(case: Case) -> int:
    return len(WGMMA.takes(case.ops, [case.ops[-1].results[0]]))


@pytest.mark.parametrize(
    "build",
    [
        CONVS["one channel, padded all round"],
        CONVS["groups"],
        lambda c: c.product((5, 8), (8, 9)),
        lambda c: c.product((5, 9), (9, 8)),
        lambda c: c.conv((1, 8, 400, 3), 8, (3, 3), padding=(200, 1, 1, 1)),
        lambda c: c.conv((1, 8, 40, 40), 8, (3, 3), stride=(9, 1)),
        lambda c: c.op("add", c.product((16, 16), (16, 16)), c.block.args[0]),
    ],
)
def test_what_the_copy_engine_cannot_bring_is_refused(build):
    assert _forms(made("f16", build)) == 0


def test_f32_is_refused():
    assert _forms(made("f32", Case.conv, (1, 8, 5, 4), 8, (3, 3))) == 0
    with pytest.raises(LightNetError, match="warpgroups multiply f16 and bf16"):
        WgmmaCore(ProductTile(64, 64, 64, 2, (1, 1)), storage_type(BY_NAME["f32"]))


@pytest.mark.parametrize(
    "tile", [(63, 64, 64), (64, 60, 64), (64, 64, 32), (64, 264, 64), (128, 512, 64), (320, 128, 64)]
)
def test_tiles_that_warpgroups_cannot_share(tile):
    with pytest.raises(LightNetError, match="warpgroups: each has multiples of 64 rows"):
        check([made("f16", Case.conv, (1, 8, 5, 4), 8, (3, 3))], "wgmma", arch=ARCH, tile=tile)


NET = """builtin.module {
  func.func @main() -> tensor<1x64x20x20xf32> {
    %x = ln.input : tensor<1x64x20x20xf32> as ("x")
    %w = ln.param {ran = [-0.05, 0.05]} : tensor<64x64x3x3xf32> as ("w")
    %b = ln.param {ran = [-0.5, 0.5]} : tensor<64xf32> as ("b")
    %c = ln.conv2d %x, %w, %b {size = [3, 3], padding = [1, 1, 1, 1]} : tensor<1x64x20x20xf32>
    %y = ln.relu %c : tensor<1x64x20x20xf32> as ("y")
    func.return %y : tensor<1x64x20x20xf32>
  }
}
"""


@pytest.mark.parametrize("way", ["emulate", "on_cpu"])
def test_a_network(tmp_path, way):
    """Where the model prefers it, and without being asked for."""
    path = tmp_path / "net.mlir"
    path.write_text(NET)
    executable = lightnet.compile(path, "cuda", arch=ARCH, precision="f16", **{way: True})
    chosen = [
        op.attributes["alg"].data
        for op in executable.planned.walk()
        if op.name == "cuda.kernel" and "conv2d" in str(op)
    ]
    assert chosen == ["wgmma"]
    x = np.random.default_rng(0).uniform(-1, 1, (1, 64, 20, 20)).astype(np.float32)
    want = lightnet.compile(path, "none")({"x": x})["y"]
    np.testing.assert_allclose(executable({"x": x})["y"], want, rtol=0, atol=4e-3 * np.abs(want).max())


def test_it_is_for_one_architecture():
    assert [d.arch for d in DEVICES.values() if WGMMA.is_for(d)] == [ARCH]
    (kernel,) = made("f16", Case.conv, (1, 64, 5, 4), 64, (3, 3)).kernels("wgmma")
    with pytest.raises(LightNetError, match="'wgmma' is not for sm_90 "):
        choose(kernel, Request(features="sm_90"))
    assert choose(kernel, Request(features=ARCH))["tile"]


COMPUTED = """builtin.module {
  func.func @main() -> tensor<1x8x6x6xf16> {
    %x = ln.input : tensor<1x8x3x3xf16> as ("x")
    %v = ln.input : tensor<8x8x2x2xf16> as ("v")
    %w = ln.tanh %v : tensor<8x8x2x2xf16>
    %b = ln.param {ran = [-0.5, 0.5]} : tensor<8xf16> as ("b")
    %y = ln.deconv2d %x, %w, %b {size = [2, 2], stride = [2, 2]} : tensor<1x8x6x6xf16> as ("y")
    func.return %y : tensor<1x8x6x6xf16>
  }
}
"""


def test_why_weights_that_are_computed_are_refused():
    """A transposed convolution takes weights that were packed, whatever its layouts: another place in the pipeline is no help."""
    pipeline = pipelines.default("cuda").replace("choose", 'choose{set="y.alg=wgmma"}')
    with pytest.raises(LightNetError, match="'wgmma' takes it with weights that are static"):
        lightnet.compile(lightnet.loads(COMPUTED, ".mlir"), "cuda", arch=ARCH, pipeline=pipeline)
