"""The functions of upstream's that compute shapes, constants and texts: what the C of descriptions may call at compile
time.

Each takes the machine and the values of its arguments. What depends on an op (its checks), or on tensors (what a `run`
calls), is in the tables of `lightnet_descriptions/code*.py`. Imports the machine, `helpers`, the dtypes and the formats
of `printf`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from lightnet.diagnostics import DescriptionWarning
from lightnet.ir.constants import Env, compile_constant, round_half_away, total_function, whole_float
from lightnet.ir.expr import Array, Num
from lightnet_descriptions.c import memory
from lightnet_descriptions.c.arguments import dtype_of, formatted, integers, string_argument, whole
from lightnet_descriptions.c.arithmetic import c_arithmetic
from lightnet_descriptions.c.functions import CFunction, function
from lightnet_descriptions.c.machine import CMachine
from lightnet_descriptions.c.values import (
    CodeError,
    CSymbol,
    Enumerator,
    Float,
    Pointer,
    Struct,
    shown,
)
from lightnet_descriptions.enumerators import CONVERSIONS, ENUMERATORS
from lightnet_descriptions.helpers import HELPERS

#: The length of upstream's buffers for a line.
LN_MAXLINE = 4096
#: The enumerators of C as values: a dtype is TensorLight's name of it, whichever name it was given by. Numbers count as
#: upstream's do.
NAMES: dict[str, Any] = {
    **{name: Enumerator(name) for name in ENUMERATORS},
    **{name: Enumerator(name, k) for names in CONVERSIONS.values() for k, name in enumerate(names)},
    "LN_MAXLINE": LN_MAXLINE, "RAND_MAX": 2147483647, "LN_TRUE": 1, "LN_FALSE": 0, "true": 1, "false": 0,
    "INFINITY": math.inf, "NAN": math.nan,
}  # fmt: skip


# -- numbers ---------------------------------------------------------------------------------------------------------


def _real(value: Any) -> float:
    if not isinstance(value, int | float):
        raise TypeError(f"expected a number, got {shown(value)}")
    return float(value)


def _math(compute: Callable[[float], float]) -> CFunction:
    value = total_function(compute)

    def call(machine: CMachine, x: Any) -> Any:
        return x.unary(compute.__name__) if isinstance(x, CSymbol) else value(_real(x))

    return CFunction(call, 1, 1)


def _floats(fn: CFunction) -> CFunction:
    """The variant of a function on C's `float`."""

    def call(machine: CMachine, *args: Any) -> Any:
        found = fn.call(machine, *args)
        return Float(found) if isinstance(found, float) else found

    return fn._replace(call=call)


def ceil(x: float) -> float:
    return whole_float(math.ceil)(x)


def floor(x: float) -> float:
    return whole_float(math.floor)(x)


def trunc(x: float) -> float:
    return whole_float(math.trunc)(x)


def fabs(x: float) -> float:
    return abs(x)


def round(x: float) -> float:
    return round_half_away(x)


def _two(pick: Callable[[float, float], float]) -> CFunction:
    def call(machine: CMachine, a: Any, b: Any) -> float:
        with np.errstate(all="ignore"):  # infinities and NaN are results
            return float(pick(_real(a), _real(b)))

    return CFunction(call, 2, 2)


_REAL = {
    "ceil": _math(ceil), "floor": _math(floor), "trunc": _math(trunc), "fabs": _math(fabs), "round": _math(round),
    "sqrt": _math(math.sqrt),
    "exp": _math(math.exp), "log": _math(math.log), "tanh": _math(math.tanh), "pow": _two(np.float_power),
    "fmin": _two(np.fmin), "fmax": _two(np.fmax),
}  # fmt: skip


@function(1)
def _abs(machine: CMachine, x: Any) -> int:
    return abs(whole(x))


def _helper(name: str) -> CFunction:
    """A function that `helpers` writes as an expression of integers."""
    count, build = HELPERS[name]

    def call(machine: CMachine, *args: Any) -> Any:
        return compile_constant(build(*(Num(whole(a)) for a in args)))(Env({}, {}))

    return CFunction(call, count, count)


@function(2)
def _compute_length(machine: CMachine, ndim: Any, dims: Any) -> int:
    length = 1
    for d in integers(dims, ndim):
        length = c_arithmetic("*", length, d)
    return length


# -- automatic padding -----------------------------------------------------------------------------------------------


def _halved(total: int, mode: str) -> tuple[int, int]:
    small = total // 2 if total >= 0 else -(-total // 2)  # C halves toward zero
    return (small, total - small) if mode == "SAME_UPPER" else (total - small, small)


def _pad(padding: Any, n: int, pairs: Sequence[tuple[int, int]]) -> None:
    """Write padding: all that stands in front, then all behind."""
    if not isinstance(padding, Pointer):
        raise TypeError(f"expected the array of the padding, got {shown(padding)}")
    for k, (before, behind) in enumerate(pairs):
        padding.memory.store(padding.offset + k, before)
        padding.memory.store(padding.offset + n + k, behind)


@function(7)
def _autopadding_conv(
    machine: CMachine, padding: Any, dims: Any, size: Any, stride: Any, dilation: Any, n: Any, mode: Any
) -> None:
    """`padding` as `mode` decides it: SAME_* for ceil(dim / stride) positions, VALID for none."""
    n = _count(n)
    if string_argument(mode) == "VALID":
        return _pad(padding, n, [(0, 0)] * n)
    pairs = []
    for i, k, s, d in zip(*(integers(a, n) for a in (dims, size, stride, dilation))):
        out = c_arithmetic("/", i + s - 1, s)
        pairs.append(_halved((out - 1) * s + (k - 1) * d + 1 - i, string_argument(mode)))
    return _pad(padding, n, pairs)


@function(9)
def _autopadding_deconv(machine: CMachine, padding: Any, dims: Any, output_dims: Any, size: Any, stride: Any,
                        output_padding: Any,
                        dilation: Any, n: Any, mode: Any) -> None:  # fmt: skip
    """`padding` as `mode` decides it: SAME_* cuts off what is more than `output_dims`."""
    n = _count(n)
    if string_argument(mode) == "VALID":
        return _pad(padding, n, [(0, 0)] * n)
    pairs = []
    for i, o, k, s, op, d in zip(
        *(integers(a, n) for a in (dims, output_dims, size, stride, output_padding, dilation))
    ):
        pairs.append(_halved(s * (i - 1) + op + (k - 1) * d + 1 - o, string_argument(mode)))
    return _pad(padding, n, pairs)


def _count(n: Any) -> int:
    if not 1 <= whole(n) <= 8:
        raise ValueError(f"{n} dimensions are padded; there are 1 to 8")
    return n


# -- types -----------------------------------------------------------------------------------------------------------


def _from_str(names: Sequence[str]) -> CFunction:
    """Upstream's conversions of strings: -1 for one that is no name."""
    return CFunction(lambda machine, name: NAMES[string_argument(name)] if string_argument(name) in names else -1, 1, 1)


@function(1)
def _size_of(machine: CMachine, dtype: Any) -> int:
    return dtype_of(dtype).tl_size


@function(1)
def _dtype_name(machine: CMachine, dtype: Any) -> str:
    return dtype_of(dtype).tl


@function(1)
def _dtype_max(machine: CMachine, dtype: Any) -> float:
    return float(dtype_of(dtype).limits[1])


@function(1)
def _dtype_min(machine: CMachine, dtype: Any) -> float:
    return float(dtype_of(dtype).limits[0])


@function(1)
def _tensor_size(machine: CMachine, tensor: Any) -> Any:
    """Bytes of a tensor."""
    fields = _tensor(tensor)
    return c_arithmetic("*", fields.get("len"), dtype_of(fields.get("dtype")).tl_size)


@function(2)
def _same_shape(machine: CMachine, a: Any, b: Any) -> int:
    one, other = (_tensor(t) for t in (a, b))
    return int(integers(one.get("dims"), one.get("ndim")) == integers(other.get("dims"), other.get("ndim")))


@function(1)
def _ws_len(machine: CMachine, tensor: Any) -> int:
    """Elements of the workspaces of TensorLight's dot product on cuda."""
    dims = _tensor(tensor).get("dims")
    return compile_constant(
        HELPERS["tl_tensor_dot_product_cuda_ws_len"][1](Array(tuple(map(Num, integers(dims, dims.memory.length)))))
    )(Env({}, {}))


def _tensor(value: Any) -> Struct:
    if not isinstance(value, Struct) or "dims" not in value.fields:
        raise TypeError(f"expected a tensor, got {shown(value)}")
    return value


# -- messages --------------------------------------------------------------------------------------------------------


@function(1, None)
def _warn(machine: CMachine, form: Any, *args: Any) -> None:
    warnings.warn(formatted(string_argument(form), args), DescriptionWarning, stacklevel=2)


@function(1, None)
def _fail(machine: CMachine, form: Any, *args: Any) -> None:
    raise CodeError(formatted(string_argument(form), args))


@function(1)
def _assert(machine: CMachine, condition: Any) -> None:
    if not machine.truth(condition):
        raise ValueError("the assertion does not hold")


#: Functions that give a value, or write memory of the code's own.
FUNCTIONS: Mapping[str, CFunction] = {
    **_REAL, **{f"{name}f": _floats(fn) for name, fn in _REAL.items() if name not in ("fmin", "fmax", "fabs")},
    "fabsf": _floats(_REAL["fabs"]), "fminf": _floats(_REAL["fmin"]), "fmaxf": _floats(_REAL["fmax"]), "abs": _abs,
    "labs": _abs,
    **{name: _helper(name) for name in
       ("ln_output_dim_conv", "ln_compute_output_dim", "ln_output_dim_deconv", "ln_next_multiple_power2")},
    "ln_compute_length": _compute_length, "ln_autopadding_conv": _autopadding_conv,
    "ln_autopadding_deconv": _autopadding_deconv,
    **memory.FUNCTIONS,
    **{name: _from_str(names) for name, names in CONVERSIONS.items()}, "tl_size_of": _size_of,
    "tl_dtype_name": _dtype_name,
    "tl_dtype_max_double": _dtype_max, "tl_dtype_min_double": _dtype_min, "tl_tensor_size": _tensor_size,
    "tl_tensor_issameshape": _same_shape,
    "tl_tensor_dot_product_cuda_ws_len": _ws_len,
    **dict.fromkeys(("ln_msg_warn", "ln_msg_inter_warn", "ln_msg_warn_sys"), _warn),
    **dict.fromkeys(("ln_msg_error", "ln_msg_inter_error", "ln_msg_error_sys"), _fail), "assert": _assert,
}  # fmt: skip
