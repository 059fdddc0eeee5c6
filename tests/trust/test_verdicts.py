"""Verdicts as JSON: every tool's are of one shape, which a schema says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lightnet.cli import lightnet, ln_opt
from lightnet_trust import ln_reduce, verdicts

jsonschema = pytest.importorskip("jsonschema")

ROOT = Path(__file__).parent.parent.parent
CNN = str(ROOT / "examples" / "cnn.net")
PLANTED = str(Path(__file__).parent / "planted_bugs.py")
MAINS = {"ln-opt": ln_opt.main, "ln-reduce": ln_reduce.main, "lightnet": lightnet.main}
WRONG = f"--load={PLANTED}", "--pass=bind,planted,expand"


def valid(told: dict[str, Any]) -> dict[str, Any]:
    """A verdict, which is of the schema's shape."""
    jsonschema.validate(told, verdicts.SCHEMA)
    return told


def told_by(capsys: pytest.CaptureFixture[str], tool: str, *words: str, status: int = 0) -> dict[str, Any]:
    assert MAINS[tool]([*words, "--json"]) == status
    told = valid(json.loads(capsys.readouterr().out))
    assert told["ok"] == (status == 0)
    return told


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(verdicts.SCHEMA)
    assert set(verdicts.WORDS) == set(verdicts.FIELDS)
    assert all("fails" in words for words in verdicts.WORDS.values())


def test_a_right_pipeline(capsys) -> None:
    told = told_by(capsys, "ln-opt", CNN, "--check", "--pass=bind,simplify,expand")
    assert (told["tool"], told["verdict"], told["passes"], told["error"]) == ("check", "right", 3, None)
    assert told["compared"] > 10 and told["pattern"] is None and "ordinary" in told["data"]


def test_a_wrong_pattern(capsys) -> None:
    told = told_by(capsys, "ln-opt", CNN, "--check", *WRONG, status=1)
    assert (told["verdict"], told["pass"], told["pattern"], told["changed"]) == (
        "wrong",
        "planted",
        "sigmoid_is_tanh",
        "value",
    )
    place = told["error"]["place"]
    assert place["file"].endswith("cnn.net") and "sigmoid" in Path(CNN).read_text().splitlines()[place["line"] - 1]
    assert told["error"]["text"].startswith(f"{place['file']}:{place['line']}:")


def test_a_pass_that_fails(capsys) -> None:
    told = told_by(capsys, "ln-opt", CNN, "--check", f"--load={PLANTED}", "--pass=bind,planted{bug=crash}", status=1)
    assert (told["verdict"], told["error"]["label"], told["passes"]) == ("fails", "planted.window", 1)


def test_a_module_that_cannot_be_executed(tmp_path: Path, capsys) -> None:
    path = tmp_path / "m.mlir"
    path.write_text("func.func @other() { func.return }")
    told = told_by(capsys, "ln-opt", str(path), "--check", "--pass=cse")
    assert told["verdict"] == "unchecked" and "cannot be executed" in told["notes"][0]


def test_the_module_goes_to_a_file_beside(tmp_path: Path, capsys) -> None:
    told_by(capsys, "ln-opt", CNN, "--check", "--pass=bind", "-o", str(tmp_path / "m.mlir"))
    assert "ln.input" in (tmp_path / "m.mlir").read_text()


def test_a_bisection(capsys) -> None:
    told = told_by(capsys, "ln-opt", CNN, "--bisect", *WRONG, status=1)
    assert (told["tool"], told["verdict"], told["pattern"]) == ("bisect", "wrong", "sigmoid_is_tanh") and told[
        "runs"
    ] >= 2
    assert told_by(capsys, "ln-opt", CNN, "--bisect", "--pass=bind,expand")["verdict"] == "right"


def test_json_of_no_verdict(capsys) -> None:
    assert ln_opt.main([CNN, "--json"]) == 1
    assert "it goes with --check or --bisect" in capsys.readouterr().err


def test_a_reduction(tmp_path: Path, capsys) -> None:
    told = told_by(capsys, "ln-reduce", CNN, "--test", "grep -q ln.softmax")
    assert told["verdict"] == "reduced" and told["ops"] < told["ops_before"] and "ln.softmax" in told["module"]
    told = told_by(
        capsys, "ln-reduce", CNN, "--test", "grep -q ln.softmax", "--max-tests", "2", "-o", str(tmp_path / "m")
    )
    assert told["verdict"] == "stopped" and told["stopped"] == "after 2 tests"
    assert (tmp_path / "m").read_text() == told["module"]


def test_nothing_to_reduce(capsys) -> None:
    told = told_by(capsys, "ln-reduce", CNN, "--test", "false", status=1)
    assert (told["tool"], told["verdict"], told["error"]["label"]) == ("reduce", "fails", "reduce.nothing")


def test_an_isolated_fault(capsys) -> None:
    told = told_by(capsys, "ln-reduce", CNN, f"--load={PLANTED}", "--isolate", "bind,simplify,planted,expand")
    assert (told["verdict"], told["pipeline"], told["passes_before"], told["passes"]) == ("isolated", "planted", 4, 1)
    assert told["pattern"] == "sigmoid_is_tanh" and told["shown"]["label"] == "check.value"
    assert told["module"].startswith("// lightnet-reproducer: ")
    assert told_by(capsys, "ln-reduce", CNN, "--isolate", "bind", status=1)["error"]["label"] == "isolate.nothing"


def test_a_comparison(capsys) -> None:
    told = told_by(capsys, "lightnet", "compare", CNN, "--limit", "0.2")
    assert told["tool"] == "compare" and told["verdict"] in verdicts.WORDS["compare"] and told["a"]["seconds"] > 0
    told = told_by(capsys, "lightnet", "compare", CNN, "--limit", "0.2", "--fail-above", "0.01", status=1)
    assert not told["ok"] and told["error"] is None
    assert told_by(capsys, "lightnet", "compare", "no.net", status=1)["verdict"] == "fails"


def test_a_judgement(capsys) -> None:
    words = ["compare", "--verdict", f"--load={PLANTED}"]
    told = told_by(capsys, "lightnet", *words, "--pass", "planted", CNN, status=1)
    assert (told["tool"], told["verdict"]) == ("judge", "wrong") and not told["networks"][0]["right"]
    told = told_by(capsys, "lightnet", *words, "--pass", "planted{bug=epsilon}", CNN)
    assert told["verdict"] == "right" and told["networks"][0]["kernels"]["changed"] == 0


def test_what_is_no_verdict() -> None:
    """The schema refuses what lacks a field, has one more, or says a word that the tool has not."""
    right = verdicts.verdict("passes", "done", True, module="builtin.module {}")
    valid(right)
    for wrong in (
        {**right, "verdict": "right"},
        {**right, "more": 1},
        {**right, "tool": "teapot"},
        {**right, "verdict": "fails"},
        {**right, "module": None},
        {name: value for name, value in right.items() if name != "module"},
        {name: value for name, value in right.items() if name != "notes"},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, verdicts.SCHEMA)
