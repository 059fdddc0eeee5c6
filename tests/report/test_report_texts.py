"""The texts of reports from values made here: units at their limits, what is cut and what is left out, absent facts. Hand-worked."""

from __future__ import annotations

import io
import json
from collections import Counter
from types import SimpleNamespace

import pytest

from lightnet.diagnostics import SourceLoc
from lightnet.ir.dfg import DataFlowGraph, DataNode, DataTensor, Edge, Inner
from lightnet.ir.rewrites import Rewrite
from lightnet.report import dot, html, recorder, tables, trace
from lightnet.report.facts import MAX_NAMED, FlowInfo, Inspection, MemoryInfo, Missing, OpInfo, TensorInfo
from lightnet.report.profile import KernelTime, Profile
from lightnet.report.roofline import Peaks
from lightnet.report.tensors import MAX_FILE_NAME, NonFinite, file_name

HERE = SourceLoc("net.mlir", 3, 5)


@pytest.mark.parametrize(("value", "text"), [
    (0, "0"), (7, "7"), (999.4, "999"), (999.5, "1 k"), (1000, "1 k"), (1234, "1.23 k"), (999_499, "999 k"), (999_500, "1 M"), (40e6, "40 M"),
    (5.284e9, "5.28 G"), (3e12, "3 T"), (-2500, "-2.5 k"), (0.5, "0.5"),
])  # fmt: skip
def test_counts(value: float, text: str) -> None:
    assert tables.count(value) == text
    assert tables.count(value, "B") == text + ("B" if text[-1] in "kMGT" else " B")


@pytest.mark.parametrize(("value", "text"), [
    (0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (1025, "1 KiB"), (1536, "1.5 KiB"), (999 * 1024, "999 KiB"), (999.5 * 1024, "1000 KiB"), (1000 * 1024 - 1, "1000 KiB"), (1000 * 1024, "1000 KiB"),
    (1023 * 1024, "1023 KiB"), (1 << 20, "1 MiB"), (42.5 * 2**20, "42.5 MiB"), (1 << 30, "1 GiB"), (2000 << 30, "2000 GiB"),
])  # fmt: skip
def test_sizes(value: float, text: str) -> None:
    assert tables.size(value) == text


def test_shapes_and_cuts() -> None:
    assert [tables.shape(d) for d in (None, (), (1, 3), (None, "n", 4))] == ["?", "scalar", "1x3", "?xnx4"]
    assert [tables.shortened("abcdef", n) for n in (7, 6, 5, 1)] == ["abcdef", "abcdef", "abcd…", "…"]
    assert (tables.some(0, "op"), tables.some(1, "op"), tables.some(2, "op")) == ("0 ops", "1 op", "2 ops")


def test_tables() -> None:
    rows = [("a", "1", "1.5 k", "x"), ("long", "22", "", "3"), ("b\n", "3%", "42 MiB", "")]
    want = "name   n    size  what\na      1   1.5 k  x\nlong  22          3\nb\\n   3%  42 MiB"
    assert tables.table(("name", "n", "size", "what"), rows) == want


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
        assert lines == ["2 ops: ln.relu 2", f"graph: 1 edge, 2 layers, at most 3 side by side{end}"]
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
    for ports, end in ((0, ""), (2048, ", inputs and outputs of the caller 2 KiB")):
        memory = inspection(memory=MemoryInfo("cpu", 4096, 1234, 512, ports, 7, 100))._totals()[3:]
        assert memory == [
            f"memory on target cpu: activations 4 KiB (4,096 bytes; at least 1,234 are live at once), weights 512 B{end}",
            "kernels after fusion: 7, memory traffic 100 B",
        ]
    names = tuple(f"w{k}" for k in range(MAX_NAMED + 1))
    assert inspection(weights_missing=names[:1])._totals()[3:] == ["weights: no weight file is given for 1 tensor (w0)"]
    assert inspection(weights_missing=names[:MAX_NAMED], weights_given=True)._totals()[3:] == [f"weights: no given file has {MAX_NAMED} tensors ({', '.join(names[:MAX_NAMED])})"]  # fmt: skip
    assert inspection(weights_missing=names, weights_given=True)._totals()[3].endswith(f"w{MAX_NAMED - 1}, ...)")


# -- profiles
def kernel(name: str, seconds: float, flops: int = 0, bound: float = 0.0, where: SourceLoc | None = None) -> KernelTime:
    return KernelTime(
        name, f"f_{name}", (f"relu {name}", "add s"), 1, seconds, flops, 2_000_000, bound, "2 -> 2", where
    )


def test_a_profile() -> None:
    peaks = Peaks(1e9, ((1024, 1e9),))
    kernels = (kernel("a", 0.001, 2_000_000, 0.0005, HERE), kernel("b", 0.003), kernel("c", 0.0))
    made = Profile(kernels, 0.005, 3, peaks, "a clock")
    top = made.text(2).split("\n")
    assert top[0].split() == [
        "kernel",
        "ops",
        "function",
        "us",
        "share",
        "GFLOP/s",
        "MB",
        "GB/s",
        "of",
        "bound",
        "shapes",
    ]
    assert top[1].split() == ["b", "relu+add", "f_b", "3000.0", "75.0%", "2.00", "0.7", "2", "->", "2"]
    assert top[2].split() == ["a", "relu+add", "f_a", "1000.0", "25.0%", "2.0", "2.00", "2.0", "50%", "2", "->", "2"]
    assert top[3:6] == ["and 1 more kernel, 0.0 us", "", "sum of 3 kernels: 4.000 ms, 500 MFLOP/s (median of 3 rounds)"]
    assert top[6:9] == [
        "one call of the network: 5.000 ms",
        "roofline bound: 0.500 ms, 12% of the time",
        "times: a clock",
    ]
    assert "more kernel" not in made.text(3) and made.text(1).count("and 2 more kernels, 1000.0 us") == 1
    assert [k["where"] for k in json.loads(made.json())["lightnet"]["kernels"]] == ["net.mlir:3:5", None, None]
    bare = Profile((kernel("c", 0.0, 5, 0.1),), None, 1, None)
    assert bare._totals() == ["sum of 1 kernel: 0.000 ms (median of 1 round)"] and bare.kernels[0].share_of_bound == 0
    assert bare.text().split("\n")[1].split() == ["c", "relu+add", "f_c", "0.0", "0.0%", "2.00", "2", "->", "2"]


def test_the_roofline() -> None:
    peaks = Peaks(100.0, ((10, 8.0), (20, 4.0), (40, 2.0)))
    assert [peaks.bytes_per_second(n) for n in (5, 10, 19, 20, 39, 40, 99)] == [8, 8, 8, 4, 4, 2, 2]
    assert (peaks.bound(1000, 0), peaks.bound(1000, 0, 2), peaks.bound(1000, 0, 8)) == (10, 10, 20)
    assert peaks.bound(0, 40) == 20 and peaks.bound(1000, 40) == 20 and peaks.bound(3000, 40) == 30
    short = Peaks(100.0, peaks.bandwidth, 400.0)
    assert (short.bound(1000, 0), short.bound(1000, 0, 2), short.bound(1000, 0, 1)) == (10, 2.5, 10)


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
    assert html._shown(node) == ["k", *(f"add t{k}" for k in range(html.INNER)), "2xf32"]
    node = DataNode("kernel", "t" * (html.LONGEST + 1), "adds", inner=inner)
    assert html._shown(node) == ["t" * (html.LONGEST - 1) + "…", *(f"add t{k}" for k in range(html.INNER)), "… 1 more"]
    assert html._shown(DataNode("op", "t" * html.LONGEST, "relu")) == ["t" * html.LONGEST, "relu"]
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


# -- tensors
def test_names_of_files() -> None:
    taken: set[str] = set()
    assert (
        file_name("a/b c", taken) == "a%2fb%20c"
        and file_name(".hid", taken) == "%2ehid"
        and file_name("-o", taken) == "%2do"
    )
    again = file_name("A/B C", taken)
    assert (
        again.startswith("A%2fB%20C-") and len(again) == len("A%2fB%20C") + 13 and taken >= {"a%2fb%20c", again.lower()}
    )
    longest = "n" * MAX_FILE_NAME
    assert file_name(longest, taken) == longest
    cut = file_name(longest + "n", taken)
    assert len(cut) == MAX_FILE_NAME and cut.startswith("n" * (MAX_FILE_NAME - 13) + "-")
    assert len(file_name("", taken)) == 13 and len({*taken}) == len(taken)


def test_tensors_that_are_not_finite() -> None:
    assert str(NonFinite("y", 2, 0, 8, "relu r", HERE)) == "'y' has 2 NaN of 8 elements, computed by relu r"
    assert (
        str(NonFinite("y", 1, 3, 8, "", None, ("w", "b")))
        == "'y' has 1 NaN and 3 infinite of 8 elements, as it was fed; so have the weights w, b"
    )
