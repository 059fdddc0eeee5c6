"""``loops``: any kernel, from the definitions of its ops or their loop-level builder, a thread for each point of the independent loops.

    func.func @relu_0(%lo, %hi, %x: …, %y: …) {…}      func.func @relu_0(%x: …, %y: …) attributes {cuda.block = …} {
                                                    →      %i = block_id · 128 + thread_id
                                                           scf.if (%i < grid) { func.call @relu_0_block(%i, %i + 1, %x, %y) }

Imports the loops and the builder of threads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import MemRefType, StringAttr
from xdsl.dialects.func import CallOp
from xdsl.ir import SSAValue

from lightnet.backends import kernel_loops
from lightnet.backends.cuda.base import Generator
from lightnet.backends.cuda.device import Device
from lightnet.backends.cuda.simt import Simt, SimtLaunch
from lightnet.backends.launches import Launch
from lightnet.ir.kernel import KernelOp
from lightnet.ir.op import LnOp
from lightnet.ir.target import Form

#: Threads of a block of the kernels here: four warps, which no registers that a thread may have keep from running.
THREADS = 128
#: Shares of the device's rates that such kernels reach: of the cores, and of memory, which threads walk as it comes.
CORES, MEMORY = 0.05, 0.3
#: Nanoseconds that one thread takes for an element, where it does all of a kernel.
ALONE = 50.0


class Loops(Generator):
    """Takes any body."""

    alg = "loops"

    def takes(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue]) -> Sequence[Form]:
        return [Form({}, plain_results=True)]

    def cost(self, kernel: KernelOp, form: Form, device: Device) -> float:
        specs = [s for op in kernel.ops for s in (*op.operand_specs, *op.result_specs)]
        if kernel_loops.builder_op(kernel) is not None:
            return device.launch + ALONE * sum(s.len for s in specs)
        time = sum(op.flops() for op in kernel.ops) / (CORES * device.flops)
        return device.launch + max(time, sum(s.nbytes for s in specs) / (MEMORY * device.bytes))

    def workspace_bytes(self, kernel: KernelOp) -> int:
        return kernel_loops.workspace_bytes(kernel, None)

    def build(self, kernel: KernelOp, name: str, aliases: Mapping[int, int]) -> list[SimtLaunch]:
        return [simt(launch) for launch in kernel_loops.generate(kernel, name, aliases, None) if launch.grid]


def simt(launch: Launch) -> SimtLaunch:
    """A loop function as a kernel, with one thread for each of its blocks."""
    inner, n = launch.function, launch.grid
    name, threads = inner.sym_name.data, min(THREADS, -(-n // 32) * 32)
    inner.sym_name, inner.sym_visibility = StringAttr(f"{name}_block"), StringAttr("private")
    block = (threads, 1, 1)
    b = Simt.thread(name, [t for t in inner.body.block.arg_types if isinstance(t, MemRefType)], block)
    number = b.add(b.mul(b.block_id(), threads), b.thread_id())
    with b.when(b.below(number, n)):
        b.append(CallOp(f"{name}_block", [number, b.add(number, 1), *b.args], []))
    return SimtLaunch(b.finish(), (-(-n // threads), 1, 1), block, launch.args, (inner,))


LOOPS = Loops()
