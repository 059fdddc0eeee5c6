"""Steps with bodies: If, Loop, Scan; and results whose size the data decides."""

from __future__ import annotations

import numpy as np
from onnx import helper

from .builder import DTYPES, Builder, Stuck, Value
from .pointwise import activation, unary
from .products import matmul


def _info(x: Value):
    return helper.make_tensor_value_info(x.name, DTYPES[x.dtype][0], x.shape)


def _body(b: Builder, inputs: list[Value]) -> Builder:
    body = Builder(0, b)
    body.values += inputs
    return body


def _same(body: Builder, x: Value) -> Value:
    """Some steps that keep type and shape."""
    for _ in range(body.rng.randint(1, 2)):
        op = body.rng.choice(("Tanh", "Sigmoid", "Relu", "Add", "Mul", "Sub"))
        if op in ("Add", "Mul", "Sub"):
            x = body.add(
                op,
                [x, body.param(x.shape[-1:] if x.rank and body.chance(0.5) else (), -0.5, 0.5, x.dtype)],
                x.dtype,
                x.shape,
                -x.reach - 1,
                x.reach + 1,
            )
        else:
            x = body.add(op, [x], x.dtype, x.shape, -1 if op == "Tanh" else 0, max(1, x.reach))
    return body.add("Tanh", [x], x.dtype, x.shape, -1, 1)


def if_(b: Builder) -> Value:
    """If on a constant, mostly; both branches read tensors of the graph outside."""
    x = b.pick("f32", (0, 3))
    bodies = []
    for _ in range(2):
        body = _body(b, [])
        y = _same(body, x)
        bodies.append((body, y))
    condition = b.const(b.chance(0.5), "i1") if b.chance(0.7) else b.input("i1", ())
    branches = {
        word: body.graph(f"{word}_{b.name('g')}", [], [y])
        for word, (body, y) in zip(("then_branch", "else_branch"), bodies)
    }
    return b.add("If", [condition], "f32", x.shape, -1, 1, **branches)


def loop(b: Builder) -> Value:
    """A Loop of few trips: a value carried, at times results of every trip."""
    x = b.pick("f32", (0, 2), lambda v: v.size > 0)
    trips = b.rng.randint(1, 4)
    index, going, carried = (
        Value(b.name("i"), "i64", (), 0, 4),
        Value(b.name("c"), "i1", (), 0, 1),
        Value(b.name("x"), "f32", x.shape, min(x.lo, -1), max(x.hi, 1)),
    )
    body = _body(b, [carried])
    y = _same(body, carried)
    again = body.add("Identity", [going], "i1", (), 0, 1)
    scanned = b.chance(0.4)
    outs = [again, y] + ([body.add("Neg", [y], "f32", y.shape, -1, 1)] if scanned else [])
    graph = body.graph(b.name("body"), [index, going, carried], outs)
    results = [("f32", x.shape, -1, 1)] + ([("f32", (trips, *x.shape), -1, 1)] if scanned else [])
    condition = b.const(True, "i1") if b.chance(0.6) else None
    return b.multi("Loop", [b.const(trips, "i64"), condition, x], results, body=graph)[-1]


def scan(b: Builder) -> Value:
    """A Scan over the first axis, of a sum."""
    if b.opset < 9:
        raise Stuck
    x = b.pick("f32", (1, 3), lambda v: 0 < v.shape[0] < 6)
    row = x.shape[1:]
    state, one = Value(b.name("s"), "f32", row, -9, 9), Value(b.name("r"), "f32", row, x.lo, x.hi)
    body = Builder(0, b)
    total = body.add("Add", [state, one], "f32", row, -9, 9)
    y = body.add("Tanh", [total], "f32", row, -1, 1)
    graph = body.graph(b.name("scan"), [state, one], [y, body.add("Identity", [y], "f32", row, -1, 1)])
    attrs = {"scan_input_directions": [1]} if b.chance(0.3) else {}
    start = b.param(row, dtype="f32")
    return b.multi(
        "Scan", [start, x], [("f32", row, -1, 1), ("f32", x.shape, -1, 1)], body=graph, num_scan_inputs=1, **attrs
    )[-1]


def counted(b: Builder) -> Value:
    """NonZero, Compress, Unique, NonMaxSuppression: an output of its own, whose shape nothing else needs."""
    op = b.rng.choice(("NonZero", "Compress", "Unique", "NonMaxSuppression"))
    if op == "NonZero" and b.opset >= 9:
        x = b.pick(("f32", "i64", "i1"), (1, 3))
        return _apart(b, op, [x], "i64")
    if op == "Compress" and b.opset >= 9:
        x = b.pick(("f32", "i64"), (1, 3), lambda v: v.size > 0)
        axis = b.axis(x)
        return _apart(b, op, [x, b.input("i1", (x.shape[axis],))], x.dtype, axis=axis)
    if op == "Unique" and b.opset >= 11:
        x = b.input("i64", (b.rng.randint(1, 9),))
        return _apart(b, op, [x], "i64", sorted=1)
    if op == "NonMaxSuppression" and b.opset >= 10:
        n = b.rng.randint(1, 8)
        corner = b.numbers("f32", (1, n, 2), 0, 5)
        boxes = b.const(np.concatenate([corner, corner + b.numbers("f32", (1, n, 2), 1, 4)], -1), "f32")
        scores = b.input("f32", (1, b.rng.randint(1, 2), n), 0, 1)
        return _apart(
            b, op, [boxes, scores, b.ints([b.rng.randint(1, 4)]), b.const([0.5], "f32"), b.const([0.2], "f32")], "i64"
        )
    raise Stuck


def _apart(b: Builder, op: str, inputs: list[Value], dtype: str, **attrs) -> Value:
    """A node whose result has no shape that we know: it is summed, where nothing needs it, or goes out as it is."""
    out = b.name(op.lower())
    b.nodes.append(helper.make_node(op, [x.name for x in inputs], [out], **attrs))
    result = Value(out, dtype, (), -5, 5)
    if (b.opset >= 13 and dtype == "f32" and b.chance(0.7)) or b.outer:
        if b.outer:
            raise Stuck
        return b.add("ReduceSum", [result], dtype, (), -50, 50, keepdims=0)
    b.apart.append(result)
    return result


def steps_in_body(b: Builder) -> Value:
    """A function of the graph around, in a Loop of one trip: any steps."""
    if b.opset < 13:  # a Loop that carries nothing
        raise Stuck
    x = b.pick("f32", (1, 3), lambda v: v.size > 0)
    index, going = Value(b.name("i"), "i64", (), 0, 1), Value(b.name("c"), "i1", (), 0, 1)
    body = _body(b, [])
    y = x
    for step in b.rng.choices((unary, activation), k=2):
        y = step(body) if step is unary else step(body, y)
    y = matmul(body, y) if y.dtype == "f32" and y.rank and y.size else y
    again = body.add("Identity", [going], "i1", (), 0, 1)
    graph = body.graph(b.name("body"), [index, going], [again, y])
    return b.add("Loop", [b.const(1, "i64"), b.const(True, "i1")], y.dtype, (1, *y.shape), y.lo, y.hi, body=graph)


STEPS = {if_: 2, loop: 2, scan: 1, counted: 2, steps_in_body: 1}
