"""The record of which tests run which lines: the project's functions in a copy, with a mark at each run of statements,
and a pytest plugin that notes the marks of every test, those of the processes that it starts too.

``marked`` gives the text with marks; the plugin writes ``$WATCHING/map.PID.N.npz`` for every few tests, so that a run that ends early, or loses a
process, is gone on with: tests of `WATCHED` are left out. Marks cost a store each, so that the tests
take about as long as without. Imports the standard library, NumPy and pytest only.
"""

from __future__ import annotations

import ast
import json
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mutations.faults import sites
from mutations.probes import FUNCTION, FUNCTIONS, Probes

#: The module of the copy that holds the marks; `size` of them.
MODULE = '''"""Marks of functions that ran."""

import atexit
import os
from pathlib import Path

HITS = bytearray({size})


def _write() -> None:
    folder = os.environ.get("WATCHING_CHILDREN")
    if folder and os.getpid() != int(os.environ.get("WATCHING_PID", 0)):
        Path(folder, f"{{os.getpid()}}.hits").write_bytes(HITS)


atexit.register(_write)
'''
#: What a file with marks imports of it.
IMPORTS = "from lightnet._watched import HITS as _hits_, both as _both_, some as _some_, truth as _truth_\n" + "".join(
    f"from operator import {name} as _{name}_\n" for name in FUNCTION.values()
)
#: Tests of one file of the map; the file in `$WATCHING` that names those that are in the map already.
PART, WATCHED = 200, "watched.json"
_COMPOUND = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.Match)


class Marks:
    """Puts marks into files, and knows which mark stands for which line: `lines[file][line]`, of which `files[file]` are a file's;
    and for which fault that not every run of its line makes noticeable: `probes[name]`."""

    def __init__(self) -> None:
        self.size = 0
        self.probes: dict[str, int] = {}
        self.lines: dict[str, dict[int, int]] = {}
        self.files: dict[str, tuple[int, int]] = {}

    def mark(self, file: str, text: str) -> str:
        """The text of a file with marks."""
        tree, first = ast.parse(text), self.size
        found = sites(file, text, tree)
        self._lines = self.lines.setdefault(file, {})
        for node in list(ast.walk(tree)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self._block(node)
        self.files[file] = (first, self.size)
        if self.size > first:
            probes = Probes(found, self.size)
            tree = probes.visit(tree)
            self.size = probes.size
            self.probes |= probes.marks
            ahead = sum(_is_ahead(i, node) for i, node in enumerate(tree.body))
            tree.body[ahead:ahead] = ast.parse(IMPORTS).body
        return ast.unparse(ast.fix_missing_locations(tree))

    def module(self) -> str:
        """The text of the module that holds the marks."""
        return MODULE.format(size=self.size) + FUNCTIONS

    def _block(self, owner: ast.AST) -> None:
        """Mark the blocks of a function, or of a statement in it; functions in it are marked by themselves."""
        for name in ("body", "orelse", "finalbody"):
            body = getattr(owner, name, None)
            if isinstance(body, list) and body and isinstance(body[0], ast.stmt):
                setattr(
                    owner, name, list(self._marked(body, isinstance(owner, ast.FunctionDef | ast.AsyncFunctionDef)))
                )
        for part in (*getattr(owner, "handlers", ()), *getattr(owner, "cases", ())):
            self._block(part)

    def _marked(self, body: list[ast.stmt], function: bool) -> Iterator[ast.stmt]:
        fresh = True
        for i, node in enumerate(body):
            if function and i == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                yield node
                continue
            if fresh and not isinstance(node, ast.Global | ast.Nonlocal):
                yield ast.parse(f"_hits_[{self.size}] = 1").body[0]
                self.size += 1
            fresh = isinstance(node, _COMPOUND)
            for line in range(node.lineno, node.end_lineno + 1):
                self._lines[line] = self.size - 1
            if fresh:
                self._block(node)
            yield node


def _is_ahead(i: int, node: ast.stmt) -> bool:
    """Return whether a statement has to stay in front: the docstring, and imports from the future."""
    text = i == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return text or (isinstance(node, ast.ImportFrom) and node.module == "__future__")


def cpu_seconds() -> float:
    """CPU time of this process and of those that it waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


class Watch:
    """The plugin: notes id, outcome, CPU seconds and marks of each test."""

    def __init__(self) -> None:
        import lightnet._watched as watched

        assert isinstance(watched.HITS, bytearray)
        self.hits = watched.HITS
        self.nothing = bytes(len(self.hits))
        self.folder = Path(os.environ["WATCHING"])
        self.children = self.folder / f"children.{os.getpid()}"
        self.children.mkdir(parents=True)
        os.environ |= {"WATCHING_CHILDREN": str(self.children), "WATCHING_PID": str(os.getpid())}
        self.rows: list[tuple[str, bool, float]] = []
        self.marks: list[np.ndarray] = []
        self.failed, self.parts = False, 0

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.hits[:] = self.nothing
        self.failed, start = False, cpu_seconds()
        yield
        found = np.frombuffer(bytes(self.hits), np.uint8)
        for path in self.children.glob("*.hits"):
            other = np.fromfile(path, np.uint8)
            path.unlink()
            found = found | other if other.size == found.size else found
        self.rows.append((item.nodeid, not self.failed, cpu_seconds() - start))
        self.marks.append(np.packbits(found))
        if len(self.rows) == PART:
            self.write()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        watched = self.folder / WATCHED
        known = set(json.loads(watched.read_text("utf-8"))) if watched.exists() else set()
        items[:] = [item for item in items if item.nodeid not in known]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed |= report.outcome != "passed"

    def pytest_sessionfinish(self) -> None:
        self.write()

    def write(self) -> None:
        """Write the tests since the last time."""
        if not self.rows:
            return
        names, passed, seconds = zip(*self.rows)
        path = self.folder / f"map.{os.getpid()}.{self.parts}.npz"
        with path.with_suffix(".part").open("wb") as file:
            np.savez_compressed(file, names=names, passed=passed, seconds=seconds, marks=np.stack(self.marks))
        path.with_suffix(".part").rename(path)  # whole, or not there
        self.rows, self.marks, self.parts = [], [], self.parts + 1


def pytest_configure(config: Any) -> None:
    if "WATCHING" in os.environ:
        config.pluginmanager.register(Watch(), "watching")
