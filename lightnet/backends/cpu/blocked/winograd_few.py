"""Winograd convolutions on open maps that a call may make small: a few pixels are computed directly, by the same
weights.

A tile of few pixels multiplies what no output needs, and is transformed for that; on a map of one pixel most taps lie
in the padding, and are passed over. Imports the direct kernel and both models.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

from xdsl.ir import SSAValue

from lightnet.backends.builder import Index
from lightnet.backends.cpu.blocked import conv_model as model
from lightnet.backends.cpu.blocked.base import ProcessorModel, lanes_of
from lightnet.backends.cpu.blocked.conv import DirectKernel
from lightnet.backends.cpu.blocked.conv_choices import ConvSchedule
from lightnet.backends.cpu.blocked.conv_model import ConvTile, Geometry, TileWalk
from lightnet.backends.cpu.blocked.depthwise import conv_of
from lightnet.backends.cpu.blocked.winograd_model import WinogradSchedule, winograd_time_of
from lightnet.backends.cpu.blocked.winograd_runs import is_many
from lightnet.backends.launches import Launch
from lightnet.dataclasses import replace
from lightnet.ir.instances import typical_op
from lightnet.ir.kernel import KernelOp
from lightnet.ir.types import vector_type_of
from lightnet.runtime.dims import greatest

#: The longest side of the square maps that are asked for.
MOST_SIDE = 15
#: What pixels with an address each cost, which pass over no taps, beside the model's tiles (measured).
ALL_TAPS = 1.25


def sides_of(step: int) -> range:
    """The sides of small maps that are a multiple of `step`, longest first: of any maps the odd ones, which tiles do
    not fit."""
    by = 2 if step == 1 else step
    return range(MOST_SIDE - (MOST_SIDE - step) % by, 0, -by)


def few_pixels(schedule: WinogradSchedule, geometry: Geometry, machine: ProcessorModel, step: int) -> int:
    """The most pixels of which the direct convolution takes less time, by both models, of maps whose sides are
    multiples of `step`; 0 where it never does, or where the last panel of outputs is not full, which it would have to
    be."""
    if schedule.out_blocks % schedule.vectors:
        return 0
    for side in sides_of(step):
        for rows in (side, side - step):
            size = [out - old + n for out, old, n in zip((rows, side), geometry.positions, geometry.size)]
            if min(rows, *size) < 1:
                continue
            small = geometry.over((size[0], size[1]), (rows, side))
            y, x = (
                replace(axis, size=n, positions=out)
                for axis, n, out in zip((schedule.y, schedule.x), size, (rows, side))
            )
            if direct_time(schedule, small, machine) < winograd_time_of(replace(schedule, y=y, x=x), machine):
                return rows * side
    return 0


def direct_time(schedule: WinogradSchedule, geometry: Geometry, machine: ProcessorModel) -> float:
    """Nanoseconds of the direct convolution instead."""
    return 100 + ALL_TAPS * model.tiles_time(geometry, machine, _tile_of(schedule, machine))


def _tile_of(schedule: WinogradSchedule, machine: ProcessorModel) -> ConvTile:
    unroll = gcd(schedule.channels, machine.lanes, 8)
    return ConvTile(1, model.most_pixels(machine, schedule.vectors), schedule.vectors, unroll)


def with_few(kernel: KernelOp, schedule: WinogradSchedule, launches: list[Launch], name: str, machine: ProcessorModel,
             aliases: Mapping[int, int]) -> list[Launch]:  # fmt: skip
    """The launches for maps of more pixels than `schedule.few`, each of an empty grid for others, and one for those."""
    if (many := is_many(schedule)) == 1:
        return launches
    walk = TileWalk(model.OUTPUTS, min(4, greatest(schedule.y.positions)), 0)
    made = ConvSchedule(Geometry.of(typical_op(conv_of(kernel))), _tile_of(schedule, machine), walk)
    direct = _FewKernel(kernel, made, name, aliases).build()
    direct = replace(direct, grid=direct.grid * (1 - many))
    return [*(replace(launch, grid=launch.grid * many) for launch in launches), direct]


class _FewKernel(DirectKernel):
    """The direct convolution by weights that are packed as `winograd_panels.py` transforms them."""

    order, has_rows = "block c", False

    def weights(self, r: Index, block: Index, q: Index, channel: Index, count: int, sums: SSAValue) -> SSAValue:
        lanes, inner = lanes_of(self.kernel), vector_type_of(sums).get_shape()[2:]
        at = [self.group, self.b.add(self.b.mul(block, lanes), channel), r, q, 0]
        dims, steps = [1, *(4 for _ in inner)], [1, lanes, *(1 for _ in inner[1:])]
        return self.b.tile_load(self.inputs[self.weight], at, dims, (count, *inner), steps=steps)
