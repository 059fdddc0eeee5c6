"""NVIDIA's assembler for the tests: what it says of PTX, and the machine code that it makes.

It is looked for in $LIGHTNET_PTXAS, in the Python package nvidia-cuda-nvcc (``pip install 'lightnet-compiler[cuda-test]'``) and on PATH; the disassembler
in nvidia-cuda-nvdisasm and nvidia-cuda-cuobjdump, beside ptxas and on PATH. Tests skip without them, and say so.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from lightnet.backends.cuda.assembler import TIMEOUT, find_tool


@dataclass(frozen=True)
class Usage:
    """What a thread of a kernel has: registers, bytes of stack frame, bytes stored and loaded since registers did not suffice; and bytes of shared
    memory of a block, the static ones."""

    registers: int
    stack: int
    spills: int
    shared: int


@dataclass(frozen=True)
class Assembled:
    """Machine code, what it uses by kernel, and the lines of warnings, and of what has a number (C7517: it waits where the text does not)."""

    cubin: bytes
    kernels: dict[str, Usage]
    warnings: tuple[str, ...]


class Refused(Exception):
    """ptxas does not take a PTX text."""


def require() -> str:
    """The path of ptxas; the test is skipped without one."""
    path = find_tool("ptxas")
    if path is None:
        pytest.skip("no ptxas: pip install 'lightnet-compiler[cuda-test]', or put it on PATH")
    if not os.access(path, os.X_OK):
        pytest.fail(f"LIGHTNET_PTXAS is {path}, which is no program", pytrace=False)
    return path


def assembled(ptx: str, arch: str) -> Assembled:
    """The machine code of a PTX text for an architecture. Raises `Refused`."""
    path = require()
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "kernels.ptx", Path(folder) / "kernels.cubin"
        source.write_text(ptx)
        done = subprocess.run(
            [path, f"-arch={arch}", "-v", str(source), "-o", str(target)],
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
        if done.returncode:
            raise Refused(done.stderr)
        text = done.stdout + done.stderr
        warnings = tuple(line for line in text.splitlines() if _WARNING.search(line))
        return Assembled(target.read_bytes(), usages(text), warnings)


_WARNING = re.compile(r"(?i:warning)|\(C\d+\)")
_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


def usages(text: str) -> dict[str, Usage]:
    """What ``ptxas -v`` prints, by kernel: for each its name, its frame, its registers."""
    found: dict[str, Usage] = {}
    name, frame = "", (0, 0)
    for line in text.splitlines():
        if entry := _ENTRY.search(line):
            name, frame = entry[1], (0, 0)
        elif stack := _STACK.search(line):
            frame = int(stack[1]), int(stack[2]) + int(stack[3])
        elif used := _REGISTERS.search(line):
            shared = _SHARED.search(line)
            found[name] = Usage(int(used[1]), *frame, int(shared[1]) if shared else 0)
    return found


def machine_code(cubin: bytes) -> dict[str, Counter[str]]:
    """How often each instruction (``HMMA.16816.F32``) stands in each kernel. The test is skipped without a disassembler."""
    program = find_tool("nvdisasm") or find_tool("cuobjdump")
    if program is None:
        pytest.skip("no nvdisasm or cuobjdump: pip install 'lightnet-compiler[cuda-test]', or put one on PATH")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [program, file.name] if program.endswith("nvdisasm") else [program, "-sass", file.name]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=True)
    return instructions(done.stdout)


_SECTION = re.compile(r"^\s*(?:\.section\s+\.text\.([\w$]+)|Function : ([\w$]+))")
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Za-z0-9_.]*)")


def instructions(text: str) -> dict[str, Counter[str]]:
    """The counts of a disassembler's text."""
    found: dict[str, Counter[str]] = {}
    counts: Counter[str] = Counter()
    for line in text.splitlines():
        if section := _SECTION.match(line):
            counts = found.setdefault(section[1] or section[2], Counter())
        elif instruction := _INSTRUCTION.match(line):
            counts[instruction[1]] += 1
    return found


def families(counts: Counter[str]) -> Counter[str]:
    """Counts by the first part of an instruction's name: ``HMMA``."""
    summed: Counter[str] = Counter()
    for name, count in counts.items():
        summed[name.partition(".")[0]] += count
    return summed
