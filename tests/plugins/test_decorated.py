"""Functions that a plugin's decorators register: they are there for the length of the block, and a clash is an error of the plugin's file. What our
own modules register while they are imported inside of a block stays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lightnet.diagnostics import LightNetError
from lightnet.frontends import counted
from lightnet.frontends.onnx import node as onnx
from lightnet.ir.registry import FUNCTION_TABLES
from lightnet.plugins import load
from lightnet.runtime import formats
from lightnet_export.nnvm import calls
from lightnet_export.onnx import graph
from lightnet_nnvm import node as nnvm

#: By the name of the decorator's module: the decorator, a name that is free, one of ours, and the table.
DECORATORS = {
    "onnx_op": ("lightnet.frontends.onnx.node", "onnx_op", "MyOp", "Relu", onnx._HANDLERS),
    "nnvm_op": ("lightnet_nnvm.node", "nnvm_op", "my_op", "relu", nnvm._HANDLERS),
    "onnx exporter": ("lightnet_export.onnx.graph", "exporter", "my_op", "relu", graph._EXPORTERS),
    "nnvm exporter": ("lightnet_export.nnvm.calls", "exporter", "my_op", "relu", calls._EXPORTERS),
    "counted_rule": ("lightnet.frontends.counted", "counted_rule", "my_op", "topk", counted.RULES),
}


def test_every_table_that_decorators_fill_is_tried() -> None:
    assert {id(table) for table in FUNCTION_TABLES} == {id(row[-1]) for row in DECORATORS.values()}


@pytest.mark.parametrize("kind", DECORATORS)
def test_a_function_of_a_file_is_gone_behind_the_block(tmp_path: Path, kind: str) -> None:
    """And a second load registers it again; another file may have the name then."""
    module, decorator, name, _, table = DECORATORS[kind]
    table.fill()
    before = dict(table)
    for file in ("one.py", "one.py", "two.py"):
        (path := tmp_path / file).write_text(
            f"from {module} import {decorator}\n\n@{decorator}('{name}')\ndef mine(*arguments): pass\n"
        )
        with load(path):
            assert len(table) == len(before) + 1
        assert dict(table) == before


@pytest.mark.parametrize("kind", DECORATORS)
def test_a_decorator_gives_back_the_function(tmp_path: Path, kind: str) -> None:
    """So that it can be called by its name, and stands under another decorator."""
    module, decorator, name, *_ = DECORATORS[kind]
    text = f"from {module} import {decorator}\ndef mine(*arguments): pass\nassert {decorator}('{name}')(mine) is mine\n"
    (path := tmp_path / "p.py").write_text(text)
    with load(path):
        pass


@pytest.mark.parametrize("kind", DECORATORS)
def test_a_name_that_is_taken_is_an_error_of_the_file(tmp_path: Path, kind: str) -> None:
    """At its line, whichever of ours were imported before: not when a network first asks."""
    module, decorator, name, taken, table = DECORATORS[kind]
    before = dict(table)
    head = f"from {module} import {decorator}\n"
    two = f"@{decorator}('{name}')\ndef mine(*arguments): pass\n" * 2
    for text, line in ((f"{head}@{decorator}('{taken}')\ndef mine(*arguments): pass\n", 2), (head + two, 4)):
        (path := tmp_path / "p.py").write_text(text)
        with pytest.raises(LightNetError, match=r"is defined twice: by .* and plugin\.p:mine") as e, load(path):
            pass
        assert f"p.py:{line}: error:" in e.value.render()
        assert {k: v for k, v in table.items() if k in before} == before and not table.added


@pytest.mark.parametrize("kind", DECORATORS)
def test_a_decorator_without_names_is_an_error(tmp_path: Path, kind: str) -> None:
    """Such a function was never asked for, and nobody knew."""
    module, decorator, *_ = DECORATORS[kind]
    for written, got in ((decorator, "mine"), (f"{decorator}()", "nothing"), (f"{decorator}(3)", "3")):
        (path := tmp_path / "p.py").write_text(f"from {module} import {decorator}\n@{written}\ndef mine(n): pass\n")
        with pytest.raises(LightNetError, match=f"@{decorator} takes the name of an op, and got {got}$"), load(path):
            pass


def test_families_that_are_imported_inside_of_a_block_stay(tmp_path: Path) -> None:
    """Whoever imports them first: the network that is read, or the file itself. In a process where none is imported yet."""
    (path := tmp_path / "p.py").write_text(
        "from lightnet.frontends.onnx.ops import nn\nfrom lightnet_export.onnx import move\n"
        "from lightnet.frontends.onnx.node import onnx_op\n@onnx_op('Mine')\ndef mine(n, x): return x\n"
    )
    code = (
        "import sys\nfrom lightnet.plugins import load\n"
        f"with load({str(path)!r}):\n"
        "    from lightnet.frontends.onnx.node import handler_of\n    from lightnet_export.onnx.graph import exporters\n"
        "    assert handler_of('', 'Mine') and handler_of('', 'Relu')\n"
        "assert handler_of('', 'Mine') is None\n"
        "assert handler_of('', 'Relu') and handler_of('', 'Gemm') and exporters()['relu'] and exporters()['transpose']\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_takes_sequences_does_so_for_as_long_as_it_is_there(tmp_path: Path) -> None:
    for options, takes in ((", sequences=True", True), ("", False)):
        (path := tmp_path / "p.py").write_text(
            f"from lightnet.frontends.onnx.node import onnx_op\n@onnx_op('Mine'{options})\ndef mine(n, x): return x\n"
        )
        with load(path):
            assert onnx.takes_sequences("", "Mine") == takes
        assert not onnx.takes_sequences("", "Mine")


def test_a_format_that_a_file_adds_is_gone_behind_the_block(tmp_path: Path) -> None:
    (path := tmp_path / "p.py").write_text(
        "from lightnet.runtime.formats import CodeFormat, add\nclass F(CodeFormat): name = 'mine'\nadd(F())\n"
    )
    before = dict(formats.CODE_FORMATS)
    assert "nvptx64" in before, "the project's own stays when a file is taken back"
    with load(path):
        assert "mine" in formats.CODE_FORMATS
    assert before == formats.CODE_FORMATS
