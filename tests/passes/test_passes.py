"""The graph passes: every FileCheck case is executed before and after, and what FileCheck cannot say."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from counting import calls
from executing import assert_equal, feeds_of, run_graph
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, Region
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

import lightnet
from lightnet import plugins
from lightnet.cli.ln_opt import split_input
from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.dialects.ln.conv import Conv2d
from lightnet.dialects.ln.dialect import optypes
from lightnet.dialects.ln.elementwise import Elew, Relu, Sigmoid
from lightnet.dialects.ln.source import Source
from lightnet.frontends import importer, json_ir
from lightnet.ir import registry
from lightnet.ir.body import choice
from lightnet.ir.context import make_context
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import PLAIN, Blocked, Layout, byte_size, layout_of
from lightnet.ir.locations import file_loc, loc_of
from lightnet.ir.memory import memory_of
from lightnet.ir.module import main_of
from lightnet.ir.op import PLACES, LnOp, tensor_names
from lightnet.ir.parser import parse_mlir
from lightnet.ir.passes import Instrumentation, LnPass, Rewrite, parse_pipeline, run_pipeline
from lightnet.ir.target import Target, get_target, with_capacity
from lightnet.ir.types import TensorSpec
from lightnet.passes import pipelines
from lightnet.passes.dce import remove_dead
from lightnet.passes.graph import graphs
from lightnet.passes.levels import LEVELS
from lightnet.passes.memory_model import MemoryModel
from lightnet.runtime.dtypes import BY_NAME

CASES = Path(__file__).parents[1] / "filecheck" / "passes"
#: The passes of these files, and no others: the planner's files have tests of their own.
FILES = (
    "bind", "choose", "combine", "cse", "dce", "decompose", "defuse", "expand", "fold", "fold-batchnorm", "hoist", "layout",
    "pack", "schedule", "simplify", "subgraph", "trim-windows",
)  # fmt: skip
#: Passes that change rounding: float32 weights times float32 scales, once more rounded.
ROUNDING = {"fold-batchnorm": 1e-5}


def parse(text: str) -> ModuleOp:
    return parse_mlir(make_context(), text, "test.mlir")


def passed(module: ModuleOp, pipeline: str, target: str = "cpu") -> ModuleOp:
    run_pipeline(make_context(), module, parse_pipeline(pipeline, {"target": target}), verify_each=True)
    return module


def kernels(module: ModuleOp) -> list[list[str]]:
    return [[op.optype for op in k.ops] for k in module.walk() if isinstance(k, KernelOp)]


def cases() -> list:
    found = []
    for name in FILES:
        if not (path := CASES / f"{name}.mlir").exists():
            continue
        text = path.read_text()
        runs = re.findall(r"^// RUN: ln-opt %s.*?--pass=('[^']+'|\S+)(?: --target=(\S+))?", text, re.MULTILINE)
        runs = [(passes.strip("'\""), target) for passes, target in runs]
        assert runs, path
        files = [str(CASES / name) for name in dict.fromkeys(re.findall(r"--load %S/(\S+)", text))]
        for i, (_, part) in enumerate(split_input(text)):
            found += [pytest.param(part, *run, files, id=f"{name}-{i}-{run[0]}{run[1]}") for run in runs]
    return found


@pytest.mark.parametrize(("text", "pipeline", "target", "files"), cases())
def test_execution(text: str, pipeline: str, target: str, files: list[str]) -> None:
    """A pass changes no output, no output's name, and nothing that is printed."""
    with plugins.loaded(files):
        module = parse(text)
        feeds = feeds_of(module)
        before = run_graph(module, feeds)
        after = run_graph(passed(module, pipeline, target or "cpu"), feeds)
    assert_equal(before, after, max((ROUNDING.get(p.name, 0) for p in parse_pipeline(pipeline)), default=0))


# -- whole networks --------------------------------------------------------------------------------------------------


def network(seed: int, blocks: int = 6) -> ModuleOp:
    """A random network of the shapes that the passes look for."""
    rng, ops, count = np.random.default_rng(seed), optypes(), itertools.count()
    block = Block()

    def add(optype: str, *operands, **params):
        k = next(count)
        op = ops[optype].make(list(operands), params, name=f"{optype}{k}", tensors=[f"t{k}"])
        op.location = file_loc(SourceLoc("net", k + 1))
        block.add_op(op)
        return op.results[0]

    def tensor(*dims):
        return add("create", dtype="TL_FLOAT", dims=dims)

    x = tensor(1, 8, 6, 6)
    seen = [x]
    for kind in rng.integers(0, 8, blocks):
        match kind:
            case 0 | 1:
                y = add("conv2d", x, tensor(8, 8, 3, 3), tensor(8), size=(3, 3), padding=(1, 1, 1, 1))
                y = add("batchnorm", y, *(tensor(8) for _ in range(4)), epsilon=1e-3)
                x = add("elew", add("lrelu", y, negslope=0.1), seen[rng.integers(len(seen))], elew_op="TL_SUM")
            case 2:
                a, b = (add("slice", x, axis=1, start=s, len=4) for s in (0, 4))
                y = add("concat", a, add("sigmoid", b), axis=1)
                y = add("transpose", add("reshape", y, dims=(1, 2, 4, 6, 6)), axes=(0, 2, 1, 3, 4))
                x = add("reshape", y, dims=(1, 8, 6, 6))
            case 3:
                x = add("transpose", add("relu", add("relu", x)), axes=(0, 1, 3, 2))
            case 4:
                x = add("forward", x)
            case 5:
                x = add("elew", add("sigmoid", x), add("sigmoid", x), elew_op="TL_MUL")
            case 6:
                x = add("maxpool2d", add("upsample", x, scales=(1, 1, 2, 2)), size=(2, 2), stride=(2, 2))
            case 7:
                y = add("deconv2d", x, tensor(8, 8, 1, 1), tensor(8), size=(1, 1))
                x = add("batchnorm", y, *(tensor(8) for _ in range(4)), epsilon=1e-3)
        seen.append(x)
    add_prints(block, seen[1:2])
    block.add_op(func.ReturnOp(*[r for op in block.ops for r in op.results if r.first_use is None]))
    main = func.FuncOp("main", ((), [v.type for v in block.last_op.operands]), Region(block))
    return ModuleOp([main])


def add_prints(block: Block, values: list) -> None:
    for value in values:
        block.add_op(optypes()["print"].make([value], {"msg": "seen"}))


@pytest.mark.sampled(every=3, share=0.2)
@pytest.mark.parametrize("seed", range(12))
def test_pipeline(seed: int) -> None:
    """The whole pipeline before planning, and each prefix of it, keeps what a network computes and prints."""
    module = network(seed)
    feeds = feeds_of(module, seed)
    before = run_graph(module, feeds)
    for name in pipelines.default("cpu", until="kernels").split(","):
        passed(module, name)
        assert_equal(before, run_graph(module, feeds), 1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_names_and_locations_survive(seed: int) -> None:
    """Every kernel names its results, and every op that computes has a place in the source."""
    module = passed(network(seed), pipelines.default("cpu", until="kernels"))
    for op in module.walk():
        if isinstance(op, KernelOp):
            assert loc_of(op) is not None
            assert tensor_names(op) == tuple(name for inner in [op.terminator] for name in map(_name, inner.operands))
        elif isinstance(op, LnOp) and op.results:
            assert loc_of(op) is not None, op


def _name(value) -> str | None:
    return tensor_names(value.owner)[value.index]


def test_defuse_undoes_combine() -> None:
    for seed in range(4):
        module = passed(network(seed), "bind,expand")
        single = sorted(kernels(module))
        passed(module, "combine")
        assert len(kernels(module)) < len(single)
        passed(module, "defuse")
        assert sorted(kernels(module)) == single


def test_time_is_linear() -> None:
    """8 times the ops take far less than 8 * 8 times the calls, through every graph pass."""
    counts = []
    for blocks in (5, 40):
        module = network(1, blocks)
        passes = parse_pipeline(pipelines.default("cpu", until="kernels"), {"target": "cpu"})
        with calls() as made:
            for pass_ in passes:
                if pass_.name != "choose":  # that time is the generators'
                    pass_.apply(make_context(), module)
        counts.append(made.count)
    assert counts[1] < 16 * counts[0], counts


ACTIVATIONS = ("relu", "lrelu", "batchnorm")
#: Kernels that may be left, by network; a move that the plan makes free counts.
REFERENCE = {"erfnet_samepad": 85, "shuffledet_dac_demo": 193, "shufflenetv2": 150, "squeezedet": 61, "yolov3_bak": 82}


@pytest.mark.sampled(every=3, share=0.3)
@pytest.mark.parametrize("name", REFERENCE)
def test_reference_networks(name: str) -> None:
    """Fused as far as the rules go: no batchnorm behind a convolution, every activation behind one in its kernel."""
    path = Path(__file__).parents[1] / "data" / "nets" / "il2json" / f"{name}.json"
    module = importer.to_module(json_ir.read(path.read_text(), str(path)))
    outputs = _output_names(module)
    passed(module, "bind,simplify,fold-batchnorm,simplify,hoist,expand,subgraph,combine,layout{layout=plain},schedule")
    assert _output_names(module) == outputs
    bodies = kernels(module)
    assert len(bodies) <= REFERENCE[name]
    assert not any("batchnorm" in body and "conv2d" in body for body in bodies)
    for kernel in (op for op in module.walk() if isinstance(op, KernelOp) and op.ops[0].optype in ACTIVATIONS):
        made_by = kernel.operands[0].owner
        shared = kernel.operands[0].has_more_than_one_use()
        assert shared or not isinstance(made_by, KernelOp) or made_by.ops[0].optype != "conv2d"


def _output_names(module: ModuleOp) -> list[str | None]:
    (main,) = module.ops
    return [_name(v) for v in main.body.block.last_op.operands]


# -- single passes ---------------------------------------------------------------------------------------------------


def test_every_pass_is_registered() -> None:
    """Each row of the table leads to the pass of that name, and no pass is missing from it."""
    rows = {name: registry.PASSES.get(name) for name in registry.PASSES}
    assert all(cls.name == name for name, cls in rows.items())
    for path in Path(pipelines.__file__).parent.glob("*.py"):
        module = import_module(f"lightnet.passes.{path.stem}")
        for cls in vars(module).values():
            if isinstance(cls, type) and issubclass(cls, LnPass) and cls.__module__ == module.__name__:
                assert rows.get(cls.name) is cls


def test_kernels_are_never_empty() -> None:
    """A kernel that only passes its operand on keeps a forward."""
    text = """func.func @main() -> tensor<3xf32> {
      %x = ln.input : tensor<3xf32> as ("x")
      %y = cpu.kernel(%x_ = %x) {
        %0 = ln.slice %x_ {axis = 0, start = 0, len = 3} : tensor<3xf32>
        ln.yield %0
      } as ("y")
      func.return %y : tensor<3xf32>
    }"""
    assert kernels(passed(parse(text), "simplify")) == [["forward"]]


def test_bind_errors() -> None:
    text = 'func.func @main() { %x = ln.create : tensor<3xf32> as ("x") func.return }'
    with pytest.raises(LightNetError, match="no input or param is named 'y'"):
        passed(parse(text), "bind{inputs=y}")
    with pytest.raises(LightNetError, match="both as an input and as a param"):
        passed(parse(text), "bind{inputs=x params=x}")


def test_bind_by_name() -> None:
    """Names outweigh uses: data can be a param, and a weight an input; contents stay, and others are what they were."""
    text = """func.func @main() -> tensor<1x1x1x1xf32> {
      %x = ln.create {ran = [-1, 1]} : tensor<1x1x3x3xf32> as ("x")
      %w = ln.create {from_file = true} : tensor<1x1x3x3xf32> as ("w")
      %b = ln.create : tensor<1xf32> as ("b")
      %y = ln.conv2d %x, %w, %b {size = [3, 3]} : tensor<1x1x1x1xf32> as ("y")
      func.return %y : tensor<1x1x1x1xf32>
    }"""

    def bound(pipeline: str) -> list[tuple[str, str]]:
        return [(tensor_names(op)[0], op.name) for op in passed(parse(text), pipeline).walk() if isinstance(op, Source)]

    assert bound("bind") == [("x", "ln.input"), ("w", "ln.param"), ("b", "ln.param")]
    assert bound("bind{params=x}") == [("x", "ln.param"), ("w", "ln.param"), ("b", "ln.param")]
    assert bound("bind{params=x inputs=w}") == [("x", "ln.param"), ("w", "ln.input"), ("b", "ln.param")]
    assert "ln.param {ran = [-1, 1]}" in str(passed(parse(text), "bind{params=x}"))


def test_expand_lists_all_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    """One error names every op that the target cannot run, with the places."""
    limited = Target("limited", kernel="cpu", supports=lambda op: not isinstance(op, Relu | Sigmoid))
    monkeypatch.setitem(registry.TARGETS._rows, "limited", limited)
    text = """func.func @main() -> tensor<3xf32> {
      %x = ln.input : tensor<3xf32>
      %a = ln.relu %x : tensor<3xf32> as "relu0"("a")
      %b = ln.elew %a, %x {elew_op = "TL_SUM"} : tensor<3xf32>
      %c = ln.sigmoid %b : tensor<3xf32> as "sigmoid0"("c")
      func.return %c : tensor<3xf32>
    }"""
    with pytest.raises(LightNetError) as error:
        passed(parse(text), "expand", "limited")
    assert "target 'limited' cannot run 2 ops" in error.value.message
    assert error.value.loc == SourceLoc("test.mlir", 3, 12)
    assert [(loc, text) for loc, text in error.value.notes if loc is not None] == [
        (SourceLoc("test.mlir", 3, 12), "cannot run `relu0` of optype relu"),
        (SourceLoc("test.mlir", 5, 12), "cannot run `sigmoid0` of optype sigmoid"),
    ]


def test_expander_pattern_sees_each_op_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registered pattern that makes the op it matches is not applied to what it made; the results are wrapped."""
    seen = []

    class Twice(RewritePattern):
        def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
            if isinstance(op, Relu):
                seen.append(op)
                first = Relu.make([op.src])
                rewriter.replace(op, [first, Relu.make([first.dst])])

    monkeypatch.setattr(registry, "_PATTERNS", {("expand", "cpu"): [Twice]})
    text = """func.func @main() -> tensor<3xf32> {
      %x = ln.input : tensor<3xf32> as ("x")
      %a = ln.relu %x : tensor<3xf32> as "relu0"("a")
      func.return %a : tensor<3xf32>
    }"""
    module = parse(text)
    feeds = feeds_of(module)
    before = run_graph(module, feeds)
    passed(module, "expand")
    assert len(seen) == 1 and kernels(module) == [["relu"], ["relu"]]
    assert_equal(before, run_graph(module, feeds))
    assert all(loc_of(op) == SourceLoc("test.mlir", 3, 12) for op in module.walk() if isinstance(op, KernelOp | Relu))


def test_unsettled_patterns_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A combine pattern that flips forever is an error with its name, not a hang."""

    class FlipFlop(RewritePattern):
        def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
            if isinstance(op, Elew):
                rewriter.replace(op, Elew.make([op.src2, op.src1], {"elew_op": op.elew_op}))

    monkeypatch.setattr(registry, "_PATTERNS", {("combine", "cpu"): [FlipFlop]})
    with pytest.raises(LightNetError, match="FlipFlop"):
        passed(network(4, 1), "bind,expand,combine")


def test_decompose(monkeypatch: pytest.MonkeyPatch) -> None:
    """An op with a decomposition becomes it, and takes its name along."""

    def decomposition(op: Sigmoid) -> list[Operation]:
        first = Relu.make([op.src])
        return [first, Elew.make([first.dst, op.src], {"elew_op": "TL_SUM"})]

    monkeypatch.setattr(Sigmoid, "decomposition", decomposition, raising=False)
    text = """func.func @main() -> tensor<3xf32> {
      %x = ln.input : tensor<3xf32> as ("x")
      %a = ln.sigmoid %x : tensor<3xf32> as "sigmoid0"("a")
      func.return %a : tensor<3xf32>
    }"""
    module = passed(parse(text), "decompose")
    (elew,) = [op for op in module.walk() if isinstance(op, Elew)]
    assert (elew.op_name, elew.tensor_names) == ("sigmoid0", ("a",))
    assert not any(isinstance(op, Sigmoid) for op in module.walk())


def test_decompose_in_circles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sigmoid, "decomposition", lambda op: [Sigmoid.make([op.src])], raising=False)
    with pytest.raises(LightNetError, match="Decompose"):
        passed(network(5, 2), "decompose")


def test_max_ops_bounds_kernels() -> None:
    block = Block()
    value = optypes()["input"].make([], {"dtype": "TL_FLOAT", "dims": (4,)}).results[0]
    block.add_op(value.owner)
    for _ in range(50):
        block.add_op(op := Sigmoid.make([value]))
        value = op.dst
    block.add_op(func.ReturnOp(value))
    module = ModuleOp([func.FuncOp("main", ((), [value.type]), Region(block))])
    passed(module, "expand,combine{max-ops=8}")
    sizes = [len(k) for k in kernels(module)]
    assert sum(sizes) == 50 and max(sizes) == 8 and len(sizes) == 7


def test_batchnorm_needs_a_conv_of_params() -> None:
    """No conv2d of the network keeps a batchnorm behind it, and no value of a param is asked for."""
    module = passed(network(0, 20), "bind,simplify,fold-batchnorm,simplify,hoist")
    main = next(op for op in module.ops)
    assert any(isinstance(op, Conv2d) for op in main.body.block.ops)
    assert not any(op.name == "ln.batchnorm" for op in main.body.block.ops)


# -- schedule --------------------------------------------------------------------------------------------------------


def brute_force_peak(module: ModuleOp) -> int:
    """The lowest peak, by the model, of all orders of a small graph."""
    model = MemoryModel(next(iter(module.ops)).body.block)
    count = len(model.ops)
    orders = itertools.permutations(range(count))
    legal = (o for o in orders if all(b in o[: o.index(i)] for i in range(count) for b in model.after[i]))
    return min(model.peak(o) for o in legal)


@pytest.mark.parametrize("case", ["schedule-0", "schedule-1"])
def test_schedule_is_optimal_on_small_graphs(case: str) -> None:
    name, _, index = case.rpartition("-")
    text = split_input((CASES / f"{name}.mlir").read_text())[int(index)][1]
    best = brute_force_peak(parse(text))
    module = passed(parse(text), "schedule")
    model = MemoryModel(next(iter(module.ops)).body.block)
    assert model.peak(range(len(model.ops))) == best


def test_schedule_never_worse() -> None:
    for seed in range(8):
        module = passed(network(seed, 10), "bind,simplify,hoist,expand,combine")
        before = MemoryModel(next(iter(module.ops)).body.block)
        peak = before.peak(range(len(before.ops)))
        passed(module, "schedule")
        after = MemoryModel(next(iter(module.ops)).body.block)
        assert after.peak(range(len(after.ops))) <= peak


@pytest.mark.parametrize("wrong", [lambda ops: ops[1:], lambda ops: [ops[0], *ops[:-1]], lambda ops: [*ops, ops[0]]])
def test_schedule_of_a_target_must_permute(wrong, monkeypatch: pytest.MonkeyPatch) -> None:
    target = Target("short", kernel="cpu", schedule=lambda block: wrong(list(block.ops)))
    monkeypatch.setitem(registry.TARGETS._rows, "short", target)
    with pytest.raises(
        LightNetError, match="schedule function of target 'short' should return a permutation of all ops"
    ):
        passed(network(0), "schedule", "short")


def test_schedule_of_a_target_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """func.func @main() -> (tensor<4xf32>, tensor<4xf32>) {
  %x = ln.input : tensor<4xf32> as "x"("x")
  %a = ln.relu %x : tensor<4xf32> as "a"("a")
  %b = ln.tanh %x : tensor<4xf32> as "b"("b")
  func.return %a, %b : tensor<4xf32>, tensor<4xf32>
}"""
    target = Target(
        "turned", kernel="cpu", schedule=lambda block: [(ops := list(block.ops))[0], ops[2], ops[1], ops[3]]
    )
    monkeypatch.setitem(registry.TARGETS._rows, "turned", target)
    module = passed(parse(text), "schedule", "turned")
    (block,) = graphs(module)
    assert [op.name for op in block.ops] == ["ln.input", "ln.tanh", "ln.relu", "func.return"]


def test_graphs_are_those_of_functions_with_a_body() -> None:
    same = "(%x: tensor<4xf32>) -> tensor<4xf32> {\nfunc.return %x : tensor<4xf32>\n}\n"
    inner = 'builtin.module {\n%y = ln.input : tensor<4xf32> as "y"("y")\n}\n'
    module = parse(f"func.func private @f()\n{inner}func.func @main{same}func.func @other{same}")
    assert [block.parent_op().sym_name.data for block in graphs(module)] == ["main"]


# -- layouts, targets, pipelines -------------------------------------------------------------------------------------


MAPS = ["plain", "c16", "h1", "c4h2", "c8h3", "c16h2x0", "c4h0x3"]
WEIGHTS = ["o32i16", "o16i4", "o4", "w2o16", "w4o32"]


@pytest.mark.parametrize(
    "token, dims",
    [(t, (2, 6, 3, 5)) for t in MAPS]
    + [(t, (37, 21, 3, 3)) for t in WEIGHTS]
    + [
        ("o16i16", (1, 1, 1, 1)),
        ("o8", (9, 3, 7, 2)),
        ("t32i16", (21, 37, 3, 2)),
        ("d16", (33, 1, 3, 5)),
        ("n64", (70, 65)),
        ("s2x2nhwc4", (5, 3, 3, 4)),
        ("s3x2nhwc1", (2, 3, 5, 2)),
        ("s1x1nhwc8", (9, 7, 3, 2)),
        ("v16", (20,)),
        ("v4", (5, 1, 1)),
        ("n16", (1, 1)),
    ],
)
def test_layouts_round_trip(token: str, dims: tuple[int, ...]) -> None:
    """What is packed comes out again, nothing but zeros stands between the elements, and the plain layout is row-major."""
    layout = Layout.parse(token)
    assert str(layout) == token and layout.fits(dims)
    array = np.random.default_rng(0).standard_normal(dims).astype(np.float32)
    memory = layout.pack(array)
    assert memory.shape == layout.physical_dims(dims) and memory.dtype == array.dtype
    assert memory.nbytes == layout.size(TensorSpec(dims, BY_NAME["f32"]))
    np.testing.assert_allclose(layout.unpack(memory, dims), array, rtol=0, atol=1e-6 if token.startswith("w") else 0)
    if not token.startswith("w"):
        assert sorted(memory[memory != 0]) == sorted(array.reshape(-1))
    if layout == PLAIN:
        assert memory is array


@pytest.mark.parametrize("m", [2, 4])
def test_winograd_weights(m: int) -> None:
    """U = G g G^T window by window, with G from the definition: a polynomial's values at the points, scaled."""
    g = np.random.default_rng(1).standard_normal((5, 3, 3, 3))
    memory = Layout.parse(f"w{m}o4").pack(g)
    points = {2: [0, 1, -1], 4: [0, 0.625, -0.625, 1.5, -1.5]}[m]
    matrix = np.array([[p**k for k in range(3)] for p in points] + [[0, 0, 1]], float)
    scale = [np.prod([p - q for q in points if q != p]) for p in points] + [1]
    matrix = matrix / np.array(scale)[:, None]
    want = np.einsum("pa,oiab,qb->oipq", matrix, g, matrix).reshape(5, 3, -1)
    got = memory.transpose(0, 3, 2, 1).reshape(-1, 4, (m + 2) ** 2)[:5, :3]  # channels are filled up to 4
    np.testing.assert_allclose(np.abs(got), np.abs(want), atol=1e-12)


def test_layout_of_blocks() -> None:
    """c16h1 by hand: [1, 20, 4, 4] is [1, 2, 6, 6, 16] in memory."""
    layout, dims = Layout.parse("c16h1"), (1, 20, 4, 4)
    assert layout.physical_dims(dims) == (1, 2, 6, 6, 16)
    memory = layout.pack(np.arange(20 * 16, dtype=np.float32).reshape(dims)).reshape(-1)
    assert memory[((1 * 6 + 3) * 6 + 4) * 16 + 1] == (17 * 4 + 2) * 4 + 3
    assert memory[(1 * 6 + 1) * 16 + 1] == 16 and memory[0] == 0
    assert layout.size(TensorSpec(dims, BY_NAME["f32"])) == 2 * 6 * 6 * 16 * 4


def test_layout_attribute_round_trips() -> None:
    text = 'func.func @main() { %x = ln.input : tensor<1x20x4x4xf32, #ln.layout<"c16h1">> func.return }'
    module = parse(text)
    again = parse(str(module))
    assert str(again) == str(module) and '#ln.layout<"c16h1">' in str(module)
    (value,) = [r for op in again.walk() for r in op.results]
    assert layout_of(value.type) == Blocked(16, (1, 1)) and byte_size(value.type) == 2 * 6 * 6 * 16 * 4


@pytest.mark.parametrize(
    "token",
    [
        "",
        "c",
        "c0",
        "h",
        "x16",
        "c16h",
        "c99999",
        "h99",
        "c2000",
        "h1c16",
        "c16 ",
        "h0",
        "c1",
        "h1x1",
        "c16h01",
        "w3o16",
        "o",
        "o16i",
        "d0",
        "i16",
        "n16i4",
    ],
)
def test_bad_layouts(token: str) -> None:
    with pytest.raises(LightNetError):
        Layout.parse(token)
    with pytest.raises(LightNetError):
        parse(f'func.func @main() {{ %x = ln.input : tensor<1x1x1x1xf32, #ln.layout<"{token}">> func.return }}')


def test_a_target_takes_sizes_of_calls_unless_it_says_that_it_does_not() -> None:
    """Every target that is registered, and one that says no more than whose kernels it has."""
    restore = registry.checkpoint()
    registry.TARGETS.add("silent", Target("silent", kernel="cpu"))
    registry.TARGETS.add("fixed", Target("fixed", kernel="cpu", takes_open=False))
    try:
        _check_which_targets_take_sizes_of_calls()
    finally:
        restore()


def _check_which_targets_take_sizes_of_calls() -> None:
    type_ = 'tensor<?x4xf32, #ln.dims<"n(1..9)">>'
    for name in registry.TARGETS:
        module = parse(f"""func.func @main() -> {type_} {{
          %x = ln.input : {type_} as ("x")
          %y = ln.relu %x : {type_} as ("y")
          func.return %y : {type_}
        }}""")
        try:
            passed(module, "expand", name)
        except LightNetError as e:
            assert name in ("fixed", "dpu"), name
            assert e.label == ("expand.unsupported" if name == "dpu" else "target.dims")  # DPUs compute convolutions
        else:
            assert name != "fixed", name


def test_targets() -> None:
    assert get_target("cpu").spaces["arena"].capacity == 16 << 30
    assert with_capacity(get_target("cpu"), "arena", 1 << 20).spaces["arena"].capacity == 1 << 20
    with pytest.raises(LightNetError, match="there are: arena, static"):
        with_capacity(get_target("cpu"), "vram", 1)
    with pytest.raises(LightNetError, match="unknown target 'gpu'; there are: cpu, cuda, cudnn, dpu, none, tensorrt"):
        get_target("gpu")
    with pytest.raises(LightNetError, match="no kernels"):
        _ = get_target("none").kernel_op


def test_pipelines_parse() -> None:
    for level in LEVELS:
        for plan in ("default", "upstream"):
            text = pipelines.default("cpu", plan, level.name)
            assert all(name in registry.PASSES for name in text.split(","))
    upstream = pipelines.default("cpu", "upstream", "plan").split(",")
    assert not {"combine", "subgraph", "layout", "schedule", "hoist", "simplify"} & set(upstream)
    assert pipelines.default("none") == "bind"
    with pytest.raises(LightNetError, match="unknown level"):
        pipelines.default("cpu", until="x")
    names = ["bind", "simplify", "expand"]
    for text in ("bind,simplify,expand", " bind ,\n simplify,\texpand \n", "bind , simplify{} , expand"):
        assert [p.name for p in parse_pipeline(text, {"target": "cpu"})] == names
    assert pipelines.default("cpu", layout="blocked") == pipelines.default("cpu")
    assert pipelines.default("cpu", "upstream", layout="plain") == pipelines.default("cpu", "upstream")
    for target, plan, planned in (("cpu", "upstream", False), ("cpu", "default", True), ("none", "default", False)):
        with pytest.raises(LightNetError, match="leave out layout 'blocked'"):
            pipelines.default(target, plan, planned=planned, layout="blocked")


@pytest.mark.parametrize("pass_", ["combine", "hoist"])
def test_a_rewrite_drops_the_plan_that_it_makes_stale(pass_):
    """Values that a rewrite makes have no place: half a plan is none."""
    model = lightnet.load(Path(__file__).parents[2] / "examples/cnn.net")
    run_pipeline(model.ctx, model.module, parse_pipeline("bind,expand,plan"))
    assert memory_of(model.module)
    run_pipeline(model.ctx, model.module, parse_pipeline(pass_))
    assert not memory_of(model.module) and not any(PLACES in op.attributes for op in model.module.walk())
    run_pipeline(model.ctx, model.module, parse_pipeline("plan"))
    assert memory_of(model.module)


def test_transformed_weights_have_a_budget() -> None:
    """Winograd's kernels give way, the one that gains least for its memory first, until their weights fit; pinned ones stay."""
    text = "\n".join(
        [
            "func.func @main() -> tensor<1x64x28x28xf32> {",
            "%x0 = ln.input : tensor<1x64x28x28xf32>",
            "%b = ln.param : tensor<64xf32>",
            *(
                f"%w{i} = ln.param : tensor<64x64x3x3xf32> %x{i + 1} = ln.conv2d %x{i}, %w{i}, %b {{size = [3, 3], "
                f'padding = [1, 1, 1, 1]}} : tensor<1x64x28x28xf32> as "conv{i}"("x{i + 1}")'
                for i in range(4)
            ),
            "func.return %x4 : tensor<1x64x28x28xf32> }",
        ]
    )
    plain = 4 * 64 * 64 * 9

    def algorithms(options: str) -> list[str]:
        module = passed(parse(text), f"bind,hoist,expand,layout,choose{{{options}}},pack")
        found = [choice(k, "alg") for k in module.walk() if isinstance(k, KernelOp)]
        return [a for a in found if a and a.startswith(("winograd", "direct"))]

    def orders(options: str) -> list[str]:
        module = passed(parse(text), f"bind,hoist,expand,layout,choose{{{options}}},pack")
        return [choice(k, "order") for k in module.walk() if isinstance(k, KernelOp) and choice(k, "order")]

    assert algorithms("weight_memory=10000000") == ["winograd4"] * 4
    assert algorithms("exact=true") == ["direct"] * 4
    assert orders("weight_memory=0") == ["panels"] * 4  # transformed at run time
    assert orders(f"weight_memory={3 * 4 * plain}") == ["tiles"] * 4
    assert sorted(orders(f"weight_memory={3 * 3 * plain}")) == ["panels"] + ["tiles"] * 3
    assert orders("") == ["panels"] * 4  # 0.3 times 4 plain ones is too little for one of 3
    pinned = algorithms('weight_memory=0 set="conv1.alg=winograd4;conv2.alg=winograd2"')
    assert pinned[1:3] == ["winograd4", "winograd2"]
    assert orders('weight_memory=0 set="conv1.alg=winograd4;conv2.alg=winograd2"') == [
        "panels",
        "tiles",
        "tiles",
        "panels",
    ]


class Heard(Instrumentation):
    """What a watcher is told, in order; it may refuse after a pass, as a check does."""

    def __init__(self, refuses: bool = False):
        self.events: list[str] = []
        self.refuses = refuses

    def before_pipeline(self, passes, module) -> None:
        self.events.append("begin")

    def before_pass(self, pass_, module) -> None:
        self.events.append(f"before {pass_.name}")

    def after_pass(self, pass_, module) -> None:
        self.events.append(f"after {pass_.name}")
        if self.refuses:
            raise LightNetError("refused")

    def pass_failed(self, pass_, module, error) -> None:
        self.events.append(f"failed {pass_.name}")

    def before_verify(self) -> None:
        self.events.append("verify")

    def after_verify(self) -> None:
        self.events.append("verified")

    def after_pipeline(self, module) -> None:
        self.events.append("end")


class Raises(LnPass):
    name = "raises"

    def apply(self, ctx, op) -> None:
        raise LightNetError("no")


class Breaks(LnPass):
    name = "breaks"

    def apply(self, ctx, op) -> None:
        main_of(op).body.block.last_op.operands = []  # `func.return` gives less than the function's type says


WELL = ["begin", "before ln-dce", "after ln-dce", "verify", "verified", "end"]


@pytest.mark.parametrize(
    ("passes", "refuses", "events"),
    [
        ("", False, ["begin", "end"]),
        ("ln-dce", False, WELL),
        ("ln-dce", True, [*WELL[:3], "failed ln-dce"]),
        ("raises", False, ["begin", "before raises", "failed raises"]),
        ("breaks", False, ["begin", "before breaks", "after breaks", "verify", "failed breaks"]),
    ],
)
def test_watchers_hear_how_a_pass_ends(passes: str, refuses: bool, events: list[str]) -> None:
    """Every watcher of several does, also of a pass that fails, of a check that refuses, and of a module that does not verify."""
    module = parse(
        "func.func @main() -> tensor<3xf32> { %x = ln.input : tensor<3xf32> func.return %x : tensor<3xf32> }"
    )
    own = {"raises": Raises, "breaks": Breaks}
    made = [own[passes]()] if passes in own else parse_pipeline(passes)
    watchers = [Heard(refuses), Heard()]
    try:
        run_pipeline(make_context(), module, made, watchers)
    except LightNetError:
        assert events[-1].startswith("failed")
    else:
        assert events[-1] == "end"
    assert watchers[0].events == events
    assert watchers[1].events == [e for e in events if not (refuses and e.startswith("after"))]


class Rewrote(Instrumentation):
    """What a watcher hears of rewrites, where it wants what it says."""

    def __init__(self, **wants: bool):
        vars(self).update(wants)
        self.heard: list[Rewrite] = []

    def rewrote(self, rewrite: Rewrite) -> None:
        self.heard.append(rewrite)


EQUAL_AND_UNUSED = """func.func @main() -> (tensor<3xf32>, tensor<3xf32>) {
  %x = ln.input : tensor<3xf32> as ("x")
  %a = ln.relu %x : tensor<3xf32> as ("a")
  %b = ln.relu %x : tensor<3xf32> as ("b")
  %c, %d = cpu.kernel(%k = %b) {
    %0 = ln.sigmoid %k : tensor<3xf32>
    %1 = ln.tanh %k : tensor<3xf32>
    ln.yield %0, %1
  } as ("c", "d")
  func.return %a, %c : tensor<3xf32>, tensor<3xf32>
}"""


def test_watchers_hear_of_rewrites_where_they_want_to() -> None:
    """With texts if one of them wants these: an op is its line, a value its name."""

    def heard(*wants: dict[str, bool]) -> list[list[Rewrite]]:
        watchers = [Rewrote(**each) for each in wants]
        run_pipeline(make_context(), parse(EQUAL_AND_UNUSED), parse_pipeline("ln-cse,ln-dce"), watchers)
        return [watcher.heard for watcher in watchers]

    assert heard({}) == heard({"wants_text": True}) == [[]]
    (bare,) = heard({"wants_rewrites": True})
    silent, texts, also = heard({}, {"wants_rewrites": True, "wants_text": True}, {"wants_rewrites": True})
    assert silent == [] and texts == also
    assert bare == [replace(rewrite, before=(), after=()) for rewrite in texts]
    assert [(r.number, r.pass_name, r.pattern) for r in texts] == [
        (1, "ln-cse", "equal"),
        (2, "ln-dce", "unused-results"),
        (3, "ln-dce", "dead-code"),
    ]
    equal, results, dead = texts
    assert equal.before == (
        '%b = ln.relu %x : tensor<3xf32> as ("b")',
        '%a = ln.relu %x : tensor<3xf32> as ("a")',
    )
    assert equal.after == ("%a",)
    assert [line.partition(" {")[0] for line in (*results.before, *results.after)] == [
        "%c, %d = cpu.kernel(%k = %a)",
        "%c = cpu.kernel(%k = %a)",
    ]
    assert len(dead.before) == 1 and "ln.tanh %k" in dead.before[0] and dead.after == ()


@pytest.mark.parametrize(("text", "pipeline", "target", "files"), cases())
def test_texts_of_rewrites_are_lines(text: str, pipeline: str, target: str, files: list[str]) -> None:
    """Whatever rewrites what, each op or value that went or came is one line."""
    watcher = Rewrote(wants_rewrites=True, wants_text=True)
    with plugins.loaded(files):
        run_pipeline(make_context(), parse(text), parse_pipeline(pipeline, {"target": target or "cpu"}), [watcher])
    for rewrite in watcher.heard:
        for line in (*rewrite.before, *rewrite.after):
            assert isinstance(line, str) and line.strip() and "\n" not in line, rewrite


USED = """%x = ln.input : tensor<3xf32> as ("x")
  %c = cpu.kernel(%k = %x) {
    %0 = ln.sigmoid %k : tensor<3xf32>
    ln.yield %0
  } as ("c")"""


@pytest.mark.parametrize(
    ("unused", "change"),
    [
        ("nothing", ("%x", "%x")),
        ("an op", (' as ("x")', ' as ("x")\n  %z = ln.tanh %x : tensor<3xf32> as ("z")')),
        ("an op in a kernel", ("ln.yield", "%1 = ln.tanh %0 : tensor<3xf32>\n    ln.yield")),
        ("an operand of a kernel", ("%k = %x", "%k = %x, %l = %x")),
        ("a source and an operand", ("%k = %x", "%k = %x, %l = %p")),
    ],
)
def test_what_is_unused_goes_and_is_told(unused: str, change: tuple[str, str]) -> None:
    """What runs passes to a fixed point has to know whether anything went."""
    text = USED.replace(*change)
    if "%p" in text:
        text = '%p = ln.param {ran = [-1, 1]} : tensor<3xf32> as ("p")\n  ' + text
    wrap = "func.func @main() -> tensor<3xf32> {{\n  {}\n  func.return %c : tensor<3xf32>\n}}".format
    module = parse(wrap(text))
    (block,) = graphs(module)
    assert remove_dead(block) is (unused != "nothing")
    assert str(module) == str(parse(wrap(USED)))
    assert remove_dead(block) is False


@pytest.mark.parametrize(
    "text", [pytest.param(*case.values[:1], id=case.id) for case in cases() if "ln-dce" in case.id]
)
def test_removals_are_told_where_there_are_any(text: str) -> None:
    module = parse(text)
    for block in graphs(module):
        for _ in range(3):
            before = str(module)
            assert remove_dead(block) is (str(module) != before)
