"""Errors as text: what is suggested, what is escaped, and where the caret stands."""

from __future__ import annotations

import pytest

from lightnet.diagnostics import LightNetError, SourceLoc, did_you_mean, printable


@pytest.mark.parametrize("names, text", [
    ([], ""), (["a"], "; did you mean a?"), (["a", "b"], "; did you mean a or b?"), (["a", "b", "c"], "; did you mean a, b or c?"),
])  # fmt: skip
def test_suggestions(names: list[str], text: str) -> None:
    assert did_you_mean(names) == text


@pytest.mark.parametrize("text, kept, shown", [
    ("plain é", "", "plain é"), ("a\x1b[31m", "", "a\\x1b[31m"), ("a\nb\t", "\n", "a\nb\\t"), ("\u202e", "", "\\u202e"),
])  # fmt: skip
def test_what_a_terminal_would_obey_is_escaped(text: str, kept: str, shown: str) -> None:
    assert printable(text, kept) == shown


def test_the_caret_stands_under_the_column() -> None:
    error = LightNetError("no", SourceLoc("f.il", 3, 5), source_line="abc def")
    lines = error.render().split("\n")
    assert lines[0] == "f.il:3:5: error: no"
    assert lines[2].index("^") - lines[1].index("abc") == 4
