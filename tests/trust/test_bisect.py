"""`--bisect`, `--rewrite-limit`, `--reproducer`, and rewriting that never ends."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from counting import calls
from interrupts import running
from test_check import CHAIN, DropRelu, NegateTwice, Patterns, ops, parsed
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from lightnet.cli import ln_opt
from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.elementwise import Relu
from lightnet.dialects.ln.move import Forward
from lightnet.dialects.ln.unary import Abs, Neg
from lightnet.ir.passes import LnPass, parse_pipeline, run_pipeline
from lightnet.ir.registry import pattern
from lightnet.ir.watchdog import pattern_timeout
from lightnet.passes.expand import ExpandPass
from lightnet_trust.bisect import bisect
from lightnet_trust.reproducer import read_recipe


def run(*argv: object) -> int:
    try:
        return ln_opt.main([str(a) for a in argv])
    except SystemExit as e:
        return e.code


# -- bisecting a pipeline --------------------------------------------------------------------------------------------


def test_the_guilty_rewrite_of_a_pipeline() -> None:
    ctx, module = parsed(CHAIN)
    text = str(module)
    found = bisect(ctx, module, [*parse_pipeline("bind"), Patterns((DropRelu, NegateTwice)), *parse_pipeline("expand")])
    assert str(module) == text  # copies are run
    assert found.error is not None and found.error.loc is not None and found.error.loc.line == 5
    assert "pattern 'DropRelu' of pass 'patterns' changed the result" in found.error.message
    # NegateTwice on r1, DropRelu on r2; then six kernels are put around ops
    assert any("--rewrite-limit=2 does it, 1 does not" in note for _, note in found.error.notes)
    assert found.runs <= 8


def test_a_right_pipeline() -> None:
    ctx, module = parsed(CHAIN)
    found = bisect(ctx, module, parse_pipeline("bind,simplify,expand,combine,plan"))
    assert found.error is None and found.runs == 1 and found.rewrites >= 4


def test_a_pipeline_down_to_loops() -> None:
    """The lowering has no rewrites: what is before it is bisected, and its own result is checked."""
    passes = "bind,expand,combine,choose,pack,plan,lower-cpu"
    ctx, module = parsed(CHAIN)
    assert bisect(ctx, module, parse_pipeline(passes)).error is None
    found = bisect(ctx, module, [*parse_pipeline("bind"), Patterns((DropRelu,)), *parse_pipeline(passes)])
    assert found.error is not None and "pattern 'DropRelu' of pass 'patterns'" in found.error.message


@dataclasses.dataclass(frozen=True)
class Swaps(LnPass):
    """Is wrong in one step."""

    name = "swaps"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        (elew,) = ops(op, "ln.elew")
        elew.operands = list(reversed(elew.operands))


def test_a_fault_that_is_no_rewrite() -> None:
    ctx, module = parsed(CHAIN)
    found = bisect(ctx, module, [*parse_pipeline("bind,simplify"), Swaps(), *parse_pipeline("expand")])
    assert found.error is not None and "pass 'swaps' changed the result" in found.error.message
    assert any("--rewrite-limit=0" in note for _, note in found.error.notes)


def test_a_required_rewrite_is_found_too() -> None:
    @dataclasses.dataclass(frozen=True)
    class Expand(LnPass):
        """Puts kernels around ops, and breaks the one around r2 while it is at it."""

        name = "expand"

        def apply(self, ctx: Context, op: ModuleOp) -> None:
            from lightnet.ir import rewrites

            for relu in ops(op, "ln.relu"):
                step = rewrites.begin("wrap", [relu], required=True)
                assert step is not None
                if relu.op_name == "r2":
                    relu.operands = [ops(op, "ln.neg")[0].results[0]]
                step.done([relu])
            ExpandPass().apply(ctx, op)

    ctx, module = parsed(CHAIN)
    found = bisect(ctx, module, [Expand()])
    assert found.error is not None and "pattern 'wrap' of pass 'expand'" in found.error.message
    assert found.error.loc is not None and found.error.loc.line == 5


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A network, and a plugin that turns relus into absolute values."""
    (tmp_path / "net.mlir").write_text(CHAIN)
    (tmp_path / "plugin.py").write_text(
        "from lightnet.dialects.ln.elementwise import Relu\n"
        "from lightnet.dialects.ln.unary import Abs\n"
        "from lightnet.ir.passes import LnPass\n"
        "from lightnet.ir.registry import pattern\n"
        "from xdsl.pattern_rewriter import RewritePattern\n"
        "import dataclasses\n"
        '@pattern("simplify")\n'
        "class ReluIsAbs(RewritePattern):\n"
        "    def match_and_rewrite(self, op, rewriter):\n"
        '        if isinstance(op, Relu) and op.op_name == "r2":\n'
        "            rewriter.replace(op, Abs.make([op.src]))\n"
        "@dataclasses.dataclass(frozen=True)\n"
        "class Crash(LnPass):\n"
        '    name = "crash"\n'
        "    def apply(self, ctx, op):\n"
        '        raise ValueError("oops")\n'
    )
    return tmp_path / "net.mlir", tmp_path / "plugin.py"


def test_bisect_of_the_tool(files, capsys: pytest.CaptureFixture[str]) -> None:
    net, plugin = files
    assert run("--bisect", f"--load={plugin}", "--pass=bind,simplify,expand", net) == 1
    out, err = capsys.readouterr()
    assert out == "" and f"{net}:5:8: error: pattern 'ReluIsAbs' of pass 'simplify'" in err
    assert run("--bisect", "--pass=bind,simplify,expand", net) == 0
    out, err = capsys.readouterr()
    assert "cpu.kernel" in out and "bisect: the result is right after all" in err


def test_bisect_with_a_command(files, capsys: pytest.CaptureFixture[str]) -> None:
    """The command sees the resulting module; here it looks for an op that should not be there."""
    net, plugin = files
    judge = f"{sys.executable} -c \"import sys; sys.exit('ln.abs' in open(sys.argv[1]).read())\""
    assert run(f"--bisect-command={judge}", f"--load={plugin}", "--pass=bind,simplify,expand", net) == 1
    err = capsys.readouterr().err
    assert f"{net}:5:8: error: pattern 'ReluIsAbs' of pass 'simplify'" in err and "before: %c = ln.relu" in err
    assert run("--bisect-command=false", f"--load={plugin}", "--pass=bind,simplify", net) == 1
    assert "the result is wrong without any rewrite, too" in capsys.readouterr().err
    assert run("--bisect-command=true", f"--load={plugin}", "--pass=bind,simplify", net) == 0
    assert run("--bisect-command=no-such-command", "--pass=bind", net) == 1
    assert "cannot run" in capsys.readouterr().err
    assert run("--bisect-command='", "--pass=bind", net) == 1
    assert "no closing quotation" in capsys.readouterr().err
    assert run("--bisect", "--check", "--pass=bind", net) == 1


@pytest.mark.parametrize("limit", [0, 1])
def test_rewrite_limit(files, capsys: pytest.CaptureFixture[str], limit: int) -> None:
    """Rewrites behind the limit are not done; kernels are put around ops all the same."""
    net, plugin = files
    assert run(f"--rewrite-limit={limit}", f"--load={plugin}", "--pass=simplify,expand", net) == 0
    out = capsys.readouterr().out
    assert out.count("cpu.kernel") == 4
    assert ("ln.abs" in out) == (limit == 1)


# -- reproducers -----------------------------------------------------------------------------------------------------


def test_a_crash_is_replayed(files, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net, plugin = files
    found = tmp_path / "crash.mlir"
    assert run(f"--reproducer={found}", f"--load={plugin}", "--pass=bind,expand,crash,plan{alignment=32}", net) == 1
    first = capsys.readouterr().err
    text = found.read_text()
    assert read_recipe(text, "x").pipeline == "crash,plan{alignment=32}"
    assert "cpu.kernel" in text and "ValueError: oops" in text and '"xdsl"' in text
    # what a file names is not loaded
    assert run("--run-reproducer", found) == 1
    assert f"give them with --load {plugin}" in capsys.readouterr().err
    assert run("--run-reproducer", found, f"--load={plugin}") == 1
    again = capsys.readouterr().err
    assert again.splitlines()[0] == first.splitlines()[0] == "error: pass 'crash' crashed: ValueError: oops"


def test_a_difference_is_replayed(files, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net, plugin = files
    found = tmp_path / "check.mlir"
    argv = [f"--reproducer={found}", "--check=rewrite", f"--load={plugin}", "--pass=bind,simplify,expand"]
    assert run(*argv, "--check-seed=5", net) == 1
    assert "replays it" in capsys.readouterr().err
    recipe = read_recipe(found.read_text(), "x")
    assert recipe.options == {"check": "rewrite", "check-seed": 5}
    assert run("--run-reproducer", found, f"--load={plugin}") == 1
    assert "pattern 'ReluIsAbs' of pass 'simplify' changed the result: 'c'" in capsys.readouterr().err


def test_a_reproducer_that_cannot_be_written_hides_no_error(files, tmp_path: Path, capsys) -> None:
    net, plugin = files
    argv = [
        f"--reproducer={tmp_path / 'no such folder' / 'x.mlir'}",
        "--check",
        f"--load={plugin}",
        "--pass=simplify,expand",
    ]
    assert run(*argv, net) == 1
    text = capsys.readouterr().err
    assert "changed the result" in text and "there is no reproducer: cannot write" in text and "replays it" not in text


def test_nothing_is_written_where_nothing_fails(files, tmp_path: Path) -> None:
    assert run(f"--reproducer={tmp_path / 'none.mlir'}", "--check", "--pass=bind", files[0]) == 0
    assert not (tmp_path / "none.mlir").exists()


def test_a_module_that_does_not_verify_is_replayed(files, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net, plugin = files
    plugin.write_text(
        plugin.read_text().replace(
            'raise ValueError("oops")', "next(o for o in op.walk() if o.name == 'ln.neg').operands = []"
        )
    )
    found = tmp_path / "bad.mlir"
    assert run(f"--reproducer={found}", f"--load={plugin}", "--pass=bind,crash", net) == 1
    assert read_recipe(found.read_text(), "x").pipeline == "crash"
    capsys.readouterr()
    assert run("--run-reproducer", found, f"--load={plugin}") == 1
    assert "neg" in capsys.readouterr().err


GOOD = {"pipeline": "bind", "load": [], "options": {}}


@pytest.mark.parametrize(
    "line",
    [
        "func.func @main() {", "// lightnet-reproducer: {", "// lightnet-reproducer: []", "// lightnet-reproducer: {}",
        '// lightnet-reproducer: {"pipeline": 3}', "// lightnet-reproducer: " + "[" * 5000,
        *(f"// lightnet-reproducer: {json.dumps(GOOD | more)}" for more in (
            {"load": "x"}, {"load": [3]}, {"options": []}, {"options": {"output": "x"}}, {"options": {"check": 1}},
            {"options": {"check-seed": True}}, {"options": {"check": "both"}}, {"pipeline": "no-such-pass"},
            {"options": {"rewrite-limit": -3}}, {"options": {"check-data": "x"}}, {"load": ["/etc/passwd"]},
        )),
    ],
)  # fmt: skip
def test_a_malformed_reproducer_is_an_error(line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r.mlir"
    path.write_text(f"{line}\n{CHAIN}")
    assert run("--run-reproducer", path) == 1
    err = capsys.readouterr().err
    assert "error: " in err and "Traceback" not in err


# -- rewriting that never ends -----------------------------------------------------------------------------------------


class Grows(RewritePattern):
    # neg(x) = neg(neg(neg(x)))
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if isinstance(op, Neg):
            first = Neg.make([op.operands[0]])
            second = Neg.make([first.results[0]])
            rewriter.replace(op, [first, second, Neg.make([second.results[0]])])


class Doubles(RewritePattern):
    # relu(x) = relu(a relu for each op of the block)
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if isinstance(op, Relu) and op.parent is not None:
            rewriter.insert([Relu.make([op.src]) for _ in op.parent.ops])
            rewriter.replace(op, Relu.make([op.src]))


class InsertsForEver(RewritePattern):
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        while isinstance(op, Relu):
            rewriter.insert(Relu.make([op.src]))


#: Calls after which a pass that does not settle has been stopped.
MOST = 20_000_000


@pytest.mark.parametrize("cls", [Grows, Doubles, InsertsForEver])
def test_growth_is_stopped_and_named(cls: type[RewritePattern]) -> None:
    ctx, module = parsed(CHAIN)
    with calls(at_most=MOST), pytest.raises(LightNetError, match="does not settle") as e:
        run_pipeline(ctx, module, [Patterns((cls,))])
    text = e.value.render()
    assert cls.__name__ in text and "f.mlir:" in text and ("ln.relu" in text or "ln.neg" in text)


@pytest.fixture
def patterns():
    """Register patterns for a test, and take them back."""
    from lightnet.ir import registry

    before = {key: list(value) for key, value in registry._PATTERNS.items()}
    yield lambda name, cls: pattern(name)(cls)
    registry._PATTERNS.clear()
    registry._PATTERNS.update(before)


class Flips(RewritePattern):
    # simplify removes what is not used, so that this adds it again in each round
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if op.name == "ln.elew" and not any(isinstance(o, Abs) for o in op.parent.ops):
            rewriter.insert(Abs.make([op.operands[0]]))


class ModifiesForEver(RewritePattern):
    """Tells the handlers of a change, and not the rewriter."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if isinstance(op, Relu):
            rewriter.handle_operation_modification(op)


def test_changes_in_place_are_counted() -> None:
    ctx, module = parsed(CHAIN)
    with pytest.raises(LightNetError, match=r"does not settle.*'ModifiesForEver'"):
        run_pipeline(ctx, module, [Patterns((ModifiesForEver,))])


class Crashes(RewritePattern):
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if isinstance(op, Neg):
            raise ZeroDivisionError("by zero")


@pytest.mark.parametrize("name", ["expand", "simplify"])
def test_a_crash_in_a_pattern_names_it(patterns, name: str) -> None:
    patterns(name, Crashes)
    ctx, module = parsed(CHAIN)
    with pytest.raises(
        LightNetError, match=f"f.mlir:4:8: error: pass '{name}' crashed: ZeroDivisionError: by zero"
    ) as e:
        run_pipeline(ctx, module, parse_pipeline(name))
    assert "in pattern 'Crashes' on ln.neg \"n1\"" in [text for _, text in e.value.notes]


def test_growth_in_expand(patterns) -> None:
    patterns("expand", InsertsForEver)
    ctx, module = parsed(CHAIN)
    with pytest.raises(LightNetError, match=r"^f.mlir:3:8: error: rewriting does not settle") as e:
        run_pipeline(ctx, module, parse_pipeline("expand"))
    assert (None, "in pattern 'InsertsForEver' on ln.relu \"r1\"") in e.value.notes


def test_rounds_that_do_not_end_name_the_pattern(patterns) -> None:
    patterns("simplify", Flips)
    ctx, module = parsed(CHAIN)
    with pytest.raises(
        LightNetError, match=r"^f.mlir:.*does not settle in \d+ rounds: pattern '(Flips|dead-code)' still"
    ):
        run_pipeline(ctx, module, parse_pipeline("simplify"))


def test_decompositions_that_do_not_end(patterns) -> None:
    class Back(Forward):
        name = "test.back"

        def decomposition(self) -> list[Operation]:
            return [Back.make([self.operands[0]])]

    ctx, module = parsed(CHAIN)
    neg = ops(module, "ln.neg")[0]
    back = Back.make([neg.operands[0]])
    neg.parent.insert_op_before(back, neg)
    neg.operands = [back.results[0]]
    with pytest.raises(LightNetError, match=r"does not settle.*'Decompose'"):
        run_pipeline(ctx, module, parse_pipeline("decompose"))


class Hangs(RewritePattern):
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        while isinstance(op, Relu) and op.op_name == "r2":
            pass


@pytest.mark.parametrize("name", ["simplify", "expand", "combine"])
def test_a_match_that_does_not_end_is_stopped(patterns, name: str) -> None:
    patterns(name, Hangs)
    ctx, module = parsed(CHAIN)
    passes = "expand,combine" if name == "combine" else name
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(
        LightNetError, match=r"f.mlir:5:8: error: interrupted in pattern 'Hangs' on ln.relu \"r2\""
    ) as e:
        with pattern_timeout(0.3):
            run_pipeline(ctx, module, parse_pipeline(passes))
    assert any("0.3 s (--pattern-timeout)" in note for _, note in e.value.notes)
    assert signal.getsignal(signal.SIGALRM) is before and signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_slow_passes_are_not_stopped() -> None:
    class Slow(RewritePattern):
        def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
            time.sleep(0.4)

    ctx, module = parsed(CHAIN)
    with pattern_timeout(1):
        run_pipeline(ctx, module, [Patterns((Slow,))])


def test_an_interrupt_names_pass_or_pattern(files, tmp_path: Path) -> None:
    net, plugin = files
    plugin.write_text(
        plugin.read_text().replace('raise ValueError("oops")', "print('started', flush=True)\n        while True: pass")
    )
    command = [
        sys.executable,
        "-m",
        "lightnet.cli.ln_opt",
        f"--load={plugin}",
        "--pass=crash",
        f"--reproducer={tmp_path / 'r'}",
        str(net),
    ]
    with running(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == "started\n"
        os.kill(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 1 and "interrupted in pass 'crash'" in err
    assert read_recipe((tmp_path / "r").read_text(), "r").pipeline == "crash"
