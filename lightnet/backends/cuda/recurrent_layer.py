"""The parts of a recurrent layer's kernels that do not depend on who runs the steps: a thread's part of the product of
a state with the weights, and what becomes of the sums.

In the product a thread has a few neighbouring columns of [H, G], which are one access of 16 bytes, so that lanes read
neighbouring addresses, times one slice of the state's elements. Imports the builder of threads and the recurrent ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from xdsl.dialects.builtin import MemRefType
from xdsl.ir import SSAValue

from lightnet.backends.builder import Index, vector_type
from lightnet.backends.cuda.kernel import KernelFunction
from lightnet.backends.cuda.simt import Simt
from lightnet.dataclasses import dataclass
from lightnet.dialects.ln.gates import Maths
from lightnet.dialects.ln.recurrent import Recurrent
from lightnet.ir.kernel import KernelOp
from lightnet.ir.types import storage_type

#: Bytes of an access; slices of a sum, all of which are in code; rows of weights that are on their way to a thread at a
#: time.
ACCESS, MOST_SLICES, ROWS_AHEAD = 16, 16, 8


@dataclass(frozen=True)
class Product:
    """A product of a state with `columns` columns of the weights, from `first` on. A thread has `width` of these, and
    of the state `rows` elements, a multiple of an access; `slices` times as many threads as there are groups of columns
    share a product."""

    first: int
    columns: int
    width: int
    slices: int
    rows: int

    @property
    def groups(self) -> int:
        """Groups of `width` columns."""
        return self.columns // self.width


def share_of(hidden: int, lanes: int, most: int) -> tuple[int, int]:
    """The shares that up to `most` threads have of a state of `hidden` elements: the slices, none of which is empty,
    and the rows of each.
    """
    pieces = -(-hidden // lanes)
    rows = -(-pieces // max(1, min(most, MOST_SLICES)))
    return -(-pieces // rows), rows * lanes


class Multiplier:
    """Writes the code of a product for a thread: `state` is [sequences, pitch] in shared memory, where zeros follow the
    last element, `weight` is [H, G]; `piece` is the number of the thread's slice, `column` the first of its columns."""

    def __init__(self, b: Simt, p: Product, state: SSAValue, weight: SSAValue, piece: SSAValue, column: SSAValue):
        assert isinstance(state.type, MemRefType) and isinstance(weight.type, MemRefType)
        self.b, self.p, self.state, self.weight, self.piece, self.column = b, p, state, weight, piece, column
        self.sequences, self.hidden = state.type.get_shape()[0], weight.type.get_shape()[0]
        self.element = state.type.element_type
        self.lanes = ACCESS // state.type.element_type.size

    @property
    def zeros(self) -> SSAValue:
        """The sums of nothing, [sequences, width]."""
        return self.b.const(0.0, vector_type((self.sequences, self.p.width), self.element))

    def elements(self, row: Index, count: int) -> SSAValue:
        """Neighbouring elements of the states: [sequences, count]."""
        return self.b.tile_load(self.state, [0, row], [0, 1], (self.sequences, count))

    def rows(self, row: Index, count: int) -> SSAValue:
        """Neighbouring rows of the thread's columns of the weights: [count, width]."""
        return self.b.tile_load(self.weight, [row, self.column], [0, 1], (count, self.p.width))

    def streamed(self) -> SSAValue:
        """The thread's sums, with weights from memory: several rows of them on their way, then those of one access of
        the state's elements at a time, then the elements behind the last whole access."""
        b, p, lanes = self.b, self.p, self.lanes
        share, whole = p.rows // lanes, self.hidden // lanes
        low, high = b.mul(self.piece, share), b.index(whole)
        if p.slices > 1:
            high = b.least(b.add(low, share), whole)
        total = self.zeros
        for ahead in (n for n in (ROWS_AHEAD // lanes, 1) if n <= whole):  # a state may have no whole access
            with b.loop(low, b.add(high, 1 - ahead), ahead, [low, total], name="k") as k:
                starts, total = [b.mul(b.add(k.iv, i), lanes) for i in range(ahead)], k.args[1]
                for start, rows in [(start, self.rows(start, lanes)) for start in starts]:
                    total = b.fma(self.elements(start, lanes), rows, total)
                k.yields(b.add(k.iv, ahead), total)
            low, total = k.results
        if whole * lanes == self.hidden:
            return total
        last = b.index(whole * lanes)
        if p.slices > 1:
            last = b.select(b.cmpi("eq", self.piece, b.index(p.slices - 1)), last, b.index(self.hidden))
        with b.loop(last, self.hidden, 1, [total], name="k") as k:
            k.yields(b.fma(self.elements(k.iv, 1), self.rows(k.iv, 1), k.args[0]))
        return k.results[0]

    def held(self, pieces: int) -> list[SSAValue]:
        """The thread's rows of weights, in registers; zeros for those behind the last, whose elements of the state are
        zeros, too. `pieces` is what the numbers of slices are below."""
        b, zero = self.b, self.b.const(0.0, vector_type((1, self.p.width), self.element))
        doubtful, found = pieces * self.p.rows > self.hidden, []
        for k in range(self.p.rows):
            row = b.add(b.mul(self.piece, self.p.rows), k)
            value = self.rows(b.least(row, self.hidden - 1) if doubtful else row, 1)
            found.append(b.select(b.below(row, self.hidden), value, zero) if doubtful else value)
        return found

    def from_registers(self, held: Sequence[SSAValue]) -> SSAValue:
        """The thread's sums, with the weights that it holds."""
        total = self.zeros
        for k, row in enumerate(held):
            total = self.b.fma(self.elements(self.b.add(self.b.mul(self.piece, self.p.rows), k), 1), row, total)
        return total


@dataclass(frozen=True)
class RecurrentSchedule:
    """The run of a recurrence: the `sequences` and `threads` of a block, and whether threads hold their weights in
    registers from before the state is there; the `units` of a block where each step is a launch (`recurrent_steps.py`),
    0 where a block runs through all steps of all units."""

    sequences: int
    threads: int
    held: bool
    units: int = 0


def recurrent_of(kernel: KernelOp) -> Recurrent:
    """The layer that a kernel is."""
    (op,) = kernel.ops
    assert isinstance(op, Recurrent)
    return op


def access_lanes(op: Recurrent) -> int:
    """Elements of an access."""
    return ACCESS // op.operand_specs[0].dtype.size


def products_of(op: Recurrent, way: RecurrentSchedule) -> tuple[Product, ...]:
    """The parts of the products of a step that the threads of a block share. Where steps are launches, the columns of
    one are the gate outputs of the block's units, gate by gate."""
    hidden, lanes, found = op.sizes[2], access_lanes(op), []
    for first, gates in op.products():
        columns = gates * (way.units or hidden)
        width = gcd(lanes, hidden) if way.units else gcd(lanes, op.count * hidden, first * hidden, columns)
        share = share_of(hidden, lanes, way.threads // (columns // width))
        found.append(Product(first * hidden, columns, width, *share))
    return tuple(found)


def pitch_of(op: Recurrent, products: Sequence[Product]) -> int:
    """Elements of a state in shared memory, zeros behind the last included: as many as the slices have rows."""
    return max(p.slices * p.rows for p in products)


def shared_bytes(op: Recurrent, way: RecurrentSchedule) -> int:
    """Bytes of shared memory of a block: states, one a product, and partial sums; where steps are launches, those of
    one product."""
    products, size = products_of(op, way), op.operand_specs[0].dtype.size
    if way.units:
        return way.sequences * max(p.slices * (p.rows + p.columns) for p in products) * size
    states = len(products) * pitch_of(op, products) + (len(op.results) - 2) * op.sizes[2]
    return way.sequences * (states + sum(p.slices * p.columns for p in products)) * size


def state_names(op: Recurrent) -> list[str]:
    """The states by the names of the results that they end as."""
    return [r.name for r in op.schema.results if r.name != "y"]


class RecurrentLayer:
    """A kernel that is a layer, with the schedule that it runs by."""

    def __init__(self, kernel: KernelOp, way: RecurrentSchedule):
        self.kernel, self.op, self.way = kernel, recurrent_of(kernel), way
        self.steps, self.batch, self.hidden = self.op.sizes
        self.element, self.products = storage_type(self.op.operand_specs[0].dtype), products_of(self.op, way)
        self.names, self.yielded = state_names(self.op), list(kernel.terminator.operands)
        self.operands = dict(zip([o.name for o in self.op.schema.operands], self.op.operands, strict=True))
        self.results = dict(zip([r.name for r in self.op.schema.results], self.op.results, strict=True))


class RecurrentCode(RecurrentLayer):
    """The code that the threads of a block run in every schedule; `thread` is the number of one."""

    function: KernelFunction
    thread: SSAValue

    def write_to(self, function: KernelFunction) -> None:
        """Let all that is built from now on be the code of a function."""
        self.function, self.b, self.maths = function, function.b, Maths(function.b, self.element)

    def memory(self, name: str) -> SSAValue:
        """The memref of an operand."""
        return self.function.inputs[self.operands[name]]

    def clear_behind(self, states: Sequence[SSAValue], pitch: int) -> None:
        """Zeros behind the last elements of states in shared memory, [sequences, pitch]."""
        b = self.b
        if behind := pitch - self.hidden:
            with b.loop(self.thread, self.way.sequences * behind, self.way.threads, name="e") as e:
                r, k = b.divmod(e.iv, behind)
                for state in states:
                    b.store(self.maths.number(0), state, [r, b.add(k, self.hidden)])

    def inputs_at(self, t: SSAValue, n: SSAValue, unit: SSAValue) -> list[SSAValue]:
        """The inputs' part of the gate outputs of a unit of sequence `n`."""
        columns = (self.b.add(gate * self.hidden, unit) for gate in range(self.op.count))
        return [self.b.load(self.memory("gates"), [t, n, column]) for column in columns]

    def constants_at(self, unit: SSAValue) -> list[SSAValue]:
        """The params of a unit."""
        return [self.b.load(self.memory(name), [self.b.add(k * self.hidden, unit)]) for name, k in self.op.constants()]

    def summed(self, p: Product, partial: SSAValue, r: SSAValue, column: SSAValue) -> SSAValue:
        """The sum of what the slices of a product leave, pair by pair."""
        parts: Sequence[SSAValue] = [self.b.load(partial, [r, s, column]) for s in range(p.slices)]
        while len(parts) > 1:
            pairs = [parts[k : k + 2] for k in range(0, len(parts), 2)]
            parts = [self.maths.add(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
        return parts[0]

    def multiply(self, thread: Multiplier, partial: SSAValue, group: SSAValue, held: Sequence[SSAValue] | None) -> None:
        """The thread's sums [sequences, width] of a slice and a group of columns to shared memory."""
        total = thread.streamed() if held is None else thread.from_registers(held)
        self.b.tile_store(total, partial, [0, thread.piece, self.b.mul(group, thread.p.width)], [0, 2])

    def has_slice(self, p: Product, piece: SSAValue) -> SSAValue | None:
        """Return whether a thread has a slice of a product; None where all have."""
        return self.b.below(piece, p.slices) if p.groups * p.slices < self.way.threads else None
