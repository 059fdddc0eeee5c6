"""What has to hold of a whole kernel with ops of `cuda_hopper`: who may touch what copies and products work on while they are under way.

`verify_cuda` asks it once a kernel. Imports xDSL, `cuda_hopper` and `cuda_stages`.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects import scf
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue, Use
from xdsl.utils.exceptions import VerifyException

from lightnet.dialects.cuda_checks import shared_allocations
from lightnet.dialects.cuda_hopper import (
    MbarrierArriveOp,
    MbarrierExpectOp,
    MbarrierFenceOp,
    MbarrierInitOp,
    MbarrierWaitOp,
    TmaLoadOp,
    WarpgroupMmaOp,
    WarpgroupWaitOp,
    is_swizzled,
    tensor_maps,
)
from lightnet.runtime.cuda.tensor_map import ALIGNMENT, BYTES

#: What has the ops.
ARCH = "sm_90a"
#: Bytes of a kernel's parameters (PTX ISA, "Kernel Function Parameters", before 8.1).
MOST_PARAMETERS = 4096
_MBARRIER = (MbarrierInitOp, MbarrierExpectOp, MbarrierArriveOp, MbarrierWaitOp)
OPS = (*_MBARRIER, MbarrierFenceOp, TmaLoadOp, WarpgroupMmaOp, WarpgroupWaitOp)


def verify_flight(function: FuncOp, arch: str) -> None:
    """Raises VerifyException where a kernel has ops that an architecture lacks, or

    * takes more bytes of parameters than a kernel has, tensor maps among them;
    * reads a tensor by a copy and in another way too, or by two maps;
    * touches the rows of a stage, or an mbarrier, by ops of another kind;
    * uses sums that are under way for anything but products and waits, or twice, or ends without waiting for them.
    """
    ops = [op for op in function.walk() if isinstance(op, OPS)]
    if not ops:
        return
    if arch != ARCH:
        raise VerifyException(f"{ops[0].name} is of {ARCH}, and the kernel is for {arch}")
    _verify_parameters(function)
    _verify_sources(function)
    for allocation in shared_allocations(function):
        _verify_memory(allocation.results[0])
    _verify_sums([op.result for op in ops if isinstance(op, WarpgroupMmaOp)])


def _verify_parameters(function: FuncOp) -> None:
    maps, end = tensor_maps(function), 0
    for number in range(len(function.body.block.args)):
        size, align = (BYTES, ALIGNMENT) if number in maps else (8, 8)
        end = -(-end // align) * align + size
    if end > MOST_PARAMETERS:
        raise VerifyException(
            f"a kernel takes {MOST_PARAMETERS} bytes of parameters, and these are {end}: a tensor map has {BYTES}"
        )


def _verify_sources(function: FuncOp) -> None:
    for number, map in tensor_maps(function).items():
        for use in function.body.block.args[number].uses:
            op = use.operation
            if not isinstance(op, TmaLoadOp):
                raise VerifyException(f"argument {number} is copied by a tensor map, and {op.name} takes it, too")
            if op.map != map:
                raise VerifyException(f"argument {number} is copied by two tensor maps: {map} and {op.map}")


def _verify_memory(memory: SSAValue) -> None:
    """Rows of a stage lie swizzled, and mbarriers are no numbers: only ops that know of it touch them."""
    others = [use.operation.name for use in memory.uses if not _is_stage(use)]
    if is_swizzled(memory) and others:
        raise VerifyException(
            f"rows of a stage are of cuda.tma_load and cuda.warpgroup_mma alone; {others[0]} takes them, too"
        )
    others = [use.operation.name for use in memory.uses if not _is_mbarrier(use)]
    if len(others) not in (0, len(list(memory.uses))):
        raise VerifyException(f"mbarriers are of their own ops alone; {others[0]} takes them, too")


def _is_stage(use: Use) -> bool:
    op = use.operation
    return isinstance(op, WarpgroupMmaOp) or (isinstance(op, TmaLoadOp) and op.operands[use.index] is op.destination)


def _is_mbarrier(use: Use) -> bool:
    op = use.operation
    return isinstance(op, _MBARRIER) or (isinstance(op, TmaLoadOp) and op.operands[use.index] is op.barriers)


# ---- sums under way ----------------------------------------------------------------------------------------------------


def _verify_sums(begun: list[SSAValue]) -> None:
    """Follow sums from the products that began them to the wait that leaves none pending."""
    seen, waiting = set(begun), list(begun)
    while waiting:
        sums = waiting.pop()
        uses = list(sums.uses)
        if not uses:
            raise VerifyException(
                "nobody waits for sums that are under way: a cuda.warpgroup_wait with pending 0 ends them"
            )
        if len(uses) > 1:
            raise VerifyException(
                f"sums that are under way stand in registers that the product changes: {uses[0].operation.name} and "
                f"{uses[1].operation.name} cannot both take them"
            )
        new = [value for value in _carried(uses[0]) if value not in seen]
        seen.update(new)
        waiting += new


def _carried(use: Use) -> Iterator[SSAValue]:
    """The values by which sums, under way, go on from a use."""
    op = use.operation
    match op:
        case WarpgroupMmaOp() if op.operands[use.index] is op.c:
            yield op.result
        case WarpgroupWaitOp():
            if op.pending.value.data:
                yield op.res[use.index]
        case scf.ForOp() if use.index >= 3:
            yield from (op.body.block.args[use.index - 2], op.res[use.index - 3])
        case scf.YieldOp():
            yield from _yielded(op, use.index)
        case _:
            raise VerifyException(
                f"sums are under way until a cuda.warpgroup_wait leaves none pending, and {op.name} takes them"
            )


def _yielded(op: Operation, index: int) -> Iterator[SSAValue]:
    parent = op.parent_op()
    if isinstance(parent, scf.ForOp):
        yield from (parent.body.block.args[index + 1], parent.res[index])
    elif isinstance(parent, scf.IfOp):
        yield parent.output[index]
    else:
        raise VerifyException("sums that are under way go through scf.for and scf.if alone")
