"""Small graphs of `ln` ops that several handlers of graph front ends emit: cutting, joining, filling, tiling, moments.

Each does nothing where nothing changes. Imports the graph builder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

import numpy as np

from lightnet.diagnostics import LightNetError
from lightnet.frontends.graph import Graph, Value
from lightnet.frontends.sizes import is_counted
from lightnet.ir.types import MAX_RANK
from lightnet.runtime.dims import Dim, Size, greatest, is_same
from lightnet.runtime.dtypes import BY_NAME, DType

#: Operands of one `concat`.
MAX_JOINED = 128


def cut(g: Graph, x: Value, axis: int, start: int, length: int) -> Value:
    """Elements `start` to `start + length` along `axis`."""
    if length == x.dims[axis]:
        return x
    if length != 0:
        return g.op("slice", x, axis=axis, start=start, len=length)
    lens = tuple(0 if k == axis else n for k, n in enumerate(x.dims))
    return strided(g, x, (0,) * x.ndim, (1,) * x.ndim, lens)


def strided(g: Graph, x: Value, starts: Sequence[int], steps: Sequence[int], lens: Sequence[int]) -> Value:
    """dst[i, …] = x[starts[0] + steps[0] * i, …]."""
    steps = [1 if greatest(n) <= 1 else s for s, n in zip(steps, lens)]
    starts = [0 if n == 0 else s for s, n in zip(starts, lens)]
    changed = [k for k, n in enumerate(lens) if n != x.dims[k] or steps[k] != 1]
    if not changed:
        return x
    if len(changed) == 1 and steps[changed[0]] == 1 and lens[changed[0]] != 0:
        return cut(g, x, changed[0], starts[changed[0]], lens[changed[0]])
    return g.op("strided_slice", x, starts=tuple(starts), steps=tuple(steps), lens=tuple(lens))


def squeeze(g: Graph, x: Value, axes: Sequence[int]) -> Value:
    """Without some axes of length 1."""
    return g.reshape(x, [n for k, n in enumerate(x.dims) if k not in axes])


def unsqueeze(g: Graph, x: Value, axes: Sequence[int]) -> Value:
    """With axes of length 1 that the result has at `axes`."""
    old = iter(x.dims)
    return g.reshape(x, [1 if k in axes else next(old) for k in range(x.ndim + len(axes))])


def concat(g: Graph, parts: Sequence[Value], axis: int) -> Value:
    """Tensors behind each other along `axis`, however many."""
    if any(type(p) is not Value for p in parts):
        from lightnet.frontends import counted_moves

        return counted_moves.concat(g, parts, axis)
    parts = [p for p in parts if p.dims[axis] != 0] or list(parts[:1])
    while len(parts) > 1:
        groups = [parts[k : k + MAX_JOINED] for k in range(0, len(parts), MAX_JOINED)]
        parts = [group[0] if len(group) == 1 else g.op("concat", *group, axis=axis) for group in groups]
    return parts[0]


def depth_to_space(g: Graph, x: Value, block: int, blocks_first: bool = True) -> Value:
    """[N, C, H, W] as [N, C / block^2, H * block, W * block]. The channels count (row, column) of a block before the
    channel of the result, or behind it."""
    batch, channels, h, w = x.dims
    c = channels // block**2
    split, order = ((batch, block, block, c, h, w), (0, 3, 4, 1, 5, 2)) if blocks_first else (
        (batch, c, block, block, h, w), (0, 1, 4, 2, 5, 3))  # fmt: skip
    return g.reshape(g.transpose(g.reshape(x, split), order), (batch, c, h * block, w * block))


def space_to_depth(g: Graph, x: Value, block: int, blocks_first: bool = True) -> Value:
    """The inverse of `depth_to_space`."""
    batch, c, h, w = x.dims
    split = g.reshape(x, (batch, c, h // block, block, w // block, block))
    order = (0, 3, 5, 1, 2, 4) if blocks_first else (0, 1, 3, 5, 2, 4)
    return g.reshape(g.transpose(split, order), (batch, c * block**2, h // block, w // block))


def cut_up(g: Graph, x: Value, axis: int, lengths: Sequence[int]) -> Iterator[Value]:
    """Parts of these lengths, one behind the other along `axis`, each cut when it is asked for."""
    return (cut(g, x, axis, end - n, n) for end, n in zip(accumulate(lengths), lengths))


def positions_along(g: Graph, count: int, axis: int = 0, ndim: int = 1, dtype: DType | str = "i64") -> Value:
    """0, 1, … along one axis of a tensor whose other axes have length 1. Raises LightNetError for too many."""
    if isinstance(count, Dim):  # a table for the largest, of which the first are taken
        return cut(g, positions_along(g, greatest(count), axis, ndim, dtype), axis, 0, count)
    return g.table([count if k == axis else 1 for k in range(ndim)], dtype, lambda: np.arange(count))


def stack(g: Graph, parts: Sequence[Value], axis: int) -> Value:
    """Tensors of one shape along a new axis."""
    return concat(g, [unsqueeze(g, p, [axis]) for p in parts], axis)


def element_at(g: Graph, x: Value, axis: int, index: int) -> Value:
    """The element `index` along `axis`, without the axis."""
    return squeeze(g, cut(g, x, axis, index, 1), [axis])


def expand(g: Graph, x: Value, dims: Sequence[int]) -> Value:
    """Broadcast to `dims`."""
    if any(is_counted(d) for d in dims):
        from lightnet.frontends import counted_moves

        return counted_moves.expand(g, x, dims)
    dims = tuple(d if isinstance(d, Dim) else int(d) for d in dims)
    return x if x.dims == dims else g.op("expand", x, dims=dims)


def full(g: Graph, dims: Sequence[int], x: complex, dtype: DType | str) -> Value:
    """A tensor of one number. Raises LightNetError where it is too large."""
    return expand(g, g.scalar(x, dtype), dims if any(is_counted(d) for d in dims) else g.spec(dims, dtype).dims)


def number_of(g: Graph, size: Size, dims: Sequence[Size], dtype: DType | str) -> Value:
    """A tensor of a dim, which calls may decide."""
    if not isinstance(size, Dim):
        return full(g, dims, size, dtype)
    from lightnet.frontends.counted import dim_number

    return expand(g, g.cast(dim_number(g, size), dtype), dims)


def tile(g: Graph, x: Value, repeats: Sequence[int]) -> Value:
    """`repeats[k]` copies behind each other along each axis k: runs that are copied, where the rank allows it."""
    if all(r == 1 for r in repeats):
        return x
    before: list[int] = []
    after: list[int] = []
    for n, r in zip(x.dims, repeats):
        before += [n] if r == 1 or n == 1 else [1, n]
        after += [n * r] if r == 1 or n == 1 else [r, n]
    if len(after) > MAX_RANK:
        return g.op("tile", x, repeats=tuple(repeats))
    return g.reshape(expand(g, g.reshape(x, before), after), [n * r for n, r in zip(x.dims, repeats)])


def one_hot(g: Graph, index: Value, depth: int, axis: int) -> Value:
    """The flags where ``index`` (integers, without the new axis) is each of 0 … depth - 1, as i1 with a new axis at
    `axis`.
    """
    g.bounded(depth, "an axis of classes")
    return g.op("equal", unsqueeze(g, index, [axis]), positions_along(g, depth, axis, index.ndim + 1, index.dtype))


def broadcast(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The dims that shapes have together under NumPy's rule. Raises LightNetError."""
    dims = []
    for k in range(max(map(len, shapes), default=0), 0, -1):
        lengths = {s[-k] for s in shapes if len(s) >= k} - {1}
        first = next(iter(lengths), 1)
        if len(lengths) > 1 and not all(n == first or is_same(first, n) for n in lengths):
            raise LightNetError(f"{' and '.join(str(list(s)) for s in shapes)} do not broadcast")
        dims.append(lengths.pop() if lengths else 1)
    return tuple(dims)


def moments(g: Graph, x: Value, axes: Sequence[int]) -> tuple[Value, Value, Value]:
    """Mean and variance over `axes`, which stay with length 1, and x - mean."""
    axes = tuple(axes)
    mean = g.op("reduce_mean", x, axes=axes)
    centred = g.op("sub", x, mean)
    return mean, g.op("reduce_mean", g.op("mul", centred, centred), axes=axes), centred


def over_deviation(g: Graph, x: Value, variance: Value, epsilon: float) -> Value:
    """x / sqrt(variance + epsilon)."""
    return g.op("div", x, g.op("sqrt", g.op("add", variance, g.scalar(epsilon, variance.dtype))))


def with_channels_first(g: Graph, x: Value, last: bool, function: Callable[[Value], Value]) -> Value:
    """`function` of a tensor [N, C, *S]; where channels are `last`, `x` and the result are [N, *S, C]."""
    if not last:
        return function(x)
    first, back = (0, x.ndim - 1, *range(1, x.ndim - 1)), (0, *range(2, x.ndim), 1)
    return g.transpose(function(g.transpose(x, first)), back)


def swap_last(g: Graph, x: Value) -> Value:
    """Matrices, transposed; a tensor of rank 0 or 1 as it is."""
    return x if x.ndim < 2 else g.transpose(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def computed_in(g: Graph, x: Value) -> Value:
    """A float as it is computed in, if it is one to store in (f16, bf16): f32."""
    return g.cast(x, BY_NAME["f32"]) if x.dtype.is_float and x.dtype.size < 4 else x
