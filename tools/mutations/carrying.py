"""Faults of an older copy of the project in today's text, and of their verdicts those that still hold: ``--carry DIR``.

A fault is carried where its lines are as they were, wherever they are now: in the file of that name, or in a function that
stands letter by letter in another. Its verdict is carried where the function that it
changes and the test that noticed are as they were, too, letter by letter; it is judged anew otherwise. Of the map, which lines a
test runs is carried for the files of tests that are as they were.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from difflib import SequenceMatcher
from functools import cache
from typing import Any

import numpy as np

from mutations.faults import Fault, faults
from mutations.watching import Marks

#: Lines of a function that is known again in another file.
LEAST = 3
#: Verdicts that outlive a change elsewhere.
KEPT = ("found", "equivalent")


def carry(given: list[Fault], old: Mapping[str, str], new: Mapping[str, str]) -> dict[Fault, Fault]:
    """Faults of the texts `old` as they are in `new`, by file name; those whose lines have changed or gone are missing."""
    found = {}
    at = places(old, new, {f.file for f in given})
    starts = cache(lambda texts, file: _starts((old, new)[texts][file].encode().splitlines(keepends=True)))
    for fault in given:
        touched = range(fault.line - 1, fault.line + fault.old.count("\n"))
        there = [at.get(fault.file, {}).get(i) for i in touched]
        if None in there:
            continue
        file, first = there[0]
        if there != [(file, first + i) for i in range(len(touched))]:
            continue
        by = starts(1, file)[first] - starts(0, fault.file)[touched[0]]
        found[fault] = replace(fault, file=file, line=first + 1, start=fault.start + by, end=fault.end + by)
    return found


def holds(
    result: Mapping[str, Any], fault: Fault, moved: Fault, old: Mapping[str, str], new: Mapping[str, str]
) -> bool:
    """Return whether what was judged of a fault in `old` is so in `new`; both are texts of package and tests by
    name.
    """
    if result.get("verdict") not in KEPT or not fault.function:
        return False
    if _around(old[fault.file], fault.line) != _around(new[moved.file], moved.line):
        return False
    if result["verdict"] == "equivalent":
        return True
    file, _, test = str(result["by"]).partition("::")
    name, base = test.partition("[")[0], file.rpartition("/")[2]
    now = file if file in new else next((n for n in new if n.rpartition("/")[2] == base), None)
    if not name or file not in old or now is None:
        return False
    texts = [_named(text).get(name) for text in (old[file], new[now])]
    return texts[0] is not None and texts[0] == texts[1]


def carried_map(
    old_map: Mapping[str, np.ndarray],
    old_marks: Mapping[str, Mapping[str, int]],
    old_probes: Mapping[str, int],
    marks: Marks,
    old: Mapping[str, str],
    new: Mapping[str, str],
    same: Mapping[str, str],
) -> dict[str, np.ndarray]:
    """The rows of an older map whose file of tests is as it was (`same`: where it stands now), with the marks that the same lines
    and faults have now.

    `old_marks` are the marks of lines by file, `old_probes` those of faults by name, `old` and `new` the texts of the package by name."""
    names = [n.partition("::") for n in old_map["names"].tolist()]
    kept = np.array([file in same for file, *_ in names], bool)
    was = np.unpackbits(old_map["marks"][kept], axis=1)
    now = np.zeros((was.shape[0], marks.size), np.uint8)
    at = places(old, new, old_marks)
    pairs = set()
    for file, lines in old_marks.items():
        for line, mark in lines.items():
            there, i = at.get(file, {}).get(int(line) - 1, (file, -2))
            pairs.add((mark, marks.lines.get(there, {}).get(i + 1)))
    probed = [f for file in old_marks for f in faults(file, old[file]) if f.name in old_probes]
    for fault, here in carry(probed, old, new).items():
        pairs.add((old_probes[fault.name], marks.probes.get(here.name)))
    for a, b in pairs:
        if b is not None:
            now[:, b] |= was[:, a]
    moved = np.array([f"{same[file]}::{test}" for file, _, test in names if file in same])
    return {"names": moved} | {k: old_map[k][kept] for k in ("passed", "seconds")} | {"marks": np.packbits(now, axis=1)}


def places(
    old: Mapping[str, str], new: Mapping[str, str], files: Iterable[str]
) -> dict[str, dict[int, tuple[str, int]]]:
    """The places in `new` of lines of `files` of the texts `old`, from 0, by file: in the same file, or with a function
    that has moved.
    """
    stood, stands = (_standing(texts) for texts in (old, new))
    found = {}
    for file in files:
        matching = _matching(old[file].splitlines(), new[file].splitlines()) if file in new else {}
        at = found[file] = {i: (file, k) for i, k in matching.items()}
        for first, words in _bodies(old[file]):
            lines = range(words.count("\n") + 1)
            if len(stood[words]) == len(stands.get(words, ())) == 1 and any(first + i not in at for i in lines):
                ((to, begin),) = stands[words]
                at |= {first + i: (to, begin + i) for i in lines}
    return found


def _standing(texts: Mapping[str, str]) -> dict[str, list[tuple[str, int]]]:
    """The place of each function."""
    at: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for file, text in texts.items():
        for first, words in _bodies(text):
            at[words].append((file, first))
    return at


def _bodies(text: str) -> list[tuple[int, str]]:
    """The functions of a text of `LEAST` lines or more, inner ones last: the first line of each, from 0, and its lines."""
    return [(first, words) for _, first, words in _functions(text) if words.count("\n") + 1 >= LEAST]


def _matching(old: list[Any], new: list[Any]) -> dict[int, int]:
    """The places where lines of `old` are in `new`, from 0."""
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
def _functions(text: str) -> list[tuple[ast.FunctionDef | ast.AsyncFunctionDef, int, str]]:
    """The functions of a text, outer ones first, with their first line from 0 and their lines (decorators too)."""
    lines = text.splitlines()
    nodes = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    firsts = [min([n.lineno, *(d.lineno for d in n.decorator_list)]) - 1 for n in nodes]
    return [(n, first, "\n".join(lines[first : n.end_lineno])) for n, first in zip(nodes, firsts)]


def _around(text: str, line: int) -> str | None:
    """The innermost function that a line is in."""
    found = None
    for node, _, words in _functions(text):
        if node.lineno <= line <= (node.end_lineno or 0):
            found = words
    return found


@cache
def _named(text: str) -> dict[str, str]:
    return {node.name: words for node, _, words in _functions(text)}
