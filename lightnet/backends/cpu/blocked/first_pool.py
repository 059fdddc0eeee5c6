"""The first convolution of a network and the pool behind it, in bands of rows: the largest map of the network is never
stored.

A block of the grid is a band of rows of the pool's result. It computes the rows of the convolution that the band's
windows reach and that the band before has not made already, into a ring in scratch memory, and pools them there. The
kernels of both make the code, as parts of this one. Imports these and the base of blocked kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from xdsl.dialects import arith
from xdsl.ir import SSAValue

from lightnet.backends.builder import Index
from lightnet.backends.cpu.blocked.bands_body import BodyStage, form_of_stages, is_taken, producer_of
from lightnet.backends.cpu.blocked.bands_parts import (
    StagePart,
    StagePlans,
    StagesKernel,
    parts_of_stages,
    stage_weights,
)
from lightnet.backends.cpu.blocked.base import (
    NO_HALO,
    KernelGenerator,
    ProcessorModel,
    blocks_of,
    choice_error,
    choice_ints,
    lanes_of,
)
from lightnet.backends.cpu.blocked.first import FIRST, FirstKernel
from lightnet.backends.cpu.blocked.first_model import band_of, tile_of
from lightnet.backends.cpu.blocked.kernel import BandWindow, Host
from lightnet.backends.cpu.blocked.pool import POOL, WindowsKernel
from lightnet.backends.cpu.blocked.pool_model import PoolWindow, pool_window_of
from lightnet.backends.generator import Plan
from lightnet.backends.launches import Launch
from lightnet.dataclasses import dataclass
from lightnet.ir.body import Body
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import Blocked, byte_size
from lightnet.ir.op import LnOp
from lightnet.ir.refusal import Refusal
from lightnet.ir.target import Form
from lightnet.ir.types import ParamAttr, spec_of, storage_type
from lightnet.runtime.arrays import align_up

#: Bytes of the ring, about, and at most: parts of a second-level cache.
RING, MAX_RING = 160 << 10, 512 << 10
#: Share of the second-level cache that a map may take and be stored as a whole: then nothing is lost.
SMALL = 0.25
#: Bands that a picture should have at least, so that threads can share them.
LEAST_BANDS = 8


class FirstPool(KernelGenerator):
    """The generator of what `First` takes, then a pool that it takes (windows, not one over all of the map), each with
    an epilogue."""

    alg = "first-pool"

    def form(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], machine: ProcessorModel) -> Form | Refusal:
        return _form_of(Body(tuple(ops), tuple(yielded)), machine)

    def plan(self, kernel: KernelOp, form: Form, machine: ProcessorModel) -> Plan:
        made, lanes = first_pool_schedule_of(kernel, machine), machine.lanes
        parts = _parts_of(kernel, made, lanes)
        conv, pool = plans = [part.plan(machine) for part in parts]
        # The parts have a cost of their own only as kernels on maps that are stored; what is saved is most of that.
        between = 4 * prod(Blocked(lanes).physical_dims(parts[0].kernel.ops[0].result_specs[0].dims))
        sizes = _ring_bytes(parts[0].kernel, made, lanes), conv.scratch_bytes, pool.scratch_bytes
        stages = StagePlans(made, (conv, pool), [align_up(size) for size in sizes])
        return Plan.of(
            self, kernel, form, conv.time + pool.time - between / machine.l3_bytes, stages,
            choices={"tile": ParamAttr(made.tile), "band": ParamAttr((made.band,))},
            weights=stage_weights(parts, plans), scratch_bytes=stages.scratch_bytes,
        )  # fmt: skip


# -- bodies ------------------------------------------------------------------------------------------------------------


def _stages_of(ops: Sequence[LnOp]) -> tuple[BodyStage, BodyStage] | None:
    """The ops up to a pool of windows, and those from there on; None where there is none, or nothing before it."""
    for i, op in enumerate(ops):
        if (window := pool_window_of(op)) is not None:
            known = i > 0 and not window.is_global
            return (BodyStage(tuple(ops[:i]), FIRST), BodyStage(tuple(ops[i:]), POOL)) if known else None
    return None


def _form_of(body: Body, machine: ProcessorModel) -> Form | Refusal:
    """The form of such a body: the pool alone reads what the convolution's part makes, once."""
    stages = _stages_of(body.ops)
    if stages is None:
        return Refusal("it is no body with a pool of windows behind other ops")
    if not (form := form_of_stages(stages, body, machine)):
        return form
    _, channels, _, width = stages[0].ops[0].result_specs[0].dims
    window = pool_window_of(stages[1].ops[0])
    assert window is not None
    ring = _ring(window, 1) * width * 4 * machine.lanes * blocks_of(channels, machine.lanes)
    return form if ring <= MAX_RING else Refusal("rows under a window take more than {} bytes", MAX_RING)


def pair_around(kernel: KernelOp, machine: ProcessorModel) -> list[KernelOp] | Refusal:
    """The kernel of a first convolution and `kernel`, of a pool on blocked maps that alone reads its result, if one
    kernel can be made of them: that saves a map that is larger than part of a cache, and costs nothing but rows that
    threads compute twice where their parts meet."""
    if pool_window_of(kernel.ops[0]) is None or (producer := producer_of(kernel)) is None:
        return Refusal("")
    pair, size = [producer, kernel], byte_size(producer.results[0].type)
    if any("alg" in k.attributes for k in pair):
        return Refusal("the algorithm of one of them is given")
    if size < SMALL * machine.l2:
        return Refusal("the map between them, of {} bytes, stays in the cache", size)
    return pair if (taken := is_taken(pair, _form_of, machine)) else Refusal("{}", taken)


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
    conv, window = stages[0].ops[0], pool_window_of(stages[1].ops[0])
    assert window is not None
    _, channels, _, width = conv.result_specs[0].dims
    blocks, height = blocks_of(channels, machine.lanes), window.rows.positions
    row = 4 * machine.lanes * blocks * width
    best = max((b for b in range(1, height // LEAST_BANDS + 1) if row * _ring(window, b) <= RING), default=1)
    (band,) = choice_ints(kernel, "band", 1) or (best,)
    tile = choice_ints(kernel, "tile", 3) or tile_of(1, width, blocks, machine.registers)
    if not 1 <= band <= height or tile[0] != 1 or row * _ring(window, band) > MAX_RING:
        message = f"tile = {list(tile)}, band = {[band]}: a first convolution with a pool takes tiles of one row, and "
        message += f"bands of 1 to {height} rows that need no more than {MAX_RING} bytes"
        raise choice_error(kernel, "first-pool.band", message)
    ring = _ring(window, band)
    return FirstPoolSchedule(band, ring, min(band_of(conv, 1), ring), (tile[0], tile[1], tile[2]))


def _ring(window: PoolWindow, band: int) -> int:
    """Rows under the windows of a band."""
    rows = window.rows
    return min(rows.span(band), rows.size)


def _parts_of(kernel: KernelOp, schedule: FirstPoolSchedule, lanes: int) -> list[StagePart]:
    """The stages of a kernel as kernels of their own. The map in between has no halo."""
    stages = _stages_of(kernel.ops)
    assert stages is not None
    conv = {"tile": ParamAttr(schedule.tile), "band": ParamAttr((schedule.step,))}
    return parts_of_stages(kernel, stages, lanes, lambda _: NO_HALO, lambda s: conv if s.generator is FIRST else {})


def _ring_bytes(conv: KernelOp, schedule: FirstPoolSchedule, lanes: int) -> int:
    """Bytes of the ring."""
    _, channels, _, width = conv.ops[0].result_specs[0].dims
    return 4 * lanes * blocks_of(channels, lanes) * schedule.ring * width


# -- the kernel --------------------------------------------------------------------------------------------------------


class _Kernel(StagesKernel):
    """Builds one kernel function over pictures x bands; each thread walks neighbouring bands in order."""

    def __init__(self, kernel: KernelOp, stages: StagePlans, name: str, aliases: Mapping[int, int]):
        lanes = lanes_of(kernel)
        super().__init__(kernel, stages, _parts_of(kernel, stages.schedule, lanes), name, aliases)
        first, second = self.parts
        conv, pool = first.kernel, second.kernel
        self.pictures, self.channels, _, width = conv.ops[0].result_specs[0].dims
        made, read = conv.terminator.operands[0], pool.ops[0].operands[0]
        element = storage_type(spec_of(made.type).dtype)
        ring = self.area(0, [1, blocks_of(self.channels, lanes), self.schedule.ring, width, lanes], element)
        assert ring is not None
        memories, rows = (self.area(1), self.area(2)), BandWindow(0, self.schedule.ring)
        before = Host(self.b, self.inputs_of(first, ring), [ring], {made: rows})
        self.conv = FirstKernel(conv, self.plans[0].schedule, "", {}, before, memories[0])
        behind = Host(self.b, self.inputs_of(second, ring), self.results, {read: rows})
        self.pool = WindowsKernel(pool, self.plans[1].schedule, "", aliases, behind, memories[1])

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


FIRST_POOL = FirstPool(_Kernel)
