"""Which patterns `expand` asks about an op: the first that replaces one that is computed, and all of those that say
where what enters the network stands."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from xdsl.dialects.builtin import UnitAttr
from xdsl.pattern_rewriter import RewritePattern

from lightnet.frontends import mlir
from lightnet.ir import registry
from lightnet.ir.context import make_context
from lightnet.ir.op import LnOp
from lightnet.ir.passes import parse_pipeline, run_pipeline

TEXT = """func.func @main() -> tensor<3xf32> {
  %x = ln.input : tensor<3xf32> as ("x")
  %y = ln.relu %x : tensor<3xf32> as ("y")
  func.return %y : tensor<3xf32> }"""


@pytest.fixture
def patterns() -> Iterator[Callable[[bool], list[str]]]:
    """Three patterns, each of which changes each op that it is asked about; and the ops that they were asked about."""
    restore = registry.checkpoint()

    def add(places: bool) -> list[str]:
        asked: list[str] = []
        for k in range(3):

            def match_and_rewrite(self, op, rewriter, k=k):
                asked.append(f"{k} {op.name}")
                op.attributes[f"mark{k}"] = UnitAttr()
                rewriter.notify_op_modified(op)

            members = {"match_and_rewrite": match_and_rewrite, "places": places}
            registry.pattern("expand", "cpu")(type(f"Marks{k}", (RewritePattern,), members))
        return asked

    yield add
    restore()


@pytest.mark.parametrize("places, want", [
    (True, ["0 ln.input", "1 ln.input", "2 ln.input", "0 ln.relu"]),
    (False, ["0 ln.relu"]),
])  # fmt: skip
def test_the_patterns_that_are_asked(patterns, places: bool, want: list[str]) -> None:
    asked = patterns(places)
    module = mlir.read(TEXT, "net.mlir", make_context())
    run_pipeline(make_context(), module, parse_pipeline("expand"))
    assert asked == want
    (source,) = (op for op in module.walk() if isinstance(op, LnOp) and op.name == "ln.input")
    assert [f"mark{k}" in source.attributes for k in range(3)] == [places] * 3
