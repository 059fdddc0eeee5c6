"""Dataclasses of the package are frozen unless something changes them: what is shared, or a key, is then what it was when it was made."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import lightnet

PACKAGE = Path(lightnet.__file__).parent
#: Methods that change what a field holds.
CHANGING = {
    "add",
    "append",
    "appendleft",
    "clear",
    "discard",
    "extend",
    "insert",
    "pop",
    "popleft",
    "remove",
    "setdefault",
    "update",
}
#: Changed by those who are given one, where its class is not named.
GIVEN = {"Kernel", "NetOp", "NetParam", "NetTensor", "Netlist"}


def changed(tree: ast.Module) -> set[str]:
    """The names of attributes that a module assigns, or whose contents it changes."""
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name, ctx=ast.Store() | ast.Del()):
                found.add(name)
            case ast.Subscript(value=ast.Attribute(attr=name), ctx=ast.Store() | ast.Del()):
                found.add(name)
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr=name), attr=method)) if method in CHANGING:
                found.add(name)
    return found


def test_what_nothing_changes_is_frozen() -> None:
    trees = {p: ast.parse(p.read_text("utf-8")) for p in sorted(PACKAGE.rglob("*.py"))}
    named = defaultdict(set)  # where a class is spoken of
    for path, tree in trees.items():
        for node in ast.walk(tree):
            for name in [a.name for a in node.names] if isinstance(node, ast.ImportFrom) else ():
                named[name].add(path)
    changes = {path: changed(tree) for path, tree in trees.items()}
    seen = 0
    for path, tree in trees.items():
        for cls in (n for n in ast.walk(tree) if isinstance(n, ast.ClassDef)):
            words = [ast.unparse(d) for d in cls.decorator_list if ast.unparse(d).startswith("dataclass")]
            if not words or "eq=False" in words[0]:  # what is told apart by being itself may have a state
                continue
            seen += 1
            fields = {n.target.id for n in cls.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}
            assigns = any(isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store) for n in ast.walk(cls))
            where = {path, *named[cls.name]}
            if "frozen=True" not in words[0] and not assigns and cls.name not in GIVEN:
                assert any(fields & changes[p] for p in where), (
                    f"{path}:{cls.lineno}: freeze {cls.name}: nothing changes it"
                )
    assert seen > 250
