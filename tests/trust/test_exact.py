"""`--check=exact`: what is wrong by less than rounding is found, and what is right in real numbers is not called wrong.

Each case is a network in two forms, written as one: of `<a|b>` the first has a and the second b. Errors are far below what
the check in floats may take for rounding, and it finds none of them, which each test asks too.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from lightnet.cli import ln_opt
from lightnet.dialects.ln.arith import Mul
from lightnet.dialects.ln.elementwise import Relu
from lightnet.dialects.ln.source import ConstantOp
from lightnet.ir.context import make_context
from lightnet.ir.parser import parse_mlir
from lightnet.ir.passes import LnPass, rewrite_greedily
from lightnet_trust import ln_reduce
from lightnet_trust.check import CheckOptions, compare_modules, run_checked
from lightnet_trust.evaluation import RememberingEvaluator
from lightnet_trust.exact import FieldEvaluator, carry

T = "tensor<4x8xf32>"
#: By name: lines that compute %y of %x and %w, [4, 8] each.
WRONG = {
    "lrelu": "%y = ln.lrelu %x {negslope = <0.1|0.10000001>} : T",
    "elu": "%y = ln.elu %x {alpha = <1.0|1.0000001>} : T",
    "celu": "%y = ln.celu %x {alpha = <0.5|0.50000006>} : T",
    "selu alpha": "%y = ln.selu %x {alpha = <1.5|1.5000001>} : T",
    "selu gamma": "%y = ln.selu %x {gamma = <1.25|1.2500001>} : T",
    "hard sigmoid's slope": "%y = ln.hard_sigmoid %x {alpha = <0.2|0.20000002>} : T",
    "hard sigmoid's offset": "%y = ln.hard_sigmoid %x {beta = <0.5|0.50000006>} : T",
    "upper bound": "%y = ln.clip %x {lo = -1, hi = <0.5|0.50000006>} : T",
    "lower bound": "%y = ln.clip %x {lo = <-0.25|-0.25000003>, hi = 1} : T",
    "shrink": "%y = ln.shrink %x {bias = <0.25|0.25000003>, lambd = 0.1} : T",
    "silu": "%y = ln.silu %x {beta = <1.0|1.0000001>} : T",
    "layernorm without epsilon": "%y = ln.layernorm %x {axis = 1, epsilon = <0.0000001|0>} : T",
    "rmsnorm without epsilon": "%y = ln.rmsnorm %x {axis = 1, epsilon = <0.0000001|0>} : T",
    "l2norm without epsilon": "%y = ln.l2norm %x {axis = 1, epsilon = <0.0000000001|0>} : T",
    "padding": """
        %p = ln.pad %x {before = [0, 1], after = [0, 0], value = <0.1|0.10000001>} : tensor<4x9xf32>
        %y = ln.slice %p {axis = 1, start = 0, len = 8} : T""",
    "factor": "%y = ln.mul %x, C(<0.5|0.50000006>) : T",
    "term": "%y = ln.add %x, C(<1|1.0000001>) : T",
    "whole factor": "%y = ln.mul %x, C(<3|3.0000002>) : T",
    "reciprocal": "%y = ln.<div|mul> %x, C(<3|0.33333334>) : T",
    "small term": """
        %s = ln.mul %w, C(<0|0.00000001>) : T
        %y = ln.add %x, %s : T""",
    "small residual": """
        %r = ln.relu %x : T
        %s = ln.mul %r, C(<0|0.00000001>) : T
        %y = ln.add %x, %s : T""",
    "epsilon under a root": """
        %q = ln.mul %x, %x : T
        %e = ln.add %q, C(<0.000000001|0>) : T
        %y = ln.sqrt %e : T""",
    "epsilon of a logarithm": """
        %q = ln.exp %x : T
        %e = ln.add %q, C(<0.00000001|0>) : T
        %y = ln.log %e : T""",
    "epsilon of a quotient": """
        %q = ln.exp %w : T
        %e = ln.add %q, C(<0.00000001|0>) : T
        %y = ln.div %x, %e : T""",
    "zero of a relu": "%y = ln.maximum %x, C(<0|0.000000001>) : T",
    "exp": """
        %s = ln.add %x, C(<0|0.00000001>) : T
        %y = ln.exp %s : T""",
    "tanh": """
        %s = ln.mul %x, C(<1|1.0000001>) : T
        %y = ln.tanh %s : T""",
    "sigmoid": """
        %s = ln.mul %x, C(<1|1.0000001>) : T
        %y = ln.sigmoid %s : T""",
    "softmax": """
        %s = ln.mul %x, C(<1|1.0000001>) : T
        %y = ln.softmax %s {axis = 1} : T""",
    "erf": """
        %s = ln.mul %x, C(<0.70710678|0.70710684>) : T
        %y = ln.erf %s : T""",
    "gelu": """
        %s = ln.mul %x, C(<1|0.99999994>) : T
        %y = ln.gelu %s : T""",
    "cosine": """
        %s = ln.mul %x, C(<1|1.0000001>) : T
        %y = ln.cos %s : T""",
    "attention's scale": """
        %t = ln.transpose %w {axes = [1, 0]} : tensor<8x4xf32>
        %p = ln.matmul %x, %t : tensor<4x4xf32>
        %s = ln.mul %p, C(<0.125|0.12500001>) : tensor<4x4xf32>
        %a = ln.softmax %s {axis = 1} : tensor<4x4xf32>
        %y = ln.matmul %a, %w : T""",
    "norm's gain": """
        %n = ln.layernorm %x {axis = 1} : T
        %y = ln.mul %n, C(<1.5|1.5000001>) : T""",
    "mean": """
        %m = ln.reduce_mean %x {axes = [1]} : tensor<4x1xf32>
        %s = ln.mul %m, C(<1|1.0000001>) : tensor<4x1xf32>
        %y = ln.sub %x, %s : T""",
    "sum of squares": """
        %q = ln.mul %x, %x : T
        %m = ln.reduce_sum %q {axes = [1]} : tensor<4x1xf32>
        %s = ln.mul %m, C(<0.125|0.12500001>) : tensor<4x1xf32>
        %y = ln.sub %x, %s : T""",
    "double": """
        %d = ln.cast %x : tensor<4x8xf64>
        %e = ln.mul %d, D(<1|1.00000000000001>) : tensor<4x8xf64>
        %y = ln.cast %e : T""",
    "product": """
        %a = ln.mul %x, %w : T
        %y = ln.mul %a, C(<1|0.99999994>) : T""",
    "difference": """
        %a = ln.mul %w, C(<1|1.0000001>) : T
        %y = ln.sub %x, %a : T""",
    "square": """
        %a = ln.add %x, C(<0|0.00000002>) : T
        %y = ln.mul %a, %a : T""",
    "reciprocal of a sum": """
        %q = ln.exp %x : T
        %a = ln.add %q, C(<1|1.0000001>) : T
        %y = ln.div C4(1), %a : T""",
}
#: Two forms that are equal in real numbers, not to the bit.
RIGHT = {
    "distribution": """
        %a = ln.<add|mul> %x, <%w|C(3)> : T
        %b = ln.mul <%a|%w>, C(3) : T
        %y = ln.<mul|add> <%b, C(1)|%a, %b> : T""",
    "quotients": """
        %a = ln.<div|mul> %x, C(<7|1>) : T
        %y = ln.mul %a, C(<7|1>) : T""",
    "difference of sums": """
        %a = ln.<add|mul> %x, <%w|C(1)> : T
        %y = ln.<sub|mul> %a, <%w|C(1)> : T""",
    "relu as a maximum": "%y = ln.<relu %x|maximum %x, C(0)> : T",
    "a positive factor through a relu": """
        %a = ln.<relu %x|mul %x, C(3)> : T
        %y = ln.<mul %a, C(3)|relu %a> : T""",
    "exp through a maximum": """
        %a = ln.<exp %x|maximum %x, %w> : T
        %b = ln.exp <%w|%a> : T
        %y = ln.<maximum %a, %b|maximum %b, %b> : T""",
    "square as a power": "%y = ln.<mul %x, %x|pow %x, C(2)> : T",
    "product of matrices, in another order": """
        %t = ln.transpose %w {axes = [1, 0]} : tensor<8x4xf32>
        %a = ln.matmul <%x, %t|%t, %x> : tensor<<4x4|8x8>xf32>
        %y = ln.matmul <%a, %x|%x, %a> : T""",
    "sum by parts": """
        %a = ln.reduce_sum %x {axes = [<0, 1|0>]} : tensor<1x<1|8>xf32>
        %b = ln.reduce_sum %a {axes = [<0|1>]} : tensor<1x1xf32>
        %y = ln.mul %x, %b : T""",
}


def module(body: str, side: int) -> ModuleOp:
    """One of the two forms of a body; `C(v)` is a constant of f32, `C4(v)` one of the whole shape, `D(v)` one of f64."""
    while (found := re.search(r"<([^<>|]*)\|([^<>|]*)>", body)) is not None:
        body = body[: found.start()] + found[1 + side] + body[found.end() :]
    made: list[str] = []

    def constant(match: re.Match) -> str:
        kind = {"C": "1x1xf32", "C4": "4x8xf32", "D": "1x1xf64"}[match[1]]
        made.append(f"%c{len(made)} = ln.constant {{data = [{match[2]}]}} : tensor<{kind}>")
        return f"%c{len(made) - 1}"

    body = re.sub(r"\b(C4|C|D)\(([^)]*)\)", constant, body)
    lines = [line.strip().replace(": T", f": {T}") for line in body.strip().splitlines()]
    lines[-1] += ' as ("y")'
    inputs = [f'%{n} = ln.input : {T} as ("{n}")' for n in "xw"]
    text = "\n".join([*inputs, *made, *lines, f"func.return %y : {T}"])
    return parse_mlir(make_context(), f"func.func @main() -> {T} {{\n{text}\n}}\n", "case.mlir")


@pytest.mark.parametrize("name", WRONG)
def test_an_error_below_rounding_is_found(name):
    """Not in floats; in the field, and as what it is."""
    before, after = module(WRONG[name], 0), module(WRONG[name], 1)
    ordinary = CheckOptions(("ordinary",))
    assert compare_modules(before, after, options=ordinary) is None
    found = compare_modules(before, after, options=CheckOptions(("ordinary",), in_field=True))
    assert found is not None and found.kind == "exact" and found.tensor == "y"
    assert compare_modules(before, module(WRONG[name], 0), options=CheckOptions(in_field=True)) is None


def test_there_are_forty_of_them():
    """As many as the check is said to find."""
    assert len(WRONG) >= 40


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_in_real_numbers_is_right(name):
    """Whatever rounding does to it."""
    before, after = module(RIGHT[name], 0), module(RIGHT[name], 1)
    for seed in range(3):
        assert compare_modules(before, after, options=CheckOptions(("ordinary",), seed, in_field=True)) is None


class NearlyRelu(RewritePattern):
    """Is wrong by one part in 10^7."""

    name = "nearly-relu"

    # relu(x) = -(-relu(x)) * 1.0000001
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if isinstance(op, Relu) and op.dst.name_hint != "kept":
            factor = ConstantOp.make([], {"dtype": "TL_FLOAT", "dims": (1, 1), "data": (1.0000001,)})
            kept = Relu.make([op.src])
            kept.results[0].name_hint = "kept"
            rewriter.replace(op, [factor, kept, made := Mul.make([kept.results[0], factor.results[0]])], made.results)


class Nearly(LnPass):
    """The pass of that pattern."""

    name = "nearly"

    def apply(self, ctx, op):
        rewrite_greedily(op, [NearlyRelu()])


def relus() -> ModuleOp:
    return module("%y = ln.relu %x : T", 0)


def test_a_pass_that_is_nearly_right_is_found_with_its_pattern():
    """As a pass that changes a result is: pass, pattern and tensor; without the field it is right."""
    assert run_checked(make_context(), relus(), [Nearly()]).ok
    verdict = run_checked(make_context(), relus(), [Nearly()], CheckOptions(in_field=True))
    assert (verdict.pass_name, verdict.pattern) == ("nearly", "nearly-relu")
    assert verdict.difference.kind == "exact" and "check.exact" in verdict.error.render()


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("cls", [Nearly, NearlyRelu])
def test_a_law_falls_back_to_floats_and_the_report_says_so(cls, each, monkeypatch):
    """What rests on a law that its pass or pattern names is compared in floats: after the pass, and after each rewrite."""
    monkeypatch.setattr(cls, "law", "x = x * 1.0000001", raising=False)
    verdict = run_checked(make_context(), relus(), [Nearly()], CheckOptions(in_field=True), each_rewrite=each)
    assert verdict.ok
    assert verdict.notes == [
        "pattern 'nearly-relu' of pass 'nearly' is checked in floats: it rests on x = x * 1.0000001"
    ]


def test_the_option_says_what_is_exact(tmp_path, capsys):
    """`ln-opt --check=exact` runs both: what is nearly right ends it with a status of 1 and the label."""
    path = tmp_path / "net.mlir"
    path.write_text(str(relus()))
    assert (
        ln_opt.main([str(path), "--check=exact", "--pass=bind,simplify,expand,combine,plan", "-o", str(tmp_path / "a")])
        == 0
    )
    assert "5 passes keep the results" in capsys.readouterr().err
    assert ln_opt.main([str(path), "--check=nearly", "--pass=bind"]) == 1
    assert "--check takes pass, rewrite or exact, but gets 'nearly'" in capsys.readouterr().err


#: Of two patterns that are wrong by less than rounding, the first names a law.
PLUGIN = """
from dataclasses import dataclass
from lightnet.dialects.ln.activation import Elu
from lightnet.dialects.ln.elementwise import Lrelu
from lightnet.dialects.ln.rules import rule
from lightnet.ir.passes import LnPass, rewrite_greedily

@rule("elu")
def by_law(op):
    return Elu.make([op.src], {"alpha": 1.0000001}) if op.alpha == 1 else None

by_law.law = "alpha hardly matters"

@rule("lrelu")
def silent(op):
    return Lrelu.make([op.src], {"negslope": 0.10000001}) if abs(op.negslope - 0.1) < 4e-9 else None

@dataclass(frozen=True)
class Nearly(LnPass):
    name = "nearly"
    only_lawful: bool = False

    def apply(self, ctx, op):
        rewrite_greedily(op, [by_law()] if self.only_lawful else [by_law(), silent()])
"""
TWICE = """
    %a = ln.elu %x : T as "elu0"("a")
    %b = ln.relu %a : T as "relu0"("b")
    %c = ln.elu %b : T as "elu1"("c")
    %d = ln.sub %c, %w : T as "sub0"("d")
    %y = ln.lrelu %d {negslope = 0.1} : T"""


@pytest.fixture
def planted(tmp_path):
    """The paths of a network and of the plugin."""
    net, plugin = tmp_path / "net.mlir", tmp_path / "nearly.py"
    net.write_text(str(module(TWICE, 0)))
    plugin.write_text(PLUGIN)
    return str(net), f"--load={plugin}"


def test_bisecting_in_the_field(planted, capsys):
    """The rewrite that no comparison of floats finds; those that rest on a law are set aside, and said."""
    net, load = planted
    assert ln_opt.main([net, load, "--bisect", "--pass=bind,nearly,expand"]) == 0
    capsys.readouterr()
    assert ln_opt.main([net, load, "--bisect", "--check=exact", "--pass=bind,nearly,expand", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["verdict"], told["pattern"], told["changed"]) == ("wrong", "silent", "exact")
    assert told["notes"] == ["pattern 'by_law' of pass 'nearly' is checked in floats: it rests on alpha hardly matters"]
    lawful = "--pass=bind,nearly{only_lawful=true},expand,combine,plan,lower-cpu"
    assert ln_opt.main([net, load, "--bisect", "--check=exact", lawful]) == 0
    said = capsys.readouterr().err
    assert "bisect: the result is right" in said and "bisect: note: pattern 'by_law'" in said
    assert "bisect: note: lower-cpu: compared in floats: loops are not executed in the field" in said
    assert ln_opt.main([net, "--bisect", "--check=exact", "--pass=bind,precision"]) == 0
    assert "the end is compared in floats: pass 'precision' rounds on purpose" in capsys.readouterr().err
    for words in (["--bisect", "--check=rewrite"], ["--bisect-command=true", "--check=exact"]):
        assert ln_opt.main([net, *words, "--pass=bind"]) == 1
        assert "--bisect runs the pipeline its own way" in capsys.readouterr().err


@pytest.mark.parametrize("way", ["--isolate", "--test-check"])
def test_reducing_in_the_field(way, planted, tmp_path, capsys):
    """One op is left, and the file that `--isolate` writes replays the fault in the field."""
    (net, load), out = planted, str(tmp_path / "small.mlir")
    words = [net, load, way, "bind,nearly", "-o", out]
    assert ln_reduce.main(words) == 1
    capsys.readouterr()
    assert ln_reduce.main([*words, "--check-exact"]) == 0
    text = Path(out).read_text()
    assert [op for op in re.findall(r"ln\.\w+", text) if op != "ln.input"] == ["ln.lrelu"]
    if way == "--isolate":
        capsys.readouterr()
        assert ln_opt.main(["--run-reproducer", out, load]) == 1
        assert "pattern 'silent' of pass 'nearly'" in capsys.readouterr().err


def test_an_array_is_known_by_its_numbers_and_its_residues():
    """Two results that are equal as numbers, not as formulas, are two arrays; the same again is the same."""
    evaluator = FieldEvaluator(RememberingEvaluator())
    a = evaluator.intern(np.float32([1, 2]))
    assert evaluator.intern(np.float32([1, 2])) is a
    other = evaluator.intern(carry(a.plain, np.float32([3, 4])))
    assert other is not a and np.array_equal(a, other) and other.plain is a.plain
