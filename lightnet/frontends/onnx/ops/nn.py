"""Convolutions, pools and matrix products of ONNX. Imports the windows of the front ends and the table of handlers."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from lightnet.dataclasses import replace
from lightnet.frontends import windows
from lightnet.frontends.composites import full
from lightnet.frontends.graph import Value
from lightnet.frontends.onnx.node import Node, onnx_op
from lightnet.frontends.windows import SpatialWindow


def _window(n: Node, dims: Sequence[int], size: Sequence[int]) -> SpatialWindow:
    """The window over `dims`, of `size` unless the node has a kernel_shape."""
    axes = len(dims)
    size = n.ints("kernel_shape", tuple(size))
    stride = n.ints("strides", (1,) * axes)
    dilation = n.ints("dilations", (1,) * axes)
    padding = n.ints("pads", (0,) * 2 * axes)
    for what, values, length in (("kernel_shape", size, axes), ("strides", stride, axes), ("dilations", dilation, axes),
                                 ("pads", padding, 2 * axes)):  # fmt: skip
        if len(values) != length:
            n.fail(f"{what} {list(values)} should have {length} elements, as its input has {axes} spatial axes")
        if what != "pads" and any(v < 1 for v in values):
            n.fail(f"{what} {list(values)} should be positive")
    auto, window = n.string("auto_pad", "NOTSET"), SpatialWindow(size, stride, dilation, padding)
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        window = replace(window, padding=windows.same_padding(dims, window, auto == "SAME_UPPER"))
    elif auto == "VALID":
        window = replace(window, padding=(0,) * 2 * axes)
    elif auto not in ("NOTSET", ""):
        n.fail(f"auto_pad is '{auto}'; there are NOTSET, SAME_UPPER, SAME_LOWER and VALID")
    if any(p < 0 for p in window.padding):
        n.unsupported("negative padding")
    return window


def _pool_window(n: Node, x: Value) -> tuple[SpatialWindow, bool]:
    """The window of a pool, and whether its results are rounded up. One that is wider than its padded input has no
    position, but for C's division, by which ONNX's shape inference and ONNX Runtime count, there may be one: such a
    node is refused."""
    dims = _spatial(n, x)
    w, ceil = _window(n, dims, ()), _ceil(n)
    for d, k, s, step, b, e in zip(dims, w.size, w.stride, w.dilation, w.begins, w.ends):
        room = d + b + e - (k - 1) * step - 1
        if room < 0 and room % s and not ceil:
            n.fail(
                f"its window of {(k - 1) * step + 1} should fit into an axis of {d} elements with padding {b} and {e}",
                "empty-window",
            )
    return w, ceil


def _spatial(n: Node, x: Value, least: int = 1) -> tuple[int, ...]:
    """The dims of the spatial axes, of which there are `least` or more."""
    if x.ndim < 2 + least:
        n.fail(f"its input should be [N, C, ...] with {least} spatial axes or more, but is {x.spec}")
    return x.dims[2:]


# -- convolutions


def weighted_window(n: Node, x: Value, w: Value) -> SpatialWindow:
    """The window of the weights [.., .., *K], whose sizes a kernel_shape repeats."""
    dims = _spatial(n, x)
    if w.ndim != x.ndim:
        n.fail(f"its weights {w.spec} should have the rank of its input {x.spec}")
    window = _window(n, dims, w.dims[2:])
    if window.size != w.dims[2:]:
        n.fail(f"its kernel_shape {list(window.size)} is not that of its weights {w.spec}")
    return window


@onnx_op("Conv")
def conv(n: Node, x: Value, w: Value, b: Value | None = None) -> Value:
    """Convolution over one, two, three or more axes."""
    window = weighted_window(n, x, w)
    return windows.convolution(n.g, x, w, b, window, n.int("group", 1))


@onnx_op("ConvTranspose")
def conv_transpose(n: Node, x: Value, w: Value, b: Value | None = None) -> Value:
    """Transposed convolution; an output_shape decides the padding."""
    dims = _spatial(n, x)
    axes, auto = len(dims), n.string("auto_pad", "NOTSET")
    window = weighted_window(n, x, w)
    extra = n.ints("output_padding", (0,) * axes)
    full = [s * (d - 1) + e + (k - 1) * i + 1
            for s, d, e, k, i in zip(window.stride, dims, extra, window.size, window.dilation)]  # fmt: skip
    wanted = n.ints("output_shape", None)
    if wanted is not None:
        if len(wanted) not in (axes, axes + 2):
            n.fail(f"its output_shape {list(wanted)} should have {axes} elements")
        wanted = wanted[-axes:]
    elif auto.startswith("SAME"):
        wanted = tuple(d * s for d, s in zip(dims, window.stride))
    if wanted is not None:
        total = [f - o for f, o in zip(full, wanted)]
        if any(t < 0 for t in total):  # what is longer than the full result has zeros at its end
            extra = tuple(e - min(t, 0) for e, t in zip(extra, total))
            total = [max(t, 0) for t in total]
        small, large = [t // 2 for t in total], [t - t // 2 for t in total]
        lower = auto == "SAME_LOWER" or not auto.startswith("SAME")
        window = replace(window, padding=(*large, *small) if lower else (*small, *large))
    return windows.transposed_convolution(n.g, x, w, b, window, extra, n.int("group", 1))


# -- pools


def _ceil(n: Node) -> bool:
    """Return whether the number of windows is rounded up."""
    return bool(n.int("ceil_mode", 0)) and n.string("auto_pad", "NOTSET") == "NOTSET"


@onnx_op("MaxPool")
def max_pool(n: Node, x: Value) -> tuple[Value, Value | None]:
    """The maxima of windows and, where wanted, their positions."""
    w, ceil = _pool_window(n, x)
    result = windows.max_pool(n.g, x, w, ceil)
    if not n.wants(1):
        return result, None
    at = n.g.op("maxpool_index", x, ceil=ceil, **w.params)
    return result, _columns_first(n, at, x.dims) if n.int("storage_order", 0) else at


def _columns_first(n: Node, at: Value, dims: Sequence[int]) -> Value:
    """Row-major positions in [N, C, *S] as positions where the spatial axes are stored the first one innermost."""
    g = n.g

    def number(k: int) -> Value:
        return g.scalar(k, "i64")

    rest = g.op("fmod", at, number(prod(dims[2:])))
    result = g.op("sub", at, rest)
    stride = 1
    for i, d in enumerate(dims[2:]):
        inner = prod(dims[3 + i :])
        coordinate = g.op("fmod", g.op("div", rest, number(inner)), number(d))
        result = g.op("add", result, g.op("mul", coordinate, number(stride)))
        stride *= d
    return result


@onnx_op("AveragePool")
def average_pool(n: Node, x: Value) -> Value:
    """The means of windows."""
    w, ceil = _pool_window(n, x)
    return windows.average_pool(n.g, x, w, ceil, count_include_pad=bool(n.int("count_include_pad", 0)))


@onnx_op("LpPool")
def lp_pool(n: Node, x: Value) -> Value:
    """The p-norms of windows: the p-th root of a sum, which is a mean times the size of the window."""
    (w, ceil), p = _pool_window(n, x), n.int("p", 2)
    if ceil:
        w = windows.overhanging(x.dims[2:], w)
    mean = windows.average_pool(n.g, _powers(n, x, p), w, count_include_pad=True)
    return _root(n, n.g.op("mul", mean, n.g.scalar(prod(w.size), x.dtype)), p)


def _powers(n: Node, x: Value, p: int) -> Value:
    """abs(x) ** p."""
    if p == 2:
        return n.g.op("mul", x, x)
    magnitude = n.g.op("abs", x)
    return magnitude if p == 1 else n.g.op("pow", magnitude, n.g.scalar(p, x.dtype))


def _root(n: Node, x: Value, p: int) -> Value:
    """The p-th root of x."""
    if p < 1:
        n.fail(f"p is {p}, and should be 1 or more")
    return x if p == 1 else n.g.op("sqrt", x) if p == 2 else n.g.op("pow", x, n.g.scalar(1 / p, x.dtype))


@onnx_op("GlobalAveragePool", "GlobalMaxPool")
def global_pool(n: Node, x: Value) -> Value:
    """The mean or the maximum of each channel."""
    optype = "reduce_max" if n.op_type == "GlobalMaxPool" else "reduce_mean"
    return n.g.op(optype, x, axes=tuple(range(2, 2 + len(_spatial(n, x)))))


@onnx_op("GlobalLpPool")
def global_lp_pool(n: Node, x: Value) -> Value:
    """The p-norm of each channel."""
    p = n.int("p", 2)
    return _root(n, n.g.op("reduce_sum", _powers(n, x, p), axes=tuple(range(2, 2 + len(_spatial(n, x))))), p)


@onnx_op("MaxUnpool")
def max_unpool(n: Node, x: Value, at: Value, shape: Value | None = None) -> Value:
    """Maxima put back where they stood, zeros elsewhere; the positions count in the result that has no output_shape."""
    w = _window(n, _spatial(n, x), ())
    inner = [(d - 1) * s + k - b - e
             for d, s, k, b, e in zip(x.dims[2:], w.stride, w.size, w.begins, w.ends)]  # fmt: skip
    dims = (*x.dims[:2], *inner)
    flat = full(n.g, (n.g.spec(dims, x.dtype).len,), 0, x.dtype)
    result = n.g.op("scatter_elements", flat, n.g.reshape(at, (at.len,)), n.g.reshape(x, (x.len,)), axis=0)
    result = n.g.reshape(result, dims)
    if shape is None:
        return result
    wanted = n.need_ints(shape, "the shape of the result of MaxUnpool")
    if len(wanted) != len(dims):
        n.fail(f"its output_shape {list(wanted)} should have {len(dims)} elements")
    return n.g.op("pad", result, before=(0,) * len(dims), after=tuple(w - d for w, d in zip(wanted, dims)))


# -- matrix products


@onnx_op("MatMul")
def matmul(n: Node, a: Value, b: Value) -> Value:
    """Products of matrices, as NumPy's matmul: a vector is a row on the left and a column on the right."""
    g = n.g
    if not a.ndim or not b.ndim:
        n.fail("its operands should have rank 1 or more")
    row = g.reshape(a, (1, *a.dims)) if a.ndim == 1 else a
    column = g.reshape(b, (*b.dims, 1)) if b.ndim == 1 else b
    result = g.op("matmul", row, column)
    rows = () if a.ndim == 1 else a.dims[-2:-1]
    columns = () if b.ndim == 1 else b.dims[-1:]
    return g.reshape(result, (*result.dims[:-2], *rows, *columns))


@onnx_op("Gemm")
def gemm(n: Node, a: Value, b: Value, c: Value | None = None) -> Value:
    """alpha * A * B + beta * C, each of A and B perhaps transposed."""
    g, alpha, beta = n.g, n.float("alpha", 1.0), n.float("beta", 1.0)
    if a.ndim != 2 or b.ndim != 2:
        n.fail(f"its operands should be matrices, but are {a.spec} and {b.spec}")
    if n.int("transA", 0):
        a = g.transpose(a, (1, 0))
    addend = None if c is None or beta == 0 else _scaled(n, c, beta)
    if (
        n.int("transB", 0)
        and a.dims[0] == 1
        and a.dtype.name in ("f32", "f64")
        and alpha == 1
        and a.dims[1] == b.dims[1]
    ):
        return _one_row(n, a, b, addend)
    if n.int("transB", 0):
        b = g.transpose(b, (1, 0))
    if a.dims[1] != b.dims[0]:
        n.fail(f"its operands {a.spec} and {b.spec} (after transposing) do not multiply")
    result = _scaled(n, g.op("matmul", a, b), alpha)
    return result if addend is None else g.op("add", result, addend)


def _one_row(n: Node, a: Value, b: Value, c: Value | None) -> Value:
    """a [1, K] times the transpose of b [N, K]: a convolution with one pixel reads the weights in the order they
    have."""
    g, (outputs, length) = n.g, b.dims
    bias = None if c is None or c.len != outputs else g.reshape(c, (outputs,))
    result = windows.convolution(g, g.reshape(a, (1, length, 1, 1)), g.reshape(b, (outputs, length, 1, 1)), bias,
                                 SpatialWindow((1, 1), (1, 1), (1, 1), (0,) * 4))  # fmt: skip
    result = g.reshape(result, (1, outputs))
    return result if c is None or bias is not None else g.op("add", result, c)


def _scaled(n: Node, x: Value, factor: float) -> Value:
    """factor * x; integers are scaled by an integer."""
    if factor == 1:
        return x
    if not x.dtype.is_float and not float(factor).is_integer():
        n.unsupported(f"integers times {factor}")
    return n.g.op("mul", x, n.g.scalar(factor, x.dtype))
