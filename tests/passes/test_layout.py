"""Layouts as a whole: which kernels run on blocked maps, that results do not depend on it, and that laid-out modules are modules like
others: printed, read again, laid out again, planned, checked, refused with a place where they make no sense."""

from __future__ import annotations

import io
import itertools
import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from blocked_networks import random_network
from executing import assert_equal, feeds_of, run_graph
from xdsl.dialects.builtin import ModuleOp

import lightnet
from lightnet.backends.interpreter import graph
from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.move import Forward
from lightnet.frontends import importer, json_ir, mlir
from lightnet.ir.context import make_context
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import Blocked, layout_of
from lightnet.ir.memory import memory_of
from lightnet.ir.op import LnOp
from lightnet.ir.passes import parse_pipeline, run_pipeline
from lightnet.ir.target import get_target, reorder_time
from lightnet.passes import layout
from lightnet.passes.graph import graphs
from lightnet.passes.min_cut import TwoLabels
from lightnet_export.netlist import from_module
from lightnet_trust.check import run_checked

KERNELS = "bind,simplify,hoist,expand,subgraph,hoist,combine"
LAID_OUT = f"{KERNELS},layout,bands,choose,pack"
#: Of the largest value: sums of some hundred products of f32, in other orders, and Winograd's algorithm.
TOLERANCE = 1e-4


def passed(module: ModuleOp, pipeline: str) -> ModuleOp:
    module = module.clone()
    run_pipeline(make_context(), module, parse_pipeline(pipeline), verify_each=True)
    return module


def parsed(text: str) -> ModuleOp:
    return mlir.read(text, "net.mlir", make_context())


def kernels(module: ModuleOp) -> list[KernelOp]:
    return [op for op in module.walk() if isinstance(op, KernelOp)]


def has_maps(module: ModuleOp) -> bool:
    return any(isinstance(layout_of(r.type), Blocked) for k in kernels(module) for r in k.results)


def agrees(got: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> None:
    assert list(got) == list(want)
    full = [n for n in want if want[n].size]
    assert_equal(({n: want[n] for n in full}, ""), ({n: got[n] for n in full}, ""), TOLERANCE)


def mixed(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """From now on chance decides which kernels run on blocked maps, and gives maps larger halos than they need."""
    rng, needed = random.Random(seed), layout.LayoutAssignment.halos

    def decide(self) -> None:
        share = rng.choice((0.5, 0.8, 1.0))
        for node in self.nodes.values():
            node.blocked = rng.random() < share

    def halos(self, chosen):
        rows, cols = rng.choice(((0, 0), (1, 2), (2, 0)))
        return {v: (h[0] + rows, h[1] + cols) for v, h in needed(self, chosen).items()}

    monkeypatch.setattr(layout.LayoutAssignment, "decide", decide)
    monkeypatch.setattr(layout.LayoutAssignment, "halos", halos)


# -- results


@pytest.mark.parametrize("seed", range(4))
def test_random_networks(seed: int) -> None:
    """Compiled code on blocked and on plain maps agrees with the references; two compilations give the same text and the same bits."""
    module, feeds = random_network(seed)
    model, want = lightnet.loads(str(module), ".mlir"), run_graph(module, feeds)[0]
    one, other = lightnet.compile(model), lightnet.compile(model)
    assert str(one.planned) == str(other.planned)
    first, again, second = one(feeds), one(feeds), other(feeds)
    agrees(first, want)
    assert all(first[n].tobytes() == again[n].tobytes() == second[n].tobytes() for n in want)
    agrees(lightnet.compile(model, layout="plain")(feeds), want)


@pytest.mark.sampled(every=3, share=0.2)
@pytest.mark.parametrize("seed", range(6, 14))
def test_any_mix_of_layouts_is_right(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever kernels run on blocked maps, and whatever halos these have: compiled code, and the interpreter on the planned bytes."""
    mixed(monkeypatch, seed)
    module, feeds = random_network(seed)
    want = run_graph(module, feeds)[0]
    features = ("avx512", "avx2", "neon")[seed % 3]
    compiled = lightnet.compile(lightnet.loads(str(module), ".mlir"), features=features, threads=1 + seed % 2)
    agrees(compiled(feeds), want)
    agrees(run_graph(compiled.planned, feeds)[0], want)


@pytest.mark.sampled(every=3, share=0.3)
@pytest.mark.parametrize("seed", [0, 3, 5])
def test_checked_step_by_step(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--check` through level 4: halos and unused lanes of every map, and blocks of every kernel function."""
    mixed(monkeypatch, seed)
    module, _ = random_network(seed, 7)
    verdict = run_checked(make_context(), module, parse_pipeline(f"{LAID_OUT},schedule,plan,lower-cpu"))
    assert verdict.ok, verdict


# -- modules


@pytest.mark.parametrize("seed", range(20, 22))
def test_laid_out_modules_round_trip(seed: int) -> None:
    module, feeds = random_network(seed)
    want = run_graph(module, feeds)
    for pipeline in (LAID_OUT, f"{LAID_OUT},schedule,plan"):
        before = passed(module, pipeline)
        assert str(parsed(str(before))) == str(before)
        text = json_ir.write(from_module(before))
        back = importer.to_module(json_ir.read(text, "net.json"))
        assert json_ir.write(from_module(back)) == text
        assert_equal(want, run_graph(back, feeds), TOLERANCE)
        passed(back, "bind,lower-cpu" if memory_of(back) else "bind,plan,lower-cpu")


@pytest.mark.sampled(every=3, share=0.2)
@pytest.mark.parametrize("seed", range(25, 27))
@pytest.mark.parametrize(
    "again", ["layout", "layout{layout=plain}", "defuse,layout", "combine,hoist,layout,bands", "layout{features=avx2}"]
)
def test_passes_run_again(seed: int, again: str) -> None:
    """Passes take laid-out, planned modules: results stay, changes of layout do not pile up, places of other sizes go."""
    module, feeds = random_network(seed)
    planned = passed(module, f"{LAID_OUT},plan")
    changed = passed(planned, again)
    assert not memory_of(changed) or not has_maps(planned)
    after = passed(changed, f"choose{'{features=avx2}' if 'avx2' in again else ''},pack,plan")
    assert_equal(run_graph(module, feeds), run_graph(after, feeds), TOLERANCE)
    passed(after, "lower-cpu")
    if again == "layout":
        assert len(kernels(after)) == len(kernels(passed(module, LAID_OUT.replace(",bands", ""))))
    if "plain" in again:
        assert not has_maps(after)


# -- decisions


def total(assignment: layout.LayoutAssignment) -> float:
    """Nanoseconds of the kernels, and of one change of layout for each value that is not as all who read it want it."""
    time = sum(n.blocking.blocked if n.blocked else n.blocking.plain for n in assignment.nodes.values())
    for value in {v for n in assignment.nodes.values() for v in (*n.reads, *n.kernel.results)} - assignment.static:
        maps, plain = assignment.readers(value)
        if plain if assignment.is_map(value) else maps:
            time += reorder_time(value, Blocked(16))
    return time


@pytest.mark.parametrize("seed", range(12))
def test_assignment_is_the_cheapest(seed: int) -> None:
    module, _ = random_network(seed, 8)
    module = passed(module, KERNELS)
    rng, cpu = random.Random(seed), get_target("cpu")

    def blocking(kernel: KernelOp, features: str):
        found = cpu.blocking(kernel, features)
        scale = rng.choice((0.1, 1, 1, 5, 20)), rng.choice((0.1, 0.3, 1, 1))
        return found and replace(found, blocked=found.blocked * scale[0], plain=found.plain * scale[1])

    (block,) = graphs(module)
    found = layout.LayoutAssignment.of(block, replace(cpu, blocking=blocking), "avx512")
    nodes, cost = list(found.nodes.values())[:11], total(found)
    for labels in itertools.product((False, True), repeat=len(nodes)):
        for node, label in zip(nodes, labels):
            node.blocked = label
        assert cost <= total(found) + 0.01 * len(nodes)  # costs are rounded


def test_minimum_cut_agrees_with_trying_all() -> None:
    rng = random.Random(1)
    for _ in range(300):
        count, cut, terms = rng.randint(1, 6), TwoLabels(), []
        costs = [(rng.randint(0, 9), rng.randint(0, 9)) for _ in range(count)]
        for both in costs:
            cut.node(*both)
        for _ in range(rng.randint(0, 6)):
            one, *others = rng.sample(range(count), rng.randint(1, count))
            kind, cost = rng.choice("tfa"), rng.randint(0, 9)
            others = others or ([one] if kind == "a" else [])
            terms.append((kind, one, others, cost))
            if kind == "f":
                cut.any_false(one, others, cost)
            else:
                cut.any_true(others, one if kind == "t" else None, cost)

        def price(labels: Sequence[bool], costs=costs, terms=terms) -> int:
            sums = [if_true if label else if_false for label, (if_true, if_false) in zip(labels, costs)]
            for kind, one, others, cost in terms:
                away = any(not labels[o] for o in others) if kind == "f" else any(labels[o] for o in others)
                sums.append(cost * (away and (kind == "a" or labels[one] == (kind == "f"))))
            return sum(sums)

        every = list(itertools.product((False, True), repeat=count))
        labels = cut.solve()[:count]
        least = min(map(price, every))
        assert price(labels) == least
        assert sum(labels) == min(sum(e) for e in every if price(e) == least), "as few as can be"


def test_choices_that_are_pinned_decide() -> None:
    """An algorithm that runs on blocked maps only, pinned before `layout`, brings them; one for plain maps keeps them away."""
    text = """func.func @main() -> tensor<1x16x8x8xf32> {
      %x = ln.input : tensor<1x16x8x8xf32> as ("x")
      %y = cpu.kernel(%x_ = %x) choices {alg = "ALG"} { %0 = ln.relu %x_ : tensor<1x16x8x8xf32> ln.yield %0 } as ("y")
      func.return %y : tensor<1x16x8x8xf32> }"""
    assert has_maps(passed(parsed(text.replace("ALG", "map")), "layout,choose,pack,plan"))
    assert not has_maps(passed(parsed(text.replace("ALG", "loops")), "layout,choose,pack,plan"))


# -- corners


MAP = "tensor<1x32x8x8xf32>"
CONV = f'ln.conv2d %X, %w, %b {{size = [3, 3], padding = [1, 1, 1, 1]}} : {MAP}'  # fmt: skip
SOURCES = f"""%x = ln.input : {MAP} as ("x")
%w = ln.param : tensor<32x32x3x3xf32> as ("w")
%b = ln.param : tensor<32xf32> as ("b")
%p = ln.param : {MAP} as ("p")"""
CORNERS = {
    "output-is-input": f"""%y = {CONV.replace("%X", "%x")} as ("y")
        func.return %x, %y, %p : {MAP}, {MAP}, {MAP}""",
    "map-and-plain": f"""%a = {CONV.replace("%X", "%x")} as ("a")
        %t = ln.transpose %a {{axes = [0, 1, 3, 2]}} : {MAP} as ("t")
        %y = {CONV.replace("%X", "%a")} as ("y")
        func.return %a, %y, %t, %a : {MAP}, {MAP}, {MAP}, {MAP}""",
    "static-map": f"""%a = {CONV.replace("%X", "%x")} as ("a")
        %q = ln.relu %p : {MAP} as ("q")
        %s = ln.elew %a, %q {{elew_op = "TL_SUM"}} : {MAP} as ("s")
        %y = {CONV.replace("%X", "%s")} as ("y")
        func.return %y, %q : {MAP}, {MAP}""",
    "only-static": f"""%y = {CONV.replace("%X", "%p")} as ("y")
        func.return %y, %x : {MAP}, {MAP}""",
    "host": f"""%a = {CONV.replace("%X", "%x")} as ("a")
        ln.print %a {{msg = "a"}}
        %y = {CONV.replace("%X", "%a")} as ("y")
        func.return %y : {MAP}""",
    "halves": f"""%a = {CONV.replace("%X", "%x")} as ("a")
        %l = ln.slice %a {{axis = 1, start = 16, len = 16}} : tensor<1x16x8x8xf32> as ("l")
        %r = ln.slice %a {{axis = 1, start = 0, len = 16}} : tensor<1x16x8x8xf32> as ("r")
        %c = ln.concat %l, %r {{axis = 1}} : {MAP} as ("c")
        %y = {CONV.replace("%X", "%c")} as ("y")
        func.return %y, %l : {MAP}, tensor<1x16x8x8xf32>""",
    "nothing": """%e = ln.input : tensor<1x32x0x8xf32> as ("e")
        %r = ln.relu %e : tensor<1x32x0x8xf32> as ("r")
        %y = ln.concat %r, %x {axis = 2} : tensor<1x32x8x8xf32> as ("y")
        func.return %y, %r : tensor<1x32x8x8xf32>, tensor<1x32x0x8xf32>""",
}


@pytest.mark.parametrize("blocked", [0.0, 1.0])
@pytest.mark.parametrize("name", CORNERS)
def test_corners(name: str, blocked: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values that are read both ways, outputs, params and nothing as maps; as the model decides, and with all on blocked maps."""
    if blocked:
        monkeypatch.setattr(layout.LayoutAssignment, "decide", lambda self: None)
    types = CORNERS[name].rpartition(":")[2]
    text = f"func.func @main() -> ({types}) {{\n{SOURCES}\n{CORNERS[name]}\n}}"
    module = parsed(text)
    feeds = feeds_of(module)
    printed = io.StringIO()
    want, shown = run_graph(module, feeds)
    compiled = lightnet.compile(lightnet.loads(text, ".mlir"))
    assert not blocked or name in ("only-static", "nothing") or has_maps(compiled.planned)
    agrees(compiled(feeds, stream=printed), want)
    assert len(printed.getvalue()) == len(shown)


def test_further_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors in the middle of maps can be asked for, by name."""
    monkeypatch.setattr(layout.LayoutAssignment, "decide", lambda self: None)  # all on blocked maps
    module, feeds = random_network(2)
    ops = [op for op in module.walk() if isinstance(op, LnOp) and op.operands]
    wanted = [op.tensor_names[0] for op in ops if op.result_specs[0].ndim == 4][::3]
    values: dict[str, np.ndarray] = {}
    want = graph.run(module, feeds, values=values)
    compiled = lightnet.compile(lightnet.loads(str(module), ".mlir"), outputs=wanted)
    assert len(wanted) > 1 and has_maps(compiled.planned)
    agrees(compiled(feeds), {**want, **{n: values[n] for n in wanted if n not in want}})


@pytest.mark.parametrize("reorder", ["ln.forward %v", "cpu.kernel(%a = %v) { %0 = ln.forward %a : MAPS ln.yield %0 }"])
@pytest.mark.parametrize("source", ["input", "output", "kernel"])
def test_a_change_of_layout_that_is_an_output(source: str, reorder: str) -> None:
    """It goes with the layouts. Its name stays an output, beside what else is: a copy is left where what it reads has
    to keep a name of its own."""
    maps = f'{MAP[:-1]}, #ln.layout<"c16">>'
    made = f'%v = ln.input : {MAP} as ("x")'
    if source != "input":
        made = f"""%x = ln.input : {MAP} as ("x")
      %v = cpu.kernel(%b = %x) {{ %1 = ln.relu %b : {MAP} ln.yield %1 }} as ("v")"""
    kind = "" if "kernel" in reorder else f" : {maps}"
    results, types = ("%v, %y", f"{MAP}, {maps}") if source == "output" else ("%y", maps)
    text = f"""func.func @main() -> ({types}) {{ {made}
      %y = {reorder.replace("MAPS", maps)}{kind} as ("y")
      func.return {results} : {types} }}"""
    module = parsed(text)
    after = passed(module, "layout")
    feeds = feeds_of(module)
    want = {"v": np.maximum(feeds["x"], 0), "y": np.maximum(feeds["x"], 0)} if source != "input" else {"y": feeds["x"]}
    got = run_graph(after, feeds)
    assert_equal((want if source == "output" else {"y": want["y"]}, ""), got)
    left = [op for op in after.walk() if isinstance(op, Forward)]
    assert len(left) == (source != "kernel") and not has_maps(after)


def test_a_value_twice_in_one_kernel() -> None:
    """One that would be a map and something else, or two results, keeps the kernel plain."""
    text = f"""func.func @main() -> ({MAP}, {MAP}) {{
      %x = ln.input : {MAP} as ("x")
      %y, %z = cpu.kernel(%a = %x, %b = %x) {{
        %0 = ln.elew %a, %b {{elew_op = "TL_SUM"}} : {MAP}
        ln.yield %0, %0
      }} as ("y", "z")
      func.return %y, %z : {MAP}, {MAP} }}"""
    module = parsed(text)
    after = passed(module, "layout,choose,pack,plan")
    passed(after, "lower-cpu")
    feeds = feeds_of(module)
    assert_equal(run_graph(module, feeds), run_graph(after, feeds))


# -- errors


def relu(source: str, result: str, choices: str = "") -> str:
    encoded = [f', #ln.layout<"{t}">' if t != "plain" else "" for t in (source, result)]
    one, other = (f"tensor<1x32x8x8xf32{e}>" for e in encoded)
    return f"""func.func @main() -> {other} {{
  %x = ln.input : {one} as ("x")
  %y = cpu.kernel(%x_ = %x) {f"choices {{{choices}}} " if choices else ""}{{ %0 = ln.relu %x_ : {other} ln.yield %0 }} as ("y")
  func.return %y : {other} }}"""


@pytest.mark.parametrize(("text", "says"), [
    (relu("c99999", "c16"), "'c99999' is no layout"),
    (relu("c16h65", "c16"), "'c16h65' is no layout"),
    (relu("c16", "foo"), "'foo' is no layout"),
    (relu("n64", "c16"), "layout 'n64' is not for a tensor of shape"),
    (relu("o32", "c16"), "no generator of the CPU takes cpu.kernel of relu with layouts o32, c16"),
    (relu("h1", "h1"), "with layouts h1"),
    (relu("c1024", "c1024"), "with layouts c1024"),
    (relu("c16", "c16", 'alg = "foo"'), "alg = 'foo'"),
    (relu("c16", "c16", 'alg = "direct"'), "alg = 'direct'"),
    (relu("c16", "c16", "alg = 3"), "the choice alg of cpu.kernel is a name"),
    (relu("c16", "c16", "lanes = 8"), "lanes = 8"),
    (relu("c16", "c16", 'lanes = "many"'), "cannot have lanes"),
    (relu("c16", "c16", "threads = -4"), "number from 1 to 256, not -4"),
    (relu("plain", "plain", 'alg = "foo"'), "of relu with layouts plain, alg = 'foo'"),
    (relu("plain", "plain", 'alg = "winograd4"'), "of relu with layouts plain, alg = 'winograd4'"),
])  # fmt: skip
def test_errors_have_a_place(text: str, says: str) -> None:
    with pytest.raises(LightNetError, match=says.replace("(", r"\(")) as found:
        passed(parsed(text), "choose,pack,plan,lower-cpu")
    assert found.value.loc is not None


def test_ends_of_compiled_code_are_plain() -> None:
    """Callers feed and read row-major arrays: by hand, or by a pass list without `layout`, maps may not stand there."""
    model = lightnet.loads(relu("c16h1", "c16"), ".mlir")
    feed = np.random.default_rng(0).standard_normal((1, 32, 8, 8)).astype(np.float32)
    assert (lightnet.compile(model)({"x": feed})["y"] == np.maximum(feed, 0)).all()
    with pytest.raises(LightNetError, match="is row-major: run the pass layout") as found:
        lightnet.compile(model, pipeline="bind,choose,pack,plan,lower-cpu")({"x": feed})
    assert found.value.loc is not None
    with pytest.raises(LightNetError, match="upstream's plan knows row-major tensors only"):
        passed(parsed(relu("c16", "c16")), "plan{plan=upstream}")


def test_maps_without_elements_are_planned() -> None:
    empty = 'tensor<1x16x0x8xf32, #ln.layout<"c16">>'
    whole = 'tensor<1x32x0x8xf32, #ln.layout<"c16">>'
    text = f"""func.func @main() -> {whole} {{
      %x = ln.input : {empty} as ("x")
      %y = cpu.kernel(%x_ = %x) {{ %0 = ln.concat %x_, %x_ {{axis = 1}} : {whole} ln.yield %0 }} as ("y")
      func.return %y : {whole} }}"""
    assert memory_of(passed(parsed(text), "plan"))["arena"] == 0
