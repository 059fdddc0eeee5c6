"""Steps of quantised networks, in the forms that exporters write: Q/DQ around ops of floats, QLinear operators, and products of integers
with scales of the call (DynamicQuantizeLinear).

At extremes, too: zero points at the ends of their type, scales of 1e-30, ranges that saturate, scales by channel, channels that
no vector holds, depthwise and grouped convolutions, and transposed ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .builder import Builder, Stuck, Value
from .spatial import window

LIMITS = {"ui8": (0, 255), "i8": (-128, 127), "i32": (-(1 << 31), (1 << 31) - 1)}
#: Channels of maps and rows, those that kernels of integers take among them.
CHANNELS = (1, 3, 4, 8, 8, 16, 16, 17, 18, 32, 48)
#: What tensors of a network are about as large as.
SIZES = (1.0, 1.0, 1.0, 1.0, 0.05, 30.0, 1e-6, 1e-15, 1e-30)


@dataclass(frozen=True)
class Scale:
    """The scale and the zero point of a tensor: numbers, or one for each element of an axis."""

    kind: str
    scale: np.ndarray
    zero: np.ndarray | None
    axis: int = 0

    @property
    def ends(self) -> tuple[float, float]:
        """The least and the largest number that it stands for."""
        low, high = LIMITS[self.kind]
        zero = np.zeros(()) if self.zero is None else self.zero.astype(np.float64)
        ends = [self.scale * (end - zero) for end in (low, high)]
        return float(min(e.min() for e in ends)), float(max(e.max() for e in ends))


def _zeros(b: Builder, kind: str, shape: tuple[int, ...], middle: bool) -> np.ndarray | None:
    """Zero points: in the middle of a type, at its ends, anywhere in it, or none (0)."""
    low, high = LIMITS[kind]
    how = b.rng.choice(("middle", "middle", "ends", "any", "none")) if not middle else "middle"
    if how == "none":
        return np.zeros(shape, np.int64) if b.chance(0.5) or kind == "i8" else None
    if how == "ends":
        return np.where(b.data.random(shape) < 0.5, low, high)
    return b.data.integers(low, high, shape, endpoint=True) if how == "any" else np.full(shape, (low + high + 1) // 2)


def _scale_of(b: Builder, x: Value) -> Scale:
    """A scale for the range of a tensor, which holds it, or is less, or more."""
    kind = b.rng.choice(("ui8", "ui8", "i8"))
    step = max(x.reach, 1e-34) / 127 * b.rng.choice((1, 1, 1, 2, 0.3, 0.01))
    if b.chance(0.25):
        step = 2.0 ** round(math.log2(step))
    return Scale(kind, np.asarray(step), _zeros(b, kind, (), b.chance(0.6)))


def _parts(b: Builder, scale: Scale) -> list[Value | None]:
    zero = None if scale.zero is None else b.const(scale.zero, scale.kind)
    return [b.const(scale.scale, "f32"), zero]


def _attrs(scale: Scale) -> dict[str, int]:
    return {"axis": scale.axis} if scale.scale.ndim else {}


def stored(b: Builder, x: Value, scale: Scale) -> Value:
    """QuantizeLinear."""
    return b.add("QuantizeLinear", [x, *_parts(b, scale)], scale.kind, x.shape, *LIMITS[scale.kind], **_attrs(scale))


def read(b: Builder, q: Value, scale: Scale) -> Value:
    """DequantizeLinear."""
    return b.add("DequantizeLinear", [q, *_parts(b, scale)], "f32", q.shape, *scale.ends, **_attrs(scale))


def both(b: Builder, x: Value) -> tuple[Value, Scale]:
    """A tensor that was quantised and read back, and how."""
    scale = _scale_of(b, x)
    return read(b, stored(b, x, scale), scale), scale


def _tensor(b: Builder, shape: Callable[[], Sequence[int]], rank: int) -> Value:
    """A float tensor of a rank that there is, or a new input of one of `SIZES`."""
    fits = [x for x in b.values if x.dtype == "f32" and x.rank == rank and 0 < x.size <= 3000]
    if fits and b.chance(0.75):
        return fits[max(b.rng.randrange(len(fits)), b.rng.randrange(len(fits)))]
    size = b.rng.choice(SIZES)
    return b.input("f32", shape(), -size * b.rng.choice((0, 1, 1)), size)


def _map(b: Builder) -> Value:
    def shape() -> Sequence[int]:
        side = b.rng.choice((1, 2, 3, 5, 6, 7, 9))
        return b.rng.choice((1, 1, 2)), b.rng.choice(CHANNELS), side, max(1, side + b.rng.choice((-1, 0, 0, 1)))

    return _tensor(b, shape, 4)


def _rows(b: Builder) -> Value:
    return _tensor(b, lambda: (b.rng.choice((1, 2, 3, 7)), b.rng.choice(CHANNELS)), 2)


def _weights(b: Builder, shape: Sequence[int], axis: int, kinds: Sequence[str] = ("i8", "i8", "ui8"),
             narrow: bool = False) -> tuple[Value, Scale]:  # fmt: skip
    """Weights as integers, and their scale: one, or one for each index of an axis. `narrow`: of 7 bits where they have
    a sign, so that ONNX Runtime's sums do not saturate (`fuzzing.quirks`).
    """
    kind = b.rng.choice(kinds)
    per = (shape[axis],) if b.opset >= 13 and b.chance(0.5) else ()
    size = b.rng.choice((1.0, 1.0, 1.0, 1e-6, 1e-30)) / 127 / math.sqrt(math.prod(shape) / shape[axis])
    scale = np.asarray(b.data.uniform(size, 3 * size, per))
    zero = _zeros(b, kind, per, b.chance(0.8))
    low, high = LIMITS[kind]
    if narrow and kind == "i8":
        low, high = -64, 63
    q = b.data.integers(low, high, shape, endpoint=True)
    if b.chance(0.1):
        q = np.where(b.data.random(shape) < 0.5, low, high)
    return b.const(q, kind), Scale(kind, scale, zero, axis)


def _bias(b: Builder, x: Scale, w: Scale, channels: int, reach: float) -> Value | None:
    """A bias as integers of the scale of the sums, or in floats, or none."""
    how = b.rng.choice(("integers", "floats", "none"))
    by = np.asarray(x.scale * w.scale, np.float32)
    if how == "none" or not by.all():
        return None
    if how == "floats":
        return b.const(b.data.uniform(-reach, reach, channels) / 8, "f32")
    q = b.const(b.data.integers(-3000, 3000, channels), "i32")
    scale = Scale("i32", by, None)
    ends = float(3000 * by.max())
    return b.add("DequantizeLinear", [q, b.const(by, "f32")], "f32", q.shape, -ends, ends, **_attrs(scale))


def _activated(b: Builder, y: Value) -> Value:
    """The activation that exporters put behind a product, or nothing."""
    op = b.rng.choice((None, None, "Relu", "Sigmoid", "LeakyRelu", "Clip"))
    if op == "Clip" and b.opset >= 11:
        ends = sorted((0.0, y.reach * b.rng.choice((0.1, 0.5))))
        return b.add("Clip", [y, *(b.const(e, "f32") for e in ends)], "f32", y.shape, *ends)
    if op in (None, "Clip"):
        return y
    ends = (0.0, 1.0) if op == "Sigmoid" else (y.lo if op == "LeakyRelu" else 0.0, y.hi)
    return b.add(op, [y], "f32", y.shape, *ends)


def _ended(b: Builder, y: Value) -> Value:
    """Behind its activation, a product is quantised again, and mostly read."""
    y = _activated(b, y)
    if b.chance(0.25):
        return y
    scale = _scale_of(b, y)
    q = stored(b, y, scale)
    return read(b, q, scale) if b.chance(0.85) else q


def _groups(b: Builder, channels: int) -> tuple[int, int]:
    """The groups of a convolution, and how many outputs each has."""
    group = b.rng.choice([1, 1, 1, channels, *(g for g in (2, 3, 4) if channels % g == 0)])
    return group, b.rng.choice((1, 2) if group == channels and group > 1 else (1, 4, 8, 16, 17, 24))


def _reach(x: Value, w: Scale, fan: int) -> float:
    """About what a product of `fan` terms may grow to: some deviations of a random sum."""
    return x.reach * max(map(abs, w.ends)) * math.sqrt(fan) * 2


def conv(b: Builder) -> Value:
    """Conv between DequantizeLinear and QuantizeLinear."""
    x, scale = both(b, _map(b))
    group, each = _groups(b, x.shape[1])
    kernel, attrs, size, _ = window(b, x, 3)
    shape = (group * each, x.shape[1] // group, *kernel)
    w, by = _weights(b, shape, 0)
    reach = _reach(x, by, math.prod(shape[1:]))
    operands = [x, read(b, w, by), _bias(b, scale, by, shape[0], reach)]
    y = b.add("Conv", operands, "f32", (x.shape[0], shape[0], *size), -reach, reach, group=group, **attrs)
    return _ended(b, y)


def conv_transpose(b: Builder) -> Value:
    """ConvTranspose between them: its scales by channel lie along axis 1 of the weights."""
    x, scale = both(b, _map(b))
    group = b.rng.choice([1, 1, *(g for g in (2, 4) if x.shape[1] % g == 0)])
    shape = (x.shape[1], b.rng.choice((1, 3, 8)), b.rng.randint(1, 3), b.rng.randint(1, 3))
    stride = b.rng.choice((1, 2, 3))
    size = [(d - 1) * stride + k for d, k in zip(x.shape[2:], shape[2:])]
    w, by = _weights(b, shape, 1)
    reach = _reach(x, by, math.prod(shape) // shape[1])
    outputs = group * shape[1]
    whole = Scale(by.kind, np.tile(by.scale, group), None) if by.scale.ndim else by
    operands = [x, read(b, w, by), _bias(b, scale, whole, outputs, reach)]
    y = b.add(
        "ConvTranspose", operands, "f32", (x.shape[0], outputs, *size), -reach, reach, group=group, strides=[stride] * 2
    )
    return _ended(b, y)


def product(b: Builder) -> Value:
    """MatMul, or Gemm with its weights as they are or transposed, between them."""
    x, scale = both(b, _rows(b))
    k, n = x.shape[1], b.rng.choice(CHANNELS)
    turned = b.chance(0.4)
    w, by = _weights(b, (n, k) if turned else (k, n), 0 if turned else 1)
    reach = _reach(x, by, k)
    w = read(b, w, by)
    ends = ("f32", (x.shape[0], n), -reach, reach)
    if turned or b.chance(0.4):
        bias = _bias(b, scale, by, n, reach)
        if bias is None and b.opset < 11:
            raise Stuck
        y = b.add("Gemm", [x, w, bias], *ends, transB=int(turned) if turned or b.chance(0.5) else None)
    else:
        y = b.add("MatMul", [x, w], *ends)
        if (bias := _bias(b, scale, by, n, reach)) is not None:
            y = b.add("Add", [y, bias], *ends)
    return _ended(b, y)


def qlinear_conv(b: Builder) -> Value:
    """QLinearConv, whose result is read, too, at times."""
    source = _map(b)
    scale = _scale_of(b, source)
    x = stored(b, source, scale)
    group, each = _groups(b, x.shape[1])
    kernel, attrs, size, _ = window(b, x, 3)
    shape = (group * each, x.shape[1] // group, *kernel)
    w, by = _weights(b, shape, 0, ("i8", "ui8") if scale.kind == "ui8" else ("i8",), narrow=True)
    by = Scale(by.kind, by.scale, np.full(by.scale.shape, 0 if by.kind == "i8" else 128))
    to, ends = _sums(b, scale, by, shape)
    bias = b.const(b.data.integers(-3000, 3000, shape[0]), "i32") if b.chance(0.5) else None
    operands = [x, *_whole(b, scale), w, *_whole(b, by), *_whole(b, to), bias]
    y = b.add("QLinearConv", operands, to.kind, (x.shape[0], shape[0], *size), *ends, group=group, **attrs)
    return read(b, y, to) if b.chance(0.7) else y


def qlinear_product(b: Builder) -> Value:
    """QLinearMatMul."""
    source = _rows(b)
    scale = _scale_of(b, source)
    x = stored(b, source, scale)
    shape = (x.shape[1], b.rng.choice(CHANNELS))
    w, by = _weights(b, shape, 1, ("i8", "ui8") if scale.kind == "ui8" else ("i8",), narrow=True)
    if by.scale.ndim:  # which not all runtimes take by channel
        by = Scale(by.kind, by.scale.mean(), np.zeros(()))
    to, ends = _sums(b, scale, by, shape[::-1])
    y = b.add(
        "QLinearMatMul",
        [x, *_whole(b, scale), w, *_whole(b, by), *_whole(b, to)],
        to.kind,
        (x.shape[0], shape[1]),
        *ends,
    )
    return read(b, y, to) if b.chance(0.7) else y


def _whole(b: Builder, scale: Scale) -> list[Value | None]:
    """Scale and zero point as operands that are both there."""
    zero = np.zeros(scale.scale.shape) if scale.zero is None else scale.zero
    return _parts(b, Scale(scale.kind, scale.scale, zero, scale.axis))


def _sums(b: Builder, x: Scale, w: Scale, shape: Sequence[int]) -> tuple[Scale, tuple[float, float]]:
    """A scale for sums of products, of the type of `x`: it is a normal float."""
    size = 127 * float(x.scale) * float(w.scale.mean()) * math.sqrt(math.prod(shape[1:])) * b.rng.choice((0.2, 1, 1, 2))
    if not size > 1e-36:
        raise Stuck
    return Scale(x.kind, np.asarray(size), _zeros(b, x.kind, (), b.chance(0.6))), LIMITS[x.kind]


def dynamic(b: Builder) -> Value:
    """DynamicQuantizeLinear, a product of integers, and its scales: as ONNX Runtime's dynamic quantisation writes it."""
    if b.opset < 11:
        raise Stuck
    is_conv = b.chance(0.4)
    source = _map(b) if is_conv else _rows(b)
    results = [("ui8", source.shape, 0, 255), ("f32", (), 0.0, source.reach / 100), ("ui8", (), 0, 255)]
    x, scale, zero = b.multi("DynamicQuantizeLinear", [source], results)
    if is_conv:
        kernel, attrs, size, _ = window(b, x, 3)
        shape: tuple[int, ...] = (b.rng.choice((1, 8, 16, 17)), x.shape[1], *kernel)
        op, dims = "ConvInteger", (x.shape[0], shape[0], *size)
    else:
        attrs, shape = {}, (x.shape[1], b.rng.choice(CHANNELS))
        op, dims = "MatMulInteger", (x.shape[0], shape[1])
    w, by = _weights(b, shape, 0 if is_conv else 1, narrow=True)
    number, at = b.const(by.scale.reshape(-1, 1, 1) if is_conv and by.scale.ndim else by.scale, "f32"), None
    if by.zero is not None and (not is_conv or by.zero.ndim == 0):
        at = b.const(by.zero if by.zero.ndim == 0 else by.zero.reshape(-1)[0], by.kind)
    sums = b.add(op, [x, w, zero, at], "i32", dims, -(2.0**19), 2.0**19, **attrs)
    whole = b.add("Cast", [sums], "f32", dims, -1.0, 1.0, to=1)
    scales = b.add("Mul", [scale, number], "f32", by.scale.reshape(number.shape).shape, 0, 1)
    reach = _reach(source, by, math.prod(shape) // dims[1])
    y = b.add("Mul", [whole, scales], "f32", dims, -reach, reach)
    return _ended(b, y)


def again(b: Builder) -> Value:
    """Q/DQ alone, by an axis at times, at times of what was just read with another scale."""
    x = b.pick("f32", (1, 4), lambda v: v.size > 0)
    if b.opset >= 13 and b.chance(0.3):
        axis = b.axis(x)
        scale = _scale_of(b, x)
        steps = np.asarray(scale.scale * b.data.uniform(0.5, 2, x.shape[axis]))
        scale = Scale(scale.kind, steps, _zeros(b, scale.kind, steps.shape, False), axis)
        return read(b, stored(b, x, scale), scale)
    return both(b, x)[0]


def chosen(b: Builder) -> Value:
    """An op that moves or chooses elements of a tensor that was quantised, which is quantised again with the same scale."""
    x, scale = both(b, _map(b))
    op = b.rng.choice(("Relu", "MaxPool", "Concat", "Transpose", "Reshape", "Slice"))
    if op == "MaxPool":
        kernel, attrs, size, pads = window(b, x, 2)
        if b.opset < 10 or any(p >= k for p, k in zip(pads, kernel * 2)):
            raise Stuck
        y = b.add("MaxPool", [x], "f32", (*x.shape[:2], *size), x.lo, x.hi, kernel_shape=kernel, **attrs)
    elif op == "Concat":
        other = b.input("f32", x.shape, x.lo, x.hi)
        how = scale if b.chance(0.6) else _scale_of(b, other)
        other = read(b, stored(b, other, how), how)
        y = b.add(
            "Concat",
            [x, other],
            "f32",
            (x.shape[0], 2 * x.shape[1], *x.shape[2:]),
            min(x.lo, other.lo),
            max(x.hi, other.hi),
            axis=1,
        )
    elif op == "Transpose":
        order = b.rng.sample(range(4), 4)
        y = b.add("Transpose", [x], "f32", [x.shape[i] for i in order], x.lo, x.hi, perm=order)
    elif op == "Reshape":
        dims = (x.shape[0], x.shape[1], x.shape[2] * x.shape[3])
        y = b.add("Reshape", [x, b.ints(dims)], "f32", dims, x.lo, x.hi)
    elif op == "Slice":
        if b.opset < 10 or x.shape[1] < 2:
            raise Stuck
        n = b.rng.randint(1, x.shape[1] - 1)
        y = b.add("Slice", [x, b.ints([0]), b.ints([n]), b.ints([1])], "f32", (x.shape[0], n, *x.shape[2:]), x.lo, x.hi)
    else:
        y = b.add("Relu", [x], "f32", x.shape, max(x.lo, 0.0), max(x.hi, 0.0))
    if b.chance(0.6):
        return read(b, stored(b, y, scale), scale)
    return _ended(b, y)


def sum_of_two(b: Builder) -> Value:
    """A residual: the sum of two tensors with scales of their own, which is quantised again."""
    x, _ = both(b, _map(b))
    other, _ = both(b, b.input("f32", x.shape, x.lo, x.hi))
    op = b.rng.choice(("Add", "Add", "Sub", "Mul"))
    reach = x.reach * other.reach if op == "Mul" else x.reach + other.reach
    return _ended(b, b.add(op, [x, other], "f32", x.shape, -reach, reach))


STEPS = {
    conv: 10,
    conv_transpose: 3,
    product: 6,
    qlinear_conv: 4,
    qlinear_product: 2,
    dynamic: 4,
    again: 2,
    chosen: 4,
    sum_of_two: 3,
}
