"""The memory of Winograd convolutions: of one group of tiles, its transformed input, its products, and the weights that
are transformed at a time.

On open maps a group is a run of tiles, and has memory for as many as a call's map has: the distances between its planes
are numbers that each call decides, so planes are rows of one memref. Elsewhere they are dimensions. Imports the plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from xdsl.dialects.builtin import DYNAMIC_INDEX, MemRefType, f32
from xdsl.ir import SSAValue

from lightnet.backends.builder import Builder, Index
from lightnet.backends.cpu.blocked.winograd_model import PANELS, TILES, WinogradSchedule
from lightnet.runtime.arrays import align_up
from lightnet.runtime.dims import Size, dim_min

#: Tiles for each block of channels whose weights are transformed at a time: sums of fewer would be read and written
#: more often than that saves memory.
TILES_A_BLOCK = 2


class Planes(NamedTuple):
    """A memref of planes, one for each product of a tile: each a dimension, or `rows` rows of it."""

    memref: SSAValue
    rows: Size | None = None

    def at(self, b: Builder, k: Index, row: Index, group: Sequence[Index] = ()) -> list[Index]:
        """The indices of a row of plane `k` (of a group)."""
        return [*group, k, row] if self.rows is None else [b.add(b.mul(k, self.rows), row)]


def padded_bytes(shape: Sequence[Size]) -> Size:
    """Bytes of a memref of f32, filled up so that the next may follow."""
    return align_up(4 * prod(shape))


def map_tiles(schedule: WinogradSchedule) -> Size:
    """The tiles of a picture."""
    return schedule.y.tiles * schedule.x.tiles


def is_many(schedule: WinogradSchedule) -> Size:
    """1 in a call whose maps have more pixels than are computed directly (`winograd_few.py`), else 0."""
    pixels: Size = schedule.y.positions * schedule.x.positions
    return dim_min(pixels // (schedule.few + 1), 1) if schedule.is_run and schedule.few else 1


def used_slots(schedule: WinogradSchedule) -> Size:
    """The tiles of a group that have memory."""
    return dim_min(schedule.slots, map_tiles(schedule)) if schedule.is_run else schedule.slots


def input_rows(schedule: WinogradSchedule) -> Size:
    """Vectors of a plane of the transformed input. A last register tile is whole: of a short run it reads what stands
    behind, and writes behind the products, which must be no input that other panels still read."""
    blocks, full = schedule.in_blocks, schedule.input_shape[2]
    if not schedule.is_run:
        return full
    if schedule.order == TILES:
        blocks = max(blocks, schedule.share * schedule.vectors)
    behind = schedule.rows if schedule.order == TILES else -(-schedule.rows // schedule.vectors)
    short = -(-blocks // schedule.vectors) * map_tiles(schedule) + behind
    return schedule.vectors * dim_min(full // schedule.vectors, short)


def product_rows(schedule: WinogradSchedule) -> Size:
    """Tiles of a plane of products, with those that fill up the last register tile."""
    if not schedule.is_run or schedule.order == TILES:
        return input_rows(schedule) // schedule.vectors if schedule.is_run else schedule.product_shape[1]
    return dim_min(schedule.product_shape[1], map_tiles(schedule) + schedule.rows - 1)


def part_blocks(schedule: WinogradSchedule) -> Size:
    """Blocks of input channels whose weights are transformed at a time."""
    return dim_min(schedule.part, -(-map_tiles(schedule) // TILES_A_BLOCK)) if schedule.is_run else schedule.part


def group_bytes(schedule: WinogradSchedule) -> Size:
    """Bytes of the transformed input of a run, filled up so that another may follow."""
    return padded_bytes((schedule.products, input_rows(schedule), schedule.lanes))


def product_bytes(schedule: WinogradSchedule) -> Size:
    """Bytes of the products of a thread. They take the place of the transformed input, unless that is shared: it stands
    one plane behind, and what was read is written over."""
    inner = schedule.product_shape[2:]
    made = padded_bytes((schedule.products * product_rows(schedule), *inner))
    if schedule.order != TILES:
        return made
    if not schedule.is_run:
        return made + padded_bytes(schedule.input_shape[2:])
    return padded_bytes((schedule.products + 1, input_rows(schedule), schedule.lanes))


def scratch_bytes(schedule: WinogradSchedule) -> Size:
    """Of one thread: a tile, the products, and weights of a part of the input channels."""
    weights = padded_bytes(part_shape(schedule)) if schedule.order == PANELS else 0
    return padded_bytes(schedule.tile_shape) + (product_bytes(schedule) + weights) * is_many(schedule)


def part_shape(schedule: WinogradSchedule) -> tuple[Size, Size, int, int]:
    """The weights of a part: [products, channels, vectors, lanes]; one channel more, so that the products of a window
    spread over the sets of a cache."""
    return schedule.products, part_blocks(schedule) * schedule.lanes + 1, schedule.vectors, schedule.lanes


def workspace_bytes(schedule: WinogradSchedule) -> Size:
    """The transformed input that threads share."""
    if schedule.order == TILES:
        return 0
    if not schedule.is_run:
        return padded_bytes(schedule.input_shape)
    return schedule.all_groups * group_bytes(schedule) * is_many(schedule)


def planes(b: Builder, memory: SSAValue, offset: Index, rows: Size, shape: Sequence[int], name: str) -> Planes:
    """`shape[0]` planes of `rows` rows of `shape[1:]` in memory, from a byte on."""
    count, *inner = shape
    length = count * rows
    type = MemRefType(f32, [length if isinstance(length, int) else DYNAMIC_INDEX, *inner])
    return Planes(b.view(memory, offset, type, name, length), rows)
