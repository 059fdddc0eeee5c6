"""Depthwise convolution on blocked maps: each channel under a window of its own, with an epilogue.

Each output vector takes one multiply-add a tap, so the kernel lives from loads: a tile is some pixels of a row (or of
two short rows), and a column of the input that several of them read is loaded once. Bound by memory where the maps are
larger than a cache. Imports the base of blocked kernels and the window of `ln` convolutions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects import vector
from xdsl.ir import SSAValue

from lightnet.backends.builder import Index
from lightnet.backends.cpu.blocked.base import (
    Ends,
    KernelGenerator,
    ProcessorModel,
    blocks_of,
    choice_error,
    choice_ints,
    lanes_of,
    read_rate,
)
from lightnet.backends.cpu.blocked.conv_model import Geometry
from lightnet.backends.cpu.blocked.forms import convolution_form, weight_layouts
from lightnet.backends.cpu.blocked.kernel import BlockedKernel, Host, MapTile, map_place
from lightnet.backends.generator import Plan
from lightnet.backends.launches import Launch
from lightnet.dialects.ln.conv import Conv2d
from lightnet.dialects.ln.integer import Conv2dInteger
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import Packed
from lightnet.ir.op import LnOp
from lightnet.ir.refusal import Refusal
from lightnet.ir.target import Form, Halo
from lightnet.ir.types import ParamAttr, spec_of, vector_type_of
from lightnet.runtime.dims import Dim, typical

#: Multiply-adds of an unrolled body, at most, and taps of one: their weights should stay in registers. Taps of an
#: unrolled row.
BODY, TAPS, WIDTH = 250, 12, 32
#: Multiply-adds on vectors that one block of the grid makes, about: 2 to 4 microseconds.
BLOCK = 12_000


class Depthwise(KernelGenerator):
    """The generator of `conv2d` with one input channel and one output channel a group, of f32."""

    alg, opens = "depthwise", True

    def form(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], machine: ProcessorModel) -> Form | Refusal:
        other = Refusal("a channel of its result is not one channel of its map, filtered")
        return convolution_form(
            ops, yielded, Conv2d, lambda conv: depthwise_halo_of(conv) if is_depthwise(conv) else other
        )

    def plan(self, kernel: KernelOp, form: Form, machine: ProcessorModel) -> Plan:
        return self._plan(kernel, form, machine, _tile_of(kernel, machine))

    def opened(self, kernel: KernelOp, ends: Ends, form: Form, machine: ProcessorModel) -> Plan:
        width, given = conv_of(ends[1]).result_specs[0].dims[3], choice_ints(kernel, "tile")
        if given is not None:
            return self._plan(kernel, form, machine, chosen_depthwise_tile(kernel, (1, width), given))
        return self._plan(kernel, form, machine, (1, min(tile_sums(machine), width)))

    def _plan(self, kernel: KernelOp, form: Form, machine: ProcessorModel, tile: tuple[int, int]) -> Plan:
        conv = conv_of(kernel)
        vectors = _vectors(conv, machine.lanes)
        taps = conv.size[0] * conv.size[1]
        compute = 2 * machine.lanes * vectors * (taps + 3) / machine.flops
        traffic = 4 * sum(spec_of(v.type).len for v in (*kernel.operands, *kernel.results))
        # Little arithmetic hides the reads: both count.
        time = 100 + 0.9 * compute + 0.6 * traffic / read_rate(machine, traffic)
        weights = weight_layouts(kernel, form, machine.lanes, {conv.operands[1]: Packed("d", machine.lanes)})
        return Plan.of(self, kernel, form, time, tile, choices={"tile": ParamAttr(tile)}, weights=weights)


def conv_of(kernel: KernelOp) -> Conv2d | Conv2dInteger:
    """The convolution that a kernel of one begins with."""
    conv = kernel.ops[0]
    assert isinstance(conv, Conv2d | Conv2dInteger)
    return conv


def is_depthwise(conv: Conv2d) -> bool:
    """Return whether each channel of the result is one channel of the input, filtered."""
    return conv.group == conv.operand_specs[0].dims[1] == conv.operand_specs[1].dims[0]


def depthwise_halo_of(conv: Conv2d) -> Halo:
    """Rows and columns around the input that the windows of a convolution reach, on the side where they reach
    further."""
    return Geometry.of(conv).halo


def _vectors(conv: LnOp, lanes: int) -> int:
    """Vectors of the result."""
    n, c, h, w = conv.result_specs[0].dims
    return n * blocks_of(c, lanes) * h * w


def _tile_of(kernel: KernelOp, machine: ProcessorModel) -> tuple[int, int]:
    """The rows and columns of a tile: the kernel's choice if it has one, which must fit the result
    (`LightNetError`)."""
    height, width = kernel.ops[0].result_specs[0].dims[2:]
    given = choice_ints(kernel, "tile")
    return (
        best_depthwise_tile(height, width, machine)
        if given is None
        else chosen_depthwise_tile(kernel, (height, width), given)
    )


def chosen_depthwise_tile(kernel: KernelOp, extents: tuple[int, int], given: tuple[int, ...]) -> tuple[int, int]:
    """The tile that a kernel's choice names, for a result of this size."""
    height, width = extents
    if len(given) != 2 or not (1 <= given[0] <= height and 1 <= given[1] <= width) or given[0] * given[1] > 64:
        most = f"of at most {[height, width]} and 64 pixels"
        message = f"tile = {list(given)}: a depthwise kernel takes [rows, columns] {most}"
        raise choice_error(kernel, "depthwise.tile", message)
    return given[0], given[1]


def best_depthwise_tile(height: int, width: int, machine: ProcessorModel) -> tuple[int, int]:
    """The rows and columns of a tile for a result of this size: nearly all registers are accumulators, and windows are
    walked row by row (5 to 15 % faster than half of them and all taps unrolled). Of long rows, which come from a cache
    far away, two at once."""
    pixels = tile_sums(machine)
    columns = row_tile(width, machine) if width <= 2 * pixels else -(-width // -(-width // (pixels // 2)))
    rows = 2 if 2 * columns <= pixels and height > 1 else 1
    return rows, columns


def row_tile(width: int, machine: ProcessorModel) -> int:
    """The columns of a tile of one row, where what it reads is near."""
    return -(-width // -(-width // tile_sums(machine)))


def tile_sums(machine: ProcessorModel) -> int:
    """Accumulators of a tile."""
    return 14 * machine.registers // 16


class DepthwiseKernel(BlockedKernel):
    """Builds one kernel function, or (`walk`) part of another. The grid is pictures x blocks of channels x bands of
    rows."""

    anchor: Conv2d

    def __init__(
        self, kernel: KernelOp, tile: tuple[int, int], name: str, aliases: Mapping[int, int], host: Host | None = None
    ):
        super().__init__(kernel, name, lanes_of(kernel), aliases, host=host)
        self.rows, self.columns = tile
        conv = self.anchor
        self.pad = conv.derived_values()["pad"]
        self.pictures, self.channels, self.height, self.width = conv.result_specs[0].dims

    def build(self) -> Launch:
        band = self.band()

        def block(n: Index, block: Index, first: Index, last: Index) -> None:
            self.walk(n, block, first, last, self.rows if band >= self.rows else 1)
            self.zero_halos(n, block, 1, first, last)

        extents = self.pictures, blocks_of(self.channels, self.lanes)
        return self.by_bands(extents, "n block", self.height, band, block)

    def band(self) -> int:
        """Rows of a block of the grid: a multiple of the tile's, and all of them where they leave no multiple."""
        row = typical(self.width) * self.anchor.size[0] * self.anchor.size[1]
        if isinstance(self.height, Dim):
            return max(1, BLOCK // row)
        bands = min(-(-self.height * row // BLOCK), -(-self.height // self.rows))
        even = -(-self.height // bands)
        band = -(-even // self.rows) * self.rows
        return band if self.height % self.rows == 0 else self.height

    def walk(self, n: Index, block: Index, first: Index, last: Index, rows: int) -> None:
        """The tiles of the rows [first, last)."""
        self.b.location = self.anchor.location
        self.down(first, last, self.height, rows, lambda y, rows: self.row(n, block, y, rows))

    def row(self, n: Index, block: Index, y: Index, rows: int) -> None:
        """The tiles of `rows` rows from `y` on."""
        self.across(self.width, self.columns, lambda x, columns: self.tile(n, block, y, x, rows, columns))

    def tile(self, n: Index, block: Index, y: Index, x: Index, rows: int, columns: int) -> None:
        b, lanes = self.b, self.lanes
        shape = (rows, columns, 1, lanes)
        bias = b.tile_load(self.inputs[self.anchor.operands[2]], [block, 0], [0, 0, 0, 1], (1, 1, 1, lanes))
        total = self.window(n, block, y, x, b.broadcast(bias, shape))
        self.finish(MapTile(n, block, y, x, shape, self.used), total)

    def window(self, n: Index, block: Index, y: Index, x: Index, total: SSAValue) -> SSAValue:
        """`total` plus the taps: all of them unrolled, those of a row, or none, whatever is no more than `BODY` and
        `TAPS` allow."""
        b, (height, width) = self.b, self.anchor.size
        rows, columns, _, _ = vector_type_of(total).get_shape()
        unrolls = width <= min(WIDTH, BODY // (rows * columns))
        places = [self.position(1, x, q) for q in range(width)] if unrolls else []

        def row(r: Index, acc: SSAValue) -> SSAValue:
            place = self.held(self.anchor.operands[0], n, block, self.position(0, y, r))
            if not unrolls:
                with b.loop(0, width, carry=[acc], name="q") as q:
                    q.yields(self.tap((*place, self.position(1, x, q.iv)), (block, r, q.iv), q.args[0]))
                return q.results[0]
            for number, column in enumerate(places):
                acc = self.tap((*place, column), (block, r, number), acc)
            return acc

        if height * width * rows * columns > BODY or (height > 1 and height * width > TAPS):
            with b.loop(0, height, carry=[total], name="r") as r:
                r.yields(row(r.iv, r.args[0]))
            return r.results[0]
        for number in range(height):
            total = row(number, total)
        return total

    def position(self, axis: int, at: Index, tap: Index) -> Index:
        """The row or column in memory that output position `at` reads for a tap: at * stride + tap * dilation - pad +
        halo."""
        b, conv = self.b, self.anchor
        offset = self.halo(conv.operands[0])[axis] - self.pad[axis]
        reach = tap * conv.dilation[axis] if isinstance(tap, int) else b.mul(tap, conv.dilation[axis])
        constant = b.number(reach)
        if constant is not None:
            return b.add(b.mul(at, conv.stride[axis]), constant + offset)
        return b.add(b.add(b.mul(at, conv.stride[axis]), reach), offset)

    def tap(self, at: tuple[Index, Index, Index, Index], tap: tuple[Index, Index, Index], acc: SSAValue) -> SSAValue:
        """acc + weight[block, tap] * the pixels from place `at` of the input's memory on."""
        b, (src, weight, _), shape = self.b, self.anchor.operands, vector_type_of(acc).get_shape()
        place, walked = map_place(b, src, [*at, 0]), self.walks(src, [2, 3, 1, 4])
        pixels = b.tile_load(self.inputs[src], place, walked, shape, steps=[*self.anchor.stride, 1, 1])
        factor = b.tile_load(self.inputs[weight], [*tap, 0], [0, 1, 2, 3], (1, 1, 1, self.lanes))
        return b.op(vector.FMAOp, pixels, b.broadcast(factor, shape), acc)


DEPTHWISE = Depthwise(DepthwiseKernel)
