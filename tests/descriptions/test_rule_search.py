"""How rules of files run: in which order ways to match are tried and how many, whatever language says the rule."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter

from lightnet.diagnostics import SourceLoc
from lightnet.ir.context import make_context
from lightnet.ir.module import main_of
from lightnet.ir.op import LnOp
from lightnet.ir.parser import parse_mlir
from lightnet_descriptions.rules import Bindings, Case, Matcher, MatchStep, Rule, solutions

MODULE = "func.func @main() -> tensor<3xf32> {\n%x = ln.input : tensor<3xf32>\nfunc.return %x : tensor<3xf32>\n}"


class Numbered(Matcher):
    """Matches any op in endlessly many ways: 0, 1, …"""

    roots = ()

    def anchors(self, op: Operation) -> Iterable[LnOp]:
        return (op,) if isinstance(op, LnOp) else ()

    def matches(self, anchor: LnOp) -> Iterator[Bindings]:
        return ({"n": n} for n in itertools.count())


def acted(*cases: tuple[int, int, bool]) -> list[tuple[int, int]]:
    """The cases that act on one op, each with the way to match: case k holds for every `step`th way from `first` on,
    and does something if `done`."""
    seen = []

    def case(k: int, first: int, step: int, done: bool) -> Case:
        def act(bound: Bindings, anchor: LnOp, rewriter: PatternRewriter) -> bool:
            seen.append((k, bound["n"]))
            return done

        return Case(act, (lambda bound: bound["n"] >= first and (bound["n"] - first) % step == 0,))

    made = tuple(case(k, *one) for k, one in enumerate(cases))
    rule = Rule("r", "simplify", "*", SourceLoc("r.txt", 1, 1), "", Numbered(), made)
    (op, _) = main_of(parse_mlir(make_context(), MODULE, "x.mlir")).body.block.ops
    rule.pattern()().match_and_rewrite(op, PatternRewriter(op))
    return seen


def test_ways_to_match_are_tried_in_order_and_256_of_them() -> None:
    """Until a case does something: of those that hold, the first is meant."""
    for first in (0, 1, 254, 255, 256, 257):
        assert acted((first, 1000, True)) == [(0, first)] * (first < 256), first
    assert acted((0, 1, False)) == [(0, n) for n in range(256)]
    assert acted((3, 1000, False), (2, 1, False), (5, 1, True)) == [(1, 2), (0, 3), (1, 4), (1, 5)] + [
        (1, n) for n in range(6, 256)
    ]
    assert acted((250, 3, False), (0, 254, True)) == [(1, 0)]
    assert acted((250, 3, False), (254, 1, True)) == [(0, 250), (0, 253), (1, 254)]


@pytest.mark.parametrize("seed", range(20))
def test_solutions_are_those_of_trying_all(seed: int) -> None:
    """Each step binds one number more, from candidates that those before it decide; in the order of nested loops, and
    with an error for the first candidate beyond as many as may be looked at."""
    draw = random.Random(seed)
    sizes = [draw.randrange(4) for _ in range(draw.randrange(1, 5))]
    refused = {tuple(draw.randrange(4) for _ in range(draw.randrange(1, 5))) for _ in range(4)}
    looked = []

    def step(k: int) -> MatchStep:
        def accepts(op: Any, bound: Bindings) -> bool:
            looked.append(op)
            bound[k] = op
            return tuple(bound[i] for i in range(k + 1)) not in refused

        return MatchStep(lambda bound: range(sizes[k]), accepts)  # type: ignore[arg-type, return-value]

    steps = [step(k) for k in range(len(sizes))]
    every = itertools.product(*map(range, sizes))
    want = [way for way in every if not any(way[: k + 1] in refused for k in range(len(sizes)))]
    assert [tuple(b.values()) for b in solutions(steps, {}, 1000, KeyError)] == want
    needed = len(looked)
    assert [tuple(b.values()) for b in solutions(steps, {}, needed, KeyError)] == want
    for most in range(needed):
        looked.clear()
        with pytest.raises(KeyError):
            list(solutions(steps, {}, most, KeyError))
        assert len(looked) == most
