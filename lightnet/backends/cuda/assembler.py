"""NVIDIA's assembler, ptxas: machine code (a cubin) from PTX, where its program is on this machine. The driver does the
same when it loads PTX."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from lightnet.diagnostics import LightNetError

#: Seconds that one call may take.
TIMEOUT = 300


@cache
def find_tool(program: str) -> str | None:
    """The path of ``ptxas``, ``nvdisasm`` or ``cuobjdump``: what $LIGHTNET_PTXAS names and what stands beside it, in
    the Python packages of NVIDIA (``pip install nvidia-cuda-nvcc``), or on PATH; None where it is not there."""
    named = os.environ.get("LIGHTNET_PTXAS")
    if named is not None:
        beside = named if program == "ptxas" else str(Path(named).with_name(program))
        if program == "ptxas" or os.access(beside, os.X_OK):
            return beside
    for folder in _packages():
        for path in sorted(folder.glob(f"*/bin/{program}")):
            if os.access(path, os.X_OK):
                return str(path)
    return shutil.which(program)


def _packages() -> Iterator[Path]:
    """The folders where pip puts NVIDIA's packages: ``nvidia/cu13/bin/ptxas``."""
    spec = importlib.util.find_spec("nvidia")
    yield from map(Path, (spec.submodule_search_locations or []) if spec is not None else [])


def assemble(ptx: str, arch: str) -> bytes:
    """The cubin of a PTX text for an architecture (``sm_90``). Raises LightNetError where there is no ptxas, and with
    what it says of text that it does not take."""
    path = find_tool("ptxas")
    if path is None:
        raise LightNetError("objects of cuda are made by ptxas, which is not here: pip install nvidia-cuda-nvcc, put "
                            "it on PATH, "
                            "or name it in LIGHTNET_PTXAS")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "kernels.ptx", Path(folder) / "kernels.cubin"
        source.write_text(ptx)
        try:
            done = subprocess.run(
                [path, f"-arch={arch}", str(source), "-o", str(target)], capture_output=True, text=True, timeout=TIMEOUT
            )
        except OSError as e:
            raise LightNetError(f"{path} cannot be run: {e.strerror}") from None
        except subprocess.TimeoutExpired:
            raise LightNetError(f"{path} does not end within {TIMEOUT} s") from None
        if done.returncode:
            raise LightNetError(f"{path}: {done.stderr.strip() or f'exit status {done.returncode}'}")
        return target.read_bytes()
