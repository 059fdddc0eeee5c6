"""Which bodies of several ops cuda's generators take: those of `backends/bodies.py`, but an anchor that a generator of its own makes takes
nothing in that would leave it to the plain loops. Imports the generators.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from lightnet.backends.bodies import kind_of
from lightnet.backends.cuda.base import Generator
from lightnet.backends.cuda.selection import ANYTHING, generators
from lightnet.ir.body import Body
from lightnet.ir.op import LnOp


def accepts(body: Body) -> str | None:
    """The generator that takes `body`: ``anchor``, ``elementwise``, ``moves``, that of bodies of its own, or None."""
    kind = kind_of(body)
    if kind is None and (own := [g for g in generators() if isinstance(body.ops[-1], g.ends)]):
        return next((g.alg for g, taken in zip(own, _all_take(own, body)) if taken), None)
    return None if kind == "anchor" and not _stays_fast(body) else kind


def _stays_fast(body: Body) -> bool:
    """Whether the first generator of the table that makes the anchor alone makes the whole body."""
    anchor = body.ops[0]
    own = next((g for g in generators() if _takes(g, [anchor], anchor.results)), None)
    return own is None or len(body.ops) == 1 or all(_all_take([own], body))


def _all_take(chosen: Sequence[Generator], body: Body) -> list[bool]:
    """Of each generator, whether it takes a body."""
    ops, yielded = _joined(body)
    try:
        return [_takes(g, ops, yielded) for g in chosen]
    finally:
        for op in reversed(ops):
            op.erase()  # else the copies would go on using what the body reads


def _takes(generator: Generator, ops: Sequence[LnOp], yielded: Sequence[SSAValue]) -> bool:
    return generator.alg != ANYTHING and bool(generator.takes(ops, yielded))


def _joined(body: Body) -> tuple[list[LnOp], list[SSAValue]]:
    """A body's ops as copies that read each other, and what is yielded of them: a body may be one of kernels that are not merged yet."""
    known: dict[SSAValue, SSAValue] = {}
    copies: list[LnOp] = []
    for op in body.ops:
        copy = type(op).create(
            operands=[known.get(v, v) for v in map(body.value, op.operands)], result_types=op.result_types,
            properties=dict(op.properties), attributes=dict(op.attributes),
        )  # fmt: skip
        known.update(zip(op.results, copy.results))
        copies.append(copy)
    return copies, [known.get(v, v) for v in map(body.value, body.yielded)]
