"""The bodies of several ops that are one kernel, whatever the target; `combine` merges two kernels if their union is
one of them.

    elementwise   ops that read operands at the index they write, all of one shape
    moves         pure moves in a chain, alone or with elementwise ops before, between and after them
    anchor        a reduction (a convolution, a pool), then elementwise ops on its result: the epilogue

Which op is what follows from its definition (`ir/access.py`), so that an op added from outside fuses like ours. What
all have in common: no element is computed twice (so what an elementwise op reads repeatedly, a bias, a scalar, comes
from outside), and each value inside is used inside alone (`combine` sees to it).

A move that the planner can make free (`LnOp.views`: a reshape, a slice or concat of the outermost axis) is never merged
into a kernel that could work in place: as a kernel of its own it costs nothing once source and result share their
bytes, and the ops around it stay able to work in place, while inside a body it would turn their reads into another
index. Only bodies with a real copy take such moves in (a channel shuffle is reshape, transpose, reshape: one kernel,
one pass). `concat`, `gather` and `scatter` stay alone: as views they let the producers write into the result directly.
Imports `ir`.
"""

from __future__ import annotations

from xdsl.ir import SSAValue

from lightnet.ir.access import broadcast_operands, data_operands, is_copy, is_elementwise, is_reduction
from lightnet.ir.body import Body, epilogue_of
from lightnet.ir.op import LnOp
from lightnet.ir.refusal import Refusal
from lightnet.ir.types import spec_of
from lightnet.runtime.dims import greatest


def body_kind(body: Body) -> str | Refusal:
    """The kind of a body as one kernel: ``anchor``, ``elementwise``, ``moves``."""
    if is_reduction(body.ops[0]):
        found = has_epilogue(body)
        return found if isinstance(found, Refusal) else "anchor"
    if isinstance(once := _computes_once(body), Refusal):
        return once
    if all(map(is_elementwise, body.ops)):
        return "elementwise"  # what an elementwise op reads once has the result's shape, so all results have one
    return found if isinstance(found := _copies(body), Refusal) else "moves"


def _computes_once(body: Body) -> bool | Refusal:
    """Return whether a body has one result, and no elementwise op reads repeatedly what the body computes."""
    if len(body.yielded) != 1:
        return Refusal("it would have {} results", len(body.yielded))
    made: set = set()
    for op in body.ops:
        if is_elementwise(op) and any(body.value(op.operands[k]) in made for k in broadcast_operands(op)):
            return Refusal("{} reads each element of what is computed in it repeatedly", op.optype)
        made.update(op.results)
    return True


def has_epilogue(body: Body, at: int = 0) -> bool | Refusal:
    """Return whether what follows op number `at` are elementwise ops, each of which depends on it."""
    if not (once := _computes_once(body)):
        return once

    def data(op: LnOp) -> list[SSAValue]:
        return [body.value(op.operands[k]) for k in data_operands(op)]

    return found if isinstance(found := epilogue_of(body.ops[at:], is_elementwise, data), Refusal) else True


def _copies(body: Body) -> bool | Refusal:
    """Moves and elementwise ops with at least one move that no plan makes free: the kernel copies anyway, so free moves
    in it cost nothing. One at the end of a body that computes stays outside, lest it hide that an operand is read at
    the index written."""
    moves = [op for op in body.ops if not is_elementwise(op)]
    if (odd := next((op for op in moves if not is_copy(op)), None)) is not None:
        first = " in front of an epilogue" if odd is body.ops[0] else ""
        return Refusal("{} is no reduction{}, no move, and not elementwise: {}", odd.optype, first,
                       is_elementwise(odd))  # fmt: skip
    if not any(map(_must_copy, moves)):
        return Refusal("{} costs nothing as a kernel of its own, once memory is planned", moves[0].optype)
    if len(moves) == len(body.ops):
        return True
    if is_free(body.ops[-1]):
        return Refusal("{}, at its end, costs nothing as a kernel of its own", body.ops[-1].optype)
    return not _computes_twice(body) or Refusal("a move would have elements computed several times")


def _computes_twice(body: Body) -> bool:
    """Return whether a replicating move reads, perhaps through other moves, what an elementwise op computes."""
    computed: set = set()
    for op in body.ops:
        reads_computed = any(body.value(v) in computed for v in op.operands)
        if reads_computed and not op.is_move and is_copy(op):
            return True
        if is_elementwise(op) or reads_computed:
            computed.update(op.results)
    return False


def is_free(op: LnOp) -> bool:
    """Return whether the planner can make a move cost nothing."""
    return any(True for _ in op.views())


def _must_copy(op: LnOp) -> bool:
    return not is_free(op) and greatest(spec_of(op.results[0].type).len) > 1
