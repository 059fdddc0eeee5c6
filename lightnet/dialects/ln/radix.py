"""Radix sort of keys of 32 bits, for the ops that sort: a counting sort by each digit, from the lowest on (Knuth,
volume 3, 5.2.5).

Keys become unsigned integers in the same order; what is moved is that integer and the number of the element, and what
belongs to the keys is gathered once at the end. Each pass is stable, so the sort is. Imports the builder's types only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType, IntegerType, MemRefType, i32
from xdsl.ir import SSAValue

from lightnet.dataclasses import dataclass
from lightnet.ir.types import TensorSpec, storage_type
from lightnet.runtime.arrays import align_up

#: Bits of a digit, and how many digits a key has.
DIGIT, PASSES = 11, 3
BUCKETS = 1 << DIGIT
#: Elements from which on counting is cheaper than merging.
WORTH = 512


def takes(key: TensorSpec) -> bool:
    """Return whether keys like these are sorted by their digits."""
    return key.len >= WORTH and key.dtype.name in ("f32", "i32", "ui32")


@dataclass(frozen=True)
class _Memory:
    """The places of things in the workspace: copies of the operands, both halves of the keys and of the order, the
    counts."""

    copies: tuple[int, ...]
    keys: int
    order: int
    counts: int
    size: int

    @classmethod
    def of(cls, specs: Sequence[TensorSpec]) -> _Memory:
        at, found = 0, []
        for size in (*(s.nbytes for s in specs), *[8 * specs[0].len] * 2, 4 * PASSES * BUCKETS):
            found.append(at)
            at += align_up(size)
        *copies, keys, order, counts = found
        return cls(tuple(copies), keys, order, counts, at)


def workspace_bytes(specs: Sequence[TensorSpec]) -> int:
    """Bytes that sorting tensors like these by the first of them takes."""
    return _Memory.of(specs).size


def build(b: Any, specs: Sequence[TensorSpec], operands: Sequence[SSAValue], results: Sequence[SSAValue],
          workspace: SSAValue,
          descending: bool) -> None:  # fmt: skip
    """Sort rank-1 memrefs by the first of them; a result may be the memory of its operand."""
    n, memory = specs[0].len, _Memory.of(specs)
    copies = [b.view(workspace, at, MemRefType(storage_type(s.dtype), [n])) for at, s in zip(memory.copies, specs)]
    keys, order = (b.view(workspace, at, MemRefType(i32, [2, n])) for at in (memory.keys, memory.order))
    counts = b.view(workspace, memory.counts, MemRefType(i32, [PASSES, BUCKETS]), name="counts")
    _count(b, specs[0], operands, copies, keys, order, counts, descending)
    _sum(b, counts)
    for number in range(PASSES):
        source, target = number % 2, 1 - number % 2
        with b.loop(0, n) as i:
            key = b.load(keys, [source, i.iv])
            where = _bucket(b, key, number)
            to = b.load(counts, [number, where])
            b.store(b.op(arith.AddiOp, to, b.const(1, i32)), counts, [number, where])
            to = b.op(arith.IndexCastOp, to, type=IndexType())
            b.store(key, keys, [target, to])
            b.store(b.load(order, [source, i.iv]), order, [target, to])
    with b.loop(0, n) as i:
        at = b.op(arith.IndexCastOp, b.load(order, [PASSES % 2, i.iv]), type=IndexType())
        for copy, result in zip(copies, results, strict=True):
            b.store(b.load(copy, [at]), result, [i.iv])


def _count(b, spec, operands, copies, keys, order, counts, descending) -> None:
    """Copy the operands, make keys, and count their digits."""
    with b.loop(0, PASSES, name="number") as number, b.loop(0, BUCKETS, name="k") as k:
        b.store(b.const(0, i32), counts, [number.iv, k.iv])
    with b.loop(0, spec.len) as i:
        for operand, copy in zip(operands, copies, strict=True):
            b.store(b.load(operand, [i.iv]), copy, [i.iv])
        key = _ordered(b, b.load(operands[0], [i.iv]), spec, descending)
        b.store(key, keys, [0, i.iv])
        b.store(b.op(arith.IndexCastOp, i.iv, type=i32), order, [0, i.iv])
        for number in range(PASSES):
            where = _bucket(b, key, number)
            more = b.op(arith.AddiOp, b.load(counts, [number, where]), b.const(1, i32))
            b.store(more, counts, [number, where])


def _sum(b, counts) -> None:
    """Counts -> where the first key with each digit goes."""
    with b.loop(0, PASSES, name="number") as number, b.loop(0, BUCKETS, carry=[b.const(0, i32)], name="k") as k:
        before = k.args[0]
        here = b.load(counts, [number.iv, k.iv])
        b.store(before, counts, [number.iv, k.iv])
        k.yields(b.op(arith.AddiOp, before, here))


def _bucket(b, key: SSAValue, number: int) -> SSAValue:
    """A digit of a key, as an index."""
    digit = b.op(arith.ShRUIOp, key, b.const(DIGIT * number, i32)) if number else key
    digit = b.op(arith.AndIOp, digit, b.const(BUCKETS - 1, i32))
    return b.op(arith.IndexCastOp, digit, type=IndexType())


def _ordered(b, x: SSAValue, spec: TensorSpec, descending: bool) -> SSAValue:
    """The bits of a key as an unsigned integer in the order of the keys: those of a negative float are inverted, of a
    positive one the sign is; both zeros are equal, NaN is the largest. For a descending sort all are inverted."""
    flip = b.const(-1, i32)
    if spec.dtype.name == "f32":
        bits = b.cast("bitcast", b.op(arith.AddfOp, x, b.const(0.0, x.type)), i32)  # -0 + 0 = 0
        sign = b.op(arith.ShRSIOp, bits, b.const(31, i32))
        key = b.op(arith.XOrIOp, bits, b.op(arith.OrIOp, sign, b.const(-(1 << 31), i32)))
        key = b.select(b.cmpf("uno", x, x), flip, key)
    else:
        key = x if spec.dtype.kind == "uint" else b.op(arith.XOrIOp, x, b.const(-(1 << 31), IntegerType(32)))
    return b.op(arith.XOrIOp, key, flip) if descending else key
