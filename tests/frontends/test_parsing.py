"""Precedence climbing (`lightnet/parsing.py`): every language of expressions against Python, whose precedences they share where they agree."""

import random
from collections.abc import Callable, Sequence

import pytest

from lightnet.diagnostics import LightNetError
from lightnet.frontends.il import condition, eval_expr, lexer
from lightnet.ir import constants
from lightnet.ir.expr import parse_expr
from lightnet_descriptions import c
from lightnet_descriptions.c import lexer as c_lexer

#: What is alike in all four: comparisons stand in parentheses, as Python chains them and C does not.
_BINARY = ("+", "-", "*", "+", "-", "*", "==", "!=", "<", "<=", ">", ">=")


def _text(rng: random.Random, depth: int = 0) -> str:
    if depth > 4 or rng.random() < 0.25:
        return str(rng.randrange(5))
    op = rng.choice(_BINARY)
    inner = f"{_text(rng, depth + 1)} {op} {_text(rng, depth + 1)}"
    if op in ("+", "-", "*"):
        return inner if rng.random() < 0.7 else f"({inner})"
    return f"(({_text(rng, depth + 2)}) {op} ({_text(rng, depth + 2)}))"


def _condition(text: str) -> bool:
    kinds = {True: lexer.NUMBER, False: lexer.PUNCT}
    found = [t.text for t in c_lexer.tokens(text)[:-1]]
    return condition.condition_holds([(kinds[t.isdigit()], t, 0) for t in found])  # type: ignore[misc]


@pytest.mark.parametrize("seed", range(40))
def test_precedences_are_pythons(seed: int) -> None:
    text = _text(random.Random(seed))
    value = int(eval(text))  # of numbers and operators made here
    assert int(constants.evaluate(text, constants.Env({}, {}))) == value
    assert c.evaluate_c(text, {}) == value
    assert int(eval_expr.evaluate_perl(text) or 0) == value
    assert _condition(text) == bool(value)


@pytest.mark.parametrize(
    "text", ["1 < 2 < 3", "1 == 2 != 3", "0 || 1 < 2 >= 3", "1 + (2 == 3 == 4)", "1 && 2 < 3 <=> 4 == 5"]
)
def test_what_does_not_stand_in_a_row(text: str) -> None:
    """Perl's comparisons: a second one of the same precedence is malformed, however deep the first one stands."""
    with pytest.raises(LightNetError, match="unexpected"):
        eval_expr.evaluate_perl(text)


@pytest.mark.parametrize(
    "parse", [lambda t: constants.evaluate(t, constants.Env({}, {})), lambda t: c.evaluate_c(t, {})]
)
@pytest.mark.parametrize("text, message", [("1" + " + 1" * 61, "operators in a row"), ("(" * 61 + "1" + ")" * 61, "nested more than 60 deep"),
                                           ("!" * 61 + "1", "nested more than 60 deep")])  # fmt: skip
def test_bounds(parse, text: str, message: str) -> None:
    with pytest.raises(LightNetError, match=message):
        parse(text)


#: An operator of each level that the languages share, those that bind weakest first.
_CHAIN = ("||", "&&", "|", "&", "==", "<", "<<", "+", "*")


@pytest.mark.parametrize("depth", [8, 15, 24, 39, 59])
@pytest.mark.parametrize("row", [0, 1, 9, 59])
@pytest.mark.parametrize("is_left", [False, True])
def test_no_text_takes_a_deep_stack(depth: int, row: int, is_left: bool) -> None:
    """Brackets at the end of an operand of each level, or at the head of a row: a value, or an error of the language, and trees that can be walked."""

    def text(chain: Sequence[str]) -> str:
        found = "1"
        for _ in range(depth):
            ahead = "" if is_left else "".join(f"1{op}" for op in chain[max(len(chain) - row, 0) :])
            found = f"{ahead}({found}{'+1' * row * is_left})"
        return found

    def tree() -> object:
        ours = text([op for op in _CHAIN if op not in ("|", "&", "<<")])  # which index notation has not
        parsed = parse_expr(ours)
        return hash(parsed), str(parsed), constants.evaluate(ours, constants.Env({}, {}))

    whole = text(_CHAIN)
    evaluated = (
        tree,
        lambda: c.evaluate_c(whole, {}),
        lambda: eval_expr.evaluate_perl(whole),
        lambda: _condition(whole),
    )
    outcomes = [_outcome(f) for f in evaluated]
    if depth * max(row, 1) <= 100 and depth <= 15:
        assert all(outcomes), outcomes


def _outcome(evaluate: Callable[[], object]) -> bool:
    try:
        evaluate()
    except (LightNetError, condition.TokenError):
        return False
    return True
