"""Files of a compiled network, for those who run it elsewhere: an executable of ours, or what a C program is built with.

Every file is made before the first is written, and each appears whole or not at all. Imports the compiler's code generator when it is
asked for.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from lightnet.diagnostics import LightNetError
from lightnet.runtime.files import write_atomic

if TYPE_CHECKING:
    from lightnet.backends.llvm.library import Library
    from lightnet.executable import Executable

#: Kinds of files -> the suffix of each.
KINDS = {
    "lnx": ".lnx",
    "obj": ".o",
    "so": ".so",
    "header": ".h",
    "asm": ".s",
    "llvm": ".ll",
    "mlir": ".mlir",
    "ptx": ".ptx",
}
#: Those of code for cuda, and those that there are of nothing else.
CUDA_KINDS, CUDA_ONLY = ("lnx", "ptx", "llvm", "mlir"), ("ptx",)
#: Those that refer to the weights in a file beside them.
BESIDE = ("asm", "llvm")
WEIGHTS_SUFFIX = ".weights"
#: Seconds that the system's linker may take.
_PATIENCE = 300

Content = str | bytes | Callable[[BinaryIO], None]


def emit(
    executable: Executable,
    kinds: Mapping[str, str | Path],
    name: str,
    variants: Sequence[Executable] = (),
    sign: str | os.PathLike[str] | None = None,
) -> list[str]:
    """Write files of an executable: `kinds` maps each of `KINDS` that is wanted to its path. `name` is the prefix of C's symbols;
    `variants` are further executables of the network, for processors that can do less, `sign` the private key to sign it with (`lnx` alone).

    Assembly and LLVM IR take the weights from ``NAME.weights``, written beside them. Returns the paths that were written. Raises
    LightNetError: a network that C cannot run (`backends.llvm.library`), a system without a linker, a file that cannot be written.
    """
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise LightNetError(f"cannot emit '{unknown[0]:.40}'; there are: {', '.join(KINDS)}")
    if not executable.is_native:
        raise LightNetError("there is no machine code to emit: compile for a target other than none")
    _check_target(executable, kinds)
    maker = _Maker(executable, name)
    with tempfile.TemporaryDirectory() as folder:
        files: dict[str, Content] = {}
        for kind, path in kinds.items():
            if kind == "lnx":
                continue
            files[os.fspath(path)] = maker.make(kind, Path(path), Path(folder))
            if executable.arch is None and kind in BESIDE and maker.library.static and os.fspath(path) != "-":
                files[os.fspath(Path(path).parent / maker.weights_file)] = maker.write_weights
        if "lnx" in kinds:
            executable.save(kinds["lnx"], variants, sign)
        for path, content in files.items():
            write_atomic(path, content)
    return [*files, *(os.fspath(kinds[k]) for k in kinds if k == "lnx")]


def _check_target(executable: Executable, kinds: Iterable[str]) -> None:
    """Raise LightNetError for kinds of files that there are not of code for this target."""
    for kind in kinds:
        if executable.arch is None and kind in CUDA_ONLY:
            raise LightNetError(f"--emit={kind} is for --target=cuda")
        if executable.arch is not None and kind not in CUDA_KINDS:
            raise LightNetError(f"cannot emit '{kind}' for target cuda; there are: {', '.join(CUDA_KINDS)}")


class _Maker:
    """Makes the contents of files; what several need is made once."""

    def __init__(self, executable: Executable, name: str):
        self.executable, self.name = executable, name
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
        """The content of a file of a kind that is to be called `path`; `folder` is for files on the way."""
        from lightnet import __version__

        if kind == "mlir":
            return str(self.executable.loops) + "\n"
        if self.executable.arch is not None:
            return self.executable.ptx if kind == "ptx" else self.executable.llvm_ir
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
                f"a shared library is linked by this system's tools, which are not for {arch}: use --emit=obj and link it there"
            )
        if "," in soname:  # which cc would take for the end of the name
            soname = f"{self.name}.so"
        source, target = folder / "network.o", folder / "network.so"
        write_atomic(source, self.write_object)
        threads = ["-pthread"] if self.library.threads > 1 else []
        common = ["-shared", "-o", str(target), str(source)]
        if compiler := shutil.which("cc") or shutil.which("gcc") or shutil.which("clang"):
            command = [compiler, *common, "-Wl,-soname", f"-Wl,{soname}", "-Wl,-z,noexecstack", "-lm", *threads]
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
