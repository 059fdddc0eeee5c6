"""Element by element: arithmetic, comparisons, functions and activations, of MXNet and NNVM. See
`lightnet_nnvm/node.py`.

Each op is one line in a table: its names, and a function of the builder and the values. MXNet compares floats into
floats (1 and 0); NNVM's and MXNet's scalars have the type of their tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from lightnet.frontends.graph import Value
from lightnet_nnvm.node import Lazy, Node, nnvm_op
from lightnet_nnvm.pairs import (
    ACTIVATIONS,
    ALIASES,
    ARITHMETIC,
    COMPARISONS,
    MXNET_ACTIVATIONS,
    MXNET_UNARY,
    UNARY,
)

Binary = Callable[[Node, Value, Value], Value]
Unary = Callable[[Node, Value], Value]


def _plain(optype: str) -> Callable[..., Value]:
    """The `ln` op of that name."""
    return lambda n, *xs: n.g.op(optype, *xs)


def _swapped(f: Binary) -> Binary:
    return lambda n, a, b: f(n, b, a)


def _as_number(f: Binary) -> Binary:
    """A comparison whose result has the type of its operands."""
    return lambda n, a, b: n.g.cast(f(n, a, b), a.dtype)


def _not(f: Binary) -> Binary:
    return lambda n, a, b: n.g.op("logical_not", f(n, a, b))


def truth(n: Node, x: Value) -> Value:
    """x != 0, as i1."""
    return x if x.dtype.kind == "bool" else n.g.op("logical_not", n.g.op("equal", x, n.scalar(0, x)))


def _logical(optype: str) -> Binary:
    return lambda n, a, b: n.g.op(optype, truth(n, a), truth(n, b))


def _hypot(n: Node, a: Value, b: Value) -> Value:
    g = n.g
    return g.op("sqrt", g.op("add", g.op("mul", a, a), g.op("mul", b, b)))


def _shift(of_integers: str, of_floats: str) -> Binary:
    """A shift by b bits; of floats a product with, or a quotient by, 2 ** b."""

    def apply(n: Node, a: Value, b: Value) -> Value:
        if not a.dtype.is_float:
            return n.g.op(of_integers, a, b)
        return n.g.op(of_floats, a, n.g.op("pow", n.scalar(2, a), b))

    return apply


_COMPARE: dict[str, Binary] = {
    **{name: _plain(optype) for name, optype in COMPARISONS.items()},
    "not_equal": _not(_plain("equal")), "greater": _swapped(_plain("less")),
    "greater_equal": _swapped(_plain("less_equal")),
    "logical_and": _logical("bit_and"), "logical_or": _logical("bit_or"), "logical_xor": _logical("bit_xor"),
}  # fmt: skip
_COMPARE |= {alias: _COMPARE[name] for alias, name in ALIASES.items() if name in _COMPARE}
_ARITHMETIC: dict[str, Binary] = {
    **{name: _plain(optype) for name, optype in ARITHMETIC.items()}, "hypot": _hypot,
    **dict.fromkeys(("left_shift", "lshift"), _shift("shift_left", "mul")),
    **dict.fromkeys(("right_shift", "rshift"), _shift("shift_right", "div")),
}  # fmt: skip
_ARITHMETIC |= {alias: _ARITHMETIC[name] for alias, name in ALIASES.items() if name in _ARITHMETIC}
_BINARY = {**_ARITHMETIC, **{name: _as_number(f) for name, f in _COMPARE.items()}}


def _both(n: Node, a: Value | Lazy, b: Value | Lazy) -> tuple[Value, Value]:
    """Two operands of one shape, of which one may be of open shape; floats in the type of the first."""
    if isinstance(a, Lazy):
        if isinstance(b, Lazy):
            n.fail(f"the shapes of '{a.name}' and '{b.name}' follow from nothing: give them with --shape")
        a = n.fixed(a, b.dims, b)
    elif isinstance(b, Lazy):
        b = n.fixed(b, a.dims, a)
    return a, n.same_float(b, a)


def _register_binary(name: str, f: Binary) -> None:
    camel = "".join(word.capitalize() for word in name.split("_"))

    def same_shape(n: Node, a: Value | Lazy, b: Value | Lazy) -> Value:
        a, b = _both(n, a, b)
        if a.dims != b.dims:
            n.fail(f"its operands should have one shape, but have {list(a.dims)} and {list(b.dims)}")
        return f(n, a, b)

    def broadcast(n: Node, a: Value, b: Value) -> Value:
        return f(n, a, n.same_float(b, a))

    same_shape.__qualname__, broadcast.__qualname__ = f"elemwise_{name}", f"broadcast_{name}"
    nnvm_op(f"elemwise_{name}", f"_{name}", f"_{camel}", f"_grad_{name}", lazy=(0, 1))(same_shape)
    nnvm_op(f"broadcast_{name}")(broadcast)
    if name in _COMPARE:  # NNVM's, which has them under their own names
        nnvm_op(name, lazy=(0, 1))(same_shape)


def _register_scalar(name: str, f: Binary) -> None:
    camel = "".join(word.capitalize() for word in name.split("_"))

    def scalar(n: Node, x: Value) -> Value:
        return f(n, x, n.scalar(n.float("scalar"), x))

    def reverse(n: Node, x: Value) -> Value:
        return f(n, n.scalar(n.float("scalar"), x), x)

    scalar.__qualname__, reverse.__qualname__ = f"{name}_scalar", f"r{name}_scalar"
    nnvm_op(f"_{name}_scalar", f"_{camel}Scalar", f"__{name}_scalar__")(scalar)
    nnvm_op(f"_r{name}_scalar", f"_R{camel}Scalar", f"__r{name}_scalar__")(reverse)


for _name, _function in _BINARY.items():
    _register_binary(_name, _function)
    _register_scalar(_name, _function)


@nnvm_op("add_n", "ElementWiseSum", "_sum", "elemwise_sum", "element_wise_sum")
def add_n(n: Node, x: Value, *others: Value) -> Value:
    for other in others:
        x = n.g.op("add", x, n.same_float(other, x))
    return x


# -- functions of one tensor ------------------------------------------------------------------------------------------


def _rounded(n: Node, x: Value) -> Value:
    """Half away from zero, as C's round. The fraction decides: |x| + 0.5 rounds up just below a half."""
    g = n.g
    magnitude = g.op("abs", x)
    whole = g.op("floor", magnitude)
    up = g.op("less_equal", n.scalar(0.5, x), g.op("sub", magnitude, whole))
    return g.op("mul", g.op("sign", x), g.op("add", whole, g.cast(up, x.dtype)))


def _rint(n: Node, x: Value) -> Value:
    """The nearest integer; of two, MXNet takes the lower."""
    return n.g.op("ceil", n.g.op("sub", x, n.scalar(0.5, x)))


def _trunc(n: Node, x: Value) -> Value:
    return n.g.op("mul", n.g.op("sign", x), n.g.op("floor", n.g.op("abs", x)))


def _cbrt(n: Node, x: Value) -> Value:
    return n.g.op("mul", n.g.op("sign", x), n.g.op("pow", n.g.op("abs", x), n.scalar(1 / 3, x)))


def _times(f: Unary, factor: float) -> Unary:
    return lambda n, x: n.g.op("mul", f(n, x), n.scalar(factor, x))


def _chain(*optypes: str) -> Unary:
    def apply(n: Node, x: Value) -> Value:
        for optype in optypes:
            x = n.g.op(optype, x)
        return x

    return apply


def _log1p(n: Node, x: Value) -> Value:
    """log(1 + x), and 2 atanh(x / (2 + x)) near 0, where 1 + x loses the digits of x."""
    g = n.g
    far = g.op("log", g.op("add", x, n.scalar(1, x)))
    near = g.op("mul", g.op("atanh", g.op("div", x, g.op("add", x, n.scalar(2, x)))), n.scalar(2, x))
    return g.op("where", g.op("less", g.op("abs", x), n.scalar(0.5, x)), near, far)


def _expm1(n: Node, x: Value) -> Value:
    """exp(x) - 1 = tanh(x / 2) (exp(x) + 1), exact near 0."""
    g = n.g
    return g.op("mul", g.op("tanh", g.op("mul", x, n.scalar(0.5, x))), g.op("add", g.op("exp", x), n.scalar(1, x)))


def _same(n: Node, x: Value) -> Value:
    return x


_UNARY: dict[str, Unary] = {
    **{name: _plain(optype) for name, optype in (UNARY | MXNET_UNARY).items()},
    "round": _rounded, "rint": _rint, "fix": _trunc, "trunc": _trunc, "cbrt": _cbrt,
    "square": lambda n, x: n.g.op("mul", x, x),
    "rsqrt": _chain("sqrt", "reciprocal"), "rcbrt": lambda n, x: n.g.op("reciprocal", _cbrt(n, x)),
    "log2": _times(_plain("log"), 1 / math.log(2)), "log10": _times(_plain("log"), 1 / math.log(10)),
    "log1p": _log1p, "expm1": _expm1,
    "degrees": _times(_same, 180 / math.pi), "radians": _times(_same, math.pi / 180),
    "logical_not": lambda n, x: n.g.cast(n.g.op("logical_not", truth(n, x)), x.dtype),
    "log_sigmoid": lambda n, x: n.g.op("neg", n.g.op("softplus", n.g.op("neg", x))),
}  # fmt: skip


def _register_unary(name: str, f: Unary) -> None:
    def handler(n: Node, x: Value) -> Value:
        return f(n, x)

    handler.__qualname__ = name
    nnvm_op(name)(handler)


for _name, _unary in _UNARY.items():
    _register_unary(_name, _unary)


@nnvm_op("smooth_l1")
def smooth_l1(n: Node, x: Value) -> Value:
    """0.5 (s x)^2 where |x| < 1 / s^2, else |x| - 0.5 / s^2."""
    g, scalar = n.g, n.float("scalar", 1.0)
    s2 = scalar * scalar
    if not 0 < s2 < math.inf:
        n.fail(f"its scalar squared is {s2}")
    magnitude = g.op("abs", x)
    inner = g.op("mul", g.op("mul", x, x), n.scalar(0.5 * s2, x))
    outer = g.op("sub", magnitude, n.scalar(0.5 / s2, x))
    return g.op("where", g.op("less", magnitude, n.scalar(1 / s2, x)), inner, outer)


_WITH_ATTRIBUTES = ACTIVATIONS | MXNET_ACTIVATIONS


@nnvm_op(*_WITH_ATTRIBUTES)
def with_attributes(n: Node, x: Value) -> Value:
    optype, attributes = _WITH_ATTRIBUTES[n.op]
    return n.g.op(optype, x, **{param: n.float(name, default) for name, (param, default) in attributes.items()})


@nnvm_op("_contrib_div_sqrt_dim")
def div_sqrt_dim(n: Node, x: Value) -> Value:
    return n.g.op("div", x, n.scalar(math.sqrt(n.at_least(x, 1).dims[-1]), x))


@nnvm_op("Dropout", "dropout", outputs=("output", "mask"))
def dropout(n: Node, x: Value, *axes: Value) -> Value:
    """Nothing, at inference: a `forward`, which costs nothing and keeps the node's name."""
    if n.string("mode", "training") == "always":
        n.unsupported("dropout with mode=always, which is random at inference too")
    return n.g.op("forward", x)


# -- activations ------------------------------------------------------------------------------------------------------

_ACTIVATIONS = {"relu": "relu", "sigmoid": "sigmoid", "tanh": "tanh", "softrelu": "softplus", "softsign": "softsign",
                "mish": "mish", "log_sigmoid": "log_sigmoid"}  # fmt: skip


@nnvm_op("Activation")
def activation(n: Node, x: Value) -> Value:
    kind = n.string("act_type")
    if kind not in _ACTIVATIONS:
        n.unsupported(f"activation '{kind[:40]}'")
    return _UNARY["log_sigmoid"](n, x) if kind == "log_sigmoid" else n.g.op(_ACTIVATIONS[kind], x)


@nnvm_op("LeakyReLU", params=(1,), outputs=("output", "mask"))
def leaky_relu_mxnet(n: Node, x: Value, gamma: Value | Lazy | None = None) -> Value:
    kind, slope = n.string("act_type", "leaky"), n.float("slope", 0.25)
    g = n.g
    if kind == "prelu" and gamma is not None:
        return _prelu(n, x, gamma, 1)
    if kind == "leaky":
        return g.op("lrelu", x, negslope=slope)
    if kind == "rrelu":  # at inference, the middle of the range
        return g.op("lrelu", x, negslope=(n.float("lower_bound", 0.125) + n.float("upper_bound", 0.334)) / 2)
    if kind == "elu":
        return g.op("elu", x, alpha=slope)
    if kind == "selu":
        return g.op("selu", x)
    if kind in ("gelu", "gelu_erf", "gelu_tanh"):
        return g.op("gelu", x, approximate="tanh" if kind == "gelu_tanh" else "none")
    n.unsupported(f"activation '{kind[:40]}'")


@nnvm_op("prelu", params=(1,))
def prelu(n: Node, x: Value, alpha: Value | Lazy) -> Value:
    return _prelu(n, x, alpha, n.axis(n.int("axis", 1), x.ndim))


def _prelu(n: Node, x: Value, slope: Value | Lazy, axis: int) -> Value:
    """One slope for each channel, or one for all."""
    shared = (slope.hint if isinstance(slope, Lazy) else slope.dims) == (1,)
    count = 1 if shared else x.dims[axis]
    dims = (count, *(1,) * (x.ndim - axis - 1))
    return n.g.op("prelu", x, n.g.reshape(n.fixed(slope, (count,), x), dims))
