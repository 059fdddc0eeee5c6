"""ONNX reductions, einsum and losses. Imports the table of handlers and the composites."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from lightnet.dialects.ln.einsum import parse_equation
from lightnet.frontends.composites import computed_in, expand, squeeze, unsqueeze
from lightnet.frontends.graph import MAX_FOLDED, Graph, Value
from lightnet.frontends.onnx.node import Node, onnx_op
from lightnet.frontends.onnx.pairs import REDUCTIONS

# -- reductions ------------------------------------------------------------------------------------------------------


def _axes(n: Node, x: Value, axes: Value | None) -> tuple[int, ...]:
    """The axes that are reduced: all, where none are named (unless `noop_with_empty_axes`)."""
    given = n.ints("axes", ()) if axes is None else n.need_ints(axes, f"the axes of {n.op_type}")
    if given:
        return n.axes(given, x.ndim)
    return () if n.int("noop_with_empty_axes", 0) else tuple(range(x.ndim))


def _reduction(*op_types: str) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    """Decorator: a handler from a function of (graph, operand, axes) that keeps the reduced axes."""

    def register(function: Callable[..., Value]) -> Callable[..., Value]:
        def handler(n: Node, x: Value, axes: Value | None = None) -> Value:
            which = _axes(n, x, axes)
            found = n.g.cast(function(n.g, x, which), x.dtype)
            return found if n.int("keepdims", 1) else squeeze(n.g, found, which)

        handler.__name__ = handler.__qualname__ = function.__name__
        handler.__doc__ = function.__doc__
        onnx_op(*op_types)(handler)
        return function

    return register


def _plain(optype: str) -> Callable[[Graph, Value, tuple[int, ...]], Value]:
    def function(g: Graph, x: Value, axes: tuple[int, ...]) -> Value:
        return g.op(optype, x, axes=axes)

    function.__name__ = optype
    return function


for _op_type, _optype in REDUCTIONS.items():
    _reduction(_op_type)(_plain(_optype))


def _in_float(g: Graph, x: Value) -> Value:
    """The operand that logarithms and roots are taken of: integers as f64, f16 and bf16 as f32."""
    return computed_in(g, x) if x.dtype.is_float else g.cast(x, "f64")


@_reduction("ReduceL1")
def reduce_l1(g: Graph, x: Value, axes: tuple[int, ...]) -> Value:
    return g.op("reduce_sum", x if x.dtype.kind == "uint" else g.op("abs", x), axes=axes)


@_reduction("ReduceSumSquare")
def reduce_sum_square(g: Graph, x: Value, axes: tuple[int, ...]) -> Value:
    x = computed_in(g, x)
    return g.op("reduce_sum", g.op("mul", x, x), axes=axes)


@_reduction("ReduceL2")
def reduce_l2(g: Graph, x: Value, axes: tuple[int, ...]) -> Value:
    return g.op("sqrt", reduce_sum_square(g, _in_float(g, x), axes))


@_reduction("ReduceLogSum")
def reduce_log_sum(g: Graph, x: Value, axes: tuple[int, ...]) -> Value:
    return g.op("log", g.op("reduce_sum", _in_float(g, x), axes=axes))


@_reduction("ReduceLogSumExp")
def reduce_log_sum_exp(g: Graph, x: Value, axes: tuple[int, ...]) -> Value:
    """m + log(sum(exp(x - m))), where m is the maximum, or 0 where that is infinite."""
    x = _in_float(g, x)
    m = g.op("reduce_max", x, axes=axes)
    m = g.op("where", g.op("isinf", m), g.scalar(0, x.dtype), m)
    return g.op("add", m, g.op("log", g.op("reduce_sum", g.op("exp", g.op("sub", x, m)), axes=axes)))


# -- einsum ----------------------------------------------------------------------------------------------------------


#: Characters of an equation: far more than operands of the largest rank need.
MAX_EQUATION = 1024


@onnx_op("Einsum")
def einsum(n: Node, *operands: Value) -> Value:
    """Two operands at a time, from the left: as matrix products where they are such."""
    equation = n.string("equation")
    if len(equation) > MAX_EQUATION:
        n.fail(f"an equation of {len(equation)} characters, more than {MAX_EQUATION}")
    return contract(n.g, equation, list(operands))


def contract(g: Graph, equation: str, operands: list[Value]) -> Value:
    """The einsum of `operands`. Raises `ConstraintError` for an equation that does not fit."""
    e = parse_equation(equation, [v.dims for v in operands])
    terms = [(v, labels) for v, labels in zip(operands, e.operands)]
    while len(terms) > 1:
        (a, left), (b, right), *rest = terms
        later = {x for _, labels in rest for x in labels} | set(e.output)
        out = tuple(x for x in dict.fromkeys((*left, *right)) if x in later) if rest else e.output
        terms = [(_product(g, a, left, b, right, out), out), *rest]
    value, labels = terms[0]
    return value if labels == e.output else _generic(g, [(value, labels)], e.output)


def _generic(g: Graph, terms: list[tuple[Value, tuple[str, ...]]], out: tuple[str, ...]) -> Value:
    """`ln.einsum` of labelled operands."""
    names = {x: chr(ord("a") + k) for k, x in enumerate(dict.fromkeys(x for _, labels in terms for x in labels))}
    text = ",".join("".join(names[x] for x in labels) for _, labels in terms)
    return g.op("einsum", *(v for v, _ in terms), equation=f"{text}->{''.join(names[x] for x in out)}")


def _product(
    g: Graph, a: Value, left: tuple[str, ...], b: Value, right: tuple[str, ...], out: tuple[str, ...]
) -> Value:
    """The einsum of two operands: [batch, M, K] x [batch, K, N], where every label has one length and its one role."""
    extents = dict(zip(left, a.dims))
    shared = [x for x in left if x in right]
    distinct = len(set(left)) == len(left) and len(set(right)) == len(right)
    alike = all(extents[x] == n for x, n in zip(right, b.dims) if x in extents)
    summed = [x for x in shared if x not in out]
    lost = [x for x in (*left, *right) if x not in out and x not in shared]
    if not distinct or not alike or not summed or lost or not a.dtype.is_float:
        return _generic(g, [(a, left), (b, right)], out)
    extents |= dict(zip(right, b.dims))
    batch = [x for x in shared if x in out]
    rows, columns = [x for x in left if x not in shared], [x for x in right if x not in shared]

    def matrices(v: Value, labels: tuple[str, ...], first: list[str], second: list[str]) -> Value:
        ordered = g.transpose(v, [labels.index(x) for x in (*batch, *first, *second)])
        return g.reshape(
            ordered, [*(extents[x] for x in batch), *(prod(extents[x] for x in part) for part in (first, second))]
        )

    found = g.op("matmul", matrices(a, left, rows, summed), matrices(b, right, summed, columns))
    labels = (*batch, *rows, *columns)
    return g.transpose(g.reshape(found, [extents[x] for x in labels]), [labels.index(x) for x in out])


# -- losses ----------------------------------------------------------------------------------------------------------


@onnx_op("NegativeLogLikelihoodLoss")
def nll_loss(n: Node, x: Value, target: Value, weight: Value | None = None) -> Value:
    """-weight[t] * x[i, t, ...] for the classes t of `target` [N, ...]; its mean is over the weights. Elements whose
    class is `ignore_index` count nothing."""
    g, how = n.g, n.string("reduction", "mean")
    if x.ndim != target.ndim + 1 or x.dims[:1] + x.dims[2:] != target.dims:
        n.fail(f"{x.spec} and the classes {target.spec} do not fit together")
    dtype, x, target = x.dtype, computed_in(g, x), g.cast(target, "i64")
    zero = g.scalar(0, x.dtype)
    kept = None
    if n.has("ignore_index"):
        kept = g.op("logical_not", g.op("equal", target, g.scalar(n.int("ignore_index"), "i64")))
        target = g.op("where", kept, target, g.scalar(0, "i64"))
    picked = squeeze(g, g.op("take_along", x, unsqueeze(g, target, [1]), axis=1), [1])
    loss = g.op("neg", picked)
    share = None if weight is None else g.op("take", computed_in(g, weight), target, axis=0)
    if kept is not None:
        one = g.scalar(1, x.dtype) if share is None else share
        share = g.op("where", kept, one, zero)
        loss = g.op("where", kept, loss, zero)  # what is ignored may be infinite
    if share is not None:
        share = expand(g, share, loss.dims)
        loss = g.op("mul", loss, share)
    if how == "none":
        return g.cast(loss, dtype)
    axes = tuple(range(loss.ndim))
    total = squeeze(g, g.op("reduce_sum", loss, axes=axes), axes)
    if how == "mean":
        count = g.scalar(loss.len, x.dtype) if share is None else squeeze(g, g.op("reduce_sum", share, axes=axes), axes)
        total = g.op("div", total, count)
    return g.cast(total, dtype)


@onnx_op("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy_loss(n: Node, scores: Value, labels: Value, weight: Value | None = None) -> tuple[Value, ...]:
    """The negative log likelihood of the logarithms of the softmax along axis 1, and these logarithms."""
    log_prob = n.g.op("log_softmax", scores, axis=1)
    return nll_loss(n, log_prob, labels, weight), log_prob


# -- determinants ----------------------------------------------------------------------------------------------------


@onnx_op("Det")
def det(n: Node, x: Value) -> Value:
    """Of constants with NumPy; of what is computed at run time up to 3 x 3, by its formula."""
    g = n.g
    if x.ndim < 2 or x.dims[-1] != x.dims[-2]:
        n.fail(f"needs square matrices, got {x.spec}")
    if x.is_known and x.len <= MAX_FOLDED:
        return g.constant(np.asarray(np.linalg.det(x.known.astype(np.float64))).astype(x.dtype.np))
    size = x.dims[-1]
    if not 1 <= size <= 3:
        n.unsupported(f"the determinant of a {size} x {size} matrix that is computed at run time, or large")
    flat = g.reshape(x, (*x.dims[:-2], size * size))

    def at(row: int, column: int) -> Value:
        part = g.op("slice", flat, axis=flat.ndim - 1, start=row * size + column, len=1)
        return squeeze(g, part, [flat.ndim - 1])

    def minor(rows: list[int], columns: list[int]) -> Value:
        """Laplace's expansion along the first row."""
        if len(rows) == 1:
            return at(rows[0], columns[0])
        total = None
        for k, column in enumerate(columns):
            term = g.op("mul", at(rows[0], column), minor(rows[1:], columns[:k] + columns[k + 1 :]))
            total = term if total is None else g.op("sub" if k % 2 else "add", total, term)
        assert total is not None
        return total

    return minor(list(range(size)), list(range(size)))
