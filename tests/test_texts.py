"""Texts that users give and get: limits of files and numbers at the last that is taken, what a message shows of a long one, keys given twice."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import lightnet
from lightnet import diagnostics, source
from lightnet.cli import checking, feeding
from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.json_text import JsonText, LiteralError, json_number
from lightnet.model import sniff


def refusal(run, *args) -> str:
    with pytest.raises(LightNetError) as caught:
        run(*args)
    return caught.value.message


def test_how_much_of_a_message_is_shown() -> None:
    most = diagnostics.MESSAGE_LENGTH
    assert diagnostics._clipped("a" * most) == "a" * most
    long = "a" * most + "b"
    assert diagnostics._clipped(long) == f"{long[: most // 2]} [...] {long[-(most // 2) :]}"
    assert diagnostics.first_twice("abcb") == "b" and diagnostics.first_twice("abc") == ""
    error = LightNetError("m", source_line="line")
    assert error.render() == "error: m\n  line"
    assert LightNetError("m", SourceLoc("f", 1, 2), source_line="line").render() == "f:1:2: error: m\n  line\n   ^"
    assert (
        diagnostics.did_you_mean(["a"]) == "; did you mean a?"
        and diagnostics.did_you_mean("abc") == "; did you mean a, b or c?"
    )


def test_where_the_compiler_is_not_installed(monkeypatch) -> None:
    for name in ("lightnet.compiler", "xdsl.ir", "llvmlite", "numpy", None):
        assert diagnostics.needs_compiler(ImportError(name=name)) is None
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for name in ("lightnet.compiler", "xdsl.ir", "llvmlite"):
        found = diagnostics.needs_compiler(ImportError(name=name))
        assert (
            found is not None
            and found.message
            == "this needs the compiler, and lightnet-runtime is installed, which runs .lnx files: pip install lightnet-compiler"
        )
    assert diagnostics.needs_compiler(ImportError(name="numpy")) is diagnostics.needs_compiler(ImportError()) is None
    assert lightnet.plugins.__name__ == "lightnet.plugins"


def test_how_much_of_a_file_is_read(tmp_path: Path) -> None:
    path = str(tmp_path / "f")
    Path(path).write_bytes(b"12345")
    assert source.read_text(path, 5) == "12345"
    assert refusal(source.read_text, path, 4) == f"'{path}' is too large: more than 4 bytes"
    lines = source.Lines("a\nbb" + "c" * source.MAX_SHOWN + "\n" + "d" * source.MAX_SHOWN)
    assert (
        lines.line_at(0) == "a"
        and lines.line_at(2) is None
        and lines.line_at(source.MAX_SHOWN + 5) == "d" * source.MAX_SHOWN
    )


@pytest.mark.parametrize(
    "text", ["18446744073709551615", "-9223372036854775808", "0" * 39 + "7", "1e308", "0.5", "-0.0"]
)
def test_numbers_that_are_taken(text: str) -> None:
    is_whole = text.lstrip("-").isdigit()
    assert (
        json_number(text) == (int(text) if is_whole else float(text)) and isinstance(json_number(text), int) == is_whole
    )


@pytest.mark.parametrize("text", ["18446744073709551616", "-9223372036854775809", "0" * 40 + "7", "1e309"])
def test_numbers_that_are_too_large(text: str) -> None:
    with pytest.raises(LiteralError, match=f"the number {text[:40]} (does not fit 64 bits|is too large)"):
        json_number(text)


def test_the_second_of_two_keys() -> None:
    for text, at in (
        ('{"a": 1, "a": 2}', 9),
        ('{"b": {"a": [{"a": 1}, {"a": 1, "c": "a", "a": 2}]}, "a": 0}', 42),
        ('{"a": {"b": 1}, "b": {"b": 2}}', 0),
        ('[{"a": 1}] {"a": 1, "a": 2}', 0),
    ):
        assert JsonText(text, "f").find_duplicate(0) == at, text


def test_what_a_text_is() -> None:
    for text in (
        "module {}",
        "builtin.module {\n}",
        '"builtin.module"() ({}) : () -> ()',
        "func.func @main() {}",
        "%x = ln.input",
        "// c\nfunc.func @f()",
        "#map = affine_map<>",
    ):
        assert sniff(text) == ".mlir", text


def test_arrays_that_are_fed(tmp_path: Path) -> None:
    path = str(tmp_path / "f.npz")
    for count, dots in ((8, ""), (9, ", ...")):
        np.savez(path, **{f"a{k}": np.zeros(1) for k in range(count)})
        there = ", ".join(f"a{k}" for k in range(8))
        assert refusal(feeding.from_file, "x", f"{path}:nope") == f"no array is called 'nope'; there are: {there}{dots}"
    np.savez(path, only=np.arange(3))
    assert feeding.from_file("x", path).tolist() == [0, 1, 2] == feeding.from_file("only", f"{path}:only").tolist()
    np.save(tmp_path / "o.npy", np.array([None]), allow_pickle=True)
    assert refusal(feeding.from_file, "x", str(tmp_path / "o.npy")).startswith("the array has ")
    np.savez(path, o=np.array([None]))
    assert refusal(feeding.from_file, "x", path).startswith("array 'o' has ")
    assert feeding.shapes_of(["x=2x3", "y="]) == {"x": (2, 3), "y": ()}


def test_a_command_of_no_words() -> None:
    assert checking._command(None) is None and checking._command("true x") is not None
    assert refusal(checking._command, "") == "--bisect-command takes a command"
    assert refusal(checking._command, "'a") == "--bisect-command: no closing quotation in ''a'"
