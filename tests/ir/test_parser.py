"""Reading `.mlir`: each limit of a file is exact, and mistakes that xDSL reports with several places are said as what
they are."""

from __future__ import annotations

import pytest

from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.ir import parser
from lightnet.ir.context import make_context
from lightnet.ir.parser import parse_mlir


def refusal(text: str) -> str:
    """The error as a user sees it, without the line."""
    with pytest.raises(LightNetError) as caught:
        parse_mlir(make_context(), text, "n.mlir")
    return str(caught.value).split("\n")[0]


def ops(count: int) -> str:
    return "\n".join(f"func.func private @f{k}()" for k in range(count))


def regions(count: int) -> str:
    return "builtin.module {" * count + "}" * count


def dense(count: int) -> str:
    return f"%c = arith.constant dense<0> : tensor<{count}xi32>"


#: A limit, a text that has a number of what it counts, and what is said of one more.
LIMITS = [
    ("MAX_OPS", ops, "the file has more than 9 ops"),
    ("MAX_NESTING", regions, "regions are nested more than 9 deep"),
    ("MAX_DENSE", dense, "the dense constants of the file have more than 9 elements; weights belong in a weight store"),
    ("MAX_BITS", lambda n: f"func.func private @f(i{n})", "an integer type has more than 9 bits"),
    (
        "MAX_SHAPE",
        lambda n: f"func.func private @f(tensor<1x{'1' * (n - 4)}xi1>)",
        "a shape has more than 9 characters",
    ),
    ("MAX_TEXT", lambda n: " " * n, "the file has 10 characters; the limit is 9"),
]


@pytest.mark.parametrize(("limit", "text", "message"), LIMITS, ids=lambda row: row if isinstance(row, str) else "")
def test_a_limit_is_the_last_number_that_is_taken(limit, text, message, monkeypatch):
    monkeypatch.setattr(parser, limit, 9)
    parse_mlir(make_context(), text(9), "n.mlir")
    assert message in refusal(text(10))


@pytest.mark.parametrize("first", ["cf.br ^bb1", "cf.br ^bb2", "func.return"])
def test_a_block_that_is_defined_twice(first: str) -> None:
    """Another mistake at blocks than one that is not defined, with both places, whether or not a branch names it
    before."""
    text = f"func.func @f() {{\n  {first}\n^bb1:\n  cf.br ^bb2\n^bb2:\n  func.return\n^bb1:\n  func.return\n}}"
    with pytest.raises(LightNetError) as caught:
        parse_mlir(make_context(), text, "n.mlir")
    e = caught.value
    assert (e.message, e.loc, e.source_line) == ("re-declaration of block 'bb1'", SourceLoc("n.mlir", 7, 1), "^bb1:")
    assert e.notes == [(SourceLoc("n.mlir", 3, 1), "originally declared here:")]


def test_blocks_of_two_regions_may_have_one_name() -> None:
    function = "func.func @{}() {{\n  cf.br ^bb1\n^bb1:\n  cf.br ^bb2\n^bb2:\n  func.return\n}}\n"
    module = parse_mlir(make_context(), function.format("f") + function.format("g"), "n.mlir")
    assert [len(op.regions[0].blocks) for op in module.ops] == [3, 3]


def test_a_block_that_is_not_defined() -> None:
    """At its first use, with its name alone."""
    text = "func.func @f() {\n  cf.br ^there\n^bb1:\n  cf.br ^there\n}"
    assert refusal(text).startswith("n.mlir:2:9: error: block '^there' is used but never defined")
