"""Upstream's helper functions of snippets, as the arithmetic that they stand for. Imports `ir.expr`."""

from __future__ import annotations

from collections.abc import Callable

from lightnet.ir.expr import ArraySlice, Binary, Call, Expr, Index, Num


def _plus(a: Expr, b: Expr) -> Expr:
    return Binary("+", a, b)


def _minus(a: Expr, b: Expr) -> Expr:
    return Binary("-", a, b)


def _times(a: Expr, b: Expr) -> Expr:
    return Binary("*", a, b)


_ONE = Num(1)


def _extent(k: Expr, d: Expr) -> Expr:
    """Elements that a dilated kernel spans: ``(k - 1) * d + 1``."""
    return _plus(_times(_minus(k, _ONE), d), _ONE)


def _conv_dim(i: Expr, k: Expr, s: Expr, p: Expr, d: Expr) -> Expr:
    """``((i + p) - ((k - 1) * d + 1)) / s + 1``, `p` the padding of both sides."""
    return _plus(Binary("/", _minus(_plus(i, p), _extent(k, d)), s), _ONE)


def _deconv_dim(i: Expr, k: Expr, s: Expr, p: Expr, op: Expr, d: Expr) -> Expr:
    """``s * (i - 1) + op + ((k - 1) * d + 1) - p``."""
    return _minus(_plus(_plus(_times(s, _minus(i, _ONE)), op), _extent(k, d)), p)


def _next_multiple(x: Expr, n: Expr) -> Expr:
    """The least multiple of `n` that is no less than `x` (upstream's takes 8 for any `n`)."""
    return _times(Binary("/", _minus(_plus(x, n), _ONE), n), n)


def _ws_len(dims: Expr) -> Expr:
    """Blocks of TensorLight's dot product on cuda, each an element of its workspaces: 1024 threads take two elements
    each."""
    return Binary("/", _plus(Call("prod", (dims,)), Num(2047)), Num(2048))


#: name -> (number of arguments, what it stands for)
HELPERS: dict[str, tuple[int, Callable[..., Expr]]] = {
    "ln_streq": (2, lambda a, b: Binary("==", a, b)),
    "ln_output_dim_conv": (5, _conv_dim),
    "ln_compute_output_dim": (4, lambda i, k, s, p: _conv_dim(i, k, s, p, _ONE)),  # its name before it had dilation
    "ln_output_dim_deconv": (6, _deconv_dim),
    "ln_compute_length": (2, lambda ndim, dims: Call("prod", (Index(dims, (ArraySlice(Num(0), ndim),)),))),
    "ln_next_multiple_power2": (2, _next_multiple),
    "tl_tensor_dot_product_cuda_ws_len": (1, _ws_len),
    "tl_tensor_issameshape": (2, lambda a, b: Binary("==", a, b)),
}
#: Those that take tensors, for their dims.
OF_TENSORS = ("tl_tensor_dot_product_cuda_ws_len", "tl_tensor_issameshape")
