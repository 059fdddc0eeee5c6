"""The teams that run rows, and their time: a model of a device, by what a warp reads at once.

Nothing is measured. Imports stages, teams and the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import ceil

import numpy as np

from lightnet.backends.cuda.device import DeviceModel
from lightnet.backends.cuda.rows.kernel import READ_AHEAD, RowWalk
from lightnet.backends.cuda.rows.stages import PIECE, POINT, ROW, Rows
from lightnet.backends.cuda.rows.teams import Team
from lightnet.dataclasses import dataclass
from lightnet.dialects.cuda_checks import WARP
from lightnet.ir.bound import Const, Idx, Node, Read, reads
from lightnet.ir.types import TensorSpec

#: Threads of a block: of several teams, and at most.
THREADS, MOST_THREADS = 128, 512
#: Nanoseconds until what is read from memory is there, and from a shuffle or a barrier to the next step.
LATENCY, STEP = 600.0, 20.0
#: Threads that a processor keeps at a time, and bytes of a sector, which memory is read by.
RESIDENT, SECTOR = 2048, 32
#: Shares of the device's rate of memory: of what has to move, and of the sectors that warps touch, which caches may
#: have.
ONCE, SECTORS = 0.8, 1.0
#: What it saves to take twice as many elements at a time.
WIDER = 0.02
#: The share of the arithmetic that scalar code reaches.
CORES = 0.1
#: Bytes that a thread reads at a time, at most.
VECTOR = 16
#: The functions of an address, on arrays.
ARITHMETIC: dict[str, Callable[..., np.ndarray]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "floordiv": np.floor_divide, "mod": np.mod,
    "min": np.minimum, "max": np.maximum,
}  # fmt: skip


@dataclass(frozen=True)
class RowSchedule:
    """The run of rows: their walk, and the number of pieces that each is cut into, which are blocks of their own."""

    walk: RowWalk
    pieces: int = 1


def choices_of(rows: Rows, specs: dict[str, TensorSpec], device: DeviceModel, divisible: bool) -> Iterator[RowSchedule]:
    """The ways that are worth a look. `divisible`: rows may be cut in pieces."""
    for team in _teams(rows):
        for width in _widths(rows, specs, team):
            turns = RowWalk(team, width).turns(rows.extent)
            yield RowSchedule(RowWalk.of(team, width, rows.extent))
            blocks = ceil(rows.points / team.across)
            if not divisible or 2 * blocks > device.processors or turns < 4 * READ_AHEAD:
                continue
            most = 2 * device.processors * (RESIDENT // 2 // team.threads) // blocks
            yield RowSchedule(RowWalk.of(team, width, rows.extent), max(2, min(most, turns // (2 * READ_AHEAD), 1024)))


def _teams(rows: Rows) -> Iterator[Team]:
    size = (
        1 if rows.points > 1 or rows.extent == 1 else 2
    )  # alone, a thread reads as if what lies behind its row were there
    while size <= MOST_THREADS and (size <= 2 or size < 2 * rows.extent):
        yield Team("row", max(1, THREADS // size), size)
        size *= 2
    for across in (8, 16, 32):
        if across < 2 * rows.points:
            for warps in (1, 2, 4, 8, 16):
                if warps * WARP // across < 2 * rows.extent:
                    yield Team("column", across, warps * WARP // across)


def _widths(rows: Rows, specs: dict[str, TensorSpec], team: Team) -> Iterator[int]:
    """One element at a time, and as many as are read at once."""
    yield 1
    written = rows.written()
    sizes = [
        specs[r.tensor].dtype.size for s in rows.stages if s.has_row for r in reads(s.value) if r.tensor not in written
    ]
    width = VECTOR // max(sizes, default=VECTOR)
    if team.order == "row" and width > 1 and not any(s.extent % width for s in rows.stages if s.has_row):
        yield width


def _time(
    rows: Rows, launches: int, specs: dict[str, TensorSpec], choice: RowSchedule, device: DeviceModel, rate: float
) -> float:
    """Nanoseconds of the launches; `rate` is what they take where all processors are busy and nothing is read twice."""
    walk, team = choice.walk, choice.walk.team
    blocks = ceil(rows.points / team.across) * choice.pieces
    warps = blocks * team.threads // WARP
    busy = min(1.0, warps / (4 * device.processors))
    traffic, waits = 0.0, -LATENCY  # once is part of a launch
    for read, extent, again in rows.row_reads():
        turns = ceil(walk.turns(extent) / choice.pieces)
        held = walk.held and choice.pieces == 1
        if not (again and held):
            traffic += SECTOR * _sectors(read, rows, walk, specs[read.tensor].dtype.size) * warps * turns
            waits += LATENCY * (1 if held else ceil(turns / READ_AHEAD))
    together = len(team.strides) + (team.warps > 1) * (2 + team.warps / 4)
    waits += STEP * together * sum(s.is_reduction for s in rows.stages)
    waves = ceil(team.threads * blocks / (device.processors * RESIDENT))
    rate = max(rate, traffic / (SECTORS * device.bytes)) * (1 - WIDER * (walk.width.bit_length() - 1))
    return launches * device.launch + rate / busy + max(waits, 0.0) * waves


def least_time(rows: Rows, specs: dict[str, TensorSpec], device: DeviceModel, flops: int) -> float:
    """Nanoseconds in which memory gives and takes all tensors once, or the cores compute."""
    touched = {r.tensor for s in rows.stages for r in reads(s.value)} | rows.written()
    moved = sum(specs[t].nbytes for t in touched if t in specs)
    return max(moved / (ONCE * device.bytes), flops / (CORES * device.flops))


def _sectors(read: Read, rows: Rows, walk: RowWalk, size: int) -> int:
    """The number of sectors that a warp reads in one turn."""
    team, lanes = walk.team, np.arange(WARP)
    point, member = (
        (lanes % team.across, lanes // team.across)
        if team.order == "column"
        else (lanes // team.size, lanes % team.size)
    )
    elements = (np.minimum(member, rows.extent // walk.width - 1) * walk.width)[:, None] + np.arange(walk.width)
    at = _addresses(
        read.subs[0], {POINT: np.minimum(point, rows.points - 1)[:, None], ROW: elements, PIECE: np.zeros((1, 1), int)}
    )
    if at is None:
        return WARP * walk.width
    return len(np.unique(np.broadcast_to(at, elements.shape) * size // SECTOR))


def _addresses(node: Node, indices: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """The values of an address for arrays of indices; None where data decide, or more than arithmetic does."""
    if isinstance(node, Const):
        return np.asarray(node.value)
    if isinstance(node, Idx):
        return indices.get(node.name)
    if isinstance(node, Read) or node.fn not in ARITHMETIC:
        return None
    args = [found for arg in node.args if (found := _addresses(arg, indices)) is not None]
    return ARITHMETIC[node.fn](*args) if len(args) == len(node.args) else None


def best(
    rows: Rows, specs: dict[str, TensorSpec], device: DeviceModel, launches: int, flops: int
) -> tuple[RowSchedule, float]:
    """The way that takes least time, and that time. `launches` is the number of those of rows in pieces, 0 where rows
    are not cut."""
    rate = least_time(rows, specs, device, flops)
    ways = list(choices_of(rows, specs, device, bool(launches)))
    times = [_time(rows, launches if c.pieces > 1 else 1, specs, c, device, rate) for c in ways]
    return min(zip(ways, times), key=lambda way: way[1])
