"""Target `cuda`: PTX, on a device, in the PTX interpreter, or as loops on this processor. Imports the emitter when code
is made."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from lightnet.diagnostics import LightNetError
from lightnet.ir.runtime import COMPILE, RUN, RUN_PASSES, Content, Files, Option, Runtime, Settings
from lightnet.runtime.formats import CodeFormat

if TYPE_CHECKING:
    from pathlib import Path

    from xdsl.context import Context
    from xdsl.dialects.builtin import ModuleOp

    from lightnet.backends.cuda.module import CudaModule
    from lightnet.backends.cuda.threads import CudaThreads
    from lightnet.executable import Executable
    from lightnet.runtime.cuda.program import CudaCode

#: The architecture that stands for the best one of this machine's device.
NATIVE = "native"
#: The pass that makes loops of kernels of threads, of a package beside this one.
AS_LOOPS = "simt-to-cpu"


class CudaRuntime(Runtime):
    """PTX by LLVM, and the launch list as data."""

    options = (
        Option("arch",
               "the architecture to compile for: sm_80, which later ones run, sm_90, …, or native: the best for this "
               "machine's device, of which "
               "only that has all instructions; the default of `run` on a device, otherwise sm_80",
               tools=(RUN, COMPILE, RUN_PASSES)),
        Option("emulate", "run in the PTX interpreter, which needs no device and checks every access", bool, False,
               tools=(RUN,)),
        Option("on_cpu",
               "run its kernels as loops on this processor, which needs no device and is fast, and checks no access",
               bool, False, tools=(RUN,)),
    )  # fmt: skip
    files = {"ptx": ".ptx", "llvm": ".ll"}
    steps = "lightnet_debug.cuda_steps:DeviceStepper"

    @property
    def format(self) -> CodeFormat:
        from lightnet.runtime.cuda.format import PTX

        return PTX

    def settle(self, given: Mapping[str, Any]) -> Settings:
        options = self.valued(given)
        if options["emulate"] and options["on_cpu"]:
            raise LightNetError("emulate interprets PTX, and on_cpu makes none: choose one of them")
        if options["arch"] == NATIVE:
            from lightnet.backends.cuda.native import native_arch

            options["arch"] = native_arch()
        passes = {"features": options["arch"] or "", "arch": options["arch"]}
        if not options["on_cpu"]:
            return Settings(self, options, passes)
        from lightnet.backends.cpu.runtime import RUNTIME as CPU

        return Settings(CPU, options, passes, behind=(AS_LOOPS,))

    def here(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """With the architecture of the device that is there. Where there is none, the run will say so."""
        found = dict(given)
        if not found.keys() & {option.name for option in self.options}:
            from lightnet.backends.cuda.native import native_arch
            from lightnet.runtime.cuda.driver import CudaUnavailable

            with suppress(CudaUnavailable):
                found["arch"] = native_arch()
        return found

    def holds(self, loops: ModuleOp | None, options: Mapping[str, Any]) -> dict[str, Any]:
        from lightnet.backends.cuda.arch import arch_of

        return {**options, "arch": arch_of(loops) or options.get("arch")}

    def make(self, loops: ModuleOp, settings: Settings) -> CudaModule:
        from lightnet.backends.cuda.arch import arch_of
        from lightnet.backends.cuda.module import CudaModule

        if (arch := arch_of(loops)) is None:
            raise LightNetError(
                "the module does not say which architecture its kernels are for: run its passes up to lower-cuda first"
            )
        return CudaModule(loops, arch)

    def facts(self, made: CudaModule, threads: int) -> dict[str, Any]:
        from lightnet.backends.cuda.codegen import TRIPLE

        return {"threads": threads, "cpu": made.arch, "triple": TRIPLE}

    def code(self, made: CudaModule) -> CudaCode:
        return made.code

    def as_loops(self, ctx: Context, module: ModuleOp) -> ModuleOp:
        from lightnet.ir.registry import PASSES

        copy = module.clone()
        PASSES.get(AS_LOOPS)().apply(ctx, copy)
        return copy

    def as_threads(self, module: ModuleOp) -> CudaThreads | None:
        from lightnet.backends.cuda.arch import arch_of

        if (arch := arch_of(module)) is None:
            return None
        from lightnet.backends.cuda.threads import CudaThreads  # the emitter of PTX takes a while to import

        return CudaThreads(module, arch)

    def writer(self, executable: Executable, name: str) -> Files:
        return PtxFiles(executable, name)


class PtxFiles(Files):
    """PTX, and the LLVM IR that it is made of."""

    def make(self, kind: str, path: Path, folder: Path) -> Content:
        return self.executable.native.assembly if kind == "ptx" else self.executable.native.llvm_ir


RUNTIME = CudaRuntime()
