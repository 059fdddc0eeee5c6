"""Arithmetic of indices: what is simplified has the same values for all indices, equal forms are equal trees, and what is proved holds."""

from __future__ import annotations

import itertools
import math
import operator
import random

import pytest

from lightnet.ir.affine import IndexSpace, dtype_range
from lightnet.ir.bound import BOOL, I64, Apply, Const, Idx, Node, Read, show
from lightnet.runtime.dims import symbol
from lightnet.runtime.dtypes import BY_NAME

LOOPS = (("i", 4), ("j", 3), ("k", 6))
I, J, K = (Idx(name) for name, _ in LOOPS)
MEANING = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": operator.floordiv, "mod": operator.mod, "min": min,
    "max": max, "lt": operator.lt, "le": operator.le, "eq": operator.eq, "ne": operator.ne, "and": lambda a, b: a and b, "or": lambda a, b: a or b,
}  # fmt: skip
POINTS = [dict(zip("ijk", at)) for at in itertools.product(*(range(n) for _, n in LOOPS))]


def number(value: int) -> Const:
    return Const(value, I64)


def made(fn: str, a: Node | int, b: Node | int) -> Node:
    args = tuple(number(x) if isinstance(x, int) else x for x in (a, b))
    return Apply(fn, args, BOOL if fn in ("lt", "le", "eq", "and", "or") else I64)


def value(node: Node, at: dict[str, int]) -> int | bool:
    if isinstance(node, Const):
        return node.value
    if isinstance(node, Idx):
        return at[node.name]
    args = [value(a, at) for a in node.args]
    return not args[0] if node.fn == "not" else -args[0] if node.fn == "neg" else MEANING[node.fn](*args)


def random_node(rng: random.Random, depth: int) -> Node:
    if depth == 0:
        return rng.choice([I, J, K, number(rng.randint(-3, 7))])
    fn = rng.choice(["add", "add", "sub", "mul", "floordiv", "mod", "min", "max"])
    right: Node | int = random_node(rng, depth - 1)
    if fn in ("floordiv", "mod"):
        right = rng.choice([1, 2, 3, 4, 6])
    elif fn == "mul":
        right = rng.randint(-3, 4)
    return made(fn, random_node(rng, depth - 1), right)


@pytest.mark.parametrize("seed", range(4))
def test_simplified_expressions_have_the_same_values(seed: int) -> None:
    """And stay within the bounds that are stated; what is decided about them is so at every point."""
    rng, space = random.Random(seed), IndexSpace(LOOPS)
    for _ in range(40):
        node, limit = random_node(rng, 3), rng.randint(-5, 12)
        values = [value(node, at) for at in POINTS]
        simple = space.simplify(node)
        assert [value(simple, at) for at in POINTS] == values, show(node)
        low, high = space.bounds(space.linear(node))
        assert low <= min(values) and max(values) <= high, show(node)
        assert not space.inside(node, limit) or all(0 <= v < limit for v in values), show(node)
        assert not space.outside(node, limit) or not any(0 <= v < limit for v in values), show(node)
        for fn in ("lt", "le", "eq"):
            cond = made(fn, node, limit)
            known = space.decide(cond)
            assert known is None or all(value(cond, at) == known for at in POINTS), show(cond)
            for holds in (True, False):
                where = [at for at in POINTS if value(cond, at) is holds]
                for form in space.consequences(cond, holds):
                    assert all(value(form.node(), at) >= 0 for at in where), f"{show(cond)} is {holds}"


#: An expression and its form: larger factors first whatever their sign, then by name; what the ranges allow is divided out.
FORMS = [
    (made("add", made("mul", J, 2), made("mul", I, -5)), "((i * -5) + (j * 2))"),
    (made("sub", made("add", J, I), J), "i"), (made("add", made("add", 3, K), made("add", I, -3)), "(i + k)"),
    (made("floordiv", made("add", made("mul", I, 6), K), 6), "i"), (made("mod", made("add", made("mul", I, 6), K), 6), "k"),
    (made("floordiv", made("add", made("mul", I, 6), K), 3), "((i * 2) + (k // 3))"),
    (made("floordiv", made("floordiv", K, 2), 2), "(k // 4)"), (made("floordiv", I, 4), "0"), (made("mod", I, 4), "i"),
    (made("mod", made("add", I, 8), 4), "i"), (made("floordiv", made("add", I, 8), 4), "2"),
    (made("min", I, 3), "i"), (made("max", I, 3), "3"), (made("min", I, 0), "0"), (made("max", K, -1), "k"),
    (made("add", made("mul", made("floordiv", K, 2), 2), made("mod", K, 2)), "k"),
    (made("mul", made("sub", I, I), K), "0"), (made("mul", 2, made("add", I, 1)), "((i * 2) + 2)"),
]  # fmt: skip


@pytest.mark.parametrize(("node", "form"), FORMS, ids=lambda x: x if isinstance(x, str) else show(x))
def test_a_form(node: Node, form: str) -> None:
    assert show(IndexSpace(LOOPS).simplify(node)) == form


@pytest.mark.parametrize(
    ("cond", "known"),
    [
        (made("lt", I, 4), True), (made("lt", I, 3), None), (made("lt", I, 0), False), (made("le", I, 3), True), (made("le", I, 2), None),
        (made("le", I, -1), False), (made("eq", I, I), True), (made("eq", I, 4), False), (made("eq", I, 3), None),
        (made("lt", I, made("add", I, 1)), True), (made("lt", I, I), False),
    ],
    ids=lambda x: str(x) if isinstance(x, bool | None) else show(x),
)  # fmt: skip
def test_what_the_ranges_decide(cond: Node, known: bool | None) -> None:
    assert IndexSpace(LOOPS).decide(cond) is known


def test_ranges_of_types() -> None:
    for dtype in BY_NAME.values():
        if not dtype.is_stored and dtype.kind in ("int", "uint"):
            assert dtype_range(dtype) == dtype.limits, dtype.name


def flipped(node: Node) -> Apply:
    return Apply("not", (node,), BOOL)


def chosen(cond: Node, a: Node | int, b: Node | int) -> Apply:
    args = [number(x) if isinstance(x, int) else x for x in (a, b)]
    return Apply("select", (cond, *args), I64)


def pick(index: Node, *values: int) -> Apply:
    return Apply("table", (index, *map(number, values)), I64)


def different(a: Node, b: Node | int) -> Apply:
    return Apply("ne", (a, number(b) if isinstance(b, int) else b), BOOL)


FAR, X8 = Idx("far"), Read("x", (), None, BY_NAME["i8"])
YES, MAYBE, NO = made("lt", I, 4), made("lt", I, 3), made("lt", I, 0)


def test_whether_subscripts_are_inside() -> None:
    """k runs over 0..5: with nothing known beside, and where k >= j is."""
    space = IndexSpace(LOOPS)
    for sub, extent, inside, outside in (
        (K, 6, True, False), (K, 7, True, False), (K, 5, False, False), (K, 0, False, True), (made("add", K, 1), 6, False, False), (made("sub", K, 1), 6, False, False),
        (made("add", K, 6), 6, False, True), (made("add", K, 5), 6, False, False), (made("sub", K, 6), 6, False, True), (made("sub", K, 5), 6, False, False),
        (made("sub", K, J), 6, False, False), (FAR, 6, False, False), (number(0), 1, True, False), (number(1), 1, False, True),
    ):  # fmt: skip
        assert (space.inside(sub, extent), space.outside(sub, extent)) == (inside, outside), show(sub)
    known = space.knowing([space.linear(made("sub", K, J))])
    assert known.inside(made("sub", K, J), 6) and not known.inside(made("sub", made("sub", K, J), 1), 6)
    assert known.outside(made("sub", made("sub", J, K), 1), 6) and not known.outside(made("sub", J, K), 6)
    assert not space.inside(made("sub", K, J), 6), "the space itself knows no more"


def test_what_logic_decides() -> None:
    space = IndexSpace(LOOPS)
    truths = {True: YES, None: MAYBE, False: NO}
    for (a, left), (b, right) in itertools.product(truths.items(), repeat=2):
        for fn, stop in (("and", False), ("or", True)):
            want = stop if stop in (a, b) else None if None in (a, b) else not stop
            assert space.decide(made(fn, left, right)) is want, (fn, a, b)
    assert [space.decide(flipped(x)) for x in (YES, MAYBE, NO)] == [False, None, True]
    for node, known in (
        (different(I, I), False), (different(I, 4), True), (different(I, -1), True), (different(I, 3), None), (different(I, 0), None), (made("eq", I, -1), False),
        (Const(True, BOOL), True), (Const(False, BOOL), False), (made("lt", FAR, 4), None), (made("lt", FAR, 0), False),
    ):  # fmt: skip
        assert space.decide(node) is known, show(node)


def test_consequences_are_as_sharp_as_can_be() -> None:
    """Each form is 0 somewhere where the condition is so: one less would be wrong."""
    space = IndexSpace(LOOPS)
    both = made("and", made("lt", I, K), made("le", J, I))
    rows: list[tuple[Node, bool, int]] = [
        (made("lt", I, K), True, 1), (made("lt", I, K), False, 1), (made("le", I, K), True, 1), (made("le", I, K), False, 1), (made("eq", I, K), True, 2),
        (different(I, K), False, 2), (different(I, 0), True, 1), (made("eq", I, 0), False, 1), (made("eq", I, 3), False, 1), (different(I, 2), True, 0),
        (made("eq", I, K), False, 0), (both, True, 2), (both, False, 0), (made("or", made("lt", I, 1), made("le", J, I)), False, 2), (made("or", MAYBE, YES), True, 0),
        (flipped(made("lt", I, K)), True, 1), (flipped(made("lt", I, K)), False, 1), (made("lt", X8, 3), True, 0),
    ]  # fmt: skip
    for cond, holds, count in rows:
        forms = space.consequences(cond, holds)
        assert len(forms) == count, show(cond)
        for form in forms:
            assert min(value(form.node(), at) for at in POINTS if value(cond, at) is holds) == 0, show(cond)


def test_intervals_of_expressions() -> None:
    space = IndexSpace(LOOPS)
    for node, want in (
        (I, (0, 3)), (FAR, (0, math.inf)), (number(-2), (-2, -2)), (X8, (-128, 127)), (made("mul", I, J), (-math.inf, math.inf)), (made("sub", I, J), (-2, 3)),
        (made("floordiv", made("sub", K, 3), 2), (-2, 1)), (made("floordiv", FAR, 2), (0, math.inf)), (made("floordiv", Apply("neg", (FAR,), I64), 2), (-math.inf, 0)),
        (made("mod", X8, 5), (0, 4)), (made("min", I, K), (0, 3)), (made("max", I, number(2)), (2, 3)), (chosen(MAYBE, I, made("sub", J, 9)), (-9, 3)),
        (pick(I, 4, -1, 7, 2), (-1, 7)), (Apply("cast", (X8,), I64), (-128, 127)), (Apply("cast", (Read("y", (), None, BY_NAME["f32"]),), I64), dtype_range(I64)),
        (Apply("rem", (X8, number(3)), I64), dtype_range(I64)),
    ):  # fmt: skip
        assert space.interval(node) == want, show(node)
    assert dtype_range(BY_NAME["f32"]) == (-math.inf, math.inf) and IndexSpace([("i", 0)]).interval(I) == (0, 0)


#: What a guard decides, what logic leaves, and divisions that truncate of what may be negative.
SIMPLE: list[tuple[Node, str]] = [
    (chosen(YES, I, J), "i"), (chosen(NO, I, J), "j"), (chosen(MAYBE, I, I), "i"), (chosen(MAYBE, I, J), "((i < 3) ? i : j)"),
    (chosen(made("lt", I, 2), made("floordiv", I, 2), 5), "((i < 2) ? (i // 2) : 5)"), (chosen(made("lt", K, 2), made("min", K, 1), 5), "((k < 2) ? min(k, 1) : 5)"),
    (chosen(made("lt", I, 2), chosen(made("lt", I, 3), I, J), 5), "((i < 2) ? i : 5)"), (chosen(made("lt", I, 2), 5, chosen(made("lt", I, 1), I, J)), "((i < 2) ? 5 : j)"),
    (made("and", YES, MAYBE), "(i < 3)"), (made("and", MAYBE, YES), "(i < 3)"), (made("or", NO, MAYBE), "(i < 3)"), (made("and", NO, MAYBE), "False:i1"), (made("or", YES, MAYBE), "True:i1"),
    (made("and", MAYBE, made("lt", J, 1)), "((i < 3) && (j < 1))"), (made("or", MAYBE, made("lt", J, 1)), "((i < 3) || (j < 1))"),
    (made("and", different(Apply("rem", (made("mul", I, 6), number(3)), I64), 0), made("lt", J, 1)), "False:i1"),
    (made("or", made("eq", Apply("rem", (made("mul", I, 6), number(3)), I64), number(0)), made("lt", J, 1)), "True:i1"),
    (made("and", made("eq", Apply("rem", (made("mul", I, 6), number(3)), I64), number(0)), made("lt", J, 1)), "(j < 1)"),
    (Apply("div", (K, number(3)), I64), "(k // 3)"), (Apply("rem", (K, number(3)), I64), "(k mod 3)"), (Apply("div", (made("sub", K, 1), number(3)), I64), "((k + -1) / 3)"),
    (Apply("rem", (made("sub", K, 1), number(3)), I64), "((k + -1) % 3)"), (made("eq", Apply("rem", (made("sub", K, 1), number(3)), I64), number(0)), "(((k + 2) mod 3) == 0)"),
    (Apply("neg", (made("sub", I, J),), I64), "((i * -1) + j)"), (made("mul", I, J), "(i * j)"), (made("mul", made("add", I, 0), 0), "0"),
    (made("floordiv", made("add", made("mul", K, 2), 3), 4), "((k + 1) // 2)"), (made("mod", made("add", made("mul", K, 2), 3), 4), "((((k + 1) mod 2) * 2) + 1)"),
    (made("floordiv", made("floordiv", K, 3), 2), "0"), (made("floordiv", made("mul", K, 4), 6), "((k * 2) // 3)"), (made("mod", made("sub", I, 3), 4), "((i + 1) mod 4)"),
    (made("add", made("mul", made("floordiv", K, 2), 2), made("mod", J, 2)), "(((k // 2) * 2) + (j mod 2))"), (Apply("add", (I, Idx("one")), I64), "i"),
    (made("max", I, I), "i"), (made("min", K, 5), "k"), (made("max", K, 5), "5"), (made("min", K, J), "min(k, j)"),
]  # fmt: skip


def test_simple_forms() -> None:
    space = IndexSpace((*LOOPS, ("one", 1)))
    for node, form in SIMPLE:
        assert show(space.simplify(node)) == form


def test_what_two_dims_have_in_common_is_cancelled() -> None:
    """``(2·i·n + n) / (5·n)`` is ``(2·i + 1) / 5``, whatever n is; a rest that has no such factor stays."""
    n = symbol("n", 1, 9)
    space = IndexSpace((("i", 2 * n),))
    scaled = made("floordiv", made("mul", made("add", made("mul", I, 2), 1), Const(n, I64)), Const(5 * n, I64))
    assert show(space.simplify(scaled)) == "(((i * 2) + 1) // 5)"
    assert space.inside(made("floordiv", made("mul", I, Const(n, I64)), Const(2 * n, I64)), n)
    other = made("floordiv", made("add", made("mul", I, Const(n, I64)), 1), Const(4 * n, I64))
    assert space.linear(other).terms and "n(1..9)" in show(space.simplify(other))


def test_ends_that_calls_decide_beside_ends_that_are_infinite() -> None:
    """The lower of an open end and of infinity is the open one; it was an assertion."""
    n = symbol("n", 1, 9)
    space = IndexSpace((("i", n),))
    pair = Idx("i"), Idx("free")  # of which nothing is known but that it is not below 0
    assert space.interval(Apply("min", pair, I64)) == (0, n - 1)
    assert space.interval(Apply("max", pair, I64)) == (0, math.inf)
