"""Winograd convolutions on blocked maps in numbers: axes, groups of tiles, register tiles, and a model of their time.

A *tile* is m outputs along each axis with 3 taps; a *group* is a rectangle of tiles whose transformed input stays in
the second-level cache while all output channels pass. Of maps whose height or width a call decides it is a *run*: so
many tiles, row after row. A dilated axis is as many interleaved axes as its dilation.
The constants are for the machine model's AMD Zen 5; `python tools/calibrate.py winograd` prints what fits the processor
at hand beside them. Imports the machine model, the maths and the ops.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from math import inf, prod

from lightnet.backends.cpu.blocked.base import ProcessorModel, blocks_of, choice_error, choice_ints, read_rate
from lightnet.backends.cpu.registers import even
from lightnet.dataclasses import dataclass, replace
from lightnet.dialects.ln.conv import Conv2d
from lightnet.ir import winograd
from lightnet.ir.body import choice
from lightnet.ir.kernel import KernelOp
from lightnet.ir.op import LnOp
from lightnet.ir.windows import Axis
from lightnet.runtime.dims import Size

#: Sums in registers that a choice may ask for, at most.
MOST_SUMS = 32
#: Tiles of a group, at most, and how many times a group may fill the second-level cache: planes pass through it one by
#: one.
MOST_TILES, MOST_ROOM = 128, 4
#: Cycles beside the arithmetic: of a trip of the innermost loop, of a register tile, and of each vector that a
#: transform moves.
TRIP_CYCLES, TILE_CYCLES, MOVE_CYCLES = 1.0, 10.0, 1.8
#: Bytes a cycle at which weights come from the second-level cache while they are used.
WEIGHT_RATE = 24.0
#: Share of the time to bring weights that is not hidden behind arithmetic, and of that to bring maps, which come in
#: bursts.
EXPOSED, EXPOSED_MAPS = 0.35, 1.5
#: How much longer maps take that are not asked for while products are made: where a group is not whole rows.
SPLIT = 1.3
#: Bytes of weights that are transformed at a time, where that is done at run time.
PART_BYTES = 640 << 10
#: Nanoseconds to start a launch.
LAUNCH = 100.0
#: How the grid is cut: into groups of tiles, or, after all inputs are transformed, into panels of outputs; or into
#: panels whose weights are transformed while the network runs, so that they take no memory beyond the plain ones.
TILES, OUTPUTS, PANELS = "tiles", "outputs", "panels"


@dataclass(frozen=True)
class TiledAxis(Axis):
    """Rows or columns, `taps` 3 or 1, in tiles of `m` outputs (1 where there is one tap: nothing is transformed)."""

    m: int = 1

    @classmethod
    def cut(cls, conv: LnOp, axis: int, m: int) -> TiledAxis:
        found = Axis.of(conv, axis)
        if found.taps != 3:
            found, m = replace(found, dilation=1), 1
        return cls(**vars(found), m=m)

    @cached_property
    def points(self) -> int:
        """Inputs of a tile, and its products."""
        return self.m + self.taps - 1

    @cached_property
    def tiles(self) -> int:
        """Tiles that cover the result."""
        return -(-self.positions // (self.m * self.dilation)) * self.dilation

    @property
    def is_even(self) -> bool:
        """True if every tile lies inside the result."""
        return self.positions % (self.m * self.dilation) == 0

    @property
    def last(self) -> int:
        """The last input element that a tile reads, some of it only for outputs behind the result."""
        start = (self.tiles - 1) // self.dilation * self.m * self.dilation + (self.tiles - 1) % self.dilation
        return start - self.before + (self.points - 1) * self.dilation


@dataclass(frozen=True)
class WinogradSchedule:
    """A convolution by F(m, 3) and its choices: `group` is [rows, columns] of tiles (of one row, where it is a run);
    the register tile is `rows` tiles by `vectors` of output channels, with `unroll` input channels a step; a block of
    the grid is for `share` panels of outputs."""

    m: int
    lanes: int
    batch: int
    channels: int
    outputs: int
    y: TiledAxis
    x: TiledAxis
    group: tuple[int, int]
    rows: int
    vectors: int
    unroll: int
    order: str
    share: int
    is_run: bool = False
    #: Of open maps: pixels of which the direct convolution is quicker (`winograd_few.py`).
    few: int = 0

    @cached_property
    def products(self) -> int:
        return self.y.points * self.x.points

    @cached_property
    def depth(self) -> int:
        """Input channels of the products, with those that fill up the last step."""
        return -(-self.channels // winograd.CHANNEL_MULTIPLE) * winograd.CHANNEL_MULTIPLE

    @cached_property
    def in_blocks(self) -> int:
        return blocks_of(self.channels, self.lanes)

    @cached_property
    def out_blocks(self) -> int:
        return blocks_of(self.outputs, self.lanes)

    @cached_property
    def panels(self) -> int:
        """Register tiles along the output channels."""
        return -(-self.out_blocks // self.vectors)

    @cached_property
    def groups(self) -> tuple[int, int]:
        """Groups along rows and columns of a picture."""
        if self.is_run:
            return -(-self.y.tiles * self.x.tiles // self.slots), 1
        return -(-self.y.tiles // self.group[0]), -(-self.x.tiles // self.group[1])

    @cached_property
    def all_groups(self) -> int:
        return self.batch * self.groups[0] * self.groups[1]

    @cached_property
    def slots(self) -> int:
        """Tiles of a full group."""
        return self.group[0] * self.group[1]

    @property
    def steps(self) -> list[tuple[int, int, int]]:
        """The rows of register tiles in a group: (first, count, step)."""
        return even(self.slots, self.rows)

    # The memory of a thread: a tile between the transforms of its axes, and a group's transformed input and products.

    @property
    def tile_shape(self) -> tuple[int, int, int]:
        return (self.y.points, self.x.points, self.lanes)

    def plane(self, vectors: int) -> int:
        """Vectors of a plane, what one product has of a group: `vectors` a tile, and a few more, so that it is an odd
        number of register tiles and the starts of planes spread over the sets of a cache."""
        return (-(-vectors * self.slots // self.vectors) | 1) * self.vectors

    @property
    def input_shape(self) -> tuple[Size, int, int, int]:
        """[groups, products, blocks of channels x tiles, lanes]; of one group, and with room for the products, where it
        is scratch."""
        if self.order != TILES:
            return (self.all_groups, self.products, self.plane(self.in_blocks), self.lanes)
        return (1, self.products, self.plane(max(self.in_blocks, self.share * self.vectors)), self.lanes)

    @property
    def input_bytes(self) -> float:
        """Bytes of the transformed input of all groups; of runs, of which the last is seldom full, those of tiles."""
        groups = self.y.tiles * self.x.tiles / self.slots * self.batch if self.is_run else self.all_groups
        return groups * 4 * prod(self.input_shape[1:])

    @property
    def product_shape(self) -> tuple[int, int, int, int]:
        """[products, panels x tiles, vectors, lanes]; of a panel alone it has all groups, unless these are runs."""
        if self.order == PANELS and self.is_run:
            return (self.products, self.plane(self.vectors) // self.vectors, self.vectors, self.lanes)
        if self.order == PANELS:
            return (self.products, self.plane(self.all_groups * self.vectors) // self.vectors, self.vectors, self.lanes)
        made = self.plane(self.share * self.vectors) if self.order == OUTPUTS else self.input_shape[2]
        return (self.products, made // self.vectors, self.vectors, self.lanes)

    @property
    def part(self) -> int:
        """Blocks of input channels whose weights are transformed at a time, where that is done for a panel: they stay
        in the second-level cache."""
        each = 4 * self.products * self.vectors * self.lanes * self.lanes
        parts = -(-self.in_blocks // max(1, PART_BYTES // each))
        return -(-self.in_blocks // parts)

    @property
    def growth(self) -> float:
        """The size in memory of transformed weights as a multiple of plain ones."""
        return 1.0 if self.order == PANELS else self.products / (self.y.taps * self.x.taps)

    @cached_property
    def weight_bytes(self) -> int:
        taps, depth = (
            (self.y.taps * self.x.taps, self.channels) if self.order == PANELS else (self.products, self.depth)
        )
        return 4 * taps * depth * self.panels * self.vectors * self.lanes


# -- choices -----------------------------------------------------------------------------------------------------------


def winograd_schedule_of(kernel: KernelOp, m: int, machine: ProcessorModel, is_run: bool = False) -> WinogradSchedule:
    """The plan of a kernel by its choices, and by the model where it has none. Raises `LightNetError` for choices that
    no kernel of this kind can have."""
    conv = kernel.ops[0]
    assert isinstance(conv, Conv2d)
    y, x = TiledAxis.cut(conv, 0, m), TiledAxis.cut(conv, 1, m)
    (batch, channels, _, _), outputs = conv.operand_specs[0].dims, conv.result_specs[0].dims[1]
    start = WinogradSchedule(m, machine.lanes, batch, channels, outputs, y, x, (1, 1), 1, 1, 1, TILES, 1, is_run)
    given: Given = (
        _chosen(kernel, "tiles", 2),
        _chosen(kernel, "tile", 3),
        choice(kernel, "order"),
        _chosen(kernel, "share", 1),
    )
    if any(given):
        problems = [problem(schedule) for schedule in _variants(start, machine, given)]
        if all(problems):
            raise choice_error(kernel, "winograd.choices", str(problems[0]))
    return _best_schedule(start, machine, given)


#: What the choices say: `tiles`, `tile`, `order` and `share`.
Given = tuple[tuple[int, ...] | None, tuple[int, ...] | None, str | None, tuple[int, ...] | None]


@lru_cache(maxsize=4096)
def _best_schedule(start: WinogradSchedule, machine: ProcessorModel, given: Given) -> WinogradSchedule:
    """The variant that takes the least time on the machine's threads, of those that can be built."""
    possible = (schedule for schedule in _variants(start, machine, given) if problem(schedule) is None)
    return min(possible, key=lambda schedule: elapsed(schedule, machine))


def _variants(start: WinogradSchedule, machine: ProcessorModel, given: Given) -> list[WinogradSchedule]:
    """The plans that differ in what is not given."""
    group, tile, order, share = given
    may_grow = replace(start, order=TILES).growth <= machine.growth
    grown = [TILES, OUTPUTS][: 1 + (machine.threads > 1 and not start.is_run)]
    orders = [order] if order is not None else grown if may_grow else [PANELS]
    found = []
    for down, across in [group] if group is not None else groups_of(start, machine):
        for which in orders:
            schedule = replace(start, group=(down, across), order=which)
            rows, vectors, unroll = tile or best_tile(schedule, machine)
            schedule = replace(schedule, rows=rows, vectors=vectors, unroll=unroll)
            part = share[0] if share is not None else 1 if which == PANELS else -(-schedule.panels // machine.threads)
            found.append(replace(schedule, share=schedule.panels if which == TILES else part))
    return found


def groups_of(schedule: WinogradSchedule, machine: ProcessorModel) -> list[tuple[int, int]]:
    """The groups to choose from: even parts of the rows of tiles, and of the columns where rows are long."""
    each = 4 * schedule.lanes * max(schedule.in_blocks, schedule.out_blocks) * schedule.products
    most = max(1, min(MOST_TILES, MOST_ROOM * machine.l2 // each))
    if schedule.is_run:
        tiles = schedule.y.tiles * schedule.x.tiles  # a shorter run is over before what comes with it has paid
        return [(1, n) for n in sorted({min(tiles, most * part // 6 or 1) for part in (2, 3, 4, 6)})]
    columns = {-(-schedule.x.tiles // k) for k in range(1, 5)} | {-(-schedule.x.tiles // -(-schedule.x.tiles // most))}
    rows = {-(-schedule.y.tiles // k) for k in range(1, schedule.y.tiles + 1)}
    return [(r, c) for c in sorted(columns, reverse=True) for r in sorted(rows) if r * c <= most]


def _chosen(kernel: KernelOp, name: str, count: int) -> tuple[int, ...] | None:
    """A choice of `count` positive numbers, None where the kernel has none."""
    found = choice_ints(kernel, name)
    if found is not None and (len(found) != count or min(found) < 1):
        raise choice_error(kernel, "winograd.choices", f"{name} = {list(found)}: expected {count} numbers from 1 on")
    return found


def problem(schedule: WinogradSchedule) -> str | None:
    """The reason why a schedule cannot be built; None where it can."""
    if schedule.order not in (TILES, OUTPUTS, PANELS):
        return f"order = {schedule.order}: expected {TILES}, {OUTPUTS} or {PANELS}"
    if schedule.is_run and schedule.order == OUTPUTS:
        return f"order = {schedule.order}: of open maps it is {TILES} or {PANELS}"
    if schedule.is_run and schedule.group[0] > 1:
        return f"tiles = {list(schedule.group)}: of open maps a group is a run, of one row"
    if not schedule.is_run and (schedule.group[0] > schedule.y.tiles or schedule.group[1] > schedule.x.tiles):
        return f"tiles = {list(schedule.group)}: there are {[schedule.y.tiles, schedule.x.tiles]}"
    if schedule.lanes % schedule.unroll or schedule.depth % schedule.unroll:
        return f"tile: {schedule.unroll} channels a step do not divide {schedule.lanes} and {schedule.depth}"
    if (
        schedule.rows > schedule.slots
        or schedule.vectors > schedule.out_blocks
        or schedule.rows * schedule.vectors > MOST_SUMS
    ):
        size = f"{schedule.rows} tiles by {schedule.vectors} vectors, of {schedule.slots} and {schedule.out_blocks}"
        return f"tile: {size}, at most {MOST_SUMS} sums"
    if schedule.order == PANELS and schedule.share > 1:
        return f"share = {schedule.share}: a panel is a block of its own where its weights are transformed"
    if schedule.share > schedule.panels:
        return f"share = {schedule.share}: there are {schedule.panels} panels of outputs"
    return None


def best_tile(schedule: WinogradSchedule, machine: ProcessorModel) -> tuple[int, int, int]:
    """14 to 16 sums: fewer wait for each other, and with more the weights come too fast. One vector of outputs, so that
    weights are read once, where a group is one register tile; else two, and rows that divide the group."""
    unroll = next(u for u in (8, 4, 2, 1) if schedule.lanes % u == 0 and schedule.depth % u == 0)
    slots, sums = schedule.slots, 16 if machine.registers >= 32 else 12
    once = schedule.order != PANELS and schedule.weight_bytes > machine.l2
    if slots <= sums and (once or schedule.out_blocks == 1) and slots > sums // 2:
        return slots, 1, unroll
    vectors = min(schedule.out_blocks, 2 if slots > 4 else 4)
    most = min(slots, sums // vectors)
    rows = next((r for r in range(most, most * 2 // 3, -1) if slots % r == 0), most)
    return rows, vectors, unroll


# -- time --------------------------------------------------------------------------------------------------------------


def winograd_time_of(schedule: WinogradSchedule, machine: ProcessorModel) -> float:
    """Nanoseconds on one thread; infinite where the weights may not grow as much as they would."""
    return elapsed(schedule, replace(machine, threads=1)) if schedule.growth <= machine.growth else inf


def elapsed(schedule: WinogradSchedule, machine: ProcessorModel) -> float:
    """Nanoseconds on all threads of the machine."""
    clock = machine.flops / (4 * machine.lanes)  # GHz, of two multiply-adds a cycle
    compute = (product_cycles(schedule) + MOVE_CYCLES * (vectors_moved(schedule) + weights_moved(schedule))) / clock
    parts = 1 if schedule.order == TILES else -(-schedule.panels // schedule.share)
    blocks = schedule.all_groups * parts
    busy = min(machine.threads, blocks)
    uneven = -(-blocks // busy) * busy / blocks
    weights, maps = weights_time(schedule, machine, parts), maps_time(schedule, machine)
    if schedule.order == PANELS:  # every panel reads the transformed input again, half of it hidden
        maps += schedule.panels * schedule.input_bytes / machine.l3_bytes / 2
    if schedule.order != TILES:
        maps += 2 * schedule.input_bytes / machine.l3_bytes
    exposed = EXPOSED * weights + EXPOSED_MAPS * maps
    launches = LAUNCH * (1 if schedule.order == TILES else 2)
    return launches + max(compute * uneven + exposed, weights + maps) / busy


def weights_time(schedule: WinogradSchedule, machine: ProcessorModel, parts: int) -> float:
    """Nanoseconds to bring the weights, for the first group and again for those in whose time they were driven out."""
    size = schedule.weight_bytes
    if schedule.order == PANELS:
        return size / (machine.dram_bytes if size > 2 * machine.l2 else machine.l3_bytes)
    first = size / (machine.dram_bytes if size > 2 * machine.l2 else machine.l3_bytes)
    maps = (
        4 * schedule.slots * schedule.lanes * (schedule.in_blocks + schedule.out_blocks) * schedule.y.m * schedule.x.m
    )
    near = size / parts + 4 * prod(schedule.input_shape[1:]) + maps <= machine.l2
    return first + (0.0 if near else (schedule.all_groups - 1) * first)


def maps_time(schedule: WinogradSchedule, machine: ProcessorModel) -> float:
    """Nanoseconds to bring the input and the result, and what a group has between the transforms if that is too
    large."""
    n = 4 * schedule.lanes * schedule.batch
    y, x = schedule.y, schedule.x
    size = n * (schedule.in_blocks * y.size * x.size + schedule.out_blocks * y.positions * x.positions)
    between = max(0, 4 * prod(schedule.input_shape[1:]) - machine.l2 * 3 // 4) * schedule.all_groups
    split = SPLIT if schedule.groups[1] > 1 else 1.0
    return split * size / read_rate(machine, size) + between / machine.l3_bytes


def product_cycles(schedule: WinogradSchedule) -> float:
    """Cycles of all products: two multiply-adds or two reads start in one, a sum takes four, and the first tiles of a
    group wait for their weights. Register tiles are whole, those of a run that ends early, too."""
    tiles = schedule.y.tiles * schedule.x.tiles
    weights = 4 * schedule.lanes * schedule.vectors / WEIGHT_RATE
    steps = [rows for _, count, rows in schedule.steps for _ in range(count // rows)]
    whole, left = divmod(tiles, schedule.slots) if schedule.is_run else (tiles / schedule.slots, 0)
    total = start = 0.0
    for i, rows in enumerate(steps):
        each = max(rows * schedule.vectors / 2, (rows + schedule.vectors) / 2, 4.0)
        cycles = schedule.depth / schedule.unroll * TRIP_CYCLES + TILE_CYCLES
        cycles += schedule.depth * (max(each, weights) if i == 0 else each)
        total += cycles * (whole + (start < left))
        start += rows
    return total * schedule.batch * schedule.products * schedule.panels


def vectors_moved(schedule: WinogradSchedule) -> float:
    """Vectors that the transforms read and write."""
    y, x = schedule.y, schedule.x
    both = y.taps == x.taps == 3
    inputs = schedule.products * (4 if both else 2)
    outputs = schedule.products + y.m * x.m + 2 * y.m * x.points * (y.taps == 3)
    return schedule.batch * y.tiles * x.tiles * (schedule.in_blocks * inputs + schedule.out_blocks * outputs)


def weights_moved(schedule: WinogradSchedule) -> int:
    """Vectors that the transform of weights reads and writes, where it is done at run time."""
    if schedule.order != PANELS:
        return 0
    times = schedule.all_groups if schedule.is_run else 1
    moved = schedule.products + schedule.y.taps * schedule.x.taps
    return times * schedule.channels * schedule.panels * schedule.vectors * moved
