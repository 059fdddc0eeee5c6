"""The elementary functions of the GPU: which there are, and how ops of `math` come to them.

LLVM's NVPTX has no library: a call of ``llvm.log.f32`` ends the process. So a kernel calls functions of our own,
``@ln.log.f32``, whose definitions go into the module (`definitions`). They use the basic operations only, so they give
the same bits on every device, in the interpreter of PTX, and on a CPU.

Of float, exp, erf and tanh are those of the CPU's kernels; log, sin and cos are computed in float, the others in double
and rounded, which costs little on sm_80 and sm_90 (half the rate of float). A quotient that is rounded to 16 bits next
is only within 2 units in the last place of float (``div.full``, ``div.approx``): the exact one is a branch, and some
five times the instructions. The largest errors found with 400,000 arguments a range, in units in the last place
(`tests/test_cuda_math.py` holds them against 20,000):

* float: log 0.84, sin 1.46, cos 1.49 (whatever the size of the argument); those computed in double 0.5;
* double: log2, log10, cbrt 0.5, pow 0.53, cos, sin 0.76, exp, exp2 0.92, log 1.2, asinh, expm1, log1p 1.8, atan2, erf
  2.0, acosh, atan, tan 2.1, atanh, tanh 2.5, asin, cosh, sinh 2.7, acos 2.8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.dialects import math as ops
from xdsl.dialects.builtin import bf16, f16, f32
from xdsl.ir import Operation
from xdsl.utils.type import get_element_type_or_self

from lightnet.backends.cuda import math_circle, math_double
from lightnet.backends.cuda.math_code import SUFFIX, Code, Value, function_text
from lightnet.backends.llvm import elementary
from lightnet.backends.llvm.elementary import Emit
from lightnet.backends.llvm.function import Function
from lightnet.backends.llvm.scalar_ops import ELEMENTWISE
from lightnet.backends.llvm.short_floats import element
from lightnet.dialects import tile_arith

PREFIX = "ln."
_SHORT = (f16, bf16)
#: Name -> number of arguments, definition of double.
DOUBLE: dict[str, tuple[int, Callable[..., Value]]] = {
    "exp": (1, math_double.exp), "exp2": (1, math_double.exp2), "expm1": (1, math_double.expm1),
    "log": (1, math_double.log), "log1p": (1, math_double.log1p), "log2": (1, math_double.log2),
    "log10": (1, math_double.log10), "pow": (2, math_double.pow), "cbrt": (1, math_double.cbrt),
    "sinh": (1, math_double.sinh), "cosh": (1, math_double.cosh), "tanh": (1, math_double.tanh),
    "asinh": (1, math_double.asinh), "acosh": (1, math_double.acosh), "atanh": (1, math_double.atanh),
    "sin": (1, math_circle.sin), "cos": (1, math_circle.cos), "tan": (1, math_circle.tan_),
    "asin": (1, math_circle.asin), "acos": (1, math_circle.acos), "atan": (1, math_circle.atan),
    "atan2": (2, math_circle.atan2), "erf": (1, math_circle.erf),
}  # fmt: skip
#: Those of float that are not computed in double.
FLOAT: dict[str, Callable[..., Value]] = {
    "log": math_double.log_float,
    "sin": math_circle.sin_float,
    "cos": math_circle.cos_float,
}


def is_function(declaration: str) -> bool:
    """Whether a line declares one of our functions."""
    return f"@{PREFIX}" in declaration


@dataclass(frozen=True)
class Definitions:
    """Texts of functions, and the declarations that they need."""

    texts: list[str]
    declared: list[str]


def definitions(declarations: Iterable[str]) -> Definitions:
    """The definitions of the functions that these lines declare, and of those which they call."""
    waiting, texts, declared = sorted(declarations), {}, set()
    while waiting:
        symbol = waiting.pop().partition("@")[2].partition("(")[0]
        if symbol in texts:
            continue
        texts[symbol], needed = definition(symbol)
        ours = {line for line in needed if line.startswith("declare") and is_function(line)}
        waiting += sorted(ours)
        declared |= needed - ours
    return Definitions([texts[symbol] for symbol in sorted(texts)], sorted(declared))


def definition(symbol: str) -> tuple[str, set[str]]:
    """The text of a function by its symbol (``ln.log.f32``), and the declarations that it needs."""
    _, name, suffix = symbol.split(".")
    arity, body = DOUBLE[name]
    if suffix == "f64":
        return function_text(symbol, "double", arity, body)
    return function_text(symbol, "float", arity, FLOAT.get(name, _in_double(name)))


def _in_double(name: str) -> Callable[..., Value]:
    """A function of float, as that of double, rounded."""

    def body(c: Code, *args: Value) -> Value:
        wide = [c.cast("fpext", x, "double") for x in args]
        return c.cast("fptrunc", c.called(f"{PREFIX}{name}.f64", "double", *wide), "float")

    return body


def _call(name: str, float_: Emit | None = None) -> Emit:
    """Calls of a function; of float, `float_` where it is given."""

    def emit(e: Function, op: Operation, a: list[str], t: str, r: str, lanes: int) -> str:
        assert lanes == 1
        if float_ is not None and element(r) == "float":
            return float_(e, op, a, t, r, lanes)
        return e.ins(e.call_text(f"{PREFIX}{name}.{SUFFIX[r]}", r, [(r, x) for x in a]))

    return emit


def _is_rounded(op: Operation) -> bool:
    """Whether a result is of 16 bits, or of float and rounded to those by whoever reads it."""
    type = get_element_type_or_self(op.results[0].type)
    if type != f32:
        return type in _SHORT
    casts = (arith.TruncFOp, tile_arith.CastOp)
    users = [use.operation for use in op.results[0].uses]
    return bool(users) and all(
        isinstance(u, casts) and get_element_type_or_self(u.results[0].type) in _SHORT for u in users
    )


def _divide(e: Function, op: Operation, a: list[str], t: str, r: str, lanes: int) -> str:
    if r == "float" and _is_rounded(op):
        return e.ins(e.call_text("llvm.nvvm.div.full", "float", [("float", x) for x in a]))
    return ELEMENTWISE[arith.DivfOp](e, op, a, t, r, lanes)


def _rational(emit: Callable[..., str]) -> Emit:
    """A function of float whose divisor is neither very large nor very small."""

    def divided(e: Function, op: Operation, a: list[str], t: str, r: str, lanes: int) -> str:
        return emit(e, op, a, t, r, lanes, "fdiv afn" if _is_rounded(op) else "fdiv")

    return divided


#: The emitters of ops that need a library elsewhere, or that the device has instructions of its own for.
ELEMENTARY: dict[type[Operation], Emit] = {
    ops.ExpOp: _call("exp", elementary.exp), ops.Exp2Op: _call("exp2"), ops.ExpM1Op: _call("expm1"),
    ops.LogOp: _call("log"), ops.Log1pOp: _call("log1p"), ops.Log2Op: _call("log2"), ops.Log10Op: _call("log10"),
    ops.PowFOp: _call("pow"), ops.CbrtOp: _call("cbrt"),
    ops.SinhOp: _call("sinh"), ops.CoshOp: _call("cosh"), ops.TanhOp: _call("tanh", _rational(elementary.tanh)),
    ops.AsinhOp: _call("asinh"), ops.AcoshOp: _call("acosh"), ops.AtanhOp: _call("atanh"),
    ops.SinOp: _call("sin"), ops.CosOp: _call("cos"), ops.TanOp: _call("tan"),
    ops.AsinOp: _call("asin"), ops.AcosOp: _call("acos"), ops.AtanOp: _call("atan"), ops.Atan2Op: _call("atan2"),
    ops.ErfOp: _call("erf", _rational(elementary.erf)),
    arith.DivfOp: _divide,
}  # fmt: skip
