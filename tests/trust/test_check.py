"""`--check`: what keeps a module's results passes, what changes them is found, and blamed on the right pass, pattern and op.

The wrong passes here are wrong on purpose; whether values are equal is asked of NumPy.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from network_cases import random_model
from xdsl.context import Context
from xdsl.dialects import arith
from xdsl.dialects.builtin import ArrayAttr, ModuleOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from lightnet.backends.interpreter.arena import POISON
from lightnet.cli import ln_opt
from lightnet.dialects.ln.arith import Add, Mul
from lightnet.dialects.ln.effect import Print
from lightnet.dialects.ln.elementwise import Relu
from lightnet.dialects.ln.source import Input
from lightnet.dialects.ln.unary import Neg
from lightnet.ir.context import make_context
from lightnet.ir.module import main_of
from lightnet.ir.names import PLACES
from lightnet.ir.parser import parse_mlir
from lightnet.ir.passes import LnPass, parse_pipeline, rewrite_greedily
from lightnet.ir.types import TensorSpec, tensor_type
from lightnet.passes.lower_cpu import LowerCpuPass
from lightnet.passes.plan import PlanPass
from lightnet.runtime.dtypes import BY_NAME
from lightnet.runtime.weights import open_weights
from lightnet_trust import record
from lightnet_trust.check import (
    Baseline,
    CheckOptions,
    NotExecutableError,
    PipelineVerdict,
    compare_modules,
    run_checked,
)
from lightnet_trust.compare import mismatch, says_nothing, tolerance
from lightnet_trust.data import KINDS, draw
from lightnet_trust.evaluation import RememberingEvaluator
from lightnet_trust.level4 import _written_wrong

ROOT = Path(__file__).parents[2]

#: Four ops in a row; the third is the only relu named "r2".
CHAIN = """\
func.func @main() -> tensor<2x3xf32> {
  %x = ln.input : tensor<2x3xf32> as ("x")
  %a = ln.relu %x : tensor<2x3xf32> as "r1"("a")
  %b = ln.neg %a : tensor<2x3xf32> as "n1"("b")
  %c = ln.relu %x : tensor<2x3xf32> as "r2"("c")
  %y = ln.elew %b, %c {elew_op = "TL_SUB"} : tensor<2x3xf32> as "e"("y")
  func.return %y : tensor<2x3xf32>
}
"""


def parsed(text: str) -> tuple[Context, ModuleOp]:
    ctx = make_context()
    return ctx, parse_mlir(ctx, text, "f.mlir")


@dataclasses.dataclass(frozen=True)
class Patterns(LnPass):
    """Applies patterns greedily."""

    name = "patterns"
    classes: tuple[type[RewritePattern], ...] = ()

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        rewrite_greedily(op, [cls() for cls in self.classes])


@dataclasses.dataclass(frozen=True)
class Does(LnPass):
    """Does one thing to a module."""

    name = "does"
    what: Callable[[ModuleOp], None] = print

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        self.what(op)


def checked(text: str, *passes: ModulePass | str, **options) -> PipelineVerdict:
    ctx, module = parsed(text)
    each = options.pop("each_rewrite", False)
    every = [p for q in passes for p in (parse_pipeline(q) if isinstance(q, str) else [q])]
    return run_checked(ctx, module, every, CheckOptions(**options), each_rewrite=each)


def ops(module: ModuleOp, name: str) -> list[Operation]:
    return [op for op in module.walk() if op.name == name]


class NegateTwice(RewritePattern):
    # relu(x) = -(-relu(x)): right, and it ends, as the new ops have other names
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if isinstance(op, Relu) and op.op_name is not None and op.op_name.startswith("r"):
            inner = Relu.make([op.src], name="done")
            first = Neg.make([inner.results[0]])
            rewriter.replace(op, [inner, first, Neg.make([first.results[0]], name="done")])


class DropRelu(RewritePattern):
    # relu(x) = x, for r2: wrong where x is negative
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if isinstance(op, Relu) and op.op_name == "r2":
            rewriter.replace(op, Neg.make([Neg.make([op.src]).results[0]]) and _double_negation(op))


def _double_negation(op: Relu) -> list[Operation]:
    first = Neg.make([op.src])
    return [first, Neg.make([first.results[0]])]


# -- right passes ----------------------------------------------------------------------------------------------------


def test_right_passes_pass() -> None:
    verdict = checked(CHAIN, "simplify,expand,combine,choose,schedule,plan,lower-cpu")
    assert verdict.ok and verdict.compared > 20
    assert verdict.notes == ["lower-cpu: 1 of 1 kernel functions are executed, 0 of them on some blocks only"]


def test_rounding_may_change_where_no_pass_promises_more() -> None:
    text = CHAIN.replace('%y = ln.elew %b, %c {elew_op = "TL_SUB"}', "%y = ln.sigmoid %c")

    class Perturb(RewritePattern):
        # one rounding: x * (1 + 2^-23)
        def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
            if op.name == "ln.sigmoid" and not op.results[0].has_one_use():
                return
            if op.name == "ln.sigmoid" and op.op_name == "e":
                one = ops_of(
                    '%k = ln.input {data = [1.0000001, 1.0000001, 1.0000001, 1.0000001, 1.0000001, 1.0000001]} : tensor<2x3xf32> as ("k")'
                )
                same = type(op).make([op.operands[0]])
                rewriter.replace(op, [one, same, Mul.make([same.results[0], one.results[0]])])

    assert checked(text, Patterns((Perturb,))).ok
    verdict = checked(text, Patterns((Perturb,)), exact=True)
    assert verdict.pattern == "Perturb"


def ops_of(line: str) -> Operation:
    _, module = parsed(f"func.func @main() {{\n {line}\n func.return\n}}")
    op = next(iter(main_of(module).body.block.ops))
    op.detach()
    return op


PIPELINES = (
    "bind,simplify,fold-batchnorm,simplify,hoist,expand,subgraph,hoist,combine,layout,choose,schedule,plan",
    "bind,expand,choose,schedule,plan,lower-cpu",
)
FUZZ = int(os.environ.get("LIGHTNET_FUZZ", "0")) * 25


@pytest.mark.sampled(every=3, share=0.2)
@pytest.mark.parametrize("seed", range(2000, 2000 + (FUZZ or 6)))
def test_our_passes_pass_on_random_networks(seed: int) -> None:
    for pipeline in PIPELINES:
        verdict = checked(str(random_model(seed).module.clone()), pipeline, seed=seed, data=KINDS)
        assert verdict.ok, verdict.error and verdict.error.render()
        assert not any("nothing" in note for note in verdict.notes)


def test_rank_0_and_empty_tensors() -> None:
    text = """\
func.func @main() -> (tensor<f32>, tensor<0x3xf32>) {
  %x = ln.input : tensor<f32> as ("x")
  %e = ln.input : tensor<0x3xf32> as ("e")
  %y = ln.relu %x : tensor<f32> as "r"("y")
  %z = ln.neg %e : tensor<0x3xf32> as "n"("z")
  func.return %y, %z : tensor<f32>, tensor<0x3xf32>
}
"""
    assert checked(text, "bind,simplify,expand,combine,plan,lower-cpu", data=KINDS).ok


# -- blame -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("each_rewrite", [False, True])
def test_the_pattern_the_op_and_the_values_are_named(each_rewrite: bool) -> None:
    verdict = checked(CHAIN, "bind", Patterns((DropRelu, NegateTwice)), "expand", each_rewrite=each_rewrite)
    assert (verdict.pass_name, verdict.pattern) == ("patterns", "DropRelu")
    assert verdict.rewrite is not None and verdict.rewrite.root == 'ln.relu "r2"'
    assert verdict.error is not None and verdict.error.loc is not None and verdict.error.loc.line == 5
    text = verdict.error.render()
    assert "f.mlir:5:8: error: pattern 'DropRelu' of pass 'patterns' changed the result: 'c'[" in text
    assert "before: %c = ln.relu %x" in text and "after:  %c = ln.neg" in text
    assert verdict.difference is not None and verdict.difference.kind == "value"
    found = verdict.difference.mismatch
    assert found is not None and float(found.before) == 0 and float(found.after) < 0


@pytest.mark.parametrize("wrong", [0, 1, 6, 11])
def test_bisection_finds_the_one_wrong_rewrite_of_many(wrong: int) -> None:
    lines = [f'  %y{i} = ln.relu %x : tensor<2x3xf32> as "r{i}"("y{i}")' for i in range(12)]
    names = ", ".join(f"%y{i}" for i in range(12))
    types = ", ".join(["tensor<2x3xf32>"] * 12)
    text = "\n".join(
        [
            f"func.func @main() -> ({types}) {{",
            '  %x = ln.input : tensor<2x3xf32> as ("x")',
            *lines,
            f"  func.return {names} : {types}",
            "}",
        ]
    )

    class OneIsWrong(RewritePattern):
        def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
            if isinstance(op, Relu) and (op.op_name or "").startswith("r"):
                right = Relu.make([op.src], name="done")
                rewriter.replace(op, [right] if op.op_name != f"r{wrong}" else _double_negation(op))

    verdict = checked(text, Patterns((OneIsWrong,)))
    assert verdict.rewrite is not None and verdict.rewrite.root == f'ln.relu "r{wrong}"'
    assert verdict.difference is not None and verdict.difference.tensor == f"y{wrong}"


def test_a_pass_without_rewrites_is_named() -> None:
    def swap(module: ModuleOp) -> None:
        (op,) = ops(module, "ln.elew")
        op.operands = list(reversed(op.operands))

    verdict = checked(CHAIN, Does(swap))
    assert (verdict.pass_name, verdict.rewrite) == ("does", None)
    assert verdict.error is not None and "'y'[" in verdict.error.message and verdict.error.loc.line == 6
    assert any("in one step" in text for _, text in verdict.error.notes)


def test_what_a_pass_does_after_its_rewrites_is_told_apart() -> None:
    @dataclasses.dataclass(frozen=True)
    class Later(LnPass):
        name = "later"

        def apply(self, ctx: Context, op: ModuleOp) -> None:
            rewrite_greedily(op, [NegateTwice()])
            (elew,) = ops(op, "ln.elew")
            elew.operands = list(reversed(elew.operands))

    verdict = checked(CHAIN, Later())
    assert verdict.rewrite is None and verdict.error is not None
    assert any("after its 2 rewrites, which are right" in text for _, text in verdict.error.notes)


# -- every kind of difference ------------------------------------------------------------------------------------------


def returned(module: ModuleOp):
    return main_of(module).body.block.last_op


def _rename(module: ModuleOp) -> None:
    op = ops(module, "ln.elew")[0]
    op.attributes["ln.tensors"] = ArrayAttr([type(op.attributes["ln.tensors"].data[0])("z")])


def _return_nothing(module: ModuleOp) -> None:
    returned(module).operands = []
    main_of(module).update_function_type()


def _retype_input(module: ModuleOp) -> None:
    x = ops(module, "ln.input")[0]
    flat = Input.make([], {"dtype": "TL_FLOAT", "dims": (6,)}, tensors=["x"])
    from lightnet.dialects.ln.move import Reshape

    shaped = Reshape.make([flat.results[0]], {"dims": (2, 3)})
    main_of(module).body.block.insert_ops_before([flat, shaped], x)
    x.results[0].replace_all_uses_with(shaped.results[0])
    x.detach()


def _unverified(module: ModuleOp) -> None:
    ops(module, "ln.elew")[0].operands = []


def _print(module: ModuleOp) -> None:
    main_of(module).body.block.insert_op_before(
        Print.make([ops(module, "ln.neg")[0].results[0]], {"msg": "b"}), returned(module)
    )


def _unprint(module: ModuleOp) -> None:
    ops(module, "ln.print")[0].detach()


WITH_PRINT = CHAIN.replace("  func.return", '  ln.print %a {msg = "a"}\n  func.return')


@pytest.mark.parametrize(
    ("what", "kind", "message"),
    [
        (_rename, "interface", "output 0 was 'y' before and is 'z' after"),
        (_return_nothing, "interface", "there were 1 outputs before, and are 0 after"),
        (_retype_input, "interface", "'x', which can be fed, was tensor<2x3xf32> before and is tensor<6xf32> after"),
        (_unverified, "fails", "does not verify"),
        (_print, "effect", "print of 'b' did not happen before"),
        (_unprint, "effect", "print of 'a' does not happen any more"),
    ],
)  # fmt: skip
def test_difference(what: Callable[[ModuleOp], None], kind: str, message: str) -> None:
    verdict = checked(WITH_PRINT if what is _unprint else CHAIN, Does(what))
    assert verdict.difference is not None and verdict.difference.kind == kind
    assert message in verdict.difference.what


@dataclasses.dataclass(frozen=True)
class BadPlan(LnPass):
    """Puts the second of two live values where the first one is."""

    name = "bad-plan"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        PlanPass().apply(ctx, op)
        first, second = ops(op, "ln.neg")[0], ops(op, "ln.relu")[1]
        second.attributes[PLACES] = first.attributes[PLACES]


def test_memory_that_is_needed_and_overwritten() -> None:
    verdict = checked(CHAIN, BadPlan())
    assert verdict.difference is not None and verdict.difference.kind == "memory"
    assert "the memory of 'b' is overwritten before ln.elew \"e\" reads it" in verdict.difference.what


def test_memory_of_an_output_that_is_overwritten() -> None:
    """What nobody reads any more is read once again, by the caller."""

    two = CHAIN.replace("-> tensor<2x3xf32>", "-> (tensor<2x3xf32>, tensor<2x3xf32>)")
    two = re.sub("  %y.*\n", "", two).replace("%y : tensor<2x3xf32>", "%b, %c : tensor<2x3xf32>, tensor<2x3xf32>")
    assert checked(two, PlanPass()).ok
    verdict = checked(two, BadPlan())
    assert verdict.difference is not None and verdict.difference.kind == "memory"
    assert verdict.difference.what.startswith("the memory of 'b' is overwritten before the end: b[")


@pytest.mark.parametrize("level", [2, 3])
@pytest.mark.parametrize(("named", "called"), [(True, "output 'y'["), (False, "output 0[")])
def test_outputs_are_compared_where_no_tensor_is_kept(
    named: bool, called: str, level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outputs are kept in any case: they show what became of tensors of no name, or of too many bytes."""

    @dataclasses.dataclass(frozen=True)
    class Swap(LnPass):
        name = "swap"

        def apply(self, ctx: Context, op: ModuleOp) -> None:
            (elew,) = ops(op, "ln.elew")
            elew.operands = list(reversed(elew.operands))
            if level == 3:
                PlanPass().apply(ctx, op)

    monkeypatch.setattr(record, "TRACE_BUDGET", 0)
    text = CHAIN if named else CHAIN.replace(' as "e"("y")', "")
    verdict = checked(text, Swap())
    assert verdict.difference is not None and verdict.difference.kind == "value"
    assert verdict.difference.what.startswith(called)
    assert verdict.difference.tensor == ("y" if named else None)


@pytest.mark.parametrize("what", ["op", "place"])
def test_level_4_is_executed_beside_level_3(what: str) -> None:
    @dataclasses.dataclass(frozen=True)
    class BadLowering(LnPass):
        name = "bad-lowering"

        def apply(self, ctx: Context, op: ModuleOp) -> None:
            LowerCpuPass().apply(ctx, op)
            if what == "place":
                for launch in ops(op, "tile.launch"):
                    launch.properties["args"] = ArrayAttr([launch.args.data[0]] * len(launch.args.data))
            for old in ops(op, "arith.subf") if what == "op" else ():
                new = arith.AddfOp(*old.operands)
                old.parent.insert_op_before(new, old)
                old.results[0].replace_all_uses_with(new.results[0])
                old.detach()

    verdict = checked(CHAIN, "expand,plan", BadLowering())
    assert verdict.pass_name == "bad-lowering" and verdict.difference is not None
    assert verdict.difference.kind == "value" and "@" in verdict.difference.what


@pytest.mark.parametrize("what", ["dropped", "elsewhere"])
def test_copies_of_level_4(what: str) -> None:
    text = """\
func.func @main() -> tensor<4x3xf32> {
  %x = ln.input : tensor<2x3xf32> as ("x")
  %y = ln.concat %x, %x {axis = 0} : tensor<4x3xf32> as "c"("y")
  func.return %y : tensor<4x3xf32>
}
"""

    @dataclasses.dataclass(frozen=True)
    class BadLowering(LnPass):
        name = "bad-lowering"

        def apply(self, ctx: Context, op: ModuleOp) -> None:
            LowerCpuPass().apply(ctx, op)
            for launch in ops(op, "tile.launch"):
                if what == "dropped":
                    launch.detach()
                else:
                    source, _ = launch.args.data
                    launch.properties["args"] = ArrayAttr([source, type(source)(source.space.data, 40)])

    assert checked(text, "bind,expand,plan,lower-cpu").ok
    verdict = checked(text, "bind,expand,plan", BadLowering())
    assert verdict.difference is not None
    if what == "dropped":
        assert "no launch gives another value of 'y'" in verdict.difference.what
    else:
        assert "is launched on" in verdict.difference.what and verdict.difference.kind == "memory"


def test_what_cannot_be_executed_is_said() -> None:
    ctx, module = parsed("func.func @other(%a: f32) -> f32 {\n  func.return %a : f32\n}")
    with pytest.raises(NotExecutableError, match="no function @main"):
        Baseline(module)
    verdict = run_checked(ctx, module, parse_pipeline("cse"))
    assert verdict.ok and "nothing is checked" in verdict.notes[0]


def test_an_output_that_proves_nothing_is_said() -> None:
    text = CHAIN.replace('{elew_op = "TL_SUB"}', '{elew_op = "TL_SUB"}').replace("%b, %c", "%c, %c")
    verdict = checked(text, "ln-dce")
    assert verdict.ok and verdict.notes == ["output 'y' is constant on all data: its equality proves little"]
    # what depends on no data is as it is
    fixed = 'func.func @main() -> tensor<3xf32> {\n %y = ln.zeros : tensor<3xf32> as ("y")\n func.return %y : tensor<3xf32>\n}'
    assert checked(fixed, "ln-dce").notes == []


def test_an_upstream_plan_may_overwrite_outputs_that_nobody_reads() -> None:
    assert checked(CHAIN, "bind,expand,plan{plan=upstream}").ok


# -- data ------------------------------------------------------------------------------------------------------------

LAYERS = """\
func.func @main() -> tensor<1x4x8x8xf32> {
  %x = ln.create : tensor<1x3x8x8xf32> as ("x")
  %w = ln.create {from_file = true, ran = [-10, 10]} : tensor<4x3x3x3xf32> as ("w")
  %b = ln.create {from_file = true} : tensor<4xf32> as ("b")
  %c = ln.conv2d %x, %w, %b {size = [3, 3], padding = [1, 1, 1, 1]} : tensor<1x4x8x8xf32> as "conv"("c")
  %s = ln.create {from_file = true} : tensor<4xf32> as ("s")
  %o = ln.create {data = [1, 2, 3, 4]} : tensor<4xf32> as ("o")
  %m = ln.create {from_file = true} : tensor<4xf32> as ("m")
  %v = ln.create {from_file = true} : tensor<4xf32> as ("v")
  %y = ln.batchnorm %c, %s, %o, %m, %v {epsilon = 0.00001} : tensor<1x4x8x8xf32> as "norm"("y")
  func.return %y : tensor<1x4x8x8xf32>
}
"""


@pytest.mark.parametrize("kind", KINDS)
def test_data_fits_its_operands(kind: str) -> None:
    _, module = parsed(LAYERS)
    data = draw(module, kind, 0, RememberingEvaluator()).contents
    assert (data["v"] > 0).all()
    assert np.isfinite(data["w"]).all() and 1e-4 < np.abs(data["w"]).max() < 10
    assert np.isfinite(data["x"]).all() == (kind != "nonfinite")
    literal = np.array([1, 2, 3, 4], np.float32)
    if kind == "awkward":  # anybody may feed what a literal says
        assert (data["o"] > literal).all() and (data["x"] == 0).any() and (data["s"] < 0).any()
    else:
        np.testing.assert_array_equal(data["o"], literal)


def test_literal_contents_are_fed_a_little_larger() -> None:
    """Floats, of the awkward kind: of the same sign, by a half at most, each by its own share; 0 and integers stay."""
    numbers = [-3.0, 0.0, 1e-3, *np.linspace(-2, 2, 65).tolist(), 1048576.0]
    sources = f'%a = ln.input {{data = {numbers}, ran = [0, 0]}} : tensor<{len(numbers)}xf32> as ("a")\n'
    sources += '%i = ln.input {data = [-5, 0, 7, 1000], ran = [0, 0]} : tensor<4xi32> as ("i")\n'
    types = f"tensor<{len(numbers)}xf32>, tensor<4xi32>"
    text = f"func.func @main() -> ({types}) {{\n{sources} func.return %a, %i : {types}\n}}"
    got = draw(parsed(text)[1], "awkward", 0, RememberingEvaluator()).contents
    np.testing.assert_array_equal(got["i"], [-5, 0, 7, 1000])
    own, fed = np.float32(numbers), got["a"]
    assert fed.dtype == own.dtype and (fed[own == 0] == 0).all()
    share = fed[own != 0] / own[own != 0]
    assert (share >= 1).all() and (share <= 1.5).all() and len(np.unique(share.round(3))) > 40 and np.ptp(share) > 0.3


def test_data_belongs_to_names_and_seed() -> None:
    _, module = parsed(LAYERS)
    one, same, other = (draw(module, "ordinary", seed, RememberingEvaluator()).contents for seed in (0, 0, 1))
    assert all((one[k] == same[k]).all() for k in one)
    assert (one["w"] != other["w"]).any() and (one["x"] != other["x"]).any()


def test_data_of_a_name_is_the_same_wherever_it_stands() -> None:
    """And that of two names differs."""

    def drawn(*names: str) -> dict[str, np.ndarray]:
        sources = "\n".join(f'%{n} = ln.input : tensor<9xf32> as ("{n}")' for n in names)
        text = f"func.func @main() -> tensor<9xf32> {{\n{sources}\n %y = ln.sub %a, %b : tensor<9xf32>\n func.return %y : tensor<9xf32>\n}}"
        return draw(parsed(text)[1], "ordinary", 0, RememberingEvaluator()).contents

    one, other = drawn("a", "b"), drawn("b", "c", "a")
    assert (one["a"] != one["b"]).any()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])


def test_data_of_two_names_differs_wherever_they_are_read() -> None:
    lines = "".join(
        f'%{n} = ln.input : tensor<9xf32> as ("{n}")\n%r{n} = ln.relu %{n} : tensor<9xf32> as ("r{n}")\n' for n in "abc"
    )
    text = f"func.func @main() -> (tensor<9xf32>, tensor<9xf32>, tensor<9xf32>) {{\n{lines} func.return %ra, %rb, %rc : tensor<9xf32>, tensor<9xf32>, tensor<9xf32>\n}}"
    contents = draw(parsed(text)[1], "ordinary", 0, RememberingEvaluator()).contents
    assert len({array.tobytes() for array in contents.values()}) == 3


def test_data_of_sources_without_names_differs() -> None:
    text = "func.func @main() -> tensor<9xf32> {\n %a = ln.input : tensor<9xf32>\n %b = ln.input : tensor<9xf32>\n %y = ln.sub %a, %b : tensor<9xf32>\n func.return %y : tensor<9xf32>\n}"
    _, module = parsed(text)
    first, second = draw(module, "ordinary", 0, RememberingEvaluator()).contents.values()
    assert (first != second).any()


def test_stored_weights_are_taken() -> None:
    _, module = parsed(LAYERS)
    store = open_weights({"m": np.full(4, 7, np.float32)})
    assert (draw(module, "ordinary", 0, RememberingEvaluator(), store).contents["m"] == 7).all()


@pytest.mark.parametrize("name", ["epsilon", "padding"])
def test_small_errors_show(name: str) -> None:
    """Forgetting an epsilon of 1e-5 is a difference of 1e-5 on numbers of size 1; on awkward data it is a large one."""

    def change(module: ModuleOp) -> None:
        op = ops(module, "ln.batchnorm" if name == "epsilon" else "ln.conv2d")[0]
        attr = op.properties[name]
        op.properties[name] = type(attr)(1e-12 if name == "epsilon" else (2, 1, 0, 1))

    verdict = checked(LAYERS, Does(change))
    assert verdict.difference is not None and verdict.difference.tensor == ("y" if name == "epsilon" else "c")


# -- comparing -------------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(width=32), min_size=1, max_size=9), st.data())
def test_mismatch_agrees_with_numpy(values: list[float], data: st.DataObject) -> None:
    before = np.array(values, np.float32)
    after = before.copy()
    at = data.draw(st.integers(0, len(values) - 1))
    after[at] = data.draw(st.floats(width=32))
    same = (
        np.array_equal(before, after, equal_nan=True)
        and (np.signbit(before) == np.signbit(after))[~np.isnan(before)].all()
    )
    found = mismatch(before, after, exact=True)
    assert (found is None) == same
    if found is not None:
        assert found.index == (at,) and found.count == 1
    scale = np.abs(before[np.isfinite(before)]).max(initial=0)
    rtol = tolerance(before.dtype)
    close = np.allclose(after.astype("f8"), before.astype("f8"), rtol=rtol, atol=rtol * float(scale), equal_nan=True)
    assert (mismatch(before, after, exact=False) is None) == close


def test_integers_and_bools_are_exact() -> None:
    a = np.array([1, 2, 3], np.int64)
    assert mismatch(a, a.copy(), exact=False) is None
    assert str(mismatch(a, np.array([1, 2, 4]), exact=False)) == "[2] is 3 before and 4 after; 1 of 3 elements differ"
    flags = np.array([True, False])
    assert str(mismatch(flags, ~flags, exact=False)).startswith("[0] is true before and false after")


def test_tolerance_grows_with_the_type() -> None:
    assert tolerance(np.dtype("f8")) < tolerance(np.dtype("f4")) < tolerance(np.dtype("f2")) < 0.01
    assert tolerance(np.dtype("i4")) == 0


def test_what_says_nothing() -> None:
    assert says_nothing(np.full(3, np.nan)) == "NaN" and says_nothing(np.full(3, np.inf)) == "infinite"
    assert says_nothing(np.ones(3)) == "constant" and says_nothing(np.ones(1)) is None
    assert says_nothing(np.array([1.0, np.nan])) is None


# -- remembering -----------------------------------------------------------------------------------------------------


def test_evaluator_remembers_and_forgets() -> None:
    _, module = parsed(CHAIN)
    relu = ops(module, "ln.relu")[0]
    evaluator = RememberingEvaluator(budget=1 << 10)
    first = evaluator.intern(np.ones((2, 3), np.float32))
    again = evaluator.intern(np.ones((2, 3), np.float32))
    assert first is again and not first.flags.writeable
    result = evaluator.evaluate(relu, [first])
    assert evaluator.evaluate(relu, [again]) is result and (evaluator.hits, evaluator.misses) == (1, 1)
    for i in range(100):
        evaluator.next_round()
        evaluator.evaluate(relu, [evaluator.intern(np.full((2, 3), i, np.float32))])
        assert evaluator._bytes <= evaluator.budget
    np.testing.assert_array_equal(evaluator.evaluate(relu, [first])[0], np.ones((2, 3)))
    assert evaluator.misses == 101  # ones among the numbers were known, and then forgotten


def test_a_program_larger_than_the_memory_is_remembered_in_part() -> None:
    _, module = parsed(CHAIN)
    relu = ops(module, "ln.relu")[0]
    arrays = [np.full((2, 3), i, np.float32) for i in range(20)]
    evaluator = RememberingEvaluator(budget=10 * 24)
    for _ in range(5):
        evaluator.next_round()
        for array in arrays:
            evaluator.evaluate(relu, [evaluator.intern(array.copy())])
    assert evaluator.hits >= 4 * 8


def test_parameters_count_as_they_are_written() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    evaluator = RememberingEvaluator()
    x = evaluator.intern(x)
    results = []
    for slope in ("0.1", "0.5"):
        _, module = parsed(
            CHAIN.replace(
                'ln.relu %x : tensor<2x3xf32> as "r1"', f'ln.lrelu %x {{negslope = {slope}}} : tensor<2x3xf32> as "r1"'
            )
        )
        results.append(evaluator.evaluate(ops(module, "ln.lrelu")[0], [evaluator.intern(-x)])[0])
    assert (results[0] != results[1]).any()


def test_compare_modules() -> None:
    _, before = parsed(CHAIN)
    after = before.clone()
    assert compare_modules(before, after, exact=True) is None
    ops(after, "ln.elew")[0].properties["elew_op"] = ops(after, "ln.elew")[0].properties["elew_op"].__class__("TL_SUM")
    found = compare_modules(before, after)
    assert found is not None and found.tensor == "y" and found.data == "data set 'ordinary', seed 0"


# -- the tool --------------------------------------------------------------------------------------------------------

PLUGIN = """\
from lightnet.dialects.ln.elementwise import Relu
from lightnet.dialects.ln.unary import Abs
from lightnet.ir.registry import pattern
from xdsl.pattern_rewriter import RewritePattern


@pattern("simplify")
class ReluIsAbs(RewritePattern):
    # relu(x) = abs(x): wrong for negative numbers
    def match_and_rewrite(self, op, rewriter):
        if isinstance(op, Relu) and op.op_name == "r2":
            rewriter.replace(op, Abs.make([op.src]))
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "net.mlir").write_text(CHAIN)
    (tmp_path / "wrong.py").write_text(PLUGIN)
    return tmp_path / "net.mlir", tmp_path / "wrong.py"


def test_tool_finds_the_pattern(files: tuple[Path, Path]) -> None:
    net, plugin = files
    command = [
        sys.executable,
        "-m",
        "lightnet.cli.ln_opt",
        "--check",
        "--pass=bind,simplify,expand",
        f"--load={plugin}",
        str(net),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout == ""
    assert f"{net}:5:8: error: pattern 'ReluIsAbs' of pass 'simplify' changed the result: 'c'[" in done.stderr
    assert '%c = ln.relu %x : tensor<2x3xf32> as "r2"("c")' in done.stderr


def test_tool_says_what_it_compared(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        ln_opt.main(
            ["--check=rewrite", "--pass=bind,simplify", "--check-data=ordinary", "--check-seed=3", str(files[0])]
        )
        == 0
    )
    out, err = capsys.readouterr()
    assert "func.func @main" in out
    assert err == "check: 2 passes keep the results; 11 tensors compared (data: ordinary; seed 3)\n"


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--check=both", "--check takes pass, rewrite or exact, but gets 'both'"),
        ("--check-data=odd", "unknown kind 'odd'; there are: ordinary, awkward, nonfinite"),
        ("--check-data=,", "takes at least one kind"),
        ("--rewrite-limit=-1", "should be at least 0"),
    ],
)
def test_tool_refuses(option: str, message: str, files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert ln_opt.main([option, "--pass=bind", str(files[0])]) == 1
    assert message in capsys.readouterr().err


# -- few numbers, rare numbers ---------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Replace(LnPass):
    """Puts a text in the place of another, in the text of the module."""

    name = "replace"
    old: str = ""
    new: str = ""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        text = str(op)
        assert self.old in text
        other = parse_mlir(ctx, text.replace(self.old, self.new), "g.mlir")
        op.detach_region(op.body)
        op.add_region(other.detach_region(other.body))


def test_an_output_does_not_take_the_name_of_another() -> None:
    net = CHAIN.replace("tensor<2x3xf32> {", "(tensor<2x3xf32>, tensor<2x3xf32>) {").replace(' as "r1"("a")', "")
    net = net.replace("return %y : t", "return %c, %a : tensor<2x3xf32>, t")
    old = "%a = ln.relu %x : tensor<2x3xf32>"
    verdict = checked(net, Replace(old, f'{old} as ("c")'))
    assert verdict.error is not None and "that of another output, 'c'" in verdict.error.message


@pytest.mark.parametrize(
    ("dtype", "through"), [("i32", "f32"), ("i64", "f64"), ("f64", "f32"), ("bf16", "f16"), ("f16", "bf16"), ("i32", "ui64")]
)  # fmt: skip
def test_what_a_type_cannot_hold_is_among_the_data(dtype: str, through: str) -> None:
    """A cast there and back is no identity; that is told from NumPy's own casts where it has the types."""
    dims = "16x"
    net = f"""func.func @main() -> tensor<{dims}{dtype}> {{
  %x = ln.input : tensor<{dims}{dtype}> as ("x")
  %a = ln.cast %x : tensor<{dims}{through}>
  %b = ln.cast %a : tensor<{dims}{dtype}>
  %y = ln.forward %b : tensor<{dims}{dtype}> as ("y")
  func.return %y : tensor<{dims}{dtype}>
}}"""
    verdict = checked(net, Replace("ln.forward %b", "ln.forward %x"), exact=True)
    assert verdict.difference is not None and verdict.difference.kind == "value"


@pytest.mark.parametrize("data", [None, ("ordinary", "awkward")])
def test_small_modules_are_executed_on_more(data: tuple[str, ...] | None) -> None:
    """x - x is 0, but for NaN and infinities: found by default where that costs nothing."""
    net = CHAIN.replace("ln.elew %b, %c", "ln.elew %a, %a")
    verdict = checked(net, Replace("ln.elew %a, %a", "ln.elew %b, %b"), data=data)
    assert verdict.ok  # a - a = b - b = 0, NaN where a is
    verdict = checked(net, Replace('ln.elew %a, %a {elew_op = "TL_SUB"}', "ln.zeros"), data=data)
    assert verdict.ok == (data is not None)


def test_larger_modules_are_executed_on_the_usual_data() -> None:
    def sets(size: int) -> list[tuple[str, int]]:
        return CheckOptions(seed=7).data_sets(parsed(CHAIN.replace("2x3x", f"{size}x"))[1])

    assert sets(1 << 14) == [("ordinary", 7), ("awkward", 7)]
    assert sets(8)[:2] == sets(1 << 14) and {kind for kind, _ in sets(8)} == set(KINDS)


def test_a_byte_that_looks_unwritten_is_no_difference() -> None:
    """Rounding may give a byte of 0xFF, which is what stands where a block that was not run would write."""
    expected = np.array([1.0, 2.0, 3.0, 4.0], np.float32)
    type, rounded = tensor_type(TensorSpec((4,), BY_NAME["f32"])), expected.copy()
    rounded[1] = np.nextafter(np.float32(2), np.float32(0))  # 0x3FFFFFFF beside 0x40000000
    raw = rounded.view(np.uint8).copy()
    raw[8:12] = POISON  # not written
    assert _written_wrong(type, expected, raw, complete=False, in_place=False) is None
    wrong = _written_wrong(type, expected, raw, complete=True, in_place=False)
    assert wrong is not None and wrong.index == (2,)
    raw[0:4] = np.float32(1.5).tobytes()[0]
    assert _written_wrong(type, expected, raw, complete=False, in_place=False).index == (0,)


def test_networks_pass_the_whole_pipeline(capsys: pytest.CaptureFixture[str]) -> None:
    pipeline = "bind,simplify,fold-batchnorm,simplify,hoist,expand,subgraph,hoist,combine,layout,choose,schedule,plan"
    assert (
        ln_opt.main(["--check", f"--pass={pipeline}", "-o", "/dev/null", str(ROOT / "examples" / "example.net")]) == 0
    )
    assert "check: 13 passes keep the results" in capsys.readouterr().err


@pytest.mark.slow
def test_squeezedet_costs_less_than_10_s() -> None:
    command = [sys.executable, "-m", "lightnet.cli.ln_opt", "--check", "--pass=expand,combine,plan", "-o", "/dev/null"]
    before = os.times()
    done = subprocess.run(
        [*command, str(ROOT / "examples" / "nets" / "squeezedet.net")], capture_output=True, text=True
    )
    after = os.times()
    assert done.returncode == 0 and "check: 3 passes keep the results" in done.stderr
    # Seconds of processors, as others may be running too: 5 on two cores.
    assert after.children_user + after.children_system - before.children_user - before.children_system < 20


VARIED = """
func.func @main() -> (tensor<2x8xf32>, tensor<2x8xf32>) {
  %x = ln.input : tensor<2x8xf32> as ("x")
  %three = ln.param {data = [3.0]} : tensor<f32> as ("three")
  %two = ln.KIND {data = [2.0]} : tensor<f32> as ("two")
  %z = ln.mul %x, %three : tensor<2x8xf32> as ("z")
  %y = ln.mul %x, %two : tensor<2x8xf32> as ("y")
  func.return %y, %z : tensor<2x8xf32>, tensor<2x8xf32>
}
"""


@pytest.mark.parametrize(
    "kind, factor, rewrites", list(itertools.product(("param", "constant"), (2, 3), (False, True)))
)
def test_a_rule_that_reads_a_param_is_told_which(kind: str, factor: int, rewrites: bool) -> None:
    """x * c = x + x for a c that says 2 is wrong where anybody may feed c, and the report names c; of a constant it is right. A rule
    that is wrong whatever c holds (c says 2, and x + x + x is made) blames no data."""

    class Doubles(RewritePattern):
        # x * 2 = x + x, and whatever `factor` makes of it
        def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
            if isinstance(op, Mul) and tuple(op.src2.owner.data) == (2.0,):
                ops = [Add.make([op.src1, op.src1])]
                ops += [Add.make([ops[0].dst, op.src1])] if factor == 3 else []
                rewriter.replace(op, ops)

    ctx, module = parsed(VARIED.replace("KIND", kind))
    verdict = run_checked(ctx, module, [Patterns((Doubles,))], each_rewrite=rewrites)
    assert verdict.ok == (kind == "constant" and factor == 2)
    notes = "" if verdict.ok else "".join(text for _, text in verdict.error.notes)
    assert ("the content of param 'two' was varied, as anybody may feed it" in notes) == (
        kind == "param" and factor == 2
    )
    assert "'three'" not in notes
