"""One thread's part of the ops of `cuda` that processors have no instruction for: asynchronous copies, also by tensor
maps, and rounding to tf32.

Imports the builder and the `cuda` dialect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import prod

from xdsl.dialects import arith
from xdsl.dialects.builtin import FixedBitwidthType, MemRefType, f32, i32
from xdsl.ir import SSAValue

from lightnet.backends.builder import Builder, Index, vector_type
from lightnet.dialects.cuda_hopper import Im2colAttr, TmaLoadOp
from lightnet.dialects.cuda_memory import AsyncCopyOp
from lightnet.dialects.cuda_stages import constant_index, integers_of
from lightnet.ir.types import memref_type_of

#: The bits of f32 that are its exponent, those that tf32 has not, and half of the last one that it has.
_EXPONENT, _BELOW, _HALF = 0x7F800000, 0x1FFF, 0x1000


def async_copy(b: Builder, op: AsyncCopyOp, value: Callable[[SSAValue], SSAValue]) -> None:
    """Copy at once. `value` gives an operand as the thread has it. Elements of which the `size` leaves a part out are
    zeros."""
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
    """Return whether `n` elements, from a multiple of n on, lie in one row of a memref."""
    shape = type.get_shape()
    return len(shape) == 1 or (len(shape) > 1 and shape[-1] % n == 0)


def _all_or_none(op: AsyncCopyOp) -> bool:
    """Return whether it is plain to see that a copy reads all of its bytes, or none."""
    select = op.size.owner if op.size is not None else None
    if not isinstance(select, arith.SelectOp):
        return False
    sizes = [constant_index(v) for v in (select.lhs, select.rhs)]
    return set(sizes) <= {0, op.bytes.value.data}


Place = tuple[SSAValue, Sequence[SSAValue]]


def _one_by_one(b: Builder, op: AsyncCopyOp, source: Place, target: Place, n: int, value) -> None:
    """The same where a copy may reach from a row into the next."""
    element = memref_type_of(source[0]).element_type
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
    for index, extent in zip(reversed(indices[1:]), reversed(memref_type_of(array).get_shape()[1:])):
        by, rest = b.divmod(b.add(index, by), extent)
        found.append(rest)
    return [b.add(indices[0], by), *reversed(found)]


# ---- copies by tensor maps -------------------------------------------------------------------------------------------


def tma_load(b: Builder, op: TmaLoadOp, value: Callable[[SSAValue], SSAValue]) -> None:
    """Copy at once, row by row. `value` gives an operand as the thread has it."""
    source, target = value(op.source), value(op.destination)
    at, to = ([value(v) for v in indices] for indices in (op.source_indices, op.destination_indices))
    if isinstance(op.map, Im2colAttr):
        _windows(b, op.map, (source, at), [value(v) for v in op.offsets], (target, to))
        return
    *outer, width = integers_of(op.map.box, None, "the extents of a box")
    with b.loop(0, prod(outer), name="line") as line:
        index, number = list(at), line.iv
        for d, extent in reversed([*enumerate(outer)]):
            number, own = b.divmod(number, extent) if d else (number, number)
            index[d] = b.add(at[d], own if extent > 1 else 0)
        _row(b, (source, index), (target, _next(b, to, line.iv)), width)


def _windows(b: Builder, map: Im2colAttr, source: Place, tap: Sequence[SSAValue], target: Place) -> None:
    """A row for each window; the last one of a row of windows is followed by the first of the next row, or picture."""
    memory, (picture, y, x, channel) = source
    extents = memref_type_of(memory).get_shape()[1:3]
    lower, upper, steps = (integers_of(a, 2, "of rows and columns") for a in (map.lower, map.upper, map.strides))
    with b.loop(0, map.pixels.value.data, 1, [picture, y, x], name="line") as line:
        picture, y, x = line.args
        _row(b, (memory, [picture, b.add(y, tap[0]), b.add(x, tap[1]), channel]),
             (target[0], _next(b, target[1], line.iv)), map.channels.value.data)  # fmt: skip
        x, beside = _step(b, x, steps[1], lower[1], extents[1] - 1 + upper[1])
        below = b.select(beside, b.index(steps[0]), b.index(0))
        y, last = _step(b, y, below, lower[0], extents[0] - 1 + upper[0])
        line.yields(b.add(picture, b.select(last, b.index(1), b.index(0))), y, x)


def _step(b: Builder, at: SSAValue, by: Index, first: int, last: int) -> tuple[SSAValue, SSAValue]:
    """The beginning of the next window along a dimension: the first one behind the last; and whether it is that."""
    moved = b.add(at, by)
    over = b.cmpi("sgt", moved, b.index(last))
    return b.select(over, b.index(first), moved), over


def _next(b: Builder, at: Sequence[SSAValue], by: SSAValue) -> list[SSAValue]:
    """The row `by` rows further on."""
    return [b.add(at[0], by), *at[1:]]


def _row(b: Builder, source: Place, target: Place, width: int) -> None:
    """Copy `width` elements along the last dimension; those outside of the source are zeros."""
    (memory, at), (stage, to) = source, target
    type = memref_type_of(memory)
    element, dims = type.element_type, type.get_shape()
    first, zero = at[-1], b.index(0)
    inside = reduce(
        lambda x, y: b.op(arith.AndIOp, x, y), (b.cmpi("ult", i, b.index(n)) for i, n in zip(at[:-1], dims[:-1]))
    )
    begin = b.op(arith.MaxSIOp, first, zero)
    end = b.op(arith.MinSIOp, b.add(first, width), b.index(dims[-1]))
    end = b.select(inside, end, begin)
    last = len(at) - 1

    def whole() -> list[SSAValue]:
        b.tile_store(b.tile_load(memory, at, [last], [width]), stage, to, [1])
        return []

    def part() -> list[SSAValue]:
        b.tile_store(b.const(0, vector_type((width,), element)), stage, to, [1])
        with b.loop(begin, end) as i:
            read = b.load(memory, [*at[:-1], i.iv])
            b.store(read, stage, [to[0], b.add(to[1], b.op(arith.SubiOp, i.iv, first))])
        return []

    if dims[-1] < width:
        part()
    else:
        b.choose(b.cmpi("eq", b.op(arith.SubiOp, end, begin), b.index(width)), whole, part)


def round_tf32(b: Builder, value: SSAValue) -> SSAValue:
    """`cuda.round_tf32`: ties away from zero; infinities and NaN stay what they are (PTX ISA, ``cvt.rna.tf32.f32``)."""
    bits = b.cast("bitcast", value, i32)
    exponent = b.const(_EXPONENT, i32)
    rounded = b.op(arith.AndIOp, b.op(arith.AddiOp, bits, b.const(_HALF, i32)), b.const(~_BELOW, i32))
    finite = b.cmpi("ne", b.op(arith.AndIOp, bits, exponent), exponent)
    return b.cast("bitcast", b.select(finite, rounded, bits), f32)
