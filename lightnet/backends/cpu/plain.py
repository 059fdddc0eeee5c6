"""The generators of kernels on row-major tensors: register tiles (`tiled.py`, `gemm.py`), and the loops of ops'
definitions, which take all.

Both are rows of the table of generators like those of blocked maps. Imports the base of generators.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from types import ModuleType

from xdsl.dialects.builtin import IntegerAttr, i64
from xdsl.ir import SSAValue

from lightnet.backends import kernel_loops
from lightnet.backends.cpu import gemm, tiled
from lightnet.backends.cpu.blocked.base import Generator, Machine, chosen_lanes
from lightnet.backends.generator import Plan
from lightnet.backends.launches import Argument, Launch
from lightnet.dialects.ln.conv import Conv2d, Deconv2d
from lightnet.ir.kernel import KernelOp
from lightnet.ir.op import LnOp
from lightnet.ir.target import Form
from lightnet.runtime.threads import MAX_THREADS

#: Share of the peak that kernels on plain maps reach: convolutions, those that sum over few channels, and the rest.
CONVOLUTION, SHALLOW, OTHER = 0.6, 0.08, 0.03
#: Share of the rate of memory at which a convolution with one pixel reads its weights, row by row.
ROWS = 0.6
PLAIN = Form({}, plain_results=True)


class Plain(Generator):
    """A generator of kernels on row-major tensors."""

    on_maps = False


class Tiles(Plain):
    """A window or a product on register tiles, with an epilogue. `make` is the module that builds it."""

    alg = "direct"

    def __init__(self, make: ModuleType):
        self.make = make

    def form(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], machine: Machine) -> Form | None:
        return PLAIN if self.make.accepts(ops, yielded) else None

    def plan(self, kernel: KernelOp, form: Form, machine: Machine) -> Plan:
        lanes = chosen_lanes(kernel) or machine.lanes
        return Plan.of(
            self, kernel, form, time_of(kernel.ops, machine), lanes, choices={"lanes": IntegerAttr(lanes, i64)},
            scratch_bytes=self.make.workspace_bytes(kernel, lanes), blocks=self.make.grid(kernel, lanes),
        )  # fmt: skip

    def build(self, kernel: KernelOp, plan: Plan, name: str, aliases: Mapping[int, int]) -> list[Launch]:
        function, grid = self.make.build(kernel, name, plan.schedule, dict(aliases))
        args = [Argument("operand", i) for i in range(len(kernel.operands))]
        args += [Argument("result", i) for i in range(len(kernel.results)) if i not in aliases]
        if plan.scratch_bytes:
            args.append(Argument("scratch", 0))
        return [Launch(function, grid, tuple(args))]


class Loops(Generator):
    """Any body, from an op's own loop-level builder (sorts) or what ops' definitions say: these run on tensors in any
    layout. On maps it is asked for where nothing would be on register tiles if it were not."""

    alg = "loops"
    #: It is asked where no other takes a kernel, or by name.
    last = True

    def form(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], machine: Machine) -> Form | None:
        return PLAIN

    def takes(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], machine: Machine) -> Sequence[Form]:
        maps = map_form(ops, yielded)
        return (PLAIN,) if maps is None or tiles_of(ops, yielded) is not None else (maps, PLAIN)

    def plan(self, kernel: KernelOp, form: Form, machine: Machine) -> Plan:
        blocks = 1 if kernel_loops.builder_op(kernel) is not None else MAX_THREADS
        time = time_of(kernel.ops, machine)
        if form is not PLAIN:
            time *= ALONG if follows_lanes(kernel, machine.lanes) else ACROSS
        return Plan.of(self, kernel, form, time, blocks=blocks)

    def completed(self, kernel: KernelOp, plan: Plan) -> Plan:
        return replace(plan, workspace_bytes=kernel_loops.workspace_bytes(kernel))

    def build(self, kernel: KernelOp, plan: Plan, name: str, aliases: Mapping[int, int]) -> list[Launch]:
        return kernel_loops.generate(kernel, name, aliases)


def time_of(ops: Sequence[LnOp], machine: Machine) -> float:
    """Nanoseconds of a body on row-major tensors, very roughly."""
    anchor = ops[0]
    size = 4 * sum(s.len for s in (*anchor.operand_specs, *anchor.result_specs))
    share, work = OTHER, sum(op.flops() for op in ops)
    if isinstance(anchor, Conv2d | Deconv2d):
        depth = prod(anchor.operand_specs[1].dims[1:])
        share = CONVOLUTION if anchor.operand_specs[1].dims[1] > 1 else SHALLOW
        work += 2 * depth * anchor.result_specs[0].len
    pixel = isinstance(anchor, Conv2d) and anchor.result_specs[0].dims[2:] == (1, 1)
    rate = machine.l3_bytes * (ROWS if pixel else 1)
    return max(work / (share * machine.flops), size / rate)


WINDOWS, PRODUCTS, LOOPS = Tiles(tiled), Tiles(gemm), Loops()


def tiles_of(ops: Sequence[LnOp], yielded: Sequence[SSAValue]) -> Tiles | None:
    """The generator on register tiles that takes a body."""
    return next((g for g in (WINDOWS, PRODUCTS) if g.make.accepts(ops, yielded)), None)
