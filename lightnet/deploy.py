"""Files of a compiled network, for those who run it elsewhere: an executable of ours, and what its target's runtime
writes.

Every file is made before the first is written, and each appears whole or not at all. Imports the compiler's code
generator when it is asked for.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightnet.diagnostics import LightNetError
from lightnet.ir.registry import RUNTIMES
from lightnet.ir.runtime import Content, Runtime
from lightnet.runtime.files import write_atomic

if TYPE_CHECKING:
    from lightnet.executable import Executable

#: The kinds of files that there are of every executable with code -> the suffix of each: what
#: `lightnet.load_executable` takes, and level 4.
EVERY = {"lnx": ".lnx", "mlir": ".mlir"}


def kinds_of(runtime: Runtime) -> dict[str, str]:
    """The kinds of files of a runtime's executables -> the suffix of each."""
    return {"lnx": EVERY["lnx"], **runtime.files, "mlir": EVERY["mlir"]}


def _every_kind() -> dict[str, str]:
    return {kind: suffix for name in RUNTIMES for kind, suffix in kinds_of(RUNTIMES.get(name)).items()}


#: The kinds of files of our targets -> the suffix of each.
KINDS = _every_kind()


def emit(
    executable: Executable,
    kinds: Mapping[str, str | Path],
    name: str,
    variants: Sequence[Executable] = (),
    sign: str | os.PathLike[str] | None = None,
) -> list[str]:
    """Write files of an executable: `kinds` maps each kind that is wanted (`kinds_of` its runtime) to its path. `name`
    is the prefix of C's symbols; `variants` are further executables of the network, for processors that can do less,
    `sign` the private key to sign it with (`lnx` alone).

    Some kinds refer to others, written beside them (assembly of cpu, to ``NAME.weights``). Returns the paths that were
    written. Raises LightNetError: a kind that the target has not, a network that C cannot run, a system without a
    linker, a file that cannot be written.
    """
    whole, executable = executable, _numbers_of(executable, kinds)
    if not executable.is_native:
        raise executable.no_code("emit")
    check_kinds(kinds, executable.options.get("target", ""), executable.runtime)
    maker = executable.runtime.writer(executable, name)
    with tempfile.TemporaryDirectory() as folder:
        files: dict[str, Content] = {}
        for kind, path in kinds.items():
            if kind == "lnx":
                continue
            if kind == "mlir":
                files[os.fspath(path)] = str(executable.loops) + "\n"
                continue
            files[os.fspath(path)] = maker.make(kind, Path(path), Path(folder))
            if os.fspath(path) != "-":
                files |= {os.fspath(Path(path).parent / n): content for n, content in maker.beside(kind).items()}
        if "lnx" in kinds:
            whole.save(kinds["lnx"], variants, sign)
        for path, content in files.items():
            write_atomic(path, content)
    return [*files, *(os.fspath(kinds[k]) for k in kinds if k == "lnx")]


def _numbers_of(executable: Any, kinds: Iterable[str]) -> Executable:
    """The executable without its host part, which files for C have no place for. Raises LightNetError where it does
    more than to name classes, whose numbers the network gives."""
    from lightnet.runtime.hosted import of_numbers

    found, foreign = of_numbers(executable), [kind for kind in kinds if kind != "lnx"]
    if foreign and hasattr(found, "host"):
        raise LightNetError(
            f"cannot emit '{foreign[0]}': the network has ops on text, which run on the host ({found.host}): they are "
            "in a .lnx alone",
            label="emit.host",
        )
    return getattr(found, "network", found)


def check_kinds(kinds: Mapping[str, object] | Sequence[str], target: str, runtime: Runtime) -> None:
    """Raise LightNetError for kinds of files that there are not of code for a target."""
    there = kinds_of(runtime)
    if unknown := [kind for kind in kinds if kind not in there]:
        whose = [name for name in RUNTIMES if unknown[0] in RUNTIMES.get(name).files]
        hint = f" ('{unknown[0]}' is of target {' and '.join(whose)})" if whose else ""
        raise LightNetError(f"cannot emit '{unknown[0]:.40}' for target {target}; there are: {', '.join(there)}{hint}",
                            label="deploy.kind")  # fmt: skip
