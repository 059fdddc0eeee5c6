"""A launch list as data, beside a body that has its kernels: what a target runs whose machine takes one launch after
the other.

A target of one's own needs no more than a format that says how a body becomes functions; a `SharedLibrary` is the body
of those whose code a C compiler makes. Imports NumPy, the standard library and the rest of the runtime.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

import numpy as np

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError
from lightnet.runtime.arrays import ALIGNMENT, aligned
from lightnet.runtime.formats import CodeFormat
from lightnet.runtime.machine import PROCESS, Area, Machine, Opened
from lightnet.runtime.program import Program
from lightnet.runtime.spaces import Place, SpacesInstance

#: The kinds of lines.
KERNEL_LINE, COPY_LINE, HOST_LINE = "kernel", "copy", "host"


@dataclass(frozen=True)
class ListedLine:
    """A line of a launch list: a ``kernel`` called `name`, on the blocks 0 to `size`; a ``copy`` of `size` bytes from
    the first place to the second; or the run-time call number `size` on a place."""

    kind: str
    places: tuple[Place, ...]
    name: str = ""
    size: int = 0


@dataclass(frozen=True)
class ListedCode:
    """A body, and the lines that launch what is in it."""

    body: bytes
    lines: tuple[ListedLine, ...]

    def header(self) -> dict[str, Any]:
        """Everything but the body, as JSON values."""
        return {"lines": [[line.kind, [list(p) for p in line.places], line.name, line.size] for line in self.lines]}

    @classmethod
    def from_header(cls, header: Mapping[str, Any], body: bytes, program: Program) -> ListedCode:
        """The code of a header; ValueError, TypeError or LookupError where it is none, or has places outside of the
        program's memory. What kernels do stands in the body alone, which is trusted."""
        lines = []
        for kind, places, name, size in header["lines"]:
            found = tuple((str(space), int(offset)) for space, offset in places)
            line = ListedLine(str(kind), found, str(name), int(size))
            if line.kind not in (KERNEL_LINE, COPY_LINE, HOST_LINE) or line.size < 0:
                raise ValueError("a line of no kind that there is")
            reach = line.size if line.kind == COPY_LINE else 0
            if not all(0 <= offset <= program.memory[space] - reach for space, offset in found):
                raise ValueError("a place outside of memory")
            if (line.kind == COPY_LINE and len(found) != 2) or (line.kind == HOST_LINE and len(found) != 1):
                raise ValueError("a line with too many places, or too few")
            lines.append(line)
        if [line.size for line in lines if line.kind == HOST_LINE] != list(range(len(program.hosts))):
            raise ValueError("run-time calls that there are not")
        return cls(body, tuple(lines))


#: A kernel in this process: the first block, the one behind the last, and the arrays of bytes at its places.
Kernel = Callable[[int, int, Sequence[np.ndarray]], None]


class ListedFormat(CodeFormat):
    """A format of launch lists. A subclass has a `name` and `load`; `machine` is what a loaded program runs on."""

    machine: Machine = PROCESS

    @abstractmethod
    def load(self, body: bytes) -> Callable[[str], Kernel]:
        """The kernels of a body, by name. Raises `LightNetError` where it cannot be loaded, or lacks one."""

    def packed(self, program: Program, code: ListedCode) -> tuple[dict[str, Any], bytes]:
        return {"kind": self.name, **code.header()}, code.body

    def unpacked(self, program: Program, facts: Mapping[str, Any], body: memoryview) -> ListedCode:
        if facts.get("kind") != self.name:
            raise ValueError("code of another format")
        return ListedCode.from_header(facts, bytes(body), program)

    def opened(self, program: Program, code: ListedCode, options: Mapping[str, Any]) -> Opened:
        return Opened(self.machine, options)

    def instance(self, program: Program, code: ListedCode, static: np.ndarray, defaults: Mapping[str, np.ndarray],
                 opened: Opened | None) -> ListedInstance:  # fmt: skip
        assert opened is not None
        kernel = self.load(code.body)
        return ListedInstance(program, code.lines, {n: kernel(n) for n in {*_named(code)}}, static, defaults, opened)


def _named(code: ListedCode) -> list[str]:
    return [line.name for line in code.lines if line.kind == KERNEL_LINE]


class ListedInstance(SpacesInstance):
    """A program that runs line by line, on memory of this process that stands for the machine's: all that goes in,
    comes out, or is copied between its spaces, the machine copies."""

    def __init__(
        self,
        program: Program,
        lines: Sequence[ListedLine],
        kernels: Mapping[str, Kernel],
        static: np.ndarray,
        defaults: Mapping[str, np.ndarray],
        opened: Opened,
    ):
        super().__init__(program, static, defaults, opened)
        self._lines, self._kernels = tuple(lines), kernels
        self._memory = {
            s: aligned(max(n, 1), ALIGNMENT, zeroed=True) for s, n in {"static": 1, **program.memory}.items()
        }
        #: The launches and copies, in order.
        self.launches = [line for line in lines if line.kind != HOST_LINE]

    def apart(self) -> ListedInstance:
        assert self.opened is not None
        return ListedInstance(self.program, self._lines, self._kernels, self.static, self.defaults, self.opened)

    def at(self, place: Place) -> np.ndarray:
        return self._memory[place[0]][place[1] :]

    def run_all(self, stream: TextIO | None) -> None:
        for line in self._lines:
            if line.kind != HOST_LINE:
                self._run(line)
            elif stream is not None:
                self._host(line.size, line.places[0], stream)

    def launch(self, number: int) -> None:
        """Run one of `launches`."""
        self._run(self.launches[number])

    def _run(self, line: ListedLine) -> None:
        if line.kind == KERNEL_LINE:
            self._kernels[line.name](0, line.size, [self.at(place) for place in line.places])
            return
        machine, state = self.machine
        source, to = (Area(place[0], self.at(place)[: line.size], line.size) for place in line.places)
        machine.copy(state, to, source)


class SharedLibrary(ListedFormat):
    """Bodies that are shared libraries of this system, as a C compiler makes them: a kernel is
    ``void name(long first, long end, void *...)``."""

    def load(self, body: bytes) -> Callable[[str], Kernel]:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "kernels.so")
            with open(path, "wb") as file:
                file.write(body)
            try:
                library = ctypes.CDLL(path)  # which stays when its file goes
            except OSError as error:
                raise LightNetError(f"the code does not load here: {error!s:.200}", label="lnx.code") from None

        def kernel(name: str) -> Kernel:
            try:
                function = library[name]
            except AttributeError:
                raise LightNetError(f"the code has no kernel '{name:.80}'", label="lnx.code") from None
            function.restype = None

            def call(first: int, end: int, arrays: Sequence[np.ndarray]) -> None:
                function(ctypes.c_long(first), ctypes.c_long(end), *(ctypes.c_void_p(a.ctypes.data) for a in arrays))

            return call

        return kernel
