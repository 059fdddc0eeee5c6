"""Dataclasses of the packages are frozen unless something changes them: what is shared, or a key, is then what it was when it was made.
Those that trees are made of have slots."""

from __future__ import annotations

import ast
import re
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path

import pytest

import lightnet

#: The package, and those beside it.
PACKAGES = sorted(Path(lightnet.__file__).parent.parent.glob("lightnet*/"))
#: One that may be changed; what is told apart by being itself may have a state.
OPEN = re.compile(r"^@dataclass(?!.*(?:frozen=True|eq=False))", re.MULTILINE)
#: An attribute that is assigned, or whose contents are changed.
CHANGED = re.compile(
    r"\.(\w+)(?:\[[^\n=]*\])?(?:\s*(?:[-+*/%&|^@]|\*\*|//|<<|>>)?=(?!=)|, [^\n=]* = |\.(?:add|append|appendleft|clear|discard|extend|insert|pop|popleft"
    r"|remove|setdefault|update)\()"
)  # fmt: skip
#: Changed by those who are given one, where its class is not named: callers, for one.
GIVEN = {"Model", "Kernel", "NetOp", "NetParam", "NetTensor", "Netlist"}


def test_what_nothing_changes_is_frozen() -> None:
    texts = {p: p.read_text("utf-8") for p in sorted(p for folder in PACKAGES for p in folder.rglob("*.py"))}
    # What a class does to `self` changes no other class that has a field of this name.
    changes = {path: set(CHANGED.findall(text.replace("self.", ""))) for path, text in texts.items()}
    names = {path: set(re.findall(r"\w+", text)) for path, text in texts.items()}  # `HostStep` is no `Step`
    seen, loose = 0, []
    for path in (p for p, text in texts.items() if OPEN.search(text)):
        for cls in (n for n in ast.parse(texts[path]).body if isinstance(n, ast.ClassDef)):
            if not any(OPEN.match(f"@{ast.unparse(d)}") for d in cls.decorator_list) or cls.name in GIVEN:
                continue
            seen += 1
            fields = {n.target.id for n in cls.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}
            own = set(CHANGED.findall("\n".join(texts[path].splitlines()[cls.lineno : cls.end_lineno])))
            where = [p for p in texts if p == path or cls.name in names[p]]
            stores = (isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store) for n in ast.walk(cls))
            if not (fields & own or any(fields & changes[p] for p in where) or any(stores)):
                loose.append(f"{path}:{cls.lineno}: freeze {cls.name}: nothing changes it")
    assert loose == [] and seen > 40


def test_private_fields_are_not_given() -> None:
    """What an instance keeps for itself it begins by itself: no constructor takes a name with an underscore."""
    seen, given = 0, []
    for path in sorted(p for folder in PACKAGES for p in folder.rglob("*.py")):
        text = path.read_text("utf-8")
        if "@dataclass" not in text or not re.search(r"^ +_\w+: ", text, re.MULTILINE):
            continue  # what has none need not be parsed
        for cls in (n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.ClassDef)):
            if not any("dataclass" in ast.unparse(d) for d in cls.decorator_list):
                continue
            for field in (n for n in cls.body if isinstance(n, ast.AnnAssign) and ast.unparse(n.target)[0] == "_"):
                seen += 1
                options = field.value.keywords if isinstance(field.value, ast.Call) else []
                if not any(o.arg == "init" and ast.unparse(o.value) == "False" for o in options):
                    given.append(f"{path}:{field.lineno}: {cls.name} takes {ast.unparse(field.target)}: init=False")
    assert given == [] and seen >= 10


@pytest.mark.parametrize(
    "module", ["frontends.netlist", "ir.expr", "backends.llvm.values", "_descriptions.c.tree", "_ptx.tree"]
)
def test_nodes_of_trees_have_slots(module: str) -> None:
    """A node has no dict, and a name that is no field of it cannot be assigned: it would be lost on whoever reads the tree."""
    found = vars(import_module(f"lightnet{module if module[0] == '_' else f'.{module}'}"))
    nodes = [c for c in found.values() if isinstance(c, type) and is_dataclass(c) and c.__module__ == found["__name__"]]
    assert nodes and [c.__name__ for c in nodes if c.__dictoffset__] == []
