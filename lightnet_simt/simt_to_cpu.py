"""`simt-to-cpu`: SIMT kernels become loop functions of the CPU, and their launches the CPU's (level 4 of cuda → level 4
of cpu).

What the threads of a block do between two barriers becomes a loop over them, what they keep from one to the next stands
in scratch memory, as shared memory does (`lightnet_simt/loops.py`). So a network that is compiled for cuda runs
natively where there is no device, at its full size. It shows what kernels compute, not whether their threads wait for
each other: the PTX interpreter does that.

    func.func @k(%x: …) attributes {cuda.block = …} {
      store; cuda.barrier; load }
    cuda.launch @k grid [3, 2, 1] block […] [arena+0]
    →
    func.func @k(%lo: index, %hi: index, %x: …, %scratch: memref<1024xi8>) {
      scf.for %block = %lo to %hi { for threads: store; for threads: load } }
    tile.launch @k grid 6 threads 2 scratch 1024 [arena+0, arena+4096]
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp

from lightnet.backends.cuda.arch import ARCH_ATTRIBUTE, arch_of
from lightnet.backends.cuda.simt import GridSizes
from lightnet.diagnostics import LightNetError
from lightnet.dialects.cuda_launch import CudaLaunchOp, cuda_kernels, cuda_launches, verify_cuda
from lightnet.dialects.launch import LaunchOp, kernel_symbols, kernels, memref_bytes
from lightnet.ir import budget
from lightnet.ir.locations import loc_of
from lightnet.ir.memory import ARENA, memory_of, set_memory
from lightnet.ir.passes import LnPass
from lightnet.ir.place import PlaceAttr
from lightnet.runtime.arrays import align_up
from lightnet.runtime.dims import Size, dim_max, greatest
from lightnet_simt.loops import simt_loops_of
from lightnet_simt.warpgroups import Helpers


@dataclass(frozen=True)
class SimtToCpuPass(LnPass):
    """Turn kernels of threads into loops of the CPU, and their launches into its own.

    `threads` is how many threads of the CPU may share the blocks of a launch.
    """

    name = "simt-to-cpu"
    level = "loops"
    threads: int = 1

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        arch = arch_of(op)
        if arch is None:
            raise LightNetError("the module has no kernels for cuda: run lower-cuda", loc_of(op), "simt-to-cpu.arch")
        verify_cuda(op, arch)
        _Conversion(op, self.threads).run()
        del op.attributes[ARCH_ATTRIBUTE]


class _Conversion:
    """One module, converted in place. A kernel that is launched on different grids becomes a function for each."""

    def __init__(self, module: ModuleOp, threads: int):
        self.module, self.threads = module, threads
        self.kernels = cuda_kernels(module)
        self.helpers = Helpers({"main", *kernels(module)})
        self.made: dict[tuple[str, GridSizes], tuple[func.FuncOp, int]] = {}

    def run(self) -> None:
        lines = cuda_launches(self.module)
        for line in lines:
            self.function(line.callee.string_value(), line.grid_sizes)
        for name in self.kernels.keys() - {name for name, _ in self.made}:
            self.function(name, (1, 1, 1))
        size = self.scratch_size(lines)
        place = PlaceAttr(ARENA, self.arena_end(lines)) if size else None
        for line in lines:
            self.replace(line, place)
        if place is not None:
            set_memory(self.module, {**memory_of(self.module), ARENA: place.offset.data + size})
        self.put_in_place()

    def function(self, name: str, grid: GridSizes) -> tuple[func.FuncOp, int]:
        """The loop function of a kernel for a grid, and its bytes of scratch."""
        if (name, grid) not in self.made:
            budget.check(what=f"@{name}")
            kernel = self.kernels[name]
            is_first = all(of != name for of, _ in self.made)
            try:
                fresh = name if is_first else self.helpers.fresh(name)
                self.made[name, grid] = simt_loops_of(kernel, grid, fresh, self.helpers)
            except LightNetError as error:
                error.notes.append((None, f"while turning @{name} into loops"))
                raise error.at(loc_of(kernel)) from None
        return self.made[name, grid]

    def replace(self, line: CudaLaunchOp, scratch: PlaceAttr | None) -> None:
        grid = line.grid_sizes
        function, size = self.function(line.callee.string_value(), grid)
        places = [*line.args, scratch] if size and scratch is not None else [*line.args]
        blocks = grid[0] * grid[1] * grid[2]
        made = LaunchOp(function.sym_name.data, blocks, places, threads=self.used(blocks), scratch=align_up(size))
        made.location = line.location
        made.attributes.update(line.attributes)
        block = line.parent_block()
        assert block is not None
        block.insert_op_before(made, line)
        block.erase_op(line)

    def used(self, blocks: Size) -> int:
        return max(1, min(self.threads, greatest(blocks)))

    def scratch_size(self, lines: list[CudaLaunchOp]) -> int:
        """Bytes of scratch of the launch that wants most of it, for one thread: launches run one after the other."""
        sizes = (self.function(line.callee.string_value(), line.grid_sizes)[1] for line in lines)
        return align_up(max(sizes, default=0))

    def arena_end(self, lines: list[CudaLaunchOp]) -> Size:
        """The first byte behind all that stands in the arena, aligned."""
        end: Size = memory_of(self.module).get(ARENA, 0)
        for line in lines:
            kernel = self.kernels[line.callee.string_value()]
            types = kernel.body.block.arg_types[len(kernel_symbols(kernel)) :]
            for place, type in zip(line.args, types):
                if place.space.data == ARENA:
                    end = dim_max(end, place.offset.data + memref_bytes(type))
        return align_up(end)

    def put_in_place(self) -> None:
        """Loop functions where their kernels stood, and what they call in front of all."""
        for name, kernel in self.kernels.items():
            block = kernel.parent_block()
            assert block is not None
            block.insert_ops_before([made for (of, _), (made, _) in self.made.items() if of == name], kernel)
            block.erase_op(kernel)
        first = self.module.body.block.first_op
        helpers = list(self.helpers.functions.values())
        if first is not None and helpers:
            self.module.body.block.insert_ops_before(helpers, first)
