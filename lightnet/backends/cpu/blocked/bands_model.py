"""Chains of convolutions in bands of rows, in numbers: what a band keeps in the second-level cache, and what that
saves.

A chain is a depthwise convolution with a pointwise one before it, behind it, or both. Run apart, each writes its whole
map before the next reads it; in bands, the maps in between are some rows in memory that is used again. The sums are the
same, so what decides is where these maps lie: in the second-level cache, or behind it. Nothing is measured while
compiling. The constants are for the machine model's AMD Zen 5; `python tools/calibrate.py bands` prints what fits the
processor at hand beside them. Imports the geometry of convolutions.
"""

from __future__ import annotations

from functools import cache, cached_property

from lightnet.backends.cpu.blocked import conv_model
from lightnet.backends.cpu.blocked.base import ProcessorModel, blocks_of
from lightnet.backends.cpu.blocked.conv_model import ConvTile, Geometry
from lightnet.backends.cpu.blocked.depthwise import best_depthwise_tile, row_tile
from lightnet.backends.cpu.blocked.first_model import tile_of
from lightnet.dataclasses import dataclass, replace

#: Share of the second-level cache that a band's maps and all weights of a chain may take together, so that weights stay
#: for the next band; and the share that the maps alone should take.
SHARE, MAPS_SHARE = 0.75, 0.25
#: What a byte of a map in between costs where the second-level cache does not hold it, written and read again, in units
#: of a byte read from the third (measured in MobileNetV2, block by block: 0.6 on a quiet machine, up to 2 on a busy
#: one).
TRAFFIC = 1.0
#: Share of the memory's rate at which weights come that nobody fetches ahead.
COLD = 0.6
#: Nanoseconds beside the arithmetic of a band: its loops' first and last trips.
BAND_TIME = 60.0
#: Bands that a picture should have at least, so that threads can share them; rows of a band that are tried, at most.
LEAST_BANDS, MOST_ROWS = 4, 32


@dataclass(frozen=True)
class Chain:
    """A depthwise convolution `window` and the pointwise ones around it, if any: `expand` makes its input, `project`
    reads its result."""

    expand: Geometry | None
    window: Geometry
    project: Geometry | None

    @property
    def opens(self) -> bool:
        """True if the chain begins with the first convolution of a network, which makes all channels of a row before
        the next."""
        return self.expand is not None and not self.expand.is_pointwise

    @property
    def channels(self) -> int:
        """Channels of the maps in between."""
        return self.window.groups

    @property
    def span(self) -> int:
        """Input rows under the window of one row."""
        return self.window.rows.extent

    @property
    def overlap(self) -> int:
        """Input rows that a row's window has in common with the next row's."""
        return max(self.span - self.window.rows.stride, 0)

    def ring(self, band: int) -> int:
        """Input rows under the windows of a band of rows."""
        return self.window.rows.span(band)

    @cached_property
    def expanded(self) -> Geometry | None:
        """`expand` of the rows alone that windows reach, which a picture may have more of: no others are there."""
        if self.expand is None:
            return None
        height, width = self.expand.positions
        rows = min(height, self.ring(self.window.rows.positions) - self.window.rows.before)
        return self.expand.over((rows, self.expand.cols.size), (rows, width))

    @property
    def reaches(self) -> bool:
        """True where windows reach a row of the expanded map: they do not where they read padding alone."""
        return self.expanded is None or self.expanded.rows.positions > 0

    def least_rows(self, band: int) -> int:
        """Rows that a band expands at least."""
        whole = self.window.rows.size if self.expanded is None else self.expanded.rows.positions
        return whole if self.bands(band) == 1 else min(whole, band * self.window.rows.stride)

    def bands(self, band: int) -> int:
        """Bands of a picture."""
        return -(-self.window.rows.positions // band)


@dataclass(frozen=True)
class BandSchedule:
    """The run of a chain in numbers: rows of the result in a band, and the tiles. Either expanded rows are kept for the
    next band (`keep`), or each band makes its own, some channels after others, in memory for these alone. Where one
    band is the picture, tiles may have several rows.
    """

    band: int
    keep: bool
    expand: ConvTile | None
    window: tuple[int, int]
    project: ConvTile | None

    def held(self, blocks: int) -> int:
        """Blocks of channels of the expanded map that are there at a time, of `blocks`."""
        return blocks if self.keep or self.expand is None else self.expand.vectors


def held_bytes(chain: Chain, schedule: BandSchedule, lanes: int) -> tuple[int, int]:
    """Bytes of the rows in memory of both maps in between: of the window's input, and of its result."""
    blocks, width, out_width = blocks_of(chain.channels, lanes), chain.window.cols.size, chain.window.cols.positions
    before = schedule.held(blocks) * chain.ring(schedule.band) * (width + 2 * chain.window.cols.halo)
    behind = blocks * schedule.band * out_width
    return 4 * lanes * before * (chain.expand is not None), 4 * lanes * behind * (chain.project is not None)


def between_bytes(chain: Chain, lanes: int) -> int:
    """Bytes of the maps in between, were they there as a whole."""
    maps = [chain.window.size] * (chain.expand is not None) + [chain.window.positions] * (chain.project is not None)
    return 4 * lanes * blocks_of(chain.channels, lanes) * sum(h * w for h, w in maps) * chain.window.batch


def weight_bytes(chain: Chain) -> int:
    """Bytes of all weights of a chain."""
    return sum(conv_model.traffic(g)[0] for g in (chain.expand, chain.window, chain.project) if g is not None)


@cache
def best_schedule(
    chain: Chain, machine: ProcessorModel, band: int | None = None, keep: bool | None = None
) -> BandSchedule:
    """The rows of a band, whether they are kept for the next (unless that is given), and the tiles that cost least."""
    height, near = chain.window.rows.positions, MAPS_SHARE * machine.l2
    schedules = [_schedule(chain, machine, b, True) for b in ([band] if band else range(1, min(height, MOST_ROWS) + 1))]
    fitting = [
        p for p in schedules if chain.bands(p.band) >= LEAST_BANDS and sum(held_bytes(chain, p, machine.lanes)) <= near
    ]
    found = fitting or schedules[:1] if keep is not False or chain.opens else []
    if not keep and not chain.opens:
        found = [*found, _schedule(chain, machine, band or -(-height // machine.threads), False)]
    return max(found, key=lambda schedule: gain(chain, machine, schedule))


@cache
def _schedule(chain: Chain, machine: ProcessorModel, band: int, keep: bool) -> BandSchedule:
    whole = chain.bands(band) == 1
    expand, project = (None if g is None else _shape(g, machine, whole) for g in (chain.expanded, chain.project))
    height, width = chain.window.positions
    rows, columns = best_depthwise_tile(height, width, machine) if whole else (1, row_tile(width, machine))
    if chain.opens:
        assert chain.expand is not None
        _, wide, vectors = tile_of(
            1, chain.expand.cols.positions, blocks_of(chain.channels, machine.lanes), machine.registers
        )
        expand = ConvTile(1, wide, vectors, 1)
    return BandSchedule(band, keep, expand, (rows, columns), project)


@cache
def _shape(geometry: Geometry, machine: ProcessorModel, whole: bool) -> ConvTile:
    """The tile of a pointwise convolution that costs least."""
    found = (s for s in conv_model.conv_tiles(geometry, machine, 0) if whole or s.rows == 1)
    return min(found, key=lambda s: conv_model.tiles_time(geometry, machine, s))


# -- time --------------------------------------------------------------------------------------------------------------


@cache
def gain(chain: Chain, machine: ProcessorModel, schedule: BandSchedule) -> float:
    """Nanoseconds that a chain saves against its convolutions apart (below 0: loses), on the machine's threads
    together."""
    saved = TRAFFIC * _saved_bytes(chain, machine, schedule) / machine.l3_bytes
    again = 0.0
    if chain.project is not None:  # apart, its pixels are one long row, which tiles cover better
        height, width = chain.project.size
        flat = replace(chain.project.over((1, height * width), (1, height * width)), flat=True)
        again = conv_model.tiles_time(chain.project, machine, schedule.project)
        again -= conv_model.tiles_time(flat, machine, conv_model.best_shape(flat, machine))
    return saved - overhead(chain, machine, schedule) - max(again, 0.0)


def _saved_bytes(chain: Chain, machine: ProcessorModel, schedule: BandSchedule) -> int:
    """Bytes of maps in between that stay in the second-level cache, where they would not if they were there as a
    whole."""
    between, held = between_bytes(chain, machine.lanes), sum(held_bytes(chain, schedule, machine.lanes))
    if between + weight_bytes(chain) <= machine.l2 // 2 or held > machine.l2 // 2:
        return 0
    return between


def overhead(chain: Chain, machine: ProcessorModel, schedule: BandSchedule) -> float:
    """Nanoseconds that bands cost beside the sums, on the machine's threads together: loops, weights that pass in every
    band, rows that are expanded anew, and the wait for the last."""
    bands = chain.bands(schedule.band) * chain.window.batch
    near = sum(held_bytes(chain, schedule, machine.lanes)) + weight_bytes(chain) <= SHARE * machine.l2
    passed = 0.0
    for geometry, shape in ((chain.expand, schedule.expand), (chain.project, schedule.project)):
        if geometry is None:
            continue
        assert shape is not None
        group = 4 * machine.lanes * shape.vectors * geometry.channels
        if not near or group <= machine.l1 * 2 // 3:  # else they pass for every tile, in bands or not
            passed += conv_model.traffic(geometry)[0] / (machine.l2_bytes if near else machine.l3_bytes)
    lost = bands * (BAND_TIME + conv_model.EXPOSED * passed)
    if schedule.keep:  # the first band waits for all weights, which are fetched ahead otherwise
        lost += machine.threads * weight_bytes(chain) / (COLD * machine.dram_bytes)
    if machine.threads > 1:
        rounds = -(-bands // machine.threads) * machine.threads
        lost += (rounds / bands - 1) * sums_time(chain, machine, schedule)
    if chain.expand is not None:
        starts = machine.threads - 1 if schedule.keep else chain.window.batch * (chain.bands(schedule.band) - 1)
        again = starts * chain.overlap / chain.window.rows.size
        lost += again * conv_model.tiles_time(chain.expand, machine, schedule.expand) / chain.window.batch
    return lost


@cache
def sums_time(chain: Chain, machine: ProcessorModel, schedule: BandSchedule) -> float:
    """Nanoseconds of the sums of a chain on one core."""
    window = chain.window
    vectors = window.batch * blocks_of(chain.channels, machine.lanes) * window.rows.positions * window.cols.positions
    total = 0.9 * 2 * machine.lanes * vectors * (window.rows.taps * window.cols.taps + 3) / machine.flops
    for geometry, shape in ((chain.expand, schedule.expand), (chain.project, schedule.project)):
        if geometry is not None:
            total += conv_model.tiles_time(geometry, machine, shape)
    return total


def time(chain: Chain, machine: ProcessorModel, schedule: BandSchedule) -> float:
    """Nanoseconds of a chain on one core."""
    return sums_time(chain, machine, schedule) + overhead(chain, replace(machine, threads=1), schedule)
