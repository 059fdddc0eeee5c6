"""The texts of reports from values made here: units at their limits, what is cut and what is left out, absent facts. Hand-worked."""

from __future__ import annotations

import io
import json
from collections import Counter
from types import SimpleNamespace

import pytest

from lightnet.diagnostics import SourceLoc
from lightnet.ir.rewrites import Rewrite
from lightnet_report import dot, html, recorder, trace
from lightnet_report.dfg import DataFlowGraph, DataNode, DataTensor, Edge, Inner
from lightnet_report.facts import MAX_NAMED, FlowInfo, Inspection, MemoryInfo, Missing, OpInfo, TensorInfo

HERE = SourceLoc("net.mlir", 3, 5)


# -- inspections
def tensors(*names: str) -> tuple[TensorInfo, ...]:
    return tuple(TensorInfo(n, (2, None), "f32") for n in names)


def op(name: str, flops: int | None = 10, where: SourceLoc | None = HERE) -> OpInfo:
    return OpInfo(name, "ln.relu", tensors("x"), tensors("y"), 3, flops, flops, flops, where)


def inspection(**facts: object) -> Inspection:
    return Inspection("net.mlir", tensors("x"), tensors("y"), (op("a"), op("b", 5, None)), 6, 24, **facts)


def test_what_is_missing() -> None:
    names = tuple(f"n{k}" for k in range(MAX_NAMED + 1))
    first = ", ".join(names[:MAX_NAMED])
    assert (
        str(Missing("Op", "no lowering", names[:MAX_NAMED], HERE))
        == f"net.mlir:3:5: Op x{MAX_NAMED} ({first}): no lowering"
    )
    assert str(Missing("Op", "no lowering", names)) == f"Op x{MAX_NAMED + 1} ({first} and 1 more): no lowering"
    assert str(Missing("Op", "none", ("a",), SourceLoc("net.onnx"))) == "Op x1 (a): none"


def test_an_inspection_as_data() -> None:
    found = json.loads(inspection(missing=(Missing("Op", "none", ("a",), HERE), Missing("Op", "none", ("b",)))).json())
    assert [o["where"] for o in found["ops"]] == ["net.mlir:3:5", None]
    assert [m["where"] for m in found["missing"]] == ["net.mlir:3:5", None]
    assert (found["flops"], found["macs"], found["bytes"], found["op_counts"]) == (15, 15, 15, {"ln.relu": 2})
    assert Inspection("f", (), (), (op("a"), op("b", None)), 0, 0).flops is None


def test_counts_of_an_inspection() -> None:
    names = tuple(f"n{k}" for k in range(MAX_NAMED + 1))
    for outliers, end in (
        ((), ""),
        (names[:MAX_NAMED], f"; linked with nothing: {', '.join(names[:MAX_NAMED])}"),
        (names, f"; linked with nothing: {', '.join(names[:MAX_NAMED])}, ..."),
    ):
        lines = inspection(flow=FlowInfo(1, 2, 3, outliers))._counts()
        assert lines == ["2 ops: ln.relu 2", f"graph without params: 1 edge, 2 layers, at most 3 side by side{end}"]
    assert inspection()._counts() == ["2 ops: ln.relu 2"]


def test_totals_of_an_inspection() -> None:
    params = "parameters: 6 (6), 24 B"
    work = ["work: 15 FLOP, of it 15 MAC (two FLOP each)", "memory traffic of the ops one by one: 15 B"]
    assert inspection()._totals() == [params, *work]
    ops = (
        (OpInfo("a", "o", (), (), 0, 1, 1, None, None),),
        (OpInfo("a", "o", (), (), 0, 1, None, 1, None),),
        (op("a", None),),
    )
    for open_ in ops:
        assert Inspection("f", (), (), open_, 6, 24)._totals() == [params]
    for ports, end in ((0, ""), (2048, "; beside these the caller's inputs and outputs 2 KiB (2,048 bytes)")):
        memory = inspection(memory=MemoryInfo("cpu", 4096, 1234, 512, ports, 7, 100))._totals()[3:]
        assert memory == [
            "memory on target cpu: activations 4 KiB (4,096 bytes; at least 1,234 are live at once), weights 512 B: 4,608 bytes"
            + end,
            "kernels after fusion: 7, memory traffic 100 B",
        ]
    names = tuple(f"w{k}" for k in range(MAX_NAMED + 1))
    assert inspection(weights_missing=names[:1])._totals()[3:] == ["weights: no weight file is given for 1 tensor (w0)"]
    assert inspection(weights_missing=names[:MAX_NAMED], weights_given=True)._totals()[3:] == [f"weights: no given file has {MAX_NAMED} tensors ({', '.join(names[:MAX_NAMED])})"]  # fmt: skip
    assert inspection(weights_missing=names, weights_given=True)._totals()[3].endswith(f"w{MAX_NAMED - 1}, ...)")


# -- graphs
def graph() -> DataFlowGraph:
    found = DataFlowGraph()
    weights = tuple(DataTensor(f"w{k}", "2xf32") for k in range(dot.WEIGHTS + 1))
    found.add(DataNode("input", "x", "ln.input", group="f", results=(DataTensor("x", "2xf32", "arena+0"),)))
    found.add(DataNode("op", "relu", "relu", group="f", weights=weights[:-1]))
    found.add(
        DataNode("op", "named", "relu", group="g", weights=weights, notes=("n" * dot.LONGEST, "m" * (dot.LONGEST + 1)))
    )
    inner = (Inner("mul", "m", (-1,)), Inner("add", "", (0, 0)), Inner("neg", "", (1,)))
    found.add(DataNode("kernel", "k", "mul+add", inner=inner))
    found.add(DataNode("output", "y", "return"))
    found.edges.append(Edge(0, 1, DataTensor("x", "2xf32")))
    found.edges.append(Edge(1, 3, DataTensor("", "2xf32", "arena+8")))
    found.edges.append(Edge(3, 4, DataTensor("y", "2xf32")))
    return found


def test_graphs_for_graphviz(monkeypatch: pytest.MonkeyPatch) -> None:
    made = graph()
    monkeypatch.setattr(dot, "graph_of", lambda module: SimpleNamespace(picture=lambda: made))
    for left_out in (0, 7):
        made.left_out = left_out
        text = dot.dot(None)
        assert ("7 more ops are left out" in text) == bool(left_out)
        lines = [line.strip() for line in text.splitlines()[4:]]
        assert lines[:3] == [
            'subgraph cluster_f0 { label="@f"; style=dashed;',
            'n0 [label="x\\n2xf32\\narena+0", shape=invhouse];',
            'n1 [label="relu\\nw0 2xf32\\nw1 2xf32\\nw2 2xf32\\nw3 2xf32"];',
        ]
        assert lines[3:5] == ["}", 'subgraph cluster_f1 { label="@g"; style=dashed;']
        assert (
            lines[5]
            == f'n2 [label="named\\nrelu\\nw0 2xf32\\nw1 2xf32\\nw2 2xf32\\nw3 2xf32\\nand 1 more\\n{"n" * dot.LONGEST}\\n{"m" * (dot.LONGEST - 1)}…"];'
        )
        assert lines[6:8] == ["}", 'subgraph cluster_n3 { label="mul+add"; style=filled; fillcolor="#f7f2e6";']
        assert lines[8:14] == [
            'n3_0 [label="m\\nmul"];',
            'n3_1 [label="add"];',
            'n3_2 [label="neg"];',
            'n3_0 -> n3_1 [label="2×"];',
            "n3_1 -> n3_2;",
            "}",
        ]
        assert lines[14] == 'n4 [label="y", shape=house];'
        assert lines[15] == 'n0 -> n1 [label="x\\n2xf32"];'
        assert lines[16] == 'n1 -> n3_0 [label="2xf32\\narena+8", lhead=cluster_n3];'
        assert lines[17] == 'n3_2 -> n4 [label="y\\n2xf32", ltail=cluster_n3];'


def test_nodes_of_the_page() -> None:
    inner = tuple(Inner("add", f"t{k}") for k in range(html.INNER + 1))
    node = DataNode(
        "kernel", "k", "adds", results=(DataTensor("y", "2xf32"), DataTensor("z", "3xf32")), inner=inner[:-1]
    )
    assert html.node_lines(node) == ["k", *(f"add t{k}" for k in range(html.INNER)), "2xf32"]
    node = DataNode("kernel", "t" * (html.LONGEST + 1), "adds", inner=inner)
    assert html.node_lines(node) == [
        "t" * (html.LONGEST - 1) + "…",
        *(f"add t{k}" for k in range(html.INNER)),
        "… 1 more",
    ]
    assert html.node_lines(DataNode("op", "t" * html.LONGEST, "relu")) == ["t" * html.LONGEST, "relu"]
    assert [html._clip("abc", n) for n in (2, 3, 4)] == ["ab…", "abc", "abc"]
    assert [len(t) for t in html._clipped(["a" * html.TEXT, "a" * (html.TEXT + 1)])] == [html.TEXT, html.TEXT + 1]
    assert html._clipped(["a" * (html.TEXT + 1)])[0].endswith("a…")


# -- rewrites
def rewrite(**facts: object) -> Rewrite:
    return Rewrite(
        **{"number": 4, "pass_name": "simplify", "pattern": "Fold", "where": None, "root": 'ln.relu "r"', **facts}
    )


def test_paragraphs_of_rewrites() -> None:
    made = trace.TraceRewrites(io.StringIO())
    assert made.paragraph(rewrite()) == 'rewrite 4: simplify: Fold  on ln.relu "r"\n  + (nothing)\n'
    found = made.paragraph(
        rewrite(where=HERE, required=True, before=("a",) * trace.OPS, after=("b",) * (trace.OPS + 2))
    )
    lines = found.split("\n")
    assert lines[0] == 'rewrite 4: simplify: Fold  on ln.relu "r"  net.mlir:3:5  (required)'
    assert lines[1:] == ["  - a"] * trace.OPS + ["  + b"] * trace.OPS + ["  + … 2 more", ""]


def test_what_a_trace_says_where_nothing_is_wanted() -> None:
    for wanted, what in ((("*",), ""), (("Other", "x*"), " of Other, x*")):
        stream = io.StringIO()
        made = trace.TraceRewrites(stream, wanted)
        if what:
            made.rewrote(rewrite())
        made.after_pipeline(None)
        applied = "Fold (1)" if what else "none"
        assert stream.getvalue() == f"no rewrite{what}; patterns that were applied: {applied}\n"


@pytest.mark.parametrize(("count", "inside"), [(1, "ln.a0"), (6, ", ".join(f"ln.a{k}" for k in range(6))), (7, ", ".join(f"ln.a{k}" for k in range(6)) + ", … 1 more")])  # fmt: skip
def test_regions_are_elided(count: int, inside: str) -> None:
    body = " ".join(f"%{k} = ln.a{k} %x {{p = 1}}" for k in range(count))
    assert (
        trace.elided(f'%y = ln.kernel "{{" {{ {body} ln.yield %0 }} {{q = 2}} : f32')
        == f'%y = ln.kernel "{{" {{ {inside} }} {{q = 2}} : f32'
    )


def test_a_recorder_keeps_so_many_rewrites(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "MAX_REWRITES", 2)
    made = recorder.Recorder()
    made.stages.append(SimpleNamespace(rewrites=Counter()))
    for number in range(5):
        made.rewrote(rewrite(number=number))
    assert [r.number for r in made.applied] == [0, 1] and made.left_out == 3
    assert made.stages[0].rewrites == {"Fold": 5}
