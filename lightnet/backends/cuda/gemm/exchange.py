"""Sums of tensor cores that threads exchange, so that what each of them writes is one piece of memory.

Four lanes, a *quad*, share a row of a warp's sums: of every eight columns each lane has two. Where it keeps the columns
of one such block of eight and gives those of another away, it has four columns, or eight, that are next to each other:
16 bytes of f32, or of 16-bit elements. Imports the builder.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import vector
from xdsl.dialects.builtin import VectorType, f32
from xdsl.ir import SSAValue

from lightnet.backends.builder import Index
from lightnet.backends.cuda.simt import Simt

#: Lanes that share a row of a warp's sums, and sums next to each other that each of them has.
QUAD, PAIR = 4, 2


def exchanged(b: Simt, lane: SSAValue, parts: Sequence[SSAValue]) -> tuple[Index, Index, SSAValue]:
    """The values of a lane after an exchange of one, two or four blocks of eight columns. `parts`, vectors [2, 2], are
    its two columns of each, `lane` is its number in the quad. The number of the block that it has then, the first of
    its columns there, and the values: two (nothing was exchanged), four or all eight columns, [2, columns].
    """
    if len(parts) == 1:
        return 0, b.mul(lane, PAIR), parts[0]
    upper, lower = b.divmod(lane, 2)
    odd, high = (b.cmpi("eq", bit, b.index(1)) for bit in (lower, upper))
    # Neighbours have four columns of block `lower` of each two blocks: their own ones, in the order of the lanes.
    pairs = [_traded(b, 1, odd, parts[n], parts[n + 1]) for n in range(0, len(parts), 2)]
    if len(pairs) == 1:
        return lower, b.mul(upper, 2 * PAIR), _beside(b, pairs[0])
    # Then the halves of the quad do the same with these: a lane has block 2 upper + lower, the columns of the lower
    # half first.
    even_lane, odd_lane = (_traded(b, 2, high, one, other) for one, other in zip(*pairs))
    return lane, 0, _beside(b, [part for half in zip(even_lane, odd_lane) for part in half])


def _traded(
    b: Simt, distance: int, keeps_second: SSAValue, one: SSAValue, other: SSAValue
) -> tuple[SSAValue, SSAValue]:
    """Each of two lanes, `distance` apart, has two vectors [2, 2], keeps the first or the second, and gets that of the
    other lane: both, in the order of the lanes."""
    sent = b.select(keeps_second, one, other)
    kept = b.select(keeps_second, other, one)
    got = b.const(0.0, VectorType(f32, [2, 2]))
    for at in ([0, 0], [0, 1], [1, 0], [1, 1]):
        got = b.get(vector.InsertOp(b.shuffle("xor", b.extract(sent, at), distance), got, at))
    return b.select(keeps_second, got, kept), b.select(keeps_second, kept, got)


def _beside(b: Simt, parts: Sequence[SSAValue]) -> SSAValue:
    """Vectors [2, 2] next to each other."""
    made = b.const(0.0, VectorType(f32, [2, PAIR * len(parts)]))
    for n, part in enumerate(parts):
        for r in range(2):
            for c in range(PAIR):
                made = b.get(vector.InsertOp(b.extract(part, [r, c]), made, [r, PAIR * n + c]))
    return made
