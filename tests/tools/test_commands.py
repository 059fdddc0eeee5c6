"""Commands that are forked (`commands.py`) are as the programs are: status, streams, folder, environment, arguments, and nothing that one leaves to
the next."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import commands
import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = """
cp "$EXAMPLE" 'a net.net'
lightnet 'a net.net' > out.txt
lightnet < out.txt - 2> err.txt || echo "status $?"
ln-opt --load "$PASS" --list-passes | grep -c '^ *my-pass '
ln-opt --list-passes | grep -c '^ *my-pass ' || true
LIGHTNET_CACHE=off lightnet cache info
il2json 'a net.net' | head -c 20 > /dev/null
"""


@pytest.mark.parametrize("where", ["forked", "program"])
def test_a_script_does_the_same(where: str, tmp_path: Path) -> None:
    variables = commands.environment()
    if where == "program":
        variables["PATH"] = variables["PATH"].partition(":")[2]
    variables |= {"EXAMPLE": str(ROOT / "examples" / "example.net"), "PASS": str(ROOT / "examples" / "my_pass.py")}
    words = ["bash", "-eu", "-c", SCRIPT]
    done = subprocess.run(words, env=variables, cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:3] == ["status 1", "1", "0"] and "off" in lines[3]
    assert (tmp_path / "out.txt").read_text().startswith("tensor2:\n[[2.000 3.000 4.000]")
    assert (tmp_path / "err.txt").read_text().startswith("<stdin>:1:8: error: ")


def test_a_command_that_is_killed_says_so() -> None:
    """The client ends as its command did."""
    script = "ln-opt --load '{}' --list-passes"
    plugin = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n"
    with pytest.MonkeyPatch.context() as patch:
        folder = Path(commands.folder())
        killing = folder / "killing.py"
        killing.write_text(plugin)
        patch.setenv("PATH", commands.environment()["PATH"])
        done = subprocess.run(["bash", "-c", script.format(killing)], capture_output=True, text=True)
    assert done.returncode in (-9, 137), done.stderr


def test_there_is_a_program_for_each_script() -> None:
    names = {path.name for path in Path(commands.folder()).iterdir()}
    assert names >= set(commands.entries())
    assert all((Path(sys.executable).parent / name).exists() for name in commands.entries())
