"""Weights of a product that others gather from: the gathers read the packed form, and no second one is kept.

A transformer's table of embeddings is its output projection, too: a product packs it, transposed perhaps, and a gather
of a few rows reads it plain. An element of packed factors has an address (`backends/loop_addresses.py`), so that the
gather can find it there, at one line of memory an element instead of one for sixteen. Part of the pass `pack`. Imports
`ir` and the ops.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from xdsl.ir import Operation, OpResult, SSAValue

from lightnet.dialects.ln.indexing import Take
from lightnet.dialects.ln.move import Transpose
from lightnet.dialects.ln.structure import OnceOp
from lightnet.ir import rewrites
from lightnet.ir.body import choice
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import Layout, Packed, layout_of
from lightnet.ir.types import spec_of
from lightnet.passes.layout import follow

#: Bytes that memory gives for an element which stands alone.
LINE = 64
#: What a gather may read, in lines, of what the product reads at least once, and more often where it has more rows than
#: `ROWS`.
SHARE, ROWS = 0.25, 16


def tie_gathers(packed: Mapping[tuple[SSAValue, Layout], SSAValue]) -> None:
    """Let gathers from static matrices read what `packed` has of them (value and layout -> the value so packed), where
    that costs little and leaves nobody who reads the matrix plain."""
    packing = {form.owner for form in packed.values()}
    for (value, layout), form in packed.items():
        if not (isinstance(layout, Packed) and layout.axes == "n"):
            continue
        for plain, is_turned in _forms(value):
            readers = [use.operation for use in plain.uses if use.operation not in packing]
            gathers = [g for op in readers if (g := _gather(op, plain)) is not None]
            if gathers and len(gathers) == len(readers) and _is_cheap(gathers, form):
                for gather in dict.fromkeys(gathers):
                    _redirect(gather, form, is_turned)


def _forms(value: SSAValue) -> list[tuple[SSAValue, bool]]:
    """The static values that are a packed one: itself, and those that it is the transpose of, or that are the transpose
    of it."""
    if not isinstance(value, OpResult) or not isinstance(once := value.owner, OnceOp):
        return [(value, False)]
    inner = once.terminator.operands
    mine = inner[value.index]
    found: list[tuple[SSAValue, bool]] = []
    for other, result in zip(inner, once.results):
        if other is mine:
            found.append((result, False))
        elif _is_transpose(mine, other) or _is_transpose(other, mine):
            found.append((result, True))
    return found


def _is_transpose(value: SSAValue, of: SSAValue) -> bool:
    op = value.owner
    return isinstance(op, Transpose) and op.src is of and tuple(op.axes) == (1, 0)


def _gather(op: Operation, table: SSAValue) -> KernelOp | None:
    """The kernel that an op is, if it is one of a gather from `table` by loops."""
    if not isinstance(op, KernelOp) or [type(o) for o in op.ops] != [Take] or choice(op, "alg") != "loops":
        return None
    taken = op.ops[0].operands[0] is op.body.args[0] and op.operands[0] is table
    return op if taken and list(op.operands).count(table) == 1 and layout_of(op.operands[0].type).is_plain else None


def _is_cheap(gathers: list[KernelOp], form: SSAValue) -> bool:
    """Return whether the lines that gathers read are few beside what the products read."""
    lines = sum(spec_of(g.results[0].type).len for g in gathers)
    depth, columns = spec_of(form.type).dims
    rows = max(
        (prod(spec_of(use.operation.results[0].type).dims) // columns for use in form.uses if use.operation.results),
        default=1,
    )
    return lines * LINE <= SHARE * 4 * depth * columns * max(1, rows / ROWS)


def _redirect(kernel: KernelOp, form: SSAValue, is_turned: bool) -> None:
    if (step := rewrites.begin("tie", [kernel])) is None:
        return
    take, table = kernel.ops[0], kernel.body.args[0]
    made, block = form.owner, kernel.parent
    if isinstance(made, Operation) and block is not None and kernel.is_before_in_block(made):  # `pack` hoists it later
        made.detach()
        block.insert_op_before(made, kernel)
    kernel.operands[0] = form
    follow(kernel)
    if is_turned:
        turned = Transpose.make([table], {"axes": (1, 0)})
        kernel.body.insert_op_before(turned, take)
        take.operands[0] = turned.results[0]
    step.done([kernel])
