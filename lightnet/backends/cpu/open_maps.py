"""Kernels on maps whose height or width a call decides: those of a generator that says so (`opens`), planned for the
typical map and others, and built with the sizes of a call.

A batch alone is a matter of strips (`strips.py`). Imports the base of generators.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from xdsl.ir import Attribute, SSAValue

from lightnet.backends.cpu.blocked.base import AdaptedGenerator, ProcessorModel
from lightnet.backends.generator import Plan, form_of_arguments, numbered
from lightnet.dataclasses import replace
from lightnet.ir.instances import typical_kernel
from lightnet.ir.kernel import KernelOp
from lightnet.ir.op import LnOp
from lightnet.ir.refusal import Refusal
from lightnet.ir.target import Form
from lightnet.ir.types import TensorSpec
from lightnet.runtime.dims import Dim, Size, at, greatest, least, typical


class OpenMaps(AdaptedGenerator):
    """The kernels of another generator on open maps."""

    def form(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], machine: ProcessorModel) -> Form | Refusal | None:
        specs = [s for op in ops for s in (*op.operand_specs, *op.result_specs)]
        pads = [p for op in ops for p in op.derived_values().get("pad", ())]
        if not any(map(is_open_map, specs)) or any(isinstance(p, Dim) for p in pads):
            return Refusal("calls decide no height or width of it, or its padding")
        return self.inner.form(ops, yielded, machine)

    def plan(self, kernel: KernelOp, form: Form, machine: ProcessorModel) -> Plan:
        number = numbered(form, kernel)
        copies = [typical_kernel(kernel, size) for size in (typical, _half, greatest, least)]
        plans = [self._plan(kernel, number, machine, copies, way) for way in self.inner.ways(kernel)]
        lean = next((plan.lean for plan in plans if plan.lean is not None), None)
        return replace(min(plans, key=lambda plan: plan.time), lean=lean)

    def _plan(self, kernel: KernelOp, form: Form, machine: ProcessorModel, copies: Sequence[KernelOp],
              way: Mapping[str, Attribute]) -> Plan:  # fmt: skip
        """The plan with the choices of one way."""
        usual, *others = copies
        ends = copies[-1], copies[-2]

        def opened(copy: KernelOp) -> Plan:
            return self.inner.opened(copy, ends, form_of_arguments(form, copy), machine)

        def choose(choices: Mapping[str, Attribute]) -> None:
            """Give the other maps these choices; the bands of one may be none of another."""
            for copy in others:
                copy.attributes = {k: v for k, v in {**kernel.choices, **way, **choices}.items() if k != "band"}

        def of(plan: Plan) -> Plan:
            """A plan of the other generator for the typical map as one of this. What is quick on one map may be slow on
            another: what counts is the mean of its times for as many elements, by which no map loses more than others
            win."""
            choose(plan.choices)
            times = [plan.time, *(opened(copy).time for copy in others)]
            elements = [sum(s.len for s in copy.ops[0].result_specs) for copy in copies]
            mean = prod(t * elements[0] / count for t, count in zip(times, elements)) ** (1 / len(times))
            return replace(plan, generator=self, form=form, time=mean)

        usual.attributes = {**kernel.choices, **way}
        choose({})
        first = opened(usual)
        return replace(of(first), lean=None if first.lean is None else of(first.lean))

    def completed(self, kernel: KernelOp, plan: Plan) -> Plan:
        scratch, shared = self.inner.open_memory(kernel, plan)
        return replace(plan, scratch_bytes=scratch, workspace_bytes=shared)

    def build(self, kernel: KernelOp, plan: Plan, name: str, aliases: Mapping[int, int]) -> list[Any]:
        return self.inner.build(kernel, plan, name, aliases)


def _half(size: Size) -> int:
    """A size where dims are half of what is typical."""
    return at(
        size,
        {
            s.name: max(s.low, s.typical // 2 // s.multiple * s.multiple)
            for s in (size.symbols if isinstance(size, Dim) else ())
        },
    )


def is_open_map(spec: TensorSpec) -> bool:
    """Return whether a call decides the height or the width of a map."""
    return spec.ndim == 4 and any(isinstance(d, Dim) for d in spec.dims[2:])
