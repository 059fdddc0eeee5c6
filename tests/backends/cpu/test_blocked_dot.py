"""Convolutions and matrix products of integers, whose factors are multiplied two or four at a time, against NumPy in 64 bits."""

from __future__ import annotations

import numpy as np
import pytest
from blocked_kernels import check_blocked, form_of, kernel_of

from lightnet.backends.cpu.blocked.base import ProcessorModel
from lightnet.backends.cpu.blocked.dot import DOT
from lightnet.backends.cpu.blocked.dot_dense import DOTS
from lightnet.backends.cpu.short_gemm import PAIRS
from lightnet.runtime.dtypes import BY_NAME

MACHINES = [ProcessorModel(), ProcessorModel(lanes=8, registers=16), ProcessorModel(lanes=4)]
#: Types of the factors, and values that they take.
KINDS = {("i16", "i16"): ((-255, 255), (-255, 255)), ("ui8", "i8"): ((0, 255), (-128, 127))}
NP = {"i16": np.int16, "i8": np.int8, "ui8": np.uint8, "f32": np.float32, "bf16": BY_NAME["bf16"].np}
#: Input dims, outputs, window, and what else.
CONVOLUTIONS = [
    ((1, 16, 7, 9), 16, (1, 1), ""), ((1, 16, 13, 17), 24, (3, 3), ", padding = [1, 1, 1, 1]"),
    ((2, 32, 6, 5), 48, (3, 2), ", padding = [2, 0, 1, 3]"), ((1, 24, 11, 12), 17, (3, 3), ", stride = [2, 2]"),
    ((1, 40, 14, 14), 40, (3, 3), ", stride = [2, 1], dilation = [2, 3], padding = [2, 3, 2, 3]"),
    ((1, 64, 5, 6), 64, (3, 3), ", group = 2, padding = [1, 1, 1, 1]"), ((1, 20, 1, 1), 37, (1, 1), ""),
    ((1, 8, 4, 4), 8, (3, 3), ", padding = [3, 3, 3, 3]"), ((1, 4, 3, 50), 130, (1, 3), ", padding = [0, 1, 0, 1]"),
]  # fmt: skip


#: The same for floats: their sums are rounded, whose order is the processor's.
BFLOATS, ROUNDED = ("bf16", "bf16"), 2e-6


def tensor(dims, dtype: str) -> str:
    return f"tensor<{'x'.join(map(str, dims))}x{dtype}>"


def data(rng: np.random.Generator, kind, *shapes):
    """Factors of a kind; their ends among them."""
    if kind == BFLOATS:
        fan = np.sqrt(max(1, shapes[1][0] if len(shapes[1]) == 2 else np.prod(shapes[1][1:])))
        return [(rng.standard_normal(shape) / d).astype(NP["bf16"]) for shape, d in zip(shapes, (1, fan))]
    found = []
    for (low, high), dtype, shape in zip(KINDS[kind], kind, shapes):
        array = rng.integers(low, high + 1, shape).astype(NP[dtype])
        array.flat[: array.size // 8] = rng.choice([low, high], array.size // 8)
        found.append(array)
    return found


def size_of(dims, window, options: str) -> tuple[int, int]:
    """Rows and columns of the result of a convolution."""
    found = {"stride": [1, 1], "dilation": [1, 1], "padding": [0, 0, 0, 0]}
    for name in found:
        if f"{name} = [" in options:
            found[name] = [int(v) for v in options.split(f"{name} = [")[1].split("]")[0].split(",")]
    top, left, bottom, right = found["padding"]
    return tuple(
        (n + pad - ((k - 1) * d + 1)) // s + 1
        for n, pad, k, d, s in zip(dims[2:], (top + bottom, left + right), window, found["dilation"], found["stride"])
    )


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("kind", [*KINDS, BFLOATS], ids="-".join)
@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: f"{m.lanes} lanes")
@pytest.mark.parametrize("dims, outputs, window, options", CONVOLUTIONS, ids=str)
def test_convolutions(dims, outputs, window, options, machine, kind):
    """Alone, and with what requantises sums: a scale for each channel, a residual, a rounding, limits and a cast (where a
    product that is added at once may round the other way)."""
    group = 2 if "group = 2" in options else 1
    weights = (outputs, dims[1] // group, *window)
    result = (dims[0], outputs, *size_of(dims, window, options))
    rng = np.random.default_rng(len(options) + outputs)
    x, w = data(rng, kind, dims, weights)
    operands = {"x": tensor(dims, kind[0]), "w": tensor(weights, kind[1])}
    conv = f"%y = ln.conv2d_integer %x, %w {{size = {list(window)}{options}}} : {tensor(result, 'i32')} "
    if kind == BFLOATS:
        conv = conv.replace("integer", "short").replace("i32", "f32")
    form = form_of(DOT, kernel_of(operands, conv + "ln.yield %y"), machine)
    if group > 1 and dims[1] // group % machine.lanes:
        assert form is None
        return
    if kind == BFLOATS:
        _check_floats(DOT, operands, conv, result, (outputs, 1, 1), machine, [x, w], out=(1, 1), extra=(1, 0))
        return
    check_blocked(DOT, operands, conv + "ln.yield %y", machine=machine, arrays=[x, w], tolerance=0)
    scale = (rng.random((outputs, 1, 1)) * 1e-3).astype(np.float32)
    rest = rng.integers(-300, 300, result).astype(np.float32)
    f, body = tensor(result, "f32"), conv
    for name, text in (("f", "cast %y"), ("m", "mul %f, %s"), ("a", "add %m, %r"), ("e", "round_even %a"),
                       ("c", "clip %e {lo = -128, hi = 127}")):  # fmt: skip
        body += f"%{name} = ln.{text} : {f} "
    body += f"%z = ln.cast %c : {tensor(result, 'i16')} ln.yield %z"
    operands |= {"s": tensor((outputs, 1, 1), "f32"), "r": tensor(result, "f32")}
    check_blocked(
        DOT, operands, body, machine=machine, arrays=[x, w, scale, rest], tolerance=0.0079, out=(1, 1), extra=(1, 0)
    )


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("kind", [*KINDS, BFLOATS], ids="-".join)
@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: f"{m.lanes} lanes")
@pytest.mark.parametrize("a, n", [((1, 784), 512), ((1, 36), 130), ((3, 4), 5), ((7, 40), 64), ((50, 44), 101), ((2, 3, 8), 19),
                                  ((4, 1, 32), 48), ((13, 20), 1000), ((33, 64), 17), ((1, 4), 2), ((5, 4096), 33)], ids=str)  # fmt: skip
def test_products(a, n, machine, kind):
    x, w = data(np.random.default_rng(n), kind, a, (a[-1], n))
    result = (*a[:-1], n)
    operands = {"a": tensor(a, kind[0]), "b": tensor((a[-1], n), kind[1])}
    product = f"%y = ln.matmul_integer %a, %b : {tensor(result, 'i32')} "
    if kind == BFLOATS:
        product = product.replace("integer", "short").replace("i32", "f32")
        _check_floats(DOTS, operands, product, result, (n,), machine, [x, w])
        return
    wanted = [np.matmul(x.astype(np.int64), w.astype(np.int64)).astype(np.int32)]
    check_blocked(DOTS, operands, product + "ln.yield %y", machine=machine, arrays=[x, w], tolerance=0, expected=wanted)
    scale = (np.random.default_rng(1).random(n) * 1e-4).astype(np.float32)
    body = product + f"%f = ln.cast %y : {tensor(result, 'f32')} %m = ln.mul %f, %s : {tensor(result, 'f32')} "
    body += f"%z = ln.cast %m : {tensor(result, 'i8')} ln.yield %z"
    operands["s"] = tensor((n,), "f32")
    check_blocked(DOTS, operands, body, machine=machine, arrays=[x, w, scale], tolerance=0)


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: f"{m.lanes} lanes")
@pytest.mark.parametrize("a, b", [((1, 784), (784, 512)), ((50, 44), (44, 101)), ((2, 3, 8), (8, 19)), ((2, 3, 40, 64), (2, 3, 64, 50)),
                                  ((3, 5, 4), (3, 4, 33)), ((2, 1, 5, 8), (3, 8, 16)), ((1, 2), (2, 2))], ids=str)  # fmt: skip
def test_products_of_computed_matrices(a, b, machine):
    """Of bf16, with a number, a vector and a residual behind; batches that are repeated."""
    factors = data(np.random.default_rng(a[0]), BFLOATS, a, b)
    result = np.matmul(*(f.astype(np.float32) for f in factors)).shape
    f, operands = tensor(result, "f32"), {"a": tensor(a, "bf16"), "b": tensor(b, "bf16")}
    product = f"%y = ln.matmul_short %a, %b : {f} "
    check_blocked(PAIRS, operands, product + "ln.yield %y", machine=machine, arrays=factors, tolerance=ROUNDED)
    rest = [
        np.random.default_rng(k).standard_normal(dims).astype(np.float32) for k, dims in enumerate(((), b[-1:], result))
    ]
    operands |= {"s": "tensor<f32>", "v": tensor(b[-1:], "f32"), "r": f}
    body = f"{product}%m = ln.mul %y, %s : {f} %n = ln.add %m, %v : {f} %z = ln.add %n, %r : {f} ln.yield %z, %m"
    check_blocked(PAIRS, operands, body, machine=machine, arrays=[*factors, *rest], tolerance=ROUNDED)
    for other in ("f16", "i8"):
        wrong = {k: v.replace("bf16", other) for k, v in operands.items() if k in "ab"}
        kind = "matmul_short" if other == "f16" else "matmul_integer"
        text = f"%y = ln.{kind} %a, %b : {tensor(result, 'f32' if other == 'f16' else 'i32')} ln.yield %y"
        assert form_of(PAIRS, kernel_of(wrong, text), machine) is None


def _check_floats(generator, operands, product: str, result, per_output, machine, factors, **halos) -> None:
    """A product of bf16 alone, and with a bias, an activation, and a rounding to bf16 (where a sum on the edge between two may
    go to either)."""
    check_blocked(generator, operands, product + "ln.yield %y", machine=machine, arrays=factors, tolerance=ROUNDED)
    bias = np.random.default_rng(3).standard_normal(per_output).astype(np.float32)
    body = f"{product}%m = ln.add %y, %s : {tensor(result, 'f32')} %e = ln.relu %m : {tensor(result, 'f32')} "
    body += f"%z = ln.cast %e : {tensor(result, 'bf16')} ln.yield %z"
    operands = operands | {"s": tensor(per_output, "f32")}
    check_blocked(generator, operands, body, machine=machine, arrays=[*factors, bias], tolerance=0.0079, **halos)


def test_what_is_left_to_loops():
    """An odd number of channels, types that have no kind of product, a matrix that is computed, a map read as it is, too."""
    conv = "%y = ln.conv2d_integer %x, %w {size = [1, 1]} : tensor<1x16x4x4xi32> "
    for channels, types in ((15, ("i16", "i16")), (18, ("ui8", "i8")), (16, ("i8", "i8")), (16, ("i16", "i8"))):
        operands = {"x": tensor((1, channels, 4, 4), types[0]), "w": tensor((16, channels, 1, 1), types[1])}
        assert form_of(DOT, kernel_of(operands, conv + "ln.yield %y")) is None, (channels, types)
    operands = {"x": tensor((1, 16, 4, 4), "i16"), "w": tensor((16, 16, 1, 1), "i16")}
    f = tensor((1, 16, 4, 4), "f32")
    own = f"%f = ln.cast %y : {f} %g = ln.cast %x : {f} %a = ln.add %f, %g : {f} ln.yield %a"
    assert form_of(DOT, kernel_of(operands, conv + own)) is None
    operands = {"a": tensor((3, 7), "i16"), "b": tensor((7, 5), "i16")}
    assert (
        form_of(DOTS, kernel_of(operands, f"%y = ln.matmul_integer %a, %b : {tensor((3, 5), 'i32')} ln.yield %y"))
        is None
    )


@pytest.mark.parametrize("wide", [2**31 - 1, -(2**31)])
def test_sums_wrap_around(wide: int):
    """32 bits, in any order alike."""
    x, w = np.full((1, 1 << 10), 32767, np.int16), np.full((1 << 10, 20), 32767 if wide > 0 else -32768, np.int16)
    operands = {"a": tensor(x.shape, "i16"), "b": tensor(w.shape, "i16")}
    wanted = [(x.astype(np.int64) @ w.astype(np.int64)).astype(np.int32)]
    body = f"%y = ln.matmul_integer %a, %b : {tensor((1, 20), 'i32')} ln.yield %y"
    check_blocked(DOTS, operands, body, arrays=[x, w], tolerance=0, expected=wanted)
