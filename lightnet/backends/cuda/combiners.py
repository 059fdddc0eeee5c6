"""The bodies of several ops that cuda's generators take: those of `backends/bodies.py`, but an anchor that a generator
of its own makes takes nothing in that would leave it to the plain loops; and of any other op that has a generator of
its own (a norm, a softmax), it and the elementwise ops that this takes behind it, and in front of it a few that cost
less than what memory they save. Imports the generators.
"""

from __future__ import annotations

from collections.abc import Sequence

from lightnet.backends.bodies import body_kind, has_epilogue
from lightnet.backends.cuda.device import device_of
from lightnet.backends.cuda.selection import ANYTHING, SELECTION
from lightnet.backends.generator import Generator
from lightnet.ir.access import is_elementwise
from lightnet.ir.body import Body
from lightnet.ir.instances import typical_op
from lightnet.ir.op import LnOp
from lightnet.ir.refusal import Refusal

#: Operations in front of an element of what is reduced, at most: a row that is no thread's to hold is read, and they
#: are done, several times.
CHEAP = 4


def accepts(body: Body) -> str | Refusal:
    """The generator that takes `body`: ``anchor``, ``elementwise``, ``moves``, or that of bodies of its own."""
    kind = body_kind(body)
    if kind == "anchor":
        own = _maker(body.ops[0])
        return kind if own is None or len(body.ops) == 1 else _taken([own], body, kind)
    if kind:
        return kind
    if ending := [g for g in SELECTION.ways(body.ops) if isinstance(body.ops[-1], g.ends)]:
        return _taken(ending, body) or kind
    at = next((i for i, op in enumerate(body.ops) if not is_elementwise(op)), 0)
    early = [typical_op(op) for op in body.ops[:at]]
    before = sum(op.flops() / max(1, op.result_specs[0].len) for op in early)
    if len(body.ops) == 1 or before > CHEAP or not has_epilogue(body, at):
        return kind
    maker = _maker(body.ops[at])
    return kind if maker is None else _taken([maker], body, "anchor")


def _maker(op: LnOp) -> Generator | None:
    """The first generator of the table that makes an op alone, other than that of plain loops."""
    ways = (g for g in SELECTION.ways([op]) if g.alg != ANYTHING)
    return next((g for g in ways if g.forms([op], op.results, device_of(""))), None)


def _taken(chosen: Sequence[Generator], body: Body, kind: str | None = None) -> str | Refusal:
    """The kind of a body (that it is called as its generator is, if none is given), if one of the `chosen` takes it."""
    ops, yielded = body.copied()
    try:
        why = Refusal("no generator of its own takes it")
        for generator in chosen:
            if found := generator.alg != ANYTHING and generator.forms(ops, yielded, device_of("")):
                return kind or generator.alg
            why = Refusal("'{}' does not take it: {}", generator.alg, found)
        return why
    finally:
        for op in reversed(ops):
            op.erase()  # else the copies would go on using what the body reads
