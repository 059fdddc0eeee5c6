"""The ln-opt tool: options, exit status, nothing half-written, no traceback; plugins; expected errors."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path

import pytest
from xdsl.utils.lexer import Input
from xdsl.utils.mlir_lexer import MLIRLexer, MLIRTokenKind

from lightnet.cli import ln_opt
from lightnet.cli.expected import check_errors, parse_expected
from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.ir import registry

MODULE = """\
func.func @main(%a: f32, %b: f32) -> f32 {
  %c = arith.addf %a, %b : f32
  %d = arith.addf %a, %b : f32
  %e = arith.mulf %c, %d : f32
  func.return %e : f32
}
"""


@pytest.fixture
def opt(capsys: pytest.CaptureFixture[str]):
    """Run ln-opt in process: arguments to (status, stdout, stderr)."""

    def call(*argv: object) -> tuple[int, str, str]:
        try:
            status = ln_opt.main([str(a) for a in argv])
        except SystemExit as e:
            status = e.code
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "in.mlir"
    path.write_text(MODULE)
    return path


@pytest.mark.parametrize(
    "spelling",
    ["--pass=cse,dce", "--passes=cse,dce", "-pcse,dce", "--pass=cse --pass=dce", "-p cse,dce", "--pass=cse,\\ dce"],
)
def test_pass_option(opt, module: Path, spelling: str) -> None:
    argv = [a.replace("\0", " ") for a in spelling.replace("\\ ", "\0").split()]
    status, out, err = opt(*argv, module)
    assert (status, err) == (0, "")
    assert out.count("arith.addf") == 1


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--pass=nothing"], "error: unknown pass 'nothing'; there are: "),
        (["--pass=expnd"], "did you mean 'expand'?"),
        (["--pass=cse{x=1}"], "error: pass 'cse' has no option 'x'; there are: none"),
        (["--pass=cse{"], "Expected argument name here"),
        (["--pass=cse dce"], "<passes>:1:4: error: "),
        (["--pass=canonicalize{a=" + "9" * 5000 + "}"], "error: malformed pass pipeline"),
        (["--target=abacus"], "error: unknown target 'abacus'; there are: cpu, cuda, cudnn, dpu, none, tensorrt"),
        (["--no-such-option"], "error: unknown option '--no-such-option'; --help lists those that there are"),
        (["--from=pdf"], "error: unknown format 'pdf'; there are: json, mlir, net"),
        (["--columns=-5"], "error: --columns should not be negative, and is -5"),
        (["--max-tokens=-5"], "error: --max-tokens should be positive, and is -5"),
        (["--print-ir-after=cse"], "the pipeline has no pass 'cse'"),
        (["--load=/nowhere/pass.py"], "error: cannot read '/nowhere/pass.py'"),
        (["-o", "/nowhere/out.mlir"], "error: cannot write '/nowhere/out.mlir'"),
    ],
)
def test_usage_errors(opt, module: Path, argv: list[str], message: str) -> None:
    status, out, err = opt(*argv, module)
    assert (status, out) == (1, "")
    assert message in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (MODULE[:-2], "in.mlir:6:1: error: unexpected end of the file: "),
        (MODULE.replace("%c, %d", "%c, %77"), "in.mlir:4:23: error: value '%77' is used but never defined"),
        (MODULE.replace("mulf", "mulff"), "in.mlir:4:8: error: unknown op 'arith.mulff'; did you mean 'arith.mulf'"),
        (MODULE.replace("%e : f32", "%e : f64"), "in.mlir:5:15: error: %e is of type f32, but is read as f64"),
        (MODULE.replace("%c, %d : f32", "%c, %d : tensor<"), "in.mlir:5:3: error: "),
        ("module {" * 1000, "error: regions are nested more than 48 deep"),
        ("#a = " + "[" * 100_000, "error: the text is nested too deeply"),
        ("#a = loc(" + "fused[" * 100_000, "error: the text is nested too deeply"),
        ("%0 = arith.constant " + "1" * 5000 + " : i32", "in.mlir:1:6: error: cannot be parsed: ValueError"),
        ("%0 = arith.constant dense<1> : tensor<4294967296x4294967296xi8>", "error: the dense constants of the file"),
        (
            "#a = [1, 1]\n" + "".join(f"#{chr(98 + i)} = [#{chr(97 + i)}, #{chr(97 + i)}]\n" for i in range(24)),
            "error: aliases expand to more than",
        ),
        ('"unfinished', "in.mlir:1:1: error: End of file reached before closing string literal"),
        ("\x01", "in.mlir:1:1: error: Unexpected character"),
        ("!a = i2147483648", "in.mlir:1:6: error: an integer type has more than 1024 bits"),
        ("!a = tensor<" + "1x" * 5000 + "f32>", "in.mlir:1:14: error: a shape has more than 4096 characters"),
        ("arith." + "x" * 100_000, "in.mlir:1:1: error: unknown op 'arith.xxx"),
        ("a\0b", "in.mlir:1:2: error: the text holds a NUL byte"),
        ("func.func @f() {\n  cf.br ^nowhere\n}", "in.mlir:2:9: error: block '^nowhere' is used"),
        ("builtin.module {} }", "in.mlir:1:19: error: expected an op"),
    ],
)
def test_bad_input(opt, tmp_path: Path, text: str, message: str) -> None:
    path, out_path = tmp_path / "in.mlir", tmp_path / "out.mlir"
    path.write_text(text)
    status, out, err = opt(path, "-o", out_path)
    assert (status, out) == (1, "")
    assert message in err
    assert "Traceback" not in err
    assert len(err) < 4000, "an error shows a clipped line, whatever the line's length"
    assert not out_path.exists()


def test_missing_file_and_folder(opt, tmp_path: Path) -> None:
    for path in (tmp_path / "none.mlir", tmp_path):
        status, out, err = opt(path)
        assert (status, out) == (1, "")
        assert err.startswith(f"error: cannot read '{path}'")


def test_error_has_line_and_caret(opt, module: Path) -> None:
    module.write_text(MODULE.replace("%c, %d", "%c, %77"))
    _, _, err = opt(module)
    assert err.splitlines()[1:3] == ["    %e = arith.mulf %c, %77 : f32", " " * 24 + "^"]


def test_verify_error_shows_one_op(opt, module: Path) -> None:
    many = "\n".join(f"  %x{i} = arith.constant {i} : i32" for i in range(500))
    module.write_text(f"func.func @f(%a: f32) -> i32 {{\n{many}\n  func.return %a : f32\n}}\n")
    status, _, err = opt(module)
    assert status == 1
    assert "in.mlir:502:3: error: 'func.return' op: " in err
    assert "note: the op is: func.return %a : f32" in err
    assert "arith.constant" not in err


def test_output_file(opt, module: Path, tmp_path: Path) -> None:
    status, out, _ = opt(module, "-o", tmp_path / "out.mlir")
    assert (status, out) == (0, "")
    assert opt(tmp_path / "out.mlir")[1] == (tmp_path / "out.mlir").read_text()


def test_empty_file_is_an_empty_module(opt, module: Path) -> None:
    module.write_text("// nothing\n")
    assert opt(module)[:2] == (0, "builtin.module {\n}\n")


def test_max_tokens(opt, module: Path) -> None:
    status, _, err = opt("--max-tokens=10", str(module))
    assert status == 1
    assert "the file has more than 10 tokens (ln-opt takes --max-tokens)" in err
    count = 1  # the end of the file is one
    lexer = MLIRLexer(Input(module.read_text(), "in.mlir"))
    while lexer.lex().kind != MLIRTokenKind.EOF:
        count += 1
    assert opt(f"--max-tokens={count - 1}", str(module))[0] == 1
    assert opt(f"--max-tokens={count + count // 4}", str(module))[0] == 0  # a few are looked at twice


def test_stdin_as_a_process() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lightnet.cli.ln_opt", "--pass=cse"],
        input=MODULE,
        text=True,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("arith.addf") == 1


def test_listings_import_nothing_heavy() -> None:
    code = (
        "import sys; from lightnet.cli.ln_opt import main; main(['--list-passes', '--list-targets']); "
        "print(*(m for m in ('xdsl', 'numpy', 'llvmlite') if m in sys.modules), 'end')"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.splitlines()[-1].strip() == "end"
    names = [line.split()[0] for line in out.splitlines()[:-1]]
    assert names == [*registry.PASSES, *registry.TARGETS]


def test_list_ops(opt) -> None:
    _, out, _ = opt("--list-ops")
    assert re.search(r"^ln\.relu +max\(src, 0\)", out, re.MULTILINE)
    assert "cpu.kernel" in out and "tile.fma" in out


def test_timing_goes_to_stderr(opt, module: Path) -> None:
    _, out, err = opt(module, "--pass=cse", "--timing")
    assert "timing" not in out
    stages = [line.split()[-1] for line in err.splitlines()[2:]]
    assert stages == ["parse", "verify", "passes", "cse", "verify", "print"]
    total = float(re.match(r"timing: ([0-9.]+) ms", err)[1])
    top = [float(line.split()[0]) for line in err.splitlines()[2:] if not line.split("  ")[-1].startswith(" ")]
    assert total > 0 and max(top) <= total


# -- expected errors ---------------------------------------------------------------------------------------

BAD = "%x = arith.adf %y {}\n"


@pytest.mark.parametrize(
    "comments",
    [
        "// expected-error@+1 {{unknown op 'arith.adf'}}\n" + BAD,
        "// expected-error@below {{unknown op}}\n// COM\n".replace("// COM\n", "") + BAD,
        BAD + "// expected-error@-1 {{unknown op}}\n",
        BAD + "// expected-error@above {{unknown op}}\n",
        BAD.rstrip() + " // expected-error {{did you mean}}\n",
        "// expected-error-re@+1 {{unknown op '{{[a-z.]+}}'}}\n" + BAD,
        "func.func @f() {\n  func.return\n}\n",
    ],
)
def test_diagnostics_as_expected(opt, module: Path, comments: str) -> None:
    module.write_text(comments)
    status, _, err = opt(module, "--verify-diagnostics")
    assert (status, err) == (0, "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BAD, ":1:6: error: unexpected error: unknown op"),
        ("// expected-error@+2 {{unknown op}}\n" + BAD, "expected error was not produced: unknown op"),
        ("// expected-error@+1 {{something else}}\n" + BAD, "unexpected error: unknown op"),
        ("// expected-error@+1 {{something else}}\n" + BAD, "expected error was not produced: something else"),
        ("// expected-error@+1 {{nothing}}\nfunc.func @f() {\n  func.return\n}\n", "was not produced: nothing"),
        ("// expected-error@+1 {{unknown op}} {{\n// expected-error@+1 {{twice}}\n", "malformed expectation"),
        ("// expected-error {unknown op}\n" + BAD, "malformed expectation"),
        ("// expected-error-re@+1 {{a{{(}}}}\n" + BAD, "malformed regular expression"),
        ("// expected-note@+1 {{unknown op}}\n" + BAD, "expected note was not produced"),
    ],
)
def test_diagnostics_that_differ(opt, module: Path, text: str, message: str) -> None:
    module.write_text(text)
    status, out, err = opt(module, "--verify-diagnostics")
    assert (status, out) == (1, "")
    assert message in err


def test_diagnostics_in_each_part(opt, module: Path) -> None:
    """An expectation of one part is not met by the same error in another, and all problems are reported."""
    module.write_text(f"// expected-error@+1 {{{{unknown op}}}}\n{BAD}// -----\n{BAD}// -----\n{BAD}")
    status, _, err = opt(module, "--verify-diagnostics", "--split-input-file")
    assert status == 1
    assert err.count("unexpected error") == 2
    assert ":4:6: error" in err and ":6:6: error" in err


def test_expected_twice_needs_two_errors() -> None:
    expected = parse_expected("// expected-error@+2 {{a}}\n// expected-error@+1 {{a}}\nx", "f")
    error = LightNetError("a", SourceLoc("f", 3, 1))
    assert check_errors(expected, [error])[0].message == "expected error was not produced: a"
    expected = parse_expected("// expected-error@+2 {{a}}\n// expected-error@+1 {{a}}\nx", "f")
    assert check_errors(expected, [error, error]) == []


def test_expected_unknown_place_and_note() -> None:
    expected = parse_expected("// expected-error@unknown {{a}}\n// expected-note@+1 {{b}}\nx", "f")
    error = LightNetError("has a", notes=[(SourceLoc("f", 3, 1), "has b")])
    assert check_errors(expected, [error]) == []


def test_split_reports_every_error(opt, module: Path) -> None:
    module.write_text(f"{MODULE}// -----\n{BAD}// -----\n{BAD}")
    status, out, err = opt(module, "--split-input-file")
    assert (status, out) == (1, "")
    assert "in.mlir:8:6: error" in err and "in.mlir:10:6: error" in err


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_the_errors_of_all_parts_come_once_and_in_order(opt, module: Path, count: int) -> None:
    module.write_text(MODULE + f"// -----\n{BAD}" * count)
    status, _, err = opt(module, "--split-input-file")
    assert status == 1
    assert re.findall(r"in\.mlir:(\d+):\d+: error", err) == [str(8 + 2 * k) for k in range(count)]


# -- plugins -----------------------------------------------------------------------------------------------

PLUGIN = """
from dataclasses import dataclass
from xdsl.ir import Dialect
from xdsl.passes import ModulePass
@dataclass(frozen=True)
class {cls}(ModulePass):
    \"\"\"{cls} of a plugin.\"\"\"
    name = "{name}"
    target: str = "none"
    times: int = 1
    label: str | None = None
    def apply(self, ctx, op):
        {body}
"""


def plugin(tmp_path: Path, name: str = "mine", body: str = "pass", cls: str = "Mine", file: str = "plug.py") -> Path:
    path = tmp_path / file
    path.write_text(PLUGIN.format(name=name, body=body, cls=cls))
    return path


def test_loaded_pass_runs_and_leaves_no_trace(opt, tmp_path: Path, module: Path) -> None:
    file = plugin(tmp_path, body="[o.detach() or o.erase() for o in list(op.body.block.ops)]")
    for _ in range(2):
        assert opt("--load", file, "--pass=mine", module)[:2] == (0, "builtin.module {\n}\n")
    assert "mine" not in registry.PASSES
    assert opt("--pass=mine", module)[0] == 1


def test_pass_options_and_target(opt, tmp_path: Path, module: Path) -> None:
    file = plugin(tmp_path, body="print(self.target, self.times, self.label)")
    assert opt("--load", file, "--pass=mine", module)[1].startswith("cpu 1 None\n")
    assert opt("--load", file, "--pass=mine{times=3 label=x}", "-t", "none", module)[1].startswith("none 3 x\n")
    assert opt("--load", file, "--pass=mine{target=cpu}", "--target=none", module)[1].startswith("cpu 1 None\n")
    assert (
        "pass 'mine': option 'times' takes int, but gets 'x'" in opt("--load", file, "--pass=mine{times=x}", module)[2]
    )
    known = "pass 'mine' has no option 'time'; there are: target: str, times: int, label: str | None"
    assert known in opt("--load", file, "--pass=mine{time=1}", module)[2]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "plan",
            "plug.py: error: pass 'plan' is defined twice: by lightnet.passes.plan:PlanPass and by plugin.plug:Mine",
        ),
        ("cse", "plug.py: error: pass 'cse' is defined twice: by xdsl."),
    ],
)
def test_clash_names_both_sides(opt, tmp_path: Path, module: Path, name: str, message: str) -> None:
    status, _, err = opt("--load", plugin(tmp_path, name=name), module)
    assert status == 1
    assert message in err


def test_clash_of_two_plugins(opt, tmp_path: Path, module: Path) -> None:
    first, second = plugin(tmp_path, file="one.py"), plugin(tmp_path, file="two.py", cls="Other")
    status, _, err = opt("--load", first, "--load", second, module)
    assert status == 1
    both = f"by plugin.one:Mine ({first}) and by plugin.two:Other ({second})"
    assert f"{second}: error: pass 'mine' is defined twice: {both}" in err
    assert "mine" not in registry.PASSES


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = (", "plug.py:1:5: error: not valid Python"),
        ("\n1 // 0\n", "plug.py:2: error: the file cannot be loaded: ZeroDivisionError"),
        ("import no_such_module_of_anybody", "plug.py:1: error: the file cannot be loaded: ModuleNotFoundError"),
    ],
)
def test_broken_plugin(opt, tmp_path: Path, module: Path, text: str, message: str) -> None:
    (tmp_path / "plug.py").write_text(text)
    status, _, err = opt("--load", tmp_path / "plug.py", module)
    assert status == 1
    assert message in err
    assert "Traceback" not in err


def test_crashing_pass(opt, tmp_path: Path, module: Path) -> None:
    file = plugin(tmp_path, body="return 1 // 0")
    status, out, err = opt("--load", file, "--pass=mine", module)
    assert (status, out) == (1, "")
    assert "error: pass 'mine' crashed: ZeroDivisionError" in err
    assert "plug.py:13: note: in apply" in err
    assert "Traceback" not in err
    assert "Traceback" in opt("--load", file, "--pass=mine", "--traceback", module)[2]


def test_pass_that_breaks_the_module(opt, tmp_path: Path, module: Path) -> None:
    body = "next(o for o in op.walk() if o.name == 'func.return').operands = []"
    file = plugin(tmp_path, body=body)
    _, _, err = opt("--load", file, "--pass=mine,dce", module)
    assert "in.mlir:5:3: error: 'func.return' op: " in err
    assert "--verify-each names the pass" in err
    _, _, err = opt("--load", file, "--pass=mine,dce", "--verify-each", module)
    assert "does not verify after the passes: pass 'mine' made it" in err


DIALECT = """
from xdsl.ir import Dialect
from xdsl.irdl import IRDLOperation, irdl_op_definition
@irdl_op_definition
class Hi(IRDLOperation):
    'Says hi.'
    name = "mine.hi"
    assembly_format = "attr-dict"
Mine = Dialect("mine", [Hi], [])
"""


def test_loaded_dialect(opt, tmp_path: Path, module: Path) -> None:
    (tmp_path / "dia.py").write_text(DIALECT)
    module.write_text("mine.hi")
    assert opt("--load", tmp_path / "dia.py", module)[:2] == (0, "builtin.module {\n  mine.hi\n}\n")
    assert re.search(r"^mine\.hi +Says hi", opt("--load", tmp_path / "dia.py", "--list-ops")[1], re.MULTILINE)
    assert opt(module)[0] == 1


def test_stdin_in_process(opt, monkeypatch: pytest.MonkeyPatch, module: Path) -> None:
    with module.open() as f:
        monkeypatch.setattr(sys, "stdin", f)
        assert opt("-")[1] == opt(module)[1]
    assert isinstance(sys.stdin, io.IOBase) or sys.stdin is not None


def test_warnings_of_a_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Shown with their places, silenced by -w, errors under -Werror; the module is the same."""
    net = tmp_path / "n.net"
    net.write_text("#warning be careful\ncreate(|dst=x|dtype=TL_FLOAT, dims=[2], ran=[-1, 1]);\nrelu(src=x|dst=y|);\n")
    assert ln_opt.main([str(net)]) == 0
    out, err = capsys.readouterr()
    assert err.startswith(f"{net}:1:") and "warning: " in err and "be careful" in err
    assert ln_opt.main(["-w", str(net)]) == 0
    assert capsys.readouterr() == (out, "")
    assert ln_opt.main(["-Werror", str(net)]) == 1
    out, err = capsys.readouterr()
    assert out == "" and "error: " in err and "be careful" in err and "[Werror]" in err
