"""The generator that takes a kernel of the CPU, and by which plan. Imports the table of generators, by what they
are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xdsl.dialects.builtin import IntegerAttr, StringAttr, i64
from xdsl.ir import Attribute

from lightnet.backends.cpu.blocked.base import (
    AdaptedGenerator,
    ProcessorModel,
    choice_error,
    chosen_lanes,
    machine_for,
    processor_model_of,
)
from lightnet.backends.cpu.blocked.forms import lies_right
from lightnet.backends.cpu.plain import LOOPS, PLAIN_FORM, Tiles, plain_time_of
from lightnet.backends.cpu.registers import REGISTERS
from lightnet.backends.cpu.special import ASKED, SPECIAL, with_cases
from lightnet.backends.cpu.strips import open_ways
from lightnet.backends.generator import Generator, Plan
from lightnet.backends.kernel_loops import takes_layouts
from lightnet.backends.selection import PINNED, Candidate, Chosen, Selection, has_maps
from lightnet.dataclasses import replace
from lightnet.dialects.ln.source import ParamOp, Source
from lightnet.dialects.ln.structure import OnceOp
from lightnet.ir.body import choice
from lightnet.ir.instances import is_open
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import Blocked, Packed, layout_of
from lightnet.ir.refusal import Refusal
from lightnet.ir.registry import GENERATORS
from lightnet.ir.reserved import Reserved
from lightnet.ir.target import Blocking, Form, Request, reorder_time
from lightnet.ir.types import spec_of
from lightnet.ir.views import place_of
from lightnet.runtime.dims import least


def is_blocked(kernel: KernelOp) -> bool:
    """Return whether a kernel reads or writes blocked maps."""
    return any(isinstance(layout_of(v.type), Blocked) for v in (*kernel.operands, *kernel.results))


def has_reserved(kernel: KernelOp) -> bool:
    """Return whether a kernel reads or writes what grows in its memory."""
    return any(isinstance(layout_of(v.type), Reserved) for v in (*kernel.operands, *kernel.results))


class CpuSelection(Selection[ProcessorModel]):
    """The generators of kernels on blocked maps and on row-major tensors."""

    def __init__(self) -> None:
        super().__init__("the CPU", GENERATORS)

    def usable(self, kernel: KernelOp, machine: ProcessorModel) -> Iterable[Generator]:
        """The generators that a kernel may have: the loops alone where something in it is empty, in some call at least,
        or has a builder of its own."""
        values = (*kernel.operands, *(r for op in kernel.ops for r in op.results), *kernel.results)
        if not kernel.operands or any(least(spec_of(v.type).len) == 0 for v in values):
            return (LOOPS,)
        if any(op.has_builder or not op.operands for op in kernel.ops):
            return (LOOPS,)
        usable = super().usable(kernel, machine)
        if any(spec_of(v.type).open_dims for v in values):
            return [way for g in usable for way in open_ways(g)]
        return usable

    def fits(self, generator: Generator, form: Form, kernel: KernelOp, machine: ProcessorModel) -> bool | Refusal:
        inner = generator.inner if isinstance(generator, AdaptedGenerator) else generator
        if has_reserved(kernel):
            found = (layout_of(v.type) for v in (*kernel.operands, *kernel.results))
            takes = all(layout.is_plain or isinstance(layout, Reserved) for layout in found) and takes_layouts(kernel)
            takes = takes and generator is inner and generator.takes_reserved
            return takes or Refusal("it takes nothing that grows in its memory")
        if inner is LOOPS and is_open(kernel.results) and (generator is LOOPS) == is_blocked(kernel):
            return Refusal("open maps have loops row by row, others loops over all")
        if inner is LOOPS and choice(kernel, "alg") == LOOPS.alg:
            return takes_layouts(kernel) or Refusal("loops do not know these layouts")
        if inner is LOOPS and not is_blocked(kernel):  # what was packed for others (`passes/tied.py`), too
            found = (layout_of(v.type) for v in (*kernel.operands, *kernel.results))
            plain = form is PLAIN_FORM and all(layout.is_plain or isinstance(layout, Packed) for layout in found)
            return plain or Refusal("the kernel is on row-major tensors")
        if not isinstance(inner, Tiles) and chosen_lanes(kernel) not in (0, machine.lanes):
            return Refusal("the kernel is for vectors of other lengths than {}", machine.lanes)
        if not (lies := lies_right(form, kernel.body.args, kernel.results, machine.lanes)):
            return lies
        packed = not form.weights or is_blocked(kernel) or "alg" in kernel.attributes or _may_pack(form, kernel)
        return packed or Refusal("it packs its weights, and these are computed, or have a place")

    def named_by(self, plan: Plan, machine: ProcessorModel) -> dict[str, Attribute]:
        name = super().named_by(plan, machine)
        return name if plan.generator is LOOPS else {**name, "lanes": IntegerAttr(machine.lanes, i64)}

    def machine_for(self, kernel: KernelOp) -> ProcessorModel | None:
        """Loops that are asked for by name are for every machine, in blocks of any length."""
        known = machine_for(kernel)
        anyone = choice(kernel, "alg") == LOOPS.alg or not is_blocked(kernel)
        return processor_model_of("") if known is None and anyone else known

    def default(self, kernel: KernelOp) -> str | None:
        return LOOPS.alg if all(layout_of(v.type).is_plain for v in (*kernel.operands, *kernel.results)) else None

    def chosen(self, kernel: KernelOp, plan: Plan, offers: Sequence[Plan], machine: ProcessorModel) -> Chosen:
        return super().chosen(kernel, self._with_cases(kernel, plan, machine), offers, machine)

    def _read(self, kernel: KernelOp) -> Plan | None:
        plan, machine = super()._read(kernel), self.machine_for(kernel)
        return plan if plan is None or machine is None else self._with_cases(kernel, plan, machine)

    def _with_cases(self, kernel: KernelOp, plan: Plan, machine: ProcessorModel) -> Plan:
        """A plan with those for values that the kernel names, by whichever generators are fastest for these."""

        def offers(static: KernelOp, exact: bool) -> Sequence[Plan]:
            pinned, found = choice(static, "alg"), list[Candidate]()
            for generator, form in self.candidates(static, machine):
                static.attributes["alg"] = StringAttr(generator.alg)  # its weights may be packed, by who owns them
                allowed = pinned == generator.alg or (pinned is None and (not exact or generator.is_exact(static.ops)))
                if allowed and self.fits(generator, form, static, machine):
                    found.append((generator, form))
            return self.offers(static, found, machine) if found else ()

        return with_cases(kernel, plan, offers, machine) if {SPECIAL, ASKED} & kernel.attributes.keys() else plan

    def machine_asked(self, kernel: KernelOp, request: Request) -> ProcessorModel:
        """The machine of the request, but of the lanes that a kernel is for already."""
        asked, known = processor_model_of(request.features, request.threads), machine_for(kernel)
        if chosen_lanes(kernel) not in (0, *(lanes := sorted(REGISTERS))):
            raise choice_error(kernel, "choose.lanes", f"{kernel.name} cannot have lanes = "
                               f"{kernel.attributes['lanes']}: there are {', '.join(map(str, lanes))}")  # fmt: skip
        return asked if known is None or known.lanes == asked.lanes else replace(known, threads=request.threads)

    # -- before there are layouts

    def machine_of(self, features: str) -> ProcessorModel:
        return processor_model_of(features)

    def origins(self, kernel: KernelOp) -> tuple[bool, ...]:
        """The flags of operands: True for those that come from outside of the network."""
        owners = (v.owner for v in kernel.operands)
        return tuple(isinstance(owner, Source) and not isinstance(owner, ParamOp) for owner in owners)

    def numbered_blocking(self, kernel: KernelOp, machine: ProcessorModel) -> Blocking | Refusal:
        """By the form that costs least, or that of its choice `alg`."""
        inputs = self.origins(kernel)
        pinned, ops, yielded = choice(kernel, "alg"), kernel.ops, list(kernel.terminator.operands)
        if chosen_lanes(kernel) not in (0, machine.lanes):
            return Refusal("it is for vectors of other lengths than {}", machine.lanes)
        able = [g for g in self.usable(kernel, machine) if g.on_maps and pinned in (None, g.alg)]
        found = [(g, form) for g in able for form in g.forms(ops, yielded, machine)]
        found = [f for f in found if not f[0].last] or [f for f in found if has_maps(f[1])]
        if not found:
            return Refusal("no generator takes it on maps")
        layout = Blocked(machine.lanes)

        def time(plan: Plan) -> float:
            # What comes from outside of the network is plain for certain: a form that reads it so needs no change of
            # layout.
            outside = [kernel.operands[i] for i in plan.form.maps if inputs[i]]
            return plan.time + sum(reorder_time(v, layout) for v in outside)

        best = min(self.offers(kernel, found, machine), key=time)
        plain = 0.0 if best.form.tied else plain_time_of(ops, machine)
        plain += PINNED if pinned not in (None, Tiles.alg, LOOPS.alg) else 0
        return Blocking(best.form, layout, best.time, plain)


def _may_pack(form: Form, kernel: KernelOp) -> bool:
    """Return whether what a form wants packed is static, and the kernel has no place yet: `pack` comes before
    `plan`.
    """
    outside = kernel.outside
    return place_of(kernel.results[0]) is None and all(isinstance(outside[v].owner, OnceOp) for v in form.weights)


SELECTION = CpuSelection()
