"""docs/api.md: every name is there, each section has what it promises, and every example runs."""

from __future__ import annotations

import inspect
import re
from contextlib import chdir
from importlib import import_module
from pathlib import Path

import api_page
import pytest

from lightnet.ir.registry import FAMILIES
from lightnet_trust import verdicts

ROOT = Path(__file__).parent.parent.parent
SOURCES = [pytest.param(source, id=source.partition(" ")[0]) for task in api_page.TASKS for source in task.sources]
#: What a pass author had to find in the source, before there was a page.
ONCE_HIDDEN = (
    "keep_names",
    "loc_of",
    "place_of",
    "producer",
    "ParamOp",
    "insert",
    "chain",
    "parse_pipeline",
    "inherit",
    "but",
)
#: Names that may be missing.
LATER = ()


@pytest.mark.parametrize("source", SOURCES)
def test_names_are_there(source: str) -> None:
    """Each can be imported, or asked of the class; a name that the page picks out has something said of it, or its type."""
    where, _, wanted = source.partition(" ")
    module, _, cls = where.partition(":")
    owner = getattr(import_module(module), cls) if cls else import_module(module)
    names = api_page.names_of(source)
    assert names
    fields = getattr(owner, "__dataclass_fields__", {})
    for name in names:
        assert (
            name.name in fields
            or inspect.getattr_static(owner, name.name, None) is not None
            or hasattr(owner, name.name)
        )
        assert not wanted or name.says or name.takes or name.name in ("definition", "samples"), name
    for alternative in wanted.strip("()").split("|") if wanted else ():
        if alternative not in LATER:
            assert any(re.fullmatch(alternative, name.name) for name in names), alternative


@pytest.mark.parametrize("task", [pytest.param(task, id=task.title) for task in api_page.TASKS])
def test_example_runs(task: api_page.Task, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from lightnet.ir import registry

    (tmp_path / "examples").symlink_to(ROOT / "examples")
    restore = registry.checkpoint()
    try:
        with chdir(tmp_path):
            exec(compile(task.code, f"<{task.title}>", "exec"), {"__name__": "__main__"})
    finally:
        restore()


def test_what_was_hidden_stands_in_the_page() -> None:
    page = (ROOT / "docs" / "api.md").read_text()
    missing = [name for name in ONCE_HIDDEN if not re.search(rf"\| `{name}\b", page)]
    assert not missing and "dce=True" in page and "in front of the one that is matched" in page


def test_every_op_has_its_class_there() -> None:
    page = (ROOT / "docs" / "api.md").read_text()
    assert not [
        cls for family in FAMILIES for cls in FAMILIES.get(family) if f"`{cls.__name__}` (`{cls.name}`)" not in page
    ]


def test_every_field_of_a_verdict_stands_in_its_page() -> None:
    page = (ROOT / "docs" / "verdicts.md").read_text()
    rows = {m[1]: m[0] for m in re.finditer(r"^\| `(\w+)` \|.*$", page, re.MULTILINE)}
    for tool, words in verdicts.WORDS.items():
        wanted = [*words, *(name for name, _, _ in verdicts.FIELDS[tool])]
        assert not [name for name in wanted if f"`{name}`" not in rows[tool]]
    assert not [field for field in verdicts.COMMON if field not in rows]
