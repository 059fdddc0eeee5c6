"""LLVM IR text to machine code: parse, optimise where asked, emit objects, link; equal kernels once a process.

Kernels from definitions (``tile.opt = "O2"``) run LLVM's middle end with its vectorisers; register-tiled kernels and
the launch list do not: their code is as good without, and it costs 24 to 136 ms a kernel. Imports llvmlite.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from threading import Lock

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
        if "+avx512f" in features or self.cpu in ("x86-64-v4",):
            return Vectors(16)
        if "+avx2" in features or self.cpu in ("x86-64-v3",):
            return Vectors(8)
        return Vectors(4)

    def target_machine(self) -> llvm.TargetMachine:
        initialize()
        target = llvm.Target.from_default_triple()
        return target.create_target_machine(cpu=self.cpu, features=self.features, opt=3, reloc="pic", codemodel="small")


#: Objects by (machine, symbol); a kernel's symbol is the hash of its text.
_objects: dict[tuple[Machine, str], bytes] = {}
_lock = Lock()


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
        machine = self.machine.target_machine()
        texts = [*self.emitted.kernels.values()] + ([(self.emitted.main, False)] if self.emitted.main else [])
        return "\n".join(machine.emit_assembly(_module(text, optimize, machine)) for text, optimize in texts)

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
        objects.append(_compile(emitted.main, False, machine.target_machine(), verify))
    return NativeModule(emitted, machine, objects)


def compile_texts(kernels: dict[str, tuple[str, bool]], machine: Machine, verify: bool = False) -> list[bytes]:
    """The objects of kernels given as symbol -> (text, runs O2), from the cache where they are there."""
    target = None
    objects = []
    for symbol, (text, optimize) in kernels.items():
        with _lock:
            image = _objects.get((machine, symbol))
        if image is None:
            target = target or machine.target_machine()
            image = _compile(text, optimize, target, verify)
            with _lock:
                _objects[machine, symbol] = image
        objects.append(image)
    return objects


def _compile(text: str, optimize: bool, target: llvm.TargetMachine, verify: bool = False) -> bytes:
    return target.emit_object(_module(text, optimize, target, verify))


def _module(text: str, optimize: bool, target: llvm.TargetMachine, verify: bool = False) -> llvm.ModuleRef:
    """Parse LLVM IR, and run the middle end if asked."""
    try:
        module = llvm.parse_assembly(text, llvm.create_context())
    except RuntimeError as error:
        raise LightNetError(f"LLVM refuses the emitted code (a bug of the emitter): {error}") from None
    module.triple = target.triple
    module.data_layout = str(target.target_data)
    if verify:
        module.verify()
    if optimize:
        options = llvm.create_pipeline_tuning_options(speed_level=2)
        options.loop_vectorization = options.slp_vectorization = options.loop_interleaving = True
        builder = llvm.create_pass_builder(target, options)
        manager = builder.getModulePassManager()
        manager.run(module, builder)
    return module
