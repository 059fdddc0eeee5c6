"""Constant expressions: every operator and function at the edges of its domain against C's, as NumPy has it, and Python's integers; what is refused."""

from __future__ import annotations

import itertools
import math
import operator
from typing import Any

import numpy as np
import pytest

from lightnet.diagnostics import LightNetError
from lightnet.ir import constants
from lightnet.ir.affine import dtype_range
from lightnet.ir.constants import Env, compile_constant, show_value
from lightnet.ir.expr import parse_expr
from lightnet.runtime.dtypes import BY_NAME

FLOATS = [
    0.0,
    -0.0,
    0.5,
    -0.5,
    1.0,
    -1.0,
    1.5,
    -1.5,
    2.5,
    -2.5,
    3.0,
    711.0,
    712.0,
    -800.0,
    1e300,
    -1e300,
    5e-324,
    -5e-324,
    2.2250738585072014e-308 / 3,
    0.49999999999999994,
    -0.49999999999999994,
    4503599627370495.5,
    -4503599627370497.0,
    1.7976931348623157e308,
    -1.7976931348623157e308,
    math.inf,
    -math.inf,
    math.nan,
]
INTS = [0, 1, -1, 2, -2, 3, 7, -7, 62, 63, 64, 65]


def same(found: Any, want: Any, what: str) -> None:
    """Equal within two roundings, NaN where that is NaN, the sign of zeros and infinities with it."""
    found, want = float(found), float(want)
    if math.isnan(want):
        assert math.isnan(found), what
    elif math.isinf(want) or want == 0:
        assert found == want and math.copysign(1, found) == math.copysign(1, want), (what, found, want)
    else:
        assert math.isclose(found, want, rel_tol=1e-13), (what, found, want)


NAMES = {"asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "abs": np.abs,
         "round": lambda x: x if abs(x) >= 2**52 else np.copysign(np.trunc(x) + (abs(x - np.trunc(x)) >= 0.5) * np.sign(x), x), "erf": lambda x: np.float64(math.erf(x)),
         **{n: getattr(np, n) for n in ("exp", "log", "sqrt", "sin", "cos", "tan", "tanh", "sinh", "cosh", "floor", "ceil", "rint", "isnan", "isinf")}}  # fmt: skip
#: Functions that have a test of their own below.
OTHERS = {"min", "max", "clamp", "pow", "floormod", "int", "bitand", "bitor", "bitxor", "bitnot", "shl", "shr"}


def test_every_function_has_an_oracle() -> None:
    assert NAMES.keys() | OTHERS == constants.FUNCTIONS.keys()


def test_extremes_order_zeros() -> None:
    """-0 is before 0, NaN is what it meets; as NumPy has it, which leaves the sign of equal zeros to the machine."""
    for a, b in itertools.product(FLOATS, FLOATS):
        for name, pick in (("min", np.minimum), ("max", np.maximum)):
            want = pick(np.float64(a), np.float64(b))
            if a == b == 0:
                want = math.copysign(0, (min if name == "min" else max)(math.copysign(1, a), math.copysign(1, b)))
            same(constants.apply_function(name, [a, b]), want, f"{name}({a}, {b})")
            same(constants.apply_function(name, [(a, b, a)]), want, f"{name}([{a}, {b}, {a}])")
        for x in FLOATS if a <= b else ():
            same(constants.apply_function("clamp", [x, a, b]) + 0.0, np.clip(x, a, b) + 0.0, f"clamp({x}, {a}, {b})")


@np.errstate(all="ignore")
@pytest.mark.parametrize("name", sorted(NAMES))
def test_functions_of_a_float(name: str) -> None:
    """What is outside of the domain is NaN, what is too large infinite."""
    for x in FLOATS:
        found = constants.apply_function(name, [x])
        is_whole = name in ("floor", "ceil") and math.isfinite(x) and str(float(found)) != "-0.0"
        assert type(found) is (bool if name.startswith("is") else int if is_whole else float), (name, x)
        same(found, NAMES[name](np.float64(x)), f"{name}({x})")


@np.errstate(all="ignore")
def test_operators_of_floats() -> None:
    for a, b in itertools.product(FLOATS, FLOATS):
        for op, oracle in (
            ("/", np.true_divide),
            ("%", np.fmod),
            ("+", np.add),
            ("-", np.subtract),
            ("*", np.multiply),
        ):
            same(constants.arithmetic(op, a, b), oracle(np.float64(a), np.float64(b)), f"{a} {op} {b}")
        same(constants.apply_function("pow", [a, b]), np.float_power(a, b), f"pow({a}, {b})")


def test_operators_of_integers() -> None:
    """Division cuts, and by 0 is 0; ``floormod`` has the sign of its second operand."""
    for a, b in itertools.product(INTS, INTS):
        quotient = int(math.copysign(abs(a) // abs(b), a * b)) if b else 0
        assert constants.arithmetic("/", a, b) == quotient and constants.arithmetic("%", a, b) == (
            a - b * quotient if b else 0
        ), (
            a,
            b,
        )
        assert constants.apply_function("floormod", [a, b]) == (a % b if b else 0), (a, b)
        for fn, oracle in (("bitand", operator.and_), ("bitor", operator.or_), ("bitxor", operator.xor)):
            assert constants.apply_function(fn, [a, b]) == oracle(a, b), (fn, a, b)
        inside = 0 <= b < 64
        assert constants.apply_function("shl", [a, b]) == (a << b if inside else 0), (a, b)
        assert constants.apply_function("shr", [a, b]) == (a >> b if inside else -(a < 0)), (a, b)
        if b >= 0 and abs(a) > 1 and b * abs(a).bit_length() > constants.MAX_BITS:
            with pytest.raises(LightNetError, match="is too large"):
                constants.apply_function("pow", [a, b])
        elif b >= 0:
            assert constants.apply_function("pow", [a, b]) == a**b and isinstance(
                constants.apply_function("pow", [a, b]), int
            )
    assert constants.apply_function("pow", [2, -2]) == 0.25


@np.errstate(all="ignore")
def test_remainders_of_floats() -> None:
    """``floormod`` is NumPy's mod where both are finite; of infinities it is NaN."""
    for a, b in itertools.product(FLOATS, FLOATS):
        if math.isfinite(a) and math.isfinite(b):
            same(
                constants.apply_function("floormod", [a, b]),
                np.mod(np.float64(a), np.float64(b)),
                f"floormod({a}, {b})",
            )
        else:
            assert math.isnan(constants.apply_function("floormod", [a, b])), (a, b)


@pytest.mark.parametrize(("text", "value"), [
    ("round(2.5)", 3), ("round(-2.5)", -3), ("round(0.49)", 0), ("round(-0.5)", -1), ("round(7)", 7), ("round(inf)", math.inf), ("floor(-inf)", -math.inf), ("ceil(3)", 3),
    ("int(-2.9)", -2), ("int(2.9)", 2), ("int(inf - inf)", 0), ("int(inf)", 2**63 - 1024), ("int(-inf)", -(2**63)), ("int(7)", 7), ("int(9223372036854775807)", 2**63 - 1),
    ("int(1e19)", 2**63 - 1024), ("int(-1e19)", -(2**63)), ("clamp(5, 1, 3)", 3), ("clamp(0, 1, 3)", 1), ("clamp(2, 1, 3)", 2), ("clamp(5, 3, 1)", 3),
    ("min(3, 1, 2)", 1), ("max(3, 1, 2)", 3), ("min([3, 1, 2])", 1), ("max([2.5])", 2.5), ("len([1, 2])", 2), ("sum([1, 2, 3.5])", 6.5), ("prod([2, 3, 4])", 24), ("sum([])", 0),
    ("prod([])", 1), ("permutation([1, 0, 2])", True), ("permutation([1, 2])", False), ("permutation([0, 0])", False), ("isinf(-inf)", True), ("isinf(3)", False), ("isnan(2)", False),
    ("[1, 2] == [1, 2]", True), ("[1, 2] == [1, 3]", False), ("[1, 2] == [1]", False), ("[1, 2] != [1, 2]", False), ("[1, 2] < 3", True), ("[1, 3] < 3", False), ("3 >= [3, 2]", True),
    ("3 > [3, 2]", False), ('"a" == "a"', True), ('"a" == 1', False), ('"a" != 1', True), ("1 <= 1", True), ("true + true", 2), ("true * 3", 3), ("7 / 2", 3), ("-7 / 2", -3), ("7 / 2.0", 3.5),
    ("7 / 0", 0), ("7 % 0", 0), ("inverse([2, 0, 1]) == [1, 2, 0]", True),
])  # fmt: skip
def test_values(text: str, value: Any) -> None:
    found = compile_constant(parse_expr(text))(Env({}, {}))
    assert found == value and (not isinstance(value, bool) or bool(found) is value)


@pytest.mark.parametrize(("text", "message"), [
    ("min()", ""), ("min([])", "min and max take numbers or one array that is not empty"), ("max([1], 2)", "max takes numbers, got [1]"), ("abs(1, 2)", "abs takes 1 argument, got 2"),
    ("pow(1)", "pow takes 2 arguments, got 1"), ("sum(3)", "sum takes one array"), ("len(1, 2)", "len takes one array"), ('sum(["a"])', 'sum takes an array of numbers, got ["a"]'),
    ("inverse([0, 2])", "[0, 2] is no permutation"), ('"a" < 1', "a string is compared with a number"), ("pow(3, 1000000)", "pow(3, 1000000) is too large"),
    ('"a" + 1', "operator '+' takes numbers, got \"a\""), ("[1] * 2", "operator '*' takes numbers, got [1]"), ("bitand(1.5, 1)", "bit operations take integers"),
    ("[1, 2][2]", ""), ("[1, 2][-1]", ""), ("[1, 2][0.5]", ""), ("[1, 2][true]", ""),
])  # fmt: skip
def test_refusals(text: str, message: str) -> None:
    with pytest.raises(LightNetError) as caught:
        compile_constant(parse_expr(text))(Env({}, {}))
    assert message in caught.value.message


def test_the_largest_integers() -> None:
    """256 bits, one more is refused; smaller powers than that are computed."""
    limit = constants.MAX_BITS
    assert constants.arithmetic("*", 1 << (limit - 2), 2) == 1 << (limit - 1)
    with pytest.raises(LightNetError, match="integer too large"):
        constants.arithmetic("*", 1 << (limit - 1), 2)
    with pytest.raises(LightNetError, match="integer too large"):
        constants.apply_function("prod", [(1 << (limit - 1), 2)])
    with pytest.raises(LightNetError, match=r"number out of range in 1000.* \+ 1.5"):
        constants.arithmetic("+", 10**400, 1.5)
    for base in (-1, 0, 1):
        assert constants.apply_function("pow", [base, 10**9]) == base**10


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (False, "false"),
        (3, "3"),
        (2.5, "2.5"),
        ((1, True, "a"), '[1, true, "a"]'),
        ("x", '"x"'),
        (None, "null"),
        ((), "[]"),
    ],
)
def test_values_in_messages(value: Any, text: str) -> None:
    assert show_value(value) == text


def test_ranges_of_floats_and_bools() -> None:
    for dtype in BY_NAME.values():
        if dtype.is_float:
            assert dtype_range(dtype) == (-math.inf, math.inf)
    assert dtype_range(BY_NAME["i1"]) == (0, 1)
