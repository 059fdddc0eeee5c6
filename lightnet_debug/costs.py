"""The cost of an op, a kernel or a network: floating-point operations, multiply-adds, bytes moved. Imports `ir`.

Operations are those that the op's class counts (`LnOp.flops`), or follow from its definition in index notation, which
also says whether they are multiply-adds: sums of products of two tensors (``dst[…] += a[…] * b[…]``). Bytes are
compulsory traffic: every operand read once, every result written once, as if all in between stayed in registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.ir import Operation, SSAValue

from lightnet.ir import bound, notation
from lightnet.ir.kernel import KernelOp
from lightnet.ir.op import LnOp
from lightnet.ir.types import spec_of


def flops(op: Operation) -> int:
    """Floating-point (or integer) operations of one execution of an op or a kernel."""
    if isinstance(op, KernelOp):
        return sum(flops(inner) for inner in op.ops)
    if not isinstance(op, LnOp):
        return 0
    if type(op).flops is LnOp.flops and (trips := _products(op)):  # an op that only says what it computes
        return 2 * trips
    return op.flops()


def executed(op: Operation, selection: Any) -> float:
    """Operations of one execution of a kernel, counted as those of f32 that it runs: fewer than `flops` where its
    algorithm saves products, or an instruction does several. `selection` is the target's (None: it has none)."""
    plan = selection.found(op) if selection is not None and isinstance(op, KernelOp) else None
    return flops(op) * (plan.generator.effort(op) if plan is not None else 1.0)


def macs(op: LnOp) -> int:
    """Multiply-adds of one execution; 0 where the op adds up no products of two tensors."""
    own = getattr(op, "macs", None)
    if own is not None:
        return own()
    trips = _products(op)
    return trips if type(op).flops is LnOp.flops else op.flops() // 2 if trips else 0


def _products(op: LnOp) -> int:
    """Evaluations of sums of products of two tensors in the op's definition."""
    text = op.definition
    if text is None or "+=" not in text or "*" not in text:
        return 0
    env = op.env()
    definition = notation.bind(notation.parse(text), env.tensors, env.params, op.arg_names()[1])
    return sum(s.trips for s in definition.statements if s.op == "+=" and _is_product(s.value))


def _is_product(value: bound.Node) -> bool:
    """``a[…] * b[…]``, perhaps under a condition (``inside ? a[…] * b[…] : 0``)."""
    if isinstance(value, bound.Apply) and value.fn == "select":
        return _is_product(value.args[1])
    if not isinstance(value, bound.Apply) or value.fn != "mul":
        return False
    return len({a.tensor for a in value.args if isinstance(a, bound.Read)}) == 2


def bytes_moved(op: Operation) -> int:
    """Bytes that an op or a kernel has to read and write."""
    read = sum(bytes_read(op, i) for i in range(len(op.operands)))
    return read + sum(spec_of(r.type).nbytes for r in op.results)


def bytes_read(op: Operation, index: int) -> int:
    """Bytes of operand number `index` that are needed. What only moves elements reads no more than it writes: a slice,
    or a lookup of some rows of a table."""
    value = op.operands[index]
    nbytes = spec_of(value.type).nbytes
    if isinstance(op, KernelOp):
        return min(nbytes, sum(bytes_read(user, i) for user, i in _uses(op.body.args[index], op)))
    if isinstance(op, LnOp) and op.flops() == 0 and op.results:
        return min(nbytes, sum(spec_of(r.type).nbytes for r in op.results))
    return nbytes


def _uses(value: SSAValue, kernel: KernelOp) -> Sequence[tuple[Operation, int]]:
    uses = [(use.operation, use.index) for use in value.uses]
    return [(user, i) for user, i in uses if isinstance(user, LnOp)] or [(kernel.terminator, i) for _, i in uses]
