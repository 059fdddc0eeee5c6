"""Intervals of definitions: exactly those that interval arithmetic has (worked by hand, or the ends of what NumPy gives), not only safe ones."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lightnet.ir import intervals as module
from lightnet.ir.bound import BoundDefinition
from lightnet.ir.intervals import Interval, has_positions, intervals, is_contraction
from lightnet.ir.notation import bind, parse
from lightnet.ir.types import TensorSpec
from lightnet.runtime.dtypes import BY_NAME

INF = math.inf
ALL = (-INF, INF)
GIVEN = {
    "x": (-1.0, 3.0),
    "y": (2.0, 5.0),
    "z": (0.0, 4.0),
    "n": (-5.0, -2.0),
    "w": (-1.5, 2.5),
    "o": (-INF, 800.0),
    "g": (-400.0, 300.0),
}
OTHERS = {"k": "i32", "u": "ui8", "v": "ui8", "f": "i1", "m": "f32"}
DIMS = {"m": (4, 6)}
FACTORS = (-7.0, 9.0)


def spec(dtype: str, dims: tuple[int, ...] = (4,)) -> TensorSpec:
    return TensorSpec(dims, BY_NAME[dtype])


def definition(text: str, dst: TensorSpec = spec("f32"), **more: TensorSpec) -> BoundDefinition:
    specs = {name: spec(OTHERS.get(name, "f32"), DIMS.get(name, (4,))) for name in (*GIVEN, *OTHERS)} | more
    found = bind(parse(text), specs | {"dst": dst}, {}, [n for n in ("dst", "arg") if n == "dst" or n in more])
    return found


def interval(text: str, dst: TensorSpec = spec("f32"), **more: TensorSpec) -> Interval:
    return intervals(definition(text, dst, **more), GIVEN | {"m": (-1.0, 3.0)}, FACTORS)["dst"]


def close(found: Interval, want: Interval, what: str) -> None:
    """Equal but for the rounding of f32 constants."""
    assert all(a == b or math.isclose(a, b, rel_tol=1e-6) for a, b in zip(found, want, strict=True)), (
        what,
        found,
        want,
    )


#: The value of an element, and the interval of it.
VALUES: list[tuple[str, Interval]] = [
    ("x[i]", (-1, 3)), ("x[i] + y[i]", (1, 8)), ("x[i] - y[i]", (-6, 1)), ("y[i] - x[i]", (-1, 6)), ("-y[i]", (-5, -2)), ("x[i] * y[i]", (-5, 15)),
    ("x[i] * n[i]", (-15, 5)), ("n[i] * n[i]", (4, 25)), ("x[i] / y[i]", (-0.5, 1.5)), ("y[i] / n[i]", (-2.5, -0.4)), ("y[i] / x[i]", ALL),
    ("y[i] / z[i]", ALL), ("y[i] / -z[i]", ALL), ("z[i] * (1 / exp(o[i]))", ALL), ("min(x[i], y[i])", (-1, 3)), ("max(x[i], y[i])", (2, 5)),
    ("min(n[i], y[i])", (-5, -2)), ("max(n[i], x[i])", (-1, 3)), ("abs(x[i])", (0, 3)), ("abs(y[i])", (2, 5)), ("abs(n[i])", (2, 5)),
    ("abs(z[i])", (0, 4)), ("abs(-z[i])", (0, 4)), ("sqrt(x[i])", (0, 3**0.5)), ("sqrt(y[i])", (2**0.5, 5**0.5)), ("log(x[i])", (-INF, math.log(3))),
    ("log(z[i])", (-INF, math.log(4))), ("log(y[i])", (math.log(2), math.log(5))), ("exp(o[i])", (0, INF)), ("log(n[i])", (-INF, -INF)),
    ("pow(x[i], 1)", (-1, 3)), ("pow(x[i], 2)", (-3, 9)), ("pow(x[i], 3)", (-9, 27)), ("pow(y[i], 2)", (4, 25)), ("pow(x[i], 4)", ALL),
    ("pow(y[i], 0)", ALL), ("pow(y[i], -1)", ALL), ("pow(y[i], 0.5)", ALL), ("pow(y[i], x[i])", ALL), ("pow(y[i], z[i])", ALL),
    ("x[i] % y[i]", (-3, 3)), ("y[i] % x[i]", (0, 3)), ("z[i] % y[i]", (0, 4)), ("y[i] % n[i]", (0, 5)), ("n[i] % x[i]", (-3, 3)),
    ("floor(w[i])", (-2, 2)), ("ceil(w[i])", (-1, 3)), ("round(w[i])", (-2, 3)), ("rint(w[i])", (-2, 2)), ("floor(o[i])", (-INF, 800)),
    ("sin(x[i])", (-1, 1)), ("cos(x[i])", (-1, 1)), ("asin(x[i])", (-2, 2)), ("acos(x[i])", (0, 4)), ("tan(x[i])", ALL), ("cosh(x[i])", ALL),
    ("f32(x[i] < y[i])", (0, 1)), ("f32(x[i] == y[i] && !(f[i]))", (0, 1)), ("f32(f[i])", (0, 1)), ("f32(u[i])", (0, 255)),
    ("f32(k[i])", (-(2.0**31), 2.0**31 - 1)), ("f32(u[i] / 2)", (0, 127.5)), ("f32(u[i] - 200)", (0, 255)), ("f32(u[i] + v[i])", (0, 255)),
    ("f32(-u[i])", (0, 255)), ("f32(i8(x[i] * 1000))", (-128, 127)), ("f32(i8(x[i]))", (-1, 3)), ("f32(i8(y[i] * 100))", (127, 127)),
    ("f32(ui8(x[i]))", (0, 3)), ("f64(x[i]) < 0 ? 1.0 : x[i]", (-1, 3)), ("f32(wrap(k[i], u))", (0, 255)), ("f32(bitand(u[i], 7))", (0, 255)),
    ("f32(i)", (0, 3)), ("f32(3 * i)", (0, 9)), ("f32(i * i - 3 * i)", (-2, 0)), ("f32(floormod(i + 2, 4))", (0, 3)), ("f32([5, 1, 7, 3][i])", (1, 7)),
    ("f32(floormod(i64(u[i]) - 9, 4))", (0, 3)), ("f32(floormod(i64(u[i]) + 9, 4))", (0, 3)), ("f32(floormod(i64(f[i]) + 1, 4))", (1, 2)), ("f32(floormod(i64(f[i]) + 3, 4))", (0, 3)), ("f32(floormod(i64(f[i]) - 1, 4))", (0, 3)),
    ("x[i + 1 | 9]", (-1, 9)), ("x[i + 1 | -9]", (-9, 3)), ("x[i + 1 | 0]", (-1, 3)), ("m[i, 5 - i]", (-1, 3)),
    ("o[i] * z[i]", (-INF, 3200)), ("o[i] - o[i]", ALL), ("floor(o[i] * 0.5)", (-INF, 400)), ("exp(g[i] * 9)", (0, INF)), ("abs(z[i] - 4)", (0, 4)),
    ("f32(floormod(i64(u[i]) * 0 + 7, 4))", (3, 3)), ("log(z[i] + 0.5)", (math.log(0.5), math.log(4.5))), ("pow(z[i], 0)", ALL),
    # what a condition says of the values in its arms
    ("x[i] < 0 ? exp(x[i]) : x[i] + 1", (math.exp(-1), 4)), ("x[i] <= 0 ? exp(x[i]) : x[i] + 1", (math.exp(-1), 4)),
    ("x[i] > 0 ? x[i] + 1 : exp(x[i])", (math.exp(-1), 4)), ("x[i] == 0 ? exp(x[i]) : -5", (-5, math.exp(3))), ("x[i] < -5 ? x[i] : 0", (-1, 0)),
    ("0 < x[i] ? (x[i] < 1 ? x[i] : 0.5) : 0.5", (0, 1)), ("x[i] < 2 ? (x[i] < 1 ? x[i] : 1) : 1", (-1, 1)), ("x[i] < y[i] ? y[i] : 2", (2, 5)),
    ("y[i] < x[i] ? y[i] : 2", (2, 3)), ("y[i] < x[i] ? x[i] : 2", (2, 3)), ("x[i] < y[i] ? 2 : x[i]", (2, 3)), ("f[i] ? x[i] : y[i]", (-1, 5)),
    ("x[i] < 1 ? 1 : 2", (1, 2)), ("x[i] < 1 ? x[i + 1 | 7] : 1", (-1, 7)),
]  # fmt: skip


def test_values() -> None:
    for text, want in VALUES:
        close(interval(f"dst[i] = {text}"), want, text)


@np.errstate(all="ignore")
def test_rising_functions() -> None:
    """What never falls lies between its values at the ends."""
    for fn, oracle in (
        ("exp", np.exp),
        ("tanh", np.tanh),
        ("atan", np.arctan),
        ("asinh", np.arcsinh),
        ("erf", np.vectorize(math.erf)),
    ):
        for name in ("x", "y", "n", "g"):
            low, high = (float(oracle(end)) for end in GIVEN[name])
            close(interval(f"dst[i] = {fn}({name}[i])"), (low, high), f"{fn}({name})")


M = spec("f32", (4, 6))
#: A definition, and the interval of dst. m is [4, 6], between -1 and 3.
STATEMENTS: list[tuple[str, Interval]] = [
    ("dst[i] += m[i, j]", (-6, 18)), ("dst[i] += y[i] for r < 3", (6, 15)), ("dst[i] = 10\ndst[i] += m[i, j]", (4, 28)),
    ("dst[i] += m[i, j] * m[i, j]", (-18, 54)), ("dst[i] += m[i, j] * y[i]", FACTORS), ("dst[i] = 10\ndst[i] += m[i, j] * y[i]", (3, 19)),
    ("dst[i] += m[i, j] * 2", (-12, 36)), ("dst[i] += -(y[i] * m[i, j])", FACTORS), ("t[i] = y[i]\ndst[i] += m[i, j] * t[i]", (-30, 90)),
    ("dst[i] = m[i, 0] * y[i]", (-5, 15)), ("dst[i] max= m[i, j] * y[i]", (-5, 15)), ("dst[i] += m[i, j] * (y[i] + x[i])", (-48, 144)),
    ("dst[i] max= m[i, j]", (-1, 3)), ("dst[i] min= m[i, j]", (-1, 3)), ("dst[i] = 5\ndst[i] max= m[i, j]", (-1, 5)),
    ("dst[i] max= m[i, j + 3 | -inf] for j < 6", (-1, 3)), ("dst[i] min= m[i, j + 3 | inf] for j < 6", (-1, 3)),
    ("dst[i] min= m[i, j + 3 | -inf] for j < 6", (-INF, 3)), ("dst[i] max= m[i, j + 3 | inf] for j < 6", (-1, INF)),
    ("dst[i] max= m[i, j + 3 | 0] for j < 6", (-1, 3)), ("dst[i] *= m[i, j]", (-729, 729)), ("dst[i] *= x[i] / 10 for r < 2", (-1, 1)),
    ("dst[i] *= n[i] for r < 2", (-25, 25)), ("dst[i] *= y[i] for r < 500", (-INF, INF)), ("dst[0] = y[0]\ndst[i + 1] = n[i] for i < 3", (-5, 5)),
    ("dst[i] = x[i]\ndst[i] = y[i]", (2, 5)), ("dst[i] = x[i]\ndst[0] = y[0]", (-1, 5)), ("dst[i] = x[i]\ndst[i] = dst[i] + 1", (0, 4)),
    ("dst[i] += f32(j) for j < 3", (0, 6)), ("dst[i] += m[i, j + 1 | m[i, j] * y[i]] for j < 6", FACTORS), ("dst[i] max= z[i] for r < 2", (0, 4)),
    ("dst[i] = 9\ndst[i] += z[i] for r < 2", (9, 17)), ("dst[i] max= x[i]\ndst[i] max= y[i]", (-1, 5)), ("dst[i] *= m[i, j]\ndst[i] max= y[i]", (-729, 729)),
]  # fmt: skip


def test_statements() -> None:
    for text, want in STATEMENTS:
        close(interval(text), want, text)


def test_types_and_tensors_in_between() -> None:
    assert interval("dst[i] = sat(x[i] * 100, dst)", spec("i8")) == (-100, 127)
    found = intervals(definition("t[i] = x[i] + 1\ndst[i] = t[i] * 2"), GIVEN, FACTORS)
    assert found == {"t": (0, 4), "dst": (0, 8)}
    arg = definition("dst[i], arg[i] argmax= m[i, j]", arg=spec("i32"))
    assert intervals(arg, {"m": (-1.0, 3.0)}, FACTORS) == {"dst": (-1, 3), "arg": (0, 6)}
    assert intervals(definition("dst[i] = x[i] + m[i, 0]"), {"x": (0.0, 1.0)}, FACTORS) == {"dst": ALL}


def test_an_index_of_few_values_is_looked_at_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more values its occurrences count apart: i * i - 4 * i."""
    monkeypatch.setattr(module, "_FEW", 4)
    long = spec("f32", (5,))
    assert interval("dst[i] = f32(i * i - 4 * i)") == (-4, 0)
    assert interval("dst[i] = f32(i * i - 4 * i)", long) == (-16, 16)
    assert interval("dst[i] = f32(i * i - 4 * i)", spec("f32", (1,))) == (0, 0)
    assert interval("dst[i] += f32(i * j - j * i) for i < 4, j < 2") == (-6, 6)


#: A definition, whether its last statement is a contraction, and whether a float says where something is.
KINDS = [
    ("dst[i] += m[i, j] * y[i]", True, False), ("dst[i] += m[i, j] * m[i, j]", False, False), ("dst[i] += m[i, j] + y[i]", False, False),
    ("dst[i] = m[i, 0] * y[i]", False, False), ("dst[i] *= m[i, j] * y[i]", False, False), ("dst[i] += m[i, j] * 2", False, False),
    ("dst[i] += x[i] < 0 ? m[i, j] * y[i] : 0", True, False), ("dst[i] += m[i, j] * (y[i] < 0 ? 1 : 2)", False, False),
    ("dst[i] += m[i, j] * (y[i] < 0 ? x[i] : 2)", True, False), ("dst[i] += m[i, j] * (x[i] + y[i])", False, False),
    ("t[i] = x[i]\ndst[i] += m[i, j] * t[i]", False, False), ("dst[i] = x[i] + i", False, True), ("dst[i] = i - x[i]", False, True),
    ("dst[i] = x[i] * i", False, False), ("dst[i] = f32(u[i] + i)", False, False), ("dst[i] = x[i] + f32(3 * i)", False, True),
    ("dst[i] = x[i + 1 | 0] + 1", False, False), ("dst[i] = x[clamp(i64(y[i]), 0, 3)]", False, True), ("dst[i] = x[clamp(i64(k[i]), 0, 3)]", False, False),
    ("dst[i] = 1 + (i < 2 ? x[i] : y[i])", False, False), ("dst[i] = 1 + x[clamp(i64(u[i]) + i, 0, 3)]", False, False),
]  # fmt: skip


def test_kinds_of_definitions() -> None:
    for text, contraction, positions in KINDS:
        found = definition(text)
        assert is_contraction(found, found.statements[-1]) is contraction, text
        assert has_positions(found) is positions, text
