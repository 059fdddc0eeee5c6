"""The suites that CI runs beside the tests, as tests: the core of the conformance cases, and the fuzzing of a seed, a test for each case.

`place` writes the cases into the folder of a run, and this file among the tests of a copy of the project, where pytest collects it. A conformance case of
the floor has to pass; a fuzzed file has to be read or refused. Corpora of the fuzzer are those of the project without a fault.
"""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

#: The folder of cases, beside the copies of the project.
CASES = "cases"
#: The name of this file among the tests of a copy.
NAME = "tests/test_ci_suites.py"
#: Bytes of a conformance case: of larger ones, loading alone takes seconds.
LARGE = 8 << 20
#: Cases of each target that are fuzzed, and the seed.
COUNT, SEED = 100, 20261122


def place(root: Path, work: Path, copy: Path) -> None:
    """Put the suites of the project at `root` among the tests of a copy in `work`; they are none where it has no such tools."""
    if not (root / "tools" / "conformance.py").exists():
        return
    if not (folder := work / CASES).exists():
        path = os.pathsep.join(map(str, (root, root / "tools", root / "tests")))
        words = [sys.executable, "-m", "mutations.ci_suites", str(folder)]
        subprocess.run(words, env=os.environ | {"PYTHONPATH": path, "LIGHTNET_SAMPLE": "core"}, cwd=root, check=True)
    shutil.copy2(__file__, copy / NAME)


def write(folder: Path) -> None:
    """Write the cases into a folder."""
    import conformance
    from fuzz import targets
    from fuzzing.readers import readers
    from suites import floor
    from suites.cases import SUITES, collect

    known, cases = floor.read(), collect(SUITES)
    for suite in SUITES:
        for case in conformance.drawn(suite, [c for c in cases if c.suite == suite]):
            if case.key in known:
                _write(folder / "conformance" / f"{case.key.replace('/', '~')}.pickle", _pickled(case))
    for name in (*(t.name for t in readers()), "graphs", "calls"):
        target = targets()[name]
        for k in range(COUNT):
            _write(folder / "fuzz" / f"{name}~{k:03d}{target.suffix}", target.make(SEED * 1_000_000 + k))


def _pickled(case: Any) -> bytes:
    problem = case.load()
    data = pickle.dumps(problem)
    return data if len(data) <= LARGE else b""


def _write(path: Path, data: bytes) -> None:
    if data:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def stored(kind: str) -> list[Path]:
    """The files of cases of a kind, as a copy finds them."""
    return sorted((Path(__file__).resolve().parents[2] / CASES / kind).glob("*"))


@pytest.mark.parametrize("path", stored("conformance"), ids=lambda path: path.stem)
def test_conformance(path: Path) -> None:
    """A case of the floor passes."""
    from suites.problem import Case
    from suites.runners import PASS, judge

    suite, _, name = path.stem.partition("~")
    result = judge("lightnet", Case(suite, name, lambda: pickle.loads(path.read_bytes())))
    assert result.status == PASS, result.detail


@pytest.mark.parametrize("path", stored("fuzz"), ids=lambda path: path.stem)
def test_fuzz(path: Path, tmp_path: Path) -> None:
    """A file is read or refused, and what else its target asks."""
    from fuzz import targets

    target, data = targets()[path.stem.partition("~")[0]], path.read_bytes()
    copy = tmp_path / f"case{target.suffix}"
    copy.write_bytes(data)
    assert target.run(data, copy, {})


if __name__ == "__main__":
    write(Path(sys.argv[1]))
