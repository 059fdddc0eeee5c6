"""Convolutions with one output pixel that sees the whole input: matrix-vector products, vectorised along the sum.

The rows of the weight matrix are read where they lie. Imports the geometry of windows and what their kernels share.
"""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.dialects.builtin import MemRefType
from xdsl.dialects.vector import FMAOp
from xdsl.ir import SSAValue

from lightnet.backends.builder import Index
from lightnet.backends.cpu.window import StagedWindow
from lightnet.backends.cpu.window_kernel import WindowKernel, pieces_of
from lightnet.backends.expressions import TileView
from lightnet.backends.launches import Launch
from lightnet.ir.types import spec_of, storage_type


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
