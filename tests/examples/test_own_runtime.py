"""A target owns its runtime: a third target, from a folder outside of the project, runs, is saved, profiled and checked; options are its own; and
nothing of the compiler asks which target it is."""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import lightnet
from lightnet.cli import lightnet as cli
from lightnet.cli import ln_opt
from lightnet.cli.common import run_tool
from lightnet.deploy import kinds_of
from lightnet.diagnostics import LightNetError
from lightnet.ir.registry import RUNTIMES, TARGETS
from lightnet.ir.runtime import INTERPRETED, Option, Runtime
from lightnet.ir.target import get_target
from lightnet.runtime import lnx
from lightnet.runtime.listed import KERNEL_LINE, ListedCode, ListedLine
from lightnet.runtime.program import Program, Tensor

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "accelerator"
NET = ROOT / "examples" / "accelerator.mlir"
NETS = ROOT / "examples" / "nets"

needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler (cc)")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the target, where the project knows nothing of it."""
    return Path(shutil.copytree(EXAMPLE, tmp_path / "accelerator", ignore=shutil.ignore_patterns("__pycache__")))


def test_it_is_small() -> None:
    """A target with machine, cost model, code of its own, options and files: under 400 lines, blank ones and comments included."""
    assert sum(len(path.read_text("utf-8").splitlines()) for path in EXAMPLE.rglob("*.py")) < 400


@needs_cc
def test_a_third_target_from_the_command_line(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It runs, agrees with the interpreter, is profiled, saved, run from the file, and its lowering is checked."""
    load = ["--load", str(folder), "-t", "npu"]
    saved, prefix = str(folder.parent / "net.lnx"), str(folder.parent / "net")
    for words, wanted in [
        (["run", *load, str(NET), "-i", "random", "--compare", "interpreter", "--profile"], ["agrees", "tile.copy", "conv2d_relu_0"]),
        (["compile", *load, str(NET), "--effort=1", "--emit=lnx,c,mlir", "-o", prefix], ["for npu, 1 thread"]),
        (["run", "--load", str(folder), saved, "-i", "random"], ["1x64x16x16"]),
        (["run", "--load", str(folder), saved, "-i", "random", "--profile", "--rounds=1"], ["sum of 4 kernels"]),
        (["inspect", "--load", str(folder), saved], ["effort=1", "sram"]),
    ]:  # fmt: skip
        assert run_tool(cli.main, words) == 0, (words, capfd.readouterr().err)
        out = capfd.readouterr().out
        assert all(text in out for text in wanted), (words, out)
    assert "void conv2d_0(" in Path(f"{prefix}.c").read_text() and "tile.copy" in Path(f"{prefix}.mlir").read_text()
    assert (
        run_tool(ln_opt.main, ["--load", str(folder), "--pass=@npu", "--check", str(NET), "-o", f"{prefix}.out"]) == 0
    )
    assert "2 of 2 kernel functions are executed" in capfd.readouterr().err
    assert run_tool(cli.main, ["run", saved, "-i", "random"]) == 1
    assert "the code is for target 'npu', which nothing here knows" in capfd.readouterr().err


@needs_cc
def test_a_wrong_lowering_of_a_third_target_is_found(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """`--check` runs what its pass makes: one that swaps two places is named with the op."""
    (folder / "wrong.py").write_text(
        "from dataclasses import dataclass\n\nfrom lightnet.dialects.launch import LaunchOp, lines_of\nfrom lightnet.ir.passes import LnPass\n"
        "from lightnet.passes.lower_cpu import LowerCpuPass\nfrom xdsl.dialects.builtin import ArrayAttr\n\n\n@dataclass(frozen=True)\n"
        "class Wrong(LnPass):\n    name = 'lower-npu'\n    level, makes = 'plan', 'loops'\n\n    def apply(self, ctx, op):\n"
        "        LowerCpuPass().apply(ctx, op)\n        for line in lines_of(op):\n"
        "            if isinstance(line, LaunchOp) and 'relu' in line.callee.string_value():\n"
        "                places = list(line.args.data)\n                places[1], places[2] = places[2], places[1]\n"
        "                line.properties['args'] = ArrayAttr(places)\n"
    )
    init = folder / "__init__.py"
    init.write_text(init.read_text().replace('"lower-cpu"', '"lower-npu"') + "from .wrong import Wrong\n")
    assert (
        run_tool(ln_opt.main, ["--load", str(folder), "--pass=@npu", "--check", str(NET), "-o", str(folder / "out")])
        == 1
    )
    error = capfd.readouterr().err
    assert "pass 'lower-npu' changed the result: @conv2d_relu_0" in error


@needs_cc
def test_a_third_target_from_python(folder: Path) -> None:
    """Options with types; the same surface as other executables; a network of its own size, against target cpu."""
    with lightnet.plugins.load(str(folder)):
        runtime = get_target("npu").own_runtime
        assert set(kinds_of(runtime)) == {"lnx", "c", "mlir"} and [o.name for o in runtime.options] == ["cc", "effort"]
        executable = lightnet.compile(NET, "npu", effort=0)
        assert executable.is_native and executable.options["effort"] == 0 and executable.program.triple == "npu"
        feeds = {"x": np.random.default_rng(0).normal(size=(1, 32, 16, 16)).astype("f")}
        want = lightnet.compile(NET, "none")(feeds)["y"]
        np.testing.assert_allclose(executable(feeds)["y"], want, rtol=1e-4, atol=1e-4 * np.abs(want).max())
        for options, message in [
            ({"thread": 1}, r"no option 'thread'; did you mean threads\?; its own are cc, effort"),
            ({"efort": 1}, r"no option 'efort'; did you mean effort\?; its own are cc, effort"),
            ({"effort": "1"}, "the option 'effort' takes int, not '1'"),
            ({"arch": "sm_80"}, r"\('arch' is of target cuda\); its own are cc, effort"),
            ({"cc": "no-such-compiler"}, "the C compiler does not run"),
        ]:
            with pytest.raises(LightNetError, match=message):
                lightnet.compile(NET, "npu", **options).prepare()
        with pytest.raises(LightNetError, match="cannot emit 'so' for target npu; there are: lnx, c, mlir"):
            lightnet.deploy.emit(executable, {"so": "net.so"}, "net")
        planned = lightnet.compile(NET, "npu", pipeline="@npu:plan")
        assert not planned.is_native  # the interpreter, on the plan
        np.testing.assert_allclose(planned(feeds)["y"], want, rtol=1e-4, atol=1e-4 * np.abs(want).max())


@needs_cc
def test_help_shows_the_options_of_the_target(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for tool in ("run", "compile"):
        with pytest.raises(SystemExit):
            cli.main([tool, "--load", str(folder), "-t", "npu", "--help"])
        out = capsys.readouterr().out
        assert "--effort N" in out and "--arch" not in out
        with pytest.raises(SystemExit):
            cli.main([tool, "--help"])
        out = capsys.readouterr().out
        assert "--arch NAME" in out and "--effort" not in out


def test_options_at_the_command_line_are_those_of_the_runtimes(capsys: pytest.CaptureFixture[str]) -> None:
    """None is declared a second time: each of a runtime's is there, in the tools that it says."""
    for tool, main in (("run", ["run"]), ("compile", ["compile"]), ("run", ["serve"])):
        with pytest.raises(SystemExit):
            cli.main([*main, "--help"])
        out = capsys.readouterr().out
        for name in RUNTIMES:
            for option in RUNTIMES.get(name).options:
                assert (f"{option.flag} " in out or f"{option.flag}\n" in out) == (tool in option.tools), (
                    main,
                    option.name,
                )


def test_the_table_of_runtimes_is_what_targets_have() -> None:
    """It has those that are not the interpreter's, and the one of the target `none`."""
    for name in [name for name in TARGETS if not TARGETS.is_added(name)]:
        known = RUNTIMES.get(name) if name in RUNTIMES._rows else INTERPRETED
        assert get_target(name).own_runtime is known, name


def test_an_option_of_another_target_at_its_default_says_nothing() -> None:
    """So that callers of several targets may hand all of them on."""
    model = lightnet.load(ROOT / "examples" / "cnn.net")
    assert lightnet.compile(model, "none", on_cpu=False, cpu="host").options.keys().isdisjoint({"on_cpu", "cpu"})
    for target, others in (("cpu", {"arch": None, "emulate": False}), ("cuda", {"cpu": "host", "triple": None})):
        assert get_target(target).own_runtime.given(target, others) == {}
    with pytest.raises(LightNetError, match="'emulate' is of target cuda"):
        lightnet.compile(model, "cpu", emulate=True)
    with pytest.raises(LightNetError, match="has no option 'emulat'"):
        lightnet.compile(model, "cuda", emulat=None)


def test_an_option_is_of_its_type() -> None:
    class Mine(Runtime):
        options = (Option("size", "", int), Option("share", "", float), Option("fast", "", bool), Option("kind", ""))

    mine = Mine()
    assert mine.given("t", {"size": 3, "share": 1, "fast": True, "kind": None}) == {"size": 3, "share": 1, "fast": True}
    for name, value in (("size", True), ("size", 1.5), ("share", "1"), ("fast", 1), ("kind", 3)):
        with pytest.raises(LightNetError, match=f"the option '{name}' takes"):
            mine.given("t", {name: value})
    assert mine.settle({"size": 3}).options == {"size": 3, "share": None, "fast": None, "kind": None}


# -- files that lie --------------------------------------------------------------------------------------------------

PROGRAM = Program((), {"arena": 64, "sram": 16}, (Tensor("x", (4,), "f32", "arena", 0),), (), ())


@pytest.mark.parametrize(
    "line",
    [
        [KERNEL_LINE, [["arena", 65]], "k", 1], [KERNEL_LINE, [["arena", -1]], "k", 1], [KERNEL_LINE, [["no", 0]], "k", 1], ["jump", [], "k", 1],
        ["copy", [["arena", 0], ["sram", 8]], "", 16], ["copy", [["arena", 0]], "", 8], ["copy", [["arena", 0], ["sram", 0]], "", -8],
        ["host", [["arena", 0]], "", 0], [KERNEL_LINE, [["arena"]], "k", 1], [KERNEL_LINE, "arena", "k", 1],
    ],
)  # fmt: skip
def test_a_launch_list_of_a_file_is_checked(line: list) -> None:
    with pytest.raises((ValueError, LookupError, TypeError)):
        ListedCode.from_header({"lines": [line]}, b"", PROGRAM)


def test_a_launch_list_is_read_as_it_was_written() -> None:
    code = ListedCode(
        b"abc",
        (
            ListedLine(KERNEL_LINE, (("arena", 0), ("sram", 4)), "k", 3),
            ListedLine("copy", (("arena", 0), ("sram", 0)), size=16),
        ),
    )
    assert ListedCode.from_header(code.header(), b"abc", PROGRAM) == code


@needs_cc
def test_damaged_code_of_a_third_target_is_refused(folder: Path) -> None:
    """Code that does not load, and a kernel that is not there: errors, and nothing runs."""
    with lightnet.plugins.load(str(folder)):
        executable = lightnet.compile(NET, "npu", effort=0)
        whole = executable.variant()
        for body, message in [
            (b"no library", "the code does not load here"),
            (None, "the code has no kernel 'no_such'"),
        ]:
            lines = tuple(
                ListedLine(l.kind, l.places, "no_such" if body is None and l.kind == KERNEL_LINE else l.name, l.size)
                for l in whole.code.lines
            )
            code = ListedCode(whole.code.body if body is None else body, lines)
            from dataclasses import replace

            from lightnet.runtime import artifact

            data = artifact.saved_bytes([replace(whole, code=code)], {})
            assert data.startswith(lnx.ANY_VERSION)
            with pytest.raises(LightNetError, match=message):
                lightnet.load_executable(data)


# -- nobody asks -----------------------------------------------------------------------------------------------------

#: What a target's name may be compared in: its own folders, dialects and passes; and where it is a memory type of LightNet's, or the `arch` of an op
#: description, which are upstream's names and no targets.
MAY = (
    "backends/",
    "runtime/cuda/",
    "dialects/cuda",
    "passes/lower_cuda.py",
    "frontends/importer.py",
    "passes/plan_upstream.py",
)


def compared(path: Path) -> Iterator[str]:
    """Comparisons with a target's name, or of an architecture with None."""
    text = path.read_text("utf-8")
    for node in ast.walk(ast.parse(text)) if re.search(r"[\"'](cpu|cuda)[\"']|arch is", text) else ():
        if not isinstance(node, ast.Compare):
            continue
        sides = [node.left, *node.comparators]
        values = [
            s for side in sides for s in (side.elts if isinstance(side, ast.Tuple | ast.List | ast.Set) else [side])
        ]
        named = any(isinstance(s, ast.Constant) and s.value in ("cpu", "cuda") for s in values)
        last = node.left.attr if isinstance(node.left, ast.Attribute) else getattr(node.left, "id", "")
        is_none = last == "arch" and any(isinstance(s, ast.Constant) and s.value is None for s in values)
        if named or is_none:
            yield f"{path}:{node.lineno}: {ast.unparse(node)}"


def imported(path: Path) -> Iterator[str]:
    """Imports of a target's folder, wherever they stand."""
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if re.match(r"\s*(from|import) lightnet\.(backends\.(cpu|cuda)|runtime\.cuda)\b", line):
            yield f"{path}:{number}: {line.strip()}"


def test_nothing_asks_which_target_it_is() -> None:
    package = ROOT / "lightnet"
    files = [p for p in package.rglob("*.py") if not p.relative_to(package).as_posix().startswith(MAY)]
    files += (ROOT / "lightnet_export").rglob("*.py")
    assert [found for path in files for found in compared(path)] == []
    shared = [
        *package.glob("*.py"),
        *(ROOT / "lightnet_debug").glob("*.py"),
        *(ROOT / "lightnet_report").glob("*.py"),
        *(ROOT / "lightnet_trust").glob("*.py"),
        *(package / "cli").glob("*.py"),
    ]
    shared += (package / "runtime").glob("*.py")
    assert [
        found for path in shared if path.name not in ("devices.py", "cuda_steps.py") for found in imported(path)
    ] == []


def test_what_it_looks_for_is_found(tmp_path: Path) -> None:
    path = tmp_path / "asks.py"
    path.write_text(
        'a = target == "cuda"\nb = e.arch is None\nc = target in ("cpu", "none")\nd = arch is not None\ne = other is None\n'
    )
    assert len(list(compared(path))) == 4
