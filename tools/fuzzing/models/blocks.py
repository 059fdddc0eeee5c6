"""Steps of many nodes: what networks are made of."""

from __future__ import annotations

import math

from .builder import Builder, Stuck, Value
from .moves import transpose
from .pointwise import activation
from .products import gemm, matmul, softmax
from .spatial import conv, global_pool, maps, norm


def _conv(b: Builder, x: Value, out: int, k: int, stride: int = 1) -> Value:
    """A convolution that keeps the size (by a stride), with or without bias, and mostly what follows one."""
    scale = 1 / math.sqrt(x.shape[1] * k * k)
    w = b.const(b.numbers("f32", (out, x.shape[1], k, k), -scale, scale), "f32")
    bias = b.param((out,), dtype="f32") if b.chance(0.5) else None
    shape = (x.shape[0], out, *((d - 1) // stride + 1 for d in x.shape[2:]))
    r = x.reach * scale * x.shape[1] * k * k + 1
    y = b.add("Conv", [x, w, bias], "f32", shape, -r, r, kernel_shape=[k, k], pads=[k // 2] * 4, strides=[stride] * 2)
    if b.chance(0.5):
        y = norm(b, y)
    return activation(b, y) if b.chance(0.8) else y


def _maps(b: Builder) -> Value:
    x = maps(b, 4)
    if x.size > 900:
        raise Stuck
    return x


def _sum(b: Builder, x: Value, y: Value) -> Value:
    return b.add("Add", [x, y] if b.chance(0.5) else [y, x], x.dtype, x.shape, x.lo + y.lo, x.hi + y.hi)


def residual(b: Builder) -> Value:
    x = _maps(b)
    c = x.shape[1]
    y = _conv(b, _conv(b, x, b.rng.choice((c, 4, 8)), 3), c, b.rng.choice((1, 3)))
    y = _sum(b, y, x)
    return activation(b, y) if b.chance(0.7) else y


def squeeze_excite(b: Builder) -> Value:
    x = _maps(b)
    c = x.shape[1]
    s = global_pool(b, x)
    s = activation(b, _conv(b, s, b.rng.choice((1, 2, 4)), 1))
    s = _conv(b, s, c, 1)
    s = b.add(b.rng.choice(("Sigmoid", "HardSigmoid")), [s], "f32", s.shape, 0, 1)
    return b.add("Mul", [x, s], "f32", x.shape, -x.reach, x.reach)


def pyramid(b: Builder) -> Value:
    """Two levels, the lower one scaled up and joined with the upper one."""
    if b.opset < 11:
        raise Stuck
    x = _maps(b)
    if min(x.shape[2:]) < 2:
        raise Stuck
    low = _conv(b, x, 4, 3, 2)
    sizes = b.ints([*low.shape[:2], *x.shape[2:]])
    import numpy as np

    none = b.const(np.zeros(0), "f32")
    roi = none if b.opset < 13 else None
    up = b.add("Resize", [low, roi, roi, sizes], "f32", (*low.shape[:2], *x.shape[2:]), low.lo, low.hi, mode="nearest", coordinate_transformation_mode="asymmetric",
               nearest_mode="floor")  # fmt: skip
    side = _conv(b, x, 4, 1)
    if b.chance(0.5):
        return _sum(b, up, side)
    return b.add(
        "Concat", [up, side], "f32", (x.shape[0], 8, *x.shape[2:]), min(up.lo, side.lo), max(up.hi, side.hi), axis=1
    )


def head(b: Builder) -> Value:
    """A detector's head: maps to rows of boxes and scores."""
    x = _maps(b)
    anchors, classes = b.rng.randint(1, 3), b.rng.randint(1, 4)
    n, (h, w) = x.shape[0], x.shape[2:]
    y = _conv(b, x, anchors * (4 + classes), 1)
    y = b.add("Transpose", [y], "f32", (n, h, w, y.shape[1]), y.lo, y.hi, perm=[0, 2, 3, 1])
    y = b.add("Reshape", [y, b.ints([n, -1, 4 + classes])], "f32", (n, h * w * anchors, 4 + classes), y.lo, y.hi)

    def part(i: int, j: int) -> Value:
        shape = (*y.shape[:2], j - i)
        if b.opset < 10:
            return b.add("Slice", [y], "f32", shape, y.lo, y.hi, axes=[2], starts=[i], ends=[j])
        return b.add("Slice", [y, b.ints([i]), b.ints([j]), b.ints([2])], "f32", shape, y.lo, y.hi)

    boxes, scores = part(0, 4), part(4, 4 + classes)
    scores = b.add("Sigmoid", [scores], "f32", scores.shape, 0, 1)
    boxes = b.add("Tanh", [boxes], "f32", boxes.shape, -1, 1)
    boxes = b.add("Mul", [boxes, b.param((1, boxes.shape[1], 1), 0, 4, "f32")], "f32", boxes.shape, -4, 4)
    return b.add("Concat", [boxes, scores], "f32", y.shape, -4, 4, axis=-1 if b.opset >= 11 else 2)


def attention(b: Builder) -> Value:
    """Multi-head attention, with a mask at times, as exporters write it out."""
    heads, d, t = b.rng.choice((1, 2, 4)), b.rng.choice((1, 2, 4, 8)), b.rng.randint(1, 6)
    width = heads * d
    x = b.input("f32", (b.rng.randint(1, 2), t, width))
    n = x.shape[0]

    def project(y: Value) -> Value:
        y = b.add(
            "MatMul", [y, b.param((width, width), dtype="f32")], "f32", (n, t, width), -y.reach * width, y.reach * width
        )
        if b.chance(0.7):
            y = _sum(b, y, b.param((width,), dtype="f32"))
        return y

    def split(y: Value, perm: list[int]) -> Value:
        y = b.add(
            "Reshape",
            [y, b.ints(b.rng.choice(([0, 0, heads, d], [n, -1, heads, d], [n, t, heads, d])))],
            "f32",
            (n, t, heads, d),
            y.lo,
            y.hi,
        )
        shape = [y.shape[i] for i in perm]
        return b.add("Transpose", [y], "f32", shape, y.lo, y.hi, perm=perm)

    q, k, v = split(project(x), [0, 2, 1, 3]), split(project(x), [0, 2, 3, 1]), split(project(x), [0, 2, 1, 3])
    r = q.reach * k.reach * d
    a = b.add("MatMul", [q, k], "f32", (n, heads, t, t), -r, r)
    a = b.add(
        b.rng.choice(("Div", "Mul")), [a, b.const(math.sqrt(d), "f32")], "f32", a.shape, -a.reach * 3, a.reach * 3
    )
    if b.chance(0.4):
        mask = b.const(b.numbers("f32", (t, t), -1, 1), "f32") if b.chance(0.5) else b.input("f32", (n, 1, 1, t), -5, 0)
        a = b.add("Add", [a, mask], "f32", a.shape, -a.reach - 5, a.reach + 5)
    a = b.add("Softmax", [a], "f32", a.shape, 0, 1, axis=-1 if b.opset >= 11 else 3)
    y = b.add("MatMul", [a, v], "f32", (n, heads, t, d), -v.reach, v.reach)
    y = b.add("Transpose", [y], "f32", (n, t, heads, d), y.lo, y.hi, perm=[0, 2, 1, 3])
    y = b.add("Reshape", [y, b.ints([n, t, width])], "f32", (n, t, width), y.lo, y.hi)
    y = _sum(b, project(y), x)
    return _written_norm(b, y) if b.chance(0.5) else y


def _written_norm(b: Builder, x: Value) -> Value:
    """Layer norm as older exporters write it."""
    front = (*x.shape[:-1], 1)

    def mean(y: Value) -> Value:
        if b.opset < 18:
            return b.add("ReduceMean", [y], "f32", front, y.lo, y.hi, axes=[-1 if b.opset >= 11 else x.rank - 1])
        return b.add("ReduceMean", [y, b.ints([-1])], "f32", front, y.lo, y.hi)

    c = b.add("Sub", [x, mean(x)], "f32", x.shape, -2 * x.reach, 2 * x.reach)
    power = (
        b.add("Mul", [c, c], "f32", x.shape, 0, c.reach**2)
        if b.chance(0.5)
        else b.add("Pow", [c, b.const(2, "f32")], "f32", x.shape, 0, c.reach**2)
    )
    power = b.add("Abs", [power], "f32", x.shape, 0, power.reach)
    var = b.add("Add", [mean(power), b.const(0.01, "f32")], "f32", front, 0.01, power.reach + 1)
    root = b.add("Sqrt", [var], "f32", front, 0.1, math.sqrt(var.reach) + 1)
    y = b.add("Div", [c, root], "f32", x.shape, -c.reach * 10, c.reach * 10)
    return b.add("Mul", [y, b.param(x.shape[-1:], dtype="f32")], "f32", x.shape, -y.reach, y.reach)


def layer_norm(b: Builder) -> Value:
    return _written_norm(b, b.pick("f32", (1, 4), lambda v: v.size > 0))


def gelu(b: Builder) -> Value:
    """GELU, swish or hard swish, written out."""
    x = b.pick("f32")
    if b.opset >= 9 and b.chance(0.5):
        y = b.add("Div", [x, b.const(math.sqrt(2), "f32")], "f32", x.shape, -x.reach, x.reach)
        y = b.add("Erf", [y], "f32", x.shape, -1, 1)
        y = b.add("Add", [y, b.const(1, "f32")], "f32", x.shape, 0, 2)
        y = b.add("Mul", [x, y], "f32", x.shape, -2 * x.reach, 2 * x.reach)
        return b.add("Mul", [y, b.const(0.5, "f32")], "f32", x.shape, -x.reach, x.reach)
    s = b.add(b.rng.choice(("Sigmoid", "HardSigmoid")), [x], "f32", x.shape, 0, 1)
    return b.add("Mul", [x, s] if b.chance(0.5) else [s, x], "f32", x.shape, -x.reach, x.reach)


def classifier(b: Builder) -> Value:
    x = _maps(b)
    y = global_pool(b, x)
    y = (
        b.add("Flatten", [y], "f32", (x.shape[0], x.shape[1]), y.lo, y.hi)
        if b.chance(0.5)
        else b.add("Reshape", [y, b.ints([x.shape[0], -1])], "f32", x.shape[:2], y.lo, y.hi)
    )
    y = gemm(b, y)
    return softmax(b, y) if b.chance(0.6) else y


def shuffle(b: Builder) -> Value:
    """Channel shuffle, and a convolution behind it."""
    x = _maps(b)
    n, c, h, w = x.shape
    groups = [g for g in (2, 3, 4) if c % g == 0]
    if not groups:
        raise Stuck
    g = b.rng.choice(groups)
    y = b.add("Reshape", [x, b.ints([n, g, c // g, h, w])], "f32", (n, g, c // g, h, w), x.lo, x.hi)
    y = b.add("Transpose", [y], "f32", (n, c // g, g, h, w), x.lo, x.hi, perm=[0, 2, 1, 3, 4])
    y = b.add("Reshape", [y, b.ints([n, c, h, w])], "f32", x.shape, x.lo, x.hi)
    return conv(b, y)


def mixer(b: Builder) -> Value:
    """Products before and behind a transpose."""
    y = matmul(b, b.pick("f32", (2, 3), lambda v: v.size > 0))
    return matmul(b, transpose(b, y)) if y.rank and y.dtype == "f32" else y


STEPS = {
    residual: 3,
    squeeze_excite: 2,
    pyramid: 2,
    head: 2,
    attention: 2,
    layer_norm: 2,
    gelu: 2,
    classifier: 2,
    shuffle: 2,
    mixer: 2,
}
