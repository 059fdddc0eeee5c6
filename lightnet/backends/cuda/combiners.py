"""The bodies of several ops that cuda's generators take: those of `backends/bodies.py`, but an anchor that a generator
of its own makes takes nothing in that would leave it to the plain loops; and of any other op that has a generator of
its own (a norm, a softmax), it and the elementwise ops that this takes behind it, and in front of it a few that cost
less than what memory they save. Imports the generators.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from lightnet.backends.bodies import body_kind, has_epilogue
from lightnet.backends.cuda.device import device_of
from lightnet.backends.cuda.selection import ANYTHING, SELECTION
from lightnet.backends.generator import Generator
from lightnet.ir.access import is_elementwise
from lightnet.ir.body import Body
from lightnet.ir.instances import typical_op
from lightnet.ir.op import LnOp

#: Operations in front of an element of what is reduced, at most: a row that is no thread's to hold is read, and they
#: are done, several times.
CHEAP = 4


def accepts(body: Body) -> str | None:
    """The generator that takes `body`: ``anchor``, ``elementwise``, ``moves``, that of bodies of its own, or None."""
    kind = body_kind(body)
    if kind == "anchor":
        own = _maker(body.ops[0])
        return kind if own is None or len(body.ops) == 1 or all(_all_take([own], body)) else None
    if kind is not None:
        return kind
    if ending := [g for g in SELECTION.ways(body.ops) if isinstance(body.ops[-1], g.ends)]:
        return next((g.alg for g, taken in zip(ending, _all_take(ending, body)) if taken), None)
    at = next((i for i, op in enumerate(body.ops) if not is_elementwise(op)), 0)
    early = [typical_op(op) for op in body.ops[:at]]
    before = sum(op.flops() / max(1, op.result_specs[0].len) for op in early)
    if len(body.ops) == 1 or before > CHEAP or not has_epilogue(body, at):
        return None
    maker = _maker(body.ops[at])
    return "anchor" if maker is not None and all(_all_take([maker], body)) else None


def _maker(op: LnOp) -> Generator | None:
    """The first generator of the table that makes an op alone, other than that of plain loops."""
    return next((g for g in SELECTION.ways([op]) if _takes(g, [op], op.results)), None)


def _all_take(chosen: Sequence[Generator], body: Body) -> list[bool]:
    """Of each generator, whether it takes a body."""
    ops, yielded = body.copied()
    try:
        return [_takes(g, ops, yielded) for g in chosen]
    finally:
        for op in reversed(ops):
            op.erase()  # else the copies would go on using what the body reads


def _takes(generator: Generator, ops: Sequence[LnOp], yielded: Sequence[SSAValue]) -> bool:
    return generator.alg != ANYTHING and bool(generator.forms(ops, yielded, device_of("")))
