"""The notebook of examples: its cells run as a script, say what they should, and make a page that opens by itself."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("marimo")
EXAMPLES = Path(__file__).parent.parent.parent / "examples"


@pytest.fixture
def notebook(tmp_path: Path) -> Path:
    """The notebook, with what it reads, in a folder of its own: marimo writes beside it."""
    for name in ("notebook.py", "cnn.net", "wrong_rewrite.py"):
        shutil.copy(EXAMPLES / name, tmp_path / name)
    return tmp_path / "notebook.py"


def test_cells_find_what_they_promise(notebook: Path) -> None:
    spec = importlib.util.spec_from_file_location("notebook_of_examples", notebook)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    _, found = module.app.run()
    assert found["verdict"].pattern == "SigmoidIsTanh" and found["found"].pipeline == "expand"
    assert found["found"].text.count("ln.sigmoid") == 1 and found["outputs"]["classes"].shape == (1, 32, 16, 16)


@pytest.mark.parametrize("how", ["script", "page"])
def test_it_needs_no_server(how: str, notebook: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    words = [str(notebook)] if how == "script" else ["-m", "marimo", "export", "html", str(notebook), "-o", str(page)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL, env=env, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    if how == "page":
        text = page.read_text("utf-8")
        assert "SigmoidIsTanh" in text and "svg" in text and "MarimoInternalError" not in text
