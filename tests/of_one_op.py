"""Which tests concern one op: those that have its name or its class as a parameter, and files of FileCheck that hold it."""

from __future__ import annotations

import re
from difflib import get_close_matches
from functools import cache
from pathlib import Path

import pytest


def require(name: str) -> None:
    """Raise a `pytest.UsageError`, which lists names that are near, unless an op of the dialect ``ln`` is called so."""
    from lightnet.dialects.ln import dialect

    names = sorted({op.name.removeprefix("ln.") for op in dialect.ops()})
    if name not in names:
        near = get_close_matches(name.removeprefix("ln."), names)
        raise pytest.UsageError(
            f"unknown op '{name}'; " + (f"near are: {', '.join(near)}" if near else "none is near it")
        )


def concerns(item: pytest.Item, name: str) -> bool:
    """Whether a test is about an op of the dialect ``ln``, by what it is called with."""
    function, _, _ = item.nodeid.rpartition("::")[2].partition("[")
    params = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return function == f"test_{name}" or any(_is_about(value, name) for value in params)


def _is_about(value: object, name: str) -> bool:
    if isinstance(value, Path):
        return value.is_file() and name in _ops_of(value)
    if isinstance(value, str):
        return value == name or bool(re.search(rf"\bln\.{re.escape(name)}\b", value))
    if isinstance(value, tuple | list):
        return any(_is_about(one, name) for one in value)
    return getattr(value, "optype", None) == name


@cache
def _ops_of(path: Path) -> frozenset[str]:
    return frozenset(re.findall(r"\bln\.(\w+)", path.read_text("utf-8", "replace")))
