"""What reports say of modules that are not networks of a front end: several functions and none, ops of other dialects, names that are not there,
stages that failed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from xdsl.dialects.builtin import IndexType, MemRefType, f32

from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.ir.context import make_context
from lightnet.ir.parser import parse_mlir
from lightnet_debug import costs
from lightnet_debug.tensors import kernel_label
from lightnet_report import recorder, stats
from lightnet_report.graph import graph_of
from lightnet_report.stats import Measure, Stats, _Stage

NET = """func.func @main() -> tensor<2x3xf32> {
  %x = ln.input : tensor<2x3xf32> as ("x")
  %y = ln.relu %x : tensor<2x3xf32> as "r"("y")
  func.return %y : tensor<2x3xf32>
}"""


def module_of(text: str) -> Any:
    return parse_mlir(make_context(), text, "net.mlir")


def drawn(text: str) -> tuple[list[tuple[str, ...]], list[tuple[Any, ...]]]:
    graph = graph_of(module_of(text))
    nodes = [(n.kind, n.title, n.optype, n.group) for n in graph.nodes]
    return nodes, [(e.source, e.target, str(e.tensor)) for e in graph.edges]


def test_graphs_of_other_modules() -> None:
    """Arguments that nobody reads are left out, declarations too; functions are told apart where there are several."""
    add = "func.func @f(%x: i64, %unread : i64) -> i64 { %z = arith.addi %x, %x : i64 func.return %z : i64 }"
    nodes = [("input", "%x", "argument"), ("op", "%z", "arith.addi"), ("output", "%z", "output")]
    edges = [(0, 1, "%x i64"), (1, 2, "%z i64")]
    assert drawn(add + "func.func private @declared()") == ([(*n, "") for n in nodes], edges)
    assert drawn(add + "func.func @g() { func.return }") == ([(*n, "f") for n in nodes], edges)
    bare = "%x = arith.constant 1 : i64 %0 = arith.addi %x, %x : i64"
    assert drawn(bare) == (
        [("op", "%x", "arith.constant", ""), ("op", "arith.addi", "arith.addi", "")],
        [(0, 1, "%x i64")],
    )
    assert drawn(NET)[0] == [
        ("input", "x", "input", ""),
        ("op", "r", "relu", ""),
        ("output", "y", "output", ""),
    ]


def test_costs_of_ops_of_other_dialects() -> None:
    module = module_of("func.func @f(%x: i64) { %z = arith.addi %x, %x : i64 func.return }")
    assert [costs.flops(op) for op in module.walk()] == [0] * 4
    relu = next(op for op in module_of(NET).walk() if op.name == "ln.relu")
    assert (costs.flops(relu), costs.macs(relu), costs.bytes_moved(relu), kernel_label(relu)) == (6, 0, 48, "relu r")
    assert kernel_label(module) == ""


def test_bytes_of_types() -> None:
    assert stats.nbytes(next(op for op in module_of(NET).walk() if op.name == "ln.relu").results[0].type) == 24
    assert stats.nbytes(MemRefType(f32, [2, 3])) == 24 and stats.nbytes(IndexType()) == 0


def test_a_recorder_cuts_long_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    text = recorder.snapshot("s", module_of(NET)).text
    monkeypatch.setattr(recorder, "MAX_TEXT", len(text))
    assert recorder.snapshot("s", module_of(NET)).text == text
    monkeypatch.setattr(recorder, "MAX_TEXT", len(text) - 1)
    assert recorder.snapshot("s", module_of(NET)).text == text[:-1] + "\n… the rest is left out\n"


def test_lines_of_nodes() -> None:
    """Of an op all lines of its text, which may be broken, or have regions; of arguments, and of what a function gives, none."""
    other = """func.func @f(%x: i64, %n : tensor<2x3xf32>) -> i64 {
    %z = arith.addi %x, %x : i64
    %long = ln.strided_slice %n {starts = [0, 0], steps = [1, 1], lens = [2, 3]} : tensor<2x3xf32> as "a name that is too long"("a tensor")
    %c = arith.constant true
    %r = scf.if %c -> (i64) { scf.yield %x : i64 } else { scf.yield %z : i64 }
    func.return %z : i64\n}"""
    for source, arguments in ((other, 2), (NET, 0)):
        made = recorder.snapshot("s", module_of(source))
        printed = made.text.split("\n")
        found = [" ".join(" ".join(printed[first:behind]).split()) for first, behind in made.lines]
        statements = [" ".join(line.split()) for line in source.split("\n")[1:-2]]
        assert found == [""] * arguments + statements + [""]


class Broken:
    """A pass that fails."""

    name = "broken"

    def spec(self) -> str:
        return "broken{a=1}"


@pytest.mark.parametrize(("error", "says"), [
    (LightNetError("no", SourceLoc("f", 1, 2)), "pass 'broken' failed: f:1:2: error: no"), (ValueError("no"), "pass 'broken' failed: ValueError: no"),
])  # fmt: skip
def test_passes_that_fail(error: Exception, says: str) -> None:
    made, module = recorder.Recorder(), module_of(NET)
    made.before_pipeline([], module)
    made.before_pass(Broken(), module)  # type: ignore[arg-type]
    made.pass_failed(Broken(), module, error)  # type: ignore[arg-type]
    assert made.error is not None and made.error.strip() == says
    assert [s.name for s in made.snapshots] == ["(input)"] and made.stages[0].after is None
    assert "broken{a=1}" in made.text() and "failed" in made.text()


def measure(ops: dict[str, int], **facts: Any) -> Measure:
    return Measure(
        Counter(ops), **{"tensor_bytes": 2048, "static_bytes": 0, "flops": 0, "memory": {}, "launches": 0, **facts}
    )


def test_a_table_of_stages() -> None:
    made, first = Stats(), measure({"ln.a": 3})
    assert made.text() == "pass  ms  ops  tensors  static  arena  flops  launches  rewrites\n"
    made.first = first
    after = measure({"ln.a": 1, "ln.b": 4}, static_bytes=512, memory={"arena": 1024}, flops=2500, launches=2)
    made.stages = [
        _Stage("p", first, after, 0.0015, Counter(Fold=2, Other=1)),
        _Stage("q", after, after),
        _Stage("r", after, rewrites=Counter(Fold=1)),
    ]
    lines = [line.split() for line in made.text().splitlines()]
    assert lines[1:5] == [
        ["(input)", "3", "2", "KiB"], ["p", "1.5", "5", "2", "KiB", "512", "B", "1", "KiB", "2.5", "k", "2", "3"],
        ["q", "0.0", "5", "2", "KiB", "512", "B", "1", "KiB", "2.5", "k", "2"], ["r", "0.0", "failed", "1"],
    ]  # fmt: skip
    assert lines[5:9] == [[], ["pass", "pattern", "rewrites"], ["p", "Fold", "2"], ["p", "Other", "1"]]
    assert lines[9:] == [
        ["r", "Fold", "1"],
        [],
        ["pass", "op", "before", "after"],
        ["p", "ln.b", "0", "4"],
        ["p", "ln.a", "3", "1"],
    ]
