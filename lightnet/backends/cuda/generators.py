"""Kernel regions → SIMT kernels. A loop function over a grid of blocks becomes a kernel in which each thread runs one of these blocks.

    func.func @relu_0(%lo, %hi, %x: …, %y: …) {…}      func.func @relu_0(%x: …, %y: …) attributes {cuda.block = …} {
                                                    →      %i = block_id · 128 + thread_id
                                                           scf.if (%i < grid) { func.call @relu_0_block(%i, %i + 1, %x, %y) }

Imports the builder, the loops and the `cuda` dialect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.dialects.builtin import DenseArrayBase, FunctionType, MemRefType, StringAttr, i32
from xdsl.dialects.func import CallOp, FuncOp
from xdsl.ir import Block, Region

from lightnet.backends import kernel_loops
from lightnet.backends.builder import Builder
from lightnet.backends.launches import Argument, Launch
from lightnet.dialects.cuda_checks import BLOCK
from lightnet.dialects.cuda_simt import BlockIdOp, ThreadIdOp
from lightnet.ir.kernel import KernelOp

#: Threads of a block of the kernels here: four warps, which no registers that a thread may have keep from running.
THREADS = 128
Sizes = tuple[int, int, int]


@dataclass(frozen=True)
class SimtLaunch:
    """One kernel that is launched: its function, the sizes of its grid and of its blocks, what its memrefs are, and the functions that
    it calls."""

    function: FuncOp
    grid: Sizes
    block: Sizes
    args: tuple[Argument, ...]
    helpers: tuple[FuncOp, ...] = ()

    @property
    def functions(self) -> tuple[FuncOp, ...]:
        """The functions that the launch adds to a module."""
        return (*self.helpers, self.function)


def workspace_bytes(kernel: KernelOp) -> int:
    """Bytes of workspace that the launches of a kernel share, decided before memory is planned."""
    return kernel_loops.workspace_bytes(kernel, None)


def generate(kernel: KernelOp, name: str, aliases: Mapping[int, int]) -> list[SimtLaunch]:
    """The launches of a kernel; `aliases` maps a result to the operand whose memory it takes."""
    return [simt(launch) for launch in kernel_loops.generate(kernel, name, aliases, None) if launch.grid]


def simt(launch: Launch) -> SimtLaunch:
    """A loop function as a kernel, with one thread for each of its blocks."""
    inner, n = launch.function, launch.grid
    name, threads = inner.sym_name.data, min(THREADS, -(-n // 32) * 32)
    inner.sym_name, inner.sym_visibility = StringAttr(f"{name}_block"), StringAttr("private")
    types = [t for t in inner.body.block.arg_types if isinstance(t, MemRefType)]
    kernel = FuncOp(name, FunctionType.from_lists(types, []), Region(Block(arg_types=types)))
    block = (threads, 1, 1)
    kernel.attributes[BLOCK] = DenseArrayBase.from_list(i32, block)
    b = Builder(kernel)
    number = b.add(b.mul(b.append(BlockIdOp("x")).results[0], threads), b.append(ThreadIdOp("x")).results[0])
    with b.when(b.cmpi("slt", number, b.index(n))):
        b.append(CallOp(f"{name}_block", [number, b.add(number, 1), *kernel.body.block.args], []))
    return SimtLaunch(b.finish(), (-(-n // threads), 1, 1), block, launch.args, (inner,))
