"""Chains of convolutions taken apart: the choices of the kernel of a chain, and its stages as kernels of their own.

Imports what chains are as bodies, the model in numbers, and the checks of the single convolutions' choices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from xdsl.dialects.builtin import IntegerAttr, IntegerType, MemRefType
from xdsl.ir import Attribute, Block, SSAValue

from lightnet.backends.cpu.blocked import bands_model as model
from lightnet.backends.cpu.blocked import conv_choices, conv_model, depthwise
from lightnet.backends.cpu.blocked.bands_body import EXPAND, PROJECT, WINDOW, BodyStage, ChainStage, chain_of, stages_of
from lightnet.backends.cpu.blocked.bands_model import BandSchedule, Chain
from lightnet.backends.cpu.blocked.base import NO_HALO, ProcessorModel, choice_error, choice_ints, lanes_of
from lightnet.backends.cpu.blocked.conv import DIRECT
from lightnet.backends.cpu.blocked.conv_model import OUTPUTS, TileWalk
from lightnet.backends.cpu.blocked.depthwise import depthwise_halo_of
from lightnet.backends.cpu.blocked.first import FIRST
from lightnet.backends.cpu.blocked.first_model import band_of
from lightnet.backends.cpu.blocked.kernel import BlockedKernel
from lightnet.backends.generator import Plan
from lightnet.dataclasses import dataclass, replace
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import Blocked, Layout, with_layout
from lightnet.ir.target import Form, Halo
from lightnet.ir.types import ParamAttr
from lightnet.runtime.arrays import align_up


def band_schedule_of(kernel: KernelOp, machine: ProcessorModel) -> BandSchedule:
    """The band and the tiles of a kernel: its choices where it has them, the model's where not. Raises `LightNetError`
    for a band that is none, and for tiles of several rows where they do not stay in place (what else they must be, the
    parts' kernels check)."""
    chain = chain_of(kernel.ops)
    attr, height = kernel.attributes.get("band"), chain.window.rows.positions
    band = None if attr is None else getattr(getattr(attr, "value", attr), "data", attr)
    if band is not None and (isinstance(band, bool) or not isinstance(band, int) or not 1 <= band <= height):
        message = f"band = {band}: a chain of convolutions takes a number of rows from 1 to {height}"
        raise choice_error(kernel, "bands.band", message)
    schedule = model.best_schedule(chain, machine, band, _flag(kernel, "keep"))
    given = {name: tile for name in (EXPAND, WINDOW, PROJECT) if (tile := choice_ints(kernel, name)) is not None}
    if WINDOW in given:
        schedule = replace(
            schedule, window=depthwise.chosen_depthwise_tile(kernel, chain.window.positions, given[WINDOW])
        )
    for name, geometry in ((EXPAND, chain.expanded), (PROJECT, chain.project)):
        if name in given and geometry is not None:
            shape = conv_choices.chosen_conv_tile(kernel, geometry, machine.lanes, given[name], None)
            schedule = replace(schedule, expand=shape) if name == EXPAND else replace(schedule, project=shape)
    rows = schedule.window[0], *(shape.rows for shape in (schedule.expand, schedule.project) if shape is not None)
    if max(rows) > 1 and chain.bands(schedule.band) > 1:
        message = f"band = {schedule.band}: tiles of several rows need one band, of all {height} rows"
        raise choice_error(kernel, "bands.tile", message)
    return schedule


def _flag(kernel: KernelOp, name: str) -> bool | None:
    """A choice that is true or false, None where the kernel has none."""
    attr = kernel.attributes.get(name)
    if attr is None:
        return None
    value = attr.data if isinstance(attr, ParamAttr) else attr.value.data if isinstance(attr, IntegerAttr) else None
    if value not in (0, 1, -1):  # true is -1 in an i1
        raise choice_error(kernel, f"bands.{name}", f"{name} is true or false")
    return bool(value)


def stage_tiles(schedule: BandSchedule) -> dict[str, ParamAttr]:
    """The tiles of a schedule as choices, by stage."""
    found = {WINDOW: ParamAttr(schedule.window)}
    for name, shape in ((EXPAND, schedule.expand), (PROJECT, schedule.project)):
        if shape is not None:
            found[name] = ParamAttr((shape.rows, shape.columns, shape.vectors, shape.unroll))
    return found


@dataclass(frozen=True)
class StagePart:
    """A stage as a kernel by itself. `outer` has for each of its operands the number of the whole kernel's operand,
    None where it is what the stage before makes; `holder` defines its operands."""

    stage: Any
    kernel: KernelOp
    outer: tuple[int | None, ...]
    holder: Block

    def plan(self, machine: ProcessorModel) -> Plan:
        """The plan of its generator."""
        return self.stage.generator.plan(self.kernel, self.form(machine), machine)

    def form(self, machine: ProcessorModel) -> Form:
        """The form in which its generator takes it."""
        form = self.stage.generator.form(self.kernel.ops, list(self.kernel.terminator.operands), machine)
        assert isinstance(form, Form)
        return form


def parts_of_stages(
    kernel: KernelOp, stages: Sequence[BodyStage], lanes: int, halo_of: Callable[[Any], Halo],
    choices_of: Callable[[Any], Mapping[str, Attribute]],
) -> list[StagePart]:  # fmt: skip
    """The stages of a kernel as kernels of their own with choices. Maps in between have the halo that the stage behind
    reads."""
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
            types[following.source] = with_layout(following.source.type, Blocked(lanes, halo_of(following)))
            values[following.source]._type = types[following.source]
        part = type(kernel).around(block, holder.args, [values[v] for v in outputs])
        part.attributes.update(choices_of(stage))
        parts.append(StagePart(stage, part, tuple(numbers.get(v) for v in inputs), holder))
    return parts


class StagePlans(NamedTuple):
    """The schedule of a kernel of stages, their plans as parts of it, and bytes of its areas of scratch."""

    schedule: Any
    plans: tuple[Plan, ...]
    sizes: Sequence[int]

    @property
    def scratch_bytes(self) -> int:
        return sum(map(align_up, self.sizes))


def stage_weights(parts: Sequence[StagePart], plans: Sequence[Plan]) -> dict[int, Layout]:
    """The layouts of packed weights of the parts, by the number of the whole kernel's operand."""
    found = ((part.outer[i], layout) for part, plan in zip(parts, plans) for i, layout in plan.weights.items())
    return {number: layout for number, layout in found if number is not None}


class StagesKernel(BlockedKernel):
    """The function of a kernel of stages; `parts`, which hold their bodies, make the code."""

    def __init__(
        self, kernel: KernelOp, stages: StagePlans, parts: Sequence[StagePart], name: str, aliases: Mapping[int, int]
    ):
        self.schedule, self.plans, self.sizes = stages
        self.parts, self.aliases = parts, aliases
        super().__init__(kernel, name, lanes_of(kernel), aliases, scratch=stages.scratch_bytes)

    def area(self, number: int, shape: Sequence[int] = (), element: Attribute | None = None) -> SSAValue | None:
        """An area of scratch as elements (floats) of a shape, or as bytes; None where it is empty."""
        if not (size := self.sizes[number]):
            return None
        type = MemRefType(element or self.element, shape) if shape else MemRefType(IntegerType(8), [size])
        return self.b.view(self.scratch, sum(map(align_up, self.sizes[:number])), type)

    def inputs_of(self, part: StagePart, between: SSAValue | None) -> dict[SSAValue, SSAValue]:
        """The memrefs of a part's operands: `between` is what the stage before makes."""
        found: dict[SSAValue, SSAValue] = {}
        for value, number in zip(part.kernel.body.args, part.outer):
            memref = between if number is None else self.inputs[self.kernel.body.args[number]]
            assert memref is not None
            found[value] = memref
        return found


def parts_of(kernel: KernelOp, schedule: BandSchedule, lanes: int) -> list[StagePart]:
    """The stages of a kernel as kernels of their own, whose tiles are choices. Maps in between have the halo that is
    read."""
    stages = stages_of(kernel.ops)
    assert stages
    tiles = stage_tiles(schedule)

    def halo_of(stage: ChainStage) -> Halo:
        return depthwise_halo_of(stage.anchor) if stage.kind == WINDOW else NO_HALO

    def choices_of(stage: ChainStage) -> dict[str, Attribute]:
        if stage.generator is not FIRST:
            return {"tile": tiles[stage.kind]}
        tile, step = tiles[stage.kind].data, min(band_of(stage.anchor, 1), chain_of(kernel.ops).ring(schedule.band))
        assert isinstance(tile, tuple)
        band = min(step, stage.anchor.result_specs[0].dims[2])
        return {"tile": ParamAttr(tile[:3]), "band": ParamAttr((band,))}

    return parts_of_stages(kernel, stages, lanes, halo_of, choices_of)


def plan_of_part(part: StagePart, chain: Chain, schedule: BandSchedule, machine: ProcessorModel) -> Plan:
    """The plan of a stage. Of a pointwise one whose weights do not stay near between bands, each tile fetches its share
    of the next group's."""
    if part.stage.generator is not DIRECT:
        return part.plan(machine)
    plan = DIRECT.part(part.kernel, part.form(machine), machine)
    if schedule.keep:
        return plan
    made, rows = plan.schedule, chain.least_rows(schedule.band) if part.stage.kind == EXPAND else schedule.band
    width = made.geometry.cols.positions
    band = replace(made.geometry.over((rows, width), (rows, width)), batch=1)
    ahead = conv_model.weights_ahead(band, machine, made.shape, TileWalk(OUTPUTS, rows, width))
    return replace(plan, schedule=replace(made, weights_ahead=ahead))


def sizes_of(chain: Chain, schedule: BandSchedule, parts: Sequence[Plan], lanes: int) -> tuple[int, int, int]:
    """Bytes of scratch: the rows of both maps in between, and what a first convolution needs."""
    return *model.held_bytes(chain, schedule, lanes), sum(p.scratch_bytes for p in parts if p.generator is FIRST)
