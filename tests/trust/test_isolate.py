"""`ln-reduce --isolate`: pass list and module get smaller together, until what is left shows the fault and nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from lightnet.cli import ln_opt
from lightnet_trust import ln_reduce
from lightnet_trust.reproducer import read_recipe

ROOT = Path(__file__).parent.parent.parent
PLANTED = str(Path(__file__).parent / "planted_bugs.py")
CNN = str(ROOT / "examples" / "cnn.net")
MOBILE = """
func.func @main() -> tensor<1x8x14x14xf32> {
  %x = ln.input : tensor<1x3x16x16xf32> as ("x")
  %w = ln.param : tensor<8x3x3x3xf32> as ("w")
  %b = ln.param : tensor<8xf32> as ("b")
  %s = ln.param : tensor<8xf32> as ("s")
  %v = ln.param : tensor<8xf32> as ("v")
  %c = ln.conv2d %x, %w, %b {size = [3, 3]} : tensor<1x8x14x14xf32>
  %n = ln.batchnorm %c, %s, %b, %b, %v {epsilon = 1.0e-5} : tensor<1x8x14x14xf32>
  %k = ln.clip %n {lo = 0, hi = 6} : tensor<1x8x14x14xf32> as "clip0"("k")
  %y = ln.softmax %k {axis = 1} : tensor<1x8x14x14xf32> as ("y")
  func.return %y : tensor<1x8x14x14xf32>
}
"""


@pytest.fixture
def mobile(tmp_path: Path) -> str:
    path = tmp_path / "mobile.mlir"
    path.write_text(MOBILE)
    return str(path)


def isolated(net: str, pipeline: str, out: Path, capsys: pytest.CaptureFixture[str]) -> tuple[str, list[str], str]:
    """The reduced module's text, its passes, and what the tool said."""
    assert ln_reduce.main([net, "--load", PLANTED, "--isolate", pipeline, "-o", str(out)]) == 0
    err = capsys.readouterr().err
    recipe = read_recipe(out.read_text(), str(out))
    text = "\n".join(line for line in out.read_text().splitlines() if not line.startswith("//"))
    return text, recipe.pipeline.split(","), err


@pytest.mark.parametrize(
    ("bug", "op", "finding"),
    [
        ("sigmoid", "ln.sigmoid", "pattern 'sigmoid_is_tanh' of pass 'planted' changed the result"),
        ("clip", "ln.clip", "pattern 'unbounded' of pass 'planted' changed the result"),
        ("epsilon", "ln.batchnorm", "pattern 'other_epsilon' of pass 'planted' changed the result"),
        ("name", None, "pass 'planted' changed the result: output 0 was"),
        ("crash", "ln.maxpool2d", "is none of ours [planted.window]"),
    ],
)  # fmt: skip
def test_planted_bug(bug: str, op: str | None, finding: str, mobile: str, tmp_path: Path, capsys) -> None:
    """Of six passes one is left, of the network the op that it is wrong about, or an input that is an output; the file that is written replays it."""
    net, out = CNN if bug in ("sigmoid", "crash") else mobile, tmp_path / "fault.mlir"
    text, passes, err = isolated(net, f"bind,simplify,planted{{bug={bug}}},expand,combine,plan", out, capsys)
    assert len(passes) == 1 and passes[0].startswith("planted"), passes
    ops = [name for name in re.findall(r"ln\.\w+", text) if name not in ("ln.input", "ln.param", "ln.create")]
    assert ops == ([op] if op else []), text
    assert finding in err and "6 passes -> 1" in err
    assert ln_opt.main(["--run-reproducer", str(out), "--load", PLANTED]) == 1
    assert finding in capsys.readouterr().err


def test_options_that_the_fault_does_not_need_go(tmp_path: Path, capsys) -> None:
    _, passes, _ = isolated(CNN, "bind,planted{bug=sigmoid}", tmp_path / "fault.mlir", capsys)
    assert passes == ["planted"]
    _, passes, _ = isolated(CNN, "bind,planted{bug=crash}", tmp_path / "fault.mlir", capsys)
    assert passes == ['planted{bug="crash"}']


#: Two passes that are right alone: the second takes the mark of the first for something else.
TWO = """
from dataclasses import dataclass
from xdsl.dialects.builtin import UnitAttr
from lightnet.dialects.ln.unary import Tanh
from lightnet.ir.passes import LnPass, rewrite_greedily
from lightnet.dialects.ln.rules import rule

@rule("sigmoid")
def wrong(op):
    return Tanh.make([op.src])

@dataclass(frozen=True)
class Mark(LnPass):
    name = "mark"

    def apply(self, ctx, op):
        op.attributes["my.mark"] = UnitAttr()

@dataclass(frozen=True)
class Act(LnPass):
    name = "act"

    def apply(self, ctx, op):
        if "my.mark" in op.attributes:
            del op.attributes["my.mark"]
            rewrite_greedily(op, [wrong()])
"""


def test_passes_that_are_wrong_together(tmp_path: Path, capsys) -> None:
    """What an earlier pass left is part of the module that is written; passes between the two go."""
    plugin, out = tmp_path / "two.py", tmp_path / "fault.mlir"
    plugin.write_text(TWO)
    words = [CNN, "--load", str(plugin), "--isolate", "bind,mark,simplify,hoist,act,expand", "-o", str(out)]
    assert ln_reduce.main(words) == 0
    assert "6 passes -> 1" in capsys.readouterr().err
    assert read_recipe(out.read_text(), "").pipeline == "act" and "my.mark" in out.read_text()


def test_right_passes_are_nothing_to_isolate(capsys) -> None:
    assert ln_reduce.main([CNN, "--isolate", "bind,simplify,expand"]) == 1
    assert "there is nothing to isolate: the passes run, and keep the results" in capsys.readouterr().err


def test_data_and_seed_go_into_the_file(mobile: str, tmp_path: Path, capsys) -> None:
    out = tmp_path / "fault.mlir"
    words = [
        "--check-data",
        "awkward",
        "--check-seed",
        "3",
        "--load",
        PLANTED,
        "--isolate",
        "bind,planted{bug=epsilon}",
    ]
    assert ln_reduce.main([mobile, *words, "-o", str(out)]) == 0
    described = json.loads(out.read_text().splitlines()[0].partition(": ")[2])
    assert described["options"] == {"check": "pass", "check-data": "awkward", "check-seed": 3}
    assert described["load"] == [PLANTED]
