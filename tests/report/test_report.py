"""What shows what passes did: graphs, their layout, Graphviz, figures, traces, folders of IR, and the HTML page, in a browser too."""

from __future__ import annotations

import io
import json
import os
import random
import re
import shutil
import subprocess
from collections import Counter
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from counting import calls

import lightnet
from lightnet.cli import lightnet as lightnet_cli
from lightnet.cli import ln_opt
from lightnet.diagnostics import LightNetError, SourceLoc, printable
from lightnet.dialects.launch import lines_of
from lightnet.ir.context import make_context
from lightnet.ir.module import count_ops
from lightnet.ir.parser import parse_mlir
from lightnet.ir.passes import Instrumentation, parse_pipeline, run_pipeline
from lightnet.ir.registry import TARGETS
from lightnet.ir.target import get_target
from lightnet.passes import pipelines
from lightnet_debug.profile import KernelTime, Profile
from lightnet_debug.roofline import Peaks
from lightnet_debug.steps import steps_of
from lightnet_report import html
from lightnet_report.dot import dot
from lightnet_report.graph import graph_of
from lightnet_report.html import page, script_json
from lightnet_report.layout import GAP_X, apart, layout
from lightnet_report.recorder import Recorder
from lightnet_report.stats import Measure, Stats
from lightnet_report.trace import TraceRewrites, aligned_lines, elided
from lightnet_report.tree_dir import Folder, IRTree

NETS = Path(__file__).parents[1] / "data" / "nets" / "il"
EXAMPLE = Path(__file__).parents[2] / "examples" / "cnn.net"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DOT = shutil.which("dot")

SMALL = """func.func @main() -> (tensor<1x4x8x8xf32>, tensor<1x4x8x8xf32>) {
  %x = ln.create : tensor<1x3x8x8xf32> as "create0"("x")
  %w = ln.create : tensor<4x3x3x3xf32> as "create1"("w")
  %b = ln.create : tensor<4xf32> as "create2"("b")
  %c = ln.conv2d %x, %w, %b {size = [3, 3], padding = [1, 1, 1, 1]} : tensor<1x4x8x8xf32> as "conv2d0"("c")
  %r = ln.relu %c : tensor<1x4x8x8xf32> as "relu0"("r")
  %t = ln.relu %r : tensor<1x4x8x8xf32> as "relu1"("t")
  %e = ln.exp %r : tensor<1x4x8x8xf32> as "exp0"("e")
  func.return %t, %e : tensor<1x4x8x8xf32>, tensor<1x4x8x8xf32>
}
"""
#: Names that break pages, scripts, Graphviz and terminals that do not escape what they show.
HOSTILE = [
    "</script><script>window.broken = 1</script>", "<!--<script>", "@@DATA@@", '"]; evil [label="', "a\\", "\\N\\l",
    "<img src=x onerror=window.broken=1>", "\x1b[31mred\x07", "\u202egnp.exe", "naïve 網絡 🦊", "&lt;b&gt;", "{x|y}", "x" * 10_000,
]  # fmt: skip


def parsed(text: str):
    ctx = make_context()
    return ctx, parse_mlir(ctx, text, "small.mlir")


def ran(text: str, passes: str, *watchers):
    ctx, module = parsed(text)
    run_pipeline(ctx, module, parse_pipeline(passes, {"target": "cpu"}), watchers)
    return module


def hostile() -> str:
    """A chain of ops with the hostile names."""
    quoted = [
        '"' + n.replace("\\", "\\\\").replace('"', '\\"').replace("\x1b", "\\1B").replace("\x07", "\\07") + '"'
        for n in HOSTILE
    ]
    lines = ['%0 = ln.input : tensor<4xf32> as "in"("in")']
    lines += [f"%{k + 1} = ln.exp %{k} : tensor<4xf32> as {n}({n})" for k, n in enumerate(quoted)]
    return (
        f"func.func @main() -> tensor<4xf32> {{\n{chr(10).join(lines)}\nfunc.return %{len(quoted)} : tensor<4xf32>\n}}"
    )


# -- graphs


def test_the_graph_of_a_network_has_no_weights() -> None:
    """Params are lines of the op that reads them, before they are bound (`create`) and after (`param`, `ln.once`)."""
    for passes in ("cse", "bind", "bind,hoist", "bind,hoist,expand"):
        graph = graph_of(ran(SMALL, passes)).picture()
        assert graph.nodes[0].kind == "input" and [n.kind for n in graph.nodes[-2:]] == ["output"] * 2
        assert len(graph.nodes) == 7
        named = [(graph.nodes[e.source].title, graph.nodes[e.target].title, e.tensor.name) for e in graph.edges]
        assert [t for _, _, t in named] == ["x", "c", "r", "r", "t", "e"]
        assert [str(w) for w in graph.nodes[1].weights] == ["w 4x3x3x3xf32", "b 4xf32"]


def test_the_graph_of_kernels_holds_their_ops() -> None:
    graph = graph_of(ran(SMALL, "bind,hoist,expand,combine,plan")).picture()
    kernel = next(n for n in graph.nodes if n.kind == "kernel")
    assert [i.tensors for i in kernel.inner] == [("c",), ("r",)]
    assert [(i.optype, i.title, i.reads) for i in kernel.inner] == [
        ("conv2d", "conv2d0", (-1, -1, -1)),
        ("relu", "relu0", (0,)),
    ]
    assert kernel.results[0].place.startswith("arena+") and str(kernel.where).startswith("small.mlir:")


def test_the_graph_of_any_module() -> None:
    """Functions of other dialects: edges into regions, block arguments, several functions."""
    text = """
func.func @f(%n: index, %x: f32) -> f32 {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %y = arith.addf %x, %x : f32
  %r = scf.for %i = %zero to %n step %one iter_args(%a = %x) -> (f32) {
    %s = arith.mulf %a, %y : f32
    scf.yield %s : f32
  }
  func.return %r : f32
}
func.func @g() { func.return }
"""
    graph = graph_of(parsed(text)[1]).picture()
    named = {(graph.nodes[e.source].title, graph.nodes[e.target].title) for e in graph.edges}
    assert ("%y", "%r") in named and ("%x", "%r") in named and ("%n", "%r") in named and ("%x", "%y") in named
    assert {n.group for n in graph.nodes} == {"f"}
    assert all(e.source < e.target for e in graph.edges)


@pytest.mark.parametrize("target", [name for name in TARGETS if get_target(name).lowering is not None])
def test_launches_are_shown_for_every_target(target: str) -> None:
    """At level 4 pictures, the page and figures have a node for each line of `@main`, whichever op of the target that is."""
    seen, stats = Recorder(), Stats()
    module = lightnet.load(EXAMPLE).module.clone()
    passes = parse_pipeline(pipelines.default(target), {"target": target})
    run_pipeline(make_context(), module, passes, [seen, stats])
    lines = lines_of(module)
    assert [node.op for node in graph_of(module).nodes] == lines and len(lines) > 4
    assert stats.stages[-1].after.launches == len(lines)
    assert dot(module).count("shape=component") == len(lines)
    assert [node.kind for node in seen.snapshots[-1].graph.nodes] == ["launch"] * len(lines)


@pytest.mark.parametrize("target", ["cpu", pytest.param("cuda", marks=pytest.mark.slow)])
def test_edges_between_launches_are_those_of_the_values(target: str) -> None:
    """At level 4 an edge follows from who wrote the bytes last; SSA says the same, through moves that cost nothing."""
    compilation = lightnet.compile(lightnet.load(NETS / "squeezedet.net"), target)._compilation
    steps = steps_of(compilation.planned, compilation.loops)
    number = {s.op: k for k, s in enumerate(steps)}
    launched = {line: k for k, s in enumerate(steps) for line in s.lines}

    def makers(value) -> set[int]:
        k = number.get(value.owner)
        if k is None or steps[k].lines:
            return set() if k is None else {k}
        return set().union(*map(makers, steps[k].op.operands))

    expected = {(p, k) for k, s in enumerate(steps) if s.lines for v in s.op.operands for p in makers(v)}
    graph = graph_of(compilation.loops).picture()
    ends = ((launched[graph.nodes[e.source].op], launched[graph.nodes[e.target].op]) for e in graph.edges)
    assert {(a, b) for a, b in ends if a != b} == expected


# -- layout


def overlaps(sizes, drawing) -> bool:
    rows: dict[float, list[tuple[float, float]]] = {}
    for (x, y), (w, _) in zip(drawing.centers, sizes):
        rows.setdefault(y, []).append((x - w / 2, x + w / 2))
    pairs = (pair for row in rows.values() for row in [sorted(row)] for pair in pairwise(row))
    return any(b[0] < a[1] + GAP_X - 1e-6 for a, b in pairs)


def test_layout_keeps_nodes_apart_and_edges_downward() -> None:
    rng = random.Random(1)
    for count in (1, 2, 7, 40, 200):
        sizes = [(rng.uniform(20, 200), rng.uniform(20, 90)) for _ in range(count)]
        edges = [(a, b) for b in range(1, count) for a in {rng.randrange(max(0, b - 6), b) for _ in range(2)}]
        drawing = layout(sizes, edges)
        assert not overlaps(sizes, drawing)
        for (a, b), bends in zip(edges, drawing.bends):
            ys = [drawing.centers[a][1], *(y for _, y in bends), drawing.centers[b][1]]
            assert ys == sorted(ys) and len(set(ys)) == len(ys)
        assert all(0 <= x <= drawing.width and 0 <= y <= drawing.height for x, y in drawing.centers)


def test_layout_of_a_chain_is_straight_and_of_a_diamond_symmetric() -> None:
    chain = layout([(100, 50)] * 5, [(k, k + 1) for k in range(4)])
    assert {x for x, _ in chain.centers} == {50}
    top, left, right, bottom = layout([(100, 50)] * 4, [(0, 1), (0, 2), (1, 3), (2, 3)]).centers
    assert top[0] == pytest.approx((left[0] + right[0]) / 2) == pytest.approx(bottom[0]) and left[1] == right[1]


def test_what_hangs_on_one_reader_stands_beside_it() -> None:
    """A chain 0 to 4, and 5, 6 beside it, both read by 7 alone: at the end, not at the top."""
    drawing = layout([(90, 40)] * 8, [(0, 1), (1, 2), (2, 3), (3, 4), (5, 6), (4, 7), (6, 7)])
    ys = [y for _, y in drawing.centers]
    assert ys[6] == ys[4] and ys[5] == ys[3] and min(ys) == ys[0]


def test_layout_is_near_linear() -> None:
    """Ten times the ops, with edges over any distance, take at most twenty times the calls (a quadratic one would take a hundred)."""
    counts = []
    for count in (300, 3000):
        edges = [(k, k + 1) for k in range(count - 1)] + [(k // 2, k) for k in range(3, count)]
        with calls() as made:
            drawing = layout([(100, 50)] * count, edges)
        counts.append(made.count)
    assert counts[1] < 20 * counts[0] and not overlaps([(100, 50)] * count, drawing)
    assert layout([], []).centers == [] and layout([(9, 9)], []).width == 9


def test_positions_are_the_nearest_that_keep_the_gaps() -> None:
    """No allowed change of the positions comes nearer to the wishes (weighted squares)."""
    rng = random.Random(2)
    for _ in range(30):
        n = rng.randrange(1, 7)
        wishes = [rng.uniform(0, 300) for _ in range(n)]
        weights, widths = [rng.choice([1.0, 6.0]) for _ in range(n)], [rng.uniform(10, 90) for _ in range(n)]
        found = apart(wishes, weights, widths)
        least = [(a + b) / 2 + GAP_X for a, b in pairwise(widths)]
        assert all(q - p >= gap - 1e-6 for p, q, gap in zip(found, found[1:], least))

        def cost(xs, wishes=wishes, weights=weights):
            return sum(w * (x - t) ** 2 for x, t, w in zip(xs, wishes, weights))

        for _ in range(200):
            other = [x + rng.gauss(0, 5) for x in found]
            if all(q - p >= gap for p, q, gap in zip(other, other[1:], least)):
                assert cost(other) >= cost(found) - 1e-6


# -- Graphviz

_TOKEN = re.compile(r'\s+|"((?:\\.|[^"\\])*)"|([A-Za-z_]\w*|\d+)|(->|[{}\[\];,=])')


def statements(text: str) -> tuple[list[str], list[tuple[str, str]], Counter[str]]:
    """(nodes, edges, punctuation) of DOT text; fails where a character belongs to no token."""
    tokens, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        assert match, text[at : at + 60]
        at = match.end()
        if match.lastindex:
            tokens.append((match.lastindex, match[match.lastindex]))
    arrows = [k for k, t in enumerate(tokens) if t == (3, "->")]
    names = [
        t[1] for t, after in pairwise(tokens) if t[0] == 2 and after == (3, "[") and re.fullmatch(r"n\d+(_\d+)?", t[1])
    ]
    edges = [(tokens[k - 1][1], tokens[k + 1][1]) for k in arrows]
    heads = {k + 1 for k in arrows}
    declared = [
        t[1] for k, t in enumerate(tokens[:-1]) if t[1] in names and tokens[k + 1] == (3, "[") and k not in heads
    ]
    return declared, edges, Counter(t[1] for t in tokens if t[0] == 3)


@pytest.mark.parametrize("passes", ["bind", "bind,hoist,expand,combine", "bind,hoist,expand,combine,plan,lower-cpu"])
@pytest.mark.parametrize("text", [SMALL, hostile()], ids=["small", "hostile"])
def test_dot_is_well_formed(text: str, passes: str) -> None:
    module = ran(text, passes)
    found = dot(module, HOSTILE[3])
    declared, edges, marks = statements(found)
    assert len(set(declared)) == len(declared) and {n for e in edges for n in e} <= set(declared)
    assert marks["{"] == marks["}"] and marks["["] == marks["]"]
    assert "\x1b" not in found and max(map(len, found.split("\n"))) < 2000 and "&lt;" not in found
    assert found == dot(ran(text, passes), HOSTILE[3])
    if DOT:
        subprocess.run([DOT, "-Tsvg"], input=found.encode(), check=True, capture_output=True, timeout=60)


def test_layouts_and_choices_are_in_the_graph() -> None:
    model = lightnet.load(str(Path(__file__).parents[2] / "examples" / "cnn.net"))
    passes = parse_pipeline("bind,simplify,hoist,expand,combine,layout,choose,pack,plan")
    run_pipeline(model.ctx, model.module, passes)
    graph = graph_of(model.module).picture()
    assert {"1x16x16x16xf32 c16h1", "1x3x32x32xf32"} <= {edge.tensor.type for edge in graph.edges}
    notes = [note for node in graph.nodes for note in node.notes]
    assert any(re.fullmatch(r"tile = \[\d+(, \d+)*\]", note) for note in notes), notes


def test_dot_of_a_large_network_is_drawn() -> None:
    text = dot(lightnet.load(NETS / "squeezedet.net").module)
    assert len(statements(text)[1]) > 100
    if not DOT:
        pytest.skip("there is no Graphviz")
    done = subprocess.run([DOT, "-Tsvg"], input=text.encode(), capture_output=True, timeout=60)
    assert done.returncode == 0 and b"<svg" in done.stdout and not done.stderr


# -- figures


def test_measures_are_what_the_module_holds() -> None:
    module = ran(SMALL, "bind,hoist,expand,combine,plan")
    measure = Measure.of(module)
    assert measure.count == count_ops(module) and measure.ops["cpu.kernel"] == 3
    tensors = 3 * 8 * 8 * 4 + 3 * (4 * 8 * 8 * 4)  # x, and r, t and e of the kernels
    assert (measure.tensor_bytes, measure.static_bytes) == (tensors, (4 * 3 * 3 * 3 + 4) * 4)
    assert measure.memory["arena"] >= tensors - 4 * 8 * 8 * 4 and measure.launches == 0
    assert measure.flops >= 2 * 4 * 3 * 3 * 3 * 8 * 8
    lowered = Measure.of(ran(SMALL, "bind,hoist,expand,combine,plan,lower-cpu"))
    assert lowered.launches == 3 and lowered.flops == 0


def test_stats_count_rewrites_by_pattern() -> None:
    stats, seen = Stats(), Recorder()
    ran(SMALL, "bind,simplify,expand,combine", stats, seen)
    by_pass = {s.name: s.rewrites for s in stats.stages}
    assert by_pass["simplify"] == {"relu_of_relu": 1} and by_pass["bind"] == {}
    total = Counter(r.pattern for r in seen.applied)
    assert sum((s.rewrites for s in stats.stages), Counter()) == total
    assert [s.seconds > 0 for s in stats.stages] == [True] * 4
    data = json.loads(stats.json())
    assert [p["pass"] for p in data["passes"]] == ["bind", "simplify", "expand", "combine"]
    assert data["passes"][2]["changed"]["cpu.kernel"] == [0, 4]
    assert data["input"]["by_name"]["ln.create"] == 3
    for stage in (*stats.stages, *seen.stages):
        stage.seconds = 0.0  # of each its own
    assert seen.as_json() == stats.as_json()  # a recorder keeps all figures, too


def test_stats_of_a_pass_that_fails() -> None:
    stats = Stats()
    with pytest.raises(LightNetError):
        ran(SMALL, "bind,lower-cpu", stats)
    assert stats.stages[-1].after is None and "failed" in stats.text().split("\n")[3]


# -- traces


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colours_are_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, coloured = io.StringIO(), Terminal()
    monkeypatch.delenv("NO_COLOR", raising=False)
    ran(SMALL, "bind,simplify", TraceRewrites(plain), TraceRewrites(coloured))
    assert "\033" not in plain.getvalue() and "\033[31m" in coloured.getvalue()
    assert re.sub(r"\033\[\d*m", "", coloured.getvalue()).split("\n")[0] == plain.getvalue().split("\n")[0]
    monkeypatch.setenv("NO_COLOR", "1")
    quiet = Terminal()
    ran(SMALL, "bind,simplify", TraceRewrites(quiet))
    assert "\033" not in quiet.getvalue()


def test_what_is_gone_and_what_is_no_match_is_said() -> None:
    """An op that is dropped leaves nothing; a name that nothing has says what there was, one that was shown says no more."""
    dead = "func.func @main() -> tensor<3xf32> {\n%x = ln.input : tensor<3xf32>\n%d = ln.exp %x : tensor<3xf32>\nfunc.return %x : tensor<3xf32>\n}"
    for wanted, gone, none in ((("dead-code",), True, False), (("no-such",), False, True)):
        stream = io.StringIO()
        ran(dead, "ln-dce", TraceRewrites(stream, wanted))
        assert ("  + (nothing)" in stream.getvalue()) == gone
        assert ("no rewrite of no-such; patterns that were applied: dead-code (1)" in stream.getvalue()) == none
        assert ("no rewrite" in stream.getvalue()) == none


def test_bodies_are_elided_and_parameters_are_not() -> None:
    kernel = '%r = cpu.kernel(%a = %x) choices {alg = "}{"} { %0 = ln.conv2d %a {size = [3, 3]} : t %1 = ln.relu %0 ln.yield %1 } at arena+0'
    assert elided(kernel) == '%r = cpu.kernel(%a = %x) choices {alg = "}{"} { ln.conv2d, ln.relu } at arena+0'
    assert elided("%c = ln.conv2d %x {size = [3, 3]} : t") == "%c = ln.conv2d %x {size = [3, 3]} : t"
    many = "%w = ln.once { " + " ".join(f"%{k} = ln.param : t" for k in range(9)) + " ln.yield %0 }"
    assert elided(many).endswith("ln.param, … 3 more }")
    assert aligned_lines(["%a = x.y", "%long, %b = x.z"], 100) == ["%a        = x.y", "%long, %b = x.z"]
    at, longer = "%" + "a" * 29, "%" + "a" * 30  # a longer head moves no other line
    assert aligned_lines([f"{at} = x.y", "%b = x.z"], 100) == [f"{at} = x.y", f"{'%b':30} = x.z"]
    assert aligned_lines([f"{longer} = x.y", "%b = x.z"], 100) == [f"{longer} = x.y", "%b = x.z"]
    assert aligned_lines(["%b = x", "func.return %b"], 14) == ["%b = x", "func.return %b"] and aligned_lines(
        ["abc"], 2
    ) == ["a…"]
    assert (
        aligned_lines(["%a = " + "x" * 200], 80)[0].endswith("…")
        and len(aligned_lines(["%a = " + "x" * 200], 80)[0]) == 80
    )


def test_a_trace_obeys_no_name() -> None:
    stream = io.StringIO()
    ran(hostile(), "bind,expand", TraceRewrites(stream))
    text = stream.getvalue()
    assert "\x1b" not in text and "\u202e" not in text and max(map(len, text.split("\n"))) < 11_000
    assert printable("a\x1b\u202eb") == r"a\x1b\u202eb"


# -- folders


def test_a_folder_of_ir_is_replaced_by_the_next_run_only(tmp_path: Path) -> None:
    folder = tmp_path / "ir"
    ran(SMALL, "bind,simplify", IRTree(Folder(folder)))
    files = {f.name for f in folder.iterdir()}
    assert files == {
        ".lightnet-ir",
        "00_input.mlir",
        "01_bind.mlir",
        "01_bind.diff",
        "02_simplify.mlir",
        "02_simplify.diff",
    }
    parse_mlir(make_context(), (folder / "02_simplify.mlir").read_text(), "again")
    assert "+    %x = ln.input" in (folder / "01_bind.diff").read_text()
    (folder / "notes.txt").write_text("mine")
    ran(SMALL, "bind", IRTree(Folder(folder)))
    assert {f.name for f in folder.iterdir()} == {
        ".lightnet-ir",
        "notes.txt",
        "00_input.mlir",
        "01_bind.mlir",
        "01_bind.diff",
    }


def test_files_of_others_are_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "00_input.mlir").write_text("mine")
    with pytest.raises(LightNetError, match="not empty, and not of an earlier"):
        Folder(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(LightNetError, match="is a file: --print-ir-tree-dir takes a folder"):
        Folder(tmp_path / "file")
    ours = tmp_path / "ours"
    ran(SMALL, "bind", IRTree(Folder(ours)))
    (ours / "02_cse.mlir").write_text("mine")
    (ours / ".lightnet-ir").write_text("../00_input.mlir\n/etc/hostname\n" + (ours / ".lightnet-ir").read_text())
    with pytest.raises(LightNetError, match=r"02_cse\.mlir' is there already"):
        ran(SMALL, "bind,cse", IRTree(Folder(ours)))
    assert (ours / "02_cse.mlir").read_text() == (tmp_path / "00_input.mlir").read_text() == "mine"


class Refusing(Instrumentation):
    """A check that fails."""

    def after_pass(self, pass_, module) -> None:
        raise LightNetError("the result differs")


def test_a_check_that_fails_ends_a_report(tmp_path: Path) -> None:
    recorder, tree = Recorder(), IRTree(Folder(tmp_path))
    with pytest.raises(LightNetError):
        ran(SMALL, "bind,cse", recorder, tree, Refusing())
    assert recorder.error == "pass 'bind' failed: error: the result differs" and len(recorder.snapshots) == 2
    assert {f.name for f in tmp_path.iterdir()} == {".lightnet-ir", "00_input.mlir", "01_bind.mlir", "01_bind.diff"}


def test_what_a_failing_pass_leaves_is_kept(tmp_path: Path) -> None:
    with pytest.raises(LightNetError):
        ran(SMALL, "bind,lower-cpu", IRTree(Folder(tmp_path)))
    assert "ln.conv2d" in (tmp_path / "02_lower-cpu.failed.mlir").read_text()


# -- the page


class Page(HTMLParser):
    """The elements of a page, and the text of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data) -> None:
        if self.elements and self.elements[-1][0] == "script":
            self.scripts[-1] += data

    @property
    def data(self) -> dict:
        return json.loads(self.scripts[1])


def recorded(text: str, passes: str) -> Recorder:
    recorder = Recorder()
    ran(text, passes, recorder)
    return recorder


FULL = "bind,simplify,hoist,expand,combine,plan,lower-cpu"


def test_a_page_asks_for_nothing() -> None:
    text = page(recorded(SMALL, FULL), "small")
    found = Page(text)
    assert len(found.scripts) == 3 and [t for t, _ in found.elements].count("link") == 1
    for _, attributes in found.elements:
        assert not attributes.get("src") and (attributes.get("href") or "data:,").startswith("data:")
    assert "default-src 'none'" in text and "url(http" not in text and "@import" not in text
    addresses = set(re.findall(r"https?://[^\s\"']+", text))
    assert addresses <= {"http://www.w3.org/2000/svg"}  # the name of a namespace
    assert not re.search(r"\b(fetch|XMLHttpRequest|WebSocket|importScripts|EventSource|sendBeacon)\b|import\(", text)
    assert not re.search(r"\b(innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval)\b", text)


def test_a_page_holds_what_the_pipeline_did() -> None:
    recorder = recorded(SMALL, FULL)
    data = Page(page(recorder, "small")).data
    assert [s["name"].partition("{")[0] for s in data["stages"]] == ["(input)", *FULL.split(",")]
    for stage, kept in zip(data["stages"], recorder.snapshots):
        assert "\n".join(data["lines"][k] for k in stage["text"]) + "\n" == kept.text
        graph = stage["graph"] if isinstance(stage["graph"], dict) else data["stages"][stage["graph"]]["graph"]
        own = json.loads(json.dumps(html._graph(kept)))
        assert [n[:-1] for n in graph["nodes"]] == [n[:-1] for n in own["nodes"]] and graph["edges"] == own["edges"]
        for node, (first, last) in zip(graph["nodes"], stage["spans"]):
            if node[4] not in ("output", "input"):
                text = "\n".join(data["lines"][k] for k in stage["text"][first:last])
                assert node[6] in text and all(name in text for name, _, _ in node[8]), node
    assert [r[2] for r in data["rewrites"]] == [r.pattern for r in recorder.applied]
    assert data["plans"]["arena"]["peak"] == data["stats"]["passes"][5]["after"]["memory"]["arena"]
    assert "was not run" in data["kernels"]


def test_equal_runs_give_equal_pages() -> None:
    one, two = (page(recorded(SMALL, FULL), "small") for _ in range(2))
    untimed = [re.sub(r'"seconds":[\d.e-]+', "", text) for text in (one, two)]
    assert untimed[0] == untimed[1]


def test_names_stay_text() -> None:
    text = page(recorded(hostile(), FULL), HOSTILE[0])
    found = Page(text)
    assert len(found.scripts) == 3 and not any(t in ("img", "b") for t, _ in found.elements)
    assert "window.broken" not in found.scripts[0] + found.scripts[2]
    assert "</script" not in found.scripts[1] and "<!--" not in found.scripts[1]
    names = {node[5] for s in found.data["stages"] if isinstance(s["graph"], dict) for node in s["graph"]["nodes"]}
    assert set(HOSTILE[:-1]) <= names and len(text) < 1_500_000
    assert json.loads(script_json(HOSTILE)) == HOSTILE and not re.search("[<>&]", script_json(HOSTILE))


def test_a_page_about_a_failure() -> None:
    recorder = Recorder()
    with pytest.raises(LightNetError):
        ran(SMALL, "bind,lower-cpu", recorder)
    data = Page(page(recorder, "small")).data
    assert data["error"].startswith("pass 'lower-cpu' failed: ") and len(data["stages"]) == 2


# -- the tools


def test_ln_opt_writes_a_page_for_each_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "in.mlir"
    source.write_text(f"{SMALL}// -----\n{SMALL}")
    words = [
        str(source),
        "--split-input-file",
        "--pass=bind",
        f"--html-report={tmp_path / 'r.html'}",
        f"--stats={tmp_path / 's.json'}",
    ]
    assert ln_opt.main(words) == 0
    assert {f.name for f in tmp_path.iterdir()} == {
        "in.mlir",
        "r.part1.html",
        "r.part2.html",
        "s.part1.json",
        "s.part2.json",
    }
    assert capsys.readouterr().err == ""


def test_names_reach_no_terminal_raw_in_a_module(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Control characters are printed as escapes, and read back."""
    name = "".join(map(chr, (*range(32), 127)))
    escaped = "".join(f"\\{ord(c):02X}" for c in name)
    source = tmp_path / "in.mlir"
    source.write_text(SMALL.replace('"relu0"', f'"{escaped}"'))
    assert ln_opt.main([str(source), "--pass=bind", "--print-ir-after=bind"]) == 0
    out, err = capsys.readouterr()
    assert "\\1B" in out and not set(out + err) & set(name) - {"\n"}
    source.write_text(out)
    assert ln_opt.main([str(source)]) == 0 and capsys.readouterr().out == out


def test_parts_keep_their_numbers_behind_a_broken_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "in.mlir"
    source.write_text(f"nonsense\n// -----\n{SMALL}")
    dot_file = tmp_path / "r.dot"
    assert ln_opt.main([str(source), "--split-input-file", "--pass=bind", f"--dot={dot_file}", "--stats"]) == 1
    assert {f.name for f in tmp_path.iterdir()} == {"in.mlir", "r.part2.dot"}
    assert capsys.readouterr().err.startswith("part 2:\npass")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--dot=-"], "-o and --dot both write standard output: give one of them a file"),
        (["-o", "a", "--stats=./a"], "-o and --stats both write './a'"),
        (["-o", "a", "--dot=b", "--dot=after:bind=b"], "--dot and --dot both write 'b'"),
        (["--html-report="], "--html-report is empty"),
        (["--print-ir-tree-dir="], "--print-ir-tree-dir is empty"),
        (["--stats="], "--stats is empty"),
    ],
)
def test_two_outputs_never_go_to_one_place(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.mlir").write_text(SMALL)
    assert ln_opt.main(["in.mlir", "--pass=bind", *words]) == 1
    out, err = capsys.readouterr()
    assert message in err and not out and os.listdir() == ["in.mlir"]


def test_outputs_may_all_be_thrown_away(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in.mlir").write_text(SMALL)
    assert ln_opt.main([str(tmp_path / "in.mlir"), "--pass=bind", "--dot=-", "--stats", "-o", os.devnull]) == 0
    assert capsys.readouterr().out.startswith("digraph")


def test_ln_opt_writes_what_it_has_when_a_pass_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "in.mlir"
    source.write_text(SMALL)
    assert ln_opt.main([str(source), "--pass=bind,lower-cpu", f"--html-report={tmp_path / 'r.html'}", "--stats"]) == 1
    assert "failed" in Page((tmp_path / "r.html").read_text()).data["error"]
    err = capsys.readouterr().err
    assert "error: " in err and re.search(r"^lower-cpu .* failed$", err, re.MULTILINE)
    assert ln_opt.main([str(source), "--pass=bind", "--html-report=/nowhere/r.html"]) == 1
    assert "cannot write '/nowhere/r.html'" in capsys.readouterr().err


def test_lightnet_reports_kernel_times_after_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = Path(__file__).parents[2] / "examples" / "example.net"
    file = tmp_path / "r.html"
    assert lightnet_cli.main(["-c", str(net), "--report", str(file)]) == 0
    assert "was not run" in Page(file.read_text()).data["kernels"]
    assert lightnet_cli.main([str(net), "--report", str(file)]) == 0
    data = Page(file.read_text()).data
    assert data["kernels"] and all(k[4] >= 0 and k[7] > 0 for k in data["kernels"]) and "GFLOP/s" in data["machine"]
    assert lightnet_cli.main(["-t", "none", str(net), "--report", str(file)]) == 0
    assert "no machine code" in Page(file.read_text()).data["kernels"]
    assert lightnet_cli.main(["-c", str(net), "--report", str(tmp_path / "r.dot")]) == 0
    assert statements((tmp_path / "r.dot").read_text())[1]


# -- in a browser

#: Goes through the page as a person would, and notes what stands there. It runs behind the page's own scripts.
VISIT = """
const log = {};
const wait = () => new Promise((done) => setTimeout(done, 40));
const text = (selector) => [...document.querySelectorAll(selector)].filter((e) => e.checkVisibility()).map((e) => e.textContent).join(" | ");
const press = (key) => document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
const at = async (fragment) => { location.hash = fragment; await wait(); };
(async () => {
  try { await visit(); } catch (e) { log.error = String(e.stack); }
  const out = document.createElement("pre");
  out.id = "log";
  out.textContent = JSON.stringify(log);
  document.body.replaceChildren(document.getElementById("errors"), out);
})();
"""


def browser(file: Path, tmp_path: Path, fragment: str = "") -> str:
    """The page's DOM after its scripts ran, in a browser without a network of its own."""
    if not CHROMIUM:
        pytest.skip("there is no Chromium")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
               "--disable-sync", "--no-first-run", "--virtual-time-budget=4000", f"--user-data-dir={tmp_path / 'profile'}"]  # fmt: skip
    done = subprocess.run(
        [CHROMIUM, *options, "--dump-dom", f"{file.as_uri()}#{fragment}"], capture_output=True, text=True, timeout=120
    )
    if done.returncode:
        pytest.skip(f"Chromium does not start: {done.stderr[-300:]}")
    return done.stdout


def visited(text: str, script: str, tmp_path: Path) -> dict:
    file = tmp_path / "page.html"
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)  # it would forbid the visitor's script
    file.write_text(text.replace("</body>", f"<script>async function visit() {{ {script} }}\n{VISIT}</script></body>"))
    dom = browser(file, tmp_path)
    match = re.search(r'<pre id="log">(.*?)</pre>', dom, re.DOTALL)
    assert match, dom[:2000]
    log = json.loads(match[1].replace("&lt;", "<").replace("&gt;", ">").replace("&nbsp;", "\xa0").replace("&amp;", "&"))
    assert re.search(r'<div id="errors" role="alert">(.*?)</div>', dom, re.DOTALL)[1] == ""
    assert "error" not in log, log
    return log


def test_every_view_in_a_browser(tmp_path: Path) -> None:
    script = """
  await at("tab=passes"); log.passes = text("#passes td");
  await at("tab=graph&stage=bind"); log.titles = text("#graph .node .name"); log.edges = document.querySelectorAll("#graph .edge").length;
  document.querySelectorAll("#graph .node")[1].dispatchEvent(new MouseEvent("click", { bubbles: true })); await wait();
  log.side = text("#graph .side"); log.hash = location.hash; log.on = text("#graph .node.on .name");
  press("]"); await wait(); log.next = state().stage;
  await at("tab=graph&stage=plan&op=c"); log.kernel = text("#graph .side");
  const find = document.querySelector("#graph input"); find.value = "exp"; find.dispatchEvent(new Event("input")); log.found = text("#graph .node.hit .name");
  await at("tab=graph&stage=lower-cpu"); log.launches = text("#graph .node .name");
  await at("tab=diff&stage=bind"); log.less = text("#diff .line.del"); log.more = text("#diff .line.add"); log.marked = text("#diff b");
  await at("tab=plan"); log.buffers = text("#plan td.text"); log.rectangles = document.querySelectorAll("#plan rect.b").length;
  document.querySelector("#plan rect.b").dispatchEvent(new PointerEvent("pointermove", { bubbles: true, clientX: 200, clientY: 200 }));
  log.tip = document.getElementById("tip").textContent;
  await at("tab=rewrites&step=1"); log.first = text("#rewrites .step"); press("ArrowDown"); await wait(); log.second = text("#rewrites h2"); log.step = state().step;
  press("k"); await wait(); log.back = state().step;
  await at("tab=rewrites&pattern=merge-kernels"); log.merges = text("#rewrites .item");
  await at("tab=kernels"); log.kernels = text("#kernels");
  press("2"); await wait(); log.tab = state().tab;
"""
    log = visited(page(recorded(SMALL, FULL), "small"), script, tmp_path)
    assert "simplify | 10 | " in log["passes"] and "ln.create 3 → 0" in log["passes"]
    assert log["titles"] == "x | conv2d0 | relu0 | relu1 | exp0 | t | e" and log["edges"] == 6
    assert (
        "weight w 4x3x3x3xf32" in log["side"]
        and "small.mlir:5:8" in log["side"]
        and "%c = ln.conv2d %x, %w, %b" in log["side"]
    )
    assert "op=conv2d0" in log["hash"] and log["on"] == "conv2d0" and log["next"] == "2"
    assert log["kernel"].startswith("r") and "@ arena+" in log["kernel"] and "ln.relu" in log["kernel"]
    assert log["found"] == "e" and log["launches"].startswith("conv2d_relu_0")
    assert "ln.create" in log["less"] and "ln.input" in log["more"] and "input" in log["marked"]
    assert "x" in log["buffers"].split(" | ") and log["rectangles"] >= 3 and "live from op" in log["tip"]
    assert log["first"].startswith("1. relu_of_relu") and "ln.forward" in log["first"]
    assert (log["step"], log["back"]) == ("2", "1") and log["second"].startswith("2. ")
    assert "merge-kernels" in log["merges"] and "relu_of_relu" not in log["merges"]
    assert "was not run" in log["kernels"] and log["tab"] == "graph"


def test_hostile_names_in_a_browser(tmp_path: Path) -> None:
    script = """
  for (const tab of ["passes", "graph&stage=0", "graph&stage=plan&op=a%5C", "diff&stage=plan", "plan", "rewrites&step=3", "kernels"]) {
    await at(`tab=${tab}`); log[tab] = document.getElementById("main").textContent.length;
  }
  await at("tab=graph&stage=0"); log.names = text("#graph .node .name");
  await at("tab=graph&op=%zz&stage=-9&node=x"); log.odd = document.querySelectorAll("#graph .node").length;
  log.broken = window.broken ?? null; log.images = document.images.length; log.scripts = document.scripts.length;
"""
    log = visited(page(recorded(hostile(), FULL), HOSTILE[0]), script, tmp_path)
    assert log["broken"] is None and log["images"] == 0 and log["scripts"] == 4
    assert all(log[k] > 10 for k in ("passes", "plan", "kernels")) and log["odd"] == len(HOSTILE) + 2
    assert (
        "</script><script>window.broken = " in log["names"]
        and "\x1b" not in log["names"]
        and "\u202e" not in log["names"]
    )


def test_a_large_network_in_a_browser(tmp_path: Path) -> None:
    """squeezedet as a file of less than 3 MB; its graph, its differences, its rewrites and the times of its kernels appear."""
    recorder = Recorder()
    lightnet.compile(lightnet.load(NETS / "squeezedet.net"), instrumentation=[recorder])
    kernels = (
        KernelTime("fire3", "concat_0", ("concat concat1",), 1, 2e-3, 0, 4096, 1e-3, "a -> b", SourceLoc("x.net", 3)),
        KernelTime("conv1", "conv2d_relu_0", ("conv2d a", "relu b"), 2, 6e-3, 3_000_000, 4096, 3e-3),
    )
    text = page(recorder, "squeezedet", Profile(kernels, 9e-3, 3, Peaks(1e11, ((1 << 14, 1e11),))))
    assert len(text.encode()) < 3_000_000
    script = """
  for (const tab of ["graph&stage=0", "graph&stage=plan", "diff&stage=lower-cpu", "plan", "rewrites"]) {
    location.hash = `tab=${tab}`; await wait(); log[tab] = document.querySelectorAll(`#${tab.split("&")[0]} *`).length;
  }
  await at("tab=kernels"); log.kernels = text("#kernels"); log.widths = [...document.querySelectorAll("#kernels i")].map((e) => e.style.width);
  log.bounds = [...document.querySelectorAll("#kernels u")].map((e) => e.style.left);
  document.querySelectorAll("#kernels tbody tr")[1].click(); await wait(); log.on = text("#graph .node.on .name");
"""
    log = visited(text, script, tmp_path)
    assert log["graph&stage=0"] > 400 and log["diff&stage=lower-cpu"] > 5000 and log["rewrites"] > 100
    assert "2 kernels, 8.00 ms; a call of the network 9.00 ms; bound 4.00 ms, 50 % of the time" in log["kernels"]
    assert (
        log["widths"] == ["100%", "33.3333%"]
        and log["bounds"] == ["50%", "16.6667%"]
        and "100 GFLOP/s" in log["kernels"]
    )
    assert log["on"] == "fire3"


def test_the_fragment_opens_a_view(tmp_path: Path) -> None:
    file = tmp_path / "small.html"
    file.write_text(page(recorded(SMALL, FULL), "small"))
    file.write_text(file.read_text().replace("</body>", "<script>document.title = 'broken'</script></body>"))
    dom = browser(file, tmp_path, "tab=rewrites&step=2&theme=dark")
    assert "<title>small - LightNet</title>" in dom  # the page's policy lets no other script run
    assert "<h2>2. " in dom and "color-scheme: dark" in dom and '<div id="errors" role="alert"></div>' in dom
