"""The 48 mistakes of a compiler researcher's first afternoon, as data: what was written for what, and what the error must name.

Each row is a file or a command that works, and one fragment of it that is replaced. What is right must pass; what is wrong must end in
one error, at its place, that names what is wrong, what would be right, and, where that is known, what to write instead: no traceback, no
output, exit status 1. Where a mistake does nothing bad, it is a warning, and the status 0.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from lightnet.cli import lightnet, ln_opt

NET = """\
func.func @main() -> tensor<1x32x8x8xf32> {
  %x = ln.input : tensor<1x16x8x8xf32> as ("x")
  %w = ln.param : tensor<32x16x3x3xf32> as ("w")
  %b = ln.param : tensor<32xf32> as ("b")
  %c = ln.conv2d %x, %w, %b {size = [3, 3], padding = [1, 1, 1, 1]} : tensor<1x32x8x8xf32>
  %y = ln.lrelu %c {negslope = 0.1} : tensor<1x32x8x8xf32> as ("y")
  func.return %y : tensor<1x32x8x8xf32>
}
"""
FILES = {
    "net.mlir": NET,
    "arguments.mlir": """\
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = ln.relu %x : tensor<4xf32>
  func.return %y : tensor<4xf32>
}
""",
    "net.net": """\
create(| dst=x | dims=[1, 3, 8, 8], ran=[0, 0], dtype="TL_FLOAT");
relu(src=x | dst=y |);
print(src=y | | msg="");
""",
    "rule.py": """\
from lightnet.dialects.ln.elementwise import Lrelu
from lightnet.dialects.ln.move import Slice
from lightnet.dialects.ln.rules import producer, rule
from lightnet.dialects.ln.unary import Neg
from lightnet.ir.registry import pattern

@pattern("simplify")
@rule("lrelu")
def mine(op):
    return None
""",
    "rules.mlir": """\
builtin.module attributes {ln.pass = "simplify"} {
  pdl.pattern @neg_of_neg : benefit(1) {
    %x = pdl.operand
    %inner = pdl.operation "ln.neg" (%x : !pdl.value)
    %n = pdl.result 0 of %inner
    %root = pdl.operation "ln.neg" (%n : !pdl.value)
    pdl.rewrite %root {
      pdl.replace %root with (%x : !pdl.value)
    }
  }
}
""",
    "fuse.json": """\
{
    author: "me", arch: "cpu", name: "my",
    combiners: [
        {
            name: "a",
            match: ["conv2d c", "lrelu r"],
            edges: ["c.outs[dst] => r.ins[src]"],
            fuse: true,
        },
    ],
}
""",
    "folder/text.txt": "",
    "package/__init__.py": "",
    "x.csv": "",
}  # fmt: skip
CHOOSE = "'--pass=bind,expand,combine,layout,choose{set=\"<>\"}'"
RULE = "    return None"


class Mistake(NamedTuple):
    """A mistake: in which file or command (its words) which fragment takes the place of which, where the error is said to be, what it
    must name, and the command (the words of it, as in a shell)."""

    name: str
    right: str
    wrong: str
    place: str
    says: tuple[str, ...]
    command: str = "ln-opt net.mlir --pass=bind"
    file: str = "net.mlir"
    status: int = 1


def told(name: str, right: str, wrong: str, command: str, *says: str, place: str = "", status: int = 1) -> Mistake:
    """A mistake in a command, which has <> where the fragment stands."""
    return Mistake(name, right, wrong, place, says, command, "", status)


def chosen(name: str, right: str, wrong: str, *says: str, place: str = "net.mlir:5:8") -> Mistake:
    """A mistake in what `choose` is told."""
    return told(name, f"y.{right}", wrong, f"ln-opt net.mlir {CHOOSE}", *says, place=place)


def ruled(name: str, wrong: str, place: str, *says: str) -> Mistake:
    """A mistake in a rule of one's own."""
    return Mistake(
        name, RULE, f"    {wrong}", place, says, "ln-opt net.mlir --load rule.py --pass=bind,simplify", "rule.py"
    )


def in_il(name: str, right: str, wrong: str, place: str, *says: str) -> Mistake:
    """A mistake in LightNet IL."""
    return Mistake(name, right, wrong, place, says, "ln-opt net.net --pass=bind", "net.net")


#: Mistakes whose errors said what to do from the beginning.
GOOD = [
    Mistake("wrong attribute", "negslope", "slope", "net.mlir:6:21", ("unknown parameter 'slope'", "there are: negslope")),
    Mistake("wrong attribute type", "negslope = 0.1", 'negslope = "a"', "net.mlir:6:8",
            ("`negslope`", "LN_PARAM_NUMBER", "gets a LN_PARAM_STRING", "[lrelu.negslope.type]")),
    Mistake("misspelt op", "ln.lrelu", "ln.lrleu", "net.mlir:6:8", ("unknown op 'ln.lrleu'", "did you mean 'ln.lrelu'")),
    Mistake("use before definition", "ln.lrelu %c", "ln.lrelu %z", "net.mlir:6:17", ("%z is used before it is defined",)),
    Mistake("defined twice", "%b = ln.param", "%w = ln.param", "net.mlir:4:3", ("%w is already defined",)),
    Mistake("shape mismatch", "tensor<32xf32>", "tensor<33xf32>", "net.mlir:5:8",
            ("bias.dims[0] == weight.dims[0]", "gets 33 against 32", "[conv2d.bias-length]")),
    Mistake("channels mismatch", "32x16x3x3", "32x15x3x3", "net.mlir:5:8",
            ("weight.dims[1] * group == src.dims[1]", "gets 15 against 16", "[conv2d.in-channels]")),
    Mistake("wrong result shape", "1, 1, 1]} : tensor<1x32x8x8xf32>", "1, 1, 1]} : tensor<1x32x9x9xf32>", "net.mlir:5:8",
            ("should be tensor<1x32x8x8xf32>, but are tensor<1x32x9x9xf32>", "[conv2d.result-type]")),
    Mistake("unknown dialect", "ln.lrelu", "xx.lrelu", "net.mlir:6:8", ("unknown dialect 'xx'", "there are: arith", " ln, ")),
    Mistake("missing terminator", "  func.return %y : tensor<1x32x8x8xf32>\n", "", "net.mlir:6:8",
            ("ends its block, but is not a terminator", "func.return")),
    told("misspelt pass", "bind", "bnid", "ln-opt net.mlir --pass=<>", "unknown pass 'bnid'", "did you mean 'bind'?"),
    told("misspelt option of a pass", "max-rounds", "max-round", "ln-opt net.mlir --pass=bind,expand,combine{<>=8}",
         "pass 'combine' has no option 'max-round'", "max-rounds: int"),
    told("option value", "source", "sorce", "ln-opt net.mlir --pass=schedule{order=<>}", "unknown order 'sorce'", "there are: source, memory"),
    told("target", "cpu", "cpuu", "ln-opt net.mlir --pass=bind -t <>", "unknown target 'cpuu'", "there are: cpu, cuda"),
    told("layout", "blocked", "bloked", "ln-opt net.mlir --pass=bind,expand,layout --layout=<>",
         "target 'cpu' has no layout 'bloked'", "there are: blocked, plain"),
    told("name of --print-ir-after", "bind", "bnid", "ln-opt net.mlir --pass=bind,expand --print-ir-after=<>",
         "the pipeline has no pass 'bnid'", "did you mean bind?"),
    told("missing file", "net.mlir", "nte.mlir", "ln-opt <> --pass=bind", "cannot read 'nte.mlir'", "No such file"),
    told("missing plugin", "rule.py", "nope.py", "ln-opt net.mlir --load <> --pass=bind", "cannot read 'nope.py'", "No such file", place="nope.py"),
    told("not a package", "package", "folder", "ln-opt net.mlir --load <> --pass=bind", "cannot load 'folder'", "with an __init__.py"),
    Mistake("import error in a plugin", "import Slice", "import Slize", "rule.py:2",
            ("ImportError: cannot import name 'Slize' from 'lightnet.dialects.ln.move'",), "ln-opt net.mlir --load rule.py --pass=bind", "rule.py"),
    told("plan before bind", "bind,plan", "plan,bind", "ln-opt arguments.mlir --pass=<>",
         "@main has arguments", "pass 'bind' makes inputs of them", place="arguments.mlir:1:1"),
    told("lower-cpu before expand", "bind,expand,plan", "bind,plan", "ln-opt net.mlir --pass=<>,lower-cpu",
         "ln.conv2d cannot be lowered", "run expand", place="net.mlir:5:8"),
    told("lower-cpu before plan", "bind,expand,plan", "bind,expand", "ln-opt net.mlir --pass=<>,lower-cpu",
         "cpu.kernel has no place", "run plan before lower-cpu", place="net.mlir:5:8"),
    chosen("value of a choice", "tile=[1,8,2,8]", "y.tile=[1,4,4,7]", "[rows, columns, vectors, unroll]", "vectors divides the 2 blocks"),
    chosen("unit of a choice", "lanes=16", "y.lanes=7", "lanes = 7", "there are 4, 8, 16", "[choose.lanes]"),
    chosen("name of a choice", "tile=[1,8,2,8]", "y.tille=[1,8,2,8]", "tille is no choice of this cpu.kernel", "tile"),
    chosen("kernel of a choice", "alg=direct", "yy.alg=direct", "no kernel has an op or tensor 'yy'", "did you mean y?", place=""),
    told("unfed input", "-i random", "", "lightnet run arguments.mlir <>", "needs input 'x'", "-i x=@file.npy, or -i random"),
    told("wrong shape of an input", "1,2,3,4", "1,2,3", "lightnet run arguments.mlir -i x=<>", "'x' has 4 elements [4], but gets 3"),
    told("unknown input", "x", "z", "lightnet run arguments.mlir -i <>=1,2,3,4", "no input or param is called 'z'", "there are: x"),
    ruled("crash", "return op.nothing", "net.mlir:6:8",
          "pass 'simplify' crashed: AttributeError: 'Lrelu' object has no attribute 'nothing'", "in pattern 'mine' on ln.lrelu \"y\"", "rule.py:10: note: in mine"),
    ruled("endless rewriting", "return Lrelu.make([op.src], op.param_values())", "net.mlir:6:8",
          "rewriting does not settle", "pattern 'mine' still matches", "[rewrite.settles]"),
    Mistake("op of PDL", '%root = pdl.operation "ln.neg"', '%root = pdl.operation "ln.nge"', "rules.mlir:6:13",
            ("unknown op 'ln.nge'", "did you mean ln.ne"), "ln-opt net.mlir --load rules.mlir --pass=bind,simplify", "rules.mlir"),
    Mistake("name in a description", "=> r.ins", "=> q.ins", "fuse.json:7:37",
            ("unknown variable 'q'", "there are: c, r"), "ln-opt net.mlir --load fuse.json --pass=bind,expand,combine", "fuse.json"),
]  # fmt: skip

#: Mistakes whose errors said too little, stood elsewhere, or were none.
ONCE_POOR = [
    Mistake("wrong result type", "tensor<1x32x8x8xf32> as", "tensor<1x32x8x8xf16> as", "net.mlir:6:8",
            ("should be tensor<1x32x8x8xf32>, but are tensor<1x32x8x8xf16>", "[lrelu.result-type]")),
    Mistake("dim ?", "1x16x8x8", "?x16x8x8", "net.mlir:2:8",
            ("1 open dims, of which 0 are named", '#ln.dims<"batch(1..64)">', "or write numbers")),
    Mistake("typed float", "0.1}", "0.1 : f32}", "net.mlir:6:36", ("Expected '}' or ','", "behind 'negslope', whose value has no type")),
    Mistake("unclosed brace", "0.1}", "0.1", "net.mlir:6:36", ("Expected '}' or ',' behind 'negslope'",)),
    told("passes in passes", "bind,expand,combine", "bind,expand(combine)", "ln-opt net.mlir '--pass=<>'",
         "passes do not nest", "write bind,expand,combine", place="<passes>:1:12"),
    told("pipeline without @", "@cpu:graph", "default", "ln-opt net.mlir --pass=<>", "unknown pass 'default'", "@cpu"),
    told("MLIR's --print-ir-after-all", "--print-ir-after", "--print-ir-after-all", "ln-opt net.mlir --pass=bind <>",
         "unknown option '--print-ir-after-all'", "did you mean --print-ir-after?"),
    told("MLIR's --mlir-timing", "--timing", "--mlir-timing", "ln-opt net.mlir --pass=bind <>",
         "unknown option '--mlir-timing'", "did you mean --timing?"),
    told("MLIR's passes of functions", "builtin.module(bind,expand)", "builtin.module(func.func(bind,expand))",
         "ln-opt net.mlir '--pass-pipeline=<>'", "passes do not nest", "write bind,expand", place="<passes>:1:5"),
    told("combine before expand", "expand,combine", "combine,expand", "ln-opt net.mlir --pass=bind,<>",
         "pass 'combine' finds nothing to do", "it is for level 2", "the pass 'expand' makes that", status=0),
    told("combine behind lower-cpu", "combine,plan,lower-cpu", "plan,lower-cpu,combine", "ln-opt net.mlir --pass=bind,expand,<>",
         "pass 'combine' finds nothing to do", "it is for level 2", "level 4", status=0),
    in_il("argument of IL", "src=x |", "sr=x |", "net.net:2:1", "needs a `src` input tensor", "has none called `sr`", "[relu.arg-name]"),
    in_il("syntax of IL", "src=x | dst=y", "src=x dst=y", "net.net:2:12", "expected ',' or the '|' behind the inputs, got 'dst'"),
    ruled("replacement of another type", 'return Slice.make([op.src], {"axis": 3, "start": 0, "len": 4})', "net.mlir:6:8",
          "tensor<1x32x8x8xf32> by tensor<1x32x8x4xf32>", "in pattern 'mine' on ln.lrelu", "[rewrite.type]"),
]  # fmt: skip

#: Others that came up since.
OTHERS = [
    Mistake("exponent without a point", "0.1}", "1e-1}", "net.mlir:6:33", ("behind 'negslope'", "a point: 1.0e-05")),
    told("value without quotes", 'set="y.alg=loops"', "set=y.alg=loops", "ln-opt net.mlir '--pass=bind,expand,choose{<>}'",
         "stands in quotes", place="<passes>:1:25"),
]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(command: str, capfd: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """The exit status of a command, its output, and what it says on standard error."""
    tool, *words = shlex.split(command)
    capfd.readouterr()
    try:
        status = {"ln-opt": ln_opt, "lightnet": lightnet}[tool].main(words)
    except SystemExit as e:  # of the parser of options
        status = int(e.code or 0)
    return status, *capfd.readouterr()


def command_of(row: Mistake, fragment: str) -> str:
    """The command, with a fragment of its own where the mistake is in it."""
    return row.command.replace("<>", fragment) if not row.file else row.command


def test_there_are_48() -> None:
    assert (len(GOOD), len(ONCE_POOR)) == (34, 14)
    assert Counter(row.name for row in (*GOOD, *ONCE_POOR, *OTHERS)).most_common(1)[0][1] == 1


@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in (*GOOD, *ONCE_POOR, *OTHERS)])
def test_mistake(row: Mistake, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(command_of(row, row.right), capfd)
    assert status == 0 and "error" not in err and "warning" not in err, err
    if row.file:
        path = folder / row.file
        assert path.read_text().count(row.right) >= 1
        path.write_text(path.read_text().replace(row.right, row.wrong, 1))
    status, out, err = run(command_of(row, row.wrong), capfd)
    kind = "error" if row.status else "warning"
    assert status == row.status and (not out or not row.status), err
    assert re.match(re.escape(f"{row.place}: {kind}: " if row.place else f"{kind}: "), err), err
    assert err.count("error: ") <= 1 and "Traceback" not in err and len(err.splitlines()) <= 8, err
    assert not [part for part in row.says if part not in err], err
