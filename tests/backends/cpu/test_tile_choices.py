"""What a kernel's choices of tiles, bands and groups may be: the largest that are built, and what is said of one more."""

from __future__ import annotations

from dataclasses import replace

import pytest
from blocked_kernels import kernel_of
from blocked_windows import convolution

from lightnet.backends.cpu.blocked.base import ProcessorModel
from lightnet.backends.cpu.blocked.conv_choices import _checked_walk, chosen_conv_tile
from lightnet.backends.cpu.blocked.conv_model import ConvTile, Geometry, TileWalk, conv_tiles
from lightnet.backends.cpu.blocked.winograd_model import MOST_SUMS, PANELS, TILES, TiledAxis, WinogradSchedule, problem
from lightnet.diagnostics import LightNetError

#: 3 x 3 windows on a map of 32 to 48 channels, 12 rows and 40 columns.
BODY = convolution((1, 32, 12, 40), 48, (3, 3), pad=(1, 1, 1, 1))
TILE = ": a convolution takes [rows, columns, vectors, unroll]"


@pytest.mark.parametrize(
    ("given", "halo_rows", "message"),
    [
        ((1, 14, 1, 16), 0, None), ((1, 32, 1, 8), 0, None), ((2, 16, 1, 8), 1, None), ((2, 16, 1, 8), None, None),
        ((1, 10, 3, 16), 0, None), ((12, 2, 1, 8), 1, None), ((1, 31, 1, 16), 0, None), ((1, 1, 1, 1), 0, None),
        ((1, 14, 1), 0, TILE), ((1, 14, 1, 0), 0, TILE), ((0, 14, 1, 1), 0, TILE),
        ((13, 4, 1, 1), 1, f"{TILE} of at most 12 x 40 pixels"), ((1, 41, 1, 1), 0, f"{TILE} of at most 12 x 40 pixels"),
        ((1, 8, 2, 1), 0, f"{TILE}, where vectors divides the 3 blocks of output channels"),
        ((1, 8, 1, 3), 0, f"{TILE}, where unroll divides the 16 channels of a block"),
        ((1, 32, 1, 16), 0, f"{TILE} of at most 32 sums, and 500 multiply-adds in a step"),
        ((1, 11, 3, 1), 0, f"{TILE} of at most 32 sums, and 500 multiply-adds in a step"),
        ((2, 16, 1, 8), 0, f"{TILE}; several rows need an input with 1 rows of halo, not 0"),
    ],
)  # fmt: skip
def test_tiles_of_a_convolution(given: tuple[int, ...], halo_rows: int | None, message: str | None) -> None:
    kernel = kernel_of(*BODY)
    geometry = Geometry.of(kernel.ops[0])
    if message is None:
        assert chosen_conv_tile(kernel, geometry, 16, given, halo_rows) == ConvTile(*given)
        return
    with pytest.raises(LightNetError) as error:
        chosen_conv_tile(kernel, geometry, 16, given, halo_rows)
    assert error.value.message == f"tile = {list(given)}{message}" and error.value.label == "convolution.tile"


#: Sums of the largest tile that was found to compile without spilling, by the number of vector registers.
MOST_IN_REGISTERS = {16: 12, 32: 28}


@pytest.mark.parametrize(("lanes", "registers"), [(16, 32), (8, 16), (4, 32)])
def test_tiles_that_are_tried_fit_the_registers(lanes: int, registers: int) -> None:
    """Their vectors divide the blocks of outputs, so that no tile is partly empty: each divisor of up to 12 is tried,
    which in 16 registers leaves room for one pixel; and a tile covers no more than the map."""
    machine = ProcessorModel(lanes=lanes, registers=registers)
    for blocks in range(1, 29):
        kernel = kernel_of(*convolution((1, 3, 2, 30), blocks * lanes, (1, 1)))
        tiles = list(conv_tiles(Geometry.of(kernel.ops[0]), machine))
        assert {t.vectors for t in tiles} == {v for v in range(1, 13) if blocks % v == 0}
        assert max(t.sums for t in tiles) <= MOST_IN_REGISTERS[registers]
        assert all(t.rows <= 2 and t.columns <= 30 for t in tiles)


@pytest.mark.parametrize(
    ("band", "fits"),
    [((4, 20), True), ((12, 40), True), ((2, 40), True), ((12, 10), True), ((3, 20), False), ((4, 15), False), ((14, 20), False), ((4, 50), False),
     ((0, 20), False), ((4,), False), ((4, 20, 1), False)],
)  # fmt: skip
def test_bands_of_a_convolution(band: tuple[int, ...], fits: bool) -> None:
    """Multiples of the tile, or all rows or columns."""
    kernel = kernel_of(*BODY)
    geometry, shape = Geometry.of(kernel.ops[0]), ConvTile(2, 10, 1, 8)
    if fits:
        assert _checked_walk(kernel, geometry, shape, "rows", band) == TileWalk("rows", *band)
        return
    with pytest.raises(LightNetError) as error:
        _checked_walk(kernel, geometry, shape, "rows", band)
    wanted = "a convolution takes [rows, columns] that are multiples of the tile's [2, 10], or all [12, 40]"
    assert error.value.message == f"band = {list(band)}: {wanted}"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, None), ({"group": (3, 10)}, None), ({"rows": 8, "vectors": 1}, None), ({"order": PANELS, "share": 1}, None), ({"share": 3}, None),
        ({"order": "pixels"}, "order = pixels: expected tiles, outputs or panels"),
        ({"group": (4, 2)}, "tiles = [4, 2]: there are [3, 10]"), ({"group": (1, 11)}, "tiles = [1, 11]: there are [3, 10]"),
        ({"unroll": 3}, "tile: 3 channels a step do not divide 16 and 32"),
        ({"rows": 9}, "tile: 9 tiles by 1 vectors, of 8 and 3, at most {most} sums"),
        ({"vectors": 4}, "tile: 4 tiles by 4 vectors, of 8 and 3, at most {most} sums"),
        ({"order": PANELS, "share": 2}, "share = 2: a panel is a block of its own where its weights are transformed"),
        ({"share": 4}, "share = 4: there are 3 panels of outputs"),
    ],
)  # fmt: skip
def test_schedules_that_can_be_built(changes: dict, message: str | None) -> None:
    conv = kernel_of(*BODY).ops[0]
    axes = [TiledAxis.cut(conv, axis, 4) for axis in (0, 1)]
    schedule = WinogradSchedule(m=4, lanes=16, batch=1, channels=32, outputs=48, y=axes[0], x=axes[1], group=(2, 4), rows=4, vectors=1, unroll=8,
                                order=TILES, share=1)  # fmt: skip
    found = problem(replace(schedule, **changes))
    assert found == (message and message.replace("{most}", str(MOST_SUMS)))


def test_sums_of_a_register_tile() -> None:
    conv = kernel_of(*convolution((1, 32, 12, 40), 64, (3, 3), pad=(1, 1, 1, 1))).ops[0]
    axes = [TiledAxis.cut(conv, axis, 4) for axis in (0, 1)]
    for rows, fits in ((MOST_SUMS // 4, True), (MOST_SUMS // 4 + 1, False)):
        schedule = WinogradSchedule(m=4, lanes=16, batch=1, channels=32, outputs=64, y=axes[0], x=axes[1], group=(3, 10), rows=rows, vectors=4,
                                    unroll=8, order=TILES, share=1)  # fmt: skip
        assert (problem(schedule) is None) is fits
