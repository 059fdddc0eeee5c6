"""Register-tiled kernels for windows on plain NCHW: convolutions, transposed convolutions and pools, with an epilogue.

Which bodies they take, and which of the kernels a window gets: the general one (`window_kernel.py`), the one for narrow
maps (`narrow.py`), or the one for a single output pixel: a matrix-vector product, vectorised along
the sum, which reads the rows of the weight matrix where they lie.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import NamedTuple

from xdsl.dialects import arith
from xdsl.dialects.builtin import MemRefType
from xdsl.dialects.vector import FMAOp
from xdsl.ir import SSAValue

from lightnet.backends.builder import Index
from lightnet.backends.cpu.narrow import NarrowKernel, narrow_layout_of
from lightnet.backends.cpu.window import StagedWindow, staged_window_of
from lightnet.backends.cpu.window_kernel import TiledKernel, WindowKernel, pieces_of, tile_shape, vector_lanes
from lightnet.backends.expressions import TileView, has_tile_epilogue
from lightnet.backends.launches import Launch
from lightnet.dialects.ln.conv import Conv2d, Deconv2d
from lightnet.dialects.ln.pool import Avgpool2d, Maxpool2d
from lightnet.ir.kernel import KernelOp
from lightnet.ir.op import LnOp
from lightnet.ir.refusal import Refusal, begins_otherwise
from lightnet.ir.types import spec_of, storage_type

ANCHORS = (Conv2d, Deconv2d, Maxpool2d, Avgpool2d)
#: Elements of the largest window of a pool that is written out in full; a larger one (a global pool) is a loop.
MAX_POOL = 200
#: The same of a convolution, whose window is unrolled along each row.
MAX_WINDOW = 31 * 31
#: The most phases of a transposed convolution (one for each remainder by its strides), each of which is code of its
#: own.
MAX_PHASES = 16 * 16


def accepts(ops: Sequence[LnOp], yielded: Sequence[SSAValue] = ()) -> bool | Refusal:
    """Return whether the body is one window op on floats followed by elementwise ops on its result, which make all that
    is `yielded`.
    """
    if not ops or not isinstance(anchor := ops[0], ANCHORS):
        return begins_otherwise(ops, "a convolution or a pool")
    if anchor.result_specs[0].dtype.name not in ("f32", "f64"):
        return Refusal("its tiles are of f32 or f64, not of {}", anchor.result_specs[0].dtype)
    if any(spec.len == 0 for spec in (*anchor.operand_specs, *anchor.result_specs)):
        return Refusal("there are no channels to sum over, or no pixels: a tile needs both")
    most = MAX_POOL if isinstance(anchor, Maxpool2d | Avgpool2d) else MAX_WINDOW
    if anchor.size[0] * anchor.size[1] > most:
        return Refusal("the window is {} x {}, of more than {} elements", *anchor.size, most)
    if isinstance(anchor, Deconv2d) and prod(map(min, anchor.stride, anchor.result_specs[0].dims[2:])) > MAX_PHASES:
        return Refusal("the strides {} make more than {} phases", tuple(anchor.stride), MAX_PHASES)
    return has_tile_epilogue(ops, yielded)


def readable(anchor: LnOp) -> tuple[int, ...]:
    """The result's dimensions along which an epilogue may read smaller tensors: batch and channels."""
    return (0, 1)


class _Cut(NamedTuple):
    """The kernel that a window gets, the blocks of its grid, and bytes of scratch of one of them."""

    window: StagedWindow
    kind: type[DenseKernel | NarrowKernel | TiledKernel]
    grid: int
    scratch: int


def _cut(kernel: KernelOp, width: int) -> _Cut:
    window = staged_window_of(kernel.ops[0])
    kind: type[DenseKernel | NarrowKernel | TiledKernel]
    if is_dense(window):
        kind, outputs, band, scratch = DenseKernel, DenseKernel.OUTPUTS, window.rows, 0
    elif (layout := narrow_layout_of(window, width)) is not None:
        kind, outputs, band, scratch = NarrowKernel, layout.outputs, layout.band, layout.workspace_bytes
    else:
        lanes, shape = vector_lanes(window, width), tile_shape(window, width)
        kind, outputs, band = TiledKernel, shape.outputs, window.band(lanes, shape.rows)
        scratch = window.staged_bytes(band, lanes)
    coarse = window.batch * window.groups * -(-window.rows // band)
    return _Cut(window, kind, coarse * pieces_of(window, outputs, coarse)[0], scratch)


def workspace_bytes(kernel: KernelOp, width: int) -> int:
    """Bytes of staged input that one block needs, for a target with `width` lanes of f32."""
    return _cut(kernel, width).scratch


def grid(kernel: KernelOp, width: int) -> int:
    """The blocks of the kernel."""
    return _cut(kernel, width).grid


def build(kernel: KernelOp, name: str, width: int, aliases: Mapping[int, int]) -> Launch:
    """The kernel function. `aliases` maps a result to the operand whose memory it takes."""
    cut = _cut(kernel, width)
    return cut.kind(kernel, cut.window, name, width, aliases, cut.scratch).build()


# -- one output pixel --------------------------------------------------------------------------------------------------


def is_dense(window: StagedWindow) -> bool:
    """One output pixel that sees the whole input: a matrix-vector product."""
    (phase, *more) = window.phases
    return (
        window.kind == "sum"
        and not more
        and not window.transposed
        and (phase.rows, phase.cols) == (1, 1)
        and not window.staged
        and len(phase.taps) == window.in_hw[0] * window.in_hw[1]
    )


class DenseKernel(WindowKernel):
    """One output pixel: rows of the weight matrix times the input vector, vectorised along the sum."""

    OUTPUTS = 16

    def build(self) -> Launch:
        w, b = self.window, self.b
        grid = w.batch * w.groups
        self.pieces, self.tiles = pieces_of(w, self.OUTPUTS, grid)
        with b.loop(b.lo, b.hi, name="block") as block:
            part, self.piece = b.divmod(block.iv, self.pieces)
            n, group = b.divmod(part, w.groups)
            self.over_outputs(self.OUTPUTS, lambda o, outputs: self.rows(n, group, o, outputs))
        return self.done(grid * self.pieces)

    def memref(self, value: SSAValue) -> MemRefType:
        """Input [N, groups, K], weights [O, K]: the sum is one contiguous dimension. With one pixel they stay [N, C, 1,
        1] and [O, K, 1, 1], as the epilogue may read them, too."""
        w = self.window
        length = w.channels * w.in_hw[0] * w.in_hw[1]
        element = storage_type(spec_of(value.type).dtype)
        if value is self.anchor.operands[0] and length > w.channels:
            return MemRefType(element, [w.batch, w.groups, length])
        if value is self.anchor.operands[1] and length > w.channels:
            return MemRefType(element, [w.groups * w.outputs, length])
        return super().memref(value)

    def rows(self, n: Index, group: Index, o: Index, outputs: int) -> None:
        """`outputs` results at once."""
        w, b, lanes = self.window, self.b, self.lanes
        length = w.channels * w.in_hw[0] * w.in_hw[1]
        source, matrix, bias = (self.inputs[v] for v in self.anchor.operands)
        output = b.add(b.mul(group, w.outputs), o)
        shape = (outputs, lanes)

        def step(k: Index, acc: SSAValue, valid: int) -> SSAValue:
            inside = None if valid == lanes else [outputs, valid]
            if length > w.channels:
                weights = b.tile_load(matrix, [output, k], [0, 1], shape, valid=inside)
                pixels = b.tile_load(source, [n, group, k], [2, 2], shape, steps=[0, 1], valid=inside)
            else:
                weights = b.tile_load(matrix, [output, k, 0, 0], [0, 1], shape, valid=inside)
                channel = b.add(b.mul(group, w.channels), k)
                pixels = b.tile_load(source, [n, channel, 0, 0], [1, 1], shape, steps=[0, 1], valid=inside)
            return b.op(FMAOp, weights, pixels, acc, type=acc.type)

        acc = b.broadcast(b.const(0.0, self.element), shape)
        whole = length // lanes * lanes
        if whole:
            with b.loop(0, whole, lanes, carry=[acc], name="k") as k:
                k.yields(step(k.iv, k.args[0], lanes))
            acc = k.results[0]
        if whole < length:
            acc = step(whole, acc, length - whole)
        total = b.reduce("add", acc, [1])
        tile = TileView([n, output, 0, 0], [1], (outputs,), [1], None)
        start = b.tile_load(bias, [output], [0], (outputs,))
        self.finish(tile, b.op(arith.AddfOp, total, start))
