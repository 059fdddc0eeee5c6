"""A generator of kernels for cuda of one's own, in a file of one's own: matrices are turned over through shared memory.

ln-opt --load examples/my_cuda_kernel.py --pass=@cuda examples/my_cuda_kernel.mlir
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import IntegerAttr, i64
from xdsl.ir import SSAValue

from lightnet.backends.cuda.base import SimtGenerator, memory_time
from lightnet.backends.cuda.device import DeviceModel
from lightnet.backends.cuda.kernel import KernelFunction
from lightnet.backends.cuda.simt import SimtLaunch
from lightnet.backends.generator import Plan
from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.move import Transpose
from lightnet.ir.kernel import KernelOp
from lightnet.ir.locations import loc_of
from lightnet.ir.op import LnOp
from lightnet.ir.target import Form
from lightnet.ir.types import spec_of, storage_type

#: Rows of a tile that the threads of a block move at once.
ROWS = 8


class Turn(SimtGenerator):
    """`transpose` of a row-major matrix of f32 or i32, alone in its kernel. In plain loops, threads that are neighbours
    would read a column."""

    alg = "turn"

    def takes(
        self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], device: DeviceModel | None = None
    ) -> Sequence[Form]:
        if len(ops) != 1 or not isinstance(ops[0], Transpose) or tuple(ops[0].axes) != (1, 0):
            return []
        spec = ops[0].operand_specs[0]
        return [Form({}, plain_results=True)] if spec.dtype.name in ("f32", "i32") and spec.len else []

    def plan(self, kernel: KernelOp, form: Form, device: DeviceModel) -> Plan:
        """Of its choices `side`: rows and columns of the tile that a block moves."""
        side = kernel.attributes.get("side", IntegerAttr(32, i64))
        if not isinstance(side, IntegerAttr) or side.value.data not in (16, 32):
            raise LightNetError(f"side = {side}: a tile has 16 or 32 rows", loc_of(kernel), label="turn.side")
        time = memory_time(2 * spec_of(kernel.results[0].type).nbytes, device)
        return Plan.of(self, kernel, form, time, schedule=side.value.data, choices={"side": side})

    def build(self, kernel: KernelOp, plan: Plan, name: str, aliases: Mapping[int, int]) -> list[SimtLaunch]:
        side = plan.schedule
        spec = kernel.ops[0].operand_specs[0]
        height, width = spec.dims
        function = KernelFunction(kernel, name, (side, ROWS, 1), aliases)
        b, source, target = function.b, function.inputs[kernel.ops[0].src], function.outputs[0]
        tiles = -(-width // side)
        down, across = b.divmod(b.block_id(), tiles)
        x, y = b.thread_id("x"), b.thread_id("y")
        tile = b.shared([side, side + 1], storage_type(spec.dtype))  # columns of it lie in different banks
        for k in range(0, side, ROWS):
            row, column = b.add(b.mul(down, side), b.add(y, k)), b.add(b.mul(across, side), x)
            with b.when(b.both(b.below(row, height), b.below(column, width))):
                b.store(b.load(source, [row, column]), tile, [b.add(y, k), x])
        b.barrier()
        for k in range(0, side, ROWS):
            row, column = b.add(b.mul(down, side), x), b.add(b.mul(across, side), b.add(y, k))
            with b.when(b.both(b.below(row, height), b.below(column, width))):
                b.store(b.load(tile, [x, b.add(y, k)]), target, [column, row])
        return [function.launch((-(-height // side) * tiles, 1, 1))]


TURN = Turn()
