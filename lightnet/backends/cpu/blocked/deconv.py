"""Transposed convolution on blocked maps, by phases.

Rows of the result that leave one remainder by the stride (a phase) are a convolution of stride 1 with every stride-th
row of the window, and columns likewise, so that nothing is multiplied that is not there. The phases share one body:
which taps a phase has are bounds of loops. A tile is some pixels of one row of one phase. Imports the base of blocked
kernels and the direct one's model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects import arith
from xdsl.ir import SSAValue

from lightnet.backends.builder import Index
from lightnet.backends.cpu.blocked import conv_model as model
from lightnet.backends.cpu.blocked.base import Ends, KernelGenerator, ProcessorModel, blocks_of, choice_ints, lanes_of
from lightnet.backends.cpu.blocked.conv_choices import chosen_conv_tile, shape_for
from lightnet.backends.cpu.blocked.conv_model import ConvTile, Geometry
from lightnet.backends.cpu.blocked.forms import convolution_form, weight_layouts
from lightnet.backends.cpu.blocked.kernel import BlockedKernel, MapTile, summed_channels
from lightnet.backends.generator import Plan
from lightnet.backends.launches import Launch
from lightnet.dialects.ln.conv import Deconv2d
from lightnet.ir.instances import is_open
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import Packed
from lightnet.ir.op import LnOp
from lightnet.ir.refusal import Refusal
from lightnet.ir.target import Form, Halo
from lightnet.ir.types import ParamAttr, vector_type_of
from lightnet.ir.windows import Axis
from lightnet.runtime.dims import dim_min, greatest


class Transposed(KernelGenerator):
    """The generator of `deconv2d` on maps of f32, of one group and without dilation, with an elementwise epilogue."""

    alg, opens = "deconv", True

    def form(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], machine: ProcessorModel) -> Form | Refusal:
        return convolution_form(ops, yielded, Deconv2d, _halo_of)

    def plan(self, kernel: KernelOp, form: Form, machine: ProcessorModel) -> Plan:
        return self._plan(kernel, form, machine, chosen(kernel, machine))

    def opened(self, kernel: KernelOp, ends: Ends, form: Form, machine: ProcessorModel) -> Plan:
        if choice_ints(kernel, "tile") is not None:
            return self._plan(kernel, form, machine, chosen(ends[1], machine))
        geometries = [phases(_deconv_of(k)) for k in (kernel, *ends)]
        return self._plan(kernel, form, machine, shape_for(geometries, machine))

    def _plan(self, kernel: KernelOp, form: Form, machine: ProcessorModel, shape: ConvTile) -> Plan:
        geometry = phases(_deconv_of(kernel))
        moved = model.cache_time(geometry, machine, shape, model.ROWS)
        time = 100 + model.tiles_time(geometry, machine, shape) + model.TRAFFIC * moved
        packed = {kernel.ops[0].operands[1]: Packed("t", shape.vectors * machine.lanes, machine.lanes)}
        choices = {"tile": ParamAttr((shape.rows, shape.columns, shape.vectors, shape.unroll))}
        weights = weight_layouts(kernel, form, machine.lanes, packed)
        return Plan.of(self, kernel, form, time, shape, choices=choices, weights=weights)


def _halo_of(op: Deconv2d) -> Halo | Refusal:
    """The halo of the input; refuses deconvolutions that there is no kernel for."""
    if op.group != 1 or tuple(op.dilation) != (1, 1):
        return Refusal("it has {} groups and dilation {}", op.group, tuple(op.dilation))
    if min(op.derived_values()["pad"]) < 0:
        return Refusal("its padding is negative: there are rows that nothing reaches")
    return 0, halo_columns(op)


def halo_columns(op: Deconv2d) -> int:
    """Columns around the input that taps read: column x of the result takes tap q from column (x + pad - q) /
    stride."""
    pad, stride, size = op.derived_values()["pad"][1], op.stride[1], op.size[1]
    width, last = op.operand_specs[0].dims[3], op.result_specs[0].dims[3] - 1
    before = max((size - 1 - pad) // stride, 0)
    return max(before, greatest((last + pad) // stride - (width - 1)), 0)


def _deconv_of(kernel: KernelOp) -> Deconv2d:
    op = kernel.ops[0]
    assert isinstance(op, Deconv2d)
    return op


def phases(op: Deconv2d) -> Geometry:
    """About what a transposed convolution is as convolutions of stride 1: a picture a phase of columns, rows one after
    the other."""
    (n, c), (_, o, oh, ow) = op.operand_specs[0].dims[:2], op.result_specs[0].dims
    step = op.stride[1]
    width = max(ow // step, 1)
    rows = Axis(oh, -(-op.size[0] // op.stride[0]), positions=oh)
    cols = Axis(width, -(-op.size[1] // step), positions=width)
    return Geometry(rows, cols, n * min(step, ow), 1, c, o)


def chosen(kernel: KernelOp, machine: ProcessorModel) -> ConvTile:
    """The tile: the kernel's choice, which must be of one row and fit (`LightNetError`), or the model's."""
    geometry, given = phases(_deconv_of(kernel)), choice_ints(kernel, "tile")
    if given is not None:
        return chosen_conv_tile(kernel, geometry, machine.lanes, given, 1)
    shapes = [s for s in model.conv_tiles(geometry, machine, 0) if s.rows == 1]
    return min(shapes, key=lambda s: model.tiles_time(geometry, machine, s))


class _Kernel(BlockedKernel):
    """Builds one kernel function. The grid is pictures x bands of rows x vectors of outputs."""

    mixes_channels = True
    anchor: Deconv2d

    def __init__(self, kernel: KernelOp, shape: ConvTile, name: str, aliases: Mapping[int, int]):
        super().__init__(kernel, name, lanes_of(kernel), aliases)
        op = self.anchor
        self.src, self.weight, self.bias = op.operands
        self.shape = shape
        self.pad, self.size, self.stride = op.derived_values()["pad"], op.size, op.stride
        self.channels, self.in_height = op.operand_specs[0].dims[1:3]
        self.pictures, self.outputs, self.height, self.width = op.result_specs[0].dims

    def build(self) -> Launch:
        b, v, step = self.b, self.shape.vectors, self.stride[0]
        groups = blocks_of(self.outputs, self.lanes) // v
        lines = -(-self.height // step)  # of each phase, at most
        extents = (self.pictures, lines, groups)
        with b.loop(b.lo, b.hi, name="block") as block:
            self.n, line, self.group = self.coordinates(block.iv, extents, "n line group")
            self.first = b.mul(self.group, v)
            y0 = b.mul(line, step)
            y1 = b.add(y0, step)
            if self.height % step != 0:
                y1 = b.op(arith.MinSIOp, b.index(y1), b.index(self.height))
            with b.loop(y0, y1, name="y") as y:
                self.row(y.iv)
            self.zero_halos(self.n, self.first, v, y0, y1)
        return self.done(self.pictures * lines * groups)

    def row(self, y: Index) -> None:
        """A row of the result: its phases of columns, each in tiles; the last tile moves back over the one before."""
        b, step, columns = self.b, self.stride[1], self.shape.columns
        top, r0, rows = self.taps(y, 0)
        above = b.op(
            arith.SubiOp, b.index(top), b.index(self.in_height - 1)
        )  # taps from row `top` on upwards: those inside
        first = b.op(arith.MaxSIOp, above, b.index(0))
        last = b.op(arith.MinSIOp, b.index(rows), b.add(top, 1))
        with b.loop(0, dim_min(step, self.width), name="phase") as phase:
            left, q0, taps = self.taps(phase.iv, 1)
            many = b.divmod(b.op(arith.SubiOp, b.index(self.width + step - 1), phase.iv), step)[0]
            window = (top, first, last, r0), (left, taps, q0)
            if is_open([self.src]):
                self.across_open(many, columns, lambda x, columns: self.tile(y, phase.iv, x, columns, window))
            elif self.overlaps:
                with b.loop(0, many, columns, name="x") as x:
                    at = b.op(arith.MinSIOp, x.iv, b.op(arith.SubiOp, many, b.index(columns)))
                    self.tile(y, phase.iv, at, columns, window)
            else:
                whole = b.mul(b.divmod(many, columns)[0], columns)
                with b.loop(0, whole, columns, name="x") as x:
                    self.tile(y, phase.iv, x.iv, columns, window)
                with b.loop(whole, many, name="x") as x:
                    self.tile(y, phase.iv, x.iv, 1, window)

    def taps(self, position: Index, axis: int) -> tuple[Index, Index, Index]:
        """The taps of a row (or column) of the result: tap k < count is r0 + k * stride, and reads input `at` - k. All
        three."""
        b, step = self.b, self.stride[axis]
        at, r0 = b.divmod(b.add(position, self.pad[axis]), step)
        count, _ = b.divmod(b.op(arith.SubiOp, b.index(self.size[axis] + step - 1), b.index(r0)), step)
        return at, r0, count

    def tile(self, y: Index, phase: Index, x: Index, columns: int, window: tuple) -> None:
        """One tile: the bias, the sum over taps and channels, the epilogue. `x` counts pixels of the phase."""
        b = self.b
        at, shape = b.add(b.mul(x, self.stride[1]), phase), (1, columns, self.shape.vectors, self.lanes)
        tile = MapTile(self.n, self.first, y, at, shape, self.used, (1, self.stride[1]))
        self.finish_blocks(tile, self.sum(x, self.repeated(self.bias, tile), *window))

    def sum(self, x: Index, acc: SSAValue, rows: tuple, columns: tuple) -> SSAValue:
        """acc + the sum over rows of taps, blocks of input channels, columns of taps and the channels of a block."""
        b, u = self.b, self.shape.unroll
        _, pixels, *_, lanes = vector_type_of(acc).get_shape()
        (top, first, last, r0), (left, taps, q0) = rows, columns
        steps = model.whole_steps(self.channels, lanes, u)
        with b.loop(first, last, carry=[acc], name="k") as k:
            line = b.op(arith.SubiOp, b.index(top), k.iv)
            r = b.add(r0, b.mul(k.iv, self.stride[0]))
            with b.loop(0, blocks_of(self.channels, lanes), carry=k.args, name="block") as block:
                with b.loop(0, taps, carry=block.args, name="m") as m:
                    column = b.op(arith.SubiOp, b.add(left, x), m.iv)
                    q = b.add(q0, b.mul(m.iv, self.stride[1]))
                    with b.loop(0, summed_channels(b, steps, block.iv, lanes), u, carry=m.args, name="c") as c:
                        at = self.at(self.src, self.n, block.iv, line, column, c.iv)
                        source = b.tile_load(self.inputs[self.src], at, self.walks(self.src, [2, 3, 4]), (1, pixels, u))
                        weights = self.weights_at(self.weight, [self.group, r, block.iv, q, c.iv, 0], u, acc)
                        c.yields(b.fma(source, weights, c.args[0]))
                    m.yields(*c.results)
                block.yields(*m.results)
            k.yields(*block.results)
        return k.results[0]


DECONV = Transposed(_Kernel)
