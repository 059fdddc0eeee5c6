"""Public names mean one thing, docstrings begin with the noun or the verb, and docs/vocabulary.md names what is there."""

from __future__ import annotations

import ast
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "lightnet"
CEILINGS = json.loads((ROOT / "tests/data/names.json").read_text())
PAGE = ROOT / "docs/vocabulary.md"
#: Decorators that put a function into a table under the name of a format's op.
REGISTERED = {"onnx_op", "nnvm_op", "mxnet_op", "ms_op", "host_op", "exporter", "export", "pattern"}
#: Names that several modules have, and why: the same thing each time, by folder or file.
SHARED = {
    "main": ("cli/", "the entry point of a tool"),
    "add_options": ("cli/", "the options that a part of the command line adds"),
    "read": ("frontends/", "what a front end reads (`FrontEnd`)"),
    "read_file": ("frontends/", "what a front end reads (`FrontEnd`)"),
    "to_module": ("frontends/", "a network of a form as a module"),
    "load": ("model.py plugins/__init__.py", "what users call: `lightnet.load`, `lightnet.plugins.load`"),
    "accepts": ("backends/", "a hook of `Target`"),
    "supports": ("backends/", "a hook of `Target`"),
    "emit_llvm": ("backends/", "an emitter of a target"),
    "emit_obj": ("backends/", "an emitter of a target"),
    "emit_ptx": ("backends/", "an emitter of a target"),
    "build": ("backends/ dialects/ln/radix.py", "what makes a generator's functions"),
    "workspace_bytes": ("backends/ dialects/ln/radix.py", "bytes that a generator's functions need"),
    "readable": ("backends/cpu/", "what a plain generator on tiles may read"),
    "grid": ("backends/cpu/", "the blocks of a plain generator on tiles"),
    "concat": ("frontends/", "the move, of dims that the data decides too"),
    "expand": ("frontends/", "the move, of dims that the data decides too"),
    "Depthwise": ("backends/", "the generator of a family, of each target"),
    "Reorder": ("backends/", "the generator of a family, of each target"),
    "Loops": ("backends/", "the generator of a family, of each target"),
}  # fmt: skip
#: The same of constants.
SHARED_CONSTANTS = {
    "MAX_NAME": "characters of a name", "OUTPUTS": "a choice of blocked kernels", "SELECTION": "that of each target",
}  # fmt: skip
RELATIVE = re.compile(r"(What|Whether|How|Which|Where|Why|When|Who|Whose|Whom|That)\b")


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    """The modules of the package by path; they go with the last test of this file, so that no later one's garbage is looked for among a
    million nodes."""
    return {str(p.relative_to(PACKAGE)): ast.parse(p.read_text()) for p in sorted(PACKAGE.rglob("*.py"))}


def public(tree: ast.Module) -> Iterator[str]:
    """The public classes and functions of a module."""
    for node in tree.body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and not node.name.startswith("_"):
            if not {ast.unparse(d).split("(")[0] for d in node.decorator_list} & REGISTERED:
                yield node.name


@pytest.fixture(scope="module")
def homes(trees: dict[str, ast.Module]) -> dict[str, list[str]]:
    """The files that define each public name."""
    found = defaultdict(list)
    for path, tree in trees.items():
        for name in dict.fromkeys(public(tree)):
            found[name].append(path)
    return found


def is_shared(name: str, paths: list[str]) -> bool:
    """Return whether an exception holds for all files that define a name."""
    return name in SHARED and all(any(p.startswith(f) for f in SHARED[name][0].split()) for p in paths)


def test_public_names_mean_one_thing(homes: dict[str, list[str]]) -> None:
    several = {n: paths for n, paths in homes.items() if len(paths) > 1 and not is_shared(n, paths)}
    listing = "\n".join(f"{n}: {', '.join(paths)}" for n, paths in sorted(several.items()))
    assert len(several) <= CEILINGS["several"], f"names that mean several things:\n{listing}"
    assert len(several) == CEILINGS["several"], f"lower the ceiling in tests/data/names.json to {len(several)}"


def test_names_beside_the_package_are_others(homes: dict[str, list[str]]) -> None:
    """A public name of a package beside is none of this one's, but for ops of languages and formats, and entry points."""
    packages = sorted(p.parent for p in ROOT.glob("lightnet_*/__init__.py"))
    beside = [(path, ast.parse(path.read_text())) for folder in packages for path in sorted(folder.rglob("*.py"))]
    found = [(name, str(path.relative_to(ROOT))) for path, tree in beside for name in dict.fromkeys(public(tree))]
    twice = sorted({name for name, _ in found if name in homes and name not in SHARED})
    where = "\n".join(f"{n}: {', '.join(homes[n])}, {', '.join(p for m, p in found if m == n)}" for n in twice)
    assert len(twice) <= CEILINGS["beside"], f"names that mean something else in the package:\n{where}"
    assert len(twice) == CEILINGS["beside"], f"lower the ceiling in tests/data/names.json to {len(twice)}"


def test_constants_mean_one_thing(trees: dict[str, ast.Module]) -> None:
    """Constants that other modules import, by name: where two modules lend theirs under one name, a reader of a third has to look up which."""
    modules = {
        f"lightnet.{path[:-3].replace('/', '.').removesuffix('.__init__')}": tree for path, tree in trees.items()
    }
    lent = {(node.module, a.name) for tree in modules.values() for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) for a in node.names if a.name.isupper()}  # fmt: skip
    homes = defaultdict(list)
    for module, tree in modules.items():
        targets = (t for n in tree.body if isinstance(n, (ast.Assign, ast.AnnAssign)) for t in ast.walk(n))
        stored = {t.id for t in targets if isinstance(t, ast.Name) and isinstance(t.ctx, ast.Store)}
        for name in stored:
            if (module, name) in lent:
                homes[name].append(module)
    several = {name: sorted(found) for name, found in homes.items() if len(found) > 1}
    assert set(several) >= set(SHARED_CONSTANTS), "an exception that stands for one definition goes"
    several = {name: found for name, found in several.items() if name not in SHARED_CONSTANTS}
    listing = "\n".join(f"{n}: {', '.join(paths)}" for n, paths in sorted(several.items()))
    assert not several, f"constants that mean several things:\n{listing}"


def test_exceptions_are_needed(homes: dict[str, list[str]]) -> None:
    """An exception that stands for one definition alone, or none, goes."""
    assert not [n for n in SHARED if len(homes.get(n, ())) < 2]


@pytest.mark.parametrize("folder", [*(p.parent.name for p in ROOT.glob("lightnet*/__init__.py")), "tools", "examples"])
def test_docstrings_begin_with_the_noun_or_the_verb(folder: str, request: pytest.FixtureRequest) -> None:
    """A relative clause in front of everything is what a reader has to read twice."""
    found = []
    read = request.getfixturevalue("trees") if ROOT / folder == PACKAGE else {}
    for path in sorted((ROOT / folder).rglob("*.py")):
        tree = read.get(path.relative_to(ROOT / folder).as_posix()) or ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                text = ast.get_docstring(node)
                if text and RELATIVE.match(text):
                    found.append(f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}: {text.splitlines()[0]}")
    ceiling = CEILINGS["relative"].get(folder, 0)
    assert len(found) == ceiling, f"{len(found)}, not {ceiling} (which may only fall):\n" + "\n".join(found)


def test_vocabulary_names_what_is_there(trees: dict[str, ast.Module]) -> None:
    """Files, and names in files, of the page's tables."""
    rows = [line.split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ") and "---" not in line]
    said = [w for row in rows if len(row) == 4 for w in re.findall(r"`([\w/.]+)`", row[2])]
    assert len(said) > 60
    for word in said:
        if word.endswith(".py"):
            assert word in trees, word
            continue
        path, name = word.rsplit(".", 1)
        tree = trees[path + ".py"]
        names = {n.name for n in tree.body if hasattr(n, "name")}
        targets = (t for n in tree.body if isinstance(n, (ast.Assign, ast.AnnAssign)) for t in ast.walk(n))
        names |= {t.id for t in targets if isinstance(t, ast.Name) and isinstance(t.ctx, ast.Store)}
        assert name in names, word


def _may_name(part: ast.AST) -> bool:
    """Whether a constant, or a part of an f-string, may begin ``module:function``: writing all out again would take seconds."""
    if isinstance(part, ast.FormattedValue):
        return isinstance(part.value, ast.Name) and part.value.id == "__name__"
    return isinstance(part, ast.Constant) and isinstance(part.value, str) and "lightnet" in part.value


def test_functions_that_texts_name_are_there(trees: dict[str, ast.Module]) -> None:
    """``module:function`` for a table or another process, and imports in code that a child runs: renaming finds neither."""
    found = 0
    for path, tree in trees.items():
        own = ".".join(Path("lightnet", path).with_suffix("").parts)
        for node in ast.walk(tree):
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            if not any(_may_name(part) for part in parts):
                continue
            text = ast.unparse(node).replace("{__name__}", own)
            named = re.findall(r"(lightnet(?:\.\w+)+):(\w+)[\'\"]|from (lightnet[\w.]*) import (\w+)", text)
            for module, name in ((a or c, b or d) for a, b, c, d in named):
                assert hasattr(import_module(module), name), f"{path}:{node.lineno}: {module}:{name}"
                found += 1
    assert found > 10
