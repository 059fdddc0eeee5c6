"""Index notation at its edges: what is refused, word for word, and what stands just within; what it is bound to, as text."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lightnet.diagnostics import LightNetError
from lightnet.ir import constants, notation, statements
from lightnet.ir.access import _is_copy, _is_elementwise
from lightnet.ir.bound import BOOL, F32, F64, I64, Apply, Const, Node, Read, show
from lightnet.ir.constants import Env, evaluate, failure
from lightnet.ir.conversions import as_stored, cast, convert_constant, not_finite, saturated, wrap
from lightnet.ir.expr import MAX_DEPTH, MAX_TEXT, Name, Num, Unary, format_expr, location, parse_expr
from lightnet.ir.notation import bind, parse
from lightnet.ir.types import TensorSpec
from lightnet.runtime.dtypes import BY_NAME, convert

SPECS = {"x": ("f32", (4,)), "y": ("f32", (4,)), "m": ("f32", (4, 6)), "t": ("f32", (2, 3, 4)), "k": ("i32", (4,)), "f": ("i1", (4,)),
         "l": ("i64", (4,)), "h": ("f16", (4,)), "d": ("f64", (4,)), "e": ("f32", (0,)), "q": ("f32", (2, 2))}  # fmt: skip
PARAMS = {
    "p": 2,
    "ps": (1, 2),
    "listed": [3, 1, 0, 2],
    "name": "a",
    "long": (1,) * 64,
    "longer": (1,) * 65,
    "words": ("a", "b"),
    "mixed": (1, 0.5),
}


def spec(dtype: str, dims: tuple[int, ...]) -> TensorSpec:
    return TensorSpec(dims, BY_NAME[dtype])


def bound(text: str, dst: TensorSpec = spec("f32", (4,))) -> str:
    """The statements of a definition of dst, as text; the message where it is refused."""
    specs = {name: spec(*row) for name, row in SPECS.items()} | {"dst": dst}
    try:
        return "\n".join(map(str, bind(parse(text), specs, PARAMS, ["dst"]).statements))
    except LightNetError as error:
        return error.message


POSITIVE = "'{}' in a subscript takes a positive constant on its right"
LEFT = "a subscript on the left is an index, an index plus a constant, or a constant"
TABLE = "an array indexed by an index has 1 to 64 constants and one subscript"
#: A value of dst[i], and what it is bound to.
VALUES: list[tuple[str, str]] = [
    # constants among indices
    ("x[i / 0]", POSITIVE.format("/")), ("x[i % 0]", POSITIVE.format("%")), ("x[i / -2]", POSITIVE.format("/")), ("x[i / i]", POSITIVE.format("/")),
    ("x[2 / 0]", POSITIVE.format("/")), ("x[2 / -1]", POSITIVE.format("/")), ("x[7 / 2 | 0]", "x[3]"), ("x[-7 / 2 + 4]", "x[0]"), ("x[-7 % 4]", "x[1]"),
    ("x[4.0 / 2]", "x[2]"), ("x[5.0 / 2]", "a subscript is an integer; convert it with i64(…)"), ("x[5 / 2.0]", "a subscript is an integer; convert it with i64(…)"),
    ("x[max(5 / 2, 1)]", "x[2]"), ("x[pow(7 / 1, 200)]", "pow(7, 200) is too large"), ("x[i * 1]", "x[i]"),
    ("!(p == 3) && f[i] ? x[i] : 1", "(f[i] ? x[i] : 1.0:f32)"), ("!(p == 2) && f[i] ? x[i] : 1", "1.0:f32"), ("p == 3 || f[i] ? x[i] : 1", "(f[i] ? x[i] : 1.0:f32)"),
    ("p == 2 || f[i] ? x[i] : 1", "x[i]"), ("p == 3 && f[i] ? x[i] : 1", "1.0:f32"),
    ("f32(!f[i])", "f32(not(f[i]))"), ("f32(floormod(l[i], 3))", "f32((l[i] mod 3))"),
    ("f32(floormod(l[i], 0))", "f32((l[i] % 0))"),
    ("f32(sqrt(i))", "f32(sqrt(f64(i)))"), ("f32(sqrt(k[i]))", "sqrt takes floats, got i32"), ("bitcast(x[i], y)", "x[i]"), ("f32(bitcast(x[i], k))", "f32(bitcast.i32(x[i]))"),
    ("f32(bitcast(x[i], l))", "bitcast of f32 to i64: no two numbers of one size"),
    # conversions name a tensor
    *((f"sat({arguments})", "sat takes a value and the name of a tensor") for arguments in ("x[i]", "x[i], 3", "x[i], nobody", "x[i], x, x")),
    ("wrap(x[i], x)", "x[i]"), ("f32(x[i], y[i])", "f32 takes one value, got 2"), ("nobody(x[i], y[i])", "unknown function 'nobody'; there are: " + ", ".join(sorted(notation.RUNTIME_FUNCTIONS))),
    # arrays of constants
    ("listed[i]", "f32(table(i, 3, 1, 0, 2))"), ("mixed[i % 2]", "f32(table((i mod 2), 1.0:f64, 0.5:f64))"), ("f32(longer[i])", TABLE), ("ps[i, i]", TABLE),
    ("[][i]", TABLE), ("p[i]", TABLE), ("words[i]", "an array indexed by an index holds numbers"), ("[1, 2]", "unexpected expression"),
    ("f32(long[i])", f"f32(table(i, {', '.join(['1'] * 64)}))"), ('"a"', "a string stands only in a comparison of constants"),
    # reads
    ("x.len[0]", "'x.len[0]' is no read"), ("x.dims[0]", "4.0:f32"), ("x", "tensor 'x' is read without subscripts"), ("x[i, 0]", "'x' has rank 1, got 2 subscripts"),
    ("dst[i] + 1", "'dst' is read before it is written"), ("m[i, i + 2]", "m[i, (i + 2)]"), ("x[i:2]", "a slice stands only in a constant array"),
    ("f32(h[i + 1 | x[i]])", "f32(h[(i + 1) | f16(x[i])])"), ("f32(h[i + 1 | d[i]])", "the filler's dtype is f64, the tensor's f16"), ("x[i + 1 | d[i]]", "the filler's dtype is f64, the tensor's f32"),
    ("nobody[i]", "unknown tensor 'nobody'"), ("i...", "expected an operator or the end of the statement, got '...'"),
]  # fmt: skip


def test_values() -> None:
    for text, want in VALUES:
        found = bound(f"dst[i] = {text}").removeprefix("dst[i] = ").removesuffix(" for i < 4")
        assert found == want, text


def test_refusals_of_values_have_their_places() -> None:
    """In the value that is refused, and with its line; of a constant that cannot be computed, where that stands."""
    start, specs = "dst[i] = ", {name: spec(*row) for name, row in SPECS.items()} | {"dst": spec("f32", (4,))}
    places = {}
    for text, _ in VALUES:
        try:
            bind(parse(start + text), specs, PARAMS, ["dst"])
        except LightNetError as error:
            assert error.source_line == start + text and error.loc is not None, text
            places[text] = error.loc.col - 1 - len(start)
            assert error.loc.line == 1 and 0 <= places[text] < len(text), text
    assert len(places) > 25
    for text in ("x[pow(7, 300)]", "x[pow(7 / 1, 200)] + 1", "i * pow(7, 300)", "i + pow(p, 300) * x[i]"):
        with pytest.raises(LightNetError) as caught:
            bind(parse(start + text), specs, PARAMS, ["dst"])
        assert caught.value.loc is not None and (start + text).startswith("pow", caught.value.loc.col - 1), text


#: A definition, the dims of dst, and what it is bound to.
DEFINITIONS: list[tuple[str, tuple[int, ...], str]] = [
    ("dst[i...] = t[(p < 3 ? i : 0)...]", (2, 3, 4), "dst[i.0, i.1, i.2] = t[i.0, i.1, i.2] for i.0 < 2, i.1 < 3, i.2 < 4"),
    ("dst[i...] = t[(p > 3 ? i : 0)...]", (2, 3, 4), "dst[i.0, i.1, i.2] = t[0, 0, 0] for i.0 < 2, i.1 < 3, i.2 < 4"),
    (f"dst[i...] = x[(i * 0 + {'1' * 40} * {'1' * 40})...]", (4,), "integer too large in a constant expression"),
    ("dst[i...] = q[i..., i...]", (2,), "dst[i.0] = q[i.0, i.0] for i.0 < 2"),
    ("dst[i..., j...] = t[i..., j...]", (2, 3, 4), "the size of pack 'i' does not follow from the ranks; write i:size..."),
    ("dst[i:1..., j...] = t[i..., j...]", (2, 3, 4), "dst[i.0, j.0, j.1] = t[i.0, j.0, j.1] for i.0 < 2, j.0 < 3, j.1 < 4"),
    ("dst[i:1..., j:2...] = t[(i + j)..., 0]", (2, 3, 4), "the packs of a pattern have different sizes"),
    ("dst[i:4...] = t[i...]", (2, 3, 4), "'t' has rank 3, got 4 subscripts"), ("dst[i:9...] = 0", (2, 3, 4), "pack 'i' of 9 indices"),
    ("dst[i..., j, k, l, n] = 0", (2, 3, 4), "too many subscripts for a tensor of rank 3"), ("dst[(3)...] = 0", (2, 3, 4), "a pack needs an index"),
    ("dst[i...] = x[i[2]]", (2, 3, 4), "dst[i.0, i.1, i.2] = x[i.2] for i.0 < 2, i.1 < 3, i.2 < 4"),
    ("dst[i...] = x[i[1.0]]", (2, 3, 4), "dst[i.0, i.1, i.2] = x[i.1] for i.0 < 2, i.1 < 3, i.2 < 4"),
    *((f"dst[i...] = x[{element}]", (2, 3, 4), f"'{element}' is no element of a pack of 3 indices") for element in ("i[3]", "i[-1]", "i[0.5]", "i[0, 1]", "i[0:1]", "i[ps]")),
    ("dst[i...] = t[i[ps]...]", (2, 3, 4), "'i[ps]' is no element of a pack of 3 indices"),
    ("dst[i...] = t[i[[2, 0, 1]]..., ]", (2, 3, 4), "expected an expression, got ']'"),
    ("dst[i...] = t[i[[0, 1, 2]]...]", (2, 3, 4), "dst[i.0, i.1, i.2] = t[i.0, i.1, i.2] for i.0 < 2, i.1 < 3, i.2 < 4"),
    ("dst[i...] = i", (4,), "pack 'i' stands outside of a subscript list"),
    # targets
    ("dst[2 * i] = 0", (4,), LEFT), ("dst[i * j] = 0", (4,), LEFT), ("dst[i + j] = 0", (4,), LEFT), ("dst[i - 1] = 0", (4,), LEFT), ("dst[i % 2] = 0", (4,), LEFT),
    ("dst[i, i] = 0", (2, 2), "index 'i' is twice on the left"), ("dst[i] = 0", (2, 2), "'dst' has rank 2, got 1 subscripts"),
    ("dst[4] = 0", (4,), "subscript 4 of 'dst' is outside"), ("dst[3] = 0", (4,), "the statements do not write every element of 'dst' (tensor<4xf32>) exactly once"),
    ("dst[i] = 0 for i < 5", (4,), "index 'i' ranges over 5, 'dst' has room for 4"), ("dst[i + 1] = 0 for i < 4", (4,), "index 'i' ranges over 4, 'dst' has room for 3"),
    ("p[i] = 0", (4,), "'p' is a parameter"), ("x[i] = 0", (4,), "operand 'x' is assigned to"), ("dst[i] = x[j]", (4,), "index 'j' is not on the left, and '=' does not reduce"),
    ("dst[i] = dst[0]", (4,), "'dst' is read before it is written"), ("dst[i] = 1\ndst[i] = dst[0]", (4,), "'dst' is read at another index than the one that is written"),
    ("dst[i] = 1\ndst[i] += dst[i]", (4,), "'dst' is read at another index than the one that is written"), ("dst[i] = 1\ndst[i] = dst[i] + 1", (4,), "dst[i] = 1.0:f32 for i < 4\ndst[i] = (dst[i] + 1.0:f32) for i < 4"),
    ("dst[i] = d[i]", (4,), "a value of dtype f64 is assigned to 'dst' of dtype f32"), ("w[i + 1] = x[i]\ndst[i] = 0", (4,), "the first assignment to local 'w' has plain indices"),
    ("w[0] = x[0]\ndst[i] = 0", (4,), "subscript 0 of 'w' is outside"),
    # ranges
    ("dst[i] += x[r] for r < 2.0", (4,), "dst[i] += x[r] for i < 4, r < 2"), ("dst[i] += x[r] for r < 2.5", (4,), "the range of index 'r' is 2.5, not an integer"),
    ("dst[i] += x[r] for r < true", (4,), "the range of index 'r' is true, not an integer"), ("dst[i] += x[r] for r < -1", (4,), "index 'r' has the range -1"),
    ("dst[i] += x[r] for r < 0", (4,), "dst[i] = 0.0:f32 for i < 4"), ("dst[i, j] += x[r] for r < 0", (1, 4), "dst[0, j] = 0.0:f32 for j < 4"),
    ("dst[i, j] max= x[r] for r < 0", (2, 1), "dst[i, 0] = -inf:f32 for i < 2"), ("dst[i] += 1 for r < 2", (4,), "dst[i] += 1.0:f32 for i < 4, r < 2"),
    (f"dst[i] += 1 for r < {1 << 44}", (4,), f"dst[i] += 1.0:f32 for i < 4, r < {1 << 44}"),
    (f"dst[i] += 1 for r < {(1 << 44) + 1}", (4,), f"the statement's value is evaluated more than {1 << 46} times"),
]  # fmt: skip


def test_definitions() -> None:
    for text, dims, want in DEFINITIONS:
        assert bound(text, spec("f32", dims)) == want, text


@pytest.mark.parametrize("around", ["", ";", ";;", "\n", "\n\n", ";\n", "\n;", "; ;\n\n ;", "# one; two\n"])
def test_separators_of_statements_separate_and_no_more(around: str) -> None:
    """Each of them, as often as one likes, also before the first statement and behind the last one."""
    written = ["dst[0] = 1", "dst[1] = 2", "dst[2] += x[r] for r < 3"]
    for between in (";", "\n", ";;", "\n\n", ";\n", "\n;", ";\n;\n", "# a comment\n", "; # another\n"):
        assert str(parse(around + between.join(written) + around)) == "\n".join(written), between
    refused(lambda: parse(around), "a definition has at least one statement")


def test_results_of_short_floats_are_stored_once() -> None:
    assert bound("dst[i] += h[r] for r < 4", spec("f16", (0,))) == ""
    assert (
        bound("dst[i, j] += h[r] for r < 4", spec("f16", (1, 2)))
        == "dst.f32[0, j] += f32(h[r]) for j < 2, r < 4\ndst[0, i.1] = f16(dst.f32[0, i.1]) for i.1 < 2"
    )


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is at a limit is right, what is one more is refused."""
    monkeypatch.setattr(notation, "MAX_TENSOR_BYTES", 16)
    assert bound("w[i] = x[i]\ndst[i] = w[i]").startswith("w[i] = x[i]")
    assert bound("w[i, j] = x[i] for j < 2\ndst[i] = w[i, 0]") == "local 'w' has 32 bytes"
    monkeypatch.setattr(statements, "MAX_STATEMENTS", 2)
    assert len(parse("dst[0] = 1; dst[1] = 1").statements) == 2
    refused(lambda: parse("dst[0] = 1; dst[1] = 1; dst[2] = 1"), "more than 2 statements")
    monkeypatch.setattr(constants, "MAX_ELEMENTS", 4)
    assert evaluate("[ps, ps]", ENV) == (1, 2, 1, 2)
    refused(lambda: evaluate("[ps, ps, 1]", ENV), "an array of more than 4 elements")
    with pytest.raises(LightNetError, match=r"result 'dst' has no type$"):
        bind(parse("dst[i] = 1 for i < 2"), {}, {}, ["dst"])


# ---- expressions and constants ---------------------------------------------------------------------------------------

ENV = Env({"x": spec("f32", (4,))}, PARAMS | {"nan": math.nan})


def refused(made, message: str) -> None:
    with pytest.raises(LightNetError) as error:
        made()
    assert error.value.message == message


#: An expression, and how it is printed, or why it is refused.
EXPRESSIONS: list[tuple[str, str]] = [
    ("x[0][1]", "x[0][1]"), ("x[0][1][2]", "too many subscripts"), ("x[i + 1:3...]", "a pack with a count is a name"), ("x[i:3...]", "x[i:3...]"),
    ('"' + "a" * 4094 + '"', '"' + "a" * 4094 + '"'), ('"' + "a" * 4095 + '"', "string longer than 4096"), ("1" * 40, "1" * 40),
    ("1" * 41, "number of more than 40 characters"), ("1e999", "number out of range"), ("false", "false"), ("true", "true"), ("-true", "-true"), ("-(1)", "-1"),
    ("- -1", "1"), ("-x", "-x"), ("-inf", "-inf"), ("inf", "inf"), ("a - (b - c)", "a - (b - c)"), ("a - b - c", "a - b - c"), ("!(a && b)", "!(a && b)"),
    ("1" + " " * (MAX_TEXT - 1), "1"), ("1" + " " * MAX_TEXT, f"expression text of {MAX_TEXT + 1} characters (at most {MAX_TEXT})"),
    ("+".join("1" * (MAX_DEPTH + 2)), f"more than {MAX_DEPTH} operators in a row; use parentheses or local tensors"),
]  # fmt: skip


def test_expressions() -> None:
    for text, want in EXPRESSIONS:
        try:
            found = format_expr(parse_expr(text))
        except LightNetError as error:
            found = error.message
        assert found == want, text[:80]
    assert format_expr(Unary("-", Num(5))) == "-5" and format_expr(Unary("-", Name("x"))) == "-x"
    for text, pos, line, where in (
        ("\nx", 0, "", "f:1:1"),
        ("a\nbc\nd", 3, "bc", "f:2:2"),
        ("a\nbc\nd", 5, "d", "f:3:1"),
    ):
        found, shown = location(text, pos, "f")
        assert (str(found), shown) == (where, line)


#: A constant expression, and its value, or why it has none.
CONSTANTS = [
    ("p[0]", "'p' is no array: 2"), ("ps[0, 1]", "'ps' has one subscript, got 2"), ("ps[1.0]", 2), ("ps[0.5]", "subscript 0.5 of 'ps' is not in 0..1"),
    ("ps[2]", "subscript 2 of 'ps' is not in 0..1"), ("ps[-1]", "subscript -1 of 'ps' is not in 0..1"), ("ps[true]", "subscript true of 'ps' is not in 0..1"),
    ("ps[[1, 0]]", (2, 1)), ("listed", (3, 1, 0, 2)), ("listed[1:3]", (1, 0)), ("listed[2:2]", ()), ("listed[0:4]", (3, 1, 0, 2)),
    ("listed[0:5]", "slice 0:5 of 'listed' is not in 0..4"), ("listed[3:2]", "slice 3:2 of 'listed' is not in 0..4"),
    ("p[0:1]", "'p[start:stop]' wants an array and integers"), ("ps[0.5:1]", "'ps[start:stop]' wants an array and integers"),
    ('ps[0:"a"]', "'ps[start:stop]' wants an array and integers"), ("ps[0:1, 0]", "'ps[0:1, 0]' is no constant expression"),
    ("ps[0 | 1]", "'ps[0 | 1]' is no constant expression"), ("ps[0:1 | 1]", "'ps[0:1 | 1]' is no constant expression"), ("y.dims", "unknown tensor 'y'; there are: x"),
    ("x.dims", (4,)), ("x.flat", "'.flat' is for subscripts"), ("x", "'x' is a tensor: its values are no constants"), ("pow(2, 128)", 2**128),
    ("pow(2, 129)", "pow(2, 129) is too large"), ("pow(-1, 1001)", -1), ("max(ps)", 2), ("min()", "expected an expression, got ')'"), ("max([])", "min and max take numbers or one array that is not empty"),
    ("ps == [1, 2]", True), ("-7 / 2", -3), ("7 / -2", -3), ("-7 / -2", 3), ("0 / -2", 0), ("5 / 0", 0),
]  # fmt: skip


def test_constants() -> None:
    for text, want in CONSTANTS:
        try:
            found = evaluate(text, ENV)
        except LightNetError as error:
            found = error.message
        assert found == want and type(found) is type(want), text
    assert all(math.isnan(evaluate(text, ENV)) for text in ("max(nan, 1)", "min(1, nan)", "max(1, nan, 2)"))
    for text, message in (
        ("p == 3", "'p == 3' does not hold: 2 against 3"), ("p == 2 && p > 3", "'p > 3' does not hold: 2 against 3"), ("p > 3 && p == 2", "'p > 3' does not hold: 2 against 3"),
        ("p == 3 || p == 4", "'p == 3 || p == 4' does not hold"), ("p == 2 && (p == 2 && ps == [1])", "'ps == [1]' does not hold: [1, 2] against [1]"), ("!(p == 2)", "'!(p == 2)' does not hold"),
    ):  # fmt: skip
        assert str(failure(text, ENV)) == message
    assert failure("!(p == 2)", ENV)[1:] == (False, True, False)
    assert failure(parse_expr("1 == 2"), ENV) == failure("1 == 2", ENV) and failure(parse_expr("p == 2"), ENV) is None


# ---- conversions -----------------------------------------------------------------------------------------------------


def test_constants_are_converted_as_arrays_are() -> None:
    """Integers of 64 bits as Python counts."""
    values = [
        0,
        1,
        -1,
        0.5,
        -0.5,
        127,
        128,
        -128,
        -129,
        255,
        256,
        65504.0,
        65520.0,
        1e39,
        -1e39,
        2.0**31,
        math.inf,
        -math.inf,
        math.nan,
    ]
    for dtype in BY_NAME.values():
        if dtype.is_stored or dtype.bits == 64:
            continue
        for value in values:
            want = convert(np.array([value], np.float64), dtype).astype(np.float64)[0]
            found = convert_constant(value, dtype)
            assert float(found) == want or (math.isnan(want) and math.isnan(found)), (value, dtype.name)
    assert convert_constant(1 << 70, BY_NAME["i64"]) == 2**63 - 1 and convert_constant(-(1 << 70), BY_NAME["ui64"]) == 0
    assert convert_constant(math.nan, BY_NAME["i64"]) == 0 and convert_constant(math.inf, BY_NAME["ui64"]) == 2**64 - 1


F16, BF16, I8, I32, UI8, UI32 = (BY_NAME[n] for n in ("f16", "bf16", "i8", "i32", "ui8", "ui32"))


def read(dtype: str) -> Node:
    return Read("x", (), None, BY_NAME[dtype])


def test_conversions() -> None:
    x, wide = read("f32"), cast(read("f16"), F32)
    rows = [
        (cast(x, F32), "x[]"), (cast(x, F64), "f64(x[])"), (cast(read("i32"), F16), "f16(f32(x[]))"), (cast(wide, F16), "x[]"), (cast(wide, BF16), "bf16(f32(x[]))"),
        (cast(read("f16"), F64), "f64(f32(x[]))"), (cast(read("f16"), F32), "f32(x[])"), (cast(read("f16"), I32), "i32(f32(x[]))"), (cast(read("f64"), F16), "f16(x[])"),
        (cast(read("f16"), BF16), "bf16(f32(x[]))"), (as_stored(wide), "x[]"), (as_stored(cast(read("f64"), F32)), "f32(x[])"), (as_stored(Apply("neg", (x,), F32)), "neg(x[])"),
        (saturated(x, F64), "f64(x[])"), (saturated(x, F32), "x[]"), (saturated(x, I8), "i8(x[])"), (saturated(wide, F16), "x[]"), (saturated(wide, F32), "f32(x[])"),
        (saturated(read("i32"), F32), "f32(x[])"), (saturated(read("i8"), F16), "f16(f32(x[]))"),
        (saturated(read("i32"), F16), "f16(min(max(f32(x[]), -65504.0:f32), 65504.0:f32))"),
        (saturated(x, F16), "f16(((abs(x[]) == inf:f32) ? x[] : min(max(x[], -65504.0:f32), 65504.0:f32)))"),
        (saturated(Const(300, I64), I8), "127:i8"), (saturated(read("i64"), I32), "i32(x[])"), (wrap(Const(65520.0, F64), F16), "inf:f16"), (wrap(read("ui8"), I8), "wrap.i8(x[])"),
        (not_finite("isnan", x), "(x[] != x[])"), (not_finite("isinf", x), "(abs(x[]) == inf:f32)"), (not_finite("isnan", read("i8")), "False:i1"), (not_finite("isinf", read("i8")), "False:i1"),
        (wrap(read("i32"), I8), "wrap.i8(x[])"), (wrap(read("i8"), I32), "i32(x[])"), (wrap(read("ui8"), I32), "i32(x[])"), (wrap(read("i8"), UI32), "wrap.ui32(x[])"),
        (wrap(read("ui8"), UI32), "ui32(x[])"), (wrap(read("i32"), UI32), "wrap.ui32(x[])"), (wrap(read("i32"), I32), "x[]"), (wrap(x, I8), "i8(x[])"), (wrap(read("i8"), F32), "f32(x[])"),
        (wrap(read("i1"), I8), "i8(x[])"), (wrap(read("i8"), BOOL), "i1(x[])"), (wrap(Const(300, I64), UI8), "44:ui8"), (wrap(Const(-1, I64), UI8), "255:ui8"),
        (wrap(Const(200, I64), I8), "-56:i8"), (wrap(Const(128, I64), I8), "-128:i8"), (wrap(Const(127, I64), I8), "127:i8"), (wrap(Const(1.5, F64), I8), "1:i8"), (wrap(Const(0.1, F64), F32), f"{float(np.float32(0.1))}:f32"),
    ]  # fmt: skip
    for node, want in rows:
        assert show(node) == want


# ---- how definitions read --------------------------------------------------------------------------------------------


def test_kinds_of_reads() -> None:
    """s and k are no data: an elementwise op reads them along its axes."""
    for value, elementwise in (
        ("x[i, j]", True), ("x[i, j] * s[j]", True), ("x[i, j] * s[0]", True), ("x[i, j] * s[k[j]]", False), ("x[i, j] * s[i + j]", False), ("x[i, j] * s[i | 0]", False),
        ("x[j, i]", False), ("x.flat[i]", False), ("1", False), ("x[i, j | 0]", False),
    ):  # fmt: skip
        assert bool(_is_elementwise(f"dst[i, j] = {value}", ("x", "s", "k"), ("x",), "dst")) == elementwise, value
    for text, copy in (
        ("dst[i] = x[i]", True), ("dst[i] = x[2 * i + 1]", True), ("dst[i] = x[i] + 1", False), ("dst[i] = x[i | 0]", False), ("dst[i] = other[i]", False),
        ("dst[i] = x[x[i]]", False), ("dst[i] += x[i]", False), ("w[i] = x[i]\ndst[i] = w[i]", False), ("dst[i] = other[x[i]]", False),
    ):  # fmt: skip
        assert _is_copy(text, "x") is copy, text
