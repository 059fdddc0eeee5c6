"""Chains of convolutions in bands of rows, in numbers: what a band keeps in the second-level cache, and what that saves.

A chain is a depthwise convolution with a pointwise one before it, behind it, or both. Run apart, each writes its whole map before the
next reads it; in bands, the maps in between are some rows in memory that is used again. The sums are the same, so what decides is
where these maps lie: in the second-level cache, or behind it. Nothing is measured. Imports the geometry of convolutions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from lightnet.backends.cpu.blocked import conv_model
from lightnet.backends.cpu.blocked.base import Machine, blocks_of
from lightnet.backends.cpu.blocked.conv_model import Geometry, Shape
from lightnet.backends.cpu.blocked.depthwise import best_tile

#: Share of the second-level cache that a band's maps and all weights of a chain may take together, so that weights stay for the next
#: band; and the share that the maps alone should take.
SHARE, MAPS_SHARE = 0.75, 0.25
#: What a byte of a map in between costs where the second-level cache does not hold it, written and read again, in units of a byte read
#: from the third (measured on inverted residuals of many sizes: 0.6 to 0.8, the rest hides behind arithmetic).
TRAFFIC = 1.0
#: Nanoseconds beside the arithmetic of a band: its loops' first and last trips.
BAND_TIME = 60.0
#: Bands that a picture should have at least, so that threads can share them.
LEAST_BANDS = 4


@dataclass(frozen=True)
class Chain:
    """A depthwise convolution `window` and the pointwise ones around it, if any: `expand` makes its input, `project` reads its
    result."""

    expand: Geometry | None
    window: Geometry
    project: Geometry | None

    @property
    def channels(self) -> int:
        """Channels of the maps in between."""
        return self.window.groups

    @property
    def span(self) -> int:
        """Input rows under the window of one row."""
        return (self.window.size[0] - 1) * self.window.dilation[0] + 1

    @property
    def overlap(self) -> int:
        """Input rows that a row's window has in common with the next row's."""
        return max(self.span - self.window.stride[0], 0)

    def ring(self, band: int) -> int:
        """Input rows under the windows of a band of rows."""
        return (band - 1) * self.window.stride[0] + self.span

    def bands(self, band: int) -> int:
        """Bands of a picture."""
        return -(-self.window.out_hw[0] // band)


@dataclass(frozen=True)
class Plan:
    """How a chain runs: rows of the result in a band, and the tiles. Where one band is the picture, tiles may have several rows."""

    band: int
    expand: Shape | None
    window: tuple[int, int]
    project: Shape | None


def held_bytes(chain: Chain, band: int, lanes: int) -> tuple[int, int]:
    """Bytes of the rows in memory of both maps in between: of the window's input, and of its result."""
    row = 4 * blocks_of(chain.channels, lanes) * lanes
    (_, width), (height, out_width) = chain.window.in_hw, chain.window.out_hw
    rows = chain.ring(band) if chain.bands(band) > 1 else chain.ring(height)
    before = row * rows * (width + 2 * chain.window.reach(1)) if chain.expand is not None else 0
    return before, row * band * out_width if chain.project is not None else 0


def between_bytes(chain: Chain, lanes: int) -> int:
    """Bytes of the maps in between, were they there as a whole."""
    maps = [chain.window.in_hw] * (chain.expand is not None) + [chain.window.out_hw] * (chain.project is not None)
    return 4 * lanes * blocks_of(chain.channels, lanes) * sum(h * w for h, w in maps) * chain.window.batch


def weight_bytes(chain: Chain) -> int:
    """Bytes of all weights of a chain."""
    return sum(conv_model.traffic(g)[0] for g in (chain.expand, chain.window, chain.project) if g is not None)


def best_plan(chain: Chain, machine: Machine, band: int | None = None) -> Plan:
    """The rows of a band (unless they are given) and the tiles that cost least."""
    if band is not None:
        return _plan(chain, machine, band)
    height, near = chain.window.out_hw[0], MAPS_SHARE * machine.l2
    bands = [
        b
        for b in range(1, height + 1)
        if chain.bands(b) >= LEAST_BANDS and sum(held_bytes(chain, b, machine.lanes)) <= near
    ]
    return min((_plan(chain, machine, b) for b in bands or [1]), key=lambda plan: overhead(chain, machine, plan))


@cache
def _plan(chain: Chain, machine: Machine, band: int) -> Plan:
    whole = chain.bands(band) == 1
    shapes = [None if g is None else _shape(g, machine, whole) for g in (chain.expand, chain.project)]
    rows, columns = best_tile(*chain.window.out_hw, machine)
    return Plan(band, shapes[0], (rows if whole else 1, columns), shapes[1])


@cache
def _shape(geometry: Geometry, machine: Machine, whole: bool) -> Shape:
    """The tile of a pointwise convolution that costs least."""
    found = (s for s in conv_model.shapes(geometry, machine, 0) if whole or s.rows == 1)
    return min(found, key=lambda s: conv_model.tiles_time(geometry, machine, s))


# -- time --------------------------------------------------------------------------------------------------------------


def gain(chain: Chain, machine: Machine, plan: Plan) -> float:
    """Nanoseconds that a chain saves against its convolutions apart (below 0: loses), on the machine's threads together. Where maps and
    weights all fit in the second-level cache anyway, it saves nothing."""
    between = between_bytes(chain, machine.lanes)
    if (
        between + weight_bytes(chain) <= machine.l2 // 2
        or sum(held_bytes(chain, plan.band, machine.lanes)) > machine.l2 // 2
    ):
        return 0.0
    again = 0.0
    if chain.project is not None:  # apart, its pixels are one long row, which tiles cover better
        height, width = chain.project.in_hw
        flat = replace(chain.project, in_hw=(1, height * width), out_hw=(1, height * width), flat=True)
        again = conv_model.tiles_time(chain.project, machine, plan.project)
        again -= conv_model.tiles_time(flat, machine, conv_model.best_shape(flat, machine))
    return TRAFFIC * between / machine.l3_bytes - overhead(chain, machine, plan) - max(again, 0.0)


def overhead(chain: Chain, machine: Machine, plan: Plan) -> float:
    """Nanoseconds that bands cost beside the sums, on the machine's threads together: loops, weights that pass in every band, rows that
    each thread expands anew, and the wait for the last."""
    bands = chain.bands(plan.band) * chain.window.batch
    near = sum(held_bytes(chain, plan.band, machine.lanes)) + weight_bytes(chain) <= SHARE * machine.l2
    passed = 0.0
    for geometry, shape in ((chain.expand, plan.expand), (chain.project, plan.project)):
        if geometry is None:
            continue
        group = 4 * machine.lanes * shape.vectors * geometry.channels
        if not near or group <= machine.l1 * 2 // 3:  # else they pass for every tile, in bands or not
            passed += conv_model.traffic(geometry)[0] / (machine.l2_bytes if near else machine.l3_bytes)
    lost = bands * (BAND_TIME + conv_model.EXPOSED * passed)
    if machine.threads > 1:
        rounds = -(-bands // machine.threads) * machine.threads
        lost += (rounds / bands - 1) * sums_time(chain, machine, plan)
        if chain.expand is not None:
            again = (machine.threads - 1) * chain.overlap / chain.window.in_hw[0]
            lost += again * conv_model.tiles_time(chain.expand, machine, plan.expand) / chain.window.batch
    return lost


@cache
def sums_time(chain: Chain, machine: Machine, plan: Plan) -> float:
    """Nanoseconds of the sums of a chain on one core."""
    window = chain.window
    vectors = window.batch * blocks_of(chain.channels, machine.lanes) * window.out_hw[0] * window.out_hw[1]
    total = 0.9 * 2 * machine.lanes * vectors * (window.size[0] * window.size[1] + 3) / machine.flops
    for geometry, shape in ((chain.expand, plan.expand), (chain.project, plan.project)):
        if geometry is not None:
            total += conv_model.tiles_time(geometry, machine, shape)
    return total


def time(chain: Chain, machine: Machine, plan: Plan) -> float:
    """Nanoseconds of a chain on one core."""
    return sums_time(chain, machine, plan) + overhead(chain, replace(machine, threads=1), plan)
