"""Inverted residuals and depthwise-separable pairs in bands of rows: convolutions whose wide maps never leave the cache.

A chain of a pointwise convolution, a depthwise one and another pointwise one (either may be missing), each with its epilogue, is one
kernel. A block of its grid is a band of rows of the result: it computes the rows of the expanded map that the band's windows reach
and that the band before has not made already, then the depthwise rows, then the result. Both maps in between are some rows of
scratch memory: of the expanded map a ring, in which the last rows stay for the next band. The kernels of the single convolutions make
the code, as parts of this one. Imports these, the base of blocked kernels and the model in numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from xdsl.dialects import arith
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Attribute, Block, SSAValue

from lightnet.backends.builder import Index
from lightnet.backends.cpu.blocked import bands_model as model
from lightnet.backends.cpu.blocked import conv_choices, depthwise
from lightnet.backends.cpu.blocked.bands_body import EXPAND, PROJECT, WINDOW, Stage, chain_of, form_of, stages_of
from lightnet.backends.cpu.blocked.bands_model import Plan
from lightnet.backends.cpu.blocked.base import (
    BlockedKernel,
    Host,
    Machine,
    Window,
    blocks_of,
    choice_ints,
    map_lanes,
)
from lightnet.backends.cpu.blocked.conv import DirectKernel
from lightnet.backends.cpu.blocked.conv_choices import machine_of
from lightnet.backends.cpu.blocked.depthwise import DepthwiseKernel, halo_of
from lightnet.backends.cpu.launches import Launch
from lightnet.diagnostics import LightNetError
from lightnet.ir.body import Body
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import Blocked, Layout, with_layout
from lightnet.ir.locations import loc_of
from lightnet.ir.op import LnOp
from lightnet.ir.target import Form
from lightnet.ir.types import ParamAttr
from lightnet.runtime.arrays import align_up


class Bands:
    """The generator of chains of convolutions on maps of f32."""

    alg = "bands"
    exact = True

    def takes(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], lanes: int) -> Form | None:
        return form_of(Body(tuple(ops), tuple(yielded)), lanes)

    def choices(self, kernel: KernelOp, machine: Machine) -> Mapping[str, Attribute]:
        plan = plan_of(kernel, machine)
        return {"band": ParamAttr(plan.band), **tiles_of(plan)}

    def cost(self, kernel: KernelOp, machine: Machine) -> float:
        chain = chain_of(kernel.ops)
        return model.time(chain, machine, plan_of(kernel, machine))

    def weights(self, kernel: KernelOp) -> Mapping[int, Layout]:
        found: dict[int, Layout] = {}
        for part in parts_of(kernel):
            if part.stage.kind != WINDOW:  # how weights lie depends on the vectors of a tile alone
                part.kernel.attributes["tile"] = ParamAttr((1, *part.kernel.attributes["tile"].data[1:]))
            for number, layout in part.stage.generator.weights(part.kernel).items():
                outer = part.outer[number]
                assert outer is not None
                found[outer] = layout
        return found

    def scratch_bytes(self, kernel: KernelOp) -> int:
        lanes = map_lanes(kernel)
        band = plan_of(kernel, machine_of(lanes)).band
        return sum(map(align_up, model.held_bytes(chain_of(kernel.ops), band, lanes)))

    def build(self, kernel: KernelOp, name: str, aliases: Mapping[int, int]) -> list[Launch]:
        return [_BandKernel(kernel, name, aliases).build()]


# -- choices -----------------------------------------------------------------------------------------------------------


def plan_of(kernel: KernelOp, machine: Machine) -> Plan:
    """The band and the tiles of a kernel: its choices where it has them, the model's where not. Raises `LightNetError` for a band that
    is none, and for tiles of several rows where they do not stay in place (what else they must be, the parts' kernels check)."""
    chain = chain_of(kernel.ops)
    attr, height = kernel.attributes.get("band"), chain.window.out_hw[0]
    band = None if attr is None else getattr(getattr(attr, "value", attr), "data", attr)
    if band is not None and (isinstance(band, bool) or not isinstance(band, int) or not 1 <= band <= height):
        raise LightNetError(
            f"band = {band}: a chain of convolutions takes a number of rows from 1 to {height}",
            loc_of(kernel),
            label="bands.band",
        )
    plan = model.best_plan(chain, machine, band)
    given = {name: tile for name in (EXPAND, WINDOW, PROJECT) if (tile := choice_ints(kernel, name)) is not None}
    if WINDOW in given:
        plan = replace(plan, window=depthwise.check_tile(kernel, chain.window.out_hw, given[WINDOW]))
    for name, geometry in ((EXPAND, chain.expand), (PROJECT, chain.project)):
        if name in given and geometry is not None:
            plan = replace(plan, **{name: conv_choices.check_tile(kernel, geometry, machine.lanes, given[name], None)})
    rows = plan.window[0], *(shape.rows for shape in (plan.expand, plan.project) if shape is not None)
    if max(rows) > 1 and chain.bands(plan.band) > 1:
        raise LightNetError(
            f"band = {plan.band}: tiles of several rows need one band, of all {height} rows",
            loc_of(kernel),
            label="bands.tile",
        )
    return plan


def tiles_of(plan: Plan) -> dict[str, ParamAttr]:
    """The tiles of a plan as choices, by stage."""
    found = {WINDOW: ParamAttr(plan.window)}
    for name, shape in ((EXPAND, plan.expand), (PROJECT, plan.project)):
        if shape is not None:
            found[name] = ParamAttr((shape.rows, shape.columns, shape.vectors, shape.unroll))
    return found


@dataclass(frozen=True)
class Part:
    """A stage as a kernel by itself. `outer` has for each of its operands the number of the chain's operand, None where it is what the
    stage before makes; `holder` defines its operands."""

    stage: Stage
    kernel: KernelOp
    outer: tuple[int | None, ...]
    holder: Block


def parts_of(kernel: KernelOp) -> list[Part]:
    """The stages of a kernel as kernels of their own, whose tiles are choices. Maps in between have the halo that is read."""
    stages, lanes = stages_of(kernel.ops), map_lanes(kernel)
    assert stages is not None
    plan = plan_of(kernel, machine_of(lanes))
    tiles = tiles_of(plan)
    numbers: dict[SSAValue, int] = {v: i for i, v in enumerate(kernel.body.args)}
    types: dict[SSAValue, Attribute] = {v: v.type for v in kernel.body.args}
    parts = []
    for stage, following in zip(stages, (*stages[1:], None)):
        made = set(stage.results)
        inputs = list(dict.fromkeys(v for op in stage.ops for v in op.operands if v not in made))
        block, holder = (Block(arg_types=[types[v] for v in inputs]) for _ in range(2))
        values: dict[SSAValue, SSAValue] = dict(zip(inputs, block.args))
        for op in stage.ops:
            block.add_op(op.clone(values))
        outputs = list(kernel.terminator.operands)
        if following is not None:
            outputs = [following.source]
            halo = halo_of(following.anchor) if following.kind == WINDOW else (0, 0)
            types[following.source] = with_layout(following.source.type, Blocked(lanes, halo))
            values[following.source]._type = types[following.source]
        part = type(kernel).around(block, holder.args, [values[v] for v in outputs])
        part.attributes["tile"] = tiles[stage.kind]
        parts.append(Part(stage, part, tuple(numbers.get(v) for v in inputs), holder))
    return parts


# -- the kernel --------------------------------------------------------------------------------------------------------


class _BandKernel(BlockedKernel):
    """Builds one kernel function over pictures x bands. Maps in between stand in scratch memory, one picture of each."""

    def __init__(self, kernel: KernelOp, name: str, aliases: Mapping[int, int]):
        lanes = map_lanes(kernel)
        self.plan, self.chain = plan_of(kernel, machine_of(lanes)), chain_of(kernel.ops)
        self.sizes = model.held_bytes(self.chain, self.plan.band, lanes)
        super().__init__(kernel, name, lanes, aliases, scratch=sum(map(align_up, self.sizes)))
        self.parts, self.aliases = parts_of(kernel), aliases
        source = kernel.body.args.index(kernel.ops[0].operands[0])
        assert source not in aliases.values(), "rows of it are read after others are written"
        window = next(p.stage.anchor for p in self.parts if p.stage.kind == WINDOW)
        self.blocks, self.bands = blocks_of(self.chain.channels, lanes), self.chain.bands(self.plan.band)
        self.batch, self.height = self.chain.window.batch, self.chain.window.out_hw[0]
        #: The width of the expanded map, and its halo.
        self.width, self.halos = self.chain.window.in_hw[1], halo_of(window)
        self.memories = self.scratch_maps()

    def scratch_maps(self) -> tuple[SSAValue | None, SSAValue | None]:
        """The memrefs of the rows of both maps in between."""
        band, found = self.plan.band, []
        rows = self.chain.ring(band)
        columns = (self.width + 2 * self.halos[1], self.chain.window.out_hw[1])
        for size, extent, cols, at in zip(self.sizes, (rows, band), columns, (0, align_up(self.sizes[0]))):
            type = MemRefType(self.element, [1, self.blocks, extent, cols, self.lanes])
            found.append(self.b.view(self.scratch, at, type) if size else None)
        return found[0], found[1]

    def build(self) -> Launch:
        b = self.b
        if self.memories[0] is not None and self.halos[1]:
            with b.when(b.cmpi("slt", b.lo, b.hi)):
                self.zero_columns(self.memories[0])
        with b.loop(b.lo, b.hi) as number:
            n, band = self.coordinates(number.iv, (self.batch, self.bands))
            first = b.mul(band, self.plan.band)
            last = self.row_end(first, self.plan.band, self.height)
            kernels = self.kernels(first)
            expand, window, project = (kernels.get(k) for k in (EXPAND, WINDOW, PROJECT))
            if expand is None:
                with b.loop(0, self.blocks) as block:
                    window.walk(n, block.iv, first, last, window.rows)
            else:
                rows = self.new_rows(expand, number.iv, band, first, last)
                vectors = expand.shape.vectors
                groups = self.blocks // vectors
                self.fetch(number.iv, expand, 0)
                with b.loop(0, groups) as group:
                    self.fetch(number.iv, expand, b.add(group.iv, 1))
                    if project is not None:
                        with self.only(group.iv, groups - 1):
                            self.fetch(number.iv, project, 0)
                    expand.part(n, group.iv, *rows, 0, self.width)
                    with b.loop(0, vectors) as v:
                        window.walk(n, b.add(b.mul(group.iv, vectors), v.iv), first, last, window.rows)
            if project is not None:
                outputs = blocks_of(project.geometry.outputs, self.lanes) // project.shape.vectors
                with b.loop(0, outputs) as group:
                    self.fetch(number.iv, project, b.add(group.iv, 1))
                    project.part(n, group.iv, first, last, 0, project.geometry.out_hw[1])
            ends = project or window
            ends.zero_halos(n, 0, blocks_of(ends.anchor.result_specs[0].dims[1], self.lanes), first, last)
        return self.done(self.batch * self.bands)

    def kernels(self, first: Index) -> dict[str, DirectKernel | DepthwiseKernel]:
        """The kernels of the stages for a band that begins at row `first` of the result."""
        ring = self.chain.ring(self.plan.band) if self.bands > 1 else 0
        arguments = self.kernel.body.args
        between = (
            (self.memories[0], Window(self.halos[0] - self.chain.window.pad[0], ring)),
            (
                self.memories[1],
                Window(first),
            ),
        )
        found: dict[str, DirectKernel | DepthwiseKernel] = {}
        memory, window = None, Window()
        for part in self.parts:
            outer = list(zip(part.kernel.body.args, part.outer))
            inputs = {v: memory if k is None else self.inputs[arguments[k]] for v, k in outer}
            windows = {v: window for v, k in outer if k is None}
            results, aliases = self.results, self.aliases
            if part is not self.parts[-1]:
                memory, window = between[part.stage.kind == WINDOW]
                windows[part.kernel.terminator.operands[0]] = window
                results, aliases = [memory], {}
            cls = DepthwiseKernel if part.stage.kind == WINDOW else DirectKernel
            found[part.stage.kind] = cls(part.kernel, "", aliases, Host(self.b, inputs, results, windows))
        return found

    def fetch(self, number: Index, kernel: DirectKernel, group: Index) -> None:
        """Ask for the weights of a group of output vectors in the first block of a range: bands come back to them too soon for a core to
        have found out by itself what comes next, and from then on they are near."""
        b, weights = self.b, kernel.inputs[kernel.weight]
        _, _, blocks, _, channels, size = weights.type.get_shape()
        with b.when(b.cmpi("eq", b.index(number), b.lo)), b.loop(0, blocks) as block:
            b.prefetch(weights, [group, 0, block.iv, 0, 0, 0], 4 * channels * size)

    def new_rows(
        self, expand: DirectKernel, number: Index, band: Index, first: Index, last: Index
    ) -> tuple[Index, Index]:
        """The rows of the expanded map that a band needs and that are not in the ring: [from, to) in the picture. Those outside, which
        are 0, are written here. The first block of a range, and the first band of a picture, find nothing there."""
        b, chain = self.b, self.chain
        stride, pad, height = chain.window.stride[0], chain.window.pad[0], chain.window.in_hw[0]
        low = b.add(b.mul(first, stride), -pad)
        high = b.add(b.mul(last, stride), chain.span - stride - pad)
        if chain.overlap and self.bands > 1:
            fresh = b.op(arith.OrIOp, b.cmpi("eq", number, b.lo), b.cmpi("eq", b.index(band), b.index(0)))
            low = b.add(low, b.select(fresh, b.index(0), b.index(chain.overlap)))
        start, end = low, high
        if pad:
            start = b.op(arith.MaxSIOp, low, b.index(0))
            self.zero_rows(expand, low, b.op(arith.MinSIOp, high, b.index(0)))
        if (self.height - 1) * stride + chain.span - pad > height:
            end = b.op(arith.MinSIOp, high, b.index(height))
            self.zero_rows(expand, b.op(arith.MaxSIOp, low, b.index(height)), high)
        return start, end

    def zero_rows(self, expand: DirectKernel, first: Index, last: Index) -> None:
        """Write zeros to rows [first, last) of the expanded map, outside the picture."""
        b, (made,), (memory,) = self.b, expand.yielded, expand.results
        zero = b.broadcast(b.const(0.0, self.element), (self.lanes,))
        with b.loop(first, last) as y, b.loop(0, self.blocks) as block, b.loop(0, self.width) as x:
            b.tile_store(zero, memory, expand.at(made, 0, block.iv, y.iv, x.iv), [4])

    def zero_columns(self, memory: SSAValue) -> None:
        """Write zeros to the columns beside the picture of the expanded map, in all rows of its memory: nothing else is written there."""
        b, cols = self.b, self.halos[1]
        zero = b.broadcast(b.const(0.0, self.element), (cols, self.lanes))
        with b.loop(0, self.blocks) as block, b.loop(0, memory.type.get_shape()[2]) as row:
            for x in (0, self.width + cols):
                b.tile_store(zero, memory, [0, block.iv, row.iv, x, 0], [3, 4])


BANDS = Bands()
