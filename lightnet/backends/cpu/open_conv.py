"""Convolutions over maps whose height or width a call decides, with an epilogue.

A row of the result is a matrix product: the weights, a row for each output channel, by the windows along the row, a
column for each. The block grid is pictures x rows x panels of columns (`open_gemm.py`, whose tiles these are). A block
copies the windows of its panel first, zeros where they reach into the padding, so that all output channels read what
lies beside each other. Imports the products whose extents are open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from xdsl.dialects import arith
from xdsl.ir import SSAValue

from lightnet.backends.builder import Index
from lightnet.backends.cpu.open_gemm import MOST_PANEL, VECTORS, OpenProducts, OpenTile, reads_rows, tile_sizes
from lightnet.backends.cpu.tile_kernel import TileKernel
from lightnet.backends.expressions import has_tile_epilogue
from lightnet.backends.launches import Launch
from lightnet.backends.open_rows import open_rows_of
from lightnet.dialects.ln.conv import Conv2d
from lightnet.ir.kernel import KernelOp
from lightnet.ir.op import LnOp
from lightnet.ir.refusal import Refusal, begins_otherwise
from lightnet.ir.windows import Axis
from lightnet.runtime.dims import Dim, Size, greatest, typical
from lightnet.runtime.threads import MAX_THREADS

__all__ = ["accepts", "build", "grid", "readable", "workspace_bytes"]


def readable(op: LnOp) -> tuple[int, ...]:
    """The result's dimensions along which an epilogue may read smaller tensors: all."""
    return tuple(range(op.result_specs[0].ndim))


def accepts(ops: Sequence[LnOp], yielded: Sequence[SSAValue] = ()) -> bool | Refusal:
    """Return whether the body is one convolution of floats, of one group, on maps that are open and whose weights are
    not, followed by elementwise ops on its result, which make all that is `yielded`."""
    if not ops or not isinstance(ops[0], Conv2d) or ops[0].group != 1:
        return begins_otherwise(ops, "a conv2d of one group")
    anchor = ops[0]
    (src, weight, _), (dst,) = anchor.operand_specs, anchor.result_specs
    if not any(isinstance(d, Dim) for d in (*src.dims[2:], *dst.dims[2:])) or dst.dtype.name not in ("f32", "f64"):
        return Refusal("no call decides a height or width of it, or it is of {}, not of f32 or f64", dst.dtype)
    if weight.open_dims or greatest(dst.len) == 0 or weight.len == 0 or open_rows_of([anchor]) is not None:
        return Refusal("calls decide its weights, or its batch alone, or there is nothing in it")
    if any(isinstance(p, Dim) or p < 0 for p in anchor.derived_values()["pad"]):
        return Refusal("its padding is negative, or for calls to decide")
    if prod(weight.dims[1:]) * 2 * VECTORS * 16 * 4 > MOST_PANEL:  # of vectors of 64 bytes
        return Refusal("a window of {} elements takes a panel of more than {} bytes", prod(weight.dims[1:]), MOST_PANEL)
    if not (found := has_tile_epilogue(ops, yielded, readable(anchor))):
        return found
    return all(map(reads_rows, ops[1:])) or Refusal("its epilogue reads what is no row")


def _tile_of(kernel: KernelOp, width: int) -> OpenTile:
    """The tile for the typical row."""
    anchor = kernel.ops[0]
    spec, itemsize = anchor.result_specs[0], anchor.result_specs[0].dtype.size
    rows, vectors, lanes = tile_sizes(spec.dims[1], typical(spec.dims[3]), width, itemsize)
    return OpenTile(rows, vectors, lanes, prod(anchor.operand_specs[1].dims[1:]) * vectors * lanes * itemsize)


def workspace_bytes(kernel: KernelOp, width: int) -> int:
    """Bytes of the copied windows of one block."""
    return _tile_of(kernel, width).panel_bytes


def grid(kernel: KernelOp, width: int) -> int:
    """The most blocks that the kernel has, as far as threads are for."""
    return min(greatest(_grid(kernel, _tile_of(kernel, width))), MAX_THREADS)


def _grid(kernel: KernelOp, tile: OpenTile) -> Size:
    n, _, height, width = kernel.ops[0].result_specs[0].dims
    return n * height * -(-width // tile.columns)


def build(kernel: KernelOp, name: str, width: int, aliases: Mapping[int, int]) -> Launch:
    """The kernel function. `aliases` maps a result to the operand whose memory it takes."""
    return _OpenConv(kernel, name, _tile_of(kernel, width), aliases).build()


class _OpenConv(OpenProducts):
    """Builds one kernel function: [outputs, windows' elements] x [windows' elements, columns] for each row."""

    y: Axis
    x: Axis

    def describe(self, kernel: KernelOp) -> None:
        TileKernel.describe(self, kernel)
        anchor = self.anchor
        assert isinstance(anchor, Conv2d)
        self.m, self.n = anchor.result_specs[0].dims[1], anchor.result_specs[0].dims[3]
        self.k = self.pitch = prod(anchor.operand_specs[1].dims[1:])
        self.first = anchor.operands[1]
        self.y, self.x = Axis.of(anchor, 0), Axis.of(anchor, 1)

    def build(self) -> Launch:
        b, height = self.b, self.anchor.result_specs[0].dims[2]
        with b.loop(b.lo, b.hi, name="block") as block:
            rest, panel = b.divmod(block.iv, -(-self.n // self.shape.columns))
            self.picture, self.line = b.divmod(rest, height)
            self.columns_of(b.mul(panel, self.shape.columns))
        return self.done(_grid(self.kernel, self.shape))

    def place(self, row: Index, column: Index) -> list[Index]:
        return [self.picture, row, self.line, column]

    def matrix(self, value: SSAValue) -> SSAValue:
        return self.b.index(0)

    def beginnings(self, rows: Sequence[SSAValue], width: int) -> list[SSAValue]:
        bias = self.inputs[self.anchor.operands[2]]
        return [self.b.tile_load(bias, [row], [0], (width,), steps=[0]) for row in rows]

    def column_panel(self, column: SSAValue, vectors: int, left: SSAValue | None) -> None:
        b, panel, width = self.b, self.panel, vectors * self.shape.lanes
        assert panel is not None
        channels, (taps_y, taps_x) = self.anchor.operand_specs[0].dims[1], (self.y.taps, self.x.taps)
        source, zeros = self.inputs[self.anchor.operands[0]], b.broadcast(b.const(0.0, self.element), (width,))
        pixels = b.index(left if left is not None else width)
        with b.loop(0, channels, name="c") as c, b.loop(0, taps_y, name="r") as r, b.loop(0, taps_x, name="q") as q:
            y = self.position(self.y, self.line, r.iv)
            inside = b.op(arith.AndIOp, b.cmpi("sge", y, b.index(0)), b.cmpi("slt", y, b.index(self.y.size)))
            start = self.position(self.x, column, q.iv)
            before = self.steps(b.op(arith.SubiOp, b.index(0), start))  # columns whose pixel is left of the map
            count = b.op(arith.MinSIOp, self.steps(b.op(arith.SubiOp, b.index(self.x.size), start)), pixels)
            count = b.op(arith.MaxSIOp, b.op(arith.SubiOp, count, before), b.index(0))
            count = b.select(inside, count, b.index(0))
            map_row = b.add(b.mul(b.add(b.mul(self.picture, channels), c.iv), self.y.size), y)
            at = b.add(b.mul(map_row, self.x.size), b.add(start, b.mul(before, self.x.stride)))
            k = b.add(b.mul(b.add(b.mul(c.iv, taps_y), r.iv), taps_x), q.iv)
            read = b.tile_load(source, [b.select(inside, b.index(at), b.index(0))], [0], (width,),
                               steps=[self.x.stride], lanes=count)  # fmt: skip
            if left is not None or any(axis.before > 0 or greatest(axis.overhang) > 0 for axis in (self.y, self.x)):
                b.tile_store(zeros, panel, [k, 0], [1])
            b.tile_store(read, panel, [k, before], [1], lanes=count)
        self.tiles(column, width, left, lambda k: b.tile_load(panel, [k, 0], [1], (width,)))

    def position(self, axis: Axis, place: Index, tap: Index) -> SSAValue:
        """The row or column of the map that a tap of a window reads."""
        b = self.b
        found = b.add(b.mul(place, axis.stride), b.mul(tap, axis.dilation))
        return b.op(arith.SubiOp, b.index(found), b.index(axis.before))

    def steps(self, pixels: SSAValue) -> SSAValue:
        """The windows that it takes to pass so many pixels; none for less than none."""
        b, stride = self.b, self.x.stride
        pixels = b.op(arith.MaxSIOp, pixels, b.index(0))
        return pixels if stride == 1 else b.divmod(b.add(pixels, stride - 1), stride)[0]
