"""Which bodies of several ops the CPU's generators take; `combine` merges two kernels if their union is one of them.

    elementwise   ops that read their operands at the index they write, all of one shape
    moves         pure moves in a chain, alone or with elementwise ops before, between and after them
    anchor        a convolution, pool or reduction, then elementwise ops on its result: the epilogue

What all have in common: no element is computed twice, and each value inside is used inside alone (`combine` sees to it).

A move that the planner can make free (`LnOp.views`: a reshape, a slice or concat of the outermost axis) is never merged
into a kernel that could work in place: as a kernel of its own it costs nothing once source and result share their bytes,
and the ops around it stay able to work in place, while inside a body it would turn their reads into another index. Only
bodies with a real copy take such moves in (a channel shuffle is reshape, transpose, reshape: one kernel, one pass). `concat`,
`gather` and `scatter` stay alone: as views they let the producers write into the result directly.
"""

from __future__ import annotations

from lightnet.dialects.ln.conv import Conv2d, Deconv2d
from lightnet.dialects.ln.elementwise import Elew, Lrelu, Relu, Sigmoid
from lightnet.dialects.ln.move import Forward, Reshape, Slice, Transpose
from lightnet.dialects.ln.norm import Batchnorm
from lightnet.dialects.ln.pool import Avgpool2d, Maxpool2d
from lightnet.dialects.ln.reduce import DotProduct, Maxreduce
from lightnet.dialects.ln.resize import Resize, Upsample
from lightnet.ir.body import Body
from lightnet.ir.op import LnOp
from lightnet.ir.types import spec_of

CONVOLUTIONS = (Conv2d, Deconv2d)
ANCHORS = (*CONVOLUTIONS, Maxpool2d, Avgpool2d, Maxreduce, DotProduct)
ELEMENTWISE = (Relu, Lrelu, Sigmoid, Elew, Batchnorm)
#: Moves that read each source element at most once.
INJECTIVE = (Forward, Reshape, Slice, Transpose)
#: Moves that may read a source element several times: what they read must be in memory already.
REPLICATING = (Resize, Upsample)


def accepts(body: Body) -> str | None:
    """The generator that takes `body`: ``anchor``, ``elementwise``, ``moves``, or None."""
    if len(body.yielded) != 1:
        return None
    if isinstance(body.ops[0], ANCHORS):
        return "anchor" if _is_epilogue(body) else None
    if all(isinstance(op, ELEMENTWISE) for op in body.ops):
        return "elementwise"  # operands and results of an elementwise op have one shape, so all have
    return "moves" if _is_copy(body) else None


def _is_epilogue(body: Body) -> bool:
    """Elementwise ops, each of which depends on the anchor; one that does not stays outside, as its own operands would
    live longer than its result."""
    anchor, *rest = body.ops
    depends = set(anchor.results)
    for op in rest:
        if not isinstance(op, ELEMENTWISE) or depends.isdisjoint(map(body.value, _data_operands(op))):
            return False
        depends.update(op.results)
    return True


def _data_operands(op: LnOp) -> list:
    fields = op.schema.operand_fields(len(op.operands))
    return [v for f, v in zip(fields, op.operands) if f.role == "data"]


def _is_copy(body: Body) -> bool:
    """Moves and elementwise ops with at least one move that no plan makes free: the kernel copies anyway, so free moves
    in it cost nothing. One at the end of a body that computes stays outside, lest it hide that an operand is read at the
    index written."""
    if not all(isinstance(op, (*ELEMENTWISE, *INJECTIVE, *REPLICATING)) for op in body.ops):
        return False
    moves = [op for op in body.ops if not isinstance(op, ELEMENTWISE)]
    if not any(map(_must_copy, moves)):
        return False
    return len(moves) == len(body.ops) or not (is_free(body.ops[-1]) or _computes_twice(body))


def _computes_twice(body: Body) -> bool:
    """Whether a replicating move reads, perhaps through other moves, what an elementwise op computes."""
    computed: set = set()
    for op in body.ops:
        reads_computed = any(body.value(v) in computed for v in op.operands)
        if isinstance(op, REPLICATING) and reads_computed:
            return True
        if isinstance(op, ELEMENTWISE) or reads_computed:
            computed.update(op.results)
    return False


def is_free(op: LnOp) -> bool:
    """Whether the planner can make a move cost nothing."""
    return any(True for _ in op.views())


def _must_copy(op: LnOp) -> bool:
    return not is_free(op) and spec_of(op.results[0].type).len > 1
