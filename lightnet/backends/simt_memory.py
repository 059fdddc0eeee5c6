"""What one thread does for the ops of `cuda` that processors have no instruction for: asynchronous copies, and rounding to tf32.

Imports the builder and the `cuda` dialect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import FixedBitwidthType, IntegerAttr, MemRefType, f32, i32
from xdsl.ir import SSAValue

from lightnet.backends.builder import Builder, vector_type
from lightnet.dialects.cuda_memory import AsyncCopyOp

#: The bits of f32 that are its exponent, those that tf32 has not, and half of the last one that it has.
_EXPONENT, _BELOW, _HALF = 0x7F800000, 0x1FFF, 0x1000


def async_copy(b: Builder, op: AsyncCopyOp, value: Callable[[SSAValue], SSAValue]) -> None:
    """Copy at once. `value` gives an operand as the thread has it. Elements of which the `size` leaves a part out are zeros."""
    source_type, target_type = op.source.type, op.destination.type
    element = source_type.element_type
    assert isinstance(element, FixedBitwidthType)
    n = op.bytes.value.data // element.size
    source, target = value(op.source), value(op.destination)
    at, to = [value(v) for v in op.source_indices], [value(v) for v in op.destination_indices]
    if not _in_row(source_type, n) or not _in_row(target_type, n):
        _one_by_one(b, op, (source, at), (target, to), n, value)
        return
    dims = [len(at) - 1]
    if op.size is None:
        read = b.tile_load(source, at, dims, [n])
    else:
        size, zero = value(op.size), b.index(0)
        lanes = None if _all_or_none(op) else b.divmod(size, element.size)[0]
        (read,) = b.choose(
            b.cmpi("sgt", size, zero),
            lambda: [b.tile_load(source, at, dims, [n], lanes=lanes)],
            lambda: [b.const(0, vector_type((n,), element))],
        )
    b.tile_store(read, target, to, [len(to) - 1])


def _in_row(type: MemRefType, n: int) -> bool:
    """Whether `n` elements, from a multiple of n on, lie in one row of a memref."""
    shape = type.get_shape()
    return len(shape) == 1 or (len(shape) > 1 and shape[-1] % n == 0)


def _all_or_none(op: AsyncCopyOp) -> bool:
    """Whether it is plain to see that a copy reads all of its bytes, or none."""
    select = op.size.owner if op.size is not None else None
    if not isinstance(select, arith.SelectOp):
        return False
    sizes = [_constant(v) for v in (select.lhs, select.rhs)]
    return set(sizes) <= {0, op.bytes.value.data}


def _constant(value: SSAValue) -> int | None:
    op = value.owner
    if isinstance(op, arith.ConstantOp) and isinstance(op.value, IntegerAttr):
        return op.value.value.data
    return None


Place = tuple[SSAValue, Sequence[SSAValue]]


def _one_by_one(b: Builder, op: AsyncCopyOp, source: Place, target: Place, n: int, value) -> None:
    """The same where a copy may reach from a row into the next."""
    element = source[0].type.element_type
    assert isinstance(element, FixedBitwidthType)
    size = b.index(op.bytes.value.data) if op.size is None else value(op.size)
    with b.loop(0, n) as loop:
        (read,) = b.choose(
            b.cmpi("slt", b.mul(loop.iv, element.size), size),
            lambda: [b.load(source[0], _beyond(b, *source, loop.iv))],
            lambda: [b.const(0, element)],
        )
        b.store(read, target[0], _beyond(b, *target, loop.iv))


def _beyond(b: Builder, array: SSAValue, indices: Sequence[SSAValue], by: SSAValue) -> list[SSAValue]:
    """The indices of the element `by` elements behind another one, in row-major order."""
    found = []
    for index, extent in zip(reversed(indices[1:]), reversed(array.type.get_shape()[1:])):
        by, rest = b.divmod(b.add(index, by), extent)
        found.append(rest)
    return [b.add(indices[0], by), *reversed(found)]


def round_tf32(b: Builder, value: SSAValue) -> SSAValue:
    """`cuda.round_tf32`: ties away from zero; infinities and NaN stay what they are (PTX ISA, ``cvt.rna.tf32.f32``)."""
    bits = b.cast("bitcast", value, i32)
    exponent = b.const(_EXPONENT, i32)
    rounded = b.op(arith.AndIOp, b.op(arith.AddiOp, bits, b.const(_HALF, i32)), b.const(~_BELOW, i32))
    finite = b.cmpi("ne", b.op(arith.AndIOp, bits, exponent), exponent)
    return b.cast("bitcast", b.select(finite, rounded, bits), f32)
