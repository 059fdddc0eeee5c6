"""`ln-reduce`: what it leaves is small, verifies, still shows what the judge saw, and nothing more can go."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from interrupts import running

from lightnet import model
from lightnet.diagnostics import LightNetError
from lightnet.frontends import mlir
from lightnet.ir.context import make_context
from lightnet.ir.memory import memory_of
from lightnet.ir.passes import parse_pipeline, run_pipeline
from lightnet.ir.printer import module_text
from lightnet.passes.check_plan import check_plan
from lightnet_trust import ln_reduce
from lightnet_trust.edits import graph_ops
from lightnet_trust.judges import CandidateVerdict, CommandJudge, PipelineJudge, head
from lightnet_trust.reduce import Reduction, reduce_module

ROOT = Path(__file__).parents[2]
SQUEEZEDET = str(ROOT / "tests/data/nets/il/squeezedet.net")

#: Pipelines that end at each level.
LEVELS = {
    "source": "",
    "graph": "bind,simplify,fold-batchnorm,hoist",
    "kernels": "bind,hoist,expand,combine,choose",
    "planned": "bind,hoist,expand,combine,choose,plan",
    "loops": "bind,hoist,expand,combine,choose,plan,lower-cpu",
}


class Sees:
    """A judge that looks for a regular expression, and at every candidate: it verifies, reads back as it is, and is planned
    soundly if it is planned."""

    def __init__(self, pattern: str):
        self.pattern = re.compile(pattern, re.DOTALL)
        self.seen: list[str] = []

    def verdict(self, text: str) -> CandidateVerdict:
        module = mlir.read(text, "candidate.mlir", make_context())
        assert module_text(module) == text
        if memory_of(module) and graph_ops(module):
            check_plan(module)
        self.seen.append(text)
        return CandidateVerdict("seen" if self.pattern.search(text) else None, "not there")


def reduced(source: str, pattern: str, passes: str = "", **options) -> Reduction:
    net = model.load(source) if source.endswith(".net") else model.loads(source, ".mlir")
    if passes:
        run_pipeline(net.ctx, net.module, parse_pipeline(passes))
    found = reduce_module(net.module, Sees(pattern), **options)
    assert re.search(pattern, found.text, re.DOTALL)
    assert not found.broken
    return found


# -- what is left ------------------------------------------------------------------------------------------------------


def test_network_becomes_one_op() -> None:
    """166 ops, of which one is looked for: what is left is that op, as small as it can be, without names."""
    assert reduced(SQUEEZEDET, "softmax").text == (
        "builtin.module {\n"
        "  func.func @main() {\n"
        "    %0 = ln.create : tensor<1x1x1x1xf32>\n"
        "    %1 = ln.softmax %0 {axis = 0} : tensor<1x1x1x1xf32>\n"
        "    func.return\n"
        "  }\n"
        "}\n"
    )


@pytest.mark.sampled(every=3, share=0.3)
@pytest.mark.parametrize(
    ("level", "pattern", "ops"),
    [
        ("source", r"ln\.conv2d.*ln\.conv2d", 8),
        ("graph", r"ln\.once.*ln\.conv2d", 9),
        ("kernels", r"ln\.conv2d[^\n]*\n(?: +: [^\n]*\n)?[^\n]*ln\.relu", 10),
        ("planned", r"ln\.conv2d[^\n]*\n(?: +: [^\n]*\n)?[^\n]*ln\.relu[^}]*\} : [^\n]* at arena", 10),
        ("planned", r"ln\.concat", 7),
    ],
)  # fmt: skip
def test_every_level(level: str, pattern: str, ops: int) -> None:
    found = reduced(SQUEEZEDET, pattern, LEVELS[level])
    assert found.stopped is None
    assert found.ops_after <= ops, found.text


_CONV = """
func.func @main() -> tensor<1x16x6x6xf32> {
  %x = ln.input : tensor<1x16x8x8xf32> as ("x")
  %w = ln.param : tensor<16x16x3x3xf32> as ("w")
  %b = ln.param : tensor<16xf32> as ("b")
  %c = ln.conv2d %x, %w, %b {size = [3, 3]} : tensor<1x16x6x6xf32>
  %t = ln.transpose %c {axes = [0, 1, 3, 2]} : tensor<1x16x6x6xf32>
  %y = ln.softmax %t {axis = 1} : tensor<1x16x6x6xf32>
  func.return %y : tensor<1x16x6x6xf32>
}
"""


@pytest.mark.sampled(every=3, share=0.3)
@pytest.mark.parametrize(
    ("pattern", "ops"),
    [(r"tile\.fma.*tile\.fma", 13), (r"scf\.for.*memref\.store", 13), (r"math\.exp", 8), (r"launch @\w+.*launch @\w+", 9)],
)  # fmt: skip
def test_loops(pattern: str, ops: int) -> None:
    found = reduced(_CONV, pattern, LEVELS["loops"])
    assert found.ops_after <= ops, found.text


_NET = """
func.func @main() -> (tensor<2x3x8x8xf32>, tensor<8x24xf32>) {
  %x = ln.input {ran = [-2, 2]} : tensor<2x3x8x8xf32> as "create0"("x")
  %z = ln.input : tensor<2x3x8x8xf32> as ("z")
  %a = ln.relu %x : tensor<2x3x8x8xf32> as "r0"("a")
  %b = ln.elew %a, %z {elew_op = "TL_SUM"} : tensor<2x3x8x8xf32>
  %c = ln.sigmoid %b : tensor<2x3x8x8xf32>
  %d = ln.transpose %c {axes = [0, 2, 3, 1]} : tensor<2x8x8x3xf32>
  %e = ln.reshape %d : tensor<16x24xf32>
  %f = ln.slice %e {axis = 0, start = 4, len = 8} : tensor<8x24xf32>
  %g = ln.lrelu %f {negslope = 0.3} : tensor<8x24xf32>
  func.return %c, %g : tensor<2x3x8x8xf32>, tensor<8x24xf32>
}
"""


@pytest.mark.parametrize(
    ("pattern", "lines"),
    [
        # What the judge asks for stays: a size, a name, a parameter, an output; and nothing else.
        (r"ln.slice .*: tensor<8x", ["ln.slice %0 {axis = 0, start = 0, len = 8} : tensor<8x1xf32>"]),
        (r"ln.lrelu .*negslope = 0.3", ["ln.lrelu %0 {negslope = 0.3} : tensor<1x1xf32>"]),
        (r"ln.lrelu .*negslope = 0\.", ["ln.lrelu"]),
        (r'ln.relu .*"r0"', ['ln.relu %0 : tensor<1x1x1x1xf32> as "r0"']),
        (r"func.return %\w", ["func.return %"]),
        # Two inputs become one where both have to be read.
        (r"%(\w+) = ln.elew %\w+, %\w+ ", ['ln.elew %0, %0 {elew_op = "TL_SUM"} : tensor<1x1x1x1xf32>']),
    ],
)  # fmt: skip
def test_what_is_needed_stays(pattern: str, lines: list[str]) -> None:
    text = reduced(_NET, pattern).text
    assert all(line in text for line in lines), text
    assert len(text.splitlines()) <= 6 + len(lines), text


def test_what_takes_the_place_of_data_is_an_input() -> None:
    """And of weights a param, in kernels and outside of them; no candidate is looked at twice."""
    for level in ("graph", "kernels", "planned"):
        net = model.loads(_CONV, ".mlir")
        run_pipeline(net.ctx, net.module, parse_pipeline(LEVELS[level]))
        judge = Sees(r"ln\.conv2d")
        found = reduce_module(net.module, judge)
        lines = [
            line.split(" = ", 1)[1] for line in found.text.splitlines() if re.search(r"= ln\.(input|param|once)", line)
        ]
        assert sorted(line.split()[0] for line in lines) == ["ln.input", "ln.param", "ln.param"], (level, found.text)
        assert len(judge.seen) == len(set(judge.seen)) == found.tests


def test_what_stands_between_goes() -> None:
    """Where one op has to depend on another, the ops between them are bypassed, if they have an operand of their type."""
    source = """
func.func @main() -> tensor<4xf32> {
  %x = ln.input : tensor<4xf32> as ("x")
  %a = ln.relu %x : tensor<4xf32>
  %b = ln.exp %a : tensor<4xf32>
  %c = ln.elew %x, %b {elew_op = "TL_SUM"} : tensor<4xf32>
  %y = ln.neg %c : tensor<4xf32>
  func.return %y : tensor<4xf32>
}
"""

    def verdict(text: str) -> CandidateVerdict:
        ops = list(mlir.read(text, "candidate.mlir").walk())
        behind = {op for op in ops if op.name == "ln.relu"}
        for op in ops:
            behind |= {op} if any(v.owner in behind for v in op.operands) else set()
        return CandidateVerdict("depends" if any(op.name == "ln.neg" for op in behind) else None)

    text = reduce_module(mlir.read(source, "net.mlir"), _judge(verdict)).text
    assert re.findall(r"ln\.\w+", text) == ["ln.input", "ln.relu", "ln.neg"]


def test_weights_shrink_with_their_op() -> None:
    """Sizes that belong together change together, and a reshape follows."""
    source = """
func.func @main() -> tensor<1x4096xf32> {
  %x = ln.input : tensor<1x32x10x10xf32> as ("x")
  %w = ln.param : tensor<64x32x3x3xf32> as ("w")
  %b = ln.param : tensor<64xf32> as ("b")
  %c = ln.conv2d %x, %w, %b {size = [3, 3]} : tensor<1x64x8x8xf32>
  %y = ln.reshape %c : tensor<1x4096xf32>
  func.return %y : tensor<1x4096xf32>
}
"""
    text = reduced(source, r"ln.conv2d.*size = \[3, 3\].*ln.reshape %").text
    assert "tensor<1x1x3x3xf32>" in text and "ln.param : tensor<1xf32>" in text, text
    assert re.search(r"ln\.reshape %\d+ : tensor<1x1xf32>", text), text


def test_result_cannot_shrink_further() -> None:
    """Reducing what is reduced changes nothing, and equal input gives equal output."""
    first = reduced(_NET, r"ln.relu.*ln.transpose")
    again = reduced(first.text, r"ln.relu.*ln.transpose")
    assert (again.text, again.ops_after) == (first.text, again.ops_before)
    assert reduced(_NET, r"ln.relu.*ln.transpose") == first


@pytest.mark.parametrize("level", LEVELS)
def test_arbitrary_judges(level: str) -> None:
    """Whatever a judge says of candidates, each of them is sound (`Sees` looks), and no edit fails in an unforeseen way."""
    for divisor in (2, 3):
        net = model.loads(_NET, ".mlir")
        run_pipeline(net.ctx, net.module, parse_pipeline(LEVELS[level]) if LEVELS[level] else [])
        looks = Sees("")

        def verdict(text: str, looks: Sees = looks, divisor: int = divisor) -> CandidateVerdict:
            looks.verdict(text)
            return CandidateVerdict("kept" if len(looks.seen) == 1 or len(text) % divisor else None)

        found = reduce_module(net.module, _judge(verdict), max_tests=60)
        assert not found.broken and found.ops_after < found.ops_before


def _judge(verdict: Callable[[str], CandidateVerdict]) -> object:
    return type("Judge", (), {"verdict": staticmethod(verdict)})()


# -- limits ------------------------------------------------------------------------------------------------------------


def test_max_tests() -> None:
    found = reduced(SQUEEZEDET, r"ln\.conv2d.*ln\.conv2d", max_tests=5)
    assert found.tests == 5 and found.stopped == "after 5 tests" and found.ops_after < found.ops_before


def test_interrupt_keeps_the_best() -> None:
    looks = Sees("ln.conv2d")

    def verdict(text: str) -> CandidateVerdict:
        if len(looks.seen) == 4:
            raise KeyboardInterrupt
        return looks.verdict(text)

    net = model.load(SQUEEZEDET)
    found = reduce_module(net.module, _judge(verdict))
    assert found.interrupted and "ln.conv2d" in found.text and found.ops_after < found.ops_before
    assert found.text in looks.seen


def test_nothing_to_reduce() -> None:
    with pytest.raises(LightNetError, match="there is nothing to reduce: not there"):
        reduced(_NET, "ln.softmax")


# -- judges ------------------------------------------------------------------------------------------------------------


def test_command_gets_the_path() -> None:
    """As its last argument, or in the place of ``{}``; no shell reads the words."""
    assert CommandJudge(["grep", "-q", "ln.relu"]).verdict("ln.relu\n").found
    assert CommandJudge(["sh", "-c", "grep -q ln.relu {}"]).verdict("ln.relu\n").found
    refused = CommandJudge(["grep", "-q", "$HOME; ln.relu"]).verdict("ln.relu\n")
    assert refused == CandidateVerdict(None, "'grep' exits with status 1")


def test_hanging_command_is_ended_with_its_children(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    script = f"sleep 60 & echo $! > {shlex.quote(str(pid))}; wait"
    found = CommandJudge(["sh", "-c", script], timeout=2).verdict("")
    assert found == CandidateVerdict(None, "'sh' does not end within 2 s")
    assert not _alive(int(pid.read_text()))


def _alive(pid: int) -> bool:
    """Whether a process runs; one that has ended, and nobody has asked about, does not."""
    for _ in range(100):
        done = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
        if not done.stdout.strip() or done.stdout.startswith("Z"):
            return False
        time.sleep(0.02)
    return True


def test_message_head_forgets_numbers() -> None:
    assert head("%a.1 has 3x4 elements\nmore") == head("%7 has 1x1 elements")
    assert head("pass 'a' crashed") != head("pass 'b' crashed")


#: A pass that fails, ends its process or never ends where there is a softmax; and a pattern that is wrong.
PLUGIN = """
import os
import time
from xdsl.pattern_rewriter import RewritePattern
from lightnet.dialects.ln.elementwise import Relu
from lightnet.ir.passes import LnPass
from lightnet.ir.registry import pattern
from dataclasses import dataclass

@dataclass(frozen=True)
class Bad(LnPass):
    name = "bad"
    how: str = "raise"

    def apply(self, ctx, op):
        found = [o for o in op.walk() if o.name == "ln.softmax"]
        if found and self.how == "raise":
            raise IndexError(f"{len(list(op.walk()))} ops, the worst is of type {found[0].results[0].type}")
        if found and self.how == "exit":
            os._exit(3)
        while found and self.how == "hang":
            time.sleep(1)

@pattern("simplify")
class ReluIsNothing(RewritePattern):
    def match_and_rewrite(self, op, rewriter):
        if isinstance(op, Relu):
            rewriter.replace(op, [], [op.src])
"""


@pytest.fixture
def plugin(tmp_path: Path) -> str:
    path = tmp_path / "bad.py"
    path.write_text(PLUGIN)
    return str(path)


def run(*words: str, capsys=None) -> tuple[int, str, str]:
    status = ln_reduce.main(list(words))
    out = capsys.readouterr()
    return status, out.out, out.err


@pytest.mark.parametrize("how", ["raise", "exit", "hang"])
def test_crash(how: str, plugin: str, tmp_path: Path, capsys) -> None:
    words = ["--load", plugin, "--test-crash", f"bad{{how={how}}}"]
    if how == "hang":  # on a small network: a busy machine must not make a pass that ends look like one that does not
        net = tmp_path / "net.mlir"
        net.write_text(_NET.replace("ln.sigmoid %b", "ln.softmax %b {axis = 1}"))
        words += [str(net), "--timeout", "3", "--max-tests", "3"]
    status, text, err = run(*words, *([] if how == "hang" else [SQUEEZEDET]), capsys=capsys)
    assert status == 0 and "ln.softmax" in text, err
    assert how == "hang" or len(text.splitlines()) == 7, text
    assert re.match(r"ln-reduce: \d+ ops -> \d+ in \d+ tests", err)


def test_check(plugin: str, tmp_path: Path, capsys) -> None:
    """A wrong pattern comes down to the op that it is wrong about, on data where that shows."""
    path = tmp_path / "net.mlir"
    path.write_text(_NET)
    status, text, err = run(str(path), "--load", plugin, "--test-check", "bind,simplify", capsys=capsys)
    assert status == 0, err
    *_, source, op, last, _, _ = text.splitlines()
    assert "ln.input" in source and "ln.relu" in op and "func.return" in last and len(text.splitlines()) == 7, text
    assert PipelineJudge("check", "bind").verdict(text).found is None


def test_check_that_finds_nothing() -> None:
    judge = PipelineJudge("check", "bind,simplify")
    with pytest.raises(LightNetError, match="--check finds no pass of 'bind,simplify' that changes a result"):
        reduce_module(mlir.read(_NET, "net.mlir"), judge)


def test_pipeline_judge_refuses_what_is_no_module() -> None:
    assert PipelineJudge("crash", "bind").verdict("func.func @main() { ln.nothing }").found is None


# -- the tool ----------------------------------------------------------------------------------------------------------


def test_tool_runs_passes_first(tmp_path: Path, capsys) -> None:
    out = tmp_path / "small.mlir"
    status, text, err = run(
        SQUEEZEDET, "--pass=bind,expand", "--test", "grep -q ln.softmax", "-q", "-o", str(out), capsys=capsys
    )
    assert (status, text, err) == (0, "", "")
    assert "cpu.kernel" in out.read_text() and len(out.read_text().splitlines()) <= 10


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "one of the arguments --test --test-check --test-crash --isolate is required"),
        (["--test", "true", "--test-check", "bind"], "not allowed with argument"),
        (["--test", "'"], "--test: no closing quotation in"),
        (["--test", ""], "--test takes a command"),
        (["--test", "no-such-command-anywhere"], "cannot run the test 'no-such-command-anywhere'"),
        (["--test", "false"], "there is nothing to reduce: 'false' exits with status 1"),
        (["--test", "true", "--max-tests", "0"], "should be above 0"),
        (["--test", "true", "--timeout", "nan"], "should be above 0"),
        (["--test-check", "bind", "--check-data", "odd"], "--check-data: unknown kind 'odd'; there are: ordinary"),
        (["--test-check", "no-such-pass"], "unknown pass 'no-such-pass'"),
        (["--test", "true", "--pass", "plan{capacity=1}"], "does not fit"),
    ],
)  # fmt: skip
def test_mistakes(words: list[str], message: str, capsys) -> None:
    try:
        status = ln_reduce.main([SQUEEZEDET, *words])
    except SystemExit as e:  # of argparse
        status = e.code
    assert status == 1 and message in capsys.readouterr().err


def test_ctrl_c_ends_the_test_and_writes_the_best(tmp_path: Path) -> None:
    """An interrupt ends the command that runs, too, which is in no foreground group."""
    out, pid = tmp_path / "small.mlir", tmp_path / "pid"
    script = f'echo x >> {pid}.count; [ $(wc -l < {pid}.count) -lt 5 ] || {{ echo $$ > {pid}; sleep 60; }}; grep -q conv2d "$0"'
    test = f"sh -c {shlex.quote(script)}"
    words = [sys.executable, "-m", "lightnet_trust.ln_reduce", SQUEEZEDET, "--test", test, "-o", str(out)]
    with running(words, cwd=ROOT) as process:
        while not pid.exists() or not pid.read_text().strip():
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 130 and "stopped by an interrupt" in err, err
    assert mlir.read(out.read_text(), str(out)) and not _alive(int(pid.read_text()))
