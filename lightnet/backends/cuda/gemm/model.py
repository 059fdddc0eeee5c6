"""The time that a product takes, and the tile and the number of parts of K that are best: a model of the device.

Its constants were fitted to 704 plans of 103 products on an H100 (`tools/calibrate_cuda.py`, docs/performance-cuda.md);
a device is what its data sheet says.

A device takes blocks in waves. A block is as fast as its threads' tiles allow (a small tile loads more for each
multiply-add), the device as fast as its memory gives A and B, each of which is read once from memory, and again from
the second-level cache for each tile beside. Imports the cores' tiles, the problem and the device.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import NamedTuple

from xdsl.ir import Attribute

from lightnet.backends.cuda.device import DeviceModel
from lightnet.backends.cuda.gemm.core import Core, ProductTile
from lightnet.backends.cuda.gemm.kernel import GemmSchedule
from lightnet.backends.cuda.gemm.problem import GemmProblem
from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError
from lightnet.ir.types import storage_type

#: Makes the core of a tile; raises `LightNetError` where there is none.
MakeCore = Callable[[ProductTile, Attribute, bool], Core]
#: Stages in a ring: two hide little of what memory takes.
STAGES = (4, 3, 2)
#: Parts of K that are tried. More than blocks fill a device need, a split never pays.
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
#: Nanoseconds until what was asked of memory is there (once is part of a launch), and that barrier, loop and the copies
#: of a stage take.
LATENCY, STEP = 250.0, 160.0
#: How many times as fast as memory the second-level cache is, and the share of it that tensors may fill to be found
#: there.
L2, KEPT = 4.5, 0.7
#: The share of the rate of a data sheet that memory has.
MEMORY = 0.9
#: Instructions of a thread for a copy, for an element of C (it is scaled, cast and written), and for each operation of
#: an epilogue on it.
COPY, WRITE, OPERATION = 60, 25, 6
#: The share of what goes on beside something longer that shows.
OVERLAP = 0.15
#: What splitting K costs beside a launch that adds the parts up: nanoseconds, less than a launch, since it waits for
#: nothing else, and the rate, in that of memory, at which parts are written and read.
JOIN, PARTS = 1200.0, 1.35
#: Threads that a processor has at most.
MOST_THREADS = 2048
#: Bytes of shared memory that the system keeps of every block's: what a processor has is that of the largest block, and
#: these.
RESERVED = 1 << 10
#: Registers of a processor, and of a thread beside its sums.
REGISTERS, BESIDE = 65536, 100


@dataclass(frozen=True)
class Speed:
    """The speed that a family of cores reaches: operations a nanosecond where a thread has many sums, and the sums of a
    thread at which it is half of that.
    """

    peak: float
    half: float


def product_time_of(p: GemmProblem, schedule: GemmSchedule, core: Core, speed: Speed, device: DeviceModel) -> float:
    """Nanoseconds of a product, its launches included."""
    tile, size = schedule.tile, p.dtype.size
    down, along = schedule.tiles(p)
    blocks, steps = schedule.blocks(p), schedule.steps(core.stages(p))
    sums = tile.rows * tile.cols / core.threads
    share = sums / (sums + speed.half)
    resident = min(blocks_at_once(core, device), -(-blocks // device.processors))
    rounds = -(-blocks // (device.processors * resident))
    work = 2 * tile.rows * tile.cols * tile.depth / (speed.peak * share) + 2 * COPY * core.copies(p) / device.flops
    finish = 2 * tile.rows * tile.cols * (WRITE + OPERATION * _operations(p)) / device.flops
    compute = rounds * resident * (steps * work + finish) * device.processors
    waiting = rounds * (steps * STEP + max(0.0, steps / (tile.stages - 1) - 1) * LATENCY / resident)
    a, b = p.rows * p.depth * size * p.batch, p.cols * p.depth * size * p.batch
    c = p.batch * p.rows * p.cols * size * (1 + len(p.epilogue) / 2)
    once = p.anchor.operand_specs[0].nbytes + b + c  # windows overlap
    cached = L2 * device.bytes
    memory = once / (cached if once < KEPT * device.cache else MEMORY * device.bytes)
    total = device.launch + overlapped(compute, max(memory, (a * along + b * down + c) / cached), waiting)
    if schedule.splits > 1:
        total += JOIN + 8 * schedule.splits * p.batch * p.rows * p.cols / (PARTS * device.bytes)
    return total


def _operations(p: GemmProblem) -> float:
    """Operations of the epilogue on an element of C."""
    return sum(op.flops() for op in p.epilogue) / (p.batch * p.rows * p.cols)


def overlapped(*times: float) -> float:
    """The time of what goes on at once: that of the longest, and some of the others, which never hide all of it."""
    return max(times) + OVERLAP * (sum(times) - max(times))


def blocks_at_once(core: Core, device: DeviceModel) -> int:
    """Blocks that a processor can have at a time: it shares memory and registers between them."""
    registers = core.threads * min(255, BESIDE + core.tile.rows * core.tile.cols // core.threads)
    memory = device.shared + RESERVED
    return max(
        1, min(memory // (core.shared_bytes + RESERVED), REGISTERS // registers, MOST_THREADS // core.threads, 16)
    )


class Pinned(NamedTuple):
    """Choices that a kernel has already: the rows, columns and depth of its tile, stages, and parts of K."""

    sizes: tuple[int, ...] | None = None
    stages: int | None = None
    splits: int | None = None


@dataclass(frozen=True)
class Family:
    """The cores of a generator: `tiles(problem)` are the rows, columns and depths worth trying, `across` says how rows
    and columns of one are shared, `core` makes one."""

    tiles: Callable[[GemmProblem], Iterable[tuple[int, ...]]]
    across: Callable[[int, int], tuple[int, int]]
    core: MakeCore
    speed: Callable[[GemmProblem, DeviceModel], Speed]

    def tile(self, sizes: tuple[int, ...], stages: int) -> ProductTile:
        """The tile of so many rows, columns and elements of k."""
        rows, cols, depth = sizes
        return ProductTile(rows, cols, depth, stages, self.across(rows, cols))

    def make(self, p: GemmProblem, tile: ProductTile) -> Core:
        """The core of a tile."""
        return self.core(tile, storage_type(p.dtype), p.by_k)

    def plans(self, p: GemmProblem, device: DeviceModel, pinned: Pinned) -> Iterator[tuple[float, GemmSchedule]]:
        """The schedules that a device can run and that agree with what is `pinned`, and their nanoseconds."""
        speed = self.speed(p, device)
        for sizes in self.tiles(p) if pinned.sizes is None else (pinned.sizes,):
            for count in STAGES if pinned.stages is None else (pinned.stages,):
                ring = self.tile(sizes, count)
                core = self.make(p, ring)
                if core.shared_bytes > device.shared:
                    continue
                most = max(1, core.stages(p) // 2)
                for splits in SPLITS if pinned.splits is None else (pinned.splits,):
                    if splits > most and pinned.splits is None:
                        break
                    schedule = GemmSchedule(ring, splits)
                    yield product_time_of(p, schedule, core, speed, device), schedule
                    if schedule.blocks(p) > 4 * device.processors:
                        break

    def best(self, p: GemmProblem, device: DeviceModel, pinned: Pinned) -> tuple[float, GemmSchedule]:
        """The schedule that takes least time, and its nanoseconds, among those that agree with what is `pinned`. Raises
        `LightNetError` where none does."""
        sizes = p.kind, p.anchor.operand_specs[0], p.batch, p.rows, p.cols, p.depth, len(p.epilogue), _operations(p)
        key = self, sizes, pinned, device
        if key not in _known:
            if len(_known) >= MOST_KNOWN:
                _known.clear()
            best = min(self.plans(p, device, pinned), key=lambda plan: plan[0], default=None)
            if best is None:
                text = f"no tile of {device.shared} bytes of shared memory has such stages"
                raise LightNetError(text, label="cuda.gemm.stages")
            _known[key] = best
        return _known[key]


#: What `Family.best` found, by sizes and device, and how many of these are kept.
_known: dict[Hashable, tuple[float, GemmSchedule]] = {}
MOST_KNOWN = 4096
