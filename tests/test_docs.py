"""What a new user meets: the README, the pages of docs/, the examples and the scaffolds do what they say.

A code block of a page runs, unless the comment above it says why not (`<!-- not run: … -->`) or which file it is part of.
"""

from __future__ import annotations

import importlib.util
import io
import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import chdir, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import commands
import pytest
from filecheck_runner import collect, parse, run_file, run_script

from lightnet.ir.registry import FAMILIES

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
GENERATED = (
    "ops.md",
    "passes.md",
    "cli.md",
    "targets.md",
    "patterns.md",
    "upstream-ops.md",
    "edge-values.md",
    "api.md",
    "verdicts.md",
)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

_BLOCK = re.compile(
    r"(?:^<!-- (?P<note>[^\n]*) -->\n)?^```(?P<language>\w*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass
class Block:
    """A code block of a page, and the comment above it."""

    page: Path
    line: int
    language: str
    code: str
    note: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks(page: Path) -> list[Block]:
    text = page.read_text("utf-8")
    return [
        Block(page, text.count("\n", 0, m.start("code")) + 1, m["language"], m["code"], m["note"] or "")
        for m in _BLOCK.finditer(text)
    ]


WRITTEN = [b for page in PAGES if page.name not in GENERATED for b in blocks(page)]
CODE = [b for b in WRITTEN if b.language in ("sh", "python")]


@pytest.fixture
def workspace(tmp_path: Path):
    """An empty folder with the examples in it, as a user would have them, which is the current one."""
    (tmp_path / "examples").symlink_to(EXAMPLES)
    with chdir(tmp_path):
        yield tmp_path


# -- pages -----------------------------------------------------------------------------------------------------------


def ran() -> list:
    """Blocks that run, those of the README always."""
    drawn = pytest.mark.sampled(every=5, share=0.2)
    return [b if b.page.name == "README.md" else pytest.param(b, marks=drawn) for b in CODE if not b.note]


@pytest.mark.parametrize("block", ran(), ids=str)
def test_block_runs(block: Block, workspace: Path) -> None:
    if block.language == "python":
        with redirect_stdout(io.StringIO()):
            exec(compile(block.code, str(block), "exec"), {"__name__": "__main__"})
        return
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.code],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env=commands.environment(),
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("block", [b for b in WRITTEN if b.note], ids=str)
def test_note_is_one_that_we_know(block: Block) -> None:
    kind, _, value = block.note.partition(": ")
    assert kind in ("not run", "part of", "tour") and value  # tools/tour.py writes what is shown on the tour
    if kind == "part of":
        assert block.code in (ROOT / value).read_text("utf-8")


def test_blocks_are_found() -> None:
    """The README has both users' commands, and the page on passes its 40 lines at most."""
    assert {(b.page.name, b.language) for b in CODE if not b.note} >= {("README.md", "sh"), ("README.md", "python")}
    shown = next(b for b in CODE if b.page.name == "write-a-pass.md")
    assert len([line for line in shown.code.splitlines() if line.strip()]) < 40


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", _BLOCK.sub("", page.read_text("utf-8"))):
        if target.startswith("https://"):
            continue
        path, _, fragment = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        if fragment:
            assert fragment in headings(file), target


def headings(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w-]", "", t.lower().replace(" ", "-")) for t in titles}


def test_generated_pages_are_fresh() -> None:
    """`make docs` writes them again."""
    assert tool("docs").stale() == []


def tool(name: str):
    spec = importlib.util.spec_from_file_location(f"tools_{name}", ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# -- examples --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [p for p in collect(EXAMPLES) if p.suffix == ".mlir"], ids=lambda p: p.name)
def test_example_filecheck(path: Path) -> None:
    run_file(path)


@pytest.mark.parametrize("command", ["lightnet %s.json", "lightnet %s.net", "il2json %s.net | lightnet -"])
def test_three_op_example(command: str, workspace: Path) -> None:
    """The tensor that LightNet's documents show, then the run-time line, and no file."""
    before = sorted(workspace.iterdir())
    line = command.replace("%s", "examples/example") + " > out.txt"
    run_script(line, list(parse(line, line)))
    out = (workspace / "out.txt").read_text()
    shown = r"tensor2:\n\[\[2.000 3.000 4.000\]\n \[6.000 7.000 8.000\]\]\ninfo: run time: \d+\.\d{6}s\n"
    assert re.fullmatch(shown, out)
    assert sorted(workspace.iterdir()) == sorted([*before, workspace / "out.txt"])


def test_op_of_a_file() -> None:
    """The op of examples/my_op.py on the machine and in the interpreter."""
    for target in ("cpu", "none"):
        words = ["--load", "examples/my_op.py", "-t", target, "examples/my_op.net"]
        done = subprocess.run(
            ["lightnet", *words], capture_output=True, text=True, cwd=ROOT, env=commands.environment()
        )
        assert done.stdout.startswith("y:\n[[0.000 0.000 0.000]\n [0.500 2.000 4.500]]\n"), done.stderr


def test_demo(workspace: Path) -> None:
    """The network of `make demo` sees most shapes in its picture, fitted to fewer pictures than it is there."""
    done = subprocess.run(
        [sys.executable, "examples/squeezedet.py", "--pictures", "10"],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
        env={**os.environ, "LIGHTNET_VERIFY": ""},
    )
    assert done.returncode == 0, done.stderr
    right, there = map(int, re.search(r"^(\d+) of (\d+) right$", done.stdout, re.MULTILINE).groups())
    assert there == 6 and right >= 4
    c_plan = json.loads((ROOT / "tests/data/nets/compiled-cpu/squeezedet.json").read_text())["mem_sizes_l"][1]
    assert f"{c_plan:,} bytes" in done.stdout
    assert (workspace / "build" / "squeezedet.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (workspace / "build" / "squeezedet-plan.html").read_text("utf-8")


# -- scaffolds -------------------------------------------------------------------------------------------------------


def test_scaffolds(tmp_path: Path) -> None:
    """A new pass and a new op work at once, in a copy of the project."""
    copy_of_package(tmp_path)
    (tmp_path / "tests" / "filecheck" / "passes").mkdir(parents=True)
    run_tool(tmp_path, "new_pass.py", "my-new-pass", "Does nothing yet.")
    run_tool(tmp_path, "new_op.py", "elementwise", "my_op", "The identity.")
    test = tmp_path / "tests" / "filecheck" / "passes" / "my-new-pass.mlir"
    test.write_text(test.read_text().replace("ln.relu", "ln.my_op"))
    ln_opt = [sys.executable, "-m", "lightnet.cli.ln_opt", str(test), "--pass=my-new-pass,expand,plan"]
    done = subprocess.run(ln_opt, capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": "."})
    assert done.returncode == 0, done.stderr
    assert "ln.my_op" in done.stdout
    again = run_tool(tmp_path, "new_pass.py", "my-new-pass", "Does nothing yet.", status=1)
    assert "there already" in again
    assert "there are: " in run_tool(tmp_path, "new_op.py", "no-family", "x", "y", status=1)
    for family, optype, words in (
        ("elementwise", "my_op", "is taken, by an op of the family 'elementwise'"),
        ("unary", "relu", "is taken, by an op of the family 'elementwise'"),
        ("unary", "unary_row", "'UnaryRow', which its class would be called, is taken"),
        ("unary", "exp", "is taken, by an op of the family 'unary'"),
        ("unary", "MyOp", "is no name for an op"),
    ):
        assert words in run_tool(tmp_path, "new_op.py", family, optype, "It does nothing.", status=1)
    for operator, words in (
        ("Relu", "pairs.py knows already"),
        ("Gemm", "knows already"),
        ("my::Cap", "is no operator of ONNX itself"),
    ):
        assert words in run_tool(tmp_path, "new_op.py", "unary", "my_cap", "It caps.", "--onnx", operator, status=1)
    for domain in ("9,1", "1", "0,x"):
        refused = run_tool(tmp_path, "new_op.py", "unary", "my_cap", "It caps.", "--domain", domain, status=1)
        assert f"'{domain}' is no domain" in refused
    onnx = (
        "--onnx",
        "Tanhs",
        "--expression",
        f"max({' + '.join(['src'] * 12)}, 0)",
        "--numpy",
        f"lambda x: {'+'.join('x' * 40)}",
    )
    assert "no operator 'Tanhs' (near are: Tanh" in run_tool(
        tmp_path, "new_op.py", "unary", "my_cap", "It caps.", *onnx
    )
    made = (tmp_path / "lightnet" / "dialects" / "ln" / "unary.py").read_text("utf-8")
    assert max(map(len, made.splitlines())) <= 120


#: What every op is tested by, for the ops called my_…, without the time that collecting all others takes; and rows there and back.
#: Machine code and PTX are made of the rows, and of a share of the others.
NEW_OPS = """
import sys
import sampling
import test_ops as tests
import test_onnx_export as exported
from onnx import checker
checker.check_model = lambda model: None  # ONNX has no operators of these names
cases = [(name, i) for name, i in tests.CASES if name.startswith("my_")]
names = sorted({name for name, _ in cases})
lowered = {*sampling.draw(names, "new ops", every=4), *sys.argv[1:]}
for name, i in cases:
    tests.test_definition_agrees_with_the_reference(name, i)
    if name in lowered:
        tests.test_loops_agree_with_the_reference(name, i)
for name in sorted(lowered):
    tests.test_cuda_agrees_with_the_reference(name)
for name in sys.argv[1:]:
    module, _ = exported.module_of([op for op, _ in exported.cases_of(name)])
    assert {node.op_type for node in exported.to_onnx(module).graph.node} >= {name.title()}
    exported.test_exported_op_can_be_imported_again(name)
print(*names)
"""


def test_new_op_in_every_family(tmp_path: Path) -> None:
    """An op of each, in a copy of the project: in the project's format, and it passes the tests that every op has. One of a
    family of rows is one line, and its import from ONNX and export to it one more."""
    copy_of_package(tmp_path)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    rows = {
        "unary": ["--expression", "sqrt(src)", "--numpy", "np.sqrt", "--domain", "0.1,9"],
        "activation": ["--expression", "max(src, 0) * 3", "--numpy", "lambda x: np.maximum(x, 0) * 3"],
        "arith": ["--expression", "src1 > src2 ? src1 : 0", "--numpy", "lambda a, b: np.where(a > b, a, 0)"],
    }
    families = sorted({*FAMILIES} - {"structure"})  # which has no ops on tensors
    files = {family: tmp_path / "lightnet" / "dialects" / "ln" / f"{family}.py" for family in families}
    pairs = tmp_path / "lightnet" / "frontends" / "onnx" / "pairs.py"
    new_op = tool("new_op")
    for family, file in files.items():
        before = file.read_text("utf-8"), pairs.read_text("utf-8")
        more = [*rows[family], "--onnx", f"My_{family.title()}"] if family in rows else []
        assert new_op.main([family, f"my_{family}", "What it is.", "--root", str(tmp_path), *more]) == 0
        after = file.read_text("utf-8"), pairs.read_text("utf-8")
        if family in rows:
            assert [len(b.splitlines()) - len(a.splitlines()) for a, b in zip(before, after)] == [1, 1]
    for words in (["check", "-q"], ["format", "--check", "-q"]):
        command = [sys.executable, "-m", "ruff", *words, str(pairs), *map(str, files.values())]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    command = [sys.executable, "-c", NEW_OPS, *(f"my_{family}" for family in rows)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [f"my_{family}" for family in families]


def copy_of_package(folder: Path) -> None:
    """The package in a folder, with its byte code, which stays valid as files keep their times: compiling it takes ten seconds."""
    shutil.copytree(ROOT / "lightnet", folder / "lightnet")


def run_tool(root: Path, *words: str, status: int = 0) -> str:
    command = [sys.executable, str(ROOT / "tools" / words[0]), *words[1:], "--root", str(root)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    return done.stdout + done.stderr
