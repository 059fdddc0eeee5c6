"""A SIMT kernel as a loop function: what the threads of a block do between two points at which they meet becomes a loop
over them.

    cuda.barrier between two pieces     →    for t in threads: first piece;    for t in threads: second piece
    scf.for with a barrier inside       →    scf.for { for t in threads: … ; for t in threads: … }, bounds made once

Threads meet at barriers, and those of a warp at shuffles, `ldmatrix` and `mma`: there, all of them stand in the same
control flow (the verifier proves it), which so can stand around the loops over threads. All of a block meet also where
warpgroups begin a product, and where they all wait for an mbarrier. Asynchronous copies and products are done at once.
So a wait that is missing goes unnoticed here, and a barrier that is missing often does; the PTX interpreter finds both.
Imports `threads` and the `cuda` dialect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from xdsl.dialects import func, scf
from xdsl.dialects.builtin import VectorType
from xdsl.ir import Block, BlockArgument, Operation, Region, SSAValue, Use
from xdsl.traits import IsTerminator
from xdsl.utils.exceptions import VerifyException

from lightnet.backends.cuda.simt import GridSizes
from lightnet.diagnostics import LightNetError
from lightnet.dialects.cuda_checks import BLOCK_ATTRIBUTE, WARP, require_uniform
from lightnet.dialects.cuda_hopper import WarpgroupMmaOp, WarpgroupWaitOp
from lightnet.dialects.cuda_matrix import LdmatrixOp, MmaOp
from lightnet.dialects.cuda_mbarrier import MbarrierWaitOp
from lightnet.dialects.cuda_simt import BarrierOp, ShuffleOp
from lightnet.dialects.cuda_stages import WARPGROUP, WARPGROUP_ROWS
from lightnet.dialects.launch import SYMBOLS
from lightnet.ir.types import memref_type_of
from lightnet_simt.ops import Thread
from lightnet_simt.threads import Slot, ThreadGroup, ThreadLoops
from lightnet_simt.warpgroups import Helpers, product_types
from lightnet_simt.warps import mma_types, read_row

#: Ops at which the threads of a warp meet.
_WARP_OPS = (ShuffleOp, LdmatrixOp, MmaOp)
#: Ops at which all threads of the block meet.
_BLOCK_OPS = (BarrierOp, WarpgroupMmaOp, WarpgroupWaitOp)
#: What a loop over threads ends with, and the operands that it takes there: those of an op, from a number on.
Finish = tuple[Callable[[Thread], None], Operation, int]


def simt_loops_of(kernel: func.FuncOp, grid: GridSizes, name: str, helpers: Helpers) -> tuple[func.FuncOp, int]:
    """The loop function of a kernel for a grid, whose blocks are numbered x fastest, and the bytes of scratch that it
    takes: its last memref, if there are any. Raises `LightNetError` for a kernel with control flow or types that
    nothing is known of, and for one whose blocks want more than `simt_threads.MAX_SCRATCH` bytes."""
    if len(kernel.body.blocks) != 1:
        raise LightNetError("its control flow is not that of scf: it has several blocks")
    return _Loops(kernel, grid, name, helpers).run()


class _Loops:
    def __init__(self, kernel: func.FuncOp, grid: GridSizes, name: str, helpers: Helpers):
        self.kernel, self.helpers = kernel, helpers
        self.e = ThreadLoops(kernel, grid, name)
        self.b = self.e.b
        ops = list(kernel.walk())
        waits = [op for op in ops if isinstance(op, MbarrierWaitOp)]
        block = [op for op in ops if isinstance(op, _BLOCK_OPS) or (op in waits and _of_all(op))]
        #: What warps meet in, what all threads of the block meet in, and what some of them wait in for others.
        self.meeting = _around([op for op in ops if isinstance(op, _WARP_OPS)] + block)
        self.waiting = _around(block)
        self.parting = _around(waits) - self.waiting

    def run(self) -> tuple[func.FuncOp, int]:
        kept = {k: v for k, v in self.kernel.attributes.items() if k not in (BLOCK_ATTRIBUTE, SYMBOLS)}
        self.b.function.attributes.update(kept)
        with self.b.loop(self.b.lo, self.b.hi, name="block") as blocks:
            self.e.number = blocks.iv
            self.block(self.kernel.body.block, ThreadGroup(0, self.e.count))
        return self.e.finish(), self.e.size

    # ---- blocks of ops -------------------------------------------------------------------------------------------

    def block(self, block: Block, group: ThreadGroup, finish: Finish | None = None) -> None:
        """The ops of a block; behind them, for each thread, `finish`."""
        with self.e.scope(group):
            strip: list[Operation] = []
            for op in block.ops:
                if op.has_trait(IsTerminator):
                    break
                if op not in self.waiting:
                    if op in self.parting:  # what they wait for has been done by all, though not in order
                        self.strip(strip, group)
                        strip = []
                    strip.append(op)
                    continue
                self.control(op, group, partial(self.strip, strip, group))
                strip = []
            self.strip(strip, group, finish)

    def strip(self, ops: list[Operation], group: ThreadGroup, finish: Finish | None = None) -> None:
        """Ops between two barriers. Where threads of a warp meet, each warp does all of them before the next one."""
        if group.count == WARP or not any(op in self.meeting for op in ops):
            self.ops(ops, group, finish)
            return
        ops = [op for op in ops if not self.e.settle(op)]  # out here, where what follows has it, too
        with self.e.warps(group) as first:
            self.ops(ops, ThreadGroup(first, WARP), finish)

    def ops(self, ops: list[Operation], group: ThreadGroup, finish: Finish | None) -> None:
        """Ops without a barrier."""
        piece: list[Operation] = []
        for op in ops:
            if isinstance(op, ShuffleOp):
                if any(op.value in o.results for o in piece):
                    self.piece(piece, group)
                piece.append(op)
            elif op in self.meeting:
                self.control(op, group, partial(self.piece, piece, group))
            elif not self.e.settle(op):
                piece.append(op)
        if finish is not None and any(isinstance(o, ShuffleOp) and isinstance(o.value, BlockArgument) for o in piece):
            self.piece(piece, group)  # its array is read in other lanes, and would be written
        self.piece(piece, group, finish)

    def piece(self, ops: list[Operation], group: ThreadGroup, finish: Finish | None = None) -> None:
        """A loop over threads of ops that meet nobody, which are taken off the list. What they compute for others is
        kept."""
        if not ops and finish is None:
            return
        inside = set(ops)
        with self.e.threads(group) as thread:
            for op in ops:
                self.e.thread_op(op, thread)
                for result in op.results:
                    if any(not _is_within(use, inside, finish) for use in result.uses):
                        slot = self.e.slots[result] = self.e.slot(result.type)
                        self.e.keep(thread.values[result], slot, thread.number)
            if finish is not None:
                finish[0](thread)
        ops.clear()

    # ---- where threads meet --------------------------------------------------------------------------------------

    def control(self, op: Operation, group: ThreadGroup, before: Callable[..., None]) -> None:
        """An op at which threads meet, or control flow with one inside. `before`, with or without a `Finish`, makes
        what comes before."""
        self.b.location = op.location
        match op:
            case scf.ForOp():
                self.for_(op, group, before)
            case scf.IfOp():
                self.if_(op, group, before)
            case scf.WhileOp():
                self.while_(op, group, before)
            case LdmatrixOp():
                before()
                self.ldmatrix(op, group)
            case MmaOp():
                before()
                self.mma(op, group)
            case WarpgroupMmaOp():
                before()
                self.product(op, group)
            case WarpgroupWaitOp():
                before()
                for value, result in zip(op.sums, op.res):
                    self.e.slots[result] = self.taken(value, op, group)
            case BarrierOp() | MbarrierWaitOp():
                before()
            case _:
                raise LightNetError(f"threads meet inside of a {op.name}, and nothing is known of its control flow")

    def first(self, value: SSAValue, group: ThreadGroup) -> SSAValue:
        """A value that is the same in all threads of a group, as its first thread has it."""
        return self.e.value(value, Thread(group.first))

    def arrays(self, *values: Sequence[SSAValue]) -> None:
        """Arrays for values, one for each of those that stand for the same."""
        for same in zip(*values):
            slot = self.e.slot(same[0].type)
            self.e.slots.update((value, slot) for value in same)

    def passing(self, values: Sequence[SSAValue], to: Sequence[SSAValue], op: Operation, at: int) -> Finish:
        """The end of a piece in which each thread passes values, the operands of `op` from number `at` on, to the
        arrays of others."""

        def finish(thread: Thread) -> None:
            moved = [(v, t) for v, t in zip(values, to) if self.e.slots.get(v) != self.e.slots[t]]
            own = [self.e.value(v, thread) for v, _ in moved]  # all are read before any is written
            for value, (_, target) in zip(own, moved):
                self.e.keep(value, self.e.slots[target], thread.number)

        return finish, op, at

    def for_(self, op: scf.ForOp, group: ThreadGroup, before: Callable[..., None]) -> None:
        block, last = op.body.block, op.body.block.last_op
        assert last is not None
        self.arrays(block.args[1:], op.results)
        before(self.passing(op.iter_args, block.args[1:], op, 3) if op.iter_args else None)
        lower, upper, step = (self.first(v, group) for v in (op.lb, op.ub, op.step))
        with self.b.loop(lower, upper, step, name=block.args[0].name_hint) as loop:
            self.e.common.values[block.args[0]] = loop.iv
            finish = self.passing(last.operands, block.args[1:], last, 0) if op.iter_args else None
            self.block(block, group, finish)

    def if_(self, op: scf.IfOp, group: ThreadGroup, before: Callable[..., None]) -> None:
        self.arrays(op.results)
        before()

        def arm(region: Region) -> list[SSAValue]:
            last = region.block.last_op
            assert last is not None
            self.block(region.block, group, self.passing(last.operands, op.results, last, 0) if op.results else None)
            return []

        condition = self.first(op.cond, group)
        if op.false_region.blocks:
            self.b.choose(condition, lambda: arm(op.true_region), lambda: arm(op.false_region))
        else:
            with self.b.when(condition):
                arm(op.true_region)

    def while_(self, op: scf.WhileOp, group: ThreadGroup, before: Callable[..., None]) -> None:
        test, body = op.before_region.block, op.after_region.block
        condition, last = test.last_op, body.last_op
        assert isinstance(condition, scf.ConditionOp) and last is not None
        self.arrays(test.args)
        self.arrays(body.args, op.results)
        before(self.passing(op.arguments, test.args, op, 0) if test.args else None)
        outer = self.b.block
        first = self.b.block = Block()
        self.block(test, group, self.passing(condition.args, body.args, condition, 1) if body.args else None)
        self.b.append(scf.ConditionOp(self.first(condition.condition, group)))
        second = self.b.block = Block()
        self.block(body, group, self.passing(last.operands, test.args, last, 0) if test.args else None)
        self.b.append(scf.YieldOp())
        self.b.block = outer
        self.b.append(scf.WhileOp([], [], Region(first), Region(second)))

    # ---- fragments -----------------------------------------------------------------------------------------------

    def ldmatrix(self, op: LdmatrixOp, group: ThreadGroup) -> None:
        """Lane 8m + r has the beginning of row r of matrix m, whose elements go to the lanes that get them."""
        slot = self.e.slots[op.result] = self.e.slot(op.result.type)
        fragments = self.e.view(slot)
        with self.e.warps(group) as first, self.b.loop(0, 8 * op.tiles.value.data, name="lane") as lane:
            thread = Thread(self.b.add(first, lane.iv))
            matrix, row = self.b.divmod(lane.iv, 8)
            source, indices = self.e.value(op.memref, thread), [self.e.value(v, thread) for v in op.indices]
            read_row(self.b, source, indices, fragments, (first, matrix, row), op.trans is not None)

    def mma(self, op: MmaOp, group: ThreadGroup) -> None:
        """A call for each warp, on the arrays of the fragments. A sum that nobody else reads is added to in place."""
        element = op.a.type.element_type
        in_place = isinstance(op.c, BlockArgument) or isinstance(op.c.owner, MmaOp)
        in_place = in_place and _is_last_use(op.c, op)
        slot = self.e.slots[op.c] if in_place else self.e.slot(op.result.type)
        self.e.slots[op.result] = slot
        callee, types = self.helpers.mma(element, self.e.count), mma_types(element, self.e.count)
        with self.e.scope(group):
            slots = [*(self.array_of(v, group) for v in (op.a, op.b, op.c)), slot]
            views = [self.e.view(Slot(s.offset, t)) for s, t in zip(slots, types)]
            with self.e.warps(group) as first:
                self.b.append(func.CallOp(callee, [self.b.index(first), *views], []))

    # ---- products by warpgroups ----------------------------------------------------------------------------------

    def product(self, op: WarpgroupMmaOp, group: ThreadGroup) -> None:
        """A call for each warpgroup, which adds to its sums in place."""
        assert isinstance(op.c.type, VectorType)
        slot = self.e.slots[op.result] = self.taken(op.c, op, group)
        a, right = (self.e.common.values[v] for v in (op.a, op.b))
        types = product_types(memref_type_of(a), memref_type_of(right), self.e.count, 8 * op.c.type.get_shape()[0])
        callee, sums = self.helpers.product(types, op.by_k is not None), self.e.view(Slot(slot.offset, types[2]))
        with self.b.loop(0, self.e.count // WARPGROUP, name="number") as number:
            thread = Thread(self.b.mul(number.iv, WARPGROUP))
            row, first = (self.e.value(v, thread) for v in (op.row, op.first))
            self.b.append(func.CallOp(callee, [self.b.mul(number.iv, WARPGROUP_ROWS), row, first, a, right, sums], []))

    def taken(self, value: SSAValue, op: Operation, group: ThreadGroup) -> Slot:
        """An array with a value that `op` may write: that of the value, if nobody else reads it, or a copy."""
        if value in self.e.slots and _is_last_use(value, op):
            return self.e.slots[value]
        return self.copied(value, group)

    def array_of(self, value: SSAValue, group: ThreadGroup) -> Slot:
        """The array of a value, made now where it is none that is kept."""
        return self.e.slots[value] if value in self.e.slots else self.copied(value, group)

    def copied(self, value: SSAValue, group: ThreadGroup) -> Slot:
        """A new array with a value."""
        slot = self.e.slot(value.type)
        with self.e.threads(group) as thread:
            self.e.keep(self.e.value(value, thread), slot, thread.number)
        return slot


def _around(ops: Iterable[Operation]) -> set[Operation]:
    """Ops, and all that they stand in."""
    found = set[Operation]()
    for op in ops:
        inner: Operation | None = op
        while inner is not None and inner not in found:
            found.add(inner)
            inner = inner.parent_op()
    return found


def _of_all(op: Operation) -> bool:
    """Return whether all threads of the block come to an op together."""
    try:
        require_uniform(op, "block")
    except VerifyException:
        return False
    return True


def _is_last_use(value: SSAValue, op: Operation) -> bool:
    """Return whether nothing reads a value but `op`, once for each time that it is computed: its array is free behind
    it.
    """
    block = value.block if isinstance(value, BlockArgument) else value.owner.parent_block()
    return value.has_one_use() and block is op.parent_block()


def _is_within(use: Use, inside: set[Operation], finish: Finish | None) -> bool:
    """Return whether a value is used in a piece: by one of its ops, by what stands in one, or by what the piece ends
    with.
    """
    op: Operation | None = use.operation
    if finish is not None and op is finish[1]:
        return use.index >= finish[2]
    while op is not None and op not in inside:
        op = op.parent_op()
    return op is not None
