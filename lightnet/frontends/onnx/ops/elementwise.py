"""ONNX ops that work element by element: arithmetic, logic, comparisons, conversions, functions of one number,
activations.

Broadcasting, NaN and integers are those of the `ln` ops (families arith, unary, activation); here attributes and
optional inputs of all opsets become parameters, and values that are known choose the cheaper op. Imports the table of
handlers.
"""

from __future__ import annotations

import math
from functools import reduce

from lightnet.frontends.graph import Value
from lightnet.frontends.onnx.node import Node, onnx_op
from lightnet.frontends.onnx.pairs import ACTIVATIONS, BINARY, BITWISE, COMPARISONS, EXTREMES, LOGICAL, UNARY
from lightnet.frontends.onnx.storage import ROUND_MODES, entered, left, marked, stored
from lightnet.runtime.dtypes import BY_NAME, DType


def target(n: Node) -> DType:
    """The type that a conversion is to."""
    found = n.element_type("to")
    return n.fail("needs the attribute 'to' (an element type)") if found is None else found


def _aligned(n: Node, a: Value, b: Value) -> Value:
    """`b` as the second operand of a binary op: before opset 7 it is repeated to the shape of `a` where the attribute
    `broadcast` says so, its first axis at `axis`."""
    if n.opset >= 7 or not n.int("broadcast", 0) or not n.has("axis"):
        return b
    behind = a.ndim - n.axis(n.int("axis"), a.ndim) - b.ndim
    if behind < 0:
        n.fail(f"with axis {n.int('axis')}, {b.spec} is not repeated to the shape of {a.spec}")
    return n.g.reshape(b, (*b.dims, *[1] * behind))


# -- binary ----------------------------------------------------------------------------------------------------------

_BINARY = BINARY | COMPARISONS | BITWISE | LOGICAL


@onnx_op(*_BINARY)
def binary(n: Node, a: Value, b: Value) -> Value:
    return n.g.op(_BINARY[n.op_type], a, _aligned(n, a, b))


@onnx_op("Greater", "GreaterOrEqual")
def greater(n: Node, a: Value, b: Value) -> Value:
    """a > b as b < a."""
    return n.g.op("less" if n.op_type == "Greater" else "less_equal", _aligned(n, a, b), a)


@onnx_op("Pow")
def power(n: Node, a: Value, b: Value) -> Value:
    """The result has the type of the base. Small powers are products; an integer to a float power goes through
    double."""
    b = _aligned(n, a, b)
    if b.is_known and b.len == 1 and b.ndim <= a.ndim and (exponent := float(b.known.reshape(-1)[0])) in (1, 2, 3):
        return reduce(lambda x, y: n.g.op("mul", x, y), [a] * int(exponent))
    if b.dtype.is_float and not a.dtype.is_float:
        return n.g.cast(n.g.op("pow", n.g.cast(a, "f64"), n.g.cast(b, "f64")), a.dtype)
    return n.g.op("pow", a, n.g.cast(b, a.dtype, mode="saturate"))


@onnx_op("Mod")
def modulo(n: Node, a: Value, b: Value) -> Value:
    """The sign is the divisor's, or with `fmod` the dividend's."""
    return n.g.op("fmod" if n.int("fmod", 0) else "mod", a, b)


@onnx_op("BitShift")
def bit_shift(n: Node, a: Value, b: Value) -> Value:
    direction = n.string("direction")
    if direction not in ("LEFT", "RIGHT"):
        n.fail(f"its direction should be LEFT or RIGHT, but is '{direction}'")
    return n.g.op(f"shift_{direction.lower()}", a, b)


_VARIADIC = EXTREMES | {"Sum": "add"}


@onnx_op(*_VARIADIC)
def variadic(n: Node, first: Value, *others: Value) -> Value:
    return reduce(lambda a, b: n.g.op(_VARIADIC[n.op_type], a, b), others, first)


@onnx_op("Mean")
def mean(n: Node, first: Value, *others: Value) -> Value:
    total = reduce(lambda a, b: n.g.op("add", a, b), others, first)
    return n.g.op("mul", total, n.g.scalar(1 / (1 + len(others)), total.dtype)) if others else first


@onnx_op("Where")
def where(n: Node, cond: Value, a: Value, b: Value) -> Value:
    return n.g.op("where", cond, a, b)


@onnx_op("PRelu")
def prelu(n: Node, x: Value, slope: Value) -> Value:
    """Before opset 7 a slope of rank 1 is one for each channel, axis 1."""
    if n.opset < 7 and slope.ndim == 1 and slope.len > 1:
        slope = n.g.reshape(slope, (slope.len, *[1] * (x.ndim - 2)))
    return n.g.op("prelu", x, slope)


# -- conversions -----------------------------------------------------------------------------------------------------


@onnx_op("Cast")
def cast(n: Node, x: Value) -> Value:
    storage = n.storage_type("to")
    return marked(n.g.cast(x, target(n)), None) if storage is None else _stored(n, x, storage)


@onnx_op("CastLike")
def cast_like(n: Node, x: Value, like: Value) -> Value:
    return marked(n.g.cast(x, like.dtype), None) if like.storage is None else _stored(n, x, like.storage)


def _stored(n: Node, x: Value, storage: str) -> Value:
    mode = n.string("round_mode", "up")
    if mode not in ROUND_MODES:
        n.fail(f"its attribute 'round_mode' should be one of {', '.join(ROUND_MODES)}, but is '{mode:.40}'")
    return stored(n.g, x, storage, bool(n.int("saturate", 1)), wrap=True, round_mode=mode)


def _bits_of_stored(n: Node, x: Value, to: DType) -> Value:
    """BitCast to a storage type, or from one."""
    raw = left(n.g, x)
    if to.bits != raw.dtype.bits or "bool" in (to.kind, x.dtype.kind):
        n.fail(f"{raw.spec} and {to} are not of one size")
    return entered(n.g, n.g.op("bitcast", raw, dtype=to.tl))


@onnx_op("BitCast")
def bit_cast(n: Node, x: Value) -> Value:
    """A bool is a byte that is 0 or 1; a byte that is neither is no bool, and counts as true."""
    storage = n.storage_type("to")
    if storage or x.storage:
        return _bits_of_stored(n, x, BY_NAME[storage] if storage else target(n))
    to = target(n)
    if "bool" in (to.kind, x.dtype.kind):
        if to.size != x.dtype.size:
            n.fail(f"{x.spec} and {to} are not of one size")
        return n.g.cast(x, to)
    return x if to == x.dtype else n.g.op("bitcast", x, dtype=to.tl)


@onnx_op("Dropout")
def dropout(n: Node, x: Value, ratio: Value | None = None, training: Value | None = None) -> tuple[Value, Value | None]:
    """Inference: the tensor itself, and a mask that drops nothing."""
    drops = training is not None and bool(n.need(training, "the training mode of Dropout").reshape(-1)[0])
    part = 0.5 if not drops or ratio is None else float(n.need(ratio, "the ratio of Dropout").reshape(-1)[0])
    if drops and part:
        return _dropped(n, x, part)
    one = n.g.scalar(1, "i1" if n.opset >= 10 else x.dtype)
    return x, n.g.op("expand", one, dims=x.dims) if n.wants(1) else None


def _dropped(n: Node, x: Value, ratio: float) -> tuple[Value, Value]:
    """Training: zeros with probability `ratio`, the others over 1 - ratio; and where they are."""
    if not 0 <= ratio < 1:
        n.fail(f"its ratio should be in [0, 1), but is {ratio}")
    g, wide = n.g, "f64" if x.dtype.name == "f64" else "f32"
    number = n.draws().uniform(x.dims, wide, n.float("seed", None))
    kept = g.op("less_equal", g.scalar(ratio, wide), number)
    y = g.op("mul", g.cast(x, wide), g.scalar(1 / (1 - ratio), wide))
    return g.cast(g.op("where", kept, y, g.scalar(0, wide)), x.dtype), kept


# -- one number ------------------------------------------------------------------------------------------------------


@onnx_op(*UNARY)
def unary(n: Node, x: Value) -> Value:
    return n.g.op(UNARY[n.op_type], x)


@onnx_op("IsInf")
def is_infinite(n: Node, x: Value) -> Value:
    positive, negative = (bool(n.int(f"detect_{sign}", 1)) for sign in ("positive", "negative"))
    return n.g.op("isinf", x, positive=positive, negative=negative)


@onnx_op(*ACTIVATIONS)
def activation(n: Node, x: Value) -> Value:
    optype, attributes = ACTIVATIONS[n.op_type]
    return n.g.op(optype, x, **{param: n.float(name, default) for name, (param, default) in attributes.items()})


@onnx_op("Gelu")
def gelu(n: Node, x: Value) -> Value:
    approximate = n.string("approximate", "none")
    if approximate not in ("none", "tanh"):
        n.fail(f"its attribute 'approximate' should be none or tanh, but is '{approximate}'")
    return n.g.op("gelu", x, approximate=approximate)


# -- clip ------------------------------------------------------------------------------------------------------------


@onnx_op("Clip")
def clip(n: Node, x: Value, low: Value | None = None, high: Value | None = None) -> Value:
    """The bounds are attributes before opset 11, then inputs, each of which may be absent."""
    if n.opset < 11:
        low = n.g.scalar(n.float("min"), x.dtype) if n.has("min") else None
        high = n.g.scalar(n.float("max"), x.dtype) if n.has("max") else None
    return clipped(n, x, low, high)


def clipped(n: Node, x: Value, low: Value | None, high: Value | None) -> Value:
    """`x` between two tensors of one element; `clip` where both are known, `relu` above 0."""
    lo, hi = (None if v is None or v.len != 1 else _number(v) for v in (low, high))
    if low is not None and lo == -math.inf:
        low = None
    if high is not None and hi == math.inf:
        high = None
    if low is not None and high is not None and lo is not None and hi is not None:
        return n.g.op("clip", x, lo=lo, hi=hi)
    if low is not None:
        x = n.g.op("relu", x) if lo == 0 else n.g.op("maximum", x, n.g.reshape(low, ()))
    return x if high is None else n.g.op("minimum", x, n.g.reshape(high, ()))


def _number(value: Value) -> float | None:
    """The one element of a known tensor where a double says it exactly, else None."""
    if not value.is_known:
        return None
    element = value.known.reshape(-1)[0]
    number = float(element)
    if math.isnan(number) or (not value.dtype.is_float and int(number) != int(element)):
        return None
    return number
