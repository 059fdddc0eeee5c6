"""Kernels on maps whose height or width a call decides: those of a generator that says so (`opens`), planned for the
typical map and the largest, and built with the sizes of a call.

A batch alone is a matter of strips (`strips.py`). Imports the base of generators.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import sqrt
from typing import Any

from xdsl.ir import SSAValue

from lightnet.backends.cpu.blocked.base import BlockedGenerator, ProcessorModel
from lightnet.backends.generator import Plan, form_of_arguments, numbered
from lightnet.ir.instances import typical_kernel
from lightnet.ir.kernel import KernelOp
from lightnet.ir.op import LnOp
from lightnet.ir.target import Form
from lightnet.ir.types import TensorSpec
from lightnet.runtime.dims import Dim, greatest


class OpenMaps(BlockedGenerator):
    """The kernels of another generator on open maps."""

    def __init__(self, inner: BlockedGenerator):
        self.inner = inner
        self.alg, self.exact, self.last, self.on_maps = inner.alg, inner.exact, inner.last, inner.on_maps

    def is_for(self, machine: ProcessorModel) -> bool:
        return self.inner.is_for(machine)

    def is_exact(self, ops: Sequence[LnOp]) -> bool:
        return self.inner.is_exact(ops)

    def form(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], machine: ProcessorModel) -> Form | None:
        specs = [s for op in ops for s in (*op.operand_specs, *op.result_specs)]
        if not any(map(is_open_map, specs)) or any(isinstance(p, Dim) for op in ops for p in _padding(op)):
            return None
        return self.inner.form(ops, yielded, machine)

    def plan(self, kernel: KernelOp, form: Form, machine: ProcessorModel) -> Plan:
        static, largest, form = typical_kernel(kernel), typical_kernel(kernel, greatest), numbered(form, kernel)
        found = self.inner.opened(static, largest, form_of_arguments(form, static), machine)
        most = self.inner.opened(largest, largest, form_of_arguments(form, largest), machine)
        larger = sum(s.len for s in largest.ops[0].result_specs) / sum(s.len for s in static.ops[0].result_specs)
        lean = None
        if found.lean is not None and most.lean is not None:
            lean = self._of(kernel, form, found.lean, most.lean.time / larger)
        return replace(self._of(kernel, form, found, most.time / larger), lean=lean)

    def _of(self, kernel: KernelOp, form: Form, plan: Plan, time: float) -> Plan:
        """A plan of the other generator as one of this. What is quick on the typical map may be slow on a large one, on
        which it takes `time` for as many elements: what counts is the mean of both, by which no map loses more than
        others win."""
        shared = self.inner.shared_bytes(kernel, plan)
        return replace(plan, generator=self, form=form, workspace_bytes=shared, time=sqrt(plan.time * time))

    def build(self, kernel: KernelOp, plan: Plan, name: str, aliases: Mapping[int, int]) -> list[Any]:
        return self.inner.build(kernel, plan, name, aliases)


def is_open_map(spec: TensorSpec) -> bool:
    """Return whether a call decides the height or the width of a map."""
    return spec.ndim == 4 and any(isinstance(d, Dim) for d in spec.dims[2:])


def _padding(op: LnOp) -> Sequence[Any]:
    return op.derived_values().get("pad", ())
