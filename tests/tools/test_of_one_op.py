"""`tools/dev.py op NAME`, by pytest's option `--op`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import of_one_op
import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("name", "near"),
    [("rleu", ["relu"]), ("ln.relu", ["relu"]), ("conv_2d", ["conv2d"]), ("zzzzzz", ["none is near it"])],
)
def test_an_unknown_op_is_an_error_that_lists_near_names(name: str, near: list[str]) -> None:
    with pytest.raises(pytest.UsageError) as e:
        of_one_op.require(name)
    assert f"unknown op '{name}'" in str(e.value) and all(word in str(e.value) for word in near)


@pytest.mark.parametrize("name", ["relu", "conv2d", "create"])
def test_an_op_is_known(name: str) -> None:
    of_one_op.require(name)


def test_nothing_is_collected_for_an_unknown_op() -> None:
    words = [sys.executable, "-m", "pytest", "--op", "sigmiod", "tests/filecheck", "tests/test_filecheck.py"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "ERROR: unknown op 'sigmiod'; near are: sigmoid" in done.stderr
