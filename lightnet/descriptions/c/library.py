"""The functions of upstream's that compute shapes, constants and texts: what the C of descriptions may call at compile time.

Each takes the machine and the values of its arguments. What depends on an op (its checks), or on tensors (what a `run` calls), is in
the tables of `lightnet/descriptions/code*.py`. Imports the machine, `helpers`, the dtypes and the formats of `printf`.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lightnet.descriptions.c.machine import Function, Machine, arithmetic, function
from lightnet.descriptions.c.values import (
    MAX_TEXT,
    Buffer,
    CodeError,
    Enumerator,
    Float,
    Memory,
    Pointer,
    Raw,
    Struct,
    Symbol,
    shown,
    text_of,
)
from lightnet.descriptions.enumerators import CONVERSIONS, ENUMERATORS
from lightnet.descriptions.helpers import HELPERS
from lightnet.diagnostics import DescriptionWarning
from lightnet.ir.constants import Env, constant, round_half_away
from lightnet.ir.expr import Array, Num
from lightnet.runtime.dtypes import BY_NAME, BY_TL, DType

#: The length of upstream's buffers for a line.
LN_MAXLINE = 4096
#: The enumerators of C as values: a dtype is TensorLight's name of it, whichever name it was given by. Numbers count as upstream's do.
NAMES: dict[str, Any] = {
    **{name: Enumerator(name) for name in ENUMERATORS},
    **{name: Enumerator(name, k) for names in CONVERSIONS.values() for k, name in enumerate(names)},
    "LN_MAXLINE": LN_MAXLINE, "RAND_MAX": 2147483647, "LN_TRUE": 1, "LN_FALSE": 0, "true": 1, "false": 0, "INFINITY": math.inf, "NAN": math.nan,
}  # fmt: skip
_FORMAT = re.compile(r"%%|%[-+ #0]*(?:\d+|\*)?(?:\.(?:\d+|\*))?(?:hh|h|ll|l|z|j|t)?([diuoxXfFeEgGcsp])", re.ASCII)


# -- arguments -------------------------------------------------------------------------------------------------------


def whole(value: Any, what: str = "an integer") -> int:
    """An argument that is an integer."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"expected {what}, got {shown(value)}")
    return value


def text(value: Any) -> str:
    """An argument that is a string."""
    found = text_of(value)
    if found is None:
        raise TypeError(f"expected a string, got {shown(value)}")
    return found


def integers(value: Any, count: Any) -> list[int]:
    """The first `count` integers of an array."""
    if not isinstance(value, Pointer):
        raise TypeError(f"expected an array, got {shown(value)}")
    if not 0 <= whole(count) <= value.memory.length:
        raise IndexError(f"{count} elements are read of an array of {value.memory.length}")
    return [whole(v) for v in value.elements(count)]


def dtype_of(value: Any) -> DType:
    """The dtype that an enumerator is."""
    name = value.name if isinstance(value, Enumerator) else value
    if not isinstance(name, str) or (found := BY_TL.get(name) or BY_NAME.get(name)) is None:
        raise TypeError(f"{shown(value)} is no dtype")
    return found


def formatted(form: str, args: Sequence[Any]) -> str:
    """The text that `printf` makes; a value is shown as what it is, whatever its format says."""
    values = iter(args)

    def one(m: re.Match[str]) -> str:
        if m[0] == "%%":
            return "%"
        value = next(values, m[0])
        if isinstance(value, float) and m[1] in "fFeEgG" and "*" not in m[0]:
            return re.sub(r"h+|l+|[zjt]", "", m[0]) % value
        found = text_of(value)
        return found if found is not None else shown(value)

    found = _FORMAT.sub(one, form)
    if len(found) > MAX_TEXT:
        raise ValueError(f"a text of more than {MAX_TEXT} characters")
    return found


# -- numbers ---------------------------------------------------------------------------------------------------------


def _real(value: Any) -> float:
    if not isinstance(value, int | float):
        raise TypeError(f"expected a number, got {shown(value)}")
    return float(value)


def _math(compute: Callable[[float], float]) -> Function:
    def call(machine: Machine, x: Any) -> Any:
        if isinstance(x, Symbol):
            return x.unary(compute.__name__)
        try:
            return compute(_real(x))
        except OverflowError:
            return math.inf
        except ValueError:
            return -math.inf if compute is math.log and x == 0 else math.nan

    return Function(call, 1, 1)


def _floats(fn: Function) -> Function:
    """The variant of a function on C's `float`."""

    def call(machine: Machine, *args: Any) -> Any:
        found = fn.call(machine, *args)
        return Float(found) if isinstance(found, float) else found

    return fn._replace(call=call)


def ceil(x: float) -> float:
    return float(math.ceil(x)) if math.isfinite(x) else x


def floor(x: float) -> float:
    return float(math.floor(x)) if math.isfinite(x) else x


def trunc(x: float) -> float:
    return float(math.trunc(x)) if math.isfinite(x) else x


def fabs(x: float) -> float:
    return abs(x)


def round(x: float) -> float:
    return round_half_away(x)


def _two(pick: Callable[[float, float], float]) -> Function:
    def call(machine: Machine, a: Any, b: Any) -> float:
        try:
            return float(pick(_real(a), _real(b)))
        except (OverflowError, ValueError):
            return math.nan

    return Function(call, 2, 2)


_REAL = {
    "ceil": _math(ceil), "floor": _math(floor), "trunc": _math(trunc), "fabs": _math(fabs), "round": _math(round), "sqrt": _math(math.sqrt),
    "exp": _math(math.exp), "log": _math(math.log), "tanh": _math(math.tanh), "pow": _two(math.pow), "fmin": _two(min), "fmax": _two(max),
}  # fmt: skip


@function(1)
def _abs(machine: Machine, x: Any) -> int:
    return abs(whole(x))


def _helper(name: str) -> Function:
    """A function that `helpers` writes as an expression of integers."""
    count, build = HELPERS[name]

    def call(machine: Machine, *args: Any) -> Any:
        return constant(build(*(Num(whole(a)) for a in args)))(Env({}, {}))

    return Function(call, count, count)


@function(2)
def _compute_length(machine: Machine, ndim: Any, dims: Any) -> int:
    length = 1
    for d in integers(dims, ndim):
        length = arithmetic("*", length, d)
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
    machine: Machine, padding: Any, dims: Any, size: Any, stride: Any, dilation: Any, n: Any, mode: Any
) -> None:
    """`padding` as `mode` decides it: SAME_* for ceil(dim / stride) positions, VALID for none."""
    n = _count(n)
    if text(mode) == "VALID":
        return _pad(padding, n, [(0, 0)] * n)
    pairs = []
    for i, k, s, d in zip(*(integers(a, n) for a in (dims, size, stride, dilation))):
        out = arithmetic("/", i + s - 1, s)
        pairs.append(_halved((out - 1) * s + (k - 1) * d + 1 - i, text(mode)))
    return _pad(padding, n, pairs)


@function(9)
def _autopadding_deconv(machine: Machine, padding: Any, dims: Any, output_dims: Any, size: Any, stride: Any, output_padding: Any,
                        dilation: Any, n: Any, mode: Any) -> None:  # fmt: skip
    """`padding` as `mode` decides it: SAME_* cuts off what is more than `output_dims`."""
    n = _count(n)
    if text(mode) == "VALID":
        return _pad(padding, n, [(0, 0)] * n)
    pairs = []
    for i, o, k, s, op, d in zip(
        *(integers(a, n) for a in (dims, output_dims, size, stride, output_padding, dilation))
    ):
        pairs.append(_halved(s * (i - 1) + op + (k - 1) * d + 1 - o, text(mode)))
    return _pad(padding, n, pairs)


def _count(n: Any) -> int:
    if not 1 <= whole(n) <= 8:
        raise ValueError(f"{n} dimensions are padded; there are 1 to 8")
    return n


# -- memory ----------------------------------------------------------------------------------------------------------


@function(1)
def _alloc(machine: Machine, size: Any) -> Pointer:
    return Pointer(Raw(machine.allocate(size)))


@function(2)
def _clone(machine: Machine, source: Any, size: Any) -> Pointer:
    """A copy of the first `size` bytes of an array."""
    if not isinstance(source, Pointer) or not isinstance(source.memory, Buffer):
        raise TypeError(f"expected an array, got {shown(source)}")
    count = machine.allocate(size) // _element_size(source.memory)
    if source.offset + count > source.memory.length:
        raise IndexError(f"{size} bytes are read of {source.memory.what}, which has {source.memory.length} elements")
    return Pointer(Buffer(source.memory.type, source.elements(count), source.memory.what))


def _element_size(memory: Memory) -> int:
    from lightnet.descriptions.c.machine import element_type, size_of

    return size_of(element_type(memory))


@function(1)
def _free(machine: Machine, pointer: Any) -> None:
    if pointer is not None and not isinstance(pointer, Pointer):
        raise TypeError(f"{shown(pointer)} was not allocated")


@function(3)
def _memset(machine: Machine, target: Any, value: Any, size: Any) -> Any:
    """Zeros, in the first `size` bytes."""
    if not isinstance(target, Pointer):
        raise TypeError(f"expected memory, got {shown(target)}")
    if value != 0:
        raise ValueError("memset writes zeros here: assign the elements")
    fill = getattr(target.memory, "fill", None)
    if fill is not None:
        fill(target.offset, size)
    elif isinstance(target.memory, Buffer):
        for k in range(whole(size) // _element_size(target.memory)):
            target.memory.store(target.offset + k, 0)
    return target


@function(3)
def _memmove(machine: Machine, target: Any, source: Any, size: Any) -> Any:
    if not isinstance(target, Pointer) or not isinstance(source, Pointer):
        raise TypeError("expected two arrays")
    move = getattr(target.memory, "move", None)
    if move is not None:
        move(target.offset, source, size)
        return target
    for memory in (target.memory, source.memory):
        if not isinstance(memory, Buffer):
            raise TypeError(f"{memory.what if isinstance(memory, Raw) else 'this memory'} has no type to be moved as")
    if target.memory.type != source.memory.type:
        raise TypeError(f"memory of {source.memory.type} is moved to memory of {target.memory.type}")
    count = whole(size) // _element_size(target.memory)
    machine.spend(count)
    if not 0 <= count <= source.memory.length - source.offset:
        raise IndexError(f"{size} bytes are read of {source.memory.what}, which has {source.memory.length} elements")
    for k, value in enumerate(source.elements(count)):
        target.memory.store(target.offset + k, value)
    return target


# -- text ------------------------------------------------------------------------------------------------------------


@function(2)
def _streq(machine: Machine, a: Any, b: Any) -> int:
    return int(text(a) == text(b))


@function(2)
def _strcmp(machine: Machine, a: Any, b: Any) -> int:
    return (text(a) > text(b)) - (text(a) < text(b))


@function(1)
def _strlen(machine: Machine, a: Any) -> int:
    return len(text(a))


def _write(target: Any, written: str) -> Any:
    if (
        not isinstance(target, Pointer)
        or not isinstance(target.memory, Buffer)
        or target.memory.type != "char"
        or target.offset
    ):
        raise TypeError(f"expected an array of char, got {shown(target)}")
    target.memory.set_text(written)
    return target


@function(3)
def _sprint_shape(machine: Machine, target: Any, ndim: Any, dims: Any) -> Any:
    """``[1, 3, 8]`` in an array of char."""
    return _write(target, str(integers(dims, ndim)))


@function(2, None)
def _sprintf(machine: Machine, target: Any, form: Any, *args: Any) -> int:
    written = formatted(text(form), args)
    _write(target, written)
    return len(written)


@function(3, None)
def _snprintf(machine: Machine, target: Any, size: Any, form: Any, *args: Any) -> int:
    written = formatted(text(form), args)
    _write(target, written[: max(0, whole(size) - 1)])
    return len(written)


# -- types -----------------------------------------------------------------------------------------------------------


def _from_str(names: Sequence[str]) -> Function:
    """Upstream's conversions of strings: -1 for one that is no name."""
    return Function(lambda machine, name: NAMES[text(name)] if text(name) in names else -1, 1, 1)


@function(1)
def _size_of(machine: Machine, dtype: Any) -> int:
    return dtype_of(dtype).tl_size


@function(1)
def _dtype_name(machine: Machine, dtype: Any) -> str:
    return dtype_of(dtype).tl


@function(1)
def _dtype_max(machine: Machine, dtype: Any) -> float:
    return float(dtype_of(dtype).limits[1])


@function(1)
def _dtype_min(machine: Machine, dtype: Any) -> float:
    return float(dtype_of(dtype).limits[0])


@function(1)
def _tensor_size(machine: Machine, tensor: Any) -> Any:
    """Bytes of a tensor."""
    fields = _tensor(tensor)
    return arithmetic("*", fields.get("len"), dtype_of(fields.get("dtype")).tl_size)


@function(2)
def _same_shape(machine: Machine, a: Any, b: Any) -> int:
    one, other = (_tensor(t) for t in (a, b))
    return int(integers(one.get("dims"), one.get("ndim")) == integers(other.get("dims"), other.get("ndim")))


@function(1)
def _ws_len(machine: Machine, tensor: Any) -> int:
    """Elements of the workspaces of TensorLight's dot product on cuda."""
    dims = _tensor(tensor).get("dims")
    return constant(
        HELPERS["tl_tensor_dot_product_cuda_ws_len"][1](Array(tuple(map(Num, integers(dims, dims.memory.length)))))
    )(Env({}, {}))


def _tensor(value: Any) -> Struct:
    if not isinstance(value, Struct) or "dims" not in value.fields:
        raise TypeError(f"expected a tensor, got {shown(value)}")
    return value


# -- messages --------------------------------------------------------------------------------------------------------


@function(1, None)
def _warn(machine: Machine, form: Any, *args: Any) -> None:
    warnings.warn(formatted(text(form), args), DescriptionWarning, stacklevel=2)


@function(1, None)
def _fail(machine: Machine, form: Any, *args: Any) -> None:
    raise CodeError(formatted(text(form), args))


@function(1)
def _assert(machine: Machine, condition: Any) -> None:
    if not machine.truth(condition):
        raise ValueError("the assertion does not hold")


#: Functions that give a value, or write memory of the code's own.
FUNCTIONS: Mapping[str, Function] = {
    **_REAL, **{f"{name}f": _floats(fn) for name, fn in _REAL.items() if name not in ("fmin", "fmax", "fabs")},
    "fabsf": _floats(_REAL["fabs"]), "fminf": _floats(_REAL["fmin"]), "fmaxf": _floats(_REAL["fmax"]), "abs": _abs, "labs": _abs,
    **{name: _helper(name) for name in ("ln_output_dim_conv", "ln_output_dim_deconv", "ln_next_multiple_power2")},
    "ln_compute_length": _compute_length, "ln_autopadding_conv": _autopadding_conv, "ln_autopadding_deconv": _autopadding_deconv,
    **dict.fromkeys(("ln_alloc", "malloc"), _alloc), "ln_clone": _clone, **dict.fromkeys(("ln_free", "free"), _free),
    **dict.fromkeys(("memset", "ln_memset_cuda"), _memset),
    **dict.fromkeys(("memmove", "memcpy", "ln_memcpy_h2d", "ln_memcpy_d2h", "ln_memcpy_d2d"), _memmove),
    "ln_streq": _streq, "strcmp": _strcmp, "strlen": _strlen, "ln_sprint_shape": _sprint_shape, "sprintf": _sprintf, "snprintf": _snprintf,
    **{name: _from_str(names) for name, names in CONVERSIONS.items()}, "tl_size_of": _size_of, "tl_dtype_name": _dtype_name,
    "tl_dtype_max_double": _dtype_max, "tl_dtype_min_double": _dtype_min, "tl_tensor_size": _tensor_size, "tl_tensor_issameshape": _same_shape,
    "tl_tensor_dot_product_cuda_ws_len": _ws_len, **dict.fromkeys(("ln_msg_warn", "ln_msg_inter_warn", "ln_msg_warn_sys"), _warn),
    **dict.fromkeys(("ln_msg_error", "ln_msg_inter_error", "ln_msg_error_sys"), _fail), "assert": _assert,
}  # fmt: skip
