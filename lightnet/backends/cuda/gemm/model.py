"""How long a product takes, and which tile and how many parts of K are best: a model of the device, nothing measured.

A device takes blocks in waves. A block is as fast as its threads' tiles allow (a small tile loads more for each multiply-add), the device as fast
as its memory gives A and B, each of which is read once from memory, and again from the second-level cache for each tile beside. Imports the
cores' tiles, the problem and the device.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from xdsl.ir import Attribute

from lightnet.backends.cuda.device import Device
from lightnet.backends.cuda.gemm.core import Core, Tile
from lightnet.backends.cuda.gemm.kernel import Plan
from lightnet.backends.cuda.gemm.problem import Problem
from lightnet.diagnostics import LightNetError
from lightnet.ir.types import storage_type

#: Makes the core of a tile; raises `LightNetError` where there is none.
MakeCore = Callable[[Tile, Attribute, bool], Core]
#: Stages in a ring: two hide little of what memory takes.
STAGES = (4, 3, 2)
#: Parts of K that are tried. More than blocks fill a device need, a split never pays.
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
#: Nanoseconds until what was asked of memory is there (once is part of a launch), and that barrier and loop take for each stage.
LATENCY, STEP = 700.0, 60.0
#: How many times as fast as memory the second-level cache is.
L2 = 2.5
#: Threads of a processor that keep its cores busy, and threads that it has at most.
BUSY, MOST_THREADS = 128, 2048
#: Instructions that a copy takes, its address included.
COPY = 12
#: The share of what goes on beside something longer that shows.
OVERLAP = 0.2
#: Bytes of shared memory that the system keeps of every block's: what a processor has is that of the largest block, and these.
RESERVED = 1 << 10
#: Registers of a processor, and of a thread beside its sums.
REGISTERS, BESIDE = 65536, 100


@dataclass(frozen=True)
class Speed:
    """What a family of cores reaches: the share of their peak in large tiles a thread, and sums of a thread at which it is half of that."""

    peak: float
    share: float
    half: float


def time_of(p: Problem, plan: Plan, core: Core, speed: Speed, device: Device) -> float:
    """Nanoseconds of a product, its launches included."""
    tile, size = plan.tile, p.dtype.size
    down, along = plan.tiles(p)
    blocks, steps = plan.blocks(p), plan.steps(core.stages(p))
    sums = tile.rows * tile.cols / core.threads
    share = speed.share * sums / (sums + speed.half)
    resident = min(blocks_at_once(core, device), -(-blocks // device.processors))
    busy = min(1.0, resident * core.threads / BUSY)
    work = 2 * tile.rows * tile.cols * tile.depth / (speed.peak * share)
    work += 2 * COPY * core.copies(p) / device.flops
    rounds = -(-blocks // (device.processors * resident))
    compute = rounds * resident * steps * work * device.processors / busy
    waiting = steps * STEP + max(0.0, steps / (tile.stages - 1) - 1) * LATENCY / resident
    a, b = p.rows * p.depth * size * p.batch, p.cols * p.depth * size * p.batch
    c = p.batch * p.rows * p.cols * size * (1 + len(p.epilogue) / 2)
    once = p.anchor.operand_specs[0].nbytes + b + c  # windows overlap
    memory = max(once / (0.85 * device.bytes), (a * along + b * down + c) / (L2 * device.bytes))
    total = device.launch + overlapped(compute, memory, rounds * waiting)
    if plan.splits > 1:  # what is written and read stays in the second-level cache, where it fits
        total += device.launch + 8 * plan.splits * p.batch * p.rows * p.cols / (L2 * device.bytes) + LATENCY
    return total


def overlapped(*times: float) -> float:
    """The time of what goes on at once: that of the longest, and some of the others, which never hide all of it."""
    return max(times) + OVERLAP * (sum(times) - max(times))


def blocks_at_once(core: Core, device: Device) -> int:
    """Blocks that a processor can have at a time: it shares memory and registers between them."""
    registers = core.threads * min(255, BESIDE + core.tile.rows * core.tile.cols // core.threads)
    memory = device.shared + RESERVED
    return max(
        1, min(memory // (core.shared_bytes + RESERVED), REGISTERS // registers, MOST_THREADS // core.threads, 16)
    )


@dataclass(frozen=True)
class Family:
    """The cores of a generator: `tiles(problem)` are those worth trying (their stages are set here), `across` says how rows and columns of one are
    shared, `core` makes one."""

    tiles: Callable[[Problem], Iterator[Tile]]
    across: Callable[[int, int], tuple[int, int]]
    core: MakeCore
    speed: Callable[[Problem, Device], Speed]

    def make(self, p: Problem, tile: Tile) -> Core:
        """The core of a tile."""
        return self.core(tile, storage_type(p.dtype), p.by_k)

    def best(self, p: Problem, device: Device, pinned: Pinned) -> tuple[float, Plan]:
        """The plan that takes least time, and its nanoseconds, among those that agree with what is `pinned`. Raises `LightNetError` where
        none does."""
        sizes = p.kind, p.anchor.operand_specs[0], p.batch, p.rows, p.cols, p.depth, len(p.epilogue)
        key = (
            self,
            sizes,
            pinned,
            device.arch,
            device.processors,
            device.flops,
            device.bytes,
            device.by_warps,
            *device.tensor.values(),
        )
        if key not in _known:
            if len(_known) >= MOST_KNOWN:
                _known.clear()
            _known[key] = _best(self, p, device, pinned)
        return _known[key]


#: What `Family.best` found, by sizes and device, and how many of these are kept.
_known: dict[Hashable, tuple[float, Plan]] = {}
MOST_KNOWN = 4096


class Pinned(NamedTuple):
    """Choices that a kernel has already."""

    tile: Tile | None = None
    stages: int | None = None
    splits: int | None = None


def _best(family: Family, p: Problem, device: Device, pinned: Pinned) -> tuple[float, Plan]:
    speed = family.speed(p, device)
    found: list[tuple[float, int, Plan]] = []
    for tile in [pinned.tile] if pinned.tile is not None else family.tiles(p):
        for count in STAGES if pinned.stages is None else (pinned.stages,):
            ring = Tile(tile.rows, tile.cols, tile.depth, count, tile.across)
            core = family.make(p, ring)
            if core.shared_bytes > device.shared:
                continue
            most = max(1, core.stages(p) // 2)
            for splits in (pinned.splits,) if pinned.splits is not None else SPLITS:
                if splits > most and pinned.splits is None:
                    break
                plan = Plan(ring, splits)
                found.append((time_of(p, plan, core, speed, device), len(found), plan))
                if plan.blocks(p) > 4 * device.processors:
                    break
    if not found:
        raise LightNetError(
            f"no tile of {device.shared} bytes of shared memory has such stages", label="cuda.gemm.stages"
        )
    time, _, plan = min(found, key=lambda f: f[:2])
    return time, plan
