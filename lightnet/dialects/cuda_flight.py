"""The rules for a whole kernel with ops of sm_90a: who may touch what copies and products work on while they are
under way.

`verify_cuda` asks it once a kernel. Imports xDSL, the ops, and `cuda_checks`.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects import scf
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue, Use

from lightnet.diagnostics import LightNetError
from lightnet.dialects.cuda_checks import VERIFY_LABEL, function_of, shared_allocations
from lightnet.dialects.cuda_hopper import (
    TmaLoadOp,
    WarpgroupMmaOp,
    WarpgroupWaitOp,
    is_swizzled,
    tensor_maps,
)
from lightnet.dialects.cuda_mbarrier import (
    MbarrierArriveOp,
    MbarrierExpectOp,
    MbarrierInitOp,
    MbarrierWaitOp,
)
from lightnet.dialects.cuda_stages import OnlyOn
from lightnet.ir.locations import loc_of

_MBARRIER = (MbarrierInitOp, MbarrierExpectOp, MbarrierArriveOp, MbarrierWaitOp)


def verify_flight(function: FuncOp, arch: str) -> None:
    """Raises LightNetError, at the op, where a kernel has ops that an architecture lacks, or

    * reads a tensor by a copy and in another way too, or by two maps;
    * touches the rows of a stage, or an mbarrier, by ops of another kind;
    * uses sums that are under way for anything but products and waits, or twice, or ends without waiting for them.
    """
    bound = [(op, trait) for op in function.walk() if (trait := op.get_trait(OnlyOn)) is not None]
    for op, trait in bound:
        if arch != trait.arch:
            raise _wrong(op, f"{op.name} is of {trait.arch}, and the kernel is for {arch}")
    if not bound:
        return
    _verify_sources(function)
    for allocation in shared_allocations(function):
        _verify_memory(allocation.results[0])
    _verify_sums([op.result for op, _ in bound if isinstance(op, WarpgroupMmaOp)])


def _wrong(op: Operation, message: str) -> LightNetError:
    """The error of what does not hold of a kernel, at the op that shows it; kernels of generators stand nowhere, and
    have a name.
    """
    function = function_of(op)
    assert function is not None
    return LightNetError(f"@{function.sym_name.data}: {message}", loc_of(op) or loc_of(function), VERIFY_LABEL)


def _verify_sources(function: FuncOp) -> None:
    for number, map in tensor_maps(function).items():
        for use in function.body.block.args[number].uses:
            op = use.operation
            if not isinstance(op, TmaLoadOp):
                raise _wrong(op, f"argument {number} is copied by a tensor map, and {op.name} takes it, too")
            if op.map != map:
                raise _wrong(op, f"argument {number} is copied by two tensor maps: {map} and {op.map}")


def _verify_memory(memory: SSAValue) -> None:
    """Rows of a stage lie swizzled, and mbarriers are no numbers: only ops that know of it touch them."""
    others = [use.operation for use in memory.uses if not _is_stage(use)]
    if is_swizzled(memory) and others:
        text = f"rows of a stage are of cuda.tma_load and cuda.warpgroup_mma alone; {others[0].name} takes them, too"
        raise _wrong(others[0], text)
    others = [use.operation for use in memory.uses if not _is_mbarrier(use)]
    if len(others) not in (0, len(list(memory.uses))):
        raise _wrong(others[0], f"mbarriers are of their own ops alone; {others[0].name} takes them, too")


def _is_stage(use: Use) -> bool:
    op = use.operation
    return isinstance(op, WarpgroupMmaOp) or (isinstance(op, TmaLoadOp) and op.operands[use.index] is op.destination)


def _is_mbarrier(use: Use) -> bool:
    op = use.operation
    return isinstance(op, _MBARRIER) or (isinstance(op, TmaLoadOp) and op.operands[use.index] is op.barriers)


# ---- sums under way --------------------------------------------------------------------------------------------------


def _verify_sums(begun: list[SSAValue]) -> None:
    """Follow sums from the products that began them to the wait that leaves none pending."""
    seen, waiting = set(begun), list(begun)
    while waiting:
        sums = waiting.pop()
        uses = list(sums.uses)
        if not uses:
            text = "nobody waits for sums that are under way: a cuda.warpgroup_wait with pending 0 ends them"
            raise _wrong(_origin(sums), text)
        if len(uses) > 1:
            takers = f"{uses[0].operation.name} and {uses[1].operation.name} cannot both take them"
            text = f"sums that are under way stand in registers that the product changes: {takers}"
            raise _wrong(uses[1].operation, text)
        new = [value for value in _carried(uses[0]) if value not in seen]
        seen.update(new)
        waiting += new


def _origin(value: SSAValue) -> Operation:
    """The op that gives a value, the loop itself of one that goes round it."""
    owner = value.owner if isinstance(value.owner, Operation) else value.owner.parent_op()
    assert owner is not None
    return owner


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
            text = f"sums are under way until a cuda.warpgroup_wait leaves none pending, and {op.name} takes them"
            raise _wrong(op, text)


def _yielded(op: Operation, index: int) -> Iterator[SSAValue]:
    parent = op.parent_op()
    if isinstance(parent, scf.ForOp):
        yield from (parent.body.block.args[index + 1], parent.res[index])
    elif isinstance(parent, scf.IfOp):
        yield parent.output[index]
    else:
        raise _wrong(op, "sums that are under way go through scf.for and scf.if alone")
