"""Moving what is counted: elements lie at their bounds, so a shape that changes, or a join, has to bring together those
that count.

*Compaction* is one mechanism for all of it: the places of the elements that count (`ln.nonzero` of flags), then a
gather. A reshape that leaves counted axes in front, or as they are, is free. Imports the counted values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

from lightnet.diagnostics import LightNetError
from lightnet.frontends import counted_ops  # noqa: F401 (registers its rules)
from lightnet.frontends.composites import strided
from lightnet.frontends.counted import (
    RULES,
    Counted,
    Numbers,
    axis_positions,
    before_count,
    counted,
    counted_rule,
    decided,
    derived,
    dim_number,
    dim_quotient,
    filled_behind,
    fitted,
    op,
    width,
    widths,
)
from lightnet.frontends.graph import Graph, Value
from lightnet.frontends.sizes import SizeSymbol, UndecidedSize, inputs_of, is_counted, of_symbol
from lightnet.runtime.dims import Size, dim_max, dim_min, greatest, is_known, least

__all__ = ["concat", "dim_number", "expand", "op", "reshape", "slice_axis"]


# -- reshape ---------------------------------------------------------------------------------------------------------


def reshape(g: Graph, x: Value, dims: Sequence[Size]) -> Value:
    """`x` under other dims, of which some are sizes; the elements that count stay in row-major order."""
    dims = tuple(d if is_counted(d) else int(d) for d in dims)
    if x.dims == dims:
        return x
    if isinstance(x, Numbers):
        return op(g, "reshape", [x], {"dims": dims})
    static = _in_place(x.dims, x.spec.dims, dims)
    if static is not None:
        return counted(g, g.plain("reshape", _plain(x), dims=tuple(static)), dims)
    return _spread(g, _flat(g, x), dims)


def _plain(x: Value) -> Value:
    """The tensor within its bounds."""
    return x.whole if isinstance(x, Counted) else x


def _in_place(source: Sequence[Size], lens: Sequence[int], target: Sequence[Size]) -> list[int] | None:
    """The dims of the type after a reshape that moves nothing, or None where there is none: axes are split and joined
    in groups, and in each group the counted axis is the first of both sides, or it is one axis that stays as it is."""
    found = list[int]()
    i = j = 0
    while i < len(source) or j < len(target):
        p, q = list(range(i, min(i + 1, len(source)))), list(range(j, min(j + 1, len(target))))
        while (a := prod(source[k] for k in p)) != (b := prod(target[k] for k in q)):
            grow = _shorter(a, b, len(p) + i < len(source), len(q) + j < len(target))
            if grow is None:
                return None
            (p if grow else q).append(i + len(p) if grow else j + len(q))
        group = _group([source[k] for k in p], [lens[k] for k in p], [target[k] for k in q])
        if group is None:
            return None
        found += group
        i, j = i + len(p), j + len(q)
    return found


def _shorter(a: Size, b: Size, more_left: bool, more_right: bool) -> bool | None:
    """Return whether the left side of a group gets one more axis (False: the right one); None where neither helps."""
    is_longer = a.over(b) is not None if is_counted(a) else not is_counted(b) and b < a
    if is_longer and more_right:
        return False
    return True if more_left else False if more_right else None


def _group(source: Sequence[Size], lens: Sequence[int], target: Sequence[Size]) -> list[int] | None:
    """The dims in the type of one group of axes, None where elements would have to move."""
    before = [(d, n) for d, n in zip(source, lens) if d != 1]
    after = [d for d in target if d != 1]
    if is_known([d for d, _ in before]):
        return list(target) if is_known(target) else None  # type: ignore[arg-type]
    if [d for d, _ in before] == after:
        given = iter(n for _, n in before)
        return [1 if d == 1 else next(given) for d in target]
    if not is_known([d for d, _ in before[1:]]) or not after or not is_known(after[1:]):
        return None
    size, rest = prod(n for _, n in before), prod(after[1:])
    if not rest or size % rest:
        return None
    at = target.index(after[0])
    return [size // rest if k == at else d for k, d in enumerate(target)]  # type: ignore[misc]


def _flat(g: Graph, x: Value) -> Value:
    """The elements that count, as a vector."""
    total, lens = x.len, x.spec.dims
    flat = g.plain("reshape", _plain(x), dims=(prod(lens),))
    inner = [k for k, d in enumerate(x.dims) if is_counted(d) and any(e != 1 for e in x.dims[:k])]
    if inner:
        flags = before_count(g, x.dims)
        assert flags is not None
        flat = compacted(g, flat, g.plain("reshape", g.plain("expand", flags, dims=lens), dims=(prod(lens),)), 0)
    return counted(g, flat, [total])


def compacted(g: Graph, x: Value, flags: Value, axis: int) -> Value:
    """The elements along `axis` whose flag (a vector of i1) is set, brought to the front."""
    indices, _ = g.plain("nonzero", flags)
    return g.plain("take", x, g.plain("reshape", indices, dims=flags.spec.dims), axis=axis)


def _spread(g: Graph, flat: Value, dims: Sequence[Size]) -> Value:
    """A vector of what counts as a tensor of `dims`, whose counted axes may be anywhere."""
    lens = widths(dims)
    g.bounded(prod(lens), "a tensor of sizes that the data decides", 1 << 28)
    first = next((k for k, d in enumerate(dims) if d != 1), 0)
    if all(not is_counted(d) for d in dims[first + 1 :]):
        rest = prod(lens[first + 1 :])
        row = fitted(g, _plain(flat), 0, lens[first] * rest if lens else 1)
        return counted(g, g.plain("reshape", row, dims=lens), dims)
    place: Value | None = None
    for axis, dim in enumerate(dims):
        if dim == 1:
            continue
        here = axis_positions(g, lens[axis], axis, len(dims))
        stride = prod(dims[axis + 1 :])
        here = here if stride == 1 else g.plain("mul", here, dim_number(g, stride))
        place = here if place is None else g.plain("add", place, here)
    assert place is not None
    return counted(g, g.plain("take", _plain(flat), g.plain("expand", place, dims=lens), axis=0), dims)


# -- expand, concat, slice -------------------------------------------------------------------------------------------


def expand(g: Graph, x: Value, dims: Sequence[Size]) -> Value:
    """Broadcast to `dims`, of which some are sizes."""
    if x.dims == tuple(dims):
        return x
    if isinstance(x, Numbers):
        return op(g, "expand", [x], {"dims": tuple(dims)})
    behind = (1,) * (len(dims) - x.ndim) + x.dims
    for have, want in zip(behind, dims):
        if have not in (1, want):
            raise LightNetError(f"{list(map(str, x.dims))} does not broadcast to {list(map(str, dims))}")
    lens = widths(dims)
    g.bounded(prod(lens), "a tensor of sizes that the data decides", 1 << 28)
    return counted(g, g.plain("expand", _plain(x), dims=lens), dims)


def concat(g: Graph, parts: Sequence[Value], axis: int) -> Value:
    """Tensors behind each other along `axis`, some of them counted."""
    if any(isinstance(p, Numbers) for p in parts):
        return op(g, "concat", list(parts), {"axis": axis})
    for k in range(parts[0].ndim):
        if k != axis and any(p.dims[k] != parts[0].dims[k] for p in parts[1:]):
            raise LightNetError(f"the parts differ along axis {k}: {', '.join(str(p.dims[k]) for p in parts)}")
    total: Size = sum(p.dims[axis] for p in parts)
    whole = [p for p in parts if p.spec.dims[axis]]
    joined = _joined(g, [_plain(p) for p in whole], axis)
    dims = [total if k == axis else d for k, d in enumerate(parts[0].dims)]
    if all(not is_counted(p.dims[axis]) for p in whole[:-1]):
        return counted(g, joined, dims)
    flags = []
    for p in whole:
        n = p.spec.dims[axis]
        there = before_count(g, [p.dims[axis]])
        flags.append(g.plain("expand", g.scalar(1, "i1"), dims=(n,)) if there is None else there)
    return counted(g, compacted(g, joined, _joined(g, flags, 0), axis), dims)


def _joined(g: Graph, parts: Sequence[Value], axis: int) -> Value:
    from lightnet.frontends.composites import concat as plain_concat

    return plain_concat(g, parts, axis)


RULES |= {
    "reshape": lambda g, _, operands, params: reshape(g, operands[0], params["dims"]),
    "expand": lambda g, _, operands, params: expand(g, operands[0], params["dims"]),
    "concat": lambda g, _, operands, params: concat(g, operands, params["axis"]),
}


def slice_axis(g: Graph, x: Value, axis: int, start: Size, end: Size, step: int) -> Value:
    """As NumPy's ``x[start:end:step]`` along one axis, where the length of the axis, or an end, is a size."""
    n = x.dims[axis]
    if step < 0:
        first, last = _within(g, start, n, -1), _within(g, end, n, -1)
        length = dim_quotient(dim_max(first - last, 0) + (-step - 1), -step)
    else:
        first, last = _within(g, start, n, 0), _within(g, end, n, 0)
        length = dim_quotient(dim_max(last - first, 0) + (step - 1), step)
    if isinstance(x, Numbers):
        raise UndecidedSize(*(d for d in (first, last) if is_counted(d)))
    dims = [length if k == axis else d for k, d in enumerate(x.dims)]
    if type(x) is Value and not is_counted(first) and not is_counted(length):
        starts, steps = [0] * x.ndim, [1] * x.ndim
        starts[axis], steps[axis] = first, step
        return strided(g, x, starts, steps, dims)
    if first == 0 and step == 1:
        return counted(g, _plain(x), dims)
    most = width(length)
    place = axis_positions(g, most, 0, 1)
    if step != 1:
        place = g.plain("mul", place, g.scalar(step, "i64"))
    place = g.plain("add", place, dim_number(g, first))
    place = g.plain("clip", place, lo=0, hi=max(x.spec.dims[axis] - 1, 0))  # below 0 would count from the end
    return counted(g, g.plain("take", _plain(x), place, axis=axis), dims)


def _within(g: Graph, at: Size, n: Size, low: int) -> Size:
    """An end of a slice: from the end of the axis where it is below 0, then between `low` and n (from behind: n -
    1)."""
    if is_counted(at):
        if at.low < 0:
            raise UndecidedSize(at)
    elif at < 0:
        at = n + at if at > -(1 << 31) else low
    return dim_max(dim_min(at, n + low), low)


@counted_rule("slice")
def _slice(g: Graph, optype: str, operands: list[Value], params: dict[str, Any]) -> Value:
    x, axis = operands[0], params["axis"]
    if is_counted(x.dims[axis]):
        return slice_axis(g, x, axis, params["start"], params["start"] + params["len"], 1)
    return derived(g, optype, operands, params)


def pad(g: Graph, x: Value, before: Sequence[int], after: Sequence[Size], value: float) -> Value:
    """`value` before and behind what counts. Raises `UndecidedSize` where the data decides how much stands before."""
    if isinstance(x, Numbers):
        x = x.emitted(g)
    dims = tuple(b + n + a for b, n, a in zip(before, x.dims, after))
    if any(width(d) < 0 or least(d) < 0 for d in dims) or not is_known(before):
        raise UndecidedSize(*(d for d in (*dims, *before) if is_counted(d)))
    behind = tuple(width(d) - n - b for d, n, b in zip(dims, x.spec.dims, before))
    inside = filled_behind(g, x, value) if isinstance(x, Counted) else x
    return counted(g, g.plain("pad", _plain(inside), before=tuple(before), after=behind, value=value), dims)


def merged(g: Graph, cond: Value, a: Value, b: Value) -> Value:
    """`a` where the bool `cond` holds, else `b`: tensors of one rank, each axis of which is as long as that of the one
    that is taken."""
    dims = tuple(m if m == n else _chosen(g, cond, m, n) for m, n in zip(a.dims, b.dims))
    parts = [_plain(counted(g, _plain(x) if not isinstance(x, Numbers) else x.emitted(g), dims)) for x in (a, b)]
    return counted(g, g.plain("where", cond, *parts), dims)


def _chosen(g: Graph, cond: Value, m: Size, n: Size) -> Size:
    """One of two sizes."""
    emit = lambda: g.plain("where", cond, dim_number(g, m), dim_number(g, n))  # noqa: E731
    limits = min(least(m), least(n)), max(greatest(m), greatest(n))
    return decided(
        g,
        ("or", g.ssa(cond), m, n),
        lambda: of_symbol(SizeSymbol(f"{m!s} or {n!s}", *limits, emit=emit, inputs=inputs_of(m, n))),
    )


# -- places that data names ------------------------------------------------------------------------------------------


def from_front(g: Graph, index: Value, lens: Sequence[Size], along: bool = False) -> Value:
    """Indices, those below 0 counted from the end of a counted axis; with `along`, the last axis of `index` has one for
    each of `lens`."""
    if is_known(lens):
        return index
    if along:
        count: Value = g.cast(_joined(g, [g.reshape(dim_number(g, d), (1,)) for d in lens], 0), index.dtype)
    else:
        count = g.cast(dim_number(g, lens[0]), index.dtype)
    below = g.op("less", index, g.scalar(0, index.dtype))
    return g.op("where", below, g.op("add", index, count), index)


def _pickable(g: Graph, x: Value, axes: Iterable[int]) -> Value:
    """With two elements along axes that have fewer: of one, a definition reads no index, and of none it can pick
    nothing."""
    for axis in axes:
        if (n := x.spec.dims[axis]) < 2:
            after = tuple(2 - n if k == axis else 0 for k in range(x.ndim))
            x = g.op("pad", x, before=(0,) * x.ndim, after=after)
    return x


@counted_rule("take", "take_along")
def _take(g: Graph, optype: str, operands: list[Value], params: dict[str, Any]) -> Value:
    x, index = operands
    x, index = _pickable(g, x, [params["axis"]]), from_front(g, index, [x.dims[params["axis"]]])
    if optype == "take_along" and any(
        a != b for k, (a, b) in enumerate(zip(x.dims, index.dims)) if k != params["axis"]
    ):
        raise UndecidedSize(*(d for d in (*x.dims, *index.dims) if is_counted(d)))
    return derived(g, optype, [x, index], params, by_index=True)


@counted_rule("gather_nd")
def _gather_nd(g: Graph, optype: str, operands: list[Value], params: dict[str, Any]) -> Value:
    x, index = operands
    batch, depth = params.get("batch_dims", 0), index.spec.dims[-1]
    index = from_front(g, index, x.dims[batch : batch + depth], along=True)
    x = _pickable(g, x, range(batch, batch + depth))
    return derived(g, optype, [x, index], params, by_index=True)
