"""Where the values of threads stand while a SIMT kernel becomes loops: once for all threads, computed again where they are wanted, or in
an array with an element a thread.

Code between two points at which threads meet is a loop over threads (`simt_loops`). A value that such a loop computes for a later one is
kept in scratch memory, ``memref<threads x …>``, unless it follows from a thread's number by arithmetic: that is computed again, as it costs
less than memory does (Stratton, Stone, Hwu: MCUDA, 2008; Jääskeläinen et al.: pocl, 2015). Imports the builder and the `cuda` dialect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod

from xdsl.dialects import arith, func, memref
from xdsl.dialects.builtin import FixedBitwidthType, FunctionType, IndexType, IntegerType, MemRefType, VectorType, i8
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.traits import Pure

from lightnet.backends.builder import Builder, Index
from lightnet.backends.cuda.simt import Sizes
from lightnet.backends.simt_memory import async_copy, round_tf32
from lightnet.diagnostics import LightNetError
from lightnet.dialects.cuda_checks import WARP, block_of, is_shared
from lightnet.dialects.cuda_matrix import RoundTf32Op
from lightnet.dialects.cuda_memory import AsyncCommitOp, AsyncCopyOp, AsyncWaitOp
from lightnet.dialects.cuda_simt import (
    BlockDimOp,
    BlockIdOp,
    GridDimOp,
    LaneIdOp,
    SharedOp,
    Shuffle,
    ShuffleOp,
    ThreadIdOp,
    WarpIdOp,
)
from lightnet.runtime.arrays import align_up

#: Bytes of scratch that a block may have, as loops.
MAX_SCRATCH = 1 << 28
#: Ops whose result differs between threads though nothing that they take does.
_OWN = (ThreadIdOp, LaneIdOp, WarpIdOp)


@dataclass(frozen=True)
class Slot:
    """An array in scratch memory, a value a thread: from the byte `offset` on, of [threads, …] elements."""

    offset: int
    type: MemRefType


@dataclass
class Thread:
    """One thread, whose code is being written: its number in the block, and what it has computed so far, by the kernel's own values."""

    number: Index
    values: dict[SSAValue, SSAValue] = field(default_factory=dict)


@dataclass(frozen=True)
class Group:
    """Threads that go one way together: all of a block, or those of a warp."""

    first: Index
    count: int


class Threads:
    """Writes the function of a kernel: what one thread does, and where its values stand."""

    def __init__(self, kernel: func.FuncOp, grid: Sizes, name: str):
        block = block_of(kernel)
        assert block is not None
        self.block, self.grid, self.count = block, grid, prod(block)
        memrefs = [t for t in kernel.body.block.arg_types if isinstance(t, MemRefType)]
        self.b = Builder.kernel(name, [*memrefs, MemRefType(i8, [0])])
        self.scratch = self.b.args[-1]
        self.top = self.size = 0
        #: What all threads of a group have in common, emitted once, outside of the loops over threads.
        self.common = Thread(0, dict(zip(kernel.body.block.args, self.b.args)))
        #: Values that follow from a thread's number, and the op that computes them.
        self.recomputed: dict[SSAValue, Operation] = {}
        self.slots: dict[SSAValue, Slot] = {}
        self.views: dict[Slot, SSAValue] = {}
        self.own: dict[Operation, int] = {}  # where the threads' own memory of an `alloca` begins
        self.number: Index = 0  # of the block in the grid

    def finish(self) -> func.FuncOp:
        """End the function, and give it as much scratch as it takes."""
        function = self.b.finish()
        block = function.body.block
        if not self.size:
            block.erase_arg(block.args[-1])
        else:
            block.args[-1]._type = MemRefType(i8, [self.size])  # its size is known only now
        function.properties["function_type"] = FunctionType.from_lists([*block.arg_types], [])
        return function

    # ---- scratch -------------------------------------------------------------------------------------------------

    @contextmanager
    def scope(self, group: Group) -> Iterator[None]:
        """What is taken inside is free again behind it. Not so of one warp of several, as the next one does all of it again, when what
        stands behind has been written for the first already."""
        top = self.top
        yield
        if group.count == self.count:
            self.top = top

    def take(self, size: int) -> int:
        offset = self.top
        self.top = align_up(offset + size)
        if self.top > MAX_SCRATCH:
            raise LightNetError(f"a block wants more than {MAX_SCRATCH} bytes for what its threads keep")
        self.size = max(self.size, self.top)
        return offset

    def slot(self, type: Attribute) -> Slot:
        """A new array with a value of a scalar or vector type for each thread."""
        element, shape = (type.element_type, type.get_shape()) if isinstance(type, VectorType) else (type, ())
        if not isinstance(element, FixedBitwidthType | IndexType):
            raise LightNetError(f"a {type} cannot be kept from one barrier to the next")
        array = MemRefType(element, [self.count, *shape])
        return Slot(self.take(_bytes(array)), array)

    def view(self, slot: Slot) -> SSAValue:
        """The memref of an array, made in the function's first block."""
        if slot not in self.views:
            at, self.b.block = self.b.block, self.b.entry
            self.views[slot] = self.b.view(self.scratch, slot.offset, slot.type)
            self.b.block = at
        return self.views[slot]

    def keep(self, value: SSAValue, slot: Slot, number: Index) -> None:
        """Write a thread's value to its array."""
        if not isinstance(value.type, VectorType):
            self.b.store(value, self.view(slot), [number])
            return
        rank = len(value.type.get_shape())
        self.b.tile_store(value, self.view(slot), [number, *[0] * rank], range(1, rank + 1))

    def kept(self, slot: Slot, number: Index) -> SSAValue:
        """Read a thread's value from its array."""
        shape = slot.type.get_shape()[1:]
        if not shape:
            return self.b.load(self.view(slot), [number])
        return self.b.tile_load(self.view(slot), [number, *[0] * len(shape)], range(1, len(shape) + 1), shape)

    # ---- values --------------------------------------------------------------------------------------------------

    @contextmanager
    def threads(self, group: Group) -> Iterator[Thread]:
        """A loop over the threads of a group."""
        with self.b.loop(group.first, self.b.add(group.first, group.count)) as loop:
            yield Thread(loop.iv)

    @contextmanager
    def warps(self, group: Group) -> Iterator[Index]:
        """The number of the first thread of each warp of a group: a loop, unless it is one."""
        if group.count == WARP:
            yield group.first
            return
        with self.b.loop(group.first, self.b.add(group.first, group.count), WARP) as loop:
            yield loop.iv

    def settle(self, op: Operation) -> bool:
        """Emit an op that is the same in all threads, or note how to compute it again; whether it is one or the other."""
        if isinstance(op, SharedOp):
            type = op.result.type
            slot = Slot(self.take(_bytes(type)), MemRefType(type.element_type, type.get_shape()))
            self.common.values[op.result] = self.view(slot)
            return True
        if isinstance(op, memref.AllocaOp):
            self.recomputed[op.memref] = op
            return True
        if op.regions or not op.has_trait(Pure):
            return False
        if all(v in self.common.values for v in op.operands) and not self.differs(op):
            self.emit(op, self.common)
            return True
        if not all(v in self.common.values or v in self.recomputed for v in op.operands):
            return False
        self.recomputed.update((r, op) for r in op.results)
        return True

    def differs(self, op: Operation) -> bool:
        """Whether an op gives each thread something else."""
        if isinstance(op, ThreadIdOp):
            return self.block[_axis(op)] > 1
        return isinstance(op, _OWN) and self.count > 1

    def value(self, value: SSAValue, thread: Thread) -> SSAValue:
        """A value as a thread has it, computed or read here if it has not been yet."""
        if value in self.common.values:
            return self.common.values[value]
        waiting = [value]
        while waiting:
            current = waiting[-1]
            op = self.recomputed.get(current)
            if self.is_known(current, thread):
                waiting.pop()
            elif op is None:
                thread.values[current] = self.kept(self.slots[current], thread.number)
            elif missing := [v for v in op.operands if not self.is_known(v, thread)]:
                waiting += missing
            else:
                self.emit(op, thread)
        return thread.values[value]

    def is_known(self, value: SSAValue, thread: Thread) -> bool:
        return value in self.common.values or value in thread.values

    # ---- ops -----------------------------------------------------------------------------------------------------

    def thread_op(self, op: Operation, thread: Thread) -> None:
        """What a thread does for an op that no other thread takes part in, and all that stands in its regions."""
        if op.regions:  # what it takes from outside has to stand in front of it
            inside = {v for o in op.walk() for v in o.results} | set(_arguments(op))
            for inner in op.walk():
                for operand in inner.operands:
                    if operand not in inside:
                        self.value(operand, thread)
        self.emit(op, thread)

    def emit(self, op: Operation, thread: Thread) -> None:
        """The code of one op."""
        special = _OPS.get(type(op))
        if special is not None:
            results = special(self, op, thread)
            thread.values.update(zip(op.results, results))
            return
        operands = [self.value(v, thread) for v in op.operands]
        if isinstance(op, func.CallOp) and any(is_shared(v.type) for v in op.operands):
            raise LightNetError("a function that is called cannot take shared memory")
        regions = [self.region(r, thread) for r in op.regions]
        made = type(op).create(
            operands=operands,
            result_types=list(op.result_types),
            properties=dict(op.properties),
            attributes=dict(op.attributes),
            regions=regions,
        )
        self.b.append(made)
        thread.values.update(zip(op.results, made.results))

    def region(self, region: Region, thread: Thread) -> Region:
        if not region.blocks:
            return Region()
        outer, block = self.b.block, Block(arg_types=region.block.arg_types)
        thread.values.update(zip(region.block.args, block.args))
        self.b.block = block
        for op in region.block.ops:
            self.emit(op, thread)
        self.b.block = outer
        return Region(block)


def _bytes(type: MemRefType) -> int:
    """Bytes of a memref; an i1 is a byte, an index eight."""
    element = type.element_type
    if isinstance(element, IntegerType) and element.width.data == 1:
        size = 1
    else:
        size = element.size if isinstance(element, FixedBitwidthType) else 8
    return prod(type.get_shape()) * size


def _axis(op: ThreadIdOp | BlockIdOp | GridDimOp | BlockDimOp) -> int:
    return "xyz".index(op.dim.data)


def _arguments(op: Operation) -> Iterator[SSAValue]:
    """The arguments of all blocks inside of an op."""
    for inner in op.walk():
        for region in inner.regions:
            for block in region.blocks:
                yield from block.args


# ---- ops of the cuda dialect: each gives its results --------------------------------------------------------------------


def _along(e: Threads, number: Index, sizes: Sizes, axis: int) -> SSAValue:
    """A coordinate of a number that runs over a box, x fastest."""
    if sizes[axis] == 1:
        return e.b.index(0)
    if axis:
        number = e.b.divmod(number, prod(sizes[:axis]))[0]
    return e.b.index(number) if prod(sizes[axis + 1 :]) == 1 else e.b.divmod(number, sizes[axis])[1]


def _alloca(e: Threads, op: memref.AllocaOp, thread: Thread) -> list[SSAValue]:
    """A thread's own memory: a piece of scratch."""
    size = align_up(_bytes(op.memref.type))
    if op not in e.own:
        e.own[op] = e.take(size * e.count)
    at = e.b.add(e.own[op], e.b.mul(thread.number, size))
    return [e.b.view(e.scratch, at, op.memref.type)]


def _shuffle(e: Threads, op: ShuffleOp, thread: Thread) -> list[SSAValue]:
    """The value of another lane, which stands in its array, or follows from its number. A lane beyond the warp is the lane itself."""
    b = e.b
    number = b.index(thread.number)
    lane, by = b.divmod(number, WARP)[1], e.value(op.lane, thread)
    last = b.index(WARP - 1)
    match op.mode.data:
        case Shuffle.XOR:
            source = b.op(arith.XOrIOp, lane, b.op(arith.AndIOp, by, last))
        case Shuffle.IDX:
            source = b.op(arith.AndIOp, by, last)
        case Shuffle.DOWN:
            beyond = b.add(lane, by)
            source = b.select(b.cmpi("ule", beyond, last), beyond, lane)
        case Shuffle.UP:
            source = b.select(b.cmpi("ule", by, lane), b.op(arith.SubiOp, lane, by), lane)
    other = Thread(b.add(b.op(arith.SubiOp, number, lane), source))
    return [e.value(op.value, other)]


def b_number(e: Threads, thread: Thread) -> SSAValue:
    return e.b.index(thread.number)


def _copy(e: Threads, op: AsyncCopyOp, thread: Thread) -> list[SSAValue]:
    async_copy(e.b, op, lambda v: e.value(v, thread))
    return []


_OPS: dict[type[Operation], Callable[..., list[SSAValue]]] = {
    ThreadIdOp: lambda e, op, thread: [_along(e, thread.number, e.block, _axis(op))],
    BlockIdOp: lambda e, op, thread: [_along(e, e.number, e.grid, _axis(op))],
    BlockDimOp: lambda e, op, thread: [e.b.index(e.block[_axis(op)])],
    GridDimOp: lambda e, op, thread: [e.b.index(e.grid[_axis(op)])],
    LaneIdOp: lambda e, op, thread: [e.b.divmod(thread.number, WARP)[1]],
    WarpIdOp: lambda e, op, thread: [e.b.divmod(thread.number, WARP)[0]],
    memref.AllocaOp: _alloca,
    ShuffleOp: _shuffle,
    AsyncCopyOp: _copy,
    AsyncCommitOp: lambda e, op, thread: [],
    AsyncWaitOp: lambda e, op, thread: [],
    RoundTf32Op: lambda e, op, thread: [round_tf32(e.b, e.value(op.value, thread))],
}
