"""Faults of an older copy of the project in today's text, and of their verdicts those that still hold: ``--carry DIR``.

A fault is carried where its lines are as they were, wherever they are now. Its verdict is carried where the function that it
changes and the test that noticed are as they were, too, letter by letter; it is judged anew otherwise. Of the map, which lines a
test runs is carried for the files of tests that are as they were.
"""

from __future__ import annotations

import ast
from collections.abc import Container, Mapping
from dataclasses import replace
from difflib import SequenceMatcher
from functools import cache
from typing import Any

import numpy as np

from mutations.faults import Fault

#: Verdicts that outlive a change elsewhere.
KEPT = ("found", "equivalent")


def carry(faults: list[Fault], old: Mapping[str, str], new: Mapping[str, str]) -> dict[Fault, Fault]:
    """Faults of the texts `old` as they are in `new`, by file name; those whose lines have changed or gone are missing."""
    found = {}
    for file in sorted({f.file for f in faults} & new.keys()):
        lines = [text[file].encode().splitlines(keepends=True) for text in (old, new)]
        starts = [_starts(part) for part in lines]
        at = _matching(*lines)
        for fault in (f for f in faults if f.file == file):
            touched = range(fault.line - 1, fault.line + fault.old.count("\n"))
            places = [at.get(i) for i in touched]
            if None in places or places[-1] - places[0] != len(touched) - 1:
                continue
            by = starts[1][places[0]] - starts[0][touched[0]]
            found[fault] = replace(fault, line=places[0] + 1, start=fault.start + by, end=fault.end + by)
    return {f: found[f] for f in faults if f in found}


def holds(
    result: Mapping[str, Any], fault: Fault, moved: Fault, old: Mapping[str, str], new: Mapping[str, str]
) -> bool:
    """Whether what was judged of a fault in `old` is so in `new`; both are texts of package and tests by name."""
    if result.get("verdict") not in KEPT or not fault.function:
        return False
    if _around(old[fault.file], fault.line) != _around(new[moved.file], moved.line):
        return False
    if result["verdict"] == "equivalent":
        return True
    file, _, test = str(result["by"]).partition("::")
    name = test.partition("[")[0]
    if not name or file not in old or file not in new:
        return False
    texts = [_named(text[file]).get(name) for text in (old, new)]
    return texts[0] is not None and texts[0] == texts[1]


def carried_map(
    old_map: Mapping[str, np.ndarray],
    old_marks: Mapping[str, Mapping[str, int]],
    new_marks: Mapping[str, Mapping[int, int]],
    size: int,
    old: Mapping[str, str],
    new: Mapping[str, str],
    same: Container[str],
) -> dict[str, np.ndarray]:
    """The rows of an older map whose file of tests is as it was (`same`), with the marks (`size` of them) that the same lines have now.

    `old_marks` and `new_marks` are the marks of lines by file, `old` and `new` the texts of the package by name."""
    kept = np.array([n.partition("::")[0] in same for n in old_map["names"].tolist()], bool)
    was = np.unpackbits(old_map["marks"][kept], axis=1)
    now = np.zeros((was.shape[0], size), np.uint8)
    for file in old_marks.keys() & new_marks.keys():
        at = _matching(*(text[file].splitlines() for text in (old, new)))
        pairs = {(mark, new_marks[file].get(at.get(int(line) - 1, -2) + 1)) for line, mark in old_marks[file].items()}
        for a, b in pairs:
            if b is not None:
                now[:, b] |= was[:, a]
    return {k: old_map[k][kept] for k in ("names", "passed", "seconds")} | {"marks": np.packbits(now, axis=1)}


def _matching(old: list[Any], new: list[Any]) -> dict[int, int]:
    """Where lines of `old` are in `new`, from 0."""
    at: dict[int, int] = {}
    for block in SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks():
        at |= {block.a + i: block.b + i for i in range(block.size)}
    return at


def _starts(lines: list[bytes]) -> list[int]:
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    return starts


@cache
def _functions(text: str) -> list[tuple[ast.FunctionDef | ast.AsyncFunctionDef, str]]:
    """The functions of a text, outer ones first, with their lines (decorators too)."""
    lines = text.splitlines()
    nodes = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    firsts = [min([n.lineno, *(d.lineno for d in n.decorator_list)]) for n in nodes]
    return [(n, "\n".join(lines[first - 1 : n.end_lineno])) for n, first in zip(nodes, firsts)]


def _around(text: str, line: int) -> str | None:
    """The innermost function that a line is in."""
    found = None
    for node, words in _functions(text):
        if node.lineno <= line <= (node.end_lineno or 0):
            found = words
    return found


@cache
def _named(text: str) -> dict[str, str]:
    return {node.name: words for node, words in _functions(text)}
