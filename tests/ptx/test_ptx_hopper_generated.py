"""The PTX that ships for sm_90a, in the interpreter: kernels of the dialect over a ring of stages, against NumPy (factors are small integers, so that
sums are exact), and without any one of the instructions by which threads, copies and products wait for each other.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
from hopper_kernels import CONVS, PRODUCTS, Tile, conv_data, convolution, product, product_data
from xdsl.dialects.builtin import f16
from xdsl.dialects.func import FuncOp

from lightnet.backends.cuda.nvptx import emit_ptx
from lightnet.backends.cuda.tensor_maps import maps_of
from lightnet.diagnostics import LightNetError
from lightnet.dialects.cuda_launch import dynamic_shared
from lightnet.runtime.cuda.driver import DeviceLaunch
from lightnet.runtime.cuda.tensor_map import TensorMap
from lightnet_ptx.emulator import Emulator


class Kernel(NamedTuple):
    """PTX, the maps of its arguments, and how it is launched: the grid, and bytes of dynamic shared memory."""

    text: str
    maps: tuple[TensorMap | None, ...]
    grid: tuple[int, ...]
    dynamic: int


@cache
def emitted(sizes, type, tile: Tile) -> Kernel:
    """A product as it ships."""
    batch, m, n, k = sizes
    return _emitted(*product(m, n, k, type, tile, batch))


def _emitted(module, grid) -> Kernel:
    (function,) = (op for op in module.walk() if isinstance(op, FuncOp))
    return Kernel(emit_ptx(module, "sm_90a"), maps_of(function), tuple(grid), dynamic_shared(function))


def run(kernel: Kernel, tile: Tile, inputs: list[np.ndarray], shape, **options) -> np.ndarray:
    device = Emulator("sm_90a", **options)
    module = device.load(kernel.text)
    (name,) = module.kernels
    out = np.full(shape, np.nan, np.float32)
    at = [device.alloc(x.nbytes) for x in (*inputs, out)]
    for address, x in zip(at, (*inputs, out)):
        device.upload(address, x)
    arguments = tuple(device.tensor_map(a, m) if m is not None else a for a, m in zip(at, kernel.maps))
    device.launch(DeviceLaunch(module.function(name), kernel.grid, (tile.threads, 1, 1), kernel.dynamic, arguments))
    device.download(at[-1], out)
    return out


def multiplied(kernel: Kernel, sizes, type, tile: Tile, **options) -> bool:
    """Whether a product is right."""
    inputs, want = product_data(sizes, type, tile)
    return bool((run(kernel, tile, inputs, want.shape, **options) == want).all())


@pytest.mark.parametrize(("sizes", "type", "tile"), PRODUCTS, ids=str)
def test_products(sizes, type, tile):
    assert multiplied(emitted(sizes, type, tile), sizes, type, tile)


def test_a_product_that_is_not_watched():
    """As a network is emulated without looking for races: the waits are the same."""
    (case,) = (case for case in PRODUCTS if case[2].warpgroups == case[2].products == 2)
    assert multiplied(emitted(*case), *case, check=False)


@pytest.mark.parametrize(("conv", "type", "tile"), CONVS, ids=str)
def test_convolutions(conv, type, tile):
    inputs, want = conv_data(conv, type)
    assert (run(_emitted(*convolution(conv, type, tile)), tile, inputs, want.shape) == want).all()


#: What may not go, and what may not change: instructions, and what stands in their place.
CHANGES = [
    (r"bar\.sync\s+\d+;|barrier\.sync\S*\s+\d+;", ""),
    (r"fence\.mbarrier_init\.release\.cluster;", "DROP FENCES"),
    (r"mbarrier\.init\S*\s+[^;]*;", ""),
    (r"mbarrier\.arrive\.expect_tx\S*\s+[^;]*;", ""),
    (r"mbarrier\.arrive\.shared\S*\s+[^;]*;", ""),
    (r"@!%\w+ bra WAIT_\d+;", ""),
    (r"cp\.async\.bulk\.tensor\S*\s+[^;]*;", ""),
    (r"wgmma\.fence\.sync\.aligned;", ""),
    (r"wgmma\.commit_group\.sync\.aligned;", ""),
    (r"wgmma\.wait_group\.sync\.aligned \d+;", ""),
]
MUTATED = (1, 70, 72, 520), f16, Tile(40, products=2, warpgroups=1, stages=3)


def mutants() -> list[tuple[int, str, str]]:
    """A line, the instruction there, and the PTX without it."""
    text, found = emitted(*MUTATED).text, []
    for pattern, other in CHANGES:
        for match in re.finditer(pattern, text):
            begin, end = match.span()
            changed = text[:begin] + other + text[end:]
            if other == "DROP FENCES":  # either of both makes mbarriers visible
                changed = re.sub(r"fence\.proxy\.async\S*;", "", text[:begin] + text[end:])
            found.append((text.count("\n", 0, begin) + 1, match.group(), changed))
    return found


def test_nothing_that_waits_can_go():
    whole = emitted(*MUTATED)
    assert multiplied(whole, *MUTATED)
    every = mutants()
    assert all(any(re.match(pattern, text) for _, text, _ in every) for pattern, _ in CHANGES)
    survivors = []
    for line, name, text in every:
        try:
            if multiplied(whole._replace(text=text), *MUTATED, step_limit=100_000):
                survivors.append((line, name.split(".")[1]))
        except LightNetError as error:
            assert error.label and error.label.startswith("ptx."), error.render()
    # LLVM peels the first step off the loop. There is nothing to wait for in it, its groups may be one, and in the loop, which leaves the sums alone,
    # there is nothing to fence.
    lines = {name: [n for n, text, _ in every if name in text] for name in ("fence.sync", "commit_group", "wait_group")}
    needless = {
        (lines["fence.sync"][1], "fence"),
        (lines["commit_group"][0], "commit_group"),
        (lines["wait_group"][0], "wait_group"),
    }
    assert set(survivors) <= needless
