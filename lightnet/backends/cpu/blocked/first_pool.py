"""The first convolution of a network and the pool behind it, in bands of rows: the largest map of the network is never
stored.

A block of the grid is a band of rows of the pool's result. It computes the rows of the convolution that the band's
windows reach and that the band before has not made already, into a ring in scratch memory, and pools them there. The
kernels of both make the code, as parts of this one. Imports these and the base of blocked kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerType, MemRefType
from xdsl.ir import Attribute, Block, SSAValue

from lightnet.backends.builder import Index
from lightnet.backends.cpu.blocked.base import BlockedGenerator, ProcessorModel, blocks_of, choice_ints, lanes_of
from lightnet.backends.cpu.blocked.first import FIRST, FirstKernel
from lightnet.backends.cpu.blocked.first_model import band_of, tile_of
from lightnet.backends.cpu.blocked.forms import lies_right
from lightnet.backends.cpu.blocked.kernel import BandWindow, BlockedKernel, Host
from lightnet.backends.cpu.blocked.pool import POOL, WindowsKernel
from lightnet.backends.cpu.blocked.pool_model import PoolWindow, pool_window_of
from lightnet.backends.generator import Plan
from lightnet.backends.launches import Launch
from lightnet.diagnostics import LightNetError
from lightnet.ir.body import Body
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import Blocked, byte_size, layout_of, with_layout
from lightnet.ir.locations import loc_of
from lightnet.ir.op import LnOp
from lightnet.ir.target import Form, Halo
from lightnet.ir.types import ParamAttr
from lightnet.runtime.arrays import align_up

#: Bytes of the ring, about, and at most: parts of a second-level cache.
RING, MAX_RING = 160 << 10, 512 << 10
#: Share of the second-level cache that a map may take and be stored as a whole: then nothing is lost.
SMALL = 0.25
#: Bands that a picture should have at least, so that threads can share them.
LEAST_BANDS = 8


class FirstPool(BlockedGenerator):
    """The generator of what `First` takes, then a pool that it takes (windows, not one over all of the map), each with
    an epilogue."""

    alg = "first-pool"

    def form(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], machine: ProcessorModel) -> Form | None:
        return _form_of(Body(tuple(ops), tuple(yielded)), machine)

    def plan(self, kernel: KernelOp, form: Form, machine: ProcessorModel) -> Plan:
        made, lanes = first_pool_schedule_of(kernel, machine), machine.lanes
        parts = _parts_of(kernel, made, lanes)
        conv, pool = plans = [_plan_of(g, part.kernel, machine) for g, part in zip((FIRST, POOL), parts)]
        # The parts have a cost of their own only as kernels on maps that are stored; what is saved is most of that.
        between = 4 * prod(Blocked(lanes).physical_dims(parts[0].kernel.ops[0].result_specs[0].dims))
        outer = ((part.outer[i], layout) for part, plan in zip(parts, plans) for i, layout in plan.weights.items())
        stages = _Stages(made, conv, pool, _ring_bytes(parts[0].kernel, made, lanes))
        return Plan.of(
            self, kernel, form, conv.time + pool.time - between / machine.l3_bytes, stages,
            choices={"tile": ParamAttr(made.tile), "band": ParamAttr((made.band,))},
            weights={number: layout for number, layout in outer if number is not None},
            scratch_bytes=sum(stages.sizes),
        )  # fmt: skip

    def build(self, kernel: KernelOp, plan: Plan, name: str, aliases: Mapping[int, int]) -> list[Launch]:
        return [_Kernel(kernel, plan.schedule, name, aliases).build()]


def _plan_of(generator: BlockedGenerator, kernel: KernelOp, machine: ProcessorModel) -> Plan:
    """The plan of a stage as a kernel by itself."""
    form = generator.form(kernel.ops, list(kernel.terminator.operands), machine)
    assert form is not None
    return generator.plan(kernel, form, machine)


# -- bodies ------------------------------------------------------------------------------------------------------------


def _stages_of(ops: Sequence[LnOp]) -> tuple[tuple[LnOp, ...], tuple[LnOp, ...]] | None:
    """The ops up to a pool of windows, and those from there on; None where there is none, or nothing before it."""
    for i, op in enumerate(ops):
        if (window := pool_window_of(op)) is not None:
            return None if i == 0 or window.is_global else (tuple(ops[:i]), tuple(ops[i:]))
    return None


def _form_of(body: Body, machine: ProcessorModel) -> Form | None:
    """The form of such a body, None for others: the pool alone reads what the convolution's part makes, once."""
    stages = _stages_of(body.ops)
    if stages is None:
        return None
    first, pool = stages
    made = {r for op in first for r in op.results}
    source, *reads = [body.value(v) for op in pool for v in op.operands]
    apart = {body.value(v) for v in first[0].operands[:2]}  # the picture and the weights, each in a layout of its own
    if source not in made or (made | apart) & set(reads) or made & set(body.yielded):
        return None
    one, other = FIRST.form(first, [source], machine), POOL.form(pool, body.yielded, machine)
    if one is None or other is None:
        return None
    forms = (one, other)
    maps: dict[SSAValue, Halo] = {body.value(v): halo for form in forms for v, halo in form.maps.items()}
    maps.pop(source)
    weights = frozenset(body.value(v) for form in forms for v in form.weights)
    conv = first[0]
    width, window = conv.result_specs[0].dims[3], pool_window_of(pool[0])
    assert window is not None
    ring = _ring(window, 1) * width * 4 * machine.lanes * blocks_of(conv.result_specs[0].dims[1], machine.lanes)
    return Form(maps, weights) if not weights & set(maps) and ring <= MAX_RING else None


def pair_around(kernel: KernelOp, machine: ProcessorModel) -> list[KernelOp]:
    """The kernel of a first convolution and `kernel`, of a pool on blocked maps that alone reads its result, if one
    kernel can be made of them: that saves a map that is larger than part of a cache, and costs nothing but rows that
    threads compute twice where their parts meet."""
    if pool_window_of(kernel.ops[0]) is None:
        return []
    source = Body.of(kernel).value(kernel.ops[0].operands[0])
    producer = source.owner
    if not isinstance(producer, KernelOp) or not isinstance(layout_of(source.type), Blocked):
        return []
    alone = len(producer.results) == 1 and len(list(source.uses)) == 1
    if (
        not alone
        or any("alg" in k.attributes for k in (producer, kernel))
        or byte_size(source.type) < SMALL * machine.l2
    ):
        return []
    union = Body.union(Body.of(producer), producer.results, Body.of(kernel))
    form = _form_of(union, machine)
    # The convolution may have been laid out for another generator, which reads its picture in blocks.
    fitting = form is not None and lies_right(form, union.inputs, kernel.results, machine.lanes)
    return [producer, kernel] if fitting else []


# -- choices -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FirstPoolSchedule:
    """Rows of the result in a band; rows of the convolution in the ring, and how many are made at a time; the tile of
    that."""

    band: int
    ring: int
    step: int
    tile: tuple[int, int, int]


def first_pool_schedule_of(kernel: KernelOp, machine: ProcessorModel) -> FirstPoolSchedule:
    """The kernel's choices, where it has any, which must fit (`LightNetError`), and the best for the rest."""
    stages = _stages_of(kernel.ops)
    assert stages is not None
    conv, window = stages[0][0], pool_window_of(stages[1][0])
    assert window is not None
    _, channels, _, width = conv.result_specs[0].dims
    blocks, height = blocks_of(channels, machine.lanes), window.rows.positions
    row = 4 * machine.lanes * blocks * width
    best = max((b for b in range(1, height // LEAST_BANDS + 1) if row * _ring(window, b) <= RING), default=1)
    (band,) = choice_ints(kernel, "band", 1) or (best,)
    tile = choice_ints(kernel, "tile", 3) or tile_of(1, width, blocks, machine.registers)
    if not 1 <= band <= height or tile[0] != 1 or row * _ring(window, band) > MAX_RING:
        raise LightNetError(
            f"tile = {list(tile)}, band = {[band]}: a first convolution with a pool takes tiles of one row, and bands "
            f"of 1 to {height} "
            f"rows that need no more than {MAX_RING} bytes",
            loc_of(kernel),
            label="first-pool.band",
        )
    ring = _ring(window, band)
    return FirstPoolSchedule(band, ring, min(band_of(conv, 1), ring), (tile[0], tile[1], tile[2]))


def _ring(window: PoolWindow, band: int) -> int:
    """Rows under the windows of a band."""
    rows = window.rows
    return min(rows.span(band), rows.size)


@dataclass(frozen=True)
class _Part:
    """A stage as a kernel by itself. `outer` has for each of its operands the number of the whole kernel's operand,
    None for what the stage before makes; `holder` defines its operands."""

    kernel: KernelOp
    outer: tuple[int | None, ...]
    holder: Block


def _parts_of(kernel: KernelOp, schedule: FirstPoolSchedule, lanes: int) -> tuple[_Part, _Part]:
    """The stages of a kernel as kernels of their own. The map in between has no halo."""
    stages = _stages_of(kernel.ops)
    assert stages is not None
    first, pool = stages
    source = pool[0].operands[0]
    types: dict[SSAValue, Attribute] = {source: with_layout(source.type, Blocked(lanes))}
    conv = _part(kernel, first, [source], types)
    conv.kernel.attributes.update({"tile": ParamAttr(schedule.tile), "band": ParamAttr((schedule.step,))})
    return conv, _part(kernel, pool, list(kernel.terminator.operands), types)


def _part(
    kernel: KernelOp, ops: Sequence[LnOp], outputs: Sequence[SSAValue], types: Mapping[SSAValue, Attribute]
) -> _Part:
    made = {r for op in ops for r in op.results}
    inputs = list(dict.fromkeys(v for op in ops for v in op.operands if v not in made))
    block, holder = (Block(arg_types=[types.get(v, v.type) for v in inputs]) for _ in range(2))
    values: dict[SSAValue, SSAValue] = dict(zip(inputs, block.args))
    for op in ops:
        block.add_op(op.clone(values))
    for v in outputs:
        values[v]._type = types.get(v, v.type)
    numbers: dict[SSAValue, int] = {v: i for i, v in enumerate(kernel.body.args)}
    part = type(kernel).around(block, holder.args, [values[v] for v in outputs])
    return _Part(part, tuple(numbers.get(v) for v in inputs), holder)


def _ring_bytes(conv: KernelOp, schedule: FirstPoolSchedule, lanes: int) -> int:
    """Bytes of the ring."""
    _, channels, _, width = conv.ops[0].result_specs[0].dims
    return 4 * lanes * blocks_of(channels, lanes) * schedule.ring * width


class _Stages(NamedTuple):
    """The schedule of both stages, their plans as parts of the kernel, and bytes of the ring."""

    schedule: FirstPoolSchedule
    conv: Plan
    pool: Plan
    ring: int

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Bytes of scratch: the ring, the staged picture, the pool's row."""
        return align_up(self.ring), align_up(self.conv.scratch_bytes), align_up(self.pool.scratch_bytes)


# -- the kernel --------------------------------------------------------------------------------------------------------


class _Kernel(BlockedKernel):
    """Builds one kernel function over pictures x bands; each thread walks neighbouring bands in order."""

    def __init__(self, kernel: KernelOp, stages: _Stages, name: str, aliases: Mapping[int, int]):
        lanes, sizes = lanes_of(kernel), stages.sizes
        self.schedule = stages.schedule
        super().__init__(kernel, name, lanes, aliases, scratch=sum(sizes))
        self.parts = _parts_of(kernel, self.schedule, lanes)  # kept: they hold the bodies
        conv, pool = (part.kernel for part in self.parts)
        self.pictures, self.channels, _, width = conv.ops[0].result_specs[0].dims
        b, blocks = self.b, blocks_of(self.channels, lanes)
        ring = b.view(
            self.scratch, 0, MemRefType(self.element, [1, blocks, self.schedule.ring, width, lanes]), name="ring"
        )
        starts = (sizes[0], sizes[0] + sizes[1])
        memories = [
            b.view(self.scratch, at, MemRefType(IntegerType(8), [size])) if size else None
            for at, size in zip(starts, sizes[1:])
        ]
        rows = BandWindow(0, self.schedule.ring)
        inputs: list[dict[SSAValue, SSAValue]] = [
            {v: ring if k is None else self.inputs[kernel.body.args[k]] for v, k in zip(p.kernel.body.args, p.outer)}
            for p in self.parts
        ]
        made, read = conv.terminator.operands[0], pool.ops[0].operands[0]
        self.conv = FirstKernel(
            conv, stages.conv.schedule, "", {}, Host(b, inputs[0], [ring], {made: rows}), memories[0]
        )
        self.pool = WindowsKernel(
            pool, stages.pool.schedule, "", aliases, Host(b, inputs[1], self.results, {read: rows}), memories[1]
        )

    def build(self) -> Launch:
        b, band = self.b, self.schedule.band
        height = self.pool.window.rows.positions
        bands, blocks = -(-height // band), blocks_of(self.channels, self.lanes)
        self.pool.prepare()
        with b.loop(b.lo, b.hi, name="number") as number:
            n, index = self.coordinates(number.iv, (self.pictures, bands), "n band")
            first = b.mul(index, band)
            last = self.row_end(first, band, height)
            begin, end = self.new_rows(number.iv, index, first, last)
            with b.loop(begin, end, self.schedule.step, name="y") as y:
                stop = b.op(arith.MinSIOp, b.index(b.add(y.iv, self.schedule.step)), b.index(end))
                self.conv.rows(n, y.iv, stop)
            with b.loop(0, blocks, name="block") as block:
                self.pool.walk(n, block.iv, first, last)
            self.pool.zero_halos(n, 0, blocks, first, last)
        return self.done(self.pictures * bands)

    def new_rows(self, number: Index, band: Index, first: Index, last: Index) -> tuple[Index, Index]:
        """The rows of the convolution that a band reads and that are not in the ring: [from, to). The first block of a
        range, and the first band of a picture, find nothing there."""
        b, rows = self.b, self.pool.window.rows
        span = rows.extent

        def inside(row: Index) -> SSAValue:
            return b.op(arith.MaxSIOp, b.op(arith.MinSIOp, b.index(row), b.index(rows.size)), b.index(0))

        low = inside(b.add(b.mul(first, rows.stride), -rows.before))
        end = inside(b.add(b.mul(last, rows.stride), span - rows.stride - rows.before))
        there = inside(b.add(b.mul(first, rows.stride), span - rows.stride - rows.before))
        fresh = b.op(arith.OrIOp, b.cmpi("eq", b.index(number), b.lo), b.cmpi("eq", b.index(band), b.index(0)))
        return b.select(fresh, low, b.op(arith.MaxSIOp, low, there)), end


FIRST_POOL = FirstPool()
