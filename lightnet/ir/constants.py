"""The values of constant expressions: what the checks, bounds and shapes of ops are computed with.

`compile_constant` compiles an AST into closures over an `Env` of tensor shapes and parameters; integers are bounded, so
that no expression takes long or much memory. Imports `expr`, the dtypes and `diagnostics`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, reduce
from typing import Any, NamedTuple, Protocol

from lightnet.diagnostics import LightNetError
from lightnet.ir.expr import (
    Array,
    ArraySlice,
    Attr,
    Binary,
    Call,
    Expr,
    Index,
    Name,
    Num,
    Pack,
    Select,
    Str,
    Unary,
    format_expr,
    parse_expr,
)
from lightnet.ir.functions import FLOAT_FUNCTIONS
from lightnet.runtime.dims import Dim, Size, dim_max, dim_min, is_known, is_same
from lightnet.runtime.dtypes import BY_NAME, BY_TL, DType

#: Integers of constant expressions stay below this many bits (`pow` would not).
MAX_BITS = 256

#: Elements of an array that is put together.
MAX_ELEMENTS = 1 << 20

#: A value of a constant expression; a number may be a dim that a call decides.
Value = bool | int | float | Dim | str | tuple[Any, ...] | None
NUMBER = int | float | Dim


class TensorLike(Protocol):
    """The part of a tensor that an expression may ask for (`ir.types.TensorSpec` is one)."""

    @property
    def dims(self) -> tuple[Size, ...]: ...
    @property
    def dtype(self) -> Any: ...


class Env(NamedTuple):
    """The meaning of the names in a constant expression. Numbers are ints or floats as their realtype says."""

    tensors: Mapping[str, Any]
    params: Mapping[str, Any]


def int_div(a: int, b: int) -> int:
    """Division that truncates toward zero, as in C; x/0 is 0."""
    if b == 0:
        return 0
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def _divide(a: float, b: float) -> float:
    """``a / b`` outside subscripts: integers truncate, x/0 is 0 for integers and as IEEE 754 says for floats."""
    if isinstance(a, int) and isinstance(b, int):
        return int_div(a, b)
    if isinstance(a, Dim):
        return a // b if a >= 0 and b > 0 else -(-a // b)
    if b == 0:
        return math.nan if a == 0 or a != a else math.copysign(math.inf, a) * math.copysign(1.0, b)
    return a / b


def _remainder(a: float, b: float) -> float:
    """``a % b`` outside subscripts: the sign of `a`, as in C; x%0 is 0 for integers."""
    if isinstance(a, int) and isinstance(b, int):
        return a - b * int_div(a, b) if b else 0
    if isinstance(a, Dim):
        return a - b * _divide(a, b)
    return math.fmod(a, b) if b != 0 and not math.isinf(a) else math.nan


def round_half_away(x: float) -> float:
    """Round to the nearest integer, halves away from zero, as C's `round`."""
    if isinstance(x, int | Dim) or not math.isfinite(x):
        return x
    whole = math.floor(abs(x))
    return math.copysign(whole + (abs(x) - whole >= 0.5), x)


def total_function(fn: Callable[[float], float]) -> Callable[[float], float]:
    """A function of `math` that gives infinity or NaN, as C's does, where Python's raises."""

    def wrapped(x: float) -> float:
        try:
            return fn(float(x))
        except OverflowError:
            return math.inf
        except ValueError:
            return -math.inf if fn is math.log and x == 0 else math.nan

    return wrapped


def _pow(a: float, b: float) -> float:
    if isinstance(a, Dim):
        return a**b
    if isinstance(a, int) and isinstance(b, int) and b >= 0:
        if a not in (-1, 0, 1) and b * abs(a).bit_length() > MAX_BITS:
            raise LightNetError(f"pow({a}, {b}) is too large")
        return a**b
    try:
        return math.pow(a, b)
    except OverflowError:
        pass
    except ValueError:
        if a != 0:
            return math.nan
    return math.copysign(math.inf, a) if b % 2 == 1 else math.inf


def _order(x: float) -> tuple[float, float]:
    """The order of numbers, -0 before 0 (IEEE 754-2019, minimum and maximum)."""
    return x, math.copysign(1.0, x) if x == 0 else 0.0


def _extreme(pick: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(*args: Any) -> Any:
        values = args[0] if len(args) == 1 and isinstance(args[0], tuple) else args
        if not values or not all(isinstance(v, NUMBER) for v in values):
            raise LightNetError("min and max take numbers or one array that is not empty")
        if not is_known(values):
            return reduce(dim_min if pick is min else dim_max, values)
        nan = next((v for v in values if v != v), None)
        return pick(values, key=_order) if nan is None else nan

    return wrapped


_smallest, _greatest = _extreme(min), _extreme(max)


def floor_modulo(a: float, b: float) -> float:
    """``floormod(a, b)``: the sign of `b`; x mod 0 is 0 for integers and NaN for floats (``a - b·floor(a / b)``)."""
    if isinstance(a, int | Dim) and isinstance(b, int):
        return a % b if b else 0
    return a % b if b != 0 and not math.isinf(a) and not math.isinf(b) else math.nan


def _bitwise(fn: Callable[[int, int], int]) -> Callable[[Any, Any], int]:
    def wrapped(a: Any, b: Any) -> int:
        if isinstance(a, float) or isinstance(b, float):
            raise LightNetError("bit operations take integers")
        return _number_check(fn(int(a), int(b)))

    return wrapped


def whole_float(rounding: Callable[[float], float]) -> Callable[[float], float]:
    """A rounding of Python's, which gives integers, as C has it: of floats to floats, with the sign of what it rounds.
    Integers stay."""
    return lambda x: x if isinstance(x, int | Dim) or not math.isfinite(x) else math.copysign(rounding(x), x)


def _whole(rounding: Callable[[float], int]) -> Callable[[float], float]:
    """A rounding to integers, which dims are made of; but -0, which is none, stays a float."""

    def wrapped(x: float) -> float:
        found = whole_float(rounding)(x)
        if isinstance(found, Dim):
            return found
        return found if not math.isfinite(x) or (found == 0 and math.copysign(1.0, found) < 0) else int(found)

    return wrapped


def _integer(x: Any) -> Any:
    if isinstance(x, Dim):
        return x
    if x != x:
        return 0
    return int(max(-(2.0**63), min(x, 2.0**63 - 1024))) if isinstance(x, float) else int(x)


def _product(values: tuple[Any, ...]) -> Any:
    result: Any = 1
    for v in values:
        result = _number_check(result * v)
    return result


def _inverse(axes: tuple[Any, ...]) -> tuple[int, ...]:
    if not _permutation(axes):
        raise LightNetError(f"{list(axes)} is no permutation")
    result = [0] * len(axes)
    for i, axis in enumerate(axes):
        result[int(axis)] = i
    return tuple(result)


def _permutation(axes: tuple[Any, ...]) -> bool:
    return sorted(axes) == list(range(len(axes)))


#: Functions of constant expressions on numbers: name → (number of arguments or None, function).
FUNCTIONS: dict[str, tuple[int | None, Callable[..., Any]]] = {
    "min": (None, _smallest),
    "max": (None, _greatest),
    "abs": (1, abs),
    **{name: (1, total_function(f.of_number)) for name, f in FLOAT_FUNCTIONS.items()},
    "isnan": (1, lambda x: x != x),
    "isinf": (1, lambda x: isinstance(x, float) and math.isinf(x)),
    "rint": (1, whole_float(round)),
    "floormod": (2, floor_modulo),
    "bitand": (2, _bitwise(operator.and_)),
    "bitor": (2, _bitwise(operator.or_)),
    "bitxor": (2, _bitwise(operator.xor)),
    "bitnot": (1, lambda x: _bitwise(lambda a, _: ~a)(x, 0)),
    "shl": (2, _bitwise(lambda a, n: a << n if 0 <= n < 64 else 0)),
    "shr": (2, _bitwise(lambda a, n: a >> (n if 0 <= n < 64 else 64))),
    "floor": (1, _whole(math.floor)),
    "ceil": (1, _whole(math.ceil)),
    "round": (1, round_half_away),
    "pow": (2, _pow),
    "clamp": (3, lambda x, lo, hi: x if x != x else _greatest(lo, _smallest(x, hi))),
    "int": (1, _integer),
}
#: Functions on arrays.
ARRAY_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "len": len,
    "sum": lambda a: _number_check(sum(a)),
    "prod": _product,
    "permutation": _permutation,
    "inverse": _inverse,
}
#: Functions of a dtype, by its name or TensorLight's: our name of it, and the bytes of an element.
DTYPE_FUNCTIONS: dict[str, Callable[[DType], Value]] = {"dtype": lambda d: d.name, "sizeof": lambda d: d.size}


def _number_check(value: Any) -> Any:
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise LightNetError("integer too large in a constant expression")
    return value


def _compare(op: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """Comparisons hold for every element: array with number, or arrays of one length."""

    def compare(a: Any, b: Any) -> bool:
        if isinstance(a, tuple) or isinstance(b, tuple):
            n = len(a) if isinstance(a, tuple) else len(b)
            left = a if isinstance(a, tuple) else (a,) * n
            right = b if isinstance(b, tuple) else (b,) * n
            return len(left) == len(right) and all(map(compare, left, right))
        if isinstance(a, str) != isinstance(b, str) and op is not is_same:
            raise LightNetError("a string is compared with a number")
        if (a is None or b is None) and op is not is_same:
            raise LightNetError("null is compared with a number")
        return op(a, b)

    return compare


_equal = _compare(is_same)
ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
    "%": _remainder,
}
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": _equal,
    "!=": lambda a, b: not _equal(a, b),
    "<": _compare(operator.lt),
    "<=": _compare(operator.le),
    ">": _compare(operator.gt),
    ">=": _compare(operator.ge),
}

Closure = Callable[[Env], Any]


def arithmetic(op: str, a: Any, b: Any) -> Any:
    """A binary operator on two numbers, with the checks that bound time and memory."""
    for v in (a, b):
        if not isinstance(v, NUMBER):
            raise LightNetError(f"operator '{op}' takes numbers, got {show_value(v)}")
    try:
        return _number_check(ARITHMETIC[op](int(a) if isinstance(a, bool) else a, int(b) if isinstance(b, bool) else b))
    except OverflowError:
        raise LightNetError(f"number out of range in {show_value(a)} {op} {show_value(b)}") from None


def apply_function(fn: str, args: Sequence[Any]) -> Any:
    """A function of constant expressions on values; an unknown one, or a wrong argument, is an error."""
    if fn in ARRAY_FUNCTIONS:
        if len(args) != 1 or not isinstance(args[0], tuple):
            raise LightNetError(f"{fn} takes one array")
        if fn != "len" and not all(isinstance(v, NUMBER) for v in args[0]):
            raise LightNetError(f"{fn} takes an array of numbers, got {show_value(args[0])}")
        return ARRAY_FUNCTIONS[fn](args[0])
    count, function = FUNCTIONS[fn]
    if count is not None and len(args) != count:
        raise LightNetError(f"{fn} takes {count} argument{'s' * (count != 1)}, got {len(args)}")
    whole = count is None and len(args) == 1
    for v in args:
        if not isinstance(v, NUMBER) and not (whole and isinstance(v, tuple)):
            raise LightNetError(f"{fn} takes numbers, got {show_value(v)}")
    return function(*args)


def tensor_attr(spec: TensorLike, attr: str) -> Value:
    """The value of ``tensor.attr``."""
    if attr == "dims":
        return tuple(spec.dims)
    if attr == "ndim":
        return len(spec.dims)
    if attr == "len":
        return math.prod(spec.dims)
    if attr == "dtype":
        return spec.dtype.name
    raise LightNetError("'.flat' is for subscripts")


def constant_element(values: Any, subs: Sequence[Any], what: str) -> Any:
    """``values[i]`` of a constant array, checked; ``values[array]`` is the array of those elements."""
    if not isinstance(values, tuple):
        raise LightNetError(f"'{what}' is no array: {show_value(values)}")
    if len(subs) != 1:
        raise LightNetError(f"'{what}' has one subscript, got {len(subs)}")
    i = subs[0]
    if isinstance(i, tuple):
        return tuple(constant_element(values, [k], what) for k in i)
    if isinstance(i, float) and i.is_integer():
        i = int(i)
    if isinstance(i, bool) or not isinstance(i, int) or not 0 <= i < len(values):
        raise LightNetError(f"subscript {show_value(i)} of '{what}' is not in 0..{len(values) - 1}")
    return values[i]


@lru_cache(4096)
def compile_constant(expr: Expr) -> Closure:
    """Compile a constant expression: a closure from an `Env` to a value. Wrong types or names raise `LightNetError`."""
    match expr:
        case Num(value=value) | Str(value=value):
            return lambda env: value
        case Name(name=name):
            return lambda env: _lookup(env, name)
        case Attr(base=base, attr=attr):
            return lambda env: tensor_attr(_tensor(env, base.name), attr)
        case Unary(op="!", arg=arg):
            inner = compile_constant(arg)
            return lambda env: not inner(env)
        case Unary(arg=arg):
            inner = compile_constant(arg)
            return lambda env: arithmetic("*", -1, inner(env))
        case Binary(op="&&", left=left, right=right):
            a, b = compile_constant(left), compile_constant(right)
            return lambda env: bool(a(env)) and bool(b(env))
        case Binary(op="||", left=left, right=right):
            a, b = compile_constant(left), compile_constant(right)
            return lambda env: bool(a(env)) or bool(b(env))
        case Binary(op=op, left=left, right=right):
            a, b = compile_constant(left), compile_constant(right)
            if op in COMPARISONS:
                compare = COMPARISONS[op]
                return lambda env: compare(a(env), b(env))
            return lambda env: arithmetic(op, a(env), b(env))
        case Select(cond=cond, then=then, other=other):
            c, a, b = compile_constant(cond), compile_constant(then), compile_constant(other)
            return lambda env: a(env) if c(env) else b(env)
        case Call():
            return _constant_call(expr)
        case Index():
            return _constant_index(expr)
        case Array(items=items):
            elements = [compile_constant(x) for x in items]
            return lambda env: _joined([x(env) for x in elements])
    raise LightNetError("this is no constant expression")


def _joined(values: Sequence[Any]) -> tuple[Any, ...]:
    """An array of elements, and of the elements of arrays among them."""
    if sum(len(v) if isinstance(v, tuple) else 1 for v in values) > MAX_ELEMENTS:
        raise LightNetError(f"an array of more than {MAX_ELEMENTS} elements")
    return tuple(v for value in values for v in (value if isinstance(value, tuple) else (value,)))


def _constant_call(expr: Call) -> Closure:
    args = [compile_constant(a) for a in expr.args]
    if expr.fn in DTYPE_FUNCTIONS:

        def of_dtype(env: Env) -> Value:
            name = args[0](env)
            found = BY_TL.get(name) or BY_NAME.get(name) if isinstance(name, str) else None
            if len(args) != 1 or found is None:
                raise LightNetError(f"unknown dtype {show_value(name)}")
            return DTYPE_FUNCTIONS[expr.fn](found)

        return of_dtype
    if expr.fn not in FUNCTIONS and expr.fn not in ARRAY_FUNCTIONS:
        known = sorted([*FUNCTIONS, *ARRAY_FUNCTIONS, *DTYPE_FUNCTIONS])
        raise LightNetError(f"unknown function '{expr.fn}'; there are: {', '.join(known)}")
    return lambda env: apply_function(expr.fn, [a(env) for a in args])


def _constant_index(expr: Index) -> Closure:
    base, what = compile_constant(expr.base), format_expr(expr.base)
    if expr.filler is None and len(expr.subs) == 1 and isinstance(part := expr.subs[0], ArraySlice):
        start, stop = compile_constant(part.start), compile_constant(part.stop)
        return lambda env: _slice(base(env), start(env), stop(env), what)
    plain = [s for s in expr.subs if not isinstance(s, Pack | ArraySlice)]
    if expr.filler is not None or len(plain) < len(expr.subs):
        raise LightNetError(f"'{format_expr(expr)}' is no constant expression")
    subs = [compile_constant(s) for s in plain]
    return lambda env: constant_element(base(env), [s(env) for s in subs], what)


def _slice(values: Any, start: Any, stop: Any, what: str) -> tuple[Any, ...]:
    if not isinstance(values, tuple) or not isinstance(start, int) or not isinstance(stop, int):
        raise LightNetError(f"'{what}[start:stop]' wants an array and integers")
    if not 0 <= start <= stop <= len(values):
        raise LightNetError(f"slice {start}:{stop} of '{what}' is not in 0..{len(values)}")
    return values[start:stop]


def _lookup(env: Env, name: str) -> Value:
    if name in env.params:
        value = env.params[name]
        return tuple(value) if isinstance(value, list) else value
    if name in env.tensors:
        raise LightNetError(f"'{name}' is a tensor: its values are no constants")
    raise LightNetError(f"unknown name '{name}'; there are: {', '.join(sorted([*env.params, *env.tensors]))}")


def _tensor(env: Env, name: str) -> TensorLike:
    if name not in env.tensors:
        raise LightNetError(f"unknown tensor '{name}'; there are: {', '.join(sorted(env.tensors))}")
    return env.tensors[name]


@lru_cache(4096)
def _compiled_text(text: str, file: str) -> Closure:
    return compile_constant(parse_expr(text, file))


def evaluate(text: str | Expr, env: Env, file: str = "<expression>") -> Value:
    """The value of a constant expression in `env`. Raises `LightNetError`."""
    try:
        return (_compiled_text(text, file) if isinstance(text, str) else compile_constant(text))(env)
    except RecursionError:
        raise LightNetError("expression too deep") from None


class Failure(NamedTuple):
    """The reason why a constraint does not hold: the part that fails; both sides' values when it is a comparison."""

    text: str
    got: Value
    expected: Value
    is_comparison: bool

    @property
    def sides(self) -> str:
        return f"{show_value(self.got)} against {show_value(self.expected)}"

    def __str__(self) -> str:
        return f"'{self.text}' does not hold" + (f": {self.sides}" if self.is_comparison else "")


def failure(text: str | Expr, env: Env) -> Failure | None:
    """None when the constraint holds in `env`; else its first conjunct that fails, `got` left and `expected` right."""
    if evaluate(text, env):
        return None
    expr = parse_expr(text) if isinstance(text, str) else text
    while isinstance(expr, Binary) and expr.op == "&&":
        expr = expr.left if not compile_constant(expr.left)(env) else expr.right
    if isinstance(expr, Binary) and expr.op in COMPARISONS:
        return Failure(format_expr(expr), compile_constant(expr.left)(env), compile_constant(expr.right)(env), True)
    return Failure(format_expr(expr), False, True, False)


def show_value(value: Any) -> str:
    """A value for an error message."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return f"[{', '.join(map(show_value, value))}]"
    return f'"{value}"' if isinstance(value, str) else "null" if value is None else repr(value)
