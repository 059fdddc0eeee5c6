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
    """The generator that takes `body`: ``anchor``, ``elementwise``, ``moves``, or None."""
    kind = kind_of(body)
    return None if kind == "anchor" and not _stays_fast(body) else kind


def _stays_fast(body: Body) -> bool:
    """Whether the first generator of the table that makes the anchor alone makes the whole body."""
    anchor = body.ops[0]
    own = next((g for g in generators() if _takes(g, [anchor], anchor.results)), None)
    if own is None or len(body.ops) == 1:
        return True
    ops, yielded = _joined(body)
    try:
        return _takes(own, ops, yielded)
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
