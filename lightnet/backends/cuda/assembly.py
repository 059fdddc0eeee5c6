"""The kernels of a module, each compiled by itself and put together: so they come from the cache on disk where they are
there, and are compiled on several threads while others are emitted where they are not. Imports the cache of machine
code (`backends/llvm/cache.py`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from lightnet.backends.cuda import codegen
from lightnet.backends.llvm import cache, unlocked
from lightnet.diagnostics import LightNetError

#: To be raised when what `codegen.ptx` does with a text changes: a part of every key.
FORMAT = "ptx 2"
#: Threads that compile: more hardly find work, as kernels are emitted on one.
THREADS = 8
#: The last directive of what stands before everything else in a PTX text.
_HEADER_ENDS = ".address_size 64\n"
#: The name of every kernel while it is compiled, so that equal kernels of different networks are one entry of the
#: cache.
KERNEL_NAME = "ln_this_kernel"


class Assembler:
    """Compiles kernels for an architecture and a version of PTX, each added as an LLVM module of its own. To be used in
    a ``with`` block, which ends when nothing is compiled any more."""

    def __init__(self, arch: str, version: int):
        self.arch, self.version = arch, version
        codegen.check_arch(arch, version)
        count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        self._pool = ThreadPoolExecutor(min(THREADS, count) if unlocked.is_parallel() else 1)
        self._parts: list[tuple[str, str, str | Future[str]]] = []  # name, key of the cache on disk, PTX

    def __enter__(self) -> Assembler:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def add(self, text: str, name: str = KERNEL_NAME) -> None:
        """Compile a module of LLVM IR, unless it is in the cache; its kernel `KERNEL_NAME` is `name` in the PTX."""
        key = cache.key(FORMAT, self.arch, str(self.version), text)
        found = cache.read_cache([key]).get(key)
        made = self._pool.submit(codegen.ptx, text, self.arch, self.version) if found is None else found.decode()
        self._parts.append((name, key, made))

    def text(self) -> str:
        """The PTX of all that was added, in this order. Raises LightNetError where LLVM has no code for one."""
        new = {key: part.result() for _, key, part in self._parts if isinstance(part, Future)}
        cache.write_cache({key: text.encode() for key, text in new.items()})
        found = [(name, part if isinstance(part, str) else new[key]) for name, key, part in self._parts]
        return join([text.replace(KERNEL_NAME, name) for name, text in found])


def join(texts: Sequence[str]) -> str:
    """PTX texts of one architecture and version as one: what they declare outside of functions stands once. Raises
    LightNetError where two mean different things by a name."""
    header = texts[0][: _after_header(texts[0])]
    variables: dict[str, str] = {}
    bodies = []
    for text in texts:
        at = _after_header(text)
        if text[:at] != header:
            raise LightNetError("PTX for different devices is put together (a bug of the emitter)")
        body, depth = [], 0
        for line in text[at:].splitlines():
            if depth == 0 and line.startswith(".") and line.endswith(";"):
                name = _name(line)
                if variables.setdefault(name, line) != line:
                    raise LightNetError(f"two kernels have a variable '{name}' each (a bug of the emitter)")
                continue
            depth += line.count("{") - line.count("}")
            body.append(line)
        bodies.append("\n".join(body).strip("\n"))
    return header + "\n" + "\n\n".join(filter(None, ["\n".join(variables.values()), *bodies])) + "\n"


def _after_header(text: str) -> int:
    at = text.find(_HEADER_ENDS)
    if at < 0:
        raise LightNetError("LLVM gives a text that is no PTX")
    return at + len(_HEADER_ENDS)


def _name(line: str) -> str:
    """The name of a variable, by its declaration: ``.global .align 4 .b8 table[8] = {…};``."""
    return line.split("=")[0].rstrip("; ").split()[-1].split("[")[0]
