"""Chains of convolutions taken apart: the choices of the kernel of a chain, and its stages as kernels of their own.

Imports what chains are as bodies, the model in numbers, and the checks of the single convolutions' choices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Attribute, Block, SSAValue

from lightnet.backends.cpu.blocked import bands_model as model
from lightnet.backends.cpu.blocked import conv_choices, depthwise
from lightnet.backends.cpu.blocked.bands_body import EXPAND, PROJECT, WINDOW, Stage, chain_of, stages_of
from lightnet.backends.cpu.blocked.bands_model import Plan
from lightnet.backends.cpu.blocked.base import Machine, choice_ints, lanes_of
from lightnet.backends.cpu.blocked.conv_choices import machine_of
from lightnet.backends.cpu.blocked.depthwise import halo_of
from lightnet.backends.cpu.blocked.first import FIRST
from lightnet.backends.cpu.blocked.first_model import band_of
from lightnet.diagnostics import LightNetError
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import Blocked, with_layout
from lightnet.ir.locations import loc_of
from lightnet.ir.types import ParamAttr


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
    plan = model.best_plan(chain, machine, band, _flag(kernel, "keep"))
    given = {name: tile for name in (EXPAND, WINDOW, PROJECT) if (tile := choice_ints(kernel, name)) is not None}
    if WINDOW in given:
        plan = replace(plan, window=depthwise.check_tile(kernel, chain.window.out_hw, given[WINDOW]))
    for name, geometry in ((EXPAND, chain.expanded), (PROJECT, chain.project)):
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


def _flag(kernel: KernelOp, name: str) -> bool | None:
    """A choice that is true or false, None where the kernel has none."""
    attr = kernel.attributes.get(name)
    if attr is None:
        return None
    value = attr.data if isinstance(attr, ParamAttr) else attr.value.data if isinstance(attr, IntegerAttr) else None
    if value not in (0, 1, -1):  # true is -1 in an i1
        raise LightNetError(f"{name} is true or false", loc_of(kernel), label=f"bands.{name}")
    return bool(value)


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
    stages, lanes = stages_of(kernel.ops), lanes_of(kernel)
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
        if stage.generator is FIRST:
            part.attributes["tile"] = ParamAttr(tiles[stage.kind].data[:3])
            step = min(band_of(stage.anchor, 1), chain_of(kernel.ops).ring(plan.band))
            part.attributes["band"] = ParamAttr((min(step, stage.anchor.result_specs[0].dims[2]),))
        parts.append(Part(stage, part, tuple(numbers.get(v) for v in inputs), holder))
    return parts


def sizes_of(kernel: KernelOp, plan: Plan, parts: Sequence[Part], lanes: int) -> tuple[int, int, int]:
    """Bytes of scratch: the rows of both maps in between, and what a first convolution needs."""
    staged = (p.stage.generator.scratch_bytes(p.kernel) for p in parts if p.stage.generator is FIRST)
    return *model.held_bytes(chain_of(kernel.ops), plan, lanes), sum(staged)
