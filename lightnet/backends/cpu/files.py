"""The files that a C program is built with, of a network compiled for a processor. Imports the code generator when it
is asked for.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from lightnet.diagnostics import LightNetError
from lightnet.ir.runtime import Content, Files
from lightnet.runtime.files import write_atomic

if TYPE_CHECKING:
    from lightnet.backends.llvm.library import Library
    from lightnet.executable import Executable

#: Kinds of files that refer to the weights in a file beside them.
BESIDE = ("asm", "llvm")
WEIGHTS_SUFFIX = ".weights"
#: Seconds that the system's linker may take.
_PATIENCE = 300


class CFiles(Files):
    """Objects, libraries, headers and texts for C. Assembly and LLVM IR take the weights from a file beside them."""

    def __init__(self, executable: Executable, name: str):
        super().__init__(executable, name)
        self.weights_file = f"{name}{WEIGHTS_SUFFIX}"
        self._library: Library | None = None
        self._object: Any = None

    @property
    def library(self) -> Library:
        """The network as a module for C."""
        from lightnet.backends.llvm.library import library

        if self._library is None:
            native = self.executable.native
            self._library = library(self.name, native.emitted, self.executable.program, native.machine)
        return self._library

    def make(self, kind: str, path: Path, folder: Path) -> Content:
        from lightnet import __version__

        if kind == "header":
            from lightnet.backends.llvm.cheader import header

            _ = self.library  # which refuses what C cannot run
            return header(self.name, self.executable.program, __version__)
        if kind == "asm":
            return self.library.assembly(self.weights_file)
        if kind == "llvm":
            return self.library.llvm_ir()
        self._object = self._object or self.library.object()
        return self.write_object if kind == "obj" else self._shared(path.name, folder)

    def beside(self, kind: str) -> dict[str, Content]:
        if kind not in BESIDE or not self.library.static:
            return {}
        return {self.weights_file: self.write_weights}

    def write_object(self, out: BinaryIO) -> None:
        """Write the relocatable object, weights included."""
        before, behind = self._object
        out.write(before)
        if behind:
            self.write_weights(out)
        out.write(behind)

    def write_weights(self, out: BinaryIO) -> None:
        """Write the bytes of the static space."""
        out.write(self.executable.variant().static[: self.library.static].data)

    def _shared(self, soname: str, folder: Path) -> Content:
        """A shared library called `soname`, made by the system's C compiler or linker."""
        from lightnet.runtime.processor import architecture, architecture_of

        arch = architecture_of(self.executable.program.triple)
        if arch != architecture():
            raise LightNetError(
                f"a shared library is linked by this system's tools, which are not for {arch}: use --emit=obj and link "
                "it there"
            )
        if "," in soname:  # which cc would take for the end of the name
            soname = f"{self.name}.so"
        source, target = folder / "network.o", folder / "network.so"
        write_atomic(source, self.write_object)
        threads = ["-pthread"] if self.library.threads > 1 else []
        common = ["-shared", "-o", str(target), str(source)]
        if compiler := shutil.which("cc") or shutil.which("gcc") or shutil.which("clang"):
            command = [compiler, *common, "-Wl,-soname", f"-Wl,{soname}", "-Wl,-z,noexecstack", *threads]
        elif linker := shutil.which("ld") or shutil.which("ld.lld"):
            command = [linker, *common, "-soname", soname, "-z", "noexecstack"]
        else:
            raise LightNetError(
                "a shared library needs the system's C compiler or linker (cc or ld), and there is none: use --emit=obj"
            )
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_PATIENCE)
        except (OSError, subprocess.TimeoutExpired) as e:
            raise LightNetError(f"{command[0]} does not link the library: {e}") from None
        if done.returncode != 0 or not target.exists():
            last = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
            raise LightNetError(f"{command[0]} does not link the library: {last:.300}")
        linked = open(target, "rb")  # read after the folder has gone

        def write(out: BinaryIO) -> None:
            with linked:
                shutil.copyfileobj(linked, out)

        return write
