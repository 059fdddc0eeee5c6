"""Reductions, sorting and products of matrices, of MXNet and NNVM. See `lightnet_nnvm/node.py`."""

from __future__ import annotations

from lightnet.frontends import composites
from lightnet.frontends.graph import Value
from lightnet_nnvm.node import Node, nnvm_op
from lightnet_nnvm.pairs import MXNET_REDUCTIONS, REDUCTIONS

_NAMES = REDUCTIONS | MXNET_REDUCTIONS


def axes_of(n: Node, x: Value) -> tuple[int, ...]:
    """The axes that `axis` and `exclude` name: all where there are none."""
    named = n.axes(n.ints("axis", ()), x.ndim)
    if not named:
        return tuple(range(x.ndim))
    return tuple(i for i in range(x.ndim) if i not in named) if n.bool("exclude", False) else named


def without(n: Node, y: Value, axes: tuple[int, ...]) -> Value:
    """`y` without the axes, unless `keepdims`. A result of rank 0 is one of [1] in MXNet's and NNVM's shapes."""
    if n.bool("keepdims", False):
        return y
    dims = tuple(d for i, d in enumerate(y.dims) if i not in axes)
    return n.g.reshape(y, dims or (1,))


@nnvm_op(*_NAMES)
def reduce(n: Node, x: Value) -> Value:
    axes = axes_of(n, x)
    if n.op.startswith("nan"):
        neutral = n.scalar(0 if n.op == "nansum" else 1, x)
        x = n.g.op("where", n.g.op("isnan", x), neutral, x)
    y = n.g.op(_NAMES[n.op], x, axes=axes) if axes else x
    y = without(n, y, axes)
    return n.g.cast(y, n.dtype("dtype", y.dtype)) if n.has("dtype") else y


@nnvm_op("collapse_sum")
def collapse_sum(n: Node, x: Value, like: Value) -> Value:
    """The sum over the axes along which `like` would be broadcast to the shape of `x`."""
    lead = x.ndim - like.ndim
    dims = (*(1,) * max(lead, 0), *like.dims)
    if lead < 0 or any(d not in (1, e) for d, e in zip(dims, x.dims)):
        n.fail(f"a tensor of {list(like.dims)} cannot be broadcast to {list(x.dims)}")
    axes = tuple(i for i, (d, e) in enumerate(zip(dims, x.dims)) if d != e)
    return n.g.reshape(n.g.op("reduce_sum", x, axes=axes) if axes else x, like.dims)


@nnvm_op("moments")
def moments(n: Node, x: Value) -> tuple[Value, ...]:
    """The mean and the variance over `axes`."""
    axes = n.axes(n.ints("axes", ()), x.ndim) or tuple(range(x.ndim))
    mean, variance, _ = composites.moments(n.g, x, axes)
    return tuple(without(n, y, axes) for y in (mean, variance))


@nnvm_op("cumsum", "_np_cumsum")
def cumsum(n: Node, x: Value) -> Value:
    """Along `axis`, or of all elements in a row."""
    axis = n.int("axis", None)
    src = n.g.reshape(x, (x.len,)) if axis is None else x
    return n.g.op("cumsum", src, axis=0 if axis is None else n.axis(axis, x.ndim))


@nnvm_op("norm")
def norm(n: Node, x: Value) -> Value:
    order, g = n.int("ord", 2), n.g
    axes = n.axes(n.ints("axis", ()), x.ndim) or tuple(range(x.ndim))
    if order == 1:
        return without(n, g.op("reduce_sum", g.op("abs", x), axes=axes), axes)
    if order != 2:
        n.unsupported(f"a norm of order {order}")
    return without(n, g.op("sqrt", g.op("reduce_sum", g.op("mul", x, x), axes=axes)), axes)


@nnvm_op("argmax", "argmin")
def arg(n: Node, x: Value) -> Value:
    """Over all elements where there is no axis; before MXNet 0.9.5, -1 meant none. MXNet's index is a float, NNVM's an
    i32."""
    dtype = n.dtype("dtype", "f32" if n.version else "i32")
    axis = n.ints("axis", ())
    if 0 < n.version < 905 and axis == (-1,):
        axis = ()
    if len(axis) > 1 or n.bool("exclude", False):
        n.unsupported("several axes")
    if not axis:
        y = n.g.op(n.op, n.g.reshape(x, (x.len,)), axis=0)
        return n.g.cast(n.g.reshape(y, (1,) * x.ndim if n.bool("keepdims", False) else (1,)), dtype)
    at = n.axis(axis[0], x.ndim)
    y = without(n, n.g.op(n.op, x, axis=at), (at,))
    return n.g.cast(y, dtype)


@nnvm_op("argmax_channel")
def argmax_channel(n: Node, x: Value) -> Value:
    n.need_rank(x, *range(2, 9))
    y = n.g.op("argmax", x, axis=1)
    return n.g.cast(n.g.reshape(y, (x.dims[0], *x.dims[2:])), "f32")


@nnvm_op("topk")
def topk(n: Node, x: Value) -> Value | tuple[Value, ...]:
    """The k largest (smallest where `is_ascend`), sorted; `ret_typ` says what: their places, values, both, or a
    mask."""
    x, axis = _flat_or_axis(n, x)
    k, kind = n.int("k", 1), n.choice("ret_typ", "indices", "value", "both", "mask")
    values, indices = n.g.op("topk", x, axis=axis, k=k if k > 0 else x.dims[axis],
                             largest=not n.bool("is_ascend", False), sorted=True)  # fmt: skip
    if kind == "mask":
        n.unsupported("topk with ret_typ=mask")
    places = n.g.cast(indices, n.dtype("dtype", "f32"))
    return {"indices": places, "value": values, "both": (values, places)}[kind]


@nnvm_op("sort", "argsort")
def sort(n: Node, x: Value) -> Value:
    x, axis = _flat_or_axis(n, x)
    values, indices = n.g.op("topk", x, axis=axis, k=x.dims[axis], largest=not n.bool("is_ascend", True), sorted=True)
    return values if n.op == "sort" else n.g.cast(indices, n.dtype("dtype", "f32"))


def _flat_or_axis(n: Node, x: Value) -> tuple[Value, int]:
    """The tensor and the axis; with axis=None, all of its elements in a row."""
    text = n.string("axis", "None" if "axis" in n.node.attrs else "-1")
    if text == "None":
        return n.g.reshape(x, (x.len,)), 0
    return x, n.axis(n.int("axis", -1), x.ndim)


# -- products of matrices ---------------------------------------------------------------------------------------------


@nnvm_op("batch_dot")
def batch_dot(n: Node, a: Value, b: Value) -> Value:
    return n.g.op("matmul", *_transposed(n, a, b))


@nnvm_op("_linalg_gemm2", "linalg_gemm2")
def gemm2(n: Node, a: Value, b: Value) -> Value:
    if n.int("axis", -2) != -2:
        n.unsupported("rows along another axis than the last but one")
    y = n.g.op("matmul", *_transposed(n, a, b))
    alpha = n.float("alpha", 1.0)
    return y if alpha == 1.0 else n.g.op("mul", y, n.scalar(alpha, y))


def _transposed(n: Node, *operands: Value) -> list[Value]:
    """The operands, their last two axes swapped where `transpose_a` and `transpose_b` say so."""
    return [
        composites.swap_last(n.g, n.at_least(x, 2)) if n.bool(f"transpose_{name}", False) else x
        for name, x in zip("ab", operands)
    ]


@nnvm_op("dot", "matmul")
def dot(n: Node, a: Value, b: Value) -> Value:
    """The sum over the last axis of the first and the first axis of the second (`transpose_*` reverse all axes)."""
    if n.bool("transpose_a", False):
        a = n.g.transpose(a, range(a.ndim)[::-1])
    if n.bool("transpose_b", False):
        b = n.g.transpose(b, range(b.ndim)[::-1])
    if not a.ndim or not b.ndim or a.dims[-1] != b.dims[0]:
        n.fail(f"cannot multiply {list(a.dims)} by {list(b.dims)}")
    depth = a.dims[-1]
    rows = n.g.reshape(a, (a.len // max(depth, 1), depth))
    columns = n.g.reshape(b, (depth, b.len // max(depth, 1)))
    return n.g.reshape(n.g.op("matmul", rows, columns), (*a.dims[:-1], *b.dims[1:]) or (1,))


@nnvm_op("_contrib_interleaved_matmul_selfatt_qk")
def selfatt_qk(n: Node, x: Value) -> Value:
    """Scaled products of queries and keys, interleaved by head in [T, B, heads * (q, k, v) * d]: [B * heads, T, T]."""
    q, k, _ = _interleaved(n, x, 3)
    scaled = n.g.op("div", q, n.scalar(q.dims[-1] ** 0.5, q))
    return n.g.op("matmul", scaled, composites.swap_last(n.g, k))


@nnvm_op("_contrib_interleaved_matmul_selfatt_valatt", "_contrib_interleaved_matmul_encdec_valatt")
def interleaved_valatt(n: Node, x: Value, attention: Value) -> Value:
    """The values weighted by `attention` [B * heads, T, Tk]: [T, B, heads * d]."""
    values = _interleaved(n, x, 3 if "selfatt" in n.op else 2)[-1]
    return _joined(n, n.g.op("matmul", attention, values), x.dims[1])


@nnvm_op("_contrib_interleaved_matmul_encdec_qk")
def encdec_qk(n: Node, queries: Value, x: Value) -> Value:
    """As `selfatt_qk`, of queries [Tq, B, heads * d] and keys interleaved with values [Tk, B, heads * (k, v) * d]."""
    (q,), (k, _) = _interleaved(n, queries, 1), _interleaved(n, x, 2)
    scaled = n.g.op("div", q, n.scalar(q.dims[-1] ** 0.5, q))
    return n.g.op("matmul", scaled, composites.swap_last(n.g, k))


def _interleaved(n: Node, x: Value, count: int) -> list[Value]:
    """The parts of [T, B, heads * count * d], each as [B * heads, T, d]."""
    n.need_rank(x, 3)
    heads, g = n.int("heads"), n.g
    time, batch, width = x.dims
    if heads < 1 or width % (heads * count):
        n.fail(f"{width} features cannot be split into {heads} heads of {count} parts")
    size = width // (heads * count)
    parts = g.transpose(g.reshape(x, (time, batch * heads, count, size)), (2, 1, 0, 3))
    return [composites.element_at(g, parts, 0, i) for i in range(count)]


def _joined(n: Node, x: Value, batch: int) -> Value:
    """[B * heads, T, d] as [T, B, heads * d]."""
    time, size = x.dims[1:]
    return n.g.reshape(n.g.transpose(x, (1, 0, 2)), (time, batch, x.dims[0] // max(batch, 1) * size))
