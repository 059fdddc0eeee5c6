"""A generator of kernels of one's own, in a file of one's own: pictures are cut on maps in
blocks of channels, as they lie.

ln-opt --load examples/my_kernel.py --pass=@cpu examples/my_kernel.mlir
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import IntegerAttr, i64
from xdsl.ir import SSAValue

from lightnet.backends.builder import Index
from lightnet.backends.cpu.blocked.base import NO_HALO, BlockedGenerator, ProcessorModel, blocks_of, lanes_of, read_rate
from lightnet.backends.cpu.blocked.forms import epilogue_form
from lightnet.backends.cpu.blocked.kernel import BlockedKernel, MapTile
from lightnet.backends.generator import Plan
from lightnet.backends.launches import Launch
from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.move import Slice
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import byte_size
from lightnet.ir.locations import loc_of
from lightnet.ir.op import LnOp
from lightnet.ir.target import Form


class Crop(BlockedGenerator):
    """A slice of the rows or the columns of a map [N, C, H, W] of f32, and elementwise ops on what is left."""

    alg = "crop"

    def form(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], machine: ProcessorModel) -> Form | None:
        if not ops or not isinstance(ops[0], Slice) or ops[0].axis not in (2, 3):
            return None
        return epilogue_form(ops[0], ops[1:], yielded, {ops[0].src: NO_HALO})

    def plan(self, kernel: KernelOp, form: Form, machine: ProcessorModel) -> Plan:
        """Of its choices `pixels`: how many pixels of a row are in registers at once."""
        pixels = kernel.attributes.get("pixels", IntegerAttr(min(8, machine.registers // 4), i64))
        if not isinstance(pixels, IntegerAttr) or not 1 <= pixels.value.data <= 16:
            raise LightNetError(
                f"pixels = {pixels}: 1 to 16 are in registers at once", loc_of(kernel), label="crop.pixels"
            )
        size = 2 * byte_size(kernel.results[0].type)
        time = size / read_rate(machine, size)
        return Plan.of(self, kernel, form, time, schedule=pixels.value.data, choices={"pixels": pixels})

    def build(self, kernel: KernelOp, plan: Plan, name: str, aliases: Mapping[int, int]) -> list[Launch]:
        return [CropKernel(kernel, name, lanes_of(kernel), aliases).build(plan.schedule)]


class CropKernel(BlockedKernel):
    """Builds the kernel function. A block of the grid is one picture in one block of channels."""

    def build(self, pixels: int) -> Launch:
        b, spec = self.b, self.anchor.result_specs[0]
        pictures, channels, height, width = spec.dims
        pixels = min(pixels, width)
        grid = (pictures, blocks_of(channels, self.lanes))
        with b.loop(b.lo, b.hi) as number:
            n, block = self.coordinates(number.iv, grid, "n block")
            with b.loop(0, height) as y:
                with b.loop(0, width - width % pixels, pixels) as x:
                    self.tile(MapTile(n, block, y.iv, x.iv, (1, pixels, 1, self.lanes), self.used))
                if rest := width % pixels:
                    self.tile(MapTile(n, block, y.iv, width - rest, (1, rest, 1, self.lanes), self.used))
            self.zero_halos(n, block, 1, 0, height)
        return self.done(grid[0] * grid[1])

    def tile(self, tile: MapTile) -> None:
        """Some pixels of a row: read where they lie in the uncut map, run the epilogue, store."""
        b, source = self.b, self.anchor.src
        top, left = (self.anchor.start, 0) if self.anchor.axis == 2 else (0, self.anchor.start)
        where: list[Index] = self.at(source, tile.n, tile.block, b.add(tile.y, top), b.add(tile.x, left))
        self.finish(tile, b.tile_load(self.inputs[source], where, [2, 3, 1, 4], tile.shape))


CROP = Crop()
