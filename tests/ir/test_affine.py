"""Arithmetic of indices: what is simplified has the same values for all indices, equal forms are equal trees, and what is proved holds."""

from __future__ import annotations

import itertools
import operator
import random

import pytest

from lightnet.ir.affine import IndexSpace, dtype_range
from lightnet.ir.bound import BOOL, I64, Apply, Const, Idx, Node, show
from lightnet.runtime.dtypes import BY_NAME

LOOPS = (("i", 4), ("j", 3), ("k", 6))
I, J, K = (Idx(name) for name, _ in LOOPS)
MEANING = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": operator.floordiv, "mod": operator.mod, "min": min,
    "max": max, "lt": operator.lt, "le": operator.le, "eq": operator.eq, "and": lambda a, b: a and b, "or": lambda a, b: a or b,
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
