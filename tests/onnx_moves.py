"""What random ONNX graphs are made of: each move adds a node, or a few, to an `onnx_graphs.Builder`, or nothing. An attribute that
became an input takes the form of the graph's opset."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
from onnx import TensorProto, helper
from onnx_graphs import Builder

FLOATS = ("f4", "f4", "f4", "f8", "f2")
DTYPES = ("f4", "f4", "f8", "f2", "i8", "i4", "i2", "i1", "u1", "u2", "u4", "u8", "?")
UNARY = (
    "Abs Neg Exp Log Sqrt Reciprocal Floor Ceil Round Sin Cos Tan Asin Acos Atan Sinh Cosh Tanh Asinh Acosh Atanh Erf Sign Relu "
    "LeakyRelu Elu Selu Celu Gelu HardSigmoid HardSwish Mish Softplus Softsign ThresholdedRelu Shrink Sigmoid Not IsNaN IsInf "
    "BitwiseNot Identity Dropout"
).split()
ALPHA = ("LeakyRelu", "Elu", "Selu", "Celu", "HardSigmoid", "ThresholdedRelu")
BINARY = (
    "Add Add Add Sub Sub Mul Mul Mul Div Div Pow Mod Max Min Sum Mean And Or Xor BitwiseAnd BitwiseOr BitwiseXor BitShift Equal Less "
    "Greater LessOrEqual GreaterOrEqual PRelu"
).split()


def is_float(a: np.ndarray) -> bool:
    return a.dtype.kind == "f"


def ranked(*ranks: int) -> Callable[[np.ndarray], bool]:
    return lambda a: a.ndim in ranks and a.size > 0


def pictures(low: int = 3, high: int = 5) -> Callable[[np.ndarray], bool]:
    return lambda a: is_float(a) and low <= a.ndim <= high and a.size > 0 and max(a.shape[2:], default=0) > 1


def optional(b: Builder, p: float, **attributes) -> dict:
    """Each attribute with probability `p`."""
    return {k: v for k, v in attributes.items() if b.chance(p)}


def any_axis(b: Builder, ndim: int) -> int:
    """An axis, counted from either end."""
    return b.some(-ndim, ndim - 1) if b.opset >= 11 else b.some(0, ndim - 1)


# -- elementwise -----------------------------------------------------------------------------------------------------


def new(b: Builder) -> None:
    dims = [b.pick(0, 1, 1, 2, 3, 4, 5, 7, 8, 17) if b.chance(0.3) else b.some(1, 6) for _ in range(b.some(0, 5))]
    if prod(dims) < 3000:
        b.source(dims, b.pick(*DTYPES))


def unary(b: Builder) -> None:
    x, op = b.value(is_float if b.chance(0.8) else lambda a: True), b.pick(*UNARY)
    if x is None or (op == "Shrink" and not is_float(b.array(x))):  # is its bias one of integers?
        return
    attributes = {}
    if op in ALPHA:
        attributes = optional(b, 0.6, alpha=b.pick(0.25, 1.0, 1.5, 0.0 if op != "Celu" else 2.0))
    elif op == "Gelu":
        attributes = optional(b, 0.5, approximate="tanh")
    elif op == "IsInf":
        attributes = optional(b, 0.5, detect_negative=0)
    elif op == "Shrink":
        attributes = optional(b, 0.6, lambd=b.pick(0.0, 0.5, 1.0), bias=b.pick(0.0, 0.25))
    b.add(op, [x], **attributes)


def partner(b: Builder, x: np.ndarray) -> str:
    """A value that broadcasts with `x`."""
    found = b.value(lambda a: a.dtype == x.dtype and broadcasts(a.shape, x.shape))
    if found is not None and b.chance(0.6):
        return found
    dims = [1 if b.chance(0.3) else d for d in x.shape][b.pick(0, 0, 0, *range(x.ndim + 1)) :]
    if b.chance(0.2) and prod(x.shape) < 500 and len(dims) == x.ndim:
        dims = [b.some(1, 3) for _ in range(b.some(0, max(0, 5 - len(dims))))] + [b.some(2, 3) if a == 1 and b.chance(0.3) else d
                for d, a in zip(dims, x.shape[x.ndim - len(dims):])]  # fmt: skip
    return b.source(dims, x.dtype.str[1:] if x.dtype.kind != "b" else "?")


def broadcasts(a: tuple[int, ...], c: tuple[int, ...]) -> bool:
    return all(m == n or 1 in (m, n) for m, n in zip(a[::-1], c[::-1]))


def binary(b: Builder) -> None:
    x, op = b.value(), b.pick(*BINARY)
    assert x is not None
    y = partner(b, b.array(x))
    attributes = {}
    divisor = b.array(y)
    if op in ("Div", "Mod") and divisor.dtype.kind in "iu" and not divisor.all():
        return
    if op == "Mod":
        attributes["fmod"] = 1 if is_float(divisor) else b.pick(0, 1)
    if op == "BitShift":
        if divisor.dtype.kind != "u":
            return
        y = b.source(divisor.shape, divisor.dtype.str[1:])
        if b.array(y).max(initial=0) >= 8 * divisor.dtype.itemsize:
            return
        attributes["direction"] = b.pick("LEFT", "RIGHT")
    if op == "PRelu" and np.broadcast_shapes(b.array(x).shape, divisor.shape) != b.array(x).shape:
        return
    if op == "Pow" and divisor.dtype.kind in "iu" and (divisor.max(initial=0) > 3 or divisor.min(initial=0) < 0):
        return
    operands = [y, x] if b.chance(0.3) and op not in ("Div", "Mod", "BitShift", "Pow", "PRelu") else [x, y]
    if op in ("Max", "Min", "Sum", "Mean") and b.chance(0.4):
        operands.append(partner(b, b.array(x)))
    b.add(op, operands, **attributes)


def squared(b: Builder) -> None:
    if x := b.value(is_float):
        b.add("Pow", [x, b.const(b.pick(2, 3, 0.5, 1, 0, -1), b.pick("f4", "i8", b.array(x).dtype))])


def where(b: Builder) -> None:
    x = b.value()
    assert x is not None
    y = partner(b, b.array(x))
    like = b.array(b.pick(x, y))
    condition = b.value(lambda a: a.dtype == bool and broadcasts(a.shape, like.shape))
    if condition is None or b.chance(0.3):
        condition = (b.add("Less", [x, y]) or [b.source([d if b.chance(0.7) else 1 for d in like.shape], "?")])[0]
    b.add("Where", [condition, x, y])


def cast(b: Builder) -> None:
    x = b.value()
    assert x is not None
    a, to = b.array(x), np.dtype(b.pick(*DTYPES))
    if to.kind in "iu":
        info = np.iinfo(to)
        if a.dtype.kind == "f" and not (info.min <= float(a.min(initial=0)) and float(a.max(initial=0)) <= info.max):
            return  # undefined in ONNX
    if b.opset >= 15 and b.chance(0.15):
        b.add("CastLike", [x, b.const(np.zeros([1], to))])
    else:
        b.add("Cast", [x], to=int(helper.np_dtype_to_tensor_dtype(to)))


def clip(b: Builder) -> None:
    x = b.value(lambda a: a.dtype.kind in "fiu")
    if x is None:
        return
    dtype = b.array(x).dtype
    low, high = b.pick(0, 1, -1.5), b.pick(3, 2.5, 6)
    if dtype.kind != "f":
        low, high = int(max(low, 0)), int(high)
    if b.opset < 11:
        b.add("Clip", [x], **optional(b, 0.8, min=float(low), max=float(high)))
    else:
        b.add("Clip", [x, *(b.const(v, dtype) if b.chance(0.8) else "" for v in (low, high))])


# -- shapes ----------------------------------------------------------------------------------------------------------


def factored(b: Builder, n: int) -> list[int]:
    dims: list[int] = []
    for _ in range(b.pick(0, 1, 1, 2, 3, 4)):
        rest = n // prod(dims)
        dims.append(b.pick(*[d for d in range(1, rest + 1) if rest % d == 0]))
    return [*dims, n // prod(dims)] if n != 1 or b.chance(0.7) else dims


def reshape(b: Builder) -> None:
    x = b.value()
    assert x is not None
    a = b.array(x)
    if not a.size:
        b.add("Reshape", [x, b.decided([0] * a.ndim)])
        return
    dims: list[int] = factored(b, a.size)
    if dims and b.chance(0.4):
        dims[b.some(0, len(dims) - 1)] = -1
    for k, d in enumerate(dims):
        if k < a.ndim and d == a.shape[k] and b.chance(0.5):
            dims[k] = 0
    b.add("Reshape", [x, b.decided(dims)])


def reshape_by_shape(b: Builder) -> None:
    """Shape, Gather, Concat, Reshape: as exporters flatten."""
    x = b.value(lambda a: a.ndim >= 2 and a.size > 0)
    if x is None:
        return
    axis = b.some(0, b.array(x).ndim - 1)
    shape = b.add("Shape", [x], **(optional(b, 0.3, start=0) if b.opset >= 15 else {}))
    if b.chance(0.3) and shape:
        shape = b.add("Cast", [b.add("Cast", shape, to=TensorProto.FLOAT)[0]], to=TensorProto.INT64)
    if b.chance(0.5):
        one = b.add("Gather", [*shape, b.const(axis, "i8")], axis=0) if shape else []
        one = unsqueezed(b, one[0], [0]) if one else []
    else:
        one = sliced(b, shape[0], [axis], [axis + 1], [0]) if shape else []
    if one:
        parts = [*one, b.const([-1], "i8")] if b.chance(0.5) else [b.const([-1], "i8"), *one]
        if joined := b.add("Concat", parts, axis=0):
            b.add("Reshape", [x, *joined])


def flatten(b: Builder) -> None:
    x = b.value(lambda a: a.ndim >= 1)
    if x:
        n = b.array(x).ndim
        b.add("Flatten", [x], **optional(b, 0.8, axis=b.some(0 if b.opset < 11 else -n, n)))


def unsqueezed(b: Builder, x: str, axes: list[int]) -> list[str]:
    if b.opset < 13:
        return b.add("Unsqueeze", [x], axes=axes)
    return b.add("Unsqueeze", [x, b.const(axes, "i8")])


def unsqueeze(b: Builder) -> None:
    x = b.value(lambda a: a.ndim <= 4)
    if x:
        n = b.array(x).ndim + 1
        unsqueezed(b, x, [any_axis(b, n)]) if b.chance(0.7) else unsqueezed(b, x, [0, n])


def squeeze(b: Builder) -> None:
    x = b.value(lambda a: 1 in a.shape)
    if x is None:
        return
    ones = [k for k, d in enumerate(b.array(x).shape) if d == 1]
    axes = ones if b.chance(0.3) else [b.pick(*ones)]
    if b.opset >= 11 and b.chance(0.3):
        axes = [k - b.array(x).ndim for k in axes]
    if b.chance(0.2):
        b.add("Squeeze", [x])
    elif b.opset < 13:
        b.add("Squeeze", [x], axes=axes)
    else:
        b.add("Squeeze", [x, b.const(axes, "i8")])


def transpose(b: Builder) -> None:
    if x := b.value(lambda a: a.ndim >= 1):
        b.add("Transpose", [x], **optional(b, 0.85, perm=[int(k) for k in b.rng.permutation(b.array(x).ndim)]))


def expand(b: Builder) -> None:
    x = b.value(lambda a: a.size < 500)
    if x is None:
        return
    dims = [b.some(1, 4) if d == 1 else b.pick(1, d) for d in b.array(x).shape]
    dims = dims[b.pick(0, 0, 0, *range(len(dims) + 1)) :] if b.chance(0.5) else [b.some(1, 3), *dims]
    b.add("Expand", [x, b.decided(dims)])


def tile(b: Builder) -> None:
    if x := b.value(lambda a: a.size < 500 and a.ndim >= 1):
        b.add("Tile", [x, b.decided([b.pick(1, 1, 2, 3, 0 if b.chance(0.1) else 1) for _ in b.array(x).shape])])


def concat(b: Builder) -> None:
    x = b.value(lambda a: a.ndim >= 1)
    if x is None:
        return
    a = b.array(x)
    axis = b.some(0, a.ndim - 1)

    def fits(c: np.ndarray) -> bool:
        return (c.dtype == a.dtype and c.ndim == a.ndim
                and all(k == axis or m == n for k, (m, n) in enumerate(zip(a.shape, c.shape))))  # fmt: skip

    parts = [b.value(fits) or x for _ in range(b.some(0, 3))]
    b.add("Concat", [x, *parts], axis=axis - a.ndim if b.opset >= 11 and b.chance(0.3) else axis)


def split(b: Builder) -> None:
    x = b.value(lambda a: a.ndim >= 1)
    if x is None:
        return
    a = b.array(x)
    axis, count = b.some(0, a.ndim - 1), b.some(1, 3)
    cuts = sorted(b.some(0, a.shape[axis]) for _ in range(count - 1))
    sizes = np.diff([0, *cuts, a.shape[axis]]).tolist()
    attributes = {"axis": axis} if axis or b.chance(0.5) else {}
    if a.shape[axis] % count == 0 and b.chance(0.4):
        b.add("Split", [x], count, **attributes, **({"num_outputs": count} if b.opset >= 18 else {}))
    elif b.opset < 13:
        b.add("Split", [x], count, split=sizes, **attributes)
    else:
        b.add("Split", [x, b.decided(sizes)], count, **attributes)


def sliced(
    b: Builder, x: str, starts: list[int], ends: list[int], axes: list[int], steps: list[int] | None = None
) -> list[str]:
    if b.opset < 10:
        return [] if steps and set(steps) != {1} else b.add("Slice", [x], starts=starts, ends=ends, axes=axes)
    dtype = b.pick("i8", "i8", "i4")
    more = [b.const(steps, dtype)] if steps else []
    return b.add("Slice", [x, *(b.decided(v, dtype) for v in (starts, ends, axes)), *more])


def slice_(b: Builder) -> None:
    x = b.value(lambda a: a.ndim >= 1)
    if x is None:
        return
    a = b.array(x)
    axes = [int(k) for k in b.rng.permutation(a.ndim)[: b.some(1, a.ndim)]]
    starts, ends, steps = [], [], []
    for k in axes:
        step = b.pick(1, 1, 1, 2, 3, -1, -2) if b.opset >= 10 else 1
        low, high = sorted(b.some(-1, a.shape[k] + 1) for _ in range(2))
        starts.append(max(low, 0) if step > 0 else b.pick(high, -1))
        ends.append(b.pick(high, -1, 2**31 - 1) if step > 0 else b.pick(low, -(2**31) + 1))
        steps.append(step)
    if b.opset >= 10 and b.chance(0.3):
        axes = [k - a.ndim for k in axes]
    sliced(b, x, starts, ends, axes, steps if b.chance(0.8) else None)


def pad(b: Builder) -> None:
    x = b.value(lambda a: a.ndim >= 1 and a.size < 1500)
    if x is None:
        return
    a = b.array(x)
    mode = b.pick("constant", "constant", "reflect", "edge", "wrap" if b.opset >= 19 else "edge")
    if mode != "constant" and not a.size:
        return
    limit = [max(d - 1, 0) if mode == "reflect" else min(d, 3) if mode == "wrap" else 3 for d in a.shape] * 2
    pads = [b.pick(0, 0, min(1, m), min(2, m), -1 if mode == "constant" and b.chance(0.3) else 0) for m in limit]
    if any(d + p + q < 1 for d, p, q in zip(a.shape, pads, pads[a.ndim :])):
        return
    if b.opset < 11:
        b.add("Pad", [x], pads=pads, mode=mode, **(optional(b, 0.5, value=1.5) if mode == "constant" else {}))
        return
    value = [b.const(b.pick(0, 1, 2), a.dtype)] if mode == "constant" and b.chance(0.6) else []
    if b.opset >= 18 and b.chance(0.3):
        axis = b.some(0, a.ndim - 1)
        b.add(
            "Pad",
            [x, b.decided([pads[axis], pads[axis + a.ndim]]), *(value or [""]), b.const([axis - a.ndim], "i8")],
            mode=mode,
        )
    else:
        b.add("Pad", [x, b.decided(pads), *value], mode=mode)


def depth(b: Builder) -> None:
    if x := b.value(lambda a: a.ndim == 4 and a.size > 0):
        _, c, h, w = b.array(x).shape
        if c % 4 == 0 and b.chance(0.7):
            b.add("DepthToSpace", [x], blocksize=2, **(optional(b, 0.5, mode="CRD") if b.opset >= 11 else {}))
        elif h % 2 == 0 and w % 2 == 0:
            b.add("SpaceToDepth", [x], blocksize=2)


def made(b: Builder) -> None:
    """Range, ConstantOfShape, EyeLike, OneHot, Size."""
    op = b.pick("Range", "ConstantOfShape", "EyeLike", "OneHot", "Size")
    x = b.value()
    assert x is not None
    if op == "Range":
        dtype = b.pick("f4", "i8", "i4", "f8")
        start, limit, step = b.some(-2, 2), b.some(3, 12), b.pick(1, 2, 0.5 if dtype[0] == "f" else 3)
        backwards = b.chance(0.2)
        ends = (limit, start, -step) if backwards else (start, limit, step)
        b.add("Range", [b.const(v, dtype) for v in ends])
    elif op == "ConstantOfShape":
        shape = b.add("Shape", [x])
        value = helper.make_tensor(
            "v", b.pick(TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.INT32), [1], [b.pick(0, 1)]
        )
        if shape:
            b.add("ConstantOfShape", shape, **optional(b, 0.8, value=value))
    elif op == "EyeLike" and (m := b.value(ranked(2))):
        b.add(
            "EyeLike",
            [m],
            k=b.some(-2, 2),
            **optional(b, 0.5, dtype=int(b.pick(TensorProto.FLOAT, TensorProto.INT64, TensorProto.DOUBLE))),
        )
    elif op == "OneHot" and (i := b.value(lambda a: a.dtype == np.int64 and a.size < 200 and a.ndim < 4)):
        values = b.const([0, b.pick(1, 3)], b.pick("f4", "i8"))
        b.add("OneHot", [i, b.const(b.some(1, 6), "i8"), values], **optional(b, 0.5, axis=b.some(0, b.array(i).ndim)))
    elif op == "Size":
        b.add("Size", [x])


def trilu(b: Builder) -> None:
    if x := b.value(lambda a: a.ndim >= 2):
        b.add(
            "Trilu",
            [x, *([b.const(b.some(-2, 2), "i8")] if b.chance(0.5) else [])],
            **optional(b, 0.6, upper=b.pick(0, 1)),
        )


def crop(b: Builder) -> None:
    if x := b.value(lambda a: a.ndim >= 1 and a.size < 800):
        b.add("CenterCropPad", [x, b.decided([max(1, d + b.some(-2, 2)) for d in b.array(x).shape])])


def reverse(b: Builder) -> None:
    if x := b.value(lambda a: a.ndim >= 2 and a.size > 0):
        time, batch = b.pick((0, 1), (1, 0))
        dims = b.array(x).shape
        lens = b.const(b.rng.integers(1, dims[time] + 1, dims[batch]), "i8")
        b.add("ReverseSequence", [x, lens], batch_axis=batch, time_axis=time)


# -- reductions and indices ------------------------------------------------------------------------------------------


def reduce(b: Builder) -> None:
    x = b.value(lambda a: a.size > 0)
    op = b.pick("Sum", "Sum", "Mean", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")
    if x is None:
        return
    n = b.array(x).ndim
    if b.array(x).dtype.kind in "iu" and op not in ("Max", "Min") and np.abs(b.array(x).astype(float)).max() > 100:
        return  # whether a sum wraps before it is divided is nobody's contract
    if b.array(x).dtype.kind in "iu" and op in ("L2", "LogSum", "LogSumExp", "Prod"):
        return  # nor is a logarithm of integers
    axes = sorted(int(k) for k in b.rng.permutation(n)[: b.some(0, n)])
    if b.opset >= 11 and b.chance(0.3):
        axes = [k - n for k in axes]
    attributes = optional(b, 0.6, keepdims=b.pick(0, 1))
    if b.opset < (13 if op == "Sum" else 18):
        b.add(f"Reduce{op}", [x], **attributes, **({"axes": axes} if axes else {}))
        return
    attributes |= optional(b, 0.3, noop_with_empty_axes=b.pick(0, 1))
    b.add(f"Reduce{op}", [x, *([b.const(axes, "i8")] if axes or b.chance(0.3) else [])], **attributes)


def arg(b: Builder) -> None:
    if x := b.value(lambda a: a.ndim >= 1 and a.size > 0 and a.dtype.kind != "b"):
        axis = any_axis(b, b.array(x).ndim)
        last = optional(b, 0.3, select_last_index=1) if b.opset >= 12 else {}
        b.add(b.pick("ArgMax", "ArgMin"), [x], axis=axis, **last, **optional(b, 0.6, keepdims=b.pick(0, 1)))


def topk(b: Builder) -> None:
    x = b.value(lambda a: a.ndim >= 1 and a.size > 0 and a.dtype.kind in "fi")
    if x is None:
        return
    a = b.array(x)
    axis = any_axis(b, a.ndim)
    k = b.some(1, a.shape[axis])
    if b.opset < 10:
        b.add("TopK", [x], 2, k=k, axis=axis)
    else:
        largest = optional(b, 0.5, largest=b.pick(0, 1)) if b.opset >= 11 else {}
        b.add("TopK", [x, b.decided([k])], 2, axis=axis, **largest)


def cumulate(b: Builder) -> None:
    if x := b.value(lambda a: a.ndim >= 1 and a.dtype.kind in "fi"):
        axis = b.const(b.some(-b.array(x).ndim, b.array(x).ndim - 1), b.pick("i4", "i8"))
        b.add("CumSum", [x, axis], **optional(b, 0.4, exclusive=1), **optional(b, 0.4, reverse=1))


def indices(b: Builder, dims, below: int, dtype: str | None = None) -> str:
    low = -below if b.opset >= 11 and b.chance(0.5) else 0
    array = b.rng.integers(low, below, dims).astype(dtype or b.pick("i8", "i4"))
    return b.const(array) if b.chance(0.6) else b.input(array)


def gather(b: Builder) -> None:
    x = b.value(lambda a: a.ndim >= 1 and a.size > 0)
    if x is None:
        return
    a = b.array(x)
    axis = b.some(0, a.ndim - 1)
    which = b.pick("Gather", "Gather", "GatherElements", "GatherND")
    if which == "Gather":
        b.add(which, [x, indices(b, [b.some(1, 4) for _ in range(b.pick(0, 1, 1, 2))], a.shape[axis])], axis=axis)
    elif which == "GatherElements":
        dims = [b.some(1, d + 1) if k == axis else b.some(1, d) for k, d in enumerate(a.shape)]
        b.add(which, [x, indices(b, dims, a.shape[axis])], axis=axis)
    else:
        batch = b.some(0, min(1, a.ndim - 1)) if b.opset >= 12 else 0
        last = b.some(1, a.ndim - batch)
        dims = [*a.shape[:batch], *(b.some(1, 3) for _ in range(b.some(0, 2))), last]
        which_index = indices(b, dims, min(a.shape[batch : batch + last]), "i8")
        b.add("GatherND", [x, which_index], **({"batch_dims": batch} if batch else {}))


def scatter(b: Builder) -> None:
    x = b.value(lambda a: a.ndim >= 1 and a.size > 0)
    if x is None:
        return
    a = b.array(x)
    axis, dtype = b.some(0, a.ndim - 1), a.dtype.str[1:] if a.dtype.kind != "b" else "?"
    reductions = ("none", "add", "mul") + (("max", "min") if b.opset >= 18 else ())
    how = {"reduction": b.pick(*reductions)} if b.opset >= 16 and b.chance(0.6) else {}
    repeated = how.get("reduction", "none") != "none"
    if b.chance(0.6):
        dims = list(a.shape)
        count = b.some(1, a.shape[axis])
        dims[axis] = count
        order = b.rng.integers(0, a.shape[axis], count) if repeated else b.rng.permutation(a.shape[axis])[:count]
        index = np.broadcast_to(order.reshape([-1 if k == axis else 1 for k in range(a.ndim)]), dims).astype(
            b.pick("i8", "i4")
        )
        op = "ScatterElements" if b.opset >= 11 else "Scatter"
        b.add(op, [x, b.const(index), b.source(dims, dtype)], axis=axis, **how)
        return
    last = b.some(1, a.ndim)
    cells = list(np.ndindex(*a.shape[:last]))
    chosen = [cells[k] for k in (b.rng.integers(0, len(cells), 3) if repeated else b.rng.permutation(len(cells))[:3])]
    updates = b.source([len(chosen), *a.shape[last:]], dtype)
    b.add("ScatterND", [x, b.const(chosen, "i8"), updates], **how)


def selected(b: Builder) -> None:
    """NonZero and Compress of constants."""
    if b.chance(0.5) and (x := b.value(lambda a: a.ndim >= 1 and 0 < a.size < 200)):
        b.add("NonZero", [b.const(b.contents(b.array(x).shape, "?"))])
    elif x := b.value(lambda a: a.ndim >= 1 and a.size > 0):
        axis = b.some(0, b.array(x).ndim - 1)
        b.add("Compress", [x, b.const(b.contents([b.array(x).shape[axis]], "?"))], axis=axis)


# -- networks --------------------------------------------------------------------------------------------------------


def picture(b: Builder) -> str:
    """A picture of 1 to 3 spatial axes."""
    if (x := b.value(pictures())) is not None and b.chance(0.8):
        return x
    spatial = b.pick(1, 2, 2, 2, 3)
    sizes = [b.some(3, 9 if spatial < 3 else 5) for _ in range(spatial)]
    if spatial == 2 and b.chance(0.3):
        sizes = [b.some(6, 19) for _ in sizes]
    return b.source(
        [b.pick(1, 1, 2), b.pick(1, 2, 3, 4, 6, 8, 16, 20), *sizes], b.pick("f4", "f4", "f4", "f4", "f8", "f2")
    )


def window(b: Builder, sizes: tuple[int, ...], kernel: list[int]) -> dict:
    n = len(sizes)
    attributes: dict = optional(b, 0.5, strides=[b.pick(1, 1, 2, 3) for _ in range(n)])
    if b.chance(0.2):
        attributes["auto_pad"] = b.pick("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET")
    elif b.chance(0.6):
        attributes["pads"] = [b.some(0, max(0, k - 1)) for k in kernel * 2]
    return attributes


def fits(sizes: tuple[int, ...], kernel: list[int], attributes: dict) -> bool:
    """Whether the window has a position: otherwise it is refused, where ONNX Runtime makes nothing."""
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, attributes.get("dilations", [1] * len(sizes)))]
    pads = attributes.get("pads", [0] * 2 * len(sizes))
    return all(r <= s + p + q for r, s, p, q in zip(reach, sizes, pads, pads[len(sizes) :]))


def conv(b: Builder) -> None:
    x = picture(b)
    a = b.array(x)
    c, sizes, dtype = a.shape[1], a.shape[2:], a.dtype.str[1:]
    group = b.pick(1, 1, *[d for d in range(1, c + 1) if c % d == 0])
    kernel = [b.some(1, min(3, s)) for s in sizes]
    attributes = window(b, sizes, kernel) | optional(b, 0.7, kernel_shape=kernel)
    if b.chance(0.2) and "auto_pad" not in attributes:
        attributes["dilations"] = [b.pick(1, 2) for _ in sizes]
    if group > 1 or b.chance(0.2):
        attributes["group"] = group
    if b.chance(0.7):
        if not fits(sizes, kernel, attributes):
            return
        out = group * b.pick(1, 2, 3, 4, 8, 17 if group == 1 else 5)
        weight, bias = [out, c // group, *kernel], out
        op = "Conv"
    else:
        out = b.some(1, 4)
        if "SAME" in attributes.get("auto_pad", "") and any(
            k < s for k, s in zip(kernel, attributes.get("strides", ()))
        ):
            return  # ONNX Runtime makes less than ONNX says: it cannot pad by less than nothing
        weight, bias, op = [c, out, *kernel], group * out, "ConvTranspose"
        if "strides" in attributes and b.chance(0.4):
            attributes["output_padding"] = [b.some(0, s - 1) for s in attributes["strides"]]
    scale = 1 / np.sqrt(c // group * prod(kernel))
    w = (
        b.const((b.contents(weight, dtype) * scale).astype(dtype))
        if b.chance(0.9)
        else b.input(b.contents(weight, dtype))
    )
    found = b.add(op, [x, w, *([b.const(b.contents([bias], dtype))] if b.chance(0.6) else [])], **attributes)
    if found and b.chance(0.4):
        found = normed(b, found[0])
    if (
        found
        and b.chance(0.3)
        and (like := b.value(lambda c: c.dtype == a.dtype and c.shape == b.array(found[0]).shape))
    ):
        found = b.add("Add", [like, *found] if b.chance(0.5) else [*found, like])
    if found and b.chance(0.6):
        b.add(b.pick("Relu", "Relu", "Sigmoid", "LeakyRelu", "HardSwish", "Tanh"), found)


def pool(b: Builder) -> None:
    x = picture(b)
    sizes = b.array(x).shape[2:]
    op = b.pick(
        "MaxPool",
        "MaxPool",
        "AveragePool",
        "AveragePool",
        "LpPool",
        "GlobalAveragePool",
        "GlobalMaxPool",
        "GlobalLpPool",
    )
    if op.startswith("Global"):
        b.add(op, [x])
        return
    kernel = [b.some(1, min(3, s)) for s in sizes]
    attributes = window(b, sizes, kernel) | {"kernel_shape": kernel}
    if b.opset >= (10 if op != "LpPool" else 18) and "auto_pad" not in attributes:
        attributes |= optional(b, 0.3, ceil_mode=1)
    if op == "AveragePool":
        attributes |= optional(b, 0.3, count_include_pad=1)
    if "auto_pad" not in attributes and b.opset >= {"MaxPool": 10, "AveragePool": 19, "LpPool": 18}[op]:
        attributes |= optional(b, 0.2, dilations=[b.pick(1, 2) for _ in sizes])
    if not fits(sizes, kernel, attributes):
        return
    b.add(op, [x], 2 if op == "MaxPool" and b.chance(0.3) else 1, **attributes)


def matmul(b: Builder) -> None:
    x = b.value(lambda a: a.ndim >= 1 and a.dtype.kind in "fiu" and a.size > 0)
    if x is None:
        return
    a = b.array(x)
    n = b.pick(1, 2, 3, 5, 8, 9, 16, 33)
    dims = b.pick([a.shape[-1], n], [a.shape[-1], n], [a.shape[-1]], [*a.shape[:-2], a.shape[-1], n])
    if len(dims) > 2 and b.chance(0.5):
        dims[0] = 1
    y = b.value(
        lambda c: (
            c.dtype == a.dtype and c.ndim >= 2 and c.shape[-2] == a.shape[-1] and broadcasts(c.shape[:-2], a.shape[:-2])
        )
    )
    if y is None or b.chance(0.6):
        y = b.source(dims, a.dtype.str[1:])
    b.add("MatMul", [x, y])


def gemm(b: Builder) -> None:
    x = b.value(lambda a: is_float(a) and a.ndim == 2 and a.size > 0)
    if x is None:
        return
    a, dtype = b.array(x), b.array(x).dtype.str[1:]
    ta, tb, n = b.pick(0, 1), b.pick(0, 1), b.some(1, 12)
    m, k = a.shape[::-1] if ta else a.shape
    y = b.source([n, k] if tb else [k, n], dtype)
    c = [b.source(b.pick([n], [m, n], [m, 1], [1, n], [1], []), dtype)] if b.opset < 11 or b.chance(0.7) else []
    b.add("Gemm", [x, y, *c], transA=ta, transB=tb, **optional(b, 0.3, alpha=0.5), **optional(b, 0.3, beta=2.0))


def einsum(b: Builder) -> None:
    x = b.value(lambda a: is_float(a) and a.ndim in (2, 3) and a.size > 0)
    if x is None:
        return
    a = b.array(x)
    if a.ndim == 2:
        equation, dims = b.pick(
            ("ij,jk->ik", [a.shape[1], 3]), ("ij,kj", [4, a.shape[1]]), ("ij,ij->i", list(a.shape)), ("ij->ji", None)
        )
    else:
        equation, dims = b.pick(
            ("bij,bjk->bik", [a.shape[0], a.shape[2], 3]), ("...ij,jk->...ik", [a.shape[2], 2]), ("bij->bj", None)
        )
    b.add("Einsum", [x, *([b.source(dims, a.dtype.str[1:])] if dims else [])], equation=equation)


def normed(b: Builder, x: str) -> list[str]:
    """BatchNormalization with positive variances."""
    c, dtype = b.array(x).shape[1], b.array(x).dtype.str[1:]
    scale, shift, mean = (b.const(b.contents([c], dtype)) for _ in range(3))
    variance = b.const((b.rng.random(c) + 0.5).astype(dtype))
    return b.add("BatchNormalization", [x, scale, shift, mean, variance], **optional(b, 0.5, epsilon=1e-3))


def norm(b: Builder) -> None:
    x = b.value(lambda a: is_float(a) and a.ndim >= 1 and a.size > 1)
    if x is None:
        return
    a, dtype = b.array(x), b.array(x).dtype.str[1:]
    op = b.pick("Softmax", "Softmax", "LogSoftmax", "Hardmax", "LayerNormalization", "InstanceNormalization", "GroupNormalization",
                "LpNormalization", "LRN", "MeanVarianceNormalization", "BatchNormalization")  # fmt: skip
    axis = any_axis(b, a.ndim)
    if op in ("Softmax", "LogSoftmax", "Hardmax"):
        b.add(op, [x], **optional(b, 0.7, axis=axis))
    elif op == "LayerNormalization":
        dims = a.shape[axis:]
        b.add(op, [x, b.source(dims, dtype), *([b.source(dims, dtype)] if b.chance(0.6) else [])], axis=axis)
    elif op == "LpNormalization":
        b.add(op, [x], axis=axis, p=b.pick(1, 2))
    elif op == "MeanVarianceNormalization":
        if a.ndim == 4:
            b.add(op, [x])
    elif a.ndim < 3:
        return
    elif op == "BatchNormalization":
        normed(b, x)
    elif op == "LRN":
        b.add(op, [x], size=b.pick(1, 3, 5), alpha=0.01, beta=b.pick(0.5, 0.75))
    elif op == "GroupNormalization":
        groups = b.pick(*[d for d in range(1, a.shape[1] + 1) if a.shape[1] % d == 0])
        dims = [a.shape[1] if b.opset >= 21 else groups]
        b.add(op, [x, b.source(dims, dtype), b.source(dims, dtype)], num_groups=groups)
    else:
        if prod(a.shape[2:]) > 1:  # of one element, ONNX Runtime gives what its rounding left
            b.add(op, [x, b.source([a.shape[1]], dtype), b.source([a.shape[1]], dtype)])


def resize(b: Builder) -> None:
    x = picture(b)
    a = b.array(x)
    mode = b.pick("nearest", "nearest", "linear", "cubic" if a.ndim == 4 and b.opset >= 11 else "nearest")
    if mode == "linear" and a.ndim > 4:
        return
    # A length that is no whole number is cut, and every implementation has its own idea of what that means for the scale.
    scales = [
        1.0,
        1.0,
        *(b.pick(1.0, 2.0, 3.0, 0.5 if d % 2 == 0 else 1.0, 1.5 if d % 2 == 0 else 1.0) for d in a.shape[2:]),
    ]
    if b.opset == 9:
        b.add("Upsample", [x, b.const([max(s, 1) for s in scales], "f4")], mode=mode)
    elif b.opset == 10:
        b.add("Resize", [x, b.const(scales, "f4")], mode=mode)
    else:
        how = optional(
            b,
            0.7,
            coordinate_transformation_mode=b.pick("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"),
        )
        if mode == "nearest":
            how |= optional(b, 0.6, nearest_mode=b.pick("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"))
        if b.opset >= 18:
            how |= optional(b, 0.2, antialias=1) if mode != "nearest" else {}
        roi = "" if b.opset >= 13 else b.const(np.zeros(0), "f4")
        if b.chance(0.6):
            b.add("Resize", [x, roi, b.const(scales, "f4")], mode=mode, **how)
        else:
            none = "" if b.opset >= 13 else b.const(np.zeros(0), "f4")
            b.add(
                "Resize",
                [x, roi, none, b.const([*a.shape[:2], *(b.some(2, 8) for _ in a.shape[2:])], "i8")],
                mode=mode,
                **how,
            )


def recurrent(b: Builder) -> None:
    x = b.value(lambda a: is_float(a) and a.ndim == 3 and a.size > 0)
    if x is None or {"LSTM", "GRU", "RNN"} & {n.op_type for n in b.graph.nodes}:
        return
    steps, batch, width = b.array(x).shape
    if b.chance(0.3) and steps > 6:
        return
    dtype, h, op = b.array(x).dtype.str[1:], b.some(1, 5), b.pick("LSTM", "GRU", "RNN")
    direction = b.pick("forward", "reverse", "bidirectional")
    count, gates = 1 + (direction == "bidirectional"), {"LSTM": 4, "GRU": 3, "RNN": 1}[op]

    def small(*dims: int) -> str:
        return b.const((b.rng.standard_normal(dims) * 0.4).astype(dtype))

    operands = [x, small(count, gates * h, width), small(count, gates * h, h)]
    operands.append(small(count, 2 * gates * h) if b.chance(0.6) else "")
    operands.append(b.const(b.rng.integers(1, steps + 1, batch), "i4") if b.chance(0.3) else "")
    operands.append(small(count, batch, h) if b.chance(0.4) else "")
    if op == "LSTM":
        operands.append(small(count, batch, h) if b.chance(0.4) else "")
        operands.append(small(count, 3 * h) if b.chance(0.3) else "")
    attributes = {"linear_before_reset": 1} if op == "GRU" and b.chance(0.5) else {}
    b.add(op, operands, 3 if op == "LSTM" else 2, hidden_size=h, direction=direction, **attributes)


def quantize(b: Builder) -> None:
    """QuantizeLinear, DequantizeLinear, and products of what they give."""
    x = b.value(lambda a: a.dtype == np.float32 and a.size > 0)
    if x is None:
        return
    a = b.array(x)
    zero = b.pick("u1", "u1", "i1")
    axis = b.some(0, a.ndim - 1) if b.opset >= 13 and a.ndim and b.chance(0.3) else None
    dims = [] if axis is None else [a.shape[axis]]
    scale = b.const((2.0 ** b.rng.integers(-5, 0, dims)) * (1 if b.chance(0.5) else 1.1), "f4")
    point = b.const(b.rng.integers(0, 100, dims), zero)
    attributes = {} if axis is None else {"axis": axis}
    q = b.add("QuantizeLinear", [x, scale, point], **attributes)
    if q and b.chance(0.6):
        b.add("DequantizeLinear", [*q, scale, point], **attributes)
    if q and a.ndim >= 2 and b.chance(0.4):
        other = b.const(
            b.rng.integers(0, 100, [a.shape[-1], b.some(1, 5)]), b.pick("u1", "i1") if zero == "u1" else "i1"
        )
        if b.chance(0.5):
            b.add("MatMulInteger", [*q, other, b.const(3, zero), b.const(5, b.array(other).dtype)])
        elif axis is None:
            b.add("QLinearMatMul", [*q, scale, point, other, b.const(0.125, "f4"), b.const(7, b.array(other).dtype),
                                    b.const(1.5, "f4"), b.const(11, zero)])  # fmt: skip
    if q and a.ndim == 4 and zero == "u1" and b.chance(0.5):
        w = b.const(b.rng.integers(0, 100, [3, a.shape[1], 1, min(2, a.shape[3])]), "u1")
        b.add("ConvInteger", [*q, w, b.const(3, "u1"), b.const(40, "u1")])


def dynamic(b: Builder) -> None:
    if x := b.value(lambda a: a.dtype == np.float32 and a.size > 0):
        b.add("DynamicQuantizeLinear", [x], 3)


def sample(b: Builder) -> None:
    if x := b.value(lambda a: a.dtype == np.float32 and a.ndim == 4 and a.size > 0):
        n = b.array(x).shape[0]
        grid = b.source([n, b.some(1, 4), b.some(1, 4), 2], "f4")
        how = optional(b, 0.5, align_corners=1) | optional(b, 0.6, padding_mode=b.pick("border", "reflection"))
        b.add(
            "GridSample",
            [x, grid],
            **how,
            **optional(b, 0.5, mode=b.pick("nearest", "bilinear" if b.opset < 20 else "linear")),
        )


MOVES = (
    [unary] * 6 + [binary] * 8 + [squared] + [where] * 2 + [cast] * 3 + [clip] + [new] * 3
    + [reshape] * 3 + [reshape_by_shape] * 3 + [flatten] + [unsqueeze] * 2 + [squeeze] * 2 + [transpose] * 3 + [expand] * 2 + [tile]
    + [concat] * 3 + [split] * 2 + [slice_] * 3 + [pad] * 2 + [depth, made, made, trilu, crop, reverse]
    + [reduce] * 4 + [arg, topk, topk, cumulate] + [gather] * 3 + [scatter] * 2 + [selected]
    + [conv] * 5 + [pool] * 3 + [matmul] * 4 + [gemm] * 2 + [einsum] + [norm] * 4 + [resize] * 2 + [recurrent] + [quantize] * 2
    + [dynamic, sample]
)  # fmt: skip
