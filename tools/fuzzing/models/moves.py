"""Steps that move elements: shapes, slices, joins, gathers, scatters, pads; and what reads a shape."""

from __future__ import annotations

import math

import numpy as np

from .builder import DTYPES, FLOATS, Builder, Stuck, Value

ANY = ("f32", "f64", "f16", "i64", "i32", "i1", "ui8")


def _any(b: Builder, *args, **kw) -> Value:
    return b.pick((b.main, *b.rng.sample(ANY, 2)), *args, **kw)


def _same(b: Builder, op: str, inputs: list[Value | None], x: Value, shape, **attrs) -> Value:
    return b.add(op, inputs, x.dtype, shape, x.lo, x.hi, **attrs)


def reshape(b: Builder) -> Value:
    """Reshape with what may stand in for a dim: -1, and 0 of the input's."""
    x = _any(b)
    dims: list[int] = []
    rest = x.size
    while rest > 1 and len(dims) < 5:
        d = b.rng.choice([n for n in range(1, rest + 1) if rest % n == 0][:12])
        dims.append(d)
        rest //= d
    if rest != 1 or b.chance(0.2):
        dims.insert(b.rng.randint(0, len(dims)), rest)
    if not x.size:
        dims = list(b.rng.sample(x.shape, x.rank))
    out, said = tuple(dims), list(dims)
    if x.size and dims and b.chance(0.5):
        said[b.rng.randrange(len(said))] = -1
    elif x.size:
        said = [0 if i < x.rank and d == x.shape[i] and b.chance(0.4) else d for i, d in enumerate(said)]
    attrs = {"allowzero": 1} if not x.size and b.opset >= 14 else {}
    if not x.size and not attrs and any(d == 0 and (i >= x.rank or x.shape[i]) for i, d in enumerate(said)):
        raise Stuck
    return _same(b, "Reshape", [x, b.ints(said) if said else b.const(np.zeros(0), "i64")], x, out, **attrs)


def transpose(b: Builder, x: Value | None = None) -> Value:
    x = x or _any(b)
    perm = b.rng.sample(range(x.rank), x.rank)
    if b.chance(0.2) or not perm:
        return _same(b, "Transpose", [x], x, x.shape[::-1])
    return _same(b, "Transpose", [x], x, [x.shape[i] for i in perm], perm=perm)


def flatten(b: Builder) -> Value:
    x = b.pick(FLOATS)
    axis = b.rng.randint(0, x.rank)
    shape = (math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))
    return _same(
        b, "Flatten", [x], x, shape, axis=axis - x.rank if axis < x.rank and b.opset >= 11 and b.chance(0.3) else axis
    )


def squeeze(b: Builder) -> Value:
    x = _any(b, where=lambda v: 1 in v.shape)
    ones = [i for i, d in enumerate(x.shape) if d == 1]
    axes = b.rng.sample(ones, b.rng.randint(1, len(ones)))
    shape = [d for i, d in enumerate(x.shape) if i not in axes]
    if len(axes) == len(ones) and b.chance(0.3):
        return _same(b, "Squeeze", [x], x, shape)
    axes = [a - x.rank if b.opset >= 11 and b.chance(0.3) else a for a in sorted(axes)]
    if b.opset < 13:
        return _same(b, "Squeeze", [x], x, shape, axes=axes)
    return _same(b, "Squeeze", [x, b.ints(axes)], x, shape)


def unsqueeze(b: Builder) -> Value:
    x = _any(b, (0, 4))
    n = b.rng.randint(1, 2)
    rank = x.rank + n
    axes = sorted(b.rng.sample(range(rank), n))
    rest = iter(x.shape)
    shape = [1 if i in axes else next(rest) for i in range(rank)]
    axes = [a - rank if b.opset >= 11 and b.chance(0.3) else a for a in axes]
    if b.opset < 13:
        return _same(b, "Unsqueeze", [x], x, shape, axes=axes)
    return _same(b, "Unsqueeze", [x, b.ints(axes)], x, shape)


def expand(b: Builder) -> Value:
    if b.opset < 8:
        raise Stuck
    x = _any(b, (0, 4), lambda v: v.size < 300)
    shape = [b.rng.choice((1, 2, 3)) if d == 1 else d for d in x.shape]
    front = [b.rng.choice((1, 2, 3)) for _ in range(b.rng.choice((0, 0, 1)))]
    said = front + [1 if b.chance(0.3) and d == x.shape[i] else d for i, d in enumerate(shape)]
    said = said[b.rng.choice((0, 0, len(said) // 2)) :] if not front else said
    out = np.broadcast_shapes(x.shape, tuple(said))
    return _same(b, "Expand", [x, b.ints(said) if said else b.const(np.zeros(0), "i64")], x, out)


def tile(b: Builder) -> Value:
    x = b.pick((b.main, "i64", "f32"), (1, 4), lambda v: v.size < 300)
    times = [b.rng.choice((1, 1, 2, 3)) for _ in x.shape]
    return _same(b, "Tile", [x, b.ints(times)], x, [d * n for d, n in zip(x.shape, times)])


def concat(b: Builder) -> Value:
    """Values that agree but for an axis: those there are, parts, parameters."""
    x = _any(b, (1, 5))
    axis = b.axis(x)
    at = axis % x.rank
    fits = [
        y
        for y in b.values
        if y.dtype == x.dtype
        and y.rank == x.rank
        and all(m == n for i, (m, n) in enumerate(zip(x.shape, y.shape)) if i != at)
    ]
    parts = [x, *b.rng.choices(fits or [x], k=b.rng.choice((0, 1, 1, 2, 3)))]
    if b.chance(0.3):
        extra = [b.rng.choice((1, 2)) if i == at else d for i, d in enumerate(x.shape)]
        parts.append(b.param(extra, *b.ends(x.dtype), dtype=x.dtype))
    b.rng.shuffle(parts)
    shape = [sum(p.shape[at] for p in parts) if i == at else d for i, d in enumerate(x.shape)]
    if math.prod(shape) > 3000:
        raise Stuck
    return b.add("Concat", parts, x.dtype, shape, min(p.lo for p in parts), max(p.hi for p in parts), axis=axis)


def split(b: Builder) -> Value:
    """Split, of which parts may stay unread (one without a name ends ONNX Runtime 1.32 by a signal)."""
    x = _any(b, (1, 5), lambda v: max(v.shape) > 1)
    axis = b.axis(x)
    n = x.shape[axis]
    if n < 2:
        raise Stuck
    cuts = sorted(b.rng.sample(range(1, n), b.rng.randint(1, min(3, n - 1))))
    parts = [j - i for i, j in zip([0, *cuts], [*cuts, n])]
    even = len(set(parts)) == 1 and b.opset < 18 and b.chance(0.5)
    inputs, attrs = [x], {"axis": axis if axis else None}
    if not even and b.opset < 13:
        attrs["split"] = parts
    elif not even:
        inputs.append(b.ints(parts))
    results = [(x.dtype, [p if j == axis % x.rank else d for j, d in enumerate(x.shape)], x.lo, x.hi) for p in parts]
    return b.multi("Split", inputs, results, **attrs)[0]


def slice_(b: Builder) -> Value:
    """Slice: any axes, ends beyond the dims, steps of both signs from opset 10."""
    x = _any(b, (1, 5))
    axes = b.rng.sample(range(x.rank), b.rng.randint(1, x.rank))
    starts, ends, steps, shape = [], [], [], list(x.shape)
    for a in axes:
        d = x.shape[a]
        step = b.rng.choice((1, 1, 1, 2, 3, -1, -2)) if b.opset >= 10 else 1
        i, j = sorted((b.rng.randint(0, d), b.rng.randint(0, d)))
        i, j = (i, max(j, i + 1)) if step > 0 else (max(j, i + 1) - 1, i - 1)
        if step < 0 and (j < 0 or b.chance(0.3)):
            j = -d - 1 - b.rng.choice((0, 1000))
        elif step > 0 and b.chance(0.3):
            j = b.rng.choice((d, d + 5, 2**31 - 1, 2**63 - 1))
        n = len(range(*slice(i, j, step).indices(d)))
        if n == 0 and not b.empty:
            raise Stuck
        shape[a] = n
        starts.append(i - d if b.chance(0.3) and 0 <= i < d else i)
        ends.append(j - d if b.chance(0.2) and 0 < j < d else j)
        steps.append(step)
    if b.opset < 10:
        return _same(b, "Slice", [x], x, shape, axes=axes, starts=starts, ends=ends)
    said = [a - x.rank if b.chance(0.3) else a for a in axes]
    kind = "i64" if b.chance(0.8) or max(map(abs, ends)) > 2**31 - 1 else "i32"
    make = b.ints if kind == "i64" else lambda n: b.const(n, "i32")
    steps_value = make(steps) if any(s != 1 for s in steps) or b.chance(0.5) else None
    axes_value = None if axes == list(range(len(axes))) and b.chance(0.4) else make(said)
    return _same(b, "Slice", [x, make(starts), make(ends), axes_value, steps_value], x, shape)


def pad(b: Builder) -> Value:
    x = b.pick((b.main, b.main, "f32", "i64"), (1, 4), lambda v: v.size > 0)
    mode = b.rng.choice(("constant", "constant", "reflect", "edge"))
    if mode != "constant" and x.dtype == "f16":
        mode = "constant"
    if b.opset < 11 and x.dtype not in FLOATS:
        raise Stuck
    top = [min(2, d - 1) if mode == "reflect" else 2 for d in x.shape]
    begin, end = ([b.rng.randint(0, t) for t in top] for _ in range(2))
    if mode == "constant" and b.chance(0.2):
        a = b.rng.randrange(x.rank)
        if x.shape[a] > 1:
            begin[a] = -1
    shape = [d + i + j for d, i, j in zip(x.shape, begin, end)]
    fill = b.rng.choice((0, 1, -1))
    lo, hi = min(x.lo, fill), max(x.hi, fill)
    if b.opset < 11:
        return b.add("Pad", [x], x.dtype, shape, lo, hi, pads=begin + end, mode=mode, value=float(fill))
    value = b.const(fill, x.dtype) if mode == "constant" and b.chance(0.6) else None
    if b.opset >= 18 and b.chance(0.3):
        axes = sorted(b.rng.sample(range(x.rank), b.rng.randint(1, x.rank)))
        shape = [shape[i] if i in axes else d for i, d in enumerate(x.shape)]
        said = [a - x.rank if b.chance(0.3) else a for a in axes]
        return b.add(
            "Pad",
            [x, b.ints([begin[a] for a in axes] + [end[a] for a in axes]), value, b.ints(said)],
            x.dtype,
            shape,
            min(lo, 0),
            max(hi, 0),
            mode=mode,
        )
    return b.add("Pad", [x, b.ints(begin + end), value], x.dtype, shape, min(lo, 0), max(hi, 0), mode=mode)


def gather(b: Builder) -> Value:
    x = _any(b, (1, 4), lambda v: v.size > 0)
    axis = b.axis(x)
    n = x.shape[axis]
    index = _indices(b, b.rng.choice(((), (1,), (3,), (2, 2), (2, 1, 2))), n)
    at = axis % x.rank
    return _same(
        b,
        "Gather",
        [x, index],
        x,
        (*x.shape[:at], *index.shape, *x.shape[at + 1 :]),
        axis=axis if axis or b.chance(0.5) else None,
    )


def _indices(b: Builder, shape, n: int, lowest: int | None = None) -> Value:
    """Indices into an axis of n elements, from either end."""
    low = (-n if b.opset >= 11 and b.chance(0.4) else 0) if lowest is None else lowest
    dtype = b.rng.choice(("i64", "i64", "i32"))
    if not b.outer and b.chance(0.4):
        return b.input(dtype, shape, low, n - 1)
    return b.const(b.numbers(dtype, shape, low, n - 1), dtype)


def gather_elements(b: Builder) -> Value:
    if b.opset < 11:
        raise Stuck
    x = _any(b, (1, 4), lambda v: v.size > 0)
    axis = b.axis(x)
    shape = [b.rng.randint(1, d) if i != axis % x.rank else b.rng.randint(1, 4) for i, d in enumerate(x.shape)]
    return _same(b, "GatherElements", [x, _indices(b, shape, x.shape[axis])], x, shape, axis=axis)


def gather_nd(b: Builder) -> Value:
    if b.opset < 11:
        raise Stuck
    x = _any(b, (1, 4), lambda v: v.size > 0)
    k = b.rng.randint(1, x.rank)
    front = b.rng.choice(((), (2,), (2, 3)))
    index = b.const(
        np.stack([b.numbers("i64", front, -d if b.chance(0.3) else 0, d - 1) for d in x.shape[:k]], -1), "i64"
    )
    return _same(b, "GatherND", [x, index], x, (*front, *x.shape[k:]))


def scatter(b: Builder) -> Value:
    """ScatterElements, ScatterND and their reductions; indices differ where the order would count."""
    if b.opset < 11:
        raise Stuck
    x = b.pick((b.main, "f32", "i64"), (1, 4), lambda v: v.size > 0)
    reduction = b.rng.choice(
        (None, *(("add", "mul") if b.opset >= 16 else ()), *(("max", "min") if b.opset >= 18 else ()))
    )
    if x.dtype == "f16":
        reduction = None
    if b.chance(0.5):
        axis = b.axis(x)
        n = x.shape[axis]
        shape = [b.rng.randint(1, d) for d in x.shape]
        order = np.argsort(
            b.data.random(shape if reduction else [n if i == axis % x.rank else d for i, d in enumerate(shape)]), axis
        )
        index = np.take(order, range(shape[axis]), axis) if not reduction else b.data.integers(0, n, shape)
        updates = b.param(shape, *b.ends(x.dtype), dtype=x.dtype)
        inputs, op, attrs = [x, b.const(index, "i64"), updates], "ScatterElements", {"axis": axis}
    else:
        k = b.rng.randint(1, x.rank)
        places = b.data.permutation(math.prod(x.shape[:k]))[: b.rng.randint(1, 3)]
        index = np.stack(np.unravel_index(places, x.shape[:k]), -1)
        updates = b.param((len(places), *x.shape[k:]), *b.ends(x.dtype), dtype=x.dtype)
        inputs, op, attrs = [x, b.const(index, "i64"), updates], "ScatterND", {}
    r = x.reach * updates.reach if reduction == "mul" else x.reach + 4 * updates.reach
    r = max(r, x.reach * updates.reach**4) if reduction == "mul" else r
    return b.add(op, inputs, x.dtype, x.shape, -r, r, reduction=reduction, **attrs)


def one_hot(b: Builder) -> Value:
    if b.opset < 9:
        raise Stuck
    depth = b.rng.randint(1, 6)
    index = b.input("i64", b.shape(b.rng.randint(0, 2)), -depth - (1 if b.opset >= 11 else 0), depth)
    axis = b.rng.randint(-index.rank - 1, index.rank)
    shape = list(index.shape)
    shape.insert(axis if axis >= 0 else len(shape) + 1 + axis, depth)
    kind = b.rng.choice(("f32", "i64"))
    return b.add(
        "OneHot",
        [index, b.const(depth if b.chance(0.5) else [depth], "i64"), b.const([0, b.rng.choice((1, 3))], kind)],
        kind,
        shape,
        0,
        3,
        axis=axis,
    )


def shape_of(b: Builder) -> Value:
    """Add an op that reads a shape as data: Shape, Size, ConstantOfShape, Range, EyeLike."""
    x = _any(b, (1, 5))
    op = b.rng.choice(("Shape", "Size", "ConstantOfShape", "Range", "EyeLike"))
    if op == "Shape":
        if b.opset >= 15 and b.chance(0.5):
            i = b.rng.randint(0, x.rank)
            j = b.rng.randint(i, x.rank)
            return b.add("Shape", [x], "i64", (j - i,), 0, 20, start=i - x.rank if i < x.rank else i, end=j)
        return b.add("Shape", [x], "i64", (x.rank,), 0, 20)
    if op == "Size":
        return b.add("Size", [x], "i64", (), 0, 3000)
    if op == "ConstantOfShape" and b.opset >= 9:
        dims = b.shape(b.rng.randint(0, 3))
        dtype = b.rng.choice(("f32", "i64", "i1", "f32"))
        value = None if dtype == "f32" and b.chance(0.4) else np.ones(1, DTYPES[dtype][1])
        from onnx import numpy_helper

        attr = None if value is None else numpy_helper.from_array(value)
        return b.add(
            "ConstantOfShape", [b.ints(dims) if dims else b.const(np.zeros(0), "i64")], dtype, dims, 0, 1, value=attr
        )
    if op == "Range" and b.opset >= 11:
        dtype = b.rng.choice(("i64", "f32", "i32"))
        start, step, n = b.rng.randint(-3, 3), b.rng.choice((1, 2, -1, 3)), b.rng.randint(1, 7)
        return b.add("Range", [b.const(v, dtype) for v in (start, start + n * step, step)], dtype, (n,), -30, 30)
    if op == "EyeLike" and b.opset >= 9:
        y = b.pick(("f32", "i64"), 2)
        return b.add("EyeLike", [y], y.dtype, y.shape, 0, 1, k=b.rng.choice((None, 0, 1, -1)))
    raise Stuck


def trilu(b: Builder) -> Value:
    if b.opset < 14:
        raise Stuck
    x = b.pick((b.main, "i64", "f32"), (2, 4))
    k = b.ints(b.rng.randint(-2, 2)) if b.chance(0.6) else None
    return b.add("Trilu", [x, k], x.dtype, x.shape, min(x.lo, 0), max(x.hi, 0), upper=b.rng.choice((None, 0, 1)))


def reverse(b: Builder) -> Value:
    if b.opset < 10:
        raise Stuck
    x = b.pick(("f32", "i64"), (2, 4), lambda v: min(v.shape) > 0)
    time, batch = b.rng.choice(((0, 1), (1, 0)))
    lens = b.const(b.numbers("i64", (x.shape[batch],), 1, x.shape[time]), "i64")
    return _same(b, "ReverseSequence", [x, lens], x, x.shape, time_axis=time, batch_axis=batch)


def depth(b: Builder) -> Value:
    """DepthToSpace and SpaceToDepth."""
    n = b.rng.choice((2, 3))
    if b.chance(0.5):
        x = (
            b.pick(("f32",), 4, lambda v: v.shape[1] % (n * n) == 0 and v.size > 0)
            if b.chance(0.5)
            else b.input("f32", (b.rng.randint(1, 2), n * n * b.rng.randint(1, 2), 2, 3))
        )
        shape = (x.shape[0], x.shape[1] // n**2, x.shape[2] * n, x.shape[3] * n)
        return _same(
            b,
            "DepthToSpace",
            [x],
            x,
            shape,
            blocksize=n,
            mode=b.rng.choice((None, "DCR", "CRD")) if b.opset >= 11 else None,
        )
    x = b.input("f32", (b.rng.randint(1, 2), b.rng.randint(1, 3), n * b.rng.randint(1, 3), n * b.rng.randint(1, 3)))
    return _same(
        b, "SpaceToDepth", [x], x, (x.shape[0], x.shape[1] * n**2, x.shape[2] // n, x.shape[3] // n), blocksize=n
    )


def identity(b: Builder) -> Value:
    """Ops that change nothing: Identity, Dropout at inference."""
    x = _any(b)
    if x.dtype not in FLOATS or b.chance(0.5):
        return _same(b, "Identity", [x], x, x.shape)
    # What the mask is at inference stands in ONNX from opset 12 on.
    mask = ("i1", x.shape, 0, 1) if b.chance(0.2) and b.opset >= 12 else None
    results = [(x.dtype, x.shape, x.lo, x.hi)] + ([mask] if mask else [])
    if b.opset < 12:
        return b.multi("Dropout", [x], results, ratio=0.5)[0]
    return b.multi("Dropout", [x, b.const(0.5, "f32") if b.chance(0.5) else None], results)[0]


STEPS = {reshape: 6, transpose: 6, flatten: 1, squeeze: 3, unsqueeze: 3, expand: 3, tile: 2, concat: 6, split: 4, slice_: 6, pad: 4, gather: 4, gather_elements: 2,
         gather_nd: 2, scatter: 3, one_hot: 1, shape_of: 2, trilu: 1, reverse: 1, depth: 2, identity: 1}  # fmt: skip
