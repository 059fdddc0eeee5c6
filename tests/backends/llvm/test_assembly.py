"""What ops print: every op of the FileCheck files of dialects, with an attribute that no form knows, printed and read again.
Whatever a custom form leaves out is lost in a file, so nothing may be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp, StringAttr

from lightnet.diagnostics import LightNetError
from lightnet.ir.context import make_context
from lightnet.ir.parser import parse_mlir
from lightnet.ir.printer import module_text

FOLDER = Path(__file__).parents[2] / "filecheck"
FILES = sorted(
    p for part in ("dialects", "backends") for p in (FOLDER / part).rglob("*.mlir") if "-errors" not in p.name
)


def modules(path: Path) -> Iterator[ModuleOp]:
    """Those of a file, which may have several; what is no module of ours is another test's."""
    for part in path.read_text("utf-8").split("// -----"):
        try:
            yield parse_mlir(make_context(), part, str(path))
        except LightNetError:
            continue


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(FOLDER)))
def test_an_attribute_that_no_form_knows_comes_back(path: Path) -> None:
    for module in modules(path):
        marked = []
        for i, op in enumerate(module.walk()):
            if type(op).__module__.startswith("lightnet."):  # forms of xDSL's own dialects may have no room for any
                op.attributes["test.note"] = StringAttr(f"{i} {op.name}")
            marked.append((op.name, op.attributes))
        text = module_text(module)
        again = parse_mlir(make_context(), text, str(path))
        for (name, attributes), op in zip(marked, again.walk(), strict=True):
            assert op.name == name
            assert op.attributes == attributes, f"{name} has lost {attributes.keys() - op.attributes.keys()}"
        assert module_text(again) == text
