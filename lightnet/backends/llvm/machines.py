"""The processors that code can be made for: this one, and others by name, also of another architecture.

Imports llvmlite (through `jit`).
"""

from __future__ import annotations

import llvmlite.binding as llvm

from lightnet.backends.llvm.jit import CodeMachine
from lightnet.diagnostics import LightNetError
from lightnet.runtime.processor import architecture_of

THIS_MACHINE = "host"
#: Name -> the architecture, and LLVM's name of the processor. The levels are those of the x86-64 psABI.
CPUS = {
    "x86-64": ("x86_64", "x86-64"),
    "x86-64-v2": ("x86_64", "x86-64-v2"),
    "x86-64-v3": ("x86_64", "x86-64-v3"),
    "x86-64-v4": ("x86_64", "x86-64-v4"),
    "generic-aarch64": ("aarch64", "generic"),
}
#: What people call them by what decides the kernels.
ALIASES = {"baseline": "x86-64", "avx2": "x86-64-v3", "avx512": "x86-64-v4", "neon": "generic-aarch64"}


def machine(cpu: str = THIS_MACHINE, triple: str | None = None) -> CodeMachine:
    """The machine called `cpu` (``host``, a name of `CPUS` or of `ALIASES`) under a target triple (default: this
    system's, for the processor's architecture). Raises LightNetError for a name or a triple that is not known, and
    where they disagree."""
    if cpu == THIS_MACHINE:
        host = CodeMachine.host()
        if triple is None or architecture_of(triple) == architecture_of(llvm.get_default_triple()):
            return CodeMachine(host.cpu, host.features, _checked(triple)) if triple is not None else host
        raise LightNetError(f"this processor runs no {architecture_of(triple)} code: name one with --cpu ({_names()})")
    name = ALIASES.get(cpu, cpu)
    if name not in CPUS:
        raise LightNetError(f"unknown processor '{cpu:.40}'; there are: {THIS_MACHINE}, {_names()}")
    arch, llvm_name = CPUS[name]
    here = llvm.get_default_triple()
    if triple is None:
        triple = here if architecture_of(here) == arch else f"{arch}-unknown-linux-gnu"
    if architecture_of(triple) != arch:
        raise LightNetError(f"'{cpu}' is an {arch} processor, and '{triple:.60}' is another architecture")
    return CodeMachine(llvm_name, "", _checked(triple))


def variants(text: str) -> list[str]:
    """The processors of ``--variants=avx512,avx2,baseline``, the most able first (of equal ability: as they are
    listed)."""
    from lightnet.runtime.processor import required

    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise LightNetError("--variants names no processor")
    if twice := [name for i, name in enumerate(names) if name in names[:i]]:
        raise LightNetError(f"--variants names '{twice[0]}' twice")
    machines = {name: machine(name) for name in names}
    return sorted(names, key=lambda name: -len(required(machines[name].cpu, machines[name].features)))


def _checked(triple: str) -> str:
    """A triple that LLVM knows. Raises LightNetError for another one."""
    if not triple.isprintable() or len(triple) > 100:
        raise LightNetError("a target triple is a short name such as aarch64-unknown-linux-gnu")
    llvm.initialize_all_targets()
    try:
        llvm.Target.from_triple(triple)
    except RuntimeError:
        raise LightNetError(
            f"LLVM has no target for '{triple}'; a triple is, for example, aarch64-unknown-linux-gnu"
        ) from None
    return triple


def _names() -> str:
    return ", ".join([*CPUS, *ALIASES])
