"""Steps that go element by element: arithmetic, activations, comparisons, logic, casts, quantising and back."""

from __future__ import annotations

import math

from .builder import FLOATS, Builder, Stuck, Value, joint

#: Functions of one float by the opset that has them, with the interval of the argument that they take, and of the result.
UNARY = {
    "Abs": (6, None), "Neg": (6, None), "Relu": (6, None), "Sigmoid": (6, None), "Tanh": (6, None), "Exp": (6, (-9, 5)),
    "Log": (6, (0.01, 1e9)), "Sqrt": (6, (0, 1e9)), "Reciprocal": (6, (0.1, 1e9)), "Floor": (6, None), "Ceil": (6, None),
    "Round": (11, None), "Sign": (9, None), "Erf": (9, None), "Sin": (7, None), "Cos": (7, None), "Tan": (7, (-1.2, 1.2)),
    "Asin": (7, (-1, 1)), "Acos": (7, (-1, 1)), "Atan": (7, None), "Sinh": (9, (-4, 4)), "Cosh": (9, (-4, 4)), "Asinh": (9, None),
    "Acosh": (9, (1.01, 1e9)), "Atanh": (9, (-0.9, 0.9)), "Softplus": (6, None), "Softsign": (6, None), "HardSwish": (14, None),
    "Mish": (18, None), "Identity": (6, None)}  # fmt: skip
BOUNDS = {"Sigmoid": (0, 1), "Tanh": (-1, 1), "Sign": (-1, 1), "Erf": (-1, 1), "Sin": (-1, 1), "Cos": (-1, 1), "Atan": (-1.6, 1.6), "Softsign": (-1, 1),
          "Asin": (-1.6, 1.6), "Acos": (0, 3.2), "Tan": (-2.6, 2.6), "Atanh": (-1.5, 1.5)}  # fmt: skip


def unary(b: Builder) -> Value:
    """A function whose domain holds the value, which is brought there first where it does not."""
    op = b.rng.choice([name for name, (since, _) in UNARY.items() if since <= b.opset])
    x = b.pick(FLOATS)
    domain = UNARY[op][1]
    if domain and not (domain[0] <= x.lo and x.hi <= domain[1]):
        x = clip(b, x, max(domain[0], -3), min(domain[1], 3))
    return b.add(op, [x], x.dtype, x.shape, *_image(op, x))


def _image(op: str, x: Value) -> tuple[float, float]:
    """The interval of a result."""
    if op in BOUNDS:
        return BOUNDS[op]
    one = {"Neg": lambda v: -v, "Relu": lambda v: max(v, 0), "Exp": math.exp, "Log": math.log, "Sqrt": math.sqrt, "Reciprocal": lambda v: 1 / v,
           "Sinh": math.sinh, "Asinh": math.asinh, "Acosh": math.acosh, "Identity": float}  # fmt: skip
    if op in one:
        ends = sorted((one[op](x.lo), one[op](x.hi)))
        return ends[0], ends[1]
    if op == "Cosh":
        return 1, math.cosh(x.reach)
    if op == "Abs":
        return 0, x.reach
    if op == "Softplus":
        return 0, x.reach + 1
    return -x.reach - 1, x.reach + 1


def clip(b: Builder, x: Value, lo: float, hi: float) -> Value:
    """Clip, by attributes or inputs."""
    if b.opset < 11:
        if x.dtype not in FLOATS:
            raise Stuck
        return b.add("Clip", [x], x.dtype, x.shape, lo, hi, min=float(lo), max=float(hi))
    if b.opset < 12 and x.dtype not in ("f32", "f16", "f64"):
        raise Stuck
    return b.add("Clip", [x, b.const(lo, x.dtype), b.const(hi, x.dtype)], x.dtype, x.shape, lo, hi)


def half_clip(b: Builder) -> Value:
    """Clip with one bound left out."""
    x = b.pick(FLOATS)
    at = b.rng.choice((0.0, 0.5, 1.0, -1.0))
    if b.opset < 11:
        return b.add("Clip", [x], x.dtype, x.shape, max(x.lo, at), max(x.hi, at), min=at)
    if b.chance(0.5):
        return b.add("Clip", [x, None, b.const(at, x.dtype)], x.dtype, x.shape, min(x.lo, at), min(x.hi, at))
    return b.add("Clip", [x, b.const(at, x.dtype), None], x.dtype, x.shape, max(x.lo, at), max(x.hi, at))


def activation(b: Builder, x: Value | None = None) -> Value:
    """An activation with attributes."""
    x = x or b.pick(FLOATS)
    a = b.rng.choice((0.01, 0.1, 0.5, 1.0, 1.5))
    choices = {"LeakyRelu": {"alpha": a}, "Elu": {"alpha": a}, "Selu": {}, "HardSigmoid": {"alpha": 0.2, "beta": a}, "Relu": {}, "Sigmoid": {}, "Tanh": {},
               "Softplus": {}}  # fmt: skip
    if b.opset >= 10:
        choices["ThresholdedRelu"] = {"alpha": a}
    if b.opset >= 12:
        choices["Celu"] = {"alpha": a}
    if b.opset >= 20:
        choices["Gelu"] = {"approximate": b.rng.choice(("none", "tanh"))}
    if b.opset >= 9:
        choices["Shrink"] = {"bias": 0.25, "lambd": a}
    op = b.rng.choice(list(choices))
    if op == "Celu" and x.dtype != "f32":
        op = "Elu"
    attrs = choices[op] if b.chance(0.7) or op in ("Shrink", "ThresholdedRelu") else {}
    bounds = {"Sigmoid": (0.0, 1.0), "HardSigmoid": (0.0, 1.0), "Tanh": (-1.0, 1.0)}
    top = 2 * x.reach + 2
    return b.add(op, [x], x.dtype, x.shape, *bounds.get(op, (-top, top)), **attrs)


def prelu(b: Builder) -> Value:
    x = b.pick(("f32", "f16", "f64"), (1, 4))
    slope = b.param([d if b.chance(0.4) else 1 for d in x.shape][b.rng.choice((0, x.rank - 1)) :], 0, 1, x.dtype)
    return b.add("PRelu", [x, slope], x.dtype, x.shape, -x.reach, x.reach)


def binary(b: Builder) -> Value:
    """Arithmetic of two values that broadcast."""
    x = b.pick((b.main, b.main, "i32", "i64", "f32"))
    y = b.like(x)
    if b.chance(0.3):
        x, y = y, x
    op = b.rng.choice(("Add", "Sub", "Mul", "Div", "Max", "Min", "Add", "Mul", "Mean", "Sum", "Pow", "Mod"))
    whole = x.dtype not in FLOATS
    if (whole and op in ("Max", "Min") and b.opset < 12) or (whole and op in ("Mean", "Sum", "Pow")):
        op = "Sub"
    if op in ("Max", "Min", "Sum", "Mean") and b.opset < 8:  # which do not broadcast yet
        y = b.param(x.shape, *b.ends(x.dtype), dtype=x.dtype)
    shape = joint(x.shape, y.shape)
    r = x.reach + y.reach
    if op == "Div":
        y = _away(b, y)
        reach = x.reach / (1 if whole else 0.25)
        return b.add("Div", [x, y], x.dtype, joint(x.shape, y.shape), -reach, reach)
    if op == "Pow":
        if not (0 <= x.lo and x.hi <= 4):
            x = clip(b, x, 0.1, 3)
        power = b.const(b.rng.choice((0.5, 1, 2, 3, -1, 0, 1.5)) if x.lo > 0 else 2, x.dtype)
        return b.add("Pow", [x, power], x.dtype, x.shape, 0, 64)
    if op == "Mod":
        if b.opset < 10:
            raise Stuck
        y = _away(b, y)
        fmod = 1 if not whole else b.rng.randint(0, 1)
        return b.add("Mod", [x, y], x.dtype, joint(x.shape, y.shape), -r, r, fmod=fmod or None)
    if op in ("Sum", "Mean", "Max", "Min") and b.chance(0.4):
        z = b.like(Value("", x.dtype, shape)) if b.opset >= 8 else x
        return b.add(op, [x, y, z], x.dtype, joint(shape, z.shape), -r - z.reach, r + z.reach)
    r = x.reach * y.reach if op == "Mul" else r
    return b.add(op, [x, y], x.dtype, shape, -r, r)


def _away(b: Builder, y: Value) -> Value:
    """`y`, kept away from 0."""
    if y.dtype in FLOATS:
        if y.lo >= 0.25 or y.hi <= -0.25:
            return y
        y = b.add("Abs", [y], y.dtype, y.shape, 0, y.reach)
        return b.add("Add", [y, b.const(0.5, y.dtype)], y.dtype, y.shape, 0.5, y.reach + 0.5)
    return b.const(b.rng.choice((-3, -2, 2, 3, 5, 7)), y.dtype)


def compare(b: Builder) -> Value:
    """A comparison, and often what reads it."""
    x = b.pick((b.main, "i64", "f32", "i32"))
    if x.dtype in FLOATS and x.size:  # ties are frequent: both operands of few values
        x = b.add("Floor", [x], x.dtype, x.shape, math.floor(x.lo), x.hi)
    y = b.like(x)
    ops = ["Less", "Greater"]
    if x.dtype[0] == "i" or b.opset >= 11:
        ops.append("Equal")
    if b.opset >= 12:
        ops += ["LessOrEqual", "GreaterOrEqual"]
    if b.opset < 9 and x.dtype[0] == "i":
        ops = ["Equal"]
    return b.add(b.rng.choice(ops), [x, y], "i1", joint(x.shape, y.shape), 0, 1)


def logic(b: Builder) -> Value:
    x = b.pick("i1")
    op = b.rng.choice(("And", "Or", "Xor", "Not"))
    if op == "Not":
        return b.add("Not", [x], "i1", x.shape, 0, 1)
    y = b.like(x)
    return b.add(op, [x, y], "i1", joint(x.shape, y.shape), 0, 1)


def bits(b: Builder) -> Value:
    """Bitwise ops, from opset 18, and shifts, from 11."""
    if b.opset >= 18 and b.chance(0.7):
        x = b.pick(("i32", "i64", "ui8"))
        if b.chance(0.3):
            return b.add("BitwiseNot", [x], x.dtype, x.shape, *((-x.hi - 1, -x.lo) if x.dtype != "ui8" else (0, 255)))
        y = b.like(x)
        reach = 2 * max(x.reach, y.reach) + 1
        return b.add(
            b.rng.choice(("BitwiseAnd", "BitwiseOr", "BitwiseXor")),
            [x, y],
            x.dtype,
            joint(x.shape, y.shape),
            0 if x.dtype == "ui8" else -reach,
            reach,
        )
    if b.opset < 11:
        raise Stuck
    x = b.pick("ui8")
    by = b.const(b.rng.randint(0, 7), "ui8")
    return b.add("BitShift", [x, by], "ui8", x.shape, 0, 255, direction=b.rng.choice(("LEFT", "RIGHT")))


def where(b: Builder) -> Value:
    if b.opset < 9:
        raise Stuck
    x = b.pick((b.main, "i64", "i32", "ui8"))
    y = b.like(x)
    shape = joint(x.shape, y.shape)
    fits = [
        c
        for c in b.values
        if c.dtype == "i1" and c.rank <= len(shape) and all(m in (1, n) for m, n in zip(c.shape[::-1], shape[::-1]))
    ]
    c = b.rng.choice(fits) if fits else b.input("i1", shape)
    return b.add("Where", [c, x, y], x.dtype, shape, min(x.lo, y.lo), max(x.hi, y.hi))


def cast(b: Builder) -> Value:
    """A cast that both types hold: floats are rounded before they become integers."""
    x = b.pick(("f32", "f64", "f16", "i32", "i64", "i1", "i8", "ui8"))
    to = b.rng.choice([t for t in ("f32", "f64", "f16", "i32", "i64", "i1", "ui8", "i8") if t != x.dtype] + [b.main])
    ends = {"ui8": (0, 255), "i8": (-128, 127), "i32": (-2e9, 2e9), "i64": (-9e18, 9e18)}.get(to, (-6e4, 6e4))
    if not (ends[0] <= x.lo and x.hi <= ends[1]):
        if x.dtype == "i1":
            raise Stuck
        x = clip(b, x, max(ends[0], 0), min(ends[1], 9)) if x.dtype in FLOATS or b.opset >= 12 else b.pick("i1")
    lo, hi = (0, 1) if to == "i1" else (x.lo, x.hi)
    if b.opset >= 15 and b.chance(0.2):
        return b.add("CastLike", [x, b.const(b.numbers(to, (1,), 0, 1), to)], to, x.shape, lo, hi)
    from .builder import DTYPES

    return b.add("Cast", [x], to, x.shape, lo, hi, to=DTYPES[to][0])


def quantise(b: Builder) -> Value:
    """QuantizeLinear and DequantizeLinear, by tensor or by axis, at times with an op on 8 bits between."""
    if b.opset < 10:
        raise Stuck
    x = b.pick("f32", (0, 4))
    kind = b.rng.choice(("ui8", "i8"))
    by_axis = b.opset >= 13 and x.rank > 0 and b.chance(0.4)
    axis = b.axis(x) if by_axis else 0
    shape = (x.shape[axis],) if by_axis else ()
    attrs = {"axis": axis} if by_axis else {}
    step = max(x.reach / 100, 0.01)
    scale = b.const(b.numbers("f32", shape, step, 2 * step), "f32")
    zero = (
        b.const(b.numbers(kind, shape, *((100, 140) if kind == "ui8" else (-5, 5))), kind)
        if b.chance(0.8) or kind == "i8"
        else None
    )
    lo, hi = (0, 255) if kind == "ui8" else (-128, 127)
    q = b.add("QuantizeLinear", [x, scale, zero], kind, x.shape, lo, hi, **attrs)
    if zero is None and b.chance(0.5):
        return q
    return b.add("DequantizeLinear", [q, scale, zero], "f32", x.shape, -300 * step * 2, 300 * step * 2, **attrs)


def dynamic_quantise(b: Builder) -> Value:
    if b.opset < 11:
        raise Stuck
    x = b.pick("f32", (1, 3), lambda v: v.size > 0)
    return b.multi(
        "DynamicQuantizeLinear", [x], [("ui8", x.shape, 0, 255), ("f32", (), 0.001, x.reach), ("ui8", (), 0, 255)]
    )[0]


def tests(b: Builder) -> Value:
    """IsNaN and IsInf."""
    x = b.pick(("f32", "f16"))
    if b.opset >= 10 and b.chance(0.5) and (x.dtype == "f32" or b.opset >= 20):
        return b.add("IsInf", [x], "i1", x.shape, 0, 1, detect_negative=b.rng.choice((None, 0, 1)))
    if b.opset < 9:
        raise Stuck
    return b.add("IsNaN", [x], "i1", x.shape, 0, 1)


STEPS = {
    unary: 8,
    activation: 6,
    binary: 12,
    half_clip: 2,
    prelu: 2,
    compare: 3,
    logic: 2,
    bits: 1,
    where: 3,
    cast: 4,
    quantise: 3,
    dynamic_quantise: 1,
    tests: 1,
}
