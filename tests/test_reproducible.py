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
COMPILE = "import sys; import lightnet; lightnet.compile(sys.argv[1], sys.argv[3], threads=2).save(sys.argv[2])"


def saved(network: Path, path: Path, seed: str, cache: str, target: str = "cpu") -> str:
    """The digest of an executable that a process with this hash seed and cache makes."""
    env = {
        **os.environ,
        "PYTHONHASHSEED": seed,
        "LIGHTNET_CACHE": cache,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    subprocess.run([sys.executable, "-c", COMPILE, str(network), str(path), target], env=env, check=True)
    return digest(path)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_executables_are_reproducible(tmp_path: Path) -> None:
    """Whatever the order of sets in a process, and what was compiled in it before."""
    network = NETS / "nets" / "lenet.net"
    for path in (tmp_path / "a.lnx", tmp_path / "b.lnx"):
        lightnet.compile(network, threads=2).save(path)
    found = {digest(path) for path in tmp_path.iterdir()}
    assert found == {saved(network, tmp_path / "c.lnx", "1", "")}


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("name", ["cnn.net", "example.net", "nets/squeezenet1.1.net", "nets/mobilenetv2.net"])
def test_executables_of_several_processes_are_the_same(name: str, target: str, tmp_path: Path) -> None:
    """Whether the cache of kernels has them, too."""
    network, cache = NETS / name, str(tmp_path / "cache")
    first = saved(network, tmp_path / "a.lnx", "1", cache, target)
    assert saved(network, tmp_path / "b.lnx", "2", "", target) == first
    assert saved(network, tmp_path / "c.lnx", "3", cache, target) == first
