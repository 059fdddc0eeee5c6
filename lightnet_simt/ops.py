"""One thread's part of an op of `cuda`: the table `OPS`, by which `simt_threads` writes it. Each gives the op's
results.

What the op says of other threads is done elsewhere (`simt_loops`), or needs nothing, where threads run one after the
other. Imports the builder and the `cuda` dialect.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING

from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import FixedBitwidthType, IntegerType, MemRefType
from xdsl.ir import Operation, SSAValue

from lightnet.backends.builder import Index
from lightnet.backends.cuda.simt import GridSizes
from lightnet.dataclasses import dataclass, field
from lightnet.dialects.cuda_checks import WARP
from lightnet.dialects.cuda_hopper import TmaLoadOp
from lightnet.dialects.cuda_matrix import RoundTf32Op
from lightnet.dialects.cuda_mbarrier import (
    MbarrierArriveOp,
    MbarrierExpectOp,
    MbarrierFenceOp,
    MbarrierInitOp,
    MbarrierWaitOp,
)
from lightnet.dialects.cuda_memory import AsyncCommitOp, AsyncCopyOp, AsyncWaitOp
from lightnet.dialects.cuda_simt import (
    BlockDimOp,
    BlockIdOp,
    GridDimOp,
    LaneIdOp,
    Shuffle,
    ShuffleOp,
    ThreadIdOp,
    WarpIdOp,
)
from lightnet.runtime.arrays import align_up
from lightnet_simt.memory import async_copy, round_tf32, tma_load

if TYPE_CHECKING:
    from lightnet_simt.threads import ThreadLoops


@dataclass
class Thread:
    """One thread, whose code is being written: its number in the block, and what it has computed so far, by the
    kernel's own values."""

    number: Index
    values: dict[SSAValue, SSAValue] = field(default_factory=dict)


def bytes_of(type: MemRefType) -> int:
    """Bytes of a memref; an i1 is a byte, an index eight."""
    element = type.element_type
    if isinstance(element, IntegerType) and element.width.data == 1:
        size = 1
    else:
        size = element.size if isinstance(element, FixedBitwidthType) else 8
    return prod(type.get_shape()) * size


def axis(op: ThreadIdOp | BlockIdOp | GridDimOp | BlockDimOp) -> int:
    """The dimension that an op asks of: 0 for x."""
    return "xyz".index(op.dim.data)


def _along(e: ThreadLoops, number: Index, sizes: GridSizes, axis: int) -> SSAValue:
    """A coordinate of a number that runs over a box, x fastest."""
    if sizes[axis] == 1:
        return e.b.index(0)
    if axis:
        number = e.b.divmod(number, prod(sizes[:axis]))[0]
    return e.b.index(number) if prod(sizes[axis + 1 :]) == 1 else e.b.divmod(number, sizes[axis])[1]


def _alloca(e: ThreadLoops, op: memref.AllocaOp, thread: Thread) -> list[SSAValue]:
    """A thread's own memory: a piece of scratch."""
    size = align_up(bytes_of(op.memref.type))
    if op not in e.own:
        e.own[op] = e.take(size * e.count)
    at = e.b.add(e.own[op], e.b.mul(thread.number, size))
    return [e.b.view(e.scratch, at, op.memref.type)]


def _shuffle(e: ThreadLoops, op: ShuffleOp, thread: Thread) -> list[SSAValue]:
    """The value of another lane, which stands in its array, or follows from its number. A lane beyond the warp is the
    lane itself."""
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


def _copy(e: ThreadLoops, op: AsyncCopyOp, thread: Thread) -> list[SSAValue]:
    async_copy(e.b, op, lambda v: e.value(v, thread))
    return []


def _tma_load(e: ThreadLoops, op: TmaLoadOp, thread: Thread) -> list[SSAValue]:
    tma_load(e.b, op, lambda v: e.value(v, thread))
    return []


def _nothing(e: ThreadLoops, op: Operation, thread: Thread) -> list[SSAValue]:
    """Of an op that only has threads wait for what has been done here."""
    return []


OPS: dict[type[Operation], Callable[..., list[SSAValue]]] = {
    ThreadIdOp: lambda e, op, thread: [_along(e, thread.number, e.block, axis(op))],
    BlockIdOp: lambda e, op, thread: [_along(e, e.number, e.grid, axis(op))],
    BlockDimOp: lambda e, op, thread: [e.b.index(e.block[axis(op)])],
    GridDimOp: lambda e, op, thread: [e.b.index(e.grid[axis(op)])],
    LaneIdOp: lambda e, op, thread: [e.b.divmod(thread.number, WARP)[1]],
    WarpIdOp: lambda e, op, thread: [e.b.divmod(thread.number, WARP)[0]],
    memref.AllocaOp: _alloca,
    ShuffleOp: _shuffle,
    AsyncCopyOp: _copy,
    AsyncCommitOp: _nothing,
    AsyncWaitOp: _nothing,
    MbarrierInitOp: _nothing,
    MbarrierFenceOp: _nothing,
    MbarrierExpectOp: _nothing,
    MbarrierArriveOp: _nothing,
    MbarrierWaitOp: _nothing,
    TmaLoadOp: _tma_load,
    RoundTf32Op: lambda e, op, thread: [round_tf32(e.b, e.value(op.value, thread))],
}
