"""Collects the FileCheck tests of `tests/filecheck`, and tests their runner."""

from __future__ import annotations

from pathlib import Path

import pytest
from filecheck_runner import TestFailure, collect, missing_features, run_file

ROOT = Path(__file__).parent / "filecheck"


@pytest.mark.parametrize("path", collect(ROOT), ids=lambda p: str(p.relative_to(ROOT)))
def test_filecheck(path: Path) -> None:
    if missing := missing_features(path):
        pytest.skip(f"requires {', '.join(missing)}")
    failure = None
    try:
        run_file(path)
    except TestFailure as e:
        failure = str(e)
    if failure is not None:
        pytest.fail(failure, pytrace=False)


MODULE = """
func.func @f(%a: i32) -> i32 {
  %b = arith.addi %a, %a : i32
  func.return %b : i32
}
"""


def run_text(tmp_path: Path, text: str, name: str = "test.mlir") -> None:
    path = tmp_path / name
    path.write_text(text)
    run_file(path)


@pytest.mark.parametrize(
    "text",
    [
        "// RUN: ln-opt %s | filecheck %s\n// CHECK: arith.addi\n// CHECK-NEXT: return\n",
        "// RUN: ln-opt %s | filecheck %s --check-prefix=FOO\n// FOO-LABEL: @f\n// FOO-NOT: mul\n// FOO: return\n",
        "// RUN: ln-opt %s | \\\n// RUN:   filecheck %s --check-prefixes A,B\n// A: addi\n// B: return\n",
        "// RUN: ln-opt < %s | filecheck %s\n// CHECK: addi\n",
        "// RUN: ln-opt %s -o %t && filecheck %s --input-file=%t\n// CHECK: addi\n",
        "// RUN: ln-opt %s > %t ; cat %t | filecheck %s --input-file - \n// CHECK: addi\n",
        "// RUN: not ln-opt %s --pass=no-such-pass 2>&1 | filecheck %s\n// CHECK: error: unknown pass 'no-such-pass'\n",
        "// RUN: not ln-opt %s --pass=none 2> %t\n// RUN: filecheck %s --input-file %t\n// CHECK: error\n",
        "// RUN: env A=B sh -c 'echo \"$A\"' | filecheck %s\n// CHECK: B\n",
        "// RUN: echo \"a  'b' %%\" 100 | filecheck %s --strict-whitespace\n// CHECK: a  'b' % 100\n",
        "// RUN: sh -c 'echo out; echo err >&2' 2>&1 >%t | filecheck %s\n// CHECK-NOT: out\n// CHECK: err\n",
        "// RUN: sh -c 'echo out; echo err >&2' >%t 2>&1 ; filecheck %s --input-file %t\n// CHECK: out\n// CHECK: err\n",
        "// RUN: ln-opt %s\n// COM: CHECK: not read\n// Note: prose\n",
    ],
)
def test_passes(tmp_path: Path, text: str) -> None:
    run_text(tmp_path, text + MODULE)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("// RUN: ln-opt %s | filecheck %s\n// CHECK: arith.muli\n", "arith.muli"),
        ("// RUN: ln-opt %s | filecheck %s\n// CHECK: return\n// CHECK: addi\n", "addi"),
        ("// RUN: ln-opt %s | filecheck %s\n// CHECK-NOT: addi\n// CHECK: return\n", "addi"),
        ("// RUN: ln-opt %s\n// CHECK: arith.addi\n", "no RUN line reads the prefix of '// CHECK:'"),
        ("// RUN: ln-opt %s | filecheck %s\n// CHECK: addi\n// FOO-NEXT: return\n", "no RUN line reads the prefix"),
        ("// RUN: ln-opt %s | filecheck %s\n// CHECK: addi\n// CHECK-NXET: return\n", "no RUN line reads the prefix"),
        ("// RUN: ln-opt %s | filecheck %s\n// CHECK: addi\n// check-next: return\n", "no RUN line reads the prefix"),
        ("// RUN: ln-opt %s | filecheck %s --check-prefix=FOO\n", "reads the prefix FOO, which no line has"),
        ("// RUN: ln-opt %s\n// expected-error@+1 {{x}}\n", "no RUN line has --verify-diagnostics"),
        ("", "no RUN line"),
        ("// RUN: not ln-opt %s\n", "(status 0)"),
        ("// RUN: ln-opt %s --pass=none | cat\n", "unknown pass 'none'"),
        ("// RUN: ln-opt %s && false\n", "$ false"),
        ("// RUN: no-such-command %s\n", "cannot run no-such-command"),
        ("// RUN: ln-opt %s || true\n", "shell syntax"),
        ("// RUN: ln-opt %s | \n// RUN: | filecheck %s\n// CHECK: x\n", "empty command"),
    ],
)
def test_fails(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(TestFailure) as failure:
        run_text(tmp_path, text + MODULE)
    assert message in str(failure.value)


def test_crash_is_no_expected_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`not` accepts an exit status, never an exception."""
    monkeypatch.setattr("lightnet.cli.ln_opt.main", lambda argv: 1 // 0)
    with pytest.raises(TestFailure, match="crashed"):
        run_text(tmp_path, "// RUN: not ln-opt %s\n")


def test_streams_are_restored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_text(tmp_path, "// RUN: ln-opt %s | filecheck %s\n// CHECK: addi\n" + MODULE)
    print("still here")
    assert capsys.readouterr().out == "still here\n"
