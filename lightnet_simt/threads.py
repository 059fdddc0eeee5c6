"""The places of the values of threads while a SIMT kernel becomes loops: once for all threads, computed again where
they are wanted, or in an array with an element a thread.

Code between two points at which threads meet is a loop over threads (`simt_loops`). A value that such a loop computes
for a later one is kept in scratch memory, ``memref<threads x …>``, unless it follows from a thread's number by
arithmetic: that is computed again, as it costs less than memory does (Stratton, Stone, Hwu: MCUDA, 2008; Jääskeläinen
et al.: pocl, 2015). Imports the builder and the `cuda` dialect.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod

from xdsl.dialects import arith, func, memref
from xdsl.dialects.builtin import FixedBitwidthType, FunctionType, IndexType, MemRefType, VectorType, i8
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.traits import Pure

from lightnet.backends.builder import Builder, Index
from lightnet.backends.cuda.simt import GridSizes
from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError
from lightnet.dialects.cuda_checks import WARP, block_of, is_shared
from lightnet.dialects.cuda_hopper import WarpgroupMmaOp
from lightnet.dialects.cuda_simt import LaneIdOp, SharedOp, ThreadIdOp, WarpIdOp
from lightnet.dialects.cuda_stages import constant_index
from lightnet.dialects.launch import kernel_symbols
from lightnet.runtime.arrays import align_up
from lightnet.runtime.dims import Dim
from lightnet_simt.ops import OPS, Thread, axis, bytes_of
from lightnet_simt.warpgroups import SUMS_DIMS, sums_array, sums_at

#: Bytes of scratch that a block may have, as loops.
MAX_SCRATCH = 1 << 28
#: Ops whose result differs between threads though nothing that they take does.
_OWN = (ThreadIdOp, LaneIdOp, WarpIdOp)


@dataclass(frozen=True)
class Slot:
    """An array in scratch memory, a value a thread: from the byte `offset` on, of [threads, …] elements; or, if they
    are `sums` of warpgroups, as `sums_array` has them."""

    offset: int
    type: MemRefType
    sums: bool = False


@dataclass(frozen=True)
class ThreadGroup:
    """Threads that go one way together: all of a block, or those of a warp."""

    first: Index
    count: int


class ThreadLoops:
    """Writes the function of a kernel: what one thread does, and where its values stand."""

    def __init__(self, kernel: func.FuncOp, grid: GridSizes, name: str):
        block = block_of(kernel)
        assert block is not None
        self.block, self.grid, self.count = block, grid, prod(block)
        memrefs = [a for a in kernel.body.block.args if isinstance(a.type, MemRefType)]
        types, hints = [*(a.type for a in memrefs), MemRefType(i8, [0])], [*(a.name_hint for a in memrefs), "scratch"]
        taken = kernel_symbols(kernel)
        symbols = {*taken, *(s.name for size in grid if isinstance(size, Dim) for s in size.symbols)}
        self.b = Builder.kernel(name, types, hints=hints, location=kernel.location, symbols=symbols)
        self.scratch = self.b.args[-1]
        self.top = self.size = 0
        #: What all threads of a group have in common, emitted once, outside of the loops over threads.
        given = (*map(self.b.symbol_value, taken), *self.b.args)
        self.common = Thread(0, dict(zip(kernel.body.block.args, given)))
        #: Values that follow from a thread's number, and the op that computes them.
        self.recomputed: dict[SSAValue, Operation] = {}
        self.slots: dict[SSAValue, Slot] = {}
        self.views: dict[Slot, SSAValue] = {}
        self.own: dict[Operation, int] = {}  # where the threads' own memory of an `alloca` begins
        self.number: Index = 0  # of the block in the grid
        #: The types of values that are sums of warpgroups: all values of such a type stand as matrices.
        self.sums = {op.result.type for op in kernel.walk() if isinstance(op, WarpgroupMmaOp)}

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
    def scope(self, group: ThreadGroup) -> Iterator[None]:
        """Free what is taken inside when it ends. Not so of one warp of several, as the next one does all of it
        again, when what stands behind has been written for the first already."""
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
        if type in self.sums:
            assert isinstance(type, VectorType)
            array = sums_array(self.count, 8 * type.get_shape()[0])
            return Slot(self.take(bytes_of(array)), array, sums=True)
        element, shape = (type.element_type, type.get_shape()) if isinstance(type, VectorType) else (type, ())
        if not isinstance(element, FixedBitwidthType | IndexType):
            raise LightNetError(f"a {type} cannot be kept from one barrier to the next")
        array = MemRefType(element, [self.count, *shape])
        return Slot(self.take(bytes_of(array)), array)

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
        at, dims = self.place(slot, number)
        self.b.tile_store(value, self.view(slot), at, dims)

    def kept(self, slot: Slot, number: Index) -> SSAValue:
        """Read a thread's value from its array."""
        if slot.type.get_num_dims() == 1:
            return self.b.load(self.view(slot), [number])
        at, dims = self.place(slot, number)
        return self.b.tile_load(self.view(slot), at, dims, [slot.type.get_shape()[d] for d in dims])

    def place(self, slot: Slot, number: Index) -> tuple[Sequence[Index], Sequence[int]]:
        """The start of a thread's vector in its array, and the dimensions along which it lies."""
        if slot.sums:
            return sums_at(self.b, number), SUMS_DIMS
        dims = range(1, slot.type.get_num_dims())
        return [number, *[0 for _ in dims]], dims

    # ---- values --------------------------------------------------------------------------------------------------

    @contextmanager
    def threads(self, group: ThreadGroup) -> Iterator[Thread]:
        """A loop over the threads of a group."""
        with self.b.loop(group.first, self.b.add(group.first, group.count), name="thread") as loop:
            yield Thread(loop.iv)

    @contextmanager
    def warps(self, group: ThreadGroup) -> Iterator[Index]:
        """The number of the first thread of each warp of a group: a loop, unless it is one."""
        if group.count == WARP:
            yield group.first
            return
        with self.b.loop(group.first, self.b.add(group.first, group.count), WARP, name="warp") as loop:
            yield loop.iv

    def settle(self, op: Operation) -> bool:
        """Emit an op that is the same in all threads, or note how to compute it again; whether it is one or the
        other."""
        if isinstance(op, SharedOp):
            type = op.result.type
            slot = Slot(self.take(bytes_of(type)), MemRefType(type.element_type, type.get_shape()))
            self.common.values[op.result] = self.view(slot)
            return True
        if isinstance(op, memref.AllocaOp):
            self.recomputed[op.memref] = op
            return True
        if op.regions or not (op.has_trait(Pure) or _divides(op) or isinstance(op, memref.ViewOp)):
            return False
        if all(v in self.common.values for v in op.operands) and not self.differs(op):
            self.emit(op, self.common)
            return True
        if not all(v in self.common.values or v in self.recomputed for v in op.operands):
            return False
        self.recomputed.update((r, op) for r in op.results)
        return True

    def differs(self, op: Operation) -> bool:
        """Return whether an op gives each thread something else."""
        if isinstance(op, ThreadIdOp):
            return self.block[axis(op)] > 1
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
        """Write a thread's part of an op that no other thread takes part in, and of all that stands in its regions."""
        if op.regions:  # what it takes from outside has to stand in front of it
            inside = {v for o in op.walk() for v in o.results} | set(_arguments(op))
            for inner in op.walk():
                for operand in inner.operands:
                    if operand not in inside:
                        self.value(operand, thread)
        self.emit(op, thread)

    def emit(self, op: Operation, thread: Thread) -> None:
        """The code of one op."""
        outside, self.b.location = self.b.location, op.location
        results = self.made(op, thread)
        self.b.location = outside
        for value, result in zip(op.results, results):
            thread.values[value] = result
            if result.name_hint is None:
                result.name_hint = value.name_hint

    def made(self, op: Operation, thread: Thread) -> Sequence[SSAValue]:
        """The results of the code of one op."""
        if (special := OPS.get(type(op))) is not None:
            return special(self, op, thread)
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
        return self.b.append(made).results

    def region(self, region: Region, thread: Thread) -> Region:
        if not region.blocks:
            return Region()
        outer, block = self.b.block, Block(arg_types=region.block.arg_types)
        for arg, made in zip(region.block.args, block.args):
            thread.values[arg], made.name_hint = made, arg.name_hint
        self.b.block = block
        for op in region.block.ops:
            self.emit(op, thread)
        self.b.block = outer
        return Region(block)


def _divides(op: Operation) -> bool:
    """Return whether an op divides by a positive constant, which never fails."""
    if not isinstance(op, arith.DivSIOp | arith.DivUIOp | arith.CeilDivUIOp | arith.RemUIOp):
        return False
    divisor = constant_index(op.rhs)
    return divisor is not None and divisor > 0


def _arguments(op: Operation) -> Iterator[SSAValue]:
    """The arguments of all blocks inside of an op."""
    for inner in op.walk():
        for region in inner.regions:
            for block in region.blocks:
                yield from block.args
