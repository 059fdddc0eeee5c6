"""The common part of the handlers of detectors: boxes and rows that hold them, their order, and their suppression.

A *row* of [B, N, W] holds a class, a score, four coordinates and what else there is, in columns of its own. Detectors
keep N rows and fill those that are left over with -1, so that all sizes are known; how many there are is a tensor
beside them. A handler takes what it needs from here: which rows count is a tensor [B, N] of i1 (`flags`), an order one
of i64. Imports the graph builder and the table of handlers.
"""

from __future__ import annotations

import math

import numpy as np

from lightnet.dataclasses import dataclass
from lightnet.frontends import composites
from lightnet.frontends.graph import Value
from lightnet_nnvm.node import Node


@dataclass(frozen=True)
class Columns:
    """The columns of things in a row of `width` numbers; `identity` is the column of the class, None where there is
    none."""

    width: int
    score: int = 1
    start: int = 2
    identity: int | None = 0

    @classmethod
    def of(cls, n: Node, width: int, identity: int) -> Columns:
        """The columns that the attributes `score_index`, `coord_start` and `id_index` (its default is `identity`) name.
        Columns outside of a row, or that are two things at once, are errors.
        """
        index = n.int("id_index", identity)
        found = cls(width, n.int("score_index", 1), n.int("coord_start", 2), index if index >= 0 else None)
        taken = [found.score, *range(found.start, found.start + 4)]
        taken += [] if found.identity is None else [found.identity]
        if min(taken) < 0 or max(taken) >= width or len(set(taken)) != len(taken):
            n.fail("takes rows of a score, four coordinates and what else there is, each at a place of its own, but a "
                   f"row has {width} numbers, "
                   f"score_index is {found.score}, coord_start {found.start} and id_index {index}")  # fmt: skip
        return found


def column(n: Node, x: Value, index: int, count: int = 1) -> Value:
    """Columns of the last axis; the axis stays."""
    return composites.cut(n.g, x, x.ndim - 1, index, count)


def flat_column(n: Node, rows: Value, index: int) -> Value:
    """One column [B, N] of rows."""
    return n.g.reshape(column(n, rows, index), rows.dims[:2])


def other_form(n: Node, boxes: Value, form: str) -> Value:
    """Boxes of the other form: centre and size (``center``) as corners, or corners as centre and size."""
    g, half = n.g, n.scalar(0.5, boxes)
    first, second = column(n, boxes, 0, 2), column(n, boxes, 2, 2)
    if form == "center":
        return around(n, first, g.op("mul", second, half))
    size = g.op("sub", second, first)
    return g.op("concat", g.op("add", first, g.op("mul", size, half)), size, axis=boxes.ndim - 1)


def around(n: Node, centre: Value, reach: Value) -> Value:
    """The corners of boxes that reach that far from their centres."""
    corners = [n.g.op(side, centre, reach) for side in ("sub", "add")]
    return n.g.op("concat", *corners, axis=centre.ndim - 1)


def moved_boxes(n: Node, centre: Value, size: Value, deltas: Value, limit: float = 0.0) -> Value:
    """Boxes, moved by deltas in units of their sizes and stretched by exponents, at most `limit` where that is above 0:
    corners."""
    g = n.g
    middle = g.op("add", g.op("mul", column(n, deltas, 0, 2), size), centre)
    growth = column(n, deltas, 2, 2)
    if limit > 0:
        growth = g.op("minimum", growth, n.scalar(limit, growth))
    return around(n, middle, g.op("mul", g.op("mul", g.op("exp", growth), size), n.scalar(0.5, size)))


def above(n: Node, x: Value, limit: float) -> Value:
    return n.g.op("less", n.scalar(limit, x), x)


def at_least(n: Node, x: Value, limit: float) -> Value:
    return n.g.op("less_equal", n.scalar(limit, x), x)


def both(n: Node, *flags: Value | None) -> Value:
    """The flags where all of those that are there hold."""
    found, *rest = (f for f in flags if f is not None)
    for other in rest:
        found = n.g.op("bit_and", found, other)
    return found


def but_not(n: Node, flags: Value, other: Value) -> Value:
    return n.g.op("bit_and", flags, n.g.op("logical_not", other))


def positions(n: Node, count: int) -> Value:
    """0, 1, … as [1, count] of i32."""
    return composites.positions_along(n.g, count, 1, 2, "i32")


def first_rows(n: Node, counts: Value, count: int) -> Value:
    """Flags [B, count]: the first `counts` [B, 1] of each picture."""
    return n.g.op("less", positions(n, count), counts)


def how_many(n: Node, flags: Value) -> Value:
    """The number of rows of each picture that the flags name: [B, 1] of i32."""
    return n.g.op("reduce_sum", n.g.cast(flags, "i32"), axes=(1,))


def in_order(n: Node, rows: Value, order: Value) -> Value:
    """rows[b, order[b, k], :]."""
    index = composites.expand(n.g, n.g.reshape(order, (*order.dims, 1)), (*order.dims, rows.dims[2]))
    return n.g.op("take_along", rows, index, axis=1)


def by_score(n: Node, scores: Value, flags: Value, count: int | None = None) -> Value:
    """The order [B, count] of the rows that the flags name, best first and stable, before all others."""
    g = n.g
    kept = g.op("where", flags, scores, n.scalar(-math.inf, scores))
    return g.op("topk", kept, axis=1, k=scores.dims[1] if count is None else count, largest=True, sorted=True)[1]


def best_first(n: Node, rows: Value, flags: Value, counts: Value) -> Value:
    """`rows` with the best `counts` [B, 1] of those that the flags name in falling order of score (column 1); behind
    them, those that stood there."""
    order = by_score(n, flat_column(n, rows, 1), flags)
    there = composites.expand(n.g, n.g.cast(positions(n, rows.dims[1]), "i64"), order.dims)
    return in_order(n, rows, n.g.op("where", first_rows(n, counts, rows.dims[1]), order, there))


def fronted(n: Node, flags: Value, count: int | None = None) -> tuple[Value, Value]:
    """The order [B, count] that brings the rows that the flags name to the front, as they stand; and which of the rows
    are such then."""
    stays, order = n.g.op("topk", flags, axis=1, k=flags.dims[1] if count is None else count, largest=True, sorted=True)
    return order, stays


def only(n: Node, flags: Value, rows: Value) -> Value:
    """`rows` [B, N, W] where the flags hold, else rows of -1."""
    return n.g.op("where", n.g.reshape(flags, (*flags.dims, 1)), rows, n.scalar(-1, rows))


def to_front(n: Node, rows: Value, flags: Value) -> Value:
    """The rows that the flags name, in their order; rows of -1 follow."""
    order, stays = fronted(n, flags)
    return only(n, stays, in_order(n, rows, order))


def at_most(n: Node, counts: Value, most: int) -> Value:
    """`counts`, at most `most` of each picture where that is above 0."""
    return n.g.op("minimum", counts, n.scalar(most, counts)) if most > 0 else counts


def suppressed_flags(n: Node, boxes: Value, flags: Value, group: Value | None, threshold: float, **how: bool) -> Value:
    """The flags of those boxes [B, N, 4] that go, of the ones that the flags name, since they overlap an earlier one
    (`ln.nms`) of their group [B, N].
    """
    groups = composites.full(n.g, flags.dims, 0, boxes.dtype) if group is None else group
    return but_not(n, flags, n.g.op("nms", boxes, groups, flags, threshold=threshold, **how))


def cleared(n: Node, rows: Value, flags: Value, columns: list[int]) -> Value:
    """`rows` with -1 in some columns of those that the flags name."""
    width = rows.dims[2]
    here = np.isin(np.arange(width), columns).reshape(1, 1, width)
    where = n.g.op("bit_and", n.g.reshape(flags, (*flags.dims, 1)), n.g.constant(here))
    return n.g.op("where", where, n.scalar(-1, rows), rows)


def need_dims(n: Node, what: str, x: Value, *dims: int | None) -> None:
    """Refuse an input that has not these dims (None: any)."""
    if len(x.dims) != len(dims) or any(d not in (None, m) for d, m in zip(dims, x.dims)):
        wanted = ", ".join("?" if d is None else str(d) for d in dims)
        n.fail(f"its {what} should have shape [{wanted}], but has {list(x.dims)}")
