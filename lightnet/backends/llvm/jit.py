"""LLVM IR text to machine code: parse, optimise where asked, emit objects, link; equal kernels once a process.

Kernels from definitions (``tile.opt = "O2"``) run LLVM's middle end with its vectorisers; register-tiled kernels and
the launch list do not: their code is as good without, and it costs 24 to 136 ms a kernel. Imports llvmlite.
"""

from __future__ import annotations

import ctypes
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property

import llvmlite.binding as llvm
from xdsl.dialects.builtin import ModuleOp

from lightnet.backends.llvm.emitter import Emitted, Vectors, emit_module
from lightnet.diagnostics import LightNetError
from lightnet.runtime.native import NativeCode, initialize


@dataclass(frozen=True)
class Machine:
    """A processor that code is made for, in LLVM's names: `cpu` (``znver5``) and `features` (``+avx512f,...``)."""

    cpu: str
    features: str

    @classmethod
    def host(cls) -> Machine:
        """The processor that this runs on."""
        initialize()
        return cls(llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())

    @property
    def vectors(self) -> Vectors:
        """The width that its features allow."""
        features = self.features.split(",")
        level = {"x86-64-v3": 3, "x86-64-v4": 4}.get(self.cpu, 0)
        # AVX-512F has the conversions of F16C; AArch64 always has them, in a feature of another name.
        half = level >= 3 or any(f in features for f in ("+f16c", "+avx512f", "+fp-armv8", "+neon"))
        if "+avx512f" in features or level == 4:
            return Vectors(16, half)
        return Vectors(8 if "+avx2" in features or level == 3 else 4, half)

    def target_machine(self, opt: int = 3) -> llvm.TargetMachine:
        """LLVM's code generator for it, at level `opt` (the launch list is made at 0: it is long and runs once)."""
        initialize()
        target = llvm.Target.from_default_triple()
        return target.create_target_machine(
            cpu=self.cpu, features=self.features, opt=opt, reloc="pic", codemodel="small"
        )


#: Objects by (machine, symbol); a kernel's symbol is the hash of its text.
_objects: dict[tuple[Machine, str], bytes] = {}
_lock = threading.Lock()


@dataclass
class NativeModule:
    """A compiled level-4 module: `objects` can be stored and loaded again by `runtime.native.NativeCode`."""

    emitted: Emitted
    machine: Machine
    objects: list[bytes]

    @cached_property
    def code(self) -> NativeCode:
        """The objects, linked into this process."""
        return NativeCode(self.objects)

    @property
    def llvm_ir(self) -> str:
        """LLVM IR as emitted, before LLVM's own passes."""
        return self.emitted.text

    @cached_property
    def assembly(self) -> str:
        """The machine code as assembly text (compiled again)."""
        compiler = _Compiler(self.machine)
        texts = [*self.emitted.kernels.values()] + ([(self.emitted.main, False)] if self.emitted.main else [])
        return "\n".join(compiler.target.emit_assembly(compiler.module(*text)) for text in texts)

    def kernel_address(self, name: str) -> int:
        """The address of ``void (i64 lo, i64 hi, ptr...)``, the kernel called `name` in the module."""
        return self.code.address(self.emitted.symbols[name])


def compile_module(
    module: ModuleOp, *, machine: Machine | None = None, vectors: Vectors | None = None, verify: bool = False
) -> NativeModule:
    """Compile a level-4 module for `machine` (the host unless given).

    `vectors` overrides the width that the machine suggests; `verify` runs LLVM's verifier (for tests). Raises
    LightNetError for what level 4 does not have.
    """
    machine = machine or Machine.host()
    emitted = emit_module(module, vectors or machine.vectors)
    objects = compile_texts(emitted.kernels, machine, verify)
    if emitted.main is not None:
        objects.append(_Compiler(machine, opt=0).run(emitted.main, False, verify))
    return NativeModule(emitted, machine, objects)


def compile_texts(
    kernels: dict[str, tuple[str, bool]], machine: Machine, verify: bool = False, threads: int | None = None
) -> list[bytes]:
    """The objects of kernels given as symbol -> (text, runs O2), in that order, from the cache where they are there.

    `threads` (as many as processors, at most 8, unless given) compile at the same time.
    """
    with _lock:
        missing = [symbol for symbol in kernels if (machine, symbol) not in _objects]
    threads = threads or min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)
    workers = min(threads, len(missing)) if _unlocked() else 1
    local = threading.local()

    def one(symbol: str) -> None:
        if not hasattr(local, "compiler"):
            local.compiler = _Compiler(machine)
        image = local.compiler.run(*kernels[symbol], verify)
        with _lock:
            _objects[machine, symbol] = image

    if workers > 1:
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(one, missing))
    else:
        for symbol in missing:
            one(symbol)
    with _lock:
        return [_objects[machine, symbol] for symbol in kernels]


@cache
def _unlocked() -> ctypes.CDLL | None:
    """LLVM without llvmlite's lock, for the two calls that take the time.

    llvmlite serialises every call in the process. LLVM itself needs only that a context and a target machine stay with
    one thread, which holds here. None where this llvmlite does not tell its library: then one thread compiles.
    """
    try:
        library = ctypes.CDLL(llvm.ffi.lib._name)
        library.LLVMPY_TargetMachineEmitToMemory.restype = ctypes.c_void_p
        library.LLVMPY_RunNewModulePassManager.restype = None
    except (AttributeError, OSError):
        return None
    return library


class _Compiler:
    """A target machine, for the use of one thread."""

    def __init__(self, machine: Machine, opt: int = 3):
        self.target = machine.target_machine(opt)

    def run(self, text: str, optimize: bool, verify: bool = False) -> bytes:
        """LLVM IR text to an object file."""
        module = self.module(text, optimize, verify)
        library = _unlocked()
        if library is None:
            return self.target.emit_object(module)
        message = ctypes.c_char_p()
        memory = library.LLVMPY_TargetMachineEmitToMemory(self.target._ptr, module._ptr, 1, ctypes.byref(message))
        if not memory:
            raise LightNetError(f"LLVM cannot make code for this machine: {(message.value or b'').decode()}")
        buffer = ctypes.cast(memory, llvm.ffi.LLVMMemoryBufferRef)
        try:
            start = llvm.ffi.lib.LLVMPY_GetBufferStart(buffer)
            return ctypes.string_at(start, llvm.ffi.lib.LLVMPY_GetBufferSize(buffer))
        finally:
            llvm.ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)

    def module(self, text: str, optimize: bool, verify: bool = False) -> llvm.ModuleRef:
        """Parse LLVM IR (into a context of its own), and run the middle end if asked."""
        try:
            module = llvm.parse_assembly(text, llvm.create_context())
        except RuntimeError as error:
            raise LightNetError(f"LLVM refuses the emitted code (a bug of the emitter): {error}") from None
        module.triple = self.target.triple
        module.data_layout = str(self.target.target_data)
        if verify:
            module.verify()
        if optimize:
            self._optimize(module)
        return module

    def _optimize(self, module: llvm.ModuleRef) -> None:
        options = llvm.create_pipeline_tuning_options(speed_level=2)
        options.loop_vectorization = options.slp_vectorization = options.loop_interleaving = True
        builder = llvm.create_pass_builder(self.target, options)
        manager = builder.getModulePassManager()
        library = _unlocked()
        if library is None:
            manager.run(module, builder)
        else:
            library.LLVMPY_RunNewModulePassManager(manager._ptr, module._ptr, builder._ptr)
