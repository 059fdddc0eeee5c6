"""Parts of `lightnet_trust` in this process, which elsewhere run in one of their own: judges of candidates, what two modules differ by, and what
is kept of an execution."""

from __future__ import annotations

import re

import numpy as np
import pytest

from lightnet.diagnostics import LightNetError
from lightnet.ir.context import make_context
from lightnet.ir.parser import parse_mlir
from lightnet.ir.passes import parse_pipeline, run_pipeline
from lightnet_trust import record
from lightnet_trust.baseline import compare_modules, is_level4, lowered_to
from lightnet_trust.judges import PipelineJudge
from lightnet_trust.record import Trace

NET = """func.func @main() -> tensor<2x3xf32> {
  %x = ln.input : tensor<2x3xf32> as ("x")
  %y = ln.relu %x : tensor<2x3xf32> as "r"("y")
  func.return %y : tensor<2x3xf32>
}"""


def module_of(text: str):
    return parse_mlir(make_context(), text, "net.mlir")


def test_a_pipeline_is_judged_by_its_message() -> None:
    """The label and the first line, without sizes and names; a module that it takes is of no interest."""
    none = PipelineJudge("crash", "bind").judge(NET)
    assert none.found is None and none.detail == "the passes 'bind' run without an error"
    found = PipelineJudge("crash", "check-plan").judge(NET)
    assert found.found is not None and found.detail
    again = PipelineJudge("crash", "check-plan").judge(NET.replace("%x", "%other").replace("2x3", "4x5"))
    assert again.found == found.found
    with pytest.raises(LightNetError):
        PipelineJudge("crash", "bind").judge("func.func @main() { ln.nothing }")


def test_a_check_that_finds_nothing_says_so() -> None:
    verdict = PipelineJudge("check", "bind,simplify").judge(NET)
    assert verdict.found is None
    assert verdict.detail.startswith("--check finds no pass of 'bind,simplify' that changes a result")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("ln.relu", "ln.neg", "differ"),
        ('ln.input : tensor<2x3xf32> as ("x")', 'ln.input {ran = [2.0, 3.0]} : tensor<2x3xf32> as ("x")', "where nobody feeds it"),
        ("ln.input", "ln.param", "was an ln.input before and is an ln.param after"),
        ("2x3", "3x2", "before and is .* after"),
        ("ln.relu %x", "ln.softmax %x {axis = 7}", "cannot be executed any more"),
    ],
)  # fmt: skip
def test_what_two_modules_differ_by(old: str, new: str, words: str) -> None:
    assert compare_modules(module_of(NET), module_of(NET)) is None
    difference = compare_modules(module_of(NET), module_of(NET.replace(old, new)))
    assert difference is not None
    assert re.search(words, difference.what), difference


def test_levels_are_told() -> None:
    """A list of launches is level 4; what a target lowers to is called by its first op, and a network by none."""
    network = module_of(NET)
    assert lowered_to(network) is None and not is_level4(network)
    lowered = module_of(NET)
    options = {"target": "cpu", "features": "avx2", "plan": "default"}
    run_pipeline(make_context(), lowered, parse_pipeline("@cpu", options))
    assert is_level4(lowered) and lowered_to(lowered) is not None
    alone = module_of("func.func @f(%x: i64) -> i64 { %y = arith.addi %x, %x : i64 func.return %y : i64 }")
    assert lowered_to(alone) == "arith.addi" and not is_level4(alone)
    assert lowered_to(module_of("func.func @main() { func.return }")) is None
    assert not is_level4(module_of("func.func @main() { func.return }"))


def test_tensors_are_kept_while_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to the budget; a name that two tensors have stands for neither."""
    monkeypatch.setattr(record, "TRACE_BUDGET", 24)
    trace, array, other = Trace(), np.zeros(3, np.float32), np.ones(3, np.float32)
    trace.keep("a", array, array)
    trace.keep("b", other, other)  # 24 bytes in all
    trace.keep("c", array, array)
    assert set(trace.values) == {"a", "b"} and trace.unkept == 1
    trace.keep("a", array, array)  # the same once more
    assert "a" in trace.values
    trace.keep("a", array, other)
    assert set(trace.values) == {"b"} and trace.ambiguous == {"a"}
    trace.keep("a", array, array)
    assert set(trace.values) == {"b"} and trace.unkept == 1
