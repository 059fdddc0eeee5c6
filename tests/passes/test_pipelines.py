"""Pipelines and levels as values: names and what is changed in them, what each level promises, passes that find nothing, and what is switched off."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, ModuleOp
from xdsl.passes import ModulePass

import lightnet
from lightnet.cli import lightnet as lightnet_cli
from lightnet.cli import ln_opt
from lightnet.diagnostics import LightNetError, PipelineWarning
from lightnet.ir import registry
from lightnet.ir.context import make_context
from lightnet.ir.kernel import KernelOp
from lightnet.ir.module import main_of
from lightnet.ir.names import PLACES
from lightnet.ir.parser import parse_mlir
from lightnet.ir.passes import Instrumentation, LnPass, parse_pipeline, run_pipeline
from lightnet.ir.place import PlaceAttr
from lightnet.ir.registry import PASSES, TARGETS
from lightnet.ir.rewrites import disabling
from lightnet.ir.target import get_target
from lightnet.passes import pipelines
from lightnet.passes.levels import (
    GRAPH_LEVEL,
    KERNEL_LEVEL,
    LEVELS,
    LOOP_LEVEL,
    PLAN_LEVEL,
    Level,
    NothingToDo,
    level_of,
    verify_level,
)

EXAMPLES = Path(__file__).parents[2] / "examples"
CNN = EXAMPLES / "cnn.net"
WHOLE = pipelines.default("cpu").split(",")


def names(text: str, **defaults: str) -> list[str]:
    return [p.name for p in parse_pipeline(text, defaults)]


def without(*gone: str) -> list[str]:
    return [name for name in WHOLE if name not in gone]


# -- names ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text, expected", [
    ("@cpu", WHOLE),
    ("@cpu:loops", WHOLE),
    ("@cpu:plan", WHOLE[:-1]),
    ("@cpu:kernels", WHOLE[:-2]),
    ("@cpu:graph,expand", [*WHOLE[: WHOLE.index("expand")], "expand"]),
    ("@cpu-bands", without("bands")),
    ("@cpu-fold-batchnorm-bands:plan", without("fold-batchnorm", "bands", "lower-cpu")),
    ("@cpu:plan-simplify", without("simplify", "lower-cpu")),
    ("@cpu+after:hoist:ln-dce:kernels-pack", [*without("pack", "plan", "lower-cpu", "schedule")[:13], "ln-dce",
                                             *without("pack", "plan", "lower-cpu")[13:]]),
    ("@cpu+before:simplify:ln-cse:graph", ["bind", "ln-cse", *WHOLE[1 : WHOLE.index("expand")]]),
    ('@cpu:plan+before:plan:choose{set="pool1.lanes=8"}-bands', [*without("bands", "plan", "lower-cpu"), "choose", "plan"]),
    ("dce,@none , cse", ["dce", "bind", "cse"]),
])  # fmt: skip
def test_a_name_and_its_changes(text: str, expected: list[str]) -> None:
    assert names(text) == expected


def test_a_named_pipeline_brings_its_target() -> None:
    assert {p.target for p in parse_pipeline("@cuda") if hasattr(p, "target")} == {"cuda"}
    assert names("@cuda")[-1] == "lower-cuda" and pipelines.target_of(["bind", "dce,@cuda:plan"]) == "cuda"
    assert names("@cpu", plan="upstream") == pipelines.default("cpu", "upstream").split(",")
    assert str(pipelines.pipeline_of("cpu")) == ",".join(WHOLE)


@pytest.mark.parametrize("text, message", [
    ("@cp", "unknown pipeline '@cp'; did you mean @cpu\\?; there are: @cpu, @cuda"),
    ("@", "unknown pipeline '@'; there are: @cpu"),
    ("@cpu:bogus", "unknown level 'bogus'; there are: graph, kernels, plan, loops"),
    ("@cpu-nothing", "pipeline '@cpu' has no pass 'nothing'; there are: bind, simplify"),
    ("@cpu:kernels-plan", "pipeline '@cpu' has no pass 'plan'"),
    ("@cpu+after:nothing:cse", "pipeline '@cpu' has no pass 'nothing'"),
    ("@cpu+behind:plan:cse", "'\\+behind:plan:cse' of '@cpu\\+behind:plan:cse' changes no pipeline: write @NAME:LEVEL"),
    ("@cpu+after:plan:", "changes no pipeline"),
    ("@cpu+after:plan:cs", "unknown pass 'cs'"),
    ("@cpu,@cuda", "pipeline '@cuda' is of target cuda, and the target is cpu"),
])  # fmt: skip
def test_a_wrong_name_says_what_there_is(text: str, message: str) -> None:
    with pytest.raises(LightNetError, match=message):
        parse_pipeline(text)


@pytest.fixture
def own_target() -> Iterator[str]:
    """A target like cpu that puts a pass into its pipeline."""
    restore = registry.checkpoint()
    target = replace(get_target("cpu"), name="own", pipeline=lambda default: default.after("combine", "defuse"))
    registry.TARGETS.add("own", target)
    yield "own"
    restore()


def test_a_target_brings_its_own(own_target: str) -> None:
    assert names("@own:kernels")[11:14] == ["combine", "defuse", "layout"]
    ran = [p.name for p in lightnet.compile(CNN, own_target)._compilation.passes]
    assert ran == names("@own") and "defuse" not in names("@cpu")


# -- levels --------------------------------------------------------------------------------------------------------------


def test_every_pass_of_ours_says_its_level() -> None:
    """And each of a level's passes works at it or below."""
    for name in PASSES:
        if PASSES.where(name).startswith("lightnet."):
            assert PASSES.get(name).level in {level.name for level in LEVELS}, name
    for target in TARGETS:
        for stage in pipelines.pipeline_of(target).stages:
            levels = [
                next(x for x in LEVELS if x.name == PASSES.get(p).level)
                for p in map(pipelines.pass_name_of, stage.passes)
            ]
            assert all(level.number <= stage.level.number for level in levels)


def test_pages_call_levels_by_the_names_that_pipelines_take() -> None:
    """``@cpu:kernels`` for what a page calls level 2."""
    docs, names = Path(lightnet.__file__).parents[1] / "docs", [level.name for level in LEVELS]
    rows = re.findall(r"^\| (\d) (\w+) \|", (docs / "design.md").read_text(), re.MULTILINE)
    assert rows == [*((str(level.number), level.name) for level in LEVELS), ("5", "code")]
    assert f"executes: {', '.join(names)}, code |" in (docs / "vocabulary.md").read_text()


class Levels(Instrumentation):
    """The level after each pass."""

    def __init__(self) -> None:
        self.found: list[tuple[str, Level | None]] = []

    def after_pass(self, pass_: ModulePass, module: ModuleOp) -> None:
        self.found.append((pass_.name, level_of(module)))


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("plan", ["default", "upstream"])
def test_a_pipeline_climbs_the_levels_and_holds_them(target: str, plan: str) -> None:
    module, seen, options = lightnet.load(CNN).module.clone(), Levels(), {"plan": plan}
    run_pipeline(make_context(), module, parse_pipeline(f"@{target}", options), [seen], verify_each=True)
    made = {"expand": KERNEL_LEVEL, "plan": PLAN_LEVEL, f"lower-{target}": LOOP_LEVEL}
    assert [level for name, level in seen.found if name in made] == list(made.values())
    numbers = [level.number for _, level in seen.found]
    assert seen.found[0] == ("bind", GRAPH_LEVEL) and numbers == sorted(numbers)


HEAD = "module attributes {ln.memory = {arena = 1024 : i64}} {" + "\n"
BROKEN = {
    "level.place": """func.func @main() -> tensor<1x4xf32> {
      %x = ln.input : tensor<1x4xf32> at arena+0 as "create0"("x")
      func.return %x : tensor<1x4xf32>
    }""",
    "level.layout": """func.func @main() -> tensor<1x16x4x4xf32> {
      %x = ln.input : tensor<1x16x4x4xf32> as "create0"("x")
      %b = cpu.kernel(%a = %x) {
        %c = ln.forward %a : tensor<1x16x4x4xf32, #ln.layout<"c16">> as "f"("b")
        ln.yield %c
      } as ("b")
      %y = ln.relu %b : tensor<1x16x4x4xf32, #ln.layout<"c16">> as "relu0"("y")
      %z = ln.forward %y : tensor<1x16x4x4xf32> as "g"("z")
      func.return %z : tensor<1x16x4x4xf32>
    }""",
    "level.target": """func.func @main() -> tensor<1x4xf32> {
      %x = ln.input : tensor<1x4xf32> as "create0"("x")
      %a = dpu.kernel(%i = %x) {
        %r = ln.relu %i : tensor<1x4xf32> as "relu0"("a")
        ln.yield %r
      } as ("a")
      %b = cuda.kernel(%j = %a) {
        %s = ln.exp %j : tensor<1x4xf32> as "exp0"("b")
        ln.yield %s
      } as ("b")
      func.return %b : tensor<1x4xf32>
    }""",
    "check-plan.overlap": HEAD + """func.func @main() -> tensor<1x4xf32> {
      %x = ln.input : tensor<1x4xf32> at arena+0 as "create0"("x")
      %y = ln.exp %x : tensor<1x4xf32> at arena+64 as "exp0"("y")
      %z = ln.exp %x : tensor<1x4xf32> at arena+68 as "exp1"("z")
      %s = ln.add %y, %z : tensor<1x4xf32> at arena+128 as "add0"("s")
      func.return %s : tensor<1x4xf32>
    }
    }""",
    "level.launch": HEAD + """func.func @main() {
      tile.launch @gone grid 1 [arena+0]
      func.return
    }
    }""",
    "level.memory": HEAD + """func.func @k(%lo: index, %hi: index, %x: memref<4xf32>) { func.return }
    func.func @main() {
      tile.launch @k grid 1 [arena+1008]
      tile.launch @k grid 1 [arena+1012]
      func.return
    }
    }""",
    "level.line": HEAD + """func.func @k(%lo: index, %hi: index, %x: memref<4xf32>) { func.return }
    func.func @main() {
      tile.launch @k grid 1 [arena+0]
      %c = arith.constant 1 : index
      func.return
    }
    }""",
}  # fmt: skip


@pytest.mark.parametrize("label", BROKEN)
def test_what_a_level_promises_is_checked_on_reading(
    label: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The ops verify one by one; what is wrong shows in the module alone, whoever reads it."""
    file = tmp_path / "broken.mlir"
    file.write_text(BROKEN[label])
    parse_mlir(make_context(), BROKEN[label]).verify()
    assert ln_opt.main([str(file), "--pass=dce"]) == 1
    error = capsys.readouterr().err
    assert f"[{label}]" in error and "broken.mlir:" in error and "Traceback" not in error
    with pytest.raises(LightNetError) as caught:
        lightnet.load(file)
    assert caught.value.label == label


def test_every_line_of_a_launch_list_is_on_bytes_that_there_are(tmp_path: Path) -> None:
    file, lines = tmp_path / "broken.mlir", ("tile.copy 64 [arena+0, arena+%d]", "tile.copy 64 [arena+%d, arena+0]")
    for line in lines:
        for at, inside in ((960, True), (964, False)):
            file.write_text(HEAD + f"func.func @main() {{\n {line % at}\n func.return\n }} }}")
            assert (ln_opt.main([str(file), "--pass=dce", "-o", "-"]) == 0) == inside


@dataclass(frozen=True)
class Misplace(LnPass):
    """Gives a value a place, and the module no memory."""

    name = "misplace"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for kernel in main_of(op).body.block.ops:
            if isinstance(kernel, KernelOp):
                kernel.attributes[PLACES] = ArrayAttr([PlaceAttr("arena", 0)])


def test_verify_each_names_the_pass_that_breaks_a_level() -> None:
    module = lightnet.load(CNN).module.clone()
    passes = [*parse_pipeline("@cpu:kernels"), Misplace(), *parse_pipeline("schedule")]
    with pytest.raises(LightNetError, match="has a place, and the module has no memory") as caught:
        run_pipeline(make_context(), module, passes, verify_each=True)
    assert any("pass 'misplace' made it" in note for _, note in caught.value.notes)
    verify_level(lightnet.load(CNN).module)


# -- passes that find nothing ----------------------------------------------------------------------------------------------


def said(text: str, net: Path = CNN) -> list[str]:
    """What a pipeline warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run_pipeline(make_context(), lightnet.load(net).module.clone(), parse_pipeline(text), [NothingToDo()])
    return [str(w.message) for w in caught if issubclass(w.category, PipelineWarning)]


@pytest.mark.parametrize("text, expected", [
    ("combine,expand", ["pass 'combine' finds nothing to do: it is for level 2, kernels, and the module is at level 1, a graph of ops; "
                        "the pass 'expand' makes that"]),
    ("@cpu,combine,dce", ["pass 'combine' finds nothing to do: it is for level 2, kernels, and the module is at level 4, loops, and a "
                          "list of launches"]),
    ("bind,layout,choose", ["pass 'layout'", "pass 'choose'"]),
    ("expand,combine,choose,plan,combine", []),
])  # fmt: skip
def test_a_pass_that_finds_nothing_says_so(text: str, expected: list[str]) -> None:
    found = said(text)
    assert len(found) == len(expected) and all(a.startswith(b) for a, b in zip(found, expected))


@pytest.mark.parametrize("target", [name for name in TARGETS if get_target(name).lowering or name == "none"])
def test_no_shipped_pipeline_warns(target: str) -> None:
    assert said(f"@{target}") == said(f"@{target}", EXAMPLES / "example.net") == []


# -- what is switched off ----------------------------------------------------------------------------------------------------


def kernels_of(module: ModuleOp) -> list[str]:
    return ["+".join(o.optype for o in op.ops) for op in main_of(module).body.block.ops if isinstance(op, KernelOp)]


def planned(**options: object) -> list[str]:
    return kernels_of(lightnet.compile(CNN, **options).planned)  # type: ignore[arg-type]


def test_passes_and_patterns_are_switched_off_by_name() -> None:
    whole = planned()
    assert "conv2d+relu" in whole
    assert planned(disable=["combine"]) == planned(disable=["merge-kernels"]) == planned(pipeline="@cpu-combine")
    assert lightnet.compile(CNN, disable=["lower-cpu"]).loops is None, (
        "it runs in the interpreter, as one that is planned only"
    )
    assert "conv2d+relu" not in planned(disable=["combine"]) and planned() == whole, "it holds for one compilation"


def test_a_pattern_of_a_greedy_pass_is_switched_off() -> None:
    text = """func.func @main() -> tensor<1x4xf32> {
      %x = ln.input : tensor<1x4xf32> as "create0"("x")
      %a = ln.relu %x : tensor<1x4xf32> as "relu0"("a")
      %b = ln.relu %a : tensor<1x4xf32> as "relu1"("b")
      func.return %b : tensor<1x4xf32>
    }"""

    class Patterns(Instrumentation):
        wants_rewrites = True

        def rewrote(self, rewrite: object) -> None:
            found.append(rewrite.pattern)  # type: ignore[attr-defined]

    def run(*off: str) -> set[str]:
        found.clear()
        with disabling(off) as disabled:
            run_pipeline(make_context(), parse_mlir(make_context(), text), parse_pipeline("simplify"), [Patterns()])
        unknown.append(disabled.unknown)
        return set(found)

    found: list[str] = []
    unknown: list[list[str]] = []
    first = run()
    assert first
    for pattern in first:
        assert pattern not in run(pattern) and unknown[-1] == []
    assert run("nothing-is-called-so") == first and unknown[-1] == ["nothing-is-called-so"]


def test_what_a_pass_needs_stays_on() -> None:
    with pytest.raises(
        LightNetError, match="'wrap-in-kernel' cannot be switched off: pass 'expand' cannot do without it"
    ):
        lightnet.compile(CNN, disable=["wrap-in-kernel"])


def test_a_name_that_nothing_has_is_said() -> None:
    with pytest.warns(PipelineWarning, match="nothing is switched off by 'bogus'"):
        lightnet.compile(CNN, disable=["bogus"])


# -- tools -------------------------------------------------------------------------------------------------------------------


def test_tools_take_them(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "out.mlir"
    assert ln_opt.main([str(CNN), "--pass=@cuda:plan", "--disable=bands,layout", "-o", str(out)]) == 0
    assert "cuda.kernel" in out.read_text() and "nhwc" not in out.read_text()
    assert ln_opt.main([str(CNN), "--pass=@cuda", "-t", "cpu"]) == 1
    assert "is of target cuda, and the target is cpu" in capsys.readouterr().err
    run = ["run", str(CNN), "-i", "random"]
    assert (
        lightnet_cli.main(
            [*run, "--pass=@cpu-bands+after:hoist:ln-dce", "--disable=schedule", "--compare", "interpreter"]
        )
        == 0
    )
    assert lightnet_cli.main([*run, "--pass=@cpu:bogus"]) == 1
    assert "unknown level 'bogus'" in capsys.readouterr().err


def test_a_pipeline_may_stop_before_the_loops() -> None:
    """Its network runs in the interpreter, as any that is not lowered."""
    whole, stopped = lightnet.compile(CNN), lightnet.compile(CNN, pipeline="@cpu:plan")
    picture = {"picture": np.random.default_rng(0).uniform(-1, 1, (1, 3, 32, 32)).astype(np.float32)}
    (a,), (b,) = whole(picture).values(), stopped(picture).values()
    assert abs(a - b).max() <= 1e-5 and stopped.loops is None


def test_a_recipe_keeps_what_is_switched_off(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = tmp_path / "found.mlir"
    options = [
        "--load",
        str(EXAMPLES / "wrong_rewrite.py"),
        "--check",
        "--reproducer",
        str(found),
        "--disable=ln-cse,cse",
    ]
    assert ln_opt.main([str(CNN), "--pass=bind,simplify,expand", *options]) == 1
    assert "disable" in found.read_text() and "ln-cse,cse" in found.read_text()
    assert "changed the result" in capsys.readouterr().err
