"""`tools/check_types.py`: errors of the type checker by part, and ceilings that only fall."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import lightnet

TOOL = Path(__file__).parents[2] / "tools" / "check_types.py"
spec = importlib.util.spec_from_file_location("check_types", TOOL)
assert spec is not None and spec.loader is not None
tool = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tool)

PRINTED = """\
lightnet/ir/op.py:1:2: error: Item "None" has no attribute  [union-attr]
lightnet/ir/op.py:1:2: note: see the documentation
lightnet/ir/layout.py:9: error: Incompatible types  [assignment]
lightnet/compiler.py:12:1: error: Missing return  [return]
lightnet/frontends/onnx/ops/nn.py:5:7: error: Too many arguments  [call-arg]
lightnet_lsp/server.py:5:7: error: Too many arguments  [call-arg]
"""


def test_errors_are_counted_by_part() -> None:
    assert {part: len(lines) for part, lines in tool.by_part(PRINTED).items()} == {
        "ir": 2,
        ".": 1,
        "frontends": 1,
        "lightnet_lsp": 1,
    }


def test_more_than_the_ceiling_is_shown() -> None:
    found = tool.by_part(PRINTED)
    assert tool.above(found, {"ir": 2, ".": 1, "frontends": 5, "lightnet_lsp": 1}) == []
    wrong = tool.above(found, {"ir": 1, ".": 1, "lightnet_lsp": 1})
    assert wrong[0] == "frontends: 1 errors of types, and there may be 0:" and "nn.py:5:7" in wrong[1]
    assert wrong[2] == "ir: 2 errors of types, and there may be 1:" and len(wrong) == 5


def test_ceilings_only_fall() -> None:
    assert tool.lowered(tool.by_part(PRINTED), {"ir": 7, ".": 0, "passes": 3, "frontends": 1}) == {
        "frontends": 1,
        "ir": 2,
    }


def test_every_ceiling_is_of_a_part() -> None:
    package = Path(lightnet.__file__).parent
    folders = {p.parent.name for p in package.glob("*/__init__.py")}
    beside = {p.parent.name for p in package.parent.glob("lightnet_*/__init__.py")}
    ceilings = set(json.loads(tool.CEILINGS.read_text()))
    assert ceilings <= folders | beside | {"."}
    assert not ceilings & {".", "ir", "passes", "runtime", "plugins", "dialects"}, (
        "they have no error, and shall have none"
    )
    assert all((package.parent / name / "py.typed").exists() for name in ("lightnet", *beside))
