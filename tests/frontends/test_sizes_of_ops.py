"""Sizes that the data decides, as the graph builder passes them on, op by op and without a model: which axes of a result are counted, what an
element behind the count has to be, what is refused and why; arithmetic on sizes as tensors; bounds at the last number and behind it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lightnet.diagnostics import LightNetError
from lightnet.frontends import counted as c
from lightnet.frontends import counted_moves as moves
from lightnet.frontends.graph import Graph, Value
from lightnet.frontends.passing import Refused as NotPassed
from lightnet.frontends.passing import _candidates, _identity, _value, passing
from lightnet.frontends.sizes import SizeSymbol, UndecidedSize, bound, inputs_of, of_symbol
from lightnet.ir.bound import Apply, Const, Idx, Read
from lightnet.ir.types import TensorSpec
from lightnet.runtime.dims import Dim, Undecided, dim_max, dim_min, is_same, least
from lightnet.runtime.dtypes import BY_NAME

INF = math.inf


def spec(*dims: int, dtype: str = "f32") -> TensorSpec:
    return TensorSpec(dims, BY_NAME[dtype])


M, INT, U8, BIT = spec(5, 3), spec(5, 3, dtype="i32"), spec(5, 3, dtype="ui8"), spec(5, 3, dtype="i1")
ROWS, COLUMNS = {0: 0}, {1: 0}
#: op, types of operands, params, which axes of each are counted; the counted axes of the result and what is behind.
PASSED = [
    ("relu", [M], {}, [ROWS], ROWS, None), ("add", [M, M], {}, [ROWS, ROWS], ROWS, None), ("add", [M, spec(1, 3)], {}, [ROWS, {}], ROWS, None),
    ("transpose", [M], {"axes": (1, 0)}, [ROWS], COLUMNS, None), ("transpose", [M], {"axes": [1, 0]}, [ROWS], COLUMNS, None),
    ("softmax", [M], {"axis": 0}, [ROWS], ROWS, -INF), ("softmax", [M], {"axis": 1}, [ROWS], ROWS, None), ("log_softmax", [M], {"axis": 0}, [ROWS], ROWS, -INF),
    ("matmul", [M, spec(3, 4)], {}, [ROWS, {}], ROWS, None), ("matmul", [M, spec(3, 4)], {}, [COLUMNS, ROWS], {}, 0),
    ("dot_product", [spec(5), spec(5)], {}, [ROWS, ROWS], {}, 0), ("concat", [M, M], {"axis": 1}, [ROWS, ROWS], ROWS, None),
    ("where", [BIT, M, M], {}, [ROWS] * 3, ROWS, None), ("argmax", [M], {"axis": 1}, [ROWS], ROWS, None), ("clip", [M], {"lo": 0.0, "hi": 1.0}, [ROWS], ROWS, None),
    ("take", [M, spec(4, dtype="i64")], {"axis": 0}, [{}, ROWS], ROWS, None),
    *((f"reduce_{kind}", [of], {"axes": (0,)}, [ROWS], {}, fill) for kind, of, fill in (
        ("sum", M, 0), ("sum", INT, 0), ("prod", M, 1), ("prod", U8, 1), ("max", M, -INF), ("max", INT, -(1 << 31)), ("max", U8, 0), ("max", BIT, 0),
        ("min", M, INF), ("min", INT, (1 << 31) - 1), ("min", U8, 255), ("min", BIT, 1))),
]  # fmt: skip
LENGTH = "what it computes depends on the length itself"
REFUSED = [
    ("add", [M, M], {}, [ROWS, {}], "its parameters hold for one length only (error: add: tensor<6x3xf32>"),
    ("add", [spec(5, 5)] * 2, {}, [{0: 0}, {0: 1}], "it goes over this dim and over another one at once, and that they are equal"),
    ("reduce_mean", [M], {"axes": (0,)}, [ROWS], LENGTH), ("argmax", [M], {"axis": 0}, [ROWS], LENGTH), ("concat", [M, M], {"axis": 0}, [ROWS, ROWS], LENGTH),
    ("tile", [M], {"repeats": (2, 1)}, [ROWS], LENGTH), ("reshape", [M], {"dims": (15,)}, [ROWS], "its parameters hold for one length only (error: reshape"),
    ("cumsum", [M], {"axis": 0}, [ROWS], "cumsum has no definition in index notation to derive it from"),
    ("pad", [M], {"before": (1, 0), "after": (0, 0)}, [ROWS], "it writes the dim behind something else"),
    ("matmul", [M, spec(3, 4)], {}, [COLUMNS, {}], "its parameters hold for one length only (error: matmul"),
]  # fmt: skip


def test_what_ops_pass_on() -> None:
    classes = Graph("n").classes
    for op, specs, params, marks, axes, fill in PASSED:
        found = passing(classes[op], specs, params, marks)
        assert (found.results, found.fill) == ((axes,), fill), (op, specs[0])
    for op, specs, params, marks, message in REFUSED:
        for _ in range(2):  # what is remembered is said again
            with pytest.raises(NotPassed) as caught:
                passing(classes[op], specs, params, marks)
            assert str(caught.value).startswith(message), op


def read(tensor: str, *indices: str) -> Read:
    return Read(tensor, tuple(map(Idx, indices)), None, BY_NAME["f32"])


def apply(fn: str, *args) -> Apply:
    return Apply(fn, tuple(a if isinstance(a, Apply | Read | Const) else Const(a, BY_NAME["f32"]) for a in args), BY_NAME["f32"])  # fmt: skip


def test_values_behind_a_count() -> None:
    """`x` is 3 behind `i`, `y` minus infinity, `z` anything; None is what may be any number."""
    x, y, z, inner = read("x", "i"), read("y", "i", "j"), read("z", "i"), read("x", "j")
    for node, value in (
        (Const(7, BY_NAME["f32"]), 7), (x, 3), (y, -INF), (z, None), (inner, None), (apply("add", x, 1), 4), (apply("sub", 1, x), -2), (apply("mul", z, 0), 0),
        (apply("mul", 0, z), 0), (apply("mul", z, 2), None), (apply("mul", z, inner), None), (apply("add", z, y), -INF), (apply("add", y, z), -INF),
        (apply("sub", y, z), -INF), (apply("sub", z, y), INF), (apply("add", z, 1), None), (apply("add", z, inner), None), (apply("max", z, y), None),
        (apply("div", y, z), None), (apply("exp", y), 0), (apply("rem", x, 2), None), (apply("neg", y), INF), (apply("abs", y), INF), (apply("not", apply("lt", x, 1)), True),
        (apply("select", apply("lt", x, 5), x, 9), 3), (apply("select", apply("lt", x, 2), x, 9), 9), (apply("select", z, x, 3), 3), (apply("select", z, x, 4), None),
        (apply("select", z, inner, z), None), (apply("and", apply("le", x, 3), apply("eq", x, 4)), False), (apply("or", apply("ne", x, 3), apply("le", x, 2)), False),
        (Idx("i"), None),
    ):  # fmt: skip
        with np.errstate(all="ignore"):
            found = _value(node, {"x": 3, "y": -INF, "z": None}, {"i"})
        assert found == value, node
    for dtype, fills, limits in (("f32", [0, 1, -INF, INF], (-INF, INF)), ("i1", [0, 1], (0, 1)), ("ui8", [0, 1, 0, 255], (0, 255)), ("i16", [0, 1, -32768, 32767], (-32768, 32767))):  # fmt: skip
        kind = BY_NAME[dtype]
        assert _candidates(kind) == fills
        assert [_identity(op, kind) for op in ("+=", "*=", "max=", "min=")] == [0, 1, *limits]


# -- sizes ---------------------------------------------------------------------------------------------------------------


class Case:
    """A graph with an input of 5 rows of which `n` count, and another number `m` of at most 4."""

    def __init__(self) -> None:
        self.g = g = Graph("n.onnx")
        self.count = g.input("count", (), "i64")
        self.n = c.size_of_value(g, "n", 5, self.count)
        self.m = c.size_of_value(g, "m", 4, g.input("other", (), "i64"))
        self.x = self.counted("x", self.n, 3)

    def counted(self, name: str, *dims, dtype: str = "f32") -> Value:
        return c.counted(self.g, self.g.input(name, c.widths(dims), dtype), dims)

    def numbers(self, *dims) -> Value:
        return c.dim_numbers(self.g, list(dims))


@pytest.fixture
def case() -> Case:
    return Case()


def symbol(low: int, high: int) -> Dim:
    return of_symbol(SizeSymbol("s", low, high, emit=lambda: None))


def test_bounds_at_the_last_number() -> None:
    n = symbol(2, 5)
    assert (n < 6, n < 2, n <= 5, n <= 1, n > 1, n > 5, n >= 2, n >= 6) == (True, False) * 4
    for decide in (
        lambda: n < 5,
        lambda: n < 3,
        lambda: n <= 2,
        lambda: n <= 4,
        lambda: n > 2,
        lambda: n >= 3,
        lambda: n >= 5,
        lambda: n > 4,
    ):
        with pytest.raises(Undecided, match="it needs to know whether "):
            decide()
    assert (bound(n), bound(7), least(n), least(7), bound(n - 9)) == (5, 7, 2, 7, 0)
    assert ((n * 6) // 3, (n * 6) % 3, (n * n) // n, n.over(n), n.over(n + 1), n.over(0), (n + 1).over(n)) == (
        n * 2,
        0,
        n,
        1,
        None,
        None,
        None,
    )
    for odd in (lambda: range(n), lambda: n / 2, lambda: 9 // n, lambda: n // (n + 1)):
        with pytest.raises(Undecided):
            odd()
    assert (-n, 3 - n, n - n, str(n * 2 + 1)) == (n * -1, n * -1 + 3, 0, "2*s(2..5) + 1")
    assert (
        (n * -2).low,
        (n * -2).high,
        (n - 3).low,
        (n - 3).high,
        (symbol(-3, 2) * n).low,
        (symbol(-3, 2) * n).high,
    ) == (-10, -4, -1, 2, -15, 10)


def test_dims_of_ops(case: Case) -> None:
    g, n, m, x = case.g, case.n, case.m, case.x
    op = g.op
    for dims, found in {
        (n, 3): op("relu", x), (3, n): op("transpose", x, axes=(1, 0)), (n * 3,): op("reshape", x, dims=(n * 3,)), (n + 2, 3): op("concat", x, g.input("a", (2, 3), "f32"), axis=0),
        (2, n, 3): op("expand", x, dims=(2, n, 3)), (1, 3): op("reduce_sum", x, axes=(0,)), (n, 1): op("reduce_sum", x, axes=(1,)), (n, 2): op("slice", x, axis=1, start=0, len=2),
        (n - n, 3): op("slice", x, axis=0, start=0, len=0),
    }.items():  # fmt: skip
        assert found.dims == dims, dims
    first = op("slice", x, axis=0, start=0, len=2)
    assert (str(first.dims[0]), first.dims[0].high, first.dims[0].low) == ("min(2, n(0..5))", 2, 0)
    assert op("slice", case.counted("tall", n + 2, 3), axis=0, start=0, len=2).dims == (2, 3)
    values, places = op("topk", case.counted("y", n, 4), axis=1, k=2) if "topk" in c.RULES else (x, x)
    assert values.dims[0] == places.dims[0] == n
    both = case.counted("z", n, m)
    flags = c.before_count(g, both.dims)
    assert flags is not None and flags.dims == (5, 4) and flags.dtype.name == "i1"
    assert c.before_count(g, (5, 4)) is None
    plain = g.input("plain", (2, 2), "f32")
    assert c.filled_behind(g, plain, 0) is plain and c.filled_behind(g, x, 0).dims == (n, 3)
    assert (
        c.fitted(g, plain, 0, 2) is plain
        and c.fitted(g, plain, 1, 3).dims == (2, 3)
        and c.fitted(g, plain, 0, 1).dims == (1, 2)
    )
    assert (c.width(n), c.width(symbol(0, 1)), c.width(1), c.widths((n, 3))) == (5, 2, 1, (5, 3))
    assert repr(g.scalar(2, "f32")) == "Value(tensor<f32>, known)" and repr(plain) == "Value(tensor<2x2xf32>)"


def test_quotients_and_extremes_of_dims(case: Case) -> None:
    n, m = case.n, case.m
    assert c.dim_quotient(7, 2) == 3 and c.dim_quotient(n * 4, 2) == n * 2 and c.dim_quotient(n * m, m) == n
    half = c.dim_quotient(n + 3, 2)
    assert (str(half), half.low, half.high) == ("((n(0..5) + 1) floordiv 2) + 1", 1, 4) and c.dim_quotient(
        n + 3, 2
    ) == half
    for a, b in ((7, n), (n, m), (n, 0), (n, -2), (n - 1, 2)):
        with pytest.raises(Undecided):
            c.dim_quotient(a, b)
    assert (
        dim_min(n, 5),
        dim_min(5, n),
        dim_max(n, 5),
        dim_min(0, n),
        dim_max(n, 0),
    ) == (n, n, 5, 0, n)
    least_of, most_of = dim_min(n, m), dim_max(n + 1, m)
    assert (least_of.low, least_of.high, most_of.low, most_of.high) == (0, 4, 1, 6)
    assert is_same(n, n) and is_same(3, 3) and not is_same(n, n + 1) and not is_same(n, 6) and not is_same(n + 1, 0)
    for a, b in ((n, 5), (n, 0), (n, m)):
        with pytest.raises(Undecided):
            is_same(a, b)


def test_arithmetic_on_sizes_as_tensors(case: Case) -> None:
    """Sizes stay sizes in what NumPy computes of a shape; what the bounds decide is a constant."""
    g, n, m = case.g, case.n, case.m
    a, b = case.numbers(n, 3, n + 1), case.numbers(2, m, n)
    one, table = g.constant(np.array([1], np.int64)), g.constant(np.array([10, 20, 30], np.int64))

    def numbers(value: Value) -> list:
        return value.numbers.tolist() if isinstance(value, c.Numbers) else value.known.tolist()

    for optype, operands, params, want in (
        ("add", (a, b), {}, [n + 2, m + 3, n * 2 + 1]), ("sub", (a, a), {}, [0, 0, 0]), ("mul", (a, one), {}, [n, 3, n + 1]), ("neg", (a,), {}, [n * -1, -3, n * -1 - 1]),
        ("reshape", (a,), {"dims": (3, 1)}, [[n], [3], [n + 1]]), ("slice", (a,), {"axis": 0, "start": 1, "len": 2}, [3, n + 1]), ("concat", (one, a), {"axis": 0}, [1, n, 3, n + 1]),
        ("take", (a, g.constant(np.array([2, 0], np.int64))), {"axis": 0}, [n + 1, n]), ("reduce_sum", (a,), {"axes": (0,)}, [n * 2 + 4]), ("reduce_prod", (a,), {"axes": (0,)}, [n * 3 * (n + 1)]),
        ("reduce_max", (case.numbers(n, n + 6),), {"axes": (0,)}, [n + 6]), ("reduce_min", (case.numbers(n, 9),), {"axes": (0,)}, [n]), ("maximum", (a, case.numbers(-1, 9, -3)), {}, [n, 9, n + 1]),
        ("abs", (case.numbers(n, -3),), {}, [n, 3]), ("equal", (a, case.numbers(n, 3, n)), {}, [True, True, False]), ("less", (a, case.numbers(6, 3, 7)), {}, [True, False, True]),
        ("less_equal", (a, case.numbers(5, 2, 6)), {}, [True, False, True]), ("div", (case.numbers(n * 4), g.constant(np.array([2], np.int64))), {}, [n * 2]),
        ("where", (g.constant(np.array([True, False, True])), a, b), {}, [n, m, n + 1]),
    ):  # fmt: skip
        found = g.op(optype, *operands, **params)
        assert numbers(found) == want, optype
        assert isinstance(found, c.Numbers) or found.is_known
    assert numbers(g.cast(a, "i64")) == [n, 3, n + 1]
    # what is no size, or what no bound decides, is computed at run time
    for optype, operands, params in (
        ("equal", (a, b), {}), ("less", (a, b), {}), ("div", (a, g.constant(np.zeros(3, np.int64))), {}), ("sqrt", (g.cast(a, "f32"),), {}),
        ("mul", (g.cast(a, "f32"), g.constant(np.array([0.5], np.float32))), {}), ("add", (a, g.input("fed", (3,), "i64")), {}), ("reduce_mean", (a,), {"axes": (0,)}),
        ("take", (table, case.numbers(n)), {"axis": 0}), ("mod", (a, b), {}), ("reduce_max", (case.numbers(n, m * n),), {"axes": (0,)}),
    ):  # fmt: skip
        found = g.op(optype, *operands, **params)
        assert (not found.is_known and found.ssa is not None) or isinstance(found, c.Numbers), optype
        if optype not in ("div", "reduce_max"):
            assert not isinstance(found, c.Numbers), optype
    assert numbers(moves.reshape(g, a, (1, 3))) == [[n, 3, n + 1]] and numbers(
        moves.expand(g, case.numbers(n), (2,))
    ) == [n, n]
    assert numbers(moves.concat(g, [a, one], 0)) == [n, 3, n + 1, 1] and moves.expand(g, a, (3,)) is a
    assert a.emitted(g).dims == (3,) and case.numbers(n).emitted(g).dims == (1,)


def test_what_is_refused(case: Case) -> None:
    g, n, m, x = case.g, case.n, case.m, case.x
    y = g.input("y", (5, 3), "f32")
    long = case.counted("long", n, 3)
    for run, message in (
        (lambda: g.op("add", x, y), "data-dependent shape: add takes no dim that the data decides (n(0..5)): its parameters hold for one length only"),
        (lambda: g.op("add", x, case.counted("v", m + 1, 3)), "data-dependent shape: add takes no dim that the data decides (n(0..5), m(0..4) + 1): it goes over"),
        (lambda: g.op("argmax", x, axis=0), "data-dependent shape: argmax takes no dim that the data decides (n(0..5)): what it computes depends on the length itself"),
        (lambda: g.op("take_along", x, g.input("i", (2, 3), "i64"), axis=1), "data-dependent shape: it needs the number n(0..5)"),
        (lambda: moves.slice_axis(g, x, 0, n - 1, n, 1), "data-dependent shape: it needs the number n(0..5) - 1"),
        (lambda: moves.pad(g, x, (n, 0), (0, 0), 0.0), "data-dependent shape: it needs the number "),
        (lambda: moves.pad(g, x, (0, 0), (n - 9, 0), 0.0), "data-dependent shape: it needs the number "),
        (lambda: moves.slice_axis(g, case.numbers(n, m), 0, 0, n, 1), "data-dependent shape: it needs the number "),
    ):  # fmt: skip
        with pytest.raises(UndecidedSize) as caught:
            run()
        assert caught.value.message.startswith(message), message
        assert inputs_of(*caught.value.sizes) & {"count", "other"}
    with pytest.raises(LightNetError) as found:
        moves.expand(g, x, (n, 4))
    assert found.value.message == "['n(0..5)', '3'] does not broadcast to ['n(0..5)', '4']"
    with pytest.raises(LightNetError) as found:
        moves.concat(g, [x, case.counted("u", m, 3)], 1)
    assert found.value.message == "the parts differ along axis 0: n(0..5), m(0..4)"
    assert moves.concat(g, [x, long], 1).dims == (n, 6) and moves.concat(g, [x, long], 0).dims == (n * 2, 3)


RESHAPES = [
    # source, target: whether it moves nothing (the dims of the type then)
    (("n", 3), ("n3",), (15,)), (("n", 3), ("n", 3, 1), (5, 3, 1)), (("n", 3), (1, "n", 3), (1, 5, 3)), (("n", 6), ("n", 2, 3), (5, 2, 3)), (("n", 6), ("n2", 3), (10, 3)),
    ((2, "n"), (2, "n"), None), ((2, "n"), (1, 2, "n"), (1, 2, 5)), ((2, "n"), ("n2",), None), ((1, "n"), ("n",), (5,)), ((4, "n"), (2, 2, "n"), (2, 2, 5)),
    (("n", "m"), ("nm",), None), (("n", "m"), ("n", "m", 1), (5, 4, 1)), (("n", 3), (3, "n"), None), (("n", 4), ("n", 3), None), ((3, "n"), ("n", 3), None),
    (("n", 2, "m"), ("n2", "m"), (10, 4)), ((), (1,), (1,)), ((1,), (), ()), (("n", 0), ("n", 0), None), ((0, "n"), (0,), None), ((5, 4), (20,), (20,)), ((5, 4), (21,), None),
]  # fmt: skip


def test_reshapes_that_move_nothing(case: Case) -> None:
    n, m = case.n, case.m
    named = {"n": n, "m": m, "n3": n * 3, "n2": n * 2, "nm": n * m}
    for source, target, lens in RESHAPES:
        from_, to = ([named.get(d, d) for d in dims] for dims in (source, target))
        found = moves._in_place(from_, [c.width(d) for d in from_], to)
        if source == target:
            assert found is not None and len(found) == len(target)
        elif lens is None:
            assert found is None, (source, target)
        else:
            assert tuple(found) == lens, (source, target)
    assert c.fitted(case.g, case.g.input("f", (4,), "f32"), 0, 6).dims == (6,)
    assert c.fitted(case.g, case.g.input("h", (4,), "f32"), 0, 3).dims == (3,)
    flat = case.g.input("i", (4,), "f32")
    assert c.fitted(case.g, flat, 0, 4) is flat
