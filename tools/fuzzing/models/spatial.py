"""Steps on maps: convolutions, pools, resizes, norms by channel, sampling."""

from __future__ import annotations

import math

import numpy as np

from .builder import Builder, Stuck, Value


def maps(b: Builder, rank: int | None = None, dtypes=("f32",)) -> Value:
    """A value [N, C, D1 ...] of 1 to 3 spatial dims."""
    rank = rank or b.rng.choices((3, 4, 5), (2, 9, 1))[0]
    fits = [x for x in b.values if x.dtype in dtypes and x.rank == rank and 0 < x.size <= 1500]
    if fits and b.chance(0.7):
        return b.rng.choice(fits[-8:])
    side = {3: 12, 4: 10, 5: 4}[rank]
    channels = b.rng.choice((1, 2, 3, 4, 6, 8, 9, 16))
    size = [b.rng.randint(2, side) for _ in range(rank - 2)]
    if channels * math.prod(size) > 1200:
        channels = 3
    return b.input(dtypes[0], (b.rng.choice((1, 1, 1, 2)), channels, *size))


def window(b: Builder, x: Value, largest: int = 4, ceil: bool = False):
    """Kernel, strides, dilations, pads, and the size that they come to: by `auto_pad` or in numbers."""
    size = x.shape[2:]
    n = len(size)
    kernel = [b.rng.randint(1, min(largest, max(1, d))) for d in size]
    if b.chance(0.4):
        kernel = [min(3, d) for d in size]
    strides = [b.rng.choice((1, 1, 1, 2, 3)) for _ in size]
    dilations = [b.rng.choice((1, 1, 1, 2)) if (k - 1) * 2 < d else 1 for k, d in zip(kernel, size)]
    span = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
    attrs: dict = {
        "strides": strides if b.chance(0.8) or max(strides) > 1 else None,
        "dilations": dilations if max(dilations) > 1 or b.chance(0.3) else None,
    }
    mode = b.rng.choices(("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID", None), (4, 1, 1, 1, 4))[0]
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        out = [-(-d // s) for d, s in zip(size, strides)]
        total = [(o - 1) * s + k - d for o, s, k, d in zip(out, strides, span, size)]
        if min(total) < 0 or max(dilations) > 1:  # which ONNX Runtime refuses
            raise Stuck
        pads = [t // 2 if mode == "SAME_UPPER" else t - t // 2 for t in total]
        pads += [t - p for t, p in zip(total, pads)]
        attrs |= {"auto_pad": mode, "dilations": None if max(dilations) == 1 else dilations}
        return kernel, attrs, out, pads
    pads = [0] * 2 * n
    if mode != "VALID":
        pads = [b.rng.choice((0, 0, 1, 2)) for _ in range(2 * n)]
        if b.chance(0.5):
            pads = pads[:n] * 2
        pads = [min(p, k - 1) for p, k in zip(pads, kernel * 2)]
        attrs["pads"] = pads if any(pads) or b.chance(0.4) else None
    attrs["auto_pad"] = mode
    out = []
    for i, (d, k, s) in enumerate(zip(size, span, strides)):
        room = d + pads[i] + pads[n + i] - k
        if room < 0:
            raise Stuck
        o = room // s + 1
        if ceil and room % s:
            o += 1
            if (o - 1) * s >= d + pads[i]:
                o -= 1
        out.append(o)
    return kernel, attrs, out, pads


def conv(b: Builder, x: Value | None = None, out: int | None = None) -> Value:
    """Conv: groups, depthwise, with and without bias."""
    x = x or maps(b)
    channels = x.shape[1]
    group = b.rng.choice([1, 1, 1, channels, *[g for g in (2, 3, 4) if channels % g == 0]])
    out = group * b.rng.choice((1, 1, 2, 3)) if group > 1 else out or b.rng.choice((1, 2, 3, 4, 8, 16, 17))
    kernel, attrs, size, _ = window(b, x)
    fan = channels // group * math.prod(kernel)
    scale = 2 / math.sqrt(fan)
    w = b.const(b.numbers(x.dtype, (out, channels // group, *kernel), -scale, scale), x.dtype)
    bias = b.param((out,), dtype=x.dtype) if b.chance(0.6) else None
    y = x.reach * scale * fan + 1
    return b.add("Conv", [x, w, bias], x.dtype, (x.shape[0], out, *size), -y, y, group=group if group > 1 or b.chance(0.5) else None,
                 kernel_shape=kernel if b.chance(0.7) else None, **attrs)  # fmt: skip


def conv_transpose(b: Builder) -> Value:
    x = maps(b, b.rng.choice((3, 4, 4)))
    channels, size = x.shape[1], x.shape[2:]
    group = b.rng.choice([1, 1, *[g for g in (2, 3, 4) if channels % g == 0]])
    each = b.rng.choice((1, 2, 3))
    kernel, strides = ([b.rng.randint(1, 3) for _ in size] for _ in range(2))
    dilations = [b.rng.choice((1, 1, 2)) for _ in size]
    span = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
    extra = [b.rng.randint(0, s - 1) for s in strides] if b.chance(0.4) else [0] * len(size)
    pads = [b.rng.randint(0, 1) for _ in range(2 * len(size))]
    out = [(d - 1) * s + e + k - p - q for d, s, e, k, p, q in zip(size, strides, extra, span, pads, pads[len(size) :])]
    if min(out) < 1:
        raise Stuck
    fan = channels // group * math.prod(kernel)
    w = b.const(b.numbers("f32", (channels, each, *kernel), -1, 1), "f32")
    bias = b.param((group * each,), dtype="f32") if b.chance(0.5) else None
    return b.add("ConvTranspose", [x, w, bias], "f32", (x.shape[0], group * each, *out), -x.reach * fan - 1, x.reach * fan + 1, group=group, strides=strides,
                 dilations=dilations, pads=pads, output_padding=extra if any(extra) else None)  # fmt: skip


def pool(b: Builder) -> Value:
    """MaxPool, AveragePool, LpPool; from opset 10 with sizes rounded up."""
    op = b.rng.choices(("MaxPool", "AveragePool", "LpPool"), (4, 4, 1))[0]
    x = maps(b)
    ceil = b.opset >= 10 and op != "LpPool" and b.chance(0.25)
    kernel, attrs, size, _ = window(b, x, ceil=ceil)
    if attrs["dilations"] and (
        (op == "MaxPool" and b.opset < 10)
        or (op == "AveragePool" and b.opset < 19)
        or (op == "LpPool" and b.opset < 18)
    ):
        raise Stuck
    if (
        op != "MaxPool"
        and any(attrs["dilations"] or ())
        and max(attrs["dilations"]) > 1
        and attrs["auto_pad"] in ("SAME_UPPER", "SAME_LOWER")
    ):
        raise Stuck
    if op == "MaxPool" and b.opset < 10:
        attrs["dilations"] = None
    if ceil:
        attrs["ceil_mode"] = 1
        if attrs["auto_pad"] in ("SAME_UPPER", "SAME_LOWER", "VALID"):
            raise Stuck
    if (op == "AveragePool" and b.opset < 19) or (op == "LpPool" and b.opset < 18):
        attrs["dilations"] = None
    if op == "AveragePool" and b.chance(0.4):
        attrs["count_include_pad"] = 1
    if op == "LpPool":
        attrs["p"] = b.rng.choice((1, 2, 3))
    shape = (*x.shape[:2], *size)
    reach = x.reach * (math.prod(kernel) if op == "LpPool" else 1)
    results = [("f32", shape, min(x.lo, 0) if op != "LpPool" else 0, reach)]
    if op == "MaxPool" and b.opset >= 8 and b.chance(0.1):
        results.append(("i64", shape, 0, x.size))
        attrs["storage_order"] = b.rng.choice((None, 0, 1))
    return b.multi(op, [x], results, kernel_shape=kernel, **attrs)[0]


def global_pool(b: Builder, x: Value | None = None) -> Value:
    x = x or maps(b)
    op = b.rng.choice(("GlobalAveragePool", "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"))
    reach = x.reach * (math.prod(x.shape[2:]) if op == "GlobalLpPool" else 1)
    return b.add(op, [x], x.dtype, (*x.shape[:2], *([1] * (x.rank - 2))), -reach, reach)


def norm(b: Builder, x: Value | None = None) -> Value:
    """Norms by channel: batch, instance, group, LRN."""
    x = x or maps(b)
    c = x.shape[1]
    op = b.rng.choice(
        ("BatchNormalization", "BatchNormalization", "InstanceNormalization", "GroupNormalization", "LRN")
    )
    scale, bias = b.param((c,), 0.5, 1.5, x.dtype), b.param((c,), dtype=x.dtype)
    if op == "BatchNormalization":
        mean, var = b.param((c,), dtype=x.dtype), b.param((c,), 0.5, 2, x.dtype)
        reach = (x.reach + 1) * 2.2 + 1
        return b.add(
            op, [x, scale, bias, mean, var], x.dtype, x.shape, -reach, reach, epsilon=b.rng.choice((None, 1e-5, 1e-3))
        )
    if op == "LRN":
        if x.rank != 4:
            raise Stuck
        return b.add(
            op, [x], x.dtype, x.shape, -x.reach, x.reach, size=b.rng.choice((1, 3, 5)), alpha=1e-2, beta=0.75, bias=1.0
        )
    reach = 1.5 * math.sqrt(math.prod(x.shape[2:]) * c) + 1
    if op == "InstanceNormalization":
        if math.prod(x.shape[2:]) == 1:  # ONNX Runtime's x * s + (b - mean * s) is then rounding beside the bias
            raise Stuck
        return b.add(op, [x, scale, bias], x.dtype, x.shape, -reach, reach, epsilon=1e-2)
    groups = b.rng.choice([g for g in range(1, c + 1) if c % g == 0])
    if b.opset < 18 or (b.opset < 21 and c != groups):
        raise Stuck
    return b.add(op, [x, scale, bias], x.dtype, x.shape, -reach, reach, num_groups=groups, epsilon=1e-2)


def resize(b: Builder) -> Value:
    """Upsample and Resize: by scales or sizes, in every mode that ONNX Runtime has."""
    x = maps(b, 4)
    scales = [1.0, 1.0, *(b.rng.choice((0.5, 1.0, 1.5, 2.0, 2.0, 3.0)) for _ in range(2))]
    shape = [math.floor(d * s) for d, s in zip(x.shape, scales)]
    if min(shape) < 1 or b.opset < 9:
        raise Stuck
    mode = b.rng.choice(("nearest", "nearest", "linear", "cubic"))
    reach = x.reach * (3 if mode == "cubic" else 1)
    values = [b.const(scales, "f32")]
    if b.opset < 11:
        mode = "nearest" if b.opset < 10 or mode == "cubic" else mode
        if min(scales) < 1:
            raise Stuck
        return b.add("Upsample" if b.opset < 10 else "Resize", [x, *values], "f32", shape, -reach, reach, mode=mode)
    attrs = {
        "mode": mode,
        "coordinate_transformation_mode": b.rng.choice(
            ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", None)
        ),
    }
    if mode == "nearest":
        attrs["nearest_mode"] = b.rng.choice(("floor", "ceil", "round_prefer_floor", "round_prefer_ceil", None))
    if mode == "cubic":
        attrs |= {"cubic_coeff_a": b.rng.choice((None, -0.5)), "exclude_outside": b.rng.choice((None, 0, 1))}
    roi = b.const(np.zeros(0), "f32") if b.opset < 13 or b.chance(0.3) else None
    if b.chance(0.4):
        shape = [*x.shape[:2], *(b.rng.randint(1, 2 * d) for d in x.shape[2:])]
        if b.opset >= 18 and b.chance(0.4):
            return b.add("Resize", [x, roi, None, b.ints(shape[2:])], "f32", shape, -reach, reach, axes=[2, 3], **attrs)
        none = b.const(np.zeros(0), "f32") if b.opset < 13 else None
        return b.add("Resize", [x, roi, none, b.ints(shape)], "f32", shape, -reach, reach, **attrs)
    if shape != [d * s for d, s in zip(x.shape, scales)] and attrs["coordinate_transformation_mode"] == "align_corners":
        raise Stuck  # ONNX takes the size that is no whole number for corners, and ONNX Runtime the one that it gives
    if b.opset >= 18 and mode != "nearest" and min(scales) < 1 and b.chance(0.4):
        attrs["antialias"] = 1
    return b.add("Resize", [x, roi, *values], "f32", shape, -reach, reach, **attrs)


def grid_sample(b: Builder) -> Value:
    if b.opset < 16:
        raise Stuck
    x = maps(b, 4)
    h, w = b.rng.randint(1, 5), b.rng.randint(1, 5)
    grid = b.input("f32", (x.shape[0], h, w, 2), -1.2, 1.2)
    modes = ("bilinear", "nearest", "bicubic") if b.opset < 20 else ("linear", "nearest", "cubic")
    return b.add("GridSample", [x, grid], "f32", (*x.shape[:2], h, w), -4 * x.reach, 4 * x.reach, mode=b.rng.choice(modes), align_corners=b.rng.choice((0, 1)),
                 padding_mode=b.rng.choice(("zeros", "border", "reflection")))  # fmt: skip


def roi_align(b: Builder) -> Value:
    if b.opset < 10:
        raise Stuck
    x = maps(b, 4)
    n, h, w = b.rng.randint(1, 3), b.rng.randint(1, 3), b.rng.randint(1, 3)
    corner = b.numbers("f32", (n, 2), 0, 3)
    boxes = b.const(np.concatenate([corner, corner + b.numbers("f32", (n, 2), 0.5, 6)], 1), "f32")
    batch = b.const(b.numbers("i64", (n,), 0, x.shape[0] - 1), "i64")
    attrs = (
        {"coordinate_transformation_mode": b.rng.choice(("half_pixel", "output_half_pixel"))} if b.opset >= 16 else {}
    )
    return b.add("RoiAlign", [x, boxes, batch], "f32", (n, x.shape[1], h, w), -x.reach, x.reach, output_height=h, output_width=w,
                 sampling_ratio=b.rng.choice((0, 1, 2)), spatial_scale=b.rng.choice((0.5, 1.0)), mode=b.rng.choice(("avg", "avg", "max")), **attrs)  # fmt: skip


def quantised_conv(b: Builder) -> Value:
    """ConvInteger and QLinearConv."""
    if b.opset < 10:
        raise Stuck
    x = b.input("ui8", (1, b.rng.choice((1, 2, 3, 4)), b.rng.randint(3, 7), b.rng.randint(3, 7)), 0, 255)
    kernel, attrs, size, _ = window(b, x, 3)
    out = b.rng.choice((1, 2, 4, 5))
    w = b.const(b.numbers("ui8", (out, x.shape[1], *kernel), 0, 255), "ui8")
    shape = (1, out, *size)
    zero = b.const(b.rng.randint(100, 150), "ui8")
    if b.chance(0.5):
        reach = 65025 * x.shape[1] * math.prod(kernel)
        return b.add(
            "ConvInteger",
            [x, w, zero if b.chance(0.7) else None, b.const(128, "ui8") if b.chance(0.5) else None],
            "i32",
            shape,
            -reach,
            reach,
            **attrs,
        )
    scales = [b.const(s, "f32") for s in (0.02, 0.01, 0.05 * x.shape[1])]
    bias = b.const(b.numbers("i32", (out,), -500, 500), "i32") if b.chance(0.5) else None
    return b.add(
        "QLinearConv",
        [x, scales[0], zero, w, scales[1], b.const(120, "ui8"), scales[2], b.const(128, "ui8"), bias],
        "ui8",
        shape,
        0,
        255,
        **attrs,
    )


STEPS = {
    conv: 9,
    conv_transpose: 2,
    pool: 6,
    global_pool: 2,
    norm: 5,
    resize: 4,
    grid_sample: 1,
    roi_align: 1,
    quantised_conv: 1,
}
