"""The ways in which a random ONNX graph grows: families of ops with their attributes.

Where a rounding could turn into a step (an argument of Floor, a comparison, an index), operands are values that are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuzzing.onnx_graph import Graph, Value, step

SMOOTH = (
    "Relu",
    "Sigmoid",
    "Tanh",
    "Softplus",
    "Softsign",
    "Erf",
    "Gelu",
    "Mish",
    "HardSwish",
    "Abs",
    "Neg",
    "Sin",
    "Cos",
    "Atan",
    "Identity",
    "Selu",
)
ANY_EXACT = ("Floor", "Ceil", "Round", "Sign")


@step(8)
def unary(g: Graph) -> None:
    if x := g.pick():
        op = g.rng.choice(SMOOTH)
        g.put(op, [x], exact=x.exact and op in ("Relu", "Abs", "Neg", "Identity"))


@step(3)
def unary_with_numbers(g: Graph) -> None:
    if x := g.pick():
        match g.rng.randrange(5):
            case 0:
                g.put("LeakyRelu", [x], exact=False, alpha=g.rng.choice((0.0, 0.01, 0.2, 1.5)))
            case 1:
                g.put("Elu", [x], exact=False, alpha=g.rng.choice((0.5, 1.0)))
            case 2:
                g.put("HardSigmoid", [x], exact=False, alpha=g.rng.uniform(0.1, 0.5), beta=0.4)
            case 3:
                low, high = sorted(g.rng.uniform(-2, 2) for _ in range(2))
                g.put("Clip", [x, g.array(np.float32(low)), g.rng.choice((None, g.array(np.float32(high))))])
            case _:
                slope = g.normal(
                    *g.rng.choice(
                        ((1,) if x.shape else (), x.shape[-1:], (*x.shape[1:2], *(1,) * max(0, len(x.shape) - 2)))
                    )
                )
                g.put("PRelu", [x, slope], exact=False)


@step(2)
def steps_of_exact_values(g: Graph) -> None:
    if x := g.pick(exact=True):
        g.put(g.rng.choice(ANY_EXACT), [x])


@step(8)
def binary(g: Graph) -> None:
    a = g.pick()
    if a is None:
        return
    op = g.rng.choice(("Add", "Add", "Sub", "Mul", "Mul", "Min", "Max", "Div"))
    if op == "Div":
        b = g.array(np.float32(g.rng.choice((0.5, 3.0, -7.0))))
    elif g.rng.random() < 0.5 and (other := g.pick(where=lambda v: _broadcast(a.shape, v.shape))):
        b = other
    else:
        keep = [n if g.rng.random() < 0.6 else 1 for n in a.shape]
        b = g.normal(*keep[g.rng.randrange(len(keep) + 1) :])
    g.put(
        op, [a, b] if g.rng.random() < 0.7 or op == "Div" else [b, a], exact=False if op not in ("Min", "Max") else None
    )


def _broadcast(a: Sequence[int], b: Sequence[int]) -> bool:
    return all(m == n or 1 in (m, n) for m, n in zip(a[::-1], b[::-1]))


@step(10)
def convolution(g: Graph) -> None:
    x = g.pick((3, 4, 4, 4, 5))
    if x is None:
        return
    r, spatial = g.rng, len(x.shape) - 2
    group = r.choice((1, 1, 1, x.shape[1], *[d for d in (2, 3, 4) if x.shape[1] % d == 0]))
    out = group * r.choice((1, 1, 2, 3, 8, 16)) if group > 1 else r.choice((1, 3, 8, 16, 17, 32))
    size = [r.choice((1, 1, 2, 3, 3, 5)) for _ in range(spatial)]
    attributes: dict[str, Any] = {
        "kernel_shape": size,
        "group": group,
        "strides": [r.choice((1, 1, 2, 3)) for _ in size],
    }
    if r.random() < 0.3:
        attributes["auto_pad"] = r.choice(("SAME_UPPER", "SAME_LOWER", "VALID"))
    else:
        attributes["dilations"] = [r.choice((1, 1, 1, 2)) for _ in size]
        attributes["pads"] = [r.choice((0, 1, 1, 2)) for _ in range(2 * spatial)]
    fan = max(1, x.shape[1] // group * int(np.prod(size)))
    weight = g.normal(out, x.shape[1] // group, *size, scale=fan**-0.5)
    made = g.put("Conv", [x, weight, *([g.normal(out)] if r.random() < 0.7 else [])], exact=False, **attributes)
    for op in r.choice(
        (
            (),
            ("Relu",),
            ("Sigmoid",),
            ("HardSwish",),
            ("Relu", "MaxPool"),
            ("Clip",),
            ("Tanh", "MaxPool"),
            ("Add",),
            ("Add", "Relu"),
        )
    ):
        if not made:
            return
        y = made[0]
        if op == "MaxPool":
            made = g.put(
                op, [y], exact=False, kernel_shape=[2] * spatial, strides=[2] * spatial, ceil_mode=r.randrange(2)
            )
        elif op == "Add":
            other = g.pick(where=_of_shape(y.shape)) or g.normal(1, y.shape[1], *(1,) * spatial)
            made = g.put(op, [y, other], exact=False)
        elif op == "Clip":
            made = g.put(op, [y, g.array(np.float32(0)), g.array(np.float32(6))], exact=False)
        else:
            made = g.put(op, [y], exact=False)


def _of_shape(shape: tuple[int, ...]) -> Callable[[Value], bool]:
    return lambda v: v.shape == shape


@step(2)
def transposed_convolution(g: Graph) -> None:
    x = g.pick((3, 4, 4))
    if x is None:
        return
    r, spatial = g.rng, len(x.shape) - 2
    group = r.choice((1, 1, *[d for d in (2, x.shape[1]) if x.shape[1] % d == 0]))
    stride = [r.choice((1, 2, 2, 3)) for _ in range(spatial)]
    size = [r.choice((1, 2, 3, 4)) for _ in stride]
    g.put("ConvTranspose", [x, g.normal(x.shape[1], r.choice((1, 3, 8)), *size, scale=0.3)], exact=False, strides=stride, group=group,
          pads=[r.choice((0, 0, 1)) for _ in range(2 * spatial)], output_padding=[r.randrange(s) if s > 1 else 0 for s in stride])  # fmt: skip


@step(5)
def pool(g: Graph) -> None:
    x = g.pick((3, 4, 4, 5))
    if x is None:
        return
    r, spatial = g.rng, len(x.shape) - 2
    op = r.choice(("MaxPool", "AveragePool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool"))
    if op.startswith("Global"):
        g.put(op, [x], exact=x.exact and op == "GlobalMaxPool")
        return
    size = [r.choice((2, 2, 3)) for _ in range(spatial)]
    attributes: dict[str, Any] = {
        "kernel_shape": size,
        "strides": [r.choice((1, 2, 2, 3)) for _ in size],
        "pads": [r.choice((0, 0, 1)) for _ in range(2 * spatial)],
    }
    if op != "LpPool":
        attributes["ceil_mode"] = r.randrange(2)
    if op == "AveragePool":
        attributes["count_include_pad"] = r.randrange(2)
    g.put(op, [x], exact=x.exact and op == "MaxPool", **attributes)


@step(4)
def normalisation(g: Graph) -> None:
    x = g.pick((2, 3, 4, 4, 5))
    if x is None:
        return
    c, r = x.shape[1], g.rng
    match r.randrange(5):
        case 0:
            positive = g.array(
                np.abs(np.random.default_rng(r.randrange(99)).standard_normal(c)).astype(np.float32) + 0.5
            )
            g.put("BatchNormalization", [x, g.normal(c), g.normal(c), g.normal(c), positive], exact=False)
        case 1 if len(x.shape) > 2 and int(np.prod(x.shape[2:])) > 3:
            g.put("InstanceNormalization", [x, g.normal(c), g.normal(c)], exact=False, epsilon=1e-2)
        case 2 | 1 if int(np.prod(x.shape[-1:])) > 3:
            axis = r.choice((-1, len(x.shape) - 1))
            g.put(
                "LayerNormalization",
                [x, g.normal(x.shape[-1]), *([g.normal(x.shape[-1])] if r.random() < 0.5 else [])],
                exact=False,
                axis=axis,
                epsilon=1e-2,
            )
        case 3 if len(x.shape) == 4:
            g.put("LRN", [x], exact=False, size=r.choice((1, 3, 5)), alpha=0.1)
        case _:
            g.put(
                r.choice(("Softmax", "Softmax", "LogSoftmax")),
                [x],
                exact=False,
                axis=r.randrange(-len(x.shape), len(x.shape)),
            )


@step(6)
def product(g: Graph) -> None:
    a = g.pick((2, 2, 3, 4))
    if a is None:
        return
    r, k = g.rng, a.shape[-1]
    n = r.choice((1, 3, 8, 16, 33))
    if len(a.shape) == 2 and r.random() < 0.5:
        swap = r.randrange(2)
        weight = g.normal(*((n, k) if swap else (k, n)), scale=k**-0.5)
        bias = r.choice((None, g.normal(n), g.normal(1, n)))
        g.put("Gemm", [a, weight, *([bias] if bias else [])], exact=False, transB=swap, alpha=r.choice((1.0, 0.5)))
    elif r.random() < 0.5 and (
        b := g.pick(where=lambda v: len(v.shape) >= 2 and v.shape[-2] == k and _broadcast(a.shape[:-2], v.shape[:-2]))
    ):
        scaled = g.put("Mul", [b, g.array(np.float32(k**-0.5))], exact=False)
        if scaled:
            g.put("MatMul", [a, scaled[0]], exact=False)
    else:
        batch = [d if r.random() < 0.5 else 1 for d in a.shape[:-2]][r.randrange(len(a.shape) - 1) :]
        g.put("MatMul", [a, g.normal(*batch, k, n, scale=k**-0.5)], exact=False)


@step(5)
def reduction(g: Graph) -> None:
    x = g.pick((1, 2, 3, 4, 5))
    if x is None:
        return
    r = g.rng
    axes = sorted(r.sample(range(len(x.shape)), r.randint(1, len(x.shape))))
    op = r.choice(
        (
            "ReduceMean",
            "ReduceSum",
            "ReduceMax",
            "ReduceMin",
            "ReduceL1",
            "ReduceL2",
            "ReduceSumSquare",
            "ReduceLogSumExp",
            "ReduceProd",
        )
    )
    if op == "ReduceProd" and int(np.prod([x.shape[a] for a in axes])) > 8:
        op = "ReduceSum"
    operands: list[Value | None] = [x, g.ints(*(a - r.choice((0, len(x.shape))) for a in axes))]
    g.put(op, operands, exact=x.exact and op in ("ReduceMax", "ReduceMin"), keepdims=r.randrange(2))


@step(8)
def move(g: Graph) -> None:
    """Transpose, reshape, flatten, squeeze, unsqueeze."""
    x = g.pick()
    if x is None:
        return
    r, rank = g.rng, len(x.shape)
    match r.randrange(5):
        case 0 if rank:
            g.put("Transpose", [x], perm=r.sample(range(rank), rank))
        case 0 | 1:
            dims = list(x.shape)
            r.shuffle(dims)
            if len(dims) > 1 and r.random() < 0.5:
                dims = [dims[0] * dims[1], *dims[2:]]
            if dims and r.random() < 0.5:
                dims[r.randrange(len(dims))] = -1
            g.put("Reshape", [x, g.ints(*dims)])
        case 2:
            g.put("Flatten", [x], axis=r.randint(0, rank))
        case 3 if 1 in x.shape:
            g.put("Squeeze", [x, g.ints(x.shape.index(1))])
        case _ if rank < 6:
            g.put("Unsqueeze", [x, g.ints(r.randint(-rank - 1, rank))])


@step(7)
def cut(g: Graph) -> None:
    """Slice, split, pad, gather, tile, expand."""
    x = g.pick((1, 2, 3, 4, 5))
    if x is None:
        return
    r, axis = g.rng, g.rng.randrange(len(x.shape))
    n = x.shape[axis]
    match r.randrange(6):
        case 0:
            pace = r.choice((1, 1, 2, -1, -2))
            start, end = r.randint(-n - 1, n + 1), r.choice((r.randint(-n, n), 2**31, -(2**31)))
            g.put("Slice", [x, g.ints(start), g.ints(end), g.ints(axis), g.ints(pace)])
        case 1 if n > 1:
            at = r.randrange(1, n)
            g.put("Split", [x, g.ints(at, n - at)], outputs=2, axis=axis)
        case 2 if r.random() < 0.9:
            mode = r.choice(("constant", "edge", "reflect"))
            pads = [min(r.choice((0, 0, 1, 2)), max(0, d - 1)) for d in (*x.shape, *x.shape)]
            fill = [g.array(np.float32(r.choice((0.0, -1.5))))] if mode == "constant" and r.random() < 0.5 else []
            g.put("Pad", [x, g.ints(*pads), *fill], mode=mode)
        case 3:
            shape = r.choice(((), (3,), (2, 2)))
            indices = np.random.default_rng(r.randrange(99)).integers(-n, n, shape)
            g.put("Gather", [x, g.array(indices.astype(np.int64))], axis=axis)
        case 4:
            g.put("Tile", [x, g.ints(*(r.choice((1, 1, 2)) for _ in x.shape))])
        case _:
            g.put(
                "Expand",
                [x, g.ints(*([2] * r.randrange(2) + [d if d > 1 or r.random() < 0.5 else 3 for d in x.shape]))],
            )


@step(5)
def join(g: Graph) -> None:
    x = g.pick((1, 2, 3, 4, 5))
    if x is None:
        return
    axis = g.rng.randrange(len(x.shape))
    others = [
        v
        for v in g.values
        if v.dtype == x.dtype
        and len(v.shape) == len(x.shape)
        and all(m == n or i == axis for i, (m, n) in enumerate(zip(v.shape, x.shape)))
    ]
    g.put("Concat", [x, *g.rng.choices(others, k=g.rng.randint(1, 3))], axis=axis - g.rng.choice((0, len(x.shape))))


@step(3)
def resampling(g: Graph) -> None:
    x = g.pick(4)
    if x is None:
        return
    r = g.rng
    match r.randrange(3):
        case 0:
            scales = g.array(np.array([1, 1, r.choice((0.5, 2, 2, 1.5)), r.choice((0.5, 2, 3))], np.float32))
            mode = r.choice(("nearest", "linear", "cubic"))
            g.put("Resize", [x, None, scales], exact=False, mode=mode, coordinate_transformation_mode=r.choice(("half_pixel", "asymmetric", "align_corners")), nearest_mode=r.choice(("round_prefer_floor", "floor", "ceil")) if mode == "nearest" else "round_prefer_floor")  # fmt: skip
        case 1 if x.shape[2] % 2 == x.shape[3] % 2 == 0:
            g.put("SpaceToDepth", [x], blocksize=2)
        case _ if x.shape[1] % 4 == 0:
            g.put("DepthToSpace", [x], blocksize=2, mode=r.choice(("DCR", "CRD")))


@step(3)
def choosing(g: Graph) -> None:
    """Add a choice that may turn on a rounding: exact operands only."""
    x = g.pick((1, 2, 3, 4), exact=True)
    if x is None:
        return
    r, axis = g.rng, g.rng.randrange(-len(x.shape), len(x.shape))
    match r.randrange(5):
        case 0:
            g.put(
                r.choice(("ArgMax", "ArgMin")),
                [x],
                axis=axis,
                keepdims=r.randrange(2),
                select_last_index=r.randrange(2),
            )
        case 1:
            g.put("TopK", [x, g.ints(r.randint(1, x.shape[axis]))], outputs=2, axis=axis, largest=r.randrange(2))
        case 2:
            if mask := g.put(
                r.choice(("Greater", "Less", "GreaterOrEqual")), [x, g.array(np.float32(r.uniform(-0.5, 0.5)))]
            ):
                other = g.pick(where=lambda v: v.shape == x.shape) or x
                g.put("Where", [mask[0], x, other])
        case 3:
            if whole := g.put("Cast", [x], to=r.choice((6, 7, 9))):
                g.put("Cast", [whole[0]], to=1)
        case _:
            g.put("CumSum", [x, g.array(np.int64(axis))], exact=False, exclusive=r.randrange(2), reverse=r.randrange(2))


@step(1)
def recurrence(g: Graph) -> None:
    x = g.pick(3, where=lambda v: v.shape[0] <= 12 and v.shape[2] <= 32)
    if x is None:
        return
    r, hidden = g.rng, g.rng.choice((1, 4, 9))
    op, gates = r.choice((("LSTM", 4), ("GRU", 3), ("RNN", 1)))
    direction = r.choice(("forward", "reverse", "bidirectional"))
    d = 2 if direction == "bidirectional" else 1
    operands = [
        x,
        g.normal(d, gates * hidden, x.shape[2], scale=0.3),
        g.normal(d, gates * hidden, hidden, scale=0.3),
        g.normal(d, 2 * gates * hidden, scale=0.1),
    ]
    g.put(op, operands, outputs=2, exact=False, hidden_size=hidden, direction=direction)
