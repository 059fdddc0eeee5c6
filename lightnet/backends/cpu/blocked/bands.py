"""Inverted residuals and depthwise-separable pairs in bands of rows: convolutions whose wide maps never leave the
cache.

A chain of a pointwise convolution, a depthwise one and another pointwise one (either may be missing, and the first may
be that of a picture), each with its epilogue, is one kernel. A block of its grid is a band of rows of the result: it
computes the rows of the expanded map that the band's windows reach, then the depthwise rows, then the result. Both maps
in between are some rows of scratch memory. Where pictures are large, the expanded rows are a ring, in which the last
ones stay for the next band, so that none is made twice. Where weights are large and pictures small, there is a band a
thread, which expands some channels after others into memory for these alone, and fetches the next ones' weights
meanwhile. The kernels of the single convolutions make the code, as parts of this one. Imports these, the base of
blocked kernels and the model in numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from xdsl.dialects import arith
from xdsl.ir import SSAValue

from lightnet.backends.builder import Index
from lightnet.backends.cpu.blocked import bands_model as model
from lightnet.backends.cpu.blocked.bands_body import EXPAND, WINDOW, chain_of, form_of
from lightnet.backends.cpu.blocked.bands_parts import (
    StagePlans,
    StagesKernel,
    band_schedule_of,
    parts_of,
    plan_of_part,
    sizes_of,
    stage_tiles,
    stage_weights,
)
from lightnet.backends.cpu.blocked.base import KernelGenerator, ProcessorModel, blocks_of, lanes_of
from lightnet.backends.cpu.blocked.conv import DirectKernel
from lightnet.backends.cpu.blocked.depthwise import DepthwiseKernel, depthwise_halo_of
from lightnet.backends.cpu.blocked.first import FIRST, FirstKernel
from lightnet.backends.cpu.blocked.kernel import BandWindow, Host
from lightnet.backends.generator import Plan
from lightnet.backends.launches import Launch
from lightnet.ir.body import Body
from lightnet.ir.kernel import KernelOp
from lightnet.ir.op import LnOp
from lightnet.ir.refusal import Refusal
from lightnet.ir.target import Form
from lightnet.ir.types import ParamAttr, memref_type_of


class Bands(KernelGenerator):
    """The generator of chains of convolutions on maps of f32."""

    alg = "bands"

    def form(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], machine: ProcessorModel) -> Form | Refusal:
        return form_of(Body(tuple(ops), tuple(yielded)), machine)

    def plan(self, kernel: KernelOp, form: Form, machine: ProcessorModel) -> Plan:
        chain, made, lanes = chain_of(kernel.ops), band_schedule_of(kernel, machine), machine.lanes
        parts = parts_of(kernel, made, lanes)
        plans = [plan_of_part(part, chain, made, machine) for part in parts]
        stages = StagePlans(made, tuple(plans), sizes_of(chain, made, plans, lanes))
        return Plan.of(
            self, kernel, form, model.time(chain, machine, made), stages,
            choices={"band": ParamAttr(made.band), "keep": ParamAttr(made.keep), **stage_tiles(made)},
            weights=stage_weights(parts, plans), scratch_bytes=stages.scratch_bytes,
        )  # fmt: skip


# -- the kernel --------------------------------------------------------------------------------------------------------


class _Rows(NamedTuple):
    """Rows of the expanded map that are to be made: [low, above) and [below, high) lie outside the picture, [first,
    last) in it."""

    low: Index
    above: Index
    first: Index
    last: Index
    below: Index
    high: Index


class _Pointwise(DirectKernel):
    """A pointwise convolution as a stage, from row `first` on, of a picture that ends at row `end`."""

    def __init__(self, kernel: KernelOp, plan: Plan, aliases: Mapping[int, int], host: Host, first: Index, end: int):
        super().__init__(kernel, plan.schedule, "", aliases, host)
        self.end, self.origin = end, first

    def last_row(self) -> int:
        return self.end

    def share_of_weights(self, y: Index, x: Index) -> Index:
        b, shape, width = self.b, self.shape, self.geometry.cols.positions
        if not self.weights_ahead:
            return 0
        row = b.divmod(b.op(arith.SubiOp, b.index(y), b.index(self.origin)), shape.rows)[0]
        column = b.divmod(b.add(x, shape.columns - 1), shape.columns)[0]  # the last tile may have moved back
        return b.mul(b.add(b.mul(row, -(-width // shape.columns)), column), self.weights_ahead // 4)


class _BandKernel(StagesKernel):
    """Builds one kernel function over pictures x bands. Maps in between stand in scratch memory, one picture of
    each."""

    def __init__(self, kernel: KernelOp, stages: StagePlans, name: str, aliases: Mapping[int, int]):
        lanes, self.chain = lanes_of(kernel), chain_of(kernel.ops)
        super().__init__(kernel, stages, parts_of(kernel, stages.schedule, lanes), name, aliases)
        source = kernel.number_of(kernel.ops[0].operands[0])
        assert source not in aliases.values(), "rows of it are read after others are written"
        window = next(p.stage.anchor for p in self.parts if p.stage.kind == WINDOW)
        self.blocks, self.bands = blocks_of(self.chain.channels, lanes), self.chain.bands(self.schedule.band)
        self.batch, self.height = self.chain.window.batch, self.chain.window.rows.positions
        #: The width of the expanded map, and its halo.
        self.width, self.halos = self.chain.window.cols.size, depthwise_halo_of(window)
        band, wide = self.schedule.band, self.width + 2 * self.halos[1]
        before = [1, self.schedule.held(self.blocks), self.chain.ring(band), wide, lanes]
        behind = [1, self.blocks, band, self.chain.window.cols.positions, lanes]
        #: The rows of both maps in between.
        self.memories = self.area(0, before), self.area(1, behind)
        self.staged = self.area(2)

    def build(self) -> Launch:
        b, chain = self.b, self.chain
        if self.memories[0] is not None and self.halos[1]:
            with b.when(b.cmpi("slt", b.lo, b.hi)):
                self.zero_columns(self.memories[0])
        with b.loop(b.lo, b.hi, name="number") as number:
            n, band = self.coordinates(number.iv, (self.batch, self.bands), "n band")
            first = b.mul(band, self.schedule.band)
            last = self.row_end(first, self.schedule.band, self.height)
            if chain.expand is None:
                with b.loop(0, self.blocks, name="block") as block:
                    window = self.stage(WINDOW, first)
                    window.walk(n, block.iv, first, last, window.rows)
            else:
                rows = self.new_rows(number.iv, band, first, last)
                (self.opened if chain.opens else self.expanded)(n, rows, first, last)
            ends = self.stage(self.parts[-1].stage.kind, first)
            if chain.project is not None:
                outputs = blocks_of(chain.project.outputs, self.lanes) // ends.shape.vectors
                with b.loop(0, outputs, name="group") as group:
                    ends.part(n, group.iv, first, last, 0, chain.window.cols.positions)
            ends.zero_halos(n, 0, blocks_of(ends.anchor.result_specs[0].dims[1], self.lanes), first, last)
        return self.done(self.batch * self.bands)

    def expanded(self, n: Index, rows: _Rows, first: Index, last: Index) -> None:
        """The expanded rows that are new, and from them the rows [first, last) of the window's result, some channels
        after others."""
        assert self.schedule.expand is not None
        b, vectors = self.b, self.schedule.expand.vectors
        ring = self.chain.ring(self.schedule.band) if self.schedule.keep else 0
        with b.loop(0, self.blocks // vectors, name="group") as group:
            block = b.mul(group.iv, vectors)
            start = self.halos[0] - self.chain.window.rows.before if ring else b.add(rows.low, self.halos[0])
            memory = BandWindow(start, ring, 0 if ring else block)
            expand, window = (self.stage(kind, first, memory, rows.first) for kind in (EXPAND, WINDOW))
            for outside in ((rows.low, rows.above), (rows.below, rows.high)):
                self.zero_rows(expand, block, *outside)
            expand.part(n, group.iv, rows.first, rows.last, 0, self.width)
            with b.loop(0, vectors, name="v") as v:
                window.walk(n, b.add(block, v.iv), first, last, window.rows)

    def opened(self, n: Index, rows: _Rows, first: Index, last: Index) -> None:
        """The same where a first convolution makes the rows: all channels of some rows at a time."""
        b, ring = self.b, self.chain.ring(self.schedule.band) if self.bands > 1 else 0
        memory = BandWindow(self.halos[0] - self.chain.window.rows.before, ring)
        expand, window = (self.stage(kind, first, memory) for kind in (EXPAND, WINDOW))
        step = expand.shape.band
        with b.loop(0, self.blocks, expand.shape.vectors, name="block") as block:
            for outside in ((rows.low, rows.above), (rows.below, rows.high)):
                self.zero_rows(expand, block.iv, *outside)
        with b.loop(rows.first, rows.last, step, name="y") as y:
            stop = b.op(arith.MinSIOp, b.index(b.add(y.iv, step)), b.index(rows.last))
            expand.rows(n, y.iv, stop)
        with b.loop(0, self.blocks, name="block") as block:
            window.walk(n, block.iv, first, last, window.rows)

    def memory(self, is_behind: bool) -> SSAValue:
        """The rows of the map before the window, or of that behind it."""
        found = self.memories[is_behind]
        assert found is not None
        return found

    def stage(self, kind: str, first: Index, before: BandWindow = BandWindow(), source: Index = 0) -> Any:
        """The kernel of a stage for a band that begins at row `first` of the result, and at row `source` of the
        expanded map, of which `before` is there."""
        number = next(i for i, p in enumerate(self.parts) if p.stage.kind == kind)
        part, plan, behind = self.parts[number], self.plans[number], BandWindow(first)
        is_window = kind == WINDOW
        inputs = self.inputs_of(part, self.memories[not is_window])
        read = (v for v, k in zip(part.kernel.body.args, part.outer) if k is None)
        windows: dict[SSAValue, BandWindow] = dict.fromkeys(read, before if is_window else behind)
        results, aliases = self.results, self.aliases
        if number + 1 < len(self.parts):
            windows[part.kernel.terminator.operands[0]] = behind if is_window else before
            results, aliases = [self.memory(is_window)], {}
        host = Host(self.b, inputs, results, windows)
        if kind == WINDOW:
            return DepthwiseKernel(part.kernel, plan.schedule, "", aliases, host)
        if part.stage.generator is FIRST:
            return FirstKernel(part.kernel, plan.schedule, "", aliases, host, self.staged)
        origin, geometry = (source, self.chain.expanded) if kind == EXPAND else (first, self.chain.project)
        assert geometry is not None
        return _Pointwise(part.kernel, plan, aliases, host, origin, geometry.rows.positions)

    def new_rows(self, number: Index, band: Index, first: Index, last: Index) -> _Rows:
        """The rows of the expanded map that a band needs and that are not there yet: the first block of a range, and
        the first band of a picture, find none."""
        b, chain = self.b, self.chain
        stride, pad, height = chain.window.rows.stride, chain.window.rows.before, chain.window.rows.size
        low: Index = b.add(b.mul(first, stride), -pad)
        high: Index = b.add(b.mul(last, stride), chain.span - stride - pad)
        if chain.overlap and self.schedule.keep:
            fresh = b.op(arith.OrIOp, b.cmpi("eq", b.index(number), b.lo), b.cmpi("eq", b.index(band), b.index(0)))
            low = b.add(low, b.select(fresh, b.index(0), b.index(chain.overlap)))
        start, above, below, end = low, low, high, high
        if pad:
            start, above = self.extremum(max, low, 0), self.extremum(min, high, 0)
        if (self.height - 1) * stride + chain.span - pad > height:
            below, end = self.extremum(max, low, height), self.extremum(min, high, height)
        return _Rows(low, above, start, end, below, high)

    def extremum(self, which: Callable[[int, int], int], index: Index, bound: int) -> Index:
        """The larger or smaller of an index and a number."""
        known = self.b.number(index)
        if known is not None:
            return which(known, bound)
        op = arith.MaxSIOp if which is max else arith.MinSIOp
        return self.b.op(op, self.b.index(index), self.b.index(bound))

    def zero_rows(self, expand: DirectKernel, first_block: Index, first: Index, last: Index) -> None:
        """Write zeros to rows [first, last) of a group of the expanded map, outside the picture."""
        b, (made,), (memory,) = self.b, expand.yielded, expand.results
        if first is last or (b.number(first) is not None and b.number(first) == b.number(last)):
            return
        zero = b.broadcast(b.const(0.0, self.element), (self.lanes,))
        with (
            b.loop(first, last, name="y") as y,
            b.loop(0, expand.shape.vectors, name="v") as v,
            b.loop(0, self.width, name="x") as x,
        ):
            b.tile_store(zero, memory, expand.at(made, 0, b.add(first_block, v.iv), y.iv, x.iv), [4])

    def zero_columns(self, memory: SSAValue) -> None:
        """Write zeros to the columns beside the picture of the expanded map, in all rows of its memory: nothing else is
        written there."""
        b, cols = self.b, self.halos[1]
        zero = b.broadcast(b.const(0.0, self.element), (cols, self.lanes))
        _, blocks, rows, _, _ = memref_type_of(memory).get_shape()
        with b.loop(0, blocks, name="block") as block, b.loop(0, rows, name="row") as row:
            for x in (0, self.width + cols):
                b.tile_store(zero, memory, [0, block.iv, row.iv, x, 0], [3, 4])


BANDS = Bands(_BandKernel)
