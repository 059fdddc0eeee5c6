"""Elementwise ops on blocked maps: residual sums with an activation, batch norm that is left, scales by channel, chains
of these.

Every element is read and written once, so these kernels run as fast as memory does: a tile is some pixels of a row, all
the ops of the body run on it in registers, and a result may take the memory of an operand. Maps without a halo are one
long row a picture and block of channels. Imports the base of blocked kernels and the notation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.ir import SSAValue

from lightnet.backends.builder import Index
from lightnet.backends.cpu.blocked.base import BlockedGenerator, ProcessorModel, blocks_of, read_rate
from lightnet.backends.cpu.blocked.forms import elementwise_form, keeps_zero, weight_layouts
from lightnet.backends.cpu.blocked.kernel import MapTile, RowsKernel
from lightnet.backends.expressions import bind_op
from lightnet.backends.generator import Plan
from lightnet.backends.launches import Launch
from lightnet.ir import bound
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import byte_size
from lightnet.ir.op import LnOp
from lightnet.ir.target import Form
from lightnet.ir.types import spec_of

#: Instructions on a vector that a function of the notation takes, where it is not one.
WEIGHTS = {"exp": 20, "log": 24, "tanh": 28, "erf": 40, "sin": 30, "cos": 30, "pow": 60, "div": 4, "sqrt": 4}
#: Instructions of an unrolled body, at most, and pixels of a tile.
BODY, PIXELS = 240, 8
#: Bytes of a map that one block of the grid covers, about.
BAND = 32 << 10


def operations(ops: Sequence[LnOp]) -> int:
    """Instructions on one vector that the ops take, roughly."""

    def of(node: bound.Node) -> int:
        if not isinstance(node, bound.Apply):
            return 0
        return WEIGHTS.get(node.fn, 1) + sum(of(a) for a in node.args)

    return sum(max(1, of(s.value)) for op in ops for s in bind_op(op).statements)


class Maps(BlockedGenerator):
    """The generator of elementwise bodies on maps [N, C, H, W] of f32; every operand is read at the element that is
    written."""

    alg = "map"

    def form(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], machine: ProcessorModel) -> Form | None:
        if not ops or len(ops[0].results) != 1:
            return None
        form = elementwise_form(ops[0].result_specs[0], ops, yielded, {})
        return form if form is not None and form.maps else None

    def plan(self, kernel: KernelOp, form: Form, machine: ProcessorModel) -> Plan:
        sizes = [byte_size(v.type) for v in (*kernel.operands, *kernel.results)]
        vectors = spec_of(kernel.results[0].type).len / machine.lanes
        compute = 2 * machine.lanes * vectors * operations(kernel.ops) / machine.flops
        time = max(sum(sizes) / read_rate(machine, sum(sizes)), compute)
        weights = weight_layouts(kernel, form, machine.lanes)
        return Plan.of(self, kernel, form, time, weights=weights)

    def build(self, kernel: KernelOp, plan: Plan, name: str, aliases: Mapping[int, int]) -> list[Launch]:
        return [_MapKernel(kernel, name, aliases).build()]


class _MapKernel(RowsKernel):
    """Builds one kernel function. The grid is pictures x blocks of channels x bands of rows."""

    def build(self) -> Launch:
        most = max(1, min(PIXELS, BODY // operations(self.ops)))
        self.pixels = next((p for p in range(most, most // 2, -1) if self.cols % p == 0), min(most, self.cols))
        pictures, blocks = spec_of(self.yielded[0].type).dims[0], blocks_of(self.channels, self.lanes)
        band = max(1, min(self.rows, BAND // (4 * self.cols * self.lanes)))
        partial = self.channels % self.lanes
        used = partial if partial and not keeps_zero(self.ops) else self.lanes

        def block(n: Index, block: Index, first: Index, last: Index) -> None:
            self.by_lanes(block, blocks, used, lambda block, used: self.band(n, block, first, last, used))
            self.zero_halos(n, block, 1, first, last)

        return self.by_bands((pictures, blocks), "n block", self.rows, band, block)

    def band(self, n: Index, block: Index, first: Index, last: Index, used: int) -> None:
        """Rows [first, last) of one block of channels."""
        b, rest = self.b, self.cols % self.pixels
        with b.loop(first, last, name="y") as y:
            with b.loop(0, self.cols - rest, self.pixels, name="x") as x:
                self.tile(MapTile(n, block, y.iv, x.iv, (1, self.pixels, 1, self.lanes), used))
            if rest:
                self.tile(MapTile(n, block, y.iv, self.cols - rest, (1, rest, 1, self.lanes), used))

    def tile(self, tile: MapTile) -> None:
        self.evaluate(tile, {}, self.ops)


MAPS = Maps()
