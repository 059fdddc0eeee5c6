"""Picking elements by indices, conditions and sequences, of MXNet and NNVM. See `lightnet_nnvm/node.py`.

MXNet's indices may be floats: they are truncated.
"""

from __future__ import annotations

from math import prod

from lightnet.frontends import composites
from lightnet.frontends.graph import Value
from lightnet_nnvm.node import Lazy, Node, nnvm_op
from lightnet_nnvm.ops.elementwise import truth


def as_index(n: Node, x: Value) -> Value:
    """Indices as i32 or i64."""
    return x if x.dtype.name in ("i32", "i64") else n.g.cast(x, "i64" if x.dtype.size > 4 else "i32")


def _in_range(n: Node, index: Value, length: int, mode: str) -> Value:
    """Indices within [0, length): clipped, or modulo the length."""
    if mode == "wrap":
        return n.g.op("mod", index, n.scalar(length, index))
    return n.g.op("clip", index, lo=0, hi=length - 1)


@nnvm_op("Embedding", "embedding", "_contrib_SparseEmbedding", params=(1,))
def embedding(n: Node, x: Value, weight: Value | Lazy) -> Value:
    count, width = n.int("input_dim"), n.int("output_dim")
    hint = weight.dtype if weight.dtype is not None else n.dtype("dtype", "f32")
    table = weight if isinstance(weight, Value) else weight.fixed((count, width), hint)
    if table.dims != (count, width):
        n.fail(f"its weight should have shape {[count, width]}, but has {list(table.dims)}")
    return n.g.op("take", table, _in_range(n, as_index(n, x), count, "clip"), axis=0)


@nnvm_op("take")
def take(n: Node, x: Value, index: Value) -> Value:
    """Along `axis` (MXNet: 0; NNVM without one: of all elements in a row)."""
    mode = n.choice("mode", "clip", "wrap")
    if not n.version and not n.has("axis"):
        x = n.g.reshape(x, (x.len,))
    axis = n.axis(n.int("axis", 0), x.ndim)
    return n.g.op("take", x, _in_range(n, as_index(n, index), x.dims[axis], mode), axis=axis)


@nnvm_op("batch_take")
def batch_take(n: Node, x: Value, index: Value) -> Value:
    return _picked(n, x, index, 1, "clip", False)


@nnvm_op("pick", "choose_element_0index")
def pick(n: Node, x: Value, index: Value) -> Value:
    axis = n.axis(n.int("axis", -1), x.ndim)
    return _picked(n, x, index, axis, n.choice("mode", "clip", "wrap"), n.bool("keepdims", False))


def _picked(n: Node, x: Value, index: Value, axis: int, mode: str, keep: bool) -> Value:
    """One element along `axis` for each index."""
    kept = tuple(1 if i == axis else d for i, d in enumerate(x.dims))
    if index.len != prod(kept):
        n.fail(f"indices {list(index.dims)} do not fit {list(x.dims)} along axis {axis}")
    at = _in_range(n, n.g.reshape(as_index(n, index), kept), x.dims[axis], mode)
    y = n.g.op("take_along", x, at, axis=axis)
    return y if keep else n.g.reshape(y, (*x.dims[:axis], *x.dims[axis + 1 :]) or (1,))


@nnvm_op("gather_nd")
def gather_nd(n: Node, x: Value, index: Value) -> Value:
    """The indices stand in the first axis."""
    order = (*range(1, index.ndim), 0)
    return n.g.op("gather_nd", x, n.g.transpose(as_index(n, index), order), batch_dims=0)


@nnvm_op("scatter_nd")
def scatter_nd(n: Node, data: Value, index: Value) -> Value:
    dims = n.ints("shape")
    zeros = composites.full(n.g, dims, 0, data.dtype)
    order = (*range(1, index.ndim), 0)
    return n.g.op("scatter_nd", zeros, n.g.transpose(as_index(n, index), order), data, reduction="none")


@nnvm_op("one_hot")
def one_hot(n: Node, index: Value) -> Value:
    g, dtype = n.g, n.dtype("dtype", "f32")
    hot = composites.one_hot(g, g.cast(index, "i32"), n.int("depth"), index.ndim)
    return g.op("where", hot, g.scalar(n.float("on_value", 1.0), dtype), g.scalar(n.float("off_value", 0.0), dtype))


@nnvm_op("where")
def where(n: Node, condition: Value, a: Value, b: Value) -> Value:
    """A condition of rank 1 picks whole rows."""
    cond = truth(n, condition)
    if cond.ndim == 1 and a.ndim > 1:
        cond = n.g.reshape(cond, (cond.dims[0], *(1,) * (a.ndim - 1)))
    return n.g.op("where", cond, a, n.same_float(b, a))


# -- sequences: time is axis 0, or `axis` -----------------------------------------------------------------------------


def _time_axis(n: Node, x: Value) -> int:
    """The axis of time, of the first two; the other is the batch."""
    axis = n.int("axis", 0)
    if axis not in (0, 1):
        n.fail(f"time is axis 0 or 1, not {axis}")
    n.at_least(x, 2)
    return axis


def _lengths(n: Node, lengths: tuple[Value, ...], batch: int) -> Value | None:
    """The length of each sequence as i32 [batch]; None where all are whole."""
    if not n.bool("use_sequence_length", False):
        return None
    if len(lengths) != 1 or lengths[0].len != batch:
        n.fail(f"use_sequence_length needs {batch} lengths")
    return n.g.cast(n.g.reshape(lengths[0], (batch,)), "i32")


@nnvm_op("SequenceMask")
def sequence_mask(n: Node, x: Value, *lengths: Value) -> Value:
    time = _time_axis(n, x)
    batch = 1 - time
    ends = _lengths(n, lengths, x.dims[batch])
    if ends is None:
        return x
    g = n.g
    steps = composites.positions_along(g, x.dims[time], time, x.ndim, "i32")
    inside = g.op("less", steps, g.reshape(ends, [x.dims[batch] if i == batch else 1 for i in range(x.ndim)]))
    return g.op("where", inside, x, n.scalar(n.float("value", 0.0), x))


@nnvm_op("SequenceLast")
def sequence_last(n: Node, x: Value, *lengths: Value) -> Value:
    time = _time_axis(n, x)
    batch, g = 1 - time, n.g
    ends = _lengths(n, lengths, x.dims[batch])
    dims = tuple(d for i, d in enumerate(x.dims) if i != time)
    if ends is None:
        return composites.element_at(g, x, time, x.dims[time] - 1)
    last = g.op("sub", ends, g.scalar(1, "i32"))
    at = g.reshape(last, [x.dims[batch] if i == batch else 1 for i in range(x.ndim)])
    at = composites.expand(g, at, [1 if i == time else d for i, d in enumerate(x.dims)])
    return g.reshape(g.op("take_along", x, at, axis=time), dims)


@nnvm_op("SequenceReverse")
def sequence_reverse(n: Node, x: Value, *lengths: Value) -> Value:
    if n.int("axis", 0) != 0:
        n.unsupported("sequences along another axis than 0")
    ends = _lengths(n, lengths, n.at_least(x, 2).dims[1])
    if ends is None:
        ends = composites.full(n.g, x.dims[1:2], x.dims[0], "i32")
    return n.g.op("reverse_sequence", x, ends, batch_axis=1, time_axis=0)
