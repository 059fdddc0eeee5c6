"""Moves of whole channels of blocked maps: concatenations and slices, channel shuffles.

A body of `concat`, `slice`, `reshape` and `transpose` that leaves the pixels where they are says for each channel of
the result which channel of which operand it is. A block of channels is then made, pixel by pixel, of as few registers
as it has sources, by shuffles. Blocks with equal shuffles, whose sources follow each other, share their code.
Concatenations and slices of whole blocks are memory that the plan shares, and no code (`Views`). Imports the base and
the moves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import accumulate, pairwise

import numpy as np
from xdsl.dialects.builtin import IntegerType
from xdsl.ir import SSAValue

from lightnet.backends.builder import Builder, Index
from lightnet.backends.cpu.blocked.base import NO_HALO, BlockedGenerator, ProcessorModel, blocks_of, read_rate
from lightnet.backends.cpu.blocked.kernel import RowsKernel
from lightnet.backends.expressions import ON_TILES
from lightnet.backends.generator import Plan
from lightnet.backends.launches import Launch
from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.move import Concat, Forward, Reshape, Slice, Transpose
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import byte_size
from lightnet.ir.op import LnOp
from lightnet.ir.refusal import Refusal
from lightnet.ir.target import Form
from lightnet.ir.types import spec_of, vector_type_of
from lightnet.runtime.dims import Dim, greatest, typical

MOVES = (Concat, Slice, Reshape, Transpose, Forward)
#: Runs of blocks with code of their own, at most.
MAX_RUNS = 12
#: Channels of a map, and pictures, that are looked at one by one.
MAX_CHANNELS = 1 << 13
#: Pixels that one block of the grid covers, about.
BAND = 512


class Channels(BlockedGenerator):
    """A body of moves from maps [N, C, H, W] to one map whose channels are channels of these."""

    alg, opens = "channels", True

    def form(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], machine: ProcessorModel) -> Form | Refusal:
        found = channel_sources(ops, yielded)
        if isinstance(found, Refusal) or all(isinstance(op, Forward) for op in ops):
            return found if isinstance(found, Refusal) else Refusal("it is no move of channels but a copy")
        values, table = found
        if len(runs_of(table, machine.lanes)) > MAX_RUNS:
            return Refusal("its channels are more than {} runs with shuffles of their own", MAX_RUNS)
        return Form(dict.fromkeys(values, NO_HALO))

    def plan(self, kernel: KernelOp, form: Form, machine: ProcessorModel) -> Plan:
        size = 2 * byte_size(kernel.results[0].type)
        return Plan.of(self, kernel, form, size / min(read_rate(machine, size), machine.l3_bytes))

    def build(self, kernel: KernelOp, plan: Plan, name: str, aliases: Mapping[int, int]) -> list[Launch]:
        assert not aliases, "a channel may be read after it was written"
        return [_ChannelKernel(kernel, name, {}).build()]


# -- which channel is which ------------------------------------------------------------------------------------------


def channel_sources(
    ops: Sequence[LnOp], yielded: Sequence[SSAValue]
) -> tuple[list[SSAValue], list[tuple[int, int]]] | Refusal:
    """The maps from outside that a body of moves reads, and for each channel of its one result: which of them it comes
    from, and which channel of that it is. Refuses any other body, and where pixels or pictures move."""
    if (
        not ops
        or len(yielded) != 1
        or yielded[0] not in ops[-1].results
        or not all(isinstance(op, MOVES) for op in ops)
    ):
        return Refusal("it is no body of moves alone with one result")
    result = spec_of(yielded[0].type)
    if result.ndim != 4 or result.len == 0 or result.dtype.name not in ON_TILES:
        return Refusal("its result is {}, no map of a type that tiles have", result)
    batch, count, *pixels = result.dims
    pictures = 2 if isinstance(batch, Dim) else batch  # two show what happens to any number of them
    if isinstance(count, Dim) or count > MAX_CHANNELS or pictures > MAX_CHANNELS:
        return Refusal("there are more than {} channels, or pictures, or calls decide how many", MAX_CHANNELS)
    made = {r for op in ops for r in op.results}
    sources = list(dict.fromkeys(v for op in ops for v in op.operands if v not in made))
    tables: dict[SSAValue, np.ndarray] = {}  # of each value: [N, ...], (picture, source, channel) as one number
    for s, value in enumerate(sources):
        dims = spec_of(value.type).dims
        if len(dims) != 4 or dims[0] != batch or list(dims[2:]) != pixels:
            return Refusal("an operand has other pixels than the result")
        if isinstance(dims[1], Dim) or dims[1] > MAX_CHANNELS:
            return Refusal("an operand has more than {} channels, or calls decide how many", MAX_CHANNELS)
        channels = np.arange(dims[1]) + (s << 32)
        tables[value] = channels[None, :] + (np.arange(pictures) << 48)[:, None]
    for op in ops:
        table = _moved(op, [tables[v] for v in op.operands], pixels)
        if table is None:
            return Refusal("{} moves pixels", op.optype)
        tables[op.results[0]] = table
    table = tables[yielded[0]]
    if (table[0] >> 48).any() or (table - table[:1] != (np.arange(pictures) << 48)[:, None]).any():
        return Refusal("a channel comes from another picture, or from another channel in each")
    return sources, [(int(t) >> 32, int(t) & 0xFFFFFFFF) for t in table[0]]


def _moved(op: LnOp, tables: Sequence[np.ndarray], pixels: Sequence[int]) -> np.ndarray | None:
    """The effect of a move on all dimensions but the last two, which must stay."""
    rank = tables[0].ndim
    if isinstance(op, Concat | Slice) and op.axis == 0 and isinstance(op.operand_specs[0].dims[0], Dim):
        return None  # of an open batch the tables have but two pictures
    if isinstance(op, Concat):
        return np.concatenate(tables, axis=op.axis) if op.axis < rank else None
    if isinstance(op, Slice):
        if op.axis >= rank or isinstance(op.start, Dim) or isinstance(op.len, Dim):
            return None
        return np.take(tables[0], np.arange(op.start, op.start + op.len), axis=op.axis)
    if isinstance(op, Transpose):
        axes = tuple(op.axes)
        return tables[0].transpose(axes[:rank]) if axes[rank:] == (rank, rank + 1) else None
    dims, batch = op.result_specs[0].dims, op.operand_specs[0].dims[0]
    if isinstance(batch, Dim) and dims[0] == batch:
        dims = (len(tables[0]), *dims[1:])
    if list(dims[-2:]) != list(pixels) or len(dims) < 3 or any(isinstance(d, Dim) for d in dims[:-2]):
        return None
    return tables[0].reshape(dims[:-2])


@dataclass(frozen=True)
class _Slot:
    """A register that feeds a block: `source` is an operand's number; the first block of it and the step from one block
    of the run to the next."""

    source: int
    block: int
    step: int


@dataclass(frozen=True)
class _Run:
    """Blocks `first`, `first + step`, ... (`count` of them) of the result. `lanes` says of each lane which slot it is
    from and which lane there, None where there is no channel."""

    first: int
    step: int
    count: int
    slots: tuple[_Slot, ...]
    lanes: tuple[tuple[int, int] | None, ...]


def runs_of(table: Sequence[tuple[int, int]], lanes: int) -> list[_Run]:
    """The blocks of the result, grouped: equal lanes, and numbers of blocks that advance by constant steps."""
    kinds: dict[tuple[tuple[int, ...], tuple[tuple[int, int], ...]], list[tuple[int, list[tuple[int, int]]]]] = {}
    for number in range(blocks_of(len(table), lanes)):
        part = table[number * lanes : (number + 1) * lanes]
        registers = list(dict.fromkeys((s, c // lanes) for s, c in part))
        picks = tuple((registers.index((s, c // lanes)), c % lanes) for s, c in part)
        kinds.setdefault((tuple(s for s, _ in registers), picks), []).append((number, registers))
    runs: list[_Run] = []
    for (_, picks), members in kinds.items():
        filled = picks + (None,) * (lanes - len(picks))
        while members:
            count = _advancing(members)
            (number, registers), (last, after) = members[0], members[min(1, count - 1)]
            slots = tuple(_Slot(s, block, b - block) for (s, block), (_, b) in zip(registers, after))
            runs.append(_Run(number, last - number, count, slots, filled))
            members = members[count:]
    return runs


def _advancing(members: Sequence[tuple[int, list[tuple[int, int]]]]) -> int:
    """The number of first blocks that advance by constant steps."""
    numbers = [np.array([number, *(b for _, b in registers)]) for number, registers in members]
    steps = [b - a for a, b in pairwise(numbers)]
    return 1 + next((i for i, step in enumerate(steps) if (step != steps[0]).any()), len(steps))


# -- code ------------------------------------------------------------------------------------------------------------


class _ChannelKernel(RowsKernel):
    """Builds one kernel function. The grid is pictures x blocks of channels x bands of rows."""

    def build(self) -> Launch:
        found = channel_sources(self.ops, self.yielded)
        assert not isinstance(found, Refusal)
        self.sources, table = found
        runs = runs_of(table, self.lanes)
        ends = list(accumulate(run.count for run in runs))

        def block(n: Index, item: Index, first: Index, last: Index) -> None:
            for run, end in zip(runs, ends):
                start = end - run.count
                if len(runs) == 1:
                    self.run(run, n, item, first, last)
                    continue
                with self.b.when(self.b.cmpi("ult", self.b.add(item, -start), self.b.index(run.count))):
                    self.run(run, n, self.b.add(item, -start), first, last)

        band = max(1, min(greatest(self.rows), BAND // typical(self.cols)))
        return self.by_bands((self.pictures, ends[-1]), "n item", self.rows, band, block)

    def run(self, run: _Run, n: Index, i: Index, first: Index, last: Index) -> None:
        """Rows [first, last) of block number `i` of a run."""
        b = self.b
        block = b.add(b.mul(i, run.step), run.first)
        blocks = [b.add(b.mul(i, slot.step), slot.block) for slot in run.slots]
        with b.loop(first, last, name="y") as y, b.loop(0, self.cols, name="x") as x:
            registers = []
            for slot, at in zip(run.slots, blocks):
                value = self.sources[slot.source]
                where = self.at(value, n, at, y.iv, x.iv)
                registers.append(b.tile_load(self.inputs[value], where, self.walks(value, [4]), (self.lanes,)))
            pixel, made = gathered(b, registers, run.lanes), self.yielded[0]
            b.tile_store(pixel, self.results[0], self.at(made, n, block, y.iv, x.iv), self.walks(made, [4]))
        self.zero_halos(n, block, 1, first, last)


def gathered(b: Builder, registers: Sequence[SSAValue], lanes: Sequence[tuple[int, int] | None]) -> SSAValue:
    """One register of lanes of others: (register, lane), None for 0."""
    n = len(lanes)
    if list(lanes) == [(0, k) for k in range(n)]:
        return registers[0]
    parts = [*registers]
    if None in lanes:
        element = vector_type_of(registers[0]).element_type
        parts.append(b.const(0 if isinstance(element, IntegerType) else 0.0, registers[0].type))
    wanted = [(len(parts) - 1, k) if pick is None else pick for k, pick in enumerate(lanes)]

    def joined(known: SSAValue, slot: int) -> SSAValue:
        """`known` has the lanes of the slots before `slot` in their places."""
        picks = [n + lane if s == slot else k if s < slot else -1 for k, (s, lane) in enumerate(wanted)]
        return b.shuffle(known, parts[slot], picks)

    if len(parts) == 1:
        return b.shuffle(parts[0], parts[0], [lane for _, lane in wanted])
    start = [lane if s == 0 else n + lane if s == 1 else -1 for s, lane in wanted]
    return reduce(joined, range(2, len(parts)), b.shuffle(parts[0], parts[1], start))


# -- whole blocks ------------------------------------------------------------------------------------------------------


class Views(BlockedGenerator):
    """One `forward`, or one `concat` or `slice` of one picture along its channels, between whole blocks: a view of
    `ir/views.py` once it is planned. What the plan cannot place so is copied block by block (`lower-cpu`)."""

    alg = "view"
    takes_open = True

    def form(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], machine: ProcessorModel) -> Form | Refusal:
        if len(ops) != 1 or not isinstance(op := ops[0], Concat | Slice | Forward) or list(yielded) != [*op.results]:
            return Refusal("it is no concat, slice or forward alone")
        result = op.result_specs[0]
        if result.ndim != 4 or result.dtype.name not in ON_TILES or result.len == 0:
            return Refusal("its result is {}, no map of a type that tiles have", result)
        if not isinstance(op, Forward) and (
            result.dims[0] != 1 or op.axis != 1 or not _between_blocks(op, machine.lanes)
        ):
            return Refusal("it cuts blocks of {} channels, or maps along another axis", machine.lanes)
        if len(set(op.operands)) != len(op.operands):
            return Refusal("an operand is in it twice")
        return Form(dict.fromkeys(op.operands, NO_HALO), tied=True)

    def plan(self, kernel: KernelOp, form: Form, machine: ProcessorModel) -> Plan:
        return Plan.of(self, kernel, form, 0.0)

    def build(self, kernel: KernelOp, plan: Plan, name: str, aliases: Mapping[int, int]) -> list[Launch]:
        raise LightNetError(f"{kernel.name} of a view has maps of several layouts: run layout again")


def _between_blocks(op: Concat | Slice, lanes: int) -> bool:
    """Return whether an op cuts between blocks only."""
    if isinstance(op, Slice):
        end = op.start + op.len
        return op.start % lanes == 0 and (end % lanes == 0 or end == op.operand_specs[0].dims[1])
    return all(s.len for s in op.operand_specs) and all(s.dims[1] % lanes == 0 for s in op.operand_specs[:-1])


CHANNELS, VIEWS = Channels(), Views()
