"""Maps whose channels become the last dimension of a plain tensor, as at the end of detection networks: from blocks of
channels that is nearly a copy.

The body is a chain of moves (a transpose to [N, H, W, C], slices of channels, reshapes that split them) with functions
of single elements in between; these are evaluated as the pixels are read. Imports the moves of channels and the
epilogue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import prod

import numpy as np
from xdsl.dialects.builtin import MemRefType, f32
from xdsl.ir import SSAValue

from lightnet.backends.builder import Index
from lightnet.backends.cpu.blocked.base import NO_HALO, BlockedGenerator, ProcessorModel, blocks_of, lanes_of, read_rate
from lightnet.backends.cpu.blocked.channels import MAX_CHANNELS, gathered
from lightnet.backends.cpu.blocked.kernel import BlockedKernel
from lightnet.backends.expressions import TileEvaluator, runs_on_tiles
from lightnet.backends.expressions import TileView as PlainTile
from lightnet.backends.generator import Plan
from lightnet.backends.launches import Launch
from lightnet.dataclasses import dataclass
from lightnet.dialects.ln.move import Forward, Reshape, Slice, Transpose
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import byte_size, layout_of
from lightnet.ir.op import LnOp
from lightnet.ir.refusal import Refusal
from lightnet.ir.target import Form
from lightnet.ir.types import spec_of

#: Registers of channels that a pixel may be written as.
MAX_VECTORS = 32
#: Pixels that one block of the grid covers, about.
BAND = 512


class Nhwc(BlockedGenerator):
    """A chain of moves and elementwise ops from one map [N, C, H, W] to a plain tensor in the order [N, H, W,
    channels]."""

    alg = "nhwc"

    def form(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], machine: ProcessorModel) -> Form | Refusal:
        chain = layout_chain_of(ops, yielded)
        if isinstance(chain, Refusal):
            return chain
        if not chain.is_run(machine.lanes) and blocks_of(len(chain.channels), machine.lanes) > MAX_VECTORS:
            return Refusal("its channels are more than {} vectors, and in another order", MAX_VECTORS)
        return Form({chain.source: NO_HALO}, plain_results=True)

    def plan(self, kernel: KernelOp, form: Form, machine: ProcessorModel) -> Plan:
        size = 2 * byte_size(kernel.results[0].type)
        return Plan.of(self, kernel, form, size / min(read_rate(machine, size), machine.l3_bytes))

    def build(self, kernel: KernelOp, plan: Plan, name: str, aliases: Mapping[int, int]) -> list[Launch]:
        assert not aliases, "memory of two layouts cannot be shared"
        return [_NhwcKernel(kernel, name).build()]


@dataclass(frozen=True)
class _Chain:
    """The map that a body reads, which of its channels the channels of the result are, and the functions on the way."""

    source: SSAValue
    channels: tuple[int, ...]
    functions: tuple[LnOp, ...]

    def is_run(self, lanes: int) -> bool:
        """Return whether the channels follow each other from a block's first one on: then blocks are copied as they
        are.
        """
        first = self.channels[0]
        return lanes > 0 and first % lanes == 0 and self.channels == tuple(range(first, first + len(self.channels)))


def layout_chain_of(ops: Sequence[LnOp], yielded: Sequence[SSAValue]) -> _Chain | Refusal:
    """The chain that a body is."""
    chained = Refusal("it is no chain of ops, each on the result of the one before alone")
    if not ops or list(yielded) != list(ops[-1].results) or spec_of(yielded[0].type).len == 0:
        return chained
    for op, after in pairwise(ops):
        if list(after.operands) != list(op.results):
            return chained
    if len(ops[0].operands) != 1 or any(len(op.operands) != 1 for op in ops):
        return chained
    source = ops[0].operands[0]
    spec = spec_of(source.type)
    if (
        spec.ndim != 4
        or spec.len == 0
        or any(s.dtype.name != "f32" for op in ops for s in (*op.operand_specs, *op.result_specs))
    ):
        return Refusal("it begins with {}, or is not of f32: it takes maps of f32", spec)
    pictures, count, height, width = spec.dims
    if max(pictures, count) > MAX_CHANNELS:
        return Refusal("there are more than {} channels, or pictures", MAX_CHANNELS)
    #: (picture, channel) as one number, with dims of 1 for the pixels, which stand at `at` and behind it.
    table = (np.arange(pictures)[:, None] * count + np.arange(count)).reshape(pictures, count, 1, 1)
    at, functions = 2, []
    moved = [op for op in ops if not isinstance(op, Reshape | Transpose | Slice | Forward)]
    end = len(ops)
    while end > 1 and (isinstance(ops[end - 1], Reshape) or ops[end - 1] in moved):
        end -= 1  # what follows the last transpose sees the same memory under other dims
    for op in ops[:end]:
        if op in moved:
            functions.append(op)
            continue
        moves, at = _moved(op, table, at, (height, width))
        if moves is None:
            return Refusal("{} moves pixels", op.optype)
        table = moves
    functions += [op for op in ops[end:] if op in moved]
    if not all(runs_on_tiles(op, ()) and op.result_specs[0].dims == op.operand_specs[0].dims for op in functions):
        return Refusal("it is no chain of moves and elementwise ops")
    if prod(table.shape[:at]) != pictures:
        return Refusal("its channels are not the last dim of the result")
    flat = table.reshape(pictures, -1)
    if (flat - flat[:1] != (np.arange(pictures) * count)[:, None]).any() or (flat[0] >= count).any():
        return Refusal("a channel comes from another picture")
    return _Chain(source, tuple(int(c) for c in flat[0]), tuple(functions))


def _moved(op: LnOp, table: np.ndarray, at: int, pixels: tuple[int, int]) -> tuple[np.ndarray | None, int]:
    """A move of channels or of whole pixels: the table behind it, and where the pixels stand then."""
    if isinstance(op, Forward):
        return table, at
    if isinstance(op, Slice):
        if op.axis in (at, at + 1):
            return None, 0
        return np.take(table, np.arange(op.start, op.start + op.len), axis=op.axis), at
    if isinstance(op, Transpose):
        axes = list(op.axes)
        to = axes.index(at)
        return (table.transpose(axes), to) if axes[to : to + 2] == [at, at + 1] else (None, 0)
    dims, before = op.result_specs[0].dims, prod(table.shape[:at])
    for to in range(len(dims) - 1):
        if tuple(dims[to : to + 2]) == pixels and prod(dims[:to]) == before:
            return table.reshape(*dims[:to], 1, 1, *dims[to + 2 :]), to
    return None, 0


class _NhwcKernel(BlockedKernel):
    """Builds one kernel function. The grid is pictures x bands of rows."""

    def __init__(self, kernel: KernelOp, name: str):
        chain = layout_chain_of(kernel.ops, kernel.terminator.operands)
        assert not isinstance(chain, Refusal)
        self.chain = chain
        self.pictures, _, self.rows, self.cols = spec_of(chain.source.type).dims
        super().__init__(kernel, name, lanes_of(kernel), {})

    def memref(self, value: SSAValue) -> MemRefType:
        if not layout_of(value.type).is_plain:
            return super().memref(value)
        return MemRefType(f32, [self.pictures, self.rows, self.cols, len(self.chain.channels)])

    def build(self) -> Launch:
        b = self.b

        def block(n: Index, first: Index, last: Index) -> None:
            with b.loop(first, last, name="y") as y, b.loop(0, self.cols, name="x") as x:
                self.pixel(n, y.iv, x.iv)

        return self.by_bands((self.pictures,), "n", self.rows, max(1, min(self.rows, BAND // self.cols)), block)

    def pixel(self, n: Index, y: Index, x: Index) -> None:
        """All channels of one pixel."""
        b, lanes, channels = self.b, self.lanes, self.chain.channels
        count = len(channels)
        if self.chain.is_run(lanes):
            first, whole = channels[0] // lanes, count // lanes
            if whole:
                with b.loop(0, whole, name="k") as k:
                    value = self.read(n, b.add(k.iv, first), y, x)
                    b.tile_store(value, self.results[0], [n, y, x, b.mul(k.iv, lanes)], [3])
            if left := count % lanes:
                value = self.read(n, first + whole, y, x)
                b.tile_store(value, self.results[0], [n, y, x, whole * lanes], [3], valid=[left])
            return
        registers: dict[int, SSAValue] = {}
        for number in range(blocks_of(count, lanes)):
            part = channels[number * lanes : (number + 1) * lanes]
            blocks = list(dict.fromkeys(c // lanes for c in part))
            for block in blocks:
                if block not in registers:
                    registers[block] = self.read(n, block, y, x)
            picks = [(blocks.index(c // lanes), c % lanes) for c in part]
            picks += [(0, 0)] * (lanes - len(part))
            value = gathered(b, [registers[block] for block in blocks], picks)
            valid = None if len(part) == lanes else [len(part)]
            b.tile_store(value, self.results[0], [n, y, x, number * lanes], [3], valid=valid)

    def read(self, n: Index, block: Index, y: Index, x: Index) -> SSAValue:
        """A register of the source, behind the functions of the chain."""
        where = self.at(self.chain.source, n, block, y, x)
        value = self.b.tile_load(self.inputs[self.chain.source], where, [4], (self.lanes,))
        return self.evaluated(value)

    def evaluated(self, value: SSAValue) -> SSAValue:
        """The functions of the chain on a register."""
        evaluator = TileEvaluator(self.b, PlainTile([], [], (self.lanes,), [], None), self.inputs.__getitem__)
        for op in self.chain.functions:
            evaluator.registers[op.operands[0]] = value
            evaluator.run(op)
            value = evaluator.registers[op.results[0]]
        return value


NHWC = Nhwc()
