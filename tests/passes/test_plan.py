"""The plan pass and its checker: goldens of the C implementation, memory targets, networks made at random, mutants."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, i64
from xdsl.dialects.func import ReturnOp

from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.source import Source
from lightnet.dialects.ln.structure import planned_ops
from lightnet.frontends import json_ir
from lightnet.frontends.importer import to_module
from lightnet.ir.context import make_context
from lightnet.ir.layout import byte_size
from lightnet.ir.memory import WORKSPACE_SIZE, is_upstream, memory_of, set_memory, unplan
from lightnet.ir.module import main_of
from lightnet.ir.names import tensor_name
from lightnet.ir.op import PLACES, WORKSPACE, name_of, places_of, tensor_names
from lightnet.ir.parser import parse_mlir
from lightnet.ir.passes import parse_pipeline, run_pipeline
from lightnet.ir.place import PlaceAttr
from lightnet.ir.target import Space, get_target
from lightnet.ir.types import spec_of
from lightnet.ir.views import _definition_relations, moves_left, operand_pieces, overwritable, views_of
from lightnet.passes import plan_buffers, plan_groups
from lightnet.passes.check_plan import ByteMap, check_plan
from lightnet.passes.choose import _parsed
from lightnet.passes.plan import check_spaces, plan_module, plan_report
from lightnet.passes.plan_upstream import plan_upstream
from lightnet.runtime.program import is_port
from lightnet_export.netlist import from_module

NETS = Path(__file__).parents[1] / "data" / "nets"
COMPILED = sorted(p.stem for p in (NETS / "compiled-cpu").glob("*.json"))
#: Bytes of all memory that the CPU plan may take.
LIMITS = {"shuffledet_dac_demo": 27_184_418, "squeezedet": 54_000_000, "yolov3_bak": 284_000_000}


def load(name: str):
    return to_module(json_ir.read_file(str(NETS / f"{name}.json")))


def run(module, passes: str):
    run_pipeline(make_context(), module, parse_pipeline(passes))
    return module


def main(body: str, results: str = "") -> str:
    return f"func.func @main() {results} {{\n{body}\n}}"


def parse(text: str):
    return parse_mlir(make_context(), text, "test.mlir")


# -- upstream's plans


@pytest.mark.parametrize("expanded", [False, True])
@pytest.mark.parametrize("name", COMPILED)
def test_upstream_plan_equals_the_c_implementation(name: str, expanded: bool) -> None:
    golden = json.loads((NETS / "compiled-cpu" / f"{name}.json").read_text())
    module = load(f"il2json/{name}")
    passes = ["bind", "preprocess", "expand", "preprocess"] if expanded else ["preprocess", "preprocess"]
    run(module, ",".join(passes))
    plan_upstream(module)
    check_plan(module)
    net = from_module(module)
    assert [op.name for op in net.ops] == [op["name"] for op in golden["ops"]]
    if expanded:
        assert [op.optype for op in net.ops] == [op["optype"] for op in golden["ops"]]
    for op, expected in zip(net.ops, golden["ops"]):
        for ours, theirs in zip(op.tensors_in + op.tensors_out, expected["tensors_in"] + expected["tensors_out"]):
            offset = (theirs["offset_h"] << 32) | theirs["offset_l"]
            assert (ours.name, ours.dims, ours.offset) == (theirs["name"], tuple(theirs["dims"]), offset)
    assert net.mem_sizes == golden["mem_sizes_l"][:2]


@pytest.mark.parametrize(
    ("alignment", "offsets", "total"),
    [(1, [1, 33, 33, 57, 33, 41, 49], 81), (32, [32, 64, 64, 96, 64, 96, 64], 104)],
)
def test_upstream_plan_of_test_ops(alignment: int, offsets: list[int], total: int) -> None:
    module = run(load("ir/test_ops"), "preprocess,preprocess")
    plan_upstream(module, alignment=alignment)
    check_plan(module)
    tensors = ["create1", "slice1", "reshape1", "maxreduce1_dst", "elew1", "transpose1", "zeros1"]
    ops = planned_ops(main_of(module).body.block)
    found = {n: p.offset.data for op in ops for n, p in zip(tensor_names(op), places_of(op))}
    assert [found[t] for t in tensors] == offsets
    assert memory_of(module) == {"arena": total}


def test_nothing_is_left_of_a_plan_that_is_dropped() -> None:
    """Places, sizes, and whose rules it follows, which the exporters ask for."""
    module = load("ir/test_ops")
    before = str(module)
    plan_upstream(module)
    assert is_upstream(module) and str(module) != before
    unplan(module)
    assert not is_upstream(module) and not any(places_of(op) for op in planned_ops(main_of(module).body.block))
    assert not module.attributes


def test_upstream_plan_counts_four_bytes_for_a_bool() -> None:
    module = parse(
        main('%a = ln.create : tensor<3xi1> as "a"("a")\n%b = ln.create : tensor<2xf32> as "b"("b")\nfunc.return')
    )
    plan_upstream(module)
    assert memory_of(module) == {"arena": 1 + 12 + 8}


def test_upstream_plan_refuses_a_fused_network() -> None:
    module = parse(
        main(
            """%x = ln.create : tensor<4xf32> as "x"("x")
  %y = cpu.kernel(%a = %x) {
    %0 = ln.relu %a : tensor<4xf32>
    %1 = ln.sigmoid %0 : tensor<4xf32>
    ln.yield %1
  }
  func.return %y : tensor<4xf32>""",
            "-> tensor<4xf32>",
        )
    )
    with pytest.raises(LightNetError, match="never fused"):
        plan_upstream(module)


ROWS = "tensor<4xf32>"
SCATTER = f'%a, %b, %c = ln.scatter %m : {ROWS}, {ROWS}, {ROWS} as ("a", "b", "c")'
SORT = f'%a, %b = ln.sort1d_by_key %k, %v : {ROWS}, tensor<4xi32> as ("a", "b")'
PICK = f'%a = ln.pick1d %k, %v {{len = 4, stride = 1}} : {ROWS} as ("a")'
GATHER = '%a = ln.gather %k, %k, %k : tensor<3x4xf32> as ("a")'


@pytest.mark.parametrize(
    ("op", "shared", "right"),
    [
        (SCATTER, {}, True),
        (SCATTER, {"a": "m"}, True),  # the first row stands there
        (SCATTER, {"b": "m"}, False),
        (SCATTER, {"c": "m"}, False),
        (SORT, {"a": "k"}, True),
        (SORT, {"b": "v"}, True),
        (SORT, {"a": "k", "b": "v"}, True),
        (SORT, {"a": "v"}, False),
        (SORT, {"b": "k"}, False),
        (PICK, {"a": "k"}, False),
        (PICK, {"a": "v"}, False),
        (GATHER, {"a": "m"}, True),  # which it does not read
        (GATHER, {"a": "k"}, False),
        (f'%a = ln.forward %k : {ROWS} as ("a")', {"a": "k"}, True),
        (f'%a = ln.relu %k : {ROWS} as ("a")', {"a": "k"}, True),
        (f'%a = ln.softmax %k {{axis = 0}} : {ROWS} as ("a")', {"a": "k"}, False),
    ],
)
def test_which_results_have_the_memory_of_their_operands_in_upstreams_plans(
    op: str, shared: dict[str, str], right: bool
) -> None:
    """Those whose op says that it works in place, and those that find there what they make; no other one of its
    results."""
    text = f"""%k = ln.create : {ROWS} as ("k")
  %v = ln.create : tensor<4xi32> as ("v")
  %m = ln.create : tensor<3x4xf32> as ("m")
  {op}
  func.return"""
    module = parse(main(text))
    plan_upstream(module)
    offsets = {"k": 0, "v": 256, "m": 512, "a": 1024, "b": 1280, "c": 1536}
    offsets |= {result: offsets[operand] for result, operand in shared.items()}
    for planned in planned_ops(main_of(module).body.block):
        planned.attributes[PLACES] = ArrayAttr([PlaceAttr("arena", offsets[n]) for n in tensor_names(planned)])
    set_memory(module, {"arena": 2048})
    if right:
        check_plan(module)
    else:
        with pytest.raises(LightNetError, match=r"its result .* overlaps its operand"):
            check_plan(module)


# -- our plans


@pytest.mark.sampled(every=4, share=0.2)
@pytest.mark.parametrize(
    "passes", ["", "bind,expand{target=cpu}", "bind,simplify,expand,combine,layout{layout=plain},choose,hoist"]
)
@pytest.mark.parametrize("name", [*COMPILED, "erfnet_samepad"])
def test_networks_are_planned_within_their_limits(name: str, passes: str) -> None:
    module = load(f"il2json/{name}")
    if passes:
        run(module, passes)
    plan = plan_module(module)
    check_plan(module, alignment=64)
    assert plan.ratio <= 1.02
    assert sum(memory_of(module).values()) <= LIMITS.get(name, 1 << 40)
    if not passes and name in COMPILED:
        upstream = json.loads((NETS / "compiled-cpu" / f"{name}.json").read_text())["mem_sizes_l"][1]
        last = main_of(module).body.block.last_op
        assert memory_of(module)["arena"] <= upstream + sum(spec_of(t).nbytes for t in last.operand_types) + 4096
    module.verify()
    unplan(module)
    assert not memory_of(module) and not any(places_of(op) for op in module.walk())


@pytest.mark.sampled(every=3, share=0.2)
@pytest.mark.parametrize("name", [*COMPILED, "erfnet_samepad"])
def test_ports_cost_no_memory(name: str) -> None:
    """What is the caller's is no longer in the arena, which never grows by it; and all that a call needs, arrays that are fed and
    returned included, is less than with copies of them. What a network has for itself is within its limit."""
    module = run(load(f"il2json/{name}"), "bind,simplify,expand,combine,layout{layout=plain},choose,hoist")
    block = main_of(module).body.block
    copied = [op.results[0] for op in planned_ops(block) if op.name == "ln.input"] + [*block.last_op.operands]
    plan_module(module)
    apart = sum(memory_of(module).values())
    plan_module(module, ports=get_target("cpu").ports)
    memory = memory_of(module)
    own = sum(size for space, size in memory.items() if not is_port(space))
    ports = [v for v in copied if is_port(places_of(v.owner)[v.index].space.data)]
    assert ports and own <= min(apart, LIMITS.get(name, 1 << 40))
    assert sum(memory.values()) < apart + sum(spec_of(v.type).nbytes for v in ports)


def random_network(seed: int, length: int = 40) -> str:
    """A network of moves and elementwise ops on small tensors, with values read again long after."""
    rng = random.Random(seed)
    lines = [
        '%v0 = ln.input {ran = [-1, 1]} : tensor<4x6xf32> as "v0"("v0")',
        '%v1 = ln.param {ran = [-1, 1]} : tensor<4x6xf32> as "v1"("v1")',
    ]
    dims: list[tuple[int, ...]] = [(4, 6), (4, 6)]
    for n in range(2, length):
        k = rng.choice([n - 1, n - 1, rng.randrange(n)])
        d = dims[k]
        kind = rng.choice(["relu", "sigmoid", "elew", "slice", "concat", "reshape", "transpose", "forward", "gather"])
        operands, params = f"%v{k}", ""
        if kind == "elew":
            operands += f", %v{rng.choice([i for i in range(n) if dims[i] == d])}"
            params = ' {elew_op = "TL_SUM"}'
        elif kind == "slice":
            axis = rng.choice([0, 0, len(d) - 1])
            start = rng.randrange(d[axis])
            size = rng.randint(1, d[axis] - start)
            params = f" {{axis = {axis}, start = {start}, len = {size}}}"
            d = (*d[:axis], size, *d[axis + 1 :])
        elif kind == "concat":
            j = rng.choice([i for i in range(n) if dims[i][1:] == d[1:]])
            operands += f", %v{j}"
            params = " {axis = 0}"
            d = (d[0] + dims[j][0], *d[1:])
        elif kind == "reshape":
            total = 1
            for x in d:
                total *= x
            d = rng.choice([(total,), (1, *d[:1], total // d[0]), (total, 1)])
        elif kind == "transpose":
            axes = rng.sample(range(len(d)), len(d))
            params = f" {{axes = {axes}}}"
            d = tuple(d[a] for a in axes)
        elif kind == "gather":
            same = [i for i in range(n) if dims[i] == d]
            operands += f", %v{rng.choice(same)}"
            d = (2, *d)
        if len(d) > 5 or any(x > 200 for x in d):
            kind, operands, params, d = "relu", f"%v{k}", "", dims[k]
        shape = "x".join(map(str, d))
        lines.append(f'%v{n} = ln.{kind} {operands}{params} : tensor<{shape}xf32> as "o{n}"("v{n}")')
        dims.append(d)
    outputs = sorted([*rng.sample(range(2, length), 4), length - 1])
    types = ", ".join(f"tensor<{'x'.join(map(str, dims[o]))}xf32>" for o in outputs)
    lines.append(f"func.return {', '.join(f'%v{o}' for o in outputs)} : {types}")
    return main("\n".join(lines), f"-> ({types})")


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("seed", range(40))
def test_random_networks_run_on_their_plan_as_without_one(seed: int) -> None:
    import numpy as np

    from lightnet.backends.interpreter.graph import run as interpret

    module = parse(random_network(seed))
    module.verify()
    expected = interpret(module)
    plan_module(module)
    check_plan(module, alignment=64)
    found = interpret(module)
    assert list(found) == list(expected)
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name])
        assert not np.isnan(found[name]).any()


#: Values of which small parts live on at the highest load; apart from those they take no fewer bytes.
NO_USE = """%x = ln.input : tensor<8x4xf32> as "x"("x")
%a = ln.concat %x, %x {axis = 0} : tensor<16x4xf32> as "a"("a")
%b = ln.slice %a {axis = 0, start = 7, len = 1} : tensor<1x4xf32> as "b"("b")
%c = ln.relu %b : tensor<1x4xf32> as "c"("c")
%d = ln.concat %x, %x, %b {axis = 0} : tensor<17x4xf32> as "d"("d")
%e = ln.slice %d {axis = 0, start = 0, len = 8} : tensor<8x4xf32> as "e"("e")
%f = ln.concat %e, %a, %c {axis = 0} : tensor<25x4xf32> as "f"("f")
%y = ln.relu %d : tensor<17x4xf32> as "y"("y")
func.return %y : tensor<17x4xf32>"""


def test_merges_are_told_by_the_offsets_of_their_own_grouping(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groupings share their values, which have the offsets of the last one. So where others were tried in vain, nothing
    tells any more which groups of the kept one waste bytes, and the search ends."""
    asked, wasteful = [], plan_groups._wasteful

    def checked(problem: plan_groups.PackingProblem, number: Callable[[int], int]) -> frozenset[int]:
        assert all(slot.group is group for group in problem.groups for slot in group.slots)
        asked.append(wasteful(problem, number))
        return asked[-1]

    monkeypatch.setattr(plan_groups, "_wasteful", checked)
    for text in (main(NO_USE, "-> tensor<17x4xf32>"), *(random_network(seed, 20) for seed in range(5))):
        plan_module(parse(text))
    assert asked[0] and len(asked) > 6  # of one network at least something came


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("seed", range(30))
def test_random_networks_on_two_memories(seed: int) -> None:
    """A small near memory of any capacity: it is never exceeded, outputs stay out of it, and the results are those of one memory."""
    import numpy as np

    from lightnet.backends.interpreter.graph import run as interpret
    from lightnet.ir.target import Space

    def home(value) -> str:
        return "arena" if any(isinstance(use.operation, ReturnOp) for use in value.uses) else "near"

    module = parse(random_network(seed))
    expected = interpret(module)
    used = []
    for capacity in (0, 640, 1 << 12, 1 << 30):
        plan_module(module, others={"near": Space(32, capacity)}, home=home)
        check_plan(module)
        used.append(memory_of(module)["near"])
        assert used[-1] <= capacity
        spaces = {places_of(v.owner)[0].space.data for v in main_of(module).body.block.last_op.operands}
        assert "near" not in spaces
        for name, array in interpret(module).items():
            np.testing.assert_array_equal(array, expected[name])
    assert used[0] == 0 and used[-1] > 0
    with pytest.raises(LightNetError, match="memory space 'near', which the target has not; there are: arena, far"):
        plan_module(module, others={"far": Space()}, home=home)
    plan_module(module)
    assert set(memory_of(module)) == {"arena", "static"}


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("seed", range(30))
def test_a_moved_value_is_found_by_the_checker_if_it_changes_results(seed: int) -> None:
    """Mutants: one place changes. When a run shows the damage, the checker must have refused the plan."""
    import numpy as np

    from lightnet.backends.interpreter.graph import run as interpret

    rng = random.Random(seed)
    module = parse(random_network(seed, 24))
    expected = interpret(module)
    plan_module(module)
    size = memory_of(module)["arena"]
    ops = [
        op for op in planned_ops(main_of(module).body.block) if op.results and places_of(op)[0].space.data == "arena"
    ]
    refused = damaged = 0
    for op in rng.sample(ops, 12):
        before = op.attributes[PLACES]
        nbytes = spec_of(op.results[0].type).nbytes
        op.attributes[PLACES] = ArrayAttr([PlaceAttr("arena", rng.randrange(0, (size - nbytes) // 4 + 1) * 4)])
        try:
            check_plan(module)
            accepted = True
        except LightNetError as e:
            accepted, refused = False, refused + 1
            assert e.label and e.label.startswith("check-plan.")
        found = interpret(module)
        wrong = any(not np.array_equal(found[n], expected[n], equal_nan=True) for n in expected)
        damaged += wrong
        assert not (accepted and wrong)
        op.attributes[PLACES] = before
    check_plan(module)
    assert refused >= damaged


def test_errors_name_both_tensors_and_their_bytes() -> None:
    module = load("ir/test_ops")
    plan_module(module)
    op = next(o for o in planned_ops(main_of(module).body.block) if name_of(o) == "slice1")
    op.attributes[PLACES] = ArrayAttr([PlaceAttr("arena", 4)])
    with pytest.raises(LightNetError) as e:
        check_plan(module)
    assert "'slice1' at arena [4, 28)" in str(e.value) and "'create1' at arena [0, 32)" in str(e.value)


def test_capacity_is_an_error_that_names_the_peak() -> None:
    module = load("il2json/squeezedet")
    with pytest.raises(LightNetError) as e:
        plan_module(module, capacity=30_000_000)
    assert "does not fit into 'arena'" in e.value.message and "`" in e.value.message
    assert any("bytes there" in text for _, text in e.value.notes)


def test_options_of_the_pass() -> None:
    module = load("ir/test_ops")
    run(module, "plan{alignment=16 effort=fast}")
    with pytest.raises(LightNetError, match="unknown plan"):
        run(module, "plan{plan=best}")
    with pytest.raises(LightNetError, match="unknown effort"):
        run(module, "plan{effort=most}")
    unplan(module)
    with pytest.raises(LightNetError, match="no plan"):
        run(module, "check-plan")


def test_report(tmp_path: Path) -> None:
    module = load("il2json/squeezedet")
    plan = plan_module(module)
    report = plan_report(module)
    data = json.loads(report.json())
    assert data["peak"] == plan.peak == memory_of(module)["arena"]
    assert data["bound"] <= data["peak"]
    assert any(b["id"] == "input" for b in data["buffers"])
    for suffix, start in ((".svg", "<svg"), (".html", "<!DOCTYPE"), (".json", "{"), (".txt", "peak")):
        file = tmp_path / f"report{suffix}"
        run(module, f'plan{{report="{file}"}}')
        assert file.read_text().startswith(start)


# -- views, in-place


def test_moves_of_a_kernel_are_composed() -> None:
    module = parse(
        main(
            """%x = ln.input : tensor<1x8x2x2xf32> as "x"("x")
  %y = cpu.kernel(%a = %x) {
    %0 = ln.slice %a {axis = 1, start = 2, len = 4} : tensor<1x4x2x2xf32>
    %1 = ln.reshape %0 : tensor<2x8xf32>
    %2 = ln.slice %1 {axis = 0, start = 1, len = 1} : tensor<1x8xf32>
    ln.yield %2
  }
  func.return %y : tensor<1x8xf32>""",
            "-> tensor<1x8xf32>",
        )
    )
    kernel = planned_ops(main_of(module).body.block)[1]
    assert operand_pieces(kernel) == [[(0, 64, 32)]]
    assert views_of(kernel) == [(0, 0, 64)]
    plan_module(module)
    assert not moves_left(kernel)
    assert memory_of(module)["arena"] == 128


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("%0 = ln.relu %a : T\n%1 = ln.sigmoid %0 : T\nln.yield %1", [(0, 0), (1, 0)]),
        (
            '%0 = ln.transpose %b {axes = [1, 0]} : T\n%1 = ln.elew %0, %a {elew_op = "TL_SUM"} : T\nln.yield %1',
            [(0, 0)],
        ),
        ('%0 = ln.softmax %a {axis = 1} : T\n%1 = ln.elew %0, %a {elew_op = "TL_SUM"} : T\nln.yield %1', [(1, 0)]),
        ("%0 = ln.relu %a : T\n%1 = ln.sigmoid %0 : T\nln.yield %0, %1", [(1, 0), (1, 1)]),
    ],
)
def test_overwritable_operands_of_a_kernel(body: str, expected: list[tuple[int, int]]) -> None:
    """The residual of an epilogue may be overwritten, what a transpose or a reduction reads may not, nor what two
    results need; an operand that is not read may always be."""
    body = body.replace(": T", ": tensor<4x4xf32>")
    module = parse(
        main(f"""%x = ln.input : tensor<4x4xf32> as "x"("x")
  %y = ln.input : tensor<4x4xf32> as "y"("y")
  cpu.kernel(%a = %x, %b = %y) {{
    {body}
  }}
  func.return""")
    )
    kernel = planned_ops(main_of(module).body.block)[2]
    assert overwritable(kernel) == expected


def test_a_kernel_writes_over_one_argument_at_most() -> None:
    """Lowering gives an in-place operand and the result one argument; a second operand there would be an alias."""
    module = parse(
        main(
            """%x = ln.input : tensor<4xf32> as "x"("x")
  %a = ln.relu %x : tensor<4xf32> as "a"("a")
  %b = ln.forward %a : tensor<4xf32> as "b"("b")
  %c = ln.elew %a, %b {elew_op = "TL_SUM"} : tensor<4xf32> as "c"("c")
  func.return %c : tensor<4xf32>""",
            "-> tensor<4xf32>",
        )
    )
    plan_module(module)
    ops = planned_ops(main_of(module).body.block)
    assert places_of(ops[1]) == places_of(ops[2]) != places_of(ops[3])
    ops[3].attributes[PLACES] = ops[1].attributes[PLACES]
    with pytest.raises(LightNetError, match="overlaps two operands"):
        check_plan(module)


def test_byte_map() -> None:
    space = ByteMap()
    a, b = object(), object()
    space.write(0, [(a, 0, 10)])
    space.write(4, [(b, 0, 2)])
    assert space.read(0, 12) == [(a, 0, 4), (b, 0, 2), (a, 6, 4), (None, 0, 2)]
    space.write(4, [(a, 4, 2)])
    assert space.read(1, 8) == [(a, 1, 8)]


# -- values apart


BRANCHES = """%x = ln.create : tensor<64xf32> as "x"("x")
  %a = ln.sigmoid %x : tensor<64xf32> as "a"("a")
  %b = ln.reduce_sum %a {axes = [0]} : tensor<1xf32> as "b"("b")
  %c = ln.tanh %x : tensor<64xf32> as "c"("c")
  %d = ln.reduce_sum %c {axes = [0]} : tensor<1xf32> as "d"("d")
  %e = ln.elew %b, %d {elew_op = "TL_SUM"} : tensor<1xf32> as "e"("e")
  func.return %e : tensor<1xf32>"""


def branches(apart: int) -> dict[str, range]:
    """The bytes of each value of two branches, of which the second could have the memory of the first."""
    module = parse(main(BRANCHES, "-> tensor<1xf32>"))
    plan_module(module, apart=apart)
    check_plan(module)
    found = {}
    for op in planned_ops(main_of(module).body.block)[:-1]:
        (place,) = op.attributes[PLACES]
        begin = place.offset.data
        found[op.tensor_names[0]] = range(begin, begin + byte_size(op.results[0].type))
    return found


def meet(a: range, b: range) -> bool:
    return a.start < b.stop and b.start < a.stop


def test_branches_share_no_bytes_where_they_may_run_at_once() -> None:
    together, apart = branches(0), branches(256)
    assert meet(together["a"], together["c"])
    assert not any(meet(apart[p], apart[q]) for p in "ab" for q in "cd")


def test_values_that_are_too_large_are_not_kept_apart() -> None:
    assert branches(255) == branches(0)


def test_a_chain_shares_bytes_as_before() -> None:
    text = """%x = ln.create : tensor<64xf32> as "x"("x")
  %a = ln.sigmoid %x : tensor<64xf32> as "a"("a")
  %b = ln.transpose %a {axes = [0]} : tensor<64xf32> as "b"("b")
  %c = ln.softmax %b {axis = 0} : tensor<64xf32> as "c"("c")
  func.return %c : tensor<64xf32>"""
    peaks = []
    for apart in (0, 1 << 20):
        module = parse(main(text, "-> tensor<64xf32>"))
        peaks.append(plan_module(module, apart=apart).peak)
    assert peaks[0] == peaks[1]


@pytest.mark.parametrize("window", [1, 2, 5, plan_buffers.WINDOW])
def test_bytes_are_kept_from_ops_of_the_window_that_need_not_wait(window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until behind the last of them; the oracle looks at all paths between two ops."""
    monkeypatch.setattr(plan_buffers, "WINDOW", window)
    last_of_window = 0
    for seed in range(6):
        module = parse(random_network(seed, 50))
        ops = planned_ops(main_of(module).body.block)
        ancestors: list[set[int]] = []  # of each op, all that it needs
        for op in ops:
            makers = [ops.index(v.owner) for v in op.operands]
            ancestors.append(set(makers).union(*(ancestors[i] for i in makers)))
        computing = [i for i, op in enumerate(ops) if not isinstance(op, Source | ReturnOp)]
        for value, slot in plan_buffers.PlannedValues.of(module, apart=1 << 20).slots.items():
            maker = ops.index(value.owner)
            if maker not in computing:
                assert slot.freed == slot.upper == len(ops)
                continue
            readers = [ops.index(use.operation) for use in value.uses] or [maker]
            upper = max(readers) + 1
            beside = [
                j for j in computing
                if upper <= j < upper + window and any(j - window <= r and r not in ancestors[j] for r in readers)
            ]  # fmt: skip
            assert slot.freed == max([upper, *(j + 1 for j in beside)]), (seed, value.name_hint)
            last_of_window += upper + window - 1 in beside
        assert all(s.freed == s.upper for s in plan_buffers.PlannedValues.of(module, apart=0).slots.values())
    assert last_of_window


@pytest.mark.parametrize("text, known", [
    ("dst[i] = src[i]", True), ("dst[i] = src[i + 1]", False), ("t[i] = src[i]\ndst[i] = t[i]", False), ("dst[i] = 1", None),
    ("dst[i] = 1\ndst[i] = src[i]", False), ("dst[i] += src[i]", False), ("dst[i] = src[j]", False),
])  # fmt: skip
def test_where_a_definition_reads_what_it_overwrites(text: str, known: bool | None) -> None:
    """At the very element, elsewhere (or later, through a local, or behind a write), or not at all."""
    assert _definition_relations(text, ("src",), ("dst",)) == ((known,),)


# -- what the checker, the pass and the packer refuse


SMALL = """%x = ln.input : tensor<4xf32> as "x"("x")
  %p = ln.param {ran = [-1, 1]} : tensor<8xf32> as "p"("p")
  %a = ln.relu %x : tensor<4xf32> as "a"("a")
  %b, %c = cpu.kernel(%k = %a) {
    %0 = ln.sigmoid %k : tensor<4xf32>
    %1 = ln.tanh %k : tensor<4xf32>
    ln.yield %0, %1
  }
  func.return %b, %c, %p : tensor<4xf32>, tensor<4xf32>, tensor<8xf32>"""
SMALL_RESULTS = "-> (tensor<4xf32>, tensor<4xf32>, tensor<8xf32>)"


def small():
    """A planned network, its ops by the name of their first tensor, its kernel as ``kernel``."""
    module = parse(main(SMALL, SMALL_RESULTS))
    plan_module(module)
    ops = planned_ops(main_of(module).body.block)
    return module, dict(zip(("x", "p", "a", "kernel"), ops))


@pytest.mark.parametrize(
    ("op", "places", "message"),
    [
        ("a", [], r"`a`: has 1 results, but 0 places"),
        ("a", [("moon", 0)], r"'a' stands at moon\+0; the module's spaces are static, arena"),
        ("a", [("arena", 2)], r"'a' stands at arena\+2, which is no multiple of 4"),
        ("a", [("arena", 516)], r"'a' stands at arena\+516, which is no multiple of 64"),
        ("a", [("arena", 1 << 20)], r"'a' takes arena \[1048576, 1048592\), but the space has 1024 bytes"),
        ("p", [("arena", 0)], r"'p' at arena \[0, 32\) overlaps 'x' of `x` at arena \[0, 16\); both live throughout"),
        ("kernel", [("arena", 128), ("arena", 128)], r"its results '.*' at arena \[128, 144\) and '.*' at arena \[128, 144\) overlap"),
    ],
)  # fmt: skip
def test_places_that_are_wrong_are_named(op: str, places: list[tuple[str, int]], message: str) -> None:
    module, ops = small()
    check_plan(module, alignment=64)
    set_memory(module, {**memory_of(module), "arena": 1024})
    ops[op].attributes[PLACES] = ArrayAttr([PlaceAttr(*p) for p in places])
    with pytest.raises(LightNetError, match=message):
        check_plan(module, alignment=64)


def test_a_workspace_shares_no_bytes() -> None:
    """Neither with what its op reads and makes, nor with memory of the caller; elsewhere it may stand."""
    module, ops = small()
    kernel, end = ops["kernel"], memory_of(module)["arena"]
    set_memory(module, {**memory_of(module), "arena": end + 64, "in0": 64})
    kernel.attributes[WORKSPACE_SIZE] = IntegerAttr(64, i64)
    operand, result = (places_of(o)[0].offset.data for o in (ops["a"], kernel))
    for place, message in (
        (PlaceAttr("arena", end), None),
        (PlaceAttr("arena", operand), rf"its workspace at arena \[{operand}, {operand + 64}\) overlaps 'a?"),
        (PlaceAttr("arena", result), rf"its workspace at arena \[{result}, {result + 64}\) overlaps '"),
        (
            PlaceAttr("arena", end + 4),
            rf"its workspace takes arena \[{end + 4}, {end + 68}\), but the space has {end + 64} bytes",
        ),
        (PlaceAttr("in0", 0), r"its workspace stands at in0\+0, which is the caller's memory"),
    ):
        kernel.attributes[WORKSPACE] = ArrayAttr([place])
        if message is None:
            check_plan(module)
        else:
            with pytest.raises(LightNetError, match=message):
                check_plan(module)


def test_limits_are_met_exactly() -> None:
    """Capacities of the arena, of the static tensors, of a port and of a space of the target: as many bytes as are needed do, one less does not."""
    module = parse(main(SMALL, SMALL_RESULTS))
    plan_module(module, alignment=1)
    arena = memory_of(module)["arena"]
    check_plan(module, capacity=arena)
    with pytest.raises(LightNetError, match=f"memory space 'arena' has {arena} bytes, the capacity is {arena - 1}"):
        check_plan(module, capacity=arena - 1)
    static = parse(main('%p = ln.param {ran = [-1, 1]} : tensor<8xf32> as "p"("p")\n%q = ln.param {ran = [-1, 1]} : tensor<16xf32> as "q"("q")\n'
                        "func.return"))  # fmt: skip
    plan_module(static, alignment=32, capacity=96)
    assert memory_of(static)["static"] == 96
    message = "the static tensors need 96 bytes, the capacity of 'static' is 95; this one takes 64"
    with pytest.raises(LightNetError, match=message):
        plan_module(static, alignment=32, capacity=95)
    ports = parse(main('%x = ln.input : tensor<16xf32> as "x"("x")\n%y = ln.sigmoid %x : tensor<16xf32> as "y"("y")\n'
                       "func.return %y : tensor<16xf32>", "-> tensor<16xf32>"))  # fmt: skip
    plan_module(ports, ports=64, capacity=64)
    assert memory_of(ports) == {"static": 0, "arena": 0, "in0": 64, "out0": 64}
    with pytest.raises(LightNetError, match="'x' has 64 bytes, the capacity is 63"):
        plan_module(ports, ports=64, capacity=63)
    for alignment in (0, -1):
        with pytest.raises(LightNetError, match=f"the alignment should be at least 1, but is {alignment}"):
            plan_module(ports, alignment=alignment)
    module = parse(main(SMALL, SMALL_RESULTS))
    set_memory(module, {"arena": 16, "near": 32})
    check_spaces(module, {"near": Space(16, 32)})
    with pytest.raises(LightNetError, match="the plan takes 32 bytes of 'near', which has 31"):
        check_spaces(module, {"near": Space(16, 31)})
    with pytest.raises(LightNetError, match="the target has no memory space 'near'; there are: far"):
        check_spaces(module, {"far": Space()})


def test_a_space_is_filled_to_its_last_byte() -> None:
    """A value of as many bytes as a small space has stands there; a larger one moves to the arena."""
    text = main('%x = ln.create : tensor<16xf32> as "x"("x")\n%y = ln.sigmoid %x : tensor<16xf32> as "y"("y")\n'
                '%z = ln.softmax %y {axis = 0} : tensor<16xf32> as "z"("z")\nfunc.return %z : tensor<16xf32>', "-> tensor<16xf32>")  # fmt: skip
    for capacity, bytes_there in ((64, 64), (63, 0)):
        module = parse(text)
        plan_module(
            module, others={"near": Space(16, capacity)}, home=lambda v: "near" if tensor_name(v) == "y" else "arena"
        )
        assert memory_of(module)["near"] == bytes_there


def test_effort_is_a_name_or_a_number_of_steps() -> None:
    module = load("ir/test_ops")
    for effort in ("0", "25", "high"):
        run(module, f'plan{{effort="{effort}"}}')
    with pytest.raises(
        LightNetError, match="unknown effort '-1': expected one of fast, default, high or a number of steps"
    ):
        run(module, 'plan{effort="-1"}')
    with pytest.raises(LightNetError, match="schedule: unknown order 'size'; there are: "):
        run(load("ir/test_ops"), "schedule{order=size}")


@pytest.mark.parametrize(
    "text", ["conv1.alg", "alg=direct", ".alg=direct", "conv1.=direct", "conv1.1=direct", "=", "a.b c=1"]
)
def test_choices_that_are_set_have_a_form(text: str) -> None:
    with pytest.raises(LightNetError, match=f"choose: '{text}' should be name.choice=value, as in conv1.alg=direct"):
        _parsed(text)


def test_bytes_that_nobody_wrote_are_nobodys() -> None:
    space, a = ByteMap(), object()
    space.write(4, [(a, 0, 4)])
    assert space.read(0, 12) == [(None, 0, 4), (a, 0, 4), (None, 0, 4)]
    assert space.read(2, 4) == [(None, 0, 2), (a, 0, 2)]
