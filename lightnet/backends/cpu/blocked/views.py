"""Concatenations and slices of whole blocks of channels: memory that the plan shares, no code. Imports `base`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.ir import SSAValue

from lightnet.backends.cpu.blocked.base import NO_HALO, BlockedGenerator, ProcessorModel
from lightnet.backends.generator import Plan
from lightnet.backends.launches import Launch
from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.move import Concat, Forward, Slice
from lightnet.ir.kernel import KernelOp
from lightnet.ir.op import LnOp
from lightnet.ir.target import Form


class Views(BlockedGenerator):
    """One `forward`, or one `concat` or `slice` of one picture along its channels, between whole blocks: a view of
    `ir/views.py` once it is planned. What the plan cannot place so is copied block by block (`lower-cpu`)."""

    alg = "view"

    def form(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], machine: ProcessorModel) -> Form | None:
        if len(ops) != 1:
            return None
        (op,) = ops
        if not isinstance(op, Concat | Slice | Forward) or list(yielded) != list(op.results):
            return None
        result = op.result_specs[0]
        if result.ndim != 4 or result.dtype.name != "f32" or result.len == 0:
            return None
        if not isinstance(op, Forward) and (
            result.dims[0] != 1 or op.axis != 1 or not _between_blocks(op, machine.lanes)
        ):
            return None
        if len(set(op.operands)) != len(op.operands):
            return None
        return Form(dict.fromkeys(op.operands, NO_HALO), tied=True)

    def plan(self, kernel: KernelOp, form: Form, machine: ProcessorModel) -> Plan:
        return Plan.of(self, kernel, form, 0.0)

    def build(self, kernel: KernelOp, plan: Plan, name: str, aliases: Mapping[int, int]) -> list[Launch]:
        raise LightNetError(f"{kernel.name} of a view has maps of several layouts: run layout again")


def _between_blocks(op: Concat | Slice, lanes: int) -> bool:
    """Return whether an op cuts between blocks only."""
    if isinstance(op, Slice):
        end = op.start + op.len
        return op.start % lanes == 0 and (end % lanes == 0 or end == op.operand_specs[0].dims[1])
    return all(s.len for s in op.operand_specs) and all(s.dims[1] % lanes == 0 for s in op.operand_specs[:-1])


VIEWS = Views()
