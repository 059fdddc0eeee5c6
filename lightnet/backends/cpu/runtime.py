"""Target `cpu`: machine code of this process, or of another processor. Imports LLVM when code is made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lightnet.ir.runtime import COMPILE, RUN_PASSES, Files, Option, Runtime, Settings
from lightnet.runtime.formats import CodeFormat

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from lightnet.backends.llvm.jit import CodeMachine, NativeModule
    from lightnet.executable import Executable
    from lightnet.runtime.program import Program

#: Bytes of static tensors from which on it pays to give back the pages of LLVM's code, of which linking takes 10 MB
#: again.
_MANY = 1 << 20
#: How kernels are shaped by the width of vectors, in floats.
_FEATURES = {16: "avx512", 8: "avx2"}


class CpuRuntime(Runtime):
    """Machine code by LLVM. `Settings.machine` is the processor that it is made for; None: this one."""

    options = (
        Option("cpu",
               "the processor to make code for: host (default), x86-64, x86-64-v2, x86-64-v3, x86-64-v4, "
               "generic-aarch64, or baseline, avx2, "
               "avx512, neon; code for another one is saved, or emitted", default="host", tools=(COMPILE, RUN_PASSES)),
        Option("triple", "the system to make code for, as LLVM names it (default: this one)", metavar="TRIPLE",
               tools=(COMPILE, RUN_PASSES)),
        Option("features", "what decides the shape of kernels: avx512bf16, avx512vnni, avx512, avx2 or neon "
               "(default: what the processor has)",
               tools=()),
    )  # fmt: skip
    files = {"obj": ".o", "so": ".so", "header": ".h", "asm": ".s", "llvm": ".ll"}
    shares = True
    steps = "lightnet_debug.steps:NativeStepper"

    @property
    def format(self) -> CodeFormat:
        from lightnet.runtime.native_format import NATIVE

        return NATIVE

    def settle(self, given: Mapping[str, Any]) -> Settings:
        options = self.valued(given)
        machine = _machine(options["cpu"], options["triple"])
        features = options["features"]
        return Settings(
            self, options, {"features": host_features(machine) if features is None else features}, machine=machine
        )

    def variants(self, text: str) -> list[dict[str, Any]]:
        from lightnet.backends.llvm.machines import variants

        return [{"cpu": name} for name in variants(text)]

    def make(self, loops: ModuleOp, settings: Settings) -> NativeModule:
        from lightnet.backends.llvm.jit import compile_module

        return compile_module(loops, machine=settings.machine)

    def facts(self, made: NativeModule, threads: int) -> dict[str, Any]:
        from llvmlite.binding import get_default_triple

        return {
            "objects": tuple(made.objects), "threads": max(threads, made.emitted.threads),
            "widest": made.emitted.threads,
            "scratch": made.emitted.scratch, "cpu": made.machine.cpu, "features": made.machine.features,
            "triple": made.machine.triple or get_default_triple(),
        }  # fmt: skip

    def check_runs(self, program: Program, settings: Settings) -> None:
        from lightnet.runtime import processor

        if settings.machine is not None:
            processor.check_processor(program.cpu, program.features, program.triple)

    def made_all(self, static_bytes: int) -> None:
        if static_bytes > _MANY:
            from lightnet.runtime.native import release_library

            release_library()

    def writer(self, executable: Executable, name: str) -> Files:
        from lightnet.backends.cpu.files import CFiles

        return CFiles(executable, name)


def _machine(cpu: str, triple: str | None) -> CodeMachine | None:
    if (cpu, triple) == ("host", None):
        return None
    from lightnet.backends.llvm import machines

    return machines.machine(cpu, triple)


def host_features(machine: CodeMachine | None = None) -> str:
    """The feature of this machine (or of `machine`) that decides how kernels are shaped."""
    from lightnet.backends.llvm.jit import CodeMachine

    vectors = (machine or CodeMachine.host()).vectors
    dots = vectors.dots
    several = "avx512bf16" if dots.bfloats and dots.bytes else "avx512vnni" if dots.bytes else None
    return several or _FEATURES.get(vectors.width, "neon")


RUNTIME = CpuRuntime()
