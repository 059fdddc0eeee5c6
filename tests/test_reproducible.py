"""The same network compiled twice gives the same bytes, in one process and in others."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import lightnet

NETS = Path(__file__).parents[1] / "examples"
COMPILE = "import sys; import lightnet; lightnet.compile(sys.argv[1], threads=2).save(sys.argv[2])"


def saved(network: Path, path: Path, seed: str, cache: str) -> str:
    """The digest of an executable that a process with this hash seed and cache makes."""
    env = {
        **os.environ,
        "PYTHONHASHSEED": seed,
        "LIGHTNET_CACHE": cache,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    subprocess.run([sys.executable, "-c", COMPILE, str(network), str(path)], env=env, check=True)
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("name", ["example.net", pytest.param("nets/squeezenet1.1.net", marks=pytest.mark.slow),
                                  pytest.param("nets/mobilenetv2.net", marks=pytest.mark.slow)])  # fmt: skip
def test_executables_are_reproducible(name: str, tmp_path: Path) -> None:
    """Whatever the order of sets in the process, whether the cache of kernels has them, and what was compiled before."""
    network, cache = NETS / name, str(tmp_path / "cache")
    first = saved(network, tmp_path / "a.lnx", "1", cache)
    assert saved(network, tmp_path / "b.lnx", "2", "") == first
    assert saved(network, tmp_path / "c.lnx", "3", cache) == first
    for number in range(2):
        lightnet.compile(network, threads=2).save(tmp_path / f"{number}.lnx")
    found = {hashlib.sha256((tmp_path / f"{number}.lnx").read_bytes()).hexdigest() for number in range(2)}
    assert found == {first}
