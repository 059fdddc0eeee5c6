"""Joining and cutting tensors, of MXNet and NNVM. See `lightnet_nnvm/node.py`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from lightnet.frontends import composites
from lightnet.frontends.graph import Value
from lightnet_nnvm.node import Node, nnvm_op

# -- joining ----------------------------------------------------------------------------------------------------------


@nnvm_op("Concat", "concat", "concatenate", "_rnn_param_concat")
def concat(n: Node, *xs: Value) -> Value:
    axis = n.int("axis", n.int("dim", 1)) if n.op == "concatenate" else n.int("dim", n.int("axis", 1))
    return joined(n, xs, axis)


def joined(n: Node, xs: Sequence[Value], axis: int) -> Value:
    """`xs`, one or more, behind each other."""
    axis = n.axis(axis, xs[0].ndim)
    if any(x.ndim != xs[0].ndim for x in xs):
        n.fail(f"joins tensors of several ranks: {', '.join(str(list(x.dims)) for x in xs[:8])}")
    xs = [n.same_float(x, xs[0]) for x in xs]
    return composites.concat(n.g, xs, axis)


@nnvm_op("stack")
def stack(n: Node, *xs: Value) -> Value:
    axis = n.axis(n.int("axis", 0), xs[0].ndim + 1)
    if any(x.dims != xs[0].dims for x in xs):
        n.fail(f"its inputs should have one shape, and are {', '.join(str(x.spec) for x in xs)}")
    return joined(n, [composites.unsqueeze(n.g, x, [axis]) for x in xs], axis)


# -- cutting ----------------------------------------------------------------------------------------------------------


@nnvm_op("slice", "crop", "strided_slice")
def slice_(n: Node, x: Value) -> Value:
    """From begin to before end, Python's way; None is from or to the very end."""
    begin, end = n.optional_ints("begin") or (), n.optional_ints("end") or ()
    step = n.optional_ints("step") or n.optional_ints("stride") or ()
    if max(len(begin), len(end), len(step)) > x.ndim:
        n.fail(f"it slices more axes than {list(x.dims)} has")
    if 0 in step:
        n.fail("a step of 0")

    def at(values: tuple, i: int) -> int | None:
        return values[i] if i < len(values) else None

    ranges = [range(d)[slice(at(begin, i), at(end, i), at(step, i))] for i, d in enumerate(x.dims)]
    return composites.strided(
        n.g, x, [r.start if len(r) else 0 for r in ranges], [r.step for r in ranges], [len(r) for r in ranges]
    )


@nnvm_op("slice_axis")
def slice_axis(n: Node, x: Value) -> Value:
    axis = n.axis(n.int("axis"), x.ndim)
    found = range(x.dims[axis])[n.int("begin") : n.int("end", None)]
    return composites.cut(n.g, x, axis, found.start if len(found) else 0, len(found))


@nnvm_op("slice_like")
def slice_like(n: Node, x: Value, like: Value) -> Value:
    axes = n.axes(n.ints("axes", n.ints("axis", ())), x.ndim) or tuple(range(x.ndim))
    if any(a >= like.ndim or like.dims[a] > x.dims[a] for a in axes):
        n.fail(f"{list(x.dims)} cannot be cut to {list(like.dims)} along axes {list(axes)}")
    lens = [like.dims[i] if i in axes else d for i, d in enumerate(x.dims)]
    return composites.strided(n.g, x, [0] * x.ndim, [1] * x.ndim, lens)


@nnvm_op("Crop")
def crop(n: Node, x: Value, like: Value | None = None) -> Value:
    """A window of a picture: of the size of another one, or of `h_w`, at `offset` or in the middle."""
    n.need_rank(x, 4)
    size = like.dims[2:] if like is not None else n.ints("h_w")
    starts = n.ints("offset", (0, 0))
    if n.bool("center_crop", False):
        starts = tuple((d - s) // 2 for d, s in zip(x.dims[2:], size))
    if len(size) != 2 or len(starts) != 2 or any(a < 0 or a + s > d for a, s, d in zip(starts, size, x.dims[2:])):
        n.fail(f"a window of {list(size)} at {list(starts)} does not fit in {list(x.dims)}")
    return composites.strided(n.g, x, (0, 0, *starts), (1, 1, 1, 1), (*x.dims[:2], *size))


@nnvm_op("SliceChannel")
def slice_channel(n: Node, x: Value) -> tuple[Value, ...]:
    return _equal_parts(n, x, n.int("num_outputs"), n.axis(n.int("axis", 1), x.ndim))


@nnvm_op("split")
def split(n: Node, x: Value) -> tuple[Value, ...]:
    """MXNet's (`num_outputs`), or NNVM's: `indices_or_sections` is a number of parts, or where the parts begin."""
    axis = n.axis(n.int("axis", 1), x.ndim)
    if n.has("num_outputs"):
        return _equal_parts(n, x, n.int("num_outputs"), axis)
    if isinstance(n.value("indices_or_sections"), tuple):
        return _parts_at(n, x, n.ints("indices_or_sections"), axis)
    return _equal_parts(n, x, n.int("indices_or_sections"), axis)


@nnvm_op("_split_v2")
def split_v2(n: Node, x: Value) -> tuple[Value, ...]:
    """In `sections` parts, or at `indices`, of which the first is 0."""
    axis = n.axis(n.int("axis", 0), x.ndim)
    sections = n.int("sections", 0)
    return _equal_parts(n, x, sections, axis) if sections else _parts_at(n, x, n.ints("indices")[1:], axis)


#: Parts that a tensor is split into: each is an op of the network.
MAX_PARTS = 1 << 16


def _equal_parts(n: Node, x: Value, count: int, axis: int) -> tuple[Value, ...]:
    if not 1 <= count <= MAX_PARTS or x.dims[axis] % count:
        n.fail(f"axis {axis} of {list(x.dims)} cannot be split into {count} equal parts")
    size = x.dims[axis] // count
    return _parts_at(n, x, [i * size for i in range(1, count)], axis)


def _parts_at(n: Node, x: Value, starts: Sequence[int], axis: int) -> tuple[Value, ...]:
    edges = [0, *starts, x.dims[axis]]
    if any(a > b for a, b in pairwise(edges)) or edges[0] < 0:
        n.fail(f"axis {axis} of {list(x.dims)} cannot be split at {list(starts)}")
    parts = tuple(composites.cut(n.g, x, axis, a, b - a) for a, b in pairwise(edges))
    if n.bool("squeeze_axis", False):
        if any(p.dims[axis] != 1 for p in parts):
            n.fail("squeeze_axis needs parts of length 1")
        parts = tuple(composites.squeeze(n.g, p, [axis]) for p in parts)
    return parts
