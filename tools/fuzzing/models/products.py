"""Steps that sum: products, reductions, norms and softmax along axes, order, recurrences."""

from __future__ import annotations

import math

import numpy as np

from .builder import FLOATS, Builder, Stuck, Value, joint


def matmul(b: Builder, x: Value | None = None) -> Value:
    """MatMul of any ranks, with a parameter or a value that there is."""
    x = x or b.pick(("f32", "f32", "f64", b.main), (1, 4), lambda v: v.size > 0)
    k = x.shape[-1]
    fits = [
        y
        for y in b.values
        if y.dtype == x.dtype and 1 <= y.rank <= 4 and y.shape[-2 if y.rank > 1 else 0] == k and y.size <= 1500
    ]
    n = b.rng.choice((1, 2, 3, 4, 8, 16, 17))
    if fits and b.chance(0.3):
        y = b.rng.choice(fits)
    else:
        y = b.param(
            b.rng.choice(((k, n), (k, n), (k,), (*[1 if b.chance(0.3) else d for d in x.shape[:-2]], k, n))),
            dtype=x.dtype,
        )
    front = joint(x.shape[:-2], y.shape[:-2])
    shape = (*front, *x.shape[-2:-1], *(y.shape[-1:] if y.rank > 1 else ()))
    r = x.reach * y.reach * k
    return b.add("MatMul", [x, y], x.dtype, shape, -r, r)


def gemm(b: Builder, x: Value | None = None) -> Value:
    x = x or b.pick(("f32", "f32", b.main), 2, lambda v: v.size > 0)
    turned = b.chance(0.2)
    m, k = x.shape[::-1] if turned else x.shape
    n = b.rng.choice((1, 2, 4, 8, 10, 17))
    other = b.chance(0.5)
    w = b.param((n, k) if other else (k, n), dtype=x.dtype)
    c = (
        b.param(b.rng.choice(((n,), (1, n), (m, n), (m, 1), (1,), ())), dtype=x.dtype)
        if b.opset < 11 or b.chance(0.8)
        else None
    )
    alpha, beta = (b.rng.choice((None, None, 1.0, 0.5, 2.0)) for _ in range(2))
    r = 2 * x.reach * w.reach * k + 2
    return b.add(
        "Gemm",
        [x, w, c],
        x.dtype,
        (m, n),
        -r,
        r,
        transA=int(turned) or None,
        transB=int(other) or None,
        alpha=alpha,
        beta=beta,
    )


def einsum(b: Builder) -> Value:
    if b.opset < 12:
        raise Stuck
    size = {c: b.rng.choice((1, 2, 3, 4, 5)) for c in "bhijkd"}
    equation = b.rng.choice(
        (
            "bij,bjk->bik",
            "bhid,bhjd->bhij",
            "ij,jk",
            "ij->ji",
            "bij->bi",
            "i,j->ij",
            "bij,bij->b",
            "ii->i",
            "bhij,bhjd->bihd",
            "...ij,jk->...ik",
            "ij,ij->",
        )
    )
    left, _, right = equation.partition("->")
    terms = left.split(",")
    shapes = [tuple(size[c] for c in t.replace("...", "bh")) for t in terms]
    xs = [
        b.pick("f32", len(s), lambda v, s=s: v.shape == s) if any(v.shape == s for v in b.values) else b.input("f32", s)
        for s in shapes
    ]
    out = right if "->" in equation else "ik"
    r = math.prod(x.reach for x in xs) * math.prod(size[c] for c in set("".join(terms)) - set(out) - {"."})
    return b.add("Einsum", xs, "f32", tuple(size[c] for c in out.replace("...", "bh")), -r, r, equation=equation)


def integer_matmul(b: Builder) -> Value:
    """MatMulInteger and QLinearMatMul."""
    if b.opset < 10:
        raise Stuck
    m, k, n = (b.rng.randint(1, 6) for _ in range(3))
    x = b.input("ui8", (m, k) if b.chance(0.6) else (2, m, k), 0, 255)
    kind = b.rng.choice(("ui8", "i8"))
    y = b.const(b.numbers(kind, (k, n), -128 if kind == "i8" else 0, 127), kind)
    shape = (*x.shape[:-1], n)
    zeros = [b.const(128, "ui8"), b.const(3, kind)]
    if b.chance(0.5):
        return b.add("MatMulInteger", [x, y, *(zeros if b.chance(0.6) else [])], "i32", shape, -65025 * k, 65025 * k)
    return b.add(
        "QLinearMatMul",
        [
            x,
            b.const(0.02, "f32"),
            zeros[0],
            y,
            b.const(0.03, "f32"),
            zeros[1],
            b.const(0.1, "f32"),
            b.const(100, "ui8"),
        ],
        "ui8",
        shape,
        0,
        255,
    )


def reduce(b: Builder) -> Value:
    """The ten reductions: axes as an attribute or an input, from either end, all, or none at all."""
    op = b.rng.choice(
        ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp", "Sum", "Mean", "Max")
    )
    x = b.pick(
        (b.main, "f32", "i32", "i64") if op in ("Sum", "Max", "Min", "Prod") and b.opset >= 12 else (b.main, "f32"),
        (0, 5),
    )
    if not x.size and op in ("Max", "Min", "Mean", "LogSum", "LogSumExp"):
        raise Stuck
    if op == "LogSum":
        x = b.add("Abs", [x], x.dtype, x.shape, 0, x.reach)
        x = b.add("Add", [x, b.const(0.5, x.dtype)], x.dtype, x.shape, 0.5, x.reach + 1)
    axes = sorted(b.rng.sample(range(x.rank), b.rng.randint(1, x.rank))) if x.rank else []
    everything = x.rank == 0 or b.chance(0.15)
    keep = b.rng.choice((None, 0, 1))
    gone = range(x.rank) if everything else axes
    n = math.prod(x.shape[i] for i in gone)
    shape = [1 if i in gone else d for i, d in enumerate(x.shape) if keep != 0 or i not in gone]
    if op == "Prod" and (x.reach > 3 or n > 8):
        op = "Max" if x.size else "Sum"
    reach = {"Max": x.reach, "Min": x.reach, "Mean": x.reach, "Prod": max(1, x.reach) ** min(n, 8), "SumSquare": x.reach**2 * n, "LogSum": 20,
             "LogSumExp": x.reach + 12}.get(op, x.reach * n)  # fmt: skip
    said = [a - x.rank if b.opset >= 11 and b.chance(0.3) else a for a in axes]
    inputs: list[Value | None] = [x]
    attrs: dict = {"keepdims": keep}
    if b.opset >= (13 if op == "Sum" else 18):
        if not everything:
            inputs.append(b.ints(said))
        elif b.chance(0.1) and x.rank:
            inputs.append(b.const(np.zeros(0), "i64"))
            attrs["noop_with_empty_axes"] = 0
    elif not everything:
        attrs["axes"] = said
    return b.add(f"Reduce{op}", inputs, x.dtype, shape, -reach, reach, **attrs)


def arg(b: Builder) -> Value:
    x = b.pick(("f32", "f32", "i32", b.main), (1, 4), lambda v: v.size > 0)
    axis, keep = b.axis(x), b.rng.choice((None, 0, 1))
    at = axis % x.rank
    shape = [1 if i == at else d for i, d in enumerate(x.shape) if keep != 0 or i != at]
    last = b.rng.choice((None, 0, 1)) if b.opset >= 12 else None
    return b.add(
        b.rng.choice(("ArgMax", "ArgMin")),
        [x],
        "i64",
        shape,
        0,
        max(x.shape[at] - 1, 0),
        axis=axis,
        keepdims=keep,
        select_last_index=last,
    )


def softmax(b: Builder, x: Value | None = None) -> Value:
    x = x or b.pick(FLOATS, (1, 4), lambda v: v.size > 0)
    op = b.rng.choice(("Softmax", "Softmax", "LogSoftmax", "Hardmax"))
    axis = b.axis(x) if b.chance(0.8) else None
    top = 0 if op == "LogSoftmax" else 1
    return b.add(op, [x], x.dtype, x.shape, -2 * x.reach - 12 if op == "LogSoftmax" else 0, top, axis=axis)


def along(b: Builder) -> Value:
    """Norms and sums along an axis: LayerNormalization, LpNormalization, MeanVarianceNormalization, CumSum."""
    op = b.rng.choice(
        ("LayerNormalization", "LayerNormalization", "LpNormalization", "MeanVarianceNormalization", "CumSum", "CumSum")
    )
    if op == "CumSum":
        if b.opset < 11:
            raise Stuck
        x = b.pick((b.main if b.main != "f16" else "f32", "f32", "i64", "i32"), (1, 4))
        r = x.reach * max(x.shape)
        return b.add(
            op,
            [x, b.const(b.axis(x), b.rng.choice(("i64", "i32")))],
            x.dtype,
            x.shape,
            -r,
            r,
            exclusive=b.rng.choice((None, 0, 1)),
            reverse=b.rng.choice((None, 0, 1)),
        )
    x = b.pick(("f32", b.main), (2, 4), lambda v: v.size > 0)
    if op == "LpNormalization":
        if x.dtype == "f16":
            raise Stuck
        x = b.add("Add", [x, b.const(x.reach + 0.5, x.dtype)], x.dtype, x.shape, 0.5, 2 * x.reach + 1)
        return b.add(op, [x], x.dtype, x.shape, 0, 1, axis=b.axis(x), p=b.rng.choice((1, 2)))
    if op == "MeanVarianceNormalization":
        if x.rank != 4 or b.opset < 9 or math.prod(x.shape) // x.shape[1] < 4:
            raise Stuck
        return b.add(op, [x], x.dtype, x.shape, -math.sqrt(x.size), math.sqrt(x.size))
    if b.opset < 17:
        raise Stuck
    axis = b.axis(x)
    shape = x.shape[axis % x.rank :]
    bias = b.param(shape, dtype=x.dtype) if b.chance(0.7) else None
    r = math.sqrt(math.prod(shape)) * 1.5 + 1
    return b.add(
        op,
        [x, b.param(shape, 0.5, 1.5, x.dtype), bias],
        x.dtype,
        x.shape,
        -r,
        r,
        axis=axis,
        epsilon=b.rng.choice((1e-2, 1e-1)),
    )


def topk(b: Builder) -> Value:
    x = b.pick(("f32", "f32", "i64", "i32") if b.opset >= 11 else "f32", (1, 3), lambda v: v.size > 0)
    axis = b.axis(x)
    k = b.rng.randint(1, x.shape[axis])
    shape = [k if i == axis % x.rank else d for i, d in enumerate(x.shape)]
    results = [(x.dtype, shape, x.lo, x.hi), ("i64", shape, 0, x.shape[axis] - 1)]
    if b.opset < 10:
        return b.multi("TopK", [x], results, k=k, axis=axis)[0]
    attrs = {"largest": b.rng.choice((None, 0, 1))} if b.opset >= 11 else {}
    return b.multi("TopK", [x, b.ints([k])], results, axis=axis, **attrs)[0]


def recurrent(b: Builder) -> Value:
    """LSTM, GRU and RNN: directions, initial states, lengths, activations, results left out."""
    op = b.rng.choice(("LSTM", "GRU", "RNN"))
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    way = b.rng.choice(("forward", "reverse", "bidirectional", None))
    d = 2 if way == "bidirectional" else 1
    x = (
        b.pick("f32", 3, lambda v: 0 < v.size <= 200)
        if b.chance(0.3)
        else b.input("f32", (b.rng.randint(1, 5), b.rng.randint(1, 3), b.rng.randint(1, 4)))
    )
    t, n, i = x.shape
    h = b.rng.randint(1, 5)
    w, r = (b.const(b.numbers("f32", s, -0.8, 0.8), "f32") for s in ((d, gates * h, i), (d, gates * h, h)))
    bias = b.param((d, 2 * gates * h), dtype="f32") if b.chance(0.7) else None
    lens = b.const(b.numbers("i32", (n,), 1, t), "i32") if b.chance(0.25) else None
    start = [b.param((d, n, h), dtype="f32") if b.chance(0.4) else None for _ in range(2 if op == "LSTM" else 1)]
    holes = [b.const(b.numbers("f32", (d, 3 * h), -0.5, 0.5), "f32")] if op == "LSTM" and b.chance(0.2) else []
    results: list = [
        ("f32", (t, d, n, h), -9, 9) if b.chance(0.8) else None,
        ("f32", (d, n, h), -9, 9),
        ("f32", (d, n, h), -9, 9),
    ][: 3 if op == "LSTM" else 2]
    if results[0] and b.chance(0.3):
        results = results[:1]
    attrs: dict = {"direction": way, "hidden_size": h}
    if op == "GRU":
        attrs["linear_before_reset"] = b.rng.choice((None, 0, 1))
    if op == "RNN" and b.chance(0.4):
        attrs["activations"] = [b.rng.choice(("Tanh", "Relu", "Sigmoid"))] * d
    return b.multi(op, [x, w, r, bias, lens, *start, *holes], results, **attrs)[0]


def det(b: Builder) -> Value:
    """Det, of matrices computed at run time, which LightNet takes up to 3 x 3."""
    if b.opset < 11:
        raise Stuck
    n = b.rng.randint(1, 3)
    x = b.input("f32", (b.rng.randint(1, 3), n, n))
    return b.add("Det", [x], "f32", x.shape[:1], -400, 400)


STEPS = {
    matmul: 8,
    gemm: 5,
    einsum: 3,
    integer_matmul: 1,
    reduce: 9,
    arg: 3,
    softmax: 4,
    along: 4,
    topk: 2,
    recurrent: 2,
    det: 1,
}
