"""The functions of index notation against NumPy and Python's `math`: constants, evaluation, level 4, machine code."""

import math

import numpy as np
import pytest
import test_notation as t
from test_loops import check
from xdsl.context import Context
from xdsl.parser import Parser

from lightnet.diagnostics import LightNetError
from lightnet.ir.constants import Env
from lightnet.ir.constants import evaluate as constant
from lightnet.ir.types import ParamAttr, TensorSpec, format_param_value
from lightnet.runtime.dtypes import BY_NAME

X = np.array([*np.linspace(-4, 4, 101), 0.0, -0.0, 1e-3, 20, -20, 700, np.inf, -np.inf, np.nan])
REAL = {
    "erf": np.vectorize(math.erf), "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "rint": np.rint, "round": lambda x: np.trunc(x + np.copysign(0.5, x)),
}  # fmt: skip
INTS = ("i8", "ui8", "i16", "ui32", "i64", "ui64")


def flag(n: int) -> TensorSpec:
    return TensorSpec((n,), BY_NAME["i1"])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_functions_of_floats(dtype):
    x = X.astype(dtype)
    cases = []
    for name, oracle in REAL.items():
        definition = t.bound(f"dst[i] = {name}(src[i])", {"src": x}, dst=x)
        cases.append((definition, {"src": x}))
        with np.errstate(all="ignore"):
            want = oracle(x.astype(np.float64)).astype(dtype)
        got = t.run(f"dst[i] = {name}(src[i])", {"src": x}, dst=x)
        np.testing.assert_allclose(got, want, rtol=1e-5 if dtype == np.float32 else 1e-13, err_msg=name)
    check(cases, tolerance=1e-6 if dtype == np.float32 else 1e-12)


def test_nan_and_infinity():
    for dtype in (np.float16, np.float32, np.float64):
        x = np.array([1, np.nan, np.inf, -np.inf, 0], dtype)
        for name, oracle in (("isnan", np.isnan), ("isinf", np.isinf)):
            text = f"dst[i] = {name}(src[i])"
            np.testing.assert_array_equal(t.run(text, {"src": x}, dst=flag(5)), oracle(x))
            check([(t.bound(text, {"src": x}, dst=flag(5)), {"src": x})])
    assert not t.run("dst[i] = isnan(src[i]) || isinf(src[i])", {"src": np.arange(3)}, dst=flag(3)).any()
    assert t.run("dst[i] = isnan(src[i]) + 1", {"src": X}, dst=np.zeros(X.shape, np.int32)).sum() == X.size + 1


def pairs(name: str) -> dict[str, np.ndarray]:
    d = BY_NAME[name]
    values = [0, 1, 2, 3, 7, 8, 31, 63, 64, 100, d.limits[0], d.limits[1], d.limits[1] - 1] + [-1, -3, -7] * (
        d.kind == "int"
    )
    a, b = np.meshgrid(np.array(values, d.np), np.array(values, d.np))
    return {"a": a.ravel(), "b": b.ravel()}


@pytest.mark.parametrize("dtype", INTS)
def test_functions_of_integers(dtype):
    d, arrays = BY_NAME[dtype], pairs(dtype)

    def wrapped(value: int) -> int:
        return (value - d.limits[0]) % (1 << d.bits) + d.limits[0]

    oracles = {
        "floormod": lambda a, b: a % b if b else 0,
        "bitand": lambda a, b: a & b,
        "bitor": lambda a, b: a | b,
        "bitxor": lambda a, b: a ^ b,
        "shl": lambda a, b: wrapped(a << b) if 0 <= b < d.bits else 0,
        "shr": lambda a, b: a >> b if 0 <= b < d.bits else -(a < 0),
    }
    texts = {name: f"dst[i] = {name}(a[i], b[i])" for name in oracles} | {"bitnot": "dst[i] = bitnot(a[i])"}
    oracles["bitnot"] = lambda a, b: wrapped(~a)
    cases = []
    for name, text in texts.items():
        given = arrays if "b[" in text else {"a": arrays["a"]}
        want = [oracles[name](a, b) for a, b in zip(arrays["a"].tolist(), arrays["b"].tolist())]
        np.testing.assert_array_equal(t.run(text, given, dst=arrays["a"]), np.array(want, d.np), name)
        cases.append((t.bound(text, given, dst=arrays["a"]), given))
    check(cases)


def test_floormod_of_floats():
    a, b = (v.ravel() for v in np.meshgrid([5.5, -5.5, 0.25, 7, -7], [2.0, -2.0, 0.5, 3, -3]))
    got = t.run("dst[i] = floormod(a[i], b[i])", {"a": a, "b": b}, dst=a)
    np.testing.assert_allclose(got, np.mod(a, b))
    assert np.isnan(t.run("dst[i] = floormod(a[i], 0)", {"a": a}, dst=a)).all()
    check([(t.bound("dst[i] = floormod(a[i], b[i])", {"a": a, "b": b}, dst=a), {"a": a, "b": b})])


def test_bits_of_bools_are_logic():
    a, b = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    for name, want in (("bitand", a & b), ("bitor", a | b), ("bitxor", a ^ b)):
        assert (t.run(f"dst[i] = {name}(a[i], b[i])", {"a": a, "b": b}, dst=a) == want).all()
    assert (t.run("dst[i] = bitnot(a[i])", {"a": a}, dst=a) == ~a).all()
    check([(t.bound("dst[i] = bitxor(a[i], bitnot(b[i]))", {"a": a, "b": b}, dst=a), {"a": a, "b": b})])


def test_wrap():
    cases = []
    for old in ("i8", "i32", "ui8", "ui32", "i64", "ui64"):
        source = pairs(old)["a"]
        for new in INTS:
            dst = np.zeros(source.shape, BY_NAME[new].np)
            cases.append((t.bound("dst[i] = wrap(src[i], dst)", {"src": source}, dst=dst), {"src": source}))
            got = t.run("dst[i] = wrap(src[i], dst)", {"src": source}, dst=dst)
            assert all((g - s) % (1 << BY_NAME[new].bits) == 0 for g, s in zip(got.tolist(), source.tolist()))
    check(cases)
    x = np.array([1e300, -1e300, 1.7, -1.7, np.nan, np.inf])
    small = t.run("dst[i] = wrap(src[i], dst)", {"src": x}, dst=np.zeros(6, np.int8)).tolist()
    assert small == [127, -128, 1, -1, 0, 127]
    assert t.run("dst[i] = wrap(src[i], dst)", {"src": x}, dst=np.zeros(6, np.float32)).tolist()[:2] == [
        np.inf,
        -np.inf,
    ]
    assert t.run("dst[i] = wrap(300, dst)", {}, dst=np.zeros(1, np.int8)).tolist() == [44]
    assert t.run("dst[i] = wrap(1e300, dst)", {}, dst=np.zeros(1, np.float32)).tolist() == [np.inf]
    assert t.run("dst[i] = sat(src[i], dst)", {"src": x}, dst=np.zeros(6, np.float32)).tolist()[0] < np.inf


def test_bitcast():
    x = X.astype(np.float32)
    for source, target in ((x, np.int32), (x, np.uint32), (x.view(np.uint32), np.float32), (X, np.int64)):
        definition = t.bound("dst[i] = bitcast(src[i], dst)", {"src": source}, dst=source.view(target))
        got = t.run("dst[i] = bitcast(src[i], dst)", {"src": source}, dst=source.view(target))
        np.testing.assert_array_equal(got, source.view(target))
        check([(definition, {"src": source})])
    with pytest.raises(LightNetError, match="size"):
        t.bound("dst[i] = bitcast(src[i], dst)", {"src": x}, dst=x.astype(np.int64))


@pytest.mark.parametrize(
    "text, words",
    [
        ("dst[i] = sin(n[i])", "sin takes floats, got i32"),
        ("dst[i] = bitand(x[i], x[i])", "bitand takes integers, got f32"),
        ("dst[i] = shl(b[i], b[i])", "shl takes integers, got i1"),
        ("dst[i] = shl(n[i])", "shl takes 2 argument"),
        ("dst[i] = wrap(x[i])", "wrap takes a value and the name of a tensor"),
        ("dst[i] = bitand(1.5, 2)", "bit operations take integers"),
    ],
)
def test_wrong_arguments(text, words):
    arrays = {"x": X.astype(np.float32), "n": np.zeros(X.shape, np.int32), "b": np.zeros(X.shape, bool)}
    with pytest.raises(LightNetError, match=words):
        t.bound(text, arrays, dst=arrays["x"])


def test_constants():
    def value(text):
        return constant(text, Env({}, {}))

    for name, oracle in REAL.items():
        for x in (0.25, -0.5, 0.75):
            with np.errstate(all="ignore"):
                np.testing.assert_allclose(value(f"{name}({x})"), oracle(x), err_msg=name)
    assert value("acosh(0.5) != acosh(0.5)") and value("atanh(1)") == math.inf and value("sinh(-1e5)") == -math.inf
    assert value("isnan(inf - inf)") and value("isinf(-inf)") and not value("isinf(3)")
    assert [value(f"rint({x})") for x in (0.5, 1.5, -2.5)] == [0, 2, -2]
    assert value("floormod(-7, 3)") == 2 and value("floormod(7, 0)") == 0 and value("floormod(-7.5, 2)") == 0.5
    assert (
        value("bitor(5, 2)") == 7
        and value("bitnot(0)") == -1
        and value("shl(1, 64)") == 0
        and value("shr(-8, 99)") == -1
    )
    with pytest.raises(LightNetError, match="too large"):
        value("shl(pow(2, 250), 20)")


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, -0.0, -3, 2.5, (1.0, -math.inf), -1e-300, None, True])
def test_numbers_of_parameters_print_and_parse(value):
    text = f"#ln.param<{format_param_value(value)}>"
    context = Context()
    context.load_attr_or_type(ParamAttr)
    attribute = Parser(context, text).parse_attribute()
    assert isinstance(attribute, ParamAttr) and repr(attribute.data) == repr(value)
    assert '"' not in text
