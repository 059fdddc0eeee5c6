"""docs/upstream-map.md: every row of its tables has a snippet that shows what it says, and each runs."""

from __future__ import annotations

import re
from contextlib import chdir
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "upstream-map.md"
#: The section of architectures is prose: tests/backends/test_arches.py is about it.
TABLES = [
    "Containers",
    "Memory",
    "Tensors",
    "Parameters",
    "Operators",
    "Data-flow graph",
    "Context",
    "Passes and architectures",
]


def rows() -> list[tuple[str, str, str]]:
    """(section, what document 004 has, the snippet) of each row."""
    found, section = [], ""
    for line in PAGE.read_text("utf-8").splitlines():
        if line.startswith("## "):
            section = line[3:]
        elif section in TABLES and line.startswith("| ") and not line.startswith(("| ---", "| document 004")):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))]
            assert len(cells) == 3, line
            assert cells[2].startswith("`") and cells[2].endswith("`"), f"no snippet: {line}"
            found.append((section, cells[0], cells[2].strip("`").replace("\\|", "|")))
    return found


@cache
def prelude() -> object:
    block = re.search(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return compile(block[1], str(PAGE), "exec")


ROWS = rows()


def test_every_section_has_rows() -> None:
    assert list(dict.fromkeys(section for section, _, _ in ROWS)) == TABLES
    assert len(ROWS) >= 45


@pytest.mark.sampled(every=3, share=0.25)
@pytest.mark.parametrize(
    ("section", "what", "snippet"), ROWS, ids=[re.sub(r"\W+", "-", what)[:40] for _, what, _ in ROWS]
)
def test_a_row_holds(section: str, what: str, snippet: str, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    names: dict = {"__name__": "snippet"}
    with chdir(tmp_path):
        exec(prelude(), names)
        exec(compile(snippet, f"{PAGE.name}: {what}", "exec"), names)
