"""One thread's part of the product of a state with the weights of a recurrent layer: a few neighbouring columns of
[H, G], which are one access of 16 bytes, so that lanes read neighbouring addresses, times one slice of the state's
elements. Imports the builder of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import MemRefType
from xdsl.ir import SSAValue

from lightnet.backends.builder import Index, vector_type
from lightnet.backends.cuda.simt import Simt

#: Bytes of an access; slices of a sum, all of which are in code; rows of weights that are on their way to a thread at a
#: time.
ACCESS, MOST_SLICES, AHEAD = 16, 16, 8


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
        for ahead in (AHEAD // lanes, 1):
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
