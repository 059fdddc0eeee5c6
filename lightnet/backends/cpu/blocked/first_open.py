"""The first convolution of a network, on pictures whose height or width a call decides.

The grid is pictures x bands of rows x pieces of their columns, of a size that does not depend on the picture: a block
copies the part of the picture that it reads, zeros where that lies outside, and computes it in tiles of one row, as
open maps have them. Imports the kernel of static pictures.
"""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects import arith
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import SSAValue

from lightnet.backends.builder import Index, flat_index
from lightnet.backends.cpu.blocked.base import blocks_of, lanes_of
from lightnet.backends.cpu.blocked.first import FirstKernel
from lightnet.backends.cpu.blocked.first_model import FirstConvTile, staged_bytes, staged_dims
from lightnet.backends.cpu.blocked.kernel import BlockedKernel, MapTile
from lightnet.backends.launches import Launch
from lightnet.ir.kernel import KernelOp
from lightnet.ir.types import vector_type_of
from lightnet.ir.windows import Axis
from lightnet.runtime.dims import Size


class OpenFirstKernel(FirstKernel):
    """Builds one kernel function. `shape` has the columns of a piece."""

    def __init__(self, kernel: KernelOp, shape: FirstConvTile, name: str, aliases: Mapping[int, int]):
        self.shape, conv = shape, kernel.ops[0]
        BlockedKernel.__init__(
            self, kernel, name, lanes_of(kernel), aliases, staged_bytes(conv, shape.band, shape.piece)
        )
        self.pictures, self.channels, self.height, self.width = conv.result_specs[0].dims
        self.staged_dims = staged_dims(conv, shape.band, shape.piece)
        self.direct, self.grey = False, self.staged_dims[0] == 1
        self.staged = self.b.view(self.scratch, 0, MemRefType(self.element, self.staged_dims), name="staged")
        self.y, self.x = Axis.of(conv, 0), Axis.of(conv, 1)

    def build(self) -> Launch:
        b, shape = self.b, self.shape
        bands: Size = -(-self.height // shape.band)
        pieces: Size = -(-self.width // shape.piece)
        blocks = blocks_of(self.channels, self.lanes)
        with b.loop(b.lo, b.hi, name="number") as number:
            n, band, piece = self.coordinates(number.iv, (self.pictures, bands, pieces), "n band piece")
            b.location = self.anchor.location
            first, self.left = b.mul(band, shape.band), b.mul(piece, shape.piece)
            last = b.op(arith.MinSIOp, b.add(first, shape.band), b.index(self.height))
            end = b.op(arith.MinSIOp, b.add(self.left, shape.piece), b.index(self.width))
            self.stage(n, first)
            with b.loop(0, blocks, shape.vectors, name="block") as block, b.loop(first, last, name="y") as y:

                def tile(x: Index, columns: int, block: Index = block.iv, y: Index = y.iv) -> None:
                    self.tile(MapTile(n, block, y, x, (1, columns, shape.vectors, self.lanes), self.used), first)

                self.across_open(end, shape.columns, tile, self.left)
            with self.only(piece, 0):
                self.zero_halos(n, 0, blocks, first, last)
        return self.done(self.pictures * bands * pieces)

    # -- staging

    def stage(self, n: Index, first: Index) -> None:
        """Copy what output rows from `first` on read for columns from `left` on, zeros around it."""
        b, (channels, rows, columns) = self.b, self.staged_dims
        height, width = self.y.size, self.x.size
        top, left = (b.add(b.mul(at, a.stride), -a.before) for at, a in ((first, self.y), (self.left, self.x)))
        begin = b.op(arith.MaxSIOp, b.op(arith.SubiOp, b.index(0), b.index(left)), b.index(0))
        stop = b.op(arith.MinSIOp, b.op(arith.SubiOp, b.index(width), b.index(left)), b.index(columns))
        picture = self.inputs[self.anchor.operands[0]]
        with b.loop(0, rows, name="row") as row:
            source = b.add(top, row.iv)
            inside = b.op(arith.AndIOp, b.cmpi("sge", source, b.index(0)), b.cmpi("slt", source, b.index(height)))
            last = b.select(inside, stop, begin)  # nothing of a row outside
            with b.loop(0, channels, name="c") as c:
                self.fill(c.iv, row.iv, 0, columns)
                with b.loop(begin, last, self.lanes, name="x") as x:
                    count = b.op(arith.MinSIOp, b.op(arith.SubiOp, last, x.iv), b.index(self.lanes))
                    at = flat_index(b, (self.pictures, channels, height, width), [n, c.iv, source, b.add(left, x.iv)])
                    pixels = b.tile_load(picture, [at], [0], (self.lanes,), lanes=count)
                    b.tile_store(pixels, self.staged, [c.iv, row.iv, x.iv], [2], lanes=count)

    # -- computing

    def tile(self, tile: MapTile, first: Index) -> None:
        b, conv, shape = self.b, self.anchor, self.shape
        group = b.divmod(tile.block, shape.vectors)[0] if shape.vectors > 1 else tile.block
        row = b.mul(b.op(arith.SubiOp, b.index(tile.y), b.index(first)), conv.stride[0])
        column = b.mul(b.op(arith.SubiOp, b.index(tile.x), b.index(self.left)), conv.stride[1])
        sums = self.repeated(conv.operands[2], tile)
        with b.loop(0, 1 if self.grey else conv.size[0], carry=[sums], name="r") as r:
            with b.loop(0, conv.size[1], carry=r.args, name="q") as q:
                at = [b.add(row, b.mul(r.iv, conv.dilation[0])), b.add(column, b.mul(q.iv, conv.dilation[1]))]
                q.yields(b.fma(self.pixels(tile, at), self.taps(group, (r.iv, q.iv), sums), q.args[0]))
            r.yields(*q.results)
        self.finish_blocks(tile, r.results[0])

    def taps(self, group: Index, tap: tuple[Index, Index], sums: SSAValue) -> SSAValue:
        """The weights under one tap for these sums."""
        inner = vector_type_of(sums).get_shape()[2:]
        depth, walked = (self.anchor.size[0], 2) if self.grey else (self.staged_dims[0], 1)
        dims, steps = [walked, *(4 for _ in inner)], [1, self.lanes, *(1 for _ in inner[1:])]
        weight = self.inputs[self.anchor.operands[1]]
        return self.b.tile_load(weight, [group, 0, *tap, 0], dims, (depth, *inner), steps=steps)
