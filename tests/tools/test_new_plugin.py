"""A plugin that `tools/new_plugin.py` starts: its tests pass at once, tools know it once it is installed, names are checked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools" / "new_plugin.py"
#: As somebody has it who works elsewhere: nothing of this run's draw or workers.
ENV = {k: v for k, v in os.environ.items() if not k.startswith(("LIGHTNET_", "PYTEST_"))} | {"PYTHONPATH": str(ROOT)}


def run(*words: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], cwd=cwd, env=ENV | more, capture_output=True, text=True)


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    into = tmp_path_factory.mktemp("plugins")
    done = run(str(TOOL), "my-research", cwd=into)
    assert done.returncode == 0 and "pip install" in done.stdout, done.stderr
    return into / "my-research"


def test_its_tests_pass(plugin: Path) -> None:
    done = run("-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=plugin)
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout
    lit = run("-c", "from lit.main import main; main()", "tests", cwd=plugin)
    assert lit.returncode == 0 and "Passed: 1" in lit.stdout, lit.stdout


def test_they_can_fail(plugin: Path, tmp_path: Path) -> None:
    """A rule that gives something else, and one that does nothing."""
    text = (plugin / "my_research" / "plugin.py").read_text("utf-8")
    for wrong, failed in (
        (text.replace("Relu.make([inner.src])", "inner.src"), 2),
        (text.replace("is None", "is op"), 1),
    ):
        copy = tmp_path / f"wrong{failed}"
        subprocess.run(["cp", "-r", str(plugin), str(copy)], check=True)
        (copy / "my_research" / "plugin.py").write_text(wrong)
        done = run("-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=copy)
        assert done.returncode == 1 and "failed" in done.stdout, done.stdout


def test_it_is_found_where_it_is_installed(plugin: Path, tmp_path: Path) -> None:
    """By its entry point; written as an installer would, which needs no network."""
    info = tmp_path / "my_research-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-research\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text("[lightnet.plugins]\nmy_research = my_research.plugin\n")
    assert (
        '[project.entry-points."lightnet.plugins"]\nmy_research = "my_research.plugin"'
        in (plugin / "pyproject.toml").read_text()
    )
    path = os.pathsep.join([str(tmp_path), str(plugin), str(ROOT)])
    net = ROOT / "examples" / "nets" / "mlp.net"
    done = run("-m", "lightnet.cli.ln_opt", "--pass=my-research", str(net), cwd=tmp_path, PYTHONPATH=path)
    assert done.returncode == 0 and "ln.relu" in done.stdout, done.stderr


@pytest.mark.parametrize("name", ["My-Research", "1st", "a--b", "class", "lightnet", "../x", ""])
def test_names(name: str, tmp_path: Path) -> None:
    done = run(str(TOOL), name, cwd=tmp_path)
    assert done.returncode == 1 and "is no name for a plugin" in done.stderr and not any(tmp_path.iterdir())


def test_nothing_is_overwritten(plugin: Path) -> None:
    done = run(str(TOOL), "my-research", cwd=plugin.parent)
    assert done.returncode == 1 and "is there already" in done.stderr
