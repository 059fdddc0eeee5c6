"""Dataclasses of the packages are frozen unless something changes them: what is shared, or a key, is then what it was when it was made."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import lightnet

#: The package, and those beside it.
PACKAGES = Path(lightnet.__file__).parent.parent.glob("lightnet*/")
#: One that may be changed; what is told apart by being itself may have a state.
OPEN = re.compile(r"^@dataclass(?!.*(?:frozen=True|eq=False))", re.MULTILINE)
#: An attribute that is assigned, or whose contents are changed.
CHANGED = re.compile(
    r"\.(\w+)(?:\[[^\n=]*\])?(?:\s*[-+*/|&^%<>]*=(?!=)|, [^\n=]* = |\.(?:add|append|appendleft|clear|discard|extend|insert|pop|popleft"
    r"|remove|setdefault|update)\()"
)  # fmt: skip
#: Changed by those who are given one, where its class is not named.
GIVEN = {"Kernel", "NetOp", "NetParam", "NetTensor", "Netlist"}


def test_what_nothing_changes_is_frozen() -> None:
    texts = {p: p.read_text("utf-8") for p in sorted(p for folder in PACKAGES for p in folder.rglob("*.py"))}
    changes = {path: set(CHANGED.findall(text)) for path, text in texts.items()}
    seen = 0
    for path in (p for p, text in texts.items() if OPEN.search(text)):
        for cls in (n for n in ast.parse(texts[path]).body if isinstance(n, ast.ClassDef)):
            if not any(OPEN.match(f"@{ast.unparse(d)}") for d in cls.decorator_list) or cls.name in GIVEN:
                continue
            seen += 1
            fields = {n.target.id for n in cls.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}
            where = [p for p, text in texts.items() if p == path or cls.name in text]
            assert any(fields & changes[p] for p in where) or any(
                isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store) for n in ast.walk(cls)
            ), f"{path}:{cls.lineno}: freeze {cls.name}: nothing changes it"
    assert seen > 40
