"""The data-flow graph, and what shows it: `--dfg`, `--dot`, `inspect`. What it should be is written here by hand, or counted from the text of the
module, never asked of the graph."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp

import lightnet
from lightnet.cli import lightnet as lightnet_cli
from lightnet.cli import ln_opt
from lightnet.diagnostics import LightNetError
from lightnet.ir.context import make_context
from lightnet.ir.parser import parse_mlir
from lightnet.ir.passes import parse_pipeline, run_pipeline
from lightnet_report.dfg import DataFlowGraph, DataNode, DataTensor
from lightnet_report.dot import dot
from lightnet_report.graph import graph_of
from lightnet_report.stats import Measure
from lightnet_report.timing import peak_mib

ROOT = Path(__file__).parents[2]
NETS = ROOT / "examples"

#: x -> conv2d0 -> relu0 -> (relu1, exp0) -> add0 -> the output; nothing reads `alone`.
DIAMOND = """func.func @main() -> tensor<1x4x8x8xf32> {
  %x = ln.create : tensor<1x3x8x8xf32> as "create0"("x")
  %w = ln.create : tensor<4x3x3x3xf32> as "create1"("w")
  %b = ln.create : tensor<4xf32> as "create2"("b")
  %c = ln.conv2d %x, %w, %b {size = [3, 3], padding = [1, 1, 1, 1]} : tensor<1x4x8x8xf32> as "conv2d0"("c")
  %r = ln.relu %c : tensor<1x4x8x8xf32> as "relu0"("r")
  %t = ln.relu %r : tensor<1x4x8x8xf32> as "relu1"("t")
  %e = ln.exp %r : tensor<1x4x8x8xf32> as "exp0"("e")
  %s = ln.add %t, %e : tensor<1x4x8x8xf32> as "add0"("s")
  %z = ln.input : tensor<3xf32> as "alone"("z")
  func.return %s : tensor<1x4x8x8xf32>
}
"""
EDGES = {
    ("create0", "conv2d0", "x"), ("create1", "conv2d0", "w"), ("create2", "conv2d0", "b"), ("conv2d0", "relu0", "c"), ("relu0", "relu1", "r"),
    ("relu0", "exp0", "r"), ("relu1", "add0", "t"), ("exp0", "add0", "e"), ("add0", "output s", "s"),
}  # fmt: skip


def parsed(text: str) -> ModuleOp:
    return parse_mlir(make_context(), text, "small.mlir")


def labels(nodes: list[DataNode]) -> list[str]:
    return [node.label for node in nodes]


def named(graph: DataFlowGraph) -> set[tuple[str, str, str]]:
    return {(graph.nodes[e.source].label, graph.nodes[e.target].label, e.tensor.name) for e in graph.edges}  # type: ignore[index]


def test_edges_layers_and_neighbours() -> None:
    graph = graph_of(parsed(DIAMOND))
    assert named(graph) == EDGES and len(graph.edges) == len(EDGES)
    assert list(map(labels, graph.layers())) == [
        ["create0", "create1", "create2", "alone"], ["conv2d0"], ["relu0"], ["relu1", "exp0"], ["add0"], ["output s"],
    ]  # fmt: skip
    relu, add = graph.find("relu0"), graph.find("add0")
    assert relu is not None and add is not None and graph.find("nothing") is None
    assert (
        labels(graph.nexts(relu)) == ["relu1", "exp0"] == labels(graph.nexts(relu, "r"))
        and graph.nexts(relu, "c") == []
    )
    assert graph.next(relu).label == "relu1" and graph.next(graph.nodes[-1]) is None  # type: ignore[union-attr]
    assert labels(graph.prevs(add)) == ["relu1", "exp0"]
    assert graph.prev(add, "e").label == "exp0" and graph.prev(add, "r") is None  # type: ignore[union-attr]
    assert labels(graph.outliers()) == ["alone"]
    assert [e.tensor.name for e in graph.dangling_outs()] == ["s", "z"] and graph.dangling_ins() == []
    assert graph.cycles() == []
    graph.check()


def test_a_line_for_each_node() -> None:
    out = io.StringIO()
    graph_of(parsed(DIAMOND)).print(out)
    assert out.getvalue().splitlines() == [
        "create0: - -> conv2d0(x)", "create1: - -> conv2d0(w)", "create2: - -> conv2d0(b)",
        "conv2d0: create0(x), create1(w), create2(b) -> relu0(c)", "relu0: conv2d0(c) -> relu1(r), exp0(r)", "relu1: relu0(r) -> add0(t)",
        "exp0: relu0(r) -> add0(e)", "add0: relu1(t), exp0(e) -> output s(s)", "alone: - -> -", "output s: add0(s) -> -",
    ]  # fmt: skip


def arrows(text: str) -> set[tuple[str, str, str]]:
    """(source, target, tensor) of the arrows of DOT text, nodes by the first line of their labels."""
    title = {
        n: label.split("\\n")[0]
        for n, label in re.findall(r'^  (n\d+) \[label="((?:[^"\\]|\\.)*)"', text, re.MULTILINE)
    }
    found = re.findall(r'^  (n\d+) -> (n\d+) \[label="((?:[^"\\]|\\.)*)"', text, re.MULTILINE)
    assert len(found) == text.count(" -> ")
    return {(title[a], title[b], label.split("\\n")[0]) for a, b, label in found}


def test_arrows_are_the_edges_between_ops() -> None:
    flow = {(a, b.removeprefix("output "), t) for a, b, t in EDGES if t not in ("w", "b")}
    assert arrows(dot(parsed(DIAMOND))) == {("x" if a == "create0" else a, b, t) for a, b, t in flow}


@pytest.mark.parametrize("name", ["ir/test_ops", "ir/cuda_test"])
def test_edges_are_the_operands_of_the_text(name: str) -> None:
    """Of networks of the C implementation: one edge for each name that a line of JSON IR reads, and one for what is returned."""
    path = ROOT / "tests" / "data" / "nets" / f"{name}.json"
    ops = json.loads(path.read_text())["ops"]
    made = {t["name"]: op["name"] for op in ops for t in op["tensors_out"]}
    expected = {(made[t["name"]], op["name"], t["name"]) for op in ops for t in op["tensors_in"]}
    graph = graph_of(lightnet.load(path).module)
    found = named(graph)
    assert {edge for edge in found if not edge[1].startswith("output")} == expected
    read = {t for _, _, t in expected}
    assert {t for _, b, t in found if b.startswith("output")} <= set(made) - read
    graph.check()


def test_a_cycle() -> None:
    module = parsed(DIAMOND)
    ops = {op.name: op for op in module.body.block.first_op.body.block.ops}  # type: ignore[union-attr]
    relu, exp = (graph_of(module).find(n).op for n in ("relu0", "exp0"))  # type: ignore[union-attr]
    relu.operands[0] = exp.results[0]  # type: ignore[union-attr]
    graph = graph_of(module)
    assert list(map(labels, graph.cycles())) == [["relu0", "exp0"]]
    assert "ln.conv2d" in ops and labels(graph.nexts(graph.find("conv2d0"))) == []  # type: ignore[arg-type]
    for broken in (graph.layers, graph.check):
        with pytest.raises(LightNetError, match="the ops relu0, exp0 depend on each other") as e:
            broken()
        assert str(e.value.loc).startswith("small.mlir:6")
    text = graph.text()
    assert "cycle: relu0, exp0\n" in text and "check: the ops relu0, exp0 depend on each other\n" in text
    exp.operands[0] = exp.results[0]  # type: ignore[union-attr]
    assert list(map(labels, graph_of(module).cycles())) == [["exp0"]]
    assert all(e.source < e.target for e in graph_of(module).picture().edges)  # type: ignore[operator]


def test_two_cycles_are_apart_and_long_ones_are_found() -> None:
    graph = DataFlowGraph()
    nodes = [graph.add(DataNode("op", f"n{k}", "op", name=f"n{k}")) for k in range(5000)]
    for k in range(4999):
        graph.link(nodes[k], nodes[k + 1], DataTensor(f"t{k}", "f32"))
    assert graph.cycles() == [] and len(graph.layers()) == 5000
    graph.link(nodes[4999], nodes[2500], DataTensor("back", "f32"))
    graph.link(nodes[10], nodes[7], DataTensor("near", "f32"))
    alone = graph.add(DataNode("op", "alone", "op"))
    graph.link(alone, alone, DataTensor("own", "f32"))
    assert graph.outliers() == [alone]
    assert [labels(c) for c in graph.cycles() if c != [alone]] == [
        [f"n{k}" for k in range(2500, 5000)],
        ["n7", "n8", "n9", "n10"],
    ]


def test_what_is_out_of_order_or_made_by_nobody() -> None:
    module = parsed(DIAMOND)
    block = module.body.block.first_op.body.block  # type: ignore[union-attr]
    relu = graph_of(module).find("relu0").op  # type: ignore[union-attr]
    relu.detach()  # type: ignore[union-attr]
    graph = graph_of(module)
    assert {(e.tensor.name, graph.nodes[e.target].label) for e in graph.dangling_ins()} == {
        ("r", "relu1"),
        ("r", "exp0"),
    }  # type: ignore[index]
    with pytest.raises(LightNetError, match="`relu1`'s tensor `r` is made by no op of the network"):
        graph.check()
    block.insert_op_before(relu, block.last_op)  # type: ignore[arg-type]
    with pytest.raises(LightNetError, match="`relu1` reads `r` before `relu0` makes it"):
        graph_of(module).check()


# -- level 4


def compiled(target: str, passes: str) -> ModuleOp:
    model = lightnet.load(NETS / "cnn.net")
    run_pipeline(model.ctx, model.module, parse_pipeline(passes, {"target": target}))
    return model.module


LOWERED = {
    "cpu": "bind,simplify,hoist,expand,combine,plan,lower-cpu",
    "cuda": "bind,simplify,hoist,expand,combine,choose,plan,lower-cuda",
}


@pytest.mark.parametrize("target", LOWERED)
def test_nodes_of_level_4_are_launches(target: str) -> None:
    """As many as the text has, of either target, each with how it runs; the figures of `--stats` say the same."""
    module = compiled(target, LOWERED[target])
    lines = re.findall(rf"^ +{'tile' if target == 'cpu' else 'cuda'}\.launch @(\w+)", str(module), re.MULTILINE)
    assert len(lines) >= 4
    graph = graph_of(module)
    assert [(n.kind, n.title) for n in graph.nodes] == [("launch", name) for name in lines]
    assert Measure.of(module).launches == len(lines)
    assert all(n.notes[0].startswith("grid ") for n in graph.nodes)
    assert all(n.notes[1:2] and n.notes[1].startswith("block ") for n in graph.nodes) == (target == "cuda")
    text = dot(module)
    assert text.count("shape=component") == len(lines) and text.count("\n") < 12 + 4 * len(lines)
    # A chain: each kernel but the first reads what one before it wrote, and all of it lies in the arena.
    assert {e.target for e in graph.edges} == set(range(1, len(lines)))
    graph.check()


# -- commands


def test_dfg_of_ln_opt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, flow = tmp_path / "in.mlir", tmp_path / "flow.txt"
    source.write_text(DIAMOND)
    assert ln_opt.main([str(source), "--dfg", "-o", str(tmp_path / "out.mlir")]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "graph: 10 nodes, 9 edges, 6 layers, at most 4 side by side"
    assert lines[1:3] == ["layer 0:", "  create0: - -> conv2d0(x)"] and lines.count("layer 5:") == 1
    assert lines[-3:] == ["linked with nothing: alone", "read by no op: add0(s), alone(z)", "check: well-formed"]
    given = ["--pass=bind,hoist,expand", f"--dfg=after:expand={flow}", "-o", str(tmp_path / "out.mlir"), str(source)]
    assert ln_opt.main(given) == 0
    assert "cpu.kernel" in flow.read_text() and capsys.readouterr().err == ""
    assert ln_opt.main(["--dfg=after:plan=x", str(source)]) == 1
    assert "--dfg: the pipeline has no pass 'plan'" in capsys.readouterr().err
    assert ln_opt.main([f"--dfg={flow}", f"--dot={flow}", str(source)]) == 1
    assert "--dot and --dfg both write" in capsys.readouterr().err


def test_inspect_says_how_deep_a_network_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "in.mlir"
    source.write_text(DIAMOND)
    assert lightnet_cli.main(["inspect", str(source)]) == 0
    assert (
        "graph without params: 7 edges, 6 layers, at most 2 side by side; linked with nothing: alone\n"
        in capsys.readouterr().out
    )
    assert lightnet_cli.main(["inspect", "--json", str(source)]) == 0
    assert json.loads(capsys.readouterr().out)["flow"] == {"edges": 7, "layers": 6, "widest": 2, "outliers": ["alone"]}


def test_peak_memory_is_this_programs() -> None:
    """A child's is not that of a large parent."""
    ballast = bytearray(200 << 20)
    ballast[::4096] = b"x" * len(ballast[::4096])
    assert peak_mib() > 200
    code = "from lightnet_report.timing import peak_mib; print(peak_mib()); x = bytes(range(256)) * (120 << 12); print(peak_mib())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, after = map(float, done.stdout.split())
    assert before < 120 < after
