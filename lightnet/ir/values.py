"""Values of index notation and their types: what operators and functions make of values that are bound already.

A constant or an index is *weak*: it takes the dtype of its partner. What is known is folded. `notation.py` binds the
names and reads that the values come from. Imports `bound`, `constants`, `conversions` and the dtypes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError
from lightnet.ir import constants
from lightnet.ir.bound import BOOL, F64, I64, Apply, Const, Node
from lightnet.ir.conversions import as_stored, cast, not_finite, saturated, widened_value, wrap
from lightnet.ir.functions import FLOAT_FUNCTIONS
from lightnet.runtime.dims import Dim, Undecided, least
from lightnet.runtime.dtypes import BY_NAME, DTYPES, DType


@dataclass(frozen=True, slots=True)
class Typed:
    """A bound expression; `weak` ones (constants, indices) take the dtype of their partner."""

    node: Node
    weak: bool = False


_ROUNDINGS = ("floor", "ceil", "round", "rint")
_TESTS = ("isnan", "isinf")
_BITS = ("bitand", "bitor", "bitxor", "bitnot", "shl", "shr")
CONVERSIONS = ("sat", "wrap", "bitcast")
RUNTIME_FUNCTIONS = (
    *(*FLOAT_FUNCTIONS, *_ROUNDINGS, *_TESTS, *_BITS, *CONVERSIONS),
    *("min", "max", "abs", "pow", "floormod", "clamp", *(d.name for d in DTYPES)),
)
#: Every function that a definition may call.
FUNCTION_NAMES = frozenset(
    (*RUNTIME_FUNCTIONS, *constants.FUNCTIONS, *constants.ARRAY_FUNCTIONS, *constants.DTYPE_FUNCTIONS)
)
#: How many arguments a function takes, at least and at most; the others take one.
_COUNTS = {"clamp": (3, 3), "min": (2, 8), "max": (2, 8)} | dict.fromkeys(
    ("pow", "floormod", "bitand", "bitor", "bitxor", "shl", "shr"), (2, 2)
)
_ARITHMETIC = {"+": "add", "-": "sub", "*": "mul", "/": "div", "%": "rem"}
#: operator → (bound function, swap the arguments)
_COMPARE = {
    "<": ("lt", False),
    "<=": ("le", False),
    ">": ("lt", True),
    ">=": ("le", True),
    "==": ("eq", False),
    "!=": ("ne", False),
}


def weak_constant(value: Any) -> Typed:
    """A weak constant; bools are strong."""
    if isinstance(value, bool):
        return Typed(Const(value, BOOL))
    return Typed(Const(value, F64 if isinstance(value, float) else I64), True)


def reduction_identity(op: str, dtype: DType) -> bool | float:
    """The result of a reduction over nothing, before it is converted to `dtype` (saturating)."""
    if op in ("+=", "*="):
        return int(op == "*=")
    if dtype.kind == "bool":
        return op == "min="
    return -math.inf if op == "max=" else math.inf


class Typing:
    """Operators and functions on bound values. `fail` raises an error at a position of the text."""

    def __init__(self, fail: Callable[[str, int], NoReturn]):
        self.fail = fail

    def unary(self, op: str, x: Typed, pos: int) -> Typed:
        if op == "!":
            flag = self.condition(x)
            return Typed(Const(not flag.value, BOOL) if isinstance(flag, Const) else Apply("not", (flag,), BOOL))
        x = self.promoted(x)
        if isinstance(x.node, Const) and x.weak:
            return weak_constant(-x.node.value)
        return Typed(Apply("neg", (x.node,), x.node.dtype), x.weak)

    def condition(self, x: Typed) -> Node:
        if x.node.dtype is BOOL:
            return x.node
        if isinstance(x.node, Const) and not isinstance(x.node.value, Dim):
            return Const(x.node.value != 0, BOOL)
        return Apply("ne", (x.node, cast(Const(0, I64), x.node.dtype)), BOOL)

    def promoted(self, x: Typed) -> Typed:
        """Arithmetic on bools is done in i32, as in C."""
        return Typed(cast(x.node, BY_NAME["i32"]), x.weak) if x.node.dtype is BOOL else x

    def partners(self, a: Typed, b: Typed, pos: int, what: str) -> tuple[Node, Node, bool]:
        """Both in one dtype: the partner's for a weak one, double for an integer and a double constant."""
        if a.weak and b.weak:
            dtype = F64 if F64 in (a.node.dtype, b.node.dtype) else I64
            return cast(a.node, dtype), cast(b.node, dtype), True
        if a.weak or b.weak:
            dtype = b.node.dtype if a.weak else a.node.dtype
            return cast(a.node, dtype), cast(b.node, dtype), False
        if a.node.dtype is not b.node.dtype:
            self.fail(f"{what} mixes {a.node.dtype} and {b.node.dtype}; convert one of them", pos)
        return a.node, b.node, False

    def binary(self, op: str, a: Typed, b: Typed, pos: int, indexing: bool = False) -> Typed:
        """Arithmetic or a comparison; what is `indexing` (inside of a subscript) divides rounding down, as indices
        do."""
        a, b = self.promoted(a), self.promoted(b)
        if a.weak and b.weak and isinstance(a.node, Const) and isinstance(b.node, Const):
            with suppress(Undecided):  # what each call decides is computed there
                return self._fold_binary(op, a.node.value, b.node.value, pos, indexing)
        x, y, weak = self.partners(a, b, pos, f"operator '{op}'")
        if op in _COMPARE:
            fn, swap = _COMPARE[op]
            return Typed(Apply(fn, (y, x) if swap else (x, y), BOOL))
        fn = _ARITHMETIC[op]
        if indexing and fn in ("div", "rem"):
            if not isinstance(y, Const) or x.dtype is not I64 or least(y.value) <= 0:
                self.fail(f"'{op}' in a subscript takes a positive constant on its right", pos)
            fn = "floordiv" if fn == "div" else "mod"
        return Typed(Apply(fn, (x, y), x.dtype), weak)

    def _fold_binary(self, op: str, a: Any, b: Any, pos: int, indexing: bool) -> Typed:
        if op in _COMPARE:
            return Typed(Const(constants.COMPARISONS[op](a, b), BOOL))
        if indexing and op in ("/", "%") and isinstance(a, int | Dim) and isinstance(b, int | Dim):
            if least(b) <= 0:
                self.fail(f"'{op}' in a subscript takes a positive constant on its right", pos)
            return weak_constant(a // b if op == "/" else a % b)
        try:
            return weak_constant(constants.arithmetic(op, a, b))
        except Undecided:
            raise
        except LightNetError as error:
            self.fail(error.message, pos)

    def call(self, fn: str, values: list[Typed], pos: int) -> Typed:
        """One of `RUNTIME_FUNCTIONS`."""
        low, high = _COUNTS.get(fn, (1, 1))
        if not low <= len(values) <= high:
            self.fail(f"{fn} takes {low} argument{'s' * (low > 1)}, got {len(values)}", pos)
        known = [v.node.value for v in values if v.weak and isinstance(v.node, Const)]
        if len(known) == len(values):
            with suppress(Undecided):
                return self._constant_call(fn, known, pos)
        if fn in _BITS and all(v.node.dtype is BOOL for v in values):
            return self._bool_bits(fn, [v.node for v in values], pos)
        values = [self.promoted(v) for v in values]
        if fn in _BITS:
            return self._bits(fn, values, pos)
        if fn == "floormod":
            a, b = values
            return self._floor_modulo(a, b, pos)
        if fn == "clamp":
            return self._two("min", self._two("max", values[0], values[1], pos), values[2], pos)
        if len(values) > 1:
            total = values[0]
            for value in values[1:]:
                total = self._two(fn, total, value, pos)
            return total
        return self._one(fn, values[0], pos)

    def select(self, cond: Node, a: Typed, b: Typed, pos: int) -> Typed:
        x, y, weak = self.partners(a, b, pos, "'?:'")
        return Typed(Apply("select", (cond, x, y), x.dtype), weak)

    def logical(self, op: str, a: Node, b: Node) -> Typed:
        """``&&`` or ``||``."""
        if isinstance(a, Const):
            return Typed(b if bool(a.value) == (op == "&&") else a)
        return Typed(Apply("and" if op == "&&" else "or", (a, b), BOOL))

    def _constant_call(self, fn: str, values: list[Any], pos: int) -> Typed:
        try:
            return weak_constant(constants.apply_function(fn, values))
        except Undecided:
            raise
        except LightNetError as error:
            self.fail(error.message, pos)

    def _bool_bits(self, fn: str, args: list[Node], pos: int) -> Typed:
        """Bit operations on bools are the logical ones."""
        if fn in ("shl", "shr"):
            self.fail(f"{fn} takes integers, got {BOOL}", pos)
        names = {"bitand": "and", "bitor": "or", "bitxor": "ne", "bitnot": "not"}
        return Typed(Apply(names[fn], tuple(args), BOOL))

    def _bits(self, fn: str, values: list[Typed], pos: int) -> Typed:
        if fn == "bitnot":  # ~x = x ^ (all ones)
            dtype = values[0].node.dtype
            ones = -1 if dtype.kind == "int" else (1 << dtype.bits) - 1
            fn, values = "bitxor", [values[0], Typed(Const(ones, dtype))]
        a, b = values
        x, y, weak = self.partners(a, b, pos, fn)
        if x.dtype.is_float:
            self.fail(f"{fn} takes integers, got {x.dtype}", pos)
        return Typed(Apply(fn, (x, y), x.dtype), weak)

    def _floor_modulo(self, a: Typed, b: Typed, pos: int) -> Typed:
        """The remainder with the sign of `b`, out of what there is: ``a - b·floor(a / b)``; a remainder moved by `b`
        where the signs differ; in i64 by a positive constant, the modulo of index arithmetic."""
        x, y, weak = self.partners(a, b, pos, "floormod")
        dtype = x.dtype
        if dtype.is_float:
            whole = Apply("floor", (Apply("div", (x, y), dtype),), dtype)
            return Typed(Apply("sub", (x, Apply("mul", (y, whole), dtype)), dtype), weak)
        if dtype is I64 and isinstance(y, Const) and least(y.value) > 0:
            return Typed(Apply("mod", (x, y), I64), weak)
        rest, zero = Apply("rem", (x, y), dtype), cast(Const(0, I64), dtype)
        if dtype.kind == "uint":
            return Typed(rest, weak)
        signs = tuple(Apply("lt", (v, zero), BOOL) for v in (rest, y))
        other = Apply("and", (Apply("ne", (rest, zero), BOOL), Apply("ne", signs, BOOL)), BOOL)
        return Typed(Apply("select", (other, Apply("add", (rest, y), dtype), rest), dtype), weak)

    def _two(self, fn: str, a: Typed, b: Typed, pos: int) -> Typed:
        x, y, weak = self.partners(a, b, pos, fn)
        return Typed(Apply(fn, (x, y), x.dtype), weak)

    def _one(self, fn: str, x: Typed, pos: int) -> Typed:
        if fn in _TESTS:
            return Typed(not_finite(fn, x.node))
        if fn in _ROUNDINGS and not x.node.dtype.is_float:
            return x
        if fn in FLOAT_FUNCTIONS and not x.node.dtype.is_float:
            if not x.weak:
                self.fail(f"{fn} takes floats, got {x.node.dtype}", pos)
            x = Typed(cast(x.node, F64), True)
        if fn == "abs" and x.node.dtype.kind == "uint":
            return x
        return Typed(Apply(fn, (x.node,), x.node.dtype), x.weak)

    def converted(self, fn: str, node: Node, dtype: DType, pos: int) -> Typed:
        """A value in another type: by one of `CONVERSIONS`, or by the type's own name."""
        if fn == "bitcast":
            node = as_stored(node)
            if BOOL in (node.dtype, dtype) or node.dtype.size != dtype.size:
                self.fail(f"bitcast of {node.dtype} to {dtype}: no two numbers of one size", pos)
            return Typed(widened_value(node if node.dtype is dtype else Apply("bitcast", (node,), dtype)))
        convert = {"wrap": wrap, "sat": saturated}.get(fn, cast)
        return Typed(widened_value(convert(node, dtype)))
