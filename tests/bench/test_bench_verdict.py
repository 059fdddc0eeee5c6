"""`lightnet compare --verdict`: right, faster, smaller; of passes that are, of one that is not, and of files that
change."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lightnet.cli.lightnet import main
from lightnet_bench import command, verdict
from lightnet_bench.comparison import compared
from lightnet_bench.verdict import Verdict, _loose, pipeline_with

ROOT = Path(__file__).parents[2]
CNN, LENET = str(ROOT / "examples" / "cnn.net"), str(ROOT / "examples" / "nets" / "lenet.net")

#: A pass that takes the first relu out of a network, and one that finds nothing to do, of a level of its own.
PASSES = '''
from dataclasses import dataclass
from lightnet.dialects.ln.elementwise import Relu
from lightnet.ir.module import main_of
from lightnet.ir.passes import LnPass

@dataclass(frozen=True)
class FirstRelu(LnPass):
    """Takes the first relu away: RIGHT."""
    name = "first-relu"

    def apply(self, ctx, op):
        for relu in [o for o in main_of(op).body.block.ops if isinstance(o, Relu)][:1]:
            relu.results[0].replace_all_uses_with(relu.operands[0])
            relu.detach()
            relu.erase()

@dataclass(frozen=True)
class Idle(LnPass):
    """Finds nothing to do."""
    name = "idle"
    level = "kernels"

    def apply(self, ctx, op):
        pass
'''


@pytest.fixture
def passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(verdict, "SECONDS", 0.0)
    (tmp_path / "passes.py").write_text(PASSES)
    return str(tmp_path / "passes.py")


def judged(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> list[dict[str, Any]]:
    assert main(["compare", "--verdict", "--json", *words]) == status
    return json.loads(capsys.readouterr().out)["networks"]


def test_a_pass_that_changes_nothing(passes: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = judged(capsys, "--load", passes, "--pass", "idle", CNN, LENET)
    assert [f["network"] for f in found] == ["cnn.net", "lenet.net"]
    for one in found:
        assert one["right"] and one["error"] == 0 and one["kernels"]["changed"] == 0 and one["ratio"] is None
        assert one["kernels"]["a"] == one["kernels"]["b"] and one["memory"][0] == one["memory"][1]


def test_a_wrong_pass(passes: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Also of a network without weights, whose outputs would be constant: some are drawn for it."""
    (one,) = judged(capsys, "--load", passes, "--pass", "first-relu", CNN, status=1)
    assert not one["right"] and one["error"] > 1e-3 and one["kernels"]["changed"] >= 1
    assert main(["compare", "--verdict", "--load", passes, "--pass", "first-relu", CNN]) == 1
    assert "WRONG by" in capsys.readouterr().out


def test_a_pipeline_of_ours(passes: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Without `combine` there are more kernels, and the same results."""
    (one,) = judged(capsys, "--pass", "@cpu-combine", CNN)
    assert one["right"] and one["kernels"]["b"] > one["kernels"]["a"] and one["ratio"]["samples"] >= 10
    assert main(["compare", "--verdict", "--pass", "@cpu-combine", CNN]) == 0
    table = capsys.readouterr().out
    assert table.splitlines()[0].split() == [*verdict.HEADER] and " -> " in table


def test_where_a_pass_stands(passes: str) -> None:
    from lightnet.plugins import loaded

    with loaded([passes]):
        assert pipeline_with("first-relu", "cpu") == "@cpu+after:simplify:first-relu"
        assert pipeline_with("idle{}", "cpu") == "@cpu+after:combine:idle{}"
    assert pipeline_with("@cpu-bands", "cpu") == "@cpu-bands" and pipeline_with("bind,expand", "cpu") == "bind,expand"


def test_it_is_judged_again_when_the_file_is_saved(
    passes: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second time the network is not compiled again as it is; a file that was saved half done is said, and the next
    one judged; an interrupt ends it with the last verdict."""
    path, edits = Path(passes), iter([PASSES.replace("[:1]", "[:0]"), "def", PASSES])
    compiled = []
    side = verdict.Judge._side
    monkeypatch.setattr(
        verdict.Judge, "_side", lambda self, name, *a, **k: compiled.append(name) or side(self, name, *a, **k)
    )

    def sleep(seconds: float) -> None:
        try:
            path.write_text(next(edits))
        except StopIteration:
            raise KeyboardInterrupt from None

    monkeypatch.setattr(command.time, "sleep", sleep)
    monkeypatch.setattr(command, "times_of", lambda files: path.read_text())  # whatever the clock of files resolves
    assert main(["compare", "--verdict", "--watch", "--load", passes, "--pass", "first-relu", CNN]) == 1
    shown = capsys.readouterr()
    assert shown.out.count("WRONG by") == 2 and shown.out.count("to the bit") == 1 and "not valid Python" in shown.err
    assert compiled == ["A", "B", "B", "B"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([CNN], "--verdict judges the pass of --pass, and there is none"),
        ([CNN, "--pass=bind", "--b", "-w"], "leave out --a and --b"),
        ([CNN, "--pass=bind", "--watch"], "--watch goes with --verdict, and with --load"),
        (["no.net", "--pass=@cpu"], "cannot read 'no.net'"),
        ([CNN, "--pass=nix"], "nix"),
    ],
)
def test_mistakes_about_verdicts(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--verdict", *words]) == 1
    found = capsys.readouterr()
    assert message in found.err + found.out and "Traceback" not in found.err


def test_what_rounding_moves_is_no_fault_of_a_pass():
    """An output that inputs move which differ by a rounding, as what stands in a sorted place does, may differ as far; others, and further, not."""
    x, noisy = np.float32([3, 3, 1]), {"x": np.float32([3, 3, 1])}

    def run(feeds):
        order = np.argsort(feeds["x"], kind="stable")
        return {"y": feeds["x"] * 2, "first": np.float32([7, 5, 2])[order[-1:]]}

    plain = SimpleNamespace(executable=run)
    loose = _loose(plain, [(noisy, run({"x": x}))])
    assert set(loose) == {"first"} and loose["first"] == pytest.approx(2 / 5)
    wanted = {"y": x * 2, "first": np.float32([5])}
    for got, right in (
        ({"y": x * 2, "first": np.float32([7])}, True),
        ({"y": x * 2, "first": np.float32([50])}, False),
        ({"y": x * 3, "first": np.float32([7])}, False),
    ):
        verdict = Verdict("net", tuple(compared(wanted, got)), loose=loose)
        assert verdict.is_right == right
        assert ("(first: as rounding alone)" in verdict.row()[1]) == (got["first"][0] == 7)
    assert not Verdict("net", tuple(compared(wanted, {"y": x * 2, "first": np.float32([7])}))).is_right
