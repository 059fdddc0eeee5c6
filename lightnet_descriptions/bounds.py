"""Inline kernels made safe: no index leaves its memref, no loop runs for ever, no value is left open.

A description may come with a model, so what its kernel computes may be wrong, but never touches memory that is not its
own. The range of every index is found by interval arithmetic. What is not proven to stay inside of its memref is
clamped to it, as a subscript of index notation that comes from data; what cannot be inside is an error. Both engines
then run the same guarded kernel. Code generation takes sums of indices apart and puts them together anew, so a range
also bounds the partial sums (`Range.size`): none leaves 64 bits on the way to an address. Imports `ir`, and xDSL.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from xdsl.dialects import arith, memref, scf
from xdsl.dialects.builtin import FloatAttr, IndexType, IntegerAttr, IntegerType, MemRefType
from xdsl.ir import Block, Operation, Region, SSAValue

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError
from lightnet.ir.locations import loc_of
from lightnet.ir.notation import MAX_TRIPS

#: Every index stays within plus or minus this: a value that might leave it saturates there.
LIMIT = 1 << 40
#: Partial sums of an index stay within this, so that they are addresses of 64 bits, times the bytes of an element.
MAX_SUM = 1 << 55
MAX_NESTING = 16
#: Bytes of `memref.alloca` in a kernel: they stand on the stack of whoever runs it.
MAX_STACK = 64 << 10

INDEX = IndexType()
_INT64 = 1 << 63


@dataclass(frozen=True, slots=True)
class Range:
    """An index from `low` to `high`. `size` bounds the sum of the magnitudes of the terms that it is a sum of."""

    low: int
    high: int
    size: int

    @staticmethod
    def of(low: int, high: int) -> Range:
        """The range of a value that is no sum."""
        return Range(low, high, max(abs(low), abs(high)))

    @property
    def constant(self) -> int | None:
        return self.low if self.low == self.high else None

    @property
    def negative(self) -> bool:
        """True if it may be."""
        return self.low < 0


def guard(body: Block) -> None:
    """Put the guards into the body of a kernel. Raises `LightNetError` at an op that no guard helps."""
    _Guard().block(body, 1, 0)


class _Guard:
    def __init__(self) -> None:
        self.ranges: dict[SSAValue, Range] = {}
        self.stack = 0

    def block(self, block: Block, trips: int, depth: int) -> None:
        """The ops of a block that runs up to `trips` times."""
        if depth > MAX_NESTING:
            raise LightNetError(f"loops and conditions are nested deeper than {MAX_NESTING}", _place(block))
        for op in list(block.ops):
            match op:
                case scf.ForOp():
                    self.loop(op, trips, depth)
                case scf.IfOp():
                    self.branches(op, trips, depth)
                case memref.LoadOp() | memref.StoreOp():
                    self.access(op)
                case memref.AllocaOp():
                    self.alloca(op)
                case _:
                    self.values(op)

    # -- control flow

    def loop(self, op: scf.ForOp, trips: int, depth: int) -> None:
        lb, ub, step = self.ranges[op.lb], self.ranges[op.ub], self.ranges[op.step].low
        most = max(0, -(-(ub.high - lb.low) // step))
        if most * trips > MAX_TRIPS:
            raise LightNetError(f"this loop may run {most * trips} times, at most {MAX_TRIPS}; clamp its bounds with "
                                "arith.minsi",
                                loc_of(op))  # fmt: skip
        last = ub.high - 1 if lb.constant is None else lb.low + (most - 1) * step
        self.ranges[op.body.block.args[0]] = Range.of(lb.low, max(lb.low, last))
        for value in (*op.body.block.args[1:], *op.results):
            if value.type == INDEX:  # every index is within the limit, so what a loop carries is, too
                self.ranges[value] = Range.of(-LIMIT, LIMIT)
        if most:
            self.block(op.body.block, trips * most, depth + 1)

    def branches(self, op: scf.IfOp, trips: int, depth: int) -> None:
        for region in (op.true_region, op.false_region):
            for block in region.blocks:
                self.block(block, trips, depth + 1)
        for k, result in enumerate(op.results):
            if result.type == INDEX:
                arms = [self.ranges[r.block.last_op.operands[k]] for r in op.regions]  # type: ignore[union-attr]
                self.ranges[result] = _union(*arms)

    # -- memory

    def access(self, op: memref.LoadOp | memref.StoreOp) -> None:
        """The indices of a load or store, inside of the memref or clamped to it."""
        type = op.memref.type
        assert isinstance(type, MemRefType)
        first = len(op.operands) - len(op.indices)
        for k, (index, extent) in enumerate(zip(op.indices, type.get_shape(), strict=True)):
            r = self.ranges[index]
            if r.high < 0 or r.low >= extent:
                raise LightNetError(f"{op.name} at {_shown(r)}, outside of {type}", loc_of(op))
            if r.low < 0 or r.high >= extent:
                op.operands[first + k] = _clamp(index, max(r.low, 0), min(r.high, extent - 1), lambda o: _before(op, o))

    def alloca(self, op: memref.AllocaOp) -> None:
        """Local memory begins as zeros: what nobody has written has no value that generated code agrees on."""
        type = op.memref.type
        assert isinstance(type, MemRefType)
        shape, element = type.get_shape(), type.element_type
        if op.dynamic_sizes or len(shape) != 1 or shape[0] < 0 or not hasattr(element, "size"):
            raise LightNetError(f"{type}: a memref.alloca in a kernel is of rank 1, of a static size", loc_of(op))
        self.stack += prod(shape) * max(1, element.size)
        if self.stack > MAX_STACK:
            raise LightNetError(f"a kernel's memref.alloca are at most {MAX_STACK} bytes in all", loc_of(op))
        zero = IntegerAttr(0, element) if isinstance(element, IntegerType) else FloatAttr(0.0, element)
        low, high, step = (arith.ConstantOp(IntegerAttr(k, INDEX)) for k in (0, shape[0], 1))
        value, body = arith.ConstantOp(zero), Block(arg_types=[INDEX])
        body.add_ops([memref.StoreOp.get(value, op.memref, [body.args[0]]), scf.YieldOp()])
        _after(op, [low, high, step, value, scf.ForOp(low, high, step, [], Region(body))])

    # -- values

    def values(self, op: Operation) -> None:
        """The ranges of an op's results; one that may leave the limit is clamped to it."""
        for result in op.results:
            if result.type == INDEX:
                self.ranges[result] = r = self.computed(op)
                self.limit(result, r, op)

    def limit(self, result: SSAValue, r: Range, op: Operation) -> None:
        inside = Range.of(min(max(r.low, -LIMIT), LIMIT), max(min(r.high, LIMIT), -LIMIT))
        within = (r.low, r.high) == (inside.low, inside.high)
        if not within and isinstance(op, arith.ConstantOp):
            raise LightNetError(f"the index {r.low} is beyond {LIMIT}", loc_of(op))
        if within and r.size <= MAX_SUM:
            return
        users = {use.operation for use in result.uses}
        clamped = _clamp(result, inside.low, inside.high, lambda ops: _after(op, ops))
        result.replace_uses_with_if(clamped, lambda use: use.operation in users)
        self.ranges[clamped] = inside

    def computed(self, op: Operation) -> Range:
        """The range of an index before it is clamped; it never leaves 64 bits."""
        if isinstance(op, arith.ConstantOp):
            assert isinstance(op.value, IntegerAttr)
            return Range.of(op.value.value.data, op.value.value.data)
        if isinstance(op, arith.IndexCastOp):
            assert isinstance(op.input.type, IntegerType)
            bits = op.input.type.width.data
            return Range.of(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
        if isinstance(op, arith.SelectOp):
            return _union(self.ranges[op.lhs], self.ranges[op.rhs])
        compute = _RANGES.get(op.name)
        if compute is None:
            raise LightNetError(f"{op.name} is not for indices; cast them to i64", loc_of(op))
        a, b = (self.ranges[v] for v in op.operands)
        r = compute(a, b)
        if r.low < -_INT64 or r.high >= _INT64:
            raise LightNetError(f"{op.name} may leave 64 bits; clamp an operand with arith.minsi", loc_of(op))
        return r


# -- ranges of single ops


def _union(*ranges: Range) -> Range:
    return Range.of(min(r.low for r in ranges), max(r.high for r in ranges))


def _add(a: Range, b: Range) -> Range:
    return Range(a.low + b.low, a.high + b.high, a.size + b.size)


def _sub(a: Range, b: Range) -> Range:
    return Range(a.low - b.high, a.high - b.low, a.size + b.size)


def _mul(a: Range, b: Range) -> Range:
    corners = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    return Range(min(corners), max(corners), a.size * b.size)


def _quotient(a: Range, b: Range) -> Range:
    """Of a division that rounds in any way; a quotient is no larger than what is divided, and x / 0 is 0."""
    if not a.negative and b.low > 0:
        return Range.of(a.low // b.high, -(-a.high // b.low))
    return Range.of(-max(abs(a.low), abs(a.high)), max(abs(a.low), abs(a.high)))


def _divide(a: Range, b: Range) -> Range:
    if not a.negative and b.low > 0:
        return Range.of(a.low // b.high, a.high // b.low)
    return _quotient(a, b)


def _remainder(a: Range, b: Range) -> Range:
    """The sign of `a`; x % 0 is 0."""
    most = min(max(abs(a.low), abs(a.high)), max(abs(b.low), abs(b.high), 1) - 1)
    return Range.of(-most if a.negative else 0, most)


def _extreme(pick: Callable[[int, int], int]) -> Callable[[Range, Range], Range]:
    return lambda a, b: Range.of(pick(a.low, b.low), pick(a.high, b.high))


#: Indices are signed: the ops on unsigned numbers are for iN.
_RANGES: dict[str, Callable[[Range, Range], Range]] = {
    "arith.addi": _add, "arith.subi": _sub, "arith.muli": _mul, "arith.divsi": _divide, "arith.floordivsi": _divide,
    "arith.ceildivsi": _quotient, "arith.remsi": _remainder, "arith.maxsi": _extreme(max), "arith.minsi": _extreme(min),
}  # fmt: skip


# -- putting ops in


def _clamp(value: SSAValue, low: int, high: int, insert: Callable[[list[Operation]], Any]) -> SSAValue:
    """`value`, moved into the range: the ops for it are put in."""
    bounds = [arith.ConstantOp(IntegerAttr(k, INDEX)) for k in (low, high)]
    raised = arith.MaxSIOp(value, bounds[0])
    lowered = arith.MinSIOp(raised, bounds[1])
    insert([*bounds, raised, lowered])
    return lowered.result


def _before(op: Operation, ops: list[Operation]) -> None:
    block = op.parent
    assert block is not None
    block.insert_ops_before(ops, op)


def _after(op: Operation, ops: list[Operation]) -> None:
    block = op.parent
    assert block is not None
    block.insert_ops_after(ops, op)


def _shown(r: Range) -> str:
    return str(r.low) if r.constant is not None else f"{r.low}..{r.high}"


def _place(block: Block) -> Any:
    first = block.first_op
    return None if first is None else loc_of(first)
